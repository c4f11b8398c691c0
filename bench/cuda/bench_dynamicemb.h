/* bench_dynamicemb.h - the configuration for which NVIDIA publishes times of its dynamicemb and of FBGEMM's tables.
 *
 * Source: github.com/NVIDIA/recsys-examples, corelib/dynamicemb/benchmark at commit 43465ae: README.md ("Test
 * Results"), benchmark_batched_dynamicemb_tables.py (what is timed), dataset_generator.py (PowerLaw),
 * benchmark_results.json (times).
 *
 *   tables      10, of 26,843,545 rows each (256 Mi / 10), 128 floats; one table's keys in a step: 104,857
 *   keys        drawn independently, with duplicates: 1,048,570 in a step, of which 433,723 are distinct. A
 *               continuous power law: density ~ y^-1.05 on [1, rows), rounded down; not permuted, so hot rows
 *               are neighbours
 *   iterations  100, all drawn before; each trains once before the clock runs, and once under it
 *   cache       `footprint` * the distinct keys of all 100 iterations, by table
 *   timed       CUDA events around forward, backward and the fused optimizer, eager, with a synchronization after each
 *               iteration; the keys lie in the GPU's memory; duplicates are found within; mean of the iterations
 *   optimizers  SGD; Adam. No pooling. FBGEMM: managed memory, with or without its cache
 *
 * Ours: the same keys by the same law. Announced by a loader's thread up to `lookahead` steps ahead (--loader 0: by the
 * trainer), looked up, gradient = row * 0.001, updated; P2F. step_ms is the wall time of all iterations, until the last
 * update has reached host memory, divided by their number: it contains finding duplicates, closing and flushing, unless
 * they are hidden behind other work. forward_ms and backward_ms are the GPU's, by events; medians. A device has one
 * cache for all tables, of sets of 8 rows: with a footprint of 1 some sets are too small, so `hits` is below 1; a
 * footprint of 2 caches all. Rows are updated in place, unless --alone says otherwise. Keys lie in
 * host memory; with --keys-in gpu in the GPU's, as theirs.
 */
#ifndef FRUGAL_BENCH_CUDA_DYNAMICEMB_H
#define FRUGAL_BENCH_CUDA_DYNAMICEMB_H

#include "bench/cuda/bench_steps.h"

#define DYNAMICEMB_SOURCE                                                                                              \
    "github.com/NVIDIA/recsys-examples corelib/dynamicemb/benchmark README.md, benchmark_results.json at 43465ae"
#define DYNAMICEMB_INTERVAL                                                                                            \
    "ours: wall time of all iterations until the table is drained, over their number; theirs: CUDA events around "     \
    "forward, backward and optimizer, mean"
#define DYNAMICEMB_GPU   "NVIDIA H100 80GB HBM3"
#define DYNAMICEMB_ROWS  26843545 /* of a table */
#define DYNAMICEMB_KEYS  1048570  /* of all tables */
#define DYNAMICEMB_ALPHA 1.05

typedef struct published_time { /* ms of a step, on DYNAMICEMB_GPU */
    frugal_optimizer_kind optimizer;
    double footprint, fbgemm, dynamicemb;
} published_time;

static const published_time published[] = {
    {FRUGAL_SGD, 0, 13.563469, 35.463097},    {FRUGAL_SGD, 0.8, 4.774249, 20.832732},
    {FRUGAL_SGD, 1, 4.146005, 10.873188},     {FRUGAL_ADAM, 0, 24.054321, 43.510919},
    {FRUGAL_ADAM, 0.8, 15.001480, 24.333162}, {FRUGAL_ADAM, 1, 14.369853, 12.284131},
};

/* The published time for this optimizer and this cache, on DYNAMICEMB_GPU with DYNAMICEMB_ROWS; NULL: there is none. */
static const published_time *dynamicemb_find_published(const training *r, double share) {
    for (const published_time &one : published)
        if (one.optimizer == r->optimizer && one.footprint == share) return &one;
    return NULL;
}

/* Is the work of a step that of the published times, whatever the GPU and the number of rows? Several devices share the
 * keys, and have a few more if the keys cannot be divided evenly. */
static int dynamicemb_is_same_work(const training *r) {
    const table *t = r->t;
    uint64_t all = r->keys * r->devices;
    return t->parts == 10 && t->dim == 128 && all >= DYNAMICEMB_KEYS && all < DYNAMICEMB_KEYS + r->devices * t->parts &&
           iterations == 100;
}

