/* enqueue.cuh - puts a step's kernels on the caller's stream, and gathers rows on the host for a GPU that cannot reach
 * the table. */
#ifndef FRUGAL_CUDA_ENQUEUE_CUH
#define FRUGAL_CUDA_ENQUEUE_CUH

#include "lookup.cuh"
#include "update.cuh"
#include "write_back.cuh"
#include "batches.cuh"

#include <string.h>

namespace frugal_cuda {

/* As many blocks as the items fill, but no more than the GPU holds at a time; each block does its share of the
 * items. */
static uint32_t grid_for(const gpu_device *c, kernel_id kernel, uint64_t items, int wide) {
    uint64_t each = BLOCK_THREADS / WARP * (wide ? 4 : 1);
    uint64_t blocks = (items + each - 1) / each, most = c->resident[kernel][wide != 0];
    return (uint32_t)(blocks == 0 ? 1 : blocks < most ? blocks : most);
}

/* Launches a kernel in its form for 16 or for 4 bytes; a cudaError_t. */
#define FRUGAL_LAUNCH_WIDE(wide, kernel, grid, stream, ...)                                                            \
    ((wide) ? FRUGAL_LAUNCH(kernel<4>, grid, BLOCK_THREADS, stream, __VA_ARGS__)                                       \
            : FRUGAL_LAUNCH(kernel<1>, grid, BLOCK_THREADS, stream, __VA_ARGS__))

static int is_aligned(const void *pointer) {
    return (uintptr_t)pointer % 16 == 0;
}

/* Are host rows aligned, so that they can be moved 16 bytes at a time? (Copies and records are, if dim is a multiple of
 * four.) */
static int is_wide(const gpu_view *g) {
    int state = g->state_floats <= 1 || (is_aligned(g->state) && g->state_stride % 4 == 0);
    return g->dim % 4 == 0 && is_aligned(g->weights) && g->weights_stride % 4 == 0 && state;
}

/* A step as kernels see it, from what the loader has prepared. */
static gpu_step gpu_step_of(gpu_device *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const batch_ahead *a = ahead_of(c, step->step);
    unsigned char *first = (unsigned char *)c->blocks.memory.start;
    gpu_step given = {};
    given.step = step->step;
    given.rows = a->arrays, given.start = a->arrays + c->pitch;
    given.order = a->arrays + 2 * c->pitch, given.record_of = a->arrays + 3 * c->pitch;
    given.valid = a->is_told ? (const uint64_t *)(const void *)a->tail : c->ones;
    if (is_counted(c)) given.worth = a->tail + a->worth_at;
    given.outdated = (const uint32_t *)(const void *)(a->tail + a->outdated_at);
    if (a->has_secondaries) given.secondaries = a->secondaries, given.secondary_copies = c->secondary_copies;
    given.chunks = (const row_chunk *)(const void *)(a->tail + a->chunks_at);
    if (step->alone)
        given.alone = (const uint64_t *)(const void *)(c->alone_seen + ((const unsigned char *)step->alone -
                                                                        (unsigned char *)c->pins->alone.memory.start));
    given.block = (float *)(void *)(c->blocks_seen + ((unsigned char *)r->block - first));
    given.n = r->n, given.n_unique = r->n_unique, given.n_chunks = sorts(c) ? a->found->n_chunks : a->n_chunks,
    given.n_outdated = a->n_outdated;
    given.record_stride = (uint32_t)r->stride;
    /* A lookup after one that failed half way counts as repeated, too; one after a replay that never began does not. */
    given.repeated = c->gathered_for == step->step + 1, given.waits = (uint32_t)c->desc.gate_on_stream;
    return given;
}

constexpr uint32_t ROWS_AHEAD = 24; /* rows that the host prefetches ahead when it gathers */

/* Gathers rows on the host for a GPU that cannot reach the table. The step before is over, so the buffer is free. Rows
 * that were already gathered for this step are still the same. */
static void gather_on_host(const gpu_device *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *s = c->store;
    float *state = c->gathered + (uint64_t)frugal_settings(c->f)->max_keys * c->view.weights_stride;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + ROWS_AHEAD < r->n_unique)
            for (uint64_t at = 0; at < frugal_row_bytes(s) && at < 2048; at += 64)
                __builtin_prefetch((const char *)frugal_row_at(s, r->rows[u + ROWS_AHEAD]) + at);
        memcpy(c->gathered + u * c->view.weights_stride, frugal_row_at(s, r->rows[u]), frugal_row_bytes(s));
        if (s->state_floats && (c->view.sets > 0 || c->n_secondaries > 0))
            memcpy(state + u * c->view.state_stride, s->state + (uint64_t)r->rows[u] * s->state_stride,
                   s->state_floats * sizeof(float));
    }
}

