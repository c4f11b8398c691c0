/* writers.c - programs that save a file three times, in right and in wrong ways, which the harness must tell apart.
 *
 *     writers WAY FOLDER ACKS                   saves versions 1, 2, 3 of FOLDER/data; reports each in the file ACKS
 *     writers check FOLDER ACK STATUS CALL      is the last reported version there, or a later one, and whole?
 *     writers say ACKS                          reports version 1, for a program that reports nothing itself
 *     writers list [right | wrong]              the ways, one a line: name, and the tests that must refuse it
 *
 * Exit status 1: saving failed, with a message; the old file is still there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 3 * 4096 + 104, VERSIONS = 3 };

typedef struct way {
    const char *name, *refused; /* the tests that refuse it: power, or a kind of fault */
    int by_link, by_stream, by_mapping, by_small_writes;
    int no_sync, no_folder_sync, folder_synced_first, renamed_first, in_place, acked_first, no_map_sync;
    int short_ignored, errors_ignored, sync_error_ignored, leaves_temporary;
} way;

static const way ways[] = {
    {.name = "right", .refused = ""},
    {.name = "small", .refused = "", .by_small_writes = 1},
    {.name = "link", .refused = "", .by_link = 1},
    {.name = "stream", .refused = "", .by_stream = 1},
    {.name = "mapping", .refused = "", .by_mapping = 1},
    {.name = "no-sync", .refused = "power", .no_sync = 1},
    {.name = "no-sync-small", .refused = "power", .no_sync = 1, .by_small_writes = 1},
    {.name = "no-sync-stream", .refused = "power", .no_sync = 1, .by_stream = 1},
    {.name = "no-folder-sync", .refused = "power", .no_folder_sync = 1},
    {.name = "folder-synced-first", .refused = "power", .folder_synced_first = 1},
    {.name = "renamed-first", .refused = "power kill torn", .renamed_first = 1},
    {.name = "in-place", .refused = "power kill torn eio enospc", .in_place = 1},
    {.name = "acked-first", .refused = "power kill", .acked_first = 1},
    {.name = "no-map-sync", .refused = "power", .by_mapping = 1, .no_map_sync = 1},
    {.name = "short-ignored", .refused = "short", .short_ignored = 1},
    {.name = "errors-ignored", .refused = "eio enospc", .errors_ignored = 1},
    {.name = "errors-ignored-stream", .refused = "eio enospc", .errors_ignored = 1, .by_stream = 1},
    {.name = "sync-error-ignored", .refused = "eio", .sync_error_ignored = 1},
    {.name = "leaves-temporary", .refused = "eio enospc", .leaves_temporary = 1},
};

static void fill(char data[BYTES], uint64_t version) {
    uint64_t word = version, sum = 0;
    for (size_t at = 0; at < BYTES - 8; at += 8) {
        memcpy(data + at, &word, 8);
        sum = (sum ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        word = word * UINT64_C(6364136223846793005) + version;
    }
    memcpy(data + BYTES - 8, &sum, 8);
}

static int write_all(const way *w, int fd, const char *data) {
    size_t piece = w->by_small_writes ? 1000 : BYTES;
    for (size_t done = 0; done < BYTES;) {
        size_t wanted = BYTES - done < piece ? BYTES - done : piece;
        ssize_t n = write(fd, data + done, wanted);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && !w->errors_ignored) return -1;
        done += n < 0 || w->short_ignored ? wanted : (size_t)n;
    }
    return 0;
}

static int write_stream(const way *w, int fd, const char *data) {
    FILE *file = fdopen(fd, "wb");
    if (!file) return close(fd), -1;
    int bad = fwrite(data, 1, BYTES, file) != BYTES;
    bad |= fflush(file) != 0;
    if (!w->no_sync) bad |= fsync(fileno(file)) != 0;
    bad |= fclose(file) != 0;
    return bad && !w->errors_ignored ? -1 : 0;
}

static int write_mapping(const way *w, int fd, const char *data) {
    int error = posix_fallocate(fd, 0, BYTES);
    if (error) return errno = error, -1;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return -1;
    memcpy(memory, data, BYTES);
    int result = w->no_map_sync ? 0 : msync(memory, BYTES, MS_SYNC);
    munmap(memory, BYTES);
    return result;
}

/* Writes and closes. */
static int put(const way *w, int fd, const char *data) {
    if (w->by_stream) return write_stream(w, fd, data);
    int result = w->by_mapping ? write_mapping(w, fd, data) : write_all(w, fd, data);
    if (result == 0 && !w->no_sync && !w->no_map_sync) result = fsync(fd) && !w->sync_error_ignored ? -1 : 0;
    if (close(fd) && result == 0) result = -1;
    return w->errors_ignored ? 0 : result;
}

static int sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = fsync(fd), error = errno;
    close(fd);
    errno = error;
    return result;
}

