/* test_cuda_on_host.cc - the emulator of CUDA that the kernels are tested with: that it computes what a GPU computes,
 * and that it finds the mistakes it says it finds. A case that must end the process runs in another (`--case name`). */
#ifndef FRUGAL_CUDA_ON_HOST
#define FRUGAL_CUDA_ON_HOST "tests/cuda/cuda_on_host.h"
#endif
#include FRUGAL_CUDA_ON_HOST

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}
#include "cuda_on_host_mistakes.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace {

#define GOOD(call) assert_int_equal(cudaSuccess, call)

template <typename T> T *device_copy(const std::vector<T> &from) {
    T *p;
    GOOD(cudaMalloc(&p, from.size() * sizeof(T)));
    GOOD(cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
template <typename T> std::vector<T> host_copy(const T *p, size_t n) {
    std::vector<T> to(n);
    GOOD(cudaMemcpy(to.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
}

#ifdef UNDER_ASAN
extern "C" const char *__asan_default_options(void) { /* for the mistakes; ASAN_OPTIONS is stronger */
    return "detect_stack_use_after_return=1";
}
#endif

int setup(void **) {
    cuda_on_host_reset();
    return 0;
}

/* >>kernels compute */
template <int THREADS, int PARTS> __global__ void sum_kernel(const float *in, float *out, size_t n) {
    FRUGAL_SHARED(float, part, PARTS);
    float s = 0;
    for (size_t i = blockIdx.x * static_cast<size_t>(THREADS) + threadIdx.x; i < n;
         i += static_cast<size_t>(gridDim.x) * THREADS)
        s += in[i];
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(ALL, s, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x) return;
    float total = 0;
    for (int i = 0; i < PARTS; i++) total += part[i];
    atomicAdd(out, total);
}

void test_a_sum_over_blocks(void **) {
    std::vector<float> in(10007);
    float expected = 0;
    for (size_t i = 0; i < in.size(); i++) expected += in[i] = static_cast<float>(i % 7);
    float *from = device_copy(in), *to = device_copy(std::vector<float>(1));
    for (unsigned grid = 1; grid < 10; grid += 2) {
        cuda_on_host_set_seed(grid);
        GOOD(cudaMemset(to, 0, sizeof *to));
        FRUGAL_LAUNCH((sum_kernel<128, 4>), grid, 128, nullptr, from, to, in.size());
        GOOD(cudaGetLastError());
        assert_true(host_copy(to, 1)[0] == expected);
    }
}

__global__ void warp_kernel(unsigned *out) {
    unsigned i = threadIdx.x % 32;
    bool good = __ballot_sync(ALL, i % 3 == 0) == 0x49249249u;
    good &=
        __any_sync(ALL, i == 31) && !__any_sync(ALL, i == 32) && __all_sync(ALL, i < 32) && !__all_sync(ALL, i < 31);
    good &= __shfl_sync(ALL, i, 5) == 5 && __shfl_xor_sync(ALL, i, 7) == (i ^ 7);
    good &= __shfl_down_sync(ALL, i, 4) == (i < 28 ? i + 4 : i);
    good &= __shfl_sync(ALL, 0x123456789abcdefull + i, 31) == 0x123456789abcdefull + 31;
    good &= __shfl_sync(ALL, -1.5f * static_cast<float>(i), 2) == -3.0f;
    good &= __match_any_sync(ALL, i / 8) == 0xffu << i / 8 * 8;
    good &= __match_any_sync(ALL, static_cast<uint64_t>(i % 2) << 40) == 0x55555555u << i % 2;
    __syncwarp();
    out[blockIdx.x * blockDim.x + threadIdx.x] = good;
}

void test_warp_operations(void **) {
    unsigned *out = device_copy(std::vector<unsigned>(192));
    FRUGAL_LAUNCH(warp_kernel, 2, 96, nullptr, out);
    for (unsigned good : host_copy(out, 192)) assert_int_equal(1, good);
}

/* Two votes, one after the other: the second knows nothing of the first. */
__global__ void vote_kernel(unsigned *out) {
    unsigned last = blockDim.x - 1;
    int some = __syncthreads_or(threadIdx.x == last), none = __syncthreads_or(threadIdx.x > last);
    int all = __syncthreads_or(threadIdx.x <= last);
    out[blockIdx.x * blockDim.x + threadIdx.x] = some && !none && all;
}

void test_votes_of_a_block(void **) {
    unsigned *out = device_copy(std::vector<unsigned>(3 * 96));
    FRUGAL_LAUNCH(vote_kernel, 3, 96, nullptr, out);
    for (unsigned good : host_copy(out, 3 * 96)) assert_int_equal(1, good);
}

void test_bits(void **) {
    assert_true(__popc(ALL) == 32 && __popcll(~0ull) == 64 && __ffs(0) == 0 && __ffs(8) == 4 &&
                __ffsll(1ll << 40) == 41);
    assert_true(__clz(0) == 32 && __clz(1) == 31 && __clzll(0) == 64 && __clzll(-1) == 0 && __brev(1) == 1u << 31);
    assert_true(__brev(0x0f00u) == 0x00f00000u && __uint_as_float(0x3f800000u) == 1.0f &&
                __float_as_uint(1.0f) == 0x3f800000u);
}

__global__ void atomics_kernel(unsigned *counts, unsigned long long *wide, float *real) {
    atomicAdd(&counts[0], 1);
    atomicAdd(wide, 1ull << 33);
    atomicAdd(real, 0.5f);
    for (unsigned seen = 0, now;; seen = now)
        if ((now = atomicCAS(&counts[1], seen, seen + 2)) == seen) break;
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> a(counts[2]);
    unsigned mine = a.load(cuda::memory_order_relaxed);
    while (!a.compare_exchange_weak(mine, mine + 3, cuda::memory_order_acq_rel)) {
    }
    cuda::atomic_ref<unsigned, cuda::thread_scope_system>(counts[3]).fetch_or(1u << threadIdx.x % 32,
                                                                              cuda::memory_order_release);
}

void test_atomics(void **) {
    unsigned *counts = device_copy(std::vector<unsigned>(4));
    unsigned long long *wide = device_copy(std::vector<unsigned long long>(1));
    float *real = device_copy(std::vector<float>(1));
    FRUGAL_LAUNCH(atomics_kernel, 7, 64, nullptr, counts, wide, real);
    std::vector<unsigned> seen = host_copy(counts, 4);
    assert_int_equal(448, seen[0]);
    assert_int_equal(2 * 448, seen[1]);
    assert_int_equal(3 * 448, seen[2]);
    assert_int_equal(ALL, seen[3]);
    assert_true(host_copy(wide, 1)[0] == 448ull << 33 && host_copy(real, 1)[0] == 224.0f);
}

/* All sorts of rightful uses of shared memory. */
__global__ void shared_kernel(int *out, int rounds) {
    FRUGAL_SHARED(int, turn, 64);
    FRUGAL_SHARED(unsigned, bins, 4);
    FRUGAL_SHARED(int, other, 64);
    int i = static_cast<int>(threadIdx.x), sum = 0;
    if (i < 4) bins[i] = 0;
    for (int r = 0; r < rounds; r++) {
        turn[i] = i + r;
        turn[i] += 1;
        __syncthreads();
        sum += turn[(i + r) % 64];
        __syncthreads();
        atomicAdd(&bins[i % 4], 1u);
        cuda::atomic_ref<unsigned, cuda::thread_scope_block>(bins[(i + 1) % 4]).fetch_add(1);
        other[i] = i;
        __syncwarp();
        sum -= other[i ^ 1];
        __syncwarp();
    }
    __syncthreads();
    out[i] = sum + static_cast<int>(bins[i % 4]);
}

void test_shared_memory(void **) {
    int *out = device_copy(std::vector<int>(64)), rounds = 5;
    FRUGAL_LAUNCH(shared_kernel, 1, 64, nullptr, out, rounds);
    std::vector<int> seen = host_copy(out, 64);
    for (int i = 0; i < 64; i++) {
        int expected = rounds * 32;
        for (int r = 0; r < rounds; r++) expected += (i + r) % 64 + r + 1 - (i ^ 1);
        assert_int_equal(expected, seen[static_cast<size_t>(i)]);
    }
}

/* Blocks that wait for each other: as many as the device says fit. */
__global__ void rendezvous_kernel(unsigned *arrived, unsigned *sum, unsigned rounds) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> count(*arrived);
    for (unsigned r = 1; r <= rounds; r++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            count.fetch_add(1, cuda::memory_order_acq_rel);
            while (count.load(cuda::memory_order_acquire) < r * gridDim.x) __nanosleep(20);
        }
        __syncthreads();
    }
    atomicAdd(sum, 1u);
}

void test_blocks_that_wait_for_each_other(void **) {
    unsigned *counts = device_copy(std::vector<unsigned>(2));
    int multiprocessors, blocks;
    GOOD(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    GOOD(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rendezvous_kernel, 64, 0));
    FRUGAL_LAUNCH(rendezvous_kernel, static_cast<unsigned>(multiprocessors * blocks), 64, nullptr, counts, counts + 1,
                  5);
    assert_int_equal(multiprocessors * blocks * 64, host_copy(counts, 2)[1]);
}

__global__ void order_kernel(unsigned *next, unsigned *order) {
    if (threadIdx.x == 0) order[atomicAdd(next, 1u)] = blockIdx.x;
}

std::vector<unsigned> order_of(uint64_t seed) {
    cuda_on_host_set_seed(seed);
    unsigned *next = device_copy(std::vector<unsigned>(1)), *order = device_copy(std::vector<unsigned>(40));
    FRUGAL_LAUNCH(order_kernel, 40, 32, nullptr, next, order);
    return host_copy(order, 40);
}

void test_a_seed_is_a_schedule(void **) {
    assert_true(order_of(3) == order_of(3));
    assert_true(order_of(3) != order_of(4));
}

__global__ void vectors_kernel(const float4 *in, float4 *out) {
    float4 v = __ldcg(in + threadIdx.x);
    __stcs(out + threadIdx.x, make_float4(v.w, v.z, v.y, v.x));
}

void test_vectors_and_uninitialized_memory(void **) {
    float4 *p;
    GOOD(cudaMalloc(&p, 64 * sizeof *p));
    assert_true(isnan(host_copy(p, 1)[0].x));
    GOOD(cudaMemset(p, 0, 32 * sizeof *p));
    FRUGAL_LAUNCH(vectors_kernel, 1, 32, nullptr, p, p + 32);
    assert_true(host_copy(p + 32, 32)[31].w == 0);
}

/* >>streams */
void test_copies_happen_later(void **) {
    cudaStream_t s;
    int *p = device_copy(std::vector<int>{0}), value = 7;
    GOOD(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    cuda_on_host_delay(s, 20000);
    GOOD(cudaMemcpyAsync(p, &value, sizeof value, cudaMemcpyHostToDevice, s));
    device_copy(std::vector<int>{0}); /* the NULL stream waits for nobody */
    assert_int_equal(cudaErrorNotReady, cudaStreamQuery(s));
    assert_int_equal(cudaErrorNotReady, cudaGetLastError()); /* though it is no failure: as CUDA's */
    GOOD(cudaGetLastError());
    GOOD(cudaStreamSynchronize(s));
    assert_int_equal(7, host_copy(p, 1)[0]);
    GOOD(cudaStreamDestroy(s));
    assert_int_equal(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(s));
}

void test_a_destroyed_stream_does_its_work(void **) {
    cudaStream_t s;
    int *p = device_copy(std::vector<int>{0});
    static int value = 7;
    GOOD(cudaStreamCreate(&s));
    cuda_on_host_delay(s, 5000);
    GOOD(cudaMemcpyAsync(p, &value, sizeof value, cudaMemcpyHostToDevice, s));
    GOOD(cudaStreamDestroy(s));
    GOOD(cudaDeviceSynchronize());
    assert_int_equal(7, host_copy(p, 1)[0]);
}

void test_events_order_streams(void **) {
    cudaStream_t a, b;
    cudaEvent_t begun, done;
    float milliseconds;
    int *p = device_copy(std::vector<int>{0}), value = 5, seen = 0;
    GOOD(cudaStreamCreate(&a));
    GOOD(cudaStreamCreate(&b));
    GOOD(cudaEventCreate(&begun));
    GOOD(cudaEventCreate(&done));
    GOOD(cudaEventQuery(done));
    cuda_on_host_delay(a, 3000);
    GOOD(cudaEventRecord(begun, a));
    GOOD(cudaMemcpyAsync(p, &value, sizeof value, cudaMemcpyHostToDevice, a));
    GOOD(cudaEventRecord(done, a));
    GOOD(cudaStreamWaitEvent(b, done));
    GOOD(cudaMemcpyAsync(&seen, p, sizeof seen, cudaMemcpyDeviceToHost, b));
    assert_int_equal(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, begun, done));
    GOOD(cudaStreamSynchronize(b));
    GOOD(cudaEventSynchronize(done));
    GOOD(cudaEventElapsedTime(&milliseconds, begun, done));
    assert_int_equal(5, seen);
    assert_true(milliseconds > 1);
    GOOD(cudaEventDestroy(begun));
    assert_int_equal(cudaErrorInvalidResourceHandle, cudaEventQuery(begun));
}

cudaError_t said_in_function;
void host_function(void *argument) {
    said_in_function = cudaDeviceSynchronize();
    *static_cast<int *>(argument) += 1;
}

void test_host_functions(void **) {
    cudaStream_t s;
    int *p = device_copy(std::vector<int>{0}), count = 1;
    GOOD(cudaStreamCreate(&s));
    GOOD(cudaLaunchHostFunc(s, host_function, &count));
    GOOD(cudaMemcpyAsync(p, &count, sizeof count, cudaMemcpyHostToDevice, s));
    GOOD(cudaStreamSynchronize(s));
    assert_int_equal(2, host_copy(p, 1)[0]);
    assert_int_equal(cudaErrorNotPermitted, said_in_function);
}

template <typename F> F *driver_call(const char *name) {
    void *call = nullptr;
    cudaDriverEntryPointQueryResult found;
    GOOD(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found));
    assert_int_equal(cudaDriverEntryPointSuccess, found);
    return reinterpret_cast<F *>(call);
}

/* Who pushes a context is on its device, and then where it was; cudaSetDevice makes a context, and pushing makes
 * none. */
void test_contexts(void **) {
    auto retain = driver_call<CUresult(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain");
    auto current = driver_call<CUresult(CUcontext *)>("cuCtxGetCurrent");
    auto push = driver_call<CUresult(CUcontext)>("cuCtxPushCurrent");
    auto pop = driver_call<CUresult(CUcontext *)>("cuCtxPopCurrent");
    CUcontext second, found;
    int on;
    void *memory;
    assert_false(cuda_on_host_has_context(0) || cuda_on_host_has_context(1));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, retain(&second, 2));
    assert_int_equal(CUDA_SUCCESS, retain(&second, 1));
    assert_true(cuda_on_host_has_context(1));
    assert_true(current(&found) == CUDA_SUCCESS && !found);
    assert_int_equal(CUDA_SUCCESS, push(second));
    assert_true(current(&found) == CUDA_SUCCESS && found == second);
    GOOD(cudaGetDevice(&on));
    assert_int_equal(1, on);
    GOOD(cudaMalloc(&memory, 8));
    cudaPointerAttributes attributes;
    GOOD(cudaPointerGetAttributes(&attributes, memory));
    assert_int_equal(1, attributes.device);
    GOOD(cudaFree(memory));
    assert_true(pop(&found) == CUDA_SUCCESS && found == second);
    GOOD(cudaGetDevice(&on));
    assert_int_equal(0, on);
    assert_false(cuda_on_host_has_context(0));
    GOOD(cudaSetDevice(0));
    assert_true(cuda_on_host_has_context(0));
}

void test_streams_have_flags(void **) {
    cudaStream_t s[2];
    unsigned flags = 7;
    GOOD(cudaStreamCreate(&s[0]));
    GOOD(cudaStreamCreateWithFlags(&s[1], cudaStreamNonBlocking));
    GOOD(cudaStreamGetFlags(s[1], &flags));
    assert_int_equal(cudaStreamNonBlocking, flags);
    GOOD(cudaStreamGetFlags(s[0], &flags));
    assert_int_equal(cudaStreamDefault, flags);
    GOOD(cudaStreamGetFlags(nullptr, &flags));
    assert_int_equal(cudaStreamDefault, flags);
    for (cudaStream_t one : s) GOOD(cudaStreamDestroy(one));
}

void test_waits_for_values(void **) {
    PFN_cuStreamWaitValue64 wait;
    PFN_cuStreamWriteValue64 write;
    void *none;
    cudaDriverEntryPointQueryResult found;
    GOOD(cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", reinterpret_cast<void **>(&wait), 12000,
                                          cudaEnableDefault, &found));
    GOOD(cudaGetDriverEntryPoint("cuStreamWriteValue64", reinterpret_cast<void **>(&write), cudaEnableDefault, &found));
    assert_int_equal(cudaDriverEntryPointSuccess, found);
    GOOD(cudaGetDriverEntryPoint("cuStreamBatchMemOp", &none, cudaEnableDefault, &found));
    assert_int_equal(cudaDriverEntryPointSymbolNotFound, found);
    alignas(8) static uint64_t words[2];
    words[0] = words[1] = 0;
    cudaStream_t s;
    GOOD(cudaStreamCreate(&s));
    CUdeviceptr at = reinterpret_cast<uintptr_t>(words);
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, wait(s, at, 3, CU_STREAM_WAIT_VALUE_GEQ));
    GOOD(cudaHostRegister(words, sizeof words, cudaHostRegisterDefault));
    assert_int_equal(CUDA_SUCCESS, wait(s, at, 3, CU_STREAM_WAIT_VALUE_GEQ));
    assert_int_equal(CUDA_SUCCESS, write(s, at + 8, 9, 0));
    usleep(2000);
    assert_int_equal(0, __atomic_load_n(&words[1], __ATOMIC_ACQUIRE));
    __atomic_store_n(&words[0], 4, __ATOMIC_RELEASE);
    GOOD(cudaStreamSynchronize(s));
    assert_int_equal(9, __atomic_load_n(&words[1], __ATOMIC_ACQUIRE));
}

