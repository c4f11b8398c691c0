/* test_late_posts.c - a device of another process has posted an update, no worker has taken it yet, and the process
 * ends, or its device breaks: the step is committed all the same. The library is compiled into this test, which makes
 * workers late by the counter that holds posts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/wait.h>
#include "frugal_flush.c"

enum { DIM = 4 };
typedef enum { ENDS, BREAKS } outcome;

static char name[64];

static frugal_status announce_key(frugal *f, uint32_t d, uint64_t step) {
    const uint64_t key = d;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    return frugal_announce(f, d, step, &(frugal_batch){&keys, 1, 0});
}

/* Announces, looks up; when told to, updates. Returns the first status that is not OK. */
static frugal_status take_step(frugal *f, uint32_t d, int tell, int wait) {
    float rows[DIM], grads[DIM] = {1, 1, 1, 1};
    char byte = 0;
    frugal_status status = announce_key(f, d, 0);
    if (status == FRUGAL_OK) status = frugal_lookup(f, d, 0, rows);
    if (tell >= 0 && write(tell, &byte, 1) != 1) return FRUGAL_ERR_FILE;
    if (wait >= 0 && read(wait, &byte, 1) != 1) return FRUGAL_ERR_FILE;
    return status == FRUGAL_OK ? frugal_update(f, d, 0, &(frugal_gradients){.grads = grads, .lr = 1}) : status;
}

/* The other process; its exit status is 0 if its update has returned OK. */
static void other_process(outcome how, int tell, int wait) {
    frugal *f = NULL;
    if (frugal_join(name, 30, &f) || frugal_cpu_attach(f, 1, NULL)) _exit(2);
    if (take_step(f, 1, tell, wait)) _exit(3);
    if (how == BREAKS) post_loss(f, 1, "it is broken");
    char byte;
    if (how == BREAKS && read(wait, &byte, 1) != 1) _exit(4); /* the other side closes, when it has seen that */
    _exit(0);
}

static void test_late(void **state) {
    outcome how = *(const outcome *)*state;
    int here[2], there[2], status;
    frugal *f;
    frugal_stats stats;
    frugal_table table = {.rows = 4};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = DIM,
                        .devices = 2,
                        .max_keys = 4,
                        .workers = 1,
                        .lookahead = 2,
                        .name = name,
                        .stuck_seconds = 60,
                        .alone = FRUGAL_ALONE_STAGED};
    snprintf(name, sizeof name, "test_late_posts %d", (int)getpid());
    assert_true(pipe(here) == 0 && pipe(there) == 0);
    pid_t child = fork(); /* before this process has a thread */
    if (child == 0) other_process(how, here[1], there[0]);
    assert_true(child > 0);
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(FRUGAL_OK, take_step(f, 0, -1, here[0])); /* when the other one has looked up */
    frugal_add_relaxed(&f->shared.holds, 1);                   /* workers serve no posts, losses among them */
    assert_int_equal(1, write(there[1], "", 1));
    if (how == ENDS) {
        assert_int_equal(child, waitpid(child, &status, 0));
    } else {
        while (!frugal_load_acquire(&f->devices[1].box->broken)) usleep(1000);
        frugal_add_release(&f->shared.holds, (uint32_t)-1);
        event_notify(f->event);
    }
    while (!frugal_load_acquire(&f->loss.device)) usleep(1000);
    if (how == ENDS)
        frugal_add_release(&f->shared.holds, (uint32_t)-1);
    else
        assert_int_equal(1, write(there[1], "", 1));
    if (how == BREAKS) assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_get_stats(f, &stats);
    assert_int_equal(1, stats.steps);
    for (uint64_t row = 0; row < 2; row++) assert_true(*(float *)weights_of(f, row) == -1); /* of both devices */
    frugal_close(f);
    for (int i = 0; i < 2; i++) close(here[i]), close(there[i]);
}

/* The other side answers, and ends at once, before the thread that asked has looked: the answer counts. What is asked
 * later is answered by the end. */
static void test_answer_before_the_end(void **state) {
    (void)state;
    frugal f = {.shared.joined = calloc(1, sizeof(controller)), .desc = {.stuck_seconds = 60}};
    controller *c = f.shared.joined;
    message answer = {.number = 1}, over = {.status = FRUGAL_ERR_LOST, .text = "has ended"}, asked = {0};
    pthread_mutex_init(&c->lock, NULL), pthread_mutex_init(&c->answer_lock, NULL);
    pthread_cond_init(&c->answered, NULL);
    c->asked = 1, c->socket = -1; /* a question is asked */
    take_answer(c, &answer);
    take_answer(c, &over);
    assert_true(c->has_answer && c->answer.status == FRUGAL_OK && c->answer.number == 1);
    assert_int_equal(FRUGAL_ERR_LOST, ask_controller(&f, &asked));
    assert_non_null(strstr(frugal_message(), "has ended"));
    c->is_over = 0, c->has_answer = 0, c->asked = 7; /* a question that nobody answers before the end */
    answer.number = 6;                               /* nor does an answer to an older one */
    take_answer(c, &answer);
    assert_false(c->has_answer);
    take_answer(c, &over);
    assert_true(c->has_answer && c->answer.status == FRUGAL_ERR_LOST);
    pthread_cond_destroy(&c->answered), pthread_mutex_destroy(&c->answer_lock), pthread_mutex_destroy(&c->lock);
    free(c);
}

int main(void) {
    static outcome ends = ENDS, breaks = BREAKS;
    const struct CMUnitTest tests[] = {
        {"test_late, the process ends", test_late, NULL, NULL, &ends},
        {"test_late, its device breaks", test_late, NULL, NULL, &breaks},
        cmocka_unit_test(test_answer_before_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
