/* frugal_p2f.h - priority-based proactive flushing (P2F): which row may be read, and which update is to be written
 * next. C11, public domain or MIT.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Devices train synchronously on one table of rows. Their updates are written to the table later, by any thread, in the
 * order in which the rows will next be read. So a read rarely waits, and never misses an update. This header is the
 * state machine that makes these decisions, without locks. It is for trainers that have a table, threads and ways to
 * wait of their own; frugal.h adds these to it. The idea is that of FRUGAL (Xie et al., ASPLOS '25).
 *
 * CONTENTS
 *      1. Do this                 5. Why it is exact       9. Errors
 *      2. Options                 6. Synchronization      10. Limits and memory
 *      3. Example                 7. The holder rule      11. Licence
 *      4. The state machine       8. Threading
 *      >>statuses >>public >>implementation: >>word >>structs >>layout >>announce >>plan >>gate >>close >>take
 *      >>cancel >>queries
 *
 * 1. DO THIS
 *      Copy frugal_pq.h and frugal_p2f.h. In ONE C file, before including it:
 *          #define FRUGAL_P2F_IMPLEMENTATION
 *          #include "frugal_p2f.h"
 *      That file has the queue's implementation, too. In every other file only the #include. The implementation is
 *      C11, and a C++ or CUDA file with this macro stops with an #error; the declarations are also C++17 and CUDA C++.
 *
 * 2. OPTIONS (each a macro defined before the first #include; frugal_pq.h explains all except the last)
 *      FRUGAL_API       everywhere.
 *      FRUGAL_STATIC, FRUGAL_ASSERT, FRUGAL_ATOMICS_OVERRIDE
 *                       implementation file only.
 *      FRUGAL_PQ_IMPLEMENTATION_ELSEWHERE
 *                       implementation file only: another file has the queue's implementation.
 *
 * 3. EXAMPLE (compiled as examples/p2f.c): a device's thread; and what any thread may call at any time
 *
 *      frugal_p2f_batch batch = {.rows = rows, .n = BATCH};
 *      for (uint64_t step = 0, t = 0; step < STEPS; step++) {
 *          for (; t < STEPS && t <= step + LOOKAHEAD; t++) { // run ahead of training
 *              frugal_status status;
 *              batch_of(device, t, rows);
 *              while ((status = frugal_p2f_announce(p, device, t, &batch)) == FRUGAL_AGAIN) help(self, step);
 *              check(status, "announce a step");
 *          }
 *          while (!frugal_p2f_gate(p, step)) help(self, step); // what this gate waits for is urgent
 *          batch_of(device, step, rows);                       // from here on these rows are fresh: look them up
 *          float(*block)[DIM] = staging[device][step % STAGING]; // what the block held before is flushed
 *          for (uint32_t i = 0; i < BATCH; i++) backward(table[rows[i]], device, step, block[i]);
 *          check(frugal_p2f_commit(p, device, step, 1, NULL), "commit a step");
 *      }
 *      ...
 *      static void help(thread *self, uint64_t limit) { // flushes only updates that are due at `limit` or before
 *          frugal_p2f_work work[FRUGAL_P2F_WORKS];
 *          if (frugal_p2f_close(p) || frugal_p2f_plan(p)) return;
 *          uint32_t n = frugal_p2f_take(p, limit, work, NULL); // these rows are this thread's until done
 *          for (uint32_t i = 0; i < n; i++) apply(&work[i]);
 *          if (n > 0) frugal_p2f_done(p, work, n);
 *          ...
 *      }
 *
 * 4. THE STATE MACHINE
 *      Each row has one 64-bit word, the g-entry of the paper. It holds R (for which of 16 steps the row is announced:
 *      steps to come, and some that are closed), W (the step whose update is pending, and where its plan entry lies),
 *      the slot in which that update is due, the holder (whose cached copies are current: those of one device, everyone
 *      or nobody), and whether a thread is applying the update now. There is no hash table, no allocation, no
 *      reclamation. L is the lookahead. A device has S staging blocks, each for one step's records (summed gradients).
 *
 *          announce --> plan ----------------> close -----------------> take --> apply --> done
 *                       when all announced t:  when all committed s:    most urgent first
 *                       merge their rows;      W is set, the row
 *                       R is set               is queued
 *
 *      When all devices have announced their rows of a step, the step is *sealed*, and any thread *plans* it, in
 *      pieces: ranges of rows. A piece takes the rows of all devices in order, changes the word of each by one
 *      compare-and-swap, and decides everything that depends on which devices read the row. So nothing depends on the
 *      order in which devices announce, and the pieces of a step may be planned by any threads.
 *
 *      A row with a pending update is *dirty*. An update of step s is due at the row's next announced read, or at s + S
 *      if that is earlier, because the staging block that holds its records is reused then: min(min R, s + S), where
 *      min R is the least step of R beyond s. (In the paper a row without announced reads is never due.) All due steps
 *      lie in a window of 64, so a ring of 64 slots serves any number of steps. In write-through mode (FRUGAL_SYNC, the
 *      paper's baseline) every update is due at s + 1; all else is the same.
 *
 *      Often most rows of a step are announced by one device alone. A device that can write rows of the table may
 *      announce its batch *in place*: then it updates these rows itself, between the gate of s and its commit. They are
 *      not dirty and have no records, and closing s does nothing for them (frugal_p2f_alone).
 *
 *      Planning also reads the holder. If a device holds the row, and another device has announced it, then the row is
 *      *taken* from the holder (frugal_p2f_taken): the holder's copy is soon outdated, and its cache may drop it.
 *
 *      A device that announces in place may also *keep* an update: it changes its cached copy now, and the row of the
 *      table later, when it evicts the copy, or when the row is taken from it. If the row is taken for step t, it is
 *      *recalled*: the device must write it back before the gate of t opens (frugal_p2f_recalls). A device that keeps
 *      updates announces all its batches in place.
 *
 *      A single device touches every row alone, and all its copies are current. If it announces all its batches in
 *      place, rows need no words, and there is nothing to plan, to recall, to close or to flush
 *      (frugal_p2f_desc.without_words): the gate of s opens when s - 1 is committed.
 *
 *      pending[slot] counts the rows that are due in the slot and not flushed yet; a row whose update is being applied
 *      still counts. (The paper tests the front of its queue, and misses a row that is dequeued and not yet written.)
 *      The gate of s makes four tests, in this order: step s - 1 is closed; s is planned; all rows that are recalled
 *      for s are written back; pending[s] is zero. It opens when all hold.
 *
 *      An example, with L = 3 and S = 5: device 0 announces a row for step 0, and device 1 the same row for step 3.
 *
 *          what has happened                     R       W    due  holder  counted in
 *          0, 1 and 2 are planned                {0}     -    -    0       -
 *          all have committed 0; it is closed    {}      0    5    0       pending[5]: no read is known, so 0 + S
 *          3 is planned: the row is moved        {3}     0    3    1       pending[3]; device 0's copy is outdated
 *          a worker takes and applies the update {3}     0    3    1       pending[3] still: the gate of 3 is shut
 *          the update is done                    {3}     -    -    1       -: when 2 is closed, the gate of 3 opens
 *
 * 5. WHY IT IS EXACT
 *      (a) When the gate of s opens, a row read at s has no pending update. Any update that it had, of a step r < s,
 *          was due at s or before. Either the row was planned for s before it was closed for r: then min R <= s when
 *          the due step was computed. Or it was planned for s after that: then the planner of s found the row dirty,
 *          and moved it to s if it was due later. One of the two comes first, because both change the row's one word by
 *          compare-and-swap. The row is then counted in pending[s] or in an earlier slot, and the rows of earlier slots
 *          were flushed before earlier gates opened.
 *      (b) An open gate stays open until s is closed or cancelled. A sealed step is planned once. Only planning s, and
 *          closing s - 1 or an earlier step, can raise pending[s], and both have ended when the first two tests hold.
 *          Until then pending[s] may be below zero for a moment, because a thread may finish a moved row before the
 *          thread that moved it has counted it.
 *      (c) W needs to hold one step only. A row read at s is clean from the gate of s until s is closed, so a dirty row
 *          is never made dirty again. What is applied is the whole sum of a step, because every device has committed
 *          before the step is closed. Between the last commit and the closing, only the closer reads or writes the row.
 *          So the closer may also apply the update itself and leave the row clean (frugal_p2f_close_begin, _end).
 *      (d) Each update is applied once: by the thread whose compare-and-swap sets `busy` in the dirty row's word.
 *      (e) A slot stands for one step. A thread that plans t computes steps from slots with a *base*: the number of
 *          closed steps that it has read, which may be too small by at most L, because t was announced at most L steps
 *          ahead of the base, and is not closed before this piece is planned. S + L < 64, so only one step fits a slot.
 *          For the same reason no read of a step that is not closed leaves R: such steps are at most L + 1 consecutive
 *          ones, and R has 16. Steps are planned one after the other, so reads are added, and holders change, in order.
 *      (f) From the gate of s until s is closed, a row that one device alone announced for s (read-only announcements
 *          count) belongs to this device. By (a) the row is clean when the gate opens, and only the closing of s could
 *          make it dirty. No other device looks the row up at s, because it has not announced it, and the gate of s + 1
 *          waits for the closing of s. So the device may write the row. Which rows are alone is known when all have
 *          announced s and the plan is complete. The next reader sees what the device wrote: its gate has acquired the
 *          closing of s, and the closers have acquired the device's commit. A step that is cancelled has updated
 *          nothing, because a step is cancelled only while no device is between its gate and its commit.
 *      (g) A device may keep the update of such a row in its copy (with `recalls`), because no other device reads the
 *          row before it is written back: when the gate of t opens, no other device keeps an update of a row that is
 *          read at t. Suppose that d keeps one, of step r < t, and another device reads the row at t. At r, d alone
 *          touched the row, so planning r made d the holder, until another device touches the row. The first step after
 *          r with such a touch, read-only or not, is t or earlier. Steps are planned in order, so the planner of that
 *          step finds d as the holder, and the row is recalled for it. The gate of that step waits until d has written
 *          the row back, which d does after its commit of the step before, so after r. After that d holds the row only
 *          if d touches it alone again. (d may also hold a row of which it keeps nothing. Then the recall is needless,
 *          and harmless.) d may write a row back at any other time, too: no other thread reads or writes it while d
 *          keeps its update. Cancelling steps sets the holder of their rows to nobody, so it is not known any more
 *          which device keeps them: before the gate of the first of these steps, all devices write back all they keep.
 *      (h) Without words only the one device writes rows, in its own order of steps, so its reads miss no update. If a
 *          caller writes a row between steps, the device's copy must be dropped or read anew, because there is no word
 *          that says that it is outdated.
 *
 *      Together: what a device reads at s has every update of the steps before s (a, f, g, h), each applied once and
 *      whole (c, d); a gate that has opened stays open (b), and no slot stands for two steps (e). So any number of
 *      threads, of devices and of workers, gives the table the bits that one thread would give it.
 *
 * 6. SYNCHRONIZATION
 *      Every change of a row's word is a read-modify-write, so each continues the release sequences of those before it.
 *      The tags of frugal_pq.h begin with PQ.
 *
 *  | tag   | site                             | order    | pairs with  | if it were relaxed                           |
 *  |-------|----------------------------------|----------|-------------|---------------------------------------------|
 *  | [P1]  | word: plan                       | acquire  | [P4]        | next reader misses a row flushed by a worker |
 *  |       |                                  |          |             | that has not lowered `pending` yet           |
 *  | [P2]  | word: close                      | release  | [P3]        | taker reads records not yet written          |
 *  | [P3]  | word: take                       | acquire  | [P2][P4]    | the same; a row read while it is written     |
 *  | [P4]  | word: done                       | release  | [P1][P3]    | as [P1]                                      |
 *  | [P5]  | `sealed` raised                  | release  | [P6]        | a plan made of rows not yet copied           |
 *  | [P6]  | `sealed` read                    | acquire  | [P5]        | as [P5]                                      |
 *  | [P7]  | `committed` read                 | acquire  | [P14]       | a closer sees records half written           |
 *  | [P8]  | `closed` raised                  | release  | [P9]        | a gate misses rows queued by the closers     |
 *  | [P9]  | `closed` read                    | acquire  | [P8]        | as [P8]; ring entries reused too early       |
 *  | [P10] | a device's counts raised         | release  | [P11]       | a report sees of a batch, or of a commit,    |
 *  |       |                                  |          |             | what is not yet written                      |
 *  | [P11] | a device's counts read           | acquire  | [P10]       | as [P10]                                     |
 *  | [P12] | announcements counted down       | acq_rel  | itself      | the sealer misses another device's rows      |
 *  | [P13] | pieces claimed: acquire; claim   | both     | itself      | a piece of a cancelled step is planned       |
 *  |       | moved back by cancel: release    |          |             |                                              |
 *  | [P14] | commits counted down, published  | acq_rel  | itself [P7] | records of other devices missed              |
 *  | [P15] | `planned` read                   | acquire  | [P16]       | a gate misses moved rows; a device reads     |
 *  |       |                                  |          |             | bits, a closer entries not yet written       |
 *  | [P16] | pieces planned, counted down;    | acq_rel; | itself[P15] | as [P15]; lists of taken rows not yet        |
 *  |       | `planned` raised                 | release  |             | written are gathered                         |
 *  | [P17] | `pending` lowered                | acq_rel  | itself [P18]| the gate opens on rows not yet written; a    |
 *  |       |                                  |          |             | woken thread finds a row busy that is done   |
 *  | [P18] | `pending` read by the gate       | acquire  | [P17]       | as [P17]                                     |
 *  | [P19] | pieces closed, counted down      | acq_rel  | itself      | `closed` published before all are queued     |
 *  | [P20] | recalls counted down             | release  | [P21]       | a reader misses a row that was kept          |
 *  | [P21] | recalls left?                    | acquire  | [P20]       | as [P20]; a device misses that its copy has  |
 *  |       |                                  |          |             | been written back                            |
 *  | [P22] | a device's recalls are there     | release  | [P23]       | lists not yet written are read               |
 *  | [P23] | has a device recalls?            | acquire  | [P22]       | as [P22]                                     |
 *  | [P24] | rows have words from here on     | release  | [P25]       | claims of steps that were never planned      |
 *  | [P25] | have rows words?                 | acquire  | [P24]       | as [P24]                                     |
 *
 *      Progress: all frugal_p2f_* calls are lock-free. But a thread that ends or hangs inside announce, plan, commit or
 *      close, between take and done, or in a recall, never completes the step that it works on, and a gate stays closed
 *      for all. So a thread that waits at a gate should report a long wait, as frugal.h does (FRUGAL_ERR_STUCK).
 *
 * 7. THE HOLDER RULE keeps device caches exact without any exchange between devices. Every touch (a read at a step,
 *      and the update that follows) is announced, so which devices touch which row is known before a step begins. A
 *      device's copy is current at step t if this device alone touched the row in the last step before t that touched
 *      it, because the copy then took the same update as the row of the table; or if no device has touched the row
 *      since the table was loaded. Planning t decides this in the compare-and-swap that sets the read bit: a device's
 *      copy is valid if the holder is that device or everyone. If one device touches the row, this device is the holder
 *      from then on; if several do, nobody is. (Touches by batches announced read-only leave the holder as it is.) When
 *      a device reads, it refreshes every copy that is not valid.
 *
 * 8. THREADING
 *      Nothing here waits, allocates, or reads or writes a row of the table: a call that cannot proceed says so, and
 *      the caller decides how to wait. All state lies in one block of the caller's memory, without pointers, so several
 *      processes may map it at different addresses. A device's loader announces, and its trainer commits; they are two
 *      threads, or one. Any number of threads may plan, close, take and finish (frugal_p2f_done) at any time. One
 *      thread at a time may do a device's recalls, and none while steps are cancelled.
 *
 * 9. ERRORS
 *      A call that returns a frugal_status other than FRUGAL_OK has changed nothing, except that frugal_p2f_cancel may
 *      have planned pieces. FRUGAL_AGAIN is not an error: the call came too early. No call prints, exits, or asserts
 *      because of bad arguments. Calls that return no status check nothing, except frugal_p2f_footprint.
 *
 * 10. LIMITS AND MEMORY
 *      At most: 254 devices; 2^26 rows per step, of all devices together; 2^32 - 2 rows; lookahead 15; lookahead +
 *      staging 63; 2^41 steps from the first. frugal_p2f_footprint is 8 bytes per row, and a part that does not grow
 *      with rows. (Without words it still has the 8 bytes, for frugal_p2f_use_words; until then they are not touched.)
 *      With K = max_rows, n devices, S = staging and L = lookahead, that part is, in bytes:
 *          batches   n K (L + 1)(4 + 1/4)            plans     8 (n K + 1)(S + L + 1)
 *          queue     256 ((L + 1)(n K/62 + ranges) + S (n K/62 + (L + 2) pieces) + threads)
 *          taken     n K (4 L + 13) + 4 n (ranges + L + 2), with `taken` or `recalls` of frugal_p2f_desc
 *      A step is planned in `ranges` pieces, at most n K/4096 + 1, and closed in `pieces`, at most min(n K/1024 + 1,
 *      max(33, n K/4096 + 1)). Counters and rounding add less than 32 KiB + 512 n (L + 1) + 256 S.
 *
 * 11. LICENCE
 *      MIT or public domain (Unlicense), at your choice; see LICENSE.
 */
