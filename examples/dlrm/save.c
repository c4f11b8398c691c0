/* Saving: tables in pieces, so that they need not fit into memory twice. */
#include "examples/dlrm/save.h"
#include "examples/common/save.h"
#include "examples/common/training.h"

#include <inttypes.h>
#include <stdlib.h>

#define DLRM_PIECE 4096 /* rows */

static const char *const dlrm_files[] = {"model.json", "dense.npy", "rows.npy", "linear.npy"};

int dlrm_save_prepare(const char *folder, program_error *error) {
    return save_prepare(folder, dlrm_files[0], error);
}

/* The rows of one table, behind what is in the file. */
static int dlrm_save_table(const save_file *file, frugal *tables, uint32_t table, uint64_t rows, uint32_t dim,
                           program_error *error) {
    float *piece = malloc((uint64_t)DLRM_PIECE * dim * sizeof *piece);
    int status = piece ? 0 : program_fail(error, "out of memory for saving");
    for (uint64_t from = 0; !status && from < rows; from += DLRM_PIECE) {
        training_span span = {table, from, rows - from < DLRM_PIECE ? rows - from : DLRM_PIECE};
        status = training_read_rows(tables, &span, piece, error);
        if (!status) fwrite(piece, sizeof *piece, (size_t)span.n * dim, file->stream);
    }
    free(piece);
    return status;
}

static int dlrm_save_tables(const char *folder, const char *name, frugal *tables, program_error *error) {
    const frugal_desc *desc = frugal_settings(tables);
    uint64_t rows = 0;
    save_file file;
    for (uint32_t i = 0; i < desc->n_tables; i++) rows += desc->tables[i].rows;
    if (save_open(&file, folder, name, error)) return -1;
    save_begin_rows(&file, rows, desc->dim);
    int status = 0;
    for (uint32_t i = 0; i < desc->n_tables && !status; i++)
        status = dlrm_save_table(&file, tables, i, desc->tables[i].rows, desc->dim, error);
    program_error closing;
    if (save_close(&file, status ? &closing : error)) return -1;
    return status;
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

static int dlrm_save_description(const char *folder, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    const dlrm_model *model = dlrm_trainer_model(trainer);
    dlrm_layers layers;
    save_file file;
    if (dlrm_layout(model, &layers, error) || save_open(&file, folder, dlrm_files[0], error)) return -1;
    fprintf(file.stream,
            "{\n  \"model\": \"%s\",\n  \"numbers\": %u,\n  \"dim\": %u,\n  \"parameters\": %" PRIu64 ",\n",
            dlrm_model_name(model->kind), model->numbers, model->dim, layers.parameters);
    dlrm_write_layers(file.stream, "bottom", layers.bottom, layers.n_bottom);
    dlrm_write_layers(file.stream, "top", layers.top, layers.n_top);
    if (dlrm_has_linear(model)) fprintf(file.stream, "  \"linear\": %" PRIu64 ",\n", layers.linear);
    fprintf(file.stream, "  \"features\": [");
    uint64_t first = 0;
    for (uint32_t i = 0; i < model->features; i++) {
        fprintf(file.stream, "%s\n    {\"name\": ", i ? "," : "");
        dlrm_write_name(file.stream, clicks_feature_name(log, i));
        fprintf(file.stream, ", \"first_row\": %" PRIu64 ", \"rows\": %" PRIu64 "}", first, clicks_rows(log, i));
        first += clicks_rows(log, i);
    }
    fprintf(file.stream, "\n  ]\n}\n");
    return save_close(&file, error);
}

static int dlrm_save_files(const char *folder, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    const dlrm_model *model = dlrm_trainer_model(trainer);
    dlrm_layers layers;
    if (dlrm_layout(model, &layers, error) || dlrm_save_description(folder, trainer, log, error)) return -1;
    if (save_rows(folder, dlrm_files[1], 1, layers.parameters, dlrm_trainer_parameters(trainer), error)) return -1;
    for (uint32_t i = 0; i < 2; i++)
        if (dlrm_trainer_tables(trainer, i) &&
            dlrm_save_tables(folder, dlrm_files[2 + i], dlrm_trainer_tables(trainer, i), error))
            return -1;
    return 0;
}

int dlrm_save(const char *folder, dlrm_trainer *trainer, const clicks *log, program_error *error) {
    int n = dlrm_trainer_tables(trainer, 1) ? 4 : 3;
    return save_finish(folder, dlrm_files, n, dlrm_save_files(folder, trainer, log, error), error);
}
