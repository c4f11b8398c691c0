/* test_workers.c - instances of different dims that share workers: each bit for bit its reference, whoever else is
 * served, comes or goes.
 *
 * The library is compiled into this program, because the last tests act as workers, one piece of work at a time. Do not
 * link frugal_flush.o. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "frugal_flush.c"
#include "tests/fleet.h"
#include "tests/hand_in.h"

#if defined(FRUGAL_SANITIZED) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TRIALS = 10, GUESTS = 6, LONG = 150 };
#else
enum { TRIALS = 60, GUESTS = 20, LONG = 500 };
#endif
enum { MOST = 3 }; /* fleets side by side */

static frugal_workers *some_workers(uint32_t n) {
    frugal_workers *w;
    if (frugal_workers_open(n, &w) != FRUGAL_OK) fail_msg("workers: %s", frugal_message());
    return w;
}

static void check(frugal_status wanted, frugal_status status, const char *text1, const char *text2, int line) {
    const char *message = status < 0 ? frugal_message() : "";
    if (status != wanted || !strstr(message, text1) || !strstr(message, text2))
        fail_msg("line %d: status %d, not %d: %s; not \"%s\" and \"%s\"", line, (int)status, (int)wanted, message,
                 text1, text2);
}
#define assert_ok(call)                          check(FRUGAL_OK, call, "", "", __LINE__)
#define assert_fails(wanted, call, text1, text2) check(wanted, call, text1, text2, __LINE__)

/* >>side by side: random instances, each with a trainer or several of its own */

static frugal_desc some_desc(test_random *random, frugal_workers *workers) {
    static const uint32_t dims[] = {1, 3, 5, 8, 16, 40};
    frugal_desc d = rig_desc();
    d.shared_workers = workers;
    d.dim = dims[test_below(random, sizeof dims / sizeof *dims)];
    d.devices = (uint32_t)test_between(random, 1, 3);
    d.lookahead = (uint32_t)test_below(random, 6);
    d.staging = (uint32_t)test_below(random, 4);
    d.mode = test_chance(random, 25) ? FRUGAL_SYNC : FRUGAL_P2F;
    d.reduce = test_chance(random, 25) ? FRUGAL_MEAN : FRUGAL_SUM;
    d.optimizer.kind = (frugal_optimizer_kind)test_below(random, FRUGAL_OPTIMIZER_KINDS);
    d.first_step = test_chance(random, 50) ? 0 : test_below(random, 100);
    d.init_threads = 1;
    d.alone = test_chance(random, 50) ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
    return d;
}

/* `polled`: with devices that work on. */
static fleet *some_fleet(test_random *random, frugal_workers *workers, int polled) {
    fleet *w = calloc(1, sizeof *w);
    frugal_desc d = some_desc(random, workers);
    for (uint32_t i = 0; polled && i < d.devices; i++) w->kinds[i] = (int)test_below(random, 3);
    if (polled) w->kinds[test_below(random, d.devices)] = (int)test_between(random, POLLED, WAITING);
    w->ahead = (uint32_t)test_below(random, d.lookahead + 1);
    w->r.cache.cache_rows = test_chance(random, 50) ? 24 : 0;
    fleet_open(w, &d, test_chance(random, 50) ? 0 : 50);
    return w;
}

static void end_fleet(fleet *w) {
    fleet_close(w);
    free(w);
}

typedef struct lane { /* the training of one fleet, on a thread of its own */
    pthread_t thread;
    fleet *w;
    int way;
} lane;

static void *lane_main(void *argument) {
    lane *l = argument;
    if (l->way == 0)
        end(l->w, 0, train_in_one(l->w));
    else
        train_in_threads(l->w, l->way == 2);
    return NULL;
}

static void set_out(lane *l, uint64_t steps, int way) {
    l->way = way;
    l->w->from = l->w->r.step, l->w->to = l->w->r.step + steps;
    l->w->device_major = 0;
    if (pthread_create(&l->thread, NULL, lane_main, l)) abort();
}

static void arrive(lane *l) {
    fleet *w = l->w;
    pthread_join(l->thread, NULL);
    for (uint32_t d = 0; d < w->r.desc.devices; d++)
        if (w->ended_by[d]) fail_msg("device %u: %s", d, w->said[d]);
    judge(w, w->to);
}

