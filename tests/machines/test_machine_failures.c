/* test_machine_failures.c - what goes wrong between machines has a name: a message that never comes, a machine that is
 * lost or closes too early, settings and calls that differ. The machines are threads, and the wires those of wires.h.
 * And the small calls: frugal_home, frugal_exchange, counts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "../../frugal_serve.h"
#include "../scratch.h"
#include "pair.h"

/* >>drop: by tag, as src/machines/machines.h numbers them */

enum { KIND_KEYS, KIND_EARLY, KIND_ROWS, KIND_RECORDS, KINDS };
typedef struct drop {
    const char *name;
    uint32_t from, tag;
    uint64_t at;
    const char *step;
    pair p;
    pthread_t thread;
} drop;
static void *drop_main(void *of) {
    drop *d = of;
    pair_run(&d->p, train_and_drain);
    return NULL;
}
/* A message from machine 0, of its device 0 or to device 1. Both wait, for each other or for the message; nobody waits
 * for ever, or is told of something else. All kinds at the same time. */
static void test_dropped(void **state) {
    (void)state;
    static drop drops[] = {{"keys", 0, KIND_KEYS, 6, "step 5", .thread = 0},
                           {"early rows", 0, 4 + KIND_EARLY, 6, "step 5", .thread = 0},
                           {"rows", 0, 4 + KIND_ROWS, 6, "step 5", .thread = 0},
                           {"records", 0, KIND_RECORDS, 6, "step 5", .thread = 0}};
    enum { DROPS = sizeof drops / sizeof *drops };
    for (int i = 0; i < DROPS; i++) {
        wires_options options = {.seed = (uint64_t)i, .delay = 3, .buffered = 50};
        options.drop_from = drops[i].from, options.drop_tag = drops[i].tag, options.drop_at = drops[i].at;
        pair_make(&drops[i].p, options, 2);
        if (pthread_create(&drops[i].thread, NULL, drop_main, &drops[i])) abort();
    }
    for (int i = 0; i < DROPS; i++) pthread_join(drops[i].thread, NULL);
    for (int i = 0; i < DROPS; i++) {
        assert_int_equal(drops[i].p.w.dropped, 1);
        for (uint32_t me = 0; me < 2; me++) {
            side *s = &drops[i].p.sides[me];
            char machine[20];
            snprintf(machine, sizeof machine, "machine %u", !me);
            if (s->status != FRUGAL_ERR_STUCK) fail_msg("%s: machine %u: %s", drops[i].name, me, s->message);
            said(s->message, machine, drops[i].name, me);
            said(s->message, "step ", drops[i].name, me);
            said(s->told, machine, drops[i].name, me);
            said(s->told, "step ", drops[i].name, me);
            fprintf(stderr, "# %s, machine %u: %s\n", drops[i].name, me, s->message);
        }
    }
}

/* >>lost */

static void expect_lost(const pair *p, uint32_t me, const char *why) {
    const side *s = &p->sides[me];
    char machine[20];
    snprintf(machine, sizeof machine, "machine %u", !me);
    if (s->status != FRUGAL_ERR_LOST) fail_msg("machine %u: status %d: %s", me, (int)s->status, s->message);
    said(s->message, machine, "lost", me);
    said(s->message, "step ", "lost", me);
    said(s->message, why, "lost", me);
}
static void test_lost(void **state) { /* at any message: in training, in a drain, while opening */
    (void)state;
    for (uint64_t at = 1; at < 60; at += at < 6 ? 1 : 9) {
        pair p;
        pair_make(&p, (wires_options){.seed = at, .buffered = 100, .lose = at % 2, .lose_at = at}, 60);
        pair_run(&p, train_and_drain);
        for (uint32_t me = 0; me < 2; me++) expect_lost(&p, me, "cut its wires");
    }
}
/* Machine 1 ends after 5 steps; machine 0 goes on. */
static void *leaver_main(void *of) {
    side *s = of;
    frugal *f = NULL;
    if (keep(s, frugal_open(&s->pair->desc[s->me], &f)) == FRUGAL_OK &&
        keep(s, frugal_cpu_attach(f, s->me, NULL)) == FRUGAL_OK)
        train(s, f, 0, s->me ? 5 : STEPS);
    frugal_close(f);
    return NULL;
}
static void test_left(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        pair p;
        pair_make(&p, (wires_options){.seed = seed, .delay = 5, .buffered = 30 * (unsigned)seed}, 60);
        for (uint32_t i = 0; i < 2; i++)
            if (pthread_create(&p.sides[i].thread, NULL, leaver_main, &p.sides[i])) abort();
        for (uint32_t i = 0; i < 2; i++) pthread_join(p.sides[i].thread, NULL);
        wires_destroy(&p.w);
        assert_int_equal(p.sides[1].status, FRUGAL_OK);
        expect_lost(&p, 0, "has closed its instance");
    }
}

