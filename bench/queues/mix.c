/* Drawing P2F's operations, and checking what queues made of them. */
#include "bench/queues/mix.h"
#include "bench/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* >>drawing */

static void *table(uint64_t n, size_t bytes) {
    return calloc(n ? n : 1, bytes);
}

/* The reads of each step: reads[(steps + lookahead)][batch], distinct within a step. `last` is [ids] zeros. */
static void draw_reads(const bench_mix_shape *s, uint32_t *reads, uint64_t *last) {
    enum { BLOCK = 4096 };
    uint64_t keys[BLOCK], seed = s->seed, at = BLOCK;
    for (uint64_t step = 0; step < s->steps + s->lookahead; step++)
        for (uint32_t n = 0; n < s->batch; at++) {
            if (at == BLOCK) bench_draw_keys(keys, BLOCK, s->ids, s->zipf, bench_random(&seed)), at = 0;
            if (last[keys[at]] == step + 1) continue;
            last[keys[at]] = step + 1;
            reads[step * s->batch + n++] = (uint32_t)keys[at];
        }
}

typedef struct dealt { /* one batch, sorted by owner */
    uint32_t *ids;
    uint64_t *due;
} dealt;

/* Sorts ids[n] by the thread that owns them, with `due` (or NULL), and says in start[1 .. threads] where each thread's
 * part begins and the last one ends; start[0] is given. */
static void deal(uint32_t threads, uint32_t *ids, uint64_t *due, uint64_t n, uint64_t *start, dealt scratch) {
    uint64_t at[BENCH_MIX_THREADS + 1] = {0};
    for (uint64_t i = 0; i < n; i++) at[ids[i] % threads + 1]++;
    for (uint32_t t = 0; t < threads; t++) at[t + 1] += at[t];
    for (uint32_t t = 1; t <= threads; t++) start[t] = start[0] + at[t];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = at[ids[i] % threads]++;
        scratch.ids[to] = ids[i];
        if (due) scratch.due[to] = due[i];
    }
    memcpy(ids, scratch.ids, n * sizeof *ids);
    if (due) memcpy(due, scratch.due, n * sizeof *due);
}

/* Goes through the announcements in order. last[ids]: where in `reads` the id was last announced, + 1. */
static uint64_t link_reads(bench_mix *mix, const uint32_t *reads, uint64_t *last) {
    const bench_mix_shape *s = &mix->shape;
    uint64_t n = 0, ends = s->steps * s->batch;
    for (uint64_t read = 0; read < s->steps + s->lookahead; read++) {
        uint64_t first = n; /* these are announced at step read - lookahead */
        for (uint64_t i = read * s->batch; i < (read + 1) * s->batch; i++) {
            uint64_t *known = &last[reads[i]], before = *known ? (*known - 1) / s->batch : 0;
            int pending = *known && before + s->lookahead >= read;
            if (pending && *known - 1 < ends && mix->due[*known - 1] > read) mix->due[*known - 1] = read;
            if (read >= s->lookahead && !pending && (!*known || before + s->staging > read))
                mix->announced[n++] = reads[i];
            *known = i + 1;
            if (read < s->steps) mix->due[i] = read + s->staging;
        }
        if (read >= s->lookahead) mix->announced_start[(read - s->lookahead) * (s->threads + 1)] = first;
    }
    return n;
}

static void deal_all(bench_mix *mix, uint64_t announced, dealt scratch) {
    const bench_mix_shape *s = &mix->shape;
    uint32_t row = s->threads + 1;
    for (uint64_t step = 0; step < s->steps; step++) {
        uint64_t from = mix->announced_start[step * row], at = step * s->batch;
        uint64_t to = step + 1 < s->steps ? mix->announced_start[(step + 1) * row] : announced;
        mix->closed_start[step * row] = at;
        deal(s->threads, mix->announced + from, NULL, to - from, &mix->announced_start[step * row], scratch);
        deal(s->threads, mix->closed + at, mix->due + at, s->batch, &mix->closed_start[step * row], scratch);
    }
}

bench_mix *bench_mix_draw(const bench_mix_shape *s) {
    uint64_t reads_n = (s->steps + s->lookahead) * s->batch, n = s->steps * s->batch;
    bench_mix *mix = calloc(1, sizeof *mix);
    uint32_t *reads = table(reads_n, sizeof *reads);
    uint64_t *last = table(s->ids, sizeof *last);
    dealt scratch = {table(s->batch, sizeof *scratch.ids), table(s->batch, sizeof *scratch.due)};
    if (mix)
        *mix = (bench_mix){.shape = *s,
                           .announced = table(n, sizeof *mix->announced),
                           .announced_start = table(s->steps * (s->threads + 1), sizeof *mix->announced_start),
                           .closed = table(n, sizeof *mix->closed),
                           .due = table(n, sizeof *mix->due),
                           .closed_start = table(s->steps * (s->threads + 1), sizeof *mix->closed_start)};
    if (mix && reads && last && scratch.ids && scratch.due && mix->announced && mix->announced_start && mix->closed &&
        mix->due && mix->closed_start) {
        draw_reads(s, reads, last);
        memset(last, 0, s->ids * sizeof *last);
        uint64_t announced = link_reads(mix, reads, last);
        memcpy(mix->closed, reads, n * sizeof *reads);
        deal_all(mix, announced, scratch);
    } else {
        bench_mix_free(mix);
        mix = NULL;
    }
    free(reads);
    free(last);
    free(scratch.ids);
    free(scratch.due);
    return mix;
}

