/* Making checkpoints, finding them, removing old ones. */
#include "trainers/common/checkpoint.h"
#include "trainers/common/file.h"
#include "frugal.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT_NAME "step-"
enum { CHECKPOINT_DIGITS = 8 }; /* at least */

struct checkpoint_folder {
    char *path;
    const char *program;
    int lock;
    int made;     /* the folder was not there */
    int unsynced; /* this step's checkpoint is whole, but its name may not be on disk */
    uint64_t unsynced_step;
};

/* ---- Names --------------------------------------------------------------------------------------------- */

static void checkpoint_name(char name[32], uint64_t step) {
    snprintf(name, 32, CHECKPOINT_NAME "%0*" PRIu64, CHECKPOINT_DIGITS, step);
}

/* Is it the name of a checkpoint? */
static int checkpoint_is_name(const char *name, uint64_t *step) {
    char again[32];
    if (strncmp(name, CHECKPOINT_NAME, strlen(CHECKPOINT_NAME)) || !isdigit((unsigned char)name[5])) return 0;
    *step = strtoull(name + 5, NULL, 10);
    checkpoint_name(again, *step);
    return !strcmp(name, again);
}

/* .step-00001000.saving-a1b2c3: a checkpoint that is being made, or removed. */
static int checkpoint_is_temporary(const char *name) {
    char step_name[32];
    const char *mark = strstr(name, FILE_TEMPORARY);
    uint64_t step;
    if (*name != '.' || !mark || (size_t)(mark - name) > sizeof step_name) return 0;
    snprintf(step_name, sizeof step_name, "%.*s", (int)(mark - name - 1), name + 1);
    return checkpoint_is_name(step_name, &step) && file_is_temporary(name, step_name);
}

/* A folder of a temporary name, which was not there before. To be freed; NULL: error. */
static char *checkpoint_make_temporary(const char *path, program_error *error) {
    for (int tries = 0; tries < 100; tries++) {
        char *temporary = file_temporary_name(path);
        if (!temporary) break;
        if (!mkdir(temporary, 0777)) return temporary;
        int number = errno;
        free(temporary);
        if (number == EEXIST) continue;
        program_fail(error, "cannot make a folder beside %.300s: %s%s", path, strerror(number), file_remedy(number));
        return NULL;
    }
    program_fail(error, "no temporary name for %.300s", path);
    return NULL;
}

/* ---- Listing ------------------------------------------------------------------------------------------- */

static int checkpoint_compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The steps of all entries with a checkpoint's name, rising: *steps, to be freed, and *n. If there is no folder, *n is
 * 0. */
static int checkpoint_list(const char *folder, uint64_t **steps, size_t *n, program_error *error) {
    size_t room = 0;
    *steps = NULL, *n = 0;
    DIR *all = opendir(folder);
    if (!all)
        return errno == ENOENT ? 0
                               : program_fail(error, "cannot read folder %.300s: %s%s", folder, strerror(errno),
                                              file_remedy(errno));
    int status = 0;
    for (struct dirent *entry; !status && (entry = readdir(all));) {
        uint64_t step;
        if (!checkpoint_is_name(entry->d_name, &step)) continue;
        if (*n == room) {
            uint64_t *more = realloc(*steps, (room = 2 * room + 16) * sizeof *more);
            status = more ? 0 : program_fail(error, "out of memory for a list of checkpoints");
            if (more) *steps = more;
        }
        if (!status) (*steps)[(*n)++] = step;
    }
    closedir(all);
    if (*n) qsort(*steps, *n, sizeof **steps, checkpoint_compare);
    return status;
}

/* ---- Finding ------------------------------------------------------------------------------------------- */

