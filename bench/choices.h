/* choices.h - the library's enumerations by name, as options take them and as records have them; each list ends with
 * NULL. */
#ifndef FRUGAL_BENCH_CHOICES_H
#define FRUGAL_BENCH_CHOICES_H

#include <stddef.h>
#include "src/arithmetic.h"

/* frugal_optimizer_kind, frugal_mode, frugal_cache_policy, frugal_alone, frugal_type, frugal_rounding */
static const char *const bench_optimizers[] = {FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_WORD) NULL};
static const char *const bench_modes[] = {"p2f", "sync", NULL};
static const char *const bench_policies[] = {"counted", "lru", "static", NULL};
static const char *const bench_alone[] = {"default", "staged", "place", "kept", NULL};
static const char *const bench_types[] = {"fp32", "bf16", "fp16", NULL};
static const char *const bench_roundings[] = {"stochastic", "nearest", NULL};

#endif
