/* test_counts.c - counts of touches: what counts, what the byte stands for, which rows a counted cache keeps, calls and
 * their errors. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "frugal_serve.h"
#include "src/counting.h"
#include "src/format.h"
#include "tests/case.h"
#include "tests/unit/host/saved.h"

enum { ROWS = 400, MOST = 64, HALVED_IN = 64, EACH = 7 }; /* EACH: rows whose counts a step halves */

static frugal_table one_table = {.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};

static frugal_desc one_desc(uint32_t devices) {
    frugal_desc d = rig_desc();
    d.tables = &one_table, d.n_tables = 1, d.devices = devices, d.max_keys = MOST;
    return d;
}

static frugal *open_counted(const frugal_desc *d, uint64_t cache_rows, frugal_cache_policy policy) {
    frugal *f = open_or_fail(d);
    frugal_cpu_desc cache = {.cache_rows = cache_rows, .policy = policy};
    for (uint32_t i = 0; i < frugal_settings(f)->devices; i++)
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, i, &cache));
    return f;
}

typedef struct batch {
    uint32_t n;
    uint64_t keys[MOST];
    int read_only;
} batch;

/* A step of all devices without gradients; returns the hits. The devices announce in this order, the loader before the
 * trainers, as far as L allows. */
static uint64_t step_of(frugal *f, uint64_t step, const batch *batches) {
    frugal_stats before, after;
    float rows[MOST * 5];
    uint32_t devices = frugal_settings(f)->devices;
    frugal_get_stats(f, &before);
    for (uint32_t d = 0; d < devices; d++) {
        frugal_keys keys = {.table = 0, .keys = batches[d].keys, .n = batches[d].n};
        frugal_batch b = {&keys, 1, batches[d].read_only};
        assert_int_equal(FRUGAL_OK, frugal_announce(f, d, step, &b));
    }
    for (uint32_t d = 0; d < devices; d++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, d, step, rows));
    for (uint32_t d = 0; d < devices; d++) assert_int_equal(FRUGAL_OK, frugal_update(f, d, step, NULL));
    frugal_get_stats(f, &after);
    return after.hits - before.hits;
}

static uint64_t count_of(frugal *f, uint64_t key) {
    uint64_t count;
    assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &(frugal_keys){.table = 0, .keys = &key, .n = 1}, &count));
    return count;
}

static void set_count(frugal *f, uint64_t key, uint64_t count) {
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &(frugal_keys){.table = 0, .keys = &key, .n = 1}, &count));
}

static void begin_counting(frugal *f) {
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &(frugal_keys){.table = 0, .keys = NULL, .n = 0}, NULL));
}

/* What is set comes back: 0 to 2 exactly, others within half a step of 2 ^ (1 / 5); and rising with what is set. */
static void test_what_a_byte_stands_for(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_or_fail(&d);
    assert_int_equal(0, count_of(f, 3)); /* nothing is counted yet */
    for (uint64_t count = 0; count <= 2; count++) {
        set_count(f, 3, count);
        assert_int_equal(count, count_of(f, 3));
    }
    uint64_t last = 0;
    for (uint64_t count = 3; count < 298000000; count += 1 + count / 50) {
        set_count(f, 3, count);
        uint64_t found = count_of(f, 3);
        if (found < last || fabs((double)found - (double)count) > 0.08 * (double)count + 1)
            fail_msg("%llu is %llu", (unsigned long long)count, (unsigned long long)found);
        last = found;
        set_count(f, 4, found); /* a count that came from a byte goes back to it */
        assert_int_equal(found, count_of(f, 4));
    }
    set_count(f, 3, UINT64_MAX);
    assert_in_range(count_of(f, 3), 297000000, 298000000);
    frugal_close(f);
}

/* A device alone: every touch counts, and the mean of many rows' counts is the number of touches, of which each row
 * forgets half every 64 steps. Each byte is within what its deviation of 27% allows. */
static void test_counts_are_right_in_the_mean(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    begin_counting(f);
    batch b = {.n = MOST};
    double wanted[MOST] = {0};
    for (uint64_t step = 0; step < 1000; step++) {
        for (uint32_t i = 0; i < MOST; i++) {
            b.keys[i] = i;
            wanted[i] = wanted[i] / (i / EACH == step % HALVED_IN ? 2 : 1) + 1;
        }
        step_of(f, step, &b);
        if (step != 0 && step != 1 && step != 99 && step != 999) continue;
        double sum = 0, all = 0;
        for (uint64_t i = 0; i < MOST; i++) {
            double count = (double)count_of(f, i), n = wanted[i];
            if (count < 0.3 * n || count > 2.5 * n) fail_msg("row %d: %g touches of %g", (int)i, count, n);
            sum += count, all += n;
        }
        if (fabs(sum - all) > 0.12 * all) fail_msg("%g touches of all, of %g", sum, all);
    }
    assert_int_equal(0, count_of(f, MOST));
    frugal_close(f);
}

/* A row that two devices change in turn counts once, when nobody had changed it; a row that each device only reads
 * counts for both. None of the rows has its turn to be halved. */
