/* Options, their limits, and the settings that each model does best with. */
#include "trainers/kge/options.h"
#include "trainers/common/ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What `kge --model NAME` stands for.
 * .model: kind, loss, dim, margin and temperature (of the other losses), N3 (the most: kge_options_fit), reciprocal.
 *
 * Chosen by the MRR of all validation triples of FB15k-237 and WN18RR, seed 0, with 128 floats and 3,000 steps:
 *   transe    margin 3, temperature 3, row-wise Adagrad .333 and .201; 6, 1, Adagrad .319 and .189. Corrected softmax
 *             has more on WN18RR (.207; .226 after 9,000 steps), and less on FB15k-237 (dim 400: .326, not .334)
 *   distmult  corrected, lr 0.7, N3 0.05 .331 and .435; plain, lr 0.2, N3 0.03 .420 on WN18RR
 *   complex   corrected, lr 0.7, N3 0.07 .468 on WN18RR, N3 0.03 .339 on FB15k-237; plain, lr 0.2, N3 0.03 .337 there
 *   rotate    margin 3, temperature 3, lr 0.4, N3 0.01, no reciprocal relations .466 on WN18RR; corrected softmax .393
 * transe-l1 has the best of three settings on FB15k-237 alone: dim 200, 1,000 steps, margin 6, lr 0.05 .314. */
/* clang-format off */
#define KGE_COMMON(kind) .optimizer = (kind), .devices = 2, TRAINING_SETTINGS
static const kge_settings kge_defaults[KGE_MODELS] = {
    [KGE_TRANSE] = {.model = {KGE_TRANSE, KGE_SELF_ADVERSARIAL, 160, 3, 3, 0, 1},
                    .chunk = 500, .negatives = 500,
                    .common = {.batch = 500, .lr = 0.2f, .steps = 4000, KGE_COMMON(FRUGAL_ROWWISE_ADAGRAD)}},
    [KGE_TRANSE_L1] = {.model = {KGE_TRANSE_L1, KGE_SELF_ADVERSARIAL, 200, 6, 1, 0, 1},
                       .chunk = 250, .negatives = 250,
                       .common = {.batch = 500, .lr = 0.05f, .steps = 4000, KGE_COMMON(FRUGAL_ADAGRAD)}},
    [KGE_DISTMULT] = {.model = {KGE_DISTMULT, KGE_SOFTMAX, 400, 0, 1, 0.07f, 1}, .corrected = 1,
                      .chunk = 500, .negatives = 500,
                      .common = {.batch = 500, .lr = 0.7f, .steps = 8000, KGE_COMMON(FRUGAL_ADAGRAD)}},
    [KGE_COMPLEX] = {.model = {KGE_COMPLEX, KGE_SOFTMAX, 400, 0, 1, 0.07f, 1}, .corrected = 1,
                     .chunk = 500, .negatives = 500,
                     .common = {.batch = 500, .lr = 0.7f, .steps = 12000, KGE_COMMON(FRUGAL_ADAGRAD)}},
    [KGE_SIMPLE] = {.model = {KGE_SIMPLE, KGE_SOFTMAX, 400, 0, 1, 0.035f, 1}, /* half: so is its score */
                    .corrected = 1,
                    .chunk = 500, .negatives = 500,
                    .common = {.batch = 500, .lr = 0.7f, .steps = 8000, KGE_COMMON(FRUGAL_ADAGRAD)}},
    [KGE_ROTATE] = {.model = {KGE_ROTATE, KGE_SELF_ADVERSARIAL, 400, 3, 3, 0.01f, 0},
                    .chunk = 500, .negatives = 500,
                    .common = {.batch = 500, .lr = 0.4f, .steps = 8000, KGE_COMMON(FRUGAL_ROWWISE_ADAGRAD)}},
};
/* A generated graph is small, and so are its batches. All models except this one keep their loss. */
static const kge_settings kge_small = {
    .model = {KGE_TRANSE, KGE_SOFTMAX, 64, 6, 1, 0, 1},
    .chunk = 250, .negatives = 250, .common = {.batch = 250, .lr = 0.2f, .steps = 2400, KGE_COMMON(FRUGAL_ADAGRAD)}};
/* clang-format on */

