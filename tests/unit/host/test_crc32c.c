/* test_crc32c.c - checksums are CRC-32C's: published vectors, a computation bit by bit, and the same number from each
 * way of computing them, for every length, alignment and division in two.
 *
 * The library is compiled into this program, which can let it find that the processor lacks instructions. Do not link
 * frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/support.h"

static int lacks_instruction = 0;
#if defined(__x86_64__) && defined(__GNUC__)
static int machine_has(const char *feature) {
    return !strcmp(feature, "sse4.2") && !lacks_instruction && __builtin_cpu_supports("sse4.2");
}
#define __builtin_cpu_supports(feature) machine_has(feature)
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
static unsigned long machine_has(unsigned long type) {
    return lacks_instruction ? 0 : getauxval(type);
}
#define getauxval(type) machine_has(type)
#endif

#include "frugal_flush.c"

enum { LONGEST = 3 * CRC_STREAM * 2 + 100 };
static unsigned char bytes[LONGEST + 8];

static void draw_bytes(void) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)test_mix2(7, i);
}

/* The definition, a bit at a time. */
static uint32_t by_bits(uint32_t before, const unsigned char *at, size_t n) {
    uint32_t sum = ~before;
    for (size_t i = 0; i < n; i++) {
        sum ^= at[i];
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ 0x82f63b78u : sum >> 1;
    }
    return ~sum;
}

/* RFC 3720, B.4; and the check value of the CRC catalogue. */
static void test_published(void **state) {
    lacks_instruction = (int)(intptr_t)*state;
    unsigned char ramp[32], falling[32], zeros[32] = {0}, ones[32];
    const unsigned char read_10[48] = {1,    0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                       0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                       0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
    for (unsigned i = 0; i < 32; i++) ramp[i] = (unsigned char)i, falling[i] = (unsigned char)(31 - i);
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(0x8a9136aau, crc32c(0, zeros, 32));
    assert_int_equal(0x62a8ab43u, crc32c(0, ones, 32));
    assert_int_equal(0x46dd794eu, crc32c(0, ramp, 32));
    assert_int_equal(0x113fdb5cu, crc32c(0, falling, 32));
    assert_int_equal(0xd9963a56u, crc32c(0, read_10, 48));
    assert_int_equal(0xe3069283u, crc32c(0, "123456789", 9));
    assert_int_equal(0, crc32c(0, "", 0));
}

/* Lengths around the eight bytes of a word and around the three streams, at every alignment. */
static void test_lengths(void **state) {
    lacks_instruction = (int)(intptr_t)*state;
    draw_bytes();
    for (size_t n = 0; n <= LONGEST; n += n < 300 || n % CRC_STREAM > CRC_STREAM - 20 || n % CRC_STREAM < 20 ? 1 : 97)
        for (size_t from = 0; from < 8; from += 1 + (n >= 300))
            if (crc32c((uint32_t)n, bytes + from, n) != by_bits((uint32_t)n, bytes + from, n))
                fail_msg("%zu bytes from %zu", n, from);
}

/* The sum goes on where it stopped, wherever that was. */
static void test_cuts(void **state) {
    lacks_instruction = (int)(intptr_t)*state;
    draw_bytes();
    uint32_t whole = crc32c(0, bytes, LONGEST);
    assert_int_equal(by_bits(0, bytes, LONGEST), whole);
    for (size_t cut = 0; cut <= LONGEST; cut += 1 + cut / 16)
        assert_int_equal(whole, crc32c(crc32c(0, bytes, cut), bytes + cut, LONGEST - cut));
}

static void test_ways(void **state) {
    lacks_instruction = (int)(intptr_t)*state;
#if defined(CRC_WORD)
    draw_bytes();
    if (!has_crc_instruction()) {
        print_message("# SKIPPED the processor's instruction: it has none\n");
        skip();
    }
    for (size_t n = 0; n <= LONGEST; n += 1 + n / 64) {
        uint32_t sum = (uint32_t)test_mix2(3, n);
        assert_int_equal(crc_by_table(sum, bytes + n % 8, n), crc_by_instruction(sum, bytes + n % 8, n));
    }
#else
    print_message("# SKIPPED the processor's instruction: none is known\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("published vectors, by the instruction", test_published, 0),
        CASE("published vectors, by tables", test_published, 1),
        CASE("lengths and alignments, by the instruction", test_lengths, 0),
        CASE("lengths and alignments, by tables", test_lengths, 1),
        CASE("cuts, by the instruction", test_cuts, 0),
        CASE("cuts, by tables", test_cuts, 1),
        CASE("the instruction and the tables agree", test_ways, 0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
