/* A line of a click log as a sample, or the reason why it is not one. */
#ifndef CLICKS_LINE_H
#define CLICKS_LINE_H

#include <stddef.h>
#include <stdint.h>
#include "trainers/clicks/schema.h"

/* Where a sample goes. */
typedef struct clicks_sample {
    float *label;
    float *numbers; /* numbers[n_numbers] */
    uint64_t *ids;  /* ids[k * stride] is that of feature k: its row where ids are given, else the hash of its text */
    uint64_t stride;
    /* With bags: ids[], the feature and the weight of each, and how many they are. */
    uint32_t *features, *count;
    float *weights;
} clicks_sample;

typedef struct clicks_line {
    const clicks_schema *schema; /* each id with its rows, where ids are given */
    int given;
    uint32_t most;  /* with bags: ids of a line; 0: any number, as long as lines are only checked */
    int any_field;  /* fields beyond the schema's are checked, too */
    char separator; /* the schema's, or that of the first line */
    /* Where a first line names the columns: of each of the file's, the schema's; CLICKS_NO_COLUMN: none. NULL: they are
     * the schema's. */
    uint32_t *order, n_order;
    uint32_t column;  /* of the file, which is read */
    uint32_t ids;     /* with bags: of the last line */
    uint32_t fields;  /* of field:index:value: the last line's highest field, and 1 */
    char reason[160]; /* why the line is no sample: "12 columns, must be 15" */
} clicks_line;

#define CLICKS_NO_COLUMN UINT32_MAX

typedef struct clicks_field {
    char *at;
    size_t n;
} clicks_field;

/* The field at `at` of a line that ends at `end`, where its separator stands, without blanks and quotes around it;
 * returns the separator behind it. NULL: a quote does not end it. */
char *clicks_line_field(int quotes, char separator, char *at, char *end, clicks_field *field);
/* Lines of blanks alone count as not there; and lines of index:value that are a comment. */
int clicks_line_is_empty(const clicks_line *line, const char *text, size_t n);
/* The sample of a line without its end. text[0] to text[n] may be overwritten; nothing of the text is kept. `out` NULL:
 * the sample is only checked. 0, or -1 with the reason; *out may then be filled in part. */
int clicks_line_read(clicks_line *line, char *text, size_t n, const clicks_sample *out);
/* The line that names the columns: finds the separator, where the format is known, and fills order[], which has room
 * for CLICKS_MOST_COLUMNS. -1: it does not name them, with the reason. */
int clicks_line_header(clicks_line *line, char *text, size_t n);
/* The one of these separators that is there most; of those that are equally often, the first. */
char clicks_line_separator(const char *of, const char *text, size_t n);
/* Does the line name all of these columns, whatever separates them, and in whatever case? */
int clicks_line_names(const char *text, size_t n, const char *const *names);

#endif
