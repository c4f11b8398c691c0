/* bench_translation.cu - random rows of tables of 1 to 64 GiB, read by a kernel where they lie, by how the memory was
 * made.
 *
 *     build/cuda/bench_translation                       all kinds and sizes; --help shows what can be changed
 *     build/cuda/bench_translation --kinds registered,numa --sizes 1,16 --row-bytes 128,512 --json
 *
 * Rows in place slowed down on an H200 from 46 of 55 GB/s to 5.8 where the table grew from 1.3 GB to 6.4 GB. Its
 * figures fit the GPU's own address translation, with 64 KB an entry: registered memory reaches the driver in pages of
 * 4 KB, whatever pages the processor has. If a kind of memory stays as fast with 64 GiB as with 1, tables are to be
 * made so.
 *
 * The kinds: bench/cuda/memory_kinds.h. Managed memory is never more than the GPU has free.
 *
 * Each kind is made once, as large as fits, and the first GiBs of it are a table of each size. The time to make memory
 * (make_s: made, written, registered) is part of the answer. Each repetition reads other rows, and each sum of what was
 * read is compared with that of what was written.
 */
#include "bench/cuda/memory_kinds.h"

#include "bench/cuda/bench_limits.h"
#include "bench/cuda/bench_record.h"

#include <atomic>
#include <map>
#include <tuple>

static options_list kinds = {{REGISTERED, NUMA, GPU, PINNED, MANAGED}, KINDS}, sizes = {{1, 2, 4, 8, 16, 32, 64}, 7},
                    row_bytes = {{128}, 1};
static uint64_t reads = UINT64_C(1) << 21, repeats = 7;

static const options_entry options[] = {
    {"kinds", OPTIONS_CHOICES, &kinds, 0, 0, kind_names, "how memory is made"},
    {"sizes", OPTIONS_REALS, &sizes, 0.001, 4096, NULL, "GiB of the tables"},
    {"row-bytes", OPTIONS_WHOLES, &row_bytes, 16, 65536, NULL, "bytes of a row, a multiple of 16"},
    {"reads", OPTIONS_WHOLE64, &reads, 1, 1e9, NULL, "rows that a kernel reads"},
    {"repeats", OPTIONS_WHOLE64, &repeats, 1, BENCH_SAMPLES, NULL,
     "kernels of which medians are taken, after one more"},
    LADDER_GPUS_OPTION("the GPU that reads"),
    LIMITS_SECONDS_OPTION,
    LIMITS_MEMORY_OPTION,
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

/* >>what is read */

static inline __host__ __device__ uint64_t row_of(uint64_t i, uint64_t seed, uint64_t rows) { /* at random */
    uint64_t z = i + seed * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return ((z ^ z >> 31) >> 32) * rows >> 32;
}

/* Groups of 8 lanes read rows, 128 bytes at a time, which is one request over the link. */
static __global__ void read_kernel(const uint4 *start, uint64_t rows, uint32_t packs, uint64_t n, uint64_t seed,
                                   unsigned long long *sum) {
    uint32_t lane = threadIdx.x % LADDER_LANES;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LADDER_LANES, read = 0;
    LADDER_UNROLLED_BY_4
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / LADDER_LANES; i < n; i += groups) {
        const uint4 *row = start + row_of(i, seed, rows) * packs;
        for (uint32_t p = lane; p < packs; p += LADDER_LANES) {
            uint4 x = row[p];
            read += (uint64_t)x.x + x.y + x.z + x.w;
        }
    }
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(*sum).fetch_add(read, cuda::memory_order_relaxed);
}

/* The sum that a kernel must find. Kinds of memory share it, so it is computed once. */
static uint64_t expected_sum(uint64_t rows, uint32_t packs, uint64_t seed) {
    static std::map<std::tuple<uint64_t, uint32_t, uint64_t>, uint64_t> known;
    auto key = std::make_tuple(rows, packs, seed);
    auto found = known.find(key);
    if (found != known.end()) return found->second;
    std::atomic<uint64_t> sum(0);
    by_all_processors(reads, [&](uint64_t begin, uint64_t end) {
        uint64_t own = 0;
        for (uint64_t i = begin; i < end; i++)
            for (uint64_t first = row_of(i, seed, rows) * packs, p = 0; p < packs; p++)
                own += 4 * (uint64_t)kinds_word_of(first + p);
        sum.fetch_add(own, std::memory_order_relaxed);
    });
    return known[key] = sum.load(std::memory_order_relaxed);
}

/* >>measuring */

typedef struct bench {
    ladder_machine machine;
    ladder_speeds speeds;
    unsigned long long *sum;
    uint64_t made_bytes; /* of host memory so far; made_s: with giving it back */
    double made_s;
} bench;

