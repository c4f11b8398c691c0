/* bench_save.c - saving a table and restoring it, beside what disk and memory allow.
 *
 *     build/bench_save --path /mnt/disk                            a table of 1 GB
 *     build/bench_save --path /mnt/disk --rows 39062500            ... of 10 GB
 *     build/bench_save --path /mnt/disk --changed 0.001,0.01,0.1   increments with these shares of the rows
 *
 * Everything takes turns, a round each, on as many threads as the library has, in pieces of its size:
 *
 *   memcpy        the table copied, over and over into the same 256 MiB
 *   write         the table written to a new file, and synced: file and folder
 *   save          frugal_save of a base
 *   read          that file read, from the disk (its pages are dropped before), and again from memory
 *   restore       frugal_open with it: in the same way from the disk, and again from memory
 *   increment     rows drawn at random are trained, a step or more; then they are saved
 *   resume        frugal_open with the base and this increment, from the disk
 *
 * The share is relative to a bound: the slower of memcpy and write, or of memcpy and read. If the path lies in memory
 * (tmpfs), or its file system drops no pages, "from the disk" is not true.
 */
#include "frugal_save.h"
#include "bench/choices.h"
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { PIECE = 4 << 20, RING = 256 << 20, KEYS = 1 << 16, MOST_THREADS = 16, MOST_PATH = 4096 };
enum { WORK_COPY, WORK_WRITE, WORK_READ };

static uint64_t rows = 3906250, dim = 64, rounds = 3, threads;
static options_list optimizer = {{FRUGAL_SGD}, 1}, changed = {{0.01}, 1};
static const char *folder = ".";
static int json;

static const options_entry options[] = {
    {"path", OPTIONS_TEXT, &folder, 0, 0, NULL, "a folder; files are made in it, and removed"},
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, NULL, "floats a row"},
    {"optimizer", OPTIONS_CHOICES, &optimizer, 0, 0, bench_optimizers, "of the rows: their state is saved, too"},
    {"changed", OPTIONS_REALS, &changed, 0, 1, NULL, "rows of an increment, as a share of all"},
    {"threads", OPTIONS_WHOLE64, &threads, 0, MOST_THREADS, NULL, "that copy, read and write; 0: a processor each"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of which medians are taken"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

/* What is measured, in the order of the report; increments, and resuming, once for each share of `changed`. */
typedef enum { COPY, WRITE, SAVE, READ, RESTORE, READ_AGAIN, RESTORE_AGAIN, INCREMENT, RESUME, KINDS } measured_kind;
static const char *const names[KINDS] = {
    "memcpy", "write", "save", "read", "restore", "read, in memory", "restore, in memory", "increment", "resume"};

typedef struct measured {
    bench_samples seconds;
    uint64_t bytes, file_bytes; /* of rows and their state, which speed is counted in; of the file that was made */
} measured;

static char base[MOST_PATH], increment[MOST_PATH], plain[MOST_PATH]; /* files */

typedef struct bench {
    frugal *f;
    frugal_optimizer_kind kind;
    uint64_t weight_bytes, table_bytes; /* without the optimizer's state, and with it */
    unsigned char *ring;                /* [RING] */
    uint64_t *keys;                     /* [KEYS] */
    float *values;                      /* [KEYS][dim] */
    measured found[KINDS][OPTIONS_LIST];
} bench;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

/* >>baselines: the same bytes, by plain calls */

typedef struct work {
    int kind, file;
    unsigned char *from, *to; /* the table; the ring */
    uint64_t bytes;
    atomic_uint_least64_t next; /* first byte that no thread has taken yet */
    atomic_int error;
} work;

static int move(const work *w, uint64_t at, uint64_t n, unsigned char *buffer) {
    if (w->kind == WORK_COPY) return memcpy(buffer, w->from + at, n), 0;
    for (uint64_t done = 0; done < n;) {
        ssize_t part = w->kind == WORK_WRITE ? pwrite(w->file, w->from + at + done, n - done, (off_t)(at + done))
                                             : pread(w->file, buffer + done, n - done, (off_t)(at + done));
        if (part < 0) return errno;
        if (part == 0) return EIO; /* the file is shorter than it was */
        done += (uint64_t)part;
    }
    return 0;
}

static void *run_work(void *argument) {
    work *w = argument;
    uint64_t at;
    while ((at = atomic_fetch_add(&w->next, PIECE)) < w->bytes) {
        int error = move(w, at, w->bytes - at < PIECE ? w->bytes - at : PIECE, w->to + at % RING);
        if (error) atomic_store(&w->error, error);
    }
    return NULL;
}

static void run_threads(work *w, const char *what) {
    pthread_t others[MOST_THREADS];
    uint32_t n = 0;
    while (n + 1 < threads && !pthread_create(&others[n], NULL, run_work, w)) n++;
    run_work(w);
    while (n > 0) pthread_join(others[--n], NULL);
    if (w->error) bench_fail("cannot %s: %s", what, strerror(w->error));
}

static int open_file(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC, 0666);
    if (file < 0) bench_fail("cannot open %s: %s", path, strerror(errno));
    return file;
}

