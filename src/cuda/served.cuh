/* served.cuh - a served version as GPUs have it: the table pinned, caches filled by a placement, and for each GPU the
 * words that say where it reads each row. Versions of one base share its pinned memory; versions of one placement share
 * their caches. Nothing of a version changes once lookups see it.
 *
 * Contents: >>freeing >>making
 */
#ifndef FRUGAL_CUDA_SERVED_CUH
#define FRUGAL_CUDA_SERVED_CUH

#include "../../frugal_cuda_serve.h"
#include "context.cuh"
#include "extract.cuh"
#include "registration.cuh"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace frugal_cuda {

constexpr uint32_t MOST_GPUS = FRUGAL_PLACE_MAX_DEVICES;
constexpr uint32_t FILL_ROWS = 4096; /* rows copied to a cache at a time */

struct served_table { /* host memory that versions of one base share */
    uint32_t users;
    uint64_t number; /* frugal_served_memory.file_number */
    void *map;
    size_t bytes;
    const void *weights;
    int is_pinned, left; /* left: unregistering has failed, and the map stays */
};

struct placed_rows { /* caches, filled by a placement */
    uint32_t users;
    uint64_t version;  /* from which they were filled */
    uint64_t *changed; /* the bits of its rows that differ from the base; NULL: none */
    uint32_t *rows;    /* rows[n_rows], as in frugal_cuda_placement */
    uint64_t n_rows, cache_rows;
    frugal_place_plan *plan; /* or NULL */
    /* Of each GPU: its slots, [][stride] of the server, and one more, whose values tell this cache from others. */
    unsigned char *caches[MOST_GPUS];
};

struct served_version;

struct
    lookup_use { /* a lookup that was enqueued. Its stream is not noted: it may be destroyed, and its handle reused */
    cudaEvent_t ended;
    const served_version *version; /* NULL: it has ended */
};

struct served_part { /* a version on one GPU */
    uint32_t *where; /* where[rows + gpus]: the last ones name the slots that tell caches apart */
    const void **sources;
    served_view view;
};

struct served_version {
    uint64_t number, step;
    served_table *table;
    placed_rows *placed;
    unsigned char *changed; /* [n_changed][stride] weights, in pinned host memory; NULL: none */
    uint64_t n_changed;
    served_part parts[MOST_GPUS];
};

struct serving_gpu : gpu_context {
    pthread_mutex_t lock; /* a lookup holds it from reading `now` to its event; also protects `uses` */
    served_version *now;
    lookup_use *uses; /* uses[n_uses], of which idle[n_idle] are free, the last one first */
    uint32_t *idle, n_uses, n_idle;
    CUresult (*query_event)(CUevent); /* the driver's: the runtime's would overwrite the caller's last error */
    CUresult (*enable_peer)(CUcontext, unsigned);
    cudaStream_t changes;    /* versions are made on it; it waits for no other one, and none for it */
    uint32_t resident[2][2]; /* blocks held at a time, of extraction and of pooling, by one element and by four */
    uint64_t *bad;           /* in pinned host memory */
    uint32_t *touches;       /* in the GPU's memory; NULL: not counted */
    uint32_t keys_seen; /* by lookups, mod 2^32; an odd number each, so that no position is always counted, or never */
};

} /* namespace frugal_cuda */

struct frugal_cuda_server {
    frugal_server *server;
    uint64_t rows, stride; /* of all tables; weights of a cached row */
    frugal_type rows_as;
    uint32_t n_tables, dim, n;
    uint64_t *first_row; /* first_row[n_tables + 1] */
    uint64_t *words;     /* words[n]: `bad` of each GPU, pinned */
    frugal_cuda::serving_gpu *gpus;
    pthread_mutex_t changing; /* also protects `hotness` */
    float *hotness;           /* hotness[rows]: aged touches; NULL: they are not counted */
};

