/* bench_training.h - whole steps on logical devices, of one GPU or of several (--gpus): each has a trainer's thread and
 * a stream and, if asked for, a loader's thread, which announces. Shared by steps, graph, dynamicemb and timeline.
 */
#ifndef FRUGAL_BENCH_CUDA_TRAINING_H
#define FRUGAL_BENCH_CUDA_TRAINING_H

#include "bench/cuda/bench_check.h"

typedef struct meeting { /* where threads wait for each other */
    uint32_t threads;
    std::atomic<uint32_t> arrived, passed;
} meeting;

static void training_meet(meeting *m) {
    uint32_t passed = m->passed.load(std::memory_order_relaxed);
    if (m->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == m->threads) {
        m->arrived.store(0, std::memory_order_relaxed);
        m->passed.store(passed + 1, std::memory_order_release);
        return;
    }
    while (m->passed.load(std::memory_order_acquire) == passed) sched_yield();
}

typedef struct training { /* one configuration, being measured */
    const table *t;
    uint32_t devices, system, gate, loader, workers, graph; /* graph: steps are replays */
    uint32_t keys_in, sorted_by;                            /* ON_HOST or ON_GPU */
    frugal_optimizer_kind optimizer;
    frugal_alone alone;
    uint64_t keys, cached, batches; /* keys, cached: of each device; batches: of keys, in turn */
    uint64_t next, announced;       /* the step to come; the step to be announced next */
    double zipf;
    frugal *f;
    bench_samples keys_per_s, step, stall, hits; /* a round each; seconds of a device's step */
    bench_samples host, launch, announcing, cpu_per_key;
    uint64_t unique_rows, keys_seen; /* in the rounds that count */
    checked right;
} training;

typedef struct trainer {
    training *run;
    uint32_t number;
    cudaStream_t stream;
    float *rows, *grads;                       /* [keys][dim] each */
    const uint64_t *drawn;                     /* [batches][keys] */
    uint64_t *drawn_on_gpu;                    /* the same, copied before the clock starts; NULL: not needed */
    cudaStream_t writer;                       /* the loader's, which such keys are announced with */
    double began, spent, launched, announcing; /* of this round: when its first step began; seconds in
                                                * calls of frugal; in the launch between; of the loader */
    cudaGraphExec_t graph;
    std::vector<cudaEvent_t> events; /* [steps][3]: before lookup, after it, after update; empty: none */
} trainer;

static frugal_alone training_alone_of(uint32_t i) { /* the i-th way of --alone */
    return (frugal_alone)(FRUGAL_ALONE_STAGED + (int)alone.values[i]);
}

static setup training_setup_of(const training *r) {
    return {r->devices,          (uint32_t)r->keys,
            (uint32_t)lookahead, 0,
            r->workers,          r->system == SYNC ? FRUGAL_SYNC : FRUGAL_P2F,
            r->optimizer,        r->alone};
}

/* >>opening */

/* A step as a graph: what the calls enqueue, captured once. */
static void training_capture(trainer *me) {
    training *r = me->run;
    cudaGraph_t graph;
    ladder_on on(ladder_gpu(me->number));
    LADDER_CHECK(cudaStreamBeginCapture(me->stream, cudaStreamCaptureModeThreadLocal));
    table_expect(frugal_cuda_capture_lookup(r->f, me->number, me->rows, NULL));
    table_compute(r->t->machine, me->stream, me->grads, me->rows, r->keys * r->t->dim);
    table_expect(frugal_cuda_capture_update(r->f, me->number, me->grads));
    LADDER_CHECK(cudaStreamEndCapture(me->stream, &graph));
    LADDER_CHECK(cudaGraphInstantiate(&me->graph, graph, 0));
    LADDER_CHECK(cudaGraphDestroy(graph));
}

/* Of each device: [batches][keys]. Configurations with the same workload share them. */
typedef std::vector<std::vector<uint64_t>> workload;

static workload training_draw_workload(const training *r) {
    workload w;
    for (uint32_t d = 0; d < r->devices; d++)
        w.push_back(table_draw_batches(r->keys, r->batches, r->t->rows, r->zipf, 42 + d));
    return w;
}

static uint64_t training_workload_bytes(const training *r) {
    return r->devices * r->batches * r->keys * 8;
}

static void training_open_keys(trainer *one) {
    const training *r = one->run;
    uint64_t n = r->batches * r->keys;
    LADDER_CHECK(cudaStreamCreateWithFlags(&one->writer, cudaStreamNonBlocking));
    one->drawn_on_gpu = ladder_device<uint64_t>(n);
    ladder_put(one->drawn_on_gpu, one->drawn, n);
}

static void training_close_keys(const trainer *one) {
    LADDER_CHECK(cudaStreamDestroy(one->writer));
    ladder_free(one->drawn_on_gpu);
}

