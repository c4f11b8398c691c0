/* Click logs as batches: what a line means (schema), how ids become rows, and reading them, a block at a time.
 *
 * A sample is a label (0 or 1), some numbers, and one id a feature, or a bag of any number of ids. Logs are read from
 * files, plain or gz, or of kinds that become text (filter.h, npy.h), or drawn by a generator (generate.h) that knows
 * what it planted. Only vocabularies are ever whole in memory.
 */
#ifndef CLICKS_H
#define CLICKS_H

#include <stdint.h>
#include "trainers/common/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How ids become rows of their feature's table. */
typedef enum {
    CLICKS_HASH,       /* a hash of the text (ids.h) modulo rows; a missing id is the empty text */
    CLICKS_VOCABULARY, /* numbered from 1 as they are met in training, if often enough; row 0: all others, and none */
    CLICKS_GIVEN       /* the text is the row: decimal, or hexadecimal where the schema says so, as Criteo's */
} clicks_ids;

typedef enum {
    CLICKS_CRITEO,     /* Kaggle's: tab-separated label, 13 numbers, 26 ids; no header */
    CLICKS_CRITEO_CSV, /* the same with a header: Id,Label,I1,...,I13,C1,...,C26, in any order, Id or none */
    CLICKS_AVAZU,      /* header id,click,hour,C1,banner_pos,...,C21, in any order, id or none: 22 ids, of hour the hour
                          of the day; no numbers */
    CLICKS_SCHEMA,     /* any: schema.h */
    CLICKS_LIBSVM,     /* label index:value ...: one feature, a bag of the indices, with the values as weights */
    CLICKS_LIBFFM,     /* label field:index:value ...: a bag a field */
    CLICKS_ARRAYS,     /* x_dense.npy, x_sparse.npy, x_labels.npy: npy.h; as many columns as the first file has */
    CLICKS_GENERATED   /* planted: generate.h; CLICKS_GIVEN ids are drawn ones, else their decimal texts */
} clicks_format;

/* Whether samples have labels; where they are not read, all are 0. */
typedef enum { CLICKS_LABELS_READ, CLICKS_LABELS_IGNORED, CLICKS_LABELS_ABSENT } clicks_labels;

/* Logs whose ids a feature are published (generate.c has the source). */
typedef enum { CLICKS_LIKE_NONE, CLICKS_LIKE_CRITEO, CLICKS_LIKE_AVAZU } clicks_like;
extern const char *const clicks_likes[]; /* "none", ...; ends with NULL */

/* Planted click logs: see generate.h. */
typedef struct clicks_generator {
    uint64_t samples;           /* 1 to 2^48 */
    uint32_t numbers, features; /* 0 and more, 1 and more */
    uint64_t rows;              /* ids a feature, 1 to 2^32 */
    double zipf;                /* skew of the ids, 0 (uniform) to 10 */
    double spread;              /* standard deviation of the planted logit, 0 to 100: more is easier to tell */
    uint64_t seed;
    uint64_t communities; /* of samples, at most `rows`; 0, 1: none */
    double within;        /* with communities: the chance, 0 to 1, that an id is one of its sample's community */
    clicks_like like;     /* the features and their ids are that log's; rows: of its largest feature */
} clicks_generator;

/* Of a generator with `like`: which of the others the user has given. */
typedef struct clicks_generator_given {
    int numbers, features, rows, zipf;
} clicks_generator_given;
/* With `like`, sets what was not given as that log has it. Refuses features and rows that were. 0, or -1 with *error
 * filled. */
int clicks_generator_resolve(clicks_generator *generator, const clicks_generator_given *given, program_error *error);
/* Ids of a feature. */
uint64_t clicks_generator_rows(const clicks_generator *generator, uint32_t feature);

/* A million samples of 13 numbers and 26 ids of 100000, skew 1.05, best area under the curve about .80, seed 1. */
clicks_generator clicks_generator_default(void);

typedef struct clicks_settings {
    clicks_format format;
    const char *schema; /* CLICKS_SCHEMA: its file */
    /* What a `path` of NULL reads, if the log is not generated: these files, one after the other, as one log; NULL
     * follows the last. They are read whenever the log is. NULL: none. A `path` that is a folder stands for its files,
     * in the same way. */
    const char *const *files;
    clicks_generator generator; /* CLICKS_GENERATED */
    clicks_ids ids;
    /* Rows of a feature's table, where the schema does not say; not with CLICKS_VOCABULARY. Of generated logs: with
     * CLICKS_HASH alone; 0: as many as there are ids. */
    uint64_t rows;
    uint64_t threshold; /* CLICKS_VOCABULARY: an id gets a row if it comes so often; below 2^32, 0 and 1: always */
    uint64_t malformed; /* at most this many lines that are no samples are skipped in a pass over a file */
    /* With bags: ids of a sample, at most; a line with more is malformed. CLICKS_LIBFFM: fields. 0: as many as
     * clicks_measure finds. */
    uint32_t most_ids, fields;
    clicks_labels labels;
} clicks_settings;

