/* test_door.c - processes that knock at an instance, and the process that opened it, when one of them misbehaves, or
 * the system does: another version, messages that make no sense, users that have no business here, calls that fail or
 * are interrupted, answers that do not come.
 *
 * Both sides are in this process, which joins its own instance, so that calls of both can be made to fail. The library
 * is compiled into it, with calls of the system that a test can get hold of. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/hindered_system.h"

#include "frugal_flush.c"

#undef malloc
#undef calloc
#undef mmap
#undef socket
#undef bind
#undef listen
#undef connect
#undef pthread_create
#undef pthread_mutex_lock
#include <stdio.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/crew.h"
#include "tests/scratch.h"
#include "tests/unit/host/refused.h"

/* >>an instance, and this process as one that has joined it */

static crew c;
static frugal *opener, *joiner;
static int files_before; /* open when a test began */

static void open_crew(void) {
    if (frugal_open(&c.desc, &opener) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
}

static void begin(void) {
    crew_init(&c, 7);
    c.cache.cache_rows = 16;
    files_before = open_files();
    open_crew();
}

static void join(void) {
    if (frugal_join(c.name, 30, &joiner) != FRUGAL_OK) fail_msg("join: %s", frugal_message());
}

static void attach(void) {
    if (frugal_cpu_attach(joiner, 1, &c.cache) != FRUGAL_OK) fail_msg("attach: %s", frugal_message());
}

/* Both devices train a step, and the table is the reference's. */
static void train_step(void) {
    reference ref[2];
    uint64_t step[2] = {0, 0}, announced[2] = {0, 1};
    float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    int wrong = 0;
    for (int d = 0; d < 2; d++) crew_reference(&c, opener, &ref[d]);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(opener, 0, &c.cache));
    assert_int_equal(FRUGAL_OK, crew_announce(&c, &ref[1], joiner, 1, 0));
    assert_int_equal(FRUGAL_OK, crew_train(&c, opener, 0, &ref[0], &step[0], &announced[0], 1, &wrong));
    assert_int_equal(FRUGAL_OK, crew_train(&c, joiner, 1, &ref[1], &step[1], &announced[1], 1, &wrong));
    assert_false(wrong);
    if (frugal_drain(opener) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
    assert_true(crew_equals(opener, &ref[0], weights, state));
    static char text[65536]; /* the counts of the other device are only read here */
    assert_true(frugal_write_metrics(&joiner, NULL, 1, text, sizeof text) > 0);
    for (int d = 0; d < 2; d++) reference_close(&ref[d]);
}

static void leave(void) {
    assert_int_equal(FRUGAL_OK, frugal_close(joiner));
    joiner = NULL;
}

static void end(void) {
    assert_int_equal(FRUGAL_OK, frugal_close(opener));
    opener = NULL;
    if (!joiner) assert_int_equal(files_before, open_files());
}

/* Joining works, attaching and training, too. */
static void join_and_train(void) {
    join(), attach(), train_step(), leave();
}

/* >>strangers: a socket of the test's own, and messages that no process of this version sends */

static int knock(void) {
    struct sockaddr_un address;
    socklen_t bytes = name_address(c.name, &address);
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(file >= 0);
    assert_int_equal(0, connect(file, (struct sockaddr *)&address, bytes));
    return file;
}

static message message_of(message_kind kind, uint64_t number) {
    return (message){.magic = REGION_MAGIC,
                     .layout = REGION_LAYOUT,
                     .version = FRUGAL_VERSION,
                     .kind = (int32_t)kind,
                     .number = number};
}

/* Sends it, and returns the answer. */
static message ask(int file, const message *m, file_list *files) {
    message answer;
    assert_int_equal(sizeof *m, send(file, m, sizeof *m, MSG_NOSIGNAL));
    assert_int_equal(1, receive_message(file, &answer, files));
    assert_true(answer.kind == MESSAGE_ANSWER && answer.number == m->number);
    return answer;
}

static void expect_closed(int file) {
    char byte;
    assert_int_equal(0, recv(file, &byte, 1, 0));
    close(file);
}

/* A process of another version is told so, gets no descriptor, and can do nothing then. */
static void test_other_version(void **state) {
    (void)state;
    begin();
    for (int i = 0; i < 2; i++) {
        int file = knock();
        file_list files;
        message m = message_of(MESSAGE_HELLO, 5), answer;
        if (i == 0)
            m.version++;
        else
            m.layout++;
        answer = ask(file, &m, &files);
        assert_int_equal(FRUGAL_ERR_PROCESS, answer.status);
        assert_non_null(strstr(answer.text, "use one version"));
        assert_int_equal(0, files.n);
        m = message_of(MESSAGE_ATTACH, 6), m.d = 1;
        answer = ask(file, &m, NULL);
        assert_int_equal(FRUGAL_ERR_PROCESS, answer.status);
        assert_non_null(strstr(answer.text, "not been welcomed"));
        m = message_of(MESSAGE_COUNT, 7);
        answer = ask(file, &m, NULL);
        assert_int_equal(FRUGAL_ERR_PROCESS, answer.status);
        assert_non_null(strstr(answer.text, "not been welcomed"));
        close(file);
    }
    assert_false(is_counting(opener) || is_attached(opener, 1));
    join_and_train();
    end();
}

/* What is no message, or asks for nothing that there is, ends the connection; a device that there is none of is
 * refused. Others join nevertheless. */
static void test_strange_messages(void **state) {
    (void)state;
    begin();
    int file = knock();
    message m = message_of(MESSAGE_CALL, 1);
    assert_int_equal(sizeof m, send(file, &m, sizeof m, 0));
    expect_closed(file);
    file = knock(), m = message_of(MESSAGE_COUNT, 1), m.magic++;
    assert_int_equal(sizeof m, send(file, &m, sizeof m, 0));
    expect_closed(file);
    file = knock();
    assert_int_equal(3, send(file, "abc", 3, 0));
    expect_closed(file);
    assert_false(is_counting(opener));
    file_list files;
    file = knock(), m = message_of(MESSAGE_HELLO, 1);
    assert_int_equal(FRUGAL_OK, ask(file, &m, &files).status);
    assert_int_equal(3, files.n);
    for (uint32_t i = 0; i < files.n; i++) close(files.files[i]);
    assert_non_null(strstr(ask(file, &m, &files).text, "welcomed already")); /* descriptors are sent once */
    assert_int_equal(0, files.n);
    m = message_of(MESSAGE_ATTACH, 2), m.d = 2;
    assert_int_equal(FRUGAL_ERR_DEVICE, ask(file, &m, NULL).status);
    close(file);
    join_and_train();
    end();
}

static int knocks[MOST_MEMBERS];

/* All places are taken: by connections that say nothing, or by such as are welcome and then do nothing. */
static void crowd(int says_hello) {
    message m = message_of(MESSAGE_HELLO, 1);
    file_list files;
    for (int i = 0; i < MOST_MEMBERS; i++) {
        knocks[i] = knock();
        if (!says_hello) continue;
        assert_int_equal(FRUGAL_OK, ask(knocks[i], &m, &files).status);
        for (uint32_t k = 0; k < files.n; k++) close(files.files[k]);
    }
}

static void disperse(void) {
    for (int i = 0; i < MOST_MEMBERS; i++) close(knocks[i]);
}

/* One process takes all places, and attaches nothing: its oldest connection makes room for one that does. */
static void test_most_members(void **state) {
    (void)state;
    for (int says_hello = 0; says_hello < 2; says_hello++) {
        message last;
        begin();
        crowd(says_hello);
        join();
        assert_int_equal(1, receive_message(knocks[0], &last, NULL));
        assert_int_equal(FRUGAL_ERR_PROCESS, last.status);
        assert_non_null(strstr(last.text, "254 connections without a device"));
        attach(), train_step();
        int more = knock(); /* takes the place of another one, and not that of a device */
        disperse(), close(more);
        leave(), end();
    }
}

/* Descriptors are short instead of places. */
static void test_most_descriptors(void **state) {
    (void)state;
    begin();
    for (int i = 0; i < 3; i++) knocks[i] = knock();
    hinder(ACCEPT, 1, EMFILE);
    join(), attach(), train_step();
    assert_int_equal(0, atomic_load(&hindered[ACCEPT].n));
    for (int i = 0; i < 3; i++) close(knocks[i]);
    leave(), end();
}

/* What was dismissed is told why, and not that the other process has ended. */
static void test_dismissed(void **state) {
    (void)state;
    begin();
    join();
    crowd(0);
    while (!frugal_load_acquire(&joiner->loss.device)) usleep(1000);
    assert_fails(FRUGAL_ERR_PROCESS, frugal_cpu_attach(joiner, 1, NULL), "dismissed", "join again");
    leave(), disperse();
    join_and_train();
    end();
}

/* A process sends for ever, and reads no answer: it is dismissed, and keeps nobody waiting. */
static void test_deaf_member(void **state) {
    (void)state;
    static const message_kind kinds[] = {MESSAGE_HELLO, MESSAGE_COUNT, MESSAGE_ATTACH};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin();
        int file = knock();
        message m = message_of(kinds[i], 1);
        m.d = 9; /* there is none */
        while (send(file, &m, sizeof m, MSG_NOSIGNAL) == sizeof m) {
        }
        assert_true(errno == EPIPE || errno == ECONNRESET);
        join_and_train();
        close(file);
        end();
    }
}

