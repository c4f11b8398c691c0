/* clocks.c - the clocks of secondaries: which copy may be read at a step, although it lacks updates.
 *
 * frugal_secondaries (secondaries.c) lists rows for a device, with a bound. The device keeps a copy of each, a
 * *secondary*, in memory of its own beside its cache, so nothing evicts it. Such a copy may lack the newest `bound`
 * contributions to its row. This is HET-GMP's bound within an embedding (Miao et al., SIGMOD '22, section 5.3), with
 * clocks that the plan moves, and not the clock on the wall. All other rows of all devices keep the holder rule.
 *
 * THE CLOCKS. A *contribution* is a batch that has the row and is not read-only: one device, one step, whether it
 * brings gradients in the end or not. The row's clock at step t is the number of contributions in steps below t. A
 * copy's clock is the row's clock at the step of its fetch, and one more for each contribution of its own device since.
 * So the row's clock less the copy's clock is the number of contributions of other devices, from the step of the fetch
 * on, that the copy lacks. If this is at most the bound, the copy is read at t; else the device reads the host row and
 * fetches the copy anew. The device's own gradients go to the host row, as all gradients do, and to its copy.
 *
 * WHY THE BITS DEPEND ON DATA, SETTINGS, LISTS AND BOUNDS ALONE
 *   (a) The thread that gives the state machine the last batch of t (announce.c) reads the clocks for all devices, and
 *       then adds the contributions in t, which must not count at t. A device's batches are given in order, each after
 *       the clocks of the one before are done, under the device's lock. So when all devices have given t, the clocks
 *       are those of all steps below t, and no other thread is at them. So a decision does not depend on who announces
 *       first, and the clocks need no atomic operations.
 *   (b) A decision depends on the device's own earlier decisions and on the rows' clocks. Both are functions of the
 *       batches up to t, not of the lookahead, the workers, or the cache.
 *   (c) What a copy contains at t follows from the decisions: the host row as of the gate of the step of the fetch,
 *       which is exact, and the device's own steps since, in order. A row that the device touches alone and updates in
 *       place takes the same step twice, on the host row and on the copy. The copy is not replaced by the host row
 *       then (as a cached copy is, which has the same bits): that would be a fetch that depends on the way of
 *       frugal_alone.
 *   (d) Cancelling takes clocks back to what they were, instead of dropping copies, because how far announcements had
 *       run ahead is a matter of timing. Each announcement keeps the earlier clocks of the copies that it touches. They
 *       are there until its ring entry is used again, which is not before its step is closed. Contents need nothing,
 *       since no cancelled step has been looked up.
 *
 * BOUND 0 IS THE HOLDER RULE. A copy that lacks nothing has the bits of the host row: since its fetch only its device
 * has contributed, and each of these steps was the same on both. So with bound 0 all bits are exact. (Hits may differ:
 * at a step at which several devices contribute, every copy that lacks nothing is read, not only the holder's; and a
 * copy that was fetched by a read-only batch of a device that is not the holder is read.)
 *
 * WHAT ELSE THE CLOCKS BOUND. HET-GMP also bounds the difference between the clocks of two rows i, j of one sample,
 * scaled by frequency: for p_i >= p_j it wants |g_i p_j / p_i - g_j| <= s, where g are the copies' clocks. With the
 * rows' own clocks as frequencies, p = c, this follows from the bound within a row: let the copies lack m_i, m_j <= s
 * contributions, so g = c - m. Then g_i c_j / c_i - g_j = m_j - m_i c_j / c_i. Both terms are between 0 and s, because
 * c_j <= c_i; so their difference is between -s and s. (tests/unit/host/test_secondaries.c tries it.) With frequencies
 * of the data set, as published, copies that lack nothing fail the test, too; it is not enforced
 * (docs/papers/het-gmp.md).
 *
 * WHAT DROPS COPIES, so that the next touch fetches them: a call of frugal_secondaries, for any device; writing a row;
 * releasing the holders. All need a drained instance with nothing announced. A run that is resumed from a save begins
 * without copies. To have its bits, the run that goes on calls frugal_secondaries at the step of the save.
 *
 * Memory: per listed row of a device 28 bytes, 16 to 32 of the hash table, and what the device needs for the copy; per
 * device 20 (L + 1) + 4 bytes a key of the largest batch. The work of an
 * announcement is a probe of the hash table for each unique row, and for those found a search in the device's list,
 * onward from the row before.
 */
