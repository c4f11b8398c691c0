#ifndef DLRM_CUDA_H
#define DLRM_CUDA_H
#include "dlrm_model.h"
typedef struct dlrm_cuda dlrm_cuda;
static inline int dlrm_cuda_gradients(dlrm_cuda *cuda, const dlrm_input *input, uint32_t batch, program_error *error) {
    return (void)cuda, (void)input, (void)batch, program_fail(error, "built without CUDA");
}
static inline int dlrm_cuda_wait(dlrm_cuda *cuda, float **grads, double *loss, program_error *error) {
    return (void)cuda, (void)grads, (void)loss, program_fail(error, "built without CUDA");
}
static inline int dlrm_cuda_set_parameters(dlrm_cuda *cuda, const float *parameters, program_error *error) {
    return (void)cuda, (void)parameters, program_fail(error, "built without CUDA");
}
static inline void dlrm_cuda_close(dlrm_cuda *cuda) {
    (void)cuda;
}
#endif
