/* file.c - files and their names: what a name stands for, making a file under a temporary name until it is whole,
 * writing it.
 *
 * A file of somebody else is not destroyed. Links are followed, and everything but a regular file is refused. A new
 * file has a temporary name until all of it is on the disk, and then takes the wanted name in one atomic step. A full
 * disk and the limit of a file's size are errors of the call, not signals. Functions that several threads run at a time
 * return an errno, 0 for none; the others return a status, with a message.
 *
 * A process that is killed leaves its temporary file. The next process that makes a file of the same name removes it.
 * It can tell such files apart, because a file whose process lives is locked before anything is written to it.
 *
 * Contents: >>names >>writing >>publishing
 */
#include "ground.h"

#include <dirent.h>
#include <limits.h>
#include <sys/file.h>

#define MOST_LINKS 40 /* followed one after the other */

/* `what` could not be done to the file `name`, which comes last because it may be long. */
FRUGAL_INTERNAL frugal_status fail_system(const char *what, int error, const char *name) {
    const char *remedy = "";
    if (error == ENOSPC || error == EDQUOT) remedy = "; free space, or choose another file system";
    if (error == EMFILE) remedy = ", or merge saves (`frugal_file merge`)";
    if (error == EFBIG) remedy = "; raise the limit (`ulimit -f`), or choose another file system";
    if (error == EEXIST) remedy = "; choose another name, or say that it may be replaced";
    return frugal_fail(FRUGAL_ERR_FILE, "cannot %s: %s%s: %s", what, error_text(error), remedy, name);
}

FRUGAL_INTERNAL frugal_status fail_write(uint64_t bytes, int error, const char *name) {
    char what[64];
    snprintf(what, sizeof what, "write %llu bytes", (unsigned long long)bytes);
    return fail_system(what, error, name);
}

/* >>names */

/* Replaces the link `path` by the path that it leads to. Returns an errno. */
static int follow_link(char path[LONGEST_PATH]) {
    char target[LONGEST_PATH];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return errno;
    target[n] = 0;
    char *slash = target[0] == '/' ? NULL : strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    if (folder + (size_t)n >= LONGEST_PATH) return ENAMETOOLONG;
    memcpy(path + folder, target, (size_t)n + 1);
    return 0;
}

/* Makes the path of a file that does not exist: the path of its folder, and its own name. Returns an errno. */
static int resolve_folder(char name[LONGEST_PATH], char path[LONGEST_PATH]) {
    char *slash = strrchr(name, '/'), *entry = slash ? slash + 1 : name;
    if (!*entry) return ENOENT;
    char first = *entry;
    *entry = 0;
    int lost = !realpath(slash ? name : ".", path);
    *entry = first;
    if (lost) return errno;
    size_t folder = strlen(path);
    if (folder > 1) path[folder++] = '/'; /* the root has one */
    if (folder + strlen(entry) >= LONGEST_PATH) return ENAMETOOLONG;
    memcpy(path + folder, entry, strlen(entry) + 1);
    return 0;
}

/* Follows links, also those that lead to a file that does not exist. Returns an errno. */
static int resolve_path(const char *name, char path[LONGEST_PATH]) {
    char now[LONGEST_PATH];
    struct stat status;
    if (strlen(name) >= sizeof now) return ENAMETOOLONG;
    memcpy(now, name, strlen(name) + 1);
    for (int links = 0; links < MOST_LINKS; links++) {
        if (realpath(now, path)) return 0;
        if (errno != ENOENT) return errno;
        if (lstat(now, &status) || !S_ISLNK(status.st_mode)) return resolve_folder(now, path);
        int error = follow_link(now);
        if (error) return error;
    }
    return ELOOP;
}

static frugal_status check_regular(const struct stat *status, const char *name) {
    mode_t mode = status->st_mode;
    if (S_ISREG(mode)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE, "a regular file is wanted, and this is a %s; choose another name: %s",
                       S_ISDIR(mode)    ? "folder"
                       : S_ISFIFO(mode) ? "FIFO"
                       : S_ISSOCK(mode) ? "socket"
                                        : "device",
                       name);
}

/* Finds what `name` stands for: a regular file, or no file yet in a folder that exists. Anything else is refused. */
FRUGAL_INTERNAL frugal_status find_file(const char *name, file_name *out) {
    out->there = 0;
    if (!name || !*name) return frugal_fail(FRUGAL_ERR_FILE, "a file's name is NULL or empty");
    if (!stat(name, &out->status)) {
        frugal_status status = check_regular(&out->status, name);
        if (status != FRUGAL_OK) return status;
        out->there = 1;
    } else if (errno != ENOENT)
        return fail_system("find the file", errno, name);
    int error = resolve_path(name, out->path);
    return error ? fail_system("find the file or its folder", error, name) : FRUGAL_OK;
}

