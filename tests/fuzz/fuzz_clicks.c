/* fuzz_clicks.c - a click log of every format: what is read, and what is refused and in which line, is what a plain
 * second reading says; so it is in parts, in batches of any size, and gz.
 *
 * The first two bytes choose format, ids, gz, and a part; the rest is the file. */
#include <float.h>
#include <math.h>
#include <strings.h>
#include <zlib.h>
#include "trainers/clicks/clicks.h"
#include "trainers/clicks/file.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/schema.h"
#include "fuzz.h"

enum { MOST_SAMPLES = 4096, MOST_FIELDS = 4096, MOST_FEATURES = 32 };

/* Schemas beside the known formats: short lines, so that more is found. */
static const char *const schemas[] = {
    "label l one 1 zero 0\nnumber n log bucket 0.5 rows 9\nid i rows 7\n",
    "separator tab\nheader yes\nmissing ? NA\nid i\nlabel l one y yes zero n\nskip s\n",
    "separator ;\nmissing -\nid h hex rows 300\nid e last 2\nlabel l one a zero \";\"\nnumber m scale 3 -0.25\n",
    "separator space\nquotes no\nlabel l one 1 zero 0\nnumber x logbucket 0.1\nnumber y bucket 1000\n",
    "label l one 1 zero 0\nid a bag bar weighted rows 9\nid b mean last 1\nid c bag ; with b\nid d\n",
    "label l one 1 zero 0\nnumber x bucket 2\nid a bag comma hex\n",
};
enum { SCHEMAS = sizeof schemas / sizeof *schemas };

/* What the second reading has found. */
typedef struct second {
    uint64_t n, malformed, first_malformed; /* the line of the first */
    float label[MOST_SAMPLES];
    double number[MOST_SAMPLES][16];
    char *id[MOST_SAMPLES][MOST_FEATURES]; /* its text; "" where there is none */
    int near[MOST_SAMPLES][MOST_FEATURES]; /* of a bucket: so near to the next that rounding decides */
    int no_header;
    char separator;         /* the schema's, or the first line's */
    int order[MOST_FIELDS]; /* of each of the file's columns, the schema's; -1: none */
    int columns;
    /* With bags: the ids of sample i are item[first[i]] to item[first[i + 1] - 1]. */
    uint32_t first[MOST_SAMPLES + 1];
    struct {
        char *id;
        uint32_t feature;
        double weight;
        int near;
    } item[2 * MOST_SAMPLES];
} second;

static second *s;
static clicks_settings settings;

/* ---- The second reading --------------------------------------------------------------------------------- */

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* The fields of a line as strings, in `fields`; -1: a quote that does not end its field. */
static int split(const clicks_schema *schema, const char *line, size_t n, char **fields) {
    const char separator = s->separator;
    size_t at = 0;
    for (int count = 0;; at++) {
        char *field = calloc(1, n + 1);
        size_t length = 0;
        fields[count++] = field;
        fields[count] = NULL;
        while (at < n && is_blank(line[at]) && line[at] != separator) at++;
        if (schema->quotes && at < n && line[at] == '"') {
            for (at++;; at++) {
                if (at >= n) return -1;
                if (line[at] == '"') {
                    if (at + 1 >= n || line[at + 1] != '"') break;
                    at++;
                }
                field[length++] = line[at];
            }
            at++;
            while (at < n && line[at] != separator)
                if (!is_blank(line[at++])) return -1;
        } else {
            while (at < n && line[at] != separator) field[length++] = line[at++];
            while (length && is_blank(field[length - 1])) field[--length] = 0;
        }
        if (at >= n) return count;
    }
}

static int holds(const clicks_texts *texts, const char *text) {
    for (uint32_t i = 0; i < texts->n; i++)
        if (!strcmp(texts->text[i].at, text)) return 1;
    return 0;
}

/* Sign, digits with a point somewhere, exponent. */
static int is_number(const char *text) {
    size_t digits, more = 0;
    text += *text == '-' || *text == '+';
    digits = strspn(text, "0123456789");
    text += digits;
    if (*text == '.') {
        more = strspn(++text, "0123456789");
        text += more;
    }
    if (!digits && !more) return 0;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        digits = strspn(text, "0123456789");
        if (!digits) return 0;
        text += digits;
    }
    return !*text;
}