/* >>users */

/* Only processes of the same user and of root come in, and only their instances are joined. A process in a name space
 * of its own is not seen: then there is nothing to watch but the socket. */
static void test_users(void **state) {
    (void)state;
    static const struct {
        int user, told[2];
        const char *refusal; /* NULL: there is none */
    } all[] = {{0, {TRUTH, TRUTH}, NULL},
               {0, {NOTHING, TRUTH}, "has not answered"},
               {0, {OTHER_USER, TRUTH}, "has not answered"},
               {0, {TRUTH, NOTHING}, "another user"},
               {0, {TRUTH, OTHER_USER}, "another user"},
               {0, {HIDDEN, HIDDEN}, NULL},
               {0, {ROOT, ROOT}, NULL},
               {1000, {ROOT, ROOT}, NULL},
               {1000, {OTHER_USER, ROOT}, "has not answered"},
               {1000, {ROOT, OTHER_USER}, "another user"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        atomic_store(&user_told, all[i].user);
        for (int side = 0; side < 2; side++) atomic_store(&peer_told[side], all[i].told[side]);
        begin();
        if (all[i].refusal) {
            assert_fails(FRUGAL_ERR_PROCESS, frugal_join(c.name, 0, &joiner), "join", all[i].refusal);
            frugal_close(joiner);
        } else {
            join();
            int hidden = all[i].told[1] == HIDDEN;
            assert_int_equal(hidden, joiner->shared.joined->watch < 0);
            assert_int_equal(hidden ? 0 : getpid(), joiner->shared.joined->process);
            attach(), train_step(), leave();
        }
        end();
    }
    atomic_store(&user_told, 0);
    for (int side = 0; side < 2; side++) atomic_store(&peer_told[side], TRUTH);
}

/* Who has the name is told by the refusal of an instance that wants it, too. */
static void test_taken_names(void **state) {
    (void)state;
    static const struct {
        int told;
        const char *text[2];
    } all[] = {{TRUTH, {"another instance", "join it"}},
               {OTHER_USER, {"another user, 4711", "choose another name"}},
               {NOTHING, {"another process", "choose another name"}}};
    begin();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        frugal *second;
        atomic_store(&peer_told[1], all[i].told);
        assert_fails(FRUGAL_ERR_PROCESS, frugal_open(&c.desc, &second), all[i].text[0], all[i].text[1]);
        frugal_close(second);
    }
    atomic_store(&peer_told[1], TRUTH);
    join_and_train();
    end();
}

