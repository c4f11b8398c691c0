/* save_reader.h - a reader of saves, made after docs/durability.md alone: slow, plain, and in memory. What the library
 * makes of a save is compared with what this makes of it. */
#ifndef SAVE_READER_H
#define SAVE_READER_H

#include "fuzz.h"

enum { READER_PARTS = 64, READER_MOST_FLOATS = 1 << 16 };

typedef struct reader_part {
    const uint8_t *block; /* its content */
    uint64_t rows, step;
    uint32_t dim, tables, optimizer, state, reduce, devices, type, rounding;
    uint64_t seed;
    const uint8_t *table; /* 40 bytes each */
} reader_part;

typedef struct reader { /* one save */
    const uint8_t *bytes;
    uint64_t size;
    int has_head; /* the magic, FILE, the instances, and an end at the end are there and sound */
    int whole;    /* and so are the rows of instance `wanted`, and the order of all rows */
    uint32_t wanted, version, kind, parts;
    uint64_t id, parent, base, sequence;
    reader_part part[READER_PARTS];
    uint64_t at, number; /* of the next block */
    uint32_t sums;
} reader;

static inline uint64_t reader_number(const uint8_t *at, int bytes) {
    uint64_t n = 0;
    for (int i = bytes; i-- > 0;) n = n << 8 | at[i];
    return n;
}
static inline uint32_t reader_32(const uint8_t *at) {
    return (uint32_t)reader_number(at, 4);
}
static inline uint64_t reader_64(const uint8_t *at) {
    return reader_number(at, 8);
}

/* CRC-32C, a bit at a time. */
static inline uint32_t reader_crc(uint32_t before, const uint8_t *at, uint64_t n) {
    uint32_t sum = ~before;
    while (n--) {
        sum ^= *at++;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
    }
    return ~sum;
}

enum { BLOCK_FILE = 1, BLOCK_PART, BLOCK_ROWS, BLOCK_END };

typedef struct reader_block {
    uint32_t type;
    uint64_t at, bytes;
    const uint8_t *content;
    int sum_right;
    uint32_t sum;
} reader_block;

/* The block at r->at, whatever its type; 0: there is none that is sound. */
static inline int reader_any(reader *r, reader_block *b) {
    static const uint8_t zeros[4];
    const uint8_t *h = r->bytes + r->at;
    uint64_t left = r->size - r->at;
    if (left < 32 || memcmp(h, "FRGB", 4) != 0 || reader_32(h + 28) != 0 || reader_64(h + 8) != r->number) return 0;
    uint64_t bytes = reader_64(h + 16), filled = bytes + (8 - bytes % 8) % 8;
    if (bytes > left - 32 || filled > left - 32) return 0;
    *b = (reader_block){reader_32(h + 4), r->at, bytes, h + 32, 0, reader_32(h + 24)};
    uint32_t sum = reader_crc(reader_crc(reader_crc(0, h, 24), zeros, 4), h + 28, 4 + filled);
    b->sum_right = sum == b->sum;
    r->at += 32 + filled, r->number++;
    return 1;
}

/* The next block that may not be skipped. */
static inline int reader_next(reader *r, reader_block *b) {
    while (reader_any(r, b)) {
        if (b->type != BLOCK_END) r->sums = reader_crc(r->sums, r->bytes + b->at + 24, 4);
        if (!(b->type >> 31)) return 1;
        if (!b->sum_right) return 0;
    }
    return 0;
}

static inline int reader_head(reader *r) {
    reader_block b;
    if (r->size < 12 || memcmp(r->bytes,
                               "\x89"
                               "FRUGAL\nFRGB",
                               12) != 0)
        return 0;
    r->at = 8;
    if (!reader_next(r, &b) || b.type != BLOCK_FILE || b.bytes != 48 || !b.sum_right) return 0;
    const uint8_t *c = b.content;
    r->kind = reader_32(c + 4), r->id = reader_64(c + 8), r->parent = reader_64(c + 16), r->base = reader_64(c + 24);
    r->sequence = reader_64(c + 32), r->parts = reader_32(c + 40);
    r->version = reader_32(c);
    if (r->version < 1 || r->version > 2 || r->id == 0 || r->base == 0 || r->parts == 0 || r->parts > READER_PARTS)
        return 0;
    if (r->kind == 0) return r->parent == 0 && (r->sequence > 0 || r->base == r->id);
    return r->kind == 1 && r->parent != 0 && r->sequence > 0;
}

