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
enum { PROCESSORS = 1, ALIGNED_MAPPING = 2, LARGE_PAGES = 4 };
enum { HUGE_PAGE = 2 << 20, LARGE_PAGE = 1 << 16 };
static atomic_int refused_pages; /* calls that a system with large pages refuses */

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

/* With LARGE_PAGES, pages have 64 KiB where a program can tell: addresses and offsets must be multiples, and lengths
 * are rounded up. */
static inline int is_refused_page(const void *at, off_t offset) {
    int is_refused = fails(LARGE_PAGES) && ((uintptr_t)at % LARGE_PAGE || offset % LARGE_PAGE);
    if (is_refused) atomic_fetch_add(&refused_pages, 1), errno = EINVAL;
    return is_refused;
}
static inline size_t page_bytes(size_t bytes) {
    return fails(LARGE_PAGES) ? (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE : bytes;
}
int failing_munmap(void *at, size_t bytes);
int failing_munmap(void *at, size_t bytes) {
    return is_refused_page(at, 0) ? -1 : munmap(at, page_bytes(bytes));
}
int failing_madvise(void *at, size_t bytes, int advice);
int failing_madvise(void *at, size_t bytes, int advice) {
    return is_refused_page(at, 0) ? -1 : madvise(at, bytes, advice);
}
int failing_mprotect(void *at, size_t bytes, int protection);
int failing_mprotect(void *at, size_t bytes, int protection) {
    return is_refused_page(at, 0) ? -1 : mprotect(at, bytes, protection);
}
int failing_msync(void *at, size_t bytes, int flags);
int failing_msync(void *at, size_t bytes, int flags) {
    return is_refused_page(at, 0) ? -1 : msync(at, bytes, flags);
}
static inline void *map_large_pages(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (is_refused_page(at, offset)) return MAP_FAILED;
    bytes = page_bytes(bytes);
    if (flags & MAP_FIXED) return mmap(at, bytes, protection, flags, file, offset);
    unsigned char *room = mmap(NULL, bytes + LARGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return MAP_FAILED;
    size_t before = (LARGE_PAGE - (uintptr_t)room % LARGE_PAGE) % LARGE_PAGE;
    if (before) munmap(room, before);
    munmap(room + before + bytes, LARGE_PAGE - before);
    return mmap(room + before, bytes, protection, flags | MAP_FIXED, file, offset);
}

void *failing_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *failing_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (file < 0 && block_fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (fails(LARGE_PAGES)) return map_large_pages(at, bytes, protection, flags, file, offset);
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
    if (name == _SC_PAGESIZE && fails(LARGE_PAGES)) return LARGE_PAGE;
    return name == _SC_NPROCESSORS_ONLN && fails(PROCESSORS) ? -1 : sysconf(name);
}

#endif /* FAILING_H */
