/* Options, their limits and their defaults. */
#include "examples/dlrm/options.h"
#include "examples/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DLRM_CUDA
#define DLRM_CUDA_PROGRAM NULL
#else
#define DLRM_CUDA_PROGRAM "build/cuda/dlrm"
#endif

/* clang-format off */
/* In two parts: C promises 4095 characters a string. */
static const char dlrm_help_data[] =
    "usage: dlrm --data FILE | --generate [SPEC]   [options]\n"
    "\n"
    "Trains a recommendation model on a click log with Frugal and says how well it predicts held-out clicks.\n"
    "\n"
    "data\n"
    "  --data FILE         a click log, plain or gz, read as it goes, once a pass; a pipe for one pass, with --format\n"
    "  --format NAME       criteo (tabs: label, 13 numbers, 26 hex ids), criteo-csv (Id,Label,I1..I13,C1..C26),\n"
    "                      avazu (id,click,hour,C1,...), schema; auto: by the first line  [auto]\n"
    "  --schema FILE       what the columns of another log mean (examples/clicks/adult.schema is one)\n"
    "  --generate [SPEC]   a click log made up, of which the best possible AUC is known; SPEC is any of\n"
    "                      samples=500000,numbers=4,features=8,rows=100,zipf=0.99,spread=1.35,seed=1\n"
    "  --test WHAT         held-out samples: a file, or a share of --data, its last lines; 0: none\n"
    "                      [none; generated: 0.2]\n"
    "  --ids NAME          how an id becomes a row: hash (modulo --rows), vocabulary (numbered as met in training),\n"
    "                      given (it is the row)                                         [hash; generated: given]\n"
    "  --rows N            of each feature's table, but with vocabulary or where the schema says  [100000]\n"
    "  --threshold N       vocabulary: an id gets a row if it comes so often             [2]\n"
    "  --malformed N       lines that are no sample are skipped, up to so many a pass    [100]\n"
    "model\n"
    "  --model NAME        dlrm, wide-deep, deepfm                                       [dlrm]\n"
    "  --dim N             floats a row                                                  [16]\n"
    "  --bottom LIST       hidden widths of the bottom MLP (dlrm), as 512,256; `none`    [64]\n"
    "  --top LIST          hidden widths of the top MLP; a last layer of 1 follows       [512,512,256]\n"
    "  --init X            rows start uniform in [-X, X); 0: zeros                       [0.05]\n";
static const char dlrm_help_training[] =
    "training\n"
    "  --batch N           samples a step and device                                     [256]\n"
    "  --epochs N          passes over the samples; 0: train nothing                     [1]\n"
    "  --steps N           train so many steps at the most; 0: no limit                  [0]\n"
    "  --seconds X         train so long at the most, evaluation not counted\n"
    "  --optimizer NAME    of the rows: sgd, adagrad, rowwise-adagrad, adam              [adagrad]\n"
    "  --lr X              their learning rate                                           [0.02]\n"
    "  --dense-optimizer NAME   of the dense layers: sgd, adagrad, adam                  [adagrad]\n"
    "  --dense-lr X        their learning rate                                           [0.01]\n"
    "  --accumulator X     what Adagrad's sums of squares start from                     [0]\n"
    "  --lr-decay NAME     linear (to nothing at the end), none                          [linear, where the end is known]\n"
    "  --weight-decay X    L2, of the rows touched                                       [0]\n"
    "  --seed N            of everything random                                          [0]\n"
    "Frugal\n"
    "  --devices N         logical devices on host cores, a thread each                  [1]\n"
    "  --device LIST       the same, each where it is named: cpu or cuda:N, as in cuda:0,cuda:1; several may share\n"
    "                      a GPU. Needs build/cuda/dlrm, which `ninja cuda` builds, for GPUs\n"
    "  --workers N         threads that flush all tables; 0: waiting threads do it       [1]\n"
    "  --lookahead N       steps announced ahead, 0 to 15                                [10]\n"
    "  --cache RATIO       rows cached by each device, as a share of all rows, 0 to 1    [0]\n"
    "  --mode p2f|sync     flush ahead by priority, or everything before the next step   [p2f]\n"
    "  --table-file FILE   the tables lie in this file, mapped; with --init 0 and --accumulator 0 a new one is sparse.\n"
    "                      One that is there is trained on, if it has the size; dense layers start anew. Models with a\n"
    "                      linear part have FILE.linear, too\n"
    "results\n"
    "  --eval-every N      evaluate every N steps, too; 0: never                         [0; generated: 6 times]\n"
    "  --eval-samples N    on the first N held-out samples; 0: all                       [20000]\n"
    "  --threads N         that evaluate                                                 [2]\n"
    "  --json FILE         one JSON object a line: reports, the last one with auc, logloss, samples_per_s\n"
    "  --report-every X    seconds between reports                                       [1; to files: 5]\n"
    "  --save DIR          tables and dense layers as .npy files, and model.json, which describes them\n"
    "  --help              this\n"
    "\n"
    "Ctrl-C ends the training within lookahead + 1 steps, on all devices after the same one, and saves; the evaluation\n"
    "is then left out. Before the training, and in the evaluation at the end, when all is saved, it\n"
    "simply ends the program.\n"
    "Exit status: 0 done, or ended by Ctrl-C and saved; 1 failed; 2 wrong usage. The same command gives the same bits,\n"
    "whatever the workers, lookahead, cache and mode, unless the clock ends it (--seconds).\n";