static void expect_table(fleet *w) {
    assert_ok(frugal_drain(w->r.f));
    assert_ok(frugal_verify(w->r.f));
    rig_compare(&w->r);
}

static void trial(uint64_t seed) {
    test_random random = {.seed = test_mix2(seed, 4)};
    frugal_workers *workers = some_workers((uint32_t)test_between(&random, 1, 3));
    int n = (int)test_between(&random, 2, MOST), polled = test_chance(&random, 50);
    lane lanes[MOST];
    for (int i = 0; i < n; i++) lanes[i].w = some_fleet(&random, workers, polled);
    for (int phase = 0; phase < 3; phase++) {
        for (int i = 0; i < n; i++) set_out(&lanes[i], test_between(&random, 1, 12), (int)test_below(&random, 3));
        for (int i = 0; i < n; i++) arrive(&lanes[i]);
        for (int i = 0; i < n; i++) {
            if (test_chance(&random, 50)) expect_table(lanes[i].w);
            if (!test_chance(&random, 25)) continue;
            end_fleet(lanes[i].w); /* with what is not flushed, now and then */
            lanes[i].w = some_fleet(&random, workers, polled);
        }
    }
    for (int i = 0; i < n; i++) expect_table(lanes[i].w), end_fleet(lanes[i].w);
    assert_ok(frugal_workers_close(workers));
}

static void test_side_by_side(void **state) {
    (void)state;
    const char *seed = getenv("FRUGAL_WORKERS_SEED"), *count = getenv("FRUGAL_TEST_COUNT"); /* of one trial */
    if (seed) {
        trial(strtoull(seed, NULL, 0));
        return;
    }
    for (uint64_t i = 0; i < (count ? strtoull(count, NULL, 0) : TRIALS); i++) {
        if (getenv("FRUGAL_VERBOSE")) fprintf(stderr, "# FRUGAL_WORKERS_SEED=%u\n", (unsigned)i);
        trial(i);
    }
}

/* Tables of three dims, in lockstep on one thread, as an embedding model is trained. */
static void test_lockstep(void **state) {
    (void)state;
    static const uint32_t dims[] = {5, 16, 40};
    static const frugal_optimizer_kind kinds[] = {FRUGAL_ADAGRAD, FRUGAL_ADAM, FRUGAL_ROWWISE_ADAGRAD};
    for (uint32_t n = 1; n <= 3; n++) {
        rig r[3] = {0};
        frugal_workers *workers = some_workers(n);
        for (int i = 0; i < 3; i++) {
            frugal_desc d = rig_desc();
            d.dim = dims[i], d.optimizer.kind = kinds[i], d.shared_workers = workers;
            d.mode = i == 1 ? FRUGAL_SYNC : FRUGAL_P2F;
            rig_open(&r[i], &d);
            assert_int_equal(n, frugal_settings(r[i].f)->workers);
            assert_ptr_equal(workers, frugal_settings(r[i].f)->shared_workers);
        }
        for (uint64_t s = 0; s < LONG / 5; s++)
            for (int i = 0; i < 3; i++) {
                for (uint64_t t = r[i].announced[0]; t <= s + 2; t++) rig_announce(&r[i], 0), rig_announce(&r[i], 1);
                rig_train(&r[i], 1);
            }
        for (int i = 0; i < 3; i++) {
            frugal_stats stats;
            assert_ok(frugal_drain(r[i].f));
            frugal_get_stats(r[i].f, &stats);
            assert_int_equal(0, stats.flushed_at_close); /* there are workers: updates are queued */
            rig_finish(&r[i], 3);
        }
        assert_ok(frugal_workers_close(workers));
    }
}

/* Instances come and go while two others train. */
static void test_guests(void **state) {
    (void)state;
    test_random random = {.seed = 12};
    for (uint32_t n = 1; n <= 2; n++) {
        frugal_workers *workers = some_workers(n);
        lane lanes[2];
        for (int i = 0; i < 2; i++) {
            lanes[i].w = some_fleet(&random, workers, i == 1);
            set_out(&lanes[i], LONG, i);
        }
        for (int i = 0; i < GUESTS; i++) {
            fleet *guest = some_fleet(&random, workers, i % 3 == 0);
            uint64_t steps = test_below(&random, 8);
            if (steps) phase(guest, guest->r.step + steps, i % 2 ? 0 : 2);
            if (i % 4 < 2) expect_table(guest);
            end_fleet(guest);
        }
        for (int i = 0; i < 2; i++) arrive(&lanes[i]), expect_table(lanes[i].w), end_fleet(lanes[i].w);
        assert_ok(frugal_workers_close(workers));
    }
}

