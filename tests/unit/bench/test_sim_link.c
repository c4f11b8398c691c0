/* test_sim_link.c - the time that the simulator computes from the traffic of a link (bench/sim/link.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "bench/sim/link.h"

static const sim_link narrow = {.bandwidth = {1e9, 5e8}, .latency = 1e-5, .line = 16, .header = 6};

static void test_wire_bytes(void **state) {
    (void)state;
    sim_link link = narrow;
    assert_int_equal(0, (int)sim_wire_bytes(&link, 0, 20));
    assert_int_equal(16 + 6, (int)sim_wire_bytes(&link, 1, 16));
    assert_int_equal(3 * (17 + 2 * 6), (int)sim_wire_bytes(&link, 3, 17));
    link.line = 0;
    assert_int_equal(3 * (17 + 6), (int)sim_wire_bytes(&link, 3, 17)); /* whole rows */
    /* The limits: more rows and floats than a batch can have, in requests of a byte. */
    uint64_t rows = UINT64_C(1) << 26, row_bytes = UINT64_C(4) << 16;
    link.line = 1, link.header = SIM_MOST_HEADER;
    assert_true(sim_wire_bytes(&link, rows, row_bytes) / rows == row_bytes * (1 + SIM_MOST_HEADER));
}

/* Rows of 20 bytes take two requests; states of 17 bytes take two, and of 4 bytes one. */
static void test_traffic(void **state) {
    (void)state;
    frugal_traffic none = {.rows = {0}}, rows = {.rows = {7, 9}, .bytes = {7 * 20, 9 * 20}};
    frugal_traffic states = {.rows = {7, 9}, .bytes = {7 * 20 + 3 * 17, 9 * 20}};
    frugal_traffic small_states = {.rows = {7, 9}, .bytes = {7 * 20 + 7 * 4, 9 * 20}};
    for (int way = 0; way < 2; way++) {
        uint64_t n = rows.rows[way];
        assert_true(sim_traffic_wire_bytes(&narrow, &none, way, 20, 17) == 0);
        assert_true(sim_traffic_wire_bytes(&narrow, &rows, way, 20, 0) == n * (20 + 2 * 6));  /* SGD has no state */
        assert_true(sim_traffic_wire_bytes(&narrow, &rows, way, 20, 17) == n * (20 + 2 * 6)); /* none was copied */
    }
    assert_true(sim_traffic_wire_bytes(&narrow, &states, 0, 20, 17) == 7 * (20 + 2 * 6) + 3 * (17 + 2 * 6));
    assert_true(sim_traffic_wire_bytes(&narrow, &states, 1, 20, 17) == 9 * (20 + 2 * 6));
    assert_true(sim_traffic_wire_bytes(&narrow, &small_states, 0, 20, 4) == 7 * (20 + 2 * 6) + 7 * (4 + 6));
}

static void test_seconds(void **state) {
    (void)state;
    assert_true(sim_link_seconds(&narrow, 0, 0, 1000) == 0);
    assert_true(sim_link_seconds(&narrow, 0, 1000, 5000) == 1e-5 + 1000 / 1e9); /* nothing is shared */
    assert_true(sim_link_seconds(&narrow, 1, 1000, 5000) == 1e-5 + 1000 / 5e8);
}

static void test_shared(void **state) {
    (void)state;
    sim_link link = narrow;
    link.shared = 2e9;
    assert_true(sim_link_seconds(&link, 0, 1000, 1500) == 1e-5 + 1000 / 1e9); /* its own link is slower */
    assert_true(sim_link_seconds(&link, 0, 1000, 5000) == 1e-5 + 5000 / 2e9); /* what is shared is */
    assert_true(sim_link_seconds(&link, 1, 1000, 1500) == 1e-5 + 1000 / 5e8);
    assert_true(sim_link_seconds(&link, 1, 1000, 5000) == 1e-5 + 5000 / 2e9);
    assert_true(sim_link_seconds(&link, 1, 0, 5000) == 0); /* the bytes of others take it no time */
}

static sim_topology eight(uint32_t behind_switch, uint32_t sockets, uint32_t root_lanes) {
    return (sim_topology){.gpus = 8,
                          .behind_switch = behind_switch,
                          .sockets = sockets,
                          .root_lanes = root_lanes,
                          .link = 16e9,
                          .socket_link = 20e9};
}

/* What 8 GPUs with links of 16 GB/s get together. */
static void test_topology(void **state) {
    (void)state;
    const struct {
        sim_topology t;
        double expected;
    } cases[] = {
        {eight(0, 0, 0), 0},     {eight(1, 1, 0), 0}, /* nothing is shared */
        {eight(2, 1, 0), 64e9},  {eight(4, 1, 0), 32e9},  {eight(8, 1, 0), 16e9},
        {eight(16, 1, 0), 16e9}, {eight(1, 1, 48), 48e9}, /* three links' lanes */
        {eight(1, 2, 48), 80e9},                          /* of each socket; 96e9, but half of it from the other */
        {eight(1, 2, 0), 80e9},  {eight(8, 2, 0), 32e9},  /* a switch is of one socket */
        {eight(2, 2, 16), 32e9}, {eight(1, 4, 0), 320e9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(sim_shared_bandwidth(&cases[i].t) == cases[i].expected);
    sim_topology memory = eight(2, 1, 0);
    memory.memory = 10e9;
    assert_true(sim_shared_bandwidth(&memory) == 10e9);
    sim_topology uneven = eight(4, 2, 0); /* three GPUs, two of them on one socket */
    uneven.gpus = 3;
    assert_true(sim_shared_bandwidth(&uneven) == 24e9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_bytes), cmocka_unit_test(test_traffic),  cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_shared),     cmocka_unit_test(test_topology),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
