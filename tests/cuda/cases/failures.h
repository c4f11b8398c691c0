/* failures.h - failures on request: every call fails once */
#ifndef CASES_FAILURES_H
#define CASES_FAILURES_H

#include "world.h"
#include "caches.h"
#include "graphs.h"

enum { NO_FUNCTION = 98, NO_IMAGE = 209, NEWER_PTX = 222 }; /* of a program compiled for another GPU, or too new */
enum {
    OUT_OF_MEMORY = 2,
    NO_DRIVER = 35,
    NOT_SUPPORTED = 801,
    UNKNOWN = 999,
    REGISTERED = 712,
    MAJOR = 75,
    MINOR = 76,
    MAPS = 19,
    HAS_WATCHDOG = 17
};

enum { PIECE = 16384 }; /* FRUGAL_CUDA_PIECE of the tests: bytes registered at a time, at most */

static void test_no_gpu(void **state) {
    (void)state;
    world w = world_of(1);
    cuda_on_host_set_devices(0);
    w.places[0].ordinal = NOBODY;
    caller_gpu = 0;
    frugal_desc desc = w.desc;
    desc.tables = &w.table;
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &w.f));
    frugal_status status = frugal_cuda_attach(w.f, 0, 0, NULL);
    assert_int_equal(FRUGAL_ERR_CUDA, status);
    assert_non_null(strstr(frugal_message(), "no GPU"));
    assert_non_null(strstr(frugal_message(), "frugal_cpu_attach"));
    frugal_close(w.f);
}

static void test_old_gpu(void **state) {
    (void)state;
    world w = world_of(1);
    open_instance(&w);
    cuda_on_host_set_attribute(MAJOR, 6);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "compute capability 6", "7.");
    cuda_on_host_set_attribute(MAJOR, 7);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "compute capability 7.0", "7.5 or more");
    cuda_on_host_set_attribute(MAJOR, 8);
    cuda_on_host_set_attribute(MAPS, 0);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "compute capability 8", "cannot map host memory");
    cuda_on_host_set_attribute(MAPS, 1);
    cuda_on_host_fail_named("cudaGetDeviceCount", 1, NO_DRIVER);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "no GPU", "cudaErrorInsufficientDriver");
    static const char loads[] = "cudaOccupancyMaxActiveBlocksPerMultiprocessor";
    cuda_on_host_set_attribute(MINOR, 6);
    cuda_on_host_fail_named(loads, 1, NO_IMAGE);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "capability 8.6, for which this program has no code", "-arch=sm_86 ");
    cuda_on_host_fail_named(loads, 9, NO_FUNCTION); /* of one kernel of many: objects compiled for different GPUs */
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "FRUGAL_CUDA_ARCH=sm_86", "or with -arch=sm_75");
    cuda_on_host_fail_named(loads, 1, NEWER_PTX);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "a Toolkit newer than the driver", "or update the driver");
    cuda_on_host_fail_named(loads, 1, UNKNOWN);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "loading kernels", "cudaErrorUnknown");
    train_and_finish(&w);
}

/* What a device without a cache takes of the GPU's memory. */
static uint64_t least_memory(void) {
    world w = world_of(1);
    w.places[0].cache_rows = 0, w.desc.alone = FRUGAL_ALONE_PLACE;
    open_world(&w);
    frugal_cuda_info info;
    assert_works(frugal_cuda_get_info(w.f, 0, &info));
    finish(&w, 1);
    return info.bytes;
}

/* Without arrays on the GPU, which would take memory. */
static void train_one_row(frugal *f) {
    uint64_t row = 3;
    frugal_keys keys = {.table = 0, .keys = &row, .n = 1};
    frugal_batch announced = {&keys, 1, 0};
    for (uint64_t s = 0; s < 3; s++) {
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, s, &announced));
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, s, NULL));
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, s, NULL));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
}

