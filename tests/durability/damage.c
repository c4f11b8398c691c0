/* damage.c - saves and mapped tables that are damaged, cut, or put together wrongly: each is refused by name, and
 * nothing is changed.
 *
 *     damage saves SEED FOLDER COUNT   damages what `trainee train SEED` has saved in FOLDER (DRAW 0)
 *     damage tables SEED FOLDER COUNT  damages mapped tables FOLDER/table-0, ..., restored from these saves
 *
 * Saves: the newest chain of a base and its increments is opened into a matrix of the caller's, each time with one byte
 * of a file changed, or with a file of another length. COUNT bytes and lengths are drawn per file; 0: all. Then the
 * chain is opened with increments missing, doubled or in another order, and without the base. Each time open must say
 * FRUGAL_ERR_FILE and name a file, and the matrix must be as it was. (Of two instances the first one may be open when
 * the damage is found, because it is in the rows of the second; then the matrix has been written, and the second is
 * refused.) Every byte of a file counts: padding is covered by the checksum, too.
 *
 * Tables: a file with a changed byte in the header's page or in the list of tables, or with another length, must be
 * refused by name, and stay as it is, byte by byte. This holds even if there are saves to fill it from. A changed byte
 * in the padding after the list is harmless: the rows are the same as before. Rows are not damaged here, because they
 * have no checksum that would show it. A torn table takes the rows of the saves, and is clean.
 *
 * Prints counts; exit status 1 if something was not refused.
 */
#include "tests/durability/saves.h"

#include <stddef.h>
#include "src/format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ROWS = 8192 };

static const char *paths[SAVES]; /* [n_paths]: the newest base, and its increments */
static uint32_t n_paths;
static uint64_t tried, wrong;
static float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * (2 * MOST_DIM + 2)];

static void complain(const char *what, uint64_t at, const char *bad) {
    if (bad && wrong++ < 5) printf("# %s, at %llu: %s\n", what, (unsigned long long)at, bad);
}

/* >>saves */

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

/* Opens these saves; reports a wrong answer. `what` says what has been done to them. */
static void must_be_refused(const char *const *files, uint32_t n, const char *what, uint64_t at) {
    trainer t;
    const char *bad = NULL;
    tried++;
    frugal_status status =
        open_trainer(&t, &(opening){.saved = files, .n_saved = n, .weights = weights, .state = state});
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
    complain(what, at, bad);
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

static void damage_save(uint32_t which, uint64_t count) {
    size_t bytes;
    unsigned char *data = get_file(paths[which], &bytes);
    test_random r = {.seed = work.seed + which};
    uint64_t n = count && count < bytes ? count : bytes;
    for (uint64_t k = 0; k < n; k++) {
        size_t at = (size_t)(n == bytes ? k : k < n / 4 ? k : test_below(&r, bytes));
        unsigned char flipped = (unsigned char)(1u << test_below(&r, 8));
        data[at] ^= flipped;
        put_file(paths[which], data, bytes);
        must_be_refused(paths, n_paths, "a byte is changed", at);
        data[at] ^= flipped;
    }
    for (uint64_t k = 0; k < n; k++) {
        size_t length = (size_t)(n == bytes ? k : test_below(&r, bytes));
        put_file(paths[which], data, length);
        must_be_refused(paths, n_paths, "the file is cut", length);
    }
    for (size_t more = 1; more <= 64; more += 21) {
        put_file(paths[which], data, bytes + more);
        must_be_refused(paths, n_paths, "something is behind the end", bytes);
    }
    put_file(paths[which], data, bytes);
    free(data);
}

/* >>a chain put together wrongly */

static void misorder(void) {
    const char *other[SAVES + 1];
    for (uint32_t left = 0; left + 1 < n_paths; left++) { /* one is missing, not the last */
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_paths; i++)
            if (i != left) other[n++] = paths[i];
        must_be_refused(other, n, "a file is missing", left);
    }
    for (uint32_t twice = 0; twice < n_paths; twice++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_paths; i++) {
            other[n++] = paths[i];
            if (i == twice) other[n++] = paths[i];
        }
        must_be_refused(other, n, "a file is doubled", twice);
    }
    for (uint32_t a = 0; a < n_paths; a++)
        for (uint32_t b = a + 1; b < n_paths; b++) {
            for (uint32_t i = 0; i < n_paths; i++) other[i] = paths[i == a ? b : i == b ? a : i];
            must_be_refused(other, n_paths, "two files are exchanged", a);
        }
}

static void damage_saves(uint64_t count) {
    if (n_paths < 3) die("the newest chain has fewer than two increments", paths[0]);
    fill_matrix();
    for (uint32_t i = 0; i < n_paths; i++) damage_save(i, count);
    misorder();
    trainer t; /* and the whole chain still opens */
    must_be_ok(open_trainer(&t, &(opening){.saved = paths, .n_saved = n_paths}), "open the undamaged one");
    close_trainer(&t);
}

/* >>mapped tables */

static char table[NAME];     /* of the files, without the instance's number */
static char name[NAME + 16]; /* of the file that is damaged */
static uint64_t step, hash;  /* of all rows */

static void restore_tables(void) {
    trainer t;
    must_be_ok(open_trainer(&t, &(opening){.table = table, .saved = paths, .n_saved = n_paths}), "restore");
    step = t.step;
    hash = hash_trainer(&t);
    close_trainer(&t);
}

