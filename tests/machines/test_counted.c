/* test_counted.c - what machines send each other, by kind, is what bench_sim counts ahead (bench/sim/network.h): to the
 * byte, except that a row may come late that could have come early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../seed.h"
#include "../support.h"
#include "bench/sim/sim.h"
#include "frugal.h"
#include "wires.h"

enum { ROWS = 3000, KEYS = 200, DIM = 20, STEPS = 20, GPUS = 2, MOST_MACHINES = 3 };

static uint64_t seed;

typedef struct part { /* of a machine */
    pthread_t thread;
    const sim_workload *w;
    const sim_keys *keys;
    frugal_wire wire;
    frugal_wire_counts counts;
    frugal_status status;
    char said[1024];
    float grads[KEYS * DIM];
} part;

static frugal_status open_part(const part *p, frugal **f) {
    const frugal_table table = {.rows = ROWS};
    const frugal_machines machines = {
        .wire = &p->wire, .deal = p->w->homes ? FRUGAL_DEAL_LISTED : FRUGAL_DEAL_CYCLIC, .homes = p->w->homes};
    const frugal_desc desc = {.tables = &table,
                              .n_tables = 1,
                              .dim = DIM,
                              .devices = sim_devices(p->w),
                              .max_keys = KEYS,
                              .lookahead = p->w->lookahead,
                              .machines = &machines};
    return frugal_open(&desc, f);
}

static frugal_status announce(frugal *f, const part *p, uint32_t device, uint64_t step) {
    const frugal_keys segment = {.keys = sim_keys_of(p->keys, step, device), .n = KEYS};
    return frugal_announce(f, device, step, &(frugal_batch){.segments = &segment, .n_segments = 1});
}

static frugal_status train(frugal *f, part *p) {
    const frugal_gradients gradients = {.grads = p->grads, .lr = .01f};
    uint32_t from = p->wire.machine * GPUS, end = from + GPUS;
    uint64_t announced = 0;
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = from; d < end && !status; d++) status = frugal_cpu_attach(f, d, NULL);
    for (uint64_t t = 0; t < STEPS; t++) {
        for (; announced < STEPS && announced <= t + p->w->lookahead; announced++)
            for (uint32_t d = from; d < end && !status; d++) status = announce(f, p, d, announced);
        for (uint32_t d = from; d < end && !status; d++) status = frugal_lookup(f, d, t, NULL);
        for (uint32_t d = from; d < end && !status; d++) status = frugal_update(f, d, t, &gradients);
    }
    if (!status) status = frugal_drain(f);
    return status ? status : frugal_get_wire_counts(f, &p->counts);
}

static void *run_part(void *of) {
    part *p = of;
    frugal *f;
    p->status = open_part(p, &f);
    if (!p->status) p->status = train(f, p);
    snprintf(p->said, sizeof p->said, "%s", p->status ? frugal_message() : "");
    if (f) frugal_close(f);
    return NULL;
}

/* All messages that are counted here, of all steps, sent and received by a machine. */
static sim_crossing cross(const sim_network *net, uint32_t machine) {
    sim_crossing all = {.late = 0};
    for (uint64_t s = 0; s < STEPS; s++) {
        sim_crossing c = sim_crossing_of(net, s, machine);
        for (int k = 0; k < SIM_SENT_KINDS; k++) all.sent[k] += c.sent[k], all.received[k] += c.received[k];
    }
    return all;
}

/* Keys have a head more where a device has told a home that its data has ended. */
static void compare(const part *p, const sim_network *net) {
    const frugal_wire_counts *c = &p->counts;
    sim_crossing all = cross(net, p->wire.machine);
    uint64_t messages = GPUS * (net->machines - 1) * STEPS, guests = 0, late = 0;
    assert_true(c->sent[FRUGAL_WIRE_KEYS] >= messages);
    assert_int_equal(c->sent_bytes[FRUGAL_WIRE_KEYS],
                     all.sent[SIM_SENT_KEYS] + (c->sent[FRUGAL_WIRE_KEYS] - messages) * SIM_HEAD_BYTES);
    assert_int_equal(c->sent[FRUGAL_WIRE_RECORDS], messages);
    assert_int_equal(c->sent_bytes[FRUGAL_WIRE_RECORDS], all.sent[SIM_SENT_RECORDS]);
    assert_int_equal(c->received_bytes[FRUGAL_WIRE_RECORDS], all.received[SIM_SENT_RECORDS]);
    assert_int_equal(c->sent_bytes[FRUGAL_WIRE_EARLY] + c->sent_bytes[FRUGAL_WIRE_ROWS],
                     all.sent[SIM_SENT_EARLY] + all.sent[SIM_SENT_LATE]);
    assert_int_equal(c->received_bytes[FRUGAL_WIRE_EARLY] + c->received_bytes[FRUGAL_WIRE_ROWS],
                     all.received[SIM_SENT_EARLY] + all.received[SIM_SENT_LATE]);
    for (uint64_t s = 0; s < STEPS; s++)
        for (uint32_t d = p->wire.machine * GPUS, i = 0; i < GPUS; i++)
            for (uint32_t home = 0; home < net->machines; home++) {
                uint64_t pair = (s * net->machines * GPUS + d + i) * net->machines + home;
                guests += net->guests[pair], late += net->late[pair];
            }
    assert_int_equal(c->guests, guests);
    assert_true(!c->early == !net->early &&
                c->early <= guests - late); /* a row that is not flushed yet is not sent early */
}

static void run(sim_workload *w) {
    static part parts[MOST_MACHINES];
    static sim_keys keys;
    sim_network net = {0};
    wires_options options = {.seed = w->seed, .machines = w->machines, .delay = 3, .buffered = 100, .late = 50};
    wires wires;
    sim_keys_draw(&keys, w);
    sim_network_count(&net, &keys, w);
    wires_init(&wires, &options);
    for (uint32_t m = 0; m < w->machines; m++) {
        parts[m] = (part){.w = w, .keys = &keys, .wire = wires_of(&wires, m)};
        if (pthread_create(&parts[m].thread, NULL, run_part, &parts[m])) abort();
    }
    for (uint32_t m = 0; m < w->machines; m++) pthread_join(parts[m].thread, NULL);
    for (uint32_t m = 0; m < w->machines; m++) {
        if (parts[m].status) fail_msg("machine %u: %s", (unsigned)m, parts[m].said);
        compare(&parts[m], &net);
    }
    wires_destroy(&wires);
    sim_network_free(&net), sim_keys_free(&keys);
}

static void what_is_sent_is_what_is_counted(void **state) {
    (void)state;
    static uint8_t homes[ROWS];
    for (uint64_t x = 0; x < ROWS; x++) homes[x] = (uint8_t)(test_mix2(seed, x) % 4 % 3);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t machines = i ? 2 : 3, lookahead = i == 2 ? 0 : 4;
        sim_workload w = {
            .rows = ROWS, .gpus = GPUS, .machines = machines, .keys = KEYS, .dim = DIM, .lookahead = lookahead};
        w.zipf = .8, w.seed = seed, w.steps = STEPS, w.homes = machines == 3 ? homes : NULL;
        run(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_sent_is_what_is_counted)};
    seed = test_seed("test_counted", 5);
    return cmocka_run_group_tests_name("test_counted", tests, NULL, NULL);
}
