/* explore_posix.h - the system calls of frugal_flush.c, given to the explorer: include it before anything else, so that
 * the system's headers declare these names instead. Threads are the scenario's, sleeping is the scheduler's, a mutex
 * is a word, and no time passes. */
#ifndef EXPLORE_POSIX_H
#define EXPLORE_POSIX_H

#define pthread_create        explore_pthread_create
#define pthread_join          explore_pthread_join
#define pthread_mutex_lock    explore_pthread_mutex_lock
#define pthread_mutex_trylock explore_pthread_mutex_trylock
#define pthread_mutex_unlock  explore_pthread_mutex_unlock
#define syscall               explore_syscall
#define clock_gettime         explore_clock_gettime

#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* A thread of the scenario must run thread number `i` of those that were created during setup. */
void explore_run_created(int i);
int explore_created(void);
void explore_forget_created(void); /* at the beginning of setup */

#endif /* EXPLORE_POSIX_H */