static const char kge_about[] =
    "usage: kge --data DIR | --generate [SPEC]   [options]\n"
    "       kge --load DIR --predict FILE\n"
    "\n"
    "Trains a knowledge graph embedding on train.txt, valid.txt and test.txt of DIR, ranks the test triples, and "
    "saves:\n"
    "\n"
    "    kge --data DIR --save OUT\n"
    "\n"
    "Defaults in brackets are those of --model transe; the table at the end has the other models' own.\n"
    "\n";
static const char *const kge_matters[] = {"data",   "columns", "model", "dim",     "epochs", "lr",
                                          "device", "save",    "load",  "predict", NULL};
static const char kge_notes[] =
    "\n"
    "--steps, where no end is given, are those above, but at least 5 epochs and at most 200 of the graph that is "
    "read.\n"
    "--chunk must divide the batch. With --scoring 1vsall and kvsall, its default is the largest that does, up to 128; "
    "the\n"
    "bits depend on it. Otherwise, where it is not given and its default does not, it is the batch; and where it is "
    "the\n"
    "batch then, with --place on several devices, it is half of it, if that is a whole number. --seconds without "
    "--steps is the only limit.\n"
    "Ctrl-C ends the training within two steps, on all devices after the same one, and saves; the evaluation is\n"
    "then left out. Before the training, and in the evaluation at the end, when all is saved, it simply ends the\n"
    "program. With --checkpoint one is made, too; --resume goes on.\n"
    "mpirun -n 4 build/mpi/kge ... trains on several machines, which share --devices evenly, to the bits of one "
    "process\n"
    "(trainers/common/README.md). Rank 0 prints, ranks and writes.\n"
    "Exit status: 0 done, or ended by Ctrl-C and saved; 1 failed; 2 wrong usage. The same command gives the same\n"
    "bits, whatever the workers, lookahead, cache, mode and way (--alone), and however often it was killed and\n"
    "resumed, unless the clock ends it (--seconds).\n";

/* ---- The options --------------------------------------------------------------------------------------- */

/* Where the command line is read to. Options that need more than one place for their value have an own place here. */
static struct {
    kge_options options;
    const char *load;
    char file_names[4096]; /* of data_files, cut */
    int format, format_given;
    int columns, columns_given, model_given, dim_given, reciprocal_given, epochs_given, evaluate_given;
    int evaluate, chunk_given, negatives_given, corrected_given, regularization_given, damping_given;
} given;
static training_options kge_common;

#define KGE_UNSET UINT64_MAX
enum { KGE_PILOTS = 8 };

static const char *const kge_formats[] = {"built_in",    "raw_udd_hrt", "raw_udd_htr", "raw_udd_rht", "raw_udd_rth",
                                          "raw_udd_thr", "raw_udd_trh", "udd_hrt",     "udd_htr",     "udd_rht",
                                          "udd_rth",     "udd_thr",     "udd_trh",     NULL};
static const char *const kge_models[] = {"transe", "transe-l1", "distmult", "complex", "simple", "rotate", NULL};
static const char *const kge_losses[] = {"logistic", "self-adversarial", "softmax", NULL};
static const char *const kge_softmaxes[] = {"plain", "corrected", NULL};
static const char *const kge_scorings[] = {"sampled", "1vsall", "kvsall", NULL};
static const char *const kge_truths[] = {"no", "yes", NULL};
static const char *const kge_splits[] = {"none", "valid", "test", NULL};

