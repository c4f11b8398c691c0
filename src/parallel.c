/* parallel.c - runs a function on several threads at a time, the calling one among them. */
#include "host.h"

#define MOST_PARALLEL 16u /* threads that read or write a file: more do not make a disk faster */

/* Runs function(argument) on n threads, or on as many as the system has, and returns when all have returned. Signals
 * are blocked on these threads, so that the application's handlers do not run on them. */
static void run_parallel(uint32_t n, void *(*function)(void *argument), void *argument) {
    pthread_t threads[MOST_PARALLEL];
    uint32_t started = 0;
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    while (started + 1 < LEAST(n, MOST_PARALLEL) && !pthread_create(&threads[started], NULL, function, argument))
        started++;
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    function(argument);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
