/* test_training.c - trainers/common/training.h: which failure is reported, and how; a thread for each part, and what
 * happens when one cannot be started; the clock; rows. report.h: the numbers of a report, and its words. */
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/common/report.h"
#include "trainers/common/training.h"
#include "frugal_save.h"

/* training.c calls this in the place of pthread_create. It starts `threads_left` threads, then none. */
static int threads_left = INT32_MAX;
int failing_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int failing_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    return threads_left-- > 0 ? pthread_create(id, attributes, run, argument) : 11;
}

/* In the place of the C library's, by which Frugal reads files. It reads `reads_left` times, then never again. */
static atomic_long reads_left = LONG_MAX;
ssize_t pread(int file, void *bytes, size_t n, off_t at) {
    if (atomic_fetch_sub(&reads_left, 1) > 0) return syscall(SYS_pread64, file, bytes, n, at);
    errno = EIO;
    return -1;
}

/* ---- Failures ----------------------------------------------------------------------------------------- */

static void test_words(void **state) {
    (void)state;
    frugal *f;
    program_error error;
    frugal_desc desc = {.devices = 100000};
    frugal_status status = frugal_open(&desc, &f);
    assert_true(status != FRUGAL_OK);
    assert_int_equal(training_fail("cannot open the tables", &error), -1);
    char wanted[sizeof error.text];
    snprintf(wanted, sizeof wanted, "cannot open the tables: %s", frugal_message());
    assert_string_equal(error.text, wanted);
    assert_true(strlen(frugal_message()) > 0);

    training_end end = {0};
    training_note_end(&end, FRUGAL_OK);
    assert_int_equal(end.status, FRUGAL_OK);
    assert_string_equal(end.error.text, "");
    training_note_end(&end, status);
    assert_int_equal(end.status, status);
    assert_string_equal(end.error.text, frugal_message());

    training_end own = {.error = {"the GPU is on fire"}};
    training_note_end(&own, FRUGAL_ERR_CUDA);
    assert_int_equal(own.status, FRUGAL_ERR_CUDA);
    assert_string_equal(own.error.text, "the GPU is on fire");
    frugal_close(f);
}

/* A thread that another one stopped need not have called Frugal at all. */
static void *be_stopped(void *end) {
    training_note_end(end, FRUGAL_STOPPED);
    return NULL;
}
static void test_words_of_a_stop(void **state) {
    (void)state;
    training_end end = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, be_stopped, &end), 0);
    pthread_join(thread, NULL);
    assert_string_equal(end.error.text, frugal_strerror(FRUGAL_STOPPED));
}