static const options_entry kge_generator_keys[] = {
    {"entities", OPTIONS_WHOLE32, &given.options.generator.entities, 20, 100000000},
    {"relations", OPTIONS_WHOLE32, &given.options.generator.relations, 1, 100000000},
    {"triples", OPTIONS_WHOLE32, &given.options.generator.triples, 40, 1000000000},
    {"seed", OPTIONS_WHOLE64, &given.options.generator.seed, 0, 0x1p64},
    {0},
};
static const options_entry kge_data[] = {
    {"data", OPTIONS_TEXT, &given.options.data, .value = "DIR",
     .help = "OpenKE folder (train2id.txt, entity2id.txt, ...), or plain files train.txt, valid.txt, test.txt with "
             "head<TAB>relation<TAB>tail a line"},
    {"columns", OPTIONS_CHOICE, &given.columns, .choices = kge_column_orders, .given = &given.columns_given,
     .standard = "hrt; OpenKE's train2id.txt: htr",
     .help = "what the columns of the triples' files hold: h is the head, r the relation, t the tail. If it is given, "
             "no doubt about it is told"},
    {"format", OPTIONS_CHOICE, &given.format, .choices = kge_formats, .given = &given.format_given,
     .standard = "by the names of the files",
     .help = "DGL-KE's words, with the order of the columns: raw_udd_hrt has names in train.txt, valid.txt, test.txt; "
             "udd_hrt has ids there, and id<TAB>name a line in entities.dict and relations.dict"},
    {"data-files", OPTIONS_TEXT, &given.options.data_files, .value = "FILE,...", .standard = "those names",
     .help =
         "the files of --format by other names, in DGL-KE's order: of udd the entities, the relations, then of both "
         "train, valid, test, of which the last may be missing"},
    {"load", OPTIONS_TEXT, &given.load, .value = "DIR", .first = 1, .standard = "none",
     .help =
         "begin with the rows that --save has written to DIR, of all names that the graph has, too; model, dim and "
         "inverse relations are as they are there, and the optimizer begins anew. Nothing is trained unless --steps, "
         "--epochs or --seconds is given"},
    {"generate", OPTIONS_SPEC, &given.options.generate, .keys = kge_generator_keys,
     .example = "entities=4000,triples=64000", .first = 1,
     .help = "a small graph made up, and settings to suit it; SPEC is any of "
             "entities=10000,relations=40,triples=160000,seed=0 (triples: draws, of which those that come twice are "
             "dropped)"},
    {0},
};
#define KGE_MODEL(field) &given.options.train.model.field
static const options_entry kge_model_entries[] = {
    {"model", OPTIONS_CHOICE, KGE_MODEL(kind), .choices = kge_models, .given = &given.model_given,
     .help = "scores of triples; transe and rotate have the L2 distance", .first = 1},
    {"dim", OPTIONS_WHOLE32, KGE_MODEL(dim), 1, 65536, .given = &given.dim_given, .help = "floats a row"},
    {"scoring", OPTIONS_CHOICE, KGE_MODEL(scoring), .choices = kge_scorings,
     .help = "what an answer is scored against: negatives; or all entities, each answer alone, or all answers of a "
             "question at once",
     .first = 1},
    {"loss", OPTIONS_CHOICE, KGE_MODEL(loss), .choices = kge_losses,
     .help = "1vsall has softmax, kvsall logistic (binary cross entropy)"},
    {"margin", OPTIONS_FLOAT, KGE_MODEL(margin), -1000, 1000,
     .help = "of the logistic losses: softplus(-margin - positive), softplus(margin + negative)"},
    {"adversarial-temperature", OPTIONS_FLOAT, KGE_MODEL(temperature), 0, 1000,
     .help = "sharpness of the self-adversarial weights"},
    {"regularization", OPTIONS_FLOAT, KGE_MODEL(regularization), 0, 1000, .given = &given.regularization_given,
     .help = "weight of the sum of the cubes of all |x| of a triple (N3); of rotate, of its entities. The default is "
             "chosen by pilots; without them, less in a graph with more than 8 training triples an entity"},
    {"damping", OPTIONS_FLOAT, KGE_MODEL(damping), -1, 1, .given = &given.damping_given,
     .standard = "0, 0.5 or -0.2, chosen by pilots where there are any; rotate, and otherwise: 0",
     .help = "a question (given end and relation) with n answers in train has weight n^-X in the loss of each of them, "
             "scaled so that the mean weight of triples is 1: less if it has many answers, or more where X is "
             "negative; N3 is not weighted. Not with kvsall"},
    {"pilots", OPTIONS_WHOLE32, &given.options.pilots, 0, 100, .standard = "8; generated: 0",
     .given = &given.options.asks_pilots,
     .help = "at most so many short trainings choose --regularization, and then (of rotate not) --damping, where it is "
             "not given, by how they rank a sample of valid; each has an eighth of --steps, and rows of at most 128 "
             "floats. None where --regularization or --seconds is given, or its default is 0"},
    {"reciprocal", OPTIONS_CHOICE, KGE_MODEL(reciprocal), .choices = kge_truths, .value = "yes|no",
     .given = &given.reciprocal_given, .standard = "yes; rotate: no",
     .help = "predict heads with an inverse relation of their own"},
    {0},
};
static const options_entry kge_training[] = {
    {"batch", OPTIONS_WHOLE32, &given.options.train.common.batch, 1, 1 << 22, .help = "triples a step and device"},
    {"negatives", OPTIONS_WHOLE32, &given.options.train.negatives, 1, 1 << 20, .given = &given.negatives_given,
     .help = "random entities that the triples of a chunk share as wrong answers"},
    {"chunk", OPTIONS_WHOLE32, &given.options.train.chunk, 1, 1 << 22, .given = &given.chunk_given,
     .help = "triples a chunk; must divide the batch"},
    {"epochs", OPTIONS_REAL, &given.options.epochs, 0, 1e9, .value = "X", .given = &given.epochs_given,
     .standard = "as --steps say", .help = "passes over the training triples, at the most; 0: train nothing"},
    {"table-file", OPTIONS_TEXT, &given.options.train.table_file, .standard = "in memory",
     .help =
         "the tables lie in this file, mapped, so they may be larger than memory. It must be new, because it has no "
         "names; with --resume it may be there, and its rows become the checkpoint's"},
    {"sampled-softmax", OPTIONS_CHOICE, &given.options.train.corrected, .choices = kge_softmaxes,
     .given = &given.corrected_given, .help = "of --loss softmax: corrected negatives stand for all other entities"},
    {0},
};
static const options_entry kge_results[] = {
    {"eval", OPTIONS_CHOICE, &given.evaluate, .choices = kge_splits, .value = "SPLIT", .given = &given.evaluate_given,
     .help = "rank it at the end"},
    {"eval-every", OPTIONS_WHOLE64, &given.options.outputs.eval_every, 0, 1e18,
     .help = "rank a sample of valid every N steps, too; 0: never", .standard = "0; generated: steps / 6"},
    {"eval-sample", OPTIONS_WHOLE32, &given.options.eval_sample, 1, 4294967294,
     .help = "about how many triples of valid are ranked by --eval-every; each pilot ranks five times as many"},
    {"eval-triples", OPTIONS_WHOLE64, &given.options.eval_triples, 0, 1e18, .standard = "all",
     .help = "rank about so many triples at the end, at even distances; the standard error is told"},
    {"eval-candidates", OPTIONS_WHOLE32, &given.options.eval_candidates, 0, 1e6, .standard = "all",
     .help = "rank each answer among so many random entities, which 64 triples share, and not among all: the MRR is "
             "higher than among all, and its standard error is told"},
    {"patience", OPTIONS_WHOLE32, &given.options.outputs.patience, 0, 1e9,
     .help = "end the training after N of these evaluations in a row without a better MRR; whatever ends it, except "
             "divergence, the "
             "embeddings are then those of the best one; 0: never"},
    {"predict", OPTIONS_TEXT, &given.options.predict, .value = "FILE", .standard = "none",
     .help = "print the best answers to the questions of FILE, one a line: head<TAB>relation<TAB>?, "
             "?<TAB>relation<TAB>tail, or an entity, whose nearest ones are asked for. What else is printed goes to "
             "stderr then"},
    {"top", OPTIONS_WHOLE32, &given.options.top, 1, 1e6, .help = "how many answers"},
    {"save", OPTIONS_TEXT, &given.options.outputs.save, .value = "DIR",
     .help = "entities.npy, relations.npy, entity2id.txt, relation2id.txt; and manifest.json, which says what belongs "
             "together. The set that is there stays until the new one is on disk"},
    {0},
};

