/* bench_place.c - samples dealt to devices by locality: how many touches are then local, how long it takes, and how
 * many host rows the library's devices read.
 *
 *     build/bench_place                                   all of it, with the data in ../shared/data: minutes
 *     build/bench_place --what partitions --trace planted --samples 1e6 --devices 8
 *     build/bench_place --what reads --trace fb15k-237 --cache .003,.015,.64 --policy lru,static
 *
 *   skew        how many rows have half, and 90%, of the touches
 *   partitions  local share, balance, time, and by the closed form of frugal_place.h the rows that devices with large
 *               caches read in a step, of each method, beside METIS where gpmetis is installed
 *   pairs       by the devices of sample and row: the shares of all touches
 *   refining    the two levels with each number of threads: the parts must be the same
 *   reads       rows that all devices read in a step, counted in the library (frugal_cpu_get_traffic), over those of
 *               samples dealt at random and no cache; for static caches beside the closed form of frugal_place.h
 *   ahead       hits of simulated caches whose eviction knows the next L steps (ahead.h), beside one that does not and
 *               one that knows all steps
 *
 * The traces criteo and avazu are not those logs: they are generated, with as many fields, ids and skew as published.
 *
 * Whatever the policy, caches begin with the rows of most gain (frugal_place_rank), and those that count with counts.
 * Data that is not there where it usually lies, and METIS where it is not installed, are skipped with the reason; data
 * that an option names must be there.
 */
#include "bench/choices.h"
#include "bench/measure.h"
#include "bench/place/ahead.h"
#include "bench/place/partition.h"
#include "bench/place/reads.h"
#include "bench/place/trace.h"
#include "bench/program.h"

#include <stdio.h>

enum { FB15K, WN18RR, ADULT, PLANTED, CRITEO, AVAZU, TRACES };
static const char *const trace_names[TRACES + 1] = {"fb15k-237", "wn18rr", "adult", "planted", "criteo", "avazu", NULL};

enum { SKEW, PARTITIONS, PAIRS, REFINING, READS, AHEAD };
static const char *const what_names[] = {"skew", "partitions", "pairs", "refining", "reads", "ahead", NULL};

static options_list what = {{SKEW, PARTITIONS, PAIRS, REFINING, READS, AHEAD}, 6},
                    traces = {{FB15K, WN18RR, ADULT, PLANTED}, 4},
                    methods = {{PLACE_RANDOM, PLACE_BICUT, PLACE_HET_GMP, PLACE_TWO_LEVEL, PLACE_METIS}, 5},
                    dealings = {{PLACE_RANDOM, PLACE_TWO_LEVEL}, 2}, devices = {{1, 2, 4, 8}, 4}, threads = {{1, 2}, 2},
                    caches = {{.01, .05, .1, .5}, 4}, policies, /* empty: all */
    lookaheads = {{1, 4, 10}, 3}, alone = {{FRUGAL_ALONE_PLACE - FRUGAL_ALONE_STAGED}, 1};
static const char *fb15k = "../shared/data/fb15k-237", *wn18rr = "../shared/data/wn18rr",
                  *adult = "../shared/data/adult/adult.data", *schema = "trainers/clicks/adult.schema";
static place_planted planted = {
    .rows = 1000000, .samples = 1000000, .communities = 64, .seed = 42, .width = 10, .own = .8, .zipf = .95};
static uint64_t rounds = 3, batch = 256, warm_up = 200, steps = 200, metis_edges = 20000000;
static int json, fb15k_given, wn18rr_given, adult_given, schema_given;

