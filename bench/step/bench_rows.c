/* bench_rows.c - the row functions alone: one optimizer step on a row, the sum of a row's gradients, the copy of a row.
 *
 * One thread, one instruction set at a time; all the sets of a line's settings take turns, so that their ratios hold on
 * a machine that is shared. Three operations:
 *
 *   apply   the optimizer's step on one row after another, gradients of `devices` records each. `cache`: 128 rows, one
 *           round after another. `memory`: rows at random places of a table of 512 MiB, hardly any of them twice;
 *           records in order, as the rows of a plan have them.
 *   sum     a batch of keys: the gradients of equal keys summed, from [keys][dim] into the staging block. ns a key.
 *   gather  the batch's rows copied out of the table by position, as a device without a cache looks them up. ns a key.
 *
 * Rows are of any type (`rows_as`), and a table has as many of each; those of 16 bits are updated with stochastic
 * rounding, or to the nearest. The array that gather writes, and that sum reads, is of any type, too (`as`).
 *
 * Each is compared with a baseline from outside, `stream`: the time that the bytes it must move (each read once,
 * written once) take at the speed of OpenBLAS' saxpy over long vectors in the same memory. So the order of rows does
 * not count, only the memory. For SGD there is also `saxpy`: OpenBLAS' own update of the same rows, with the same
 * prefetching, one call per row, without weight decay.
 *
 * The library is compiled into this program, which reaches its row functions by name. Do not link frugal_flush.o.
 */
#include "frugal_flush.c"
#include "bench/choices.h"
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"

#include <cblas.h>

enum { LIST = 128, IN_MEMORY = 16384, KEYS = 26624, BATCHES = 64, MOST_DEVICES = 8, SAXPY_AT = 3, VARIANTS = 4 };
enum { APPLY, SUM, GATHER };
enum { CACHE, MEMORY };
static const uint64_t TABLE_BYTES = UINT64_C(512) << 20, BATCHES_BYTES = UINT64_C(128) << 20;

static const char *const ops[] = {"apply", "sum", "gather", NULL};
static const char *const places[] = {"cache", "memory", NULL};
static const char *const set_names[] = {"baseline", "avx2", "avx512", NULL};

static const row_functions *sets[3] = {&frugal_rows_baseline}; /* NULL: the compiler or the processor has none */

static void find_sets(void) {
#if defined(ROWS_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[1] = &frugal_rows_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        sets[2] = &frugal_rows_avx512;
#endif
}

typedef struct batch { /* keys of one step, as an announcement sorts them */
    uint32_t record_of[KEYS], order[KEYS], start[KEYS + 1], rows[KEYS];
    frugal_records records;
} batch;

typedef struct bench { /* of one line */
    int op, place;
    frugal_type rows_as, as;
    frugal_rounding rounding;
    frugal_optimizer_kind kind;
    uint32_t dim, devices;
    double decay, zipf;
    uint32_t n; /* rows or keys per sample */
    frugal *f;
    const frugal_store *store;
    float *blocks, *grads; /* [devices][n][dim]; [n][dim] */
    row_update *applies;
    const float **records;
    batch *batches;
    uint32_t n_batches, at; /* the next batch */
    uint64_t random;
} bench;

static void *allocate(uint64_t bytes) {
    void *memory = map_pages(bytes, 64);
    if (!memory) bench_fail("%llu bytes are not available", (unsigned long long)bytes);
    return memory;
}

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

/* >>speeds of this machine's memory */

/* Bytes a nanosecond that saxpy moves, in vectors of `floats`; repeated until a sample is long enough for the clock. */
static double stream_speed(uint64_t floats, uint32_t samples) {
    float *x = allocate(floats * sizeof *x), *y = allocate(floats * sizeof *y);
    uint64_t times = 1 + (UINT64_C(1) << 22) / floats;
    bench_samples speeds = {.n = 0};
    for (uint64_t i = 0; i < floats; i++) x[i] = 1e-3f, y[i] = 1.0f;
    for (uint32_t s = 0; s <= samples; s++) {
        double since = bench_now();
        for (uint64_t t = 0; t < times; t++) cblas_saxpy((int)floats, -0.01f, x, 1, y, 1);
        if (s > 0) bench_add(&speeds, (double)(times * floats * 12) / (bench_now() - since) * 1e-9);
    }
    munmap(x, floats * sizeof *x), munmap(y, floats * sizeof *y);
    return bench_median(&speeds);
}