static options_table kge_table(void) {
    options_table table = {.program = "kge", .about = kge_about, .matters = kge_matters};
    training_options_of(&kge_common, &given.options.train.common, &given.options.outputs, "build/cuda/kge");
    options_add(&table, "data", kge_data);
    options_add(&table, "model", kge_model_entries);
    options_add(&table, "training", kge_training);
    options_add(&table, NULL, kge_common.training);
    options_add(&table, "Frugal", kge_common.frugal);
    options_add(&table, "secondaries (training is then not exact)", kge_common.stale);
    options_add(&table, "checkpoints", kge_common.checkpoints);
    options_add(&table, "results", kge_results);
    options_add(&table, NULL, kge_common.results);
    return table;
}

/* Of scoring against all entities. */
static kge_loss_kind kge_loss_of(kge_scoring scoring) {
    return scoring == KGE_KVSALL ? KGE_LOGISTIC : KGE_SOFTMAX;
}

/* The defaults of a model, and of a generated graph where one is asked for. */
static void kge_set_defaults(kge_model_kind kind, kge_scoring scoring, int generate) {
    kge_settings defaults = kge_defaults[kind];
    if (generate) {
        kge_settings small = kge_small;
        if (kind != kge_small.model.kind) small.model = defaults.model, small.corrected = defaults.corrected;
        small.model.dim = kge_small.model.dim;
        defaults = small;
    }
    defaults.model.scoring = scoring;
    if (scoring != KGE_SAMPLED) defaults.model.loss = kge_loss_of(scoring), defaults.corrected = 0;
    memset(&given, 0, sizeof given);
    given.options = (kge_options){.train = defaults,
                                  .outputs = {.eval_every = KGE_UNSET, TRAINING_OUTPUTS},
                                  .pilots = generate ? 0 : KGE_PILOTS,
                                  .top = 10,
                                  .eval_sample = 1000};
    given.evaluate = 2;
}

