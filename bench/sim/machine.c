/* The times of the work that all systems share on a simulated machine, the machine's constants, and instances for a
 * workload. */
#include "bench/keys.h"
#include "bench/place/reads.h"
#include "bench/program.h"
#include "bench/sim/calibrated.h"
#include "bench/sim/sim.h"
#include "frugal_secondaries.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *const sim_system_names[SIM_SYSTEMS + 1] = {"frugal",  "sync",    "inplace", "kept",
                                                       "sharded", "nocache", "uvm",     NULL};

#define AUTHORS                                                                                                        \
    "the authors' UVA micro-benchmark (RecStore, small_tests/perf_uva/result.csv: 128 to 2048 rows of 128 bytes)"
#define ABOVE_0 0.001
#define HERE    "--calibrate, 10M rows x 32, SGD; " CALIBRATED_BY

const sim_constant sim_constants[SIM_CONSTANTS] = {
    {"pcie3-gbs", "GB/s", "payload of PCIe 3.0 x16, each way", "EMOGI (Min et al., PVLDB 14(2), 2020): 12.3 measured",
     12.3, ABOVE_0},
    {"pcie4-gbs", "GB/s", "payload of PCIe 4.0 x16, each way",
     "NCCL's figure for such a link (log in nccl-tests issue 307)", 24.0, ABOVE_0},
    {"pcie5-gbs", "GB/s", "payload of PCIe 5.0 x16, each way", "an H200's copy engine (docs/cuda.md)", 55.0, ABOVE_0},
    {"sockets-gbs", "GB/s", "between two sockets, each way",
     "Xeon Gold 6130: three links of 10.4 GT/s, two bytes wide, by Intel's data sheet", 62.4, ABOVE_0},
    {"header", "bytes", "of a request of up to 128 bytes", "EMOGI: 18", 18, 0},
    {"latency-us", "us", "of a transfer", "Neugebauer et al., SIGCOMM 2018: reads over PCIe take 0.5 to 1 us", 1, 0},
    {"zero-copy-ns", "ns", "a random host row read by a kernel, at least; more where the link takes longer",
     AUTHORS ": 27", 27, ABOVE_0},
    {"launch-us", "us", "a kernel", AUTHORS ": 8 us and no row, less the latency", 7, 0},
    {"gpu-gbs", "GB/s", "GPU memory", "NVIDIA, RTX 3090 data sheet", 936, ABOVE_0},
    {"gpu-tflops", "TFLOP/s", "of the dense part", "assumed: 40% of the data sheet's 35.6", 14, ABOVE_0},
    {"copy-us", "us", "a CPU gather and its copy, however small", AUTHORS ": gather and copy of no row", 26, 0},
    {"gather-ns", "ns", "a row of that, beside its bytes",
     AUTHORS ": 92 ns a row, less 128 bytes at a core's and the link's rate", 74, 0},
    {"core-gbs", "GB/s", "memory, one core", "assumed; Xeon Gold 6130", 10, ABOVE_0},
    {"host-gbs", "GB/s", "memory, all cores", "2 x Xeon Gold 6130: 256 by Intel's data sheet; 80% of it assumed", 205,
     ABOVE_0},
    {"collective-us", "us", "an exchange among all GPUs, however small, a GPU",
     "no P2P: 2 RTX 4090 take 12 us (tinygrad/open-gpu-kernel-modules issue 17), 8 take 42 (NVIDIA/nccl issue 1530)",
     5.5, 0},
    {"network-us", "us", "a message between two machines, beside its bytes",
     "assumed: MPI over Ethernet of 100 Gb/s, both ends included", 10, 0},
    {"send-ns", "ns", "a row that the CPU gathers for another machine, its bytes included",
     "assumed: what bench_rows finds of this library's gather", 20, 0},
    {"fault-us", "us", "a batch of page faults that the driver serves, beside the pages' bytes",
     "Ganguly and others, Interplay between hardware prefetcher and page eviction policy, ISCA 2019: one, on Pascal",
     45, 0},
    {"fault-batch", "faults", "in a batch, at most",
     "NVIDIA/open-gpu-kernel-modules: UVM_PERF_FAULT_BATCH_COUNT_DEFAULT", 256, 1},
    {"signal-us", "us", "until another processor, or a GPU, sees a word", "assumed: the latency of a transfer", 1, 0},
    {"announce-ns", "ns", "a key: sorted, deduplicated, its read noted", HERE, CALIBRATED_ANNOUNCE_NS, 0},
    {"whole-ns", "ns", "a key, where one GPU updates in place, so that there is no read to be noted", HERE,
     CALIBRATED_WHOLE_NS, 0},
    {"recall-ns", "ns", "in addition, where updates are kept: a key, sorted by the GPU that it is recalled from", HERE,
     CALIBRATED_RECALL_NS, 0},
    {"plan-ns", "ns", "an entry of a plan", HERE, CALIBRATED_PLAN_NS, 0},
    {"mark-ns", "ns", "in addition, where rows are in place: an entry is marked if its row is alone", HERE,
     CALIBRATED_MARK_NS, 0},
    {"close-ns", "ns", "an entry of a plan, closed and queued", HERE, CALIBRATED_CLOSE_NS, 0},
    {"pass-ns", "ns", "an entry of a row in place, passed by when closing", HERE, CALIBRATED_PASS_NS, 0},
    {"flush-ns", "ns", "a row of 128 bytes flushed; more bytes at a core's speed", HERE, CALIBRATED_FLUSH_NS, 0},
    {"loaders-slow", "%", "that each further thread adds to the time of announcing", HERE, CALIBRATED_LOADERS_SLOW, 0},
    {"helpers-slow", "%", "more time for planning, closing and flushing what other threads had in their caches", HERE,
     CALIBRATED_HELPERS_SLOW, 0},
};