void test_graphs(void **) {
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec, other;
    cudaStreamCaptureStatus status;
    int *p = device_copy(std::vector<int>{0}), value = 5;
    GOOD(cudaStreamCreate(&s));
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    FRUGAL_LAUNCH(add_kernel, 1, 32, s, p, value);
    value = 6;
    FRUGAL_LAUNCH(add_kernel, 1, 32, s, p, value);
    value = 1000;
    GOOD(cudaStreamIsCapturing(s, &status));
    assert_int_equal(cudaStreamCaptureStatusActive, status);
    GOOD(cudaStreamEndCapture(s, &graph));
    GOOD(cudaGraphInstantiate(&exec, graph, 0));
    GOOD(cudaGraphInstantiate(&other, graph, nullptr, nullptr, 0));
    GOOD(cudaGraphDestroy(graph));
    GOOD(cudaStreamSynchronize(s));
    assert_int_equal(0, host_copy(p, 1)[0]);
    GOOD(cudaGraphLaunch(exec, s));
    GOOD(cudaGraphLaunch(other, s));
    GOOD(cudaGraphExecDestroy(exec));
    GOOD(cudaStreamSynchronize(s));
    assert_int_equal(22, host_copy(p, 1)[0]);
}

void test_captures_are_spoilt_by_waits(void **) {
    cudaStream_t s;
    cudaGraph_t graph;
    void *p;
    GOOD(cudaStreamCreate(&s));
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
    assert_int_equal(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    assert_null(graph);
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 8));
    assert_int_equal(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    GOOD(cudaMalloc(&p, 8));
    GOOD(cudaStreamEndCapture(s, &graph));
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); /* no mode allows to wait for all of a device */
    assert_int_equal(cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize());
    assert_int_equal(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
}