namespace frugal_cuda {

static frugal_status fail_serving(const serving_gpu *gpu, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return FRUGAL_OK;
    return frugal_fail(error == cudaErrorMemoryAllocation ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_CUDA,
                       "serving on GPU %d: %s: %s (%s)", gpu->ordinal, what, cudaGetErrorString(error),
                       cudaGetErrorName(error));
}

static frugal_status fail_room(const char *what, uint64_t bytes) {
    return frugal_fail(FRUGAL_ERR_MEMORY, "serving on GPUs: %llu bytes for %s are not available",
                       (unsigned long long)bytes, what);
}

/* >>freeing: each accepts what was made in part */

static void free_table(served_table *t) {
    if (!t || --t->users > 0) return;
    int left = t->left || (t->is_pinned && unregister_memory({t->map, t->bytes, 0}, t->bytes) != cudaSuccess);
    if (t->map && !left) munmap(t->map, t->bytes);
    free(t);
}

static void free_placed(const frugal_cuda_server *c, placed_rows *p) {
    if (!p || --p->users > 0) return;
    for (uint32_t g = 0; g < c->n; g++) {
        on_gpu on(&c->gpus[g]);
        cudaFree(p->caches[g]);
    }
    free(p->rows), free(p->plan), free(p->changed), free(p);
}

/* Waits until the GPU has done all lookups of a version that no lookup sees any more. Until then no other thread takes
 * their uses (find_ended), so the events are not those of later lookups. */
static void await_lookups(serving_gpu *gpu, const served_version *v) {
    pthread_mutex_lock(&gpu->lock);
    for (uint32_t i = 0; i < gpu->n_uses; i++) {
        if (gpu->uses[i].version != v) continue;
        cudaEvent_t ended = gpu->uses[i].ended;
        pthread_mutex_unlock(&gpu->lock);
        cudaEventSynchronize(ended); /* it fails if the GPU is lost, which then does nothing any more */
        pthread_mutex_lock(&gpu->lock);
        gpu->uses[i].version = NULL;
    }
    pthread_mutex_unlock(&gpu->lock);
}

/* Waits until the GPUs have done all lookups of the version, and frees it. */
static void free_version(const frugal_cuda_server *c, served_version *v) {
    if (!v) return;
    for (uint32_t g = 0; g < c->n; g++) {
        served_part *part = &v->parts[g];
        on_gpu on(&c->gpus[g]);
        await_lookups(&c->gpus[g], v);
        cudaFree(part->where), cudaFree((void *)part->sources);
    }
    on_gpu on(&c->gpus[0]);
    if (v->changed) cudaFreeHost(v->changed);
    free_placed(c, v->placed);
    free_table(v->table);
    free(v);
}

/* >>making */

/* Maps and pins the memory that versions of a base share. */
static frugal_status open_table(const frugal_cuda_server *c, const frugal_served_memory *m, served_table **out) {
    served_table *t = (served_table *)calloc(1, sizeof *t);
    if (!t) return fail_room("the table", sizeof *t);
    *out = t;
    t->users = 1, t->number = m->file_number, t->bytes = (size_t)m->file_bytes;
    void *map = m->file < 0 ? MAP_FAILED : mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->file, 0);
    if (map == MAP_FAILED)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "serving on GPUs: the table is not in memory that can be mapped and pinned: serve it from "
                           "saves, not from a table's file (Linux)");
    t->map = map;
    t->weights = (const char *)map + m->file_at;
    on_gpu on(&c->gpus[0]);
    cudaError_t error = register_memory({map, t->bytes, 0}, &t->left);
    t->is_pinned = error == cudaSuccess;
    return fail_serving(&c->gpus[0], error, "pinning the table");
}

static frugal_status copy_placement(const frugal_cuda_server *c, const frugal_cuda_placement *from, placed_rows *p) {
    p->n_rows = from->n_rows, p->cache_rows = from->cache_rows;
    if (from->n_rows > 0 && !from->rows)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "serving on GPUs: `rows` is NULL, and n_rows is %llu",
                           (unsigned long long)from->n_rows);
    if (from->plan && from->plan->devices != c->n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "serving on GPUs: the plan is for %u devices, and there are %u",
                           from->plan->devices, c->n);
    for (uint64_t i = 0; i < from->n_rows; i++)
        if (from->rows[i] >= c->rows)
            return frugal_fail(FRUGAL_ERR_KEY, "serving on GPUs: row %u at %llu of the placement; there are %llu rows",
                               from->rows[i], (unsigned long long)i, (unsigned long long)c->rows);
    p->rows = (uint32_t *)malloc((from->n_rows + 1) * sizeof *p->rows);
    p->plan = from->plan ? (frugal_place_plan *)malloc(sizeof *p->plan) : NULL;
    if (!p->rows || (from->plan && !p->plan)) return fail_room("a placement", from->n_rows * sizeof *p->rows);
    if (from->n_rows > 0) memcpy(p->rows, from->rows, from->n_rows * sizeof *p->rows);
    if (from->plan) *p->plan = *from->plan;
    return FRUGAL_OK;
}