static double gbs(const sim_workload *w, sim_constant_id id) {
    return w->constants[id] * 1e9;
}
static double us(const sim_workload *w, sim_constant_id id) {
    return w->constants[id] * 1e-6;
}
static double ns(const sim_workload *w, sim_constant_id id) {
    return w->constants[id] * 1e-9;
}

uint32_t sim_row_bytes(const sim_workload *w) {
    return w->dim * (uint32_t)sizeof(float);
}

uint64_t sim_state_bytes(const sim_workload *w) {
    return frugal_state_floats(w->optimizer, w->dim) * sizeof(float);
}

void sim_check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

uint32_t sim_stored_dim(const sim_workload *w) {
    enum { STORED = 4 }; /* rows of 16 bytes, so that tables of the paper's size fit into memory */
    return w->dim < STORED || w->whole_rows ? w->dim : STORED;
}

frugal_traffic sim_count(const frugal *f, const sim_workload *w, uint32_t device) {
    frugal_traffic counted;
    sim_check(frugal_cpu_get_traffic(f, device, &counted, NULL));
    uint64_t row = sim_stored_dim(w) * sizeof(float);
    uint64_t state = frugal_state_floats(w->optimizer, sim_stored_dim(w)) * sizeof(float);
    for (int way = 0; way < 3; way++) {
        uint64_t states = state ? (counted.bytes[way] - counted.rows[way] * row) / state : 0;
        counted.bytes[way] = counted.rows[way] * sim_row_bytes(w) + states * sim_state_bytes(w);
    }
    return counted;
}

uint64_t sim_cached_rows(const sim_workload *w) {
    return (uint64_t)(w->cache * (double)w->rows);
}