#if defined(FRUGAL_P2F_IMPLEMENTATION) && defined(__cplusplus)
#error "frugal_p2f.h: the implementation is C11: define FRUGAL_P2F_IMPLEMENTATION in a .c file, not in C++ or CUDA"
#undef FRUGAL_P2F_IMPLEMENTATION /* so that this is the only error */
#endif
#ifdef FRUGAL_P2F_IMPLEMENTATION /* brings the queue's implementation and the atomics */
#if !defined(FRUGAL_PQ_IMPLEMENTATION_ELSEWHERE) && !defined(FRUGAL_PQ_IMPLEMENTATION)
#define FRUGAL_PQ_IMPLEMENTATION
#endif
#define FRUGAL_ATOMICS
#endif
#include "frugal_pq.h"

#ifndef FRUGAL_P2F_H
#define FRUGAL_P2F_H

#include <stddef.h>
#include <stdint.h>

#if defined(FRUGAL_STATIC) && defined(FRUGAL_P2F_IMPLEMENTATION)
#define FRUGAL_P2F_API FRUGAL_PRIV_STATIC
#else
#define FRUGAL_P2F_API FRUGAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>statuses - and limits: of the state machine, and of what is built on it
 * --------------------------------------------------------------------------------------------------------- */

/* Each code has one meaning. Code, name and sentence (frugal_strerror) come from this one list. */
#define FRUGAL_STATUS_LIST(X)                                                                                          \
    X(OK, 0, "success")                                                                                                \
    X(AGAIN, 1, "not yet: the call would have to wait; nothing was changed, try again")                                \
    X(STOPPED, 2, "the instance was stopped by frugal_stop; close it")                                                 \
    X(FINISHED, 3, "the device's data has ended before this step, by frugal_finish")                                   \
    X(ERR_ARGUMENT, -1, "an argument is missing or makes no sense; see the call's contract")                           \
    X(ERR_DEVICE, -2, "no such device, or the device is not attached, or is attached already")                         \
    X(ERR_TABLE, -3, "no such table")                                                                                  \
    X(ERR_KEY, -4, "a key is not below its table's number of rows")                                                    \
    X(ERR_KEYS, -5, "more keys in a batch than max_keys allows; raise it or split the batch")                          \
    X(ERR_ORDER, -6, "calls out of order: a device announces, looks up, updates, step after step")                     \
    X(ERR_LOOKAHEAD, -7, "lookahead is limited to 15 steps, and lookahead + staging to 63")                            \
    X(ERR_LIMIT, -8,                                                                                                   \
      "over a limit: 2^32 - 2 rows, 254 devices, 2^26 keys per step, the first step, 64 instances that share workers") \
    X(ERR_SETTINGS, -9, "another device fixed other settings for this step; all devices must give the same settings")  \
    X(ERR_BUSY, -10,                                                                                                   \
      "still in use: drain the instance (frugal_drain, frugal_cancel), or close the instances that share workers")     \
    X(ERR_MEMORY, -11, "out of memory")                                                                                \
    X(ERR_FILE, -12, "the table's file cannot be opened, sized or mapped")                                             \
    X(ERR_WORKER, -13, "a worker thread cannot be started")                                                            \
    X(ERR_STUCK, -14, "waited longer than stuck_seconds; frugal_message says for what")                                \
    X(ERR_ARITHMETIC, -15, "the arithmetic self-test failed: built with flags that change results?")                   \
    X(ERR_CUDA, -16, "a CUDA call failed; frugal_message says which")                                                  \
    X(ERR_LOST, -17,                                                                                                   \
      "a device was lost; frugal_drain yields the table of the last step that all finished, but for rows in place")    \
    X(ERR_ROWS, -18, "rows of a batch must rise strictly: sort them, and give each once")                              \
    X(ERR_COPY, -19, "a cached copy differs from its host row, or cannot be read: a fault of Frugal or of the memory") \
    X(ERR_PROCESS, -20, "another process has to make this call, or processes do not find each other or do not fit")

typedef enum frugal_status {
#define FRUGAL_STATUS_ENUM(name, value, text) FRUGAL_##name = value,
    FRUGAL_STATUS_LIST(FRUGAL_STATUS_ENUM)
#undef FRUGAL_STATUS_ENUM
        FRUGAL_STATUS_FORCE_INT = 0x7fffffff
} frugal_status;
FRUGAL_P2F_API const char *frugal_strerror(frugal_status status); /* a sentence for a status; never NULL */

#define FRUGAL_MAX_DEVICES    254
#define FRUGAL_MAX_KEYS       67108864                  /* 2^26: of all devices in one step */
#define FRUGAL_MAX_ROWS       4294967294                /* 2^32 - 2 */
#define FRUGAL_MAX_FIRST_STEP ((UINT64_C(1) << 62) - 1) /* so that what is far ahead of a step does not wrap */

/* ---------------------------------------------------------------------------------------------------------
 * >>public
 * --------------------------------------------------------------------------------------------------------- */

typedef enum { FRUGAL_P2F, FRUGAL_SYNC } frugal_mode; /* proactive flushing; write-through (due at s + 1) */

typedef struct frugal_p2f frugal_p2f; /* lies in the caller's memory */

typedef struct frugal_p2f_desc {
    uint64_t rows;
    uint32_t devices;
    uint32_t max_rows;  /* unique rows of one device in one step */
    uint32_t lookahead; /* L */
    uint32_t staging;   /* S; 0: L + 2 */
    frugal_mode mode;
    uint64_t first_step; /* at most FRUGAL_MAX_FIRST_STEP */
    uint32_t threads;    /* the largest number of threads inside frugal_p2f_take at a time; 0: 256 */
    int zeroed;          /* the memory is known to be zero: init does not clear the words (8 bytes a row) */
    int taken;           /* rows that are taken from devices are listed (frugal_p2f_taken) */
    int recalls;         /* ... and recalled, because devices may keep updates in their copies (frugal_p2f_recalls) */
    int without_words;   /* `devices` is 1, and announces all batches in place, until frugal_p2f_use_words */
} frugal_p2f_desc;

typedef struct frugal_p2f_batch { /* what a device reads at a step */
    const uint32_t *rows;         /* rows[n], strictly rising; the device's gradient for rows[i] is its *record* i */
    uint32_t n;                   /* 0: nothing */
    int read_only;                /* the device will commit without gradients, so no cached copy becomes outdated */
    int in_place;                 /* the device updates the rows that it alone announced itself: frugal_p2f_alone */
    uint32_t behind; /* bits that are read behind those of rows[n], of rows that are not announced here: they are 0 */
} frugal_p2f_batch;

typedef struct frugal_p2f_entry { /* of a plan: one row that one device brings to the step */
    uint32_t row;
    uint32_t source; /* device and record: frugal_p2f_source */
} frugal_p2f_entry;

typedef struct frugal_p2f_work { /* one update to apply: the caller of take owns the row until done */
    uint32_t row;
    uint32_t slot;                   /* the step at which it was due when taken, mod 64 */
    uint64_t step;                   /* the step whose records it consists of */
    const frugal_p2f_entry *entries; /* its contributors, in device order; frugal_p2f_contributors counts them */
} frugal_p2f_work;

typedef struct frugal_p2f_piece { /* of a step that is being planned or closed: whole rows of its plan */
    uint64_t step;
    const frugal_p2f_entry *entries; /* entries[n]; of closing the one after them may be read, and has another row */
    uint32_t n, first;               /* first: index in the plan */
    uint32_t number;                 /* of planning: which piece of the step it is */
} frugal_p2f_piece;

#define FRUGAL_P2F_SLOTS 64
#define FRUGAL_P2F_ALIGN 4096
#define FRUGAL_P2F_WORKS FRUGAL_PQ_PAGE_IDS

/* Bytes of memory (section 10); 0 if frugal_p2f_init would refuse the settings.
 * (C11 wants the size given to aligned_alloc rounded up to the alignment.) */
FRUGAL_P2F_API size_t frugal_p2f_footprint(const frugal_p2f_desc *desc);
/* Makes the state in memory[footprint], aligned to FRUGAL_P2F_ALIGN. Errors: ARGUMENT, LIMIT, LOOKAHEAD. */
FRUGAL_P2F_API frugal_status frugal_p2f_init(void *memory, const frugal_p2f_desc *desc, frugal_p2f **out);
/* Have rows words? If not, there are no plans, recalls and updates to be taken, all copies are current, and disowning a
 * row does nothing. frugal_p2f_use_words: from here on they have, so that batches need not be announced in place. No
 * announcement may be under way, and all steps that are announced are committed. Errors: ORDER. */
FRUGAL_P2F_API int frugal_p2f_has_words(const frugal_p2f *p);
FRUGAL_P2F_API frugal_status frugal_p2f_use_words(frugal_p2f *p);

/* Announces the batch of `device` at `step`; the last device to announce a step seals it. The rows are copied. One
 * thread at a time for each device. Without words `rows` may be NULL.
 * AGAIN while `step` is not legal (frugal_p2f_legal). Errors: ARGUMENT (without words also: not in place), DEVICE,
 * KEYS, KEY (not below `rows`), ROWS (not rising), ORDER. */
FRUGAL_P2F_API frugal_status frugal_p2f_announce(frugal_p2f *p, uint32_t device, uint64_t step,
                                                 const frugal_p2f_batch *batch);
/* Do one piece of planning, or of closing. Return 0: nothing to do; 1: one is done; 2: it was the last of its step.
 * Any thread may call them. */
FRUGAL_P2F_API int frugal_p2f_plan(frugal_p2f *p);
FRUGAL_P2F_API int frugal_p2f_close(frugal_p2f *p);
/* Planning in two halves, for callers that do something with the rows of a piece: the step's next one is not planned,
 * and no thread passes its gate, before the last piece has ended. begin returns 1 and a piece, or 0; end returns what
 * frugal_p2f_plan does. frugal_p2f_range: which records of the device are in the piece: those from *first on, their
 * number is returned. */
FRUGAL_P2F_API int frugal_p2f_plan_begin(frugal_p2f *p, frugal_p2f_piece *piece);
FRUGAL_P2F_API int frugal_p2f_plan_end(frugal_p2f *p, const frugal_p2f_piece *piece);
FRUGAL_P2F_API uint32_t frugal_p2f_range(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t device,
                                         uint32_t *first);
/* All of a piece's rows are among *from .. *end - 1. Together the pieces of a step have each row below `rows` once. */
FRUGAL_P2F_API void frugal_p2f_span(const frugal_p2f *p, const frugal_p2f_piece *piece, uint64_t *from, uint64_t *end);
/* Closing in two halves, for callers that apply a piece's updates at once instead of queueing them. Between begin and
 * end the caller owns the piece's rows, because their readers have committed, and no thread passes a gate before the
 * step is closed. begin returns 1 and a piece, or 0; end returns what frugal_p2f_close does. `applied` says that the
 * caller has written the rows, which then stay clean. */
FRUGAL_P2F_API int frugal_p2f_close_begin(frugal_p2f *p, frugal_p2f_piece *piece);
FRUGAL_P2F_API int frugal_p2f_close_end(frugal_p2f *p, const frugal_p2f_piece *piece, int applied);
/* The first entry of the piece from `at` on whose row the caller must apply between begin and end; piece->n: there is
 * none. Rows that devices have updated in place are passed over. `at` is 0, or follows all entries of a row. */
FRUGAL_P2F_API uint32_t frugal_p2f_next_closed(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t at);
/* Is the gate of `step` open? An open gate stays open until the step is closed or cancelled. Acquires all flushed rows.
 * When it is open, all updates of `step` - S and of earlier steps are flushed, because they were due at `step` at the
 * latest. So the staging blocks of step mod S are free, and the devices that have passed the gate may write them. */
FRUGAL_P2F_API int frugal_p2f_gate(frugal_p2f *p, uint64_t step);
/* A bit for each record of `device` at `step`: its cached copy of the row, if it has one, is current at this step. Once
 * the step is planned, until it is closed; acquired with the gate. Without words all bits are set.
 * frugal_p2f_valid_word: 64 of them, in which the planner of a piece may read the bits of its records: others may be
 * writing their own there. */
FRUGAL_P2F_API const uint64_t *frugal_p2f_valid(const frugal_p2f *p, uint32_t device, uint64_t step);
FRUGAL_P2F_API uint64_t frugal_p2f_valid_word(const frugal_p2f *p, uint32_t device, uint64_t step, uint32_t word);
/* A bit for each record of `device` at `step`: no other device has announced the row. NULL if the batch was not
 * announced in place. From the gate of `step` until the device's commit. Before it commits with gradients, the device
 * must have written the updates of these rows into the table; it writes no records for them. Acquired with the gate. */
FRUGAL_P2F_API const uint64_t *frugal_p2f_alone(const frugal_p2f *p, uint32_t device, uint64_t step);
/* With frugal_p2f_desc.taken: the rows that other devices have announced for `step` while the device held them: *rows
 * points to them, rising; returns their number. Once the step is planned, until the step after it is closed. Their
 * copies are outdated after the step, unless the others' batches are read-only. */
FRUGAL_P2F_API uint32_t frugal_p2f_taken(const frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t **rows);
/* Where all these bits and rows lie, for devices that pin or map what they read: *bytes from the start that is
 * returned, whole pages of FRUGAL_P2F_ALIGN bytes. */
FRUGAL_P2F_API void *frugal_p2f_alone_memory(const frugal_p2f *p, size_t *bytes);
/* With frugal_p2f_desc.recalls: is a recall the next thing that `device` has to do? If so *step is its next step to
 * commit, and it is planned. One thread at a time for each device, as for frugal_p2f_recall_done. A
 * device that can put a recall behind its work for the steps before need not wait for their commits: for it
 * frugal_p2f_is_recalled says enough. */
