/* phase.h - the steps between two boundaries: announcing, lookups and updates, by as many threads as the trial says. */
#ifndef PHASE_H
#define PHASE_H

#include "misuse.h"

/* >>announcing */

static inline void run_announced(run *r, uint32_t d, uint32_t step) {
    pthread_mutex_lock(&r->announced_lock);
    r->p->next[d] = step + 1;
    pthread_cond_broadcast(&r->announced);
    pthread_mutex_unlock(&r->announced_lock);
}

/* Returns 0 if it may not be announced yet (`wait` 0) or the run has failed. */
static inline int run_announce(run *r, uint32_t d, uint32_t step, int wait) {
    const trial *t = r->t;
    trial_batch *b = &r->work[d].announced;
    uint64_t s = t->first_step + step;
    if (atomic_load(&r->p->failed)) return 0;
    if (step >= t->ends[d]) { /* again at each step: it may have been cancelled, and changes nothing otherwise */
        if (!run_expect(r, frugal_finish(r->f, d), FRUGAL_OK, "finish", d, s)) return 0;
        run_announced(r, d, step);
        return 1;
    }
    if (wait && trial_chance(t, 9, d, step, t->misuse)) misuse_announce(r, d, step);
    trial_make_batch(t, d, step, r->phase, b);
    frugal_status status = FRUGAL_AGAIN;
    if (!wait || trial_chance(t, 10, d, step, t->try_first)) {
        while ((status = frugal_try_announce(r->f, d, s, &b->batch)) == FRUGAL_AGAIN && wait &&
               !atomic_load(&r->p->failed))
            run_pause(r);
        if (status == FRUGAL_AGAIN) return 0;
    } else {
        status = announce_there(r->f, &r->work[d], d, s, trial_bits(t, 33, d, step) % 2);
    }
    memset(b->keys, 0xff, 8 * (size_t)t->max_keys), memset(b->keys32, 0xff, 4 * (size_t)t->max_keys); /* copied */
    if (!run_expect(r, status, FRUGAL_OK, "announce", d, s)) return 0;
    run_announced(r, d, step);
    return 1;
}

/* A trainer whose batches another thread announces may know that it did, or leave the waiting to its lookup. */
static inline void run_wait_announced(run *r, uint32_t d, uint32_t step) {
    pthread_mutex_lock(&r->announced_lock);
    while (r->p->next[d] <= step && !atomic_load(&r->p->failed)) pthread_cond_wait(&r->announced, &r->announced_lock);
    pthread_mutex_unlock(&r->announced_lock);
}

/* Announces for devices first, first + stride, ... all steps below `to`, step by step. */
static inline void run_announce_to(run *r, uint32_t first, uint32_t stride, uint32_t to) {
    uint32_t step = to, most = 0;
    for (uint32_t d = first; d < r->end; d += stride) {
        if (r->p->next[d] < step) step = r->p->next[d];
        if (r->announce_to[d] > most) most = r->announce_to[d];
    }
    if (to > most) to = most;
    for (; step < to && !atomic_load(&r->p->failed); step++)
        for (uint32_t d = first; d < r->end; d += stride)
            if (r->p->next[d] == step && step < r->announce_to[d]) run_announce(r, d, step, 1);
}

/* >>lookup and update */

static inline void check_records(run *r, uint32_t d, uint32_t step, const frugal_records *k) {
    const trial_batch *b = &r->work[d].trained;
    uint64_t s = r->t->first_step + step;
    int good = k->n == b->n && k->n_unique <= k->n && k->start[0] == 0 && k->start[k->n_unique] == k->n;
    for (uint32_t i = 0; good && i < k->n; i++)
        good = k->record_of[i] < k->n_unique && (r->machines || k->rows[k->record_of[i]] == b->rows[i]);
    for (uint32_t u = 0; good && u < k->n_unique; u++) {
        good = (u == 0 || k->rows[u - 1] < k->rows[u]) && k->start[u] < k->start[u + 1];
        for (uint32_t i = k->start[u]; good && i < k->start[u + 1]; i++)
            good = k->record_of[k->order[i]] == u && (i == k->start[u] || k->order[i - 1] < k->order[i]) &&
                   b->rows[k->order[i]] == b->rows[k->order[k->start[u]]];
    }
    if (!good) run_fail(r, "get_records(device %u, step %llu): inconsistent", d, (unsigned long long)s);
}

