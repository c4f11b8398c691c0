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
static uint32_t grid_for(const gpu_device *c, kernel_id kernel, uint64_t items, launch_form form) {
    uint64_t each = BLOCK_THREADS / WARP * (form.wide ? 4 : 1);
    uint64_t blocks = (items + each - 1) / each, most = c->resident[kernel][form.typed != 0][form.wide != 0];
    return (uint32_t)(blocks == 0 ? 1 : blocks < most ? blocks : most);
}

/* Can host rows be moved four elements at a time? (Those of copies and records can, if dim is a multiple of four.) */
static int is_wide(const gpu_view *g) {
    int state = g->state_floats <= 1 || moves_fours(g->state, g->state_stride, FRUGAL_FP32);
    return g->dim % 4 == 0 && moves_fours(g->weights, g->weights_stride, g->rows_as) && state;
}

/* The same of rows and of an array. */
static int is_wide_with(const gpu_view *g, const void *array, uint64_t stride, frugal_type as) {
    return is_wide(g) && moves_fours(array, stride, as);
}

/* The form of a kernel that moves rows, and no array of the caller. */
static launch_form rows_form(const gpu_view *g) {
    return {g->rows_as != FRUGAL_FP32, is_wide(g)};
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
    if (step->guests) {
        given.n_guests = r->n_unique - step->n_own;
        given.guests = c->guests_seen + (step->guests - (unsigned char *)c->guests.memory.start);
        given.guest_at = (const uint32_t *)(const void *)(c->guests_seen + ((const unsigned char *)step->guest_at -
                                                                            (unsigned char *)c->guests.memory.start));
    }
    if (sends_ids(c)) given.ids = (const uint32_t *)(const void *)(a->tail + a->ids_at);
    given.n = r->n, given.n_unique = r->n_unique, given.n_chunks = sorts(c) ? a->found->n_chunks : a->n_chunks,
    given.n_outdated = a->n_outdated;
    given.record_stride = (uint32_t)r->stride;
    /* A lookup after one that failed half way counts as repeated, too; one after a replay that never began does not. */
    given.repeated = c->gathered_for == step->step + 1, given.waits = (uint32_t)c->desc.gate_on_stream;
    return given;
}

constexpr uint32_t ROWS_AHEAD = 24; /* rows that the host prefetches ahead when it gathers */

/* Gathers rows on the host for a GPU that cannot reach the table. The step before is over, so the buffer is free. Rows
 * that were already gathered for this step are still the same. It reaches those of other machines. */
