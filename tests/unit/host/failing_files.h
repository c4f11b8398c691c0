/* failing_files.h - calls of the system on files that a test can let fail, each the nth from now, in the library that
 * the program includes behind this header.
 *
 * Include it in one source of a program, before frugal_flush.c. */
#ifndef FAILING_FILES_H
#define FAILING_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    atomic_int calls;    /* since it was set to zero */
    atomic_int at;       /* this one fails, from 1 on; 0: none */
    atomic_int error;    /* with this errno */
    atomic_int for_ever; /* all from then on fail */
    atomic_int only;     /* a call (below), to count no other; 0: all */
    atomic_int shorter;  /* reads and writes move at most so many bytes; 0: as many as there are */
    atomic_int failures; /* calls that failed */
    char log[64]; /* calls since it was emptied, a letter of CALL_LETTERS each; what comes behind 63 is left out */
    atomic_int logged;
    void (*before_lock)(void);          /* what somebody else does just before the next lock; NULL: nothing */
    void (*_Atomic before_write)(void); /* ... just before the next write, of whichever thread */
} failing_files;
#define CALL_LETTERS " osrwgSlnmk" /* in the order of these: open stat read write grow Sync link name map lock */
enum {
    CALL_OPEN = 1,
    CALL_STAT,
    CALL_READ,
    CALL_WRITE,
    CALL_GROW,
    CALL_SYNC,
    CALL_LINK,
    CALL_RENAME,
    CALL_MAP,
    CALL_LOCK,
    FILE_CALLS /* their number, and one */
};

/* The nth of these calls (0: of all) from now fails with `error`; with `for_ever` all from then on. */
static inline void let_files_fail(int call, int at, int error, int for_ever) {
    atomic_store(&failing_files.at, 0); /* none, while the others are set */
    atomic_store(&failing_files.error, error);
    atomic_store(&failing_files.for_ever, for_ever);
    atomic_store(&failing_files.calls, 0);
    atomic_store(&failing_files.failures, 0);
    atomic_store(&failing_files.shorter, 0);
    atomic_store(&failing_files.only, call);
    atomic_store(&failing_files.at, at);
}
/* Empties the log of calls. */
static inline void log_file_calls(void) {
    memset(failing_files.log, 0, sizeof failing_files.log);
    atomic_store(&failing_files.logged, 0);
}
/* Do the calls end like this, stat and open aside? */
static inline int file_calls_end(const char *wanted) {
    char calls[sizeof failing_files.log] = {0};
    size_t n = 0, length = strlen(wanted);
    for (const char *c = failing_files.log; *c; c++)
        if (*c != 's' && *c != 'o') calls[n++] = *c;
    return n >= length && !strcmp(calls + n - length, wanted);
}
static inline int file_call_fails(int call) {
    int at = atomic_fetch_add(&failing_files.logged, 1);
    if (at < (int)sizeof failing_files.log - 1) failing_files.log[at] = CALL_LETTERS[call];
    if (failing_files.only && failing_files.only != call) return 0;
    int number = atomic_fetch_add(&failing_files.calls, 1) + 1;
    if (!failing_files.at || (failing_files.for_ever ? number < failing_files.at : number != failing_files.at))
        return 0;
    atomic_fetch_add(&failing_files.failures, 1);
    errno = failing_files.error;
    return 1;
}
static inline size_t file_bytes_moved(size_t bytes) {
    size_t most = (size_t)atomic_load(&failing_files.shorter);
    return most && bytes > most ? most : bytes;
}

static inline int failing_open(const char *name, int flags, ...) { /* whatever it makes, with 0666 */
    return file_call_fails(CALL_OPEN) ? -1 : open(name, flags, 0666);
}
static inline int failing_openat(int folder, const char *name, int flags, mode_t mode) {
    if (flags & O_CREAT && !(flags & O_EXCL)) { /* a file of somebody else's could be taken for a new one */
        errno = EINVAL;
        return -1;
    }
    return file_call_fails(CALL_OPEN) ? -1 : openat(folder, name, flags, mode);
}
static inline int failing_fstat(int file, struct stat *status) {
    return file_call_fails(CALL_STAT) ? -1 : fstat(file, status);
}
static inline ssize_t failing_pread(int file, void *data, size_t bytes, off_t at) {
    return file_call_fails(CALL_READ) ? -1 : pread(file, data, file_bytes_moved(bytes), at);
}
static inline ssize_t failing_pwrite(int file, const void *data, size_t bytes, off_t at) {
    void (*meanwhile)(void) = atomic_exchange(&failing_files.before_write, NULL);
    if (meanwhile) meanwhile();
    if (!file_call_fails(CALL_WRITE)) return pwrite(file, data, file_bytes_moved(bytes), at);
    return failing_files.error ? -1 : 0; /* without an error: nothing is written */
}
static inline int failing_ftruncate(int file, off_t bytes) {
    return file_call_fails(CALL_GROW) ? -1 : ftruncate(file, bytes);
}
static inline int failing_posix_fallocate(int file, off_t from, off_t bytes) {
    return file_call_fails(CALL_GROW) ? failing_files.error : posix_fallocate(file, from, bytes);
}
static inline int failing_fsync(int file) {
    return file_call_fails(CALL_SYNC) ? -1 : fsync(file);
}
static inline int failing_msync(void *at, size_t bytes, int flags) {
    return file_call_fails(CALL_SYNC) ? -1 : msync(at, bytes, flags);
}
static inline int failing_flock(int file, int operation) {
    void (*meanwhile)(void) = failing_files.before_lock;
    failing_files.before_lock = NULL;
    if (meanwhile) meanwhile();
    return file_call_fails(CALL_LOCK) ? -1 : flock(file, operation);
}
static inline void *failing_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return file >= 0 && file_call_fails(CALL_MAP) ? MAP_FAILED : mmap(at, bytes, protection, flags, file, offset);
}
static inline int failing_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return file_call_fails(CALL_LINK) ? -1 : linkat(from_folder, from, to_folder, to, flags);
}
static inline int failing_renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return file_call_fails(CALL_RENAME) ? -1 : renameat(from_folder, from, to_folder, to);
}
static inline int failing_getentropy(void *bytes, size_t n) {
    (void)bytes, (void)n; /* never is any: whatever is drawn is drawn by the library's own way */
    return -1;
}

#define open            failing_open
#define openat          failing_openat
#define fstat           failing_fstat
#define pread           failing_pread
#define pwrite          failing_pwrite
#define ftruncate       failing_ftruncate
#define posix_fallocate failing_posix_fallocate
#define fsync           failing_fsync
#define msync           failing_msync
#define flock           failing_flock
#define mmap            failing_mmap
#define linkat          failing_linkat
#define renameat        failing_renameat
#define getentropy      failing_getentropy

#endif /* FAILING_FILES_H */
