/* test_partition.c - dealing samples from a source that is read block by block: the same parts with any number of
 * threads, what the methods find, parts of a file, and everything that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include "trainers/common/partition.h"
#include "tests/scratch.h"
#include "tests/seed.h"
#include "tests/support.h"

static program_error error;
static uint64_t seed;

/* ---- A source in memory --------------------------------------------------------------------------------- */

enum { WIDTH = 6 };

typedef struct trace {
    uint64_t rows, n, block, at;
    uint64_t *keys, *offsets;
    int ragged;
    uint64_t rewinds, changes_at, n_then; /* at this rewind, from 1, the samples change */
    uint64_t *keys_then, *offsets_then;   /* NULL: these do not */
    uint64_t fails_at;                    /* this rewind fails */
    atomic_int *stops;                    /* set in the middle of a pass */
} trace;

static int trace_rewind(void *of, program_error *why) {
    trace *t = of;
    t->at = 0, t->rewinds++;
    if (t->rewinds == t->changes_at) t->n = t->n_then;
    if (t->rewinds == t->changes_at && t->keys_then) t->keys = t->keys_then;
    if (t->rewinds == t->changes_at && t->offsets_then) free(t->offsets), t->offsets = t->offsets_then;
    return t->rewinds == t->fails_at ? program_fail(why, "the disk is gone") : 0;
}

static int trace_read(void *of, frugal_place_samples *block, program_error *why) {
    trace *t = of;
    (void)why;
    uint64_t n = t->n - t->at < t->block ? t->n - t->at : t->block;
    *block = (frugal_place_samples){.keys = t->keys, .offsets = t->offsets + t->at, .n = n};
    if (!t->ragged) *block = (frugal_place_samples){.keys = t->keys + t->at * WIDTH, .n = n, .width = WIDTH};
    t->at += n;
    if (t->stops && t->at > t->n / 2) *t->stops = 2;
    return 0;
}

static partition_source source_of(trace *t) {
    return (partition_source){t, trace_rewind, trace_read};
}

/* With 80% chance a key is of the sample's community, one of 8, else any. */
static trace open_trace(uint64_t rows, uint64_t n, uint64_t block, int ragged) {
    test_random r = {.seed = seed};
    trace t = {.rows = rows, .n = n, .block = block, .ragged = ragged};
    t.keys = calloc((n + 1) * WIDTH, 8), t.offsets = calloc(n + 2, 8);
    uint64_t at = 0;
    for (uint64_t s = 0; s <= n; s++) { /* one more, for tests in which the source grows */
        uint64_t community = test_below(&r, 8), own = ragged ? test_below(&r, WIDTH + 1) : WIDTH;
        for (uint64_t i = 0; i < own; i++)
            t.keys[at++] = test_chance(&r, 80) ? community + 8 * test_below(&r, rows / 8) : test_below(&r, rows);
        t.offsets[s + 1] = at;
    }
    return t;
}

static void close_trace(trace *t) {
    free(t->keys);
    free(t->offsets);
}

static partition made(trace *t, partition_desc desc) {
    partition p;
    partition_source source = source_of(t);
    desc.rows = t->rows;
    if (partition_make(&p, &desc, &source, &error)) fail_msg("%s", error.text);
    assert_int_equal(p.samples, t->n);
    return p;
}

/* The counts are those of the parts: another frugal_place that takes the parts has the same report and homes. */
static void compare(const partition *p, trace *t, const partition_desc *desc) {
    frugal_place_desc same = {.rows = t->rows, .parts = desc->devices, .clusters = desc->devices};
    frugal_place *place = frugal_place_init(malloc(frugal_place_footprint(&same)), &same);
    frugal_place_samples all = {.keys = t->keys, .n = t->n, .width = WIDTH};
    if (t->ragged) all.offsets = t->offsets;
    assert_int_equal(frugal_place_load(place, &all, p->parts), FRUGAL_PLACE_OK);
    frugal_place_report a = frugal_place_get_report(place, 9), b = frugal_place_get_report(p->place, 9);
    assert_memory_equal(&a, &b, sizeof a);
    for (uint64_t x = 0; x < t->rows; x++)
        assert_int_equal(frugal_place_home(place, x), frugal_place_home(p->place, x));
    free(place);
}

