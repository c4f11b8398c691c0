/* The models' mathematics: recommendation models over numbers and embedded ids, their loss and its gradient.
 *
 *   dlrm       bottom MLP of the numbers; the dot products of all pairs among its output and the features' rows; both
 *              into the top MLP (Naumov et al. 2019, as FRUGAL's evaluation has it). Without numbers there is no bottom
 *              MLP: the pairs are among the rows, and the top's input is the pairs alone.
 *   wide-deep  a linear part of numbers and ids, and an MLP over numbers and rows (Cheng et al. 2016)
 *   deepfm     the same linear part, a factorization machine over the rows, and the MLP (Guo et al. 2017)
 *   dcn        cross layers over numbers and rows (cross.h), and the MLP beside them (Deep & Cross, Wang et al. 2017)
 *
 * The logit is what the top MLP puts out (its last bias is the model's), plus, where the model has them, the linear
 * part numbers . linear + the ids' linear rows, the factorization machine's sum of row . row over all pairs of
 * features, and the cross layers' part. The linear part of an id is a row of one float: a second table of dim 1
 * ("linear rows").
 *
 * The top's input, a sample: for dlrm the bottom's output[dim], then the pairs (1, 0), (2, 0), (2, 1), (3, 0) ... of
 * the vectors, of which the bottom's output is the first, where there is one, and the features follow in order. For the
 * others numbers[numbers], then the features' rows[dim] in order.
 *
 * The loss is binary cross entropy of the logit, a mean over the step's samples, of all devices.
 */
#ifndef DLRM_MODEL_H
#define DLRM_MODEL_H

#include <stdint.h>
#include "trainers/common/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { DLRM_DLRM, DLRM_WIDE_DEEP, DLRM_DEEPFM, DLRM_DCN, DLRM_KINDS } dlrm_kind;

enum { DLRM_MOST_LAYERS = 16 };

typedef struct dlrm_model {
    dlrm_kind kind;
    uint32_t numbers, features, dim;
    /* of dlrm with numbers; otherwise ignored: hidden widths of the bottom MLP, to which a last layer of dim is added.
     */
    uint32_t n_bottom, bottom[DLRM_MOST_LAYERS];
    uint32_t n_top, top[DLRM_MOST_LAYERS]; /* hidden widths of the top MLP; a last layer of 1 is added */
    uint32_t n_cross;                      /* of dcn: cross layers, 1 to DLRM_MOST_LAYERS; otherwise ignored */
} dlrm_model;

/* A dense layer: out = relu(weight in + bias), without the relu where it is the last of the top. */
typedef struct dlrm_layer {
    uint32_t in, out;
    uint64_t weight, bias; /* where weight[out][in] and bias[out] lie in the parameters */
} dlrm_layer;

/* Parameters: the bottom's layers, the top's, each weight before bias, and the linear part, or the cross layers. */
typedef struct dlrm_layers {
    uint32_t n_bottom, n_top; /* with the last ones; n_bottom is 0 where there is no bottom MLP */
    dlrm_layer bottom[DLRM_MOST_LAYERS + 1], top[DLRM_MOST_LAYERS + 1];
    uint64_t linear;     /* wide-deep, deepfm: where linear[numbers] lies, the linear part's weights of the numbers */
    uint64_t cross;      /* dcn: where the cross layers' parameters lie, over the top's input */
    uint64_t parameters; /* floats in all */
} dlrm_layers;

const char *dlrm_model_name(dlrm_kind kind);
/* Does the model read linear rows? */
int dlrm_has_linear(const dlrm_model *model);
/* How many vectors dlrm pairs: the features' rows, and the bottom's output where there are numbers. */
uint32_t dlrm_vectors(const dlrm_model *model);
/* Where everything lies. Fails if the widths make no sense. All other calls need a model for which this succeeded. */
int dlrm_layout(const dlrm_model *model, dlrm_layers *layers, program_error *error);
/* The most outputs of a layer. */
uint32_t dlrm_widest(const dlrm_layers *layers);
/* First values, a function of the seed alone: weights normal with variance 2 / (in + out), biases normal with variance
 * 1 / out, as DLRM's; linear weights 0; cross layers as layers with out = 1, but biases 0. */
void dlrm_init(const dlrm_model *model, uint64_t seed, float *parameters);

/* The memory that a device computes with, for at most `samples` samples (up to 2^31 - 1). One thread at a time. It
 * keeps no pointer to the model and nothing from one call to the next, so results do not depend on it. On failure *out
 * is NULL. */
typedef struct dlrm_workspace dlrm_workspace;
int dlrm_workspace_open(dlrm_workspace **out, const dlrm_model *model, uint32_t samples, program_error *error);
void dlrm_workspace_close(dlrm_workspace *work);

typedef struct dlrm_input { /* a device's samples of a step */
    uint32_t n;             /* may be 0 */
    const float *numbers;   /* numbers[n][numbers] */
    const float *labels;    /* labels[n], from 0 to 1; gradients only */
    const float *rows;      /* rows[features][n][dim] */
    const float *linear;    /* linear[features][n]; NULL where the model has none */
} dlrm_input;

typedef struct dlrm_gradient {
    float *parameters; /* parameters[parameters]: all of it is written, even if n is 0 */
    float *rows;       /* rows[features][n][dim] */
    float *linear;     /* linear[features][n]; NULL where the model has none */
} dlrm_gradient;

/* Gradients of the samples' losses over `batch`, the samples of all devices in the step. Returns the sum of the losses
 * (not divided). A BLAS multiplies the layers' matrices, on the calling thread (openblas_set_num_threads(1)); sums run
 * in a fixed order: the same input gives the same bits on the same kind of processor. `out` and input do not overlap.
 */
double dlrm_gradients(const dlrm_model *model, const float *parameters, const dlrm_input *input, uint32_t batch,
                      const dlrm_gradient *out, dlrm_workspace *work);
/* logits[n]. */
void dlrm_logits(const dlrm_model *model, const float *parameters, const dlrm_input *input, float *logits,
                 dlrm_workspace *work);

#ifdef __cplusplus
}
#endif
#endif