static uint64_t bytes_of(double gib) {
    return (uint64_t)(gib * 0x1p30) / PACK * PACK;
}

/* Seconds of one kernel, whose sum is compared. */
static double read_once(bench *b, const memory *m, double gib, uint64_t rows, uint32_t packs, uint64_t seed) {
    unsigned long long sum;
    LADDER_CHECK(cudaMemsetAsync(b->sum, 0, sizeof *b->sum, b->machine.stream));
    double took = ladder_held_seconds(&b->machine, 0, [&] {
        FRUGAL_LAUNCH(read_kernel, ladder_grid<read_kernel>(&b->machine, reads, LADDER_LANES), LADDER_BLOCK,
                      b->machine.stream, m->seen, rows, packs, reads, seed, b->sum);
    });
    LADDER_CHECK(cudaMemcpy(&sum, b->sum, sizeof sum, cudaMemcpyDeviceToHost));
    if (sum != expected_sum(rows, packs, seed))
        bench_fail("%s, %g GiB: the sum of what was read is %llu; of what was written it is %llu", kind_names[m->kind],
                   gib, sum, (unsigned long long)expected_sum(rows, packs, seed));
    return took;
}

static void measure(bench *b, const memory *m, double gib, uint32_t width) {
    uint32_t packs = width / PACK;
    uint64_t rows = std::min<uint64_t>(bytes_of(gib) / width, UINT32_MAX);
    bench_samples took = {};
    if (!has_time("translation, %s, %g GiB, rows of %u bytes", kind_names[m->kind], gib, width)) return;
    for (uint64_t i = 0; i <= repeats && !bench_interrupted(); i++) {
        double s = read_once(b, m, gib, rows, packs, i);
        if (i > 0) bench_add(&took, s);
    }
    if (took.n == 0) return;
    double s = bench_median(&took), n = (double)reads, speed = n * width / s;
    record r;
    record_add_text(&r, "experiment", "translation"), record_add_text(&r, "kind", kind_names[m->kind]);
    record_add_count(&r, "row_bytes", width), record_add_plain(&r, "gib", gib), record_add_count(&r, "reads", reads);
    record_add_real(&r, "gb_per_s", speed * 1e-9, 2), record_add_real(&r, "link_share", speed / b->speeds.to_device, 3);
    record_add_real(&r, "ns_per_row", s * 1e9 / n, 3),
        record_add_real(&r, "min_ns", bench_quantile(&took, 0) * 1e9 / n, 3);
    record_add_real(&r, "max_ns", bench_quantile(&took, 1) * 1e9 / n, 3), record_add_real(&r, "rows_per_s", n / s, 0);
    record_add_count(&r, "repeats", took.n), record_add_plain(&r, "made_gib", (double)m->bytes * 0x1p-30);
    record_add_real(&r, "make_s", m->make_s, 3), record_add_count(&r, "page_bytes", m->page_bytes);
    record_add_real(&r, "huge_share", m->huge_share < 0 ? NAN : m->huge_share, 3);
    print_record(&r);
}

/* Why this kind of memory is not there on this machine at all; NULL: it is. */
static const char *lacks(uint32_t kind) {
    int concurrent = 0;
    LADDER_CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, ladder_gpu(0)));
    if (kind == NUMA && kinds_driver_attribute(ATTRIBUTE_HOST_NUMA_MEMORY) <= 0)
        return "this driver or GPU makes no memory on a NUMA node of the host "
               "(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)";
    return kind == MANAGED && concurrent <= 0 ? "this GPU takes managed memory away from the host before a kernel "
                                                "(cudaDevAttrConcurrentManagedAccess)"
                                              : NULL;
}

/* Has the host's node, from which the driver takes memory of this kind, so much free? Where nothing says so: yes. */
static int fits_node(uint32_t kind, uint64_t bytes, const char *what) {
    if (kind != NUMA) return 1;
    std::string node = std::to_string(std::max(kinds_driver_attribute(ATTRIBUTE_HOST_NUMA_ID), 0));
    std::string path = "/sys/devices/system/node/node" + node + "/meminfo", line = "Node " + node + " ";
    uint64_t kib = limits_number_in(path.c_str(), (line + "MemFree:").c_str(), UINT64_MAX / 2048);
    kib += limits_number_in(path.c_str(), (line + "Inactive(file):").c_str(), 0);
    if (bytes / 1024 <= kib) return 1;
    skip("%s: it needs %.3g GB of NUMA node %s, and %.3g GB are free there", what, (double)bytes * 1e-9, node.c_str(),
         (double)kib * 1024e-9);
    return 0;
}

/* Makes memory as large as the largest of sizes[n] for which there are memory and time. The number of sizes that lie in
 * it; 0: none. */
