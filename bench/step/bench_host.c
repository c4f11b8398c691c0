/* bench_host.c - what the host does in a step for all devices together: announcing, by its phases, planning, closing,
 * applying.
 *
 *     build/bench_host                           8 devices of 26,624 keys, uniform and Zipf 0.99
 *     build/bench_host --devices 2 --zipf 0.9
 *     build/bench_host --ahead --devices 1 --keys 1048576 --zipf 1.05
 *
 * One thread does all of it, a kind of work at a time, so that each kind has a time of its own, in processor time, and
 * nothing waits.
 * Devices gather and update on this thread, too; on GPUs they would not, so that is only in the time of the whole step.
 * Instances take turns, a step each on the same keys: staged, where closing queues every row and a worker applies it,
 * and in place, where only rows that several devices touched are queued; with --counting 0,1 each of them twice, once
 * counting touches, as counted caches need it (src/table/worth.c). Every update is flushed within its step.
 *
 * With --ahead: the time on the clock from handing in to the plan, of a thread that announces for all devices, alone
 * and with --workers threads that help.
 */
#include "frugal_counts.h"
#include "frugal_seeing.h"
#include "bench/choices.h"
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"
#include "bench/step/phases.h"

#include <stdio.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { WARM_UP = 8, WAYS = 2, MOST_INSTANCES = 2 * WAYS };
typedef enum { ANNOUNCE, CLOSE, APPLY, KINDS } work_kind;
static const char *const kinds[KINDS] = {"announce", "close", "apply"};
static const char *const phases[PHASES] = {"read", "sort", "list", "give", "plan", "worth"}; /* of announcing */
static const frugal_alone ways[WAYS] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE};

