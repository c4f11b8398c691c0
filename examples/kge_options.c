/* Options, their limits, and the settings that each model does best with. */
#include "kge_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KGE_MOST_GPUS 254

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

/* ---- Values -------------------------------------------------------------------------------------------- */

static int kge_parse_whole(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                           kge_error *error) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least || number > most)
        return kge_fail(error, "--%s is '%.40s', must be a whole number from %" PRIu64 " to %" PRIu64, option, text,
                        least, most);
    *value = number;
    return 0;
}

static int kge_parse_real(const char *option, const char *text, double least, double most, double *value,
                          kge_error *error) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= least && number <= most))
        return kge_fail(error, "--%s is '%.40s', must be a number from %g to %g", option, text, least, most);
    *value = number;
    return 0;
}

/* Finds text in a list that ends with NULL. */
static int kge_parse_choice(const char *option, const char *text, const char *const *choices, int *value,
                            kge_error *error) {
    char all[200] = "";
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(text, choices[i])) {
            *value = i;
            return 0;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", choices[i]);
    }
    return kge_fail(error, "--%s is '%.40s', must be one of: %s", option, text, all);
}

/* Where text[length] says that a device is: 0 cpu, a GPU's number plus 1, -1 neither. */
static int kge_parse_place(const char *text, size_t length) {
    if (length == 3 && !memcmp(text, "cpu", 3)) return 0;
    if (length < 6 || memcmp(text, "cuda:", 5) || strspn(text + 5, "0123456789") != length - 5) return -1;
    unsigned long gpu = strtoul(text + 5, NULL, 10);
    return gpu < KGE_MOST_GPUS ? (int)gpu + 1 : -1;
}

/* A list of places, one a device, into train->gpu; how many they are into *listed. */
static int kge_parse_places(const char *text, kge_settings *train, uint32_t *listed, kge_error *error) {
    uint32_t n = 0;
    memset(train->gpu, 0, sizeof train->gpu);
    for (const char *part = text, *next; part; part = next) {
        size_t length = strcspn(part, ",");
        int place = kge_parse_place(part, length), shown = length < 40 ? (int)length : 40;
        next = part[length] ? part + length + 1 : NULL;
        if (place < 0)
            return kge_fail(error, "--device has '%.*s', must be a list of cpu and cuda:N (N: a GPU, 0 to %d)", shown,
                            part, KGE_MOST_GPUS - 1);
        if (n == FRUGAL_MAX_DEVICES)
            return kge_fail(error, "--device lists too many devices, must be from 1 to %d", FRUGAL_MAX_DEVICES);
#ifndef KGE_CUDA
        if (place)
            return kge_fail(error, "--device has '%.*s', but this build has no CUDA; use build/cuda/kge (`ninja cuda`)",
                            shown, part);
#endif
        train->gpu[n++] = (uint8_t)place;
    }
    *listed = n;
    return 0;
}

/* entities=N,relations=N,triples=N,seed=N, any of them. */
static int kge_parse_generator(const char *spec, kge_generator *generator, kge_error *error) {
    char copy[256], *rest = copy;
    if (strlen(spec) >= sizeof copy) return kge_fail(error, "--generate takes at most %zu characters", sizeof copy - 1);
    strcpy(copy, spec);
    for (char *part; (part = strsep(&rest, ","));) {
        char *text = strchr(part, '=');
        uint64_t value = 0;
        if (!text) return kge_fail(error, "--generate has '%.40s', must be like entities=4000,triples=64000", part);
        *text++ = 0;
        char option[64];
        snprintf(option, sizeof option, "generate %.40s", part);
        int seed = !strcmp(part, "seed");
        if (!seed && strcmp(part, "entities") && strcmp(part, "relations") && strcmp(part, "triples"))
            return kge_fail(error, "--generate knows entities, relations, triples and seed, not '%.40s'", part);
        uint64_t least = *part == 'e' ? 20 : *part == 't' ? 40 : seed ? 0 : 1;
        if (kge_parse_whole(option, text, least, seed ? UINT64_MAX : 100000000, &value, error)) return -1;
        if (*part == 'e')
            generator->entities = (uint32_t)value;
        else if (*part == 'r')
            generator->relations = (uint32_t)value;
        else if (*part == 't')
            generator->triples = (uint32_t)value;
        else
            generator->seed = value;
    }
    return 0;
}

/* ---- The options --------------------------------------------------------------------------------------- */

/* How a value is read; where it goes is an offset into kge_raw. */
typedef enum { KGE_WHOLE32, KGE_WHOLE64, KGE_REAL, KGE_FLOAT, KGE_CHOICE, KGE_PLACES, KGE_TEXT } kge_option_kind;

