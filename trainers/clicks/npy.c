/* Arrays, some rows at a time, as lines. */
#include "trainers/clicks/npy.h"
#include "trainers/clicks/schema.h"
#include "trainers/common/file.h"
#include "trainers/common/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLICKS_NPY_PARTS = 3,
    CLICKS_NPY_ROWS = 64, /* read at a time */
    CLICKS_NPY_VALUE = 28 /* bytes of a value as text, at most, and what follows it */
};

static const char *const clicks_npy_ends[CLICKS_NPY_PARTS] = {"_dense.npy", "_sparse.npy", "_labels.npy"};

typedef struct clicks_array {
    char path[4096];
    npy_array file;       /* its n rows of dim columns */
    char kind;            /* f, i, u or b */
    unsigned char *block; /* block[CLICKS_NPY_ROWS][columns] of `bytes` bytes */
} clicks_array;

struct clicks_npy {
    clicks_array part[CLICKS_NPY_PARTS];
    uint64_t row;      /* the next one that is read */
    char *text;        /* of the last rows, or the first line */
    size_t begin, end; /* of it, what is not read yet */
};

/* ---- Names ---------------------------------------------------------------------------------------------- */

/* The path of another part; 0: it has too many bytes. */
static int clicks_npy_beside(const char *path, int from, int part, char to[4096]) {
    int stem = (int)(strlen(path) - strlen(clicks_npy_ends[from]));
    return snprintf(to, 4096, "%.*s%s", stem, path, clicks_npy_ends[part]) < 4096;
}

int clicks_npy_is_log(const char *path) {
    return file_ends_with(path, clicks_npy_ends[0]);
}

int clicks_npy_is_part(const char *path) {
    char dense[4096];
    for (int i = 1; i < CLICKS_NPY_PARTS; i++)
        if (file_ends_with(path, clicks_npy_ends[i]))
            return clicks_npy_beside(path, i, 0, dense) && !access(dense, F_OK);
    return 0;
}

/* ---- Headers -------------------------------------------------------------------------------------------- */

/* An array of numbers that text can be made of; the file is then at the first row. */
static int clicks_npy_begin(clicks_array *array, program_error *error) {
    npy_array *file = &array->file;
    if (access(array->path, F_OK))
        return program_fail(error,
                            "cannot read %.200s: %s; of such arrays x_dense.npy, x_sparse.npy and x_labels.npy "
                            "belong together",
                            array->path, strerror(errno));
    if (npy_open(file, array->path, error)) return -1;
    const char *type = file->type;
    uint32_t bytes = file->bytes;
    int good = (*type == '<' || *type == '|') && strchr("fiub", type[1]);
    array->kind = type[1];
    if (array->kind == 'f' ? bytes != 4 && bytes != 8 : bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) good = 0;
    if (!good)
        return program_fail(error,
                            "%.200s is of type %s, must be of float32, float64, or whole numbers, in the "
                            "order of bytes of this machine; convert it by numpy's astype",
                            array->path, type);
    if (!file->dim || file->dim >= CLICKS_MOST_COLUMNS)
        return program_fail(error,
                            "%.200s has the shape (%" PRIu64 ", %" PRIu64 "), must be (samples, columns), below %d "
                            "columns",
                            array->path, file->n, file->dim, CLICKS_MOST_COLUMNS);
    array->block = malloc((size_t)bytes * file->dim * CLICKS_NPY_ROWS);
    if (!array->block) return program_fail(error, "cannot read %.200s: %s", array->path, strerror(errno));
    return 0;
}

/* ---- Text ----------------------------------------------------------------------------------------------- */

/* The first line. */
static void clicks_npy_names(clicks_npy *npy) {
    uint32_t numbers, ids;
    clicks_npy_shape(npy, &numbers, &ids);
    char *at = npy->text + sprintf(npy->text, "label");
    for (uint32_t i = 0; i < numbers; i++) at += sprintf(at, ",int_%" PRIu32, i);
    for (uint32_t i = 0; i < ids; i++) at += sprintf(at, ",cat_%" PRIu32, i);
    *at++ = '\n';
    npy->end = (size_t)(at - npy->text);
}

static int64_t clicks_npy_whole(char kind, uint32_t size, const unsigned char *bytes) {
    uint64_t x = 0;
    for (uint32_t i = 0; i < size; i++) x |= (uint64_t)bytes[i] << (8 * i);
    if (kind == 'i' && size < 8 && x >> (8 * size - 1)) x -= UINT64_C(1) << (8 * size);
    return (int64_t)x;
}

