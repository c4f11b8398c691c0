/* test_checkpoint.c - checkpoints: whole or not there, whatever call fails or is the last one; the newest whole one is
 * found, damaged ones are refused with the reason; old ones are removed, and no other file. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "trainers/common/checkpoint.h"
#include "failing_calls.h"
#include "folder.h"

static program_error error;

static int make_folder(void **state) {
    (void)state;
    calls_begin(CALLS_WORK, 0);
    calls_error = ENOSPC;
    return folder_make("test_checkpoint");
}

static int is_there(const char *name) {
    return !access(in_folder(name), F_OK);
}

/* Entries of the folder whose names begin so. */
static int count(const char *with) {
    DIR *all = opendir(folder);
    int n = 0;
    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all));)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && !strncmp(entry->d_name, with, strlen(with));
    closedir(all);
    return n;
}

/* ---- Parts ---------------------------------------------------------------------------------------------- */

static int write_number(void *user, const char *path, program_error *why) {
    assert_int_not_equal(access(path, F_OK), 0);
    FILE *file = fopen(path, "w");
    if (!file) return program_fail(why, "cannot write");
    fprintf(file, "%llu\n", *(const unsigned long long *)user);
    return fclose(file) ? program_fail(why, "cannot write") : 0;
}

static int write_nothing(void *user, const char *path, program_error *why) {
    (void)user, (void)path;
    return program_fail(why, "this part has no data");
}

/* Of a file that must hold it. */
static void check_number(const char *path, unsigned long long wanted) {
    unsigned long long number = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &number), 1);
    fclose(file);
    assert_true(number == wanted);
}

static int write_step(checkpoint_folder *to, unsigned long long step, uint32_t keep) {
    const checkpoint_part parts[] = {{"rows", 0, write_number, &step}, {"position", 0, write_number, &step}};
    return checkpoint_write(to, &(save_origin){"model", step}, parts, 2, keep, &error);
}

static checkpoint_folder *open_folder(int resumes) {
    checkpoint_folder *opened;
    if (checkpoint_open(&opened, folder, "test", resumes, &error)) fail_msg("%s", error.text);
    return opened;
}

/* Opened, written, closed; 0 or -1. */
static int one_step(unsigned long long step, uint32_t keep) {
    checkpoint_folder *opened;
    if (checkpoint_open(&opened, folder, "test", 1, &error)) return -1;
    int status = write_step(opened, step, keep);
    checkpoint_close(opened);
    return status;
}

/* The newest step that is whole, and how many newer ones were refused; 0: none. */
static unsigned long long newest(uint32_t refused) {
    checkpoint_found found;
    char path[MANIFEST_LONGEST_PATH + 16];
    int got = checkpoint_newest(folder, "test", &found, &error);
    if (got < 0) fail_msg("%s", error.text);
    assert_int_equal(found.refused, refused);
    if (!got) return 0;
    unsigned long long step = found.made.step;
    assert_string_equal(found.made.model, "model");
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", found.path, i ? "position" : "rows");
        check_number(path, step);
    }
    checkpoint_forget(&found);
    return step;
}

/* ---- Whole ---------------------------------------------------------------------------------------------- */

static void test_newest(void **state) {
    (void)state;
    checkpoint_found found;
    assert_int_equal(checkpoint_newest(in_folder("missing"), "test", &found, &error), 0);
    assert_int_equal(newest(0), 0);
    checkpoint_folder *opened = open_folder(0);
    assert_int_equal(newest(0), 0);
    static const unsigned long long steps[] = {7, 100, 20, 99999999, 123456789012};
    for (int i = 0; i < 5; i++) assert_int_equal(write_step(opened, steps[i], 0), 0);
    assert_true(newest(0) == 123456789012);
    assert_true(is_there("step-00000007") && is_there("step-99999999") && is_there("step-123456789012"));
    checkpoint_close(opened);
    assert_int_equal(checkpoint_before(folder, "test", 100, &found, &error), 1);
    assert_true(found.made.step == 20 && found.refused == 0);
    checkpoint_forget(&found);
    assert_int_equal(checkpoint_before(folder, "test", 7, &found, &error), 0);
    assert_int_equal(count(""), 5);
    assert_int_equal(checkpoint_newest(folder, "another", &found, &error), -1);
    assert_non_null(strstr(error.text, "is a checkpoint of test, not of another"));
}

