/* The bytes of a file, plain or gz.
 *
 * A gz file is what gzip and cat make: members one after the other, and zeros after the last. Anything else after a
 * member is an error, because it may be a member whose beginning is damaged, and its lines must not be dropped
 * silently.
 */
#ifndef CLICKS_BYTES_H
#define CLICKS_BYTES_H

#include <stddef.h>
#include <zlib.h>

enum { CLICKS_BYTES_BLOCK = 128 << 10 };

typedef struct clicks_bytes {
    int descriptor;
    enum { CLICKS_BYTES_NEW, CLICKS_BYTES_PLAIN, CLICKS_BYTES_MEMBER, CLICKS_BYTES_BETWEEN, CLICKS_BYTES_ZEROS } state;
    int over; /* the file has no more bytes than these */
    unsigned char *block;
    size_t begin, end; /* the part of the block that is not read yet */
    z_stream inflater; /* if the file is gz */
    int inflates;
} clicks_bytes;

/* Takes the descriptor. 0; -1: no memory, and nothing to close. */
int clicks_bytes_open(clicks_bytes *bytes, int descriptor);
void clicks_bytes_close(clicks_bytes *bytes);
/* to[n]; fewer only at the end of the file. -1: error, with why; *cut: the file ends in the middle of its gz data. */
long clicks_bytes_read(clicks_bytes *bytes, char *to, size_t n, const char **why, int *cut);

#endif
