/* Temporary names, streams that count and check what is written, renaming, locks. */
#include "trainers/common/file.h"
#include "trainers/common/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Names --------------------------------------------------------------------------------------------- */

/* Where the last part of a path begins. */
static const char *file_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The folder of a path, to be freed; NULL: no memory. */
static char *file_folder(const char *path) {
    size_t n = (size_t)(file_base(path) - path);
    return n ? strndup(path, n) : strdup(".");
}

static const char *file_kind(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "no regular file";
}

int file_resolve(const char *name, char **path, program_error *error) {
    struct stat is;
    *path = realpath(name, NULL);
    if (!*path && errno != ENOENT) return program_fail(error, "cannot write %.300s: %s", name, strerror(errno));
    if (!*path && !lstat(name, &is))
        return program_fail(error, "cannot write %.300s: it is a symbolic link that leads to nothing; remove it", name);
    if (!*path && !*file_base(name)) return program_fail(error, "cannot write '%.300s': a file's name is wanted", name);
    if (*path && !stat(*path, &is) && !S_ISREG(is.st_mode)) {
        free(*path);
        *path = NULL;
        return program_fail(error, "cannot write %.300s: it is %s, which is not replaced; give another name", name,
                            file_kind(is.st_mode));
    }
    if (!*path) *path = strdup(name);
    return *path ? 0 : program_fail(error, "out of memory for a path");
}

int file_ends_with(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

/* Is this the same folder (device and number) and the same name in it? */
static int file_is_same_place(const char *a, const char *b) {
    struct stat x, y;
    char *folder_a = file_folder(a), *folder_b = file_folder(b);
    int same = folder_a && folder_b && !stat(folder_a, &x) && !stat(folder_b, &y) && x.st_dev == y.st_dev &&
               x.st_ino == y.st_ino && !strcmp(file_base(a), file_base(b));
    free(folder_a);
    free(folder_b);
    return same;
}

int file_is_same(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return 0;
    int there = !stat(a, &x);
    if (there != !stat(b, &y)) return 0;
    if (!there) return file_is_same_place(a, b);
    return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int file_is_share(const char *entry) {
    const char *mark = strstr(entry, "-of-"), *at = mark ? mark + 4 : entry;
    size_t before = 0, n = strspn(at, "0123456789");
    if (!mark || mark == entry || n == 0 || n > 3 || at[n] != '-') return 0;
    while (mark - before > entry && mark[-1 - (long)before] >= '0' && mark[-1 - (long)before] <= '9') before++;
    if (before == 0 || before > 3 || mark - before - 1 <= entry || mark[-1 - (long)before] != '.') return 0;
    return strlen(at + n + 1) == 16 && strspn(at + n + 1, "0123456789abcdef") == 16;
}

const char *file_remedy(int number) {
    if (number == ENOSPC) return "; make room on its disk";
    if (number == EDQUOT) return "; make room within the quota";
    if (number == EFBIG) return "; raise the limit of a file's size (ulimit -f)";
    if (number == ENFILE) return "; close other programs, or raise the system's limit (sysctl fs.file-max)";
    if (number != EMFILE) return "";
    static _Thread_local char text[80];
    struct rlimit most = {0};
    getrlimit(RLIMIT_NOFILE, &most);
    snprintf(text, sizeof text, "; this process may have %llu (ulimit -n): raise that limit",
             (unsigned long long)most.rlim_cur);
    return text;
}

/* ---- Making -------------------------------------------------------------------------------------------- */

/* A long NAME is cut, so that the temporary name does not become too long. */
char *file_temporary_name(const char *path) {
    const char *base = file_base(path);
    unsigned char bytes[6];
    char *name;
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return NULL;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i % 2 ? '0' + bytes[i] % 10 : 'a' + bytes[i] % 26);
    int n = asprintf(&name, "%.*s.%.*s" FILE_TEMPORARY "%.6s", (int)(base - path), path, NAME_MAX - 20, base,
                     (const char *)bytes);
    return n < 0 ? NULL : name;
}

int file_is_temporary(const char *entry, const char *name) {
    size_t n = strlen(name) < NAME_MAX - 20 ? strlen(name) : NAME_MAX - 20, mark = strlen(FILE_TEMPORARY);
    if (*entry++ != '.' || strncmp(entry, name, n) || strncmp(entry + n, FILE_TEMPORARY, mark)) return 0;
    entry += n + mark;
    for (n = 0; n < 6; n++)
        if (n % 2 ? entry[n] < '0' || entry[n] > '9' : entry[n] < 'a' || entry[n] > 'z') return 0;
    return !entry[n];
}

/* A file that was not there before. */
static int file_create(file_new *file, program_error *error) {
    for (int tries = 0; tries < 100; tries++) {
        free(file->temporary);
        file->temporary = file_temporary_name(file->path);
        if (!file->temporary) return program_fail(error, "out of memory for a path");
        file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->descriptor >= 0) return 0;
        if (errno != EEXIST) break;
    }
    int number = errno;
    free(file->temporary);
    file->temporary = NULL;
    return program_fail(error, "cannot make a file beside %.300s: %s%s", file->path, strerror(number),
                        file_remedy(number));
}

