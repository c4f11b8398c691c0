/* fuzz_options.c - the command line of kge, an argument a line. A second reading, from what `kge --help` says, knows
 * what is wrong with each argument: then it must be refused, with a message that names it. What is accepted has the
 * values that were given, within their limits, and written out in full it is read as the same again. */
#include <math.h>
#include "trainers/kge/options.h"
#include "src/arithmetic.h"
#include "fuzz.h"

typedef enum { WHOLE32, WHOLE64, REAL, FLOAT, CHOICE, PLACES, INTERVAL, TEXT } kind;

typedef struct option_kind {
    const char *name;
    kind kind;
    double least, most;
    const char *choices; /* one a word */
    size_t offset;       /* in kge_options; of choices, where their number is there as it is */
} option_kind;

#define AT(field) offsetof(kge_options, field)
enum { COMPUTED = -1, MOST_ARGUMENTS = 200 };

#define WORD(kind, word, ...) word " "
static const option_kind options_known[] = {
    {"model", CHOICE, 0, 0, "transe transe-l1 distmult complex simple rotate", AT(train.model.kind)},
    {"dim", WHOLE32, 1, 65536, NULL, AT(train.model.dim)},
    {"scoring", CHOICE, 0, 0, "sampled 1vsall kvsall", AT(train.model.scoring)},
    {"loss", CHOICE, 0, 0, "logistic self-adversarial softmax", AT(train.model.loss)},
    {"margin", FLOAT, -1000, 1000, NULL, AT(train.model.margin)},
    {"adversarial-temperature", FLOAT, 0, 1000, NULL, AT(train.model.temperature)},
    {"regularization", FLOAT, 0, 1000, NULL, AT(train.model.regularization)},
    {"damping", FLOAT, -1, 1, NULL, AT(train.model.damping)},
    {"pilots", WHOLE32, 0, 100, NULL, AT(pilots)},
    {"sampled-softmax", CHOICE, 0, 0, "plain corrected", AT(train.corrected)},
    {"reciprocal", CHOICE, 0, 0, "no yes", AT(train.model.reciprocal)},
    {"init", FLOAT, 0, 1000, NULL, AT(train.common.init)},
    {"batch", WHOLE32, 1, 1 << 22, NULL, AT(train.common.batch)},
    {"negatives", WHOLE32, 1, 1 << 20, NULL, AT(train.negatives)},
    {"chunk", WHOLE32, 1, 1 << 22, NULL, AT(train.chunk)},
    {"secondaries", REAL, 0, 100, NULL, AT(train.common.secondaries)},
    {"stale", WHOLE32, 0, 4294967295.0, NULL, AT(train.common.stale)},
    {"optimizer", CHOICE, 0, 0, FRUGAL_OPTIMIZERS(WORD), AT(train.common.optimizer)},
    {"lr", FLOAT, 0, 1000, NULL, AT(train.common.lr)},
    {"lr-decay", CHOICE, 0, 0, "none linear", AT(train.common.decay)},
    {"weight-decay", FLOAT, 0, 1000, NULL, AT(train.common.weight_decay)},
    {"steps", WHOLE64, 0, 1e18, NULL, AT(train.common.steps)},
    {"seconds", REAL, 0.001, 1e9, NULL, AT(train.common.seconds)},
    {"epochs", REAL, 0, 1e9, NULL, AT(epochs)},
    {"seed", WHOLE64, 0, 0x1p64, NULL, AT(train.common.seed)},
    {"place", TEXT, 0, 0, NULL, AT(train.common.place)},
    {"devices", WHOLE32, 1, 254, NULL, AT(train.common.devices)},
    {"device", PLACES, 0, 0, NULL, AT(train.common.gpu)},
    {"processes", WHOLE32, 1, 254, NULL, AT(train.common.processes)},
    {"deal", TEXT, 0, 0, NULL, AT(train.common.deal)},
    {"workers", WHOLE32, 0, 1024, NULL, AT(train.common.workers)},
    {"lookahead", WHOLE32, 0, 15, NULL, AT(train.common.lookahead)},
    {"cache", REAL, 0, 1, NULL, AT(train.common.cache)},
    {"cache-policy", CHOICE, 0, 0, "counted lru", AT(train.common.cache_policy)},
    {"mode", CHOICE, 0, 0, "p2f sync", AT(train.common.mode)},
    {"alone", CHOICE, 0, 0, "default staged place kept", AT(train.common.alone)},
    {"rows-as", CHOICE, 0, 0, "fp32 bf16 fp16", AT(train.common.rows_as)},
    {"rounding", CHOICE, 0, 0, "stochastic nearest", AT(train.common.rounding)},
    {"trace", TEXT, 0, 0, NULL, AT(train.common.trace)},
    {"eval", CHOICE, 0, 0, "none valid test", (size_t)COMPUTED},
    {"eval-every", WHOLE64, 0, 1e18, NULL, AT(outputs.eval_every)},
    {"eval-sample", WHOLE32, 1, 4294967294.0, NULL, AT(eval_sample)},
    {"eval-triples", WHOLE64, 0, 1e18, NULL, AT(eval_triples)},
    {"eval-candidates", WHOLE32, 0, 1e6, NULL, AT(eval_candidates)},
    {"patience", WHOLE32, 0, 1e9, NULL, AT(outputs.patience)},
    {"threads", WHOLE32, 1, 64, NULL, AT(outputs.threads)},
    {"report-every", REAL, 0, 1e9, NULL, AT(outputs.report_seconds)},
    {"checkpoint", TEXT, 0, 0, NULL, AT(outputs.checkpoint)},
    {"checkpoint-every", INTERVAL, 1, 1e18, NULL, AT(outputs.checkpoint_every)},
    {"keep", WHOLE32, 0, 1e9, NULL, AT(outputs.keep)},
    {"resume", TEXT, 0, 0, NULL, AT(outputs.resume)},
    {"data", TEXT, 0, 0, NULL, AT(data)},
    {"format", CHOICE, 0, 0,
     "built_in raw_udd_hrt raw_udd_htr raw_udd_rht raw_udd_rth raw_udd_thr raw_udd_trh udd_hrt udd_htr udd_rht udd_rth "
     "udd_thr udd_trh",
     (size_t)COMPUTED},
    {"data-files", TEXT, 0, 0, NULL, AT(data_files)},
    {"load", TEXT, 0, 0, NULL, AT(saved.folder)},
    {"predict", TEXT, 0, 0, NULL, AT(predict)},
    {"top", WHOLE32, 1, 1e6, NULL, AT(top)},
    {"table-file", TEXT, 0, 0, NULL, AT(train.table_file)},
    {"columns", CHOICE, 0, 0, "hrt htr rht rth thr trh", (size_t)COMPUTED},
    {"json", TEXT, 0, 0, NULL, AT(outputs.json)},
    {"save", TEXT, 0, 0, NULL, AT(outputs.save)},
    {"generate", TEXT, 0, 0, NULL, (size_t)COMPUTED},
    {"help", TEXT, 0, 0, NULL, (size_t)COMPUTED},
};
enum { KNOWN = sizeof options_known / sizeof *options_known, GENERATE = KNOWN - 2, HELP = KNOWN - 1 };