/* As little memory as makes the cache shrink, step by step, to none. */
static void test_small_memory(void **state) {
    (void)state;
    uint64_t least = least_memory(), last = UINT64_MAX;
    int seen[2] = {0};
    for (uint64_t more = 1 << 15;; more -= more > 2000 ? 1531 : more > 100 ? 100 : 20) {
        world w = world_of(1);
        w.places[0].cache_rows = 512, w.desc.alone = FRUGAL_ALONE_PLACE;
        open_instance(&w);
        gpu_close(w.gpus[0]); /* its arrays would take memory */
        w.gpus[0] = NULL;
        cuda_on_host_reset();
        gpu_set_current(caller_gpu);
        frugal_cuda_info info;
        frugal_cuda_desc desc = {.cache_rows = 512, .policy = FRUGAL_CACHE_LRU, .stream = NULL};
        cuda_on_host_set_memory((size_t)(least + more));
        frugal_status status = frugal_cuda_attach(w.f, 0, 0, &desc);
        if (status != FRUGAL_OK) {
            assert_int_equal(FRUGAL_ERR_MEMORY, status);
            assert_non_null(strstr(frugal_message(), "bytes for the cache are not available"));
            assert_non_null(strstr(frugal_message(), "are free"));
            assert_int_equal(0, (int)cuda_on_host_alive());
            desc.shrink_cache = 1;
            status = frugal_cuda_attach(w.f, 0, 0, &desc);
            if (status != FRUGAL_OK) fail_msg("%u bytes more: %s", (unsigned)more, frugal_message());
        }
        assert_int_equal(FRUGAL_OK, frugal_cuda_get_info(w.f, 0, &info));
        assert_true(info.cache_rows <= last && info.cache_rows % 8 == 0 && info.bytes <= least + more);
        last = info.cache_rows;
        seen[0] |= last == 0, seen[1] |= last > 0 && last < 512;
        cuda_on_host_set_memory((size_t)1 << 30);
        train_one_row(w.f);
        w.step = w.judged = 0;
        close_world(&w);
        if (more < 20) break;
    }
    assert_true(seen[0] && seen[1]);
    /* Too little for anything. */
    world w = world_of(1);
    w.places[0].shrink_cache = 1;
    open_instance(&w);
    cuda_on_host_set_memory(1000);
    assert_fails(FRUGAL_ERR_MEMORY, attach(&w, 0), "bytes for", "are free");
    cuda_on_host_set_memory((size_t)1 << 30);
    train_and_finish(&w);
}

/* Attaches device `d` while the n-th call of the runtime fails; *failed: it was made. A refusal leaves nothing. */
static frugal_status attach_failing(world *w, uint32_t d, uint64_t n, int error, int *failed) {
    uint64_t alive = cuda_on_host_alive();
    cuda_on_host_fail_call(n, error);
    frugal_status status = attach(w, d);
    *failed = cuda_on_host_has_failed();
    cuda_on_host_fail_call(0, 0);
    gpu_set_current(caller_gpu);
    if (status != FRUGAL_OK && cuda_on_host_alive() != alive)
        fail_msg("call %u (%s): something is left", (unsigned)n, frugal_message());
    return status;
}

/* From a call that fails to the next one. In the long tier each fails, except where compiled kernels are interpreted:
 * these take ten times longer, and what follows a failure is the host's, as it is where each fails. */
static int64_t to_next_failure(int64_t in_short_tier) {
#ifdef TEST_CUDA_AS_PTX
    return in_short_tier;
#else
    return test_is_short() ? in_short_tier : 1;
#endif
}

/* Each call of the runtime that attaching makes fails once. */
static void check_attach_failures(frugal_desc desc, place where, int error) {
    for (uint64_t n = 1;; n += (uint64_t)to_next_failure(3)) {
        world w = world_of(2);
        w.desc.file = desc.file, w.desc.optimizer = desc.optimizer, w.n_tables = desc.n_tables;
        w.desc.alone = desc.alone;
        w.places[1] = where;
        w.desc.workers = (uint32_t)where.gate_on_stream;
        open_instance(&w);
        assert_works(attach(&w, 0));
        int failed;
        frugal_status status = attach_failing(&w, 1, n, error, &failed);
        if (status != FRUGAL_OK) {
            assert_true(failed && (status == FRUGAL_ERR_CUDA || status == FRUGAL_ERR_MEMORY));
            if (!strlen(frugal_message())) fail_msg("call %u: no message", (unsigned)n);
            assert_works(attach(&w, 1));
        }
        open_reference(&w);
        finish(&w, 4);
        if (!failed) break;
        assert_true(n < 1000);
    }
}

