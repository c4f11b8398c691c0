/* faults.c - faults.so: which files are watched, the count of calls, the log, and how a fault ends the program. The
 * calls themselves are in faults_calls.c. */
#include "tests/durability/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, MAPPINGS = 16, LARGEST_MAPPING = 64 << 20 };

typedef struct mapping { /* a shared mapping of a watched file, and its pages as they were logged */
    uint8_t *memory, *seen;
    size_t bytes;
    uint64_t handle, offset;
    char path[FAULTS_NAME];
} mapping;

static struct {
    int folder_bytes; /* 0: nothing is watched */
    char folder[FAULTS_NAME], acks[FAULTS_NAME];
    int reads, log, error, lasting;
    fault_kind kind;
    uint64_t at;
} settings = {.log = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all below: a call and its record must be atomic */
static uint64_t calls, handles;
static watched_file files[FAULTS_FILES];
static mapping mappings[MAPPINGS];

static void fail(const char *what) {
    fprintf(stderr, "faults.so: %s\n", what);
    _exit(125);
}

static void read_fault(const char *text) {
    static const struct {
        const char *name;
        fault_kind kind;
        int error;
    } kinds[] = {{"kill", FAULT_KILL, 0},   {"torn", FAULT_TORN, 0},         {"short", FAULT_SHORT, 0},
                 {"eio", FAULT_ERROR, EIO}, {"enospc", FAULT_ERROR, ENOSPC}, {"eintr", FAULT_ERROR, EINTR}};
    const char *colon = strchr(text, ':');
    char *end = NULL;
    for (size_t i = 0; colon && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i].name) == (size_t)(colon - text) && !memcmp(text, kinds[i].name, (size_t)(colon - text))) {
            settings.kind = kinds[i].kind;
            settings.error = kinds[i].error;
            settings.at = strtoull(colon + 1, &end, 10);
        }
    if (!end || settings.at == 0 || (*end && strcmp(end, "+"))) fail("FAULT is KIND:N or KIND:N+");
    settings.lasting = *end == '+';
}

/* >>what is watched */

static int below(const char *path) {
    size_t n = (size_t)settings.folder_bytes;
    return n > 0 && !strncmp(path, settings.folder, n) && (path[n] == '/' || path[n] == 0);
}

/* The folder part resolved, the last part as it stands: renaming and unlinking act on the link itself. */
static int resolve(const char *name, char path[FAULTS_NAME]) {
    char folder[FAULTS_NAME], real[PATH_MAX];
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    if (!*last || !strcmp(last, ".") || !strcmp(last, "..")) return realpath(name, path) != NULL;
    int n = !slash ? 1 : slash == name ? 1 : (int)(slash - name);
    snprintf(folder, sizeof folder, "%.*s", n, slash ? name : ".");
    if (!realpath(folder, real)) return 0;
    size_t a = strlen(real), b = strlen(last);
    if (a + b + 2 > FAULTS_NAME) return 0;
    memcpy(path, real, a);
    path[a] = '/';
    memcpy(path + a + (a > 1), last, b + 1);
    return 1;
}

int faults_watches(int at, const char *name, char path[FAULTS_NAME]) {
    if (settings.folder_bytes == 0 || !name) return 0;
    int error = errno, found;
    if (*name != '/' && at != AT_FDCWD) {
        char whole[FAULTS_NAME + 32];
        found = snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", at, name) < FAULTS_NAME && resolve(whole, path);
    } else
        found = resolve(name, path);
    errno = error;
    return found && below(path);
}

int faults_reads(void) {
    return settings.reads;
}

int faults_is_acks(const char *name) {
    return settings.folder_bytes > 0 && settings.acks[0] && !strcmp(name, settings.acks);
}

watched_file *faults_file(int fd) {
    return fd >= 0 && fd < FAULTS_FILES && files[fd].used ? &files[fd] : NULL;
}

watched_file *faults_add(int fd, const char *path) {
    if (fd < 0 || fd >= FAULTS_FILES) return NULL;
    watched_file *file = &files[fd];
    *file = (watched_file){.used = 1, .handle = ++handles};
    snprintf(file->path, sizeof file->path, "%s", path);
    return file;
}

/* >>log */

static void put_record(const log_record *record, const char *path, const char *second, const void *data) {
    struct iovec parts[] = {{(void *)(uintptr_t)record, sizeof *record},
                            {(void *)(uintptr_t)path, record->path_bytes},
                            {(void *)(uintptr_t)second, record->second_bytes},
                            {(void *)(uintptr_t)data, record->data_bytes}};
    for (int i = 0; i < 4; i++) /* a part at a time: short writes are continued */
        for (size_t done = 0; done < parts[i].iov_len;) {
            long n = syscall(SYS_write, settings.log, (const char *)parts[i].iov_base + done, parts[i].iov_len - done);
            if (n < 0) fail("the log cannot be written");
            done += (size_t)n;
        }
}