FRUGAL_P2F_API int frugal_p2f_has_recall(frugal_p2f *p, uint32_t device, uint64_t *step);
/* Is `step`, which `device` has not passed, planned, and are recalls for it left to do? Any thread. */
FRUGAL_P2F_API int frugal_p2f_is_recalled(frugal_p2f *p, uint32_t device, uint64_t step);
/* What is recalled from `device` for that step: as frugal_p2f_taken, with rows of which the device keeps nothing.
 * UINT32_MAX: steps were cancelled, and the device must write back all that it keeps. */
FRUGAL_P2F_API uint32_t frugal_p2f_recalls(const frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t **rows);
/* Says that the device has written them back. Returns 1 if no recall for `step` is left: a gate may open. */
FRUGAL_P2F_API int frugal_p2f_recall_done(frugal_p2f *p, uint32_t device, uint64_t step);
/* Commits `device` at `step`, after the gate of `step`. If it has `gradients`, its records must have been written.
 * *last_one (may be NULL) becomes 2 if all devices have now committed, else 0. Errors: DEVICE, ORDER. Releases the
 * records to takers. */
FRUGAL_P2F_API frugal_status frugal_p2f_commit(frugal_p2f *p, uint32_t device, uint64_t step, int gradients,
                                               int *last_one);
/* Takes up to FRUGAL_P2F_WORKS updates of one slot, the most urgent that is due at `limit` or before; returns their
 * number. *stale (may be NULL) is raised by the number of stale ids found. Any thread may call it. */
FRUGAL_P2F_API uint32_t frugal_p2f_take(frugal_p2f *p, uint64_t limit, frugal_p2f_work work[FRUGAL_P2F_WORKS],
                                        uint64_t *stale);
/* Takes the update of one row, at whatever step it is due: 1: taken; 0: the row is clean; -1: another thread is
 * applying it. */
FRUGAL_P2F_API int frugal_p2f_take_row(frugal_p2f *p, uint32_t row, frugal_p2f_work *work);
/* Says that the rows of work[n] are written, and releases them. Returns 1 if a slot became empty: a thread may be
 * waiting for the slot, or for one of its rows. In that case what others did to the slot's rows is acquired. */
FRUGAL_P2F_API int frugal_p2f_done(frugal_p2f *p, const frugal_p2f_work *work, uint32_t n);
/* Takes back all steps from `step` on. No announcement may be under way, no device may be between the gate of `step`
 * and its commit, no recall be under way, and the queue must have been emptied (frugal_p2f_take until it returns 0).
 * The caller orders this call with the next announcement of each device, and with recalls. AGAIN while other threads
 * hold plan pieces; this call has then planned those that no thread had claimed. Errors: ORDER. */
FRUGAL_P2F_API frugal_status frugal_p2f_cancel(frugal_p2f *p, uint64_t step);
/* Makes everyone the holder of every row; makes nobody the holder of `row`. Only when all updates are flushed, no
 * device keeps any, and nothing is announced. */
FRUGAL_P2F_API void frugal_p2f_release_holders(frugal_p2f *p);
FRUGAL_P2F_API void frugal_p2f_disown(frugal_p2f *p, uint32_t row);

/* The number of entries, from this one on, that have its row. */
FRUGAL_P2F_API uint32_t frugal_p2f_contributors(const frugal_p2f_entry *entries);
/* Splits an entry's source into the device and its record, which is the row's index in the batch that the device
 * announced. Entries of devices that committed without gradients are in the plan too: skip them. */
FRUGAL_P2F_API void frugal_p2f_source(const frugal_p2f *p, uint32_t source, uint32_t *device, uint32_t *record);
/* Did the device commit `step` with gradients? Did all devices? For a step whose updates are being taken or applied. */
FRUGAL_P2F_API int frugal_p2f_brings(const frugal_p2f *p, uint32_t device, uint64_t step);
FRUGAL_P2F_API int frugal_p2f_all_bring(const frugal_p2f *p, uint64_t step);
/* Did the device announce `step` in place? Then it has updated those of its rows that have one contributor. Until the
 * step is closed. */
FRUGAL_P2F_API int frugal_p2f_is_in_place(const frugal_p2f *p, uint32_t device, uint64_t step);

typedef struct frugal_p2f_progress {
    uint64_t sealed;            /* all steps below it are announced by all devices */
    uint64_t committed, closed; /* all steps below it are: committed by all devices; wholly closed */
    uint64_t announced;         /* all steps below it are announced by at least one device */
    int64_t pending;            /* rows not flushed, in all slots; exact when no call is under way */
    uint64_t alone, shared;     /* rows of the closed steps: announced by one device, by several */
    uint64_t in_place;          /* of `alone`: those that their device has updated in place */
} frugal_p2f_progress;
FRUGAL_P2F_API frugal_p2f_progress frugal_p2f_get_progress(frugal_p2f *p);
FRUGAL_P2F_API uint64_t frugal_p2f_closed(frugal_p2f *p); /* all steps below it are wholly closed */
/* Are all sealed steps planned? The call first plans the pieces that no thread has claimed. */
FRUGAL_P2F_API int frugal_p2f_is_planned(frugal_p2f *p);
FRUGAL_P2F_API uint64_t frugal_p2f_planned(frugal_p2f *p); /* all steps below it are planned */
/* Is a step sealed and not planned? The next gate's? Then planning is urgent. Hints: they may be outdated. */
FRUGAL_P2F_API int frugal_p2f_has_plans(frugal_p2f *p);
FRUGAL_P2F_API int frugal_p2f_awaits_plan(frugal_p2f *p);
FRUGAL_P2F_API uint64_t frugal_p2f_all_committed(frugal_p2f *p);           /* steps committed by all devices */
FRUGAL_P2F_API int frugal_p2f_legal(frugal_p2f *p, uint64_t step);         /* may `step` be announced now? */
FRUGAL_P2F_API int64_t frugal_p2f_pending(frugal_p2f *p, uint64_t step);   /* rows due at `step` and not flushed */
FRUGAL_P2F_API int32_t frugal_p2f_unflushed(frugal_p2f *p, uint64_t step); /* updates of a closed step not flushed */
/* Steps announced by one device; steps committed by it. */
FRUGAL_P2F_API uint64_t frugal_p2f_announced(frugal_p2f *p, uint32_t device);
FRUGAL_P2F_API uint64_t frugal_p2f_committed(frugal_p2f *p, uint32_t device);
FRUGAL_P2F_API int frugal_p2f_is_dirty(frugal_p2f *p, uint32_t row); /* 2: being applied right now */
/* Which of rows[n] are already what a lookup at `step` will read: clean, and announced for no open step before. Once
 * the steps before are planned; devices must keep no updates. bits[(n + 63) / 64] receives a bit for each; returns
 * their number. What is found stays so until the gate of `step` is open, and the rows are acquired. Without words:
 * none. */
FRUGAL_P2F_API uint32_t frugal_p2f_find_final(frugal_p2f *p, const uint32_t *rows, uint32_t n, uint64_t step,
                                              uint64_t *bits);
/* Is a cached copy of the device current, by the holder rule? 0 also while the row is planned for a step that is not
 * closed, because the holder is then that of the step to come. Without words: 1, always. */
FRUGAL_P2F_API int frugal_p2f_is_current(frugal_p2f *p, uint32_t device, uint32_t row);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_P2F_H */

/* ---------------------------------------------------------------------------------------------------------
 * >>implementation
 * --------------------------------------------------------------------------------------------------------- */
#if defined(FRUGAL_P2F_IMPLEMENTATION) && !defined(FRUGAL_P2F_IMPLEMENTED)
#define FRUGAL_P2F_IMPLEMENTED

#include <string.h>

/* >>word - the g-entry of a row
 *
 *   63   62    61..56   55..48   47..32   31..26       25..0
 *   0    0     -        holder   reads    origin                      of a clean row
 *   busy 1     slot     holder   reads    step mod 64  index in plan  of a dirty one: (the last two: `update`)
 *
 * Bit k of `reads`: the row is announced for step origin + k. The origin of a clean row is in its word; that of a dirty
 * row is the step in its slot, at which the update is due, because it has no announced read before that step. Reads of
 * closed steps stay until a later announcement moves the origin. So who closes a step writes only to words of rows that
 * become dirty.
 *
 * Of an origin the low 32 bits are kept. A row that nobody has announced for 2^32 steps, 30 more or less, may therefore
 * seem to be announced for a step for which it is not. Then an update is due too early, or a current copy is refreshed,
 * and no more.
 *
 * Words are changed by read-modify-write only. Zero is the state of a row that no device has touched, so memory fresh
 * from the system needs no initialization. */
typedef FRUGAL_ATOMIC(uint64_t) frugal_priv_word;

#define FRUGAL_PRIV_BUSY       (UINT64_C(1) << 63)
#define FRUGAL_PRIV_DIRTY      (UINT64_C(1) << 62)
#define FRUGAL_PRIV_SLOT_AT    56
#define FRUGAL_PRIV_SLOT       (UINT64_C(63) << FRUGAL_PRIV_SLOT_AT)
#define FRUGAL_PRIV_HOLDER_AT  48
#define FRUGAL_PRIV_HOLDER     (UINT64_C(255) << FRUGAL_PRIV_HOLDER_AT)
#define FRUGAL_PRIV_READS_AT   32
#define FRUGAL_PRIV_SPAN       16u /* steps of `reads` */
#define FRUGAL_PRIV_INDEX_BITS 26
#define FRUGAL_PRIV_NO_ROW     UINT32_MAX
#define FRUGAL_PRIV_EVERYONE   0u /* holders: no update since the table was loaded, all copies are current */
#define FRUGAL_PRIV_NOBODY     1u /* several devices touched the row in its last step: no copy is current */
#define FRUGAL_PRIV_DEVICE(d)  ((d) + 2u)
#define FRUGAL_PRIV_SAME       256u /* of planning: the holder stays what it is */
#define FRUGAL_PRIV_IN_PLACE   1u   /* how a batch was announced, in bits */
#define FRUGAL_PRIV_READ_ONLY  2u

#ifndef FRUGAL_PRIV_PLAN_RANGE       /* tests of claiming make pieces small */
#define FRUGAL_PRIV_PLAN_RANGE 4096u /* entries in a piece of planning: about this many */
#endif
#ifndef FRUGAL_PRIV_CLOSE_RANGE
#define FRUGAL_PRIV_CLOSE_RANGE 1024u /* entries in a piece of closing: at least this many */
#endif
#define FRUGAL_PRIV_AHEAD 24u /* how many words ahead a word is prefetched */

/* A claim is a counter that hands out pieces of work in order. It holds step - first_step, a count of cancels, and the
 * next piece. The count is there so that a claimant that slept through a cancel cannot take a piece of the step that is
 * announced anew. */
#define FRUGAL_PRIV_CLAIM_EPOCH_AT 15 /* pieces below 2^15 */
#define FRUGAL_PRIV_CLAIM_STEP_AT  23 /* fewer than 256 cancels within one claim; 2^41 steps */

/* >>structs */

typedef struct frugal_priv_counter { /* one cache line: read by all, written by few */
    FRUGAL_ATOMIC(uint64_t) value;
    uint8_t pad[56];
} frugal_priv_counter;

typedef struct frugal_priv_pending {
    FRUGAL_ATOMIC(int64_t) rows; /* due in this slot and not flushed; may be negative for a moment: section 5, (b) */
    uint8_t pad[56];
} frugal_priv_pending;

/* What is known of step t, in entry t mod 64. The first two counts are set when step t - 64 is closed. */
typedef struct frugal_priv_step {
    FRUGAL_ATOMIC(uint32_t) announce_left; /* devices that have not announced */
    FRUGAL_ATOMIC(uint32_t) commit_left;   /* devices that have not committed */
    FRUGAL_ATOMIC(uint32_t) plan_left;     /* pieces not planned; set by the sealer */
    FRUGAL_ATOMIC(uint32_t) close_left;    /* pieces of the plan not closed; set by the sealer */
    FRUGAL_ATOMIC(uint32_t) plan_pieces;   /* set by the sealer; atomic, because a claimant may read a later step's */
    FRUGAL_ATOMIC(uint32_t) close_pieces;  /* as plan_pieces */
    FRUGAL_ATOMIC(uint32_t) in_place;      /* the devices that announced it in place; as plan_pieces */
    FRUGAL_ATOMIC(uint32_t) recall_left;   /* devices with recalls that are not done; set by the last planner */
    uint32_t total;                        /* entries of the plan; constant while the step is sealed */
    uint32_t pivot;                        /* the device whose rows cut the plan into pieces */
    uint16_t all_bring;                    /* no device committed without gradients; set by the last committer */
    uint16_t recall_all;                   /* all that devices keep is recalled; set by cancel, cleared at closing */
    FRUGAL_ATOMIC(int32_t) unflushed; /* its updates that are queued and not flushed; may be negative, as `pending` */
    uint64_t step;                    /* t itself */
    uint64_t plan_at;                 /* offset of the plan's first entry */
} frugal_priv_step;

/* Rows of closed steps, as in frugal_p2f_progress; raised by closers, a piece at a time. */
typedef struct frugal_priv_touched {
    FRUGAL_ATOMIC(uint64_t) alone, shared, in_place;
    uint8_t pad[40];
} frugal_priv_touched;

typedef struct frugal_priv_device {
    FRUGAL_ATOMIC(uint64_t) announced; /* steps announced; written by the device's loader, and by cancel */
    FRUGAL_ATOMIC(uint64_t) committed; /* steps committed; written by the device's trainer */
    /* Bit t mod 64: it has recalls of step t, and they are not done. Set by the last planner, cleared by the thread
     * that does recalls, and by cancel. */
    FRUGAL_ATOMIC(uint64_t) recalls;
    uint8_t pad[40];
} frugal_priv_device;

/* Where everything lies in the block: offsets from its start. */
typedef struct frugal_priv_layout {
    uint32_t record_bits;    /* a source is device << record_bits | record */
    uint32_t batches, plans; /* ring sizes: L + 1 announced steps; S + L + 1 plans alive */
    uint64_t bytes, words_at, devices_at, counts_at, how_at, brings_at;
    uint64_t rows_at, alone_at, alone_bytes, entries_at, pq_at;
    uint64_t valid_at, taken_at; /* within alone_bytes; the second, and the next four, with desc.taken */
    uint64_t taken_ends_at, from_at, sorted_at, counted_at;
} frugal_priv_layout;

struct frugal_p2f {
    frugal_p2f_desc desc; /* resolved; both constant */
    frugal_priv_layout layout;
    FRUGAL_ATOMIC(uint32_t) has_words;       /* 1 once rows have words, and stays so */
    _Alignas(64) frugal_priv_counter sealed; /* steps announced by all; written by the last announcer, and by cancel */
    frugal_priv_counter planned;             /* steps planned; written by the last planner, and by cancel */
    frugal_priv_counter committed;           /* steps committed by all; written by the last committer */
    frugal_priv_counter closed;              /* steps wholly closed; written by the last closer */
    frugal_priv_counter plan_claim;          /* written by claimants, and by cancel */
    frugal_priv_counter close_claim;
    frugal_priv_touched touched;
    frugal_priv_pending pending[FRUGAL_P2F_SLOTS];
    frugal_priv_step steps[FRUGAL_P2F_SLOTS];
};