static uint32_t make_largest(bench *b, memory *m, const double *by_size, uint32_t n) {
    for (; n > 0 && !bench_interrupted(); n--) {
        char what[96];
        uint64_t bytes = bytes_of(by_size[n - 1]), host = m->kind == GPU ? 0 : bytes + HUGE_PAGE;
        double expected = host && b->made_bytes ? b->made_s * (double)bytes / (double)b->made_bytes : 0;
        snprintf(what, sizeof what, "translation, %s, %g GiB", kind_names[m->kind], by_size[n - 1]);
        if (!has_time_for(expected, "%s", what) ||
            !limits_fits(host, m->kind == GPU || m->kind == MANAGED ? bytes : 0, what) ||
            !fits_node(m->kind, bytes, what))
            continue;
        m->bytes = bytes;
        const char *why = kinds_make_memory(m, &b->machine);
        if (!why) return n;
        skip("%s: it could not be made: %s", what, why);
    }
    return 0;
}

static void run_kind(bench *b, uint32_t kind, const double *by_size, uint32_t n) {
    const char *why = lacks(kind);
    if (why) {
        skip("translation, %s: %s", kind_names[kind], why);
        return;
    }
    memory m = {};
    m.kind = kind;
    uint32_t fit = make_largest(b, &m, by_size, n);
    for (uint32_t i = 0; i < fit * row_bytes.n && !bench_interrupted(); i++)
        measure(b, &m, by_size[i / row_bytes.n], (uint32_t)row_bytes.values[i % row_bytes.n]);
    if (!fit) return;
    double since = bench_now();
    kinds_free_memory(&m);
    if (kind != GPU) b->made_bytes += m.bytes, b->made_s += m.make_s + bench_now() - since;
}

static void print_machine(const bench *b) {
    size_t left = 0, all = 0;
    int concurrent = 0;
    char huge[64] = "";
    record r;
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file && !fgets(huge, sizeof huge, file)) *huge = 0;
    if (file) fclose(file);
    huge[strcspn(huge, "\n")] = 0;
    LADDER_CHECK(cudaMemGetInfo(&left, &all));
    LADDER_CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, ladder_gpu(0)));
    record_add_text(&r, "experiment", "machine"), record_add_text(&r, "gpu", b->machine.name),
        record_add_count(&r, "gpu_bytes", all);
    record_add_count(&r, "gpu_bytes_free", left), record_add_count(&r, "host_bytes_usable", limits_host_bytes_free());
    record_add_count(&r, "processors", bench_processors()), record_add_text(&r, "transparent_hugepage", huge);
    record_add_plain(&r, "host_numa_id", kinds_driver_attribute(ATTRIBUTE_HOST_NUMA_ID));
    record_add_plain(&r, "host_numa_memory", kinds_driver_attribute(ATTRIBUTE_HOST_NUMA_MEMORY));
    record_add_count(&r, "concurrent_managed", (uint64_t)concurrent);
    record_add_real(&r, "link_to_device_bytes_per_s", b->speeds.to_device, 0);
    print_record(&r);
}

/* How long making memory takes is not known before the first; a large one might take all of the time. */
static void learn_speed(bench *b, double gib) {
    memory m = {};
    m.kind = REGISTERED;
    if (seconds <= 0 || !make_largest(b, &m, &gib, 1)) return;
    double since = bench_now();
    kinds_free_memory(&m);
    b->made_bytes += m.bytes, b->made_s += m.make_s + bench_now() - since;
}

int main(int argc, char **argv) {
    began = bench_now();
    bench_parse("bench_translation",
                "Random rows of tables of several sizes, read by a GPU where they lie, by how the memory was made.\n",
                options, argc, argv);
    for (uint32_t i = 0; i < row_bytes.n; i++)
        if ((uint32_t)row_bytes.values[i] % PACK) {
            fprintf(stderr, "bench_translation: --row-bytes %.0f: must be a multiple of 16\n", row_bytes.values[i]);
            return 2;
        }
    std::sort(sizes.values, sizes.values + sizes.n);
    bench b = {};
    b.machine = ladder_open(1);
    b.speeds = ladder_measure(&b.machine, LADDER_LARGE, 10);
    b.sum = ladder_device<unsigned long long>(1);
    print_machine(&b);
    learn_speed(&b, sizes.values[0]);
    for (uint32_t i = 0; i < kinds.n && !bench_interrupted(); i++)
        run_kind(&b, (uint32_t)kinds.values[i], sizes.values, sizes.n);
    ladder_free(b.sum);
    ladder_close(&b.machine);
    record r;
    record_add_text(&r, "experiment", "end"), record_add_real(&r, "seconds", bench_now() - began, 1),
        record_add_count(&r, "skipped", skipped);
    print_record(&r);
    return bench_exit_status();
}
