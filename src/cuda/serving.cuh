/* serving.cuh - the calls of frugal_cuda_serve.h: lookups are enqueued; a version is made beside the old one, taken
 * over, and the old one is freed when the GPUs have done its lookups.
 *
 * Contents: >>lookups >>changes >>drift >>opening
 */
#ifndef FRUGAL_CUDA_SERVING_CUH
#define FRUGAL_CUDA_SERVING_CUH

#include "served.cuh"

#include <math.h>

namespace frugal_cuda {

/* >>lookups */

/* The form in which rows are moved to `to`, wherever they are read. */
static launch_form extraction_form(const served_view *v, const float *to, uint64_t stride) {
    int wide = v->dim % 4 == 0 && moves_fours(v->table, v->table_stride, v->rows_as);
    return {v->rows_as != FRUGAL_FP32, wide && moves_fours(to, stride, FRUGAL_FP32)};
}

/* As many blocks as the items fill, and no more than the GPU holds at a time. */
static uint32_t blocks_for(const serving_gpu *gpu, int pools, int wide, uint64_t items) {
    uint64_t each = BLOCK_THREADS / WARP * (wide ? 4 : 1), most = gpu->resident[pools][wide];
    uint64_t blocks = (items + each - 1) / each;
    return (uint32_t)(blocks < most ? blocks : most);
}

/* Reports a mistake of an earlier lookup, once. */
static frugal_status check_mistakes(const serving_gpu *gpu, const char *call) {
    if (__atomic_load_n(gpu->bad, __ATOMIC_RELAXED) == 0) return FRUGAL_OK;
    uint64_t bad = __atomic_exchange_n(gpu->bad, 0, __ATOMIC_RELAXED); /* a message */
    if (bad == BAD_KEY)
        return frugal_fail(FRUGAL_ERR_KEY, "%s: an earlier lookup on GPU %d had a key that is out of range", call,
                           gpu->ordinal);
    if (bad == BAD_BAGS)
        return frugal_fail(
            FRUGAL_ERR_ARGUMENT,
            "%s: an earlier lookup on GPU %d had bags whose offsets decrease, or do not go from 0 to the "
            "number of keys",
            call, gpu->ordinal);
    return FRUGAL_OK;
}

static frugal_status check_segments(const frugal_cuda_server *c, const frugal_keys *segments, uint32_t n_segments,
                                    const char *call, uint64_t *n) {
    *n = 0;
    if (n_segments > 0 && !segments) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no segments", call);
    for (uint32_t i = 0; i < n_segments; i++) {
        const frugal_keys *keys = &segments[i];
        if (keys->table >= c->n_tables)
            return frugal_fail(FRUGAL_ERR_TABLE, "%s: segment %u is of table %u; there are %u", call, i, keys->table,
                               c->n_tables);
        if (keys->n > 0 && !keys->keys == !keys->keys32)
            return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: segment %u: give `keys` or `keys32`", call, i);
        *n += keys->n;
    }
    if (*n <= UINT32_MAX) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_LIMIT, "%s: %llu keys; the limit is 2^32 - 1", call, (unsigned long long)*n);
}

static served_request request_of(const frugal_cuda_server *c, const frugal_keys *segments, uint32_t n_segments) {
    served_request r = {};
    for (uint32_t i = 0; i < n_segments; i++) {
        const frugal_keys *keys = &segments[i];
        uint64_t first = c->first_row[keys->table], rows = c->first_row[keys->table + 1] - first;
        const void *at = keys->keys ? (const void *)keys->keys : (const void *)keys->keys32;
        r.segments[i] = {at, first, rows, r.n, keys->keys ? 0u : 1u};
        r.n += keys->n;
    }
    r.n_segments = n_segments;
    return r;
}

/* Asks which lookups have ended; await_lookups does so for an older version. Returns how many uses are free. */
static uint32_t find_ended(serving_gpu *gpu, cudaError_t *error) {
    uint32_t ended = 0;
    for (uint32_t i = 0; i < gpu->n_uses && *error == cudaSuccess; i++) {
        lookup_use *use = &gpu->uses[i];
        if (use->version == gpu->now) {
            CUresult found = gpu->query_event((CUevent)use->ended);
            if (found == CUDA_SUCCESS) use->version = NULL;
            if (found != CUDA_SUCCESS && found != CUDA_ERROR_NOT_READY) *error = (cudaError_t)found;
        }
        ended += use->version == NULL;
    }
    return ended;
}