static void test_only_current_copies_count(void **state) {
    (void)state;
    frugal_desc d = one_desc(2);
    frugal *f = open_counted(&d, 0, FRUGAL_CACHE_COUNTED);
    begin_counting(f);
    for (uint64_t step = 0; step < 50; step++) {
        batch b[2] = {{.n = 2, .keys = {370, 380 + step % 2}}, {.n = 1, .keys = {381 - step % 2}}};
        step_of(f, step, b);
    }
    assert_true(count_of(f, 370) > 10);
    assert_int_equal(1, count_of(f, 380));
    assert_int_equal(1, count_of(f, 381));
    assert_int_equal(0, count_of(f, 390));
    batch both[2] = {{.n = 1, .keys = {390}, .read_only = 1}, {.n = 1, .keys = {390}, .read_only = 1}};
    step_of(f, 50, both);
    assert_in_range(count_of(f, 390), 1, 2);
    frugal_close(f);
}

/* The same announcements give the same counts and hits, whatever is announced ahead and whoever flushes. */
static void test_counts_are_reproducible(void **state) {
    (void)state;
    uint64_t counts[2][ROWS], hits[2] = {0}, keys[ROWS];
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    for (uint32_t run = 0; run < 2; run++) {
        frugal_desc d = one_desc(3);
        d.workers = 2 * run, d.lookahead = 1 + 6 * run;
        frugal *f = open_counted(&d, 48, FRUGAL_CACHE_COUNTED);
        uint64_t ahead = 0;
        for (uint64_t step = 0; step < 300; step++) {
            float rows[MOST * 5];
            for (; ahead < 300 && ahead <= step + d.lookahead; ahead++)
                for (uint32_t i = 0; i < 3; i++) {
                    uint64_t some[MOST];
                    for (uint32_t k = 0; k < MOST; k++) {
                        uint64_t bits = test_mix3(ahead, i, k);
                        some[k] = bits / 8 % (bits % 8 ? 40 : ROWS);
                    }
                    frugal_keys batch = {.table = 0, .keys = some, .n = MOST};
                    assert_int_equal(FRUGAL_OK, frugal_announce(f, i, ahead, &(frugal_batch){&batch, 1, 0}));
                }
            for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, step, rows));
            for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_update(f, i, step, NULL));
        }
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        frugal_stats stats;
        frugal_get_stats(f, &stats);
        hits[run] = stats.hits;
        assert_int_equal(FRUGAL_OK,
                         frugal_get_counts(f, &(frugal_keys){.table = 0, .keys = keys, .n = ROWS}, counts[run]));
        frugal_close(f);
    }
    assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
    assert_true(hits[0] > 0);
    assert_int_equal(hits[0], hits[1]);
}

/* One set of eight places: a row enters a full set only if it is worth more than one that is there, and takes the place
 * of the one that is worth least. */
static void test_which_row_enters(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
    batch eight = {.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}, .read_only = 1};
    batch ninth = {.n = 1, .keys = {8}, .read_only = 1}, third = {.n = 1, .keys = {3}, .read_only = 1};
    for (uint64_t i = 0; i < 8; i++) set_count(f, i, i == 3 ? 20 : 1000);
    assert_int_equal(0, step_of(f, 0, &eight));
    assert_int_equal(8, step_of(f, 1, &eight));
    assert_int_equal(0, step_of(f, 2, &ninth));
    assert_int_equal(0, step_of(f, 3, &ninth)); /* it was not let in */
    assert_int_equal(8, step_of(f, 4, &eight));
    set_count(f, 8, 500);
    assert_int_equal(0, step_of(f, 5, &ninth));
    assert_int_equal(1, step_of(f, 6, &ninth)); /* in the place of row 3 */
    assert_int_equal(0, step_of(f, 7, &third));
    assert_int_equal(7, step_of(f, 8, &eight));
    for (uint64_t i = 0; i < 9; i++) set_count(f, i, i == 3 ? 5 : 0); /* also of the copies */
    assert_int_equal(0, step_of(f, 9, &third));
    assert_int_equal(1, step_of(f, 10, &third));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_close(f);
}

/* A full set of rows that are worth much; another device takes one of them: its place is the next to be given away, one
 * step later. What the third device has lost in that step leaves room for this in the list. */
static void test_outdated_copies_leave_first(void **state) {
    (void)state;
    frugal_desc d = one_desc(3);
    d.max_keys = 8;
    frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
    batch own[3] = {
        {.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}, {.n = 0}, {.n = 8, .keys = {10, 11, 12, 13, 14, 15, 16, 17}}};
    batch taken[3] = {{.n = 0}, own[2], {.n = 1, .keys = {3}}}, cold[3] = {{.n = 1, .keys = {8}}};
    batch rest[3] = {{.n = 7, .keys = {0, 1, 2, 4, 5, 6, 7}}};
    for (uint64_t i = 0; i < 8; i++) set_count(f, i, 1000);
    step_of(f, 0, own);
    assert_int_equal(16, step_of(f, 1, own));
    assert_int_equal(0, step_of(f, 2, cold)); /* no room for it */
    assert_int_equal(0, step_of(f, 3, cold));
    step_of(f, 4, taken);
    assert_int_equal(0, step_of(f, 5, cold));
    assert_int_equal(1, step_of(f, 6, cold));
    assert_int_equal(7, step_of(f, 7, rest));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_close(f);
}

/* A full set of the first device. The other device passes by: it takes one of these rows, whose count is that of its
 * home, and keeps its own row, which is worth less than that but more than a sixteenth of it. At home the row is let in
 * again. So it is if counts are set just before (1), or have all been halved (2). A row of few touches whose copy was
 * not current is worth nothing. */
