/* The rates of this machine's processor, for simulations of machines like it: the library's own work, timed on one
 * thread. */
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"
#include "bench/sim/sim.h"

enum { GPUS = 2, KEYS = 26624, WARM_UP = 8, STEPS = 24 };

typedef struct timings { /* ns each, one sample a step */
    bench_samples announce, plan, close, flush;
} timings;

/* Does all pending work, and adds its time by kind: a piece that neither closes nor flushes plans. (Recalls are taken
 * for plans, too: where there are any, that time is not used.) */
static void time_pieces(frugal *f, uint64_t entries, timings *t) {
    double plan = 0, close = 0, flush = 0;
    frugal_stats before, first, after;
    frugal_get_stats(f, &first);
    before = first;
    for (;;) {
        double since = bench_now();
        if (!frugal_help(f)) break;
        double seconds = bench_now() - since;
        frugal_get_stats(f, &after);
        *(after.closed_entries > before.closed_entries ? &close
          : after.flushed > before.flushed             ? &flush
                                                       : &plan) += seconds;
        before = after;
    }
    uint64_t closed = before.closed_entries - first.closed_entries, flushed = before.flushed - first.flushed;
    if (!t) return;
    if (closed) bench_add(&t->close, close * 1e9 / (double)closed);
    if (flushed) bench_add(&t->flush, flush * 1e9 / (double)flushed);
    if (plan > 0) bench_add(&t->plan, plan * 1e9 / (double)entries);
}

static void announce(frugal *f, uint64_t step, const sim_keys *k, timings *t) {
    for (uint32_t d = 0; d < GPUS; d++) {
        frugal_keys segment = {.table = 0, .keys = sim_keys_of(k, step, d), .n = KEYS};
        double since = bench_now();
        sim_check(frugal_try_announce(f, d, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
        if (t) bench_add(&t->announce, (bench_now() - since) * 1e9 / KEYS);
    }
}

/* Steps of two devices without look-ahead, so that every row is flushed while its step is done, one kind of work at a
 * time: announce and plan; lookup and update; close and flush. */
static void time_steps(const sim_workload *w, const sim_keys *k, frugal_alone alone, timings *t) {
    frugal *f = sim_open(w, FRUGAL_SYNC, alone, KEYS, 1); /* all rows are flushed */
    for (uint32_t d = 0; d < GPUS; d++) sim_check(frugal_cpu_attach(f, d, NULL));
    for (uint64_t s = 0; s < WARM_UP + STEPS && !bench_interrupted(); s++) {
        timings *counted = s < WARM_UP ? NULL : t;
        uint64_t entries = sim_unique_of(k, s, 0) + sim_unique_of(k, s, 1);
        announce(f, s, k, counted);
        time_pieces(f, entries, counted);
        for (uint32_t d = 0; d < GPUS; d++) sim_check(frugal_lookup(f, d, s, NULL));
        for (uint32_t d = 0; d < GPUS; d++)
            sim_check(frugal_update(f, d, s, &(frugal_gradients){.records = 1, .lr = 0.01f}));
        time_pieces(f, entries, counted);
    }
    frugal_close(f);
}

void sim_measure(sim_workload *given) {
    static timings staged, place, kept;
    sim_keys k = {.rows = 0};
    sim_workload w = {.rows = 10000000,
                      .dim = 32,
                      .gpus = GPUS,
                      .keys = KEYS,
                      .lookahead = 1,
                      .seed = 7,
                      .warm_up = WARM_UP,
                      .steps = STEPS,
                      .whole_rows = 1};
    for (int i = 0; i < SIM_CONSTANTS; i++) w.constants[i] = given->constants[i];
    sim_keys_draw(&k, &w);
    time_steps(&w, &k, FRUGAL_ALONE_STAGED, &staged);
    time_steps(&w, &k, FRUGAL_ALONE_PLACE, &place); /* keys are uniform: nearly all rows are alone */
    time_steps(&w, &k, FRUGAL_ALONE_KEPT, &kept);
    sim_keys_free(&k);
    double mark = bench_median(&place.plan) - bench_median(&staged.plan);
    double recall = bench_median(&kept.announce) - bench_median(&place.announce);
    given->constants[SIM_ANNOUNCE] = bench_median(&staged.announce);
    given->constants[SIM_RECALL] = recall > 0 ? recall : 0;
    given->constants[SIM_PLAN] = bench_median(&staged.plan);
    given->constants[SIM_MARK] = mark > 0 ? mark : 0;
    given->constants[SIM_CLOSE] = bench_median(&staged.close);
    given->constants[SIM_PASS] = bench_median(&place.close);
    given->constants[SIM_FLUSH] = bench_median(&staged.flush);
}
