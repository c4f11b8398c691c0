/* test_trace.c - traces: which events are recorded, what their file says, and what happens where rings are full, where
 * recording ends and begins anew, and while threads go on. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "frugal_save.h"
#include "tests/case.h"
#include "tests/rig.h"
#include "tests/scratch.h"

enum { MOST_EVENTS = 20000, MOST_THREADS = 32 };

typedef struct event {
    int thread;
    double from, to; /* us */
    long step, device, keys, rows, hits, bytes, waits_for;
    char name[24], reason[160];
} event;

typedef struct traced { /* a file, read */
    event events[MOST_EVENTS];
    int n;
    long lost;
    char threads[MOST_THREADS][40];
} traced;

static traced t;

static long number_in(const char *line, const char *name) {
    char key[40];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    return at ? atol(at + strlen(key)) : -1;
}

static void text_in(const char *line, const char *name, char *to, size_t size) {
    char key[40];
    snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = strstr(line, key);
    *to = 0;
    if (at) snprintf(to, size, "%.*s", (int)strcspn(at + strlen(key), "\""), at + strlen(key));
}

static void read_event(const char *line, event *e) {
    const char *ts = strstr(line, "\"ts\":"), *dur = strstr(line, "\"dur\":");
    assert_true(ts && dur);
    double from = round(atof(ts + 5) * 1000),
           to = from + round(atof(dur + 6) * 1000); /* whole ns: their sum is exact */
    *e = (event){.thread = (int)number_in(line, "tid"), .from = from / 1000, .to = to / 1000};
    e->step = number_in(line, "step"), e->device = number_in(line, "device"), e->keys = number_in(line, "keys");
    e->rows = number_in(line, "rows"), e->hits = number_in(line, "hits"), e->bytes = number_in(line, "bytes");
    e->waits_for = number_in(line, "waits_for_device");
    text_in(line, "name", e->name, sizeof e->name);
    text_in(line, "reason", e->reason, sizeof e->reason);
}

/* Two events of a thread: one within the other, or one after the other. The numbers of the file are exact to 1 ns. */
static int overlap(const event *a, const event *b) {
    const double ns = 0.0015;
    if (a->thread != b->thread || a->to <= b->from + ns || b->to <= a->from + ns) return 0;
    int b_in_a = b->from >= a->from - ns && b->to <= a->to + ns,
        a_in_b = a->from >= b->from - ns && a->to <= b->to + ns;
    return !a_in_b && !b_in_a;
}

