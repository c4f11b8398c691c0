/* p2f_by_hand.h - the state machine of frugal_p2f.h driven by one thread: whole steps, and what they consist of.
 * Include after cmocka.h. */
#ifndef P2F_BY_HAND_H
#define P2F_BY_HAND_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"

static inline frugal_p2f *open_p2f(frugal_p2f_desc desc) {
    size_t bytes = frugal_p2f_footprint(&desc);
    assert_true(bytes > 0);
    void *memory =
        aligned_alloc(FRUGAL_P2F_ALIGN, (bytes + FRUGAL_P2F_ALIGN - 1) / FRUGAL_P2F_ALIGN * FRUGAL_P2F_ALIGN);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes); /* init may not rely on zeros unless told so */
    frugal_p2f *p = NULL;
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    assert_non_null(p);
    return p;
}

/* A list of rows as two arguments. */
#define ROWS(...)                                                                                                      \
    (const uint32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define NO_ROWS NULL, 0

static inline frugal_status try_announce(frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t *rows,
                                         uint32_t n) {
    return frugal_p2f_announce(p, device, step, &(frugal_p2f_batch){.rows = rows, .n = n});
}

static inline void announce(frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t *rows, uint32_t n) {
    assert_int_equal(try_announce(p, device, step, rows, n), FRUGAL_OK);
}

static inline void plan_all(frugal_p2f *p) {
    while (frugal_p2f_plan(p)) {
    }
}

/* The valid bits of a batch, of at most 64 rows, of a step that is planned now. */
static inline uint64_t valid_of(frugal_p2f *p, uint32_t device, uint64_t step) {
    plan_all(p);
    assert_true(frugal_p2f_planned(p) > step);
    return *frugal_p2f_valid(p, device, step);
}

static inline int close_all(frugal_p2f *p) {
    int pieces = 0;
    while (frugal_p2f_close(p)) pieces++;
    return pieces;
}

/* Commits `device` at `step` with gradients. */
static inline void commit(frugal_p2f *p, uint32_t device, uint64_t step) {
    assert_int_equal(frugal_p2f_commit(p, device, step, 1, NULL), FRUGAL_OK);
}

/* Takes and finishes everything due at `limit` or before; returns the number of rows. */
static inline uint64_t flush_until(frugal_p2f *p, uint64_t limit) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t flushed = 0;
    for (uint32_t n; (n = frugal_p2f_take(p, limit, work, NULL)) > 0; flushed += n) frugal_p2f_done(p, work, n);
    return flushed;
}

/* Plans, opens the gate by flushing no more than it asks for, commits all devices with gradients, closes. What is stale
 * in the slot then stays there for the commit to retire. */
static inline void finish_step(frugal_p2f *p, uint32_t devices, uint64_t step) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    plan_all(p);
    while (!frugal_p2f_gate(p, step)) {
        uint32_t n = frugal_p2f_take(p, step, work, NULL);
        assert_true(n > 0);
        frugal_p2f_done(p, work, n);
    }
    for (uint32_t d = 0; d < devices; d++) commit(p, d, step);
    close_all(p);
    assert_int_equal(frugal_p2f_get_progress(p).closed, step + 1);
}

/* One device, one row, one step with that row. */
static inline void touch(frugal_p2f *p, uint64_t step, uint32_t row) {
    announce(p, 0, step, &row, 1);
    finish_step(p, 1, step);
}

static inline frugal_p2f_work take_one(frugal_p2f *p, uint64_t limit, uint32_t row, uint64_t due) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, limit, work, NULL), 1);
    assert_int_equal(work[0].row, row);
    assert_int_equal(work[0].slot, due % FRUGAL_P2F_SLOTS);
    return work[0];
}

#endif /* P2F_BY_HAND_H */
