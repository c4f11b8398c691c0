/* The command line of dlrm. */
#ifndef DLRM_OPTIONS_H
#define DLRM_OPTIONS_H

#include "trainers/clicks/options.h"
#include "trainers/dlrm/train.h"

#define DLRM_EVAL_UNSET UINT64_MAX

typedef struct dlrm_options {
    dlrm_settings train;      /* numbers and features are not set: the log says them */
    training_outputs outputs; /* eval_every may be DLRM_EVAL_UNSET: six evaluations in all */
    clicks_options data;
    int decay_wanted;      /* the samples have to be counted first */
    int epochs_given;      /* else a small log has more passes */
    int shuffle_given;     /* if not, train.shuffle is for samples with one id a feature */
    uint64_t eval_samples; /* evaluations on the way take this many of the first held-out samples; 0: all */
} dlrm_options;

/* Reads the command line. 0, or -1 with *error filled. */
int dlrm_options_parse(dlrm_options *options, int argc, char **argv, program_error *error);
void dlrm_options_help(void);

#endif
