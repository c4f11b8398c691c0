/* puppet.h - a device that a test moves on: it is through with the steps that the test says, or lost. Include after
 * cmocka.h. */
#ifndef PUPPET_H
#define PUPPET_H

#include <stdio.h>
#include "tests/rig.h"

typedef struct puppet {
    uint64_t done;
    int is_lost, waits; /* waits: at gates, itself */
    frugal *f;          /* device 0 is looked up while it is being told of its batch; NULL: not */
    frugal_status early[2];
    char said[512];        /* by the second of these lookups, which waits */
    frugal_status refuses; /* OK, or what lookup, squares and write_back answer */
    int asks_again;        /* `recall` answers AGAIN */
    uint32_t written;      /* calls of write_back that it has done */
    uint32_t polls;        /* so many polls pass; then one calls the function below once; NULL: none does */
    void (*in_poll)(void *);
    void *argument; /* of that call */
} puppet;

static inline frugal_status puppet_answer(const puppet *p) {
    return p->refuses == FRUGAL_OK ? FRUGAL_OK : frugal_fail(p->refuses, "the puppet does not do that");
}
static inline frugal_status puppet_lookup(void *device, const frugal_step *step, void *rows) {
    (void)step, (void)rows;
    return puppet_answer(device);
}
static inline frugal_status puppet_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static inline frugal_status puppet_poll(void *device, uint64_t *steps) {
    puppet *p = device;
    void (*call)(void *) = p->in_poll;
    if (call && p->polls-- == 0) p->in_poll = NULL, call(p->argument);
    *steps = p->done;
    return p->is_lost ? frugal_fail(FRUGAL_ERR_CUDA, "the test took the puppet away") : FRUGAL_OK;
}
static inline void puppet_announced(void *device, const frugal_step *step) {
    puppet *p = device;
    if (!p->f) return;
    while (frugal_help(p->f)) {
    }
    p->early[0] = frugal_try_lookup(p->f, 0, step->step, NULL);
    p->early[1] = frugal_lookup(p->f, 0, step->step, NULL);
    snprintf(p->said, sizeof p->said, "%s", frugal_message());
}
static inline void puppet_close(void *device) {
    (void)device;
}
static inline int puppet_waits(void *device) {
    return ((const puppet *)device)->waits;
}
static inline int puppet_in_place(void *device) {
    (void)device;
    return 1;
}
static inline frugal_status puppet_write_back(void *device, const uint32_t *rows, uint32_t n) {
    puppet *p = device;
    (void)rows, (void)n;
    p->written++;
    return puppet_answer(p);
}
static inline frugal_status puppet_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    (void)step, (void)done, (void)rows, (void)n;
    return ((const puppet *)device)->asks_again ? FRUGAL_AGAIN : FRUGAL_OK;
}
static inline int puppet_recalled(void *device, uint64_t step) {
    (void)device, (void)step;
    return 1;
}
static inline frugal_status puppet_squares(void *device, const frugal_step *step, const void *grads, double *squares) {
    (void)step, (void)grads;
    *squares = 7;
    return puppet_answer(device);
}

/* It leaves all rows to workers. */
static const frugal_device_ops puppet_ops = {.lookup = puppet_lookup,
                                             .update = puppet_update,
                                             .poll = puppet_poll,
                                             .announced = puppet_announced,
                                             .close = puppet_close,
                                             .waits_for_gate = puppet_waits};

/* It keeps updates. */
static const frugal_device_ops keeping_puppet_ops = {.lookup = puppet_lookup,
                                                     .update = puppet_update,
                                                     .poll = puppet_poll,
                                                     .announced = puppet_announced,
                                                     .close = puppet_close,
                                                     .waits_for_gate = puppet_waits,
                                                     .updates_in_place = puppet_in_place,
                                                     .write_back = puppet_write_back,
                                                     .recall = puppet_recall,
                                                     .recalled = puppet_recalled};

/* Two devices, none of them attached; a wait that does not end is stuck after a moment. */
static inline frugal *open_for_puppets(frugal_alone alone) {
    frugal_desc desc = rig_desc();
    desc.stuck_seconds = 0.02, desc.alone = alone;
    return open_or_fail(&desc);
}

/* Device `d` of two is the puppet, the other one of the host; all batches are empty. */
static inline void attach_puppet(frugal *f, puppet *p, uint32_t d) {
    assert_int_equal(FRUGAL_OK, frugal_attach(f, d, &puppet_ops, p));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 1 - d, NULL));
}
static inline frugal *open_puppet(puppet *p, uint32_t d) {
    frugal *f = open_for_puppets(FRUGAL_ALONE_STAGED);
    attach_puppet(f, p, d);
    return f;
}

static inline void announce_none(frugal *f, uint32_t d, uint64_t step) {
    const frugal_batch none = {NULL, 0, 0};
    assert_int_equal(FRUGAL_OK, frugal_announce(f, d, step, &none));
}

static inline void step_of_none(frugal *f, uint32_t d, uint64_t step) {
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, d, step, NULL));
    assert_int_equal(FRUGAL_OK, frugal_update(f, d, step, NULL));
}

static inline void assert_stuck(frugal_status status, const char *text) {
    if (status != FRUGAL_ERR_STUCK || !strstr(frugal_message(), text))
        fail_msg("status %d, message: %s; not: %s", (int)status, frugal_message(), text);
}

/* And both have been given step 0. */
static inline frugal *open_stepped_puppet(puppet *p, uint32_t d) {
    frugal *f = open_puppet(p, d);
    for (uint32_t i = 0; i < 2; i++) announce_none(f, i, 0);
    for (uint32_t i = 0; i < 2; i++) step_of_none(f, i, 0);
    return f;
}

#endif /* PUPPET_H */