_Static_assert(sizeof(frugal_priv_step) == 64 && offsetof(frugal_p2f, steps) % 64 == 0, "a step is one cache line");

/* >>layout */

static inline void *frugal_priv_at(const frugal_p2f *p, uint64_t offset) {
    return (unsigned char *)(uintptr_t)p + offset;
}
static inline frugal_priv_word *frugal_priv_words(const frugal_p2f *p) {
    return frugal_priv_at(p, p->layout.words_at);
}
static inline frugal_priv_device *frugal_priv_devices(const frugal_p2f *p) {
    return frugal_priv_at(p, p->layout.devices_at);
}
static inline frugal_pq *frugal_priv_queue(const frugal_p2f *p) {
    return frugal_priv_at(p, p->layout.pq_at);
}
/* The place of `device` at `step` in rings of announced batches. */
static inline uint64_t frugal_priv_ring(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (uint64_t)device * p->layout.batches + step % p->layout.batches;
}
/* The number of rows that `device` announced for `step`; alive, as all of a batch, until the step is closed. Plain,
 * because it is written before `announced` is raised. */
static inline uint32_t *frugal_priv_n_rows(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (uint32_t *)frugal_priv_at(p, p->layout.counts_at) + frugal_priv_ring(p, device, step);
}
/* These rows. */
static inline uint32_t *frugal_priv_rows(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (uint32_t *)frugal_priv_at(p, p->layout.rows_at) + frugal_priv_ring(p, device, step) * p->desc.max_rows;
}
/* Words of the bits of one batch. */
static inline uint64_t frugal_priv_alone_words(const frugal_p2f_desc *desc) {
    return ((uint64_t)desc->max_rows + 63) / 64;
}
/* The bits of frugal_p2f_alone and frugal_p2f_valid: cleared by the announcement, set by planners, alive until the step
 * is closed. */
static inline frugal_priv_word *frugal_priv_alone(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (frugal_priv_word *)frugal_priv_at(p, p->layout.alone_at) +
           frugal_priv_ring(p, device, step) * frugal_priv_alone_words(&p->desc);
}
static inline frugal_priv_word *frugal_priv_valid(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (frugal_priv_word *)frugal_priv_at(p, p->layout.valid_at) +
           frugal_priv_ring(p, device, step) * frugal_priv_alone_words(&p->desc);
}
/* The rows taken at `step`, by the device that they are taken from, and rising. While a piece is planned, those that it
 * has found lie here, from where its entries begin in the plan. A list lives a step longer than batches do. */
static inline uint32_t *frugal_priv_taken(const frugal_p2f *p, uint64_t step) {
    uint64_t entries = (uint64_t)p->desc.max_rows * p->desc.devices;
    return (uint32_t *)frugal_priv_at(p, p->layout.taken_at) + step % (p->layout.batches + 1) * entries;
}
/* ends[d]: where those from device d end among them, and those from d + 1 begin. */
static inline uint32_t *frugal_priv_taken_ends(const frugal_p2f *p, uint64_t step) {
    return (uint32_t *)frugal_priv_at(p, p->layout.taken_ends_at) + step % (p->layout.batches + 1) * p->desc.devices;
}
/* Of the one step that is being planned: from which device each taken row is; the rows by piece and device; and where
 * in the piece those from each device end. */
static inline uint8_t *frugal_priv_from(const frugal_p2f *p) {
    return frugal_priv_at(p, p->layout.from_at);
}
static inline uint32_t *frugal_priv_sorted(const frugal_p2f *p) {
    return frugal_priv_at(p, p->layout.sorted_at);
}
static inline uint32_t *frugal_priv_counted(const frugal_p2f *p, uint32_t piece) {
    return (uint32_t *)frugal_priv_at(p, p->layout.counted_at) + (uint64_t)piece * (p->desc.devices + 1);
}
/* How `device` announced `step`. */
static inline uint8_t *frugal_priv_how(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (uint8_t *)frugal_priv_at(p, p->layout.how_at) + step % FRUGAL_P2F_SLOTS * p->desc.devices + device;
}
static inline int frugal_priv_is_in_place(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return *frugal_priv_how(p, device, step) & FRUGAL_PRIV_IN_PLACE;
}
/* Does `device` bring gradients at `step`? Written at commit, read until the step's last row is flushed. */
static inline uint8_t *frugal_priv_brings(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (uint8_t *)frugal_priv_at(p, p->layout.brings_at) + step % FRUGAL_P2F_SLOTS * p->desc.devices + device;
}
static inline frugal_priv_step *frugal_priv_step_of(const frugal_p2f *p, uint64_t step) {
    return (frugal_priv_step *)(uintptr_t)&p->steps[step % FRUGAL_P2F_SLOTS];
}
static inline frugal_p2f_entry *frugal_priv_plan(const frugal_p2f *p, const frugal_priv_step *step) {
    return frugal_priv_at(p, step->plan_at);
}

static uint64_t frugal_priv_round(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* Entries in a piece of closing. A gate waits for the last piece, so many threads should share a step. But for each
 * piece, cache lines go from thread to thread. So a step has 32 pieces, unless they would be too small or too large. */
static inline uint32_t frugal_priv_close_range(uint32_t total) {
    uint32_t range = total / 32;
    if (range < FRUGAL_PRIV_CLOSE_RANGE) range = FRUGAL_PRIV_CLOSE_RANGE;
    return range > 4 * FRUGAL_PRIV_CLOSE_RANGE ? 4 * FRUGAL_PRIV_CLOSE_RANGE : range;
}

/* The number of pieces of closing; the last one may be empty. A larger step never has fewer, so the largest step has
 * the most, which bounds the pages. Let C be the least range. There is one more piece every C entries, up to 32; then
 * there are 33, because total is 32 ranges and a rest below 32, which is less than a range; then there is one more
 * every 4 C entries. (Some tests make C less than 32. From 32 C entries on, the rest could then hold whole ranges,
 * which add pieces, and a larger step could have fewer pieces. These tests have fewer than 32 C entries.) */
static inline uint32_t frugal_priv_close_pieces(uint32_t total) {
    return total / frugal_priv_close_range(total) + 1;
}

/* The number of pieces of planning. */
static inline uint32_t frugal_priv_plan_pieces(uint32_t total) {
    return total / FRUGAL_PRIV_PLAN_RANGE + 1;
}

/* The number of the queue's pages: the bound of LIMITS AND MEMORY. At the worst moment, just after a slot is retired,
 * these need pages:
 * - the ids of L + 1 planned steps, with one part-filled page per piece (planning fills one slot only);
 * - the ids of S closed steps, with one part-filled page per piece and slot (a piece fills the L slots of announced
 *   reads, and the slot of the step that reuses the staging block);
 * - each thread inside frugal_p2f_take, which holds one page. */
static uint64_t frugal_priv_pages(const frugal_p2f_desc *d) {
    uint64_t ids = FRUGAL_PQ_PAGE_IDS;
    uint64_t entries = (uint64_t)d->max_rows * d->devices;
    uint64_t pieces = frugal_priv_close_pieces((uint32_t)entries); /* at most FRUGAL_MAX_KEYS entries */
    return (d->lookahead + 1) * (entries / ids + frugal_priv_plan_pieces((uint32_t)entries)) +
           d->staging * (entries / ids + 1 + pieces * (d->lookahead + 2)) + d->threads;
}

/* Resolves defaults, checks limits and lays the block out. */
static frugal_status frugal_priv_lay_out(frugal_p2f_desc *d, frugal_priv_layout *l) {
    if (d->staging == 0) d->staging = d->lookahead + 2;
    if (d->threads == 0) d->threads = 256;
    d->taken |= d->recalls;
    if (d->rows == 0 || d->devices == 0 || d->max_rows == 0) return FRUGAL_ERR_ARGUMENT;
    if (d->without_words && d->devices != 1) return FRUGAL_ERR_ARGUMENT;
    if (d->lookahead > 15 || (uint64_t)d->staging + d->lookahead > FRUGAL_P2F_SLOTS - 1) return FRUGAL_ERR_LOOKAHEAD;
    if (d->rows > FRUGAL_MAX_ROWS || d->devices > FRUGAL_MAX_DEVICES ||
        (uint64_t)d->max_rows * d->devices > FRUGAL_MAX_KEYS)
        return FRUGAL_ERR_LIMIT;
    for (l->record_bits = 0; (UINT32_C(1) << l->record_bits) < d->max_rows;) l->record_bits++;
    l->batches = d->lookahead + 1;
    l->plans = d->staging + d->lookahead + 1;
    uint64_t entries = (uint64_t)d->max_rows * d->devices;
    frugal_pq_desc pq = {.pages = frugal_priv_pages(d)};
    if (!frugal_pq_footprint(&pq) || d->first_step > FRUGAL_MAX_FIRST_STEP) return FRUGAL_ERR_LIMIT;
    uint64_t at = frugal_priv_round(sizeof(frugal_p2f), 256);
    l->devices_at = at, at += d->devices * sizeof(frugal_priv_device);
    l->counts_at = at, at += frugal_priv_round((uint64_t)d->devices * l->batches * sizeof(uint32_t), 64);
    l->how_at = at, at += frugal_priv_round((uint64_t)d->devices * FRUGAL_P2F_SLOTS, 64);
    l->brings_at = at, at += frugal_priv_round((uint64_t)d->devices * FRUGAL_P2F_SLOTS, 64);
    l->rows_at = at, at = frugal_priv_round(at + l->batches * entries * sizeof(uint32_t), FRUGAL_P2F_ALIGN);
    uint64_t bits = (uint64_t)d->devices * l->batches * frugal_priv_alone_words(d) * 8;
    uint64_t lists = d->taken ? l->batches + 1 : 0, scratch = d->taken ? entries : 0;
    uint64_t pieces = frugal_priv_plan_pieces((uint32_t)entries);
    l->alone_bytes = frugal_priv_round(2 * bits + lists * entries * sizeof(uint32_t), FRUGAL_P2F_ALIGN);
    l->alone_at = at, l->valid_at = at + bits, l->taken_at = at + 2 * bits, at += l->alone_bytes;
    l->taken_ends_at = at, at += lists * d->devices * sizeof(uint32_t);
    l->counted_at = at, at = frugal_priv_round(at + (d->taken ? pieces * (d->devices + 1) * sizeof(uint32_t) : 0), 64);
    l->sorted_at = at, at += scratch * sizeof(uint32_t);
    l->from_at = at, at = frugal_priv_round(at + scratch, 256);
    l->entries_at = at, at = frugal_priv_round(at + l->plans * (entries + 1) * sizeof(frugal_p2f_entry), 256);
    l->pq_at = at, at = frugal_priv_round(at + frugal_pq_footprint(&pq), FRUGAL_P2F_ALIGN);
    l->words_at = at, at += frugal_priv_round(d->rows * sizeof(frugal_priv_word), 64);
    l->bytes = at;
    return at > SIZE_MAX ? FRUGAL_ERR_LIMIT : FRUGAL_OK;
}

FRUGAL_P2F_API size_t frugal_p2f_footprint(const frugal_p2f_desc *desc) {
    if (!desc) return 0;
    frugal_p2f_desc resolved = *desc;
    frugal_priv_layout layout;
    return frugal_priv_lay_out(&resolved, &layout) == FRUGAL_OK ? (size_t)layout.bytes : 0;
}

static void frugal_priv_arm(frugal_p2f *p, frugal_priv_step *step) {
    frugal_store_relaxed(&step->announce_left, p->desc.devices); /* relaxed: `closed` publishes it, or init's caller */
    frugal_store_relaxed(&step->commit_left, p->desc.devices);
    step->recall_all = 0; /* likewise */
}

FRUGAL_P2F_API frugal_status frugal_p2f_init(void *memory, const frugal_p2f_desc *desc, frugal_p2f **out) {
    if (!memory || !desc || !out || (uintptr_t)memory % FRUGAL_P2F_ALIGN) return FRUGAL_ERR_ARGUMENT;
    frugal_p2f *p = memory;
    frugal_p2f_desc resolved = *desc;
    frugal_priv_layout layout;
    frugal_status status = frugal_priv_lay_out(&resolved, &layout);
    if (status != FRUGAL_OK) return status;
    memset(memory, 0, (size_t)(desc->zeroed ? layout.words_at : layout.bytes));
    p->desc = resolved, p->layout = layout;
    frugal_pq_desc pq = {.pages = frugal_priv_pages(&p->desc)};
    frugal_pq_init(frugal_priv_queue(p), &pq);
    frugal_store_relaxed(&p->has_words, !desc->without_words); /* relaxed, all: the caller publishes the whole block */
    frugal_store_relaxed(&p->sealed.value, desc->first_step);
    frugal_store_relaxed(&p->planned.value, desc->first_step);
    frugal_store_relaxed(&p->committed.value, desc->first_step);
    frugal_store_relaxed(&p->closed.value, desc->first_step);
    for (uint32_t d = 0; d < desc->devices; d++) {
        frugal_store_relaxed(&frugal_priv_devices(p)[d].announced, desc->first_step);
        frugal_store_relaxed(&frugal_priv_devices(p)[d].committed, desc->first_step);
    }
    for (uint32_t i = 0; i < FRUGAL_P2F_SLOTS; i++) frugal_priv_arm(p, &p->steps[i]);
    *out = p;
    return FRUGAL_OK;
}

FRUGAL_P2F_API int frugal_p2f_has_words(const frugal_p2f *p) {
    return frugal_load_acquire(&p->has_words) != 0; /* [P25] pairs with [P24] */
}

FRUGAL_P2F_API frugal_status frugal_p2f_use_words(frugal_p2f *p) {
    frugal_p2f_progress now = frugal_p2f_get_progress(p);
    if (frugal_p2f_has_words(p)) return FRUGAL_OK;
    if (now.closed < now.announced) return FRUGAL_ERR_ORDER;
    /* In the steps so far there was nothing to claim. Relaxed, both: nobody claims before rows have words. */
    uint64_t claim = (now.closed - p->desc.first_step) << FRUGAL_PRIV_CLAIM_STEP_AT;
    frugal_store_relaxed(&p->plan_claim.value, claim);
    frugal_store_relaxed(&p->close_claim.value, claim);
    frugal_store_release(&p->has_words, 1); /* [P24] pairs with [P25] */
    return FRUGAL_OK;
}

/* >>announce */

/* The last announcer of a step cuts the step's plan into pieces, and publishes the step as sealed. Steps are sealed in
 * order: each device announces the step before first, so who announces this step last has sealed that one, or acquired
 * that it is sealed, by [P12]. */
static void frugal_priv_seal(frugal_p2f *p, uint64_t t) {
    frugal_priv_step *step = frugal_priv_step_of(p, t);
    uint32_t largest = 0, in_place = 0;
    step->total = 0, step->pivot = 0;
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        uint32_t n = *frugal_priv_n_rows(p, d, t);
        in_place += (uint32_t)frugal_priv_is_in_place(p, d, t);
        step->total += n;
        if (n > largest) largest = n, step->pivot = d;
    }
    step->step = t;
    step->plan_at = p->layout.entries_at +
                    t % p->layout.plans * ((uint64_t)p->desc.max_rows * p->desc.devices + 1) * sizeof(frugal_p2f_entry);
    frugal_priv_plan(p, step)[step->total].row = FRUGAL_PRIV_NO_ROW; /* ends the last row's contributors */
    uint32_t plan_pieces = frugal_priv_plan_pieces(step->total);
    uint32_t close_pieces = frugal_priv_close_pieces(step->total);
    FRUGAL_ASSERT(close_pieces <= frugal_priv_close_pieces(p->desc.max_rows * p->desc.devices) &&
                  "the queue's pages are bounded at init");
    frugal_store_relaxed(&step->in_place, in_place); /* relaxed, all five: published by `sealed` */
    frugal_store_relaxed(&step->plan_pieces, plan_pieces);
    frugal_store_relaxed(&step->plan_left, plan_pieces);
    frugal_store_relaxed(&step->close_pieces, close_pieces);
    frugal_store_relaxed(&step->close_left, close_pieces);
    frugal_store_release(&p->sealed.value, t + 1); /* [P5] pairs with [P6] */
}