static std::vector<trainer> open_training(training *r, const workload *w) {
    const table *t = r->t;
    setup s = training_setup_of(r);
    std::vector<trainer> all(r->devices);
    r->f = table_open_instance(t, &s);
    for (uint32_t d = 0; d < r->devices; d++) {
        trainer *one = &all[d];
        ladder_on on(ladder_gpu(d));
        one->run = r, one->number = d, one->drawn = (*w)[d].data();
        LADDER_CHECK(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking));
        table_attach(r->f, d, one->stream, r->system == NOCACHE ? 0 : r->cached, FRUGAL_CACHE_LRU,
                     r->gate == GATE_STREAM);
        one->rows = ladder_device<float>(r->keys * t->dim), one->grads = ladder_device<float>(r->keys * t->dim);
        if (r->keys_in == ON_GPU) training_open_keys(one);
    }
    r->sorted_by = frugal_sorts(r->f, 0) ? ON_GPU : ON_HOST;
    ladder_grid<table_gradient_kernel>(t->machine, 1,
                                       1); /* loads the kernel before a capture: that may wait for the GPU */
    for (trainer &one : all)
        if (r->graph) training_capture(&one);
    return all;
}

static void close_training(training *r, std::vector<trainer> *all) {
    frugal_close(r->f); /* before the streams are destroyed, because it ends the work on them */
    for (trainer &one : *all) {
        if (one.graph) LADDER_CHECK(cudaGraphExecDestroy(one.graph));
        for (cudaEvent_t event : one.events) LADDER_CHECK(cudaEventDestroy(event));
        LADDER_CHECK(cudaStreamDestroy(one.stream));
        ladder_free(one.rows), ladder_free(one.grads);
        if (r->keys_in == ON_GPU) training_close_keys(&one);
    }
}

/* Memory that one configuration takes beside its keys: of the host; of the GPU with most devices. */
static uint64_t training_host_bytes(const training *r) {
    setup s = training_setup_of(r);
    return table_instance_bytes(r->t, &s);
}

static uint64_t training_gpu_bytes(const training *r) {
    setup s = training_setup_of(r);
    uint64_t most = 0; /* devices on one GPU */
    for (uint32_t i = 0; i < ladder_gpus.n; i++) {
        uint64_t here = 0;
        for (uint32_t d = 0; d < r->devices; d++) here += ladder_gpu(d) == ladder_gpu(i);
        most = std::max(most, here);
    }
    return most * table_device_bytes(r->t, &s, r->system == NOCACHE ? 0 : r->cached, 0) +
           (r->keys_in == ON_GPU ? training_workload_bytes(r) / r->devices * most : 0);
}

/* >>steps */

static void announce_training(trainer *me, uint64_t s) {
    training *r = me->run;
    const uint64_t *drawn = r->keys_in == ON_GPU ? me->drawn_on_gpu : me->drawn;
    table_announce(r->t, r->f, me->number, s, drawn + s % r->batches * r->keys, r->keys, me->writer);
}

/* A loader's round: announces the steps that are left until `end`. */
static void training_load(trainer *me, uint64_t end) {
    training *r = me->run;
    bench_bind(r->devices + me->number);
    LADDER_CHECK(cudaSetDevice(ladder_gpu(me->number)));
    double since = bench_now();
    for (uint64_t s = r->announced; s < end; s++) announce_training(me, s);
    me->announcing = bench_now() - since;
}

static void training_replay(trainer *me, uint64_t s, int brings) {
    frugal_gradients g = {};
    ladder_on on(ladder_gpu(me->number));
    g.records = brings, g.lr = BENCH_LR;
    table_expect(frugal_cuda_replay(me->run->f, me->number, s, &g));
    LADDER_CHECK(cudaGraphLaunch(me->graph, me->stream));
}

static void training_record_event(trainer *me, uint64_t step_of_round, uint32_t which) {
    if (!me->events.empty()) LADDER_CHECK(cudaEventRecord(me->events[step_of_round * 3 + which], me->stream));
}

/* A trainer's round. If it announces, it does so last, because announcing waits until step s - 1 is closed. So it waits
 * while the GPU works on s. If it announced before the lookup, the GPU would be idle meanwhile. */
static void training_go(trainer *me, meeting *m, uint64_t begin, uint64_t end) {
    training *r = me->run;
    uint64_t ahead = lookahead;
    bench_bind(me->number);
    LADDER_CHECK(cudaSetDevice(ladder_gpu(me->number)));
    me->spent = me->launched = 0;
    for (uint64_t s = r->announced; !r->loader && s < begin + ahead; s++) announce_training(me, s);
    training_meet(m);
    me->began = bench_now();
    for (uint64_t s = begin; s < end; s++) {
        double since = bench_now(), looked_up = since, computed = since;
        if (r->graph)
            training_replay(me, s, 1);
        else {
            training_record_event(me, s - begin, 0);
            table_expect(frugal_lookup(r->f, me->number, s, me->rows));
            training_record_event(me, s - begin, 1);
            looked_up = bench_now();
            table_compute(r->t->machine, me->stream, me->grads, me->rows, r->keys * r->t->dim);
            computed = bench_now();
            table_update(r->f, me->number, s, me->grads);
            training_record_event(me, s - begin, 2);
        }
        if (!r->loader) announce_training(me, s + ahead);
        me->spent += looked_up - since + bench_now() - computed, me->launched += computed - looked_up;
    }
}