static void test_who_passes_by(void **state) {
    const intptr_t before = (intptr_t)*state;
    frugal_desc d = one_desc(2);
    frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
    batch home[2] = {{.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}, {.n = 8, .keys = {10, 11, 12, 13, 14, 15, 16, 17}}};
    batch none = {.n = 0}, cold = {.n = 1, .keys = {20}}, pass[2] = {none, {.n = 1, .keys = {3}}};
    batch there[2] = {none, cold}, here[2] = {cold, none}, nobody[2] = {none, none};
    for (uint64_t i = 0; i < 18; i++) set_count(f, i, i < 8 ? 1000 : 200);
    step_of(f, 0, home);
    assert_int_equal(16, step_of(f, 1, home));
    uint64_t step = 2;
    for (uint64_t i = 0; i < 18 && before == 1; i++) set_count(f, i, i < 8 ? 1000 : 200);
    for (; before == 2 && step < 2 + HALVED_IN; step++) step_of(f, step, nobody);
    assert_int_equal(0, step_of(f, step, pass));
    assert_int_equal(15, step_of(f, step + 1, home)); /* all of the other device's, so it gave no place to row 3 */
    assert_int_equal(16, step_of(f, step + 2, home));
    assert_int_equal(0, step_of(f, step + 3, there) + step_of(f, step + 4, here));
    assert_int_equal(16, step_of(f, step + 5, home));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_close(f);
}

/* A row that another device has had comes back to a full set, with the count 1000. It is worth three quarters of that:
 * 200 make room for it, and 660 do not, although they would for a row that has stayed. */
static void test_who_returns(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        frugal_desc d = one_desc(2);
        frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
        batch own[2] = {{.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}}, taken[2] = {{.n = 0}, {.n = 1, .keys = {3}}};
        batch other[2] = {{.n = 1, .keys = {8}}}, back[2] = {{.n = 1, .keys = {3}}};
        for (uint64_t i = 0; i < 9; i++) set_count(f, i, i < 8 ? 1000 : round ? 660 : 200);
        step_of(f, 0, own);
        assert_int_equal(8, step_of(f, 1, own));
        assert_int_equal(0, step_of(f, 2, taken));
        assert_int_equal(0, step_of(f, 3, other));
        assert_int_equal(0, step_of(f, 4, back));
        assert_int_equal(round == 0, step_of(f, 5, back));
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        frugal_close(f);
    }
}

/* A device that only reads a row says nothing about where it lives: when it touches the row with gradients later, it
 * still passes by. */
static void test_who_only_reads(void **state) {
    (void)state;
    frugal_desc d = one_desc(2);
    frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
    batch home[2] = {{.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}, {.n = 8, .keys = {10, 11, 12, 13, 14, 15, 16, 17}}};
    batch reads[2] = {{.n = 0}, {.n = 1, .keys = {3}, .read_only = 1}}, pass[2] = {{.n = 0}, {.n = 1, .keys = {3}}};
    for (uint64_t i = 0; i < 18; i++) set_count(f, i, i < 8 ? 1000 : 200);
    step_of(f, 0, home);
    assert_int_equal(16, step_of(f, 1, home));
    assert_int_equal(0, step_of(f, 2, reads));
    assert_int_equal(16, step_of(f, 3, home)); /* it took the currency of no copy */
    assert_int_equal(0, step_of(f, 4, reads));
    assert_int_equal(0, step_of(f, 5, pass));
    assert_int_equal(15, step_of(f, 6, home)); /* all of the other device's: neither gave it a place */
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_close(f);
}

static void test_ranks(void **state) {
    (void)state;
    frugal_table tables[2] = {{.rows = 30}, {.rows = 50}};
    frugal_desc d = one_desc(1);
    d.tables = tables, d.n_tables = 2;
    frugal *f = open_or_fail(&d);
    uint64_t keys[50], counts[50], ranked[50];
    assert_int_equal(FRUGAL_OK, frugal_rank_keys(f, 1, 3, ranked, counts)); /* nothing counted: by key */
    for (uint64_t i = 0; i < 3; i++) assert_true(ranked[i] == i && counts[i] == 0);
    for (uint64_t i = 0; i < 50; i++) keys[i] = i, counts[i] = i % 5 == 0 ? 0 : 1000 * (i % 7);
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &(frugal_keys){.table = 1, .keys = keys, .n = 50}, counts));
    for (uint32_t n = 0; n <= 50; n += 10) {
        uint64_t found[50] = {0}, found_counts[50];
        assert_int_equal(FRUGAL_OK, frugal_rank_keys(f, 1, n, found, n % 20 ? found_counts : NULL));
        for (uint32_t i = 0; i + 1 < n; i++) {
            uint64_t a = counts[found[i]], b = counts[found[i + 1]];
            assert_true(a > b || (a == b && found[i] < found[i + 1]));
        }
        for (uint32_t i = 0; i < n && n % 20; i++) {
            frugal_keys one = {.table = 1, .keys = &found[i], .n = 1};
            uint64_t count;
            assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &one, &count));
            assert_true(count == found_counts[i]);
        }
        if (n == 10) memcpy(ranked, found, sizeof found);
        for (uint32_t i = 0; i < 10 && n > 10; i++) assert_true(found[i] == ranked[i]);
    }
    assert_int_equal(FRUGAL_OK, frugal_rank_keys(f, 0, 30, ranked, counts)); /* the other table has none */
    for (uint64_t i = 0; i < 30; i++) assert_true(ranked[i] == i && counts[i] == 0);
    frugal_close(f);
}