/* What is published beside it: always printed, with the GPU and the number of rows. Ratios only for the same work;
 * `comparable`: on the same GPU and with as many rows, too. */
static void dynamicemb_add_published(record *out, const training *r, double share, double step_ms) {
    const published_time *theirs = dynamicemb_find_published(r, share);
    int same = theirs && dynamicemb_is_same_work(r);
    int comparable =
        same && strcmp(r->t->machine->name, DYNAMICEMB_GPU) == 0 && r->t->rows / r->t->parts == DYNAMICEMB_ROWS;
    record_add_real(out, "fbgemm_ms", theirs ? theirs->fbgemm : NAN, 2);
    record_add_real(out, "dynamicemb_ms", theirs ? theirs->dynamicemb : NAN, 2);
    record_add_real(out, "fbgemm_ratio", same ? theirs->fbgemm / step_ms : NAN, 3);
    record_add_real(out, "dynamicemb_ratio", same ? theirs->dynamicemb / step_ms : NAN, 3);
    record_add_count(out, "comparable", (uint64_t)comparable);
}

/* >>keys */

/* keys[n] by the power law: its distribution function inverted. */
static void dynamicemb_draw_power_law(uint64_t *drawn, uint64_t n, uint64_t all, uint64_t seed) {
    double exponent = 1 - DYNAMICEMB_ALPHA, range = pow((double)all, exponent) - 1;
    for (uint64_t i = 0; i < n; i++) {
        double uniform = (double)(bench_random(&seed) >> 11) * 0x1p-53;
        drawn[i] = std::min((uint64_t)pow(1 + uniform * range, 1 / exponent), all - 1);
    }
}

typedef struct tables_workload {
    workload drawn;                /* of each device: [iterations][tables][keys] */
    std::vector<uint64_t> touched; /* of each device: distinct rows of all iterations */
} tables_workload;

/* Draws one table's part of the keys. */
static void dynamicemb_draw_table(const table *t, uint32_t part, uint64_t n, tables_workload *w,
                                  std::atomic<uint64_t> *touched) {
    uint64_t of_part = t->rows / t->parts, steps_drawn = iterations, n_devices = w->drawn.size();
    for (uint64_t d = 0; d < n_devices; d++) {
        std::vector<bool> seen(of_part);
        uint64_t distinct = 0;
        for (uint64_t i = 0; i < steps_drawn; i++) {
            uint64_t *drawn = &w->drawn[d][(i * t->parts + part) * n];
            dynamicemb_draw_power_law(drawn, n, of_part, (part * steps_drawn + i) * n_devices + d + 1);
            for (uint64_t k = 0; k < n; k++) distinct += !seen[drawn[k]], seen[drawn[k]] = true;
        }
        touched[d].fetch_add(distinct, std::memory_order_relaxed);
    }
}

/* `n`: keys of a table, of one device in a step. One thread per table. */
static tables_workload dynamicemb_draw_tables(const table *t, uint32_t n_devices, uint64_t n) {
    tables_workload w;
    std::vector<std::atomic<uint64_t>> touched(n_devices);
    std::vector<std::thread> running;
    w.drawn.resize(n_devices);
    for (std::vector<uint64_t> &drawn : w.drawn) drawn.resize(iterations * t->parts * n);
    for (uint32_t part = 0; part < t->parts; part++)
        running.emplace_back(dynamicemb_draw_table, t, part, n, &w, touched.data());
    for (std::thread &one : running) one.join();
    for (std::atomic<uint64_t> &one : touched) w.touched.push_back(one.load(std::memory_order_relaxed));
    return w;
}

/* >>runs */

