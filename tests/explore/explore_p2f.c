/* explore_p2f.c - small worlds of the state machine of frugal_p2f.h, in every order that a scheduler can choose. See
 * explore.h. Pieces of plans have two entries, so that several threads plan and close one step. */
#include "tests/explore/explore.h"

#define FRUGAL_STATIC
#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#define FRUGAL_PRIV_PLAN_RANGE  2u
#define FRUGAL_PRIV_CLOSE_RANGE 2u
#define WORLD_WAIT()            explore_wait()
#define WORLD_FAIL(...)         explore_fail(__VA_ARGS__)
#include "tests/stress/p2f_world.h"

/* >>training: whole worlds. Threads 0 .. devices - 1 are trainers, then loaders, then workers */

static world *w;

static void set_up_world(uint64_t variant, world_desc desc) {
    test_random random = {.seed = test_mix3(variant, desc.devices, desc.workers)};
    desc.seed = variant + 1;
    desc.rows = (uint32_t)test_between(&random, 1, 4);
    desc.max_rows = (uint32_t)test_between(&random, 1, desc.rows);
    desc.lookahead = (uint32_t)test_between(&random, 0, 2);
    desc.staging = (uint32_t)test_between(&random, 1, desc.lookahead + 2);
    desc.first_step = test_below(&random, 200);
    desc.taken = test_chance(&random, 50);
    w = world_make(explore_alloc(world_bytes(&desc), FRUGAL_P2F_ALIGN), &desc);
}

static void play(int number) {
    uint32_t index = (uint32_t)number, trainers = w->desc.devices, loaders = w->desc.loaders ? trainers : 0;
    if (index < trainers)
        world_device(w, index);
    else if (index < trainers + loaders)
        world_loader(w, index - trainers);
    else
        world_worker(w);
}

static void compare(void) {
    EXPLORE_EXPECT(world_finish(w));
}

static void set_up_one_device(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 1, .workers = 1, .steps = 4});
}
static void set_up_two_devices(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .steps = 3});
}
static void set_up_worker(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3});
}
static void set_up_loaders(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .loaders = 1, .workers = 2, .steps = 3});
}
/* In place: rows of which some are one device's alone and others are both's; pieces share words of bits. */
static void set_up_in_place(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3, .in_place = variant % 3 ? 80 : 100});
}
static void set_up_in_place_loaders(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .loaders = 1, .workers = 1, .steps = 3, .in_place = 90});
}
/* Copies keep updates. */
static void set_up_kept(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3, .keeps = 1});
}
static void set_up_kept_loaders(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .loaders = 1, .workers = 1, .steps = 3, .keeps = 1});
}
/* One device without words: a gate is the order of its steps. Workers find nothing to do. */
static void set_up_wordless(uint64_t variant) {
    world_desc desc = {.devices = 1, .loaders = 1, .workers = 1, .steps = 4, .wordless = 1};
    desc.keeps = variant % 3 == 0; /* there is nothing to recall */
    set_up_world(variant, desc);
}
static void set_up_write_through(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3, .mode = FRUGAL_SYNC});
}

/* >>driver: thread 0 drives all devices, takes announcements back, and reads rows between steps; workers help */

enum { MOST_DEVICES = 2, MOST_ROWS = 4 };

static void set_up_driver(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 1 + variant % MOST_DEVICES, .workers = 2, .steps = 3});
}
static void set_up_driver_in_place(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 2, .steps = 3, .in_place = 90});
}
static void set_up_driver_keeping(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 2, .steps = 3, .keeps = 1});
}

static void set_up_driver_wordless(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 1, .workers = 1, .steps = 4, .wordless = 1});
}

static void wait_for(frugal_status (*call)(uint32_t device, uint64_t step), uint32_t device, uint64_t step) {
    frugal_status status;
    while ((status = call(device, step)) == FRUGAL_AGAIN) {
        int any = 0;
        for (uint32_t v = 0; v < w->desc.devices; v++) any |= world_recall(w, v);
        if (!any) world_help_or_yield(w, UINT64_MAX);
    }
    EXPLORE_EXPECT(status == FRUGAL_OK);
}