/* To which of the built-in formats the first line of a file belongs. Where it is none, the error says what it looks
 * like. */
int clicks_guess(const char *path, clicks_format *format, program_error *error);

/* What is known of a log before it is read: constant once prepared, and shared by its readers. */
typedef struct clicks clicks;

/* Checks the settings, reads the schema. On failure *out is NULL. */
int clicks_open(clicks **out, const clicks_settings *settings, program_error *error);
void clicks_close(clicks *log);
/* Lines that were no samples, and the reasons for the first ones, like "line 3: 12 columns, must be 15"; of a log of
 * several files, each begins with its file. */
enum { CLICKS_TOLD = 8 };
typedef struct clicks_malformed {
    uint64_t lines;
    char what[CLICKS_TOLD][200];
} clicks_malformed;

/* Where samples have bags, and it is not set how many ids they have at most, and how many fields: finds that in a pass
 * over a file, beside what other files had; before anything else is done with the log. */
int clicks_measure(clicks *log, const char *path, program_error *error);
/* Is it known, or not needed? */
int clicks_is_measured(const clicks *log);
/* Ids of a sample, at most, where they are in bags; 0: one id a feature. */
uint32_t clicks_most_ids(const clicks *log);
int clicks_has_bags(const clicks *log);
int clicks_is_generated(const clicks *log);
int clicks_is_mean(const clicks *log, uint32_t feature); /* a bag's rows are divided by their number */

/* Counts the samples of a file (`path` NULL: of the log itself, its files or the generator, as everywhere below) in one
 * pass, and the lines that are none (`malformed` may be NULL). */
int clicks_count(const clicks *log, const char *path, uint64_t *samples, clicks_malformed *malformed,
                 program_error *error);
/* The same, but *samples is `most` where there are more than that: then only these have been read. */
int clicks_count_to(const clicks *log, const char *path, uint64_t most, uint64_t *samples, clicks_malformed *malformed,
                    program_error *error);
/* Makes the vocabularies from samples [0, n) of the file in one pass, once, before any reader; does nothing unless ids
 * are numbered by vocabularies. Vocabularies stay in memory: 32 to 64 bytes an id that has a row, and as much for every
 * id that came while they are made. */
int clicks_prepare(clicks *log, const char *path, uint64_t n, program_error *error);

/* A checksum of what the columns mean, of how ids become rows, and (once prepared) of the vocabularies. It is another
 * one where samples would become other batches. */
uint32_t clicks_checksum(const clicks *log);

uint32_t clicks_numbers(const clicks *log);
uint32_t clicks_features(const clicks *log);
uint64_t clicks_rows(const clicks *log, uint32_t feature); /* of its table; with vocabularies once prepared */
const char *clicks_feature_name(const clicks *log, uint32_t feature);

typedef struct clicks_batch { /* samples that follow each other in the log */
    uint32_t n, room;
    float *labels;  /* labels[room] */
    float *numbers; /* numbers[room][numbers]: transformed as the schema says; missing ones 0 */
    uint64_t *ids;  /* ids[features][room]: rows of the feature's table */
    float *truth;   /* truth[room]: the planted logit, where the log is generated; else zeros */
    /* Of a log with bags: ids[room][most], and of each the feature and the weight; counts[room]. A sample's ids come in
     * the order of its line (bags.h brings them together by feature). `most` is 0 in other logs. */
    uint32_t most, *counts, *features;
    float *weights;
} clicks_batch;

int clicks_batch_open(clicks_batch *batch, const clicks *log, uint32_t room, program_error *error);
/* The same in memory of the caller's, who frees it: allocate(user, bytes) returns zeros, or NULL. */
typedef struct clicks_memory {
    void *(*allocate)(void *user, size_t bytes);
    void *user;
} clicks_memory;
int clicks_batch_open_in(clicks_batch *batch, const clicks *log, uint32_t room, const clicks_memory *memory,
                         program_error *error);
void clicks_batch_close(clicks_batch *batch);
/* The batch from its sample `at` on, in the same memory; n is 0. */
clicks_batch clicks_batch_rest(const clicks *log, const clicks_batch *batch, uint32_t at);

/* A pass over samples [first, end) of one log; samples are numbered from 0, and lines that are no samples have no
 * number. A reader is for one thread at a time; several readers may be used at the same time. */
typedef struct clicks_reader clicks_reader;

/* `path` NULL: the log's own. `end` may lie behind the last sample. */
int clicks_reader_open(clicks_reader **out, const clicks *log, const char *path, uint64_t first, uint64_t end,
                       program_error *error);
/* The next samples, `most` at most, into batch->n; 0 at the end. After a failure every call fails. */
int clicks_reader_read(clicks_reader *reader, uint32_t most, clicks_batch *batch, program_error *error);
void clicks_reader_close(clicks_reader *reader);

/* The malformed lines that it has met so far. */
const clicks_malformed *clicks_reader_malformed(const clicks_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
