/* worth.c - what a copy of each row is worth: a byte for each row, counted as batches are announced.
 *
 * A hit needs a current copy. So a touch counts if announcing found that a copy of the device, if it has one, will be
 * current (the bit of frugal_step.valid): touches of rows that other devices outdate all the time count nothing,
 * however hot the rows are. A cache with FRUGAL_CACHE_COUNTED keeps the rows with the highest counts.
 *
 * One byte for all devices, not one for each: with n devices the second would take n bytes a row and fit n times fewer
 * rows into a processor's cache. It would say more only about rows that a device touches now and then and another
 * device at most other times. Such a row is at most a copy that is soon outdated, in the cache of the first.
 *
 * The byte is a logarithm (R. Morris, Counting large numbers of events in small registers, CACM 21(10), 1978): eight
 * steps double the count, and a touch raises the byte c with probability 2 ^ (-c / 8). So 255 stands for 43 billion
 * touches, and the relative error is about 21%. Nothing is drawn: a hash of row and step decides. With the same order
 * of announcements, none of which overlap, counts are the same in every run.
 *
 * Loaders count at the same time. But a batch with gradients takes the currency of its rows from all other copies, so
 * no other device can count these rows until this one has lost them again: such a batch loads and stores. A read-only
 * one compares and swaps. The order of these loaders does not matter, because the hash is that of the step, and one
 * that raises c + 1 raises c, too. (While a row that nobody has changed is read by some devices and changed by the
 * first one, the touches of the readers may be lost.)
 *
 * A copy that is outdated takes a place for nothing until its row is read again, and the higher its count is, the
 * longer. So the device that announces a row notes from whose copy it takes the currency; each device finds these
 * rows listed with its next batch, and its cache gives their places away first.
 *
 * Contents: >>byte >>array >>counting
 */
#include "host.h"

enum { WORTH_MOST = 255, WORTH_DOUBLES = 8, WORTH_AHEAD = 16 }; /* rows whose bytes are prefetched ahead */

/* >>byte - and the count that it stands for */

/* 2 ^ 32 * 2 ^ (-i / 8), rounded down; the first is one less, to fit. */
static const uint32_t worth_chances[WORTH_DOUBLES] = {4294967295u, 3938502375u, 3611622602u, 3311872529u,
                                                      3037000499u, 2784941737u, 2553802833u, 2341847523u};
/* 2 ^ 32 * 2 ^ (i / 8), rounded down. */
static const uint64_t worth_gains[WORTH_DOUBLES] = {4294967296u, 4683695047u, 5107605667u, 5569883475u,
                                                    6074000999u, 6623745057u, 7223245205u, 7877004751u};

/* The byte after a touch. */
static inline uint8_t raised_worth(uint8_t worth, uint32_t hash) {
    uint32_t chance = worth_chances[worth % WORTH_DOUBLES] >> worth / WORTH_DOUBLES;
    return (uint8_t)(worth + (worth < WORTH_MOST && hash <= chance));
}

static inline uint32_t hash_touch(uint32_t row, uint64_t step) {
    uint64_t x = row * UINT64_C(0x9E3779B97F4A7C15) ^ (step + 1) * UINT64_C(0xD1B54A32D192ED03);
    x = (x ^ x >> 32) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)((x ^ x >> 29) >> 32);
}

/* counts[256]: the number of touches that each byte stands for: the sum of 1 / probability of all steps to it. */
static void list_counts(uint64_t *counts) {
    uint64_t whole = 0, rest = 0; /* rest / 2 ^ 32 */
    for (uint32_t worth = 0; worth <= WORTH_MOST; worth++) {
        counts[worth] = whole + (rest >> 31); /* rounded */
        uint64_t gain = worth_gains[worth % WORTH_DOUBLES];
        uint32_t shift = worth / WORTH_DOUBLES;
        rest += gain << shift & UINT32_MAX;
        whole += (gain >> (32 - shift)) + (rest >> 32);
        rest &= UINT32_MAX;
    }
}

