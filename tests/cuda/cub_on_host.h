/* cub_on_host.h - the two calls of CUB that frugal_cuda.cu makes, on the streams of cuda_on_host.h (include that
 * first): a stable sort of pairs by key, and sums. They are enqueued, and read their arrays when their turn comes. */
#ifndef CUB_ON_HOST_H
#define CUB_ON_HOST_H

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <vector>

namespace cub {

struct on_host_work {
    const uint32_t *in, *values_in;
    uint32_t *out, *values_out; /* values_out NULL: sums */
    int n, begin_bit, end_bit;
};

/* What is enqueued: a device that is lost never comes to it. */
inline std::set<on_host_work *> &on_host_queue = *new std::set<on_host_work *>; /* reachable to the end */
inline std::mutex on_host_lock;

inline on_host_work *on_host_begin(const on_host_work &work) {
    std::lock_guard<std::mutex> guard(on_host_lock);
    return *on_host_queue.insert(new on_host_work(work)).first;
}

inline void on_host_end(on_host_work *w) {
    std::lock_guard<std::mutex> guard(on_host_lock);
    on_host_queue.erase(w);
    delete w;
}

inline void on_host_run(void *argument) {
    on_host_work *w = static_cast<on_host_work *>(argument);
    if (w->values_out) {
        std::vector<uint32_t> at(static_cast<size_t>(w->n));
        std::iota(at.begin(), at.end(), 0u);
        uint64_t mask = (UINT64_C(1) << w->end_bit) - (UINT64_C(1) << w->begin_bit);
        std::stable_sort(at.begin(), at.end(),
                         [&](uint32_t a, uint32_t b) { return (w->in[a] & mask) < (w->in[b] & mask); });
        for (int i = 0; i < w->n; i++) w->out[i] = w->in[at[i]], w->values_out[i] = w->values_in[at[i]];
    } else {
        std::partial_sum(w->in, w->in + w->n, w->out);
    }
    on_host_end(w);
}

inline cudaError_t on_host_enqueue(void *memory, size_t &bytes, const on_host_work &work, cudaStream_t stream) {
    size_t wanted = 256; /* of the real one's; nothing is written there */
    if (!memory) {
        bytes = wanted;
        return cudaSuccess;
    }
    if (bytes < wanted || work.n < 0) return cudaErrorInvalidValue;
    on_host_work *w = on_host_begin(work);
    cudaError_t error = cudaLaunchHostFunc(stream, on_host_run, w);
    if (error != cudaSuccess) on_host_end(w);
    return error == cudaSuccess ? cudaPeekAtLastError() : error; /* as CUB: an older error is taken for its own */
}

struct DeviceRadixSort {
    static cudaError_t SortPairs(void *memory, size_t &bytes, const uint32_t *keys_in, uint32_t *keys_out,
                                 const uint32_t *values_in, uint32_t *values_out, int n, int begin_bit, int end_bit,
                                 cudaStream_t stream) {
        return on_host_enqueue(memory, bytes, {keys_in, values_in, keys_out, values_out, n, begin_bit, end_bit},
                               stream);
    }
};
struct DeviceScan {
    static cudaError_t InclusiveSum(void *memory, size_t &bytes, const uint32_t *in, uint32_t *out, int n,
                                    cudaStream_t stream) {
        return on_host_enqueue(memory, bytes, {in, nullptr, out, nullptr, n, 0, 0}, stream);
    }
};

} /* namespace cub */

#endif
