/* Names, defaults and limits of a click log's options. */
#include "trainers/clicks/options.h"
#include "trainers/clicks/folder.h"
#include "trainers/common/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLICKS_MOST_ROWS 4294967294

static struct {
    clicks_options options;
    options_texts files;
    int format, format_given, test_given, ids_given, rows_given, threshold_given, malformed_given, most_ids_given,
        fields_given;
    clicks_generator_given made;
} given;

/* A share of the samples; what is no number is a file. */
static int clicks_read_test(void *to, const char *name, const char *text, program_error *error) {
    clicks_options *options = to;
    char *end;
    double share = strtod(text, &end);
    options->test = NULL, options->test_share = 0;
    if (end == text || *end) {
        options->test = text;
        return 0;
    }
    if (!(share >= 0 && share < 1))
        return program_fail(error, "--%s is '%.40s', must be a file, or a share from 0 to below 1", name, text);
    options->test_share = share;
    return 0;
}

enum { CLICKS_FORMAT_AUTO, CLICKS_FORMAT_SCHEMA = 1 + CLICKS_SCHEMA }; /* of clicks_formats: 1 + clicks_format */
static const char *const clicks_formats[] = {"auto",   "criteo", "criteo-csv", "avazu", "schema",
                                             "libsvm", "libffm", "npy",        NULL};
static const char *const clicks_ids_names[] = {"hash", "vocabulary", "given", NULL}; /* clicks_ids */

#define MADE(field) &given.options.clicks.generator.field
static const options_entry clicks_generator_keys[] = {
    {"samples", OPTIONS_WHOLE64, MADE(samples), 10, 0x1p40},
    {"numbers", OPTIONS_WHOLE32, MADE(numbers), 0, 1000, .given = &given.made.numbers},
    {"features", OPTIONS_WHOLE32, MADE(features), 1, 1000, .given = &given.made.features},
    {"rows", OPTIONS_WHOLE64, MADE(rows), 1, CLICKS_MOST_ROWS, .given = &given.made.rows},
    {"zipf", OPTIONS_REAL, MADE(zipf), 0, 10, .given = &given.made.zipf},
    {"spread", OPTIONS_REAL, MADE(spread), 0, 100},
    {"seed", OPTIONS_WHOLE64, MADE(seed), 0, 0x1p64},
    {"communities", OPTIONS_WHOLE64, MADE(communities), 0, CLICKS_MOST_ROWS},
    {"within", OPTIONS_REAL, MADE(within), 0, 1},
    {"like", OPTIONS_CHOICE, MADE(like), .choices = clicks_likes},
    {0},
};
static const options_entry clicks_columns[] = {
    {"format", OPTIONS_CHOICE, &given.format, .choices = clicks_formats, .given = &given.format_given,
     .help = "of a click log: criteo is tabs: label, 13 numbers, 26 hex ids; criteo-csv Id,Label,I1..I13,C1..C26; "
             "avazu id,click,hour,C1,...; libsvm label index:value ...; libffm label field:index:value ...; npy "
             "TorchRec's x_dense.npy, x_sparse.npy, x_labels.npy, named by the first; auto is by the first line"},
    {"schema", OPTIONS_TEXT, &given.options.clicks.schema,
     .help = "what the columns of a log of no other --format mean (trainers/clicks/adult.schema is one)"},
    {0},
};
static const options_entry clicks_made[] = {
    {"generate", OPTIONS_SPEC, &given.options.generate, .keys = clicks_generator_keys,
     .example = "samples=500000,communities=8", .first = 1,
     .help = "a click log made up, of which the best possible AUC is known; SPEC is any of "
             "samples=500000,numbers=4,features=8,rows=100,zipf=0.99,spread=1.35,seed=1 and, for placement, "
             "communities=0,within=0.8; like=criteo or avazu: features and their rows as published"},
    {0},
};
static const options_entry clicks_rows_of_ids[] = {
    {"rows", OPTIONS_WHOLE64, &given.options.clicks.rows, 1, CLICKS_MOST_ROWS, .given = &given.rows_given,
     .help = "of each feature's table, unless a vocabulary or the schema says how many"},
    {"threshold", OPTIONS_WHOLE64, &given.options.clicks.threshold, 1, UINT32_MAX, .given = &given.threshold_given,
     .help = "vocabulary: how often an id must come to get a row"},
    {"most-ids", OPTIONS_WHOLE32, &given.options.clicks.most_ids, 1, 65536, .given = &given.most_ids_given,
     .standard = "those of the log's largest sample, found in a pass",
     .help = "features with several ids (libsvm, libffm, some schemas): of a sample, at most; lines with more are "
             "malformed"},
    {"fields", OPTIONS_WHOLE32, &given.options.clicks.fields, 1, 4095, .given = &given.fields_given,
     .standard = "those of the log, found in a pass", .help = "libffm: how many there are; from 0 on"},
    {"malformed", OPTIONS_WHOLE64, &given.options.clicks.malformed, 0, 1e18, .given = &given.malformed_given,
     .help = "lines that are no sample and are skipped, at most, in a pass"},
    {0},
};

