/* Cross layers (Wang et al. 2017, Deep & Cross): from the input x_0 of each sample
 *
 *     x_{l+1} = x_0 (x_l . w_l) + b_l + x_l          l from 0 to layers - 1
 *
 * and, as the part of the logit, x_layers . out. Parameters: w[layers][width], b[layers][width], out[width].
 */
#ifndef DLRM_CROSS_H
#define DLRM_CROSS_H

#include <stddef.h>
#include <stdint.h>

typedef struct dlrm_cross {
    uint32_t layers, width, n; /* n: samples */
    const float *x0;           /* x0[n][stride] */
    size_t stride;
    float *x;        /* x[layers][n][width]: x_1 and on */
    float *products; /* products[layers][n]: x_l . w_l */
    /* For gradients: of x_l, gradient[n][width]; of a product, slopes[n]. */
    float *gradient, *slopes;
} dlrm_cross;

/* Adds the part to logit[n]. */
void dlrm_cross_forward(const dlrm_cross *cross, const float *parameters, float *logit);
/* After it: from slope[n], of the logits, to the gradient of the parameters, which is set, and to that of x0, which is
 * added to in_gradient[n][stride]. Changes `gradient` and `slopes`. */
void dlrm_cross_back(const dlrm_cross *cross, const float *parameters, const float *slope, float *out,
                     float *in_gradient);

#endif
