/* run.h - the embedding part of training in one configuration, timed.
 *
 * Each device's thread announces, looks up and updates (or a loader's thread announces for it). The gradient is the row
 * itself, the derivative of |w|^2 / 2, so that only Frugal is measured.
 */
#ifndef FRUGAL_BENCH_STEP_RUN_H
#define FRUGAL_BENCH_STEP_RUN_H

#include "frugal_seeing.h"
#include "bench/measure.h"

typedef struct step_config {
    uint64_t rows, keys, steps; /* keys: looked up by a device in a step; steps: of a round */
    uint32_t dim, devices, workers, lookahead, staging, rounds;
    uint32_t device_threads; /* frugal_cpu_desc.threads; processor time is that of the calling ones */
    uint32_t threads;        /* threads of the roofline; 0: as many as this run has, at most one per processor */
    double zipf, cache;      /* cache: rows in each device's cache, as a share of all rows */
    frugal_optimizer_kind optimizer;
    frugal_mode mode;
    frugal_alone alone;
    frugal_type rows_as; /* not fp32: the table is the instance's own, and is not that of other runs */
    frugal_cache_policy policy;
    int in_place;     /* rows are gathered into the staging block, gradients take their place; 0: arrays by position */
    int loader;       /* a thread of its own announces */
    int bind;         /* binds trainers, then loaders, each to a processor; flush workers are not bound */
    int increments;   /* frugal_desc.increments */
    int trace;        /* events are recorded (frugal_trace_start) */
    const char *file; /* the table is a mapped file of this name; NULL: in memory */
    int sparse;       /* a new file's space is not reserved */
    int cold;         /* no row of the file is in memory when a round begins, ... */
    double resident;  /* ... except this share of its pages, drawn at random */
    const char *trace_file; /* the events of the last round are written to it; NULL: nowhere */
} step_config;

/* The results of one round. Seconds are wall time per step, means over devices. Those from STEP_PLAN on are summed over
 * all threads that did the work; those from STEP_CPU_LOADER on are processor time per step, summed over threads. */
typedef enum step_field {
    STEP_KEYS_PER_S,
    STEP_SHARE, /* of the roofline: time of the step's necessary memory traffic, over the step's time */
    STEP_WORDS, /* time of changing the rows' words at the speed of memory, over the step's time */
    STEP_SECONDS,
    STEP_ANNOUNCE, /* sorting, deduplicating, reading and changing the rows' words */
    STEP_GATE,     /* waiting for other devices, for closing, for flushing; helping included */
    STEP_STALL,    /* the part of STEP_GATE from the last device's commit to the opening of the gate */
    STEP_LOOKUP,   /* the gather */
    STEP_UPDATE,   /* summing gradients into the block, and committing */
    STEP_PLAN,
    STEP_CLOSE,
    STEP_FLUSH,
    STEP_CPU_LOADER, /* announcing, and helping while it waits for its turn */
    STEP_CPU_LOOKUP, /* helping at the gate, and gathering */
    STEP_CPU_UPDATE,
    STEP_CPU_WORKERS,
    STEP_GATHER_RATE, /* the roofline's speeds in this round */
    STEP_UPDATE_RATE,
    STEP_STREAM_RATE,
    STEP_WORD_RATE,
    STEP_SWEPT_GATHER_RATE,
    STEP_SWEPT_UPDATE_RATE,
    STEP_UPDATED,  /* rows updated per step: flushed, or in place */
    STEP_IN_PLACE, /* those of them that a device updated in place */
    STEP_UNIQUE,   /* distinct rows of a device's batch, over its keys */
    STEP_HITS,     /* of them, in the cache and current */
    STEP_MOVED,    /* rows per step over the link, all devices: read from and staged to host memory */
    STEP_FIELDS
} step_field;

typedef struct step_result {
    bench_samples fields[STEP_FIELDS]; /* a sample a round */
    uint32_t staging;                  /* in force */
} step_result;

typedef struct step_table step_table; /* rows, state and keys, which several runs may share */

/* A table for runs with these rows, dim, optimizer, devices, keys and zipf. */
step_table *step_open_table(const step_config *config);
void step_close_table(step_table *table);

typedef struct step_run step_run; /* one configuration under way */

/* Opens an instance on the table, which several runs may share, a round each in turn. The config is copied. */
step_run *step_open_run(step_table *table, const step_config *config);
/* One round and its roofline, drained at the end; the first round warms up and is not counted. */
void step_run_round(step_run *run);
const step_config *step_config_of(const step_run *run);
const step_result *step_result_of(const step_run *run);
void step_close_run(step_run *run);

#endif
