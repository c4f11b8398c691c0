/* N3 regularization (Lacroix, Usunier and Obozinski 2018). */
#ifndef KGE_N3_H
#define KGE_N3_H

#include "trainers/kge/model.h"

/* weight times the sum of |x|^3 over all numbers x of rows[n][dim], complex numbers by their modulus. Its gradient is
 * added to gradient[n][dim]. */
double kge_regularize(const kge_model *model, uint32_t n, const float *rows, float weight, float *gradient);

#endif
