/* worth.c - what a copy of each row is worth: a byte for each row, counted as steps are planned.
 *
 * A hit needs a current copy. So a touch counts if planning found that a copy of the device, if it has one, will be
 * current (the bit of frugal_step.valid): touches of rows that other devices outdate all the time count nothing,
 * however hot the rows are. A cache with FRUGAL_CACHE_COUNTED keeps the rows with the highest counts.
 *
 * One byte for all devices, not one for each: with n devices the second would take n bytes a row and fit n times fewer
 * rows into a processor's cache. It would say more only about rows that a device touches now and then and another
 * device at most other times. Such a row is at most a copy that is soon outdated, in the cache of the first.
 *
 * Seven bits are a logarithm, the level (R. Morris, Counting large numbers of events in small registers, CACM 21(10),
 * 1978): five levels double the count, and a touch raises level c with probability 2 ^ (-c / 5). So 127 stands for 298
 * million touches, and the relative error is about 27%. Nothing is drawn: a hash of row and step decides. A row's
 * touches are counted as its steps are planned, in each step device by device, so counts are the same in every run.
 *
 * The eighth bit says whether the last touch by a batch with gradients counted, which means that the one before was of
 * the same device. A device that touches a row whose copy is not current reads this bit. If it is set, another device
 * touches the row again and again, and soon takes its currency back: a copy here is worth PASSING levels less, a
 * sixteenth. If it is not set, the row goes to and fro, or is back where it was: RETURNING levels less, three quarters.
 * Of the values that were tried, these had the most hits on placed samples that cost few on random ones.
 *
 * A read-only batch leaves the eighth bit as it is.
 *
 * Counts age, because other rows become hot. Each step halves those of some rows, the next ones in order, before it
 * counts its touches: so many that each row's turn comes once while a device's batches have two keys for each row.
 * Which rows these are follows from the number of the step alone. So counts are the same in every run, a save need not
 * say how far it has come, and what a step costs depends on its keys: a row for every two. With one key for each row a
 * cache follows faster, and rare rows have too few touches to be ranked. In a small table the turn comes after 64
 * steps, because a step counts a row once for a device, however often it is touched. A copy keeps what it was worth
 * when its row was touched last, and loses as much with the steps since (frugal_worth_left).
 *
 * A copy that is outdated takes a place for nothing until its row is read again, and the higher its count is, the
 * longer. So each device finds the rows that others have taken from it (frugal_p2f_taken) with its next batch, and its
 * cache gives their places away first.
 *
 * Contents: >>byte >>array >>counting
 */
#include "../counting.h"
#include "table.h"

enum { WORTH_AHEAD = 40 }; /* rows whose bytes are prefetched ahead, to the second-level cache, as in cpu.c */

/* >>byte - and the count that it stands for */

/* 2 ^ 32 * 2 ^ (i / 5), rounded down. */
static const uint64_t worth_gains[WORTH_DOUBLES] = {4294967296u, 4933621867u, 5667243323u, 6509953083u, 7477972397u};

/* The level is raised, or not. `hash`: 31 bits. */
static inline uint8_t raised_byte(uint8_t byte, uint32_t current, uint32_t hash) {
    return (uint8_t)frugal_raised(byte, current, hash, frugal_chances[byte >> LEVEL_AT]);
}

/* counts[WORTH_MOST + 1]: the number of touches that each level stands for: the sum of 1 / probability of all steps to
 * it. */
FRUGAL_INTERNAL void list_counts(uint64_t *counts) {
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

/* The level whose count is nearest; the lower one of two. */
FRUGAL_INTERNAL uint32_t level_of_count(const uint64_t *counts, uint64_t count) {
    uint32_t low = 0, n = WORTH_MOST + 1; /* the last level with a count of at most `count` is one of n from `low` on */
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
    return low;
}

/* >>array */

/* Begins to count, if that has not begun, in memory that `make` allocates or maps. Any thread. */
FRUGAL_INTERNAL frugal_status open_counts_in(frugal *f, void *(*make)(frugal *f)) {
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&f->settings.lock);
    if (!f->touches.worth) f->touches.worth = make(f);
    if (f->touches.worth)
        frugal_store_release(&f->touches.counting, 1); /* [F19] pairs with [F20] */
    else
        status = fail_memory("the rows' counts, one each,", f->store.rows);
    pthread_mutex_unlock(&f->settings.lock);
    return status;
}

