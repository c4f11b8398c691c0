/* batch.c - keys -> unique rows, and the order in which their gradients are summed.
 *
 * Contents: >>keys >>reading >>sorting >>listing
 */
#include "steps.h"

/* >>keys */

/* `whose` begins the message, as "segment 3". */
FRUGAL_INTERNAL frugal_status fail_key_array(const frugal_keys *keys, const char *whose) {
    if (keys->keys) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: both `keys` and `keys32`; give one", whose);
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no keys are given: %u keys, and no array", whose, keys->n);
}

/* Is segment i of a table that there is, and has it one array of keys? */
FRUGAL_INTERNAL frugal_status check_segment(const frugal *f, uint32_t i, const frugal_keys *keys) {
    if (keys->table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "segment %u names table %u; there are %u", i, keys->table,
                           f->desc.n_tables);
    if (has_key_array(keys)) return FRUGAL_OK;
    char whose[32];
    snprintf(whose, sizeof whose, "segment %u", i);
    return fail_key_array(keys, whose);
}

/* The key at k of segment i is not below `rows`. */
FRUGAL_INTERNAL frugal_status fail_segment_key(uint32_t i, const frugal_keys *keys, uint32_t k, uint64_t rows) {
    return frugal_fail(FRUGAL_ERR_KEY, "key %lld at %u of segment %u: table %u has %llu rows, keys start at 0",
                       (long long)key_at(keys, k), k, i, keys->table, (unsigned long long)rows);
}

/* Checks the keys at positions `from` to `end` - 1, and writes their rows, unless `out` is NULL. */
FRUGAL_INTERNAL frugal_status read_piece_of_keys(const frugal *f, const frugal_batch *batch, uint32_t *out,
                                                 uint64_t from, uint64_t end) {
    uint64_t before = 0; /* positions of the segments before */
    for (uint32_t i = 0; i < batch->n_segments && before < end; i++) {
        const frugal_keys *s = &batch->segments[i];
        uint64_t rows = keys_of(f, s->table), first = first_id_of(f, s->table);
        const dealing *dealt = f->dealing;
        uint32_t k = from > before ? (uint32_t)LEAST(from - before, s->n) : 0,
                 last = (uint32_t)LEAST(end - before, s->n);
        for (; k < last; k++) {
            uint64_t key = key_at(s, k);
            if (key >= rows) return fail_segment_key(i, s, k, rows);
            if (out) out[before + k] = dealt ? dealt_number(dealt, first + key) : (uint32_t)(first + key);
        }
        before += s->n;
    }
    return FRUGAL_OK;
}

FRUGAL_INTERNAL uint64_t count_keys(const frugal_keys *segments, uint32_t n_segments) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_segments; i++) n += segments[i].n;
    return n;
}

/* Checks all but the keys, and counts them. */
FRUGAL_INTERNAL frugal_status check_batch(const frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *n_out) {
    uint64_t n = count_keys(batch->segments, batch->n_segments);
    if (n > f->desc.max_keys)
        return frugal_fail(FRUGAL_ERR_KEYS,
                           "device %u announces %llu keys; max_keys is %u: raise it or split the batch", d,
                           (unsigned long long)n, f->desc.max_keys);
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        frugal_status status = check_segment(f, i, &batch->segments[i]);
        if (status != FRUGAL_OK) return status;
    }
    *n_out = (uint32_t)n;
    return FRUGAL_OK;
}

/* >>reading - in pieces of positions */

typedef struct read_job {
    const frugal *f;
    const frugal_batch *batch;
    uint32_t *rows, n, pieces;
    FRUGAL_ATOMIC(uint32_t) bad; /* 1: a key is; relaxed: read when all pieces have returned */
} read_job;

static void read_keys_piece(void *argument, uint32_t phase, uint32_t piece) {
    read_job *job = argument;
    uint32_t from = piece_begin(job->n, piece, job->pieces), end = piece_begin(job->n, piece + 1, job->pieces);
    if (read_piece_of_keys(job->f, job->batch, job->rows, from, end) != FRUGAL_OK) frugal_store_relaxed(&job->bad, 1);
    (void)phase;
}

/* Checks the keys, and writes their rows, by position. */
FRUGAL_INTERNAL frugal_status read_keys(frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *rows, uint32_t n) {
    read_job job = {.f = f, .batch = batch, .rows = rows, .n = n, .pieces = frugal_pieces(f, d, n * sizeof(uint64_t))};
    if (job.pieces > 1) {
        frugal_run_pieces(f, d, 1, job.pieces, read_keys_piece, &job);
        if (!frugal_load_relaxed(&job.bad)) return FRUGAL_OK;
    } /* once more: the first bad key is the one that is told of */
    return read_piece_of_keys(f, batch, rows, 0, n);
}

