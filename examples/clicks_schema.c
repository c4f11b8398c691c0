/* Schemas: those of the known formats, and those read from files. */
#include "clicks_schema.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Texts and numbers ---------------------------------------------------------------------------------- */

int clicks_texts_hold(const clicks_texts *texts, const char *text, size_t n) {
    for (uint32_t i = 0; i < texts->n; i++)
        if (texts->text[i].n == n && !memcmp(texts->text[i].at, text, n)) return 1;
    return 0;
}

double clicks_log(double x) {
    return copysign(log1p(fabs(x)), x);
}

float clicks_transformed(const clicks_column *column, double x) {
    if (column->transform == CLICKS_LOG) return (float)clicks_log(x);
    return (float)(column->transform == CLICKS_SCALE ? (x - column->subtract) / column->divide : x);
}

static double clicks_power_of_ten(int n) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    return powers[n];
}

static double clicks_scaled(double x, int exponent) {
    for (; exponent > 22; exponent -= 22) x *= clicks_power_of_ten(22);
    for (; exponent < -22; exponent += 22) x /= clicks_power_of_ten(22);
    return exponent < 0 ? x / clicks_power_of_ten(-exponent) : x * clicks_power_of_ten(exponent);
}

static int clicks_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Of the digits that `at` points to; further ones than fit only shift. */
static const char *clicks_digits(const char *at, const char *end, uint64_t *digits, int *dropped, int *seen) {
    for (; at < end && clicks_is_digit(*at); at++, ++*seen) {
        if (*digits > (UINT64_MAX - 9) / 10)
            ++*dropped;
        else
            *digits = *digits * 10 + (uint64_t)(*at - '0');
    }
    return at;
}

int clicks_parse_number(const char *text, size_t n, double *number) {
    const char *at = text, *end = text + n;
    uint64_t digits = 0;
    int dropped = 0, seen = 0, exponent = 0, minus = at < end && *at == '-';
    if (n > 400) return 0; /* counts below fit */
    at += at < end && (*at == '-' || *at == '+');
    at = clicks_digits(at, end, &digits, &dropped, &seen);
    exponent = dropped;
    if (at < end && *at == '.') {
        int kept = seen - dropped;
        at = clicks_digits(at + 1, end, &digits, &dropped, &seen);
        exponent -= seen - dropped - kept;
    }
    if (!seen) return 0;
    if (at < end && (*at == 'e' || *at == 'E')) {
        uint64_t shift = 0;
        int more = 0, shift_seen = 0, down = ++at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        at = clicks_digits(at, end, &shift, &more, &shift_seen);
        if (!shift_seen) return 0;
        if (more || shift > 10000) shift = 10000;
        exponent += down ? -(int)shift : (int)shift;
    }
    if (at < end) return 0;
    double x = digits ? clicks_scaled((double)digits, exponent) : 0;
    *number = minus ? -x : x;
    return 1;
}

/* ---- Building ------------------------------------------------------------------------------------------- */

static int clicks_text_set(clicks_text *text, const char *from, size_t n) {
    if (n > CLICKS_LONGEST_TEXT) return -1;
    memcpy(text->at, from, n);
    text->at[n] = 0;
    text->n = (uint32_t)n;
    return 0;
}