/* What the second reading has found. */
typedef struct second {
    const char *given[KNOWN];        /* the value of each option; "" for --generate and --help alone */
    char wrong[MOST_ARGUMENTS][128]; /* the message must hold one of these, if there are any */
    int n_wrong;
    kge_generator generator;
} second;

static void is_wrong(second *s, const char *before, const char *what) {
    if (s->n_wrong < MOST_ARGUMENTS) snprintf(s->wrong[s->n_wrong++], sizeof s->wrong[0], "%s%.60s", before, what);
}

/* >>values, each in one way of writing it */

/* 1e6, 2.5e+3, 7.0: digits, more behind a point, an exponent; whole, and below 2^53. */
static int is_scientific(const char *value, uint64_t *number) {
    double real = strtod(value, NULL);
    size_t n = strspn(value, "0123456789");
    if (!n) return 0;
    value += n;
    if (*value == '.') value += 1 + strspn(value + 1, "0123456789");
    if (*value == 'e' || *value == 'E') {
        value += 1 + (value[1] == '+');
        n = strspn(value, "0123456789");
        if (!n) return 0;
        value += n;
    }
    if (*value || real >= 0x1p53 || floor(real) < real) return 0;
    *number = (uint64_t)real;
    return 1;
}

static int canonical_whole(const char *value, uint64_t least, uint64_t most, char *out, size_t size) {
    static const char largest[] = "18446744073709551615";
    uint64_t scientific;
    char digits[24];
    if (!*value) return 0;
    if (value[strspn(value, "0123456789")]) {
        if (!is_scientific(value, &scientific)) return 0;
        snprintf(digits, sizeof digits, "%" PRIu64, scientific);
        value = digits;
    }
    while (value[0] == '0' && value[1]) value++;
    size_t n = strlen(value), most_n = strlen(largest);
    if (n > most_n || (n == most_n && strcmp(value, largest) > 0)) return 0;
    uint64_t number = strtoull(value, NULL, 10);
    if (number < least || number > most) return 0;
    snprintf(out, size, "%" PRIu64, number);
    return 1;
}

