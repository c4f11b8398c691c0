/* Arrays, some rows at a time, as lines. */
#include "examples/clicks/npy.h"
#include "examples/clicks/schema.h"
#include "examples/common/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CLICKS_NPY_PARTS = 3,
    CLICKS_NPY_HEADER = 4096, /* bytes that are looked at; NumPy writes 128 */
    CLICKS_NPY_ROWS = 64,     /* read at a time */
    CLICKS_NPY_VALUE = 28     /* bytes of a value as text, at most, and what follows it */
};

static const char *const clicks_npy_ends[CLICKS_NPY_PARTS] = {"_dense.npy", "_sparse.npy", "_labels.npy"};

typedef struct clicks_array {
    char path[4096];
    FILE *file;
    char kind; /* f, i, u or b */
    uint32_t size, columns;
    uint64_t rows;
    unsigned char *block; /* block[CLICKS_NPY_ROWS][columns] of `size` bytes */
} clicks_array;

struct clicks_npy {
    clicks_array part[CLICKS_NPY_PARTS];
    uint64_t row;      /* the next one that is read */
    char *text;        /* of the last rows, or the first line */
    size_t begin, end; /* of it, what is not read yet */
};

/* ---- Names ---------------------------------------------------------------------------------------------- */

static int clicks_ends_with(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

/* The path of another part; 0: it has too many bytes. */
static int clicks_npy_beside(const char *path, int from, int part, char to[4096]) {
    int stem = (int)(strlen(path) - strlen(clicks_npy_ends[from]));
    return snprintf(to, 4096, "%.*s%s", stem, path, clicks_npy_ends[part]) < 4096;
}

int clicks_npy_is_log(const char *path) {
    return clicks_ends_with(path, clicks_npy_ends[0]);
}

int clicks_npy_is_part(const char *path) {
    char dense[4096];
    for (int i = 1; i < CLICKS_NPY_PARTS; i++)
        if (clicks_ends_with(path, clicks_npy_ends[i]))
            return clicks_npy_beside(path, i, 0, dense) && !access(dense, F_OK);
    return 0;
}

/* ---- Headers -------------------------------------------------------------------------------------------- */

/* What follows the key in the header's text; NULL: it is not there. */
static const char *clicks_npy_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '\'') at++;
    return at;
}

/* 'descr': '<f4', 'fortran_order': False, 'shape': (100, 13), */
static int clicks_npy_parse(clicks_array *array, const char *header, program_error *error) {
    const char *type = clicks_npy_value(header, "'descr'"), *order = clicks_npy_value(header, "'fortran_order'");
    const char *shape = clicks_npy_value(header, "'shape'");
    int size = 0, columns = 1;
    array->columns = 1;
    if (!type || !order || !shape || sscanf(shape, "(%" SCNu64 ",%" SCNu32, &array->rows, &array->columns) < 1)
        return program_fail(error, "%.200s has no header of NumPy's; write it by numpy.save", array->path);
    if (strncmp(order, "False", 5))
        return program_fail(error, "%.200s is in the order of Fortran; write numpy.ascontiguousarray of it",
                            array->path);
    for (const char *at = shape; *at && *at != ')'; at++) columns += *at == ',' && at[1] != ')';
    int good = (*type == '<' || *type == '|') && strchr("fiub", type[1]) && sscanf(type + 2, "%d'", &size) == 1;
    array->kind = type[1], array->size = (uint32_t)size;
    if (array->kind == 'f' ? size != 4 && size != 8 : size != 1 && size != 2 && size != 4 && size != 8) good = 0;
    int shown = (int)strcspn(good ? shape : type, good ? ")\n" : "',\n");
    if (!good)
        return program_fail(error,
                            "%.200s is of type %.*s, must be of float32, float64, or whole numbers, in the "
                            "order of bytes of this machine; convert it by numpy's astype",
                            array->path, shown < 8 ? shown : 8, type);
    if (columns <= 2 && array->columns && array->columns < CLICKS_MOST_COLUMNS) return 0;
    return program_fail(error, "%.200s has the shape %.*s), must be (samples, columns), below %d columns", array->path,
                        shown < 30 ? shown : 30, shape, CLICKS_MOST_COLUMNS);
}

