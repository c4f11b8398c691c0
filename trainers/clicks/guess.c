/* The format of a log, by its first line; or what that line looks like. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include "trainers/clicks/clicks.h"
#include "trainers/clicks/file.h"
#include "trainers/clicks/line.h"
#include "trainers/clicks/number.h"

static int clicks_is_space(char c) {
    return c == ' ' || c == '\t';
}

/* A label, which is a number, a blank, and a word with one colon or two. */
static int clicks_guess_indexed(const char *text, size_t n, clicks_format *format) {
    size_t at = 0, colons = 0;
    double label;
    while (at < n && !clicks_is_space(text[at])) at++;
    if (!clicks_parse_number(text, at, &label)) return 0;
    while (at < n && clicks_is_space(text[at])) at++;
    for (; at < n && !clicks_is_space(text[at]); at++) colons += text[at] == ':';
    *format = colons == 1 ? CLICKS_LIBSVM : CLICKS_LIBFFM;
    return colons == 1 || colons == 2;
}

/* 1: it is known; 0: it is none of them. */
static int clicks_guess_line(const char *text, size_t n, clicks_format *format) {
    static const char *const criteo[] = {"I1", "I13", "C1", "C26", NULL},
                             *const torchrec[] = {"int_0", "int_12", "cat_0", "cat_25", NULL},
                             *const avazu[] = {"hour", "banner_pos", NULL};
    size_t tabs = 0;
    for (size_t i = 0; i < n; i++) tabs += text[i] == '\t';
    if (clicks_line_names(text, n, criteo) || clicks_line_names(text, n, torchrec))
        *format = CLICKS_CRITEO_CSV;
    else if (clicks_line_names(text, n, avazu))
        *format = CLICKS_AVAZU;
    else if (tabs == 39)
        *format = CLICKS_CRITEO;
    else
        return clicks_guess_indexed(text, n, format);
    return 1;
}

/* The separator that is most often there, by its name; *columns: how many it makes. */
static const char *clicks_columns(const char *text, size_t n, uint32_t *columns) {
    static const char separators[] = "\t,;| ";
    static const char *const names[] = {"tabs", "commas", "semicolons", "bars", "blanks"};
    char separator = clicks_line_separator(separators, text, n);
    *columns = 1;
    for (size_t i = 0; i < n; i++) *columns += text[i] == separator;
    return names[strchr(separators, separator) - separators];
}

/* Text of other kinds, by how its first line begins, and what to do. NULL: it is none of them. */
static const char *clicks_other_text(const char *text, size_t n) {
    static const struct {
        const char *begin, *what;
    } kinds[] = {{"{", "has lines of JSON; write columns with commas, as pandas' to_csv does"},
                 {"[", "begins as JSON does; write columns with commas, as pandas' to_csv does"},
                 {"<", "begins as a page of HTML or XML does: was the download refused? Give a log"},
                 {"version https://git-lfs", "is only a pointer of Git LFS; fetch the file itself, by git lfs pull"},
                 {"%%MatrixMarket", "is a matrix; write libsvm's form, as scikit-learn's dump_svmlight_file does"},
                 {"@relation", "is of Weka's form; write columns with commas"}};
    const char *bar = memchr(text, '|', n), *first = memchr(text, ' ', n);
    if (n > 262 && !memcmp(text + 257, "ustar", 5))
        return "is an archive of tar; unpack it, and give the log that is in it";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= strlen(kinds[i].begin) && !strncasecmp(text, kinds[i].begin, strlen(kinds[i].begin)))
            return kinds[i].what;
    if (bar && first && bar > first && bar - text < 40 && bar[-1] == ' ' && !memchr(text, ',', n))
        return "looks like Vowpal Wabbit's form; write libsvm's (label index:value ...)";
    if (memmem(text, n, "::", 2) && !first)
        return "has :: between its columns, and one character separates them: write tabs, by sed 's/::/\\t/g'";
    return NULL;
}

/* What a line of so many columns nearly is. */
static const char *clicks_nearly(const char *text, size_t n, uint32_t columns) {
    static const char *const names[] = {"C1", NULL}, *const others[] = {"int_0", NULL},
                             *const clicked[] = {"click", NULL};
    int criteo = clicks_line_names(text, n, names) || clicks_line_names(text, n, others);
    if (clicks_line_names(text, n, clicked)) return ": nearly Avazu's, without hour or banner_pos";
    if (criteo) return ": nearly Criteo's, whose columns are named I1 to I13 and C1 to C26";
    if (columns == 39) return ": nearly Criteo's, without a label? A training needs one";
    if (columns == 40) return ": nearly Criteo's, which has tabs between them, or a first line with names";
    if (columns == 41) return ": nearly Criteo's, with another column";
    return "";
}

/* Up to 40 bytes of it, without odd ones. */
static void clicks_show_begin(const char *text, size_t n, char shown[44]) {
    size_t length = n < 40 ? n : 40;
    for (size_t i = 0; i < length; i++)
        shown[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : text[i] == '\t' ? ' ' : '?';
    strcpy(shown + length, length < n ? "..." : "");
}

static int clicks_fail_unknown(const char *path, const char *text, size_t n, program_error *error) {
    const char *other = clicks_other_text(text, n);
    char shown[44];
    uint32_t columns;
    if (other) return program_fail(error, "%.200s %s", path, other);
    const char *between = clicks_columns(text, n, &columns);
    clicks_show_begin(text, n, shown);
    return program_fail(
        error,
        "%.120s begins '%s', %" PRIu32 " column%s with %s%s. It is neither Criteo's (40 columns with tabs, or "
        "Id,Label,I1,...), Avazu's (id,click,...), libsvm's (label index:value ...) nor libffm's (label "
        "field:index:value ...); say its --format, or describe its columns by a --schema (--make-schema writes one)",
        path, shown, columns, columns == 1 ? "" : "s", between, clicks_nearly(text, n, columns));
}

int clicks_guess(const char *path, clicks_format *format, program_error *error) {
    const clicks_schema indexed = {.form = CLICKS_INDEXED};
    const clicks_line line = {.schema = &indexed};
    clicks_file file;
    char *text = NULL;
    size_t n = 0;
    int got;
    *format = CLICKS_ARRAYS;
    if (clicks_npy_is_log(path)) return 0;
    if (clicks_file_open(&file, path, error)) return -1;
    do got = clicks_file_line(&file, &text, &n, error);
    while (got > 0 && clicks_line_is_empty(&line, text, n));
    if (got > 0 && !clicks_guess_line(text, n, format)) got = clicks_fail_unknown(path, text, n, error);
    if (!got) got = program_fail(error, "%.200s has no lines; give another file, or say its --format", path);
    clicks_file_close(&file);
    return got < 0 ? -1 : 0;
}
