/* bench_pq.c - the operations that P2F needs, on several queues side by side (the paper's Exp #4).
 *
 * The operations are drawn once and are the same for all queues (mix.h). In a step each thread announces its part of
 * the ids to be read some steps later; passes the gate, where it takes until nothing is due any more; and closes its
 * part of the step. Meanwhile the threads take about as many ids as were queued, lowest first, so that a backlog stays.
 * Even threads take before they close, odd ones after it, so that queueing and taking meet. Threads meet before and
 * after each gate.
 *
 * After each round it is checked what every thread took: each update exactly once, and at the latest at the gate of its
 * due step. A queue that fails ends the program.
 *
 * Queues take turns, round by round, so that disturbances of the machine affect all of them. The median of the rounds
 * is printed. An operation is one id announced (whether or not it was queued), one id queued, or one id taken.
 */
#include "bench/barrier.h"
#include "bench/measure.h"
#include "bench/program.h"
#include "bench/queues/mix.h"
#include "bench/queues/queues.h"
#include "bench/queues/scan.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 63 }; /* the window has this length */
enum { ENQUEUE, ADJUST, TAKE, ALL, OPS };
static const char *const op_names[OPS] = {"enqueue", "adjust", "take", "all"};

static const bench_queue *const queues[] = {BENCH_QUEUES(BENCH_QUEUE_LISTED)};
static const char *const queue_names[] = {BENCH_QUEUES(BENCH_QUEUE_NAMED) NULL};
enum { UNTIMED = 2 }; /* first steps of a round, not timed because other queues have used the caches */

typedef struct configuration {
    uint64_t ids, steps, rounds, backlog;
    uint32_t batch, lookahead, staging, threads;
    double zipf;
    int json;
} configuration;

typedef struct tally { /* changes at every take, so it shares no cache line with another thread's */
    uint64_t n;
    uint8_t pad[120];
} tally;

typedef struct contender {
    const bench_queue *queue;
    void *state;
    bench_check check;
    tally *taken; /* [threads], since it was opened */
    uint64_t moved;
    bench_samples mops[OPS], ns[OPS], stall; /* a sample per round; ms per step */
} contender;

typedef struct round_of { /* of one contender */
    const configuration *o;
    const bench_mix *mix;
    contender *c;
    bench_log *logs;
    uint64_t from, to;
    double seconds, stall;
    bench_barrier barrier;
} round_of;

typedef struct thread {
    round_of *r;
    uint32_t number;
    uint64_t count[ALL], moved;
    double seconds[ALL];
    uint8_t pad[64];
} thread;

/* >>a step */

static void announce(thread *t, uint64_t step) {
    const bench_mix *m = t->r->mix;
    const uint64_t *part = &m->announced_start[step * (m->shape.threads + 1) + t->number];
    double start = bench_now();
    t->moved += t->r->c->queue->adjust(t->r->c->state, t->number, m->announced + part[0], part[1] - part[0],
                                       step + m->shape.lookahead);
    t->seconds[ADJUST] += bench_now() - start;
    t->count[ADJUST] += part[1] - part[0];
}

static void close_step(thread *t, uint64_t step) {
    const bench_mix *m = t->r->mix;
    const uint64_t *part = &m->closed_start[step * (m->shape.threads + 1) + t->number];
    double start = bench_now();
    t->r->c->queue->enqueue(t->r->c->state, t->number, m->closed + part[0], m->due + part[0], part[1] - part[0]);
    t->seconds[ENQUEUE] += bench_now() - start;
    t->count[ENQUEUE] += part[1] - part[0];
}

static int take_some(thread *t, uint64_t limit) {
    bench_log *log = &t->r->logs[t->number];
    int due;
    if (log->n + BENCH_TAKE > log->room) bench_fail("%s delivers more than was queued", t->r->c->queue->name);
    size_t n = t->r->c->queue->take(t->r->c->state, t->number, limit, log->ids + log->n, &due);
    log->n += n;
    t->count[TAKE] += n;
    t->r->c->taken[t->number].n += n;
    return due;
}

