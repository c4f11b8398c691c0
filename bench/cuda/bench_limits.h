/* bench_limits.h - how much time and memory there is, and whether a measurement fits. This is asked before it begins,
 * because a program that is killed for lack of either leaves no results. */
#ifndef FRUGAL_BENCH_CUDA_LIMITS_H
#define FRUGAL_BENCH_CUDA_LIMITS_H

#include "bench/cuda/ladder.h"

#include <stdarg.h>
#include <string>

static double seconds;       /* --seconds */
static uint64_t host_memory; /* --host-memory */
#define LIMITS_SECONDS_OPTION                                                                                          \
    {                                                                                                                  \
        "seconds", OPTIONS_REAL, &seconds, 0, 1e6, NULL,                                                               \
            "time after which nothing new is begun; what is left out is printed; 0: no limit"                          \
    }
#define LIMITS_MEMORY_OPTION                                                                                           \
    {                                                                                                                  \
        "host-memory", OPTIONS_WHOLE64, &host_memory, 0, 1e15, NULL,                                                   \
            "bytes of host memory to use at most; 0: what is available"                                                \
    }

/* >>time */

static double began; /* when the program began */
static uint32_t skipped;

/* Says what is left out, and why. */
__attribute__((format(printf, 1, 2))) static inline void skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    bench_progress("%s", "");
    printf("SKIPPED: ");
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    va_end(arguments);
    skipped++;
}

static inline int limits_time_is_over(double takes) {
    return seconds > 0 && bench_now() - began + takes > seconds;
}

/* May another measurement begin that will take this long? If not, says which one was left out. */
__attribute__((format(printf, 2, 3))) static inline int has_time_for(double takes, const char *format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (bench_interrupted()) return 0;
    if (limits_time_is_over(takes)) {
        skip("%s: the %g s of --seconds are over%s", what, seconds, takes > 0 ? ", or would be" : "");
        return 0;
    }
    bench_progress("%s", what);
    return 1;
}
#define has_time(...) has_time_for(0, __VA_ARGS__)

/* >>memory */

/* The number after `name` in a file of lines; `otherwise` if there is none. */
static inline uint64_t limits_number_in(const char *path, const char *name, uint64_t otherwise) {
    char line[256];
    FILE *file = fopen(path, "r");
    uint64_t number = otherwise;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long read;
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), " %llu", &read) == 1) {
            number = read;
            break;
        }
    }
    if (file) fclose(file);
    return number;
}

/* The memory that the control groups of this process, from its own to the root, leave to it. Their page cache counts as
 * free. */
static inline uint64_t limits_memory_of_groups(void) {
    char line[4096];
    std::string path = "";
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "0::", 3) == 0) path = std::string(line + 3, strcspn(line + 3, "\n"));
    if (file) fclose(file);
    uint64_t least = UINT64_MAX;
    for (;; path.erase(path.find_last_of('/'))) {
        std::string group = "/sys/fs/cgroup" + path;
        uint64_t most = limits_number_in((group + "/memory.max").c_str(), "", UINT64_MAX);
        uint64_t used = limits_number_in((group + "/memory.current").c_str(), "", 0);
        uint64_t cached = limits_number_in((group + "/memory.stat").c_str(), "inactive_file", 0);
        used -= std::min(used, cached);
        if (most != UINT64_MAX) least = std::min(least, most > used ? most - used : 0);
        if (path.find('/') == std::string::npos) break;
    }
    uint64_t old =
        limits_number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", UINT64_MAX); /* of the first version */
    uint64_t used = limits_number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", 0);
    return old == UINT64_MAX ? least : std::min(least, old > used ? old - used : 0);
}

/* Bytes of host memory that may be used now. A tenth of it is left alone. */
static inline uint64_t limits_host_bytes_free(void) {
    uint64_t kib = limits_number_in("/proc/meminfo", "MemAvailable:", 0);
    uint64_t bytes = std::min(kib * 1024, limits_memory_of_groups());
    if (bytes == 0) bench_fail("MemAvailable of /proc/meminfo was wanted, to size tables; it is not there, or 0");
    bytes = bytes / 10 * 9;
    return host_memory ? std::min(bytes, host_memory) : bytes;
}

/* Bytes of a GPU's memory that may be used now, of that which has least. A twentieth is left alone. */
static inline uint64_t limits_gpu_bytes_free(void) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < ladder_gpus.n; i++) {
        size_t left = 0, all = 0;
        ladder_on on(ladder_gpu(i));
        LADDER_CHECK(cudaMemGetInfo(&left, &all));
        least = std::min<uint64_t>(least, left);
    }
    return least / 20 * 19;
}

/* Is there this much memory? If not, says which measurement is left out. */
static inline int limits_fits(uint64_t host, uint64_t gpu, const char *what) {
    uint64_t host_free = limits_host_bytes_free(), gpu_free = limits_gpu_bytes_free();
    if (host > host_free)
        skip("%s: it needs %.3g GB of host memory, and %.3g GB may be used", what, (double)host * 1e-9,
             (double)host_free * 1e-9);
    else if (gpu > gpu_free)
        skip("%s: it needs %.3g GB of the GPU's memory, and %.3g GB may be used", what, (double)gpu * 1e-9,
             (double)gpu_free * 1e-9);
    return host <= host_free && gpu <= gpu_free;
}

#endif
