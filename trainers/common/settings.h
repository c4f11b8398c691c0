/* What every program that trains on Frugal can be told: its settings, their options, and the checks that need several.
 *
 *     static training_settings settings;
 *     static training_outputs outputs;
 *     static training_options options;
 *
 *     settings = (training_settings){.devices = 2, .workers = 1, .lookahead = 10, ...};      the program's defaults
 *     training_options_of(&options, &settings, &outputs, "build/cuda/kge");
 *     options_add(&table, "training", options.training), options_add(&table, "Frugal", options.frugal) ...
 *     if (options_read(&table, ...) || training_options_check(&options, &error)) ...
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "frugal.h"
#include "trainers/common/options.h"

typedef struct training_settings {
    uint32_t devices, workers, lookahead;
    uint32_t processes;              /* that the devices are divided among; 0 counts as 1 */
    uint8_t gpu[FRUGAL_MAX_DEVICES]; /* where each device computes: 0 on host cores, else its GPU's number, plus 1 */
    double cache;                    /* rows cached by each device, as a share of all rows */
    frugal_cache_policy cache_policy;
    frugal_mode mode;
    frugal_alone alone;
    uint32_t batch; /* samples per device and step; the program defines its option, with its limits */
    frugal_type rows_as;
    frugal_rounding rounding;
    frugal_optimizer_kind optimizer;
    float lr, weight_decay, init; /* rows start uniform in [-init, init); 0: zeros */
    int decay;                    /* the learning rate falls linearly to nothing */
    uint64_t steps;               /* the last step at the latest; 0: no limit */
    double seconds;               /* of training, likewise */
    uint64_t seed;
    const char *deal;   /* how rows are dealt over machines (ranks_deal); NULL: as `place` says, or cyclic */
    const char *place;  /* how samples are dealt: "auto", "auto:N", a file (placing.h), NULL: at random, or in turn */
    double secondaries; /* percent of all rows of which each device may read secondaries (secondaries.h); 0: none */
    uint32_t stale;     /* their bound (frugal_secondaries) */
    const char *trace;  /* a file for what threads did (frugal_trace_start); NULL: it is not recorded */
} training_settings;

/* The machines that `place` deals for: N of "auto:N", 1 of "auto", else 0. */
uint32_t training_dealt_for(const char *place);

/* How often something is done on the way: every so many steps, or if that is 0, every so many seconds. */
typedef struct training_interval {
    uint64_t steps;
    double seconds;
} training_interval;

/* What is reported, written and saved on the way and at the end. */
typedef struct training_outputs {
    uint64_t eval_every;    /* steps between evaluations on the way; 0: none. Its option is the program's */
    uint32_t patience;      /* evaluations in a row without a better value that end it; 0: none. Likewise */
    uint32_t threads;       /* that evaluate, and place */
    double report_seconds;  /* between reports; below 0: not given */
    const char *json;       /* a file; NULL: none */
    const char *save;       /* a folder; NULL: nothing is saved. Its option is the program's */
    const char *checkpoint; /* a folder to make checkpoints in; NULL: that of `resume`, or none are made */
    training_interval checkpoint_every;
    uint32_t keep;      /* how many checkpoints stay; 0: all */
    const char *resume; /* a folder: go on from the newest checkpoint in it; NULL: from the beginning */
    int help;
} training_outputs;
/* Defaults of settings and outputs. */
#define TRAINING_SETTINGS .processes = 1, .workers = 1, .lookahead = 10, .init = 0.05f, .decay = 1
#define TRAINING_OUTPUTS  .threads = 2, .report_seconds = -1, .checkpoint_every = {.seconds = 600}, .keep = 3

/* Their options, in five sections. */
typedef struct training_options {
    options_entry training[12], frugal[12], stale[3], checkpoints[5], results[5];
    struct training_places {
        training_settings *settings;
        const char *cuda_program;
        uint32_t n;
    } places; /* of --device */
    const training_outputs *outputs;
    int devices_given, steps_given, seconds_given, decay_given, every_given, keep_given, rounding_given;
} training_options;

/* Options that are read into *settings and *outputs. `cuda_program` is the one to use for GPUs where this one is built
 * without CUDA. */
void training_options_of(training_options *options, training_settings *settings, training_outputs *outputs,
                         const char *cuda_program);

/* The words of --alone, --rows-as and --optimizer: for results. */
const char *training_alone_word(frugal_alone alone);
const char *training_type_word(frugal_type rows_as);
const char *training_optimizer_word(frugal_optimizer_kind optimizer);

/* Call it when all options are read: checks what only several of them together show. 0, or -1 with *error filled. */
int training_options_check(const training_options *options, program_error *error);
/* For a pilot, a short training that chooses an option: one process, without caches, secondaries, parts and trace. */
void training_set_pilot(training_settings *settings);
/* Does a device compute on a GPU? */
int training_has_gpu(const training_settings *settings);

#endif
