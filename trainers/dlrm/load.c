/* Reading a set: options.txt is read as a command line is, so a model has the options that it was trained with. */
#include "trainers/dlrm/load.h"
#include "trainers/clicks/file.h"
#include "trainers/clicks/keep.h"
#include "trainers/dlrm/options.h"
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "trainers/common/save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DLRM_HEADER = 128, DLRM_MOST_OPTIONS = 64, DLRM_LARGEST_OPTIONS = 4096 };

typedef struct dlrm_array { /* of a .npy file */
    void *map;              /* NULL: not mapped */
    size_t bytes;
} dlrm_array;

struct dlrm_loaded {
    manifest set;
    const char *folder;
    int lock;
    char text[DLRM_LARGEST_OPTIONS], schema[MANIFEST_LONGEST_PATH];
    dlrm_options options;
    clicks *log;
    dlrm_array rows[2], parameters;
    uint64_t *first; /* first[features]: rows before those of the feature */
};

/* ---- Files ----------------------------------------------------------------------------------------------- */

/* Where the set's file of this name is. */
static int dlrm_find_file(const dlrm_loaded *loaded, const char *name, char *path, program_error *error) {
    for (uint32_t i = 0; i < loaded->set.n; i++)
        if (!strcmp(loaded->set.files[i].name, name))
            return manifest_find(&loaded->set, loaded->folder, i, path, error);
    return program_fail(error, "%.300s has no %s, which is needed to predict; train and save the model again",
                        loaded->folder, name);
}

static const void *dlrm_array_data(const dlrm_array *array) {
    return (const char *)array->map + DLRM_HEADER;
}

/* Maps a .npy file. */
static int dlrm_map(const dlrm_loaded *loaded, const char *name, dlrm_array *array, program_error *error) {
    char path[MANIFEST_LONGEST_PATH];
    struct stat is;
    if (dlrm_find_file(loaded, name, path, error)) return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &is)) {
        program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
        if (file >= 0) close(file);
        return -1;
    }
    array->bytes = (size_t)is.st_size;
    void *map = array->bytes >= DLRM_HEADER ? mmap(NULL, array->bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (map == MAP_FAILED) return program_fail(error, "cannot map the %zu bytes of %.300s", array->bytes, path);
    array->map = map;
    return 0;
}

/* Is it an array of this type and shape? */
static int dlrm_check_array(const dlrm_array *array, const char *name, const char *type, uint64_t n, uint64_t dim,
                            program_error *error) {
    char header[DLRM_HEADER + 1];
    uint64_t floats = dim == SAVE_VECTOR ? n : n * dim, size = type[1] == '8' ? 8 : 4;
    FILE *stream = fmemopen(header, sizeof header, "w");
    if (!stream) return program_fail(error, "out of memory");
    save_begin_array(stream, type, n, dim);
    fclose(stream);
    if (array->bytes == DLRM_HEADER + floats * size && !memcmp(array->map, header, DLRM_HEADER)) return 0;
    return program_fail(error, "%s does not have the %" PRIu64 " numbers of the model that options.txt describes", name,
                        floats);
}

/* ---- Options and log ------------------------------------------------------------------------------------- */

/* The lines of options.txt, and what reads the log, as a command line. */
static int dlrm_read_options(dlrm_loaded *loaded, const char *log, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], *argv[DLRM_MOST_OPTIONS + 6] = {"dlrm", "--data", (char *)(uintptr_t)log};
    int argc = 3;
    if (dlrm_find_file(loaded, "options.txt", path, error)) return -1;
    if (dlrm_find_file(loaded, "schema.txt", loaded->schema, error)) return -1;
    FILE *stream = fopen(path, "rbe");
    if (!stream) return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    size_t n = fread(loaded->text, 1, sizeof loaded->text - 1, stream);
    fclose(stream);
    loaded->text[n] = 0;
    char *rest = loaded->text;
    for (char *word; argc < DLRM_MOST_OPTIONS && (word = strsep(&rest, " \n"));)
        if (*word) argv[argc++] = word;
    int has_format = 0;
    for (int i = 3; i < argc; i++) has_format |= !strcmp(argv[i], "--format");
    if (!has_format) argv[argc++] = "--schema", argv[argc++] = loaded->schema;
    return dlrm_options_parse(&loaded->options, argc, argv, error);
}

/* The vocabularies as they were saved. */
static int dlrm_load_vocabularies(dlrm_loaded *loaded, program_error *error) {
    dlrm_array array = {0};
    if (loaded->options.data.clicks.ids != CLICKS_VOCABULARY) return 0;
    if (dlrm_map(loaded, "vocabulary.npy", &array, error)) return -1;
    uint64_t n = (array.bytes - DLRM_HEADER) / sizeof(uint64_t);
    int status = dlrm_check_array(&array, "vocabulary.npy", "u8", n, SAVE_VECTOR, error);
    if (!status) status = clicks_take_vocabularies(loaded->log, dlrm_array_data(&array), n, error);
    munmap(array.map, array.bytes);
    return status;
}