/* Reads what the instance has recorded; what every trace must be is checked here. */
static void look(frugal *f) {
    char *path = scratch_path("trace.json");
    if (frugal_trace_write(f, path) != FRUGAL_OK) fail_msg("%s", frugal_message());
    size_t n;
    char *text = (char *)scratch_read(path, &n);
    text = realloc(text, n + 1), text[n] = 0;
    memset(&t, 0, sizeof t);
    assert_true(strncmp(text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", 40) == 0);
    assert_true(n > 3 && strcmp(text + n - 3, "}}\n") == 0);
    t.lost = number_in(text, "lost_events");
    for (char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        if (strstr(line, "\"ph\":\"X\"")) {
            assert_true(t.n < MOST_EVENTS);
            read_event(line, &t.events[t.n++]);
        } else if (strstr(line, "thread_name")) {
            long thread = number_in(line, "tid");
            assert_in_range(thread, 1, MOST_THREADS - 1);
            text_in(strstr(line, "args"), "name", t.threads[thread], sizeof t.threads[thread]);
        }
        if (end) *end = '\n';
    }
    free(text);
    for (int i = 0; i < t.n; i++) {
        const event *e = &t.events[i];
        assert_true(e->from >= 0 && e->to >= e->from && e->to < 600e6 && t.threads[e->thread][0]);
        if ((strchr(e->name, ':') != NULL) != (e->reason[0] != 0)) fail_msg("%s, and reason %s", e->name, e->reason);
    }
    for (int i = 0; i < t.n && t.n < 2000; i++)
        for (int k = 0; k < i; k++)
            if (overlap(&t.events[i], &t.events[k]))
                fail_msg("%s and %s of thread %d overlap", t.events[i].name, t.events[k].name, t.events[i].thread);
}

/* The number of events of this name (its beginning) on a thread (NULL: any). */
static int count(const char *name, const char *thread) {
    int n = 0;
    for (int i = 0; i < t.n; i++)
        n += strncmp(t.events[i].name, name, strlen(name)) == 0 &&
             (!thread || strcmp(t.threads[t.events[i].thread], thread) == 0);
    return n;
}

static const event *find(const char *name, long step, long device) {
    for (int i = 0; i < t.n; i++)
        if (strncmp(t.events[i].name, name, strlen(name)) == 0 && t.events[i].step == step &&
            (device < 0 || t.events[i].device == device))
            return &t.events[i];
    fail_msg("there is no %s of step %ld", name, step);
    return NULL;
}

static void start(frugal *f, uint32_t events) {
    if (frugal_trace_start(f, events) != FRUGAL_OK) fail_msg("%s", frugal_message());
}

/* >>events */

/* The sum of `rows` over the events of that name. */
static long rows_of(const char *name) {
    long rows = 0;
    for (int i = 0; i < t.n; i++)
        if (!strcmp(t.events[i].name, name)) rows += t.events[i].rows;
    return rows;
}

/* One thread, two devices, no workers: each call of each step, and the work behind it. */
static void test_calls_of_a_step(void **state) {
    enum { STEPS = 5 };
    int defer = (int)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = rig_desc();
    frugal_stats before, after;
    d.defer = defer;
    rig_open(&r, &d);
    start(r.f, 0);
    frugal_get_stats(r.f, &before);
    rig_train(&r, STEPS);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_get_stats(r.f, &after);
    look(r.f);
    assert_int_equal(0, t.lost);
    for (int device = 0; device < 2; device++) {
        char trainer[40], loader[40];
        snprintf(trainer, sizeof trainer, "trainer of device %d", device);
        snprintf(loader, sizeof loader, "loader of device %d", device);
        assert_int_equal(STEPS, count("announce", loader));
        assert_int_equal(STEPS, count("lookup", trainer));
        assert_int_equal(STEPS, count("update", trainer));
    }
    long hits = 0;
    for (int i = 0; i < t.n; i++)
        if (!strcmp(t.events[i].name, "lookup")) hits += t.events[i].hits;
    assert_int_equal(after.unique_rows, rows_of("lookup"));
    assert_true(hits > 0);
    assert_int_equal(after.hits, hits);
    assert_int_equal(after.closed_entries - before.closed_entries, rows_of("close"));
    assert_int_equal(after.flushed - after.flushed_at_close, rows_of("flush"));
    for (long s = 0; s < STEPS; s++) {
        const event *announce = find("announce", s, 0), *lookup = find("lookup", s, 0), *update = find("update", s, 0);
        assert_true(announce->to <= lookup->from && lookup->to <= update->from);
        assert_true(announce->keys == RIG_KEYS && lookup->keys == RIG_KEYS && update->keys == RIG_KEYS);
        assert_true(announce->rows < 0 && lookup->rows == update->rows); /* rows are found later */
        assert_true(update->to <= find("close", s, -1)->from);
    }
    assert_true(count("plan", NULL) >= STEPS && count("drain", "caller 0") == 1);
    if (defer) assert_true(count("flush", "caller 0") > 0); /* while it drained */
    rig_finish(&r, 3);
}

/* What the lookup waits for is in the file, with the device that others wait for. */
static atomic_int waiting;

static void *look_up(void *argument) {
    rig *r = argument;
    atomic_store(&waiting, 1);
    return (void *)(intptr_t)frugal_lookup(r->f, 0, 1, r->looked_up[0]);
}

static void test_gate_that_waits_for_a_device(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    pthread_t thread;
    void *status;
    d.defer = 1;
    rig_open(&r, &d);
    start(r.f, 64);
    for (int i = 0; i < 2; i++) rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 0);
    atomic_store(&waiting, 0);
    assert_int_equal(0, pthread_create(&thread, NULL, look_up, &r));
    frugal_stats s = {0};
    while (s.gate_waits == 0) frugal_get_stats(r.f, &s);
    usleep(20000); /* so that the wait is a long one */
    rig_update(&r, 1);
    assert_int_equal(0, pthread_join(thread, &status));
    assert_int_equal(FRUGAL_OK, (int)(intptr_t)status);
    rig_judge(&r, 0);
    look(r.f);
    const event *gate = find("gate: commit", 1, 0), *lookup = find("lookup", 1, 0);
    assert_string_equal("step 0 is not closed: device 1 has not updated it", gate->reason);
    assert_int_equal(1, gate->waits_for);
    assert_true(gate->from >= lookup->from && gate->to <= lookup->to);
    assert_true(find("gate: close", 1, 0)->from >= gate->to); /* then nobody but this thread closes the step */
    assert_true(find("update", 0, 1)->from <= gate->to);      /* it went on with that update */
    rig_finish(&r, 3);
}

/* Announcements wait for those of others, and for steps to be closed. */
static void *announce_on(void *argument) {
    rig *r = argument;
    for (int i = 0; i < 2; i++) rig_announce(r, 0);
    return NULL;
}

static void test_announcements_that_wait(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    pthread_t thread;
    d.lookahead = 0;
    rig_open(&r, &d);
    start(r.f, 64);
    rig_announce(&r, 1);
    assert_int_equal(0, pthread_create(&thread, NULL, announce_on, &r));
    usleep(20000);
    rig_lookup(&r, 0), rig_lookup(&r, 1), rig_update(&r, 0), rig_update(&r, 1);
    assert_int_equal(0, pthread_join(thread, NULL));
    look(r.f);
    assert_string_equal("step 1 is as far ahead as it may be: step 0 is not closed", find("wait: ahead", 1, 0)->reason);
    rig_judge(&r, 0);
    rig_announce(&r, 1);
    rig_finish(&r, 1);
}

/* A lookup that comes too early, and a wait that ends in an error: the event is there. */
static void test_gate_that_never_opens(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.stuck_seconds = 0.01;
    rig_open(&r, &d);
    start(r.f, 64);
    rig_announce(&r, 0);
    assert_int_equal(FRUGAL_ERR_STUCK, frugal_lookup(r.f, 0, 0, r.looked_up[0]));
    look(r.f);
    assert_string_equal("step 0 is not sealed: device 1 has announced 0 steps", find("gate: announce", 0, 0)->reason);
    assert_int_equal(0, count("lookup", NULL)); /* it has looked nothing up */
    rig_finish(&r, 3);
}

/* Calls that are refused leave no event, and those after them are recorded. */
static void test_refused_calls(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    float grads[RIG_KEYS * 5] = {0};
    const frugal_gradients g = {.grads = grads, .lr = 0.5f};
    rig_open(&r, &d);
    start(r.f, 64);
    for (uint32_t device = 0; device < 2; device++) rig_announce(&r, device);
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_lookup(r.f, 2, 0, grads));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_update(r.f, UINT32_MAX, 0, &g));
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_lookup(r.f, 0, 1, grads));
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_update(r.f, 0, 0, &g)); /* not looked up */
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_update(r.f, 0, 1, &g));
    look(r.f);
    assert_true(count("lookup", NULL) == 0 && count("update", NULL) == 0 && count("announce", NULL) == 2);
    rig_train(&r, 3);
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_update(r.f, 0, 1, &g)); /* updated already */
    look(r.f);
    assert_true(count("lookup", NULL) == 6 && count("update", NULL) == 6 && t.lost == 0);
    rig_finish(&r, 2);
}

