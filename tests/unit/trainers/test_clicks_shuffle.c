/* A log in another order, block by block: every sample once a pass, in an order that the seed, the pass and the block
 * decide; the same whatever the sizes of reads, and from every sample on; and a training's passes over it, with parts
 * and without, which go on at every step as if they had not been interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "trainers/clicks/shuffle.h"
#include "trainers/dlrm/pass.h"

enum { SAMPLES = 500, FIRST = 20, FEATURES = 3, NUMBERS = 2, MOST_DEVICES = 3 };

static clicks *log_of_all;
static clicks_batch all; /* samples FIRST to FIRST + SAMPLES - 1; the first ids are all different */
static program_error error;

#define assert_works(call)                                                                                             \
    do {                                                                                                               \
        if (call) fail_msg("%s: %s", #call, error.text);                                                               \
    } while (0)

static int open_log(void **state) {
    (void)state;
    clicks_settings log = {.format = CLICKS_GENERATED, .generator = clicks_generator_default(), .ids = CLICKS_GIVEN};
    log.generator.samples = FIRST + SAMPLES + 30, log.generator.rows = (uint64_t)1 << 32, log.generator.zipf = 0;
    log.generator.features = FEATURES, log.generator.numbers = NUMBERS;
    assert_works(clicks_open(&log_of_all, &log, &error));
    assert_works(clicks_batch_open(&all, log_of_all, SAMPLES, &error));
    clicks_reader *reader;
    assert_works(clicks_reader_open(&reader, log_of_all, NULL, FIRST, FIRST + SAMPLES, &error));
    assert_works(clicks_reader_read(reader, SAMPLES, &all, &error));
    clicks_reader_close(reader);
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < i; j++) assert_true(all.ids[i] != all.ids[j]);
    return 0;
}

static int close_log(void **state) {
    (void)state;
    clicks_batch_close(&all);
    clicks_close(log_of_all);
    return 0;
}

/* Which sample of the log is this one of the batch? All of it is the same. */
static uint16_t number_of(const clicks_batch *batch, uint32_t i) {
    uint16_t s = 0;
    while (s < SAMPLES && all.ids[s] != batch->ids[i]) s++;
    assert_true(s < SAMPLES);
    assert_memory_equal(&batch->labels[i], &all.labels[s], sizeof(float));
    assert_memory_equal(batch->numbers + (size_t)i * NUMBERS, all.numbers + (size_t)s * NUMBERS,
                        NUMBERS * sizeof(float));
    for (size_t f = 0; f < FEATURES; f++) assert_int_equal(batch->ids[f * batch->room + i], all.ids[f * SAMPLES + s]);
    return s;
}

static clicks_shuffle *open_shuffle(uint32_t block, uint64_t seed) {
    clicks_shuffle_desc desc = {
        .log = log_of_all, .first = FIRST, .end = FIRST + SAMPLES, .block = block, .seed = seed};
    clicks_shuffle *shuffle;
    assert_works(clicks_shuffle_open(&shuffle, &desc, &error));
    return shuffle;
}

/* The rest of a pass, `most` samples at a time: their numbers in seen[], which returns how many. */
static uint32_t read_rest(clicks_shuffle *shuffle, uint64_t pass, uint64_t behind, uint32_t most, uint16_t *seen) {
    clicks_batch batch;
    uint32_t n = 0;
    assert_works(clicks_batch_open(&batch, log_of_all, most, &error));
    assert_works(clicks_shuffle_begin(shuffle, pass, behind, &error));
    assert_true(clicks_shuffle_reads(shuffle));
    for (;;) {
        assert_works(clicks_shuffle_read(shuffle, most, &batch, &error));
        if (!batch.n) break;
        assert_true(n + batch.n <= SAMPLES);
        if (n + batch.n < SAMPLES - behind) assert_int_equal(batch.n, most); /* also where a block ends */
        for (uint32_t i = 0; i < batch.n; i++) seen[n++] = number_of(&batch, i);
    }
    assert_works(clicks_shuffle_read(shuffle, most, &batch, &error));
    assert_int_equal(batch.n, 0);
    assert_int_equal(clicks_shuffle_malformed(shuffle)->lines, 0);
    clicks_shuffle_end(shuffle);
    assert_false(clicks_shuffle_reads(shuffle));
    clicks_batch_close(&batch);
    return n;
}

static const uint32_t blocks[] = {1, 2, 7, 64, 100, 499, 500, 501, 1000000};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

