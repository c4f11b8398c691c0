/* test_read_ahead.c - pages of a table in a file (read_ahead.c): those of announced rows and of their state are
 * asked for before the rows are looked up, none that is in memory, none without a file; what the system refuses is no
 * error; the table's bits are those of the reference throughout.
 *
 * The library is compiled into this program, with calls of the system that say what is in memory and note what is asked
 * for. Pages are small here, so that rows of a few floats have pages of their own. Do not link frugal_flush.o. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/scratch.h"

enum { PAGE = 64, PAGES = 1 << 17 };

static struct {
    pthread_mutex_t lock;
    unsigned char *map; /* of the file; NULL: none */
    uint8_t resident[PAGES];
    uint32_t asked, calls, looks, again; /* pages; calls; looks; calls for pages that all were in memory */
    size_t most;                         /* bytes of a call */
    int refusal;                         /* an errno */
    int is_memory;                       /* the file system says so */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int noting_madvise(void *at, size_t bytes, int advice) {
    if (advice != MADV_WILLNEED) return madvise(at, bytes, advice);
    pthread_mutex_lock(&world.lock);
    int refusal = world.refusal;
    world.calls++;
    world.most = bytes > world.most ? bytes : world.most;
    size_t first = world.map ? (size_t)((unsigned char *)at - world.map) / PAGE : PAGES;
    uint32_t found = 0;
    for (size_t i = first; !refusal && i < first + bytes / PAGE && i < PAGES; i++) {
        world.asked++, found += world.resident[i];
        world.resident[i] = 1;
    }
    world.again += found == bytes / PAGE;
    pthread_mutex_unlock(&world.lock);
    errno = refusal;
    return refusal ? -1 : 0;
}

static int noting_mincore(void *at, size_t bytes, unsigned char *states) {
    pthread_mutex_lock(&world.lock);
    size_t first = (size_t)((unsigned char *)at - world.map) / PAGE;
    world.looks++;
    for (size_t i = 0; i < bytes / PAGE; i++) states[i] = world.resident[first + i] | 2; /* other bits mean nothing */
    pthread_mutex_unlock(&world.lock);
    return 0;
}

static int noting_fstatfs(int file, struct statfs *out) {
    int result = fstatfs(file, out);
    out->f_type = world.is_memory ? 0x01021994 : 0xef53; /* tmpfs; ext4. /tmp may be either */
    return result;
}

#define madvise            noting_madvise
#define mincore            noting_mincore
#define fstatfs            noting_fstatfs
#define LOOKS_BY_CACHESTAT 0
#include "frugal_flush.c"
#undef madvise
#undef mincore
#undef fstatfs

#include "tests/unit/host/refused.h"

/* Pages as the library counts them, from now on: no announcement has come yet. */
static void watch(frugal *f) {
    memset(world.resident, 0, sizeof world.resident);
    world.asked = world.calls = world.looks = world.again = 0;
    world.most = 0;
    world.map = f->file ? table_map(f) : NULL;
    if (f->file) f->ahead.page = PAGE;
}

static void open_watched(rig *r, const frugal_desc *desc) {
    frugal_desc d = *desc;
    unlink(scratch_path("table"));
    rig_open(r, &d);
    watch(r->f);
}

static frugal_desc file_desc(void) {
    frugal_desc d = rig_desc();
    world.refusal = world.is_memory = 0;
    d.file = scratch_path("table"), d.stuck_seconds = 10;
    return d;
}

/* The number of pages of these bytes that are not in memory. */
static uint32_t missing(const void *at, size_t bytes) {
    size_t from = (size_t)((const unsigned char *)at - world.map), first = from / PAGE;
    size_t last = (from + bytes - 1) / PAGE;
    uint32_t n = 0;
    for (size_t i = first; i <= last; i++) n += !world.resident[i];
    return n;
}

