/* From --checkpoint, --checkpoint-every, --keep and --resume to folders. */
#include "trainers/common/checkpointing.h"
#include "trainers/common/file.h"
#include "trainers/common/identity.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHECKPOINTING_SETTINGS "settings"
#define CHECKPOINTING_CURVE    "curve"
enum { CHECKPOINTING_LONGEST = 64 << 10 }; /* of settings */

/* ---- Opening ------------------------------------------------------------------------------------------- */

/* The real path of a file or folder, links followed, even if it does not exist yet; to be freed. NULL: no memory, or no
 * such place. */
static char *checkpointing_place(const char *path) {
    char *place = realpath(path, NULL), *copy, *all = NULL;
    if (place || errno != ENOENT || !(copy = strdup(path))) return place;
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--) copy[n - 1] = 0;
    char *slash = strrchr(copy, '/');
    const char *base = slash ? slash + 1 : copy;
    if (slash) *slash = 0;
    char *folder = *base ? realpath(!slash ? "." : *copy ? copy : "/", NULL) : NULL;
    if (folder && asprintf(&all, "%s/%s", strcmp(folder, "/") ? folder : "", base) < 0) all = NULL;
    free(folder);
    free(copy);
    return all;
}

int checkpointing_lies_in(const char *path, const char *folder) {
    char *a = path && folder ? checkpointing_place(path) : NULL, *b = a ? checkpointing_place(folder) : NULL;
    size_t n = b ? strlen(b) : 0;
    int lies = b && !strncmp(a, b, n) && (!a[n] || a[n] == '/' || b[n - 1] == '/');
    free(a);
    free(b);
    return lies;
}

static int checkpointing_is_same_folder(const char *a, const char *b) {
    return !strcmp(a, b) || (checkpointing_lies_in(a, b) && checkpointing_lies_in(b, a));
}

/* Neither a saved set nor reports may lie among checkpoints: the files of the one could replace those of the other, or
 * be removed with them.
 */
static int checkpointing_check_outputs(const training_outputs *outputs, program_error *error) {
    const char *const folders[] = {outputs->checkpoint, outputs->resume};
    for (int i = 0; i < 2; i++) {
        if (checkpointing_lies_in(outputs->save, folders[i]))
            return program_fail(error, "--save and checkpoints would both lie in %.200s; give another folder",
                                folders[i]);
        if (checkpointing_lies_in(outputs->json, folders[i]))
            return program_fail(error, "--json %.100s would lie among the checkpoints in %.200s; give another file",
                                outputs->json, folders[i]);
    }
    return 0;
}

static void checkpointing_tell(const checkpointing *k) {
    if (!k->found.refused) return;
    fprintf(stderr, "skipped %" PRIu32 " newer checkpoint%s: %s\n", k->found.refused,
            k->found.refused == 1 ? "" : "s, of which the newest", k->found.why.text);
}

/* The newest checkpoint in --resume. If --checkpoint names the same folder, there may be none yet, so that one command
 * line, run repeatedly, begins a training and continues it. */
static int checkpointing_find(checkpointing *k, int may_begin, program_error *error) {
    const char *from = k->outputs->resume;
    int got = checkpoint_newest(from, k->program, &k->found, error);
    if (got < 0) return -1;
    if (!got && !may_begin)
        return program_fail(error,
                            "--resume %.200s: there is no checkpoint; to begin there, give --checkpoint %.100s, too",
                            from, from);
    k->resumes = k->any = got;
    k->step = got ? k->found.made.step : 0;
    if (got)
        checkpointing_tell(k);
    else
        fprintf(stderr, "no checkpoint in %s yet: the training begins\n", from);
    return 0;
}

int checkpointing_open(checkpointing *k, const char *program, const training_outputs *outputs, program_error *error) {
    const char *to = outputs->checkpoint, *from = outputs->resume;
    struct stat is;
    *k = (checkpointing){.outputs = outputs, .program = program, .path = to ? to : from};
    if (!k->path) return 0;
    int same = from && checkpointing_is_same_folder(k->path, from);
    if (checkpointing_check_outputs(outputs, error)) return -1;
    if (from && !to && stat(from, &is)) return program_fail(error, "--resume %.200s: %s", from, strerror(errno));
    if (same && checkpoint_open(&k->folder, k->path, program, 1, error)) return -1;
    /* A process that makes checkpoints there removes old ones. It must not do so while one of them is read. */
    if (from && !same && file_lock_shared(&k->lock, from, program, error)) return -1;
    k->reads = from && !same;
    if (from && checkpointing_find(k, same && to, error)) return -1;
    return same ? 0 : checkpoint_open(&k->folder, k->path, program, 0, error);
}

void checkpointing_follow(checkpointing *k, const char *program, const training_outputs *outputs) {
    *k = (checkpointing){
        .outputs = outputs, .program = program, .path = outputs->checkpoint ? outputs->checkpoint : outputs->resume};
}

void checkpointing_end_reading(checkpointing *k) {
    if (k->reads) file_unlock(k->lock, k->outputs->resume);
    k->reads = 0;
}

