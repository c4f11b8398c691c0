/* Columns are looked at a line at a time; then each becomes a column of the schema. */
#include "trainers/clicks/make.h"

#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "trainers/clicks/file.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/line.h"
#include "trainers/clicks/number.h"

enum {
    CLICKS_MAKE_SLOTS = 4 * CLICKS_MAKE_LINES, /* of a set of values */
    CLICKS_MAKE_FEW = 16                       /* so few whole numbers are ids */
};
_Static_assert((int)CLICKS_MAKE_FEW <= (int)CLICKS_MOST_TEXTS, "the values of a label are kept as texts");

typedef struct clicks_look {
    clicks_text name; /* its first bytes, if is_long */
    int is_long;
    uint64_t n, numbers, whole; /* fields that are not missing; of them, numbers, and whole ones */
    double low, high, sum, squares;
    uint64_t *values; /* values[CLICKS_MAKE_SLOTS]: hashes of texts; 0: free */
    uint32_t distinct;
    clicks_texts texts;              /* the first of them */
    uint64_t count[CLICKS_MAKE_FEW]; /* of each */
} clicks_look;

typedef struct clicks_maker {
    const char *path;
    clicks_look *column;
    uint32_t n;
    char separator;
    int header;
    clicks_texts missing; /* texts that mean it, as far as they were met */
    uint64_t lines;
    program_error *error;
} clicks_maker;

/* ---- Lines ---------------------------------------------------------------------------------------------- */

/* Counts the value; few ones are kept. */
static void clicks_look_value(clicks_look *look, const char *text, size_t n) {
    uint64_t hash = clicks_hash(text, n) | 1;
    uint32_t at = (uint32_t)(hash % CLICKS_MAKE_SLOTS);
    while (look->values[at] && look->values[at] != hash) at = (at + 1) % CLICKS_MAKE_SLOTS;
    look->distinct += !look->values[at];
    look->values[at] = hash;
    uint32_t i = 0;
    while (i < look->texts.n && (look->texts.text[i].n != n || memcmp(look->texts.text[i].at, text, n))) i++;
    if (i == look->texts.n && i < CLICKS_MAKE_FEW && n && !clicks_text_set(&look->texts.text[i], text, n))
        look->texts.n++;
    if (i < look->texts.n) look->count[i]++;
}

static void clicks_look_number(clicks_look *look, double x) {
    if (!look->numbers || x < look->low) look->low = x;
    if (!look->numbers || x > look->high) look->high = x;
    look->numbers++;
    look->whole += floor(x) >= x && fabs(x) < 0x1p53;
    look->sum += x, look->squares += x * x;
}

static void clicks_make_look(clicks_maker *m, uint32_t column, const char *text, size_t n) {
    clicks_look *look = &m->column[column];
    clicks_texts *missing = &m->missing;
    double x;
    if (n && clicks_texts_hold(clicks_usual_missing(), text, n)) {
        if (!clicks_texts_hold(missing, text, n) && !clicks_text_set(&missing->text[missing->n], text, n)) missing->n++;
        return;
    }
    if (!n) return;
    look->n++;
    if (clicks_parse_number(text, n, &x) && fabs(x) <= FLT_MAX) clicks_look_number(look, x);
    clicks_look_value(look, text, n);
}

/* Each field of a line to `take`; the number of fields, or 0 if one cannot be read. */
static uint32_t clicks_make_each(clicks_maker *m, char *text, size_t n,
                                 void (*take)(clicks_maker *, uint32_t, const char *, size_t)) {
    char *end = text + n;
    uint32_t i = 0;
    *end = m->separator;
    for (char *at = text; at <= end; at++, i++) {
        clicks_field field;
        at = clicks_line_field(m->separator != '\t', m->separator, at, end, &field);
        if (!at) return 0;
        if (i < m->n) take(m, i, field.at, field.n);
    }
    return i;
}

static void clicks_make_name(clicks_maker *m, uint32_t column, const char *text, size_t n) {
    clicks_text *name = &m->column[column].name;
    double x;
    m->header &= !n || !clicks_parse_number(text, n, &x);
    m->column[column].is_long = n > CLICKS_LONGEST_TEXT;
    clicks_text_set(name, text, n < CLICKS_LONGEST_TEXT ? n : CLICKS_LONGEST_TEXT);
}

