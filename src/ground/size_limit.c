/* size_limit.c - files that grow: beyond the limit of a file's size (ulimit -f) is an error, EFBIG, not a signal that
 * ends the process. The limit is also one of files in memory.
 */
#include "ground.h"

static int is_size_pending(void) {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ);
}

/* From here on, writing beyond the limit of a file's size is an error (EFBIG), not a signal. */
FRUGAL_INTERNAL size_signal hold_size_signal(void) {
    size_signal saved;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    saved.pending = is_size_pending();
    pthread_sigmask(SIG_BLOCK, &one, &saved.mask);
    return saved;
}

FRUGAL_INTERNAL void release_size_signal(const size_signal *saved) {
    sigset_t one;
    int taken;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    if (!saved->pending && is_size_pending()) sigwait(&one, &taken); /* our write's: it returned an error as well */
    pthread_sigmask(SIG_SETMASK, &saved->mask, NULL);
}

/* Makes the file so large. Returns an errno. */
FRUGAL_INTERNAL int set_file_size(int file, uint64_t bytes) {
    size_signal saved = hold_size_signal();
    int error;
    do error = ftruncate(file, (off_t)bytes) ? errno : 0;
    while (error == EINTR);
    release_size_signal(&saved);
    return error;
}

/* Gives a part of a file its pages. Returns an errno. On older systems a signal interrupts it, and undoes it. */
FRUGAL_INTERNAL int reserve_pages(int file, uint64_t at, size_t bytes) {
    size_signal saved = hold_size_signal();
    int error;
    do error = posix_fallocate(file, (off_t)at, (off_t)bytes);
    while (error == EINTR);
    release_size_signal(&saved);
    return error;
}