static int publish(const way *w, const char *temporary, const char *name) {
    if (!w->by_link) return rename(temporary, name);
    if (unlink(name) && errno != ENOENT) return -1;
    return link(temporary, name) || unlink(temporary) ? -1 : 0;
}

static int save(const way *w, const char *folder, uint64_t version) {
    char data[BYTES], name[4096], temporary[4096 + 16];
    fill(data, version);
    snprintf(name, sizeof name, "%s/%s%s", folder, w->by_link ? "version-" : "data",
             !w->by_link    ? ""
             : version == 1 ? "1"
             : version == 2 ? "2"
                            : "3");
    snprintf(temporary, sizeof temporary, "%s/.data.XXXXXX", folder);
    int fd = w->in_place ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666) : mkstemp(temporary);
    if (fd < 0) return -1;
    int result = w->renamed_first ? rename(temporary, name) : 0;
    if (result == 0 && w->folder_synced_first) result = sync_folder(folder);
    if (result == 0)
        result = put(w, fd, data);
    else
        close(fd);
    if (result == 0 && !w->in_place && !w->renamed_first) result = publish(w, temporary, name);
    if (result && !w->leaves_temporary) {
        int error = errno;
        unlink(temporary);
        errno = error;
    }
    if (result == 0 && !w->no_folder_sync && !w->folder_synced_first) result = sync_folder(folder);
    return w->errors_ignored ? 0 : result;
}

static void acknowledge(const char *acks, uint64_t version) {
    char line[32];
    int n = snprintf(line, sizeof line, "%llu\n", (unsigned long long)version);
    int fd = open(acks, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write(fd, line, (size_t)n) != n || close(fd)) exit(3);
}

static int save_all(const way *w, const char *folder, const char *acks) {
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        if (w->acked_first) acknowledge(acks, version);
        if (save(w, folder, version)) {
            fprintf(stderr, "writers: cannot save version %d: %s\n", (int)version, strerror(errno));
            return 1;
        }
        if (!w->acked_first) acknowledge(acks, version);
    }
    return 0;
}

/* >>the checker */

/* The version that a file has; 0: it is not there. */
static uint64_t version_of(const char *name) {
    char data[BYTES], wanted[BYTES];
    uint64_t version;
    FILE *file = fopen(name, "rb");
    if (!file) return 0;
    size_t n = fread(data, 1, BYTES, file);
    int more = fgetc(file) != EOF;
    fclose(file);
    memcpy(&version, data, 8);
    if (n == BYTES) fill(wanted, version);
    if (n == BYTES && !more && version > 0 && !memcmp(data, wanted, BYTES)) return version;
    fprintf(stderr, "%s is damaged: %zu bytes\n", name, n);
    exit(1);
}

static int check(const char *folder, const char *ack, const char *status, const char *call) {
    uint64_t newest = 0, wanted = strtoull(ack, NULL, 10);
    int others = 0;
    DIR *open = opendir(folder);
    for (struct dirent *each; open && (each = readdir(open));) {
        char name[8192];
        snprintf(name, sizeof name, "%s/%s", folder, each->d_name);
        if (each->d_name[0] == '.') {
            others += strcmp(each->d_name, ".") && strcmp(each->d_name, "..");
            continue;
        }
        uint64_t version = version_of(name);
        if (version > newest) newest = version;
    }
    if (!open || closedir(open)) return 3;
    if (newest < wanted) {
        fprintf(stderr, "version %llu was reported as saved; there is %llu\n", (unsigned long long)wanted,
                (unsigned long long)newest);
        return 1;
    }
    if (others > 0 && (!strcmp(status, "failed") || !strcmp(status, "done")) && strcmp(call, "unlink")) {
        fprintf(stderr, "%d temporary files are left\n", others);
        return 1;
    }
    return 0;
}

int main(int n, char **arguments) {
    size_t count = sizeof ways / sizeof ways[0];
    if (n >= 2 && !strcmp(arguments[1], "list")) {
        for (size_t i = 0; i < count; i++)
            if (n == 2 || (*ways[i].refused == 0) == !strcmp(arguments[2], "right"))
                printf("%s %s\n", ways[i].name, ways[i].refused);
        return 0;
    }
    if (n == 3 && !strcmp(arguments[1], "say")) {
        acknowledge(arguments[2], 1);
        return 0;
    }
    if (n == 6 && !strcmp(arguments[1], "check")) return check(arguments[2], arguments[3], arguments[4], arguments[5]);
    for (size_t i = 0; n == 4 && i < count; i++)
        if (!strcmp(arguments[1], ways[i].name)) return save_all(&ways[i], arguments[2], arguments[3]);
    fprintf(stderr,
            "usage: writers WAY FOLDER ACKS | say ACKS | check FOLDER ACK STATUS CALL | list [right | wrong]\n");
    return 2;
}