void bench_mix_free(bench_mix *mix) {
    if (!mix) return;
    free(mix->announced);
    free(mix->announced_start);
    free(mix->closed);
    free(mix->due);
    free(mix->closed_start);
    free(mix);
}

/* >>checking */

int bench_check_open(bench_check *c, const bench_mix *mix) {
    *c = (bench_check){.mix = mix, .due = table(mix->shape.ids, sizeof *c->due)};
    return c->due != NULL;
}

void bench_check_close(bench_check *c) {
    free(c->due);
}

static int wrong(bench_check *c, const char *what, uint32_t id, uint64_t step) {
    if (!c->message[0])
        snprintf(c->message, sizeof c->message, "id %u %s, step %llu", id, what, (unsigned long long)step);
    return 0;
}

static void queue_at(bench_check *c, uint32_t id, uint64_t due) {
    if (c->due[id]) c->queued[(c->due[id] - 1) % 64]--;
    c->due[id] = due + 1;
    c->queued[due % 64]++;
}

static void announce(bench_check *c, uint64_t step) {
    const bench_mix *m = c->mix;
    uint64_t row = m->shape.threads + 1;
    const uint64_t *start = &m->announced_start[step * row];
    for (uint64_t i = start[0]; i < start[row - 1]; i++) {
        if (!c->due[m->announced[i]]) continue;
        queue_at(c, m->announced[i], step + m->shape.lookahead);
        c->moved++;
    }
}

static int close_step(bench_check *c, uint64_t step) {
    const bench_mix *m = c->mix;
    for (uint64_t i = step * m->shape.batch; i < (step + 1) * m->shape.batch; i++) {
        if (c->due[m->closed[i]]) return wrong(c, "is still queued when its step closes", m->closed[i], step);
        queue_at(c, m->closed[i], m->due[i]);
    }
    return 1;
}

/* A thread that runs alone always takes from the lowest priority. */
static int take(bench_check *c, const bench_log *log, uint64_t from, uint64_t to, uint64_t step) {
    for (uint64_t i = from; i < to; i++) {
        uint32_t id = log->ids[i];
        if (id >= c->mix->shape.ids || !c->due[id]) return wrong(c, "was taken and was not queued", id, step);
        for (uint64_t due = step; c->mix->shape.threads == 1 && due < c->due[id] - 1; due++)
            if (c->queued[due % 64]) return wrong(c, "was taken before those due earlier", id, step);
        c->queued[(c->due[id] - 1) % 64]--;
        c->due[id] = 0;
    }
    return 1;
}

static int pass_gate(bench_check *c, const bench_log *logs, uint64_t i, uint64_t step) {
    for (uint32_t t = 0; t < c->mix->shape.threads; t++)
        if (!take(c, &logs[t], i ? logs[t].step_end[i - 1] : 0, logs[t].gate_end[i], step)) return 0;
    if (!c->queued[step % 64]) return 1;
    uint32_t id = 0;
    while (c->due[id] != step + 1) id++;
    return wrong(c, "was left behind at the gate of its due step", id, step);
}

/* An id that one thread takes while another closes may have been queued by the other, so it counts as taken after
 * closing. A thread that runs alone takes first. */
static int close_and_take(bench_check *c, const bench_log *logs, uint64_t i, uint64_t step) {
    int alone = c->mix->shape.threads == 1;
    if (!alone && !close_step(c, step)) return 0;
    for (uint32_t t = 0; t < c->mix->shape.threads; t++)
        if (!take(c, &logs[t], logs[t].gate_end[i], logs[t].step_end[i], step)) return 0;
    return !alone || close_step(c, step);
}

int bench_check_steps(bench_check *c, const bench_log *logs, uint64_t from, uint64_t to) {
    for (uint64_t i = 0; i < to - from; i++) {
        announce(c, from + i);
        if (!pass_gate(c, logs, i, from + i) || !close_and_take(c, logs, i, from + i)) return 0;
    }
    return 1;
}

int bench_check_rest(bench_check *c, const uint32_t *ids, uint64_t n) {
    const bench_log log = {.ids = (uint32_t *)(uintptr_t)ids};
    if (!take(c, &log, 0, n, c->mix->shape.steps)) return 0;
    for (uint32_t id = 0; id < c->mix->shape.ids; id++)
        if (c->due[id]) return wrong(c, "was never delivered", id, c->mix->shape.steps);
    return 1;
}
