/* Reading saved sets. */
#include "trainers/kge/load.h"
#include "trainers/kge/folder.h"
#include "trainers/kge/save.h"
#include "trainers/common/crc32.h"
#include "trainers/common/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What the set is ----------------------------------------------------------------------------------- */

static int kge_saved_manifest(manifest *m, const char *folder, program_error *error) {
    program_error why;
    int got = manifest_read(m, folder, &why);
    if (got < 0) return program_fail(error, "--load %.480s", why.text);
    if (!got)
        return program_fail(error, "--load %.300s has no " MANIFEST_NAME ": give a folder that kge --save has written",
                            folder);
    if (!strcmp(m->program, "kge")) return 0;
    return program_fail(error, "--load %.300s is a set of %.60s; give one that kge --save has written", folder,
                        m->program);
}

static uint32_t kge_saved_file(const manifest *m, const char *name) {
    uint32_t i = 0;
    while (i < m->n && strcmp(m->files[i].name, name)) i++;
    return i;
}

static int kge_saved_kind(kge_saved *saved, const manifest *m, program_error *error) {
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        saved->kind = (kge_model_kind)kind;
        if (!strcmp(m->model, kge_model_name(saved->kind))) return 0;
    }
    return program_fail(error, "--load %.300s has model %.60s, which this version does not know", saved->folder,
                        m->model);
}

/* path[MANIFEST_LONGEST_PATH] becomes where the file with this name lies, whose bytes are those of the set. */
static int kge_saved_find(const kge_saved *saved, const manifest *m, const char *name, char *path,
                          program_error *error) {
    uint32_t i = kge_saved_file(m, name);
    program_error why;
    if (i == m->n) return program_fail(error, "--load %.300s has no %s; save it again", saved->folder, name);
    if (!manifest_find(m, saved->folder, i, path, &why)) return 0;
    return program_fail(error, "--load %.200s is not whole: %.280s; save it again", saved->folder, why.text);
}

static int kge_saved_shape(kge_saved *saved, uint32_t table, program_error *error) {
    npy_array array;
    int status = npy_open(&array, saved->path[table], error);
    if (!status && (array.dimensions != 2 || strcmp(array.type, "<f4") || !array.dim || array.dim > 65536))
        status = program_fail(error, "%.300s has numbers of type %s, must be rows of 1 to 65536 float32",
                              saved->path[table], array.type);
    if (array.stream) fclose(array.stream);
    if (status) return -1;
    if (table && saved->dim != array.dim)
        return program_fail(error, "--load %.300s has entities of %" PRIu32 " floats and relations of %" PRIu64,
                            saved->folder, saved->dim, array.dim);
    saved->rows[table] = array.n, saved->dim = (uint32_t)array.dim;
    return 0;
}

int kge_saved_look(kge_saved *saved, const char *folder, program_error *error) {
    manifest m;
    *saved = (kge_saved){.folder = folder};
    int status = kge_saved_manifest(&m, folder, error);
    if (!status) status = kge_saved_kind(saved, &m, error);
    saved->step = m.step;
    for (uint32_t i = 0; i < m.n; i++) saved->checksum = crc32_of(saved->checksum, &m.files[i].crc32, 4);
    for (uint32_t i = 0; i < 2 && !status; i++) {
        status = kge_saved_find(saved, &m, kge_saved_files[i], saved->path[i], error);
        if (!status) status = kge_saved_shape(saved, i, error);
    }
    manifest_free(&m);
    return status;
}

/* ---- Its names ----------------------------------------------------------------------------------------- */

/* The names of one id map, as many as there are rows. */
static int kge_saved_names(kge_saved *saved, const manifest *m, uint32_t table, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], *cut;
    const char *ids = kge_saved_files[2 + table];
    kge_names *names = table ? &saved->relations : &saved->entities;
    kge_folder folder = {.path = path};
    if (kge_saved_find(saved, m, ids, path, error)) return -1;
    cut = strrchr(path, '/');
    *cut = 0;
    int status = kge_folder_names(&folder, cut + 1, names, error);
    kge_folder_close(&folder);
    if (status || names->n == saved->rows[table]) return status;
    return program_fail(error, "--load %.300s has %" PRIu32 " names in %s for %" PRIu64 " rows", saved->folder,
                        names->n, ids, saved->rows[table]);
}

int kge_saved_open(kge_saved *saved, int reciprocal, program_error *error) {
    manifest m;
    int status = kge_saved_manifest(&m, saved->folder, error);
    for (uint32_t i = 0; i < 2 && !status; i++) status = kge_saved_names(saved, &m, i, error);
    manifest_free(&m);
    if (status) return -1;
    int has = kge_names_have_inverses(&saved->relations);
    saved->reciprocal = reciprocal < 0 ? has : reciprocal;
    if (saved->reciprocal && !has)
        return program_fail(error, "--load %.300s has no inverse relations; leave --reciprocal yes out", saved->folder);
    if (saved->reciprocal) saved->relations.n /= 2;
    return 0;
}

