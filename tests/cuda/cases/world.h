/* world.h - the trainer of test_cuda: an instance with its devices, batches of every kind, the steps, and the
 * sequential reference that the rows looked up and the drained table must be. */
#ifndef CASES_WORLD_H
#define CASES_WORLD_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../expect.h"
#include "../../reference_of.h"
#include "../../sanitizers.h"
#include "../../seed.h"
#include "../../support.h"
#include "../gpu.h"
#include "../../../frugal_counts.h"
#include "../../../frugal_cuda.h"
#include "../../../frugal_secondaries.h"
#include "../../../frugal_seeing.h"
#include "../../../src/device.h"

#ifdef TEST_CUDA_ON_HOST
#include "../cuda_on_host_hooks.h"
#endif

enum { DEVICES = 4, MOST_KEYS = 1100, MOST_STEPS = 128, NOBODY = -1 };

typedef struct batch { /* what a device was announced */
    uint32_t n, *rows;
    int brings, read_only;
} batch;

typedef struct place { /* of a device; ordinal: index into used_gpus, or NOBODY: on the host */
    int ordinal, gate_on_stream, shrink_cache;
    uint64_t cache_rows;
    frugal_cache_policy policy;
    uint32_t unaligned;
} place;

typedef struct world {
    frugal_desc desc;
    frugal_table table;
    /* Its rows are cut into so many, each with settings of its own; 0: one, with the usual ones; 1: it is frozen. */
    uint32_t n_tables;
    place places[DEVICES];
    frugal_type as, grads_as; /* of the arrays of rows and gradients, of all devices */
    uint32_t kept;            /* steps that may be left unjudged; 0: 4 */
    int lr_changes;
    /* The batch of a device at a step, another for each `salt`; NULL: usual_batch. */
    void (*make)(const struct world *w, uint32_t device, uint64_t step, batch *b);
    uint64_t salt;
    uint32_t keys; /* of a usual batch, at most; 0: max_keys */

    frugal *f;
    gpu *gpus[DEVICES];
    reference ref;
    test_counter counter;
    batch batches[DEVICES][MOST_STEPS];
    uint64_t announced[DEVICES], step, judged, trained[DEVICES], first_trained[DEVICES][MOST_STEPS];
    uint64_t updated;  /* bit d: device d has updated the step at hand (losses.h) */
    uint64_t in_place; /* rows that devices have updated in place, in the steps judged */
    /* The first two are of these types; the others are floats, and `grads` also if it is judged. */
    void *host_rows[DEVICES], *host_grads[DEVICES];
    float *host_kept[DEVICES], *grads[DEVICES], *looked_up;
} world;

static int n_gpus;        /* when the case began */
static uint64_t n_worlds; /* of the case, so far */
static int gpus(void) {
    return n_gpus;
}

/* GPUs that devices are on, by turns: FRUGAL_GPUS, such as 1 or 0,0,1; else all that there are. */
static struct { int ordinals[16], n; } used_gpus;
static void find_used_gpus(void) {
    const char *text = getenv("FRUGAL_GPUS");
    char *end;
    used_gpus.n = 0;
    for (; text && *text && used_gpus.n < 16; text = *end ? end + 1 : end) {
        long ordinal = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || ordinal < 0 || ordinal >= n_gpus) {
            fprintf(stderr, "FRUGAL_GPUS=%s: a list of GPUs was wanted; there are %d, from 0\n", getenv("FRUGAL_GPUS"),
                    n_gpus);
            exit(2);
        }
        used_gpus.ordinals[used_gpus.n++] = (int)ordinal;
    }
    for (; !text && used_gpus.n < n_gpus && used_gpus.n < 16; used_gpus.n++)
        used_gpus.ordinals[used_gpus.n] = used_gpus.n;
}
static int gpu_at(const place *p) {
    return used_gpus.n ? used_gpus.ordinals[p->ordinal % used_gpus.n] : 0;
}

/* What the tests' thread has as its current GPU, and as its last CUDA error; every call must leave them. */
static int caller_gpu, caller_error;

static int keys_there; /* 1: every second batch has its keys on the GPU, where no call of the test's own may fail */

