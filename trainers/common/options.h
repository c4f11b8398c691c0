/* The command line of every program here: a table of long options says what kind each is, its limits, where its value
 * goes and what --help says of it.
 *
 *     static uint32_t dim = 16;                              each place holds the default: what is not given stays
 *     static double seconds;
 *     static const char *json;
 *     static int mode, help, seconds_given, generate;
 *     static options_list threads = {{1, 2}, 2};
 *     static clicks_generator generator;
 *     static dlrm_widths top;
 *
 *     static const char *const modes[] = {"p2f", "sync", NULL};
 *     static const options_entry keys[] = {                  of --generate samples=100000,zipf=1.1
 *         {"samples", OPTIONS_WHOLE64, &generator.samples, 1, 1e9},
 *         {"zipf", OPTIONS_REAL, &generator.zipf, 0, 10},
 *         {0},
 *     };
 *     static const options_entry entries[] = {
 *         {"dim", OPTIONS_WHOLE32, &dim, 1, 65536, .help = "floats a row"},
 *         {"seconds", OPTIONS_REAL, &seconds, 0.001, 1e9, .given = &seconds_given, .help = "at the most"},
 *         {"threads", OPTIONS_WHOLES, &threads, 1, 64, .help = "that train"},
 *         {"mode", OPTIONS_CHOICE, &mode, .choices = modes, .help = "when rows are flushed"},
 *         {"json", OPTIONS_TEXT, &json, .help = "one object a line"},
 *         {"top", OPTIONS_READ, &top, .read = read_widths, .value = "LIST", .help = "widths of layers"},
 *         {"generate", OPTIONS_SPEC, &generate, .keys = keys, .example = "samples=9000", .help = "a log made up"},
 *         {"help", OPTIONS_FLAG, &help, .help = "this"},
 *         {0},
 *     };
 *
 *     options_table table = {.program = "dlrm", .about = "usage: dlrm [options]\n"};
 *     options_add(&table, NULL, entries);
 *     if (options_read(&table, OPTIONS_ALL, argc, argv, &error)) ...
 *
 * Where the defaults of some options depend on others (kge's on --model), these others have .first = 1, and there are
 * two passes: OPTIONS_FIRST reads them alone, the program sets the defaults, OPTIONS_ALL reads everything.
 *
 * `--dim 16` and `--dim=16`; names may be abbreviated while they stay unambiguous. An option that takes one value is
 * refused where it is given twice: one of the two would be lost silently. A whole number may be written 1e6. All
 * functions return 0, or -1 with *error filled: the option, its value and its limits. Nothing is printed unless
 * options_help is called.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "trainers/common/program.h"

/* A table leaves out the fields that are zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OPTIONS_WHOLE32, /* a whole number, into a uint32_t */
    OPTIONS_WHOLE64, /* into a uint64_t */
    OPTIONS_REAL,    /* a number, into a double */
    OPTIONS_FLOAT,   /* into a float */
    OPTIONS_CHOICE,  /* one word of a list: its number, into an int or an enum */
    OPTIONS_WHOLES,  /* whole numbers with commas between them, into an options_list */
    OPTIONS_REALS,   /* numbers, likewise */
    OPTIONS_CHOICES, /* words of a list: their numbers, into an options_list */
    OPTIONS_TEXT,    /* a pointer into argv, into a const char * */
    OPTIONS_TEXTS,   /* the same as often as it is given, into an options_texts */
    OPTIONS_FLAG,    /* without a value: 1, into an int */
    OPTIONS_READ,    /* by a function of the program's own */
    OPTIONS_SPEC     /* [key=value,...]: 1, into an int, and each value where its key's entry says */
} options_kind;

enum { OPTIONS_LIST = 32, OPTIONS_SECTIONS = 16, OPTIONS_ENTRIES = 160, OPTIONS_MOST_TEXTS = 1024 };

/* Pointers into argv, in their order; NULL follows the last. */
typedef struct options_texts {
    const char *at[OPTIONS_MOST_TEXTS + 1];
    uint32_t n;
} options_texts;

/* Values of one option, so that one run can sweep them: --lookahead 0,1,2,5. */
typedef struct options_list {
    double values[OPTIONS_LIST];
    uint32_t n;
} options_list;

/* Reads an option's text into `to`; `name` is for messages, without its dashes. */
typedef int options_reader(void *to, const char *name, const char *text, program_error *error);

typedef struct options_entry {
    const char *name; /* without dashes; NULL: the table ends */
    options_kind kind;
    void *to;                   /* its place, which holds the default */
    double least, most;         /* of numbers; 0x1p64 is UINT64_MAX */
    const char *const *choices; /* words; ends with NULL */
    const char *help;
    const char *value;    /* what --help calls its value; NULL: N, X, NAME, FILE or [SPEC], by kind */
    const char *standard; /* the default in words; NULL: what the place holds; "": it is not told */
    int *given;           /* becomes 1 where the option is there */
    options_reader *read;
    const struct options_entry *keys; /* OPTIONS_SPEC: of whole numbers, numbers and choices */
    const char *example;              /* OPTIONS_SPEC: "key=value,key=value", for a message */
    int first;                        /* others' defaults depend on it */
} options_entry;

typedef struct options_table {
    const char *program;        /* its name: messages end "see NAME --help" */
    const char *about;          /* what --help says before the options */
    const char *const *matters; /* names, ends with NULL: --help lists these first, in this order; NULL: none */
    struct {
        const char *heading; /* NULL: the section before goes on */
        const options_entry *entries;
    } section[OPTIONS_SECTIONS];
    int n;
} options_table;

/* Adds entries, up to the one without a name, to the table. Both are read where they are, later. */
void options_add(options_table *table, const char *heading, const options_entry *entries);

/* Does the command line have --NAME, in full? For programs that have several tables. */
int options_has(int argc, char **argv, const char *name);

typedef enum { OPTIONS_ALL, OPTIONS_FIRST } options_pass;

/* Reads the command line. With OPTIONS_FIRST, entries without .first are skipped, but unknown options are refused. If
 * it fails, some places may have changed. */
int options_read(const options_table *table, options_pass pass, int argc, char **argv, program_error *error);

/* To stdout: `about`, and every option once, with its choices and its default, which is what its place holds now.
 * Those that matter come first, under a heading of their own, and are left out of their sections. */
void options_help(const options_table *table);

/* A whole number in decimal digits or as 1e6, from least to most: for readers of the program's own. */
int options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  program_error *error);

#ifdef __cplusplus
}
#endif

#endif
