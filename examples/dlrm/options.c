/* Options, their limits and their defaults. */
#include "examples/dlrm/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char dlrm_about[] =
    "usage: dlrm --data FILE | --generate [SPEC]   [options]\n"
    "\n"
    "Trains a recommendation model on a click log with Frugal and says how well it predicts held-out clicks.\n"
    "\n";
static const char dlrm_notes[] =
    "\n"
    "Ctrl-C ends the training within lookahead + 2 steps, on all devices after the same one, and saves; the\n"
    "evaluation is then left out. Before the training, and in the evaluation at the end, when all is saved, it\n"
    "simply ends the program. With --checkpoint one is made, too; --resume goes on.\n"
    "Exit status: 0 done, or ended by Ctrl-C and saved; 1 failed; 2 wrong usage. The same command gives the same\n"
    "bits, whatever the workers, lookahead, cache, mode and way (--alone), and however often it was killed and\n"
    "resumed, unless the clock ends it (--seconds).\n";

typedef struct dlrm_widths {
    uint32_t n, width[DLRM_MOST_LAYERS];
} dlrm_widths;

/* Where the command line is read to. Options that need more than one place for their value have an own place here. */
static struct {
    dlrm_options options;
    dlrm_widths bottom, top;
    int dense_optimizer, format, ids_given, rows_given;
} given;
static training_options dlrm_common;

/* "512,256" or "none". */
static int dlrm_read_widths(void *to, const char *name, const char *text, program_error *error) {
    dlrm_widths widths = {0};
    char copy[256], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return program_fail(error, "--%s takes at most %zu characters", name, sizeof copy - 1);
    strcpy(copy, text);
    for (char *part; strcmp(text, "none") && (part = strsep(&rest, ","));) {
        uint64_t width;
        if (widths.n == DLRM_MOST_LAYERS)
            return program_fail(error, "--%s lists too many layers; the limit is %d", name, DLRM_MOST_LAYERS);
        if (options_whole(name, part, 1, 65536, &width, error)) return -1;
        widths.width[widths.n++] = (uint32_t)width;
    }
    memcpy(to, &widths, sizeof widths);
    return 0;
}

/* A share of the samples; what is no number is a file. */
static int dlrm_read_test(void *to, const char *name, const char *text, program_error *error) {
    dlrm_options *options = to;
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

static const char *const dlrm_models[] = {"dlrm", "wide-deep", "deepfm", NULL};
static const char *const dlrm_dense_optimizers[] = {"sgd", "adagrad", "adam", NULL};
static const frugal_optimizer_kind dlrm_dense_kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ADAM};
static const char *const dlrm_formats[] = {"auto", "criteo", "criteo-csv", "avazu", "schema", NULL};
static const clicks_format dlrm_format_kinds[] = {CLICKS_CRITEO, CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU,
                                                  CLICKS_SCHEMA};
static const char *const dlrm_ids[] = {"hash", "vocabulary", "given", NULL}; /* clicks_ids */