/* The NULL stream would wait for blocking streams: asking does no harm, and any use does. */
void test_captures_are_spoilt_by_the_null_stream(void **) {
    cudaStreamCaptureStatus status;
    cudaStream_t s;
    cudaGraph_t graph;
    void *p;
    GOOD(cudaMalloc(&p, 8));
    for (unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking})
        for (cudaStream_t null : {cudaStream_t(nullptr), cudaStreamLegacy}) {
            bool blocks = flags == cudaStreamDefault;
            GOOD(cudaStreamCreateWithFlags(&s, flags));
            GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
            assert_int_equal(blocks ? cudaErrorStreamCaptureImplicit : cudaSuccess,
                             cudaStreamIsCapturing(null, &status));
            GOOD(cudaStreamEndCapture(s, &graph));
            GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
            assert_int_equal(blocks ? cudaErrorStreamCaptureImplicit : cudaSuccess, cudaMemsetAsync(p, 0, 8, null));
            assert_int_equal(blocks ? cudaErrorStreamCaptureInvalidated : cudaSuccess, cudaStreamEndCapture(s, &graph));
            GOOD(cudaStreamDestroy(s));
        }
}

void test_default_streams_are_counted(void **) {
    uint64_t before = cuda_on_host_default_streams();
    void *p;
    GOOD(cudaMalloc(&p, 8));
    GOOD(cudaMemsetAsync(p, 0, 8, cudaStreamLegacy));
    GOOD(cudaStreamSynchronize(cudaStreamLegacy));
    assert_int_equal(0, cuda_on_host_default_streams() - before);
    GOOD(cudaMemset(p, 0, 8));
    GOOD(cudaStreamSynchronize(nullptr));
    assert_int_equal(2, cuda_on_host_default_streams() - before);
}

