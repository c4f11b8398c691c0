/* The command line, and the file. */
#include "trainers/dlrm/make.h"
#include "trainers/clicks/folder.h"
#include "trainers/clicks/make.h"
#include "trainers/clicks/options.h"
#include "trainers/common/file.h"
#include "trainers/common/options.h"
#include "trainers/common/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static struct {
    const char *out, *log;
    int help;
} given;
static const options_entry dlrm_make_entries[] = {
    {"make-schema", OPTIONS_TEXT, &given.out, .help = "where the schema goes; not to a file that is there"},
    {"data", OPTIONS_TEXT, &given.log, .help = "a log, or a folder of one, whose first line should name the columns"},
    {"help", OPTIONS_FLAG, &given.help, .help = "this"},
    {0},
};

static int dlrm_make_read_line(int argc, char **argv, options_table *table, program_error *error) {
    *table = (options_table){.program = "dlrm", .about = "usage: dlrm --make-schema FILE --data LOG\n\n"};
    options_add(table, "options", dlrm_make_entries);
    if (options_read(table, OPTIONS_ALL, argc, argv, error)) return -1;
    if (given.help || given.log) return 0;
    return program_fail(error, "--make-schema needs --data LOG, which it describes");
}

/* A log of a known format is described by that. */
static int dlrm_make_schema(clicks_schema *schema, const char *log, clicks_made_schema *made, program_error *error) {
    clicks_format format;
    if (clicks_guess(log, &format, error)) return clicks_make_schema(schema, log, made, error);
    if (format >= CLICKS_LIBSVM)
        return program_fail(error, "%.200s is of format %s, which has no columns to describe; leave --schema out", log,
                            clicks_options_format(format));
    fprintf(stderr, "%s is of format %s, which needs no --schema\n", log, clicks_options_format(format));
    return clicks_schema_of_format(schema, format, error);
}

static int dlrm_make_write(const clicks_schema *schema, const clicks_made_schema *made, program_error *error) {
    file_new file = {.descriptor = -1};
    if (file_make(&file, given.out, error)) return -1;
    int status = file_stream(&file, error);
    if (!status && made->lines)
        fprintf(file.stream,
                "# Made from the first %" PRIu64 " lines of a log. Check the label, and which columns are "
                "numbers and which ids.\n",
                made->lines);
    if (!status) clicks_schema_write(schema, file.stream);
    if (!status) status = file_close(&file, error) || file_publish(&file, error);
    if (status) file_discard(&file);
    return status ? -1 : 0;
}

static void dlrm_make_tell(const clicks_schema *schema, const clicks_made_schema *made) {
    fprintf(stderr, "wrote %s: %" PRIu32 " numbers, %" PRIu32 " features", given.out, schema->n_numbers,
            schema->n_features);
    if (made->lines)
        fprintf(stderr, ", from %" PRIu64 " lines; the label is '%s'%s, '%s' means 1: check it", made->lines,
                schema->columns[made->label].name.at, made->sure ? "" : ", because it has two values",
                schema->one.text[0].at);
    fputc('\n', stderr);
}

static int dlrm_make_all(program_error *error) {
    clicks_folder folder = {.n = 0};
    clicks_schema schema;
    clicks_made_schema made = {.lines = 0};
    if (!access(given.out, F_OK))
        return program_fail(error, "--make-schema %.200s is there; give another name, or remove it", given.out);
    if (clicks_is_folder(given.log) && clicks_folder_read(&folder, given.log, error)) return -1;
    int status = dlrm_make_schema(&schema, folder.n ? folder.files[0] : given.log, &made, error);
    clicks_folder_free(&folder);
    if (status) return -1;
    status = dlrm_make_write(&schema, &made, error);
    if (!status) dlrm_make_tell(&schema, &made);
    clicks_schema_free(&schema);
    return status;
}

int dlrm_make_run(int argc, char **argv) {
    options_table table;
    program_error error;
    program_open_streams();
    int status = dlrm_make_read_line(argc, argv, &table, &error) ? 2 : 0;
    if (!status && given.help)
        options_help(&table);
    else if (!status)
        status = dlrm_make_all(&error) ? 1 : 0;
    if (status) fprintf(stderr, "dlrm: %s\n", error.text);
    if (!status && given.help && program_flush(stdout, "the help", &error)) status = 1;
    return status;
}