/* >>sorting - by row, stable, so that positions stay in order */

/* One pass of a radix sort: moves n pairs, row << 32 | position, to where `width` bits of the row from bit `at` on
 * belong. */
static void sort_pass(const uint64_t *from, uint64_t *to, uint32_t n, uint32_t at, uint32_t width) {
    uint32_t next[SORT_DIGITS], mask = (1u << width) - 1, sum = 0;
    memset(next, 0, sizeof *next << width);
    for (uint32_t i = 0; i < n; i++) next[from[i] >> (32 + at) & mask]++;
    for (uint32_t digit = 0; digit <= mask; digit++) {
        uint32_t here = next[digit];
        next[digit] = sum;
        sum += here;
    }
    for (uint32_t i = 0; i < n; i++) to[next[from[i] >> (32 + at) & mask]++] = from[i];
}

/* Passes in which n keys are sorted by so many bits: a pass has not many more digits than there are keys. */
static inline uint32_t sort_passes(uint32_t n, uint32_t bits) {
    uint32_t widest = n < 4096 ? 8 : 12;
    return (bits + widest - 1) / widest;
}

/* Sorts n pairs by the lowest `bits` bits of their rows, least significant digit first; `other` is as long. Returns the
 * array with the result. */
static uint64_t *sort_pairs(uint64_t *pairs, uint64_t *other, uint32_t n, uint32_t bits) {
    uint32_t passes = sort_passes(n, bits);
    for (uint32_t pass = 0; pass < passes; pass++) {
        uint32_t at = bits * pass / passes, end = bits * (pass + 1) / passes;
        sort_pass(pairs, other, n, at, end - at);
        uint64_t *sorted = other;
        other = pairs, pairs = sorted;
    }
    return pairs;
}

/* A large batch: the same passes, each in pieces, which are all counted, then all moved. Pieces are ranges of
 * positions, so they are alike however the rows are distributed. Pieces of rows would not be, where some are popular.
 */
typedef struct sort_job {
    const uint32_t *rows; /* [n], by position: what the first pass reads */
    sort_memory *m;       /* the first pass writes `pairs`, the second reads them and writes `other`, and so on */
    uint32_t n, pieces, passes, bits;
} sort_job;

/* What a pass does with a piece. */
typedef struct sort_part {
    const uint64_t *from;          /* by the passes before */
    uint32_t at, digits;           /* the first bit of the pass's digit of a row; how many digits there are */
    uint32_t begin, end, *counted; /* of the piece; counted[digits]: how often it has each digit */
} sort_part;

static sort_part find_part(const sort_job *job, uint32_t pass, uint32_t piece) {
    uint32_t at = job->bits * pass / job->passes, width = job->bits * (pass + 1) / job->passes - at;
    return (sort_part){.from = pass % 2 ? job->m->pairs : job->m->other,
                       .at = at,
                       .digits = 1u << width,
                       .begin = piece_begin(job->n, piece, job->pieces),
                       .end = piece_begin(job->n, piece + 1, job->pieces),
                       .counted = job->m->digits[piece]};
}

static void sort_count(const sort_job *job, uint32_t pass, uint32_t piece) {
    const sort_part part = find_part(job, pass, piece);
    uint32_t *counted = part.counted, mask = part.digits - 1;
    memset(counted, 0, sizeof *counted * part.digits);
    if (pass == 0)
        for (uint32_t i = part.begin; i < part.end; i++) counted[job->rows[i] >> part.at & mask]++;
    else
        for (uint32_t i = part.begin; i < part.end; i++) counted[part.from[i] >> (32 + part.at) & mask]++;
}

static void sort_move(const sort_job *job, uint32_t pass, uint32_t piece) {
    const sort_part part = find_part(job, pass, piece);
    uint32_t next[SORT_DIGITS], all[SORT_DIGITS], mask = part.digits - 1, sum = 0;
    uint64_t *to = pass % 2 ? job->m->other : job->m->pairs;
    memset(next, 0, sizeof *next * part.digits);
    memset(all, 0, sizeof *all * part.digits);
    for (uint32_t p = 0; p < job->pieces; p++) {
        const uint32_t *counted = job->m->digits[p];
        for (uint32_t digit = 0; p < piece && digit < part.digits; digit++) next[digit] += counted[digit];
        for (uint32_t digit = 0; digit < part.digits; digit++) all[digit] += counted[digit];
    }
    for (uint32_t digit = 0; digit < part.digits; digit++) next[digit] += sum, sum += all[digit];
    if (pass == 0)
        for (uint32_t i = part.begin; i < part.end; i++)
            to[next[job->rows[i] >> part.at & mask]++] = (uint64_t)job->rows[i] << 32 | i;
    else
        for (uint32_t i = part.begin; i < part.end; i++)
            to[next[part.from[i] >> (32 + part.at) & mask]++] = part.from[i];
}