static frugal_status announce_wrongly(uint32_t device, uint64_t step) { /* other rows than the batch's */
    static const uint32_t all[MOST_ROWS] = {0, 1, 2, 3};
    int in_place = w->desc.in_place > 0 || w->desc.keeps || w->desc.wordless;
    const frugal_p2f_batch batch = {.rows = all, .n = w->desc.max_rows, .in_place = in_place};
    return frugal_p2f_announce(world_state(w), device, step, &batch);
}
static frugal_status announce(uint32_t device, uint64_t step) {
    return world_try_announce(w, device) || frugal_p2f_announced(world_state(w), device) > step ? FRUGAL_OK
                                                                                                : FRUGAL_AGAIN;
}
static frugal_status pass(uint32_t device, uint64_t step) {
    (void)device;
    return frugal_p2f_gate(world_state(w), step) ? FRUGAL_OK : FRUGAL_AGAIN;
}
static frugal_status drain(uint32_t device, uint64_t step) {
    (void)device;
    frugal_p2f_progress now = frugal_p2f_get_progress(world_state(w));
    return now.closed == step && now.pending == 0 ? FRUGAL_OK : FRUGAL_AGAIN;
}
static frugal_status cancel(uint32_t device, uint64_t step) {
    (void)device;
    return frugal_p2f_cancel(world_state(w), step);
}

/* Reads a row that is not announced, flushing it, and having it written back, if need be. */
static void read_row(uint32_t row, uint64_t expected) {
    frugal_p2f_work work;
    for (uint32_t v = 0; v < w->desc.devices; v++) world_write_back(w, v, row);
    for (int taken; (taken = frugal_p2f_take_row(world_state(w), row, &work)) != 0;) {
        if (taken < 0) explore_wait();
        if (taken < 0) continue;
        world_apply(w, work.step, work.entries);
        frugal_p2f_done(world_state(w), &work, 1);
    }
    EXPLORE_EXPECT(((uint64_t *)world_at(w, w->table_at))[row] == expected);
}

static void drive(void) {
    uint64_t table[MOST_ROWS] = {0}, sum[MOST_ROWS] = {0};
    uint8_t brought[MOST_ROWS] = {0};
    for (uint64_t s = 0; s < w->desc.steps; s++) {
        uint64_t step = s + w->desc.first_step, what = test_mix2(w->desc.seed, s);
        if (what % 3 == 0) {
            for (uint32_t v = 0; v < w->desc.devices - what / 3 % 2; v++) wait_for(announce_wrongly, v, step);
            wait_for(drain, 0, step);
            wait_for(cancel, 0, step);
        }
        if (what % 3 == 1) wait_for(drain, 0, step);
        for (uint32_t row = 0; what % 3 == 1 && row < w->desc.rows; row++) read_row(row, table[row]);
        for (uint32_t v = 0; v < w->desc.devices; v++) wait_for(announce, v, step);
        wait_for(pass, 0, step);
        for (uint32_t v = 0; v < w->desc.devices; v++) world_look_up(w, v, s);
        for (uint32_t v = 0; v < w->desc.devices; v++) world_train(w, v, s);
        world_follow(w, s, table, sum, brought);
        while (what % 5 == 0 && frugal_p2f_closed(world_state(w)) <= step) world_help_or_yield(w, UINT64_MAX);
        for (uint32_t row = 0; what % 5 == 0 && row < w->desc.rows; row++) read_row(row, table[row]);
    }
    frugal_store_relaxed(&w->running, 0);
}

static void drive_or_work(int number) {
    if (number == 0)
        drive();
    else
        world_worker(w);
}

/* >>ahead: a loader announces a further step and cancels it, while trainers pass the gate of the step before */

static FRUGAL_ATOMIC(uint32_t) * go; /* steps whose trainers may commit; relaxed */

static void set_up_ahead_of(uint64_t variant, unsigned in_place) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 2, .in_place = in_place});
    w->desc.loaders = 1; /* trainers do not announce */
    go = explore_alloc(sizeof *go, 64);
}
static void set_up_ahead(uint64_t variant) {
    set_up_ahead_of(variant, 0);
}
static void set_up_ahead_in_place(uint64_t variant) {
    set_up_ahead_of(variant, 90);
}

