/* test_posts.c - a device of another process whose posts are refused, whose calls are stuck or stopped, that fails in
 * the middle of an update, does not answer, or is gone.
 *
 * The library is compiled into this test, which writes posts that no call makes, and holds those that workers would
 * take at once. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/wait.h>
#include "frugal_flush.c"
#include "tests/case.h"
#include "tests/expect.h"
#include "tests/scratch.h"

enum { DIM = 4, ROWS = 4, KEYS = 4 };
#define A_MOMENT 0.02 /* seconds after which a wait that does not end is stuck */

static char name[64];
static int here[2], there[2]; /* pipes: to this process, to the other one */
static pid_t child;
static int which; /* of a test that is run several times */

static void tell(const int *pipe) {
    if (write(pipe[1], "", 1) != 1) abort();
}
static void await(const int *pipe) {
    char byte;
    if (read(pipe[0], &byte, 1) != 1) abort(); /* also if the other process has ended */
}

/* In the other process, a check that fails ends it, with status 1. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "# line %d: %s: %s\n", __LINE__, #condition, frugal_message());                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define EXPECT_FAILS(wanted, call, text)         EXPECT((call) == (wanted) && strstr(frugal_message(), text))
#define assert_fails(wanted, call, text1, text2) expect_failure(wanted, call, text1, text2, #call, __LINE__)

static frugal_table the_table = {.rows = ROWS};

static frugal_desc world_desc(frugal_alone alone, uint32_t lookahead, const char *file) {
    return (frugal_desc){.tables = &the_table,
                         .n_tables = 1,
                         .dim = DIM,
                         .devices = 2,
                         .max_keys = KEYS,
                         .workers = 1,
                         .lookahead = lookahead,
                         .name = name,
                         .stuck_seconds = 20,
                         .file = file,
                         .alone = alone};
}

/* Forks the other process, which runs `other`, and opens the instance, with device 0 on host cores. */
static frugal *open_world(int (*other)(void), frugal_alone alone, uint32_t lookahead, const char *file) {
    static unsigned worlds;
    frugal *f;
    frugal_desc desc = world_desc(alone, lookahead, file);
    snprintf(name, sizeof name, "test_posts %d %u", (int)getpid(), worlds++);
    assert_true(pipe(here) == 0 && pipe(there) == 0);
    fflush(NULL);
    child = fork(); /* before this process has a thread */
    assert_true(child >= 0);
    if (child == 0) close(here[0]), close(there[1]), _exit(other());
    close(here[1]), close(there[0]);
    if (frugal_open(&desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    return f;
}

/* The other process ends, and all that it expected was so. */
static void end_other(void) {
    int status;
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void close_world(frugal *f) {
    frugal_close(f);
    close(here[0]), close(there[1]);
}

static remote *the_other(const frugal *f) {
    remote *r = remote_of(f, 1);
    assert_non_null(r);
    return r;
}

static frugal_status announce(frugal *f, uint32_t d, uint64_t step, uint64_t key) {
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    return frugal_announce(f, d, step, &(frugal_batch){&keys, 1, 0});
}

/* Announces no key, and that nothing is changed. */
static frugal_status announce_none(frugal *f, uint32_t d, uint64_t step) {
    return frugal_announce(f, d, step, &(frugal_batch){NULL, 0, 1});
}

static frugal_status look_up(frugal *f, uint32_t d, uint64_t step) {
    float rows[KEYS * DIM];
    return frugal_lookup(f, d, step, rows);
}

/* All gradients, of one key, and the learning rate are 1. */
static frugal_status update(frugal *f, uint32_t d, uint64_t step) {
    static const float grads[KEYS * DIM] = {1, 1, 1, 1};
    return frugal_update(f, d, step, &(frugal_gradients){.grads = grads, .lr = 1});
}

/* Announces, looks up and updates the row of the device's number. */
static frugal_status take_step(frugal *f, uint32_t d, uint64_t step) {
    frugal_status status = announce(f, d, step, d);
    if (status == FRUGAL_OK) status = look_up(f, d, step);
    return status == FRUGAL_OK ? update(f, d, step) : status;
}

/* Joins with device 1 on host cores. */
static frugal *join(void) {
    frugal *f;
    if (frugal_join(name, 30, &f) || frugal_cpu_attach(f, 1, NULL))
        fprintf(stderr, "# %s\n", frugal_message()), exit(1);
    return f;
}

/* >>a device whose operations the other process makes, and that does nothing but what a test is about */

typedef enum { DOES_NOTHING, MEETS, FAILS, ENDS } conduct;

static struct {
    frugal *f;
    conduct how;
    FRUGAL_ATOMIC(uint32_t) done, breaks;      /* what polls say: steps done; 1: it is lost */
    FRUGAL_ATOMIC(uint32_t) preloads, written; /* counted by the attendant */
} actor;

/* Tells this process of an operation, and goes on when it is told to. */
static void meet_other(void) {
    tell(here);
    await(there);
}

static frugal_status actor_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static frugal_status actor_update(void *device, const frugal_step *step, const void *grads) {
    const host_device *own = &actor.f->devices[1];
    (void)device, (void)step, (void)grads;
    if (own->keeps) frugal_count_kept(actor.f, 1, 1, 0, 1);
    if (actor.how == MEETS && !own->keeps) meet_other();
    return FRUGAL_OK;
}
static frugal_status actor_preload(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    frugal_add_relaxed(&actor.preloads, 1);
    return actor.how == FAILS ? frugal_fail(FRUGAL_ERR_MEMORY, "the actor has no room") : FRUGAL_OK;
}
static int actor_verify(void *device) {
    (void)device;
    return actor.how != FAILS;
}
static void actor_does_nothing(void *device) {
    (void)device;
}
static int actor_in_place(void *device) {
    (void)device;
    return 1;
}
static frugal_status actor_write_back(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    if (actor.how == MEETS) meet_other();
    if (actor.how == ENDS) _exit(0);
    frugal_count_kept(actor.f, 1, 0, 1, 0);
    frugal_add_release(&actor.written, 1);
    return FRUGAL_OK;
}
static frugal_status actor_poll(void *device, uint64_t *steps) {
    (void)device;
    *steps = frugal_load_acquire(&actor.done);
    return frugal_load_relaxed(&actor.breaks) ? frugal_fail(FRUGAL_ERR_CUDA, "the test took it away") : FRUGAL_OK;
}

/* As a GPU, which does not know of a step after its last one. */
static frugal_status actor_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    (void)step;
    return done ? actor_write_back(device, rows, n) : FRUGAL_AGAIN;
}
static int actor_recalled(void *device, uint64_t step) {
    (void)device, (void)step;
    return 1;
}

static const frugal_device_ops actor_operations = {.lookup = actor_lookup,
                                                   .update = actor_update,
                                                   .preload = actor_preload,
                                                   .verify = actor_verify,
                                                   .empty = actor_does_nothing,
                                                   .close = actor_does_nothing,
                                                   .updates_in_place = actor_in_place,
                                                   .write_back = actor_write_back};

/* Joins with device 1 as the actor. `is_polled` 2: it keeps rows, too. */
static frugal *join_as_actor(conduct how, int is_polled) {
    frugal *f;
    frugal_device_ops ops = actor_operations;
    if (is_polled) ops.poll = actor_poll, ops.recall = actor_recall, ops.recalled = actor_recalled;
    if (is_polled == 1) ops.write_back = NULL;
    actor.how = how;
    frugal_status status = frugal_join(name, 30, &f);
    actor.f = f;
    if (status == FRUGAL_OK) status = frugal_attach(f, 1, &ops, NULL);
    if (status != FRUGAL_OK) fprintf(stderr, "# %s\n", frugal_message()), exit(1);
    return f;
}

/* Device 0, on host cores here, is lost as a GPU would be. */
static void lose_own(frugal *f) {
    lock_polling(f);
    frugal_fail(FRUGAL_ERR_CUDA, "the test took it away");
    lose_device(f, 0);
    pthread_mutex_unlock(&f->polling.lock);
}

/* >>posts that are refused */

/* What it takes over from the other process is checked, because memory here depends on it. */
static int post_damage(void) {
    const uint64_t good = UINT64_C(1) << 32; /* row 1, position 0 */
    const uint32_t n[4] = {KEYS + 1, 2, 2, 2};
    const uint64_t sorted[4][2] = {
        {good, good + 1}, {good, ((uint64_t)ROWS << 32) + 1}, {good, good + 2}, {good, good}};
    frugal *f = join();
    posted_batch *post = posted_at(f, 1, 0);
    post->n = n[which], post->read_only = 0;
    memcpy(post->sorted, sorted[which], sizeof sorted[which]);
    frugal_store_release(&f->devices[1].box->announced, 1);
    event_notify(f->event);
    await(there); /* training has ended */
    for (int again = 0; again < 2; again++)
        EXPECT_FAILS(FRUGAL_ERR_PROCESS, announce(f, 1, 1, 0), "announce: the batch of device 1 at step 0 is damaged");
    frugal_close(f);
    return 0;
}

static void test_damaged_batches(void **state) {
    (void)state;
    for (which = 0; which < 4; which++) {
        frugal *f = open_world(post_damage, FRUGAL_ALONE_STAGED, 1, NULL);
        assert_fails(FRUGAL_ERR_LOST, look_up(f, 0, 0), "device 1 was lost: FRUGAL_ERR_PROCESS",
                     "the batch of device 1 at step 0 is damaged");
        assert_int_equal(0, has_post(the_other(f))); /* nothing more is taken from it */
        assert_int_equal(0, frugal_load_relaxed(&f->devices[1].box->taken));
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        tell(there);
        end_other();
        close_world(f);
    }
}

/* An update with a learning rate that is no number. */
static int post_no_rate(void) {
    frugal *f = join();
    mailbox *mail = f->devices[1].box;
    EXPECT(announce(f, 1, 0, 1) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK);
    await(there);
    mail->brings = 1, mail->lr = NAN, mail->scale = 0;
    frugal_store_release(&mail->updated, 1);
    event_notify(f->event);
    await(there);
    EXPECT_FAILS(FRUGAL_ERR_ARGUMENT, announce(f, 1, 1, 0), "announce: FRUGAL_ERR_ARGUMENT: update: lr must be finite");
    frugal_close(f);
    return 0;
}

static void test_refused_update(void **state) {
    (void)state;
    frugal_stats stats;
    frugal *f = open_world(post_no_rate, FRUGAL_ALONE_STAGED, 1, NULL);
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    tell(there);
    assert_fails(FRUGAL_ERR_LOST, look_up(f, 0, 1), "device 1 was lost: FRUGAL_ERR_ARGUMENT",
                 "update: lr must be finite");
    tell(there);
    end_other();
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_get_stats(f, &stats);
    assert_int_equal(0, stats.steps);
    close_world(f);
}

/* A lookup of a step that a device has no data for. */
static int post_no_step(void) {
    frugal *f = join();
    EXPECT(frugal_finish(f, 1) == FRUGAL_OK);
    frugal_store_release(&f->devices[1].box->wanted, 1);
    event_notify(f->event);
    await(there);
    frugal_close(f);
    return 0;
}

static void test_refused_gate(void **state) {
    (void)state;
    frugal *f = open_world(post_no_step, FRUGAL_ALONE_STAGED, 1, NULL);
    assert_fails(FRUGAL_ERR_LOST, look_up(f, 0, 0), "device 1 was lost", "its data has ended before step 0");
    assert_int_equal(0, frugal_load_relaxed(&f->devices[1].box->opened));
    tell(there);
    end_other();
    close_world(f);
}

/* The table's file cannot be marked as being changed. A read-only batch does not ask for that. */
static int post_changes(void) {
    frugal *f = join();
    uint64_t key = 1;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    EXPECT(frugal_announce(f, 1, 0, &(frugal_batch){&keys, 1, 1}) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK);
    EXPECT(frugal_update(f, 1, 0, NULL) == FRUGAL_OK);
    await(there);
    EXPECT(announce(f, 1, 1, 1) == FRUGAL_OK); /* the file is not this process's */
    await(there);
    EXPECT_FAILS(FRUGAL_ERR_FILE, look_up(f, 1, 1), "lookup: FRUGAL_ERR_FILE: ");
    frugal_close(f);
    return 0;
}

static void test_refused_by_file(void **state) {
    (void)state;
    frugal *f;
    frugal_desc desc = world_desc(FRUGAL_ALONE_STAGED, 1, scratch_path("table"));
    desc.workers = 0, desc.name = NULL;
    /* A new file is marked at once, one that exists later. */
    if (frugal_open(&desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    if (frugal_close(f) != FRUGAL_OK) fail_msg("close: %s", frugal_message());
    f = open_world(post_changes, FRUGAL_ALONE_STAGED, 1, desc.file);
    int only_read = open(scratch_path("table"), O_RDONLY | O_CLOEXEC);
    assert_true(only_read >= 0 && dup2(only_read, f->file->file) == f->file->file);
    close(only_read);
    assert_int_equal(FRUGAL_OK, announce_none(f, 0, 0));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 0));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, NULL));
    tell(there);
    assert_fails(FRUGAL_ERR_LOST, look_up(f, 0, 1), "device 1 was lost: FRUGAL_ERR_FILE", "table");
    tell(there);
    end_other();
    close_world(f);
    scratch_end();
}