/* Runs `n` steps on all devices, drained at the end; returns the seconds. Every round except the first leaves as many
 * steps announced as it found. So there are `n` announcements in the time of `n` steps, as in a long run. */
static double training_run_steps_of(training *r, std::vector<trainer> *all, uint64_t n) {
    uint64_t end = r->next + n, announced = end + lookahead;
    meeting m;
    m.threads = r->devices + 1, m.arrived = 0, m.passed = 0;
    std::vector<std::thread> running;
    for (trainer &one : *all) {
        running.emplace_back(training_go, &one, &m, r->next, end);
        if (r->loader) running.emplace_back(training_load, &one, announced);
    }
    training_meet(&m);
    for (std::thread &one : running) one.join();
    table_expect(frugal_drain(r->f));
    double drained = bench_now(), since = drained; /* this thread may have left the meeting late */
    for (const trainer &one : *all) since = std::min(since, one.began);
    r->next = end, r->announced = announced;
    return drained - since;
}

/* Runs a round, which is counted or not. */
static void training_round(training *r, std::vector<trainer> *all, uint64_t n, int counts) {
    frugal_stats before, after;
    double host = 0, launch = 0, announcing = 0;
    frugal_get_stats(r->f, &before);
    double cpu = bench_process_seconds(), seconds_taken = training_run_steps_of(r, all, n);
    cpu = bench_process_seconds() - cpu;
    frugal_get_stats(r->f, &after);
    for (trainer &one : *all) host += one.spent, launch += one.launched, announcing += one.announcing;
    if (!counts) return;
    double device_steps = (double)(n * r->devices);
    uint64_t looked_up = after.unique_rows - before.unique_rows, keys_seen = after.keys - before.keys;
    bench_add(&r->keys_per_s, (double)keys_seen / seconds_taken);
    bench_add(&r->step, seconds_taken / (double)n);
    bench_add(&r->stall, (after.stall_seconds - before.stall_seconds) / device_steps);
    bench_add(&r->hits, looked_up > 0 ? (double)(after.hits - before.hits) / (double)looked_up : 0);
    bench_add(&r->host, host / device_steps), bench_add(&r->launch, launch / device_steps);
    bench_add(&r->announcing, announcing / device_steps), bench_add(&r->cpu_per_key, cpu / (double)keys_seen);
    r->unique_rows += looked_up, r->keys_seen += keys_seen;
}

static void training_announce_until(training *r, std::vector<trainer> *all, uint64_t end) {
    for (; r->announced < end; r->announced++)
        for (trainer &one : *all) announce_training(&one, r->announced);
}

/* Compares the rows that were found in a batch, by the host or by the GPU, with its keys, position by position. */
static void training_check_keys(const trainer *me, uint64_t s) {
    const training *r = me->run;
    const uint64_t *drawn = me->drawn + s % r->batches * r->keys;
    uint64_t of_part = r->t->rows / r->t->parts, keys_of_part = r->keys / r->t->parts;
    frugal_records records;
    table_expect(frugal_get_records(r->f, me->number, s, &records));
    for (uint64_t i = 0; i < r->keys; i++) {
        uint64_t row = i / keys_of_part * of_part + drawn[i];
        uint32_t found = records.rows[records.record_of[i]];
        if (found != row)
            bench_fail("position %llu of %llu must be of row %llu, and is of row %u: sorting by the %s is wrong; "
                       "nothing is timed",
                       (unsigned long long)i, (unsigned long long)r->keys, (unsigned long long)row, found,
                       places[r->sorted_by]);
    }
}

/* A step after a round: its rows and updates are compared, and then, if `small`, the whole cache. */
static void check_training(training *r, std::vector<trainer> *all, int small) {
    uint64_t s = r->next++;
    whole_step step = {r->t, r->f, s, {}, BENCH_FACTOR};
    for (trainer &one : *all) step.gathered.push_back(one.rows);
    training_announce_until(r, all, s + 1);
    table_make_quiet(r->f);
    if (r->graph) { /* a lookup needs an update: it brings no gradients, so the table stays as it is */
        const uint64_t *drawn = (*all)[0].drawn + s % r->batches * r->keys;
        for (trainer &one : *all) training_replay(&one, s, 0);
        table_make_quiet(r->f);
        check_rows(
            r->t, step.gathered[0], r->keys, [&](uint64_t position) { return drawn[position]; }, &r->right);
    } else
        check_step(
            &step,
            [&](uint32_t d) {
                trainer *one = &(*all)[d];
                ladder_on on(ladder_gpu(d));
                table_expect(frugal_lookup(r->f, d, s, one->rows));
                table_compute(r->t->machine, one->stream, one->grads, one->rows, r->keys * r->t->dim);
            },
            [&](uint32_t d) {
                training_check_keys(&(*all)[d], s);
                table_update(r->f, d, s, (*all)[d].grads);
            },
            &r->right);
    if (small) table_expect(frugal_verify(r->f));
    training_announce_until(r, all, r->next + lookahead);
}

#endif
