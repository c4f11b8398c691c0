/* Schemas: how one is built, and those of the known formats. */
#include "trainers/clicks/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Texts and numbers ---------------------------------------------------------------------------------- */

int clicks_texts_hold(const clicks_texts *texts, const char *text, size_t n) {
    for (uint32_t i = 0; i < texts->n; i++)
        if (texts->text[i].n == n && !memcmp(texts->text[i].at, text, n)) return 1;
    return 0;
}

const clicks_texts *clicks_usual_missing(void) {
    static const clicks_texts texts = {13,
                                       {{1, "?"},
                                        {2, "NA"},
                                        {2, "\\N"},
                                        {3, "N/A"},
                                        {3, "n/a"},
                                        {3, "nan"},
                                        {3, "NaN"},
                                        {3, "NAN"},
                                        {4, "NULL"},
                                        {4, "Null"},
                                        {4, "null"},
                                        {4, "None"},
                                        {4, "<NA>"}}};
    return &texts;
}

double clicks_log(double x) {
    return copysign(log1p(fabs(x)), x);
}

float clicks_transformed(const clicks_column *column, double x) {
    if (column->transform == CLICKS_LOG) return (float)clicks_log(x);
    return (float)(column->transform == CLICKS_SCALE ? (x - column->subtract) / column->divide : x);
}

/* ---- Building ------------------------------------------------------------------------------------------- */

int clicks_text_set(clicks_text *text, const char *from, size_t n) {
    if (n > CLICKS_LONGEST_TEXT) return -1;
    memcpy(text->at, from, n);
    text->at[n] = 0;
    text->n = (uint32_t)n;
    return 0;
}

clicks_column *clicks_schema_add(clicks_schema *schema, clicks_kind kind) {
    uint32_t n = schema->n_columns;
    if (n == CLICKS_MOST_COLUMNS) return NULL;
    if (!(n & (n - 1))) { /* grows where it is full: at powers of two */
        clicks_column *columns = realloc(schema->columns, (n ? 2 * (size_t)n : 1) * sizeof *columns);
        if (!columns) return NULL;
        schema->columns = columns;
    }
    schema->columns[n] = (clicks_column){.kind = kind, .divide = 1};
    schema->n_columns++;
    return &schema->columns[n];
}

int clicks_schema_finish(clicks_schema *schema, program_error *error) {
    schema->feature_columns = malloc(((size_t)schema->n_columns + 1) * sizeof *schema->feature_columns);
    if (!schema->feature_columns)
        return program_fail(error, "out of memory for %" PRIu32 " columns", schema->n_columns);
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        clicks_column *column = &schema->columns[i];
        schema->bags |= column->several;
        if (column->kind == CLICKS_NUMBER) column->number = schema->n_numbers++;
        if (column->with) column->feature = schema->columns[column->with - 1].feature;
        if (column->with || (column->kind != CLICKS_ID && !(column->width > 0))) continue;
        schema->feature_columns[schema->n_features] = i;
        column->feature = schema->n_features++;
    }
    return 0;
}

void clicks_schema_free(clicks_schema *schema) {
    free(schema->columns);
    free(schema->feature_columns);
    *schema = (clicks_schema){0};
}

int clicks_schema_drop_label(clicks_schema *schema, clicks_labels labels, program_error *error) {
    uint32_t at = 0;
    schema->unlabelled = 1;
    if (schema->form != CLICKS_DENSE) return 0;
    while (schema->columns[at].kind != CLICKS_LABEL) at++;
    schema->columns[at].kind = CLICKS_SKIP;
    if (labels != CLICKS_LABELS_ABSENT) return 0;
    schema->n_columns--;
    memmove(&schema->columns[at], &schema->columns[at + 1], (schema->n_columns - at) * sizeof *schema->columns);
    for (uint32_t i = at; i < schema->n_columns; i++)
        if (schema->columns[i].with > at + 1) schema->columns[i].with--;
    free(schema->feature_columns);
    schema->n_numbers = schema->n_features = 0;
    return clicks_schema_finish(schema, error);
}

/* ---- Known formats -------------------------------------------------------------------------------------- */

static clicks_column *clicks_add_named(clicks_schema *schema, clicks_kind kind, const char *name) {
    clicks_column *column = clicks_schema_add(schema, kind);
    if (column) clicks_text_set(&column->name, name, strlen(name));
    return column;
}

/* Columns of numbers, and then of ids, whose names are counted. */
typedef struct clicks_counted {
    const char *number, *id;
    uint32_t first;
    clicks_transform transform;
} clicks_counted;
static const clicks_counted clicks_of_criteo = {"I", "C", 1, CLICKS_LOG},
                            clicks_of_torchrec = {"int_", "cat_", 0, CLICKS_RAW};

static int clicks_add_counted(clicks_schema *schema, const clicks_counted *of, uint32_t numbers, uint32_t ids,
                              int hex) {
    char name[16];
    for (uint32_t i = 0; i < numbers + ids; i++) {
        int is_id = i >= numbers;
        snprintf(name, sizeof name, "%s%" PRIu32, is_id ? of->id : of->number, of->first + (is_id ? i - numbers : i));
        clicks_column *column = clicks_add_named(schema, is_id ? CLICKS_ID : CLICKS_NUMBER, name);
        if (!column) return -1;
        column->transform = of->transform;
        column->hex = hex;
    }
    return 0;
}

