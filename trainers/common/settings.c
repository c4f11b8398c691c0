/* The options of all programs that train, and lists of places. */
#include "trainers/common/settings.h"
#include "trainers/common/ranks.h"
#include "src/arithmetic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef TRAINING_CUDA
enum { HAS_CUDA = 1 };
#else
enum { HAS_CUDA = 0 };
#endif

/* ---- Places -------------------------------------------------------------------------------------------- */

/* The place of a device that text[length] names: 0: cpu; a GPU's number plus 1; -1: neither. */
static int training_place(const char *text, size_t length) {
    if (length == 3 && !memcmp(text, "cpu", 3)) return 0;
    if (length < 6 || memcmp(text, "cuda:", 5) || strspn(text + 5, "0123456789") != length - 5) return -1;
    unsigned long gpu = strtoul(text + 5, NULL, 10);
    return gpu < FRUGAL_MAX_DEVICES ? (int)gpu + 1 : -1;
}

/* A list of places, one a device: "cpu,cuda:0,cuda:0". */
static int training_read_places(void *to, const char *name, const char *text, program_error *error) {
    struct training_places *places = to;
    uint8_t gpu[FRUGAL_MAX_DEVICES] = {0};
    uint32_t listed = 0;
    for (const char *part = text, *next; part; part = next) {
        size_t length = strcspn(part, ",");
        int place = training_place(part, length), shown = length < 40 ? (int)length : 40;
        next = part[length] ? part + length + 1 : NULL;
        if (place < 0)
            return program_fail(error, "--%s has '%.*s', must be a list of cpu and cuda:N (N: a GPU, 0 to %d)", name,
                                shown, part, FRUGAL_MAX_DEVICES - 1);
        if (listed == FRUGAL_MAX_DEVICES)
            return program_fail(error, "--%s lists too many devices, must be from 1 to %d", name, FRUGAL_MAX_DEVICES);
        if (place && !HAS_CUDA)
            return program_fail(error, "--%s has '%.*s', but this build has no CUDA; use %s (`ninja cuda`)", name,
                                shown, part, places->cuda_program);
        gpu[listed++] = (uint8_t)place;
    }
    memcpy(places->settings->gpu, gpu, sizeof gpu);
    places->n = listed;
    return 0;
}

/* ---- Checkpoints --------------------------------------------------------------------------------------- */

/* Steps, or seconds with an s after them: "1000", "600s". */
static int training_read_interval(void *to, const char *name, const char *text, program_error *error) {
    training_interval every = {.steps = 0};
    size_t n = strlen(text);
    char *end;
    if (n == 0 || text[n - 1] != 's') {
        if (options_whole(name, text, 1, (uint64_t)1e18, &every.steps, error)) return -1;
    } else {
        every.seconds = strtod(text, &end);
        if (end == text || end != text + n - 1 || !(every.seconds >= 0.001 && every.seconds <= 1e9))
            return program_fail(error, "--%s is '%.40s', must be seconds from 0.001s to 1e9s, or a number of steps",
                                name, text);
    }
    *(training_interval *)to = every;
    return 0;
}

static int training_check_checkpoints(const training_options *options, program_error *error) {
    const training_outputs *outputs = options->outputs;
    if (outputs->checkpoint || outputs->resume || !(options->every_given || options->keep_given)) return 0;
    return program_fail(error, "--%s is of checkpoints, and none are made; give --checkpoint DIR",
                        options->every_given ? "checkpoint-every" : "keep");
}

static int training_check_stale(const training_options *options, program_error *error) {
    const training_settings *settings = options->places.settings;
    const training_outputs *outputs = options->outputs;
    if (settings->stale && settings->secondaries <= 0)
        return program_fail(error,
                            "--stale %" PRIu32
                            " bounds the copies of --secondaries; give --secondaries PERCENT, or leave --stale out",
                            settings->stale);
    if (settings->secondaries > 0 && (outputs->checkpoint || outputs->resume))
        return program_fail(error,
                            "--secondaries does not go with --checkpoint or --resume, because a run that is resumed "
                            "begins without copies: its result would be another one");
    return 0;
}