/* >>waits of the other process */

static uint32_t told, looks;

static void count_told(void *device, const frugal_step *step) {
    (void)device, (void)step;
    told++;
}

/* Is ready when it is asked again, when so much time has passed that a wait is stuck, unless something has moved. */
static int ready_later(const frugal *f, const post_wait *what) {
    (void)f, (void)what;
    if (looks++ > 0) return 1;
    meet_other(); /* the other side announces */
    usleep((unsigned)(2e6 * A_MOMENT));
    return 0;
}

static void *look_up_5(void *argument) {
    return (void *)(intptr_t)look_up(argument, 1, 5);
}

/* Waits until a thread of the other process sleeps, or is about to, until something changes in its mailbox. */
static void await_sleeper(mailbox *mail) {
    while (!(frugal_load_acquire(&mail->bell.word) & 1)) usleep(1000);
}

static int wait_in_all_calls(void) {
    frugal *f = join();
    mailbox *mail = f->devices[1].box;
    const post_wait later = {ready_later, 1, 3, "test"};
    uint64_t key = 1;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    const frugal_batch batch = {&keys, 1, 0};
    f->devices[1].ops.announced = count_told;
    EXPECT(announce_none(f, 1, 0) == FRUGAL_OK);
    EXPECT(frugal_announce(f, 1, 1, &(frugal_batch){&keys, 1, 1}) == FRUGAL_OK);
    while (frugal_load_acquire(&mail->taken) != 2) usleep(1000); /* as far as the lookahead goes */
    for (uint64_t t = 2; t < 4; t++) EXPECT(frugal_announce(f, 1, t, &batch) == FRUGAL_OK);
    f->desc.stuck_seconds = A_MOMENT; /* this process's own */
    EXPECT_FAILS(FRUGAL_ERR_STUCK, look_up(f, 1, 0),
                 "lookup, step 0: nothing has moved for 0.02 s: device 0 has not announced step 0");
    EXPECT(frugal_try_announce(f, 1, 4, &batch) == FRUGAL_AGAIN);
    EXPECT_FAILS(FRUGAL_ERR_STUCK, frugal_announce(f, 1, 4, &batch),
                 "announce, step 4: nothing has moved for 0.02 s: device 0 has not updated step 3");
    EXPECT(wait_posted(f, &later) == FRUGAL_OK && looks == 2);
    f->desc.stuck_seconds = -1; /* it waits for ever */
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK && told == 1);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK && told == 1); /* again, at once */
    EXPECT(frugal_update(f, 1, 0, NULL) == FRUGAL_OK);
    event_notify(&mail->bell);
    tell(here);
    EXPECT(frugal_announce(f, 1, 4, &batch) == FRUGAL_OK); /* when step 2 is taken */
    await(there);                                          /* now posts are held */
    f->desc.stuck_seconds = A_MOMENT;
    EXPECT_FAILS(FRUGAL_ERR_STUCK, look_up(f, 1, 1),
                 "updates are not flushed, or not taken, by the process that opened the instance");
    f->desc.stuck_seconds = 60;
    tell(here);
    EXPECT(look_up(f, 1, 1) == FRUGAL_OK);
    EXPECT(frugal_update(f, 1, 1, NULL) == FRUGAL_OK);
    for (uint64_t t = 2; t < 5; t++) EXPECT(look_up(f, 1, t) == FRUGAL_OK && update(f, 1, t) == FRUGAL_OK);
    EXPECT(told == 5);
    pthread_t trainer; /* waits for a batch that does not come */
    void *status;
    event_notify(&mail->bell);
    EXPECT(pthread_create(&trainer, NULL, look_up_5, f) == 0);
    await_sleeper(mail);
    EXPECT(frugal_finish(f, 1) == FRUGAL_OK);
    EXPECT(pthread_join(trainer, &status) == 0 && (intptr_t)status == FRUGAL_FINISHED);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return 0;
}

