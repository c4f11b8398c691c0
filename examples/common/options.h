/* The command line, read by a table of long options: what kind each is, its limits, and where its value goes.
 *
 *     typedef struct settings {                              the program's own: read into, then checked
 *         uint32_t dim;
 *         double seconds;
 *         const char *json;
 *         int mode, help, seconds_given, generate;
 *         clicks_generator generator;
 *         dlrm_widths top;
 *     } settings;
 *     #define AT(field) offsetof(settings, field)
 *
 *     static const char *const modes[] = {"p2f", "sync", NULL};
 *     static const options_entry keys[] = {                  of --generate samples=100000,zipf=1.1
 *         {"samples", OPTIONS_WHOLE64, .at = AT(generator.samples), .whole = {1, 1000000000}},
 *         {"zipf", OPTIONS_REAL, .at = AT(generator.zipf), .real = {0, 10}},
 *     };
 *     static const options_entry entries[] = {
 *         {"dim", OPTIONS_WHOLE32, .at = AT(dim), .whole = {1, 65536}},
 *         {"seconds", OPTIONS_REAL, .at = AT(seconds), .real = {0.001, 1e9}, .given = AT(seconds_given)},
 *         {"mode", OPTIONS_CHOICE, .at = AT(mode), .choices = modes},
 *         {"json", OPTIONS_TEXT, .at = AT(json)},
 *         {"top", OPTIONS_READ, .at = AT(top), .read = read_widths},
 *         {"generate", OPTIONS_SPEC, .at = AT(generate), .keys = keys, .n_keys = 2, .example = "samples=9000,zipf=1"},
 *         {"help", OPTIONS_FLAG, .at = AT(help)},
 *     };
 *     static const options_table table = {"dlrm", entries, sizeof entries / sizeof *entries};
 *
 *     settings s = {.dim = 16};                              defaults: what is not given stays as it is
 *     if (options_read(&table, OPTIONS_ALL, argc, argv, &s, &error)) ...
 *
 * Where the defaults of some options hang on others (kge's on --model), these others have .first = 1, and there are two
 * passes: OPTIONS_FIRST reads them alone, the program sets the defaults, OPTIONS_ALL reads everything.
 *
 * As getopt_long has it: `--dim 16` and `--dim=16`, names may be cut short while they stay clear, the last of several
 * counts. All functions return 0, or -1 with *error filled: the option, its value and its limits. Nothing is printed.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "examples/common/program.h"

typedef enum {
    OPTIONS_WHOLE32, /* a whole number, into a uint32_t */
    OPTIONS_WHOLE64, /* into a uint64_t */
    OPTIONS_REAL,    /* a number, into a double */
    OPTIONS_FLOAT,   /* into a float */
    OPTIONS_CHOICE,  /* one word of a list: its number, into an int */
    OPTIONS_TEXT,    /* a pointer into argv, into a const char * */
    OPTIONS_FLAG,    /* without a value: 1, into an int */
    OPTIONS_READ,    /* by a function of the program's own */
    OPTIONS_SPEC     /* [key=value,...]: 1, into an int, and each value where its key's entry says */
} options_kind;

/* Reads an option's text into `place`; `name` is for messages, without its dashes. */
typedef int options_reader(void *place, const char *name, const char *text, program_error *error);

typedef struct options_entry {
    const char *name; /* without dashes */
    options_kind kind;
    size_t at;                  /* offset of its place in the program's struct */
    uint64_t whole[2];          /* whole numbers: from, to */
    double real[2];             /* numbers, likewise */
    const char *const *choices; /* ends with NULL */
    options_reader *read;
    const struct options_entry *keys; /* OPTIONS_SPEC: of whole numbers, numbers and choices */
    int n_keys;
    const char *example; /* OPTIONS_SPEC: "key=value,key=value", for a message */
    size_t given;        /* offset of an int that becomes 1 where the option is there; 0: none */
    int first;           /* others' defaults hang on it */
} options_entry;

typedef struct options_table {
    const char *program; /* its name: messages end "see NAME --help" */
    const options_entry *entries;
    int n; /* up to OPTIONS_MOST */
} options_table;

enum { OPTIONS_MOST = 96 };

typedef enum { OPTIONS_ALL, OPTIONS_FIRST } options_pass;

/* Reads the command line into *place, the program's struct. With OPTIONS_FIRST entries without .first are passed over,
 * but for what is no option at all. Where it fails, part of *place may be set: read into a copy. */
int options_read(const options_table *table, options_pass pass, int argc, char **argv, void *place,
                 program_error *error);

/* A whole number in decimal digits, from least to most: for readers of the program's own. */
int options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  program_error *error);

/* A list of places, one a device: "cpu,cuda:0,cuda:0" into gpu[*n], 0 for host cores, else the GPU's number plus 1.
 * `cuda_program` NULL: GPUs are allowed; else the message names it as the program to use for them. */
enum { OPTIONS_MOST_PLACES = 254 };
int options_places(const char *name, const char *text, const char *cuda_program, uint8_t gpu[OPTIONS_MOST_PLACES],
                   uint32_t *n, program_error *error);
/* How many devices there are: *devices, which --devices said if it is `given`, or the places that --device `listed`. */
int options_devices(uint32_t listed, int given, uint32_t *devices, program_error *error);

#endif
