/* test_numa.c - on a machine with several nodes the table, its state, words and counts are interleaved, and a device's
 * memory moves to a node; what the system refuses is told; a policy of the process stays.
 *
 * The library is compiled into this program, so that calls of the system and its list of nodes can be others. Do not
 * link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__linux__)
static long numa_call(long number, ...);
static char nodes_path[64];
#define NUMA_CALL  numa_call
#define NUMA_NODES nodes_path
#endif
#define FRUGAL_P2F_IMPLEMENTATION
#define FRUGAL_ATOMICS
#include "frugal_flush.c"

#if defined(__linux__)

enum { MOST_CALLS = 32 };
static struct {
    void *memory;
    size_t bytes;
    int policy;
    uint64_t nodes;
    unsigned flags;
} calls[MOST_CALLS];
static int n_calls, refusal, policy_of_process;

/* As the system's mbind and get_mempolicy, of 64 nodes. */
static long numa_call(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    void *first = va_arg(arguments, void *);
    if (number == SYS_get_mempolicy) {
        *(int *)first = policy_of_process;
        va_end(arguments);
        return 0;
    }
    assert_int_equal(SYS_mbind, number);
    assert_true(n_calls < MOST_CALLS);
    assert_int_equal(0, (int)((uintptr_t)first % (size_t)sysconf(_SC_PAGESIZE)));
    calls[n_calls].memory = first;
    calls[n_calls].bytes = va_arg(arguments, size_t);
    calls[n_calls].policy = va_arg(arguments, int);
    calls[n_calls].nodes = *va_arg(arguments, uint64_t *);
    assert_int_equal(MOST_NODES + 1, va_arg(arguments, int));
    calls[n_calls++].flags = va_arg(arguments, unsigned);
    va_end(arguments);
    errno = refusal;
    return refusal ? -1 : 0;
}

static void write_nodes(const char *text) {
    if (!nodes_path[0]) snprintf(nodes_path, sizeof nodes_path, "/tmp/frugal_nodes.%d", (int)getpid());
    FILE *out = fopen(nodes_path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0 && fclose(out) == 0);
}

static char told[512];
static void keep_notice(const char *text, void *user) {
    (void)user;
    snprintf(told, sizeof told, "%s", text);
}

static const frugal_table table = {.rows = 200000};
static frugal_desc numa_desc(void) {
    return (frugal_desc){.tables = &table,
                         .n_tables = 1,
                         .dim = 8,
                         .devices = 2,
                         .max_keys = 64,
                         .optimizer = {.kind = FRUGAL_ROWWISE_ADAGRAD},
                         .init_threads = 1,
                         .notice = keep_notice};
}

static frugal *open_on(const char *nodes, const frugal_desc *desc) {
    frugal *f = NULL;
    write_nodes(nodes);
    n_calls = 0, told[0] = 0;
    assert_int_equal(FRUGAL_OK, frugal_open(desc, &f));
    return f;
}

static int is_interleaved(const void *memory, size_t bytes, uint64_t nodes) {
    for (int i = 0; i < n_calls; i++)
        if (calls[i].memory == memory && calls[i].bytes >= bytes && calls[i].policy == POLICY_INTERLEAVE &&
            calls[i].nodes == nodes && calls[i].flags == 0)
            return 1;
    return 0;
}

static uint32_t nodes_in_stats(frugal *f) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    return stats.nodes;
}

/* Large memory: the table, its state, words; small memory is left to who touches it. By name it lies in a region. */
static void test_interleaved(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        char name[64];
        frugal_desc desc = numa_desc();
        snprintf(name, sizeof name, "test_numa %d", (int)getpid());
        if (named) desc.name = name, desc.workers = 1;
        frugal *f = open_on("0-1,3\n", &desc);
        assert_true(is_interleaved(f->memory.table, table.rows * 8 * sizeof(float), 11));
        assert_false(is_interleaved(f->memory.state, 1, 11)); /* less than 1 MiB */
        assert_true(is_interleaved(f->p2f, table.rows * sizeof(uint64_t), 11));
        assert_int_equal(2, n_calls);
        assert_int_equal(FRUGAL_OK, frugal_begin_counting(f));
        assert_int_equal(2, n_calls);
        assert_int_equal(3, nodes_in_stats(f));
        assert_int_equal(0, told[0]);
        frugal_close(f);
    }
}

/* One node, none that is said, a policy of the process: nothing is asked for. Not of the caller's memory, either. */
static void test_left_alone(void **state) {
    (void)state;
    static const char *const lists[] = {"0\n", "", "0-1\n", "0-1\n"};
    for (int i = 0; i < 4; i++) {
        float *weights = i == 3 ? calloc(table.rows * 8, sizeof *weights) : NULL;
        frugal_desc desc = numa_desc();
        desc.weights = weights;
        policy_of_process = i == 2 ? POLICY_INTERLEAVE : POLICY_DEFAULT;
        frugal *f = open_on(lists[i], &desc);
        assert_int_equal(i == 3 ? 1 : 0, n_calls); /* the words are ours */
        if (i == 3) assert_true(is_interleaved(f->p2f, table.rows * sizeof(uint64_t), 3));
        assert_int_equal(i == 3 ? 2 : 0, nodes_in_stats(f));
        if (i < 3) assert_int_equal(0, frugal_move_memory(f, frugal_get_memory(f, 0, FRUGAL_MEMORY_BLOCKS), 1));
        assert_int_equal(0, told[0]);
        frugal_close(f);
        free(weights);
    }
    policy_of_process = POLICY_DEFAULT;
}

static void test_moved(void **state) {
    (void)state;
    frugal_desc desc = numa_desc();
    frugal *f = open_on("0-1\n", &desc);
    frugal_memory blocks = frugal_get_memory(f, 1, FRUGAL_MEMORY_BLOCKS);
    n_calls = 0;
    assert_int_equal(0, frugal_move_memory(f, blocks, -1));
    assert_int_equal(0, n_calls);
    assert_int_equal(1, frugal_move_memory(f, blocks, 1));
    assert_int_equal(1, n_calls);
    assert_true(calls[0].memory == blocks.start && calls[0].bytes == blocks.bytes && calls[0].nodes == 2);
    assert_true(calls[0].policy == POLICY_PREFERRED && calls[0].flags == MOVE_PAGES);
    frugal_close(f);
}

static void test_refused(void **state) {
    (void)state;
    frugal_desc desc = numa_desc();
    refusal = EPERM;
    frugal *f = open_on("0-1\n", &desc);
    assert_non_null(strstr(told, "2 nodes with memory"));
    assert_non_null(strstr(told, "numactl --interleave=all"));
    assert_int_equal(0, nodes_in_stats(f));
    told[0] = 0;
    assert_int_equal(0, frugal_move_memory(f, frugal_get_memory(f, 0, FRUGAL_MEMORY_BLOCKS), 1));
    assert_non_null(strstr(told, "refuses to move"));
    assert_non_null(strstr(told, "node 1"));
    frugal_close(f);
    refusal = 0;
}

static int remove_nodes(void **state) {
    (void)state;
    return nodes_path[0] ? unlink(nodes_path) : 0;
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interleaved), cmocka_unit_test(test_left_alone),
                                       cmocka_unit_test(test_moved), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("test_numa", tests, NULL, remove_nodes);
}

#else

int main(void) {
    puts("# SKIPPED: only Linux has mbind");
    return 0;
}

#endif
