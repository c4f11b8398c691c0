/* batch.c - keys -> unique rows, and the order in which their gradients are summed. */
#include "host.h"

/* Key i. One that is negative becomes larger than any number of rows. */
static inline uint64_t key_at(const frugal_keys *keys, uint32_t i) {
    return keys->keys32 ? (uint64_t)(int64_t)keys->keys32[i] : keys->keys[i];
}

/* Has `keys` one array, or none and no keys? */
static inline int has_key_array(const frugal_keys *keys) {
    return keys->keys ? !keys->keys32 : keys->keys32 || keys->n == 0;
}

/* `whose` begins the message, as "segment 3". */
static frugal_status fail_key_array(const frugal_keys *keys, const char *whose) {
    if (keys->keys) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: both `keys` and `keys32`; give one", whose);
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no keys are given: %u keys, and no array", whose, keys->n);
}

/* Is segment i of a table that there is, and has it one array of keys? */
static frugal_status check_segment(const frugal *f, uint32_t i, const frugal_keys *keys) {
    if (keys->table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "segment %u names table %u; there are %u", i, keys->table,
                           f->desc.n_tables);
    if (has_key_array(keys)) return FRUGAL_OK;
    char whose[32];
    snprintf(whose, sizeof whose, "segment %u", i);
    return fail_key_array(keys, whose);
}

/* The key at k of segment i is not below `rows`. */
static frugal_status fail_segment_key(uint32_t i, const frugal_keys *keys, uint32_t k, uint64_t rows) {
    return frugal_fail(FRUGAL_ERR_KEY, "key %lld at %u of segment %u: table %u has %llu rows, keys start at 0",
                       (long long)key_at(keys, k), k, i, keys->table, (unsigned long long)rows);
}

/* Checks the keys at positions `from` to `end` - 1, and writes row << 32 | position. */
static frugal_status read_piece_of_keys(const frugal *f, const frugal_batch *batch, uint64_t *out, uint64_t from,
                                        uint64_t end) {
    uint64_t before = 0; /* positions of the segments before */
    for (uint32_t i = 0; i < batch->n_segments && before < end; i++) {
        const frugal_keys *s = &batch->segments[i];
        uint64_t rows = f->desc.tables[s->table].rows, first = f->first_row[s->table];
        uint32_t k = from > before ? (uint32_t)LEAST(from - before, s->n) : 0,
                 last = (uint32_t)LEAST(end - before, s->n);
        for (; k < last; k++) {
            uint64_t key = key_at(s, k);
            if (key >= rows) return fail_segment_key(i, s, k, rows);
            out[before + k] = (first + key) << 32 | (before + k);
        }
        before += s->n;
    }
    return FRUGAL_OK;
}

typedef struct sort_job { /* of a batch, in pieces of positions */
    const frugal *f;
    const frugal_batch *batch;
    uint64_t *from, *to;
    uint32_t n, pieces, passes, width; /* width: bits of a digit */
    uint32_t (*digits)[SORT_DIGITS];   /* digits[pieces]: how many there are of each */
    FRUGAL_ATOMIC(uint32_t) bad;       /* 1: a key is; relaxed: read when all pieces have returned */
} sort_job;

static uint32_t sort_start(const sort_job *job, uint32_t piece) {
    return (uint32_t)((uint64_t)job->n * piece / job->pieces);
}

static void read_keys_piece(void *argument, uint32_t phase, uint32_t piece) {
    sort_job *job = argument;
    uint32_t from = sort_start(job, piece), end = sort_start(job, piece + 1);
    if (read_piece_of_keys(job->f, job->batch, job->from, from, end) != FRUGAL_OK) frugal_store_relaxed(&job->bad, 1);
    (void)phase;
}

/* Pieces of the sort of n keys, one a thread, because each adds up the digits of all; 1: it is not cut. A key is read
 * and written in each of some four phases. */
static uint32_t sort_pieces(const frugal *f, uint32_t d, uint32_t n) {
    if (f->sort_bits == 0 || !f->devices[d].team) return 1;
    return LEAST(LEAST(frugal_pieces(f, d, (uint64_t)n * 32), f->devices[d].team->n + 1), SORT_PIECES);
}

