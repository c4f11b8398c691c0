/* Tables and lines of bench_sim. */
#include "bench/sim/report.h"

#include "bench/choices.h"

#include <stdio.h>
#include <string.h>

static const char *const assumptions[] = {
    "SIMULATED: none of these GPUs was available. Keys, hits, misses, pending rows, urgencies and gates are real: they",
    "come from the library, which runs on these key streams. Times are computed. The model:",
    "- Experiments have the numbers of the paper's section 4, and the settings that its text names; its plots could",
    "  not be read. Exp #4 (TreeHeap in place of the two-level queue) is not simulated, because the model has no cost",
    "  for threads that contend: build/bench_step_treeheap measures it. HugeCTR and DGL-KE-cached are called sharded",
    "  here, PyTorch and DGL-KE nocache, and Frugal-Sync sync. Keys of data sets are Zipf 0.9, which is assumed, not",
    "  drawn from the data. Freebase / 10 has a tenth of Freebase's 86.1M rows, to save time. Exp #8 has all of them,",
    "  and so has --rows 86100000.",
    "- Each part of a step ends when its slowest GPU has finished it. The only work of one step that overlaps with",
    "  another step is that of Frugal's loaders and workers. A kernel's GPU memory traffic overlaps with its link",
    "  traffic, but two kernels do not overlap.",
    "- Reads and writes cross a link without slowing each other. GPUs behind a switch share one x16 link (--switch),",
    "  those of a socket its lanes (--root-lanes), and rows are spread over the memory of all sockets (--sockets).",
    "  GPUs that share something have equal parts of the bytes.",
    "- Each worker and each loader has a core of its own. Several at work slow each other (--loaders-slow,",
    "  --helpers-slow), and share the host's memory bandwidth. A GPU's trainer that waits at a gate does what the gate",
    "  waits for, as in the library. Loaders deduplicate ahead for the other systems at no cost. Moving the keys to",
    "  the GPU takes no time in any system.",
    "- A batch is announced by any loader, or worker that has nothing else to do; with --announce loader by that of "
    "its",
    "  GPU alone. The host sorts it: GPUs, which sort their own, would leave the host less to do.",
    "- sharded: a row belongs to GPU (row mod GPUs), and only that GPU caches it. Keys, rows and gradients are",
    "  exchanged all to all through host memory at full link speed. The CPU gathers and copies what misses. Writing",
    "  back takes no time.",
    "- nocache: the CPU gathers unique rows, with one copy per GPU; gradients are copied back and scattered in the",
    "  same way.",
    "- uvm: pages of 4 KiB move to the GPU that touches them, through host memory; a GPU updates its rows in place.",
    "  Every GPU's memory holds the whole table, there is no prefetching, and the pages begin in host memory",
    "  (--fault-us, --fault-batch).",
    "- inplace: Frugal, except that a row that only one GPU touches in a step is updated by this GPU in host memory",
    "  (FRUGAL_ALONE_PLACE): no worker, no queue. The other systems of Frugal are FRUGAL_ALONE_STAGED. Where rows",
    "  have a state, it is written, too, and read first if the GPU has no copy of it; of the rows without a copy as",
    "  many as can be are taken to be such rows.",
    "- kept: as inplace, except that the GPU updates such a row in its cache, if it has a copy (FRUGAL_ALONE_KEPT). It",
    "  writes the row back, state included, in the lookup that gives the place away, which takes one kernel more and",
    "  overlaps with reading; or when another GPU has announced the row, by a kernel that begins when its GPU has",
    "  committed the step before, while workers close that step. What is written back is counted by the library; it is",
    "  less in short runs, because caches begin with rows that have no update.",
    "- Caches begin with the rows that are most frequent. No system pays for an interpreter or a framework.",
    "- Frugal and write-through flush the same rows. So with the same workers Frugal is at most twice as fast in the",
    "  long run.",
    "- A line with a * has workers that fall behind: their backlog still grows, and later steps will wait for it.",
    "- The rates of the two sides are NOT from one machine, and NOT from code of the same quality. What the CPU",
    "  gathers for sharded and nocache costs what the authors' micro-benchmark took on their Xeon: a plain loop that",
    "  first fetches its keys from the GPU (--gather-ns, --copy-us). Announcing, planning, closing and flushing cost",
    "  what this library's prefetching code took in a calibration (--calibrate: on this machine). This favours Frugal.",
    "  With --gather-ns 20 a gather, its bytes included, is about as fast as this library's own in bench_rows.",
    "- The CPU's gathers and scatters for sharded and nocache are split evenly among the cores of each GPU, at no",
    "  cost; all cores together are no faster than the host's memory. By default there are as many of these cores as",
    "  Frugal has workers and loaders, shared by the GPUs: with 12 workers and a loader per GPU, each of 2 GPUs has 7,",
    "  each of 4 has 4, and each of 8 has 2.5.",
    "- Several machines (--machines) are alike, and keep pace. A row has one of them as its home, which stages and "
    "flushes",
    "  its updates, and the others read it over the network (network.h says what is sent). GPUs wait for rows that",
    "  somebody read in the step before, and for records; keys and other rows are sent while GPUs compute, as far as "
    "the",
    "  link has time. Rows that nobody read in the step before are taken to be flushed by then. Each machine sends the",
    "  dense gradients of its GPUs to all others. Sending and receiving slow neither each other nor the CPU, except "
    "that",
    "  it gathers late rows (--send-ns).",
    NULL};

