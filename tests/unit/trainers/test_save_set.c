/* test_save_set.c - saved sets: whole or not at all, whatever call fails or is the last one; other files that have
 * their names; two writers; manifests damaged in every byte; the checksum. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>
#include <cmocka.h>
#include "trainers/common/crc32.h"
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "trainers/common/save.h"
#include "tests/seed.h"
#include "tests/support.h"
#include "failing_calls.h"
#include "folder.h"

static const char *const names[] = {"a.npy", "b.txt"};
static program_error error;

static int make_folder(void **state) {
    (void)state;
    calls_begin(CALLS_WORK, 0);
    calls_error = EIO;
    return folder_make("test_save_set");
}

/* What the file holds; "" if it is not there. */
static const char *text_of(const char *path) {
    static char text[8192];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file) fclose(file);
    return text;
}

/* Names in the folder, without the lock. */
static int count_files(void) {
    DIR *all = opendir(folder);
    int n = 0;
    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all));)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, ".frugal-lock");
    closedir(all);
    return n;
}

/* A set whose files hold `letter`; 0, or -1 with the error. */
static int save_letter(char letter) {
    float rows[6] = {(float)letter};
    save_set *set;
    error.text[0] = 0;
    if (save_begin(&set, folder, "test", names, 2, &error)) return -1;
    int status = save_rows(set, names[0], 2, 3, rows, &error);
    FILE *stream = status ? NULL : save_open(set, names[1], &error);
    if (!stream)
        status = -1;
    else {
        for (int i = 0; i < 3000; i++) putc(letter, stream);
        status = save_close(set, names[1], &error);
    }
    status = save_finish(set, &(save_origin){"letters", (uint64_t)letter}, status, &error);
    save_end(set);
    return status;
}

/* The letter of the set that the manifest names; it is whole. */
static char letter_of_set(void) {
    manifest m;
    char path[MANIFEST_LONGEST_PATH], letter = 0;
    if (manifest_check(folder, &error)) fail_msg("%s", error.text);
    assert_int_equal(manifest_read(&m, folder, &error), 1);
    assert_int_equal(m.n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(manifest_find(&m, folder, i, path, &error), 0);
        FILE *file = fopen(path, "r");
        float first = 0;
        assert_non_null(file);
        if (i == 0) {
            assert_int_equal(fseek(file, 128, SEEK_SET), 0);
            assert_int_equal(fread(&first, sizeof first, 1, file), 1);
            letter = (char)first;
        } else
            assert_int_equal(fgetc(file), letter);
        fclose(file);
    }
    assert_int_equal(m.step, letter);
    assert_string_equal(m.program, "test");
    assert_string_equal(m.model, "letters");
    manifest_free(&m);
    return letter;
}