static int clicks_add_avazu(clicks_schema *schema) {
    static const char *const names[] = {
        "hour",       "C1",           "banner_pos", "site_id",   "site_domain",  "site_category", "app_id",
        "app_domain", "app_category", "device_id",  "device_ip", "device_model", "device_type",   "device_conn_type",
        "C14",        "C15",          "C16",        "C17",       "C18",          "C19",           "C20",
        "C21"};
    clicks_column *column = clicks_add_named(schema, CLICKS_SKIP, "id");
    int failed = !column || !clicks_add_named(schema, CLICKS_LABEL, "click");
    for (size_t i = 0; i < sizeof names / sizeof *names && !failed; i++) {
        column = clicks_add_named(schema, CLICKS_ID, names[i]);
        failed = !column;
        if (column && i == 0) column->last = 2; /* YYMMDDHH: the hour of the day */
    }
    return -failed;
}

static int clicks_add_fields(clicks_schema *schema, uint32_t fields) {
    char name[16];
    for (uint32_t i = 0; i < fields; i++) {
        snprintf(name, sizeof name, "field%" PRIu32, i);
        clicks_column *column = clicks_add_named(schema, CLICKS_ID, fields > 1 ? name : "ids");
        if (!column) return -1;
        column->several = column->weighted = 1;
    }
    return 0;
}

int clicks_schema_set_fields(clicks_schema *schema, uint32_t fields, program_error *error) {
    free(schema->feature_columns);
    schema->feature_columns = NULL;
    schema->n_columns = 1, schema->n_features = 0; /* the label stays */
    if (clicks_add_fields(schema, fields)) return program_fail(error, "out of memory for %" PRIu32 " fields", fields);
    return clicks_schema_finish(schema, error);
}

static void clicks_set_labels(clicks_schema *schema) {
    schema->one.n = schema->zero.n = 1;
    clicks_text_set(&schema->one.text[0], "1", 1);
    clicks_text_set(&schema->zero.text[0], "0", 1);
}

/* All columns are added, unless that failed. */
static int clicks_schema_end(clicks_schema *schema, int failed, program_error *error) {
    if (failed) program_fail(error, "out of memory for the schema");
    if (!failed) failed = clicks_schema_finish(schema, error);
    if (failed) clicks_schema_free(schema);
    return failed ? -1 : 0;
}

int clicks_schema_of_format(clicks_schema *schema, clicks_format format, program_error *error) {
    int csv = format != CLICKS_CRITEO, failed;
    *schema = (clicks_schema){.separator = csv ? ',' : '\t', .header = csv, .quotes = 1, .known = 1};
    schema->missing = *clicks_usual_missing(), schema->says_missing = 1;
    clicks_set_labels(schema);
    if (format == CLICKS_LIBSVM || format == CLICKS_LIBFFM) {
        *schema = (clicks_schema){
            .separator = ' ', .form = format == CLICKS_LIBSVM ? CLICKS_INDEXED : CLICKS_FIELDS, .known = 1};
        clicks_set_labels(schema);
        schema->one.n = schema->zero.n = 2;
        clicks_text_set(&schema->one.text[1], "+1", 2);
        clicks_text_set(&schema->zero.text[1], "-1", 2);
        failed = !clicks_add_named(schema, CLICKS_LABEL, "label") || clicks_add_fields(schema, 1);
    } else if (format == CLICKS_AVAZU)
        failed = clicks_add_avazu(schema);
    else
        failed = (csv && !clicks_add_named(schema, CLICKS_SKIP, "Id")) ||
                 !clicks_add_named(schema, CLICKS_LABEL, "Label") ||
                 clicks_add_counted(schema, &clicks_of_criteo, 13, 26, 1);
    return clicks_schema_end(schema, failed, error);
}

/* The label, numbers and ids. */
static int clicks_schema_of_counted(clicks_schema *schema, const clicks_counted *of, uint32_t numbers, uint32_t ids,
                                    program_error *error) {
    if (1 + (uint64_t)numbers + ids > CLICKS_MOST_COLUMNS)
        return program_fail(error, "%" PRIu32 " numbers, %" PRIu32 " ids and the label are more than %d columns",
                            numbers, ids, CLICKS_MOST_COLUMNS);
    clicks_set_labels(schema);
    int failed = !clicks_add_named(schema, CLICKS_LABEL, "label") || clicks_add_counted(schema, of, numbers, ids, 0);
    return clicks_schema_end(schema, failed, error);
}

int clicks_schema_of_arrays(clicks_schema *schema, uint32_t numbers, uint32_t ids, program_error *error) {
    *schema = (clicks_schema){.separator = ',', .header = 1, .known = 1, .says_missing = 1};
    schema->missing = *clicks_usual_missing();
    return clicks_schema_of_counted(schema, &clicks_of_torchrec, numbers, ids, error);
}

int clicks_schema_of_generated(clicks_schema *schema, const clicks_generator *generator, program_error *error) {
    *schema = (clicks_schema){.separator = ',', .header = 1, .quotes = 1};
    if (clicks_schema_of_counted(schema, &clicks_of_criteo, generator->numbers, generator->features, error)) return -1;
    for (uint32_t k = 0; k < generator->features; k++)
        schema->columns[1 + generator->numbers + k].rows = clicks_generator_rows(generator, k);
    return 0;
}