/* A word whose first n bits are set; all, if it has fewer. */
static inline uint64_t frugal_priv_first_bits(uint32_t n) {
    return n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
}

/* Announces a legal batch without words, and seals its step, with nothing to plan: every row is alone, and every copy
 * is current. */
static void frugal_priv_announce_whole(frugal_p2f *p, uint64_t t, const frugal_p2f_batch *batch) {
    frugal_priv_step *step = frugal_priv_step_of(p, t);
    for (uint32_t i = 0; i < (batch->n + 63) / 64; i++) { /* relaxed, all: published by `planned` */
        frugal_store_relaxed(&frugal_priv_alone(p, 0, t)[i], frugal_priv_first_bits(batch->n - 64 * i));
        frugal_store_relaxed(&frugal_priv_valid(p, 0, t)[i], frugal_priv_first_bits(batch->n - 64 * i));
    }
    if (p->desc.taken) *frugal_priv_taken_ends(p, t) = 0;
    *frugal_priv_n_rows(p, 0, t) = batch->n;
    *frugal_priv_how(p, 0, t) = FRUGAL_PRIV_IN_PLACE;
    step->step = t, step->total = batch->n;
    frugal_store_relaxed(&step->announce_left, 0);
    frugal_store_relaxed(&step->in_place, 1);
    frugal_store_relaxed(&step->plan_left, 0);
    frugal_store_relaxed(&step->recall_left, 0);
    frugal_store_release(&frugal_priv_devices(p)[0].announced, t + 1); /* [P10] pairs with [P11] */
    frugal_store_release(&p->sealed.value, t + 1);                     /* [P5] pairs with [P6] */
    frugal_store_release(&p->planned.value, t + 1);                    /* [P16] pairs with [P15] */
}

FRUGAL_P2F_API frugal_status frugal_p2f_announce(frugal_p2f *p, uint32_t device, uint64_t step,
                                                 const frugal_p2f_batch *batch) {
    if (!batch) return FRUGAL_ERR_ARGUMENT;
    const uint32_t *rows = batch->rows, n = batch->n;
    int has_words = frugal_p2f_has_words(p);
    if ((n > 0 && !rows && has_words) || (!has_words && !batch->in_place)) return FRUGAL_ERR_ARGUMENT;
    if (device >= p->desc.devices) return FRUGAL_ERR_DEVICE;
    if (n > p->desc.max_rows || batch->behind > p->desc.max_rows - n) return FRUGAL_ERR_KEYS;
    for (uint32_t i = 0; rows && i < n; i++) {
        if (rows[i] >= p->desc.rows) return FRUGAL_ERR_KEY;
        if (i > 0 && rows[i] <= rows[i - 1]) return FRUGAL_ERR_ROWS;
    }
    frugal_priv_device *own = &frugal_priv_devices(p)[device];
    if (frugal_load_relaxed(&own->announced) != step) return FRUGAL_ERR_ORDER; /* relaxed: this thread's own */
    if (!frugal_p2f_legal(p, step)) return FRUGAL_AGAIN;                       /* ring entries are free again */
    if (!has_words) {
        frugal_priv_announce_whole(p, step, batch);
        return FRUGAL_OK;
    }
    if (n) memcpy(frugal_priv_rows(p, device, step), rows, n * sizeof(uint32_t));
    *frugal_priv_n_rows(p, device, step) = n;
    *frugal_priv_how(p, device, step) =
        (uint8_t)((batch->in_place ? FRUGAL_PRIV_IN_PLACE : 0) | (batch->read_only ? FRUGAL_PRIV_READ_ONLY : 0));
    for (uint32_t i = 0; i < (n + batch->behind + 63) / 64; i++) { /* relaxed, both: published by [P10], [P12] */
        frugal_store_relaxed(&frugal_priv_alone(p, device, step)[i], 0);
        frugal_store_relaxed(&frugal_priv_valid(p, device, step)[i], 0);
    }
    frugal_store_release(&own->announced, step + 1); /* [P10] pairs with [P11] */
    /* [P12] acq_rel: the thread that counts down last has acquired what all others did; pairs with itself. */
    if (frugal_add_acq_rel(&frugal_priv_step_of(p, step)->announce_left, (uint32_t)-1) == 1) frugal_priv_seal(p, step);
    return FRUGAL_OK;
}

/* >>plan - merges the devices' sorted rows into one list sorted by (row, device), and notes in each row's word who
 * reads it */

static uint32_t frugal_priv_lower_bound(const uint32_t *rows, uint32_t n, uint32_t row) {
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (rows[low + half] < row)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low;
}

typedef struct frugal_priv_cursor { /* a device's records of a piece: from `at` to `end` */
    const uint32_t *rows;
    uint32_t at, end;
    uint32_t source; /* device << record_bits */
} frugal_priv_cursor;

/* The first of entries[at] to entries[n - 1] whose row has another contributor; n: there is none. `at` begins a row.
 * Eight at a time, without a branch for each, because most rows are alone. */
static inline uint32_t frugal_priv_first_shared(const frugal_p2f_entry *entries, uint32_t at, uint32_t n) {
    for (; at + 8 < n; at += 8) {
        uint32_t same = 0;
        for (uint32_t i = 0; i < 8; i++) same |= (uint32_t)(entries[at + i].row == entries[at + i + 1].row) << i;
        if (same) return at + frugal_priv_lowest(same);
    }
    while (at + 1 < n && entries[at].row != entries[at + 1].row) at++;
    return at + 1 < n ? at : n;
}

static frugal_p2f_entry *frugal_priv_merge_rest(frugal_p2f_entry *out, frugal_priv_cursor *c) {
    for (; c->at < c->end; c->at++) *out++ = (frugal_p2f_entry){c->rows[c->at], c->source | c->at};
    return out;
}

static frugal_p2f_entry *frugal_priv_merge_two(frugal_p2f_entry *out, frugal_priv_cursor *a, frugal_priv_cursor *b) {
    while (a->at < a->end && b->at < b->end) { /* no branch on which row is less: it is unpredictable */
        uint32_t left = a->rows[a->at], right = b->rows[b->at];
        int second = right < left;
        *out++ = second ? (frugal_p2f_entry){right, b->source | b->at} : (frugal_p2f_entry){left, a->source | a->at};
        a->at += (uint32_t)!second;
        b->at += (uint32_t)second;
    }
    out = frugal_priv_merge_rest(out, a);
    return frugal_priv_merge_rest(out, b);
}

/* The head of a cursor: row << 8 | its number, so that equal rows come in the order of devices. */
static inline uint64_t frugal_priv_head(const frugal_priv_cursor *cursors, uint32_t i) {
    const frugal_priv_cursor *c = &cursors[i];
    return c->at < c->end ? (uint64_t)c->rows[c->at] << 8 | i : UINT64_MAX;
}

/* Merges n >= 2 cursors, `total` entries in all, by a tree of losers (Knuth, The Art of Computer Programming, volume 3,
 * 5.4.1): cursor i is leaf n + i, the parent of a node is node / 2, and each parent keeps the larger of the two heads
 * that met there. The path of a new head is known before its value is, and no branch depends on which head is less. */
static void frugal_priv_merge_many(frugal_p2f_entry *out, frugal_priv_cursor *cursors, uint32_t n, uint32_t total) {
    uint64_t winner[2 * FRUGAL_MAX_DEVICES], loser[FRUGAL_MAX_DEVICES];
    for (uint32_t i = 0; i < n; i++) winner[n + i] = frugal_priv_head(cursors, i);
    for (uint32_t node = n - 1; node > 0; node--) {
        uint64_t left = winner[2 * node], right = winner[2 * node + 1];
        winner[node] = left < right ? left : right;
        loser[node] = left < right ? right : left;
    }
    uint64_t head = winner[1];
    for (uint32_t left = total; left > 0; left--) {
        uint32_t i = (uint32_t)(head & 255);
        *out++ = (frugal_p2f_entry){(uint32_t)(head >> 8), cursors[i].source | cursors[i].at++};
        head = frugal_priv_head(cursors, i);
        for (uint32_t node = (n + i) / 2; node > 0; node /= 2) {
            uint64_t met = loser[node];
            loser[node] = met < head ? head : met;
            head = met < head ? met : head;
        }
    }
}

/* The word of a row, as planning changes it. */

/* The holder rule: is a cached copy of the device current, by this word of its row? */
static inline int frugal_priv_copy_is_current(uint64_t word, uint32_t device) {
    uint32_t holder = (uint32_t)(word >> FRUGAL_PRIV_HOLDER_AT & 255);
    return holder == FRUGAL_PRIV_EVERYONE || holder == FRUGAL_PRIV_DEVICE(device);
}

static inline uint32_t frugal_priv_reads(uint64_t word) {
    return (uint32_t)(word >> FRUGAL_PRIV_READS_AT & 0xffff);
}

/* Of a clean row: for which of the 16 steps from `from` on it is announced, a bit each. */
static inline uint32_t frugal_priv_reads_from(uint64_t word, uint64_t from) {
    uint32_t reads = frugal_priv_reads(word);
    uint32_t later = (uint32_t)from - (uint32_t)word; /* than the origin; modulo 2^32, as the origin is */
    if (later < FRUGAL_PRIV_SPAN) return reads >> later;
    return 0u - later < FRUGAL_PRIV_SPAN ? reads << (0u - later) & 0xffff : 0;
}

/* The step at which a dirty row's update is due; `base` is at most 63 less. */
static inline uint64_t frugal_priv_due_of(uint64_t word, uint64_t base) {
    return base + ((word >> FRUGAL_PRIV_SLOT_AT) - base) % FRUGAL_P2F_SLOTS;
}

/* The word of a clean row, with the given holder in place. */
static inline uint64_t frugal_priv_clean(uint64_t holder, uint32_t reads, uint64_t origin) {
    return holder | (uint64_t)reads << FRUGAL_PRIV_READS_AT | (uint32_t)origin;
}

/* Adds `step` to the reads of a row. Returns the new word. *moved: the row's update is now due at this step, which is
 * earlier than before. The row has no read of a later step yet. So an update due later has no announced read: its row
 * is dirty by the depth of staging. */
static inline uint64_t frugal_priv_add_read(uint64_t word, uint64_t step, uint64_t base, int *moved) {
    *moved = 0;
    if (!(word & FRUGAL_PRIV_DIRTY)) { /* the last read that fits becomes that of `step` */
        uint32_t reads = frugal_priv_reads_from(word, step - (FRUGAL_PRIV_SPAN - 1));
        return frugal_priv_clean(word & FRUGAL_PRIV_HOLDER, reads | UINT32_C(1) << (FRUGAL_PRIV_SPAN - 1),
                                 step - (FRUGAL_PRIV_SPAN - 1));
    }
    uint64_t due = frugal_priv_due_of(word, base);
    *moved = due > step;
    if (*moved) word = (word & ~FRUGAL_PRIV_SLOT) | step % FRUGAL_P2F_SLOTS << FRUGAL_PRIV_SLOT_AT, due = step;
    return word | UINT64_C(1) << (FRUGAL_PRIV_READS_AT + (step - due));
}

/* The device that is the holder by this word, or more than any. */
static inline uint32_t frugal_priv_holder(uint64_t word) {
    return (uint32_t)(word >> FRUGAL_PRIV_HOLDER_AT & 255) - FRUGAL_PRIV_DEVICE(0);
}

/* A piece that is being planned. */
typedef struct frugal_priv_planner {
    frugal_p2f *p;
    frugal_priv_word *words;
    uint32_t record_bits;
    uint64_t step, base; /* base: slots are decoded against it */
    uint8_t how[FRUGAL_MAX_DEVICES];
    uint64_t valid[FRUGAL_MAX_DEVICES], alone[FRUGAL_MAX_DEVICES]; /* a device's bits, gathered for one word of them */
    uint32_t word[FRUGAL_MAX_DEVICES];                             /* ... which is this one */
    frugal_pq_batch moved;
    int64_t moved_from[FRUGAL_P2F_SLOTS], moved_here;
    uint32_t *taken; /* NULL: they are not listed */
    uint8_t *from;
    uint32_t n_taken;
} frugal_priv_planner;

/* Writes a device's gathered bits. The pieces before and after may have bits in the same word, so it is changed by
 * read-modify-write. A bit is set once, so adding sets it. Relaxed: published by `plan_left`. */
static inline void frugal_priv_write_bits(frugal_priv_planner *own, uint32_t device) {
    frugal_p2f *p = own->p;
    uint32_t word = own->word[device];
    if (own->valid[device]) frugal_add_relaxed(&frugal_priv_valid(p, device, own->step)[word], own->valid[device]);
    if (own->alone[device]) frugal_add_relaxed(&frugal_priv_alone(p, device, own->step)[word], own->alone[device]);
    own->valid[device] = own->alone[device] = 0;
}

/* Notes what the device of an entry will find: is its copy current, and is the row its alone? Records of a device come
 * in rising order. */
static inline void frugal_priv_note_bits(frugal_priv_planner *own, uint32_t source, uint64_t word, uint32_t alone) {
    uint32_t device = source >> own->record_bits, record = source & ((UINT32_C(1) << own->record_bits) - 1);
    if (record / 64 != own->word[device]) {
        frugal_priv_write_bits(own, device);
        own->word[device] = record / 64;
    }
    own->valid[device] |= (uint64_t)frugal_priv_copy_is_current(word, device) << record % 64;
    own->alone[device] |= (uint64_t)(alone & own->how[device] & FRUGAL_PRIV_IN_PLACE) << record % 64;
}

/* The row's update has become due at this step. */
static void frugal_priv_note_moved(frugal_priv_planner *own, uint32_t row, uint64_t found) {
    own->moved_here++;
    own->moved_from[found >> FRUGAL_PRIV_SLOT_AT & 63]++;
    if (found & FRUGAL_PRIV_BUSY) return; /* its worker will lower the new slot's count: no entry is needed */
    int put = frugal_pq_put(frugal_priv_queue(own->p), &own->moved, (uint32_t)(own->step % FRUGAL_P2F_SLOTS), row);
    FRUGAL_ASSERT(put && "the queue's pages are bounded at init");
    (void)put;
}

/* Who holds the row after the step, whose entries[n] of this row are given. */
static inline uint32_t frugal_priv_next_holder(const frugal_priv_planner *own, const frugal_p2f_entry *entries,
                                               uint32_t n) {
    uint32_t next = FRUGAL_PRIV_SAME;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t device = entries[i].source >> own->record_bits;
        if (own->how[device] & FRUGAL_PRIV_READ_ONLY) continue;
        next = next == FRUGAL_PRIV_SAME ? FRUGAL_PRIV_DEVICE(device) : FRUGAL_PRIV_NOBODY;
    }
    return next;
}

