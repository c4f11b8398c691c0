/* watch.cuh - a thread that asks the driver whether a GPU lives.
 *
 * A call of the driver may wait for the whole GPU, as cudaFree does, whoever makes it, and let no other call through
 * meanwhile. If a stream waits for a gate then, the gate must open, or nobody goes on. So what opens gates must not
 * depend on the driver: a thread that polls reads words in host memory, and leaves questions to this thread, for which
 * nothing waits. */
#ifndef FRUGAL_CUDA_WATCH_CUH
#define FRUGAL_CUDA_WATCH_CUH

#include "device.cuh"

#include <signal.h>

namespace frugal_cuda {

static void *watch_main(void *argument) {
    gpu_device *c = (gpu_device *)argument;
    for (;;) {
        while (sem_wait(&c->watch.asked)) {
        } /* interrupted */
        if (__atomic_load_n(&c->watch.ends, __ATOMIC_RELAXED)) return NULL;
        /* relaxed, both: a number that means itself */
        __atomic_store_n(&c->watch.answer, (int)ask_driver(c), __ATOMIC_RELAXED);
        __atomic_store_n(&c->watch.busy, 0, __ATOMIC_RELAXED);
    }
}

/* Asks the thread, which may take any time to answer. */
static void ask_watch(gpu_device *c) {
    if (!__atomic_exchange_n(&c->watch.busy, 1, __ATOMIC_RELAXED)) sem_post(&c->watch.asked);
}

/* The last answer: an error, or CUDA_SUCCESS. */
static CUresult last_answer(const gpu_device *c) {
    return (CUresult)__atomic_load_n(&c->watch.answer, __ATOMIC_RELAXED);
}

static frugal_status open_watch(gpu_device *c) {
    sigset_t all, before; /* signals are for the caller's threads */
    sigfillset(&all);
    sem_init(&c->watch.asked, 0, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->watch.thread, NULL, watch_main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->watch.runs = error == 0;
    if (!error) return FRUGAL_OK;
    sem_destroy(&c->watch.asked);
    return frugal_fail(FRUGAL_ERR_WORKER, "device %u: a thread to watch the GPU cannot be started: %s", c->device,
                       strerror(error));
}

static void close_watch(gpu_device *c) {
    if (!c->watch.runs) return;
    __atomic_store_n(&c->watch.ends, 1, __ATOMIC_RELAXED); /* relaxed: posting orders it */
    sem_post(&c->watch.asked);
    pthread_join(c->watch.thread, NULL);
    sem_destroy(&c->watch.asked);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_WATCH_CUH */
