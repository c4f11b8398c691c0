/* bench_step.c - the embedding part of training alone, end to end, compared with what memory allows.
 *
 *     build/bench_step                                             the effect of P2F and of a worker, four workloads
 *     build/bench_step --lookahead 0,1,2,5,10,15 --workers 1       every option takes a list: all combinations are run
 *     build/bench_step --json > steps                              one object a line
 *
 * The paper's experiments #1 (systems), #2 (P2F against write-through), #5 (components of a step) and #10 (flushing
 * threads), and its reviewers' questions: lookahead, staging depth, cache ratio, devices, rows, when the gate stalls,
 * processor time.
 */
#include "bench/choices.h"
#include "bench/program.h"
#include "bench/step/run.h"

#include <stdio.h>

static const char *const gradients[] = {"position", "place", NULL}; /* step_config.in_place */

static options_list rows = {{10e6}, 1}, dim = {{32}, 1}, devices = {{2}, 1}, keys = {{26624}, 1}, workers = {{0, 1}, 2},
                    lookahead = {{10}, 1}, staging = {{0}, 1}, zipf = {{0, 0.99}, 2},
                    optimizer = {{FRUGAL_SGD, FRUGAL_ROWWISE_ADAGRAD}, 2}, mode = {{FRUGAL_P2F, FRUGAL_SYNC}, 2},
                    cache = {{0}, 1}, policy = {{FRUGAL_CACHE_COUNTED}, 1}, in = {{0}, 1}, loader = {{0}, 1},
                    bind = {{1}, 1}, increments = {{0}, 1}, alone = {{0}, 1}, trace = {{0}, 1},
                    rows_as = {{FRUGAL_FP32}, 1}, device_threads = {{1}, 1};