/* clang-format on */

void dlrm_options_help(void) {
    fputs(dlrm_help_data, stdout);
    fputs(dlrm_help_training, stdout);
}

typedef struct dlrm_widths {
    uint32_t n, width[DLRM_MOST_LAYERS];
} dlrm_widths;

/* Options whose value needs more than a place are read into these first. */
typedef struct dlrm_raw {
    dlrm_options options;
    dlrm_widths bottom, top;
    int model, optimizer, dense_optimizer, decay, mode, format, ids;
    int ids_given, rows_given, decay_given, devices_given;
    struct {
        uint8_t gpu[OPTIONS_MOST_PLACES];
        uint32_t n;
    } listed; /* devices of --device */
} dlrm_raw;

/* "512,256" or "none". */
static int dlrm_read_widths(void *place, const char *name, const char *text, program_error *error) {
    dlrm_widths widths = {0};
    char copy[256], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return program_fail(error, "--%s takes at most %zu characters", name, sizeof copy - 1);
    strcpy(copy, text);
    for (char *part; strcmp(text, "none") && (part = strsep(&rest, ","));) {
        uint64_t width;
        if (widths.n == DLRM_MOST_LAYERS)
            return program_fail(error, "--%s lists too many layers, at most %d may be", name, DLRM_MOST_LAYERS);
        if (options_whole(name, part, 1, 65536, &width, error)) return -1;
        widths.width[widths.n++] = (uint32_t)width;
    }
    memcpy(place, &widths, sizeof widths);
    return 0;
}

static int dlrm_read_places(void *place, const char *name, const char *text, program_error *error) {
    dlrm_raw *raw = (dlrm_raw *)(void *)((char *)place - offsetof(dlrm_raw, listed));
    return options_places(name, text, DLRM_CUDA_PROGRAM, raw->listed.gpu, &raw->listed.n, error);
}

/* A share of the samples; what is no number is a file. */
static int dlrm_read_test(void *place, const char *name, const char *text, program_error *error) {
    dlrm_raw *raw = (dlrm_raw *)(void *)((char *)place - offsetof(dlrm_raw, options.test));
    char *end;
    double share = strtod(text, &end);
    raw->options.test = NULL, raw->options.test_share = 0;
    if (end == text || *end) {
        raw->options.test = text;
        return 0;
    }
    if (!(share >= 0 && share < 1))
        return program_fail(error, "--%s is '%.40s', must be a file, or a share from 0 to below 1", name, text);
    raw->options.test_share = share;
    return 0;
}