/* Sums equal keys into the staging block, with sums of the test's own. */
static inline void write_in_place(run *r, uint32_t d, uint32_t step) {
    uint32_t dim = r->t->dim;
    frugal_records k;
    uint64_t s = r->t->first_step + step;
    if (!run_expect(r, frugal_get_records(r->f, d, s, &k), FRUGAL_OK, "get_records", d, s)) return;
    check_records(r, d, step, &k);
    float *block = malloc(4 * (size_t)dim);
    for (uint32_t u = 0; u < k.n_unique && !atomic_load(&r->p->failed); u++) {
        float *sum = k.block + u * k.stride;
        for (uint32_t i = k.start[u]; i < k.start[u + 1]; i++) {
            uint32_t at = i - k.start[u];
            if (at > 0 && at % 32 == 0) reference_add(sum, block, dim, at == 32);
            reference_add(block, r->work[d].grads + (size_t)k.order[i] * dim, dim, at % 32 == 0);
        }
        reference_add(sum, block, dim, k.start[u + 1] - k.start[u] <= 32);
    }
    free(block);
}

/* After a lookup into the staging block: the batch by position, as an array would have it. */
static inline void read_block(run *r, uint32_t d, uint32_t step) {
    uint64_t dim = r->t->dim, s = r->t->first_step + step;
    frugal_records k;
    if (!run_expect(r, frugal_get_records(r->f, d, s, &k), FRUGAL_OK, "get_records", d, s)) return;
    check_records(r, d, step, &k);
    for (uint32_t i = 0; i < k.n && !atomic_load(&r->p->failed); i++)
        memcpy(r->work[d].rows + i * dim, k.block + k.record_of[i] * k.stride, 4 * dim);
    if (!atomic_load(&r->p->failed)) trial_round(r->work[d].trained.as, r->work[d].rows, k.n * dim);
}

/* The trainer's array: at an address that is no multiple of a vector's. */
static inline void *array_of(const trial *t, workspace *w, frugal_type as) {
    return w->wide + t->unaligned * trial_bytes(as);
}

/* Takes the gaps out of what was looked up. They must be as they were, and what is beside the array. */
static inline void close_gaps(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    frugal_type as = w->trained.as;
    size_t rows = trial_rows_of(&w->trained), bytes = trial_bytes(as);
    for (size_t i = 0; i < rows * t->row_stride + WIDE_BESIDE; i++) {
        size_t at = i - t->unaligned, row = at / t->row_stride, column = at % t->row_stride;
        if (i >= t->unaligned && row < rows && column < t->dim)
            w->rows[row * t->dim + column] = reference_load((int)as, w->wide, i);
        else if (memcmp(w->wide + i * bytes, "\xff\xff\xff\xff", bytes))
            run_fail(r, "lookup(device %u, step %u): wrote beside row %zu", d, step, row);
    }
}

