/* test_new_file.c - names and files (file.c): nobody's file is destroyed, a new file is whole or is not there, and
 * what the system refuses is a status with the name and the reason.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/failing_files.h"

#include "frugal_flush.c"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>
#include "tests/case.h"
#include "tests/expect.h"
#include "tests/support.h"

#define assert_fails(call, text1, text2) expect_failure(FRUGAL_ERR_FILE, call, text1, text2, #call, __LINE__)

static char folder[LONGEST_PATH]; /* of this test: absolute, without links */

static const char *in_folder(const char *entry) {
    static char names[4][LONGEST_PATH];
    static int turn;
    char *name = names[turn++ % 4];
    snprintf(name, LONGEST_PATH, "%.*s/%s", LONGEST_PATH - 300, folder, entry);
    return name;
}

static int make_folder(void **state) {
    char name[] = "/tmp/frugal_new_file_XXXXXX";
    (void)state;
    let_files_fail(0, 0, 0, 0);
    return mkdtemp(name) && realpath(name, folder) ? 0 : -1;
}

/* Entries in the folder, "." and ".." aside. */
static int count_entries(void) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static int remove_folder(void **state) {
    DIR *d = opendir(folder);
    (void)state;
    for (struct dirent *e; d && (e = readdir(d));)
        if (remove(in_folder(e->d_name)) && e->d_name[0] != '.') print_message("# left behind: %s\n", e->d_name);
    if (d) closedir(d);
    return rmdir(folder);
}

static void write_text(const char *name, const char *text) {
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(0, fclose(f));
}

static void check_text(const char *name, const char *text) {
    char found[64] = {0};
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_int_equal(strlen(text), fread(found, 1, sizeof found - 1, f));
    fclose(f);
    assert_string_equal(text, found);
}

/* A file with `text` is made for `name`; what the last call returned. */
static frugal_status make_text(const char *name, const char *text, int replace) {
    static file_name found;
    new_file n;
    frugal_status status = find_file(name, &found);
    if (status != FRUGAL_OK) return status;
    status = begin_file(&n, &found);
    if (status == FRUGAL_OK) {
        int error = write_at(n.file, text, strlen(text), 0);
        status = error ? fail_write(strlen(text), error, name) : publish_new(&n, replace);
    }
    drop_new(&n);
    drop_new(&n);
    return status;
}

/* >>names */

static void test_made(void **state) {
    (void)state;
    const char *name = in_folder("table");
    assert_int_equal(FRUGAL_OK, make_text(name, "rows", 0));
    check_text(name, "rows");
    assert_fails(make_text(name, "others", 0), "File exists", name);
    check_text(name, "rows");
    chmod(name, 0640);
    assert_int_equal(FRUGAL_OK, make_text(name, "new rows", 1));
    check_text(name, "new rows");
    struct stat s;
    assert_int_equal(0, stat(name, &s));
    assert_int_equal(0640, s.st_mode & 0777);
    assert_int_equal(1, s.st_nlink);
    assert_int_equal(1, count_entries());
}

static void test_name_in_the_working_folder(void **state) {
    (void)state;
    char before[LONGEST_PATH];
    file_name found;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(0, chdir(folder));
    frugal_status status = find_file("table", &found);
    frugal_status made = make_text("table", "rows", 0);
    assert_int_equal(0, chdir(before));
    assert_int_equal(FRUGAL_OK, status);
    assert_int_equal(FRUGAL_OK, made);
    assert_string_equal(in_folder("table"), found.path);
    assert_int_equal(0, found.there);
    check_text(in_folder("table"), "rows");
}

/* The root has no folder but itself. */
static void test_name_in_the_root(void **state) {
    (void)state;
    file_name found;
    new_file n;
    assert_int_equal(FRUGAL_OK, find_file("/frugal_not_there", &found));
    assert_string_equal("/frugal_not_there", found.path);
    let_files_fail(CALL_OPEN, 2, EACCES, 1);
    assert_fails(begin_file(&n, &found), "Permission denied", "/frugal_not_there");
    assert_true(n.folder >= 0);
    drop_new(&n);
}