/* Makes room for twice as many uses; at first for 8. */
static cudaError_t add_uses(serving_gpu *gpu) {
    uint32_t n = gpu->n_uses > 4 ? 2 * gpu->n_uses : 8;
    lookup_use *uses = (lookup_use *)realloc(gpu->uses, n * sizeof *uses);
    if (uses) gpu->uses = uses;
    uint32_t *idle = uses ? (uint32_t *)realloc(gpu->idle, n * sizeof *idle) : NULL;
    if (idle) gpu->idle = idle;
    if (!idle) return cudaErrorMemoryAllocation;
    while (gpu->n_uses < n) {
        lookup_use use = {};
        cudaError_t error = cudaEventCreateWithFlags(&use.ended, cudaEventDisableTiming);
        if (error != cudaSuccess) return error;
        gpu->uses[gpu->n_uses++] = use;
    }
    return cudaSuccess;
}

/* Takes a use for one more lookup; the caller has the lock. Uses are asked whether their lookups have ended only when
 * none is free; if at least half of them have not, there are twice as many from now on. So the cost of a lookup does
 * not grow with their number. */
static cudaError_t take_use(serving_gpu *gpu, uint32_t *out) {
    cudaError_t error = cudaSuccess;
    if (gpu->n_idle == 0) {
        uint32_t ended = find_ended(gpu, &error);
        if (error == cudaSuccess && 2 * ended <= gpu->n_uses) error = add_uses(gpu);
        for (uint32_t i = gpu->n_uses; i-- > 0 && error == cudaSuccess;)
            if (!gpu->uses[i].version) gpu->idle[gpu->n_idle++] = i;
    }
    if (error == cudaSuccess) *out = gpu->idle[--gpu->n_idle];
    return error;
}

/* What a lookup enqueues: its segments, LAUNCH_SEGMENTS at a time; or its bags, which are one launch. */
static cudaError_t enqueue_extraction(const frugal_cuda_server *c, const serving_gpu *gpu, const served_view &view,
                                      cudaStream_t stream, const frugal_keys *segments, uint32_t n_segments,
                                      const frugal_bags *bags, float *rows, uint64_t stride) {
    cudaError_t error = cudaSuccess;
    const launch_form form = extraction_form(&view, rows, stride);
    if (bags) {
        served_request r = request_of(c, segments, n_segments);
        frugal_bags pooled = *bags;
        pooled.stride = stride;
        uint32_t grid = blocks_for(gpu, 1, form.wide, bags->n_bags);
        return FRUGAL_LAUNCH_FORM(form, frugal_extract_bags, grid, stream, view, r, pooled, rows);
    }
    for (uint32_t at = 0; at < n_segments && error == cudaSuccess; at += LAUNCH_SEGMENTS) {
        served_request r =
            request_of(c, segments + at, n_segments - at < LAUNCH_SEGMENTS ? n_segments - at : LAUNCH_SEGMENTS);
        uint32_t grid = blocks_for(gpu, 0, form.wide, r.n);
        if (r.n == 0) continue;
        error = FRUGAL_LAUNCH_FORM(form, frugal_extract, grid, stream, view, r, rows, stride);
        rows += (uint64_t)r.n * stride;
    }
    return error;
}

/* Enqueues a lookup in the current version, and an event behind it. Before the event the version is not freed. */
static cudaError_t enqueue_lookup(frugal_cuda_server *c, uint32_t g, cudaStream_t stream, const frugal_keys *segments,
                                  uint32_t n_segments, uint64_t n, const frugal_bags *bags, float *rows,
                                  uint64_t stride, uint64_t *step) {
    serving_gpu *gpu = &c->gpus[g];
    uint32_t i = 0;
    pthread_mutex_lock(&gpu->lock);
    cudaError_t error = take_use(gpu, &i);
    if (error == cudaSuccess && (bags ? bags->n_bags > 0 : n > 0)) {
        served_view view = gpu->now->parts[g].view;
        view.touches = gpu->touches, view.turn = gpu->keys_seen;
        gpu->keys_seen += (uint32_t)n | 1;
        error = enqueue_extraction(c, gpu, view, stream, segments, n_segments, bags, rows, stride ? stride : c->dim);
        gpu->uses[i].version = gpu->now; /* also if a part of it was not enqueued */
        cudaError_t noted = cudaEventRecord(gpu->uses[i].ended, stream);
        if (noted != cudaSuccess) cudaStreamSynchronize(stream), gpu->uses[i].version = NULL;
        if (error == cudaSuccess) error = noted;
    }
    if (error == cudaSuccess && step) *step = gpu->now->step;
    pthread_mutex_unlock(&gpu->lock);
    return error;
}

