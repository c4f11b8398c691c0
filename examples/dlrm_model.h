/* The models' mathematics: recommendation models over numbers and embedded ids, their loss and its gradient.
 *
 *   dlrm       bottom MLP of the numbers; the dot products of all pairs among its output and the features' rows; both
 *              into the top MLP (Naumov et al. 2019, as FRUGAL's evaluation has it)
 *   wide-deep  a linear part of numbers and ids, and an MLP over numbers and rows (Cheng et al. 2016)
 *   deepfm     the same linear part, a factorization machine over the rows, and the MLP (Guo et al. 2017)
 *
 * The linear part of an id is a row of one float: a second table of dim 1 ("linear rows"). The loss is binary cross
 * entropy of the logit, a mean over the step's samples, of all devices.
 */
#ifndef DLRM_MODEL_H
#define DLRM_MODEL_H

#include <stdint.h>
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { DLRM_DLRM, DLRM_WIDE_DEEP, DLRM_DEEPFM, DLRM_KINDS } dlrm_kind;

enum { DLRM_MOST_LAYERS = 16 };

typedef struct dlrm_model {
    dlrm_kind kind;
    uint32_t numbers, features, dim;
    uint32_t n_bottom, bottom[DLRM_MOST_LAYERS]; /* dlrm: hidden widths of the bottom MLP; a last layer of dim is added */
    uint32_t n_top, top[DLRM_MOST_LAYERS];       /* hidden widths of the top MLP; a last layer of 1 is added */
} dlrm_model;

/* A dense layer: out = relu(weight in + bias), without the relu where it is the last of the top. */
typedef struct dlrm_layer {
    uint32_t in, out;
    uint64_t weight, bias; /* where weight[out][in] and bias[out] lie in the parameters */
} dlrm_layer;

typedef struct dlrm_layers {
    uint32_t n_bottom, n_top;
    dlrm_layer bottom[DLRM_MOST_LAYERS + 1], top[DLRM_MOST_LAYERS + 1];
    uint64_t linear;     /* wide-deep, deepfm: where linear[numbers] lies, the linear part's weights of the numbers */
    uint64_t parameters; /* floats in all */
} dlrm_layers;

const char *dlrm_model_name(dlrm_kind kind);
/* Does the model read linear rows? */
int dlrm_has_linear(const dlrm_model *model);
/* Where everything lies. Fails where the widths make no sense. */
int dlrm_layout(const dlrm_model *model, dlrm_layers *layers, program_error *error);
/* First values, a function of the seed alone: weights normal with variance 2 / (in + out), biases normal with variance
 * 1 / out, as DLRM's; linear weights 0. */
void dlrm_init(const dlrm_model *model, uint64_t seed, float *parameters);

/* What a device computes with, for so many samples at most. One thread at a time. */
typedef struct dlrm_workspace dlrm_workspace;
int dlrm_workspace_open(dlrm_workspace **out, const dlrm_model *model, uint32_t samples, program_error *error);
void dlrm_workspace_close(dlrm_workspace *work);

typedef struct dlrm_input {  /* a device's samples of a step */
    uint32_t n;              /* may be 0 */
    const float *numbers;    /* numbers[n][numbers] */
    const float *labels;     /* labels[n]; gradients only */
    const float *rows;       /* rows[features][n][dim] */
    const float *linear;     /* linear[features][n]; NULL where the model has none */
} dlrm_input;

typedef struct dlrm_gradient {
    float *parameters; /* parameters[parameters]: written whole, also where n is 0 */
    float *rows;       /* rows[features][n][dim] */
    float *linear;     /* linear[features][n] */
} dlrm_gradient;

/* Gradients of the samples' losses over `batch`, the samples of all devices in the step. Returns the sum of the losses
 * (not divided). Every product is a BLAS's, on the calling thread; sums run in a fixed order. */
double dlrm_gradients(const dlrm_model *model, const float *parameters, const dlrm_input *input, uint32_t batch,
                      const dlrm_gradient *out, dlrm_workspace *work);
/* logits[n]. */
void dlrm_logits(const dlrm_model *model, const float *parameters, const dlrm_input *input, float *logits,
                 dlrm_workspace *work);

#ifdef __cplusplus
}
#endif
#endif