static int clicks_npy_put(const clicks_array *array, const unsigned char *bytes, char *to) {
    float single;
    double real;
    if (array->kind != 'f') {
        int64_t x = clicks_npy_whole(array->kind, array->file.bytes, bytes);
        if (array->kind == 'i') return sprintf(to, "%" PRId64, x);
        return sprintf(to, "%" PRIu64, (uint64_t)x);
    }
    if (array->file.bytes == 4) {
        memcpy(&single, bytes, sizeof single);
        return sprintf(to, "%.9g", (double)single);
    }
    memcpy(&real, bytes, sizeof real);
    return sprintf(to, "%.17g", real);
}

/* The next rows as lines: the label first. */
static int clicks_npy_fill(clicks_npy *npy, const char **why) {
    static const int order[CLICKS_NPY_PARTS] = {2, 0, 1};
    uint64_t left = npy->part[0].file.n - npy->row, rows = left < CLICKS_NPY_ROWS ? left : CLICKS_NPY_ROWS;
    char *at = npy->text;
    for (int k = 0; k < CLICKS_NPY_PARTS; k++) {
        clicks_array *array = &npy->part[k];
        if (fread(array->block, (size_t)array->file.bytes * array->file.dim, rows, array->file.stream) < rows)
            return *why = ferror(array->file.stream) ? strerror(errno) : "an array has become shorter", -1;
    }
    for (uint64_t i = 0; i < rows; i++) {
        for (int k = 0; k < CLICKS_NPY_PARTS; k++) {
            const clicks_array *array = &npy->part[order[k]];
            const unsigned char *from = array->block + i * array->file.dim * array->file.bytes;
            for (uint32_t c = 0; c < array->file.dim; c++, *at++ = ',')
                at += clicks_npy_put(array, from + (size_t)c * array->file.bytes, at);
        }
        at[-1] = '\n';
    }
    npy->row += rows;
    npy->begin = 0, npy->end = (size_t)(at - npy->text);
    return 0;
}

long clicks_npy_read(clicks_npy *npy, char *to, size_t n, const char **why) {
    size_t done = 0;
    while (done < n) {
        if (npy->begin == npy->end && npy->row == npy->part[0].file.n) break;
        if (npy->begin == npy->end && clicks_npy_fill(npy, why)) return -1;
        size_t some = npy->end - npy->begin < n - done ? npy->end - npy->begin : n - done;
        memcpy(to + done, npy->text + npy->begin, some);
        npy->begin += some, done += some;
    }
    return (long)done;
}

/* ---- Opening -------------------------------------------------------------------------------------------- */

void clicks_npy_shape(const clicks_npy *npy, uint32_t *numbers, uint32_t *ids) {
    *numbers = (uint32_t)npy->part[0].file.dim, *ids = (uint32_t)npy->part[1].file.dim;
}

void clicks_npy_close(clicks_npy *npy) {
    if (!npy) return;
    for (int i = 0; i < CLICKS_NPY_PARTS; i++) {
        if (npy->part[i].file.stream) fclose(npy->part[i].file.stream);
        free(npy->part[i].block);
    }
    free(npy->text);
    free(npy);
}

static int clicks_npy_check(const clicks_npy *npy, program_error *error) {
    const clicks_array *part = npy->part;
    for (int i = 1; i < CLICKS_NPY_PARTS; i++)
        if (part[i].file.n != part[0].file.n)
            return program_fail(error, "%.150s has %" PRIu64 " rows, and %.150s %" PRIu64 "; give arrays of one log",
                                part[0].path, part[0].file.n, part[i].path, part[i].file.n);
    if (part[1].kind == 'f')
        return program_fail(error, "%.200s has floats as ids; convert it by numpy's astype", part[1].path);
    if (part[2].file.dim == 1) return 0;
    return program_fail(error, "%.200s has %" PRIu64 " columns of labels, must have one", part[2].path,
                        part[2].file.dim);
}

static int clicks_npy_open_all(clicks_npy *npy, const char *path, program_error *error) {
    for (int i = 0; i < CLICKS_NPY_PARTS; i++) {
        if (!clicks_npy_beside(path, 0, i, npy->part[i].path))
            return program_fail(error, "the name of an array is longer than 4095 bytes: %.60s...", path);
        if (clicks_npy_begin(&npy->part[i], error)) return -1;
    }
    if (clicks_npy_check(npy, error)) return -1;
    size_t values = 1 + npy->part[0].file.dim + npy->part[1].file.dim;
    npy->text = malloc(values * CLICKS_NPY_VALUE * CLICKS_NPY_ROWS);
    if (!npy->text) return program_fail(error, "out of memory to read %.200s", path);
    clicks_npy_names(npy);
    return 0;
}

int clicks_npy_open(clicks_npy **out, const char *path, program_error *error) {
    *out = NULL;
    clicks_npy *npy = calloc(1, sizeof *npy);
    if (!npy) return program_fail(error, "out of memory to read %.200s", path);
    if (clicks_npy_open_all(npy, path, error)) {
        clicks_npy_close(npy);
        return -1;
    }
    *out = npy;
    return 0;
}