/* 0 or 1; -1: no label. Of known formats it may be any number of that value. */
static int label_of(const clicks_schema *schema, const char *field) {
    double x = strtod(field, NULL);
    if (holds(&schema->one, field)) return 1;
    if (holds(&schema->zero, field)) return 0;
    if (settings.format == CLICKS_SCHEMA || strlen(field) > 400 || !is_number(field)) return -1;
    if (x == 1 || x == 0) return (int)x;
    return x == -1 && schema->form != CLICKS_DENSE ? 0 : -1;
}

/* 1: it means missing; -1: it may, and nothing says so. */
static int missing_of(const clicks_schema *schema, const char *text) {
    static const char usual[] = " ? NA N/A n/a <NA> nan NaN NAN NULL Null null None \\N ";
    char word[8];
    if (schema->says_missing && settings.format == CLICKS_SCHEMA) return holds(&schema->missing, text);
    if (!*text || strlen(text) > 4 || strchr(text, ' ')) return 0;
    snprintf(word, sizeof word, " %s ", text);
    if (!strstr(usual, word)) return 0;
    return schema->form == CLICKS_DENSE && settings.format != CLICKS_SCHEMA ? 1 : -1;
}

static char *text_of(double bucket) {
    char text[64];
    snprintf(text, sizeof text, "%.0f", bucket == 0 ? 0 : bucket);
    return strdup(text);
}

static double given_on(clicks_transform transform, double x) {
    return transform == CLICKS_LOG ? (x < 0 ? -log1p(-x) : log1p(x)) : x;
}

/* An id of a sample with bags. */
static void add_item(uint32_t feature, const char *id, double weight, int near) {
    uint32_t at = s->first[s->n + 1]++;
    assert_true(at < 2 * MOST_SAMPLES);
    s->item[at].id = strdup(id), s->item[at].feature = feature, s->item[at].weight = weight, s->item[at].near = near;
}

static int read_number(const clicks_column *c, const char *field) {
    double x = *field ? strtod(field, NULL) : 0, value = given_on(c->transform, x);
    if (*field && (strlen(field) > 400 || !is_number(field) || !(fabs(x) <= FLT_MAX))) return -1;
    if (c->transform == CLICKS_SCALE) value = (x - c->subtract) / c->divide;
    if (*field && fabs(value) > FLT_MAX) return -1;
    s->number[s->n][c->number] = *field ? value : 0;
    if (!(c->width > 0)) return 0;
    double exact = given_on(c->bucket, x) / c->width, bucket = floor(exact);
    if (!(fabs(bucket) < 0x1p53)) return -1;
    if (settings.ids == CLICKS_GIVEN && (!*field || bucket < 0 || bucket >= (double)c->rows)) return -1;
    s->id[s->n][c->feature] = *field ? text_of(bucket) : strdup("");
    s->near[s->n][c->feature] = fabs(exact - round(exact)) < 1e-9 * (1 + fabs(exact));
    add_item(c->feature, s->id[s->n][c->feature], 1, s->near[s->n][c->feature]);
    return 0;
}

static int read_one(const clicks_column *c, uint64_t rows, const char *field, double weight) {
    size_t n = strlen(field);
    if (c->last && n && n < c->last) return -1;
    if (c->last && settings.format == CLICKS_AVAZU && field[strspn(field, "0123456789")]) return -1;
    if (c->last && n) field += n - c->last;
    if (settings.ids == CLICKS_GIVEN) {
        const char *digits = c->hex ? "0123456789abcdefABCDEF" : "0123456789";
        if (!*field || field[strspn(field, digits)]) return -1;
        while (field[0] == '0' && field[1]) field++;
        if (strlen(field) > 15 || strtoull(field, NULL, c->hex ? 16 : 10) >= rows) return -1;
    }
    add_item(c->feature, field, weight, 0);
    if (!c->several) s->id[s->n][c->feature] = strdup(field);
    return 0;
}

