/* Writing and reading states. */
#include "trainers/dlrm/state.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char dlrm_state_magic[24] = "frugal dlrm state, 1\n";
#define DLRM_STATE_NUMBERS offsetof(dlrm_state, values) /* bytes; all of them are of eight, and none is padding */
_Static_assert(DLRM_STATE_NUMBERS == (size_t)18 * 8, "the file has all numbers of a dlrm_state");

static void dlrm_state_fill(FILE *stream, const void *content) {
    const dlrm_state *state = content;
    fwrite(dlrm_state_magic, 1, sizeof dlrm_state_magic, stream);
    fwrite(state, 1, DLRM_STATE_NUMBERS, stream);
    fwrite(state->values, sizeof(float), state->parameters, stream);
    fwrite(state->optimizer, sizeof(float), state->state, stream);
}

int dlrm_state_write(const dlrm_state *state, const char *path, program_error *error) {
    return file_put(path, dlrm_state_fill, state, error);
}

/* The next floats[n] of the file; NULL: it ends before, or there is no memory. */
static float *dlrm_state_floats(FILE *stream, uint64_t n) {
    float *floats = malloc(n * sizeof *floats + 1);
    if (floats && fread(floats, sizeof *floats, n, stream) == n) return floats;
    free(floats);
    return NULL;
}

/* The numbers, if the file has the size that follows from them. */
static int dlrm_state_numbers(dlrm_state *state, FILE *stream) {
    char magic[sizeof dlrm_state_magic];
    struct stat is;
    uint64_t most = UINT64_MAX / 16;
    if (fread(magic, 1, sizeof magic, stream) != sizeof magic || memcmp(magic, dlrm_state_magic, sizeof magic) ||
        fread(state, 1, DLRM_STATE_NUMBERS, stream) != DLRM_STATE_NUMBERS || fstat(fileno(stream), &is))
        return -1;
    if (state->parameters > most || state->state > most) return -1;
    uint64_t floats = (state->parameters + state->state) * sizeof(float);
    return (uint64_t)is.st_size == sizeof magic + DLRM_STATE_NUMBERS + floats ? 0 : -1;
}

int dlrm_state_read(dlrm_state *state, const char *path, program_error *error) {
    *state = (dlrm_state){.step = 0};
    FILE *stream = fopen(path, "rbe");
    if (!stream) return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = dlrm_state_numbers(state, stream);
    if (!status) {
        state->values = dlrm_state_floats(stream, state->parameters);
        state->optimizer = state->values ? dlrm_state_floats(stream, state->state) : NULL;
    }
    fclose(stream);
    if (!status && state->optimizer) return 0;
    return program_fail(error, "%.300s is no state of a dlrm training, or damaged, or too large for memory", path);
}

void dlrm_state_free(dlrm_state *state) {
    free((void *)(uintptr_t)state->values);
    free((void *)(uintptr_t)state->optimizer);
    state->values = state->optimizer = NULL;
}