/* The choice's number in the list; -1: it is none. */
static int choice_number(const char *choices, const char *value) {
    int number = 0;
    size_t n = strlen(value);
    for (const char *at = choices; *at; number++) {
        size_t length = strcspn(at, " ");
        if (length == n && !memcmp(at, value, n)) return number;
        at += length + (at[length] == ' ');
    }
    return -1;
}

/* 0: the value is refused. */
static int canonical(const option_kind *o, const char *value, char *out, size_t size) {
    char *end;
    double real;
    switch (o->kind) {
    case WHOLE32:
    case WHOLE64:
        return canonical_whole(value, (uint64_t)o->least, o->most < 0x1p64 ? (uint64_t)o->most : UINT64_MAX, out, size);
    case REAL:
    case FLOAT:
        real = strtod(value, &end);
        if (end == value || *end || isnan(real) || real < o->least || real > o->most) return 0;
        snprintf(out, size, "%.17g", (o->kind == FLOAT ? (double)(float)real : real) + 0.0); /* -0 is 0 */
        return 1;
    case CHOICE:
        snprintf(out, size, "%s", value);
        return choice_number(o->choices, value) >= 0;
    case PLACES: /* host cores only: it is built without CUDA */
        snprintf(out, size, "%s", value);
        for (int n = 0; n < 254 && !strncmp(value, "cpu", 3); n++, value += 4)
            if (!value[3])
                return 1;
            else if (value[3] != ',')
                return 0;
        return 0;
    case INTERVAL: /* so many steps; or seconds, with an s behind them */
        if (!*value || value[strlen(value) - 1] != 's')
            return canonical_whole(value, (uint64_t)o->least, (uint64_t)o->most, out, size);
        real = strtod(value, &end);
        if (end == value || strcmp(end, "s") || isnan(real) || real < 0.001 || real > 1e9) return 0;
        snprintf(out, size, "%.17gs", real);
        return 1;
    case TEXT:
        snprintf(out, size, "%s", value);
        return 1;
    }
    return 0;
}

/* What the options hold, in the same writing; 0: it is not there (a file's name). */
static int held(const kge_options *options, int i, char *out, size_t size) {
    const option_kind *o = &options_known[i];
    const void *at = (const char *)options + (o->offset == (size_t)COMPUTED ? 0 : o->offset);
    if (o->kind == WHOLE32) snprintf(out, size, "%" PRIu32, *(const uint32_t *)at);
    if (o->kind == WHOLE64) snprintf(out, size, "%" PRIu64, *(const uint64_t *)at);
    if (o->kind == REAL) snprintf(out, size, "%.17g", *(const double *)at);
    if (o->kind == FLOAT) snprintf(out, size, "%.17g", (double)*(const float *)at);
    if (o->kind == INTERVAL) {
        const training_interval *every = at;
        if (every->steps)
            snprintf(out, size, "%" PRIu64, every->steps);
        else
            snprintf(out, size, "%.17gs", every->seconds);
    }
    if (o->kind == PLACES) {
        for (uint32_t d = 0, at_end = 0; d < options->train.common.devices; d++) {
            assert_int_equal(options->train.common.gpu[d], 0);
            at_end += (uint32_t)snprintf(out + at_end, size - at_end, d ? ",cpu" : "cpu");
        }
        return 1;
    }
    if (o->kind == TEXT && !*(const char *const *)at) return 0;
    if (o->kind == TEXT) snprintf(out, size, "%s", *(const char *const *)at);
    if (!strcmp(o->name, "format")) {
        if (options->format) snprintf(out, size, "%s", options->format);
        return options->format != NULL;
    }
    if (!strcmp(o->name, "columns")) {
        if (options->layout.columns) snprintf(out, size, "%s", options->layout.columns);
        return options->layout.columns != NULL;
    }
    if (o->kind != CHOICE) return 1;
    int number = 0;
    if (o->offset != (size_t)COMPUTED)
        memcpy(&number, at, sizeof number);
    else
        number = options->evaluate == KGE_VALID ? 1 : options->evaluate == KGE_TEST ? 2 : 0;
    const char *word = o->choices;
    while (number-- > 0) word += strcspn(word, " ") + 1;
    snprintf(out, size, "%.*s", (int)strcspn(word, " "), word);
    return 1;
}

