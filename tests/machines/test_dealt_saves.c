/* test_dealt_saves.c - a table that is dealt over machines is saved, and trained on from there: by as many machines, by
 * fewer, by one, always with the bits of a training that was not interrupted. What machines do not agree on, or cannot
 * read, is refused on all, and nothing is left.
 *
 * frugal_file is compiled into this program, with the library in it: it merges and splits. Do not link frugal_flush.o. */
#include <stdio.h>
static int tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int tell(const char *format, ...) { /* standard output is the test's */
    return (int)format[0];
}
#define printf(...) tell(__VA_ARGS__)
#define main        frugal_file_main
#include "tools/frugal_file.c"
#undef main
#undef printf

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/machines/dealt.h"
#include "tests/unit/host/saved.h"

int frugal_file_main(int argc, char **argv);

enum { MOST_PLANS = 3, LAST = 12 };

typedef struct plan { /* train up to a step, then save, if there is a path */
    uint64_t to;
    const char *path;
    int increment, replace;
    const char *other; /* what machine 1 gives instead of `path` */
    int other_kind;    /* machine 1 saves an increment instead of a base */
} plan;

typedef struct job {
    uint32_t machines; /* 0: an instance alone */
    frugal_deal deal;
    const uint8_t *homes;
    frugal_desc desc; /* of all */
    plan plans[MOST_PLANS];
    wires wires;
} job;

typedef struct machine {
    pthread_t thread;
    job *job;
    uint32_t number;
    frugal_status status[MOST_PLANS + 1]; /* of opening; of the saves */
    char said[MOST_PLANS + 1][512];
    float weights[DEALT_MOST * DEALT_SIZE], state[DEALT_MOST * 2 * DEALT_SIZE];
    uint64_t first_step;
} machine;

static machine all[DEALT_DEVICES];

static void note(machine *m, int i, frugal_status status) {
    m->status[i] = status;
    snprintf(m->said[i], sizeof m->said[i], "%s", status ? frugal_message() : "");
}

static void *run_machine(void *of) {
    machine *m = of;
    const job *j = m->job;
    frugal *f;
    uint32_t here = j->machines ? DEALT_DEVICES / j->machines : DEALT_DEVICES, from = m->number * here;
    frugal_wire wire = wires_of(&m->job->wires, m->number);
    const frugal_machines machines = {.wire = &wire, .deal = j->deal, .homes = j->homes};
    frugal_desc desc = j->desc;
    if (j->machines) desc.machines = &machines;
    note(m, 0, frugal_open(&desc, &f));
    if (m->status[0] == FRUGAL_OK) {
        uint64_t step = m->first_step = frugal_settings(f)->first_step;
        for (uint32_t d = from; d < from + here; d++)
            if (frugal_cpu_attach(f, d, NULL)) abort();
        for (int i = 0; i < MOST_PLANS && j->plans[i].to; step = j->plans[i++].to) {
            const plan *p = &j->plans[i];
            int other = m->number == 1 && p->other;
            if (dealt_train(f, from, here, step, p->to)) abort();
            int increment = p->increment ^ (m->number == 1 && p->other_kind);
            if (p->path) note(m, 1 + i, save_one(f, other ? p->other : p->path, increment, p->replace));
        }
        dealt_read(f, m->weights, m->state);
    }
    frugal_close(f);
    return NULL;
}

static job job_of(uint32_t machines, frugal_deal deal, frugal_optimizer_kind kind) {
    job j = {.machines = machines, .deal = deal};
    j.desc = dealt_desc(kind);
    return j;
}