static void announce_and_take_back(void) {
    for (uint64_t s = 0; s < w->desc.steps; s++) {
        uint64_t step = s + w->desc.first_step;
        for (uint32_t v = 0; v < 2; v++) wait_for(announce, v, step);
        if (w->desc.lookahead > 0) {
            for (uint32_t v = 0; v < 1 + w->desc.seed % 2; v++) wait_for(announce_wrongly, v, step + 1);
            wait_for(drain, 0, step);
            wait_for(cancel, 0, step + 1);
        }
        frugal_store_relaxed(go, (uint32_t)s + 1);
    }
}

static void train_when_let(uint32_t device) {
    for (uint64_t s = 0; s < w->desc.steps; s++) {
        uint64_t step = s + w->desc.first_step;
        while (!frugal_p2f_gate(world_state(w), step)) world_help_or_yield(w, step);
        world_look_up(w, device, s);
        while (frugal_load_relaxed(go) <= s) world_help_or_yield(w, step);
        world_train(w, device, s);
    }
    frugal_add_relaxed(&w->running, (uint32_t)-1);
}

static void play_ahead(int number) {
    if (number < 2)
        train_when_let((uint32_t)number);
    else if (number == 2)
        announce_and_take_back();
    else
        world_worker(w);
}

/* >>queries: what a query counts happened before it returns */

static struct {
    frugal_p2f *p;
    uint64_t variant;
    uint32_t *note; /* plain: what each thread did, from 0 on */
    uint64_t *row;  /* plain: the row's memory */
} q;

static void make_machine(uint64_t variant, const frugal_p2f_desc *desc) {
    q.variant = variant;
    void *memory = explore_alloc(frugal_p2f_footprint(desc), FRUGAL_P2F_ALIGN);
    if (frugal_p2f_init(memory, desc, &q.p) != FRUGAL_OK) abort();
}

static frugal_status quick_announce(uint64_t step, const uint32_t *rows, uint32_t n) {
    const frugal_p2f_batch batch = {.rows = rows, .n = n, .in_place = !frugal_p2f_has_words(q.p)};
    return frugal_p2f_announce(q.p, 0, step, &batch);
}

enum { QUERIES = 12 };

static void set_up_one_row(uint64_t variant, int without_words) {
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 1, .lookahead = 1, .threads = 4};
    desc.without_words = without_words;
    q.note = explore_alloc(8 * sizeof *q.note, 8), q.row = explore_alloc(8, 8);
    make_machine(variant, &desc);
}
static void set_up_queries(uint64_t variant) {
    set_up_one_row(variant, variant / QUERIES % 2);
}

enum { ANNOUNCED, COMMITTED, CLOSED, FLUSHED }; /* notes */

/* Thread 0 takes one row through a step. */
static void step_once(void) {
    const uint32_t row = 1;
    int has_words = frugal_p2f_has_words(q.p);
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    const frugal_p2f_batch batch = {.rows = &row, .n = 1, .in_place = !has_words};
    q.note[ANNOUNCED] = 1;
    EXPLORE_EXPECT(frugal_p2f_announce(q.p, 0, 0, &batch) == FRUGAL_OK);
    EXPLORE_EXPECT(frugal_p2f_plan(q.p) == 2 * has_words);
    q.note[COMMITTED] = 1;
    if (!has_words) *q.row = q.note[CLOSED] = 1; /* in place; and the commit closes the step */
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 0, 1, NULL) == FRUGAL_OK);
    if (!has_words) return;
    q.note[CLOSED] = 1;
    EXPLORE_EXPECT(frugal_p2f_close(q.p) == 2);
    EXPLORE_EXPECT(frugal_p2f_take(q.p, UINT64_MAX, work, NULL) == 1);
    *q.row = 1;
    EXPLORE_EXPECT(frugal_p2f_done(q.p, work, 1) == 1);
}

