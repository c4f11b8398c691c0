/* boundary.h - what happens between two phases: rows are read and written, and the instance is cancelled, drained,
 * opened again; and what it has counted. */
#ifndef BOUNDARY_H
#define BOUNDARY_H

#include "instance.h"

/* The rows of this machine, by rising key. */
static inline void check_own(run *r, uint32_t b) {
    const trial *t = r->t;
    float floats[TRIAL_DIM];
    uint32_t me = r->machines->wire->machine;
    for (uint32_t i = 0; i < t->n_tables; i++) {
        const void *weights;
        uint64_t stride, own = 0;
        if (!run_expect(r, frugal_view(r->f, i, &weights, &stride), FRUGAL_OK, "view", i, b)) return;
        for (uint64_t row = t->first_row[i]; row < t->first_row[i] + t->table_rows[i]; row++) {
            if (trial_home(t, row) != me) continue;
            for (uint32_t j = 0; j < t->dim; j++)
                floats[j] = reference_load((int)t->rows_as, weights, own * stride + j);
            own++;
            if (test_hash(0, floats, t->dim) != r->e->by_row[b * t->rows + row])
                run_fail(r, "machine %u, boundary %u (before step %u): row %llu differs", me, b, t->boundaries[b].at,
                         (unsigned long long)row);
        }
    }
}

static inline void check_whole(run *r, uint32_t b) {
    const trial *t = r->t;
    uint64_t hash = 0;
    float floats[TRIAL_DIM];
    if (r->machines) {
        check_own(r, b);
        return;
    }
    for (uint32_t i = 0; i < t->n_tables; i++) {
        const void *weights;
        uint64_t stride;
        if (!run_expect(r, frugal_view(r->f, i, &weights, &stride), FRUGAL_OK, "view", i, b)) return;
        for (uint64_t row = 0; row < t->table_rows[i]; row++) {
            for (uint32_t j = 0; j < t->dim; j++)
                floats[j] = reference_load((int)t->rows_as, weights, row * stride + j);
            hash = test_hash(hash, floats, t->dim);
        }
    }
    if (hash != r->e->whole[b])
        run_fail(r, "boundary %u (before step %u): the drained table differs", b, t->boundaries[b].at);
}

static inline void check_read(run *r, uint32_t b) {
    uint64_t keys[BOUNDARY_ROWS], hash = 0;
    const reference *ref = &r->e->ref;
    frugal_keys k = boundary_keys(r->t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    run_expect(r, frugal_read_rows(r->f, &k, weights, ref->state_floats ? state : NULL), FRUGAL_OK, "read_rows", 0, b);
    for (uint32_t i = 0; i < k.n; i++) {
        hash = test_hash(hash, weights + (size_t)i * ref->dim, ref->dim);
        hash = test_hash(hash, state + (size_t)i * ref->state_floats, ref->state_floats);
    }
    if (hash != r->e->read[b]) run_fail(r, "boundary %u (before step %u): rows read differ", b, r->t->boundaries[b].at);
    free(weights), free(state);
}

/* Leaves the keys that this machine may write. */
static inline void keep_own(const run *r, frugal_keys *k, uint64_t *keys, float *weights, float *state) {
    size_t dim = r->e->ref.dim, floats = r->e->ref.state_floats;
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        if (!is_own(r, k->table, keys[i])) continue;
        memmove(weights + n * dim, weights + i * dim, 4 * dim);
        memmove(state + n * floats, state + i * floats, 4 * floats);
        keys[n++] = keys[i];
    }
    k->n = n;
}