/* ---- What is made --------------------------------------------------------------------------------------- */

static void the_same_parts_with_any_threads(void **state) {
    (void)state;
    for (int ragged = 0; ragged < 2; ragged++)
        for (int method = PARTITION_TWO_LEVEL; method <= PARTITION_RANDOM; method++) {
            trace t = open_trace(800, 9000 / SHORTER, 700, ragged);
            partition_desc desc = {.devices = 4, .method = (partition_method)method, .seed = 5, .threads = 1};
            partition first = made(&t, desc);
            compare(&first, &t, &desc);
            for (uint32_t threads = 2; threads < 10; threads += 3) {
                desc.threads = threads;
                partition again = made(&t, desc);
                assert_memory_equal(first.parts, again.parts, t.n);
                assert_memory_equal(first.moved, again.moved, sizeof first.moved);
                partition_free(&again);
            }
            partition_free(&first);
            close_trace(&t);
        }
}

/* Threads that cannot be started leave their pieces to the thread that started the others. */
static atomic_int threads_to_start = INT_MAX;
int failing_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *of);
int failing_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *of) {
    return threads_to_start-- > 0 ? pthread_create(id, attributes, run, of) : EAGAIN;
}

static void threads_may_fail(void **state) {
    (void)state;
    trace t = open_trace(300, 1000, 100, 1);
    partition first = made(&t, (partition_desc){.devices = 3, .threads = 5});
    for (int start = 0; start < 12; start += 3) {
        threads_to_start = start;
        partition again = made(&t, (partition_desc){.devices = 3, .threads = 5});
        assert_true(threads_to_start < 0);
        assert_memory_equal(first.parts, again.parts, t.n);
        partition_free(&again);
    }
    threads_to_start = INT_MAX;
    partition_free(&first);
    close_trace(&t);
}

/* As the opening comment of frugal_place.h tells callers to do it. */
static void the_calls_are_those_of_the_header(void **state) {
    (void)state;
    trace t = open_trace(400, 3000, 3000, 0);
    partition p = made(&t, (partition_desc){.devices = 3, .slack = .05, .threads = 3});
    uint8_t *parts = malloc(t.n), *to = malloc(t.n);
    frugal_place_desc desc = {.rows = t.rows, .parts = 3};
    frugal_place *place = frugal_place_init(malloc(frugal_place_footprint(&desc)), &desc);
    frugal_place_samples all = {.keys = t.keys, .n = t.n, .width = WIDTH};
    assert_int_equal(frugal_place_count(place, &all), FRUGAL_PLACE_OK);
    assert_int_equal(frugal_place_stream(place, &all, parts), FRUGAL_PLACE_OK);
    assert_int_equal(p.passes, 4);
    for (uint32_t pass = 0; pass < 4; pass++) {
        uint64_t moved;
        assert_int_equal(frugal_place_propose(place, &all, parts, to), FRUGAL_PLACE_OK);
        assert_int_equal(frugal_place_move(place, &all, to, parts, &moved), FRUGAL_PLACE_OK);
        assert_int_equal(moved, p.moved[pass]);
        if (pass == 0) assert_int_equal(frugal_place_pack(place, parts, t.n), FRUGAL_PLACE_OK);
    }
    assert_memory_equal(parts, p.parts, t.n);
    free(parts), free(to), free(place);
    partition_free(&p);
    close_trace(&t);
}

static double share_of(trace *t, partition_method method, double *balance) {
    partition p = made(t, (partition_desc){.devices = 8, .method = method, .seed = 3, .threads = 2});
    frugal_place_report report = frugal_place_get_report(p.place, 0);
    *balance = report.balance;
    partition_free(&p);
    return report.local_share;
}

