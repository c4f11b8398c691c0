/* Click logs: opening, batches, and readers, over files or over planted logs. */
#include "trainers/clicks/clicks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainers/clicks/file.h"
#include "trainers/clicks/folder.h"
#include "trainers/clicks/line.h"
#include "trainers/clicks/log.h"
#include "trainers/common/crc32.h"

enum { CLICKS_PREPARE_ROOM = 4096 }; /* samples whose ids are counted at a time */

struct clicks_reader {
    const clicks *log;
    clicks_file file;
    clicks_folder folder;    /* if its path is one */
    const char *const *next; /* of several files, the one behind `file`; NULL: it is the only one */
    clicks_line line;
    uint32_t order[CLICKS_MOST_COLUMNS];
    clicks_malformed malformed;
    uint64_t at, first, end; /* samples */
    int hashes;              /* ids stay hashes of their texts: rows are not known yet */
    int failed;
    program_error error; /* if it failed */
    clicks_drawn drawn;
};

/* ---- Opening -------------------------------------------------------------------------------------------- */

static int clicks_check_settings(const clicks_settings *settings, program_error *error) {
    if (settings->format == CLICKS_SCHEMA && !settings->schema)
        return program_fail(error, "a log of any format needs a schema; give its file");
    if (settings->format != CLICKS_SCHEMA && settings->schema)
        return program_fail(error, "a schema (%.180s) and a format that has its own; give one of them",
                            settings->schema);
    if (settings->rows > INT64_MAX)
        return program_fail(error, "%" PRIu64 " rows a feature; must be below 2^63", settings->rows);
    if (settings->fields >= CLICKS_MOST_COLUMNS)
        return program_fail(error, "%" PRIu32 " fields; must be below %d", settings->fields, CLICKS_MOST_COLUMNS);
    if (settings->threshold > UINT32_MAX)
        return program_fail(error, "a threshold of %" PRIu64 " for ids; must be below 2^32", settings->threshold);
    return 0;
}

static int clicks_copy_files(clicks *log, program_error *error) {
    const char *const *files = log->settings.files;
    size_t n = 0;
    log->settings.files = NULL; /* the caller's */
    if (!files) return 0;
    while (files[n]) n++;
    log->files = malloc((n + 1) * sizeof *log->files);
    if (!log->files) return program_fail(error, "out of memory for the names of %zu files", n);
    memcpy(log->files, files, (n + 1) * sizeof *log->files);
    return 0;
}

/* Every column of ids gets its number of rows. */
static int clicks_set_rows(clicks *log, program_error *error) {
    clicks_schema *schema = &log->schema;
    for (uint32_t k = 0; k < schema->n_features && log->settings.ids != CLICKS_VOCABULARY; k++) {
        clicks_column *column = &schema->columns[schema->feature_columns[k]];
        int drawn = log->settings.format == CLICKS_GENERATED && log->settings.ids == CLICKS_HASH;
        if (!column->rows || (drawn && log->settings.rows)) column->rows = log->settings.rows;
        if (!column->rows)
            return program_fail(error, "no rows for the ids of '%s'; say how many each feature has, at least 1",
                                column->name.at);
    }
    return 0;
}

/* Every feature gets its table, or a vocabulary. */
static int clicks_set_tables(clicks *log, program_error *error) {
    if (log->settings.ids != CLICKS_VOCABULARY) return clicks_set_rows(log, error);
    free(log->vocabularies);
    log->vocabularies = calloc(log->schema.n_features, sizeof *log->vocabularies);
    return log->vocabularies ? 0 : program_fail(error, "out of memory for vocabularies");
}

/* The columns are those of the first file. */
static int clicks_open_arrays(clicks *log, program_error *error) {
    const char *const *files = log->settings.files;
    clicks_npy *npy;
    uint32_t numbers, ids;
    if (!files || !*files) return program_fail(error, "no arrays of samples; give x_dense.npy");
    if (!clicks_npy_is_log(*files))
        return program_fail(error,
                            "%.200s is not named as arrays of a log are; give x_dense.npy, with x_sparse.npy and "
                            "x_labels.npy beside it",
                            *files);
    if (clicks_npy_open(&npy, *files, error)) return -1;
    clicks_npy_shape(npy, &numbers, &ids);
    clicks_npy_close(npy);
    return clicks_schema_of_arrays(&log->schema, numbers, ids, error);
}