void kge_options_help(void) {
    options_table table = kge_table();
    kge_set_defaults(KGE_TRANSE, KGE_SAMPLED, 0);
    options_help(&table);
    printf(
        "\ndefaults    dim   loss               margin  temperature  N3     batch  chunk  negatives  optimizer        "
        "lr    steps\n");
    for (int i = 0; i <= KGE_MODELS; i++) {
        const kge_settings *d = i < KGE_MODELS ? &kge_defaults[i] : &kge_small;
        printf("%-10s %4u   %-17s  %-6g  %-11g  %-5g  %-5u  %-5u  %-9u  %-15s  %-5g %" PRIu64 "\n",
               i < KGE_MODELS ? kge_model_name(d->model.kind) : "--generate", d->model.dim,
               d->corrected ? "corrected softmax" : kge_loss_name(d->model.loss), (double)d->model.margin,
               (double)d->model.temperature, (double)d->model.regularization, d->common.batch, d->chunk, d->negatives,
               training_optimizer_word(d->common.optimizer), (double)d->common.lr, d->common.steps);
    }
    fputs(kge_notes, stdout);
}

/* ---- Reading ------------------------------------------------------------------------------------------- */

/* The batch and what it is made of. */
static int kge_check_batch(const kge_settings *train, program_error *error) {
    uint32_t batch = train->common.batch, devices = train->common.devices;
    if (batch % train->chunk)
        return program_fail(error, "--batch %u is no multiple of --chunk %u", batch, train->chunk);
    if (KGE_HAS_HALVES(train->model.kind) && train->model.dim % 2)
        return program_fail(error, "--dim is %u, must be even for %s: a row has two halves", train->model.dim,
                            kge_model_name(train->model.kind));
    uint64_t keys = 4 * (uint64_t)batch + (uint64_t)(batch / train->chunk) * train->negatives;
    if (keys * devices > 1u << 26)
        return program_fail(error,
                            "a step would read %" PRIu64
                            " rows, the limit is 2^26; use a smaller --batch, --negatives or "
                            "--devices, or a larger --chunk",
                            keys * devices);
    return 0;
}

/* Of scores against all entities: large enough for matrix products to be fast, and not much memory. */
enum { KGE_CHUNK_OF_ALL = 128 };

/* The chunk, where it is not given. By parts, the triples of a device are alike, so they need at least two sets of
 * negatives a batch. Two win back most of the MRR that one set costs; with no more negatives than triples, still fewer
 * rows are read than without parts, which more sets would undo (trainers/common/README.md, "Dealt by locality"). */
static void kge_default_chunk(kge_settings *train) {
    if (train->model.scoring != KGE_SAMPLED) {
        train->chunk = KGE_CHUNK_OF_ALL;
        while (train->common.batch % train->chunk) train->chunk--;
        return;
    }
    if (train->common.batch % train->chunk) train->chunk = train->common.batch;
    if (train->common.place && train->common.devices > 1 && train->chunk == train->common.batch &&
        train->chunk % 2 == 0)
        train->chunk /= 2;
}

