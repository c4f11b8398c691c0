/* test_metrics.c - metrics: the text, and that its numbers are those of the statistics; hits by table; gate waits by
 * time and by cause; the worst of an interval. A parser that is not ours reads the text in tests/reference/run. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"
#include "src/device.h"

static char text[1 << 18];

static void write_all(frugal *const *instances, const char *const *names, uint32_t n) {
    size_t length = frugal_write_metrics(instances, names, n, text, sizeof text);
    if (length == 0) fail_msg("%s", frugal_message());
    assert_in_range(length, 1, sizeof text - 1);
    assert_int_equal(strlen(text), length);
    assert_string_equal("# EOF\n", text + length - 6);
}

/* The value of a sample, by its name and labels as they stand in the text; -1: there is none. */
static double value(const char *sample) {
    char line[256];
    int n = snprintf(line, sizeof line, "\n%s ", sample);
    const char *at = strstr(text, line);
    return at ? atof(at + n) : -1;
}

static double value_of(const char *family, uint32_t device, const char *more) {
    char sample[200];
    snprintf(sample, sizeof sample, "%s{device=\"%u\"%s}", family, device, more);
    return value(sample);
}

/* >>text */

/* Each family has its type, unit and help, and no line is anything else; no sample is there twice. */
static void test_lines(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 64}};
    frugal_desc d = rig_desc();
    static char seen[2000][120];
    char family[64] = "";
    int n = 0, families = 0;
    rig_open(&r, &d);
    rig_train(&r, 4);
    write_all(&r.f, NULL, 1);
    assert_true(strncmp(text, "# TYPE frugal_steps counter\n# HELP frugal_steps ", 48) == 0);
    for (char *line = text, *end; *line; line = end + 1) {
        char type[32], name[120];
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        if (sscanf(line, "# TYPE %63s %31s", family, type) == 2) {
            families++;
            assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge") || !strcmp(type, "histogram"));
        } else if (line[0] == '#') {
            assert_true(!strcmp(line, "# EOF") || strstr(line, family));
        } else {
            double number;
            assert_int_equal(2, sscanf(line, "%119s %lf", name, &number));
            assert_true(strncmp(line, family, strlen(family)) == 0 && number >= 0);
            for (int i = 0; i < n; i++)
                if (!strcmp(seen[i], name)) fail_msg("twice: %s", name);
            assert_true(n < 2000);
            memcpy(seen[n++], name, sizeof name);
        }
        *end = '\n';
    }
    assert_true(families > 20 && n > 60);
    rig_finish(&r, 2);
}

static void test_names(void **state) {
    (void)state;
    rig a = {0}, b = {0};
    frugal_desc d = rig_desc();
    rig_open(&a, &d), rig_open(&b, &d);
    rig_train(&a, 2), rig_train(&b, 3);
    frugal *both[2] = {a.f, b.f};
    assert_int_equal(FRUGAL_OK, frugal_drain(a.f) | frugal_drain(b.f));
    write_all(both, NULL, 2);
    assert_true(value("frugal_steps_total{store=\"0\"}") == 2 && value("frugal_steps_total{store=\"1\"}") == 3);
    write_all(both, (const char *const[]){"a \"b\"\\\n", "\xc3\xa9"}, 2);
    assert_true(value("frugal_steps_total{store=\"a \\\"b\\\"\\\\\\n\"}") == 2);
    assert_true(value("frugal_keys_total{store=\"\xc3\xa9\",device=\"1\"}") == 3 * RIG_KEYS);
    char longest[1000]; /* is cut between two characters */
    for (int i = 0; i < 998; i += 2) memcpy(longest + i, "\xc3\xa9", 3);
    write_all(both, (const char *const[]){longest + 1, longest}, 2);
    const char *label = strstr(text, "store=\"\xc3\xa9");
    assert_non_null(label);
    size_t bytes = strcspn(label + 7, "\"");
    assert_true(bytes > 300 && bytes % 2 == 0);
    char no_character[500]; /* bytes that belong to none: nothing of a name that is too long is left */
    memset(no_character, 0xa9, sizeof no_character - 1), no_character[sizeof no_character - 1] = 0;
    write_all(both, (const char *const[]){no_character, "b"}, 2);
    assert_true(value("frugal_steps_total{store=\"\"}") == 2 && value("frugal_steps_total{store=\"b\"}") == 3);
    rig_finish(&a, 2), rig_finish(&b, 2);
}