static void test_attach_failures(void **state) {
    (void)state;
    frugal_desc desc = {.optimizer = {.kind = FRUGAL_ADAM}};
    check_attach_failures(desc, (place){.cache_rows = 16}, UNKNOWN);
    desc.n_tables = 3, desc.alone = FRUGAL_ALONE_PLACE;
    check_attach_failures(desc, (place){.cache_rows = 16}, UNKNOWN);
    desc.n_tables = 0;
    check_attach_failures(desc, (place){.cache_rows = 16, .ordinal = 1, .gate_on_stream = 1}, OUT_OF_MEMORY);
    check_attach_failures(desc, (place){.cache_rows = 16, .shrink_cache = 1}, OUT_OF_MEMORY);
}

/* The same, of the first device, which pins what all share; what cannot be pinned is gathered. */
static void test_first_attach_failures(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        world w = world_of(1);
        w.desc.alone = FRUGAL_ALONE_PLACE;
        open_instance(&w);
        int failed;
        uint64_t alive = cuda_on_host_alive();
        if (attach_failing(&w, 0, n, UNKNOWN, &failed) != FRUGAL_OK) assert_works(attach(&w, 0));
        open_reference(&w);
        run(&w, 4);
        check(&w);
        frugal_close(w.f);
        w.f = NULL;
        if (cuda_on_host_alive() != alive) fail_msg("call %u: something is left after closing", (unsigned)n);
        close_world(&w);
        if (!failed) break;
    }
}

static void test_attach_allocations(void **state) {
    (void)state;
    for (uint64_t n = 1, failed = 1; failed; n++) {
        world w = world_of(2);
        open_instance(&w);
        uint64_t alive = cuda_on_host_alive();
        for (uint32_t d = 0; d < 2; d++) {
            uint64_t bytes = w.counter.bytes_out;
            w.counter.failures = 0;
            w.counter.fail_at = w.counter.calls + n;
            frugal_status status = attach(&w, d);
            failed = w.counter.failures;
            w.counter.fail_at = 0;
            if (!failed) continue;
            assert_fails(FRUGAL_ERR_MEMORY, status, "device", "bytes are not available");
            assert_int_equal((int)bytes, (int)w.counter.bytes_out);
            if (d == 0) assert_int_equal((int)alive, (int)cuda_on_host_alive());
            assert_works(attach(&w, d));
        }
        open_reference(&w);
        finish(&w, 3);
        assert_true(n < 100);
    }
}

static void test_refused_registration(void **state) {
    (void)state;
    int refused = 0;
    for (uint64_t n = 0; n < 24; n++) { /* the call that fails: a piece of any pinned memory; 0: none */
        world w = world_of(1);
        w.desc.alone = FRUGAL_ALONE_PLACE;
        open_instance(&w);
        cuda_on_host_fail_named("cudaHostRegister", n, NOT_SUPPORTED);
        if (attach(&w, 0) != FRUGAL_OK) {
            refused++;
            assert_non_null(strstr(frugal_message(), "pinning the "));
            assert_works(attach(&w, 0));
        }
        cuda_on_host_fail_named("cudaHostRegister", 0, 0);
        open_reference(&w);
        finish(&w, 4);
    }
    assert_true(refused > 3);
    /* Of all memory: the staging ring cannot do without. */
    world w = world_of(1);
    open_instance(&w);
    cuda_on_host_refuse_register(NOT_SUPPORTED, 0);
    assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "pinning the staging ring", "cudaErrorNotSupported");
    cuda_on_host_refuse_register(0, 0);
    train_and_finish(&w);
    /* A file in memory that cannot be registered. */
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/test_cuda.%d", (int)getpid());
    for (refused = 0; refused < 2; refused++) {
        unlink(path);
        world on_file = world_of(1);
        on_file.desc.file = path;
        open_instance(&on_file);
        if (refused) cuda_on_host_refuse_register(NOT_SUPPORTED, 1);
        assert_works(attach(&on_file, 0));
        frugal_cuda_info info;
        assert_works(frugal_cuda_get_info(on_file.f, 0, &info));
        assert_int_equal(!refused, info.table_is_pinned);
        open_reference(&on_file);
        finish(&on_file, 4);
        unlink(path);
    }
}

static void keep_notice(const char *text, void *user) {
    snprintf(user, 512, "%s", text);
}