static uint64_t rows = 10000000, dim = 32, devices = 8, keys = 26624, steps = 60;
static options_list zipf = {{0, 0.99}, 2}, counting = {{0}, 1};
static uint64_t workers = 1;
static int small_pages, json, ahead, by_rank;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, NULL, "floats a row"},
    {"devices", OPTIONS_WHOLE64, &devices, 1, FRUGAL_MAX_DEVICES, NULL, "whose batches a step has"},
    {"keys", OPTIONS_WHOLE64, &keys, 1, 1 << 24, NULL, "looked up by a device in a step"},
    {"zipf", OPTIONS_REALS, &zipf, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"by-rank", OPTIONS_FLAG, &by_rank, 0, 0, NULL,
     "the most frequent rows are neighbours; else spread over the table"},
    {"counting", OPTIONS_WHOLES, &counting, 0, 1, NULL, "1: touches are counted"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, BENCH_SAMPLES, NULL, "of which medians are taken, after some more"},
    {"ahead", OPTIONS_FLAG, &ahead, 0, 0, NULL, "the time on the clock until a step is planned"},
    {"workers", OPTIONS_WHOLE64, &workers, 1, 64, NULL, "with --ahead: threads that help"},
    {"small-pages", OPTIONS_FLAG, &small_pages, 0, 0, NULL, "no huge pages, even if the system has them"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct host_work {
    frugal *f;
    int way, counting;
    bench_samples us[KINDS], by_phase[PHASES], all, step; /* all: the kinds; step: and what the devices do */
} host_work;

static void refuse_huge_pages(void) {
#if defined(__linux__)
    if (!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return;
#endif
    bench_fail("%s", "--small-pages: this system does not turn huge pages off for one process");
}

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

/* Those of a step. */
static void draw_keys(uint64_t *drawn, double skew, uint64_t step) {
    if (by_rank)
        bench_draw_ranks(drawn, devices * keys, rows, skew, 7 + step);
    else
        bench_draw_keys(drawn, devices * keys, rows, skew, 7 + step);
}

/* Opens with the options' sizes and, of `how`, the rest; every device is on this machine's cores. */
static frugal *open_instance(const frugal_desc *how, int counts) {
    /* Zeros would be pages that a step is the first to touch. */
    frugal_table table = {.rows = rows, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    frugal_desc desc = *how;
    desc.tables = &table, desc.n_tables = 1;
    desc.dim = (uint32_t)dim, desc.devices = (uint32_t)devices, desc.max_keys = (uint32_t)keys;
    frugal *f;
    check(frugal_open(&desc, &f));
    if (counts) check(frugal_set_counts(f, &(frugal_keys){.n = 0}, NULL));
    for (uint32_t d = 0; d < devices; d++) check(frugal_cpu_attach(f, d, &(frugal_cpu_desc){.threads = 1}));
    return f;
}

static void open_host(host_work *w, int way, int counts) {
    const frugal_desc how = {.lookahead = 1,      /* so that copies that others outdate are listed; none runs ahead */
                             .mode = FRUGAL_SYNC, /* every update is due in the step after its own */
                             .defer = 1,          /* queued without workers, too: this thread takes them */
                             .alone = ways[way]};
    *w = (host_work){.f = open_instance(&how, counts), .way = way, .counting = counts};
}

/* Does all pending work, and adds its microseconds by kind. */
static void do_pieces(frugal *f, double us[KINDS]) {
    frugal_stats before, after;
    frugal_get_stats(f, &before);
    for (;;) {
        double since = bench_thread_seconds();
        if (!frugal_help(f)) return;
        double took = (bench_thread_seconds() - since) * 1e6;
        frugal_get_stats(f, &after);
        us[after.closed_entries > before.closed_entries ? CLOSE : APPLY] += took;
        before = after;
    }
}

static void do_step(host_work *w, uint64_t step, const uint64_t *drawn) {
    double us[KINDS] = {0}, by_phase[PHASES] = {0}, all = 0;
    double since = bench_thread_seconds();
    for (uint32_t d = 0; d < devices; d++)
        check(phases_announce(w->f, d, step, drawn + d * keys, (uint32_t)keys, by_phase));
    phases_plan(w->f, by_phase);
    for (announce_phase p = 0; p < PHASES; p++) us[ANNOUNCE] += by_phase[p] * 1e6;
    do_pieces(w->f, us);
    for (uint32_t d = 0; d < devices; d++) check(frugal_lookup(w->f, d, step, NULL));
    for (uint32_t d = 0; d < devices; d++)
        check(frugal_update(w->f, d, step, &(frugal_gradients){.records = 1, .lr = 0.01f}));
    do_pieces(w->f, us);
    double took = (bench_thread_seconds() - since) * 1e6;
    if (step < WARM_UP) return;
    for (announce_phase p = 0; p < PHASES; p++) bench_add(&w->by_phase[p], by_phase[p] * 1e6);
    for (work_kind k = 0; k < KINDS; k++) bench_add(&w->us[k], us[k]), all += us[k];
    bench_add(&w->all, all);
    bench_add(&w->step, took);
}

static void report_json(const host_work *w, double skew, double shared, double of_staged) {
    frugal_stats stats;
    frugal_get_stats(w->f, &stats);
    printf("{\"bench\": \"host\", \"rows\": %llu, \"dim\": %llu, \"devices\": %llu, \"keys\": %llu, \"zipf\": %g, ",
           (unsigned long long)rows, (unsigned long long)dim, (unsigned long long)devices, (unsigned long long)keys,
           skew);
    printf("\"alone\": \"%s\", \"counting\": %d, \"steps\": %u, \"shared\": %.4f, \"of_staged\": %.4f, \"huge\": %.3f",
           bench_alone[ways[w->way]], w->counting, w->all.n, shared, of_staged,
           stats.resident_bytes ? (double)stats.huge_bytes / (double)stats.resident_bytes : 0);
    for (work_kind k = 0; k < KINDS; k++) printf(", \"%s_us\": %.1f", kinds[k], bench_median(&w->us[k]));
    for (announce_phase p = 0; p < PHASES; p++) printf(", \"%s_us\": %.1f", phases[p], bench_median(&w->by_phase[p]));
    printf(", \"all_us\": %.1f, \"least_us\": %.1f, \"most_us\": %.1f, \"step_us\": %.1f}\n", bench_median(&w->all),
           bench_quantile(&w->all, 0), bench_quantile(&w->all, 1), bench_median(&w->step));
}

static void report(const host_work *w, double skew, double staged) {
    frugal_stats stats;
    frugal_get_stats(w->f, &stats);
    double touched = (double)(stats.alone + stats.shared), shared = touched > 0 ? (double)stats.shared / touched : 0;
    double all = bench_median(&w->all), of_staged = staged > 0 ? all / staged : 0;
    if (json) {
        report_json(w, skew, shared, of_staged);
        return;
    }
    printf("%5g %-7s %8s %6.1f%%", skew, bench_alone[ways[w->way]], w->counting ? "yes" : "no", 100 * shared);
    for (work_kind k = 0; k < KINDS; k++) printf(" %9.0f", bench_median(&w->us[k]));
    printf(" %9.0f (%7.0f %7.0f) %9.2f %9.0f\n", all, bench_quantile(&w->all, 0), bench_quantile(&w->all, 1), of_staged,
           bench_median(&w->step));
    printf("%24s", "announcing, ns a key:");
    for (announce_phase p = 0; p < PHASES; p++)
        printf(" %s %.1f", phases[p], bench_median(&w->by_phase[p]) * 1e3 / (double)(devices * keys));
    printf("\n");
}

static void run(double skew) {
    host_work work[MOST_INSTANCES];
    uint32_t n = 0;
    uint64_t *drawn = malloc(devices * keys * sizeof *drawn);
    if (!drawn) bench_fail("out of memory for %llu keys", (unsigned long long)(devices * keys));
    for (int i = 0; i < WAYS; i++)
        for (uint32_t c = 0; c < counting.n && n < MOST_INSTANCES; c++)
            open_host(&work[n++], i, counting.values[c] != 0);
    for (uint64_t s = 0; s < WARM_UP + steps && !bench_interrupted(); s++) {
        bench_progress("skew %g: step %llu of %llu", skew, (unsigned long long)s + 1,
                       (unsigned long long)(WARM_UP + steps));
        draw_keys(drawn, skew, s);
        for (uint32_t i = 0; i < n; i++) do_step(&work[(s + i) % n], s, drawn);
    }
    bench_progress("%s", "");
    for (uint32_t i = 0; i < n; i++) report(&work[i], skew, bench_median(&work[0].all));
    fflush(stdout);
    for (uint32_t i = 0; i < n; i++) frugal_close(work[i].f);
    free(drawn);
}

/* >>ahead */

typedef struct ahead_work {
    frugal *f;
    uint32_t workers;
    bench_samples us;
} ahead_work;

static void open_ahead(ahead_work *w, uint32_t with_workers) {
    const frugal_desc how = {.workers = with_workers, .alone = FRUGAL_ALONE_STAGED};
    *w = (ahead_work){.f = open_instance(&how, 1), .workers = with_workers};
}

static void do_ahead(ahead_work *w, uint64_t step, const uint64_t *drawn) {
    double since = bench_now();
    for (uint32_t d = 0; d < devices; d++) {
        const frugal_keys segment = {.keys = drawn + d * keys, .n = (uint32_t)keys};
        check(frugal_announce(w->f, d, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
    }
    while (phases_planned(w->f) <= step) continue;
    double took = (bench_now() - since) * 1e6;
    for (uint32_t d = 0; d < devices; d++) check(frugal_lookup(w->f, d, step, NULL));
    for (uint32_t d = 0; d < devices; d++) check(frugal_update(w->f, d, step, NULL));
    check(frugal_drain(w->f));
    if (step >= WARM_UP) bench_add(&w->us, took);
}

static void run_ahead(double skew) {
    ahead_work work[2];
    uint64_t *drawn = malloc(devices * keys * sizeof *drawn);
    if (!drawn) bench_fail("out of memory for %llu keys", (unsigned long long)(devices * keys));
    for (uint32_t i = 0; i < 2; i++) open_ahead(&work[i], i == 0 ? 0 : (uint32_t)workers);
    for (uint64_t s = 0; s < WARM_UP + steps && !bench_interrupted(); s++) {
        draw_keys(drawn, skew, s);
        for (uint32_t i = 0; i < 2; i++) do_ahead(&work[(s + i) % 2], s, drawn);
    }
    double alone = bench_median(&work[0].us), helped = bench_median(&work[1].us);
    if (json)
        printf("{\"bench\": \"ahead\", \"devices\": %llu, \"keys\": %llu, \"zipf\": %g, \"workers\": %llu, "
               "\"alone_us\": %.1f, \"helped_us\": %.1f, \"ratio\": %.3f}\n",
               (unsigned long long)devices, (unsigned long long)keys, skew, (unsigned long long)workers, alone, helped,
               helped / alone);
    else
        printf("skew %g: planned in %.0f us by one thread, in %.0f us (%.2f) with %llu that help\n", skew, alone,
               helped, helped / alone, (unsigned long long)workers);
    for (uint32_t i = 0; i < 2; i++) frugal_close(work[i].f);
    free(drawn);
}

int main(int argc, char **argv) {
    bench_parse("bench_host", "Times what the host does in a step for all devices together, on one thread.", options,
                argc, argv);
    if (small_pages) refuse_huge_pages();
    for (uint32_t i = 0; ahead && i < zipf.n && !bench_interrupted(); i++) run_ahead(zipf.values[i]);
    if (ahead) return bench_exit_status();
    if (!json)
        puts(" skew alone   counting  shared  announce     close     apply   all, us (  least    most) of "
             "staged  step, us");
    for (uint32_t i = 0; i < zipf.n && !bench_interrupted(); i++) run(zipf.values[i]);
    return bench_exit_status();
}
