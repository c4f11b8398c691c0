/* fuzz_saved.c - saves, damaged in any way: frugal_read_saved and frugal_open take from them exactly what a plain
 * reader (save_reader.h) finds, or refuse them by name, and then leave the caller's rows as they were.
 *
 * The first bytes say which instance is wanted, whether the harness repairs what checksums and counts guard, so that
 * the fuzzer comes behind them, whether it is opened as another type than it is of, and where the first file ends: a
 * base, and behind it an increment, if any. */
#include "frugal_save.h"
#include "src/device.h"
#include "../reference.h"
#include "fuzz.h"
#include "save_reader.h"

enum { REPAIR_SUMS = 1, REPAIR_COUNTS = 2, COUNTED = 4, MATRIX = 8, MODES = 16 };
enum { MOST_ROWS = 2048, MOST_DIM = 40, MOST_TABLES = 64 };
enum { MOST_BYTES = 24 << 20 }; /* that opening such tables may ask for at once */

typedef struct trial {
    frugal_desc desc;
    frugal_table tables[MOST_TABLES];
    test_counter counter;
    int mode;
    uint8_t *bytes[2];
    reader saved[2];
    char paths[2][128];
    const char *names[2];
    uint32_t n;
    uint64_t floats, state_floats; /* of the table: weights, of any type, and floats of state */
    float *weights, *state;        /* the caller's matrix; the former may be of halves */
} trial;

static void put_number(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, value >>= 8) at[i] = (uint8_t)value;
}

/* Makes checksums right, as far as blocks are there; with REPAIR_COUNTS also numbers, and what the end says of the
 * file. */
static void repair(uint8_t *bytes, uint64_t size, int mode) {
    uint32_t sums = 0;
    uint64_t number = 0;
    for (uint64_t at = 8; size >= 40 && at <= size - 32; number++) {
        uint8_t *h = bytes + at;
        uint64_t n = reader_64(h + 16), filled = n + (8 - n % 8) % 8;
        if (n > size - at - 32 || filled > size - at - 32) return;
        int is_end = reader_32(h + 4) == BLOCK_END && n == 24;
        if (mode & REPAIR_COUNTS) put_number(h + 8, number, 8);
        if (is_end) put_number(h + 32 + 16, sums, 4);
        if (is_end && mode & REPAIR_COUNTS) put_number(h + 32, number + 1, 8), put_number(h + 32 + 8, size, 8);
        put_number(h + 24, 0, 4);
        put_number(h + 24, reader_crc(0, h, 32 + filled), 4);
        sums = reader_crc(sums, h + 24, 4);
        at += 32 + filled;
    }
}

static void *bounded_allocate(size_t bytes, size_t alignment, void *user) {
    if (bytes > MOST_BYTES) fail_msg("%zu bytes are asked for", bytes);
    return test_allocate(bytes, alignment, user);
}

static void read_input(trial *t, const uint8_t *data, size_t size) {
    test_random r = fuzz_bytes(data, size);
    uint32_t wanted;
    t->mode = (int)test_below(&r, 3 * MODES), wanted = (uint32_t)test_below(&r, 4);
    uint64_t split = test_below(&r, 65536), from = r.at < size ? r.at : size;
    uint64_t length[2] = {size - from, 0};
    if (split > 0 && split < length[0]) length[1] = length[0] - split, length[0] = split;
    t->n = length[1] ? 2 : 1;
    const char *folder = fuzz_folder();
    for (uint32_t i = 0; i < t->n; from += length[i++]) {
        t->bytes[i] = malloc(length[i] + 1);
        memcpy(t->bytes[i], data + from, length[i]);
        if (t->mode & REPAIR_SUMS) repair(t->bytes[i], length[i], t->mode);
        t->saved[i] = reader_open(t->bytes[i], length[i], wanted);
        fuzz_write(i ? "b" : "a", t->bytes[i], length[i]);
        snprintf(t->paths[i], sizeof t->paths[i], "%s/%s", folder, i ? "b" : "a");
        t->names[i] = t->paths[i];
    }
}

static void check_info(const trial *t, uint32_t i) {
    const reader *r = &t->saved[i];
    const reader_part *p = &r->part[r->wanted];
    frugal_saved info;
    frugal_status status = frugal_read_saved(t->paths[i], r->wanted, &info);
    if (!r->has_head) {
        assert_true(status == FRUGAL_ERR_FILE || status == FRUGAL_ERR_ARGUMENT);
        assert_true(strstr(frugal_message(), t->paths[i]) != NULL);
        return;
    }
    if (status != FRUGAL_OK) fail_msg("refused, and says '%s'", frugal_message());
    assert_true(info.increment == (int)r->kind && info.id == r->id && info.parent == r->parent);
    assert_true(info.base == r->base && info.sequence == r->sequence && info.bytes == r->size);
    assert_true(info.parts == r->parts && info.rows == p->rows && info.step == p->step && info.dim == p->dim);
    assert_true(info.n_tables == p->tables && info.devices == p->devices && info.optimizer == p->optimizer);
    assert_true(info.reduce == p->reduce && info.rows_as == p->type && info.rounding == p->rounding);
    assert_true(info.seed == p->seed);
}

