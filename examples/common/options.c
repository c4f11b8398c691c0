/* Values by kind, specs of several values, lists of places, and the pass over the command line. */
#include "examples/common/options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values -------------------------------------------------------------------------------------------- */

int options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  program_error *error) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least || number > most)
        return program_fail(error, "--%s is '%.40s', must be a whole number from %" PRIu64 " to %" PRIu64, name, text,
                            least, most);
    *value = number;
    return 0;
}

static int options_real(const char *name, const char *text, double least, double most, double *value,
                        program_error *error) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= least && number <= most))
        return program_fail(error, "--%s is '%.40s', must be a number from %g to %g", name, text, least, most);
    *value = number;
    return 0;
}

/* Finds text in a list that ends with NULL. */
static int options_choice(const char *name, const char *text, const char *const *choices, int *value,
                          program_error *error) {
    char all[200] = "";
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(text, choices[i])) {
            *value = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", choices[i]);
    }
    return program_fail(error, "--%s is '%.40s', must be one of: %s", name, text, all);
}

/* One value of an entry, told of as `name`: the entry's, or the option's and the key's. */
static int options_value(const options_entry *entry, const char *name, const char *text, void *target,
                         program_error *error) {
    void *place = (char *)target + entry->at;
    uint64_t whole = 0;
    double real = 0;
    int status = 0;
    switch (entry->kind) {
    case OPTIONS_WHOLE32:
    case OPTIONS_WHOLE64:
        status = options_whole(name, text, entry->whole[0], entry->whole[1], &whole, error);
        if (!status && entry->kind == OPTIONS_WHOLE32)
            *(uint32_t *)place = (uint32_t)whole;
        else if (!status)
            *(uint64_t *)place = whole;
        break;
    case OPTIONS_REAL:
    case OPTIONS_FLOAT:
        status = options_real(name, text, entry->real[0], entry->real[1], &real, error);
        if (!status && entry->kind == OPTIONS_FLOAT)
            *(float *)place = (float)real;
        else if (!status)
            *(double *)place = real;
        break;
    case OPTIONS_CHOICE:
        status = options_choice(name, text, entry->choices, place, error);
        break;
    case OPTIONS_READ:
        status = entry->read(place, name, text, error);
        break;
    case OPTIONS_TEXT:
        *(const char **)place = text;
        break;
    case OPTIONS_FLAG:
    case OPTIONS_SPEC:
        *(int *)place = 1;
        break;
    }
    if (!status && entry->given) *(int *)((char *)target + entry->given) = 1;
    return status;
}

/* ---- Specs --------------------------------------------------------------------------------------------- */

static int options_unknown_key(const options_entry *entry, const char *key, program_error *error) {
    char all[200] = "";
    for (int i = 0; i < entry->n_keys; i++) {
        size_t used = strlen(all);
        const char *before = !i ? "" : i + 1 < entry->n_keys ? ", " : " and ";
        snprintf(all + used, sizeof all - used, "%s%s", before, entry->keys[i].name);
    }
    return program_fail(error, "--%s knows %s, not '%.40s'", entry->name, all, key);
}

/* key=value,key=value, any of the entry's keys. */
static int options_spec(const options_entry *entry, const char *spec, void *target, program_error *error) {
    char copy[256], name[128], *rest = copy;
    if (strlen(spec) >= sizeof copy)
        return program_fail(error, "--%s takes at most %zu characters", entry->name, sizeof copy - 1);
    strcpy(copy, spec);
    for (char *part; (part = strsep(&rest, ","));) {
        char *text = strchr(part, '=');
        if (!text) return program_fail(error, "--%s has '%.40s', must be like %s", entry->name, part, entry->example);
        *text++ = 0;
        int which = 0;
        while (which < entry->n_keys && strcmp(part, entry->keys[which].name)) which++;
        if (which == entry->n_keys) return options_unknown_key(entry, part, error);
        snprintf(name, sizeof name, "%s %s", entry->name, part);
        if (options_value(&entry->keys[which], name, text, target, error)) return -1;
    }
    return 0;
}

