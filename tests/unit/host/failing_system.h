/* failing_system.h - calls of the system that a test can let fail, beside those on files: memory, mappings, files in
 * memory, sockets, threads. They are counted only where CALL_SYSTEM is asked for (failing_files.h).
 *
 * Include it in one source of a program, before frugal_flush.c. */
#ifndef FAILING_SYSTEM_H
#define FAILING_SYSTEM_H

#include "tests/unit/host/failing_files.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { CALL_SYSTEM = FILE_CALLS, ALL_CALLS };

/* Descriptors of this process; some more, always the same number. */
static inline int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    if (!d) abort();
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* What the system has not at all; a mask. */
enum { MEMORY_FILES = 1, COUNT_OF_PROCESSORS = 2 };
static atomic_int system_lacks;

static inline int system_fails(void) {
    return failing_files.only == CALL_SYSTEM && file_call_fails(CALL_SYSTEM);
}
static inline int failing_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    return system_fails() ? ENOMEM : posix_memalign(memory, alignment, bytes);
}
static inline void *failing_malloc(size_t bytes) {
    return system_fails() ? NULL : malloc(bytes);
}
static inline void *failing_calloc(size_t n, size_t bytes) {
    return system_fails() ? NULL : calloc(n, bytes);
}
static inline void *failing_any_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return system_fails() ? MAP_FAILED : failing_mmap(at, bytes, protection, flags, file, offset);
}
static inline int failing_madvise(void *at, size_t bytes, int advice) {
    return system_fails() ? -1 : madvise(at, bytes, advice);
}
static inline int failing_memfd_create(const char *name, unsigned flags) {
    if (atomic_load(&system_lacks) & MEMORY_FILES) {
        errno = ENOSYS;
        return -1;
    }
    return system_fails() ? -1 : memfd_create(name, flags);
}
static inline long failing_sysconf(int name) {
    if (name == _SC_NPROCESSORS_ONLN && atomic_load(&system_lacks) & COUNT_OF_PROCESSORS) return -1;
    return sysconf(name);
}
static inline int failing_fcntl(int file, int what, int argument) {
    return what == F_DUPFD_CLOEXEC && system_fails() ? -1 : fcntl(file, what, argument);
}
static inline int failing_socket(int domain, int type, int protocol) {
    return system_fails() ? -1 : socket(domain, type, protocol);
}
static inline int failing_connect(int file, const struct sockaddr *address, socklen_t bytes) {
    return system_fails() ? -1 : connect(file, address, bytes);
}
static inline int failing_bind(int file, const struct sockaddr *address, socklen_t bytes) {
    return system_fails() ? -1 : bind(file, address, bytes);
}
static inline int failing_listen(int file, int most) {
    return system_fails() ? -1 : listen(file, most);
}
static inline ssize_t failing_sendmsg(int file, const struct msghdr *message, int flags) {
    return system_fails() ? -1 : sendmsg(file, message, flags);
}
static inline ssize_t failing_recvmsg(int file, struct msghdr *message, int flags) {
    return system_fails() ? -1 : recvmsg(file, message, flags);
}
static inline int failing_getsockopt(int file, int level, int name, void *value, socklen_t *bytes) {
    return system_fails() ? -1 : getsockopt(file, level, name, value, bytes);
}
static inline int failing_eventfd(unsigned first, int flags) {
    return system_fails() ? -1 : eventfd(first, flags);
}
static inline int failing_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                                         void *argument) {
    return system_fails() ? EAGAIN : pthread_create(thread, attributes, start, argument);
}

#undef mmap
#define posix_memalign              failing_posix_memalign
#define malloc                      failing_malloc
#define calloc                      failing_calloc
#define mmap                        failing_any_mmap
#define madvise                     failing_madvise
#define memfd_create                failing_memfd_create
#define sysconf                     failing_sysconf
#define fcntl(file, what, argument) failing_fcntl(file, what, argument)
#define socket(a, b, c)             failing_socket(a, b, c)
#define connect                     failing_connect
#define bind                        failing_bind
#define listen                      failing_listen
#define sendmsg                     failing_sendmsg
#define recvmsg                     failing_recvmsg
#define getsockopt                  failing_getsockopt
#define eventfd                     failing_eventfd
#define pthread_create              failing_pthread_create

#endif /* FAILING_SYSTEM_H */