/* The model and its loss. */
static int kge_check_model(kge_settings *train, program_error *error) {
    kge_model *model = &train->model;
    if (model->loss != KGE_SOFTMAX && !given.corrected_given) train->corrected = 0; /* by default */
    if (train->corrected && model->loss != KGE_SOFTMAX)
        return program_fail(error, "--sampled-softmax corrected needs --loss softmax, and the loss is %s",
                            kge_loss_name(model->loss));
    given.options.fits_n3 = !given.regularization_given;
    given.options.fits_damping = !given.damping_given && model->scoring != KGE_KVSALL;
    return 0;
}

/* What does not go with scoring against all entities. */
static int kge_check_scoring(const kge_settings *train, program_error *error) {
    const kge_model *model = &train->model;
    const char *name = kge_scoring_name(model->scoring);
    if (model->kind == KGE_TRANSE_L1)
        return program_fail(
            error,
            "--scoring %s does not go with --model transe-l1, whose distances are no matrix product; use "
            "transe, or --scoring sampled",
            name);
    if (model->scoring == KGE_KVSALL && KGE_HAS_L2(model->kind))
        return program_fail(
            error,
            "--scoring kvsall does not go with --model %s, whose scores are distances, so that none says yes; "
            "use 1vsall",
            kge_model_name(model->kind));
    if (model->loss != kge_loss_of(model->scoring))
        return program_fail(error, "--scoring %s needs --loss %s, and the loss is %s", name,
                            kge_loss_name(kge_loss_of(model->scoring)), kge_loss_name(model->loss));
    if (given.negatives_given || train->corrected)
        return program_fail(error, "--scoring %s has no negatives: leave --%s out", name,
                            train->corrected ? "sampled-softmax" : "negatives");
    if (train->common.place || train->common.secondaries > 0)
        return program_fail(error,
                            "--scoring %s does not go with --%s, because every device reads all entities in every step",
                            name, train->common.place ? "place" : "secondaries");
    if (model->scoring == KGE_KVSALL && model->damping != 0)
        return program_fail(error, "--scoring kvsall does not go with --damping, because it draws a question once, "
                                   "with all its answers; leave --damping out");
    if (model->scoring == KGE_KVSALL && !model->reciprocal)
        return program_fail(error, "--scoring kvsall asks for heads by inverse relations; use --reciprocal yes");
    return 0;
}

/* The files that --data-files lists. */
static int kge_take_files(kge_layout *layout, program_error *error) {
    int udd = layout->format == KGE_UDD, n = 0, most = udd ? 5 : 3;
    snprintf(given.file_names, sizeof given.file_names, "%s", given.options.data_files);
    for (char *part = given.file_names, *comma; part && n <= most; part = comma, n++) {
        comma = strchr(part, ',');
        if (comma) *comma++ = 0;
        if (!*part) n = most; /* too many: refused below */
        if (n < most) layout->file[udd ? (n + KGE_SPLITS) % KGE_LAYOUT_FILES : n] = part;
    }
    layout->named = 1;
    if (n <= most && n > 2 * udd && strlen(given.options.data_files) < sizeof given.file_names) return 0;
    return program_fail(error,
                        "--data-files '%.80s' must be %sthe files of train, valid and test, of which the last may "
                        "be left out, with commas between them",
                        given.options.data_files, udd ? "the files of the entities and of the relations, then " : "");
}

/* How the files are read. */
static int kge_check_layout(kge_options *options, program_error *error) {
    kge_layout *layout = &options->layout;
    *layout = (kge_layout){.columns = given.columns_given ? kge_column_orders[given.columns] : NULL};
    const char *format = given.format_given ? kge_formats[given.format] : NULL;
    const char *order = format ? strrchr(format, '_') : NULL;
    options->format = format;
    if (format && !given.format)
        return program_fail(error, "--format built_in makes DGL-KE load a data set from the net; here --data names the "
                                   "folder of its files, and --format is left out");
    if (given.options.data_files && !format)
        return program_fail(error, "--data-files needs --format, which says what the files hold");
    if (!format) return 0;
    if (layout->columns && strcmp(layout->columns, order + 1) != 0)
        return program_fail(error, "--format %s and --columns %s are two orders; leave one out", format,
                            layout->columns);
    for (int i = 0; i < KGE_ORDERS; i++)
        if (!strcmp(kge_column_orders[i], order + 1)) layout->columns = kge_column_orders[i];
    layout->format = !strncmp(format, "raw", 3) ? KGE_PLAIN : KGE_UDD;
    return given.options.data_files ? kge_take_files(layout, error) : 0;
}