void checkpointing_close(checkpointing *k) {
    checkpointing_end_reading(k);
    checkpoint_forget(&k->found);
    checkpoint_close(k->folder);
    k->folder = NULL;
}

/* ---- Reading ------------------------------------------------------------------------------------------- */

static FILE *checkpointing_open_file(const checkpointing *k, const char *name, program_error *error) {
    char path[MANIFEST_LONGEST_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", k->found.path, name);
    FILE *stream = fopen(path, "re");
    if (!stream) program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    return stream;
}

/* The text of identity.h, to be freed; NULL with *error filled. */
static char *checkpointing_settings(const checkpointing *k, program_error *error) {
    FILE *stream = checkpointing_open_file(k, CHECKPOINTING_SETTINGS, error);
    char *made = stream ? calloc(1, CHECKPOINTING_LONGEST + 1) : NULL;
    if (made) made[fread(made, 1, CHECKPOINTING_LONGEST, stream)] = 0;
    if (stream && !made) program_fail(error, "out of memory");
    if (stream) fclose(stream);
    return made;
}

int checkpointing_setting(const checkpointing *k, const char *name, float *number, program_error *error) {
    size_t length;
    char *made = checkpointing_settings(k, error);
    const char *value = made ? identity_value(made, name, strlen(name), &length) : NULL;
    if (value) *number = strtof(value, NULL);
    free(made);
    return made ? 0 : -1;
}

int checkpointing_read(const checkpointing *k, const char *identity, progress_curve *curve, program_error *error) {
    FILE *stream;
    char *made = checkpointing_settings(k, error);
    int status = made ? 0 : -1;
    if (made && identity) status = identity_check(k->found.path, made, identity, error);
    free(made);
    if (status || !(stream = checkpointing_open_file(k, CHECKPOINTING_CURVE, error))) return -1;
    status = progress_read_curve(curve, stream, error);
    fclose(stream);
    return status;
}

int checkpointing_older(checkpointing *k, const program_error *why) {
    checkpoint_found older;
    program_error error;
    fprintf(stderr, "%s cannot be used: %s\n", k->found.path, why->text);
    int got = checkpoint_before(k->outputs->resume, k->program, k->found.made.step, &older, &error);
    if (got < 0) fprintf(stderr, "%s\n", error.text);
    if (got < 1) return 0;
    /* This run will reach the step of the damaged checkpoint again; if renaming it fails now, the error is reported
     * then. */
    if (checkpointing_is_same_folder(k->path, k->outputs->resume) &&
        checkpoint_set_aside(k->folder, k->found.made.step, &error))
        fprintf(stderr, "%s\n", error.text);
    checkpoint_forget(&k->found);
    k->found = older;
    k->step = k->found.made.step;
    checkpointing_tell(k);
    return 1;
}

/* ---- When ---------------------------------------------------------------------------------------------- */

void checkpointing_start(checkpointing *k) {
    double seconds = k->outputs->checkpoint_every.seconds;
    k->due = k->path && seconds > 0 ? program_now() + seconds : 0;
}

int checkpointing_is_due(const checkpointing *k, uint64_t step) {
    uint64_t every = k->outputs->checkpoint_every.steps;
    if (!k->path || step == 0 || (k->any && step == k->step)) return 0;
    return every ? step % every == 0 : k->due > 0 && program_now() >= k->due;
}

uint64_t checkpointing_until(const checkpointing *k, uint64_t step) {
    uint64_t every = k->outputs->checkpoint_every.steps;
    return k->path && every && step < UINT64_MAX - every ? (step / every + 1) * every : UINT64_MAX;
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

static void checkpointing_fill_settings(FILE *stream, const void *content) {
    fputs(((const checkpointing_content *)content)->identity, stream);
}

static int checkpointing_write_settings(void *user, const char *path, program_error *error) {
    return file_put(path, checkpointing_fill_settings, user, error);
}

static void checkpointing_fill_curve(FILE *stream, const void *content) {
    progress_write_curve(((const checkpointing_content *)content)->curve, stream);
}

static int checkpointing_write_curve(void *user, const char *path, program_error *error) {
    return file_put(path, checkpointing_fill_curve, user, error);
}

int checkpointing_write(checkpointing *k, const save_origin *origin, const checkpointing_content *content,
                        program_error *error) {
    checkpointing_content mine = *content;
    checkpoint_part parts[2 + CHECKPOINTING_PARTS] = {
        {.name = CHECKPOINTING_SETTINGS, .write = checkpointing_write_settings, .user = &mine},
        {.name = CHECKPOINTING_CURVE, .write = checkpointing_write_curve, .user = &mine}};
    assert(content->n <= CHECKPOINTING_PARTS);
    memcpy(parts + 2, content->parts, (size_t)content->n * sizeof *parts);
    double from = program_now();
    int status = checkpoint_write(k->folder, origin, parts, 2 + content->n, k->outputs->keep, error);
    k->spent = program_now() - from;
    checkpointing_start(k);
    if (status < 0) return -1;
    k->any = 1;
    k->step = origin->step;
    return status;
}
