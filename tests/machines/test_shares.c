/* test_shares.c - what several machines save: each a share, which a manifest names. As many machines go on from it.
 * What they do not agree on, or cannot read, is refused on all, and nothing is left. A manifest that is damaged is
 * refused by name, whichever byte it is. test_dealt_saves goes on with other numbers of machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/machines/dealt_jobs.h"
#include "src/format.h"

static uint8_t homes[DEALT_MOST];
static char paths[6][PATH_MAX];
enum { A, B, PLAIN, LISTED, LISTED_MORE, OTHER };

static void name_all(void) {
    static const char *const names[] = {"a", "b", "plain", "listed", "listed-more", "other"};
    for (int i = 0; i < 6; i++) snprintf(paths[i], PATH_MAX, "%s", saved_path(names[i]));
    for (int i = 0; i < DEALT_MOST; i++) homes[i] = (uint8_t)(test_mix3(1, 2, (uint64_t)i) % 4);
}

/* Removes the save of this name, and its shares; returns how many files that are. */
static int remove_all(const char *name) {
    DIR *d = opendir(saved_folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, name, strlen(name))) n += !remove(saved_path(e->d_name));
    closedir(d);
    return n;
}

static void same_rows(const machine *wanted) {
    assert_memory_equal(wanted->weights, all[0].weights, sizeof wanted->weights);
    assert_memory_equal(wanted->state, all[0].state, sizeof wanted->state);
}

/* A base is replaced, twice, and continued; what is trained from there has the bits of one instance alone. The shares
 * of manifests that are gone are gone, too, but not those of one that has another name now. */
static void test_resumed(void **state) {
    frugal_deal deal = (frugal_deal)(intptr_t)*state;
    static machine alone;
    name_all();
    job one = job_of(0, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAM), four = job_of(4, deal, FRUGAL_ADAM);
    one.plans[0].to = LAST;
    run_well(&one);
    alone = all[0];
    four.homes = deal == FRUGAL_DEAL_LISTED ? homes : NULL;
    four.plans[0] = (plan){.to = 2, .path = paths[A]}, four.plans[1] = (plan){.to = 4, .path = paths[A], .replace = 1};
    four.plans[2] = (plan){.to = 7, .path = paths[B], .increment = 1};
    run_well(&four);
    assert_int_equal(10, saved_count());
    const char *saved[] = {paths[A], paths[B]};
    four.desc.saved = saved, four.desc.n_saved = 2;
    four.plans[0] = (plan){.to = 9, .path = paths[B], .increment = 1, .replace = 1};
    four.plans[1] = (plan){.to = LAST}, four.plans[2] = (plan){.to = 0};
    run(&four);
    for (uint32_t i = 0; i < 4; i++) { /* it would replace what it needs */
        assert_int_equal(7, all[i].first_step);
        assert_int_equal(FRUGAL_ERR_FILE, all[i].status[1]);
        assert_non_null(strstr(all[i].said[1], "number 1 of its own base"));
    }
    same_rows(&alone);
    assert_int_equal(10, saved_count());
    assert_int_equal(0, rename(paths[A], paths[OTHER]));
    saved[0] = paths[OTHER];
    four.plans[0] = (plan){.to = 9, .path = paths[A]};
    run_well(&four);
    same_rows(&alone);
    assert_int_equal(15, saved_count());
    run_well(&(job){.machines = 4, .deal = deal, .homes = four.homes, .desc = four.desc, .plans = {{.to = LAST}}});
    same_rows(&alone);
    assert_int_equal(0, remove(paths[OTHER])); /* now its shares are nobody's; those of foreign names stay */
    write_file(saved_path("a.1-of-4-notes"), SAVED_MAGIC, SAVED_MAGIC_BYTES);
    write_file(saved_path("a.1-of-4-0123456789abcdef.old"), SAVED_MAGIC, SAVED_MAGIC_BYTES);
    saved[0] = paths[A], four.desc.n_saved = 1;
    four.plans[0] = (plan){.to = 10, .path = paths[A], .replace = 1};
    run_well(&four);
    same_rows(&alone);
    assert_int_equal(12, saved_count());
    one.plans[0] = (plan){.to = 3, .path = paths[A], .replace = 1}, one.plans[1] = (plan){.to = LAST};
    run_well(&one); /* one machine alone replaces the manifest */
    assert_int_equal(8, saved_count());
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
    assert_int_equal(3, remove_all("b"));
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

/* Machines that open two saves of the same step, each its own. */
static void test_other_saves(void **state) {
    (void)state;
    name_all();
    job two = job_of(2, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD), now = two;
    two.plans[0] = (plan){.to = 4, .path = paths[A]}, two.plans[1] = (plan){.to = 4, .path = paths[B]};
    run_well(&two);
    now.other_saved = paths[B];
    refused_open(now, FRUGAL_ERR_SETTINGS, paths[A], NULL, "id of save, ", "give all the same");
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
    job plain = job_of(0, FRUGAL_DEAL_CYCLIC, FRUGAL_ADAGRAD);
    plain.plans[0] = (plan){.to = 4, .path = paths[PLAIN]};
    run_well(&plain);
    refused_open(now, FRUGAL_ERR_FILE, paths[PLAIN], NULL, "and this file is none", "frugal_file split");
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
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[PLAIN], 0, &info));
    assert_int_equal(0, info.machines);
}

/* >>damage */

static char path[PATH_MAX];
static unsigned char whole[4096]; /* [n_whole]: a manifest that is sound */
static size_t n_whole;