static void test_sizes_and_refusals(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 2);
    assert_int_equal(0, frugal_write_metrics(NULL, NULL, 1, text, sizeof text));
    assert_non_null(strstr(frugal_message(), "write_metrics: no instances"));
    assert_int_equal(0, frugal_write_metrics(&r.f, NULL, 0, text, sizeof text));
    assert_int_equal(0, frugal_write_metrics(&r.f, NULL, 1, NULL, 10));
    assert_int_equal(0, frugal_write_metrics((frugal *[]){NULL}, NULL, 1, text, sizeof text));
    assert_non_null(strstr(frugal_message(), "no open instance"));
    assert_int_equal(0, frugal_write_metrics(&r.f, (const char *[]){NULL}, 1, text, sizeof text));
    assert_non_null(strstr(frugal_message(), "name 0 of 1 is NULL"));
    memset(text, 'x', sizeof text);
    size_t needed = frugal_write_metrics(&r.f, NULL, 1, NULL, 0), wanted;
    assert_in_range(needed, 1000, sizeof text);
    wanted = frugal_write_metrics(&r.f, NULL, 1, text, 100);
    assert_in_range(wanted, 1000, sizeof text);
    assert_int_equal('x', text[0]); /* as before */
    assert_in_range(frugal_write_metrics(&r.f, NULL, 1, text, wanted), 1000, wanted - 1);
    assert_int_equal('x', text[wanted]);
    rig_finish(&r, 2);
}

/* >>numbers */

static void test_numbers_are_the_statistics(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = rig_desc();
    d.alone = FRUGAL_ALONE_KEPT, d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 6);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_stats s;
    frugal_get_stats(r.f, &s);
    write_all(&r.f, NULL, 1);
    assert_true(value("frugal_steps_total") == 6);
    double keys = 0, hits = 0, misses = 0, kept = 0, back = 0, waits = 0;
    for (uint32_t i = 0; i < 2; i++) {
        frugal_traffic total;
        static const char *const ways[3] = {"read", "written", "written_back"};
        assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, i, NULL, &total));
        keys += value_of("frugal_keys_total", i, "");
        hits += value_of("frugal_hits_total", i, ""), misses += value_of("frugal_misses_total", i, "");
        kept += value_of("frugal_kept_updates_total", i, "");
        back += value_of("frugal_written_back_rows_total", i, "");
        waits += value_of("frugal_gate_wait_seconds_count", i, "");
        for (int way = 0; way < 2; way++) { /* what is written back between steps counts for the next one */
            char more[40];
            snprintf(more, sizeof more, ",way=\"%s\"", ways[way]);
            assert_true(value_of("frugal_link_rows_total", i, more) == (double)total.rows[way]);
            assert_true(value_of("frugal_link_bytes_total", i, more) == (double)total.bytes[way]);
        }
        assert_true(value_of("frugal_link_rows_total", i, ",way=\"written_back\"") >= 0);
    }
    assert_true(keys == (double)s.keys && hits == (double)s.hits && misses == (double)s.misses && hits > 0);
    assert_true(back == (double)s.written_back && waits == (double)s.gate_waits && waits > 0);
    assert_true(value("frugal_updated_rows_total{way=\"queued\"}") == (double)s.flushed && s.flushed > 0);
    assert_true(value("frugal_updated_rows_total{way=\"closing\"}") == 0);
    assert_true(value("frugal_updated_rows_total{way=\"in_place\"}") == (double)s.in_place);
    assert_true(kept == (double)s.kept && s.kept > 0);
    assert_true(value("frugal_touched_rows_total{by=\"several\"}") == (double)s.shared);
    assert_true(value("frugal_queued_rows{due=\"0\"}") == 0);
    assert_true(value("frugal_memory_bytes{what=\"rows\"}") == (double)s.state_bytes);
    assert_true(value("frugal_memory_bytes{what=\"other\"}") == (double)s.other_bytes);
    assert_true(value("frugal_page_bytes{pages=\"huge\"}") == (double)s.huge_bytes);
    assert_true(value("frugal_page_bytes{pages=\"small\"}") == (double)(s.resident_bytes - s.huge_bytes));
    assert_true(value("frugal_ended{why=\"stopped\"}") == 0);
    frugal_stop(r.f);
    write_all(&r.f, NULL, 1);
    assert_true(value("frugal_ended{why=\"stopped\"}") == 1 && value("frugal_ended{why=\"lost\"}") == 0);
    rig_free(&r);
}