/* >>calls that fail, or are interrupted */

/* The doorman and the attendant go on after whatever keeps them from waiting or accepting. */
static void test_waits_that_fail(void **state) {
    (void)state;
    uint64_t key = 3;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    begin();
    hinder(ACCEPT, 2, EMFILE);
    join();
    hinder(POLL_DOORMAN, 2, EINTR);
    attach();
    train_step();
    assert_int_equal(FRUGAL_OK, frugal_begin_counting(joiner));
    hinder(POLL_ATTENDANT, 2, ENOMEM);
    for (int i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_preload(opener, 1, &keys));
    for (int i = 0; i < HINDERED; i++) assert_int_equal(0, atomic_load(&hindered[i].n));
    leave(), end();
}

/* A message is sent again after an interruption, and for a second if memory is short; any other error is the end.
 * Joining is tried again, within its time, as long as somebody else may take the name. */
static void test_messages_that_fail(void **state) {
    (void)state;
    static const struct {
        int call, n, error, left; /* left: failures that are not met any more; -1: joining succeeds */
        double seconds;
    } all[] = {{SEND, 3, EINTR, -1, 30},         {SEND, 2, ENOBUFS, -1, 30},     {SEND, 2, ENOMEM, -1, 30},
               {SEND, 1000, ENOMEM, 899, 0},     {SEND, 1, EPIPE, 0, 0},         {SEND, 1, EPIPE, -1, 30},
               {RECEIVE, 2, EINTR, -1, 30},      {RECEIVE, 1, ECONNRESET, 0, 0}, {CONNECT, 2, EAGAIN, -1, 30},
               {RECEIVE, 1, ECONNRESET, -1, 30}, {CONNECT, 2, EINTR, -1, 30},    {CONNECT, 2, ECONNREFUSED, -1, 30}};
    begin();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hinder(all[i].call, all[i].n, all[i].error);
        frugal_status status = frugal_join(c.name, all[i].seconds, &joiner);
        assert_int_equal(all[i].left < 0 ? 0 : all[i].left, atomic_load(&hindered[all[i].call].n));
        hinder(all[i].call, 0, 0);
        assert_int_equal(all[i].left < 0 ? FRUGAL_OK : FRUGAL_ERR_PROCESS, status);
        if (status != FRUGAL_OK) assert_non_null(strstr(frugal_message(), "has not answered"));
        frugal_close(joiner);
    }
    join_and_train();
    end();
}

