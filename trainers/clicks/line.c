/* Lines as samples. A line is cut into fields from left to right, and each field is read as its column's kind says. A
 * separator is written after the line, so that the search for the end of a field ends there. */
#include "trainers/clicks/line.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "trainers/clicks/ids.h"
#include "trainers/clicks/number.h"

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
    return clicks_line_fail(line, "column %" PRIu32 " (%.24s) is '%s', %s", (line->order ? line->column : column) + 1,
                            line->schema->columns[column].name.at, shown, what);
}

/* ---- Fields --------------------------------------------------------------------------------------------- */

static int clicks_line_blank(char c) {
    return c == ' ' || c == '\t';
}

int clicks_line_is_empty(const clicks_line *line, const char *text, size_t n) {
    size_t i = 0;
    while (i < n && clicks_line_blank(text[i])) i++;
    return i == n || (text[i] == '#' && line->schema->form != CLICKS_DENSE);
}

static inline char *clicks_field_end(char *at, char separator) {
    while (*at != separator) at++;
    return at;
}

/* `at` is after the opening quote. Doubled quotes become one, in place. Returns the separator after the field, or NULL.
 */
static char *clicks_field_quoted(char separator, char *at, char *end, clicks_field *field) {
    char *to = at;
    *field = (clicks_field){.at = at};
    for (; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) {
        at += *at == '"';
        *to++ = *at;
    }
    if (at == end) return NULL;
    field->n = (size_t)(to - field->at);
    for (at++; at < end && *at != separator; at++)
        if (!clicks_line_blank(*at)) return NULL;
    return at;
}

/* The field at `at`, without blanks around it; returns the separator after it. */
static inline char *clicks_field_read(int quotes, char separator, char *at, char *end, clicks_field *field) {
    while (at < end && clicks_line_blank(*at) && *at != separator) at++;
    if (quotes && *at == '"' && at < end) return clicks_field_quoted(separator, at + 1, end, field);
    char *stop = clicks_field_end(at, separator), *last = stop;
    while (last > at && clicks_line_blank(last[-1])) last--;
    *field = (clicks_field){at, (size_t)(last - at)};
    return stop;
}

char *clicks_line_field(int quotes, char separator, char *at, char *end, clicks_field *field) {
    return clicks_field_read(quotes, separator, at, end, field);
}

/* ---- Columns -------------------------------------------------------------------------------------------- */

/* Is one of the texts this number, however it is written there and here (1, 1.0, 1e0)? */
static int clicks_texts_number(const clicks_texts *texts, double x) {
    double y;
    for (uint32_t i = 0; i < texts->n; i++)
        if (clicks_parse_number(texts->text[i].at, texts->text[i].n, &y) && x >= y && x <= y) return 1;
    return 0;
}

/* 0 or 1; -1: it is neither. */
static int clicks_label_number(const clicks_schema *schema, const clicks_field *field) {
    double x;
    if (!clicks_parse_number(field->at, field->n, &x)) return -1;
    return clicks_texts_number(&schema->one, x) ? 1 : clicks_texts_number(&schema->zero, x) ? 0 : -1;
}