/* How many distinct rows of each table the batch has. */
static void add_distinct(const rig *r, uint32_t device, uint64_t step, double rows[2]) {
    rig_batch b = rig_batch_of(r, device, step);
    for (uint32_t i = 0; i < b.n; i++) {
        uint32_t table = i >= b.split, first = 1;
        for (uint32_t k = table ? b.split : 0; k < i; k++) first &= b.keys[k] != b.keys[i];
        rows[table] += first;
    }
}

/* With and without a cache, all rows of each table are counted; if all batches are equal, all hit from the second step
 * on. */
static void test_hits_by_table(void **state) {
    enum { STEPS = 7 };
    int cached = (int)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = cached ? 512 : 0, .policy = FRUGAL_CACHE_LRU}, .repeat = 1};
    frugal_desc d = rig_desc();
    double once[2] = {0};
    d.devices = 1;
    rig_open(&r, &d);
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_table_hits_total", 0, ",table=\"0\"") == -1); /* not looked up yet */
    rig_train(&r, STEPS);
    add_distinct(&r, 0, 0, once);
    write_all(&r.f, NULL, 1);
    for (int t = 0; t < 2; t++) {
        char more[32];
        snprintf(more, sizeof more, ",table=\"%d\"", t);
        double hits = cached ? (STEPS - 1) * once[t] : 0;
        assert_true(value_of("frugal_table_hits_total", 0, more) == hits);
        assert_true(value_of("frugal_table_misses_total", 0, more) == STEPS * once[t] - hits);
        assert_true(value_of("frugal_table_worst_hits_ratio", 0, more) == 0); /* the first step */
    }
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_table_worst_hits_ratio", 0, ",table=\"0\"") == -1); /* no step since */
    rig_train(&r, 2);
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_table_worst_hits_ratio", 0, ",table=\"1\"") == cached);
    rig_finish(&r, 2);
}

/* A batch of some tables only; a repeated lookup counts nothing. */
static void test_tables_that_a_batch_lacks(void **state) {
    (void)state;
    frugal_table tables[5] = {{.rows = 3}, {.rows = 1}, {.rows = 7}, {.rows = 2}, {.rows = 5}};
    frugal_desc d = {.tables = tables, .n_tables = 5, .dim = 4, .max_keys = 8};
    for (uint64_t cache_rows = 0; cache_rows <= 64; cache_rows += 64) {
        frugal *f = open_or_fail(&d);
        frugal_cpu_desc cache = {.cache_rows = cache_rows, .policy = FRUGAL_CACHE_LRU};
        const uint64_t keys[] = {6, 0, 6, 4, 1};
        const frugal_keys segments[] = {{.table = 2, .keys = keys, .n = 3},      /* rows 10, 4, 10 */
                                        {.table = 4, .keys = keys + 3, .n = 2}}; /* rows 17, 14 */
        float rows[5 * 4];
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &cache));
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &(frugal_batch){.segments = segments, .n_segments = 2}));
        for (int i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, rows));
        write_all(&f, NULL, 1);
        for (int t = 0; t < 5; t++) {
            char more[32];
            snprintf(more, sizeof more, ",table=\"%d\"", t);
            assert_true(value_of("frugal_table_misses_total", 0, more) == (t == 2 || t == 4 ? 2 : -1));
        }
        frugal_close(f);
    }
}

/* What a device reports that is not there, or that does not count, changes nothing. */
static void test_counting_what_is_not_there(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    frugal_count_table_hits(NULL, 0, 0, 1, 1);
    frugal_count_table_hits(r.f, 2, 0, 1, 1);
    frugal_count_table_hits(r.f, 0, 2, 1, 1);
    frugal_count_table_hits(r.f, 0, 1, 0, 0);
    frugal_count_link(NULL, 0, 0, 1, 1);
    frugal_count_link(r.f, 2, 0, 1, 1);
    frugal_count_link(r.f, 0, 3, 1, 1);
    write_all(&r.f, NULL, 1);
    assert_null(strstr(text, "\nfrugal_table_hits_total"));
    assert_null(strstr(text, "\nfrugal_link_rows_total"));
    frugal_count_table_hits(r.f, 1, 1, 3, 1);
    frugal_count_table_hits(r.f, 1, 1, 1, 1);
    frugal_count_table_hits(r.f, 1, 1, 9, 1);
    frugal_count_link(r.f, 1, 2, 5, 80);
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_table_hits_total", 1, ",table=\"1\"") == 13);
    assert_true(value_of("frugal_table_worst_hits_ratio", 1, ",table=\"1\"") == 0.5);
    assert_true(value_of("frugal_link_bytes_total", 1, ",way=\"written_back\"") == 80);
    assert_true(value_of("frugal_link_bytes_total", 1, ",way=\"read\"") == 0);
    rig_finish(&r, 2);
}