/* Asks one of the queries what has happened, and reads a note that must have been written by then. */
static int has_happened(uint64_t query, int *note) {
    frugal_p2f_progress now;
    switch (query) {
    case 0:
        *note = ANNOUNCED;
        return frugal_p2f_announced(q.p, 0) == 1;
    case 1:
        *note = CLOSED;
        return frugal_p2f_legal(q.p, 2);
    case 2:
        *note = ANNOUNCED;
        return frugal_p2f_get_progress(q.p).sealed == 1;
    case 3:
        *note = COMMITTED;
        return frugal_p2f_committed(q.p, 0) == 1;
    case 4:
        *note = COMMITTED;
        return frugal_p2f_all_committed(q.p) == 1;
    case 5:
        *note = COMMITTED;
        return frugal_p2f_get_progress(q.p).committed == 1;
    case 6:
        *note = CLOSED;
        return frugal_p2f_closed(q.p) == 1;
    case 7:
        *note = CLOSED;
        return frugal_p2f_get_progress(q.p).closed == 1;
    case 8:
        *note = FLUSHED;
        now = frugal_p2f_get_progress(q.p);
        return now.closed == 1 && now.pending == 0;
    case 9: /* once the step is closed, a zero says that what was due is flushed */
        *note = FLUSHED;
        return frugal_p2f_closed(q.p) == 1 && frugal_p2f_pending(q.p, 3) == 0;
    case 10:
        *note = FLUSHED;
        return frugal_p2f_closed(q.p) == 1 && frugal_p2f_is_dirty(q.p, 1) == 0;
    default:
        *note = ANNOUNCED;
        return frugal_p2f_planned(q.p) == 1 && world_bit(frugal_p2f_valid(q.p, 0, 0), 0);
    }
}

static void step_or_query(int number) {
    int note;
    if (number == 0) {
        step_once();
        return;
    }
    while (!has_happened(q.variant % QUERIES, &note)) explore_wait();
    EXPLORE_EXPECT(note == FLUSHED ? *q.row == 1 : q.note[note] == 1);
}

/* >>edges: a call of thread 0, then one of thread 1, which knows only that the first is over */

static uint32_t *over; /* atomic; relaxed */

static void set_up_edges(uint64_t variant) { /* one row, announced and planned */
    const uint32_t row = 1;
    set_up_one_row(variant, 0);
    over = explore_alloc(sizeof *over, 64);
    EXPLORE_EXPECT(quick_announce(0, &row, 1) == FRUGAL_OK);
    EXPLORE_EXPECT(frugal_p2f_plan(q.p) == 2);
}

static void close_and_flush(void) {
    frugal_p2f_piece piece;
    frugal_p2f_work work;
    int applied = q.variant % 3 == 0;
    q.note[COMMITTED] = 1;
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 0, 1, NULL) == FRUGAL_OK);
    EXPLORE_EXPECT(frugal_p2f_close_begin(q.p, &piece) == 1);
    if (applied) *q.row = 1;
    EXPLORE_EXPECT(frugal_p2f_close_end(q.p, &piece, applied) == 2);
    frugal_store_relaxed(over, 1);
    if (q.variant % 3 == 1 && frugal_p2f_take_row(q.p, 1, &work) == 1) {
        *q.row = 1;
        frugal_p2f_done(q.p, &work, 1);
    }
}

static void close_then_look(int number) {
    frugal_p2f_work work;
    if (number == 0) {
        close_and_flush();
    } else if (q.variant % 3 == 2) { /* a thread that takes a row sees its records, even if it knows of nothing else */
        while (!frugal_load_relaxed(over)) explore_wait();
        while (frugal_p2f_take_row(q.p, 1, &work) != 1) explore_wait(); /* it may see an old word, which is clean */
        EXPLORE_EXPECT(q.note[COMMITTED] == 1 && work.entries->row == 1);
    } else { /* a thread that knows that the step is closed, and finds the row clean, sees the row's update */
        while (frugal_p2f_closed(q.p) == 0) explore_wait();
        int asks = q.variant / 3 % 2, dirty;
        while ((dirty = asks ? frugal_p2f_is_dirty(q.p, 1) : frugal_p2f_take_row(q.p, 1, &work)) != 0) {
            if (asks || dirty < 0) explore_wait();
            if (asks || dirty < 0) continue;
            *q.row = 1;
            frugal_p2f_done(q.p, &work, 1);
        }
        EXPLORE_EXPECT(*q.row == 1);
    }
}

/* >>stale: a stale entry of one update leads to a later update, before that one's own entry is published */