/* The graph, or the names of --load. */
static int kge_check_data(kge_options *options, program_error *error) {
    if (options->data && options->generate)
        return program_fail(error, "give either --data DIR or --generate, not both");
    if (given.columns_given && !options->data)
        return program_fail(error, "--columns is of the files of --data, and none are given; leave it out");
    if ((given.format_given || given.options.data_files) && !options->data)
        return program_fail(error, "--format and --data-files are of --data, and none is given; leave them out");
    if (options->data || options->generate) return kge_check_layout(options, error);
    if (!options->saved.folder || !options->predict)
        return program_fail(error, "give either --data DIR or --generate, or --load DIR and --predict FILE; see kge "
                                   "--help");
    if (kge_common.steps_given || kge_common.seconds_given || given.epochs_given || given.evaluate_given)
        return program_fail(error, "give either --data DIR or --generate to train or rank what --load has read");
    given.evaluate = 0;
    return 0;
}

/* What --load has decides, or must be what is given. */
static int kge_check_saved(kge_options *options, program_error *error) {
    kge_model *model = &options->train.model;
    const kge_saved *saved = &options->saved;
    if (!saved->folder) return 0;
    if (ranks_all() > 1)
        return program_fail(error, "--load does not go with several machines; --resume goes on from a checkpoint");
    if (given.dim_given && model->dim != saved->dim)
        return program_fail(error, "--dim is %" PRIu32 ", and --load %.300s has rows of %" PRIu32 "; leave --dim out",
                            model->dim, saved->folder, saved->dim);
    model->dim = saved->dim;
    return 0;
}

static int kge_check_table_file(const kge_options *options, program_error *error) {
    if (!options->train.table_file) return 0;
    if (options->outputs.patience)
        return program_fail(error, "--table-file does not go with --patience, which goes back to the best evaluation: "
                                   "the file has the last rows; leave one of them out");
    if (ranks_all() > 1)
        return program_fail(error, "--table-file does not go with several machines, whose tables lie in memory");
    return 0;
}

/* When the training ends. */
static int kge_check_end(kge_options *options, program_error *error) {
    training_settings *common = &options->train.common;
    int given_any = kge_common.steps_given || kge_common.seconds_given || given.epochs_given;
    options->chooses_steps = !given_any && !options->saved.folder;
    if (!given.epochs_given) options->epochs = -1;
    if (!kge_common.steps_given && !options->chooses_steps) common->steps = 0;
    if (kge_common.steps_given && !common->steps && common->seconds <= 0 && !given.epochs_given)
        return program_fail(error, "--steps 0 needs --seconds or --epochs, or nothing ends the training");
    return 0;
}

/* What can only be seen from several options together. */
static int kge_options_check(kge_options *options, program_error *error) {
    kge_settings *train = &options->train;
    if (kge_check_data(options, error) || kge_check_saved(options, error) || kge_check_table_file(options, error))
        return -1;
    if (training_options_check(&kge_common, error)) return -1;
    if (train->model.scoring != KGE_SAMPLED) {
        if (kge_check_scoring(train, error)) return -1;
        train->negatives = 0;
    }
    if (!given.chunk_given) kge_default_chunk(train);
    if (kge_check_model(train, error) || kge_check_batch(train, error)) return -1;
    if (kge_check_end(options, error)) return -1;
    options->spreads = options->outputs.eval_every == KGE_UNSET && options->generate; /* it is for demonstration */
    if (options->outputs.eval_every == KGE_UNSET) options->outputs.eval_every = options->generate;
    if (options->outputs.patience && !options->outputs.eval_every)
        return program_fail(error, "--patience %" PRIu32 " counts evaluations on the way; give --eval-every N, too",
                            options->outputs.patience);
    return 0;
}

