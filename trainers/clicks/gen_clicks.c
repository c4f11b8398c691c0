/* gen_clicks: writes click logs whose best possible area under the curve is known (generate.h).
 *
 *     gen_clicks --samples 45000000 --rows 1000000 --out criteo.tsv.gz
 *     gen_clicks --format csv --features 100 --numbers 0 --write-schema log.schema --out log.csv
 *     gen_clicks --communities 8 --within 0.9 --out criteo.tsv          for trying placement
 *
 * A file gets its name when it is whole (common/file.h).
 */
#include "trainers/clicks/auc.h"
#include "trainers/clicks/write.h"
#include "trainers/common/file.h"
#include "trainers/common/options.h"
#include "trainers/common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- Options ------------------------------------------------------------------------------------------- */

typedef struct gen_options {
    clicks_generator size;
    const char *out, *schema;
    int format, auc, help, within_given;
    clicks_generator_given size_given;
} gen_options;

static gen_options given; /* by the command line, and then checked */

static const char gen_about[] =
    "usage: gen_clicks [options]\n"
    "\n"
    "Writes a click log with planted weights: what can be learnt from it at best is known, and told on stderr.\n"
    "The same options give the same log.\n"
    "\n";
static const char gen_notes[] =
    "\n"
    "Read with ids as given rows, or by hash, or by vocabulary, as any log. Exit status: 0 done; 1 failed or ended by\n"
    "Ctrl-C, and then no file is there; 2 wrong usage.\n";

static const char *const gen_formats[] = {"criteo", "criteo-csv", "avazu", "csv", NULL};
static const char *const gen_truths[] = {"no", "yes", NULL};

static const options_entry gen_entries[] = {
    {"format", OPTIONS_CHOICE, &given.format, .choices = gen_formats,
     .help = "criteo is separated by tabs, csv has any columns"},
    {"samples", OPTIONS_WHOLE64, &given.size.samples, 1, 0x1p48, .help = "lines"},
    {"numbers", OPTIONS_WHOLE32, &given.size.numbers, 0, 4095, .given = &given.size_given.numbers,
     .standard = "13; avazu: 0", .help = "whole numbers a line, an eighth of them missing; Criteo has 13"},
    {"features", OPTIONS_WHOLE32, &given.size.features, 1, 4095, .given = &given.size_given.features,
     .standard = "26; avazu: 21", .help = "ids a line; Criteo has 26, Avazu 21 beside the hour"},
    {"rows", OPTIONS_WHOLE64, &given.size.rows, 1, 0x1p32, .given = &given.size_given.rows,
     .help = "different ids a feature"},
    {"zipf", OPTIONS_REAL, &given.size.zipf, 0, 10, .given = &given.size_given.zipf,
     .help = "skew of the ids: the k-th most frequent comes in proportion to k^-X; 0: uniform"},
    {"spread", OPTIONS_REAL, &given.size.spread, 0, 100,
     .help = "standard deviation of the planted logit: the larger, the easier to tell"},
    {"communities", OPTIONS_WHOLE64, &given.size.communities, 0, 0x1p32,
     .help = "each sample belongs to one of them, and each of them has a range of ids of its own; 0: none"},
    {"within", OPTIONS_REAL, &given.size.within, 0, 1, .given = &given.within_given,
     .help = "with --communities: the share of the ids that are of their sample's community; the others are of any"},
    {"like", OPTIONS_CHOICE, &given.size.like, .choices = clicks_likes,
     .help = "features, and the ids and skew of each, as published of that log; communities are skewed, too"},
    {"seed", OPTIONS_WHOLE64, &given.size.seed, 0, 0x1p64, .help = "of everything random"},
    {"out", OPTIONS_TEXT, &given.out, .standard = "stdout",
     .help = "where to; a name that ends with .gz is compressed"},
    {"write-schema", OPTIONS_TEXT, &given.schema, .help = "of --format csv: the schema to read it with"},
    {"auc", OPTIONS_CHOICE, &given.auc, .choices = gen_truths, .value = "yes|no",
     .help = "tell the best area under the curve and log loss, of all samples and of the last fifth; takes 8 bytes of "
             "memory a sample"},
    {"help", OPTIONS_FLAG, &given.help, .help = "this"},
    {0},
};

static clicks_writer gen_writer(const gen_options *options) {
    static const clicks_format formats[] = {CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU, CLICKS_SCHEMA};
    return (clicks_writer){formats[options->format], options->size};
}

static options_table gen_table(void) {
    options_table table = {.program = "gen_clicks", .about = gen_about};
    given = (gen_options){.size = clicks_generator_default(), .auc = 1};
    options_add(&table, NULL, gen_entries);
    return table;
}