static void test_waits(void **state) {
    (void)state;
    const uint64_t key = 3;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    const float row[DIM] = {9, 9, 9, 9};
    frugal *f = open_world(wait_in_all_calls, FRUGAL_ALONE_STAGED, 1, NULL);
    await(here);
    assert_fails(FRUGAL_ERR_BUSY, frugal_write_rows(f, &keys, row, NULL), "write_rows", "nothing announced");
    assert_int_equal(FRUGAL_OK, announce(f, 0, 0, 0));
    tell(there);
    await(here);
    await_sleeper(f->devices[1].box);
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 0));
    assert_int_equal(FRUGAL_OK, update(f, 0, 0));
    assert_int_equal(FRUGAL_OK, announce(f, 0, 1, 0));
    while (frugal_p2f_announced(f->p2f, 1) < 3) usleep(1000);
    hold_posts(f);
    tell(there);
    await(here);
    release_posts(f);
    event_notify(f->event);
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 1));
    assert_int_equal(FRUGAL_OK, update(f, 0, 1));
    for (uint64_t t = 2; t < 5; t++) assert_int_equal(FRUGAL_OK, take_step(f, 0, t));
    end_other();
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_true(*(float *)weights_of(f, 0) == -5 && *(float *)weights_of(f, 1) == -3 &&
                *(float *)weights_of(f, 3) == 0);
    close_world(f);
}

