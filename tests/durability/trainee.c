/* trainee.c - a trainer to be killed: it trains small tables, saves every few steps, and resumes from the saves that
 * are there.
 *
 *     trainee reference SEED STEPS OUT                 a hash of all rows and their states after each step
 *     trainee train SEED STEPS EVERY FOLDER ACKS DRAW [OUT]
 *     trainee check SEED STEPS REFERENCE DRAW FOLDER ACK STATUS CALL
 *     trainee tables SEED STEPS EVERY FOLDER ACKS DRAW
 *     trainee check-tables SEED STEPS REFERENCE DRAW FOLDER ACK STATUS CALL
 *     trainee show SEED DRAW                           what is trained, and how
 *
 * SEED is the work: one or two instances, their tables, optimizers, batches. Batches and gradients are functions of
 * SEED and of the step, so every correct run has the same rows after a step. DRAW is the way: workers, lookahead,
 * staging, caches, write-through or not; tables in files if DRAW is odd, and
 *     DRAW / 2 odd: a save that fails is reported, and training goes on to the next one (exit status 1 at the end)
 *     DRAW / 4 odd: every save is a base that replaces the one before, FOLDER/newest
 *     DRAW / 8 odd, DRAW / 16 odd: the first device is a GPU, the second one is (compiled with TEST_CUDA)
 *
 * `train` resumes from the newest save of FOLDER that can be opened, with the increments that lead to it, saves every
 * EVERY steps (a base now and then, increments between), reports each in ACKS, and writes all rows and states to OUT
 * after the last step. `check` changes nothing: every file of FOLDER that has a save's name must be one; the newest
 * save must be of step ACK or later; its rows must be those of the REFERENCE. Then training resumes from it, and the
 * rows of its last step must be right, too. A process that has failed or is done leaves no temporary files.
 *
 * `tables` saves nothing: its tables are in files, which it closes and opens again every EVERY steps, and it reports
 * each close. A torn file is thrown away, and training begins anew. `check-tables`: a table that can be opened has the
 * rows of its step, and the one that was closed last can be opened. Exit status 1 if a check or the run failed.
 */
#include "tests/durability/saves.h"

#include "hashes.h"

#include <stddef.h>
#include "src/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BASE_EVERY = 4 };

static int goes_on, replaces; /* of DRAW */

static void acknowledge(const char *acks, uint64_t step) {
    char line[32];
    int n = snprintf(line, sizeof line, "%llu\n", (unsigned long long)step);
    int fd = open(acks, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write(fd, line, (size_t)n) != n || close(fd)) die("cannot report to", acks);
}

/* >>train */

/* 1: saved. 0: it failed, and training goes on. */
static int save(trainer *t, uint64_t every, const char *folder) {
    frugal_save_desc desc = {.increment = !replaces && t->step / every % BASE_EVERY != 1, .replace = replaces};
    char name[NAME];
    save_name(name, folder, t->step, desc.increment);
    if (replaces) snprintf(name, sizeof name, "%s/newest", folder);
    desc.path = name;
    drain_trainer(t);
    frugal_status status = frugal_save(t->f, work.instances, &desc);
    if (status == FRUGAL_OK || !goes_on) must_be_ok(status, "save");
    if (status != FRUGAL_OK) fprintf(stderr, "trainee: save: %s\n", frugal_message());
    return status == FRUGAL_OK;
}

static int train(uint64_t steps, uint64_t every, const char *folder, const char *acks, const char *out) {
    trainer t;
    char table[NAME];
    int failed = 0;
    snprintf(table, sizeof table, "%s/table", folder);
    resume(&t, folder, table);
    while (t.step < steps) {
        train_step(&t, steps);
        if (t.step % every != 0) continue;
        if (save(&t, every, folder))
            acknowledge(acks, t.step);
        else
            failed = 1;
    }
    drain_trainer(&t);
    FILE *file = out ? fopen(out, "wb") : NULL;
    if (file) write_trainer(&t, file);
    if (out && (!file || fclose(file))) die("cannot write", out);
    close_trainer(&t);
    return failed;
}

static int reference(uint64_t steps, const char *out) {
    trainer t;
    must_be_ok(open_trainer(&t, &(opening){.table = NULL}), "open");
    FILE *file = fopen(out, "wb");
    for (uint64_t step = 0; file && step <= steps; step++) {
        if (step > 0) train_step(&t, steps);
        uint64_t hash = hash_trainer(&t);
        fwrite(&hash, sizeof hash, 1, file);
    }
    close_trainer(&t);
    if (!file || fclose(file)) die("cannot write", out);
    return 0;
}

/* >>check */

/* Temporary files are left only if the process was killed, or could not remove them. */
static void check_temporary(const char *folder, const char *status, const char *call) {
    DIR *open = opendir(folder);
    if (!open) die("cannot read the folder", folder);
    for (struct dirent *each; (each = readdir(open));)
        if (each->d_name[0] == '.' && strcmp(each->d_name, ".") && strcmp(each->d_name, "..") &&
            (!strcmp(status, "failed") || !strcmp(status, "done")) && strcmp(call, "unlink"))
            die("a temporary file is left", each->d_name);
    closedir(open);
}

static void check_rows(const trainer *t, const char *hashes, const char *when) {
    if (hash_trainer(t) != wanted_hash(hashes, t->step)) die("other rows than in the unbroken run", when);
}