static uint64_t steps = 60, rounds = 3, threads;
static const char *file, *trace_file;
static int sparse;
static int cold, json;
static double resident;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLES, &rows, 1, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLES, &dim, 1, 65536, NULL, "floats a row"},
    {"rows-as", OPTIONS_CHOICES, &rows_as, 0, 0, bench_types,
     "type of the table's weights; the roofline is that of fp32"},
    {"devices", OPTIONS_WHOLES, &devices, 1, 254, NULL, "logical devices, a thread each"},
    {"keys", OPTIONS_WHOLES, &keys, 1, 1 << 26, NULL, "looked up by a device in a step"},
    {"workers", OPTIONS_WHOLES, &workers, 0, 1024, NULL, "threads that flush; 0: applied when a step closes"},
    {"lookahead", OPTIONS_WHOLES, &lookahead, 0, 15, NULL, "steps announced ahead"},
    {"staging", OPTIONS_WHOLES, &staging, 0, 63, NULL, "depth of the staging ring; 0: the library's choice"},
    {"zipf", OPTIONS_REALS, &zipf, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"optimizer", OPTIONS_CHOICES, &optimizer, 0, 0, bench_optimizers, "of the rows"},
    {"mode", OPTIONS_CHOICES, &mode, 0, 0, bench_modes, "flushed ahead by priority, or written through"},
    {"alone", OPTIONS_CHOICES, &alone, 0, 0, bench_alone + 1,
     "rows that one device touches: staged, as in the paper, in place, or kept in its cache (and written back after "
     "the "
     "run)"},
    {"cache", OPTIONS_REALS, &cache, 0, 1, NULL, "rows cached by each device, as a share of all"},
    {"policy", OPTIONS_CHOICES, &policy, 0, 0, bench_policies, "of the cache"},
    {"gradients", OPTIONS_CHOICES, &in, 0, 0, gradients, "arrays by position, or in the staging block"},
    {"device-threads", OPTIONS_WHOLES, &device_threads, 1, 64, NULL, "threads of a device, its own among them"},
    {"loader", OPTIONS_WHOLES, &loader, 0, 1, NULL, "1: each device has a thread that announces"},
    {"bind", OPTIONS_WHOLES, &bind, 0, 1, NULL, "1: each trainer's and loader's thread to a processor"},
    {"increments", OPTIONS_WHOLES, &increments, 0, 1, NULL, "1: rows that change are marked, for saves of them alone"},
    {"file", OPTIONS_TEXT, &file, 0, 0, NULL,
     "the table is this file, mapped; made where there is none, trained on where there is, taken where torn"},
    {"sparse", OPTIONS_FLAG, &sparse, 0, 0, NULL,
     "a new file's space is not reserved: a full disk is then SIGBUS, not an error"},
    {"cold", OPTIONS_FLAG, &cold, 0, 0, NULL, "no row of the file is in memory when a round begins"},
    {"resident", OPTIONS_REAL, &resident, 0, 1, NULL,
     "with --cold: except this share of its pages, as if the table were 1/SHARE times as large as memory"},
    {"trace", OPTIONS_WHOLES, &trace, 0, 1, NULL, "1: events are recorded"},
    {"trace-file", OPTIONS_TEXT, &trace_file, 0, 0, NULL,
     "with --trace 1: the events of the last round, for ui.perfetto.dev"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1e9, NULL, "of a round"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of which medians are taken, after one more"},
    {"threads", OPTIONS_WHOLE64, &threads, 0, 256, NULL,
     "of the roofline; 0: as many as run, at most a processor each"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

static const char about[] = "Looks up, updates and flushes synthetic keys, and says how fast, beside what this "
                            "machine's memory allows. Options take\n"
                            "lists (1,2,4), but those of the runs as a whole; all combinations are run.\n";

/* The options that may have lists; the first varies slowest. Those that a table depends on stand first. */
static options_list *const sweeps[] = {&rows,  &dim,        &optimizer, &devices, &keys,           &zipf,   &in,
                                       &cache, &policy,     &lookahead, &staging, &loader,         &bind,   &workers,
                                       &mode,  &increments, &alone,     &trace,   &device_threads, &rows_as};
enum { SWEEPS = sizeof sweeps / sizeof *sweeps, TABLE_SWEEPS = 6, TURNS = 16 }; /* TURNS: each run has its own memory */

static double at(const uint32_t *position, const options_list *list) {
    for (uint32_t i = 0; i < SWEEPS; i++)
        if (sweeps[i] == list) return list->values[position[i]];
    return list->values[0];
}

static step_config config_at(const uint32_t *position) {
    return (step_config){.rows = (uint64_t)at(position, &rows),
                         .keys = (uint64_t)at(position, &keys),
                         .steps = steps,
                         .dim = (uint32_t)at(position, &dim),
                         .devices = (uint32_t)at(position, &devices),
                         .workers = (uint32_t)at(position, &workers),
                         .lookahead = (uint32_t)at(position, &lookahead),
                         .staging = (uint32_t)at(position, &staging),
                         .rounds = (uint32_t)rounds,
                         .threads = (uint32_t)threads,
                         .zipf = at(position, &zipf),
                         .cache = at(position, &cache),
                         .optimizer = (frugal_optimizer_kind)at(position, &optimizer),
                         .mode = (frugal_mode)at(position, &mode),
                         .alone = (frugal_alone)(FRUGAL_ALONE_STAGED + (int)at(position, &alone)),
                         .policy = (frugal_cache_policy)at(position, &policy),
                         .rows_as = (frugal_type)at(position, &rows_as),
                         .device_threads = (uint32_t)at(position, &device_threads),
                         .in_place = (int)at(position, &in),
                         .loader = (int)at(position, &loader),
                         .bind = (int)at(position, &bind),
                         .increments = (int)at(position, &increments),
                         .trace = (int)at(position, &trace),
                         .trace_file = trace_file,
                         .file = file,
                         .sparse = sparse,
                         .cold = cold,
                         .resident = resident};
}

/* Moves on to the next combination. Returns the slowest sweep that changed, or -1 after the last combination. */
static int next_position(uint32_t *position) {
    for (int i = SWEEPS - 1; i >= 0; i--) {
        if (++position[i] < sweeps[i]->n) return i;
        position[i] = 0;
    }
    return -1;
}

static double ms(const step_result *r, step_field field) {
    return bench_median(&r->fields[field]) * 1e3;
}

static void print_json(const step_config *c, const step_result *r) {
    const bench_samples *speed = &r->fields[STEP_KEYS_PER_S];
    printf("{\"mode\": \"%s\", \"devices\": %u, \"workers\": %u, \"lookahead\": %u, \"cache\": %g, \"zipf\": %g, "
           "\"optimizer\": \"%s\", \"keys_per_s\": %.0f, \"stall_ms\": %.4f, \"roofline_share\": %.3f, ",
           bench_modes[c->mode], c->devices, c->workers, c->lookahead, c->cache, c->zipf,
           bench_optimizers[c->optimizer], bench_median(speed), ms(r, STEP_STALL),
           bench_median(&r->fields[STEP_SHARE]));
    printf("\"rows\": %llu, \"dim\": %u, \"keys\": %llu, \"staging\": %u, \"policy\": \"%s\", \"gradients\": \"%s\", "
           "\"alone\": \"%s\", \"rows_as\": \"%s\", \"loader\": %d, \"bind\": %d, \"increments\": %d, \"trace\": %d, "
           "\"file\": %d, "
           "\"cold\": %d, \"resident\": %g, \"device_threads\": %u, \"rounds\": %u, \"min\": %.0f, \"max\": %.0f, ",
           (unsigned long long)c->rows, c->dim, (unsigned long long)c->keys, r->staging, bench_policies[c->policy],
           gradients[c->in_place], bench_alone[c->alone], bench_types[c->rows_as], c->loader, c->bind, c->increments,
           c->trace, c->file != NULL, c->cold, c->resident, c->device_threads, speed->n, bench_quantile(speed, 0),
           bench_quantile(speed, 1));
    printf("\"step_ms\": %.4f, \"announce_ms\": %.4f, \"gate_ms\": %.4f, \"lookup_ms\": %.4f, \"update_ms\": %.4f, "
           "\"plan_ms\": %.4f, \"close_ms\": %.4f, \"flush_ms\": %.4f, ",
           ms(r, STEP_SECONDS), ms(r, STEP_ANNOUNCE), ms(r, STEP_GATE), ms(r, STEP_LOOKUP), ms(r, STEP_UPDATE),
           ms(r, STEP_PLAN), ms(r, STEP_CLOSE), ms(r, STEP_FLUSH));
    printf("\"cpu_loader_ms\": %.4f, \"cpu_lookup_ms\": %.4f, \"cpu_update_ms\": %.4f, \"cpu_workers_ms\": %.4f, "
           "\"gather_per_s\": %.0f, \"row_updates_per_s\": %.0f, \"stream_bytes_per_s\": %.0f, \"words_per_s\": %.0f, "
           "\"words_share\": %.3f, \"unique\": %.4f, \"hits\": %.4f, \"rows_moved\": %.0f",
           ms(r, STEP_CPU_LOADER), ms(r, STEP_CPU_LOOKUP), ms(r, STEP_CPU_UPDATE), ms(r, STEP_CPU_WORKERS),
           bench_median(&r->fields[STEP_GATHER_RATE]), bench_median(&r->fields[STEP_UPDATE_RATE]),
           bench_median(&r->fields[STEP_STREAM_RATE]), bench_median(&r->fields[STEP_WORD_RATE]),
           bench_median(&r->fields[STEP_WORDS]), bench_median(&r->fields[STEP_UNIQUE]),
           bench_median(&r->fields[STEP_HITS]), bench_median(&r->fields[STEP_MOVED]));
    printf(", \"swept_gather_per_s\": %.0f, \"swept_row_updates_per_s\": %.0f, \"updated_rows\": %.0f, "
           "\"in_place_rows\": %.0f}\n",
           bench_median(&r->fields[STEP_SWEPT_GATHER_RATE]), bench_median(&r->fields[STEP_SWEPT_UPDATE_RATE]),
           bench_median(&r->fields[STEP_UPDATED]), bench_median(&r->fields[STEP_IN_PLACE]));
}

static void print_heading(void) {
    puts("                                                                            M keys/s               of the  "
         "   a device's step, ms                     behind it, ms");
    puts("      rows dim type dev   keys wk  L  S cache zipf optimizer            alone  inc    (least, most)   "
         "roofline  "
         "words  announce   gate (stall) lookup update     plan  close  flush");
}

static void print_line(const step_config *c, const step_result *r) {
    const bench_samples *speed = &r->fields[STEP_KEYS_PER_S];
    printf("%10llu %3u %s %3u %6llu %2u %2u %2u %5.2f %4.2f %-15s %-4s %-6s %3d %5.1f (%5.1f %5.1f) %5.0f%% %5.0f%%  ",
           (unsigned long long)c->rows, c->dim, bench_types[c->rows_as], c->devices, (unsigned long long)c->keys,
           c->workers, c->lookahead, r->staging, c->cache, c->zipf, bench_optimizers[c->optimizer],
           bench_modes[c->mode], bench_alone[c->alone], c->increments, bench_median(speed) / 1e6,
           bench_quantile(speed, 0) / 1e6, bench_quantile(speed, 1) / 1e6, bench_median(&r->fields[STEP_SHARE]) * 100,
           bench_median(&r->fields[STEP_WORDS]) * 100);
    printf("%8.3f %6.3f (%5.3f) %6.3f %6.3f   %6.3f %6.3f %6.3f\n", ms(r, STEP_ANNOUNCE), ms(r, STEP_GATE),
           ms(r, STEP_STALL), ms(r, STEP_LOOKUP), ms(r, STEP_UPDATE), ms(r, STEP_PLAN), ms(r, STEP_CLOSE),
           ms(r, STEP_FLUSH));
}

/* Runs that share a table take turns, a round each, so that a machine that is slower for a while affects all of them.
 */
static void run_in_turns(step_run *const *runs, uint32_t n) {
    uint32_t of = (uint32_t)rounds;
    for (uint32_t round = 0; round <= of && !bench_interrupted(); round++) /* round 0 warms up */
        for (uint32_t i = 0; i < n && !bench_interrupted(); i++) step_run_round(runs[i]);
    bench_progress("%s", "");
    for (uint32_t i = 0; i < n; i++) {
        const step_result *result = step_result_of(runs[i]);
        if (result->fields[0].n == 0) continue; /* interrupted before the first round ended */
        if (json)
            print_json(step_config_of(runs[i]), result);
        else
            print_line(step_config_of(runs[i]), result);
    }
    fflush(stdout);
}

/* Runs all combinations from `position` on that have the same table. Returns the sweep that changes after them, or -1
 * after the last. */
static int run_table(uint32_t *position) {
    static step_run *runs[TURNS];
    step_config first = config_at(position);
    uint32_t turns = file ? 1 : TURNS; /* an instance does not share its file */
    bench_progress("a table of %llu x %u", (unsigned long long)first.rows, first.dim);
    step_table *table = step_open_table(&first);
    int changed;
    do {
        uint32_t n = 0;
        do {
            step_config config = config_at(position);
            runs[n++] = step_open_run(table, &config);
            changed = next_position(position);
        } while (changed >= TABLE_SWEEPS && n < turns);
        run_in_turns(runs, n);
        for (uint32_t i = 0; i < n; i++) step_close_run(runs[i]);
    } while (changed >= TABLE_SWEEPS && !bench_interrupted());
    step_close_table(table);
    return changed;
}

int main(int argc, char **argv) {
    bench_parse("bench_step", about, options, argc, argv);
    if (resident > 0 && !cold) {
        fputs("bench_step: --resident needs --cold: else all pages may be in memory\n", stderr);
        return 2;
    }
    if (cold && !file) {
        fputs("bench_step: --cold needs --file: only a file's rows can be out of memory\n", stderr);
        return 2;
    }
    if (sparse && !file) {
        fputs("bench_step: --sparse needs --file: only a file takes space\n", stderr);
        return 2;
    }
    if (file && (rows.n > 1 || dim.n > 1 || optimizer.n > 1)) {
        fprintf(stderr,
                "bench_step: with --file the table has one shape; --rows, --dim, --optimizer have %u, %u, %u values: "
                "give one each\n",
                rows.n, dim.n, optimizer.n);
        return 2;
    }
    uint32_t position[SWEEPS] = {0};
    if (!json) print_heading();
    for (int changed = 0; changed >= 0 && !bench_interrupted();) changed = run_table(position);
    return bench_exit_status();
}
