/* instance.h - the instance of a trial: opened, in memory that may be the caller's, its tables compared, closed. */
#ifndef INSTANCE_H
#define INSTANCE_H

#include <unistd.h>
#include "run.h"

/* May this machine write the row, and keep it in a cache? */
static inline int is_own(const run *r, uint32_t table, uint64_t key) {
    return !r->machines || trial_home(r->t, r->t->first_row[table] + key) == r->machines->wire->machine;
}

static inline void preload(run *r, uint32_t b) {
    uint64_t keys[BOUNDARY_ROWS];
    for (uint32_t d = r->first; d < r->end; d++) {
        frugal_keys k = boundary_keys(r->t, b + d, keys);
        uint32_t n = 0;
        for (uint32_t i = 0; i < k.n; i++)
            if (is_own(r, k.table, keys[i])) keys[n++] = keys[i];
        k.n = n;
        if (r->t->caches[d].cache_rows) run_expect(r, frugal_preload(r->f, d, &k), FRUGAL_OK, "preload", d, b);
    }
}

/* Lists rows as from boundary `b` on. */
static inline void list_rows(run *r, uint32_t b) {
    const trial *t = r->t;
    uint64_t *keys = malloc(8 * t->rows);
    for (uint32_t d = r->first; t->stale && d < r->end; d++)
        for (uint32_t table = 0; table < t->n_tables; table++) {
            frugal_keys k = {.table = table, .keys = keys};
            int64_t bound = 0;
            for (uint64_t key = t->table_rows[table]; key-- > 0;) { /* in any order */
                int64_t own = trial_bound(t, b, d, table, key);
                if (own >= 0) keys[k.n++] = key, bound = own;
            }
            run_expect(r, frugal_secondaries(r->f, d, &k, (uint32_t)bound), FRUGAL_OK, "secondaries", d, b);
        }
    free(keys);
}

/* >>opening */

/* Number `i` of the caller's memory, as it was. Sums of squares are not negative. */
static inline float first_number(const trial *t, int is_state, uint64_t i) {
    float x = (float)test_unit(test_mix2(is_state ? ~t->seed : t->seed, i)) - 0.25f;
    return is_state ? x + 0.25f : reference_round((int)t->rows_as, x, -1);
}

/* The caller's memory, where the trial wants it to be the table. */
static inline void make_matrix(run *r) {
    const trial *t = r->t;
    uint32_t floats = frugal_state_floats(t->optimizer.kind, t->dim);
    r->matrix_weights = t->unaligned + t->rows * (t->weights_stride ? t->weights_stride : t->dim);
    r->matrix = malloc(trial_bytes(t->rows_as) * r->matrix_weights);
    for (uint64_t i = 0; i < r->matrix_weights; i++)
        reference_store((int)t->rows_as, r->matrix, i, first_number(t, 0, i));
    if (t->storage != TRIAL_MATRIX_AND_STATE || floats == 0) return;
    r->matrix_state_floats = t->unaligned + t->rows * (t->state_stride ? t->state_stride : floats);
    r->matrix_state = malloc(4 * r->matrix_state_floats);
    for (uint64_t i = 0; i < r->matrix_state_floats; i++)
        reference_store(REFERENCE_FP32, r->matrix_state, i, first_number(t, 1, i));
}

static inline frugal_desc make_desc(run *r, frugal_table *tables) {
    const trial *t = r->t;
    frugal_desc desc = {.tables = tables,
                        .n_tables = t->n_tables,
                        .dim = t->dim,
                        .rows_as = t->rows_as,
                        .rounding = t->rounding,
                        .devices = t->devices,
                        .max_keys = t->max_keys,
                        .lookahead = t->lookahead,
                        .staging = t->staging,
                        .workers = r->workers ? 0 : t->workers,
                        .shared_workers = r->workers,
                        .defer = t->defer,
                        .mode = t->mode,
                        .alone = t->alone,
                        .reduce = t->reduce,
                        .optimizer = t->optimizer,
                        .first_step = t->first_step,
                        .seed = t->seed,
                        .machines = r->machines,
                        .init_threads = 1 + (uint32_t)(t->seed / 16 % 3),
                        .stuck_seconds = 60};
    for (uint32_t i = 0; i < t->n_tables; i++) {
        tables[i].rows = t->table_rows[i];
        if (t->has_own[i]) tables[i].optimizer = &t->own[i];
        if (r->matrix) continue; /* as it is */
        tables[i].init = (t->seed / 48 + i) % 2 ? FRUGAL_INIT_NORMAL : FRUGAL_INIT_UNIFORM;
        if (tables[i].init == FRUGAL_INIT_NORMAL)
            tables[i].mean = -0.25f, tables[i].deviation = 0.5f;
        else
            tables[i].low = -0.25f, tables[i].high = 0.5f;
    }
    if (t->counted) desc.allocate = test_allocate, desc.release = test_release, desc.user = &r->counter;
    if (r->matrix)
        desc.weights = (char *)r->matrix + t->unaligned * trial_bytes(t->rows_as),
        desc.weights_stride = t->weights_stride;
    if (r->matrix_state) desc.state = (float *)r->matrix_state + t->unaligned, desc.state_stride = t->state_stride;
    if (r->file[0]) desc.file = r->file;
    return desc;
}