static int clicks_open_schema(clicks *log, program_error *error) {
    const clicks_settings *settings = &log->settings;
    if (settings->format == CLICKS_SCHEMA) return clicks_schema_read(&log->schema, settings->schema, error);
    if (settings->format == CLICKS_ARRAYS) return clicks_open_arrays(log, error);
    if (settings->format != CLICKS_GENERATED) return clicks_schema_of_format(&log->schema, settings->format, error);
    if (clicks_schema_of_generated(&log->schema, &settings->generator, error)) return -1;
    return clicks_planted_open(&log->planted, &settings->generator, error);
}

int clicks_open(clicks **out, const clicks_settings *settings, program_error *error) {
    *out = NULL;
    if (clicks_check_settings(settings, error)) return -1;
    clicks *log = calloc(1, sizeof *log);
    if (!log) return program_fail(error, "out of memory for a click log");
    log->settings = *settings;
    int status = clicks_open_schema(log, error);
    log->settings.schema = NULL; /* the caller's */
    if (!status) status = clicks_copy_files(log, error);
    if (!status && settings->format == CLICKS_LIBFFM && settings->fields)
        status = clicks_schema_set_fields(&log->schema, settings->fields, error);
    if (!status && settings->most_ids && !log->schema.bags)
        status = program_fail(error,
                              "--most-ids %u is for logs whose features have several ids, and those of this one have "
                              "one; leave it out",
                              settings->most_ids);
    log->most_ids = settings->most_ids;
    if (!status && settings->labels) status = clicks_schema_drop_label(&log->schema, settings->labels, error);
    if (!status) status = clicks_set_tables(log, error);
    if (status)
        clicks_close(log);
    else
        *out = log;
    return status;
}

void clicks_close(clicks *log) {
    if (!log) return;
    for (uint32_t k = 0; k < log->schema.n_features && log->vocabularies; k++)
        clicks_vocabulary_free(&log->vocabularies[k]);
    free(log->vocabularies);
    free(log->files);
    clicks_planted_close(&log->planted);
    clicks_schema_free(&log->schema);
    free(log);
}

uint32_t clicks_numbers(const clicks *log) {
    return log->schema.n_numbers;
}

uint32_t clicks_features(const clicks *log) {
    return log->schema.n_features;
}

uint64_t clicks_rows(const clicks *log, uint32_t feature) {
    if (log->vocabularies) return log->vocabularies[feature].n + 1;
    return log->schema.columns[log->schema.feature_columns[feature]].rows;
}

uint32_t clicks_most_ids(const clicks *log) {
    return log->most_ids;
}

int clicks_has_bags(const clicks *log) {
    return log->schema.bags;
}

int clicks_is_generated(const clicks *log) {
    return log->settings.format == CLICKS_GENERATED;
}

int clicks_is_mean(const clicks *log, uint32_t feature) {
    return log->schema.columns[log->schema.feature_columns[feature]].mean;
}

const char *clicks_feature_name(const clicks *log, uint32_t feature) {
    return log->schema.columns[log->schema.feature_columns[feature]].name.at;
}

/* ---- Checksum ------------------------------------------------------------------------------------------- */

static uint32_t clicks_texts_checksum(uint32_t sum, const clicks_texts *texts) {
    sum = crc32_of(sum, &texts->n, sizeof texts->n);
    for (uint32_t i = 0; i < texts->n; i++) sum = crc32_of(sum, texts->text[i].at, texts->text[i].n + 1);
    return sum;
}

static uint32_t clicks_column_checksum(uint32_t sum, const clicks_column *column) {
    char text[300];
    int n = snprintf(text, sizeof text, "%d %d %d %a %a %a %" PRIu64 " %u %d %u %u %s", (int)column->kind,
                     (int)column->transform, (int)column->bucket, column->subtract, column->divide, column->width,
                     column->rows, column->last, column->hex, column->number, column->feature, column->name.at);
    return crc32_of(sum, text, (size_t)n + 1);
}