/* A lookup by one of the six ways. */
static inline frugal_status lookup_by(run *r, uint32_t d, uint32_t step, void *rows) {
    const trial *t = r->t;
    const trial_batch *b = &r->work[d].trained;
    uint64_t s = t->first_step + step, stride = t->row_stride > t->dim ? t->row_stride : 0;
    frugal_row_array to = {.rows = rows, .no_wait = trial_chance(t, 14, d, step, t->try_first)};
    frugal_status status = FRUGAL_AGAIN;
    if (rows) to.as = b->as;
    if (b->pools) {
        frugal_bags bags = send_bags(&r->work[d]);
        bags.stride = t->row_stride;
        if (to.as == FRUGAL_FP32) return frugal_lookup_bags(r->f, d, s, &bags, rows);
        to.bags = &bags, to.no_wait = 0;
        return frugal_lookup_into(r->f, d, s, &to);
    }
    if (rows && stride) {
        if (to.as == FRUGAL_FP32) return frugal_lookup_strided(r->f, d, s, rows, stride);
        to.stride = stride, to.no_wait = 0;
    }
    if (!to.no_wait)
        return to.as == FRUGAL_FP32 ? frugal_lookup(r->f, d, s, rows) : frugal_lookup_into(r->f, d, s, &to);
    while (status == FRUGAL_AGAIN && !atomic_load(&r->p->failed)) {
        status = to.as == FRUGAL_FP32 ? frugal_try_lookup(r->f, d, s, rows) : frugal_lookup_into(r->f, d, s, &to);
        if (status == FRUGAL_AGAIN) run_pause(r);
    }
    return status;
}

/* The `nth` lookup of the step. */
static inline void lookup_once(run *r, uint32_t d, uint32_t step, uint64_t nth) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    uint64_t s = t->first_step + step;
    int in_block = !w->trained.pools && trial_chance(t, 18 + (nth << 4), d, step, t->in_block);
    size_t n = trial_rows_of(&w->trained), bytes = n * t->row_stride * trial_bytes(w->trained.as);
    void *here = array_of(t, w, w->trained.as);
    memset(w->rows, 0xff, 4 * (size_t)t->max_keys * t->dim);
    memset(w->wide, 0xff, wide_bytes(t));
    frugal_status status = lookup_by(r, d, step, in_block ? NULL : rows_of(w, here, bytes));
    if (!run_expect(r, status, FRUGAL_OK, "lookup", d, s)) return;
    fetch_rows(w, here, bytes, in_block);
    if (in_block)
        read_block(r, d, step);
    else
        close_gaps(r, d, step);
    if (test_hash(0, w->rows, n * t->dim) != r->e->lookups[step * t->devices + d])
        run_fail(r, "lookup(device %u, step %llu): rows differ from the reference", d, (unsigned long long)s);
}

static inline void run_lookup(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    if (trial_chance(t, 11, d, step, t->misuse)) misuse_train(r, d, step);
    trial_make_batch(t, d, step, t->n_boundaries, &w->trained);
    uint64_t lookups = 1 + (trial_chance(t, 12, d, step, t->repeat) ? trial_bits(t, 13, d, step) % 3 : 0);
    for (uint64_t i = 0; i < lookups && !atomic_load(&r->p->failed); i++) lookup_once(r, d, step, i);
    w->repeated_keys += (lookups - 1) * w->trained.n;
}

