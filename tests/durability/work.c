/* work.c - see work.h. */
#include "tests/durability/work.h"
#include "src/arithmetic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef TEST_CUDA
#include "frugal_cuda.h"
#include "tests/cuda/gpu.h"
#endif

frugal_work work;
frugal_way way;

_Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "trainee: %s: %s\n", what, why);
    exit(1);
}
void must_be_ok(frugal_status status, const char *what) {
    if (status != FRUGAL_OK) die(what, frugal_message());
}

/* >>the work, and the way */

void set_work(uint64_t seed) {
    test_random r = {.seed = test_mix(seed)};
    work.seed = seed;
    work.instances = 1 + (uint32_t)test_below(&r, INSTANCES);
    work.reduce = test_chance(&r, 50) ? FRUGAL_SUM : FRUGAL_MEAN;
    for (uint32_t i = 0; i < work.instances; i++) {
        work.dim[i] = (uint32_t)test_between(&r, 1, MOST_DIM);
        work.n_tables[i] = (uint32_t)test_between(&r, 1, TABLES);
        work.optimizer[i] =
            (frugal_optimizer){.kind = (frugal_optimizer_kind)test_below(&r, FRUGAL_OPTIMIZER_KINDS), .eps = 1e-6f};
        if (test_chance(&r, 30)) work.optimizer[i].weight_decay = 0.01f;
        work.rows_as[i] = (frugal_type)((seed + i) % 3);
        for (uint32_t t = 0; t < work.n_tables[i]; t++)
            work.tables[i][t] = (frugal_table){.rows = test_between(&r, 1, test_chance(&r, 20) ? 1000 : 150),
                                               .init = FRUGAL_INIT_UNIFORM,
                                               .low = -1,
                                               .high = 1};
    }
}

void set_way(uint64_t draw) {
    static const uint32_t workers[] = {0, 1, 1, 2, 3}, lookaheads[] = {0, 1, 2, 5, 10}, stagings[] = {0, 1, 2, 8};
    test_random r = {.seed = test_mix2(draw, 7)};
    way.workers = workers[test_below(&r, 5)];
    way.lookahead = lookaheads[test_below(&r, 5)];
    way.staging = stagings[test_below(&r, 4)];
    way.init_threads = (uint32_t)test_between(&r, 1, 4);
    for (int d = 0; d < DEVICES; d++) way.cache[d] = (uint64_t[]){0, 8, 64, 400}[test_below(&r, 4)];
    way.policy = test_chance(&r, 50) ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED;
    way.mode = test_chance(&r, 20) ? FRUGAL_SYNC : FRUGAL_P2F;
    way.in_file = draw % 2 == 1;
    way.gpus = (unsigned)(draw / 8 % (1 << DEVICES));
}

void show_work(void) {
    for (uint32_t i = 0; i < work.instances; i++) {
        printf("instance %u: dim %u, type %d, optimizer %d, tables of", i, work.dim[i], (int)work.rows_as[i],
               (int)work.optimizer[i].kind);
        for (uint32_t t = 0; t < work.n_tables[i]; t++) printf(" %llu", (unsigned long long)work.tables[i][t].rows);
        printf(" rows\n");
    }
    printf("workers %u, lookahead %u, staging %u, caches %llu and %llu, mode %d, %s\n", way.workers, way.lookahead,
           way.staging, (unsigned long long)way.cache[0], (unsigned long long)way.cache[1], (int)way.mode,
           way.in_file ? "in a file" : "in memory");
}

/* >>devices: on the host, or, compiled with TEST_CUDA, on a GPU */