/* What has no part in the checksum of a log without bags, which is as it was before there were any. */
static uint32_t clicks_bags_checksum(uint32_t sum, const clicks *log) {
    const clicks_schema *schema = &log->schema;
    uint32_t how[] = {(uint32_t)schema->form, log->settings.most_ids}; /* which may make a line malformed */
    sum = crc32_of(sum, how, sizeof how);
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        const clicks_column *column = &schema->columns[i];
        uint32_t is[] = {(uint32_t)column->several, (uint32_t)column->weighted, (uint32_t)column->mean,
                         (uint32_t)column->bag, column->with};
        sum = crc32_of(sum, is, sizeof is);
    }
    return sum;
}

/* A sum over all its ids, because the order in which they lie in the table differs between versions. */
static uint32_t clicks_vocabulary_checksum(uint32_t sum, const clicks_vocabulary *v) {
    uint64_t all = v->n;
    for (uint64_t i = 0; i < v->room; i++)
        if (v->slots[i].count) all += random_mix(v->slots[i].hash ^ random_mix(v->slots[i].number));
    return crc32_of(sum, &all, sizeof all);
}

uint32_t clicks_checksum(const clicks *log) {
    const clicks_schema *schema = &log->schema;
    uint8_t how[] = {(uint8_t)schema->separator, (uint8_t)schema->header, (uint8_t)schema->quotes,
                     (uint8_t)log->settings.ids};
    uint32_t sum = crc32_of(0, how, sizeof how);
    sum = clicks_texts_checksum(sum, &schema->missing);
    sum = clicks_texts_checksum(sum, &schema->one);
    sum = clicks_texts_checksum(sum, &schema->zero);
    for (uint32_t i = 0; i < schema->n_columns; i++) sum = clicks_column_checksum(sum, &schema->columns[i]);
    for (uint32_t k = 0; k < schema->n_features && log->vocabularies; k++)
        sum = clicks_vocabulary_checksum(sum, &log->vocabularies[k]);
    return schema->bags ? clicks_bags_checksum(sum, log) : sum;
}

/* ---- Batches -------------------------------------------------------------------------------------------- */

int clicks_batch_open_in(clicks_batch *batch, const clicks *log, uint32_t room, const clicks_memory *memory,
                         program_error *error) {
    size_t samples = room, numbers = log->schema.n_numbers, features = log->schema.n_features;
    size_t ids = samples * (log->schema.bags ? log->most_ids : features);
    *batch = (clicks_batch){.room = room, .most = log->most_ids};
    if (log->schema.bags && !log->most_ids)
        return program_fail(error, "it is not known how many ids a sample has at most; count them first, or say it");
    batch->labels = memory->allocate(memory->user, (samples + 1) * sizeof *batch->labels);
    batch->numbers = memory->allocate(memory->user, (samples * numbers + 1) * sizeof *batch->numbers);
    batch->ids = memory->allocate(memory->user, (ids + 1) * sizeof *batch->ids);
    batch->truth = memory->allocate(memory->user, (samples + 1) * sizeof *batch->truth);
    int failed = !batch->labels || !batch->numbers || !batch->ids || !batch->truth;
    if (batch->most) {
        batch->counts = memory->allocate(memory->user, (samples + 1) * sizeof *batch->counts);
        batch->features = memory->allocate(memory->user, (ids + 1) * sizeof *batch->features);
        batch->weights = memory->allocate(memory->user, (ids + 1) * sizeof *batch->weights);
        failed |= !batch->counts || !batch->features || !batch->weights;
    }
    if (!failed) return 0;
    if (batch->most)
        return program_fail(error,
                            "out of memory for a batch of %" PRIu32 " samples of up to %" PRIu32
                            " ids; use a smaller batch, or fewer --most-ids",
                            room, batch->most);
    return program_fail(error, "out of memory for a batch of %" PRIu32 " samples of %zu columns", room,
                        1 + numbers + features);
}