/* What is halved is half, 0 and 1 become 0, and the last touch by another device is remembered. */
static void test_halves(void **state) {
    (void)state;
    double counts[WORTH_MOST + 1];
    for (int level = 0; level <= WORTH_MOST; level++) counts[level] = (pow(2, level / 5.0) - 1) / (pow(2, 0.2) - 1);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t halved = frugal_halved(byte), level = halved >> LEVEL_AT;
        double half = counts[byte >> LEVEL_AT] / 2;
        assert_int_equal(byte & STAYED, halved & STAYED);
        assert_true(fabs(counts[level] - half) <= 0.1 * half + 0.5);
        if (byte >= 2) assert_true(level < byte >> LEVEL_AT);
    }
}

/* Whatever the sizes are: each row has one turn in as many steps as have two keys of a device for each row, or 64. A
 * copy loses in these steps what counts do, down to less than nothing. */
static void test_turns(void **state) {
    (void)state;
    static const uint64_t rows[] = {1, 63, 64, 65, 400, 1000, 4097};
    static const uint32_t keys[] = {1, 3, 64, 100, 5000};
    for (int i = 0; i < 35; i++) {
        uint64_t n = rows[i % 7], steps = frugal_halving_steps(n, keys[i / 7]), first, end, seen = 0;
        assert_true(steps * keys[i / 7] >= 2 * n && (steps == 64 || (steps > 64 && (steps - 1) * keys[i / 7] < 2 * n)));
        for (uint64_t step = 5 * steps; step < 6 * steps; step++) {
            frugal_halved_rows(n, keys[i / 7], step, &first, &end);
            assert_true(first == seen && end >= first && end <= n);
            seen = end;
        }
        assert_int_equal(n, seen);
        uint64_t fall = frugal_fall(n, keys[i / 7]);
        assert_int_equal(WORTH_MOST + 20, frugal_worth_left(20, 0, fall));
        assert_in_range(frugal_worth_left(20, (uint32_t)steps, fall), WORTH_MOST + 15, WORTH_MOST + 16);
        assert_in_range(frugal_worth_left(20, (uint32_t)steps * 10, fall), WORTH_MOST - 30, WORTH_MOST - 29);
        assert_int_equal(0, frugal_worth_left(WORTH_MOST, 0xffffff, frugal_fall(1, 1)));
    }
}

/* The count of a row that was hot halves in the step whose turn it is, and no other, whatever is touched. The copies of
 * such rows make room for one that is touched now and then, and in the end for rows that are touched once. */
static void test_ages_by_itself(void **state) {
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        frugal_desc d = one_desc(1 + way / 2);
        d.alone = way % 2 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED; /* of one device in place, rows have no words */
        frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
        batch eight[2] = {{.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}}, none[2] = {{.n = 0}}, ninth[2] = {{.n = 1}};
        uint64_t step = 0, others = 0;
        ninth[0].keys[0] = 8;
        for (uint64_t i = 0; i < 8; i++) set_count(f, i, 1000);
        set_count(f, ROWS - 1, 1000);
        step_of(f, step++, eight);
        assert_int_equal(8, step_of(f, step++, eight));
        for (; step < 10 * HALVED_IN; step++) {
            double was = (double)count_of(f, ROWS - 1);
            int turn = step % HALVED_IN == (ROWS - 1) / EACH;
            others += step_of(f, step, step % 4 ? none : ninth);
            double count = (double)count_of(f, ROWS - 1);
            if (turn ? fabs(count - was / 2) > 0.08 * was + 0.5 : count != was)
                fail_msg("step %d: %g of %g", (int)step, count, was);
        }
        assert_true(others > 20); /* after some passes the ninth row stays */
        assert_true(count_of(f, ROWS - 1) < 3 && count_of(f, 0) < 3 && count_of(f, 8) > 5);
        for (uint64_t key = 20; key < 27; key++) {
            batch once[2] = {{.n = 1, .keys = {key}}};
            assert_int_equal(0, step_of(f, step++, once));
        }
        batch now[2] = {{.n = 8, .keys = {8, 20, 21, 22, 23, 24, 25, 26}}};
        assert_int_equal(8, step_of(f, step, now));
        frugal_close(f);
    }
}

/* A copy that is preloaded late is as fresh as one that was just touched, and so is one whose count is set. */
static void test_fresh_copies(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_counted(&d, 8, FRUGAL_CACHE_COUNTED);
    batch eight = {.n = 8, .keys = {0, 1, 2, 3, 4, 5, 6, 7}}, ninth = {.n = 1, .keys = {8}}, none = {.n = 0};
    for (uint64_t round = 0, step = 0; round < 2; round++) {
        for (int i = 0; i < 7 * HALVED_IN; i++) step_of(f, step++, &none);
        for (uint64_t i = 0; i < 9; i++) set_count(f, i, i < 8 ? 1000 : 300);
        if (!round) assert_int_equal(FRUGAL_OK, frugal_preload(f, 0, &(frugal_keys){.keys = eight.keys, .n = 8}));
        for (int i = 0; i < 2; i++) assert_int_equal(0, step_of(f, step++, &ninth));
        assert_int_equal(8, step_of(f, step++, &eight));
    }
    frugal_close(f);
}

/* Trains on until `end`; the batches are a function of the step. */
static void train_to(frugal *f, uint64_t *step, uint64_t end) {
    for (; *step < end; ++*step) {
        batch b[2] = {{.n = 20}, {.n = 20}};
        for (uint32_t i = 0; i < 40; i++) b[i / 20].keys[i % 20] = test_mix2(*step, i) % (i % 2 ? 30 : ROWS);
        step_of(f, *step, b);
    }
}

