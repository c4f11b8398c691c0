/* Devices on GPUs of programs that train on Frugal; in builds with CUDA (-DTRAINING_CUDA). */
#ifndef TRAINING_CUDA_H
#define TRAINING_CUDA_H

#include "frugal_cuda.h"
#include "trainers/common/program.h"

/* Device `device` computes on GPU `ordinal`. 0, or -1 with *error filled. */
int training_attach_cuda(frugal *f, uint32_t device, int ordinal, const frugal_cuda_desc *desc, program_error *error);

#endif