static const char *const dlrm_models[] = {"dlrm", "wide-deep", "deepfm", NULL};
static const char *const dlrm_optimizers[] = {"sgd", "adagrad", "rowwise-adagrad", "adam", NULL};
static const char *const dlrm_dense_optimizers[] = {"sgd", "adagrad", "adam", NULL};
static const frugal_optimizer_kind dlrm_dense_kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ADAM};
static const char *const dlrm_modes[] = {"p2f", "sync", NULL};
static const char *const dlrm_decays[] = {"none", "linear", NULL};
static const char *const dlrm_formats[] = {"auto", "criteo", "criteo-csv", "avazu", "schema", NULL};
static const clicks_format dlrm_format_kinds[] = {CLICKS_CRITEO, CLICKS_CRITEO, CLICKS_CRITEO_CSV, CLICKS_AVAZU,
                                                  CLICKS_SCHEMA};
static const char *const dlrm_ids[] = {"hash", "vocabulary", "given", NULL};

#define AT(field)    offsetof(dlrm_raw, field)
#define TRAIN(field) offsetof(dlrm_raw, options.train.field)
#define MADE(field)  offsetof(dlrm_raw, options.clicks.generator.field)
#define MOST_ROWS    UINT64_C(4294967294)
#define MOST_STEPS   UINT64_C(1000000000000000000)

static const options_entry dlrm_generator_keys[] = {
    {"samples", OPTIONS_WHOLE64, .at = MADE(samples), .whole = {10, UINT64_C(1) << 40}},
    {"numbers", OPTIONS_WHOLE32, .at = MADE(numbers), .whole = {0, 1000}},
    {"features", OPTIONS_WHOLE32, .at = MADE(features), .whole = {1, 1000}},
    {"rows", OPTIONS_WHOLE64, .at = MADE(rows), .whole = {1, MOST_ROWS}},
    {"zipf", OPTIONS_REAL, .at = MADE(zipf), .real = {0, 10}},
    {"spread", OPTIONS_REAL, .at = MADE(spread), .real = {0, 100}},
    {"seed", OPTIONS_WHOLE64, .at = MADE(seed), .whole = {0, UINT64_MAX}},
};