/* A run that is saved and resumed has the counts of one that goes on; so has one of several threads, in pieces. */
static void test_ages_on(void **state) {
    (void)state;
    uint64_t keys[ROWS], counts[3][ROWS];
    const char *file = saved_path("aged");
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    const frugal_keys all = {.keys = keys, .n = ROWS};
    for (int run = 0; run < 3; run++) {
        uint64_t step = 0;
        frugal_desc d = one_desc(2);
        d.workers = run == 2 ? 2 : 0;
        frugal *f = open_counted(&d, 16, FRUGAL_CACHE_COUNTED);
        train_to(f, &step, 150);
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_release_holders(f)); /* as of a run that is resumed */
        if (run == 1) {
            assert_int_equal(FRUGAL_OK, save_one(f, file, 0, 0));
            frugal_close(f);
            d.saved = &file, d.n_saved = 1, d.first_step = step;
            f = open_counted(&d, 16, FRUGAL_CACHE_COUNTED);
        }
        train_to(f, &step, 300);
        assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &all, counts[run]));
        frugal_close(f);
        assert_memory_equal(counts[0], counts[run], sizeof counts[0]);
    }
}

static void test_what_is_refused(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_or_fail(&d);
    uint64_t keys[2] = {1, ROWS}, counts[2] = {5, 6}, rank[ROWS + 1];
    frugal_keys good = {.table = 0, .keys = keys, .n = 1}, bad = {.table = 0, .keys = keys, .n = 2},
                no_table = {.table = 1, .keys = keys, .n = 1}, no_keys = {.table = 0, .keys = NULL, .n = 1};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_get_counts(NULL, &good, counts), "get_counts", "no open instance");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_set_counts(NULL, &good, counts), "set_counts", "no open instance");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_rank_keys(NULL, 0, 1, rank, NULL), "rank_keys", "no open instance");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_get_counts(f, &good, NULL), "get_counts", "`counts` is NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_set_counts(f, &good, NULL), "set_counts", "`counts` is NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_get_counts(f, NULL, counts), "get_counts", "no keys");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_set_counts(f, &no_keys, counts), "set_counts", "no keys");
    assert_fails(FRUGAL_ERR_KEY, frugal_get_counts(f, &bad, counts), "key 400 at 1", "400 rows");
    assert_fails(FRUGAL_ERR_KEY, frugal_set_counts(f, &bad, counts), "key 400 at 1", "400 rows");
    assert_fails(FRUGAL_ERR_TABLE, frugal_get_counts(f, &no_table, counts), "table 1", "there are 1");
    assert_fails(FRUGAL_ERR_TABLE, frugal_set_counts(f, &no_table, counts), "table 1", "there are 1");
    assert_fails(FRUGAL_ERR_TABLE, frugal_rank_keys(f, 1, 1, rank, NULL), "table 1", "there are 1");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_rank_keys(f, 0, ROWS + 1, rank, NULL), "401 keys", "has 400");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_rank_keys(f, 0, 1, NULL, NULL), "1 keys and no array", "has 400");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_rank_keys(f, 0, 500, NULL, NULL), "500 keys and no array", "has 400");
    assert_int_equal(
        FRUGAL_OK, frugal_get_counts(f, &(frugal_keys){.table = 0, .keys = NULL, .n = 0}, NULL)); /* nothing is asked */
    assert_int_equal(0, count_of(f, 1)); /* nothing was set, and nothing begun */
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    assert_int_equal(8 * ROWS, stats.state_bytes);
    assert_int_equal(0, frugal_worth(f, ROWS));
    assert_int_equal(0, frugal_worth(NULL, 0));
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_begin_counting(NULL), "begin_counting", "no open instance");
    begin_counting(f);
    frugal_get_stats(f, &stats);
    assert_int_equal(9 * ROWS, stats.state_bytes);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    batch b = {.n = 1, .keys = {1}};
    step_of(f, 0, &b);
    assert_fails(FRUGAL_ERR_BUSY, frugal_set_counts(f, &good, counts), "set_counts", "drained");
    assert_int_equal(1, count_of(f, 1));
    frugal_close(f);
}

/* All may be flushed while a step is under way: announced is allowed, looked up is not. */
static void test_set_in_a_step(void **state) {
    (void)state;
    frugal_desc d = one_desc(1);
    frugal *f = open_counted(&d, 16, FRUGAL_CACHE_COUNTED);
    uint64_t key = 1, count = 7;
    float rows[MOST * 5];
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &(frugal_batch){&keys, 1, 0}));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &keys, &count));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, rows));
    assert_fails(FRUGAL_ERR_BUSY, frugal_set_counts(f, &keys, &count), "set_counts", "drained");
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &keys, &count));
    frugal_close(f);
}

static frugal_status no_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static void no_close(void *device) {
    (void)device;
}
static frugal_status no_recount(void *device) {
    (void)device;
    return frugal_fail(FRUGAL_ERR_CUDA, "the copies of the test cannot be reached");
}

/* A device that is not there, of a kind whose cache does not go by counts, or whose cache cannot be told of new ones:
 * the call says so, and the counts are the new ones. */
