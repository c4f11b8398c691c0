/* failing.h - calls of the system that a test can let fail: frugal_flush_failing.o calls them under these names.
 *
 * Include it in one source of a program. */
#ifndef FAILING_H
#define FAILING_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int threads_until_failure = 0; /* the nth pthread_create from now fails; 0: none */

int failing_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
int failing_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                           void *argument) {
    if (atomic_load(&threads_until_failure) && atomic_fetch_sub(&threads_until_failure, 1) == 1) return EAGAIN;
    return pthread_create(thread, attributes, start, argument);
}

static atomic_int blocks_until_failure = 0; /* the nth posix_memalign or anonymous mmap from now fails; 0: none */
static atomic_int system_fails = 0;         /* a mask of these: the call fails */
enum { PROCESSORS = 1, ALIGNED_MAPPING = 2 };
enum { HUGE_PAGE = 2 << 20 };

static inline int block_fails(void) {
    return atomic_load(&blocks_until_failure) && atomic_fetch_sub(&blocks_until_failure, 1) == 1;
}
static inline int fails(int call) {
    return (atomic_load(&system_fails) & call) != 0;
}

int failing_posix_memalign(void **memory, size_t alignment, size_t bytes);
int failing_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    return block_fails() ? ENOMEM : posix_memalign(memory, alignment, bytes);
}

void *failing_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *failing_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (file < 0 && block_fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (file >= 0 || !fails(ALIGNED_MAPPING)) return mmap(at, bytes, protection, flags, file, offset);
    unsigned char *memory = mmap(at, bytes + HUGE_PAGE, protection, flags, file, offset);
    if (memory == MAP_FAILED) return memory;
    size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE; /* by chance it lies on a huge page */
    if (before) munmap(memory, before);
    munmap(memory + before + bytes, HUGE_PAGE - before);
    return memory + before;
}

long failing_sysconf(int name);
long failing_sysconf(int name) {
    return name == _SC_NPROCESSORS_ONLN && fails(PROCESSORS) ? -1 : sysconf(name);
}

#endif /* FAILING_H */