int training_has_gpu(const training_settings *settings) {
    for (uint32_t d = 0; d < settings->devices; d++)
        if (settings->gpu[d]) return 1;
    return 0;
}

/* Once the number of devices is known. */
static int training_check_processes(const training_settings *settings, program_error *error) {
    uint32_t processes = settings->processes;
    if (processes <= 1) return 0;
    if (settings->devices % processes)
        return program_fail(error, "--processes is %u, and there are %u devices; give a number that divides them",
                            processes, settings->devices);
    if (!settings->workers)
        return program_fail(
            error, "--processes is %u, and only workers serve other processes; give --workers 1 or more", processes);
    if (settings->secondaries > 0)
        return program_fail(error,
                            "--processes does not go with --secondaries, whose copies are chosen in one process");
    return 0;
}

/* Several machines, once the number of devices is known. */
static int training_check_machines(const training_settings *settings, program_error *error) {
    uint32_t machines = ranks_all();
    if (machines == 1) return 0;
    if (settings->devices % machines)
        return program_fail(error,
                            "--devices is %u, of all machines together, and there are %u; give a number that they "
                            "divide",
                            settings->devices, machines);
    if (settings->processes > 1)
        return program_fail(error, "--processes does not go with several machines: start more ranks by mpirun instead");
    if (settings->secondaries > 0)
        return program_fail(error, "--secondaries does not go with several machines, whose training is exact");
    return 0;
}

static int training_check_devices(const training_options *options, program_error *error) {
    uint32_t listed = options->places.n;
    training_settings *settings = options->places.settings;
    if (!listed) return 0;
    if (options->devices_given && listed != settings->devices)
        return program_fail(error, "--devices is %u, but --device lists %u; give one of them", settings->devices,
                            listed);
    settings->devices = listed;
    return 0;
}

static const char training_auto[] = "auto:";

uint32_t training_dealt_for(const char *place) {
    size_t n = sizeof training_auto - 1;
    if (!place || strncmp(place, training_auto, n - 1) != 0) return 0;
    return place[n - 1] == 0 ? 1 : place[n - 1] == ':' ? (uint32_t)strtoul(place + n, NULL, 10) : 0;
}

static int training_check_place(const training_settings *settings, program_error *error) {
    uint64_t machines;
    if (!settings->place) return 0;
    if (!*settings->place)
        return program_fail(error, "--place is empty; give `auto`, or a file of parts, or leave it out");
    if (strncmp(settings->place, training_auto, sizeof training_auto - 1) != 0) return 0;
    if (options_whole("place auto:N", settings->place + sizeof training_auto - 1, 1, FRUGAL_MAX_MACHINES, &machines,
                      error))
        return -1;
    if (settings->devices % machines == 0) return 0;
    return program_fail(error,
                        "--place %s deals for machines with as many devices each, and there are %u; give a "
                        "multiple, or --place auto",
                        settings->place, settings->devices);
}

int training_options_check(const training_options *options, program_error *error) {
    const training_settings *settings = options->places.settings;
    if (training_check_checkpoints(options, error) || training_check_stale(options, error)) return -1;
    if (settings->trace && !*settings->trace)
        return program_fail(error, "--trace is empty; give a file, or leave it out");
    if (settings->deal && !*settings->deal)
        return program_fail(error, "--deal is empty; give cyclic, blocks or a .npy file, or leave it out");
    if (options->rounding_given && settings->rows_as == FRUGAL_FP32)
        return program_fail(error, "--rounding is of weights of 16 bits; give --rows-as bf16 or fp16, or leave it out");
    if (training_check_devices(options, error) || training_check_place(settings, error)) return -1;
    if (training_check_machines(settings, error)) return -1;
    return training_check_processes(settings, error);
}

/* ---- The options --------------------------------------------------------------------------------------- */

static const char *const optimizers[] = {FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_WORD) NULL};
static const char *const types[] = {"fp32", "bf16", "fp16", NULL};      /* frugal_type */
static const char *const roundings[] = {"stochastic", "nearest", NULL}; /* frugal_rounding */
static const char *const decays[] = {"none", "linear", NULL};
static const char *const policies[] = {"counted", "lru", NULL}; /* frugal_cache_policy; static needs a list */
static const char *const modes[] = {"p2f", "sync", NULL};       /* frugal_mode */
static const char *const ways[] = {"default", "staged", "place", "kept", NULL}; /* frugal_alone */