/* Of GPU g: the number of its slots; the position, in `rows`, of the row in a slot. Without a plan all GPUs keep the
 * first rows. */
static uint64_t slots_of(const placed_rows *p, uint32_t g) {
    uint64_t most = p->plan ? frugal_place_slots(p->plan, g) : p->cache_rows;
    return most < p->n_rows || p->plan ? most : p->n_rows;
}
static uint64_t position_of(const placed_rows *p, uint32_t g, uint64_t slot) {
    return p->plan ? frugal_place_position(p->plan, g, slot) : slot;
}
/* Where GPU g reads the row at a position: a GPU, or FRUGAL_PLACE_HOST. */
static uint32_t source_of(const placed_rows *p, uint32_t g, uint64_t position) {
    if (p->plan) return frugal_place_source(p->plan, g, position);
    return position < p->cache_rows ? g : (uint32_t)FRUGAL_PLACE_HOST;
}
static uint64_t slot_of(const placed_rows *p, uint32_t source, uint64_t position) {
    return p->plan ? frugal_place_slot(p->plan, source, position) : position;
}

/* Waits for the stream of changes, whatever went wrong: what is enqueued there may use host memory that is freed next.
 * A GPU that is lost does nothing any more; any other failure to wait is followed by a second attempt. */
static cudaError_t finish_changes(const serving_gpu *gpu, cudaError_t error) {
    cudaError_t waited = cudaStreamSynchronize(gpu->changes);
    if (waited != cudaSuccess) cudaStreamSynchronize(gpu->changes);
    return error != cudaSuccess ? error : waited;
}

/* Copies to a GPU. The stream of changes is used, because the NULL stream would hold up lookups on blocking streams. */
static cudaError_t copy_to_gpu(const serving_gpu *gpu, void *to, const void *from, size_t bytes) {
    return finish_changes(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu->changes));
}

/* Bytes of a row in a cache; bytes of its weights; a row of what is served. */
static size_t cached_bytes(const frugal_cuda_server *c) {
    return c->stride * frugal_type_bytes(c->rows_as);
}
static size_t weight_bytes(const frugal_cuda_server *c) {
    return (size_t)c->dim * frugal_type_bytes(c->rows_as);
}
static const void *served_row(const frugal_served_memory *m, uint64_t row) {
    return (const unsigned char *)m->weights + row * m->stride * frugal_type_bytes(m->rows_as);
}

/* Element e of the slot that tells the cache of GPU g from all others, and from memory that reads as zeros. Rounded to
 * 16 bits, they still differ from GPU to GPU, because there are at most 64. */
static float telling_value(const placed_rows *p, uint32_t g, uint64_t e) {
    return (float)(1 + g) + (float)((p->version + e) % 4096) / 4096;
}

/* Copies to a GPU the rows that it keeps; `staging` has room for FILL_ROWS. A plan may have more slots than rows. */
static frugal_status fill_cache(const frugal_cuda_server *c, uint32_t g, const frugal_served_memory *m, placed_rows *p,
                                unsigned char *staging) {
    const serving_gpu *gpu = &c->gpus[g];
    uint64_t slots = slots_of(p, g), row_bytes = cached_bytes(c);
    on_gpu on(gpu);
    if (slots == 0) return FRUGAL_OK;
    cudaError_t error = cudaMalloc((void **)&p->caches[g], (slots + 1) * row_bytes);
    for (uint64_t at = 0; at < slots && error == cudaSuccess; at += FILL_ROWS) {
        uint64_t n = slots - at < FILL_ROWS ? slots - at : FILL_ROWS;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t position = position_of(p, g, at + i);
            if (position < p->n_rows)
                memcpy(staging + i * row_bytes, served_row(m, p->rows[position]), weight_bytes(c));
        }
        error = copy_to_gpu(gpu, p->caches[g] + at * row_bytes, staging, n * row_bytes);
    }
    for (uint64_t e = 0; e < c->stride; e++) {
        const float value = telling_value(p, g, e);
        frugal_convert(staging + e * frugal_type_bytes(c->rows_as), c->rows_as, &value, FRUGAL_FP32, 1);
    }
    if (error == cudaSuccess) error = copy_to_gpu(gpu, p->caches[g] + slots * row_bytes, staging, row_bytes);
    return fail_serving(gpu, error, "filling the cache");
}