#define DLRM_MOST_ROWS 4294967294
#define MADE(field)    &given.options.clicks.generator.field
static const options_entry dlrm_generator_keys[] = {
    {"samples", OPTIONS_WHOLE64, MADE(samples), 10, 0x1p40},
    {"numbers", OPTIONS_WHOLE32, MADE(numbers), 0, 1000},
    {"features", OPTIONS_WHOLE32, MADE(features), 1, 1000},
    {"rows", OPTIONS_WHOLE64, MADE(rows), 1, DLRM_MOST_ROWS},
    {"zipf", OPTIONS_REAL, MADE(zipf), 0, 10},
    {"spread", OPTIONS_REAL, MADE(spread), 0, 100},
    {"seed", OPTIONS_WHOLE64, MADE(seed), 0, 0x1p64},
    {"communities", OPTIONS_WHOLE64, MADE(communities), 0, DLRM_MOST_ROWS},
    {"within", OPTIONS_REAL, MADE(within), 0, 1},
    {0},
};
static const options_entry dlrm_data[] = {
    {"data", OPTIONS_TEXT, &given.options.data,
     .help = "a click log, plain or gz, read as it goes, once a pass; a pipe for one pass, with --format"},
    {"format", OPTIONS_CHOICE, &given.format, .choices = dlrm_formats,
     .help = "criteo is tabs: label, 13 numbers, 26 hex ids; criteo-csv Id,Label,I1..I13,C1..C26; avazu "
             "id,click,hour,C1,...; auto is by the first line"},
    {"schema", OPTIONS_TEXT, &given.options.clicks.schema,
     .help = "what the columns of another log mean (examples/clicks/adult.schema is one)"},
    {"generate", OPTIONS_SPEC, &given.options.generate, .keys = dlrm_generator_keys,
     .example = "samples=500000,zipf=0.99", .first = 1,
     .help = "a click log made up, of which the best possible AUC is known; SPEC is any of "
             "samples=500000,numbers=4,features=8,rows=100,zipf=0.99,spread=1.35,seed=1 and, for placement, "
             "communities=0,within=0.8"},
    {"test", OPTIONS_READ, &given.options, .read = dlrm_read_test, .value = "WHAT", .standard = "none; generated: 0.2",
     .help = "held-out samples: a file, or a share of --data, its last lines; 0: none"},
    {"ids", OPTIONS_CHOICE, &given.options.clicks.ids, .choices = dlrm_ids, .given = &given.ids_given,
     .standard = "hash; generated: given",
     .help = "how an id becomes a row: hash is modulo --rows, vocabulary numbers ids as met in training, given is the "
             "row"},
    {"rows", OPTIONS_WHOLE64, &given.options.clicks.rows, 1, DLRM_MOST_ROWS, .given = &given.rows_given,
     .help = "of each feature's table, unless a vocabulary or the schema says how many"},
    {"threshold", OPTIONS_WHOLE64, &given.options.clicks.threshold, 1, UINT32_MAX,
     .help = "vocabulary: an id gets a row if it comes so often"},
    {"malformed", OPTIONS_WHOLE64, &given.options.clicks.malformed, 0, 1e18,
     .help = "lines that are no sample are skipped, up to so many a pass"},
    {0},
};
static const options_entry dlrm_model_entries[] = {
    {"model", OPTIONS_CHOICE, &given.options.train.model.kind, .choices = dlrm_models,
     .help = "what becomes of rows and numbers"},
    {"dim", OPTIONS_WHOLE32, &given.options.train.model.dim, 1, 65536, .help = "floats a row"},
    {"bottom", OPTIONS_READ, &given.bottom, .read = dlrm_read_widths, .value = "LIST", .standard = "64",
     .help = "hidden widths of the bottom MLP (dlrm), as 512,256; `none`"},
    {"top", OPTIONS_READ, &given.top, .read = dlrm_read_widths, .value = "LIST", .standard = "512,512,256",
     .help = "hidden widths of the top MLP; a last layer of 1 follows"},
    {0},
};
static const options_entry dlrm_training[] = {
    {"batch", OPTIONS_WHOLE32, &given.options.train.common.batch, 1, 1 << 20, .help = "samples a step and device"},
    {"epochs", OPTIONS_WHOLE64, &given.options.train.epochs, 0, 1e18,
     .help = "passes over the samples; 0: train nothing"},
    {0},
};
static const options_entry dlrm_dense[] = {
    {"dense-optimizer", OPTIONS_CHOICE, &given.dense_optimizer, .choices = dlrm_dense_optimizers,
     .help = "of the dense layers"},
    {"dense-lr", OPTIONS_FLOAT, &given.options.train.dense_lr, 0, 1000, .help = "their learning rate"},
    {"accumulator", OPTIONS_FLOAT, &given.options.train.accumulator, 0, 1000,
     .help = "what Adagrad's sums of squares start from"},
    {0},
};
static const options_entry dlrm_tables[] = {
    {"table-file", OPTIONS_TEXT, &given.options.train.table_file,
     .help = "the tables lie in this file, mapped. One that is there is trained on, if it is of tables of this layout; "
             "dense layers start anew. With --resume its rows become the checkpoint's, also if it is torn; with "
             "--checkpoint "
             "there is a checkpoint before the first step, too. A training that diverges ruins it. Models with a "
             "linear part "
             "have FILE.linear, too"},
    {"table-file-sparse", OPTIONS_FLAG, &given.options.train.table_file_sparse,
     .help = "a new one takes no space before rows are written (--init 0 and --accumulator 0 write none); if the disk "
             "gets full then, the program dies of SIGBUS"},
    {"table-file-torn", OPTIONS_FLAG, &given.options.train.table_file_torn,
     .help = "one that is torn, because a run in it was killed, is taken as it is: its rows are of several steps"},
    {0},
};
static const options_entry dlrm_results[] = {
    {"eval-every", OPTIONS_WHOLE64, &given.options.outputs.eval_every, 0, 1e18,
     .help = "evaluate every N steps, too; 0: never", .standard = "0; generated: 6 times"},
    {"eval-samples", OPTIONS_WHOLE64, &given.options.eval_samples, 0, 1e18,
     .help = "on the first N held-out samples; 0: all"},
    {"save", OPTIONS_TEXT, &given.options.outputs.save, .value = "DIR",
     .help =
         "tables and dense layers as .npy files, model.json, which describes them, and manifest.json, which says what "
         "belongs together. The set that is there stays until the new one is on disk"},
    {0},
};

