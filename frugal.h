/* frugal.h - exact synchronous training of embedding tables that are larger than GPU memory. C11, public domain or MIT.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Host memory holds the table. Devices cache its hot rows, and read all other rows in host memory. Background workers
 * write updates to the table in the order in which their rows will next be read (P2F: priority-based proactive
 * flushing). So training is exactly synchronous, and it rarely waits. The idea is FRUGAL's (Xie et al., ASPLOS '25).
 *
 * This is what a trainer includes. The state machine, and why it is exact: frugal_p2f.h. Devices on GPUs:
 * frugal_cuda.h. Saving tables to files: frugal_save.h. Serving them: frugal_serve.h. To see what an instance does:
 * frugal_seeing.h. Which rows are hot: frugal_counts.h. Copies that may lack updates: frugal_secondaries.h. Several
 * machines: frugal_machines.h. Other languages: frugal_bindings.h. C++: frugal.hpp. Your own device: src/device.h.
 *
 * CONTENTS
 *      1. Do this                 5. Ownership, files      8. Errors
 *      2. The life of one step    6. Threading             9. Limits and memory
 *      3. Example                 7. Determinism          10. Licence
 *      4. Options
 *      >>open >>step >>records >>rows >>workers
 *
 * 1. DO THIS
 *      Run `ninja vendor`, and copy build/vendor: frugal.c, headers, and for GPUs frugal_cuda.cu. Compile the C file by
 *          cc -std=c11 -O3 -ffp-contract=off -fno-math-errno -DNDEBUG -c frugal.c   (link: -lpthread -lm)
 *      and include frugal.h in C11, C++17 or CUDA C++. How to compile frugal_cuda.cu: frugal_cuda.h.
 *
 * 2. THE LIFE OF ONE STEP
 *      A table is a range of rows, with an initializer and optimizer settings of its own; all rows of an instance have
 *      the same dim. Devices train synchronously, data-parallel. Each device makes three calls per step. Device d
 *      trains step s, and announces a later step t, at most s + L (L is the lookahead):
 *
 *          loader   announce(d, t, keys)     as soon as the keys are known
 *          trainer  lookup(d, s) -> rows     waits at the gate until the rows read at s have all their updates
 *                   ... forward, backward
 *                   update(d, s, gradients)  sums them by unique row into the staging block, and commits
 *
 *      Behind these calls, workers and waiting threads run the state machine of frugal_p2f.h: a step is planned when
 *      all devices have announced it, and closed when all have committed it. Then its updates are flushed (written to
 *      the table), the most urgent first.
 *
 *      - A device's step is lookup, then update. lookup may be repeated before update; update may come without
 *        gradients (a skipped step). A device with nothing to do announces zero keys, and still calls lookup and
 *        update. A device whose data has ended calls frugal_finish, and no other call of a step after it. A table whose
 *        settings are `frozen` never changes.
 *      - Lookup and update take no keys: the batch is the one announced, in its order.
 *      - With L = 0 every device announces s just before its lookup. No later read is known then, so updates cannot be
 *        flushed in the order of reads, and lookups wait longer; training is as exact.
 *      - Often most rows of a step are touched by one device alone. Such a row needs no record, no queue and no worker:
 *        with FRUGAL_ALONE_PLACE its device updates it in host memory (and its cached copy) in update(d, s). The bits
 *        are those of FRUGAL_ALONE_STAGED. But while some devices have updated s and others have not, the table has
 *        rows of two steps: calls that read it (drain, read_rows, view, save, verify) then return BUSY; and if a GPU is
 *        lost then, rows may already have its updates of the unfinished step. With a single device every row is touched
 *        by one device alone, so nothing is planned, closed or flushed.
 *      - With FRUGAL_ALONE_KEPT a device with a cache updates such a row in its copy alone, and nothing crosses the
 *        link to host memory. The host row is written when the cache evicts the copy, when another device announces the
 *        row (its gate waits for that), and when frugal_drain or frugal_read_rows reads it. This is faster where a
 *        device touches most of its rows alone, several times while they are cached: with one device, or with samples
 *        dealt by locality (frugal_place.h). A row without a current copy in the cache is updated in place. Between
 *        drains the host table is not complete: what devices keep is lost if the process ends, or calls frugal_close,
 *        without frugal_drain before. (frugal_drain writes it back also after frugal_stop.) What a GPU keeps is lost
 *        with the GPU. These host rows are then of earlier steps (one that was being written back may be of two), and
 *        FRUGAL_ERR_LOST says at most how many. If there are any, drain and save return LOST, too, and a table in a
 *        file is torn (section 5). If you cannot accept such losses, set STAGED, or resume from a save.
 *
 * 3. EXAMPLE (a whole program: examples/quickstart.c)
 *
 *      frugal_table table = {.rows = 1000000, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
 *      frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 64, .max_keys = 4096, .lookahead = 10, .workers = 1,
 *                          .optimizer = {.kind = FRUGAL_ADAGRAD}, .notice = print_notice};
 *      frugal *f;
 *      frugal_open(&desc, &f);
 *      frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 50000});
 *      for (uint64_t s = 0, t = 0; s < steps; s++) {
 *          for (; t < steps && t <= s + 10; t++) {
 *              frugal_keys keys = {.table = 0, .keys = batch[t].keys, .n = batch[t].n};
 *              frugal_announce(f, 0, t, &(frugal_batch){.segments = &keys, .n_segments = 1});
 *          }
 *          frugal_lookup(f, 0, s, rows);
 *          forward_and_backward(batch[s], rows, grads);
 *          frugal_update(f, 0, s, &(frugal_gradients){.grads = grads, .lr = 0.1f});
 *      }
 *      frugal_drain(f);
 *      frugal_close(f);
 *
 * 4. OPTIONS (each a macro defined before the #include)
 *      FRUGAL_API       everywhere: linkage of the public functions. Default: extern.
 *      FRUGAL_STATIC, FRUGAL_ASSERT, FRUGAL_ATOMICS_OVERRIDE
 *                       see frugal_pq.h; frugal_flush.c ignores FRUGAL_STATIC, because other files call its code.
 *      FRUGAL_PQ_IMPLEMENTATION_ELSEWHERE, FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE
 *                       frugal_flush.c: another file has the implementation of frugal_pq.h, or of both headers.
 *      FRUGAL_NO_SAVES, FRUGAL_NO_SERVING, FRUGAL_NO_SEEING, FRUGAL_NO_SECONDARIES, FRUGAL_NO_PROCESSES
 *                       frugal_flush.c: leaves out saves and serving; serving; traces and metrics; secondaries; several
 *                       processes. Their calls are refused, and so are `saved`, `increments` and `name` of
 *                       frugal_desc: the status is ARGUMENT, or PROCESS for the last macro, and frugal_message names
 *                       the macro. Without serving, frugal_cuda_serve.cu is empty: the linker refuses its calls.
 *      NDEBUG           frugal_flush.c: the command of section 1, CMake (except in its configuration Debug) and the
 *                       Python package define it. Without it the library checks itself: an error in the library then
 *                       ends the process (assert). Every lookup then also checks invariant (2) of the paper, row by
 *                       row, and takes up to 1.5 times as long; not where the device's stream waits at the gate,
 *                       because lookup returns before that gate is open.
 *
 * 5. OWNERSHIP, FILES
 *      frugal_open copies its settings. The instance owns table, staging, plans and threads. Shared workers, and a
 *      matrix that the caller gives, stay the caller's, and must outlive the instance. Keys are the caller's again when
 *      the call returns, and so are gradients of a device on host cores; gradients on a GPU are the caller's again when
 *      its stream has passed the update.
 *
 *      A process may fork while it has instances. The child cannot use them: their memory is left out of the child
 *      (MADV_DONTFORK; so an idle child costs no memory), a pointer into it is invalid there, calls return PROCESS or,
 *      without a status, do nothing, and frugal_close frees nothing and changes nothing. The child does have the
 *      caller's matrix and what the caller's allocator gave. Such an allocator must not hide its memory from children,
 *      because these calls read the instance there. A child may open or join instances of its own, and look up in a
 *      served version (frugal_serve.h).
 *
 *      frugal_desc.file: links are followed, and only a regular file is accepted. If the file is missing or empty, a
 *      new one is made under another name in the same folder, with its space reserved, and is renamed when all else has
 *      succeeded. A file that exists must hold tables of this layout (rows of each table, dim, rows_as, the optimizer's
 *      kind), be clean, and have first_step as its next step (0: steps count from 0), or it is refused (FILE) and not
 *      changed. If it has holes, space is reserved for them, too. Opening reads the header, not the rows, which have no
 *      checksum. Until frugal_close the file is locked against every other frugal_open. Its header, on the disk, says
 *      "in use": in a new file from the start, in an existing file from the first announced batch that is not
 *      read-only, or from the first row written. frugal_close marks it clean if the instance is drained, even if it was
 *      stopped, has lost a device, or is in the middle of a step: the rows are those of the last step that all devices
 *      have committed. Writing them to the disk may take long. If that fails, or the process ends before, or the
 *      instance is not drained, a file in use is *torn*: its rows may be of several steps. Rows that are updated in
 *      place are of two steps in the middle of a step; therefore a table in a file is staged by default. Announced rows
 *      that are not in memory are read from the disk before they are looked up, by workers and threads that wait; those
 *      that no such thread has read yet, lookup asks for, all at once.
 *
 * 6. THREADING
 *      A device has a loader (announce) and a trainer (lookup, update): two threads, or one. One thread may also drive
 *      several devices: in each step, one device after the other. Calls for different devices may run in parallel. A
 *      thread that waits helps to plan, close and flush, so one thread without workers is enough. Calls that read or
 *      write rows of the table are made between steps; their comments say more.
 *      Workers are an instance's own, or shared: tables of several dims need one instance for each dim, and
 *      frugal_workers_open makes one set of threads for all. A worker first does what a gate waits for (closing,
 *      planning, flushing), in each instance in turn. Then it plans. Then it takes, from all queues, the rows that are
 *      due in the fewest steps. So the gate of one instance does not wait for the backlog of another. It waits at most
 *      for the piece that a worker is doing, and for one piece of each other instance with equally urgent work.
 *      Instances may be opened and closed while others train; each has its own gates, statistics, devices, stop and
 *      losses, and only its own progress counts for stuck_seconds. A thread of the caller that waits in an instance
 *      helps that instance only. Idle workers and waiters sleep, and those of instances that share workers are woken
 *      together. Nothing spins except compare-and-swap retries; while a GPU step is in flight, one idle thread, which
 *      polls for 20 us without rest, then backs off; and threads that share a device's batch, until its last piece.
 *      Bind each trainer's thread to a processor of its own: the system may run two threads that sleep often on one
 *      processor, and then small batches take twice as long (bench_step --bind 0,1).
 *
 * 7. DETERMINISM
 *      Given the same data, step order, number of devices and settings, the drained table is the same bit for bit,
 *      whatever the number of workers, the lookahead, the staging depth, the caches, frugal_mode, frugal_alone and the
 *      timing. (Rows listed by frugal_secondaries, and their bounds, are settings in this sense.) Gradients of equal
 *      keys in a batch are summed in blocks of 32 positions, then the block sums in order, then the devices' sums in
 *      order; then each row takes one optimizer step per training step. Each sum starts from its first element. The sum
 *      of a row over devices, or its mean, is multiplied by `scale` and by the factor that limits it to clip_norm, in
 *      one rounding (src/arithmetic.h: frugal_clip). NaN payloads are not part of the promise.
 *
 *      Weights of 16 bits (frugal_desc.rows_as) take half the memory and half the bytes on the link, and a cache of the
 *      same bytes has up to twice the rows. An update widens them, computes as with floats, and rounds the result once:
 *      to the nearest, or by 16 random bits. These are a function of (seed, row, step, element) alone, so a host row
 *      and its copies round alike. Copies hold 16 bits, and writing back copies them. So two trainings have the same
 *      bits only if their seeds are the same, and a training that is resumed needs the seed that it began with. Costs:
 *      on host cores an update of a row of 32 weights takes up to 1.5 times as long as with fp32, and with fp16 up to 3
 *      times (docs/results.md); fp16 weights beyond 65504 become infinite, which notices of frugal_save and
 *      frugal_verify report. Rules for infinity, NaN and small numbers: src/arithmetic.h.
 *
 * 8. ERRORS
 *      Whatever can fail returns a frugal_status. A call that does not return FRUGAL_OK has trained nothing: steps and
 *      rows are as before, except for flushing, and for what the call's comment names. frugal_strerror returns the
 *      sentence of a status; frugal_message, that of the last error. No call prints, asserts on bad input or exits.
 *
 *      Set frugal_desc.notice: the library gives this function a text, to be printed or logged, about what no call
 *      returns as an error. The first is a long wait: a call that has waited for 5 s (half of stuck_seconds, if that is
 *      less) with nothing to do reports what FRUGAL_ERR_STUCK would say after stuck_seconds. A wait that is shared by
 *      several threads is reported once. Its cause is reported again, at a later step, only if it lasts twice as long.
 *      frugal_close reports which steps and rows are lost because they were not drained, and how many steps had a
 *      learning rate of 0; frugal_save and frugal_verify, which rows have NaN or infinity. The function runs in the
 *      caller's thread that waits or calls; several threads may run it at the same time. It may call frugal_get_stats,
 *      frugal_settings, frugal_write_metrics, the calls of traces and frugal_stop, and no other call of the instance.
 *
 * 9. LIMITS AND MEMORY
 *      At most: 254 devices; 64 instances that share workers; 2^26 keys per step, of all devices together; 2^32 - 2
 *      rows; lookahead 15; lookahead + staging 63; 2^41 steps from the first. Beside table and optimizer state: 8 bytes
 *      a row (with one device that updates in place they are never touched, unless the caller's allocator touches them;
 *      a single device that cannot update in place needs them when it is attached), one bit more with `increments`, one
 *      byte more if touches are counted (frugal_counts.h), and parts that do not grow with rows. These take, with
 *      K = max_keys, L = lookahead, S = staging, n devices, and D floats a record (dim rounded up to a multiple of 16,
 *      below 16 to a power of two), in bytes:
 *          staging   4 n S K D                       sorting   16 n K, and 256 KiB a device if K is 2^17 or more; 8 K
 *                                                              a device with a cache
 *          batches   17 n (L + 1) K                  settings  2624 a group: tables side by side whose optimizer
 *                                                              settings are the same; 24 n a table
 *      and the state machine's (frugal_p2f.h, section 10), with threads = workers (shared ones, too) + 2 n + 256.
 *      frugal_open refuses what never fits: more than RAM and swap, or than the limits of the process's control groups
 *      (Linux). The caller's own matrices and allocator do not count, nor does a table in a file. A notice reports what
 *      fits, but is not available now.
 *      Table, state, words, staging and batches fill whole pages of 64 KiB, so that a GPU may pin them on every system;
 *      this adds less than 2^18 + n (2^17 + 768 (L + 1) + 64 S). For the memory of a GPU see frugal_cuda.h.
 *
 * 10. LICENCE
 *      MIT or public domain (Unlicense), at your choice; see LICENSE.
 */
