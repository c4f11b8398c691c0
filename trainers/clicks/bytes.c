/* Plain bytes are copied, gz members inflated one after the other. */
#include "trainers/clicks/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int clicks_bytes_open(clicks_bytes *bytes, int descriptor) {
    *bytes = (clicks_bytes){.descriptor = descriptor};
    bytes->block = malloc(CLICKS_BYTES_BLOCK);
    return bytes->block ? 0 : -1;
}

void clicks_bytes_close(clicks_bytes *bytes) {
    if (!bytes->block) return;
    if (bytes->inflates) inflateEnd(&bytes->inflater);
    close(bytes->descriptor);
    free(bytes->block);
    *bytes = (clicks_bytes){0};
}

/* Reads until there are at least `least` bytes, or the file ends. */
static int clicks_bytes_fill(clicks_bytes *bytes, size_t least, const char **why) {
    size_t left = bytes->end - bytes->begin;
    if (left >= least || bytes->over) return 0;
    memmove(bytes->block, bytes->block + bytes->begin, left);
    bytes->begin = 0, bytes->end = left;
    while (bytes->end < least && !bytes->over) {
        ssize_t got = read(bytes->descriptor, bytes->block + bytes->end, CLICKS_BYTES_BLOCK - bytes->end);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return *why = strerror(errno), -1;
        bytes->over = got == 0;
        bytes->end += (size_t)got;
    }
    return 0;
}

static int clicks_bytes_begin(clicks_bytes *bytes, const char **why) {
    if (clicks_bytes_fill(bytes, 2, why)) return -1;
    const unsigned char *first = bytes->block + bytes->begin;
    bytes->state = CLICKS_BYTES_PLAIN;
    if (bytes->end - bytes->begin < 2 || first[0] != 0x1f || first[1] != 0x8b) return 0;
    bytes->state = CLICKS_BYTES_MEMBER;
    bytes->inflates = inflateInit2(&bytes->inflater, 15 + 16) == Z_OK; /* 16: gz alone */
    return bytes->inflates ? 0 : (*why = "out of memory", -1);
}

static size_t clicks_bytes_copy(clicks_bytes *bytes, char *to, size_t n) {
    size_t left = bytes->end - bytes->begin;
    if (n > left) n = left;
    memcpy(to, bytes->block + bytes->begin, n);
    bytes->begin += n;
    return n;
}

/* How many bytes of to[n] the bytes at hand yield; -1: they are damaged. */
static long clicks_bytes_inflate(clicks_bytes *bytes, char *to, size_t n, const char **why) {
    z_stream *z = &bytes->inflater;
    z->next_in = bytes->block + bytes->begin, z->avail_in = (uInt)(bytes->end - bytes->begin);
    z->next_out = (Bytef *)to, z->avail_out = (uInt)n;
    int status = inflate(z, Z_NO_FLUSH);
    bytes->begin = bytes->end - z->avail_in;
    if (status == Z_STREAM_END) {
        bytes->state = CLICKS_BYTES_BETWEEN;
        inflateReset(z);
    } else if (status != Z_OK && status != Z_BUF_ERROR)
        return *why = z->msg ? z->msg : "damaged gz data", -1;
    return (long)(n - z->avail_out);
}

/* After a member comes another one, or zeros. */
static int clicks_bytes_go_on(clicks_bytes *bytes, const char **why) {
    if (bytes->state == CLICKS_BYTES_BETWEEN)
        bytes->state = bytes->block[bytes->begin] ? CLICKS_BYTES_MEMBER : CLICKS_BYTES_ZEROS;
    for (; bytes->state == CLICKS_BYTES_ZEROS && bytes->begin < bytes->end; bytes->begin++)
        if (bytes->block[bytes->begin]) return *why = "something that is no gz data follows its gz data", -1;
    return 0;
}

long clicks_bytes_read(clicks_bytes *bytes, char *to, size_t n, const char **why, int *cut) {
    size_t done = 0;
    *cut = 0;
    if (bytes->state == CLICKS_BYTES_NEW && clicks_bytes_begin(bytes, why)) return -1;
    while (done < n) {
        if (clicks_bytes_fill(bytes, 1, why)) return -1;
        if (bytes->begin == bytes->end) {
            *cut = bytes->state == CLICKS_BYTES_MEMBER;
            return *cut ? -1 : (long)done;
        }
        if (bytes->state == CLICKS_BYTES_PLAIN) {
            done += clicks_bytes_copy(bytes, to + done, n - done);
            continue;
        }
        if (clicks_bytes_go_on(bytes, why)) return -1;
        if (bytes->state != CLICKS_BYTES_MEMBER) continue;
        long got = clicks_bytes_inflate(bytes, to + done, n - done, why);
        if (got < 0) return -1;
        done += (size_t)got;
    }
    return (long)done;
}