static void test_told_to_devices(void **state) {
    (void)state;
    frugal_desc d = one_desc(2);
    frugal *f = open_or_fail(&d);
    uint64_t key = 1, count = 5;
    frugal_keys one = {.table = 0, .keys = &key, .n = 1};
    frugal_device_ops ops = {.lookup = no_lookup, .close = no_close};
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, NULL));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &one, &count));
    ops.recount = no_recount;
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops, NULL));
    assert_fails(FRUGAL_ERR_CUDA, frugal_set_counts(f, &one, &count), "copies of the test", "cannot be reached");
    assert_in_range(count_of(f, 1), 4, 6);
    frugal_close(f);
}

static void *read_main(void *f) {
    uint64_t key = 7, count = 0;
    while (frugal_get_counts(f, &(frugal_keys){.table = 0, .keys = &key, .n = 1}, &count) == FRUGAL_OK && count == 0)
        sched_yield();
    return (void *)(uintptr_t)count;
}

/* One thread begins to count while another one reads counts: it finds zeros, then the first touch. ThreadSanitizer sees
 * whether the array is published. */
static void test_begun_meanwhile(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        frugal_desc d = one_desc(1);
        frugal *f = open_counted(&d, 0, FRUGAL_CACHE_COUNTED);
        batch one = {.n = 1, .keys = {7}};
        pthread_t reader;
        void *found;
        if (pthread_create(&reader, NULL, read_main, f)) abort();
        assert_int_equal(FRUGAL_OK, frugal_begin_counting(f));
        step_of(f, 0, &one);
        pthread_join(reader, &found);
        assert_int_equal(1, (int)(uintptr_t)found);
        frugal_close(f);
    }
}

/* Where there is no byte a row, setting counts and attaching a counted cache are refused, and may be tried again. */
static void test_no_memory(void **state) {
    (void)state;
    test_counter counter = {0};
    frugal_desc d = one_desc(2);
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    frugal *f = open_or_fail(&d);
    uint64_t key = 1, count = 3;
    frugal_keys one = {.table = 0, .keys = &key, .n = 1};
    counter.fail_at = counter.calls + 1;
    assert_fails(FRUGAL_ERR_MEMORY, frugal_set_counts(f, &one, &count), "400 bytes", "counts");
    assert_int_equal(0, count_of(f, 1));
    counter.fail_at =
        counter.calls + 5; /* the device, its directory, its copies, where lookups find them, the counts */
    frugal_cpu_desc cache = {.cache_rows = 8, .threads = 1};
    assert_fails(FRUGAL_ERR_MEMORY, frugal_cpu_attach(f, 0, &cache), "400 bytes", "counts");
    counter.fail_at = 0;
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &cache));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &one, &count));
    assert_int_equal(3, count_of(f, 1));
    frugal_close(f);
    assert_int_equal(0, (int)counter.bytes_out);
}

/* Training with caches of each policy has the reference's bits, while counts are set, age and are ranked. */
static void test_bits(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        rig r = {.cache = {.cache_rows = 8u << i % 3, .policy = (frugal_cache_policy)(i % 3)}};
        frugal_desc d = rig_desc();
        d.devices = 1 + (uint32_t)i % 4, d.workers = (uint32_t)i % 2;
        d.alone = i % 2 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
        d.optimizer.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        rig_open(&r, &d);
        for (int round = 0; round < 4; round++) {
            uint64_t keys[10], counts[10];
            rig_train(&r, 7);
            assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
            assert_int_equal(FRUGAL_OK, frugal_rank_keys(r.f, 0, 10, keys, counts));
            for (int k = 0; k < 10; k++) counts[k] = (uint64_t)(k * k);
            if (round == 2)
                assert_int_equal(FRUGAL_OK,
                                 frugal_set_counts(r.f, &(frugal_keys){.table = 0, .keys = keys, .n = 10}, counts));
        }
        rig_finish(&r, 5);
    }
}

static void check_restored(const frugal_desc *d, const char *const *files, uint32_t n, const uint64_t *counts) {
    frugal_desc desc = *d;
    uint64_t keys[ROWS], found[ROWS];
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    desc.saved = files, desc.n_saved = n;
    frugal *f = open_or_fail(&desc);
    assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &(frugal_keys){.table = 0, .keys = keys, .n = ROWS}, found));
    assert_memory_equal(counts, found, sizeof found);
    frugal_close(f);
}

/* Serves the files: the rows are those of the table that is restored from them. */
static void check_served(const frugal_desc *desc, const char *const *files, uint32_t n, const frugal_keys *all) {
    float served[ROWS * 5], restored[ROWS * 5];
    frugal_desc d = *desc;
    frugal_server *s;
    const frugal_served from = {.saved = files, .n_saved = n};
    assert_int_equal(FRUGAL_OK, frugal_serve_open(&(frugal_serve_desc){.from = from, .threads = 1}, &s));
    assert_int_equal(FRUGAL_OK, frugal_serve_lookup(s, all, 1, served, NULL));
    frugal_serve_close(s);
    d.saved = files, d.n_saved = n;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, all, restored, NULL));
    frugal_close(f);
    assert_memory_equal(restored, served, sizeof served);
}

/* Counts are saved and restored: those of the last file, of a base or of an increment. A file whose counts are damaged
 * is refused, wherever it is. A server passes over counts. */
