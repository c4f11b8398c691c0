/* Files beside the old ones, a manifest that makes them the set, and their names. */
#include "trainers/common/save.h"
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "frugal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct save_set {
    char *folder;
    const char *program;
    const char *const *names; /* names[n] */
    int n;
    int lock;
    int made;                       /* the folder was not there */
    file_new files[MANIFEST_FILES]; /* files[n], of the names */
};

static file_new *save_file_of(save_set *set, const char *name) {
    int i = 0;
    while (i < set->n && strcmp(set->names[i], name)) i++;
    assert(i < set->n);
    return &set->files[i];
}

/* ---- What a killed process has left ---------------------------------------------------------------------- */

/* Finishes a set whose manifest was renamed, but not all of its files. 1: there is a manifest; 0: there is none; -1:
 * error. */
static int save_finish_names(const char *folder, program_error *error) {
    manifest m;
    struct stat is;
    char from[MANIFEST_LONGEST_PATH], to[MANIFEST_LONGEST_PATH];
    int status = manifest_read(&m, folder, error);
    for (uint32_t i = 0; i < m.n && status > 0; i++) {
        const char *written = m.files[i].written;
        if (!written || *written == '/') continue; /* it is a link's target: it stays where the manifest says */
        status =
            manifest_path(from, folder, written, error) || manifest_path(to, folder, m.files[i].name, error) ? -1 : 1;
        if (status > 0 && !lstat(from, &is) && S_ISREG(is.st_mode) && rename(from, to))
            status = program_fail(error, "cannot give %.300s its name: %s", to, strerror(errno));
    }
    manifest_free(&m);
    return status;
}

/* Removes temporary files. No live process uses them, because the folder is locked. */
static void save_remove_leftovers(const save_set *set) {
    DIR *folder = opendir(set->folder);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int ours = file_is_temporary(entry->d_name, MANIFEST_NAME);
        for (int i = 0; i < set->n && !ours; i++) ours = file_is_temporary(entry->d_name, set->names[i]);
        if (ours) unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

/* ---- Before the training ------------------------------------------------------------------------------- */

/* Could all names be replaced, and a file be made? Files of these names without a manifest are not a set's, because a
 * set gets its manifest first. */
static int save_probe(const save_set *set, int has_manifest, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], *resolved = NULL;
    struct stat is;
    file_new probe;
    for (int i = 0; i < set->n; i++) {
        if (manifest_path(path, set->folder, set->names[i], error) || file_resolve(path, &resolved, error)) return -1;
        free(resolved);
        if (!has_manifest && !stat(path, &is) && is.st_size > 0)
            return program_fail(error,
                                "cannot write %.300s: it is there, and no " MANIFEST_NAME
                                " tells that it was saved by this program; move it away, or give another folder",
                                path);
    }
    if (manifest_path(path, set->folder, MANIFEST_NAME, error) || file_make(&probe, path, error)) return -1;
    file_discard(&probe);
    return 0;
}

int save_begin(save_set **out, const char *folder, const char *program, const char *const *names, int n,
               program_error *error) {
    assert(n < MANIFEST_FILES);
    *out = NULL;
    save_set *set = calloc(1, sizeof *set);
    if (!set) return program_fail(error, "out of memory for saving");
    *set = (save_set){.folder = strdup(folder), .program = program, .names = names, .n = n, .lock = -1};
    set->made = access(folder, F_OK) && errno == ENOENT;
    for (int i = 0; i < n; i++) set->files[i].descriptor = -1;
    int status = set->folder ? file_make_folder(folder, error) : program_fail(error, "out of memory for saving");
    if (!status) status = file_lock(&set->lock, folder, program, error);
    int has_manifest = status ? 0 : save_finish_names(folder, error);
    if (has_manifest < 0) status = -1;
    if (!status) save_remove_leftovers(set);
    if (!status) status = save_probe(set, has_manifest, error);
    if (status)
        save_end(set);
    else
        *out = set;
    return status;
}

static void save_discard(save_set *set) {
    for (int i = 0; i < set->n; i++) file_discard(&set->files[i]);
}

void save_end(save_set *set) {
    if (!set) return;
    save_discard(set);
    if (set->folder) file_unlock(set->lock, set->folder);
    if (set->folder && set->made) rmdir(set->folder); /* if nothing was saved there */
    free(set->folder);
    free(set);
}

/* ---- Files --------------------------------------------------------------------------------------------- */

FILE *save_open(save_set *set, const char *name, program_error *error) {
    char path[MANIFEST_LONGEST_PATH];
    file_new *file = save_file_of(set, name);
    file_discard(file);
    if (manifest_path(path, set->folder, name, error) || file_make(file, path, error) || file_stream(file, error))
        return NULL;
    return file->stream;
}

int save_close(save_set *set, const char *name, program_error *error) {
    return file_close(save_file_of(set, name), error);
}