#ifdef TEST_CUDA
static frugal_status attach(trainer *t, uint32_t i, uint32_t d) {
    if (!(way.gpus >> d & 1) || gpu_count() == 0)
        return frugal_cpu_attach(t->f[i], d, &(frugal_cpu_desc){.cache_rows = way.cache[d], .policy = way.policy});
    gpu *g = t->gpu[i][d] = gpu_open(0, (size_t)KEYS * work.dim[i], 1, 0);
    return frugal_cuda_attach(
        t->f[i], d, 0, &(frugal_cuda_desc){.cache_rows = way.cache[d], .policy = way.policy, .stream = gpu_stream(g)});
}
static frugal_status look_up(trainer *t, uint32_t i, uint32_t d, float *rows, size_t floats) {
    gpu *g = t->gpu[i][d];
    frugal_status status = frugal_lookup(t->f[i], d, t->step, g ? gpu_rows(g) : rows);
    if (g && status == FRUGAL_OK && !gpu_try_get(g, rows, gpu_rows(g), floats * sizeof *rows)) return FRUGAL_ERR_LOST;
    return status;
}
/* NULL: the GPU is lost. */
static const float *send_grads(trainer *t, uint32_t i, uint32_t d, const float *grads, size_t floats) {
    gpu *g = t->gpu[i][d];
    if (!g) return grads;
    return gpu_try_put(g, gpu_grads(g), grads, floats * sizeof *grads) ? gpu_grads(g) : NULL;
}
static void close_gpus(trainer *t) {
    for (uint32_t i = 0; i < INSTANCES; i++)
        for (uint32_t d = 0; d < DEVICES; d++)
            if (t->gpu[i][d]) gpu_close(t->gpu[i][d]);
}
#else
static frugal_status attach(trainer *t, uint32_t i, uint32_t d) {
    return frugal_cpu_attach(t->f[i], d, &(frugal_cpu_desc){.cache_rows = way.cache[d], .policy = way.policy});
}
static frugal_status look_up(trainer *t, uint32_t i, uint32_t d, float *rows, size_t floats) {
    (void)floats;
    return frugal_lookup(t->f[i], d, t->step, rows);
}
static const float *send_grads(trainer *t, uint32_t i, uint32_t d, const float *grads, size_t floats) {
    (void)t, (void)i, (void)d, (void)floats;
    return grads;
}
static void close_gpus(trainer *t) {
    (void)t;
}
#endif

/* >>instances */

void close_trainer(trainer *t) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < work.instances; i++) {
        frugal_status own = frugal_close(t->f[i]);
        if (status == FRUGAL_OK) status = own;
    }
    close_gpus(t);
    if (t->workers) must_be_ok(frugal_workers_close(t->workers), "close workers");
    must_be_ok(status, "close");
    *t = (trainer){0};
}

static void place_instance(frugal_desc *desc, const opening *o, uint32_t i, char file[NAME + 16]) {
    desc->first_step = o->first_step;
    if (o->saved) desc->saved = o->saved, desc->n_saved = o->n_saved, desc->saved_part = i;
    if (i == 0) desc->weights = o->weights, desc->state = o->state;
    if (!way.in_file || !o->table) return;
    snprintf(file, NAME + 16, "%s-%u", o->table, i);
    if (!o->saved && !o->keep) unlink(file);
    desc->file = file;
}

static frugal_status open_instance(trainer *t, const opening *o, uint32_t i) {
    char file[NAME + 16];
    frugal_desc desc = {.tables = work.tables[i],
                        .n_tables = work.n_tables[i],
                        .dim = work.dim[i],
                        .rows_as = work.rows_as[i],
                        .rounding = work.rows_as[i] == FRUGAL_FP16 ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC,
                        .devices = DEVICES,
                        .max_keys = KEYS,
                        .lookahead = way.lookahead,
                        .staging = way.staging,
                        .workers = t->workers ? 0 : way.workers,
                        .shared_workers = t->workers,
                        .mode = way.mode,
                        .alone = o->staged ? FRUGAL_ALONE_STAGED : FRUGAL_ALONE_DEFAULT,
                        .reduce = work.reduce,
                        .optimizer = work.optimizer[i],
                        .seed = work.seed + i,
                        .init_threads = way.init_threads,
                        .increments = 1};
    place_instance(&desc, o, i, file);
    frugal_status status = frugal_open(&desc, &t->f[i]);
    if (status != FRUGAL_OK) return status;
    for (uint32_t d = 0; d < DEVICES; d++) must_be_ok(attach(t, i, d), "attach");
    t->first[i] = frugal_settings(t->f[i])->first_step;
    if (i == 0 || t->first[i] < t->step) t->step = t->announced = t->first[i];
    return FRUGAL_OK;
}

frugal_status open_trainer(trainer *t, const opening *o) {
    frugal_status status = FRUGAL_OK;
    *t = (trainer){0};
    if (work.instances > 1 && way.workers > 0)
        must_be_ok(frugal_workers_open(way.workers, &t->workers), "open workers");
    for (uint32_t i = 0; i < work.instances && status == FRUGAL_OK; i++) status = open_instance(t, o, i);
    if (status != FRUGAL_OK) close_trainer(t); /* this cannot fail, so the message stays */
    return status;
}

void drain_trainer(trainer *t) {
    for (uint32_t i = 0; i < work.instances; i++) must_be_ok(frugal_drain(t->f[i]), "drain");
}

static void read_row(const trainer *t, uint32_t i, uint32_t table, uint64_t key, float *weights, float *state) {
    must_be_ok(frugal_read_rows(t->f[i], &(frugal_keys){.table = table, .keys = &key, .n = 1}, weights, state), "read");
}

