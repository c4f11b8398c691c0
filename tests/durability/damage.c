/* damage.c - saves that are damaged, cut, or put together wrongly: each is refused by name, and nothing is changed.
 *
 *     damage SEED FOLDER COUNT         of what `trainee train SEED` has saved in FOLDER (DRAW 0)
 *
 * The newest chain of a base and its increments is opened into a matrix of the caller's with a byte of one of its files
 * changed, and with a file of another length: COUNT bytes and lengths a file, drawn; 0: every one. Then with increments
 * missing, doubled, in another order, without the base. Each time open must say FRUGAL_ERR_FILE and name a file, and
 * the matrix must be as it was. (Of two instances the first one may be open when the damage is found, because it is in
 * the rows of the second; then the matrix has been written, and the second is refused.) A file has no byte that nothing
 * depends on: what fills up is under the checksum. Prints counts; exit status 1 if something was not refused.
 */
#include "tests/durability/work.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 64, MOST_ROWS = 8192 };

static char names[MOST_FILES][NAME];
static uint32_t n_names;
static uint64_t tried, wrong;
static float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * (2 * MOST_DIM + 2)];

static int by_name(const void *a, const void *b) {
    const char *x = strrchr(a, '-'), *y = strrchr(b, '-'); /* the step */
    return strcmp(x, y);
}

/* The newest base, and the increments behind it. */
static void find_chain(const char *folder) {
    DIR *open = opendir(folder);
    if (!open) die("cannot read the folder", folder);
    for (struct dirent *each; (each = readdir(open));)
        if (!strncmp(each->d_name, "base-", 5) || !strncmp(each->d_name, "increment-", 10)) {
            if (n_names == MOST_FILES) die("too many saves", folder);
            snprintf(names[n_names++], NAME, "%s/%s", folder, each->d_name);
        }
    closedir(open);
    if (n_names == 0) die("no saves", folder);
    qsort(names, n_names, NAME, by_name);
    uint32_t base = n_names - 1;
    while (base > 0 && !strstr(names[base], "/base-")) base--;
    n_names -= base;
    memmove(names[0], names[base], (size_t)n_names * NAME);
    if (n_names < 3) die("the newest chain has fewer than two increments", folder);
}

static void fill_matrix(void) {
    memset(weights, 0x5a, sizeof weights);
    memset(state, 0x5a, sizeof state);
}
static int is_pattern(const float *array, uint64_t floats) {
    const unsigned char *bytes = (const unsigned char *)array;
    return floats == 0 || (bytes[0] == 0x5a && !memcmp(bytes, bytes + 1, (size_t)floats * sizeof *array - 1));
}
static int is_matrix_untouched(void) {
    uint64_t rows = 0;
    for (uint32_t t = 0; t < work.n_tables[0]; t++) rows += work.tables[0][t].rows;
    return is_pattern(weights, rows * work.dim[0]) &&
           is_pattern(state, rows * frugal_state_floats(work.optimizer[0].kind, work.dim[0]));
}

/* Opens these files; says what is wrong about the answer. `what` is what has been done to them. */
static void must_be_refused(const char *const *paths, uint32_t n, const char *what, uint64_t at) {
    trainer t;
    const char *bad = NULL;
    tried++;
    frugal_status status =
        open_trainer(&t, &(opening){.saved = paths, .n_saved = n, .weights = weights, .state = state});
    if (status == FRUGAL_OK) {
        bad = "it was opened";
        close_trainer(&t);
        fill_matrix();
    } else if (status != FRUGAL_ERR_FILE)
        bad = frugal_message();
    else if (!strstr(frugal_message(), "/base-") && !strstr(frugal_message(), "/increment-"))
        bad = "the message names no file";
    else if (work.instances == 1 && !is_matrix_untouched()) {
        bad = "it was refused, but the matrix has changed";
        fill_matrix();
    }
    if (bad && wrong++ < 5) printf("# %s, at %llu: %s\n", what, (unsigned long long)at, bad);
}

/* >>one file damaged */

static void put_file(const char *name, const unsigned char *data, size_t bytes) {
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) die("cannot write", name);
}
static unsigned char *get_file(const char *name, size_t *bytes) {
    FILE *file = fopen(name, "rb");
    struct stat there;
    if (!file || fstat(fileno(file), &there)) die("cannot read", name);
    *bytes = (size_t)there.st_size;
    unsigned char *data = malloc(*bytes + 64);
    if (!data || fread(data, 1, *bytes, file) != *bytes) die("cannot read", name);
    memset(data + *bytes, 0, 64);
    fclose(file);
    return data;
}

static void damage_file(const char *const *paths, uint32_t which, uint64_t count) {
    size_t bytes;
    unsigned char *data = get_file(paths[which], &bytes);
    test_random r = {.seed = work.seed + which};
    uint64_t n = count && count < bytes ? count : bytes;
    for (uint64_t k = 0; k < n; k++) {
        size_t at = (size_t)(n == bytes ? k : k < n / 4 ? k : test_below(&r, bytes));
        unsigned char flipped = (unsigned char)(1u << test_below(&r, 8));
        data[at] ^= flipped;
        put_file(paths[which], data, bytes);
        must_be_refused(paths, n_names, "a byte is changed", at);
        data[at] ^= flipped;
    }
    for (uint64_t k = 0; k < n; k++) {
        size_t length = (size_t)(n == bytes ? k : test_below(&r, bytes));
        put_file(paths[which], data, length);
        must_be_refused(paths, n_names, "the file is cut", length);
    }
    for (size_t more = 1; more <= 64; more += 21) {
        put_file(paths[which], data, bytes + more);
        must_be_refused(paths, n_names, "something is behind the end", bytes);
    }
    put_file(paths[which], data, bytes);
    free(data);
}

/* >>a chain put together wrongly */

static void misorder(const char *const *paths) {
    const char *other[MOST_FILES + 1];
    for (uint32_t left = 0; left + 1 < n_names; left++) { /* one is missing, not the last */
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_names; i++)
            if (i != left) other[n++] = paths[i];
        must_be_refused(other, n, "a file is missing", left);
    }
    for (uint32_t twice = 0; twice < n_names; twice++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_names; i++) {
            other[n++] = paths[i];
            if (i == twice) other[n++] = paths[i];
        }
        must_be_refused(other, n, "a file is doubled", twice);
    }
    for (uint32_t a = 0; a < n_names; a++)
        for (uint32_t b = a + 1; b < n_names; b++) {
            for (uint32_t i = 0; i < n_names; i++) other[i] = paths[i == a ? b : i == b ? a : i];
            must_be_refused(other, n_names, "two files are exchanged", a);
        }
}

int main(int n, char **arguments) {
    if (n != 4) {
        fprintf(stderr, "usage: damage SEED FOLDER COUNT\n");
        return 2;
    }
    set_work(strtoull(arguments[1], NULL, 10));
    find_chain(arguments[2]);
    const char *paths[MOST_FILES];
    for (uint32_t i = 0; i < n_names; i++) paths[i] = names[i];
    fill_matrix();
    for (uint32_t i = 0; i < n_names; i++) damage_file(paths, i, strtoull(arguments[3], NULL, 10));
    misorder(paths);
    trainer t; /* and the whole one is as it was */
    must_be_ok(open_trainer(&t, &(opening){.saved = paths, .n_saved = n_names}), "open the undamaged one");
    close_trainer(&t);
    printf("# damaged saves: %llu tried, %llu not refused\n", (unsigned long long)tried, (unsigned long long)wrong);
    return wrong > 0;
}