sim_link sim_link_of(const sim_workload *w, int zero_copy) {
    enum { LINE = 128 }; /* the largest request of a warp */
    double header = w->constants[SIM_HEADER], wire = (LINE + header) / LINE,
           full = gbs(w, (sim_constant_id)(SIM_PCIE3 + w->pcie - 3)) * wire;
    sim_topology t = {.gpus = w->gpus,
                      .behind_switch = w->behind_switch,
                      .sockets = w->sockets,
                      .root_lanes = w->root_lanes,
                      .link = full,
                      .socket_link = gbs(w, SIM_SOCKETS) * wire,
                      .memory = zero_copy ? gbs(w, SIM_HOST_MEMORY) * wire : 0}; /* sim_cpu_copy counts it, too */
    sim_link link = {.bandwidth = {full, full},
                     .latency = zero_copy ? us(w, SIM_LATENCY) : 0, /* a copy's is in its call */
                     .line = LINE,
                     .header = (uint32_t)header,
                     .shared = sim_shared_bandwidth(&t)};
    double rows = (double)sim_wire_bytes(&link, 1, sim_row_bytes(w)) / ns(w, SIM_ZERO_COPY);
    if (zero_copy && rows < full) link.bandwidth[0] = rows;
    return link;
}

double sim_kernel(const sim_workload *w, double gpu_bytes) {
    return us(w, SIM_LAUNCH) + gpu_bytes / gbs(w, SIM_GPU_MEMORY);
}

double sim_collective(const sim_workload *w) {
    return w->gpus > 1 ? w->gpus * us(w, SIM_COLLECTIVE) : 0;
}

/* Dense gradients are reduced in a ring: 2 (n - 1) / n of them cross each link both ways at once. Several machines send
 * those of each GPU to all others (frugal_exchange), because their sums have one order. */
double sim_dense(const sim_workload *w) {
    double seconds = w->dense_us * 1e-6 + w->flops / (w->constants[SIM_GPU_TFLOPS] * 1e12);
    if (w->machines > 1 && w->dense_bytes > 0)
        seconds += us(w, SIM_NETWORK) + (w->machines - 1.0) * w->gpus * w->dense_bytes / w->network;
    if (w->gpus == 1 || w->dense_bytes <= 0) return seconds;
    sim_link link = sim_link_of(w, 0);
    uint64_t bytes = (uint64_t)(2.0 * (w->gpus - 1) / w->gpus * w->dense_bytes);
    uint64_t wire = sim_wire_bytes(&link, 1, bytes);
    return seconds + sim_collective(w) + sim_link_seconds(&link, 0, wire, wire * w->gpus);
}

double sim_loaders_slow(const sim_workload *w, double threads) {
    return threads > 1 ? 1 + w->constants[SIM_LOADERS] / 100 * (threads - 1) : 1;
}

double sim_helpers_slow(const sim_workload *w, double threads) {
    return threads > 1 ? 1 + w->constants[SIM_HELPERS] / 100 * (1 - 1 / threads) : 1;
}

double sim_flush_seconds(const sim_workload *w, double rows, double busy) {
    enum { MEASURED = 3 * 128 }; /* bytes whose time is included in SIM_FLUSH */
    double bytes = (double)(3 * sim_row_bytes(w) + 2 * sim_state_bytes(w));
    double more = bytes > MEASURED ? rows * (bytes - MEASURED) : 0;
    double core = rows * ns(w, SIM_FLUSH) * sim_helpers_slow(w, busy) + more / gbs(w, SIM_CORE_MEMORY);
    double host = rows * bytes * busy / gbs(w, SIM_HOST_MEMORY);
    return core > host ? core : host;
}

double sim_gather_cores(const sim_workload *w) {
    return w->gather_cores > 0 ? w->gather_cores : (double)(w->workers + w->gpus) / w->gpus;
}