const char *training_alone_word(frugal_alone alone) {
    return ways[alone];
}

const char *training_type_word(frugal_type rows_as) {
    return types[rows_as];
}

const char *training_optimizer_word(frugal_optimizer_kind optimizer) {
    return optimizers[optimizer];
}

static void training_checkpoint_options(training_options *options, training_outputs *outputs) {
    const options_entry entries[] = {
        {"checkpoint", OPTIONS_TEXT, &outputs->checkpoint, .value = "DIR",
         .help = "keep in DIR what the training can go on from, whenever it is killed; one is made at the end and "
                 "at Ctrl-C, too. A DIR that has some is refused without --resume DIR"},
        {"checkpoint-every", OPTIONS_READ, &outputs->checkpoint_every, .read = training_read_interval, .value = "N|Ns",
         .standard = "600s", .given = &options->every_given,
         .help = "one every N steps, or every N seconds, at the next step; each has all rows. One that cannot be "
                 "written is told of, and the training goes on; if it is the last one, the exit status is 1"},
        {"keep", OPTIONS_WHOLE32, &outputs->keep, 0, 1e9, .given = &options->keep_given,
         .help = "the newest N of them stay; 0: all"},
        {"resume", OPTIONS_TEXT, &outputs->resume, .value = "DIR",
         .help = "go on from the newest whole checkpoint in DIR, to the bits of a run that was not interrupted; "
                 "further ones are made in DIR, unless --checkpoint names another. With --checkpoint DIR, too, "
                 "the training begins if there is none yet"},
        {0},
    };
    memcpy(options->checkpoints, entries, sizeof entries);
    options->outputs = outputs;
}