void sim_print_assumptions(const sim_workload *w, const options_list *gather_cores, int json) {
    for (int i = 0; assumptions[i]; i++) printf(json ? "{\"assumption\": \"%s\"}\n" : "%s\n", assumptions[i]);
    printf("%s  Here --gather-cores is ", json ? "{\"assumption\": \"" : "");
    for (uint32_t i = 0; i < gather_cores->n; i++) printf(i ? ", %g" : "%g", gather_cores->values[i]);
    puts(json ? "; 0 is that default.\"}" : "; 0 is that default.");
    if (!json) printf("\n%-18s %10s %-8s %s; source\n", "constant", "value", "unit", "what");
    for (int i = 0; i < SIM_CONSTANTS; i++) {
        const sim_constant *c = &sim_constants[i];
        const char *source = w->constants[i] == c->value ? c->source : "given, or measured here";
        if (json)
            printf("{\"constant\": \"%s\", \"value\": %g, \"unit\": \"%s\", \"what\": \"%s\", \"source\": \"%s\"}\n",
                   c->option, w->constants[i], c->unit, c->what, source);
        else
            printf("--%-16s %10g %-8s %s; %s\n", c->option, w->constants[i], c->unit, c->what, source);
    }
}

/* The number as JSON has it, and the workload. */
static void print_label(const sim_label *label) {
    char number[16] = "null";
    if (label->experiment) snprintf(number, sizeof number, "%d", label->experiment->number);
    printf("{\"experiment\": %s, \"simulated\": true", number);
    if (label->workload) printf(", \"workload\": \"%s\"", label->workload);
}

void sim_print_title(const sim_label *label, int json) {
    const sim_experiment *e = label->experiment;
    if (json) {
        print_label(label);
        if (e) printf(", \"title\": \"%s\", \"claim\": \"%s\", \"note\": \"%s\"", e->title, e->claim, e->note);
        puts(e ? "}" : ", \"title\": \"as asked\"}");
        return;
    }
    if (e) printf("\nExp #%d: %s\n  paper: %s.\n  here:  %s.\n", e->number, e->title, e->claim, e->note);
    puts(e ? "" : "\nas asked");
    printf("%-8s %4s %5s %7s %7s %5s %5s %3s %4s %5s | %9s %7s | %8s %8s %8s %8s %8s %8s | %6s %7s %7s %6s\n", "system",
           "GPUs", "link", "sw/s/ln", "keys", "zipf", "cache", "L", "work", "cores", "step us", "Mkeys/s", "gate",
           "closing", "lookup", "exchange", "dense", "update", "miss %", "read MB", "writ MB", "busy %");
}

double sim_keys_per_second(const sim_workload *w, const sim_result *r) {
    return r->step > 0 ? (double)w->keys * sim_devices(w) / r->step : 0;
}