/* A table that CUDA does not pin makes steps slower, so it is said: which memory, its size, the error. */
static void test_refusal_is_told(void **state) {
    (void)state;
    for (int refused = 0; refused < 3; refused++) { /* nothing; the table; the state, an array of its own */
        char told[512] = "";
        frugal_cuda_info info;
        world w = world_of(2);
        w.desc.alone = FRUGAL_ALONE_PLACE;
        w.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        open_instance(&w);
        frugal_on_notice(w.f, keep_notice, told);
        uint64_t pieces = frugal_get_memory(w.f, 0, FRUGAL_MEMORY_TABLE).bytes / PIECE;
        cuda_on_host_fail_named("cudaHostRegister", refused < 2 ? (uint64_t)refused : pieces + 1, OUT_OF_MEMORY);
        uint64_t alive = cuda_on_host_alive();
        for (uint32_t d = 0; d < 2; d++) {
            assert_works(attach(&w, d));
            assert_works(frugal_cuda_get_info(w.f, d, &info));
            assert_int_equal(refused == 0, info.table_is_pinned);
            assert_int_equal(refused == 0, info.refused == NULL);
            assert_int_equal(refused ? OUT_OF_MEMORY : 0, info.refused_error);
            assert_int_equal(FRUGAL_CUDA_GATE_HOST, info.gate);
        }
        assert_int_equal(refused == 0, told[0] == '\0');
        if (refused) {
            const frugal_memory_kind kinds[] = {FRUGAL_MEMORY_TABLE, FRUGAL_MEMORY_STATE};
            assert_string_equal(refused == 1 ? "the table" : "the optimizer's state", info.refused);
            assert_int_equal((int)frugal_get_memory(w.f, 0, kinds[refused - 1]).bytes, (int)info.refused_bytes);
            if (!strstr(told, info.refused) || !strstr(told, "cudaErrorMemoryAllocation")) fail_msg("told: %s", told);
        }
        assert_true(cuda_on_host_alive() > alive);
        open_reference(&w);
        finish(&w, 4);
    }
}

/* The word of gates is pinned only for devices whose streams wait for it. */
static void test_unused_gates(void **state) {
    (void)state;
    uint64_t pinned[3];
    for (uint32_t waiting = 0; waiting < 3; waiting++) {
        world w = gated(2);
        frugal_cuda_info info;
        w.desc.alone = FRUGAL_ALONE_PLACE;
        for (uint32_t d = 0; d < 2; d++) w.places[d].gate_on_stream = d >= 2 - waiting;
        open_instance(&w);
        pinned[waiting] = cuda_on_host_count("cudaHostRegister");
        for (uint32_t d = 0; d < 2; d++) {
            assert_works(attach(&w, d));
            assert_works(frugal_cuda_get_info(w.f, d, &info));
            assert_int_equal(w.places[d].gate_on_stream ? FRUGAL_CUDA_GATE_STREAM : FRUGAL_CUDA_GATE_HOST, info.gate);
        }
        pinned[waiting] = cuda_on_host_count("cudaHostRegister") - pinned[waiting];
        open_reference(&w);
        finish(&w, 4);
    }
    assert_true(pinned[0] < pinned[1]);
    assert_int_equal((int)pinned[1], (int)pinned[2]);
    world w = gated(1); /* one device in place has no gate */
    frugal_cuda_info info;
    w.desc.alone = FRUGAL_ALONE_PLACE;
    open_world(&w);
    assert_works(frugal_cuda_get_info(w.f, 0, &info));
    assert_int_equal(FRUGAL_CUDA_GATE_ORDER, info.gate);
    finish(&w, 4);
}