void training_options_of(training_options *options, training_settings *settings, training_outputs *outputs,
                         const char *cuda_program) {
    *options = (training_options){
        .training =
            {
                {"steps", OPTIONS_WHOLE64, &settings->steps, 0, 1e18, .given = &options->steps_given,
                 .help = "train so many steps at the most; 0: no limit"},
                {"seconds", OPTIONS_REAL, &settings->seconds, 0.001, 1e9, .given = &options->seconds_given,
                 .help = "train so long at the most, evaluation not counted", .standard = ""},
                {"optimizer", OPTIONS_CHOICE, &settings->optimizer, .choices = optimizers, .help = "of the rows"},
                {"lr", OPTIONS_FLOAT, &settings->lr, 0, 1000, .help = "the learning rate of the rows"},
                {"lr-decay", OPTIONS_CHOICE, &settings->decay, .choices = decays, .given = &options->decay_given,
                 .help = "linear falls to nothing at the end", .standard = "linear, where the end is known"},
                {"weight-decay", OPTIONS_FLOAT, &settings->weight_decay, 0, 1000,
                 .help = "of touched rows: L2; adamw: its own, 0: 0.01"},
                {"rows-as", OPTIONS_CHOICE, &settings->rows_as, .choices = types,
                 .help = "what the rows' weights are stored as: with 16 bits they take half the memory"},
                {"rounding", OPTIONS_CHOICE, &settings->rounding, .choices = roundings,
                 .given = &options->rounding_given,
                 .help = "of weights of 16 bits: by random bits of the seed; rounded to the nearest, small steps are "
                         "lost"},
                {"init", OPTIONS_FLOAT, &settings->init, 0, 1000, .help = "rows start uniform in [-X, X); 0: zeros"},
                {"seed", OPTIONS_WHOLE64, &settings->seed, 0, 0x1p64, .help = "of everything random"},
                {"place", OPTIONS_TEXT, &settings->place, .value = "FILE|auto|auto:N", .standard = "none",
                 .help = "deal samples to devices by locality, so that a row is mostly touched by one of them: auto "
                         "finds the parts at the start, auto:N those for devices on N machines, FILE has a byte a "
                         "sample, its part, as build/place writes it. "
                         "With --cache, the rows worth most to a device are in its cache at once. Other bits than "
                         "without"},
                {0},
            },
        .frugal =
            {
                {"devices", OPTIONS_WHOLE32, &settings->devices, 1, FRUGAL_MAX_DEVICES,
                 .given = &options->devices_given, .help = "as --device with N times cpu"},
                {"device", OPTIONS_READ, &options->places, .read = training_read_places, .value = "LIST",
                 .standard = "cpu, as often as --devices says",
                 .help = "where each device trains, which is a thread, or a GPU: cpu or cuda:N, as in cpu,cpu or "
                         "cuda:0,cuda:1; several may share a GPU. GPUs need the program of build/cuda, which `ninja "
                         "cuda` builds"},
                {"processes", OPTIONS_WHOLE32, &settings->processes, 1, FRUGAL_MAX_DEVICES,
                 .help =
                     "processes that these devices are divided among, evenly and in their order; with workers, without "
                     "--secondaries. The same bits"},
                {"deal", OPTIONS_TEXT, &settings->deal, .value = "HOW", .standard = "cyclic",
                 .help = "where rows lie if mpirun has started build/mpi's program on several machines, which share "
                         "these devices evenly, in their order: in turn (cyclic), in equal parts (blocks), or as a "
                         "file says, homes.npy of build/place --machines. The same bits"},
                {"workers", OPTIONS_WHOLE32, &settings->workers, 0, 1024,
                 .help = "threads that flush; 0: waiting threads do it"},
                {"lookahead", OPTIONS_WHOLE32, &settings->lookahead, 0, 15, .help = "steps announced ahead, 0 to 15"},
                {"cache", OPTIONS_REAL, &settings->cache, 0, 1, .value = "RATIO",
                 .help = "rows cached by each device, as a share of all rows, 0 to 1"},
                {"cache-policy", OPTIONS_CHOICE, &settings->cache_policy, .choices = policies,
                 .help = "which rows a full cache keeps: those with the most touches that found, or would have found, "
                         "a current copy; or those read last"},
                {"mode", OPTIONS_CHOICE, &settings->mode, .choices = modes,
                 .help = "flush ahead by priority, or everything before the next step"},
                {"alone", OPTIONS_CHOICE, &settings->alone, .choices = ways,
                 .help = "who updates rows that one device alone touches: workers (staged), or the device itself, in "
                         "place or, with --cache, in its cached copies (kept; GPUs do it in place); the default is in "
                         "place, and staged for tables in files"},
                {"trace", OPTIONS_TEXT, &settings->trace, .value = "FILE",
                 .help = "record what each thread does, and what gates wait for; FILE has the last of it whenever the "
                         "training pauses or ends, for ui.perfetto.dev"},
                {0},
            },
        .stale =
            {
                {"secondaries", OPTIONS_REAL, &settings->secondaries, 0, 100, .value = "PERCENT",
                 .help = "percent of all rows of which each device keeps copies that may be stale: those that most "
                         "training samples have; with --place, of the rows that another device touches more "
                         "often, those that this one touches most; 0: none, and training is exact"},
                {"stale", OPTIONS_WHOLE32, &settings->stale, 0, 4294967295,
                 .help = "contributions of other devices that such a copy may lack; 0: exact; 4294967295: no bound"},
                {0},
            },
        .results =
            {
                {"threads", OPTIONS_WHOLE32, &outputs->threads, 1, 64, .help = "that evaluate, and place"},
                {"json", OPTIONS_TEXT, &outputs->json,
                 .help = "one JSON object a line: reports, the last one with the result"},
                {"report-every", OPTIONS_REAL, &outputs->report_seconds, 0, 1e9, .help = "seconds between reports",
                 .standard = "1; to files: 5"},
                {"help", OPTIONS_FLAG, &outputs->help, .help = "this"},
                {0},
            },
        .places = {.settings = settings, .cuda_program = cuda_program},
    };
    training_checkpoint_options(options, outputs);
}

void training_set_pilot(training_settings *settings) {
    settings->cache = settings->secondaries = 0;
    settings->processes = 1;
    settings->mode = FRUGAL_P2F, settings->alone = FRUGAL_ALONE_DEFAULT;
    settings->place = settings->trace = NULL;
}
