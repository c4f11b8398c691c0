/* test_ids.c - frugal_ids.h: places of drawn steps beside an oracle, whatever the parts, the pieces and the threads;
 * steps that are taken back leave every byte as it was; growing, reading, putting; limits and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>

#define FRUGAL_IDS_IMPLEMENTATION
#include "frugal_ids.h"
#include "tests/ids_rig.h"
#include "tests/seed.h"

enum { THREADS = 3, KEPT = 5 };

/* >>the oracle */

typedef struct worker {
    frugal_ids *m;
    step_ids *s;
    uint32_t number;
    int phase;
} worker;

static void *work(void *argument) {
    const worker *w = argument;
    uint32_t n = w->phase ? frugal_ids_pieces(w->m) : w->s->n_parts;
    for (uint32_t i = w->number; i < n; i += THREADS)
        if (w->phase)
            frugal_ids_admit(w->m, w->s->parts, w->s->n_parts, i);
        else
            frugal_ids_find(w->m, &w->s->parts[i]);
    return NULL;
}

static void take_step_in_threads(frugal_ids *m, uint64_t step, step_ids *s) {
    assert_int_equal(frugal_ids_begin(m, step), FRUGAL_IDS_OK);
    for (int phase = 0; phase < 2; phase++) {
        worker workers[THREADS];
        pthread_t ids[THREADS];
        for (uint32_t i = 0; i < THREADS; i++) {
            workers[i] = (worker){m, s, i, phase};
            assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    }
}

/* A row's first value is written once: of the noted ids of a step, as many are new as places were given. */
static uint64_t count_new(const step_ids *s, const frugal_ids *m) {
    uint64_t n = 0;
    for (uint32_t p = 0; p < s->n_parts; p++)
        for (uint32_t i = 0; i < s->parts[p].start[frugal_ids_pieces(m)]; i++)
            n += frugal_ids_is_new(&s->parts[p].noted[i]) != 0;
    return n;
}

static void run_beside_oracle(uint64_t seed, uint64_t steps, int threads) {
    static step_ids s;
    uint32_t wanted[MOST];
    test_random r = {.seed = seed};
    frugal_ids_desc desc = draw_desc(&r);
    drawing d = {1 + test_below(&r, 1500), test_below(&r, 9), 1 + (uint32_t)test_below(&r, MOST), test_chance(&r, 50)};
    frugal_ids *m = open_map(&desc);
    ids_oracle o;
    ids_oracle_open(&o, &desc, buckets_of(&desc));
    uint64_t step = desc.first_step;
    for (uint64_t t = 0; t < steps; t++, step += 1 + test_below(&r, 2)) {
        uint64_t admitted = o.said.admitted;
        draw_step(&r, &d, step, &s), cut_step(&r, &d, &s);
        threads ? take_step_in_threads(m, step, &s) : take_step(m, step, &s);
        ids_oracle_step(&o, step, s.ids, d.counts ? s.touches : NULL, s.n, wanted);
        assert_memory_equal(s.places, wanted, s.n * sizeof *wanted);
        assert_same_report(m, &o);
        assert_int_equal(count_new(&s, m), o.said.admitted - admitted);
        if (test_chance(&r, 3)) {
            frugal_ids_status status = frugal_ids_grow(m);
            if (status == FRUGAL_IDS_OK) ids_oracle_grow(&o);
            assert_int_equal(status, o.said.places >= desc.max_places && status ? FRUGAL_IDS_FULL : FRUGAL_IDS_OK);
        }
        if (t % 50 == 0) assert_same_map(m, &o, step);
    }
    ids_oracle_close(&o);
    free(m);
}

static void test_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed("oracle", 62), rounds = test_rounds(400);
    for (uint64_t i = 0; i < rounds; i++) run_beside_oracle(test_mix2(seed, i), 150, 0);
}

static void test_threads(void **state) {
    (void)state;
    uint64_t seed = test_seed("threads", 62), rounds = test_rounds(40);
    for (uint64_t i = 0; i < rounds; i++) run_beside_oracle(test_mix2(seed, 1000 + i), 60, 1);
}

