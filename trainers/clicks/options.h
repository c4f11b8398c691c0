/* The options that say which click log is read, and how ids become rows. dlrm, build/place and build/reorder have the
 * same ones, so that build/place deals the samples that dlrm trains on.
 *
 *     static const clicks_options_words words = {.program = "dlrm", .value = "FILE", .data = ..., .generates = 1};
 *     clicks_options_begin(0);                                 defaults
 *     clicks_options_add(&table, &words);
 *     if (options_read(&table, OPTIONS_ALL, argc, argv, &error)) ...
 *     if (clicks_options_take(&options, &words, &error)) ...
 *
 * --generate has .first = 1 (trainers/common/options.h): after OPTIONS_FIRST, clicks_options_read().generate says which
 * defaults the second pass begins with. What is read lies in a place of options.c until it is taken.
 */
#ifndef CLICKS_OPTIONS_H
#define CLICKS_OPTIONS_H

#include "trainers/clicks/clicks.h"
#include "trainers/common/options.h"

typedef struct clicks_options {
    const char *path; /* --data, the first; NULL: generated. clicks.files has all of them */
    char name[200];   /* of the log, for messages: the path, or that and how many follow */
    int generate;
    int guess; /* the log's format is that of its first line */
    clicks_settings clicks;
    const char *test;  /* held-out samples: a file; NULL: none is given */
    double test_share; /* ... a share of `path`, its last ones; 0: a file, or none */
} clicks_options;

/* What differs between programs. It is read later, and must stay. */
typedef struct clicks_options_words {
    const char *program;
    const char *value;       /* of --data */
    const char *data, *test; /* what --help says of --data and --test */
    int generates;           /* there is --generate */
} clicks_options_words;

/* Adds the section `data` to the table. */
void clicks_options_add(options_table *table, const clicks_options_words *words);
/* Forgets what has been read, and sets the defaults: those of a generated log, which is for demonstration, or of a
 * file. Before each pass of options_read. */
void clicks_options_begin(int generate);
/* What --format calls it, unless it is generated. */
const char *clicks_options_format(clicks_format format);
/* What has been read, and is of a log alone: the option's name without its dashes; NULL: none. */
const char *clicks_options_of_log(void);
/* What has been read, unchecked. */
clicks_options clicks_options_read(void);
/* The file of --data that is the same as this one; NULL: none is. */
const char *clicks_options_holds(const clicks_options *options, const char *path);
/* What has been read, if the options fit each other. 0, or -1 with *error filled: what does not fit. */
int clicks_options_take(clicks_options *options, const clicks_options_words *words, program_error *error);

/* The held-out samples that --test takes off the end of a log of so many. 0, or -1 with *error filled: it takes none,
 * or leaves none. */
int clicks_options_hold_out(const clicks_options *options, uint64_t samples, uint64_t *held_out, program_error *error);

#endif