/* The longest name that a folder takes leaves no room for what a temporary name has more. */
static void test_longest_name(void **state) {
    (void)state;
    char entry[LONGEST_ENTRY + 2], long_name[LONGEST_PATH + 2];
    memset(entry, 'n', sizeof entry);
    entry[LONGEST_ENTRY] = 0;
    assert_int_equal(FRUGAL_OK, make_text(in_folder(entry), "rows", 0));
    check_text(in_folder(entry), "rows");
    entry[LONGEST_ENTRY] = 'n', entry[LONGEST_ENTRY + 1] = 0;
    assert_fails(make_text(in_folder(entry), "rows", 0), "too long", "");
    memset(long_name, 'n', sizeof long_name);
    long_name[LONGEST_PATH + 1] = 0;
    assert_fails(make_text(long_name, "rows", 0), "too long", "");
    for (int i = 0; i < LONGEST_PATH - 1; i++)
        long_name[i] = "./"[i % 2]; /* as long as may be: what is joined is not */
    memcpy(long_name + LONGEST_PATH - 4, "/x", 3);
    char path[LONGEST_PATH];
    assert_int_equal(0, resolve_path(long_name, path));
    for (int i = 0; i < LONGEST_PATH - 60; i++) long_name[i] = "./"[i % 2];
    memset(long_name + LONGEST_PATH - 60, 'n', 50);
    long_name[LONGEST_PATH - 10] = 0;
    assert_int_equal(0, resolve_path(long_name, path));
}

static void test_no_name(void **state) {
    (void)state;
    assert_fails(make_text(NULL, "rows", 0), "NULL or empty", "");
    assert_fails(make_text("", "rows", 0), "NULL or empty", "");
    assert_fails(make_text(in_folder("not_there/table"), "rows", 0), "No such file", "table");
    assert_fails(make_text(in_folder("not_there/"), "rows", 0), "No such file", "not_there/");
    assert_fails(make_text(in_folder("not_there/.."), "rows", 0), "No such file", "not_there/..");
    write_text(in_folder("file"), "mine");
    assert_fails(make_text(in_folder("file/table"), "rows", 0), "Not a directory", "file/table");
    check_text(in_folder("file"), "mine");
}

/* A link stays; what it leads to is replaced, or made. */
static void test_links(void **state) {
    (void)state;
    struct stat s;
    file_name found;
    write_text(in_folder("target"), "old");
    assert_int_equal(0, symlink(in_folder("target"), in_folder("absolute")));
    assert_int_equal(0, symlink("absolute", in_folder("relative")));
    assert_int_equal(FRUGAL_OK, make_text(in_folder("relative"), "new", 1));
    check_text(in_folder("target"), "new");
    assert_int_equal(0, lstat(in_folder("absolute"), &s));
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(0, lstat(in_folder("relative"), &s));
    assert_true(S_ISLNK(s.st_mode));

    assert_int_equal(0, symlink("made", in_folder("dangling")));
    assert_int_equal(0, symlink(in_folder("dangling"), in_folder("to_dangling")));
    assert_int_equal(FRUGAL_OK, find_file(in_folder("to_dangling"), &found));
    assert_string_equal(in_folder("made"), found.path);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("to_dangling"), "rows", 0));
    check_text(in_folder("made"), "rows");
    assert_int_equal(0, lstat(in_folder("dangling"), &s));
    assert_true(S_ISLNK(s.st_mode));

    assert_int_equal(0, symlink("circle", in_folder("circle")));
    assert_fails(make_text(in_folder("circle"), "rows", 1), "symbolic links", "circle");
    assert_int_equal(0, symlink("not_there/file", in_folder("lost")));
    assert_fails(make_text(in_folder("lost"), "rows", 1), "No such file", "lost");
}