/* The bytes that a row or key must move: those read and those written. Sums write a row once, whatever its number of
 * positions; when a gather reads a row again, it comes from a cache. */
static double necessary_bytes(const bench *b) {
    double floats = b->dim * sizeof(float), row = b->dim * frugal_type_bytes(b->rows_as);
    double array = b->dim * frugal_type_bytes(b->as), unique = (double)b->batches[0].records.n_unique / KEYS;
    if (b->op == SUM) return array + floats * unique;
    if (b->op == GATHER) return array + row * unique;
    return 2 * (row + b->store->state_floats * sizeof(float)) + b->devices * floats;
}

/* >>what is measured */

static void draw_rows(bench *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t row = b->place == CACHE ? i : bench_random(&b->random) % b->store->rows;
        b->applies[i].weights = weights_of(b->f, row);
        b->applies[i].state = state_of(b->f, row);
        b->applies[i].row = (uint32_t)row;
    }
}

/* As the library flushes: the first rows of a list are prefetched before the first is updated. */
static void apply_all(const bench *b, const row_functions *with) {
    for (uint32_t at = 0; at < b->n; at += LIST) {
        for (uint32_t i = 0; i < AHEAD_UPDATES; i++) prefetch_update(b->store, &b->applies[at + i]);
        with->apply(b->store, &b->store->groups[0].optimizer, &b->applies[at], LIST);
    }
}

static void saxpy_all(const bench *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        if (i + AHEAD_UPDATES < b->n) prefetch_update(b->store, &b->applies[i + AHEAD_UPDATES]);
        cblas_saxpy((int)b->dim, -b->applies[i].hyper->lr, b->applies[i].records[0], 1, b->applies[i].weights, 1);
    }
}

/* Batches take turns, so that their rows are not in the cache; their sorted keys are, as in training. */
static const frugal_step *next_batch(bench *b) {
    static frugal_step step;
    const batch *next = &b->batches[b->at++ % b->n_batches];
    for (uint32_t i = 0; i < KEYS; i += 16) {
        __builtin_prefetch(&next->record_of[i]), __builtin_prefetch(&next->order[i]);
        __builtin_prefetch(&next->start[i]), __builtin_prefetch(&next->rows[i]);
    }
    step.records = next->records, step.stride = b->dim, step.as = b->as;
    return &step;
}

/* ns a row or key */
static double sample(bench *b, uint32_t variant) {
    uint32_t times = b->op == APPLY && b->place == CACHE ? 1 + 65536 / (b->dim + 32) : 1;
    const frugal_step *step = b->op == APPLY ? NULL : next_batch(b);
    if (b->op == APPLY) draw_rows(b);
    double since = bench_now();
    for (uint32_t t = 0; t < times; t++) {
        if (b->op == APPLY && variant == SAXPY_AT)
            saxpy_all(b);
        else if (b->op == APPLY)
            apply_all(b, sets[variant]);
        else if (b->op == SUM)
            sets[variant]->sum_records(&step->records, (strided_rows){b->grads, b->dim, b->as, NULL}, b->dim);
        else
            sets[variant]->gather(b->store, &step->records, b->grads, step->stride, b->as);
    }
    return (bench_now() - since) * 1e9 / ((double)b->n * times);
}

/* >>preparing */

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void draw_batch(bench *b, batch *to, uint64_t seed) {
    static uint64_t keys[KEYS];
    uint32_t unique = 0;
    bench_draw_keys(keys, KEYS, b->store->rows, b->zipf, seed);
    for (uint64_t i = 0; i < KEYS; i++) keys[i] = keys[i] << 32 | i;
    qsort(keys, KEYS, sizeof *keys, by_number);
    for (uint32_t i = 0; i < KEYS; i++) {
        if (i == 0 || keys[i] >> 32 != keys[i - 1] >> 32)
            to->rows[unique] = (uint32_t)(keys[i] >> 32), to->start[unique++] = i;
        to->order[i] = (uint32_t)keys[i];
        to->record_of[to->order[i]] = unique - 1;
    }
    to->start[unique] = KEYS;
    to->records = (frugal_records){b->blocks, b->dim, KEYS, unique, to->record_of, to->order, to->start, to->rows};
}

