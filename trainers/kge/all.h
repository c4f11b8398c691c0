/* Questions scored against all entities: 1vsAll (Lacroix et al. 2018) and KvsAll (Dettmers et al. 2018).
 *
 * The batch has each entity's row once, and the ends of its triples are found among them. A chunk of questions is three
 * products with all entities: scores = Q E', dQ = G E, dE += G' Q.
 */
#ifndef KGE_ALL_H
#define KGE_ALL_H

#include "trainers/kge/model.h"

/* |q - e| pulls and pushes along q - e: so the part of gradient[n][dim] that the products left out is a multiple of
 * the row itself. */
void kge_all_pull(uint32_t n, uint32_t dim, const float *row, const float *sum, float *gradient);
/* kge_gradients of a batch with `entities`. */
double kge_all_gradients(const kge_model *model, const kge_batch *batch, const float *rows, float *grads,
                         kge_workspace *work);

#endif
