/* Saving: tables in pieces, so that they need not fit into memory twice. */
#include "trainers/dlrm/save.h"
#include "trainers/clicks/keep.h"
#include "trainers/common/training.h"
#include "trainers/dlrm/describe.h"

#include <inttypes.h>
#include <stdlib.h>

#define DLRM_PIECE 4096 /* rows */

const char *const *dlrm_save_names(const dlrm_options *options, int *n) {
    static const char *names[7] = {"model.json", "dense.npy", "options.txt", "schema.txt", "rows.npy"};
    *n = 5;
    if (dlrm_has_linear(&options->train.model)) names[(*n)++] = "linear.npy";
    if (options->data.clicks.ids == CLICKS_VOCABULARY) names[(*n)++] = "vocabulary.npy";
    return names;
}

/* Appends the rows of one table to the file; NULL: only gives another machine its rows. */
static int dlrm_save_table(FILE *file, const dlrm_settings *settings, frugal *tables, const training_span *all,
                           program_error *error) {
    uint64_t rows = all->n;
    uint32_t dim = frugal_settings(tables)->dim;
    float *piece = malloc((uint64_t)DLRM_PIECE * dim * sizeof *piece);
    int status = piece ? 0 : program_fail(error, "out of memory for saving");
    for (uint64_t from = 0; !status && from < rows; from += DLRM_PIECE) {
        training_span span = {all->table, from, rows - from < DLRM_PIECE ? rows - from : DLRM_PIECE};
        status = training_read_rows(tables, &span, piece, error);
        if (!file) continue;
        if (!status && !training_is_finite(piece, span.n * dim))
            status = dlrm_fail_diverged(settings, "a row has", error);
        if (!status) fwrite(piece, sizeof *piece, (size_t)span.n * dim, file);
    }
    free(piece);
    return status;
}

/* set NULL: another machine has it. */
static int dlrm_save_tables(save_set *set, dlrm_trainer *trainer, const clicks *log, uint32_t instance,
                            program_error *error) {
    const char *name = instance == 0 ? "rows.npy" : "linear.npy";
    frugal *tables = dlrm_trainer_tables(trainer, instance);
    const frugal_desc *desc = frugal_settings(tables);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < desc->n_tables; i++) rows += clicks_rows(log, i);
    FILE *file = set ? save_open(set, name, error) : NULL;
    if (set && !file) return -1;
    if (set) save_begin_rows(file, rows, desc->dim);
    int status = 0;
    for (uint32_t i = 0; i < desc->n_tables && !status; i++) {
        training_span all = {.table = i, .n = clicks_rows(log, i)};
        status = dlrm_save_table(file, dlrm_trainer_settings(trainer), tables, &all, error);
    }
    program_error closing;
    if (!set) return status;
    if (save_close(set, name, status ? &closing : error)) return -1;
    return status;
}

static int dlrm_save_all_tables(save_set *set, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    for (uint32_t i = 0; i < 2; i++)
        if (dlrm_trainer_tables(trainer, i) && dlrm_save_tables(set, trainer, log, i, error)) return -1;
    return 0;
}

static void dlrm_write_layers(FILE *stream, const char *name, const dlrm_layer *layers, uint32_t n) {
    fprintf(stream, "  \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stream, "%s\n    {\"in\": %u, \"out\": %u, \"weight\": %" PRIu64 ", \"bias\": %" PRIu64 "}",
                i ? "," : "", layers[i].in, layers[i].out, layers[i].weight, layers[i].bias);
    fprintf(stream, "%s],\n", n ? "\n  " : "");
}

/* Names are the schema's, whose texts may hold quotes. */
static void dlrm_write_name(FILE *stream, const char *name) {
    putc('"', stream);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') putc('\\', stream);
        if ((unsigned char)*name >= ' ') putc(*name, stream);
    }
    putc('"', stream);
}