/* Large memory is registered in pieces, all of them or none. */
static void test_pieces(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* all are registered; the third is refused; the caller has the third */
        world w = world_of(1);
        frugal_cuda_info info;
        w.desc.alone = FRUGAL_ALONE_STAGED;
        open_instance(&w);
        frugal_memory table = frugal_get_memory(w.f, 0, FRUGAL_MEMORY_TABLE);
        unsigned char *third = (unsigned char *)((uintptr_t)table.start / PIECE * PIECE) + 2 * PIECE;
        assert_true((unsigned char *)table.start + table.bytes >= third + PIECE);
        uint64_t registered = cuda_on_host_count("cudaHostRegister"), alive = cuda_on_host_alive();
        if (kind == 1) cuda_on_host_fail_named("cudaHostRegister", 3, OUT_OF_MEMORY);
        if (kind == 2) gpu_register(third, PIECE);
        uint64_t left = cuda_on_host_count("cudaHostUnregister");
        assert_works(attach(&w, 0));
        assert_works(frugal_cuda_get_info(w.f, 0, &info));
        assert_int_equal(kind == 0, info.table_is_pinned);
        assert_int_equal(kind == 0 ? 0 : kind == 1 ? OUT_OF_MEMORY : REGISTERED, info.refused_error);
        assert_int_equal(kind == 0 ? 0 : 2, (int)(cuda_on_host_count("cudaHostUnregister") - left));
        assert_true(cuda_on_host_count("cudaHostRegister") - registered > 3 + table.bytes / PIECE);
        open_reference(&w);
        run(&w, 4);
        check(&w);
        frugal_close(w.f);
        w.f = NULL;
        if (kind == 2) gpu_unregister(third);
        assert_int_equal((int)alive, (int)cuda_on_host_alive());
        close_world(&w);
    }
}

/* The node that a GPU is at is what the system says of its PCI device. */
static void test_node(void **state) {
    (void)state;
    char folder[64], device[96], path[128];
    snprintf(folder, sizeof folder, "/tmp/test_cuda_pci.%d", (int)getpid());
    snprintf(device, sizeof device, "%s/0000:aa:00.0", folder);
    snprintf(path, sizeof path, "%s/numa_node", device);
    assert_true(mkdir(folder, 0700) == 0 && mkdir(device, 0700) == 0);
    FILE *file = fopen(path, "w");
    assert_true(file && fputs("1\n", file) >= 0 && fclose(file) == 0);
    setenv("TEST_PCI_DEVICES", folder, 1);
    world w = world_of(2);
    frugal_cuda_info info;
    w.places[1].ordinal = 1;
    open_instance(&w);
    for (uint32_t d = 0; d < 2; d++) {
        assert_works(attach(&w, d));
        assert_works(frugal_cuda_get_info(w.f, d, &info));
        assert_int_equal(d ? -1 : 1, info.node);
    }
    open_reference(&w);
    finish(&w, 2);
    unsetenv("TEST_PCI_DEVICES");
    unlink(path), rmdir(device), rmdir(folder);
}

/* A GPU that reaches other pages than the host has is not attached, whichever memory it is. */
static void test_stale_pages(void **state) {
    (void)state;
    static const char *const names[] = {"the table", "the optimizer's state", "the staging ring",
                                        "the announced batches", "the bits of rows that are alone"};
    static const frugal_memory_kind kinds[] = {FRUGAL_MEMORY_TABLE, FRUGAL_MEMORY_STATE, FRUGAL_MEMORY_BLOCKS,
                                               FRUGAL_MEMORY_BATCHES, FRUGAL_MEMORY_ALONE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        world w = world_of(1);
        w.desc.alone = FRUGAL_ALONE_PLACE, w.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        open_instance(&w);
        frugal_memory memory = frugal_get_memory(w.f, 0, kinds[i]);
        assert_true(memory.bytes > 0);
        uint64_t alive = cuda_on_host_alive();
        cuda_on_host_leave_stale(memory.start, memory.bytes);
        assert_fails(FRUGAL_ERR_CUDA, attach(&w, 0), "does not see ", names[i]);
        assert_int_equal((int)alive, (int)cuda_on_host_alive());
        cuda_on_host_leave_stale(NULL, 0);
        train_and_finish(&w);
    }
}

/* What CUDA does not unregister stays, so that no other memory comes to lie there, and it is told. */
static void test_failed_unregister(void **state) {
    (void)state;
    int seen[2] = {0};
    for (uint64_t n = 0; n < 90; n += 6) {
        char told[512] = "";
        world w = world_of(2);
        w.desc.alone = FRUGAL_ALONE_PLACE;
        open_world(&w);
        frugal_on_notice(w.f, keep_notice, told);
        run(&w, 3);
        check(&w);
        cuda_on_host_fail_named("cudaHostUnregister", n, UNKNOWN);
        frugal_close(w.f);
        w.f = NULL;
        int failed = cuda_on_host_has_failed();
        assert_int_equal(failed, strstr(told, "did not let go of memory") != NULL);
        assert_int_equal(failed, end_left(&w.counter) > 0);
        seen[failed]++;
        close_world(&w);
        cuda_on_host_reset();
        gpu_set_current(caller_gpu);
    }
    assert_true(seen[0] > 1 && seen[1] > 3);
}