/* The byte whose count is nearest; the lower one of two. */
static uint8_t worth_of_count(const uint64_t *counts, uint64_t count) {
    uint32_t low = 0, n = WORTH_MOST + 1; /* the last byte with a count of at most `count` is one of n from `low` on */
    while (n > 1) {
        uint32_t half = n / 2;
        if (counts[low + half] <= count) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    if (low < WORTH_MOST && counts[low + 1] - count < count - counts[low]) low++;
    return (uint8_t)low;
}

/* >>array */

/* Begins to count, if that has not begun. Any thread. */
static frugal_status open_counts(frugal *f) {
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&f->settings_lock);
    if (!f->worth) f->worth = frugal_allocate(f, f->store.rows, CACHE_LINE);
    if (f->worth)
        frugal_store_release(&f->counting, 1); /* [F19] pairs with [F20] */
    else
        status = fail_memory("the rows' counts, one each,", f->store.rows);
    pthread_mutex_unlock(&f->settings_lock);
    return status;
}

frugal_status frugal_begin_counting(frugal *f) {
    frugal_status status = check_open(f, "begin_counting");
    return status == FRUGAL_OK ? open_counts(f) : status;
}

static int is_counting(frugal *f) {
    return frugal_load_acquire(&f->counting) != 0; /* [F20] pairs with [F19] */
}

/* >>counting */

/* Lists the rows of which the device's copies became outdated in the step before: its cache gives these places away
 * first. All devices have announced that step. Their batches of it stay as they are until this device has announced
 * its step, unless L = 0, when there is no list. The list ends where it is full: it is a hint. */
static void list_lost(frugal *f, uint32_t d, host_batch *b) {
    for (uint32_t other = 0; other < f->desc.devices && f->desc.lookahead > 0; other++) {
        const host_batch *before = batch_at(f, other, b->step - 1);
        if (other == d || before->step != b->step - 1 || !before->counted) continue;
        for (uint32_t u = 0; u < before->n_unique && b->n_lost < f->desc.max_keys; u++) {
            b->lost[b->n_lost] = before->rows[u]; /* always written: a branch could not be predicted */
            b->n_lost += before->lost_by[u] == d;
        }
    }
}

/* Before the batch is announced. */
static void begin_count(frugal *f, uint32_t d, host_batch *b) {
    b->counted = is_counting(f);
    b->n_lost = 0;
    if (b->counted && f->desc.devices > 1 && b->step > f->desc.first_step) list_lost(f, d, b);
}

/* Counts the touches of an announced batch, and notes what its rows are worth for the lookup: a lookup that read the
 * bytes itself would find what the announcements of some later steps have added, and hits would depend on the time. */
static void count_batch(frugal *f, host_batch *b) {
    for (uint32_t u = 0; u < b->n_unique; u++) {
        if (u + WORTH_AHEAD < b->n_unique) FRUGAL_PRIV_PREFETCH_WRITE(&f->worth[b->rows[u + WORTH_AHEAD]]);
        worth_byte *byte = &f->worth[b->rows[u]];
        uint8_t found = frugal_load_relaxed(byte), raised = found; /* relaxed, all: a count orders nothing */
        if (frugal_copy_is_current(b->valid, u)) {
            uint32_t hash = hash_touch(b->rows[u], b->step);
            raised = raised_worth(found, hash);
            if (!b->read_only) /* no other device counts the row now; always stored: a branch could not be predicted */
                frugal_store_relaxed(byte, raised);
            else
                while (raised != found && !frugal_cas_relaxed(byte, &found, raised)) raised = raised_worth(found, hash);
        }
        b->worth[u] = raised;
    }
}

uint8_t frugal_worth(frugal *f, uint32_t row) {
    if (!f || !f->opened || row >= f->store.rows || !is_counting(f)) return 0;
    return frugal_load_relaxed(&f->worth[row]); /* relaxed: a hint */
}
