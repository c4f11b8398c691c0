/* cuda_on_host_mistakes.h - the mistakes that CUDA on the host must find (test_cuda_on_host.cc). */
#ifndef CUDA_ON_HOST_MISTAKES_H
#define CUDA_ON_HOST_MISTAKES_H

#include "mistakes.h"

#include <stdlib.h>

namespace {

enum : unsigned { ALL = 0xffffffffu };

__global__ void add_kernel(int *p, int value) {
    if (threadIdx.x == 0) atomicAdd(p, value);
}
__global__ void two_barriers_kernel() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
__global__ void left_barrier_kernel() {
    if (threadIdx.x == 40) return;
    __syncthreads();
}
__global__ void barrier_and_shuffle_kernel() {
    if (threadIdx.x == 3)
        __syncthreads();
    else
        __syncwarp();
}
__global__ void two_operations_kernel() {
    if (threadIdx.x == 3)
        __ballot_sync(ALL, 1);
    else
        __any_sync(ALL, 1);
}
__global__ void two_shuffles_kernel(float *out) {
    if (threadIdx.x == 3) /* places are told apart by their lines */
        out[threadIdx.x] = __shfl_sync(ALL, 1.0f, 0);
    else
        out[threadIdx.x] = __shfl_sync(ALL, 1.0f, 0);
}
__global__ void left_operation_kernel() {
    if (threadIdx.x == 3) return;
    __syncwarp();
}
__global__ void partial_mask_kernel() {
    if (threadIdx.x < 16) __syncwarp(0xffff);
}
__global__ void unwritten_kernel(int *out) {
    FRUGAL_SHARED(int, a, 64);
    if (threadIdx.x != 5) a[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x];
}
__global__ void unsynchronized_kernel(int *out) {
    FRUGAL_SHARED(int, a, 64);
    a[threadIdx.x] = 0;
    __syncthreads();
    a[threadIdx.x] = 1;
    __syncwarp();
    out[threadIdx.x] = a[threadIdx.x ^ 32];
}
__global__ void shuffle_is_no_barrier_kernel(int *out) {
    FRUGAL_SHARED(int, a, 32);
    a[threadIdx.x] = 1;
    out[threadIdx.x] = __shfl_sync(ALL, 1, 0) + a[threadIdx.x ^ 1];
}
__global__ void written_too_early_kernel(int *out) {
    FRUGAL_SHARED(int, a, 64);
    a[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x ^ 32];
    a[threadIdx.x] = 2;
}
__global__ void outside_kernel() {
    FRUGAL_SHARED(int, a, 63);
    a[threadIdx.x] = 1;
}
__global__ void race_kernel(int *p) {
    p[threadIdx.x] = 1;
    p[threadIdx.x + 64] = p[threadIdx.x ^ 32];
}
__global__ void no_race_kernel(int *p) {
    p[threadIdx.x] = 1;
    __syncthreads();
    p[threadIdx.x + 64] = p[threadIdx.x ^ 32];
}
__global__ void block_race_kernel(int *p) {
    if (threadIdx.x == 0) *p = static_cast<int>(blockIdx.x);
}
__global__ void beyond_kernel(int *p) {
    p[threadIdx.x + 65] = 1;
}
__attribute__((noinline)) int *left_frame(int *p) { /* so that no compiler sees where the pointer comes from */
    int mine[4] = {*p};
    int *volatile to_mine = mine;
    return to_mine;
}
__global__ void left_frame_kernel(int *p) {
    int *left = left_frame(p);
    __syncthreads(); /* others run, and call the same function */
    p[threadIdx.x] = *left;
}

void reuse_too_early() {
    cudaStream_t s;
    int *p, value = 1;
    cudaMalloc(&p, 4);
    cudaStreamCreate(&s);
    cudaMemcpyAsync(p, &value, 4, cudaMemcpyHostToDevice, s);
    value = 2;
    cudaStreamSynchronize(s);
    cudaMemcpyAsync(p, &value, 4, cudaMemcpyHostToDevice, s); /* rightful */
    cudaStreamSynchronize(s);
    value = 3;
}

int *ints() {
    int *p;
    cudaMalloc(&p, 128 * sizeof *p);
    cudaMemset(p, 0, 128 * sizeof *p);
    return p;
}

int *ints_of_other() { /* of GPU 1; the calling thread is on GPU 0 */
    cudaSetDevice(1);
    int *p = ints();
    cudaDeviceSynchronize(); /* with its zeros: no stream of GPU 0 waits for them */
    cudaSetDevice(0);
    return p;
}

int *registered_ints() { /* by the host's address */
    void *p = aligned_alloc(4096, 4096);
    cudaHostRegister(p, 4096, cudaHostRegisterMapped);
    return static_cast<int *>(p);
}

const mistake mistakes[] = {
    {"two barriers", "__syncthreads, while", CHECKS, [] { FRUGAL_LAUNCH(two_barriers_kernel, 1, 64, nullptr); }},
    {"a barrier that a thread has left", "finished", CHECKS,
     [] { FRUGAL_LAUNCH(left_barrier_kernel, 1, 64, nullptr); }},
    {"a barrier and a warp operation", "lane", CHECKS,
     [] { FRUGAL_LAUNCH(barrier_and_shuffle_kernel, 1, 32, nullptr); }},
    {"two warp operations", "a vote, while", CHECKS, [] { FRUGAL_LAUNCH(two_operations_kernel, 1, 32, nullptr); }},
    {"two shuffles", "cuda_on_host_mistakes.h", CHECKS,
     [] { FRUGAL_LAUNCH(two_shuffles_kernel, 1, 32, nullptr, nullptr); }},
    {"a warp operation that a lane has left", "finished", CHECKS,
     [] { FRUGAL_LAUNCH(left_operation_kernel, 1, 32, nullptr); }},
    {"a partial mask", "0xffff", CHECKS, [] { FRUGAL_LAUNCH(partial_mask_kernel, 1, 32, nullptr); }},
    {"shared memory not written", "reads shared a[5], which nobody has written", CHECKS,
     [] { FRUGAL_LAUNCH(unwritten_kernel, 1, 64, nullptr, ints()); }},
    {"shared memory of another warp", "and no barrier between", CHECKS,
     [] { FRUGAL_LAUNCH(unsynchronized_kernel, 1, 64, nullptr, ints()); }},
    {"shared memory and a shuffle", "and no barrier between", CHECKS,
     [] { FRUGAL_LAUNCH(shuffle_is_no_barrier_kernel, 1, 32, nullptr, ints()); }},
    {"shared memory written too early", "and no barrier between", CHECKS,
     [] { FRUGAL_LAUNCH(written_too_early_kernel, 1, 64, nullptr, ints()); }},
    {"shared memory outside", "shared a[63] is outside of its 63 elements", CHECKS,
     [] { FRUGAL_LAUNCH(outside_kernel, 1, 64, nullptr); }},
    {"half a warp", "only whole warps", CHECKS, [] { FRUGAL_LAUNCH(outside_kernel, 1, 16, nullptr); }},
    {"two dimensions", "only x", CHECKS, [] { FRUGAL_LAUNCH(outside_kernel, dim3(1, 2), 32, nullptr); }},
    {"the host's threadIdx", "on the host", CHECKS, [] { outside_kernel(); }},
    {"a race of threads", "data race", TSAN, [] { FRUGAL_LAUNCH(race_kernel, 1, 64, nullptr, ints()); }},
    {"a race of blocks", "data race", TSAN, [] { FRUGAL_LAUNCH(block_race_kernel, 8, 32, nullptr, ints()); }},
    {"a source reused too early", "data race", TSAN, reuse_too_early},
    {"memory outside", "heap-buffer-overflow", ASAN, [] { FRUGAL_LAUNCH(beyond_kernel, 1, 64, nullptr, ints()); }},
    {"a frame that was left", "stack-use-after-return", ASAN,
     [] { FRUGAL_LAUNCH(left_frame_kernel, 1, 64, nullptr, ints()); }},
    {"memory of another GPU", "on GPU 0 touches memory of GPU 1", ACCESSES,
     [] { FRUGAL_LAUNCH(no_race_kernel, 1, 64, nullptr, ints_of_other()); }},
    {"memory of another GPU, by an atomic", "on GPU 0 touches memory of GPU 1", ACCESSES,
     [] { FRUGAL_LAUNCH(add_kernel, 1, 32, nullptr, ints_of_other(), 1); }},
    {"memory of another GPU that may read ours", "on GPU 0 touches memory of GPU 1", ACCESSES,
     [] {
         cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_REAL);
         cudaSetDevice(1);
         cudaDeviceEnablePeerAccess(0, 0);
         FRUGAL_LAUNCH(no_race_kernel, 1, 64, nullptr, ints_of_other());
     }},
    {"none: memory of a peer", "", NOBODY,
     [] {
         cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_REAL);
         cudaDeviceEnablePeerAccess(1, 0);
         FRUGAL_LAUNCH(no_race_kernel, 1, 64, nullptr, ints_of_other());
     }},
    {"a copy from another GPU", "a copy on GPU 0 touches memory of GPU 1", CHECKS,
     [] { cudaMemcpy(ints(), ints_of_other(), 4, cudaMemcpyDeviceToDevice); }},
    {"a copy to another GPU", "a copy on GPU 0 touches memory of GPU 1", CHECKS,
     [] { cudaMemset(ints_of_other(), 0, 4); }},
    {"the host's address of registered memory", "cudaHostGetDevicePointer", ACCESSES,
     [] { FRUGAL_LAUNCH(no_race_kernel, 1, 64, nullptr, registered_ints()); }},
    {"none: a barrier between", "", NOBODY, /* blocks do not share what they write */
     [] { FRUGAL_LAUNCH(no_race_kernel, 1, 64, nullptr, ints()); }},
};

} // namespace
#endif