/* ---- The first line ------------------------------------------------------------------------------------- */

static int clicks_make_check_names(clicks_maker *m) {
    for (uint32_t i = 0; i < m->n; i++) {
        clicks_text *name = &m->column[i].name;
        if (!m->header) name->n = (uint32_t)snprintf(name->at, sizeof name->at, "column%" PRIu32, i + 1);
        if (!name->n)
            return program_fail(m->error,
                                "%.200s: column %" PRIu32 " has no name (an index that pandas writes? "
                                "index=False); give it one",
                                m->path, i + 1);
        if (m->header && m->column[i].is_long)
            return program_fail(m->error,
                                "%.200s: the name of column %" PRIu32 ", '%.20s...', has more than %d bytes; give it "
                                "a shorter one",
                                m->path, i + 1, name->at, CLICKS_LONGEST_TEXT);
        if (strchr(name->at, '"'))
            return program_fail(m->error,
                                "%.200s: the name of column %" PRIu32 " has a quote in it; "
                                "give it another one",
                                m->path, i + 1);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(m->column[k].name.at, name->at))
                return program_fail(m->error,
                                    "%.200s: columns %" PRIu32 " and %" PRIu32 " are both '%s'; give each a "
                                    "name of its own",
                                    m->path, k + 1, i + 1, name->at);
    }
    return 0;
}

static int clicks_make_begin(clicks_maker *m, char *text, size_t n) {
    m->separator = clicks_line_separator(",\t;|", text, n);
    m->n = 1;
    for (size_t i = 0; i < n; i++) m->n += text[i] == m->separator; /* at most: a quoted field may hold some */
    if (memmem(text, n, "::", 2) && m->n == 1)
        return program_fail(m->error,
                            "%.200s has :: between its columns, and one character separates them: write "
                            "tabs, by sed 's/::/\\t/g'",
                            m->path);
    if (m->n < 3 || m->n > CLICKS_MOST_COLUMNS)
        return program_fail(m->error,
                            "%.200s has %" PRIu32 " column%s with commas, tabs, semicolons or bars, must have "
                            "3 to %d: a label, ids and numbers",
                            m->path, m->n, m->n == 1 ? "" : "s", CLICKS_MOST_COLUMNS);
    m->column = calloc(m->n, sizeof *m->column);
    if (!m->column) return program_fail(m->error, "out of memory for %" PRIu32 " columns", m->n);
    m->header = 1;
    uint32_t fields = clicks_make_each(m, text, n, clicks_make_name);
    if (!fields) return program_fail(m->error, "%.200s: a quote of the first line does not end its field", m->path);
    m->n = fields;
    for (uint32_t i = 0; i < m->n; i++)
        if (!(m->column[i].values = calloc(CLICKS_MAKE_SLOTS, sizeof(uint64_t))))
            return program_fail(m->error, "out of memory for %" PRIu32 " columns", m->n);
    return clicks_make_check_names(m);
}

static int clicks_make_read(clicks_maker *m) {
    clicks_file file;
    char *text, first[CLICKS_LONGEST_LINE + 1];
    size_t n, begun = 0;
    int got;
    if (clicks_file_open(&file, m->path, m->error)) return -1;
    while ((got = clicks_file_line(&file, &text, &n, m->error)) > 0 && m->lines < CLICKS_MAKE_LINES) {
        if (!n || n > CLICKS_LONGEST_LINE || memchr(text, 0, n)) continue; /* no text has zero bytes */
        if (!begun) {
            memcpy(first, text, begun = n);
            if ((got = clicks_make_begin(m, text, n))) break;
            if (m->header) continue;
            memcpy(text, first, n);
        }
        m->lines += clicks_make_each(m, text, n, clicks_make_look) == m->n;
    }
    clicks_file_close(&file);
    if (got < 0) return -1;
    if (m->lines) return 0;
    if (!begun)
        return program_fail(m->error, "%.200s has no line of text; wanted: a line that names the columns, and samples",
                            m->path);
    return program_fail(m->error, "%.200s has no line of as many columns as its first one, behind it", m->path);
}

/* ---- What columns are ----------------------------------------------------------------------------------- */

static int clicks_name_ends(const clicks_text *name, const char *end) {
    size_t n = strlen(end);
    return name->n >= n && !strcasecmp(name->at + name->n - n, end);
}