/* As letter_of_set, by the names alone. */
static char letter_of_names(void) {
    char letter = text_of(in_folder(names[1]))[0];
    float first;
    FILE *file = fopen(in_folder(names[0]), "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 128, SEEK_SET), 0);
    assert_int_equal(fread(&first, sizeof first, 1, file), 1);
    fclose(file);
    assert_int_equal((char)first, letter);
    return letter;
}

/* ---- Whole ---------------------------------------------------------------------------------------------- */

static void test_saves(void **state) {
    (void)state;
    assert_int_equal(save_letter('A'), 0);
    assert_int_equal(letter_of_set(), 'A');
    assert_int_equal(letter_of_names(), 'A');
    assert_int_equal(count_files(), 3);
    assert_int_equal(save_letter('B'), 0);
    assert_int_equal(letter_of_names(), 'B');
    assert_int_equal(count_files(), 3);
    assert_int_not_equal(access(in_folder(".frugal-lock"), F_OK), 0);
}

/* Nothing has a name before it is on disk: files and manifest synced, names synced; the manifest renamed, its name
 * synced; the files renamed, their names synced. */
static void test_order_of_syncs(void **state) {
    (void)state;
    char order[4096];
    size_t n = 0;
    assert_int_equal(save_letter('A'), 0);
    calls_begin(CALLS_WORK, 0);
    assert_int_equal(save_letter('B'), 0);
    for (const char *at = calls_log; *at; at++)
        if (strchr("fdr", *at)) order[n++] = *at;
    order[n] = 0;
    assert_string_equal(order, "d" /* the folder's own name */
                               "fff"
                               "dd"
                               "rd"
                               "rr"
                               "dd");
}

/* Killed before each call of the system in turn: one of the two sets is there, and the next writer tidies up. */
static void test_killed_at_every_call(void **state) {
    (void)state;
    int old = 0, new = 0, ended = 0;
    for (long n = 1; !ended; n++) {
        calls_begin(CALLS_WORK, 0);
        assert_int_equal(save_letter('A'), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            calls_begin(CALLS_KILL, n);
            _exit(save_letter('B') != 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        ended = WEXITSTATUS(status) == 0;
        assert_true(ended || WEXITSTATUS(status) == 9);
        char letter = letter_of_set();
        assert_true(letter == 'A' || letter == 'B');
        assert_false(ended && letter == 'A');
        old += letter == 'A', new += letter == 'B';
        save_set *set;
        assert_int_equal(save_begin(&set, folder, "test", names, 2, &error), 0);
        save_end(set);
        assert_int_equal(letter_of_names(), letter);
        assert_int_equal(count_files(), 3);
    }
    print_message("%d ends left the old set, %d the new one\n", old, new);
    assert_true(old > 10 && new > 3);
}

static void test_fails_at_every_call(void **state) {
    (void)state;
    static const int numbers[] = {EIO, ENOSPC, EDQUOT, EFBIG};
    for (int e = 0; e < 4; e++) {
        int status = -1;
        for (long n = 1; status; n++) {
            calls_begin(CALLS_WORK, 0);
            assert_int_equal(save_letter('A'), 0);
            calls_error = numbers[e];
            calls_begin(CALLS_FAIL, n);
            status = save_letter('B');
            int reached = !calls_until;
            calls_begin(CALLS_WORK, 0);
            program_error said = error;
            char letter = letter_of_set();
            if (!status) {
                assert_int_equal(letter, 'B');
                if (reached) status = -1; /* a close that does not matter */
                continue;
            }
            assert_true(said.text[0] && !strchr(said.text, '\n'));
            assert_int_equal(letter, strstr(said.text, "all is saved") ? 'B' : 'A');
            if (letter == 'A') assert_int_equal(letter_of_names(), 'A');
            if (letter == 'A') assert_int_equal(count_files(), 3);
        }
    }
}

static void test_short_writes(void **state) {
    (void)state;
    for (long n = 1; n < 20; n++) {
        calls_begin(CALLS_SHORT, n);
        assert_int_equal(save_letter((char)('A' + n)), 0);
        assert_int_equal(letter_of_set(), 'A' + n);
    }
    calls_error = EINTR;
    for (long n = 1; n < 40; n++) {
        calls_begin(CALLS_WORK, 0);
        save_letter('A');
        calls_begin(CALLS_FAIL, n);
        int status = save_letter('B');
        if (strlen(calls_log) >= (size_t)n && calls_log[n - 1] == 'w') assert_int_equal(status, 0);
        calls_begin(CALLS_WORK, 0);
        letter_of_set();
    }
}

/* The real ones: a device that is full, and ulimit -f. */
static void test_limit_of_size(void **state) {
    (void)state;
    struct rlimit before, small;
    assert_int_equal(save_letter('A'), 0);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1024;
    signal(SIGXFSZ, SIG_IGN); /* as program_open_streams does */
    setrlimit(RLIMIT_FSIZE, &small);
    int status = save_letter('B');
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, -1);
    assert_non_null(strstr(error.text, "b.txt: File too large behind 0 bytes; raise the limit"));
    assert_int_equal(letter_of_names(), 'A');
    assert_int_equal(count_files(), 3);
}

/* No descriptor is left: for what is written, nor for what is read. */
static void test_limit_of_descriptors(void **state) {
    (void)state;
    struct rlimit before, few;
    program_error reading;
    char told[64];
    assert_int_equal(save_letter('A'), 0);
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    int next = dup(0);
    close(next);
    few.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &few);
    int status = save_letter('B'), read = manifest_check(in_folder(""), &reading);
    setrlimit(RLIMIT_NOFILE, &before);
    snprintf(told, sizeof told, "this process may have %d (ulimit -n): raise that limit", next);
    assert_int_equal(status, -1);
    if (!strstr(error.text, told)) fail_msg("%s", error.text);
    assert_int_equal(read, -1);
    assert_non_null(strstr(reading.text, told));
    assert_int_equal(letter_of_names(), 'A');
}

/* ---- What lies under the names -------------------------------------------------------------------------- */

static void test_only_regular_files(void **state) {
    (void)state;
    char other[200];
    snprintf(other, sizeof other, "%s", in_folder("other"));
    assert_int_equal(mkfifo(in_folder("b.txt"), 0600), 0);
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "b.txt: it is a pipe, which is not replaced"));
    unlink(in_folder("b.txt"));
    mkdir(in_folder("b.txt"), 0700);
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "b.txt: it is a folder"));
    rmdir(in_folder("b.txt"));
    assert_int_equal(symlink("/dev/null", in_folder("b.txt")), 0);
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "b.txt: it is a device"));
    unlink(in_folder("b.txt"));
    assert_int_equal(symlink("nowhere", in_folder("b.txt")), 0);
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "a symbolic link that leads to nothing"));
    unlink(in_folder("b.txt"));
    mkdir(other, 0700);
    put_text(strcat(other, "/target"), "");
    assert_int_equal(symlink("other/target", in_folder("b.txt")), 0);
    assert_int_equal(save_letter('A'), 0); /* what it leads to is replaced, and it stays */
    struct stat is;
    assert_true(!lstat(in_folder("b.txt"), &is) && S_ISLNK(is.st_mode));
    assert_int_equal(text_of(other)[0], 'A');
    assert_int_equal(letter_of_set(), 'A');
}

