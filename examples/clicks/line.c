/* Lines as samples. A line is cut into fields from left to right, and each field is read as its column's kind says. A
 * separator is written after the line, so that the search for the end of a field ends there. */
#include "examples/clicks/line.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "examples/clicks/ids.h"
#include "examples/clicks/number.h"

typedef struct clicks_field {
    char *at;
    size_t n;
} clicks_field;

/* ---- Reasons -------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int clicks_line_fail(clicks_line *line, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(line->reason, sizeof line->reason, format, list);
    va_end(list);
    return -1;
}

/* "column 3 (I2) is 'abc'": as much of the file's text as fits, without odd bytes. */
static int clicks_field_fail(clicks_line *line, uint32_t column, const clicks_field *field, const char *what) {
    char shown[28];
    size_t n = field->n < sizeof shown - 1 ? field->n : sizeof shown - 1;
    for (size_t i = 0; i < n; i++) shown[i] = field->at[i] >= ' ' && field->at[i] < 127 ? field->at[i] : '?';
    if (n < field->n) memcpy(shown + n - 3, "...", 3);
    shown[n] = 0;
    return clicks_line_fail(line, "column %" PRIu32 " (%.24s) is '%s', %s", column + 1,
                            line->schema->columns[column].name.at, shown, what);
}

/* ---- Fields --------------------------------------------------------------------------------------------- */

static int clicks_line_blank(char c) {
    return c == ' ' || c == '\t';
}

int clicks_line_is_blank(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && clicks_line_blank(text[i])) i++;
    return i == n;
}

static inline char *clicks_field_end(char *at, char separator) {
    while (*at != separator) at++;
    return at;
}

/* `at` is after the opening quote. Doubled quotes become one, in place. Returns the separator after the field, or NULL.
 */
static char *clicks_field_quoted(const clicks_schema *schema, char *at, char *end, clicks_field *field) {
    char *to = at;
    *field = (clicks_field){.at = at};
    for (; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) {
        at += *at == '"';
        *to++ = *at;
    }
    if (at == end) return NULL;
    field->n = (size_t)(to - field->at);
    for (at++; at < end && *at != schema->separator; at++)
        if (!clicks_line_blank(*at)) return NULL;
    return at;
}

/* The field at `at`, without blanks around it; returns the separator after it. */
static inline char *clicks_field_read(const clicks_schema *schema, char *at, char *end, clicks_field *field) {
    char separator = schema->separator;
    while (at < end && clicks_line_blank(*at) && *at != separator) at++;
    if (schema->quotes && *at == '"' && at < end) return clicks_field_quoted(schema, at + 1, end, field);
    char *stop = clicks_field_end(at, separator), *last = stop;
    while (last > at && clicks_line_blank(last[-1])) last--;
    *field = (clicks_field){at, (size_t)(last - at)};
    return stop;
}

/* ---- Columns -------------------------------------------------------------------------------------------- */

static int clicks_read_label(clicks_line *line, uint32_t column, const clicks_field *field, const clicks_sample *out) {
    const clicks_schema *schema = line->schema;
    int one = clicks_texts_hold(&schema->one, field->at, field->n);
    char what[100];
    if (!one && !clicks_texts_hold(&schema->zero, field->at, field->n)) {
        snprintf(what, sizeof what, "must be '%.30s' or '%.30s'", schema->one.text[0].at, schema->zero.text[0].at);
        return clicks_field_fail(line, column, field, what);
    }
    if (out) *out->label = (float)one;
    return 0;
}

/* An id of the sample; weight: of its row in a bag. */
static int clicks_put_id(clicks_line *line, uint32_t feature, uint64_t id, float weight, const clicks_sample *out) {
    uint32_t at = line->ids;
    if (!line->schema->bags) {
        if (out) out->ids[feature * out->stride] = id;
        return 0;
    }
    if (line->most && at == line->most)
        return clicks_line_fail(line, "more than %" PRIu32 " ids, which is the most that a sample may have", at);
    if (out) out->ids[at] = id, out->features[at] = feature, out->weights[at] = weight;
    line->ids++;
    return 0;
}