#ifndef FRUGAL_H
#define FRUGAL_H

#ifdef FRUGAL_IMPLEMENTATION
#error "frugal.h has no implementation any more: FRUGAL_P2F_IMPLEMENTATION and frugal_p2f.h, see CHANGELOG.md"
#endif
#include "frugal_p2f.h" /* frugal_status, frugal_mode, limits; stddef.h, stdint.h */

#ifdef __cplusplus
extern "C" {
#endif

/* >>open - an instance: settings, tables, memory. "0: x" says what a field that is left zero stands for. */

typedef struct frugal frugal;
typedef struct frugal_workers frugal_workers;                       /* threads that several instances share */
typedef enum { FRUGAL_SUM, FRUGAL_MEAN } frugal_reduce;             /* over devices; mean divides by their number */
typedef enum { FRUGAL_FP32, FRUGAL_BF16, FRUGAL_FP16 } frugal_type; /* IEEE's; bf16: the upper half of fp32 */
/* How updates round weights of 16 bits (src/arithmetic.h). Rounded to the nearest, a row that learns by small steps
 * stops before it has arrived, because each step is less than half of what a weight of 16 bits can change by. */
typedef enum { FRUGAL_STOCHASTIC, FRUGAL_NEAREST } frugal_rounding;
typedef enum { FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ROWWISE_ADAGRAD, FRUGAL_ADAM, FRUGAL_ADAMW } frugal_optimizer_kind;
/* Who updates a row that one device alone touches in a step, and where (section 2): a worker, from the staging block;
 * the device, in host memory; the device, in its cached copy if there is one, else in host memory. */
typedef enum { FRUGAL_ALONE_DEFAULT, FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT } frugal_alone;
/* Which rows a cache keeps when the ways of a set are full. COUNTED, the default: those that frugal_counts.h says.
 * LRU: those read last. STATIC: those of frugal_preload, and no others. */
typedef enum { FRUGAL_CACHE_COUNTED, FRUGAL_CACHE_LRU, FRUGAL_CACHE_STATIC } frugal_cache_policy;
typedef enum {
    FRUGAL_INIT_DEFAULT, /* zeros in new memory; a matrix, or a file that exists, is kept */
    FRUGAL_INIT_ZERO,
    FRUGAL_INIT_UNIFORM,
    FRUGAL_INIT_NORMAL,
    FRUGAL_INIT_COPY
} frugal_init_kind;

typedef struct frugal_optimizer { /* all numbers finite and not negative; betas below 1 */
    frugal_optimizer_kind kind;
    float eps;          /* 0: 1e-10 (Adagrad), 1e-8 (row-wise Adagrad, Adam), as PyTorch and FBGEMM */
    float beta1, beta2; /* Adam, AdamW; 0: 0.9, 0.999 */
    /* Of touched rows only. L2: the gradient becomes g + weight_decay * w. AdamW: before its step the weight loses
     * lr * weight_decay * w; 0: 0.01, as PyTorch. */
    float weight_decay;
    float initial_accumulator; /* Adagrad, row-wise Adagrad: first value of the state */
    float lr_scale;            /* multiplies the step's learning rate, in one rounding; 0: 1 */
    float clip_norm;           /* a row's gradient whose norm is larger is scaled down to it; 0: none is */
    int frozen;                /* 1: rows never change, weights nor state; gradients for them are dropped */
} frugal_optimizer;

typedef struct frugal_table {
    uint64_t rows;
    frugal_init_kind init; /* fields of other initializers than this one must be 0 */
    float low, high;       /* FRUGAL_INIT_UNIFORM: from low to high; low <= high, and the difference is finite */
    float mean, deviation; /* FRUGAL_INIT_NORMAL: its mean and standard deviation; finite, and deviation >= 0 */
    const float *source;   /* FRUGAL_INIT_COPY: source[rows][dim], row-major, read during open */
    /* The table's own settings; NULL: frugal_desc.optimizer. Its kind must be the desc's, because all rows have one
     * layout: a table of another kind goes into another instance. frugal_settings has the settings in force here. */
    const frugal_optimizer *optimizer;
} frugal_table;

typedef void (*frugal_notice)(const char *text, void *user); /* prints `text`, which is there until it returns */

typedef struct frugal_desc {
    const frugal_table *tables; /* tables[n_tables]: ranges of rows of one dim */
    uint32_t n_tables;
    uint32_t dim; /* weights a row, 1 .. 65536 */
    /* What weights are stored as: in the table, in files and saves, in copies of caches. Optimizer state, records and
     * sums are floats. Initializers and frugal_write_rows round to the nearest weight of 16 bits. */
    frugal_type rows_as;
    frugal_rounding rounding; /* of updates, if weights have 16 bits; by random bits of `seed`, row and step */
    uint32_t devices;         /* 0: 1; at most 254 */
    uint32_t max_keys;      /* of one device in one step, duplicates counted: each is a row of frugal_lookup's array */
    uint32_t lookahead;     /* L: how far announcements may run ahead, 0 .. 15; 10 is a good choice */
    uint32_t staging;       /* S: depth of the staging ring; 0: 4, or L + 2 if that is less; 1 if nothing is queued */
    uint64_t staging_bytes; /* budget of the staging rings of all devices: lowers S, to 1 at least; 0: no budget */
    uint32_t workers;       /* flush threads, at most 1024; 0: waiting callers do all work, and flush as they close */
    frugal_workers *shared_workers; /* of frugal_workers_open; `workers` is then 0, or their number. NULL: no sharing */
    int defer;                      /* queue updates although workers is 0: threads are lent through frugal_help */
    frugal_mode mode;               /* FRUGAL_P2F; FRUGAL_SYNC: write-through, every update due a step later */
    frugal_alone alone;             /* default: in place; staged if the table is in a file (section 2) */
    frugal_reduce reduce;           /* of the devices' gradients for a row */
    frugal_optimizer optimizer;     /* of tables that name none of their own */
    uint64_t first_step;            /* number of the first step, where a run is resumed; at most 2^62 - 1 */
    uint64_t seed;                  /* of the initializers, and of stochastic rounding */
    uint32_t init_threads;          /* 0: one a processor; more than 64 work as 64; the table does not depend on it */
    double stuck_seconds; /* a wait that finds nothing to do for this long: ERR_STUCK; 0: 300; below 0: never */
    /* Where the table lies: in memory of our own (huge pages where there are), or in one of these. */
    void *weights; /* the caller's matrix [rows][weights_stride] of `rows_as`, aligned to these; rows of all tables in
                      turn; initializers write it */
    uint64_t weights_stride; /* weights from row to row; 0: dim */
    float *state;            /* the caller's optimizer state [rows][state_stride]; NULL: memory of our own */
    uint64_t state_stride;   /* 0: frugal_state_floats() */
    const char *file;        /* a file mapped into memory: weights and state; made if it is missing (section 5) */
    /* 1: space is neither reserved nor asked for. A full disk is then SIGBUS, and memory that is not there ends the
     * process when rows are touched (SIGKILL). 0: both are errors of open (section 9) */
    int sparse;
    int take_torn; /* 1: a torn file is accepted, with rows of several steps; 0: it is refused */
    void *(*allocate)(size_t bytes, size_t alignment, void *user); /* NULL: the system's; zeroed or not */
    void (*release)(void *memory, size_t bytes, void *user);       /* NULL: memory is never released */
    void *user;
    frugal_notice notice; /* told, with `user`, what no call can fail for (section 8). NULL: it is not told */
    /* Saves (frugal_save.h) that rows, state and first_step are read from; initializers are then not used. */
    const char *const *saved; /* saved[n_saved]: a base, then its increments in order; read during open */
    uint32_t n_saved;         /* 0: none */
    uint32_t saved_part;      /* which of the instances that were saved together */
    /* Optimizer settings and reduce, the devices of MEAN, and with weights of 16 bits rounding and its seed need not be
     * the save's. */
    int saved_settings_may_differ;
    int increments;   /* a bit a row: frugal_save can save the rows that changed */
    const char *name; /* other processes may join the instance by it (frugal_join): 1 to 64 bytes */
    const struct frugal_machines *machines; /* the table is dealt over several (frugal_machines.h). NULL: it is not */
} frugal_desc;
/* Opens an instance: memory, table, workers; a file: section 5. A field that says nothing without another one
 * (weights_stride, state_stride, take_torn, saved, saved_part, saved_settings_may_differ) is refused if that one is not
 * set. On failure *out is NULL or an object that frugal_close accepts; a file, and the caller's matrix, are as they
 * were, unless reading a save that was checked before fails in the end: then the file is torn. Any thread.
 * Errors: ARGUMENT, LIMIT, LOOKAHEAD, MEMORY, FILE, SETTINGS, WORKER, ARITHMETIC, PROCESS (the name is taken; or the
 * shared workers are of the process that this one was forked from). */
FRUGAL_API frugal_status frugal_open(const frugal_desc *desc, frugal **out);
/* Joins the instance that another process of this user has opened with the name, or will have opened within so many
 * `seconds`. *out, as in frugal_open, is a handle of this process, to attach devices that no process has, and to train
 * them (docs/processes.md); frugal_close leaves the instance. Any thread. Errors: ARGUMENT, PROCESS (nobody has opened
 * it, or another version of Frugal has), MEMORY, WORKER, ARITHMETIC, FILE. */
FRUGAL_API frugal_status frugal_join(const char *name, double seconds, frugal **out);
/* Replaces `notice` and its `user` from now on; NULL: none. An instance that was joined has no other way. A notice that
 * is under way is not waited for. Any thread. Errors: ARGUMENT. */
FRUGAL_API frugal_status frugal_on_notice(frugal *f, frugal_notice notice, void *user);
/* The settings in force, defaults resolved; `workers`: of shared ones their number. NULL if `f` is not open. */
FRUGAL_API const frugal_desc *frugal_settings(const frugal *f);
/* The calling thread's last error, until its next one, as "FRUGAL_ERR_KEY: announce: ...": what was wanted, what was
 * found, what to do. */
FRUGAL_API const char *frugal_message(void);
FRUGAL_API uint32_t frugal_state_floats(frugal_optimizer_kind kind, uint32_t dim); /* state of one row */

/* A logical device on host cores (src/devices/cpu.c), with a set-associative cache under the holder rule. */
typedef struct frugal_cpu_desc {
    uint64_t cache_rows; /* 0: no cache; rounded up to whole sets of 8 */
    frugal_cache_policy policy;
    /* Threads, callers included, that sort, look up and update a batch in pieces; the others start with the first large
     * batch, sleep between batches, and end with frugal_close. Bits are the same. At most 64; 0: the processors that
     * the attaching thread may use, over the devices (a quota of processor time is not seen: then say how many). */
    uint32_t threads;
} frugal_cpu_desc;
/* Attaches `device`, before its first announcement. `desc` NULL: no cache. Errors: ARGUMENT, DEVICE, MEMORY, LIMIT. */
FRUGAL_API frugal_status frugal_cpu_attach(frugal *f, uint32_t device, const frugal_cpu_desc *desc);

/* >>step - announce, lookup, update; drain, close */

typedef struct frugal_keys { /* one segment of a batch */
    uint32_t table;
    const uint64_t *keys; /* keys[n], below the rows of `table`; an int64 array may be cast to it */
    uint32_t n;
    const int32_t *keys32; /* keys32[n] in place of `keys`, which is NULL then; NULL: `keys` */
} frugal_keys;
typedef struct frugal_batch {
    const frugal_keys *segments; /* segments[n_segments]; positions of the batch run through them in turn */
    uint32_t n_segments;         /* 0: an empty batch */
    int read_only;               /* this device will bring no gradients: its update must have none */
} frugal_batch;
/* Announces the batch of `device` at `step`; the batch cannot be changed afterwards. Keys are checked. Waits, helping,
 * until the step is legal (step <= closed + L); try_announce returns AGAIN instead. Any thread that helps sorts the
 * batch and plans the step, this one, too, before it returns. One thread at a time per device (its loader). The try
 * forms do not help: without workers, call frugal_help between them. Paper: section 3.2, the R set.
 * Errors: ARGUMENT, KEY, KEYS, TABLE, ORDER, DEVICE, FILE (only the first announcement, if the table is in a file),
 * STUCK, STOPPED, LOST; of a device that sorts (frugal_cuda.h), its own. */
FRUGAL_API frugal_status frugal_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch);
FRUGAL_API frugal_status frugal_try_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch);

