/* The models' mathematics on an NVIDIA GPU: the logits, losses and gradients of model.c, equal to rounding.
 *
 * Reading and hashing stay on the host. Numbers and labels of a step are copied when the step is announced, from pinned
 * memory and on a stream of their own; rows and linear rows are looked up on the GPU. The gradient of the parameters
 * and the loss are copied back into pinned memory while the stream goes on. The host sums them over devices and sets
 * the new parameters. So no call waits for the GPU, except where it says so. Sums run in a fixed order, without atomics
 * on floats: the same command gives the same bits on the same kind of GPU.
 *
 * The calls for one step of a device; the first call may come `slots` steps earlier:
 *
 *     dlrm_cuda_copy(step)  ...  rows looked up on the stream  dlrm_cuda_gradients(step)  rows updated on the stream
 *     dlrm_cuda_wait_gradients  ...  dlrm_cuda_set_parameters
 *
 * Needs -DTRAINING_CUDA and dlrm_cuda.cu (`ninja cuda`). Without them, no GPU is accepted and nothing here is called.
 */
#ifndef DLRM_CUDA_H
#define DLRM_CUDA_H

#include "trainers/dlrm/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one device computes with on its GPU. Only the device's own thread calls these functions; threads of several
 * devices may call at the same time. */
typedef struct dlrm_cuda dlrm_cuda;

#ifdef TRAINING_CUDA

/* Takes GPU `ordinal`, without any memory there. NULL: out of memory. */
dlrm_cuda *dlrm_cuda_new(int ordinal);
/* The cudaStream_t on which all runs. NULL where there is no such GPU: the next call that uses it says why. */
void *dlrm_cuda_stream(const dlrm_cuda *cuda);
/* Memory for up to `samples` a step, of which up to `slots` steps in turn are copied and not computed yet. */
int dlrm_cuda_open(dlrm_cuda *cuda, const dlrm_model *model, uint32_t samples, uint32_t slots, program_error *error);
/* Sets the first step, which is 0 if this is not called. After dlrm_cuda_open. */
void dlrm_cuda_begin(dlrm_cuda *cuda, uint64_t step);
/* Waits until the streams are empty. Accepts NULL, and what a failed dlrm_cuda_open left. */
void dlrm_cuda_close(dlrm_cuda *cuda);

/* In the GPU's memory, with the n of the step: rows[features][n][dim] and linear[features][n] are read, their gradients
 * are written. The linear pointers are NULL if the model has no linear part. */
float *dlrm_cuda_rows(const dlrm_cuda *cuda);
float *dlrm_cuda_linear(const dlrm_cuda *cuda);
float *dlrm_cuda_row_gradients(const dlrm_cuda *cuda);
float *dlrm_cuda_linear_gradients(const dlrm_cuda *cuda);

/* Copies n, numbers and labels of the input of `step`; step - slots must have been computed. */
int dlrm_cuda_copy(dlrm_cuda *cuda, uint64_t step, const dlrm_input *input, program_error *error);
/* The parameters of the steps that are enqueued from now on; read before it returns. */
int dlrm_cuda_set_parameters(dlrm_cuda *cuda, const float *parameters, program_error *error);
/* Enqueues dlrm_gradients for the input of `step`, with the rows as they are when the stream comes to it, and enqueues
 * copies of the parameters' gradient and of the loss to the host. Steps in the order of their copies, each after the
 * wait for the one before. */
int dlrm_cuda_gradients(dlrm_cuda *cuda, uint64_t step, uint32_t batch, program_error *error);
/* Waits for these copies. gradient[parameters], in pinned memory, stays until the next dlrm_cuda_gradients; *loss is
 * the sum of the samples' losses. */
int dlrm_cuda_wait_gradients(dlrm_cuda *cuda, const float **gradient, double *loss, program_error *error);

#else /* without CUDA no device is on a GPU, and these calls say so */

static inline int dlrm_cuda_copy(dlrm_cuda *cuda, uint64_t step, const dlrm_input *input, program_error *error) {
    return (void)cuda, (void)step, (void)input, program_fail(error, "built without CUDA");
}
static inline int dlrm_cuda_set_parameters(dlrm_cuda *cuda, const float *parameters, program_error *error) {
    return (void)cuda, (void)parameters, program_fail(error, "built without CUDA");
}
static inline int dlrm_cuda_gradients(dlrm_cuda *cuda, uint64_t step, uint32_t batch, program_error *error) {
    return (void)cuda, (void)step, (void)batch, program_fail(error, "built without CUDA");
}
static inline int dlrm_cuda_wait_gradients(dlrm_cuda *cuda, const float **gradient, double *loss,
                                           program_error *error) {
    return (void)cuda, (void)gradient, (void)loss, program_fail(error, "built without CUDA");
}
static inline void dlrm_cuda_close(dlrm_cuda *cuda) {
    (void)cuda;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
