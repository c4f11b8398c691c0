/* frugal_seeing.h - to see what an instance does: statistics, traffic, traces of what its threads do, and metrics. A
 * trainer includes it beside frugal.h; docs/seeing.md shows how to read traces and metrics. No call here changes a bit
 * of the table.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      >>statistics >>traces >>metrics
 */
#ifndef FRUGAL_SEEING_H
#define FRUGAL_SEEING_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>statistics */

typedef struct frugal_stats {     /* counts since open; seconds are of wall time, summed over threads */
    uint64_t steps;               /* closed */
    uint64_t keys, unique_rows;   /* looked up */
    uint64_t hits, misses;        /* unique rows served by a copy that may be read; by host memory */
    uint64_t secondary_hits;      /* ... of `hits`: by a secondary that lacked contributions */
    uint64_t gate_waits;          /* lookups that found the gate closed */
    double barrier_seconds;       /* lookups waiting for other devices to commit the step before; helping included */
    double stall_seconds;         /* from then until the gate opened: closing and flushing; helping included */
    double announce_wait_seconds; /* announcing threads waiting for their step to become legal */
    double worker_busy_seconds;   /* of the worker threads, all together, at this instance's work */
    double sort_seconds;          /* sorting announced batches, by any thread; the next three also */
    double plan_seconds;          /* planning steps */
    double close_seconds;         /* closing steps, and applying their updates where that is done at closing */
    double flush_seconds;         /* taking updates from the queue and applying them; recalls */
    uint64_t closed_entries;      /* unique rows, of each device, of steps that are, or are being, closed in pieces */
    uint64_t flushed;             /* row updates applied, those at closing included */
    uint64_t flushed_at_close;    /* ... never queued: no workers */
    uint64_t flushed_by_urgency[64];        /* ... by steps left until due, when taken (0: a gate or a read waited) */
    uint64_t alone, shared;                 /* rows of the closed steps that one device touched; that several touched */
    uint64_t in_place;                      /* of `alone`: updated by their device, and not in `flushed` */
    uint64_t kept;                          /* ... of these, once their steps are closed: in its copy alone */
    uint64_t written_back;                  /* host rows that were written later from such copies */
    uint64_t kept_now;                      /* rows of which devices keep updates, now */
    uint64_t stale_ids;                     /* queue entries found outdated */
    int64_t queue_depth[64];                /* rows not flushed yet, by steps until due, now */
    uint32_t staging_in_use, staging_depth; /* blocks of a ring that hold unflushed records, now; S */
    uint64_t state_bytes;                   /* memory that grows with rows beside table and optimizer state */
    uint64_t other_bytes;                   /* staging, plans, batches, queue, settings: does not grow with rows */
    uint64_t idle_steps;                    /* with gradients and a learning rate of 0: they change no weight */
    /* Rows with a weight that is NaN or infinite, among those that the last frugal_save or frugal_verify has read: an
     * increment reads those that changed, verify those with a current copy, once for each copy. And the number, over
     * all tables, of the first of them. */
    uint64_t nonfinite_rows, first_nonfinite;
    /* Of table, optimizer state, words and counts, as far as they take 1 MiB or more: bytes in memory; of these, those
     * on huge pages, without which random rows cost more (docs/results.md). The system is asked in the first call, and
     * again once 8 times as many steps are closed, because it takes 17 ms per GB of small pages. 0, 0: not known. */
    uint64_t resident_bytes, huge_bytes;
    uint64_t pages_asked; /* of a table in a file: asked for before lookups, as not all of a range were in memory */
    /* Nodes of the machine over which table, optimizer state, words and counts are interleaved, each as far as it takes
     * 1 MiB or more and is neither the caller's nor a file; 0: there is one node, or the process has a memory policy of
     * its own (numactl), or the system refuses, which a notice has told. */
    uint32_t nodes;
} frugal_stats;
/* Any thread. Counts may lag a moment; those of steps, keys and flushed rows are exact once drained. */
FRUGAL_API void frugal_get_stats(frugal *f, frugal_stats *out);

/* What crossed between a device on host cores and host memory: [0] read at lookup, [1] written at update, [2] written
 * back. */
typedef struct frugal_traffic {
    uint64_t rows[3];  /* host rows, one per miss (a repeated lookup reads again); records and rows in place, one per
                          unique row whose update is not kept; rows whose updates were kept */
    uint64_t bytes[3]; /* of their weights; and of the optimizer state of each row that was copied into the cache,
                          updated in place, or written back */
} frugal_traffic;
/* The traffic of `device` in its latest step, and in all its steps including that one; either may be NULL. A row that
 * is written back between steps counts for the step to come. The device's trainer thread. The same order of
 * announcements gives the same counts: if two devices touch a row in a step, the first to announce may find its copy
 * current. Errors: ARGUMENT (no instance), DEVICE (not attached by frugal_cpu_attach). */
FRUGAL_API frugal_status frugal_cpu_get_traffic(const frugal *f, uint32_t device, frugal_traffic *last_step,
                                                frugal_traffic *total);

/* >>traces */

/* Begins to record events: which call or piece of work a thread did, when, at which step; and why a gate was closed.
 * Each thread has a ring of the `events` that it recorded last, or one fewer: 16 to 2^24, rounded up to a power of two;
 * 0: 16384, or as before. The first call allocates all rings, 64 bytes an event, for 2 n + workers + 9 threads. They
 * stay until frugal_close, so later calls must ask for as many, or 0. A call while events are recorded begins anew.
 * Recording changes no bits. Any thread. Errors: ARGUMENT, MEMORY. */
FRUGAL_API frugal_status frugal_trace_start(frugal *f, uint32_t events);
/* Ends it; what was recorded stays, to be written. Any thread. Errors: ARGUMENT. */
FRUGAL_API frugal_status frugal_trace_stop(frugal *f);
/* Writes what the rings have now to the file `path`, as JSON for ui.perfetto.dev or chrome://tracing. An earlier trace
 * of that name is replaced when the new one is whole; another file is not. Training may go on: events that are
 * overwritten meanwhile are left out. "lost_events" counts these, and those that a ring had no room for. A worker
 * records its last pieces perhaps after frugal_drain has returned. Times are in us, to the ns, since
 * frugal_trace_start. Any thread. Errors: ARGUMENT (nothing was started, no path), FILE. */
FRUGAL_API frugal_status frugal_trace_write(frugal *f, const char *path);

/* >>metrics */

/* Writes what instances[n] have counted since they were opened, as OpenMetrics text: for a scraper, after
 * "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8". names[n]: UTF-8, of which each sample has
 * one as its label `store`; NULL: their numbers, and no label if n is 1. Returns the length of the text, below `size`,
 * with a 0 behind it. Else `text` is as before or cut off, and the number returned, `size` or more, is a size to try
 * next. Returns 0 on an error. Metrics called "worst" are of the interval since the last call that wrote a text, so
 * there should be one scraper. One thread at a time; training may go on, but no instance may be closed.
 * Errors: ARGUMENT. */
FRUGAL_API size_t frugal_write_metrics(frugal *const *instances, const char *const *names, uint32_t n, char *text,
                                       size_t size);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_SEEING_H */
