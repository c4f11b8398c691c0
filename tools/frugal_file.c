/* frugal_file - shows and checks saves of frugal_save, merges a base with its increments and the shares of several
 * machines, splits a save into such shares, and converts saves from and to other files. `frugal_file --help` says how
 * it is called.
 *
 * It is one source, of parts that lie in file/; each calls only what stands above it here:
 *   file.h    the library, compiled into this program; the options; where rows come from
 *   tell.c    failures, and how far a command has come
 *   image.c   what a base says of itself; writing one
 *   chain.c   the rows of a base and its increments
 *   woven.c   the rows of saves of several machines; merge
 *   arrays.c  to-npy, from-npy, convert
 *   split.c   split
 *   show.c    show, check
 * and here the command line.
 */
#include "file/file.h"

#include "file/tell.c"

#include "file/image.c"

#include "file/chain.c"

#include "file/woven.c"

#include "file/arrays.c"

#include "file/split.c"

#include "file/show.c"

enum { OPTIMIZER = 1, STEP = 2, DIM = 4, ROWS = 8, REPLACE = 16, MACHINES = 32, BLOCKS = 64, HOMES = 128 };

static const struct command {
    const char *name, *names, *help;
    int least, most; /* number of names; most 0: no limit */
    unsigned options;
} commands[] = {
    {"show", "SAVE|TABLE...",
     "Prints what saves, manifests and mapped tables are of; who uses a table, or whether it is torn. Of a damaged "
     "file "
     "it prints\n"
     "what stands before the damage, and fails.\n",
     1, 0, 0},
    {"check", "SAVE...",
     "Reads every byte, of a manifest also its shares'; tells rows with NaN. Several must be a base and its "
     "increments, in order.\n",
     1, 0, 0},
    {"merge", "OUT BASE [INCREMENT...]",
     "Writes one base with the rows of all of them, which later increments continue. Saves of several instances are\n"
     "merged as a whole. Of manifests of several machines it weaves the shares: the rows lie as on one machine.\n",
     2, 0, REPLACE},
    {"split", "OUT BASE [INCREMENT...]",
     "Writes a share for each of several machines, and the manifest OUT, with the rows of all of them.\n", 2, 0,
     MACHINES | BLOCKS | HOMES | REPLACE},
    {"to-npy", "FOLDER BASE [INCREMENT...]",
     "Writes weights-P-T.npy and state-P-T.npy for each table T of each instance P: float32 [rows][floats].\n"
     "Weights of 16 bits are widened, which is exact.\n",
     2, 0, REPLACE},
    {"from-npy", "OUT WEIGHTS.npy...",
     "Writes a base of one instance: a table a file, float32 [rows][dim]. The optimizer's state is zeros.\n", 2, 0,
     OPTIMIZER | STEP | REPLACE},
    {"convert", "OUT TABLE --dim N --rows N[,N...]",
     "Writes a base of a file that version 0.1 mapped (frugal_desc.file), with the state that is in it.\n", 2, 2,
     OPTIMIZER | STEP | DIM | ROWS | REPLACE}};
enum { COMMANDS = sizeof commands / sizeof *commands };

#define WORD(kind, word, ...) " " word
static const struct option {
    const char *name, *value, *help;
    unsigned bit;
} all_options[] = {{"--optimizer", "KIND", "(sgd) one of" FRUGAL_OPTIMIZERS(WORD), OPTIMIZER},
                   {"--step", "N", "(0) the next to train", STEP},
                   {"--dim", "N", "floats a row of the table has", DIM},
                   {"--rows", "N[,N...]", "rows of each table", ROWS},
                   {"--machines", "N", "over how many rows are dealt, row r to machine r mod N", MACHINES},
                   {"--blocks", "", "rows are dealt in blocks", BLOCKS},
                   {"--homes", "FILE.npy", "uint8, the machine of each row of all tables; once an instance", HOMES},
                   {"--replace", "", "a file of that kind that is there is replaced", REPLACE}};
enum { OPTIONS = sizeof all_options / sizeof *all_options };

static void print_help(const struct command *only) {
    if (!only) printf("usage: frugal_file COMMAND ...\n");
    for (const struct command *c = commands; c < commands + COMMANDS; c++) {
        if (only && c != only) continue;
        printf("%s%s %s%s\n", only ? "usage: frugal_file " : "  ", c->name, c->names,
               only && c->options ? " [options]" : "");
        if (only) printf("%s", c->help);
    }
    if (!only) printf("`frugal_file COMMAND --help` says more of each, and its options.\n");
    for (int i = 0; only && i < OPTIONS; i++)
        if (only->options & all_options[i].bit)
            printf("  %-11s %-25s %s\n", all_options[i].name, all_options[i].value, all_options[i].help);
    printf("A file has its name when all of it is on the disk; one that is there stays, without --replace. Memory is\n"
           "needed for some pieces of 4 to 8 MiB, whatever the size of the table. Results go to standard output,\n"
           "progress to standard error. Exit status: 0; 1 it failed; 2 it was called wrongly.\n");
}

static int read_number(const char *text, uint64_t most, uint64_t *out, const char **end) {
    char *stopped;
    if (!isdigit((unsigned char)*text)) return -1;
    errno = 0;
    unsigned long long value = strtoull(text, &stopped, 10);
    *out = value, *end = stopped;
    return errno || value > most ? -1 : 0;
}

