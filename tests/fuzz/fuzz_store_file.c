/* fuzz_store_file.c - a table in a file: frugal_open maps it where its size is right, with the bits that are in it,
 * makes it where there is none or an empty one, and else refuses it with its name and both sizes. What was written is
 * there when it is opened again; a file that was refused is as it was, and no other file is left behind, not even where
 * memory ends in the middle of opening.
 *
 * The first bytes are the settings; the rest is the file, padded or cut to the right size more often than not. */
#include "src/device.h"
#include "fuzz.h"

enum { MOST_ROWS = 8, MOST_DIM = 40, NO_FILE = 0, EMPTY_FILE = 1, ONE_BYTE_LESS = 2, ONE_BYTE_MORE = 3, AS_IT_IS = 4 };

typedef struct trial {
    frugal_desc desc;
    frugal_table tables[2];
    test_counter counter;
    uint64_t rows;
    char path[128];
} trial;

static void choose_settings(trial *t, test_random *r) {
    for (int i = 0; i < 2; i++)
        t->tables[i] =
            (frugal_table){.rows = 1 + test_below(r, MOST_ROWS / 2), .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    t->rows = t->tables[0].rows + t->tables[1].rows;
    t->desc = (frugal_desc){.tables = t->tables,
                            .n_tables = 2,
                            .dim = 1 + (uint32_t)test_below(r, MOST_DIM),
                            .max_keys = 4,
                            .optimizer = {.kind = (frugal_optimizer_kind)test_below(r, 4), .initial_accumulator = 0.5f},
                            .init_threads = 1,
                            .workers = test_below(r, 4) == 1, /* the last memory asked for, when the file is made */
                            .file = t->path,
                            .allocate = test_allocate,
                            .release = test_release,
                            .user = &t->counter};
    snprintf(t->path, sizeof t->path, "%s/table", fuzz_folder());
}

/* How large the file is to be: what the library makes. */
static size_t size_wanted(trial *t) {
    size_t size = 0;
    frugal *f;
    if (frugal_open(&t->desc, &f) != FRUGAL_OK) fail_msg("no new file: %s", frugal_message());
    frugal_close(f);
    free(fuzz_read("table", &size));
    assert_true(size >= t->rows * t->desc.dim * sizeof(float));
    fuzz_folder(); /* empty again */
    return size;
}

/* Reads all rows: weights[rows][dim], state[rows][state_floats]. */
static void read_rows(trial *t, frugal *f, float *weights, float *state) {
    uint64_t keys[MOST_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7}, first = 0;
    uint32_t state_floats = frugal_state_floats(t->desc.optimizer.kind, t->desc.dim);
    for (uint32_t i = 0; i < 2; first += t->tables[i++].rows) {
        frugal_keys k = {i, keys, (uint32_t)t->tables[i].rows};
        if (frugal_read_rows(f, &k, weights + first * t->desc.dim, state + first * state_floats) != FRUGAL_OK)
            fail_msg("read_rows: %s", frugal_message());
    }
}

/* The rows are the bits of the file, each at its place. */
static void check_rows(trial *t, frugal *f, const char *bytes, size_t size) {
    float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * 2 * MOST_DIM];
    const frugal_store *s = frugal_get_store(f);
    read_rows(t, f, weights, state);
    size_t state_at = s->state ? (size_t)(s->state - s->weights) * sizeof(float) : 0;
    for (uint64_t row = 0; row < t->rows; row++) {
        size_t w = row * s->weights_stride * sizeof(float), st = state_at + row * s->state_stride * sizeof(float);
        assert_true(w + s->dim * sizeof(float) <= size && st + s->state_floats * sizeof(float) <= size);
        assert_true(!memcmp(bytes + w, weights + row * s->dim, s->dim * sizeof(float)));
        assert_true(!memcmp(bytes + st, state + row * s->state_floats, s->state_floats * sizeof(float)));
    }
}