/* Is the checkpoint whole, and of this program? Its manifest, to be freed in any case. */
static int checkpoint_check(const char *path, const char *program, uint64_t step, manifest *m, program_error *error) {
    char file[MANIFEST_LONGEST_PATH];
    int status = manifest_read_kind(m, path, MANIFEST_CHECKPOINT, error);
    if (!status) return program_fail(error, "%.300s has no " MANIFEST_NAME ": it is no whole checkpoint", path);
    if (status < 0) return -1;
    if (strcmp(m->program, program))
        return program_fail(error, "%.300s is a checkpoint of %s, not of %s; give another folder", path, m->program,
                            program);
    if (m->step != step)
        return program_fail(error, "%.300s is of step %" PRIu64 ": it has got another name", path, m->step);
    for (uint32_t i = 0; i < m->n; i++)
        if (manifest_find(m, path, i, file, error)) return -1;
    return 0;
}

int checkpoint_before(const char *folder, const char *program, uint64_t step, checkpoint_found *found,
                      program_error *error) {
    uint64_t *steps;
    size_t n;
    char name[32];
    *found = (checkpoint_found){.refused = 0};
    int status = checkpoint_list(folder, &steps, &n, error), got = 0;
    while (n && steps[n - 1] >= step) n--;
    for (size_t i = n; i-- > 0 && !status && !got;) {
        program_error why;
        checkpoint_name(name, steps[i]);
        status = manifest_path(found->path, folder, name, error);
        got = !status && !checkpoint_check(found->path, program, steps[i], &found->made, &why);
        if (status || got) continue;
        manifest_free(&found->made);
        if (!found->refused++) found->why = why;
    }
    free(steps);
    if (!status && !got && n)
        status = program_fail(error, "none of the %zu checkpoints in %.200s can be used; the newest: %.250s", n, folder,
                              found->why.text);
    return status ? -1 : got;
}

int checkpoint_newest(const char *folder, const char *program, checkpoint_found *found, program_error *error) {
    return checkpoint_before(folder, program, UINT64_MAX, found, error);
}

void checkpoint_forget(checkpoint_found *found) {
    manifest_free(&found->made);
}

/* ---- Removing ------------------------------------------------------------------------------------------ */

/* A copy of the file for another number of machines: NAME.for-2. */
static int checkpoint_is_copy(const char *entry, const char *name) {
    size_t n = strlen(name), mark = strlen(".for-");
    if (strncmp(entry, name, n) || strncmp(entry + n, ".for-", mark)) return 0;
    entry += n + mark;
    n = strspn(entry, "0123456789");
    return n > 0 && !entry[n];
}

static int checkpoint_holds(const manifest *m, const char *name) {
    int holds = !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, MANIFEST_NAME) || file_is_share(name);
    for (uint32_t i = 0; i < m->n && !holds; i++)
        holds = !strcmp(m->files[i].name, name) || checkpoint_is_copy(name, m->files[i].name);
    return holds;
}

/* .NAME.frugal-1a2b3c: a save of this name that frugal_save is making. */
static int checkpoint_is_save(const char *entry, const char *name) {
    static const char mark[] = ".frugal-";
    size_t n = strlen(name);
    if (*entry++ != '.' || strncmp(entry, name, n) || strncmp(entry + n, mark, strlen(mark))) return 0;
    entry += n + strlen(mark);
    for (n = 0; n < 6; n++)
        if (n % 2 ? entry[n] < 'a' || entry[n] > 'z' : entry[n] < '0' || entry[n] > '9') return 0;
    return !entry[n];
}

/* Also the names of what a killed process leaves in a checkpoint: its own temporary files, and those of frugal_save. */
static int checkpoint_may_hold(const manifest *m, const char *name) {
    int may = checkpoint_holds(m, name) || file_is_temporary(name, MANIFEST_NAME);
    for (uint32_t i = 0; i < m->n && !may; i++)
        may = file_is_temporary(name, m->files[i].name) || checkpoint_is_save(name, m->files[i].name);
    const char *mark = strstr(name, ".frugal-");
    char share[256];
    if (may || *name != '.' || !mark || (size_t)(mark - name) > sizeof share) return may;
    snprintf(share, sizeof share, "%.*s", (int)(mark - name - 1), name + 1);
    return file_is_share(share) && checkpoint_is_save(name, share);
}

