/* A step of Frugal predicted from a profile: the parts of the step as frugal.c has them, with mean rows in place of
 * counted ones.
 *
 * The workers' work of a step is planning, closing and flushing. Of that, the gate waits for closing and for the rows
 * that the next step reads again; the workers, and the trainers that wait, share it evenly, in pieces. Announcing is
 * ahead, by loaders, and workers that have time. A step takes at least as long as all of the work, because staging is
 * limited: threads that are too few make the gate wait. Left out: that the slowest GPU has more rows than the mean, and
 * that a thread announces a whole batch, so a step that waits for announcing takes longer than this.
 */
#include "bench/sim/profile.h"
#include "bench/sim/sim.h"
#include "frugal_pq.h"

#include <math.h>

enum { CLOSE_PIECE = 1024, FLUSH_PIECE = FRUGAL_PQ_PAGE_IDS }; /* entries, at least (frugal_p2f.h); rows */

static double seconds_of(const sim_workload *w, sim_constant_id ns_each, double n) {
    return n * w->constants[ns_each] * 1e-9;
}
static uint32_t helpers_of(const sim_workload *w) { /* of a gate */
    return w->workers + w->gpus;
}
static double helper_seconds(const sim_workload *w, sim_constant_id ns_each, double n) {
    return seconds_of(w, ns_each, n) * sim_helpers_slow(w, helpers_of(w));
}

/* The share of `n` entries or rows that the busiest of the helpers has. */
static double share_of(const sim_workload *w, double n, double piece) {
    double even = n / helpers_of(w), least = n < piece ? n : piece;
    return n > 0 ? (even > least ? even : least) / n : 0;
}

/* Reading: a kernel's own traffic in GPU memory overlaps with the link's. */
static double look_up(const sim_workload *w, double unique, double misses) {
    sim_link link = sim_link_of(w, 1);
    uint64_t rows = (uint64_t)(misses + .5), state = sim_state_bytes(w);
    uint64_t states = w->policy == FRUGAL_CACHE_LRU && sim_cached_rows(w) > 0 ? rows : 0; /* all become copies */
    uint64_t wire = sim_wire_bytes(&link, rows, sim_row_bytes(w)) + sim_wire_bytes(&link, states, state);
    double memory = sim_kernel(w, 2 * unique * sim_row_bytes(w));
    return fmax(memory, sim_kernel(w, 0) + sim_link_seconds(&link, 0, wire, wire * w->gpus));
}

static double write_records(const sim_workload *w, double unique) {
    sim_link link = sim_link_of(w, 1);
    uint64_t wire = sim_wire_bytes(&link, (uint64_t)(unique + .5), sim_row_bytes(w));
    return sim_kernel(w, 3 * unique * sim_row_bytes(w)) + sim_link_seconds(&link, 1, wire, wire * w->gpus) +
           w->constants[SIM_SIGNAL] * 1e-6; /* the commit is seen */
}

sim_result sim_predict(const sim_workload *w) {
    const sim_profile *p = w->profile;
    double reads = sim_profile_reads(p, w->policy, w->cache), signal = w->constants[SIM_SIGNAL] * 1e-6;
    sim_result r = {.unique = p->reads / w->gpus, .workers = w->workers};
    double misses = reads / w->gpus, closing = helper_seconds(w, SIM_CLOSE, p->reads);
    double urgent = sim_flush_seconds(w, p->rows_again, helpers_of(w));
    double rest =
        helper_seconds(w, SIM_PLAN, p->reads) + sim_flush_seconds(w, p->rows_in_step - p->rows_again, helpers_of(w));
    r.misses = p->reads > 0 ? reads / p->reads : 0;
    r.lookup = look_up(w, r.unique, misses), r.dense = sim_dense(w), r.update = write_records(w, r.unique);
    r.closing = signal + closing * share_of(w, p->reads, CLOSE_PIECE);
    r.gate = r.closing + urgent * share_of(w, p->rows_again, FLUSH_PIECE) + signal;
    double work = closing + urgent + rest, others = r.lookup + r.dense + r.update; /* when workers alone help */
    r.gate = fmax(r.gate, (work - w->workers * others) / helpers_of(w));
    double announcers = w->pool ? w->workers + w->gpus : w->gpus; /* trainers help at gates alone */
    double announcing = w->gpus * seconds_of(w, SIM_ANNOUNCE, w->keys) * sim_loaders_slow(w, announcers);
    r.gate = fmax(r.gate, announcing / announcers - others); /* ahead, but each step's takes as long */
    if (w->pool) r.gate = fmax(r.gate, (work + announcing - announcers * others) / (announcers + w->gpus));
    r.step = r.gate + others;
    r.read_bytes = misses * sim_row_bytes(w), r.written_bytes = r.unique * sim_row_bytes(w);
    r.flushed = p->rows_in_step, r.urgent = p->rows_again;
    r.alone = p->rows_alone, r.shared = p->rows_in_step - p->rows_alone;
    double each = announcing / announcers;
    r.worker_share = fmin((work / w->workers + (w->pool ? each : 0)) / r.step, 1);
    r.loader_share = each / r.step;
    return r;
}
