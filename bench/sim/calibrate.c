/* What the library's own work costs this machine's processors, for simulations of machines like it.
 *
 * Costs are those of one thread that does one kind of work at a time, on uniform keys. How much slower threads become
 * if several do the same is found with skewed keys, whose hot rows they contend for: the work of one and the same steps
 * is done by one thread, then by 2, 4, ..., up to as many as there are processors; several times, in turns. Times are
 * processor time, and the lower quartile of all steps, so that other programs disturb them less.
 */
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/processors.h"
#include "bench/program.h"
#include "bench/sim/sim.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KEYS = 26624, WARM_UP = 8, STEPS = 32, TURNS = 4, MOST_THREADS = 16 };

typedef struct timings { /* ns each, one sample a step */
    bench_samples announce, plan, close, flush;
} timings;

static double low(const bench_samples *s) {
    return bench_quantile(s, .25);
}
static double positive(double x) {
    return x > 0 ? x : 0;
}

static sim_workload workload_of(uint32_t gpus, double zipf) {
    return (sim_workload){.rows = 10000000,
                          .dim = 32,
                          .gpus = gpus,
                          .keys = KEYS,
                          .zipf = zipf,
                          .lookahead = 1,
                          .seed = 7,
                          .warm_up = WARM_UP,
                          .steps = STEPS,
                          .whole_rows = 1};
}

/* Two devices without look-ahead, so that every row is flushed while its step is done, one kind of work at a time:
 * announce and plan; lookup and update; close and flush. */
static frugal *open_instance(const sim_workload *w, frugal_alone alone) {
    frugal *f = sim_open(w, FRUGAL_SYNC, alone, KEYS, 1);
    sim_attach(f, w, 0, 1);
    return f;
}