static int clicks_name_is_label(const clicks_text *name) {
    static const char *const names[] = {"label",      "click",     "clicked",  "is_click", "is_clicked",
                                        "clk",        "target",    "y",        "class",    "outcome",
                                        "conversion", "converted", "purchase", "rating",   "income"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name->at, names[i])) return 1;
    return 0;
}

/* C1, cat_0, user_id, zipcode */
static int clicks_name_is_id(const clicks_text *name) {
    static const char *const ends[] = {"id", "code", "key", "hash", "zip", "user", "item", "category"};
    const char *at = name->at;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (clicks_name_ends(name, ends[i])) return 1;
    if (!strncasecmp(at, "cat", 3) && (at[3] == '_' || isdigit((unsigned char)at[3]))) return 1;
    return tolower((unsigned char)*at) == 'c' && isdigit((unsigned char)at[1]);
}

static int clicks_look_is_whole(const clicks_look *look) {
    return look->n && look->whole == look->n;
}

static int clicks_look_is_id(const clicks_look *look) {
    if (look->numbers < look->n || !look->n) return 1;
    return clicks_look_is_whole(look) && (look->distinct <= CLICKS_MAKE_FEW || clicks_name_is_id(&look->name));
}

/* As many whole numbers as there are lines, which rise: an index. */
static int clicks_look_is_index(const clicks_look *look, uint64_t lines) {
    int named = !strcasecmp(look->name.at, "id") || !strcasecmp(look->name.at, "index");
    if (lines < 100 || look->distinct < lines) return 0;
    return named || (clicks_look_is_whole(look) && look->high - look->low < (double)lines);
}

/* Nothing is learned from it. */
static int clicks_look_is_idle(const clicks_look *look, uint64_t lines) {
    return look->distinct < 2 || clicks_look_is_index(look, lines);
}

static double clicks_look_deviation(const clicks_look *look) {
    double n = (double)look->numbers, mean = look->sum / n, variance = look->squares / n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* ---- The schema ----------------------------------------------------------------------------------------- */

/* The label's column, or -1. */
static int clicks_make_choose_label(clicks_maker *m, clicks_made_schema *made) {
    for (uint32_t i = 0; i < m->n; i++)
        if (clicks_name_is_label(&m->column[i].name) && m->column[i].distinct == m->column[i].texts.n &&
            m->column[i].n) {
            made->label = i, made->sure = 1;
            return 0;
        }
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = k == 1 ? m->n - 1 : k > 1 ? k - 1 : 0; /* the first, the last, the others */
        if (m->column[i].distinct != 2 || m->column[i].texts.n != 2 || m->column[i].n < m->lines) continue;
        made->label = i;
        return 0;
    }
    return program_fail(m->error,
                        "%.200s has no column that is named label, click, target or the like, with at most %d "
                        "values, and none of two values: which is the label? A training needs one",
                        m->path, CLICKS_MAKE_FEW);
}

/* A schema's texts are in quotes, or have neither quotes nor blanks. */
static int clicks_make_check_label(clicks_maker *m, const clicks_look *look) {
    for (uint32_t i = 0; i < look->texts.n; i++)
        if (strchr(look->texts.text[i].at, '"'))
            return program_fail(m->error, "%.200s: the label '%.60s' has a quote in it; write another text for it",
                                m->path, look->texts.text[i].at);
    return 0;
}

/* 1 or 0 for what pandas and databases write for them; -1: another text. */
static int clicks_text_truth(const clicks_text *text) {
    static const char *const words[2][4] = {{"false", "no", "f", "n"}, {"true", "yes", "t", "y"}};
    for (int truth = 0; truth < 2; truth++)
        for (int k = 0; k < 4; k++)
            if (!strcasecmp(text->at, words[truth][k])) return truth;
    return -1;
}