/* An id of a bag, which may have a weight; nothing but blanks is none. */
static int read_item(const clicks_schema *schema, const clicks_column *c, uint64_t rows, const char *text, size_t n) {
    char item[MOST_SAMPLES + 1], *colon;
    double weight = 1;
    while (n && is_blank(*text)) text++, n--;
    while (n && is_blank(text[n - 1])) n--;
    if (!n) return 0;
    memcpy(item, text, n);
    item[n] = 0;
    if (c->weighted) {
        colon = strrchr(item, ':');
        if (!colon || colon == item || strlen(colon + 1) > 400 || !is_number(colon + 1)) return -1;
        weight = strtod(colon + 1, NULL);
        if (!(fabs(weight) <= FLT_MAX)) return -1;
        *colon = 0;
    }
    int missing = missing_of(schema, item);
    return missing ? missing < 0 ? -1 : 0 : read_one(c, rows, item, weight);
}

static int read_id(const clicks_schema *schema, const clicks_column *c, uint64_t rows, const char *field) {
    if (!c->several) return read_one(c, rows, field, 1);
    for (;;) {
        const char *stop = c->bag ? strchr(field, c->bag) : NULL;
        if (read_item(schema, c, rows, field, stop ? (size_t)(stop - field) : strlen(field))) return -1;
        if (!stop) return 0;
        field = stop + 1;
    }
}

/* A line of label, and index:value or field:index:value. */
static int read_indexed(const clicks_schema *schema, const char *line, size_t n) {
    int words = 0;
    for (size_t at = 0, end;; at = end, words++) {
        while (at < n && is_blank(line[at])) at++;
        if (at == n || line[at] == '#') return words ? 0 : -1;
        for (end = at; end < n && !is_blank(line[end]);) end++;
        char word[MOST_SAMPLES + 1] = {0}, *index = word;
        clicks_column field = {.several = 1, .weighted = 1};
        memcpy(word, line + at, end - at);
        if (!words) {
            s->label[s->n] = (float)label_of(schema, word);
            if (label_of(schema, word) < 0) return -1;
            continue;
        }
        if (schema->form == CLICKS_FIELDS) {
            size_t digits = strspn(word, "0123456789"), zeros = strspn(word, "0");
            if (!digits || word[digits] != ':' || digits - zeros > 4 || atoi(word) > 4094) return -1;
            field.feature = (uint32_t)atoi(word);
            index = word + digits + 1;
        }
        char *colon = strchr(index, ':');
        if (!colon || colon == index || strchr(colon + 1, ':')) return -1;
        if (!strncmp(index, "qid:", 4) || !strncmp(index, "sid:", 4) || !strncmp(index, "cost:", 5)) return -1;
        if (read_item(schema, &field, settings.rows, index, strlen(index))) return -1;
    }
}

static void forget(uint64_t sample) {
    for (int k = 0; k < MOST_FEATURES; k++) {
        free(s->id[sample][k]);
        s->id[sample][k] = NULL;
        s->near[sample][k] = 0;
    }
    for (uint32_t i = s->first[sample]; i < s->first[sample + 1]; i++) free(s->item[i].id);
}

/* A sample; else -1. */
static int read_fields(const clicks_schema *schema, char **fields, int count) {
    if (count != s->columns) return -1;
    for (int i = 0; i < count; i++) {
        const clicks_column *c = &schema->columns[s->order[i] < 0 ? 0 : s->order[i]];
        const char *field = fields[i];
        if (s->order[i] < 0 || c->kind == CLICKS_SKIP) continue;
        if (c->kind == CLICKS_LABEL) {
            s->label[s->n] = (float)label_of(schema, field);
            if (label_of(schema, field) < 0) return -1;
            continue;
        }
        int missing = missing_of(schema, field);
        if (missing < 0) return -1;
        if (missing) field = "";
        if (c->kind == CLICKS_NUMBER && read_number(c, field)) return -1;
        uint64_t rows = schema->columns[schema->feature_columns[c->feature]].rows;
        if (c->kind == CLICKS_ID && read_id(schema, c, rows, field)) return -1;
    }
    return 0;
}

