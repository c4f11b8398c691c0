/* A schema as the text that schema_read.c reads. */
#include "trainers/clicks/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "trainers/clicks/number.h"

/* In quotes wherever it can be: never a keyword, then. */
static void clicks_put_word(FILE *stream, const char *word) {
    fprintf(stream, strchr(word, '"') ? " %s" : " \"%s\"", word);
}

static void clicks_put_texts(FILE *stream, const char *before, const clicks_texts *texts) {
    if (texts->n) fputs(before, stream);
    for (uint32_t i = 0; i < texts->n; i++) clicks_put_word(stream, texts->text[i].at);
}

/* The shortest text that is read as this number, if 17 digits are enough. */
static void clicks_put_real(FILE *stream, double x) {
    char text[40];
    double again = 0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (clicks_parse_number(text, strlen(text), &again) && !(again < x) && !(again > x)) break;
    }
    fprintf(stream, " %s", text);
}

static void clicks_put_column(FILE *stream, const clicks_schema *schema, const clicks_column *c) {
    static const char *const kinds[] = {"skip", "label", "number", "id"};
    fputs(kinds[c->kind], stream);
    clicks_put_word(stream, c->name.at);
    if (c->kind == CLICKS_LABEL) {
        clicks_put_texts(stream, " one", &schema->one);
        clicks_put_texts(stream, " zero", &schema->zero);
    }
    if (c->kind == CLICKS_NUMBER && c->transform == CLICKS_LOG) fputs(" log", stream);
    if (c->transform == CLICKS_SCALE) {
        fputs(" scale", stream);
        clicks_put_real(stream, c->subtract);
        clicks_put_real(stream, c->divide);
    }
    if (c->width > 0) {
        fputs(c->bucket == CLICKS_LOG ? " logbucket" : " bucket", stream);
        clicks_put_real(stream, c->width);
    }
    if (c->rows && !c->with) fprintf(stream, " rows %" PRIu64, c->rows);
    if (c->last) fprintf(stream, " last %" PRIu32, c->last);
    if (c->kind == CLICKS_ID && c->hex) fputs(" hex", stream);
    if (c->bag) {
        fputs(" bag", stream);
        clicks_put_word(stream, (const char[]){c->bag, 0});
    }
    if (c->weighted) fputs(" weighted", stream);
    if (c->mean) fputs(" mean", stream);
    if (c->with) {
        fputs(" with", stream);
        clicks_put_word(stream, schema->columns[c->with - 1].name.at);
    }
    fputc('\n', stream);
}

void clicks_schema_write(const clicks_schema *schema, FILE *stream) {
    if (schema->form != CLICKS_DENSE) {
        fprintf(stream, "# no columns: label %sindex:value ...\n", schema->form == CLICKS_FIELDS ? "field:" : "");
        return;
    }
    fputs("separator", stream);
    clicks_put_word(stream, (const char[]){schema->separator, 0});
    fprintf(stream, "\nheader %s\nquotes %s\n", schema->header ? "yes" : "no", schema->quotes ? "yes" : "no");
    if (schema->says_missing && !schema->missing.n) fputs("missing", stream);
    clicks_put_texts(stream, "missing", &schema->missing);
    if (schema->says_missing) fputc('\n', stream);
    for (uint32_t i = 0; i < schema->n_columns; i++) clicks_put_column(stream, schema, &schema->columns[i]);
}
