/* test_shares_failing.c - shares and manifests whose allocations and calls of the system fail, each in turn: a status
 * says so, the manifest that was there is whole, with its shares, and nothing else is left. One machine of one, so that
 * none waits for others: it speaks to itself.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/failing_files.h"

#include "frugal_flush.c"

#include <cmocka.h>
#include "tests/case.h"
#include "tests/machines/dealt.h"
#include "tests/unit/host/saved.h"

typedef struct one { /* machine */
    wires wires;
    frugal_wire wire;
    frugal_machines machines;
    frugal_desc desc;
    test_counter counter; /* of its memory */
    frugal *f;
} one;

static const uint8_t homes[DEALT_MOST];

static frugal_status open_one(one *o, const char *const *saved, uint32_t n) {
    wires_init(&o->wires, &(wires_options){.seed = 1, .machines = 1});
    o->wire = wires_of(&o->wires, 0);
    o->machines = (frugal_machines){.wire = &o->wire, .deal = FRUGAL_DEAL_LISTED, .homes = homes};
    o->desc = dealt_desc(FRUGAL_ADAGRAD);
    o->desc.machines = &o->machines, o->desc.saved = saved, o->desc.n_saved = n;
    o->desc.allocate = test_allocate, o->desc.release = test_release, o->desc.user = &o->counter;
    return frugal_open(&o->desc, &o->f);
}

static void close_one(one *o) {
    frugal_close(o->f);
    wires_destroy(&o->wires);
    assert_int_equal(0, (int)o->counter.blocks_out);
}

static void train_one(one *o, uint64_t from, uint64_t to) {
    for (uint32_t d = 0; from == 0 && d < DEALT_DEVICES; d++)
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(o->f, d, NULL));
    assert_int_equal(FRUGAL_OK, dealt_train(o->f, 0, DEALT_DEVICES, from, to));
}

/* The saves open, and have these rows. */
static void check_opens(frugal *f, const char *const *saved, uint32_t n) {
    static float rows[2][2][DEALT_MOST * 2 * DEALT_SIZE];
    static one o;
    memset(&o, 0, sizeof o);
    if (open_one(&o, saved, n) != FRUGAL_OK) fail_msg("%s", frugal_message());
    dealt_read(f, rows[0][0], rows[0][1]), dealt_read(o.f, rows[1][0], rows[1][1]);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    close_one(&o);
}

/* Over a manifest that may be replaced. */
static void test_saving(void **state) {
    int increment = (int)(intptr_t)*state, failed = 0;
    const char *paths[2] = {saved_path("base"), saved_path("increment")}, *path = paths[increment];
    static one o;
    memset(&o, 0, sizeof o);
    frugal_saved before, after;
    assert_int_equal(FRUGAL_OK, open_one(&o, NULL, 0));
    train_one(&o, 0, 1);
    for (int i = 0; i <= increment; i++) assert_int_equal(FRUGAL_OK, save_one(o.f, paths[i], 0, 0));
    if (increment) assert_int_equal(FRUGAL_OK, save_one(o.f, paths[0], 0, 1));
    train_one(&o, 1, 3);
    for (int at = 1;; at++) {
        int files = saved_count();
        assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &before));
        let_files_fail(0, at, EIO, 0);
        frugal_status status = save_one(o.f, path, increment, 1);
        int failures = failing_files.failures;
        let_files_fail(0, 0, 0, 0);
        assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &after));
        if (failures == 0) {
            assert_int_equal(FRUGAL_OK, status);
            break;
        }
        failed++;
        int is_there = status == FRUGAL_OK || strstr(frugal_message(), "has its name already");
        assert_true(is_there == (after.id != before.id)); /* what comes behind it removes old shares */
        if (status == FRUGAL_OK && increment) break;      /* there are no changes any more */
        if (is_there && !increment) assert_int_equal(FRUGAL_OK, save_one(o.f, path, 0, 1)); /* removes what is left */
        if (is_there) continue;
        assert_int_equal(FRUGAL_ERR_FILE, status);
        assert_int_equal(files, saved_count());
    }
    assert_in_range(failed, 15, 90);
    check_opens(o.f, paths, increment ? 2 : 1);
    close_one(&o);
}

static void test_saving_without_memory(void **state) {
    const char *path = saved_path("base");
    static one o;
    memset(&o, 0, sizeof o);
    (void)state;
    assert_int_equal(FRUGAL_OK, open_one(&o, NULL, 0));
    train_one(&o, 0, 2);
    for (uint64_t at = 1;; at++) {
        uint64_t blocks = o.counter.blocks_out;
        o.counter.fail_at = o.counter.calls + at, o.counter.failures = 0;
        frugal_status status = save_one(o.f, path, 0, 0);
        if (o.counter.failures == 0) {
            assert_int_equal(FRUGAL_OK, status);
            assert_in_range(at, 5, 20);
            break;
        }
        assert_fails(FRUGAL_ERR_MEMORY, status, "bytes for", "");
        assert_in_range(o.counter.blocks_out, blocks, blocks + 1); /* what machines say to each other is kept */
        assert_int_equal(0, saved_count());
    }
    o.counter.fail_at = 0;
    check_opens(o.f, &path, 1);
    close_one(&o);
}

/* Each call fails, or each allocation. */
static void test_restoring(void **state) {
    int memory = (int)(intptr_t)*state;
    const char *paths[2] = {saved_path("base"), saved_path("increment")};
    static one o;
    memset(&o, 0, sizeof o);
    assert_int_equal(FRUGAL_OK, open_one(&o, NULL, 0));
    train_one(&o, 0, 1);
    assert_int_equal(FRUGAL_OK, save_one(o.f, paths[0], 0, 0));
    train_one(&o, 1, 2);
    assert_int_equal(FRUGAL_OK, save_one(o.f, paths[1], 1, 0));
    for (int at = 1;; at++) {
        one next = {.f = NULL};
        if (memory)
            next.counter.fail_at = (uint64_t)at;
        else
            let_files_fail(0, at, EIO, 0);
        frugal_status status = open_one(&next, paths, 2);
        int failures = memory ? (int)next.counter.failures : failing_files.failures;
        let_files_fail(0, 0, 0, 0);
        char said[512];
        snprintf(said, sizeof said, "%s", frugal_message());
        close_one(&next);
        if (failures == 0) {
            assert_int_equal(FRUGAL_OK, status);
            if (at < 20 || at > 200) fail_msg("%d calls", at);
            break;
        }
        if (status != (memory ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_FILE)) fail_msg("call %d failed: %s", at, said);
        assert_true(memory || (strstr(said, "Input/output error") && strstr(said, saved_folder)));
    }
    check_opens(o.f, paths, 2);
    close_one(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("a base, each call fails", test_saving, 0),
        SAVED_CASE("an increment, each call fails", test_saving, 1),
        SAVED_TEST(test_saving_without_memory),
        SAVED_CASE("restoring, each call fails", test_restoring, 0),
        SAVED_CASE("restoring, each allocation fails", test_restoring, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