/* Reads the whole table: weights[rows][dim], state[rows][state_floats]. */
static inline int read_all(run *r, float *weights, float *state) {
    const trial *t = r->t;
    const reference *ref = &r->e->ref;
    uint64_t *keys = malloc(8 * t->rows);
    for (uint64_t i = 0; i < t->rows; i++) keys[i] = i;
    int good = 1;
    for (uint32_t i = 0; i < t->n_tables; i++) {
        frugal_keys k = {.table = i, .keys = keys, .n = (uint32_t)t->table_rows[i]};
        float *s = ref->state_floats ? state + t->first_row[i] * ref->state_floats : NULL;
        good &= run_expect(r, frugal_read_rows(r->f, &k, weights + t->first_row[i] * t->dim, s), FRUGAL_OK, "read_rows",
                           0, 0);
    }
    free(keys);
    return good;
}

/* The settings of a table, defaults resolved. */
static inline reference_range range_of(const trial *t, uint32_t table) {
    const frugal_optimizer *o = t->has_own[table] ? &t->own[table] : &t->optimizer;
    reference_range range = {.end = t->first_row[table] + t->table_rows[table], .weight_decay = o->weight_decay};
    range.eps = o->eps != 0 ? o->eps : o->kind == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f;
    range.beta1 = o->beta1 != 0 ? o->beta1 : 0.9f, range.beta2 = o->beta2 != 0 ? o->beta2 : 0.999f;
    if (o->weight_decay == 0 && o->kind == FRUGAL_ADAMW) range.weight_decay = 0.01f;
    range.lr_scale = o->lr_scale != 0 ? o->lr_scale : 1;
    range.accumulator = o->initial_accumulator, range.frozen = o->frozen, range.clip_norm = o->clip_norm;
    return range;
}

static inline int open_reference(run *r) {
    const trial *t = r->t;
    reference *ref = &r->e->ref;
    ref->rows = t->rows, ref->dim = t->dim, ref->devices = t->devices;
    ref->optimizer = (int)t->optimizer.kind, ref->mean = t->reduce == FRUGAL_MEAN; /* the same order of names */
    ref->rows_as = (int)t->rows_as, ref->nearest = t->rounding == FRUGAL_NEAREST;  /* here, too */
    ref->seed = t->seed ^ (r->mutation == MUTATE_SEED);
    ref->n_ranges = t->n_tables;
    for (uint32_t i = 0; i < t->n_tables; i++) ref->ranges[i] = range_of(t, i);
    if (!reference_open(ref, 0)) abort();
    float *state = malloc(4 * (ref->rows * ref->state_floats + 1));
    int good = read_all(r, ref->weights, state);
    if (r->matrix_state) memcpy(ref->state, state, 4 * ref->rows * ref->state_floats); /* the caller's, as it was */
    if (good && memcmp(ref->state, state, 4 * ref->rows * ref->state_floats)) run_fail(r, "initial state is wrong");
    free(state);
    return good;
}

static inline int open_instance(run *r, uint64_t first_step) {
    const trial *t = r->t;
    frugal_table tables[TRIAL_TABLES] = {{0}};
    frugal_desc desc = make_desc(r, tables);
    desc.first_step = first_step;
    frugal *f;
    if (!run_expect(r, frugal_open(&desc, &f), FRUGAL_OK, "open", 0, first_step)) return 0;
    run_has(r, f);
    memset(tables, 0xff, sizeof(tables)); /* they were copied */
    for (uint32_t d = r->first; d < r->end; d++) {
        int on_gpu = attach_gpu(t, r->f, &r->work[d], d);
        if (on_gpu < 0) run_fail(r, "cuda_attach(device %u): %s", d, frugal_message());
        if (on_gpu < 0) return 0;
        r->on_gpus |= on_gpu;
        const frugal_cpu_desc *cache = &t->caches[d];
        if (!on_gpu && !run_expect(r, frugal_cpu_attach(r->f, d, cache), FRUGAL_OK, "attach", d, 0)) return 0;
    }
    return 1;
}

