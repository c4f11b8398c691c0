/* parallel.c - threads of our own; a function that several run at a time, the calling one among them. */
#include "host.h"

#define MOST_PARALLEL 16u /* threads that read or write a file: more do not make a disk faster */

/* Starts a thread of our own, on which signals are blocked, because they are the application's. Returns an errno. */
static int start_quiet_thread(pthread_t *thread, void *(*function)(void *argument), void *argument) {
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int error = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return error;
}

/* Runs function(argument) on n threads, or on as many as the system has, and returns when all have returned. */
static void run_parallel(uint32_t n, void *(*function)(void *argument), void *argument) {
    pthread_t threads[MOST_PARALLEL];
    uint32_t started = 0;
    while (started + 1 < LEAST(n, MOST_PARALLEL) && !start_quiet_thread(&threads[started], function, argument))
        started++;
    function(argument);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
