/* Writing id maps. */
#include "trainers/kge/save.h"

#include <inttypes.h>
#include <string.h>

const char *const kge_saved_files[KGE_SAVED_FILES] = {"entities.npy", "relations.npy", "entity2id.txt",
                                                      "relation2id.txt"};

static const char kge_inverse[] = " (inverse)";

/* How many times the suffix is appended to the names of inverse relations so that none of them exists already: once
 * more than at the end of any of the first `of` names. */
static uint32_t kge_inverse_suffixes(const kge_names *names, uint32_t of) {
    size_t length = strlen(kge_inverse);
    uint32_t most = 0;
    for (uint32_t i = 0; i < of; i++) {
        const char *name = kge_name(names, i), *end = name + strlen(name);
        uint32_t n = 0;
        for (; (size_t)(end - name) >= length && !memcmp(end - length, kge_inverse, length); n++) end -= length;
        if (n > most) most = n;
    }
    return most + 1;
}

int kge_save_names(save_set *set, const char *file, const kge_names *names, int twice, program_error *error) {
    FILE *output = save_open(set, file, error);
    if (!output) return -1;
    fprintf(output, "%" PRIu64 "\n", (uint64_t)names->n * (twice ? 2 : 1));
    for (uint32_t i = 0; i < names->n; i++) fprintf(output, "%s\t%" PRIu32 "\n", kge_name(names, i), i);
    uint32_t suffixes = twice ? kge_inverse_suffixes(names, names->n) : 0;
    for (uint32_t i = 0; twice && i < names->n; i++) {
        fputs(kge_name(names, i), output);
        for (uint32_t k = 0; k < suffixes; k++) fputs(kge_inverse, output);
        fprintf(output, "\t%" PRIu64 "\n", (uint64_t)names->n + i);
    }
    return save_close(set, file, error);
}

int kge_names_have_inverses(const kge_names *names) {
    size_t length = strlen(kge_inverse);
    uint32_t half = names->n / 2, suffixes = kge_inverse_suffixes(names, half);
    if (names->n % 2) return 0;
    for (uint32_t i = 0; i < half; i++) {
        const char *name = kge_name(names, i), *inverse = kge_name(names, half + i);
        size_t n = strlen(name);
        if (strncmp(name, inverse, n) || strlen(inverse) != n + suffixes * length) return 0;
        for (uint32_t k = 0; k < suffixes; k++)
            if (memcmp(inverse + n + k * length, kge_inverse, length)) return 0;
    }
    return half > 0;
}