/* The skew of drawn keys; that of samples is their own, and then the text is `none`. */
static const char *zipf_text(const sim_workload *w, const char *none) {
    static char text[32];
    snprintf(text, sizeof text, "%g", w->zipf);
    return w->dealing ? none : text;
}

/* The policy of the GPUs' caches; NULL where the system has none, or no row fits. */
static const char *policy_of(sim_system system, const sim_workload *w) {
    int has_caches = system != SIM_NOCACHE && system != SIM_UVM && sim_cached_rows(w) > 0;
    return has_caches ? bench_policies[w->policy] : NULL;
}

static int has_secondaries(sim_system system, const sim_workload *w) {
    return w->secondaries > 0 &&
           (system == SIM_FRUGAL || system == SIM_SYNC || system == SIM_INPLACE || system == SIM_KEPT);
}

static void print_json_network(const sim_workload *w, const sim_network_result *n) {
    printf("\"machines\": %u, \"network_gbs\": %g, \"homes\": \"%s\", \"guest_rows\": %.1f, \"late_rows\": %.1f, ",
           w->machines, w->network * 8e-9, w->places_homes ? "placed" : "turn", n->guests, n->late);
    for (int k = 0; k < SIM_SENT_KINDS; k++)
        printf("\"%s_sent\": %.1f, \"%s_received\": %.1f, ", sim_sent_names[k], n->sent[k], sim_sent_names[k],
               n->received[k]);
    printf("\"messages\": %.0f, \"most_bytes\": %.1f, \"rows_wait_us\": %.3f, \"records_wait_us\": %.3f, "
           "\"early_wait_us\": %.3f, ",
           n->messages, n->most, n->rows_wait * 1e6, n->records_wait * 1e6, n->early_wait * 1e6);
}

/* What a machine sends in a step, by kind; of that, what GPUs wait for. */
static void print_network(const sim_workload *w, const sim_network_result *n) {
    double all = 0;
    for (int k = 0; k < SIM_SENT_KINDS; k++) all += n->sent[k] * 1e-6;
    printf("  %u machines, %g Gb/s: %.2f MB sent (", w->machines, w->network * 8e-9, all);
    for (int k = 0; k < SIM_SENT_KINDS; k++) printf("%s%s %.2f", k ? ", " : "", sim_sent_names[k], n->sent[k] * 1e-6);
    printf("), waits of %.0f us for rows, %.0f for records, %.0f for early rows", n->rows_wait * 1e6,
           n->records_wait * 1e6, n->early_wait * 1e6);
}

/* The object without its last brace. */
static void print_json(const sim_label *label, sim_system system, const sim_workload *w, const sim_result *r) {
    const char *policy = policy_of(system, w);
    char lookahead[16] = "null"; /* the closed form has none */
    if (!w->profile) snprintf(lookahead, sizeof lookahead, "%u", w->lookahead);
    print_label(label);
    printf(
        ", \"system\": \"%s\", \"gpus\": %u, \"link\": \"pcie%u\", "
        "\"switch\": %u, \"sockets\": %u, \"root_lanes\": %u, \"announce\": \"%s\", "
        "\"rows\": %llu, \"dim\": %u, \"keys\": %u, \"zipf\": %s, \"cache\": %g, \"lookahead\": %s, \"workers\": %u, "
        "\"gather_cores\": %g, \"optimizer\": \"%s\", \"policy\": %s%s%s, \"dealing\": \"%s\", ",
        sim_system_names[system], w->gpus, w->pcie, w->behind_switch, w->sockets, w->root_lanes,
        w->pool ? "pool" : "loader", (unsigned long long)w->rows, w->dim, w->keys, zipf_text(w, "null"), w->cache,
        lookahead, r->workers, r->gather_cores, bench_optimizers[w->optimizer], policy ? "\"" : "",
        policy ? policy : "null", policy ? "\"" : "", w->dealing ? w->dealing : "none");
    if (has_secondaries(system, w)) printf("\"secondaries\": %g, \"stale\": %u, ", w->secondaries * 100, w->stale);
    if (w->machines > 1) print_json_network(w, &r->network);
    if (w->profile) printf("\"closed_form\": true, ");
    if (r->workers && !w->profile)
        printf("\"alone\": \"%s\", \"alone_rows\": %.1f, \"shared_rows\": %.1f, \"in_place_rows\": %.1f, "
               "\"kept_rows\": %.1f, \"recalled_rows\": %.1f, \"evicted_rows\": %.1f, \"recall_us\": %.3f, "
               "\"lookup_apart_us\": %.3f, ",
               bench_alone[sim_alone(system)], r->alone, r->shared, r->in_place, r->kept, r->recalled, r->evicted,
               r->recall * 1e6, r->apart * 1e6);
    printf("\"step_us\": %.3f, \"keys_per_s\": %.0f, \"gate_us\": %.3f, \"closing_us\": %.3f, \"lookup_us\": %.3f, "
           "\"exchange_us\": %.3f, \"dense_us\": %.3f, \"update_us\": %.3f, ",
           r->step * 1e6, sim_keys_per_second(w, r), r->gate * 1e6, r->closing * 1e6, r->lookup * 1e6,
           r->exchange * 1e6, r->dense * 1e6, r->update * 1e6);
    printf("\"misses\": %.4f, \"unique_rows\": %.1f, \"read_bytes\": %.0f, \"written_bytes\": %.0f, \"flushed_rows\": "
           "%.1f, "
           "\"urgent_rows\": %.1f, \"worker_share\": %.4f, \"loader_share\": %.4f, \"staging_bytes\": %.0f, "
           "\"staging_used\": %.0f, \"behind\": %s",
           r->misses, r->unique, r->read_bytes, r->written_bytes, r->flushed, r->urgent, r->worker_share,
           r->loader_share, r->staging_bytes, r->staging_used, r->behind ? "true" : "false");
}