/* Opens the tables, with saves or as they are: they must have the rows that were saved. */
static void must_be_whole(int saved, const char *what, uint64_t at) {
    trainer t;
    opening o = {.table = table, .keep = 1, .first_step = step};
    if (saved) o.saved = paths, o.n_saved = n_paths;
    tried++;
    if (open_trainer(&t, &o) != FRUGAL_OK) {
        complain(what, at, frugal_message());
        return;
    }
    if (hash_trainer(&t) != hash) complain(what, at, "it was opened with other rows");
    close_trainer(&t);
}

/* `damaged`: the contents of the file, which must stay. */
static void table_must_be_refused(int saved, const unsigned char *damaged, size_t bytes, const char *what,
                                  uint64_t at) {
    trainer t;
    size_t now;
    opening o = {.table = table, .keep = 1, .first_step = step};
    if (saved) o.saved = paths, o.n_saved = n_paths;
    tried++;
    frugal_status status = open_trainer(&t, &o);
    if (status == FRUGAL_OK) {
        complain(what, at, "it was opened");
        close_trainer(&t);
    } else if (status != FRUGAL_ERR_FILE || !strstr(frugal_message(), name))
        complain(what, at, frugal_message());
    unsigned char *left = get_file(name, &now);
    if (now != bytes || memcmp(left, damaged, bytes)) complain(what, at, "it was refused, but the file has changed");
    free(left);
}

static void damage_header(unsigned char *data, size_t bytes, size_t list_end, size_t rows_at, uint64_t count) {
    test_random r = {.seed = work.seed};
    for (size_t at = 0; at < rows_at; at++) {
        if (count && at >= sizeof(table_header) && test_below(&r, rows_at) >= count) continue;
        unsigned char flipped = (unsigned char)(1u << test_below(&r, 8));
        data[at] ^= flipped;
        put_file(name, data, bytes);
        if (at >= list_end)
            must_be_whole(0, "a byte that fills up is changed", at);
        else
            table_must_be_refused(test_chance(&r, 10), data, bytes, "a byte is changed", at);
        data[at] ^= flipped;
    }
}

static void damage_length(const unsigned char *data, size_t bytes, uint64_t count) {
    test_random r = {.seed = work.seed};
    for (size_t length = 1; length < bytes; length++) { /* of 0 it is a new one */
        if (count && test_below(&r, bytes) >= count) continue;
        put_file(name, data, length);
        table_must_be_refused(test_chance(&r, 10), data, length, "the file is cut", length);
    }
    for (size_t more = 1; more <= 64; more += 21) { /* get_file has left zeros there */
        put_file(name, data, bytes + more);
        table_must_be_refused(0, data, bytes + more, "something is behind the end", bytes);
    }
}

/* Tables whose process has ended: torn, until they have the rows of saves. */
static void tear_tables(void) {
    pid_t child = fork();
    if (child == 0) {
        trainer t;
        if (open_trainer(&t, &(opening){.table = table, .keep = 1, .first_step = step}) != FRUGAL_OK) _exit(1);
        while (t.step < step + 3) train_step(&t, step + 3);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("cannot train in the table", table);
    size_t bytes;
    snprintf(name, sizeof name, "%s-0", table); /* which is opened first */
    unsigned char *left = get_file(name, &bytes);
    table_must_be_refused(0, left, bytes, "the table is torn", step);
    free(left);
    must_be_whole(1, "a torn table is restored", step);
    must_be_whole(0, "a restored table is opened", step);
}

static void damage_tables(const char *folder, uint64_t count) {
    set_way(1);
    snprintf(table, sizeof table, "%s/table", folder);
    for (uint32_t i = 0; i < work.instances; i++) {
        table_header header;
        size_t bytes;
        snprintf(name, sizeof name, "%s-%u", table, i);
        unlink(name);
        restore_tables();
        unsigned char *data = get_file(name, &bytes);
        memcpy(&header, data, sizeof header);
        if (header.use != TABLE_CLEAN || header.step != step) die("a restored table is not clean", name);
        damage_header(data, bytes, TABLE_PAGE + header.n_tables * sizeof(saved_table), header.weights_at, count);
        damage_length(data, bytes, count);
        put_file(name, data, bytes);
        must_be_whole(0, "undamaged", 0);
        free(data);
    }
    tear_tables();
}

int main(int n, char **arguments) {
    int tables = n == 5 && !strcmp(arguments[1], "tables");
    if (n != 5 || (!tables && strcmp(arguments[1], "saves") != 0)) {
        fprintf(stderr, "usage: damage saves|tables SEED FOLDER COUNT\n");
        return 2;
    }
    uint64_t count = strtoull(arguments[4], NULL, 10);
    set_work(strtoull(arguments[2], NULL, 10));
    find_saves(arguments[3]);
    n_paths = n_saves ? find_chain(0, paths) : 0;
    if (n_paths == 0) die("no saves", arguments[3]);
    if (tables)
        damage_tables(arguments[3], count);
    else
        damage_saves(count);
    printf("# damaged %s: %llu tried, %llu not refused\n", tables ? "tables" : "saves", (unsigned long long)tried,
           (unsigned long long)wrong);
    return wrong > 0;
}
