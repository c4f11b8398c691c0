/* bench_sim.c - simulated training on 2 to 8 RTX 3090 over PCIe, by Frugal and by the systems that it is compared with;
 * and a planner for machines to be bought.
 *
 *     build/bench_sim                                  the paper's experiments, each beside its claim: minutes
 *     build/bench_sim --experiment 2,10                two of them
 *     build/bench_sim --system frugal,sync,sharded,nocache,inplace --gpus 2,4,8 --link pcie4,pcie3 --switch 1,4
 *     build/bench_sim --calibrate --plan               with what the library's work costs on this machine
 *     build/bench_sim --system frugal,inplace,kept --gpus 8 --keys 2560 --communities
 *                                                      rows that one GPU touches, treated in three ways
 *     build/bench_sim --plan --gpus 8 --keys 26624     step time, stall, memory, the fewest workers that are enough,
 *                                                      and which of the three ways to take
 *     build/bench_sim --plan --gpus 8 --keys 768 --data ../shared/data/fb15k-237
 *                                                      the same for samples: which dealing, which cache, which policy
 *     build/bench_sim --plan --report parts/report.json
 *                                                      the same without the samples, of what build/place wrote of them
 *
 *     build/bench_sim --system frugal --gpus 4 --machines 2,4,8 --network 10,25,100,200
 *                                                      what machines send each other in a step, and what it costs
 *
 * sim.h says what is real in the simulation, and machine.c where each constant comes from.
 */
#include "bench/choices.h"
#include "bench/program.h"
#include "bench/sim/experiments.h"
#include "bench/sim/report.h"
#include "bench/sim/samples.h"
#include "bench/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const link_names[] = {"pcie3", "pcie4", "pcie5", NULL};
static const char *const homes_names[] = {"turn", "placed", NULL};
static const char *const announcers[] = {"pool", "loader", NULL};

typedef struct options {
    sim_sweep given;         /* what the command line has; empty lists: not given */
    options_list experiment; /* their places in sim_experiments */
    int plan, json, calibrate, optimizer, flops_given, dense_us_given, dense_bytes_given;
    int staging_given, warm_up_given, steps_given, seed_given;
    const char *report, *defaults;
    uint64_t staging, warm_up, steps, seed, most_workers;
    sim_source source;
    double fit, stall, gpu_price, datacenter_price, flops, dense_us, dense_bytes, constants[SIM_CONSTANTS];
} options;

/* Defaults of sweeps and plans; experiments have their own values. */
static const sim_sweep defaults = {.system =
                                       SIM_LIST(SIM_FRUGAL, SIM_SYNC, SIM_INPLACE, SIM_KEPT, SIM_SHARDED, SIM_NOCACHE),
                                   .gpus = SIM_LIST(2, 4, 8),
                                   .link = SIM_LIST(1),
                                   .behind_switch = SIM_LIST(1),
                                   .sockets = SIM_LIST(1),
                                   .root_lanes = SIM_LIST(0),
                                   .announce = SIM_LIST(0),
                                   .rows = SIM_LIST(2000000),
                                   .dim = SIM_LIST(32),
                                   .keys = SIM_LIST(26624),
                                   .zipf = SIM_LIST(0.9),
                                   .cache = SIM_LIST(0.05),
                                   .lookahead = SIM_LIST(10),
                                   .workers = SIM_LIST(12),
                                   .gather_cores = SIM_LIST(0),
                                   .policy = SIM_LIST(FRUGAL_CACHE_LRU),
                                   .dealing = SIM_LIST(PLACE_RANDOM, PLACE_TWO_LEVEL),
                                   .secondaries = SIM_LIST(0),
                                   .stale = SIM_LIST(0),
                                   .machines = SIM_LIST(1),
                                   .network = SIM_LIST(100),
                                   .homes = SIM_LIST(0)};

static sim_samples samples;                     /* of --data or --communities */
static sim_profile profiles[SIM_MOST_PROFILES]; /* of --report */
static uint32_t n_profiles;

/* What the command line gives, else what the experiment has, else the default. */
static sim_sweep merge(const sim_sweep *given, const sim_sweep *axes) {
    sim_sweep result;
    const options_list *const lists[] = {(const options_list *)given, (const options_list *)axes,
                                         (const options_list *)&defaults};
    for (uint32_t i = 0; i < sizeof(sim_sweep) / sizeof(options_list); i++) {
        int from = 0;
        while (lists[from][i].n == 0) from++;
        ((options_list *)&result)[i] = lists[from][i];
    }
    if (samples.trace.n == 0) result.dealing.n = 1; /* it has no part */
    if (n_profiles > 0) result.dealing = (options_list){{0, 1}, n_profiles};
    if (n_profiles > 0) result.gpus = (options_list){{profiles[0].devices}, 1};
    return result;
}