/* Files of users whose names look like temporary ones. */
static void test_keeps_what_others_have(void **state) {
    (void)state;
    static const char *const theirs[] = {
        "a.npy.part",           "a.npy.new",    ".a.npy.saving-",       ".a.npy.saving-abc",
        ".c.npy.saving-a1b2c3", "manifest.txt", ".a.npy.saving-backup", ".b.txt.saving-Abc123"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) put_text(in_folder(theirs[i]), "theirs");
    put_text(in_folder(".a.npy.saving-a1b2c3"), "of a killed process");
    chmod(in_folder("a.npy.part"), 0400);
    put_text(in_folder("a.npy"), "");
    chmod(in_folder("a.npy"), 0640);
    assert_int_equal(save_letter('A'), 0);
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        assert_string_equal(text_of(in_folder(theirs[i])), "theirs");
    assert_int_not_equal(access(in_folder(".a.npy.saving-a1b2c3"), F_OK), 0);
    struct stat is;
    assert_true(!stat(in_folder("a.npy"), &is) && (is.st_mode & 0777) == 0640);
}

/* Without a manifest, what has a name of the set is somebody's; what is empty is nobody's loss. */
static void test_files_of_others(void **state) {
    (void)state;
    put_text(in_folder("a.npy"), "");
    put_text(in_folder("b.txt"), "mine");
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "b.txt: it is there, and no manifest.json tells that it was saved by this"));
    assert_string_equal(text_of(in_folder("b.txt")), "mine");
    assert_int_equal(count_files(), 2);
    assert_int_equal(rename(in_folder("b.txt"), in_folder("mine")), 0);
    assert_int_equal(symlink("mine", in_folder("b.txt")), 0);
    assert_int_equal(save_letter('A'), -1);
    assert_string_equal(text_of(in_folder("mine")), "mine");
    unlink(in_folder("b.txt"));
    assert_int_equal(save_letter('A'), 0);
    assert_int_equal(save_letter('B'), 0);
    assert_string_equal(text_of(in_folder("mine")), "mine");
}