/* Its header; the file is then at the first row. */
static int clicks_npy_begin(clicks_array *array, program_error *error) {
    unsigned char bytes[CLICKS_NPY_HEADER + 1] = {0};
    struct stat is;
    array->file = fopen(array->path, "rbe");
    if (!array->file)
        return program_fail(error,
                            "cannot read %.200s: %s%s; of such arrays x_dense.npy, x_sparse.npy and "
                            "x_labels.npy belong together",
                            array->path, strerror(errno), file_remedy(errno));
    size_t n = fread(bytes, 1, CLICKS_NPY_HEADER, array->file);
    size_t before = n > 6 && bytes[6] == 1 ? 10 : 12;
    size_t length = (size_t)bytes[8] + 256 * (size_t)bytes[9] + (before > 10 ? 65536 * (size_t)bytes[10] : 0);
    if (n < before || memcmp(bytes, "\x93NUMPY", 6) || length > CLICKS_NPY_HEADER - before)
        return program_fail(error, "%.200s is no array of NumPy; write it by numpy.save", array->path);
    bytes[before + length] = 0;
    if (clicks_npy_parse(array, (const char *)bytes + before, error)) return -1;
    uint64_t row = (uint64_t)array->size * array->columns, has = 0;
    if (!fstat(fileno(array->file), &is) && (uint64_t)is.st_size > before + length)
        has = ((uint64_t)is.st_size - before - length) / row;
    if (has < array->rows)
        return program_fail(error, "%.200s has %" PRIu64 " rows, and says %" PRIu64 "; is it cut off?", array->path,
                            has, array->rows);
    array->block = malloc(row * CLICKS_NPY_ROWS);
    if (!array->block || fseeko(array->file, (off_t)(before + length), SEEK_SET))
        return program_fail(error, "cannot read %.200s: %s", array->path, strerror(errno));
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
        int64_t x = clicks_npy_whole(array->kind, array->size, bytes);
        if (array->kind == 'i') return sprintf(to, "%" PRId64, x);
        return sprintf(to, "%" PRIu64, (uint64_t)x);
    }
    if (array->size == 4) {
        memcpy(&single, bytes, sizeof single);
        return sprintf(to, "%.9g", (double)single);
    }
    memcpy(&real, bytes, sizeof real);
    return sprintf(to, "%.17g", real);
}

/* The next rows as lines: the label first. */
static int clicks_npy_fill(clicks_npy *npy, const char **why) {
    static const int order[CLICKS_NPY_PARTS] = {2, 0, 1};
    uint64_t left = npy->part[0].rows - npy->row, rows = left < CLICKS_NPY_ROWS ? left : CLICKS_NPY_ROWS;
    char *at = npy->text;
    for (int k = 0; k < CLICKS_NPY_PARTS; k++) {
        clicks_array *array = &npy->part[k];
        if (fread(array->block, (size_t)array->size * array->columns, rows, array->file) < rows)
            return *why = ferror(array->file) ? strerror(errno) : "an array has become shorter", -1;
    }
    for (uint64_t i = 0; i < rows; i++) {
        for (int k = 0; k < CLICKS_NPY_PARTS; k++) {
            const clicks_array *array = &npy->part[order[k]];
            const unsigned char *from = array->block + i * array->columns * array->size;
            for (uint32_t c = 0; c < array->columns; c++, *at++ = ',')
                at += clicks_npy_put(array, from + (size_t)c * array->size, at);
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
        if (npy->begin == npy->end && npy->row == npy->part[0].rows) break;
        if (npy->begin == npy->end && clicks_npy_fill(npy, why)) return -1;
        size_t some = npy->end - npy->begin < n - done ? npy->end - npy->begin : n - done;
        memcpy(to + done, npy->text + npy->begin, some);
        npy->begin += some, done += some;
    }
    return (long)done;
}

/* ---- Opening -------------------------------------------------------------------------------------------- */

void clicks_npy_shape(const clicks_npy *npy, uint32_t *numbers, uint32_t *ids) {
    *numbers = npy->part[0].columns, *ids = npy->part[1].columns;
}

void clicks_npy_close(clicks_npy *npy) {
    if (!npy) return;
    for (int i = 0; i < CLICKS_NPY_PARTS; i++) {
        if (npy->part[i].file) fclose(npy->part[i].file);
        free(npy->part[i].block);
    }
    free(npy->text);
    free(npy);
}

static int clicks_npy_check(const clicks_npy *npy, program_error *error) {
    const clicks_array *part = npy->part;
    for (int i = 1; i < CLICKS_NPY_PARTS; i++)
        if (part[i].rows != part[0].rows)
            return program_fail(error, "%.150s has %" PRIu64 " rows, and %.150s %" PRIu64 "; give arrays of one log",
                                part[0].path, part[0].rows, part[i].path, part[i].rows);
    if (part[1].kind == 'f')
        return program_fail(error, "%.200s has floats as ids; convert it by numpy's astype", part[1].path);
    if (part[2].columns == 1) return 0;
    return program_fail(error, "%.200s has %" PRIu32 " columns of labels, must have one", part[2].path,
                        part[2].columns);
}

static int clicks_npy_open_all(clicks_npy *npy, const char *path, program_error *error) {
    for (int i = 0; i < CLICKS_NPY_PARTS; i++) {
        if (!clicks_npy_beside(path, 0, i, npy->part[i].path))
            return program_fail(error, "the name of an array is longer than 4095 bytes: %.60s...", path);
        if (clicks_npy_begin(&npy->part[i], error)) return -1;
    }
    if (clicks_npy_check(npy, error)) return -1;
    size_t values = 1 + (size_t)npy->part[0].columns + npy->part[1].columns;
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
