/* CRC-32 as zlib, PNG and Python's zlib.crc32 have it: so that a saved set can be verified with common tools.
 * crc32_of(crc32_of(0, a), b) is the CRC of a followed by b. */
#ifndef CRC32_H
#define CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_of(uint32_t before, const void *bytes, size_t n);

#endif