/* `stride` 0: dim. */
static frugal_status serve(frugal_cuda_server *c, uint32_t g, cudaStream_t stream, const frugal_keys *segments,
                           uint32_t n_segments, const frugal_bags *bags, float *rows, uint64_t stride, uint64_t *step,
                           const char *call) {
    uint64_t n;
    if (!c) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no server", call);
    if (g >= c->n) return frugal_fail(FRUGAL_ERR_DEVICE, "%s: GPU number %u; there are %u, from 0", call, g, c->n);
    serving_gpu *gpu = &c->gpus[g];
    frugal_status status = check_mistakes(gpu, call);
    if (status == FRUGAL_OK) status = check_segments(c, segments, n_segments, call, &n);
    if (status != FRUGAL_OK) return status;
    if (stride > 0 && stride < c->dim)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: a stride of %llu floats; rows have %u", call,
                           (unsigned long long)stride, c->dim);
    if (!rows && (bags ? bags->n_bags : n) > 0) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no array for rows", call);
    if (!stream) stream = cudaStreamLegacy; /* with any --default-stream */
    on_gpu on(gpu);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = (cudaError_t)on.result;
    if (error == cudaSuccess) error = cudaStreamIsCapturing(stream, &capture);
    if (error == cudaErrorStreamCaptureImplicit)
        return frugal_fail(FRUGAL_ERR_ORDER,
                           "%s: the NULL stream cannot be used while a blocking stream is being captured; give another "
                           "stream",
                           call);
    if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)
        return frugal_fail(FRUGAL_ERR_ORDER,
                           "%s: the stream is being captured, and the graph would read memory of this version after it "
                           "was freed; look up outside of captures",
                           call);
    if (error == cudaSuccess) error = enqueue_lookup(c, g, stream, segments, n_segments, n, bags, rows, stride, step);
    return fail_serving(gpu, error, "a lookup");
}

/* >>changes */

static frugal_status fail_check(const frugal_cuda_server *c, uint32_t g, uint32_t source) {
    const char *what = source == c->n ? "host memory" : "its own memory";
    if (source < c->n && source != g)
        return frugal_fail(FRUGAL_ERR_DEVICE,
                           "GPU %d reads other values than GPU %d has in its memory, although the driver grants "
                           "access: plan with a bandwidth of 0 for that pair",
                           c->gpus[g].ordinal, c->gpus[source].ordinal);
    return frugal_fail(FRUGAL_ERR_CUDA, "GPU %d reads other values than there are in %s", c->gpus[g].ordinal, what);
}

struct first_lookup { /* in pinned memory; behind it, the row */
    uint64_t key;
    uint32_t word, pad;
};

/* Copies the row of a key, as GPU g reads it. */
static frugal_status read_key(const frugal_cuda_server *c, uint32_t g, const served_view &view, uint64_t key,
                              first_lookup *memory) {
    const serving_gpu *gpu = &c->gpus[g];
    served_request one = {};
    memory->key = key;
    one.segments[0] = {&memory->key, 0, c->rows + c->n, 0, 0};
    one.n_segments = one.n = 1;
    const launch_form form = {view.rows_as != FRUGAL_FP32, 0};
    cudaError_t error =
        FRUGAL_LAUNCH_FORM(form, frugal_extract, 1, gpu->changes, view, one, (float *)(void *)(memory + 1), c->stride);
    return fail_serving(gpu, finish_changes(gpu, error), "a first lookup");
}