void kge_saved_close(kge_saved *saved) {
    kge_names_free(&saved->entities);
    kge_names_free(&saved->relations);
}

static int kge_names_copy(kge_names *to, const kge_names *from, program_error *error) {
    for (uint32_t i = 0; i < from->n; i++) {
        const char *name = kge_name(from, i);
        if (kge_names_add(to, name, strlen(name), error)) return -1;
    }
    return 0;
}

int kge_saved_graph(const kge_saved *saved, kge_graph *graph, program_error *error) {
    *graph = (kge_graph){.columns = NULL};
    if (kge_names_copy(&graph->entities, &saved->entities, error)) return -1;
    return kge_names_copy(&graph->relations, &saved->relations, error);
}

/* ---- Its rows ------------------------------------------------------------------------------------------ */

enum { KGE_SAVED_BLOCK = 4096 };

/* Names of the graph, with their ids, and how many of them the set has, too. */
typedef struct kge_found_by {
    const kge_names *names;
    kge_map map;
    uint32_t found;
} kge_found_by;

/* The rows of one file, a block at a time, to those of the same name. */
static int kge_saved_copy(const kge_saved *saved, uint32_t table, kge_found_by *by, const kge_writer *to,
                          program_error *error) {
    const kge_names *own = table ? &saved->relations : &saved->entities;
    size_t dim = saved->dim;
    npy_array array;
    uint64_t *keys = malloc(KGE_SAVED_BLOCK * sizeof *keys);
    float *rows = malloc(KGE_SAVED_BLOCK * dim * sizeof *rows);
    int status = npy_open(&array, saved->path[table], error);
    if (!status && (!keys || !rows)) status = program_fail(error, "out of memory to read %.300s", saved->path[table]);
    for (uint64_t from = 0; from < saved->rows[table] && !status; from += KGE_SAVED_BLOCK) {
        uint64_t left = saved->rows[table] - from;
        uint32_t read = left < KGE_SAVED_BLOCK ? (uint32_t)left : KGE_SAVED_BLOCK, n = 0;
        if (fread(rows, dim * sizeof *rows, read, array.stream) != read)
            status = program_fail(error, "cannot read %.300s: it ends early", saved->path[table]);
        for (uint32_t i = 0; i < read && !status; i++) {
            uint64_t row = from + i, inverse = row >= own->n; /* names of inverse relations are made of the others' */
            uint32_t id = kge_map_find(&by->map, by->names, kge_name(own, (uint32_t)(row - inverse * own->n)));
            if (id == UINT32_MAX) continue;
            by->found += !inverse;
            keys[n] = id + inverse * by->names->n;
            memmove(rows + n++ * dim, rows + i * dim, dim * sizeof *rows);
        }
        kge_written written = {table, n, keys, rows};
        if (!status && n) status = to->write(to->of, &written, error);
    }
    if (array.stream) fclose(array.stream);
    free(keys);
    free(rows);
    return status;
}

int kge_saved_read(const kge_saved *saved, const kge_graph *graph, const kge_writer *to, program_error *error) {
    static const char *const words[2] = {"entities", "relations"};
    for (uint32_t table = 0; table < 2; table++) {
        const kge_names *own = table ? &saved->relations : &saved->entities;
        const kge_names *names = table ? &graph->relations : &graph->entities;
        kge_found_by by = {.names = names};
        if (kge_map_build(&by.map, names, error)) return -1;
        int status = kge_saved_copy(saved, table, &by, to, error);
        uint32_t found = by.found;
        free(by.map.slot);
        if (status) return -1;
        fprintf(stderr, "%" PRIu32 " of %" PRIu32 " %s have the rows of %s, step %" PRIu64 "%s", found, names->n,
                words[table], saved->folder, saved->step, found < names->n ? "; the others are new" : "");
        if (found < own->n) fprintf(stderr, "; %" PRIu32 " of its rows are left out", own->n - found);
        if (table && saved->reciprocal) fputs("; inverse relations, too, as their names say (--reciprocal)", stderr);
        fputc('\n', stderr);
        if (!found)
            return program_fail(error,
                                "--load %.300s has none of the %s of this graph, whose first one is '%.60s', and its "
                                "own '%.60s'; give the graph that it was trained on, or one with more names",
                                saved->folder, words[table], kge_name(names, 0), kge_name(own, 0));
    }
    return 0;
}
