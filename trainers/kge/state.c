/* Writing and reading states. */
#include "trainers/kge/state.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char kge_state_magic[24] = "frugal kge state, 1\n";
#define KGE_STATE_NUMBERS offsetof(kge_state, counted) /* bytes; all of them are of eight, and none is padding */
_Static_assert(KGE_STATE_NUMBERS == (size_t)7 * 8, "the file has all numbers of a kge_state");
_Static_assert(sizeof(kge_counted) == 16, "the file has no padding");

static void kge_state_fill(FILE *stream, const void *content) {
    const kge_state *state = content;
    fwrite(kge_state_magic, 1, sizeof kge_state_magic, stream);
    fwrite(state, 1, KGE_STATE_NUMBERS, stream);
    fwrite(state->counted, sizeof *state->counted, state->devices, stream);
}

int kge_state_write(const kge_state *state, const char *path, program_error *error) {
    return file_put(path, kge_state_fill, state, error);
}

/* Reads all of it, if the file has the size that follows from its numbers. */
static int kge_state_read_all(kge_state *state, FILE *stream) {
    char magic[sizeof kge_state_magic];
    struct stat is;
    if (fread(magic, 1, sizeof magic, stream) != sizeof magic || memcmp(magic, kge_state_magic, sizeof magic) ||
        fread(state, 1, KGE_STATE_NUMBERS, stream) != KGE_STATE_NUMBERS || fstat(fileno(stream), &is))
        return -1;
    if (state->devices > UINT32_MAX ||
        (uint64_t)is.st_size != sizeof magic + KGE_STATE_NUMBERS + state->devices * sizeof(kge_counted))
        return -1;
    kge_counted *counted = calloc(state->devices + 1, sizeof *counted);
    state->counted = counted;
    return counted && fread(counted, sizeof *counted, state->devices, stream) == state->devices ? 0 : -1;
}

int kge_state_read(kge_state *state, const char *path, program_error *error) {
    *state = (kge_state){.step = 0};
    FILE *stream = fopen(path, "rbe");
    if (!stream) return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = kge_state_read_all(state, stream);
    fclose(stream);
    return status ? program_fail(error, "%.300s is no state of a kge training, or damaged", path) : 0;
}

void kge_state_free(kge_state *state) {
    free((void *)(uintptr_t)state->counted);
    state->counted = NULL;
}