static void take_until(thread *t, uint64_t step) {
    const configuration *o = t->r->o;
    uint64_t wanted = step < o->backlog ? 0 : (step + 1 - o->backlog) * o->batch / o->threads;
    double start = bench_now();
    while (t->r->c->taken[t->number].n < wanted && take_some(t, UINT64_MAX)) continue;
    t->seconds[TAKE] += bench_now() - start;
}

static void run_step(thread *t, uint64_t step) {
    round_of *r = t->r;
    announce(t, step);
    bench_meet(&r->barrier);
    double start = bench_now();
    while (take_some(t, step)) continue;
    t->seconds[TAKE] += bench_now() - start;
    r->logs[t->number].gate_end[step - r->from] = r->logs[t->number].n;
    bench_meet(&r->barrier);
    if (t->number == 0) {
        r->stall += bench_now() - start;
        r->c->queue->advance(r->c->state, step + 1);
    }
    if (t->number % 2) close_step(t, step);
    take_until(t, step);
    if (t->number % 2 == 0) close_step(t, step);
    r->logs[t->number].step_end[step - r->from] = r->logs[t->number].n;
}

/* >>a round */

static void *run_thread(void *argument) {
    thread *t = argument;
    round_of *r = t->r;
    double start = 0;
    for (uint64_t step = r->from; step < r->to; step++) {
        if (step == r->from + UNTIMED) {
            bench_meet(&r->barrier);
            start = bench_now();
            memset(t->seconds, 0, sizeof t->seconds);
            memset(t->count, 0, sizeof t->count);
            if (t->number == 0) r->stall = 0;
        }
        run_step(t, step);
    }
    bench_meet(&r->barrier);
    if (t->number == 0) r->seconds = bench_now() - start;
    return NULL;
}

static void add_samples(round_of *r, const thread *threads) {
    contender *c = r->c;
    uint64_t all = 0;
    for (int op = 0; op < ALL; op++) {
        uint64_t count = 0;
        double seconds = 0; /* of all threads */
        for (uint32_t t = 0; t < r->o->threads; t++) count += threads[t].count[op], seconds += threads[t].seconds[op];
        bench_add(&c->ns[op], seconds * 1e9 / (double)count);
        bench_add(&c->mops[op], (double)count * r->o->threads / seconds / 1e6);
        all += count;
    }
    bench_add(&c->ns[ALL], r->seconds * r->o->threads * 1e9 / (double)all);
    bench_add(&c->mops[ALL], (double)all / r->seconds / 1e6);
    bench_add(&c->stall, r->stall * 1e3 / (double)(r->to - r->from - UNTIMED));
}

/* Steps from `from` up to `to` by the contender; timed unless they only make the backlog. */
static void run_round(round_of *r, contender *c, uint64_t from, uint64_t to, int timed) {
    static thread threads[BENCH_MIX_THREADS];
    pthread_t handles[BENCH_MIX_THREADS];
    const configuration *o = r->o;
    r->c = c, r->from = from, r->to = to;
    bench_barrier_init(&r->barrier, o->threads);
    for (uint32_t t = 0; t < o->threads; t++) {
        r->logs[t].n = 0;
        threads[t] = (thread){.r = r, .number = t};
        if (t > 0 && pthread_create(&handles[t], NULL, run_thread, &threads[t])) bench_fail("no thread %u", t);
    }
    run_thread(&threads[0]);
    for (uint32_t t = 1; t < o->threads; t++) pthread_join(handles[t], NULL);
    for (uint32_t t = 0; t < o->threads; t++) c->moved += threads[t].moved;
    if (!bench_check_steps(&c->check, r->logs, from, to)) bench_fail("%s: %s", c->queue->name, c->check.message);
    if (c->moved < c->check.moved) bench_fail("%s: adjusting left queued ids where they were", c->queue->name);
    if (timed) add_samples(r, threads);
}

