/* A log dealt to devices by parts: every sample once a pass, to the device of its part, in the order of the log, as a
 * plain search finds it; in a window of bounded length; and the same when a pass is interrupted at any step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/dlrm/deal.h"
#include "tests/seed.h"
#include "tests/support.h"

enum { SAMPLES = 2000, FEATURES = 3, NUMBERS = 2, MOST_DEVICES = 5 };

static clicks *log_of_all;
static clicks_batch all; /* the whole log */
static program_error error;

#define assert_works(call)                                                                                             \
    do {                                                                                                               \
        if (call) fail_msg("%s: %s", #call, error.text);                                                               \
    } while (0)

static clicks_shuffle *read_from(uint64_t first, uint64_t end) {
    clicks_shuffle *reader;
    clicks_shuffle_desc desc = {.log = log_of_all, .first = first, .end = end};
    assert_works(clicks_shuffle_open(&reader, &desc, &error));
    assert_works(clicks_shuffle_begin(reader, 1, 0, &error));
    return reader;
}

static int open_log(void **state) {
    (void)state;
    clicks_settings log = {.format = CLICKS_GENERATED, .generator = clicks_generator_default(), .ids = CLICKS_GIVEN};
    log.generator.samples = SAMPLES, log.generator.rows = 1000;
    log.generator.features = FEATURES, log.generator.numbers = NUMBERS;
    assert_works(clicks_open(&log_of_all, &log, &error));
    assert_works(clicks_batch_open(&all, log_of_all, SAMPLES, &error));
    clicks_shuffle *reader = read_from(0, SAMPLES);
    assert_works(clicks_shuffle_read(reader, SAMPLES, &all, &error));
    assert_int_equal(all.n, SAMPLES);
    clicks_shuffle_close(reader);
    return 0;
}

static int close_log(void **state) {
    (void)state;
    clicks_batch_close(&all);
    clicks_close(log_of_all);
    return 0;
}

/* ---- A plain search ------------------------------------------------------------------------------------------ */

typedef struct plain {
    dlrm_deal_desc desc;
    uint8_t parts[SAMPLES], taken[SAMPLES];
} plain;

/* The samples of the next step, device after device: step[n]; first[devices + 1]. */
static uint32_t plain_step(plain *p, uint64_t *step, uint32_t *first) {
    uint64_t from = 0, window = (uint64_t)DLRM_WINDOW * p->desc.devices * p->desc.batch;
    uint32_t n = 0;
    while (from < p->desc.samples && p->taken[from]) from++;
    for (uint32_t d = 0; d < p->desc.devices; d++) {
        first[d] = n;
        for (uint64_t s = from; s < p->desc.samples && s < from + window && n - first[d] < p->desc.batch; s++)
            if (p->parts[s] == d && !p->taken[s]) step[n++] = s;
    }
    for (uint32_t i = 0; i < n; i++) p->taken[step[i]] = 1;
    return first[p->desc.devices] = n;
}

static void assert_same_samples(const clicks_batch *batch, const uint64_t *step) {
    for (uint32_t i = 0; i < batch->n; i++) {
        assert_memory_equal(&batch->labels[i], &all.labels[step[i]], sizeof(float));
        assert_memory_equal(batch->numbers + (size_t)i * NUMBERS, all.numbers + step[i] * NUMBERS,
                            NUMBERS * sizeof(float));
        for (size_t f = 0; f < FEATURES; f++)
            assert_int_equal(batch->ids[f * batch->room + i], all.ids[f * SAMPLES + step[i]]);
    }
}

/* A pass by both, with the steps that the dealer goes on behind. */
static uint64_t check_pass(plain *p, dlrm_dealer *dealer) {
    uint64_t step[SAMPLES], steps = 0, met = 0, last[MOST_DEVICES] = {0};
    uint32_t first[MOST_DEVICES + 1], found[MOST_DEVICES + 1];
    clicks_batch batch;
    assert_works(clicks_batch_open(&batch, log_of_all, p->desc.devices * p->desc.batch, &error));
    dlrm_dealer_begin(dealer);
    memset(p->taken, 0, sizeof p->taken);
    clicks_shuffle *reader = read_from(dlrm_dealer_from(dealer), p->desc.samples);
    for (;; steps++) {
        uint32_t n = plain_step(p, step, first);
        assert_works(dlrm_dealer_read(dealer, reader, &batch, found, &error));
        assert_int_equal(batch.n, n);
        if (!n) break;
        assert_memory_equal(first, found, (p->desc.devices + 1) * sizeof *first);
        assert_same_samples(&batch, step);
        for (uint32_t d = 0; d < p->desc.devices; d++) {
            assert_true(first[d + 1] - first[d] <= p->desc.batch);
            for (uint32_t i = first[d]; i < first[d + 1]; i++) {
                assert_true(step[i] + 1 > last[d]); /* in the log's order */
                last[d] = step[i] + 1;
            }
        }
        met += n;
        if (steps % 3 != 1) continue;
        clicks_shuffle_close(reader); /* interrupted, and gone on */
        assert_works(dlrm_dealer_go_on(dealer, met, &error));
        reader = read_from(dlrm_dealer_from(dealer), p->desc.samples);
    }
    assert_int_equal(met, p->desc.samples);
    clicks_shuffle_close(reader);
    clicks_batch_close(&batch);
    return steps;
}

/* Two passes; returns the steps of one. */
static uint64_t check(plain *p, uint64_t samples, uint32_t devices, uint32_t batch) {
    dlrm_dealer *dealer;
    p->desc =
        (dlrm_deal_desc){.log = log_of_all, .parts = p->parts, .samples = samples, .devices = devices, .batch = batch};
    assert_works(dlrm_dealer_open(&dealer, &p->desc, &error));
    uint64_t steps = check_pass(p, dealer);
    assert_int_equal(check_pass(p, dealer), steps);
    dlrm_dealer_close(dealer);
    return steps;
}

/* ---- Cases -------------------------------------------------------------------------------------------------- */

/* Parts drawn at random, even and uneven ones, in logs that end anywhere. */
static void test_random_parts(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_dlrm_deal", 1)};
    static plain p;
    for (int round = 0; round < 200 / SHORTER; round++) {
        uint32_t devices = (uint32_t)test_between(&r, 1, MOST_DEVICES), batch = (uint32_t)test_between(&r, 1, 40);
        uint64_t samples = test_between(&r, 1, SAMPLES), uneven = test_below(&r, 60);
        for (uint64_t s = 0; s < samples; s++)
            p.parts[s] = test_chance(&r, (unsigned)uneven) ? 0 : (uint8_t)test_below(&r, devices);
        check(&p, samples, devices, batch);
    }
}

/* Where parts alternate, batches are full. Where the log is sorted by parts, a step has the samples of one device as
 * long as the window shows no others. A device without samples has empty batches. */
static void test_orders(void **state) {
    (void)state;
    enum { DEVICES = 4, BATCH = 10 };
    static plain p;
    for (uint32_t s = 0; s < SAMPLES; s++) p.parts[s] = s % DEVICES;
    assert_int_equal(check(&p, SAMPLES, DEVICES, BATCH), SAMPLES / DEVICES / BATCH);
    for (uint32_t s = 0; s < SAMPLES; s++) p.parts[s] = (uint8_t)(s / (SAMPLES / DEVICES));
    assert_in_range(check(&p, SAMPLES, DEVICES, BATCH), SAMPLES / DEVICES / BATCH, SAMPLES / BATCH);
    memset(p.parts, 2, sizeof p.parts);
    assert_int_equal(check(&p, SAMPLES, DEVICES, BATCH), SAMPLES / BATCH);
    p.parts[SAMPLES - 1] = 3; /* the window shows it at the end alone */
    assert_in_range(check(&p, SAMPLES, DEVICES, BATCH), SAMPLES / BATCH - 1, SAMPLES / BATCH);
}

/* A position that no step of these parts ends at; a log that has become shorter; a window beyond the limit. */
static void test_refused(void **state) {
    (void)state;
    static uint8_t parts[SAMPLES];
    dlrm_dealer *dealer;
    clicks_batch batch;
    uint32_t first[3];
    for (uint32_t s = 0; s < SAMPLES; s++) parts[s] = s % 2;
    dlrm_deal_desc desc = {.log = log_of_all, .parts = parts, .samples = SAMPLES, .devices = 2, .batch = 10};
    assert_works(dlrm_dealer_open(&dealer, &desc, &error));
    assert_int_equal(dlrm_dealer_go_on(dealer, 25, &error), -1);
    assert_non_null(strstr(error.text, "no step ends behind 25 of 2000 samples"));
    assert_int_equal(dlrm_dealer_go_on(dealer, SAMPLES + 1, &error), -1);
    assert_works(dlrm_dealer_go_on(dealer, SAMPLES, &error));
    assert_int_equal(dlrm_dealer_from(dealer), SAMPLES);
    assert_works(clicks_batch_open(&batch, log_of_all, 20, &error));
    dlrm_dealer_begin(dealer);
    clicks_shuffle *reader = read_from(0, 30);
    assert_works(dlrm_dealer_read(dealer, reader, &batch, first, &error));
    assert_int_equal(dlrm_dealer_read(dealer, reader, &batch, first, &error), -1);
    assert_non_null(strstr(error.text, "the log ends after 30 samples, and had 2000 when they were placed"));
    clicks_shuffle_close(reader);
    clicks_batch_close(&batch);
    dlrm_dealer_close(dealer);
    dlrm_dealer_close(NULL);
    desc.samples = UINT64_C(1) << 40, desc.devices = 254, desc.batch = 1 << 22;
    assert_int_equal(dlrm_dealer_open(&dealer, &desc, &error), -1);
    assert_null(dealer);
    assert_non_null(strstr(error.text, "use a smaller --batch"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_parts),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_log, close_log);
}
