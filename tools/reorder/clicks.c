/* Click logs: the rows of each feature's table in order of frequency, as CSV with a schema.
 *
 * Ids of any kind (texts by hash or vocabulary, given rows) are read as the rows that dlrm makes of them, so every
 * format that is read can be rewritten. Numbers are written as the schema passes them on: what is read back has the
 * same bits.
 */
#include "tools/reorder/reorder.h"

#include <inttypes.h>
#include <stdlib.h>

enum { REORDER_BATCH = 4096 };

static const char *const reorder_files[] = {"log.csv", "log.schema", "map.npy", "test.csv"};

void reorder_clicks_names(reorder_work *work) {
    work->n_names = work->options->test ? 4 : 3;
    for (int i = 0; i < work->n_names; i++) work->names[i] = reorder_files[i];
}

static int reorder_count_clicks(reorder_work *work, uint32_t *counts, program_error *error) {
    partition_source source = place_data_source(&work->data);
    frugal_place_samples block = {.n = 1};
    uint64_t samples = 0;
    if (source.rewind(source.of, error)) return -1;
    while (block.n) {
        if (source.read(source.of, &block, error)) return -1;
        for (uint64_t i = 0; i < block.n * block.width; i++) reorder_count(&counts[block.keys[i]]);
        if (reorder_go_on(work, "counted", samples += block.n, error)) return -1;
    }
    return samples ? 0 : program_fail(error, "%.200s has no samples; give another file", work->options->name);
}

/* Samples as lines, with new rows. */
static void reorder_write_lines(const reorder_work *work, const clicks_batch *batch, const reorder_order *order,
                                FILE *file) {
    uint32_t numbers = clicks_numbers(work->data.log), features = clicks_features(work->data.log);
    for (uint32_t i = 0; i < batch->n; i++) {
        fputc(batch->labels[i] > 0 ? '1' : '0', file);
        for (uint32_t k = 0; k < numbers; k++) fprintf(file, ",%.9g", (double)batch->numbers[(size_t)i * numbers + k]);
        for (uint32_t k = 0; k < features; k++)
            fprintf(file, ",%" PRIu32, order[k].new_row[batch->ids[(size_t)k * batch->room + i]]);
        fputc('\n', file);
    }
}

static void reorder_write_header(const clicks *log, FILE *file) {
    fputs("label", file);
    for (uint32_t k = 1; k <= clicks_numbers(log); k++) fprintf(file, ",I%" PRIu32, k);
    for (uint32_t k = 1; k <= clicks_features(log); k++) fprintf(file, ",C%" PRIu32, k);
    fputc('\n', file);
}

/* All samples of the file (NULL: of the log), those held out as well. */
static int reorder_write_log(reorder_work *work, const char *path, const char *name, const reorder_order *order,
                             program_error *error) {
    FILE *file = save_open(work->set, name, error);
    clicks_reader *reader = NULL;
    clicks_batch batch;
    uint64_t samples = 0;
    if (!file || clicks_batch_open(&batch, work->data.log, REORDER_BATCH, error)) return -1;
    int status = clicks_reader_open(&reader, work->data.log, path, 0, UINT64_MAX, error);
    reorder_write_header(work->data.log, file);
    do {
        if (!status) status = clicks_reader_read(reader, batch.room, &batch, error);
        if (!status) reorder_write_lines(work, &batch, order, file);
        if (!status) status = reorder_go_on(work, "written", samples += batch.n, error);
    } while (!status && batch.n);
    if (!status && clicks_reader_malformed(reader)->lines)
        fprintf(stderr, "%s: skipped %" PRIu64 " malformed lines\n", path ? path : work->options->name,
                clicks_reader_malformed(reader)->lines);
    clicks_reader_close(reader);
    clicks_batch_close(&batch);
    return status ? -1 : save_close(work->set, name, error);
}

static int reorder_write_schema(reorder_work *work, program_error *error) {
    const clicks *log = work->data.log;
    FILE *file = save_open(work->set, work->names[1], error);
    if (!file) return -1;
    fputs("separator comma\nheader yes\nlabel label one 1 zero 0\n", file);
    for (uint32_t k = 0; k < clicks_numbers(log); k++) fprintf(file, "number I%" PRIu32 "\n", k + 1);
    for (uint32_t k = 0; k < clicks_features(log); k++)
        fprintf(file, "id C%" PRIu32 " rows %" PRIu64 "\n", k + 1, clicks_rows(log, k));
    return save_close(work->set, work->names[1], error);
}

/* The maps of all tables, one after the other. */
static int reorder_write_maps(reorder_work *work, const reorder_order *order, program_error *error) {
    FILE *file = save_open(work->set, work->names[2], error);
    if (!file) return -1;
    save_begin_array(file, "u4", work->data.clicks.rows, SAVE_VECTOR);
    for (uint32_t k = 0; k < clicks_features(work->data.log); k++)
        fwrite(order[k].old_row, sizeof *order[k].old_row, order[k].n, file);
    return save_close(work->set, work->names[2], error);
}

static int reorder_sort_tables(reorder_work *work, const uint32_t *counts, reorder_order *order, program_error *error) {
    for (uint32_t k = 0; k < clicks_features(work->data.log); k++)
        if (reorder_order_make(&order[k], counts + work->data.clicks.offset[k],
                               (uint32_t)clicks_rows(work->data.log, k), error))
            return -1;
    return 0;
}

int reorder_clicks(reorder_work *work, program_error *error) {
    uint32_t features = clicks_features(work->data.log);
    uint32_t *counts = calloc(work->data.clicks.rows, sizeof *counts);
    reorder_order *order = calloc(features, sizeof *order);
    int status = counts && order ? 0
                                 : program_fail(error, "out of memory for counts of %" PRIu64 " rows; use fewer --rows",
                                                work->data.clicks.rows);
    if (!status) status = reorder_count_clicks(work, counts, error);
    if (!status) status = reorder_sort_tables(work, counts, order, error);
    free(counts);
    if (!status) status = reorder_write_schema(work, error);
    if (!status) status = reorder_write_maps(work, order, error);
    if (!status) status = reorder_write_log(work, NULL, work->names[0], order, error);
    if (!status && work->options->test)
        status = reorder_write_log(work, work->options->test, work->names[3], order, error);
    for (uint32_t k = 0; order && k < features; k++) reorder_order_free(&order[k]);
    free(order);
    return status;
}