/* The value of a list in combination `at`, which is divided by the list's length: combinations are counted in mixed
 * radix. */
static double pick(const options_list *list, uint64_t *at) {
    double value = list->values[*at % list->n];
    *at /= list->n;
    return value;
}

enum { MOST_KEYS = 1 << 21 };

static void set_profile(sim_workload *w, const sim_profile *p) {
    double keys = (double)p->batch * (double)p->touches / (double)p->samples + .5;
    if (keys > MOST_KEYS)
        bench_fail(
            "the report is of steps with %.0f keys a device; the limit is %d; run build/place with a smaller --batch",
            keys, MOST_KEYS);
    w->profile = p, w->dealing = p->method, w->rows = p->rows, w->keys = (uint32_t)keys;
}

static sim_workload workload_of(const options *o, const sim_sweep *s, uint64_t at) {
    sim_workload w = {.warm_up = (uint32_t)o->warm_up,
                      .steps = (uint32_t)o->steps,
                      .seed = o->seed,
                      .staging = (uint32_t)o->staging,
                      .optimizer = (frugal_optimizer_kind)o->optimizer};
    w.gather_cores = pick(&s->gather_cores, &at);
    w.workers = (uint32_t)pick(&s->workers, &at);
    w.lookahead = (uint32_t)pick(&s->lookahead, &at);
    w.pcie = 3 + (uint32_t)pick(&s->link, &at);
    w.behind_switch = (uint32_t)pick(&s->behind_switch, &at);
    w.sockets = (uint32_t)pick(&s->sockets, &at);
    w.root_lanes = (uint32_t)pick(&s->root_lanes, &at);
    w.pool = pick(&s->announce, &at) == 0;
    w.policy = (frugal_cache_policy)pick(&s->policy, &at);
    w.cache = pick(&s->cache, &at);
    w.stale = (uint32_t)pick(&s->stale, &at);
    w.secondaries = pick(&s->secondaries, &at) / 100;
    place_method dealing = (place_method)pick(&s->dealing, &at);
    w.keys = (uint32_t)pick(&s->keys, &at);
    w.zipf = pick(&s->zipf, &at);
    w.places_homes = pick(&s->homes, &at) > 0;
    w.network = pick(&s->network, &at) * 1e9 / 8;
    w.machines = (uint32_t)pick(&s->machines, &at);
    w.gpus = (uint32_t)pick(&s->gpus, &at);
    w.dim = (uint32_t)pick(&s->dim, &at);
    w.rows = (uint64_t)pick(&s->rows, &at);
    for (int i = 0; i < SIM_CONSTANTS; i++) w.constants[i] = o->constants[i];
    if (samples.trace.n > 0) sim_deal(&samples, &o->source, dealing, &w);
    if (n_profiles > 0) set_profile(&w, &profiles[(int)dealing]);
    return w;
}

static uint64_t combinations(const sim_sweep *s) {
    const options_list *const lists[] = {
        &s->gather_cores, &s->workers, &s->lookahead, &s->link,        &s->behind_switch, &s->sockets, &s->root_lanes,
        &s->announce,     &s->policy,  &s->cache,     &s->dealing,     &s->keys,          &s->zipf,    &s->gpus,
        &s->dim,          &s->rows,    &s->stale,     &s->secondaries, &s->machines,      &s->network, &s->homes};
    uint64_t n = 1;
    for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++) n *= lists[i]->n;
    return n;
}

static void set_dense(sim_workload *w, const options *o, const sim_panel *p) {
    w->flops = o->flops_given ? o->flops * 1e9 : p->flops * w->keys;
    w->dense_us = o->dense_us_given ? o->dense_us : p->dense_us;
    w->dense_bytes = (o->dense_bytes_given ? o->dense_bytes : p->dense_mbytes) * 1e6;
}

/* Is the workload that of the first network and homes? */
static int is_first(const sim_workload *w, const sim_sweep *s) {
    return w->network == s->network.values[0] * 1e9 / 8 && w->places_homes == (s->homes.values[0] > 0);
}