static void *clicks_allocate(void *user, size_t bytes) {
    (void)user;
    return calloc(1, bytes);
}

int clicks_batch_open(clicks_batch *batch, const clicks *log, uint32_t room, program_error *error) {
    static const clicks_memory memory = {clicks_allocate, NULL};
    int status = clicks_batch_open_in(batch, log, room, &memory, error);
    if (status) clicks_batch_close(batch);
    return status;
}

void clicks_batch_close(clicks_batch *batch) {
    free(batch->labels);
    free(batch->numbers);
    free(batch->ids);
    free(batch->truth);
    free(batch->counts);
    free(batch->features);
    free(batch->weights);
    *batch = (clicks_batch){0};
}

clicks_batch clicks_batch_rest(const clicks *log, const clicks_batch *batch, uint32_t at) {
    clicks_batch rest = *batch;
    size_t ids = batch->most ? (size_t)at * batch->most : at;
    rest.n = 0;
    rest.labels += at, rest.numbers += (size_t)at * log->schema.n_numbers, rest.truth += at, rest.ids += ids;
    if (batch->most) rest.counts += at, rest.features += ids, rest.weights += ids;
    return rest;
}

static clicks_sample clicks_batch_sample(const clicks *log, clicks_batch *batch, uint32_t i) {
    size_t at = (size_t)i * batch->most;
    if (batch->most)
        return (clicks_sample){.label = &batch->labels[i],
                               .numbers = batch->numbers + (size_t)i * log->schema.n_numbers,
                               .ids = batch->ids + at,
                               .features = batch->features + at,
                               .weights = batch->weights + at,
                               .count = &batch->counts[i]};
    return (clicks_sample){.label = &batch->labels[i],
                           .numbers = batch->numbers + (size_t)i * log->schema.n_numbers,
                           .ids = batch->ids + i,
                           .stride = batch->room};
}

static uint64_t clicks_row_of(const clicks *log, uint32_t feature, uint64_t hash) {
    return log->vocabularies ? clicks_vocabulary_row(&log->vocabularies[feature], hash)
                             : hash % clicks_rows(log, feature);
}

/* Hashes become rows, a feature at a time, so that a vocabulary stays in the caches; in bags, a sample at a time. */
static void clicks_batch_rows(const clicks *log, clicks_batch *batch) {
    for (uint32_t i = 0; i < batch->n && batch->most; i++)
        for (size_t at = (size_t)i * batch->most, end = at + batch->counts[i]; at < end; at++)
            batch->ids[at] = clicks_row_of(log, batch->features[at], batch->ids[at]);
    if (batch->most) return;
    for (uint32_t k = 0; k < log->schema.n_features; k++) {
        uint64_t *ids = batch->ids + (size_t)k * batch->room, rows = clicks_rows(log, k);
        for (uint32_t i = 0; i < batch->n; i++)
            ids[i] = log->vocabularies ? clicks_vocabulary_row(&log->vocabularies[k], ids[i]) : ids[i] % rows;
    }
}

/* ---- Readers over files --------------------------------------------------------------------------------- */

static int clicks_is_malformed(clicks_reader *reader, const char *reason, program_error *error) {
    clicks_malformed *malformed = &reader->malformed;
    uint64_t most = reader->log->settings.malformed;
    const char *path = reader->file.path, *name = "";
    size_t n = strlen(path), room = 80;
    if (reader->next) name = n > room ? path + n - room : path; /* its end differs from other files' */
    if (malformed->lines++ < CLICKS_TOLD)
        snprintf(malformed->what[malformed->lines - 1], sizeof *malformed->what, "%s%sline %" PRIu64 ": %s", name,
                 *name ? ", " : "", reader->file.line, reason);
    if (malformed->lines <= most) return 0;
    return program_fail(
        error,
        "%.150s%s%s; %" PRIu64 " line%s no sample so far, and %" PRIu64 " may be: is the format the right one? "
        "Mend the file%s",
        *name ? "" : path, *name ? "" : ": ", malformed->what[0], malformed->lines,
        malformed->lines == 1 ? " is" : "s are", most,
        reader->log->settings.labels ? "" : ", or tolerate more (--malformed)"); /* when predicting, each line counts */
}