static int read_row_list(const char *text) {
    const char *end;
    for (;; text = end + 1) {
        if (options.n_rows == MOST_TABLES || read_number(text, FRUGAL_MAX_ROWS, &options.rows[options.n_rows], &end))
            return -1;
        options.n_rows++;
        if (*end != ',') return *end ? -1 : 0;
    }
}

static int read_option(const char *name, const char *value) {
    const char *end = "";
    size_t length = strlen(value);
    uint64_t number;
    if (!strcmp(name, "--rows")) return read_row_list(value);
    if (!strcmp(name, "--homes")) {
        if (options.n_homes == SAVED_MOST_PARTS) return -1;
        options.homes[options.n_homes++] = value;
        return 0;
    }
    if (!strcmp(name, "--machines")) {
        if (read_number(value, MANIFEST_MOST_MACHINES, &number, &end) || *end || number == 0) return -1;
        options.machines = (uint32_t)number;
        return 0;
    }
    if (!strcmp(name, "--step")) return read_number(value, FRUGAL_MAX_FIRST_STEP, &options.step, &end) || *end ? -1 : 0;
    if (!strcmp(name, "--dim")) {
        if (read_number(value, 65536, &number, &end) || *end || number == 0) return -1;
        options.dim = (uint32_t)number;
        return 0;
    }
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        const char *word = optimizers[i].word; /* also up to its hyphen, as in "rowwise" */
        if (strncmp(value, word, length) || (word[length] && word[length] != '-')) continue;
        options.optimizer = (frugal_optimizer_kind)i;
        return 0;
    }
    return -1;
}

static const struct option *find_option(const char *name) {
    for (int i = 0; i < OPTIONS; i++)
        if (!strcmp(name, all_options[i].name)) return &all_options[i];
    return NULL;
}

typedef struct call { /* a command line without its options */
    char **names;     /* [n]: argv[0], the command, its names */
    int n, help;
    unsigned given; /* options */
    const char *values[OPTIONS];
} call;

/* If not 0, the program ends with this exit status. */
static int read_options(call *c, int argc) {
    for (int i = 1; i < argc; i++) {
        char *name = c->names[i];
        const struct option *o = find_option(name);
        if (!strcmp(name, "--help"))
            c->help = 1;
        else if (o && !*o->value)
            *(o->bit == REPLACE ? &options.replace : &options.blocks) = 1;
        else if (o) {
            const char *value = c->names[i + 1], **before = &c->values[o - all_options];
            if (i + 1 == argc) return fail_usage("%s needs a value", name);
            char both[160]; /* of rows the values add up */
            snprintf(both, sizeof both, "%s is given twice, as '%.50s' and as '%.50s'", name, *before ? *before : "",
                     value);
            if (*before && !(o->bit & (ROWS | HOMES))) return fail_usage("%s; give it once", both);
            *before = value;
            if (read_option(name, c->names[++i])) return fail_usage("%s has another value than it may", name);
        } else if (name[0] == '-' && name[1] == '-')
            return fail_usage("there is no option %s", name);
        else
            c->names[c->n++] = name;
        if (o) c->given |= o->bit;
    }
    return 0;
}

static int check_call(const struct command *command, const call *c) {
    for (int i = 0; i < OPTIONS; i++)
        if (c->given & all_options[i].bit & ~command->options)
            return fail_usage("the command has no option %s", all_options[i].name);
    int n = c->n - 2;
    if (n >= command->least && (command->most == 0 || n <= command->most)) return 0;
    fprintf(stderr, "frugal_file: wanted is %s %s; see frugal_file %s --help\n", command->name, command->names,
            command->name);
    return 2;
}

static int run_command(const struct command *command, int n, char **names) {
    int failed = 0;
    switch (command - commands) {
    case 0:
        for (int i = 0; i < n; i++) failed |= show_file(names[i]);
        return failed;
    case 1:
        return check_files(n, names);
    case 2:
        return merge_files(names[0], n - 1, names + 1);
    case 3:
        return split_files(names[0], n - 1, names + 1);
    case 4:
        return make_arrays(names[0], n - 1, names + 1);
    case 5:
        return from_arrays(names[0], (uint32_t)n - 1, names + 1);
    default:
        return convert_table(names[0], names[1]);
    }
}

static int run_call(call *c, int argc) {
    const struct command *command = NULL;
    int failed = read_options(c, argc);
    if (failed) return failed;
    for (int i = 0; i < COMMANDS && c->n > 1; i++)
        if (!strcmp(c->names[1], commands[i].name)) command = &commands[i];
    if (c->help && (command || c->n == 1)) {
        print_help(command);
        return 0;
    }
    if (!command) return fail_usage("%s is no command", c->n > 1 ? c->names[1] : "nothing");
    if ((failed = check_call(command, c)) != 0) return failed;
    program_catch_signals();
    failed = run_command(command, c->n - 2, c->names + 2);
    program_release_signals();
    return failed;
}

int main(int argc, char **argv) {
    program_error error;
    call c = {.names = argv, .n = argc > 0};
    program_open_streams();
    int failed = run_call(&c, argc);
    if (!program_flush(stdout, c.help ? "the help" : "the results", &error)) return failed;
    fprintf(stderr, "frugal_file: %s\n", error.text);
    return 1;
}
