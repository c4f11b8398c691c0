/* Reading numbers, devices x devices of them. */
#include "tools/place/weights.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_LARGEST_WEIGHTS = 4 << 20 }; /* bytes of a file: 256 x 256 numbers of many digits */

int place_weights_parse(double **weights, const char *name, const char *text, uint32_t devices, program_error *error) {
    static const char between[] = " \t\r\n,";
    uint32_t n = 0, wanted = devices * devices;
    *weights = malloc(wanted * sizeof **weights);
    if (!*weights) return program_fail(error, "out of memory for weights");
    int status = 0;
    for (text += strspn(text, between); *text && !status; text += strspn(text, between), n++) {
        char *end;
        double weight = strtod(text, &end);
        if (end == text || (*end && !strchr(between, *end)) || !(weight >= 0) || !isfinite(weight))
            status = program_fail(error, "%.200s: '%.*s' is no weight; must be numbers of 0 or more", name,
                                  (int)(strcspn(text, between) < 40 ? strcspn(text, between) : 40), text);
        else if (n < wanted)
            (*weights)[n] = weight;
        text = end;
    }
    if (!status && n != wanted)
        status = program_fail(error, "%.200s has %u weights; must be %u, for each of %u devices to each", name, n,
                              wanted, devices);
    if (!status) return 0;
    free(*weights);
    *weights = NULL;
    return -1;
}

int place_weights_read(double **weights, const char *text, uint32_t devices, program_error *error) {
    *weights = NULL;
    if (strspn(text, "0123456789.,eE+- ") == strlen(text) && (strchr(text, ',') || devices == 1))
        return place_weights_parse(weights, "--weights", text, devices, error);
    FILE *file = fopen(text, "rbe");
    if (!file)
        return program_fail(error, "cannot read --weights %.200s: %s%s", text, strerror(errno), file_remedy(errno));
    char *bytes = malloc(PLACE_LARGEST_WEIGHTS + 1);
    size_t n = bytes ? fread(bytes, 1, PLACE_LARGEST_WEIGHTS + 1, file) : 0;
    int status = !bytes         ? program_fail(error, "out of memory for weights")
                 : ferror(file) ? program_fail(error, "cannot read --weights %.200s: %s", text, strerror(errno))
                 : n > PLACE_LARGEST_WEIGHTS
                     ? program_fail(error, "--weights %.200s is larger than %d bytes", text, PLACE_LARGEST_WEIGHTS)
                 : memchr(bytes, 0, n)
                     ? program_fail(error, "--weights %.200s holds a zero byte; give a text file", text)
                     : 0;
    fclose(file);
    if (!status) {
        bytes[n] = 0;
        status = place_weights_parse(weights, text, bytes, devices, error);
    }
    free(bytes);
    return status;
}