/* >>contenders */

static void open_contender(contender *c, const bench_queue *queue, const configuration *o, const bench_mix *mix) {
    uint64_t steps = o->lookahead + o->staging + 2; /* steps that an entry may stay, stale or not */
    bench_queue_shape shape = {o->ids, 2 * o->batch * steps, 2 * o->threads * steps, o->threads};
    *c = (contender){.queue = queue, .state = queue->open(&shape), .taken = calloc(o->threads, sizeof *c->taken)};
    if (!c->state || !c->taken || !bench_check_open(&c->check, mix)) bench_fail("no memory for %s", queue->name);
}

/* Empties the queue, and checks that nothing was missing. */
static void close_contender(contender *c, uint64_t queued) {
    uint32_t *ids = malloc((queued + BENCH_TAKE) * sizeof *ids);
    uint64_t n = 0;
    int due = 1;
    if (!ids) bench_fail("no memory");
    while (due && n <= queued) n += c->queue->take(c->state, 0, UINT64_MAX, ids + n, &due);
    if (!bench_check_rest(&c->check, ids, n)) bench_fail("%s: %s", c->queue->name, c->check.message);
    free(ids);
    c->queue->close(c->state);
    bench_check_close(&c->check);
    free(c->taken);
}

/* >>reports */

static double spread(const bench_samples *s) { /* spread of the samples, as a share of the median */
    return bench_median(s) > 0 ? (bench_quantile(s, 1) - bench_quantile(s, 0)) / bench_median(s) : 0;
}

static void print_json(const configuration *o, const contender *c) {
    for (int op = 0; op < OPS; op++) {
        printf("{\"queue\": \"%s\", \"threads\": %u, \"op\": \"%s\", \"mops\": %.3f, \"spread\": %.3f, \"ns\": %.2f, ",
               c->queue->name, o->threads, op_names[op], bench_median(&c->mops[op]), spread(&c->mops[op]),
               bench_median(&c->ns[op]));
        if (op == ALL) printf("\"stall_ms\": %.4f, ", bench_median(&c->stall));
        printf("\"ids\": %llu, \"batch\": %u, \"lookahead\": %u, \"staging\": %u, \"backlog\": %llu, \"zipf\": %g}\n",
               (unsigned long long)o->ids, o->batch, o->lookahead, o->staging, (unsigned long long)o->backlog, o->zipf);
    }
}

static void print_heading(const configuration *o) {
    printf(
        "\n%llu ids, %u thread%s; batches of %u, lookahead %u, staging %u, backlog %llu steps, zipf %g; median of %llu "
        "rounds of %llu steps\n",
        (unsigned long long)o->ids, o->threads, o->threads > 1 ? "s" : "", o->batch, o->lookahead, o->staging,
        (unsigned long long)o->backlog, o->zipf, (unsigned long long)o->rounds, (unsigned long long)o->steps);
    printf("%-10s %9s %7s | %10s %7s %7s | %13s\n", "queue", "Mops/s", "spread", "enqueue ns", "adjust", "take",
           "gate, ms/step");
}

static void print_row(const contender *c) {
    printf("%-10s %9.2f %6.0f%% | %10.1f %7.1f %7.1f | %13.3f\n", c->queue->name, bench_median(&c->mops[ALL]),
           100 * spread(&c->mops[ALL]), bench_median(&c->ns[ENQUEUE]), bench_median(&c->ns[ADJUST]),
           bench_median(&c->ns[TAKE]), bench_median(&c->stall));
}

/* The first contender's speed divided by another's in the same round; the median over rounds. */
static void print_ratios(const contender *c, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        bench_samples ratio = {.n = 0};
        for (uint32_t k = 0; k < c[i].mops[ALL].n; k++)
            bench_add(&ratio, c[0].mops[ALL].values[k] / c[i].mops[ALL].values[k]);
        if (i == 1) printf("%s does", c[0].queue->name);
        printf("%s %.3g times as many as %s", i > 1 ? "," : "", bench_median(&ratio), c[i].queue->name);
    }
    if (n > 1) puts("");
}

