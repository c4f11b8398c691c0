/* test_clicks_bytes.c - bytes of plain and gz files: members in any pieces come back whole; a damaged or truncated file
 * is never taken for a shorter one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/clicks/bytes.h"
#include "tests/seed.h"
#include "tests/support.h"

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

/* text[n] as a member, behind what is in *to. */
static void add_member(bytes *to, const unsigned char *text, size_t n) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)n};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, n);
    to->at = realloc(to->at, to->n + room);
    assert_non_null(to->at);
    z.next_out = to->at + to->n, z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    to->n += room - z.avail_out;
    deflateEnd(&z);
}

/* Reads a file of these bytes in pieces of up to `piece`: how many there were, into text[room]; -1: refused. */
static long read_back(const bytes *file, unsigned char *text, size_t room, size_t piece) {
    char name[] = "/tmp/test_clicks_bytes.XXXXXX";
    const char *why = NULL;
    int made = mkstemp(name), cut = 0;
    clicks_bytes in;
    size_t n = 0;
    long got = 0;
    assert_true(made >= 0 && unlink(name) == 0);
    assert_true(write(made, file->at, file->n) == (ssize_t)file->n && lseek(made, 0, SEEK_SET) == 0);
    assert_int_equal(clicks_bytes_open(&in, made), 0);
    do {
        size_t wanted = piece < room - n ? piece : room - n;
        got = clicks_bytes_read(&in, (char *)text + n, wanted, &why, &cut);
        n += got > 0 ? (size_t)got : 0;
        if (got >= 0 && (size_t)got < wanted) break;
    } while (got > 0 && n < room);
    assert_true(got >= 0 || cut || (why && *why));
    clicks_bytes_close(&in);
    clicks_bytes_close(&in); /* of zeros */
    return got < 0 ? -1 : (long)n;
}

static void test_members(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_clicks_bytes", 3)};
    enum { MOST = 400000 };
    unsigned char *text = malloc(MOST), *again = malloc(MOST + 1);
    for (int round = 0; round < 40 / SHORTER; round++) {
        bytes file = {0};
        size_t n = 0, members = test_below(&r, 6);
        for (size_t i = 0; i < members; i++) {
            size_t length = test_chance(&r, 20) ? 0 : test_below(&r, MOST / 6);
            for (size_t k = 0; k < length; k++) text[n + k] = (unsigned char)test_below(&r, 7);
            add_member(&file, text + n, length);
            n += length;
        }
        size_t zeros = members && test_chance(&r, 30) ? test_below(&r, 300000) : 0;
        file.at = realloc(file.at, file.n + zeros + 1);
        memset(file.at + file.n, 0, zeros);
        file.n += zeros;
        assert_int_equal(read_back(&file, again, MOST + 1, 1 + test_below(&r, 200000)), n);
        assert_memory_equal(text, again, n);
        free(file.at);
    }
    free(text);
    free(again);
}

static void test_plain(void **state) {
    (void)state;
    unsigned char again[64];
    static const char *const texts[] = {"", "\x1f", "a", "plain text", "\x1f\x8c not gz"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bytes file = {(unsigned char *)(uintptr_t)texts[i], strlen(texts[i])};
        for (size_t piece = 1; piece < 20; piece++) {
            assert_int_equal(read_back(&file, again, sizeof again, piece), file.n);
            assert_memory_equal(again, texts[i], file.n);
        }
    }
}

/* A bit of each byte behind the first member changed, and each length cut: it is refused, or all is there, as where the
 * change is in a name or a date; but where a member ends there is nothing to see. */
static void test_damage(void **state) {
    (void)state;
    unsigned char text[300], again[400];
    bytes file = {0};
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * i);
    add_member(&file, text, 200);
    size_t first = file.n;
    add_member(&file, text + 200, 100);
    assert_int_equal(read_back(&file, again, sizeof again, 1000), 300);
    for (size_t at = first; at < file.n; at++)
        for (int bit = 0; bit < 8; bit++) {
            file.at[at] ^= (unsigned char)(1 << bit);
            long got = read_back(&file, again, sizeof again, 1000);
            if (got != -1 && (got != 300 || memcmp(again, text, 300)))
                fail_msg("bit %d of byte %zu changed: %ld bytes", bit, at - first, got);
            file.at[at] ^= (unsigned char)(1 << bit);
        }
    for (size_t length = 2; length < file.n; length++) {
        bytes shorter = {file.at, length};
        assert_int_equal(read_back(&shorter, again, sizeof again, 1000), length == first ? 200 : -1);
    }
    file.at = realloc(file.at, file.n + 3);
    memcpy(file.at + file.n, "\0\0x", 3);
    file.n += 3;
    assert_int_equal(read_back(&file, again, sizeof again, 1000), -1); /* zeros, and then something */
    free(file.at);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("test_clicks_bytes", tests, NULL, NULL);
}
