/* bench_cuda.cu - Frugal on a GPU, beside what link and memory allow and what one would do without it.
 *
 *     build/cuda/bench_cuda                                      all experiments; --help shows what can be changed
 *     build/cuda/bench_cuda --experiment gather --dim 32 --batch 128,65536 --threads 1,8
 *     build/cuda/bench_cuda --experiment steps --system p2f --gate host,stream --json > steps
 *
 * gather    rows of the host table into the GPU's memory: read in place by a kernel (UVA), or gathered by the processor
 *           and copied. The paper's experiment #3.
 * hits      lookup and update by the cache's hit rate.
 * steps     whole steps on 1, 2, 4 logical devices of one GPU: flushed ahead by priority (p2f), written through (sync),
 *           and p2f without a cache. The paper's #1 and #5.
 * timeline  where the time of a step goes: the host's calls, the GPU's work, the gate.
 *
 * Forward and backward are one kernel, gradient = row * 0.001, so that nothing but Frugal is measured. PyTorch on the
 * same sizes: bench/reference_pytorch_cuda.py. All of it, with the ladders and the tests: bench/cuda/run.
 */
#include "host_gather.h"

#include <sys/mman.h>

/* >>options */

enum { GATHER, HITS, STEPS, TIMELINE };
enum { P2F, SYNC, NOCACHE };
enum { GATE_HOST, GATE_STREAM };
static const char *const experiments[] = {"gather", "hits", "steps", "timeline", NULL};
static const char *const systems[] = {"p2f", "sync", "nocache", NULL};
static const char *const gates[] = {"host", "stream", NULL};
static const char *const optimizers[] = {"sgd", "adagrad", "rowwise-adagrad", "adam", NULL}; /* frugal_optimizer_kind */

static bench_list experiment = {{GATHER, HITS, STEPS, TIMELINE}, 4}, rows = {{10e6}, 1}, dim = {{32, 128}, 2},
                  batch = {{128, 512, 2048, 8192, 32768, 65536}, 6}, threads = {{1, 0}, 2},
                  hits = {{0, 0.25, 0.5, 0.75, 0.9, 1}, 6}, keys = {{26624}, 1}, devices = {{1, 2, 4}, 3},
                  zipf = {{0, 0.99}, 2}, system_option = {{P2F, SYNC, NOCACHE}, 3},
                  gate = {{GATE_HOST, GATE_STREAM}, 2}, cache = {{0.05}, 1}, workers = {{2}, 1}, lookahead = {{10}, 1},
                  optimizer = {{FRUGAL_ROWWISE_ADAGRAD}, 1}, steps = {{60}, 1}, rounds = {{5}, 1}, repeats = {{50}, 1},
                  json;

static const bench_option options[] = {
    {"--experiment", BENCH_CHOICE, &experiment, 0, 0, experiments, "what to measure"},
    {"--rows", BENCH_ONE_COUNT, &rows, 16, 4294967294, NULL, "rows of the table"},
    {"--dim", BENCH_COUNT, &dim, 1, 65536, NULL, "floats a row"},
    {"--batch", BENCH_COUNT, &batch, 1, 1 << 24, NULL, "gather: rows at a time"},
    {"--threads", BENCH_COUNT, &threads, 0, 64, NULL,
     "gather: of the processor's gather; 0: half of the processors, 8 at most"},
    {"--hits", BENCH_REAL, &hits, 0, 1, NULL, "hits: keys of rows that are in the cache, as a share"},
    {"--keys", BENCH_COUNT, &keys, 1, 1 << 24, NULL, "the others: looked up by a device in a step"},
    {"--devices", BENCH_COUNT, &devices, 1, 64, NULL, "steps: logical devices on the GPU, a thread and a stream each"},
    {"--zipf", BENCH_REAL, &zipf, 0, 10, NULL, "steps, timeline: skew of the keys; 0: uniform"},
    {"--system", BENCH_CHOICE, &system_option, 0, 0, systems, "steps"},
    {"--gate", BENCH_CHOICE, &gate, 0, 0, gates, "steps, timeline: who waits there"},
    {"--cache", BENCH_ONE_REAL, &cache, 0, 1, NULL, "steps, timeline: rows cached by each device, as a share of all"},
    {"--workers", BENCH_ONE_COUNT, &workers, 1, 1024, NULL, "threads that flush"},
    {"--lookahead", BENCH_ONE_COUNT, &lookahead, 1, 15, NULL, "steps announced ahead"},
    {"--optimizer", BENCH_ONE_CHOICE, &optimizer, 0, 0, optimizers, "of the rows"},
    {"--steps", BENCH_ONE_COUNT, &steps, 1, 1e9, NULL, "steps: of a round"},
    {"--rounds", BENCH_ONE_COUNT, &rounds, 1, BENCH_SAMPLES, NULL, "steps: of which medians are taken, after one more"},
    {"--repeats", BENCH_ONE_COUNT, &repeats, 1, BENCH_SAMPLES, NULL,
     "the others: of which medians are taken, after some more"},
    {"--json", BENCH_FLAG, &json, 0, 0, NULL, "one object a line"},
};

static uint64_t count_of(const bench_list *list) {
    return (uint64_t)list->values[0];
}

/* >>table: rows in memory that is pinned once; instances share it, one after the other or in turn */