/* Joins, attaches and counts while the nth call of the system fails, on whichever side; what has failed works at the
 * next attempt, with the same instance if it had been joined. Returns whether a call failed. */
static int try_failing(int call, int at, int error) {
    crew_init(&c, 7);
    c.cache.cache_rows = 16;
    c.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD; /* its state is a part of its own */
    files_before = open_files();
    open_crew();
    let_files_fail(call, at, error, 0);
    frugal_status status[3] = {frugal_join(c.name, 30, &joiner)};
    if (status[0] == FRUGAL_OK) status[1] = frugal_cpu_attach(joiner, 1, &c.cache);
    if (status[0] == FRUGAL_OK) status[2] = frugal_begin_counting(joiner);
    int failed = atomic_load(&failing_files.failures);
    let_files_fail(0, 0, 0, 0);
    for (int i = 0; i < 3; i++)
        if (status[i] != FRUGAL_OK && (!failed || (status[i] != FRUGAL_ERR_MEMORY && status[i] != FRUGAL_ERR_PROCESS &&
                                                   status[i] != FRUGAL_ERR_WORKER)))
            fail_msg("call %d, %d: part %d: %d: %s", call, at, i, (int)status[i], frugal_message());
    if (status[0] != FRUGAL_OK) {
        frugal_close(joiner);
        join();
        status[1] = FRUGAL_ERR_MEMORY;
    }
    if (status[1] != FRUGAL_OK) attach();
    assert_int_equal(FRUGAL_OK, frugal_begin_counting(joiner));
    train_step(), leave(), end();
    return failed;
}

static void test_every_call_failing(void **state) {
    (void)state;
    int at = 1;
    while (try_failing(CALL_SYSTEM, at, ENOMEM)) at++;
    assert_true(at > 40);
    for (at = 1; try_failing(CALL_GROW, at, ENOSPC);) at++; /* of counts, in the process that opened */
    assert_true(at > 1);
}

/* The table's file cannot be opened once more for a process that joins. */
static void test_table_file_that_fails(void **state) {
    (void)state;
    crew_init(&c, 7);
    c.desc.file = scratch_path("table");
    files_before = open_files();
    open_crew();
    let_files_fail(CALL_OPEN, 1, EMFILE, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_join(c.name, 30, &joiner), "cannot make what joining needs", strerror(EMFILE));
    let_files_fail(0, 0, 0, 0);
    frugal_close(joiner);
    join_and_train();
    end();
    scratch_end();
}

/* >>answers that do not come */

static void count_silence(const char *text, void *user) {
    *(int *)user += strstr(text, "which opened the instance, has not answered for 0.005 s") != NULL;
}

/* Waits for an answer end some time: the process that opened does not get to it, because the test has a lock that it
 * needs. When it does, the answer is too late, and the device is the process's at the next attempt. */