/* Makes the stream wait until the gate of the step is open. */
static frugal_status enqueue_gate(gpu_device *c, uint64_t step) {
    if (!c->desc.gate_on_stream) return FRUGAL_OK;
    cudaError_t error;
    if (c->driver.wait_value) /* the driver's errors have the runtime's numbers */
        error = (cudaError_t)c->driver.wait_value((CUstream)c->stream, (CUdeviceptr)(uintptr_t)c->view.gates, step + 1,
                                                  CU_STREAM_WAIT_VALUE_GEQ);
    else
        error = FRUGAL_LAUNCH(frugal_gate_kernel, 1, WARP, c->stream, c->view.gates, step);
    if (error == cudaSuccess) c->gates_enqueued = step + 1;
    return check_cuda(c, error, "waiting for the gate");
}

/* `stride`: floats from row to row of `rows`, which are by bag if there are bags. */
static frugal_status enqueue_lookup(gpu_device *c, const gpu_step &step, const frugal_bags *bags, float *rows,
                                    uint64_t stride) {
    const gpu_view &g = c->view;
    int by_record = bags || !rows, wide = is_wide(&g) && is_aligned(rows) && stride % 4 == 0;
    float *out = bags ? g.unique : rows;
    uint64_t out_stride = bags ? g.unique_stride : rows ? stride : step.record_stride;
    cudaError_t error = cudaSuccess;
    if (step.n_unique > 0) {
        uint32_t grid = grid_for(c, g.keeps ? KERNEL_LOOKUP_KEPT : KERNEL_LOOKUP, step.n_unique, wide);
        if (step.waits && (g.keeps || !out)) /* in a graph, frugal_begin_kernel does this */
            error = FRUGAL_LAUNCH(frugal_forced_kernel, 1, WARP, c->stream, g, step.step);
        if (error == cudaSuccess && g.keeps && g.sets > 0 && g.policy != FRUGAL_CACHE_STATIC) /* it evicts none */
            error = FRUGAL_LAUNCH(frugal_touch_kernel, grid, BLOCK_THREADS, c->stream, g, step);
        if (error == cudaSuccess && g.keeps)
            error = FRUGAL_LAUNCH_WIDE(wide, frugal_lookup_kept_kernel, grid, c->stream, g, step, out, out_stride,
                                       by_record);
        else if (error == cudaSuccess)
            error =
                FRUGAL_LAUNCH_WIDE(wide, frugal_lookup_kernel, grid, c->stream, g, step, out, out_stride, by_record, 0);
        if (error == cudaSuccess && !step.replayed) c->gathered_for = step.step + 1;
    }
    if (error == cudaSuccess && step.n_chunks > 0 && !by_record)
        error = FRUGAL_LAUNCH_WIDE(wide, frugal_spread_kernel, grid_for(c, KERNEL_SPREAD, step.n_chunks, wide),
                                   c->stream, g, step, out, out_stride);
    if (error == cudaSuccess && bags && bags->n_bags > 0) {
        frugal_bags pooled = *bags;
        pooled.stride = stride;
        error = FRUGAL_LAUNCH_WIDE(wide, frugal_pool_kernel, grid_for(c, KERNEL_POOL, bags->n_bags, wide), c->stream, g,
                                   step, pooled, rows);
    }
    return check_cuda(c, error, "lookup");
}