/* >>memory */
__attribute__((noinline)) unsigned through_memory(unsigned i) {
    volatile unsigned a[500];
    for (unsigned k = 0; k < 500; k += 100) a[(i + k) % 500] = i + k;
    return a[i % 500];
}
__global__ void frames_kernel(unsigned *sum) {
    for (unsigned i = 0; i < 60; i++) atomicAdd(sum, through_memory(i));
}
long resident_bytes() {
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(2, fscanf(file, "%ld %ld", &all, &resident));
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* AddressSanitizer keeps frames that have been left, at most some megabytes: not so many for each thread. */
void test_threads_need_little_memory(void **) {
    unsigned *sum = device_copy(std::vector<unsigned>(1));
    long before = resident_bytes();
    GOOD(FRUGAL_LAUNCH(frames_kernel, 1, 1024, nullptr, sum));
    GOOD(cudaDeviceSynchronize());
    long more = resident_bytes() - before;
    assert_int_equal(1024 * 59 * 30, host_copy(sum, 1)[0]);
    if (more > 100 << 20) fail_msg("1024 threads of a kernel need at most 100 MiB, not %ld", more >> 20);
}

void test_memory_is_bounded(void **) {
    void *p, *q;
    size_t left, all;
    cuda_on_host_set_memory(1000);
    GOOD(cudaMalloc(&p, 600));
    assert_int_equal(cudaErrorMemoryAllocation, cudaMalloc(&q, 401));
    assert_int_equal(cudaErrorMemoryAllocation, cudaPeekAtLastError());
    assert_int_equal(cudaErrorMemoryAllocation, cudaGetLastError());
    GOOD(cudaGetLastError());
    GOOD(cudaMemGetInfo(&left, &all));
    assert_true(left == 400 && all == 1000);
    GOOD(cudaFree(p));
    GOOD(cudaMalloc(&q, 1000));
    GOOD(cudaFree(nullptr));
    assert_int_equal(cudaErrorInvalidValue, cudaFree(&left));
}

void test_copies_are_checked(void **) {
    char *p, host[64] = {0};
    GOOD(cudaMalloc(&p, 64));
    assert_int_equal(cudaErrorInvalidValue, cudaMemcpy(p, host, 65, cudaMemcpyHostToDevice));
    assert_int_equal(cudaErrorInvalidValue, cudaMemcpy(p + 60, host, 8, cudaMemcpyDefault));
    assert_int_equal(cudaErrorInvalidValue, cudaMemcpy(host, p, 8, cudaMemcpyHostToDevice));
    assert_int_equal(cudaErrorInvalidValue, cudaMemset(host, 0, 8));
    for (int i = 0; i < 64; i++) host[i] = static_cast<char>(i);
    GOOD(cudaMemset(p, 0, 64));
    GOOD(cudaMemcpy2DAsync(p, 16, host, 8, 4, 4, cudaMemcpyHostToDevice));
    std::vector<char> seen = host_copy(p, 64);
    for (size_t i = 0; i < 64; i++) assert_int_equal(i % 16 < 4 ? i / 16 * 8 + i % 16 : 0, seen[i]);
}

void test_registered_memory(void **) {
    static char memory[4096];
    void *p;
    cudaPointerAttributes a;
    assert_int_equal(cudaErrorInvalidValue, cudaHostGetDevicePointer(&p, memory, 0));
    assert_int_equal(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
    GOOD(cudaHostRegister(memory, 100, cudaHostRegisterPortable | cudaHostRegisterMapped));
    assert_int_equal(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory + 99, 10, 0));
    GOOD(cudaHostRegister(memory + 100, 10, 0));
    GOOD(cudaHostGetDevicePointer(&p, memory + 50, 0));
    assert_ptr_equal(memory + 50, p);
    GOOD(cudaPointerGetAttributes(&a, memory + 50));
    assert_int_equal(cudaMemoryTypeHost, a.type);
    GOOD(cudaHostUnregister(memory));
    GOOD(cudaPointerGetAttributes(&a, memory + 50));
    assert_int_equal(cudaMemoryTypeUnregistered, a.type);
    int *pinned; /* of which CUDA promises one address */
    GOOD(cudaMallocHost(&pinned, 100));
    GOOD(cudaHostGetDevicePointer(&p, pinned, 0));
    assert_ptr_equal(pinned, p);
    GOOD(cudaFreeHost(pinned));
    assert_int_equal(cudaErrorInvalidValue, cudaFreeHost(memory));
}

__global__ void double_kernel(uint32_t *word) {
    if (threadIdx.x == 0) *word *= 2;
}

/* Whole pages are seen at other addresses, with what was there; as they were when they are no longer registered. */
void test_registered_pages(void **) {
    enum : size_t { BYTES = 3 * 4096 };
    uint32_t *host = static_cast<uint32_t *>(aligned_alloc(4096, BYTES)), *seen, value = 0;
    int same = 0;
    cudaPointerAttributes a;
    memset(host, 0, BYTES);
    host[1030] = 21;
    GOOD(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    GOOD(cudaHostGetDevicePointer(&seen, host + 1000, 0));
    GOOD(cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
    assert_int_equal(same, seen == host + 1000);
    GOOD(cudaPointerGetAttributes(&a, seen));
    assert_true(a.type == cudaMemoryTypeHost && a.devicePointer == seen && a.hostPointer == host + 1000);
    GOOD(cudaPointerGetAttributes(&a, host + 1000));
    assert_true(a.type == cudaMemoryTypeHost && a.devicePointer == seen && a.hostPointer == host + 1000);
    GOOD(FRUGAL_LAUNCH(double_kernel, 1, 32, nullptr, seen + 30));
    GOOD(cudaMemcpy(&value, seen + 30, sizeof value, cudaMemcpyHostToHost));
    assert_int_equal(42, value);
    assert_int_equal(42, host[1030]);
    GOOD(cudaMemset(seen, 1, sizeof *seen));
    GOOD(cudaDeviceSynchronize());
    assert_int_equal(0x01010101, host[1000]);
    if (!same) assert_int_equal(cudaErrorInvalidValue, cudaMemset(host, 1, sizeof *host));
    GOOD(cudaHostUnregister(host));
    pid_t child = fork(); /* has pages of its own */
    if (child == 0) {
        host[1030] = 0;
        _exit(0);
    }
    assert_int_equal(child, waitpid(child, nullptr, 0));
    assert_int_equal(42, host[1030]);
    cuda_on_host_set_attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, 1);
    GOOD(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    GOOD(cudaHostGetDevicePointer(&seen, host, 0));
    assert_ptr_equal(host, seen);
    GOOD(cudaHostUnregister(host));
    assert_int_equal(0, cuda_on_host_alive());
    free(host);
}

/* Memory that is shared already, as of a table that several processes map. */
void test_registered_shared_pages(void **) {
    uint32_t *host = static_cast<uint32_t *>(
                 mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
             *seen;
    host[7] = 21;
    GOOD(cudaHostRegister(host, 8192, cudaHostRegisterMapped));
    GOOD(cudaHostGetDevicePointer(&seen, host + 7, 0));
    GOOD(FRUGAL_LAUNCH(double_kernel, 1, 32, nullptr, seen));
    GOOD(cudaDeviceSynchronize());
    assert_int_equal(42, host[7]);
    GOOD(cudaHostUnregister(host));
    assert_int_equal(42, host[7]);
    munmap(host, 8192);
}

/* Memory of the host's node: made, mapped, given to device and host, unmapped; it lives until it is released and
 * unmapped. */
void test_mapped_memory(void **) {
    enum : size_t { MIB_2 = 2 << 20 };
    auto make = driver_call<decltype(cuMemCreate)>("cuMemCreate");
    auto forget = driver_call<decltype(cuMemRelease)>("cuMemRelease");
    auto reserve = driver_call<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
    auto unreserve = driver_call<decltype(cuMemAddressFree)>("cuMemAddressFree");
    auto map = driver_call<decltype(cuMemMap)>("cuMemMap");
    auto unmap = driver_call<decltype(cuMemUnmap)>("cuMemUnmap");
    auto give = driver_call<decltype(cuMemSetAccess)>("cuMemSetAccess");
    int supported = 0;
    assert_int_equal(CUDA_SUCCESS,
                     driver_call<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                         &supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    assert_int_equal(1, supported);
    CUmemAllocationProp how = {};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, make(&handle, 100, &how, 0));
    assert_int_equal(CUDA_SUCCESS, make(&handle, MIB_2, &how, 0));
    assert_int_equal(CUDA_SUCCESS, reserve(&at, MIB_2, 4 * MIB_2, 0, 0));
    assert_int_equal(0, at % (4 * MIB_2));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, give(at, MIB_2, access, 2));
    assert_int_equal(CUDA_SUCCESS, map(at, MIB_2, 0, handle, 0));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, map(at, MIB_2, 0, handle, 0));
    assert_int_equal(CUDA_SUCCESS, forget(handle));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, forget(handle));
    assert_int_equal(CUDA_SUCCESS, give(at, MIB_2, access, 2));
    uint32_t *words = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(at));
    words[1000] = 21;
    GOOD(FRUGAL_LAUNCH(double_kernel, 1, 32, nullptr, words + 1000));
    GOOD(cudaDeviceSynchronize());
    assert_int_equal(42, words[1000]);
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, unreserve(at, MIB_2));
    assert_int_equal(CUDA_SUCCESS, unmap(at, MIB_2));
    assert_int_equal(CUDA_SUCCESS, unreserve(at, MIB_2));
    assert_int_equal(0, cuda_on_host_alive());
}