static int clicks_read_header(clicks_reader *reader, program_error *error) {
    char *text;
    size_t n;
    if (!reader->log->schema.header) return 0;
    int got = clicks_file_line(&reader->file, &text, &n, error);
    if (got < 0) return -1;
    if (!got) return program_fail(error, "%.200s is empty; its first line must name the columns", reader->file.path);
    if (n > CLICKS_LONGEST_LINE)
        return program_fail(error, "%.200s: the first line is longer than %d bytes, and must name the columns",
                            reader->file.path, CLICKS_LONGEST_LINE);
    if (!clicks_line_header(&reader->line, text, n)) return 0;
    return program_fail(error, "%.200s: the first line must name the columns: %s", reader->file.path,
                        reader->line.reason);
}

/* The first file, or the one behind another. */
static int clicks_begin_file(clicks_reader *reader, const char *path, program_error *error) {
    clicks_file_close(&reader->file);
    return clicks_file_open(&reader->file, path, error) || clicks_read_header(reader, error) ? -1 : 0;
}

/* 1: the next line; 0: the log is over; -1: error. */
static int clicks_next_line(clicks_reader *reader, char **text, size_t *n, program_error *error) {
    for (;;) {
        int got = clicks_file_line(&reader->file, text, n, error);
        if (got || !reader->next || !*reader->next) return got;
        if (clicks_begin_file(reader, *reader->next++, error)) return -1;
    }
}

/* 1: a sample, into *out if it is not NULL; 0: the log is over; -1: error. */
static int clicks_next_sample(clicks_reader *reader, const clicks_sample *out, program_error *error) {
    char *text, too_long[64];
    size_t n;
    for (;;) {
        int got = clicks_next_line(reader, &text, &n, error);
        if (got <= 0) return got;
        if (n > CLICKS_LONGEST_LINE) {
            snprintf(too_long, sizeof too_long, "longer than %d bytes", CLICKS_LONGEST_LINE);
            if (clicks_is_malformed(reader, too_long, error)) return -1;
        } else if (!clicks_line_is_empty(&reader->line, text, n)) {
            if (!clicks_line_read(&reader->line, text, n, out)) return 1;
            if (clicks_is_malformed(reader, reader->line.reason, error)) return -1;
        }
    }
}

static int clicks_read_file(clicks_reader *reader, uint32_t most, clicks_batch *batch, program_error *error) {
    int got = 1;
    for (; reader->at < reader->first && got > 0; reader->at += got > 0) got = clicks_next_sample(reader, NULL, error);
    while (got > 0 && batch->n < most && reader->at < reader->end) {
        clicks_sample sample = clicks_batch_sample(reader->log, batch, batch->n);
        got = clicks_next_sample(reader, &sample, error);
        batch->n += got > 0;
        reader->at += got > 0;
    }
    return got < 0 ? -1 : 0;
}

/* ---- Readers over planted logs -------------------------------------------------------------------------- */

static void clicks_draw_sample(clicks_reader *reader, clicks_batch *batch) {
    const clicks *log = reader->log;
    const clicks_schema *schema = &log->schema;
    clicks_sample sample = clicks_batch_sample(log, batch, batch->n);
    clicks_planted_draw(&log->planted, reader->at, &reader->drawn);
    *sample.label = (float)reader->drawn.label;
    batch->truth[batch->n] = (float)reader->drawn.logit;
    for (uint32_t k = 0; k < schema->n_numbers; k++) {
        int64_t number = reader->drawn.numbers[k];
        sample.numbers[k] = number < 0 ? 0 : clicks_transformed(&schema->columns[1 + k], (double)number);
    }
    for (uint32_t k = 0; k < schema->n_features; k++) {
        uint64_t id = reader->drawn.ids[k];
        sample.ids[k * sample.stride] = reader->line.given ? id : clicks_hash_number((int64_t)id);
    }
}