typedef enum { FRUGAL_POOL_SUM, FRUGAL_POOL_MEAN } frugal_pooling;
typedef struct frugal_bags { /* as torch.nn.EmbeddingBag: bag b pools positions offsets[b] .. offsets[b + 1] - 1 */
    uint32_t n_bags;
    const uint32_t *offsets; /* offsets[n_bags + 1], rising, the first 0, the last n; on a GPU in its memory */
    const float *weights;    /* weights[n], by position; with SUM only, NULL: 1; on a GPU in its memory */
    frugal_pooling pooling;  /* of an empty bag: zeros */
    uint64_t stride;         /* elements from pooled row to pooled row, at least dim; 0: dim */
} frugal_bags;
typedef struct frugal_row_array { /* where a lookup writes */
    void *rows;                   /* rows[n][dim], by position of the batch. NULL: the step's staging block */
    uint64_t stride;              /* elements from row to row, at least dim; 0: dim; 0 without `rows`, and with bags */
    const frugal_bags *bags;      /* rows[n_bags][dim] instead, pooled, bags->stride elements apart */
    int no_wait;                  /* 1: what would wait returns AGAIN */
    frugal_type as; /* of the elements, to which `rows` is aligned. 16 bits: those of the rows, if they are of this
                       type; else rounded to the nearest, pooled rows once they are summed. Without `rows`: FP32 */
} frugal_row_array;
/* Gathers the announced batch: a key that occurs k times is copied k times, and what lies between rows stays. Waits,
 * helping, for the announcement, if the loader is late, and at the gate of `step`. May be repeated before update. One
 * thread at a time per device (its trainer). Acquires everything committed before `step`. Paper: sections 3.2, 3.3.
 * With neither rows nor bags each unique row is gathered once, into its record (frugal_get_records), and its gradient
 * may be written over it. This helps if many keys are equal, and on host cores it saves an array of the batch's size.
 * A bag's rows are added in the order of its positions, starting with the first; with weights each row is multiplied by
 * its weight (one fused multiply-add after the first); a mean is the sum divided by the number of rows. A position's
 * gradient is that of its bag, multiplied by the weight, or divided by that number. Weights get no gradient. A host
 * device uses the staging block for the rows meanwhile.
 * Errors: ARGUMENT (a stride below dim, or where it must be 0; of bags: no array, weights with a mean, or offsets that
 * fall or miss n, which a GPU says in a later call), ORDER (not this device's next step), FINISHED (frugal_finish),
 * DEVICE, STUCK, STOPPED, LOST; KEY, of a batch that a GPU sorts (frugal_cuda.h); MEMORY (bags); a device's own. */
