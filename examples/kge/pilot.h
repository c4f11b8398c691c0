/* Pilots: short trainings that choose the weight of N3, where it is not given, by how well each ranks a sample of the
 * validation triples.
 *
 * Graphs want weights that are ten times apart, and nothing simple foretells which; but a training of an eighth of the
 * steps, with rows of at most 128 floats, is best where the whole one is (docs/kge.md, "N3 and the graph"). Like every
 * training, a pilot has the same bits each time, and so has the choice. */
#ifndef KGE_PILOT_H
#define KGE_PILOT_H

#include "examples/kge/options.h"

enum { KGE_PILOT_PART = 8, KGE_PILOT_DIM = 128 };

/* Would kge_pilots_run run any? They need a weight to choose, validation triples, and a number of steps. */
int kge_pilots_wanted(const kge_options *options, const kge_graph *graph);
/* Sets the weights of options->train.model, which are those of kge_options_fit before. The first pilot has these, the
 * next ones half as much again and again, or else twice, as long as that is better. They run on host cores, as many
 * devices as the training has; the graph's index is for its filtered ranks. A line to stderr for each. */
int kge_pilots_run(kge_options *options, const kge_graph *graph, const kge_index *known, program_error *error);

#endif