/* Ten million places are given up in the long tier; a hundredth of them in the short one. */
static void test_evictions(void **state) {
    (void)state;
    static step_ids s;
    uint32_t wanted[MOST];
    test_random r = {.seed = test_seed("evictions", 62)};
    uint64_t most = test_is_short() ? 100000 : 10000000;
    frugal_ids_desc desc = {.places = 16384, .hold = 12};
    frugal_ids *m = open_map(&desc);
    ids_oracle o;
    ids_oracle_open(&o, &desc, buckets_of(&desc));
    for (uint64_t step = 0; o.said.evicted < most; step++) {
        s.n = MOST;
        for (uint32_t i = 0; i < MOST; i++) s.ids[i] = test_mix(test_below(&r, 30000) + step * 300);
        cut_step(&r, &(drawing){.counts = 0}, &s);
        take_step(m, step, &s);
        ids_oracle_step(&o, step, s.ids, NULL, s.n, wanted);
        assert_memory_equal(s.places, wanted, sizeof wanted);
    }
    assert_same_report(m, &o);
    ids_oracle_close(&o);
    free(m);
}

/* >>taking back */

/* Some steps, then some more that are taken back: every byte of the map is as it was. Then other steps follow. */
static void test_undo(void **state) {
    (void)state;
    static step_ids s, kept[KEPT];
    uint64_t seed = test_seed("undo", 62), rounds = test_rounds(200), undone = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        test_random r = {.seed = test_mix2(seed, i)};
        frugal_ids_desc desc = draw_desc(&r);
        drawing d = {1 + test_below(&r, 900), test_below(&r, 9), 300, test_chance(&r, 50)};
        frugal_ids *m = open_map(&desc);
        size_t bytes = frugal_ids_footprint(&desc);
        void *copy = malloc(bytes);
        uint64_t step = desc.first_step, last = UINT64_MAX;
        for (int turn = 0; turn < 12; turn++) {
            for (uint64_t t = test_below(&r, 15); t > 0; t--, last = step++) {
                draw_step(&r, &d, step, &s), cut_step(&r, &d, &s);
                take_step(m, step, &s);
            }
            memcpy(copy, m, bytes);
            uint64_t n = test_below(&r, KEPT + 1);
            for (uint64_t t = 0; t < n; t++) {
                draw_step(&r, &d, step + t, &kept[t]), cut_step(&r, &d, &kept[t]);
                take_step(m, step + t, &kept[t]);
            }
            for (uint64_t t = n; t-- > 0; undone++) undo_step(m, t ? step + t - 1 : last, &kept[t]);
            assert_memory_equal(m, copy, bytes);
        }
        free(copy), free(m);
    }
    assert_true(undone > rounds);
}

/* >>reading and putting */

/* A map that is written out by places and put into another one goes on as the first does. */
static void test_put(void **state) {
    (void)state;
    static step_ids s, again;
    uint64_t seed = test_seed("put", 62), rounds = test_rounds(40);
    for (uint64_t i = 0; i < rounds; i++) {
        test_random r = {.seed = test_mix2(seed, i)};
        frugal_ids_desc desc = draw_desc(&r);
        drawing d = {1 + test_below(&r, 900), 2, 300, 0};
        desc.admit_after = 1; /* counters are not written out */
        frugal_ids *m = open_map(&desc), *other = open_map(&desc);
        uint64_t step = desc.first_step, id, last;
        for (; step < desc.first_step + 40; step++) {
            draw_step(&r, &d, step, &s), cut_step(&r, &d, &s);
            take_step(m, step, &s);
        }
        for (uint64_t place = 0; place < frugal_ids_get_report(m).places; place++) {
            if (!frugal_ids_at(m, place, &id, &last)) continue;
            assert_int_equal(frugal_ids_put(other, place, id, last), FRUGAL_IDS_OK);
            assert_int_equal(frugal_ids_put(other, place, id, last), FRUGAL_IDS_PLACE);
        }
        assert_int_equal(frugal_ids_get_report(other).ids, frugal_ids_get_report(m).ids);
        for (; step < desc.first_step + 80; step++) {
            draw_step(&r, &d, step, &s), cut_step(&r, &d, &s);
            memcpy(again.ids, s.ids, sizeof s.ids), again.n = s.n;
            cut_step(&r, &d, &again);
            take_step(m, step, &s), take_step(other, step, &again);
            assert_memory_equal(s.places, again.places, s.n * sizeof *s.places);
        }
        free(m), free(other);
    }
}

