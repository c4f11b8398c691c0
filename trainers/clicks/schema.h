/* What the columns of a click log mean. The formats that are built in are schemas like those read from a file.
 *
 * A schema file is text, a statement a line. Words are separated by blanks; a word in double quotes may hold blanks,
 * and is never a keyword. `#` begins a comment at the start of a line and after a blank. First the file as a whole:
 *
 *     separator comma        comma (if not said), tab, semicolon, space, or the character itself
 *     header no              yes: the first line names the columns, in any order
 *     quotes yes             fields may stand in double quotes, a quote within doubled; `no` if tabs separate
 *     missing ? NA           texts that mean missing, as an empty field does; alone: nothing else does
 *
 * then each column, in order:
 *
 *     label NAME one TEXT... zero TEXT...
 *     number NAME [raw | log | scale A B] [bucket W | logbucket W] [rows N]
 *     id NAME [rows N] [last N] [hex] [bag C] [weighted] [mean] [with NAME]
 *     skip NAME
 *
 * A first line must name all columns that are not skipped, and no other. Where no line says what means missing, an id
 * or a number that is NA, N/A, nan, NULL, None, ? or \N makes no sample, because it may mean that, and may be an id.
 *
 * There is one label; fields with other texts make no sample, unless they are the same number (1 is 1.0, too). A
 * number x is passed on as it is (raw, the default), as sign(x) log(1 + |x|), or as (x - A) / B. With `bucket` it is
 * also an id: x / W rounded down, as decimal text; with `logbucket` sign(x) log(1 + |x|) / W rounded down. `rows` is
 * the size of the id's table, if it differs from that of the other ids. `last` takes only the last N bytes of an id.
 * `hex` and `rows` count where ids are given as rows.
 *
 * A feature may have a bag of ids, any number of them; its vector is the sum of their rows, zeros without an id. With
 * `bag` a field holds several ids with C between them, which is named as the separator is (bar: |). With `with` the ids
 * of a column join the bag of the column NAME above it. `weighted`: each id is followed by a colon and a number, which
 * multiplies its row; else that is 1. `mean`: the sum is divided by the number of ids. A missing id, and an empty one
 * in a bag, is none there.
 *
 * Blanks around fields and around the line are no part of them. Lines of blanks alone are ignored.
 */
#ifndef CLICKS_SCHEMA_H
#define CLICKS_SCHEMA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "trainers/clicks/clicks.h"

enum {
    CLICKS_MOST_COLUMNS = 4096,
    CLICKS_MOST_TEXTS = 16,   /* texts of a label, or texts that mean missing */
    CLICKS_LONGEST_TEXT = 63, /* bytes of such a text, or of a column's name */
    CLICKS_LARGEST_SCHEMA = 1 << 20
};

typedef enum { CLICKS_SKIP, CLICKS_LABEL, CLICKS_NUMBER, CLICKS_ID } clicks_kind;
typedef enum { CLICKS_RAW, CLICKS_LOG, CLICKS_SCALE } clicks_transform;

typedef struct clicks_text {
    uint32_t n;
    char at[CLICKS_LONGEST_TEXT + 1]; /* and a zero */
} clicks_text;

typedef struct clicks_texts {
    uint32_t n;
    clicks_text text[CLICKS_MOST_TEXTS];
} clicks_texts;

typedef struct clicks_column {
    clicks_text name;
    clicks_kind kind;
    clicks_transform transform, bucket; /* of the number; of the number as an id */
    double subtract, divide, width;     /* width 0: the number is no id */
    uint64_t rows;                      /* of an id; 0: as many as the others */
    uint32_t last;                      /* the last bytes of an id, which alone count; 0: all */
    int hex;
    int several, weighted, mean; /* the ids are a bag; with weights; divided by their number */
    char bag;                    /* between the ids of a field; 0: it has one */
    uint32_t with;               /* the column whose bag its ids join, and 1; 0: its own */
    uint32_t number, feature;    /* which of them it is, if it is one */
} clicks_column;

/* Lines of columns, or of the label and any number of `index:value`, or of `field:index:value`, with blanks between
 * them. */
typedef enum { CLICKS_DENSE, CLICKS_INDEXED, CLICKS_FIELDS } clicks_form;

typedef struct clicks_schema {
    char separator;
    int header, quotes, bags; /* bags: a column at least is a bag */
    int unlabelled;           /* clicks_schema_drop_label */
    int known;                /* a built-in format: it has dialects (line.c) */
    int says_missing;         /* it is said what means missing */
    clicks_form form;         /* if it is another than CLICKS_DENSE, the columns are the label, and a bag a field */
    clicks_texts missing, one, zero;
    clicks_column *columns;
    uint32_t n_columns, n_numbers, n_features;
    uint32_t *feature_columns; /* feature_columns[n_features] */
} clicks_schema;

/* The schema of a built-in format. On failure nothing has to be freed. */
int clicks_schema_of_format(clicks_schema *schema, clicks_format format, program_error *error);
/* CLICKS_ARRAYS: of so many numbers, raw, and ids. */
int clicks_schema_of_arrays(clicks_schema *schema, uint32_t numbers, uint32_t ids, program_error *error);
/* CLICKS_LIBFFM: its fields, whose number the log says; instead of those that it has. */
int clicks_schema_set_fields(clicks_schema *schema, uint32_t fields, program_error *error);
/* The label's column is skipped, or with CLICKS_LABELS_ABSENT there is none; a label in front of `index:value` may be
 * there or not. */
int clicks_schema_drop_label(clicks_schema *schema, clicks_labels labels, program_error *error);
/* Of generated logs: comma, header, label, numbers I1..., ids C1... */
int clicks_schema_of_generated(clicks_schema *schema, const clicks_generator *generator, program_error *error);
int clicks_schema_read(clicks_schema *schema, const char *path, program_error *error);
/* Of the file's bytes; `path` for messages. */
int clicks_schema_parse(clicks_schema *schema, const char *path, const char *text, size_t n, program_error *error);
void clicks_schema_free(clicks_schema *schema);
/* As a schema file. Logs of the forms of libsvm and libffm have no columns: a comment says so. */
void clicks_schema_write(const clicks_schema *schema, FILE *stream);

/* Building one, from zeros: columns are added, then numbered. -1: the text is too long; NULL: out of memory, or more
 * than CLICKS_MOST_COLUMNS. */
int clicks_text_set(clicks_text *text, const char *from, size_t n);
clicks_column *clicks_schema_add(clicks_schema *schema, clicks_kind kind);
int clicks_schema_finish(clicks_schema *schema, program_error *error);

/* Is this one of the texts? */
int clicks_texts_hold(const clicks_texts *texts, const char *text, size_t n);
/* Texts that programs write where a value is missing. */
const clicks_texts *clicks_usual_missing(void);
enum { CLICKS_LONGEST_USUAL = 4 }; /* bytes of the longest */
/* sign(x) log(1 + |x|) */
double clicks_log(double x);
/* A number as the column passes it on. */
float clicks_transformed(const clicks_column *column, double x);

#endif