static int is_header(const clicks_schema *schema, char **fields, int count) {
    int had[MOST_FIELDS] = {0}, columns = (int)schema->n_columns;
    s->columns = count;
    for (int i = 0; i < count; i++) {
        int which = -1;
        for (int k = columns - 1; k >= 0; k--)
            if (!strcasecmp(fields[i], schema->columns[k].name.at)) which = k;
        for (int k = 0; k < columns; k++)
            if (!strcmp(fields[i], schema->columns[k].name.at)) which = k;
        if (which < 0 && (*fields[i] || settings.format == CLICKS_SCHEMA)) return 0;
        if (which >= 0 && had[which]++) return 0;
        s->order[i] = which;
    }
    for (int k = 0; k < columns; k++)
        if (!had[k] && schema->columns[k].kind != CLICKS_SKIP) return 0;
    return count > 0;
}

/* The first line of a known format has the separator that comes most often, the first of them where two do. */
static void find_separator(const clicks_schema *schema, const char *line, size_t n) {
    static const char all[] = ",\t;";
    size_t best = 0;
    if (settings.format == CLICKS_SCHEMA) return;
    s->separator = schema->separator;
    for (int k = 0; k < 3; k++) {
        size_t count = 0;
        for (size_t i = 0; i < n; i++) count += line[i] == all[k];
        if (count > best) best = count, s->separator = all[k];
    }
}

static void second_line(const clicks_schema *schema, uint64_t number, const char *line, size_t n) {
    static char *fields[MOST_FIELDS + 1];
    int blank = 1, header = schema->header && number == 1;
    for (size_t i = 0; i < n && !(line[i] == '#' && schema->form != CLICKS_DENSE); i++)
        blank = blank && is_blank(line[i]);
    if (blank && !header && n <= CLICKS_LONGEST_LINE) return;
    fields[0] = NULL;
    s->first[s->n + 1] = s->first[s->n];
    if (header) find_separator(schema, line, n);
    int text = n <= CLICKS_LONGEST_LINE && !memchr(line, 0, n), dense = schema->form == CLICKS_DENSE;
    int count = !text || !dense ? -1 : split(schema, line, n, fields);
    if (header)
        s->no_header = !is_header(schema, fields, count);
    else if (dense ? count < 0 || read_fields(schema, fields, count) : !text || read_indexed(schema, line, n)) {
        forget(s->n);
        if (!s->malformed++) s->first_malformed = number;
    } else
        s->n++;
    for (int i = 0; fields[i]; i++) free(fields[i]);
}

static void second_reading(const clicks_schema *schema, const char *text, size_t n) {
    uint64_t number = 0;
    const char *end = text + n;
    s->no_header = schema->header && !n;
    s->separator = schema->separator;
    s->columns = (int)schema->n_columns;
    for (int i = 0; i < s->columns; i++) s->order[i] = i;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > text && stop[-1] == '\r') stop--;
        if (!number && stop - text >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3;
        second_line(schema, ++number, text, (size_t)(stop - text));
        text = next;
    }
}

/* ---- Comparing ------------------------------------------------------------------------------------------ */

/* The row of feature k's id in the second reading: numbered as they come in samples [0, prepared), twice or more. */
static uint64_t vocabulary_row(uint32_t k, const char *id, uint64_t prepared) {
    uint64_t row = 0;
    if (!*id) return 0;
    for (uint64_t i = 0; i < prepared; i++) {
        int first = 1, again = 0;
        const char *other = s->id[i][k];
        if (!*other) continue;
        for (uint64_t j = 0; j < i; j++) first = first && strcmp(s->id[j][k], other);
        for (uint64_t j = i + 1; j < prepared; j++) again = again || !strcmp(s->id[j][k], other);
        row += first && again;
        if (!strcmp(other, id)) return first && again ? row : 0;
    }
    return 0;
}

/* The same of an id in a bag, which comes twice where it is twice in a sample. */
static uint64_t vocabulary_row_of_item(uint32_t k, const char *id, uint64_t prepared) {
    uint64_t row = 0;
    uint32_t n = s->first[prepared];
    for (uint32_t i = 0; i < n && *id; i++) {
        int came = 0, before = 0;
        const char *other = s->item[i].id;
        if (s->item[i].feature != k || !*other) continue;
        for (uint32_t j = 0; j < n; j++) {
            int same = s->item[j].feature == k && !strcmp(s->item[j].id, other);
            came += same, before += same && j < i;
        }
        row += !before && came > 1;
        if (!strcmp(other, id)) return came > 1 ? row : 0;
    }
    return 0;
}

