/* sim.h - a simulated machine of commodity GPUs: the time that a training step would take on it with each system.
 *
 * The keys are real, and so is what Frugal does with them: frugal.c drives the library itself (try_announce,
 * try_lookup, update; simulated workers call frugal_help), so that hits, misses, pending rows, urgencies and the gate
 * are those of the state machine. Only time is simulated: by the constants of machine.c, by the link of link.h, on
 * one thread, so that the same options give the same figures.
 */
#ifndef FRUGAL_BENCH_SIM_H
#define FRUGAL_BENCH_SIM_H

#include "bench/place/partition.h"
#include "bench/sim/link.h"
#include "bench/sim/network.h"
#include "bench/sim/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Frugal; Frugal with write-through; Frugal in which a GPU updates rows in place if it alone touches them in a step
 * (FRUGAL_ALONE_PLACE; the first two are FRUGAL_ALONE_STAGED), or keeps the updates in its cache (FRUGAL_ALONE_KEPT);
 * caches of owners that exchange all to all (as HugeCTR); no cache (as PyTorch); the table in CUDA's unified memory,
 * whose pages move to the GPU that touches them (PyTorch-UVM). */
typedef enum sim_system {
    SIM_FRUGAL,
    SIM_SYNC,
    SIM_INPLACE,
    SIM_KEPT,
    SIM_SHARDED,
    SIM_NOCACHE,
    SIM_UVM,
    SIM_SYSTEMS
} sim_system;
extern const char *const sim_system_names[SIM_SYSTEMS + 1];

typedef enum sim_constant_id {
    SIM_PCIE3,       /* GB/s of payload a direction */
    SIM_PCIE4,       /* likewise */
    SIM_PCIE5,       /* likewise */
    SIM_SOCKETS,     /* GB/s between two sockets, a direction */
    SIM_HEADER,      /* bytes a request */
    SIM_LATENCY,     /* us of a transfer */
    SIM_ZERO_COPY,   /* ns a random host row that a kernel reads, at least */
    SIM_LAUNCH,      /* us a kernel */
    SIM_GPU_MEMORY,  /* GB/s */
    SIM_GPU_TFLOPS,  /* reached */
    SIM_COPY_CALL,   /* us of a CPU gather or scatter with its copy, however small */
    SIM_GATHER,      /* ns per row of that on the CPU, without the time of its bytes */
    SIM_CORE_MEMORY, /* GB/s of one core */
    SIM_HOST_MEMORY, /* GB/s of all */
    SIM_COLLECTIVE,  /* us per GPU of an exchange among all, however small */
    SIM_NETWORK,     /* us of a message between two machines */
    SIM_SEND,        /* ns a row that the CPU gathers for another machine */
    SIM_FAULTS,      /* us until the driver has served a batch of page faults, beside the pages' bytes */
    SIM_BATCH,       /* page faults in a batch, at most */
    SIM_SIGNAL,      /* us until another processor sees a word */
    SIM_ANNOUNCE,    /* ns a key. From here on sim_calibrate measures all of them */
    SIM_WHOLE,       /* likewise, where one GPU updates in place: a step without words */
    SIM_RECALL,      /* likewise, in addition where updates are kept: whose row is recalled? */
    SIM_PLAN,        /* ns per entry of a plan */
    SIM_MARK,        /* likewise, in addition where rows are updated in place: is it alone? */
    SIM_CLOSE,       /* likewise, of a row that is queued */
    SIM_PASS,        /* likewise, of a row in place */
    SIM_FLUSH,       /* ns per row, without the time of its bytes */
    SIM_LOADERS,     /* %, by which each further thread that announces makes announcing slower */
    SIM_HELPERS,     /* %, by which planning, closing and flushing are slower with very many threads than with one */
    SIM_CONSTANTS
} sim_constant_id;

typedef struct sim_constant {
    const char *option, *unit, *what, *source;
    double value, least; /* 0 where the model allows it, which is not so for divisors */
} sim_constant;
/* In the order of sim_constant_id. */
extern const sim_constant sim_constants[SIM_CONSTANTS];

enum { SIM_MAX_GPUS = 16, SIM_MAX_DEVICES = 64, SIM_MAX_WORKERS = 256 };