/* Opens a file that was found; `flags` as for open. Refuses it if it is no regular file any more. */
FRUGAL_INTERNAL frugal_status open_found(const file_name *name, int flags, int *file) {
    struct stat status;
    *file = open(name->path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*file < 0) return fail_system("open the file", errno, name->path);
    frugal_status result =
        fstat(*file, &status) ? fail_system("look at the file", errno, name->path) : check_regular(&status, name->path);
    if (result == FRUGAL_OK) return result;
    close(*file);
    *file = -1;
    return result;
}

static int is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Does the path still name this open file? It does not if another file was given that name. */
FRUGAL_INTERNAL int is_named(const file_name *name, int file) {
    struct stat named, opened;
    return !stat(name->path, &named) && !fstat(file, &opened) && is_same(&named, &opened);
}

/* Locks the file for this process until it is closed. Returns an errno: EWOULDBLOCK if another process has the lock. */
FRUGAL_INTERNAL int lock_file(int file) {
    return flock(file, LOCK_EX | LOCK_NB) ? errno : 0;
}

/* The same, with others that share it. */
FRUGAL_INTERNAL int share_lock(int file) {
    return flock(file, LOCK_SH | LOCK_NB) ? errno : 0;
}

/* >>writing */

/* Writes data[bytes] at `at`, all of it. Returns an errno. */
FRUGAL_INTERNAL int write_at(int file, const void *data, size_t bytes, uint64_t at) {
    const unsigned char *from = data;
    size_signal saved = hold_size_signal();
    int error = 0;
    while (bytes > 0 && !error) {
        ssize_t n = pwrite(file, from, bytes, (off_t)at);
        if (n > 0)
            from += n, at += (uint64_t)n, bytes -= (size_t)n;
        else if (n == 0)
            error = ENOSPC; /* nothing is written, and no reason is given */
        else if (errno != EINTR)
            error = errno;
    }
    release_size_signal(&saved);
    return error;
}

/* Reads data[bytes] at `at`, all of it. Returns an errno or END_OF_FILE. */
FRUGAL_INTERNAL int read_at(int file, void *data, size_t bytes, uint64_t at) {
    unsigned char *to = data;
    while (bytes > 0) {
        ssize_t n = pread(file, to, bytes, (off_t)at);
        if (n == 0) return END_OF_FILE;
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) to += n, at += (uint64_t)n, bytes -= (size_t)n;
    }
    return 0;
}

/* Reads the first bytes of a file that is to be replaced; *whole becomes 0 if it has fewer. `path`: as the caller named
 * it. */
FRUGAL_INTERNAL frugal_status read_beginning(const file_name *name, const char *path, void *begins, size_t bytes,
                                             int *whole) {
    int file;
    frugal_status status = open_found(name, O_RDONLY, &file);
    if (status != FRUGAL_OK) return status;
    int error = read_at(file, begins, bytes, 0);
    close(file);
    *whole = error == 0;
    return error > 0 ? fail_system("read the file that is to be replaced", error, path) : FRUGAL_OK;
}

/* Makes the file `bytes` long; new bytes are zero. Its space is reserved now, so that a write through a mapping finds
 * space; with `sparse`, space is taken when it is written. Returns an errno. */
FRUGAL_INTERNAL int grow_file(int file, uint64_t bytes, int sparse) {
    size_signal saved = hold_size_signal();
    int error;
    do {
        error = sparse ? (ftruncate(file, (off_t)bytes) ? errno : 0) : posix_fallocate(file, 0, (off_t)bytes);
    } while (error == EINTR);
    release_size_signal(&saved);
    return error;
}

/* May some bytes of the file have no space on the disk? `now`: the stat of the file, which is not empty. Reserved space
 * to which nothing was written yet may be taken for a hole. */
FRUGAL_INTERNAL int has_holes(int file, const struct stat *now) {
#if defined(SEEK_HOLE)
    if (lseek(file, 0, SEEK_HOLE) != now->st_size) return 1; /* the end counts as a hole; or it is not known */
#endif
    (void)file; /* some file systems have holes and report none: blocks show them */
    return (uint64_t)now->st_blocks * 512 < (uint64_t)now->st_size;
}

