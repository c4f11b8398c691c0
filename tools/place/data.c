/* Options of the data, and opening it. The names, defaults and limits are those of kge and dlrm, so that the parts are
 * those of the samples that the trainers deal. */
#include "tools/place/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PLACE_MOST_ROWS 4294967294

static struct {
    place_data_options options;
    int format, format_given, ids_given, rows_given, test_given, threshold_given, malformed_given;
} given;

/* A share of the samples; what is no number is a file. */
static int place_read_test(void *to, const char *name, const char *text, program_error *error) {
    place_data_options *options = to;
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

static const char *const place_formats[] = {"auto", "criteo", "criteo-csv", "avazu", "schema", NULL};
static const clicks_format place_format_kinds[] = {CLICKS_CRITEO, CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU,
                                                   CLICKS_SCHEMA};
static const char *const place_ids[] = {"hash", "vocabulary", "given", NULL}; /* clicks_ids */

#define MADE(field) &given.options.clicks.generator.field
static const options_entry place_generator_keys[] = {
    {"samples", OPTIONS_WHOLE64, MADE(samples), 10, 0x1p40},
    {"numbers", OPTIONS_WHOLE32, MADE(numbers), 0, 1000},
    {"features", OPTIONS_WHOLE32, MADE(features), 1, 1000},
    {"rows", OPTIONS_WHOLE64, MADE(rows), 1, PLACE_MOST_ROWS},
    {"zipf", OPTIONS_REAL, MADE(zipf), 0, 10},
    {"spread", OPTIONS_REAL, MADE(spread), 0, 100},
    {"seed", OPTIONS_WHOLE64, MADE(seed), 0, 0x1p64},
    {"communities", OPTIONS_WHOLE64, MADE(communities), 0, PLACE_MOST_ROWS},
    {"within", OPTIONS_REAL, MADE(within), 0, 1},
    {0},
};
static const options_entry place_file_entries[] = {
    {"data", OPTIONS_TEXT, &given.options.path, .value = "PATH",
     .help = "a folder of triples, OpenKE's or plain, as kge reads it; or a click log, plain or gz, as dlrm reads it"},
    {"format", OPTIONS_CHOICE, &given.format, .choices = place_formats, .given = &given.format_given,
     .help = "of a click log: criteo is tabs: label, 13 numbers, 26 hex ids; criteo-csv Id,Label,I1..I13,C1..C26; "
             "avazu id,click,hour,C1,...; auto is by the first line"},
    {"schema", OPTIONS_TEXT, &given.options.clicks.schema,
     .help = "what the columns of another log mean (examples/clicks/adult.schema is one)"},
    {"malformed", OPTIONS_WHOLE64, &given.options.clicks.malformed, 0, 1e18, .given = &given.malformed_given,
     .help = "lines of a log that are no sample are skipped, up to so many a pass"},
    {0},
};
static const options_entry place_generate_entries[] = {
    {"generate", OPTIONS_SPEC, &given.options.generate, .keys = place_generator_keys,
     .example = "samples=500000,communities=8", .first = 1,
     .help = "a click log made up, as dlrm makes it; SPEC is any of "
             "samples=500000,numbers=4,features=8,rows=100,zipf=0.99,spread=1.35,seed=1 and, for placement, "
             "communities=0,within=0.8"},
    {0},
};
static const options_entry place_ids_entries[] = {
    {"test", OPTIONS_READ, &given.options, .read = place_read_test, .value = "WHAT", .given = &given.test_given,
     .standard = "none; generated: 0.2",
     .help = "of a click log, held-out samples, as dlrm has them: a share of --data, its last lines, or a file. They "
             "are not placed and do not count"},
    {"ids", OPTIONS_CHOICE, &given.options.clicks.ids, .choices = place_ids, .given = &given.ids_given,
     .standard = "hash; generated: given",
     .help = "how an id becomes a row: hash is modulo --rows, vocabulary numbers ids as met in training, given is the "
             "row"},
    {"rows", OPTIONS_WHOLE64, &given.options.clicks.rows, 1, PLACE_MOST_ROWS, .given = &given.rows_given,
     .help = "of each feature's table, unless a vocabulary or the schema says how many"},
    {"threshold", OPTIONS_WHOLE64, &given.options.clicks.threshold, 1, UINT32_MAX, .given = &given.threshold_given,
     .help = "vocabulary: an id gets a row if it comes so often"},
    {0},
};

void place_data_add(options_table *table, unsigned parts, int generate) {
    clicks_settings clicks = {
        .rows = 100000, .threshold = 2, .malformed = 100, .generator = clicks_generator_default()};
    clicks.generator.samples = 500000, clicks.generator.numbers = 4, clicks.generator.features = 8;
    clicks.generator.rows = 100, clicks.generator.zipf = 0.99;
    memset(&given, 0, sizeof given);
    given.options = (place_data_options){.clicks = clicks, .test_share = generate ? 0.2 : 0};
    options_add(table, "data", place_file_entries);
    if (parts & PLACE_GENERATE) options_add(table, NULL, place_generate_entries);
    if (parts & PLACE_IDS) options_add(table, NULL, place_ids_entries);
}

int place_data_generates(void) {
    return given.options.generate;
}

int place_data_is_folder(const place_data_options *options) {
    struct stat is;
    return options->path && !stat(options->path, &is) && S_ISDIR(is.st_mode);
}

static int place_check_folder(const place_data_options *options, program_error *error) {
    const char *of_logs = given.format_given       ? "format"
                          : options->clicks.schema ? "schema"
                          : given.test_given       ? "test"
                          : given.ids_given        ? "ids"
                          : given.rows_given       ? "rows"
                          : given.threshold_given  ? "threshold"
                          : given.malformed_given  ? "malformed"
                                                   : NULL;
    if (!of_logs) return 0;
    return program_fail(error, "--%s is of click logs, and --data %.200s is a folder of triples; leave it out", of_logs,
                        options->path);
}

static int place_check_log(place_data_options *options, program_error *error) {
    clicks_settings *clicks = &options->clicks;
    if (options->generate && (given.format || clicks->schema))
        return program_fail(error, "--generate makes its own columns; --%s is for --data",
                            given.format ? "format" : "schema");
    if (options->generate && options->test)
        return program_fail(error, "--test '%.60s' is a file, but --generate has none; give a share", options->test);
    if (given.format == 4 && !clicks->schema) return program_fail(error, "--format schema needs --schema FILE");
    if (clicks->schema && given.format != 0 && given.format != 4)
        return program_fail(error, "--schema says what the columns mean, and so does --format %s; give one of them",
                            place_formats[given.format]);
    clicks->format = options->generate ? CLICKS_GENERATED
                     : clicks->schema  ? CLICKS_SCHEMA
                                       : place_format_kinds[given.format];
    options->guess = !options->generate && !clicks->schema && given.format == 0;
    if (options->generate && !given.ids_given) clicks->ids = CLICKS_GIVEN;
    if (options->generate && clicks->ids == CLICKS_GIVEN && given.rows_given)
        return program_fail(error, "--rows is the generator's: give --generate rows=%" PRIu64 ", or --ids hash",
                            clicks->rows);
    return 0;
}

int place_data_check(place_data_options *options, const char *program, program_error *error) {
    *options = given.options;
    if (!options->path == !options->generate)
        return program_fail(error, "give either --data PATH or --generate; see %s --help", program);
    return place_data_is_folder(options) ? place_check_folder(options, error) : place_check_log(options, error);
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

static int place_open_triples(place_data *data, const place_data_options *options, program_error *error) {
    if (kge_source_open(&data->kge, options->path, error)) return -1;
    data->triples = 1;
    fprintf(stderr,
            "%" PRIu32 " entities and %" PRIu32 " relations are %" PRIu64 " rows; %" PRIu64 " triples to train on\n",
            data->kge.folder.entities.n, data->kge.folder.relations.n, data->kge.rows, data->kge.triples[KGE_TRAIN]);
    return 0;
}

/* The samples [0, *end) are those that dlrm trains on. */
static int place_split(const place_data *data, const place_data_options *options, uint64_t *end, program_error *error) {
    uint64_t samples, held_out;
    *end = UINT64_MAX;
    if (!(options->test_share > 0)) return 0;
    if (clicks_count(data->log, options->path, &samples, NULL, error)) return -1;
    held_out = (uint64_t)(options->test_share * (double)samples + 0.5);
    if (held_out == 0 || held_out == samples)
        return program_fail(error, "--test %g of %" PRIu64 " samples leaves %s; use another share", options->test_share,
                            samples, held_out ? "none to train on" : "none held out");
    *end = samples - held_out;
    return 0;
}

static int place_open_log(place_data *data, const place_data_options *options, program_error *error) {
    clicks_settings clicks = options->clicks;
    struct stat is;
    uint64_t end;
    if (options->path && !stat(options->path, &is) && !S_ISREG(is.st_mode))
        return program_fail(error, "--data %.200s is no file that can be read several times; write it to one",
                            options->path);
    if (options->guess && clicks_guess(options->path, &clicks.format, error)) return -1;
    if (clicks_open(&data->log, &clicks, error) || place_split(data, options, &end, error)) return -1;
    if (clicks.ids == CLICKS_VOCABULARY) fprintf(stderr, "making vocabularies\n");
    if (clicks_prepare(data->log, options->path, end, error)) return -1;
    if (clicks_source_open(&data->clicks, data->log, options->path, 0, end, error)) return -1;
    fprintf(stderr, "%" PRIu32 " features of %" PRIu64 " rows in all", clicks_features(data->log), data->clicks.rows);
    if (end != UINT64_MAX) fprintf(stderr, "; %" PRIu64 " samples to train on", end);
    fputc('\n', stderr);
    return 0;
}

int place_data_open(place_data *data, const place_data_options *options, program_error *error) {
    *data = (place_data){0};
    int status =
        place_data_is_folder(options) ? place_open_triples(data, options, error) : place_open_log(data, options, error);
    if (status) place_data_close(data);
    return status;
}

void place_data_close(place_data *data) {
    if (data->triples) kge_source_close(&data->kge);
    if (data->clicks.log) clicks_source_close(&data->clicks);
    clicks_close(data->log);
    *data = (place_data){0};
}

partition_source place_data_source(place_data *data) {
    return data->triples ? kge_source_of(&data->kge) : clicks_source_of(&data->clicks);
}

uint64_t place_data_rows(const place_data *data) {
    return data->triples ? data->kge.rows : data->clicks.rows;
}

void place_data_tell_malformed(const place_data *data, const char *path) {
    const clicks_malformed *malformed = &data->clicks.malformed;
    if (data->triples || !malformed->lines) return;
    fprintf(stderr, "%s: skipped %" PRIu64 " malformed line%s%s\n", path, malformed->lines,
            malformed->lines == 1 ? "" : "s", malformed->lines > CLICKS_TOLD ? ", of which the first are" : "");
    for (uint64_t i = 0; i < malformed->lines && i < CLICKS_TOLD; i++) fprintf(stderr, "  %s\n", malformed->what[i]);
}