/* Only devices that share managed memory with the host at any time can be advised. */
void test_managed_memory(void **) {
    void *p;
    cudaPointerAttributes a;
    GOOD(cudaMallocManaged(&p, 4096));
    GOOD(cudaPointerGetAttributes(&a, p));
    assert_int_equal(cudaMemoryTypeManaged, a.type);
    GOOD(cudaMemAdvise(p, 4096, cudaMemAdviseSetPreferredLocation, {cudaMemLocationTypeHost, 0}));
    assert_int_equal(cudaErrorInvalidDevice,
                     cudaMemAdvise(p, 4096, cudaMemAdviseSetAccessedBy, {cudaMemLocationTypeDevice, 0}));
    cuda_on_host_set_attribute(cudaDevAttrConcurrentManagedAccess, 1);
    GOOD(cudaMemAdvise(p, 4096, cudaMemAdviseSetAccessedBy, {cudaMemLocationTypeDevice, 0}));
    assert_int_equal(cudaErrorInvalidValue,
                     cudaMemAdvise(p, 4097, cudaMemAdviseSetAccessedBy, {cudaMemLocationTypeDevice, 0}));
    GOOD(cudaFree(p));
}

void test_refused_registrations(void **) {
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(0, ftruncate(fileno(file), 4096));
    void *mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fileno(file), 0), *plain = malloc(100);
    assert_ptr_not_equal(MAP_FAILED, mapped);
    cuda_on_host_refuse_register(cudaErrorInvalidValue, 1);
    assert_int_equal(cudaErrorInvalidValue, cudaHostRegister(mapped, 4096, cudaHostRegisterReadOnly));
    GOOD(cudaHostRegister(plain, 100, 0));
    GOOD(cudaHostUnregister(plain));
    cuda_on_host_refuse_register(cudaErrorNotSupported, 0);
    assert_int_equal(cudaErrorNotSupported, cudaHostRegister(plain, 100, 0));
    cuda_on_host_refuse_register(0, 0);
    GOOD(cudaHostRegister(mapped, 4096, cudaHostRegisterReadOnly));
    GOOD(cudaHostUnregister(mapped));
    munmap(mapped, 4096);
    free(plain);
    fclose(file);
}