/* Behind the numbers that every version has: weights as what, how they are rounded, and by which seed. */
static inline int reader_has_type(reader_part *p, const uint8_t *c) {
    p->type = reader_32(c), p->rounding = reader_32(c + 4), p->seed = reader_64(c + 8);
    if (p->type > 2 || p->rounding > 1 || (p->type == 0 && p->rounding != 0)) return 0;
    return p->seed == 0 || (p->type != 0 && p->rounding == 0);
}

static inline int reader_is_part(reader_part *p, const reader_block *b, uint32_t version) {
    const uint64_t most = (UINT64_C(1) << 32) - 2;
    const uint8_t *c = p->block = b->content;
    uint64_t rows = 0;
    uint64_t head = version == 1 ? 40 : 56;
    if (b->type != BLOCK_PART || b->bytes < head + 40 || !b->sum_right) return 0;
    p->rows = reader_64(c), p->step = reader_64(c + 8), p->dim = reader_32(c + 16), p->tables = reader_32(c + 20);
    p->optimizer = reader_32(c + 24), p->state = reader_32(c + 28), p->reduce = reader_32(c + 32);
    p->devices = reader_32(c + 36), p->table = c + head;
    if (version > 1 && !reader_has_type(p, c + 40)) return 0;
    const uint64_t state[] = {0, p->dim, 1, 2 * (uint64_t)p->dim, 2 * (uint64_t)p->dim}; /* floats a row: by kind */
    if (b->bytes != head + UINT64_C(40) * p->tables || p->dim == 0 || p->dim > 65536 || p->optimizer > 4) return 0;
    if (p->reduce > 1 || p->state != state[p->optimizer] || p->step > FRUGAL_MAX_FIRST_STEP) return 0;
    for (uint32_t t = 0; t < p->tables; t++) {
        uint64_t n = reader_64(p->table + UINT64_C(40) * t);
        if (n > most) return 0;
        rows += n;
    }
    return rows == p->rows && rows > 0 && rows <= most;
}

/* The last 56 bytes are the end of this file. */
static inline int reader_has_end(const reader *r) {
    reader_block b;
    if (r->size < r->at + 56) return 0;
    reader last = {.bytes = r->bytes, .size = r->size, .at = r->size - 56};
    last.number = reader_64(r->bytes + last.at + 8);
    return reader_any(&last, &b) && b.type == BLOCK_END && b.bytes == 24 && b.sum_right &&
           reader_64(b.content + 8) == r->size && reader_32(b.content + 20) == 0;
}

/* Which rows of the span a block has: offsets[n], rising; 0: it does not say so soundly. `index` has all of it. */
static inline int reader_offsets(uint32_t form, uint64_t span, uint64_t n, const uint8_t *index, uint64_t *offsets) {
    uint64_t found = 0;
    if (form == 0 && n != span) return 0;
    if (form == 1) {
        for (uint64_t bit = 0; bit < (span + 63) / 64 * 64; bit++) {
            if (!(index[bit / 8] >> bit % 8 & 1)) continue;
            if (bit >= span || found == n) return 0;
            offsets[found++] = bit;
        }
        return found == n;
    }
    for (uint64_t i = 0; i < n; i++) {
        offsets[i] = form == 0 ? i : form == 2 ? reader_number(index + 2 * i, 2) : reader_32(index + 4 * i);
        if (offsets[i] >= span || (i > 0 && offsets[i] <= offsets[i - 1])) return 0;
    }
    return 1;
}

static inline uint64_t reader_index_bytes(uint32_t form, uint64_t span, uint64_t n) {
    uint64_t bytes = form == 1 ? (span + 63) / 64 * 8 : form == 2 ? 2 * n : form == 3 ? 4 * n : 0;
    return (bytes + 7) / 8 * 8;
}

