/* Gradients of dense layers from all machines to all. */
#include "trainers/dlrm/words.h"
#include "trainers/common/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { DLRM_WORD = 64 }; /* bytes before those of the devices */
_Static_assert(sizeof(training_word) <= DLRM_WORD, "gradients begin at a cache line");

static unsigned char *dlrm_words_memory(size_t bytes) {
    unsigned char *memory = aligned_alloc(64, bytes); /* a multiple of 64 */
    if (memory) memset(memory, 0, bytes);
    return memory;
}

int dlrm_words_open(dlrm_words *words, uint64_t parameters, uint32_t devices, program_error *error) {
    *words = (dlrm_words){.devices = devices, .parameters = parameters};
    if (ranks_all() == 1) return 0;
    words->device = (parameters * sizeof(float) + sizeof(double) + 63) / 64 * 64;
    words->bytes = DLRM_WORD + ranks_devices(devices) * words->device;
    words->mine = dlrm_words_memory(words->bytes);
    words->all = dlrm_words_memory(ranks_all() * words->bytes);
    if (words->mine && words->all) return 0;
    return program_fail(error, "out of memory for the dense layers' gradients of %u devices (%llu parameters)", devices,
                        (unsigned long long)parameters);
}

void dlrm_words_close(dlrm_words *words) {
    free(words->mine);
    free(words->all);
    words->mine = words->all = NULL;
}

/* Of a device, in what its rank says. */
static unsigned char *dlrm_words_at(const dlrm_words *words, unsigned char *said, uint32_t device) {
    return said + DLRM_WORD + device % ranks_devices(words->devices) * words->device;
}

float *dlrm_words_gradient(const dlrm_words *words, uint32_t device) {
    return (float *)(void *)dlrm_words_at(words, words->mine, device);
}

frugal_status dlrm_words_exchange(dlrm_words *words, frugal *f, training_word *word, const double *losses) {
    size_t bytes = losses ? words->bytes : DLRM_WORD, loss = words->parameters * sizeof(float);
    memcpy(words->mine, word, sizeof *word);
    for (uint32_t i = 0; losses && i < ranks_devices(words->devices); i++)
        memcpy(dlrm_words_at(words, words->mine, i) + loss, &losses[i], sizeof *losses);
    frugal_status status = frugal_exchange(f, words->mine, bytes, words->all);
    if (!status) *word = training_hear(words->all, bytes, &words->others);
    return status;
}

const float *dlrm_words_heard(const dlrm_words *words, uint32_t device, double *loss) {
    unsigned char *said = words->all + device / ranks_devices(words->devices) * words->bytes;
    const unsigned char *at = dlrm_words_at(words, said, device);
    memcpy(loss, at + words->parameters * sizeof(float), sizeof *loss);
    return (const float *)(const void *)at;
}