FRUGAL_API frugal_status frugal_lookup_into(frugal *f, uint32_t device, uint64_t step, const frugal_row_array *to);
/* Its usual forms, inline; lookup_strided without a stride, and lookup_bags without bags, return ARGUMENT. */
static inline frugal_status frugal_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    const frugal_row_array to = {rows, 0, NULL, 0, FRUGAL_FP32};
    return frugal_lookup_into(f, d, step, &to);
}
static inline frugal_status frugal_try_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    const frugal_row_array to = {rows, 0, NULL, 1, FRUGAL_FP32};
    return frugal_lookup_into(f, d, step, &to);
}
/* Into part of a larger array: the row of position p at rows + p * stride. */
static inline frugal_status frugal_lookup_strided(frugal *f, uint32_t d, uint64_t step, float *rows, uint64_t stride) {
    const frugal_row_array to = {rows, stride, NULL, 0, FRUGAL_FP32};
    return frugal_lookup_into(f, d, step, stride ? &to : NULL);
}
static inline frugal_status frugal_lookup_bags(frugal *f, uint32_t d, uint64_t step, const frugal_bags *bags,
                                               float *rows) {
    const frugal_row_array to = {rows, 0, bags, 0, FRUGAL_FP32};
    return frugal_lookup_into(f, d, step, bags ? &to : NULL);
}

