/* test_sources.c - graphs and click logs as sources of a partition: blocks, keys over all tables, passes that are the
 * same, and folders that change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "trainers/clicks/source.h"
#include "trainers/kge/source.h"
#include "folder.h"
#include "tests/support.h"

static program_error error;

static void put(const char *name, const char *text) {
    put_text(in_folder(name), text);
}

static frugal_place_samples read_block(const partition_source *source) {
    frugal_place_samples block = {0};
    if (source->read(source->of, &block, &error)) fail_msg("%s", error.text);
    return block;
}

/* ---- Click logs ----------------------------------------------------------------------------------------- */

enum { FEATURES = 3, SAMPLES = PARTITION_BLOCK + 1700 };

static clicks *open_log(uint32_t features, uint64_t rows) {
    clicks_settings settings = {
        .format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = clicks_generator_default()};
    clicks *log;
    settings.generator.samples = SAMPLES, settings.generator.features = features, settings.generator.numbers = 0;
    settings.generator.rows = rows;
    if (clicks_open(&log, &settings, &error)) fail_msg("%s", error.text);
    return log;
}

/* Samples [first, end) as the reader gives them: key k of sample s is its id, behind the tables before it. */
static void compare_log(const clicks *log, uint64_t rows, uint64_t first, uint64_t end) {
    clicks_source source;
    clicks_reader *reader;
    clicks_batch batch;
    assert_int_equal(clicks_source_open(&source, log, NULL, first, end, &error), 0);
    assert_int_equal(source.rows, rows * FEATURES);
    partition_source of = clicks_source_of(&source);
    for (int pass = 0; pass < 2; pass++) {
        uint64_t n = 0, samples = (end < SAMPLES ? end : SAMPLES) - first;
        assert_int_equal(clicks_batch_open(&batch, log, SAMPLES, &error), 0);
        assert_int_equal(clicks_reader_open(&reader, log, NULL, first, end, &error), 0);
        assert_int_equal(clicks_reader_read(reader, SAMPLES, &batch, &error), 0);
        assert_int_equal(of.rewind(of.of, &error), 0);
        for (frugal_place_samples block; (block = read_block(&of)).n; n += block.n) {
            assert_true(block.width == FEATURES && !block.offsets);
            assert_int_equal(block.n, samples - n < PARTITION_BLOCK ? samples - n : PARTITION_BLOCK);
            for (uint64_t s = 0; s < block.n; s++)
                for (uint64_t k = 0; k < FEATURES; k++)
                    assert_true(block.keys[s * FEATURES + k] == batch.ids[k * batch.room + n + s] + k * rows);
        }
        assert_int_equal(n, samples);
        assert_int_equal(read_block(&of).n, 0); /* the end stays the end */
        clicks_reader_close(reader);
        clicks_batch_close(&batch);
    }
    clicks_source_close(&source);
}

static void logs_are_keys_over_all_tables(void **state) {
    (void)state;
    clicks *log = open_log(FEATURES, 500);
    compare_log(log, 500, 0, UINT64_MAX);
    compare_log(log, 500, 900, 2500);
    clicks_close(log);
}

/* A block of many features has fewer samples: its keys take 32 MiB at most. */
static void blocks_of_many_features_are_shorter(void **state) {
    (void)state;
    clicks *log = open_log(1000, 10);
    clicks_source source;
    assert_int_equal(clicks_source_open(&source, log, NULL, 0, 4300, &error), 0);
    partition_source of = clicks_source_of(&source);
    assert_int_equal(of.rewind(of.of, &error), 0);
#ifndef FRUGAL_SANITIZED /* it takes long */
    assert_int_equal(read_block(&of).n, (1 << 22) / 1000);
    assert_int_equal(read_block(&of).n, 4300 - (1 << 22) / 1000);
#endif
    assert_int_equal(source.block, (1 << 22) / 1000);
    clicks_source_close(&source);
    clicks_close(log);
}

/* ---- Graphs --------------------------------------------------------------------------------------------- */

static void expect_keys(const partition_source *source, const uint64_t *keys, uint64_t triples) {
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(source->rewind(source->of, &error), 0);
        frugal_place_samples block = read_block(source);
        assert_true(block.n == triples && block.width == 3);
        assert_memory_equal(block.keys, keys, triples * 3 * sizeof *keys);
        assert_int_equal(read_block(source).n, 0);
    }
}

/* Entities of all splits come before the relations. */
static void graphs_are_one_key_space(void **state) {
    (void)state;
    const uint64_t keys[] = {0, 4, 1, 1, 5, 0, 1, 4, 1}, numbered[] = {2, 4, 1, 0, 3, 0};
    kge_source source;
    put("train.txt", "a\tr\tb\nb\tq\ta\nb\tr\tb\n");
    put("valid.txt", "c\tq\td\n");
    if (kge_source_open(&source, folder, &error)) fail_msg("%s", error.text);
    assert_true(source.rows == 6 && source.triples[0] == 3 && source.triples[1] == 1 && source.triples[2] == 0);
    partition_source of = kge_source_of(&source);
    expect_keys(&of, keys, 3);
    kge_source_close(&source);
    put("entity2id.txt", "3\nx\t0\ny\t1\nz\t2\n");
    put("relation2id.txt", "2\nr\t0\nq\t1\n");
    put("train2id.txt", "2\n2 1 1\n0 0 0\n");
    if (kge_source_open(&source, folder, &error)) fail_msg("%s", error.text);
    of = kge_source_of(&source);
    expect_keys(&of, numbered, 2);
    kge_source_close(&source);
}

static void graphs_that_are_none_or_change(void **state) {
    (void)state;
    kge_source source;
    frugal_place_samples block;
    assert_int_equal(kge_source_open(&source, folder, &error), -1); /* an empty folder */
    put("train.txt", "");
    assert_int_equal(kge_source_open(&source, folder, &error), -1);
    assert_non_null(strstr(error.text, "no triple to train on"));
    put("train.txt", "a\tr\tb\n");
    put("test.txt", "a\tr\n");
    assert_int_equal(kge_source_open(&source, folder, &error), -1);
    assert_non_null(strstr(error.text, "test.txt:1"));
    put("test.txt", "");
    assert_int_equal(kge_source_open(&source, folder, &error), 0);
    partition_source of = kge_source_of(&source);
    put("train.txt", "a\tr\tb\na\tr\tnew\n");
    assert_int_equal(of.rewind(of.of, &error), 0);
    assert_int_equal(of.read(of.of, &block, &error), -1);
    assert_non_null(strstr(error.text, "names now that were not there"));
    put("train.txt", "nonsense\n");
    assert_int_equal(of.rewind(of.of, &error), 0);
    assert_int_equal(of.read(of.of, &block, &error), -1);
    kge_source_close(&source);
}

static int make_folder(void **state) {
    (void)state;
    return folder_make("test_sources");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_are_keys_over_all_tables),
        cmocka_unit_test(blocks_of_many_features_are_shorter),
        cmocka_unit_test_setup_teardown(graphs_are_one_key_space, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(graphs_that_are_none_or_change, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("test_sources", tests, NULL, NULL);
}