void save_begin_array(FILE *stream, const char *type, uint64_t n, uint64_t dim) {
    char header[128], shape[64], text[118];
    int endian = 1;
    char order = !strcmp(type + 1, "1") ? '|' : *(char *)&endian ? '<' : '>'; /* a byte has none */
    snprintf(shape, sizeof shape, dim == SAVE_VECTOR ? "(%" PRIu64 ",)" : "(%" PRIu64 ", %" PRIu64 ")", n, dim);
    int length =
        snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }", order, type, shape);
    memset(header, ' ', sizeof header); /* magic, version 1.0, little-endian length of the rest, which fills 128 */
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(header + 10, text, (size_t)length);
    header[127] = '\n';
    fwrite(header, 1, sizeof header, stream);
}

void save_begin_rows(FILE *stream, uint64_t n, uint64_t dim) {
    save_begin_array(stream, "f4", n, dim);
}

int save_rows(save_set *set, const char *name, uint64_t n, uint64_t dim, const float *rows, program_error *error) {
    FILE *stream = save_open(set, name, error);
    if (!stream) return -1;
    save_begin_rows(stream, n, dim);
    fwrite(rows, sizeof(float), n * dim, stream);
    return save_close(set, name, error);
}

/* ---- The set ------------------------------------------------------------------------------------------- */

/* The path at which a file of the set was written: beside its name or, if the name is a link, beside the link's target.
 * To be freed. */
static char *save_written(const save_set *set, int i) {
    char path[MANIFEST_LONGEST_PATH];
    struct stat is;
    const char *temporary = set->files[i].temporary, *base = strrchr(temporary, '/');
    snprintf(path, sizeof path, "%s/%s", set->folder, set->names[i]);
    return !lstat(path, &is) && S_ISLNK(is.st_mode) ? realpath(temporary, NULL) : strdup(base ? base + 1 : temporary);
}

static int save_describe(const save_set *set, manifest *m, program_error *error) {
    for (int i = 0; i < set->n; i++) {
        const file_new *file = &set->files[i];
        manifest_file *entry = &m->files[m->n++];
        *entry = (manifest_file){.bytes = file->bytes, .crc32 = file->crc32};
        snprintf(entry->name, sizeof entry->name, "%s", set->names[i]);
        entry->written = save_written(set, i);
        if (!entry->written) return program_fail(error, "out of memory for a manifest");
    }
    return 0;
}

/* The manifest on disk, under a temporary name. */
static int save_write_manifest(const save_set *set, const save_origin *origin, file_new *file, program_error *error) {
    manifest m = {.step = origin->step};
    char path[MANIFEST_LONGEST_PATH];
    snprintf(m.program, sizeof m.program, "%s", set->program);
    snprintf(m.version, sizeof m.version, "%s", FRUGAL_VERSION_STRING);
    snprintf(m.model, sizeof m.model, "%s", origin->model);
    int status = save_describe(set, &m, error);
    char *text = status ? NULL : manifest_text(&m);
    if (!status && !text) status = program_fail(error, "out of memory for a manifest");
    if (!status) status = manifest_path(path, set->folder, MANIFEST_NAME, error);
    if (!status) status = file_make(file, path, error) || file_stream(file, error) ? -1 : 0;
    if (!status) {
        fputs(text, file->stream);
        status = file_close(file, error);
    }
    free(text);
    manifest_free(&m);
    return status;
}

/* 0; 1: the manifest says where the new set lies, but not all of its files could get their names; -1: nothing has
 * changed. */
static int save_publish(save_set *set, const save_origin *origin, program_error *error) {
    file_new written = {.descriptor = -1};
    int status = save_write_manifest(set, origin, &written, error);
    for (int i = 0; i < set->n && !status; i++) status = file_sync_folder(set->files[i].path, error);
    if (!status) status = file_rename(&written, error);
    if (status) {
        file_discard(&written);
        return -1;
    }
    status = file_sync_folder(written.path, error);
    file_discard(&written);
    for (int i = 0; i < set->n && !status; i++) status = file_rename(&set->files[i], error);
    for (int i = 0; i < set->n && !status; i++) status = file_sync_folder(set->files[i].path, error);
    return status ? 1 : 0;
}

/* The files belong to the set now, and must not be discarded. */
static void save_keep(save_set *set) {
    for (int i = 0; i < set->n; i++) {
        free(set->files[i].temporary);
        set->files[i].temporary = NULL;
    }
}

int save_finish(save_set *set, const save_origin *origin, int failed, program_error *error) {
    for (int i = 0; i < set->n && !failed; i++) assert(set->files[i].temporary && set->files[i].descriptor < 0);
    int status = failed ? -1 : save_publish(set, origin, error);
    if (status > 0) {
        program_error why = *error;
        program_fail(error, "%.300s; all is saved, but files lie where \"written\" of %.150s/" MANIFEST_NAME " says",
                     why.text, set->folder);
        save_keep(set);
    }
    save_discard(set);
    return status ? -1 : 0;
}

void save_tell(const save_set *set) {
    fprintf(stderr, "saved to %s:", set->folder);
    for (int i = 0; i < set->n; i++) fprintf(stderr, "%s %s", i ? "," : "", set->names[i]);
    fprintf(stderr, ", " MANIFEST_NAME "\n");
}