/* Links that lead to links without end, or to names too long, where the system has not said so before. */
static void test_links_without_end(void **state) {
    (void)state;
    char path[LONGEST_PATH], name[16], next[16], target[LONGEST_PATH];
    for (int i = 0; i < MOST_LINKS; i++) {
        snprintf(name, sizeof name, "link%d", i), snprintf(next, sizeof next, "link%d", i + 1);
        assert_int_equal(0, symlink(next, in_folder(name)));
    }
    assert_int_equal(ELOOP, resolve_path(in_folder("link0"), path));
    assert_int_equal(0, resolve_path(in_folder("link1"), path));
    assert_string_equal(in_folder("link40"), path);
    memset(target, 'n', sizeof target);
    for (int i = 1; i < LONGEST_PATH - 2; i += 2) target[i] = '/';
    target[LONGEST_PATH - 2] = 0;
    assert_int_equal(0, symlink(target, in_folder("long")));
    assert_int_equal(ENAMETOOLONG, resolve_path(in_folder("long"), path));
    strcpy(path, in_folder("target"));
    assert_int_equal(ENOENT, follow_link(path));
}

/* Whatever is no regular file is neither replaced nor opened, nor waited for. */
static void test_not_regular(void **state) {
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat s;
    assert_int_equal(0, mkfifo(in_folder("fifo"), 0666));
    assert_int_equal(0, mkdir(in_folder("folder"), 0777));
    int endpoint = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.80s/socket", folder);
    assert_int_equal(0, bind(endpoint, (struct sockaddr *)(void *)&address, sizeof address));
    close(endpoint);
    assert_int_equal(0, symlink("/dev/null", in_folder("null")));
    assert_fails(make_text(in_folder("fifo"), "rows", 1), "FIFO", "fifo");
    assert_fails(make_text(in_folder("folder"), "rows", 1), "folder", "folder");
    assert_fails(make_text(in_folder("folder/"), "rows", 1), "folder", "folder/");
    assert_fails(make_text(in_folder("socket"), "rows", 1), "socket", "socket");
    assert_fails(make_text("/dev/null", "rows", 1), "device", "/dev/null");
    assert_fails(make_text(in_folder("null"), "rows", 1), "device", "null");
    assert_int_equal(0, lstat(in_folder("fifo"), &s));
    assert_true(S_ISFIFO(s.st_mode));
    assert_int_equal(0, lstat(in_folder("socket"), &s));
    assert_true(S_ISSOCK(s.st_mode));
    assert_int_equal(0, stat("/dev/null", &s));
    assert_true(S_ISCHR(s.st_mode));
    assert_int_equal(4, count_entries());
}

/* What stood there when it was found is looked at again when it is open. */
static void test_open_found(void **state) {
    (void)state;
    file_name found;
    int file;
    write_text(in_folder("table"), "rows");
    assert_int_equal(FRUGAL_OK, find_file(in_folder("table"), &found));
    assert_int_equal(1, found.there);
    assert_int_equal(4, found.status.st_size);
    assert_int_equal(FRUGAL_OK, open_found(&found, O_RDONLY, &file));
    assert_int_equal(1, is_named(&found, file));
    assert_int_equal(0, rename(in_folder("table"), in_folder("other")));
    assert_int_equal(0, is_named(&found, file));
    write_text(in_folder("table"), "others");
    assert_int_equal(0, is_named(&found, file));
    close(file);
    assert_int_equal(0, remove(in_folder("table")));
    assert_fails(open_found(&found, O_RDONLY, &file), "No such file", "table");
    assert_int_equal(0, mkfifo(in_folder("table"), 0666));
    assert_fails(open_found(&found, O_RDONLY, &file), "FIFO", "table");
    assert_int_equal(-1, file);
    assert_int_equal(0, remove(in_folder("table")));
    write_text(in_folder("table"), "rows");
    let_files_fail(CALL_STAT, 1, EIO, 0);
    assert_fails(open_found(&found, O_RDONLY, &file), "look at", "table");
    assert_int_equal(-1, file);
}

static void test_is_named(void **state) {
    (void)state;
    file_name found;
    write_text(in_folder("table"), "rows");
    assert_int_equal(FRUGAL_OK, find_file(in_folder("table"), &found));
    int file = open(in_folder("table"), O_RDONLY), other = open("/dev/null", O_RDONLY);
    assert_int_equal(1, is_named(&found, file));
    assert_int_equal(0, is_named(&found, other));
    let_files_fail(CALL_STAT, 1, EIO, 0);
    assert_int_equal(0, is_named(&found, file));
    close(file), close(other);
}