static frugal_status open_placed(const frugal_cuda_server *c, const frugal_cuda_placement *from,
                                 const frugal_served_memory *m, placed_rows **out) {
    placed_rows *p = (placed_rows *)calloc(1, sizeof *p);
    unsigned char *staging = (unsigned char *)calloc(FILL_ROWS, cached_bytes(c));
    frugal_status status = FRUGAL_OK;
    if (!p || !staging) status = fail_room("a placement", FILL_ROWS * cached_bytes(c));
    *out = p;
    if (p) p->users = 1, p->version = m->version;
    if (status == FRUGAL_OK) status = copy_placement(c, from, p);
    if (status == FRUGAL_OK && m->changed) {
        uint64_t bytes = (c->rows + 63) / 64 * sizeof *p->changed;
        if ((p->changed = (uint64_t *)malloc(bytes)) != NULL)
            memcpy(p->changed, m->changed, bytes);
        else
            status = fail_room("marks of rows", bytes);
    }
    for (uint32_t g = 0; g < c->n && status == FRUGAL_OK; g++) status = fill_cache(c, g, m, p, staging);
    free(staging);
    return status;
}

static int is_marked(const uint64_t *marks, uint64_t row) {
    return marks && marks[row / 64] >> row % 64 & 1;
}

/* Copies the rows in which the version differs from its base to pinned memory, in their order. */
static frugal_status copy_changed_rows(const frugal_cuda_server *c, const frugal_served_memory *m, served_version *v) {
    for (uint64_t word = 0; m->changed && word < (c->rows + 63) / 64; word++)
        v->n_changed += (uint64_t)__builtin_popcountll(m->changed[word]);
    if (v->n_changed == 0) return FRUGAL_OK;
    on_gpu on(&c->gpus[0]);
    cudaError_t error = cudaHostAlloc((void **)&v->changed, v->n_changed * cached_bytes(c),
                                      cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return fail_serving(&c->gpus[0], error, "memory for changed rows");
    unsigned char *to = v->changed;
    for (uint64_t row = 0; row < c->rows; row++) {
        if (!is_marked(m->changed, row)) continue;
        memcpy(to, served_row(m, row), weight_bytes(c));
        to += cached_bytes(c);
    }
    return FRUGAL_OK;
}

/* Copies in caches are of the version that they were filled from; in another version they are right only for rows that
 * neither version has changed from the base. */
static int is_stale(const placed_rows *p, const frugal_served_memory *m, uint64_t row) {
    return p->version != m->version && (is_marked(m->changed, row) || is_marked(p->changed, row));
}

/* Fills in where GPU g reads each row. */
static void find_words(const frugal_cuda_server *c, uint32_t g, const frugal_served_memory *m, const served_version *v,
                       uint32_t *words) {
    const placed_rows *p = v->placed;
    uint32_t bits = v->parts[g].view.slot_bits;
    uint64_t changed = 0;
    memset(words, 0xff, c->rows * sizeof *words);
    for (uint64_t row = 0; row < c->rows && v->n_changed > 0; row++)
        if (is_marked(m->changed, row)) words[row] = c->n << bits | (uint32_t)changed++;
    for (uint64_t i = 0; i < p->n_rows; i++) {
        uint32_t row = p->rows[i], source = source_of(p, g, i);
        if (source == FRUGAL_PLACE_HOST || is_stale(p, m, row)) continue;
        words[row] = source << bits | (uint32_t)slot_of(p, source, i);
    }
    for (uint32_t s = 0; s < c->n; s++) words[c->rows + s] = s << bits | (uint32_t)slots_of(p, s);
}

/* Lets GPU g read the caches of the GPUs from which it reads rows. */
static frugal_status reach_peers(const frugal_cuda_server *c, uint32_t g, const placed_rows *p) {
    const serving_gpu *gpu = &c->gpus[g];
    uint64_t asked = UINT64_C(1) << g;
    on_gpu on(gpu);
    for (uint64_t i = 0; i < p->n_rows; i++) {
        uint32_t source = source_of(p, g, i);
        int can = 0;
        if (source == FRUGAL_PLACE_HOST || asked >> source & 1) continue;
        asked |= UINT64_C(1) << source;
        int ordinal = c->gpus[source].ordinal;
        if (ordinal == gpu->ordinal) continue;
        cudaError_t error = cudaDeviceCanAccessPeer(&can, gpu->ordinal, ordinal);
        if (error != cudaSuccess) return fail_serving(gpu, error, "asking for peer access");
        if (!can)
            return frugal_fail(
                FRUGAL_ERR_DEVICE,
                "the plan makes GPU %d read rows of GPU %d, which it cannot reach; plan with a bandwidth "
                "of 0 for that pair",
                gpu->ordinal, ordinal);
        error = (cudaError_t)gpu->enable_peer(c->gpus[source].context, 0);
        if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
            return fail_serving(gpu, error, "peer access");
    }
    return FRUGAL_OK;
}

/* Makes what GPU g needs of the version; `words` has room for c->rows + c->n. */
static frugal_status open_part(const frugal_cuda_server *c, uint32_t g, const frugal_served_memory *m,
                               served_version *v, uint32_t *words) {
    const serving_gpu *gpu = &c->gpus[g];
    served_part *part = &v->parts[g];
    const void *sources[MOST_GPUS + 1] = {};
    uint64_t most = v->n_changed;
    for (uint32_t s = 0; s < c->n; s++) {
        uint64_t slots = slots_of(v->placed, s);
        most = slots > most ? slots : most;
        sources[s] = v->placed->caches[s];
    }
    uint32_t bits = 0;
    while (bits < 32 && most >> bits) bits++;       /* the slot `most` is used, too */
    if (bits == 32 || c->n >= (UINT32_MAX >> bits)) /* the last word is IN_TABLE */
        return frugal_fail(FRUGAL_ERR_LIMIT,
                           "serving on GPUs: %llu rows of one source and %u GPUs do not fit a word of 32 bits",
                           (unsigned long long)most, c->n);
    frugal_status status = reach_peers(c, g, v->placed);
    if (status != FRUGAL_OK) return status;
    on_gpu on(gpu);
    void *table = NULL, *changed = NULL, *bad = NULL;
    size_t bytes = (c->rows + c->n) * sizeof *words;
    cudaError_t error = cudaHostGetDevicePointer(&table, v->table->map, 0);
    if (error == cudaSuccess && v->changed) error = cudaHostGetDevicePointer(&changed, v->changed, 0);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&bad, gpu->bad, 0);
    sources[c->n] = changed;
    if (error == cudaSuccess) error = cudaMalloc((void **)&part->where, bytes);
    if (error == cudaSuccess) error = cudaMalloc((void **)&part->sources, sizeof sources);
    if (error == cudaSuccess) error = copy_to_gpu(gpu, (void *)part->sources, sources, sizeof sources);
    part->view.slot_bits = bits, part->view.where = part->where, part->view.sources = part->sources;
    part->view.table = (const char *)table + ((const char *)v->table->weights - (const char *)v->table->map);
    part->view.rows_as = c->rows_as;
    part->view.table_stride = m->stride, part->view.stride = c->stride, part->view.dim = c->dim;
    part->view.bad = (uint64_t *)bad;
    if (error == cudaSuccess) find_words(c, g, m, v, words);
    if (error == cudaSuccess) error = copy_to_gpu(gpu, part->where, words, bytes);
    return fail_serving(gpu, error, "memory for a version");
}

