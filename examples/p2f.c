/* p2f.c - the state machine of frugal_p2f.h alone: a trainer whose threads, table and waits are its own.
 *
 * Two devices train one small table, each on a thread of its own; a third thread flushes. frugal_p2f_* says when a row
 * may be read, and which update is to be written next; this file does the reading and the writing. At the end the
 * table is compared, bit for bit, with one that a plain loop trained.
 *
 *     build/p2f        (or: cc -std=c11 -O3 -ffp-contract=off -I. examples/p2f.c -lpthread -lm)
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"

enum { ROWS = 1024, DIM = 8, DEVICES = 2, BATCH = 32, STEPS = 5000, LOOKAHEAD = 8, STAGING = LOOKAHEAD + 2 };

static frugal_p2f *p;
static float table[ROWS][DIM];
/* Gradients of step s, in block s mod STAGING: the gate of s opens when what the block held before is flushed. */
static float staging[DEVICES][STAGING][BATCH][DIM];

typedef struct thread {
    uint32_t device;  /* DEVICES: the thread that only flushes */
    uint64_t flushed; /* updates that this thread wrote to the table */
} thread;

static void check(frugal_status status, const char *what) {
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "p2f: cannot %s: %s\n", what, frugal_strerror(status));
    exit(1);
}

/* ---- Data and model ----------------------------------------------------------------------------------- */

/* The rows that a device reads at a step: distinct and rising, one from each BATCH-th part of the table. */
static void batch_of(uint32_t device, uint64_t step, uint32_t rows[BATCH]) {
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t random = ((step * DEVICES + device) * BATCH + i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        random = (random ^ random >> 32) * UINT64_C(0xD6E8FEB86659FD93);
        rows[i] = i * (ROWS / BATCH) + (uint32_t)(random >> 33) % (ROWS / BATCH);
    }
}
/* The gradient of |row - sample|^2 / 2. It depends on the row: a single stale read changes the table for good. */
static void backward(const float *row, uint32_t device, uint64_t step, float *gradient) {
    for (uint32_t j = 0; j < DIM; j++) gradient[j] = row[j] - 0.01f * (float)((step * 7 + device * 3 + j) % 101);
}
static void add(float *sum, const float *gradient) {
    for (uint32_t j = 0; j < DIM; j++) sum[j] += gradient[j];
}
static void descend(float *row, const float *sum) {
    for (uint32_t j = 0; j < DIM; j++) row[j] -= 0.1f * sum[j];
}

/* The expected result: one thread, one step after the other, all reads of a step before its writes. */
static void train_plainly(float expected[ROWS][DIM]) {
    static float sum[ROWS][DIM];
    for (uint64_t step = 0; step < STEPS; step++) {
        uint32_t rows[DEVICES][BATCH];
        float gradient[DIM];
        memset(sum, 0, sizeof sum);
        for (uint32_t d = 0; d < DEVICES; d++) {
            batch_of(d, step, rows[d]);
            for (uint32_t i = 0; i < BATCH; i++) {
                backward(expected[rows[d][i]], d, step, gradient);
                add(sum[rows[d][i]], gradient);
            }
        }
        for (uint32_t row = 0; row < ROWS; row++) descend(expected[row], sum[row]); /* sum is 0: no change */
    }
}

/* ---- Flushing ----------------------------------------------------------------------------------------- */

/* Writes one update: the gradients that the devices bring, summed in the order of the devices, then SGD. (A device
 * may also commit without gradients. Here none does; else frugal_p2f_brings says which entries to skip.) */
static void apply(const frugal_p2f_work *work) {
    float sum[DIM] = {0};
    uint32_t n = frugal_p2f_contributors(work->entries), device, record;
    for (uint32_t i = 0; i < n; i++) {
        frugal_p2f_source(p, work->entries[i].source, &device, &record);
        add(sum, staging[device][work->step % STAGING][record]);
    }
    descend(table[work->row], sum);
}

/* Does one piece of the background work: closes, plans, or flushes what is due at `limit` or before. If there is
 * nothing to do, another thread is doing the rest, or has not committed yet, so this one yields the processor. */
static void help(thread *self, uint64_t limit) { // flushes only updates that are due at `limit` or before
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    if (frugal_p2f_close(p) || frugal_p2f_plan(p)) return;
    uint32_t n = frugal_p2f_take(p, limit, work, NULL); // these rows are this thread's until done
    for (uint32_t i = 0; i < n; i++) apply(&work[i]);
    if (n > 0) frugal_p2f_done(p, work, n);
    self->flushed += n;
    if (n == 0) sched_yield();
}

static void *flusher(void *argument) { /* until the table is drained: all steps closed, nothing pending */
    for (frugal_p2f_progress now; now = frugal_p2f_get_progress(p), now.closed < STEPS || now.pending > 0;)
        help(argument, UINT64_MAX);
    return NULL;
}

/* ---- A device ----------------------------------------------------------------------------------------- */

static void *trainer(void *argument) {
    thread *self = argument;
    uint32_t rows[BATCH], device = self->device;
    frugal_p2f_batch batch = {.rows = rows, .n = BATCH};
    for (uint64_t step = 0, t = 0; step < STEPS; step++) {
        for (; t < STEPS && t <= step + LOOKAHEAD; t++) { // run ahead of training
            frugal_status status;
            batch_of(device, t, rows);
            while ((status = frugal_p2f_announce(p, device, t, &batch)) == FRUGAL_AGAIN) help(self, step);
            check(status, "announce a step");
        }
        while (!frugal_p2f_gate(p, step)) help(self, step);   // what this gate waits for is urgent
        batch_of(device, step, rows);                         // from here on these rows are fresh: look them up
        float(*block)[DIM] = staging[device][step % STAGING]; // what the block held before is flushed
        for (uint32_t i = 0; i < BATCH; i++) backward(table[rows[i]], device, step, block[i]);
        check(frugal_p2f_commit(p, device, step, 1, NULL), "commit a step");
    }
    return NULL;
}

int main(void) {
    static float expected[ROWS][DIM];
    frugal_p2f_desc desc = {
        .rows = ROWS, .devices = DEVICES, .max_rows = BATCH, .lookahead = LOOKAHEAD, .staging = STAGING};
    size_t bytes = (frugal_p2f_footprint(&desc) + FRUGAL_P2F_ALIGN - 1) / FRUGAL_P2F_ALIGN * FRUGAL_P2F_ALIGN;
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, bytes);
    check(memory ? frugal_p2f_init(memory, &desc, &p) : FRUGAL_ERR_MEMORY, "make the state machine");

    pthread_t id[DEVICES + 1];
    thread threads[DEVICES + 1];
    for (uint32_t i = 0; i <= DEVICES; i++) {
        threads[i] = (thread){.device = i};
        int failed = pthread_create(&id[i], NULL, i < DEVICES ? trainer : flusher, &threads[i]);
        check(failed ? FRUGAL_ERR_WORKER : FRUGAL_OK, "start a thread");
    }
    for (uint32_t i = 0; i <= DEVICES; i++) pthread_join(id[i], NULL);
    train_plainly(expected);
    int same = memcmp(table, expected, sizeof table) == 0;
    uint64_t waiting = threads[0].flushed + threads[1].flushed, all = waiting + threads[DEVICES].flushed;
    printf("%d steps, %llu updates flushed, %llu of them by devices that waited; %s as plain training\n", STEPS,
           (unsigned long long)all, (unsigned long long)waiting, same ? "the same bits" : "NOT THE SAME BITS");
    free(memory);
    return same ? 0 : 1;
}
