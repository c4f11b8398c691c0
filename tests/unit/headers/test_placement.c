/* test_placement.c - frugal_place.h: every call against brute force, the promises of its opening comment, and all
 * errors. Traces are small, random, and planted: each sample belongs to a community, and most of its keys do, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"
#include "tests/seed.h"
#include "tests/support.h"

/* >>traces */

typedef struct trace {
    frugal_place_desc desc;
    frugal_place_samples all;
    uint64_t *keys, *offsets;
    uint8_t *parts, *to;
} trace;

/* n samples: of `width` keys each, or, if `ragged`, of up to `width`. With the chance q, a key is of the sample's
 * community, else any. */
static trace open_trace(uint64_t seed, frugal_place_desc desc, uint64_t n, uint32_t width, int ragged,
                        uint32_t communities, unsigned q) {
    test_random r = {.seed = seed};
    trace t = {.desc = desc, .keys = calloc(n * width + 1, 8), .offsets = calloc(n + 1, 8)};
    t.parts = calloc(n + 1, 1), t.to = calloc(n + 1, 1);
    uint64_t at = 0, each = desc.rows / communities;
    for (uint64_t s = 0; s < n; s++) {
        uint64_t community = test_below(&r, communities), own = ragged ? test_below(&r, width + 1) : width;
        t.offsets[s] = at;
        for (uint64_t i = 0; i < own; i++)
            t.keys[at++] =
                test_chance(&r, q) ? community + communities * test_below(&r, each) : test_below(&r, desc.rows);
    }
    t.offsets[n] = at;
    t.all = (frugal_place_samples){.keys = t.keys, .offsets = t.offsets, .n = n};
    if (!ragged) t.all.offsets = NULL, t.all.width = width;
    return t;
}

static void close_trace(trace *t) {
    free(t->keys), free(t->offsets), free(t->parts), free(t->to);
}

static frugal_place *open_place(const frugal_place_desc *desc) {
    size_t bytes = frugal_place_footprint(desc);
    assert_true(bytes > 0 && bytes % 8 == 0);
    void *memory = malloc(bytes);
    memset(memory, 0xa5, bytes);
    return frugal_place_init(memory, desc);
}

/* The samples from `from` to end - 1. */
static frugal_place_samples piece(const trace *t, uint64_t from, uint64_t end) {
    frugal_place_samples s = t->all;
    s.n = end - from;
    if (s.offsets)
        s.offsets += from;
    else
        s.keys += from * s.width;
    return s;
}

static const uint64_t *keys_of(const trace *t, uint64_t s, uint64_t *n) {
    uint64_t from = t->all.offsets ? t->offsets[s] : s * t->all.width;
    *n = t->all.offsets ? t->offsets[s + 1] - from : t->all.width;
    return t->keys + from;
}

/* >>the reference: counts of all rows, made of the parts alone */

static uint32_t *recount(const trace *t, const uint8_t *parts, uint64_t n, uint32_t k, uint64_t *size) {
    uint32_t *count = calloc(t->desc.rows * k, sizeof *count);
    memset(size, 0, k * sizeof *size);
    for (uint64_t s = 0, keys; s < n; s++) {
        const uint64_t *key = keys_of(t, s, &keys);
        size[parts[s]]++;
        for (uint64_t i = 0; i < keys; i++) count[key[i] * k + parts[s]]++;
    }
    return count;
}

/* Home, sizes and report are those of the samples in their parts. */
static void compare(const frugal_place *p, const trace *t, uint64_t n, uint32_t k) {
    uint64_t size[FRUGAL_PLACE_MAX_PARTS], touches = 0, local = 0, rows = 0, largest = 0;
    uint32_t *count = recount(t, t->parts, n, k, size);
    for (uint64_t x = 0; x < t->desc.rows; x++) {
        uint32_t home = FRUGAL_PLACE_NOWHERE, most = 0;
        for (uint32_t c = 0; c < k; c++) {
            touches += count[x * k + c];
            assert_int_equal(frugal_place_touches(p, x, c), count[x * k + c]);
            if (count[x * k + c] > most) most = count[x * k + c], home = c;
        }
        assert_int_equal(frugal_place_home(p, x), home);
        rows += most > 0, local += most;
    }
    frugal_place_report report = frugal_place_get_report(p, 0);
    for (uint32_t c = 0; c < k; c++) {
        assert_int_equal(frugal_place_size(p, c), size[c]);
        if (size[c] > largest) largest = size[c];
    }
    assert_int_equal(frugal_place_size(p, k), 0);
    assert_int_equal(frugal_place_touches(p, 0, k), 0);
    assert_int_equal(frugal_place_touches(p, t->desc.rows, 0), 0);
    assert_true(report.samples == n && report.touches == touches && report.local == local);
    assert_true(report.rows == rows && report.largest == largest);
    free(count);
}

/* What `stream` does, with counts that are made anew for each sample. */
static uint32_t stream_one(const trace *t, uint64_t s, const uint32_t *total, uint32_t k, uint64_t cap) {
    uint64_t size[FRUGAL_PLACE_MAX_PARTS], n;
    uint32_t *count = recount(t, t->to, s, k, size), best = k;
    const uint64_t *key = keys_of(t, s, &n);
    int64_t most = 0;
    for (uint32_t c = 0; c < k; c++) {
        int64_t score = -(int64_t)((double)size[c] * ((double)UINT32_MAX * k / (double)t->all.n));
        for (uint64_t i = 0; i < n; i++) score += (int64_t)count[key[i] * k + c] * (UINT32_MAX / total[key[i]]);
        if (size[c] >= cap) continue;
        if (best == k || score > most || (score == most && size[c] < size[best])) best = c, most = score;
    }
    free(count);
    return best;
}

/* >>two levels */