/* A thread that has used no GPU trains on the second one: nobody makes a context on the first. */
static void *train_on_second(void *argument) {
    frugal *f = argument;
    uint64_t row = 3;
    frugal_keys keys = {.table = 0, .keys = &row, .n = 1};
    frugal_batch batch = {&keys, 1, 0};
    int good =
        frugal_cuda_attach(f, 0, 1, &(frugal_cuda_desc){.cache_rows = 16}) == FRUGAL_OK && !cuda_on_host_has_context(0);
    good = good && frugal_preload(f, 0, &keys) == FRUGAL_OK;
    for (uint64_t s = 0; s < 3 && good; s++) {
        good = frugal_announce(f, 0, s, &batch) == FRUGAL_OK && frugal_lookup(f, 0, s, NULL) == FRUGAL_OK &&
               frugal_update(f, 0, s, NULL) == FRUGAL_OK;
    }
    good = good && frugal_drain(f) == FRUGAL_OK && frugal_verify(f) == FRUGAL_OK;
    frugal_close(f);
    return good ? argument : NULL;
}

static void test_contexts(void **state) {
    (void)state;
    pthread_t thread;
    void *good = NULL;
    world w = world_of(1);
    frugal_desc desc = w.desc;
    cuda_on_host_reset();
    desc.tables = &w.table, desc.workers = 1;
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &w.f));
    assert_false(cuda_on_host_has_context(0) || cuda_on_host_has_context(1));
    assert_int_equal(0, pthread_create(&thread, NULL, train_on_second, w.f));
    pthread_join(thread, &good);
    if (!good) fail_msg("%s", frugal_message());
    assert_true(cuda_on_host_has_context(1));
    assert_false(cuda_on_host_has_context(0));
    assert_int_equal(0, (int)cuda_on_host_alive());
}

enum { DRIVER_CALLS = 6 }; /* that an attaching device looks for; the last is the one that makes a stream wait */

static void test_gate_kernel(void **state) {
    (void)state;
    for (uint32_t devices = 2; devices <= 3; devices++) { /* one has no gate but the order of its stream */
        world w = gated(devices);
        uint64_t before = cuda_on_host_count("cuStreamWaitValue64"), tried;
        open_instance(&w);
        for (uint32_t d = 0; d < devices; d++) {
            int found = d % 2; /* the call is not there, or it does not work */
            cuda_on_host_fail_named("cudaGetDriverEntryPointByVersion", found ? 0 : DRIVER_CALLS, NOT_SUPPORTED);
            cuda_on_host_fail_named("cuStreamWaitValue64", found, NOT_SUPPORTED);
            assert_works(attach(&w, d));
            assert_true(cuda_on_host_has_failed());
        }
        tried = cuda_on_host_count("cuStreamWaitValue64");
        assert_int_equal(devices / 2, (int)(tried - before));
        open_reference(&w);
        run(&w, 20);
        judge(&w);
        capture c = {&w, 0};
        gpu_capture(w.gpus[0], record_step, &c);
        for (int i = 0; i < 20; i++) replay_step(&w, ~1);
        finish(&w, 20);
        assert_int_equal((int)tried, (int)cuda_on_host_count("cuStreamWaitValue64"));
    }
}

/* The watchdog of a display ends a kernel that waits. */
static void test_watchdog(void **state) {
    (void)state;
    world w = gated(2);
    frugal_cuda_info info;
    open_instance(&w);
    cuda_on_host_set_attribute(HAS_WATCHDOG, 1);
    cuda_on_host_fail_named("cudaGetDriverEntryPointByVersion", DRIVER_CALLS, NOT_SUPPORTED);
    assert_fails(FRUGAL_ERR_ARGUMENT, attach(&w, 0), "watchdog of its display", "clear gate_on_stream");
    assert_works(attach(&w, 0));
    cuda_on_host_set_attribute(HAS_WATCHDOG, 0);
    cuda_on_host_fail_named("cudaGetDriverEntryPointByVersion", DRIVER_CALLS, NOT_SUPPORTED);
    assert_works(attach(&w, 1));
    for (uint32_t d = 0; d < 2; d++) {
        assert_works(frugal_cuda_get_info(w.f, d, &info));
        assert_int_equal(d ? FRUGAL_CUDA_GATE_KERNEL : FRUGAL_CUDA_GATE_STREAM, info.gate);
    }
    open_reference(&w);
    finish(&w, 10);
}