static void test_once(void **state) {
    (void)state;
    uint16_t seen[SAMPLES], again[SAMPLES];
    for (int b = 0; b < BLOCKS; b++) {
        clicks_shuffle *shuffle = open_shuffle(blocks[b], 5), *other = open_shuffle(blocks[b], 6);
        uint8_t met[SAMPLES] = {0};
        assert_int_equal(read_rest(shuffle, 3, 0, 9, seen), SAMPLES);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            assert_int_equal(met[seen[i]]++, 0);
            assert_int_equal(seen[i] / blocks[b], i / blocks[b]); /* in its block */
        }
        for (uint32_t most = 1; most <= SAMPLES && blocks[b] >= 7; most += 166) { /* sizes of reads */
            assert_int_equal(read_rest(shuffle, 3, 0, most, again), SAMPLES);
            assert_memory_equal(seen, again, sizeof seen);
        }
        assert_int_equal(read_rest(shuffle, 4, 0, 9, again), SAMPLES);
        assert_true(blocks[b] == 1 || memcmp(seen, again, sizeof seen)); /* another pass */
        assert_int_equal(read_rest(other, 3, 0, 9, again), SAMPLES);
        assert_true(blocks[b] == 1 || memcmp(seen, again, sizeof seen)); /* another seed */
        clicks_shuffle_close(shuffle);
        clicks_shuffle_close(other);
    }
}

/* A block's samples are where they please: over many passes, each place of a block gets each sample about as often. */
static void test_even(void **state) {
    (void)state;
    enum { BLOCK = 5, PASSES = 200 };
    uint16_t seen[SAMPLES];
    uint32_t times[BLOCK][BLOCK] = {{0}};
    clicks_shuffle *shuffle = open_shuffle(BLOCK, 1);
    for (uint64_t pass = 0; pass < PASSES; pass++) {
        read_rest(shuffle, pass, 0, 100, seen);
        for (uint32_t i = 0; i < SAMPLES; i++) times[i % BLOCK][seen[i] % BLOCK]++;
    }
    clicks_shuffle_close(shuffle);
    double wanted = (double)PASSES * SAMPLES / BLOCK / BLOCK, off = 0;
    for (int i = 0; i < BLOCK * BLOCK; i++) {
        double far = times[i / BLOCK][i % BLOCK] - wanted;
        off += far * far / wanted;
    }
    assert_true(off < 50); /* chi squared of 16: a hundred thousandth is above */
}

static void test_order_of_the_log(void **state) {
    (void)state;
    uint16_t seen[SAMPLES];
    clicks_shuffle *shuffle = open_shuffle(0, 5);
    assert_int_equal(read_rest(shuffle, 1, 0, 64, seen), SAMPLES);
    for (uint32_t i = 0; i < SAMPLES; i++) assert_int_equal(seen[i], i);
    assert_int_equal(read_rest(shuffle, 1, 77, 64, seen), SAMPLES - 77);
    assert_int_equal(seen[0], 77);
    clicks_shuffle_close(shuffle);
    clicks_shuffle_close(NULL);
}

static void test_from_every_sample(void **state) {
    (void)state;
    uint16_t seen[SAMPLES], rest[SAMPLES];
    for (int b = 2; b < BLOCKS; b++) {
        clicks_shuffle *shuffle = open_shuffle(blocks[b], 5);
        read_rest(shuffle, 2, 0, 50, seen);
        for (uint32_t behind = 1; behind <= SAMPLES; behind += behind < 130 ? 1 : 37) {
            assert_int_equal(read_rest(shuffle, 2, behind, 50, rest), SAMPLES - behind);
            assert_memory_equal(seen + behind, rest, (SAMPLES - behind) * sizeof *rest);
        }
        assert_int_equal(read_rest(shuffle, 2, SAMPLES + 3, 50, rest), 0); /* the log has become shorter */
        clicks_shuffle_close(shuffle);
    }
}

static void test_bytes(void **state) {
    (void)state;
    uint16_t seen[SAMPLES];
    uint8_t from[SAMPLES], to[SAMPLES];
    for (uint32_t i = 0; i < SAMPLES; i++) from[i] = (uint8_t)(i * i % 251);
    for (int b = -1; b < BLOCKS; b++) {
        clicks_shuffle *shuffle = open_shuffle(b < 0 ? 0 : blocks[b], 8);
        read_rest(shuffle, 6, 0, 50, seen);
        clicks_shuffle_bytes(shuffle, 6, SAMPLES, from, to);
        for (uint32_t i = 0; i < SAMPLES; i++) assert_int_equal(to[i], from[seen[i]]);
        clicks_shuffle_close(shuffle);
    }
}

/* ---- Passes ---------------------------------------------------------------------------------------------- */

/* A step as it came: its samples and whose they are. */
typedef struct step {
    uint32_t n, first[MOST_DEVICES + 1];
    uint16_t sample[90];
} step;

static uint32_t read_steps(dlrm_passes *passes, uint32_t most, clicks_batch *batch, step *steps) {
    uint32_t n = 0;
    for (; n < most; n++) {
        steps[n] = (step){.n = 0};
        assert_works(dlrm_passes_read(passes, batch, steps[n].first, &error));
        if (!(steps[n].n = batch->n)) break;
        for (uint32_t i = 0; i < batch->n; i++) steps[n].sample[i] = number_of(batch, i);
    }
    return n;
}