/* Has the folder only files that `may` be in a checkpoint of this manifest? Any other file belongs to somebody else. */
static int checkpoint_has_only(DIR *all, const manifest *m, int may(const manifest *m, const char *name)) {
    struct stat is;
    int only = 1;
    for (struct dirent *entry; only && (entry = readdir(all));)
        only = may(m, entry->d_name) &&
               (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
                (!fstatat(dirfd(all), entry->d_name, &is, AT_SYMLINK_NOFOLLOW) && S_ISREG(is.st_mode)));
    rewinddir(all);
    return only;
}

/* Removes all files in it, and the folder, which now is at `path`. Closes it. */
static int checkpoint_remove_all(DIR *all, const char *path) {
    for (struct dirent *entry; (entry = readdir(all));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlinkat(dirfd(all), entry->d_name, 0);
    closedir(all);
    return rmdir(path);
}

/* It stays if it is not a real folder, or holds a file that is not a checkpoint's. */
static int checkpoint_remove_temporary(const char *path, const manifest *m) {
    DIR *all = file_open_folder(path);
    if (!all) return -1;
    if (checkpoint_has_only(all, m, checkpoint_may_hold)) return checkpoint_remove_all(all, path);
    closedir(all);
    errno = ENOTEMPTY;
    return -1;
}

/* Opens a checkpoint of the program that has only files which its manifest names. NULL: it is none. */
static DIR *checkpoint_open_ours(const char *path, const char *program) {
    program_error error;
    manifest m = {.n = 0};
    int ours = manifest_read_kind(&m, path, MANIFEST_CHECKPOINT, &error) == 1 && !strcmp(m.program, program);
    DIR *all = ours ? file_open_folder(path) : NULL;
    ours = all && checkpoint_has_only(all, &m, checkpoint_holds);
    manifest_free(&m);
    if (all && !ours) closedir(all);
    return ours ? all : NULL;
}

/* It is renamed first, so that one that is half removed does not count as a checkpoint. It is opened before that, so
 * that one that cannot be opened keeps its name. */
static int checkpoint_remove(const checkpoint_folder *folder, uint64_t step, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], name[32];
    checkpoint_name(name, step);
    if (manifest_path(path, folder->path, name, error)) return -1;
    DIR *all = checkpoint_open_ours(path, folder->program);
    if (!all) return 0;
    char *temporary = file_temporary_name(path);
    int renamed = temporary && !rename(path, temporary), number = errno;
    if (!renamed) closedir(all);
    int removed = renamed && !checkpoint_remove_all(all, temporary);
    if (renamed) number = errno;
    free(temporary);
    if (removed) return 0;
    return program_fail(error, "the checkpoint is written, but %.300s cannot be removed: %s", path, strerror(number));
}

static int checkpoint_is_whole(const checkpoint_folder *folder, uint64_t step) {
    char path[MANIFEST_LONGEST_PATH], name[32];
    manifest m = {.n = 0};
    program_error error;
    checkpoint_name(name, step);
    int whole =
        !manifest_path(path, folder->path, name, &error) && !checkpoint_check(path, folder->program, step, &m, &error);
    manifest_free(&m);
    return whole;
}

/* Of the checkpoints before `step`, removes those that are older than the newest keep - 1 whole ones. If one cannot be
 * removed, the others still are; the error is that of the first. */
static int checkpoint_remove_old(const checkpoint_folder *folder, uint64_t step, uint32_t keep, program_error *error) {
    uint64_t *steps;
    size_t n, before = 0;
    program_error another;
    uint32_t whole = 1;
    int status = checkpoint_list(folder->path, &steps, &n, error);
    while (before < n && steps[before] < step) before++;
    for (size_t i = before; i-- > 0;)
        if (whole < keep)
            whole += (uint32_t)checkpoint_is_whole(folder, steps[i]);
        else if (checkpoint_remove(folder, steps[i], status ? &another : error))
            status = -1;
    free(steps);
    return status;
}