double sim_cpu_copy(const sim_workload *w, uint64_t n, uint64_t most_wire, uint64_t all_wire, int way) {
    sim_link link = sim_link_of(w, 0);
    if (n == 0) return 0;
    double bytes = (double)n * sim_row_bytes(w);
    double cores = ((double)n * ns(w, SIM_GATHER) + bytes / gbs(w, SIM_CORE_MEMORY)) / sim_gather_cores(w);
    double host = 2 * bytes * w->gpus / gbs(w, SIM_HOST_MEMORY); /* read and written, by all */
    return us(w, SIM_COPY_CALL) + (cores > host ? cores : host) + sim_link_seconds(&link, way, most_wire, all_wire);
}

/* The table, kept for all instances of a workload, because the values in its rows do not matter and gigabytes of fresh
 * memory take time. */
static struct {
    float *weights, *state;
    uint64_t weights_floats, state_floats;
} table_memory;

static void reuse(float **memory, uint64_t *floats, uint64_t wanted) {
    enum { HUGE_PAGE = 2 << 20 };
    if (*floats == wanted) return;
    free(*memory);
    *floats = wanted;
    size_t bytes = (wanted * sizeof **memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    *memory = wanted ? aligned_alloc(HUGE_PAGE, bytes) : NULL;
    if (*memory) madvise(*memory, bytes, MADV_HUGEPAGE); /* where there are */
    if (*memory) memset(*memory, 0, bytes);
    if (wanted && !*memory) bench_fail("%.1f GB for the table are not available; fewer --rows", (double)wanted * 4e-9);
}

void sim_free_table(void) {
    reuse(&table_memory.weights, &table_memory.weights_floats, 0);
    reuse(&table_memory.state, &table_memory.state_floats, 0);
}

sim_piece sim_piece_of(const frugal_stats *before, const frugal_stats *after) {
    if (after->plan_seconds > before->plan_seconds) return SIM_PLANNING;
    if (after->close_seconds > before->close_seconds) return SIM_CLOSING;
    if (after->flushed > before->flushed || after->stale_ids > before->stale_ids) return SIM_FLUSHING;
    return after->flush_seconds > before->flush_seconds ? SIM_RECALLING : SIM_ANNOUNCING;
}

frugal_alone sim_alone(sim_system system) {
    if (system == SIM_KEPT) return FRUGAL_ALONE_KEPT;
    return system == SIM_INPLACE ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
}

frugal *sim_open(const sim_workload *w, frugal_mode mode, frugal_alone alone, uint32_t max_keys, int defer) {
    frugal_table table = {.rows = w->rows};
    reuse(&table_memory.weights, &table_memory.weights_floats, w->rows * sim_stored_dim(w));
    reuse(&table_memory.state, &table_memory.state_floats,
          w->rows * frugal_state_floats(w->optimizer, sim_stored_dim(w)));
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = sim_stored_dim(w),
                        .devices = sim_devices(w),
                        .max_keys = max_keys,
                        .lookahead = defer ? w->lookahead : 0,
                        .staging = defer ? w->staging : 1,
                        .defer = defer,
                        .mode = mode,
                        .alone = alone,
                        .weights = table_memory.weights,
                        .state = table_memory.state,
                        .optimizer = {.kind = w->optimizer}};
    frugal *f;
    sim_check(frugal_open(&desc, &f));
    return f;
}

/* Preloads the hottest rows that the device may cache: its own, of so many owners of whom each caches others (0 of 1:
 * all), and those of the first machine. */
static void preload(frugal *f, const sim_workload *w, uint32_t device, const uint64_t *hottest, uint64_t n,
                    uint32_t owners) {
    uint64_t *keys = malloc(n * sizeof *keys);
    uint32_t own = 0;
    if (!keys) bench_fail("no memory for %llu keys", (unsigned long long)n);
    for (uint64_t i = 0; i < n && (w->machines < 2 || own < sim_cached_rows(w)); i++)
        if (hottest[i] % owners == device % owners && sim_home_of(w, hottest[i]) == 0) keys[own++] = hottest[i];
    sim_check(frugal_preload(f, device, &(frugal_keys){.table = 0, .keys = keys, .n = own}));
    free(keys);
}