static void remove_tables(const char *table) {
    for (uint32_t i = 0; i < work.instances; i++) {
        char file[NAME + 16];
        snprintf(file, sizeof file, "%s-%u", table, i);
        unlink(file);
    }
}

static int check_saves(uint64_t steps, const char *hashes, char **more) {
    const char *folder = more[0];
    char table[NAME];
    trainer t;
    check_temporary(folder, more[2], more[3]);
    find_saves(folder);
    uint64_t acknowledged = strtoull(more[1], NULL, 10), newest = n_saves ? saves[0].saved.step : 0;
    if (newest < acknowledged) die("a save that was reported is not there, of step", more[1]);
    snprintf(table, sizeof table, "%s.table", folder);
    resume(&t, folder, table);
    if (t.step != newest) die("the newest save cannot be opened", folder);
    check_rows(&t, hashes, "where it was resumed");
    while (t.step < steps) train_step(&t, steps);
    check_rows(&t, hashes, "at the end");
    close_trainer(&t);
    remove_tables(table);
    return 0;
}

/* >>tables in files, without saves */

/* What the header of each instance's file says: 1 if all are clean, of one step. `torn`: how many are not clean. */
static int are_tables_clean(const char *table, uint64_t *step, uint32_t *torn) {
    uint32_t clean = 0;
    *torn = 0;
    for (uint32_t i = 0; i < work.instances; i++) {
        char name[NAME + 16];
        table_header header;
        snprintf(name, sizeof name, "%s-%u", table, i);
        FILE *file = fopen(name, "rb");
        int whole = file && fread(&header, sizeof header, 1, file) == 1;
        if (file) fclose(file);
        if (whole && header.use != TABLE_CLEAN) ++*torn;
        if (!whole || header.use != TABLE_CLEAN || (i > 0 && header.step != *step)) continue;
        *step = header.step;
        clean++;
    }
    return clean == work.instances;
}

/* Opens the tables as they are. FRUGAL_ERR_FILE: one is missing or torn. */
static frugal_status open_tables(trainer *t, const char *table) {
    uint64_t step = 0;
    uint32_t torn;
    return are_tables_clean(table, &step, &torn)
               ? open_trainer(t, &(opening){.table = table, .keep = 1, .first_step = step})
               : FRUGAL_ERR_FILE;
}

static int tables(uint64_t steps, uint64_t every, const char *folder, const char *acks) {
    trainer t;
    char table[NAME];
    uint32_t torn;
    snprintf(table, sizeof table, "%s/table", folder);
    for (uint64_t step = 0, closed = 0; step < steps;) {
        if (open_tables(&t, table) != FRUGAL_OK) must_be_ok(open_trainer(&t, &(opening){.table = table}), "open");
        do train_step(&t, steps);
        while (t.step < steps && t.step % every != 0);
        drain_trainer(&t);
        step = t.step;
        close_trainer(&t);
        if (!are_tables_clean(table, &closed, &torn) || closed != step) die("a table could not be closed", table);
        acknowledge(acks, step);
    }
    return 0;
}

static int check_tables(uint64_t steps, const char *hashes, char **more) {
    char table[NAME];
    trainer t;
    uint64_t step = 0;
    uint32_t torn;
    snprintf(table, sizeof table, "%s/table", more[0]);
    check_temporary(more[0], more[2], more[3]);
    int clean = are_tables_clean(table, &step, &torn);
    if (strtoull(more[1], NULL, 10) == steps && (!clean || step != steps)) die("a table that was closed is not", table);
    frugal_status status = open_trainer(&t, &(opening){.table = table, .keep = 1, .first_step = step});
    if (status == FRUGAL_OK && torn) die("a torn table was opened without a word", table);
    if (status != FRUGAL_OK && clean) die("a clean table cannot be opened", frugal_message());
    if (!clean) return 0; /* torn; or the process ended between closing, or making, the one and the other */
    check_rows(&t, hashes, "in the table");
    while (t.step < steps) train_step(&t, steps);
    check_rows(&t, hashes, "at the end");
    close_trainer(&t);
    return 0;
}

int main(int n, char **arguments) {
    const char *what = n > 2 ? arguments[1] : "";
    uint64_t number[9] = {0};
    for (int i = 2; i < n && i < 9; i++) number[i] = strtoull(arguments[i], NULL, 10);
    set_work(number[2]);
    int of_tables = !strcmp(what, "tables") || !strcmp(what, "check-tables");
    uint64_t draw = n >= 8 && !strncmp(what, "t", 1) ? number[7] : n == 10 ? number[5] : n == 4 ? number[3] : 0;
    if (strcmp(what, "reference")) set_way(draw | (uint64_t)of_tables);
    goes_on = draw / 2 % 2 == 1, replaces = draw / 4 % 2 == 1;
    if (!strcmp(what, "reference") && n == 5) return reference(number[3], arguments[4]);
    if (!strcmp(what, "train") && (n == 8 || n == 9))
        return train(number[3], number[4], arguments[5], arguments[6], n == 9 ? arguments[8] : NULL);
    if (!strcmp(what, "tables") && n == 8) return tables(number[3], number[4], arguments[5], arguments[6]);
    if (!strcmp(what, "check") && n == 10) return check_saves(number[3], arguments[4], arguments + 6);
    if (!strcmp(what, "check-tables") && n == 10) return check_tables(number[3], arguments[4], arguments + 6);
    if (!strcmp(what, "show") && n == 4) {
        show_work();
        return 0;
    }
    fprintf(stderr, "usage: see the opening of trainee.c\n");
    return 2;
}