typedef struct sim_workload {
    double constants[SIM_CONSTANTS];
    uint64_t rows, seed;
    uint32_t dim, gpus, keys; /* keys per GPU and step */
    uint32_t lookahead, staging, workers;
    uint32_t machines;    /* alike, with `gpus` each; 0, 1: no network */
    double network;       /* bytes a second of a machine's link to the others, each way */
    int places_homes;     /* of samples: rows lie where build/place --machines puts them, else in turn */
    const uint8_t *homes; /* homes[rows]: the machines in whose memory they are; NULL: in turn */
    double gather_cores;  /* per GPU, for systems whose rows the CPU gathers; 0: see sim_gather_cores */
    uint32_t pcie;        /* 3, 4 or 5 */
    uint32_t behind_switch, sockets, root_lanes; /* link.h */
    int pool;           /* any idle thread announces; else one loader a GPU, its batches alone */
    double zipf;        /* 0: uniform */
    double cache;       /* share of the rows, per GPU */
    double flops;       /* of the dense part, per GPU and step */
    double dense_us;    /* of its kernels' launches */
    double dense_bytes; /* of the gradients that all GPUs reduce */
    frugal_optimizer_kind optimizer;
    frugal_cache_policy policy;
    /* Of samples: secondaries (frugal_secondaries) of Frugal's systems. Each GPU lists this share of the
     * rows, those of other homes that it touches most (FRUGAL_PLACE_BY_COUNT); their bound. */
    double secondaries;
    uint32_t stale;
    uint32_t warm_up, steps; /* simulated, measured */
    /* Keys of samples that are dealt to the GPUs (samples.h); NULL: keys are drawn. */
    const place_partition *partition;
    const place_deal *deal;
    const char *dealing;        /* how, for people */
    const sim_profile *profile; /* there are no keys: a step is predicted from it (predict.c); NULL: it is simulated */
    uint32_t batch;             /* samples a GPU and step */
    int whole_rows;             /* the instances' rows are as wide as dim: sim_measure times them */
} sim_workload;

typedef struct sim_keys { /* of all steps of a workload; the same for every system */
    uint64_t *keys;       /* of all batches, one after the other */
    uint64_t *first;      /* [steps][gpus] and one more: where those of a batch begin */
    uint32_t *unique;     /* [steps][gpus] */
    uint32_t *alone;      /* [steps][gpus] of these, rows that no other GPU touches in the step */
    uint32_t *seen;       /* [rows] scratch: which GPUs touch a row in the current step */
    uint64_t rows, seed, steps;
    uint32_t gpus, n; /* of all machines; drawn for each */
    double zipf;
    const char *dealing;
    const place_trace *trace;
} sim_keys;

/* Means of the measured steps, seconds; each part is the time of the slowest GPU. A step is gate + lookup + exchange +
 * dense + update, and with several machines network.waits. */
typedef struct sim_result {
    double step;
    double gate;     /* waiting for closing and flushing, after all have committed */
    double closing;  /* ... the part of it that is closing; the rest is flushing, or a late loader */
    double recall;   /* ... from the commits until recalled rows are written back, which overlaps with closing */
    double lookup;   /* reading rows */
    double apart;    /* ... if the rows that lose their places were written back before any row is read */
    double exchange; /* all to all */
    double dense;    /* forward, backward, reducing dense gradients */
    double update;   /* writing records or gradients, and the CPU's work before the next step can begin */
    sim_network_result network;       /* of several machines */
    double misses;                    /* share of the unique rows that host memory serves */
    double unique;                    /* rows a GPU and step */
    double read_bytes, written_bytes; /* over a GPU's link, per step */
    double flushed, urgent;           /* rows per step that workers flush; of these, rows for which a gate waited */
    double alone, shared, in_place;   /* rows per step that one GPU touches; several; of `alone`, updated by that GPU */
    double kept;                      /* of `in_place`: in its cached copy alone */
    double recalled, evicted;         /* rows per step written back: for another GPU; for their places in the cache */
    double worker_share;              /* share of the step in which a worker is busy */
    double loader_share;              /* the same for a GPU's loader */
    double staging_bytes;             /* of all GPUs: the rings as they are opened */
    double staging_used;              /* the most blocks of a ring in use */
    double staging_depth;
    double gather_cores; /* per GPU; 0: the CPU gathers nothing */
    uint32_t workers;    /* 0: the system has none */
    int behind;          /* workers fall behind: the backlog grows, and this is no steady state yet */
} sim_result;

/* Draws the keys of the workload, or keeps the old ones if they are the same. *keys must be zeroed before the first
 * call. */
void sim_keys_draw(sim_keys *keys, const sim_workload *w);
void sim_keys_free(sim_keys *keys);
/* Of each batch those whose rows are at home on `machine`. *home must be zeroed before the first call. */
void sim_keys_at_home(sim_keys *home, const sim_keys *keys, const sim_workload *w, uint32_t machine);
/* Counts the guests of all steps. *net must be zeroed before the first call. */
void sim_network_count(sim_network *net, const sim_keys *keys, const sim_workload *w);
void sim_network_free(sim_network *net);
static inline uint32_t sim_devices(const sim_workload *w) { /* of all machines */
    return w->machines > 1 ? w->machines * w->gpus : w->gpus;
}
static inline uint32_t sim_home_of(const sim_workload *w, uint64_t row) {
    return w->machines < 2 ? 0 : w->homes ? w->homes[row] : (uint32_t)(row % w->machines);
}
static inline const uint64_t *sim_keys_of(const sim_keys *k, uint64_t step, uint32_t gpu) {
    return k->keys + k->first[step * k->gpus + gpu];
}
static inline uint32_t sim_count_of(const sim_keys *k, uint64_t step, uint32_t gpu) {
    uint64_t batch = step * k->gpus + gpu;
    return (uint32_t)(k->first[batch + 1] - k->first[batch]);
}
static inline uint32_t sim_unique_of(const sim_keys *k, uint64_t step, uint32_t gpu) {
    return k->unique[step * k->gpus + gpu];
}
static inline uint32_t sim_alone_of(const sim_keys *k, uint64_t step, uint32_t gpu) {
    return k->alone[step * k->gpus + gpu];
}