/* Temporary folders of checkpoints with these files. No live process uses them, because DIR is locked. */
static void checkpoint_tidy(const char *folder, const manifest *m) {
    char path[MANIFEST_LONGEST_PATH];
    program_error error;
    DIR *all = opendir(folder);
    if (!all) return;
    for (struct dirent *entry; (entry = readdir(all));)
        if (checkpoint_is_temporary(entry->d_name) && !manifest_path(path, folder, entry->d_name, &error))
            (void)checkpoint_remove_temporary(path, m);
    closedir(all);
}

/* Does it with the files that the newest checkpoint names. */
static void checkpoint_tidy_by_newest(const checkpoint_folder *folder) {
    char path[MANIFEST_LONGEST_PATH], name[32];
    uint64_t *steps;
    size_t n;
    program_error error;
    int tidied = checkpoint_list(folder->path, &steps, &n, &error);
    for (size_t i = n; i-- > 0 && !tidied;) {
        manifest m = {.n = 0};
        checkpoint_name(name, steps[i]);
        tidied = !manifest_path(path, folder->path, name, &error) &&
                 manifest_read_kind(&m, path, MANIFEST_CHECKPOINT, &error) == 1 && !strcmp(m.program, folder->program);
        if (tidied) checkpoint_tidy(folder->path, &m);
        manifest_free(&m);
    }
    free(steps);
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

static int checkpoint_refuse_others(const char *folder, program_error *error) {
    uint64_t *steps;
    size_t n;
    int status = checkpoint_list(folder, &steps, &n, error);
    if (!status && n)
        status = program_fail(
            error, "%.200s holds %zu checkpoints, up to step %" PRIu64 "; resume from them, or give another folder",
            folder, n, steps[n - 1]);
    free(steps);
    return status;
}

int checkpoint_open(checkpoint_folder **out, const char *path, const char *program, int resumes, program_error *error) {
    *out = NULL;
    checkpoint_folder *folder = calloc(1, sizeof *folder);
    if (!folder) return program_fail(error, "out of memory for checkpoints");
    *folder = (checkpoint_folder){.path = strdup(path), .program = program, .lock = -1};
    folder->made = access(path, F_OK) && errno == ENOENT;
    int status = folder->path ? file_make_folder(path, error) : program_fail(error, "out of memory for checkpoints");
    if (!status) status = file_lock(&folder->lock, path, program, error);
    if (!status && !resumes) status = checkpoint_refuse_others(path, error);
    if (!status) checkpoint_tidy_by_newest(folder);
    if (status)
        checkpoint_close(folder);
    else
        *out = folder;
    return status;
}

void checkpoint_close(checkpoint_folder *folder) {
    if (!folder) return;
    if (folder->path) file_unlock(folder->lock, folder->path);
    if (folder->path && folder->made) rmdir(folder->path); /* succeeds only if there is no checkpoint in it */
    free(folder->path);
    free(folder);
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

static void checkpoint_fill_manifest(FILE *stream, const void *text) {
    fputs(text, stream);
}

static int checkpoint_write_manifest(manifest *m, const char *temporary, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], *text = manifest_text(m);
    int status = text ? manifest_path(path, temporary, MANIFEST_NAME, error)
                      : program_fail(error, "out of memory for a manifest");
    if (!status) status = file_put(path, checkpoint_fill_manifest, text, error);
    free(text);
    return status;
}

/* What makes the checkpoint, and the names of its files. */
static void checkpoint_describe(const checkpoint_folder *folder, const save_origin *origin,
                                const checkpoint_part *parts, int n, manifest *m) {
    assert(n <= MANIFEST_FILES);
    *m = (manifest){.kind = MANIFEST_CHECKPOINT, .step = origin->step, .n = (uint32_t)n};
    snprintf(m->program, sizeof m->program, "%s", folder->program);
    snprintf(m->version, sizeof m->version, "%s", FRUGAL_VERSION_STRING);
    snprintf(m->model, sizeof m->model, "%s", origin->model);
    for (int i = 0; i < n; i++) {
        m->files[i].self_checked = parts[i].self_checked;
        snprintf(m->files[i].name, sizeof m->files[i].name, "%s", parts[i].name);
    }
}

static int checkpoint_fill(const checkpoint_part *parts, manifest *m, const char *temporary, program_error *error) {
    char path[MANIFEST_LONGEST_PATH];
    for (uint32_t i = 0; i < m->n; i++)
        if (manifest_path(path, temporary, parts[i].name, error) || parts[i].write(parts[i].user, path, error) ||
            manifest_measure(&m->files[i], path, error))
            return -1;
    return checkpoint_write_manifest(m, temporary, error);
}

/* Renames it to a name that no checkpoint has. */
static int checkpoint_move_aside(const char *path, program_error *error) {
    struct stat is;
    char aside[MANIFEST_LONGEST_PATH + 32];
    for (int i = 1; i < 1000; i++) {
        snprintf(aside, sizeof aside, "%s.damaged-%d", path, i);
        if (lstat(aside, &is))
            return rename(path, aside) ? program_fail(error, "cannot move %.300s away: %s", path, strerror(errno)) : 0;
    }
    return program_fail(error, "%.300s is damaged, and so are a thousand others; remove them", path);
}

int checkpoint_set_aside(const checkpoint_folder *folder, uint64_t step, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], name[32];
    checkpoint_name(name, step);
    return manifest_path(path, folder->path, name, error) || checkpoint_move_aside(path, error) ? -1 : 0;
}