/* Of the rows of a batch that is announced. */
static uint32_t missing_weights(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    uint32_t n = 0;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; i < b->n_unique; i++) n += missing(weights_of(f, b->rows[i]), frugal_row_bytes(&f->store));
    pthread_mutex_unlock(&world.lock);
    return n;
}
static uint32_t missing_state(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    uint32_t n = 0;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; f->store.state && i < b->n_unique; i++)
        n += missing(state_of(f, b->rows[i]), f->store.state_floats * sizeof(float));
    pthread_mutex_unlock(&world.lock);
    return n;
}

static void help_all(frugal *f) {
    while (frugal_help(f)) {
    }
}

/* Announces the steps before `end`, step by step. */
static void announce_until(rig *r, uint64_t end) {
    while (r->announced[0] < end)
        for (uint32_t d = 0; d < 2; d++) rig_announce(r, d);
}

/* >>asking */

/* Below HELPS the optimizer's kind; BF16 and more: weights of bf16. */
enum { HELPS = FRUGAL_OPTIMIZER_KINDS, BF16 = 2 * HELPS };

/* Help asks for all that is announced; a lookup, for what is left of its own batch. No page that is in memory is asked
 * for, and one that has left it is asked for again. */
static void test_before_the_lookup(void **state) {
    int kind = (int)(intptr_t)*state % HELPS, helps = (intptr_t)*state / HELPS % 2 > 0;
    frugal_desc d = file_desc();
    rig r = {0};
    d.optimizer.kind = (frugal_optimizer_kind)kind, d.rows_as = (intptr_t)*state < BF16 ? FRUGAL_FP32 : FRUGAL_BF16;
    open_watched(&r, &d);
    uint64_t before = 0;
    for (int step = 0; step < 40; step++) {
        announce_until(&r, r.step + (helps ? 3 : 1));
        if (helps) help_all(r.f);
        for (uint32_t i = 0; i < 2; i++) {
            if (!helps) rig_lookup(&r, i);
            for (uint64_t s = r.step; s < r.announced[i]; s++) {
                assert_int_equal(0, missing_weights(r.f, i, s));
                assert_int_equal(0, missing_state(r.f, i, s));
            }
            if (helps) rig_lookup(&r, i);
        }
        for (uint32_t i = 0; i < 2; i++) rig_update(&r, i);
        rig_judge(&r, 0);
        frugal_stats stats;
        frugal_get_stats(r.f, &stats);
        assert_int_equal(world.asked, stats.pages_asked - before);
        assert_int_equal(0, world.again);
        if (step == 20 && !helps) { /* all are put out of memory, while nothing is announced */
            assert_true(world.asked > 0);
            before = stats.pages_asked;
            watch(r.f);
        }
    }
    assert_true(world.asked > 0);
    rig_finish(&r, 0);
    world.map = NULL;
}

/* Workers ask while nobody looks up. */
static void test_by_workers(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    (void)state;
    d.workers = 2, d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    open_watched(&r, &d);
    for (int round = 0; round < 20; round++) {
        announce_until(&r, r.step + 4);
        for (uint32_t i = 0; i < 2; i++)
            for (uint64_t s = r.step; s < r.announced[i]; s++)
                while (missing_weights(r.f, i, s) + missing_state(r.f, i, s) > 0) usleep(100);
        rig_train(&r, 4);
    }
    rig_finish(&r, 0);
    world.map = NULL; /* no call came after the file was unmapped: it would be found by the sanitizers, too */
}

/* A batch that another process has posted is announced by the one that opened, and asked for there. */
static void test_posted(void **state) {
    frugal_desc d = file_desc();
    frugal *f, *joined;
    char name[32];
    uint64_t keys[4] = {0, 9, 39, 7};
    float rows[4 * 5];
    const frugal_keys k = {.keys = keys, .n = 4};
    (void)state;
    snprintf(name, sizeof name, "ahead.%ld", (long)getpid());
    unlink(d.file);
    d.devices = 1, d.workers = 1, d.name = name;
    f = open_or_fail(&d);
    watch(f);
    assert_int_equal(FRUGAL_OK, frugal_join(name, 30, &joined));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(joined, 0, &(frugal_cpu_desc){0}));
    assert_int_equal(FRUGAL_OK, frugal_announce(joined, 0, 0, &(frugal_batch){.segments = &k, .n_segments = 1}));
    assert_int_equal(FRUGAL_OK, frugal_lookup(joined, 0, 0, rows));
    for (int waits = 0; missing_weights(f, 0, 0) + missing_state(f, 0, 0) > 0; waits++) {
        assert_in_range(waits, 0, 100000);
        usleep(100);
    }
    assert_int_equal(FRUGAL_OK, frugal_close(joined));
    frugal_close(f);
    world.map = NULL;
}