static options_table dlrm_table(void) {
    options_table table = {.program = "dlrm", .about = dlrm_about};
    training_options_of(&dlrm_common, &given.options.train.common, &given.options.outputs, "build/cuda/dlrm");
    options_add(&table, "data", dlrm_data);
    options_add(&table, "model", dlrm_model_entries);
    options_add(&table, "training", dlrm_training);
    options_add(&table, NULL, dlrm_common.training);
    options_add(&table, NULL, dlrm_dense);
    options_add(&table, "Frugal", dlrm_common.frugal);
    options_add(&table, NULL, dlrm_tables);
    options_add(&table, "declared stale copies (training is then not exact)", dlrm_common.stale);
    options_add(&table, "checkpoints", dlrm_common.checkpoints);
    options_add(&table, "results", dlrm_results);
    options_add(&table, NULL, dlrm_common.results);
    return table;
}

/* Where the samples come from. */
static int dlrm_check_data(dlrm_options *options, program_error *error) {
    clicks_settings *clicks = &options->clicks;
    if (!options->data == !options->generate)
        return program_fail(error, "give either --data FILE or --generate; see dlrm --help");
    if (options->generate && options->test)
        return program_fail(error, "--test '%.60s' is a file, but --generate has none; give a share", options->test);
    if (options->generate && (given.format || clicks->schema))
        return program_fail(error, "--generate makes its own columns; --%s is for --data",
                            given.format ? "format" : "schema");
    if (given.format == 4 && !clicks->schema) return program_fail(error, "--format schema needs --schema FILE");
    if (clicks->schema && given.format != 0 && given.format != 4)
        return program_fail(error, "--schema says what the columns mean, and so does --format %s; give one of them",
                            dlrm_formats[given.format]);
    clicks->format = options->generate ? CLICKS_GENERATED
                     : clicks->schema  ? CLICKS_SCHEMA
                                       : dlrm_format_kinds[given.format];
    options->guess = !options->generate && !clicks->schema && given.format == 0;
    if (options->outputs.eval_every && !options->generate && !options->test && !(options->test_share > 0))
        return program_fail(error, "--eval-every needs held-out samples; give --test FILE or a share");
    if (options->generate && !given.ids_given) clicks->ids = CLICKS_GIVEN;
    if (options->generate && clicks->ids == CLICKS_GIVEN && given.rows_given)
        return program_fail(error, "--rows is the generator's: give --generate rows=%llu, or --ids hash",
                            (unsigned long long)clicks->rows);
    return 0;
}

/* What can only be seen from several options together. */
static int dlrm_options_check(dlrm_options *options, program_error *error) {
    if (dlrm_check_data(options, error) || training_options_check(&dlrm_common, error)) return -1;
    options->decay_wanted = dlrm_common.decay_given && options->train.common.decay;
    return 0;
}

/* A generated log is for demonstration. */
static void dlrm_set_defaults(int generate) {
    training_settings common = {
        .devices = 1, .workers = 1, .lookahead = 10, .batch = 256, .lr = 0.02f, .init = 0.05f, .decay = 1};
    common.optimizer = FRUGAL_ADAGRAD;
    clicks_settings clicks = {
        .rows = 100000, .threshold = 2, .malformed = 100, .generator = clicks_generator_default()};
    clicks.generator.samples = 500000, clicks.generator.numbers = 4, clicks.generator.features = 8;
    clicks.generator.rows = 100, clicks.generator.zipf = 0.99;
    memset(&given, 0, sizeof given);
    given.options = (dlrm_options){
        .train = {.model = {.dim = 16}, .common = common, .dense_lr = 0.01f, .epochs = 1},
        .outputs = {.eval_every = generate ? DLRM_EVAL_UNSET : 0,
                    .threads = 2,
                    .report_seconds = -1,
                    TRAINING_CHECKPOINTS},
        .clicks = clicks,
        .test_share = generate ? 0.2 : 0,
        .eval_samples = 20000,
    };
    given.bottom = (dlrm_widths){1, {64}};
    given.top = (dlrm_widths){3, {512, 512, 256}};
    given.dense_optimizer = 1;
}

void dlrm_options_help(void) {
    options_table table = dlrm_table();
    dlrm_set_defaults(0);
    options_help(&table);
    fputs(dlrm_notes, stdout);
}

int dlrm_options_parse(dlrm_options *options, int argc, char **argv, program_error *error) {
    options_table table = dlrm_table();
    memset(&given, 0, sizeof given);
    if (options_read(&table, OPTIONS_FIRST, argc, argv, error)) return -1;
    dlrm_set_defaults(given.options.generate);
    if (options_read(&table, OPTIONS_ALL, argc, argv, error)) return -1;
    if (!given.options.outputs.help && dlrm_options_check(&given.options, error)) return -1;
    dlrm_model *model = &given.options.train.model;
    model->n_bottom = given.bottom.n, model->n_top = given.top.n;
    memcpy(model->bottom, given.bottom.width, sizeof given.bottom.width);
    memcpy(model->top, given.top.width, sizeof given.top.width);
    given.options.train.dense_optimizer = dlrm_dense_kinds[given.dense_optimizer];
    *options = given.options;
    return 0;
}