/* Of 8 planted communities .825 of all touches are local, if they are found. */
static void planted_communities_are_found(void **state) {
    (void)state;
    trace t = open_trace(8000 / SHORTER, 60000 / SHORTER, 20000 / SHORTER, 0);
    double balance;
    assert_true(share_of(&t, PARTITION_TWO_LEVEL, &balance) >= .80);
    assert_true(balance <= (SHORTER == 1 ? 1.05 : 1.055));
    double at_random = share_of(&t, PARTITION_RANDOM, &balance);
    assert_true(at_random < .25 && balance < 1.001);
    double bicut = share_of(&t, PARTITION_BICUT, &balance);
    double het_gmp = share_of(&t, PARTITION_HET_GMP, &balance);
    assert_true(at_random < bicut && bicut < het_gmp);
    assert_true(balance < 1.2);
    close_trace(&t);
}

static double cost_of(const trace *t, const partition *p, const double *weights) {
    double cost = 0;
    for (uint64_t i = 0; i < t->n * WIDTH; i++) {
        uint32_t from = p->parts[i / WIDTH], to = frugal_place_home(p->place, t->keys[i]);
        if (from != to) cost += weights[from * 4 + to];
    }
    return cost;
}

/* Two machines of two devices each: a touch costs more between machines. */
static void weights_of_pairs_matter(void **state) {
    (void)state;
    trace t = open_trace(400, 8000, 1000, 0);
    double weights[16];
    for (int i = 0; i < 16; i++) weights[i] = i / 8 == i % 4 / 2 ? 1 : 8;
    partition_desc desc = {.devices = 4, .method = PARTITION_HET_GMP, .passes = 8};
    partition plain = made(&t, desc), from = made(&t, (partition_desc){.devices = 4, .method = PARTITION_RANDOM});
    desc.weights = weights;
    partition weighted = made(&t, desc);
    assert_int_equal(weighted.passes, 8);
    assert_true(cost_of(&t, &weighted, weights) < .8 * cost_of(&t, &from, weights));
    assert_memory_not_equal(plain.parts, weighted.parts, t.n);
    weights[1] = -1;
    partition_free(&weighted);
    partition_source source = source_of(&t);
    desc.rows = t.rows;
    assert_int_equal(partition_make(&weighted, &desc, &source, &error), -1);
    assert_non_null(strstr(error.text, "negative"));
    partition_free(&plain);
    partition_free(&from);
    close_trace(&t);
}

/* ---- Parts of a file ------------------------------------------------------------------------------------ */

static void parts_of_a_file_are_taken(void **state) {
    (void)state;
    trace t = open_trace(300, 2000, 300, 1);
    partition_desc desc = {.rows = 300, .devices = 5};
    partition p = made(&t, desc), q;
    partition_source source = source_of(&t);
    scratch_write(scratch_path("parts"), p.parts, p.samples);
    assert_int_equal(partition_load(&q, &desc, &source, scratch_path("parts"), &error), 0);
    assert_memory_equal(p.parts, q.parts, p.samples);
    assert_int_equal(q.samples, p.samples);
    compare(&q, &t, &desc);
    partition_free(&p);
    partition_free(&q);
    close_trace(&t);
}

static void refuses_file(trace *t, const void *bytes, size_t n, const char *message) {
    partition_desc desc = {.rows = t->rows, .devices = 5};
    partition_source source = source_of(t);
    partition p;
    if (bytes) scratch_write(scratch_path("parts"), bytes, n);
    assert_int_equal(partition_load(&p, &desc, &source, scratch_path("parts"), &error), -1);
    if (!strstr(error.text, message)) fail_msg("'%s' is not in '%s'", message, error.text);
    assert_null(p.parts);
    assert_null(p.place);
}