/* >>the end of training while the other process is in the middle of an update */

static int write_on(void) {
    frugal *f = join_as_actor(MEETS, 0);
    const uint64_t key = 1;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK); /* it was at it before the end */
    for (int again = 0; again < 2; again++)
        EXPECT_FAILS(FRUGAL_ERR_LOST, announce(f, 1, 1, 1), "device 0 was lost: FRUGAL_ERR_CUDA: the test took it");
    EXPECT(frugal_preload(f, 1, &keys) == FRUGAL_ERR_BUSY); /* step 0 is announced, and never trained */
    actor.how = DOES_NOTHING;
    meet_other();
    frugal_close(f);
    return 0;
}

/* The table is not read before the other process has written its rows. */
static void test_writing_at_a_loss(void **state) {
    (void)state;
    const void *weights;
    uint64_t stride;
    frugal *f = open_world(write_on, FRUGAL_ALONE_PLACE, 1, NULL);
    assert_int_equal(FRUGAL_OK, announce(f, 0, 0, 0));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 0));
    await(here);
    lose_own(f);
    f->desc.stuck_seconds = A_MOMENT;
    assert_fails(FRUGAL_ERR_STUCK, frugal_drain(f), "device 1 has not finished step 0", "which it updates in place");
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_view(f, 0, &weights, &stride));
    f->desc.stuck_seconds = 60;
    tell(there);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &weights, &stride));
    await(here);
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 1)); /* what was posted since is not taken, and no refusal */
    assert_true(frugal_load_relaxed(&f->devices[1].box->committed) == 0 &&
                frugal_load_relaxed(&f->devices[1].box->failed) == 0);
    tell(there);
    end_other();
    close_world(f);
}