static void stream_equals_brute_force(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        trace t = open_trace(seed, (frugal_place_desc){.rows = 60, .parts = 3, .slack = seed % 2 ? .3 : 0}, 150, 5,
                             seed < 4, 3, 80);
        frugal_place *p = open_place(&t.desc);
        uint64_t whole[1];
        uint32_t *total = recount(&t, t.to, t.all.n, 1, whole);
        uint64_t cap = (uint64_t)ceil((1 + (t.desc.slack > 0 ? t.desc.slack : .05)) * 150 / 16);
        assert_int_equal(frugal_place_count(p, &t.all), FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_stream(p, &t.all, t.parts), FRUGAL_PLACE_OK);
        for (uint64_t s = 0; s < t.all.n; s++) {
            t.to[s] = (uint8_t)stream_one(&t, s, total, 16, cap);
            assert_int_equal(t.parts[s], t.to[s]);
        }
        compare(p, &t, t.all.n, 16);
        free(total), free(p), close_trace(&t);
    }
}

/* A pass of refining in blocks; the proposals of a block are made in pieces, from the last one to the first. */
static uint64_t refine(frugal_place *p, trace *t, uint64_t block, uint64_t of_proposal) {
    uint64_t moved = 0, one;
    for (uint64_t from = 0, end; from < t->all.n; from = end) {
        end = from + block < t->all.n ? from + block : t->all.n;
        for (uint64_t at = end; at > from;) {
            uint64_t low = at - from > of_proposal ? at - of_proposal : from;
            frugal_place_samples s = piece(t, low, at);
            assert_int_equal(frugal_place_propose(p, &s, t->parts + low, t->to + low), FRUGAL_PLACE_OK);
            at = low;
        }
        frugal_place_samples s = piece(t, from, end);
        assert_int_equal(frugal_place_move(p, &s, t->to + from, t->parts + from, &one), FRUGAL_PLACE_OK);
        moved += one;
    }
    return moved;
}

/* Where sample s of part parts[s] would rather be, with counts that are made anew. */
static uint8_t choose_one(const trace *t, const uint8_t *parts, uint64_t s, uint32_t k, uint64_t cap) {
    uint64_t size[FRUGAL_PLACE_MAX_PARTS], n, whole[1];
    uint8_t *none = calloc(t->all.n + 1, 1), own = parts[s], best = own;
    uint32_t *count = recount(t, parts, t->all.n, k, size), *total = recount(t, none, t->all.n, 1, whole);
    const uint64_t *key = keys_of(t, s, &n);
    int64_t score[FRUGAL_PLACE_MAX_PARTS];
    for (uint32_t c = 0; c < k; c++) {
        double means = (double)(size[c] - (c == own)) / ((double)t->all.n / k);
        score[c] = -(int64_t)n * (int64_t)(fmin(means, 2) * (UINT32_MAX / 2));
        for (uint64_t i = 0; i < n; i++)
            score[c] += (int64_t)(count[key[i] * k + c] - (c == own)) * (UINT32_MAX / total[key[i]]);
    }
    for (uint32_t c = 0; c < k; c++)
        if (size[c] < cap && (score[c] > score[best] || (best == own && size[own] > cap))) best = (uint8_t)c;
    free(none), free(count), free(total);
    return best;
}

/* Proposals by the counts before the block; those that want to go are asked again, one after the other. */
static void refining_equals_brute_force(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        trace t = open_trace(40 + seed, (frugal_place_desc){.rows = 50, .parts = 3}, 90, 5, seed % 2 > 0, 3, 80);
        frugal_place *p = open_place(&t.desc);
        uint64_t moves = 0, moved;
        uint8_t now[91];
        assert_int_equal(frugal_place_count(p, &t.all), FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_stream(p, &t.all, t.parts), FRUGAL_PLACE_OK);
        for (int pass = 0; pass < 3; pass++) {
            uint32_t k = pass ? 3 : 16;
            uint64_t cap = (uint64_t)ceil(1.05 * 90 / k);
            if (pass == 1) assert_int_equal(frugal_place_pack(p, t.parts, 90), FRUGAL_PLACE_OK);
            assert_int_equal(frugal_place_propose(p, &t.all, t.parts, t.to), FRUGAL_PLACE_OK);
            memcpy(now, t.parts, 90);
            for (uint64_t s = 0; s < 90; s++) {
                assert_int_equal(t.to[s], choose_one(&t, t.parts, s, k, cap));
                if (t.to[s] != now[s]) now[s] = choose_one(&t, now, s, k, cap);
                moves += now[s] != t.parts[s];
            }
            assert_int_equal(frugal_place_move(p, &t.all, t.to, t.parts, &moved), FRUGAL_PLACE_OK);
            assert_memory_equal(now, t.parts, 90);
            moves -= moved;
        }
        assert_true(moves == 0 && moved < 90);
        free(p), close_trace(&t);
    }
}

static void place_all(frugal_place *p, trace *t, uint64_t of_call, uint64_t block, uint64_t of_proposal) {
    for (uint64_t from = 0, end; from < t->all.n; from = end) {
        end = from + of_call < t->all.n ? from + of_call : t->all.n;
        frugal_place_samples s = piece(t, from, end);
        assert_int_equal(frugal_place_count(p, &s), FRUGAL_PLACE_OK);
    }
    for (uint64_t from = 0, end; from < t->all.n; from = end) {
        end = from + of_call < t->all.n ? from + of_call : t->all.n;
        frugal_place_samples s = piece(t, from, end);
        assert_int_equal(frugal_place_stream(p, &s, t->parts + from), FRUGAL_PLACE_OK);
    }
    refine(p, t, block, of_proposal);
    assert_int_equal(frugal_place_pack(p, t->parts, t->all.n), FRUGAL_PLACE_OK);
    for (int pass = 0; pass < 3; pass++) refine(p, t, block, of_proposal);
}

static void the_result_depends_on_blocks_alone(void **state) {
    (void)state;
    for (int ragged = 0; ragged < 2; ragged++) {
        trace t = open_trace(5, (frugal_place_desc){.rows = 400, .parts = 4}, 3000, 6, ragged, 4, 70);
        trace u = open_trace(5, t.desc, 3000, 6, ragged, 4, 70);
        frugal_place *p = open_place(&t.desc), *q = open_place(&t.desc);
        place_all(p, &t, t.all.n, 500, 500);
        place_all(q, &u, 77, 500, 13);
        assert_memory_equal(t.parts, u.parts, t.all.n);
        compare(p, &t, t.all.n, 4);
        compare(q, &u, u.all.n, 4);
        free(p), free(q), close_trace(&t), close_trace(&u);
    }
}

