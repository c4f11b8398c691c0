/* Reading arrays of triples, row by row. */
#include "trainers/kge/arrays.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int kge_array_is_there(char path[KGE_ARRAY_PATH], const char *folder, const char *begin, const char *end) {
    int n = snprintf(path, KGE_ARRAY_PATH, "%s/%s_%s.npy", folder, begin, end);
    return n < KGE_ARRAY_PATH && !access(path, F_OK);
}

void kge_arrays_close(kge_arrays *arrays) {
    for (int i = 0; i < 2; i++)
        if (arrays->of[i].stream) fclose(arrays->of[i].stream);
    *arrays = (kge_arrays){.at = 0};
}

static int kge_array_open(npy_array *array, const char *path, uint64_t dim, program_error *error) {
    if (npy_open(array, path, error)) return -1;
    int whole = array->type[1] == 'i' || array->type[1] == 'u';
    if (whole && array->type[0] == '<' && (array->bytes == 4 || array->bytes == 8) && array->dim == dim) return 0;
    return program_fail(error,
                        "%.300s has rows of %" PRIu64 " numbers of type %s, must be of %" PRIu64 " of type int32 or "
                        "int64; numpy.save(..., a.astype('int64'))",
                        path, array->dim, array->type, dim);
}

int kge_arrays_begin(kge_arrays *arrays, const char *folder, kge_split_kind split, program_error *error) {
    static const char *const begins[KGE_SPLITS][2] = {{"train", NULL}, {"valid", "val"}, {"test", NULL}};
    char *path = arrays->path, tails[KGE_ARRAY_PATH];
    kge_arrays_close(arrays);
    for (int i = 0; i < 2 && begins[split][i]; i++) {
        const char *begin = begins[split][i];
        if (kge_array_is_there(path, folder, begin, "hrt")) return kge_array_open(&arrays->of[0], path, 3, error);
        if (!kge_array_is_there(path, folder, begin, "hr")) continue;
        int has_tails = kge_array_is_there(tails, folder, begin, "t");
        if (!has_tails && split == KGE_TEST) return 0; /* OGB keeps these to itself */
        if (!has_tails)
            return program_fail(error, "%.300s has no %s_t.npy beside it; write %s_hrt.npy, with rows of three ids",
                                path, begin, begin);
        if (kge_array_open(&arrays->of[0], path, 2, error) || kge_array_open(&arrays->of[1], tails, 1, error))
            return -1;
        if (arrays->of[0].n == arrays->of[1].n) return 0;
        return program_fail(error, "%.300s has %" PRIu64 " rows, and %s_t.npy %" PRIu64, path, arrays->of[0].n, begin,
                            arrays->of[1].n);
    }
    return 0;
}

/* The next number of an array. UINT64_MAX: there is none; a negative one is as large. */
static uint64_t kge_array_number(npy_array *array) {
    uint64_t wide = 0;
    uint32_t narrow = 0;
    if (array->bytes == 8) return fread(&wide, sizeof wide, 1, array->stream) == 1 ? wide : UINT64_MAX;
    return fread(&narrow, sizeof narrow, 1, array->stream) == 1 ? narrow : UINT64_MAX;
}

/* Names for all ids up to this one. */
static int kge_array_name(kge_names *names, uint64_t id, program_error *error) {
    char name[24];
    while (names->n <= id) {
        int n = snprintf(name, sizeof name, "%" PRIu32, names->n);
        if (kge_names_add(names, name, (size_t)n, error)) return -1;
    }
    return 0;
}

int kge_arrays_next(kge_arrays *arrays, const char *columns, kge_names *const names[2], kge_triple *triple,
                    program_error *error) {
    uint32_t *const parts[] = {&triple->head, &triple->relation, &triple->tail};
    npy_array *first = &arrays->of[0];
    if (!first->stream || arrays->at == first->n) return 0;
    /* Ids number names without gaps; a large one would stand for as many names that nothing has. The bound is that of
     * the split's first row: otherwise each large id would let the next one be larger. */
    if (!arrays->at) arrays->most = 16 * first->n + (UINT64_C(1) << 20) + names[0]->n;
    for (int c = 0; c < 3; c++) {
        int apart = arrays->of[1].stream != NULL, of = apart && c == 2;
        char part = apart ? "hrt"[c] : columns[c];
        uint64_t id = kge_array_number(&arrays->of[of]);
        if (id >= arrays->most || id >= UINT32_MAX - 2)
            return program_fail(error,
                                "row %" PRIu64
                                " of %.300s has no id, or one that is negative or far above the number of "
                                "triples; number names from 0, without gaps",
                                arrays->at, arrays->path);
        *parts[part == 'h' ? 0 : part == 'r' ? 1 : 2] = (uint32_t)id;
        if (kge_array_name(names[part == 'r'], id, error)) return -1;
    }
    arrays->at++;
    return 1;
}