/* Training is stopped between two calls, and the next one may not write any more: a lookup again, an update. */
static int call_after_stop(void) {
    frugal *f = join();
    EXPECT(announce(f, 1, 0, 1) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK);
    meet_other();
    if (which == 0) EXPECT_FAILS(FRUGAL_STOPPED, look_up(f, 1, 0), "lookup: the instance was stopped");
    EXPECT_FAILS(FRUGAL_STOPPED, update(f, 1, 0), "update: the instance was stopped");
    frugal_close(f);
    return 0;
}

static void test_stop_between_calls(void **state) {
    (void)state;
    for (which = 0; which < 2; which++) {
        frugal *f = open_world(call_after_stop, FRUGAL_ALONE_PLACE, 1, NULL);
        assert_int_equal(FRUGAL_OK, announce(f, 0, 0, 0));
        await(here);
        frugal_stop(f);
        tell(there);
        end_other();
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_true(*(float *)weights_of(f, 1) == 0);
        close_world(f);
    }
}

/* A device that works on when its update has returned, as a GPU does: the step is committed when it is done. */
enum { DONE, BROKEN, STOPPED, OTHER_LOST };

static int update_polled(void) {
    frugal *f = join_as_actor(DOES_NOTHING, 1);
    host_device *own = &f->devices[1];
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK);
    EXPECT(frugal_load_acquire(&own->mail->state) == MAIL_WRITER);
    meet_other(); /* the other side has seen that the step is not committed, and ends training if that is tested */
    if (which == STOPPED) EXPECT_FAILS(FRUGAL_STOPPED, announce(f, 1, 1, 1), "announce");
    if (which == OTHER_LOST) EXPECT_FAILS(FRUGAL_ERR_LOST, announce(f, 1, 1, 1), "device 0 was lost: FRUGAL_ERR_CUDA");
    frugal_store_release(which == BROKEN ? &actor.breaks : &actor.done, 1);
    while (frugal_load_acquire(&own->done) == 0) usleep(1000);
    while (frugal_load_acquire(&own->mail->state) >= MAIL_WRITER) usleep(1000);
    EXPECT(frugal_load_relaxed(&own->mail->done) == (which == DONE)); /* what is done after the end is not posted */
    if (which == BROKEN) EXPECT_FAILS(FRUGAL_ERR_LOST, announce(f, 1, 1, 1), "device 1 was lost: FRUGAL_ERR_CUDA: the");
    if (which == BROKEN) await(there); /* the other side has taken the post that says so, not that it leaves */
    frugal_close(f);
    return 0;
}