int file_make(file_new *file, const char *name, program_error *error) {
    struct stat is;
    *file = (file_new){.descriptor = -1};
    if (file_resolve(name, &file->path, error)) return -1;
    if (file_create(file, error)) {
        file_discard(file);
        return -1;
    }
    if (!stat(file->path, &is)) (void)!fchmod(file->descriptor, is.st_mode & 0777);
    return 0;
}

int file_write(int descriptor, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n) {
        ssize_t written = write(descriptor, at, n);
        if (written < 0 && errno == EINTR) continue;
        if (!written) errno = EIO;
        if (written <= 0) return -1;
        at += written;
        n -= (size_t)written;
    }
    return 0;
}

/* Called by the stream, to which a return of 0 means a failure. */
static ssize_t file_stream_write(void *cookie, const char *bytes, size_t n) {
    file_new *file = cookie;
    if (!file->failed && file_write(file->descriptor, bytes, n)) file->failed = errno;
    if (file->failed) return 0;
    file->bytes += n;
    file->crc32 = crc32_of(file->crc32, bytes, n);
    return (ssize_t)n;
}

int file_stream(file_new *file, program_error *error) {
    file->stream = fopencookie(file, "w", (cookie_io_functions_t){.write = file_stream_write});
    if (file->stream && !setvbuf(file->stream, NULL, _IOFBF, 1 << 16)) return 0;
    file_discard(file);
    return program_fail(error, "out of memory for a stream");
}

int file_close(file_new *file, program_error *error) {
    if (file->stream && fclose(file->stream) && !file->failed) file->failed = errno ? errno : EIO;
    file->stream = NULL;
    if (!file->failed && fsync(file->descriptor)) file->failed = errno;
    if (close(file->descriptor) && !file->failed) file->failed = errno;
    file->descriptor = -1;
    if (!file->failed) return 0;
    program_fail(error, "cannot write %.300s: %s behind %llu bytes%s", file->path, strerror(file->failed),
                 (unsigned long long)file->bytes, file_remedy(file->failed));
    file_discard(file);
    return -1;
}

void file_discard(file_new *file) {
    if (file->stream) fclose(file->stream);
    if (file->temporary && file->descriptor >= 0) close(file->descriptor);
    if (file->temporary) unlink(file->temporary);
    free(file->path);
    free(file->temporary);
    *file = (file_new){.descriptor = -1};
}

/* ---- Publishing ---------------------------------------------------------------------------------------- */

int file_rename(file_new *file, program_error *error) {
    struct stat is;
    if (!lstat(file->path, &is) && !S_ISREG(is.st_mode))
        return program_fail(error, "cannot write %.300s: it is %s by now, which is not replaced", file->path,
                            S_ISLNK(is.st_mode) ? "a symbolic link" : file_kind(is.st_mode));
    if (rename(file->temporary, file->path))
        return program_fail(error, "cannot give %.300s its name: %s", file->path, strerror(errno));
    free(file->temporary);
    file->temporary = NULL;
    return 0;
}

/* errno says why it failed. */
int file_sync_folder(const char *path, program_error *error) {
    char *folder = file_folder(path);
    if (!folder) return program_fail(error, "out of memory for a path");
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = opened < 0 || (fsync(opened) && errno != EINVAL); /* EINVAL: this file system has nothing to sync */
    int number = errno;
    if (opened >= 0) close(opened);
    if (failed) program_fail(error, "cannot sync folder %.300s: %s%s", folder, strerror(number), file_remedy(number));
    free(folder);
    errno = number;
    return failed ? -1 : 0;
}

DIR *file_open_folder(const char *path) {
    int opened = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = opened >= 0 ? fdopendir(opened) : NULL;
    if (!all && opened >= 0) close(opened);
    return all;
}

int file_make_folder(const char *folder, program_error *error) {
    struct stat is;
    int made = !mkdir(folder, 0777);
    if (!made && errno != EEXIST)
        return program_fail(error, "cannot make folder %.300s: %s%s", folder, strerror(errno), file_remedy(errno));
    char *real = realpath(folder, NULL); /* without slashes at its end: its parent is what is before the last one */
    if (!real || stat(real, &is)) {
        free(real);
        return program_fail(error, "cannot open folder %.300s: %s%s", folder, strerror(errno), file_remedy(errno));
    }
    int status = S_ISDIR(is.st_mode) ? 0 : program_fail(error, "%.300s is there, and is not a folder", folder);
    /* The parent is synced even if the folder was there, because a process that was killed may have made it just now. A
     * parent that this process may not read is left alone. */
    if (!status) status = file_sync_folder(real, error);
    if (status && !made && S_ISDIR(is.st_mode) && errno == EACCES) status = 0;
    free(real);
    return status;
}

