/* Options, their limits, and the settings that each model does best with. */
#include "examples/kge/options.h"
#include "examples/common/options.h"

#include <inttypes.h>
#include <stdio.h>

/* What `kge --model NAME` stands for: chosen on the validation triples of FB15k-237, see docs/kge.md.
 * .model: kind, loss, dim, margin and temperature (of the other losses), N3, reciprocal. */
/* clang-format off */
#define KGE_COMMON .optimizer = FRUGAL_ADAGRAD, .decay = 1, .init = 0.05f
static const kge_settings kge_defaults[KGE_MODELS] = {
    [KGE_TRANSE] = {.model = {KGE_TRANSE, KGE_SELF_ADVERSARIAL, 400, 6, 1, 0, 1},
                    .batch = 500, .chunk = 500, .negatives = 500, .lr = 0.2f, .steps = 4000, KGE_COMMON},
    [KGE_TRANSE_L1] = {.model = {KGE_TRANSE_L1, KGE_SELF_ADVERSARIAL, 200, 6, 1, 0, 1},
                       .batch = 500, .chunk = 250, .negatives = 250, .lr = 0.05f, .steps = 4000, KGE_COMMON},
    [KGE_DISTMULT] = {.model = {KGE_DISTMULT, KGE_SOFTMAX, 400, 0, 1, 0.03f, 1},
                      .batch = 500, .chunk = 500, .negatives = 500, .lr = 0.2f, .steps = 8000, KGE_COMMON},
    [KGE_COMPLEX] = {.model = {KGE_COMPLEX, KGE_SOFTMAX, 400, 0, 1, 0.03f, 1},
                     .batch = 500, .chunk = 500, .negatives = 500, .lr = 0.2f, .steps = 8000, KGE_COMMON},
    [KGE_SIMPLE] = {.model = {KGE_SIMPLE, KGE_SOFTMAX, 400, 0, 1, 0.03f, 1},
                    .batch = 500, .chunk = 500, .negatives = 500, .lr = 0.2f, .steps = 8000, KGE_COMMON},
};
/* A generated graph is small: so are its batches. Models but this one keep their loss. */
static const kge_settings kge_small = {
    .model = {KGE_TRANSE, KGE_SOFTMAX, 64, 6, 1, 0, 1},
    .batch = 250, .chunk = 250, .negatives = 250, .lr = 0.2f, .steps = 2400, KGE_COMMON};
static const char kge_help_text[] =
    "usage: kge --data DIR | --generate [SPEC]   [options]\n"
    "\n"
    "Trains a knowledge graph embedding with Frugal and says how well it predicts links.\n"
    "\n"
    "data\n"
    "  --data DIR          OpenKE folder (train2id.txt, entity2id.txt, ...), or plain files train.txt,\n"
    "                      valid.txt, test.txt with head<TAB>relation<TAB>tail a line\n"
    "  --generate [SPEC]   a small graph made up, and settings to suit it; SPEC is any of\n"
    "                      entities=10000,relations=40,triples=160000,seed=0 (triples: draws, of which\n"
    "                      those that come twice are dropped)\n"
    "model (defaults: see the table below)\n"
    "  --model NAME        transe (L2), transe-l1, distmult, complex, simple             [transe]\n"
    "  --dim N             floats a row\n"
    "  --loss NAME         logistic, self-adversarial, softmax\n"
    "  --margin X          of the logistic losses: softplus(-margin - positive), softplus(margin + negative)\n"
    "  --adversarial-temperature X   sharpness of the self-adversarial weights           [1]\n"
    "  --regularization X  weight of the sum of the cubes of all |x| of a triple (N3)\n"
    "  --reciprocal yes|no predict heads with an inverse relation of their own\n"
    "  --init X            rows start uniform in [-X, X)\n"
    "training\n"
    "  --batch N           triples a step and device\n"
    "  --negatives N       random entities that the triples of a chunk share as wrong answers\n"
    "  --chunk N           triples a chunk; must divide the batch                        [the batch]\n"
    "  --corrupt WHICH     ends that are predicted: both, alternate (one a step), tails  [both]\n"
    "  --optimizer NAME    sgd, adagrad, rowwise-adagrad, adam                           [adagrad]\n"
    "  --lr X              learning rate\n"
    "  --lr-decay NAME     linear (to nothing at the end), none                          [linear]\n"
    "  --weight-decay X    L2, of the rows touched                                       [0]\n"
    "  --steps N           train so many steps; 0: no limit\n"
    "  --seconds X         train so long, evaluation not counted; without --steps the only limit\n"
    "  --seed N            of everything random                                          [0]\n"
    "Frugal\n"
    "  --devices N         logical devices on host cores, a thread each                  [2]\n"
    "  --device LIST       the same, each where it is named: cpu or cuda:N, as in cuda:0,cuda:1; several may share\n"
    "                      a GPU. Needs build/cuda/kge, which `ninja cuda` builds, for GPUs\n"
    "  --workers N         threads that flush; 0: waiting devices do it                  [1]\n"
    "  --lookahead N       steps announced ahead, 0 to 15                                [10]\n"
    "  --cache RATIO       rows cached by each device, as a share of all rows, 0 to 1    [0]\n"
    "  --mode p2f|sync     flush ahead by priority, or everything before the next step   [p2f]\n"
    "results\n"
    "  --eval SPLIT        rank valid or test at the end, or none                        [test]\n"
    "  --eval-every N      rank a sample of valid every N steps, too; 0: never           [0; generated: steps / 6]\n"
    "  --eval-sample N     of about so many triples                                      [1000]\n"
    "  --threads N         that rank                                                     [2]\n"
    "  --json FILE         one JSON object a line: reports, the last one with the ranking\n"
    "  --report-every X    seconds between reports                                       [1; to files: 5]\n"
    "  --save DIR          entities.npy, relations.npy, entity2id.txt, relation2id.txt\n"
    "  --help              this\n"
    "\n"
    "Ctrl-C ends the training within two steps, on all devices after the same one, and saves; the evaluation\n"
    "is then left out.\n"
    "Exit status: 0 done, or ended by Ctrl-C and saved; 1 failed; 2 wrong usage. The same command gives the same bits,\n"
    "whatever the workers, lookahead, cache and mode, unless the clock ends it (--seconds).\n";