/* A new column of zeros; NULL: out of memory, or too many. */
static clicks_column *clicks_schema_add(clicks_schema *schema, clicks_kind kind) {
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

/* Numbers the columns' numbers and features. */
static int clicks_schema_finish(clicks_schema *schema, program_error *error) {
    schema->feature_columns = malloc(((size_t)schema->n_columns + 1) * sizeof *schema->feature_columns);
    if (!schema->feature_columns)
        return program_fail(error, "out of memory for %" PRIu32 " columns", schema->n_columns);
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        clicks_column *column = &schema->columns[i];
        if (column->kind == CLICKS_NUMBER) column->number = schema->n_numbers++;
        if (column->kind != CLICKS_ID && !(column->width > 0)) continue;
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

/* ---- Known formats -------------------------------------------------------------------------------------- */

static clicks_column *clicks_add_named(clicks_schema *schema, clicks_kind kind, const char *name) {
    clicks_column *column = clicks_schema_add(schema, kind);
    if (column) clicks_text_set(&column->name, name, strlen(name));
    return column;
}

/* I1..., by logarithm, then C1... */
static int clicks_add_numbered(clicks_schema *schema, uint32_t numbers, uint32_t features, uint64_t rows, int hex) {
    char name[16];
    for (uint32_t i = 0; i < numbers + features; i++) {
        int is_id = i >= numbers;
        snprintf(name, sizeof name, "%c%" PRIu32, is_id ? 'C' : 'I', is_id ? i - numbers + 1 : i + 1);
        clicks_column *column = clicks_add_named(schema, is_id ? CLICKS_ID : CLICKS_NUMBER, name);
        if (!column) return -1;
        column->transform = CLICKS_LOG;
        column->rows = is_id ? rows : 0;
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

static void clicks_set_labels(clicks_schema *schema) {
    schema->one.n = schema->zero.n = 1;
    clicks_text_set(&schema->one.text[0], "1", 1);
    clicks_text_set(&schema->zero.text[0], "0", 1);
}

int clicks_schema_of_format(clicks_schema *schema, clicks_format format, program_error *error) {
    int csv = format != CLICKS_CRITEO, failed;
    *schema = (clicks_schema){.separator = csv ? ',' : '\t', .header = csv, .quotes = csv};
    clicks_set_labels(schema);
    if (format == CLICKS_AVAZU)
        failed = clicks_add_avazu(schema);
    else
        failed = (csv && !clicks_add_named(schema, CLICKS_SKIP, "Id")) ||
                 !clicks_add_named(schema, CLICKS_LABEL, "Label") || clicks_add_numbered(schema, 13, 26, 0, 1);
    if (failed) program_fail(error, "out of memory for the schema");
    if (!failed) failed = clicks_schema_finish(schema, error);
    if (failed) clicks_schema_free(schema);
    return failed ? -1 : 0;
}

int clicks_schema_of_generated(clicks_schema *schema, const clicks_generator *generator, program_error *error) {
    uint64_t columns = 1 + (uint64_t)generator->numbers + generator->features;
    *schema = (clicks_schema){.separator = ',', .header = 1, .quotes = 1};
    if (columns > CLICKS_MOST_COLUMNS)
        return program_fail(error, "%" PRIu32 " numbers, %" PRIu32 " ids and the label are more than %d columns",
                            generator->numbers, generator->features, CLICKS_MOST_COLUMNS);
    clicks_set_labels(schema);
    int failed = !clicks_add_named(schema, CLICKS_LABEL, "label") ||
                 clicks_add_numbered(schema, generator->numbers, generator->features, generator->rows, 0);
    if (failed) program_fail(error, "out of memory for %" PRIu64 " columns", columns);
    if (!failed) failed = clicks_schema_finish(schema, error);
    if (failed) clicks_schema_free(schema);
    return failed ? -1 : 0;
}

/* ---- Schema files --------------------------------------------------------------------------------------- */

typedef struct clicks_word {
    const char *at;
    size_t n;
    int quoted;
} clicks_word;

typedef struct clicks_statements {
    clicks_schema *schema;
    const char *path, *at, *end; /* what is left of the line */
    uint64_t line;
    int said[4]; /* separator, header, quotes, missing: where, 0: nowhere yet */
    int labels;
    program_error *error;
} clicks_statements;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static int
clicks_statement_fail(clicks_statements *s, const char *format, ...) {
    char what[300];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    return program_fail(s->error, "%.180s:%" PRIu64 ": %s", s->path, s->line, what);
}

static int clicks_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* 1: a word; 0: the line is over; -1: error. */
static int clicks_word_next(clicks_statements *s, clicks_word *word) {
    while (s->at < s->end && clicks_is_blank(*s->at)) s->at++;
    *word = (clicks_word){.at = s->at};
    if (s->at == s->end || *s->at == '#') {
        s->at = s->end;
        return 0;
    }
    if (*s->at != '"') {
        while (s->at < s->end && !clicks_is_blank(*s->at)) s->at++;
        word->n = (size_t)(s->at - word->at);
        return 1;
    }
    s->at++;
    const char *quote = memchr(s->at, '"', (size_t)(s->end - s->at));
    if (!quote) return clicks_statement_fail(s, "a quote is opened and not closed on the line");
    *word = (clicks_word){.at = s->at, .n = (size_t)(quote - s->at), .quoted = 1};
    s->at = quote + 1;
    if (s->at < s->end && !clicks_is_blank(*s->at))
        return clicks_statement_fail(s, "behind a closing quote must be a blank (words hold no quotes)");
    return 1;
}

static int clicks_word_is(const clicks_word *word, const char *keyword) {
    return !word->quoted && word->n == strlen(keyword) && !memcmp(word->at, keyword, word->n);
}

static int clicks_statement_end(clicks_statements *s, const char *form) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got > 0)
        return clicks_statement_fail(s, "'%.*s' is one word too much; write %s", (int)(word.n < 40 ? word.n : 40),
                                     word.at, form);
    return got;
}

/* The next word as a text that is kept. */
static int clicks_statement_text(clicks_statements *s, clicks_text *text, const clicks_word *word, const char *what) {
    if (memchr(word->at, 0, word->n)) return clicks_statement_fail(s, "%s holds a zero byte", what);
    if (!word->n) return clicks_statement_fail(s, "%s is empty", what);
    if (clicks_text_set(text, word->at, word->n))
        return clicks_statement_fail(s, "%s has %zu bytes, may have %d", what, word->n, CLICKS_LONGEST_TEXT);
    return 0;
}

static int clicks_texts_add(clicks_statements *s, clicks_texts *texts, const clicks_word *word, const char *what) {
    if (texts->n == CLICKS_MOST_TEXTS)
        return clicks_statement_fail(s, "%s: more than %d texts", what, CLICKS_MOST_TEXTS);
    if (clicks_statement_text(s, &texts->text[texts->n], word, what)) return -1;
    texts->n++;
    return 0;
}

/* A positive number, or (`any`) one of either sign; a float can hold it. */
static int clicks_statement_real(clicks_statements *s, int any, const char *what, double *value) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    if (!got || !clicks_parse_number(word.at, word.n, value) || !(any || *value > 0) || fabs(*value) > FLT_MAX ||
        (*value != 0 && fabs(*value) < FLT_MIN))
        return clicks_statement_fail(s, "%s must be followed by %s within what a float can hold, not '%.*s'", what,
                                     any ? "numbers" : "a number above 0", (int)(word.n < 40 ? word.n : 40), word.at);
    return 0;
}

static int clicks_statement_whole(clicks_statements *s, uint64_t most, const char *what, uint64_t *value) {
    clicks_word word;
    uint64_t sum = 0;
    int got = clicks_word_next(s, &word), good = got > 0 && word.n > 0;
    if (got < 0) return -1;
    for (size_t i = 0; i < word.n && good; i++) {
        good = clicks_is_digit(word.at[i]);
        if (good) sum = sum * 10 + (uint64_t)(word.at[i] - '0');
        good = good && sum <= most;
    }
    if (!good || !sum)
        return clicks_statement_fail(s, "%s must be followed by a whole number from 1 to %" PRIu64 ", not '%.*s'", what,
                                     most, (int)(word.n < 40 ? word.n : 40), word.at);
    *value = sum;
    return 0;
}

static int clicks_statement_separator(clicks_statements *s) {
    static const char *const form = "`separator comma`, tab, semicolon, space, or the character itself";
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    int c = word.n == 1 ? (unsigned char)*word.at : 0;
    if (clicks_word_is(&word, "comma")) c = ',';
    if (clicks_word_is(&word, "tab")) c = '\t';
    if (clicks_word_is(&word, "semicolon")) c = ';';
    if (clicks_word_is(&word, "space")) c = ' ';
    if (c == 0 || c >= 127 || isalnum(c) || strchr("\"-+.", c))
        return clicks_statement_fail(s, "write %s; no letter, digit, sign, point or quote can be it", form);
    s->schema->separator = (char)c;
    return clicks_statement_end(s, form);
}

static int clicks_statement_yes(clicks_statements *s, const char *what, int *yes) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    *yes = clicks_word_is(&word, "yes");
    if (!*yes && !clicks_word_is(&word, "no")) return clicks_statement_fail(s, "write `%s yes` or `%s no`", what, what);
    return clicks_statement_end(s, "yes or no alone");
}

