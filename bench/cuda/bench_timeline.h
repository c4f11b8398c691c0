/* bench_timeline.h - where the time of a step goes: the host's calls, the GPU's work, the gate. One device, P2F.
 * Medians, from the beginning of a step. The GPU's lookup begins when the work before it has ended, and includes the
 * wait for the gate if the stream waits. GPU and host share a clock to some us. With rows in place, the default, one
 * device waits for no gate, so none is seen to open.
 */
#ifndef FRUGAL_BENCH_CUDA_TIMELINE_H
#define FRUGAL_BENCH_CUDA_TIMELINE_H

#include "bench/cuda/bench_steps.h"

typedef enum span {
    HOST_LOOKUP,
    HOST_COMPUTE,
    HOST_UPDATE,
    HOST_ANNOUNCE,
    GPU_LOOKUP,
    GPU_COMPUTE,
    GPU_UPDATE,
    GATE_OPENS,
    SPANS
} span;
static const char *const lanes[SPANS] = {"host", "host", "host", "host", "GPU", "GPU", "GPU", "gate"};
static const char *const spans[SPANS] = {"lookup", "launch forward and backward", "update", "announce",
                                         "lookup", "forward and backward",        "update", "of the next step opens"};

enum { STAMPS = 5 }; /* of the host in a step: before lookup, launch, update and announce, and at the end */
enum { EVENTS = 4 }; /* of the GPU: before lookup; after lookup, compute and update */

typedef struct timeline {
    training run;
    std::vector<double> host, cpu;   /* [steps][STAMPS]: of wall time, and of the thread on its processor */
    std::vector<double> opened;      /* [steps]: when the gate opened; 0: not seen */
    std::vector<cudaEvent_t> events; /* [steps][EVENTS] */
    std::atomic<int> ends;
} timeline;

/* A thread that only notes when gates open. There is a word to watch only if streams wait for gates; if the host waits,
 * it is in lookup until the gate opens. */
static void timeline_watch_gates(timeline *l, uint64_t n) {
    const uint64_t *word = frugal_gates(l->run.f);
    int ends = 0;
    for (uint64_t seen = 0; seen < n && !ends;) {
        ends = l->ends.load(std::memory_order_relaxed); /* before the last look */
        uint64_t open = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (open <= seen) sched_yield();
        for (double now = bench_now(); seen < open && seen < n; seen++) l->opened[seen] = now;
    }
}

static void timeline_take_stamp(timeline *l, uint64_t s, uint32_t i) {
    l->host[s * STAMPS + i] = bench_now(), l->cpu[s * STAMPS + i] = bench_thread_seconds();
}

static void run_timeline_steps(timeline *l, trainer *me, uint64_t n) {
    training *r = &l->run;
    uint64_t ahead = lookahead;
    for (uint64_t s = 0; s < n && s < ahead; s++) announce_training(me, s);
    for (uint64_t s = 0; s < n && !bench_interrupted(); s++) {
        cudaEvent_t *event = &l->events[s * EVENTS];
        timeline_take_stamp(l, s, 0);
        LADDER_CHECK(cudaEventRecord(event[0], me->stream));
        table_expect(frugal_lookup(r->f, 0, s, me->rows));
        LADDER_CHECK(cudaEventRecord(event[1], me->stream));
        timeline_take_stamp(l, s, 1);
        table_compute(r->t->machine, me->stream, me->grads, me->rows, r->keys * r->t->dim);
        LADDER_CHECK(cudaEventRecord(event[2], me->stream));
        timeline_take_stamp(l, s, 2);
        table_update(r->f, 0, s, me->grads);
        LADDER_CHECK(cudaEventRecord(event[3], me->stream));
        timeline_take_stamp(l, s, 3);
        if (s + ahead < n) announce_training(me, s + ahead);
        timeline_take_stamp(l, s, 4);
    }
    LADDER_CHECK(cudaStreamSynchronize(me->stream));
}

/* Adds beginning and end of each span of a step, in seconds from the step's beginning. `origin`: an event; `origin_at`:
 * the host's time of it. */
static void timeline_add_step(const timeline *l, uint64_t s, cudaEvent_t origin, double origin_at,
                              bench_samples begin[SPANS], bench_samples end[SPANS]) {
    const double *stamp = &l->host[s * STAMPS];
    const cudaEvent_t *event = &l->events[s * EVENTS];
    double zero = stamp[0], at[EVENTS];
    for (uint32_t i = 0; i < EVENTS; i++) at[i] = origin_at + table_elapsed_ms(origin, event[i]) * 1e-3 - zero;
    for (uint32_t i = 0; i < 4; i++)
        bench_add(&begin[HOST_LOOKUP + i], stamp[i] - zero), bench_add(&end[HOST_LOOKUP + i], stamp[i + 1] - zero);
    for (uint32_t i = 0; i < 3; i++)
        bench_add(&begin[GPU_LOOKUP + i], at[i]), bench_add(&end[GPU_LOOKUP + i], at[i + 1]);
    double opens = l->opened[s + 1] - zero;
    if (l->opened[s + 1] > 0) bench_add(&begin[GATE_OPENS], opens), bench_add(&end[GATE_OPENS], opens);
}