static int dlrm_save_description(save_set *set, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    const dlrm_model *model = dlrm_trainer_model(trainer);
    dlrm_layers layers;
    if (dlrm_layout(model, &layers, error)) return -1;
    FILE *file = save_open(set, "model.json", error);
    if (!file) return -1;
    fprintf(file, "{\n  \"model\": \"%s\",\n  \"numbers\": %u,\n  \"dim\": %u,\n  \"parameters\": %" PRIu64 ",\n",
            dlrm_model_name(model->kind), model->numbers, model->dim, layers.parameters);
    dlrm_write_layers(file, "bottom", layers.bottom, layers.n_bottom);
    dlrm_write_layers(file, "top", layers.top, layers.n_top);
    if (dlrm_has_linear(model)) fprintf(file, "  \"linear\": %" PRIu64 ",\n", layers.linear);
    if (model->kind == DLRM_DCN)
        fprintf(file, "  \"cross\": %" PRIu64 ",\n  \"cross_layers\": %u,\n", layers.cross, model->n_cross);
    fprintf(file, "  \"features\": [");
    uint64_t first = 0;
    for (uint32_t i = 0; i < model->features; i++) {
        fprintf(file, "%s\n    {\"name\": ", i ? "," : "");
        dlrm_write_name(file, clicks_feature_name(log, i));
        fprintf(file, ", \"first_row\": %" PRIu64 ", \"rows\": %" PRIu64 "}", first, clicks_rows(log, i));
        first += clicks_rows(log, i);
    }
    fprintf(file, "\n  ]\n}\n");
    return save_close(set, "model.json", error);
}

static void dlrm_write_options(FILE *stream, const dlrm_options *options, const clicks *log) {
    static const char *const ids[] = {"hash", "vocabulary", "given"};
    const clicks_settings *data = &options->data.clicks;
    dlrm_describe_model(&options->train.model, stream);
    fprintf(stream, "--ids %s\n--rows %" PRIu64 "\n", ids[data->ids], data->rows);
    if (data->format == CLICKS_LIBSVM) fputs("--format libsvm\n", stream);
    if (data->format == CLICKS_LIBFFM) fprintf(stream, "--format libffm\n--fields %u\n", clicks_features(log));
}

/* What reads a log. */
static int dlrm_save_log(save_set *set, const clicks *log, const dlrm_options *options, program_error *error) {
    FILE *file = save_open(set, "options.txt", error);
    if (!file) return -1;
    dlrm_write_options(file, options, log);
    if (save_close(set, "options.txt", error) || !(file = save_open(set, "schema.txt", error))) return -1;
    clicks_keep_schema(log, file);
    if (save_close(set, "schema.txt", error)) return -1;
    if (options->data.clicks.ids != CLICKS_VOCABULARY) return 0;
    if (!(file = save_open(set, "vocabulary.npy", error))) return -1;
    save_begin_array(file, "u8", clicks_vocabulary_numbers(log), SAVE_VECTOR);
    program_error closing;
    int status = clicks_keep_vocabularies(log, file, error);
    return save_close(set, "vocabulary.npy", status ? &closing : error) || status ? -1 : 0;
}

static int dlrm_save_files(save_set *set, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    const dlrm_model *model = dlrm_trainer_model(trainer);
    dlrm_layers layers;
    if (dlrm_layout(model, &layers, error) || dlrm_save_description(set, trainer, log, error)) return -1;
    if (!training_is_finite(dlrm_trainer_parameters(trainer), layers.parameters))
        return dlrm_fail_diverged(dlrm_trainer_settings(trainer), "a dense layer has", error);
    if (save_rows(set, "dense.npy", 1, layers.parameters, dlrm_trainer_parameters(trainer), error)) return -1;
    return dlrm_save_all_tables(set, trainer, log, error);
}

int dlrm_save(save_set *set, dlrm_trainer *trainer, const clicks *log, const dlrm_options *options, uint64_t step,
              program_error *error) {
    save_origin origin = {dlrm_model_name(dlrm_trainer_model(trainer)->kind), step};
    if (!set) return dlrm_save_all_tables(NULL, trainer, log, error);
    int failed = dlrm_save_log(set, log, options, error) || dlrm_save_files(set, trainer, log, error);
    return save_finish(set, &origin, failed, error);
}
