/* bench_cuda.cu - Frugal on a GPU, beside what link and memory allow, and beside what one would do without Frugal.
 *
 *     build/cuda/bench_cuda                                      all experiments; --help shows what can be changed
 *     build/cuda/bench_cuda --experiment gather --dim 32 --batch 128,65536 --threads 1,8
 *     build/cuda/bench_cuda --experiment steps --system p2f --gate host,stream --json > steps
 *     build/cuda/bench_cuda --seconds 500 --json                 ends within this time, and says what was left out
 *
 * gather      rows of the host table into the GPU's memory: read in place by a kernel (UVA), or gathered by the
 *             processor and copied. The paper's experiment #3.
 * hits        lookup and update by the cache's hit rate.
 * steps       whole steps on 1, 2, 4 logical devices of one GPU: flushed ahead by priority (p2f), written through
 *             (sync), and p2f without a cache; rows in place, which is the default on GPUs, or staged as in the paper,
 *             or kept (--alone). The paper's #1 and #5.
 * dynamicemb  whole steps as NVIDIA times them: ten tables, a million keys, SGD and Adam; beside the times that
 *             NVIDIA publishes for FBGEMM and dynamicemb.
 * bags        pooled lookups and their updates.
 * graph       a step by calls, and as a CUDA graph.
 * timeline    where the time of a step goes: the host's calls, the GPU's work, the gate.
 * attach      how long attaching takes, by the size of the table.
 * serve       lookups of a table that is only read.
 * links       the bandwidths of the machine, between GPUs and from the host, for frugal_place.h (build/peers).
 *
 * Forward and backward are one kernel, gradient = row * 0.001, so that only Frugal is measured. Times of single lookups
 * and updates (gather, hits, bags) are of the GPU alone (bench_held.h), and stall_seconds shows that none of them
 * waited for the host. Before anything is timed, bits are compared (bench_check.h). PyTorch on the same sizes:
 * bench/pytorch/embedding_cuda.py. All of it, with the ladders and the tests: bench/cuda/run.
 */
#include "bench/cuda/bench_attach.h"
#include "bench/cuda/bench_bags.h"
#include "bench/cuda/bench_dynamicemb.h"
#include "bench/cuda/bench_gather.h"
#include "bench/cuda/bench_hits.h"
#include "bench/cuda/bench_links.h"
#include "bench/cuda/bench_serve.h"
#include "bench/cuda/bench_timeline.h"

/* >>the order of things: tables come in the order of the experiments that want them, and all experiments that want a
 * table run while it exists */

static void (*const run_of[EXPERIMENTS])(const table *) = {
    run_gather, run_hits, run_steps, NULL, run_bags, steps_run_graph, run_timeline, NULL, run_serve, NULL};

/* A table, as several experiments may want it. */
typedef struct wish {
    uint64_t rows;
    uint32_t dim;
    frugal_type rows_as;
    std::vector<uint32_t> by; /* experiments */
} wish;

static void add_wish(std::vector<wish> *wishes, uint32_t which, uint64_t n, uint32_t width, frugal_type as) {
    auto same = [=](const wish &w) { return w.rows == n && w.dim == width && w.rows_as == as; };
    auto found = std::find_if(wishes->begin(), wishes->end(), same);
    if (found == wishes->end()) found = wishes->insert(wishes->end(), {n, width, as, {}});
    found->by.push_back(which);
}

static void add_wishes(std::vector<wish> *wishes, uint32_t which) {
    const options_list *by_rows = options_given_or(&rows, &defaults[which].rows),
                       *by_dim = options_given_or(&dim, &defaults[which].dim);
    const options_list floats = {{FRUGAL_FP32}, 1}, *by_type = which == GATHER || which == STEPS ? &rows_as : &floats;
    for (uint32_t i = 0; i < by_rows->n; i++)
        for (uint32_t d = 0; d < by_dim->n; d++)
            for (uint32_t a = 0; a < by_type->n; a++)
                add_wish(wishes, which, (uint64_t)by_rows->values[i], (uint32_t)by_dim->values[d],
                         (frugal_type)by_type->values[a]);
}

static void run_wishes(ladder_machine *m, held *h, const ladder_speeds *speeds) {
    std::vector<wish> wishes;
    for (uint32_t i = 0; i < experiment.n; i++)
        if (experiment.values[i] != DYNAMICEMB && experiment.values[i] != LINKS && experiment.values[i] != ATTACH)
            add_wishes(&wishes, (uint32_t)experiment.values[i]);
    for (const wish &w : wishes) {
        table t = table_of(m, h, speeds, w.rows, w.dim, 1);
        table_set_type(&t, w.rows_as);
        std::string who;
        for (uint32_t which : w.by) who += (who.empty() ? "" : ", ") + std::string(experiments[which]);
        if (!open_table(&t, 0, who.c_str())) continue;
        for (uint32_t which : w.by)
            if (!bench_interrupted()) run_of[which](&t);
        close_table(&t);
    }
}