typedef struct table {
    ladder_machine *machine;
    ladder_speeds speeds;
    float *weights;
    uint64_t rows, stride, bytes;
    uint32_t dim;
} table;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

typedef struct setup { /* of an instance */
    uint32_t devices, keys, lookahead, workers;
    frugal_mode mode;
    frugal_optimizer_kind optimizer;
} setup;

static frugal *open_instance(const table *t, const setup *s, frugal_init_kind init) {
    frugal_table one = {};
    frugal_desc desc = {};
    frugal *f = NULL;
    one.rows = t->rows, one.init = init, one.a = -0.1f, one.b = 0.1f;
    desc.tables = &one, desc.n_tables = 1, desc.dim = t->dim, desc.devices = s->devices, desc.max_keys = s->keys;
    desc.lookahead = s->lookahead, desc.workers = s->workers, desc.mode = s->mode, desc.optimizer.kind = s->optimizer;
    desc.weights = t->weights, desc.weights_stride = t->stride;
    check(frugal_open(&desc, &f));
    return f;
}

static table open_table(ladder_machine *m, const ladder_speeds *speeds, uint64_t n, uint32_t dim) {
    enum { LINE = 32, HUGE_PAGE = 2 << 20 };
    table t = {m, *speeds, NULL, n, (dim * sizeof(float) + LINE - 1) / LINE * LINE / sizeof(float), 0, dim};
    t.bytes = (t.rows * t.stride * sizeof(float) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    bench_progress("a table of %llu x %u", (unsigned long long)n, dim);
    t.weights = (float *)aligned_alloc(HUGE_PAGE, t.bytes);
    if (!t.weights) bench_fail("no memory for a table of %llu x %u", (unsigned long long)n, dim);
#ifdef MADV_HUGEPAGE
    madvise(t.weights, t.bytes, MADV_HUGEPAGE);
#endif
    setup s = {1, 1, 0, 0, FRUGAL_P2F, FRUGAL_SGD};
    frugal_close(open_instance(&t, &s, FRUGAL_INIT_UNIFORM)); /* by all processors; then there are pages to pin */
    LADDER_CHECK(cudaHostRegister(t.weights, t.bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    return t;
}

static void close_table(table *t) {
    LADDER_CHECK(cudaHostUnregister(t->weights));
    free(t->weights);
}

static void attach(frugal *f, uint32_t device, cudaStream_t stream, uint64_t cache_rows, frugal_cache_policy policy,
                   int gate_on_stream) {
    frugal_cuda_desc desc = {};
    frugal_cuda_info info;
    desc.cache_rows = cache_rows, desc.policy = policy, desc.stream = stream, desc.gate_on_stream = gate_on_stream;
    check(frugal_cuda_attach(f, device, 0, &desc));
    check(frugal_cuda_get_info(f, device, &info));
    if (!info.table_is_pinned)
        bench_fail("the table is not pinned: the host would gather, and that is not what is measured here");
}

static void announce(frugal *f, uint32_t device, uint64_t step, const uint64_t *drawn, uint64_t n) {
    frugal_keys segment = {0, drawn, (uint32_t)n};
    frugal_batch one = {&segment, 1, 0};
    check(frugal_announce(f, device, step, &one));
}

static void update(frugal *f, uint32_t device, uint64_t step, const float *grads) {
    frugal_gradients g = {};
    g.grads = grads, g.lr = 1e-6f; /* rows stay what they are, for as many steps as one likes */
    check(frugal_update(f, device, step, grads ? &g : NULL));
}

static __global__ void gradient_kernel(float *grads, const float *from, uint64_t n) {
    uint64_t all = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += all) grads[i] = from[i] * 0.001f;
}

static void compute(const ladder_machine *m, cudaStream_t stream, float *grads, const float *from, uint64_t n) {
    FRUGAL_LAUNCH(gradient_kernel, ladder_grid<gradient_kernel>(m, n, 1), LADDER_BLOCK, stream, grads, from, n);
    LADDER_CHECK(cudaGetLastError());
}

static float elapsed_ms(cudaEvent_t from, cudaEvent_t to) {
    float ms;
    LADDER_CHECK(cudaEventElapsedTime(&ms, from, to));
    return ms;
}

/* >>gather */

enum { BATCHES = 16 }; /* of keys, in turn */

typedef struct way {  /* of getting rows to the GPU */
    uint32_t threads; /* of the processor's; 0: UVA */
    bench_samples seconds, gpu_seconds;
} way;

static void print_gather(const table *t, uint64_t n, const way *ways, uint32_t count) {
    double bytes = (double)(n * t->dim) * sizeof(float), best = 0;
    for (uint32_t i = 1; i < count; i++) {
        double one = bench_median(&ways[i].seconds);
        if (best == 0 || one < best) best = one;
    }
    double ratio = best / bench_median(&ways[0].seconds);
    if (!json.n) printf("%4u %8llu ", t->dim, (unsigned long long)n);
    for (uint32_t i = 0; i < count; i++) {
        const way *w = &ways[i];
        double median = bench_median(&w->seconds), gpu = bench_median(&w->gpu_seconds);
        if (json.n)
            printf("{\"experiment\": \"gather\", \"how\": \"%s\", \"threads\": %u, \"rows\": %llu, \"dim\": %u, "
                   "\"batch\": %llu, \"us\": %.2f, \"min_us\": %.2f, \"max_us\": %.2f, \"gpu_us\": %.2f, "
                   "\"bytes_per_s\": %.0f, \"link_share\": %.4f, \"ratio\": %.3f}\n",
                   w->threads ? "cpu" : "uva", w->threads, (unsigned long long)t->rows, t->dim, (unsigned long long)n,
                   median * 1e6, bench_quantile(&w->seconds, 0) * 1e6, bench_quantile(&w->seconds, 1) * 1e6, gpu * 1e6,
                   bytes / median, bytes / (w->threads ? median : gpu) / t->speeds.to_device,
                   w->threads ? median / bench_median(&ways[0].seconds) : 1.0);
        else if (w->threads == 0)
            printf("%8.1f (%8.1f %8.1f) %8.1f %6.1f %4.0f%%", median * 1e6, bench_quantile(&w->seconds, 0) * 1e6,
                   bench_quantile(&w->seconds, 1) * 1e6, gpu * 1e6, bytes / gpu / 1e9,
                   bytes / gpu / t->speeds.to_device * 100);
        else
            printf("  %3u: %8.1f %6.1f", w->threads, median * 1e6, bytes / median / 1e9);
    }
    if (!json.n && count > 1) printf("  %5.2f", ratio);
    if (!json.n) puts("");
    fflush(stdout);
}

/* Seconds until the rows of one announced batch are in the GPU's memory: seen by the host; of the GPU's work alone. */
static void time_uva(frugal *f, const table *t, uint64_t step, const uint64_t *drawn, uint64_t n, float *out,
                     double *seen, double *gpu) {
    ladder_machine *m = t->machine;
    announce(f, 0, step, drawn, n);
    LADDER_CHECK(cudaDeviceSynchronize()); /* its arrays are there, as they would be L steps ahead */
    double since = bench_now();
    LADDER_CHECK(cudaEventRecord(m->begin, m->stream));
    check(frugal_lookup(f, 0, step, out));
    LADDER_CHECK(cudaEventRecord(m->end, m->stream));
    LADDER_CHECK(cudaStreamSynchronize(m->stream));
    *seen = bench_now() - since;
    *gpu = elapsed_ms(m->begin, m->end) * 1e-3;
    update(f, 0, step, NULL);
    LADDER_CHECK(cudaStreamSynchronize(m->stream));
}

/* All ways take turns, a batch each. */
static void gather_one(const table *t, uint64_t n, uint32_t repeat) {
    way ways[1 + BENCH_LIST] = {};
    host_gather *pools[1 + BENCH_LIST] = {};
    uint32_t count = 1 + threads.n, half = bench_processors() / 2;
    std::vector<uint64_t> drawn(n * BATCHES);
    bench_draw_keys(drawn.data(), drawn.size(), t->rows, 0, 17);
    setup s = {1, (uint32_t)n, 1, 0, FRUGAL_P2F, FRUGAL_SGD};
    frugal *f = open_instance(t, &s, FRUGAL_INIT_DEFAULT);
    attach(f, 0, t->machine->stream, 0, FRUGAL_LRU, 0);
    float *out = ladder_device<float>(n * t->dim);
    for (uint32_t i = 1; i < count; i++) {
        ways[i].threads = (uint32_t)threads.values[i - 1];
        if (ways[i].threads == 0) ways[i].threads = half < 1 ? 1 : half > 8 ? 8 : half;
        pools[i] = host_gather_open(t->weights, t->stride, t->dim, n, ways[i].threads);
    }
    for (uint32_t turn = 0; turn < repeat + BATCHES && !bench_interrupted(); turn++) {
        const uint64_t *mine = drawn.data() + turn % BATCHES * n;
        double seen, gpu;
        time_uva(f, t, turn, mine, n, out, &seen, &gpu);
        if (turn >= BATCHES) bench_add(&ways[0].seconds, seen), bench_add(&ways[0].gpu_seconds, gpu);
        for (uint32_t i = 1; i < count; i++) {
            double one = host_gather_seconds(pools[i], drawn.data() + (turn + i) % BATCHES * n, n);
            if (turn >= BATCHES) bench_add(&ways[i].seconds, one);
        }
    }
    for (uint32_t i = 1; i < count; i++) host_gather_close(pools[i]);
    frugal_close(f);
    ladder_free(out);
    if (ways[0].seconds.n) print_gather(t, n, ways, count);
}

static void run_gather(const table *t) {
    if (!json.n)
        printf(
            "\n"
            "gather: us until the rows are in the GPU's memory, as the host sees it; share of the link's bandwidth;\n"
            "then us and GB/s of so many threads that gather, and the best of them over UVA\n"
            " dim    batch      UVA (   least     most)  GPU's us   GB/s share  threads\n");
    for (uint32_t i = 0; i < batch.n && !bench_interrupted(); i++)
        gather_one(t, (uint64_t)batch.values[i], (uint32_t)count_of(&repeats));
}

/* >>hits */

/* keys[n], a share of them of rows below `cached`. */
static void draw_hits(uint64_t *drawn, uint64_t n, uint64_t cached, uint64_t all, double share, uint64_t seed) {
    std::vector<uint64_t> in(n), out(n);
    bench_draw_keys(in.data(), n, cached, 0, seed);
    bench_draw_keys(out.data(), n, all - cached, 0, seed + 1);
    for (uint64_t i = 0; i < n; i++)
        drawn[i] = (double)((i * 7919) % n) < share * (double)n ? in[i] : cached + out[i]; /* mixed; 7919 is prime */
}

typedef struct hits_result {
    bench_samples lookup, update; /* seconds of the GPU */
    double hits, unique;          /* hits: of the unique rows; unique: of the keys */
} hits_result;

static hits_result measure_hits(const table *t, uint64_t n, double share, uint32_t repeat) {
    ladder_machine *m = t->machine;
    hits_result r = {};
    uint64_t cached = std::min<uint64_t>(t->rows / 2, std::max<uint64_t>(8 * n, 1 << 17));
    setup s = {1, (uint32_t)n, 1, (uint32_t)count_of(&workers), FRUGAL_P2F, (frugal_optimizer_kind)optimizer.values[0]};
    std::vector<uint64_t> drawn(n * BATCHES), preload(cached);
    frugal *f = open_instance(t, &s, FRUGAL_INIT_DEFAULT);
    attach(f, 0, m->stream, 2 * cached, FRUGAL_STATIC, 0); /* twice: no set is too small */
    for (uint64_t i = 0; i < cached; i++) preload[i] = i;
    frugal_keys segment = {0, preload.data(), (uint32_t)cached};
    check(frugal_preload(f, 0, &segment));
    for (uint32_t i = 0; i < BATCHES; i++) draw_hits(drawn.data() + i * n, n, cached, t->rows, share, 100 + 2 * i);
    float *out = ladder_device<float>(n * t->dim);
    for (uint32_t turn = 0; turn < repeat + 2 && !bench_interrupted(); turn++) {
        announce(f, 0, turn, drawn.data() + turn % BATCHES * n, n);
        LADDER_CHECK(cudaDeviceSynchronize());
        double lookup_s = ladder_seconds(m, [&] { check(frugal_lookup(f, 0, turn, out)); });
        double update_s = ladder_seconds(m, [&] { update(f, 0, turn, out); });
        if (turn >= 2) bench_add(&r.lookup, lookup_s), bench_add(&r.update, update_s);
    }
    frugal_stats stats;
    check(frugal_drain(f));
    frugal_get_stats(f, &stats);
    r.hits = (double)stats.hits / (double)(stats.unique_rows ? stats.unique_rows : 1);
    r.unique = (double)stats.unique_rows / (double)(stats.keys ? stats.keys : 1);
    frugal_close(f);
    ladder_free(out);
    return r;
}

/* One line of lookup or update: bytes that must cross the link, and bytes that the GPU's memory must move. */
static void print_hits(const table *t, uint64_t n, double share, const hits_result *r, int is_update) {
    const bench_samples *s = is_update ? &r->update : &r->lookup;
    double median = bench_median(s), row = t->dim * sizeof(float), unique = r->unique * (double)n;
    double link = (is_update ? unique : unique * (1 - r->hits)) * row;
    double memory = (double)n * row + unique * r->hits * row *
                                          (is_update ? 2 : 1); /* rows out, copies in; gradients in, copies both ways */
    double of = is_update ? t->speeds.to_host : t->speeds.to_device;
    if (json.n)
        printf("{\"experiment\": \"hits\", \"what\": \"%s\", \"rows\": %llu, \"dim\": %u, \"keys\": %llu, "
               "\"wanted\": %g, \"hits\": %.4f, \"unique\": %.4f, \"us\": %.2f, \"min_us\": %.2f, \"max_us\": %.2f, "
               "\"keys_per_s\": %.0f, \"bytes_per_s\": %.0f, \"link_bytes_per_s\": %.0f, \"link_share\": %.4f, "
               "\"memory_share\": %.4f}\n",
               is_update ? "update" : "lookup", (unsigned long long)t->rows, t->dim, (unsigned long long)n, share,
               r->hits, r->unique, median * 1e6, bench_quantile(s, 0) * 1e6, bench_quantile(s, 1) * 1e6,
               (double)n / median, (double)n * row / median, link / median, link / median / of,
               memory / median / t->speeds.device);
    else
        printf("%4u %7llu %5.0f%%  %s %9.1f (%8.1f %8.1f) %8.1f %7.1f %7.1f %5.0f%% %6.0f%%\n", t->dim,
               (unsigned long long)n, r->hits * 100, is_update ? "update" : "lookup", median * 1e6,
               bench_quantile(s, 0) * 1e6, bench_quantile(s, 1) * 1e6, (double)n / median / 1e6,
               (double)n * row / median / 1e9, link / median / 1e9, link / median / of * 100,
               memory / median / t->speeds.device * 100);
    fflush(stdout);
}

static void run_hits(const table *t) {
    if (!json.n)
        printf("\n"
               "hits: us of the GPU's work, by the share of unique rows that the cache has; shares of the link's "
               "and the memory's bandwidth\n"
               " dim    keys   hits  what          us (   least     most)   keys M/s   GB/s    link share  memory\n");
    for (uint32_t k = 0; k < keys.n; k++)
        for (uint32_t i = 0; i < hits.n && !bench_interrupted(); i++) {
            hits_result r = measure_hits(t, (uint64_t)keys.values[k], hits.values[i], (uint32_t)count_of(&repeats));
            if (r.lookup.n == 0) continue;
            print_hits(t, (uint64_t)keys.values[k], hits.values[i], &r, 0);
            print_hits(t, (uint64_t)keys.values[k], hits.values[i], &r, 1);
        }
}

/* >>steps */

typedef struct meeting { /* where threads wait for each other */
    uint32_t threads;
    std::atomic<uint32_t> arrived, passed;
} meeting;

static void meet(meeting *m) {
    uint32_t passed = m->passed.load(std::memory_order_relaxed);
    if (m->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == m->threads) {
        m->arrived.store(0, std::memory_order_relaxed);
        m->passed.store(passed + 1, std::memory_order_release);
        return;
    }
    while (m->passed.load(std::memory_order_acquire) == passed) sched_yield();
}

typedef struct training { /* one configuration under way */
    const table *t;
    uint32_t devices, system, gate;
    uint64_t keys, next; /* next: the step to come */
    double zipf;
    frugal *f;
    bench_samples keys_per_s, stall, hits, host; /* a round each; seconds of a device's step */
} training;

typedef struct trainer {
    training *run;
    uint32_t number;
    cudaStream_t stream;
    float *rows, *grads;         /* [keys][dim] each */
    std::vector<uint64_t> drawn; /* [BATCHES][keys] */
    double spent;                /* in calls of frugal, this round */
} trainer;

/* The announcement comes last: it waits until step s - 1 is closed, and so it does while the GPU is at work on s.
 * Before the lookup, the GPU would be idle meanwhile. */
static void train(trainer *me, meeting *m, uint64_t begin, uint64_t end) {
    training *r = me->run;
    uint64_t ahead = count_of(&lookahead), n = r->keys;
    bench_bind(me->number);
    LADDER_CHECK(cudaSetDevice(0));
    me->spent = 0;
    for (uint64_t s = begin; s < end && s < begin + ahead; s++)
        announce(r->f, me->number, s, me->drawn.data() + s % BATCHES * n, n);
    meet(m);
    for (uint64_t s = begin; s < end; s++) {
        double since = bench_now();
        check(frugal_lookup(r->f, me->number, s, me->rows));
        double looked_up = bench_now();
        compute(r->t->machine, me->stream, me->grads, me->rows, n * r->t->dim);
        double computed = bench_now();
        update(r->f, me->number, s, me->grads);
        if (s + ahead < end) announce(r->f, me->number, s + ahead, me->drawn.data() + (s + ahead) % BATCHES * n, n);
        me->spent += looked_up - since + bench_now() - computed;
    }
}

static std::vector<trainer> open_training(training *r) {
    const table *t = r->t;
    setup s = {r->devices,
               (uint32_t)r->keys,
               (uint32_t)count_of(&lookahead),
               (uint32_t)count_of(&workers),
               r->system == SYNC ? FRUGAL_SYNC : FRUGAL_P2F,
               (frugal_optimizer_kind)optimizer.values[0]};
    std::vector<trainer> all(r->devices);
    r->f = open_instance(t, &s, FRUGAL_INIT_DEFAULT);
    uint64_t cached = r->system == NOCACHE ? 0 : (uint64_t)(cache.values[0] * (double)t->rows);
    for (uint32_t d = 0; d < r->devices; d++) {
        trainer *one = &all[d];
        one->run = r, one->number = d;
        LADDER_CHECK(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking));
        attach(r->f, d, one->stream, cached, FRUGAL_LRU, r->gate == GATE_STREAM);
        one->rows = ladder_device<float>(r->keys * t->dim), one->grads = ladder_device<float>(r->keys * t->dim);
        one->drawn.resize(r->keys * BATCHES);
        bench_draw_keys(one->drawn.data(), one->drawn.size(), t->rows, r->zipf, 42 + d);
    }
    return all;
}

static void close_training(training *r, std::vector<trainer> *all) {
    frugal_close(r->f); /* before the streams: it ends what they have */
    for (trainer &one : *all) {
        LADDER_CHECK(cudaStreamDestroy(one.stream));
        ladder_free(one.rows), ladder_free(one.grads);
    }
}

/* `n` steps on all devices, drained at the end; counted or not. */
static void train_round(training *r, std::vector<trainer> *all, uint64_t n, int counts) {
    frugal_stats before, after;
    meeting m;
    m.threads = r->devices + 1, m.arrived = 0, m.passed = 0;
    std::vector<std::thread> running;
    double host = 0;
    frugal_get_stats(r->f, &before);
    for (trainer &one : *all) running.emplace_back(train, &one, &m, r->next, r->next + n);
    meet(&m);
    double since = bench_now();
    for (std::thread &one : running) one.join();
    check(frugal_drain(r->f));
    double seconds = bench_now() - since;
    frugal_get_stats(r->f, &after);
    r->next += n;
    for (trainer &one : *all) host += one.spent;
    if (!counts) return;
    double device_steps = (double)(n * r->devices), looked_up = (double)(after.unique_rows - before.unique_rows);
    bench_add(&r->keys_per_s, (double)(after.keys - before.keys) / seconds);
    bench_add(&r->stall, (after.stall_seconds - before.stall_seconds) / device_steps);
    bench_add(&r->hits, looked_up > 0 ? (double)(after.hits - before.hits) / looked_up : 0);
    bench_add(&r->host, host / device_steps);
}

static void print_steps(const training *r) {
    const bench_samples *s = &r->keys_per_s;
    double step_ms = bench_median(s) > 0 ? (double)(r->keys * r->devices) / bench_median(s) * 1e3 : 0;
    if (json.n)
        printf("{\"experiment\": \"steps\", \"system\": \"%s\", \"gate\": \"%s\", \"rows\": %llu, \"dim\": %u, "
               "\"devices\": %u, \"keys\": %llu, \"zipf\": %g, \"cache\": %g, \"workers\": %.0f, \"lookahead\": "
               "%.0f, \"optimizer\": \"%s\", \"keys_per_s\": %.0f, \"min\": %.0f, \"max\": %.0f, \"step_ms\": %.4f, "
               "\"stall_ms\": %.4f, \"host_ms\": %.4f, \"hits\": %.4f, \"rounds\": %u}\n",
               systems[r->system], gates[r->gate], (unsigned long long)r->t->rows, r->t->dim, r->devices,
               (unsigned long long)r->keys, r->zipf, r->system == NOCACHE ? 0.0 : cache.values[0], workers.values[0],
               lookahead.values[0], optimizers[(int)optimizer.values[0]], bench_median(s), bench_quantile(s, 0),
               bench_quantile(s, 1), step_ms, bench_median(&r->stall) * 1e3, bench_median(&r->host) * 1e3,
               bench_median(&r->hits), s->n);
    else
        printf("%4u %3u %7llu %5.2f  %-7s %-6s %8.1f (%7.1f %7.1f) %8.3f %8.3f %8.3f %6.0f%%\n", r->t->dim, r->devices,
               (unsigned long long)r->keys, r->zipf, systems[r->system], gates[r->gate], bench_median(s) / 1e6,
               bench_quantile(s, 0) / 1e6, bench_quantile(s, 1) / 1e6, step_ms, bench_median(&r->stall) * 1e3,
               bench_median(&r->host) * 1e3, bench_median(&r->hits) * 100);
    fflush(stdout);
}

/* Systems that share a workload take turns, a round each. */
static void steps_of(const table *t, uint32_t n_devices, uint64_t n_keys, double skew) {
    std::vector<training> runs;
    std::vector<std::vector<trainer>> trainers;
    uint64_t warm = 2 * count_of(&lookahead) > count_of(&steps) ? 2 * count_of(&lookahead) : count_of(&steps);
    for (uint32_t i = 0; i < system_option.n * gate.n; i++)
        runs.push_back({t,
                        n_devices,
                        (uint32_t)system_option.values[i / gate.n],
                        (uint32_t)gate.values[i % gate.n],
                        n_keys,
                        0,
                        skew,
                        NULL,
                        {},
                        {},
                        {},
                        {}});
    for (training &r : runs) trainers.push_back(open_training(&r));
    for (uint32_t round = 0; round <= count_of(&rounds) && !bench_interrupted(); round++)
        for (uint32_t i = 0; i < runs.size() && !bench_interrupted(); i++) {
            train_round(&runs[i], &trainers[i], round ? count_of(&steps) : warm, round > 0);
            bench_progress("%u devices, %s: round %u of %.0f", n_devices, systems[runs[i].system], round,
                           rounds.values[0]);
        }
    bench_progress("%s", "");
    for (uint32_t i = 0; i < runs.size(); i++) {
        if (runs[i].keys_per_s.n) print_steps(&runs[i]);
        close_training(&runs[i], &trainers[i]);
    }
}

static void run_steps(const table *t) {
    if (!json.n)
        printf("\n"
               "steps: logical devices on one GPU. stall: between the last commit and the opening of the gate; where\n"
               "the stream waits for it, the host does not, and nothing is counted. host: in a step's calls\n"
               " dim dev    keys  zipf  system  gate   keys M/s (  least    most)  step ms stall ms  host ms   hits\n");
    for (uint32_t d = 0; d < devices.n; d++)
        for (uint32_t k = 0; k < keys.n; k++)
            for (uint32_t z = 0; z < zipf.n && !bench_interrupted(); z++)
                steps_of(t, (uint32_t)devices.values[d], (uint64_t)keys.values[k], zipf.values[z]);
}

/* >>timeline */

typedef enum span {
    HOST_LOOKUP,
    HOST_COMPUTE,
    HOST_UPDATE,
    HOST_ANNOUNCE,
    GPU_LOOKUP,
    GPU_COMPUTE,
    GPU_UPDATE,
    GATE_OPENS,
    SPANS
} span;
static const char *const lanes[SPANS] = {"host", "host", "host", "host", "GPU", "GPU", "GPU", "gate"};
static const char *const spans[SPANS] = {"lookup", "launch forward and backward", "update", "announce",
                                         "lookup", "forward and backward",        "update", "of the next step opens"};

enum { STAMPS = 5 }; /* of the host, in a step: before lookup, launch, update, announce, and at the end */
enum { EVENTS = 4 }; /* of the GPU: before lookup, after lookup, compute, update */

typedef struct timeline {
    training run;
    std::vector<double> host, cpu;   /* [steps][STAMPS]: of wall time, and of the thread on its processor */
    std::vector<double> opened;      /* [steps]: when the gate opened; 0: not seen */
    std::vector<cudaEvent_t> events; /* [steps][EVENTS] */
    std::atomic<int> ends;
} timeline;

/* Notes when gates open; a thread of its own, which does nothing else. Only where streams wait for them is there a word
 * to watch; where the host waits, it is in lookup until then. */
static void watch_gates(timeline *l, uint64_t n) {
    const uint64_t *word = frugal_gates(l->run.f);
    int ends = 0;
    for (uint64_t seen = 0; seen < n && !ends;) {
        ends = l->ends.load(std::memory_order_relaxed); /* before the last look */
        uint64_t open = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (open <= seen) sched_yield();
        for (double now = bench_now(); seen < open && seen < n; seen++) l->opened[seen] = now;
    }
}

static void take_stamp(timeline *l, uint64_t s, uint32_t i) {
    l->host[s * STAMPS + i] = bench_now(), l->cpu[s * STAMPS + i] = bench_thread_seconds();
}

static void run_timeline_steps(timeline *l, trainer *me, uint64_t n) {
    training *r = &l->run;
    uint64_t ahead = count_of(&lookahead), k = r->keys;
    for (uint64_t s = 0; s < n && s < ahead; s++) announce(r->f, 0, s, me->drawn.data() + s % BATCHES * k, k);
    for (uint64_t s = 0; s < n && !bench_interrupted(); s++) {
        cudaEvent_t *event = &l->events[s * EVENTS];
        take_stamp(l, s, 0);
        LADDER_CHECK(cudaEventRecord(event[0], me->stream));
        check(frugal_lookup(r->f, 0, s, me->rows));
        LADDER_CHECK(cudaEventRecord(event[1], me->stream));
        take_stamp(l, s, 1);
        compute(r->t->machine, me->stream, me->grads, me->rows, k * r->t->dim);
        LADDER_CHECK(cudaEventRecord(event[2], me->stream));
        take_stamp(l, s, 2);
        update(r->f, 0, s, me->grads);
        LADDER_CHECK(cudaEventRecord(event[3], me->stream));
        take_stamp(l, s, 3);
        if (s + ahead < n) announce(r->f, 0, s + ahead, me->drawn.data() + (s + ahead) % BATCHES * k, k);
        take_stamp(l, s, 4);
    }
    LADDER_CHECK(cudaStreamSynchronize(me->stream));
}

/* Begin and end of each span of a step, seconds from its beginning. `origin`: an event, and the host's time of it. */
static void add_step(const timeline *l, uint64_t s, cudaEvent_t origin, double origin_at, bench_samples begin[SPANS],
                     bench_samples end[SPANS]) {
    const double *stamp = &l->host[s * STAMPS];
    const cudaEvent_t *event = &l->events[s * EVENTS];
    double zero = stamp[0], at[EVENTS];
    for (uint32_t i = 0; i < EVENTS; i++) at[i] = origin_at + elapsed_ms(origin, event[i]) * 1e-3 - zero;
    for (uint32_t i = 0; i < 4; i++)
        bench_add(&begin[HOST_LOOKUP + i], stamp[i] - zero), bench_add(&end[HOST_LOOKUP + i], stamp[i + 1] - zero);
    for (uint32_t i = 0; i < 3; i++)
        bench_add(&begin[GPU_LOOKUP + i], at[i]), bench_add(&end[GPU_LOOKUP + i], at[i + 1]);
    double opens = l->opened[s + 1] - zero;
    if (l->opened[s + 1] > 0) bench_add(&begin[GATE_OPENS], opens), bench_add(&end[GATE_OPENS], opens);
}

/* Seconds in a step's calls of frugal: all but the launch. `from`: host or cpu. */
static double in_calls(const std::vector<double> *from, uint64_t s) {
    const double *stamp = &(*from)[s * STAMPS];
    return stamp[1] - stamp[0] + stamp[4] - stamp[2];
}

static void print_timeline(const timeline *l, uint64_t first, const bench_samples begin[SPANS],
                           const bench_samples end[SPANS]) {
    const training *r = &l->run;
    uint32_t n = begin[0].n;
    bench_samples wall = {}, cpu = {};
    for (uint32_t i = 0; i < n; i++)
        bench_add(&wall, in_calls(&l->host, first + i)), bench_add(&cpu, in_calls(&l->cpu, first + i));
    double step = (l->host[(first + n) * STAMPS] - l->host[first * STAMPS]) / n;
    if (json.n)
        printf(
            "{\"experiment\": \"timeline\", \"lane\": \"all\", \"what\": \"step\", \"gate\": \"%s\", \"rows\": %llu, "
            "\"dim\": %u, "
            "\"keys\": %llu, \"zipf\": %g, \"cache\": %g, \"step_us\": %.2f, \"host_us\": %.2f, \"host_cpu_us\": %.2f, "
            "\"host_cpu_min_us\": %.2f, \"host_cpu_max_us\": %.2f}\n",
            gates[r->gate], (unsigned long long)r->t->rows, r->t->dim, (unsigned long long)r->keys, r->zipf,
            cache.values[0], step * 1e6, bench_median(&wall) * 1e6, bench_median(&cpu) * 1e6,
            bench_quantile(&cpu, 0) * 1e6, bench_quantile(&cpu, 1) * 1e6);
    else
        printf("\n"
               "%llu keys x %u, Zipf %g, gate on the %s: a step takes %.1f us;\n"
               "the host is in its calls for %.1f us, waiting included, and at work there for %.1f us (%.1f to %.1f)\n",
               (unsigned long long)r->keys, r->t->dim, r->zipf, gates[r->gate], step * 1e6, bench_median(&wall) * 1e6,
               bench_median(&cpu) * 1e6, bench_quantile(&cpu, 0) * 1e6, bench_quantile(&cpu, 1) * 1e6);
    for (uint32_t i = 0; i < SPANS; i++) {
        double from = bench_median(&begin[i]) * 1e6, to = bench_median(&end[i]) * 1e6;
        if (begin[i].n == 0) continue;
        if (json.n)
            printf("{\"experiment\": \"timeline\", \"lane\": \"%s\", \"what\": \"%s\", \"gate\": \"%s\", \"dim\": "
                   "%u, \"keys\": %llu, \"zipf\": %g, \"begin_us\": %.2f, \"end_us\": %.2f}\n",
                   lanes[i], spans[i], gates[r->gate], r->t->dim, (unsigned long long)r->keys, r->zipf, from, to);
        else
            printf("  %-5s %-28s %9.1f %9.1f %9.1f\n", lanes[i], spans[i], from, to, to - from);
    }
    fflush(stdout);
}

static void timeline_of(const table *t, uint64_t n_keys, double skew, uint32_t who_waits) {
    uint64_t warm = 3 * count_of(&lookahead), repeat = count_of(&repeats);
    uint64_t n = warm + repeat + count_of(&lookahead) + 1; /* the last steps announce nothing any more */
    timeline l;
    l.run = {t, 1, P2F, who_waits, n_keys, 0, skew, NULL, {}, {}, {}, {}};
    l.host.resize(n * STAMPS), l.cpu.resize(n * STAMPS), l.opened.resize(n), l.events.resize(n * EVENTS), l.ends = 0;
    std::vector<trainer> one = open_training(&l.run);
    for (cudaEvent_t &event : l.events) LADDER_CHECK(cudaEventCreate(&event));
    std::thread watcher(watch_gates, &l, n);
    LADDER_CHECK(cudaEventRecord(t->machine->begin, one[0].stream));
    LADDER_CHECK(cudaEventSynchronize(t->machine->begin));
    double origin = bench_now();
    run_timeline_steps(&l, &one[0], n);
    check(frugal_drain(l.run.f));
    l.ends.store(1, std::memory_order_relaxed);
    watcher.join();
    bench_samples begin[SPANS] = {}, end[SPANS] = {};
    for (uint64_t s = warm; s < warm + repeat && !bench_interrupted(); s++)
        add_step(&l, s, t->machine->begin, origin, begin, end);
    if (begin[0].n) print_timeline(&l, warm, begin, end);
    close_training(&l.run, &one);
    for (cudaEvent_t event : l.events) LADDER_CHECK(cudaEventDestroy(event));
}

static void run_timeline(const table *t) {
    if (!json.n)
        printf("\n"
               "timeline: medians, us from the beginning of a step: begin, end, length. The GPU's lookup begins\n"
               "where what was before it has ended, and waits for the gate if the stream does. GPU and host share a\n"
               "clock to some us.\n");
    for (uint32_t k = 0; k < keys.n; k++)
        for (uint32_t z = 0; z < zipf.n; z++)
            for (uint32_t g = 0; g < gate.n && !bench_interrupted(); g++)
                timeline_of(t, (uint64_t)keys.values[k], zipf.values[z], (uint32_t)gate.values[g]);
}

int main(int argc, char **argv) {
    static void (*const run[])(const table *) = {run_gather, run_hits, run_steps, run_timeline};
    bench_parse("bench_cuda", "Frugal on a GPU. Options take lists (1,2,4), but those of the runs as a whole.\n",
                options, sizeof options / sizeof *options, argc, argv);
    ladder_machine machine = ladder_open();
    ladder_speeds speeds = ladder_measure(&machine, LADDER_LARGE, 10);
    if (json.n)
        printf(
            "{\"experiment\": \"machine\", \"gpu\": \"%s\", \"processors\": %u, \"link_to_device_bytes_per_s\": %.0f, "
            "\"link_to_host_bytes_per_s\": %.0f, \"memory_bytes_per_s\": %.0f}\n",
            machine.name, bench_processors(), speeds.to_device, speeds.to_host, speeds.device);
    else
        printf("%s, %u processors; link %.1f GB/s to the GPU, %.1f to the host;\n"
               "the GPU's memory %.0f GB/s (read and written); %.0f rows; %.0f workers, lookahead %.0f, %s, cache %g;\n"
               "medians of %.0f repeats, %.0f rounds of %.0f steps\n",
               machine.name, bench_processors(), speeds.to_device / 1e9, speeds.to_host / 1e9, speeds.device / 1e9,
               rows.values[0], workers.values[0], lookahead.values[0], optimizers[(int)optimizer.values[0]],
               cache.values[0], repeats.values[0], rounds.values[0], steps.values[0]);
    for (uint32_t d = 0; d < dim.n && !bench_interrupted(); d++) {
        table t = open_table(&machine, &speeds, count_of(&rows), (uint32_t)dim.values[d]);
        for (uint32_t i = 0; i < experiment.n && !bench_interrupted(); i++) run[(int)experiment.values[i]](&t);
        close_table(&t);
    }
    ladder_close(&machine);
    return bench_exit_status();
}
