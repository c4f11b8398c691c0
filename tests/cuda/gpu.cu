/* gpu.cu - see gpu.h. */
#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#else
#include <cuda_runtime.h>
#define FRUGAL_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif
#include "../../frugal.h"
#include "../../src/arithmetic.h"
#include "gpu.h"
#ifdef FRUGAL_CUDA_ON_HOST
#include "cuda_on_host_hooks.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu {
    int ordinal;
    cudaStream_t stream, blocking; /* the second when it has been asked for */
    float *memory, *rows, *grads;
    uint32_t *words;
    cudaGraphExec_t graph;
    size_t floats;
    int rows_as, grads_as;
    float *log; /* [kept][floats] */
    uint64_t *trained;
    uint32_t kept;
    cudaStream_t key_stream; /* of gpu_keys, as the next three */
    void *keys, *sent;       /* on the GPU; in host memory, from where they are copied */
    size_t key_bytes;
};

static void expect(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "gpu: %s: %s\n", what, cudaGetErrorString(error));
    abort();
}

struct on_gpu { /* the current GPU is the caller's again at the end */
    int before = 0;
    explicit on_gpu(const gpu *g) {
        cudaGetDevice(&before);
        cudaSetDevice(g->ordinal);
    }
    ~on_gpu() {
        cudaSetDevice(before);
    }
};

int gpu_current(void) {
    int ordinal = 0;
    expect(cudaGetDevice(&ordinal), "get device");
    return ordinal;
}

void gpu_set_current(int ordinal) {
    expect(cudaSetDevice(ordinal), "set device");
}

void gpu_reset(int ordinal) {
    int before = gpu_current();
    gpu_set_current(ordinal);
    expect(cudaDeviceReset(), "reset");
    gpu_set_current(before);
}

void gpu_make_error(void) {
    if (cudaSetDevice(-1) == cudaSuccess) expect(cudaErrorUnknown, "there is a GPU -1");
}

int gpu_error(void) {
    return cudaPeekAtLastError();
}

void gpu_end_error(void) {
    cudaGetLastError();
}

static __global__ void break_kernel(uint64_t *nowhere) {
    if (threadIdx.x == 0) *nowhere = 1;
}

void gpu_break(gpu *g) {
    on_gpu on(g);
#ifdef FRUGAL_CUDA_ON_HOST
    (void)break_kernel;
    cuda_on_host_lose_device(g->ordinal);
#else
    FRUGAL_LAUNCH(break_kernel, 1, 32, g->stream, (uint64_t *)8);
    cudaGetLastError();
#endif
}

void gpu_register(void *memory, size_t bytes) {
    expect(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), "register");
}

void gpu_unregister(void *memory) {
    expect(cudaHostUnregister(memory), "unregister");
}

int gpu_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    cudaGetLastError();
    return 0;
}

const char *gpu_name(int ordinal) {
    static cudaDeviceProp properties;
    expect(cudaGetDeviceProperties(&properties, ordinal), "properties");
    return properties.name;
}

struct typed_arrays {
    const void *rows;
    void *grads;
    int rows_as, grads_as;
};

static __device__ float load_element(const void *array, int as, uint64_t i) {
    if (as == FRUGAL_FP32) return ((const float *)array)[i];
    uint16_t half = ((const uint16_t *)array)[i];
    return as == FRUGAL_BF16 ? frugal_widen_bf16(half) : frugal_widen_fp16(half);
}

