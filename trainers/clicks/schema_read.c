/* Schema files: a statement a line, cut into words. An error names the line and says what to write. */
#include "trainers/clicks/schema.h"
#include "trainers/common/file.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainers/clicks/number.h"

/* ---- Words ---------------------------------------------------------------------------------------------- */

typedef struct clicks_word {
    const char *at;
    size_t n;
    int quoted;
} clicks_word;

typedef struct clicks_statements {
    clicks_schema *schema;
    const char *path, *at, *end; /* what is left of the line */
    uint64_t line;
    int said[4]; /* line of separator, header, quotes, missing; 0: not met yet */
    int labels;
    program_error *error;
} clicks_statements;

__attribute__((format(printf, 2, 3))) static int clicks_statement_fail(clicks_statements *s, const char *format, ...) {
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

/* How much of the word a message shows. */
static int clicks_shown(const clicks_word *word) {
    return (int)(word->n < 40 ? word->n : 40);
}

static int clicks_word_is(const clicks_word *word, const char *keyword) {
    return !word->quoted && word->n == strlen(keyword) && !memcmp(word->at, keyword, word->n);
}

static int clicks_statement_end(clicks_statements *s, const char *form) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got > 0)
        return clicks_statement_fail(s, "'%.*s' is one word too much; write %s", clicks_shown(&word), word.at, form);
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

/* A positive number, or with `any` one of either sign, that a float can hold. */
static int clicks_statement_real(clicks_statements *s, int any, const char *what, double *value) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    if (!got || !clicks_parse_number(word.at, word.n, value) || !(any || *value > 0) || fabs(*value) > FLT_MAX ||
        (*value != 0 && fabs(*value) < FLT_MIN))
        return clicks_statement_fail(s, "%s must be followed by %s within what a float can hold, not '%.*s'", what,
                                     any ? "numbers" : "a number above 0", clicks_shown(&word), word.at);
    return 0;
}

static int clicks_statement_whole(clicks_statements *s, uint64_t most, const char *what, uint64_t *value) {
    clicks_word word;
    uint64_t sum = 0;
    int got = clicks_word_next(s, &word), good = got > 0 && word.n > 0;
    if (got < 0) return -1;
    for (size_t i = 0; i < word.n && good; i++) {
        unsigned digit = (unsigned)(unsigned char)word.at[i] - '0';
        good = digit <= 9 && sum <= (most - digit) / 10;
        if (good) sum = sum * 10 + digit;
    }
    if (!good || !sum)
        return clicks_statement_fail(s, "%s must be followed by a whole number from 1 to %" PRIu64 ", not '%.*s'", what,
                                     most, clicks_shown(&word), word.at);
    *value = sum;
    return 0;
}

/* ---- Statements about the file --------------------------------------------------------------------------- */

/* The next word as a character that separates: by its name or as it is. 0: none that can. */
static char clicks_word_separator(const clicks_word *word) {
    static const struct {
        const char *name;
        char is;
    } names[] = {{"comma", ','}, {"tab", '\t'}, {"semicolon", ';'}, {"space", ' '}, {"bar", '|'}};
    int c = word->n == 1 ? (unsigned char)*word->at : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (clicks_word_is(word, names[i].name)) c = names[i].is;
    return c == 0 || c >= 127 || isalnum(c) || strchr("\"-+.", c) ? 0 : (char)c;
}

static int clicks_statement_separator(clicks_statements *s) {
    static const char *const form = "`separator comma`, tab, semicolon, space, bar, or the character itself";
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    s->schema->separator = clicks_word_separator(&word);
    if (!s->schema->separator)
        return clicks_statement_fail(s, "write %s; no letter, digit, sign, point or quote can be it", form);
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
    s->schema->says_missing = 1;
    return got;
}

/* ---- Columns -------------------------------------------------------------------------------------------- */

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
            failed =
                clicks_statement_fail(s, "'%.*s' does not fit there; write %s", clicks_shown(&word), word.at, form);
    }
    return failed || got < 0 ? -1 : 0;
}

static int clicks_statement_bag(clicks_statements *s, clicks_column *column) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    column->bag = clicks_word_separator(&word);
    if (column->bag) return 0;
    return clicks_statement_fail(s, "`bag` is followed by what stands between ids: comma, tab, semicolon, space, bar, "
                                    "or the character itself, which is no letter, digit, sign, point or quote");
}

/* The column is the last one. */
static int clicks_statement_with(clicks_statements *s, clicks_column *column) {
    clicks_word word;
    int got = clicks_word_next(s, &word);
    if (got < 0) return -1;
    for (clicks_column *other = s->schema->columns; got && other < column; other++) {
        if (other->name.n != word.n || memcmp(other->name.at, word.at, word.n)) continue;
        if (other->kind != CLICKS_ID || other->with) break;
        column->with = (uint32_t)(other - s->schema->columns) + 1;
        other->several = 1;
        return 0;
    }
    return clicks_statement_fail(s,
                                 "`with` is followed by the name of an `id` column above, which is not `with` another");
}

static int clicks_check_id(clicks_statements *s, clicks_column *column) {
    column->several |= column->bag || column->weighted || column->mean || column->with;
    if (column->with && (column->rows || column->mean))
        return clicks_statement_fail(s, "rows and mean are said of the column that it is `with`");
    if (column->weighted && column->bag == ':')
        return clicks_statement_fail(s, "a colon stands between id and weight, and so not between ids");
    return 0;
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
        else if (clicks_word_is(&word, "bag") && !column->bag)
            failed = clicks_statement_bag(s, column);
        else if (clicks_word_is(&word, "weighted") && !column->weighted)
            column->weighted = 1;
        else if (clicks_word_is(&word, "mean") && !column->mean)
            column->mean = 1;
        else if (clicks_word_is(&word, "with") && !column->with)
            failed = clicks_statement_with(s, column);
        else if (clicks_word_is(&word, "dim"))
            failed =
                clicks_statement_fail(s, "all features have the same dim, that of --dim: models multiply their rows "
                                         "with each other, and one instance holds them; leave `dim` out");
        else
            failed = clicks_statement_fail(s,
                                           "'%.*s' does not fit there; write `id NAME [rows N] [last N] [hex] [bag C] "
                                           "[weighted] [mean] [with NAME]`",
                                           clicks_shown(&word), word.at);
    }
    column->last = (uint32_t)last;
    return failed || got < 0 ? -1 : clicks_check_id(s, column);
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

/* ---- Files ---------------------------------------------------------------------------------------------- */

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
        clicks_shown(&word), word.at);
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
    for (uint32_t i = 0; i < schema->n_columns && !schema->quotes; i++)
        if (schema->columns[i].bag == schema->separator)
            return program_fail(s->error, "%.180s: the ids of '%s' cannot have the separator between them", s->path,
                                schema->columns[i].name.at);
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
    if (!stream)
        return program_fail(error, "cannot read the schema %.180s: %s%s", path, strerror(errno), file_remedy(errno));
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
    size_t mark = n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; /* of the byte order, as some editors write */
    if (!status) status = clicks_schema_parse(schema, path, text + mark, n - mark, error);
    free(text);
    return status;
}
