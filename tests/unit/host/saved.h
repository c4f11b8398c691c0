/* saved.h - saving a rig, and opening another from the files: for tests of saves. Include after cmocka.h.
 *
 * A rig that was saved goes on, and another one is opened from its saves: both must train the same bits. */
#ifndef SAVED_H
#define SAVED_H

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include "frugal_save.h"
#include "src/format.h"
#include "tests/expect.h"
#include "tests/rig.h"

#define assert_fails(wanted, call, text1, text2) expect_failure(wanted, call, text1, text2, #call, __LINE__)

static char saved_folder[64];

static inline const char *saved_path(const char *entry) {
    static char names[8][PATH_MAX];
    static int turn;
    char *name = names[turn++ % 8];
    snprintf(name, PATH_MAX, "%s/%s", saved_folder, entry);
    return name;
}

static inline int saved_setup(void **state) {
    (void)state;
    strcpy(saved_folder, "/tmp/frugal_saved_XXXXXX");
    return mkdtemp(saved_folder) ? 0 : -1;
}

static inline int saved_count(void) { /* entries in the folder */
    DIR *d = opendir(saved_folder);
    int n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static inline int saved_teardown(void **state) {
    DIR *d = opendir(saved_folder);
    int left = 0;
    (void)state;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (e->d_name[0] == '.') print_message("# left behind: %s\n", e->d_name), left++;
        remove(saved_path(e->d_name));
    }
    if (d) closedir(d);
    return rmdir(saved_folder) || left;
}

#define SAVED_CASE(name, test, argument)                                                                               \
    { name, test, saved_setup, saved_teardown, (void *)(intptr_t)(argument) }
#define SAVED_TEST(test) SAVED_CASE(#test, test, 0)

static inline frugal_status save_one(frugal *f, const char *path, int increment, int replace) {
    frugal_save_desc desc = {.path = path, .increment = increment, .replace = replace};
    return frugal_save(&f, 1, &desc);
}

static inline void rig_drain(rig *r) {
    if (frugal_drain(r->f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
}

static inline void rig_save(rig *r, const char *path, int increment) {
    rig_drain(r);
    if (save_one(r->f, path, increment, 0) != FRUGAL_OK) fail_msg("save: %s", frugal_message());
}

/* Opens `r` with `desc` from the saves. */
static inline void rig_restore(rig *r, const frugal_desc *desc, const char *const *saved, uint32_t n) {
    frugal_desc d = *desc;
    d.saved = saved, d.n_saved = n;
    memset(r, 0, sizeof *r);
    rig_open(r, &d);
}

/* The references of both are the same: what they have trained is. */
static inline void rig_same(rig *a, rig *b) {
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->ref.rows, b->ref.rows);
    assert_memory_equal(a->ref.weights, b->ref.weights, 4 * a->ref.rows * a->ref.dim);
    assert_memory_equal(a->ref.state, b->ref.state, 4 * a->ref.rows * a->ref.state_floats);
}

/* The definition of CRC-32C, a bit at a time: what tests write must not be right by the library's own mistake. */
static inline uint32_t saved_sum(uint32_t before, const void *data, size_t n) {
    const unsigned char *at = data;
    uint32_t sum = ~before;
    for (size_t i = 0; i < n; i++) {
        sum ^= at[i];
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ 0x82f63b78u : sum >> 1;
    }
    return ~sum;
}

/* Makes the checksums of a manifest right whose bytes[n] were changed. */
static inline void saved_seal(unsigned char *bytes, size_t n) {
    manifest_header h;
    memcpy(&h, bytes, sizeof h);
    h.list_checksum = saved_sum(0, bytes + sizeof h, h.list_bytes < n - sizeof h ? h.list_bytes : 0);
    h.checksum = 0;
    h.checksum = saved_sum(0, &h, sizeof h);
    memcpy(bytes, &h, sizeof h);
}

static inline size_t read_file(const char *path, unsigned char **out) {
    struct stat s;
    assert_int_equal(0, stat(path, &s));
    *out = malloc((size_t)s.st_size + 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(s.st_size, fread(*out, 1, (size_t)s.st_size + 1, f));
    fclose(f);
    return (size_t)s.st_size;
}

static inline void write_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(n, fwrite(bytes, 1, n, f));
    assert_int_equal(0, fclose(f));
}

#endif /* SAVED_H */