/* 80% of a sample's keys are of its community, the others are of any: of 8 communities, .825 of all are its own. */
static void planted_communities_are_found(void **state) {
    (void)state;
    trace t = open_trace(3, (frugal_place_desc){.rows = 8000, .parts = 8}, 40000 / SHORTER, 10, 0, 8, 80);
    frugal_place *p = open_place(&t.desc);
    place_all(p, &t, t.all.n, 4096 / SHORTER, 4096 / SHORTER);
    frugal_place_report report = frugal_place_get_report(p, 100);
    assert_true(report.local_share > .8);
    assert_true(report.balance <= 1.05 + 8.0 / (double)t.all.n);
    free(p), close_trace(&t);
}

static void moves_never_overfill(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        trace t = open_trace(seed, (frugal_place_desc){.rows = 50, .parts = 4}, 500, 4, 1, 2, 90);
        frugal_place *p = open_place(&t.desc);
        place_all(p, &t, 500, 1 + 49 * (seed % 3), 500);
        assert_true(frugal_place_get_report(p, 0).largest <= 132); /* 1.05 x 125, rounded up */
        compare(p, &t, t.all.n, 4);
        free(p), close_trace(&t);
    }
}

/* Others may have made a part too large: its samples leave until it fits. */
static void overfull_parts_give_samples_away(void **state) {
    (void)state;
    trace t = open_trace(9, (frugal_place_desc){.rows = 100, .parts = 4}, 400, 4, 0, 4, 80);
    frugal_place *p = open_place(&t.desc);
    for (uint64_t s = 0; s < 400; s++) t.parts[s] = s < 300 ? 2 : (uint8_t)(s % 4);
    assert_int_equal(frugal_place_load(p, &t.all, t.parts), FRUGAL_PLACE_OK);
    compare(p, &t, 400, 4);
    for (int pass = 0; pass < 8; pass++) refine(p, &t, 100, 100);
    assert_int_equal(frugal_place_get_report(p, 0).largest, 105);
    compare(p, &t, 400, 4);
    free(p), close_trace(&t);
}

/* >>after: load, assign, age */

static void loading_continues_what_was_placed(void **state) {
    (void)state;
    trace t = open_trace(11, (frugal_place_desc){.rows = 300, .parts = 3}, 900, 5, 1, 3, 80);
    frugal_place *p = open_place(&t.desc), *q = open_place(&t.desc);
    place_all(p, &t, 900, 100, 100);
    for (uint64_t from = 0; from < 900; from += 90) {
        frugal_place_samples s = piece(&t, from, from + 90);
        assert_int_equal(frugal_place_load(q, &s, t.parts + from), FRUGAL_PLACE_OK);
    }
    compare(q, &t, 900, 3);
    trace u = open_trace(12, t.desc, 60, 5, 1, 3, 80); /* new samples go to the same parts in both */
    assert_int_equal(frugal_place_assign(p, &u.all, u.parts), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_assign(q, &u.all, u.to), FRUGAL_PLACE_OK);
    assert_memory_equal(u.parts, u.to, 60);
    assert_int_equal(frugal_place_get_report(p, 0).samples, 960);
    assert_true(frugal_place_get_report(p, 0).balance <= 1.05 + 3.0 / 960);
    free(p), free(q), close_trace(&t), close_trace(&u);
}

static void new_samples_join_their_community(void **state) {
    (void)state;
    trace t = open_trace(21, (frugal_place_desc){.rows = 400, .parts = 4, .slack = .2}, 4000, 6, 0, 4, 90);
    frugal_place *p = open_place(&t.desc);
    place_all(p, &t, 4000, 1000, 1000);
    trace u = open_trace(22, t.desc, 500, 6, 0, 4, 100);
    uint64_t there = 0;
    assert_int_equal(frugal_place_assign(p, &u.all, u.parts), FRUGAL_PLACE_OK);
    for (uint64_t s = 0; s < 500; s++) there += u.parts[s] == frugal_place_home(p, u.keys[s * 6]);
    assert_true(there > 450);
    free(p), close_trace(&t), close_trace(&u);
}

/* The share of the touches of rows from the machine that touches them most; machine m has parts m n / machines on. */
static double local_to_machines(const frugal_place *p, const trace *t, uint32_t machines) {
    uint64_t local = 0, all = 0;
    for (uint64_t x = 0; x < t->desc.rows; x++) {
        uint64_t most = 0;
        for (uint32_t m = 0, part = 0; m < machines; m++) {
            uint64_t touches = 0;
            for (; part < (m + 1) * t->desc.parts / machines; part++) touches += frugal_place_touches(p, x, part);
            all += touches;
            if (touches > most) most = touches;
        }
        local += most;
    }
    return (double)local / (double)all;
}

/* Each of two communities is too large for a part, and so lies in four: these are on one machine, and the parts that
 * were filled one after the other are not. One machine is none. */
static void parts_that_share_rows_are_on_one_machine(void **state) {
    (void)state;
    double local[3];
    trace t[3];
    for (uint32_t machines = 0; machines < 3; machines++) {
        t[machines] =
            open_trace(25, (frugal_place_desc){.rows = 400, .parts = 8, .machines = machines}, 4000, 6, 0, 2, 90);
        frugal_place *p = open_place(&t[machines].desc);
        place_all(p, &t[machines], 4000, 1000, 1000);
        compare(p, &t[machines], t[machines].all.n, 8);
        local[machines] = local_to_machines(p, &t[machines], 2);
        assert_true(frugal_place_get_report(p, 0).balance <= 1.05 + 8.0 / 4000);
        free(p);
    }
    assert_memory_equal(t[0].parts, t[1].parts, 4000);
    assert_true(local[2] > .93 && local[2] > local[1]); /* .95 of the touches are a community's own */
    for (int i = 0; i < 3; i++) close_trace(&t[i]);
}