static int gen_options_parse(gen_options *options, int argc, char **argv, program_error *error) {
    options_table table = gen_table();
    if (options_read(&table, OPTIONS_ALL, argc, argv, error)) return -1;
    *options = given;
    clicks_writer writer = gen_writer(options);
    if (writer.format == CLICKS_AVAZU && !options->size_given.numbers) options->size.numbers = 0;
    if (writer.format == CLICKS_AVAZU && !options->size_given.features) options->size.features = 21;
    if (clicks_generator_resolve(&options->size, &options->size_given, error)) return -1;
    writer.size = options->size;
    if (options->schema && writer.format != CLICKS_SCHEMA)
        return program_fail(error, "--write-schema is for --format csv; %s has no schema",
                            gen_formats[options->format]);
    if (file_is_same(options->out, options->schema))
        return program_fail(error, "--out and --write-schema are one file, %.200s; give two", options->schema);
    if (options->within_given && options->size.communities < 2)
        return program_fail(error, "--within %g is of --communities; give 2 or more of them", options->size.within);
    if (options->size.communities > options->size.rows)
        return program_fail(error, "--communities %" PRIu64 " are more than --rows %" PRIu64 "; give fewer",
                            options->size.communities, options->size.rows);
    if ((uint64_t)options->size.numbers + options->size.features > 4095)
        return program_fail(error, "--numbers %" PRIu32 " and --features %" PRIu32 " are more than 4095 together",
                            options->size.numbers, options->size.features);
    if (options->auc && options->size.samples > UINT64_C(1) << 32)
        return program_fail(error, "--samples %" PRIu64 " are more than 2^32, of which --auc can tell; give --auc no",
                            options->size.samples);
    return clicks_writer_check(&writer, error);
}

/* ---- Output -------------------------------------------------------------------------------------------- */

typedef struct gen_output {
    const char *name; /* for messages */
    file_new file;    /* .path NULL: written in place */
    gzFile stream;
} gen_output;

static int gen_fail_write(const gen_output *output, program_error *error) {
    int number = errno;
    return program_fail(error, "cannot write %.300s: %s%s", output->name, number ? strerror(number) : "out of memory",
                        file_remedy(number));
}

/* A descriptor of its own, which the stream closes; -1: error. */
static int gen_output_descriptor(gen_output *output, const char *path, program_error *error) {
    struct stat is;
    int opened = -1;
    if (!path)
        opened = dup(STDOUT_FILENO);
    else if (!stat(path, &is) && !S_ISREG(is.st_mode)) /* a pipe or a device: written to, not replaced */
        opened = open(path, O_WRONLY | O_CLOEXEC);
    else if (file_make(&output->file, path, error))
        return -1;
    else
        opened = dup(output->file.descriptor);
    return opened < 0 ? gen_fail_write(output, error) : opened;
}

static int gen_output_open(gen_output *output, const char *path, program_error *error) {
    *output = (gen_output){.name = path ? path : "to stdout", .file = {.descriptor = -1}};
    int opened = gen_output_descriptor(output, path, error);
    if (opened < 0) return -1;
    errno = 0;
    output->stream = gzdopen(opened, path && file_ends_with(path, ".gz") ? "wb1" : "wbT"); /* T: as it is */
    if (!output->stream) {
        gen_fail_write(output, error);
        close(opened);
        file_discard(&output->file);
        return -1;
    }
    gzbuffer(output->stream, 1 << 18);
    return 0;
}

static int gen_output_write(gen_output *output, const char *text, size_t n, program_error *error) {
    errno = 0;
    if (!n || gzwrite(output->stream, text, (unsigned)n) == (int)n) return 0;
    return gen_fail_write(output, error);
}

/* With `whole` the file gets its name, else it is taken away. */
static int gen_output_close(gen_output *output, int whole, program_error *error) {
    int status = 0;
    errno = 0;
    if (output->stream && gzclose(output->stream) != Z_OK && whole) status = gen_fail_write(output, error);
    if (output->file.path && whole && !status)
        status = file_close(&output->file, error) || file_publish(&output->file, error) ? -1 : 0;
    file_discard(&output->file);
    return status;
}

/* ---- The log ------------------------------------------------------------------------------------------- */

typedef struct gen_program {
    gen_options options;
    clicks_writer writer;
    clicks_planted planted;
    clicks_drawn drawn;
    char *text;
    auc *all, *last; /* of all samples, and of the last fifth */
    progress_line line;
    double started;
} gen_program;