/* The tables of the first save, if they are small; others, which it cannot have, if not. Can it be right? */
static int choose_desc(trial *t) {
    const reader *r = &t->saved[0];
    const reader_part *p = &r->part[r->wanted];
    int fits = r->has_head && p->rows <= MOST_ROWS && p->dim <= MOST_DIM && p->tables <= MOST_TABLES;
    uint32_t n = fits ? p->tables : 1;
    for (uint32_t i = 0; i < n; i++)
        t->tables[i] = (frugal_table){.rows = fits ? reader_64(p->table + 40 * i) : MOST_ROWS + 1};
    t->desc = (frugal_desc){.tables = t->tables,
                            .n_tables = n,
                            .dim = fits ? p->dim : 1,
                            .rows_as = (frugal_type)((p->type + (uint32_t)(t->mode / MODES)) % 3),
                            .max_keys = 1,
                            .optimizer = {.kind = fits ? (frugal_optimizer_kind)p->optimizer : FRUGAL_SGD},
                            .init_threads = 1,
                            .saved = t->names,
                            .n_saved = t->n,
                            .saved_part = r->wanted,
                            .saved_settings_may_differ = 1};
    if (t->mode & COUNTED)
        t->desc.allocate = bounded_allocate, t->desc.release = test_release, t->desc.user = &t->counter;
    uint64_t rows = fits ? p->rows : MOST_ROWS + 1;
    t->floats = rows * t->desc.dim;
    t->state_floats = rows * frugal_state_floats(t->desc.optimizer.kind, t->desc.dim);
    return fits;
}

static void give_matrix(trial *t) {
    t->weights = malloc(t->floats * 4), t->state = malloc(t->state_floats * 4 + 4);
    memset(t->weights, 0x55, t->floats * 4), memset(t->state, 0x55, t->state_floats * 4);
    t->desc.weights = t->weights;
    if (t->state_floats) t->desc.state = t->state;
}

static int is_filled(const float *floats, uint64_t n) {
    for (uint64_t i = 0; i < n * 4; i++)
        if (((const uint8_t *)floats)[i] != 0x55) return 0;
    return 1;
}

/* Weight i of a row of the type, as a float, by arithmetic. */
static float weight_at(const uint8_t *row, uint32_t type, uint32_t i) {
    float x;
    uint32_t bits = type ? (uint32_t)reader_number(row + 2 * i, 2) : reader_32(row + 4 * i);
    if (type == 1) bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    if (type < 2) return x;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31
                           ? (fraction ? (double)NAN : (double)INFINITY)
                           : ldexp(exponent ? fraction + 1024 : fraction, (exponent ? (int)exponent : 1) - 25);
    return (float)(bits >> 15 ? -magnitude : magnitude);
}

/* Are the weights of `now` those of `then`, each rounded to the nearest? Any two NaN are the same. */
static int are_converted(const uint8_t *then, uint32_t type, const uint8_t *now, uint32_t other, uint32_t dim) {
    for (uint32_t i = 0; i < dim; i++) {
        float wanted = reference_round((int)other, weight_at(then, type, i), -1), found = weight_at(now, other, i);
        if (memcmp(&wanted, &found, sizeof wanted) && !(isnan(wanted) && isnan(found))) return 0;
    }
    return 1;
}

static void check_rows(const trial *t, const frugal *f) {
    const frugal_store *s = frugal_get_store(f);
    uint8_t *weights = calloc(t->floats + 1, 4), *state = calloc(t->state_floats + 1, 4);
    for (uint32_t i = 0; i < t->n; i++) reader_apply(&t->saved[i], weights, state);
    const reader *last = &t->saved[t->n - 1];
    uint32_t type = last->part[last->wanted].type;
    assert_true(frugal_settings(f)->first_step == last->part[last->wanted].step);
    for (uint64_t row = 0; row < s->rows; row++) {
        size_t w = s->dim * (type ? 2 : 4), st = s->state_floats * sizeof(float);
        if (type == s->rows_as)
            assert_true(!memcmp(weights + row * w, frugal_row_at(s, row), w));
        else
            assert_true(are_converted(weights + row * w, type, frugal_row_at(s, row), s->rows_as, s->dim));
        if (st) assert_true(!memcmp(state + row * st, s->state + row * s->state_stride, st));
    }
    free(weights), free(state);
}

const unsigned fuzz_inputs = 3000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static trial t; /* too large for a stack */
    frugal *f = NULL;
    memset(&t, 0, sizeof t);
    read_input(&t, data, size);
    for (uint32_t i = 0; i < t.n; i++) check_info(&t, i);
    int right = choose_desc(&t);
    for (uint32_t i = 0; i < t.n && right; i++)
        right = t.saved[i].whole && reader_continues(i ? &t.saved[i - 1] : NULL, &t.saved[i]);
    if (t.mode & MATRIX) give_matrix(&t);
    frugal_status status = frugal_open(&t.desc, &f);
    if (right) {
        if (status != FRUGAL_OK) fail_msg("refused, and says '%s'", frugal_message());
        check_rows(&t, f);
    } else {
        assert_true(status == FRUGAL_ERR_FILE || status == FRUGAL_ERR_ARGUMENT);
        assert_true(strstr(frugal_message(), t.paths[0]) || strstr(frugal_message(), t.paths[1]));
        assert_true(!t.weights || (is_filled(t.weights, t.floats) && is_filled(t.state, t.state_floats)));
    }
    frugal_close(f);
    assert_true(t.counter.bytes_out == 0 && t.counter.blocks_out == 0);
    assert_int_equal(t.n, fuzz_count_files());
    for (uint32_t i = 0; i < t.n; i++) free(t.bytes[i]);
    free(t.weights), free(t.state);
    return 0;
}