static void clicks_read_planted(clicks_reader *reader, uint32_t most, clicks_batch *batch) {
    if (reader->at < reader->first) reader->at = reader->first;
    for (; batch->n < most && reader->at < reader->end; batch->n++, reader->at++) clicks_draw_sample(reader, batch);
}

/* ---- Readers -------------------------------------------------------------------------------------------- */

static int clicks_reader_start(clicks_reader *reader, const char *path, program_error *error) {
    const clicks_schema *schema = &reader->log->schema;
    const char *const *files = reader->log->files;
    if (!clicks_is_generated(reader->log)) {
        if (!path && (!files || !*files)) return program_fail(error, "no file of samples; give one");
        if (path && clicks_is_folder(path)) {
            if (clicks_folder_read(&reader->folder, path, error)) return -1;
            files = (const char *const *)reader->folder.files, path = NULL;
        }
        if (!path && files[1]) reader->next = files + 1;
        return clicks_begin_file(reader, path ? path : *files, error);
    }
    if (path) return program_fail(error, "the log is generated, and %.200s given to read; choose one", path);
    uint64_t samples = reader->log->settings.generator.samples;
    if (reader->end > samples) reader->end = samples;
    reader->drawn.numbers = malloc(((size_t)schema->n_numbers + 1) * sizeof *reader->drawn.numbers);
    reader->drawn.ids = malloc(schema->n_features * sizeof *reader->drawn.ids);
    return reader->drawn.numbers && reader->drawn.ids ? 0 : program_fail(error, "out of memory for a sample");
}

static int clicks_reader_make(clicks_reader **out, const clicks *log, const char *path, uint64_t first, uint64_t end,
                              program_error *error) {
    *out = NULL;
    if (first > end)
        return program_fail(error, "samples from %" PRIu64 " to %" PRIu64 ": they end before they begin", first, end);
    clicks_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return program_fail(error, "out of memory for a reader");
    reader->log = log, reader->first = first, reader->end = end;
    reader->line = (clicks_line){.schema = &log->schema,
                                 .given = log->settings.ids == CLICKS_GIVEN,
                                 .most = log->most_ids,
                                 .separator = log->schema.separator,
                                 .order = log->schema.header ? reader->order : NULL};
    if (clicks_reader_start(reader, path, error)) {
        clicks_reader_close(reader);
        return -1;
    }
    *out = reader;
    return 0;
}

int clicks_reader_open(clicks_reader **out, const clicks *log, const char *path, uint64_t first, uint64_t end,
                       program_error *error) {
    *out = NULL;
    if (log->vocabularies && !log->prepared)
        return program_fail(error,
                            "the ids have no numbers yet; make the vocabularies from the training samples first");
    return clicks_reader_make(out, log, path, first, end, error);
}

int clicks_reader_read(clicks_reader *reader, uint32_t most, clicks_batch *batch, program_error *error) {
    batch->n = 0;
    if (reader->failed) {
        *error = reader->error;
        return -1;
    }
    if (most > batch->room) most = batch->room;
    if (reader->log->settings.format == CLICKS_GENERATED)
        clicks_read_planted(reader, most, batch);
    else if (clicks_read_file(reader, most, batch, error)) {
        reader->failed = 1;
        reader->error = *error;
        batch->n = 0;
        return -1;
    }
    if (!reader->line.given && !reader->hashes) clicks_batch_rows(reader->log, batch);
    return 0;
}

void clicks_reader_close(clicks_reader *reader) {
    if (!reader) return;
    clicks_file_close(&reader->file);
    clicks_folder_free(&reader->folder);
    free(reader->drawn.numbers);
    free(reader->drawn.ids);
    free(reader);
}

const clicks_malformed *clicks_reader_malformed(const clicks_reader *reader) {
    return &reader->malformed;
}

/* ---- Passes over a whole log ---------------------------------------------------------------------------- */

static int clicks_any_field(const clicks *log) {
    return log->settings.format == CLICKS_LIBFFM && !log->settings.fields;
}

int clicks_is_measured(const clicks *log) {
    return !log->schema.bags || (log->settings.most_ids && !clicks_any_field(log));
}

