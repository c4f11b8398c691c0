/* watch.cuh - a thread that asks whether a GPU lives.
 *
 * A GPU may fall silent without an error, as one that has left its bus: the driver goes on answering that its streams
 * are busy, or idle. So the GPU copies a word, on a stream of the watch's own, and of the greatest priority, so that it
 * shares no queue with streams that wait for gates. If the word does not come, the GPU is lost, and CUDA is not called
 * for it any more, because that might wait for ever.
 *
 * A call of the driver may wait for the whole GPU, as cudaFree does, whoever makes it, and let no other call through
 * meanwhile. If a stream waits for a gate then, the gate must open, or nobody goes on. So what opens gates must not
 * depend on the driver: a thread that polls reads words in host memory, and leaves questions to this thread, for which
 * nothing waits. */
#ifndef FRUGAL_CUDA_WATCH_CUH
#define FRUGAL_CUDA_WATCH_CUH

#include "device.cuh"

#include <signal.h>
#include <time.h>

namespace frugal_cuda {

constexpr double WATCH_SECONDS = 20; /* for the copy of a word; half of stuck_seconds where that is less */

static double watch_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Has the GPU copy a word. CUDA_SUCCESS: it lives, or the watch ends. */
static CUresult ask_gpu(gpu_device *c) {
    gpu_watch *w = &c->watch;
    on_gpu on(c);
    if (is_out_of_reach(on.result)) return on.result;
    double began = watch_now();
    cudaMemcpyAsync(w->copied, w->word, sizeof *w->word, cudaMemcpyDeviceToHost, w->stream); /* queries find errors */
    for (;;) {
        /* Read before the query: if this process was stopped meanwhile, the GPU was not. */
        int late = w->limit >= 0 && watch_now() - began > w->limit;
        CUresult result = query_stream(c, w->stream);
        if (result != CUDA_ERROR_NOT_READY) return result;
        if (__atomic_load_n(&w->ends, __ATOMIC_RELAXED)) return CUDA_SUCCESS;
        if (late) break;
        struct timespec rest = {0, 1000000};
        nanosleep(&rest, NULL);
    }
    __atomic_store_n(c->hangs, 1, __ATOMIC_RELAXED);
    return GPU_HANGS;
}

static void *watch_main(void *argument) {
    gpu_device *c = (gpu_device *)argument;
    for (;;) {
        while (sem_wait(&c->watch.asked)) {
        } /* interrupted */
        if (__atomic_load_n(&c->watch.ends, __ATOMIC_RELAXED)) return NULL;
        __atomic_store_n(&c->watch.answer, (int)ask_gpu(c), __ATOMIC_RELEASE); /* [C12] pairs with [C13] */
        __atomic_store_n(&c->watch.busy, 0, __ATOMIC_RELAXED);                 /* relaxed: a number that means itself */
    }
}

/* Asks the thread, which may take any time to answer. */
static void ask_watch(gpu_device *c) {
    if (!__atomic_exchange_n(&c->watch.busy, 1, __ATOMIC_RELAXED)) sem_post(&c->watch.asked);
}

/* Asks it, and waits for the answer. */
static void await_watch(gpu_device *c) {
    ask_watch(c);
    while (__atomic_load_n(&c->watch.busy, __ATOMIC_RELAXED)) {
        struct timespec rest = {0, 1000000};
        nanosleep(&rest, NULL);
    }
}

/* The last answer: an error, or CUDA_SUCCESS. */
static CUresult last_answer(const gpu_device *c) {
    return (CUresult)__atomic_load_n(&c->watch.answer, __ATOMIC_ACQUIRE); /* [C13] pairs with [C12] */
}

/* What the copy of a word needs. */
static frugal_status open_watch_copy(gpu_device *c) {
    gpu_watch *w = &c->watch;
    double stuck = frugal_settings(c->f)->stuck_seconds;
    int least = 0, greatest = 0;
    w->limit = stuck < 0 ? -1 : stuck < 1 ? 0.5 : stuck / 2 < WATCH_SECONDS ? stuck / 2 : WATCH_SECONDS;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&w->stream, cudaStreamNonBlocking, greatest);
    if (error == cudaSuccess) error = cudaMalloc((void **)&w->word, sizeof *w->word);
    if (error == cudaSuccess) error = cudaHostAlloc((void **)&w->copied, sizeof *w->copied, cudaHostAllocPortable);
    if (error == cudaSuccess) error = set_on_gpu(c, w->word, 0, sizeof *w->word);
    return check_cuda(c, error, "memory and a stream to watch the GPU");
}

static frugal_status open_watch(gpu_device *c) {
    sigset_t all, before; /* signals are for the caller's threads */
    frugal_status status = open_watch_copy(c);
    if (status != FRUGAL_OK) return status;
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
    c->watch.runs = 0;
    __atomic_store_n(&c->watch.ends, 1, __ATOMIC_RELAXED); /* relaxed: posting orders it */
    sem_post(&c->watch.asked);
    pthread_join(c->watch.thread, NULL);
    sem_destroy(&c->watch.asked);
    __atomic_store_n(&c->watch.ends, 0, __ATOMIC_RELAXED);
}

/* It is asked whether the GPU lives if nothing has moved for so many seconds. Measured by the clock, not by the number
 * of polls, of which a step has thousands, because asking the driver takes locks that the trainer's launches need. */
constexpr double SILENCE_SECONDS = 0.02;

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_WATCH_CUH */