/* The ids of sample `at`, which is the batch's i-th. */
static void check_items(const clicks *log, const clicks_schema *schema, const clicks_batch *batch, uint32_t i,
                        uint64_t at, uint64_t prepared) {
    assert_int_equal(batch->counts[i], s->first[at + 1] - s->first[at]);
    for (uint32_t k = 0; k < batch->counts[i]; k++) {
        size_t from = (size_t)i * batch->most + k;
        uint32_t item = s->first[at] + k, feature = s->item[item].feature;
        const char *id = s->item[item].id;
        uint64_t row = clicks_hash(id, strlen(id)) % clicks_rows(log, feature);
        int hex = schema->form == CLICKS_DENSE && schema->columns[schema->feature_columns[feature]].hex;
        if (settings.ids == CLICKS_VOCABULARY) row = vocabulary_row_of_item(feature, id, prepared);
        if (settings.ids == CLICKS_GIVEN) row = strtoull(id, NULL, hex ? 16 : 10);
        assert_int_equal(batch->features[from], feature);
        assert_true(batch->ids[from] < clicks_rows(log, feature));
        if (!s->item[item].near) assert_int_equal(batch->ids[from], row);
        double is = (double)batch->weights[from], must = s->item[item].weight;
        if (!(fabs(is - must) <= 1e-6 * fabs(must) + 1e-40)) fail_msg("a weight is %.17g, not %.17g", is, must);
    }
}

static uint64_t wanted_row(const clicks *log, const clicks_schema *schema, uint64_t i, uint32_t k, uint64_t prepared) {
    const char *id = s->id[i][k];
    const clicks_column *c = &schema->columns[schema->feature_columns[k]];
    if (settings.ids == CLICKS_VOCABULARY) return vocabulary_row(k, id, prepared);
    if (settings.ids == CLICKS_GIVEN) return strtoull(id, NULL, c->hex ? 16 : 10);
    return clicks_hash(id, strlen(id)) % clicks_rows(log, k);
}

/* Reads samples [first, end), `most` at a time. */
static void check_part(const clicks *log, const clicks_schema *schema, const char *path, uint64_t first, uint64_t end,
                       uint32_t most, uint64_t prepared) {
    program_error error;
    clicks_reader *reader;
    clicks_batch batch;
    uint64_t at = first;
    if (clicks_batch_open(&batch, log, most, &error)) fail_msg("%s", error.text);
    if (clicks_reader_open(&reader, log, path, first, end, &error)) fail_msg("not opened: %s", error.text);
    for (;;) {
        if (clicks_reader_read(reader, most, &batch, &error)) fail_msg("not read: %s", error.text);
        if (!batch.n) break;
        for (uint32_t i = 0; i < batch.n; i++, at++) {
            assert_true(at < s->n && at < end && batch.labels[i] == s->label[at]);
            for (uint32_t k = 0; k < schema->n_numbers; k++) {
                double is = batch.numbers[i * schema->n_numbers + k], must = s->number[at][k];
                if (!(fabs(is - must) <= 1e-6 * (fabs(must) + 1))) fail_msg("a number is %.17g, not %.17g", is, must);
            }
            if (batch.most) check_items(log, schema, &batch, i, at, prepared);
            for (uint32_t k = 0; k < schema->n_features && !batch.most; k++) {
                uint64_t row = batch.ids[(size_t)k * batch.room + i];
                assert_true(row < clicks_rows(log, k));
                if (!s->near[at][k]) assert_int_equal(row, wanted_row(log, schema, at, k, prepared));
            }
        }
    }
    if (first <= s->n) assert_int_equal(at, end < s->n ? end : s->n);
    if (end > s->n) assert_int_equal(clicks_reader_malformed(reader)->lines, s->malformed);
    clicks_reader_close(reader);
    clicks_batch_close(&batch);
}