/* All machines; those of `all` have what became of them. */
static void run(job *j) {
    uint32_t n = j->machines ? j->machines : 1;
    memset(all, 0, sizeof all);
    wires_init(&j->wires, &(wires_options){.seed = 3, .machines = n, .delay = 2, .buffered = 50, .late = 30});
    for (uint32_t i = 0; i < n; i++) {
        all[i].job = j, all[i].number = i;
        assert_int_equal(0, pthread_create(&all[i].thread, NULL, run_machine, &all[i]));
    }
    for (uint32_t i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
    wires_destroy(&j->wires);
}

/* ... which have succeeded. */
static void run_well(job *j) {
    run(j);
    for (uint32_t i = 0; i < (j->machines ? j->machines : 1); i++)
        for (int k = 0; k <= MOST_PLANS; k++)
            if (all[i].status[k]) fail_msg("machine %u, call %d: %s", i, k, all[i].said[k]);
}

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

/* A save that fails on one machine fails on all, by its reason, and leaves nothing. The next one succeeds. */
static void refused_save(plan p, frugal_status status, const char *why, const char *on_one) {
    job j = job_of(2, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD);
    int files = saved_count();
    j.plans[0] = p;
    j.plans[1] = (plan){.to = 4, .path = paths[B]};
    run(&j);
    for (uint32_t i = 0; i < 2; i++) {
        const char *wanted = i == 1 && on_one ? on_one : why;
        assert_int_equal(status, all[i].status[1]);
        if (!strstr(all[i].said[1], wanted)) fail_msg("machine %u: wanted '%s': %s", i, wanted, all[i].said[1]);
        if (all[i].status[2]) fail_msg("machine %u: %s", i, all[i].said[2]);
    }
    assert_int_equal(files + 3, saved_count());
    assert_int_equal(0, check_files(1, (char *[]){paths[B]}));
    manifest m;
    char path[LONGEST_PATH];
    assert_int_equal(FRUGAL_OK, open_manifest(&m, paths[B], &own_memory));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(0, name_share(&m, i, path));
        assert_int_equal(0, remove(path));
    }
    close_manifest(&m);
    assert_int_equal(0, remove(paths[B]));
}

static void test_refused_saves(void **state) {
    (void)state;
    name_all();
    write_file(paths[A], "text", 4);
    refused_save((plan){.to = 3, .path = paths[A]}, FRUGAL_ERR_FILE, "File exists", "machine 0: ");
    refused_save((plan){.to = 3, .path = paths[A], .replace = 1}, FRUGAL_ERR_FILE, "is not a save", "machine 0: ");
    assert_int_equal(0, remove(paths[A]));
    char nowhere[PATH_MAX], *other_folder = strdup(saved_path("folder")), elsewhere[PATH_MAX];
    snprintf(nowhere, PATH_MAX, "%s", saved_path("no/folder"));
    refused_save((plan){.to = 3, .path = paths[A], .other = nowhere}, FRUGAL_ERR_FILE, "machine 1: ", "No such file");
    assert_int_equal(0, mkdir(other_folder, 0777));
    snprintf(elsewhere, PATH_MAX, "%s", saved_path("folder/a"));
    refused_save((plan){.to = 3, .path = paths[A], .other = elsewhere}, FRUGAL_ERR_FILE, "is not seen here",
                 "machine 0: machine 1");
    assert_int_equal(0, rmdir(other_folder)); /* nothing is left in it */
    free(other_folder);
    refused_save((plan){.to = 3, .path = paths[A], .increment = 1}, FRUGAL_ERR_ARGUMENT, "save a base first", NULL);
    refused_save((plan){.to = 3, .path = paths[A], .other_kind = 1}, FRUGAL_ERR_ARGUMENT, "save a base first", NULL);
    refused_save((plan){.to = 3, .path = NULL}, FRUGAL_OK, "", NULL);
}

/* All machines refuse to open. */
static void refused_open(job j, frugal_status status, const char *first, const char *second, const char *why,
                         const char *remedy) {
    const char *saved[] = {first, second};
    j.desc.saved = saved, j.desc.n_saved = second ? 2 : 1;
    j.plans[0].to = LAST;
    run(&j);
    for (uint32_t i = 0; i < (j.machines ? j.machines : 1); i++) {
        assert_int_equal(status, all[i].status[0]);
        if (!strstr(all[i].said[0], why) || !strstr(all[i].said[0], remedy))
            fail_msg("machine %u: wanted '%s' and '%s': %s", i, why, remedy, all[i].said[0]);
    }
}