static void set_up_stale(uint64_t variant) {
    const uint32_t row = 0;
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    frugal_p2f_desc desc = {.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 2, .staging = 4, .threads = 4};
    q.note = explore_alloc(8 * sizeof *q.note, 8);
    make_machine(variant, &desc);
    for (uint64_t s = 0; s < 3; s++) { /* due at 4; then read at 1, so moved and flushed; its entry stays at 4 */
        EXPLORE_EXPECT(quick_announce(s, &row, 1) == FRUGAL_OK && frugal_p2f_plan(q.p) == 2);
        EXPLORE_EXPECT(frugal_p2f_take(q.p, s, work, NULL) == (s > 0) && (s == 0 || frugal_p2f_done(q.p, work, 1)));
        if (s == 2) break;
        EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, s, 1, NULL) == FRUGAL_OK && frugal_p2f_close(q.p) == 2);
    }
    EXPLORE_EXPECT(quick_announce(3, NULL, 0) == FRUGAL_OK && frugal_p2f_plan(q.p) == 2);
    /* so step 2 is due at 4, too */
    EXPLORE_EXPECT(quick_announce(4, &row, 1) == FRUGAL_OK && frugal_p2f_plan(q.p) == 2);
}

static void close_or_take_stale(int number) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    if (number == 0) {
        q.note[COMMITTED] = 1;
        EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 2, 1, NULL) == FRUGAL_OK && frugal_p2f_close(q.p) == 2);
    } else {
        while (!frugal_p2f_take(q.p, UINT64_MAX, work, NULL)) explore_wait();
        EXPLORE_EXPECT(work->step == 2 && work->entries->row == 0);
        EXPLORE_EXPECT(q.note[COMMITTED] == 1);
    }
}

/* >>taken back: the gate of a step, while later announced steps are cancelled */

static void set_up_taken_back(uint64_t variant) {
    frugal_p2f_desc desc = {.rows = 4, .devices = 1, .max_rows = 3, .lookahead = 1, .threads = 4};
    desc.without_words = variant % 2;
    q.note = explore_alloc(8 * sizeof *q.note, 8);
    make_machine(variant, &desc);
}

static void announce_beyond_or_pass(int number) {
    static const uint32_t rows[] = {0, 1};
    if (number == 0) {
        q.note[ANNOUNCED] = 1;
        EXPLORE_EXPECT(quick_announce(0, rows, 1) == FRUGAL_OK);
        EXPLORE_EXPECT(quick_announce(1, rows, 2) == FRUGAL_OK);
        while (frugal_p2f_cancel(q.p, 1) == FRUGAL_AGAIN) explore_wait();
    } else {
        while (!frugal_p2f_gate(q.p, 0)) explore_wait();
        EXPLORE_EXPECT(q.note[ANNOUNCED] == 1);
    }
}

/* >>claims: a step is cancelled and announced anew while others plan; no piece of the cancelled step is planned */

static void set_up_claims(uint64_t variant) {
    frugal_p2f_desc desc = {.rows = 4, .devices = 1, .max_rows = 3, .lookahead = 1, .threads = 4};
    q.note = explore_alloc(8 * sizeof *q.note, 8);
    make_machine(variant, &desc);
}

static void announce_anew_or_plan(int number) {
    static const uint32_t first[] = {0, 1, 2}, second[] = {1, 2, 3};
    if (number > 0) {
        for (int i = 0; i < 2; i++) frugal_p2f_plan(q.p);
        return;
    }
    EXPLORE_EXPECT(quick_announce(0, first, 1 + q.variant % 3) == FRUGAL_OK);
    while (frugal_p2f_cancel(q.p, 0) == FRUGAL_AGAIN) explore_wait();
    EXPLORE_EXPECT(quick_announce(0, second, 3) == FRUGAL_OK);
}

static void second_is_planned(void) {
    frugal_p2f_piece piece;
    uint32_t row = 1;
    while (frugal_p2f_plan(q.p)) continue;
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 0, 1, NULL) == FRUGAL_OK);
    while (frugal_p2f_close_begin(q.p, &piece)) {
        for (uint32_t i = 0; i < piece.n; i++) EXPLORE_EXPECT(piece.entries[i].row == row++);
        frugal_p2f_close_end(q.p, &piece, 0);
    }
    EXPLORE_EXPECT(row == 4 && frugal_p2f_closed(q.p) == 1);
}

/* >>words: rows get words, while a worker looks for work */