/* Where no line may be malformed, the first one is told; where there is none, all is read. */
static void check_strict(const char *path) {
    clicks_settings strict = settings;
    program_error error;
    clicks *log;
    uint64_t samples = 0;
    char wanted[64];
    strict.malformed = 0;
    if (clicks_open(&log, &strict, &error)) fail_msg("%s", error.text);
    int status = clicks_measure(log, path, &error) || clicks_count(log, path, &samples, NULL, &error);
    snprintf(wanted, sizeof wanted, "line %" PRIu64 ": ", s->first_malformed);
    if (status && strchr(error.text, '\n')) fail_msg("not one line: %s", error.text);
    if (s->no_header)
        assert_true(status && strstr(error.text, "name the columns"));
    else if (s->malformed)
        assert_true(status && strstr(error.text, wanted));
    else
        assert_true(!status && samples == s->n);
    clicks_close(log);
}

static int any_near(void) {
    for (uint64_t i = 0; i < s->n; i++)
        for (int k = 0; k < MOST_FEATURES; k++)
            if (s->near[i][k]) return 1;
    return 0;
}

static void check(const clicks_schema *schema, const char *path, unsigned choice) {
    program_error error;
    clicks *log;
    uint64_t samples = 0, first = s->n ? choice / 64 % (s->n + 1) : 0;
    if (clicks_open(&log, &settings, &error)) fail_msg("%s", error.text);
    check_strict(path);
    if (!s->no_header) {
        if (clicks_measure(log, path, &error)) fail_msg("not measured: %s", error.text);
        if (clicks_count(log, path, &samples, NULL, &error)) fail_msg("not counted: %s", error.text);
        assert_int_equal(samples, s->n);
        uint64_t prepared = s->n - first; /* rounding may number ids otherwise */
        if (settings.ids == CLICKS_VOCABULARY && any_near()) prepared = 0;
        if (clicks_prepare(log, path, prepared, &error)) fail_msg("not prepared: %s", error.text);
        check_part(log, schema, path, 0, UINT64_MAX, 1 + choice % 7, prepared);
        check_part(log, schema, path, first, first + choice % 16, 5, prepared);
    }
    clicks_close(log);
}

static void write_gz(const char *path, const uint8_t *data, size_t size) {
    gzFile stream = gzopen(path, "wb1");
    if (!stream || gzbuffer(stream, 8192) || gzwrite(stream, data, (unsigned)size) != (int)size ||
        gzclose(stream) != Z_OK)
        fail_msg("%s is not written", path);
}

const unsigned fuzz_inputs = 2000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const clicks_ids ids[] = {CLICKS_HASH, CLICKS_GIVEN, CLICKS_VOCABULARY, CLICKS_HASH};
    static const clicks_format formats[] = {CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU};
    static const clicks_format indexed[] = {CLICKS_LIBSVM, CLICKS_LIBFFM};
    char path[128], schema_path[128];
    program_error error;
    clicks_schema schema;
    if (size < 2 || size > MOST_SAMPLES) return 0;
    if (!s) s = calloc(1, sizeof *s);
    unsigned format = data[0] % (3 + SCHEMAS + 2), choice = data[1];
    snprintf(path, sizeof path, "%s/log", fuzz_folder());
    snprintf(schema_path, sizeof schema_path, "%s/schema", fuzz_made);
    settings = (clicks_settings){.format = format < 3             ? formats[format]
                                           : format < 3 + SCHEMAS ? CLICKS_SCHEMA
                                                                  : indexed[format - 3 - SCHEMAS],
                                 .ids = ids[choice & 3],
                                 .rows = 1000,
                                 .threshold = 2,
                                 .malformed = UINT64_MAX};
    if (settings.format == CLICKS_SCHEMA) {
        fuzz_write("schema", schemas[format - 3], strlen(schemas[format - 3]));
        settings.schema = schema_path;
        if (clicks_schema_read(&schema, schema_path, &error)) fail_msg("%s", error.text);
    } else if (clicks_schema_of_format(&schema, settings.format, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < schema.n_columns; i++)
        if (!schema.columns[i].rows) schema.columns[i].rows = settings.rows;
    if ((choice & 4) || (size > 2 && data[2] == 0x1f)) /* which could be taken for gz */
        write_gz(path, data + 2, size - 2);
    else
        fuzz_write("log", data + 2, size - 2);
    second_reading(&schema, (const char *)data + 2, size - 2);
    check(&schema, path, choice >> 3);
    for (uint64_t i = 0; i < s->n; i++) forget(i);
    s->n = s->malformed = s->first_malformed = 0;
    s->no_header = 0;
    clicks_schema_free(&schema);
    return 0;
}