/* Of the table of the column's feature. */
static uint64_t clicks_table_rows(const clicks_line *line, uint32_t column) {
    const clicks_schema *schema = line->schema;
    return schema->columns[schema->feature_columns[schema->columns[column].feature]].rows;
}

/* A row below the table's rows, decimal or hexadecimal. */
static int clicks_given_row(clicks_line *line, uint32_t column, const clicks_field *field, uint64_t *row) {
    const clicks_column *c = &line->schema->columns[column];
    uint64_t base = c->hex ? 16 : 10, sum = 0, rows = clicks_table_rows(line, column);
    int good = field->n > 0;
    char what[100];
    for (size_t i = 0; i < field->n && good; i++) {
        unsigned digit = (unsigned)(unsigned char)field->at[i] - '0', letter = ((unsigned)field->at[i] | 32u) - 'a';
        uint64_t value = digit < 10 ? digit : letter < 6 ? letter + 10 : base;
        good = value < base && sum <= (rows - 1) / base; /* nothing overflows because rows < 2^63 */
        if (good) sum = sum * base + value;
    }
    *row = sum;
    if (good && sum < rows) return 0;
    snprintf(what, sizeof what, "must be a%s row below %" PRIu64, c->hex ? " hexadecimal" : "", rows);
    return clicks_field_fail(line, column, field, what);
}

/* One id, with its weight. */
static int clicks_read_one(clicks_line *line, uint32_t column, clicks_field *field, float weight,
                           const clicks_sample *out) {
    const clicks_column *c = &line->schema->columns[column];
    uint64_t id = 0;
    if (c->last && field->n) {
        if (field->n < c->last) return clicks_field_fail(line, column, field, "too short to take its end");
        field->at += field->n - c->last;
        field->n = c->last;
    }
    if (line->given) {
        if (clicks_given_row(line, column, field, &id)) return -1;
    } else if (out)
        id = clicks_hash(field->at, field->n);
    return clicks_put_id(line, c->feature, id, weight, out);
}

/* The number behind the last colon of the field, which is cut off with it. */
static int clicks_read_weight(clicks_line *line, uint32_t column, clicks_field *field, float *weight) {
    const char *colon = memrchr(field->at, ':', field->n);
    size_t before = colon ? (size_t)(colon - field->at) : 0;
    double x;
    if (!before || !clicks_parse_number(colon + 1, field->n - before - 1, &x) || !(fabs(x) <= FLT_MAX))
        return clicks_field_fail(line, column, field, "must be an id, a colon and a number");
    *weight = (float)x;
    field->n = before;
    return 0;
}

/* An id of a bag, if the text has one. */
static int clicks_read_item(clicks_line *line, uint32_t column, clicks_field item, const clicks_sample *out) {
    float weight = 1;
    while (item.n && clicks_line_blank(*item.at)) item.at++, item.n--;
    while (item.n && clicks_line_blank(item.at[item.n - 1])) item.n--;
    if (!item.n) return 0;
    if (line->schema->columns[column].weighted && clicks_read_weight(line, column, &item, &weight)) return -1;
    return clicks_read_one(line, column, &item, weight, out);
}

static int clicks_read_id(clicks_line *line, uint32_t column, clicks_field *field, const clicks_sample *out) {
    const clicks_column *c = &line->schema->columns[column];
    char *at = field->at, *end = field->at + field->n, *stop;
    if (!c->several) return clicks_read_one(line, column, field, 1, out);
    for (; c->bag && (stop = memchr(at, c->bag, (size_t)(end - at))); at = stop + 1)
        if (clicks_read_item(line, column, (clicks_field){at, (size_t)(stop - at)}, out)) return -1;
    return clicks_read_item(line, column, (clicks_field){at, (size_t)(end - at)}, out);
}

