/* test_restore.c - saves that cannot be used are refused, and nothing is changed: every byte flipped, every length cut,
 * blocks moved, contents that contradict themselves under right checksums, other tables, other settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/saved.h"
#include "src/format.h"

/* 7 rows of 3 floats in two tables: a save of less than a KB. */
static frugal_table small_tables[2] = {{.rows = 5, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}, {.rows = 2}};

static frugal_type small_type; /* fp32, except in a TYPED_CASE */

static int typed_setup(void **state) {
    small_type = FRUGAL_BF16;
    return saved_setup(state);
}
static int typed_teardown(void **state) {
    small_type = FRUGAL_FP32;
    return saved_teardown(state);
}
#define TYPED_CASE(name, test, argument)                                                                               \
    { name, test, typed_setup, typed_teardown, (void *)(intptr_t)(argument) }

static frugal_desc small_desc(void) {
    return (frugal_desc){.tables = small_tables,
                         .n_tables = 2,
                         .dim = 3,
                         .rows_as = small_type,
                         .seed = 9,
                         .max_keys = 8,
                         .init_threads = 1,
                         .optimizer = {.kind = FRUGAL_ROWWISE_ADAGRAD},
                         .increments = 1};
}

/* Of the bytes that are damaged and the lengths that are cut; a sanitized open takes many times as long. */
#if defined(FRUGAL_SANITIZED)
enum { EACH = 7 };
#else
enum { EACH = 1 };
#endif
/* Of weights of 16 bits only some: what is damaged is found in the same way. */
static size_t each(void) {
    return small_type == FRUGAL_FP32 ? EACH : 11 * EACH;
}

/* A base at "base", and an increment of rows 1 and 6 at "increment". With `count` each has a block of counts before its
 * end. */
static void make_saves_of(uint64_t count) {
    frugal_desc d = small_desc();
    frugal *f = open_or_fail(&d);
    uint64_t one = 1;
    float row[3] = {7, 8, 9}, state[1] = {3};
    if (count)
        assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &(frugal_keys){.table = 0, .keys = &one, .n = 1}, &count));
    assert_int_equal(FRUGAL_OK, save_one(f, saved_path("base"), 0, 0));
    for (uint32_t t = 0; t < 2; t++) {
        frugal_keys k = {.table = t, .keys = &one, .n = 1};
        assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, row, state));
    }
    assert_int_equal(FRUGAL_OK, save_one(f, saved_path("increment"), 1, 0));
    frugal_close(f);
}
static void make_saves(void) {
    make_saves_of(0);
}

enum { PLACES = 3 }; /* memory; the caller's matrix; a file that is there */

/* Opens from the two in each place: refused, with the file's name, and what was there is as it was. */
static void check_refused(frugal_status wanted, const char *text, int all_places) {
    const char *saved[2] = {saved_path("base"), saved_path("increment")};
    float weights[21], state[7];
    for (int place = 0; place < (all_places ? PLACES : 1); place++) {
        frugal_desc d = small_desc();
        test_counter counter = {0};
        unsigned char *before = NULL, *after = NULL;
        size_t bytes = 0;
        frugal *f;
        d.allocate = test_allocate, d.release = test_release, d.user = &counter;
        d.saved = saved, d.n_saved = 2;
        for (int i = 0; i < 21; i++) weights[i] = (float)i, state[i % 7] = (float)i;
        if (place == 1) d.weights = weights, d.state = state;
        if (place == 2) d.file = saved_path("table"), bytes = read_file(d.file, &before);
        frugal_status status = frugal_open(&d, &f);
        if (status != wanted || !strstr(frugal_message(), text) || !strstr(frugal_message(), saved_folder))
            fail_msg("place %d: %d, wanted %d and \"%s\": %s", place, (int)status, (int)wanted, text, frugal_message());
        frugal_close(f);
        assert_int_equal(0, (int)counter.blocks_out);
        for (int i = 0; i < 21; i++) assert_true(weights[i] == (float)i);
        if (place != 2) continue;
        assert_int_equal(bytes, read_file(d.file, &after));
        assert_memory_equal(before, after, bytes);
        free(before), free(after);
    }
}

static void make_table(void) {
    frugal_desc d = small_desc();
    d.file = saved_path("table");
    frugal_close(open_or_fail(&d));
}

/* Both saves are good: the table is theirs. */
static void check_accepted(void) {
    const char *saved[2] = {saved_path("base"), saved_path("increment")};
    frugal_desc d = small_desc();
    float weights[15], state[5];
    d.saved = saved, d.n_saved = 2;
    frugal *f = open_or_fail(&d);
    read_table(f, 0, weights, state);
    assert_true(weights[3] == 7 && weights[4] == 8 && weights[5] == 9 && state[1] == 3 && state[0] == 0);
    read_table(f, 1, weights, state);
    assert_true(weights[3] == 7 && weights[0] == 0 && state[1] == 3);
    frugal_close(f);
}