/* ---- Places -------------------------------------------------------------------------------------------- */

/* Where text[length] says that a device is: 0 cpu, a GPU's number plus 1, -1 neither. */
static int options_place(const char *text, size_t length) {
    if (length == 3 && !memcmp(text, "cpu", 3)) return 0;
    if (length < 6 || memcmp(text, "cuda:", 5) || strspn(text + 5, "0123456789") != length - 5) return -1;
    unsigned long gpu = strtoul(text + 5, NULL, 10);
    return gpu < OPTIONS_MOST_PLACES ? (int)gpu + 1 : -1;
}

int options_places(const char *name, const char *text, const char *cuda_program, uint8_t gpu[OPTIONS_MOST_PLACES],
                   uint32_t *n, program_error *error) {
    uint32_t listed = 0;
    memset(gpu, 0, OPTIONS_MOST_PLACES);
    for (const char *part = text, *next; part; part = next) {
        size_t length = strcspn(part, ",");
        int place = options_place(part, length), shown = length < 40 ? (int)length : 40;
        next = part[length] ? part + length + 1 : NULL;
        if (place < 0)
            return program_fail(error, "--%s has '%.*s', must be a list of cpu and cuda:N (N: a GPU, 0 to %d)", name,
                                shown, part, OPTIONS_MOST_PLACES - 1);
        if (listed == OPTIONS_MOST_PLACES)
            return program_fail(error, "--%s lists too many devices, must be from 1 to %d", name, OPTIONS_MOST_PLACES);
        if (place && cuda_program)
            return program_fail(error, "--%s has '%.*s', but this build has no CUDA; use %s (`ninja cuda`)", name,
                                shown, part, cuda_program);
        gpu[listed++] = (uint8_t)place;
    }
    *n = listed;
    return 0;
}

int options_devices(uint32_t listed, int given, uint32_t *devices, program_error *error) {
    if (!listed) return 0;
    if (given && listed != *devices)
        return program_fail(error, "--devices is %u, but --device lists %u; give one of them", *devices, listed);
    *devices = listed;
    return 0;
}

/* ---- The command line ---------------------------------------------------------------------------------- */

int options_read(const options_table *table, options_pass pass, int argc, char **argv, void *place,
                 program_error *error) {
    struct option longs[OPTIONS_MOST + 1] = {{0}};
    assert(table->n <= OPTIONS_MOST);
    for (int i = 0; i < table->n; i++) {
        options_kind kind = table->entries[i].kind;
        int has = kind == OPTIONS_FLAG ? no_argument : kind == OPTIONS_SPEC ? optional_argument : required_argument;
        longs[i] = (struct option){table->entries[i].name, has, NULL, i};
    }
    optind = 0; /* scan from the start, also the second time */
    opterr = 0;
    for (int which, at = 1; (which = getopt_long(argc, argv, "+:", longs, NULL)) != -1; at = optind) {
        const char *given = argv[at]; /* not optind - 1: of `-ab` the first letter is read, and optind stays */
        if (which == ':')
            return program_fail(error, "option %.60s needs a value; see %s --help", given, table->program);
        if (which == '?')
            return program_fail(error, "unknown or ambiguous option %.60s; see %s --help", given, table->program);
        const options_entry *entry = &table->entries[which];
        const char *text = optarg;
        if (entry->kind == OPTIONS_SPEC && !text && optind < argc && argv[optind][0] != '-') text = argv[optind++];
        if (pass == OPTIONS_FIRST && !entry->first) continue;
        if (entry->kind == OPTIONS_SPEC && text && options_spec(entry, text, place, error)) return -1;
        if (options_value(entry, entry->name, text, place, error)) return -1;
    }
    if (optind < argc) return program_fail(error, "'%.60s' is no option; see %s --help", argv[optind], table->program);
    return 0;
}