/* Enqueues the kernel that writes back rows[n], which the GPU reaches, or all copies if `rows` is NULL. */
static frugal_status enqueue_write_back(gpu_device *c, const uint32_t *rows, uint64_t n) {
    const gpu_view *g = &c->view;
    uint64_t items = rows ? n : g->sets * WAYS;
    int wide = is_wide(g);
    cudaError_t error = FRUGAL_LAUNCH_WIDE(wide, frugal_write_back_kernel, grid_for(c, KERNEL_WRITE_BACK, items, wide),
                                           c->back_stream, *g, rows, items);
    c->cleanings += error == cudaSuccess;
    return check_cuda(c, error, "writing rows back");
}

static gradient_source gradient_source_of(const gpu_device *c, const float *grads, uint64_t stride,
                                          const frugal_bags *bags) {
    gradient_source s = {};
    s.grads = grads, s.stride = stride;
    if (!bags) return s;
    s.bag_of = c->view.bag_of, s.offsets = bags->offsets, s.weights = bags->weights;
    s.n_bags = bags->n_bags, s.mean = bags->pooling == FRUGAL_POOL_MEAN;
    return s;
}

/* Writes the step's numbers to where kernels find them. Those of the step 64 earlier have been fetched, because that
 * step is committed. */
static void send_hypers(gpu_device *c, gpu_step *step, const frugal_hyper *hyper) {
    uint32_t n = c->view.n_groups;
    if (!hyper) return;
    step->hyper = hyper[0];
    if (!c->hypers_sent) return;
    frugal_hyper *sent = c->hypers_sent + step->step % FRUGAL_P2F_SLOTS * n;
    /* A call that failed half way is repeated with the same numbers, and what it has enqueued may be reading them. */
    if (memcmp(sent, hyper, n * sizeof *hyper)) memcpy(sent, hyper, n * sizeof *hyper);
}

/* An update that is refused is repeated. It must not be applied twice, to copies or to host rows. So one launch applies
 * it and raises `done`, and is the last call that can fail: either it is refused, and nothing is applied, or the update
 * succeeds. In a graph the caller launches; frugal_cuda_replay only writes what the kernels will find. */
static frugal_status enqueue_update(gpu_device *c, const gpu_step &step, const gradient_source &s) {
    const gpu_view &g = c->view;
    int wide = is_wide(&g) && is_aligned(s.grads) && s.stride % 4 == 0;
    /* Records do not depend on the rule; copies and rows in place do. A graph always has it, because rows may be
     * listed, whose copies take steps, before it is replayed. */
    int by_rule = g.groups && (g.sets > 0 || c->n_secondaries > 0 || g.alone || step.replayed);
    uint64_t items = step.brings ? (uint64_t)step.n_unique + step.n_chunks : 0;
    uint32_t grid = grid_for(c,
                             g.alone   ? KERNEL_UPDATE_PLACE
                             : by_rule ? KERNEL_UPDATE_GROUPS
                                       : KERNEL_UPDATE,
                             items, wide);
    cudaError_t error = cudaSuccess;
    if (by_rule && step.brings && !step.replayed) /* in a graph, frugal_begin_kernel does this */
        error = FRUGAL_LAUNCH(frugal_hyper_kernel, 1, BLOCK_THREADS, c->stream, g, step.step);
    if (error != cudaSuccess) return check_cuda(c, error, "update");
    if (g.alone)
        error = FRUGAL_LAUNCH_WIDE(wide, frugal_update_place_kernel, grid, c->stream, g, step, s);
    else if (by_rule)
        error = FRUGAL_LAUNCH_WIDE(wide, frugal_update_groups_kernel, grid, c->stream, g, step, s);
    else
        error = FRUGAL_LAUNCH_WIDE(wide, frugal_update_kernel, grid, c->stream, g, step, s);
    return check_cuda(c, error, "update");
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_ENQUEUE_CUH */