static void hand_in(frugal *f, uint32_t device, uint64_t step, const sim_keys *k) {
    frugal_keys segment = {.table = 0, .keys = sim_keys_of(k, step, device), .n = KEYS};
    sim_check(frugal_try_announce(f, device, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
}

static void train(frugal *f, uint64_t step, uint32_t gpus) {
    const frugal_gradients records = {.records = 1, .lr = 0.01f};
    for (uint32_t d = 0; d < gpus; d++) sim_check(frugal_lookup(f, d, step, NULL));
    for (uint32_t d = 0; d < gpus; d++) sim_check(frugal_update(f, d, step, &records));
}

/* Does all pending work, and adds its time by kind to the seconds. */
static void time_pieces(frugal *f, double seconds[SIM_PIECES]) {
    frugal_stats before, after;
    frugal_get_stats(f, &before);
    for (;; before = after) {
        double since = bench_thread_seconds();
        if (!frugal_help(f)) return;
        double piece = bench_thread_seconds() - since;
        frugal_get_stats(f, &after);
        seconds[sim_piece_of(&before, &after)] += piece;
    }
}

static void add(bench_samples *samples, double seconds, uint64_t n) {
    if (n > 0) bench_add(samples, seconds * 1e9 / (double)n);
}

static void time_steps(uint32_t gpus, frugal_alone alone, timings *t) {
    static sim_keys k;
    sim_workload w = workload_of(gpus, 0);
    sim_keys_draw(&k, &w);
    frugal *f = open_instance(&w, alone);
    for (uint64_t s = 0; s < WARM_UP + STEPS && !bench_interrupted(); s++) {
        double seconds[SIM_PIECES] = {0}, since = bench_thread_seconds();
        frugal_stats first, last;
        frugal_get_stats(f, &first);
        for (uint32_t d = 0; d < gpus; d++) hand_in(f, d, s, &k);
        seconds[SIM_ANNOUNCING] = bench_thread_seconds() - since;
        time_pieces(f, seconds);
        train(f, s, gpus);
        time_pieces(f, seconds);
        frugal_get_stats(f, &last);
        if (s < WARM_UP) continue;
        uint64_t closed = last.closed_entries - first.closed_entries;
        add(&t->announce, seconds[SIM_ANNOUNCING], (uint64_t)gpus * KEYS);
        add(&t->plan, seconds[SIM_PLANNING], closed), add(&t->close, seconds[SIM_CLOSING], closed);
        add(&t->flush, seconds[SIM_FLUSHING], last.flushed - first.flushed);
    }
    frugal_close(f);
    sim_keys_free(&k);
}

/* >>several threads */

typedef struct crew { /* threads that do the work of the same steps together */
    frugal *f;
    const sim_keys *keys;
    uint32_t threads, gpus;
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    double announcing[STEPS], helping[STEPS]; /* seconds of all threads, of this turn; under the lock */
} crew;

typedef struct member {
    crew *crew;
    uint32_t number;
} member;

static void add_time(crew *c, double *sum, double seconds) {
    pthread_mutex_lock(&c->lock);
    *sum += seconds;
    pthread_mutex_unlock(&c->lock);
}

/* Planning counts as announcing here: which of several threads' pieces was which is not known. */
static void *work(void *argument) {
    const member *me = argument;
    crew *c = me->crew;
    bench_bind(me->number);
    for (uint64_t s = 0; s < WARM_UP + STEPS; s++) {
        pthread_barrier_wait(&c->barrier);
        double since = bench_thread_seconds();
        for (uint32_t d = me->number; d < c->gpus; d += c->threads) hand_in(c->f, d, s, c->keys);
        while (frugal_help(c->f)) {
        }
        if (s >= WARM_UP) add_time(c, &c->announcing[s - WARM_UP], bench_thread_seconds() - since);
        pthread_barrier_wait(&c->barrier);
        if (me->number == 0) train(c->f, s, c->gpus);
        pthread_barrier_wait(&c->barrier);
        since = bench_thread_seconds();
        while (frugal_help(c->f)) {
        }
        if (s >= WARM_UP) add_time(c, &c->helping[s - WARM_UP], bench_thread_seconds() - since);
    }
    return NULL;
}

typedef struct crew_times { /* seconds of all threads in a step */
    bench_samples announcing, helping;
} crew_times;

static void time_crew(const sim_workload *w, const sim_keys *k, uint32_t threads, crew_times *t) {
    static crew c;
    pthread_t running[MOST_THREADS];
    member members[MOST_THREADS];
    c = (crew){.f = open_instance(w, FRUGAL_ALONE_STAGED), .keys = k, .threads = threads, .gpus = w->gpus};
    pthread_mutex_init(&c.lock, NULL), pthread_barrier_init(&c.barrier, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        members[i] = (member){&c, i};
        if (pthread_create(&running[i], NULL, work, &members[i])) bench_fail("no thread");
    }
    for (uint32_t i = 0; i < threads; i++) pthread_join(running[i], NULL);
    pthread_barrier_destroy(&c.barrier), pthread_mutex_destroy(&c.lock);
    frugal_close(c.f);
    for (uint32_t i = 0; i < STEPS; i++)
        bench_add(&t->announcing, c.announcing[i]), bench_add(&t->helping, c.helping[i]);
}

/* How much slower several threads are than one, fitted to the laws of sim_loaders_slow and sim_helpers_slow by least
 * squares. One processor cannot tell; then the constants stay. */
static void time_threads(double constants[SIM_CONSTANTS]) {
    static sim_keys k;
    static crew_times times[MOST_THREADS + 1];
    uint32_t most = bench_processors() < MOST_THREADS ? bench_processors() : MOST_THREADS;
    sim_workload w = workload_of(most > 2 ? most : 2, .99);
    double loaders = 0, helpers = 0, squares = 0, other_squares = 0;
    sim_keys_draw(&k, &w);
    for (uint32_t turn = 0; turn < TURNS && !bench_interrupted(); turn++)
        for (uint32_t threads = 1; threads <= most; threads *= 2) time_crew(&w, &k, threads, &times[threads]);
    for (uint32_t threads = 2; threads <= most; threads *= 2) {
        double more = threads - 1, others = 1 - 1.0 / threads;
        squares += more * more, other_squares += others * others;
        loaders += more * (low(&times[threads].announcing) / low(&times[1].announcing) - 1);
        helpers += others * (low(&times[threads].helping) / low(&times[1].helping) - 1);
    }
    if (squares > 0) constants[SIM_LOADERS] = positive(100 * loaders / squares);
    if (squares > 0) constants[SIM_HELPERS] = positive(100 * helpers / other_squares);
    sim_keys_free(&k);
}

/* >>all of it */

/* What the defaults are made of; "announce-ns" is CALIBRATED_ANNOUNCE_NS there. */
static void write_defaults(const double constants[SIM_CONSTANTS], const char *path) {
    char line[256], processor[128] = "an unknown processor", day[16];
    time_t now = time(NULL);
    FILE *cpuinfo = fopen("/proc/cpuinfo", "r"), *file = fopen(path, "w");
    while (cpuinfo && fgets(line, sizeof line, cpuinfo))
        if (sscanf(line, "model name : %127[^\n]", processor) == 1) break;
    if (cpuinfo) fclose(cpuinfo);
    if (!file) bench_fail("cannot write %s: %s", path, strerror(errno));
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
    fputs("/* calibrated.h - costs of the host, written by build/bench_sim --calibrate --write-defaults FILE. */\n",
          file);
    fprintf(file, "#define CALIBRATED_BY \"%s, up to %u threads, %s\"\n", processor, bench_processors(), day);
    for (int i = SIM_ANNOUNCE; i < SIM_CONSTANTS; i++) {
        fputs("#define CALIBRATED_", file);
        for (const char *at = sim_constants[i].option; *at; at++) fputc(*at == '-' ? '_' : toupper(*at), file);
        fprintf(file, " %.2f\n", constants[i]);
    }
    if (fclose(file)) bench_fail("cannot write %s: %s", path, strerror(errno));
}

void sim_calibrate(double constants[SIM_CONSTANTS], const char *path) {
    static timings staged, place, kept, whole;
    for (uint32_t turn = 0; turn < TURNS && !bench_interrupted(); turn++) {
        time_steps(2, FRUGAL_ALONE_STAGED, &staged);
        time_steps(2, FRUGAL_ALONE_PLACE, &place); /* keys are uniform: nearly all rows are alone */
        time_steps(2, FRUGAL_ALONE_KEPT, &kept);
        time_steps(1, FRUGAL_ALONE_PLACE, &whole);
    }
    constants[SIM_ANNOUNCE] = low(&staged.announce), constants[SIM_WHOLE] = low(&whole.announce);
    constants[SIM_RECALL] = positive(low(&kept.announce) - low(&place.announce));
    constants[SIM_PLAN] = low(&staged.plan);
    constants[SIM_MARK] = positive(low(&place.plan) - low(&staged.plan));
    constants[SIM_CLOSE] = low(&staged.close), constants[SIM_PASS] = low(&place.close);
    constants[SIM_FLUSH] = low(&staged.flush);
    time_threads(constants);
    sim_free_table();
    if (path && !bench_interrupted()) write_defaults(constants, path);
}

double sim_fit(sim_system system, sim_workload *w, const sim_keys *keys, double keys_per_second) {
    double least = 0, most = 64, given[SIM_CONSTANTS];
    memcpy(given, w->constants, sizeof given);
    for (int turn = 0; turn < 20 && !bench_interrupted(); turn++) {
        double times = (least + most) / 2;
        for (int i = SIM_ANNOUNCE; i < SIM_LOADERS; i++) w->constants[i] = given[i] * times;
        sim_result r = sim_run(system, w, keys);
        *((double)w->keys * w->gpus / r.step > keys_per_second ? &least : &most) = times;
    }
    return (least + most) / 2;
}
