/* Cross layers: products by a BLAS, and loops over samples. */
#include "trainers/dlrm/cross.h"
#include "trainers/common/vector.h"

#include <cblas.h>

/* A matrix with one row per sample. */
typedef struct dlrm_xs {
    const float *at;
    size_t stride;
} dlrm_xs;

static dlrm_xs dlrm_xs_of(const dlrm_cross *c, uint32_t layer) {
    if (!layer) return (dlrm_xs){c->x0, c->stride};
    return (dlrm_xs){c->x + (size_t)(layer - 1) * c->n * c->width, c->width};
}

/* to[n] = x w, or that added to it. */
static void dlrm_times(const dlrm_cross *c, dlrm_xs x, const float *w, float beta, float *to) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)c->n, 1, (blasint)c->width, 1.0f, x.at,
                (blasint)x.stride, w, 1, beta, to, 1);
}
/* to[width] = the transpose of x times weights[n]. */
static void dlrm_turned_times(const dlrm_cross *c, dlrm_xs x, const float *weights, float *to) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)c->width, 1, (blasint)c->n, 1.0f, x.at,
                (blasint)x.stride, weights, 1, 0.0f, to, 1);
}

VECTOR_CLONES static void dlrm_cross_layer(const dlrm_cross *c, dlrm_xs x, const float *restrict product,
                                           const float *restrict bias, float *restrict to) {
    for (size_t i = 0; i < c->n; i++, to += c->width) {
        const float *restrict x0 = c->x0 + i * c->stride, *restrict from = x.at + i * x.stride;
        for (uint32_t j = 0; j < c->width; j++) to[j] = (x0[j] * product[i] + bias[j]) + from[j];
    }
}

void dlrm_cross_forward(const dlrm_cross *cross, const float *parameters, float *logit) {
    uint32_t layers = cross->layers, width = cross->width;
    const float *bias = parameters + (size_t)layers * width;
    for (uint32_t l = 0; l < layers; l++) {
        float *product = cross->products + (size_t)l * cross->n;
        dlrm_times(cross, dlrm_xs_of(cross, l), parameters + (size_t)l * width, 0, product);
        dlrm_cross_layer(cross, dlrm_xs_of(cross, l), product, bias + (size_t)l * width,
                         cross->x + (size_t)l * cross->n * width);
    }
    dlrm_times(cross, dlrm_xs_of(cross, layers), bias + (size_t)layers * width, 1, logit);
}

VECTOR_CLONES static void dlrm_cross_begin(const dlrm_cross *c, const float *restrict out,
                                           const float *restrict slope) {
    float *restrict to = c->gradient;
    for (size_t i = 0; i < c->n; i++, to += c->width)
        for (uint32_t j = 0; j < c->width; j++) to[j] = slope[i] * out[j];
}

/* The slopes of the layer's products, and the sums of the gradient, which are its bias'. */
VECTOR_CLONES static void dlrm_cross_slopes(const dlrm_cross *c, float *restrict bias) {
    const float *restrict from = c->gradient;
    for (uint32_t j = 0; j < c->width; j++) bias[j] = 0.0f;
    for (size_t i = 0; i < c->n; i++, from += c->width) {
        c->slopes[i] = vector_dot(c->width, from, c->x0 + i * c->stride);
        for (uint32_t j = 0; j < c->width; j++) bias[j] += from[j];
    }
}

/* To the gradient of the layer's input, which is added to that of x0 where the layer is the first. */
VECTOR_CLONES static void dlrm_cross_layer_back(const dlrm_cross *c, const float *restrict product,
                                                const float *restrict weight, int first, float *restrict in_gradient) {
    float *restrict to = c->gradient;
    for (size_t i = 0; i < c->n; i++, to += c->width, in_gradient += c->stride) {
        float slope = c->slopes[i];
        for (uint32_t j = 0; j < c->width; j++) {
            in_gradient[j] += product[i] * to[j];
            to[j] += slope * weight[j];
        }
        for (uint32_t j = 0; j < c->width && first; j++) in_gradient[j] += to[j];
    }
}

void dlrm_cross_back(const dlrm_cross *cross, const float *parameters, const float *slope, float *out,
                     float *in_gradient) {
    size_t width = cross->width, all = cross->layers * width;
    dlrm_turned_times(cross, dlrm_xs_of(cross, cross->layers), slope, out + 2 * all);
    dlrm_cross_begin(cross, parameters + 2 * all, slope);
    for (uint32_t l = cross->layers; l-- > 0;) {
        dlrm_cross_slopes(cross, out + all + l * width);
        dlrm_turned_times(cross, dlrm_xs_of(cross, l), cross->slopes, out + l * width);
        dlrm_cross_layer_back(cross, cross->products + (size_t)l * cross->n, parameters + l * width, l == 0,
                              in_gradient);
    }
}