static int clicks_read_label(clicks_line *line, uint32_t column, const clicks_field *field, const clicks_sample *out) {
    const clicks_schema *schema = line->schema;
    int one = clicks_texts_hold(&schema->one, field->at, field->n);
    char what[100];
    if (!one && !clicks_texts_hold(&schema->zero, field->at, field->n) &&
        (one = clicks_label_number(schema, field)) < 0) {
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

static int clicks_is_digits(const clicks_field *field) {
    size_t n = 0;
    while (n < field->n && field->at[n] >= '0' && field->at[n] <= '9') n++;
    return n == field->n;
}

/* One id, with its weight. */
static int clicks_read_one(clicks_line *line, uint32_t column, clicks_field *field, float weight,
                           const clicks_sample *out) {
    const clicks_column *c = &line->schema->columns[column];
    uint64_t id = 0;
    if (c->last && field->n) {
        if (field->n < c->last) return clicks_field_fail(line, column, field, "too short to take its end");
        if (line->schema->known && !clicks_is_digits(field)) /* of Avazu */
            return clicks_field_fail(line, column, field, "must be YYMMDDHH");
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

/* 1: the text means missing, as the schema says; -1: it may mean that, and the schema does not say; 0: it is a value.
 */
static inline int clicks_is_missing(const clicks_schema *schema, const clicks_field *field) {
    int usual =
        schema->known || !schema->says_missing; /* no usual text is long, or begins with a digit: most end here */
    if (!field->n || (usual && (field->n > CLICKS_LONGEST_USUAL || (*field->at >= '0' && *field->at <= '9')))) return 0;
    if (schema->says_missing) return clicks_texts_hold(&schema->missing, field->at, field->n);
    return -clicks_texts_hold(clicks_usual_missing(), field->at, field->n);
}

static int clicks_fail_missing(clicks_line *line, uint32_t column, const clicks_field *field) {
    if (line->schema->known) return clicks_field_fail(line, column, field, "which means missing; leave it out");
    return clicks_field_fail(line, column, field,
                             "missing? Add `missing TEXT` to the schema, or `missing` alone if not");
}

/* An id of a bag, if the text has one. */
static int clicks_read_item(clicks_line *line, uint32_t column, clicks_field item, const clicks_sample *out) {
    float weight = 1;
    while (item.n && clicks_line_blank(*item.at)) item.at++, item.n--;
    while (item.n && clicks_line_blank(item.at[item.n - 1])) item.n--;
    if (!item.n) return 0;
    if (line->schema->columns[column].weighted && clicks_read_weight(line, column, &item, &weight)) return -1;
    int missing = clicks_is_missing(line->schema, &item);
    if (missing) return missing > 0 ? 0 : clicks_fail_missing(line, column, &item);
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
    const clicks_kind kind = line->schema->columns[column].kind;
    int missing = 0;
    if (kind == CLICKS_SKIP) return 0;
    if (kind == CLICKS_LABEL) return clicks_read_label(line, column, field, out);
    missing = clicks_is_missing(line->schema, field);
    if (missing < 0) return clicks_fail_missing(line, column, field);
    if (missing) field->n = 0;
    return kind == CLICKS_ID ? clicks_read_id(line, column, field, out) : clicks_read_number(line, column, field, out);
}

/* ---- Lines ---------------------------------------------------------------------------------------------- */

static int clicks_fail_quote(clicks_line *line, uint32_t at, uint32_t column) {
    const char *name = column < line->schema->n_columns ? line->schema->columns[column].name.at : "one too many";
    return clicks_line_fail(line, "column %" PRIu32 " (%.24s) begins with a quote that does not end the field", at + 1,
                            name);
}

/* Reads each field by `read`, which may refuse it. If there are too many or too few fields, that is the reason given,
 * because it says most. */
static int clicks_each_field(clicks_line *line, char *text, size_t n, const clicks_sample *out) {
    const clicks_schema *schema = line->schema;
    const uint32_t *order = line->n_order ? line->order : NULL;
    char *end = text + n, separator = line->separator ? line->separator : schema->separator;
    uint32_t i = 0, columns = order ? line->n_order : schema->n_columns;
    int status = 0, quotes = schema->quotes;
    if (memchr(text, 0, n)) return clicks_line_fail(line, "a zero byte: is it text?");
    *end = separator;
    for (char *at = text; at <= end; at++, i++) {
        clicks_field field;
        uint32_t column = order && i < columns ? order[i] : i;
        at = clicks_field_read(quotes, separator, at, end, &field);
        if (!at) return clicks_fail_quote(line, i, column);
        line->column = i;
        if (i < columns && !status && column != CLICKS_NO_COLUMN)
            status = clicks_read_column(line, column, &field, out);
    }
    if (i == columns) return status;
    return clicks_line_fail(line, "%" PRIu32 " column%s, must be %" PRIu32, i, i == 1 ? "" : "s", columns);
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

/* Words of SVMlight's form that are no index: the query of a sample that is ranked, its group, its weight. */
static int clicks_is_about_sample(const char *name, size_t n) {
    return (n == 3 && (!memcmp(name, "qid", 3) || !memcmp(name, "sid", 3))) || (n == 4 && !memcmp(name, "cost", 4));
}

static int clicks_read_indexed_word(clicks_line *line, clicks_field *word, const clicks_sample *out) {
    uint32_t field = 0;
    if (line->schema->form == CLICKS_FIELDS && clicks_read_field_number(line, word, &field)) return -1;
    if (field >= line->schema->n_features) field = 0; /* only checked */
    const char *colon = memchr(word->at, ':', word->n);
    if (colon && clicks_is_about_sample(word->at, (size_t)(colon - word->at)))
        return clicks_field_fail(line, 1 + field, word, "which is about the sample, and no id; leave it out");
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
    int status = line->schema->form == CLICKS_DENSE ? clicks_each_field(line, text, n, out)
                                                    : clicks_read_indexed(line, text, n, out);
    if (!status && out && line->schema->bags) *out->count = line->ids;
    return status;
}

/* ---- The first line -------------------------------------------------------------------------------------- */

/* Letters of either case are alike: headers differ in that. */
static int clicks_is_name(const clicks_field *field, const char *name) {
    return field->n == strlen(name) && !strncasecmp(field->at, name, field->n);
}

char clicks_line_separator(const char *of, const char *text, size_t n) {
    char best = *of;
    for (size_t most = 0; *of; of++) {
        size_t found = 0;
        for (size_t i = 0; i < n; i++) found += text[i] == *of;
        if (found > most) most = found, best = *of;
    }
    return best;
}

static char clicks_find_separator(const char *text, size_t n) {
    return clicks_line_separator(",\t;", text, n);
}

/* TorchRec's names of Criteo's columns count from 0: int_0 is I1, cat_0 is C1. */
static int clicks_is_counted_name(const clicks_field *name, const char *is) {
    char other[32];
    const char *kind = *is == 'I' ? "int" : *is == 'C' ? "cat" : NULL;
    if (!kind || is[1] < '1' || is[1] > '9') return 0;
    snprintf(other, sizeof other, "%s_%ld", kind, strtol(is + 1, NULL, 10) - 1);
    return clicks_is_name(name, other);
}

/* The schema's column of this name; as it is written, or else in another case; CLICKS_NO_COLUMN: none. */
static uint32_t clicks_find_column(const clicks_schema *schema, const clicks_field *name) {
    uint32_t found = CLICKS_NO_COLUMN;
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        const clicks_text *is = &schema->columns[i].name;
        if (is->n == name->n && !memcmp(is->at, name->at, name->n)) return i;
        if (found == CLICKS_NO_COLUMN &&
            (clicks_is_name(name, is->at) || (schema->known && clicks_is_counted_name(name, is->at))))
            found = i;
    }
    return found;
}

/* The file's next column has this name. An index that pandas writes has none. */
static int clicks_take_name(clicks_line *line, const clicks_field *name) {
    const clicks_schema *schema = line->schema;
    uint32_t at = line->n_order, column = clicks_find_column(schema, name);
    int shown = name->n < 40 ? (int)name->n : 40;
    if (at == CLICKS_MOST_COLUMNS) return clicks_line_fail(line, "more than %d columns", CLICKS_MOST_COLUMNS);
    if (column == CLICKS_NO_COLUMN && (name->n || !schema->known))
        return clicks_line_fail(line, "column %" PRIu32 " is '%.*s', which is none of %s", at + 1, shown, name->at,
                                schema->known ? "the format's; describe the columns by a schema, with `skip` for this"
                                              : "the schema's; add a line for it, `skip` and its name");
    for (uint32_t i = 0; i < at && column != CLICKS_NO_COLUMN; i++)
        if (line->order[i] == column)
            return clicks_line_fail(line, "columns %" PRIu32 " and %" PRIu32 " are both '%.*s'", i + 1, at + 1, shown,
                                    name->at);
    line->order[at] = column;
    line->n_order++;
    return 0;
}

/* Only columns that are skipped may be missing. */
static int clicks_check_names(clicks_line *line) {
    const clicks_schema *schema = line->schema;
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        int there = schema->columns[i].kind == CLICKS_SKIP;
        for (uint32_t k = 0; k < line->n_order && !there; k++) there = line->order[k] == i;
        if (!there) return clicks_line_fail(line, "no column is named '%s'", schema->columns[i].name.at);
    }
    return 0;
}

int clicks_line_header(clicks_line *line, char *text, size_t n) {
    const clicks_schema *schema = line->schema;
    char *end = text + n;
    line->separator = schema->known ? clicks_find_separator(text, n) : schema->separator;
    line->n_order = 0;
    *end = line->separator;
    for (char *at = text; at <= end; at++) {
        clicks_field name;
        at = clicks_field_read(schema->quotes, line->separator, at, end, &name);
        if (!at) return clicks_line_fail(line, "a name begins with a quote that does not end it");
        if (clicks_take_name(line, &name)) return -1;
    }
    return clicks_check_names(line);
}

int clicks_line_names(const char *text, size_t n, const char *const *names) {
    char separator = clicks_find_separator(text, n);
    for (; *names; names++) {
        int there = 0;
        for (size_t at = 0, end; at <= n && !there; at = end + 1) {
            for (end = at; end < n && text[end] != separator;) end++;
            clicks_field field = {(char *)(uintptr_t)text + at, end - at};
            while (field.n && (clicks_line_blank(*field.at) || *field.at == '"')) field.at++, field.n--;
            while (field.n && (clicks_line_blank(field.at[field.n - 1]) || field.at[field.n - 1] == '"')) field.n--;
            there = clicks_is_name(&field, *names);
        }
        if (!there) return 0;
    }
    return 1;
}