static void announce_rows(frugal *f, uint64_t step, const uint64_t *keys, uint32_t n, int read_only) {
    const frugal_keys k = {.keys = keys, .n = n};
    const frugal_batch batch = {.segments = &k, .n_segments = 1, .read_only = read_only};
    if (frugal_announce(f, 0, step, &batch) != FRUGAL_OK) fail_msg("announce: %s", frugal_message());
}

static void attach_watched(frugal *f) {
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){0}));
    watch(f);
}

/* Neighbours are asked for by one call; rows of several pages by calls that are not too long; a batch that is only read
 * needs no state. */
static void test_ranges(void **state) {
    frugal_table table = {.rows = 1000};
    frugal_desc d = file_desc();
    uint64_t keys[64], large[] = {2};
    (void)state;
    d.tables = &table, d.n_tables = 1, d.devices = 1, d.max_keys = 64, d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    unlink(d.file);
    frugal *f = open_or_fail(&d);
    attach_watched(f);
    for (uint64_t i = 0; i < 64; i++) keys[i] = 501 + i; /* 32 bytes a row, 4 of state: half a page at both ends */
    announce_rows(f, 0, keys, 64, 1);
    help_all(f);
    assert_true(world.calls == 1 && world.asked == 33);
    announce_rows(f, 1, keys, 64, 0);
    help_all(f);
    assert_true(world.calls == 2 && world.asked == 33 + 5);
    for (uint64_t i = 0; i < 64; i++) keys[i] = 6 * i; /* two pages lie between */
    announce_rows(f, 2, keys, 64, 1);
    help_all(f);
    assert_true(world.calls == 2 + 64 && world.asked == 33 + 5 + 64);
    frugal_close(f);

    table.rows = 4, d.dim = 40000, d.max_keys = 1;
    unlink(d.file);
    f = open_or_fail(&d);
    attach_watched(f);
    announce_rows(f, 0, large, 1, 1);
    help_all(f);
    assert_true(world.asked == 40000 * 4 / PAGE && world.calls == 2 && world.most == AHEAD_BYTES);
    frugal_close(f);

    d.rows_as = FRUGAL_FP16; /* half as many pages */
    unlink(d.file);
    f = open_or_fail(&d);
    attach_watched(f);
    announce_rows(f, 0, large, 1, 1);
    help_all(f);
    assert_int_equal(40000 * 2 / PAGE, world.asked);
    frugal_close(f);
    world.map = NULL;
}

/* >>not asking */

/* No table in a file, or in a file that is memory: the system is neither asked nor looked at. */
static void test_in_memory(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    int is_file = *state != NULL;
    if (!is_file) d.file = NULL;
    world.is_memory = is_file;
    d.workers = 1;
    open_watched(&r, &d);
    rig_train(&r, 20);
    assert_true(world.calls == 0 && world.looks == 0);
    rig_finish(&r, 0);
    world.map = NULL;
}

/* A refusal is no error. One that says "never" is the last; after one that says "not now" it is asked on. */
static void test_refused(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    open_watched(&r, &d);
    world.refusal = (int)(intptr_t)*state;
    rig_train(&r, 20);
    if (world.refusal == EAGAIN)
        assert_true(world.calls > 40);
    else
        assert_int_equal(1, world.calls);
    rig_finish(&r, 0);
    world.map = NULL;
}