/* Is what a first lookup has read a row of the host? */
static int has_read(const frugal_cuda_server *c, const first_lookup *memory, const void *row) {
    const float *found = (const float *)(const void *)(memory + 1);
    int same = 1;
    for (uint32_t e = 0; e < c->dim; e++) {
        float wanted;
        frugal_convert(&wanted, FRUGAL_FP32, (const char *)row + e * frugal_type_bytes(c->rows_as), c->rows_as, 1);
        same &= !memcmp(&wanted, &found[e], sizeof wanted);
    }
    return same;
}

/* Reads row 0 of the table in host memory, and the first row that the version has changed, by the words that name
 * them. */
static frugal_status check_host(const frugal_cuda_server *c, uint32_t g, const served_version *v,
                                first_lookup *memory) {
    served_view view = v->parts[g].view;
    view.where = &memory->word;
    for (uint32_t changed = 0; changed < (v->n_changed ? 2u : 1u); changed++) {
        memory->word = changed ? c->n << view.slot_bits : IN_TABLE;
        frugal_status status = read_key(c, g, view, 0, memory);
        if (status != FRUGAL_OK) return status;
        if (!has_read(c, memory, changed ? v->changed : v->table->weights)) return fail_check(c, g, c->n);
    }
    return FRUGAL_OK;
}

/* Reads on GPU g a row of each source, which must equal the host's; and of each cache the slot that tells it from
 * others, because rows may be zeros. Peer access is tested, because there are cards whose driver grants it, and which
 * then read something else. */
static frugal_status check_part(const frugal_cuda_server *c, uint32_t g, const frugal_served_memory *m,
                                const served_version *v, first_lookup *memory) {
    const placed_rows *p = v->placed;
    const served_view &view = v->parts[g].view;
    const float *row = (const float *)(const void *)(memory + 1);
    uint64_t seen = 0;
    on_gpu on(&c->gpus[g]);
    frugal_status status = check_host(c, g, v, memory);
    for (uint64_t i = 0; i < p->n_rows && status == FRUGAL_OK; i++) {
        uint32_t source = source_of(p, g, i);
        if (source == FRUGAL_PLACE_HOST || seen >> source & 1) continue;
        seen |= UINT64_C(1) << source;
        status = read_key(c, g, view, p->rows[i], memory);
        if (status != FRUGAL_OK) break;
        if (!has_read(c, memory, served_row(m, p->rows[i]))) return fail_check(c, g, source);
        status = read_key(c, g, view, c->rows + source, memory);
        for (uint32_t e = 0; e < c->dim && status == FRUGAL_OK; e++) {
            float wanted = telling_value(p, source, e), stored;
            frugal_convert(&stored, c->rows_as, &wanted, FRUGAL_FP32, 1);
            frugal_convert(&wanted, FRUGAL_FP32, &stored, c->rows_as, 1);
            if (memcmp(&row[e], &wanted, sizeof wanted)) return fail_check(c, g, source);
        }
    }
    return status;
}

static frugal_status check_version(const frugal_cuda_server *c, const frugal_served_memory *m,
                                   const served_version *v) {
    first_lookup *memory = NULL;
    on_gpu on(&c->gpus[0]);
    cudaError_t error = cudaHostAlloc((void **)&memory, sizeof *memory + c->stride * sizeof(float),
                                      cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return fail_serving(&c->gpus[0], error, "memory for a first lookup");
    frugal_status status = FRUGAL_OK;
    for (uint32_t g = 0; g < c->n && status == FRUGAL_OK; g++) status = check_part(c, g, m, v, memory);
    cudaFreeHost(memory);
    return status;
}

/* Lookups see the version from now on. */
static void take_over(const frugal_cuda_server *c, served_version *v) {
    for (uint32_t g = 0; g < c->n; g++) {
        pthread_mutex_lock(&c->gpus[g].lock);
        c->gpus[g].now = v;
        pthread_mutex_unlock(&c->gpus[g].lock);
    }
}

/* Can this thread use all GPUs? If not, memory might be allocated on another one below. */
static frugal_status reach_all(const frugal_cuda_server *c) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t g = 0; g < c->n && status == FRUGAL_OK; g++) {
        on_gpu on(&c->gpus[g]);
        status = fail_serving(&c->gpus[g], (cudaError_t)on.result, "reaching the GPU");
    }
    return status;
}