typedef struct frugal_gradients {
    const void *grads; /* grads[n][dim], by position of the batch; NULL with records or for none */
    int records;       /* the records were written instead, where frugal_get_records says */
    float lr;          /* learning rate of the step, finite and >= 0; all devices that bring gradients give the same */
    int by_bag;        /* grads[n_bags][dim] instead, by bag; the arrays of the frugal_bags must still be valid */
    uint64_t stride;   /* elements from gradient to gradient, at least dim; 0: dim */
    uint64_t n;        /* gradients in the array; another number than the batch has is refused. 0: not said */
    float scale;       /* multiplies each row's gradient of the step; as lr, the same of all devices. 0: 1 */
    frugal_type as;    /* of the elements, to which `grads` is aligned; they are summed as floats */
} frugal_gradients;
/* Commits the step of `device`: sums gradients by unique row into the staging block, updates the device's own cached
 * copies. `gradients` NULL, or without grads and records: a skipped step. The device's trainer. Never waits.
 * Errors: ORDER (no lookup of this step), SETTINGS (another lr or scale), ARGUMENT (gradients on a read-only batch,
 * both grads and records, by_bag without bags, another number of gradients than `n`, a stride below dim, an lr or scale
 * that is negative or not finite), DEVICE, STOPPED, LOST; a device's own (the step's settings then stay fixed). */
