/* bench_links.h - experiment links: the bandwidths of a machine, as frugal_place.h plans with them. Each GPU reads
 * random rows from its own memory, from that of each other GPU, and from host memory; several GPUs also read host
 * memory at a time, because they may share a root of the bus. Host memory is as tables have it, registered, and of each
 * size of --link-gb: the GPU's own address translation may be slower for more of it. What is read is compared: there
 * are cards that read something else although their driver grants access to a peer. --links writes a file for
 * build/peers, of the first size. */
#ifndef FRUGAL_BENCH_CUDA_LINKS_H
#define FRUGAL_BENCH_CUDA_LINKS_H

#include "bench/cuda/bench_table.h"

#include <numeric>

enum { LINKS_MOST = 64, LINKS_LANES = 8 };

/* Memory of rows of `packs` float4, that can be checked: all floats of a row are row % 251. */
typedef struct link_memory {
    float4 *start;
    uint64_t rows, expected; /* the sum of what one reading reads */
} link_memory;

typedef struct link_gpu {
    int ordinal;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    unsigned long long *sum; /* of what was read */
    link_memory memory;
    uint32_t grid;
} link_gpu;

static inline __host__ __device__ uint64_t links_row(uint64_t i, uint64_t rows) { /* rows in random order */
    return ((i * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * rows >> 32;
}

/* Groups of 8 lanes read rows, 128 bytes at a time, which is one request over the link. */
static __global__ void links_kernel(const float4 *start, uint64_t rows, uint32_t packs, uint64_t items,
                                    unsigned long long *sum) {
    uint32_t lane = threadIdx.x % LINKS_LANES;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LINKS_LANES, read = 0;
    LADDER_UNROLLED_BY_4
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / LINKS_LANES; i < items; i += groups) {
        const float4 *row = start + links_row(i, rows) * packs;
        for (uint32_t p = lane; p < packs; p += LINKS_LANES) {
            float4 x = row[p];
            read += (uint64_t)x.x + (uint64_t)x.y + (uint64_t)x.z + (uint64_t)x.w;
        }
    }
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(*sum).fetch_add(read, cuda::memory_order_relaxed);
}

typedef struct link_setting {
    uint32_t packs;
    uint64_t items; /* rows that are read */
    double bytes;
} link_setting;

static void links_fill(float *start, uint32_t packs, uint64_t rows) {
    by_all_processors(rows, [=](uint64_t begin, uint64_t end) {
        for (uint64_t row = begin; row < end; row++)
            std::fill_n(start + row * packs * 4, packs * 4, (float)(row % 251));
    });
}

static uint64_t links_sum(const link_setting *s, uint64_t rows) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < s->items; i++) sum += links_row(i, rows) % 251 * s->packs * 4;
    return sum;
}

/* Seconds of each of the GPUs, all of which read at a time; below 0: the GPU has read something else. */
static std::vector<double> links_read(const std::vector<link_gpu *> &readers, const link_memory *from,
                                      const link_setting *s) {
    std::vector<double> took;
    for (link_gpu *g : readers) {
        LADDER_CHECK(cudaSetDevice(g->ordinal));
        LADDER_CHECK(cudaMemsetAsync(g->sum, 0, sizeof *g->sum, g->stream));
        LADDER_CHECK(cudaStreamSynchronize(g->stream));
    }
    for (link_gpu *g : readers) {
        LADDER_CHECK(cudaSetDevice(g->ordinal));
        LADDER_CHECK(cudaEventRecord(g->begin, g->stream));
        FRUGAL_LAUNCH(links_kernel, g->grid, LADDER_BLOCK, g->stream, from->start, from->rows, s->packs, s->items,
                      g->sum);
        LADDER_CHECK(cudaGetLastError());
        LADDER_CHECK(cudaEventRecord(g->end, g->stream));
    }
    for (link_gpu *g : readers) {
        float ms;
        unsigned long long sum;
        LADDER_CHECK(cudaSetDevice(g->ordinal));
        LADDER_CHECK(cudaEventSynchronize(g->end));
        LADDER_CHECK(cudaEventElapsedTime(&ms, g->begin, g->end));
        LADDER_CHECK(cudaMemcpy(&sum, g->sum, sizeof sum, cudaMemcpyDeviceToHost));
        took.push_back(sum == from->expected ? ms * 1e-3 : -1);
    }
    return took;
}

/* Bytes a second of each of them; 0: what was read is wrong. Medians, after a warm-up. */
static std::vector<double> links_speeds(const std::vector<link_gpu *> &readers, const link_memory *from,
                                        const link_setting *s) {
    std::vector<bench_samples> samples(readers.size());
    std::vector<double> speeds(readers.size(), 0);
    for (uint64_t i = 0; i <= std::min<uint64_t>(repeats, 20); i++) {
        std::vector<double> took = links_read(readers, from, s);
        for (size_t g = 0; g < readers.size(); g++) {
            if (took[g] < 0) return speeds;
            if (i > 0) bench_add(&samples[g], took[g]);
        }
    }
    for (size_t g = 0; g < readers.size(); g++) speeds[g] = s->bytes / bench_median(&samples[g]);
    return speeds;
}

