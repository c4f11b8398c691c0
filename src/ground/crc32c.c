/* crc32c.c - the checksum of everything that is written to files: CRC-32C (Castagnoli), which iSCSI and ext4 use, too.
 *
 * It is computed by the processor's CRC instruction if there is one, which is checked at run time, else by tables. Both
 * give the same number. An instruction takes three cycles, and one can begin in each cycle; so a block is read as three
 * streams, whose checksums are joined. To join two, the checksum of the bytes before is moved over the n bytes behind
 * as if those were zeros.
 */
#include "ground.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define CRC_POLYNOMIAL 0x82f63b78u /* its bits reversed */
#define CRC_STREAM     4096u       /* bytes of one of the three streams */

static uint32_t crc_table[8][256];  /* [k][b]: the sum of byte b and k zeros behind it */
static uint32_t crc_behind[4][256]; /* [k][b]: the sum whose byte k is b, others zero, moved over CRC_STREAM bytes */
static pthread_once_t crc_tables_made = PTHREAD_ONCE_INIT;

static void make_crc_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t sum = b;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? CRC_POLYNOMIAL : 0);
        crc_table[0][b] = sum;
    }
    for (uint32_t k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t before = crc_table[k - 1][b];
            crc_table[k][b] = before >> 8 ^ crc_table[0][before & 255];
        }
    /* Moving is linear: each bit is moved by itself, and the result of a byte is the sum of those of its bits. */
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t moved = UINT32_C(1) << bit, k = bit / 8, b = 1u << bit % 8;
        for (uint32_t i = 0; i < CRC_STREAM; i++) moved = moved >> 8 ^ crc_table[0][moved & 255];
        for (uint32_t below = 0; below < b; below++) crc_behind[k][b + below] = crc_behind[k][below] ^ moved;
    }
}

/* Moves a checksum (not inverted) over the next CRC_STREAM bytes; xor with their own checksum joins the two. */
static inline uint32_t crc_move(uint32_t sum) {
    return crc_behind[0][sum & 255] ^ crc_behind[1][sum >> 8 & 255] ^ crc_behind[2][sum >> 16 & 255] ^
           crc_behind[3][sum >> 24];
}

static inline uint64_t crc_load(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* By tables, eight bytes at a time. They are loaded one by one, so that the byte order of the processor does not
 * matter. */
static uint32_t crc_by_table(uint32_t sum, const unsigned char *at, size_t n) {
    uint32_t(*t)[256] = crc_table;
    for (; n >= 8; n -= 8, at += 8) {
        uint32_t low = sum ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        sum = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][at[4]] ^
              t[2][at[5]] ^ t[1][at[6]] ^ t[0][at[7]];
    }
    while (n--) sum = sum >> 8 ^ t[0][(sum ^ *at++) & 255];
    return sum;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_INSTRUCTION     __attribute__((target("sse4.2")))
#define CRC_WORD(sum, word) ((uint32_t)__builtin_ia32_crc32di(sum, word))
#define CRC_BYTE(sum, byte) __builtin_ia32_crc32qi(sum, byte)
static int has_crc_instruction(void) {
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__linux__) && defined(__clang__)
#define CRC_INSTRUCTION     __attribute__((target("crc")))
#define CRC_WORD(sum, word) __builtin_arm_crc32cd(sum, word)
#define CRC_BYTE(sum, byte) __builtin_arm_crc32cb(sum, byte)
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#define CRC_INSTRUCTION     __attribute__((target("+crc")))
#define CRC_WORD(sum, word) __builtin_aarch64_crc32cx(sum, word)
#define CRC_BYTE(sum, byte) __builtin_aarch64_crc32cb(sum, byte)
#endif
#if defined(__aarch64__) && defined(CRC_WORD)
static int has_crc_instruction(void) {
    return (getauxval(AT_HWCAP) & 1ul << 7) != 0; /* HWCAP_CRC32 */
}
#endif

#if defined(CRC_WORD)
CRC_INSTRUCTION static uint32_t crc_by_instruction(uint32_t sum, const unsigned char *at, size_t n) {
    for (; n >= 3 * CRC_STREAM; n -= 3 * CRC_STREAM, at += 3 * CRC_STREAM) {
        uint32_t second = 0, third = 0;
        for (size_t i = 0; i < CRC_STREAM; i += 8) {
            sum = CRC_WORD(sum, crc_load(at + i));
            second = CRC_WORD(second, crc_load(at + CRC_STREAM + i));
            third = CRC_WORD(third, crc_load(at + 2 * CRC_STREAM + i));
        }
        sum = crc_move(crc_move(sum) ^ second) ^ third;
    }
    for (; n >= 8; n -= 8, at += 8) sum = CRC_WORD(sum, crc_load(at));
    while (n--) sum = CRC_BYTE(sum, *at++);
    return sum;
}
#endif

/* Returns the checksum of the bytes whose checksum is `before` (0: no bytes), followed by data[bytes]. */
FRUGAL_INTERNAL uint32_t crc32c(uint32_t before, const void *data, size_t bytes) {
    const unsigned char *at = data;
    if (bytes == 0) return before;
    pthread_once(&crc_tables_made, make_crc_tables);
#if defined(CRC_WORD)
    if (has_crc_instruction()) return ~crc_by_instruction(~before, at, bytes);
#endif
    return ~crc_by_table(~before, at, bytes);
}