static void test_manifest_of_others(void **state) {
    (void)state;
    put_text(in_folder("manifest.json"), "{\"of\": \"somebody\"}");
    assert_int_equal(save_letter('A'), -1);
    assert_non_null(strstr(error.text, "manifest.json is no manifest of a saved set; move it away"));
    assert_string_equal(text_of(in_folder("manifest.json")), "{\"of\": \"somebody\"}");
    unlink(in_folder("manifest.json"));
    assert_int_equal(manifest_check(folder, &error), -1);
    assert_non_null(strstr(error.text, "has no manifest.json"));
}

static void test_folders(void **state) {
    (void)state;
    save_set *set;
    put_text(in_folder("file"), "text");
    assert_int_equal(save_begin(&set, in_folder("file"), "test", names, 2, &error), -1);
    assert_non_null(strstr(error.text, "is there, and is not a folder"));
    assert_int_equal(save_begin(&set, in_folder("missing/folder"), "test", names, 2, &error), -1);
    assert_non_null(strstr(error.text, "cannot make folder"));
    assert_null(set);
    assert_int_equal(save_begin(&set, in_folder("new"), "test", names, 2, &error), 0);
    save_end(set);
    assert_int_equal(rmdir(in_folder("new")), -1); /* nothing was saved: it is gone */
    assert_int_equal(mkdir(in_folder("new"), 0777), 0);
    assert_int_equal(save_begin(&set, in_folder("new"), "test", names, 2, &error), 0);
    save_end(set);
    assert_int_equal(rmdir(in_folder("new")), 0); /* the user's stays */
}

/* How many folders are synced, and which is the last: its inode is that of `parent`. */
static void check_made(const char *path, const char *parent) {
    struct stat is;
    calls_begin(CALLS_WORK, 0);
    assert_int_equal(file_make_folder(path, &error), 0);
    assert_int_equal(strspn(calls_log, "mo"), strcspn(calls_log, "d"));
    assert_non_null(strchr(calls_log, 'd'));
    assert_int_equal(stat(parent, &is), 0);
    assert_true(is.st_ino == calls_synced);
}

/* The folder's name is on disk: in its parent, whatever way it is written, also if somebody else has just made it. */
static void test_parents_are_synced(void **state) {
    (void)state;
    check_made(in_folder("plain"), folder);
    check_made(in_folder("slash///"), folder);
    check_made(in_folder("slash/"), folder); /* it was there */
    mkdir(in_folder("far"), 0700), mkdir(in_folder("far/real"), 0700);
    assert_int_equal(symlink("far/real", in_folder("link")), 0);
    check_made(in_folder("link"), in_folder("far"));
    check_made(in_folder("plain/."), folder);
    check_made("/", "/");
    calls_begin(CALLS_FAIL, 3);
    assert_int_equal(file_make_folder(in_folder("plain"), &error), -1);
    assert_non_null(strstr(error.text, "cannot sync folder"));
}

/* ---- Two writers ---------------------------------------------------------------------------------------- */