void sim_print_result(const sim_label *label, sim_system system, const sim_workload *w, const sim_result *r, int json) {
    char workers[16] = "-", gather_cores[16] = "-", busy[16] = "-", topology[40];
    snprintf(topology, sizeof topology, "%u/%u/%u", w->behind_switch, w->sockets, w->root_lanes);
    int prices = label->experiment && label->experiment->prices;
    double dollars = w->gpus * label->gpu_price;
    if (json) {
        print_json(label, system, w, r);
        if (prices) printf(", \"keys_per_s_per_dollar\": %.1f", sim_keys_per_second(w, r) / dollars);
        puts("}");
        return;
    }
    if (r->workers) snprintf(workers, sizeof workers, "%u", r->workers);
    if (r->gather_cores > 0) snprintf(gather_cores, sizeof gather_cores, "%.3g", r->gather_cores);
    if (r->workers) snprintf(busy, sizeof busy, "%.0f", r->worker_share * 100);
    printf(
        "%-8s %4u pcie%u %7s %7u %5s %5g %3u %4s %5s | %9.1f %7.1f | %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f | %6.1f %7.2f "
        "%7.2f %6s%s",
        sim_system_names[system], w->gpus, w->pcie, topology, w->keys, zipf_text(w, "-"), w->cache, w->lookahead,
        workers, gather_cores, r->step * 1e6, sim_keys_per_second(w, r) * 1e-6, r->gate * 1e6, r->closing * 1e6,
        r->lookup * 1e6, r->exchange * 1e6, r->dense * 1e6, r->update * 1e6, r->misses * 100, r->read_bytes * 1e-6,
        r->written_bytes * 1e-6, busy, r->behind ? " *" : "");
    if (prices) printf("  %.0f keys/s per dollar", sim_keys_per_second(w, r) / dollars);
    if (w->machines > 1) print_network(w, &r->network);
    if (w->dealing) printf("  dealt by %s", w->dealing);
    if (w->machines > 1 && w->places_homes) printf(", homes placed");
    if (w->dealing && policy_of(system, w)) printf(", cache %s", policy_of(system, w));
    if (has_secondaries(system, w)) printf(", %g%% secondaries, stale by %u", w->secondaries * 100, w->stale);
    puts("");
}

static void widen(double *least, double *most, double value) {
    if (*most == 0 || value < *least) *least = value;
    if (value > *most) *most = value;
}

