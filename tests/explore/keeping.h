/* keeping.h - streams that keep updates, as a GPU does (src/cuda/keeping.cuh): copies of rows in memory of their own,
 * and recalls, which the stream's thread does once it has done the step before, also while it waits at a gate. Part of
 * runtime_world.h. */
#ifndef EXPLORE_KEEPING_H
#define EXPLORE_KEEPING_H

enum { STATE = 2 * DIM + 1, RECALLS = 64 };

typedef struct recall_job { /* rows NULL: all */
    uint64_t step;
    const uint32_t *rows;
    uint32_t n;
} recall_job;

typedef struct keeping {
    uint32_t room;                   /* constant: bit r: row r may have a copy */
    int evicts;                      /* constant: a lookup writes back, and drops, all rows but those of the batch */
    uint32_t has, dirty;             /* bit r; the stream's; `verify` reads them between steps */
    float copies[ROWS][DIM + STATE]; /* likewise */
    recall_job jobs[RECALLS];        /* handed over by `asked` */
    uint32_t asked, answered;        /* atomic; written under the device's lock; by the stream */
    uint32_t asked_for[FRUGAL_P2F_SLOTS]; /* `asked`, after the recalls of step t mod 64 */
    int refused;                          /* under the device's lock */
    uint64_t kept, dirtied, cleaned;      /* atomic; the stream's */
    uint64_t kept_seen, cleaned_seen;     /* of polls */
} keeping;

static keeping *make_keeping(uint64_t seed, uint32_t d) {
    uint64_t bits = test_mix3(seed, d, 23);
    keeping *k = explore_alloc(sizeof *k, 64);
    k->room = (uint32_t)(bits % 3 ? ~UINT64_C(0) : bits / 4);
    k->evicts = bits / 1024 % 4 == 0;
    return k;
}

static int has_bit(uint32_t bits, uint32_t row) {
    return bits >> row & 1;
}

/* NULL: there is none. After refresh_copies each that a batch has is current. */
static const float *copy_of(const stream *s, uint32_t row) {
    return s->keeping && has_bit(s->keeping->has, row) ? s->keeping->copies[row] : NULL;
}

static void clean_row(const stream *s, uint32_t row) {
    keeping *k = s->keeping;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    if (!has_bit(k->dirty, row)) return;
    memcpy(store->weights + row * store->weights_stride, k->copies[row], DIM * sizeof(float));
    if (store->state_floats > 0)
        memcpy(store->state + row * store->state_stride, k->copies[row] + DIM, store->state_floats * sizeof(float));
    k->dirty &= ~(UINT32_C(1) << row);
    frugal_add_relaxed(&k->cleaned, 1); /* relaxed: the end of the job, or of the step, releases it */
}

/* >>the stream's thread */

/* Does what it is asked for, as far as the step before is done. Returns 0 if there was nothing. */
static int do_recalls(const stream *s) {
    keeping *k = s->keeping;
    if (!k || frugal_load_relaxed(&s->broken)) return 0;
    uint32_t first = frugal_load_relaxed(&k->answered), n = first;
    for (; n < frugal_load_acquire(&k->asked); n++) {
        const recall_job *job = &k->jobs[n];
        if (frugal_load_relaxed(&s->finished) < job->step) break;
        for (uint32_t i = 0; i < (job->rows ? job->n : w.ref.rows); i++) clean_row(s, job->rows ? job->rows[i] : i);
        frugal_store_release(&k->answered, n + 1);
    }
    return n > first;
}

/* Copies the rows of a batch that have no current copy. */
static void refresh_copies(const stream *s, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    keeping *k = s->keeping;
    uint32_t batch = 0;
    if (!k) return;
    for (uint32_t u = 0; u < r->n_unique; u++) batch |= UINT32_C(1) << r->rows[u];
    for (uint32_t row = 0; k->evicts && row < w.ref.rows; row++)
        if (!has_bit(batch, row)) clean_row(s, row);
    if (k->evicts) k->has &= batch;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (!has_bit(k->room, row) || (has_bit(k->has, row) && frugal_copy_is_current(step->valid, u))) continue;
        EXPLORE_EXPECT(!has_bit(k->dirty, row)); /* who may read the host row finds all updates there */
        memcpy(k->copies[row], store->weights + row * store->weights_stride, DIM * sizeof(float));
        if (store->state_floats > 0)
            memcpy(k->copies[row] + DIM, store->state + row * store->state_stride, store->state_floats * sizeof(float));
        k->has |= UINT32_C(1) << row;
    }
}