void clicks_options_add(options_table *table, const clicks_options_words *words) {
    static options_entry data[2], split[3];
    data[0] = (options_entry){"data", OPTIONS_TEXTS, &given.files, .value = words->value, .help = words->data};
    split[0] = (options_entry){"test",
                               OPTIONS_READ,
                               &given.options,
                               .read = clicks_read_test,
                               .value = "WHAT",
                               .given = &given.test_given,
                               .standard = words->generates ? "none; generated: 0.2" : "none",
                               .help = words->test};
    split[1] = (options_entry){
        "ids",
        OPTIONS_CHOICE,
        &given.options.clicks.ids,
        .choices = clicks_ids_names,
        .given = &given.ids_given,
        .standard = words->generates ? "hash; generated: given" : NULL,
        .help = "how an id becomes a row: hash is modulo --rows, vocabulary numbers ids as met in training, given is "
                "the row"};
    options_add(table, "data", data);
    options_add(table, NULL, clicks_columns);
    if (words->generates) options_add(table, NULL, clicks_made);
    options_add(table, NULL, split);
    options_add(table, NULL, clicks_rows_of_ids);
}

const char *clicks_options_format(clicks_format format) {
    return clicks_formats[1 + format];
}

void clicks_options_begin(int generate) {
    clicks_settings clicks = {
        .rows = 100000, .threshold = 2, .malformed = 100, .generator = clicks_generator_default()};
    clicks.generator.samples = 500000, clicks.generator.numbers = 4, clicks.generator.features = 8;
    clicks.generator.rows = 100, clicks.generator.zipf = 0.99;
    memset(&given, 0, sizeof given);
    given.options = (clicks_options){.clicks = clicks, .test_share = generate ? 0.2 : 0};
}

const char *clicks_options_of_log(void) {
    return given.format_given            ? "format"
           : given.options.clicks.schema ? "schema"
           : given.test_given            ? "test"
           : given.ids_given             ? "ids"
           : given.rows_given            ? "rows"
           : given.threshold_given       ? "threshold"
           : given.most_ids_given        ? "most-ids"
           : given.fields_given          ? "fields"
           : given.malformed_given       ? "malformed"
                                         : NULL;
}

clicks_options clicks_options_read(void) {
    clicks_options options = given.options;
    const char *path = options.path = given.files.at[0];
    options.clicks.files = path ? given.files.at : NULL;
    if (given.files.n > 1)
        snprintf(options.name, sizeof options.name, "%.170s and %" PRIu32 " more", path, given.files.n - 1);
    else if (path)
        snprintf(options.name, sizeof options.name, "%s", path);
    return options;
}

const char *clicks_options_holds(const clicks_options *options, const char *path) {
    for (const char *const *file = options->clicks.files; file && *file; file++)
        if (file_is_same(path, *file)) return *file;
    return NULL;
}