/* Devices that work on in two instances, of which one is lost: the other does not notice. */
static void test_lost_beside_another(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < TRIALS / 5; seed++) {
        test_random random = {.seed = test_mix2(seed, 8)};
        frugal_workers *workers = some_workers(1 + seed % 2);
        lane well = {.w = some_fleet(&random, workers, 1)}, ill = {.w = some_fleet(&random, workers, 1)};
        rig *r = &ill.w->r;
        uint32_t device = 0;
        while (ill.w->kinds[device] == HOST) device++;
        ill.w->s[device].lost_at = r->desc.first_step + test_between(&random, 1, 10);
        set_out(&well, 40, 1), set_out(&ill, 400, 1);
        arrive(&well);
        pthread_join(ill.thread, NULL);
        for (uint32_t d = 0; d < r->desc.devices; d++) assert_int_equal(FRUGAL_ERR_LOST, ill.w->ended_by[d]);
        frugal_stats stats;
        assert_ok(frugal_drain(r->f));
        frugal_get_stats(r->f, &stats);
        compare_lost(ill.w, r->desc.first_step + stats.steps, 0);
        end_fleet(ill.w);
        phase(well.w, well.w->r.step + 10, 2);
        expect_table(well.w), end_fleet(well.w);
        assert_ok(frugal_workers_close(workers));
    }
}

/* >>what one instance has to itself: stop, the clock of its waits, statistics */

static rig *open_small(rig *r, frugal_workers *workers, double stuck_seconds) {
    frugal_desc d = rig_desc();
    memset(r, 0, sizeof *r);
    d.shared_workers = workers, d.stuck_seconds = stuck_seconds, d.init_threads = 1;
    rig_open(r, &d);
    return r;
}

static void test_stop(void **state) {
    (void)state;
    rig a, b;
    frugal_workers *workers = some_workers(2);
    open_small(&a, workers, 120), open_small(&b, workers, 120);
    rig_train(&a, 5), rig_train(&b, 5);
    frugal_stop(a.f);
    assert_int_equal(FRUGAL_STOPPED, frugal_lookup(a.f, 0, 5, a.looked_up[0]));
    rig_train(&b, 20);
    rig_free(&a);
    rig_finish(&b, 20);
    assert_ok(frugal_workers_close(workers));
}

/* A wait is stuck although another instance tells their event of something all the time. */
static void test_stuck_beside_another(void **state) {
    (void)state;
    rig a;
    test_random random = {.seed = 3};
    frugal_workers *workers = some_workers(1);
    lane busy = {.w = some_fleet(&random, workers, 0)};
    open_small(&a, workers, 0.2);
    for (int t = 0; t < 2; t++) rig_announce(&a, 0), rig_announce(&a, 1);
    for (uint32_t d = 0; d < 2; d++) rig_lookup(&a, d);
    rig_update(&a, 0);
    set_out(&busy, LONG, 1);
    double since = clock_now();
    assert_fails(FRUGAL_ERR_STUCK, frugal_lookup(a.f, 0, 1, a.looked_up[0]), "nothing has moved for 0.2 s", "device 1");
    assert_true(clock_now() - since >= 0.2);
    arrive(&busy);
    rig_update(&a, 1);
    rig_judge(&a, 0);
    rig_finish(&a, 5);
    end_fleet(busy.w);
    assert_ok(frugal_workers_close(workers));
}