int clicks_measure(clicks *log, const char *path, program_error *error) {
    int fields = clicks_any_field(log), got;
    clicks_reader *reader;
    if (clicks_is_measured(log)) return 0;
    if (clicks_reader_make(&reader, log, path, 0, UINT64_MAX, error)) return -1;
    reader->line.most = log->settings.most_ids;
    reader->line.any_field = fields;
    uint32_t most = log->most_ids, found = 0;
    while ((got = clicks_next_sample(reader, NULL, error)) > 0) {
        if (reader->line.ids > most) most = reader->line.ids;
        if (reader->line.fields > found) found = reader->line.fields;
    }
    clicks_reader_close(reader);
    if (got < 0) return -1;
    log->most_ids = most ? most : 1;
    if (!fields || found <= log->schema.n_features) return 0;
    if (clicks_schema_set_fields(&log->schema, found, error)) return -1;
    return clicks_set_tables(log, error);
}

int clicks_count_to(const clicks *log, const char *path, uint64_t most, uint64_t *samples, clicks_malformed *malformed,
                    program_error *error) {
    clicks_reader *reader;
    int got = 1;
    if (clicks_reader_make(&reader, log, path, 0, UINT64_MAX, error)) return -1;
    uint64_t n = 0;
    if (clicks_is_generated(log))
        n = log->settings.generator.samples;
    else
        while (n < most && (got = clicks_next_sample(reader, NULL, error)) > 0) n++;
    if (malformed) *malformed = reader->malformed;
    clicks_reader_close(reader);
    if (got < 0) return -1;
    *samples = n;
    return 0;
}

int clicks_count(const clicks *log, const char *path, uint64_t *samples, clicks_malformed *malformed,
                 program_error *error) {
    return clicks_count_to(log, path, UINT64_MAX, samples, malformed, error);
}

/* Counts the ids of samples [0, n). */
static int clicks_count_ids(clicks *log, const char *path, uint64_t n, program_error *error) {
    clicks_reader *reader = NULL;
    clicks_batch batch;
    uint64_t counted = 0;
    if (clicks_batch_open(&batch, log, CLICKS_PREPARE_ROOM, error)) return -1;
    int status = clicks_reader_make(&reader, log, path, 0, n, error);
    if (!status) reader->hashes = 1;
    do {
        if (!status) status = clicks_reader_read(reader, batch.room, &batch, error);
        counted += status ? 0 : batch.n;
        for (uint32_t i = 0; i < batch.n && !status && batch.most; i++)
            for (size_t at = (size_t)i * batch.most, end = at + batch.counts[i]; at < end && !status; at++)
                status = clicks_vocabulary_count(&log->vocabularies[batch.features[at]], batch.ids[at], error);
        for (uint32_t k = 0; k < log->schema.n_features && !status && !batch.most; k++)
            for (uint32_t i = 0; i < batch.n && !status; i++)
                status = clicks_vocabulary_count(&log->vocabularies[k], batch.ids[(size_t)k * batch.room + i], error);
    } while (!status && batch.n);
    if (!status && n != UINT64_MAX && counted < n)
        status = program_fail(error,
                              "%.200s has %" PRIu64 " samples now, and had %" PRIu64 " when they were counted; "
                              "give a file that does not change",
                              path         ? path
                              : log->files ? log->files[0]
                                           : "the log",
                              counted, n);
    clicks_reader_close(reader);
    clicks_batch_close(&batch);
    return status;
}

int clicks_prepare(clicks *log, const char *path, uint64_t n, program_error *error) {
    if (!log->vocabularies) return 0;
    if (log->prepared) return program_fail(error, "the vocabularies are made already");
    int status = clicks_count_ids(log, path, n, error);
    for (uint32_t k = 0; k < log->schema.n_features && !status; k++)
        status = clicks_vocabulary_number(&log->vocabularies[k], log->settings.threshold, error);
    for (uint32_t k = 0; k < log->schema.n_features && status; k++) clicks_vocabulary_free(&log->vocabularies[k]);
    log->prepared = !status;
    return status;
}
