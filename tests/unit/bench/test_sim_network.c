/* test_sim_network.c - what machines send each other in bench_sim (bench/sim/network.h), against brute force. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "bench/sim/sim.h"

enum { ROWS = 300, KEYS = 40, STEPS = 6, MACHINES = 3, GPUS = 2, DEVICES = MACHINES * GPUS };

static sim_keys keys;
static uint8_t listed[ROWS];

static sim_workload workload_of(const uint8_t *homes) {
    sim_workload w = {.rows = ROWS, .gpus = GPUS, .machines = MACHINES, .keys = KEYS, .dim = 20, .zipf = .9, .seed = 3};
    w.lookahead = 4;
    w.steps = STEPS, w.homes = homes;
    for (int x = 0; x < ROWS; x++) listed[x] = (uint8_t)(x * 7 / 5 % MACHINES);
    sim_keys_draw(&keys, &w);
    return w;
}

static int reads(uint64_t step, uint32_t device, uint64_t row) {
    for (uint32_t i = 0; i < KEYS; i++)
        if (sim_keys_of(&keys, step, device)[i] == row) return 1;
    return 0;
}

static void compare_pair(const sim_network *net, const sim_workload *w, uint64_t step, uint32_t device, uint32_t home) {
    uint32_t guests = 0, late = 0;
    for (uint64_t row = 0; row < ROWS && home != device / GPUS; row++) {
        if (sim_home_of(w, row) != home || !reads(step, device, row)) continue;
        int again = 0;
        for (uint32_t d = 0; step > 0 && d < DEVICES; d++) again |= reads(step - 1, d, row);
        guests++, late += (uint32_t)again;
    }
    uint64_t pair = (step * DEVICES + device) * MACHINES + home;
    assert_int_equal(net->guests[pair], guests);
    assert_int_equal(net->late[pair], late);
}

/* Homes in turn, and listed. */
static void guests_are_those_of_brute_force(void **state) {
    (void)state;
    const uint8_t *const homes[] = {NULL, listed};
    for (int i = 0; i < 2; i++) {
        sim_workload w = workload_of(homes[i]);
        sim_network net = {0};
        sim_network_count(&net, &keys, &w);
        for (uint64_t s = 0; s < STEPS; s++)
            for (uint32_t d = 0; d < DEVICES; d++) {
                uint64_t all = 0;
                for (uint32_t home = 0; home < MACHINES; home++) {
                    compare_pair(&net, &w, s, d, home);
                    all += net.guests[(s * DEVICES + d) * MACHINES + home];
                }
                assert_int_equal(all, sim_guests_of(&net, s, d));
            }
        sim_network_free(&net);
    }
}

/* The batches of a machine's rows together are all batches; a batch's unique rows are its own and its guests. */
static void keys_at_home_are_all_keys(void **state) {
    (void)state;
    sim_workload w = workload_of(listed);
    sim_keys home[MACHINES] = {{0}};
    sim_network net = {0};
    sim_network_count(&net, &keys, &w);
    for (uint32_t m = 0; m < MACHINES; m++) sim_keys_at_home(&home[m], &keys, &w, m);
    for (uint64_t s = 0; s < STEPS; s++)
        for (uint32_t d = 0; d < DEVICES; d++) {
            uint32_t n = 0, unique = 0;
            for (uint32_t m = 0; m < MACHINES; m++) {
                n += sim_count_of(&home[m], s, d), unique += sim_unique_of(&home[m], s, d);
                for (uint32_t i = 0; i < sim_count_of(&home[m], s, d); i++)
                    assert_int_equal(listed[sim_keys_of(&home[m], s, d)[i]], m);
            }
            assert_int_equal(n, KEYS);
            assert_int_equal(unique, sim_unique_of(&keys, s, d));
            assert_int_equal(sim_unique_of(&home[d / GPUS], s, d) + sim_guests_of(&net, s, d), unique);
        }
    for (uint32_t m = 0; m < MACHINES; m++) sim_keys_free(&home[m]);
    sim_network_free(&net);
}

/* Rows of 20 floats have records of 32. */
static void messages_have_the_bytes_of_the_formula(void **state) {
    (void)state;
    assert_int_equal(sim_message_bytes(SIM_SENT_KEYS, 17, 5, 20), 64 + 17 * 8);
    assert_int_equal(sim_message_bytes(SIM_SENT_EARLY, 17, 5, 20), 64 + 12 * 80 + 8);
    assert_int_equal(sim_message_bytes(SIM_SENT_EARLY, 65, 65, 20), 64 + 16);
    assert_int_equal(sim_message_bytes(SIM_SENT_EARLY, 0, 0, 20) + sim_message_bytes(SIM_SENT_LATE, 0, 0, 20), 0);
    assert_int_equal(sim_message_bytes(SIM_SENT_KEYS, 0, 0, 20) + sim_message_bytes(SIM_SENT_RECORDS, 0, 0, 20), 128);
    assert_int_equal(sim_message_bytes(SIM_SENT_LATE, 17, 5, 20), 64 + 5 * 80);
    assert_int_equal(sim_message_bytes(SIM_SENT_RECORDS, 17, 5, 20), 64 + 17 * 4 * 32);
    static const uint32_t dims[] = {1, 2, 3, 8, 9, 15, 16, 17, 32}, strides[] = {1, 2, 4, 8, 16, 16, 16, 32, 32};
    for (int i = 0; i < 9; i++)
        assert_int_equal(sim_message_bytes(SIM_SENT_RECORDS, 1, 0, dims[i]), 64 + 4 * strides[i]);
}

/* All that is sent is received; the fullest link decides how long it takes. */
static void what_is_sent_is_received(void **state) {
    (void)state;
    sim_workload w = workload_of(listed);
    sim_network net = {0};
    sim_network_count(&net, &keys, &w);
    for (uint64_t s = 0; s < STEPS; s++) {
        uint64_t sent[SIM_SENT_KINDS] = {0}, received[SIM_SENT_KINDS] = {0}, late = 0, most = 0, pairs = 0;
        for (uint32_t m = 0; m < MACHINES; m++) {
            sim_crossing c = sim_crossing_of(&net, s, m);
            uint64_t out = c.sent[SIM_SENT_KEYS] + c.sent[SIM_SENT_LATE];
            uint64_t in = c.received[SIM_SENT_KEYS] + c.received[SIM_SENT_LATE];
            for (int k = 0; k < SIM_SENT_KINDS; k++) sent[k] += c.sent[k], received[k] += c.received[k];
            late += c.late;
            most = out > most ? out : most, most = in > most ? in : most;
        }
        assert_memory_equal(sent, received, sizeof sent);
        for (uint64_t i = s * DEVICES * MACHINES; i < (s + 1) * DEVICES * MACHINES; i++) pairs += net.guests[i] > 0;
        assert_int_equal(sent[SIM_SENT_LATE], pairs * 64 + late * 80);
        double seconds = sim_network_seconds(&net, s, 1u << SIM_SENT_KEYS | 1u << SIM_SENT_LATE, 1e6);
        assert_true(seconds == (double)most / 1e6);
    }
    sim_network_free(&net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guests_are_those_of_brute_force),
        cmocka_unit_test(keys_at_home_are_all_keys),
        cmocka_unit_test(messages_have_the_bytes_of_the_formula),
        cmocka_unit_test(what_is_sent_is_received),
    };
    int failed = cmocka_run_group_tests_name("test_sim_network", tests, NULL, NULL);
    sim_keys_free(&keys);
    return failed;
}