static void links_print(const link_gpu *reader, const std::string &from, const std::string &beside, double speed,
                        const link_setting *s, uint64_t bytes, int can) {
    record r;
    record_add_text(&r, "experiment", "links"), record_add_count(&r, "gpu", (uint64_t)reader->ordinal);
    record_add_text(&r, "from", from.c_str()), record_add_text(&r, "beside", beside.c_str());
    record_add_real(&r, "gb", (double)bytes * 1e-9, 3);
    record_add_count(&r, "row_bytes", s->packs * 16), record_add_real(&r, "gb_per_s", speed * 1e-9, 2);
    record_add_text(&r, "data", !can ? "no access" : speed > 0 ? "right" : "wrong");
    print_record(&r);
}

static link_gpu links_open(int ordinal, const std::vector<float> &pattern, const link_setting *s) {
    link_gpu g = {};
    cudaDeviceProp properties;
    g.ordinal = ordinal;
    LADDER_CHECK(cudaSetDevice(ordinal));
    LADDER_CHECK(cudaGetDeviceProperties(&properties, ordinal));
    LADDER_CHECK(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
    LADDER_CHECK(cudaEventCreate(&g.begin));
    LADDER_CHECK(cudaEventCreate(&g.end));
    g.sum = ladder_device<unsigned long long>(1);
    g.memory = {ladder_device<float4>(pattern.size() / 4), s->items, links_sum(s, s->items)};
    ladder_put((float *)(void *)g.memory.start, pattern.data(), pattern.size());
    g.grid = (uint32_t)properties.multiProcessorCount * 8;
    return g;
}

static void links_close(const link_gpu *g) {
    LADDER_CHECK(cudaSetDevice(g->ordinal));
    LADDER_CHECK(cudaFree(g->sum));
    LADDER_CHECK(cudaFree(g->memory.start));
    LADDER_CHECK(cudaEventDestroy(g->begin));
    LADDER_CHECK(cudaEventDestroy(g->end));
    LADDER_CHECK(cudaStreamDestroy(g->stream));
}

/* May GPU i read the memory of j? Whether it then reads what is there, is measured. */
static int links_enable(int i, int j) {
    int can = 0;
    LADDER_CHECK(cudaDeviceCanAccessPeer(&can, i, j));
    if (!can) return 0;
    LADDER_CHECK(cudaSetDevice(i));
    cudaError_t error = cudaDeviceEnablePeerAccess(j, 0);
    if (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        return 1;
    }
    cudaGetLastError();
    return 0;
}

/* Two GPUs share a root if together they read from the host at less than 3/4 of the sum of their speeds alone.
 * roots[i]: the first GPU of its root. */
static std::vector<int> links_roots(std::vector<link_gpu> *gpus, const link_memory *host, uint64_t bytes,
                                    const std::vector<double> &alone, const link_setting *s) {
    std::vector<int> roots(gpus->size());
    std::iota(roots.begin(), roots.end(), 0);
    for (size_t i = 0; i < gpus->size(); i++)
        for (size_t j = i + 1; j < gpus->size(); j++) {
            if (roots[j] != (int)j) continue;
            const link_gpu *one = &(*gpus)[i], *other = &(*gpus)[j];
            std::vector<double> both = links_speeds({&(*gpus)[i], &(*gpus)[j]}, host, s);
            links_print(one, "host", "gpu " + std::to_string(other->ordinal), both[0], s, bytes, 1);
            links_print(other, "host", "gpu " + std::to_string(one->ordinal), both[1], s, bytes, 1);
            if (both[0] + both[1] < .75 * (alone[i] + alone[j])) roots[j] = roots[i];
        }
    return roots;
}

/* A line for each GPU: GB/s from each GPU, from the host, and if roots are shared, the root and what it gives to all of
 * its GPUs together (build/peers --help). */
static void links_write(const char *path, const std::vector<std::vector<double>> &peer, const std::vector<double> &host,
                        const std::vector<int> &roots, const std::vector<double> &together) {
    FILE *file = fopen(path, "wx");
    if (!file) bench_fail("cannot write --links %s: %s", path, strerror(errno));
    int shared = 0;
    for (size_t i = 0; i < roots.size(); i++) shared |= roots[i] != (int)i;
    fprintf(file, "# GB/s, by GPU: from the memory of each GPU, from host memory%s\n",
            shared ? ", its root, all of the root together" : "");
    for (size_t i = 0; i < peer.size(); i++) {
        for (double speed : peer[i]) fprintf(file, "%.4g ", speed * 1e-9);
        fprintf(file, "%.4g", host[i] * 1e-9);
        if (shared) fprintf(file, " %d %.4g", roots[i], together[(size_t)roots[i]] * 1e-9);
        fputc('\n', file);
    }
    if (fclose(file)) bench_fail("cannot write --links %s: %s", path, strerror(errno));
}

/* Host memory, read by each GPU alone, and by GPUs together. */
static void links_host(std::vector<link_gpu> *gpus, const std::vector<std::vector<double>> &peer, const link_setting *s,
                       uint64_t bytes, const char *file) {
    uint64_t rows = bytes / (s->packs * 16);
    char what[64];
    void *seen;
    snprintf(what, sizeof what, "links, %.3g GB of host memory", (double)bytes * 1e-9);
    if (!has_time("%s", what) || !limits_fits(bytes, 0, what)) return;
    float *memory = table_memory(bytes);
    if (!memory) {
        skip("%s: the system does not give it", what);
        return;
    }
    links_fill(memory, s->packs, rows);
    if (!table_pin(memory, bytes, what)) {
        free(memory);
        return;
    }
    LADDER_CHECK(cudaHostGetDevicePointer(&seen, memory, 0));
    const link_memory host = {(float4 *)seen, rows, links_sum(s, rows)};
    std::vector<double> alone, together(gpus->size(), 0);
    for (size_t i = 0; i < gpus->size() && !bench_interrupted(); i++) {
        alone.push_back(links_speeds({&(*gpus)[i]}, &host, s)[0]);
        links_print(&(*gpus)[i], "host", "none", alone[i], s, bytes, 1);
    }
    if (!bench_interrupted()) {
        std::vector<int> roots = links_roots(gpus, &host, bytes, alone, s);
        for (size_t root = 0; root < gpus->size(); root++) {
            std::vector<link_gpu *> members;
            for (size_t i = 0; i < gpus->size(); i++)
                if (roots[i] == (int)root) members.push_back(&(*gpus)[i]);
            std::vector<double> speeds = members.empty() ? std::vector<double>() : links_speeds(members, &host, s);
            together[root] = std::accumulate(speeds.begin(), speeds.end(), 0.);
        }
        if (file) links_write(file, peer, alone, roots, together);
    }
    LADDER_CHECK(cudaHostUnregister(memory));
    free(memory);
}

static void run_links(uint32_t width, const char *file) {
    int n = 0;
    LADDER_CHECK(cudaGetDeviceCount(&n));
    link_setting s = {};
    s.packs = (width + 3) / 4;
    s.items = std::max<uint64_t>(LADDER_LARGE / (s.packs * 16), 1);
    uint64_t bytes = s.items * s.packs * 16;
    s.bytes = (double)bytes;
    if (!limits_fits(bytes, bytes, "links") || !has_time("links of GPUs")) return;
    std::vector<float> pattern(s.items * s.packs * 4);
    links_fill(pattern.data(), s.packs, s.items);
    std::vector<link_gpu> gpus;
    ladder_on on(ladder_gpu(0)); /* at the end, too */
    if (ladder_gpus_given) n = (int)ladder_gpus.n;
    for (int i = 0; i < std::min<int>(n, LINKS_MOST); i++)
        gpus.push_back(links_open(ladder_gpus_given ? ladder_gpu((uint32_t)i) : i, pattern, &s));
    std::vector<std::vector<double>> peer(gpus.size(), std::vector<double>(gpus.size(), 0));
    for (size_t i = 0; i < gpus.size() && !bench_interrupted(); i++)
        for (size_t j = 0; j < gpus.size(); j++) {
            int own = gpus[i].ordinal == gpus[j].ordinal, can = own || links_enable(gpus[i].ordinal, gpus[j].ordinal);
            if (can) peer[i][j] = links_speeds({&gpus[i]}, &gpus[j].memory, &s)[0];
            links_print(&gpus[i], own ? "own" : "gpu " + std::to_string(gpus[j].ordinal), "none", peer[i][j], &s, bytes,
                        can);
        }
    for (uint32_t i = 0; i < link_gb.n && !bench_interrupted(); i++) {
        uint64_t wanted = (uint64_t)(link_gb.values[i] * 1e9) / (s.packs * 16) * (s.packs * 16);
        links_host(&gpus, peer, &s, std::max(wanted, bytes), i == 0 ? file : NULL);
    }
    for (const link_gpu &g : gpus) links_close(&g);
}

static void run_all_links(void) {
    const options_list *widths = options_given_or(&dim, &defaults[LINKS].dim);
    for (uint32_t d = 0; d < widths->n; d++)
        run_links((uint32_t)widths->values[d], d + 1 < widths->n ? NULL : links); /* the file is of the last one */
}

#endif
