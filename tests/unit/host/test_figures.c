/* test_figures.c - the bytes that LIMITS AND MEMORY of frugal_p2f.h and frugal.h name are those that are taken. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "../../../frugal_seeing.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* frugal_p2f.h, section 10: all but `pieces`. */
static double formula_of(const frugal_p2f_desc *d, double pieces) {
    double n = d->devices, K = d->max_rows, S = d->staging, L = d->lookahead, ranges = floor(n * K / 4096) + 1;
    double batches = n * K * (L + 1) * (4 + 1.0 / 4), plans = 8 * (n * K + 1) * (S + L + 1);
    double queue = 256 * ((L + 1) * (n * K / 62 + ranges) + S * (n * K / 62 + (L + 2) * pieces) + d->threads);
    double taken = n * K * (4 * L + 13) + 4 * n * (ranges + L + 2);
    return 8.0 * (double)d->rows + batches + plans + queue + (d->taken ? taken : 0);
}

static double most_pieces(const frugal_p2f_desc *d) {
    double entries = (double)d->devices * d->max_rows, small = entries / 1024 + 1, large = entries / 4096 + 1;
    if (large < 33) large = 33;
    return small < large ? small : large;
}

static double beside_of(const frugal_p2f_desc *d) {
    return 32 * 1024 + 512.0 * d->devices * (d->lookahead + 1) + 256.0 * d->staging;
}

static void test_the_state_machine_takes_what_its_header_says(void **state) {
    (void)state;
    const uint64_t rows[] = {1, 1000, 1000000};
    const uint32_t devices[] = {1, 2, 3, 254}, keys[] = {1, 61, 62, 63, 1000, 4096, 40000, 264000};
    const uint32_t lookaheads[] = {0, 1, 10, 15}, stagings[] = {1, 2, 12, 48};
    for (size_t i = 0; i < 2 * COUNT(rows) * COUNT(devices) * COUNT(keys) * COUNT(lookaheads) * COUNT(stagings); i++) {
        size_t at = i / 2;
        frugal_p2f_desc d = {.threads = 7, .taken = (int)(i % 2)};
        d.rows = rows[at % COUNT(rows)], at /= COUNT(rows);
        d.devices = devices[at % COUNT(devices)], at /= COUNT(devices);
        d.max_rows = keys[at % COUNT(keys)], at /= COUNT(keys);
        d.lookahead = lookaheads[at % COUNT(lookaheads)], at /= COUNT(lookaheads);
        d.staging = stagings[at];
        double bytes = (double)frugal_p2f_footprint(&d);
        if (bytes == 0) fail_msg("%u devices, %u rows a step: refused", d.devices, d.max_rows);
        if (bytes < formula_of(&d, 1) || bytes >= formula_of(&d, most_pieces(&d)) + beside_of(&d))
            fail_msg(
                "%llu rows, %u devices, K %u, L %u, S %u, taken %d: %.0f bytes; the formula has %.0f, and %.0f beside",
                (unsigned long long)d.rows, d.devices, d.max_rows, d.lookahead, d.staging, d.taken, bytes,
                formula_of(&d, most_pieces(&d)), beside_of(&d));
    }
}

/* Floats of a record. */
static double record_of(uint32_t dim) {
    uint32_t power = 1;
    if (dim >= 16) return (dim + 15) / 16 * 16;
    while (power < dim) power *= 2;
    return power;
}

/* frugal.h, section 9: what an instance takes beside table, optimizer state and words, which `other_bytes` says. */
static void check_instance(const frugal_desc *d, uint32_t n_groups) {
    frugal *f;
    frugal_stats stats;
    if (frugal_open(d, &f) != FRUGAL_OK) fail_msg("%s", frugal_message());
    const frugal_desc *now = frugal_settings(f);
    frugal_get_stats(f, &stats);
    double n = now->devices, K = now->max_keys, S = now->staging, L = now->lookahead, D = record_of(now->dim);
    uint64_t rows = 0;
    for (uint32_t t = 0; t < now->n_tables; t++) rows += now->tables[t].rows;
    frugal_p2f_desc p = {.rows = rows,
                         .devices = now->devices,
                         .max_rows = now->max_keys,
                         .lookahead = now->lookahead,
                         .staging = now->staging,
                         .threads = now->workers + 2 * now->devices + 256,
                         .taken = now->devices > 1};
    double bytes = 4 * n * S * K * D + 16 * n * K + 17 * n * (L + 1) * K + 2624.0 * n_groups;
    bytes += 24 * n * now->n_tables;
    bytes += (double)(frugal_p2f_footprint(&p) - rows * 8);
    double rounding = 262144 + n * (131072 + 768 * (L + 1) + 64 * S);
    assert_true(stats.state_bytes == (now->devices > 1 ? rows * 8 : 0)); /* the words of rows */
    if ((double)stats.other_bytes < bytes || (double)stats.other_bytes >= bytes + rounding)
        fail_msg("%u devices, dim %u, K %u, L %u, S %u: %llu bytes; the formula has %.0f, and %.0f of rounding",
                 now->devices, now->dim, now->max_keys, now->lookahead, now->staging,
                 (unsigned long long)stats.other_bytes, bytes, rounding);
    frugal_close(f);
}

static void test_an_instance_takes_what_its_header_says(void **state) {
    (void)state;
    const uint32_t dims[] = {1, 3, 5, 8, 9, 15, 16, 17, 64}, devices[] = {1, 3}, keys[] = {1, 63, 1000};
    frugal_optimizer slower = {.kind = FRUGAL_ADAGRAD, .lr_scale = 0.5f};
    for (size_t i = 0; i < COUNT(dims); i++)
        for (size_t j = 0; j < COUNT(devices); j++)
            for (size_t k = 0; k < COUNT(keys); k++)
                for (uint32_t several = 0; several < 2; several++) {
                    frugal_table tables[2] = {{.rows = 100}, {.rows = 37, .optimizer = several ? &slower : NULL}};
                    frugal_desc d = {.tables = tables,
                                     .n_tables = 2,
                                     .dim = dims[i],
                                     .devices = devices[j],
                                     .max_keys = keys[k],
                                     .lookahead = (uint32_t)(i + k) % 16,
                                     .workers = several,
                                     .optimizer = {.kind = FRUGAL_ADAGRAD}};
                    check_instance(&d, 1 + several);
                }
}

/* So many that what a group takes is more than the rounding. */
static void test_groups_take_what_the_header_says(void **state) {
    (void)state;
    enum { GROUPS = 2000 };
    static frugal_table tables[GROUPS];
    frugal_optimizer slower = {.lr_scale = 0.5f};
    frugal_desc d = {.tables = tables, .n_tables = GROUPS, .dim = 1, .max_keys = 1};
    for (uint32_t t = 0; t < GROUPS; t++) tables[t] = (frugal_table){.rows = 1, .optimizer = t % 2 ? &slower : NULL};
    check_instance(&d, GROUPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_state_machine_takes_what_its_header_says),
                                       cmocka_unit_test(test_an_instance_takes_what_its_header_says),
                                       cmocka_unit_test(test_groups_take_what_the_header_says)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