/* >>differences */

typedef struct difference {
    const char *what, *values[2];
    void (*make)(pair *p);
} difference;
static void other_dim(pair *p) {
    p->desc[1].dim = 5;
}
static void other_keys(pair *p) {
    p->desc[1].max_keys = 9;
}
static void other_lookahead(pair *p) {
    p->desc[1].lookahead = 4;
}
static void other_seed(pair *p) {
    p->desc[1].seed = 77;
}
static void other_rows(pair *p) {
    p->tables[1][1].rows = ROWS + 2;
}
static void other_optimizer(pair *p) {
    p->own[1] = (frugal_optimizer){.weight_decay = .25f};
    p->tables[1][1].optimizer = &p->own[1];
}
static void other_deal(pair *p) {
    p->machines[1].deal = FRUGAL_DEAL_BLOCKS;
}
static void other_type(pair *p) {
    p->desc[1].rows_as = FRUGAL_BF16;
}
static void other_tables(pair *p) {
    p->desc[1].n_tables = 1;
}
static void nothing(side *s, frugal *f) {
    (void)s, (void)f;
}
static void other_homes(pair *p) {
    static const uint8_t homes[2][2 * ROWS] = {{0, 1}, {1, 0}};
    for (int i = 0; i < 2; i++) p->machines[i].deal = FRUGAL_DEAL_LISTED, p->machines[i].homes = homes[i];
}
/* Machine 1 says in its first message that it is another version. */
static frugal_status send_as_another(void *self, uint32_t request, const frugal_parcel *parcel) {
    uint32_t version = 77, now;
    memcpy(&now, (char *)parcel->head + 32, sizeof now);
    if (now == FRUGAL_VERSION) memcpy((char *)parcel->head + 32, &version, sizeof version);
    return wires_send(self, request, parcel);
}
static void test_versions(void **state) {
    (void)state;
    pair p;
    char text[80];
    pair_make(&p, (wires_options){.seed = 1, .delay = 3}, 2);
    p.wire[1].send = send_as_another;
    pair_run(&p, nothing);
    const side *s = &p.sides[0];
    if (s->status != FRUGAL_ERR_SETTINGS) fail_msg("versions: %d: %s", (int)s->status, s->message);
    snprintf(text, sizeof text, "machine 1 has version 77 of Frugal, and this one, 0, has %u", FRUGAL_VERSION);
    said(s->message, text, "versions", 0);
}
static void test_differences(void **state) {
    (void)state;
    static const difference all[] = {
        {"dim is", {"3", "5"}, other_dim},
        {"max_keys is", {"4", "9"}, other_keys},
        {"lookahead is", {"2", "4"}, other_lookahead},
        {"seed", {"0", "77"}, other_seed},
        {"table 1: rows is", {"8", "10"}, other_rows},
        {"table 1: weight_decay is", {"0", "0.25"}, other_optimizer},
        {"deal is", {"0", "1"}, other_deal},
        {"rows_as is", {"0", "1"}, other_type},
        {"tables is", {"2", "1"}, other_tables},
        {"crc32c of homes is", {"", ""}, other_homes},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pair p;
        pair_make(&p, (wires_options){.seed = i, .delay = 3}, 60);
        all[i].make(&p);
        pair_run(&p, nothing);
        for (uint32_t me = 0; me < 2; me++) {
            char text[80];
            const side *s = &p.sides[me];
            if (s->status != FRUGAL_ERR_SETTINGS) fail_msg("%s: %d: %s", all[i].what, (int)s->status, s->message);
            said(s->message, all[i].what, all[i].what, me);
            if (all[i].values[0][0] == 0) continue; /* sums of what is listed */
            snprintf(text, sizeof text, "%s on machine %u, and %s on this one, %u", all[i].values[!me], !me,
                     all[i].values[me], me);
            said(s->message, text, all[i].what, me);
        }
    }
}
static void drain_or_exchange(side *s, frugal *f) {
    uint32_t mine = 1, all[2];
    keep(s, s->me ? frugal_exchange(f, &mine, sizeof mine, all) : frugal_drain(f));
}
static void exchange_other_sizes(side *s, frugal *f) {
    char mine[9] = "", all[18];
    keep(s, frugal_exchange(f, mine, 8 + s->me, all));
}
static void drain_alone(side *s, frugal *f) {
    if (s->me == 0) keep(s, frugal_drain(f));
}
static void read_alone(side *s, frugal *f) {
    uint64_t key = 0;
    float row[DIM];
    if (s->me == 0) keep(s, frugal_read_rows(f, &(frugal_keys){.keys = &key, .n = 1}, row, NULL));
}
static void test_calls_differ(void **state) {
    (void)state;
    pair p;
    pair_make(&p, (wires_options){.seed = 1}, 60);
    pair_run(&p, drain_or_exchange);
    for (uint32_t me = 0; me < 2; me++) {
        assert_int_equal(p.sides[me].status, FRUGAL_ERR_ARGUMENT);
        said(p.sides[me].message, "drain", "calls", me), said(p.sides[me].message, "exchange", "calls", me);
        said(p.sides[me].message, me ? "machine 0" : "machine 1", "calls", me);
    }
    pair_make(&p, (wires_options){.seed = 2}, 60);
    pair_run(&p, exchange_other_sizes);
    for (uint32_t me = 0; me < 2; me++) {
        assert_int_equal(p.sides[me].status, FRUGAL_ERR_ARGUMENT);
        said(p.sides[me].message, me ? "with 8 bytes" : "with 9 bytes", "sizes", me);
    }
    pair_make(&p, (wires_options){.seed = 3}, .5);
    pair_run(&p, drain_alone);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_STUCK);
    said(p.sides[0].message, "machine 1 has not called drain", "alone", 0);
    pair_make(&p, (wires_options){.seed = 4}, .5);
    pair_run(&p, read_alone);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_STUCK);
    said(p.sides[0].message, "machine 1 has not called read_rows", "alone", 0);
}