/* clang-format on */

void kge_options_help(void) {
    fputs(kge_help_text, stdout);
    printf("\ndefaults    dim   loss              margin  N3    reciprocal  batch  chunk  negatives  lr    "
           "init  steps\n");
    for (int i = 0; i <= KGE_MODELS; i++) {
        const kge_settings *d = i < KGE_MODELS ? &kge_defaults[i] : &kge_small;
        printf("%-10s %4u   %-16s  %-6g  %-5g %-10s  %-5u  %-5u  %-9u  %-5g %-5g %" PRIu64 "\n",
               i < KGE_MODELS ? kge_model_name(d->model.kind) : "--generate", d->model.dim,
               kge_loss_name(d->model.loss), (double)d->model.margin, (double)d->model.regularization,
               d->model.reciprocal ? "yes" : "no", d->batch, d->chunk, d->negatives, (double)d->lr, (double)d->init,
               d->steps);
    }
}

/* ---- The options --------------------------------------------------------------------------------------- */

static const char *const kge_models[] = {"transe", "transe-l1", "distmult", "complex", "simple", NULL};
static const char *const kge_losses[] = {"logistic", "self-adversarial", "softmax", NULL};
static const char *const kge_optimizers[] = {"sgd", "adagrad", "rowwise-adagrad", "adam", NULL};
static const char *const kge_modes[] = {"p2f", "sync", NULL};
static const char *const kge_decays[] = {"none", "linear", NULL};
static const char *const kge_truths[] = {"no", "yes", NULL};
static const char *const kge_ends[] = {"both", "alternate", "tails", NULL};
static const char *const kge_splits[] = {"none", "valid", "test", NULL};

/* Options whose value needs more than a place are read into these first. */
typedef struct kge_raw {
    kge_options options;
    int model, loss, optimizer, mode, ends, evaluate;
    int chunk_given, steps_given, seconds_given, devices_given;
    uint32_t listed; /* devices of --device */
} kge_raw;

#define KGE_AT(field)    offsetof(kge_raw, field)
#define KGE_TRAIN(field) offsetof(kge_raw, options.train.field)
#define KGE_UNSET        UINT64_MAX

#ifdef KGE_CUDA
#define KGE_CUDA_PROGRAM NULL
#else
#define KGE_CUDA_PROGRAM "build/cuda/kge"
#endif
_Static_assert(OPTIONS_MOST_PLACES == FRUGAL_MAX_DEVICES, "a place a device");

static int kge_read_places(void *place, const char *name, const char *text, program_error *error) {
    kge_raw *raw = place;
    return options_places(name, text, KGE_CUDA_PROGRAM, raw->options.train.gpu, &raw->listed, error);
}