typedef struct kge_option {
    const char *name;
    kge_option_kind kind;
    size_t offset;
    double least, most;
    const char *const *choices;
} kge_option;

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
#define KGE_MOST_ROWS    4294967294.0

static const kge_option kge_list[] = {
    {"model", KGE_CHOICE, KGE_AT(model), 0, 0, kge_models},
    {"dim", KGE_WHOLE32, KGE_TRAIN(model.dim), 1, 65536, NULL},
    {"loss", KGE_CHOICE, KGE_AT(loss), 0, 0, kge_losses},
    {"margin", KGE_FLOAT, KGE_TRAIN(model.margin), -1000, 1000, NULL},
    {"adversarial-temperature", KGE_FLOAT, KGE_TRAIN(model.temperature), 0, 1000, NULL},
    {"regularization", KGE_FLOAT, KGE_TRAIN(model.regularization), 0, 1000, NULL},
    {"reciprocal", KGE_CHOICE, KGE_TRAIN(model.reciprocal), 0, 0, kge_truths},
    {"init", KGE_FLOAT, KGE_TRAIN(init), 0, 1000, NULL},
    {"batch", KGE_WHOLE32, KGE_TRAIN(batch), 1, 1 << 22, NULL},
    {"negatives", KGE_WHOLE32, KGE_TRAIN(negatives), 1, 1 << 20, NULL},
    {"chunk", KGE_WHOLE32, KGE_TRAIN(chunk), 1, 1 << 22, NULL},
    {"corrupt", KGE_CHOICE, KGE_AT(ends), 0, 0, kge_ends},
    {"optimizer", KGE_CHOICE, KGE_AT(optimizer), 0, 0, kge_optimizers},
    {"lr", KGE_FLOAT, KGE_TRAIN(lr), 0, 1000, NULL},
    {"lr-decay", KGE_CHOICE, KGE_TRAIN(decay), 0, 0, kge_decays},
    {"weight-decay", KGE_FLOAT, KGE_TRAIN(weight_decay), 0, 1000, NULL},
    {"steps", KGE_WHOLE64, KGE_TRAIN(steps), 0, 1e18, NULL},
    {"seconds", KGE_REAL, KGE_TRAIN(seconds), 0.001, 1e9, NULL},
    {"seed", KGE_WHOLE64, KGE_TRAIN(seed), 0, 1.8e19, NULL},
    {"devices", KGE_WHOLE32, KGE_TRAIN(devices), 1, 254, NULL},
    {"device", KGE_PLACES, KGE_AT(listed), 0, 0, NULL},
    {"workers", KGE_WHOLE32, KGE_TRAIN(workers), 0, 1024, NULL},
    {"lookahead", KGE_WHOLE32, KGE_TRAIN(lookahead), 0, 15, NULL},
    {"cache", KGE_REAL, KGE_TRAIN(cache), 0, 1, NULL},
    {"mode", KGE_CHOICE, KGE_AT(mode), 0, 0, kge_modes},
    {"eval", KGE_CHOICE, KGE_AT(evaluate), 0, 0, kge_splits},
    {"eval-every", KGE_WHOLE64, KGE_AT(options.eval_every), 0, 1e18, NULL},
    {"eval-sample", KGE_WHOLE32, KGE_AT(options.eval_sample), 1, KGE_MOST_ROWS, NULL},
    {"threads", KGE_WHOLE32, KGE_AT(options.threads), 1, 64, NULL},
    {"report-every", KGE_REAL, KGE_AT(options.report_seconds), 0, 1e9, NULL},
    {"data", KGE_TEXT, KGE_AT(options.data), 0, 0, NULL},
    {"json", KGE_TEXT, KGE_AT(options.json), 0, 0, NULL},
    {"save", KGE_TEXT, KGE_AT(options.save), 0, 0, NULL},
};
enum { KGE_LISTED = sizeof kge_list / sizeof *kge_list, KGE_GENERATE = KGE_LISTED, KGE_HELP };

static int kge_option_set(const kge_option *option, const char *text, kge_raw *raw, kge_error *error) {
    void *place = (char *)raw + option->offset;
    uint64_t whole = 0;
    double real = 0;
    int choice = 0, status = 0;
    switch (option->kind) {
    case KGE_WHOLE32:
    case KGE_WHOLE64:
        status = kge_parse_whole(option->name, text, (uint64_t)option->least, (uint64_t)option->most, &whole, error);
        if (!status && option->kind == KGE_WHOLE32)
            *(uint32_t *)place = (uint32_t)whole;
        else if (!status)
            *(uint64_t *)place = whole;
        break;
    case KGE_REAL:
    case KGE_FLOAT:
        status = kge_parse_real(option->name, text, option->least, option->most, &real, error);
        if (!status && option->kind == KGE_FLOAT)
            *(float *)place = (float)real;
        else if (!status)
            *(double *)place = real;
        break;
    case KGE_CHOICE:
        status = kge_parse_choice(option->name, text, option->choices, &choice, error);
        if (!status) *(int *)place = choice;
        break;
    case KGE_PLACES:
        status = kge_parse_places(text, &raw->options.train, place, error);
        break;
    case KGE_TEXT:
        *(const char **)place = text;
        break;
    }
    if (status) return status;
    raw->chunk_given |= !strcmp(option->name, "chunk");
    raw->steps_given |= !strcmp(option->name, "steps");
    raw->seconds_given |= !strcmp(option->name, "seconds");
    raw->devices_given |= !strcmp(option->name, "devices");
    return 0;
}

