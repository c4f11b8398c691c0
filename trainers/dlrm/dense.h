/* The optimizer of the dense layers. Its arithmetic is Frugal's own, so that a dense layer learns as a row does. */
#ifndef DLRM_DENSE_H
#define DLRM_DENSE_H

#include "frugal.h"

/* sum[n] = a[n] + b[n]; `sum` may be `a`. */
void dlrm_dense_add(float *sum, const float *a, const float *b, uint64_t n);

typedef struct dlrm_dense { /* what one device has of the optimizer */
    frugal_optimizer_kind kind;
    double power1, power2; /* Adam's betas to the power of the steps so far */
} dlrm_dense;

/* One step of the parameters w[n] with their gradients g[n]. s: their state; Adam's second moments are at
 * s + `parameters`. */
void dlrm_dense_step(dlrm_dense *dense, float *w, float *s, uint64_t parameters, const float *g, uint64_t n, float lr);

#endif