/* >>failures on request */
int some_calls() { /* how many of them succeed */
    cudaStream_t s = nullptr;
    int *p = nullptr, good = 0;
    good += cudaStreamCreate(&s) == cudaSuccess;
    good += cudaMalloc(&p, 4) == cudaSuccess;
    good += cudaMemsetAsync(p, 0, 4, s) == cudaSuccess;
    if (p) FRUGAL_LAUNCH(add_kernel, 1, 32, s, p, 1);
    good += p && cudaGetLastError() == cudaSuccess;
    good += cudaStreamSynchronize(s) == cudaSuccess;
    return good;
}

void test_every_call_can_fail(void **) {
    uint64_t n = 1;
    for (;; n++) {
        cuda_on_host_reset();
        cuda_on_host_fail_call(n, cudaErrorUnknown);
        int good = some_calls();
        if (!cuda_on_host_has_failed()) break;
        assert_true(good < 5);
    }
    assert_int_equal(6, n);
    cuda_on_host_reset();
    cuda_on_host_fail_named("cudaMemsetAsync", 2, cudaErrorUnknown);
    assert_int_equal(5, some_calls());
    assert_int_equal(3, some_calls()); /* itself, and what cudaGetLastError says after the launch */
    assert_int_equal(5, some_calls());
}