/* Makes a version of what the server serves, and takes it over. */
static frugal_status change(frugal_cuda_server *c, const frugal_cuda_placement *placement) {
    frugal_served_memory m;
    served_version *before = c->gpus[0].now, *next = NULL;
    on_gpu on(&c->gpus[0]);
    frugal_status status = reach_all(c);
    if (status == FRUGAL_OK) status = frugal_serve_hold(c->server, &m);
    if (status != FRUGAL_OK) return status;
    if (!before || placement || before->number != m.version) {
        status = open_version(c, &m, before, placement, &next);
        if (status == FRUGAL_OK) status = check_version(c, &m, next);
    }
    frugal_serve_release(c->server, &m);
    if (status != FRUGAL_OK) {
        free_version(c, next);
    } else if (next) {
        take_over(c, next);
        free_version(c, before);
    }
    return status;
}

/* >>drift */

/* Clears memory, and waits for all that is enqueued on the stream of changes. */
static cudaError_t clear_on_gpu(const serving_gpu *gpu, void *memory, size_t bytes) {
    return finish_changes(gpu, cudaMemsetAsync(memory, 0, bytes, gpu->changes));
}

/* Halves what was counted before, and adds what the GPUs have counted since. */
static frugal_status collect_touches(frugal_cuda_server *c, uint32_t *memory, double *all) {
    on_gpu on_first(&c->gpus[0]);
    for (uint64_t row = 0; row < c->rows; row++) c->hotness[row] *= .5f;
    for (uint32_t g = 0; g < c->n; g++) {
        const serving_gpu *gpu = &c->gpus[g];
        on_gpu on(gpu);
        size_t bytes = c->rows * sizeof *memory;
        cudaError_t error = cudaMemcpyAsync(memory, gpu->touches, bytes, cudaMemcpyDeviceToHost, gpu->changes);
        if (error == cudaSuccess)
            error = clear_on_gpu(gpu, gpu->touches, bytes); /* touches in between are not counted */
        if (error != cudaSuccess) return fail_serving(gpu, error, "reading touches");
        for (uint64_t row = 0; row < c->rows; row++) c->hotness[row] += (float)memory[row];
    }
    *all = 0;
    for (uint64_t row = 0; row < c->rows; row++) *all += (double)c->hotness[row];
    return FRUGAL_OK;
}

/* Eight levels from one power of two to the next; level 0: never touched. */
static uint32_t level_of(float touches) {
    int exponent;
    if (touches <= 0) return 0;
    float fraction = frexpf(touches, &exponent); /* .5 to 1 */
    int level = 8 * exponent + (int)((fraction - .5f) * 16) + 64;
    return (uint32_t)(level < 1 ? 1 : level > 255 ? 255 : level);
}

/* Sorts all rows by level, the hottest first, and lists the levels. Returns their number. */
static uint32_t sort_by_level(const frugal_cuda_server *c, uint32_t *rows, frugal_place_level *levels) {
    uint64_t counts[256] = {}, at[256];
    double touches[256] = {};
    for (uint64_t row = 0; row < c->rows; row++) {
        uint32_t level = level_of(c->hotness[row]);
        counts[level]++, touches[level] += (double)c->hotness[row];
    }
    uint32_t n = 0;
    uint64_t before = 0;
    for (uint32_t level = 256; level-- > 0;) {
        at[level] = before, before += counts[level];
        if (counts[level] > 0) levels[n++] = {touches[level] / (double)counts[level] / c->n, counts[level]};
    }
    for (uint64_t row = 0; row < c->rows; row++) rows[at[level_of(c->hotness[row])]++] = (uint32_t)row;
    return n;
}

