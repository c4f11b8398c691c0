/* gpu.cu - see gpu.h. */
#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#else
#include <cuda_runtime.h>
#endif
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct gpu {
    int ordinal;
    cudaStream_t stream;
    float *memory, *rows, *grads;
    uint32_t *words;
    cudaGraphExec_t graph;
};

static void expect(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "gpu: %s: %s\n", what, cudaGetErrorString(error));
    abort();
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

gpu *gpu_open(int ordinal, size_t floats, size_t words, size_t unaligned) {
    gpu *g = (gpu *)calloc(1, sizeof *g);
    size_t array = (floats + unaligned + 3) / 4 * 4;
    if (!g) abort();
    g->ordinal = ordinal;
    expect(cudaSetDevice(ordinal), "set device");
    expect(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "stream");
    expect(cudaMalloc((void **)&g->memory, (2 * array + words + 1) * sizeof(float)), "memory");
    g->rows = g->memory + unaligned, g->grads = g->memory + array + unaligned;
    g->words = (uint32_t *)(void *)(g->memory + 2 * array);
    return g;
}

void gpu_close(gpu *g) {
    if (!g) return;
    cudaSetDevice(g->ordinal);
    if (g->graph) cudaGraphExecDestroy(g->graph);
    cudaStreamDestroy(g->stream);
    cudaFree(g->memory);
    free(g);
}

void *gpu_stream(gpu *g) {
    return g->stream;
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

void gpu_get(gpu *g, void *host, const void *device, size_t bytes) {
    expect(cudaSetDevice(g->ordinal), "set device");
    if (bytes) expect(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, g->stream), "copy to the host");
    gpu_wait(g);
}

void gpu_put(gpu *g, void *device, const void *host, size_t bytes) {
    expect(cudaSetDevice(g->ordinal), "set device");
    if (bytes) expect(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, g->stream), "copy to the GPU");
    gpu_wait(g);
}

void gpu_wait(gpu *g) {
    expect(cudaSetDevice(g->ordinal), "set device");
    expect(cudaStreamSynchronize(g->stream), "synchronize");
}

void gpu_capture(gpu *g, void (*record)(void *argument), void *argument) {
    cudaGraph_t graph;
    expect(cudaSetDevice(g->ordinal), "set device");
    expect(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    record(argument);
    expect(cudaStreamEndCapture(g->stream, &graph), "end capture");
    expect(cudaGraphInstantiate(&g->graph, graph, 0), "instantiate");
    expect(cudaGraphDestroy(graph), "destroy");
}

void gpu_launch(gpu *g) {
    expect(cudaSetDevice(g->ordinal), "set device");
    expect(cudaGraphLaunch(g->graph, g->stream), "launch");
}