static int clicks_statement_missing(clicks_statements *s) {
    clicks_word word;
    int got;
    while ((got = clicks_word_next(s, &word)) > 0)
        if (clicks_texts_add(s, &s->schema->missing, &word, "what means missing")) return -1;
    if (!got && !s->schema->missing.n)
        return clicks_statement_fail(s, "write `missing TEXT...`; empty fields always are");
    return got;
}

static int clicks_statement_label(clicks_statements *s) {
    clicks_schema *schema = s->schema;
    clicks_texts *texts = NULL;
    clicks_word word;
    int got;
    if (s->labels++) return clicks_statement_fail(s, "a second label; a sample has one");
    while ((got = clicks_word_next(s, &word)) > 0) {
        if (clicks_word_is(&word, "one"))
            texts = &schema->one;
        else if (clicks_word_is(&word, "zero"))
            texts = &schema->zero;
        else if (!texts)
            break;
        else if (clicks_texts_add(s, texts, &word, "the label's text"))
            return -1;
    }
    if (got < 0) return -1;
    if (got || !schema->one.n || !schema->zero.n)
        return clicks_statement_fail(s, "write `label NAME one TEXT... zero TEXT...`, the texts that mean 1 and 0");
    for (uint32_t i = 0; i < schema->one.n; i++) {
        const clicks_text *text = &schema->one.text[i];
        if (clicks_texts_hold(&schema->zero, text->at, text->n))
            return clicks_statement_fail(s, "the label '%s' means both 1 and 0", text->at);
    }
    return 0;
}

