/* The models' mathematics on an NVIDIA GPU: the batches, losses and gradients of model.c, equal to rounding.
 *
 * Sampling and reading stay on the host. The ids of a batch are copied when it is announced, from pinned memory and on
 * a stream of their own; the loss of a step is copied back in the same way. So no call waits for the GPU, except where
 * it says so. Sums run in a fixed order, without atomics on floats: the same command gives the same bits on the same
 * kind of GPU.
 *
 * Needs -DTRAINING_CUDA and kge_cuda.cu (`ninja cuda`). Without them, options.c accepts no GPU and nothing here is
 * called.
 */
#ifndef KGE_CUDA_H
#define KGE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainers/kge/model.h"

/* What one device computes with on its GPU. Only the device's own thread calls these functions; threads of several
 * devices may call at the same time. */
typedef struct kge_cuda kge_cuda;

#ifdef TRAINING_CUDA

/* Takes GPU `ordinal`, without any memory there. NULL: out of memory. */
kge_cuda *kge_cuda_new(int ordinal);
/* The cudaStream_t on which all runs. NULL where there is no such GPU: the next call that uses it says why. */
void *kge_cuda_stream(const kge_cuda *cuda);
/* Memory for batches of this shape, or with fewer triples, of which up to `slots` steps in turn are copied and not
 * computed yet. */
int kge_cuda_open(kge_cuda *cuda, const kge_model *model, const kge_batch *shape, uint32_t slots, program_error *error);
/* Sets the first step, which is 0 if this is not called. After kge_cuda_open. */
void kge_cuda_begin(kge_cuda *cuda, uint64_t step);
/* Waits until the stream is empty. Accepts NULL, and what a failed kge_cuda_open left. */
void kge_cuda_close(kge_cuda *cuda);

/* In the GPU's memory: rows[positions][dim] is read, grads[positions][dim] is written, by position of the batch. */
float *kge_cuda_rows(const kge_cuda *cuda);
float *kge_cuda_grads(const kge_cuda *cuda);

/* Copies the ids of the batch of `step`; step - slots must have been computed. */
int kge_cuda_copy(kge_cuda *cuda, uint64_t step, const kge_batch *batch, program_error *error);
/* Enqueues kge_gradients of the batch of `step`, with the rows as they are when the stream comes to it. Steps in the
 * order of their copies. */
int kge_cuda_gradients(kge_cuda *cuda, uint64_t step, program_error *error);
/* Waits until the stream begins the last step that was enqueued: its rows are there then. */
int kge_cuda_wait(kge_cuda *cuda, program_error *error);
/* Adds to *loss the losses of computed steps that were not reported before, and to *steps the number of these steps.
 * With `wait` it waits for all enqueued steps. */
int kge_cuda_losses(kge_cuda *cuda, int wait, double *loss, uint64_t *steps, program_error *error);

#else /* without CUDA no device is on a GPU, and these calls say so */

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