void sim_add_ratios(sim_ratios *ratios, const sim_result *results, const int *done) {
    const sim_result *ours = &results[SIM_FRUGAL], *sync = &results[SIM_SYNC];
    if (!done[SIM_FRUGAL] || ours->step <= 0) return;
    for (int s = 0; s < SIM_SYSTEMS; s++)
        if (s != SIM_FRUGAL && done[s] && results[s].step > 0)
            widen(&ratios->least[s], &ratios->most[s], results[s].step / ours->step);
    if (done[SIM_NOCACHE] && ours->lookup > 0)
        widen(&ratios->least_lookup, &ratios->most_lookup, results[SIM_NOCACHE].lookup / ours->lookup);
    if (!done[SIM_SYNC]) return;
    if (done[SIM_SHARDED] && sync->step > 0)
        widen(&ratios->least_sync, &ratios->most_sync, results[SIM_SHARDED].step / sync->step);
    double flush = ours->gate - ours->closing, sync_flush = sync->gate - sync->closing;
    if (ours->gate > 0) widen(&ratios->least_stall, &ratios->most_stall, sync->gate / ours->gate);
    if (flush > 0) widen(&ratios->least_flush, &ratios->most_flush, sync_flush / flush);
}

static void print_ratio(const sim_label *label, const char *of, double least, double most, int json) {
    if (most == 0) return;
    if (json) {
        print_label(label);
        printf(", \"ratio\": \"%s\", \"least\": %.3f, \"most\": %.3f}\n", of, least, most);
    } else
        printf("  %-44s %6.2f to %6.2f\n", of, least, most);
}

void sim_print_ratios(const sim_ratios *r, const sim_label *label, int json) {
    static const char *const names[SIM_SYSTEMS] = {NULL,
                                                   "write-through's step over Frugal's",
                                                   "in place's step over Frugal's",
                                                   "kept's step over Frugal's",
                                                   "sharded's step over Frugal's",
                                                   "no cache's step over Frugal's",
                                                   "unified memory's step over Frugal's"};
    const sim_label all = {.experiment = label->experiment}; /* of all its workloads */
    for (int s = 0; s < SIM_SYSTEMS; s++)
        if (names[s]) print_ratio(&all, names[s], r->least[s], r->most[s], json);
    print_ratio(&all, "sharded's step over write-through's", r->least_sync, r->most_sync, json);
    print_ratio(&all, "no cache's reading of rows over Frugal's", r->least_lookup, r->most_lookup, json);
    print_ratio(&all, "write-through's wait at the gate over Frugal's", r->least_stall, r->most_stall, json);
    print_ratio(&all, "... without the closing", r->least_flush, r->most_flush, json);
}

static void print_scaling_of(const double *rate, sim_system system, const sim_label *label, int json) {
    uint32_t fewest = 1, most = SIM_MAX_GPUS;
    while (fewest < SIM_MAX_GPUS && rate[fewest] <= 0) fewest++;
    while (most > fewest && rate[most] <= 0) most--;
    if (most == fewest) return;
    int falls = 0;
    double before = 0;
    if (!json) printf("  %s, %s: times %u GPUs' throughput:", label->workload, sim_system_names[system], fewest);
    for (uint32_t n = fewest; n <= most; n++) {
        if (rate[n] <= 0) continue;
        falls |= rate[n] < before;
        before = rate[n];
        if (!json && n > fewest) printf(" %u GPUs %.2f", n, rate[n] / rate[fewest]);
    }
    if (json) {
        print_label(label);
        printf(", \"scaling\": \"%s\", \"from_gpus\": %u, \"to_gpus\": %u, \"times\": %.3f, \"falls\": %s}\n",
               sim_system_names[system], fewest, most, rate[most] / rate[fewest], falls ? "true" : "false");
        return;
    }
    puts(falls ? "; more GPUs are slower somewhere" : "");
    if (system != SIM_SHARDED || falls) return;
    puts("    Straightforward caching does NOT scale negatively here. In the paper it does, as the paper's reviewers "
         "read its Figure 15. The\n"
         "    model lets every exchange run at the full rate of the links, charges a small cost per GPU for it, and "
         "has\n"
         "    no framework, which may be what the authors' reimplementation pays for. More is not known.");
}

void sim_print_scaling(const sim_scaling *scaling, const sim_label *label, int json) {
    for (int s = 0; s < SIM_SYSTEMS; s++) print_scaling_of(scaling->rate[s], (sim_system)s, label, json);
}

