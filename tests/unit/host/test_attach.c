/* test_attach.c - attaching devices: which are refused, one that fails when told to, one that is tried again; the
 * memory that devices are told of where it is the caller's. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/refused.h"

static void test_devices(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_batch empty = {0};
    frugal_cpu_desc wrong = {.policy = (frugal_cache_policy)5};
    uint64_t key = 1;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    frugal_records records;
    d.allocate = test_allocate, d.release = test_release, d.user = &r.counter;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &r.f));
    assert_fails(FRUGAL_ERR_DEVICE, frugal_announce(r.f, 0, 0, &empty), "device 0", "attach");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_lookup(r.f, 1, 0, NULL), "device 1", "attach");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_update(r.f, 1, 0, NULL), "device 1", "attach");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_get_records(r.f, 1, 0, &records), "device 1", "attach");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_preload(r.f, 1, &keys), "device 1", "attach");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cpu_attach(r.f, 2, NULL), "device 2", "2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cpu_attach(r.f, 0, &wrong), "policy", "5");
    wrong = (frugal_cpu_desc){.cache_rows = UINT64_C(1) << 33};
    assert_fails(FRUGAL_ERR_LIMIT, frugal_cpu_attach(r.f, 0, &wrong), "8589934592", "2^32");
    r.lr = 0.1f;
    rig_attach(&r);
    rig_start(&r);
    rig_train(&r, 1);
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cpu_attach(r.f, 1, NULL), "device 1", "already");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_announce(r.f, 2, 1, &empty), "device 2", "2");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_try_announce(r.f, UINT32_MAX, 1, &empty), "device 4294967295", "2");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_lookup(r.f, 9, 1, NULL), "device 9", "2");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_update(r.f, 9, 1, NULL), "device 9", "2");
    rig_finish(&r, 4);
}

/* A device that fails when told to. */
typedef struct failing_device {
    frugal_status status;
    int lookups, updates, preloads, empties, closes;
} failing_device;

static frugal_status failing_lookup(void *device, const frugal_step *step, void *rows) {
    (void)step, (void)rows;
    ((failing_device *)device)->lookups++;
    return ((failing_device *)device)->status;
}
static frugal_status failing_update(void *device, const frugal_step *step, const void *grads) {
    ((failing_device *)device)->updates++;
    for (uint32_t i = 0; i < step->records.n_unique * step->records.stride; i++)
        step->records.block[i] = *(const float *)grads;
    return ((failing_device *)device)->status;
}
static frugal_status failing_preload(void *device, const uint32_t *rows, uint32_t n) {
    (void)rows, (void)n;
    ((failing_device *)device)->preloads++;
    return ((failing_device *)device)->status;
}
static int failing_verify(void *device) {
    return ((failing_device *)device)->status == FRUGAL_OK;
}
static void failing_empty(void *device) {
    ((failing_device *)device)->empties++;
}
static void failing_close(void *device) {
    ((failing_device *)device)->closes++;
}

/* What a device says is what the call says; it changed nothing, and can be repeated. */
static void test_failing_device(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = failing_lookup,
                                          .update = failing_update,
                                          .preload = failing_preload,
                                          .verify = failing_verify,
                                          .empty = failing_empty,
                                          .close = failing_close};
    failing_device device = {.status = FRUGAL_ERR_CUDA};
    frugal *f;
    frugal_desc d = rig_desc();
    uint64_t key = 3;
    float row[5], gradient[5] = {1};
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    frugal_batch batch = {&keys, 1, 0};
    frugal_gradients g = {.grads = gradient, .lr = 1};
    d.devices = 1;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_attach(f, 0, NULL, &device), "attach", "no operations");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_attach(f, 1, &ops, &device), "device 1", "1, from 0");
    assert_int_equal(FRUGAL_OK, frugal_verify(f));          /* nobody is attached: */
    assert_int_equal(FRUGAL_OK, frugal_release_holders(f)); /* nothing to verify, nothing to empty */
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &device));
    assert_int_equal(FRUGAL_ERR_CUDA, frugal_preload(f, 0, &keys));
    assert_fails(FRUGAL_ERR_COPY, frugal_verify(f), "verify", "device 0");
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &batch));
    assert_int_equal(FRUGAL_ERR_CUDA, frugal_lookup(f, 0, 0, row));
    assert_fails(FRUGAL_ERR_ORDER, frugal_update(f, 0, 0, &g), "update", "look up is 0"); /* it has not looked up */
    device.status = FRUGAL_OK;
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, row));
    device.status = FRUGAL_ERR_CUDA;
    assert_int_equal(FRUGAL_ERR_CUDA, frugal_update(f, 0, 0, &g));
    assert_fails(FRUGAL_ERR_ORDER, frugal_lookup(f, 0, 1, row), "lookup", "is 0"); /* it has not updated */
    device.status = FRUGAL_OK;
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, &g));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_preload(f, 0, &keys));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_close(f);
    assert_true(device.lookups == 2 && device.updates == 2 && device.preloads == 2);
    assert_true(device.empties == 1 && device.closes == 1);
}

static void test_failed_attach_can_be_repeated(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 16}};
    test_counter counter = {0};
    frugal_desc d = rig_desc();
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &r.f));
    for (int i = 1; i <= 3; i++) { /* the device, and the two arrays of its cache */
        counter.fail_at = counter.calls + (uint64_t)i;
        assert_fails(FRUGAL_ERR_MEMORY, frugal_cpu_attach(r.f, 0, &r.cache), "device 0", "bytes");
    }
    counter.fail_at = 0;
    r.lr = 0.1f;
    rig_attach(&r);
    rig_start(&r);
    rig_finish(&r, 5);
    assert_int_equal(0, (int)counter.bytes_out);
}

/* Where the table is the caller's, a device is told of the caller's matrices, from their first element to their last.
 */
static void test_memory_of_the_caller(void **state) {
    (void)state;
    enum { ROWS = 60, DIM = 5, WIDE = 7, WIDER = 9 };
    static float weights[ROWS * WIDE], states[ROWS * WIDER];
    for (int i = 0; i < 4; i++) {
        frugal *f;
        frugal_desc d = rig_desc();
        int with_state = i % 2;
        d.rows_as = i < 2 ? FRUGAL_FP32 : FRUGAL_FP16;
        d.dim = DIM, d.weights = weights, d.weights_stride = WIDE;
        d.optimizer.kind = with_state ? FRUGAL_ADAGRAD : FRUGAL_SGD;
        if (with_state) d.state = states, d.state_stride = WIDER;
        assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
        frugal_memory table = frugal_get_memory(f, 0, FRUGAL_MEMORY_TABLE);
        frugal_memory state_memory = frugal_get_memory(f, 0, FRUGAL_MEMORY_STATE);
        assert_ptr_equal(weights, table.start);
        assert_int_equal(((ROWS - 1) * WIDE + DIM) * (i < 2 ? 4 : 2), table.bytes);
        assert_ptr_equal(with_state ? states : NULL, state_memory.start);
        assert_int_equal(with_state ? ((ROWS - 1) * WIDER + DIM) * sizeof(float) : 0, state_memory.bytes);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_attach_can_be_repeated),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_failing_device),
        cmocka_unit_test(test_memory_of_the_caller),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
