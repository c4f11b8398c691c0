/* parallel.c - threads of our own; a function that several run at a time, the calling one among them. */
#include "ground.h"

/* Starts a thread of our own, on which signals are blocked, because they are the application's. Returns an errno. */
FRUGAL_INTERNAL int start_quiet_thread(pthread_t *thread, void *(*function)(void *argument), void *argument) {
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int error = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return error;
}

/* Runs function(argument) on n threads, or on as many as the system has, and returns when all have returned. */
FRUGAL_INTERNAL void run_parallel(uint32_t n, void *(*function)(void *argument), void *argument) {
    pthread_t threads[MOST_PARALLEL];
    uint32_t started = 0;
    while (started + 1 < LEAST(n, MOST_PARALLEL) && !start_quiet_thread(&threads[started], function, argument))
        started++;
    function(argument);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
