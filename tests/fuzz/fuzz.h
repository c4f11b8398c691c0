/* fuzz.h - what the fuzz targets share: checks that end the program, and files to read and write.
 *
 * A target is one file with LLVMFuzzerTestOneInput: libFuzzer calls it (tests/fuzz/run), and so does replay.c with the
 * inputs of the corpus. The checks have cmocka's names, so that oracles written for unit tests serve here. */
#ifndef FUZZ_H
#define FUZZ_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_inputs; /* that replay.c makes at random: about a second of them */

#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        abort();                                                                                                       \
    } while (0)
#define assert_true(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) fail_msg("not so: %s", #condition);                                                          \
    } while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_int_equal(a, b)  fuzz_equal((int64_t)(a), (int64_t)(b), #a " == " #b, __FILE__, __LINE__)

static inline void fuzz_equal(int64_t a, int64_t b, const char *what, const char *file, int line) {
    if (a == b) return;
    fprintf(stderr, "%s:%d: not so: %s: %" PRId64 ", %" PRId64 "\n", file, line, what, a, b);
    abort();
}

/* Choices read from the input. */
static inline test_random fuzz_bytes(const uint8_t *data, size_t size) {
    return (test_random){.bytes = size ? data : (const uint8_t *)"", .n_bytes = size};
}
static inline int fuzz_is_over(const test_random *r) {
    return r->at >= r->n_bytes;
}

/* >>files - in a folder of this process, in memory where the system has such a place */

static char fuzz_made[64];
static pid_t fuzz_maker; /* a child that libFuzzer forks is not to remove it */

static inline void fuzz_clear(void) {
    char path[1024];
    DIR *folder = opendir(fuzz_made);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", fuzz_made, entry->d_name);
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlink(path);
    }
    if (folder) closedir(folder);
}

static inline void fuzz_remove_folder(void) {
    if (fuzz_maker != getpid()) return;
    fuzz_clear();
    rmdir(fuzz_made);
}

/* The path of a name in the folder; it holds until the second call behind this one. */
static inline const char *fuzz_path(const char *file) {
    static char path[2][1024];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[next], "%s/%s", fuzz_made, file);
    return path[next];
}

/* The folder, empty. */
static inline const char *fuzz_folder(void) {
    if (*fuzz_made) {
        fuzz_clear();
        return fuzz_made;
    }
    snprintf(fuzz_made, sizeof fuzz_made, "%s/frugal-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(fuzz_made)) fail_msg("no folder for files: %s", strerror(errno));
    fuzz_maker = getpid();
    atexit(fuzz_remove_folder);
    return fuzz_made;
}

static inline void fuzz_write(const char *file, const void *bytes, size_t n) {
    const char *path = fuzz_path(file);
    FILE *stream = fopen(path, "wb");
    if (!stream || fwrite(bytes, 1, n, stream) != n || fclose(stream)) fail_msg("%s: %s", path, strerror(errno));
}

/* The whole file, a zero behind its *n bytes; NULL: there is none. The caller frees it. */
static inline char *fuzz_read(const char *file, size_t *n) {
    struct stat there;
    FILE *stream = fopen(fuzz_path(file), "rb");
    if (!stream) return NULL;
    assert_int_equal(0, fstat(fileno(stream), &there));
    char *bytes = malloc((size_t)there.st_size + 1);
    *n = fread(bytes, 1, (size_t)there.st_size, stream);
    assert_int_equal(there.st_size, *n);
    bytes[*n] = 0;
    fclose(stream);
    return bytes;
}

/* How many files lie in the folder. */
static inline int fuzz_count_files(void) {
    int n = 0;
    DIR *folder = opendir(fuzz_made);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    if (folder) closedir(folder);
    return n;
}

#endif /* FUZZ_H */