#include "steps.h"

FRUGAL_INTERNAL uint64_t clock_slot(const clocks *c, uint32_t row) {
    return (row * UINT64_C(0x9E3779B97F4A7C15)) >> 32 & c->mask;
}

/* The index of a row that some device lists, or NO_ROW_INDEX. */
#define NO_ROW_INDEX UINT32_MAX
static uint32_t clock_index(const clocks *c, uint32_t row) {
    for (uint64_t at = clock_slot(c, row);; at = (at + 1) & c->mask) {
        if (c->slots[at] == NO_CLOCK) return NO_ROW_INDEX;
        if (c->slots[at] >> 32 == row) return (uint32_t)c->slots[at];
    }
}

/* The number of rows below `row` in the device's list; it is not below `from`. Searched in growing steps, because the
 * rows of a batch rise. */
static uint32_t rows_below(const device_clocks *own, uint32_t from, uint32_t row) {
    uint32_t low = from; /* all rows before it are below */
    uint64_t step = 1;
    while (step <= own->n - low && own->rows[low + step - 1] < row) low += (uint32_t)step, step *= 2;
    for (uint64_t n = LEAST(step, own->n - low); n > 0;) { /* of the n rows from `low` on, some may be below */
        uint32_t half = (uint32_t)(n / 2);
        if (own->rows[low + half] < row)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low;
}

/* The copy of a row that the device lists, or its number of rows. */
static uint32_t own_copy(const device_clocks *own, uint32_t row) {
    uint32_t at = rows_below(own, 0, row);
    return at < own->n && own->rows[at] == row ? at : own->n;
}

/* Decides whether the copy may be read, and moves its clock to what it is after the step. Returns the number of
 * contributions that it lacks, or NO_CLOCK if it must be fetched. */
static uint64_t pass_clock(const clocks *c, device_clocks *own, uint32_t copy, int contributes) {
    uint64_t now = c->of_row[own->indices[copy]], lacks = now - own->of_copy[copy];
    uint64_t bound = own->bounds[copy] == UINT32_MAX ? UINT64_MAX : own->bounds[copy];
    if (own->of_copy[copy] == NO_CLOCK || lacks > bound) {
        own->of_copy[copy] = now;
        lacks = NO_CLOCK;
    }
    own->of_copy[copy] += (uint64_t)contributes;
    return lacks;
}

/* Adds the contributions of all devices, once they have read the clocks. */
static void add_contributions(frugal *f) {
    clocks *c = f->clocks;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        for (uint32_t i = 0; i < c->devices[d].n_pending; i++) c->of_row[c->devices[d].pending[i]]++;
}

/* Decides which of the device's copies may be read at a step. */
static void read_clocks(frugal *f, uint32_t d, uint64_t step) {
    clocks *c = f->clocks;
    const host_batch *b = batch_at(f, d, step);
    device_clocks *own = &c->devices[d];
    uint64_t entry = step % (f->desc.lookahead + 1);
    frugal_secondary *touched = own->touched + entry * own->most;
    uint64_t *before = own->before + entry * own->most;
    uint32_t at = 0, n = 0, stale = 0;
    own->n_pending = 0;
    for (uint32_t u = 0; u < b->n_unique; u++) {
        if (u + AHEAD_UPDATES < b->n_unique)
            __builtin_prefetch(&c->slots[clock_slot(c, b->rows[u + AHEAD_UPDATES])], 0, 3);
        uint32_t index = clock_index(c, b->rows[u]);
        if (index == NO_ROW_INDEX) continue;
        if (!b->read_only) own->pending[own->n_pending++] = index;
        at = rows_below(own, at, b->rows[u]);
        if (at == own->n || own->rows[at] != b->rows[u]) continue;
        before[n] = own->of_copy[at];
        uint64_t lacks = pass_clock(c, own, at, !b->read_only);
        touched[n++] = (frugal_secondary){u, at, lacks != NO_CLOCK};
        stale += lacks != NO_CLOCK && lacks > 0;
    }
    own->n_touched[entry] = n, own->n_stale[entry] = stale;
}

/* A device's batch of the step is about to be given to the state machine. The last device of the step reads the clocks
 * for all, because those of the step before must be moved first; and before its batch is given, because a device may
 * look its batch up as soon as the state machine has those of all. Steps are sealed in order (frugal_priv_seal). */
FRUGAL_INTERNAL void announce_clocks(frugal *f, uint64_t step) {
    clocks *c = f->clocks;
    if (!c) return;
    atomic_count *left = &c->left[step % (f->desc.lookahead + 1)];
    /* [F21] acq_rel: the device that counts down last has acquired the batches of all; pairs with itself. */
    if (frugal_add_acq_rel(left, (uint32_t)-1) != 1) return;
    for (uint32_t d = 0; d < f->desc.devices; d++) read_clocks(f, d, step);
    add_contributions(f);
    frugal_store_relaxed(left, f->desc.devices); /* relaxed: published by `sealed`, as the clocks are */
}

/* The secondaries of an announced batch: *n of them. */
FRUGAL_INTERNAL const frugal_secondary *secondaries_of(const frugal *f, uint32_t d, uint64_t step, uint32_t *n) {
    *n = 0;
    if (!f->clocks) return NULL;
    const device_clocks *own = &f->clocks->devices[d];
    uint64_t entry = step % (f->desc.lookahead + 1);
    *n = own->n_touched[entry];
    return *n ? own->touched + entry * own->most : NULL;
}

/* How many of them are read although they lack contributions. */
FRUGAL_INTERNAL uint32_t count_stale(const frugal *f, uint32_t d, uint64_t step) {
    return f->clocks ? f->clocks->devices[d].n_stale[step % (f->desc.lookahead + 1)] : 0;
}

/* Takes back what reading the clocks for a step has done. */
static void cancel_read(frugal *f, uint32_t d, uint64_t step) {
    clocks *c = f->clocks;
    device_clocks *own = &c->devices[d];
    uint64_t entry = step % (f->desc.lookahead + 1);
    const host_batch *b = batch_at(f, d, step);
    for (uint32_t i = 0; i < own->n_touched[entry]; i++)
        own->of_copy[own->touched[entry * own->most + i].copy] = own->before[entry * own->most + i];
    for (uint32_t u = 0; !b->read_only && u < b->n_unique; u++) {
        uint32_t index = clock_index(c, b->rows[u]);
        if (index != NO_ROW_INDEX) c->of_row[index]--;
    }
}

/* Steps from `step` on are cancelled, of which those below `sealed` were sealed. */
FRUGAL_INTERNAL void cancel_clocks(frugal *f, uint64_t step, uint64_t sealed) {
    if (!f->clocks) return;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        for (uint64_t t = sealed; t > step; t--) cancel_read(f, d, t - 1);
    uint64_t last = frugal_p2f_closed(f->p2f) + f->desc.lookahead;   /* that some devices may have given */
    for (uint64_t t = sealed < step ? step : sealed; t <= last; t++) /* relaxed: no announcement is under way */
        frugal_store_relaxed(&f->clocks->left[t % (f->desc.lookahead + 1)], f->desc.devices);
}

/* Between steps, with nothing announced: the copies of a row are outdated, or all copies are. */
FRUGAL_INTERNAL void drop_secondaries_of(frugal *f, uint32_t row) {
    for (uint32_t d = 0; f->clocks && d < f->desc.devices; d++) {
        device_clocks *own = &f->clocks->devices[d];
        uint32_t copy = own_copy(own, row);
        if (copy < own->n) own->of_copy[copy] = NO_CLOCK;
    }
}
FRUGAL_INTERNAL void drop_secondaries(frugal *f) {
    for (uint32_t d = 0; f->clocks && d < f->desc.devices; d++)
        memset(f->clocks->devices[d].of_copy, 0xff, f->clocks->devices[d].n * sizeof(uint64_t));
}

/* Does the device list the row? *lacks: the contributions that its copy lacks, or NO_CLOCK; while nothing is announced.
 * NULL: they are not asked for. */
FRUGAL_INTERNAL int is_secondary(const frugal *f, uint32_t d, uint32_t row, uint64_t *lacks) {
    if (!f->clocks) return 0;
    const device_clocks *own = &f->clocks->devices[d];
    uint32_t copy = own_copy(own, row);
    if (copy == own->n || !lacks) return copy < own->n;
    uint64_t clock = own->of_copy[copy];
    *lacks = clock == NO_CLOCK ? NO_CLOCK : f->clocks->of_row[own->indices[copy]] - clock;
    return 1;
}

FRUGAL_INTERNAL void close_clocks(frugal *f) {
    if (f->clocks) frugal_free(f, f->clocks, f->clocks->bytes);
    f->clocks = NULL;
}