static void test_ends_of_an_update(void **state) {
    which = (int)(intptr_t)*state;
    frugal_stats stats;
    frugal *f = open_world(update_polled, FRUGAL_ALONE_PLACE, 1, NULL);
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    await(here);
    while (frugal_load_acquire(&f->devices[1].box->committed) == 0) usleep(1000); /* its update is taken */
    assert_int_equal(0, frugal_p2f_committed(f->p2f, 1));
    if (which == STOPPED) frugal_stop(f);
    if (which == OTHER_LOST) lose_own(f);
    tell(there);
    if (which == BROKEN) {
        while (!frugal_load_acquire(&f->loss.device)) usleep(1000);
        assert_fails(FRUGAL_ERR_LOST, look_up(f, 0, frugal_load_relaxed(&f->devices[0].updated)),
                     "device 1 was lost: FRUGAL_ERR_LOST: in process", "FRUGAL_ERR_CUDA: the test took it away");
        char before[sizeof f->loss.message];
        remote *r = the_other(f);
        memcpy(before, f->loss.message, sizeof before);
        pthread_mutex_lock(&r->serving);
        lose_broken(r); /* once more, as by a thread that has looked before the loss */
        pthread_mutex_unlock(&r->serving);
        assert_memory_equal(before, f->loss.message, sizeof before);
        tell(there);
    }
    end_other();
    assert_int_equal(which == STOPPED ? FRUGAL_STOPPED : FRUGAL_OK, frugal_drain(f)); /* as with a GPU here */
    frugal_get_stats(f, &stats);
    assert_int_equal(which == DONE ? 1 : 0, stats.steps);
    close_world(f);
}

/* >>an update that is posted, and that no worker takes before the end */

enum { IN_PLACE, IN_PLACE_NOTHING, STAGED };

static int post_late(void) {
    frugal *f = join();
    EXPECT(announce(f, 1, 0, 1) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK);
    meet_other(); /* posts are held */
    EXPECT((which == IN_PLACE_NOTHING ? frugal_update(f, 1, 0, NULL) : update(f, 1, 0)) == FRUGAL_OK);
    meet_other(); /* stopped, and drained */
    frugal_close(f);
    return 0;
}

static void test_not_taken(void **state) {
    which = (int)(intptr_t)*state;
    frugal *f = open_world(post_late, which == STAGED ? FRUGAL_ALONE_STAGED : FRUGAL_ALONE_PLACE, 1, NULL);
    assert_int_equal(FRUGAL_OK, announce(f, 0, 0, 0));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 0));
    await(here);
    hold_posts(f);
    tell(there);
    await(here);
    while (!frugal_p2f_is_planned(f->p2f)) usleep(1000); /* a cancel would wait for that, and end by the stop */
    frugal_stop(f);
    if (which == IN_PLACE)
        assert_fails(FRUGAL_ERR_BUSY, frugal_drain(f), "drain: in the middle of step 0", "device 1 has updated rows");
    else
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_true(*(float *)weights_of(f, 1) == (which == IN_PLACE ? -1 : 0));
    release_posts(f);
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 1)); /* does not take the update either */
    assert_true(frugal_load_relaxed(&f->devices[1].box->committed) == 0 &&
                frugal_load_relaxed(&f->devices[1].box->failed) == 0);
    tell(there);
    end_other();
    close_world(f);
}

/* >>calls into the other process */

static int fail_calls(void) {
    frugal *f = join_as_actor(FAILS, 0);
    meet_other();
    EXPECT(frugal_load_relaxed(&actor.preloads) == 2);
    frugal_close(f);
    return 0;
}