static const options_entry dlrm_entries[] = {
    {"data", OPTIONS_TEXT, .at = AT(options.data)},
    {"format", OPTIONS_CHOICE, .at = AT(format), .choices = dlrm_formats},
    {"schema", OPTIONS_TEXT, .at = AT(options.clicks.schema)},
    {"generate", OPTIONS_SPEC, .at = AT(options.generate), .keys = dlrm_generator_keys,
     .n_keys = sizeof dlrm_generator_keys / sizeof *dlrm_generator_keys, .example = "samples=500000,zipf=0.99",
     .first = 1},
    {"test", OPTIONS_READ, .at = AT(options.test), .read = dlrm_read_test},
    {"ids", OPTIONS_CHOICE, .at = AT(ids), .choices = dlrm_ids, .given = AT(ids_given)},
    {"rows", OPTIONS_WHOLE64, .at = AT(options.clicks.rows), .whole = {1, MOST_ROWS}, .given = AT(rows_given)},
    {"threshold", OPTIONS_WHOLE64, .at = AT(options.clicks.threshold), .whole = {1, UINT32_MAX}},
    {"malformed", OPTIONS_WHOLE64, .at = AT(options.clicks.malformed), .whole = {0, MOST_STEPS}},
    {"model", OPTIONS_CHOICE, .at = AT(model), .choices = dlrm_models},
    {"dim", OPTIONS_WHOLE32, .at = TRAIN(model.dim), .whole = {1, 65536}},
    {"bottom", OPTIONS_READ, .at = AT(bottom), .read = dlrm_read_widths},
    {"top", OPTIONS_READ, .at = AT(top), .read = dlrm_read_widths},
    {"init", OPTIONS_FLOAT, .at = TRAIN(init), .real = {0, 1000}},
    {"batch", OPTIONS_WHOLE32, .at = TRAIN(batch), .whole = {1, 1 << 20}},
    {"epochs", OPTIONS_WHOLE64, .at = TRAIN(epochs), .whole = {0, MOST_STEPS}},
    {"steps", OPTIONS_WHOLE64, .at = TRAIN(steps), .whole = {0, MOST_STEPS}},
    {"seconds", OPTIONS_REAL, .at = TRAIN(seconds), .real = {0.001, 1e9}},
    {"optimizer", OPTIONS_CHOICE, .at = AT(optimizer), .choices = dlrm_optimizers},
    {"lr", OPTIONS_FLOAT, .at = TRAIN(lr), .real = {0, 1000}},
    {"dense-optimizer", OPTIONS_CHOICE, .at = AT(dense_optimizer), .choices = dlrm_dense_optimizers},
    {"dense-lr", OPTIONS_FLOAT, .at = TRAIN(dense_lr), .real = {0, 1000}},
    {"accumulator", OPTIONS_FLOAT, .at = TRAIN(accumulator), .real = {0, 1000}},
    {"lr-decay", OPTIONS_CHOICE, .at = AT(decay), .choices = dlrm_decays, .given = AT(decay_given)},
    {"weight-decay", OPTIONS_FLOAT, .at = TRAIN(weight_decay), .real = {0, 1000}},
    {"seed", OPTIONS_WHOLE64, .at = TRAIN(seed), .whole = {0, UINT64_MAX}},
    {"devices", OPTIONS_WHOLE32, .at = TRAIN(devices), .whole = {1, 254}, .given = AT(devices_given)},
    {"device", OPTIONS_READ, .at = AT(listed), .read = dlrm_read_places},
    {"workers", OPTIONS_WHOLE32, .at = TRAIN(workers), .whole = {0, 1024}},
    {"lookahead", OPTIONS_WHOLE32, .at = TRAIN(lookahead), .whole = {0, 15}},
    {"cache", OPTIONS_REAL, .at = TRAIN(cache), .real = {0, 1}},
    {"mode", OPTIONS_CHOICE, .at = AT(mode), .choices = dlrm_modes},
    {"table-file", OPTIONS_TEXT, .at = TRAIN(table_file)},
    {"eval-every", OPTIONS_WHOLE64, .at = AT(options.eval_every), .whole = {0, MOST_STEPS}},
    {"eval-samples", OPTIONS_WHOLE64, .at = AT(options.eval_samples), .whole = {0, MOST_STEPS}},
    {"threads", OPTIONS_WHOLE32, .at = AT(options.threads), .whole = {1, 64}},
    {"json", OPTIONS_TEXT, .at = AT(options.json)},
    {"report-every", OPTIONS_REAL, .at = AT(options.report_seconds), .real = {0, 1e9}},
    {"save", OPTIONS_TEXT, .at = AT(options.save)},
    {"help", OPTIONS_FLAG, .at = AT(options.help)},
};
static const options_table dlrm_table = {"dlrm", dlrm_entries, sizeof dlrm_entries / sizeof *dlrm_entries};