static int set_up(void **state) {
    (void)state;
#ifdef TEST_CUDA_ON_HOST
    cuda_on_host_reset();
#endif
    n_gpus = gpu_count(), n_worlds = 0;
    find_used_gpus();
    caller_gpu = gpus() > 1 ? 1 : 0; /* not the one that most devices are on */
    gpu_set_current(caller_gpu);
    caller_error = 0, keys_there = 1;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    gpu_end_error();
#ifdef TEST_CUDA_ON_HOST
    cuda_on_host_reset();
#endif
    return 0;
}

static void check_current(const char *call, int line) {
    if (gpu_current() != caller_gpu)
        fail_msg("line %d: %s has left GPU %d as the current one", line, call, gpu_current());
    if (gpu_error() != caller_error)
        fail_msg("line %d: %s has left the CUDA error %d in place of %d", line, call, gpu_error(), caller_error);
}

/* The status is `wanted`, the message has both texts in it, and the current GPU is what it was. */
#define assert_fails(wanted, call, text1, text2) check_failure(wanted, call, text1, text2, #call, __LINE__)
#define assert_works(call)                       check_success(call, #call, __LINE__)
static void check_failure(frugal_status wanted, frugal_status got, const char *text1, const char *text2,
                          const char *call, int line) {
    expect_failure(wanted, got, text1, text2, call, line);
    check_current(call, line);
}
static void check_success(frugal_status got, const char *call, int line) {
    if (got != FRUGAL_OK) fail_msg("line %d: %s returned %d: %s", line, call, (int)got, frugal_message());
    check_current(call, line);
}

/* >>world: batches */

static void usual_batch(const world *w, uint32_t device, uint64_t step, batch *b) {
    uint64_t bits = test_mix3(w->salt, device, step);
    uint32_t most = w->keys ? w->keys : w->desc.max_keys;
    b->n = (uint32_t)(bits % 8 == 0 ? 0 : bits % 8 == 1 ? most : 1 + bits / 8 % most);
    b->brings = bits / 64 % 8 != 0, b->read_only = bits / 512 % 16 == 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t key = test_mix3(bits, i, 1);
        b->rows[i] = (uint32_t)(key % 3 ? key / 3 % (w->table.rows < 9 ? w->table.rows : 9) : key / 3 % w->table.rows);
    }
}

/* As many keys as there can be, all equal. */
static void all_equal(const world *w, uint32_t device, uint64_t step, batch *b) {
    b->n = w->desc.max_keys, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = (uint32_t)(step / 2 + device) % 3;
}

static batch *batch_of(world *w, uint32_t device, uint64_t step) {
    return &w->batches[device][step % MOST_STEPS];
}

static float lr_of(const world *w, uint64_t step) {
    return w->lr_changes ? 0.05f + 0.01f * (float)(step % 7) : 0.1f;
}

/* >>world: memory */

/* Blocks that are given out. What CUDA does not unregister is never given back: end_left does it for the test. */
static struct {
    void *memory;
    size_t bytes;
} blocks_out[256];
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static void move_block(const void *from, void *to, size_t bytes) {
    size_t i = 0;
    pthread_mutex_lock(&blocks_lock);
    while (blocks_out[i].memory != from) i++;
    blocks_out[i].memory = to, blocks_out[i].bytes = bytes;
    pthread_mutex_unlock(&blocks_lock);
}

static void *allocate_block(size_t bytes, size_t alignment, void *user) {
    void *memory = test_allocate(bytes, alignment, user);
    if (memory) move_block(NULL, memory, bytes);
    return memory;
}

static void release_block(void *memory, size_t bytes, void *user) {
    if (memory) move_block(memory, NULL, 0);
    test_release(memory, bytes, user);
}

/* Returns the bytes that were left, in whole pages. */
static size_t end_left(test_counter *counter) {
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof blocks_out / sizeof *blocks_out; i++)
        if (blocks_out[i].memory) {
            assert_int_equal(0, (int)(blocks_out[i].bytes % 4096));
            bytes += blocks_out[i].bytes;
            release_block(blocks_out[i].memory, blocks_out[i].bytes, counter);
        }
    return bytes;
}

/* >>world: opening */