/* >>the second reading */

static void read_part(second *s, char *part, int had[4]) {
    static const char *const names[] = {"entities", "relations", "triples", "seed"};
    static const uint64_t least[] = {20, 1, 40, 0};
    char out[64], *value = strchr(part, '=');
    int which = 0;
    if (!value) {
        is_wrong(s, "--generate has", "");
        return;
    }
    *value++ = 0;
    while (which < 4 && strcmp(part, names[which])) which++;
    if (which == 4)
        is_wrong(s, "--generate knows", "");
    else if (had[which]++)
        is_wrong(s, "--generate ", names[which]);
    else if (!canonical_whole(value, least[which],
                              which == 3   ? UINT64_MAX
                              : which == 2 ? 1000000000
                                           : 100000000,
                              out, sizeof out))
        is_wrong(s, "--generate ", names[which]);
    else if (which == 3)
        s->generator.seed = strtoull(out, NULL, 10);
    else
        *(which == 0   ? &s->generator.entities
          : which == 1 ? &s->generator.relations
                       : &s->generator.triples) = (uint32_t)strtoul(out, NULL, 10);
}

static void read_spec(second *s, const char *spec) {
    char copy[256], *rest = copy;
    int had[4] = {0};
    if (strlen(spec) >= sizeof copy) {
        is_wrong(s, "--generate takes", "");
        return;
    }
    strcpy(copy, spec);
    while (rest) {
        char *part = rest, *comma = strchr(rest, ',');
        rest = comma ? comma + 1 : NULL;
        if (comma) *comma = 0;
        read_part(s, part, had);
    }
}

/* The option of that name, or of which it is the beginning and no other's; -1. */
static int find_option(const char *name, size_t n) {
    int found = -1, several = 0;
    for (int i = 0; i < KNOWN; i++) {
        if (strncmp(options_known[i].name, name, n)) continue;
        if (strlen(options_known[i].name) == n) return i;
        several |= found >= 0;
        found = i;
    }
    return several ? -1 : found;
}

/* One argument, and its value; returns where the next begins, `n` where nothing more is read. */
static int read_argument(second *s, int n, char **arguments, int at) {
    char out[1200], *argument = arguments[at], *equals = strchr(argument, '=');
    int is_long = !strncmp(argument, "--", 2) && argument[2];
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    int which = is_long ? find_option(argument + 2, length - 2) : -1;
    const char *value = equals ? equals + 1 : NULL;
    if (!strcmp(argument, "--") && at + 1 == n) return n;
    if (which < 0 || (which == HELP && value)) {
        is_wrong(s, "", strcmp(argument, "--") ? argument : arguments[at + 1]);
        return n;
    }
    at++;
    if (!value && which == GENERATE && at < n && arguments[at][0] != '-') value = arguments[at++];
    if (!value && which < GENERATE) {
        if (at == n) is_wrong(s, "", argument);
        if (at == n) return n;
        value = arguments[at++];
    }
    if (s->given[which] && which != HELP) is_wrong(s, "--", options_known[which].name); /* given twice */
    s->given[which] = value ? value : "";
    if (which == GENERATE && value) read_spec(s, value);
    if (which < GENERATE && !canonical(&options_known[which], value, out, sizeof out))
        is_wrong(s, "--", options_known[which].name);
    return at;
}

/* >>comparing */

static const char *given(const second *s, const char *name) {
    return s->given[find_option(name, strlen(name))];
}

static int makes_checkpoints(const second *s) {
    return given(s, "checkpoint") || given(s, "resume");
}

static int holds_halves(const second *s) {
    return given(s, "rows-as") && strcmp(given(s, "rows-as"), "fp32") != 0;
}