static void sort_piece(void *argument, uint32_t phase, uint32_t piece) {
    const sort_job *job = argument;
    if (phase % 2 == 0) sort_count(job, phase / 2, piece);
    if (phase % 2 == 1) sort_move(job, phase / 2, piece);
}

/* Sorts rows[n], which are by position; they may lie in `other`. Returns sorted[n], row << 32 | position. */
FRUGAL_INTERNAL const uint64_t *sort_rows(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, sort_memory *m) {
    uint32_t bits = f->sorting.bits;
    if (n < SORT_LARGE || bits == 0) {
        for (uint32_t i = 0; i < n; i++) m->pairs[i] = (uint64_t)rows[i] << 32 | i;
        return sort_pairs(m->pairs, m->other, n, bits);
    }
    sort_job job = {.rows = rows, .m = m, .n = n, .passes = sort_passes(n, bits), .bits = bits};
    job.pieces = LEAST(frugal_pieces(f, d, (uint64_t)n * 4 * sizeof(uint64_t)), SORT_PIECES);
    frugal_run_pieces(f, d, 2 * job.passes, job.pieces, sort_piece, &job);
    return job.passes % 2 ? m->pairs : m->other;
}

/* >>listing - the unique rows of a sorted batch, and which positions belong to each */

typedef struct list_job {
    host_batch *b;
    const uint64_t *sorted;
    uint32_t pieces, unique[SORT_PIECES]; /* rows that begin in each piece */
} list_job;

static inline int begins_row(const uint64_t *sorted, uint32_t i) {
    return i == 0 || sorted[i] >> 32 != sorted[i - 1] >> 32;
}

/* Returns the number of unique rows. */
static uint32_t list_rows(host_batch *b, const uint64_t *sorted) {
    uint64_t previous = UINT64_MAX;
    uint32_t unique = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t row = sorted[i] >> 32;
        /* Always written, and kept only if the row is new: a branch would cost more, because it cannot be predicted. */
        b->rows[unique] = (uint32_t)row;
        b->start[unique] = i;
        unique += row != previous;
        previous = row;
        b->order[i] = (uint32_t)sorted[i];
    }
    return unique;
}

/* Counts the rows that begin in a piece; in the second phase, lists them. Nothing more is written: what follows is
 * another thread's. */
static void list_piece(void *argument, uint32_t phase, uint32_t piece) {
    list_job *job = argument;
    uint32_t n = job->b->n, from = piece_begin(n, piece, job->pieces), end = piece_begin(n, piece + 1, job->pieces);
    uint32_t unique = 0;
    if (phase == 0) {
        for (uint32_t i = from; i < end; i++) unique += (uint32_t)begins_row(job->sorted, i);
        job->unique[piece] = unique;
        return;
    }
    for (uint32_t p = 0; p < piece; p++) unique += job->unique[p];
    for (uint32_t i = from; i < end; i++) {
        if (begins_row(job->sorted, i)) {
            job->b->rows[unique] = (uint32_t)(job->sorted[i] >> 32);
            job->b->start[unique++] = i;
        }
        job->b->order[i] = (uint32_t)job->sorted[i];
    }
}

/* Makes rows, start and order of a batch of b->n keys: sorted[n]. */
FRUGAL_INTERNAL void list_batch(frugal *f, uint32_t d, host_batch *b, const uint64_t *sorted) {
    list_job job = {.b = b, .sorted = sorted, .pieces = 1};
    uint32_t unique = 0;
    if (b->n >= SORT_LARGE) job.pieces = LEAST(frugal_pieces(f, d, (uint64_t)b->n * sizeof *sorted), SORT_PIECES);
    if (job.pieces == 1) {
        unique = list_rows(b, sorted);
    } else {
        frugal_run_pieces(f, d, 2, job.pieces, list_piece, &job);
        for (uint32_t p = 0; p < job.pieces; p++) unique += job.unique[p];
    }
    b->n_unique = b->n_own = unique;
    b->start[unique] = b->n;
    b->has_record_of = 0, b->here = ALL_HERE;
}

/* The thread that sorts the batch may call it, which lookup waits for, and the trainer later. */
const uint32_t *frugal_record_of(frugal *f, uint32_t d, uint64_t step) {
    if (!is_usable(f) || d >= f->desc.devices) return NULL;
    host_batch *b = batch_at(f, d, step);
    if (b->has_record_of) return b->record_of;
    for (uint32_t u = 0; u < b->n_unique; u++)
        for (uint32_t i = b->start[u]; i < b->start[u + 1]; i++) b->record_of[b->order[i]] = u;
    b->has_record_of = 1;
    return b->record_of;
}