/* Of --generate. */
static const options_entry kge_generator_keys[] = {
    {"entities", OPTIONS_WHOLE32, .at = KGE_AT(options.generator.entities), .whole = {20, 100000000}},
    {"relations", OPTIONS_WHOLE32, .at = KGE_AT(options.generator.relations), .whole = {1, 100000000}},
    {"triples", OPTIONS_WHOLE32, .at = KGE_AT(options.generator.triples), .whole = {40, 100000000}},
    {"seed", OPTIONS_WHOLE64, .at = KGE_AT(options.generator.seed), .whole = {0, UINT64_MAX}},
};

static const options_entry kge_entries[] = {
    {"model", OPTIONS_CHOICE, .at = KGE_AT(model), .choices = kge_models, .first = 1},
    {"dim", OPTIONS_WHOLE32, .at = KGE_TRAIN(model.dim), .whole = {1, 65536}},
    {"loss", OPTIONS_CHOICE, .at = KGE_AT(loss), .choices = kge_losses},
    {"margin", OPTIONS_FLOAT, .at = KGE_TRAIN(model.margin), .real = {-1000, 1000}},
    {"adversarial-temperature", OPTIONS_FLOAT, .at = KGE_TRAIN(model.temperature), .real = {0, 1000}},
    {"regularization", OPTIONS_FLOAT, .at = KGE_TRAIN(model.regularization), .real = {0, 1000}},
    {"reciprocal", OPTIONS_CHOICE, .at = KGE_TRAIN(model.reciprocal), .choices = kge_truths},
    {"init", OPTIONS_FLOAT, .at = KGE_TRAIN(init), .real = {0, 1000}},
    {"batch", OPTIONS_WHOLE32, .at = KGE_TRAIN(batch), .whole = {1, 1 << 22}},
    {"negatives", OPTIONS_WHOLE32, .at = KGE_TRAIN(negatives), .whole = {1, 1 << 20}},
    {"chunk", OPTIONS_WHOLE32, .at = KGE_TRAIN(chunk), .whole = {1, 1 << 22}, .given = KGE_AT(chunk_given)},
    {"corrupt", OPTIONS_CHOICE, .at = KGE_AT(ends), .choices = kge_ends},
    {"optimizer", OPTIONS_CHOICE, .at = KGE_AT(optimizer), .choices = kge_optimizers},
    {"lr", OPTIONS_FLOAT, .at = KGE_TRAIN(lr), .real = {0, 1000}},
    {"lr-decay", OPTIONS_CHOICE, .at = KGE_TRAIN(decay), .choices = kge_decays},
    {"weight-decay", OPTIONS_FLOAT, .at = KGE_TRAIN(weight_decay), .real = {0, 1000}},
    {"steps", OPTIONS_WHOLE64, .at = KGE_TRAIN(steps), .whole = {0, 1000000000000000000}, .given = KGE_AT(steps_given)},
    {"seconds", OPTIONS_REAL, .at = KGE_TRAIN(seconds), .real = {0.001, 1e9}, .given = KGE_AT(seconds_given)},
    {"seed", OPTIONS_WHOLE64, .at = KGE_TRAIN(seed), .whole = {0, 18000000000000000000u}},
    {"devices", OPTIONS_WHOLE32, .at = KGE_TRAIN(devices), .whole = {1, 254}, .given = KGE_AT(devices_given)},
    {"device", OPTIONS_READ, .read = kge_read_places},
    {"workers", OPTIONS_WHOLE32, .at = KGE_TRAIN(workers), .whole = {0, 1024}},
    {"lookahead", OPTIONS_WHOLE32, .at = KGE_TRAIN(lookahead), .whole = {0, 15}},
    {"cache", OPTIONS_REAL, .at = KGE_TRAIN(cache), .real = {0, 1}},
    {"mode", OPTIONS_CHOICE, .at = KGE_AT(mode), .choices = kge_modes},
    {"eval", OPTIONS_CHOICE, .at = KGE_AT(evaluate), .choices = kge_splits},
    {"eval-every", OPTIONS_WHOLE64, .at = KGE_AT(options.eval_every), .whole = {0, 1000000000000000000}},
    {"eval-sample", OPTIONS_WHOLE32, .at = KGE_AT(options.eval_sample), .whole = {1, 4294967294}},
    {"threads", OPTIONS_WHOLE32, .at = KGE_AT(options.threads), .whole = {1, 64}},
    {"report-every", OPTIONS_REAL, .at = KGE_AT(options.report_seconds), .real = {0, 1e9}},
    {"data", OPTIONS_TEXT, .at = KGE_AT(options.data)},
    {"json", OPTIONS_TEXT, .at = KGE_AT(options.json)},
    {"save", OPTIONS_TEXT, .at = KGE_AT(options.save)},
    {"generate", OPTIONS_SPEC, .at = KGE_AT(options.generate), .keys = kge_generator_keys, .n_keys = 4,
     .example = "entities=4000,triples=64000", .first = 1},
    {"help", OPTIONS_FLAG, .at = KGE_AT(options.help)},
};
static const options_table kge_table = {"kge", kge_entries, sizeof kge_entries / sizeof *kge_entries};

