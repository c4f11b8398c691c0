/* CRC-32 as zlib, PNG and Python's zlib.crc32 have it: whoever reads a saved set can verify it with what is at hand.
 * crc32_of(crc32_of(0, a), b) is that of a and b in turn. */
#ifndef CRC32_H
#define CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_of(uint32_t before, const void *bytes, size_t n);

#endif