FRUGAL_INTERNAL int sync_file(int file) {
    int failed;
    do {
        failed = fsync(file);
    } while (failed && errno == EINTR);
    return failed ? errno : 0;
}

/* >>publishing */

/* Draws a number that nobody else has drawn. */
FRUGAL_INTERNAL uint64_t draw_number(void) {
    static FRUGAL_ATOMIC(uint64_t) drawn; /* relaxed: the values need only differ */
    uint64_t number = 0;
    struct timespec now;
    if (!getentropy(&number, sizeof number)) return number;
    clock_gettime(CLOCK_REALTIME, &now);
    number = (uint64_t)now.tv_sec * UINT64_C(1000000007) + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
    return (number + frugal_add_relaxed(&drawn, 1)) * UINT64_C(0x9e3779b97f4a7c15);
}

enum { RANDOM_LETTERS = 6 }; /* a digit, a letter, a digit, ...: nobody names a copy like that */

/* Writes the prefix of temporary names, ".NAME.frugal-"; a long NAME is cut. Returns its length. */
static int name_prefix(const new_file *n, char prefix[LONGEST_ENTRY + 1]) {
    const char *entry = strrchr(n->name->path, '/') + 1;
    return snprintf(prefix, LONGEST_ENTRY + 1, ".%.*s.frugal-", LONGEST_ENTRY - 9 - RANDOM_LETTERS, entry);
}

/* Makes a temporary name, ".NAME.frugal-1a2b3c", with a random end. */
static void name_temporary(new_file *n) {
    int at = name_prefix(n, n->temporary);
    uint64_t number = draw_number();
    for (int i = 0; i < RANDOM_LETTERS; i++, number /= 26)
        n->temporary[at++] = (char)(i % 2 ? 'a' + number % 26 : '0' + number % 10);
    n->temporary[at] = 0;
}

static int is_random(const char *letters) {
    int n = 0;
    while (n < RANDOM_LETTERS &&
           (n % 2 ? letters[n] >= 'a' && letters[n] <= 'z' : letters[n] >= '0' && letters[n] <= '9'))
        n++;
    return n == RANDOM_LETTERS && !letters[n];
}

/* How a trace begins (trace.c); saves and mapped tables begin with SAVED_MAGIC. */

/* Does the file begin as one of ours, with `begin`? */
static int begins_with(int file, const char *begin, size_t bytes) {
    char found[64];
    FRUGAL_ASSERT(bytes <= sizeof found);
    return !read_at(file, found, bytes, 0) && !memcmp(found, begin, bytes);
}

/* Was the file left by its process? It was if nobody has its lock, and it begins as our files do, or is empty. */
static int is_left(int folder, const char *entry, int file) {
    struct stat opened, named;
    if (lock_file(file) || fstat(file, &opened) || !S_ISREG(opened.st_mode)) return 0;
    if (fstatat(folder, entry, &named, AT_SYMLINK_NOFOLLOW) || !is_same(&opened, &named)) return 0;
    return opened.st_size == 0 || begins_with(file, SAVED_MAGIC, SAVED_MAGIC_BYTES) ||
           begins_with(file, TRACE_BEGIN, sizeof TRACE_BEGIN - 1);
}

/* The length of NAME in ".NAME.frugal-1a2b3c"; 0: it is not the name of a temporary file. */
FRUGAL_INTERNAL size_t temporary_of(const char *entry) {
    const size_t ends = sizeof ".frugal-" - 1 + RANDOM_LETTERS;
    size_t n = strlen(entry);
    if (entry[0] != '.' || n < ends + 2 || !is_random(entry + n - RANDOM_LETTERS)) return 0;
    return strncmp(entry + n - ends, ".frugal-", sizeof ".frugal-" - 1) ? 0 : n - ends - 1;
}

/* Removes the files of a folder that `wanted` names, and that their processes have left. Failures are ignored. */
FRUGAL_INTERNAL void remove_left(const char *folder, int (*wanted)(const void *of, const char *entry), const void *of) {
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (struct dirent *e; (e = readdir(entries));) {
        if (!wanted(of, e->d_name)) continue;
        int file = openat(dirfd(entries), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
        if (file < 0) continue;
        if (is_left(dirfd(entries), e->d_name, file)) unlinkat(dirfd(entries), e->d_name, 0);
        close(file);
    }
    closedir(entries);
}

/* Is the entry a temporary file of this name? */
static int is_temporary(const void *of, const char *entry) {
    char prefix[LONGEST_ENTRY + 1];
    size_t length = (size_t)name_prefix(of, prefix);
    return !strncmp(entry, prefix, length) && is_random(entry + length);
}

/* Locks a file that has just been made. Returns an errno; EEXIST: another process removes it, as a file that was left
 * by its process. */
static int keep_new(int file) {
    struct stat opened;
    int error = lock_file(file);
    if (error == EWOULDBLOCK) return EEXIST;
    if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) return 0; /* without locks nobody removes it */
    if (!error && fstat(file, &opened)) error = errno;
    return error || opened.st_nlink > 0 ? error : EEXIST;
}