/* A saved set, or another program's checkpoint? */
static int checkpoint_is_others(const char *path, const char *program) {
    manifest m;
    program_error error;
    int others = manifest_read_kind(&m, path, MANIFEST_CHECKPOINT, &error) == 1 && strcmp(m.program, program);
    manifest_free(&m);
    if (!others) others = manifest_read(&m, path, &error) == 1;
    manifest_free(&m);
    return others;
}

/* A checkpoint of this step may be there already. If it is damaged, it is renamed; if it is whole, or of another
 * program, that is an error. */
static int checkpoint_make_room(const checkpoint_folder *folder, const char *path, uint64_t step,
                                program_error *error) {
    struct stat is;
    if (lstat(path, &is)) return 0;
    if (checkpoint_is_whole(folder, step))
        return program_fail(error, "%.300s is there already, and whole; give another folder", path);
    if (checkpoint_is_others(path, folder->program))
        return program_fail(error, "%.300s is there, and is no checkpoint of %s; give another folder", path,
                            folder->program);
    return checkpoint_move_aside(path, error);
}

/* It has its name now, but the name is not on disk yet. */
static int checkpoint_make(checkpoint_folder *folder, const save_origin *origin, const checkpoint_part *parts, int n,
                           const char *path, program_error *error) {
    manifest m;
    char *temporary;
    if (checkpoint_make_room(folder, path, origin->step, error)) return -1;
    checkpoint_describe(folder, origin, parts, n, &m);
    checkpoint_tidy(folder->path, &m);
    if (!(temporary = checkpoint_make_temporary(path, error))) return -1;
    int status = checkpoint_fill(parts, &m, temporary, error);
    if (!status && rename(temporary, path))
        status = program_fail(error, "cannot give %.300s its name: %s", path, strerror(errno));
    if (status) (void)checkpoint_remove_temporary(temporary, &m);
    free(temporary);
    return status;
}

int checkpoint_write(checkpoint_folder *folder, const save_origin *origin, const checkpoint_part *parts, int n,
                     uint32_t keep, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], name[32];
    program_error why;
    checkpoint_name(name, origin->step);
    if (manifest_path(path, folder->path, name, error)) return -1;
    int there = folder->unsynced && folder->unsynced_step == origin->step;
    if (!there && checkpoint_make(folder, origin, parts, n, path, error)) return -1;
    folder->unsynced = file_sync_folder(path, &why) != 0;
    folder->unsynced_step = origin->step;
    if (folder->unsynced)
        return program_fail(error, "%.200s is written, but may be lost if power is: %.250s", path, why.text);
    return keep && checkpoint_remove_old(folder, origin->step, keep, error) ? 1 : 0;
}
