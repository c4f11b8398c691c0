/* view.cuh - what kernels are given: the device, a step, and the words by which GPU and host tell each other how far
 * they are. Plain structs: they are parameters of kernels, or lie in memory that both sides reach. */
#ifndef FRUGAL_CUDA_VIEW_CUH
#define FRUGAL_CUDA_VIEW_CUH

#include "context.cuh"
#include "../../frugal_cuda.h"
#include "../device.h"

namespace frugal_cuda {

constexpr uint32_t WARP = 32;
constexpr uint32_t WAYS = 8;     /* of a set of the cache: places for copies */
constexpr uint32_t CHUNK = 32;   /* positions summed at a time, as everywhere */
constexpr uint32_t REPLAYS = 64; /* descriptors of replayed steps; at most 16 are under way */
constexpr uint32_t NO_ROW = UINT32_MAX;
constexpr uint32_t NO_WAY = UINT32_MAX;

struct row_chunk {          /* up to 32 positions of a row that has more */
    uint32_t unique, first; /* the row's index; the index of its first chunk: chunk i is number i - first of the row */
};

/* A segment of a batch whose keys the GPU reads itself. */
struct key_segment {
    const uint64_t *keys; /* one of the two; NULL: the other */
    const int32_t *keys32;
    uint64_t rows, first_row; /* of the table */
    uint32_t begin, table;    /* the position of the first key */
};

/* What the GPU finds of a batch that it sorts. */
struct found_batch {
    uint64_t bad, key; /* the first position whose key is too large, and the key; NO_POSITION: none */
    uint32_t n_unique, n_chunks;
    uint32_t blocks; /* on the GPU: of frugal_found_kernel that have ended, less 1 [C11] */
    uint64_t sorted; /* in host memory: step + 1, when the rest is written, and its rows [C9] */
};
constexpr uint64_t NO_POSITION = UINT64_MAX;

struct touch_counts {
    uint32_t *words;         /* a byte a row (src/table/worth.c), four in a word; NULL: the host counts, or nobody */
    const uint32_t *chances; /* chances[WORTH_MOST + 1]: frugal_chances */
};

struct batch_arrays { /* as in frugal_records */
    uint32_t *rows, *start, *order, *record_of;
};

/* A step, as kernels see it. */
struct gpu_step {
    uint64_t step;
    const uint32_t *rows, *start, *order, *record_of; /* as in frugal_records; in the GPU's memory, as the next two */
    const uint64_t *valid;       /* a bit for each unique row: its copy, also a secondary, is to be read */
    const uint8_t *worth;        /* worth[n_unique]; NULL: all are worth 0. This and `outdated`: for counted caches */
    const uint32_t *outdated;    /* outdated[n_outdated]: rows whose copies are outdated */
    const uint32_t *secondaries; /* secondaries[n_unique]: the number of a row's secondary, or NO_WAY; NULL: none */
    float *secondary_copies;     /* [][copy_stride]: these copies, as gpu_view.copies */
    const row_chunk *chunks;     /* chunks[n_chunks], those of a row one after the other */
    /* Rows of other machines, the last n_guests of the unique rows: in host memory, as in frugal_step. */
    const unsigned char *guests;
    const uint32_t *guest_at;
    const uint32_t *ids;   /* of the other unique rows (id_of); NULL: computed */
    const uint64_t *alone; /* in host memory: a bit for each unique row that the device updates in place; NULL: none */
    float *block;          /* in host memory */
    uint32_t n, n_unique, n_guests, n_chunks, n_outdated, record_stride;
    uint32_t brings, repeated, waits; /* waits: the stream waits for the gate */
    uint32_t replayed;  /* 1: a graph's kernels, with the largest sizes; the actual ones are in `current` */
    frugal_hyper hyper; /* of the first group of tables */
};

/* In host memory, mapped: what GPU and host tell each other. */
struct control_words {
    uint64_t done;                   /* [C1] number of steps that the device has done */
    uint64_t bad_bags;               /* step + 1 of bags that were invalid; 0: none */
    uint64_t hits[FRUGAL_P2F_SLOTS]; /* of a step, by step mod 64; written before `done` */
    uint64_t kept, dirtied, cleaned; /* as in gpu_counters; written before `done`, and before `cleanings` */
    uint64_t cleanings;              /* [C6] kernels that write back and have ended */
    gpu_step replays[REPLAYS];
};

struct gpu_counters {           /* in the GPU's memory */
    unsigned long long hits;    /* of the step's first lookup */
    uint32_t blocks;            /* of an update that have ended [C4] */
    uint32_t forced;            /* 1: a gate was forced open, and stays so: no more records or host rows are written */
    unsigned long long replays; /* begun */
    /* Of a device that keeps updates: updates that were kept; copies that became dirty; copies that were written back.
     * `dirtied` - `cleaned` copies are dirty. */
    unsigned long long kept, dirtied, cleaned;
    unsigned long long cleanings; /* kernels that write back and have ended */
    uint32_t cleaning_blocks;     /* of the one under way that have ended [C7] */
};

/* What all kernels of a device are given. Constant, except for what the arrays hold, and for `unique` and `bag_of`,
 * which are allocated for the first bags. */
struct gpu_view {
    void *weights; /* host rows, where the GPU sees them, of `rows_as`; or the gathered ones, by record */
    float *state;
    uint64_t weights_stride, state_stride; /* weights; floats */
    frugal_type rows_as;
    frugal_rounding rounding;
    uint32_t gathered;
    uint32_t id_times, id_plus; /* as in frugal_store */
    uint32_t dim, state_floats;
    uint64_t sets;   /* 0: no cache */
    uint64_t *words; /* [sets][WAYS] */
    uint64_t fall;   /* of a counted cache: what copies lose in a step without a touch (frugal_fall) */
    uint32_t keeps;  /* 1: updates are kept in copies (FRUGAL_ALONE_KEPT) */
    float *copies;   /* [sets][WAYS][copy_stride]: weights of `rows_as`, and at state_at the state */
    uint32_t copy_stride, state_at;
    uint32_t *ways;  /* ways[max_keys]: where the last lookup left the copy of a unique row, or NO_WAY */
    uint64_t *alone; /* the bits of gpu_step.alone, fetched by the last lookup; NULL: no row is updated in place */
    float *partials; /* partials[max chunks][partial_stride], and enough for the self-test */
    uint32_t partial_stride;
    uint32_t *arrived; /* arrived[max chunks]: finished chunks of a row, at its first one [C5]; zero between updates */
    float *unique;     /* unique[max_keys][unique_stride]: rows looked up for pooling; NULL until the first bags */
    uint32_t unique_stride;
    uint32_t *bag_of; /* bag_of[max_keys], as `unique` */
    gpu_counters *counters;
    control_words *control;
    gpu_step *current; /* the step of a replay */
    const uint64_t *gates;
    frugal_optimizer_kind kind;
    frugal_cache_policy policy;
    float divisor;                        /* the number of devices, if gradients are averaged; else 0 */
    float eps, rest1, rest2, decay, clip; /* of the first group of tables */
    uint32_t n_groups;                    /* of tables; the next three exist if it is above 1, or the group is frozen */
    const frugal_table_group *groups;     /* groups[n_groups] */
    frugal_hyper *hypers;                 /* hypers[n_groups], of the current update */
    const frugal_hyper *hypers_sent;      /* ring [64][n_groups] in host memory, by step, from which `hypers` come */
};

/* A step's fields: a graph reads them from memory at each use, and else they are the kernel's parameters, which take no
 * register. (A copy of the whole step would take two dozen.) */
#define FRUGAL_STEP_FIELD(name)                                                                                        \
    __device__ inline auto name() const {                                                                              \
        return given.replayed ? g.current->name : given.name;                                                          \
    }
struct step_fields {
    const gpu_view &g;
    const gpu_step &given;
    FRUGAL_STEP_FIELD(rows)
    FRUGAL_STEP_FIELD(valid)
    FRUGAL_STEP_FIELD(worth)
    FRUGAL_STEP_FIELD(outdated)
    FRUGAL_STEP_FIELD(n_outdated)
    FRUGAL_STEP_FIELD(repeated)
    FRUGAL_STEP_FIELD(step)
    FRUGAL_STEP_FIELD(start)
    FRUGAL_STEP_FIELD(order)
    FRUGAL_STEP_FIELD(secondaries)
    FRUGAL_STEP_FIELD(secondary_copies)
    FRUGAL_STEP_FIELD(chunks)
    FRUGAL_STEP_FIELD(guests)
    FRUGAL_STEP_FIELD(guest_at)
    FRUGAL_STEP_FIELD(ids)
    FRUGAL_STEP_FIELD(alone)
    FRUGAL_STEP_FIELD(block)
    FRUGAL_STEP_FIELD(n_unique)
    FRUGAL_STEP_FIELD(n_guests)
    FRUGAL_STEP_FIELD(n_chunks)
    FRUGAL_STEP_FIELD(record_stride)
    FRUGAL_STEP_FIELD(brings)
    FRUGAL_STEP_FIELD(waits)
    FRUGAL_STEP_FIELD(hyper)
};
#undef FRUGAL_STEP_FIELD

/* Where a lookup writes. */
struct row_output {
    void *rows;      /* [][stride], by position, by bag, or by record; then NULL: the staging block */
    uint64_t stride; /* elements */
    frugal_type as;
    int by_record;
};

/* Gradients by position: the caller's, or computed from those of its bags. */
struct gradient_source {
    const void *grads; /* NULL: the records are there already */
    uint64_t stride;   /* elements from gradient to gradient */
    frugal_type as;    /* of these */
    const uint32_t *bag_of, *offsets;
    const float *weights;
    uint32_t n_bags, mean;
};

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_VIEW_CUH */