static void test_keep(void **state) {
    (void)state;
    checkpoint_folder *opened = open_folder(0);
    for (unsigned long long step = 1; step <= 6; step++) {
        assert_int_equal(write_step(opened, step, 3), 0);
        assert_int_equal(count("step-"), step < 3 ? (int)step : 3);
    }
    assert_true(is_there("step-00000004") && is_there("step-00000006"));
    put_text(in_folder("step-00000004/notes"), "mine"); /* not ours to remove */
    put_text(in_folder("step-00000005/rows"), "?");     /* damaged: removed as any, once it is old */
    assert_int_equal(write_step(opened, 7, 1), 0);
    assert_true(is_there("step-00000004/notes") && is_there("step-00000004/rows") && !is_there("step-00000005"));
    mkdir(in_folder("step-00000900"), 0700); /* newer, and none at all: the one just written stays */
    assert_int_equal(write_step(opened, 8, 1), 0);
    assert_true(is_there("step-00000008") && !is_there("step-00000007") && is_there("step-00000900"));
    checkpoint_close(opened);
    assert_true(newest(1) == 8);
}

static void test_not_overwritten(void **state) {
    (void)state;
    checkpoint_folder *opened = open_folder(0), *second;
    assert_int_equal(write_step(opened, 5, 0), 0);
    assert_int_equal(checkpoint_open(&second, folder, "test", 1, &error), -1); /* another process, or this one */
    assert_non_null(strstr(error.text, "is in use by test, process "));
    assert_int_equal(write_step(opened, 5, 0), -1);
    assert_non_null(strstr(error.text, "step-00000005 is there already, and whole"));
    put_text(in_folder("step-00000005/rows"), "damaged");
    assert_int_equal(write_step(opened, 5, 0), 0);
    assert_true(newest(0) == 5 && is_there("step-00000005.damaged-1/rows"));
    checkpoint_close(opened);
    assert_int_equal(checkpoint_open(&second, folder, "test", 0, &error), -1);
    assert_non_null(strstr(error.text, "holds 1 checkpoints, up to step 5; resume from them, or give another folder"));
    assert_null(second);
    assert_false(is_there(".frugal-lock"));
    put_text(in_folder("file"), "");
    assert_int_equal(checkpoint_open(&second, in_folder("file"), "test", 0, &error), -1);
}

/* ---- Killed, failing ------------------------------------------------------------------------------------ */