void sim_print_prices(const sim_label *label, double datacenter_price, int json) {
    double times = datacenter_price / label->gpu_price;
    if (json) {
        printf("{\"experiment\": %d, \"simulated\": false, \"gpu_price\": %g, \"datacenter_price\": %g, "
               "\"price_ratio\": %.3f, \"break_even\": %.3f}\n",
               label->experiment->number, label->gpu_price, datacenter_price, times, 1 / times);
        return;
    }
    printf("  prices: $%g a GPU here, $%g a data-centre GPU: %.2f times as much. With %.0f%% of its throughput a GPU "
           "here\n"
           "  gives as much per dollar; the paper's 89 to 97%% give %.1f to %.1f times as much.\n",
           label->gpu_price, datacenter_price, times, 100 / times, 0.89 * times, 0.97 * times);
}

int sim_is_enough(const sim_result *r, double most_stall) {
    return !r->behind && r->gate <= most_stall * r->step;
}

/* What becomes of the rows that one GPU alone touches. */
static const char *way_name(sim_system system) {
    return system == SIM_KEPT ? "kept" : system == SIM_INPLACE ? "in place" : "staged";
}

void sim_print_plan(sim_system system, const sim_workload *w, const sim_result *r, double most_stall, int json) {
    int enough = sim_is_enough(r, most_stall);
    if (json) {
        print_json(&(sim_label){.workload = "plan"}, system, w, r);
        printf(", \"staging_depth\": %.0f, \"stall_share\": %.5f, \"stall_limit\": %g, \"reached\": %s}\n",
               r->staging_depth, r->step > 0 ? r->gate / r->step : 0, most_stall, enough ? "true" : "false");
        return;
    }
    char keys[64];
    snprintf(keys, sizeof keys, "zipf %s", zipf_text(w, "-"));
    if (w->dealing) snprintf(keys, sizeof keys, "of samples dealt by %s", w->dealing);
    printf("\n%u GPUs on %u socket%s, %u a switch, PCIe %u.0 x16; %llu rows x %u floats, %u keys a GPU and step, %s, "
           "cache %g%% (%s)",
           w->gpus, w->sockets, w->sockets > 1 ? "s" : "", w->behind_switch, w->pcie, (unsigned long long)w->rows,
           w->dim, w->keys, keys, w->cache * 100, bench_policies[w->policy]);
    if (w->secondaries > 0) printf(", %g%% secondaries, stale by %u", w->secondaries * 100, w->stale);
    printf(", rows that one GPU touches %s", way_name(system));
    if (w->profile)
        puts("; by the closed form");
    else
        printf(", lookahead %u\n", w->lookahead);
    printf("  step                %10.1f us: %.1f M keys/s\n", r->step * 1e6, sim_keys_per_second(w, r) * 1e-6);
    printf("    reading rows      %10.1f us: %.1f%% of %.0f unique rows a GPU, %.2f MB over the link\n",
           r->lookup * 1e6, r->misses * 100, r->unique, r->read_bytes * 1e-6);
    printf("    dense part        %10.1f us\n", r->dense * 1e6);
    printf("    writing records   %10.1f us: %.2f MB over the link\n", r->update * 1e6, r->written_bytes * 1e-6);
    if (system == SIM_KEPT)
        printf("    written back      %10.0f rows a step: %.0f recalled, %.0f for their places; %.0f updates kept\n",
               r->recalled + r->evicted, r->recalled, r->evicted, r->kept);
    printf("    stall             %10.1f us: %.2f%% of the step, %.1f us of it closing\n", r->gate * 1e6,
           r->gate / r->step * 100, r->closing * 1e6);
    if (!w->profile)
        printf("  staging             %10.1f MB: %.0f blocks a GPU, up to %.0f of earlier steps in use at a commit\n",
               r->staging_bytes * 1e-6, r->staging_depth, r->staging_used);
    printf("  flush workers       %10u, busy %.0f%% of the time: %.0f rows a step, %.0f of them urgent\n", r->workers,
           r->worker_share * 100, r->flushed, r->urgent);
    printf("  loaders             %10u, busy %.0f%% of the time\n", w->gpus, r->loader_share * 100);
    if (enough)
        printf("  the fewest workers with a stall of at most %g%% of the step\n", most_stall * 100);
    else
        printf("  NOT REACHED: a stall of at most %g%% of the step; of the numbers tried the fewest next to the "
               "shortest\n",
               most_stall * 100);
}