/* Where all is in memory, it is looked at more and more rarely; where a page is missing again, all are looked at. */
static void test_settled(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    (void)state;
    open_watched(&r, &d);
    memset(world.resident, 1, sizeof world.resident);
    rig_train(&r, AHEAD_TRUSTED / 2); /* two devices, a piece each */
    world.looks = 0;
    rig_train(&r, 4 * AHEAD_SAMPLED);
    assert_in_range(world.looks, 1, 8 * 2 * RIG_KEYS);
    assert_int_equal(0, world.asked);
    memset(world.resident, 0, sizeof world.resident);
    rig_train(&r, AHEAD_SAMPLED);
    assert_true(world.asked > 0);
    memset(world.resident, 0, sizeof world.resident);
    rig_train(&r, 1);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(0, missing_weights(r.f, i, r.step - 1));
    rig_finish(&r, 0);
    world.map = NULL;
}

/* Batches that are cancelled are dropped, and so are those of closed steps. What is announced anew is asked for. */
static void test_cancelled(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    (void)state;
    open_watched(&r, &d);
    rig_train(&r, 5);
    announce_until(&r, r.step + 4);
    memset(world.resident, 0, sizeof world.resident);
    world.asked = 0;
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, r.step + 1));
    r.announced[0] = r.announced[1] = r.step + 1;
    help_all(r.f);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(0, missing_weights(r.f, i, r.step));
    memset(world.resident, 0, sizeof world.resident);
    uint32_t asked = world.asked;
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, r.step)); /* of what was asked for, nothing is left */
    r.announced[0] = r.announced[1] = r.step;
    help_all(r.f);
    assert_int_equal(asked, world.asked);
    rig_train(&r, 2);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(0, missing_weights(r.f, i, r.step - 1));
    announce_until(&r, r.step + 4);
    rig_finish(&r, 4);
    world.map = NULL;
}

/* A device whose data has ended leaves the others' batches to be asked for. */
static void test_finished(void **state) {
    frugal_desc d = file_desc();
    rig r = {0};
    uint64_t keys[] = {3, 17, 39};
    float rows[3 * 5];
    (void)state;
    open_watched(&r, &d);
    rig_train(&r, 3);
    assert_int_equal(FRUGAL_OK, frugal_finish(r.f, 1));
    for (uint64_t s = r.step; s < r.step + 9; s++) {
        memset(world.resident, 0, sizeof world.resident);
        announce_rows(r.f, s, keys, 3, 1);
        assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, 0, s, rows));
        assert_int_equal(0, missing_weights(r.f, 0, s));
        assert_int_equal(FRUGAL_OK, frugal_update(r.f, 0, s, NULL));
    }
    rig_free(&r);
    world.map = NULL;
}

/* Closed while batches wait to be asked for. */
static void test_closed(void **state) {
    frugal_desc d = file_desc();
    (void)state;
    d.workers = 2;
    for (int round = 0; round < 50; round++) {
        rig r = {0};
        open_watched(&r, &d);
        rig_train(&r, 1);
        announce_until(&r, r.step + 4);
        rig_free(&r);
        uint32_t calls = world.calls;
        usleep(200);
        assert_int_equal(calls, world.calls);
        world.map = NULL;
    }
}

static int remove_scratch(void **state) {
    (void)state;
    scratch_look(1);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define BEFORE(kind, word, name, ...)                                                                                  \
    CASE("test_before_the_lookup, " name, test_before_the_lookup, FRUGAL_##kind),                                      \
        CASE("test_before_the_lookup, " name ", with help", test_before_the_lookup, HELPS + FRUGAL_##kind),            \
        CASE("test_before_the_lookup, " name ", bf16", test_before_the_lookup, BF16 + FRUGAL_##kind),
        FRUGAL_OPTIMIZERS(BEFORE) cmocka_unit_test(test_by_workers),
        cmocka_unit_test(test_posted),
        cmocka_unit_test(test_ranges),
        CASE("test_in_memory, no file", test_in_memory, 0),
        CASE("test_in_memory, a file that is memory", test_in_memory, 1),
        CASE("test_refused, never", test_refused, EINVAL),
        CASE("test_refused, not now", test_refused, EAGAIN),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_finished),
        cmocka_unit_test(test_closed),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