/* Where launches are held back until a stream is queried or waited for, steps go on nevertheless. */
static void test_held_launches(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        world w = i % 2 ? gated(2) : world_of(i == 4 ? 1 : 2);
        w.desc.stuck_seconds = 5;
        w.desc.alone = i < 2 ? FRUGAL_ALONE_STAGED : i < 4 ? FRUGAL_ALONE_KEPT : FRUGAL_ALONE_PLACE;
        keys_there = i > 2;
        open_world(&w);
        cuda_on_host_hold_launches(1);
        finish(&w, 20);
        cuda_on_host_hold_launches(0);
    }
}

/* Nothing waits for a GPU, and no memory is asked for, once training is under way. */
static void test_no_synchronization(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        world w = gated(2);
        w.kept = 120, w.n_tables = i & 4;
        w.desc.lookahead = 5;
        if (i & 1) w.places[1].gate_on_stream = 0;
        open_world(&w);
        if (i & 2) {
            capture c = {&w, 0};
            gpu_capture(w.gpus[0], record_step, &c);
        }
        run(&w, 5);
        uint64_t waits = cuda_on_host_synchronizations(), blocks = cuda_on_host_count("cudaMalloc");
        uint64_t pinned = cuda_on_host_count("cudaHostAlloc") + cuda_on_host_count("cudaHostRegister");
        for (int k = 0; k < 100; k++)
            if (i & 2)
                replay_step(&w, 2);
            else
                enqueue_step(&w, 5);
        assert_int_equal((int)waits, (int)cuda_on_host_synchronizations());
        assert_int_equal((int)blocks, (int)cuda_on_host_count("cudaMalloc"));
        assert_int_equal((int)pinned,
                         (int)(cuda_on_host_count("cudaHostAlloc") + cuda_on_host_count("cudaHostRegister")));
        finish(&w, 3);
    }
}

/* A call of the library is repeated until it works; the nth call of the runtime within the library fails, once. */
static int64_t calls_left;

static void arm(void) {
    cuda_on_host_fail_call(calls_left > 0 ? (uint64_t)calls_left : 0, UNKNOWN);
}
static void disarm(uint64_t before) {
    calls_left -= (int64_t)(cuda_on_host_count(NULL) - before);
    cuda_on_host_fail_call(0, 0);
    gpu_set_current(caller_gpu);
}