/* Of two machines, with homes; one instance. */
static void make_manifest(void) {
    job j = job_of(2, FRUGAL_DEAL_LISTED, FRUGAL_SGD);
    unsigned char *bytes;
    name_all();
    for (int i = 0; i < DEALT_MOST; i++) homes[i] %= 2;
    snprintf(path, PATH_MAX, "%s", paths[A]);
    j.homes = homes;
    j.plans[0] = (plan){.to = 1, .path = path};
    run_well(&j);
    n_whole = read_file(path, &bytes);
    assert_true(n_whole <= sizeof whole);
    memcpy(whole, bytes, n_whole);
    free(bytes);
}

static void must_be_refused(const unsigned char *bytes, size_t n, const char *why, size_t at) {
    frugal_saved info;
    write_file(path, bytes, n);
    frugal_status status = frugal_read_saved(path, 0, &info);
    if (status == FRUGAL_OK) fail_msg("byte %zu: it was opened", at);
    if (!strstr(frugal_message(), why) || !strstr(frugal_message(), path))
        fail_msg("byte %zu: wanted '%s', and the name: %s", at, why, frugal_message());
}

/* Each byte changed, each length. */
static void test_bytes(void **state) {
    unsigned char bytes[sizeof whole + 8];
    (void)state;
    make_manifest();
    for (size_t at = 0; at < n_whole; at++) {
        memcpy(bytes, whole, n_whole);
        bytes[at] ^= (unsigned char)(1u << at % 8);
        must_be_refused(bytes, n_whole, "", at);
        must_be_refused(whole, at, "", at);
    }
    memset(bytes + n_whole, 0, 8);
    must_be_refused(bytes, n_whole + 8, "another size", n_whole);
}

/* A field that contradicts others, under right checksums. */
static void test_fields(void **state) {
    enum { LIST = sizeof(manifest_header), PARTS = LIST + 2 * sizeof(manifest_share) };
    enum { TABLES = PARTS + sizeof(manifest_part) };
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *why;
    } cases[] = {
        {offsetof(manifest_header, block), 4, SAVED_BLOCK_MAGIC, "another block is expected"},
        {offsetof(manifest_header, version), 4, 2, "format 2, and this version of Frugal reads 1"},
        {offsetof(manifest_header, homes_checksum), 4, 5, "its homes are damaged"},
        {offsetof(manifest_header, machines), 4, 0, "number of its machines"},
        {offsetof(manifest_header, machines), 4, 255, "number of its machines"},
        {offsetof(manifest_header, machines), 4, 3, "list"},
        {offsetof(manifest_header, head) + offsetof(saved_file, kind), 4, 1, "parent"},
        {offsetof(manifest_header, head) + offsetof(saved_file, kind), 4, 2, "kind"},
        {offsetof(manifest_header, head) + offsetof(saved_file, id), 8, 0, "id"},
        {offsetof(manifest_header, head) + offsetof(saved_file, parent), 8, 3, "parent"},
        {offsetof(manifest_header, head) + offsetof(saved_file, base), 8, 3, "base"},
        {offsetof(manifest_header, head) + offsetof(saved_file, parts), 4, 0, "parts"},
        {offsetof(manifest_header, head) + offsetof(saved_file, parts), 4, 65, "parts"},
        {offsetof(manifest_header, head) + offsetof(saved_file, parts), 4, 2, "list ends too early"},
        {offsetof(manifest_header, list_bytes), 8, 1 << 20, "the size of its list"},
        {offsetof(manifest_header, list_bytes), 8, 40, "list ends too early"},
        {offsetof(manifest_header, bytes), 8, 9, "another size"},
        {offsetof(manifest_header, stem), 1, 0, "name of its shares"},
        {offsetof(manifest_header, stem), 1, '/', "name of its shares"},
        {offsetof(manifest_header, stem) + MANIFEST_STEM - 1, 1, 'x', "name of its shares"},
        {LIST, 8, 0, "a share's size"},
        {LIST + offsetof(manifest_share, zero), 4, 1, "a share's size"},
        {PARTS, 4, 3, "an instance's deal"},
        {PARTS, 4, MANIFEST_CYCLIC, "another size than its list"},
        {PARTS + 4, 4, 1, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, rows), 8, 30, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, dim), 4, 0, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, n_tables), 4, 0, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, n_tables), 4, UINT32_MAX, "list ends too early"},
        {PARTS + 8 + offsetof(saved_part, optimizer), 4, 77, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, state_floats), 4, 1, "an instance's deal"},
        {PARTS + 8 + offsetof(saved_part, rows_as), 4, 3, "an instance's deal"},
        {TABLES, 8, 0, "an instance's deal"},
    };
    (void)state;
    make_manifest();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[sizeof whole];
        memcpy(bytes, whole, n_whole);
        memcpy(bytes + cases[i].at, &cases[i].value, cases[i].bytes);
        saved_seal(bytes, n_whole);
        must_be_refused(bytes, n_whole, cases[i].why, cases[i].at);
    }
    unsigned char bytes[sizeof whole]; /* a table without rows, and another that has them */
    uint64_t rows[3] = {DEALT_MOST, 0, 0};
    memcpy(bytes, whole, n_whole);
    for (size_t t = 0; t < 3; t++) memcpy(bytes + TABLES + t * sizeof(saved_table), &rows[t], 8);
    saved_seal(bytes, n_whole);
    must_be_refused(bytes, n_whole, "an instance's deal", TABLES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("resumed: cyclic", test_resumed, FRUGAL_DEAL_CYCLIC),
        SAVED_CASE("resumed: blocks", test_resumed, FRUGAL_DEAL_BLOCKS),
        SAVED_CASE("resumed: listed", test_resumed, FRUGAL_DEAL_LISTED),
        SAVED_TEST(test_refused_saves),
        SAVED_TEST(test_other_saves),
        SAVED_TEST(test_refused_opens),
        SAVED_TEST(test_bytes),
        SAVED_TEST(test_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
