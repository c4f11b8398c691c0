/* faults_streams.c - stdio for faults.so: the C library's streams write by internal calls that cannot be intercepted.
 *
 * So a stream of a watched file is one of our own (fopencookie), which writes by the calls of faults_calls.c, as the C
 * library's would: short writes are continued, errors go to the stream.
 */
#include "tests/durability/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STREAMS = 64 };
static struct {
    FILE *stream;
    int fd;
} streams[STREAMS]; /* a program under test opens few, from one thread at a time */

static int fd_of(const void *cookie) {
    return (int)(intptr_t)cookie;
}
static ssize_t stream_write(void *cookie, const char *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd_of(cookie), data + done, bytes - done);
        if (n < 0) return 0; /* what fopencookie calls an error */
        done += (size_t)n;
    }
    return (ssize_t)done;
}
static ssize_t stream_read(void *cookie, char *data, size_t bytes) {
    return read(fd_of(cookie), data, bytes);
}
static int stream_seek(void *cookie, off_t *offset, int whence) {
    off_t at = lseek(fd_of(cookie), *offset, whence);
    if (at >= 0) *offset = at;
    return at < 0 ? -1 : 0;
}
static int stream_close(void *cookie) {
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].stream && streams[i].fd == fd_of(cookie)) streams[i].stream = NULL;
    return close(fd_of(cookie));
}

static FILE *stream_of(int fd, const char *mode) {
    FILE *stream = fopencookie((void *)(intptr_t)fd, mode,
                               (cookie_io_functions_t){stream_read, stream_write, stream_seek, stream_close});
    for (int i = 0; stream && i < STREAMS; i++)
        if (!streams[i].stream) {
            streams[i].stream = stream;
            streams[i].fd = fd;
            break;
        }
    return stream;
}

static int flags_of(const char *mode) {
    int both = strchr(mode, '+') != NULL, flags = both ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
    if (*mode == 'w') flags |= O_CREAT | O_TRUNC;
    if (*mode == 'a') flags |= O_CREAT | O_APPEND;
    return flags | (strchr(mode, 'x') ? O_EXCL : 0) | (strchr(mode, 'e') ? O_CLOEXEC : 0);
}

FILE *fopen(const char *name, const char *mode) {
    static __typeof__(fopen) *really;
    char path[FAULTS_NAME];
    if (!really) *(void **)&really = dlsym(RTLD_NEXT, "fopen");
    if (!faults_watches(AT_FDCWD, name, path) || (!faults_reads() && flags_of(mode) == O_RDONLY))
        return really(name, mode);
    int fd = open(name, flags_of(mode), 0666);
    return fd < 0 ? NULL : stream_of(fd, mode);
}
FILE *fopen64(const char *name, const char *mode) __attribute__((alias("fopen")));

FILE *fdopen(int fd, const char *mode) {
    static __typeof__(fdopen) *really;
    if (!really) *(void **)&really = dlsym(RTLD_NEXT, "fdopen");
    const watched_file *file = faults_file(fd);
    return file && !file->acks ? stream_of(fd, mode) : really(fd, mode);
}

int fileno(FILE *stream) {
    static __typeof__(fileno) *really;
    if (!really) *(void **)&really = dlsym(RTLD_NEXT, "fileno");
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].stream == stream) return streams[i].fd;
    return really(stream);
}