/* Predicts the seconds of a step with the server's version, as rows are cached now, by what is counted now. */
static double predict_now(const frugal_cuda_server *c, const frugal_served_memory *m,
                          const frugal_place_machine *machine, double all) {
    const placed_rows *p = c->gpus[0].now->placed;
    int same = c->gpus[0].now->table->number == m->file_number; /* else a refresh fills the caches anew */
    frugal_place_plan alone = {};
    alone.devices = c->n, alone.n = 1;
    alone.patterns[0].size = 1, alone.patterns[0].rows = p->cache_rows < p->n_rows ? p->cache_rows : p->n_rows;
    frugal_place_pattern *whole = &alone.patterns[0];
    for (uint32_t g = 0; g < c->n; g++) whole->group[g] = whole->member[0][g] = whole->member[1][g] = (uint8_t)g;
    const frugal_place_plan *plan = p->plan ? p->plan : &alone;
    double touches[FRUGAL_PLACE_MAX_PATTERNS + 1] = {}, cached = 0;
    uint64_t i = 0;
    for (uint32_t pattern = 0; pattern < plan->n; pattern++)
        for (uint64_t end = i + plan->patterns[pattern].rows; i < end && i < p->n_rows; i++)
            if (!same || !is_stale(p, m, p->rows[i])) touches[pattern] += (double)c->hotness[p->rows[i]] / c->n;
    for (uint32_t pattern = 0; pattern < plan->n; pattern++) cached += touches[pattern];
    touches[plan->n] = all / c->n - cached;
    return frugal_place_predict(machine, plan, touches);
}

static frugal_status fail_plan(frugal_place_status why) {
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_adapt: %s", frugal_place_strerror(why));
}

static frugal_status adapt(frugal_cuda_server *c, const frugal_place_machine *machine, frugal_place_policy policy,
                           double worse, frugal_cuda_drift *out) {
    frugal_place_level levels[256] = {{1, c->rows}};
    frugal_place_plan plan;
    frugal_place_status planned = frugal_place_make_plan(machine, levels, 1, policy, &plan);
    if (planned != FRUGAL_PLACE_OK) return fail_plan(planned);
    uint32_t *rows = (uint32_t *)malloc(c->rows * sizeof *rows);
    if (!rows) return fail_room("rows by their touches", c->rows * sizeof *rows);
    double all = 0;
    frugal_status status = collect_touches(c, rows, &all);
    uint32_t n = status == FRUGAL_OK ? sort_by_level(c, rows, levels) : 0;
    if (status == FRUGAL_OK && all > 0) planned = frugal_place_make_plan(machine, levels, n, policy, &plan);
    if (planned != FRUGAL_PLACE_OK) status = fail_plan(planned);
    frugal_served_memory m;
    if (status == FRUGAL_OK && all > 0 && (status = frugal_serve_hold(c->server, &m)) == FRUGAL_OK) {
        *out = {predict_now(c, &m, machine, all), plan.seconds, all * COUNTED, 0};
        frugal_serve_release(c->server, &m);
        const frugal_cuda_placement placement = {rows, c->rows, 0, &plan};
        int is_worse = out->seconds > (1 + worse) * out->planned_seconds;
        if (is_worse) status = change(c, &placement);
        out->placed = is_worse && status == FRUGAL_OK;
    }
    free(rows);
    return status;
}

/* >>opening */

static frugal_status open_counting(frugal_cuda_server *c) {
    c->hotness = (float *)calloc(c->rows, sizeof *c->hotness);
    if (!c->hotness) return fail_room("touches", c->rows * sizeof *c->hotness);
    for (uint32_t g = 0; g < c->n; g++) {
        serving_gpu *gpu = &c->gpus[g];
        on_gpu on(gpu);
        cudaError_t error = cudaMalloc((void **)&gpu->touches, c->rows * sizeof *gpu->touches);
        if (error == cudaSuccess) error = clear_on_gpu(gpu, gpu->touches, c->rows * sizeof *gpu->touches);
        if (error != cudaSuccess) return fail_serving(gpu, error, "memory for touches");
    }
    return FRUGAL_OK;
}