static void kill_at_every_call(uint32_t keep) {
    int ended = 0, old = 0;
    for (long n = 1; !ended; n++) {
        if (!is_there("step-00000001")) assert_int_equal(one_step(1, 0), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            calls_begin(CALLS_KILL, n);
            _exit(one_step(2, keep) != 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        ended = WEXITSTATUS(status) == 0;
        assert_true(ended || WEXITSTATUS(status) == 9);
        unsigned long long step = newest(0);
        assert_true(step == 2 || (step == 1 && !ended));
        old += step == 1;
        checkpoint_close(open_folder(1));
        assert_true(count("") == (int)step || (keep == 1 && count("") == 1)); /* 1, or 1 and 2; nothing temporary */
        if (ended && keep == 1) assert_false(is_there("step-00000001"));
        if (step == 2) {
            char command[200];
            snprintf(command, sizeof command, "rm -r '%s'", in_folder("step-00000002"));
            assert_int_equal(system(command), 0);
        }
    }
    assert_true(old > 10);
}

static void test_killed_at_every_call(void **state) {
    (void)state;
    kill_at_every_call(0);
    kill_at_every_call(1);
}

static void test_fails_at_every_call(void **state) {
    (void)state;
    int failed = 0;
    assert_int_equal(one_step(1, 0), 0);
    for (long n = 1;; n++) {
        calls_begin(CALLS_FAIL, n);
        int status = one_step((unsigned long long)n + 1, 0), reached = !calls_until;
        calls_begin(CALLS_WORK, 0);
        unsigned long long step = newest(0);
        if (!reached) break;
        failed += status != 0;
        if (status) assert_true(error.text[0] && !strchr(error.text, '\n'));
        if (!status) assert_true(step == (unsigned long long)n + 1);
        assert_int_equal(count("."), 0); /* nothing temporary, and no lock */
    }
    assert_true(failed > 10);
}

static void test_failing_part(void **state) {
    (void)state;
    checkpoint_folder *opened = open_folder(0);
    unsigned long long step = 3;
    const checkpoint_part parts[] = {{"rows", 0, write_number, &step}, {"position", 0, write_nothing, NULL}};
    assert_int_equal(checkpoint_write(opened, &(save_origin){"model", 3}, parts, 2, 0, &error), -1);
    assert_string_equal(error.text, "this part has no data");
    assert_int_equal(count("step-"), 0);
    assert_int_equal(count(".step-"), 0);
    checkpoint_close(opened);
}

/* ---- Damage --------------------------------------------------------------------------------------------- */

static void test_damage(void **state) {
    (void)state;
    static const char *const all[] = {"rows", "position", "manifest.json"};
    assert_int_equal(one_step(1, 0), 0);
    assert_int_equal(one_step(2, 0), 0);
    for (int i = 0; i < 3; i++) {
        char text[2000], path[300];
        snprintf(path, sizeof path, "%s/step-00000002/%s", folder, all[i]);
        FILE *file = fopen(path, "r+");
        size_t n = fread(text, 1, sizeof text, file);
        setvbuf(file, NULL, _IONBF, 0);
        for (size_t at = 0; at < n; at++) {
            fseek(file, (long)at, SEEK_SET), fputc(text[at] ^ (1 << at % 8), file);
            assert_true(newest(1) == 1);
            fseek(file, (long)at, SEEK_SET), fputc(text[at], file);
        }
        assert_true(newest(0) == 2);
        fclose(file);
        assert_int_equal(truncate(path, (off_t)n - 1), 0);
        assert_true(newest(1) == 1);
        unlink(path);
        assert_true(newest(1) == 1);
        file = fopen(path, "w");
        fwrite(text, 1, n, file);
        fclose(file);
        assert_true(newest(0) == 2);
    }
    checkpoint_found found;
    assert_int_equal(rename(in_folder("step-00000002"), in_folder("step-00000005")), 0); /* a lie */
    assert_int_equal(checkpoint_newest(folder, "test", &found, &error), 1);
    assert_non_null(strstr(found.why.text, "is of step 2: it has got another name"));
    checkpoint_forget(&found);
    unlink(in_folder("step-00000001/rows"));
    assert_int_equal(checkpoint_newest(folder, "test", &found, &error), -1);
    assert_non_null(strstr(error.text, "none of the 2 checkpoints in "));
}

static void test_self_checked(void **state) {
    (void)state;
    checkpoint_folder *opened = open_folder(0);
    checkpoint_found found;
    unsigned long long step = 3;
    const checkpoint_part parts[] = {{"rows", 1, write_number, &step}};
    assert_int_equal(checkpoint_write(opened, &(save_origin){"model", 3}, parts, 1, 0, &error), 0);
    checkpoint_close(opened);
    put_text(in_folder("step-00000003/rows"), "4\n"); /* its reader's business */
    assert_int_equal(checkpoint_newest(folder, "test", &found, &error), 1);
    assert_true(found.made.files[0].self_checked);
    checkpoint_forget(&found);
    put_text(in_folder("step-00000003/rows"), "44\n");
    assert_int_equal(checkpoint_newest(folder, "test", &found, &error), -1);
    assert_non_null(strstr(error.text, "has 3 bytes, 2 belong to the set"));
}

/* ---- What is written, is ---------------------------------------------------------------------------------- */

/* Old ones that cannot be removed: it is told, the others are, and the new one is there. */
static void test_old_ones_that_stay(void **state) {
    (void)state;
    for (unsigned long long step = 1; step <= 3; step++) assert_int_equal(one_step(step, 0), 0);
    checkpoint_folder *opened = open_folder(1);
    int warned = 0;
    for (long n = 1; n < 200 && !warned; n++) { /* the first call that removes: it renames what is old */
        calls_begin(CALLS_FAIL, n);
        error.text[0] = 0;
        int status = write_step(opened, 10 + (unsigned long long)n, 1);
        calls_begin(CALLS_WORK, 0);
        warned = strstr(error.text, "cannot be removed") != NULL;
        if (!warned) continue;
        assert_int_equal(status, 1);
        assert_true(newest(0) == 10 + (unsigned long long)n);
        assert_int_equal(count("step-"), 2); /* it, and the one that could not be removed */
    }
    assert_true(warned);
    checkpoint_close(opened);
}

/* A folder that cannot be synced: it may be lost, and the next call syncs it. */
static void test_not_synced(void **state) {
    (void)state;
    checkpoint_folder *opened = open_folder(0);
    assert_int_equal(write_step(opened, 1, 0), 0);
    calls_begin(CALLS_WORK, 0);
    assert_int_equal(write_step(opened, 2, 0), 0);
    long calls = (long)(strrchr(calls_log, 'd') - calls_log) + 1; /* the last folder that is synced */
    calls_begin(CALLS_FAIL, calls);
    assert_int_equal(write_step(opened, 3, 1), -1);
    calls_begin(CALLS_WORK, 0);
    assert_non_null(strstr(error.text, "step-00000003 is written, but may be lost if power is: cannot sync folder"));
    assert_true(newest(0) == 3 && is_there("step-00000001"));
    assert_int_equal(write_step(opened, 3, 1), 0);
    assert_true(newest(0) == 3 && !is_there("step-00000001"));
    assert_int_equal(write_step(opened, 3, 1), -1);
    checkpoint_close(opened);
}

/* ---- What others have ----------------------------------------------------------------------------------- */

/* What a process that was killed has left, with this file in it. */
static const char *half(const char *file) {
    static char path[100];
    snprintf(path, sizeof path, ".step-00000001.saving-%c1b2c3/%s", *file == '.' ? file[1] : *file, file);
    return path;
}

static void put_half(const char *file) {
    char place[200];
    strcpy(place, in_folder(half(file)));
    *strrchr(place, '/') = 0;
    assert_int_equal(mkdir(place, 0700), 0);
    put_text(in_folder(half(file)), "half");
    put_text(strcat(place, "/rows"), "half");
}

static void test_tidies_its_own(void **state) {
    (void)state;
    static const char *const theirs[] = {".step-00000001.saving-abc",
                                         ".step-1.saving-abcdef",
                                         "step-1",
                                         "step-0000000x",
                                         ".step-00000001.saving-abcde-",
                                         ".step-00000001.saving-backup",
                                         ".step-00000001.saving-Abc123",
                                         ".other.saving-a1b2c3",
                                         "step-00000001.damaged-1"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) mkdir(in_folder(theirs[i]), 0700);
    put_text(in_folder(".step-00000001.saving-backup/notes"), "mine");
    put_half("notes"), put_half("folder"), put_half(".position.frugal-backup");
    mkdir(in_folder(".step-00000001.saving-z9z9z9"), 0700);
    mkdir(in_folder(".step-00000001.saving-z9z9z9/rows"), 0700); /* a folder of that name is none of a checkpoint's */
    put_half(".rows.frugal-1a2b3c");
    checkpoint_close(open_folder(0)); /* nobody knows yet what a checkpoint's files are called */
    assert_int_equal(newest(0), 0);
    assert_int_equal(one_step(3, 0), 0);
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) assert_true(is_there(theirs[i]));
    assert_true(is_there(".step-00000001.saving-backup/notes") && is_there(half("notes")) && is_there(half("folder")));
    assert_true(is_there(half(".position.frugal-backup")));
    assert_true(is_there(".step-00000001.saving-z9z9z9/rows"));
    assert_false(is_there(half(".rows.frugal-1a2b3c")));
    put_half(".manifest.json.saving-q1w2e3");
    checkpoint_close(open_folder(1)); /* now there is one that tells */
    assert_false(is_there(half(".manifest.json.saving-q1w2e3")));
    assert_int_equal(newest(0), 3);
}

/* Of what lies behind links nothing is removed, and they stay. */
static void test_links(void **state) {
    (void)state;
    assert_int_equal(one_step(1, 0), 0);
    assert_int_equal(rename(in_folder("step-00000001"), in_folder("archive")), 0);
    assert_int_equal(symlink("archive", in_folder("step-00000001")), 0);
    mkdir(in_folder("thesis"), 0700);
    put_text(in_folder("thesis/rows"), "mine");
    assert_int_equal(symlink("thesis", in_folder(".step-00000001.saving-a1b2c3")), 0);
    assert_true(newest(0) == 1); /* to be read, a link will do */
    for (unsigned long long step = 2; step < 5; step++) assert_int_equal(one_step(step, 1), 0);
    assert_true(is_there("archive/rows") && is_there("archive/manifest.json") && is_there("step-00000001"));
    assert_true(is_there("thesis/rows") && is_there(".step-00000001.saving-a1b2c3"));
    assert_false(is_there("step-00000003"));
}

/* One that was saved, not made as a checkpoint, though it has the name of one. */
static void test_saved_sets(void **state) {
    (void)state;
    static const char *const files[] = {"rows", "position"};
    char place[200];
    save_set *set;
    assert_int_equal(one_step(60, 0), 0);
    snprintf(place, sizeof place, "%s/step-00000050", folder);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(save_begin(&set, place, "test", files, 2, &error), 0);
        for (int k = 0; k < 2; k++) {
            fputs("50\n", save_open(set, files[k], &error));
            assert_int_equal(save_close(set, files[k], &error), 0);
        }
        assert_int_equal(save_finish(set, &(save_origin){"model", 50}, 0, &error), 0);
        save_end(set);
    }
    checkpoint_found found;
    assert_int_equal(checkpoint_before(folder, "test", 60, &found, &error), -1);
    assert_non_null(strstr(error.text, "step-00000050/manifest.json is no manifest of a checkpoint"));
    assert_int_equal(one_step(50, 0), -1);
    assert_non_null(strstr(error.text, "step-00000050 is there, and is no checkpoint of test; give another folder"));
    assert_int_equal(one_step(61, 1), 0);
    assert_true(is_there("step-00000050/rows") && !is_there("step-00000060"));
    snprintf(place, sizeof place, "%s/step-00000061", folder); /* nor does a set replace a checkpoint */
    assert_int_equal(save_begin(&set, place, "test", files, 2, &error), -1);
    assert_non_null(strstr(error.text, "step-00000061/manifest.json is no manifest of a saved set; move it away"));
    assert_true(newest(0) == 61);
}