/* Affinity within machines, as the opening comment of frugal_place.h has it, of packed parts. */
static double affinity_within(const frugal_place *p, const trace *t, uint32_t machines) {
    uint32_t n = t->desc.parts, each = n / machines;
    double sum = 0;
    for (uint64_t x = 0; x < t->desc.rows; x++) {
        double total = 0;
        for (uint32_t i = 0; i < n; i++) total += frugal_place_touches(p, x, i);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < i && total > 0; j++)
                if (i / each == j / each)
                    sum += (double)frugal_place_touches(p, x, i) * frugal_place_touches(p, x, j) / total;
    }
    return sum;
}

/* Machines get the parts that there would be without them: only their numbers differ, and those of a machine have
 * no less affinity. */
static void packing_renumbers_parts(void **state) {
    (void)state;
    enum { PARTS = 6, SAMPLES = 300 };
    for (uint64_t seed = 0; seed < 60 / SHORTER; seed++) {
        frugal_place_desc desc = {.rows = 60, .parts = PARTS};
        trace t = open_trace(100 + seed, desc, SAMPLES, 4, 0, 3 + seed % 3, 85),
              u = open_trace(100 + seed, desc, SAMPLES, 4, 0, 3 + seed % 3, 85);
        u.desc.machines = 2 + seed % 2;
        frugal_place *p = open_place(&t.desc), *q = open_place(&u.desc);
        int number[PARTS] = {-1, -1, -1, -1, -1, -1};
        assert_int_equal(frugal_place_count(p, &t.all) + frugal_place_count(q, &u.all), FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_stream(p, &t.all, t.parts) + frugal_place_stream(q, &u.all, u.parts),
                         FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_pack(p, t.parts, SAMPLES) + frugal_place_pack(q, u.parts, SAMPLES),
                         FRUGAL_PLACE_OK);
        for (int s = 0; s < SAMPLES; s++) {
            if (number[t.parts[s]] < 0) number[t.parts[s]] = u.parts[s];
            assert_int_equal(number[t.parts[s]], u.parts[s]);
        }
        compare(q, &u, SAMPLES, PARTS);
        assert_true(affinity_within(q, &u, u.desc.machines) >= .999 * affinity_within(p, &t, u.desc.machines));
        free(p), free(q), close_trace(&t), close_trace(&u);
    }
}

/* Two rows are shared by the parts of the first machine, one is the third part's alone: each part has one touch of
 * the sample, but the first machine has two. */
static void new_samples_join_a_machine(void **state) {
    (void)state;
    const uint64_t keys[] = {0, 1, 0, 1, 2, 3, 3, 3, 0, 1, 2};
    const uint64_t offsets[] = {0, 2, 4, 5, 6, 7, 8, 11}; /* the last is new */
    const uint8_t parts[] = {0, 1, 2, 0, 1, 3, 0};
    for (uint32_t machines = 1; machines < 3; machines++) {
        frugal_place_desc desc = {.rows = 4, .parts = 4, .slack = 3, .machines = machines};
        frugal_place *p = open_place(&desc);
        frugal_place_samples old = {.keys = keys, .offsets = offsets, .n = 6}, new = {keys, offsets + 6, 1, 0};
        uint8_t to;
        assert_int_equal(frugal_place_load(p, &old, parts), FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_assign(p, &new, &to), FRUGAL_PLACE_OK);
        assert_int_equal(to, machines == 1 ? 2 : 0); /* of equal scores the smallest part, then the first */
        free(p);
    }
}

static void aging_halves_everything(void **state) {
    (void)state;
    trace t = open_trace(31, (frugal_place_desc){.rows = 90, .parts = 3}, 700, 6, 0, 3, 80);
    frugal_place *p = open_place(&t.desc);
    place_all(p, &t, 700, 100, 100);
    uint64_t size[3], samples = 0, touches = 0, local = 0;
    uint32_t *count = recount(&t, t.parts, 700, 3, size);
    assert_int_equal(frugal_place_age(p), FRUGAL_PLACE_OK);
    for (uint32_t c = 0; c < 3; c++) assert_int_equal(frugal_place_size(p, c), size[c] / 2);
    for (uint32_t c = 0; c < 3; c++) samples += size[c] / 2;
    for (uint64_t x = 0; x < 90; x++) {
        uint32_t most = 0;
        for (uint32_t c = 0; c < 3; c++) {
            touches += count[3 * x + c] / 2;
            if (count[3 * x + c] / 2 > most) most = count[3 * x + c] / 2;
        }
        local += most;
    }
    frugal_place_report report = frugal_place_get_report(p, 0);
    assert_true(report.samples == samples && report.touches == touches && report.local == local);
    for (int i = 0; i < 12; i++) assert_int_equal(frugal_place_age(p), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_get_report(p, 100).touches, 0); /* nothing is left, and nothing is divided by it */
    assert_int_equal(frugal_place_home(p, 0), FRUGAL_PLACE_NOWHERE);
    assert_int_equal(frugal_place_assign(p, &t.all, t.parts), FRUGAL_PLACE_OK);
    compare(p, &t, 700, 3);
    free(count), free(p), close_trace(&t);
}

/* >>worth: ranks, and what the closed form predicts */

/* As frugal_place.h says it, with the C library's exponential. */
static double hits_of(const uint32_t *count, const uint64_t *size, uint32_t n, uint32_t part, double batch) {
    double all = 0, own = count[part] ? count[part] * batch / (double)size[part] : 0, t = -expm1(-own);
    for (uint32_t i = 0; i < n; i++) all += count[i] ? count[i] * batch / (double)size[i] : 0;
    return own > 0 ? t * t * exp(-(all - own)) / -expm1(-all) : 0;
}