static void gather_on_host(const gpu_device *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *s = c->store;
    float *state = (float *)(void *)(c->gathered + c->gathered_state_at);
    uint64_t apart = c->view.weights_stride * frugal_type_bytes(s->rows_as);
    for (uint32_t u = 0; u < step->n_own; u++) {
        if (u + ROWS_AHEAD < step->n_own)
            for (uint64_t at = 0; at < frugal_row_bytes(s) && at < 2048; at += 64)
                __builtin_prefetch((const char *)frugal_row_at(s, r->rows[u + ROWS_AHEAD]) + at);
        memcpy(c->gathered + u * apart, frugal_row_at(s, r->rows[u]), frugal_row_bytes(s));
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

/* The kernels that gather the step's unique rows. */
static cudaError_t enqueue_gather(gpu_device *c, const gpu_step &step, const row_output &to, launch_form form) {
    const gpu_view &g = c->view;
    cudaError_t error = cudaSuccess;
    const int kept = g.keeps && !form.typed; /* for any types there is one kernel */
    uint32_t grid = grid_for(c, kept ? KERNEL_LOOKUP_KEPT : KERNEL_LOOKUP, step.n_unique, form);
    if (step.waits && (g.keeps || !to.rows)) /* in a graph, frugal_begin_kernel does this */
        error = FRUGAL_LAUNCH(frugal_forced_kernel, 1, WARP, c->stream, g, step.step);
    if (error == cudaSuccess && g.keeps && g.sets > 0 && g.policy != FRUGAL_CACHE_STATIC) /* it evicts none */
        error = FRUGAL_LAUNCH(frugal_touch_kernel, grid, BLOCK_THREADS, c->stream, g, step);
    if (error == cudaSuccess && kept)
        error = FRUGAL_LAUNCH_WIDE(form.wide, frugal_lookup_kept_kernel, grid, c->stream, g, step, to);
    else if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_FORM(form, frugal_lookup, grid, c->stream, g, step, to, 0);
    if (error == cudaSuccess && !step.replayed) c->gathered_for = step.step + 1;
    return error;
}

/* `to`: the array of the caller, by bag if there are bags, else by position; without `rows`, the block. */
static frugal_status enqueue_lookup(gpu_device *c, const gpu_step &step, const frugal_bags *bags,
                                    const row_output &to) {
    const gpu_view &g = c->view;
    row_output out = to; /* of rows, before they are pooled */
    if (bags) out = {g.unique, g.unique_stride, FRUGAL_FP32, 1};
    if (!bags && !to.rows) out = {NULL, step.record_stride, FRUGAL_FP32, 1};
    const int typed = to.as != FRUGAL_FP32, wide = is_wide_with(&g, to.rows, to.stride, to.as);
    const launch_form form = {typed, wide}, form_of_rows = {g.rows_as != FRUGAL_FP32 || out.as != FRUGAL_FP32, wide};
    cudaError_t error = cudaSuccess;
    if (step.n_unique > 0) error = enqueue_gather(c, step, out, form_of_rows);
    if (error == cudaSuccess && step.n_chunks > 0 && !out.by_record)
        error = FRUGAL_LAUNCH_FORM(form, frugal_spread, grid_for(c, KERNEL_SPREAD, step.n_chunks, form), c->stream, g,
                                   step, out);
    if (error == cudaSuccess && bags && bags->n_bags > 0)
        error = FRUGAL_LAUNCH_FORM(form, frugal_pool, grid_for(c, KERNEL_POOL, bags->n_bags, form), c->stream, g, step,
                                   *bags, to);
    return check_cuda(c, error, "lookup");
}

/* Enqueues the kernel that writes back rows[n], which the GPU reaches, or all copies if `rows` is NULL. */
static frugal_status enqueue_write_back(gpu_device *c, const uint32_t *rows, uint64_t n) {
    const gpu_view *g = &c->view;
    uint64_t items = rows ? n : g->sets * WAYS;
    const launch_form form = rows_form(g);
    cudaError_t error = FRUGAL_LAUNCH_FORM(form, frugal_write_back, grid_for(c, KERNEL_WRITE_BACK, items, form),
                                           c->back_stream, *g, rows, items);
    c->cleanings += error == cudaSuccess;
    return check_cuda(c, error, "writing rows back");
}

static gradient_source gradient_source_of(const gpu_device *c, const void *grads, uint64_t stride, frugal_type as,
                                          const frugal_bags *bags) {
    gradient_source s = {};
    s.grads = grads, s.stride = stride, s.as = as;
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
    launch_form form = {g.rows_as != FRUGAL_FP32, is_wide_with(&g, s.grads, s.stride, s.as)};
    if (s.grads && s.as != FRUGAL_FP32) form.typed = 1;
    /* Records do not depend on the rule; copies and rows in place do. A graph always has it, because rows may be
     * listed, whose copies take steps, before it is replayed. */
    int by_rule = g.groups && (g.sets > 0 || c->n_secondaries > 0 || g.alone || step.replayed);
    uint64_t items = step.brings ? (uint64_t)step.n_unique + step.n_chunks : 0;
    const kernel_id kernel = form.typed ? KERNEL_UPDATE
                             : g.alone  ? KERNEL_UPDATE_PLACE
                             : by_rule  ? KERNEL_UPDATE_GROUPS
                                        : KERNEL_UPDATE;
    uint32_t grid = grid_for(c, kernel, items, form);
    cudaError_t error = cudaSuccess;
    if (by_rule && step.brings && !step.replayed) /* in a graph, frugal_begin_kernel does this */
        error = FRUGAL_LAUNCH(frugal_hyper_kernel, 1, BLOCK_THREADS, c->stream, g, step.step);
    if (error != cudaSuccess) return check_cuda(c, error, "update");
    if (kernel == KERNEL_UPDATE_PLACE)
        error = FRUGAL_LAUNCH_WIDE(form.wide, frugal_update_place_kernel, grid, c->stream, g, step, s);
    else if (kernel == KERNEL_UPDATE_GROUPS)
        error = FRUGAL_LAUNCH_WIDE(form.wide, frugal_update_groups_kernel, grid, c->stream, g, step, s);
    else
        error = FRUGAL_LAUNCH_FORM(form, frugal_update, grid, c->stream, g, step, s);
    return check_cuda(c, error, "update");
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_ENQUEUE_CUH */