/* The number as an id; `field` is empty where there is none. */
static int clicks_read_bucket(clicks_line *line, uint32_t column, const clicks_field *field, double x,
                              const clicks_sample *out) {
    const clicks_column *c = &line->schema->columns[column];
    double bucket = floor((c->bucket == CLICKS_LOG ? clicks_log(x) : x) / c->width);
    uint64_t id;
    char what[100];
    if (!(fabs(bucket) < 0x1p53)) return clicks_field_fail(line, column, field, "too far for a bucket of that width");
    if (line->given && (!field->n || bucket < 0 || bucket >= (double)c->rows)) {
        snprintf(what, sizeof what, "must be a number of a bucket below %" PRIu64, c->rows);
        return clicks_field_fail(line, column, field, what);
    }
    if (line->given)
        id = (uint64_t)bucket;
    else
        id = field->n ? clicks_hash_number((int64_t)bucket) : clicks_hash("", 0);
    return clicks_put_id(line, c->feature, id, 1, out);
}

/* Most numbers are short and whole. */
static inline int clicks_read_digits(const clicks_field *field, double *x) {
    uint32_t sum = 0;
    if (field->n > 9) return 0;
    for (size_t i = 0; i < field->n; i++) {
        uint32_t digit = (uint32_t)(unsigned char)field->at[i] - '0';
        if (digit > 9) return 0;
        sum = sum * 10 + digit;
    }
    *x = sum;
    return 1;
}

static int clicks_read_number(clicks_line *line, uint32_t column, const clicks_field *field, const clicks_sample *out) {
    const clicks_column *c = &line->schema->columns[column];
    double x = 0;
    if (!clicks_read_digits(field, &x) && !clicks_parse_number(field->at, field->n, &x))
        return clicks_field_fail(line, column, field, "must be a number");
    if (!(fabs(x) <= FLT_MAX)) return clicks_field_fail(line, column, field, "more than a float can hold");
    if (c->transform == CLICKS_SCALE && !(fabs((x - c->subtract) / c->divide) <= FLT_MAX))
        return clicks_field_fail(line, column, field, "more than a float can hold when it is scaled");
    if (c->width > 0 && clicks_read_bucket(line, column, field, x, out)) return -1;
    if (!out) return 0;
    float value = field->n ? clicks_transformed(c, x) : 0;
    out->numbers[c->number] = value;
    return 0;
}

static int clicks_read_column(clicks_line *line, uint32_t column, clicks_field *field, const clicks_sample *out) {
    const clicks_schema *schema = line->schema;
    switch (schema->columns[column].kind) {
    case CLICKS_LABEL:
        return clicks_read_label(line, column, field, out);
    case CLICKS_NUMBER:
    case CLICKS_ID:
        if (schema->missing.n && clicks_texts_hold(&schema->missing, field->at, field->n)) field->n = 0;
        return schema->columns[column].kind == CLICKS_ID ? clicks_read_id(line, column, field, out)
                                                         : clicks_read_number(line, column, field, out);
    case CLICKS_SKIP:
        break;
    }
    return 0;
}

/* ---- Lines ---------------------------------------------------------------------------------------------- */

static int clicks_fail_quote(clicks_line *line, uint32_t column) {
    const clicks_schema *schema = line->schema;
    return clicks_line_fail(line, "column %" PRIu32 " (%.24s) begins with a quote that does not end the field",
                            column + 1, column < schema->n_columns ? schema->columns[column].name.at : "one too many");
}

/* Reads each field by `read`, which may refuse it. If there are too many or too few fields, that is the reason given,
 * because it says most. */
static int clicks_each_field(clicks_line *line, char *text, size_t n, const clicks_sample *out,
                             int (*read)(clicks_line *, uint32_t, clicks_field *, const clicks_sample *)) {
    const clicks_schema *schema = line->schema;
    char *end = text + n;
    int status = 0;
    uint32_t i = 0;
    if (memchr(text, 0, n)) return clicks_line_fail(line, "a zero byte: is it text?");
    *end = schema->separator;
    for (char *at = text; at <= end; at++, i++) {
        clicks_field field;
        at = clicks_field_read(schema, at, end, &field);
        if (!at) return clicks_fail_quote(line, i);
        if (i < schema->n_columns && !status) status = read(line, i, &field, out);
    }
    if (i == schema->n_columns) return status;
    return clicks_line_fail(line, "%" PRIu32 " column%s, must be %" PRIu32, i, i == 1 ? "" : "s", schema->n_columns);
}