/* Loads the kernels for what is served: see load_kernels of attach.cuh. */
static cudaError_t load_extraction(serving_gpu *gpu, frugal_type rows_as, int processors) {
    uint32_t(*resident)[2] = gpu->resident;
    cudaError_t error = cudaSuccess;
#define FRUGAL_LOAD_EXTRACT(name, width, id)                                                                           \
    if (error == cudaSuccess)                                                                                          \
    error = rows_as == FRUGAL_FP32 ? load_kernel(name##_kernel<width>, processors, &resident[id][width == 4])          \
                                   : load_kernel(name##_typed_kernel<width>, processors, &resident[id][width == 4])
    FRUGAL_LOAD_EXTRACT(frugal_extract, 1, 0);
    FRUGAL_LOAD_EXTRACT(frugal_extract, 4, 0);
    FRUGAL_LOAD_EXTRACT(frugal_extract_bags, 1, 1);
    FRUGAL_LOAD_EXTRACT(frugal_extract_bags, 4, 1);
    return error;
}

static frugal_status open_serving_gpu(serving_gpu *gpu, frugal_type rows_as) {
    frugal_status status = open_context(gpu, "cuda_serve_open", "frugal_serve_lookup");
    if (status != FRUGAL_OK) return status;
    gpu->query_event = (CUresult(*)(CUevent))find_driver_call("cuEventQuery");
    gpu->enable_peer = (CUresult(*)(CUcontext, unsigned))find_driver_call("cuCtxEnablePeerAccess");
    if (!gpu->query_event || !gpu->enable_peer)
        return frugal_fail(FRUGAL_ERR_CUDA, "cuda_serve_open: the driver lacks calls that Toolkit 12 has: update it");
    int processors = 0;
    on_gpu on(gpu);
    cudaError_t error = (cudaError_t)on.result;
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu->ordinal);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&gpu->changes, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = load_extraction(gpu, rows_as, processors);
    status = check_code(gpu, "cuda_serve_open", error);
    return status == FRUGAL_OK ? fail_serving(gpu, error, "loading kernels") : status;
}

static frugal_status open_layout(frugal_cuda_server *c) {
    frugal_serve_info info;
    frugal_status status = frugal_serve_get_info(c->server, &info);
    if (status != FRUGAL_OK) return status;
    c->rows_as = info.rows_as;
    c->rows = info.rows, c->n_tables = info.n_tables, c->dim = info.dim, c->stride = (info.dim + 3) / 4 * 4;
    c->first_row = (uint64_t *)calloc(info.n_tables + 1, sizeof *c->first_row);
    if (!c->first_row) return fail_room("the list of tables", info.n_tables * sizeof *c->first_row);
    for (uint32_t t = 0; t < info.n_tables; t++)
        c->first_row[t + 1] = c->first_row[t] + frugal_serve_rows(c->server, t);
    return FRUGAL_OK;
}

static frugal_status open_server(frugal_cuda_server *c, const frugal_cuda_serve_desc *desc) {
    frugal_status status = open_layout(c);
    for (uint32_t g = 0; g < c->n && status == FRUGAL_OK; g++) {
        c->gpus[g].ordinal = desc->ordinals[g];
        status = open_serving_gpu(&c->gpus[g], c->rows_as);
    }
    if (status != FRUGAL_OK) return status;
    on_gpu on(&c->gpus[0]);
    cudaError_t error =
        cudaHostAlloc((void **)&c->words, c->n * sizeof *c->words, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return fail_serving(&c->gpus[0], error, "memory for messages");
    memset(c->words, 0, c->n * sizeof *c->words);
    for (uint32_t g = 0; g < c->n; g++) c->gpus[g].bad = &c->words[g];
    if (desc->count && (status = open_counting(c)) != FRUGAL_OK) return status;
    return change(c, &desc->placement);
}

/* Closes what has been opened of the GPUs. */
static void close_gpus(frugal_cuda_server *c) {
    on_gpu on_first(&c->gpus[0]);
    free_version(c, c->gpus[0].now);
    for (uint32_t g = 0; g < c->n && c->gpus[g].context; g++) {
        serving_gpu *gpu = &c->gpus[g];
        on_gpu on(gpu);
        for (uint32_t i = 0; i < gpu->n_uses; i++) cudaEventDestroy(gpu->uses[i].ended);
        if (gpu->changes) cudaStreamDestroy(gpu->changes);
        cudaFree(gpu->touches);
    }
    if (c->words) cudaFreeHost(c->words);
}

} /* namespace frugal_cuda */

extern "C" {

frugal_status frugal_cuda_serve_open(const frugal_cuda_serve_desc *desc, frugal_cuda_server **out) {
    using namespace frugal_cuda;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_open: `out` is NULL");
    *out = NULL;
    if (!desc || !desc->server || !desc->ordinals)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_open: no settings, no server or no ordinals");
    if (desc->gpus == 0 || desc->gpus > MOST_GPUS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_open: %u GPUs; there may be 1 to %u", desc->gpus,
                           MOST_GPUS);
    frugal_cuda_server *c = (frugal_cuda_server *)calloc(1, sizeof *c);
    serving_gpu *gpus = (serving_gpu *)calloc(desc->gpus, sizeof *gpus);
    if (!c || !gpus) {
        free(c), free(gpus);
        return fail_room("the server", sizeof *c + desc->gpus * sizeof *gpus);
    }
    c->server = desc->server, c->n = desc->gpus, c->gpus = gpus;
    pthread_mutex_init(&c->changing, NULL);
    for (uint32_t g = 0; g < c->n; g++) pthread_mutex_init(&gpus[g].lock, NULL);
    frugal_status status = open_server(c, desc);
    if (status == FRUGAL_OK)
        *out = c;
    else
        frugal_cuda_serve_close(c);
    return status;
}

void frugal_cuda_serve_close(frugal_cuda_server *c) {
    using namespace frugal_cuda;
    if (!c) return;
    if (c->gpus[0].context) close_gpus(c);
    for (uint32_t g = 0; g < c->n; g++) {
        free(c->gpus[g].uses), free(c->gpus[g].idle);
        pthread_mutex_destroy(&c->gpus[g].lock);
    }
    pthread_mutex_destroy(&c->changing);
    free(c->first_row), free(c->hotness), free(c->gpus), free(c);
}

frugal_status frugal_cuda_serve_lookup(frugal_cuda_server *c, uint32_t gpu, void *stream, const frugal_keys *segments,
                                       uint32_t n_segments, float *rows, uint64_t stride, uint64_t *step) {
    return frugal_cuda::serve(c, gpu, (cudaStream_t)stream, segments, n_segments, NULL, rows, stride, step,
                              "cuda_serve_lookup");
}

frugal_status frugal_cuda_serve_bags(frugal_cuda_server *c, uint32_t gpu, void *stream, const frugal_keys *segments,
                                     uint32_t n_segments, const frugal_bags *bags, float *pooled, uint64_t *step) {
    const char *call = "cuda_serve_bags";
    if (!bags || (bags->n_bags > 0 && !bags->offsets))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no bags, or no offsets", call);
    uint32_t pooling; /* C++ may not look at an enum whose value is none of its own */
    memcpy(&pooling, &bags->pooling, sizeof pooling);
    if (pooling > FRUGAL_POOL_MEAN || (pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: pooling %u%s; there are 0 (sum) and 1 (mean, without weights)",
                           call, pooling, bags->weights ? " with weights" : "");
    if (n_segments > frugal_cuda::LAUNCH_SEGMENTS)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%s: %u segments; the limit is %u", call, n_segments,
                           frugal_cuda::LAUNCH_SEGMENTS);
    return frugal_cuda::serve(c, gpu, (cudaStream_t)stream, segments, n_segments, bags, pooled, bags->stride, step,
                              call);
}

frugal_status frugal_cuda_serve_refresh(frugal_cuda_server *c) {
    if (!c) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_refresh: no server");
    pthread_mutex_lock(&c->changing);
    frugal_status status = frugal_cuda::change(c, NULL);
    pthread_mutex_unlock(&c->changing);
    return status;
}

frugal_status frugal_cuda_serve_place(frugal_cuda_server *c, const frugal_cuda_placement *placement) {
    if (!c || !placement) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_place: no server, or no placement");
    pthread_mutex_lock(&c->changing);
    frugal_status status = frugal_cuda::change(c, placement);
    pthread_mutex_unlock(&c->changing);
    return status;
}

frugal_status frugal_cuda_serve_adapt(frugal_cuda_server *c, const frugal_place_machine *machine,
                                      frugal_place_policy policy, double worse, frugal_cuda_drift *out) {
    frugal_cuda_drift found = {};
    if (!c || !machine || !(worse >= 0))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_adapt: no server, no machine, or `worse` is not 0 or more");
    if (!c->hotness)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_adapt: touches are not counted: open with `count`");
    if (machine->devices != c->n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_serve_adapt: a machine of %u devices; there are %u",
                           machine->devices, c->n);
    pthread_mutex_lock(&c->changing);
    frugal_status status = frugal_cuda::adapt(c, machine, policy, worse, &found);
    pthread_mutex_unlock(&c->changing);
    if (out) *out = found;
    return status;
}
}

#endif /* FRUGAL_CUDA_SERVING_CUH */