/* Names that the system refuses before they are resolved, and a folder that is as deep as may be. */
static void test_resolve_path(void **state) {
    (void)state;
    char path[LONGEST_PATH], name[LONGEST_PATH + 1], before[LONGEST_PATH], entry[LONGEST_ENTRY + 1];
    int depth = 0;
    memset(name, '/', sizeof name);
    name[LONGEST_PATH] = 0;
    assert_int_equal(ENAMETOOLONG, resolve_path(name, path));
    write_text(in_folder("file"), "mine");
    assert_int_equal(ENOTDIR, resolve_path(in_folder("file/table"), path));
    memset(entry, 'n', sizeof entry);
    entry[LONGEST_ENTRY] = 0;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(0, chdir(folder));
    while (depth < LONGEST_PATH / 256 - 1 && !mkdir(entry, 0777) && !chdir(entry)) depth++;
    int error = resolve_path(entry, path), inside = resolve_path("x", path);
    for (int i = 0; i < depth; i++) (void)!chdir(".."), rmdir(entry);
    assert_int_equal(0, chdir(before));
    assert_int_equal(15, depth);
    assert_int_equal(ENAMETOOLONG, error);
    assert_int_equal(0, inside);
}

static void test_lock(void **state) {
    (void)state;
    write_text(in_folder("table"), "rows");
    int one = open(in_folder("table"), O_RDWR), two = open(in_folder("table"), O_RDWR);
    assert_int_equal(0, lock_file(one));
    assert_int_equal(0, lock_file(one));
    assert_int_equal(EWOULDBLOCK, lock_file(two));
    close(one);
    assert_int_equal(0, lock_file(two));
    close(two);
}

/* >>writing: what the system refuses */

/* Each call on files fails, in turn: the old file is there, whole, and nothing else is. */
static void test_every_call_fails(void **state) {
    static const int errors[] = {ENOSPC, EIO, EDQUOT, EFBIG, EACCES, EROFS};
    int replace = (int)(intptr_t)*state, failed = 0;
    for (int at = 1, last = 0; !last; at++) {
        if (replace) write_text(in_folder("table"), "old");
        let_files_fail(0, at, errors[at % 6], 0);
        frugal_status status = make_text(in_folder("table"), "new rows", replace);
        last = failing_files.failures == 0;
        failing_files.at = 0;
        if (last) {
            assert_int_equal(FRUGAL_OK, status);
            check_text(in_folder("table"), "new rows");
        } else if (status == FRUGAL_OK || strstr(frugal_message(), "has its name already")) {
            failed++; /* what replaces it is whole */
            check_text(in_folder("table"), "new rows");
        } else {
            failed++;
            assert_int_equal(FRUGAL_ERR_FILE, status);
            assert_non_null(strstr(frugal_message(), folder));
            if (replace) check_text(in_folder("table"), "old");
            if (!replace) assert_int_equal(-1, access(in_folder("table"), F_OK));
        }
        if (access(in_folder("table"), F_OK) == 0) assert_int_equal(0, remove(in_folder("table")));
        assert_int_equal(0, count_entries());
    }
    assert_int_equal(8, failed); /* two opened, one locked and looked at, one written, two synced, one named */
}

/* What is written is on the disk before it has its name, and then so is the name. */
static void test_order(void **state) {
    (void)state;
    log_file_calls();
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 0));
    if (!file_calls_end("wSlS")) fail_msg("calls: %s", failing_files.log);
    log_file_calls();
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "new rows", 1));
    if (!file_calls_end("wSnS")) fail_msg("calls: %s", failing_files.log);
}

static void test_interrupted(void **state) {
    (void)state;
    char text[] = "0123456789abcdef";
    for (int call = CALL_READ; call <= CALL_SYNC; call++) {
        let_files_fail(call, call == CALL_SYNC || call == CALL_GROW ? 1 : 2, EINTR, 0);
        failing_files.shorter = 3;
        assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), text, 1));
        check_text(in_folder("table"), text);
        int file = open(in_folder("table"), O_RDWR);
        char found[17] = {0};
        assert_int_equal(0, read_at(file, found, 16, 0));
        assert_string_equal(text, found);
        assert_int_equal(0, grow_file(file, 5000, 0));
        assert_int_equal(0, grow_file(file, 6000, 1));
        assert_int_equal(6000, lseek(file, 0, SEEK_END));
        assert_int_equal(1, failing_files.failures);
        close(file);
    }
}