static void compare_rank(const frugal_place *p, const trace *t, uint32_t part, frugal_place_rank_by by, uint64_t most) {
    uint64_t size[FRUGAL_PLACE_MAX_PARTS], *keys = calloc(most + 1, 8), batch = 10, better = 0, worthy = 0;
    uint32_t n = t->desc.parts, *count = recount(t, t->parts, t->all.n, n, size);
    double *values = calloc(most + 1, sizeof *values);
    uint8_t *is_in = calloc(t->desc.rows, 1);
    values[most] = -1;
    uint64_t found = frugal_place_rank(p, part, by, batch, keys, values, most);
    assert_true(found <= most && values[most] < 0);
    for (uint64_t i = 0; i < found; i++) {
        assert_true(i == 0 || values[i] < values[i - 1] || (values[i] == values[i - 1] && keys[i] > keys[i - 1]));
        assert_true(keys[i] < t->desc.rows && !is_in[keys[i]]);
        is_in[keys[i]] = 1;
    }
    for (uint64_t x = 0; x < t->desc.rows; x++) {
        double value = by == FRUGAL_PLACE_BY_GAIN        ? hits_of(count + x * n, size, n, part, (double)batch)
                       : frugal_place_home(p, x) == part ? 0
                                                         : count[x * n + part];
        worthy += value > 0;
        for (uint64_t i = 0; is_in[x] && i < found; i++)
            if (keys[i] == x) assert_true(fabs(values[i] - value) <= 1e-12 * value);
        if (!is_in[x] && found > 0) better += value > values[found - 1] * (1 + 1e-12);
    }
    assert_int_equal(better, 0);
    assert_int_equal(found, worthy < most ? worthy : most);
    free(keys), free(values), free(is_in), free(count);
}

static void ranks_equal_brute_force(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        trace t = open_trace(40 + seed, (frugal_place_desc){.rows = 150, .parts = 3}, 200, 5, 1, 3, 70);
        frugal_place *p = open_place(&t.desc);
        place_all(p, &t, 200, 50, 50);
        for (uint32_t part = 0; part < 3; part++)
            for (uint64_t most = 0; most < 160; most += most < 8 ? 1 : 37) {
                compare_rank(p, &t, part, FRUGAL_PLACE_BY_GAIN, most);
                compare_rank(p, &t, part, FRUGAL_PLACE_BY_COUNT, most);
            }
        free(p), close_trace(&t);
    }
}

/* Devices take samples at random; a copy is current if nobody else has touched its row since its device did. */
static void the_closed_form_agrees_with_simulation(void **state) {
    (void)state;
    enum { PARTS = 4, BATCH = 20, STEPS = 3000 / SHORTER };
    trace t = open_trace(51, (frugal_place_desc){.rows = 600, .parts = PARTS}, 4000, 5, 0, 8, 80);
    frugal_place *p = open_place(&t.desc);
    test_random random = {.seed = 52};
    place_all(p, &t, 4000, 1000, 1000);
    uint64_t *members = calloc((size_t)PARTS * 4000, 8), size[PARTS] = {0}, reads = 0, hits = 0;
    uint32_t *last = calloc(600, sizeof *last), *touchers = calloc(600, sizeof *touchers);
    for (uint64_t s = 0; s < 4000; s++) members[t.parts[s] * 4000 + size[t.parts[s]]++] = s;
    for (uint32_t step = 0; step < STEPS; step++) { /* last: bits of the devices that touched the row last */
        memset(touchers, 0, 600 * sizeof *touchers);
        for (uint32_t d = 0; d < PARTS; d++)
            for (uint32_t b = 0; b < BATCH; b++) {
                uint64_t n, s = members[d * 4000 + test_below(&random, size[d])];
                const uint64_t *keys = keys_of(&t, s, &n);
                for (uint64_t i = 0; i < n; i++) touchers[keys[i]] |= 1u << d;
            }
        for (uint64_t x = 0; x < 600; x++) {
            for (uint32_t d = 0; d < PARTS; d++)
                if (touchers[x] >> d & 1) reads++, hits += last[x] == 1u << d;
            if (touchers[x]) last[x] = touchers[x];
        }
    }
    frugal_place_report report = frugal_place_get_report(p, BATCH);
    assert_true(fabs((double)reads / STEPS / report.reads - 1) < .02);
    assert_true(fabs((double)hits / (double)reads - report.hits / report.reads) < .02);
    free(members), free(last), free(touchers), free(p), close_trace(&t);
}

/* >>the order of an epoch */

static void permutations_are_permutations(void **state) {
    (void)state;
    uint8_t *seen = malloc(5000);
    uint64_t moved = 0;
    for (uint64_t n = 1; n < 5000; n += n < 70 ? 1 : 613)
        for (uint64_t key = 0; key < 3; key++) {
            memset(seen, 0, 5000);
            for (uint64_t x = 0; x < n; x++) {
                uint64_t y = frugal_place_permute(key, n, x);
                assert_true(y < n && !seen[y]);
                seen[y] = 1;
                moved += n > 100 && y != x;
            }
            assert_int_equal(frugal_place_permute(key, n, n), 0);
        }
    assert_true(moved > 20000);
    assert_true(frugal_place_permute(1, UINT64_C(1) << 63, 7) < UINT64_C(1) << 63);
    assert_true(frugal_place_permute(1, 1000, 7) != frugal_place_permute(2, 1000, 7) ||
                frugal_place_permute(1, 1000, 8) != frugal_place_permute(2, 1000, 8));
    free(seen);
}

static void ranges_deal_each_sample_once(void **state) {
    (void)state;
    const uint64_t sizes[] = {0, 1, 7, 100, 1001, UINT64_C(1) << 60}, steps[] = {1, 2, 7, 100, 333};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 5; j++) {
            uint64_t next = 0, from, end, each = sizes[i] / steps[j];
            for (uint64_t step = 0; step < steps[j]; step++, next = end) {
                frugal_place_range(sizes[i], steps[j], step, &from, &end);
                assert_true(from == next && end >= from && end - from >= each && end - from <= each + 1);
            }
            assert_true(next == sizes[i]);
        }
}

/* >>baselines */

static void random_parts_are_even(void **state) {
    (void)state;
    uint8_t parts[1003];
    uint64_t size[7] = {0};
    frugal_place_random(1, 7, 1003, 0, 500, parts);
    frugal_place_random(1, 7, 1003, 500, 503, parts + 500);
    for (int s = 0; s < 1003; s++) size[parts[s]]++;
    for (int i = 0; i < 7; i++) assert_true(size[i] >= 143 && size[i] <= 144);
}