/* Makes the version of `m`. `placement` NULL: that of `before`, whose caches are kept if the base is the same. If this
 * fails, free_version frees what was made. */
static frugal_status open_version(const frugal_cuda_server *c, const frugal_served_memory *m, served_version *before,
                                  const frugal_cuda_placement *placement, served_version **out) {
    served_version *v = (served_version *)calloc(1, sizeof *v);
    if (!v) return fail_room("a version", sizeof *v);
    *out = v;
    v->number = m->version, v->step = m->step;
    int same = before && before->table->number == m->file_number;
    frugal_status status = FRUGAL_OK;
    if (same)
        v->table = before->table, v->table->users++;
    else
        status = open_table(c, m, &v->table);
    if (status == FRUGAL_OK && !placement && same) {
        v->placed = before->placed, v->placed->users++;
    } else if (status == FRUGAL_OK) {
        frugal_cuda_placement again = {};
        if (!placement) {
            const placed_rows *p = before->placed;
            again.rows = p->rows, again.n_rows = p->n_rows, again.cache_rows = p->cache_rows, again.plan = p->plan;
            placement = &again;
        }
        status = open_placed(c, placement, m, &v->placed);
    }
    if (status == FRUGAL_OK) status = copy_changed_rows(c, m, v);
    uint32_t *words = (uint32_t *)malloc((c->rows + c->n) * sizeof *words);
    if (status == FRUGAL_OK && !words) status = fail_room("words of rows", c->rows * sizeof *words);
    for (uint32_t g = 0; g < c->n && status == FRUGAL_OK; g++) status = open_part(c, g, m, v, words);
    free(words);
    return status;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SERVED_CUH */