/* Checks all but the keys, and counts them. */
static frugal_status check_batch(const frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *n_out) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) n += batch->segments[i].n;
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

/* Checks all, and writes row << 32 | position of each key into the device's `sorted`. */
static frugal_status read_keys(frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *n) {
    frugal_status status = check_batch(f, d, batch, n);
    if (status != FRUGAL_OK) return status;
    sort_job job = {.f = f, .batch = batch, .from = f->devices[d].sorted, .n = *n};
    job.pieces = sort_pieces(f, d, job.n);
    if (job.pieces > 1) {
        frugal_run_pieces(f, d, 1, job.pieces, read_keys_piece, &job);
        if (!frugal_load_relaxed(&job.bad)) return FRUGAL_OK;
    } /* once more: the first bad key is the one that is told of */
    return read_piece_of_keys(f, batch, job.from, 0, *n);
}

static inline uint32_t digit_of(const sort_job *job, uint64_t key, uint32_t pass) {
    return (uint32_t)(key >> (32 + pass * job->width)) & ((1u << job->width) - 1);
}

/* Counts the digits of a piece, or, in every second phase, moves its keys to where their digits belong. */
static void sort_piece(void *argument, uint32_t phase, uint32_t piece) {
    const sort_job *job = argument;
    uint32_t pass = phase / 2, from = sort_start(job, piece), end = sort_start(job, piece + 1), sum = 0;
    const uint64_t *keys = pass % 2 ? job->to : job->from;
    uint64_t *to = pass % 2 ? job->from : job->to;
    uint32_t *count = job->digits[piece], next[SORT_DIGITS];
    if (phase % 2 == 0) {
        memset(count, 0, sizeof(uint32_t) << job->width);
        for (uint32_t i = from; i < end; i++) count[digit_of(job, keys[i], pass)]++;
        return;
    }
    for (uint32_t digit = 0; digit < 1u << job->width; digit++) {
        for (uint32_t p = 0; p < job->pieces; p++) {
            if (p == piece) next[digit] = sum;
            sum += job->digits[p][digit];
        }
    }
    for (uint32_t i = from; i < end; i++) to[next[digit_of(job, keys[i], pass)]++] = keys[i];
}

/* Radix sort of a device's keys by row, least significant digit first. It is stable, so that positions stay in order.
 * Returns the array with the result. */
static uint64_t *sort_by_row(frugal *f, uint32_t d, uint32_t n) {
    host_device *device = &f->devices[d];
    uint32_t digits[SORT_DIGITS], widest = n < 4096 ? 8 : 12;
    sort_job job = {.from = device->sorted, .to = device->scratch, .n = n, .pieces = sort_pieces(f, d, n)};
    job.digits = job.pieces > 1 ? device->team->digits : &digits;
    job.passes = (f->sort_bits + widest - 1) / widest;
    job.width = job.passes ? (f->sort_bits + job.passes - 1) / job.passes : 0;
    frugal_run_pieces(f, d, 2 * job.passes, job.pieces, sort_piece, &job);
    return job.passes % 2 ? device->scratch : device->sorted;
}

static void deduplicate(host_batch *b, const uint64_t *sorted, uint32_t n) {
    uint32_t unique = 0;
    uint32_t previous = UINT32_MAX; /* no row has this number */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)(sorted[i] >> 32);
        /* Always written, and kept only if the row is new: a branch would cost more, because it cannot be predicted. */
        b->rows[unique] = row;
        b->start[unique] = i;
        unique += row != previous;
        previous = row;
        b->order[i] = (uint32_t)sorted[i];
    }
    b->n = n;
    b->n_unique = unique;
    b->start[unique] = n;
    b->has_record_of = b->is_unsorted = 0;
}

/* The loader may call it while it announces, which lookup waits for, and the trainer later. */
const uint32_t *frugal_record_of(frugal *f, uint32_t d, uint64_t step) {
    if (!is_usable(f) || d >= f->desc.devices) return NULL;
    host_batch *b = batch_at(f, d, step);
    if (b->has_record_of) return b->record_of;
    for (uint32_t u = 0; u < b->n_unique; u++)
        for (uint32_t i = b->start[u]; i < b->start[u + 1]; i++) b->record_of[b->order[i]] = u;
    b->has_record_of = 1;
    return b->record_of;
}