uint64_t hash_instance(const trainer *t, uint32_t i, uint64_t hash) {
    static float weights[MOST_DIM], state[2 * MOST_DIM + 2];
    uint32_t floats = frugal_state_floats(work.optimizer[i].kind, work.dim[i]);
    must_be_ok(frugal_drain(t->f[i]), "drain");
    for (uint32_t table = 0; table < work.n_tables[i]; table++)
        for (uint64_t key = 0; key < work.tables[i][table].rows; key++) {
            read_row(t, i, table, key, weights, state);
            hash = test_hash(test_hash(hash, weights, work.dim[i]), state, floats);
        }
    return hash;
}

uint64_t hash_trainer(const trainer *t) {
    uint64_t hash = 1;
    for (uint32_t i = 0; i < work.instances; i++) hash = hash_instance(t, i, hash);
    return hash;
}

void write_trainer(const trainer *t, FILE *out) {
    static float weights[MOST_DIM], state[2 * MOST_DIM + 2];
    for (uint32_t i = 0; i < work.instances; i++) {
        uint32_t floats = frugal_state_floats(work.optimizer[i].kind, work.dim[i]);
        for (uint32_t table = 0; table < work.n_tables[i]; table++)
            for (uint64_t key = 0; key < work.tables[i][table].rows; key++) {
                read_row(t, i, table, key, weights, state);
                fwrite(weights, sizeof(float), work.dim[i], out);
                fwrite(state, sizeof(float), floats, out);
            }
    }
}

/* >>steps */

/* Keys of a batch, in two segments; sometimes none. A few rows are hot. */
static uint32_t fill_batch(uint32_t i, uint32_t d, uint64_t step, uint64_t keys[KEYS], frugal_keys segments[2]) {
    test_random r = {.seed = test_mix3(work.seed * INSTANCES + i, d, step)};
    uint32_t n[2] = {(uint32_t)test_below(&r, KEYS / 2 + 1), (uint32_t)test_below(&r, KEYS / 2 + 1)}, at = 0;
    if (test_chance(&r, 5)) n[0] = n[1] = 0;
    for (int s = 0; s < 2; s++) {
        uint32_t table = (uint32_t)test_below(&r, work.n_tables[i]);
        uint64_t rows = work.tables[i][table].rows;
        segments[s] = (frugal_keys){.table = table, .keys = keys + at, .n = n[s]};
        for (uint32_t k = 0; k < n[s]; k++) keys[at++] = test_below(&r, test_chance(&r, 50) && rows > 8 ? 8 : rows);
    }
    return n[0] + n[1];
}

static frugal_status announce_step(trainer *t, uint64_t step) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < work.instances; i++)
        for (uint32_t d = 0; d < DEVICES && step >= t->first[i] && status == FRUGAL_OK; d++) {
            uint64_t keys[KEYS];
            frugal_keys segments[2];
            fill_batch(i, d, step, keys, segments);
            status = frugal_announce(t->f[i], d, step, &(frugal_batch){.segments = segments, .n_segments = 2});
        }
    return status;
}

/* Of one device. */
static frugal_status train_device(trainer *t, uint32_t i, uint32_t d) {
    static float rows[KEYS * MOST_DIM], grads[KEYS * MOST_DIM];
    uint64_t keys[KEYS];
    frugal_keys segments[2];
    uint32_t floats = fill_batch(i, d, t->step, keys, segments) * work.dim[i];
    frugal_status status = look_up(t, i, d, rows, floats);
    if (status != FRUGAL_OK) return status;
    for (uint32_t k = 0; k < floats; k++) grads[k] = rows[k] / 4 + (float)test_unit(test_mix3(t->step, d, k)) - 0.5f;
    frugal_gradients g = {.grads = send_grads(t, i, d, grads, floats), .lr = 0.01f + 0.01f * (float)(t->step % 5)};
    return g.grads ? frugal_update(t->f[i], d, t->step, &g) : FRUGAL_ERR_LOST;
}

frugal_status try_step(trainer *t, uint64_t steps) {
    frugal_status status = FRUGAL_OK;
    for (; status == FRUGAL_OK && t->announced < steps && t->announced <= t->step + way.lookahead; t->announced++)
        status = announce_step(t, t->announced);
    for (uint32_t i = 0; i < work.instances; i++)
        for (uint32_t d = 0; d < DEVICES && t->step >= t->first[i] && status == FRUGAL_OK; d++)
            status = train_device(t, i, d);
    if (status == FRUGAL_OK) t->step++;
    return status;
}

void train_step(trainer *t, uint64_t steps) {
    must_be_ok(try_step(t, steps), "train");
}