static void test_read_at(void **state) {
    (void)state;
    char found[8];
    write_text(in_folder("table"), "0123456789");
    int file = open(in_folder("table"), O_RDONLY);
    assert_int_equal(0, read_at(file, found, 4, 6));
    assert_memory_equal("6789", found, 4);
    assert_int_equal(END_OF_FILE, read_at(file, found, 4, 7));
    let_files_fail(CALL_READ, 1, EIO, 0);
    assert_int_equal(EIO, read_at(file, found, 4, 0));
    close(file);
}

/* A write that writes nothing and gives no reason must not be tried for ever. */
static void test_nothing_written(void **state) {
    (void)state;
    let_files_fail(CALL_WRITE, 1, 0, 1);
    assert_fails(make_text(in_folder("table"), "rows", 0), "write 4 bytes: No space left", "free space");
    assert_int_equal(0, count_entries());
}

static void test_file_systems(void **state) {
    (void)state;
    static const int without_links[] = {EPERM, EOPNOTSUPP, ENOSYS};
    static const int without_locks[] = {ENOLCK, EOPNOTSUPP, ENOSYS};
    for (int i = 0; i < 3; i++) {
        let_files_fail(CALL_LINK, 1, without_links[i], 0);
        assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 0));
        let_files_fail(CALL_LINK, 1, without_links[i], 0);
        assert_fails(make_text(in_folder("table"), "others", 0), "File exists", "may be replaced");
        check_text(in_folder("table"), "rows");
        assert_int_equal(0, remove(in_folder("table")));
        let_files_fail(CALL_LOCK, 1, without_locks[i], 0);
        assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 1));
        check_text(in_folder("table"), "rows");
        assert_int_equal(1, count_entries());
        assert_int_equal(0, remove(in_folder("table")));
    }
    let_files_fail(CALL_SYNC, 2, EINVAL, 0); /* folders cannot be synced */
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "new rows", 1));
    check_text(in_folder("table"), "new rows");
    assert_int_equal(1, count_entries());
}

/* A temporary name that is taken is somebody else's: another is drawn, a hundred times at most. */
static void test_taken_names(void **state) {
    (void)state;
    let_files_fail(CALL_OPEN, 2, EEXIST, 0);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 0));
    assert_int_equal(3, failing_files.calls);
    let_files_fail(CALL_OPEN, 2, EEXIST, 1);
    assert_fails(make_text(in_folder("other"), "rows", 0), "make a file in its folder", "other");
    assert_int_equal(101, failing_files.calls);
    assert_int_equal(1, count_entries());
}

/* What a killed process has left is removed by the next one that makes a file of the name; what is locked, foreign, or
 * of another name is not. */
static void test_left(void **state) {
    static const char *const stay[] = {".table.frugal-1a2b3c",  ".table.frugal-backup", ".table.frugal-1A2B3C",
                                       ".table.frugal-1a2b3cd", ".table.frugal-1a2b3",  ".table.frugal-123456",
                                       ".other.frugal-1a2b3c",  ".table.1a2b3c",        ".table.frugal-:a2b3c",
                                       ".table.frugal--a2b3c",  ".table.frugal-1{2b3c", ".table.frugal-1f1f0f",
                                       ".table.frugal-1l1n0k"};
    enum { STAY = sizeof stay / sizeof *stay };
    (void)state;
    write_text(in_folder(stay[0]), "somebody's text");
    for (int i = 1; i < STAY - 2; i++) write_text(in_folder(stay[i]), "");
    assert_int_equal(0, mkfifo(in_folder(stay[STAY - 2]), 0666));
    assert_int_equal(0, symlink(in_folder(stay[1]), in_folder(stay[STAY - 1])));
    write_text(in_folder(".table.frugal-0a0a0a"), "");
    write_text(in_folder(".table.frugal-0a0a0b"), SAVED_MAGIC "rows");
    write_text(in_folder(".table.frugal-0a0a0c"), TRACE_BEGIN "{");
    write_text(in_folder(".table.frugal-1l0c9d"), "");
    int locked = open(in_folder(".table.frugal-1l0c9d"), O_RDONLY);
    assert_int_equal(0, lock_file(locked));
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 0));
    assert_int_equal(STAY + 2, count_entries());
    assert_int_equal(0, access(in_folder(".table.frugal-1l0c9d"), F_OK));
    close(locked);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 1));
    assert_int_equal(STAY + 1, count_entries());
    for (int i = 0; i < STAY; i++) assert_int_equal(0, unlink(in_folder(stay[i])));
}