/* One pass over the command line. `only` NULL: all options; else the one of that name, the others skipped. */
static int kge_options_scan(kge_raw *raw, int argc, char **argv, const char *only, kge_error *error) {
    struct option longs[KGE_LISTED + 3] = {{0}};
    for (int i = 0; i < KGE_LISTED; i++) longs[i] = (struct option){kge_list[i].name, required_argument, NULL, i};
    longs[KGE_GENERATE] = (struct option){"generate", optional_argument, NULL, KGE_GENERATE};
    longs[KGE_HELP] = (struct option){"help", no_argument, NULL, KGE_HELP};
    optind = 0; /* scan from the start, also the second time */
    opterr = 0;
    for (int which, at = 1; (which = getopt_long(argc, argv, "+:", longs, NULL)) != -1; at = optind) {
        const char *given = argv[at]; /* not optind - 1: of `-ab` the first letter is read, and optind stays */
        if (which == ':') return kge_fail(error, "option %.60s needs a value; see kge --help", given);
        if (which == '?') return kge_fail(error, "unknown or ambiguous option %.60s; see kge --help", given);
        if (which == KGE_HELP)
            raw->options.help = 1;
        else if (which == KGE_GENERATE) {
            const char *spec = optarg;
            if (!spec && optind < argc && argv[optind][0] != '-') spec = argv[optind++];
            raw->options.generate = 1;
            if (spec && kge_parse_generator(spec, &raw->options.generator, error)) return -1;
        } else if (!only || !strcmp(only, kge_list[which].name)) {
            if (kge_option_set(&kge_list[which], optarg, raw, error)) return -1;
        }
    }
    if (optind < argc) return kge_fail(error, "'%.60s' is no option; see kge --help", argv[optind]);
    return 0;
}

/* What can only be seen from several options together. */
static int kge_options_check(kge_raw *raw, kge_error *error) {
    kge_options *options = &raw->options;
    kge_settings *train = &options->train;
    if (options->help) return 0;
    if (!options->data == !options->generate)
        return kge_fail(error, "give either --data DIR or --generate; see kge --help");
    if (raw->listed && raw->devices_given && raw->listed != train->devices)
        return kge_fail(error, "--devices is %u, but --device lists %u; give one of them", train->devices, raw->listed);
    if (raw->listed) train->devices = raw->listed;
    if (!raw->chunk_given && train->batch % train->chunk) train->chunk = train->batch;
    if (train->batch % train->chunk)
        return kge_fail(error, "--batch %u is no multiple of --chunk %u", train->batch, train->chunk);
    if ((train->model.kind == KGE_COMPLEX || train->model.kind == KGE_SIMPLE) && train->model.dim % 2)
        return kge_fail(error, "--dim is %u, must be even for %s: a row has two halves", train->model.dim,
                        kge_model_name(train->model.kind));
    uint64_t keys = 4 * (uint64_t)train->batch + (uint64_t)(train->batch / train->chunk) * train->negatives;
    if (keys * train->devices > 1u << 26)
        return kge_fail(error,
                        "a step would read %" PRIu64 " rows, the limit is 2^26; use a smaller --batch, --negatives or "
                        "--devices, or a larger --chunk",
                        keys * train->devices);
    if (raw->seconds_given && !raw->steps_given) train->steps = 0;
    if (options->eval_every == KGE_UNSET) /* a generated graph is for watching */
        options->eval_every = !options->generate ? 0 : train->steps ? (train->steps + 5) / 6 : 400;
    if (!train->steps && train->seconds <= 0)
        return kge_fail(error, "--steps 0 needs --seconds, or nothing ends the training");
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

int kge_options_parse(kge_options *options, int argc, char **argv, kge_error *error) {
    kge_raw first = {0};
    /* The model and the kind of graph come first: the others' defaults hang on them. */
    if (kge_options_scan(&first, argc, argv, "model", error)) return -1;
    kge_raw all = kge_options_default(&first);
    if (kge_options_scan(&all, argc, argv, NULL, error) || kge_options_check(&all, error)) return -1;
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