static void test_saved_counts(void **state) {
    (void)state;
    uint64_t keys[ROWS], counts[3][ROWS] = {{0}};
    const char *files[] = {saved_path("base"), saved_path("increment")}, *empty = saved_path("empty");
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    frugal_keys all = {.table = 0, .keys = keys, .n = ROWS};
    frugal_desc d = one_desc(1);
    d.increments = 1;
    frugal *f = open_or_fail(&d);
    begin_counting(f);
    assert_int_equal(FRUGAL_OK, save_one(f, empty, 0, 0)); /* counting, and nothing counted */
    check_restored(&d, &empty, 1, counts[2]);
    for (uint32_t k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < ROWS; i++) counts[k][i] = test_mix2(k, i) % 1000 * (i % 3);
        assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &all, counts[k]));
        assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &all, counts[k]));
        assert_int_equal(FRUGAL_OK, save_one(f, files[k], (int)k, 0));
        check_restored(&d, files, k + 1, counts[k]);
    }
    frugal_close(f);
    struct stat now;
    assert_int_equal(0, stat(files[0], &now));
    long at = (long)now.st_size - (long)(sizeof(saved_header) + sizeof(saved_end)) - ROWS; /* of the first count */
    FILE *file = fopen(files[0], "r+b");
    assert_non_null(file);
    d.saved = files, d.n_saved = 2;
    for (int i = 0; i < 4; i++) { /* a count, the last one, the part, the number of rows */
        long where = i == 0 ? at : i == 1 ? at + ROWS - 1 : i == 2 ? at - (long)sizeof(saved_rows) : at - 8;
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(0, fseek(file, where, SEEK_SET));
            int byte = fgetc(file) ^ 4;
            assert_int_equal(0, fseek(file, where, SEEK_SET));
            assert_true(fputc(byte, file) == byte && fflush(file) == 0);
            if (twice) continue; /* it is right again */
            frugal *refused;
            frugal_status status = frugal_open(&d, &refused);
            assert_fails(FRUGAL_ERR_FILE, status, "the save cannot be used", files[0]);
            frugal_close(refused);
            frugal_server *server;
            const frugal_serve_desc served = {.from = {.saved = files, .n_saved = 2}, .threads = 1};
            assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&served, &server), "the save cannot be used", files[0]);
        }
    }
    fclose(file);
    check_restored(&d, files, 2, counts[1]);
    check_served(&d, files, 2, &all);
}

static off_t bytes_of(const char *path) {
    struct stat now;
    assert_int_equal(0, stat(path, &now));
    return now.st_size;
}

/* Of a table with more rows than a block of counts has, only blocks with counts are saved. */
static void test_blocks_of_counts(void **state) {
    (void)state;
    enum { MORE = 3 };
    const uint64_t rows = SAVED_MOST_COUNTS + MORE, keys[] = {SAVED_MOST_COUNTS + 1, 7};
    const off_t head = sizeof(saved_header) + sizeof(saved_rows);
    const off_t small = head + (off_t)saved_filled(MORE), large = head + (off_t)SAVED_MOST_COUNTS;
    const char *files[] = {saved_path("none"), saved_path("last"), saved_path("both")};
    frugal_table table = {.rows = rows};
    frugal_desc d = one_desc(1);
    d.tables = &table, d.dim = 1;
    frugal *f = open_or_fail(&d);
    begin_counting(f);
    for (int i = 0; i < 3; i++) {
        if (i > 0) set_count(f, keys[i - 1], 1000);
        assert_int_equal(FRUGAL_OK, save_one(f, files[i], 0, 0));
    }
    assert_int_equal(small, bytes_of(files[1]) - bytes_of(files[0]));
    assert_int_equal(large, bytes_of(files[2]) - bytes_of(files[1]));
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t ranked[3], counts[3];
        d.saved = &files[i], d.n_saved = 1;
        frugal *restored = open_or_fail(&d);
        assert_int_equal(FRUGAL_OK, frugal_rank_keys(restored, 0, 3, ranked, counts));
        for (uint32_t k = 0; k < 3; k++) assert_true(counts[k] == (k < i ? count_of(f, 7) : 0));
        for (uint32_t k = 0; k < i; k++) assert_int_equal(keys[i == 1 ? 0 : 1 - k], ranked[k]);
        frugal_close(restored);
    }
    frugal_close(f);
}

/* >>counted behind the call */

enum { MANY = 20000, MANY_ROWS = 100000, UNTOUCHED = 6 };

/* An instance of two workers, which has announced a step of `devices`; `wait`: that is counted before this returns. */
static frugal *open_announced(uint32_t devices, int wait) {
    static frugal_table table = {.rows = MANY_ROWS};
    static uint64_t keys[MANY];
    frugal_desc d = one_desc(devices);
    d.tables = &table, d.dim = 1, d.max_keys = MANY, d.workers = 2;
    if (devices == 1) d.alone = FRUGAL_ALONE_PLACE;
    frugal *f = open_or_fail(&d);
    set_count(f, UNTOUCHED, 1000);
    for (uint32_t device = 0; device < devices; device++) {
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, device, &(frugal_cpu_desc){.threads = 1}));
        for (uint32_t i = 0; i < MANY; i++) keys[i] = (device + (uint64_t)i * 4) % MANY_ROWS;
        frugal_keys segment = {.keys = keys, .n = MANY};
        assert_int_equal(FRUGAL_OK, frugal_try_announce(f, device, 0, &(frugal_batch){&segment, 1, 0}));
    }
    for (uint32_t device = 0; wait && device < devices; device++) /* its gate waits for the plan */
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, device, 0, NULL));
    return f;
}

