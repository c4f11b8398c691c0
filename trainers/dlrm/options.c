/* Options, their limits and their defaults. */
#include "trainers/dlrm/options.h"
#include "trainers/common/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char dlrm_about[] =
    "usage: dlrm --data FILE | --generate [SPEC]   [options]\n"
    "       dlrm --predict FILE --load DIR [--out FILE] [--threads N]\n"
    "       dlrm --make-schema FILE --data LOG\n"
    "\n"
    "Trains a recommendation model on nine tenths of a click log, predicts the clicks of the last tenth, and saves:\n"
    "\n"
    "    dlrm --data FILE --test 0.1 --save DIR\n"
    "\n";
static const char *const dlrm_matters[] = {"data",   "schema", "test",   "rows", "model", "dim",
                                           "epochs", "lr",     "device", "save", NULL};
static const char dlrm_notes[] =
    "\n"
    "Ctrl-C ends the training within lookahead + 2 steps, on all devices after the same one, and saves; the\n"
    "evaluation is then left out. Before the training, and in the evaluation at the end, when all is saved, it\n"
    "simply ends the program. With --checkpoint one is made, too; --resume goes on.\n"
    "mpirun -n 4 build/mpi/dlrm ... trains on several machines, which share --devices evenly, to the bits of one\n"
    "process (trainers/common/README.md). Rank 0 prints, evaluates and writes.\n"
    "--predict writes the probability of a click for each sample of a log, which need not have labels, by the model "
    "that\n"
    "--save has saved to DIR: one a line, to stdout or --out. It takes no other options.\n"
    "--make-schema writes a --schema for a log by its first line, which names the columns, and what stands below.\n"
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
    int dense_optimizer, cross_given;
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

static const char *const dlrm_models[] = {"dlrm", "wide-deep", "deepfm", "dcn", NULL};
static const char *const dlrm_dense_optimizers[] = {"sgd", "adagrad", "adam", NULL};
static const frugal_optimizer_kind dlrm_dense_kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ADAM};
static const clicks_options_words dlrm_data = {
    .program = "dlrm",
    .value = "FILE",
    .data =
        "a click log, plain or gz, read as it goes, once a pass; given several times, files that are one log, in that "
        "order; a pipe for one pass, with --format",
    .test = "held-out samples: a file, or a share of --data, its last lines; 0: none",
    .generates = 1};
static const options_entry dlrm_model_entries[] = {
    {"model", OPTIONS_CHOICE, &given.options.train.model.kind, .choices = dlrm_models,
     .help = "what becomes of rows and numbers"},
    {"dim", OPTIONS_WHOLE32, &given.options.train.model.dim, 1, 65536,
     .help = "floats a row; the same for all features, whose rows are multiplied with each other"},
    {"bottom", OPTIONS_READ, &given.bottom, .read = dlrm_read_widths, .value = "LIST", .standard = "64",
     .help = "hidden widths of the bottom MLP (dlrm), as 512,256; `none`"},
    {"top", OPTIONS_READ, &given.top, .read = dlrm_read_widths, .value = "LIST", .standard = "512,512,256",
     .help = "hidden widths of the top MLP; a last layer of 1 follows"},
    {"cross-layers", OPTIONS_WHOLE32, &given.options.train.model.n_cross, 1, DLRM_MOST_LAYERS,
     .given = &given.cross_given, .help = "dcn: how many cross layers there are beside the top MLP"},
    {0},
};
static const options_entry dlrm_training[] = {
    {"batch", OPTIONS_WHOLE32, &given.options.train.common.batch, 1, 1 << 20, .help = "samples a step and device"},
    {"epochs", OPTIONS_WHOLE64, &given.options.train.epochs, 0, 1e18, .given = &given.options.epochs_given,
     .standard = "1; up to 8 where --data is small, and no pipe: by pilots",
     .help = "passes over the samples; 0: train nothing"},
    {"shuffle", OPTIONS_WHOLE32, &given.options.train.shuffle, 0, 1e9, .given = &given.options.shuffle_given,
     .help =
         "in each pass, N samples that follow each other in the log change places, then the next N, ...; two times N "
         "are in memory; 0: the order of the log",
     .standard = "65536; fewer where samples have more than 64 ids in bags"},
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
    {"patience", OPTIONS_WHOLE32, &given.options.outputs.patience, 0, 1e9,
     .help = "end the training after N of these evaluations in a row without a better AUC; whatever ends it, except "
             "divergence, rows and "
             "layers are then those of the best one; not with --table-file; 0: never"},
    {"save", OPTIONS_TEXT, &given.options.outputs.save, .value = "DIR",
     .help = "tables and dense layers as .npy files, model.json, which describes them, what reads a log (options.txt, "
             "schema.txt, vocabulary.npy), and manifest.json, which says what belongs together. The set that is there "
             "stays until the new one is on disk"},
    {0},
};