FRUGAL_API frugal_status frugal_update(frugal *f, uint32_t device, uint64_t step, const frugal_gradients *gradients);
/* The sum of squares of the step's gradients, which frugal_update would sum by unique row; rows of frozen tables do not
 * count. For clipping by the norm of a whole model, which is the root of this sum over all devices and of the squares
 * of the model's other parameters: give min(1, limit / (norm + 1e-6)) as `scale` to frugal_update, with the same
 * gradients. (With FRUGAL_MEAN divide this sum by the square of the number of devices. A row that several devices bring
 * counts with the squares of each.) The bits do not depend on the processor: the squares of a row are summed as for
 * row-wise Adagrad, those of the rows in double, by rising row. Between lookup and update of `step`; changes nothing.
 * Host devices read the gradients; the stream of a GPU is waited for. The device's trainer.
 * Errors: as frugal_update; ARGUMENT (no gradients, `squares` NULL); DEVICE (of a kind without it); MEMORY. */
FRUGAL_API frugal_status frugal_sum_squares(frugal *f, uint32_t device, uint64_t step,
                                            const frugal_gradients *gradients, double *squares);
/* The data of `device` has ended. The steps that it has announced are looked up and updated as ever; in later ones it
 * counts as if it announced empty batches and updated, without a call. So devices may have data of different length. A
 * lookup of a later step returns FRUGAL_FINISHED, also one that waits for its batch. frugal_cancel of a step that the
 * device has announced takes this back. Calling it twice is no error. The device's loader. Errors: ARGUMENT, DEVICE. */