/* What can only be seen from several options together. */
static int kge_options_check(kge_raw *raw, program_error *error) {
    kge_options *options = &raw->options;
    kge_settings *train = &options->train;
    if (options->help) return 0;
    if (!options->data == !options->generate)
        return program_fail(error, "give either --data DIR or --generate; see kge --help");
    if (options_devices(raw->listed, raw->devices_given, &train->devices, error)) return -1;
    if (!raw->chunk_given && train->batch % train->chunk) train->chunk = train->batch;
    if (train->batch % train->chunk)
        return program_fail(error, "--batch %u is no multiple of --chunk %u", train->batch, train->chunk);
    if ((train->model.kind == KGE_COMPLEX || train->model.kind == KGE_SIMPLE) && train->model.dim % 2)
        return program_fail(error, "--dim is %u, must be even for %s: a row has two halves", train->model.dim,
                            kge_model_name(train->model.kind));
    uint64_t keys = 4 * (uint64_t)train->batch + (uint64_t)(train->batch / train->chunk) * train->negatives;
    if (keys * train->devices > 1u << 26)
        return program_fail(error,
                            "a step would read %" PRIu64
                            " rows, the limit is 2^26; use a smaller --batch, --negatives or "
                            "--devices, or a larger --chunk",
                            keys * train->devices);
    if (raw->seconds_given && !raw->steps_given) train->steps = 0;
    if (options->eval_every == KGE_UNSET) /* a generated graph is for watching */
        options->eval_every = !options->generate ? 0 : train->steps ? (train->steps + 5) / 6 : 400;
    if (!train->steps && train->seconds <= 0)
        return program_fail(error, "--steps 0 needs --seconds, or nothing ends the training");
    return 0;
}

/* The defaults of a model, and of a generated graph where one is asked for. */
static kge_raw kge_options_default(const kge_raw *first) {
    kge_settings defaults = kge_defaults[first->model];
    if (first->options.generate) {
        kge_settings small = kge_small;
        if (first->model != (int)kge_small.model.kind) small.model = defaults.model;
        small.model.dim = kge_small.model.dim;
        defaults = small;
    }
    defaults.devices = 2;
    defaults.workers = 1;
    defaults.lookahead = 10;
    return (kge_raw){.options = {.train = defaults,
                                 .eval_every = KGE_UNSET,
                                 .eval_sample = 1000,
                                 .threads = 2,
                                 .report_seconds = -1},
                     .model = first->model,
                     .loss = (int)defaults.model.loss,
                     .optimizer = (int)defaults.optimizer,
                     .evaluate = 2};
}

int kge_options_parse(kge_options *options, int argc, char **argv, program_error *error) {
    kge_raw first = {0};
    /* The model and the kind of graph come first: the others' defaults hang on them. */
    if (options_read(&kge_table, OPTIONS_FIRST, argc, argv, &first, error)) return -1;
    kge_raw all = kge_options_default(&first);
    if (options_read(&kge_table, OPTIONS_ALL, argc, argv, &all, error) || kge_options_check(&all, error)) return -1;
    kge_settings *train = &all.options.train;
    train->model.loss = (kge_loss_kind)all.loss;
    train->optimizer = (frugal_optimizer_kind)all.optimizer;
    train->mode = all.mode ? FRUGAL_SYNC : FRUGAL_P2F;
    train->sides = all.ends == 0 ? KGE_TAILS | KGE_HEADS : KGE_TAILS;
    train->alternate = all.ends == 1;
    all.options.evaluate = all.evaluate == 1 ? KGE_VALID : all.evaluate == 2 ? KGE_TEST : -1;
    *options = all.options;
    return 0;
}