static void test_recalls_and_saves(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = rig_desc();
    d.alone = FRUGAL_ALONE_KEPT;
    rig_open(&r, &d);
    start(r.f, 0);
    rig_train(&r, 12);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    char *path = scratch_path("save");
    frugal_save_desc save = {.path = path};
    assert_int_equal(FRUGAL_OK, frugal_save(&r.f, 1, &save));
    struct stat status;
    assert_int_equal(0, stat(path, &status));
    look(r.f);
    long written = 0;
    for (int i = 0; i < t.n; i++)
        if (!strcmp(t.events[i].name, "recall")) {
            written += t.events[i].rows;
            assert_in_range(t.events[i].device, 0, 1);
            assert_true(t.events[i].to <= find("lookup", t.events[i].step, 1 - t.events[i].device)->to);
        }
    assert_true(count("recall", NULL) > 0 && written > 0);
    assert_int_equal(1, count("save", "save"));
    assert_int_equal(status.st_size, find("save", 12, -1)->bytes);
    rig_finish(&r, 3);
}

/* >>rings */

static void test_full_rings_keep_the_last_events(void **state) {
    enum { STEPS = 40, EVENTS = 16 };
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    start(r.f, EVENTS);
    rig_train(&r, STEPS);
    look(r.f);
    /* each call, the sort and the plan within; the place of the oldest may be in use */
    assert_int_equal((EVENTS - 1) / 3, count("announce", NULL));
    assert_true(find("announce", STEPS - 1, 0) && find("announce", STEPS - (EVENTS - 1) / 3, 0));
    assert_true(find("update", STEPS - 1, 0) != NULL);
    assert_in_range(t.lost, STEPS - EVENTS + 1, 10 * STEPS);
    rig_finish(&r, 3);
}

