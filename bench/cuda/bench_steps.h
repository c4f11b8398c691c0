/* bench_steps.h - whole steps on 1, 2, 4 logical devices of one GPU, or of several (--gpus): flushed ahead by priority
 * (p2f), written through (sync), and p2f without a cache. The paper's #1 and #5. With --alone staged,place,kept each of
 * them runs in three ways: rows that one device alone touches are updated by workers, or by the GPU in place (the
 * default) or in its cached copies. With --keys-in host,gpu keys lie in host memory, and in the GPU's; sorted_by says
 * who finds the rows of a batch. Also the same steps by calls and by replays of a graph.
 *
 * A round has as many announcements as steps, and ends when all its updates are in host memory: so its speed is that of
 * a long run. stall_ms is the time between the last commit and the opening of the gate; if the stream waits for the
 * gate, the host does not wait, and no stall is counted. host_ms is spent in the trainer's calls, waiting included;
 * announce_ms in the loader's. cpu_ns_per_key is processor time of all threads, those that wait awake included.
 */
#ifndef FRUGAL_BENCH_CUDA_STEPS_H
#define FRUGAL_BENCH_CUDA_STEPS_H

#include "bench/cuda/bench_training.h"

/* The GPUs of the devices, in their order: 0-1 for one device on each of two. */
static std::string steps_gpus_of(uint32_t n_devices) {
    std::string text;
    for (uint32_t d = 0; d < n_devices; d++) text += (d ? "-" : "") + std::to_string(ladder_gpu(d));
    return text;
}

static void steps_add_training(record *out, const training *r) {
    record_add_text(out, "gate", gates[r->gate]);
    record_add_text(out, "alone", alones[r->alone - FRUGAL_ALONE_STAGED]);
    record_add_text(out, "keys_in", places[r->keys_in]), record_add_text(out, "sorted_by", places[r->sorted_by]);
    record_add_count(out, "loader", r->loader), record_add_text(out, "gpus", steps_gpus_of(r->devices).c_str());
    record_add_count(out, "rows", r->t->rows);
    record_add_text(out, "rows_as", types[r->t->rows_as]);
    record_add_count(out, "dim", r->t->dim), record_add_count(out, "devices", r->devices),
        record_add_count(out, "keys", r->keys);
    record_add_plain(out, "zipf", r->zipf), record_add_count(out, "batches", r->batches);
    record_add_plain(out, "cache", r->system == NOCACHE ? 0 : (double)r->cached / (double)r->t->rows);
    record_add_count(out, "workers", r->workers), record_add_count(out, "lookahead", lookahead);
    record_add_text(out, "optimizer", bench_optimizers[r->optimizer]);
}

static void print_steps(const training *r) {
    record out;
    record_add_text(&out, "experiment", "steps"), record_add_text(&out, "system", systems[r->system]),
        steps_add_training(&out, r);
    record_add_real(&out, "keys_per_s", bench_median(&r->keys_per_s), 0);
    record_add_real(&out, "min", bench_quantile(&r->keys_per_s, 0), 0);
    record_add_real(&out, "max", bench_quantile(&r->keys_per_s, 1), 0);
    record_add_real(&out, "step_ms", bench_median(&r->step) * 1e3, 4);
    record_add_real(&out, "stall_ms", bench_median(&r->stall) * 1e3, 4);
    record_add_real(&out, "host_ms", bench_median(&r->host) * 1e3, 4);
    record_add_real(&out, "announce_ms", r->loader ? bench_median(&r->announcing) * 1e3 : NAN, 4);
    record_add_real(&out, "cpu_ns_per_key", bench_median(&r->cpu_per_key) * 1e9, 2);
    record_add_real(&out, "hits", bench_median(&r->hits), 4);
    record_add_count(&out, "rounds", r->keys_per_s.n), add_checked(&out, &r->right);
    print_record(&out);
}

static void steps_print_graph(const training *r) {
    record out;
    record_add_text(&out, "experiment", "graph"), record_add_text(&out, "how", r->graph ? "graph" : "calls"),
        steps_add_training(&out, r);
    record_add_real(&out, "host_us", (bench_median(&r->host) + bench_median(&r->launch)) * 1e6, 2);
    record_add_real(&out, "step_us", bench_median(&r->step) * 1e6, 2);
    record_add_real(&out, "min_us", bench_quantile(&r->step, 0) * 1e6, 2);
    record_add_real(&out, "max_us", bench_quantile(&r->step, 1) * 1e6, 2);
    record_add_real(&out, "hits", bench_median(&r->hits), 4), record_add_count(&out, "rounds", r->step.n);
    add_checked(&out, &r->right);
    print_record(&out);
}

/* The number of warm-up steps, after which a cache has been full for a while. */
static uint64_t steps_to_warm(uint64_t cached, uint64_t n_keys) {
    return std::max(std::max(2 * lookahead, steps), cached / n_keys + 1);
}

/* Configurations that share a workload take turns, a round each, so that drift of the machine affects all of them. They
 * share the table, too, so from the second round on a cache may hold rows that another configuration has changed since.
 * That does not change times, and bits were compared before. If the workload is empty, it is drawn here. */