static void bicut_puts_samples_where_most_of_their_rows_are(void **state) {
    (void)state;
    trace t = open_trace(61, (frugal_place_desc){.rows = 100, .parts = 5}, 300, 7, 1, 5, 80);
    assert_int_equal(frugal_place_bicut(9, 5, &t.all, t.parts), FRUGAL_PLACE_OK);
    uint8_t home[100];
    for (uint64_t x = 0; x < 100; x++) { /* a sample of one row goes to that row's part */
        frugal_place_samples one = {.keys = &x, .n = 1, .width = 1};
        assert_int_equal(frugal_place_bicut(9, 5, &one, &home[x]), FRUGAL_PLACE_OK);
    }
    for (uint64_t s = 0, n; s < 300; s++) {
        const uint64_t *keys = keys_of(&t, s, &n);
        uint64_t count[5] = {0}, most = 0;
        for (uint64_t i = 0; i < n; i++) count[home[keys[i]]]++;
        for (int c = 0; c < 5; c++)
            if (count[c] > most) most = count[c];
        assert_true(t.parts[s] < 5 && count[t.parts[s]] == most);
    }
    assert_int_equal(frugal_place_bicut(9, 0, &t.all, t.parts), FRUGAL_PLACE_PART);
    assert_int_equal(frugal_place_bicut(9, 257, &t.all, t.parts), FRUGAL_PLACE_PART);
    close_trace(&t);
}

/* The cost of all touches, as equation (3) has it. */
static double cost_of(const trace *t, const uint8_t *homes, const double *weights) {
    double cost = 0;
    for (uint64_t s = 0, n; s < t->all.n; s++) {
        const uint64_t *keys = keys_of(t, s, &n);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t from = t->parts[s], to = homes[keys[i]];
            if (from != to) cost += weights ? weights[from * t->desc.parts + to] : 1;
        }
    }
    return cost;
}

static void algorithm_1_lowers_the_cost(void **state) {
    (void)state;
    double weights[16];
    for (int i = 0; i < 16; i++) weights[i] = i / 8 == i % 4 / 2 ? 1 : 4; /* two machines of two devices */
    for (int weighted = 0; weighted < 2; weighted++) {
        trace t = open_trace(71, (frugal_place_desc){.rows = 400, .parts = 4}, 2000, 4, 0, 4, 90);
        frugal_place *p = open_place(&t.desc);
        uint8_t homes[400];
        frugal_place_random(1, 4, 2000, 0, 2000, t.parts);
        frugal_place_random(2, 4, 400, 0, 400, homes);
        frugal_place_het_gmp g = {.homes = homes, .weights = weighted ? weights : NULL, .alpha = .02, .beta = .1};
        assert_int_equal(frugal_place_load(p, &t.all, t.parts), FRUGAL_PLACE_OK);
        double first = cost_of(&t, homes, g.weights), sum = 0;
        for (int round = 0; round < 5; round++) {
            uint64_t moved = 0, one;
            assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_OK);
            for (uint64_t from = 0; from < 2000; from += 400, moved += one) {
                frugal_place_samples s = piece(&t, from, from + 400);
                assert_int_equal(frugal_place_het_gmp_samples(p, &g, &s, t.parts + from, &one), FRUGAL_PLACE_OK);
            }
            assert_true(round > 0 || moved > 0);
        }
        double last = cost_of(&t, homes, g.weights);
        for (int i = 0; i < 4; i++) sum += g.costs[i];
        assert_true(fabs(sum - last) < 1e-6 * last);
        assert_true(last < .8 * first);
        assert_true(frugal_place_get_report(p, 0).balance < 1.2);
        compare(p, &t, 2000, 4);
        free(p), close_trace(&t);
    }
}

/* >>errors */

static void descriptors_have_limits(void **state) {
    (void)state;
    const frugal_place_desc bad[] = {{.rows = 0, .parts = 2},
                                     {.rows = 10, .parts = 0},
                                     {.rows = 10, .parts = 257},
                                     {.rows = 10, .parts = 4, .clusters = 3},
                                     {.rows = 10, .parts = 4, .clusters = 257},
                                     {.rows = 10, .parts = 4, .machines = 3},
                                     {.rows = 10, .parts = 4, .machines = 8},
                                     {.rows = 10, .parts = 4, .slack = -1},
                                     {.rows = 10, .parts = 4, .slack = NAN},
                                     {.rows = 10, .parts = 4, .slack = INFINITY},
                                     {.rows = UINT64_MAX / 8, .parts = 4}};
    uint64_t memory[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(frugal_place_footprint(&bad[i]), 0);
        assert_null(frugal_place_init(memory, &bad[i]));
    }
    frugal_place_desc good = {.rows = 10, .parts = 256};
    assert_null(frugal_place_init(NULL, &good));
    assert_null(frugal_place_init((char *)memory + 4, &good));
    assert_true(frugal_place_footprint(&good) > 0);
    for (int status = 1; status > -9; status--)
        assert_true(strlen(frugal_place_strerror((frugal_place_status)status)) > 5);
}