/* worker_busy_seconds is of this instance alone. */
static void test_busy_seconds(void **state) {
    (void)state;
    rig a, b;
    frugal_stats of_a = {0}, of_b;
    frugal_workers *workers = some_workers(2);
    open_small(&a, workers, 120), open_small(&b, workers, 120);
    double since = clock_now();
    for (int i = 0; i < 10000 && of_a.worker_busy_seconds == 0; i++) { /* the trainer alone may have done everything */
        rig_train(&a, 1);
        frugal_get_stats(a.f, &of_a);
    }
    assert_ok(frugal_drain(a.f));
    frugal_get_stats(a.f, &of_a), frugal_get_stats(b.f, &of_b);
    assert_true(of_a.worker_busy_seconds > 0);
    assert_true(of_a.worker_busy_seconds <= 2 * (clock_now() - since));
    assert_true(of_b.worker_busy_seconds == 0);
    rig_free(&a), rig_free(&b);
    assert_ok(frugal_workers_close(workers));
}

/* >>misuse and limits */

static void test_arguments(void **state) {
    (void)state;
    rig r;
    frugal *f;
    frugal_workers *workers = (frugal_workers *)(uintptr_t)&r;
    frugal_desc d = rig_desc();
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_workers_open(0, &workers), "0 workers", "1 to 1024");
    assert_null(workers);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_workers_open(1025, &workers), "1025 workers", "1 to 1024");
    assert_null(workers);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_workers_open(1, NULL), "frugal_workers_open", "NULL");
    assert_ok(frugal_workers_close(NULL));
    workers = some_workers(3);
    d.shared_workers = workers, d.workers = 2;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_open(&d, &f), "workers is 2", "leave it 0");
    assert_null(f);
    assert_ok(frugal_workers_close(workers)); /* nobody has joined */
    workers = some_workers(2);
    open_small(&r, workers, 120);
    d = *frugal_settings(r.f); /* the settings in force are settings to open with */
    assert_int_equal(2, d.workers);
    d.allocate = NULL, d.release = NULL;
    assert_ok(frugal_open(&d, &f));
    frugal_close(f);
    rig_finish(&r, 5);
    assert_ok(frugal_workers_close(workers));
}

static void test_closed_too_early(void **state) {
    (void)state;
    rig a, b;
    frugal_workers *workers = some_workers(2);
    open_small(&a, workers, 120), open_small(&b, workers, 120);
    rig_train(&a, 3);
    assert_fails(FRUGAL_ERR_BUSY, frugal_workers_close(workers), "2 instances are still open", "close them");
    rig_train(&a, 3), rig_train(&b, 3); /* they are served on */
    rig_finish(&b, 3);
    assert_fails(FRUGAL_ERR_BUSY, frugal_workers_close(workers), "1 instance is still open", "close it");
    rig_finish(&a, 3);
    assert_ok(frugal_workers_close(workers));
}

/* An open that fails half way leaves an object to be closed; nobody has served it. */
static void test_failed_open(void **state) {
    (void)state;
    rig beside;
    frugal_workers *workers = some_workers(2);
    open_small(&beside, workers, 120);
    for (uint64_t nth = 1, opened = 0; !opened; nth++) {
        test_counter counter = {.fail_at = nth};
        frugal_desc d = rig_desc();
        frugal *f;
        d.shared_workers = workers, d.init_threads = 1;
        d.allocate = test_allocate, d.release = test_release, d.user = &counter;
        frugal_status status = frugal_open(&d, &f);
        if (status != FRUGAL_OK) assert_fails(FRUGAL_ERR_MEMORY, status, "bytes for", "");
        opened = status == FRUGAL_OK;
        rig_train(&beside, 1);
        if (f) assert_fails(FRUGAL_ERR_BUSY, frugal_workers_close(workers), "2 instances are", "");
        frugal_close(f);
        assert_int_equal(0, (int)counter.blocks_out);
    }
    rig_finish(&beside, 3);
    assert_ok(frugal_workers_close(workers));
}