FRUGAL_API frugal_status frugal_finish(frugal *f, uint32_t device);

/* Closes and flushes all committed steps, and has devices write back what they keep; announced steps stay announced. No
 * announce or update may be under way. Also succeeds after a device was lost: a step that this device did not finish is
 * not committed, and not in `steps` of frugal_get_stats; only rows that were updated in place may have it, and the call
 * waits until the other devices have done their updates in place. Errors: ARGUMENT, STUCK, STOPPED (all is written
 * back), BUSY (all is flushed, but a device has updated rows in place in a step that others have not updated; or a GPU
 * that keeps updates was given a step that waits for others, and has not written back; or a device was lost just now:
 * drain again), LOST (all is flushed and written back, except what lost devices kept). */
FRUGAL_API frugal_status frugal_drain(frugal *f);
/* Ends workers, closes devices, frees all memory. Shared workers go on; the call waits until each has noticed, which
 * takes at most its piece of work and one of each other instance. Updates not drained are lost, except what has been
 * flushed to a file or to the caller's matrix; a notice says how many. No other call may be under way. NULL is
 * accepted. In a forked child: OK (section 5). Whatever is returned, the instance is gone.
 * Errors: FILE: the file's rows or header did not get to the disk; it is torn or, if it was only read, keeps its old
 * step. STUCK: a process that has joined has been writing rows for stuck_seconds, so it is stopped or hangs; the
 * message names it; a table in a file is torn. */
FRUGAL_API frugal_status frugal_close(frugal *f);