/* Plans a row: entries[n] are those of the step. */
static inline void frugal_priv_plan_row(frugal_priv_planner *own, const frugal_p2f_entry *entries, uint32_t n) {
    uint32_t row = entries[0].row, next = frugal_priv_next_holder(own, entries, n);
    frugal_priv_word *word = &own->words[row];
    uint64_t found = frugal_load_relaxed(word), changed; /* relaxed: proved by the compare-and-swap */
    int moved;
    do {
        changed = frugal_priv_add_read(found, own->step, own->base, &moved);
        if (next != FRUGAL_PRIV_SAME)
            changed = (changed & ~FRUGAL_PRIV_HOLDER) | (uint64_t)next << FRUGAL_PRIV_HOLDER_AT;
    } while (!frugal_cas_acquire(word, &found, changed)); /* [P1] pairs with [P4]: a flushed row */
    for (uint32_t i = 0; i < n; i++) frugal_priv_note_bits(own, entries[i].source, found, n == 1);
    if (moved) frugal_priv_note_moved(own, row, found);
    uint32_t holder = frugal_priv_holder(found);
    if (!own->taken) return;
    own->taken[own->n_taken] = row, own->from[own->n_taken] = (uint8_t)holder; /* kept if another device is there */
    own->n_taken += holder < FRUGAL_MAX_DEVICES && (n > 1 || entries[0].source >> own->record_bits != holder);
}

/* Sorts the taken rows of a piece by the device that they are taken from. counted[0]: where its rows begin. */
static void frugal_priv_sort_taken(frugal_p2f *p, const frugal_priv_planner *own, uint32_t first, uint32_t piece) {
    uint32_t at[FRUGAL_MAX_DEVICES] = {0}, *ends = frugal_priv_counted(p, piece);
    for (uint32_t i = 0; i < own->n_taken; i++) at[own->from[i]]++;
    ends[0] = first;
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        ends[d + 1] = ends[d] + at[d];
        at[d] = ends[d];
    }
    for (uint32_t i = 0; i < own->n_taken; i++) frugal_priv_sorted(p)[at[own->from[i]]++] = own->taken[i];
}

/* Plans the rows of entries[n], whole rows, which begin at `first` of the plan. */
static void frugal_priv_plan_rows(frugal_p2f *p, const frugal_p2f_piece *piece) {
    const frugal_p2f_entry *entries = piece->entries;
    frugal_priv_planner own;
    uint32_t n = piece->n;
    own.p = p, own.step = piece->step, own.moved_here = 0, own.n_taken = 0;
    own.words = frugal_priv_words(p), own.record_bits = p->layout.record_bits;
    own.moved = (frugal_pq_batch){0};
    memset(own.moved_from, 0, sizeof own.moved_from);
    /* Relaxed: no less than announcers found, by [P12] and [P6]. Nor so late that a word is found whose update was due
     * before: who wrote that row would have found this thread's change of the word, which depends on the base. */
    own.base = frugal_load_relaxed(&p->closed.value);
    own.taken = p->desc.taken ? frugal_priv_taken(p, piece->step) + piece->first : NULL;
    own.from = frugal_priv_from(p) + piece->first;
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        own.how[d] = *frugal_priv_how(p, d, piece->step);
        own.valid[d] = own.alone[d] = 0, own.word[d] = 0;
    }
    for (uint32_t at = 0, end; at < n; at = end) {
        for (end = at; end < n && entries[end].row == entries[at].row; end++)
            if (end + FRUGAL_PRIV_AHEAD < n)
                FRUGAL_PRIV_PREFETCH_WRITE(&own.words[entries[end + FRUGAL_PRIV_AHEAD].row]);
        if (end == at + 1)
            frugal_priv_plan_row(&own, entries + at, 1); /* most rows: no loops */
        else
            frugal_priv_plan_row(&own, entries + at, end - at);
    }
    for (uint32_t d = 0; d < p->desc.devices; d++) frugal_priv_write_bits(&own, d);
    /* Relaxed: published by `plan_left`, then by `planned`, which every gate of the step acquires. */
    uint64_t slot = piece->step % FRUGAL_P2F_SLOTS;
    if (own.moved_here) frugal_add_relaxed(&p->pending[slot].rows, own.moved_here);
    for (uint32_t s = 0; own.moved_here && s < FRUGAL_P2F_SLOTS; s++)
        if (own.moved_from[s]) frugal_add_relaxed(&p->pending[s].rows, -own.moved_from[s]);
    frugal_pq_commit(frugal_priv_queue(p), &own.moved);
    if (own.taken) frugal_priv_sort_taken(p, &own, piece->first, piece->number);
}

/* The rows of the devices from which a piece begins, and before which it ends; *last: it ends with the last row. */
static void frugal_priv_plan_cut(const frugal_p2f *p, uint64_t t, uint32_t piece, uint32_t *from, uint32_t *to,
                                 int *last) {
    const frugal_priv_step *step = frugal_priv_step_of(p, t);
    uint64_t pieces = frugal_load_relaxed(&step->plan_pieces); /* relaxed: `sealed` was acquired */
    const uint32_t *pivot = frugal_priv_rows(p, step->pivot, t);
    uint64_t pivots = *frugal_priv_n_rows(p, step->pivot, t);
    *from = piece == 0 ? 0 : pivot[piece * pivots / pieces];
    *last = piece + 1 == pieces;
    *to = *last ? 0 : pivot[(piece + 1) * pivots / pieces];
}

static void frugal_priv_plan_piece(frugal_p2f *p, frugal_p2f_piece *piece) {
    frugal_priv_cursor cursors[FRUGAL_MAX_DEVICES];
    uint32_t before = 0, n_entries = 0, from, to;
    int last;
    frugal_priv_plan_cut(p, piece->step, piece->number, &from, &to, &last);
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        frugal_priv_cursor *c = &cursors[d];
        uint32_t n = *frugal_priv_n_rows(p, d, piece->step);
        c->rows = frugal_priv_rows(p, d, piece->step);
        c->at = frugal_priv_lower_bound(c->rows, n, from);
        c->end = last ? n : frugal_priv_lower_bound(c->rows, n, to);
        c->source = d << p->layout.record_bits;
        before += c->at;
        n_entries += c->end - c->at;
    }
    frugal_p2f_entry *out = frugal_priv_plan(p, frugal_priv_step_of(p, piece->step)) + before;
    if (p->desc.devices == 1)
        frugal_priv_merge_rest(out, &cursors[0]);
    else if (p->desc.devices == 2)
        frugal_priv_merge_two(out, &cursors[0], &cursors[1]);
    else
        frugal_priv_merge_many(out, cursors, p->desc.devices, n_entries);
    piece->entries = out, piece->n = n_entries, piece->first = before;
    frugal_priv_plan_rows(p, piece);
}

FRUGAL_P2F_API uint32_t frugal_p2f_range(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t device,
                                         uint32_t *first) {
    const uint32_t *rows = frugal_priv_rows(p, device, piece->step);
    uint32_t n = *frugal_priv_n_rows(p, device, piece->step), from, to;
    int last;
    frugal_priv_plan_cut(p, piece->step, piece->number, &from, &to, &last);
    *first = frugal_priv_lower_bound(rows, n, from);
    return (last ? n : frugal_priv_lower_bound(rows, n, to)) - *first;
}

FRUGAL_P2F_API void frugal_p2f_span(const frugal_p2f *p, const frugal_p2f_piece *piece, uint64_t *from, uint64_t *end) {
    uint32_t first, to;
    int last;
    frugal_priv_plan_cut(p, piece->step, piece->number, &first, &to, &last);
    *from = first, *end = last ? p->desc.rows : to;
}

/* Claims the next piece of a step *t. A step is planned if it is sealed and the one before is planned, and closed if it
 * is committed. Returns 0 if there is none. */
static int frugal_priv_claim(frugal_p2f *p, frugal_priv_counter *claim, int closing, uint64_t *t, uint32_t *piece) {
    uint64_t found = frugal_load_acquire(&claim->value); /* [P13] pairs with itself: a cancel that moved it back */
    for (;;) {
        *t = p->desc.first_step + (found >> FRUGAL_PRIV_CLAIM_STEP_AT);
        *piece = (uint32_t)(found & ((UINT32_C(1) << FRUGAL_PRIV_CLAIM_EPOCH_AT) - 1));
        if (closing && *t >= frugal_load_acquire(&p->committed.value)) return 0; /* [P7] pairs with [P14] */
        if (!closing && *t >= frugal_load_acquire(&p->sealed.value)) return 0;   /* [P6] pairs with [P5] */
        if (!closing && *t > frugal_load_acquire(&p->planned.value)) return 0;   /* [P15] pairs with [P16] */
        frugal_priv_step *step = frugal_priv_step_of(p, *t);
        uint32_t pieces = frugal_load_relaxed(closing ? &step->close_pieces : &step->plan_pieces);
        /* If the entry is that of a later step by now, the claim has moved on and the compare-and-swap fails. */
        uint64_t next = found + 1;
        if (*piece + 1 >= pieces) next = (found - *piece) + (UINT64_C(1) << FRUGAL_PRIV_CLAIM_STEP_AT);
        if (frugal_cas_acquire(&claim->value, &found, next)) return 1; /* [P13] */
    }
}

FRUGAL_P2F_API int frugal_p2f_plan_begin(frugal_p2f *p, frugal_p2f_piece *piece) {
    if (!frugal_p2f_has_words(p)) return 0;
    if (!frugal_priv_claim(p, &p->plan_claim, 0, &piece->step, &piece->number)) return 0;
    frugal_priv_plan_piece(p, piece);
    return 1;
}

/* The last planner of a step gathers the lists of its pieces, and those who are to write rows back are told. */
static void frugal_priv_gather_taken(frugal_p2f *p, uint64_t t) {
    frugal_priv_step *step = frugal_priv_step_of(p, t);
    uint32_t pieces = frugal_load_relaxed(&step->plan_pieces), n = 0, recalled = 0; /* relaxed: [P6] */
    uint32_t *taken = frugal_priv_taken(p, t), *ends = frugal_priv_taken_ends(p, t);
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        uint32_t before = n;
        for (uint32_t i = 0; i < pieces; i++) {
            const uint32_t *counted = frugal_priv_counted(p, i);
            memcpy(taken + n, frugal_priv_sorted(p) + counted[d], (counted[d + 1] - counted[d]) * sizeof *taken);
            n += counted[d + 1] - counted[d];
        }
        ends[d] = n;
        recalled += step->recall_all || n > before;
    }
    /* relaxed: published by the bits below to those who count it down, and by `planned` to the gate */
    frugal_store_relaxed(&step->recall_left, p->desc.recalls ? recalled : 0);
    for (uint32_t d = 0; p->desc.recalls && d < p->desc.devices; d++) /* [P22] pairs with [P23]: the lists */
        if (step->recall_all || ends[d] > (d ? ends[d - 1] : 0))
            frugal_add_release(&frugal_priv_devices(p)[d].recalls, UINT64_C(1) << t % FRUGAL_P2F_SLOTS);
}

FRUGAL_P2F_API int frugal_p2f_plan_end(frugal_p2f *p, const frugal_p2f_piece *piece) {
    frugal_priv_step *step = frugal_priv_step_of(p, piece->step);
    /* [P16] acq_rel: the thread that counts down last has acquired what all others wrote; pairs with itself */
    if (frugal_add_acq_rel(&step->plan_left, (uint32_t)-1) != 1) return 1;
    if (p->desc.taken)
        frugal_priv_gather_taken(p, piece->step);
    else
        frugal_store_relaxed(&step->recall_left, 0);          /* relaxed: published by `planned` */
    frugal_store_release(&p->planned.value, piece->step + 1); /* [P16] pairs with [P15] */
    return 2;
}

FRUGAL_P2F_API int frugal_p2f_plan(frugal_p2f *p) {
    frugal_p2f_piece piece;
    return frugal_p2f_plan_begin(p, &piece) ? frugal_p2f_plan_end(p, &piece) : 0;
}

/* >>gate - and commit */

FRUGAL_P2F_API uint64_t frugal_p2f_planned(frugal_p2f *p) {
    return frugal_load_acquire(&p->planned.value); /* [P15] pairs with [P16] */
}

FRUGAL_P2F_API int frugal_p2f_has_plans(frugal_p2f *p) {
    return frugal_p2f_planned(p) < frugal_load_relaxed(&p->sealed.value); /* relaxed: a hint */
}

FRUGAL_P2F_API int frugal_p2f_awaits_plan(frugal_p2f *p) {
    uint64_t step = frugal_load_relaxed(&p->closed.value); /* relaxed, all: which work comes first orders nothing */
    return frugal_load_relaxed(&p->sealed.value) > step && frugal_load_relaxed(&p->planned.value) <= step;
}

FRUGAL_P2F_API const uint64_t *frugal_p2f_valid(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return (const uint64_t *)(uintptr_t)frugal_priv_valid(p, device, step); /* planned: nobody writes them now */
}
FRUGAL_P2F_API uint64_t frugal_p2f_valid_word(const frugal_p2f *p, uint32_t device, uint64_t step, uint32_t word) {
    return frugal_load_relaxed(&frugal_priv_valid(p, device, step)[word]); /* relaxed: this thread's own bits */
}

FRUGAL_P2F_API const uint64_t *frugal_p2f_alone(const frugal_p2f *p, uint32_t device, uint64_t step) {
    if (!frugal_priv_is_in_place(p, device, step)) return NULL;
    return (const uint64_t *)(uintptr_t)frugal_priv_alone(p, device, step); /* planned: nobody writes them now */
}

FRUGAL_P2F_API void *frugal_p2f_alone_memory(const frugal_p2f *p, size_t *bytes) {
    *bytes = (size_t)p->layout.alone_bytes;
    return frugal_priv_at(p, p->layout.alone_at);
}

FRUGAL_P2F_API int frugal_p2f_gate(frugal_p2f *p, uint64_t step) {
    /* In this order: once the first two hold, nothing can raise the count any more, so a zero is final. `recall_left`
     * is that of step - 64 until the step is planned. */
    if (frugal_load_acquire(&p->closed.value) < step) return 0;   /* [P9] pairs with [P8] */
    if (frugal_load_acquire(&p->planned.value) <= step) return 0; /* [P15] pairs with [P16] */
    /* [P21] pairs with [P20] */
    if (frugal_load_acquire(&frugal_priv_step_of(p, step)->recall_left) != 0) return 0;
    return frugal_load_acquire(&p->pending[step % FRUGAL_P2F_SLOTS].rows) == 0; /* [P18] pairs with [P17] */
}

FRUGAL_P2F_API uint32_t frugal_p2f_taken(const frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t **rows) {
    const uint32_t *ends = frugal_priv_taken_ends(p, step); /* `planned` was acquired */
    uint32_t first = device == 0 ? 0 : ends[device - 1];
    *rows = frugal_priv_taken(p, step) + first;
    return ends[device] - first;
}

FRUGAL_P2F_API uint32_t frugal_p2f_recalls(const frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t **rows) {
    return frugal_priv_step_of(p, step)->recall_all ? UINT32_MAX : frugal_p2f_taken(p, device, step, rows);
}

FRUGAL_P2F_API int frugal_p2f_is_recalled(frugal_p2f *p, uint32_t device, uint64_t step) {
    if (frugal_p2f_planned(p) <= step) return 0;
    /* relaxed: set before the step was planned; who finds it cleared acquires the rows at the gate */
    return frugal_load_relaxed(&frugal_priv_devices(p)[device].recalls) >> step % FRUGAL_P2F_SLOTS & 1;
}

