/* fuzz_schema.c - schema files: one that is accepted keeps what it promises, and is the same when written out and read
 * again; one that is refused is refused with one line that names a line of the file, if any. A line of a log is read by
 * it with ids hashed and given: whether it is a sample does not hang on who asks; and as a number, if it is one.
 *
 * Behind a line "@" stands the line of the log. */
#include <float.h>
#include <math.h>
#include "trainers/clicks/line.h"
#include "trainers/clicks/number.h"
#include "fuzz.h"

/* ---- Compared ------------------------------------------------------------------------------------------- */

static int is_near(double a, double b) {
    return fabs(a - b) <= 1e-14 * fabs(a);
}

static void check_texts(const clicks_texts *a, const clicks_texts *b) {
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) assert_true(!strcmp(a->text[i].at, b->text[i].at));
}

static void check_same(const clicks_schema *a, const clicks_schema *b) {
    assert_true(a->separator == b->separator && a->header == b->header && a->quotes == b->quotes);
    assert_true(a->n_columns == b->n_columns && a->n_numbers == b->n_numbers && a->n_features == b->n_features);
    check_texts(&a->missing, &b->missing);
    check_texts(&a->one, &b->one);
    check_texts(&a->zero, &b->zero);
    for (uint32_t i = 0; i < a->n_columns; i++) {
        const clicks_column *x = &a->columns[i], *y = &b->columns[i];
        assert_true(x->name.n == y->name.n && !strcmp(x->name.at, y->name.at) && x->kind == y->kind);
        assert_true(x->transform == y->transform && x->bucket == y->bucket && is_near(x->subtract, y->subtract));
        assert_true(is_near(x->divide, y->divide) && is_near(x->width, y->width));
        assert_true(x->rows == y->rows && x->last == y->last && x->hex == y->hex);
        assert_true(x->number == y->number && x->feature == y->feature);
        assert_true(x->several == y->several && x->weighted == y->weighted && x->mean == y->mean);
        assert_true(x->bag == y->bag && x->with == y->with);
    }
}

static void check_promises(const clicks_schema *schema) {
    uint32_t labels = 0, numbers = 0, features = 0;
    assert_true(schema->n_columns <= CLICKS_MOST_COLUMNS && schema->one.n && schema->zero.n);
    assert_true(schema->separator && schema->separator != '\n' && schema->separator != '"');
    for (uint32_t i = 0; i < schema->n_columns; i++) {
        const clicks_column *c = &schema->columns[i];
        assert_true(c->name.n && c->name.n <= CLICKS_LONGEST_TEXT && strlen(c->name.at) == c->name.n);
        labels += c->kind == CLICKS_LABEL;
        if (c->kind == CLICKS_NUMBER) assert_int_equal(c->number, numbers++);
        if (c->with) {
            const clicks_column *other = &schema->columns[c->with - 1];
            assert_true(other < c && other->kind == CLICKS_ID && other->several && !other->with && !c->mean);
            assert_int_equal(c->feature, other->feature);
        } else if (c->kind == CLICKS_ID || c->width > 0) {
            assert_int_equal(schema->feature_columns[features], i);
            assert_int_equal(c->feature, features++);
        }
        assert_true(c->divide != 0 && c->width >= 0 && c->width <= FLT_MAX && c->rows <= INT64_MAX);
    }
    assert_true(labels == 1 && features > 0 && features == schema->n_features && numbers == schema->n_numbers);
}

/* ---- A line --------------------------------------------------------------------------------------------- */