static void test_limit(void **state) {
    (void)state;
    frugal *f[FRUGAL_MAX_INSTANCES], *more;
    frugal_table table = {.rows = 2};
    frugal_workers *workers = some_workers(2);
    frugal_desc d = {
        .tables = &table, .n_tables = 1, .dim = 1, .max_keys = 1, .init_threads = 1, .shared_workers = workers};
    d.alone = FRUGAL_ALONE_STAGED; /* the workers have rows to flush */
    for (int i = 0; i < FRUGAL_MAX_INSTANCES; i++) assert_ok(frugal_open(&d, &f[i]));
    assert_fails(FRUGAL_ERR_LIMIT, frugal_open(&d, &more), "serve 64 instances", "open more workers");
    frugal_close(more);
    assert_fails(FRUGAL_ERR_BUSY, frugal_workers_close(workers), "64 instances", "");
    frugal_close(f[17]);
    assert_ok(frugal_open(&d, &f[17]));
    for (int i = 0; i < FRUGAL_MAX_INSTANCES; i++) { /* all are served: nobody else is there to close their steps */
        uint64_t key = 1;
        frugal_keys keys = {.keys = &key, .n = 1};
        float row, grad = 1;
        frugal_stats stats;
        assert_ok(frugal_cpu_attach(f[i], 0, NULL));
        assert_ok(frugal_announce(f[i], 0, 0, &(frugal_batch){.segments = &keys, .n_segments = 1}));
        assert_ok(frugal_lookup(f[i], 0, 0, &row));
        assert_ok(frugal_update(f[i], 0, 0, &(frugal_gradients){.grads = &grad, .lr = 1}));
        do sched_yield(), frugal_get_stats(f[i], &stats);
        while (stats.flushed < 1);
    }
    for (int i = 0; i < FRUGAL_MAX_INSTANCES; i++) frugal_close(f[i]);
    assert_ok(frugal_workers_close(workers));
}

/* >>one piece at a time: workers without threads, so that the test does their work */

typedef struct bench {
    frugal_workers *workers;
    worker me;
    rig a, b;
} bench;

static void bench_open(bench *x, uint32_t staging_of_a, uint32_t staging_of_b) {
    frugal_desc d = rig_desc();
    memset(x, 0, sizeof *x);
    assert_ok(start_workers(&(frugal_desc){0}, 0, 0, &x->workers));
    x->workers->n = 1; /* so that updates are queued */
    x->me.workers = x->workers;
    d.shared_workers = x->workers, d.devices = 1, d.init_threads = 1;
    d.staging = staging_of_a, rig_open(&x->a, &d);
    d.staging = staging_of_b, d.dim = 3, rig_open(&x->b, &d);
}

/* Trains a step, and leaves closing it to the workers. */
static void bench_step(rig *r) {
    if (r->announced[0] == r->step) rig_announce(r, 0);
    while (frugal_help(r->f)) continue;
    rig_lookup(r, 0), rig_update(r, 0), rig_judge(r, 0);
}

static void *close_main(void *f) {
    frugal_close(f);
    return NULL;
}

/* Closes an instance whose workers are inside: they leave when they come by. */
static void bench_leave(bench *x, rig *r) {
    pthread_t thread;
    frugal *f = r->f;
    r->f = NULL;
    if (pthread_create(&thread, NULL, close_main, f)) abort();
    while (frugal_load_acquire(&x->workers->seats[f->seat].word) & SEAT_OPEN) sched_yield();
    nap(2000);
    assert_int_equal(SEAT_WORKER, frugal_load_acquire(&x->workers->seats[f->seat].word)); /* it waits */
    assert_true(r->counter.blocks_out > 0);
    while (serve_once(&x->me)) continue;
    pthread_join(thread, NULL);
    rig_free(r);
}

static uint64_t closed(const rig *r) {
    return frugal_p2f_closed(r->f->p2f);
}
static int64_t pending(const rig *r) {
    return frugal_p2f_get_progress(r->f->p2f).pending;
}

/* Closing and plans of one come before the queue of the other. */
static void test_gates_first(void **state) {
    (void)state;
    bench x;
    bench_open(&x, 4, 4);
    bench_step(&x.a);
    while (closed(&x.a) < 1) assert_true(serve_once(&x.me)); /* rows of a are queued, due in 3 steps */
    int64_t queued = pending(&x.a);
    assert_true(queued > 0);
    bench_step(&x.b);
    x.me.turn = 0;
    while (closed(&x.b) < 1) assert_true(serve_once(&x.me));
    assert_int_equal(queued, pending(&x.a));
    rig_announce(&x.b, 0);
    x.me.turn = 0;
    while (frugal_load_acquire(&frugal_priv_step_of(x.b.f->p2f, 1)->plan_left) > 0)
        assert_true(serve_once(&x.me)); /* rows that became urgent, and the plan */
    assert_int_equal(queued, pending(&x.a));
    x.me.turn = 0;
    while (pending(&x.a) > 0) assert_true(serve_once(&x.me));
    while (serve_once(&x.me)) continue;
    rig_compare(&x.a), rig_compare(&x.b);
    bench_leave(&x, &x.a), bench_leave(&x, &x.b);
    assert_ok(frugal_workers_close(x.workers));
}