static void step_without_words(uint64_t s) {
    static const uint32_t rows[] = {0, 1};
    EXPLORE_EXPECT(quick_announce(s, rows, 2) == FRUGAL_OK);
    EXPLORE_EXPECT(frugal_p2f_use_words(q.p) == FRUGAL_ERR_ORDER);
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, s, 1, NULL) == FRUGAL_OK);
}

static void set_up_words(uint64_t variant) {
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 2, .lookahead = 1, .threads = 4, .without_words = 1};
    desc.first_step = variant % 5;
    q.note = explore_alloc(8 * sizeof *q.note, 8), q.row = explore_alloc(8, 8);
    make_machine(variant, &desc);
    if (variant / 2 % 2) step_without_words(desc.first_step);
}

/* Plans, closes and flushes the step of two rows that is announced with words. */
static void work_with_words(uint64_t s) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    frugal_p2f_piece piece;
    int any = 0;
    while (frugal_p2f_plan(q.p)) any = 1;
    for (; frugal_p2f_close_begin(q.p, &piece); any = 1) {
        EXPLORE_EXPECT(piece.step == s);
        frugal_p2f_close_end(q.p, &piece, 0);
    }
    for (uint32_t n; (n = frugal_p2f_take(q.p, UINT64_MAX, work, NULL)) > 0; any = 1) {
        EXPLORE_EXPECT(work->step == s && q.note[COMMITTED] == 1);
        for (uint32_t i = 0; i < n; i++) q.note[FLUSHED + 1 + work[i].row]++;
        frugal_p2f_done(q.p, work, n);
    }
    if (!any) explore_wait();
}

static void use_words_or_work(int number) {
    static const uint32_t rows[] = {0, 1};
    uint64_t s = q.p->desc.first_step + 1 + q.variant / 2 % 2;
    int goes_on = q.variant % 2;
    if (number == 0) {
        step_without_words(s - 1);
        q.note[ANNOUNCED] = 1;
        EXPLORE_EXPECT(frugal_p2f_use_words(q.p) == FRUGAL_OK);
        if (!goes_on) return;
        EXPLORE_EXPECT(quick_announce(s, rows, 2) == FRUGAL_OK);
        while (!frugal_p2f_gate(q.p, s)) work_with_words(s);
        q.note[COMMITTED] = 1;
        EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, s, 1, NULL) == FRUGAL_OK);
        while (frugal_p2f_closed(q.p) == s || frugal_p2f_get_progress(q.p).pending) work_with_words(s);
    } else {
        while (goes_on && frugal_p2f_closed(q.p) <= s) work_with_words(s);
        for (int has_words = 0; !goes_on && !has_words;) { /* nothing is to do, however late it learns that */
            EXPLORE_EXPECT(frugal_p2f_close(q.p) == 0 && frugal_p2f_plan(q.p) == 0);
            has_words = frugal_p2f_has_words(q.p);
            if (!has_words) explore_wait();
        }
        EXPLORE_EXPECT(q.note[ANNOUNCED] == 1);
    }
}

static void rows_are_flushed_once(void) {
    if (q.variant % 2) EXPLORE_EXPECT(q.note[FLUSHED + 1] == 1 && q.note[FLUSHED + 2] == 1);
}

/* >>emptied: two rows of a slot are flushed by two threads; the one that empties the slot sees both rows */

static void set_up_emptied(uint64_t variant) {
    static const uint32_t rows[] = {0, 1};
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 2, .lookahead = 1, .threads = 4};
    q.row = explore_alloc(2 * sizeof *q.row, 8);
    make_machine(variant, &desc);
    EXPLORE_EXPECT(quick_announce(0, rows, 2) == FRUGAL_OK);
    while (frugal_p2f_plan(q.p)) continue;
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 0, 1, NULL) == FRUGAL_OK);
    while (frugal_p2f_close(q.p)) continue;
}

static void flush_one_of_two(int number) {
    frugal_p2f_work work;
    EXPLORE_EXPECT(frugal_p2f_take_row(q.p, (uint32_t)number, &work) == 1);
    q.row[number] = 1;
    if (frugal_p2f_done(q.p, &work, 1)) {
        EXPLORE_EXPECT(q.row[1 - number] == 1);
        EXPLORE_EXPECT(frugal_p2f_is_dirty(q.p, (uint32_t)(1 - number)) == 0);
    }
}

/* >>ring: the entry of a step is used again 64 steps later, while its last closer may not have left it yet */

