/* cuda_on_host_grid.h - between the streams (cuda_on_host.cc) and what runs a kernel (cuda_on_host_grid.cc). */
#ifndef CUDA_ON_HOST_GRID_H
#define CUDA_ON_HOST_GRID_H

#include "cuda_on_host.h"

namespace cuda_on_host {

struct schedule {
    uint64_t seed;
    unsigned resident;             /* blocks at a time */
    unsigned every;                /* atomics between switches, on average; 0: never */
    const std::atomic<bool> *lost; /* the device: the kernel is abandoned */
};
/* Runs a kernel to its end, on the calling thread. */
void run_grid(const kernel &k, const schedule &s);

extern std::atomic<void (*)(const char *)> on_failure;

} // namespace cuda_on_host
#endif
