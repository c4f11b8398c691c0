/* What Frugal is compared with: caches of owners that exchange all to all, and no cache at all.
 *
 * Given for nothing: keys are deduplicated and sorted ahead of time; exchanges and copies run at the link's full rate
 * both ways at once; gradients of several GPUs are reduced at no cost except their transfer; rows that leave an owner's
 * cache are written back at no cost. The CPU gathers with as many cores as Frugal's workers and loaders have. The lack
 * of peer-to-peer transfers is charged: every byte between two GPUs crosses two links.
 *
 * These rivals are not as strong as they could be. A row that the CPU gathers, and the call that copies, cost what the
 * authors' micro-benchmark measured on their machine: a plain loop that fetches its keys from the GPU first. Frugal's
 * own parts are as fast as this library's tuned code on another machine. --gather-ns and --copy-us make the rivals
 * faster.
 */
#include "bench/keys.h"
#include "bench/program.h"
#include "bench/sim/sim.h"

#include <stdlib.h>

typedef struct traffic { /* rows of a step: what each GPU asks of others; what owners serve to others; misses */
    uint64_t asked[SIM_MAX_GPUS], served[SIM_MAX_GPUS], owned[SIM_MAX_GPUS], misses[SIM_MAX_GPUS];
} traffic;

static uint64_t most(const uint64_t *values, uint32_t n) {
    uint64_t result = 0;
    for (uint32_t i = 0; i < n; i++) result = values[i] > result ? values[i] : result;
    return result;
}
static uint64_t sum(const uint64_t *values, uint32_t n) {
    uint64_t result = 0;
    for (uint32_t i = 0; i < n; i++) result += values[i];
    return result;
}

/* Sorts out the step's rows by owner, row % gpus: owned[gpu][...] are the rows that an owner must have, once each. */
static void deal(const sim_workload *w, const sim_keys *k, uint64_t step, uint32_t *seen, uint64_t **owned,
                 traffic *t) {
    *t = (traffic){.asked = {0}};
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        const uint64_t *keys = sim_keys_of(k, step, gpu);
        for (uint32_t i = 0; i < w->keys; i++) {
            uint32_t owner = (uint32_t)(keys[i] % w->gpus), before = seen[keys[i]];
            uint32_t base = (uint32_t)(step * (w->gpus + 1)),
                     mark = base + gpu + 1; /* greater than all marks of earlier steps */
            if (before == mark) continue;   /* this GPU has asked */
            seen[keys[i]] = mark;
            if (before <= base) owned[owner][t->owned[owner]++] = keys[i]; /* no GPU has asked in this step */
            if (owner != gpu) t->asked[gpu]++, t->served[owner]++;
        }
    }
}

/* One step of the owners' caches, with the real library: the rows that they must have are looked up and updated by
 * their only holder. */