/* The shortest step of the plans that keep nothing; 0: there is none. */
static double step_without_kept(const sim_choice *c) {
    double staged = c->of_best[SIM_FRUGAL].step, place = c->of_best[SIM_INPLACE].step;
    return staged <= 0 || (place > 0 && place < staged) ? place : staged;
}

/* The share by which keeping shortens it; below 0: lengthens. */
static double gain_of_kept(const sim_choice *c) {
    double without = step_without_kept(c);
    return without > 0 ? 1 - c->of_best[SIM_KEPT].step / without : 0;
}

static void print_choice_json(const sim_choice *c) {
    print_json(&(sim_label){.workload = "choice"}, c->way, &c->best[c->way], &c->of_best[c->way]);
    for (int s = 0; s < SIM_SYSTEMS; s++)
        if (c->of_best[s].step > 0)
            printf(", \"%s_step_us\": %.3f, \"%s_workers\": %u", sim_system_names[s], c->of_best[s].step * 1e6,
                   sim_system_names[s], c->of_best[s].workers);
    if (c->of_best[SIM_KEPT].step > 0 && step_without_kept(c) > 0)
        printf(", \"kept_gain\": %.4f, \"kept_pays\": %s", gain_of_kept(c), c->way == SIM_KEPT ? "true" : "false");
    printf(", \"baseline_system\": \"%s\", \"baseline_dealing\": \"%s\", \"baseline_cache\": %g, "
           "\"baseline_policy\": \"%s\", \"baseline_step_us\": %.3f}\n",
           sim_system_names[c->way_of_longest], c->longest.dealing ? c->longest.dealing : "none", c->longest.cache,
           bench_policies[c->longest.policy], c->of_longest.step * 1e6);
}

/* The best plan of each system. */
static void print_ways(const sim_choice *c) {
    double gain = gain_of_kept(c) * 100;
    for (int s = 0; s < SIM_SYSTEMS; s++) {
        const sim_workload *w = &c->best[s];
        if (c->of_best[s].step <= 0) continue;
        printf("  rows that one GPU touches %-8s: %10.1f us, %u workers (%s%s%s, %g%%)\n", way_name((sim_system)s),
               c->of_best[s].step * 1e6, c->of_best[s].workers, w->dealing ? w->dealing : "", w->dealing ? ", " : "",
               bench_policies[w->policy], w->cache * 100);
    }
    if (c->of_best[SIM_KEPT].step <= 0 || step_without_kept(c) <= 0) return;
    printf("  Keeping them %s: the step is %.1f%% %s than the shortest of the others.\n",
           c->way == SIM_KEPT ? "pays" : "does not pay", gain < 0 ? -gain : gain, gain < 0 ? "longer" : "shorter");
}

void sim_print_choice(const sim_choice *c, int json) {
    const sim_workload *w = &c->best[c->way], *plain = &c->longest;
    const sim_result *r = &c->of_best[c->way];
    if (json) {
        print_choice_json(c);
        return;
    }
    printf("\nBest: %s%s%sa %s cache of %g%% of the rows, rows that one GPU touches %s, %u workers: a step of %.1f us, "
           "%.2f MB read by a GPU.\n",
           w->dealing ? "samples dealt by " : "", w->dealing ? w->dealing : "", w->dealing ? ", " : "",
           bench_policies[w->policy], w->cache * 100, way_name(c->way), r->workers, r->step * 1e6,
           r->read_bytes * 1e-6);
    printf("The smallest cache whose step is at most 1%% longer than the shortest. The longest step of these plans is "
           "%.1f us (%s%s%s, %g%%, %s).\n",
           c->of_longest.step * 1e6, plain->dealing ? plain->dealing : "", plain->dealing ? ", " : "",
           bench_policies[plain->policy], plain->cache * 100, way_name(c->way_of_longest));
    if (!w->profile) print_ways(c);
}