/* >>all of it */

static bench_log *open_logs(const configuration *o, uint64_t steps) {
    bench_log *logs = calloc(o->threads, sizeof *logs);
    uint64_t room = (o->backlog + steps + 1) * o->batch + BENCH_TAKE;
    for (uint32_t t = 0; logs && t < o->threads; t++) {
        logs[t] = (bench_log){.ids = malloc(room * sizeof(uint32_t)),
                              .room = room,
                              .gate_end = calloc(steps, sizeof(uint64_t)),
                              .step_end = calloc(steps, sizeof(uint64_t))};
        if (!logs[t].ids || !logs[t].gate_end || !logs[t].step_end) bench_fail("no memory for logs");
        memset(logs[t].ids, 0, room / o->threads * sizeof(uint32_t)); /* so that no round pays for page faults */
    }
    if (!logs) bench_fail("no memory for logs");
    return logs;
}

static void close_logs(bench_log *logs, uint32_t threads) {
    for (uint32_t t = 0; t < threads; t++) {
        free(logs[t].ids);
        free(logs[t].gate_end);
        free(logs[t].step_end);
    }
    free(logs);
}

static void compare(const configuration *o, const options_list *chosen) {
    static contender c[OPTIONS_LIST];
    uint64_t round = UNTIMED + o->steps, first = o->backlog > 0 ? o->backlog : 1, steps = first + o->rounds * round;
    bench_mix *mix = bench_mix_draw(&(bench_mix_shape){.ids = o->ids,
                                                       .steps = steps,
                                                       .batch = o->batch,
                                                       .lookahead = o->lookahead,
                                                       .staging = o->staging,
                                                       .threads = o->threads,
                                                       .zipf = o->zipf,
                                                       .seed = 1});
    if (!mix) bench_fail("no memory for the operations");
    round_of r = {.o = o, .mix = mix, .logs = open_logs(o, round > first ? round : first)};
    for (uint32_t i = 0; i < chosen->n; i++) {
        open_contender(&c[i], queues[(uint32_t)chosen->values[i]], o, mix);
        run_round(&r, &c[i], 0, first, 0);
    }
    for (uint64_t k = 0; k < o->rounds && !bench_interrupted(); k++)
        for (uint32_t i = 0; i < chosen->n; i++) run_round(&r, &c[i], first + k * round, first + (k + 1) * round, 1);
    int measured = c[chosen->n - 1].mops[ALL].n > 0; /* otherwise interrupted before the first result */
    if (!o->json && measured) print_heading(o);
    for (uint32_t i = 0; measured && i < chosen->n; i++) {
        if (o->json)
            print_json(o, &c[i]);
        else
            print_row(&c[i]);
    }
    if (!o->json && measured) print_ratios(c, chosen->n);
    fflush(stdout);
    for (uint32_t i = 0; i < chosen->n; i++) close_contender(&c[i], (o->backlog + 2) * o->batch);
    close_logs(r.logs, o->threads);
    bench_mix_free(mix);
}

/* The options that have lists; the last one varies fastest. */
enum { IDS, BATCH, LOOKAHEAD, STAGING, BACKLOG, ZIPF, STEPS, ROUNDS, THREADS, SWEPT };

static configuration configure(const options_list *const lists[SWEPT], uint64_t i) {
    double value[SWEPT];
    for (int k = SWEPT; k-- > 0; i /= lists[k]->n) value[k] = lists[k]->values[i % lists[k]->n];
    return (configuration){.ids = (uint64_t)value[IDS],
                           .batch = (uint32_t)value[BATCH],
                           .lookahead = (uint32_t)value[LOOKAHEAD],
                           .staging = (uint32_t)value[STAGING],
                           .backlog = (uint64_t)value[BACKLOG],
                           .zipf = value[ZIPF],
                           .steps = (uint64_t)value[STEPS],
                           .rounds = (uint64_t)value[ROUNDS],
                           .threads = (uint32_t)value[THREADS]};
}

