/* fuzz_store_file.c - a table in a file: frugal_open maps it where its header is this table's, with the bits that are
 * in its rows, makes it where there is none or an empty one, and else refuses it by name: noise of whatever size, a
 * header with a byte changed, a file that is cut or longer. What was written is there when it is opened again; a file
 * that was refused is as it was, and no other file is left behind, not even where memory ends in the middle of opening.
 *
 * The first bytes are the settings; the rest is the file's, or its rows'. */
#include "src/device.h"
#include "src/format.h"
#include "fuzz.h"

enum { MOST_ROWS = 8, MOST_DIM = 40 };
enum { NO_FILE, EMPTY_FILE, NOISE, NOISE_OF_SIZE, ONE_BYTE_LESS, ONE_BYTE_MORE, HEADER_CHANGED, KINDS = 10 };

typedef struct trial {
    frugal_desc desc;
    frugal_table tables[2];
    test_counter counter;
    uint64_t rows;
    char path[128];
} trial;

typedef struct content { /* of the file, before it is opened */
    char *bytes;
    size_t size;
    int there, right; /* is there a file; may it be opened */
} content;

static void choose_settings(trial *t, test_random *r) {
    for (int i = 0; i < 2; i++)
        t->tables[i] =
            (frugal_table){.rows = 1 + test_below(r, MOST_ROWS / 2), .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    t->rows = t->tables[0].rows + t->tables[1].rows;
    uint64_t dim = test_below(r, 3 * MOST_DIM); /* and the type */
    t->desc = (frugal_desc){.tables = t->tables,
                            .n_tables = 2,
                            .dim = 1 + (uint32_t)(dim % MOST_DIM),
                            .rows_as = (frugal_type)(dim / MOST_DIM),
                            .max_keys = 4,
                            .optimizer = {.kind = (frugal_optimizer_kind)test_below(r, FRUGAL_OPTIMIZER_KINDS),
                                          .initial_accumulator = 0.5f},
                            .init_threads = 1,
                            .workers = test_below(r, 4) == 1, /* the last memory asked for, when the file is made */
                            .file = t->path,
                            .allocate = test_allocate,
                            .release = test_release,
                            .user = &t->counter};
    snprintf(t->path, sizeof t->path, "%s/table", fuzz_folder());
}

/* The file that the library makes, all of it. */
static char *made_file(trial *t, size_t *size) {
    frugal *f;
    if (frugal_open(&t->desc, &f) != FRUGAL_OK) fail_msg("no new file: %s", frugal_message());
    frugal_close(f);
    char *bytes = fuzz_read("table", size);
    assert_true(bytes && *size >= t->rows * t->desc.dim * frugal_type_bytes(t->desc.rows_as));
    fuzz_folder(); /* empty again */
    return bytes;
}

/* What is there: by the first bytes one of the kinds; `data` is the rest. */
static content choose_content(trial *t, test_random *r, const uint8_t *data, size_t size) {
    uint64_t kind = test_below(r, KINDS), at = test_below(r, 65536);
    size_t n;
    char *bytes = made_file(t, &n);
    content c = {.there = kind != NO_FILE, .right = kind <= EMPTY_FILE || kind > HEADER_CHANGED};
    uint64_t list = TABLE_PAGE + t->desc.n_tables * sizeof(saved_table), rest = r->at < size ? size - r->at : 0;
    table_header header;
    memcpy(&header, bytes, sizeof header);
    c.size = kind <= EMPTY_FILE ? 0 : kind == NOISE ? rest : n - (kind == ONE_BYTE_LESS) + (kind == ONE_BYTE_MORE);
    if (kind == NOISE && rest == 0) c.right = 1; /* empty */
    c.bytes = calloc(c.size + 1, 1);
    memcpy(c.bytes, bytes, c.size < n ? c.size : n);
    size_t from = kind == NOISE || kind == NOISE_OF_SIZE ? 0 : header.weights_at;
    for (size_t i = from; i < c.size; i++) c.bytes[i] = rest ? (char)data[r->at + (i - from) % rest] : 0;
    if (kind == HEADER_CHANGED) c.bytes[at % list] ^= (char)(1 + at / list % 255);
    if (c.there) fuzz_write("table", c.bytes, c.size);
    free(bytes);
    return c;
}

/* Reads all rows: weights[rows][dim], state[rows][state_floats]. */
static void read_rows(trial *t, frugal *f, float *weights, float *state) {
    uint64_t keys[MOST_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7}, first = 0;
    uint32_t state_floats = frugal_state_floats(t->desc.optimizer.kind, t->desc.dim);
    for (uint32_t i = 0; i < 2; first += t->tables[i++].rows) {
        frugal_keys k = {.table = i, .keys = keys, .n = (uint32_t)t->tables[i].rows};
        if (frugal_read_rows(f, &k, weights + first * t->desc.dim, state + first * state_floats) != FRUGAL_OK)
            fail_msg("read_rows: %s", frugal_message());
    }
}

/* The rows are the bits of the file, each at its place. */
static void check_rows(trial *t, frugal *f, const char *bytes, size_t size) {
    float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * 2 * MOST_DIM];
    const frugal_store *s = frugal_get_store(f);
    table_header header;
    memcpy(&header, bytes, sizeof header);
    read_rows(t, f, weights, state);
    for (uint64_t row = 0; row < t->rows; row++) {
        size_t w = header.weights_at + row * s->weights_stride * frugal_type_bytes(s->rows_as);
        size_t st = header.state_at + row * s->state_stride * sizeof(float);
        assert_true(w + frugal_row_bytes(s) <= size && st + s->state_floats * sizeof(float) <= size);
        assert_true(!memcmp(bytes + w, frugal_row_at(s, row), frugal_row_bytes(s)));
        if (s->rows_as == FRUGAL_FP32) assert_true(!memcmp(bytes + w, weights + row * s->dim, s->dim * sizeof(float)));
        assert_true(!memcmp(bytes + st, state + row * s->state_floats, s->state_floats * sizeof(float)));
    }
}