/* Tables in files: each machine opens its own, and all are of the same step. */
static void run_files(pair *p, const char *first, const char *second) {
    pair_make(p, (wires_options){.seed = 9, .delay = 3}, 60);
    p->desc[0].file = first, p->desc[1].file = second;
    pair_run(p, nothing);
}
static void test_files(void **state) {
    (void)state;
    const char *names[2] = {scratch_path("first"), scratch_path("second")};
    pair p;
    for (int i = 0; i < 2; i++) { /* new, then kept */
        run_files(&p, names[0], names[1]);
        for (uint32_t me = 0; me < 2; me++)
            if (p.sides[me].status != FRUGAL_OK) fail_msg("files: machine %u: %s", me, p.sides[me].message);
    }
    run_files(&p, names[1], names[0]);
    for (uint32_t me = 0; me < 2; me++) {
        assert_int_equal(p.sides[me].status, FRUGAL_ERR_FILE);
        said(p.sides[me].message, "part of rows dealt over machines", "files", me);
    }
    frugal_server *server; /* it would take keys for rows that are elsewhere */
    expect_failure(FRUGAL_ERR_FILE, frugal_serve_open(&(frugal_serve_desc){.from.file = names[0]}, &server),
                   "rows of one of several machines", "frugal_file merge", "frugal_serve_open", __LINE__);
    assert_int_equal(remove(names[0]), 0);
    run_files(&p, names[0], names[1]);
    for (uint32_t me = 0; me < 2; me++) {
        assert_int_equal(p.sides[me].status, FRUGAL_ERR_SETTINGS);
        said(p.sides[me].message,
             me ? "is -1 on machine 0, and 0 on this one" : "is 0 on machine 1, and -1 on this one", "files", me);
        said(p.sides[me].message, "file's step (-1: new)", "files", me);
    }
    scratch_end();
}

