/* CRC-32 by eight tables: eight bytes a step. */
#include "trainers/common/crc32.h"

#include <pthread.h>

#define CRC32_POLYNOMIAL 0xedb88320u /* 0x04c11db7, reflected */

/* table[k][b]: the remainder of byte b with k zero bytes behind it. Constant once made. */
static uint32_t crc32_table[8][256];
static pthread_once_t crc32_once = PTHREAD_ONCE_INIT;

static void crc32_make_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? CRC32_POLYNOMIAL : 0);
        crc32_table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t crc = crc32_table[k - 1][b];
            crc32_table[k][b] = crc >> 8 ^ crc32_table[0][crc & 255];
        }
}

static uint32_t crc32_word(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t crc32_of(uint32_t before, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    const uint32_t(*t)[256] = (const uint32_t(*)[256])crc32_table;
    uint32_t crc = ~before;
    pthread_once(&crc32_once, crc32_make_tables);
    for (; n >= 8; n -= 8, at += 8) {
        uint32_t low = crc ^ crc32_word(at), high = crc32_word(at + 4);
        crc = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
              t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
    }
    for (; n; n--, at++) crc = crc >> 8 ^ t[0][(crc ^ *at) & 255];
    return ~crc;
}