/* The worlds of a case take turns at the ways of frugal_alone, at having all devices on one GPU or spread, and at what
 * weights are, in an order of no pattern. */
static world world_of(uint32_t devices) {
    world w = {.lr_changes = 1, .desc.devices = devices};
    uint64_t bits = test_mix2(n_worlds++, 18);
    frugal_alone alone = (frugal_alone)(bits % 4);
    w.table = (frugal_table){.rows = 60, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    w.desc = (frugal_desc){.n_tables = 1,
                           .dim = 8,
                           .devices = devices,
                           .max_keys = 24,
                           .lookahead = 3,
                           .seed = 7,
                           .alone = alone,
                           .rows_as = bits >> 8 & 1 ? (bits >> 9 & 1 ? FRUGAL_BF16 : FRUGAL_FP16) : FRUGAL_FP32,
                           .rounding = bits >> 8 & 1 && bits >> 10 & 1 ? FRUGAL_NEAREST : (frugal_rounding)0,
                           .optimizer = {.kind = FRUGAL_ADAGRAD},
                           .stuck_seconds = 60};
    for (uint32_t d = 0; d < devices; d++) w.places[d] = (place){.cache_rows = 32, .ordinal = bits & 4 ? (int)d : 0};
    return w;
}

/* The same for arrays of rows and gradients. */
static world with_arrays(world w) {
    static const frugal_type types[] = {FRUGAL_FP32, FRUGAL_BF16, FRUGAL_FP16, FRUGAL_FP32};
    uint64_t bits = test_mix2(n_worlds, 19);
    w.as = types[bits % 4], w.grads_as = types[bits / 4 % 4];
    return w;
}

static world gated(uint32_t devices) {
    world w = world_of(devices);
    w.desc.workers = 2, w.desc.lookahead = 10;
    w.kept = 64;
    for (uint32_t d = 0; d < devices; d++) w.places[d].gate_on_stream = 1;
    return w;
}

enum { MOST_TABLES = 5 };

/* The table cut into n, with boundaries among its hot rows; the first takes the usual settings, the others in turn some
 * of their own. */
static void cut_table(const world *w, frugal_table tables[MOST_TABLES], frugal_optimizer own[MOST_TABLES]) {
    uint64_t left = w->table.rows;
    for (uint32_t t = 0; t < w->n_tables; t++) {
        tables[t] = w->table;
        tables[t].rows = t + 1 < w->n_tables ? 1 + 2 * t : left;
        left -= tables[t].rows;
        own[t] = w->desc.optimizer;
        if (t % 4 == 1) own[t].lr_scale = 0.3f, own[t].weight_decay = 0.25f;
        if (t % 4 == 2) own[t].beta1 = 0.5f, own[t].beta2 = 0.75f, own[t].eps = 0.125f;
        if (t % 4 == 3) own[t].initial_accumulator = 0.5f, own[t].lr_scale = 1.7f;
        own[t].frozen = w->n_tables == 1 || (t == 2 && w->n_tables == MOST_TABLES);
        if (t % 4 || own[t].frozen) tables[t].optimizer = &own[t];
    }
}

static frugal_cuda_desc cuda_desc_of(const world *w, uint32_t d) {
    const place *p = &w->places[d];
    return (frugal_cuda_desc){p->cache_rows, p->policy, gpu_stream(w->gpus[d]), p->shrink_cache, p->gate_on_stream};
}

static frugal_status attach(world *w, uint32_t d) {
    const place *p = &w->places[d];
    if (p->ordinal == NOBODY) {
        frugal_cpu_desc desc = {.cache_rows = p->cache_rows, .policy = p->policy};
        return frugal_cpu_attach(w->f, d, &desc);
    }
    frugal_cuda_desc desc = cuda_desc_of(w, d);
    return frugal_cuda_attach(w->f, d, gpu_at(p), &desc);
}

/* Streams, arrays and the instance, without devices attached. */
static void open_instance(world *w) {
    frugal_desc desc = w->desc;
    frugal_table tables[MOST_TABLES];
    frugal_optimizer own[MOST_TABLES];
    cut_table(w, tables, own);
    desc.tables = w->n_tables ? tables : &w->table;
    if (w->n_tables) desc.n_tables = w->n_tables;
    if (!desc.allocate) desc.allocate = allocate_block, desc.release = release_block, desc.user = &w->counter;
    assert_works(frugal_open(&desc, &w->f));
    w->desc = *frugal_settings(w->f);
    if (!w->kept) w->kept = 4;
    size_t floats = (size_t)w->desc.max_keys * w->desc.dim;
    w->looked_up = malloc(4 * floats + 4);
    w->step = w->judged = w->desc.first_step;
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        w->announced[d] = w->step;
        w->grads[d] = malloc(4 * floats + 4);
        w->host_rows[d] = malloc(4 * floats + 4), w->host_grads[d] = malloc(4 * floats + 4);
        for (int i = 0; i < MOST_STEPS; i++) w->batches[d][i].rows = malloc(4 * (size_t)w->desc.max_keys);
        if (w->places[d].ordinal == NOBODY) {
            w->host_kept[d] = malloc(4 * floats * w->kept + 4);
            continue;
        }
        w->gpus[d] = gpu_open(gpu_at(&w->places[d]), floats, 4 * (size_t)w->desc.max_keys + 8, w->places[d].unaligned);
        gpu_keep(w->gpus[d], w->kept);
        gpu_set_types(w->gpus[d], (int)w->as, (int)w->grads_as);
    }
}

