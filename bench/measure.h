/* measure.h - clocks, and medians of measured times. */
#ifndef FRUGAL_BENCH_MEASURE_H
#define FRUGAL_BENCH_MEASURE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double bench_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static inline double bench_now(void) {
    return bench_clock(CLOCK_MONOTONIC);
}
/* Processor time of all threads, including those that have ended; and of the calling thread. */
static inline double bench_process_seconds(void) {
    return bench_clock(CLOCK_PROCESS_CPUTIME_ID);
}
static inline double bench_thread_seconds(void) {
    return bench_clock(CLOCK_THREAD_CPUTIME_ID);
}

enum { BENCH_SAMPLES = 256 };

typedef struct bench_samples { /* repetitions of one measurement; in no order */
    double values[BENCH_SAMPLES];
    uint32_t n;
} bench_samples;

static inline void bench_add(bench_samples *s, double value) {
    if (s->n < BENCH_SAMPLES) s->values[s->n++] = value;
}

static inline int bench_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which `share` of the samples lie: 0 the least, 0.5 the median, 1 the greatest. Returns 0 if there are
 * no samples. */
static inline double bench_quantile(const bench_samples *s, double share) {
    double sorted[BENCH_SAMPLES];
    if (s->n == 0) return 0;
    memcpy(sorted, s->values, s->n * sizeof *sorted);
    qsort(sorted, s->n, sizeof *sorted, bench_by_value);
    return sorted[(uint32_t)(share * (s->n - 1) + 0.5)];
}
static inline double bench_median(const bench_samples *s) {
    return bench_quantile(s, 0.5);
}

#endif
