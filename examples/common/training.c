/* Failures, threads, the clock and the numbers of reports of programs that train on Frugal. */
#include "examples/common/training.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- Failures ------------------------------------------------------------------------------------------ */

int training_fail(const char *what, program_error *error) {
    return program_fail(error, "%s: %s", what, frugal_message());
}

void training_note_end(training_end *end, frugal_status status) {
    end->status = status;
    if (!status || *end->error.text) return;
    /* A device that waits for others learns of their failure without a call of Frugal's. */
    program_fail(&end->error, "%s", status == FRUGAL_STOPPED ? frugal_strerror(status) : frugal_message());
}

const training_end *training_failure(const training_end *end, uint32_t n) {
    const training_end *first = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (end[i].status && (!first || (first->status == FRUGAL_STOPPED && end[i].status != FRUGAL_STOPPED)))
            first = &end[i];
    return first;
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

typedef struct training_thread {
    pthread_t id;
    void (*run)(void *trainer, uint32_t part);
    void *trainer;
    uint32_t part;
} training_thread;

static void *training_thread_run(void *argument) {
    const training_thread *thread = argument;
    thread->run(thread->trainer, thread->part);
    return NULL;
}

int training_run(uint32_t parts, void run(void *trainer, uint32_t part), void give_up(void *trainer), void *trainer,
                 program_error *error) {
    training_thread *threads = malloc(parts * sizeof *threads);
    if (!threads) return program_fail(error, "out of memory");
    uint32_t started = 0;
    for (; started < parts; started++) {
        threads[started] = (training_thread){.run = run, .trainer = trainer, .part = started};
        if (pthread_create(&threads[started].id, NULL, training_thread_run, &threads[started])) break;
    }
    if (started < parts) give_up(trainer);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i].id, NULL);
    free(threads);
    return started < parts ? program_fail(error, "cannot start %u threads; use fewer --devices", parts) : 0;
}

/* ---- The clock ----------------------------------------------------------------------------------------- */

void training_start(training_clock *clock) {
    clock->started = program_now();
}

void training_pause(training_clock *clock) {
    clock->before = training_elapsed(clock);
}

double training_elapsed(const training_clock *clock) {
    return clock->before + program_now() - clock->started;
}

/* ---- Reports ------------------------------------------------------------------------------------------- */

void training_add_stats(training_sums *sums, frugal *f) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    sums->stall += stats.stall_seconds;
    sums->hits += stats.hits;
    sums->misses += stats.misses;
}

static double training_share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

training_rates training_between(const training_sums *from, const training_sums *to, uint32_t devices) {
    double seconds = to->seconds - from->seconds;
    double hits = (double)(to->hits - from->hits), misses = (double)(to->misses - from->misses);
    return (training_rates){.samples_per_s = training_share((double)(to->samples - from->samples), seconds),
                            .loss = training_share(to->loss - from->loss, (double)(to->losses - from->losses)),
                            .stall = training_share(to->stall - from->stall, seconds * devices),
                            .hit_rate = training_share(hits, hits + misses)};
}