/* Where the samples come from. */
static int dlrm_check_data(dlrm_raw *raw, program_error *error) {
    dlrm_options *options = &raw->options;
    clicks_settings *clicks = &options->clicks;
    if (!options->data == !options->generate)
        return program_fail(error, "give either --data FILE or --generate; see dlrm --help");
    if (options->generate && options->test)
        return program_fail(error, "--test '%.60s' is a file, but --generate has none; give a share", options->test);
    if (options->generate && (raw->format || clicks->schema))
        return program_fail(error, "--generate makes its own columns; --%s is for --data",
                            raw->format ? "format" : "schema");
    if (raw->format == 4 && !clicks->schema) return program_fail(error, "--format schema needs --schema FILE");
    if (clicks->schema && raw->format != 0 && raw->format != 4)
        return program_fail(error, "--schema says what the columns mean, and so does --format %s; give one of them",
                            dlrm_formats[raw->format]);
    clicks->format = options->generate ? CLICKS_GENERATED
                     : clicks->schema  ? CLICKS_SCHEMA
                                       : dlrm_format_kinds[raw->format];
    options->guess = !options->generate && !clicks->schema && raw->format == 0;
    if (options->eval_every && !options->generate && !options->test && !(options->test_share > 0))
        return program_fail(error, "--eval-every needs held-out samples; give --test FILE or a share");
    clicks->ids = (clicks_ids)raw->ids;
    if (options->generate && !raw->ids_given) clicks->ids = CLICKS_GIVEN;
    if (options->generate && clicks->ids == CLICKS_GIVEN && raw->rows_given)
        return program_fail(error, "--rows is the generator's: give --generate rows=%llu, or --ids hash",
                            (unsigned long long)clicks->rows);
    return 0;
}

/* What can only be seen from several options together. */
static int dlrm_options_check(dlrm_raw *raw, program_error *error) {
    dlrm_options *options = &raw->options;
    dlrm_settings *train = &options->train;
    if (dlrm_check_data(raw, error)) return -1;
    if (options_devices(raw->listed.n, raw->devices_given, &train->devices, error)) return -1;
    memcpy(train->gpu, raw->listed.gpu, sizeof train->gpu);
    if (raw->decay_given) train->decay = raw->decay;
    options->decay_wanted = raw->decay_given && raw->decay;
    return 0;
}

/* A log made up is for watching. */
static dlrm_raw dlrm_options_default(const dlrm_raw *first) {
    dlrm_settings train = {.model = {.dim = 16},
                           .devices = 1,
                           .workers = 1,
                           .lookahead = 10,
                           .batch = 256,
                           .lr = 0.02f,
                           .dense_lr = 0.01f,
                           .init = 0.05f,
                           .decay = 1,
                           .epochs = 1};
    clicks_settings clicks = {
        .rows = 100000, .threshold = 2, .malformed = 100, .generator = clicks_generator_default()};
    clicks.generator.samples = 500000, clicks.generator.numbers = 4, clicks.generator.features = 8;
    clicks.generator.rows = 100, clicks.generator.zipf = 0.99;
    dlrm_options options = {.train = train,
                            .clicks = clicks,
                            .test_share = first->options.generate ? 0.2 : 0,
                            .eval_every = first->options.generate ? DLRM_EVAL_UNSET : 0,
                            .eval_samples = 20000,
                            .threads = 2,
                            .report_seconds = -1};
    return (dlrm_raw){
        .options = options, .bottom = {1, {64}}, .top = {3, {512, 512, 256}}, .optimizer = 1, .dense_optimizer = 1};
}

int dlrm_options_parse(dlrm_options *options, int argc, char **argv, program_error *error) {
    dlrm_raw first = {0};
    if (options_read(&dlrm_table, OPTIONS_FIRST, argc, argv, &first, error)) return -1;
    dlrm_raw all = dlrm_options_default(&first);
    if (options_read(&dlrm_table, OPTIONS_ALL, argc, argv, &all, error)) return -1;
    if (!all.options.help && dlrm_options_check(&all, error)) return -1;
    dlrm_settings *train = &all.options.train;
    train->model.kind = (dlrm_kind)all.model;
    train->model.n_bottom = all.bottom.n, train->model.n_top = all.top.n;
    memcpy(train->model.bottom, all.bottom.width, sizeof all.bottom.width);
    memcpy(train->model.top, all.top.width, sizeof all.top.width);
    train->optimizer = (frugal_optimizer_kind)all.optimizer;
    train->dense_optimizer = dlrm_dense_kinds[all.dense_optimizer];
    train->mode = all.mode ? FRUGAL_SYNC : FRUGAL_P2F;
    *options = all.options;
    return 0;
}
