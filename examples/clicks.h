/* Click logs as batches: what a line means (schema), how ids become rows, and reading them, a block at a time.
 *
 * A sample is a label (0 or 1), some numbers, and one id a feature. Logs are read from a file, plain or gz, or drawn by a
 * generator (clicks_generate.h) that knows what it planted. Nothing is ever whole in memory but vocabularies.
 */
#ifndef CLICKS_H
#define CLICKS_H

#include <stdint.h>
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How ids become rows of their feature's table. */
typedef enum {
    CLICKS_HASH,       /* a hash of the text, modulo rows */
    CLICKS_VOCABULARY, /* numbered as they are met in training, if often enough; row 0: all others, and none */
    CLICKS_GIVEN       /* the text is the row */
} clicks_ids;

typedef enum { CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU, CLICKS_SCHEMA, CLICKS_GENERATED } clicks_format;

/* Planted click logs: see clicks_generate.h. Zeros take the defaults. */
typedef struct clicks_generator {
    uint64_t samples;
    uint32_t numbers, features;
    uint64_t rows;  /* ids a feature */
    double zipf;    /* skew of the ids, 0: uniform */
    uint64_t seed;
} clicks_generator;

typedef struct clicks_settings {
    clicks_format format;
    const char *schema;         /* CLICKS_SCHEMA: its file */
    clicks_generator generator; /* CLICKS_GENERATED */
    clicks_ids ids;
    uint64_t rows;              /* of a feature's table, where the schema does not say; CLICKS_HASH, CLICKS_GIVEN */
    uint64_t threshold;         /* CLICKS_VOCABULARY: an id gets a row if it comes so often */
    uint64_t malformed;         /* lines that are no sample are skipped, up to so many a pass over a file */
} clicks_settings;

/* What is known of a log before it is read: constant once prepared, and shared by its readers. */
typedef struct clicks clicks;

/* Checks the settings, reads the schema. On failure *out is NULL. */
int clicks_open(clicks **out, const clicks_settings *settings, program_error *error);
void clicks_close(clicks *log);
/* Counts the samples of a file (`path` NULL: of the generator) in one pass. */
int clicks_count(const clicks *log, const char *path, uint64_t *samples, program_error *error);
/* Makes the vocabularies from samples [0, n) of the file: one pass, with CLICKS_VOCABULARY only. Before any reader. */
int clicks_prepare(clicks *log, const char *path, uint64_t n, program_error *error);

uint32_t clicks_numbers(const clicks *log);
uint32_t clicks_features(const clicks *log);
uint64_t clicks_rows(const clicks *log, uint32_t feature); /* of its table; with vocabularies once prepared */
const char *clicks_feature_name(const clicks *log, uint32_t feature);

typedef struct clicks_batch { /* samples that follow each other in the log */
    uint32_t n, room;
    float *labels;   /* labels[room] */
    float *numbers;  /* numbers[room][numbers]: transformed as the schema says; missing ones 0 */
    uint64_t *ids;   /* ids[features][room]: rows of the feature's table */
    float *truth;    /* truth[room]: the planted logit, where the log is generated; else zeros */
} clicks_batch;

int clicks_batch_open(clicks_batch *batch, const clicks *log, uint32_t room, program_error *error);
void clicks_batch_close(clicks_batch *batch);

/* A pass over samples [first, end) of one log. One thread at a time a reader; several readers at a time. */
typedef struct clicks_reader clicks_reader;

/* `path` NULL: the generator's. */
int clicks_reader_open(clicks_reader **out, const clicks *log, const char *path, uint64_t first, uint64_t end,
                       program_error *error);
/* The next samples, `most` at most, into batch->n; 0 at the end. */
int clicks_reader_read(clicks_reader *reader, uint32_t most, clicks_batch *batch, program_error *error);
void clicks_reader_close(clicks_reader *reader);

/* Lines that were no samples so far, and why the first of them was none: "line 3 has 12 columns, must have 15". */
typedef struct clicks_malformed {
    uint64_t lines;
    char first[200];
} clicks_malformed;
const clicks_malformed *clicks_reader_malformed(const clicks_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
