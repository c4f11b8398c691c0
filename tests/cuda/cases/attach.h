/* attach.h - devices that cannot be attached; tables of every shape, in memory and in a file */
#ifndef CASES_ATTACH_H
#define CASES_ATTACH_H

#include "world.h"

static void test_attach_errors(void **state) {
    (void)state;
    world w = world_of(2);
    frugal *broken = NULL;
    open_instance(&w);
    frugal_cuda_desc desc = cuda_desc_of(&w, 0);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(NULL, 0, 0, &desc), "cuda_attach", "no open instance");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_attach(w.f, 0, -1, &desc), "GPU -1", "from 0");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_attach(w.f, 0, gpus(), &desc), "there are", "from 0");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_attach(w.f, 2, 0, &desc), "device 2", "there are 2");
    desc.policy = (frugal_cache_policy)3;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(w.f, 0, 0, &desc), "policy 3", "2 (static)");
    desc = cuda_desc_of(&w, 0);
    desc.cache_rows = UINT64_C(1) << 32;
    assert_fails(FRUGAL_ERR_LIMIT, frugal_cuda_attach(w.f, 0, 0, &desc), "4294967296 rows", "2^32 - 9");
    frugal_cuda_info info;
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_get_info(w.f, 0, &info), "device 0", "not attached");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_get_info(NULL, 0, &info), "device 0", "not attached");
    for (uint32_t d = 0; d < 2; d++) assert_works(attach(&w, d));
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_get_info(w.f, 0, NULL), "`out`", "NULL");
    assert_works(frugal_cuda_get_info(w.f, 1, &info));
    assert_int_equal(32, (int)info.cache_rows);
    assert_int_equal(gpu_at(&w.places[1]), info.ordinal);
    assert_true(info.table_is_pinned && info.bytes > 32 * 8 * 4);
    assert_fails(FRUGAL_ERR_DEVICE, attach(&w, 1), "device 1", "attached already");
    open_reference(&w);
    /* A device that is attached must not notice that it was to be attached again: its blocks hold records. */
    for (int i = 0; i < 8; i++) {
        run(&w, 1);
        assert_fails(FRUGAL_ERR_DEVICE, attach(&w, i % 2), "device", "attached already");
    }
    check(&w);
    close_world(&w);
    /* An instance that could not be opened accepts close, and nothing else. */
    frugal_desc bad = world_of(1).desc;
    frugal_table table = {.rows = 10};
    bad.tables = &table, bad.file = "/nonexistent/folder/table";
    assert_int_equal(FRUGAL_ERR_FILE, frugal_open(&bad, &broken));
    assert_non_null(broken);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(broken, 0, 0, NULL), "attach", "no open instance");
    frugal_close(broken);
}

/* >>tables */

enum { MATRIX_FLOATS = 60 * 80, PAGE_FLOATS = 1024 };

/* The caller's matrices, aligned and not, registered by him before or not, state in them or not. */
static void test_tables(void **state) {
    (void)state;
    float *memory = NULL;
    assert_int_equal(0, posix_memalign((void **)&memory, 4096, 4 * 2 * MATRIX_FLOATS));
    for (int kind = 0; kind < 4 * 16; kind++) {
        world w = world_of(2);
        int unaligned = kind / 4 & 1, registered = kind / 8 & 1, own_state = kind / 16 & 1, odd_stride = kind / 32 & 1;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(kind % 4);
        for (int i = 0; i < 2 * MATRIX_FLOATS; i++) memory[i] = (float)(i % 97) * 0.01f;
        for (uint64_t i = 0; w.desc.rows_as != FRUGAL_FP32 && i < MATRIX_FLOATS; i++)
            reference_store((int)w.desc.rows_as, memory, i, (float)(i % 97) * 0.0078125f);
        w.table = (frugal_table){.rows = w.table.rows};
        w.desc.weights = (char *)memory + unaligned * (int)frugal_type_bytes(w.desc.rows_as);
        w.desc.weights_stride = odd_stride ? 9 : 12;
        if (own_state && kind % 4) {
            w.desc.state = memory + MATRIX_FLOATS + unaligned;
            w.desc.state_stride = frugal_state_floats(w.desc.optimizer.kind, 8) + (odd_stride ? 1 : 8);
        }
        w.places[1].unaligned = (uint32_t)unaligned;
        if (registered) gpu_register(memory, 4 * 2 * MATRIX_FLOATS);
        if (registered && unaligned) gpu_make_error(); /* it stays: no call of ours has to fail */
        caller_error = gpu_error();
        open_instance(&w);
        train_and_finish(&w);
        gpu_end_error();
        caller_error = 0;
        if (!registered) gpu_register(memory, 4 * 2 * MATRIX_FLOATS); /* nothing of it is left registered */
        gpu_unregister(memory);
    }
    world w = world_of(1); /* of which the caller has registered the first page alone: gathered */
    frugal_cuda_info info;
    w.desc.weights = memory, w.desc.weights_stride = 64, w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0;
    gpu_register(memory, 4096);
    open_instance(&w);
    assert_works(attach(&w, 0));
    assert_works(frugal_cuda_get_info(w.f, 0, &info));
    assert_int_equal(0, info.table_is_pinned);
    open_reference(&w);
    finish(&w, 4);
    gpu_unregister(memory);
    free(memory);
}

/* A mapped file is gathered by the host; on a disk it is not even tried. */
static void test_file(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        char path[64];
        snprintf(path, sizeof path, "/var/tmp/test_cuda.%d", (int)getpid());
        unlink(path);
        world w = world_of(2);
        w.desc.file = path;
        w.desc.optimizer.kind = (frugal_optimizer_kind)kind;
        w.desc.dim = kind % 2 ? 5 : 8;
        w.places[1].ordinal = kind == 3 ? NOBODY : 0;
        open_instance(&w);
        frugal_cuda_info info;
        w.places[0].gate_on_stream = 1;
        assert_fails(FRUGAL_ERR_ARGUMENT, attach(&w, 0), "cannot be pinned", "clear gate_on_stream");
        w.places[0].gate_on_stream = 0;
        for (uint32_t d = 0; d < 2; d++) assert_works(attach(&w, d));
        assert_works(frugal_cuda_get_info(w.f, 0, &info));
        assert_int_equal(0, info.table_is_pinned);
        open_reference(&w);
        uint64_t rows[] = {1, 2, 3, 2, 50, 59};
        frugal_keys keys = {.table = 0, .keys = rows, .n = 6};
        assert_works(frugal_preload(w.f, 0, &keys));
        for (int i = 0; i < 6; i++) { /* looked up twice: the host does not gather again */
            announce(&w, w.step + 1);
            for (uint32_t d = 0; d < 2; d++) lookup(&w, d);
            for (uint32_t d = 0; d < 2; d++) lookup(&w, d), train(&w, d), update(&w, d);
            w.step++;
            judge(&w);
        }
        check(&w);
        cancel_all(&w);
        finish(&w, 6);
        unlink(path);
    }
}

#endif /* CASES_ATTACH_H */