static void read_all(world *w, float *weights, float *state) {
    uint64_t *keys = malloc(8 * w->table.rows);
    for (uint64_t i = 0; i < w->table.rows; i++) keys[i] = i;
    for (uint32_t t = 0, first = 0; t < w->desc.n_tables; first += (uint32_t)w->desc.tables[t++].rows) {
        frugal_keys all = {.table = t, .keys = keys, .n = (uint32_t)w->desc.tables[t].rows};
        assert_works(frugal_read_rows(w->f, &all, weights + (size_t)first * w->desc.dim,
                                      state + (size_t)first * frugal_get_store(w->f)->state_floats));
    }
    free(keys);
}

static void open_reference(world *w) {
    assert_true(reference_of(&w->ref, w->f));
    read_all(w, w->ref.weights, w->ref.state);
}

static void open_world(world *w) {
    open_instance(w);
    for (uint32_t d = 0; d < w->desc.devices; d++) assert_works(attach(w, d));
    open_reference(w);
}

static void close_lost(world *w) {
    frugal_close(w->f);
    w->f = NULL;
#ifdef TEST_CUDA_ON_HOST
    cuda_on_host_see_done();
#endif
    end_left(&w->counter);
}

static void close_world(world *w) {
    frugal_close(w->f);
    check_current("close", __LINE__);
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        gpu_close(w->gpus[d]);
        free(w->grads[d]), free(w->host_rows[d]), free(w->host_grads[d]), free(w->host_kept[d]);
        for (int i = 0; i < MOST_STEPS; i++) free(w->batches[d][i].rows);
    }
    free(w->looked_up);
    reference_close(&w->ref);
    assert_int_equal(0, (int)w->counter.bytes_out);
    assert_int_equal(0, (int)w->counter.blocks_out);
}

/* >>world: steps */

static frugal_status try_announce(world *w, uint32_t d) {
    uint64_t step = w->announced[d], *keys = malloc(8 * (size_t)w->desc.max_keys);
    batch *b = batch_of(w, d, step);
    (w->make ? w->make : usual_batch)(w, d, step, b);
    if (b->read_only) b->brings = 0;
    frugal_keys *segments = malloc(sizeof *segments * w->desc.max_keys); /* one a key */
    for (uint32_t i = 0; i < b->n; i++) {
        const frugal_table *tables = w->desc.tables;
        uint32_t t = 0;
        for (keys[i] = b->rows[i]; t + 1 < w->desc.n_tables && keys[i] >= tables[t].rows; t++)
            keys[i] -= tables[t].rows;
        segments[i] = (frugal_keys){.table = t, .keys = &keys[i], .n = 1};
    }
    frugal_batch announced = {segments, b->n, b->read_only};
    int there = keys_there && w->gpus[d] && test_mix3(step, d, 54) % 2;
    if (there) { /* those at odd positions are of 32 bits */
        const uint64_t *sent = gpu_keys(w->gpus[d], keys, b->n * sizeof *keys);
        for (uint32_t i = 0; i < b->n; i++)
            if (i % 2)
                segments[i].keys32 = (const int32_t *)(const void *)&sent[i], segments[i].keys = NULL;
            else
                segments[i].keys = &sent[i];
    }
    frugal_status status = there ? frugal_cuda_announce(w->f, d, step, &announced, gpu_key_stream(w->gpus[d]))
                                 : frugal_announce(w->f, d, step, &announced);
    if (status == FRUGAL_OK) w->announced[d]++;
    free(keys), free(segments);
    return status;
}