/* Refused for what only several options together show: it says so, and it is so where that is easy to see. */
static void check_refused(const second *s, const char *message) {
    static const char *const together[] = {"give either ",
                                           "--batch ",
                                           "--dim ",
                                           "a step would read ",
                                           "--steps 0 ",
                                           "--devices is ",
                                           "--secondaries ",
                                           "--checkpoint-every is of ",
                                           "--keep is of ",
                                           "--stale ",
                                           "--place is empty",
                                           "--processes ",
                                           "--sampled-softmax corrected ",
                                           "--scoring ",
                                           "--patience ",
                                           "--trace is empty",
                                           "--columns is of ",
                                           "--rounding is of ",
                                           "--place auto:",
                                           "--deal is empty",
                                           "--table-file does not go with --patience",
                                           "--load ",
                                           "--format ",
                                           "--data-files "};
    enum { TOGETHER = sizeof together / sizeof *together };
    int which = 0, found = s->n_wrong == 0;
    if (strchr(message, '\n') || !*message) fail_msg("refused, and says '%s'", message);
    for (int i = 0; i < s->n_wrong; i++) found |= strstr(message, s->wrong[i]) != NULL;
    if (!found) fail_msg("refused, and says '%s', without '%s'", message, s->wrong[0]);
    if (s->n_wrong) return;
    while (which < TOGETHER && strncmp(message, together[which], strlen(together[which]))) which++;
    if (which == TOGETHER) fail_msg("refused, and nothing is wrong: %s", message);
    if (which == 0) assert_true(!given(s, "data") == !s->given[GENERATE]);
    if (which == 1) assert_true(given(s, "chunk") != NULL);
    if (which == 2) assert_true(given(s, "dim") && strchr("13579", given(s, "dim")[strlen(given(s, "dim")) - 1]));
    if (which == 4) assert_true(given(s, "steps") && !given(s, "seconds") && !given(s, "epochs"));
    if (which == 5) assert_true(given(s, "devices") && given(s, "device"));
    if (which == 6) assert_true(given(s, "secondaries") && makes_checkpoints(s));
    if (which == 9) assert_true(given(s, "stale") != NULL);
    if (which == 10) assert_true(given(s, "place") && !*given(s, "place"));
    if (which == 11) assert_true(given(s, "processes") && strcmp(given(s, "processes"), "1") != 0);
    if (which == 12) assert_true(!strcmp(given(s, "sampled-softmax"), "corrected"));
    if (which == 13) assert_true(given(s, "scoring") && strcmp(given(s, "scoring"), "sampled") != 0);
    const char *every = given(s, "eval-every");
    if (which == 14) assert_true(given(s, "patience") && (every ? strtod(every, NULL) <= 0 : !s->given[GENERATE]));
    if (which == 15) assert_true(given(s, "trace") && !*given(s, "trace"));
    if (which == 16) assert_true(given(s, "columns") && !given(s, "data"));
    if (which == 17) assert_true(given(s, "rounding") && !holds_halves(s));
    if (which == 18) assert_true(given(s, "place") && !strncmp(given(s, "place"), "auto:", 5));
    if (which == 19) assert_true(given(s, "deal") && !*given(s, "deal"));
    if (which == 20) assert_true(given(s, "table-file") && given(s, "patience"));
    if (which == 21) assert_true(given(s, "load") != NULL); /* there is no saved set */
    if (which == 22 || which == 23) assert_true(given(s, "format") || given(s, "data-files"));
    if (which == 7 || which == 8)
        assert_true(given(s, which == 7 ? "checkpoint-every" : "keep") && !makes_checkpoints(s));
    assert_true(!s->given[HELP]);
}

static void check_given(const second *s, const kge_options *options) {
    char wanted[1200], found[1200];
    assert_true(!options->generate == !s->given[GENERATE] && !options->outputs.help == !s->given[HELP]);
    assert_true(!memcmp(&options->generator, &s->generator, sizeof s->generator));
    for (int i = 0; i < GENERATE; i++) {
        int there = held(options, i, found, sizeof found);
        if (!s->given[i]) continue;
        if (options_known[i].kind == PLACES && s->given[HELP]) continue; /* --help ends before devices are counted */
        canonical(&options_known[i], s->given[i], wanted, sizeof wanted);
        if (!there || strcmp(wanted, found))
            fail_msg("--%s is given as '%s' and held as '%s'", options_known[i].name, wanted, found);
    }
}

/* None is sampled where all entities are scored. */
static int has_negatives(const kge_options *options) {
    assert_true((options->train.model.scoring == KGE_SAMPLED) == (options->train.negatives > 0));
    return options->train.negatives > 0;
}

