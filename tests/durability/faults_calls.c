/* faults_calls.c - the calls that faults.so puts in front of the C library's.
 *
 * A call that does not concern the folder is passed on. Writes through dup()ed descriptors, pipes and copy_file_range
 * are not seen; replay.c would notice them, because the whole log, replayed, must give the folder as it is.
 */
#include "tests/durability/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* real_NAME: the C library's NAME. Found at its first call, which may come before any constructor. */
#define REAL(name)                                                                                                     \
    static __typeof__(name) *found_##name;                                                                             \
    static __typeof__(name) *real_##name(void) {                                                                       \
        if (!found_##name) *(void **)(&found_##name) = dlsym(RTLD_NEXT, #name);                                        \
        return found_##name;                                                                                           \
    }                                                                                                                  \
    _Static_assert(sizeof(found_##name) == sizeof(void *), "dlsym gives functions, too")

REAL(openat);
REAL(close);
REAL(write);
REAL(pwrite);
REAL(read);
REAL(pread);
REAL(ftruncate);
REAL(truncate);
REAL(posix_fallocate);
REAL(fallocate);
REAL(fsync);
REAL(fdatasync);
REAL(renameat2);
REAL(linkat);
REAL(unlinkat);
REAL(mkdirat);
REAL(mmap);
REAL(munmap);
REAL(msync);

/* >>opening and closing */

/* Is an opening counted? Yes, if it may change something, or opens a folder, because folders are opened to be synced.
 */
static int opening_counts(const char *path, int flags, int *existed) {
    struct stat there;
    *existed = stat(path, &there) == 0;
    return (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY || faults_reads() ||
           (*existed && S_ISDIR(there.st_mode));
}

static int open_acks(int at, const char *name, int flags, mode_t mode) {
    int fd = real_openat()(at, name, flags, mode);
    watched_file *file = fd >= 0 ? faults_add(fd, name) : NULL;
    if (file) file->acks = 1;
    return fd;
}

static int open_file(int at, const char *name, int flags, mode_t mode) {
    char path[FAULTS_NAME], target[FAULTS_NAME] = "";
    int error = errno, existed = 0;
    if (faults_is_acks(name)) return open_acks(at, name, flags, mode);
    if (!faults_watches(at, name, path)) return real_openat()(at, name, flags, mode);
    if (!(flags & (O_EXCL | O_NOFOLLOW)) && realpath(path, target)) memcpy(path, target, sizeof path);
    watched_call call = {.type = LOG_OPEN, .path = path, .needs_space = flags & O_CREAT};
    call.uncounted = !opening_counts(path, flags, &existed);
    errno = error;
    faults_enter(&call);
    int fd = faults_refused(&call) ? -1 : real_openat()(at, name, flags, mode);
    watched_file *file = fd >= 0 ? faults_add(fd, path) : NULL;
    if (file) {
        struct stat there;
        file->is_folder = fstat(fd, &there) == 0 && S_ISDIR(there.st_mode);
        file->durable = (flags & (O_SYNC | O_DSYNC)) != 0;
        file->appends = (flags & O_APPEND) != 0;
        call.handle = file->handle;
        call.flags = (existed ? 0u : LOG_CREATED) | (existed && (flags & O_TRUNC) ? LOG_TRUNCATED : 0u) |
                     (file->durable ? LOG_DURABLE : 0u);
    }
    faults_leave(&call, fd >= 0);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}
int open(const char *name, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(AT_FDCWD, name, flags, mode);
}
int openat(int at, const char *name, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(at, name, flags, mode);
}
int creat(const char *name, mode_t mode) {
    return open_file(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* Makes names as the C library does, but by calls of open that are seen. */
int mkostemps(char *name, int suffix, int flags) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(name);
    char *x = name + n - (size_t)suffix - 6;
    if (suffix < 0 || n < (size_t)suffix + 6 || memcmp(x, "XXXXXX", 6)) return errno = EINVAL, -1;
    for (int attempt = 0; attempt < 100; attempt++) {
        unsigned char random[6] = {0};
        int source = real_openat()(AT_FDCWD, "/dev/urandom", O_RDONLY | O_CLOEXEC);
        if (source >= 0 && real_read()(source, random, sizeof random) < 0) random[0] = (unsigned char)attempt;
        if (source >= 0) real_close()(source);
        for (int i = 0; i < 6; i++) x[i] = letters[random[i] % 36];
        int fd = open_file(AT_FDCWD, name, flags | O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return errno = EEXIST, -1;
}
int mkstemp(char *name) {
    return mkostemps(name, 0, 0);
}
int mkostemp(char *name, int flags) {
    return mkostemps(name, 0, flags);
}

/* The descriptor is closed even if the call fails, as Linux does. */
int close(int fd) {
    watched_file *file = faults_file(fd);
    if (!file) return real_close()(fd);
    if (!file->changed) {
        file->used = 0;
        return real_close()(fd);
    }
    watched_call call = {.type = LOG_CLOSE, .path = file->path, .handle = file->handle};
    faults_enter(&call);
    file->used = 0;
    int result = real_close()(fd);
    if (faults_refused(&call)) result = -1;
    faults_leave(&call, result == 0);
    return result;
}

/* >>data */

static ssize_t write_acks(int fd, const void *data, size_t bytes) {
    watched_call call = {.type = LOG_ACK, .data = data, .data_bytes = bytes, .uncounted = 1};
    faults_enter(&call);
    ssize_t n = real_write()(fd, data, bytes);
    faults_leave(&call, n > 0);
    return n;
}

/* At `offset`; below 0: at the file's position. */
static ssize_t put(int fd, const void *data, size_t bytes, off_t offset) {
    watched_file *file = faults_file(fd);
    if (file && file->acks) return write_acks(fd, data, bytes);
    if (!file) return offset < 0 ? real_write()(fd, data, bytes) : real_pwrite()(fd, data, bytes, offset);
    watched_call call = {.type = LOG_WRITE, .path = file->path, .handle = file->handle, .data = data, .needs_space = 1};
    faults_enter(&call);
    off_t place = offset >= 0 ? offset : lseek(fd, 0, file->appends ? SEEK_END : SEEK_CUR);
    size_t n = bytes > 1 && (call.fault == FAULT_SHORT || call.fault == FAULT_TORN) ? bytes / 2 : bytes;
    ssize_t done = -1;
    if (!faults_refused(&call)) done = offset < 0 ? real_write()(fd, data, n) : real_pwrite()(fd, data, n, offset);
    file->changed = 1;
    call.flags = file->durable ? LOG_DURABLE : 0;
    call.offset = (uint64_t)place;
    call.data_bytes = done > 0 ? (size_t)done : 0;
    faults_leave(&call, done >= 0);
    return done;
}

static ssize_t put_parts(int fd, const struct iovec *parts, int n, off_t offset) {
    size_t bytes = 0, at = 0;
    for (int i = 0; i < n; i++) bytes += parts[i].iov_len;
    char *whole = malloc(bytes + 1);
    if (!whole) return -1;
    for (int i = 0; i < n; at += parts[i++].iov_len)
        if (parts[i].iov_len > 0) memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
    ssize_t done = put(fd, whole, bytes, offset);
    int error = errno;
    free(whole);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes) {
    return put(fd, data, bytes, -1);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    return offset < 0 ? (errno = EINVAL, -1) : put(fd, data, bytes, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    return put_parts(fd, parts, n, -1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset) {
    return offset < 0 ? (errno = EINVAL, -1) : put_parts(fd, parts, n, offset);
}

static ssize_t get(int fd, void *data, size_t bytes, off_t offset) {
    watched_file *file = faults_reads() ? faults_file(fd) : NULL;
    if (!file || file->acks) return offset < 0 ? real_read()(fd, data, bytes) : real_pread()(fd, data, bytes, offset);
    watched_call call = {.type = LOG_READ, .path = file->path, .handle = file->handle};
    faults_enter(&call);
    if (bytes > 1 && (call.fault == FAULT_SHORT || call.fault == FAULT_TORN)) bytes /= 2;
    ssize_t done = -1;
    if (!faults_refused(&call))
        done = offset < 0 ? real_read()(fd, data, bytes) : real_pread()(fd, data, bytes, offset);
    faults_leave(&call, done >= 0);
    return done;
}
ssize_t read(int fd, void *data, size_t bytes) {
    return get(fd, data, bytes, -1);
}
ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    return offset < 0 ? (errno = EINVAL, -1) : get(fd, data, bytes, offset);
}

/* >>sizes and syncing */

int ftruncate(int fd, off_t length) {
    watched_file *file = faults_file(fd);
    if (!file) return real_ftruncate()(fd, length);
    watched_call call = {
        .type = LOG_TRUNCATE, .path = file->path, .handle = file->handle, .length = (uint64_t)length, .needs_space = 1};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_ftruncate()(fd, length);
    file->changed = 1;
    faults_leave(&call, result == 0);
    return result;
}
int truncate(const char *name, off_t length) {
    char path[FAULTS_NAME];
    if (!faults_watches(AT_FDCWD, name, path)) return real_truncate()(name, length);
    int fd = open_file(AT_FDCWD, name, O_WRONLY | O_CLOEXEC, 0);
    int result = fd >= 0 ? ftruncate(fd, length) : -1, error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return result;
}

static int reserve(int fd, int mode, off_t offset, off_t length, int posix) {
    watched_file *file = faults_file(fd);
    watched_call call = {.type = LOG_RESERVE,
                         .path = file->path,
                         .handle = file->handle,
                         .offset = (uint64_t)offset,
                         .length = (uint64_t)length,
                         .needs_space = 1};
    faults_enter(&call);
    int result = faults_refused(&call) ? (posix ? errno : -1)
                 : posix               ? real_posix_fallocate()(fd, offset, length)
                                       : real_fallocate()(fd, mode, offset, length);
    file->changed = 1;
    faults_leave(&call, result == 0);
    return result;
}
int posix_fallocate(int fd, off_t offset, off_t length) {
    return faults_file(fd) ? reserve(fd, 0, offset, length, 1) : real_posix_fallocate()(fd, offset, length);
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
    if (!faults_file(fd)) return real_fallocate()(fd, mode, offset, length);
    return mode ? (errno = EOPNOTSUPP, -1) : reserve(fd, mode, offset, length, 0);
}

static int sync_file(int fd, int (*really)(int)) {
    watched_file *file = faults_file(fd);
    if (!file) return really(fd);
    watched_call call = {.type = LOG_SYNC, .path = file->path, .handle = file->handle};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : really(fd);
    faults_leave(&call, result == 0);
    return result;
}
int fsync(int fd) {
    return sync_file(fd, real_fsync());
}
int fdatasync(int fd) {
    return sync_file(fd, real_fdatasync());
}

/* >>mappings */

void *mmap(void *wish, size_t bytes, int protection, int flags, int fd, off_t offset) {
    watched_file *file = flags & MAP_ANONYMOUS ? NULL : faults_file(fd);
    int shared = (flags & MAP_TYPE) != MAP_PRIVATE && (protection & PROT_WRITE);
    if (!file || (!shared && !faults_reads())) return real_mmap()(wish, bytes, protection, flags, fd, offset);
    watched_call call = {.type = LOG_READ, .path = file->path, .handle = file->handle};
    faults_enter(&call);
    void *memory = faults_refused(&call) ? MAP_FAILED : real_mmap()(wish, bytes, protection, flags, fd, offset);
    if (memory != MAP_FAILED && shared) faults_map(memory, bytes, file, (uint64_t)offset);
    faults_leave(&call, memory != MAP_FAILED);
    return memory;
}
int munmap(void *memory, size_t bytes) {
    faults_unmap(memory);
    return real_munmap()(memory, bytes);
}
int msync(void *memory, size_t bytes, int flags) {
    watched_call call = {.type = LOG_MAP_SYNC, .length = bytes};
    if (!(flags & MS_SYNC) || !faults_mapped(memory, &call)) return real_msync()(memory, bytes, flags);
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_msync()(memory, bytes, flags);
    faults_leave(&call, result == 0);
    return result;
}

/* >>names */

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    char path[FAULTS_NAME], second[FAULTS_NAME];
    int here = faults_watches(at, from, path), there = faults_watches(to_at, to, second);
    if (!here && !there) return real_renameat2()(at, from, to_at, to, flags);
    watched_call call = {.type = LOG_RENAME, .path = path, .second = second, .needs_space = 1};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_renameat2()(at, from, to_at, to, flags);
    faults_leave(&call, result == 0);
    return result;
}
int renameat(int at, const char *from, int to_at, const char *to) {
    return renameat2(at, from, to_at, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    char path[FAULTS_NAME], second[FAULTS_NAME];
    int here = faults_watches(at, from, path), there = faults_watches(to_at, to, second);
    if (!here || !there) return real_linkat()(at, from, to_at, to, flags);
    watched_call call = {.type = LOG_LINK, .path = path, .second = second, .needs_space = 1};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_linkat()(at, from, to_at, to, flags);
    faults_leave(&call, result == 0);
    return result;
}
int link(const char *from, const char *to) {
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int at, const char *name, int flags) {
    char path[FAULTS_NAME];
    if (!faults_watches(at, name, path)) return real_unlinkat()(at, name, flags);
    watched_call call = {.type = LOG_UNLINK, .path = path};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_unlinkat()(at, name, flags);
    faults_leave(&call, result == 0);
    return result;
}
int unlink(const char *name) {
    return unlinkat(AT_FDCWD, name, 0);
}
int rmdir(const char *name) {
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char *name) {
    int result = unlinkat(AT_FDCWD, name, 0);
    return result && errno == EISDIR ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}

int mkdirat(int at, const char *name, mode_t mode) {
    char path[FAULTS_NAME];
    if (!faults_watches(at, name, path)) return real_mkdirat()(at, name, mode);
    watched_call call = {.type = LOG_FOLDER, .path = path, .needs_space = 1};
    faults_enter(&call);
    int result = faults_refused(&call) ? -1 : real_mkdirat()(at, name, mode);
    faults_leave(&call, result == 0);
    return result;
}
int mkdir(const char *name, mode_t mode) {
    return mkdirat(AT_FDCWD, name, mode);
}
char *mkdtemp(char *name) {
    size_t n = strlen(name);
    if (n < 6 || memcmp(name + n - 6, "XXXXXX", 6)) return errno = EINVAL, NULL;
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%06u", ((unsigned)getpid() * 100 + attempt) % 1000000);
        memcpy(name + n - 6, digits, 6);
        if (mkdirat(AT_FDCWD, name, 0700) == 0) return name;
        if (errno != EEXIST) return NULL;
    }
    return NULL;
}

/* >>the names of large-file calls, to which some headers redirect the others: the same functions */

int open64(const char *name, int flags, ...) __attribute__((alias("open")));
int openat64(int at, const char *name, int flags, ...) __attribute__((alias("openat")));
int creat64(const char *name, mode_t mode) __attribute__((alias("creat")));
int mkstemp64(char *name) __attribute__((alias("mkstemp")));
int mkostemp64(char *name, int flags) __attribute__((alias("mkostemp")));
int mkostemps64(char *name, int suffix, int flags) __attribute__((alias("mkostemps")));
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) __attribute__((alias("pwrite")));
ssize_t pread64(int fd, void *data, size_t bytes, off_t offset) __attribute__((alias("pread")));
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off_t offset) __attribute__((alias("pwritev")));
int ftruncate64(int fd, off_t length) __attribute__((alias("ftruncate")));
int truncate64(const char *name, off_t length) __attribute__((alias("truncate")));
int posix_fallocate64(int fd, off_t offset, off_t length) __attribute__((alias("posix_fallocate")));
int fallocate64(int fd, int mode, off_t offset, off_t length) __attribute__((alias("fallocate")));
void *mmap64(void *wish, size_t bytes, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