/* >>damage */

static void test_every_byte(void **state) {
    const char *path = *state ? "increment" : "base";
    unsigned char *bytes;
    make_saves();
    make_table();
    check_accepted();
    size_t n = read_file(saved_path(path), &bytes);
    assert_in_range(n, 300, 800);
    for (size_t i = 0; i < n; i += each())
        for (int bit = 0; bit < 8; bit += 1 + (i % 8 > 0) * 3) {
            bytes[i] ^= (unsigned char)(1 << bit);
            write_file(saved_path(path), bytes, n);
            check_refused(FRUGAL_ERR_FILE, "", 1);
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    write_file(saved_path(path), bytes, n);
    check_accepted();
    free(bytes);
}

static void test_every_length(void **state) {
    const char *path = *state ? "increment" : "base";
    unsigned char *bytes;
    frugal_saved info;
    make_saves();
    make_table();
    size_t n = read_file(saved_path(path), &bytes);
    bytes = realloc(bytes, 2 * n);
    memset(bytes + n, 0, n);
    for (size_t length = 0; length <= 2 * n; length += each()) {
        if (length == n) continue;
        write_file(saved_path(path), bytes, length);
        check_refused(FRUGAL_ERR_FILE, "", 1);
        assert_int_equal(FRUGAL_ERR_FILE, frugal_read_saved(saved_path(path), 0, &info));
    }
    memcpy(bytes + n, bytes, n);
    write_file(saved_path(path), bytes, 2 * n); /* twice the same */
    check_refused(FRUGAL_ERR_FILE, "", 1);
    free(bytes);
}

/* >>contents: right checksums, and something wrong */

typedef struct file_image {
    unsigned char bytes[2000];
    size_t n;
} file_image;

static file_image image_of(const char *entry) {
    file_image image = {.n = 0};
    unsigned char *bytes;
    image.n = read_file(saved_path(entry), &bytes);
    assert_in_range(image.n, 1, sizeof image.bytes);
    memcpy(image.bytes, bytes, image.n);
    free(bytes);
    return image;
}

/* Where block `number` begins; and where the one behind it. */
static size_t block_at(const file_image *image, uint32_t number) {
    size_t at = SAVED_MAGIC_BYTES;
    for (uint32_t i = 0; i < number; i++) {
        saved_header h;
        memcpy(&h, image->bytes + at, sizeof h);
        at += sizeof h + saved_filled(h.bytes);
    }
    return at;
}

/* Numbers and checksums of all blocks, and the end's contents, as they have to be. */
static void mend(file_image *image) {
    uint32_t sums = 0;
    uint64_t number = 0;
    for (size_t at = SAVED_MAGIC_BYTES; at < image->n; number++) {
        saved_header h;
        memcpy(&h, image->bytes + at, sizeof h);
        size_t whole = sizeof h + saved_filled(h.bytes);
        if (at + whole > image->n) break; /* what is wrong is its length */
        h.number = number, h.sum = 0;
        if (h.type == SAVED_END && h.bytes == sizeof(saved_end)) {
            saved_end end = {.blocks = number + 1, .bytes = image->n, .sums = sums};
            memcpy(image->bytes + at + sizeof h, &end, sizeof end);
        }
        memcpy(image->bytes + at, &h, sizeof h);
        h.sum = saved_sum(0, image->bytes + at, whole);
        memcpy(image->bytes + at, &h, sizeof h);
        if (h.type != SAVED_END) sums = saved_sum(sums, &h.sum, sizeof h.sum);
        at += whole;
    }
    write_file(saved_path("image"), image->bytes, image->n);
}

static void put(const char *entry, file_image *image) {
    mend(image);
    assert_int_equal(0, rename(saved_path("image"), saved_path(entry)));
}

/* One number of a block's contents is another. */
static void check_number(const char *entry, uint32_t block, size_t offset, size_t size, uint64_t value,
                         frugal_status wanted, const char *text) {
    file_image good = image_of(entry), image = good;
    size_t at = block_at(&image, block) + sizeof(saved_header) + offset;
    assert_true(memcmp(image.bytes + at, &value, size) != 0);
    memcpy(image.bytes + at, &value, size);
    put(entry, &image);
    check_refused(wanted, text, 1);
    put(entry, &good);
}
#define CHECK(entry, block, type, field, value, text)                                                                  \
    check_number(entry, block, offsetof(type, field), sizeof(((type *)0)->field), value, FRUGAL_ERR_FILE, text)

static void test_contradictions(void **state) {
    (void)state;
    make_saves();
    make_table();
    file_image good = image_of("base");
    put("base", &good); /* mending changes nothing */
    check_accepted();
    uint64_t id;
    memcpy(&id, good.bytes + block_at(&good, 0) + sizeof(saved_header) + offsetof(saved_file, id), sizeof id);
    CHECK("base", 0, saved_file, version, 3, "has format 3, and this version of Frugal reads 1 to 2");
    CHECK("base", 0, saved_file, version, 2, "are wrong"); /* its instances say nothing of types */
    CHECK("base", 0, saved_file, kind, 2, "are wrong");
    CHECK("base", 0, saved_file, kind, SAVED_INCREMENT, "are wrong");
    CHECK("base", 0, saved_file, parent, 5, "are wrong");
    CHECK("base", 0, saved_file, base, id + 1, "are wrong");
    CHECK("base", 0, saved_file, id, 0, "are wrong");
    CHECK("base", 0, saved_file, base, 0, "are wrong");
    CHECK("base", 0, saved_file, sequence, 1, "does not continue");
    CHECK("base", 0, saved_file, parts, 0, "are wrong");
    CHECK("base", 0, saved_file, parts, 65, "are wrong");
    CHECK("base", 0, saved_file, parts, 2, "an instance is expected");
    CHECK("increment", 0, saved_file, id, 0, "are wrong");
    CHECK("increment", 0, saved_file, parent, 0, "are wrong");
    CHECK("increment", 0, saved_file, sequence, 0, "are wrong");
    CHECK("increment", 0, saved_file, parent, 1, "does not continue");
    CHECK("increment", 0, saved_file, sequence, 2, "does not continue");
    CHECK("increment", 0, saved_file, base, 1, "another base");
    CHECK("base", 1, saved_part, rows, 8, "are wrong");
    CHECK("base", 1, saved_part, n_tables, 0, "are wrong");
    CHECK("base", 1, saved_part, n_tables, 3, "are wrong");
    CHECK("base", 1, saved_part, dim, 0, "are wrong");
    CHECK("base", 1, saved_part, dim, 65537, "are wrong");
    CHECK("base", 1, saved_part, optimizer, 4, "are wrong");
    CHECK("base", 1, saved_part, reduce, 2, "are wrong");
    CHECK("base", 1, saved_part, state_floats, 3, "are wrong");
    CHECK("base", 1, saved_part, step, FRUGAL_MAX_FIRST_STEP + 1, "are wrong");
    check_number("base", 1, saved_part_bytes(1), 8, 0, FRUGAL_ERR_FILE, "are wrong");
    check_number("base", 1, saved_part_bytes(1), 8, UINT64_MAX, FRUGAL_ERR_FILE, "are wrong");
    check_accepted();
}

/* Types and what goes with them, in a save that has them; and numbers of versions that do not. */
static void test_types_that_cannot_be(void **state) {
    (void)state;
    make_saves();
    make_table();
    check_accepted();
    CHECK("base", 0, saved_file, version, 1, "are wrong"); /* a table would begin where the types are */
    CHECK("base", 0, saved_file, version, 0, "has format 0");
    CHECK("base", 1, saved_part, rows_as, 3, "are wrong");
    CHECK("base", 1, saved_part, rows_as, UINT32_MAX, "are wrong");
    CHECK("base", 1, saved_part, rows_as, FRUGAL_FP32, "are wrong"); /* with a seed */
    CHECK("base", 1, saved_part, rounding, 2, "are wrong");
    CHECK("base", 1, saved_part, rounding, FRUGAL_NEAREST, "are wrong"); /* with a seed */
    CHECK("base", 2, saved_rows, n, 6, "another size than its rows");
    CHECK("increment", 1, saved_part, rows_as, FRUGAL_FP16,
          "weights are fp16 in the increment, and bf16 in the save that it continues");
    check_number("increment", 1, offsetof(saved_part, seed), 8, 8, FRUGAL_ERR_SETTINGS, "by seed 8");
    check_accepted();
}

static void *allocate_measured(size_t bytes, size_t alignment, void *user) { /* user: the most bytes so far */
    size_t *most = user;
    void *memory;
    if (bytes > *most) *most = bytes;
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

static void release_measured(void *memory, size_t bytes, void *user) {
    (void)bytes, (void)user;
    free(memory);
}

/* An instance of more tables than there may be, in a long file of holes: refused before there is memory for it. */
static void test_long_part(void **state) {
    (void)state;
    const uint32_t tables = SAVED_MOST_TABLES + 1;
    const off_t long_file = 256 << 20;
    const char *path = saved_path("base");
    frugal_desc d = small_desc();
    frugal_saved info;
    frugal *f;
    size_t most = 0;
    make_saves();
    file_image image = image_of("base");
    size_t at = block_at(&image, 1);
    saved_header h;
    memcpy(&h, image.bytes + at, sizeof h);
    h.bytes = saved_part_bytes(1) + tables * sizeof(saved_table);
    memcpy(image.bytes + at, &h, sizeof h);
    memcpy(image.bytes + at + sizeof h + offsetof(saved_part, n_tables), &tables, sizeof tables);
    write_file(path, image.bytes, image.n);
    assert_int_equal(0, truncate(path, long_file));
    d.saved = &path, d.n_saved = 1, d.allocate = allocate_measured;
    d.release = release_measured, d.user = &most;
    assert_fails(FRUGAL_ERR_FILE, frugal_open(&d, &f), "1048577 tables; the limit is 1048576", "another copy");
    frugal_close(f);
    assert_true(most < 1 << 20);
    assert_fails(FRUGAL_ERR_FILE, frugal_read_saved(path, 0, &info), "1048577 tables", path);
}

static void test_rows_that_cannot_be(void **state) {
    (void)state;
    make_saves();
    make_table();
    CHECK("base", 2, saved_rows, part, 1, "rows are missing");
    CHECK("base", 2, saved_rows, first, 1, "out of order");
    CHECK("base", 2, saved_rows, span, 6, "out of order");
    CHECK("base", 2, saved_rows, n, 6, "another size than its rows");
    CHECK("base", 2, saved_rows, n, 0, "out of order");
    CHECK("base", 2, saved_rows, n, UINT64_MAX, "out of order");
    CHECK("base", 2, saved_rows, form, SAVED_BITS, "out of order");
    CHECK("increment", 2, saved_rows, part, 1, "out of order");
    CHECK("increment", 2, saved_rows, form, 4, "another size than its rows");
    CHECK("increment", 2, saved_rows, form, SAVED_ALL, "another size than its rows");
    CHECK("increment", 2, saved_rows, n, 1, "another size than its rows");
    CHECK("increment", 2, saved_rows, n, 7, "out of order");
    CHECK("increment", 2, saved_rows, first, 7, "out of order");
    CHECK("increment", 2, saved_rows, first, 8, "out of order");
    CHECK("increment", 2, saved_rows, first, 2, "out of order");
    CHECK("increment", 2, saved_rows, span, 7, "out of order");
    CHECK("increment", 2, saved_rows, span, 5, "cannot have");
    check_number("increment", 2, sizeof(saved_rows), 4, 0, FRUGAL_ERR_FILE, "cannot have");       /* twice the same */
    check_number("increment", 2, sizeof(saved_rows), 4, 6 << 16, FRUGAL_ERR_FILE, "cannot have"); /* beyond the span */
    file_image good = image_of("increment"), image = good; /* the same as bits: 2 of them, one too many, one beyond */
    size_t at = block_at(&image, 2) + sizeof(saved_header), index = at + sizeof(saved_rows);
    uint32_t form = SAVED_BITS;
    uint64_t bits[] = {1 | 1 << 5, 1 | 1 << 4 | 1 << 5, 1 | 1 << 6, 1};
    memcpy(image.bytes + at + offsetof(saved_rows, form), &form, sizeof form);
    for (int i = 0; i < 4; i++) {
        memcpy(image.bytes + index, &bits[i], 8);
        put("increment", &image);
        if (i == 0)
            check_accepted();
        else
            check_refused(FRUGAL_ERR_FILE, "cannot have", 1);
    }
    uint64_t offsets = UINT64_C(5) << 32; /* and as long offsets */
    form = SAVED_OFFSETS32;
    memcpy(image.bytes + at + offsetof(saved_rows, form), &form, sizeof form);
    memcpy(image.bytes + index, &offsets, 8);
    put("increment", &image);
    check_accepted();
    image.bytes[index + 4] = 6;
    put("increment", &image);
    check_refused(FRUGAL_ERR_FILE, "cannot have", 1);
}

static void test_counts_that_cannot_be(void **state) {
    const char *entry = *state ? "increment" : "base", *text = "there are counts of rows that it cannot have";
    make_saves_of(100);
    make_table();
    check_accepted();
    CHECK(entry, 3, saved_rows, part, 1, text);
    CHECK(entry, 3, saved_rows, form, SAVED_BITS, text);
    CHECK(entry, 3, saved_rows, first, 1, text);
    CHECK(entry, 3, saved_rows, first, 8, text);
    CHECK(entry, 3, saved_rows, span, 8, text);
    CHECK(entry, 3, saved_rows, n, 0, text);
    const uint64_t numbers[] = {0, 6, 8, SAVED_MOST_COUNTS + 1, UINT64_MAX}; /* of span and of n */
    file_image good = image_of(entry);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        file_image image = good;
        unsigned char *rows = image.bytes + block_at(&image, 3) + sizeof(saved_header);
        memcpy(rows + offsetof(saved_rows, span), &numbers[i], sizeof numbers[i]);
        memcpy(rows + offsetof(saved_rows, n), &numbers[i], sizeof numbers[i]);
        put(entry, &image);
        check_refused(FRUGAL_ERR_FILE, text, 1);
    }
    put(entry, &good);
    check_accepted();
}

/* A block that may be skipped, so long that its length filled up to a multiple of 8 is zero again. */
static void test_length_overflows(void **state) {
    (void)state;
    make_saves();
    make_table();
    file_image image = image_of("base");
    size_t end = block_at(&image, 3);
    saved_header h = {.magic = SAVED_BLOCK_MAGIC, .type = 77 | SAVED_SKIP};
    memmove(image.bytes + end + sizeof h, image.bytes + end, image.n - end), image.n += sizeof h;
    memcpy(image.bytes + end, &h, sizeof h);
    put("base", &image);
    check_accepted(); /* of no bytes */
    h.bytes = UINT64_MAX;
    memcpy(image.bytes + end, &h, sizeof h);
    put("base", &image);
    check_refused(FRUGAL_ERR_FILE, "longer than the file", 1);
}

/* Blocks left out, doubled, turned, of a kind that nobody knows; their numbers are right. */
static void test_blocks(void **state) {
    (void)state;
    make_saves();
    make_table();
    for (int which = 0; which < 2; which++) {
        const char *entry = which ? "increment" : "base";
        file_image good = image_of(entry), image;
        size_t end = block_at(&good, 3), rows = block_at(&good, 2), part = block_at(&good, 1);
        size_t first = block_at(&good, 0), whole = end - rows;
        uint32_t unknown = 77, skip = 77 | SAVED_SKIP;
        image = good, memmove(image.bytes + first, image.bytes + part, good.n - part), image.n -= part - first;
        put(entry, &image), check_refused(FRUGAL_ERR_FILE, "another kind or size", 1);
        image = good, memmove(image.bytes + part, image.bytes + rows, good.n - rows), image.n -= rows - part;
        put(entry, &image), check_refused(FRUGAL_ERR_FILE, "an instance is expected", 1);
        image = good, memmove(image.bytes + rows, image.bytes + end, good.n - end), image.n -= whole;
        put(entry, &image); /* of an increment, nothing has changed */
        if (!which) check_refused(FRUGAL_ERR_FILE, "rows are missing", 1);
        image = good, memmove(image.bytes + end, image.bytes + rows, good.n - rows), image.n += whole;
        put(entry, &image), check_refused(FRUGAL_ERR_FILE, "out of order", 1);
        image = good, memcpy(image.bytes + rows + 4, &unknown, 4); /* instead of rows */
        put(entry, &image), check_refused(FRUGAL_ERR_FILE, "newer version", 1);
        memmove(image.bytes + end, image.bytes + rows, good.n - rows);
        memcpy(image.bytes + rows, good.bytes + rows, whole), image.n += whole;
        memcpy(image.bytes + end + 4, &skip, 4); /* beside rows, and it may be skipped */
        put(entry, &image), check_accepted();
        image.bytes[end + 40] ^= 1; /* but not if it is damaged */
        write_file(saved_path(entry), image.bytes, image.n);
        check_refused(FRUGAL_ERR_FILE, "is damaged", 1);
        put(entry, &good);
        check_accepted();
    }
}

/* An end too many, of another size, damaged; an instance too many; rows that begin too late; a block that is longer
 * than the file. */
static void test_more_blocks(void **state) {
    (void)state;
    make_saves();
    make_table();
    file_image good = image_of("base"), image = good;
    size_t end = block_at(&good, 3), rows = block_at(&good, 2), part = block_at(&good, 1), first = block_at(&good, 0);
    uint32_t type = SAVED_END, two = 2;
    memcpy(image.bytes + rows + 4, &type, 4);
    put("base", &image), check_refused(FRUGAL_ERR_FILE, "its end has another size", 1);
    image = good, memcpy(image.bytes + good.n, good.bytes + end, good.n - end), image.n += good.n - end;
    put("base", &image), check_refused(FRUGAL_ERR_FILE, "there are bytes behind its end", 1);
    image.bytes[end + 40] ^= 1;
    write_file(saved_path("base"), image.bytes, image.n);
    check_refused(FRUGAL_ERR_FILE, "its end is damaged", 1);
    image = good;
    uint64_t later[3] = {1, 6, 6}; /* first, span, n */
    memcpy(image.bytes + rows + sizeof(saved_header) + offsetof(saved_rows, first), later, sizeof later);
    put("base", &image), check_refused(FRUGAL_ERR_FILE, "out of order", 1);
    saved_header beyond = {.magic = SAVED_BLOCK_MAGIC, .type = SAVED_FILE, .bytes = 5};
    memcpy(image.bytes + first, &beyond, sizeof beyond);
    write_file(saved_path("base"), image.bytes, first + sizeof beyond + 5);
    check_refused(FRUGAL_ERR_FILE, "longer than the file", 1);
    put("base", &good);
    image = good = image_of("increment");
    memmove(image.bytes + rows, image.bytes + part, good.n - part), image.n += rows - part;
    memcpy(image.bytes + first + sizeof(saved_header) + offsetof(saved_file, parts), &two, 4);
    put("increment", &image), check_refused(FRUGAL_ERR_FILE, "does not continue", 1);
    put("increment", &good);
    check_accepted();
}

/* The end says other things than what came before it. */
static void test_ends(void **state) {
    (void)state;
    make_saves();
    make_table();
    static const size_t offsets[] = {offsetof(saved_end, blocks), offsetof(saved_end, bytes), offsetof(saved_end, sums),
                                     offsetof(saved_end, zero)};
    file_image good = image_of("base");
    for (int i = 0; i < 4; i++) {
        file_image image = good;
        size_t at = block_at(&image, 3), whole = sizeof(saved_header) + sizeof(saved_end);
        saved_header h;
        image.bytes[at + sizeof h + offsets[i]] ^= 1;
        memcpy(&h, image.bytes + at, sizeof h);
        h.sum = 0;
        memcpy(image.bytes + at, &h, sizeof h);
        h.sum = saved_sum(0, image.bytes + at, whole);
        memcpy(image.bytes + at, &h, sizeof h);
        write_file(saved_path("base"), image.bytes, image.n);
        check_refused(FRUGAL_ERR_FILE, "its end", 1);
    }
}

/* >>foreign: files that are none of ours */

static void test_foreign(void **state) {
    (void)state;
    make_saves();
    make_table();
    const char *const texts[] = {"", "x", "hello, this is a text of a user's, who has typed the wrong name",
                                 "\211FRUGAL\n\1\0\0\0 a table's file, which begins with the same magic"};
    for (int i = 0; i < 4; i++) {
        write_file(saved_path("base"), texts[i], i == 3 ? 60 : strlen(texts[i]));
        check_refused(FRUGAL_ERR_FILE, i < 2 ? "ends too early" : "does not begin as one", 1);
    }
    assert_int_equal(0, remove(saved_path("base")));
    check_refused(FRUGAL_ERR_FILE, "No such file", 1);
    assert_int_equal(0, mkfifo(saved_path("base"), 0666));
    check_refused(FRUGAL_ERR_FILE, "FIFO", 1);
    assert_int_equal(0, remove(saved_path("base")));
    assert_int_equal(0, symlink(saved_path("table"), saved_path("base")));
    check_refused(FRUGAL_ERR_FILE, "does not begin as one", 1);
}

/* >>others: tables and settings that are not the save's */

static void check_desc(const frugal_desc *desc, frugal_status wanted, const char *text1, const char *text2) {
    const char *saved[2] = {saved_path("base"), saved_path("increment")};
    frugal_desc d = *desc;
    frugal *f;
    d.saved = saved, d.n_saved = 2;
    expect_failure(wanted, frugal_open(&d, &f), text1, text2, "frugal_open", __LINE__);
    frugal_close(f);
}

static void test_other_tables(void **state) {
    (void)state;
    make_saves();
    frugal_table tables[3] = {small_tables[0], small_tables[1], {.rows = 1}};
    frugal_desc d = small_desc();
    d.tables = tables, d.dim = 4;
    check_desc(&d, FRUGAL_ERR_FILE, "2 tables of dim 4", "2 of dim 3");
    d.dim = 3, d.optimizer.kind = FRUGAL_ADAM;
    check_desc(&d, FRUGAL_ERR_FILE, "optimizer 3", "optimizer 2");
    d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD, d.n_tables = 3;
    check_desc(&d, FRUGAL_ERR_FILE, "3 tables", "the save has 2");
    d.n_tables = 2, tables[1].rows = 3;
    check_desc(&d, FRUGAL_ERR_FILE, "table 1 has 3 rows", "2 in the save");
    d = small_desc(), d.saved_part = 1;
    check_desc(&d, FRUGAL_ERR_ARGUMENT, "instance 1", "has 1");
    d = small_desc(), d.first_step = 5;
    check_desc(&d, FRUGAL_ERR_ARGUMENT, "first_step is 5", "leave it 0");
}

static void test_other_settings(void **state) {
    (void)state;
    const char *saved[2] = {saved_path("base"), saved_path("increment")};
    make_saves();
    for (int i = 0; i < 8; i++) {
        frugal_desc d = small_desc();
        frugal_table tables[2] = {small_tables[0], small_tables[1]};
        frugal_optimizer *o = &d.optimizer, own = {.kind = FRUGAL_ROWWISE_ADAGRAD, .lr_scale = 2};
        frugal *f;
        d.tables = tables;
        if (i == 0) o->eps = 1e-3f;
        if (i == 1) o->weight_decay = 1e-3f;
        if (i == 2) o->initial_accumulator = 1e-3f;
        if (i == 3) o->frozen = 1;
        if (i == 4) tables[1].optimizer = &own;
        if (i == 5) d.reduce = FRUGAL_MEAN;
        if (i == 6) d.reduce = FRUGAL_MEAN, d.devices = 2;
        if (i == 7) o->beta1 = 0.5f;
        check_desc(&d, FRUGAL_ERR_SETTINGS, i == 5 || i == 6 ? "by mean" : "other optimizer settings", "may_differ");
        d.saved_settings_may_differ = 1, d.saved = saved, d.n_saved = 2;
        assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
        frugal_close(f);
    }
    frugal_desc mean = small_desc();
    mean.reduce = FRUGAL_MEAN, mean.devices = 2;
    frugal *of_mean = open_or_fail(&mean);
    assert_int_equal(FRUGAL_OK, save_one(of_mean, saved_path("base"), 0, 1));
    assert_int_equal(FRUGAL_OK, save_one(of_mean, saved_path("increment2"), 1, 0));
    assert_int_equal(0, rename(saved_path("increment2"), saved_path("increment")));
    frugal_close(of_mean);
    mean.devices = 3;
    check_desc(&mean, FRUGAL_ERR_SETTINGS, "3 devices, reduced by mean", "the save has 2, reduced by mean");
    mean.reduce = FRUGAL_SUM;
    check_desc(&mean, FRUGAL_ERR_SETTINGS, "3 devices, reduced by sum", "the save has 2, reduced by mean");
    assert_int_equal(0, remove(saved_path("base")) | remove(saved_path("increment")));
    make_saves();
    frugal_desc d = small_desc(); /* sums do not depend on the number of devices that bring nothing */
    d.devices = 3;
    d.saved = saved, d.n_saved = 2;
    frugal *f = open_or_fail(&d);
    frugal_close(f);
}

/* Training goes on by the same random bits, unless the caller says that it need not. */
static void test_other_rounding(void **state) {
    (void)state;
    const char *saved[2] = {saved_path("base"), saved_path("increment")};
    make_saves();
    for (int i = 0; i < 4; i++) {
        frugal_desc d = small_desc();
        frugal *f;
        if (i == 0) d.seed = 10;
        if (i == 1) d.rounding = FRUGAL_NEAREST;
        if (i == 2) d.rounding = FRUGAL_NEAREST, d.seed = 10;
        if (i == 3) d.rows_as = FRUGAL_FP16, d.seed = 10; /* the save says nothing of that */
        if (i == 0)
            check_desc(&d, FRUGAL_ERR_SETTINGS, "bf16 are rounded stochastically, by seed 10",
                       "in the save stochastically, by seed 9");
        if (i == 1 || i == 2)
            check_desc(&d, FRUGAL_ERR_SETTINGS, "to the nearest; in the save stochastically, by seed 9;", "may_differ");
        d.saved_settings_may_differ = i < 3, d.saved = saved, d.n_saved = 2;
        assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
        frugal_close(f);
    }
}

/* Two instances, saved as one, at "set": blocks 3 and 4 are their rows, 5 the end. Returns the path. */
static const char *make_set(void) {
    frugal_desc d = small_desc();
    const char *path = saved_path("set");
    frugal *f[2] = {open_or_fail(&d), open_or_fail(&d)};
    assert_int_equal(FRUGAL_OK, frugal_save(f, 2, &(frugal_save_desc){.path = path}));
    frugal_close(f[0]), frugal_close(f[1]);
    return path;
}

/* The rows of the last instance of a set are not there. */
static void test_set_without_rows(void **state) {
    (void)state;
    frugal_desc d = small_desc();
    frugal *f;
    const char *path = make_set();
    file_image image = image_of("set");
    size_t last = block_at(&image, 4), end = block_at(&image, 5);
    memmove(image.bytes + last, image.bytes + end, image.n - end), image.n -= end - last;
    put("set", &image);
    for (d.saved_part = 0; d.saved_part < 2; d.saved_part++) {
        d.saved = &path, d.n_saved = 1;
        assert_fails(FRUGAL_ERR_FILE, frugal_open(&d, &f), "rows are missing", path);
        frugal_close(f);
    }
}

/* A damaged set: what is damaged in the rows of an instance is refused by whoever opens that one, and anything else by
 * whoever opens any. The rows of the other one are not read: opening both would read all of the file twice. */
static void test_damaged_set(void **state) {
    (void)state;
    unsigned char *bytes;
    frugal *f;
    frugal_desc d = small_desc();
    const char *path = make_set();
    size_t n = read_file(path, &bytes);
    file_image image = image_of("set");
    size_t rows[2] = {block_at(&image, 3), block_at(&image, 4)}, end = block_at(&image, 5);
    d.saved = &path, d.n_saved = 1;
    for (size_t i = 0; i < n; i += EACH) {
        const size_t behind_head = sizeof(saved_header) + sizeof(saved_rows);
        int in[2] = {i >= rows[0] + behind_head && i < rows[1], i >= rows[1] + behind_head && i < end};
        bytes[i] ^= 0x10;
        write_file(path, bytes, n);
        for (d.saved_part = 0; d.saved_part < 2; d.saved_part++) {
            int is_refused = frugal_open(&d, &f) == FRUGAL_ERR_FILE, own = in[d.saved_part];
            int is_head = i >= rows[0] + sizeof(saved_header) && i < end && !in[0] && !in[1];
            frugal_close(f);
            if (!is_head && is_refused != (own || !in[!d.saved_part])) fail_msg("byte %zu, %u", i, d.saved_part);
            if (is_head && d.saved_part == (i >= rows[1]) && !is_refused) fail_msg("byte %zu of a head", i);
        }
        bytes[i] ^= 0x10;
    }
    free(bytes);
}

/* Rows that are there must not change if a save cannot be used: before one of several instances is restored over them,
 * the rows of all are looked at. */
static void test_damaged_set_over_rows(void **state) {
    (void)state;
    unsigned char *bytes;
    frugal *f;
    frugal_desc d = small_desc();
    const char *path = make_set();
    size_t n = read_file(path, &bytes);
    file_image image = image_of("set");
    bytes[block_at(&image, 5) - 1] ^= 1; /* the last row of the second */
    write_file(path, bytes, n);
    free(bytes);
    d.file = saved_path("table");
    frugal_close(open_or_fail(&d));
    size_t before = read_file(d.file, &bytes), after;
    unsigned char *now;
    d.saved = &path, d.n_saved = 1;
    assert_fails(FRUGAL_ERR_FILE, frugal_open(&d, &f), "a block is damaged", path);
    frugal_close(f);
    after = read_file(d.file, &now);
    assert_true(before == after && !memcmp(bytes, now, before));
    free(bytes), free(now);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("every byte of a base", test_every_byte, 0),
        SAVED_CASE("every byte of an increment", test_every_byte, 1),
        SAVED_CASE("every length of a base", test_every_length, 0),
        SAVED_CASE("every length of an increment", test_every_length, 1),
        TYPED_CASE("bytes of a base of bf16", test_every_byte, 0),
        TYPED_CASE("lengths of a base of bf16", test_every_length, 0),
        TYPED_CASE("bytes of an increment of bf16", test_every_byte, 1),
        SAVED_TEST(test_contradictions),
        TYPED_CASE("types that cannot be", test_types_that_cannot_be, 0),
        SAVED_TEST(test_long_part),
        SAVED_TEST(test_rows_that_cannot_be),
        SAVED_CASE("counts of a base that cannot be", test_counts_that_cannot_be, 0),
        SAVED_CASE("counts of an increment that cannot be", test_counts_that_cannot_be, 1),
        SAVED_TEST(test_length_overflows),
        SAVED_TEST(test_blocks),
        SAVED_TEST(test_more_blocks),
        SAVED_TEST(test_ends),
        SAVED_TEST(test_foreign),
        SAVED_TEST(test_other_tables),
        SAVED_TEST(test_other_settings),
        TYPED_CASE("other rounding", test_other_rounding, 0),
        SAVED_TEST(test_set_without_rows),
        SAVED_TEST(test_damaged_set),
        SAVED_TEST(test_damaged_set_over_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