/* What cannot be looked at stays. */
static void test_left_unseen(void **state) {
    (void)state;
    const char *left = in_folder(".table.frugal-0a0a0b");
    write_text(left, SAVED_MAGIC "rows");
    for (int call = CALL_STAT; call <= CALL_READ; call++) {
        let_files_fail(call, 1, EIO, 0);
        assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 1));
        assert_int_equal(1, failing_files.failures);
        assert_int_equal(2, count_entries());
    }
    assert_int_equal(0, remove(left));
}

static void publish_left(void) {
    assert_int_equal(0, rename(in_folder(".table.frugal-0a0a0b"), in_folder("other")));
}
static void exchange_left(void) {
    publish_left();
    write_text(in_folder(".table.frugal-0a0a0b"), SAVED_MAGIC "others");
}
static void lose_left(void) {
    assert_int_equal(0, remove(in_folder(".table.frugal-0a0a0b")));
}

/* A file whose process lives: it gives it its name, or another one takes the temporary name, just before it is locked
 * by who takes it for one that was left. */
static void test_left_lives(void **state) {
    static void (*const meanwhile[])(void) = {publish_left, exchange_left, lose_left};
    static const int entries[] = {2, 3, 1};
    (void)state;
    for (int i = 0; i < 3; i++) {
        write_text(in_folder(".table.frugal-0a0a0b"), SAVED_MAGIC "rows");
        failing_files.before_lock = meanwhile[i];
        assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 1));
        assert_int_equal(entries[i], count_entries());
        remove(in_folder("other"));
        remove(in_folder(".table.frugal-0a0a0b"));
    }
}

/* Somebody removes what has just been made, and has not been locked yet. */
static void remove_new(void) {
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, ".table.frugal-", 14)) assert_int_equal(0, remove(in_folder(e->d_name)));
    closedir(d);
}

/* A file that somebody takes for one that was left, before it is locked: another is made. */
static void test_taken_for_left(void **state) {
    (void)state;
    failing_files.before_lock = remove_new;
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 0));
    assert_int_equal(1, count_entries());
    let_files_fail(CALL_LOCK, 1, EWOULDBLOCK, 0);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "rows", 1));
    assert_int_equal(1, failing_files.failures);
    assert_int_equal(2, count_entries());         /* who has the lock removes the first */
    let_files_fail(CALL_LOCK, 2, EWOULDBLOCK, 1); /* of the left one, and then all */
    assert_fails(make_text(in_folder("table"), "new rows", 1), "make a file in its folder", "table");
    assert_int_equal(101, count_entries());
    let_files_fail(0, 0, 0, 0);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("table"), "new rows", 1));
    assert_int_equal(1, count_entries());
}

/* Where the folder cannot be synced, a new file is removed again, unless that fails, too. */
static void test_unsynced_folder(void **state) {
    (void)state;
    let_files_fail(CALL_SYNC, 2, EIO, 0);
    assert_fails(make_text(in_folder("table"), "rows", 0), "removed again", "table");
    assert_int_equal(0, count_entries());
    let_files_fail(0, 0, 0, 0);
    assert_int_equal(FRUGAL_OK, make_text(in_folder("other"), "rows", 0));
    let_files_fail(0, failing_files.calls, EIO, 1); /* from that sync on: it cannot be looked at, either */
    assert_fails(make_text(in_folder("table"), "rows", 0), "has its name already", "table");
    check_text(in_folder("table"), "rows");
}