/* ---- index:value and field:index:value ------------------------------------------------------------------ */

/* The word at `at`, up to a blank or the end, where a blank stands. */
static char *clicks_word_end(char *at) {
    while (!clicks_line_blank(*at)) at++;
    return at;
}

/* The field's number and a colon in front of the word, which are cut off. */
static int clicks_read_field_number(clicks_line *line, clicks_field *word, uint32_t *number) {
    const clicks_schema *schema = line->schema;
    uint32_t most = line->any_field ? CLICKS_MOST_COLUMNS - 1 : schema->n_features, sum = 0;
    size_t i = 0;
    for (; i < word->n && word->at[i] >= '0' && word->at[i] <= '9' && sum < most; i++)
        sum = 10 * sum + (uint32_t)(word->at[i] - '0');
    if (i && sum >= most) return clicks_line_fail(line, "a field from %" PRIu32 " on, must be below it", most);
    if (!i || i == word->n || word->at[i] != ':' || !memchr(word->at + i + 1, ':', word->n - i - 1))
        return clicks_field_fail(line, 1, word, "must be field:index:value");
    word->at += i + 1, word->n -= i + 1;
    *number = sum;
    if (sum >= line->fields) line->fields = sum + 1;
    return 0;
}

static int clicks_read_indexed_word(clicks_line *line, clicks_field *word, const clicks_sample *out) {
    uint32_t field = 0;
    if (line->schema->form == CLICKS_FIELDS && clicks_read_field_number(line, word, &field)) return -1;
    if (field >= line->schema->n_features) field = 0; /* only checked */
    const char *colon = memchr(word->at, ':', word->n);
    if (!colon || colon == word->at || memchr(colon + 1, ':', word->n - (size_t)(colon + 1 - word->at)))
        return clicks_field_fail(line, 1 + field, word, "must be index:value");
    return clicks_read_item(line, 1 + field, *word, out);
}

/* The label, and ids with weights. `#` begins a comment. */
static int clicks_read_indexed(clicks_line *line, char *text, size_t n, const clicks_sample *out) {
    char *at = text, *end = text + n;
    if (memchr(text, 0, n)) return clicks_line_fail(line, "a zero byte: is it text?");
    *end = ' ';
    for (int words = 0, unlabelled = line->schema->unlabelled;; words++) {
        while (at < end && clicks_line_blank(*at)) at++;
        if (at == end || *at == '#') return words ? 0 : clicks_line_fail(line, "no label");
        char *stop = clicks_word_end(at);
        clicks_field word = {at, (size_t)(stop - at)};
        at = stop;
        if (!words && unlabelled && !memchr(word.at, ':', word.n)) continue; /* a label, which is not read */
        if (words || unlabelled ? clicks_read_indexed_word(line, &word, out) : clicks_read_label(line, 0, &word, out))
            return -1;
    }
}

int clicks_line_read(clicks_line *line, char *text, size_t n, const clicks_sample *out) {
    line->ids = line->fields = 0;
    if (out && line->schema->unlabelled) *out->label = 0;
    int status = line->schema->form == CLICKS_DENSE ? clicks_each_field(line, text, n, out, clicks_read_column)
                                                    : clicks_read_indexed(line, text, n, out);
    if (!status && out && line->schema->bags) *out->count = line->ids;
    return status;
}

static int clicks_read_name(clicks_line *line, uint32_t column, clicks_field *field, const clicks_sample *out) {
    const clicks_text *name = &line->schema->columns[column].name;
    char what[100];
    (void)out;
    if (field->n == name->n && !memcmp(field->at, name->at, name->n)) return 0;
    snprintf(what, sizeof what, "must be its name '%s'", name->at);
    return clicks_field_fail(line, column, field, what);
}

int clicks_line_header(clicks_line *line, char *text, size_t n) {
    return clicks_each_field(line, text, n, NULL, clicks_read_name);
}