/* All values lie within their limits, given or not, and go together. */
static void check_limits(const second *s, const kge_options *options) {
    const kge_settings *t = &options->train;
    const training_settings *c = &t->common;
    char found[1200], again[1200];
    for (int i = 0; i < GENERATE; i++) {
        if (options_known[i].kind == REAL && !s->given[i]) continue; /* zero or less: not given */
        if (!has_negatives(options) && !strcmp(options_known[i].name, "negatives")) continue;
        if (held(options, i, found, sizeof found) && !canonical(&options_known[i], found, again, sizeof again))
            fail_msg("--%s is %s", options_known[i].name, found);
    }
    assert_true(c->batch % t->chunk == 0 && (c->steps || c->seconds > 0 || given(s, "epochs")));
    assert_true((4 * (uint64_t)c->batch + (uint64_t)(c->batch / t->chunk) * t->negatives) * c->devices <= 1 << 26);
    assert_true(t->model.dim % 2 == 0 || !KGE_HAS_HALVES(t->model.kind));
    assert_true(!options->data == !!options->generate);
    if (t->model.scoring != KGE_SAMPLED)
        assert_true(t->model.loss == (t->model.scoring == KGE_1VSALL ? KGE_SOFTMAX : KGE_LOGISTIC) && !c->place &&
                    c->secondaries <= 0 && !t->corrected && t->model.kind != KGE_TRANSE_L1);
    assert_true(makes_checkpoints(s) || !(given(s, "checkpoint-every") || given(s, "keep")));
    assert_true(holds_halves(s) || !given(s, "rounding"));
}

/* Written out in full and read again, it is the same. */
static void check_again(const second *s, const kge_options *options) {
    static char text[KNOWN + 1][1300];
    char *arguments[KNOWN + 2] = {"kge"}, value[1200], again_value[1200];
    int n = 1;
    const kge_generator *g = &options->generator;
    kge_options again;
    program_error error;
    for (int i = 0; i < GENERATE; i++) {
        int may_be_left = options_known[i].kind == REAL || options_known[i].kind == INTERVAL ||
                          !strcmp(options_known[i].name, "keep") || !strcmp(options_known[i].name, "rounding") ||
                          (!has_negatives(options) && !strcmp(options_known[i].name, "negatives"));
        if ((may_be_left && !s->given[i]) || !held(options, i, value, sizeof value)) continue;
        snprintf(text[n], sizeof text[n], "--%s=%s", options_known[i].name, value);
        arguments[n] = text[n], n++;
    }
    if (options->generate) {
        int used = snprintf(text[n], sizeof text[n], "--generate=seed=%" PRIu64, g->seed);
        if (g->entities) used += snprintf(text[n] + used, 64, ",entities=%" PRIu32, g->entities);
        if (g->relations) used += snprintf(text[n] + used, 64, ",relations=%" PRIu32, g->relations);
        if (g->triples) snprintf(text[n] + used, 64, ",triples=%" PRIu32, g->triples);
        arguments[n] = text[n], n++;
    }
    if (kge_options_parse(&again, n, arguments, &error)) fail_msg("not read again: %s", error.text);
    assert_true(!memcmp(&again.generator, g, sizeof *g) && again.generate == options->generate);
    for (int i = 0; i < GENERATE; i++) {
        int there = held(options, i, value, sizeof value);
        assert_int_equal(there, held(&again, i, again_value, sizeof again_value));
        if (there && strcmp(value, again_value)) fail_msg("--%s=%s, and %s", options_known[i].name, value, again_value);
    }
}

const unsigned fuzz_inputs = 5000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[MOST_ARGUMENTS * 64];
    char *arguments[MOST_ARGUMENTS + 1] = {"kge"}, *rest = text;
    int n = 1;
    second s = {.n_wrong = 0};
    kge_options options;
    program_error error = {.text = ""};
    if (size > 1000) size = 1000;
    memcpy(text, data, size);
    text[size] = 0;
    for (char *line; size && n < MOST_ARGUMENTS && (line = strsep(&rest, "\n"));) arguments[n++] = line;
    if (n > 1 && !rest && !*arguments[n - 1]) n--; /* behind the last newline is no argument */
    for (int at = 1; at < n;) at = read_argument(&s, n, arguments, at);
    if (kge_options_parse(&options, n, arguments, &error)) {
        check_refused(&s, error.text);
        return 0;
    }
    if (s.n_wrong) fail_msg("accepted, with a wrong '%s'", s.wrong[0]);
    check_given(&s, &options);
    if (options.outputs.help) return 0;
    check_limits(&s, &options);
    check_again(&s, &options);
    return 0;
}