/* Seconds in a step's calls of frugal: all except the launch. `from`: host or cpu. */
static double timeline_in_calls(const std::vector<double> *from, uint64_t s) {
    const double *stamp = &(*from)[s * STAMPS];
    return stamp[1] - stamp[0] + stamp[4] - stamp[2];
}

static void timeline_print_span(const training *r, uint32_t which, double from, double to) {
    record out;
    record_add_text(&out, "experiment", "timeline"), record_add_text(&out, "lane", lanes[which]),
        record_add_text(&out, "what", spans[which]);
    record_add_text(&out, "gate", gates[r->gate]), record_add_count(&out, "dim", r->t->dim),
        record_add_count(&out, "keys", r->keys);
    record_add_plain(&out, "zipf", r->zipf), record_add_real(&out, "begin_us", from * 1e6, 2),
        record_add_real(&out, "end_us", to * 1e6, 2);
    record_add_real(&out, "length_us", (to - from) * 1e6, 2);
    print_record(&out);
}

static void print_timeline(const timeline *l, uint64_t first, const bench_samples begin[SPANS],
                           const bench_samples end[SPANS]) {
    const training *r = &l->run;
    uint32_t n = begin[0].n;
    bench_samples wall = {}, cpu = {};
    record out;
    for (uint32_t i = 0; i < n; i++)
        bench_add(&wall, timeline_in_calls(&l->host, first + i)),
            bench_add(&cpu, timeline_in_calls(&l->cpu, first + i));
    double step = (l->host[(first + n) * STAMPS] - l->host[first * STAMPS]) / n;
    record_add_text(&out, "experiment", "timeline"), record_add_text(&out, "lane", "all"),
        record_add_text(&out, "what", "step");
    steps_add_training(&out, r), record_add_real(&out, "step_us", step * 1e6, 2);
    record_add_real(&out, "host_us", bench_median(&wall) * 1e6, 2),
        record_add_real(&out, "host_cpu_us", bench_median(&cpu) * 1e6, 2);
    record_add_real(&out, "host_cpu_min_us", bench_quantile(&cpu, 0) * 1e6, 2);
    record_add_real(&out, "host_cpu_max_us", bench_quantile(&cpu, 1) * 1e6, 2), add_checked(&out, &r->right);
    print_record(&out);
    for (uint32_t i = 0; i < SPANS; i++)
        if (begin[i].n) timeline_print_span(r, i, bench_median(&begin[i]), bench_median(&end[i]));
}

static void timeline_of(const table *t, uint64_t n_keys, double skew, uint32_t who_waits) {
    uint64_t warm = 3 * lookahead, repeat = repeats;
    uint64_t n = warm + repeat + lookahead + 1; /* the last steps announce nothing any more */
    char what[128];
    timeline l;
    l.run = steps_open(t, TIMELINE, 1, n_keys, skew), l.run.batches = table_batches_of(n_keys, n + 1),
    l.run.gate = who_waits, l.ends = 0;
    snprintf(what, sizeof what, "timeline, %llu keys, Zipf %g, gate on the %s", (unsigned long long)n_keys, skew,
             gates[who_waits]);
    if (!has_time("%s", what) ||
        !limits_fits(training_host_bytes(&l.run) + training_workload_bytes(&l.run), training_gpu_bytes(&l.run), what))
        return;
    l.host.resize(n * STAMPS), l.cpu.resize(n * STAMPS), l.opened.resize(n), l.events.resize(n * EVENTS);
    workload w = training_draw_workload(&l.run);
    std::vector<trainer> one = open_training(&l.run, &w);
    for (cudaEvent_t &event : l.events) LADDER_CHECK(cudaEventCreate(&event));
    std::thread watcher(timeline_watch_gates, &l, n);
    LADDER_CHECK(cudaEventRecord(t->machine->begin, one[0].stream));
    LADDER_CHECK(cudaEventSynchronize(t->machine->begin));
    double origin = bench_now();
    run_timeline_steps(&l, &one[0], n);
    table_expect(frugal_drain(l.run.f));
    l.ends.store(1, std::memory_order_relaxed);
    watcher.join();
    bench_samples begin[SPANS] = {}, end[SPANS] = {};
    for (uint64_t s = warm; s < warm + repeat && !bench_interrupted(); s++)
        timeline_add_step(&l, s, t->machine->begin, origin, begin, end);
    l.run.next = l.run.announced = n;
    if (!bench_interrupted()) check_training(&l.run, &one, 1);
    if (begin[0].n) print_timeline(&l, warm, begin, end);
    close_training(&l.run, &one);
    for (cudaEvent_t event : l.events) LADDER_CHECK(cudaEventDestroy(event));
}

static void run_timeline(const table *t) {
    const options_list *by_keys = options_given_or(&keys, &defaults[TIMELINE].keys);
    const options_list *by_gate = options_given_or(&gate, &defaults[TIMELINE].gate);
    for (uint32_t k = 0; k < by_keys->n; k++)
        for (uint32_t z = 0; z < zipf.n; z++)
            for (uint32_t g = 0; g < by_gate->n && !bench_interrupted(); g++)
                timeline_of(t, (uint64_t)by_keys->values[k], zipf.values[z], (uint32_t)by_gate->values[g]);
}

#endif