static void test_put_errors(void **state) {
    (void)state;
    frugal_ids_desc desc = {.places = 128, .first_step = 10};
    frugal_ids *m = open_map(&desc);
    uint64_t bucket = frugal_priv_ids_hash(7) & 1, id, last;
    assert_int_equal(frugal_ids_put(m, 64 * (1 - bucket), 7, 10), FRUGAL_IDS_PLACE);
    assert_int_equal(frugal_ids_put(m, 64 * bucket + 128, 7, 10), FRUGAL_IDS_PLACE);
    assert_int_equal(frugal_ids_put(m, 64 * bucket, 7, 9), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_put(m, 64 * bucket, 7, UINT64_MAX), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_put(m, 64 * bucket, 7, 12), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_put(m, 64 * bucket + 1, 7, 12), FRUGAL_IDS_PLACE); /* it has another place */
    assert_int_equal(frugal_ids_begin(m, 13), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_put(m, 64 * bucket + 2, 7, 14), FRUGAL_IDS_PLACE);
    assert_int_equal(frugal_ids_get(m, 7), 64 * bucket);
    assert_true(frugal_ids_at(m, 64 * bucket, &id, &last) && id == 7 && last == 12);
    free(m);
}

/* >>limits and errors */

static void assert_refused(frugal_ids_desc desc) {
    assert_int_equal(frugal_ids_footprint(&desc), 0);
    _Alignas(FRUGAL_IDS_ALIGN) static char memory[64];
    assert_null(frugal_ids_init(memory, &desc));
}

static void test_limits(void **state) {
    (void)state;
    assert_refused((frugal_ids_desc){.places = 0});
    assert_refused((frugal_ids_desc){.places = (UINT64_C(1) << 31) + 1});
    assert_refused((frugal_ids_desc){.places = 65, .max_places = 64});
    assert_refused((frugal_ids_desc){.places = 64, .max_places = UINT64_MAX});
    assert_refused((frugal_ids_desc){.places = 64, .admit_after = 256});
    assert_refused((frugal_ids_desc){.places = 64, .pieces = 65});
    assert_refused((frugal_ids_desc){.places = 64, .hold = 9, .expire_after = 8});
    assert_refused((frugal_ids_desc){.places = 64, .expire_after = 63}); /* hold is 64 */
    size_t bytes = frugal_ids_footprint(&(frugal_ids_desc){.places = UINT64_C(1) << 31});
    assert_true(bytes > (UINT64_C(15) << 31) && bytes < (UINT64_C(15) << 31) + 8192); /* 15 bytes a place */
    frugal_ids_desc desc = {.places = 64};
    char *memory = aligned_alloc(FRUGAL_IDS_ALIGN, frugal_ids_footprint(&desc) + FRUGAL_IDS_ALIGN);
    assert_null(frugal_ids_init(memory + 8, &desc));
    assert_null(frugal_ids_init(NULL, &desc));
    frugal_ids *m = frugal_ids_init(memory, &desc);
    assert_int_equal(frugal_ids_pieces(m), 1); /* one bucket */
    assert_int_equal(frugal_ids_grow(m), FRUGAL_IDS_FULL);
    assert_int_equal(frugal_ids_get(m, 0), FRUGAL_IDS_NONE);
    free(m);
}

static void test_steps(void **state) {
    (void)state;
    frugal_ids_desc desc = {.places = 64, .first_step = 5};
    frugal_ids *m = open_map(&desc);
    assert_int_equal(frugal_ids_begin(m, 4), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_begin(m, 5 + (UINT64_C(1) << 32) - 2), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_begin(m, 5), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_begin(m, 5), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_begin(m, 5 + (UINT64_C(1) << 32) - 3), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_undo_begin(m, 5 + (UINT64_C(1) << 32) - 3), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_undo_begin(m, 4), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_undo_begin(m, 5), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_undo_begin(m, UINT64_MAX), FRUGAL_IDS_OK);
    assert_int_equal(frugal_ids_undo_begin(m, 5), FRUGAL_IDS_STEP);
    assert_int_equal(frugal_ids_begin(m, 5), FRUGAL_IDS_OK);
    free(m);
}

static void test_texts(void **state) {
    (void)state;
    for (int status = -4; status <= 1; status++) {
        const char *text = frugal_ids_strerror((frugal_ids_status)status);
        assert_true(text && text[0]);
        assert_int_equal(strcmp(text, "an unknown status") == 0, status == -4 || status == 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle), cmocka_unit_test(test_threads), cmocka_unit_test(test_evictions),
        cmocka_unit_test(test_undo),   cmocka_unit_test(test_put),     cmocka_unit_test(test_put_errors),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_steps),   cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