/* >>pieces: what a call of frugal_help did. The library has no clock for sorting and announcing keys that were handed
 * in, which frugal_announce may leave to others. */
typedef enum sim_piece { SIM_ANNOUNCING, SIM_PLANNING, SIM_CLOSING, SIM_FLUSHING, SIM_RECALLING, SIM_PIECES } sim_piece;
/* By the statistics before and after it. */
sim_piece sim_piece_of(const frugal_stats *before, const frugal_stats *after);

/* Runs one system; of a workload with a profile, predicts a step of Frugal. Ends the program if the library fails. The
 * result is incomplete after Ctrl-C (bench_interrupted). */
sim_result sim_run(sim_system system, const sim_workload *w, const sim_keys *keys);
sim_result sim_run_frugal(sim_system system, const sim_workload *w, const sim_keys *keys);
sim_result sim_run_sharded(const sim_workload *w, const sim_keys *keys);
sim_result sim_run_nocache(const sim_workload *w, const sim_keys *keys);
sim_result sim_run_uvm(const sim_workload *w, const sim_keys *keys);
sim_result sim_predict(const sim_workload *w);

/* >>kept: what of a workload is not known from its keys alone before the step is run */
typedef struct sim_kept {
    uint32_t *in_place; /* [steps][gpus] of the rows that a GPU touches alone: those without a cached copy */
    uint32_t *recalls;  /* [steps][gpus] rows that other GPUs recall from it before the step, repeated ones included */
    uint32_t gpus;
} sim_kept;
/* Counts them by running the library without a clock; incomplete after Ctrl-C. */
void sim_count_kept(sim_kept *kept, const sim_workload *w, const sim_keys *keys);
void sim_free_kept(sim_kept *kept);

/* >>the machine, shared by all systems; seconds */
sim_link sim_link_of(const sim_workload *w, int zero_copy); /* as a kernel reads, or as copies are made */
double sim_kernel(const sim_workload *w, double gpu_bytes); /* launched, and its bytes of GPU memory */
double sim_collective(const sim_workload *w);               /* an exchange of nothing among all GPUs */
double sim_dense(const sim_workload *w);
/* By what factor work takes longer while `threads` threads do work of its kind. Loaders contend for the words of hot
 * rows, each with all others. Helpers find in other caches what other threads touched last: one of two, or nine of ten
 * lines. */
double sim_loaders_slow(const sim_workload *w, double threads);
double sim_helpers_slow(const sim_workload *w, double threads);
/* Flushing rows on one core, while `busy` cores do: each is read and written, with its state, and a record or more is
 * read; all cores together reach at most the host's speed. */
double sim_flush_seconds(const sim_workload *w, double rows, double busy);
/* Cores per GPU that gather and scatter: as asked, or as many as Frugal's workers and loaders have, shared evenly by
 * the GPUs, so that all systems have the same share of the CPU. It is at least 1, because each GPU has a loader; it
 * need not be a whole number. */
double sim_gather_cores(const sim_workload *w);
/* `n` rows gathered or scattered on the CPU for one GPU, and copied; all GPUs at once. */
double sim_cpu_copy(const sim_workload *w, uint64_t n, uint64_t most_wire, uint64_t all_wire, int way);
uint64_t sim_cached_rows(const sim_workload *w);
uint32_t sim_row_bytes(const sim_workload *w);
uint64_t sim_state_bytes(const sim_workload *w); /* state of a row's optimizer; 0: it has none */
/* Floats per row that the instances have: fewer than the workload's, because the values have no effect. */
uint32_t sim_stored_dim(const sim_workload *w);
/* The traffic of a device's last step: read, written and written back, in bytes of the workload's rows. */
frugal_traffic sim_count(const frugal *f, const sim_workload *w, uint32_t device);

frugal_alone sim_alone(sim_system system); /* how the library treats rows that one GPU touches alone */
/* An instance for the workload, a device for each GPU. */
frugal *sim_open(const sim_workload *w, frugal_mode mode, frugal_alone alone, uint32_t max_keys, int defer);
void sim_free_table(void); /* the table is kept for the next instance until then */
void sim_attach(frugal *f, const sim_workload *w, uint64_t cache_rows, uint32_t owners);
void sim_check(frugal_status status);
/* >>calibrating: what the library's work costs the host */
/* Times that work on this machine, by one thread and by as many at once as it has processors, and puts it into the
 * constants, from SIM_ANNOUNCE on. path: calibrated.h, which has their defaults, to be written; NULL: no file. */
void sim_calibrate(double constants[SIM_CONSTANTS], const char *path);
/* Multiplies all times of that work by one number, which it returns, so that the workload takes `keys_per_second`. */
double sim_fit(sim_system system, sim_workload *w, const sim_keys *keys, double keys_per_second);

#ifdef __cplusplus
}
#endif
#endif