/* Can the first sample be read? Then the log is open. */
static int dlrm_try_log(dlrm_loaded *loaded, clicks_labels labels, program_error *error) {
    clicks_settings settings = loaded->options.data.clicks;
    clicks_reader *reader = NULL;
    clicks_batch sample = {0};
    settings.labels = labels, settings.malformed = 0; /* a line without a prediction would shift all that follow */
    if (clicks_open(&loaded->log, &settings, error)) return -1;
    int status = clicks_measure(loaded->log, NULL, error) || dlrm_load_vocabularies(loaded, error) ||
                 clicks_batch_open(&sample, loaded->log, 1, error) ||
                 clicks_reader_open(&reader, loaded->log, NULL, 0, 1, error) ||
                 clicks_reader_read(reader, 1, &sample, error);
    clicks_reader_close(reader);
    clicks_batch_close(&sample);
    if (!status) return 0;
    clicks_close(loaded->log);
    loaded->log = NULL;
    return -1;
}

static int dlrm_open_log(dlrm_loaded *loaded, program_error *error) {
    const char *path = loaded->options.data.path;
    program_error with;
    if (clicks_file_is_pipe(path))
        return program_fail(error, "--predict %.200s is no file, which is read twice; write it to one", path);
    if (!dlrm_try_log(loaded, CLICKS_LABELS_IGNORED, &with) || !dlrm_try_log(loaded, CLICKS_LABELS_ABSENT, error))
        return 0;
    if (loaded->options.data.clicks.format != CLICKS_SCHEMA || !strcmp(with.text, error->text)) {
        *error = with;
        return -1;
    }
    char without[sizeof error->text];
    memcpy(without, error->text, sizeof without);
    return program_fail(error, "read with a label: %.220s; without: %.220s", with.text, without);
}

/* ---- All of it -------------------------------------------------------------------------------------------- */

static int dlrm_load_arrays(dlrm_loaded *loaded, program_error *error) {
    static const char *const names[] = {"rows.npy", "linear.npy"};
    dlrm_model *model = &loaded->options.train.model;
    dlrm_layers layers;
    uint64_t rows = 0;
    model->numbers = clicks_numbers(loaded->log);
    model->features = clicks_features(loaded->log);
    if (dlrm_layout(model, &layers, error)) return -1;
    loaded->first = malloc(model->features * sizeof *loaded->first);
    if (!loaded->first) return program_fail(error, "out of memory");
    for (uint32_t k = 0; k < model->features; rows += clicks_rows(loaded->log, k++)) loaded->first[k] = rows;
    if (dlrm_map(loaded, "dense.npy", &loaded->parameters, error)) return -1;
    if (dlrm_check_array(&loaded->parameters, "dense.npy", "f4", 1, layers.parameters, error)) return -1;
    for (uint32_t i = 0; i < (dlrm_has_linear(model) ? 2 : 1); i++) {
        if (dlrm_map(loaded, names[i], &loaded->rows[i], error)) return -1;
        if (dlrm_check_array(&loaded->rows[i], names[i], "f4", rows, i ? 1 : model->dim, error)) return -1;
    }
    return 0;
}

static int dlrm_load_all(dlrm_loaded *loaded, const char *path, program_error *error) {
    if (file_lock_shared(&loaded->lock, loaded->folder, "dlrm", error)) return -1;
    int found = manifest_read(&loaded->set, loaded->folder, error);
    if (found < 0) return -1;
    if (!found)
        return program_fail(error, "--load %.300s has no " MANIFEST_NAME ": no model is saved there", loaded->folder);
    if (strcmp(loaded->set.program, "dlrm"))
        return program_fail(error, "--load %.300s is a set of %.60s; give one that dlrm --save has made",
                            loaded->folder, loaded->set.program);
    if (dlrm_read_options(loaded, path, error) || dlrm_open_log(loaded, error)) return -1;
    return dlrm_load_arrays(loaded, error);
}

int dlrm_load(dlrm_loaded **out, const char *folder, const char *path, program_error *error) {
    dlrm_loaded *loaded = calloc(1, sizeof *loaded);
    *out = NULL;
    if (!loaded) return program_fail(error, "out of memory");
    loaded->folder = folder, loaded->lock = -1;
    if (dlrm_load_all(loaded, path, error)) {
        dlrm_loaded_close(loaded);
        return -1;
    }
    *out = loaded;
    return 0;
}

void dlrm_loaded_close(dlrm_loaded *loaded) {
    if (!loaded) return;
    dlrm_array *arrays[] = {&loaded->rows[0], &loaded->rows[1], &loaded->parameters};
    for (int i = 0; i < 3; i++)
        if (arrays[i]->map) munmap(arrays[i]->map, arrays[i]->bytes);
    clicks_close(loaded->log);
    manifest_free(&loaded->set);
    file_unlock(loaded->lock, loaded->folder);
    free(loaded->first);
    free(loaded);
}

static int dlrm_read_loaded(void *tables, uint32_t instance, const frugal_keys *keys, float *rows,
                            program_error *error) {
    const dlrm_loaded *loaded = tables;
    size_t dim = instance == 0 ? loaded->options.train.model.dim : 1;
    const float *from = (const float *)dlrm_array_data(&loaded->rows[instance]) + loaded->first[keys->table] * dim;
    (void)error; /* a reader's rows are below the table's */
    for (uint32_t i = 0; i < keys->n; i++) memcpy(rows + i * dim, from + keys->keys[i] * dim, dim * sizeof *rows);
    return 0;
}

dlrm_score_desc dlrm_loaded_scores(dlrm_loaded *loaded) {
    return (dlrm_score_desc){
        .model = &loaded->options.train.model,
        .parameters = dlrm_array_data(&loaded->parameters),
        .read_rows = dlrm_read_loaded,
        .tables = loaded,
        .samples = {.log = loaded->log, .end = UINT64_MAX},
    };
}
