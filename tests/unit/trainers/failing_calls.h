/* failing_calls.h - calls of the system that write: a test can let the n-th of them fail, write less than it was given,
 * or end the process. trainers/common's file.c and save.c are compiled to call them under these names.
 *
 * Include it in one source of a program. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CALLS_WORK, CALLS_FAIL, CALLS_KILL, CALLS_SHORT };

static int calls_do = CALLS_WORK; /* what the n-th does */
static long calls_until = 0;      /* n; counted down */
static int calls_error = EIO;     /* errno of one that fails */
static char calls_log[4096];      /* a letter a call: o, w, f (fsync of a file), d (of a folder), r, c, m */
static size_t calls_logged = 0;
static ino_t calls_synced = 0; /* what was synced last */

static void calls_begin(int what, long until) {
    calls_do = what, calls_until = until, calls_logged = 0;
    calls_log[0] = 0;
}

/* Must this one fail? */
static int calls_fails(char letter) {
    if (calls_logged + 1 < sizeof calls_log) calls_log[calls_logged++] = letter, calls_log[calls_logged] = 0;
    if (calls_do == CALLS_WORK || !calls_until || --calls_until) return 0;
    if (calls_do == CALLS_KILL) _exit(9);
    errno = calls_error;
    return calls_do == CALLS_FAIL;
}

int failing_open(const char *path, int flags, ...);
int failing_open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return calls_fails('o') ? -1 : open(path, flags, mode);
}

ssize_t failing_write(int file, const void *bytes, size_t n);
ssize_t failing_write(int file, const void *bytes, size_t n) {
    long before = calls_until;
    if (calls_fails('w')) return -1;
    if (calls_do == CALLS_SHORT && before == 1) n = n / 2 + 1; /* the rest comes with the next call */
    return write(file, bytes, n);
}

/* Not in earnest: thousands of saves would wait for the disk, and nobody pulls its plug. */
int failing_fsync(int file);
int failing_fsync(int file) {
    struct stat is;
    int folder = !fstat(file, &is) && S_ISDIR(is.st_mode);
    calls_synced = is.st_ino;
    return calls_fails(folder ? 'd' : 'f') ? -1 : 0;
}

int failing_rename(const char *from, const char *to);
int failing_rename(const char *from, const char *to) {
    return calls_fails('r') ? -1 : rename(from, to);
}

int failing_close(int file);
int failing_close(int file) {
    int failed = calls_fails('c'), number = errno, status = close(file); /* closed in any case, as Linux does */
    errno = number;
    return failed ? -1 : status;
}

int failing_mkdir(const char *path, mode_t mode);
int failing_mkdir(const char *path, mode_t mode) {
    return calls_fails('m') ? -1 : mkdir(path, mode);
}

#endif /* FAILING_CALLS_H */