static int clicks_check_generated(clicks_options *options, program_error *error) {
    clicks_settings *clicks = &options->clicks;
    if (clicks_generator_resolve(&clicks->generator, &given.made, error)) return -1;
    if (options->test)
        return program_fail(error, "--test '%.60s' is a file, but --generate has none; give a share", options->test);
    if (given.format || clicks->schema)
        return program_fail(error, "--generate makes its own columns; --%s is for --data",
                            given.format ? "format" : "schema");
    if (given.most_ids_given)
        return program_fail(error,
                            "--most-ids %" PRIu32 " is for logs whose features have several ids, and those of "
                            "--generate have one; leave it out",
                            clicks->most_ids);
    if (clicks->ids == CLICKS_GIVEN && given.rows_given)
        return program_fail(error, "--rows is the generator's: give --generate rows=%" PRIu64 ", or --ids hash",
                            clicks->rows);
    return 0;
}

static int clicks_check_file(const clicks_options *options, program_error *error) {
    if (given.format == CLICKS_FORMAT_SCHEMA && !options->clicks.schema)
        return program_fail(error, "--format schema needs --schema FILE");
    if (options->clicks.schema && given.format != CLICKS_FORMAT_AUTO && given.format != CLICKS_FORMAT_SCHEMA)
        return program_fail(error, "--schema says what the columns mean, and so does --format %s; give one of them",
                            clicks_formats[given.format]);
    return 0;
}

/* Folders become their files. The names stay until the program ends, as argv does. */
static int clicks_list_files(program_error *error) {
    options_texts listed = {.n = 0};
    for (uint32_t i = 0; i < given.files.n; i++) {
        clicks_folder folder = {.n = 1};
        int is_folder = clicks_is_folder(given.files.at[i]);
        if (is_folder && clicks_folder_read(&folder, given.files.at[i], error)) return -1;
        if (listed.n + folder.n > OPTIONS_MOST_TEXTS) {
            clicks_folder_free(&folder);
            return program_fail(error, "--data names more than %d files; join some of them", OPTIONS_MOST_TEXTS);
        }
        for (uint32_t k = 0; k < folder.n; k++) listed.at[listed.n++] = is_folder ? folder.files[k] : given.files.at[i];
        free(folder.files);
    }
    given.files = listed;
    return 0;
}

int clicks_options_take(clicks_options *options, const clicks_options_words *words, program_error *error) {
    clicks_settings *clicks = &options->clicks;
    if (clicks_list_files(error)) return -1;
    *options = clicks_options_read();
    if (!options->path && !words->generates)
        return program_fail(error, "give --data %s; see %s --help", words->value, words->program);
    if (!options->path == !options->generate)
        return program_fail(error, "give either --data %s or --generate; see %s --help", words->value, words->program);
    if (options->generate && !given.ids_given) clicks->ids = CLICKS_GIVEN;
    clicks->format = options->generate                    ? CLICKS_GENERATED
                     : clicks->schema                     ? CLICKS_SCHEMA
                     : given.format == CLICKS_FORMAT_AUTO ? CLICKS_CRITEO
                                                          : (clicks_format)(given.format - 1);
    options->guess = !options->generate && !clicks->schema && given.format == CLICKS_FORMAT_AUTO;
    if (given.fields_given && clicks->format != CLICKS_LIBFFM && !options->guess)
        return program_fail(error, "--fields %" PRIu32 " is for --format libffm alone; leave it out", clicks->fields);
    return options->generate ? clicks_check_generated(options, error) : clicks_check_file(options, error);
}

int clicks_options_hold_out(const clicks_options *options, uint64_t samples, uint64_t *held_out, program_error *error) {
    *held_out = (uint64_t)(options->test_share * (double)samples + 0.5);
    if (!(options->test_share > 0) || (*held_out > 0 && *held_out < samples)) return 0;
    return program_fail(error, "--test %g of %" PRIu64 " samples leaves %s; use another share", options->test_share,
                        samples, *held_out ? "none to train on" : "none held out");
}