/* Of two queues the one that is due in fewer steps. */
static void test_nearest_first(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (int near = 0; near < 2; near++) {
            bench x;
            bench_open(&x, near ? 4 : 2, near ? 2 : 4);
            rig *soon = near ? &x.b : &x.a, *late = near ? &x.a : &x.b;
            bench_step(&x.a), bench_step(&x.b);
            while (closed(&x.a) < 1 || closed(&x.b) < 1) assert_true(serve_once(&x.me));
            int64_t queued = pending(late);
            assert_true(queued > 0 && pending(soon) > 0);
            x.me.turn = turn;
            while (pending(soon) > 0) assert_true(serve_once(&x.me));
            assert_int_equal(queued, pending(late));
            while (serve_once(&x.me)) continue;
            assert_int_equal(0, pending(late));
            rig_compare(&x.a), rig_compare(&x.b);
            bench_leave(&x, soon), bench_leave(&x, late);
            assert_ok(frugal_workers_close(x.workers));
        }
}

/* Both have something urgent all the time: they have their turns. */
static void test_in_turn(void **state) {
    (void)state;
    bench x;
    bench_open(&x, 4, 4);
    for (int i = 0; i < 10; i++) {
        bench_step(&x.a), bench_step(&x.b);
        uint64_t before = closed(&x.a) + closed(&x.b);
        assert_true(serve_once(&x.me) && serve_once(&x.me));
        if (closed(&x.a) + closed(&x.b) != before + 2) fail_msg("one of them was served twice");
    }
    bench_leave(&x, &x.a), bench_leave(&x, &x.b);
    assert_ok(frugal_workers_close(x.workers));
}

/* One has something urgent all the time. The other's next gate waits for the plan of its step: urgent, too. */
static void test_plan_in_turn(void **state) {
    (void)state;
    bench x;
    bench_open(&x, 4, 4);
    rig_hand_in(&x.b, 0);
    for (int i = 0; i < 6; i++) {
        bench_step(&x.a);
        assert_true(serve_once(&x.me));
    }
    assert_int_equal(1, frugal_p2f_planned(x.b.f->p2f));
    rig_train(&x.b, 1);
    bench_leave(&x, &x.a), bench_leave(&x, &x.b);
    assert_ok(frugal_workers_close(x.workers));
}

/* A seat that was left is another's, and nobody is inside of it unawares. */
static void test_seat_again(void **state) {
    (void)state;
    bench x;
    bench_open(&x, 4, 4);
    bench_step(&x.a), bench_step(&x.b);
    while (serve_once(&x.me)) continue;
    assert_int_equal(3, (int)x.me.inside);
    bench_leave(&x, &x.a);
    assert_int_equal(2, (int)x.me.inside);
    frugal_desc d = rig_desc();
    d.shared_workers = x.workers, d.dim = 7, d.devices = 1;
    memset(&x.a, 0, sizeof x.a);
    rig_open(&x.a, &d);
    assert_int_equal(0, (int)x.a.f->seat);
    assert_int_equal(SEAT_OPEN, frugal_load_acquire(&x.workers->seats[0].word));
    bench_step(&x.a);
    while (serve_once(&x.me)) continue;
    assert_int_equal(3, (int)x.me.inside);
    assert_int_equal(0, pending(&x.a));
    rig_compare(&x.a);
    bench_leave(&x, &x.b), bench_leave(&x, &x.a);
    assert_ok(frugal_workers_close(x.workers));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lockstep),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_guests),
        cmocka_unit_test(test_lost_beside_another),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stuck_beside_another),
        cmocka_unit_test(test_busy_seconds),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_closed_too_early),
        cmocka_unit_test(test_failed_open),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_gates_first),
        cmocka_unit_test(test_nearest_first),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_plan_in_turn),
        cmocka_unit_test(test_seat_again),
    };
    return cmocka_run_group_tests_name("test_workers", tests, NULL, NULL);
}