static void test_which_failure(void **state) {
    (void)state;
    enum { O = FRUGAL_OK, S = FRUGAL_STOPPED, A = FRUGAL_ERR_MEMORY, B = FRUGAL_ERR_ORDER };
    static const struct {
        int status[4], told; /* -1: none */
    } cases[] = {
        {{O, O, O, O}, -1}, {{O, A, O, O}, 1}, {{A, B, O, O}, 0}, {{S, O, B, A}, 2},
        {{O, S, S, O}, 1},  {{S, S, S, A}, 3}, {{O, A, S, B}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        training_end end[4] = {0};
        for (int k = 0; k < 4; k++) end[k].status = (frugal_status)cases[i].status[k];
        const training_end *told = training_failure(end, 4);
        assert_int_equal(told ? (int)(told - end) : -1, cases[i].told);
    }
    assert_null(training_failure(NULL, 0));
}

/* Behind the devices are other threads, which say themselves what they are. */
static void test_what_failed(void **state) {
    (void)state;
    program_error error = {.text = "untouched"};
    training_end end[3] = {0};
    assert_int_equal(training_failed(end, 3, 2, &error), 0);
    assert_string_equal(error.text, "untouched");
    end[2] = (training_end){FRUGAL_ERR_FILE, {"line 7 is no sample"}};
    assert_int_equal(training_failed(end, 3, 2, &error), -1);
    assert_string_equal(error.text, "line 7 is no sample");
    end[1] = (training_end){FRUGAL_ERR_MEMORY, {"no memory"}};
    assert_int_equal(training_failed(end, 3, 2, &error), -1);
    assert_string_equal(error.text, "device 1 failed at training: no memory");
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

enum { PARTS = 5 };
typedef struct crew {
    atomic_int calls[PARTS], here, given_up;
    int wait_for; /* each part waits until so many are here, or all is given up */
} crew;

static void work(void *argument, uint32_t part) {
    crew *c = argument;
    atomic_fetch_add(&c->calls[part], 1);
    atomic_fetch_add(&c->here, 1);
    while (atomic_load(&c->here) < c->wait_for && !atomic_load(&c->given_up)) usleep(100);
}
static void give_up(void *argument) {
    atomic_fetch_add(&((crew *)argument)->given_up, 1);
}

static void test_threads(void **state) {
    (void)state;
    program_error error;
    crew c = {.wait_for = PARTS}; /* so they run at the same time */
    assert_int_equal(training_run(PARTS, work, give_up, &c, &error), 0);
    for (int i = 0; i < PARTS; i++) assert_int_equal(c.calls[i], 1);
    assert_int_equal(c.given_up, 0);
}

static void test_too_few_threads(void **state) {
    (void)state;
    for (int most = 0; most < PARTS; most++) {
        program_error error;
        crew c = {.wait_for = PARTS};
        threads_left = most;
        int status = training_run(PARTS, work, give_up, &c, &error);
        threads_left = INT32_MAX;
        assert_int_equal(status, -1);
        assert_string_equal(error.text, "cannot start 5 threads; use fewer --devices");
        assert_int_equal(c.given_up, 1);
        for (int i = 0; i < PARTS; i++) assert_int_equal(c.calls[i], i < most);
    }
}

/* ---- The clock ---------------------------------------------------------------------------------------- */

static void test_clock(void **state) {
    (void)state;
    training_clock clock = {0};
    double before = 0;
    for (int run = 0; run < 3; run++) {
        double from = program_now();
        training_start(&clock);
        double elapsed = training_elapsed(&clock);
        assert_true(elapsed >= before && elapsed <= before + program_now() - from + 1e-6);
        usleep(2000);
        training_pause(&clock);
        assert_true(clock.before > elapsed && clock.before <= before + program_now() - from + 1e-6);
        before = clock.before;
        usleep(2000); /* a pause is not counted: the next start is later */
    }
}

/* ---- Reports ------------------------------------------------------------------------------------------ */

static void test_rates(void **state) {
    (void)state;
    training_sums from = {
        .step = 10, .samples = 1000, .losses = 20, .seconds = 2, .loss = 5, .stall = 1, .hits = 30, .misses = 70};
    training_sums to = {
        .step = 30, .samples = 5000, .losses = 60, .seconds = 4, .loss = 15, .stall = 2, .hits = 90, .misses = 90};
    training_report rates = training_report_between(&from, &to, 2);
    assert_true(rates.samples_per_s == 2000 && rates.loss == 0.25 && rates.stall == 0.25 && rates.hit_rate == 0.75);
    rates = training_report_between(&(training_sums){0}, &to, 2);
    assert_true(rates.samples_per_s == 1250 && rates.loss == 0.25 && rates.stall == 0.25 && rates.hit_rate == 0.5);
    rates = training_report_between(&to, &to, 2); /* nothing has happened since */
    assert_true(rates.samples_per_s == 0 && rates.loss == 0 && rates.stall == 0 && rates.hit_rate == 0);
}

static training_report told;
static void note(void *user, const training_report *report) {
    (*(int *)user)++;
    told = *report;
}

/* A report is of what came since the one before, and none comes twice for a step. */
static void test_reporter(void **state) {
    (void)state;
    int calls = 0;
    training_reporter reporter = {.function = note, .user = &calls, .seconds = 1};
    training_sums now = {.step = 10, .samples = 100, .seconds = 2, .losses = 10, .loss = 5};
    assert_true(!training_report_is_due(&reporter, 10, 0.5) && training_report_is_due(&reporter, 10, 2));
    assert_true(!training_report_is_due(&reporter, 0, 2));
    training_tell(&reporter, &now, 2, 0.25);
    assert_true(calls == 1 && told.step == 10 && told.samples_per_s == 50 && told.loss == 0.5 && told.progress == 0.25);
    assert_true(!training_report_is_due(&reporter, 10, 9) && !training_report_is_due(&reporter, 11, 2.5));
    now = (training_sums){.step = 20, .samples = 400, .seconds = 4, .losses = 20, .loss = 25};
    training_tell(&reporter, &now, 2, 0.5);
    assert_true(calls == 2 && told.step == 20 && told.samples_per_s == 150 && told.loss == 2);
    reporter.function = NULL;
    assert_false(training_report_is_due(&reporter, 30, 9));
}

static void expect_line(const training_report *report, uint64_t steps, const char *wanted) {
    char text[192];
    training_report_line(report, "triples", steps, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void test_words_of_reports(void **state) {
    (void)state;
    char *text = NULL;
    size_t size;
    training_report report = {.step = 10,
                              .samples = 500,
                              .seconds = 2,
                              .samples_per_s = 250,
                              .loss = 1.5,
                              .stall = 0.25,
                              .hit_rate = 0.5,
                              .progress = 0.5};
    expect_line(&report, 20, "step 10/20  2 s left  250 triples/s  loss 1.5000  stall 25.0%  hits 50.0%");
    report.progress = 0;
    expect_line(&report, 0, "step 10  250 triples/s  loss 1.5000  stall 25.0%  hits 50.0%");
    FILE *json = open_memstream(&text, &size);
    training_report_json(&report, "triples", json);
    training_json_end(json);
    report.loss = NAN;
    training_report_json(&report, "samples", json);
    training_json_end(json);
    fclose(json);
    assert_string_equal(text, "{\"step\": 10, \"triples\": 500, \"seconds\": 2.000, \"triples_per_s\": 250, "
                              "\"loss\": 1.5, \"stall\": 0.2500, \"hit_rate\": 0.5000}\n"
                              "{\"step\": 10, \"samples\": 500, \"seconds\": 2.000, \"samples_per_s\": 250, "
                              "\"loss\": null, \"stall\": 0.2500, \"hit_rate\": 0.5000}\n");
    free(text);
    training_report_json(&report, "samples", NULL); /* no file: nothing */
    training_json_end(NULL);
}

static void test_progress(void **state) {
    (void)state;
    training_settings settings = {.steps = 100};
    assert_true(training_progress(&settings, 25, 1e9) == 0.25 && training_progress(&settings, 200, 0) == 1);
    settings.seconds = 10;
    assert_true(training_progress(&settings, 25, 5) == 0.5 && training_progress(&settings, 75, 5) == 0.75);
    assert_true(training_progress(&(training_settings){0}, 1000, 1000) == 0);
}

/* ---- Devices and rows --------------------------------------------------------------------------------- */

/* More rows than are read at a time, from the middle of a table. */
static void test_rows(void **state) {
    (void)state;
    enum { ROWS = 10000, DIM = 3, FIRST = 100, N = 9000 };
    frugal *f;
    program_error error;
    frugal_table tables[2] = {{.rows = 7}, {.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}};
    frugal_desc desc = {.tables = tables, .n_tables = 2, .dim = DIM, .devices = 1, .max_keys = 8, .lookahead = 1};
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    assert_int_equal(training_attach_cpu(f, 0, &(frugal_cpu_desc){.cache_rows = 8}, &error), 0);
    assert_int_equal(training_attach_cpu(f, 0, &(frugal_cpu_desc){.cache_rows = 8}, &error), -1);
    assert_non_null(strstr(error.text, "cannot attach a device: "));
    float *rows = training_floats(N * DIM), wanted[DIM];
    assert_true(rows && (uintptr_t)rows % 64 == 0);
    assert_int_equal(training_read_rows(f, &(training_span){1, FIRST, N}, rows, &error), 0);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t key = FIRST + i;
        assert_int_equal(frugal_read_rows(f, &(frugal_keys){.table = 1, .keys = &key, .n = 1}, wanted, NULL),
                         FRUGAL_OK);
        assert_memory_equal(rows + i * DIM, wanted, sizeof wanted);
    }
    assert_int_equal(training_read_rows(f, &(training_span){0, 0, 8}, rows, &error), -1); /* it has 7 */
    assert_non_null(strstr(error.text, "cannot read the embeddings: "));
    free(rows);
    frugal_close(f);
}

/* A drain that has come to its end tells of which step the rows are: of a lost device's last step they are not. */
static void test_drain(void **state) {
    (void)state;
    frugal *f;
    program_error error;
    frugal_table table = {.rows = 7};
    frugal_desc desc = {
        .tables = &table, .n_tables = 1, .dim = 3, .devices = 1, .max_keys = 8, .lookahead = 1, .first_step = 5};
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    assert_int_equal(training_attach_cpu(f, 0, NULL, &error), 0);
    assert_int_equal(training_drain(f, 5, &error), 0);
    assert_int_equal(training_drain(f, 6, &error), -1);
    assert_non_null(strstr(error.text, "the last step is not finished: step 6 is wanted, the rows are of step 5"));
    frugal_close(f);
}

/* Those of two instances are one sum. */
static void test_stats(void **state) {
    (void)state;
    frugal *f[2];
    training_sums sums = {.hits = 100};
    for (int i = 0; i < 2; i++) {
        frugal_table table = {.rows = 100};
        frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 4, .devices = 1, .max_keys = 8, .lookahead = 1};
        assert_int_equal(frugal_open(&desc, &f[i]), FRUGAL_OK);
        assert_int_equal(frugal_cpu_attach(f[i], 0, &(frugal_cpu_desc){.cache_rows = 8}), FRUGAL_OK);
        for (uint64_t step = 0; step < 3; step++) {
            uint64_t keys[] = {1, 2, 3 + step};
            float rows[3][4], grads[3][4] = {{0}};
            frugal_keys segment = {.table = 0, .keys = keys, .n = 3};
            frugal_batch batch = {.segments = &segment, .n_segments = 1};
            frugal_gradients gradients = {.grads = &grads[0][0], .lr = 0.1f};
            assert_int_equal(frugal_announce(f[i], 0, step, &batch), FRUGAL_OK);
            assert_int_equal(frugal_lookup(f[i], 0, step, &rows[0][0]), FRUGAL_OK);
            assert_int_equal(frugal_update(f[i], 0, step, &gradients), FRUGAL_OK);
        }
        training_add_stats(&sums, f[i]);
    }
    assert_int_equal(sums.misses, 2 * 5); /* 1 to 5, once each */
    assert_int_equal(sums.hits, 100 + 2 * 4);
    assert_true(sums.stall >= 0);
    for (int i = 0; i < 2; i++) frugal_close(f[i]);
}

static void test_finite(void **state) {
    (void)state;
    float values[20] = {1, -1, 0, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN / 4};
    static const float others[] = {INFINITY, -INFINITY, NAN};
    assert_true(training_is_finite(values, 20) && training_is_finite(values, 0));
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 20; at++) {
            float before = values[at];
            values[at] = others[i];
            assert_false(training_is_finite(values, 20));
            assert_true(training_is_finite(values, (uint64_t)at));
            values[at] = before;
        }
}

/* A disk that does not read the tables of a checkpoint any more: they count as damaged, so that the checkpoint before
 * is taken. */
static void test_unreadable(void **state) {
    (void)state;
    char folder[] = "/tmp/test_training.XXXXXX", path[64];
    const char *saved = path;
    frugal_table table = {.rows = 100};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 4, .devices = 1, .max_keys = 1};
    frugal *f;
    program_error error;
    uint64_t id;
    long enough = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tables", folder);
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    assert_int_equal(frugal_save(&f, 1, &(frugal_save_desc){.path = path}), FRUGAL_OK);
    frugal_close(f);
    desc.saved = &saved, desc.n_saved = 1;
    for (int opens = 0; opens < 2; opens++) {
        for (enough = 0;; enough++) {
            assert_true(enough < 1000);
            atomic_store(&reads_left, enough);
            int status = opens ? (int)frugal_open(&desc, &f) : training_saved_id(path, &id, &error);
            atomic_store(&reads_left, LONG_MAX);
            if (status && opens) training_fail("cannot open the embedding tables", &error);
            if (opens) frugal_close(f);
            if (!status) break;
            if (!strstr(error.text, strerror(EIO)) || !error.damaged) fail_msg("%s", error.text);
        }
        assert_true(enough > 0);
    }
    unlink(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),           cmocka_unit_test(test_words_of_a_stop),
        cmocka_unit_test(test_which_failure),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_too_few_threads), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_rates),           cmocka_unit_test(test_what_failed),
        cmocka_unit_test(test_reporter),        cmocka_unit_test(test_words_of_reports),
        cmocka_unit_test(test_progress),        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_drain),           cmocka_unit_test(test_stats),
        cmocka_unit_test(test_finite),          cmocka_unit_test(test_unreadable),
    };
    return cmocka_run_group_tests_name("test_training", tests, NULL, NULL);
}