static void test_keep_counts_whole_ones(void **state) {
    (void)state;
    for (unsigned long long step = 1; step <= 4; step++) assert_int_equal(one_step(step, 0), 0);
    put_text(in_folder("step-00000004/rows"), "?"), put_text(in_folder("step-00000003/manifest.json"), "?");
    assert_int_equal(one_step(5, 2), 0);
    assert_true(is_there("step-00000002") && !is_there("step-00000001"));
    assert_true(is_there("step-00000003") && is_there("step-00000004"));
    assert_int_equal(one_step(6, 2), 0); /* 5 is whole: of those before it goes what can be told to be ours */
    assert_true(is_there("step-00000005") && !is_there("step-00000004") && !is_there("step-00000002"));
}

static void test_others_programs(void **state) {
    (void)state;
    checkpoint_folder *opened;
    unsigned long long step = 9;
    const checkpoint_part parts[] = {{"rows", 0, write_number, &step}, {"position", 0, write_number, &step}};
    for (unsigned long long i = 1; i <= 3; i++) assert_int_equal(one_step(i, 0), 0);
    assert_int_equal(checkpoint_open(&opened, folder, "another", 1, &error), 0);
    assert_int_equal(checkpoint_write(opened, &(save_origin){"model", 3}, parts, 2, 1, &error), -1);
    assert_non_null(strstr(error.text, "step-00000003 is there, and is no checkpoint of another"));
    assert_int_equal(checkpoint_write(opened, &(save_origin){"model", 9}, parts, 2, 1, &error), 0);
    checkpoint_close(opened);
    assert_true(is_there("step-00000001") && is_there("step-00000002") && is_there("step-00000003"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_newest),
        TEST(test_keep),
        TEST(test_not_overwritten),
        TEST(test_killed_at_every_call),
        TEST(test_fails_at_every_call),
        TEST(test_failing_part),
        TEST(test_damage),
        TEST(test_self_checked),
        TEST(test_old_ones_that_stay),
        TEST(test_not_synced),
        TEST(test_tidies_its_own),
        TEST(test_links),
        TEST(test_saved_sets),
        TEST(test_keep_counts_whole_ones),
        TEST(test_others_programs),
    };
    return cmocka_run_group_tests_name("test_checkpoint", tests, NULL, NULL);
}
