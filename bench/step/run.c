/* Running and timing steps. */
#include "bench/step/run.h"

#include "bench/keys.h"
#include "bench/processors.h"
#include "bench/program.h"
#include "bench/step/roofline.h"
#include "src/device.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_BATCHES = 4, KEPT_KEYS = 1 << 21, MAX_DEVICES = 254 }; /* enough keys that no cache holds their rows */
static const double roofline_seconds = 0.03;                        /* for each speed of the roofline, per round */
static const float rate = 1e-6f; /* learning rate: rows hardly change, however many steps there are */

struct step_table {
    frugal *owner; /* holds the memory; no step is ever made with it */
    const frugal_store *store;
    uint64_t *words;         /* [rows]: the roofline's */
    roofline_rows *distinct; /* of the keys */
    uint32_t devices, batches;
    uint64_t *keys[MAX_DEVICES]; /* [batches][n_keys], used in turn */
};

typedef struct clocks { /* seconds of a round in the three calls: of wall time, and of the processor */
    double announce, lookup, update, announce_cpu, lookup_cpu, update_cpu;
} clocks;

typedef struct trainer {
    const step_config *config;
    const step_table *table;
    frugal *f;
    uint32_t number;
    uint64_t begin, end; /* steps */
    float *rows;         /* [keys][dim] */
    clocks spent;
    pthread_barrier_t *barrier;
} trainer;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