static void use_caches(frugal *f, const sim_workload *w, uint64_t step, uint64_t *const *owned, traffic *t) {
    for (uint32_t o = 0; o < w->gpus; o++) {
        frugal_keys keys = {.table = 0, .keys = owned[o], .n = (uint32_t)t->owned[o]};
        sim_check(frugal_announce(f, o, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
    }
    for (uint32_t o = 0; o < w->gpus; o++) {
        sim_check(frugal_lookup(f, o, step, NULL));
        t->misses[o] = sim_count(f, w, o).rows[0];
    }
    for (uint32_t o = 0; o < w->gpus; o++)
        sim_check(frugal_update(f, o, step, &(frugal_gradients){.records = 1, .lr = 0.01f}));
}

/* All to all: what a GPU sends crosses its link to host memory, and what it receives comes from there, both at the same
 * time. */
static double all_to_all(const sim_workload *w, const uint64_t *sent, const uint64_t *received, uint64_t row_bytes) {
    sim_link link = sim_link_of(w, 0);
    double seconds[2];
    for (int way = 0; way < 2; way++) {
        const uint64_t *rows = way ? sent : received;
        seconds[way] = sim_link_seconds(&link, way, sim_wire_bytes(&link, 1, most(rows, w->gpus) * row_bytes),
                                        sim_wire_bytes(&link, 1, sum(rows, w->gpus) * row_bytes));
    }
    return sim_collective(w) + (seconds[0] > seconds[1] ? seconds[0] : seconds[1]);
}

/* Keys to the owners; the owners' misses are gathered by the CPU into bounce buffers and copied; rows back; gradients
 * to the owners, which update their caches. */
static void add_sharded_step(const sim_workload *w, const traffic *t, sim_result *r) {
    sim_link link = sim_link_of(w, 0);
    uint64_t row = sim_row_bytes(w), missed = most(t->misses, w->gpus), owned = most(t->owned, w->gpus);
    uint64_t wire = sim_wire_bytes(&link, missed, row);
    uint64_t all_wire = sim_wire_bytes(&link, sum(t->misses, w->gpus), row);
    r->exchange += all_to_all(w, t->asked, t->served, sizeof(uint32_t)) + all_to_all(w, t->served, t->asked, row) +
                   all_to_all(w, t->asked, t->served, row);
    r->lookup +=
        sim_kernel(w, (double)(owned * row)) /* probe, copy out */ + sim_cpu_copy(w, missed, wire, all_wire, 0);
    r->update += sim_kernel(w, 2.0 * (double)(owned * row));
    r->dense += sim_dense(w);
    r->misses += (double)sum(t->misses, w->gpus), r->flushed += (double)sum(t->owned, w->gpus);
    double each = (double)row / w->gpus;
    r->read_bytes += each * (double)(sum(t->misses, w->gpus) + sum(t->asked, w->gpus) + sum(t->served, w->gpus));
    r->written_bytes += each * (double)(sum(t->misses, w->gpus) + sum(t->asked, w->gpus) + sum(t->served, w->gpus));
}

static void settle(const sim_workload *w, const sim_keys *k, uint64_t steps, sim_result *r) {
    double n = steps ? (double)steps : 1, unique = 0;
    double *means[] = {&r->lookup, &r->exchange, &r->dense, &r->update, &r->read_bytes, &r->written_bytes};
    for (uint32_t i = 0; i < sizeof means / sizeof *means; i++) *means[i] /= n;
    for (uint64_t s = w->warm_up; s < w->warm_up + steps; s++)
        for (uint32_t gpu = 0; gpu < w->gpus; gpu++) unique += sim_unique_of(k, s, gpu);
    r->unique = unique / n / w->gpus;
    r->gather_cores = sim_gather_cores(w);
    r->step = r->lookup + r->exchange + r->dense + r->update;
}

sim_result sim_run_sharded(const sim_workload *w, const sim_keys *k) {
    sim_result r = {0};
    uint64_t *owned[SIM_MAX_GPUS], most_owned = (uint64_t)w->gpus * w->keys, steps = 0;
    uint32_t *seen = calloc(w->rows, sizeof *seen);
    if (!seen) bench_fail("no memory for %llu rows", (unsigned long long)w->rows);
    for (uint32_t o = 0; o < w->gpus; o++)
        if (!(owned[o] = malloc(most_owned * sizeof **owned))) bench_fail("no memory for keys");
    frugal *f = sim_open(w, FRUGAL_P2F, FRUGAL_ALONE_STAGED, (uint32_t)most_owned, 0);
    sim_attach(f, w, sim_cached_rows(w), w->gpus);
    for (uint64_t s = 0; s < (uint64_t)w->warm_up + w->steps && !bench_interrupted(); s++) {
        traffic t;
        deal(w, k, s, seen, owned, &t);
        use_caches(f, w, s, owned, &t);
        if (s < w->warm_up) continue;
        add_sharded_step(w, &t, &r);
        steps++;
    }
    settle(w, k, steps, &r);
    r.misses /= r.flushed > 0 ? r.flushed : 1; /* as a share of the rows that owners looked up */
    r.flushed = 0;
    for (uint32_t o = 0; o < w->gpus; o++) free(owned[o]);
    free(seen);
    frugal_close(f);
    return r;
}

/* The CPU gathers and copies to the GPU; gradients are copied back, and the CPU updates. */
sim_result sim_run_nocache(const sim_workload *w, const sim_keys *k) {
    sim_result r = {.misses = 1};
    sim_link link = sim_link_of(w, 0);
    uint64_t row = sim_row_bytes(w), steps = 0;
    for (uint64_t s = w->warm_up; s < (uint64_t)w->warm_up + w->steps && !bench_interrupted(); s++, steps++) {
        uint64_t unique[SIM_MAX_GPUS];
        for (uint32_t gpu = 0; gpu < w->gpus; gpu++) unique[gpu] = sim_unique_of(k, s, gpu);
        uint64_t n = most(unique, w->gpus), all = sum(unique, w->gpus);
        uint64_t wire = sim_wire_bytes(&link, n, row), all_wire = sim_wire_bytes(&link, all, row);
        r.lookup += sim_cpu_copy(w, n, wire, all_wire, 0);
        r.update += sim_cpu_copy(w, n, wire, all_wire, 1);
        r.dense += sim_dense(w);
        r.read_bytes += (double)(all * row) / w->gpus, r.written_bytes += (double)(all * row) / w->gpus;
    }
    settle(w, k, steps, &r);
    return r;
}

enum { PAGE = 4096 };

typedef struct faults { /* of a GPU: pages that it faults on and receives, and pages that others take from it */
    uint64_t in[SIM_MAX_GPUS], out[SIM_MAX_GPUS];
} faults;

/* All GPUs touch the rows of their keys, in turn, because they run at once. where[page]: 0, the host; or 1 + GPU. */
static void touch(const sim_workload *w, const sim_keys *k, uint64_t step, uint8_t *where, faults *f) {
    uint64_t row = sim_row_bytes(w);
    *f = (faults){.in = {0}};
    for (uint32_t i = 0; i < w->keys; i++)
        for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
            uint64_t at = sim_keys_of(k, step, gpu)[i] * row, last = (at + row - 1) / PAGE;
            for (uint64_t page = at / PAGE; page <= last; page++) {
                if (where[page] == gpu + 1) continue;
                if (where[page]) f->out[where[page] - 1]++;
                f->in[gpu]++;
                where[page] = (uint8_t)(gpu + 1);
            }
        }
}

/* A kernel that touches rows: the driver serves each GPU's faults batch by batch, while pages cross both ways. */
static double fault(const sim_workload *w, const faults *f, double gpu_bytes) {
    sim_link link = sim_link_of(w, 0);
    double seconds = 0, batch = w->constants[SIM_BATCH], crossing = 0;
    for (int way = 0; way < 2; way++) {
        const uint64_t *pages = way ? f->out : f->in;
        double its = sim_link_seconds(&link, way, sim_wire_bytes(&link, most(pages, w->gpus), PAGE),
                                      sim_wire_bytes(&link, sum(pages, w->gpus), PAGE));
        crossing = its > crossing ? its : crossing;
    }
    seconds = (double)(uint64_t)(((double)most(f->in, w->gpus) + batch - 1) / batch);
    return sim_kernel(w, gpu_bytes) + seconds * w->constants[SIM_FAULTS] * 1e-6 + crossing;
}

/* Each GPU reads its rows and later updates them in place; every touch of a page that lies elsewhere moves it. Left
 * out: prefetching, evictions (the table fits into a GPU's memory), and faults on one page by several warps. */
sim_result sim_run_uvm(const sim_workload *w, const sim_keys *k) {
    sim_result r = {0};
    uint64_t row = sim_row_bytes(w), steps = 0;
    uint8_t *where = calloc(w->rows * row / PAGE + 1, sizeof *where);
    if (!where) bench_fail("no memory for the pages of %llu rows", (unsigned long long)w->rows);
    for (uint64_t s = 0; s < (uint64_t)w->warm_up + w->steps && !bench_interrupted(); s++) {
        faults reads, writes;
        touch(w, k, s, where, &reads);
        touch(w, k, s, where, &writes);
        if (s < w->warm_up) continue;
        uint64_t in = sum(reads.in, w->gpus) + sum(writes.in, w->gpus);
        double bytes = (double)w->keys * (double)row;
        r.lookup += fault(w, &reads, bytes), r.update += fault(w, &writes, 2 * bytes), r.dense += sim_dense(w);
        r.misses += (double)sum(reads.in, w->gpus) / ((double)w->keys * w->gpus);
        r.read_bytes += (double)(in * PAGE) / w->gpus;
        r.written_bytes += (double)((sum(reads.out, w->gpus) + sum(writes.out, w->gpus)) * PAGE) / w->gpus;
        steps++;
    }
    settle(w, k, steps, &r);
    r.misses /= steps ? (double)steps : 1, r.gather_cores = 0; /* faults on keys read; the CPU gathers nothing */
    free(where);
    return r;
}

sim_result sim_run(sim_system system, const sim_workload *w, const sim_keys *k) {
    if (w->profile) return sim_predict(w);
    if (system == SIM_SHARDED) return sim_run_sharded(w, k);
    if (system == SIM_UVM) return sim_run_uvm(w, k);
    return system == SIM_NOCACHE ? sim_run_nocache(w, k) : sim_run_frugal(system, w, k);
}