static int clicks_statement_number(clicks_statements *s, clicks_column *column) {
    static const char *const form = "`number NAME [raw | log | scale A B] [bucket W | logbucket W] [rows N]`";
    clicks_word word;
    int got, transforms = 0, buckets = 0, rows = 0, failed = 0;
    while (!failed && (got = clicks_word_next(s, &word)) > 0) {
        int log_bucket = clicks_word_is(&word, "logbucket");
        if (clicks_word_is(&word, "raw") && !transforms++)
            continue;
        else if (clicks_word_is(&word, "log") && !transforms++)
            column->transform = CLICKS_LOG;
        else if (clicks_word_is(&word, "scale") && !transforms++) {
            column->transform = CLICKS_SCALE;
            failed = clicks_statement_real(s, 1, "scale", &column->subtract) ||
                     clicks_statement_real(s, 1, "scale", &column->divide);
            if (!failed && column->divide == 0) failed = clicks_statement_fail(s, "scale divides by 0");
        } else if ((log_bucket || clicks_word_is(&word, "bucket")) && !buckets++) {
            column->bucket = log_bucket ? CLICKS_LOG : CLICKS_RAW;
            failed = clicks_statement_real(s, 0, "bucket", &column->width);
        } else if (clicks_word_is(&word, "rows") && buckets && !rows++)
            failed = clicks_statement_whole(s, INT64_MAX, "rows", &column->rows);
        else
            failed = clicks_statement_fail(s, "'%.*s' does not fit there; write %s", (int)(word.n < 40 ? word.n : 40),
                                           word.at, form);
    }
    return failed || got < 0 ? -1 : 0;
}

static int clicks_statement_id(clicks_statements *s, clicks_column *column) {
    clicks_word word;
    uint64_t last = 0;
    int got, failed = 0;
    while (!failed && (got = clicks_word_next(s, &word)) > 0) {
        if (clicks_word_is(&word, "rows") && !column->rows)
            failed = clicks_statement_whole(s, INT64_MAX, "rows", &column->rows);
        else if (clicks_word_is(&word, "last") && !last)
            failed = clicks_statement_whole(s, 1000, "last", &last);
        else if (clicks_word_is(&word, "hex") && !column->hex)
            column->hex = 1;
        else
            failed = clicks_statement_fail(s, "'%.*s' does not fit there; write `id NAME [rows N] [last N] [hex]`",
                                           (int)(word.n < 40 ? word.n : 40), word.at);
    }
    column->last = (uint32_t)last;
    return failed || got < 0 ? -1 : 0;
}

static int clicks_statement_column(clicks_statements *s, clicks_kind kind) {
    static const char *const kinds[] = {"skip", "label", "number", "id"};
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    if (!got) return clicks_statement_fail(s, "`%s` is followed by the column's name", kinds[kind]);
    if (s->schema->n_columns == CLICKS_MOST_COLUMNS)
        return clicks_statement_fail(s, "more than %d columns", CLICKS_MOST_COLUMNS);
    clicks_column *column = clicks_schema_add(s->schema, kind);
    if (!column) return clicks_statement_fail(s, "out of memory for %" PRIu32 " columns", s->schema->n_columns + 1);
    if (clicks_statement_text(s, &column->name, &word, "the column's name")) return -1;
    for (clicks_column *other = s->schema->columns; other < column; other++)
        if (other->name.n == column->name.n && !memcmp(other->name.at, column->name.at, column->name.n))
            return clicks_statement_fail(s, "a second column '%s'; give each a name of its own", column->name.at);
    if (kind == CLICKS_LABEL) return clicks_statement_label(s);
    if (kind == CLICKS_NUMBER) return clicks_statement_number(s, column);
    if (kind == CLICKS_ID) return clicks_statement_id(s, column);
    return clicks_statement_end(s, "`skip NAME`");
}

