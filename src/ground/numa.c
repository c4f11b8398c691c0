/* numa.c - on which nodes of a machine with several memory lies.
 *
 * Tables, their state and words are interleaved, because all devices and threads reach all of them: else they lie where
 * they were first touched, and one node's memory carries all traffic. What belongs to one GPU lies near it. By mbind
 * itself, so that nothing is linked. Where the process has a policy of its own, as numactl sets it, that stays. */
#include "ground.h"

#if defined(__linux__)

#ifndef NUMA_CALL /* a test puts its own in place of these two */
#define NUMA_CALL  syscall
#define NUMA_NODES "/sys/devices/system/node/has_memory"
#endif

/* The system's numbers, whose header is not everywhere. */
enum { POLICY_DEFAULT = 0, POLICY_PREFERRED = 1, POLICY_INTERLEAVE = 3, MOVE_PAGES = 2 };

/* The nodes that have memory, from a list such as 0-3,8; none if the process has a policy of its own. */
FRUGAL_INTERNAL memory_nodes find_nodes(void) {
    memory_nodes nodes = {0};
    char text[1024] = "", *end;
    int policy = POLICY_DEFAULT;
    FILE *in = fopen(NUMA_NODES, "re");
    if (in && !fgets(text, sizeof text, in)) text[0] = 0;
    if (in) fclose(in);
    for (const char *at = text; *at >= '0' && *at <= '9'; at = *end == ',' ? end + 1 : end) {
        unsigned long low = strtoul(at, &end, 10), high = low;
        if (*end == '-') high = strtoul(end + 1, &end, 10);
        for (; low <= high && low < MOST_NODES; low++, nodes.n++) nodes.bits[low / 64] |= UINT64_C(1) << low % 64;
    }
    /* If the system does not say, mbind will. */
    if (nodes.n > 1 && NUMA_CALL(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) == 0 && policy != POLICY_DEFAULT)
        nodes.n = 0;
    return nodes;
}

/* Interleaves whole pages that nobody has touched. What the system refuses is told when the instance is open. */
FRUGAL_INTERNAL void interleave(frugal *f, void *memory, size_t bytes) {
    memory_nodes *nodes = &f->memory.nodes;
    if (nodes->n < 2) return;
    if (NUMA_CALL(SYS_mbind, memory, bytes, POLICY_INTERLEAVE, nodes->bits, MOST_NODES + 1, 0)) nodes->error = errno;
}

/* Moves whole pages to a node. Returns an errno. */
FRUGAL_INTERNAL int move_to_node(void *memory, size_t bytes, uint32_t node) {
    uint64_t bits[MOST_NODES / 64] = {0};
    bits[node / 64] |= UINT64_C(1) << node % 64;
    return NUMA_CALL(SYS_mbind, memory, bytes, POLICY_PREFERRED, bits, MOST_NODES + 1, MOVE_PAGES) ? errno : 0;
}

#else

FRUGAL_INTERNAL memory_nodes find_nodes(void) {
    return (memory_nodes){0};
}
FRUGAL_INTERNAL void interleave(frugal *f, void *memory, size_t bytes) {
    (void)f, (void)memory, (void)bytes;
}
FRUGAL_INTERNAL int move_to_node(void *memory, size_t bytes, uint32_t node) {
    (void)memory, (void)bytes, (void)node;
    return 0;
}

#endif