/* >>refusals, of one machine alone */

static void refuse(frugal_status wanted, const pair *p, const char *a, const char *b, int line) {
    frugal *f;
    expect_failure(wanted, frugal_open(&p->desc[0], &f), a, b, "frugal_open", line);
    frugal_close(f);
}
static void pair_drop(pair *p) {
    wires_destroy(&p->w);
    pthread_barrier_destroy(&p->barrier);
}
static void test_refusals(void **state) {
    (void)state;
    pair p;
    uint8_t homes[2 * ROWS] = {0, 1};
    pair_make(&p, (wires_options){.seed = 1}, 60);
    p.machines[0].wire = NULL;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "machines", "wire", __LINE__);
    p.machines[0].wire = &p.wire[0], p.wire[0].done = NULL;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "machines", "function", __LINE__);
    p.wire[0] = wires_of(&p.w, 0), p.wire[0].machine = 2;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "machine 2 of 2", "254", __LINE__);
    p.wire[0] = wires_of(&p.w, 0), p.desc[0].devices = 3;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "3 devices", "2 machines", __LINE__);
    p.desc[0].devices = 2, p.desc[0].name = "/frugal_test", p.desc[0].workers = 1;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "name", "machines", __LINE__);
    p.desc[0].name = NULL, p.wire[0].most_bytes = 100;
    refuse(FRUGAL_ERR_LIMIT, &p, "100 at most", "max_keys", __LINE__);
    p.wire[0].most_bytes = 0, p.machines[0].deal = FRUGAL_DEAL_LISTED;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "homes", "NULL", __LINE__);
    homes[3] = 2, p.machines[0].homes = homes;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "homes[3] is 2", "2 machines", __LINE__);
    homes[1] = homes[3] = 0;
    refuse(FRUGAL_ERR_ARGUMENT, &p, "machine 1 would have none", "16 rows", __LINE__);
    pair_drop(&p);
}

/* >>calls */