/* >>records - gradients written in place; cancelling, stopping, helping */

typedef struct frugal_records {
    float *block;              /* block[n_unique][stride]: write the summed gradient of each unique row */
    uint64_t stride;           /* floats */
    uint32_t n, n_unique;      /* positions; unique rows */
    const uint32_t *record_of; /* record_of[n]: position -> record */
    const uint32_t *order;     /* order[n]: positions grouped by record, rising within each */
    const uint32_t *start;     /* start[n_unique + 1]: record r owns order[start[r]] .. order[start[r+1]-1] */
    const uint32_t *rows;      /* rows[n_unique]: row numbers over all tables, rising */
} frugal_records;
/* The step's staging block, to write summed gradients in place, between lookup and update of `step`; valid until then.
 * To have the bits that frugal_update would compute, the sums must follow `order`, in blocks of 32
 * (frugal_sum_positions of src/device.h). Where a stream waits at the gate, call this and write only after the stream
 * has passed lookup. Errors: ARGUMENT, ORDER, DEVICE, STUCK, STOPPED, LOST; a device's own. */
FRUGAL_API frugal_status frugal_get_records(frugal *f, uint32_t device, uint64_t step, frugal_records *out);

/* Takes back all announced steps from `step` on, on all devices; the next step to announce is `step`. Flushes what is
 * committed. No announce, finish or lookup may be under way. Errors: ORDER (a device has looked up `step`, or it lies
 * beyond the next step to announce), ARGUMENT, STUCK, STOPPED. */
FRUGAL_API frugal_status frugal_cancel(frugal *f, uint64_t step);
/* Wakes every waiter with FRUGAL_STOPPED, later ones too; a call that need not wait may still succeed. What the caller
 * did before happens before a call that returns STOPPED. Any thread; for a signal, one that its handler wakes. */
FRUGAL_API void frugal_stop(frugal *f);
/* For trainers that lend idle threads: does one piece of pending work (plan, close, recall, flush a page) on this one.
 * 1 if there was any. Any thread. */
FRUGAL_API int frugal_help(frugal *f);

/* >>rows - reading and writing them between steps; caches */

/* Reads rows as of the last committed step: weights[n][dim], state[n][frugal_state_floats] (either may be NULL), as
 * floats.
 * Flushes what it reads, and has devices that keep it write it back; touches no cache otherwise. Between steps (no
 * update under way). Rows of which a lost device kept updates are older; so they are in a view.
 * Errors: ARGUMENT, KEY, TABLE, STUCK, STOPPED, BUSY (as frugal_drain). */
FRUGAL_API frugal_status frugal_read_rows(frugal *f, const frugal_keys *keys, float *weights, float *state);
/* Writes rows; cached copies become outdated. Drained, nothing announced (BUSY); no other call may be under way.
 * Errors: ARGUMENT, KEY, TABLE, FILE (only the first write, if the table is in a file); if there is one device, its
 * own, and LOST: the rows are written then. */
FRUGAL_API frugal_status frugal_write_rows(frugal *f, const frugal_keys *keys, const float *weights,
                                           const float *state);
/* The host rows of a table in place, of frugal_desc.rows_as: row i begins i * *stride weights behind *weights. Exact
 * while the instance is drained; BUSY unless it is, but batches may be announced. Errors: ARGUMENT, TABLE, BUSY. */
FRUGAL_API frugal_status frugal_view(frugal *f, uint32_t table, const void **weights, uint64_t *stride);
/* Empties all caches: for serving after training. Copies made from then on are current on every device, as before
 * training, until a batch that is not read-only announces their rows. Drained, nothing announced (BUSY). The cost grows
 * with rows. Errors: ARGUMENT. */
FRUGAL_API frugal_status frugal_release_holders(frugal *f);
/* Puts rows into a device's cache, before the first announcement, or after frugal_release_holders: then the copies of
 * all devices are current. Drained, nothing announced (BUSY). Errors: DEVICE, ARGUMENT, KEY, TABLE; its own. */
FRUGAL_API frugal_status frugal_preload(frugal *f, uint32_t device, const frugal_keys *keys);
/* After a drain: every cached copy that the holder rule calls current equals its host row, bit for bit; only NaN
 * payloads may differ. Host rows that are not finite are counted on the way, and told by a notice. Errors: COPY (one
 * does not, or could not be read: a fault of Frugal or of the memory), ARGUMENT, BUSY (not drained), LOST. */
FRUGAL_API frugal_status frugal_verify(frugal *f);

/* >>workers - that instances share */

#define FRUGAL_MAX_INSTANCES 64 /* that share workers, at a time */
/* Starts `n` threads, 1 to 1024, that flush for the instances that have them as frugal_desc.shared_workers. On failure
 * *out is NULL. Any thread. Errors: ARGUMENT, MEMORY (the system's: no frugal_desc.allocate is asked), WORKER. */
FRUGAL_API frugal_status frugal_workers_open(uint32_t n, frugal_workers **out);
/* Ends the threads. All instances opened with them must be closed, also those that a failed frugal_open left. BUSY
 * changes nothing; it says how many are open. No frugal_open with them may be under way. NULL is accepted. */
FRUGAL_API frugal_status frugal_workers_close(frugal_workers *workers);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_H */