#define REPEATED(call)                                                                                                 \
    do {                                                                                                               \
        for (int tries = 0;; tries++) {                                                                                \
            uint64_t calls_before = cuda_on_host_count(NULL);                                                          \
            arm();                                                                                                     \
            frugal_status repeated = call;                                                                             \
            int has_failed = cuda_on_host_has_failed();                                                                \
            disarm(calls_before);                                                                                      \
            if (repeated == FRUGAL_OK) break;                                                                          \
            if (!has_failed || tries > 0) fail_msg("%s: %d, %s", #call, (int)repeated, frugal_message());              \
            if (repeated != FRUGAL_ERR_CUDA) fail_msg("%s: %d, %s", #call, (int)repeated, frugal_message());           \
        }                                                                                                              \
    } while (0)

static void failing_step(world *w) {
    for (uint64_t t = w->step; t <= w->step + w->desc.lookahead; t++)
        for (uint32_t d = 0; d < w->desc.devices; d++)
            if (w->announced[d] == t) REPEATED(try_announce(w, d));
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        REPEATED(frugal_lookup(w->f, d, w->step, rows_at(w, d)));
        train(w, d);
        frugal_gradients g = gradients_of(w, d);
        REPEATED(frugal_update(w->f, d, w->step, &g));
    }
    w->step++;
}

static void test_failures_in_training(void **state) {
    (void)state;
    static const frugal_alone ways[] = {FRUGAL_ALONE_PLACE, FRUGAL_ALONE_STAGED, FRUGAL_ALONE_KEPT};
    for (int i = 0, kind; kind = i % 4, i < 12; i++)
        for (int64_t n = 1;; n += to_next_failure(5)) {
            world w = world_of(2);
            w.desc.alone = ways[i / 4];                                  /* applied once, in place too */
            w.desc.max_keys = 80, w.make = kind == 1 ? all_equal : NULL; /* several kernels a lookup */
            w.desc.dim = 12, w.n_tables = kind == 3 ? 3 : 0;             /* two an update */
            w.places[1].ordinal = 1;
            w.kept = 8;
            if (kind == 2) w.desc.workers = 1, w.places[0].gate_on_stream = 1;
            open_world(&w);
            run(&w, 2);
            calls_left = n;
            for (int i = 0; i < 2; i++) failing_step(&w);
            int over = calls_left > 0;
            calls_left = 0;
            run(&w, 3);
            check(&w);
            close_world(&w);
            if (over) break;
            assert_true(n < 1000);
        }
}

/* A step without gradients, announced from the GPU's memory, `read_only`; its rows are what was announced. */
static void failing_step_there(world *w) {
    uint64_t keys[] = {7, 3, 7, 9};
    const uint64_t *sent = gpu_keys(w->gpus[0], keys, sizeof keys);
    frugal_keys segments[] = {{.keys = sent, .n = 1}, {.keys = sent + 1, .n = 3}};
    const frugal_batch batch = {segments, 2, 1};
    void *stream = gpu_key_stream(w->gpus[0]);
    frugal_records r;
    REPEATED(frugal_cuda_announce(w->f, 0, w->step, &batch, stream));
    REPEATED(frugal_lookup(w->f, 0, w->step, NULL));
    REPEATED(frugal_get_records(w->f, 0, w->step, &r));
    assert_true(r.n == 4 && r.n_unique == 3 && r.rows[0] == 3 && r.rows[2] == 9 && r.record_of[2] == 1);
    REPEATED(frugal_update(w->f, 0, w->step, NULL));
}

/* One device that sorts and counts: a call that fails changes no counts, either. */
static void test_failures_in_sorting(void **state) {
    (void)state;
    enum { KEYS = 60 };
    uint64_t keys[KEYS], undisturbed[KEYS], counts[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) keys[i] = i;
    frugal_keys all = {.keys = keys, .n = KEYS};
    keys_there = 0;
    for (int64_t n = 0;; n++) {
        world w = world_of(1);
        w.desc.alone = FRUGAL_ALONE_PLACE, w.desc.max_keys = 80, w.kept = 8;
        open_world(&w);
        run(&w, 2);
        calls_left = n;
        for (int i = 0; i < 2; i++) failing_step(&w);
        run(&w, 3);
        check(&w);
        cancel_all(&w);
        failing_step_there(&w);
        int over = calls_left > 0;
        assert_works(frugal_get_counts(w.f, &all, n == 0 ? undisturbed : counts));
        for (uint32_t i = 0; n > 0 && i < KEYS; i++)
            if (counts[i] != undisturbed[i])
                fail_msg("call %d: row %u has counted %d, not %d", (int)n, i, (int)counts[i], (int)undisturbed[i]);
        calls_left = 0;
        frugal_close(w.f);
        w.f = NULL;
        close_world(&w);
        if (over) break;
        assert_true(n < 1000);
    }
}

/* Between steps, too: a cache that could not be emptied must not be read. */
static void test_failures_between_steps(void **state) {
    (void)state;
    for (int64_t n = 1, devices = 1;; n++) {
        world w = world_of((uint32_t)devices);
        uint64_t rows[40];
        for (uint64_t i = 0; i < 40; i++) rows[i] = i;
        frugal_keys keys = {.table = 0, .keys = rows, .n = 40};
        open_world(&w);
        w.places[0].cache_rows = 64;
        run(&w, 6);
        check(&w);
        calls_left = n;
        REPEATED(frugal_cancel(w.f, w.step));
        for (uint32_t d = 0; d < devices; d++) w.announced[d] = w.step;
        w.salt++;
        REPEATED(try_to_write_some(&w));
        REPEATED(frugal_set_counts(w.f, &keys, rows));
        REPEATED(frugal_release_holders(w.f));
        for (uint32_t d = 0; d < devices; d++) REPEATED(frugal_preload(w.f, d, &keys));
        int over = calls_left > 0;
        calls_left = 0;
        finish(&w, 5);
        if (over && devices++ == 2) break;
        if (over) n = 0;
        assert_true(n < 1000);
    }
}

#endif /* CASES_FAILURES_H */