static void prepare_rows(bench *b) {
    static const frugal_hyper hyper = {0.01f, 0.01f, 1, 0};
    /* Of all types as many rows as of fp32. */
    uint64_t row_bytes = (b->dim + frugal_state_floats(b->kind, b->dim)) * sizeof(float);
    frugal_table table = {.rows = TABLE_BYTES / row_bytes, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = b->dim, .max_keys = 1, .rows_as = b->rows_as};
    if (b->rows_as != FRUGAL_FP32) desc.rounding = b->rounding;
    desc.optimizer = (frugal_optimizer){.kind = b->kind, .weight_decay = (float)b->decay};
    check(frugal_open(&desc, &b->f));
    check(frugal_cpu_attach(b->f, 0, &(frugal_cpu_desc){.threads = 1}));
    b->store = frugal_get_store(b->f);
    b->n = b->op != APPLY ? KEYS : b->place == CACHE ? LIST : IN_MEMORY;
    uint64_t floats = (uint64_t)b->n * b->dim;
    b->blocks = allocate(b->devices * floats * sizeof *b->blocks);
    b->grads = allocate(floats * sizeof *b->grads);
    for (uint64_t i = 0; i < b->devices * floats; i++)
        b->blocks[i] = (float)(bench_random(&b->random) >> 40) * 0x1p-24f - 0.5f;
    for (uint64_t i = 0; i < floats; i++) b->grads[i] = 1.0f;
    b->n_batches = (uint32_t)LEAST(BATCHES, 1 + BATCHES_BYTES / (floats * sizeof *b->grads));
    b->batches = allocate(BATCHES * sizeof *b->batches);
    for (uint32_t i = 0; b->op != APPLY && i < b->n_batches; i++) draw_batch(b, &b->batches[i], i);
    b->applies = allocate(b->n * sizeof *b->applies);
    b->records = allocate((uint64_t)b->n * b->devices * sizeof *b->records);
    for (uint32_t i = 0; i < b->n; i++) {
        for (uint32_t d = 0; d < b->devices; d++)
            b->records[i * b->devices + d] = b->blocks + d * floats + (uint64_t)i * b->dim;
        b->applies[i] = (row_update){.records = b->records + i * b->devices, .n = b->devices, .hyper = &hyper};
    }
}

static void release(bench *b) {
    uint64_t floats = (uint64_t)b->n * b->dim;
    munmap(b->blocks, b->devices * floats * sizeof *b->blocks);
    munmap(b->grads, floats * sizeof *b->grads);
    munmap(b->batches, BATCHES * sizeof *b->batches);
    munmap(b->applies, b->n * sizeof *b->applies);
    munmap(b->records, (uint64_t)b->n * b->devices * sizeof *b->records);
    frugal_close(b->f);
}

/* >>reports */

typedef struct speeds { /* bytes a nanosecond */
    double cache, memory;
} speeds;