static void other_files_are_refused(void **state) {
    (void)state;
    trace t = open_trace(300, 700, 300, 0);
    uint8_t bytes[701] = {0};
    refuses_file(&t, bytes, 701, "parts has 701 bytes, and the data 700 samples; must be a byte a sample");
    refuses_file(&t, bytes, 699, "has 699 bytes, and the data 700 samples");
    refuses_file(&t, bytes, 0, "has 0 bytes, and the data 700 samples");
    bytes[456] = 5;
    refuses_file(&t, bytes, 700, "sample 456 is in part 5; must be below 5, the devices");
    bytes[456] = 255;
    refuses_file(&t, bytes, 700, "sample 456 is in part 255; must be below 5");
    refuses_file(&t, "\x93NUMPY\x01", 7, "it is a .npy file: write array.astype('uint8')");
    refuses_file(&t, "3\n0\n1\n", 6, "it is text: write each number as one byte");
    t.keys[333] = 300;
    bytes[456] = 0;
    refuses_file(&t, bytes, 700, "sample 55 has row 300; there are 300 rows");
    assert_int_equal(unlink(scratch_path("parts")), 0);
    refuses_file(&t, NULL, 0, "No such file");
    assert_int_equal(mkfifo(scratch_path("parts"), 0600), 0); /* nobody writes to it */
    refuses_file(&t, NULL, 0, "it is no regular file");
    assert_int_equal(unlink(scratch_path("parts")), 0);
    close_trace(&t);
}

/* A file that cannot be parts is refused at once; one of another size as soon as the data is counted. */
static void parts_are_looked_at_first(void **state) {
    (void)state;
    trace t = open_trace(300, 700, 300, 0);
    uint8_t bytes[701] = {0};
    partition_desc desc = {.rows = t.rows, .devices = 5, .method = PARTITION_RANDOM, .fits = scratch_path("parts")};
    partition_source source = source_of(&t);
    partition p;
    for (size_t n = 699; n <= 701; n++) {
        scratch_write(scratch_path("parts"), bytes, n);
        assert_int_equal(partition_look(scratch_path("parts"), 5, &error), 0);
        assert_int_equal(partition_make(&p, &desc, &source, &error), n == 700 ? 0 : -1);
        if (n != 700) assert_non_null(strstr(error.text, "bytes, and the data 700 samples"));
        partition_free(&p);
    }
    bytes[3] = 5;
    scratch_write(scratch_path("parts"), bytes, 700);
    assert_int_equal(partition_look(scratch_path("parts"), 5, &error), -1);
    assert_non_null(strstr(error.text, "sample 3 is in part 5; must be below 5, the devices"));
    assert_int_equal(partition_look(scratch_path("none"), 5, &error), -1);
    assert_non_null(strstr(error.text, "No such file"));
    close_trace(&t);
}

/* ---- What is refused ------------------------------------------------------------------------------------ */

static void refuses(trace *t, partition_desc desc, const char *message) {
    partition_source source = source_of(t);
    partition p;
    t->rewinds = 0;
    assert_int_equal(partition_make(&p, &desc, &source, &error), -1);
    if (!strstr(error.text, message)) fail_msg("'%s' is not in '%s'", message, error.text);
    assert_true(!p.parts && !p.place);
}

static void descriptors_have_limits(void **state) {
    (void)state;
    trace t = open_trace(300, 50, 10, 0);
    refuses(&t, (partition_desc){.rows = 300}, "0 devices to deal samples to; must be 1 to 256");
    refuses(&t, (partition_desc){.rows = 300, .devices = 257}, "257 devices");
    refuses(&t, (partition_desc){.devices = 2}, "no rows to place");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .machines = 3},
            "4 devices cannot be spread evenly over 3 machines");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .machines = 8}, "over 8 machines");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .clusters = 3},
            "3 clusters for 4 devices; must be 4 to 256");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .clusters = 257}, "257 clusters");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .slack = -1}, "a slack of -1; must be 0 to 256");
    refuses(&t, (partition_desc){.rows = UINT64_MAX, .devices = 4}, "18446744073709551615 rows are too many");
#ifndef FRUGAL_SANITIZED /* it would end the test */
    refuses(&t, (partition_desc){.rows = UINT64_C(1) << 50, .devices = 4}, "out of memory");