static void test_second_writer(void **state) {
    (void)state;
    save_set *set;
    char who[40];
    assert_int_equal(save_letter('A'), 0);
    assert_int_equal(save_begin(&set, folder, "first", names, 2, &error), 0);
    assert_int_equal(save_letter('B'), -1); /* another descriptor is as good as another process */
    snprintf(who, sizeof who, "first, process %ld on ", (long)getpid());
    assert_non_null(strstr(error.text, "is in use by"));
    assert_non_null(strstr(error.text, who));
    assert_int_equal(letter_of_names(), 'A');
    save_end(set);
    assert_int_equal(save_letter('B'), 0);
    static const char *const ours[] = {"frugal-lock: test, process 12 on a host that is no more\n", "", /* torn: */
                                       "frugal-lock: kge, pro", "frug"};
    static const char *const theirs[] = {"mine\n", "frugal-locks: none\n", "test, process 12 on a\n", "lock"};
    for (int i = 0; i < 4; i++) {
        put_text(in_folder(".frugal-lock"), ours[i]);
        assert_int_equal(save_letter('C'), 0);
        put_text(in_folder(".frugal-lock"), theirs[i]);
        assert_int_equal(save_letter('D'), -1);
        assert_non_null(strstr(error.text, "/.frugal-lock is there, and was not made by this program; move it away"));
        assert_string_equal(text_of(in_folder(".frugal-lock")), theirs[i]);
        unlink(in_folder(".frugal-lock"));
    }
    assert_int_equal(mkfifo(in_folder(".frugal-lock"), 0600), 0);
    assert_int_equal(save_letter('D'), -1);
    assert_non_null(strstr(error.text, "no regular file"));
}

/* ---- Manifests ------------------------------------------------------------------------------------------ */

/* Every byte of every file changed, and every length: refused. */
static void test_damage(void **state) {
    (void)state;
    static const char *const all[] = {"a.npy", "b.txt", "manifest.json"};
    assert_int_equal(save_letter('A'), 0);
    for (int i = 0; i < 3; i++) {
        char text[8192], path[200];
        size_t n;
        strcpy(path, in_folder(all[i]));
        FILE *file = fopen(path, "r");
        n = fread(text, 1, sizeof text, file);
        fclose(file);
        file = fopen(path, "r+");
        setvbuf(file, NULL, _IONBF, 0);
        for (size_t at = 0; at < n; at++) {
            fseek(file, (long)at, SEEK_SET), fputc(text[at] ^ (1 << at % 8), file);
            if (!manifest_check(folder, &error)) fail_msg("byte %zu of %s changed, and accepted", at, all[i]);
            fseek(file, (long)at, SEEK_SET), fputc(text[at], file);
        }
        assert_int_equal(manifest_check(folder, &error), 0);
        for (size_t length = n; length-- > 0;) {
            assert_int_equal(ftruncate(fileno(file), (off_t)length), 0);
            if (!manifest_check(folder, &error)) fail_msg("%s cut to %zu bytes, and accepted", all[i], length);
        }
        fseek(file, 0, SEEK_SET), fwrite(text, 1, n, file), fputc('x', file);
        assert_int_equal(manifest_check(folder, &error), -1);
        assert_int_equal(ftruncate(fileno(file), (off_t)n), 0);
        fclose(file);
        assert_int_equal(manifest_check(folder, &error), 0);
    }
}

static void test_manifest_text(void **state) {
    (void)state;
    manifest m = {.program = "a \"quoted\" \\ name", .version = "1", .model = "tab\there", .step = UINT64_MAX, .n = 2};
    manifest_file files[] = {{"one", NULL, UINT64_MAX, UINT32_MAX, 0}, {"two", (char *)"/else \"where\"", 0, 0, 1}};
    memcpy(m.files, files, sizeof files);
    char *text = manifest_text(&m);
    put_text(in_folder("manifest.json"), text);
    free(text);
    manifest again;
    assert_int_equal(manifest_read(&again, folder, &error), 1);
    assert_string_equal(again.program, m.program);
    assert_string_equal(again.model, m.model);
    assert_string_equal(again.date, m.date);
    assert_true(again.step == UINT64_MAX && again.n == 2 && again.files[0].bytes == UINT64_MAX);
    assert_true(again.files[0].crc32 == UINT32_MAX && !again.files[0].written);
    assert_string_equal(again.files[1].written, "/else \"where\"");
    assert_true(again.files[1].self_checked && !again.files[0].self_checked);
    manifest_free(&again);
    m.files[1].written = (char *)"../outside"; /* no name leads out of the folder */
    put_text(in_folder("manifest.json"), text = manifest_text(&m));
    free(text);
    assert_int_equal(manifest_read(&again, folder, &error), -1);
    assert_non_null(strstr(error.text, "is damaged"));
    manifest_free(&again);
}