void test_calls_are_counted(void **) {
    some_calls();
    some_calls();
    assert_int_equal(2, cuda_on_host_count("cudaLaunchKernel"));
    assert_int_equal(10, cuda_on_host_count(nullptr));
    assert_int_equal(2, cuda_on_host_synchronizations());
}

__global__ void forever_kernel(unsigned *stop) {
    FRUGAL_SHARED(unsigned, mine, 64);
    mine[threadIdx.x] = 0;
    while (cuda::atomic_ref<unsigned, cuda::thread_scope_system>(*stop).load() == 0) mine[threadIdx.x] += 1;
    __syncthreads();
}

void test_a_lost_device(void **) {
    unsigned *stop = device_copy(std::vector<unsigned>(1));
    cudaStream_t s;
    void *p;
    GOOD(cudaStreamCreate(&s));
    FRUGAL_LAUNCH(forever_kernel, 2, 64, s, stop);
    GOOD(cudaMemsetAsync(stop, 1, 4, s));
    usleep(2000);
    assert_int_equal(cudaErrorNotReady, cudaStreamQuery(s));
    cuda_on_host_lose_device(0);
    assert_int_equal(cudaErrorLaunchFailure, cudaStreamSynchronize(s));
    assert_int_equal(cudaErrorLaunchFailure, cudaMalloc(&p, 8));
    assert_int_equal(cudaErrorLaunchFailure, cudaFree(stop));
    FRUGAL_LAUNCH(add_kernel, 1, 32, s, nullptr, 1);
    assert_int_equal(cudaErrorLaunchFailure, cudaGetLastError());
    GOOD(cudaSetDevice(1)); /* the other one works */
    assert_int_equal(5, some_calls());
    cuda_on_host_reset();
    assert_int_equal(5, some_calls());
}