FRUGAL_P2F_API int frugal_p2f_has_recall(frugal_p2f *p, uint32_t device, uint64_t *step) {
    frugal_priv_device *own = &frugal_priv_devices(p)[device];
    *step = frugal_load_acquire(&own->committed);          /* [P11] pairs with [P10]: its copies are those of then */
    uint64_t recalls = frugal_load_acquire(&own->recalls); /* [P23] pairs with [P22] */
    if (!(recalls >> *step % FRUGAL_P2F_SLOTS & 1)) return 0;
    /* The device cannot commit that step before the bit is cleared, and only this thread clears it. But the bit may be
     * that of a step 64 further on; then the bit's reader has acquired a later commit. */
    return frugal_load_relaxed(&own->committed) == *step;
}

FRUGAL_P2F_API int frugal_p2f_recall_done(frugal_p2f *p, uint32_t device, uint64_t step) {
    /* relaxed: the bit says nothing to others; by subtracting, because sealers set other bits meanwhile */
    frugal_add_relaxed(&frugal_priv_devices(p)[device].recalls, -(UINT64_C(1) << step % FRUGAL_P2F_SLOTS));
    /* [P20] release: the rows are written; pairs with [P21] */
    return frugal_add_release(&frugal_priv_step_of(p, step)->recall_left, (uint32_t)-1) == 1;
}

/* What a piece's rows are, counted while it is closed. */
typedef struct frugal_priv_tally {
    uint64_t alone, shared, in_place;
} frugal_priv_tally;

static void frugal_priv_add_tally(frugal_p2f *p, const frugal_priv_tally *tally) { /* relaxed, all: statistics */
    if (tally->alone) frugal_add_relaxed(&p->touched.alone, tally->alone);
    if (tally->shared) frugal_add_relaxed(&p->touched.shared, tally->shared);
    if (tally->in_place) frugal_add_relaxed(&p->touched.in_place, tally->in_place);
}

/* Commits a step without words, which closes it. */
static void frugal_priv_commit_whole(frugal_p2f *p, uint64_t s, int gradients) {
    frugal_priv_step *step = frugal_priv_step_of(p, s);
    frugal_priv_tally tally = {step->total, 0, gradients ? step->total : 0};
    frugal_priv_add_tally(p, &tally);
    frugal_priv_arm(p, step); /* for step s + 64, which nobody announces before `closed` says so */
    frugal_store_release(&p->committed.value, s + 1); /* [P14] pairs with [P7] */
    frugal_store_release(&p->closed.value, s + 1);    /* [P8] pairs with [P9] */
}

FRUGAL_P2F_API frugal_status frugal_p2f_commit(frugal_p2f *p, uint32_t device, uint64_t step, int gradients,
                                               int *last_one) {
    if (last_one) *last_one = 0;
    if (device >= p->desc.devices) return FRUGAL_ERR_DEVICE;
    frugal_priv_device *own = &frugal_priv_devices(p)[device];
    if (frugal_load_relaxed(&own->committed) != step || !frugal_p2f_gate(p, step)) return FRUGAL_ERR_ORDER;
    *frugal_priv_brings(p, device, step) = gradients != 0;
    frugal_store_release(&own->committed, step + 1); /* [P10] pairs with [P11] */
    if (!frugal_p2f_has_words(p)) {
        frugal_priv_commit_whole(p, step, gradients);
        if (last_one) *last_one = 2;
        return FRUGAL_OK;
    }
    /* [P14] acq_rel: the thread that counts down last has acquired the records of all; pairs with itself */
    if (frugal_add_acq_rel(&frugal_priv_step_of(p, step)->commit_left, (uint32_t)-1) != 1) return FRUGAL_OK;
    uint32_t all_bring = 1;
    for (uint32_t d = 0; d < p->desc.devices; d++) all_bring &= *frugal_priv_brings(p, d, step);
    frugal_priv_step_of(p, step)->all_bring = (uint16_t)all_bring;
    /* No update is due at this step any more, and none can become due at it, so all ids left in the slot are stale. The
     * slot is retired before the step's closers need pages; the bound on the number of pages depends on this. */
    frugal_pq_retire(frugal_priv_queue(p), (uint32_t)(step % FRUGAL_P2F_SLOTS));
    frugal_store_release(&p->committed.value, step + 1); /* [P14] pairs with [P7] */
    if (last_one) *last_one = 2;
    return FRUGAL_OK;
}

/* >>close - a piece of a plan at a time: whole rows, in order */

static int frugal_priv_any_brings(const frugal_p2f *p, uint64_t s, const frugal_p2f_entry *entries, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (*frugal_priv_brings(p, entries[i].source >> p->layout.record_bits, s)) return 1;
    return 0;
}

FRUGAL_P2F_API int frugal_p2f_close_begin(frugal_p2f *p, frugal_p2f_piece *piece) {
    uint32_t number;
    if (!frugal_p2f_has_words(p)) return 0;
    if (!frugal_priv_claim(p, &p->close_claim, 1, &piece->step, &number)) return 0;
    const frugal_priv_step *step = frugal_priv_step_of(p, piece->step);
    const frugal_p2f_entry *plan = frugal_priv_plan(p, step);
    uint32_t range = frugal_priv_close_range(step->total), at = number * range;
    uint32_t end = step->total - at < range ? step->total : at + range;
    while (at > 0 && at < end && plan[at].row == plan[at - 1].row) at++; /* the piece before has that row */
    while (end > at && plan[end].row == plan[end - 1].row) end++;        /* this piece has all of its last row */
    piece->entries = plan + at;
    piece->first = at;
    piece->n = end - at;
    return 1;
}

/* Passes over the rows from entries[at] of the piece on that their devices have updated in place, and counts them.
 * Returns the first entry of another row; piece->n: there is none. */
static uint32_t frugal_priv_pass_in_place(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t at,
                                          frugal_priv_tally *tally) {
    const frugal_priv_step *step = frugal_priv_step_of(p, piece->step);
    const frugal_p2f_entry *entries = piece->entries;
    uint32_t in_place = frugal_load_relaxed(&step->in_place), from = at; /* relaxed: `sealed` was acquired */
    if (in_place == 0) return at;
    if (in_place == p->desc.devices && step->all_bring) {
        at = frugal_priv_first_shared(entries, at, piece->n);
        tally->alone += at - from, tally->in_place += at - from;
        return at;
    }
    for (; at < piece->n && entries[at].row != entries[at + 1].row; at++) {
        uint32_t device = entries[at].source >> p->layout.record_bits;
        if (!frugal_priv_is_in_place(p, device, piece->step)) break;
        tally->alone++, tally->in_place += *frugal_priv_brings(p, device, piece->step);
    }
    return at;
}

FRUGAL_P2F_API uint32_t frugal_p2f_next_closed(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t at) {
    frugal_priv_tally unused = {0};
    return frugal_priv_pass_in_place(p, piece, at, &unused);
}

/* Counts a row of n entries that closing does not pass over. */
static inline void frugal_priv_count_row(frugal_priv_tally *tally, uint32_t n) {
    tally->alone += n == 1;
    tally->shared += n > 1;
}

/* Closes a piece whose updates are applied. Its rows stay clean, so there is nothing to change in their words. */
static void frugal_priv_close_applied(frugal_p2f *p, const frugal_p2f_piece *piece) {
    frugal_priv_tally tally = {0};
    for (uint32_t at = 0, n; (at = frugal_priv_pass_in_place(p, piece, at, &tally)) < piece->n; at += n) {
        n = frugal_p2f_contributors(piece->entries + at);
        frugal_priv_count_row(&tally, n);
    }
    frugal_priv_add_tally(p, &tally);
}

/* The word of a row that step s makes dirty. *due: the step at which its update is due, which is that of the row's next
 * announced read, or of the reuse of its staging block. */
static inline uint64_t frugal_priv_dirty(const frugal_p2f *p, uint64_t word, uint64_t s, uint32_t update,
                                         uint64_t *due) {
    uint32_t reads = frugal_priv_reads_from(word, s + 1);
    *due = p->desc.mode == FRUGAL_SYNC ? s + 1 : s + p->desc.staging;
    if (reads) {
        uint64_t next = s + 1 + frugal_priv_lowest(reads);
        if (next < *due) *due = next;
        reads >>= *due - (s + 1); /* the origin is the due step, and no read lies before it */
    }
    return (word & FRUGAL_PRIV_HOLDER) | FRUGAL_PRIV_DIRTY | *due % FRUGAL_P2F_SLOTS << FRUGAL_PRIV_SLOT_AT |
           (uint64_t)reads << FRUGAL_PRIV_READS_AT | update;
}

/* Makes the row dirty; its entries are at `at` of its plan. Returns the step at which its update is due. */
static inline uint64_t frugal_priv_close_dirty(frugal_p2f *p, uint32_t row, uint64_t s, uint32_t at) {
    frugal_priv_word *word = &frugal_priv_words(p)[row];
    uint32_t update = (uint32_t)(s % 64) << FRUGAL_PRIV_INDEX_BITS | at;
    uint64_t found = frugal_load_relaxed(word); /* relaxed: proved by the compare-and-swap */
    uint64_t changed, due;
    do {
        FRUGAL_ASSERT(!(found & (FRUGAL_PRIV_DIRTY | FRUGAL_PRIV_BUSY)) && (frugal_priv_reads_from(found, s) & 1) &&
                      "a row read at s is clean at s");
        changed = frugal_priv_dirty(p, found, s, update, &due);
    } while (!frugal_cas_release(word, &found, changed)); /* [P2] releases the records; pairs with [P3] */
    return due;
}

/* The first entry of the next row of the piece that closing makes dirty, from *at on, which is moved behind the row;
 * piece->n: there is none. Its word is prefetched. */
static inline uint32_t frugal_priv_find_closed(const frugal_p2f *p, const frugal_p2f_piece *piece, uint32_t *at,
                                               frugal_priv_tally *tally) {
    const frugal_p2f_entry *entries = piece->entries;
    uint32_t all_bring = frugal_priv_step_of(p, piece->step)->all_bring;
    while ((*at = frugal_priv_pass_in_place(p, piece, *at, tally)) < piece->n) {
        uint32_t first = *at, n = frugal_p2f_contributors(entries + first);
        *at += n;
        frugal_priv_count_row(tally, n);
        if (!all_bring && !frugal_priv_any_brings(p, piece->step, entries + first, n)) continue;
        FRUGAL_PRIV_PREFETCH_WRITE(&frugal_priv_words(p)[entries[first].row]);
        return first;
    }
    return piece->n;
}

/* Closes a piece whose updates are to be queued. Rows are found some rows before their words are changed. */
static void frugal_priv_close_queued(frugal_p2f *p, const frugal_p2f_piece *piece) {
    frugal_pq_batch batch = {0};
    int64_t raised[FRUGAL_P2F_SLOTS] = {0};
    uint32_t found[FRUGAL_PRIV_AHEAD], n_found = 0, queued = 0, at = 0;
    uint64_t s = piece->step;
    frugal_priv_tally tally = {0};
    for (;; queued++) {
        while (at < piece->n && n_found < queued + FRUGAL_PRIV_AHEAD) {
            uint32_t first = frugal_priv_find_closed(p, piece, &at, &tally);
            if (first < piece->n) found[n_found++ % FRUGAL_PRIV_AHEAD] = first;
        }
        if (queued == n_found) break;
        uint32_t first = found[queued % FRUGAL_PRIV_AHEAD], row = piece->entries[first].row;
        uint64_t due = frugal_priv_close_dirty(p, row, s, piece->first + first);
        raised[due % FRUGAL_P2F_SLOTS]++;
        int put = frugal_pq_put(frugal_priv_queue(p), &batch, (uint32_t)(due % FRUGAL_P2F_SLOTS), row);
        FRUGAL_ASSERT(put && "the queue's pages are bounded at init");
        (void)put;
    }
    for (uint32_t i = 0; i < FRUGAL_P2F_SLOTS; i++) /* relaxed: published by `closed`, which every gate acquires */
        if (raised[i]) frugal_add_relaxed(&p->pending[i].rows, raised[i]);
    frugal_add_relaxed(&frugal_priv_step_of(p, s)->unflushed, (int32_t)queued); /* relaxed: a statistic */
    frugal_priv_add_tally(p, &tally);
    frugal_pq_commit(frugal_priv_queue(p), &batch);
}

FRUGAL_P2F_API int frugal_p2f_close_end(frugal_p2f *p, const frugal_p2f_piece *piece, int applied) {
    uint64_t s = piece->step;
    if (applied)
        frugal_priv_close_applied(p, piece);
    else
        frugal_priv_close_queued(p, piece);
    frugal_priv_step *step = frugal_priv_step_of(p, s);
    if (frugal_add_acq_rel(&step->close_left, (uint32_t)-1) != 1) return 1; /* [P19] pairs with itself */
    frugal_priv_arm(p, step);                      /* for step s + 64, which nobody announces before `closed` says so */
    frugal_store_release(&p->closed.value, s + 1); /* [P8] pairs with [P9] */
    return 2;
}

FRUGAL_P2F_API int frugal_p2f_close(frugal_p2f *p) {
    frugal_p2f_piece piece;
    return frugal_p2f_close_begin(p, &piece) ? frugal_p2f_close_end(p, &piece, 0) : 0;
}

/* >>take - and done */

static void frugal_priv_fill_work(const frugal_p2f *p, uint32_t row, uint64_t word, frugal_p2f_work *work) {
    uint32_t update = (uint32_t)word;
    const frugal_priv_step *step = &p->steps[update >> FRUGAL_PRIV_INDEX_BITS];
    work->row = row;
    work->slot = (uint32_t)(word >> FRUGAL_PRIV_SLOT_AT & 63);
    work->step = step->step;
    work->entries = frugal_priv_plan(p, step) + (update & (FRUGAL_MAX_KEYS - 1));
}

FRUGAL_P2F_API uint32_t frugal_p2f_take(frugal_p2f *p, uint64_t limit, frugal_p2f_work work[FRUGAL_P2F_WORKS],
                                        uint64_t *stale) {
    frugal_priv_word *words = frugal_priv_words(p);
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    for (;;) {
        uint64_t base = frugal_load_relaxed(&p->closed.value); /* relaxed: only where to begin looking */
        if (limit < base) return 0;
        uint32_t span = limit - base >= FRUGAL_P2F_SLOTS ? FRUGAL_P2F_SLOTS : (uint32_t)(limit - base) + 1;
        uint32_t slot = frugal_pq_first(frugal_priv_queue(p), (uint32_t)(base % FRUGAL_P2F_SLOTS), span);
        if (slot == FRUGAL_PQ_SLOTS) return 0;
        uint32_t n = frugal_pq_take(frugal_priv_queue(p), slot, ids);
        uint32_t taken = 0;
        for (uint32_t i = 0; i < n; i++) FRUGAL_PRIV_PREFETCH_WRITE(&words[ids[i]]);
        const uint64_t wanted = FRUGAL_PRIV_DIRTY | (uint64_t)slot << FRUGAL_PRIV_SLOT_AT;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t found = frugal_load_relaxed(&words[ids[i]]); /* relaxed: proved by the compare-and-swap */
            while ((found & (FRUGAL_PRIV_DIRTY | FRUGAL_PRIV_BUSY | FRUGAL_PRIV_SLOT)) == wanted)
                if (frugal_cas_acquire(&words[ids[i]], &found, found | FRUGAL_PRIV_BUSY)) { /* [P3] with [P2] */
                    frugal_priv_fill_work(p, ids[i], found, &work[taken++]);
                    break;
                }
        }
        if (stale) *stale += n - taken;
        if (taken) return taken;
    }
}

