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

/* Checks all keys and writes row << 32 | position into the device's `sorted`. */
static frugal_status read_keys(frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *n_out) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) n += batch->segments[i].n;
    if (n > f->desc.max_keys)
        return frugal_fail(FRUGAL_ERR_KEYS,
                           "device %u announces %llu keys; max_keys is %u: raise it or split the batch", d,
                           (unsigned long long)n, f->desc.max_keys);
    uint64_t *out = f->devices[d].sorted;
    uint64_t position = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        const frugal_keys *s = &batch->segments[i];
        frugal_status status = check_segment(f, i, s);
        if (status != FRUGAL_OK) return status;
        uint64_t rows = f->desc.tables[s->table].rows, first = f->first_row[s->table];
        for (uint32_t k = 0; k < s->n; k++) {
            uint64_t key = key_at(s, k);
            if (key >= rows) return fail_segment_key(i, s, k, rows);
            out[position] = (first + key) << 32 | position;
            position++;
        }
    }
    *n_out = (uint32_t)n;
    return FRUGAL_OK;
}

/* Radix sort by row, least significant digit first. It is stable, so that positions stay in order. Returns the array
 * with the result. */
static uint64_t *sort_by_row(uint64_t *from, uint64_t *to, uint32_t n, uint32_t bits) {
    uint32_t count[4096];
    uint32_t widest = n < 4096 ? 8 : 12;
    uint32_t passes = (bits + widest - 1) / widest;
    uint32_t width = passes ? (bits + passes - 1) / passes : 0;
    for (uint32_t pass = 0; pass < passes; pass++) {
        uint32_t shift = 32 + pass * width, mask = (1u << width) - 1;
        memset(count, 0, sizeof(uint32_t) << width);
        for (uint32_t i = 0; i < n; i++) count[from[i] >> shift & mask]++;
        uint32_t sum = 0;
        for (uint32_t digit = 0; digit <= mask; digit++) {
            uint32_t here = count[digit];
            count[digit] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < n; i++) to[count[from[i] >> shift & mask]++] = from[i];
        uint64_t *swap = from;
        from = to, to = swap;
    }
    return from;
}

static void deduplicate(host_batch *b, const uint64_t *sorted, uint32_t n) {
    uint32_t unique = 0;
    uint32_t previous = UINT32_MAX; /* no row has this number */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)(sorted[i] >> 32), position = (uint32_t)sorted[i];
        /* Always written, and kept only if the row is new: a branch would cost more, because it cannot be predicted. */
        b->rows[unique] = row;
        b->start[unique] = i;
        unique += row != previous;
        previous = row;
        b->order[i] = position;
        b->record_of[position] = unique - 1;
    }
    b->n = n;
    b->n_unique = unique;
    b->start[unique] = n;
}
