/* pair.h - two machines of this process with a device each, which train until a call fails. For tests of what goes
 * wrong between machines. Include after cmocka.h. */
#ifndef PAIR_H
#define PAIR_H

#include "../expect.h"
#include "wires.h"

enum { DIM = 3, ROWS = 8, KEYS = 4, STEPS = 12, AHEAD = 2 };

typedef struct side {
    pthread_t thread;
    struct pair *pair;
    uint32_t me;
    frugal_status status; /* of the call that failed, or of the last one */
    char message[600], told[600];
    pthread_mutex_t lock; /* of told */
} side;
typedef struct pair {
    wires w;
    frugal_wire wire[2];
    frugal_desc desc[2];
    frugal_table tables[2][2];
    frugal_machines machines[2];
    frugal_optimizer own[2];
    side sides[2];
    pthread_barrier_t barrier;
    void (*run)(side *s, frugal *f); /* after open */
} pair;

static inline void note(const char *text, void *user) {
    side *s = user;
    pthread_mutex_lock(&s->lock);
    if (!s->told[0]) snprintf(s->told, sizeof s->told, "%s", text);
    pthread_mutex_unlock(&s->lock);
}
static inline frugal_status keep(side *s, frugal_status status) {
    s->status = status;
    snprintf(s->message, sizeof s->message, "%s", status == FRUGAL_OK ? "" : frugal_message());
    return status;
}
static inline void pair_make(pair *p, wires_options options, double stuck) {
    memset(p, 0, sizeof *p);
    options.machines = 2;
    wires_init(&p->w, &options);
    pthread_barrier_init(&p->barrier, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        p->wire[i] = wires_of(&p->w, i);
        p->machines[i].wire = &p->wire[i];
        p->tables[i][0].rows = ROWS, p->tables[i][1].rows = ROWS;
        p->tables[i][0].init = p->tables[i][1].init = FRUGAL_INIT_UNIFORM;
        p->tables[i][0].high = p->tables[i][1].high = 1;
        p->desc[i] = (frugal_desc){.tables = p->tables[i], .n_tables = 2, .dim = DIM, .devices = 2, .max_keys = KEYS};
        p->desc[i].lookahead = AHEAD, p->desc[i].machines = &p->machines[i], p->desc[i].stuck_seconds = stuck;
        p->desc[i].notice = note, p->desc[i].user = &p->sides[i];
        p->sides[i].pair = p, p->sides[i].me = i;
        pthread_mutex_init(&p->sides[i].lock, NULL);
    }
}
static inline void *side_main(void *of) { /* both pass the same barriers */
    side *s = of;
    pair *p = s->pair;
    frugal *f = NULL;
    if (keep(s, frugal_open(&p->desc[s->me], &f)) == FRUGAL_OK &&
        keep(s, frugal_cpu_attach(f, s->me, NULL)) == FRUGAL_OK)
        p->run(s, f);
    pthread_barrier_wait(&p->barrier);
    frugal_close(f);
    return NULL;
}
static inline void pair_run(pair *p, void (*run)(side *s, frugal *f)) {
    p->run = run;
    for (uint32_t i = 0; i < 2; i++)
        if (pthread_create(&p->sides[i].thread, NULL, side_main, &p->sides[i])) abort();
    for (uint32_t i = 0; i < 2; i++) pthread_join(p->sides[i].thread, NULL);
    wires_destroy(&p->w);
    pthread_barrier_destroy(&p->barrier);
    for (uint32_t i = 0; i < 2; i++) pthread_mutex_destroy(&p->sides[i].lock);
}

/* Each device reads rows of both homes in each step, half of them again in the next. */
static inline frugal_status announce(side *s, frugal *f, uint64_t step) {
    const uint64_t keys[KEYS] = {4 + step % 2, 6 + step % 2, 2, 3};
    const frugal_keys segment = {.table = (uint32_t)(step / 2 % 2), .keys = keys, .n = KEYS};
    return keep(s, frugal_announce(f, s->me, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
}
static inline frugal_status train(side *s, frugal *f, uint64_t from, uint64_t steps) {
    float rows[KEYS * DIM];
    uint64_t announced = from;
    for (uint64_t step = from; step < steps; step++) {
        while (announced < steps && announced <= step + AHEAD)
            if (announce(s, f, announced++) != FRUGAL_OK) return s->status;
        if (keep(s, frugal_lookup(f, s->me, step, rows)) != FRUGAL_OK) return s->status;
        frugal_gradients g = {.grads = rows, .lr = .1f};
        if (keep(s, frugal_update(f, s->me, step, &g)) != FRUGAL_OK) return s->status;
    }
    return FRUGAL_OK;
}
static inline void train_and_drain(side *s, frugal *f) {
    if (train(s, f, 0, STEPS) == FRUGAL_OK) keep(s, frugal_drain(f));
}
static inline void said(const char *message, const char *text, const char *of, uint32_t machine) {
    if (!strstr(message, text)) fail_msg("%s: machine %u: no \"%s\" in: %s", of, machine, text, message);
}

#endif /* PAIR_H */
