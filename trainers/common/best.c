/* Which evaluation is the best, and its files. */
#include "trainers/common/best.h"
#include "trainers/common/file.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"
#include "frugal_save.h"
#include "frugal_serve.h"
#include "src/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEST_FOLDER ".best"
static const char *const best_names[BEST_FILES] = {"tables", "state"};
static const char *const best_new_names[BEST_FILES] = {"tables.new", "state.new"};
static const char *const best_checkpoint_names[BEST_FILES] = {"best-tables", "best-state"};

const progress_moment *best_of(const progress_curve *curve, uint64_t *since) {
    const progress_moment *best = NULL;
    for (size_t i = 0; i < curve->n; i++)
        if (best ? curve->moments[i].value > best->value : curve->moments[i].value == curve->moments[i].value)
            best = &curve->moments[i];
    *since = best ? curve->n - 1 - (uint64_t)(best - curve->moments) : curve->n;
    return best;
}

/* ---- The folder ---------------------------------------------------------------------------------------- */

/* Also the temporary names of one of the files: .tables.new.frugal-1a2b3c. */
static int best_is_ours(const char *entry) {
    int ours = 0;
    if (*entry == '.') entry++;
    for (int i = 0; i < BEST_FILES; i++) ours |= !strncmp(entry, best_names[i], strlen(best_names[i]));
    return ours;
}

/* Removes the files that this module makes there, and the folder if it has no others. */
static void best_remove(const char *path) {
    DIR *all = file_open_folder(path);
    if (!all) return;
    for (struct dirent *entry; (entry = readdir(all));)
        if (best_is_ours(entry->d_name)) unlinkat(dirfd(all), entry->d_name, 0);
    closedir(all);
    rmdir(path);
}

int best_open(best_kept *kept, const char *beside, program_error *error) {
    char path[MANIFEST_LONGEST_PATH];
    *kept = (best_kept){.beside = beside};
    if (!beside) return 0;
    if (manifest_path(path, beside, BEST_FOLDER, error)) return -1;
    best_remove(path);
    return 0;
}

static int best_name_files(best_kept *kept, const char *folder, program_error *error) {
    snprintf(kept->folder, sizeof kept->folder, "%s", folder);
    if (manifest_path(kept->tables, folder, best_names[0], error)) return -1;
    return manifest_path(kept->state, folder, best_names[1], error);
}

static int best_make_folder(best_kept *kept, program_error *error) {
    const char *parent = getenv("TMPDIR");
    char path[MANIFEST_LONGEST_PATH];
    if (*kept->folder) return 0;
    if (kept->beside ? manifest_path(path, kept->beside, BEST_FOLDER, error)
                     : manifest_path(path, parent && *parent ? parent : "/tmp", "frugal-best-XXXXXX", error))
        return -1;
    if (kept->beside ? mkdir(path, 0777) != 0 : !mkdtemp(path)) {
        int number = errno;
        return program_fail(error, "cannot make the folder %.300s for the best evaluation's tables: %s%s%s", path,
                            strerror(number), file_remedy(number),
                            kept->beside ? "" : "; set TMPDIR to a folder with room");
    }
    return best_name_files(kept, path, error);
}

int best_follow(best_kept *kept, const char *folder, program_error *error) {
    kept->any = 1;
    return best_name_files(kept, folder, error);
}

void best_close(best_kept *kept) {
    if (*kept->folder && !ranks_number()) best_remove(kept->folder);
    *kept = (best_kept){.beside = NULL};
}

/* ---- Keeping ------------------------------------------------------------------------------------------- */

/* New files lie beside the old ones until both are whole. */
static int best_replace(best_kept *kept, char made[BEST_FILES][MANIFEST_LONGEST_PATH], program_error *error) {
    const char *const names[BEST_FILES] = {kept->tables, kept->state};
    for (int i = 0; i < BEST_FILES; i++)
        if (rename(made[i], names[i]))
            return program_fail(error, "cannot give %.300s its name: %s", names[i], strerror(errno));
    kept->any = 1;
    return 0;
}

int best_keep(best_kept *kept, const checkpoint_part *parts, program_error *error) {
    char made[BEST_FILES][MANIFEST_LONGEST_PATH];
    int status = best_make_folder(kept, error);
    for (int i = 0; i < BEST_FILES && !status; i++) {
        status = manifest_path(made[i], kept->folder, best_new_names[i], error);
        if (!status) unlink(made[i]); /* of a call that failed */
        if (!status) status = parts[i].write(parts[i].user, made[i], error);
    }
    return status || best_replace(kept, made, error) ? -1 : 0;
}

/* Where the checkpoint lies on another file system, or on one without hard links. */
static int best_copy(const char *from, const char *to, program_error *error) {
    enum { BLOCK = 1 << 16 };
    char *block = malloc(BLOCK);
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ssize_t got = block && in >= 0 && out >= 0 ? 1 : -1;
    while (got > 0)
        if ((got = read(in, block, BLOCK)) > 0 && file_write(out, block, (size_t)got)) got = -1;
    int number = errno;
    if (in >= 0) close(in);
    if (out >= 0 && close(out) && got >= 0) got = -1, number = errno;
    free(block);
    if (got >= 0) return 0;
    return program_fail(error, "cannot copy %.200s to %.200s: %s%s", from, to, strerror(number), file_remedy(number));
}

