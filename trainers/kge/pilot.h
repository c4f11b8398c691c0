/* Pilots: short trainings that choose the weight of N3, where it is not given, and then the damping, where it is not
 * given either, by how well each ranks a sample of the validation triples.
 *
 * Graphs want weights that are ten times apart, and nothing simple foretells which: FB15k-237 has 18.7 training triples
 * an entity, CoDEx-S 16.2, WN18RR 2.1. Validation MRR of complex by pilots, as a grid, and by dim 400 with 8,000 steps:
 *   N3         0.0087          0.0175    0.035                  0.05            0.07            0.14
 *   FB15k-237  .303            .317      .321 (.354 at 0.03)    (.352, lr 0.5)  .290            .211
 *   CoDEx-S    .445 (.468)     .432      .404 (.423)                            .378            .268
 *   WN18RR     .401            .423      .444                   (.471)          .454 (.475)     .210
 * So a pilot finds the weight that is best in the long training, where both were tried. Like every training, a pilot
 * has the same bits each time, and so the choice is the same. */
#ifndef KGE_PILOT_H
#define KGE_PILOT_H

#include "trainers/kge/options.h"

enum { KGE_PILOT_PART = 8, KGE_PILOT_DIM = 128, KGE_PILOT_LEAST = 2 * KGE_PILOT_PART };
/* A pilot ranks this many times the sample of an evaluation on the way, because two choices may differ by little. */
enum { KGE_PILOT_SAMPLES = 5 };
/* How many validation triples they rank, about. */
uint64_t kge_pilot_sample(const kge_options *options);

/* Why kge_pilots_run cannot run; NULL: it can. Pilots need options->pilots, a weight of N3 to choose, validation
 * triples, and a training that ends after a number of steps, which is at least KGE_PILOT_LEAST. */
const char *kge_pilots_lack(const kge_options *options, const kge_graph *graph);
/* Sets the weights of options->train.model, which are those of kge_options_fit before. The first pilot has these.
 * The next one has half as large weights, and so on, while that is better; if the first half is no better, weights
 * are doubled, while that is better. If the damping is not given, and scores are no L2 distances, the last pilots
 * have the best of these weights, and damp: by 0.5, and if that is no better, by -0.2; unless no pilot has learned
 * anything. Two are kept for that, but at least three may search before. At most options->pilots run, all together.
 * `known` is for their filtered ranks. A line to stderr for each, with the weight that the training would have: with
 * shorter rows, that of distances is less. */
int kge_pilots_run(kge_options *options, const kge_graph *graph, const kge_index *known, program_error *error);

#endif