/* ---- Single files --------------------------------------------------------------------------------------- */

static void test_same_file(void **state) {
    (void)state;
    put_text(in_folder("a"), "a"), put_text(in_folder("b"), "a");
    assert_int_equal(symlink("a", in_folder("link")), 0);
    assert_true(file_is_same(in_folder("a"), in_folder("link")));
    assert_false(file_is_same(in_folder("a"), in_folder("b")));
    assert_false(file_is_same(in_folder("a"), in_folder("missing")));
    assert_true(file_is_same(in_folder("./missing"), in_folder("missing")));
    assert_false(file_is_same(in_folder("missing"), in_folder("other")));
    assert_false(file_is_same(NULL, in_folder("a")) || file_is_same(in_folder("a"), NULL));
}

static void test_one_file(void **state) {
    (void)state;
    file_new file;
    char long_name[400];
    assert_int_equal(file_make(&file, in_folder("log"), &error), 0);
    assert_int_equal(file_stream(&file, &error), 0);
    fputs("text", file.stream);
    assert_int_equal(file_close(&file, &error), 0);
    assert_true(file.bytes == 4 && file.crc32 == (uint32_t)crc32(0, (const Bytef *)"text", 4));
    assert_string_equal(text_of(in_folder("log")), "");
    mkdir(in_folder("log"), 0700); /* meanwhile */
    assert_int_equal(file_publish(&file, &error), -1);
    assert_non_null(strstr(error.text, "it is a folder by now"));
    assert_int_equal(count_files(), 1);
    assert_int_equal(file_make(&file, "", &error), -1);
    assert_int_equal(file_make(&file, in_folder("missing/"), &error), -1);
    snprintf(long_name, sizeof long_name, "%s/%0255d", folder, 7); /* the longest that a file system takes */
    assert_int_equal(file_make(&file, long_name, &error), 0);
    assert_int_equal(file_close(&file, &error) || file_publish(&file, &error), 0);
    assert_int_equal(access(long_name, F_OK), 0);
}

static void test_checksum(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_save_set", 16)};
    unsigned char bytes[300];
    assert_int_equal(crc32_of(0, "123456789", 9), 0xcbf43926u); /* the check value that the CRC's definition gives */
    for (int i = 0; i < 2000; i++) {
        size_t from = test_below(&r, 20), n = test_below(&r, sizeof bytes - 19), cut = test_below(&r, n + 1);
        for (size_t k = 0; k < n; k++) bytes[from + k] = (unsigned char)test_below(&r, 256);
        uint32_t wanted = (uint32_t)crc32(0, bytes + from, (uInt)n);
        assert_int_equal(crc32_of(0, bytes + from, n), wanted);
        assert_int_equal(crc32_of(crc32_of(0, bytes + from, cut), bytes + from + cut, n - cut), wanted);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_saves),
        TEST(test_order_of_syncs),
        TEST(test_killed_at_every_call),
        TEST(test_fails_at_every_call),
        TEST(test_short_writes),
        TEST(test_limit_of_size),
        TEST(test_limit_of_descriptors),
        TEST(test_only_regular_files),
        TEST(test_keeps_what_others_have),
        TEST(test_files_of_others),
        TEST(test_manifest_of_others),
        TEST(test_folders),
        TEST(test_parents_are_synced),
        TEST(test_second_writer),
        TEST(test_damage),
        TEST(test_manifest_text),
        TEST(test_same_file),
        TEST(test_one_file),
        cmocka_unit_test(test_checksum),
    };
    return cmocka_run_group_tests_name("test_save_set", tests, NULL, NULL);
}