static int best_link(const char *from, const char *to, program_error *error) {
    return link(from, to) ? best_copy(from, to, error) : 0;
}

/* Tables of several machines: their manifest's file names the shares beside it. Of one machine: 0 of them. */
static uint32_t best_shares(const char *tables, manifest_header *header) {
    const uint32_t block = MANIFEST_MAGIC;
    FILE *stream = fopen(tables, "rbe");
    int is = stream && fread(header, sizeof *header, 1, stream) == 1 && header->block == block &&
             header->machines <= FRUGAL_MAX_MACHINES && memchr(header->stem, 0, sizeof header->stem);
    if (stream) fclose(stream);
    return is ? header->machines : 0;
}

/* The file `name` beside the one at `path`. */
static int best_beside(char *beside, const char *path, const char *name, program_error *error) {
    char folder[MANIFEST_LONGEST_PATH];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return manifest_path(beside, folder, name, error);
}

/* Shares first, so that what names them is never without them. */
static int best_link_tables(const char *from, const char *to, program_error *error) {
    char name[MANIFEST_STEM + 64], share[MANIFEST_LONGEST_PATH], linked[MANIFEST_LONGEST_PATH];
    manifest_header h;
    uint32_t n = best_shares(from, &h);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%u-of-%u-%016llx", (const char *)h.stem, i, n, (unsigned long long)h.tag);
        if (best_beside(share, from, name, error) || best_beside(linked, to, name, error)) return -1;
        unlink(linked); /* of a call that failed */
        if (best_link(share, linked, error)) return -1;
    }
    return best_link(from, to, error);
}

static int best_write_tables(void *user, const char *path, program_error *error) {
    return best_link_tables(((const best_kept *)user)->tables, path, error);
}

static int best_write_state(void *user, const char *path, program_error *error) {
    return best_link(((const best_kept *)user)->state, path, error);
}

int best_parts(best_kept *kept, checkpoint_part *parts) {
    if (!kept->any) return 0;
    parts[0] = (checkpoint_part){best_checkpoint_names[0], 1, best_write_tables, kept};
    parts[1] = (checkpoint_part){best_checkpoint_names[1], 0, best_write_state, kept};
    return BEST_FILES;
}

/* ---- Reading back -------------------------------------------------------------------------------------- */

static int best_serve(frugal_server **out, const char *const *tables, uint32_t part, program_error *error) {
    frugal_serve_desc desc = {.from = {.saved = tables, .n_saved = 1, .part = part}};
    return frugal_serve_open(&desc, out) ? training_fail("cannot read the best evaluation's tables", error) : 0;
}

/* Are all rows as they were saved? */
static int best_check(const char *tables, program_error *error) {
    frugal_saved saved;
    if (frugal_read_saved(tables, 0, &saved)) return training_fail("cannot read the best evaluation's tables", error);
    if (saved.machines) return 0; /* each machine reads its own rows at the end */
    for (uint32_t i = 0; i < saved.parts; i++) {
        frugal_server *server;
        if (best_serve(&server, &tables, i, error)) return -1;
        frugal_serve_close(server);
    }
    return 0;
}

int best_take(best_kept *kept, const char *checkpoint, program_error *error) {
    char from[BEST_FILES][MANIFEST_LONGEST_PATH];
    if (training_find_tables(checkpoint, best_checkpoint_names[0], from[0], error)) return -1;
    if (manifest_path(from[1], checkpoint, best_checkpoint_names[1], error)) return -1;
    if (best_check(from[0], error) || best_make_folder(kept, error)) return -1;
    unlink(kept->tables); /* of a checkpoint that turned out to be damaged */
    unlink(kept->state);
    if (best_link_tables(from[0], kept->tables, error) || best_link(from[1], kept->state, error)) return -1;
    kept->any = 1;
    return 0;
}

static int best_read_table(frugal *f, frugal_server *server, uint32_t table, float *rows, uint32_t block,
                           program_error *error) {
    uint64_t n = frugal_settings(f)->tables[table].rows, *keys = malloc(block * sizeof *keys);
    int status = keys ? 0 : program_fail(error, "out of memory for reading tables back");
    for (uint64_t from = 0; from < n && !status; from += block) {
        frugal_keys span = {.table = table, .keys = keys, .n = (uint32_t)(n - from < block ? n - from : block)};
        for (uint32_t i = 0; i < span.n; i++) keys[i] = from + i;
        if (frugal_serve_lookup(server, &span, 1, rows, NULL) || frugal_write_rows(f, &span, rows, NULL))
            status = training_fail("cannot read the best evaluation's tables back", error);
    }
    free(keys);
    return status;
}

int best_read(frugal *const *instances, uint32_t n, const char *tables, program_error *error) {
    enum { BLOCK = 4096 };
    int status = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        const frugal_desc *desc = frugal_settings(instances[i]);
        frugal_server *server = NULL;
        float *rows = malloc((size_t)BLOCK * desc->dim * sizeof *rows);
        status = rows ? best_serve(&server, &tables, i, error)
                      : program_fail(error, "out of memory for reading tables back");
        for (uint32_t t = 0; t < desc->n_tables && !status; t++)
            status = best_read_table(instances[i], server, t, rows, BLOCK, error);
        frugal_serve_close(server);
        free(rows);
    }
    return status;
}
