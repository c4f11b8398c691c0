/* The models' mathematics on an NVIDIA GPU: the batches, losses and gradients of model.c, equal to rounding.
 *
 * Sampling and reading stay on the host. The ids of a batch are copied when it is announced, from pinned memory and on
 * a stream of their own; the loss of a step comes back likewise. So no call waits for the GPU, except where it says so.
 * Sums run in a fixed order, without atomics on floats: the same command gives the same bits on the same kind of GPU.
 *
 * Needs -DTRAINING_CUDA and kge_cuda.cu (`ninja cuda`). Without, options.c accepts no GPU and nothing here is reached.
 */
#ifndef KGE_CUDA_H
#define KGE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "examples/kge/model.h"

/* What one device computes with on its GPU. Its calls are its thread's alone; other devices' may run at once. */
typedef struct kge_cuda kge_cuda;

#ifdef TRAINING_CUDA

/* Takes GPU `ordinal`, without any memory there. NULL: out of memory. */
kge_cuda *kge_cuda_new(int ordinal);
/* The cudaStream_t on which all runs. NULL where there is no such GPU: whoever uses it next will say why. */
void *kge_cuda_stream(const kge_cuda *cuda);
/* Memory for batches of one shape, of which up to `slots` steps in turn are copied and not computed yet. */
int kge_cuda_open(kge_cuda *cuda, const kge_model *model, const kge_batch *shape, uint32_t slots, program_error *error);
/* Steps begin with this one; if it is not called, with 0. After kge_cuda_open. */
void kge_cuda_begin(kge_cuda *cuda, uint64_t step);
/* Waits until the stream is empty. NULL is accepted, and what kge_cuda_open left where it failed. */
void kge_cuda_close(kge_cuda *cuda);

/* Of the GPU: rows[positions][dim] in, grads[positions][dim] out, by position of the batch. */
float *kge_cuda_rows(const kge_cuda *cuda);
float *kge_cuda_grads(const kge_cuda *cuda);

/* Copies the ids of the batch of `step`; step - slots must have been computed. */
int kge_cuda_copy(kge_cuda *cuda, uint64_t step, const kge_batch *batch, program_error *error);
/* Enqueues kge_gradients of the batch of `step`, on the rows as the stream finds them. Steps in turn, as copied. */
int kge_cuda_gradients(kge_cuda *cuda, uint64_t step, program_error *error);
/* Waits until the stream has come so far as to begin with the last step enqueued: its rows are there. */
int kge_cuda_wait(kge_cuda *cuda, program_error *error);
/* Adds to *loss the losses of steps that are computed and were not asked for before, to *steps how many; all enqueued
 * ones, waiting for them, with `wait`. */
int kge_cuda_losses(kge_cuda *cuda, int wait, double *loss, uint64_t *steps, program_error *error);

#else /* what is called where a device may have a GPU; here none has */

static inline int kge_cuda_copy(kge_cuda *cuda, uint64_t step, const kge_batch *batch, program_error *error) {
    return (void)cuda, (void)step, (void)batch, program_fail(error, "built without CUDA");
}
static inline int kge_cuda_gradients(kge_cuda *cuda, uint64_t step, program_error *error) {
    return (void)cuda, (void)step, program_fail(error, "built without CUDA");
}
static inline int kge_cuda_wait(kge_cuda *cuda, program_error *error) {
    return (void)cuda, program_fail(error, "built without CUDA");
}
static inline int kge_cuda_losses(kge_cuda *cuda, int wait, double *loss, uint64_t *steps, program_error *error) {
    return (void)cuda, (void)wait, (void)loss, (void)steps, program_fail(error, "built without CUDA");
}
static inline void kge_cuda_close(kge_cuda *cuda) {
    (void)cuda;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