static void test_start_stop_start(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 2);
    start(r.f, 100); /* 128 */
    rig_train(&r, 2);
    assert_int_equal(FRUGAL_OK, frugal_trace_stop(r.f));
    rig_train(&r, 2);
    look(r.f);
    assert_int_equal(2 * 2, count("update", NULL));
    assert_true(find("update", 2, 0) && find("update", 3, 1) && t.lost == 0);
    start(r.f, 128);
    rig_train(&r, 3);
    look(r.f);
    assert_int_equal(3 * 2, count("update", NULL));
    assert_true(find("update", 6, 0) && find("update", 8, 1) && t.lost == 0);
    start(r.f, 0);
    look(r.f);
    assert_int_equal(0, t.n);
    rig_finish(&r, 3);
}

static void check_refused(frugal_status wanted, frugal_status status, const char *text, int line) {
    if (status != wanted || !strstr(frugal_message(), text))
        fail_msg("line %d: status %d, %s; not \"%s\"", line, (int)status, frugal_message(), text);
}
#define assert_refused(wanted, call, text) check_refused(wanted, call, text, __LINE__)

static void test_refusals(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    char *path = scratch_path("none.json");
    uint64_t bytes = r.counter.bytes_out;
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_start(NULL, 0), "no open instance");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_stop(NULL), "no open instance");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_write(NULL, path), "no open instance");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_write(r.f, NULL), "`path` is NULL");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_write(r.f, path), "call frugal_trace_start first");
    assert_int_equal(-1, access(path, F_OK));
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_start(r.f, 15), "15 events of each thread; there may be 16 to");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_start(r.f, (1 << 24) + 1), "there may be 16 to 16777216");
    r.counter.fail_at = r.counter.calls + 1;
    assert_refused(FRUGAL_ERR_MEMORY, frugal_trace_start(r.f, 64), "bytes for the events of a trace");
    assert_int_equal(bytes, r.counter.bytes_out);
    rig_train(&r, 2); /* nothing is recorded */
    start(r.f, 64);
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_start(r.f, 65), "room for 64 since its first trace");
    assert_refused(FRUGAL_ERR_ARGUMENT, frugal_trace_start(r.f, 32), "room for 64 since its first trace");
    assert_refused(FRUGAL_ERR_FILE, frugal_trace_write(r.f, scratch_path("no/folder")), "no/folder");
    scratch_write(path, "{\"displayTimeUnit\": \"ms\"}, and more than a trace begins with", 60);
    assert_refused(FRUGAL_ERR_FILE, frugal_trace_write(r.f, path), "not a trace; choose another name");
    scratch_write(path, "{", 1);
    assert_refused(FRUGAL_ERR_FILE, frugal_trace_write(r.f, path), "not a trace; choose another name");
    scratch_write(path, "", 0);
    assert_int_equal(FRUGAL_OK, frugal_trace_write(r.f, path));
    assert_int_equal(FRUGAL_OK, frugal_trace_write(r.f, path)); /* one trace is replaced by another */
    rig_train(&r, 2);
    look(r.f);
    assert_int_equal(4, count("update", NULL));
    rig_finish(&r, 3);
}