static __device__ void store_element(void *array, int as, uint64_t i, float x) {
    if (as == FRUGAL_FP32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = as == FRUGAL_BF16 ? frugal_nearest_bf16(x) : frugal_nearest_fp16(x);
}

/* One block. */
static __global__ void train_kernel(typed_arrays all, float *log, uint64_t *trained, uint32_t kept, uint64_t floats,
                                    const uint32_t *n, uint32_t dim) {
    float *keep = log + *trained % kept * floats;
    uint64_t end = n ? (uint64_t)*n * dim : floats;
    for (uint64_t i = threadIdx.x; i < end; i += blockDim.x) {
        float row = load_element(all.rows, all.rows_as, i);
        keep[i] = row;
        store_element(all.grads, all.grads_as, i, gpu_gradient(row, (uint32_t)i));
    }
    __syncthreads();
    if (threadIdx.x == 0) ++*trained;
}

/* Its first launch may be part of a capture, or behind a stream that waits, and CUDA loads a kernel when it is first
 * launched, which may wait for the GPU. */
static void load_kernel(void) {
#ifndef FRUGAL_CUDA_ON_HOST
    cudaFuncAttributes attributes;
    expect(cudaFuncGetAttributes(&attributes, train_kernel), "load a kernel");
#endif
}

static void grow_keys(gpu *g, size_t bytes) {
    if (bytes <= g->key_bytes) return;
    cudaFree(g->keys);
    cudaFreeHost(g->sent);
    expect(cudaMalloc(&g->keys, bytes), "memory");
    expect(cudaHostAlloc(&g->sent, bytes, cudaHostAllocPortable), "memory");
    g->key_bytes = bytes;
}

gpu *gpu_open(int ordinal, size_t floats, size_t words, size_t unaligned) {
    gpu *g = (gpu *)calloc(1, sizeof *g);
    size_t array = (floats + unaligned + 3) / 4 * 4;
    if (!g) abort();
    int before = gpu_current();
    g->ordinal = ordinal, g->floats = floats;
    expect(cudaSetDevice(ordinal), "set device");
    load_kernel();
    expect(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream");
    expect(cudaMalloc((void **)&g->memory, (2 * array + words + 1) * sizeof(float)), "memory");
    g->rows = g->memory + unaligned, g->grads = g->memory + array + unaligned;
    g->words = (uint32_t *)(void *)(g->memory + 2 * array);
    expect(cudaStreamCreateWithFlags(&g->key_stream, cudaStreamNonBlocking), "stream");
    grow_keys(g, 1 << 12); /* not later, when a stream may be captured */
    gpu_set_current(before);
    return g;
}

void gpu_close(gpu *g) {
    if (!g) return;
    on_gpu on(g); /* which may be lost */
    if (g->graph) cudaGraphExecDestroy(g->graph);
    cudaStreamDestroy(g->stream);
    if (g->blocking) cudaStreamDestroy(g->blocking);
    cudaFree(g->memory);
    cudaStreamDestroy(g->key_stream);
    cudaFree(g->keys);
    cudaFreeHost(g->sent);
    cudaFree(g->log);
    cudaFree(g->trained);
    cudaGetLastError();
    free(g);
}

void *gpu_stream(gpu *g) {
    return g->stream;
}
void *gpu_blocking_stream(gpu *g) {
    on_gpu on(g);
    if (!g->blocking) expect(cudaStreamCreateWithFlags(&g->blocking, cudaStreamDefault), "stream");
    return g->blocking;
}
float *gpu_rows(gpu *g) {
    return g->rows;
}
float *gpu_grads(gpu *g) {
    return g->grads;
}
uint32_t *gpu_words(gpu *g) {
    return g->words;
}

static cudaError_t copy(gpu *g, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    on_gpu on(g);
    cudaError_t error = bytes ? cudaMemcpyAsync(to, from, bytes, kind, g->stream) : cudaSuccess;
    return error == cudaSuccess ? cudaStreamSynchronize(g->stream) : error;
}

const void *gpu_keys(gpu *g, const void *host, size_t bytes) {
    on_gpu on(g);
    expect(cudaStreamSynchronize(g->key_stream), "synchronize"); /* the copy before has left `sent` */
    grow_keys(g, bytes);
    memcpy(g->sent, host, bytes);
    if (bytes) expect(cudaMemcpyAsync(g->keys, g->sent, bytes, cudaMemcpyHostToDevice, g->key_stream), "copy");
    return g->keys;
}

void *gpu_key_stream(gpu *g) {
    return g->key_stream;
}

void gpu_get(gpu *g, void *host, const void *device, size_t bytes) {
    expect(copy(g, host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

void gpu_put(gpu *g, void *device, const void *host, size_t bytes) {
    expect(copy(g, device, host, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
}

int gpu_try_get(gpu *g, void *host, const void *device, size_t bytes) {
    return copy(g, host, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

int gpu_try_put(gpu *g, void *device, const void *host, size_t bytes) {
    return copy(g, device, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

void gpu_wait(gpu *g) {
    on_gpu on(g);
    expect(cudaStreamSynchronize(g->stream), "synchronize");
}

void gpu_wait_for(gpu *g, void *stream) {
    on_gpu on(g);
    expect(cudaStreamSynchronize((cudaStream_t)stream), "synchronize");
}

void gpu_keep(gpu *g, uint32_t kept) {
    on_gpu on(g);
    g->kept = kept;
    expect(cudaMalloc((void **)&g->log, kept * g->floats * sizeof(float)), "memory");
    expect(cudaMalloc((void **)&g->trained, sizeof *g->trained), "memory");
    expect(cudaMemsetAsync(g->trained, 0, sizeof *g->trained, g->stream), "memory");
}

void gpu_set_types(gpu *g, int rows, int grads) {
    g->rows_as = rows, g->grads_as = grads;
}

int gpu_try_train(gpu *g, const uint32_t *n, uint32_t dim) {
    int pending = cudaPeekAtLastError() != cudaSuccess; /* a test's: it would be taken for the launch's */
    on_gpu on(g);
    const typed_arrays all = {g->rows, g->grads, g->rows_as, g->grads_as};
    FRUGAL_LAUNCH(train_kernel, 1, 32, g->stream, all, g->log, g->trained, g->kept, g->floats, n, dim);
    return pending || cudaGetLastError() == cudaSuccess;
}

void gpu_train(gpu *g, const uint32_t *n, uint32_t dim) {
    if (gpu_try_train(g, n, dim)) return;
    fprintf(stderr, "gpu: training failed\n");
    abort();
}

void gpu_get_kept(gpu *g, uint64_t i, void *host, size_t bytes) {
    gpu_get(g, host, g->log + i % g->kept * g->floats, bytes);
}

void gpu_renew_stream(gpu *g) {
    on_gpu on(g);
    expect(cudaStreamDestroy(g->stream), "destroy a stream");
    expect(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream");
}

void gpu_capture(gpu *g, void (*record)(void *argument), void *argument) {
    cudaGraph_t graph;
    expect(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    record(argument);
    expect(cudaStreamEndCapture(g->stream, &graph), "end capture");
    expect(cudaGraphInstantiate(&g->graph, graph, 0), "instantiate");
    expect(cudaGraphDestroy(graph), "destroy");
}

void gpu_capture_beside(gpu *g, int blocks, void (*others)(void *argument), void *argument) {
    cudaStream_t stream;
    cudaGraph_t graph;
    {
        on_gpu on(g);
        expect(cudaStreamCreateWithFlags(&stream, blocks ? cudaStreamDefault : cudaStreamNonBlocking), "stream");
    }
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
    others(argument);
    expect(cudaStreamEndCapture(stream, &graph), "a capture that others have not spoilt");
    expect(cudaGraphDestroy(graph), "destroy");
    expect(cudaStreamDestroy(stream), "destroy");
}

void gpu_launch(gpu *g) {
    on_gpu on(g);
    expect(cudaGraphLaunch(g->graph, g->stream), "launch");
}