FRUGAL_P2F_API int frugal_p2f_take_row(frugal_p2f *p, uint32_t row, frugal_p2f_work *work) {
    if (!frugal_p2f_has_words(p)) return 0;
    frugal_priv_word *word = &frugal_priv_words(p)[row];
    uint64_t found = frugal_load_acquire(word); /* [P3] pairs with [P4]: a clean row has been written */
    for (;;) {
        if (!(found & FRUGAL_PRIV_DIRTY)) return 0;
        if (found & FRUGAL_PRIV_BUSY) return -1;
        if (frugal_cas_acquire(word, &found, found | FRUGAL_PRIV_BUSY)) break; /* [P3] pairs with [P2] */
    }
    frugal_priv_fill_work(p, row, found, work);
    return 1;
}

/* Lowers the steps' counts of unflushed updates. Neighbours in a page are mostly of one step: one addition for them. */
static void frugal_priv_lower_unflushed(frugal_p2f *p, const frugal_p2f_work *work, uint32_t n) {
    for (uint32_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && work[next].step == work[i].step;) next++;
        frugal_add_relaxed(&frugal_priv_step_of(p, work[i].step)->unflushed,
                           -(int32_t)(next - i)); /* relaxed: a statistic */
    }
}

FRUGAL_P2F_API int frugal_p2f_done(frugal_p2f *p, const frugal_p2f_work *work, uint32_t n) {
    frugal_priv_word *words = frugal_priv_words(p);
    int64_t lowered[FRUGAL_P2F_SLOTS];
    uint64_t touched = 0;
    for (uint32_t i = 0; i < n; i++) {
        frugal_priv_word *word = &words[work[i].row];
        uint64_t found = frugal_load_relaxed(word), changed; /* relaxed: proved by the compare-and-swap */
        do { /* an announcement may move the row meanwhile; its update was due behind the step that it is of */
            uint64_t due = frugal_priv_due_of(found, work[i].step);
            changed = frugal_priv_clean(found & FRUGAL_PRIV_HOLDER, frugal_priv_reads(found), due);
        } while (!frugal_cas_release(word, &found, changed)); /* [P4] the row is written; pairs with [P1][P3] */
        uint32_t slot = (uint32_t)(found >> FRUGAL_PRIV_SLOT_AT & 63);
        if (!(touched >> slot & 1)) lowered[slot] = 0, touched |= UINT64_C(1) << slot;
        lowered[slot]++;
    }
    frugal_priv_lower_unflushed(p, work, n);
    int emptied = 0;
    for (; touched; touched &= touched - 1) {
        uint32_t slot = frugal_priv_lowest(touched);
        /* [P17] release: the rows are written; pairs with [P18]. Acquire: the thread that empties the slot, and wakes
         * those that wait for its rows, has acquired what others did to these rows; pairs with itself. */
        if (frugal_add_acq_rel(&p->pending[slot].rows, -lowered[slot]) == lowered[slot]) emptied = 1;
    }
    return emptied;
}

FRUGAL_P2F_API uint32_t frugal_p2f_contributors(const frugal_p2f_entry *entries) {
    uint32_t n = 1; /* a plan ends with an entry of no row */
    while (entries[n].row == entries[0].row) n++;
    return n;
}

FRUGAL_P2F_API void frugal_p2f_source(const frugal_p2f *p, uint32_t source, uint32_t *device, uint32_t *record) {
    *device = source >> p->layout.record_bits;
    *record = source & ((UINT32_C(1) << p->layout.record_bits) - 1);
}

FRUGAL_P2F_API int frugal_p2f_brings(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return *frugal_priv_brings(p, device, step);
}

FRUGAL_P2F_API int frugal_p2f_all_bring(const frugal_p2f *p, uint64_t step) {
    return (int)frugal_priv_step_of(p, step)->all_bring;
}

FRUGAL_P2F_API int frugal_p2f_is_in_place(const frugal_p2f *p, uint32_t device, uint64_t step) {
    return frugal_priv_is_in_place(p, device, step);
}

/* >>cancel - and holders */

static void frugal_priv_cancel_rows(frugal_p2f *p, const uint32_t *rows, uint32_t n, uint64_t step, uint64_t base) {
    for (uint32_t i = 0; i < n; i++) {
        frugal_priv_word *word = &frugal_priv_words(p)[rows[i]];
        uint64_t found = frugal_load_relaxed(word), changed; /* relaxed: proved by the compare-and-swap */
        do { /* an update that became due at this read stays due at `step`: flushing early is harmless */
            uint32_t at = found & FRUGAL_PRIV_DIRTY ? (uint32_t)(step - frugal_priv_due_of(found, base))
                                                    : (uint32_t)step - (uint32_t)found; /* from the origin */
            FRUGAL_ASSERT(at < FRUGAL_PRIV_SPAN && "reads of a step that is not closed are kept");
            changed = found & ~(FRUGAL_PRIV_HOLDER | UINT64_C(1) << (FRUGAL_PRIV_READS_AT + at));
            changed |= (uint64_t)FRUGAL_PRIV_NOBODY << FRUGAL_PRIV_HOLDER_AT;
        } while (!frugal_cas_relaxed(word, &found, changed)); /* relaxed: the caller orders it with the next announce */
    }
}

FRUGAL_P2F_API int frugal_p2f_is_planned(frugal_p2f *p) {
    while (frugal_p2f_plan(p)) continue;
    uint64_t sealed = frugal_load_relaxed(&p->sealed.value); /* relaxed: it is only compared; `planned` acquires */
    return frugal_p2f_planned(p) >= sealed;
}

FRUGAL_P2F_API frugal_status frugal_p2f_cancel(frugal_p2f *p, uint64_t step) {
    frugal_p2f_progress now = frugal_p2f_get_progress(p);
    if (step < now.closed || step > now.announced) return FRUGAL_ERR_ORDER;
    for (uint32_t d = 0; d < p->desc.devices; d++)
        if (frugal_p2f_committed(p, d) > step) return FRUGAL_ERR_ORDER;
    if (!frugal_p2f_is_planned(p)) return FRUGAL_AGAIN;
    /* `sealed` first: a thread that then finds the claim moved back has acquired that its step is not sealed any more.
     * A thread that read the claim earlier fails its compare-and-swap, because the epoch makes the new value one that
     * the claim has never had. */
    if (step < now.sealed) {
        frugal_store_release(&p->sealed.value, step);  /* [P5] pairs with [P6] */
        frugal_store_release(&p->planned.value, step); /* [P16] pairs with [P15] */
    }
    if (!frugal_p2f_has_words(p)) { /* no row knows of these steps; relaxed, both, as below */
        if (step < now.announced) frugal_store_relaxed(&frugal_priv_devices(p)[0].announced, step);
        for (uint64_t t = step; t < now.announced; t++)
            frugal_store_relaxed(&frugal_priv_step_of(p, t)->announce_left, 1);
        return FRUGAL_OK;
    }
    uint64_t found = frugal_load_relaxed(&p->plan_claim.value), changed;
    do {
        uint64_t at = found >> FRUGAL_PRIV_CLAIM_STEP_AT, to = step - p->desc.first_step;
        uint64_t epoch = ((found >> FRUGAL_PRIV_CLAIM_EPOCH_AT) + 1) % 256;
        changed = (at < to ? at : to) << FRUGAL_PRIV_CLAIM_STEP_AT | epoch << FRUGAL_PRIV_CLAIM_EPOCH_AT;
    } while (!frugal_cas_release(&p->plan_claim.value, &found, changed)); /* [P13] */
    uint64_t cancelled = 0; /* a bit for each step that may have recalls */
    for (uint64_t t = step; t < now.sealed; t++) cancelled |= UINT64_C(1) << t % FRUGAL_P2F_SLOTS;
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        uint64_t announced = frugal_p2f_announced(p, d);
        for (uint64_t t = step; t < now.sealed; t++)
            frugal_priv_cancel_rows(p, frugal_priv_rows(p, d, t), *frugal_priv_n_rows(p, d, t), t, now.closed);
        /* Relaxed, like the counts below: the caller orders this call with the next announcement. */
        if (announced > step) frugal_store_relaxed(&frugal_priv_devices(p)[d].announced, step);
        uint64_t recalls = frugal_load_relaxed(&frugal_priv_devices(p)[d].recalls) & ~cancelled;
        frugal_store_relaxed(&frugal_priv_devices(p)[d].recalls, recalls);
    }
    for (uint64_t t = step; t < now.announced; t++) {
        frugal_store_relaxed(&frugal_priv_step_of(p, t)->announce_left, p->desc.devices);
        if (step < now.sealed) frugal_priv_step_of(p, t)->recall_all = t == step; /* their rows have lost the holders */
    }
    return FRUGAL_OK;
}

FRUGAL_P2F_API void frugal_p2f_release_holders(frugal_p2f *p) {
    frugal_priv_word *words = frugal_priv_words(p);
    for (uint64_t row = 0; frugal_p2f_has_words(p) && row < p->desc.rows; row++) {
        uint64_t found = frugal_load_relaxed(&words[row]);
        if ((found & FRUGAL_PRIV_HOLDER) == 0) continue; /* do not write to memory that nobody has touched */
        uint64_t changed;
        do changed = found & ~FRUGAL_PRIV_HOLDER;
        while (!frugal_cas_relaxed(&words[row], &found, changed)); /* relaxed: drained, and nobody else is active */
    }
}

FRUGAL_P2F_API void frugal_p2f_disown(frugal_p2f *p, uint32_t row) {
    if (!frugal_p2f_has_words(p)) return;
    frugal_priv_word *word = &frugal_priv_words(p)[row];
    uint64_t found = frugal_load_relaxed(word), changed;
    do changed = (found & ~FRUGAL_PRIV_HOLDER) | (uint64_t)FRUGAL_PRIV_NOBODY << FRUGAL_PRIV_HOLDER_AT;
    while (!frugal_cas_relaxed(word, &found, changed)); /* relaxed: drained, and nobody else is active */
}

/* >>queries */

FRUGAL_P2F_API frugal_p2f_progress frugal_p2f_get_progress(frugal_p2f *p) {
    frugal_p2f_progress now = {0};
    now.closed = frugal_load_acquire(&p->closed.value);       /* [P9] pairs with [P8] */
    now.committed = frugal_load_acquire(&p->committed.value); /* [P7] pairs with [P14] */
    now.sealed = frugal_load_acquire(&p->sealed.value);       /* [P6] pairs with [P5] */
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        uint64_t announced = frugal_p2f_announced(p, d);
        if (announced > now.announced) now.announced = announced;
    }
    for (uint32_t s = 0; s < FRUGAL_P2F_SLOTS; s++)
        now.pending += frugal_load_acquire(&p->pending[s].rows); /* [P18] pairs with [P17] */
    now.alone = frugal_load_relaxed(&p->touched.alone);          /* relaxed, all: `closed` was acquired */
    now.shared = frugal_load_relaxed(&p->touched.shared);
    now.in_place = frugal_load_relaxed(&p->touched.in_place);
    return now;
}

FRUGAL_P2F_API uint64_t frugal_p2f_closed(frugal_p2f *p) {
    return frugal_load_acquire(&p->closed.value); /* [P9] pairs with [P8] */
}

FRUGAL_P2F_API uint64_t frugal_p2f_all_committed(frugal_p2f *p) {
    return frugal_load_acquire(&p->committed.value); /* [P7] pairs with [P14] */
}

FRUGAL_P2F_API int frugal_p2f_legal(frugal_p2f *p, uint64_t step) {
    return step <= frugal_load_acquire(&p->closed.value) + p->desc.lookahead; /* [P9] pairs with [P8] */
}

FRUGAL_P2F_API int64_t frugal_p2f_pending(frugal_p2f *p, uint64_t step) {
    return frugal_load_acquire(&p->pending[step % FRUGAL_P2F_SLOTS].rows); /* [P18] pairs with [P17] */
}

FRUGAL_P2F_API int32_t frugal_p2f_unflushed(frugal_p2f *p, uint64_t step) {
    return frugal_load_relaxed(&frugal_priv_step_of(p, step)->unflushed); /* relaxed: a statistic */
}

FRUGAL_P2F_API uint64_t frugal_p2f_announced(frugal_p2f *p, uint32_t device) {
    return frugal_load_acquire(&frugal_priv_devices(p)[device].announced); /* [P11] pairs with [P10] */
}

FRUGAL_P2F_API uint64_t frugal_p2f_committed(frugal_p2f *p, uint32_t device) {
    return frugal_load_acquire(&frugal_priv_devices(p)[device].committed); /* [P11] pairs with [P10] */
}

FRUGAL_P2F_API int frugal_p2f_is_dirty(frugal_p2f *p, uint32_t row) {
    if (!frugal_p2f_has_words(p)) return 0;
    uint64_t word = frugal_load_acquire(&frugal_priv_words(p)[row]); /* [P3] pairs with [P4] */
    return word & FRUGAL_PRIV_DIRTY ? (word & FRUGAL_PRIV_BUSY ? 2 : 1) : 0;
}

/* Closed is read first: an update of a step below it that was queued has made the row dirty by then, and one that was
 * applied at closing or in place is acquired with it. Reads of steps below `step` are all in the word, which is that of
 * a plan of these steps or of later ones. */
FRUGAL_P2F_API uint32_t frugal_p2f_find_final(frugal_p2f *p, const uint32_t *rows, uint32_t n, uint64_t step,
                                              uint64_t *bits) {
    uint64_t closed = frugal_p2f_closed(p);
    uint32_t before = closed < step ? (UINT32_C(1) << (step - closed)) - 1 : 0, found = 0;
    memset(bits, 0, ((size_t)n + 63) / 64 * sizeof *bits);
    if (!frugal_p2f_has_words(p) || frugal_p2f_planned(p) < step) return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i + FRUGAL_PRIV_AHEAD < n) FRUGAL_PRIV_PREFETCH_READ(&frugal_priv_words(p)[rows[i + FRUGAL_PRIV_AHEAD]]);
        uint64_t word = frugal_load_acquire(&frugal_priv_words(p)[rows[i]]); /* [P3] pairs with [P4] */
        uint64_t is_final = !(word & FRUGAL_PRIV_DIRTY) && !(frugal_priv_reads_from(word, closed) & before);
        bits[i / 64] |= is_final << i % 64;
        found += (uint32_t)is_final;
    }
    return found;
}

FRUGAL_P2F_API int frugal_p2f_is_current(frugal_p2f *p, uint32_t device, uint32_t row) {
    if (!frugal_p2f_has_words(p)) return 1;
    uint64_t word = frugal_load_relaxed(&frugal_priv_words(p)[row]); /* relaxed: useful only while nothing changes it */
    uint32_t reads =
        word & FRUGAL_PRIV_DIRTY ? frugal_priv_reads(word) : frugal_priv_reads_from(word, frugal_p2f_closed(p));
    if (reads) return 0; /* announced: the holder is that of the step to come */
    return frugal_priv_copy_is_current(word, device);
}

FRUGAL_P2F_API const char *frugal_strerror(frugal_status status) {
    switch (status) {
#define FRUGAL_STATUS_TEXT(name, value, text)                                                                          \
    case FRUGAL_##name:                                                                                                \
        return text;
        FRUGAL_STATUS_LIST(FRUGAL_STATUS_TEXT)
#undef FRUGAL_STATUS_TEXT
    case FRUGAL_STATUS_FORCE_INT:
    default:
        return "unknown status";
    }
}

#endif /* FRUGAL_P2F_IMPLEMENTATION */