/* The path of the folder that a file is in. */
FRUGAL_INTERNAL void folder_of(const file_name *name, char folder[LONGEST_PATH]) {
    size_t length = (size_t)(strrchr(name->path, '/') - name->path);
    memcpy(folder, name->path, length + 1);
    folder[length ? length : 1] = 0;
}

/* Opens the folder of the file, and writes its path to `folder`. */
static frugal_status open_folder(new_file *n, char folder[LONGEST_PATH]) {
    folder_of(n->name, folder);
    n->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return n->folder < 0 ? fail_system("open the folder", errno, folder) : FRUGAL_OK;
}

/* Makes a new, empty file in the folder of `name`; `name` must outlive it. Whatever this and publish_new return,
 * drop_new must be called at the end. */
FRUGAL_INTERNAL frugal_status begin_file(new_file *n, const file_name *name) {
    char folder[LONGEST_PATH];
    *n = (new_file){.file = -1, .folder = -1, .name = name};
    frugal_status status = open_folder(n, folder);
    if (status != FRUGAL_OK) return status;
    remove_left(folder, is_temporary, n);
    int error = EEXIST;
    for (int tries = 0; tries < 100 && error == EEXIST; tries++) {
        if (n->file >= 0) close(n->file);
        name_temporary(n);
        n->file = openat(n->folder, n->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        error = n->file < 0 ? errno : keep_new(n->file);
    }
    if (n->file < 0 || error == EEXIST) n->temporary[0] = 0; /* the file is another process's, or there is none */
    if (error) return fail_system("make a file in its folder", error, name->path);
    if (name->there) fchmod(n->file, name->status.st_mode & 0777); /* as the file that it replaces; may fail */
    return FRUGAL_OK;
}

/* Removes a file that was not published, and closes what is open. May be called again. */
FRUGAL_INTERNAL void drop_new(new_file *n) {
    if (n->temporary[0]) unlinkat(n->folder, n->temporary, 0);
    if (n->file >= 0) close(n->file);
    if (n->folder >= 0) close(n->folder);
    n->temporary[0] = 0, n->file = n->folder = -1;
}

/* Takes the wanted name. With `replace`, takes it from the file that has it; else no file may have it. Returns an
 * errno. */
FRUGAL_INTERNAL int take_name(new_file *n, int replace) {
    const char *entry = strrchr(n->name->path, '/') + 1;
    struct stat status;
    if (!replace) {
        if (!linkat(n->folder, n->temporary, n->folder, entry, 0)) {
            unlinkat(n->folder, n->temporary, 0);
            return 0;
        }
        if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return errno;
        /* A file system without hard links: if two processes look at the same time, both may take the name. */
        if (!fstatat(n->folder, entry, &status, AT_SYMLINK_NOFOLLOW)) return EEXIST;
    }
    return renameat(n->folder, n->temporary, n->folder, entry) ? errno : 0;
}

/* Writes the file to the disk, then gives it its name, then writes the folder's entry to the disk. The file stays open:
 * the caller takes n->file, or leaves it to drop_new. On failure the name belongs to the file that had it before,
 * except if a file was replaced and the folder could not be synced. Then the new file has the name (n->named), and a
 * power loss may bring the old one back. */
FRUGAL_INTERNAL frugal_status publish_new(new_file *n, int replace) {
    const char *name = n->name->path;
    int error = sync_file(n->file);
    if (error) return fail_system("write the file to the disk", error, name);
    if ((error = take_name(n, replace)) != 0) return fail_system("give the new file its name", error, name);
    n->temporary[0] = 0, n->named = 1;
    error = sync_file(n->folder);
    if (!error || error == EINVAL) return FRUGAL_OK; /* EINVAL: this file system's folders cannot be synced */
    if (!replace && is_named(n->name, n->file)) n->named = unlink(name) != 0;
    return fail_system(n->named ? "write the folder to the disk, where the new file has its name already"
                                : "write the folder to the disk, so the new file is removed again",
                       error, name);
}
