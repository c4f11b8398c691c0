/* refused.h - what a call that is refused says and leaves behind, and an instance that refuses every call. Include
 * after cmocka.h. */
#ifndef REFUSED_H
#define REFUSED_H

#include "tests/expect.h"
#include "tests/rig.h"

#define assert_fails(wanted, call, text1, text2) expect_failure(wanted, call, text1, text2, #call, __LINE__)

/* Opening `desc` fails, and what comes out can be closed, with all memory given back. */
static inline void assert_open_fails(frugal_status wanted, const frugal_desc *desc, const char *text1,
                                     const char *text2) {
    test_counter counter = {0};
    frugal_desc d = *desc;
    frugal *f = (frugal *)(void *)&counter; /* must be overwritten */
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    assert_fails(wanted, frugal_open(&d, &f), text1, text2);
    assert_ptr_not_equal(f, &counter);
    frugal_close(f);
    assert_int_equal(0, (int)counter.bytes_out);
    assert_int_equal(0, (int)counter.blocks_out);
}

/* An instance that is not there, or whose open failed: every call but stop and close says so. */
static inline void check_refused_by_all(frugal *f) {
    float row[5];
    uint64_t key = 0, count = 0, stride;
    const void *view;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    frugal_batch batch = {&keys, 1, 0};
    frugal_records records;
    frugal_stats stats;
    frugal_device_ops ops = {0};
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_attach(f, 0, &ops, NULL));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_announce(f, 0, 0, &batch));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_try_announce(f, 0, 0, &batch));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_lookup(f, 0, 0, row));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_try_lookup(f, 0, 0, row));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_get_records(f, 0, 0, &records));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_update(f, 0, 0, NULL));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_cancel(f, 0));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_drain(f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_read_rows(f, &keys, row, NULL));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_write_rows(f, &keys, row, NULL));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_view(f, 0, &view, &stride));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_release_holders(f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_preload(f, 0, &keys));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_secondaries(f, 0, &keys, 1));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_begin_counting(f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_get_counts(f, &keys, &count));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_set_counts(f, &keys, &count));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_rank_keys(f, 0, 1, &key, NULL));
    assert_int_equal(0, frugal_worth(f, 0));
    assert_null(frugal_record_of(f, 0, 0));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_verify(f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(0, frugal_help(f));
    frugal_get_stats(f, &stats);
}

#endif /* REFUSED_H */