static void test_late_answer(void **state) {
    (void)state;
    int told_of_it = 0;
    crew_init(&c, 7);
    c.desc.stuck_seconds = 0.01;
    files_before = open_files();
    open_crew();
    join();
    assert_int_equal(FRUGAL_OK, frugal_on_notice(joiner, count_silence, &told_of_it));
    pthread_mutex_lock(&opener->settings.lock);
    assert_fails(FRUGAL_ERR_STUCK, frugal_cpu_attach(joiner, 1, NULL), "which opened the instance", "0.01 s");
    assert_int_equal(1, told_of_it);
    assert_false(is_attached(joiner, 1));
    pthread_mutex_unlock(&opener->settings.lock);
    frugal_cpu_desc cache = {.cache_rows = 0};
    if (frugal_cpu_attach(joiner, 1, &cache) != FRUGAL_OK) fail_msg("once more: %s", frugal_message());
    assert_true(is_attached(joiner, 1) && is_attached(opener, 1));
    leave(), end();
}

/* No wait depends on the wall clock. */
static void test_stepped_clock(void **state) {
    (void)state;
    atomic_store(&clock_step, 100); /* stuck_seconds is 60 */
    begin();
    join_and_train();
    end();
    atomic_store(&clock_step, 0);
}

/* However long a process is ready to wait. */
static void test_long_waits(void **state) {
    (void)state;
    static const double seconds[] = {-1, 1e30, INFINITY};
    for (int i = 0; i < 3; i++) {
        crew_init(&c, 7);
        c.desc.stuck_seconds = seconds[i];
        files_before = open_files();
        open_crew();
        assert_int_equal(FRUGAL_OK, frugal_join(c.name, i ? seconds[i] : 30, &joiner));
        attach(), train_step(), leave(), end();
    }
}

/* Somebody else has the name, and answers like this. */
typedef struct impostor {
    int listening;
    frugal_status status;
    uint32_t files;
} impostor;

static void *pretend(void *argument) {
    const impostor *i = argument;
    message m, answer = {.kind = MESSAGE_ANSWER, .status = i->status, .text = "as it is told"};
    file_list files = {.n = i->files, .files = {i->listening, i->listening}};
    int file = accept(i->listening, NULL, NULL), came = receive_message(file, &m, NULL) == 1;
    answer.number = m.number;
    if (came) send_message(file, &answer, &files);
    recv(file, &answer, 1, 0); /* until it is closed there */
    close(file);
    return NULL;
}

static void test_impostors(void **state) {
    (void)state;
    static const struct {
        frugal_status status;
        uint32_t files;
        const char *text;
    } all[] = {{FRUGAL_OK, 0, "has sent no memory"},
               {FRUGAL_OK, 1, "has sent no memory"},
               {FRUGAL_ERR_ORDER, 0, "join: as it is told"},
               {FRUGAL_ERR_ORDER, 2, "join: as it is told"}};
    int before = open_files();
    struct sockaddr_un address;
    crew_init(&c, 7);
    impostor i = {.listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    socklen_t bytes = name_address(c.name, &address);
    assert_int_equal(0, bind(i.listening, (struct sockaddr *)&address, bytes));
    assert_int_equal(0, listen(i.listening, 8));
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        pthread_t thread;
        i.status = all[k].status, i.files = all[k].files;
        assert_int_equal(0, pthread_create(&thread, NULL, pretend, &i));
        frugal_status wanted = i.status == FRUGAL_OK ? FRUGAL_ERR_PROCESS : i.status;
        assert_fails(wanted, frugal_join(c.name, 30, &joiner), "join", all[k].text);
        frugal_close(joiner);
        pthread_join(thread, NULL);
    }
    /* one that does not answer at all */
    assert_fails(FRUGAL_ERR_PROCESS, frugal_join(c.name, 0, &joiner), "join", "has not answered");
    frugal_close(joiner);
    close(i.listening);
    assert_int_equal(before, open_files());
}

/* >>devices */

/* Another thread attaches a device just before this one would: it is told so. */
static int attached_before;

static void attach_before(void) {
    attached_before = frugal_cpu_attach(opener, 1, &c.cache) == FRUGAL_OK;
}

static void test_attached_meanwhile(void **state) {
    (void)state;
    for (int is_remote = 0; is_remote < 2; is_remote++) {
        begin();
        join();
        c.cache.policy = FRUGAL_CACHE_LRU; /* which asks for no counts, so the first lock is the one that is meant */
        attached_before = 0;
        before_lock = attach_before;
        atomic_store(&watched_lock, &opener->settings.lock);
        assert_fails(FRUGAL_ERR_DEVICE, frugal_cpu_attach(is_remote ? joiner : opener, 1, &c.cache), "device 1",
                     "attached already");
        assert_true(attached_before && is_attached(opener, 1) && !remote_of(opener, 1) && !is_attached(joiner, 1));
        assert_int_equal(FRUGAL_OK, frugal_announce(opener, 1, 0, &(frugal_batch){.n_segments = 0}));
        leave(), end();
    }
}