void test_a_device_lost_at_a_launch(void **) {
    cuda_on_host_lose_at_launch(1, 2);
    assert_int_equal(5, some_calls());
    GOOD(cudaSetDevice(1));
    assert_int_equal(5, some_calls());
    assert_in_range(some_calls(), 3, 4); /* its synchronization tells it, or the look at the last error before */
    assert_int_equal(0, some_calls());
    GOOD(cudaSetDevice(0));
    assert_int_equal(cudaErrorLaunchFailure, cudaGetLastError());
    assert_int_equal(5, some_calls());
}

void test_numbers_of_devices(void **) {
    int n;
    void *p;
    GOOD(cudaGetDeviceCount(&n));
    assert_int_equal(2, n);
    assert_int_equal(cudaErrorInvalidDevice, cudaSetDevice(2));
    cuda_on_host_set_devices(0);
    assert_int_equal(cudaErrorNoDevice, cudaGetDeviceCount(&n));
    assert_int_equal(cudaErrorNoDevice, cudaMalloc(&p, 8));
    cuda_on_host_set_devices(5);
    GOOD(cudaSetDevice(4));
    int device = -1, value = -1;
    std::thread([&] { cudaGetDevice(&device); }).join(); /* each thread has its own */
    assert_int_equal(0, device);
    cuda_on_host_set_attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, 0);
    GOOD(cudaDeviceGetAttribute(&value, cudaDevAttrCanUseHostPointerForRegisteredMem, 4));
    assert_int_equal(0, value);
    assert_string_equal("cudaErrorNoDevice", cudaGetErrorName(cudaErrorNoDevice));
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--case")) return make_mistake(mistakes, argv[2]);
#define TEST(function) cmocka_unit_test_setup(function, setup)
    std::vector<CMUnitTest> tests = {
        TEST(test_a_sum_over_blocks),
        TEST(test_warp_operations),
        TEST(test_votes_of_a_block),
        TEST(test_bits),
        TEST(test_atomics),
        TEST(test_shared_memory),
        TEST(test_blocks_that_wait_for_each_other),
        TEST(test_a_seed_is_a_schedule),
        TEST(test_vectors_and_uninitialized_memory),
        TEST(test_copies_happen_later),
        TEST(test_a_destroyed_stream_does_its_work),
        TEST(test_events_order_streams),
        TEST(test_host_functions),
        TEST(test_contexts),
        TEST(test_streams_have_flags),
        TEST(test_waits_for_values),
        TEST(test_graphs),
        TEST(test_captures_are_spoilt_by_waits),
        TEST(test_captures_are_spoilt_by_the_null_stream),
        TEST(test_default_streams_are_counted),
        TEST(test_threads_need_little_memory),
        TEST(test_memory_is_bounded),
        TEST(test_copies_are_checked),
        TEST(test_registered_memory),
        TEST(test_registered_pages),
        TEST(test_registered_shared_pages),
        TEST(test_mapped_memory),
        TEST(test_managed_memory),
        TEST(test_refused_registrations),
        TEST(test_every_call_can_fail),
        TEST(test_calls_are_counted),
        TEST(test_a_lost_device),
        TEST(test_a_device_lost_at_a_launch),
        TEST(test_numbers_of_devices),
    };
    add_mistakes(&tests, mistakes);
    return _cmocka_run_group_tests("cuda_on_host", tests.data(), tests.size(), nullptr, nullptr);
}
