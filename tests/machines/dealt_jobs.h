/* dealt_jobs.h - trainings of dealt.h that save on the way, by any number of machines. Include after cmocka.h. */
#ifndef DEALT_JOBS_H
#define DEALT_JOBS_H

#include "dealt.h"
#include "tests/unit/host/saved.h"

enum { MOST_PLANS = 3, LAST = 12 };

typedef struct plan { /* train up to a step, then save, if there is a path */
    uint64_t to;
    const char *path;
    int increment, replace;
    const char *other; /* what machine 1 gives instead of `path` */
    int other_kind;    /* machine 1 saves an increment instead of a base */
} plan;

typedef struct job {
    uint32_t machines; /* 0: an instance alone */
    frugal_deal deal;
    const uint8_t *homes;
    frugal_desc desc; /* of all */
    plan plans[MOST_PLANS];
    const char *other_saved; /* what machine 1 opens instead of desc.saved */
    wires wires;
} job;

typedef struct machine {
    pthread_t thread;
    job *job;
    uint32_t number;
    frugal_status status[MOST_PLANS + 1]; /* of opening; of the saves */
    char said[MOST_PLANS + 1][512];
    float weights[DEALT_MOST * DEALT_SIZE], state[DEALT_MOST * 2 * DEALT_SIZE];
    uint64_t first_step;
} machine;

static machine all[DEALT_DEVICES];

static inline void note(machine *m, int i, frugal_status status) {
    m->status[i] = status;
    snprintf(m->said[i], sizeof m->said[i], "%s", status ? frugal_message() : "");
}

static inline _Noreturn void end_here(const machine *m, const char *call) {
    fprintf(stderr, "machine %u: %s: %s\n", m->number, call, frugal_message());
    abort();
}

static inline void *run_machine(void *of) {
    machine *m = of;
    const job *j = m->job;
    frugal *f;
    uint32_t here = j->machines ? DEALT_DEVICES / j->machines : DEALT_DEVICES, from = m->number * here;
    frugal_wire wire = wires_of(&m->job->wires, m->number);
    const frugal_machines machines = {.wire = &wire, .deal = j->deal, .homes = j->homes};
    frugal_desc desc = j->desc;
    if (j->machines) desc.machines = &machines;
    if (m->number == 1 && j->other_saved) desc.saved = &j->other_saved;
    note(m, 0, frugal_open(&desc, &f));
    if (m->status[0] == FRUGAL_OK) {
        uint64_t step = m->first_step = frugal_settings(f)->first_step;
        for (uint32_t d = from; d < from + here; d++)
            if (frugal_cpu_attach(f, d, NULL)) end_here(m, "attach");
        for (int i = 0; i < MOST_PLANS && j->plans[i].to; step = j->plans[i++].to) {
            const plan *p = &j->plans[i];
            int other = m->number == 1 && p->other;
            if (dealt_train(f, from, here, step, p->to)) end_here(m, "train");
            int increment = p->increment ^ (m->number == 1 && p->other_kind);
            if (p->path) note(m, 1 + i, save_one(f, other ? p->other : p->path, increment, p->replace));
        }
        dealt_read(f, m->weights, m->state);
    }
    frugal_close(f);
    return NULL;
}

static inline job job_of(uint32_t machines, frugal_deal deal, frugal_optimizer_kind kind) {
    job j = {.machines = machines, .deal = deal};
    j.desc = dealt_desc(kind);
    return j;
}

/* All machines; those of `all` have what became of them. */
static inline void run(job *j) {
    uint32_t n = j->machines ? j->machines : 1;
    memset(all, 0, sizeof all);
    wires_init(&j->wires, &(wires_options){.seed = 3, .machines = n, .delay = 2, .buffered = 50, .late = 30});
    for (uint32_t i = 0; i < n; i++) {
        all[i].job = j, all[i].number = i;
        assert_int_equal(0, pthread_create(&all[i].thread, NULL, run_machine, &all[i]));
    }
    for (uint32_t i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
    wires_destroy(&j->wires);
}

/* ... which have succeeded. */
static inline void run_well(job *j) {
    run(j);
    for (uint32_t i = 0; i < (j->machines ? j->machines : 1); i++)
        for (int k = 0; k <= MOST_PLANS; k++)
            if (all[i].status[k]) fail_msg("machine %u, call %d: %s", i, k, all[i].said[k]);
}

#endif /* DEALT_JOBS_H */