static void small_calls(side *s, frugal *f) {
    uint32_t home = 9, me = s->me;
    struct {
        uint64_t a;
        unsigned char b[13];
    } mine = {me + 5, {(unsigned char)me}}, all[2];
    frugal_wire_counts counts;
    float rows[KEYS * DIM];
    uint64_t key = 0;
    s->status = FRUGAL_ERR_STUCK; /* not at the end */
    for (uint32_t table = 0; table < 2; table++)
        for (key = 0; key < ROWS; key++)
            if (frugal_home(f, table, key, &home) != FRUGAL_OK || home != (table * ROWS + key) % 2) return;
    if (frugal_home(f, 2, 0, &home) != FRUGAL_ERR_TABLE || frugal_home(f, 0, ROWS, &home) != FRUGAL_ERR_KEY) return;
    if (frugal_home(f, 0, 0, NULL) != FRUGAL_ERR_ARGUMENT) return;
    memset(all, 0xff, sizeof all);
    if (keep(s, frugal_exchange(f, &mine, sizeof mine, all)) != FRUGAL_OK) return;
    if (all[0].a != 5 || all[1].a != 6 || all[1].b[0] != 1) snprintf(s->message, sizeof s->message, "exchange");
    if (keep(s, frugal_exchange(f, NULL, 0, NULL)) != FRUGAL_OK) return;
    if (train(s, f, 0, STEPS) != FRUGAL_OK || keep(s, frugal_drain(f)) != FRUGAL_OK) return;
    frugal_status status = frugal_get_wire_counts(f, &counts);
    if (status != FRUGAL_OK || counts.sent[FRUGAL_WIRE_KEYS] != STEPS ||
        counts.received[FRUGAL_WIRE_RECORDS] != STEPS || counts.guests == 0 || counts.guests > STEPS * (KEYS - 1) ||
        counts.early == 0 || counts.early == counts.guests || !counts.sent_bytes[FRUGAL_WIRE_ROWS])
        snprintf(s->message, sizeof s->message, "counts: %llu guests, %llu early", (unsigned long long)counts.guests,
                 (unsigned long long)counts.early);
    /* another machine's device, and another machine's row */
    if (frugal_cpu_attach(f, !me, NULL) != FRUGAL_ERR_DEVICE || frugal_lookup(f, !me, STEPS, rows) != FRUGAL_ERR_DEVICE)
        snprintf(s->message, sizeof s->message, "a device of the other: %s", frugal_message());
    if (!strstr(frugal_message(), me ? "machine 0, which makes its calls" : "machine 1, which makes its calls"))
        snprintf(s->message, sizeof s->message, "a device of the other, said: %s", frugal_message());
    key = !me;
    const frugal_keys one = {.table = 0, .keys = &key, .n = 1};
    if (frugal_write_rows(f, &one, rows, NULL) != FRUGAL_ERR_KEY || !strstr(frugal_message(), "frugal_home"))
        snprintf(s->message, sizeof s->message, "a row of the other: %s", frugal_message());
}
static void test_calls(void **state) {
    (void)state;
    pair p;
    pair_make(&p, (wires_options){.seed = 1, .delay = 4, .buffered = 50}, 60);
    pair_run(&p, small_calls);
    for (uint32_t me = 0; me < 2; me++) {
        if (p.sides[me].message[0]) fail_msg("machine %u: %s", me, p.sides[me].message);
        assert_int_equal(p.sides[me].status, FRUGAL_OK);
    }
}
static void test_without(void **state) { /* the same calls where there are no machines */
    (void)state;
    frugal_table table = {.rows = ROWS};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = DIM, .devices = 1, .max_keys = KEYS};
    frugal_wire_counts counts, zeros = {0};
    uint32_t home = 9, mine = 7, all = 0;
    frugal *f;
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    assert_int_equal(frugal_home(f, 0, 5, &home), FRUGAL_OK);
    assert_int_equal(home, 0);
    assert_int_equal(frugal_exchange(f, &mine, sizeof mine, &all), FRUGAL_OK);
    assert_int_equal(all, 7);
    memset(&counts, 0xff, sizeof counts);
    assert_int_equal(frugal_get_wire_counts(f, &counts), FRUGAL_OK);
    assert_memory_equal(&counts, &zeros, sizeof counts);
    assert_int_equal(frugal_get_wire_counts(f, NULL), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_exchange(f, NULL, 4, &all), FRUGAL_ERR_ARGUMENT);
    frugal_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropped),     cmocka_unit_test(test_lost),     cmocka_unit_test(test_left),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_versions), cmocka_unit_test(test_calls_differ),
        cmocka_unit_test(test_files),       cmocka_unit_test(test_refusals), cmocka_unit_test(test_calls),
        cmocka_unit_test(test_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