static void report(const bench *b, const char *with, const bench_samples *ns, const bench_samples *saxpy, double stream,
                   int json) {
    double bytes = necessary_bytes(b), median = bench_median(ns), bound = bytes / stream;
    const char *optimizer = b->op == APPLY ? bench_optimizers[b->kind] : "-",
               *place = b->op == APPLY ? places[b->place] : "memory";
    if (json) {
        printf("{\"op\": \"%s\", \"optimizer\": \"%s\", \"dim\": %u, \"devices\": %u, \"decay\": %g, \"zipf\": %g, "
               "\"place\": \"%s\", \"rows_as\": \"%s\", \"rounding\": \"%s\", \"as\": \"%s\", \"set\": \"%s\", \"ns\": "
               "%.2f, \"min\": %.2f, \"max\": %.2f, \"gb_per_s\": %.2f, "
               "\"stream_ns\": %.2f, \"stream_share\": %.3f, \"saxpy_ns\": ",
               ops[b->op], optimizer, b->dim, b->devices, b->decay, b->zipf, place, bench_types[b->rows_as],
               bench_roundings[b->rounding], bench_types[b->as], with, median, bench_quantile(ns, 0),
               bench_quantile(ns, 1), bytes / median, bound, bound / median);
        printf(saxpy->n ? "%.2f}\n" : "null}\n", bench_median(saxpy));
    } else {
        printf("%-6s %-15s %4u %7u %5g %5g  %-6s %-7s %-10s %-4s %-8s %8.1f %6.1f to %6.1f %6.1f %8.1f %5.2f",
               ops[b->op], optimizer, b->dim, b->devices, b->decay, b->zipf, place, bench_types[b->rows_as],
               b->rows_as == FRUGAL_FP32 || b->op != APPLY ? "-" : bench_roundings[b->rounding], bench_types[b->as],
               with, median, bench_quantile(ns, 0), bench_quantile(ns, 1), bytes / median, bound, bound / median);
        printf(saxpy->n ? " %7.1f\n" : "\n", bench_median(saxpy));
    }
    fflush(stdout);
}

static void measure(bench *b, const options_list *which, const speeds *speed, uint32_t rounds, int json) {
    bench_samples ns[VARIANTS] = {{.n = 0}};
    int wanted[VARIANTS] = {0};
    prepare_rows(b);
    for (uint32_t i = 0; i < which->n; i++)
        wanted[(uint32_t)which->values[i]] = sets[(uint32_t)which->values[i]] != NULL;
    wanted[SAXPY_AT] =
        b->op == APPLY && b->rows_as == FRUGAL_FP32 && b->kind == FRUGAL_SGD && b->devices == 1 && b->decay == 0;
    for (uint32_t r = 0; r <= rounds && !bench_interrupted(); r++) /* round 0 warms up */
        for (uint32_t v = 0; v < VARIANTS; v++) {
            if (!wanted[v]) continue;
            double one = sample(b, v);
            if (r > 0) bench_add(&ns[v], one);
        }
    for (uint32_t v = 0; v < SAXPY_AT; v++)
        if (ns[v].n > 0)
            report(b, set_names[v], &ns[v], &ns[SAXPY_AT],
                   b->op == APPLY && b->place == CACHE ? speed->cache : speed->memory, json);
    release(b);
}

typedef struct sweep {
    options_list op, optimizer, dim, devices, decay, zipf, place, rows_as, rounding, as, set;
    uint64_t rounds;
    int json;
} sweep;

enum { OP, OPTIMIZER, PLACE, DEVICES, DECAY, ZIPF, DIM, ROWS_AS, ROUNDING, AS, LISTS };

/* Does what the line has beyond its first settings make a difference? Sums and copies do not depend on the optimizer,
 * sums not on the rows; updates not on skew and array; and rows of fp32 are not rounded. */
static int differs(const bench *b, const uint32_t *of) {
    if (b->rows_as == FRUGAL_FP32 && of[ROUNDING] > 0) return 0;
    if (b->op == APPLY) return of[ZIPF] + of[AS] == 0;
    if (b->op == SUM && of[ROWS_AS] > 0) return 0;
    return of[OPTIMIZER] + of[PLACE] + of[DEVICES] + of[DECAY] + of[ROUNDING] == 0;
}