static void steps_take_turns(std::vector<training> *runs, workload *w, const char *what,
                             void (*print)(const training *)) {
    std::vector<std::vector<trainer>> trainers;
    uint64_t host = training_workload_bytes(&(*runs)[0]), gpu = 0;
    for (const training &r : *runs) host += training_host_bytes(&r), gpu += training_gpu_bytes(&r);
    if (!has_time("%s", what) || !limits_fits(host, gpu, what)) return;
    if (w->empty()) *w = training_draw_workload(&(*runs)[0]);
    for (training &r : *runs) trainers.push_back(open_training(&r, w));
    for (uint32_t round = 0; round <= rounds && !bench_interrupted(); round++) {
        if (round > 1 && limits_time_is_over(0)) break; /* ends with fewer rounds, the same number for each */
        for (uint32_t i = 0; i < runs->size() && !bench_interrupted(); i++) {
            training *r = &(*runs)[i];
            training_round(r, &trainers[i], round ? steps : steps_to_warm(r->cached, r->keys), round > 0);
            if (round == 0) check_training(r, &trainers[i], 1);
            bench_progress("%s: round %u of %llu", what, round, (unsigned long long)rounds);
        }
    }
    for (uint32_t i = 0; i < runs->size(); i++) {
        if ((*runs)[i].step.n) print(&(*runs)[i]);
        close_training(&(*runs)[i], &trainers[i]);
    }
}

static training steps_open(const table *t, uint32_t which, uint32_t n_devices, uint64_t n_keys, double skew) {
    training r = {};
    r.t = t, r.devices = n_devices, r.system = P2F, r.gate = GATE_HOST;
    r.alone = training_alone_of(0), r.workers = options_workers_of(workers.values[0]);
    r.optimizer = options_optimizer_of(which), r.keys = n_keys, r.zipf = skew;
    r.cached = (uint64_t)(cache * (double)t->rows);
    /* The steps of all rounds, the one that is checked, and those announced. */
    r.batches = table_batches_of(n_keys, steps_to_warm(r.cached, n_keys) + rounds * steps + 1 + lookahead);
    return r;
}

/* All systems, gates, ways of frugal_alone and places of keys, for a number of workers, and for each who announces. */
static void steps_of(const table *t, uint32_t n_devices, uint64_t n_keys, double skew) {
    const options_list *by_gate = options_given_or(&gate, &defaults[STEPS].gate),
                       *by = options_given_or(&loader, &defaults[STEPS].loader);
    workload w;
    for (uint32_t i = 0; i < workers.n; i++)
        for (uint32_t l = 0; l < by->n && !bench_interrupted(); l++) {
            std::vector<training> runs;
            char what[160];
            for (uint32_t k = 0; k < system_option.n * by_gate->n * alone.n * keys_in.n; k++) {
                training r = steps_open(t, STEPS, n_devices, n_keys, skew);
                r.system = (uint32_t)system_option.values[k / keys_in.n / alone.n / by_gate->n];
                r.gate = (uint32_t)by_gate->values[k / keys_in.n / alone.n % by_gate->n];
                r.alone = training_alone_of(k / keys_in.n % alone.n),
                r.keys_in = (uint32_t)keys_in.values[k % keys_in.n];
                r.loader = (uint32_t)by->values[l], r.workers = options_workers_of(workers.values[i]);
                runs.push_back(r);
            }
            snprintf(what, sizeof what, "steps, %u devices, %llu keys, Zipf %g, %u workers, loader %u", n_devices,
                     (unsigned long long)n_keys, skew, runs[0].workers, runs[0].loader);
            steps_take_turns(&runs, &w, what, print_steps);
        }
}

static void run_steps(const table *t) {
    const options_list *by_devices = options_given_or(&devices, &defaults[STEPS].devices);
    const options_list *by_keys = options_given_or(&keys, &defaults[STEPS].keys);
    for (uint32_t d = 0; d < by_devices->n; d++)
        for (uint32_t k = 0; k < by_keys->n; k++)
            for (uint32_t z = 0; z < zipf.n && !bench_interrupted(); z++)
                steps_of(t, (uint32_t)by_devices->values[d], (uint64_t)by_keys->values[k], zipf.values[z]);
}

static void steps_graph_of(const table *t, uint64_t n_keys, double skew) {
    const options_list *by_gate = options_given_or(&gate, &defaults[GRAPH].gate),
                       *by = options_given_or(&loader, &defaults[GRAPH].loader);
    std::vector<training> runs;
    workload w;
    char what[160];
    for (uint32_t i = 0; i < by_gate->n * by->n * 2; i++) {
        training r = steps_open(t, GRAPH, 1, n_keys, skew);
        r.graph = i % 2, r.gate = (uint32_t)by_gate->values[i / 2 % by_gate->n];
        r.loader = (uint32_t)by->values[i / 2 / by_gate->n];
        runs.push_back(r);
    }
    snprintf(what, sizeof what, "graph, %llu keys, Zipf %g", (unsigned long long)n_keys, skew);
    steps_take_turns(&runs, &w, what, steps_print_graph);
}

static void steps_run_graph(const table *t) {
    const options_list *by_keys = options_given_or(&keys, &defaults[GRAPH].keys);
    for (uint32_t k = 0; k < by_keys->n; k++)
        for (uint32_t z = 0; z < zipf.n && !bench_interrupted(); z++)
            steps_graph_of(t, (uint64_t)by_keys->values[k], zipf.values[z]);
}

#endif
