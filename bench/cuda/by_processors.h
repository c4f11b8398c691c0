/* by_processors.h - work that is split among all processors. */
#ifndef FRUGAL_BENCH_BY_PROCESSORS_H
#define FRUGAL_BENCH_BY_PROCESSORS_H

#include "bench/processors.h"

#include <algorithm>
#include <stdint.h>
#include <thread>
#include <vector>

/* Processes [0, n) in as many parts as there are processors, because they touch new memory for the first time, page by
 * page, and that takes time. */
template <typename F> static inline void by_all_processors(uint64_t n, F part) {
    std::vector<std::thread> running;
    uint64_t share = n / bench_processors() + 1;
    for (uint64_t at = 0; at < n; at += share) running.emplace_back(part, at, std::min(at + share, n));
    for (std::thread &one : running) one.join();
}

#endif