/* What calls find, change and save does not hang on when workers count what was announced before. */
static void test_counted_behind_the_call(void **state) {
    (void)state;
    static uint64_t all[MANY_ROWS], counts[2][MANY_ROWS], ranked[MANY_ROWS];
    const char *file = saved_path("behind");
    for (uint32_t i = 0; i < MANY_ROWS; i++) all[i] = i;
    frugal_keys keys = {.keys = all, .n = MANY_ROWS};
    for (uint32_t devices = 1; devices <= 2; devices++)
        for (int round = 0; round < 12; round++) {
            frugal *f = open_announced(devices, round == 0);
            if (round % 4 == 1) { /* each key once, whatever the others do */
                memset(counts[1], 0, sizeof counts[1]);
                assert_int_equal(FRUGAL_OK, frugal_rank_keys(f, 0, MANY_ROWS, ranked, NULL));
                for (uint32_t i = 0; i < MANY_ROWS; i++) assert_int_equal(0, counts[1][ranked[i]]++);
            }
            if (round % 4 == 2) assert_int_equal(FRUGAL_OK, save_one(f, file, 0, 1));
            if (round % 4 == 3) assert_int_equal(FRUGAL_OK, frugal_cancel(f, 0));
            assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &keys, counts[round > 0]));
            assert_memory_equal(counts[0], counts[round > 0], sizeof counts[0]);
            assert_in_range(counts[0][UNTOUCHED], 400, 600); /* halved once, by one piece */
            frugal_close(f);
            if (round % 4 != 2) continue;
            frugal_table table = {.rows = MANY_ROWS};
            frugal_desc d = one_desc(1);
            d.tables = &table, d.dim = 1, d.saved = &file, d.n_saved = 1;
            f = open_or_fail(&d);
            assert_int_equal(FRUGAL_OK, frugal_get_counts(f, &keys, counts[1]));
            assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
            frugal_close(f);
        }
}

/* >>a device that counts itself */

static frugal_status counter_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static frugal_status counter_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static void counter_close(void *device) {
    (void)device;
}
static int counter_in_place(void *device) {
    return device != NULL;
}
static int counter_sorts(void *device) {
    return device ? 2 : 0;
}
static frugal_status counter_move(void *device, uint8_t *counts, int store) {
    memcpy(store ? device : counts, store ? counts : device, ROWS);
    return FRUGAL_OK;
}
static const frugal_device_ops counter_ops = {.lookup = counter_lookup,
                                              .update = counter_update,
                                              .close = counter_close,
                                              .updates_in_place = counter_in_place,
                                              .sorts = counter_sorts,
                                              .move_counts = counter_move};

enum { ASKED = 20000 };
typedef struct asker {
    frugal *f;
    uint32_t asked, ends, wrong; /* atomic, all */
} asker;

static void *ask_for_counts(void *argument) {
    asker *a = argument;
    uint64_t *keys = calloc(ASKED, sizeof *keys), *counts = calloc(ASKED, sizeof *counts);
    while (!__atomic_load_n(&a->ends, __ATOMIC_RELAXED)) {
        frugal_status status = frugal_get_counts(a->f, &(frugal_keys){.keys = keys, .n = ASKED}, counts);
        if (status != FRUGAL_OK || (counts[0] != 0 && counts[0] != 3)) __atomic_store_n(&a->wrong, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&a->asked, 1, __ATOMIC_RELAXED);
    }
    free(keys), free(counts);
    return NULL;
}

/* Any thread may ask for counts, also while such a device attaches: who began without the lock does not release it. */
static void test_asked_while_attaching(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        uint8_t bytes[ROWS] = {3 << 1 | 1};
        frugal_desc d = one_desc(1);
        asker a = {.f = open_or_fail(&d)};
        pthread_t thread;
        assert_int_equal(0, pthread_create(&thread, NULL, ask_for_counts, &a));
        while (__atomic_load_n(&a.asked, __ATOMIC_RELAXED) == 0) sched_yield();
        assert_int_equal(FRUGAL_OK, frugal_attach(a.f, 0, &counter_ops, bytes));
        assert_int_equal(3, count_of(a.f, 0));
        __atomic_store_n(&a.ends, 1, __ATOMIC_RELAXED);
        assert_int_equal(0, pthread_join(thread, NULL));
        assert_int_equal(0, a.wrong);
        frugal_close(a.f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_byte_stands_for),
        cmocka_unit_test(test_counts_are_right_in_the_mean),
        cmocka_unit_test(test_only_current_copies_count),
        cmocka_unit_test(test_counts_are_reproducible),
        cmocka_unit_test(test_which_row_enters),
        cmocka_unit_test(test_outdated_copies_leave_first),
        CASE("test_who_passes_by", test_who_passes_by, 0),
        CASE("test_who_passes_by, counts set", test_who_passes_by, 1),
        CASE("test_who_passes_by, counts halved", test_who_passes_by, 2),
        cmocka_unit_test(test_who_returns),
        cmocka_unit_test(test_who_only_reads),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_ages_by_itself),
        cmocka_unit_test(test_fresh_copies),
        SAVED_TEST(test_ages_on),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_set_in_a_step),
        cmocka_unit_test(test_told_to_devices),
        cmocka_unit_test(test_begun_meanwhile),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_asked_while_attaching),
        cmocka_unit_test(test_bits),
        SAVED_TEST(test_saved_counts),
        SAVED_TEST(test_blocks_of_counts),
        SAVED_TEST(test_counted_behind_the_call),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
