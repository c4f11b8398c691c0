/* hindered_system.h - calls of the system that a test of processes gets hold of: some fail or are interrupted, what is
 * told of users and of the clock is wrong, and something happens just before a lock is taken or a thread sleeps.
 *
 * Include it in one source of a program, before frugal_flush.c. */
#ifndef HINDERED_SYSTEM_H
#define HINDERED_SYSTEM_H

#include "tests/unit/host/failing_system.h"

#include <math.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static pthread_t main_thread; /* the one that joins; the doorman and the attendant are others */

static int is_main(void) {
    return pthread_equal(pthread_self(), main_thread) != 0;
}

/* The next calls of a kind fail: so many, with this errno. Polls: by the attendant, which watches two descriptors, or
 * by the doorman, which watches more as long as a process has joined. The last three: calls of the main thread. */
enum { POLL_ATTENDANT, POLL_DOORMAN, ACCEPT, CONNECT, SEND, RECEIVE, HINDERED };
static struct { atomic_int n, error; } hindered[HINDERED];

static void hinder(int call, int n, int error) {
    atomic_store(&hindered[call].error, error);
    atomic_store(&hindered[call].n, n);
}
static int is_hindered(int call) {
    if (atomic_load(&hindered[call].n) == 0) return 0;
    atomic_fetch_sub(&hindered[call].n, 1);
    errno = atomic_load(&hindered[call].error);
    return 1;
}
static int hindered_poll(struct pollfd *files, nfds_t n, int timeout) {
    return is_hindered(n == 2 ? POLL_ATTENDANT : POLL_DOORMAN) ? -1 : poll(files, n, timeout);
}
static int hindered_accept4(int file, struct sockaddr *address, socklen_t *bytes, int flags) {
    return is_hindered(ACCEPT) ? -1 : accept4(file, address, bytes, flags);
}
static int hindered_connect(int file, const struct sockaddr *address, socklen_t bytes) {
    return is_main() && is_hindered(CONNECT) ? -1 : failing_connect(file, address, bytes);
}
static ssize_t hindered_sendmsg(int file, const struct msghdr *message, int flags) {
    return is_main() && is_hindered(SEND) ? -1 : failing_sendmsg(file, message, flags);
}
static ssize_t hindered_recvmsg(int file, struct msghdr *message, int flags) {
    return is_main() && is_hindered(RECEIVE) ? -1 : failing_recvmsg(file, message, flags);
}

/* What is told of the process on the other side of a socket: [0] to the doorman, [1] to a process that joins. */
enum { TRUTH, NOTHING, OTHER_USER, ROOT, HIDDEN };
static atomic_int peer_told[2];
static atomic_int user_told; /* the number of this process's user; 0: its own */

static int told_getsockopt(int file, int level, int name, void *value, socklen_t *bytes) {
    int told = atomic_load(&peer_told[is_main()]);
    if (told == NOTHING) return -1;
    if (failing_getsockopt(file, level, name, value, bytes)) return -1;
    struct ucred *who = value;
    if (told == OTHER_USER) who->uid = 4711;
    if (told == ROOT) who->uid = 0;
    if (told == HIDDEN) who->pid = 0;
    return 0;
}
static uid_t told_geteuid(void) {
    int user = atomic_load(&user_told);
    return user ? (uid_t)user : geteuid();
}

/* The wall clock is set forward by so many seconds, just after it was read. */
static atomic_int clock_step;

static int stepped_clock_gettime(clockid_t clock, struct timespec *now) {
    int status = clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= atomic_load(&clock_step);
    return status;
}

/* Something happens just before a lock is taken, once. */
static _Atomic(pthread_mutex_t *) watched_lock;
static void (*before_lock)(void);

static int watched_mutex_lock(pthread_mutex_t *lock) {
    pthread_mutex_t *wanted = lock;
    if (atomic_compare_exchange_strong(&watched_lock, &wanted, NULL)) before_lock();
    return pthread_mutex_lock(lock);
}

/* Something happens just before this thread falls asleep for an event, once. */
static _Thread_local void (*before_sleep)(void);

static void look_at_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    if (number == SYS_futex && before_sleep) {
        (void)va_arg(arguments, void *);
        if (va_arg(arguments, int) == 0) { /* FUTEX_WAIT */
            void (*now)(void) = before_sleep;
            before_sleep = NULL;
            now();
        }
    }
    va_end(arguments);
}

#undef connect
#undef sendmsg
#undef recvmsg
#undef getsockopt
#define poll                 hindered_poll
#define accept4              hindered_accept4
#define connect              hindered_connect
#define sendmsg              hindered_sendmsg
#define recvmsg              hindered_recvmsg
#define getsockopt           told_getsockopt
#define geteuid              told_geteuid
#define clock_gettime        stepped_clock_gettime
#define pthread_mutex_lock   watched_mutex_lock
#define syscall(number, ...) (look_at_syscall(number, __VA_ARGS__), syscall(number, __VA_ARGS__))

#endif /* HINDERED_SYSTEM_H */