static void log_call(const watched_call *call, int success) {
    if (settings.log < 0) return;
    log_record record = {.magic = LOG_MAGIC,
                         .type = call->type,
                         .flags = call->flags | (success ? 0 : LOG_FAILED) | (call->fault ? LOG_FAULT : 0),
                         .path_bytes = call->path ? (uint32_t)strlen(call->path) + 1 : 0,
                         .second_bytes = call->second ? (uint32_t)strlen(call->second) + 1 : 0,
                         .number = call->number,
                         .handle = call->handle,
                         .offset = call->offset,
                         .length = call->length,
                         .data_bytes = success && call->data ? call->data_bytes : 0};
    put_record(&record, call->path, call->second, call->data);
}

__attribute__((constructor)) static void read_environment(void) {
    const char *folder = getenv("FAULTS_FOLDER"), *log = getenv("FAULTS_LOG"), *acks = getenv("FAULTS_ACKS");
    const char *fault = getenv("FAULT"), *reads = getenv("FAULTS_READS");
    if (!folder || !*folder) return;
    if (!realpath(folder, settings.folder)) fail("FAULTS_FOLDER is no folder");
    if (acks && *acks) snprintf(settings.acks, sizeof settings.acks, "%s", acks);
    settings.reads = reads && !strcmp(reads, "1");
    if (fault && *fault) read_fault(fault);
    if (log && *log) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0) fail("FAULTS_LOG cannot be written");
        settings.log = fcntl(fd, F_DUPFD_CLOEXEC, 900); /* out of the way of what the program counts on */
        if (settings.log < 0) settings.log = fd;
    }
    settings.folder_bytes = (int)strlen(settings.folder);
    log_call(&(watched_call){.type = LOG_ROOT, .path = settings.folder}, 1);
}

/* Stores through mappings are found at the next call, as pages that differ from what was logged. */
static void look_at(mapping *m) {
    for (size_t at = 0; at < m->bytes; at += PAGE) {
        size_t n = m->bytes - at < PAGE ? m->bytes - at : PAGE;
        if (!memcmp(m->memory + at, m->seen + at, n)) continue;
        memcpy(m->seen + at, m->memory + at, n);
        log_call(&(watched_call){.type = LOG_MAPPED,
                                 .handle = m->handle,
                                 .offset = m->offset + at,
                                 .data = m->seen + at,
                                 .data_bytes = n},
                 1);
    }
}

static void look_at_mappings(void) {
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].memory && settings.log >= 0) look_at(&mappings[i]);
}

__attribute__((destructor)) static void look_a_last_time(void) {
    pthread_mutex_lock(&lock);
    look_at_mappings();
    pthread_mutex_unlock(&lock);
}

void faults_map(void *memory, size_t bytes, const watched_file *file, uint64_t offset) {
    if (bytes > LARGEST_MAPPING) fail("a mapping is too large to be watched");
    for (int i = 0; i < MAPPINGS; i++)
        if (!mappings[i].memory) {
            mappings[i] = (mapping){memory, malloc(bytes), bytes, file->handle, offset, ""};
            memcpy(mappings[i].path, file->path, sizeof file->path);
            if (!mappings[i].seen) fail("no memory");
            memcpy(mappings[i].seen, memory, bytes);
            return;
        }
    fail("too many mappings to be watched");
}

void faults_unmap(void *memory) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].memory == memory) {
            if (settings.log >= 0) look_at(&mappings[i]);
            free(mappings[i].seen);
            mappings[i].memory = NULL;
        }
    pthread_mutex_unlock(&lock);
}

int faults_mapped(const void *memory, watched_call *call) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS; i++) {
        const mapping *m = &mappings[i];
        if (!m->memory || (uintptr_t)memory < (uintptr_t)m->memory ||
            (uintptr_t)memory >= (uintptr_t)m->memory + m->bytes)
            continue;
        call->path = m->path;
        call->handle = m->handle;
        call->offset = m->offset + (uint64_t)((uintptr_t)memory - (uintptr_t)m->memory);
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* >>the count, and the end */

static _Noreturn void die(void) {
    for (;;) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

void faults_enter(watched_call *call) {
    pthread_mutex_lock(&lock);
    look_at_mappings();
    if (call->uncounted) return;
    call->number = ++calls;
    int due = settings.lasting ? call->number >= settings.at : call->number == settings.at;
    if (settings.kind == FAULT_NONE || !due) return;
    if (settings.kind == FAULT_ERROR && settings.error == ENOSPC && !call->needs_space) return;
    call->fault = settings.kind;
    if (call->fault == FAULT_KILL) {
        log_call(call, 0);
        die();
    }
}

int faults_refused(const watched_call *call) {
    if (call->fault == FAULT_ERROR) errno = settings.error;
    return call->fault == FAULT_ERROR;
}

void faults_leave(watched_call *call, int success) {
    int error = errno;
    log_call(call, success);
    if (call->fault == FAULT_TORN) die();
    pthread_mutex_unlock(&lock);
    errno = error;
}