static const options_entry options[] = {
    {"what", OPTIONS_CHOICES, &what, 0, 0, what_names, "is measured"},
    {"trace", OPTIONS_CHOICES, &traces, 0, 0, trace_names, "whose samples are dealt"},
    {"devices", OPTIONS_WHOLES, &devices, 1, 64, NULL, "parts; one part is not divided"},
    {"method", OPTIONS_CHOICES, &methods, 0, 0, place_methods, "of dividing; partitions, pairs"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of which medians are taken; partitions, refining"},
    {"threads", OPTIONS_WHOLES, &threads, 1, 64, NULL, "that propose moves; refining"},
    {"metis-edges", OPTIONS_WHOLE64, &metis_edges, 0, 1e12, NULL, "of a graph that METIS divides, at most"},
    {"dealing", OPTIONS_CHOICES, &dealings, 0, 0, place_methods, "methods by which samples are dealt; reads, ahead"},
    {"cache", OPTIONS_REALS, &caches, 0, 1, NULL, "rows that a device caches, as a share of the table; reads, ahead"},
    {"policy", OPTIONS_CHOICES, &policies, 0, 0, bench_policies, "of the caches; default: all; reads", .standard = ""},
    {"alone", OPTIONS_CHOICES, &alone, 0, 0, bench_alone + 1, "who updates rows that one device touches; reads"},
    {"lookahead", OPTIONS_WHOLES, &lookaheads, 0, 1000, NULL, "steps that a rule knows, all announced; ahead"},
    {"batch", OPTIONS_WHOLE64, &batch, 1, 1 << 20, NULL, "samples of a device in a step; reads, ahead"},
    {"warm-up", OPTIONS_WHOLE64, &warm_up, 0, 1e9, NULL, "steps before those that are counted; reads, ahead"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1e9, NULL, "that are counted; reads, ahead"},
    {"fb15k-237", OPTIONS_TEXT, &fb15k, .given = &fb15k_given,
     .help = "folder of that graph, or of any that kge reads"},
    {"wn18rr", OPTIONS_TEXT, &wn18rr, .given = &wn18rr_given, .help = "folder of that graph, or of any that kge reads"},
    {"adult", OPTIONS_TEXT, &adult, .given = &adult_given, .help = "file of that log, or of any with the schema"},
    {"schema", OPTIONS_TEXT, &schema, .given = &schema_given, .help = "of that log"},
    {"samples", OPTIONS_WHOLE64, &planted.samples, 1, 4294967295, NULL,
     "of traces that are made: planted, criteo, avazu"},
    {"width", OPTIONS_WHOLE32, &planted.width, 1, 1024, NULL, "keys of a planted sample"},
    {"rows", OPTIONS_WHOLE64, &planted.rows, 1, 4294967294, NULL, "of the planted trace"},
    {"communities", OPTIONS_WHOLE64, &planted.communities, 1, 4294967294, NULL, "in traces that are made"},
    {"own", OPTIONS_REAL, &planted.own, 0, 1, NULL, "chance there that a key is one of its sample's community"},
    {"zipf", OPTIONS_REAL, &planted.zipf, 0, 5, NULL, "skew of planted rows; 0: uniform"},
    {"seed", OPTIONS_WHOLE64, &planted.seed, 0, 1e15, NULL, "of traces that are made, and of the order of batches"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct named_trace {
    place_trace trace;
    const char *name;
} named_trace;

static void require(int status, const program_error *error) {
    if (status) bench_fail("%s", error->text);
}

/* >>output */

static void say_skipped(const char *trace, const char *method, const char *reason) {
    if (json)
        printf("{\"what\": \"skipped\", \"trace\": \"%s\", \"method\": \"%s\", \"reason\": \"%s\"}\n", trace, method,
               reason);
    else
        printf("%-10s %s SKIPPED: %s\n", trace, method, reason);
    fflush(stdout);
}

/* The object up to what is measured. */
static void print_trace(const named_trace *t, const char *kind, uint32_t n) {
    printf(
        "{\"what\": \"%s\", \"trace\": \"%s\", \"rows\": %llu, \"samples\": %llu, \"touches\": %llu, \"devices\": %u, ",
        kind, t->name, (unsigned long long)t->trace.rows, (unsigned long long)t->trace.n,
        (unsigned long long)(t->trace.n * t->trace.width), n);
}

/* >>skew */

static void run_skew(const named_trace *t) {
    static const double shares[] = {.5, .9};
    uint64_t rows[2], touched;
    program_error error;
    for (int i = 0; i < 2; i++) require(place_rows_of_share(&t->trace, shares[i], &rows[i], &error), &error);
    require(place_rows_of_share(&t->trace, 1, &touched, &error), &error);
    if (json) {
        print_trace(t, "skew", 1);
        printf("\"touched\": %llu, \"half\": %llu, \"most\": %llu}\n", (unsigned long long)touched,
               (unsigned long long)rows[0], (unsigned long long)rows[1]);
    } else
        printf("%-10s %llu rows, %llu touched; half of the touches are of %llu, 90%% of %llu\n", t->name,
               (unsigned long long)t->trace.rows, (unsigned long long)touched, (unsigned long long)rows[0],
               (unsigned long long)rows[1]);
    fflush(stdout);
}

/* >>partitions */

typedef struct measured {
    bench_samples seconds, cpu_seconds;
    frugal_place_report report;
} measured;

static void report_partition(const named_trace *t, uint32_t n, place_method method, const measured *m) {
    double seconds = bench_median(&m->seconds), least = bench_quantile(&m->seconds, 0),
           most = bench_quantile(&m->seconds, 1);
    if (json) {
        print_trace(t, "partition", n);
        printf("\"method\": \"%s\", \"local_share\": %.4f, \"balance\": %.4f, \"batch\": %llu, \"touched\": %.2f, "
               "\"read\": %.2f, \"seconds\": %.3f, \"min\": %.3f, \"max\": %.3f, \"cpu_seconds\": %.3f, "
               "\"rounds\": %u}\n",
               place_methods[method], m->report.local_share, m->report.balance, (unsigned long long)batch,
               m->report.reads, m->report.reads - m->report.hits, seconds, least, most, bench_median(&m->cpu_seconds),
               m->seconds.n);
    } else
        printf("%-10s %2u devices %-10s %.4f local, balance %.3f, %8.1f rows read, %8.3f s (%.3f to %.3f)\n", t->name,
               n, place_methods[method], m->report.local_share, m->report.balance, m->report.reads - m->report.hits,
               seconds, least, most);
    fflush(stdout);
}

/* Rounds of one method. Returns 0 where METIS cannot be run. */
static int run_method(const named_trace *t, uint32_t n, place_method method) {
    static measured m;
    program_error error;
    m = (measured){.seconds = {.n = 0}};
    for (uint64_t r = 0; r < rounds && !bench_interrupted(); r++) {
        place_partition p;
        bench_progress("%s, %u devices, %s: round %llu", t->name, n, place_methods[method], (unsigned long long)r + 1);
        int status = place_divide(&p, &t->trace, &(place_division){.method = method, .devices = n}, &error);
        bench_progress("%s", "");
        if (bench_interrupted()) {
            if (!status) place_free_partition(&p);
            break;
        }
        if (status && method == PLACE_METIS) {
            say_skipped(t->name, place_methods[method], error.text);
            return 0;
        }
        require(status, &error);
        bench_add(&m.seconds, p.seconds), bench_add(&m.cpu_seconds, p.cpu_seconds);
        m.report = frugal_place_get_report(p.place, batch);
        place_free_partition(&p);
    }
    if (m.seconds.n > 0) report_partition(t, n, method, &m);
    return 1;
}

static void run_partitions(const named_trace *t) {
    uint64_t edges = t->trace.n * t->trace.width;
    for (uint32_t m = 0; m < methods.n; m++) {
        place_method method = (place_method)methods.values[m];
        if (method == PLACE_METIS && edges > metis_edges) {
            char reason[120];
            snprintf(reason, sizeof reason, "%llu edges; METIS is run for --metis-edges %llu at most",
                     (unsigned long long)edges, (unsigned long long)metis_edges);
            say_skipped(t->name, place_methods[method], reason);
            continue;
        }
        for (uint32_t i = 0; i < devices.n && !bench_interrupted(); i++)
            if (devices.values[i] > 1 && !run_method(t, (uint32_t)devices.values[i], method)) break;
    }
}

/* >>pairs */

static void report_pairs(const named_trace *t, uint32_t n, place_method method, const uint64_t *pairs) {
    double touches = (double)t->trace.n * t->trace.width, across = 0;
    for (uint32_t i = 0; i < n * n; i++)
        if ((i / n < n / 2) != (i % n < n / 2)) across += (double)pairs[i] / touches;
    if (json) {
        print_trace(t, "pairs", n);
        printf("\"method\": \"%s\", \"across_halves\": %.4f, \"pairs\": [", place_methods[method], across);
        for (uint32_t i = 0; i < n * n; i++) printf(i ? ", %.5f" : "%.5f", (double)pairs[i] / touches);
        puts("]}");
    } else {
        printf("%-10s %2u devices %-10s touches (%%) by devices of sample (lines) and row; %.4f between the halves\n",
               t->name, n, place_methods[method], across);
        for (uint32_t i = 0; i < n * n; i++)
            printf(i % n == n - 1 ? "%7.2f\n" : "%7.2f", 100 * (double)pairs[i] / touches);
    }
    fflush(stdout);
}

static void run_pairs(const named_trace *t, uint32_t n) {
    static uint64_t pairs[64 * 64];
    for (uint32_t m = 0; m < methods.n && !bench_interrupted(); m++) {
        place_partition p;
        program_error error;
        place_method method = (place_method)methods.values[m];
        if (method == PLACE_METIS) continue; /* partitions says whether it is there */
        require(place_divide(&p, &t->trace, &(place_division){.method = method, .devices = n}, &error), &error);
        place_count_pairs(&p, pairs);
        report_pairs(t, n, method, pairs);
        place_free_partition(&p);
    }
}

/* >>refining */

static void report_refining(const named_trace *t, uint32_t n, uint32_t used, const measured *all,
                            const measured *refining) { /* whose cpu_seconds are of the longest path */
    double seconds = bench_median(&refining->seconds);
    if (json) {
        print_trace(t, "refining", n);
        printf("\"threads\": %u, \"seconds\": %.3f, \"min\": %.3f, \"max\": %.3f, \"path_seconds\": %.3f, "
               "\"all_seconds\": %.3f, \"all_cpu_seconds\": %.3f, \"rounds\": %u}\n",
               used, seconds, bench_quantile(&refining->seconds, 0), bench_quantile(&refining->seconds, 1),
               bench_median(&refining->cpu_seconds), bench_median(&all->seconds), bench_median(&all->cpu_seconds),
               all->seconds.n);
    } else
        printf("%-10s %2u devices, %2u threads refine in %.3f s (%.3f to %.3f) of %.3f; the parts are the same\n",
               t->name, n, used, seconds, bench_quantile(&refining->seconds, 0), bench_quantile(&refining->seconds, 1),
               bench_median(&all->seconds));
    fflush(stdout);
}

/* All numbers of threads take turns. Parts that differ end the program. */
static void run_refining(const named_trace *t, uint32_t n) {
    static measured all[OPTIONS_LIST], refining[OPTIONS_LIST];
    place_partition first = {.parts = NULL}, p;
    program_error error;
    memset(all, 0, sizeof all), memset(refining, 0, sizeof refining);
    for (uint64_t r = 0; r < rounds; r++)
        for (uint32_t i = 0; i < threads.n && !bench_interrupted(); i++) {
            uint32_t used = (uint32_t)threads.values[i];
            bench_progress("%s, %u devices, %u threads: round %llu", t->name, n, used, (unsigned long long)r + 1);
            require(place_divide(&p, &t->trace,
                                 &(place_division){.method = PLACE_TWO_LEVEL, .devices = n, .threads = used}, &error),
                    &error);
            bench_progress("%s", "");
            bench_add(&all[i].seconds, p.seconds), bench_add(&all[i].cpu_seconds, p.cpu_seconds);
            bench_add(&refining[i].seconds, p.refining_seconds);
            bench_add(&refining[i].cpu_seconds, p.path_seconds);
            if (first.parts && memcmp(first.parts, p.parts, (size_t)t->trace.n) != 0)
                bench_fail("%s, %u devices: %u threads found other parts than %g", t->name, n, used, threads.values[0]);
            if (first.parts)
                place_free_partition(&p);
            else
                first = p;
        }
    for (uint32_t i = 0; i < threads.n; i++)
        if (all[i].seconds.n > 0) report_refining(t, n, (uint32_t)threads.values[i], &all[i], &refining[i]);
    place_free_partition(&first);
}

/* >>reads */

typedef struct base { /* samples dealt at random, no cache: counted, and by the closed form */
    double read, predicted;
} base;

static void report_reads(const named_trace *t, const place_run *run, place_method dealing, double cache,
                         const place_reads *reads, const base *of, double predicted) {
    double share = reads->read / of->read;
    int is_static = run->policy == FRUGAL_CACHE_STATIC && run->cache_rows > 0;
    const char *policy = run->cache_rows ? bench_policies[run->policy] : "none";
    if (json) {
        print_trace(t, "reads", run->partition->devices);
        printf(
            "\"dealing\": \"%s\", \"cache\": %g, \"cache_rows\": %llu, \"policy\": \"%s\", \"batch\": %u, "
            "\"warm_up\": %llu, \"steps\": %llu, \"touched\": %.2f, \"read\": %.2f, \"hits\": %.4f, \"share\": %.4f, "
            "\"alone\": \"%s\", \"written\": %.2f, \"crossing\": %.4f, ",
            place_methods[dealing], cache, (unsigned long long)run->cache_rows, policy, run->batch,
            (unsigned long long)run->warm_up, (unsigned long long)run->steps, reads->rows, reads->read,
            1 - reads->read / reads->rows, share, bench_alone[run->alone], reads->written,
            (reads->read + reads->written) / (2 * of->read));
        printf(is_static ? "\"predicted\": %.4f}\n" : "\"predicted\": null}\n", predicted / of->predicted);
    } else {
        printf("%-10s %2u devices %-10s cache %5g%% %-7s %-6s %9.1f rows read a step, hits %.3f: %.3f of no cache at "
               "random, both ways %.3f",
               t->name, run->partition->devices, place_methods[dealing], cache * 100, policy, bench_alone[run->alone],
               reads->read, 1 - reads->read / reads->rows, share, (reads->read + reads->written) / (2 * of->read));
        printf(is_static ? ", closed form %.3f\n" : "\n", predicted / of->predicted);
    }
    fflush(stdout);
}

static void run_caches(const named_trace *t, place_run run, place_method dealing, base of) {
    for (uint32_t c = 0; c < caches.n && !bench_interrupted(); c++) {
        run.cache_rows = (uint64_t)(caches.values[c] * (double)t->trace.rows);
        double predicted = place_predict(run.partition, run.cache_rows);
        for (uint32_t i = 0; i < policies.n * alone.n && !bench_interrupted(); i++) {
            if (run.cache_rows == 0 && i >= alone.n) break; /* without a cache all policies are the same */
            run.policy = (frugal_cache_policy)policies.values[i / alone.n];
            run.alone = (frugal_alone)(FRUGAL_ALONE_STAGED + (int)alone.values[i % alone.n]);
            bench_progress("%s, %u devices, %s: %g%%, %s, %s", t->name, run.partition->devices, place_methods[dealing],
                           caches.values[c] * 100, bench_policies[run.policy], bench_alone[run.alone]);
            place_reads reads = place_count_reads(&run);
            bench_progress("%s", "");
            if (!bench_interrupted()) report_reads(t, &run, dealing, caches.values[c], &reads, &of, predicted);
        }
    }
}

/* One way of dealing; with `caches` 0 only what it reads without any, into *of. */
static void run_dealing(const named_trace *t, uint32_t n, place_method dealing, int with_caches, base *of) {
    place_partition p;
    place_deal deal;
    program_error error;
    require(place_divide(&p, &t->trace, &(place_division){.method = dealing, .devices = n}, &error), &error);
    require(place_open_deal(&deal, &t->trace, p.parts, n, planted.seed, &error), &error);
    require(place_rank(&p, batch, &error), &error);
    place_run run = {.partition = &p, .deal = &deal, .batch = (uint32_t)batch, .warm_up = warm_up, .steps = steps};
    if (with_caches)
        run_caches(t, run, dealing, *of);
    else {
        of->read = place_count_reads(&run).read; /* each row that is touched: so many are written, too */
        of->predicted = place_predict(&p, 0);
    }
    place_close_deal(&deal), place_free_partition(&p);
}

static void run_reads(const named_trace *t, uint32_t n) {
    base of;
    run_dealing(t, n, PLACE_RANDOM, 0, &of);
    for (uint32_t i = 0; i < dealings.n && !bench_interrupted(); i++) {
        place_method dealing = (place_method)dealings.values[i];
        if (n > 1 || i == 0) run_dealing(t, n, dealing, 1, &of);
    }
}

/* >>ahead */

typedef struct ruled { /* what one rule does */
    double cache;
    place_rule rule;
    uint32_t lookahead;
    place_ahead of;
} ruled;

static int knows_steps(place_rule rule) {
    return rule != PLACE_WORTH && rule != PLACE_BELADY;
}

static void report_ahead(const named_trace *t, const place_run *run, place_method dealing, const ruled *r) {
    double hits = 1 - r->of.reads.read / r->of.reads.rows;
    char known[12];
    snprintf(known, sizeof known, "%u", r->lookahead);
    if (!knows_steps(r->rule)) strcpy(known, json ? "null" : r->rule == PLACE_BELADY ? "all" : "no");
    if (json) {
        print_trace(t, "ahead", run->partition->devices);
        printf("\"dealing\": \"%s\", \"cache\": %g, \"cache_rows\": %llu, \"rule\": \"%s\", \"lookahead\": %s, "
               "\"batch\": %u, \"warm_up\": %llu, \"steps\": %llu, \"window\": %.2f, \"touched\": %.2f, "
               "\"read\": %.2f, \"hits\": %.4f}\n",
               place_methods[dealing], r->cache, (unsigned long long)run->cache_rows, place_rules[r->rule], known,
               run->batch, (unsigned long long)run->warm_up, (unsigned long long)run->steps, r->of.window,
               r->of.reads.rows, r->of.reads.read, hits);
    } else
        printf("%-10s %2u devices %-10s cache %5g%% %-7s knows %4s steps, %9.1f rows read a step, hits %.3f\n", t->name,
               run->partition->devices, place_methods[dealing], r->cache * 100, place_rules[r->rule], known,
               r->of.reads.read, hits);
    fflush(stdout);
}

static void run_rules(const named_trace *t, const place_future *future, place_method dealing, double cache) {
    place_run run = future->run;
    run.cache_rows = (uint64_t)(cache * (double)t->trace.rows);
    for (int rule = 0; rule < PLACE_RULES; rule++)
        for (uint32_t i = 0; i < (knows_steps((place_rule)rule) ? lookaheads.n : 1) && !bench_interrupted(); i++) {
            ruled r = {.cache = cache, .rule = (place_rule)rule};
            if (knows_steps(r.rule)) r.lookahead = (uint32_t)lookaheads.values[i];
            bench_progress("%s, %u devices, %s: %g%%, %s", t->name, run.partition->devices, place_methods[dealing],
                           cache * 100, place_rules[rule]);
            r.of = place_simulate(future, run.cache_rows, r.rule, r.lookahead);
            bench_progress("%s", "");
            if (!bench_interrupted()) report_ahead(t, &run, dealing, &r);
        }
}

static void run_ahead(const named_trace *t, uint32_t n) {
    uint32_t furthest = 0;
    for (uint32_t i = 0; i < lookaheads.n; i++)
        if (lookaheads.values[i] > furthest) furthest = (uint32_t)lookaheads.values[i];
    for (uint32_t i = 0; i < (n > 1 ? dealings.n : 1) && !bench_interrupted(); i++) {
        place_method dealing = (place_method)dealings.values[i];
        place_partition p;
        place_deal deal;
        place_future future;
        program_error error;
        require(place_divide(&p, &t->trace, &(place_division){.method = dealing, .devices = n}, &error), &error);
        require(place_open_deal(&deal, &t->trace, p.parts, n, planted.seed, &error), &error);
        require(place_rank(&p, batch, &error), &error);
        place_run run = {.partition = &p, .deal = &deal, .batch = (uint32_t)batch, .warm_up = warm_up, .steps = steps};
        bench_progress("%s, %u devices, %s", t->name, n, place_methods[dealing]);
        place_open_future(&future, &run, furthest);
        for (uint32_t c = 0; c < caches.n; c++) run_rules(t, &future, dealing, caches.values[c]);
        place_close_future(&future), place_close_deal(&deal), place_free_partition(&p);
    }
}

/* >>one trace after another */

/* Data that is named must be there; a planted trace must be possible. */
static int is_wanted(int which) {
    const int given[PLANTED] = {[FB15K] = fb15k_given, [WN18RR] = wn18rr_given, [ADULT] = adult_given || schema_given};
    return which >= PLANTED || given[which];
}

static int open_trace(named_trace *t, int which, program_error *error) {
    t->name = trace_names[which];
    if (which == FB15K) return place_read_graph(&t->trace, fb15k, error);
    if (which == WN18RR) return place_read_graph(&t->trace, wn18rr, error);
    if (which == ADULT) return place_read_log(&t->trace, adult, schema, error);
    if (which == PLANTED) return place_plant(&t->trace, &planted, error);
    clicks_generator made = clicks_generator_default();
    made.like = which == CRITEO ? CLICKS_LIKE_CRITEO : CLICKS_LIKE_AVAZU;
    made.samples = planted.samples, made.seed = planted.seed;
    made.communities = planted.communities, made.within = planted.own;
    return place_generate(&t->trace, &made, error);
}

static void run_trace(const named_trace *t) {
    for (uint32_t w = 0; w < what.n && !bench_interrupted(); w++) {
        if (what.values[w] == SKEW) run_skew(t);
        if (what.values[w] == PARTITIONS) run_partitions(t);
        for (uint32_t i = 0; i < devices.n && !bench_interrupted(); i++) {
            uint32_t n = (uint32_t)devices.values[i];
            if (what.values[w] == PAIRS && n > 1) run_pairs(t, n);
            if (what.values[w] == REFINING && n > 1) run_refining(t, n);
            if (what.values[w] == READS) run_reads(t, n);
            if (what.values[w] == AHEAD) run_ahead(t, n);
        }
    }
}

int main(int argc, char **argv) {
    static named_trace t;
    program_error error;
    bench_parse("bench_place", "Samples dealt to devices by locality: local touches, time, and host rows read.",
                options, argc, argv);
    if (batch * 1024 > UINT32_MAX) bench_fail("--batch %llu is too large", (unsigned long long)batch);
    for (uint32_t all = policies.n == 0, i = 0; all && bench_policies[i]; i++) policies.values[policies.n++] = i;
    for (uint32_t i = 0; i < traces.n && !bench_interrupted(); i++) {
        int which = (int)traces.values[i];
        if (open_trace(&t, which, &error)) {
            if (is_wanted(which)) bench_fail("%s: %s", trace_names[which], error.text);
            say_skipped(trace_names[which], "all", error.text);
            continue;
        }
        run_trace(&t);
        place_free_trace(&t.trace);
    }
    return bench_exit_status();
}