/* Writes a row, closes, opens again: it is there, and so is all the rest. */
static void check_written(trial *t, frugal *f, test_random *r) {
    float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * 2 * MOST_DIM], row[MOST_DIM], again[MOST_ROWS * MOST_DIM];
    uint64_t key = test_below(r, t->tables[1].rows);
    frugal_keys k = {1, &key, 1};
    for (uint32_t i = 0; i < t->desc.dim; i++) row[i] = (float)(int8_t)test_below(r, 256) / 8;
    read_rows(t, f, weights, state);
    if (frugal_write_rows(f, &k, row, NULL) != FRUGAL_OK) fail_msg("write_rows: %s", frugal_message());
    memcpy(weights + (t->tables[0].rows + key) * t->desc.dim, row, t->desc.dim * sizeof(float));
    frugal_close(f);
    if (frugal_open(&t->desc, &f) != FRUGAL_OK) fail_msg("not opened again: %s", frugal_message());
    read_rows(t, f, again, state);
    assert_true(!memcmp(weights, again, t->rows * t->desc.dim * sizeof(float)));
    frugal_close(f);
}

/* The name, the size it has and the size it should have. */
static void check_refused(trial *t, frugal *f, size_t size, size_t wanted) {
    char sizes[2][32];
    snprintf(sizes[0], 32, " %zu bytes", size);
    snprintf(sizes[1], 32, " %zu:", wanted);
    if (!strstr(frugal_message(), t->path) || !strstr(frugal_message(), sizes[0]) ||
        !strstr(frugal_message(), sizes[1]))
        fail_msg("refused, and says '%s'", frugal_message());
    frugal_close(f);
}

const unsigned fuzz_inputs = 2000;

/* Opening fails at its nth allocation: what was there before is there, and nothing else. */
static void check_no_memory(trial *t, uint64_t nth, const char *bytes, size_t size, int there) {
    frugal *f = NULL;
    size_t left = 0;
    t->counter.fail_at = t->counter.calls + nth;
    frugal_status status = frugal_open(&t->desc, &f);
    frugal_close(f);
    t->counter.fail_at = 0;
    if (status == FRUGAL_OK) return; /* it took fewer; or the file is refused before */
    assert_true(status == (t->counter.failures ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_FILE));
    char *after = fuzz_read("table", &left);
    assert_true((after != NULL) == there && left == size && !(there && memcmp(after, bytes, size)));
    assert_int_equal(there, fuzz_count_files());
    free(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    test_random r = fuzz_bytes(data, size);
    trial t = {.rows = 0};
    frugal *f = NULL;
    choose_settings(&t, &r);
    uint64_t kind = test_below(&r, 10), nth = test_below(&r, 16), rest = r.at < size ? size - r.at : 0;
    size_t wanted = size_wanted(&t), has = kind == NO_FILE || kind == EMPTY_FILE ? 0 : wanted, left = 0;
    if (kind == ONE_BYTE_LESS) has--;
    if (kind == ONE_BYTE_MORE) has++;
    if (kind == AS_IT_IS) has = rest;
    char *bytes = calloc(has + 1, 1), *after;
    for (size_t i = 0; i < has; i++) bytes[i] = rest ? (char)data[r.at + i % rest] : 0;
    if (kind != NO_FILE) fuzz_write("table", bytes, has);
    if (nth) check_no_memory(&t, nth, bytes, has, kind != NO_FILE);
    if (nth && kind == NO_FILE) unlink(t.path);
    if (nth && kind == EMPTY_FILE) fuzz_write("table", bytes, 0);
    frugal_status status = frugal_open(&t.desc, &f);
    int right = has == 0 || has == wanted;
    assert_int_equal(status, right ? FRUGAL_OK : FRUGAL_ERR_FILE);
    after = fuzz_read("table", &left);
    assert_true(after && left == (right ? wanted : has));
    if (has) assert_true(!memcmp(after, bytes, has)); /* neither open nor a refusal writes to it */
    if (right) check_rows(&t, f, after, left);
    if (right)
        check_written(&t, f, &r);
    else
        check_refused(&t, f, has, wanted);
    assert_int_equal(1, fuzz_count_files());
    assert_true(t.counter.bytes_out == 0 && t.counter.blocks_out == 0);
    free(bytes), free(after);
    return 0;
}
