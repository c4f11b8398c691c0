/* scratch.h - a folder that belongs to one test, and its files. Include after cmocka.h. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of an entry in the folder, which is made if there is none; the same pointer for the same entry. "": the
 * folder. The folder's name is random, because a killed test leaves its folder, and a later process may get the same
 * process number. */
static inline char *scratch_path(const char *entry) {
    static char names[32][384], folder[] = "/tmp/frugal_scratch_XXXXXX";
    char name[384];
    int i = 0;
    if (strstr(folder, "_XXXXXX"))
        assert_non_null(mkdtemp(folder));
    else
        mkdir(folder, 0700);
    snprintf(name, sizeof name, "%s/%s", folder, entry);
    while (i < 32 && names[i][0] && strcmp(names[i], name) != 0) i++;
    assert_in_range(i, 0, 31);
    memcpy(names[i], name, sizeof name);
    return names[i];
}

/* The number of its entries; with `remove_them` these and the folder are removed. */
static inline int scratch_look(int remove_them) {
    char folder[128];
    int n = 0;
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        n++;
        if (remove_them) assert_int_equal(0, unlinkat(dirfd(stream), entry->d_name, 0));
    }
    closedir(stream);
    if (remove_them) assert_int_equal(0, rmdir(folder));
    return n;
}
static inline int scratch_count(void) {
    return scratch_look(0);
}
static inline int scratch_end(void) {
    return scratch_look(1);
}

static inline void scratch_write(const char *name, const void *bytes, size_t n) {
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(file >= 0 && write(file, bytes, n) == (ssize_t)n && close(file) == 0);
}

/* All bytes of the file, to be freed. */
static inline unsigned char *scratch_read(const char *name, size_t *n) {
    struct stat status;
    int file = open(name, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &status) == 0);
    unsigned char *bytes = malloc((size_t)status.st_size + 1);
    assert_true(read(file, bytes, (size_t)status.st_size) == status.st_size && close(file) == 0);
    *n = (size_t)status.st_size;
    return bytes;
}

#endif /* SCRATCH_H */