static options_table dlrm_table(void) {
    options_table table = {.program = "dlrm", .about = dlrm_about, .matters = dlrm_matters};
    training_options_of(&dlrm_common, &given.options.train.common, &given.options.outputs, "build/cuda/dlrm");
    clicks_options_add(&table, &dlrm_data);
    options_add(&table, "model", dlrm_model_entries);
    options_add(&table, "training", dlrm_training);
    options_add(&table, NULL, dlrm_common.training);
    options_add(&table, NULL, dlrm_dense);
    options_add(&table, "Frugal", dlrm_common.frugal);
    options_add(&table, NULL, dlrm_tables);
    options_add(&table, "secondaries (training is then not exact)", dlrm_common.stale);
    options_add(&table, "checkpoints", dlrm_common.checkpoints);
    options_add(&table, "results", dlrm_results);
    options_add(&table, NULL, dlrm_common.results);
    return table;
}

/* What can only be seen from several options together. */
static int dlrm_options_check(dlrm_options *options, program_error *error) {
    const clicks_options *data = &options->data;
    if (clicks_options_take(&options->data, &dlrm_data, error) || training_options_check(&dlrm_common, error))
        return -1;
    if (options->outputs.eval_every && !data->generate && !data->test && !(data->test_share > 0))
        return program_fail(error, "--eval-every needs held-out samples; give --test FILE or a share");
    if (given.cross_given && options->train.model.kind != DLRM_DCN)
        return program_fail(error, "--cross-layers %u is for --model dcn alone; leave it out",
                            options->train.model.n_cross);
    if (options->outputs.patience && (!options->outputs.eval_every || (!data->test && !(data->test_share > 0))))
        return program_fail(error,
                            "--patience %u counts evaluations on the way; give --eval-every N and held-out samples "
                            "(--test), too",
                            options->outputs.patience);
    if (options->outputs.patience && options->train.table_file)
        return program_fail(error,
                            "--patience %u goes back to the best evaluation, and --table-file has the last rows; "
                            "leave one of them out",
                            options->outputs.patience);
    if (ranks_all() > 1 && options->train.table_file)
        return program_fail(error, "--table-file does not go with several machines, whose tables lie in memory");
    options->decay_wanted = dlrm_common.decay_given && options->train.common.decay;
    return 0;
}

/* A generated log is for demonstration. */
static void dlrm_set_defaults(int generate) {
    training_settings common = {
        .devices = 1, .batch = 256, .optimizer = FRUGAL_ADAGRAD, .lr = 0.02f, TRAINING_SETTINGS};
    clicks_options_begin(generate);
    memset(&given, 0, sizeof given);
    given.options = (dlrm_options){
        .train =
            {.model = {.dim = 16, .n_cross = 3}, .common = common, .dense_lr = 0.01f, .epochs = 1, .shuffle = 1 << 16},
        .outputs = {.eval_every = generate ? DLRM_EVAL_UNSET : 0, TRAINING_OUTPUTS},
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
    dlrm_set_defaults(0);
    if (options_read(&table, OPTIONS_FIRST, argc, argv, error)) return -1;
    dlrm_set_defaults(clicks_options_read().generate);
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