/* As update_kept of src/cpu.c. */
static void update_kept_rows(const stream *s, const frugal_step *step, const float *grads) {
    const frugal_records *r = &step->records;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    keeping *k = s->keeping;
    uint64_t placed = 0;
    frugal_step in_place = *step;
    EXPLORE_EXPECT(store->state_floats <= STATE);
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u], group = frugal_group_of(store->groups, store->n_groups, row);
        if (frugal_is_alone(step->alone, u) && (!has_bit(k->has, row) || store->groups[group].optimizer.frozen))
            placed |= UINT64_C(1) << u;
    }
    in_place.alone = &placed;
    frugal_update_rows(store, &in_place, NULL, grads, 0, r->n_unique);
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (!has_bit(k->has, row)) continue;
        frugal_apply(store, step->hyper, row, k->copies[row], k->copies[row] + DIM,
                     frugal_gradient_of(&in_place, DIM, grads, u));
        if (!frugal_is_alone(step->alone, u) || frugal_is_alone(&placed, u)) continue;
        frugal_add_relaxed(&k->kept, 1); /* relaxed, both: the end of the step releases it */
        if (!has_bit(k->dirty, row)) frugal_add_relaxed(&k->dirtied, 1);
        k->dirty |= UINT32_C(1) << row;
    }
}

/* >>operations, by other threads */

static void ask(keeping *k, uint64_t step, const uint32_t *rows, uint32_t n) {
    uint32_t asked = frugal_load_relaxed(&k->asked);
    EXPLORE_EXPECT(asked < RECALLS);
    k->jobs[asked] = (recall_job){step, rows, n};
    frugal_store_release(&k->asked, asked + 1);
}

static void finish_recalls(const stream *s) {
    const keeping *k = s->keeping;
    while (k && frugal_load_acquire(&k->answered) < frugal_load_acquire(&k->asked) && !frugal_load_relaxed(&s->broken))
        explore_wait();
}

static frugal_status stream_write_back(void *device, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    ask(s->keeping, 0, rows, n);
    finish_recalls(s);
    return frugal_load_relaxed(&s->broken) ? frugal_fail(FRUGAL_ERR_CUDA, "broken") : FRUGAL_OK;
}

static frugal_status stream_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    keeping *k = s->keeping;
    EXPLORE_EXPECT(!done || frugal_load_relaxed(&s->finished) >= step);
    if (frugal_load_relaxed(&s->broken)) return frugal_fail(FRUGAL_ERR_CUDA, "broken");
    if (s->grumbles && !k->refused && explore_choose(2)) {
        k->refused = 1;
        return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    }
    if (!done && explore_choose(2)) return FRUGAL_AGAIN;
    ask(k, step, rows, n);
    k->asked_for[step % FRUGAL_P2F_SLOTS] = frugal_load_relaxed(&k->asked);
    return FRUGAL_OK;
}

static int stream_recalled(void *device, uint64_t step) {
    const keeping *k = ((stream *)device)->keeping;
    return frugal_load_acquire(&k->answered) >= k->asked_for[step % FRUGAL_P2F_SLOTS];
}

/* Says what `finished`, or `answered`, has released. By polls. */
static void count_kept(stream *s) {
    keeping *k = s->keeping;
    if (!k) return;
    (void)frugal_load_acquire(&k->answered);
    uint64_t kept = frugal_load_relaxed(&k->kept), cleaned = frugal_load_relaxed(&k->cleaned);
    uint64_t dirtied = frugal_load_relaxed(&k->dirtied);
    frugal_count_kept(instance_of(s->device), number_of(s->device), kept - k->kept_seen, cleaned - k->cleaned_seen,
                      dirtied > cleaned ? dirtied - cleaned : 0);
    k->kept_seen = kept, k->cleaned_seen = cleaned;
}

static int are_copies_right(const stream *s) {
    const keeping *k = s->keeping;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    for (uint32_t row = 0; k && row < w.ref.rows; row++) {
        if (!has_bit(k->has, row) || !frugal_is_current(instance_of(s->device), number_of(s->device), row)) continue;
        if (has_bit(k->dirty, row)) return 0;
        if (memcmp(k->copies[row], store->weights + row * store->weights_stride, DIM * sizeof(float))) return 0;
    }
    return 1;
}

#endif /* EXPLORE_KEEPING_H */
