/* gpu.h - what a test written in C needs of a GPU beside frugal.h: a stream, arrays in the GPU's memory, copies. The
 * same on a real GPU and on the host (cuda_on_host.h). Errors end the process: tests have no use for them. */
#ifndef GPU_H
#define GPU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu gpu; /* of one logical device */

int gpu_count(void);   /* 0: there is none */
int gpu_current(void); /* the calling thread's */
void gpu_set_current(int ordinal);
void gpu_reset(int ordinal); /* cudaDeviceReset: the end of every `gpu` there */
/* Loses the GPU, as far as this process goes: by a kernel that writes where nothing is. */
void gpu_break(gpu *g);
/* The calling thread's last CUDA error: makes one that only asking for it ends; asks, 0: none; ends it. */
void gpu_make_error(void);
int gpu_error(void);
void gpu_end_error(void);
/* Host memory that the caller has registered himself. */
void gpu_register(void *memory, size_t bytes);
void gpu_unregister(void *memory);
const char *gpu_name(int ordinal);
/* Arrays of `floats` each, which begin `unaligned` floats behind an aligned address; and `words` for bags. */
gpu *gpu_open(int ordinal, size_t floats, size_t words, size_t unaligned);
void gpu_close(gpu *g);
void *gpu_stream(gpu *g);
void gpu_renew_stream(gpu *g);     /* destroys it, which does not wait for what it has, and makes another */
void *gpu_blocking_stream(gpu *g); /* of the same GPU; gone with it */
float *gpu_rows(gpu *g);
float *gpu_grads(gpu *g);
uint32_t *gpu_words(gpu *g);
/* A copy of an array in the GPU's memory, written on a stream of its own, which is not waited for; until the next call,
 * and behind what that stream is given until then. One thread at a time. */
const void *gpu_keys(gpu *g, const void *host, size_t bytes);
void *gpu_key_stream(gpu *g);
/* Behind what the stream has; all wait for it. Those that try say whether it was done: of a GPU that may be lost. */
void gpu_get(gpu *g, void *host, const void *device, size_t bytes);
void gpu_put(gpu *g, void *device, const void *host, size_t bytes);
int gpu_try_get(gpu *g, void *host, const void *device, size_t bytes);
int gpu_try_put(gpu *g, void *device, const void *host, size_t bytes);
void gpu_wait(gpu *g);
void gpu_wait_for(gpu *g, void *stream); /* another stream */
/* Captures what `record` enqueues into a graph; launches it, without waiting. */
void gpu_capture(gpu *g, void (*record)(void *argument), void *argument);
void gpu_launch(gpu *g);
/* Captures a stream of its own, one that blocks or not, while `others` is called; no call may spoil that. */
void gpu_capture_beside(gpu *g, int blocks, void (*others)(void *argument), void *argument);
/* What the elements of rows and grads are from now on, each a frugal_type; at first floats. */
void gpu_set_types(gpu *g, int rows, int grads);
/* What stands for forward and backward, without a wait: grads[i] = gpu_gradient(rows[i], i), for the first *n rows of
 * `dim` elements (n in the GPU's memory; NULL: for all); and the rows are kept, as floats, in a ring of `kept`, for
 * gpu_get_kept. */
void gpu_train(gpu *g, const uint32_t *n, uint32_t dim);
int gpu_try_train(gpu *g, const uint32_t *n, uint32_t dim);      /* 0: it failed, for a GPU that may be lost */
void gpu_keep(gpu *g, uint32_t kept);                            /* before the first gpu_train */
void gpu_get_kept(gpu *g, uint64_t i, void *host, size_t bytes); /* of the ith gpu_train; waits */

#ifdef __CUDACC__
__host__ __device__
#endif
    static inline float
    gpu_gradient(float row, uint32_t i) {
    return fmaf(0.25f, row, (float)(i * 2654435761u >> 24) * 0x1p-7f - 1.0f);
}

#ifdef __cplusplus
}
#endif
#endif /* GPU_H */