static void test_refused_opens(void **state) {
    (void)state;
    name_all();
    job four = job_of(4, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD), listed = job_of(4, FRUGAL_DEAL_LISTED, FRUGAL_ADAGRAD);
    four.plans[0] = (plan){.to = 4, .path = paths[A]},
    four.plans[1] = (plan){.to = 7, .path = paths[B], .increment = 1};
    run_well(&four);
    listed.homes = homes;
    listed.plans[0] = (plan){.to = 4, .path = paths[LISTED]};
    listed.plans[1] = (plan){.to = 5, .path = paths[LISTED_MORE], .increment = 1};
    run_well(&listed);
    job alone = job_of(0, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD), two = job_of(2, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD);
    job blocks = job_of(4, FRUGAL_DEAL_BLOCKS, FRUGAL_ADAGRAD), now = job_of(4, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD);
    refused_open(alone, FRUGAL_ERR_FILE, paths[A], NULL, "manifest of 4 machines", "frugal_file merge");
    refused_open(two, FRUGAL_ERR_FILE, paths[A], NULL,
                 "over 2 machines, cyclically, and in the save over 4, cyclically", "frugal_file split");
    refused_open(blocks, FRUGAL_ERR_FILE, paths[A], NULL, "4 machines, in blocks, and in the save over 4, cyclically",
                 "frugal_file split");
    refused_open(now, FRUGAL_ERR_FILE, paths[B], NULL, "increment 1", "name its base before it");
    refused_open(now, FRUGAL_ERR_FILE, paths[A], paths[A], "a base comes after the first", paths[A]);
    uint8_t others[DEALT_MOST];
    memcpy(others, homes, DEALT_MOST);
    others[41] ^= 1;
    listed.homes = others;
    memset(listed.plans, 0, sizeof listed.plans);
    refused_open(listed, FRUGAL_ERR_FILE, paths[LISTED], NULL, "the home of row 41", "give the same homes");
    assert_int_equal(0, merge_files(paths[MERGED], 1, (char *[]){paths[A]}));
    refused_open(now, FRUGAL_ERR_FILE, paths[MERGED], NULL, "and this file is none", "frugal_file split");
    options = (__typeof__(options)){.machines = 4, .n_homes = 1, .homes = {paths[OF_HOMES]}};
    dealt_tables[1].rows = 3, dealt_tables[2].rows = 2; /* as many rows */
    refused_open(now, FRUGAL_ERR_FILE, paths[A], NULL, "table 1 has 3 rows, and 2 in the save", paths[A]);
    dealt_tables[1].rows = 2, dealt_tables[2].rows = 3;
    now.desc.saved_part = 1;
    refused_open(now, FRUGAL_ERR_ARGUMENT, paths[A], NULL, "instance 1 of a save that has 1", paths[A]);
    frugal_saved info;
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[B], 0, &info));
    assert_true(info.machines == 4 && info.rows == DEALT_MOST && info.step == 7 && info.increment &&
                info.sequence == 1);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_saved(paths[B], 1, &info), "instance 1", paths[B]);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[MERGED], 0, &info));
    assert_int_equal(0, info.machines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("resumed: SGD", test_resumed, FRUGAL_SGD),
        SAVED_CASE("resumed: Adagrad", test_resumed, FRUGAL_ADAGRAD),
        SAVED_CASE("resumed: row-wise Adagrad, bf16", test_resumed, 4 * FRUGAL_BF16 + FRUGAL_ROWWISE_ADAGRAD),
        SAVED_CASE("resumed: Adam, fp16", test_resumed, 4 * FRUGAL_FP16 + FRUGAL_ADAM),
        SAVED_TEST(test_refused_saves),
        SAVED_TEST(test_refused_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
