/* trials.h - a trial of the property test (tests/property/trial.h) whose tables are dealt over machines: what each
 * machine does, and what is expected. The machines are threads (test_machines.c), or ranks (mpi_trials.c). */
#ifndef TRIALS_H
#define TRIALS_H

#include <unistd.h>
#include "tests/property/boundary.h"
#include "tests/property/phase.h"

enum { MOST_MACHINES = 4 };

typedef struct machine {
    pthread_t thread;
    run *r;
    frugal_wire wire;
    frugal_machines dealt;
    void (*pass)(struct machine *m); /* waits for all machines */
    pthread_barrier_t *barrier;      /* of threads */
    int waits;                       /* with closing, until all have made their last calls */
    frugal_stats stats;
} machine;

/* >>machine: what each does; all pass the same barriers, whatever fails */

static inline void announce_plan(run *r) {
    const trial *t = r->t;
    const trial_boundary *b = &t->boundaries[r->phase];
    r->to = b->at;
    for (uint32_t d = 0; d < t->devices; d++) {
        int fewer = b->ragged && trial_bits(t, 17, d, r->phase) % 2 && b->announce_to > b->at;
        r->announce_to[d] = b->announce_to - (uint32_t)fewer;
    }
}
static inline void *machine_main(void *of) {
    machine *m = of;
    run *r = m->r;
    const trial *t = r->t;
    if (t->storage == TRIAL_FILE) {
        snprintf(r->file, sizeof r->file, "/tmp/frugal_machines_%d_%llx_%u", (int)getpid(), (unsigned long long)t->seed,
                 r->first);
        unlink(r->file);
    }
    open_workspaces(r);
    if (open_instance(r, t->first_step) && t->preload) preload(r, 99);
    m->pass(m);
    for (r->phase = 0; r->phase < t->n_boundaries; r->phase++) {
        announce_plan(r);
        if (!atomic_load(&r->p->failed)) run_phase(r);
        m->pass(m);
        if (!atomic_load(&r->p->failed)) run_boundary(r, r->phase);
        m->pass(m);
        r->from = r->to;
    }
    if (!atomic_load(&r->p->failed)) check_tables(r, "drained");
    if (r->f) frugal_get_stats(r->f, &m->stats);
    if (m->waits) m->pass(m);
    run_close(r);
    if (r->file[0]) unlink(r->file);
    return NULL;
}

/* >>trial */

static inline uint8_t *homes_of(const trial *t) {
    uint8_t *homes = malloc(t->rows);
    for (uint64_t row = 0; homes && row < t->rows; row++) homes[row] = (uint8_t)trial_home(t, row);
    return homes;
}
/* The reference begins as one machine does. */
static inline void expect(const trial *t, expectation *e, progress *p) {
    trial one = *t;
    run plain = {.t = &one, .e = e, .listed = TRIAL_BOUNDARIES, .end = t->devices};
    one.machines = 0, one.storage = TRIAL_OWN_MEMORY;
    progress_begin(p, &plain, 1);
    run_open(&plain);
    run_close(&plain);
    progress_end(p);
    if (!p->failed) simulate(t, e);
}
static inline void describe(const trial *t) {
    printf("# seed %llu: %u machines, deal %d, rows %llu in %u, dim %u, devices %u, keys %u, L %u, S %u, workers %u, "
           "steps "
           "%u from %llu, %s, alone %d, optimizer %d, trainers %u, loaders %u, boundaries %u, type %d\n",
           (unsigned long long)t->seed, t->machines, (int)t->deal, (unsigned long long)t->rows, t->n_tables, t->dim,
           t->devices, t->max_keys, t->lookahead, t->staging, t->workers, t->steps, (unsigned long long)t->first_step,
           t->mode == FRUGAL_SYNC ? "sync" : "p2f", (int)t->alone, (int)t->optimizer.kind, t->trainers, t->loaders,
           t->n_boundaries, (int)t->rows_as);
    fflush(stdout);
}

static inline void make_random(trial *t, uint64_t seed, uint32_t machines) {
    trial_make_dealt(t, seed, machines);
    t->shares = 0;
    if (trial_chance(t, 99, 0, 0, 15)) t->storage = TRIAL_FILE; /* of each machine; for GPUs the host gathers from it */
}
#endif /* TRIALS_H */