/* Writes a row, closes, opens again: it is there, and so is all the rest. */
static void check_written(trial *t, frugal *f, test_random *r) {
    float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * 2 * MOST_DIM], row[MOST_DIM], again[MOST_ROWS * MOST_DIM];
    uint64_t key = test_below(r, t->tables[1].rows);
    frugal_keys k = {.table = 1, .keys = &key, .n = 1};
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

/* The name. */
static void check_refused(const trial *t, frugal *f) {
    if (!strstr(frugal_message(), t->path)) fail_msg("refused, and says '%s'", frugal_message());
    frugal_close(f);
}

/* The file is as it was; so is the folder. */
static void check_unchanged(const content *c) {
    size_t left = 0;
    char *after = fuzz_read("table", &left);
    assert_true((after != NULL) == c->there && left == c->size && !(c->there && memcmp(after, c->bytes, c->size)));
    assert_int_equal(c->there, fuzz_count_files());
    free(after);
}

const unsigned fuzz_inputs = 2000;

/* Opening fails at its nth allocation: what was there before is there, and nothing else. */
static void check_no_memory(trial *t, uint64_t nth, const content *c) {
    frugal *f = NULL;
    t->counter.fail_at = t->counter.calls + nth;
    frugal_status status = frugal_open(&t->desc, &f);
    t->counter.fail_at = 0;
    if (status != FRUGAL_OK) check_unchanged(c); /* before it is closed, too */
    frugal_close(f);
    if (status == FRUGAL_OK) { /* it took fewer */
        if (c->there)
            fuzz_write("table", c->bytes, c->size);
        else
            unlink(t->path);
        return;
    }
    assert_true(status == (t->counter.failures ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_FILE));
    t->counter.failures = 0;
    check_unchanged(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    test_random r = fuzz_bytes(data, size);
    trial t = {.rows = 0};
    frugal *f = NULL;
    size_t left = 0;
    choose_settings(&t, &r);
    uint64_t nth = test_below(&r, 16);
    content c = choose_content(&t, &r, data, size);
    if (nth) check_no_memory(&t, nth, &c);
    frugal_status status = frugal_open(&t.desc, &f);
    assert_int_equal(status, c.right ? FRUGAL_OK : FRUGAL_ERR_FILE);
    if (c.right) {
        char *after = fuzz_read("table", &left);
        assert_true(after && left > TABLE_PAGE && !(c.size && left != c.size));
        if (c.size)
            assert_true(!memcmp(after + TABLE_PAGE, c.bytes + TABLE_PAGE, c.size - TABLE_PAGE)); /* not written */
        check_rows(&t, f, after, left);
        check_written(&t, f, &r);
        assert_int_equal(1, fuzz_count_files());
        free(after);
    } else {
        check_refused(&t, f);
        check_unchanged(&c);
    }
    assert_true(t.counter.bytes_out == 0 && t.counter.blocks_out == 0);
    free(c.bytes);
    return 0;
}