static void run_panel(const options *o, const sim_label *label, const sim_panel *p, sim_keys *keys,
                      sim_ratios *ratios) {
    sim_sweep s = merge(&o->given, &p->axes);
    sim_scaling scaling = {.rate = {{0}}};
    for (uint64_t at = 0; at < combinations(&s) && !bench_interrupted(); at++) {
        sim_workload w = workload_of(o, &s, at);
        sim_result results[SIM_SYSTEMS];
        int done[SIM_SYSTEMS] = {0};
        if (w.secondaries == 0 && w.stale != s.stale.values[0]) continue; /* without copies all bounds are the same */
        if (w.machines < 2 && !is_first(&w, &s)) continue;                /* it has no network */
        set_dense(&w, o, p);
        sim_keys_draw(keys, &w);
        for (uint32_t i = 0; i < s.system.n && !bench_interrupted(); i++) {
            sim_system system = (sim_system)s.system.values[i];
            results[system] = sim_run(system, &w, keys);
            if (bench_interrupted()) break; /* half of it */
            done[system] = 1;
            scaling.rate[system][w.gpus] = sim_keys_per_second(&w, &results[system]);
            sim_print_result(label, system, &w, &results[system], o->json);
            fflush(stdout);
        }
        sim_add_ratios(ratios, results, done);
    }
    if (label->experiment && label->experiment->scaling) sim_print_scaling(&scaling, label, o->json);
}

static void run_experiment(const options *o, const sim_experiment *e, sim_keys *keys) {
    sim_ratios ratios = {.least_stall = 0};
    sim_label label = {.experiment = e, .gpu_price = o->gpu_price};
    sim_print_title(&label, o->json);
    for (uint32_t i = 0; i < SIM_PANELS && e->panels[i].workload && !bench_interrupted(); i++) {
        label.workload = e->panels[i].workload;
        run_panel(o, &label, &e->panels[i], keys, &ratios);
    }
    sim_print_ratios(&ratios, &label, o->json);
    if (e->prices && !bench_interrupted()) sim_print_prices(&label, o->datacenter_price, o->json);
}

static void run_sweep(const options *o, sim_keys *keys) {
    const sim_panel as_asked = {.workload = "as asked"};
    const sim_label label = {.workload = as_asked.workload};
    sim_ratios ratios = {.least_stall = 0};
    sim_print_title(&label, o->json);
    run_panel(o, &label, &as_asked, keys, &ratios);
    sim_print_ratios(&ratios, &label, o->json);
}

static sim_result try_workers(sim_system system, const sim_workload *w, const sim_keys *keys) {
    sim_result r = sim_run(system, w, keys);
    fprintf(stderr, "%s, %u workers: a step of %.1f us, %.2f%% of it stall%s\n", sim_system_names[system], w->workers,
            r.step * 1e6, r.gate / r.step * 100, r.behind ? ", and they fall behind" : "");
    return r;
}

/* The fewest workers whose stall is at most the limit: the number is doubled until that holds, then found by bisection.
 * If it never holds, the fewest of those tried whose stall is close to the shortest. */
static sim_result plan_one(sim_system system, sim_workload w, const options *o, const sim_keys *keys) {
    double limit = o->stall / 100;
    uint32_t most = (uint32_t)o->most_workers, too_few = 0;
    w.workers = 1;
    sim_result r = try_workers(system, &w, keys), best = r;
    while (!sim_is_enough(&r, limit) && w.workers < most && !bench_interrupted()) {
        if (r.gate < 0.95 * best.gate || best.behind) best = r;
        too_few = w.workers;
        w.workers = w.workers * 2 < most ? w.workers * 2 : most;
        r = try_workers(system, &w, keys);
    }
    if (!sim_is_enough(&r, limit)) {
        if (r.gate >= 0.95 * best.gate && !best.behind) r = best;
        w.workers = r.workers;
    }
    while (sim_is_enough(&r, limit) && w.workers - too_few > 1 && !bench_interrupted()) {
        sim_workload fewer = w;
        fewer.workers = too_few + (w.workers - too_few) / 2;
        sim_result its = try_workers(system, &fewer, keys);
        if (sim_is_enough(&its, limit))
            w = fewer, r = its;
        else
            too_few = fewer.workers;
    }
    if (!bench_interrupted()) sim_print_plan(system, &w, &r, limit, o->json);
    return r;
}

enum { NEARLY = 100 }; /* steps whose times differ by less than a 100th are nearly the same */