/* A device of which the test says what its operations return. */
static _Atomic(frugal_status) returned; /* these two also by the attendant */
static atomic_int calls;
static char long_text[400];

static frugal_status say_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static frugal_status say_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static frugal_status say_rows(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    calls++;
    return returned == FRUGAL_OK ? returned : frugal_fail(returned, "%s", long_text);
}
static int say_verify(void *device) {
    (void)device;
    calls++;
    return returned == FRUGAL_OK;
}
static void say_nothing(void *device) {
    (void)device;
}
static int say_yes(void *device) {
    (void)device;
    return 1;
}

static void say_cancelled(void *device) {
    (void)device;
    calls++;
}
static frugal_status say_recount(void *device) {
    (void)device;
    calls++;
    return returned;
}
static frugal_status say_poll(void *device, uint64_t *done) {
    (void)device;
    *done = 0;
    calls++;
    return returned;
}
static frugal_status say_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    (void)device, (void)step, (void)done, (void)rows, (void)n;
    return FRUGAL_OK;
}
static int say_recalled(void *device, uint64_t step) {
    (void)device, (void)step;
    return 1;
}

/* What a device of another process returns is what the process that opened is told; a message that is too long for the
 * mailbox is cut. Operations that the device does not have are none of its failures. */
static void test_answers_of_devices(void **state) {
    int has_all = (int)(intptr_t)*state;
    frugal_device_ops ops = {.lookup = say_lookup,
                             .update = say_update,
                             .preload = say_rows,
                             .verify = say_verify,
                             .empty = say_nothing,
                             .close = say_nothing,
                             .updates_in_place = say_yes,
                             .write_back = say_rows};
    if (has_all) ops.cancelled = say_cancelled, ops.recount = say_recount, ops.poll = say_poll;
    if (has_all) ops.recall = say_recall, ops.recalled = say_recalled; /* wanted with `poll` */
    uint64_t key = 3;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1}, no_keys = {.n = 0};
    memset(long_text, 'x', sizeof long_text - 1);
    crew_init(&c, 7);
    c.desc.alone = FRUGAL_ALONE_KEPT;
    files_before = open_files();
    open_crew(), join();
    assert_int_equal(FRUGAL_OK, frugal_attach(joiner, 1, &ops, NULL));
    remote *r = remote_of(opener, 1);
    for (int fails = 0; fails < 2; fails++) {
        atomic_store(&returned, fails ? FRUGAL_ERR_CUDA : FRUGAL_OK);
        atomic_store(&calls, 0);
        assert_int_equal(returned, frugal_preload(opener, 1, &keys));
        if (fails) assert_int_equal(sizeof r->mail->reply_text - 1, strlen(r->mail->reply_text));
        if (fails) assert_non_null(strstr(frugal_message(), "FRUGAL_ERR_CUDA: xxx"));
        assert_int_equal(fails ? FRUGAL_ERR_COPY : FRUGAL_OK, frugal_verify(opener));
        hold_copies(&opener->devices[1]);
        assert_int_equal(returned, remote_write_back(r, NULL, 0));
        release_copies(&opener->devices[1]);
        assert_int_equal(has_all && !fails ? 4 : 3, calls); /* it is polled after it has written back */
    }
    atomic_store(&returned, FRUGAL_OK);
    atomic_store(&calls, 0);
    assert_int_equal(FRUGAL_OK, frugal_begin_counting(opener));
    assert_int_equal(FRUGAL_OK, frugal_set_counts(opener, &no_keys, NULL)); /* recount */
    assert_int_equal(FRUGAL_OK, frugal_announce(joiner, 1, 0, &(frugal_batch){.n_segments = 0}));
    assert_int_equal(FRUGAL_OK, frugal_cancel(opener, 0)); /* cancelled */
    assert_int_equal(FRUGAL_OK, frugal_finish(joiner, 1));
    assert_int_equal(FRUGAL_OK, frugal_cancel(opener, 0)); /* its end stays */
    assert_int_equal(has_all ? 3 : 0, calls);
    assert_true(has_finished(joiner, 1, 0) && has_finished(opener, 1, 0));
    leave(), end();
}

/* Rows are written of which the one device, in place, of another process may have copies: it is told of them, or, if it
 * cannot refresh some, or fails, drops all. */