static void read_line(clicks_schema *schema, int given, const char *log, size_t n) {
    float label = 7, *numbers = malloc((schema->n_numbers + 1) * sizeof *numbers);
    size_t most = schema->n_columns + n; /* ids of the line */
    uint64_t *ids = malloc(most * sizeof *ids);
    uint32_t *features = malloc(most * sizeof *features), count = 0;
    float *weights = malloc(most * sizeof *weights);
    char *copy = malloc(n + 1);
    static uint32_t order[CLICKS_MOST_COLUMNS];
    clicks_line line = {.schema = schema, .given = given, .order = order};
    clicks_sample sample = {.label = &label,
                            .numbers = numbers,
                            .ids = ids,
                            .stride = 1,
                            .features = features,
                            .count = &count,
                            .weights = weights};
    for (uint32_t i = 0; i < schema->n_columns; i++)
        if (!schema->columns[i].rows) schema->columns[i].rows = 100;
    for (uint32_t k = 0; k < schema->n_features; k++) ids[k] = UINT64_MAX;
    memcpy(copy, log, n);
    int status = clicks_line_read(&line, copy, n, NULL);
    if (status) assert_true(*line.reason && !strchr(line.reason, '\n'));
    memcpy(copy, log, n);
    assert_int_equal(status, clicks_line_read(&line, copy, n, &sample)); /* a sample is one whoever asks */
    if (!status) assert_true(label == 0 || label == 1);
    assert_true(count <= most);
    for (uint32_t i = 0; i < count && !status; i++) {
        const clicks_column *c = &schema->columns[schema->feature_columns[features[i]]];
        assert_true(features[i] < schema->n_features && fabsf(weights[i]) <= FLT_MAX && (!given || ids[i] < c->rows));
    }
    for (uint32_t k = 0; k < schema->n_features && given && !status && !schema->bags; k++)
        assert_true(ids[k] < schema->columns[schema->feature_columns[k]].rows);
    memcpy(copy, log, n);
    clicks_line_header(&line, copy, n);
    free(numbers);
    free(ids);
    free(features);
    free(weights);
    free(copy);
}

/* As strtod reads it, where both call it a number. */
static void parse_number(const char *bytes, size_t n) {
    char copy[512], *end;
    double number = 0;
    if (n >= sizeof copy || memchr(bytes, 0, n) || !clicks_parse_number(bytes, n, &number)) return;
    memcpy(copy, bytes, n);
    copy[n] = 0;
    double other = strtod(copy, &end);
    if (*end) fail_msg("'%s' is read as %g", copy, number);
    if (fabs(other) < 1e-290 || fabs(other) > 1e290) return;
    if (!(fabs(other - number) <= 1e-14 * fabs(other))) fail_msg("'%s' is read as %.17g", copy, number);
}

static void check_refused(const char *message, const char *bytes, size_t n) {
    uint64_t lines = 1, named = 0;
    for (size_t i = 0; i < n; i++) lines += bytes[i] == '\n';
    if (strchr(message, '\n') || strncmp(message, "the schema:", 11)) fail_msg("refused, and says '%s'", message);
    if (sscanf(message, "the schema:%" SCNu64 ":", &named) == 1) assert_true(named >= 1 && named <= lines);
}

const unsigned fuzz_inputs = 20000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data, *log = memmem(bytes, size, "\n@\n", 3);
    size_t n = log ? (size_t)(log - bytes) : size, rest = log ? size - n - 3 : 0;
    program_error error = {.text = ""};
    clicks_schema schema, again;
    if (log) parse_number(log + 3, rest);
    if (clicks_schema_parse(&schema, "the schema", bytes, n, &error)) {
        assert_true(!schema.columns && !schema.feature_columns);
        check_refused(error.text, bytes, n);
        return 0;
    }
    check_promises(&schema);
    char *text;
    size_t written;
    FILE *out = open_memstream(&text, &written);
    clicks_schema_write(&schema, out);
    fclose(out);
    if (clicks_schema_parse(&again, "again", text, written, &error)) fail_msg("%s in:\n%s", error.text, text);
    check_same(&schema, &again);
    if (log && !memchr(log + 3, '\n', rest)) {
        read_line(&schema, 0, log + 3, rest);
        read_line(&schema, 1, log + 3, rest);
    }
    free(text);
    clicks_schema_free(&schema);
    clicks_schema_free(&again);
    return 0;
}