/* What plans of one system are compared by: a longer step, or with nearly the same a larger cache, is worse. */
static int is_better(const sim_workload *w, const sim_result *r, const sim_workload *best, const sim_result *its) {
    double more = its->step / NEARLY;
    return r->step < its->step - more || (r->step <= its->step + more && w->cache < best->cache);
}

/* The system to take. Each loses more with a GPU than the one before it, so it must have a shorter step. */
static sim_system which_way(const sim_choice *c) {
    static const sim_system ways[] = {SIM_FRUGAL, SIM_INPLACE, SIM_KEPT};
    sim_system taken = SIM_SYSTEMS;
    for (uint32_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double step = c->of_best[ways[i]].step;
        if (step <= 0) continue; /* not planned */
        if (taken == SIM_SYSTEMS || step < c->of_best[taken].step * (1 - 1.0 / NEARLY)) taken = ways[i];
    }
    return taken;
}

static options_list only(const options_list *list, uint32_t i) {
    return (options_list){{list->values[i]}, 1};
}

static void plan_and_compare(const options *o, const options_list *systems, sim_workload w, sim_keys *keys,
                             const sim_panel *usual, sim_choice *c) {
    set_dense(&w, o, usual);
    if (!w.profile) sim_keys_draw(keys, &w);
    for (uint32_t i = 0; i < systems->n && !bench_interrupted(); i++) {
        sim_system system = (sim_system)systems->values[i];
        sim_result r = plan_one(system, w, o, keys), *best = &c->of_best[system];
        if (best->step <= 0 || is_better(&w, &r, &c->best[system], best)) c->best[system] = w, *best = r;
        if (c->n == 0 || r.step > c->of_longest.step) c->longest = w, c->of_longest = r, c->way_of_longest = system;
        c->n++;
    }
}

/* All dealings, caches, policies and systems of one machine and workload, combination `at` of the rest; and which to
 * take. */
static void plan_machine(const options *o, const sim_sweep *s, uint64_t at, sim_keys *keys, const sim_panel *usual) {
    static sim_choice c;
    c = (sim_choice){.n = 0};
    sim_sweep one = *s;
    for (uint32_t i = 0; i < s->dealing.n; i++)
        for (uint32_t j = 0; j < s->cache.n; j++)
            for (uint32_t k = 0; k < s->policy.n && !bench_interrupted(); k++) {
                one.dealing = only(&s->dealing, i), one.cache = only(&s->cache, j), one.policy = only(&s->policy, k);
                plan_and_compare(o, &s->system, workload_of(o, &one, at), keys, usual, &c);
            }
    c.way = which_way(&c);
    if (c.n > 1 && !bench_interrupted()) sim_print_choice(&c, o->json);
}

static void plan(const options *o, sim_keys *keys) {
    /* DLRM: layers of 512, 256 and 1 over 26 x 32 + 13 numbers, six operations per weight and sample. */
    sim_panel usual = {.axes = {.gpus = SIM_LIST(8), .system = SIM_LIST(SIM_FRUGAL, SIM_INPLACE, SIM_KEPT)},
                       .flops = 6.0 * (845 * 512 + 512 * 256 + 256) / 26,
                       .dense_us = 200,
                       .dense_mbytes = 2.26};
    if (samples.trace.n > 0 || n_profiles > 0) {
        usual.axes.cache = (options_list)SIM_LIST(.01, .05, .1, .5);
        /* By the closed form a static cache is as good as a counted one. */
        for (uint32_t i = 0; bench_policies[i] && (n_profiles == 0 || i != FRUGAL_CACHE_STATIC); i++)
            usual.axes.policy.values[usual.axes.policy.n++] = i;
    }
    sim_sweep s = merge(&o->given, &usual.axes);
    if (n_profiles > 0) s.system = (options_list)SIM_LIST(SIM_FRUGAL); /* the closed form has no other */
    s.workers = (options_list){{1}, 1};
    s.gather_cores = defaults.gather_cores; /* Frugal has none */
    uint64_t inner = (uint64_t)s.policy.n * s.cache.n * s.dealing.n;
    for (uint64_t at = 0; at < combinations(&s) / inner && !bench_interrupted(); at++)
        plan_machine(o, &s, at, keys, &usual);
}

static const char about[] =
    "Training steps on 2 to 8 simulated GPUs over PCIe, by Frugal and by what it is compared with; or, with --plan, "
    "what a\n"
    "machine would do and need. Without --experiment, --plan or --system all experiments are run. Exp #4, the queue, "
    "is not\n"
    "simulated: see bench_pq.\n";