/* Numbers above the middle are 1, and words of truth what they say; of other texts the rarest one is. */
static void clicks_make_label(clicks_schema *schema, const clicks_look *look) {
    int numbers = look->numbers == look->n, truths = 1;
    uint32_t rarest = 0;
    for (uint32_t i = 0; i < look->texts.n; i++) {
        if (look->count[i] < look->count[rarest]) rarest = i;
        truths &= clicks_text_truth(&look->texts.text[i]) >= 0;
    }
    for (uint32_t i = 0; i < look->texts.n; i++) {
        const clicks_text *text = &look->texts.text[i];
        double x = 0;
        int known = numbers && clicks_parse_number(text->at, text->n, &x);
        double middle = look->low < look->high ? (look->low + look->high) / 2 : 0;
        int is_one = known ? x > middle : truths ? clicks_text_truth(text) : i == rarest;
        clicks_texts *texts = is_one ? &schema->one : &schema->zero;
        texts->text[texts->n++] = *text;
    }
    if (!schema->one.n) clicks_text_set(&schema->one.text[schema->one.n++], "1", 1);
    if (!schema->zero.n) clicks_text_set(&schema->zero.text[schema->zero.n++], "0", 1);
}

/* Where no column is an id, whole numbers are; or else all numbers are, in ranges, because a model needs ids. */
typedef enum { CLICKS_MAKE_IDS, CLICKS_MAKE_WHOLE, CLICKS_MAKE_RANGES } clicks_make_ids;

static int clicks_make_column(clicks_maker *m, clicks_schema *schema, uint32_t i, uint32_t label, clicks_make_ids ids) {
    const clicks_look *look = &m->column[i];
    int is_id = clicks_look_is_id(look) || (ids == CLICKS_MAKE_WHOLE && clicks_look_is_whole(look));
    clicks_kind kind = i == label                            ? CLICKS_LABEL
                       : clicks_look_is_idle(look, m->lines) ? CLICKS_SKIP
                       : is_id                               ? CLICKS_ID
                                                             : CLICKS_NUMBER;
    clicks_column *column = clicks_schema_add(schema, kind);
    if (!column) return program_fail(m->error, "out of memory for %" PRIu32 " columns", m->n);
    column->name = look->name;
    if (kind == CLICKS_LABEL) clicks_make_label(schema, look);
    if (kind != CLICKS_NUMBER) return 0;
    double deviation = clicks_look_deviation(look);
    column->transform = clicks_look_is_whole(look) ? CLICKS_LOG : deviation > FLT_MIN ? CLICKS_SCALE : CLICKS_RAW;
    if (column->transform == CLICKS_SCALE) {
        char text[32]; /* four digits are enough */
        snprintf(text, sizeof text, "%.4g", look->sum / (double)look->numbers);
        column->subtract = strtod(text, NULL);
        snprintf(text, sizeof text, "%.4g", deviation);
        column->divide = strtod(text, NULL);
    }
    if (ids == CLICKS_MAKE_RANGES) column->width = deviation > FLT_MIN ? column->divide / 2 : 1;
    return 0;
}

static int clicks_make_columns(clicks_maker *m, clicks_schema *schema, clicks_made_schema *made) {
    int ids = 0, whole = 0, used = 0;
    if (clicks_make_choose_label(m, made) || clicks_make_check_label(m, &m->column[made->label])) return -1;
    for (uint32_t i = 0; i < m->n; i++) {
        const clicks_look *look = &m->column[i];
        if (i == made->label || clicks_look_is_idle(look, m->lines)) continue;
        used++;
        ids += clicks_look_is_id(look);
        whole += clicks_look_is_whole(look);
    }
    if (!used) return program_fail(m->error, "%.200s has no column beside the label that says anything", m->path);
    *schema = (clicks_schema){.separator = m->separator, .header = m->header, .quotes = m->separator != '\t'};
    schema->missing = m->missing, schema->says_missing = m->missing.n > 0;
    clicks_make_ids of = ids ? CLICKS_MAKE_IDS : whole ? CLICKS_MAKE_WHOLE : CLICKS_MAKE_RANGES;
    for (uint32_t i = 0; i < m->n; i++)
        if (clicks_make_column(m, schema, i, made->label, of)) return -1;
    return clicks_schema_finish(schema, m->error);
}

int clicks_make_schema(clicks_schema *schema, const char *path, clicks_made_schema *made, program_error *error) {
    clicks_maker m = {.path = path, .error = error};
    *schema = (clicks_schema){0};
    *made = (clicks_made_schema){0};
    int status = clicks_make_read(&m) || clicks_make_columns(&m, schema, made);
    made->lines = m.lines;
    for (uint32_t i = 0; i < m.n && m.column; i++) free(m.column[i].values);
    free(m.column);
    if (status) clicks_schema_free(schema);
    return status ? -1 : 0;
}
