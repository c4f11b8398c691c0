/* test_kills.c - one of two processes is killed: by itself before its n-th atomic operation, or by the other after some
 * microseconds. The other is told, its table is that of the last step that both have finished, and nothing stays. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>
#include "tests/crew.h"
#include "tests/killing_atomics.h"

_Atomic(int64_t) kill_countdown, kill_operations;

static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};

typedef struct shared_page {     /* between the two processes of a world */
    _Atomic(int64_t) operations; /* of one that was not killed */
    _Atomic(int64_t) died;       /* ns: when it had ended, or a little later */
    _Atomic(int) attached;       /* its device was */
} shared_page;

static shared_page *page;
static double slowest; /* from a death to the other's return from its call */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void choose_world(crew *c, uint32_t i) {
    crew_init(c, i);
    c->desc.alone = ways[i % 3], c->desc.workers = 1 + i / 3 % 2, c->desc.lookahead = i / 2 % 4;
    c->desc.optimizer.kind = i % 4 == 3 ? FRUGAL_ADAM : FRUGAL_ADAGRAD;
    c->cache = (frugal_cpu_desc){.cache_rows = i % 5 ? 24 : 0, .policy = FRUGAL_CACHE_LRU};
    c->steps = 12;
    c->attached = &page->attached;
}

typedef struct watch { /* a thread beside the caller's training */
    pthread_t thread;
    pid_t child;
    frugal *f; /* of which the child is to have device 1; NULL: it is not */
} watch;

/* Waits for the end of a child, and notes when that was. If its device had not been attached by then, it was never
 * there, and its end is nobody's loss: this stops the instance. */
static void *watch_child(void *argument) {
    watch *w = argument;
    siginfo_t how;
    waitid(P_PID, (id_t)w->child, &how, WEXITED | WNOWAIT);
    atomic_store(&page->died, (int64_t)(now() * 1e9));
    if (w->f && !atomic_load(&page->attached)) frugal_stop(w->f);
    return NULL;
}

/* A row may differ from the reference of the step that was drained. */
static void allow_rows(const crew *c, const reference *ref, uint64_t drained, int kept_lost, uint32_t killed,
                       uint8_t *may) {
    crew_batch b[2];
    memset(may, 0, CREW_ROWS);
    for (uint32_t d = 0; d < 2; d++) crew_batch_of(c, ref, d, drained, &b[d]);
    if (c->desc.alone != FRUGAL_ALONE_STAGED) /* in place, in the step that was not finished */
        for (uint32_t d = 0; d < 2; d++)
            for (uint32_t i = 0; i < b[d].n; i++) may[b[d].rows[i]] = 1;
    for (uint64_t t = 0; kept_lost && t < drained; t++) {
        crew_batch_of(c, ref, killed, t, &b[0]); /* the keys alone are used */
        for (uint32_t i = 0; i < b[0].n; i++) may[b[0].rows[i]] = 1;
    }
}

static void compare_drained(const crew *c, frugal *f, int kept_lost) {
    reference ref;
    float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    uint8_t may[CREW_ROWS];
    frugal_stats s;
    frugal_get_stats(f, &s);
    crew_reference(c, f, &ref);
    for (uint64_t t = 0; t < s.steps; t++) crew_judge(c, &ref, t);
    crew_equals(f, &ref, weights, state); /* reads */
    allow_rows(c, &ref, s.steps, kept_lost, 1, may);
    for (uint32_t row = 0; row < CREW_ROWS; row++) {
        int same = !memcmp(weights + row * CREW_DIM, ref.weights + row * CREW_DIM, sizeof(float) * CREW_DIM) &&
                   !memcmp(state + row * ref.state_floats, ref.state + row * ref.state_floats,
                           sizeof(float) * ref.state_floats);
        if (!same && !may[row])
            fail_msg("row %u is not that of step %u, way %d, %s", row, (unsigned)s.steps, (int)c->desc.alone,
                     kept_lost ? frugal_message() : "nothing kept was lost");
    }
    reference_close(&ref);
}

static void assert_nothing_left(const crew *c) {
    DIR *folder = opendir("/dev/shm");
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) assert_null(strstr(entry->d_name, c->name));
    if (folder) closedir(folder);
    frugal *again; /* the name is free */
    if (frugal_open(&c->desc, &again) != FRUGAL_OK) fail_msg("open again: %s", frugal_message());
    assert_int_equal(FRUGAL_OK, frugal_close(again));
}

typedef struct killed { /* how a process is killed; both 0: it is not */
    int64_t at;         /* before this operation */
    unsigned after;     /* us */
} killed;

static pid_t fork_killed(const crew *c, const killed *how, int opens) {
    atomic_store(&page->died, 0);
    atomic_store(&page->attached, 0);
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    atomic_store(&kill_operations, 0);
    atomic_store(&kill_countdown, how->at);
    int result = CREW_WRONG;
    if (opens) {
        frugal *f;
        reference ref;
        uint64_t step = 0, announced = 0;
        int wrong = 0;
        frugal_status status = frugal_open(&c->desc, &f);
        if (status == FRUGAL_OK) crew_reference(c, f, &ref);
        if (status == FRUGAL_OK) status = frugal_cpu_attach(f, 0, &c->cache);
        if (status == FRUGAL_OK) status = crew_train(c, f, 0, &ref, &step, &announced, c->steps, &wrong);
        /* the other one may be in the middle of the last step */
        while (status == FRUGAL_OK && (status = frugal_drain(f)) == FRUGAL_ERR_BUSY) usleep(100), status = FRUGAL_OK;
        result = status == FRUGAL_OK && !wrong ? CREW_FINE : CREW_WRONG;
        if (result) fprintf(stderr, "# %s\n", frugal_message());
        frugal_close(f);
    } else {
        result = crew_member(c, 1);
    }
    atomic_store(&page->operations, atomic_load(&kill_operations));
    _exit(result);
}