static inline void write_rows(run *r, uint32_t b, frugal_status wanted) {
    uint64_t keys[BOUNDARY_ROWS];
    const reference *ref = &r->e->ref;
    frugal_keys k = boundary_keys(r->t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    boundary_values(r->t, b, ref, k.n, weights, state);
    if (r->machines) keep_own(r, &k, keys, weights, state);
    run_expect(r, frugal_write_rows(r->f, &k, weights, ref->state_floats ? state : NULL), wanted, "write_rows", 0, b);
    free(weights), free(state);
}

/* >>statistics */

/* Adds what is counted since open. */
static inline void add_stats(frugal_stats *sum, const frugal_stats *s) {
    sum->steps += s->steps, sum->keys += s->keys, sum->unique_rows += s->unique_rows;
    sum->hits += s->hits, sum->misses += s->misses, sum->secondary_hits += s->secondary_hits;
    sum->flushed += s->flushed, sum->flushed_at_close += s->flushed_at_close;
    sum->alone += s->alone, sum->shared += s->shared, sum->in_place += s->in_place;
    for (int i = 0; i < 64; i++) sum->flushed_by_urgency[i] += s->flushed_by_urgency[i];
}

static inline void check_stats(run *r) {
    const trial *t = r->t;
    frugal_stats s;
    uint64_t urgencies = 0, queued = 0, repeated = 0, cached = 0;
    frugal_get_stats(r->f, &s);
    add_stats(&s, &r->before);
    for (int i = 0; i < 64; i++) urgencies += s.flushed_by_urgency[i], queued += s.queue_depth[i] != 0;
    for (uint32_t d = 0; d < t->devices; d++) repeated += r->work[d].repeated_keys, cached += t->caches[d].cache_rows;
    const char *wrong = NULL;
    if (s.steps != t->steps) wrong = "steps";
    if (s.keys < r->e->keys || s.keys > r->e->keys + repeated) wrong = "keys";
    if (s.unique_rows < r->e->unique_rows || (!repeated && s.unique_rows != r->e->unique_rows)) wrong = "unique_rows";
    if (s.hits + s.misses < s.unique_rows || (!repeated && s.hits + s.misses != s.unique_rows)) wrong = "hits + misses";
    if (cached == 0 && !t->stale && s.hits) wrong = "hits without a cache";
    if (s.secondary_hits != r->e->stale.stale_reads) wrong = "secondary_hits";
    if (s.flushed + s.in_place != r->e->flushed) wrong = "flushed + in_place";
    if (s.alone != r->e->alone) wrong = "alone";
    if (s.shared != r->e->shared) wrong = "shared";
    int staged = t->alone == FRUGAL_ALONE_STAGED || (t->alone == FRUGAL_ALONE_DEFAULT && t->storage == TRIAL_FILE);
    if (staged && s.in_place) wrong = "in_place, though staged";
    int reached = !r->on_gpus || t->storage != TRIAL_FILE; /* a GPU may not reach a file's rows */
    if (!staged && reached && s.in_place != r->e->alone_brought) wrong = "in_place";
    if (urgencies + s.flushed_at_close != s.flushed) wrong = "flushed_by_urgency + flushed_at_close";
    if (queued) wrong = "queue_depth after a drain";
    if (s.staging_in_use) wrong = "staging_in_use after a drain";
    int queues = (t->workers || t->defer) && (t->devices > 1 || staged);
    uint32_t ring = t->lookahead < 2 ? t->lookahead + 2 : 4, by_default = queues ? ring : 1;
    if (s.staging_depth != (t->staging ? t->staging : by_default)) wrong = "staging_depth";
    if (s.state_bytes > 9 * t->rows) wrong = "state_bytes";
    if (s.stall_seconds < 0 || s.announce_wait_seconds < 0 || s.worker_busy_seconds < 0) wrong = "seconds";
    if (wrong)
        run_fail(r,
                 "stats: %s; keys %llu/%llu, unique %llu/%llu, hits %llu, misses %llu, flushed %llu and in place "
                 "%llu/%llu, alone %llu/%llu, shared %llu/%llu",
                 wrong, (unsigned long long)s.keys, (unsigned long long)r->e->keys, (unsigned long long)s.unique_rows,
                 (unsigned long long)r->e->unique_rows, (unsigned long long)s.hits, (unsigned long long)s.misses,
                 (unsigned long long)s.flushed, (unsigned long long)s.in_place, (unsigned long long)r->e->flushed,
                 (unsigned long long)s.alone, (unsigned long long)r->e->alone, (unsigned long long)s.shared,
                 (unsigned long long)r->e->shared);
}

/* >>boundary */

/* The same rows and state in a new instance, whose first step is `step`. */
static inline void run_reopen(run *r, uint64_t step) {
    frugal_stats s;
    frugal_get_stats(r->f, &s);
    add_stats(&r->before, &s);
    frugal_close(run_has(r, NULL));
    open_instance(r, step);
}

/* Sets counts of some keys of table 0, and ranks some. */
static inline void change_counts(run *r, uint32_t b) {
    uint64_t rows = frugal_settings(r->f)->tables[0].rows, keys[8], counts[8];
    uint32_t n = rows < 8 ? (uint32_t)rows : 8;
    for (uint32_t i = 0; i < n; i++) keys[i] = trial_bits(r->t, 52, b, i) % rows, counts[i] = keys[i] * keys[i];
    run_expect(r, frugal_set_counts(r->f, &(frugal_keys){.table = 0, .keys = keys, .n = n}, counts), FRUGAL_OK,
               "set_counts", 0, b);
    run_expect(r, frugal_rank_keys(r->f, 0, n, keys, counts), FRUGAL_OK, "rank_keys", 0, b);
}

static inline void run_boundary(run *r, uint32_t b) {
    const trial *t = r->t;
    const trial_boundary *at = &t->boundaries[b];
    uint64_t s = t->first_step + at->at;
    uint32_t announced = 0;
    for (uint32_t d = 0; d < t->devices; d++) /* a device that has finished announces nothing */
        if (r->p->next[d] <= t->ends[d] && r->p->next[d] > announced) announced = r->p->next[d];
    if ((at->actions & TRIAL_MISUSE) && announced > at->at) {
        write_rows(r, b, FRUGAL_ERR_BUSY);
        run_expect(r, frugal_release_holders(r->f), FRUGAL_ERR_BUSY, "release_holders", 0, s);
        run_expect(r, frugal_cancel(r->f, t->first_step + announced + 1), FRUGAL_ERR_ORDER, "cancel (ahead)", 0, s);
        if (s > 0) run_expect(r, frugal_cancel(r->f, s - 1), FRUGAL_ERR_ORDER, "cancel (committed)", 0, s);
    }
    if (at->actions & TRIAL_CANCEL && at->cancel_from <= announced) {
        run_expect(r, frugal_cancel(r->f, t->first_step + at->cancel_from), FRUGAL_OK, "cancel", 0,
                   t->first_step + at->cancel_from);
        for (uint32_t d = r->first; d < r->end; d++)
            if (r->p->next[d] > at->cancel_from) r->p->next[d] = at->cancel_from;
    }
    if (at->actions & TRIAL_READ && !(at->actions & TRIAL_WRITE)) check_read(r, b); /* not drained, perhaps */
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_drain(r->f), FRUGAL_OK, "drain", 0, s);
    if (at->actions & TRIAL_DRAIN && at->actions & TRIAL_COUNTS) change_counts(r, b);
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_verify(r->f), FRUGAL_OK, "verify", 0, s);
    if (at->actions & TRIAL_WRITE) write_rows(r, b, FRUGAL_OK), check_read(r, b);
    if (at->actions & TRIAL_REOPEN) run_reopen(r, s);
    if (!atomic_load(&r->p->failed) && at->actions & TRIAL_LIST)
        list_rows(r, b), r->listed = b;
    else if (!atomic_load(&r->p->failed) && at->actions & TRIAL_REOPEN)
        list_rows(r, r->listed);
    if (atomic_load(&r->p->failed)) return;
    if (at->actions & TRIAL_DRAIN) check_whole(r, b);
    if (at->actions & TRIAL_RELEASE) {
        run_expect(r, frugal_release_holders(r->f), FRUGAL_OK, "release_holders", 0, s);
        if (t->preload) preload(r, b);
    }
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_verify(r->f), FRUGAL_OK, "verify", 0, s);
}

#endif /* BOUNDARY_H */