static void refuse(const configuration *o) {
    if (o->batch > o->ids / 4)
        fprintf(stderr, "bench_pq: --batch %u must be at most a quarter of --ids %llu\n", o->batch,
                (unsigned long long)o->ids);
    else if (o->lookahead + o->staging > MOST_STEPS)
        fprintf(stderr, "bench_pq: --lookahead %u and --staging %u must be at most %d together\n", o->lookahead,
                o->staging, MOST_STEPS);
    else if (o->backlog >= o->staging)
        fprintf(stderr, "bench_pq: --backlog %llu must be less than --staging %u\n", (unsigned long long)o->backlog,
                o->staging);
    else
        return;
    exit(2);
}

int main(int argc, char **argv) {
    options_list chosen = {{0, 1, 2, 3, 4, 5, 6, 7}, 8}, threads = {{1, 2}, 2}, ids = {{1e6}, 1}, batch = {{20000}, 1};
    options_list lookahead = {{10}, 1}, staging = {{40}, 1}, backlog = {{20}, 1}, zipf = {{0}, 1};
    options_list steps = {{40}, 1}, rounds = {{5}, 1};
    int scan = 0, json = 0;
    const options_entry options[] = {
        {"queues", OPTIONS_CHOICES, &chosen, 0, 0, queue_names, "the first is compared with the others"},
        {"threads", OPTIONS_WHOLES, &threads, 1, BENCH_MIX_THREADS, NULL, "they announce, close and take"},
        {"ids", OPTIONS_WHOLES, &ids, 16, 1e9, NULL, "rows of the table"},
        {"batch", OPTIONS_WHOLES, &batch, 1, 1e7, NULL, "ids read in a step; at most a quarter of all"},
        {"lookahead", OPTIONS_WHOLES, &lookahead, 0, 62, NULL, "steps from announcing to reading"},
        {"staging", OPTIONS_WHOLES, &staging, 1, 63, NULL, "steps after which an update is due without a read"},
        {"backlog", OPTIONS_WHOLES, &backlog, 0, 62, NULL, "steps whose updates are queued; less than --staging"},
        {"zipf", OPTIONS_REALS, &zipf, 0, 1.2, NULL, "skew of the ids, which are distinct in a step"},
        {"steps", OPTIONS_WHOLES, &steps, 1, 1e6, NULL, "timed steps a round"},
        {"rounds", OPTIONS_WHOLES, &rounds, 1, BENCH_SAMPLES, NULL, "the median of which is printed"},
        {"scan", OPTIONS_FLAG, &scan, 0, 0, NULL,
         "what it costs frugal_pq.h to look for the lowest slot; nothing else"},
        {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line, for each queue, threads and operation"},
        {0},
    };
    bench_parse("bench_pq", "What P2F asks of its priority queue, of queues side by side.", options, argc, argv);
    if (scan) {
        bench_scan(json);
        return bench_exit_status();
    }
    const options_list *lists[SWEPT] = {
        [IDS] = &ids,   [BATCH] = &batch, [LOOKAHEAD] = &lookahead, [STAGING] = &staging, [BACKLOG] = &backlog,
        [ZIPF] = &zipf, [STEPS] = &steps, [ROUNDS] = &rounds,       [THREADS] = &threads};
    uint64_t n = 1;
    for (int i = 0; i < SWEPT; i++) n *= lists[i]->n;
    for (uint64_t i = 0; i < n; i++) { /* all of them, before the first is run */
        configuration o = configure(lists, i);
        refuse(&o);
    }
    for (uint64_t i = 0; i < n && !bench_interrupted(); i++) {
        configuration o = configure(lists, i);
        o.json = json;
        compare(&o, &chosen);
    }
    return bench_exit_status();
}