static void note_notice(watch *w, double told) {
    pthread_join(w->thread, NULL);
    double since = told - (double)atomic_load(&page->died) * 1e-9;
    if (since > slowest) slowest = since;
}

/* The other process has joined; it is killed. Returns how it ended. */
static int kill_member(uint32_t world, const killed *how) {
    crew c;
    frugal *f;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    choose_world(&c, world);
    watch w = {.child = fork_killed(&c, how, 0)};
    if (frugal_open(&c.desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    crew_reference(&c, f, &ref);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &c.cache));
    w.f = f;
    pthread_create(&w.thread, NULL, watch_child, &w);
    if (how->after) usleep(how->after), kill(w.child, SIGKILL);
    frugal_status status = crew_train(&c, f, 0, &ref, &step, &announced, c.steps, &wrong);
    double told = now();
    int stopped = status == FRUGAL_STOPPED;
    if (wrong)
        fail_msg("world %u, kill at %d after %u: step %u: a row differs", world, (int)how->at, how->after,
                 (unsigned)step);
    if (status != FRUGAL_OK && status != FRUGAL_ERR_LOST && !stopped)
        fail_msg("step %u: %s", (unsigned)step, frugal_message());
    if (status == FRUGAL_ERR_LOST)
        note_notice(&w, told);
    else
        pthread_join(w.thread, NULL);
    /* "a device was lost just now: drain again" */
    while ((status = frugal_drain(f)) == FRUGAL_ERR_BUSY) usleep(100);
    int kept_lost = status == FRUGAL_ERR_LOST && c.desc.alone == FRUGAL_ALONE_KEPT;
    if (status != FRUGAL_OK && !kept_lost && !stopped) fail_msg("drain: %s", frugal_message());
    if (!stopped) compare_drained(&c, f, kept_lost);
    frugal_close(f);
    reference_close(&ref);
    int end = crew_wait(w.child);
    assert_nothing_left(&c);
    return end;
}

/* The other process has opened; it is killed. */
static int kill_opener(uint32_t world, const killed *how) {
    crew c;
    frugal *f;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    choose_world(&c, world);
    watch w = {.child = fork_killed(&c, how, 1)};
    pthread_create(&w.thread, NULL, watch_child, &w);
    if (how->after) usleep(how->after), kill(w.child, SIGKILL);
    frugal_status status;
    do status = frugal_join(c.name, 0.02, &f), status == FRUGAL_OK ? (void)0 : (void)frugal_close(f);
    while (status != FRUGAL_OK && !atomic_load(&page->died));
    if (status == FRUGAL_OK) {
        status = frugal_cpu_attach(f, 1, &c.cache);
        if (status == FRUGAL_OK) {
            crew_reference(&c, f, &ref);
            status = crew_train(&c, f, 1, &ref, &step, &announced, c.steps, &wrong);
            reference_close(&ref);
        }
        double told = now();
        assert_false(wrong);
        if (status != FRUGAL_OK && status != FRUGAL_ERR_LOST && status != FRUGAL_STOPPED)
            fail_msg("step %u: %s", (unsigned)step, frugal_message());
        frugal_close(f);
        if (status == FRUGAL_ERR_LOST)
            note_notice(&w, told);
        else
            pthread_join(w.thread, NULL);
    } else {
        pthread_join(w.thread, NULL);
    }
    int end = crew_wait(w.child);
    assert_nothing_left(&c);
    return end;
}

/* Kills before operations that are spread over a whole run. */
static void kill_everywhere(int (*world)(uint32_t, const killed *), uint32_t kills) {
    int64_t operations[12];
    uint32_t killed_ones = 0;
    const killed not = {0, 0};
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(CREW_FINE, world(i, &not ));
        operations[i] = atomic_load(&page->operations);
        assert_true(operations[i] > 1000);
    }
    for (uint32_t i = 0; i < kills; i++) {
        killed how = {1 + (int64_t)((double)operations[i % 12] * (i + 0.5) / kills), 0};
        killed_ones += world(i % 12, &how) < 0;
    }
    assert_true(killed_ones > kills / 2); /* runs differ in length */
    print_message("# %u of %u runs ended before their kill; told after at most %.1f ms\n", kills - killed_ones, kills,
                  slowest * 1e3);
}

static uint32_t count_of(uint32_t usual) {
    const char *count = getenv("FRUGAL_TEST_COUNT");
    return count ? (uint32_t)strtoul(count, NULL, 10) : usual;
}

static void test_members(void **state) {
    (void)state;
    kill_everywhere(kill_member, count_of(200));
}

static void test_openers(void **state) {
    (void)state;
    kill_everywhere(kill_opener, count_of(200));
}

/* In the middle of anything: a row that is being written, a system call. */
static void test_at_random(void **state) {
    (void)state;
    uint32_t kills = count_of(100);
    for (uint32_t i = 0; i < kills; i++) {
        killed how = {0, 1 + (unsigned)(test_mix3(i, 3, 4) % 12000)};
        if (i % 2)
            kill_member(i, &how);
        else
            kill_opener(i, &how);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_openers),
        cmocka_unit_test(test_at_random),
    };
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