static void check_passes(const dlrm_passes_desc *desc) {
    enum { STEPS = 400 };
    static step steps[STEPS], rest[STEPS];
    uint32_t times[SAMPLES] = {0}, room = desc->devices * desc->batch;
    clicks_batch batch;
    dlrm_passes *passes, *resumed;
    assert_works(clicks_batch_open(&batch, log_of_all, room, &error));
    assert_works(dlrm_passes_open(&passes, desc, &error));
    uint32_t all_steps = read_steps(passes, STEPS, &batch, steps), samples = 0;
    assert_true(all_steps < STEPS);
    dlrm_passes_close(passes);
    for (uint32_t s = 0; s < all_steps; s++)
        for (uint32_t d = 0; d < desc->devices; d++)
            for (uint32_t i = steps[s].first[d]; i < steps[s].first[d + 1]; i++, samples++) {
                uint16_t sample = steps[s].sample[i];
                assert_int_equal(times[sample]++, samples / SAMPLES); /* each once a pass */
                if (desc->parts) assert_int_equal(desc->parts[sample], d);
            }
    assert_int_equal(samples, desc->epochs * SAMPLES);
    for (uint32_t s = 0; s <= all_steps; s += s < 5 ? 1 : 6) { /* interrupted behind s steps */
        assert_works(dlrm_passes_open(&passes, desc, &error));
        assert_int_equal(read_steps(passes, s, &batch, rest), s);
        dlrm_position position = dlrm_passes_position(passes);
        dlrm_passes_end(passes);
        dlrm_passes_close(passes);
        assert_works(dlrm_passes_open(&resumed, desc, &error));
        assert_works(dlrm_passes_go_on(resumed, &position, &error));
        assert_int_equal(read_steps(resumed, STEPS, &batch, rest), all_steps - s);
        assert_memory_equal(rest, steps + s, (all_steps - s) * sizeof *rest);
        dlrm_passes_close(resumed);
    }
    clicks_batch_close(&batch);
}

static void test_passes(void **state) {
    (void)state;
    uint8_t parts[SAMPLES];
    dlrm_source source = {.log = log_of_all, .first = FIRST, .end = FIRST + SAMPLES};
    static const uint32_t shuffles[] = {0, 64, 150, 1000};
    for (int s = 0; s < 4; s++)
        for (uint32_t devices = 1; devices <= MOST_DEVICES; devices++)
            for (int placed = 0; placed < 2; placed++) {
                for (uint32_t i = 0; i < SAMPLES; i++) parts[i] = (uint8_t)((i * 7 + i / 40) % devices);
                dlrm_passes_desc desc = {.source = &source,
                                         .parts = placed ? parts : NULL,
                                         .samples = SAMPLES,
                                         .epochs = 3,
                                         .devices = devices,
                                         .batch = 30,
                                         .shuffle = shuffles[s],
                                         .seed = 4};
                check_passes(&desc);
            }
    source.end = UINT64_MAX, source.first = FIRST + 30; /* a log whose end is not known */
    clicks_shuffle *shuffle;
    clicks_shuffle_desc desc = {.log = log_of_all, .first = FIRST + 30, .end = UINT64_MAX, .block = 90};
    clicks_batch batch;
    assert_works(clicks_batch_open(&batch, log_of_all, 600, &error));
    assert_works(clicks_shuffle_open(&shuffle, &desc, &error));
    assert_works(clicks_shuffle_begin(shuffle, 1, 0, &error));
    assert_works(clicks_shuffle_read(shuffle, 600, &batch, &error));
    assert_int_equal(batch.n, SAMPLES);
    clicks_shuffle_close(shuffle);
    clicks_batch_close(&batch);
}

static void test_other_parts(void **state) {
    (void)state;
    uint8_t parts[SAMPLES] = {0};
    dlrm_source source = {.log = log_of_all, .first = FIRST, .end = FIRST + SAMPLES};
    dlrm_passes_desc desc = {
        .source = &source, .parts = parts, .samples = SAMPLES, .epochs = 1, .devices = 1, .batch = 30, .shuffle = 64};
    dlrm_passes *passes;
    dlrm_position position = {.epoch = 1, .pass = 31, .in_pass = 1}; /* no step ends there */
    assert_works(dlrm_passes_open(&passes, &desc, &error));
    assert_int_equal(dlrm_passes_go_on(passes, &position, &error), -1);
    assert_non_null(strstr(error.text, "no step ends behind 31 of 500 samples"));
    dlrm_passes_close(passes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_order_of_the_log),
        cmocka_unit_test(test_from_every_sample),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_other_parts),
    };
    return cmocka_run_group_tests(tests, open_log, close_log);
}
