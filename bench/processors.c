/* Processors, as Linux knows them. */
#include "bench/processors.h"

#include <sched.h>
#include <unistd.h>

uint32_t bench_processors(void) {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0) return (uint32_t)CPU_COUNT(&allowed);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

void bench_bind(uint32_t number) {
#if defined(__linux__)
    cpu_set_t allowed, one;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed)) return; /* of the main thread, which is never bound */
    uint32_t left = number % (uint32_t)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one); /* 0: the calling thread */
        return;
    }
#else
    (void)number;
#endif
}