static void wrong_samples_change_nothing(void **state) {
    (void)state;
    const uint64_t keys[] = {1, 2, 10, 3, 4, 5}, falling[] = {0, 3, 2, 6}, rising[] = {0, 2, 3, 6};
    frugal_place_desc desc = {.rows = 10, .parts = 2};
    const frugal_place_samples bad[] = {{.keys = keys, .n = 3, .width = 2},
                                        {.keys = keys, .n = 3, .offsets = rising},
                                        {.keys = keys, .n = 3, .offsets = falling}};
    const frugal_place_samples good = {.keys = keys + 3, .n = 3, .width = 1};
    uint8_t parts[3] = {0}, to[3] = {0};
    size_t bytes = frugal_place_footprint(&desc);
    void *before = malloc(bytes);
    for (int phase = 0; phase < 3; phase++)
        for (int i = 0; i < 3; i++) {
            frugal_place *p = open_place(&desc);
            frugal_place_status wanted = i == 2 ? FRUGAL_PLACE_OFFSET : FRUGAL_PLACE_KEY;
            uint64_t at = 99, moved;
            memset(parts, 0, sizeof parts);
            if (phase == 2) assert_int_equal(frugal_place_load(p, &good, parts), FRUGAL_PLACE_OK);
            if (phase == 1) assert_int_equal(frugal_place_count(p, &good), FRUGAL_PLACE_OK);
            if (phase == 1) assert_int_equal(frugal_place_stream(p, &good, parts), FRUGAL_PLACE_OK);
            memcpy(before, p, bytes);
            assert_int_equal(frugal_place_check(p, &bad[i], &at), wanted);
            assert_int_equal(at, 2);
            assert_int_equal(frugal_place_check(p, &bad[i], NULL), wanted);
            if (phase == 0) assert_int_equal(frugal_place_count(p, &bad[i]), wanted);
            if (phase < 2) assert_int_equal(frugal_place_stream(p, &bad[i], parts), wanted);
            if (phase > 0) assert_int_equal(frugal_place_propose(p, &bad[i], parts, to), wanted);
            if (phase > 0) assert_int_equal(frugal_place_move(p, &bad[i], to, parts, &moved), wanted);
            if (phase != 1) assert_int_equal(frugal_place_load(p, &bad[i], parts), wanted);
            if (phase == 2) assert_int_equal(frugal_place_assign(p, &bad[i], parts), wanted);
            assert_memory_equal(before, p, bytes);
            free(p);
        }
    assert_int_equal(frugal_place_bicut(1, 2, &bad[2], parts), FRUGAL_PLACE_OFFSET);
    free(before);
}

static void calls_have_an_order(void **state) {
    (void)state;
    trace t = open_trace(81, (frugal_place_desc){.rows = 20, .parts = 2}, 30, 3, 0, 2, 80);
    frugal_place *p = open_place(&t.desc);
    uint8_t homes[20] = {0};
    frugal_place_het_gmp g = {.homes = homes};
    uint64_t key;
    double value;
    frugal_place_samples half = piece(&t, 0, 15), rest = piece(&t, 15, 30);
    assert_int_equal(frugal_place_propose(p, &half, t.parts, t.to), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_move(p, &half, t.to, t.parts, NULL), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_assign(p, &half, t.parts), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_age(p), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &half, t.parts, NULL), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_rank(p, 0, FRUGAL_PLACE_BY_GAIN, 1, &key, &value, 1), 0);
    assert_int_equal(frugal_place_stream(p, &half, t.parts), FRUGAL_PLACE_FULL); /* nothing has been counted */
    assert_int_equal(frugal_place_count(p, &t.all), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_load(p, &half, t.parts), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_stream(p, &half, t.parts), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_count(p, &half), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_pack(p, t.parts, 30), FRUGAL_PLACE_ORDER); /* half of them are missing */
    assert_int_equal(frugal_place_stream(p, &rest, t.parts + 15), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_stream(p, &rest, t.parts), FRUGAL_PLACE_FULL);
    t.to[7] = t.parts[7], t.parts[7] = 16;
    assert_int_equal(frugal_place_pack(p, t.parts, 30), FRUGAL_PLACE_PART);
    assert_int_equal(frugal_place_propose(p, &t.all, t.parts, t.to + 8), FRUGAL_PLACE_PART);
    assert_int_equal(frugal_place_move(p, &t.all, t.parts, t.parts, NULL), FRUGAL_PLACE_PART);
    t.parts[7] = t.to[7];
    assert_int_equal(frugal_place_pack(p, t.parts, 30), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_pack(p, t.parts, 30), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_stream(p, &rest, t.parts), FRUGAL_PLACE_ORDER);
    assert_int_equal(frugal_place_rank(p, 2, FRUGAL_PLACE_BY_GAIN, 1, &key, &value, 1), 0);
    assert_int_equal(frugal_place_home(p, 20), FRUGAL_PLACE_NOWHERE);
    compare(p, &t, 30, 2);
    free(p), close_trace(&t);
}

/* Parts that are not those counted are found out before a count would fall below zero. */
static void parts_that_lie_are_refused(void **state) {
    (void)state;
    const uint64_t keys[] = {0, 1, 1, 2};
    const uint8_t parts[] = {0, 1}, beyond[] = {0, 2};
    uint8_t lies[] = {1, 0}, to[] = {0, 1};
    uint64_t moved = 9;
    frugal_place_desc desc = {.rows = 3, .parts = 2, .slack = 1};
    frugal_place_samples samples = {.keys = keys, .n = 2, .width = 2};
    frugal_place *p = open_place(&desc);
    assert_int_equal(frugal_place_load(p, &samples, beyond), FRUGAL_PLACE_PART);
    assert_int_equal(frugal_place_get_report(p, 0).samples, 0);
    assert_int_equal(frugal_place_load(p, &samples, parts), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_move(p, &samples, to, lies, &moved), FRUGAL_PLACE_PART);
    assert_int_equal(moved, 0);
    assert_int_equal(frugal_place_get_report(p, 0).touches, 4);
    assert_int_equal(frugal_place_home(p, 0), 0);
    assert_int_equal(frugal_place_home(p, 2), 1);
    uint8_t homes[] = {0, 1, 2};
    double weights[] = {NAN, 1, -1, NAN};
    frugal_place_het_gmp g = {.homes = homes, .weights = weights};
    assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_PART);
    homes[2] = 1;
    assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_WEIGHT);
    weights[2] = 1, g.alpha = NAN;
    assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_WEIGHT);
    g.alpha = 0, g.beta = -1;
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &samples, lies, NULL), FRUGAL_PLACE_WEIGHT);
    g.beta = 0, g.gamma = INFINITY;
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &samples, lies, NULL), FRUGAL_PLACE_WEIGHT);
    g.gamma = 0; /* the diagonal is not read */
    assert_int_equal(frugal_place_het_gmp_rows(p, &g), FRUGAL_PLACE_OK);
    homes[0] = 0, homes[1] = 0, homes[2] = 0; /* so the first sample, said to be in part 1, wants to go to part 0 */
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &samples, lies, &moved), FRUGAL_PLACE_PART);
    lies[1] = 2;
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &samples, lies, &moved), FRUGAL_PLACE_PART);
    const uint64_t mixed[] = {0, 2, 2}; /* said to be in part 0, where its last keys are not */
    lies[0] = 0, to[0] = 1;
    frugal_place_samples one = {.keys = mixed, .n = 1, .width = 3};
    assert_int_equal(frugal_place_move(p, &one, to, lies, NULL), FRUGAL_PLACE_PART);
    assert_int_equal(frugal_place_touches(p, 0, 0), 1);
    free(p);
}