static void announce(world *w, uint64_t end) { /* all steps below `end` */
    for (uint64_t t = w->step; t < end; t++)
        for (uint32_t d = 0; d < w->desc.devices; d++)
            if (w->announced[d] == t) assert_works(try_announce(w, d));
}

static void *rows_at(world *w, uint32_t d) {
    return w->gpus[d] ? gpu_rows(w->gpus[d]) : w->host_rows[d];
}

static frugal_gradients gradients_of(world *w, uint32_t d) {
    const void *grads = w->gpus[d] ? gpu_grads(w->gpus[d]) : w->host_grads[d];
    return (frugal_gradients){
        .grads = batch_of(w, d, w->step)->brings ? grads : NULL, .lr = lr_of(w, w->step), .as = w->grads_as};
}

/* What a trainer computes of an element, as its array has it. */
static float gradient_of(const world *w, float row, uint32_t i) {
    return reference_round((int)w->grads_as, gpu_gradient(row, i), -1);
}

/* Forward and backward of the step whose rows are looked up. */
static void train(world *w, uint32_t d) {
    size_t floats = (size_t)w->desc.max_keys * w->desc.dim;
    uint32_t n = batch_of(w, d, w->step)->n * w->desc.dim;
    w->first_trained[d][w->step % MOST_STEPS] = w->trained[d];
    w->trained[d]++;
    if (w->gpus[d]) {
        gpu_train(w->gpus[d], NULL, w->desc.dim);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        float row = reference_load((int)w->as, w->host_rows[d], i);
        w->host_kept[d][w->step % w->kept * floats + i] = row;
        reference_store((int)w->grads_as, w->host_grads[d], i, gradient_of(w, row, i));
    }
}

static void lookup(world *w, uint32_t d) {
    const frugal_row_array to = {.rows = rows_at(w, d), .as = w->as};
    assert_works(frugal_lookup_into(w->f, d, w->step, &to));
}

static void update(world *w, uint32_t d) {
    frugal_gradients g = gradients_of(w, d);
    assert_works(frugal_update(w->f, d, w->step, &g));
}

/* The rows of `device` at a step that is trained are the reference's, which has not taken the step yet. */
static void judge_rows(world *w, uint32_t d, uint64_t step) {
    const batch *b = batch_of(w, d, step);
    size_t floats = (size_t)w->desc.max_keys * w->desc.dim, bytes = 4 * (size_t)w->desc.dim;
    const float *kept = w->looked_up;
    if (w->gpus[d])
        gpu_get_kept(w->gpus[d], w->first_trained[d][step % MOST_STEPS], w->looked_up, b->n * bytes);
    else
        kept = w->host_kept[d] + step % w->kept * floats;
    for (uint32_t i = 0; i < b->n; i++) {
        const float *row = w->ref.weights + (size_t)b->rows[i] * w->desc.dim;
        for (uint32_t at = 0, e = i * w->desc.dim; at < w->desc.dim; at++, e++) {
            float wanted = reference_round((int)w->as, row[at], -1);
            if (memcmp(&kept[e], &wanted, sizeof wanted))
                fail_msg("device %u, step %u: row %u at position %u of %u is not the reference's: element %u", d,
                         (unsigned)step, b->rows[i], i, b->n, at);
            w->grads[d][e] = gradient_of(w, kept[e], e);
        }
    }
}

static int updates_in_place(const world *w, uint32_t d) {
    frugal_cuda_info info;
    if (!w->gpus[d]) return w->desc.alone != FRUGAL_ALONE_STAGED;
    assert_works(frugal_cuda_get_info(w->f, d, &info));
    return w->desc.alone != FRUGAL_ALONE_STAGED && info.table_is_pinned;
}

