/* graphs.h - captures of a stream, and graphs. */
#ifndef ON_HOST_GRAPHS_H
#define ON_HOST_GRAPHS_H

#include "streams.h"

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    static counter calls(__func__);
    if (!stream || stream == cudaStreamLegacy) return end(cudaErrorStreamCaptureUnsupported);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (stream->capturing) return end(cudaErrorIllegalState);
    stream->capture = new CUgraph_st;
    stream->mode = mode;
    stream->capturer = std::this_thread::get_id();
    stream->capturing = cudaStreamCaptureStatusActive;
    return end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    static counter calls(__func__);
    *graph = nullptr;
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (!stream->capturing) return end(cudaErrorIllegalState);
    if (stream->mode != cudaStreamCaptureModeRelaxed && stream->capturer != std::this_thread::get_id())
        return end(cudaErrorStreamCaptureWrongThread);
    bool good = stream->capturing == cudaStreamCaptureStatusActive;
    stream->capturing = cudaStreamCaptureStatusNone;
    if (good)
        world().graphs.insert(*graph = stream->capture);
    else
        delete stream->capture;
    stream->capture = nullptr;
    return end(good ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream, true)) return end(e);
    *status = stream->capturing;
    return end(cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    std::swap(thread_mode, *mode);
    return end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (flags || !world().graphs.count(graph)) return end(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{std::make_shared<const std::vector<task>>(graph->nodes)};
    world().execs.insert(*exec);
    return end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *node, char *log,
                                 size_t bytes) {
    if (node) *node = nullptr;
    if (log && bytes) *log = '\0';
    return cudaGraphInstantiate(exec, graph, 0ull);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (!world().execs.count(exec)) return end(cudaErrorInvalidValue);
    auto nodes = exec->nodes;
    hold.unlock();
    if (stream->capturing) fail(here(), "cudaGraphLaunch in a capture is not emulated");
    device *d = stream->on;
    push(stream, [nodes, d] {
        for (const task &node : *nodes)
            if (!d->lost) node();
    });
    return end(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (!world().execs.erase(exec)) return end(cudaErrorInvalidValue);
    delete exec;
    return end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (!world().graphs.erase(graph)) return end(cudaErrorInvalidValue);
    delete graph;
    return end(cudaSuccess);
}

#endif /* ON_HOST_GRAPHS_H */