/* Calls `measure` for every combination that makes a difference. */
static void measure_all(const sweep *s, const speeds *speed) {
    uint32_t of[LISTS];
    const options_list *lists[LISTS] = {&s->op,   &s->optimizer, &s->place,   &s->devices,  &s->decay,
                                        &s->zipf, &s->dim,       &s->rows_as, &s->rounding, &s->as};
    uint64_t all = 1;
    for (uint32_t i = 0; i < LISTS; i++) all *= lists[i]->n;
    for (uint64_t c = 0; c < all && !bench_interrupted(); c++) {
        uint64_t rest = c;
        for (uint32_t i = LISTS; i-- > 0; rest /= lists[i]->n) of[i] = (uint32_t)(rest % lists[i]->n);
        bench b = {.op = (int)s->op.values[of[OP]], .random = 42};
        b.rows_as = b.op == SUM ? FRUGAL_FP32 : (frugal_type)s->rows_as.values[of[ROWS_AS]];
        b.rounding = (frugal_rounding)s->rounding.values[of[ROUNDING]];
        b.as = b.op == APPLY ? FRUGAL_FP32 : (frugal_type)s->as.values[of[AS]];
        if (!differs(&b, of)) continue;
        b.kind = b.op == APPLY ? (frugal_optimizer_kind)s->optimizer.values[of[OPTIMIZER]] : FRUGAL_SGD;
        b.place = (int)s->place.values[of[PLACE]];
        b.devices = b.op == APPLY ? (uint32_t)s->devices.values[of[DEVICES]] : 1;
        b.decay = b.op == APPLY ? s->decay.values[of[DECAY]] : 0;
        b.zipf = b.op == APPLY ? 0 : s->zipf.values[of[ZIPF]];
        b.dim = (uint32_t)s->dim.values[of[DIM]];
        measure(&b, &s->set, speed, (uint32_t)s->rounds, s->json);
    }
}

int main(int argc, char **argv) {
    sweep s = {.op = {{APPLY, SUM, GATHER}, 3},
               .optimizer = {{FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_KIND)}, FRUGAL_OPTIMIZER_KINDS},
               .dim = {{8, 16, 32, 64, 100, 128, 256, 400, 512}, 9},
               .devices = {{1}, 1},
               .decay = {{0}, 1},
               .zipf = {{0, 0.99}, 2},
               .place = {{CACHE, MEMORY}, 2},
               .rows_as = {{FRUGAL_FP32}, 1},
               .rounding = {{FRUGAL_STOCHASTIC}, 1},
               .as = {{FRUGAL_FP32}, 1},
               .set = {{0, 1, 2}, 3},
               .rounds = 9};
    const options_entry options[] = {
        {"op", OPTIONS_CHOICES, &s.op, 0, 0, ops, ""},
        {"optimizer", OPTIONS_CHOICES, &s.optimizer, 0, 0, bench_optimizers, "of apply"},
        {"dim", OPTIONS_WHOLES, &s.dim, 1, 4096, NULL, "floats a row"},
        {"devices", OPTIONS_WHOLES, &s.devices, 1, MOST_DEVICES, NULL, "records a row, of apply"},
        {"decay", OPTIONS_REALS, &s.decay, 0, 1, NULL, "weight decay, of apply"},
        {"zipf", OPTIONS_REALS, &s.zipf, 0, 2, NULL, "skew of the keys, of sum and gather"},
        {"place", OPTIONS_CHOICES, &s.place, 0, 0, places, "where rows lie, of apply"},
        {"rows-as", OPTIONS_CHOICES, &s.rows_as, 0, 0, bench_types, "type of the table's weights"},
        {"rounding", OPTIONS_CHOICES, &s.rounding, 0, 0, bench_roundings, "of weights of 16 bits, of apply"},
        {"as", OPTIONS_CHOICES, &s.as, 0, 0, bench_types, "type of the array that gather writes and sum reads"},
        {"set", OPTIONS_CHOICES, &s.set, 0, 0, set_names, "instructions; those that the processor lacks are left out"},
        {"rounds", OPTIONS_WHOLE64, &s.rounds, 1, BENCH_SAMPLES, NULL, "samples of each figure"},
        {"json", OPTIONS_FLAG, &s.json, 0, 0, NULL, "one object a line"},
        {0},
    };
    bench_parse("bench_rows", "Time of one row's update, sum and copy, beside what memory allows.", options, argc,
                argv);
    find_sets();
    openblas_set_num_threads(1);
    speeds speed = {stream_speed(16384, (uint32_t)s.rounds), stream_speed(1 << 25, (uint32_t)s.rounds)};
    fprintf(stderr, "saxpy over long vectors: %.1f GB/s in cache, %.1f in memory\n", speed.cache, speed.memory);
    if (!s.json)
        puts("op     optimizer        dim devices decay  zipf  place  rows    rounding   as   set            ns      "
             "(spread)    GB/s   stream share   saxpy");
    measure_all(&s, &speed);
    return bench_exit_status();
}