typedef struct counted {
    uint64_t row, touches;
} counted;

static int by_touches(const void *a, const void *b) {
    const counted *x = a, *y = b;
    if (x->touches != y->touches) return x->touches < y->touches ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

/* The rows that the samples of a trace touch most. */
static void hottest_of(const place_trace *trace, uint64_t *hottest, uint64_t n) {
    counted *rows = malloc((size_t)trace->rows * sizeof *rows);
    if (!rows) bench_fail("no memory for the counts of %llu rows", (unsigned long long)trace->rows);
    for (uint64_t x = 0; x < trace->rows; x++) rows[x] = (counted){.row = x};
    for (uint64_t i = 0; i < trace->n * trace->width; i++) rows[trace->keys[i]].touches++;
    qsort(rows, (size_t)trace->rows, sizeof *rows, by_touches);
    for (uint64_t i = 0; i < n; i++) hottest[i] = rows[i].row;
    free(rows);
}

/* Lists the secondaries of a GPU. This empties its cache, so it comes before preloading. */
static void list_secondaries(frugal *f, const sim_workload *w, uint32_t device) {
    uint64_t n = (uint64_t)(w->secondaries * (double)w->rows);
    uint64_t *keys = malloc((n + 1) * sizeof *keys);
    double *touches = malloc((n + 1) * sizeof *touches);
    if (!keys || !touches) bench_fail("no memory for %llu secondaries; fewer --secondaries", (unsigned long long)n);
    n = frugal_place_rank(w->partition->place, device, FRUGAL_PLACE_BY_COUNT, w->batch, keys, touches, n);
    if (n > 0)
        sim_check(frugal_secondaries(f, device, &(frugal_keys){.table = 0, .keys = keys, .n = (uint32_t)n}, w->stale));
    free(keys), free(touches);
}

/* Of samples the rows that gain most on the device, if they are at home here. */
static void preload_dealt(frugal *f, const sim_workload *w, uint32_t device, uint64_t cache_rows) {
    const place_partition *p = w->partition;
    if (w->machines < 2)
        place_preload(f, p, device, cache_rows, w->policy);
    else
        preload(f, w, device, p->ranked + device * p->trace->rows, p->n_ranked[device], 1);
}

/* Attaches all devices; those of other machines cache nothing. With owners each device caches its own rows; else of
 * samples those that gain most there, and of drawn keys all the same. */
void sim_attach(frugal *f, const sim_workload *w, uint64_t cache_rows, uint32_t owners) {
    frugal_cpu_desc cpu = {.cache_rows = cache_rows, .policy = w->policy, .threads = 1}, away = {.threads = 1};
    uint32_t devices = w->machines > 1 ? w->gpus : frugal_settings(f)->devices;
    for (uint32_t d = 0; d < frugal_settings(f)->devices; d++)
        sim_check(frugal_cpu_attach(f, d, d < devices ? &cpu : &away));
    for (uint32_t d = 0; w->secondaries > 0 && owners == 1 && d < devices; d++) list_secondaries(f, w, d);
    if (cache_rows == 0) return;
    for (uint32_t d = 0; w->deal && owners == 1 && d < devices; d++) preload_dealt(f, w, d, cache_rows);
    if (w->deal && owners == 1) return;
    uint64_t n = cache_rows * owners * (w->machines > 1 ? w->machines : 1);
    if (n > w->rows) n = w->rows;
    uint64_t *hottest = malloc((n + 1) * sizeof *hottest);
    if (!hottest) bench_fail("no memory for %llu keys", (unsigned long long)n);
    if (w->deal)
        hottest_of(w->deal->trace, hottest, n);
    else
        bench_hottest_keys(hottest, n, w->rows); /* with uniform keys all rows are equally hot */
    for (uint32_t d = 0; d < devices; d++) preload(f, w, d, hottest, n, owners);
    free(hottest);
}
