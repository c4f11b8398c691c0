/* The header of a .npy file. */
#include "trainers/common/npy.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NPY_TEXT = 4096 };

/* The header's text, text[NPY_TEXT], and where the numbers begin. 0: it is none. */
static size_t npy_text(FILE *stream, char *text) {
    unsigned char head[12];
    if (fread(head, 1, 10, stream) != 10 || memcmp(head, "\x93NUMPY", 6) || head[6] < 1 || head[6] > 3) return 0;
    size_t length = head[8] + 256u * head[9], before = 10;
    if (head[6] > 1) {
        if (fread(head + 10, 1, 2, stream) != 2) return 0;
        length += 65536u * head[10] + 16777216u * head[11], before = 12;
    }
    if (length >= NPY_TEXT || fread(text, 1, length, stream) != length) return 0;
    text[length] = 0;
    return before + length;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } */
static int npy_take(npy_array *array, const char *text) {
    const char *type = strstr(text, "'descr': '"), *shape = strstr(text, "'shape': (");
    char *end;
    if (!type || !shape || !strstr(text, "'fortran_order': False")) return -1;
    type += strlen("'descr': '"), shape += strlen("'shape': (");
    size_t length = strcspn(type, "'");
    if (length >= sizeof array->type || length < 3) return -1;
    memcpy(array->type, type, length);
    array->bytes = (uint32_t)strtoul(type + 2, NULL, 10);
    array->n = strtoull(shape, &end, 10), array->dim = 1, array->dimensions = 1;
    if (end == shape || *end != ',') return -1;
    if (end[1] != ')') {
        shape = end + 1, array->dimensions = 2;
        array->dim = strtoull(shape, &end, 10);
        if (end == shape || *end != ')') return -1;
    }
    return array->bytes && array->bytes <= 16 && array->n < UINT64_C(1) << 40 && array->dim < 1 << 20 ? 0 : -1;
}

/* How many bytes of the header's text a message may show: not what follows a byte that is no letter, digit or sign. */
static int npy_shown(const char *text) {
    int n = 0;
    while (n < 200 && text[n] >= ' ' && text[n] <= '~') n++;
    return n;
}

int npy_open(npy_array *array, const char *path, program_error *error) {
    char text[NPY_TEXT];
    struct stat is;
    *array = (npy_array){.stream = NULL};
    array->stream = fopen(path, "rbe");
    if (!array->stream)
        return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    size_t before = npy_text(array->stream, text);
    if (!before) return program_fail(error, "%.300s is no .npy file; write it by numpy.save", path);
    if (strstr(text, "'fortran_order': True"))
        return program_fail(error, "%.300s is in the order of Fortran; write numpy.ascontiguousarray of it", path);
    if (npy_take(array, text) || fstat(fileno(array->stream), &is))
        return program_fail(error, "%.300s is no .npy file of one or two dimensions of numbers: %.*s", path,
                            npy_shown(text), text);
    uint64_t bytes = before + array->n * array->dim * array->bytes;
    if ((uint64_t)is.st_size == bytes) return 0;
    return program_fail(error, "%.300s has %llu bytes, and its header says %llu: is it cut off?", path,
                        (unsigned long long)is.st_size, (unsigned long long)bytes);
}