static void refuse(const char *option, const char *reason) {
    fprintf(stderr, "bench_sim: %s %s\n", option, reason);
    exit(2);
}

/* A plan is for Frugal and finds the number of workers itself, so options that it would ignore are refused. */
static void refuse_what_no_plan_has(const options *o) {
    static const char none[] = "has no part in a --plan, which finds the fewest workers of Frugal; see --most-workers";
    if (o->given.workers.n) refuse("--workers", none);
    if (o->given.gather_cores.n) refuse("--gather-cores", none);
    for (uint32_t i = 0; i < o->given.system.n; i++) {
        sim_system system = (sim_system)o->given.system.values[i];
        if (system != SIM_FRUGAL && system != SIM_INPLACE && system != SIM_KEPT)
            refuse(sim_system_names[system], "is not planned; --plan is for --system frugal,inplace,kept");
    }
}

/* A report has rows, keys and devices of its own, and nothing is run. */
static void refuse_what_no_report_has(const options *o) {
    const struct {
        const char *option;
        int given;
    } others[] = {{"--system", o->given.system.n > 0},
                  {"--gpus", o->given.gpus.n > 0},
                  {"--rows", o->given.rows.n > 0},
                  {"--keys", o->given.keys.n > 0},
                  {"--zipf", o->given.zipf.n > 0},
                  {"--data", o->source.data != NULL},
                  {"--communities", o->source.planted},
                  {"--schema", o->source.schema != NULL},
                  {"--parts", o->source.parts != NULL},
                  {"--dealing", o->given.dealing.n > 0},
                  {"--secondaries", o->given.secondaries.n > 0},
                  {"--stale", o->given.stale.n > 0},
                  {"--announce", o->given.announce.n > 0},
                  {"--lookahead", o->given.lookahead.n > 0},
                  {"--staging", o->staging_given},
                  {"--warm-up", o->warm_up_given},
                  {"--steps", o->steps_given},
                  {"--seed", o->seed_given}};
    if (!o->report) return;
    if (!o->plan) refuse("--report", "is for --plan");
    for (uint32_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            refuse(others[i].option, "has no part with --report, which says what build/place found; leave it out");
}

/* Samples have rows and skew of their own; without samples there is nothing to deal. */
static void refuse_what_samples_do_not_have(const options *o) {
    const sim_source *s = &o->source;
    int is_dealt = s->data || s->planted;
    if (s->data && s->planted) refuse("--data and --communities", "are two traces; give one of them");
    if (is_dealt && o->experiment.n) refuse("--experiment", "has keys of its own; leave --data and --communities out");
    if (is_dealt && o->given.rows.n) refuse("--rows", "has no part with samples, whose rows are those of the data");
    if (is_dealt && o->given.zipf.n) refuse("--zipf", "has no part with samples, whose keys are those of the data");
    if (s->schema && !s->data) refuse("--schema", "describes the file of --data, which is not given");
    if (o->given.secondaries.n && !is_dealt) refuse("--secondaries", "is of samples; give --data or --communities");
    if (o->given.stale.n && !o->given.secondaries.n) refuse("--stale", "bounds the copies of --secondaries; give both");
    if (s->parts && !is_dealt) refuse("--parts", "are of samples; give --data or --communities");
    if (o->given.dealing.n && !is_dealt) refuse("--dealing", "is of samples; give --data or --communities");
    if (o->given.dealing.n && s->parts) refuse("--dealing", "has no part with --parts, which says where samples are");
}

/* The other systems have no part on several machines, and what is sent does not depend on them. */
static void refuse_what_machines_do_not_have(const options *o) {
    static const char alone[] = "has no part with --machines, of which each is one of Frugal with rows staged";
    const options_list *machines = &o->given.machines, *gpus = &o->given.gpus;
    int several = 0;
    for (uint32_t i = 0; i < machines->n; i++) several |= machines->values[i] > 1;
    if (!several && o->given.network.n) refuse("--network", "is of several machines; give --machines 2 or more");
    if (!several && o->given.homes.n) refuse("--homes", "is of several machines; give --machines 2 or more");
    if (!several) return;
    if (o->plan) refuse("--plan", alone);
    if (o->experiment.n) refuse("--experiment", alone);
    if (o->fit > 0) refuse("--fit", alone);
    if (o->given.secondaries.n) refuse("--secondaries", alone);
    if (o->given.announce.n) refuse("--announce", "has no part with --machines: whoever is free announces what comes");
    if (o->given.homes.n && !o->source.data && !o->source.planted)
        refuse("--homes", "is of samples; give --data or --communities");
    for (uint32_t i = 0; i < o->given.system.n || i == 0; i++)
        if (i == o->given.system.n || o->given.system.values[i] != SIM_FRUGAL) refuse("--system", alone);
    for (uint32_t i = 0; i < machines->n; i++)
        for (uint32_t j = 0; j < gpus->n || j == 0; j++)
            if (machines->values[i] * (gpus->n ? gpus->values[j] : 8) > SIM_MAX_DEVICES)
                refuse("--machines", "and --gpus make more than 64 GPUs in all; give fewer");
}

/* Samples and plans have no one GPU to be fitted to. */
static void refuse_what_cannot_be_fitted(const options *o) {
    static const char none[] = "has no part with --fit, which is for a sweep of drawn keys: one --system or more";
    if (o->fit <= 0) return;
    if (o->plan) refuse("--plan", none);
    if (o->experiment.n) refuse("--experiment", none);
    if (o->source.data) refuse("--data", none);
    if (o->source.planted) refuse("--communities", none);
    for (uint32_t i = 0; i < o->given.system.n || i == 0; i++)
        if (i == o->given.system.n || o->given.system.values[i] > SIM_KEPT)
            refuse("--fit", "multiplies costs of Frugal's systems; give --system of frugal, sync, inplace, kept");
}

/* The constants become those with which the model gives the figure. */
static void fit(options *o, sim_keys *keys) {
    sim_sweep s = merge(&o->given, &defaults);
    s.gpus = (options_list)SIM_LIST(1);
    sim_workload w = workload_of(o, &s, 0);
    set_dense(&w, o, &(sim_panel){.flops = 0});
    sim_keys_draw(keys, &w);
    double times = sim_fit((sim_system)s.system.values[0], &w, keys, o->fit * 1e6);
    memcpy(o->constants, w.constants, sizeof o->constants);
    printf(o->json ? "{\"fitted\": %.4f}\n" : "The host's times are multiplied by %.4f.\n", times);
}

static options command = {
    .source.communities = {.rows = 1000000, .samples = 1000000, .communities = 64, .width = 10, .own = .8, .zipf = .95},
    .warm_up = 16,
    .steps = 10,
    .seed = 42,
    .most_workers = 64,
    .stall = 1,
    .gpu_price = 1310,
    .datacenter_price = 5885};

static const options_entry communities_keys[] = {
    {"samples", OPTIONS_WHOLE64, &command.source.communities.samples, 1, 4294967295},
    {"width", OPTIONS_WHOLE32, &command.source.communities.width, 1, 1024},
    {"rows", OPTIONS_WHOLE64, &command.source.communities.rows, 1, 4294967294},
    {"number", OPTIONS_WHOLE64, &command.source.communities.communities, 1, 4294967294},
    {"own", OPTIONS_REAL, &command.source.communities.own, 0, 1},
    {"zipf", OPTIONS_REAL, &command.source.communities.zipf, 0, 5},
    {0}};

static const options_entry entries[] = {
    {"experiment", OPTIONS_CHOICES, &command.experiment, 0, 0, sim_experiment_names,
     "the paper's, by number, each beside its claim"},
    {"plan", OPTIONS_FLAG, &command.plan, 0, 0, NULL,
     "step time, stall, staging memory, and the fewest flush workers that do; and which of several plans to take"},
    {"system", OPTIONS_CHOICES, &command.given.system, 0, 0, sim_system_names,
     "systems to be simulated; planned: frugal, inplace and kept, the ways of rows that one GPU touches"},
    {"gpus", OPTIONS_WHOLES, &command.given.gpus, 1, SIM_MAX_GPUS, NULL, "GPUs"},
    {"link", OPTIONS_CHOICES, &command.given.link, 0, 0, link_names, "x16 links of the GPUs"},
    {"switch", OPTIONS_WHOLES, &command.given.behind_switch, 1, SIM_MAX_GPUS, NULL,
     "GPUs of a socket that share one link to the host, behind a switch; 1: each has its own"},
    {"sockets", OPTIONS_WHOLES, &command.given.sockets, 1, SIM_MAX_GPUS, NULL,
     "of processors, over which GPUs and rows are spread evenly"},
    {"root-lanes", OPTIONS_WHOLES, &command.given.root_lanes, 0, 1024, NULL,
     "lanes of a socket's root complex, for its GPUs; 0: 16 for each link"},
    {"announce", OPTIONS_CHOICES, &command.given.announce, 0, 0, announcers,
     "by whom: any loader, and workers that have nothing else to do; or each GPU's loader alone, as before 0.2"},
    {"rows", OPTIONS_WHOLES, &command.given.rows, 1000, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLES, &command.given.dim, 1, 4096, NULL, "floats a row"},
    {"keys", OPTIONS_WHOLES, &command.given.keys, 1, MOST_KEYS, NULL, "keys a GPU and step"},
    {"zipf", OPTIONS_REALS, &command.given.zipf, 0, 5, NULL, "skew of the keys; 0: uniform"},
    {"cache", OPTIONS_REALS, &command.given.cache, 0, 1, NULL, "rows that a GPU caches, as a share of the table"},
    {"policy", OPTIONS_CHOICES, &command.given.policy, 0, 0, bench_policies, "the caches'"},
    {"data", OPTIONS_TEXT, &command.source.data,
     .help = "a folder of a graph, whose triples are the samples; keys are theirs"},
    {"schema", OPTIONS_TEXT, &command.source.schema, .help = "file of the schema by which --data is a click log"},
    {"communities", OPTIONS_SPEC, &command.source.planted, .keys = communities_keys, .example = "number=64,own=.8",
     .help = "planted samples, as bench_place has them"},
    {"dealing", OPTIONS_CHOICES, &command.given.dealing, 0, 0, place_methods, "of samples to the GPUs"},
    {"parts", OPTIONS_TEXT, &command.source.parts,
     .help = "a file with a byte a sample, its GPU, in place of dealing them"},
    {"secondaries", OPTIONS_REALS, &command.given.secondaries, 0, 100, NULL,
     "percent of the rows of which a GPU keeps copies that may be stale: of Frugal's systems, those of other homes "
     "that it "
     "touches most"},
    {"stale", OPTIONS_WHOLES, &command.given.stale, 0, 4294967295, NULL,
     "contributions of other GPUs that such a copy may lack; 4294967295: no bound"},
    {"report", OPTIONS_TEXT, &command.report,
     .help =
         "--plan: a report.json or --json file of build/place, in place of data: reads are those of its closed form"},
    {"lookahead", OPTIONS_WHOLES, &command.given.lookahead, 0, 15, NULL, "steps announced ahead"},
    {"staging", OPTIONS_WHOLE64, &command.staging, 0, 63, .given = &command.staging_given,
     .help = "blocks of a staging ring; 0: the library's choice"},
    {"workers", OPTIONS_WHOLES, &command.given.workers, 1, SIM_MAX_WORKERS, NULL, "flush workers"},
    {"machines", OPTIONS_WHOLES, &command.given.machines, 1, SIM_MOST_MACHINES, NULL,
     "alike, each with so many --gpus, that hold the table together; of --system frugal"},
    {"network", OPTIONS_REALS, &command.given.network, 0.001, 1e6, NULL,
     "Gb/s of each machine's link to the others, each way"},
    {"homes", OPTIONS_CHOICES, &command.given.homes, 0, 0, homes_names,
     "of samples' rows: on the machines in turn, or where build/place --machines puts them"},
    {"gather-cores", OPTIONS_REALS, &command.given.gather_cores, 0, SIM_MAX_WORKERS, NULL,
     "a GPU, of systems whose rows the CPU gathers; 0, the default: as many as Frugal's workers and loaders"},
    {"most-workers", OPTIONS_WHOLE64, &command.most_workers, 1, SIM_MAX_WORKERS, NULL, "that a plan may have"},
    {"stall", OPTIONS_REAL, &command.stall, 0.001, 100, NULL, "that a plan may have, % of the step"},
    {"optimizer", OPTIONS_CHOICE, &command.optimizer, 0, 0, bench_optimizers, "whose state is flushed, too"},
    {"gflops", OPTIONS_REAL, &command.flops, 0, 1e9, .help = "of the dense part, a GPU and step",
     .given = &command.flops_given, .standard = ""},
    {"dense-us", OPTIONS_REAL, &command.dense_us, 0, 1e9, .help = "of the dense part beside that: launches",
     .given = &command.dense_us_given, .standard = ""},
    {"dense-mbytes", OPTIONS_REAL, &command.dense_bytes, 0, 1e6, .help = "of dense gradients, reduced over all GPUs",
     .given = &command.dense_bytes_given, .standard = ""},
    {"gpu-price", OPTIONS_REAL, &command.gpu_price, 1, 1e9, NULL, "dollars; Exp #9: an RTX 3090, as the paper has it"},
    {"datacenter-price", OPTIONS_REAL, &command.datacenter_price, 1, 1e9, NULL,
     "dollars; Exp #9: an A30, as the paper has it"},
    {"steps", OPTIONS_WHOLE64, &command.steps, 2, 100000, .given = &command.steps_given,
     .help = "simulated and counted; a wait at the gate lies between two"},
    {"warm-up", OPTIONS_WHOLE64, &command.warm_up, 0, 100000, .given = &command.warm_up_given,
     .help = "simulated before them"},
    {"seed", OPTIONS_WHOLE64, &command.seed, 0, 1e15, .given = &command.seed_given, .help = "of the keys"},
    {"calibrate", OPTIONS_FLAG, &command.calibrate, 0, 0, NULL,
     "first time announcing, planning, closing and flushing on this machine, by one thread and by several"},
    {"write-defaults", OPTIONS_TEXT, &command.defaults,
     .help = "--calibrate: a file for what was found, as bench/sim/calibrated.h; nothing is simulated then"},
    {"fit", OPTIONS_REAL, &command.fit, 0, 1e6, NULL,
     "M keys/s that one GPU was measured with, under the first of each option's values: the host's times are "
     "multiplied by what gives this figure; 0: by 1"},
    {"json", OPTIONS_FLAG, &command.json, 0, 0, NULL, "one object a line"},
    {0}};

/* `entries`, and the constants of the model. */
static void parse(int argc, char **argv) {
    options_entry table[sizeof entries / sizeof *entries + SIM_CONSTANTS] = {0};
    uint32_t n = 0;
    for (; entries[n].name; n++) table[n] = entries[n];
    for (int i = 0; i < SIM_CONSTANTS; i++) {
        const sim_constant *c = &sim_constants[i];
        double most = i == SIM_HEADER ? SIM_MOST_HEADER : 1e9;
        command.constants[i] = c->value;
        table[n++] = (options_entry){c->option, OPTIONS_REAL, &command.constants[i], c->least, most, NULL, c->what};
    }
    bench_parse("bench_sim", about, table, argc, argv);
    command.source.communities.seed = command.seed;
    if (command.defaults && !command.calibrate) refuse("--write-defaults", "is for --calibrate");
    if (command.plan) refuse_what_no_plan_has(&command);
    refuse_what_no_report_has(&command);
    refuse_what_samples_do_not_have(&command);
    refuse_what_cannot_be_fitted(&command);
    refuse_what_machines_do_not_have(&command);
    if (command.source.parts)
        command.given.dealing = (options_list)SIM_LIST(PLACE_RANDOM); /* one, which is not looked at */
}

int main(int argc, char **argv) {
    static sim_keys keys;
    options *o = &command;
    parse(argc, argv);
    if (o->calibrate) sim_calibrate(o->constants, o->defaults);
    if (o->defaults) return bench_exit_status();
    if (o->fit > 0) fit(o, &keys);
    sim_workload w = {.rows = 0};
    for (int i = 0; i < SIM_CONSTANTS; i++) w.constants[i] = o->constants[i];
    const options_list gather_cores = merge(&o->given, &defaults).gather_cores;
    sim_print_assumptions(&w, &gather_cores, o->json);
    program_error error;
    if (o->report && sim_read_profiles(profiles, &n_profiles, o->report, &error)) bench_fail("%s", error.text);
    if (n_profiles > 0 && profiles[0].devices > SIM_MAX_GPUS)
        bench_fail("%s is of %u devices; at most %d GPUs are simulated", o->report, profiles[0].devices, SIM_MAX_GPUS);
    if (o->source.data || o->source.planted) sim_read_samples(&samples, &o->source);
    if (o->plan) plan(o, &keys);
    for (uint32_t i = 0; i < o->experiment.n && !bench_interrupted(); i++)
        run_experiment(o, &sim_experiments[(int)o->experiment.values[i]], &keys);
    int is_sweep = !o->plan && !o->experiment.n && (o->given.system.n || samples.trace.n);
    if (is_sweep) run_sweep(o, &keys);
    for (uint32_t i = 0; !o->plan && !o->experiment.n && !is_sweep && i < SIM_EXPERIMENTS; i++)
        run_experiment(o, &sim_experiments[i], &keys);
    sim_free_samples(&samples);
    sim_keys_free(&keys);
    sim_free_table();
    return bench_exit_status();
}
