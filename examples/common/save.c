/* Writing files beside the old ones, and renaming them when all are whole. */
#include "examples/common/save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int save_open(save_file *file, const char *folder, const char *name, program_error *error) {
    file->stream = NULL;
    if ((size_t)snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >= sizeof file->path)
        return program_fail(error, "the path of folder '%.80s...' is longer than %zu bytes", folder, sizeof file->path);
    snprintf(file->temporary, sizeof file->temporary, "%s.part", file->path);
    file->stream = fopen(file->temporary, "wb");
    return file->stream ? 0 : program_fail(error, "cannot write %s: %s", file->temporary, strerror(errno));
}

int save_close(save_file *file, program_error *error) {
    int failed = fflush(file->stream) || ferror(file->stream) || fsync(fileno(file->stream));
    int number = errno;
    failed = fclose(file->stream) || failed;
    if (!failed) return 0;
    unlink(file->temporary);
    return program_fail(error, "cannot write %s: %s", file->path, strerror(number));
}

int save_prepare(const char *folder, const char *name, program_error *error) {
    if (mkdir(folder, 0777) && errno != EEXIST)
        return program_fail(error, "cannot make folder %s: %s", folder, strerror(errno));
    save_file probe;
    if (save_open(&probe, folder, name, error)) return -1;
    fclose(probe.stream);
    unlink(probe.temporary);
    return 0;
}

void save_begin_rows(const save_file *file, uint64_t n, uint64_t dim) {
    char header[128], text[118];
    int endian = 1;
    char order = *(char *)&endian ? '<' : '>';
    int length =
        snprintf(text, sizeof text, "{'descr': '%cf4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu64 "), }",
                 order, n, dim);
    memset(header, ' ', sizeof header); /* magic, version 1.0, little-endian length of the rest, which fills 128 */
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(header + 10, text, (size_t)length);
    header[127] = '\n';
    fwrite(header, 1, sizeof header, file->stream);
}

int save_rows(const char *folder, const char *name, uint64_t n, uint64_t dim, const float *rows, program_error *error) {
    save_file file;
    if (save_open(&file, folder, name, error)) return -1;
    save_begin_rows(&file, n, dim);
    fwrite(rows, sizeof(float), n * dim, file.stream);
    return save_close(&file, error);
}

int save_publish(const char *folder, const char *const *names, int n, program_error *error) {
    for (int i = 0; i < n; i++) {
        char path[4096], temporary[4112];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        snprintf(temporary, sizeof temporary, "%s.part", path);
        if (rename(temporary, path)) return program_fail(error, "cannot write %s: %s", path, strerror(errno));
    }
    return 0;
}

void save_discard(const char *folder, const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        char temporary[4112];
        snprintf(temporary, sizeof temporary, "%s/%s.part", folder, names[i]);
        unlink(temporary);
    }
}

int save_finish(const char *folder, const char *const *names, int n, int failed, program_error *error) {
    if (failed || save_publish(folder, names, n, error)) {
        save_discard(folder, names, n);
        return -1;
    }
    fprintf(stderr, "saved to %s:", folder);
    for (int i = 0; i < n; i++) fprintf(stderr, "%s %s", i ? "," : "", names[i]);
    fputc('\n', stderr);
    return 0;
}