static _Atomic(uint32_t) dropped[2], n_dropped, emptied; /* by the attendant; it answers by memory mapped elsewhere */

static frugal_status say_drop(void *device, const uint32_t *rows, uint32_t n) {
    (void)device;
    for (uint32_t i = 0; i < n; i++) dropped[n_dropped++ % 2] = rows[i];
    return returned == FRUGAL_OK ? returned : frugal_fail(returned, "it drops nothing");
}
static void say_empty(void *device) {
    (void)device;
    emptied++;
}

static void test_rows_written_beside_copies(void **state) {
    int has_drop = (int)(intptr_t)*state;
    frugal_device_ops ops = {.lookup = say_lookup,
                             .update = say_update,
                             .empty = say_empty,
                             .refresh = has_drop ? say_drop : NULL,
                             .close = say_nothing,
                             .updates_in_place = say_yes};
    const uint64_t some[2] = {7, 3};
    const frugal_keys keys = {.table = 1, .keys = some, .n = 2};
    float weights[2 * CREW_DIM] = {0}, read[2 * CREW_DIM];
    crew_init(&c, 9);
    c.desc.devices = 1, c.desc.alone = FRUGAL_ALONE_PLACE;
    files_before = open_files();
    n_dropped = emptied = 0;
    atomic_store(&returned, FRUGAL_OK);
    open_crew();
    assert_int_equal(FRUGAL_OK, frugal_write_rows(opener, &keys, weights, NULL)); /* no device is attached yet */
    join();
    assert_int_equal(FRUGAL_OK, frugal_attach(joiner, 0, &ops, NULL));
    assert_int_equal(0, n_dropped + emptied);
    weights[0] = 5;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(opener, &keys, weights, NULL));
    assert_int_equal(has_drop ? 2 : 0, n_dropped);
    assert_int_equal(has_drop ? 0 : 1, emptied);
    if (has_drop) assert_true(dropped[0] == 47 && dropped[1] == 43);
    atomic_store(&returned, FRUGAL_ERR_CUDA);
    weights[0] = 6;
    if (has_drop)
        assert_fails(FRUGAL_ERR_CUDA, frugal_write_rows(opener, &keys, weights, NULL), "it drops nothing", "");
    else
        assert_int_equal(FRUGAL_OK, frugal_write_rows(opener, &keys, weights, NULL));
    assert_int_equal(has_drop ? 1 : 2, emptied);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(opener, &keys, read, NULL));
    assert_true(read[0] == 6);
    leave(), end();
}

/* A call for a device that this process does not have is not answered, and the next one is. */
static void test_calls_for_others(void **state) {
    (void)state;
    uint64_t key = 3;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    begin();
    join(), attach();
    const remote *r = remote_of(opener, 1);
    for (uint32_t d = 0; d < 3; d++) {
        message m = {.kind = MESSAGE_CALL, .d = d, .call = CALL_EMPTY, .number = 77};
        if (d != 1) assert_int_equal(0, send_message(r->member->socket, &m, NULL));
    }
    assert_int_equal(FRUGAL_OK, frugal_preload(opener, 1, &keys));
    assert_int_equal(0, frugal_load_relaxed(&opener->devices[0].box->replies));
    assert_int_equal(1, frugal_load_relaxed(&opener->devices[1].box->replies));
    leave(), end();
}

/* A process leaves after another one has ended training: that loss is the one that is reported. */
static void test_leaves_after_a_loss(void **state) {
    (void)state;
    crew_init(&c, 7);
    c.desc.devices = 3;
    files_before = open_files();
    open_crew();
    frugal *other;
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(opener, 0, &c.cache));
    join(), attach();
    assert_int_equal(FRUGAL_OK, frugal_join(c.name, 30, &other));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(other, 2, &c.cache));
    assert_int_equal(FRUGAL_OK, frugal_announce(joiner, 1, 0, &(frugal_batch){.n_segments = 0}));
    leave(); /* in the middle of a step */
    assert_fails(FRUGAL_ERR_LOST, frugal_announce(other, 2, 0, &(frugal_batch){.n_segments = 0}), "device 1 was lost",
                 "has left before the end of its data");
    assert_int_equal(FRUGAL_OK, frugal_close(other));
    frugal_stats stats;
    frugal_get_stats(opener, &stats);
    assert_int_equal(0, stats.steps);
    assert_int_equal(FRUGAL_OK, frugal_announce(opener, 0, 0, &(frugal_batch){.n_segments = 0}));
    assert_fails(FRUGAL_ERR_LOST, frugal_lookup(opener, 0, 0, NULL), "device 1 was lost", "has left");
    end();
}