static void set_up_ring(uint64_t variant) {
    frugal_p2f_desc desc = {.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 1, .threads = 4};
    make_machine(variant, &desc);
    EXPLORE_EXPECT(quick_announce(0, NULL, 0) == FRUGAL_OK && frugal_p2f_plan(q.p) == 2);
    EXPLORE_EXPECT(frugal_p2f_commit(q.p, 0, 0, 0, NULL) == FRUGAL_OK);
}

static void close_or_go_round(int number) {
    if (number == 1) {
        EXPLORE_EXPECT(frugal_p2f_close(q.p) == 2);
        return;
    }
    while (frugal_p2f_closed(q.p) == 0) explore_wait();
    for (uint64_t s = 1; s <= FRUGAL_P2F_SLOTS; s++) {
        EXPLORE_EXPECT(quick_announce(s, NULL, 0) == FRUGAL_OK && frugal_p2f_plan(q.p) == 2);
        EXPLORE_EXPECT(frugal_p2f_gate(q.p, s) && frugal_p2f_commit(q.p, 0, s, 0, NULL) == FRUGAL_OK);
        EXPLORE_EXPECT(frugal_p2f_close(q.p) == 2);
    }
}

int main(int argc, char **argv) {
    static const explore_scenario scenarios[] = {
        {"one-device", "training with a worker is sequential training", 2, set_up_one_device, play, compare},
        {"two-devices", "training without workers is sequential training", 2, set_up_two_devices, play, compare},
        {"worker", "training of two devices with a worker is sequential training", 3, set_up_worker, play, compare},
        {"loaders", "announcing from other threads, two workers", 6, set_up_loaders, play, compare},
        {"driver", "cancelling and reading rows while workers plan, close and flush", 3, set_up_driver, drive_or_work,
         compare},
        {"ahead", "cancelling what is ahead, while trainers pass the gate before", 4, set_up_ahead, play_ahead,
         compare},
        {"in-place", "(f) rows that one device alone has are its own from the gate to the commit; [P15][P16]", 3,
         set_up_in_place, play, compare},
        {"in-place-loaders", "the same, announced by other threads", 5, set_up_in_place_loaders, play, compare},
        {"in-place-driver", "the same, when steps are cancelled and announced anew", 3, set_up_driver_in_place,
         drive_or_work, compare},
        {"in-place-ahead", "the same, when steps ahead are cancelled while trainers pass the gate before", 4,
         set_up_ahead_in_place, play_ahead, compare},
        {"kept", "(g) no gate opens before another device has written back what it keeps; [P11][P20]-[P23]", 3,
         set_up_kept, play, compare},
        {"kept-loaders", "the same, announced by other threads", 5, set_up_kept_loaders, play, compare},
        {"kept-driver", "the same, when steps are cancelled and announced anew", 3, set_up_driver_keeping,
         drive_or_work, compare},
        {"wordless", "one device without words, announced by another thread; [P5][P8][P10]", 3, set_up_wordless, play,
         compare},
        {"wordless-driver", "the same, when steps are cancelled and announced anew", 2, set_up_driver_wordless,
         drive_or_work, compare},
        {"words", "[P24][P25]: rows get words, while a worker looks for work", 2, set_up_words, use_words_or_work,
         rows_are_flushed_once},
        {"queries", "what a query counts happened before it returns", 2, set_up_queries, step_or_query, NULL},
        {"edges", "[P2]-[P4]: whoever finds a row clean, or takes it, sees what was done", 2, set_up_edges,
         close_then_look, NULL},
        {"stale", "[P2][P3]: an update that an old entry leads to is whole", 2, set_up_stale, close_or_take_stale,
         NULL},
        {"taken-back", "[P5] in cancel: the gate before", 2, set_up_taken_back, announce_beyond_or_pass, NULL},
        {"claims", "[P13]: no piece of a cancelled step is planned", 3, set_up_claims, announce_anew_or_plan,
         second_is_planned},
        {"emptied", "[P17]: who empties a slot has acquired its rows", 2, set_up_emptied, flush_one_of_two, NULL},
        {"ring", "(e) the entry of a step is left before it is used again", 2, set_up_ring, close_or_go_round, NULL},
        {"write-through", "the same, every update due in the next step", 3, set_up_write_through, play, compare},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
