/* test_rows.c - rows of any width: more floats than are computed at a time, more rows than are prefetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/rig.h"

static void test_large_rows(void **state) {
    (void)state;
    static const uint32_t dims[] = {131, 255, 256, 257, 288, 300, 511, 513, 1030, 4096};
    for (unsigned i = 0; i < sizeof(dims) / sizeof(*dims); i++)
        for (int k = 0; k < FRUGAL_OPTIMIZER_KINDS; k++) {
            rig r = {.cache = {.cache_rows = 20}};
            frugal_desc d = rig_desc();
            d.dim = dims[i], d.optimizer.kind = rig_optimizers[k];
            if (i % 2) d.optimizer.weight_decay = 0.01f, d.reduce = FRUGAL_MEAN, d.devices = 3;
            rig_open(&r, &d);
            rig_finish(&r, 3);
        }
}

static void test_largest_row(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.dim = 65536, d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    d.tables = (frugal_table[]){{.rows = 3, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}};
    d.n_tables = 1;
    rig_open(&r, &d);
    rig_finish(&r, 2);
}

static void every_row(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)device, (void)step;
    b->n = b->split = (uint32_t)r->desc.tables[0].rows;
    for (uint32_t i = 0; i < b->n; i++) b->keys[i] = i;
}

/* Enough rows that some are asked for ahead: whole rows and the start of longer ones, with a cache and without. */
static void test_many_wide_rows(void **state) {
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        rig r = {.change = every_row, .cache = {.cache_rows = way / 2 ? 20 : 0}};
        frugal_desc d = rig_desc();
        d.dim = way % 2 ? 512 : 513, d.max_keys = 40;
        rig_open(&r, &d);
        rig_finish(&r, 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_rows),
        cmocka_unit_test(test_largest_row),
        cmocka_unit_test(test_many_wide_rows),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