static void test_failing_calls(void **state) {
    (void)state;
    static uint32_t rows[2 * CALL_ROWS];
    const uint64_t key = 1;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    frugal *f = open_world(fail_calls, FRUGAL_ALONE_PLACE, 1, NULL);
    await(here);
    assert_fails(FRUGAL_ERR_COPY, frugal_verify(f), "device 1", "differs");
    f->desc.stuck_seconds = -1; /* the answer is waited for, however long it takes */
    assert_fails(FRUGAL_ERR_MEMORY, frugal_preload(f, 1, &keys), "the actor has no room", "");
    f->desc.stuck_seconds = 60;
    assert_fails(FRUGAL_ERR_MEMORY, call_for_rows(the_other(f), CALL_PRELOAD, rows, 2 * CALL_ROWS),
                 "the actor has no room", "");
    tell(there); /* the second half of the rows was not asked for */
    end_other();
    close_world(f);
}

/* It keeps a row, and does not answer when it is asked to write it back. */
static int answer_late(void) {
    frugal *f = join_as_actor(MEETS, 0);
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK);
    while (frugal_load_acquire(&actor.written) < 2) usleep(1000); /* by the attendant, which is told when */
    frugal_close(f);
    return 0;
}

static void count_silence(const char *text, void *user) {
    *(int *)user += strstr(text, "which has device 1, has not answered for 0.01 s") != NULL;
}

static void test_no_answer(void **state) {
    (void)state;
    char text[32];
    int told_of_it = 0;
    frugal_stats stats;
    frugal *f = open_world(answer_late, FRUGAL_ALONE_KEPT, 1, NULL);
    host_device *device = NULL;
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    while (frugal_p2f_all_committed(f->p2f) < 1 || !is_flushed(f)) usleep(1000);
    device = &f->devices[1];
    frugal_get_stats(f, &stats);
    assert_int_equal(1, stats.kept_now);
    snprintf(text, sizeof text, "process %d", (int)child);
    f->desc.stuck_seconds = A_MOMENT;
    assert_int_equal(FRUGAL_OK, frugal_on_notice(f, count_silence, &told_of_it));
    assert_fails(FRUGAL_ERR_STUCK, frugal_drain(f), text, "which has device 1, has not answered for 0.02 s");
    assert_int_equal(1, told_of_it);
    await(here); /* it is at it */
    f->desc.stuck_seconds = 60;
    frugal_stop(f);
    hold_copies(device);
    device->keeping.is_recalled = 1; /* as by a gate that needs the row */
    assert_fails(FRUGAL_STOPPED, device->ops.write_back(device->state, NULL, 0), "a recall of device 1 was given up",
                 "training has ended");
    device->keeping.is_recalled = 0;
    release_copies(device);
    tell(there), tell(there); /* the answer to the first drain, and one to the next */
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_get_stats(f, &stats);
    assert_true(stats.kept_now == 0 && stats.written_back == 2);
    await(here);
    end_other();
    close_world(f);
}

/* >>processes that leave */

/* It keeps a row, and ends in the middle of the call that asks for it. */
static int end_when_asked(void) {
    frugal *f = join_as_actor(ENDS, 0);
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK);
    for (;;) pause();
}

static void test_ends_when_asked(void **state) {
    (void)state;
    frugal *f = open_world(end_when_asked, FRUGAL_ALONE_KEPT, 1, NULL);
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    while (frugal_p2f_all_committed(f->p2f) < 1) usleep(1000);
    assert_fails(FRUGAL_ERR_BUSY, frugal_drain(f), "which keeps rows", "has ended just now");
    frugal_status status;
    while ((status = frugal_drain(f)) == FRUGAL_ERR_BUSY) usleep(1000); /* until its end is noted */
    assert_fails(FRUGAL_ERR_LOST, status, "with the caches of lost devices the last updates of 1 rows", "has ended");
    end_other();
    close_world(f);
}

/* It keeps a row, and leaves after a stop, before a drain. */
static int keep_and_leave(void) {
    frugal *f = join_as_actor(DOES_NOTHING, 0);
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK);
    await(there);
    frugal_close(f);
    EXPECT(frugal_load_relaxed(&actor.written) == 0);
    return 0;
}

static void test_leaves_after_a_stop(void **state) {
    (void)state;
    frugal *f = open_world(keep_and_leave, FRUGAL_ALONE_KEPT, 1, NULL);
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    while (frugal_p2f_all_committed(f->p2f) < 1) usleep(1000);
    frugal_stop(f);
    tell(there);
    end_other();
    frugal_status status = frugal_drain(f); /* if workers had flushed the step */
    if (status != FRUGAL_STOPPED)
        assert_fails(FRUGAL_ERR_LOST, status, "with the caches of lost devices the last updates of 1 rows",
                     "has left before the end of its data");
    assert_int_equal(1, frugal_load_relaxed(&f->loss.kept));
    close_world(f);
}