/* Who alone announced each row for the step: the device; NOBODY: none, or several. */
static int *owners_of(world *w, uint64_t step) {
    int *owners = malloc(sizeof *owners * w->table.rows);
    uint32_t *readers = calloc(w->table.rows, sizeof *readers); /* bit d: device d */
    for (uint32_t d = 0; d < w->desc.devices; d++)
        for (uint32_t i = 0; i < batch_of(w, d, step)->n; i++) readers[batch_of(w, d, step)->rows[i]] |= 1u << d;
    for (uint64_t row = 0; row < w->table.rows; row++) {
        int alone = readers[row] && !(readers[row] & (readers[row] - 1));
        owners[row] = alone ? __builtin_ctz(readers[row]) : NOBODY;
    }
    free(readers);
    return owners;
}

static uint64_t count_in_place(world *w, uint64_t step) {
    uint64_t n = 0;
    int *owners = owners_of(w, step);
    for (uint64_t row = 0; row < w->table.rows; row++) {
        if (owners[row] == NOBODY || !batch_of(w, (uint32_t)owners[row], step)->brings) continue;
        n += (uint64_t)updates_in_place(w, (uint32_t)owners[row]);
    }
    free(owners);
    return n;
}

/* The reference takes the steps that are enqueued. */
static void judge(world *w) {
    for (; w->judged < w->step; w->judged++) {
        w->in_place += count_in_place(w, w->judged);
        reference_batch brought[DEVICES];
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            const batch *b = batch_of(w, d, w->judged);
            judge_rows(w, d, w->judged);
            brought[d] = (reference_batch){b->rows, b->n, b->brings ? w->grads[d] : NULL};
        }
        reference_step(&w->ref, w->judged, lr_of(w, w->judged), brought);
    }
}

/* One step; `ahead`: announced up to so many steps ahead of it. */
static void enqueue_step(world *w, uint32_t ahead) {
    announce(w, w->step + 1 + ahead);
    for (int on_host = 0; on_host < 2; on_host++) /* GPUs first: who is on the host waits */
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            if ((w->gpus[d] == NULL) != on_host) continue;
            lookup(w, d);
            train(w, d);
            update(w, d);
        }
    w->step++;
}

static void run(world *w, int steps) {
    for (int i = 0; i < steps; i++) {
        if (w->step - w->judged == w->kept) judge(w);
        enqueue_step(w, w->desc.lookahead);
    }
}

/* The table is the reference's after the steps judged. */
static void compare(world *w) {
    size_t floats = (size_t)w->ref.rows * w->ref.dim, state_floats = (size_t)w->ref.rows * w->ref.state_floats;
    float *weights = malloc(4 * floats), *state = malloc(4 * state_floats + 4);
    read_all(w, weights, state);
    if (memcmp(weights, w->ref.weights, 4 * floats)) fail_msg("weights differ from the reference");
    if (memcmp(state, w->ref.state, 4 * state_floats)) fail_msg("state differs from the reference");
    free(weights), free(state);
}

static void check_counts(world *w) {
    frugal_stats stats;
    frugal_get_stats(w->f, &stats);
    assert_int_equal((int)w->in_place, (int)stats.in_place);
    assert_int_equal((int)stats.unique_rows, (int)(stats.hits + stats.misses));
}

static void check(world *w) {
    judge(w);
    assert_works(frugal_drain(w->f));
    assert_works(frugal_verify(w->f));
    compare(w);
    check_counts(w);
}

static void cancel_all(world *w) {
    assert_works(frugal_cancel(w->f, w->step));
    for (uint32_t d = 0; d < w->desc.devices; d++) w->announced[d] = w->step;
    w->salt++;
}

static void finish(world *w, int steps) {
    run(w, steps);
    check(w);
    close_world(w);
}

static void train_and_finish(world *w) {
    for (uint32_t d = 0; d < w->desc.devices; d++) assert_works(attach(w, d));
    open_reference(w);
    finish(w, 8);
}

#endif /* CASES_WORLD_H */
