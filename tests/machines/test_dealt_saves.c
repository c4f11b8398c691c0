/* test_dealt_saves.c - a table that is dealt over machines is saved, and trained on from there: by as many machines, by
 * fewer, by one, always with the bits of a training that was not interrupted.
 *
 * frugal_file is compiled into this program, with the library in it: it merges and splits. Do not link frugal_flush.o.
 */
#include "tests/unit/tools/inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/machines/dealt_jobs.h"

static uint8_t homes[DEALT_MOST];
static char paths[8][PATH_MAX];
enum { A, B, MERGED, TWO, TWO_MORE, LISTED, LISTED_MORE, OF_HOMES };

static void name_all(void) {
    static const char *const names[] = {"a", "b", "merged", "two", "two-more", "listed", "listed-more", "homes.npy"};
    for (int i = 0; i < 8; i++) snprintf(paths[i], PATH_MAX, "%s", saved_path(names[i]));
    for (int i = 0; i < DEALT_MOST; i++) homes[i] = (uint8_t)(test_mix3(1, 2, (uint64_t)i) % 4);
    char bytes[128 + DEALT_MOST];
    memcpy(bytes, "\x93NUMPY\1\0\x76\0", 10);
    int used = snprintf(bytes + 10, 118, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", DEALT_MOST);
    memset(bytes + 10 + used, ' ', 118 - (size_t)used);
    bytes[127] = '\n';
    memcpy(bytes + 128, homes, DEALT_MOST);
    write_file(paths[OF_HOMES], bytes, sizeof bytes);
    memset(&options, 0, sizeof options);
}

static float weights[DEALT_MOST * DEALT_SIZE],
    state_of_all[DEALT_MOST * 2 * DEALT_SIZE]; /* of a training that was not interrupted */

/* All machines have these rows in the end. */
static void same_rows(const job *j) {
    for (uint32_t i = 0; i < (j->machines ? j->machines : 1); i++) {
        assert_memory_equal(weights, all[i].weights, sizeof weights);
        assert_memory_equal(state_of_all, all[i].state, sizeof state_of_all);
    }
}

/* Resumes from one or two files at step `from`. */
static void resumes(job j, const char *first, const char *second, uint64_t from) {
    const char *saved[] = {first, second};
    j.desc.saved = saved, j.desc.n_saved = second ? 2 : 1;
    if (!j.plans[0].to) j.plans[0].to = LAST;
    run_well(&j);
    assert_int_equal(from, all[0].first_step);
    same_rows(&j);
}

static job typed(uint32_t machines, frugal_deal deal, intptr_t kind) {
    job j = job_of(machines, deal, (frugal_optimizer_kind)(kind % 4));
    j.desc.rows_as = (frugal_type)(kind / 4);
    return j;
}

/* 4 machines save; 4, 2 and 1 go on. */
static void test_resumed(void **state) {
    intptr_t kind = (intptr_t)*state;
    name_all();
    job alone = typed(0, FRUGAL_DEAL_CYCLIC, kind), four = typed(4, FRUGAL_DEAL_CYCLIC, kind);
    alone.plans[0].to = LAST;
    run_well(&alone);
    memcpy(weights, all[0].weights, sizeof weights), memcpy(state_of_all, all[0].state, sizeof state_of_all);
    four.plans[0] = (plan){.to = 4, .path = paths[A]},
    four.plans[1] = (plan){.to = 7, .path = paths[B], .increment = 1};
    four.plans[2] = (plan){.to = LAST};
    run_well(&four);
    same_rows(&four);
    assert_int_equal(0, check_files(2, (char *[]){paths[A], paths[B]}));
    memset(four.plans, 0, sizeof four.plans);
    resumes(four, paths[A], NULL, 4);
    resumes(four, paths[A], paths[B], 7);
    assert_int_equal(0, merge_files(paths[MERGED], 2, (char *[]){paths[A], paths[B]}));
    memset(alone.plans, 0, sizeof alone.plans);
    resumes(alone, paths[MERGED], NULL, 7);
    options.machines = 2, options.blocks = 1;
    assert_int_equal(0, split_files(paths[TWO], 2, (char *[]){paths[A], paths[B]}));
    job two = typed(2, FRUGAL_DEAL_BLOCKS, kind);
    two.plans[0] = (plan){.to = 9, .path = paths[TWO_MORE], .increment = 1}, two.plans[1] = (plan){.to = LAST};
    resumes(two, paths[TWO], NULL, 7);
    memset(two.plans, 0, sizeof two.plans);
    resumes(two, paths[TWO], paths[TWO_MORE], 9);
    options = (__typeof__(options)){.machines = 4, .n_homes = 1, .homes = {paths[OF_HOMES]}};
    assert_int_equal(0, split_files(paths[LISTED], 2, (char *[]){paths[TWO], paths[TWO_MORE]}));
    job listed = typed(4, FRUGAL_DEAL_LISTED, kind);
    listed.homes = homes;
    listed.plans[0] = (plan){.to = 10, .path = paths[LISTED], .replace = 1};
    listed.plans[1] = (plan){.to = 11, .path = paths[LISTED_MORE], .increment = 1},
    listed.plans[2] = (plan){.to = LAST};
    int files = saved_count();
    resumes(listed, paths[LISTED], NULL, 9);
    assert_int_equal(files + 5, saved_count()); /* the shares that were replaced are gone */
    memset(listed.plans, 0, sizeof listed.plans);
    resumes(listed, paths[LISTED], paths[LISTED_MORE], 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("resumed: SGD", test_resumed, FRUGAL_SGD),
        SAVED_CASE("resumed: Adagrad", test_resumed, FRUGAL_ADAGRAD),
        SAVED_CASE("resumed: row-wise Adagrad, bf16", test_resumed, 4 * FRUGAL_BF16 + FRUGAL_ROWWISE_ADAGRAD),
        SAVED_CASE("resumed: Adam, fp16", test_resumed, 4 * FRUGAL_FP16 + FRUGAL_ADAM),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