/* A block of rows of the wanted instance, put to weights[rows][dim], of its type, and state (NULL: only looked at). */
static inline int reader_rows(const reader *r, const reader_block *b, uint8_t *weights, uint8_t *state) {
    const reader_part *p = &r->part[r->wanted];
    const uint8_t *c = b->content;
    uint32_t form = reader_32(c + 4);
    uint64_t first = reader_64(c + 8), span = reader_64(c + 16), n = reader_64(c + 24);
    uint64_t weight_bytes = (p->type ? UINT64_C(2) : 4) * p->dim, state_bytes = UINT64_C(4) * p->state;
    if (!b->sum_right || form > 3 || n > b->bytes) return 0; /* a row has more than a byte */
    uint64_t index_bytes = reader_index_bytes(form, span, n);
    if (b->bytes != 32 + index_bytes + n * (weight_bytes + state_bytes)) return 0;
    uint64_t *offsets = malloc(n * sizeof *offsets);
    int sound = reader_offsets(form, span, n, c + 32, offsets);
    const uint8_t *from = c + 32 + index_bytes;
    for (uint64_t i = 0; sound && weights && i < n; i++) {
        memcpy(weights + (first + offsets[i]) * weight_bytes, from + i * weight_bytes, weight_bytes);
        memcpy(state + (first + offsets[i]) * state_bytes, from + n * weight_bytes + i * state_bytes, state_bytes);
    }
    free(offsets);
    return sound;
}

/* Goes over all rows, of which the wanted instance's are put to weights and state, if these are given. */
static inline int reader_walk(reader *r, uint8_t *weights, uint8_t *state) {
    reader_block b;
    uint64_t part = 0, next = 0; /* the row that may come next */
    while (reader_next(r, &b) && b.type == BLOCK_ROWS && b.bytes >= 32) {
        const uint8_t *c = b.content;
        uint64_t of = reader_32(c), first = reader_64(c + 8), span = reader_64(c + 16), n = reader_64(c + 24);
        for (; part < of && part < r->parts; part++, next = 0)
            if (r->kind == 0 && next != r->part[part].rows) return 0;
        if (of != part || part >= r->parts || n == 0 || span < n) return 0;
        uint64_t rows = r->part[part].rows;
        if (first < next || first > rows || span > rows - first) return 0;
        if (r->kind == 0 && (first != next || reader_32(c + 4) != 0)) return 0;
        if (of == r->wanted && !reader_rows(r, &b, weights, state)) return 0;
        next = first + span;
    }
    if (b.type != BLOCK_END || b.bytes != 24 || !b.sum_right || r->at != r->size) return 0;
    if (r->kind == 0 && (part + 1 != r->parts || next != r->part[part].rows)) return 0;
    const uint8_t *end = b.content;
    return reader_64(end) == r->number && reader_64(end + 8) == r->size && reader_32(end + 16) == r->sums &&
           reader_32(end + 20) == 0;
}

/* What is known of the save bytes[size] by whoever wants its instance `wanted`. Rows: reader_apply. */
static inline reader reader_open(const uint8_t *bytes, uint64_t size, uint32_t wanted) {
    reader r = {.bytes = bytes, .size = size, .wanted = wanted};
    reader_block b;
    int sound = reader_head(&r) && wanted < r.parts;
    for (uint32_t p = 0; sound && p < r.parts; p++)
        sound = reader_next(&r, &b) && reader_is_part(&r.part[p], &b, r.version);
    r.has_head = sound && reader_has_end(&r);
    reader walk = r;
    r.whole = r.has_head && reader_walk(&walk, NULL, NULL);
    return r;
}

static inline void reader_apply(const reader *r, uint8_t *weights, uint8_t *state) {
    reader walk = *r;
    assert_true(reader_walk(&walk, weights, state));
}

/* Is it the next of the chain after `before` (NULL: the first), and of the same tables? */
static inline int reader_continues(const reader *before, const reader *r) {
    const reader_part *p = &r->part[r->wanted];
    if (!before) return r->kind == 0;
    const reader_part *q = &before->part[before->wanted];
    if (r->kind == 0 || r->base != before->base || r->parent != before->id || r->sequence != before->sequence + 1 ||
        r->parts != before->parts || p->type != q->type || p->dim != q->dim || p->tables != q->tables ||
        p->optimizer != q->optimizer)
        return 0;
    for (uint32_t t = 0; t < p->tables; t++)
        if (memcmp(p->table + 40 * t, q->table + 40 * t, 8) != 0) return 0;
    return 1;
}

#endif /* SAVE_READER_H */