/* Closing waits for a device of another process that is in the middle of an update. */
static int waited;

static void end_update(void) {
    waited = 1;
    end_writing(joiner, 1);
}

static void test_close_during_an_update(void **state) {
    (void)state;
    begin();
    join(), attach();
    assert_int_equal(FRUGAL_OK, begin_writing(joiner, 1, "update"));
    waited = 0;
    before_sleep = end_update;
    end();
    assert_true(waited);
    assert_int_equal(FRUGAL_STOPPED, begin_writing(joiner, 1, "update"));
    leave();
}

/* ... but not for ever: a process that is stopped meanwhile is named, and the table in its file is torn. */
static void test_close_beside_a_stopped_process(void **state) {
    (void)state;
    char process[32];
    snprintf(process, sizeof process, "process %u", (unsigned)getpid());
    for (int in_file = 0; in_file < 2; in_file++) {
        crew_init(&c, 7);
        c.desc.stuck_seconds = 0.02;
        if (in_file) c.desc.file = scratch_path("table");
        open_crew();
        join(), attach();
        assert_int_equal(FRUGAL_OK, begin_writing(joiner, 1, "update"));
        assert_fails(FRUGAL_ERR_STUCK, frugal_close(opener), process, in_file ? "is torn" : "device 1");
        end_writing(joiner, 1);
        leave();
        if (!in_file) continue;
        c.desc.name = NULL;
        assert_fails(FRUGAL_ERR_FILE, frugal_open(&c.desc, &opener), "torn", "restore it from a save");
        frugal_close(opener);
    }
    scratch_end();
}

/* A process that lives and is dismissed while it writes rows is waited for all the same. */
static void test_dismissed_during_an_update(void **state) {
    (void)state;
    begin();
    join(), attach();
    assert_int_equal(FRUGAL_OK, begin_writing(joiner, 1, "update"));
    assert_int_equal(1, send(joiner->shared.joined->socket, "x", 1, MSG_NOSIGNAL));
    while (!frugal_load_acquire(&opener->loss.device)) usleep(1000);
    assert_non_null(strstr(opener->loss.message, "no message of this version"));
    assert_true(is_posting(opener, 1));
    before_sleep = end_update;
    end();
    assert_true(waited);
    leave();
}

/* A size that no machine has. */
static void test_impossible_part(void **state) {
    (void)state;
    memory_part part;
    begin();
    uint64_t used = opener->shared.used;
    assert_null(allocate_shared(opener, SIZE_MAX / 2, CACHE_LINE, &part));
    assert_int_equal(used, opener->shared.used);
    join_and_train();
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_strange_messages),
        cmocka_unit_test(test_most_members),
        cmocka_unit_test(test_most_descriptors),
        cmocka_unit_test(test_dismissed),
        cmocka_unit_test(test_deaf_member),
        cmocka_unit_test(test_taken_names),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_waits_that_fail),
        cmocka_unit_test(test_messages_that_fail),
        cmocka_unit_test(test_every_call_failing),
        cmocka_unit_test(test_table_file_that_fails),
        cmocka_unit_test(test_late_answer),
        cmocka_unit_test(test_stepped_clock),
        cmocka_unit_test(test_long_waits),
        cmocka_unit_test(test_impostors),
        cmocka_unit_test(test_attached_meanwhile),
        CASE("test_answers_of_devices", test_answers_of_devices, 0),
        CASE("test_answers_of_devices, which have all operations", test_answers_of_devices, 1),
        CASE("rows written beside a device without drop", test_rows_written_beside_copies, 0),
        CASE("rows written beside a device with drop", test_rows_written_beside_copies, 1),
        cmocka_unit_test(test_calls_for_others),
        cmocka_unit_test(test_leaves_after_a_loss),
        cmocka_unit_test(test_close_during_an_update),
        cmocka_unit_test(test_dismissed_during_an_update),
        cmocka_unit_test(test_close_beside_a_stopped_process),
        cmocka_unit_test(test_impossible_part),
    };
    struct rlimit files; /* four for each process that has joined */
    if (getrlimit(RLIMIT_NOFILE, &files)) return 1;
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    if (setrlimit(RLIMIT_NOFILE, &files)) return 1;
    main_thread = pthread_self();
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
