/* bench_record.h - a measurement as a JSON object per line, or as a row of a table: filled in once, printed in either
 * form. */
#ifndef FRUGAL_BENCH_CUDA_RECORD_H
#define FRUGAL_BENCH_CUDA_RECORD_H

#include "bench/measure.h"
#include "bench/program.h"

#include <algorithm>
#include <cmath>
#include <stdio.h>
#include <string>
#include <vector>

static int json; /* --json: one object a line */

typedef struct record_field {
    std::string name, text;
    int quoted;    /* a text, in JSON */
    int only_json; /* too long for a table */
} record_field;

typedef std::vector<record_field> record;

static inline void record_add_text(record *r, const char *name, const char *text) {
    r->push_back({name, text, 1, 0});
}

static inline void record_add_long_text(record *r, const char *name, const char *text) {
    r->push_back({name, text, 1, 1});
}

static inline void record_add_count(record *r, const char *name, uint64_t value) {
    r->push_back({name, std::to_string(value), 0, 0});
}

static inline void record_add_real(record *r, const char *name, double value, int digits) {
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, value);
    r->push_back({name, std::isfinite(value) ? text : "null", 0, 0}); /* JSON has no word for what is not finite */
}

/* As it was given: 0.99, 0. */
static inline void record_add_plain(record *r, const char *name, double value) {
    char text[64];
    snprintf(text, sizeof text, "%g", value);
    r->push_back({name, text, 0, 0});
}

/* What was not measured. */
static inline void record_add_none(record *r, const char *name) {
    r->push_back({name, "null", 0, 0});
}

/* From times in seconds: median, least and greatest in microseconds (us, min_us, max_us), and their number. */
static inline void record_add_times(record *r, const bench_samples *s) {
    record_add_real(r, "us", bench_median(s) * 1e6, 2);
    record_add_real(r, "min_us", bench_quantile(s, 0) * 1e6, 2);
    record_add_real(r, "max_us", bench_quantile(s, 1) * 1e6, 2);
    record_add_count(r, "repeats", s->n);
}

static inline void record_print_json(const record *r) {
    const char *before = "{";
    for (const record_field &field : *r) {
        printf("%s\"%s\": ", before, field.name.c_str());
        printf(field.quoted ? "\"%s\"" : "%s", field.text.c_str());
        before = ", ";
    }
    puts("}");
}

static inline void record_print_row(const record *r) {
    static std::string header;
    std::string names = "";
    for (const record_field &field : *r) names += field.name + " ";
    names += (*r)[0].text;
    if (names != header) {
        printf("\n%s\n", (*r)[0].text.c_str());
        for (size_t i = 1; i < r->size(); i++)
            if (!(*r)[i].only_json) printf("%*s ", (int)std::max<size_t>((*r)[i].name.size(), 8), (*r)[i].name.c_str());
        puts("");
    }
    header = names;
    for (size_t i = 1; i < r->size(); i++)
        if (!(*r)[i].only_json) printf("%*s ", (int)std::max<size_t>((*r)[i].name.size(), 8), (*r)[i].text.c_str());
    puts("");
}

/* Prints it at once, so that a program that is killed loses no measurement. */
static inline void print_record(const record *r) {
    bench_progress("%s", "");
    if (json)
        record_print_json(r);
    else
        record_print_row(r);
    fflush(stdout);
}

#endif