static void *make_counts(frugal *f) {
    return allocate_shared(f, f->store.rows, CACHE_LINE, REGION_PART(f, worth));
}
FRUGAL_INTERNAL frugal_status open_counts(frugal *f) {
    return open_counts_in(f, make_counts);
}

FRUGAL_INTERNAL void close_counts(frugal *f) {
    free_shared(f, f->touches.worth, f->store.rows);
}

FRUGAL_INTERNAL int is_counting(frugal *f) {
    return frugal_load_acquire(&f->touches.counting) != 0; /* [F20] pairs with [F19] */
}

/* >>counting */

/* Halves the counts whose turn it is in the step, of the rows from .. end - 1. */
FRUGAL_INTERNAL void age_rows(frugal *f, uint64_t step, uint64_t from, uint64_t end) {
    uint64_t first, last;
    frugal_halved_rows(f->store.rows, f->desc.max_keys, step, &first, &last);
    if (first < from) first = from;
    if (last > end) last = end;
    for (uint64_t row = first; row < last; row++) { /* relaxed, both: a row is one thread's at a time */
        worth_byte *byte = &f->touches.worth[row];
        frugal_store_relaxed(byte, (uint8_t)frugal_halved(frugal_load_relaxed(byte)));
    }
}

/* Counts the touches of some unique rows of a batch, and notes what they are worth for the lookup: a lookup that read
 * the bytes itself would find what the planning of some later steps has added, and hits would depend on the time. */
FRUGAL_INTERNAL void count_rows(frugal *f, uint32_t d, host_batch *b, uint32_t from, uint32_t end) {
    const uint32_t *rows = b->rows; /* kept in registers: the stores below are of bytes */
    const uint64_t step = b->step;
    const int read_only = b->read_only, planned = frugal_p2f_has_words(f->p2f); /* otherwise all bits are set */
    worth_byte *counted = f->touches.worth;
    uint8_t *worth = b->worth;
    uint64_t bits = UINT64_MAX;
    for (uint32_t u = from; u < end && u < from + WORTH_AHEAD; u++)
        __builtin_prefetch((const void *)((uintptr_t)counted + rows[u]), 0, 2);
    for (uint32_t u = from; u < end; u++) {
        if (u + WORTH_AHEAD < end) __builtin_prefetch((const void *)((uintptr_t)counted + rows[u + WORTH_AHEAD]), 0, 2);
        worth_byte *byte = &counted[rows[u]];
        if (planned && (u == from || u % 64 == 0)) bits = frugal_p2f_valid_word(f->p2f, d, step, u / 64);
        uint32_t current = (uint32_t)(bits >> u % 64 & 1), hash = frugal_hash_touch(rows[u], step);
        /* relaxed, both: a row's touches are one thread's at a time. Always stored: a branch could not be predicted. */
        uint8_t raised = raised_byte(frugal_load_relaxed(byte), current, hash);
        uint8_t touched = (uint8_t)((raised & ~(uint32_t)STAYED) + current * STAYED);
        frugal_store_relaxed(byte, read_only ? raised : touched);
        worth[u] = (uint8_t)frugal_worth_of(raised, current);
    }
}

typedef struct count_job { /* of a whole batch, whose rows have no words */
    frugal *f;
    host_batch *b;
    uint32_t d, pieces;
} count_job;

/* The row with which a piece begins: the pieces together have all rows of the table. */
static uint64_t first_row_of(const count_job *job, uint32_t piece) {
    uint32_t n = job->b->n_unique, u = piece_begin(n, piece, job->pieces);
    return piece == 0 ? 0 : u < n ? job->b->rows[u] : job->f->store.rows;
}

static void count_piece(void *argument, uint32_t phase, uint32_t piece) {
    const count_job *job = argument;
    uint32_t n = job->b->n_unique;
    age_rows(job->f, job->b->step, first_row_of(job, piece), first_row_of(job, piece + 1));
    count_rows(job->f, job->d, job->b, piece_begin(n, piece, job->pieces), piece_begin(n, piece + 1, job->pieces));
    (void)phase;
}

FRUGAL_INTERNAL void count_whole(frugal *f, uint32_t d, host_batch *b) {
    count_job job = {f, b, d, frugal_pieces(f, d, (uint64_t)b->n_unique * CACHE_LINE)};
    frugal_run_pieces(f, d, 1, job.pieces, count_piece, &job);
}

uint8_t frugal_worth(frugal *f, uint32_t row) {
    if (!f || !f->opened || row >= f->store.rows || !is_counting(f)) return 0;
    return frugal_load_relaxed(&f->touches.worth[row]) >> LEVEL_AT; /* relaxed: a hint */
}
