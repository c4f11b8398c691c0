/* Devices on GPUs. */
#include "trainers/common/training_cuda.h"
#include "trainers/common/training.h"

int training_attach_cuda(frugal *f, uint32_t device, int ordinal, const frugal_cuda_desc *desc, program_error *error) {
    char what[40];
    snprintf(what, sizeof what, "no device on cuda:%d", ordinal);
    return frugal_cuda_attach(f, device, ordinal, desc) ? training_fail(what, error) : 0;
}
