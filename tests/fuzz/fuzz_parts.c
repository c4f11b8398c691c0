/* fuzz_parts.c - files that say where samples go: a partition is taken exactly if it has a byte a sample, each of a
 * device, and then it is the file's, with the counts of its samples; what is refused leaves nothing, and a line that
 * says why. The same bytes as weights of pairs of devices are taken only if they are the right number of numbers.
 *
 * The first byte is the devices, the second the samples; the others are the file. */
#include <math.h>

#include "trainers/common/partition.h"
#include "fuzz.h"
#include "tools/place/weights.h"

const unsigned fuzz_inputs = 3000;

enum { ROWS = 40, WIDTH = 3 };

typedef struct trace {
    uint64_t keys[256 * WIDTH], n, at;
} trace;

static int trace_rewind(void *of, program_error *error) {
    (void)error;
    ((trace *)of)->at = 0;
    return 0;
}

/* Blocks of 7. */
static int trace_read(void *of, frugal_place_samples *block, program_error *error) {
    trace *t = of;
    (void)error;
    *block = (frugal_place_samples){.keys = t->keys + t->at * WIDTH, .width = WIDTH};
    block->n = t->n - t->at < 7 ? t->n - t->at : 7;
    t->at += block->n;
    return 0;
}

static void check_parts(const uint8_t *bytes, uint64_t size, uint32_t devices, uint64_t samples) {
    char path[128];
    trace t = {.n = samples};
    partition_source source = {&t, trace_rewind, trace_read};
    partition_desc desc = {.rows = ROWS, .devices = devices};
    program_error error = {.text = ""};
    partition p;
    int good = size == samples;
    for (uint64_t i = 0; i < size; i++) good &= bytes[i] < devices;
    for (uint64_t i = 0; i < samples * WIDTH; i++) t.keys[i] = test_mix(i) % ROWS;
    snprintf(path, sizeof path, "%s/parts", fuzz_folder());
    fuzz_write("parts", bytes, size);
    assert_int_equal(partition_load(&p, &desc, &source, path, &error), good ? 0 : -1);
    if (!good) {
        assert_true(!p.parts && !p.place && *error.text && !strchr(error.text, '\n'));
        return;
    }
    uint64_t in[256] = {0};
    assert_true(p.samples == samples && (!samples || !memcmp(p.parts, bytes, samples)));
    for (uint64_t i = 0; i < samples; i++) in[bytes[i]]++;
    for (uint32_t d = 0; d < devices; d++) assert_int_equal(frugal_place_size(p.place, d), in[d]);
    assert_int_equal(frugal_place_get_report(p.place, 1).touches, samples * WIDTH);
    partition_free(&p);
}

static void check_weights(const uint8_t *bytes, uint64_t size, uint32_t devices) {
    char *text = malloc(size + 1);
    program_error error = {.text = ""};
    double *weights;
    memcpy(text, bytes, size);
    text[size] = 0;
    if (place_weights_parse(&weights, "weights", text, devices, &error))
        assert_true(!weights && *error.text);
    else
        for (uint32_t i = 0; i < devices * devices; i++) assert_true(weights[i] >= 0 && isfinite(weights[i]));
    free(weights);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    check_parts(data + 2, size - 2, 1 + data[0], data[1]);
    check_weights(data + 2, size - 2, 1 + data[0] % 4);
    return 0;
}