/* >>waits */

static void *look_up(void *argument) {
    rig *r = argument;
    return (void *)(intptr_t)frugal_lookup(r->f, 0, 1, r->looked_up[0]);
}

/* Device 0 waits for device 1, for longer than all other waits. */
static void wait_for_device_1(rig *r) {
    pthread_t thread;
    void *status;
    for (int i = 0; i < 2; i++) rig_announce(r, 0), rig_announce(r, 1);
    rig_lookup(r, 0), rig_lookup(r, 1);
    rig_update(r, 0);
    assert_int_equal(0, pthread_create(&thread, NULL, look_up, r));
    frugal_stats s = {0};
    while (s.gate_waits == 0) frugal_get_stats(r->f, &s);
    usleep(30000);
    rig_update(r, 1);
    assert_int_equal(0, pthread_join(thread, &status));
    assert_int_equal(FRUGAL_OK, (int)(intptr_t)status);
    rig_judge(r, 0);
}

static void test_waits_and_the_worst(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_gate_worst_seconds", 0, ",cause=\"none\"") == 0);
    wait_for_device_1(&r);
    rig_train(&r, 2); /* device 0 waits again, for a shorter time */
    assert_in_range(frugal_write_metrics(&r.f, NULL, 1, text, 10), 1000, sizeof text); /* resets nothing */
    write_all(&r.f, NULL, 1);
    double worst = value_of("frugal_gate_worst_seconds", 0, ",cause=\"commit\"");
    double by_cause = value_of("frugal_gate_cause_seconds_total", 0, ",cause=\"commit\"");
    double sum = value_of("frugal_gate_wait_seconds_sum", 0, "");
    assert_true(worst > 0.02 && worst <= sum + 1e-9 && by_cause > 0.02 && by_cause <= sum + 1e-9);
    assert_true(value_of("frugal_gate_worst_step", 0, ",cause=\"commit\"") == 1);
    double waits = value_of("frugal_gate_wait_seconds_count", 0, "");
    assert_true(waits >= 2 && value_of("frugal_gate_wait_seconds_bucket", 0, ",le=\"+Inf\"") == waits);
    assert_in_range((int)value_of("frugal_gate_wait_seconds_bucket", 0, ",le=\"0.016384\""), 0, (int)waits - 1);
    write_all(&r.f, NULL, 1);
    assert_true(value_of("frugal_gate_worst_seconds", 0, ",cause=\"none\"") == 0);
    assert_true(value_of("frugal_gate_worst_step", 0, ",cause=\"none\"") == 0);
    assert_true(value_of("frugal_gate_wait_seconds_count", 0, "") == waits); /* it is not of the interval */
    rig_finish(&r, 3);
}

/* One thread writes metrics while others train: for ThreadSanitizer. */
static void *scrape(void *argument) {
    const rig *r = argument;
    for (int i = 0; i < 50; i++) {
        static char own[1 << 16];
        assert_in_range(frugal_write_metrics(&r->f, NULL, 1, own, sizeof own), 1000, sizeof own - 1);
    }
    return NULL;
}

static void test_written_while_training(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 32}};
    frugal_desc d = rig_desc();
    pthread_t thread;
    d.workers = 2;
    rig_open(&r, &d);
    assert_int_equal(0, pthread_create(&thread, NULL, scrape, &r));
    rig_train(&r, 100);
    assert_int_equal(0, pthread_join(thread, NULL));
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sizes_and_refusals),
        cmocka_unit_test(test_numbers_are_the_statistics),
        CASE("test_hits_by_table, without a cache", test_hits_by_table, 0),
        CASE("test_hits_by_table, all cached", test_hits_by_table, 1),
        cmocka_unit_test(test_tables_that_a_batch_lacks),
        cmocka_unit_test(test_counting_what_is_not_there),
        cmocka_unit_test(test_waits_and_the_worst),
        cmocka_unit_test(test_written_while_training),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