static int gen_open(gen_program *program, program_error *error) {
    const clicks_generator *size = &program->options.size;
    program->writer = gen_writer(&program->options);
    if (clicks_planted_open(&program->planted, size, error)) return -1;
    program->drawn.numbers = malloc(((size_t)size->numbers + 1) * sizeof *program->drawn.numbers);
    program->drawn.ids = malloc(size->features * sizeof *program->drawn.ids);
    program->text = malloc(clicks_writer_room(&program->writer));
    if (!program->drawn.numbers || !program->drawn.ids || !program->text)
        return program_fail(error, "out of memory for a line");
    if (!program->options.auc) return 0;
    return auc_open(&program->all, error) || auc_open(&program->last, error) ? -1 : 0;
}

static void gen_close(gen_program *program) {
    clicks_planted_close(&program->planted);
    free(program->drawn.numbers);
    free(program->drawn.ids);
    free(program->text);
    auc_close(program->all);
    auc_close(program->last);
}

static void gen_show_progress(gen_program *program, uint64_t done) {
    double seconds = program_now() - program->started, share = (double)done / (double)program->options.size.samples;
    char text[160];
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " samples  %.0f samples/s  %.0f s left", done,
             program->options.size.samples, seconds > 0 ? (double)done / seconds : 0, progress_left(seconds, share));
    progress_show(&program->line, text, seconds, 0);
}

static int gen_score(gen_program *program, uint64_t i, program_error *error) {
    uint64_t samples = program->options.size.samples;
    float logit = (float)program->drawn.logit, label = (float)program->drawn.label;
    if (!program->all) return 0;
    if (auc_add(program->all, &logit, &label, 1, error)) return -1;
    return i < samples - samples / 5 ? 0 : auc_add(program->last, &logit, &label, 1, error);
}

static int gen_write_samples(gen_program *program, gen_output *output, program_error *error) {
    const clicks_writer *writer = &program->writer;
    if (gen_output_write(output, program->text, clicks_write_header(writer, program->text), error)) return -1;
    for (uint64_t i = 0; i < writer->size.samples; i++) {
        if (program_signalled)
            return program_fail(error, "ended by %s after %" PRIu64 " of %" PRIu64 " samples%s", program_signal(), i,
                                writer->size.samples, output->file.path ? "; nothing is kept" : "");
        if (i % 65536 == 65535) gen_show_progress(program, i);
        clicks_planted_draw(&program->planted, i, &program->drawn);
        size_t n = clicks_write_sample(writer, i, &program->drawn, program->text);
        if (gen_output_write(output, program->text, n, error) || gen_score(program, i, error)) return -1;
    }
    return 0;
}

static int gen_write_schema(gen_program *program, program_error *error) {
    gen_output output;
    if (!program->options.schema) return 0;
    if (gen_output_open(&output, program->options.schema, error)) return -1;
    int status = gen_output_write(&output, program->text, clicks_write_schema(&program->writer, program->text), error);
    program_error closing;
    if (!gen_output_close(&output, !status, status ? &closing : error)) return status;
    return -1;
}

static void gen_tell(auc *a, const char *which) {
    program_error why;
    double area, loss;
    uint64_t n = auc_samples(a);
    fprintf(stderr, "%s: %" PRIu64 " samples, %.2f%% clicked, ", which, n,
            n ? 100 * (double)auc_positives(a) / (double)n : 0);
    if (auc_area(a, &area, &why) || auc_log_loss(a, &loss, &why))
        fprintf(stderr, "no best AUC: %s\n", why.text);
    else
        fprintf(stderr, "best AUC %.5f, best log loss %.5f\n", area, loss);
}

static int gen_run(gen_program *program, program_error *error) {
    gen_output output;
    if (gen_open(program, error) || gen_write_schema(program, error)) return -1;
    if (gen_output_open(&output, program->options.out, error)) return -1;
    int status = gen_write_samples(program, &output, error);
    program_error closing;
    if (gen_output_close(&output, !status, status ? &closing : error)) status = -1;
    progress_end(&program->line);
    if (status || !program->all) return status;
    gen_tell(program->all, "all");
    gen_tell(program->last, "last fifth");
    return 0;
}

int main(int argc, char **argv) {
    gen_program program = {.all = NULL};
    program_error error;
    program_open_streams();
    if (gen_options_parse(&program.options, argc, argv, &error)) {
        fprintf(stderr, "gen_clicks: %s\n", error.text);
        return 2;
    }
    if (program.options.help) {
        options_table table = gen_table();
        options_help(&table);
        fputs(gen_notes, stdout);
        int status = program_flush(stdout, "the help", &error);
        if (status) fprintf(stderr, "gen_clicks: %s\n", error.text);
        return status ? 1 : 0;
    }
    program.line = progress_begin(-1);
    program.started = program_now();
    program_catch_signals();
    int status = gen_run(&program, &error);
    gen_close(&program);
    if (status) fprintf(stderr, "gen_clicks: %s\n", error.text);
    return status ? 1 : 0;
}