/* >>main */

/* Only dynamicemb takes several optimizers, only steps and dynamicemb take several ways of --alone. */
static void check_lists(void) {
    for (uint32_t i = 0; i < experiment.n && alone.n > 1; i++)
        if (experiment.values[i] == GRAPH || experiment.values[i] == TIMELINE) {
            fprintf(stderr, "bench_cuda: --alone has %u, must be one for --experiment %s\n", alone.n,
                    experiments[(int)experiment.values[i]]);
            exit(2);
        }
    for (uint32_t i = 0; i < experiment.n && optimizer.n > 1; i++)
        if (experiment.values[i] != DYNAMICEMB) {
            fprintf(stderr, "bench_cuda: --optimizer has %u, must be one for --experiment %s\n", optimizer.n,
                    experiments[(int)experiment.values[i]]);
            exit(2);
        }
}

static std::string print_list(const options_list *list, const char *const *choices) {
    std::string text;
    for (uint32_t i = 0; i < list->n; i++) {
        char number[32];
        snprintf(number, sizeof number, "%.15g", list->values[i]);
        text += (i ? "," : "") + std::string(choices ? choices[(int)list->values[i]] : number);
    }
    return text;
}

/* What --help says first: the values that each experiment has for options that are not given. */
static std::string about(void) {
    std::string text = "Frugal on a GPU. Options take lists (1,2,4), but those of the runs as a whole.\n"
                       "Where these are not given, experiments have their own:\n";
    for (uint32_t i = 0; i < EXPERIMENTS; i++) {
        const experiment_defaults *d = &defaults[i];
        char line[400];
        snprintf(line, sizeof line,
                 "  %-11s --rows %s --dim %s --keys %s --devices %s --gate %s --loader %s --optimizer %s\n",
                 experiments[i], print_list(&d->rows, NULL).c_str(), print_list(&d->dim, NULL).c_str(),
                 d->keys.n ? print_list(&d->keys, NULL).c_str() : "-", print_list(&d->devices, NULL).c_str(),
                 print_list(&d->gate, gates).c_str(), print_list(&d->loader, NULL).c_str(),
                 print_list(&d->optimizer, bench_optimizers).c_str());
        text += line;
    }
    return text;
}

static void print_machine(const ladder_machine *m, held *h, const ladder_speeds *speeds) {
    size_t left = 0, all = 0;
    record r;
    LADDER_CHECK(cudaMemGetInfo(&left, &all));
    record_add_text(&r, "experiment", "machine"), record_add_text(&r, "gpu", m->name),
        record_add_count(&r, "gpu_bytes", all);
    record_add_count(&r, "gpu_bytes_free", left), record_add_count(&r, "l2_bytes", h->flush_n * sizeof(float4) / 2);
    record_add_count(&r, "processors", bench_processors()),
        record_add_count(&r, "host_bytes_usable", limits_host_bytes_free());
    record_add_real(&r, "link_to_device_bytes_per_s", speeds->to_device, 0);
    record_add_real(&r, "link_to_host_bytes_per_s", speeds->to_host, 0),
        record_add_real(&r, "memory_bytes_per_s", speeds->device, 0);
    record_add_real(&r, "empty_kernel_us", held_empty_seconds(h) * 1e6, 2),
        record_add_count(&r, "dropped", ladder_dropped(h->m));
    record_add_count(&r, "gives_up", (uint64_t)held_gives_up(h));
    print_record(&r);
}

int main(int argc, char **argv) {
    began = bench_now();
    bench_parse("bench_cuda", about().c_str(), options, argc, argv);
    check_lists();
    ladder_machine machine = ladder_open(UINT32_MAX);
    held h = held_open(&machine);
    ladder_speeds speeds = ladder_measure(&machine, LADDER_LARGE, 10);
    print_machine(&machine, &h, &speeds);
    run_wishes(&machine, &h, &speeds);
    for (uint32_t i = 0; i < experiment.n && !bench_interrupted(); i++)
        if (experiment.values[i] == DYNAMICEMB)
            run_dynamicemb(&machine, &h, &speeds);
        else if (experiment.values[i] == LINKS)
            run_all_links();
        else if (experiment.values[i] == ATTACH)
            run_attach(&machine, &h, &speeds);
    held_close(&h);
    ladder_close(&machine);
    record r;
    record_add_text(&r, "experiment", "end"), record_add_real(&r, "seconds", bench_now() - began, 1),
        record_add_count(&r, "skipped", skipped);
    print_record(&r);
    return bench_exit_status();
}