/* No samples, samples without keys, aged rows, one touch in every step. */
static void edges_are_no_exceptions(void **state) {
    (void)state;
    const uint64_t keys[] = {0, 1, 1, 2}, other[] = {0, 1};
    uint8_t parts[] = {0, 1}, lies[] = {0, 0}, to[] = {1, 1};
    frugal_place_desc desc = {.rows = 3, .parts = 2, .slack = 3};
    frugal_place_samples none = {.keys = keys, .width = 2}, two = {.keys = keys, .n = 2, .width = 2};
    frugal_place_samples empty = {.n = 1}, first = two;
    frugal_place *p = open_place(&desc);
    first.n = 1;
    assert_int_equal(frugal_place_count(p, &none), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_stream(p, &none, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_load(p, &none, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_load(p, &first, parts), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_move(p, &empty, lies, to, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(to[0], 1); /* a sample without keys is as well where it is said to be */
    assert_int_equal(frugal_place_move(p, &first, lies, to, NULL), FRUGAL_PLACE_PART); /* part 1 has no samples */
    assert_int_equal(frugal_place_home(p, 1), 0);
    assert_int_equal(frugal_place_get_report(p, 0).touches, 2);
    assert_true(frugal_place_get_report(p, 1000).hits == 2); /* both rows, in every step */
    assert_int_equal(frugal_place_move(p, &first, to, parts, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(parts[0], 0); /* asked again, it stays */
    uint8_t homes[] = {1, 1, 0};
    frugal_place_het_gmp g = {.homes = homes};
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &first, parts, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(parts[0], 1);
    parts[0] = 0, homes[0] = homes[1] = 0;
    assert_int_equal(frugal_place_het_gmp_samples(p, &g, &first, to, NULL), FRUGAL_PLACE_OK);
    assert_int_equal(to[0], 0);
    assert_int_equal(frugal_place_age(p), FRUGAL_PLACE_OK); /* half of one touch is none */
    assert_int_equal(frugal_place_home(p, 0), FRUGAL_PLACE_NOWHERE);
    assert_int_equal(frugal_place_propose(p, &first, parts, to), FRUGAL_PLACE_OK);
    assert_int_equal(to[0], 0);
    free(p);
    p = open_place(&desc);
    frugal_place_samples shorter = {.keys = other, .n = 2, .width = 1};
    assert_int_equal(frugal_place_count(p, &two), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_stream(p, &shorter, parts), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_pack(p, parts, 2), FRUGAL_PLACE_ORDER); /* as many samples, but others */
    free(p);
}

/* A row's touches are counted in 32 bits; what does not fit is refused whole. */
static void full_rows_are_refused(void **state) {
    (void)state;
    const uint64_t keys[] = {3, 5, 5};
    const uint8_t part = 1;
    uint8_t to;
    frugal_place_desc desc = {.rows = 10, .parts = 2};
    const frugal_place_samples samples = {.keys = keys, .n = 1, .width = 3};
    size_t bytes = frugal_place_footprint(&desc);
    void *before = malloc(bytes);
    for (int loaded = 0; loaded < 2; loaded++) {
        frugal_place *p = open_place(&desc);
        if (loaded) assert_int_equal(frugal_place_load(p, &samples, &part), FRUGAL_PLACE_OK);
        frugal_priv_place_total(p)[5] = UINT32_MAX - 1; /* as after 2^32 - 2 touches, which take too long */
        memcpy(before, p, bytes);
        if (!loaded) assert_int_equal(frugal_place_count(p, &samples), FRUGAL_PLACE_FULL);
        assert_int_equal(frugal_place_load(p, &samples, &part), FRUGAL_PLACE_FULL);
        if (loaded) assert_int_equal(frugal_place_assign(p, &samples, &to), FRUGAL_PLACE_FULL);
        assert_memory_equal(before, p, bytes);
        free(p);
    }
    free(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_equals_brute_force),
        cmocka_unit_test(refining_equals_brute_force),
        cmocka_unit_test(the_result_depends_on_blocks_alone),
        cmocka_unit_test(planted_communities_are_found),
        cmocka_unit_test(moves_never_overfill),
        cmocka_unit_test(overfull_parts_give_samples_away),
        cmocka_unit_test(loading_continues_what_was_placed),
        cmocka_unit_test(new_samples_join_their_community),
        cmocka_unit_test(parts_that_share_rows_are_on_one_machine),
        cmocka_unit_test(packing_renumbers_parts),
        cmocka_unit_test(new_samples_join_a_machine),
        cmocka_unit_test(aging_halves_everything),
        cmocka_unit_test(ranks_equal_brute_force),
        cmocka_unit_test(the_closed_form_agrees_with_simulation),
        cmocka_unit_test(permutations_are_permutations),
        cmocka_unit_test(ranges_deal_each_sample_once),
        cmocka_unit_test(random_parts_are_even),
        cmocka_unit_test(bicut_puts_samples_where_most_of_their_rows_are),
        cmocka_unit_test(algorithm_1_lowers_the_cost),
        cmocka_unit_test(descriptors_have_limits),
        cmocka_unit_test(wrong_samples_change_nothing),
        cmocka_unit_test(calls_have_an_order),
        cmocka_unit_test(parts_that_lie_are_refused),
        cmocka_unit_test(edges_are_no_exceptions),
        cmocka_unit_test(full_rows_are_refused),
    };
    return cmocka_run_group_tests_name("test_placement", tests, NULL, NULL);
}