static void print_dynamicemb(const training *r, uint64_t touched, double share, const bench_samples *forward,
                             const bench_samples *backward) {
    double step_ms = bench_median(&r->step) * 1e3;
    record out;
    record_add_text(&out, "experiment", "dynamicemb"), record_add_text(&out, "gpu", r->t->machine->name);
    record_add_count(&out, "rows", r->t->rows / r->t->parts), record_add_text(&out, "published_gpu", DYNAMICEMB_GPU);
    record_add_count(&out, "published_rows", DYNAMICEMB_ROWS), record_add_count(&out, "tables", r->t->parts);
    record_add_real(&out, "fraction", (double)r->t->rows / r->t->parts / DYNAMICEMB_ROWS, 6);
    record_add_count(&out, "dim", r->t->dim), record_add_count(&out, "devices", r->devices);
    record_add_count(&out, "keys", r->keys * r->devices), record_add_plain(&out, "power_law", DYNAMICEMB_ALPHA);
    record_add_real(&out, "unique_rows", (double)r->unique_rows / (double)iterations, 0);
    record_add_text(&out, "optimizer", bench_optimizers[r->optimizer]), record_add_plain(&out, "footprint", share);
    record_add_count(&out, "touched_rows", touched), record_add_count(&out, "cached_rows", r->cached);
    record_add_text(&out, "gate", gates[r->gate]),
        record_add_text(&out, "alone", alones[r->alone - FRUGAL_ALONE_STAGED]);
    record_add_text(&out, "keys_in", places[r->keys_in]), record_add_text(&out, "sorted_by", places[r->sorted_by]);
    record_add_count(&out, "loader", r->loader), record_add_count(&out, "workers", r->workers);
    record_add_count(&out, "lookahead", lookahead), record_add_count(&out, "iterations", iterations);
    record_add_real(&out, "hits", bench_median(&r->hits), 4), record_add_real(&out, "step_ms", step_ms, 4);
    record_add_real(&out, "forward_ms", bench_median(forward) * 1e3, 4);
    record_add_real(&out, "backward_ms", bench_median(backward) * 1e3, 4);
    record_add_real(&out, "stall_ms", bench_median(&r->stall) * 1e3, 4);
    record_add_real(&out, "host_ms", bench_median(&r->host) * 1e3, 4);
    record_add_real(&out, "announce_ms", bench_median(&r->announcing) * 1e3, 4);
    add_checked(&out, &r->right), dynamicemb_add_published(&out, r, share, step_ms);
    record_add_long_text(&out, "interval", DYNAMICEMB_INTERVAL),
        record_add_long_text(&out, "source", DYNAMICEMB_SOURCE);
    print_record(&out);
}

/* All keys once to warm up, once timed. */
static void measure_dynamicemb(training *r, const tables_workload *w, double share) {
    std::vector<trainer> all = open_training(r, &w->drawn);
    bench_samples forward = {}, backward = {};
    uint64_t n = iterations;
    training_round(r, &all, n, 0);
    check_training(r, &all, 0); /* copying a cache of tens of GB to the host takes longer than all iterations */
    for (trainer &one : all) {
        ladder_on on(ladder_gpu(one.number));
        one.events.resize(n * 3);
        for (cudaEvent_t &event : one.events) LADDER_CHECK(cudaEventCreate(&event));
    }
    training_round(r, &all, n, 1);
    ladder_synchronize();
    for (uint64_t i = 0; i < n; i++) {
        bench_add(&forward, table_elapsed_ms(all[0].events[i * 3], all[0].events[i * 3 + 1]) * 1e-3);
        bench_add(&backward, table_elapsed_ms(all[0].events[i * 3 + 1], all[0].events[i * 3 + 2]) * 1e-3);
    }
    print_dynamicemb(r, w->touched[0], share, &forward, &backward);
    close_training(r, &all);
}

/* Runs all footprints, gates, loaders, workers, ways of --alone and places of keys on an existing table. */
static void dynamicemb_of(const table *t, frugal_optimizer_kind kind, uint32_t n_devices, uint64_t n_keys) {
    const options_list *by_gate = options_given_or(&gate, &defaults[DYNAMICEMB].gate);
    const options_list *by = options_given_or(&loader, &defaults[DYNAMICEMB].loader);
    uint64_t of_table = (n_keys + n_devices * t->parts - 1) / (n_devices * t->parts); /* of each device, rounded up */
    if (!has_time("dynamicemb, %s, %u devices", bench_optimizers[kind], n_devices)) return;
    tables_workload w = dynamicemb_draw_tables(t, n_devices, of_table);
    uint64_t most = *std::max_element(w.touched.begin(), w.touched.end());
    uint64_t variants = by_gate->n * by->n * workers.n * alone.n * keys_in.n;
    for (uint32_t i = 0; i < footprint.n * variants && !bench_interrupted(); i++) {
        training r = steps_open(t, DYNAMICEMB, n_devices, of_table * t->parts, 0);
        double share = footprint.values[i / variants];
        char what[160];
        r.optimizer = kind, r.batches = iterations, r.cached = (uint64_t)(share * (double)most);
        r.gate = (uint32_t)by_gate->values[i % by_gate->n], r.loader = (uint32_t)by->values[i / by_gate->n % by->n];
        r.workers = options_workers_of(workers.values[i / by_gate->n / by->n % workers.n]);
        r.alone = training_alone_of(i / by_gate->n / by->n / workers.n % alone.n);
        r.keys_in = (uint32_t)keys_in.values[i % variants / by_gate->n / by->n / workers.n / alone.n];
        snprintf(what, sizeof what, "dynamicemb, %s, a cache of %g of the footprint, %u devices",
                 bench_optimizers[kind], share, n_devices);
        if (has_time("%s", what) && limits_fits(training_host_bytes(&r), training_gpu_bytes(&r), what))
            measure_dynamicemb(&r, &w, share);
    }
}

