/* Writing embeddings and id maps so that a reader never sees half a file. */
#include "kge_save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct kge_output {
    char path[4096], temporary[4112];
    FILE *stream;
} kge_output;

static int kge_output_open(kge_output *output, const char *folder, const char *file, program_error *error) {
    output->stream = NULL;
    if ((size_t)snprintf(output->path, sizeof output->path, "%s/%s", folder, file) >= sizeof output->path)
        return program_fail(error, "the path of folder '%.80s...' is longer than %zu bytes", folder,
                            sizeof output->path);
    snprintf(output->temporary, sizeof output->temporary, "%s.part", output->path);
    output->stream = fopen(output->temporary, "wb");
    return output->stream ? 0 : program_fail(error, "cannot write %s: %s", output->temporary, strerror(errno));
}

/* On disk, under its temporary name; kge_save_publish gives all files their own when all are there. */
static int kge_output_close(kge_output *output, program_error *error) {
    int failed = fflush(output->stream) || ferror(output->stream) || fsync(fileno(output->stream));
    int number = errno;
    failed = fclose(output->stream) || failed;
    if (!failed) return 0;
    unlink(output->temporary);
    return program_fail(error, "cannot write %s: %s", output->path, strerror(number));
}

int kge_save_prepare(const char *folder, program_error *error) {
    if (mkdir(folder, 0777) && errno != EEXIST)
        return program_fail(error, "cannot make folder %s: %s", folder, strerror(errno));
    kge_output probe;
    if (kge_output_open(&probe, folder, "entities.npy", error)) return -1;
    fclose(probe.stream);
    unlink(probe.temporary);
    return 0;
}

int kge_save_rows(const char *folder, const char *file, uint64_t n, uint32_t dim, const float *rows,
                  program_error *error) {
    kge_output output;
    char header[128], text[118];
    if (kge_output_open(&output, folder, file, error)) return -1;
    int endian = 1;
    char order = *(char *)&endian ? '<' : '>';
    int length =
        snprintf(text, sizeof text, "{'descr': '%cf4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu32 "), }",
                 order, n, dim);
    memset(header, ' ', sizeof header); /* magic, version 1.0, little-endian length of the rest, which fills 128 */
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(header + 10, text, (size_t)length);
    header[127] = '\n';
    fwrite(header, 1, sizeof header, output.stream);
    fwrite(rows, sizeof(float), n * dim, output.stream);
    return kge_output_close(&output, error);
}

static const char kge_inverse[] = " (inverse)";

/* How often the suffix must stand behind the inverse relations' names so that none of them is a name already: once
 * more than behind any name. */
static uint32_t kge_inverse_suffixes(const kge_names *names) {
    size_t length = strlen(kge_inverse);
    uint32_t most = 0;
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = kge_name(names, i), *end = name + strlen(name);
        uint32_t n = 0;
        for (; (size_t)(end - name) >= length && !memcmp(end - length, kge_inverse, length); n++) end -= length;
        if (n > most) most = n;
    }
    return most + 1;
}

int kge_save_names(const char *folder, const char *file, const kge_names *names, int twice, program_error *error) {
    kge_output output;
    if (kge_output_open(&output, folder, file, error)) return -1;
    fprintf(output.stream, "%" PRIu64 "\n", (uint64_t)names->n * (twice ? 2 : 1));
    for (uint32_t i = 0; i < names->n; i++) fprintf(output.stream, "%s\t%" PRIu32 "\n", kge_name(names, i), i);
    uint32_t suffixes = twice ? kge_inverse_suffixes(names) : 0;
    for (uint32_t i = 0; twice && i < names->n; i++) {
        fputs(kge_name(names, i), output.stream);
        for (uint32_t k = 0; k < suffixes; k++) fputs(kge_inverse, output.stream);
        fprintf(output.stream, "\t%" PRIu64 "\n", (uint64_t)names->n + i);
    }
    return kge_output_close(&output, error);
}

int kge_save_publish(const char *folder, const char *const *files, int n, program_error *error) {
    for (int i = 0; i < n; i++) {
        char path[4096], temporary[4112];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        snprintf(temporary, sizeof temporary, "%s.part", path);
        if (rename(temporary, path)) return program_fail(error, "cannot write %s: %s", path, strerror(errno));
    }
    return 0;
}

void kge_save_discard(const char *folder, const char *const *files, int n) {
    for (int i = 0; i < n; i++) {
        char temporary[4112];
        snprintf(temporary, sizeof temporary, "%s/%s.part", folder, files[i]);
        unlink(temporary);
    }
}