step_table *step_open_table(const step_config *c) {
    step_table *t = calloc(1, sizeof *t);
    frugal_table table = {.rows = c->rows, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    frugal_desc desc = {
        .tables = &table, .n_tables = 1, .dim = c->dim, .max_keys = 1, .optimizer = {.kind = c->optimizer}};
    if (!t) bench_fail("no memory");
    check(frugal_open(&desc, &t->owner));
    t->store = frugal_get_store(t->owner);
    t->words = frugal_allocate(t->owner, c->rows * sizeof *t->words, 64);
    if (!t->words) bench_fail("no memory for %llu words", (unsigned long long)c->rows);
    t->devices = c->devices;
    uint64_t batches = KEPT_KEYS / c->keys;
    t->batches = batches < LEAST_BATCHES ? LEAST_BATCHES : (uint32_t)batches;
    for (uint32_t d = 0; d < c->devices; d++) {
        uint64_t n = t->batches * c->keys;
        if (!(t->keys[d] = malloc(n * sizeof(uint64_t)))) bench_fail("no memory for %llu keys", (unsigned long long)n);
        bench_draw_keys(t->keys[d], n, c->rows, c->zipf, 42 + d);
    }
    t->distinct = roofline_find_rows((const uint64_t *const *)t->keys, c->devices, t->batches, c->keys);
    return t;
}

void step_close_table(step_table *t) {
    if (!t) return;
    for (uint32_t d = 0; d < t->devices; d++) free(t->keys[d]);
    roofline_free_rows(t->distinct);
    frugal_free(t->owner, t->words, t->store->rows * sizeof *t->words);
    frugal_close(t->owner);
    free(t); /* in memory: nothing can fail */
}

static void announce(trainer *t, uint64_t step) {
    const step_config *c = t->config;
    frugal_keys keys = {
        .table = 0, .keys = t->table->keys[t->number] + step % t->table->batches * c->keys, .n = (uint32_t)c->keys};
    double since = bench_now(), cpu = bench_thread_seconds();
    check(frugal_announce(t->f, t->number, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
    t->spent.announce += bench_now() - since;
    t->spent.announce_cpu += bench_thread_seconds() - cpu;
}

static void *load(void *argument) {
    trainer *t = argument;
    if (t->config->bind) bench_bind(t->config->devices + t->number);
    pthread_barrier_wait(t->barrier);
    for (uint64_t s = t->begin; s < t->end; s++) announce(t, s);
    pthread_barrier_wait(t->barrier);
    return NULL;
}

static void look_up_and_update(trainer *t, uint64_t step) {
    int in_place = t->config->in_place;
    frugal_gradients gradients = {.grads = in_place ? NULL : t->rows, .records = in_place, .lr = rate};
    double cpu = bench_thread_seconds(), since = bench_now();
    check(frugal_lookup(t->f, t->number, step, in_place ? NULL : t->rows));
    double looked_up = bench_now(), cpu_looked_up = bench_thread_seconds();
    check(frugal_update(t->f, t->number, step, &gradients));
    t->spent.update += bench_now() - looked_up;
    t->spent.update_cpu += bench_thread_seconds() - cpu_looked_up;
    t->spent.lookup += looked_up - since;
    t->spent.lookup_cpu += cpu_looked_up - cpu;
}

static void *train(void *argument) {
    trainer *t = argument;
    uint64_t ahead = t->config->lookahead;
    if (t->config->bind) bench_bind(t->number);
    pthread_barrier_wait(t->barrier);
    if (!t->config->loader)
        for (uint64_t s = t->begin; s < t->end && s < t->begin + ahead; s++) announce(t, s);
    for (uint64_t s = t->begin; s < t->end; s++) {
        if (!t->config->loader && s + ahead < t->end) announce(t, s + ahead);
        look_up_and_update(t, s);
    }
    pthread_barrier_wait(t->barrier);
    return NULL;
}

static clocks all_spent(const trainer *trainers, uint32_t n) {
    clocks all = {0};
    for (uint32_t i = 0; i < n; i++) {
        const clocks *one = &trainers[i].spent;
        all.announce += one->announce, all.lookup += one->lookup, all.update += one->update;
        all.announce_cpu += one->announce_cpu, all.lookup_cpu += one->lookup_cpu, all.update_cpu += one->update_cpu;
    }
    return all;
}

/* The time at the roofline's speeds for the memory traffic that any exact store must cause. By position: keys are read,
 * rows gathered, gradients read, records written and read again, rows updated. In place, the gather writes the block,
 * gradients are the user's writes, and only reading the records is left. A row that its device updates in place needs
 * no record. Not included: the rows' words, sorting, plans. */
static double necessary_seconds(const step_config *c, const roofline_speeds *speeds, double keys, double unique,
                                double updated, double in_place) {
    double row = c->dim * sizeof(float);
    double streamed =
        keys * sizeof(uint64_t) + (c->in_place ? unique * row : keys * row + 2 * (unique - in_place) * row);
    return (c->in_place ? unique : keys) / speeds->gathers_per_s + updated / speeds->updates_per_s +
           streamed / speeds->bytes_per_s;
}

/* The time that the design adds, at the speed of the same memory. Announcing changes the word of each row of a batch;
 * if rows are queued, closing and taking each change the word of a row once more. When the row is done, its word is
 * still in a cache. */
static double words_seconds(const step_config *c, const roofline_speeds *speeds, double unique, double flushed) {
    return (unique + (c->workers ? 2 * flushed : 0)) / speeds->words_per_s;
}

typedef struct counters { /* before a round, and after */
    double wall, cpu;
    frugal_stats stats;
} counters;

static counters count(frugal *f) {
    counters now = {.wall = bench_now(), .cpu = bench_process_seconds()};
    frugal_get_stats(f, &now.stats);
    return now;
}

static void add_round(step_result *r, const step_config *c, const trainer *trainers, const counters *before,
                      const counters *after, const roofline_speeds *speeds) {
    const frugal_stats *a = &before->stats, *b = &after->stats;
    clocks spent = all_spent(trainers, c->devices * (c->loader ? 2 : 1));
    double steps = (double)c->steps, device_steps = steps * c->devices, seconds = (after->wall - before->wall) / steps;
    double keys = (double)(b->keys - a->keys) / steps, unique = (double)(b->unique_rows - a->unique_rows) / steps;
    double waits = b->barrier_seconds - a->barrier_seconds + b->stall_seconds - a->stall_seconds;
    double announce_waits = b->announce_wait_seconds - a->announce_wait_seconds;
    double gather = spent.lookup - waits, announce = spent.announce - announce_waits;
    double in_place = (double)(b->in_place - a->in_place) / steps;
    double updated = (double)(b->flushed - a->flushed) / steps + in_place;
    double trainers_cpu = spent.announce_cpu + spent.lookup_cpu + spent.update_cpu;
    double values[STEP_FIELDS] = {
        [STEP_KEYS_PER_S] = keys / seconds,
        [STEP_SHARE] = necessary_seconds(c, speeds, keys, unique, updated, in_place) / seconds,
        [STEP_WORDS] = words_seconds(c, speeds, unique, updated - in_place) / seconds,
        [STEP_SECONDS] = seconds,
        [STEP_ANNOUNCE] = announce / device_steps,
        [STEP_GATE] = (waits + (c->loader ? 0 : announce_waits)) / device_steps,
        [STEP_STALL] = (b->stall_seconds - a->stall_seconds) / device_steps,
        [STEP_LOOKUP] = gather / device_steps,
        [STEP_UPDATE] = spent.update / device_steps,
        [STEP_PLAN] = (b->plan_seconds - a->plan_seconds) / steps,
        [STEP_CLOSE] = (b->close_seconds - a->close_seconds) / steps,
        [STEP_FLUSH] = (b->flush_seconds - a->flush_seconds) / steps,
        [STEP_CPU_LOADER] = spent.announce_cpu / steps,
        [STEP_CPU_LOOKUP] = spent.lookup_cpu / steps,
        [STEP_CPU_UPDATE] = spent.update_cpu / steps,
        [STEP_CPU_WORKERS] = (after->cpu - before->cpu - trainers_cpu) / steps,
        [STEP_GATHER_RATE] = speeds->gathers_per_s,
        [STEP_UPDATE_RATE] = speeds->updates_per_s,
        [STEP_STREAM_RATE] = speeds->bytes_per_s,
        [STEP_WORD_RATE] = speeds->words_per_s,
        [STEP_SWEPT_GATHER_RATE] = speeds->swept_gathers_per_s,
        [STEP_SWEPT_UPDATE_RATE] = speeds->swept_updates_per_s,
        [STEP_UPDATED] = updated,
        [STEP_IN_PLACE] = in_place,
        [STEP_UNIQUE] = unique / keys,
        [STEP_HITS] = (double)(b->hits - a->hits) / (double)(b->unique_rows - a->unique_rows),
        [STEP_MOVED] = (double)(b->misses - a->misses) / steps + unique,
    };
    for (uint32_t i = 0; i < STEP_FIELDS; i++) bench_add(&r->fields[i], values[i]);
}

/* config->steps steps on all devices, drained at the end. */
static void run_round(trainer *trainers, const step_config *c, uint64_t begin) {
    pthread_t threads[2 * MAX_DEVICES];
    pthread_barrier_t barrier;
    uint32_t n = c->devices * (c->loader ? 2 : 1);
    pthread_barrier_init(&barrier, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        trainer *t = &trainers[i];
        t->begin = begin, t->end = begin + c->steps, t->barrier = &barrier;
        t->spent = (clocks){0};
        if (pthread_create(&threads[i], NULL, i < c->devices ? train : load, t))
            bench_fail("thread %u cannot be started", i);
    }
    for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    check(frugal_drain(trainers[0].f));
}

/* Drops the mapped table from memory, as if there were too little, so that its rows have to come from the disk again.
 * madvise drops mapped pages, and posix_fadvise those that were only read ahead; pages that stay anyway are counted. */
static void make_cold(frugal *f, const char *file) {
    const frugal_store *store = frugal_get_store(f);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)store->weights / page * page;
    uintptr_t to = (uintptr_t)(frugal_row_at(store, store->rows)) / page * page;
    uint64_t pages = (to - from) / page, left = 0;
    int descriptor = open(file, O_RDONLY);
    if (descriptor < 0 || msync((void *)from, to - from, MS_SYNC) || madvise((void *)from, to - from, MADV_PAGEOUT) ||
        (errno = posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)) != 0)
        bench_fail("%s cannot be put out of memory: %s; try a file on a local disk", file, strerror(errno));
    close(descriptor);
    unsigned char *resident = malloc(pages ? pages : 1);
    if (!resident || mincore((void *)from, to - from, resident)) bench_fail("%s: %s", file, strerror(errno));
    for (uint64_t i = 0; i < pages; i++) left += resident[i] & 1;
    free(resident);
    if (left > pages / 100 + 64) /* each processor may hold some pages in its own lists */
        bench_fail("%llu of %llu pages of %s stay in memory: --cold needs a file on a disk", (unsigned long long)left,
                   (unsigned long long)pages, file);
}

/* Reads a share of the table's blocks back into memory, drawn at random. With uniform keys each lookup then finds its
 * page in memory with this probability, as if memory held this share of the table, whatever the system replaces. */
static void make_resident(const char *file, double share, uint64_t draw) {
    static unsigned char block[1 << 16];
    int descriptor = open(file, O_RDONLY);
    struct stat found;
    if (descriptor < 0 || fstat(descriptor, &found)) bench_fail("%s: %s", file, strerror(errno));
    for (off_t at = 0; at < found.st_size; at += (off_t)sizeof block)
        if ((double)(bench_random(&draw) >> 11) * 0x1p-53 < share && pread(descriptor, block, sizeof block, at) < 0)
            bench_fail("%s: %s", file, strerror(errno));
    close(descriptor);
}

/* Loads the hottest rows into a static cache. */
static void preload(frugal *f, const step_config *c, uint32_t device, uint64_t n) {
    uint64_t *hottest = malloc(n * sizeof *hottest);
    if (!hottest) bench_fail("no memory for %llu keys to preload", (unsigned long long)n);
    bench_hottest_keys(hottest, n, c->rows);
    check(frugal_preload(f, device, &(frugal_keys){.table = 0, .keys = hottest, .n = (uint32_t)n}));
    free(hottest);
}

static frugal *open_instance(const step_table *table, const step_config *c) {
    frugal_table one = {.rows = c->rows};
    frugal_desc desc = {.tables = &one,
                        .n_tables = 1,
                        .dim = c->dim,
                        .devices = c->devices,
                        .max_keys = (uint32_t)c->keys,
                        .lookahead = c->lookahead,
                        .staging = c->staging,
                        .workers = c->workers,
                        .mode = c->mode,
                        .alone = c->alone,
                        .increments = c->increments,
                        .rows_as = c->rows_as,
                        .optimizer = {.kind = c->optimizer}};
    if (c->file || c->rows_as != FRUGAL_FP32) one.init = FRUGAL_INIT_UNIFORM, one.low = -0.1f, one.high = 0.1f;
    if (c->file) {
        desc.file = c->file, desc.sparse = c->sparse;
        desc.take_torn = 1; /* the rows are arbitrary, so those of a killed run will do */
    } else if (c->rows_as == FRUGAL_FP32) {
        desc.weights = table->store->weights, desc.weights_stride = table->store->weights_stride;
        desc.state = table->store->state, desc.state_stride = table->store->state_stride;
    }
    frugal *f;
    check(frugal_open(&desc, &f));
    for (uint32_t d = 0; d < c->devices; d++) {
        frugal_cpu_desc device = {
            .cache_rows = (uint64_t)(c->cache * (double)c->rows), .policy = c->policy, .threads = c->device_threads};
        check(frugal_cpu_attach(f, d, &device));
        if (c->policy == FRUGAL_CACHE_STATIC && device.cache_rows) preload(f, c, d, device.cache_rows);
    }
    return f;
}

struct step_run {
    step_config config;
    frugal *f;
    roofline *memory;
    uint32_t round;
    step_result result;
    trainer trainers[2 * MAX_DEVICES]; /* trainers, then loaders */
};

step_run *step_open_run(step_table *table, const step_config *config) {
    step_run *run = calloc(1, sizeof *run);
    if (!run) bench_fail("no memory");
    run->config = *config;
    const step_config *c = &run->config;
    run->f = open_instance(table, c);
    run->result.staging = frugal_settings(run->f)->staging;
    uint32_t busy = c->devices * (c->loader ? 2 : 1) + c->workers, processors = bench_processors();
    roofline_desc desc = {.store = table->store,
                          .words = table->words,
                          .staging = run->result.staging,
                          .keys = (const uint64_t *const *)table->keys,
                          .rows = table->distinct,
                          .devices = c->devices,
                          .batches = table->batches,
                          .threads = c->threads          ? c->threads
                                     : busy < processors ? busy
                                                         : processors,
                          .n_keys = c->keys};
    run->memory = roofline_open(&desc);
    for (uint32_t i = 0; i < 2 * c->devices; i++) {
        trainer *t = &run->trainers[i];
        size_t bytes = i < c->devices && !c->in_place ? c->keys * c->dim * sizeof(float) : 64;
        *t = (trainer){.config = c, .table = table, .f = run->f, .number = i % c->devices};
        if (!(t->rows = aligned_alloc(64, (bytes + 63) / 64 * 64))) bench_fail("no memory");
        memset(t->rows, 0, bytes);
    }
    return run;
}

void step_run_round(step_run *run) {
    const step_config *c = &run->config;
    roofline_speeds speeds = roofline_measure(run->memory, roofline_seconds);
    if (c->cold) make_cold(run->f, c->file);
    if (c->resident > 0) make_resident(c->file, c->resident, run->round);
    if (c->trace) check(frugal_trace_start(run->f, 0)); /* of each round anew */
    counters before = count(run->f);
    run_round(run->trainers, c, run->round * c->steps);
    counters after = count(run->f);
    if (run->round++ > 0) add_round(&run->result, c, run->trainers, &before, &after, &speeds);
    bench_progress("%s %u of %u: %.1f M keys/s", run->round > 1 ? "round" : "warm-up", run->round - 1, c->rounds,
                   (double)(after.stats.keys - before.stats.keys) / (after.wall - before.wall) / 1e6);
}

const step_config *step_config_of(const step_run *run) {
    return &run->config;
}

const step_result *step_result_of(const step_run *run) {
    return &run->result;
}

void step_close_run(step_run *run) {
    for (uint32_t i = 0; i < 2 * run->config.devices; i++) free(run->trainers[i].rows);
    roofline_close(run->memory);
    if (run->config.trace && run->config.trace_file) check(frugal_trace_write(run->f, run->config.trace_file));
    check(frugal_close(run->f)); /* may fail, if a file did not get to the disk */
    free(run);
}