/* No descriptor is left for looking at the folder, nor for the file. */
static void test_descriptor_limit(void **state) {
    (void)state;
    struct rlimit before, limit;
    int next = open("/dev/null", O_RDONLY);
    close(next);
    assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &before));
    limit = before, limit.rlim_cur = (rlim_t)next + 1;
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &limit));
    frugal_status status = make_text(in_folder("table"), "rows", 0);
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &before));
    assert_fails(status, "Too many open files", "ulimit -n");
    assert_int_equal(0, count_entries());
    let_files_fail(CALL_OPEN, 1, ENFILE, 0); /* nor in the whole system */
    assert_fails(make_text(in_folder("table"), "rows", 0), "open files in system", "fs.file-max");
    let_files_fail(0, 0, 0, 0);
    assert_int_equal(0, count_entries());
}

/* >>limits: of a file's size, which the system also says by a signal */

static void limit_size(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes;
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &limit));
}

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

static void test_size_limit(void **state) {
    (void)state;
    static char large[100000];
    memset(large, 'x', sizeof large - 1);
    struct sigaction counting = {.sa_handler = count_signal}, before;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    sigaction(SIGXFSZ, &counting, &before);
    limit_size(50000);
    frugal_status status = make_text(in_folder("table"), large, 0);
    int file = open(in_folder("other"), O_RDWR | O_CREAT, 0666);
    int reserved = grow_file(file, 60000, 0), sparse = grow_file(file, 60000, 1);
    limit_size(limit.rlim_cur);
    close(file);
    remove(in_folder("other"));
    sigaction(SIGXFSZ, &before, NULL);
    assert_int_equal(EFBIG, reserved);
    assert_int_equal(EFBIG, sparse);
    assert_int_equal(0, signals);
    assert_fails(status, "File too large", "ulimit -f");
    assert_non_null(strstr(frugal_message(), "write 99999 bytes"));
    assert_int_equal(0, count_entries());
}

/* A signal that was pending before stays, and so does the mask. */
static void test_signal_of_the_callers(void **state) {
    (void)state;
    sigset_t one, before, now;
    int taken = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    raise(SIGXFSZ);
    limit_size(0);
    frugal_status status = make_text(in_folder("table"), "rows", 0);
    limit_size(limit.rlim_cur);
    assert_int_equal(FRUGAL_ERR_FILE, status);
    assert_int_equal(1, is_size_pending());
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    assert_int_equal(1, sigismember(&now, SIGXFSZ));
    sigwait(&one, &taken);
    assert_int_equal(SIGXFSZ, taken);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int main(void) {
#define IN_FOLDER(test)                                                                                                \
    { #test, test, make_folder, remove_folder, NULL }
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_made),
        IN_FOLDER(test_name_in_the_working_folder),
        IN_FOLDER(test_name_in_the_root),
        IN_FOLDER(test_longest_name),
        IN_FOLDER(test_no_name),
        IN_FOLDER(test_links),
        IN_FOLDER(test_links_without_end),
        IN_FOLDER(test_not_regular),
        IN_FOLDER(test_open_found),
        IN_FOLDER(test_is_named),
        IN_FOLDER(test_resolve_path),
        IN_FOLDER(test_lock),
        {"every call fails, a new file", test_every_call_fails, make_folder, remove_folder, (void *)0},
        {"every call fails, a file that is replaced", test_every_call_fails, make_folder, remove_folder, (void *)1},
        IN_FOLDER(test_order),
        IN_FOLDER(test_interrupted),
        IN_FOLDER(test_read_at),
        IN_FOLDER(test_nothing_written),
        IN_FOLDER(test_file_systems),
        IN_FOLDER(test_taken_names),
        IN_FOLDER(test_left),
        IN_FOLDER(test_left_unseen),
        IN_FOLDER(test_left_lives),
        IN_FOLDER(test_taken_for_left),
        IN_FOLDER(test_unsynced_folder),
        IN_FOLDER(test_descriptor_limit),
        IN_FOLDER(test_size_limit),
        IN_FOLDER(test_signal_of_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
