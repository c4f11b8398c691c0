/* explore_posix.c - see explore_posix.h. */
#include "tests/explore/explore_posix.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "tests/explore/explore.h"

static struct {
    void *(*function)(void *);
    void *argument;
    uint32_t *ended; /* atomic; in the arena */
} created[EXPLORE_THREADS];
static int n_created;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    (void)attributes;
    if (n_created == EXPLORE_THREADS) abort();
    created[n_created].function = function;
    created[n_created].argument = argument;
    created[n_created].ended = explore_alloc(sizeof(uint32_t), sizeof(uint32_t));
    *thread = (pthread_t)n_created++;
    return 0;
}

int pthread_join(pthread_t thread, void **result) {
    (void)result;
    while (!frugal_load_acquire(created[thread].ended)) explore_wait();
    return 0;
}

void explore_run_created(int i) {
    created[i].function(created[i].argument);
    frugal_store_release(created[i].ended, 1);
}

int explore_created(void) {
    return n_created;
}

void explore_forget_created(void) {
    n_created = 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    uint32_t *word = (uint32_t *)mutex, free = 0; /* an initialized one is all zeros */
    for (; !frugal_cas_acquire(word, &free, 1); free = 0) explore_wait();
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) { /* sometimes fails for no reason: the caller tries again */
    uint32_t free = 0;
    return frugal_cas_acquire((uint32_t *)mutex, &free, 1) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    frugal_store_release((uint32_t *)mutex, 0);
    return 0;
}

/* Only the futex call. A wait may also end for no reason. A wait with a timeout ends when something has changed,
 * because no time passes here. */
long syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    const uint32_t *word = va_arg(arguments, const uint32_t *);
    int operation = va_arg(arguments, int);
    uint32_t value = va_arg(arguments, uint32_t);
    const struct timespec *limit = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    if (number != SYS_futex) abort();
    explore_point();
    if (operation == FUTEX_WAKE)
        explore_wake(word, value);
    else if (*word == value && limit->tv_sec < 1000)
        explore_wait();
    else if (*word == value && !explore_chance(8))
        explore_sleep(word);
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *rest) { /* who sleeps for a time looks again */
    (void)time, (void)rest;
    explore_wait();
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    memset(now, 0, sizeof *now);
    return 0;
}