/* The number of rows per table for which host memory is enough with this optimizer, at most `wanted`. (A run whose
 * cache does not fit into the GPU's memory is left out.) */
static uint64_t dynamicemb_rows_that_fit(uint64_t wanted, uint32_t width, frugal_optimizer_kind kind, uint64_t n_keys) {
    uint64_t parts = tables, stride = (width + 7) / 8 * 8, state = frugal_state_floats(kind, width);
    table none = {};
    setup s = {1,    (uint32_t)n_keys,    (uint32_t)lookahead, 0, options_workers_of(workers.values[0]), FRUGAL_P2F,
               kind, training_alone_of(0)};
    none.dim = width;
    uint64_t fixed = table_instance_bytes(&none, &s) + (iterations + 1) * n_keys * 8,
             free_bytes = limits_host_bytes_free();
    uint64_t a_row = (stride + state) * sizeof(float) + 8 + 1,
             most = free_bytes > fixed ? (free_bytes - fixed) / a_row : 0;
    uint64_t limited = (uint64_t)(fraction * (double)wanted + 0.5);
    return std::min(std::min(limited, most / parts), (uint64_t)FRUGAL_MAX_ROWS / parts);
}

static void dynamicemb_sized(ladder_machine *m, held *h, const ladder_speeds *speeds, uint64_t wanted, uint32_t width,
                             uint64_t n_keys) {
    const options_list *kinds = options_given_or(&optimizer, &defaults[DYNAMICEMB].optimizer);
    const options_list *by_devices = options_given_or(&devices, &defaults[DYNAMICEMB].devices);
    uint64_t parts = tables;
    for (uint32_t i = 0; i < kinds->n && !bench_interrupted(); i++) {
        frugal_optimizer_kind kind = (frugal_optimizer_kind)kinds->values[i];
        uint64_t fit = dynamicemb_rows_that_fit(wanted, width, kind, n_keys);
        uint64_t state = kind == FRUGAL_ADAM ? frugal_state_floats(kind, width) : 0;
        if (fit < 16) {
            skip(
                "dynamicemb, %s: %llu tables of %u floats with %llu keys a step: there is memory for %llu rows of each",
                bench_optimizers[kind], (unsigned long long)parts, width, (unsigned long long)n_keys,
                (unsigned long long)fit);
            continue;
        }
        table t = table_of(m, h, speeds, fit, width, (uint32_t)parts);
        char who[64];
        snprintf(who, sizeof who, "dynamicemb, %s", bench_optimizers[kind]);
        if (!open_table(&t, state, who)) continue;
        for (uint32_t d = 0; d < by_devices->n && !bench_interrupted(); d++)
            dynamicemb_of(&t, kind, (uint32_t)by_devices->values[d], n_keys);
        close_table(&t);
    }
}

static void run_dynamicemb(ladder_machine *m, held *h, const ladder_speeds *speeds) {
    const options_list *by_rows = options_given_or(&rows, &defaults[DYNAMICEMB].rows);
    const options_list *by_dim = options_given_or(&dim, &defaults[DYNAMICEMB].dim);
    const options_list *by_keys = options_given_or(&keys, &defaults[DYNAMICEMB].keys);
    for (uint32_t i = 0; i < by_rows->n; i++)
        for (uint32_t d = 0; d < by_dim->n; d++)
            for (uint32_t k = 0; k < by_keys->n && !bench_interrupted(); k++)
                dynamicemb_sized(m, h, speeds, (uint64_t)by_rows->values[i], (uint32_t)by_dim->values[d],
                                 (uint64_t)by_keys->values[k]);
}

#endif