static inline void open_workspaces(run *r) {
    const trial *t = r->t;
    for (uint32_t d = r->first; d < r->end; d++) {
        workspace *w = &r->work[d];
        open_batch(t, &w->trained), open_batch(t, &w->announced);
        w->rows = malloc(4 * (size_t)t->max_keys * t->dim), w->grads = malloc(4 * (size_t)t->max_keys * t->dim);
        w->wide = malloc(wide_bytes(t));
    }
}

static inline void run_open(run *r) {
    const trial *t = r->t;
    open_workspaces(r);
    if (t->storage == TRIAL_MATRIX || t->storage == TRIAL_MATRIX_AND_STATE) make_matrix(r);
    if (t->storage == TRIAL_FILE) {
        snprintf(r->file, sizeof(r->file), "/tmp/frugal_property_%d_%llx", (int)getpid(), (unsigned long long)t->seed);
        unlink(r->file);
    }
    if (!open_instance(r, t->first_step) || !open_reference(r)) return;
    list_rows(r, TRIAL_BOUNDARIES);
    if (t->preload) preload(r, 99);
}

/* >>comparing and closing */

/* What frugal does with memory that is not its own: the rows as in the reference, all else as it was. */
static inline void check_matrix(run *r, int is_state) {
    const trial *t = r->t;
    const reference *ref = &r->e->ref;
    const void *matrix = is_state ? r->matrix_state : r->matrix;
    uint64_t n = is_state ? r->matrix_state_floats : r->matrix_weights;
    uint64_t width = is_state ? ref->state_floats : ref->dim, stride = is_state ? t->state_stride : t->weights_stride;
    for (uint64_t i = 0; matrix && i < n; i++) {
        uint64_t at = i - t->unaligned, row = at / (stride ? stride : width), column = at % (stride ? stride : width);
        float found = reference_load(is_state ? REFERENCE_FP32 : (int)t->rows_as, matrix, i);
        float expected = first_number(t, is_state, i);
        if (i >= t->unaligned && column < width)
            expected = (is_state ? ref->state : ref->weights)[row * width + column];
        if (memcmp(&expected, &found, 4)) {
            run_fail(r, "the caller's matrix differs at element %llu", (unsigned long long)i);
            return;
        }
    }
}

static inline void check_tables(run *r, const char *when) {
    const reference *ref = &r->e->ref;
    float *weights = calloc(ref->rows * ref->dim, 4), *state = calloc(ref->rows * ref->state_floats + 1, 4);
    if (read_all(r, weights, state)) {
        if (memcmp(weights, ref->weights, 4 * ref->rows * ref->dim))
            run_fail(r, "%s: weights differ from the reference", when);
        if (memcmp(state, ref->state, 4 * ref->rows * ref->state_floats))
            run_fail(r, "%s: state differs from the reference", when);
    }
    free(weights), free(state);
}

static inline void run_close(run *r) {
    for (uint32_t d = r->first; d < r->end; d++) {
        workspace *w = &r->work[d];
        close_batch(&w->trained), close_batch(&w->announced);
        free(w->rows), free(w->grads), free(w->wide);
    }
    frugal_close(run_has(r, NULL));
    for (uint32_t d = r->first; d < r->end; d++) close_gpu(&r->work[d]); /* streams outlive the instance */
    if (atomic_load(&r->counter.bytes_out) || atomic_load(&r->counter.blocks_out))
        run_fail(r, "%llu bytes in %llu blocks leaked", (unsigned long long)r->counter.bytes_out,
                 (unsigned long long)r->counter.blocks_out);
}

/* A file opened again has the rows and the state that were drained into it. */
static inline void check_reopened(run *r) {
    frugal_table tables[TRIAL_TABLES] = {{0}};
    if (!r->file[0]) return;
    for (uint32_t i = 0; i < r->t->n_tables; i++) tables[i].rows = r->t->table_rows[i];
    frugal_desc desc = {.tables = tables,
                        .n_tables = r->t->n_tables,
                        .dim = r->t->dim,
                        .rows_as = r->t->rows_as,
                        .max_keys = 1,
                        .optimizer = r->t->optimizer,
                        .file = r->file};
    if (!atomic_load(&r->p->failed) && run_expect(r, frugal_open(&desc, &r->f), FRUGAL_OK, "open again", 0, 0))
        check_tables(r, "the file, opened again");
    frugal_close(run_has(r, NULL));
    unlink(r->file);
}

#endif /* INSTANCE_H */