/* One line. */
static int clicks_statement(clicks_statements *s) {
    static const char *const whole[] = {"separator", "header", "quotes", "missing"};
    static const char *const kinds[] = {"skip", "label", "number", "id"};
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got <= 0) return got;
    for (int i = 0; i < 4; i++)
        if (clicks_word_is(&word, kinds[i])) return clicks_statement_column(s, (clicks_kind)i);
    for (int i = 0; i < 4; i++) {
        if (!clicks_word_is(&word, whole[i])) continue;
        if (s->said[i]++) return clicks_statement_fail(s, "`%s` a second time", whole[i]);
        if (i == 0) return clicks_statement_separator(s);
        if (i == 3) return clicks_statement_missing(s);
        return clicks_statement_yes(s, whole[i], i == 1 ? &s->schema->header : &s->schema->quotes);
    }
    return clicks_statement_fail(
        s,
        "'%.*s' begins no statement; write separator, header, quotes or missing, then a line a "
        "column: label, number, id or skip and its name",
        (int)(word.n < 40 ? word.n : 40), word.at);
}

static int clicks_statements_check(clicks_statements *s) {
    clicks_schema *schema = s->schema;
    char separator[2] = {schema->separator, 0};
    if (!s->said[2]) schema->quotes = schema->separator != '\t';
    if (!s->labels)
        return program_fail(s->error, "%.180s: no label; add a line `label NAME one TEXT... zero TEXT...`", s->path);
    if (clicks_schema_finish(schema, s->error)) return -1;
    if (!schema->n_features)
        return program_fail(s->error, "%.180s: no ids; add a line `id NAME`, or `bucket W` to a number", s->path);
    const clicks_texts *texts[] = {&schema->missing, &schema->one, &schema->zero};
    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < texts[i]->n; k++)
            if (!schema->quotes && strstr(texts[i]->text[k].at, separator))
                return program_fail(s->error, "%.180s: no field can be '%s', which holds the separator", s->path,
                                    texts[i]->text[k].at);
    return 0;
}

int clicks_schema_parse(clicks_schema *schema, const char *path, const char *text, size_t n, program_error *error) {
    clicks_statements s = {.schema = schema, .path = path, .error = error};
    const char *next = text, *stop = text + n;
    int status = 0;
    *schema = (clicks_schema){.separator = ','};
    while (next < stop && !status) {
        const char *newline = memchr(next, '\n', (size_t)(stop - next));
        s.at = next;
        s.end = newline ? newline : stop;
        s.line++;
        next = newline ? newline + 1 : stop;
        status = clicks_statement(&s);
    }
    if (!status) status = clicks_statements_check(&s);
    if (status) clicks_schema_free(schema);
    return status ? -1 : 0;
}

int clicks_schema_read(clicks_schema *schema, const char *path, program_error *error) {
    *schema = (clicks_schema){0};
    FILE *stream = fopen(path, "rb");
    if (!stream) return program_fail(error, "cannot read the schema %.180s: %s", path, strerror(errno));
    char *text = malloc(CLICKS_LARGEST_SCHEMA + 1);
    size_t n = text ? fread(text, 1, CLICKS_LARGEST_SCHEMA + 1, stream) : 0;
    int status = 0;
    if (!text)
        status = program_fail(error, "out of memory for the schema %.180s", path);
    else if (ferror(stream))
        status = program_fail(error, "cannot read the schema %.180s: %s", path, strerror(errno));
    else if (n > CLICKS_LARGEST_SCHEMA)
        status = program_fail(error, "%.180s has more than %d bytes; is it a schema?", path, CLICKS_LARGEST_SCHEMA);
    fclose(stream);
    if (!status) status = clicks_schema_parse(schema, path, text, n, error);
    free(text);
    return status;
}