static inline int compare_words(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline int is_frozen(const trial *t, uint32_t row) {
    uint32_t table = t->n_tables - 1;
    while (row < t->first_row[table]) table--;
    return (t->has_own[table] ? &t->own[table] : &t->optimizer)->frozen;
}

/* The sum of squares of grads[n][dim], by position, with sums of the test's own. */
static inline double squares_of(const trial *t, const trial_batch *b, const float *grads) {
    uint32_t dim = t->dim;
    uint64_t *sorted = malloc(8 * ((size_t)b->n + 1));
    float *sum = malloc(4 * (size_t)dim), *block = malloc(4 * (size_t)dim);
    double all = 0;
    for (uint32_t i = 0; i < b->n; i++) sorted[i] = (uint64_t)b->rows[i] << 32 | i;
    qsort(sorted, b->n, sizeof *sorted, compare_words);
    for (uint32_t i = 0, n; i < b->n; i += n) {
        for (n = 0; i + n < b->n && sorted[i + n] >> 32 == sorted[i] >> 32; n++) {
            if (n > 0 && n % 32 == 0) reference_add(sum, block, dim, n == 32);
            reference_add(block, grads + (size_t)(uint32_t)sorted[i + n] * dim, dim, n % 32 == 0);
        }
        reference_add(sum, block, dim, n <= 32);
        if (!is_frozen(t, (uint32_t)(sorted[i] >> 32))) all += (double)reference_squares(sum, dim);
    }
    free(sorted), free(sum), free(block);
    return all;
}

static inline void check_squares(run *r, uint32_t d, uint32_t step, const frugal_gradients *g) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    const trial_batch *b = &w->trained;
    float *spread = b->pools ? malloc(4 * ((size_t)b->n + 1) * t->dim) : w->grads;
    reference_bags bags = {b->bags.n_bags, b->bags.offsets, b->bags.weights, b->bags.pooling == FRUGAL_POOL_MEAN};
    double found = -1;
    if (b->pools) reference_spread(&bags, w->grads, t->dim, spread);
    double expected = squares_of(t, b, spread);
    run_expect(r, frugal_sum_squares(r->f, d, t->first_step + step, g, &found), FRUGAL_OK, "sum_squares", d, step);
    if (memcmp(&found, &expected, sizeof found))
        run_fail(r, "sum_squares(device %u, step %u): %.17g, not %.17g", d, step, found, expected);
    if (b->pools) free(spread);
}

static inline void run_update(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    uint64_t s = t->first_step + step;
    if (atomic_load(&r->p->failed)) return;
    trial_gradients(t, d, step, &w->trained, w->rows, w->grads);
    frugal_gradients g = {.lr = trial_lr(t, step), .by_bag = w->trained.pools, .stride = t->row_stride};
    g.scale = trial_scale(t, step);
    if (step % 2) g.n = trial_rows_of(&w->trained);
    int here = d == r->e->brought_device && step == r->e->brought_step;
    if (here && r->mutation == MUTATE_GRADIENT) {
        uint32_t bag = 0; /* the first with a key */
        while (w->trained.pools && w->trained.offsets[bag + 1] == 0) bag++;
        w->grads[(size_t)bag * t->dim] += 0.25f;
    }
    if (w->trained.in_place && w->trained.brings) {
        write_in_place(r, d, step);
        g.records = 1;
    } else if (w->trained.brings) {
        size_t n = trial_rows_of(&w->trained), elements = n * t->row_stride;
        void *here = array_of(t, w, w->trained.grads_as);
        memset(w->wide, 0xff, wide_bytes(t));
        for (size_t i = 0; i < n * t->dim; i++)
            reference_store((int)w->trained.grads_as, here, i / t->dim * t->row_stride + i % t->dim, w->grads[i]);
        g.grads = send_grads(w, here, elements * trial_bytes(w->trained.grads_as)), g.as = w->trained.grads_as;
    }
    if (atomic_load(&r->p->failed)) return;
    if (w->trained.brings && trial_chance(t, 68, d, step, 20)) check_squares(r, d, step, &g);
    frugal_gradients none = {.lr = g.lr};
    const frugal_gradients *nothing = trial_bits(t, 15, d, step) % 2 ? NULL : &none;
    int brings = w->trained.brings && !(here && r->mutation == MUTATE_SKIP);
    run_expect(r, frugal_update(r->f, d, s, brings ? &g : nothing), FRUGAL_OK, "update", d, s);
    memset(w->grads, 0xff, 4 * (size_t)t->max_keys * t->dim);
    memset(w->wide, 0xff, wide_bytes(t)); /* they may be reused */
}

/* >>threads */

typedef struct hand { /* a thread that drives devices first, first + stride, ... */
    pthread_t thread;
    run *r;
    uint32_t first, stride;
    int trains, loads, helps;
} hand;