static double time_copy(const bench *b, const float *table) {
    work w = {.kind = WORK_COPY, .from = (unsigned char *)(uintptr_t)table, .to = b->ring, .bytes = b->weight_bytes};
    double since = bench_now();
    run_threads(&w, "copy");
    return bench_now() - since;
}

static double time_write(const bench *b, const float *table) {
    unlink(plain);
    double since = bench_now();
    work w = {.kind = WORK_WRITE, .from = (unsigned char *)(uintptr_t)table, .to = b->ring, .bytes = b->weight_bytes};
    w.file = open_file(plain, O_WRONLY | O_CREAT | O_EXCL);
    run_threads(&w, "write");
    int in = open_file(folder, O_RDONLY | O_DIRECTORY);
    if (fsync(w.file) || fsync(in)) bench_fail("cannot sync %s: %s", plain, strerror(errno));
    close(in), close(w.file);
    double seconds = bench_now() - since;
    unlink(plain);
    return seconds;
}

static uint64_t bytes_of(const char *path) {
    int file = open_file(path, O_RDONLY);
    off_t bytes = lseek(file, 0, SEEK_END);
    close(file);
    return (uint64_t)bytes;
}

static void drop_pages(const char *path) {
    int file = open_file(path, O_RDONLY);
    int error = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (error) bench_fail("cannot drop the pages of %s: %s", path, strerror(error));
    close(file);
}

static double time_read(const bench *b) {
    work w = {.kind = WORK_READ, .to = b->ring, .bytes = bytes_of(base), .file = open_file(base, O_RDONLY)};
    double since = bench_now();
    run_threads(&w, "read");
    double seconds = bench_now() - since;
    close(w.file);
    return seconds;
}

/* >>the library */

static frugal *open_table(const bench *b, const char *const *saved, uint32_t n_saved) {
    frugal *f;
    frugal_table table = {.rows = rows, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = (uint32_t)dim,
                        .max_keys = KEYS,
                        .init_threads = (uint32_t)threads,
                        .optimizer = {.kind = b->kind},
                        .increments = 1,
                        .saved = saved,
                        .n_saved = n_saved};
    check(frugal_open(&desc, &f));
    return f;
}

static double time_save(bench *b, const char *path, int increment) {
    frugal_save_desc desc = {.path = path, .increment = increment};
    unlink(path);
    double since = bench_now();
    check(frugal_save(&b->f, 1, &desc));
    return bench_now() - since;
}

/* Closes the instance, and opens one with these saves. */
static double time_restore(bench *b, int cold, const char *const *saved, uint32_t n) {
    frugal_close(b->f);
    b->f = NULL;
    for (uint32_t i = 0; cold && i < n; i++) drop_pages(saved[i]);
    double since = bench_now();
    b->f = open_table(b, saved, n);
    return bench_now() - since;
}