static int finish_and_leave(void) {
    frugal *f = join();
    EXPECT(announce(f, 1, 0, 1) == FRUGAL_OK);
    EXPECT(frugal_finish(f, 1) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_OK);
    EXPECT(update(f, 1, 0) == FRUGAL_OK);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return 0;
}

/* Steps are cancelled and announced anew without the process that is gone: its data still ends where it did. */
static void test_cancel_without_it(void **state) {
    (void)state;
    frugal *f = open_world(finish_and_leave, FRUGAL_ALONE_STAGED, 2, NULL);
    assert_int_equal(FRUGAL_OK, take_step(f, 0, 0));
    end_other();
    assert_int_equal(FRUGAL_OK, announce(f, 0, 1, 0));
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 1));
    for (uint64_t t = 1; t < 3; t++) assert_int_equal(FRUGAL_OK, take_step(f, 0, t));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_true(*(float *)weights_of(f, 0) == -3 && *(float *)weights_of(f, 1) == -1);
    close_world(f);
}

static int finish_and_keep(void) {
    frugal *f = join_as_actor(DOES_NOTHING, 2);
    EXPECT(take_step(f, 1, 0) == FRUGAL_OK);
    frugal_store_release(&actor.done, 1);
    EXPECT(frugal_finish(f, 1) == FRUGAL_OK);
    await(there);
    EXPECT(frugal_load_acquire(&actor.written) > 0);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return 0;
}

/* A device whose data has ended keeps a row that another device wants later. It has done all its steps. */
static void test_recall_after_the_end(void **state) {
    (void)state;
    frugal *f = open_world(finish_and_keep, FRUGAL_ALONE_KEPT, 1, NULL);
    for (uint64_t t = 0; t < 3; t++) assert_int_equal(FRUGAL_OK, take_step(f, 0, t));
    assert_int_equal(FRUGAL_OK, announce(f, 0, 3, 1));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 3));
    assert_int_equal(FRUGAL_OK, update(f, 0, 3));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    tell(there);
    end_other();
    close_world(f);
}

/* frugal_stop in a process that has joined stops only the calls of that process. */
static int stop_itself(void) {
    frugal *f = join();
    frugal_stop(f);
    for (int again = 0; again < 2; again++, frugal_stop(f)) {
        EXPECT_FAILS(FRUGAL_STOPPED, announce(f, 1, 0, 1), "announce: the instance was stopped");
        EXPECT_FAILS(FRUGAL_STOPPED, look_up(f, 1, 0), "lookup: the instance was stopped");
    }
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return 0;
}

static void test_stops_itself(void **state) {
    (void)state;
    frugal *f = open_world(stop_itself, FRUGAL_ALONE_STAGED, 1, NULL);
    end_other(); /* it leaves, and has announced nothing: the other goes on */
    for (uint64_t t = 0; t < 2; t++) assert_int_equal(FRUGAL_OK, take_step(f, 0, t));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_true(*(float *)weights_of(f, 0) == -2);
    close_world(f);
}

/* An instance that could not be joined can be stopped, too. */
static void test_stop_of_none(void **state) {
    (void)state;
    frugal *f;
    assert_int_equal(FRUGAL_ERR_PROCESS, frugal_join("test_posts, which nobody opens", 0, &f));
    assert_non_null(f);
    frugal_stop(f);
    assert_int_equal(FRUGAL_ERR_ARGUMENT, announce(f, 0, 0, 0));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_batches),
        cmocka_unit_test(test_refused_update),
        cmocka_unit_test(test_refused_gate),
        cmocka_unit_test(test_refused_by_file),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_writing_at_a_loss),
        cmocka_unit_test(test_stop_between_calls),
        CASE("an update that is done", test_ends_of_an_update, DONE),
        CASE("an update of a device that breaks", test_ends_of_an_update, BROKEN),
        CASE("an update while training is stopped", test_ends_of_an_update, STOPPED),
        CASE("an update while another device is lost", test_ends_of_an_update, OTHER_LOST),
        CASE("an update in place, not taken", test_not_taken, IN_PLACE),
        CASE("an update without gradients, not taken", test_not_taken, IN_PLACE_NOTHING),
        CASE("a staged update, not taken", test_not_taken, STAGED),
        cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_ends_when_asked),
        cmocka_unit_test(test_leaves_after_a_stop),
        cmocka_unit_test(test_cancel_without_it),
        cmocka_unit_test(test_recall_after_the_end),
        cmocka_unit_test(test_stops_itself),
        cmocka_unit_test(test_stop_of_none),
    };
    alarm(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