/* A lookup behind the end of the device's data, before or after its loader has said so. */
static inline void run_look_beyond(run *r, uint32_t d, uint32_t step) {
    uint64_t s = r->t->first_step + step;
    if (atomic_load(&r->p->failed) || !trial_chance(r->t, 62, d, step, 50)) return;
    if (step > r->t->ends[d]) run_wait_announced(r, d, step); /* until then the next lookup is an earlier one */
    run_expect(r, frugal_lookup(r->f, d, s, NULL), FRUGAL_FINISHED, "lookup (finished)", d, s);
}

static inline void hand_train(run *r, const hand *h) {
    const trial *t = r->t;
    for (uint32_t step = r->from; step < r->to && !atomic_load(&r->p->failed); step++) {
        if (h->loads) run_announce_to(r, h->first, h->stride, step + t->ahead + 1);
        for (uint32_t d = h->first; d < r->end; d += h->stride) {
            if (step >= t->ends[d]) {
                run_look_beyond(r, d, step);
                continue;
            }
            if (!t->lookups_wait) run_wait_announced(r, d, step);
            run_lookup(r, d, step);
            if (!t->lookups_first) run_update(r, d, step);
        }
        for (uint32_t d = h->first; t->lookups_first && d < r->end; d += h->stride)
            if (step < t->ends[d]) run_update(r, d, step);
        for (uint32_t d = h->first; h->loads && d < r->end; d += h->stride) /* further ahead, if it may be */
            if (r->p->next[d] < r->announce_to[d] && trial_chance(t, 16, d, step, 30))
                run_announce(r, d, r->p->next[d], 0);
    }
}

/* One of the threads that a helper lends, for a while. */
static inline void *visit_main(void *argument) {
    run *r = argument;
    uint64_t pieces = trial_bits(r->t, 19, 0, atomic_fetch_add(&r->visits, 1)) % 300;
    while (pieces-- > 0 && !atomic_load(&r->phase_over)) run_pause(r);
    return NULL;
}

static inline void hand_help(run *r) {
    while (!atomic_load(&r->phase_over)) {
        pthread_t visitor;
        if (pthread_create(&visitor, NULL, visit_main, r)) abort();
        pthread_join(visitor, NULL);
    }
}

static inline void *hand_main(void *argument) {
    hand *h = argument;
    run *r = h->r;
    if (h->helps) hand_help(r);
    if (h->trains) hand_train(r, h);
    if (h->loads) run_announce_to(r, h->first, h->stride, UINT32_MAX);
    return NULL;
}

/* At most one for each device of the machine. */
static inline uint32_t hands_of(const run *r, uint32_t wanted) {
    return wanted < r->end - r->first ? wanted : r->end - r->first;
}

/* Trains up to the boundary, and announces as far as it says; no call is under way when it returns. */
static inline void run_phase(run *r) {
    const trial *t = r->t;
    hand hands[2 * TRIAL_DEVICES + TRIAL_HELPERS];
    uint32_t n = 0, trainers = hands_of(r, t->trainers), loaders = hands_of(r, t->loaders);
    for (uint32_t i = 0; i < trainers; i++)
        hands[n++] = (hand){.r = r, .first = r->first + i, .stride = trainers, .trains = 1, .loads = loaders == 0};
    for (uint32_t i = 0; i < loaders; i++)
        hands[n++] = (hand){.r = r, .first = r->first + i, .stride = loaders, .loads = 1};
    for (uint32_t i = 0; i < t->helpers; i++) hands[n++] = (hand){.r = r, .first = r->end, .stride = 1, .helps = 1};
    atomic_store(&r->phase_over, 0);
    for (uint32_t i = 1; i < n; i++)
        if (pthread_create(&hands[i].thread, NULL, hand_main, &hands[i])) abort();
    hand_main(&hands[0]);
    for (uint32_t i = 1; i < n; i++) {
        if (hands[i].helps) atomic_store(&r->phase_over, 1);
        pthread_join(hands[i].thread, NULL);
    }
}

#endif /* PHASE_H */
