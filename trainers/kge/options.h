/* The command line of kge. */
#ifndef KGE_OPTIONS_H
#define KGE_OPTIONS_H

#include "trainers/kge/load.h"
#include "trainers/kge/train.h"

typedef struct kge_options {
    kge_settings train;
    training_outputs outputs;        /* evaluations on the way are of `valid` */
    const char *data;                /* folder; NULL: generate */
    kge_saved saved;                 /* of --load: what kge_saved_look has found; folder is NULL: from the beginning */
    int reciprocal;                  /* as it is given, or -1 */
    double epochs;                   /* that the training ends after at the latest; below 0: not given */
    int spreads;                     /* evaluations on the way are spread over the steps */
    int chooses_steps;               /* no end is given: kge_options_steps chooses */
    const char *predict;             /* a file of questions; NULL */
    uint32_t top;                    /* answers of each */
    kge_layout layout;               /* how its files are read */
    const char *format, *data_files; /* as they are given; NULL */
    int generate;
    kge_generator generator;
    int evaluate;             /* KGE_VALID, KGE_TEST, or -1: nothing at the end */
    int fits_n3;              /* its weight is not given: for kge_options_fit, or as in a checkpoint */
    int fits_damping;         /* it is not given: for pilots, or as in a checkpoint */
    uint32_t pilots;          /* the most that choose these (pilot.h); 0: none */
    int asks_pilots;          /* their number is given */
    uint64_t eval_triples;    /* the evaluation at the end: likewise; 0: all */
    uint32_t eval_candidates; /* that answers are ranked among; 0: all entities */
    uint32_t eval_sample;     /* evaluations on the way rank every nth triple: about so many; pilots rank more */
} kge_options;

/* Reads the command line; what is not given gets the model's defaults. 0, or -1 with *error filled. */
int kge_options_parse(kge_options *options, int argc, char **argv, program_error *error);
void kge_options_help(void);
/* What the training's end is in steps, once the graph is there: of --epochs, or by default; tells it. With it, how
 * often a generated graph is evaluated. 0, or -1 with *error filled. */
int kge_options_steps(kge_options *options, const kge_graph *graph, program_error *error);
/* Sets the weight of N3, if it was not given, to `factor` times that for the graph's training triples an entity.
 * Returns the number of these. pilot.h says what was measured. */
double kge_options_fit(kge_options *options, const kge_graph *graph, double factor);

#endif