int file_publish(file_new *file, program_error *error) {
    int status = file_rename(file, error);
    if (!status) status = file_sync_folder(file->path, error);
    file_discard(file);
    return status;
}

int file_put(const char *name, void fill(FILE *stream, const void *content), const void *content,
             program_error *error) {
    file_new file;
    if (file_make(&file, name, error) || file_stream(&file, error)) return -1;
    fill(file.stream, content);
    return file_close(&file, error) || file_publish(&file, error) ? -1 : 0;
}

/* ---- Locks --------------------------------------------------------------------------------------------- */

static char *file_lock_name(const char *folder) {
    char *name;
    return asprintf(&name, "%s/.frugal-lock", folder) < 0 ? NULL : name;
}

/* What a lock file begins with; then comes who holds it, "kge, process 123 on host". */
static const char file_lock_begins[] = "frugal-lock: ";

/* The process that holds the lock has written its name into the file. */
static int file_is_locked(int lock, const char *folder, program_error *error) {
    const size_t begins = sizeof file_lock_begins - 1;
    char who[200];
    int number = errno;
    ssize_t n = pread(lock, who, sizeof who - 1, 0);
    who[n > 0 ? n : 0] = 0;
    who[strcspn(who, "\n")] = 0;
    if (number != EWOULDBLOCK)
        return program_fail(error, "cannot lock folder %.300s: %s; give one on a local disk", folder, strerror(number));
    return program_fail(error, "folder %.300s is in use by %s; wait for it, or give another folder", folder,
                        !strncmp(who, file_lock_begins, begins) ? who + begins : "another process");
}

/* What file_lock writes; or, of a process that was killed meanwhile, the beginning of it; or zeros of a disk that lost
 * power. */
static int file_is_lock(int lock, off_t size) {
    char who[201] = "";
    if (size < 0 || size >= (off_t)sizeof who || pread(lock, who, (size_t)size, 0) != size) return 0;
    size_t written = strlen(who), begins = sizeof file_lock_begins - 1;
    if (written) return !strncmp(who, file_lock_begins, written < begins ? written : begins);
    for (off_t i = 0; i < size; i++)
        if (who[i]) return 0;
    return 1;
}

/* 1: locked; 0: it was taken away meanwhile; -1: error. */
static int file_try_lock(int *lock, int how, const char *path, const char *folder, program_error *error) {
    struct stat named, opened;
    *lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*lock < 0) return program_fail(error, "cannot write %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = 1;
    if (fstat(*lock, &opened) || !S_ISREG(opened.st_mode))
        status = program_fail(error, "%.300s is no regular file; remove it", path);
    else if (flock(*lock, how | LOCK_NB))
        status = file_is_locked(*lock, folder, error);
    else if (stat(path, &named) || named.st_ino != opened.st_ino || named.st_dev != opened.st_dev)
        status = 0;
    else if (!file_is_lock(*lock, opened.st_size))
        status = program_fail(error, "%.300s is there, and was not made by this program; move it away", path);
    if (status < 1) {
        close(*lock);
        *lock = -1;
    }
    return status;
}

static int file_lock_as(int *lock, int how, const char *folder, const char *program, program_error *error) {
    char *path = file_lock_name(folder), host[65] = "", who[200];
    int status = path ? 0 : program_fail(error, "out of memory for a path");
    *lock = -1;
    while (!status) status = file_try_lock(lock, how, path, folder, error);
    free(path);
    if (status < 0) return -1;
    gethostname(host, sizeof host - 1);
    int n = snprintf(who, sizeof who, "%s%s, process %ld on %s\n", file_lock_begins, program, (long)getpid(), host);
    (void)!ftruncate(*lock, 0);
    (void)!pwrite(*lock, who, (size_t)n, 0); /* for a message only: the lock holds without it */
    return 0;
}

int file_lock(int *lock, const char *folder, const char *program, program_error *error) {
    return file_lock_as(lock, LOCK_EX, folder, program, error);
}

int file_lock_shared(int *lock, const char *folder, const char *program, program_error *error) {
    *lock = -1;
    return access(folder, W_OK) ? 0 : file_lock_as(lock, LOCK_SH, folder, program, error);
}

/* Only a process that holds the lock alone removes the file. A shared lock is released while it becomes an exclusive
 * one; meanwhile another process may have held it and removed the file, and there may be a new file. */
void file_unlock(int lock, const char *folder) {
    struct stat named, opened;
    if (lock < 0) return;
    char *path = file_lock_name(folder);
    if (path && !flock(lock, LOCK_EX | LOCK_NB) && !fstat(lock, &opened) && !stat(path, &named) &&
        named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
        unlink(path); /* before it is unlocked: a process that opens it now finds that it is gone, and makes another */
    free(path);
    close(lock);
}