/* >>threads */

/* Events of shared workers go to the instance whose work it is. */
static void test_shared_workers(void **state) {
    (void)state;
    rig a = {0}, b = {0};
    frugal_desc d = rig_desc();
    frugal_workers *workers;
    assert_int_equal(FRUGAL_OK, frugal_workers_open(2, &workers));
    d.shared_workers = workers;
    rig_open(&a, &d), rig_open(&b, &d);
    start(a.f, 0), start(b.f, 0);
    for (int i = 0; i < 30; i++) rig_train(&a, 1), rig_train(&b, 2);
    assert_int_equal(FRUGAL_OK, frugal_drain(a.f));
    assert_int_equal(FRUGAL_OK, frugal_drain(b.f));
    for (int which = 0; which < 2; which++) {
        frugal *f = which ? b.f : a.f;
        frugal_stats s;
        frugal_get_stats(f, &s);
        /* A worker records a piece when others can see already that it is done, so its last ones may come later. */
        for (int turn = 0; turn < 10000; turn++, usleep(1000)) {
            look(f);
            if (rows_of("flush") == (long)s.flushed && rows_of("close") == (long)s.closed_entries) break;
        }
        assert_int_equal(0, t.lost);
        assert_int_equal(s.flushed, rows_of("flush"));
        assert_int_equal(s.closed_entries, rows_of("close"));
        assert_int_equal(30 * (1 + which) * 2, count("update", NULL));
    }
    rig_finish(&a, 3), rig_finish(&b, 3);
    assert_int_equal(FRUGAL_OK, frugal_workers_close(workers));
}

/* Whole events only, however often rings are overwritten while the file is written: an event of each kind has what
 * events of its kind have. */
static atomic_int training;

static void *write_on(void *argument) {
    rig *r = argument;
    int files = 0;
    for (; atomic_load(&training) || files < 5; files++) {
        look(r->f);
        for (int i = 0; i < t.n; i++) {
            const event *e = &t.events[i];
            int call = !strcmp(e->name, "announce") || !strcmp(e->name, "lookup") || !strcmp(e->name, "update");
            int rows_fit = !strcmp(e->name, "announce") ? e->rows < 0 : e->rows >= 1 && e->rows <= RIG_KEYS;
            if (call && (e->keys != RIG_KEYS || !rows_fit || e->step < 0 || e->device > 1))
                fail_msg("half an event: %s, step %ld, %ld keys, %ld rows", e->name, e->step, e->keys, e->rows);
            if (!strcmp(e->name, "flush") && (e->rows < 1 || e->rows > 62)) fail_msg("half a flush");
        }
        if (files % 3 == 2) start(r->f, 16);
    }
    return NULL;
}

static void test_written_while_training(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    pthread_t thread;
    d.workers = 2;
    rig_open(&r, &d);
    start(r.f, 16);
    atomic_store(&training, 1);
    assert_int_equal(0, pthread_create(&thread, NULL, write_on, &r));
    for (int i = 0; i < 300; i++) rig_train(&r, 1), frugal_help(r.f);
    atomic_store(&training, 0);
    assert_int_equal(0, pthread_join(thread, NULL));
    rig_finish(&r, 3);
}

static int end(void **state) {
    (void)state;
    scratch_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("test_calls_of_a_step, flushed as steps close", test_calls_of_a_step, 0),
        CASE("test_calls_of_a_step, queued", test_calls_of_a_step, 1),
        cmocka_unit_test(test_gate_that_waits_for_a_device),
        cmocka_unit_test(test_announcements_that_wait),
        cmocka_unit_test(test_gate_that_never_opens),
        cmocka_unit_test(test_refused_calls),
        cmocka_unit_test(test_recalls_and_saves),
        cmocka_unit_test(test_full_rings_keep_the_last_events),
        cmocka_unit_test(test_start_stop_start),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_shared_workers),
        cmocka_unit_test(test_written_while_training),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, end);
}