int kge_options_parse(kge_options *options, int argc, char **argv, program_error *error) {
    options_table table = kge_table();
    memset(&given, 0, sizeof given);
    /* The model, its scoring and the kind of graph come first: the defaults of the others depend on them. */
    if (options_read(&table, OPTIONS_FIRST, argc, argv, error)) return -1;
    kge_saved saved = {.folder = NULL};
    kge_model_kind kind = given.options.train.model.kind;
    if (given.load && !given.options.outputs.help && kge_saved_look(&saved, given.load, error)) return -1;
    if (saved.folder && given.model_given && kind != saved.kind)
        return program_fail(error, "--model is %s, and --load %.300s has %s; leave --model out", kge_model_name(kind),
                            saved.folder, kge_model_name(saved.kind));
    kge_set_defaults(saved.folder ? saved.kind : kind, given.options.train.model.scoring, given.options.generate);
    given.options.saved = saved;
    if (options_read(&table, OPTIONS_ALL, argc, argv, error)) return -1;
    if (saved.folder) given.options.train.model.kind = saved.kind;
    given.options.reciprocal = given.reciprocal_given ? given.options.train.model.reciprocal : -1;
    if (!given.options.outputs.help && kge_options_check(&given.options, error)) return -1;
    given.options.evaluate = given.evaluate == 1 ? KGE_VALID : given.evaluate == 2 ? KGE_TEST : -1;
    *options = given.options;
    return 0;
}

/* ---- When the graph is there ---------------------------------------------------------------------------- */

enum { KGE_LEAST_EPOCHS = 5, KGE_MOST_EPOCHS = 200 };

/* What an epoch goes through: triples, or the questions of KvsAll. */
static int kge_samples(const kge_options *options, const kge_graph *graph, double *samples, program_error *error) {
    kge_questions questions;
    *samples = (double)graph->split[KGE_TRAIN].n;
    if (options->train.model.scoring != KGE_KVSALL) return 0;
    int status = kge_questions_build(&questions, graph, error);
    if (!status) *samples = (double)questions.asked.n;
    kge_questions_free(&questions);
    return status;
}

int kge_options_steps(kge_options *options, const kge_graph *graph, program_error *error) {
    training_settings *common = &options->train.common;
    double samples, a_step = (double)common->batch * common->devices;
    if (kge_samples(options, graph, &samples, error)) return -1;
    double steps = (double)common->steps, epoch = samples / a_step;
    if (options->chooses_steps) {
        double least = ceil(KGE_LEAST_EPOCHS * epoch), most = ceil(KGE_MOST_EPOCHS * epoch);
        steps = steps < least ? least : steps > most ? most : steps;
    } else if (options->epochs >= 0) {
        double wanted = ceil(options->epochs * epoch);
        steps = steps > 0 && steps < wanted ? steps : wanted;
    }
    int trains = steps > 0 || (common->seconds > 0 && options->epochs != 0);
    common->steps = (uint64_t)steps;
    if (!trains) common->seconds = 0;
    if (options->spreads) options->outputs.eval_every = !trains ? 0 : common->steps ? (common->steps + 5) / 6 : 400;
    if (common->steps)
        fprintf(stderr, "%" PRIu64 " steps, %.*g epochs of %.0f %s%s\n", common->steps, steps / epoch < 1000 ? 3 : 9,
                steps / epoch < 1000 ? steps / epoch : round(steps / epoch), samples,
                options->train.model.scoring == KGE_KVSALL ? "questions" : "triples",
                options->chooses_steps ? " (--steps, --epochs)" : "");
    return 0;
}

/* N3 is a sum over triples, so its weight on an entity rises with the entity's triples, although they tell more.
 * Divided by their mean number, it is a prior of an entity. Where entities have few, it must not rise further, or all
 * rows go to zero. */
enum { KGE_N3_TRIPLES = 8 };

/* To two digits, so that it can be typed. */
static float kge_to_two_digits(double weight) {
    char text[32];
    snprintf(text, sizeof text, "%.2g", weight);
    return strtof(text, NULL);
}

double kge_options_fit(kge_options *options, const kge_graph *graph, double factor) {
    kge_model *model = &options->train.model;
    double triples = (double)graph->split[KGE_TRAIN].n / graph->entities.n;
    double most = (double)kge_defaults[model->kind].model.regularization;
    float weight = kge_to_two_digits(factor * most * fmin(1, KGE_N3_TRIPLES / triples));
    if (options->fits_n3) model->regularization = weight;
    return triples;
}