/* Trains so many rows, drawn one from each stretch of the table, so that all are different. */
static void train_rows(bench *b, uint64_t n, uint64_t *random) {
    for (uint64_t done = 0; done < n;) {
        uint64_t step = frugal_settings(b->f)->first_step + done / KEYS;
        frugal_keys keys = {.keys = b->keys, .n = (uint32_t)(n - done < KEYS ? n - done : KEYS)};
        for (uint32_t i = 0; i < keys.n; i++, done++) {
            uint64_t first = done * (rows / n), stretch = rows / n;
            b->keys[i] = first + bench_random(random) % stretch;
        }
        check(frugal_announce(b->f, 0, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
        check(frugal_lookup(b->f, 0, step, b->values));
        check(frugal_update(b->f, 0, step, &(frugal_gradients){.grads = b->values, .lr = 0.01f}));
    }
    check(frugal_drain(b->f));
}

/* >>rounds */

static void add(bench *b, measured_kind kind, uint32_t which, double seconds, uint64_t bytes, const char *made) {
    measured *m = &b->found[kind][which];
    bench_add(&m->seconds, seconds);
    m->bytes = bytes;
    m->file_bytes = made ? bytes_of(made) : 0;
}

/* An increment of share number `which` of `changed`; the instance is one of the base. */
static void run_increment(bench *b, uint32_t which, uint64_t *random) {
    uint64_t n = (uint64_t)((double)rows * changed.values[which]);
    const char *chain[] = {base, increment};
    if (n == 0) n = 1;
    check(frugal_cpu_attach(b->f, 0, NULL));
    train_rows(b, n, random);
    uint64_t bytes = n * (b->table_bytes / rows);
    add(b, INCREMENT, which, time_save(b, increment, 1), bytes, increment);
    add(b, RESUME, which, time_restore(b, 1, chain, 2), b->table_bytes + bytes, NULL);
    unlink(increment);
    if (which + 1 < changed.n) time_restore(b, 0, chain, 1);
}

static void run_round(bench *b, uint64_t *random) {
    const void *table;
    uint64_t stride;
    const char *one = base;
    check(frugal_view(b->f, 0, &table, &stride));
    add(b, COPY, 0, time_copy(b, table), b->weight_bytes, NULL);
    add(b, WRITE, 0, time_write(b, table), b->weight_bytes, NULL);
    add(b, SAVE, 0, time_save(b, base, 0), b->table_bytes, base);
    drop_pages(base);
    add(b, READ, 0, time_read(b), b->table_bytes, NULL);
    add(b, RESTORE, 0, time_restore(b, 1, &one, 1), b->table_bytes, NULL);
    add(b, READ_AGAIN, 0, time_read(b), b->table_bytes, NULL);
    add(b, RESTORE_AGAIN, 0, time_restore(b, 0, &one, 1), b->table_bytes, NULL);
    for (uint32_t i = 0; i < changed.n && !bench_interrupted(); i++) run_increment(b, i, random);
}

/* >>reports */

/* Bytes a second. */
static double speed_of(const bench *b, measured_kind kind, uint32_t which) {
    const measured *m = &b->found[kind][which];
    return (double)m->bytes / bench_median(&m->seconds);
}

/* The slower of disk and memory; 0: the operation is one of these itself. */
static double bound_of(const bench *b, measured_kind kind) {
    static const measured_kind beside[KINDS] = {
        [SAVE] = WRITE, [RESTORE] = READ, [RESTORE_AGAIN] = READ_AGAIN, [INCREMENT] = WRITE, [RESUME] = READ};
    if (!beside[kind]) return 0;
    double disk = speed_of(b, beside[kind], 0), memory = speed_of(b, COPY, 0);
    return disk < memory ? disk : memory;
}

static void report(const bench *b, measured_kind kind, uint32_t which) {
    const measured *m = &b->found[kind][which];
    if (m->seconds.n == 0) return;
    double speed = speed_of(b, kind, which), bound = bound_of(b, kind), share = bound > 0 ? speed / bound : 1,
           part = kind >= INCREMENT ? changed.values[which] : 1, seconds = bench_median(&m->seconds),
           least = bench_quantile(&m->seconds, 0), most = bench_quantile(&m->seconds, 1);
    if (json)
        printf("{\"what\": \"%s\", \"rows\": %llu, \"dim\": %llu, \"optimizer\": \"%s\", \"changed\": %g, "
               "\"threads\": %llu, \"bytes\": %llu, \"file_bytes\": %llu, \"seconds\": %.4f, \"min\": %.4f, "
               "\"max\": %.4f, \"gb_per_s\": %.4f, \"share\": %.3f, \"rounds\": %u}\n",
               names[kind], (unsigned long long)rows, (unsigned long long)dim, bench_optimizers[b->kind], part,
               (unsigned long long)threads, (unsigned long long)m->bytes, (unsigned long long)m->file_bytes, seconds,
               least, most, speed * 1e-9, share, m->seconds.n);
    else {
        printf("%-18s %7g %9.3f %9.3f to %9.3f %8.3f %7.2f", names[kind], part, seconds, least, most, speed * 1e-9,
               share);
        if (m->file_bytes)
            printf(" %14llu %7.3f", (unsigned long long)m->file_bytes, (double)m->file_bytes / (double)m->bytes);
        putchar('\n');
    }
    fflush(stdout);
}

/* >>one table after another */

static void name_file(char path[MOST_PATH], const char *name) {
    int n = snprintf(path, MOST_PATH, "%s/bench_save.%ld.%s", folder, (long)getpid(), name);
    if (n >= MOST_PATH) bench_fail("the name of the folder is longer than %d bytes: %s", MOST_PATH, folder);
}

static void remove_files(void) {
    unlink(base), unlink(increment), unlink(plain);
}

static void *allocate(uint64_t bytes) {
    void *memory = aligned_alloc(4096, (size_t)((bytes + 4095) / 4096 * 4096));
    if (!memory) bench_fail("out of memory for %llu bytes", (unsigned long long)bytes);
    return memset(memory, 0, (size_t)bytes);
}

static void run(frugal_optimizer_kind kind) {
    static bench b;
    uint64_t random = 42;
    b = (bench){.kind = kind, .weight_bytes = rows * dim * sizeof(float)};
    b.table_bytes = b.weight_bytes + rows * frugal_state_floats(kind, (uint32_t)dim) * sizeof(float);
    b.ring = allocate(RING);
    b.keys = allocate(KEYS * sizeof *b.keys);
    b.values = allocate(KEYS * dim * sizeof *b.values);
    bench_progress("a table of %llu x %llu", (unsigned long long)rows, (unsigned long long)dim);
    b.f = open_table(&b, NULL, 0);
    for (uint64_t r = 0; r < rounds && !bench_interrupted(); r++) {
        bench_progress("round %llu of %llu", (unsigned long long)r + 1, (unsigned long long)rounds);
        run_round(&b, &random);
    }
    bench_progress("%s", "");
    for (measured_kind k = COPY; k < KINDS; k++)
        for (uint32_t i = 0; i < (k >= INCREMENT ? changed.n : 1); i++) report(&b, k, i);
    frugal_close(b.f);
    remove_files();
    free(b.ring), free(b.keys), free(b.values);
}

int main(int argc, char **argv) {
    bench_parse("bench_save", "Saves a table and restores it, beside what disk and memory allow.", options, argc, argv);
    if (!threads) threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    name_file(base, "base"), name_file(increment, "increment"), name_file(plain, "plain");
    atexit(remove_files); /* also if a call fails */
    if (!json)
        puts("what               changed   seconds           (spread)           GB/s   share     file bytes    over");
    for (uint32_t i = 0; i < optimizer.n && !bench_interrupted(); i++) run((frugal_optimizer_kind)optimizer.values[i]);
    return bench_exit_status();
}