#endif
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .passes = 65}, "65 passes");
    refuses(&t, (partition_desc){.rows = 300, .devices = 4, .threads = 257}, "257 threads; at most 64 and 256");
    assert_int_equal(t.rewinds, 0);
    refuses(&t, (partition_desc){.rows = 300, .devices = 51}, "50 samples for 51 devices; give fewer devices");
    assert_int_equal(partition_bytes(&(partition_desc){.devices = 2}), 0);
    assert_true(partition_bytes(&(partition_desc){.rows = 1000, .devices = 2, .method = PARTITION_HET_GMP}) >
                partition_bytes(&(partition_desc){.rows = 1000, .devices = 2, .method = PARTITION_RANDOM}));
    close_trace(&t);
}

static void wrong_sources_are_refused(void **state) {
    (void)state;
    for (int method = PARTITION_TWO_LEVEL; method <= PARTITION_RANDOM; method++)
        for (int ragged = 0; ragged < 2; ragged++) {
            trace t = open_trace(300, 400, 90, ragged);
            partition_desc desc = {.rows = 300, .devices = 3, .method = (partition_method)method};
            for (t.fails_at = 1; t.fails_at < 3; t.fails_at++) refuses(&t, desc, "the disk is gone");
            t.fails_at = 0;
            t.changes_at = 2, t.n_then = 399;
            refuses(&t, desc, "had 400 samples when it was first read, and now has 399");
            t.n = 400, t.n_then = 401;
            refuses(&t, desc, "had 400 samples when it was first read, and now has 401");
            t.n = 400, t.changes_at = 0;
            uint64_t old = t.keys[500], sample = 500 / WIDTH;
            char message[80];
            while (ragged && t.offsets[sample + 1] <= 500) sample++;
            snprintf(message, sizeof message, "sample %d has row 12345; there are 300 rows", (int)sample);
            t.keys[500] = 12345;
            refuses(&t, desc, message);
            t.keys[500] = old;
            t.block = PARTITION_BLOCK + 1, t.n = PARTITION_BLOCK + 1;
            refuses(&t, desc, "a block of 65537 samples; at most 65536");
            close_trace(&t);
        }
}

/* Other keys in a later pass, as many as before. */
static void samples_that_change_are_refused(void **state) {
    (void)state;
    trace t = open_trace(300, 400, 90, 0);
    uint64_t *first = t.keys, *then = calloc(401 * WIDTH, 8); /* all touches are of one row then */
    partition_desc desc = {.rows = 300, .devices = 3};
    t.n_then = 400, t.keys_then = then;
    for (t.changes_at = 3; t.changes_at < 5; t.changes_at++) {
        t.keys = first;
        refuses(&t, desc, "is not the one that was counted");
    }
    free(first);
    t.keys = then, t.ragged = 1, t.changes_at = 2;
    t.offsets_then = calloc(402, 8); /* no touches */
    refuses(&t, desc, "the data changed while it was read");
    t.changes_at = 0;
    t.offsets[5] = t.offsets[4] - 1;
    refuses(&t, desc, "an offset is below the one before it");
    close_trace(&t);
}

static void a_signal_ends_it(void **state) {
    (void)state;
    trace t = open_trace(300, 400, 90, 0);
    atomic_int stop = 0;
    t.stops = &stop;
    refuses(&t, (partition_desc){.rows = 300, .devices = 3, .stop = &stop}, "ended by ");
    stop = 0;
    t.stops = NULL;
    partition p = made(&t, (partition_desc){.devices = 3, .stop = &stop});
    partition_free(&p);
    close_trace(&t);
}

static int end(void **state) {
    (void)state;
    scratch_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_parts_with_any_threads),   cmocka_unit_test(threads_may_fail),
        cmocka_unit_test(the_calls_are_those_of_the_header), cmocka_unit_test(planted_communities_are_found),
        cmocka_unit_test(weights_of_pairs_matter),           cmocka_unit_test(parts_of_a_file_are_taken),
        cmocka_unit_test(parts_are_looked_at_first),         cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(descriptors_have_limits),           cmocka_unit_test(wrong_sources_are_refused),
        cmocka_unit_test(samples_that_change_are_refused),   cmocka_unit_test(a_signal_ends_it),
    };
    seed = test_seed("test_partition", 11);
    return cmocka_run_group_tests_name("test_partition", tests, NULL, end);
}
