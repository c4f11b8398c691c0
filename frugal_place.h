/* frugal_place.h - deals samples to devices by locality, ranks the rows that each device should keep, and plans which
 * device keeps which rows where devices read each other's memory. C11, public domain or MIT.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * A sample (a triple, a click) touches a few rows of an embedding table. If samples are dealt to devices at random,
 * every device touches every popular row, and copies in the devices' caches are outdated at once. This header divides
 * the samples into parts, one for each device, so that most touches of a row come from one part.
 *
 * Where devices can read each other's memory and rows are only read, the devices need not all keep the same rows: each
 * device keeps the hottest rows, and a group of devices keeps other rows once. Which rows are kept in which way, so
 * that reads are fastest, is decided by the functions of section >>peers, which need nothing else of this header.
 *
 * CONTENTS
 *      1. Do this                 5. Example              9. Costs and limits
 *      2. Options                 6. Ownership           10. Relatives
 *      3. Overview                7. Threading           11. Licence
 *      4. The argument            8. Errors
 *      >>public >>structs >>memory >>samples >>scores >>two_level >>packing >>after >>worth >>epoch >>baselines
 *      >>peers
 *
 * 1. DO THIS
 *      In ONE C file, before including it:
 *          #define FRUGAL_PLACE_IMPLEMENTATION
 *          #include "frugal_place.h"
 *      In every other file only the #include. All of it is C11, and also C++17 and CUDA C++. It needs no library, no
 *      thread and no file, and knows nothing of frugal.h.
 *
 * 2. OPTIONS (each a macro defined before the #include)
 *      FRUGAL_API      everywhere: linkage of the public functions. Default: extern.
 *      FRUGAL_STATIC   implementation file: all functions are static.
 *      FRUGAL_ASSERT   implementation file: checks of our own invariants. Default: assert.
 *
 * 3. OVERVIEW
 *      A *partition* is one byte for each sample: its part. It lies in the caller's memory, and one that METIS or any
 *      other program has made can be loaded instead (frugal_place_load). This header counts, for each row x, its
 *      touches from each part c: count(x, c), and count(x) from all parts. All decisions follow from these counts.
 *
 *      The two-level method reads the samples, in pieces of any size, in this order (n: the number of parts):
 *          frugal_place_count     all samples once: counts the touches of each row
 *          frugal_place_stream    all samples once, in order: each goes to one of k clusters (k = 4 n, at least 16)
 *          frugal_place_propose   a block of samples: finds the best cluster for each; any threads, as no count changes
 *          frugal_place_move      the same block: each sample whose best cluster is another one is scored again, and
 *                                 moved. Both calls are repeated, block by block, over all samples
 *          frugal_place_pack      the k clusters become n parts
 *          frugal_place_propose, frugal_place_move: about three times over all samples, now with parts
 *      After that: frugal_place_assign puts new samples into parts; frugal_place_age halves the weight of the past;
 *      frugal_place_rank lists the rows that a device should preload; frugal_place_get_report; frugal_place_permute
 *      and frugal_place_range give the order of samples in an epoch.
 *
 *      For peers: frugal_place_make_plan makes a plan from the bandwidths of a machine and the touches of rows. A plan
 *      divides the rows, in order of their touches, among *patterns*: groups of devices of one size, each of which
 *      keeps a row once. frugal_place_source says from which device a row is read; frugal_place_slots, _position and
 *      _slot, where it lies there.
 *
 * 4. THE ARGUMENT
 *      What is maximized. The part that touches row x most is the *home* of x, and its touches are *local*. The share
 *      of local touches limits what exact caches can save, because a copy is current only until another device touches
 *      the row. So a sample should go to the part c with the highest score: the sum over the sample's keys x of
 *          count(x, c) / count(x),
 *      the chance that another touch of x comes from c. All parts touch a popular row (a relation, a country), and its
 *      terms are all about 1 / n, so it makes little difference. One or two parts touch a rare row, which decides.
 *
 *      Why a stream first. Moves from a random start cannot find communities: all counts are about equal, so no sample
 *      has a reason to move (on FB15k-237, 8 parts, five rounds of HET-GMP reach a local share of .53, this method
 *      .78). In a stream the first samples are spread evenly, and each later one joins those with which it shares rows.
 *
 *      Why two levels. A stream decides early, when it knows few samples. With k = 4 n clusters, a community that was
 *      cut in two by chance lies in two clusters, a and b, and packing joins them by their affinity, the sum over x of
 *      count(x, a) count(x, b) / count(x). With k = n it stays cut: a local share of .75 instead of .78 on FB15k-237.
 *      There are at least 16 clusters, because 8 are too few for two devices: where all rows are popular, as in click
 *      logs, two halves have equal scores, and smaller clusters do not.
 *
 *      Why blocks. frugal_place_propose finds which samples should move by counts that do not change within a block
 *      (65,536 samples is a good size). frugal_place_move scores only these again, with the counts after the moves
 *      before: otherwise all samples of a block would move to the same part. So the result is a function of the
 *      samples, their order and the size of the blocks alone: on any machine, because scores are integers.
 *
 *      Machines. If the devices are on several machines, a touch of a row of another machine crosses the network. So
 *      packing gives each machine parts of high affinity, with consecutive numbers, and a sample's score for a part has
 *      a second term: the sum of the scores above over all parts of the machine.
 *
 *      Balance. Devices take steps together, so a part should have at most (1 + slack) / n of the samples: a cluster or
 *      part that is full accepts no sample. While streaming, size / mean size is subtracted from the score; otherwise
 *      the first clusters would fill up first. When samples are moved, half of that is subtracted for each key: a
 *      larger part has more touches of all rows, so all samples would move there until it is full. If packing has made
 *      a part too large, its samples move to other parts, whatever their scores, until it is not.
 *
 *      What a copy is worth has a closed form. If a device takes `batch` samples of its part at random in a step,
 *      device i touches row x lambda_i = batch count(x, i) / size(i) times on average. Let lambda be the sum over all
 *      devices, and t = 1 - exp(-lambda_i). Then in a step
 *          device i reads x                        t                       times, and
 *          finds its copy current, if it keeps it, t t exp(-(lambda - lambda_i)) / (1 - exp(-lambda)) times,
 *      because in the last step in which any device touched x, device i must have touched it, and no other device.
 *
 * 5. EXAMPLE (compiled as examples/placement.c)
 *
 *      frugal_place_desc desc = {.rows = ROWS, .parts = 2};
 *      void *memory = malloc(frugal_place_footprint(&desc));
 *      frugal_place *p = frugal_place_init(memory, &desc);
 *      frugal_place_samples samples = {.keys = keys, .n = SAMPLES, .width = 3};
 *      uint8_t parts[SAMPLES], to[SAMPLES];
 *      frugal_place_count(p, &samples);
 *      frugal_place_stream(p, &samples, parts);
 *      for (int pass = 0; pass < 4; pass++) {
 *          frugal_place_propose(p, &samples, parts, to);
 *          frugal_place_move(p, &samples, to, parts, NULL);
 *          if (pass == 0) frugal_place_pack(p, parts, SAMPLES);
 *      }
 *      frugal_place_report report = frugal_place_get_report(p, 0);
 *      printf("%.0f%% of the touches are local\n", 100 * report.local_share);
 *      free(memory);
 *
 * 6. OWNERSHIP
 *      The caller gives one block of memory, aligned to 8 bytes, and keeps it until the last call. It holds all counts,
 *      and no pointers. Samples and parts are the caller's: no call keeps pointers to them. There is nothing to free.
 *
 * 7. THREADING
 *      frugal_place_propose, _check, _home, _touches, _size, _rank and _get_report only read: any number of threads may
 *      call them at the same time, each with arrays of its own. All other calls that take a frugal_place are made by
 *      one thread, while no other thread is in a call. frugal_place_permute, _range, _random, _bicut, and the calls
 *      that make or read a frugal_place_plan have no state.
 *
 * 8. ERRORS
 *      Errors are frugal_place_status codes; frugal_place_strerror gives their text. A call that fails has changed
 *      nothing, except frugal_place_assign, _move and _het_gmp_samples, which stop at the first sample that fails (the
 *      last two say how many they have moved). frugal_place_check says which key is wrong.
 *
 * 9. COSTS AND LIMITS
 *      Memory: 4 (k + 1) bytes a row: 132 bytes with 8 devices, about the size of a row of 32 floats. Time: in a pass a
 *      touch costs k multiplications, and a cache line for each 16 clusters; a sample that is scored again costs this
 *      twice, the second time in the thread that moves it. Rows sorted by frequency (build/reorder) make it faster.
 *      Keys 0 .. rows - 1; at most 256 clusters, so 64 devices with k = 4 n; 2^32 - 1 touches a row. A sample may have
 *      any number of keys; a key that it has twice counts twice. A sample without keys goes where there is room.
 *
 * 10. RELATIVES
 *      *Linear deterministic greedy* (Stanton and Kliot 2012) and *Fennel* (Tsourakakis et al. 2014) place vertices of
 *      a graph in one pass, by the number of neighbours minus a balance term. *Louvain* and multilevel partitioners
 *      (METIS, Karypis and Kumar 1998) find small communities and join them, as packing does; METIS needs the whole
 *      graph in memory. *BiCut* (Chen et al. 2015) hashes one side of a bigraph (here: the rows) and puts each vertex
 *      of the other side where most of its neighbours are. *HET-GMP* (Miao et al., SIGMOD '22, Algorithm 1) moves
 *      samples and rows in rounds from a random start. BiCut, HET-GMP and random parts are here, as baselines
 *      (>>baselines). *UGache* (Song et al., SOSP '23) plans copies for GPUs with NVLink: a solver solves a
 *      mixed-integer program over blocks of rows of similar frequency. HPS keeps the same rows on every GPU; WholeGraph
 *      and SOK keep each row on one.
 *
 * 11. LICENCE
 *      MIT or public domain (Unlicense), at your choice; see LICENSE.
 */
#ifndef FRUGAL_PLACE_H
#define FRUGAL_PLACE_H

#include <stddef.h>
#include <stdint.h>

#ifndef FRUGAL_API
#define FRUGAL_API extern
#endif
#ifdef __GNUC__
#define FRUGAL_PRIV_PLACE_STATIC static __attribute__((unused)) /* a file need not call all of them */
#else
#define FRUGAL_PRIV_PLACE_STATIC static
#endif
#if defined(FRUGAL_STATIC) && defined(FRUGAL_PLACE_IMPLEMENTATION)
#define FRUGAL_PLACE_API FRUGAL_PRIV_PLACE_STATIC
#else
#define FRUGAL_PLACE_API FRUGAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>public
 * --------------------------------------------------------------------------------------------------------- */

#define FRUGAL_PLACE_MAX_PARTS 256 /* parts, and clusters: each is a byte */
#define FRUGAL_PLACE_NOWHERE   256 /* frugal_place_home: nobody has touched the row */

typedef enum frugal_place_status {
    FRUGAL_PLACE_OK = 0,
    FRUGAL_PLACE_KEY = -1,     /* a key is not below `rows` */
    FRUGAL_PLACE_OFFSET = -2,  /* offsets fall */
    FRUGAL_PLACE_PART = -3,    /* a part is not below their number, or is not the one that was counted */
    FRUGAL_PLACE_ORDER = -4,   /* the call does not belong here: see OVERVIEW */
    FRUGAL_PLACE_FULL = -5,    /* a row has 2^32 - 1 touches, or more samples are streamed than were counted */
    FRUGAL_PLACE_WEIGHT = -6,  /* a weight of a pair of devices, or a factor, is negative or not finite */
    FRUGAL_PLACE_MACHINE = -7, /* a machine's devices or bandwidths are out of their limits: see frugal_place_machine */
    FRUGAL_PLACE_LEVELS = -8   /* levels are not in falling order of touches, or these are negative or not finite */
} frugal_place_status;

typedef struct frugal_place_desc {
    uint64_t rows;     /* keys are 0 .. rows - 1 */
    uint32_t parts;    /* devices, n: 1 to 256 */
    uint32_t clusters; /* k: n to 256; 0: 4 n, at least 16, at most 256 */
    double slack;      /* a part has at most (1 + slack) / n of the samples, rounded up; 0: .05 */
    uint32_t machines; /* that have the devices, part c is on machine c / (parts / machines); divides parts; 0: 1 */
} frugal_place_desc;

/* Samples: keys[] holds those of each, one sample after the other. */
typedef struct frugal_place_samples {
    const uint64_t *keys;
    const uint64_t *offsets; /* [n + 1]: sample s has keys[offsets[s]] to keys[offsets[s + 1] - 1]; NULL: see width */
    uint64_t n;
    uint32_t width; /* keys of each sample, if offsets is NULL */
} frugal_place_samples;

typedef struct frugal_place frugal_place; /* lies in the caller's memory */

/* Bytes of memory, a multiple of 8; 0 if the descriptor is out of its limits, or if there are too many bytes. */
FRUGAL_PLACE_API size_t frugal_place_footprint(const frugal_place_desc *desc);
/* Starts in memory[footprint], aligned to 8 bytes. NULL if the footprint is 0, or the memory is NULL or badly aligned.
 * Costs O(rows x clusters). */
FRUGAL_PLACE_API frugal_place *frugal_place_init(void *memory, const frugal_place_desc *desc);
/* A sentence for a status; never NULL. */
FRUGAL_PLACE_API const char *frugal_place_strerror(frugal_place_status status);
/* Looks at the samples as all calls below do. *at (may be NULL) is the index of the key, or of the offset, that is
 * wrong. Errors: KEY, OFFSET. */
FRUGAL_PLACE_API frugal_place_status frugal_place_check(const frugal_place *p, const frugal_place_samples *samples,
                                                        uint64_t *at);

/* Counts the touches of each row. All samples once, in any order and number of calls, before anything else. Errors:
 * KEY, OFFSET, FULL, ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_count(frugal_place *p, const frugal_place_samples *samples);
/* Puts the next samples into clusters: parts[n] is written. All samples once, in the same order as ever. Errors: KEY,
 * OFFSET, FULL, ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_stream(frugal_place *p, const frugal_place_samples *samples,
                                                         uint8_t *parts);
/* Says where each of the samples would rather be: to[n], from parts[n]. Changes nothing; any thread may call it for any
 * samples of a block. Errors: KEY, OFFSET, PART, ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_propose(const frugal_place *p, const frugal_place_samples *samples,
                                                          const uint8_t *parts, uint8_t *to);
/* The samples of a block that want to go, to[n] other than parts[n], are asked again, in order, and go where is best
 * now, if there is room; parts[n] is changed. *moved (may be NULL) is their number. Errors: KEY, OFFSET, PART (nothing
 * is changed if it is one of to[n]), ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_move(frugal_place *p, const frugal_place_samples *samples,
                                                       const uint8_t *to, uint8_t *parts, uint64_t *moved);
/* Packs the clusters into parts, and renames those of parts[n], which are all samples. Costs O(rows x clusters x
 * clusters). Errors: PART, ORDER (the samples streamed are not those counted). */
FRUGAL_PLACE_API frugal_place_status frugal_place_pack(frugal_place *p, uint8_t *parts, uint64_t n);
/* Instead of count, stream and pack: takes samples with their parts as somebody else has made them. In any number of
 * calls, before anything else. Errors: KEY, OFFSET, PART, FULL, ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_load(frugal_place *p, const frugal_place_samples *samples,
                                                       const uint8_t *parts);

/* Puts samples that are new into parts, one by one, and counts them: parts[n] is written. After pack or load. Errors:
 * KEY, OFFSET, FULL (the samples before are in their parts, and counted), ORDER. */
FRUGAL_PLACE_API frugal_place_status frugal_place_assign(frugal_place *p, const frugal_place_samples *samples,
                                                         uint8_t *parts);
/* Halves all counts, so that what was counted before weighs half. Samples that were counted cannot be moved any more,
 * only newer ones. Errors: ORDER (before pack or load). */
FRUGAL_PLACE_API frugal_place_status frugal_place_age(frugal_place *p);
/* The part that touches the row most, the first of them if there are several; FRUGAL_PLACE_NOWHERE if none does, or if
 * there is no such row. */
FRUGAL_PLACE_API uint32_t frugal_place_home(const frugal_place *p, uint64_t row);
/* Touches of a row by a part, or by a cluster until they are packed; 0 if there is no such row or part. */
FRUGAL_PLACE_API uint32_t frugal_place_touches(const frugal_place *p, uint64_t row, uint32_t part);

typedef enum frugal_place_rank_by {
    FRUGAL_PLACE_BY_GAIN, /* hits that a copy brings in a step, by the closed form above: for preloading */
    FRUGAL_PLACE_BY_COUNT /* touches by the part, of rows whose home is elsewhere: HET-GMP's replicas, equation (6) */
} frugal_place_rank_by;

/* The rows that `part` should keep: at most `n`, in falling order of value, rows of the same value in rising order.
 * keys[n], values[n] are written; rows of no value are left out. `batch`: samples of a device in a step. Returns how
 * many; 0 if there is no such part, or before pack or load. Costs O(rows log n). */
FRUGAL_PLACE_API uint64_t frugal_place_rank(const frugal_place *p, uint32_t part, frugal_place_rank_by by,
                                            uint64_t batch, uint64_t *keys, double *values, uint64_t n);

typedef struct frugal_place_report {
    uint64_t samples, touches; /* counted; halved by aging */
    uint64_t rows;             /* with touches */
    uint64_t local;            /* touches from the home of the row */
    uint64_t largest;          /* samples in the largest part */
    double local_share;        /* local / touches */
    double balance;            /* largest x parts / samples */
    double reads;              /* rows that all devices read in a step without caches; if batch > 0 */
    double hits;               /* of them, found current if every device kept every row; if batch > 0 */
} frugal_place_report;

/* Of clusters until they are packed. Costs O(rows x parts). */
FRUGAL_PLACE_API frugal_place_report frugal_place_get_report(const frugal_place *p, uint64_t batch);
/* Samples in a part, or in a cluster until they are packed; 0 if there is no such part. */
FRUGAL_PLACE_API uint64_t frugal_place_size(const frugal_place *p, uint32_t part);

/* The order of an epoch. x < n -> a permutation of 0 .. n - 1 that depends on the key: draw it anew for each part and
 * epoch. n at most 2^63; 0 if x is not below n. */
FRUGAL_PLACE_API uint64_t frugal_place_permute(uint64_t key, uint64_t n, uint64_t x);
/* In step `step` of an epoch of `steps`, a device takes the positions *from to *end - 1 of the n in its part. Parts of
 * different sizes end together, each sample is dealt once, and no step differs by more than one from n / steps. */
FRUGAL_PLACE_API void frugal_place_range(uint64_t n, uint64_t steps, uint64_t step, uint64_t *from, uint64_t *end);

/* Baselines, for comparisons: parts[n], which frugal_place_load takes. */

/* A random partition, as even as it can be: samples `first` to first + n - 1 of `total`. */
FRUGAL_PLACE_API void frugal_place_random(uint64_t seed, uint32_t n_parts, uint64_t total, uint64_t first, uint64_t n,
                                          uint8_t *parts);
/* BiCut: rows have parts by hash, and a sample goes where most of its rows are. Not balanced. Errors: OFFSET, PART
 * (n_parts is 0 or above 256). */
FRUGAL_PLACE_API frugal_place_status frugal_place_bicut(uint64_t seed, uint32_t n_parts,
                                                        const frugal_place_samples *samples, uint8_t *parts);

/* HET-GMP's Algorithm 1, lines 3 to 5. A touch costs weights[i][j] if the sample is in part i and its row in part j. */
typedef struct frugal_place_het_gmp {
    uint8_t *homes;            /* [rows]: the parts of the rows; the caller fills them, by frugal_place_random */
    const double *weights;     /* [parts][parts], not negative, those of i and i are not read; NULL: 1 */
    double alpha, beta, gamma; /* equation (4): the price of a sample, a row, a touch's cost above the mean */
    double costs[FRUGAL_PLACE_MAX_PARTS]; /* by part: of its samples' touches; kept by the two calls */
} frugal_place_het_gmp;

/* A round: first the rows go to their best parts, then the samples, in pieces, in order; *moved (may be NULL) is the
 * number that did. The balance is a penalty: it is added to the cost. Equation (2) subtracts it, and under an arg min
 * that would favour full parts. After load. Errors: PART, WEIGHT, ORDER; samples: KEY, OFFSET, too. */
FRUGAL_PLACE_API frugal_place_status frugal_place_het_gmp_rows(frugal_place *p, frugal_place_het_gmp *g);
FRUGAL_PLACE_API frugal_place_status frugal_place_het_gmp_samples(frugal_place *p, frugal_place_het_gmp *g,
                                                                  const frugal_place_samples *samples, uint8_t *parts,
                                                                  uint64_t *moved);

/* Peers: which device keeps a copy of which row, if devices can read each other's memory, and rows are only read. */

#define FRUGAL_PLACE_MAX_DEVICES  64
#define FRUGAL_PLACE_MAX_PATTERNS 5
#define FRUGAL_PLACE_HOST         FRUGAL_PLACE_MAX_DEVICES /* frugal_place_source: no device that can be read */

/* What devices read, and how fast: bytes a second, measured while all of them read. */
typedef struct frugal_place_machine {
    uint32_t devices;   /* n: 1 to 64 */
    uint64_t capacity;  /* rows that each can keep */
    uint64_t row_bytes; /* read at a touch; 1 at least */
    const double *peer; /* [n][n]: by device i from the memory of device j, for i = j its own, above 0; 0: it cannot */
    const double *host; /* [n]: from host memory, above 0 */
    const uint32_t
        *roots; /* [n]: the root of the bus, below n, that the device shares with others; NULL: none is shared */
    const double *root; /* [n]: by root: from host memory by all of its devices together, above 0; NULL as above */
    double host_share;  /* the share of a device's cores that read from the host; 0: a sixteenth */
    double writes;      /* rows that go to the host, for each touch, over the link of the reads; 0: none */
} frugal_place_machine;

/* Rows that are touched equally often: `touches` of each by each device in a step. */
typedef struct frugal_place_level {
    double touches;
    uint64_t rows;
} frugal_place_level;

typedef enum frugal_place_policy {
    FRUGAL_PLACE_PLANNED,     /* the fastest division among all sizes of groups */
    FRUGAL_PLACE_REPLICATED,  /* every device keeps the hottest rows */
    FRUGAL_PLACE_PARTITIONED, /* the largest groups keep the hottest rows, one copy in a group */
    FRUGAL_PLACE_TWO_TIERS    /* the hottest rows by every device, the next ones once in each of the largest groups */
} frugal_place_policy;

/* Devices in groups of one size. Each group keeps one copy of a row, on its devices in turn. Rounds of `size` rows
 * alternate between two orders of a group's devices. A device reads the copy of its own group, or of the next one if
 * that has a link that is less busy; if it is not connected to the device that has it, it reads the row from the
 * host. */
typedef struct frugal_place_pattern {
    uint32_t size;
    uint64_t rows;                                /* in order of their touches, after those of patterns before */
    uint8_t group[FRUGAL_PLACE_MAX_DEVICES];      /* [n]: of a device */
    uint8_t place[2][FRUGAL_PLACE_MAX_DEVICES];   /* [round % 2][n]: of a device in its group */
    uint8_t member[2][FRUGAL_PLACE_MAX_DEVICES];  /* [round % 2][n]: [group][place], their devices */
    uint64_t across[2][FRUGAL_PLACE_MAX_DEVICES]; /* [round % 2][n]: bit k: it reads place k of the next group */
} frugal_place_pattern;

typedef struct frugal_place_plan {
    uint32_t devices, n; /* patterns, by rising size; the first is of size 1 */
    frugal_place_pattern patterns[FRUGAL_PLACE_MAX_PATTERNS];
    uint64_t reads[FRUGAL_PLACE_MAX_DEVICES];       /* by device: bit j: it can read device j */
    double seconds;                                 /* of a step of the slowest device, predicted */
    double own_seconds, peer_seconds, host_seconds; /* of these: its own memory, the slowest peer, the host */
    double own_share, peer_share, host_share;       /* of the touches: where their rows are read */
} frugal_place_plan;

/* Makes a plan by a policy, for rows in `n` levels of falling touches. Rows are then known by their positions in this
 * order, from 0. Errors: MACHINE, LEVELS; *plan is not changed. Costs at most 51,000 visits of all levels to find the
 * best shares, and 56,000 to make whole rows of them. */
FRUGAL_PLACE_API frugal_place_status frugal_place_make_plan(const frugal_place_machine *machine,
                                                            const frugal_place_level *levels, uint32_t n,
                                                            frugal_place_policy policy, frugal_place_plan *plan);
/* The seconds of a step with a plan for this machine, with other touches than those that it was made for.
 * touches[plan->n + 1], by each device: of the rows of each pattern, and last of the rows that are read from the host.
 * It shows whether a plan is still good. */
FRUGAL_PLACE_API double frugal_place_predict(const frugal_place_machine *machine, const frugal_place_plan *plan,
                                             const double *touches);
/* The device from which `device` reads the row at the position: itself, a peer, or FRUGAL_PLACE_HOST. */
FRUGAL_PLACE_API uint32_t frugal_place_source(const frugal_place_plan *plan, uint32_t device, uint64_t position);
/* The rows that the device keeps: the slots 0 to frugal_place_slots() - 1, each with the row at a position. */
FRUGAL_PLACE_API uint64_t frugal_place_slots(const frugal_place_plan *plan, uint32_t device);
FRUGAL_PLACE_API uint64_t frugal_place_position(const frugal_place_plan *plan, uint32_t device, uint64_t slot);
/* The slot that has the row at the position, on a device that keeps it. */
FRUGAL_PLACE_API uint64_t frugal_place_slot(const frugal_place_plan *plan, uint32_t device, uint64_t position);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_PLACE_H */

#if defined(FRUGAL_PLACE_IMPLEMENTATION) && !defined(FRUGAL_PLACE_IMPLEMENTED)
#define FRUGAL_PLACE_IMPLEMENTED
#ifndef FRUGAL_ASSERT
#include <assert.h>
#define FRUGAL_ASSERT(condition) assert(condition)
#endif
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------
 * >>structs
 * --------------------------------------------------------------------------------------------------------- */

enum { FRUGAL_PRIV_PLACE_COUNTING, FRUGAL_PRIV_PLACE_CLUSTERS, FRUGAL_PRIV_PLACE_PARTS }; /* phases */

/* A share of 1 in scores. A count is below 2^32, so count times (this / total) is at most this. */
#define FRUGAL_PRIV_PLACE_ONE UINT32_MAX

struct frugal_place {
    uint64_t rows;
    uint32_t parts, clusters;
    uint32_t k; /* columns of the counts: `clusters`, later `parts` */
    uint32_t phase;
    uint32_t of_machine; /* parts of each machine; 0: the machines are not told apart */
    double slack;
    uint64_t counted, streamed; /* samples */
    uint64_t touches, streamed_touches;
    uint64_t size[FRUGAL_PLACE_MAX_PARTS]; /* samples by cluster or part; their sum is `streamed` */
    /* Then, aligned to 8: uint64_t affinity[clusters][clusters]; uint64_t near[clusters][parts];
     * uint32_t total[rows]; uint32_t count[rows][k], of which total is the sum. */
};

FRUGAL_PRIV_PLACE_STATIC uint64_t *frugal_priv_place_affinity(frugal_place *p) {
    return (uint64_t *)(p + 1);
}
FRUGAL_PRIV_PLACE_STATIC uint64_t *frugal_priv_place_near(frugal_place *p) {
    return frugal_priv_place_affinity(p) + (size_t)p->clusters * p->clusters;
}
FRUGAL_PRIV_PLACE_STATIC uint32_t *frugal_priv_place_total(const frugal_place *p) {
    return (uint32_t *)(frugal_priv_place_near((frugal_place *)(uintptr_t)p) + (size_t)p->clusters * p->parts);
}
FRUGAL_PRIV_PLACE_STATIC uint32_t *frugal_priv_place_counts(const frugal_place *p, uint64_t row) {
    return frugal_priv_place_total(p) + p->rows + row * p->k;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>memory
 * --------------------------------------------------------------------------------------------------------- */

/* The clusters that a descriptor asks for; 0: it is out of its limits. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_clusters(const frugal_place_desc *desc) {
    uint32_t most = FRUGAL_PLACE_MAX_PARTS, n = desc->parts, k = desc->clusters;
    if (n == 0 || n > most || k > most || desc->rows == 0) return 0;
    if (!(desc->slack >= 0) || desc->slack > (double)most) return 0;
    if (desc->machines > 1 && n % desc->machines != 0) return 0;
    if (k == 0) k = n > most / 4 ? most : n < 4 ? 16 : 4 * n;
    return k < n ? 0 : k;
}

FRUGAL_PLACE_API size_t frugal_place_footprint(const frugal_place_desc *desc) {
    uint64_t k = frugal_priv_place_clusters(desc), fixed = sizeof(frugal_place) + 8 * k * (k + desc->parts);
    if (k == 0 || desc->rows > (SIZE_MAX - fixed - 8) / (4 * (k + 1))) return 0;
    return (size_t)((fixed + 4 * (k + 1) * desc->rows + 7) / 8 * 8);
}

FRUGAL_PLACE_API frugal_place *frugal_place_init(void *memory, const frugal_place_desc *desc) {
    size_t bytes = frugal_place_footprint(desc);
    if (bytes == 0 || !memory || (uintptr_t)memory % 8 != 0) return NULL;
    memset(memory, 0, bytes);
    frugal_place *p = (frugal_place *)memory;
    p->rows = desc->rows, p->parts = desc->parts, p->slack = desc->slack == 0 ? .05 : desc->slack;
    p->clusters = p->k = frugal_priv_place_clusters(desc);
    if (desc->machines > 1) p->of_machine = desc->parts / desc->machines;
    return p;
}

FRUGAL_PLACE_API const char *frugal_place_strerror(frugal_place_status status) {
    switch (status) {
    case FRUGAL_PLACE_OK:
        return "success";
    case FRUGAL_PLACE_KEY:
        return "a key is not below the number of rows; frugal_place_check says which one";
    case FRUGAL_PLACE_OFFSET:
        return "an offset is below the one before it; frugal_place_check says which one";
    case FRUGAL_PLACE_PART:
        return "a part is not below the number of parts, or is not the one that was counted";
    case FRUGAL_PLACE_ORDER:
        return "the order of calls is count, stream, propose and move, pack; or load";
    case FRUGAL_PLACE_FULL:
        return "a row has 2^32 - 1 touches, or more samples are streamed than were counted";
    case FRUGAL_PLACE_WEIGHT:
        return "a weight or a factor is negative or not finite";
    case FRUGAL_PLACE_MACHINE:
        return "a machine has 1 to 64 devices, rows of 1 byte at least, bandwidths that are finite, those of its own "
               "memory and the host above 0, roots below the number of devices, shares from 0 to 1";
    case FRUGAL_PLACE_LEVELS:
        return "touches of levels must be finite, not negative, and fall; all rows must be fewer than 2^63";
    default:
        return "not a status of frugal_place.h";
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * >>samples - their keys, and the counts of a sample's touches
 * --------------------------------------------------------------------------------------------------------- */

/* The keys of sample s. */
FRUGAL_PRIV_PLACE_STATIC const uint64_t *frugal_priv_place_keys(const frugal_place_samples *samples, uint64_t s,
                                                                uint64_t *n) {
    uint64_t from = samples->offsets ? samples->offsets[s] : s * samples->width;
    *n = samples->offsets ? samples->offsets[s + 1] - from : samples->width;
    return samples->keys + from;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_check(const frugal_place *p, const frugal_place_samples *samples,
                                                        uint64_t *at) {
    uint64_t n = samples->n, first = samples->offsets ? samples->offsets[0] : 0;
    for (uint64_t s = 0; samples->offsets && s < n; s++)
        if (samples->offsets[s + 1] < samples->offsets[s]) {
            if (at) *at = s + 1;
            return FRUGAL_PLACE_OFFSET;
        }
    for (uint64_t i = first, end = samples->offsets ? samples->offsets[n] : n * samples->width; i < end; i++)
        if (samples->keys[i] >= p->rows) {
            if (at) *at = i;
            return FRUGAL_PLACE_KEY;
        }
    return FRUGAL_PLACE_OK;
}

/* Adds 1 to the totals of keys[n]. Returns 0, and has changed nothing, if one would be too large. */
FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_raise(frugal_place *p, const uint64_t *keys, uint64_t n) {
    uint32_t *total = frugal_priv_place_total(p);
    for (uint64_t i = 0; i < n; i++) {
        if (total[keys[i]] < UINT32_MAX) {
            total[keys[i]]++;
            continue;
        }
        while (i > 0) total[keys[--i]]--;
        return 0;
    }
    return 1;
}

FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_add(frugal_place *p, const uint64_t *keys, uint64_t n, uint32_t c) {
    for (uint64_t i = 0; i < n; i++) frugal_priv_place_counts(p, keys[i])[c]++;
    p->size[c]++;
}

/* Returns 0, and has changed nothing, if the sample cannot be one of those counted in c. */
FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_remove(frugal_place *p, const uint64_t *keys, uint64_t n, uint32_t c) {
    if (p->size[c] == 0) return 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *count = frugal_priv_place_counts(p, keys[i]) + c;
        if (*count > 0) {
            --*count;
            continue;
        }
        while (i > 0) frugal_priv_place_counts(p, keys[--i])[c]++;
        return 0;
    }
    p->size[c]--;
    return 1;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_count(frugal_place *p, const frugal_place_samples *samples) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (p->phase != FRUGAL_PRIV_PLACE_COUNTING) return FRUGAL_PLACE_ORDER;
    if (status != FRUGAL_PLACE_OK || samples->n == 0) return status;
    uint64_t first = samples->offsets ? samples->offsets[0] : 0;
    uint64_t n = (samples->offsets ? samples->offsets[samples->n] : samples->n * samples->width) - first;
    if (!frugal_priv_place_raise(p, samples->keys + first, n)) return FRUGAL_PLACE_FULL;
    p->counted += samples->n, p->touches += n;
    return FRUGAL_PLACE_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>scores - how well a sample fits each cluster or part
 * --------------------------------------------------------------------------------------------------------- */

/* score[c] = the sum over the keys of count(x, c) / count(x), for all columns c. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_score(const frugal_place *p, const uint64_t *keys, uint64_t n,
                                                      int64_t *score) {
    uint32_t k = p->k, *total = frugal_priv_place_total(p);
    for (uint32_t c = 0; c < k; c++) score[c] = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t *count = frugal_priv_place_counts(p, keys[i]);
        uint32_t each = total[keys[i]] ? FRUGAL_PRIV_PLACE_ONE / total[keys[i]] : 0;
        for (uint32_t c = 0; c < k; c++) score[c] += (int64_t)((uint64_t)count[c] * each);
    }
}

/* Without what the sample itself has brought to `own`. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_discount(const frugal_place *p, const uint64_t *keys, uint64_t n,
                                                         uint32_t own, int64_t *score) {
    const uint32_t *total = frugal_priv_place_total(p);
    for (uint64_t i = 0; i < n; i++)
        if (total[keys[i]]) score[own] -= FRUGAL_PRIV_PLACE_ONE / total[keys[i]];
}

/* Adds to each part's score the sum over the parts of its machine. Clusters are on no machine yet. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_join(const frugal_place *p, int64_t *score) {
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS || p->of_machine == 0) return;
    for (uint32_t first = 0; first < p->parts; first += p->of_machine) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < p->of_machine; i++) sum += score[first + i];
        for (uint32_t i = 0; i < p->of_machine; i++) score[first + i] += sum;
    }
}

/* Samples that a cluster or part may have, of so many. */
FRUGAL_PRIV_PLACE_STATIC uint64_t frugal_priv_place_cap(const frugal_place *p, uint32_t k, uint64_t samples) {
    double exact = (1 + p->slack) * (double)samples / k;
    uint64_t whole = (uint64_t)exact;
    return whole + ((double)whole < exact);
}

/* The cluster or part of best score that has room: of equal ones the smallest, then the first. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_best(const frugal_place *p, const int64_t *score, uint64_t cap) {
    uint32_t best = p->k;
    for (uint32_t c = 0; c < p->k; c++) {
        if (p->size[c] >= cap) continue;
        if (best < p->k && score[c] < score[best]) continue;
        if (best < p->k && score[c] == score[best] && p->size[c] >= p->size[best]) continue;
        best = c;
    }
    FRUGAL_ASSERT(best < p->k);
    return best;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>two_level - stream, refine
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_PLACE_API frugal_place_status frugal_place_stream(frugal_place *p, const frugal_place_samples *samples,
                                                         uint8_t *parts) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (p->phase == FRUGAL_PRIV_PLACE_PARTS) return FRUGAL_PLACE_ORDER;
    if (status != FRUGAL_PLACE_OK) return status;
    if (samples->n > p->counted - p->streamed) return FRUGAL_PLACE_FULL;
    uint64_t cap = frugal_priv_place_cap(p, p->k, p->counted), n;
    int64_t score[FRUGAL_PLACE_MAX_PARTS], penalty[FRUGAL_PLACE_MAX_PARTS];
    double price = (double)FRUGAL_PRIV_PLACE_ONE * p->k / (double)(p->counted ? p->counted : 1);
    for (uint32_t c = 0; c < p->k; c++) penalty[c] = (int64_t)((double)p->size[c] * price);
    for (uint64_t s = 0; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        frugal_priv_place_score(p, keys, n, score);
        for (uint32_t c = 0; c < p->k; c++) score[c] -= penalty[c];
        uint32_t best = frugal_priv_place_best(p, score, cap);
        frugal_priv_place_add(p, keys, n, best);
        penalty[best] = (int64_t)((double)p->size[best] * price);
        parts[s] = (uint8_t)best;
        p->streamed++, p->streamed_touches += n;
    }
    p->phase = FRUGAL_PRIV_PLACE_CLUSTERS;
    return FRUGAL_PLACE_OK;
}

FRUGAL_PRIV_PLACE_STATIC frugal_place_status frugal_priv_place_check_parts(const frugal_place *p, const uint8_t *parts,
                                                                           uint64_t n) {
    for (uint64_t s = 0; s < n; s++)
        if (parts[s] >= p->k) return FRUGAL_PLACE_PART;
    return FRUGAL_PLACE_OK;
}

/* Where a sample of `own` would rather be. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_choose(const frugal_place *p, const uint64_t *keys, uint64_t n,
                                                           uint32_t own, uint64_t cap) {
    int64_t score[FRUGAL_PLACE_MAX_PARTS];
    double mean = p->counted > p->k ? (double)p->counted / p->k : 1;
    uint32_t best = own;
    frugal_priv_place_score(p, keys, n, score);
    frugal_priv_place_discount(p, keys, n, own, score);
    frugal_priv_place_join(p, score);
    for (uint32_t c = 0; c < p->k; c++) { /* without the sample itself; no more than a key can bring */
        double size = (double)(p->size[c] - (c == own && p->size[c])) / mean;
        score[c] -= (int64_t)((size < 2 ? size : 2) * (FRUGAL_PRIV_PLACE_ONE / 2)) * (int64_t)n;
    }
    if (p->size[own] > cap) score[own] = INT64_MIN; /* it has too many: any other part is better */
    for (uint32_t c = 0; c < p->k; c++)
        if (score[c] > score[best] && p->size[c] < cap) best = c;
    return best;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_propose(const frugal_place *p, const frugal_place_samples *samples,
                                                          const uint8_t *parts, uint8_t *to) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (p->phase == FRUGAL_PRIV_PLACE_COUNTING) return FRUGAL_PLACE_ORDER;
    if (status == FRUGAL_PLACE_OK) status = frugal_priv_place_check_parts(p, parts, samples->n);
    if (status != FRUGAL_PLACE_OK) return status;
    uint64_t cap = frugal_priv_place_cap(p, p->k, p->counted);
    for (uint64_t s = 0, n; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        to[s] = (uint8_t)frugal_priv_place_choose(p, keys, n, parts[s], cap);
    }
    return FRUGAL_PLACE_OK;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_move(frugal_place *p, const frugal_place_samples *samples,
                                                       const uint8_t *to, uint8_t *parts, uint64_t *moved) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (moved) *moved = 0;
    if (p->phase == FRUGAL_PRIV_PLACE_COUNTING) return FRUGAL_PLACE_ORDER;
    if (status == FRUGAL_PLACE_OK) status = frugal_priv_place_check_parts(p, parts, samples->n);
    if (status == FRUGAL_PLACE_OK) status = frugal_priv_place_check_parts(p, to, samples->n);
    if (status != FRUGAL_PLACE_OK) return status;
    uint64_t cap = frugal_priv_place_cap(p, p->k, p->counted);
    for (uint64_t s = 0, n; s < samples->n; s++) {
        uint32_t own = parts[s];
        if (to[s] == own) continue;
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        uint32_t best = frugal_priv_place_choose(p, keys, n, own, cap);
        if (best == own) continue;
        if (!frugal_priv_place_remove(p, keys, n, own)) return FRUGAL_PLACE_PART;
        frugal_priv_place_add(p, keys, n, best);
        parts[s] = (uint8_t)best;
        if (moved) ++*moved;
    }
    return FRUGAL_PLACE_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>packing - clusters become parts
 * --------------------------------------------------------------------------------------------------------- */

/* affinity[a][b] = the sum over the rows of count(x, a) count(x, b) / count(x), in units of 2^-16, so that it stays
 * below 2^64 for up to 2^48 touches. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_affinities(frugal_place *p) {
    uint64_t *affinity = frugal_priv_place_affinity(p);
    uint32_t *total = frugal_priv_place_total(p), k = p->k, used[FRUGAL_PLACE_MAX_PARTS];
    memset(affinity, 0, (size_t)k * k * sizeof *affinity);
    for (uint64_t x = 0; x < p->rows; x++) {
        const uint32_t *count = frugal_priv_place_counts(p, x);
        uint32_t n = 0;
        for (uint32_t c = 0; total[x] && c < k; c++)
            if (count[c]) used[n++] = c;
        for (uint32_t i = 0; n > 1 && i < n; i++) {
            uint64_t share = (uint64_t)count[used[i]] * (FRUGAL_PRIV_PLACE_ONE / total[x]) >> 16;
            for (uint32_t j = 0; j < i; j++) affinity[(size_t)used[i] * k + used[j]] += share * count[used[j]];
        }
    }
    for (uint32_t a = 0; a < k; a++) /* both triangles */
        for (uint32_t b = 0; b < a; b++)
            affinity[(size_t)a * k + b] = affinity[(size_t)b * k + a] =
                affinity[(size_t)a * k + b] + affinity[(size_t)b * k + a];
}

/* near[c][i] = the affinity of cluster c to the other clusters of part i. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_nearness(frugal_place *p, const uint32_t *part) {
    const uint64_t *affinity = frugal_priv_place_affinity(p);
    uint64_t *near = frugal_priv_place_near(p);
    memset(near, 0, (size_t)p->clusters * p->parts * sizeof *near);
    for (uint32_t a = 0; a < p->clusters; a++)
        for (uint32_t b = 0; b < p->clusters; b++)
            if (b != a && part[b] < p->parts)
                near[(size_t)a * p->parts + part[b]] += affinity[(size_t)a * p->clusters + b];
}

/* Fills one part after the other: with the largest cluster that is left, then those of most affinity per sample, while
 * they fit. What is left at the end goes to the smallest part. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_fill(frugal_place *p, uint32_t *part, uint64_t *size, uint64_t cap) {
    uint32_t k = p->clusters, n = p->parts;
    for (uint32_t c = 0; c < k; c++) part[c] = n; /* none */
    for (uint32_t i = 0; i < n; i++)
        for (int first = 1; first || size[i] < p->counted / n; first = 0) {
            const uint64_t *near = frugal_priv_place_near(p);
            uint32_t best = k;
            double value, most = -1;
            frugal_priv_place_nearness(p, part);
            for (uint32_t c = 0; c < k; c++) {
                if (part[c] < n || (!first && size[i] + p->size[c] > cap)) continue;
                value = first ? (double)p->size[c] : (double)near[(size_t)c * n + i] / (double)(p->size[c] + 1);
                if (value > most) most = value, best = c;
            }
            if (best == k) break;
            part[best] = i, size[i] += p->size[best];
        }
    for (uint32_t c = 0; c < k; c++) {
        uint32_t least = 0;
        if (part[c] < n) continue;
        for (uint32_t i = 1; i < n; i++)
            if (size[i] < size[least]) least = i;
        part[c] = least, size[least] += p->size[c];
    }
}

/* Exchanges two clusters of different parts, the pair that gains most affinity within parts and makes no part larger
 * than the cap, or than the larger part was. Returns 0 if there is none. The gain is positive, so this ends. */
FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_exchange(frugal_place *p, uint32_t *part, uint64_t *size, uint64_t cap) {
    const uint64_t *affinity = frugal_priv_place_affinity(p), *near = frugal_priv_place_near(p);
    uint32_t k = p->clusters, n = p->parts, a = k, b = k;
    int64_t most = 0;
    frugal_priv_place_nearness(p, part);
    for (uint32_t c = 0; c < k; c++)
        for (uint32_t d = 0; d < c; d++) {
            uint32_t i = part[c], j = part[d];
            uint64_t limit = size[i] > size[j] ? size[i] : size[j];
            if (limit < cap) limit = cap;
            if (i == j || size[i] - p->size[c] + p->size[d] > limit || size[j] - p->size[d] + p->size[c] > limit)
                continue;
            int64_t gain = (int64_t)(near[(size_t)c * n + j] + near[(size_t)d * n + i] - near[(size_t)c * n + i] -
                                     near[(size_t)d * n + j] - 2 * affinity[(size_t)c * k + d]);
            if (gain > most) most = gain, a = c, b = d;
        }
    if (most == 0) return 0;
    uint32_t i = part[a], j = part[b];
    size[i] += p->size[b] - p->size[a], size[j] += p->size[a] - p->size[b];
    part[a] = j, part[b] = i;
    return 1;
}

/* The affinity of two parts, in rows of `clusters`, in place of that of clusters, which is not needed any more. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_between(frugal_place *p, const uint32_t *part) {
    uint64_t *between = frugal_priv_place_affinity(p), *near = frugal_priv_place_near(p);
    uint32_t k = p->clusters, n = p->parts;
    frugal_priv_place_nearness(p, part);
    memset(between, 0, (size_t)k * k * sizeof *between);
    for (uint32_t c = 0; c < k; c++)
        for (uint32_t i = 0; i < n; i++)
            if (i != part[c]) between[(size_t)part[c] * k + i] += near[(size_t)c * n + i];
}

/* Of the parts order[parts], those of a machine follow each other: the affinity of `part` to those at from to
 * from + n - 1. */
FRUGAL_PRIV_PLACE_STATIC uint64_t frugal_priv_place_to_machine(frugal_place *p, const uint32_t *order, uint32_t part,
                                                               uint32_t from, uint32_t n) {
    const uint64_t *between = frugal_priv_place_affinity(p) + (size_t)part * p->clusters;
    uint64_t sum = 0;
    for (uint32_t i = from; i < from + n; i++) sum += between[order[i]];
    return sum;
}

/* Exchanges the parts at two places of different machines if that gains affinity within machines. */
FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_swap(frugal_place *p, uint32_t *order, uint32_t i, uint32_t j) {
    uint32_t n = p->of_machine, of_i = i / n * n, of_j = j / n * n, a = order[i], b = order[j];
    uint64_t now =
        frugal_priv_place_to_machine(p, order, a, of_i, n) + frugal_priv_place_to_machine(p, order, b, of_j, n);
    uint64_t then =
        frugal_priv_place_to_machine(p, order, a, of_j, n) + frugal_priv_place_to_machine(p, order, b, of_i, n);
    if (of_i == of_j || then <= now + 2 * frugal_priv_place_affinity(p)[(size_t)a * p->clusters + b]) return 0;
    order[i] = b, order[j] = a;
    return 1;
}

/* Gives each machine the parts of most affinity, and renumbers them: a machine after the other takes the first part
 * that is left, then those of most affinity to what it has. Then parts are exchanged, which ends, because each exchange
 * gains. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_group_parts(frugal_place *p, uint32_t *part, uint64_t *size) {
    uint32_t n = p->parts, order[FRUGAL_PLACE_MAX_PARTS], number[FRUGAL_PLACE_MAX_PARTS];
    uint64_t old[FRUGAL_PLACE_MAX_PARTS];
    if (p->of_machine == 0) return;
    frugal_priv_place_between(p, part);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t first = at / p->of_machine * p->of_machine, best = at;
        uint64_t most = 0;
        for (uint32_t i = at; i < n && at > first; i++) {
            uint64_t value = frugal_priv_place_to_machine(p, order, order[i], first, at - first);
            if (value > most) most = value, best = i;
        }
        uint32_t taken = order[best];
        order[best] = order[at], order[at] = taken;
    }
    for (int gains = 1; gains;) {
        gains = 0;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < i; j++) gains |= frugal_priv_place_swap(p, order, i, j);
    }
    memcpy(old, size, sizeof old);
    for (uint32_t i = 0; i < n; i++) number[order[i]] = i, size[i] = old[order[i]];
    for (uint32_t c = 0; c < p->clusters; c++) part[c] = number[part[c]];
}

/* Adds up the columns of each part. The rows move down in memory, so it is done in rising order. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_fold(frugal_place *p, const uint32_t *part) {
    uint32_t sum[FRUGAL_PLACE_MAX_PARTS], *to = frugal_priv_place_counts(p, 0);
    for (uint64_t x = 0; x < p->rows; x++) {
        const uint32_t *count = frugal_priv_place_counts(p, x);
        memset(sum, 0, p->parts * sizeof *sum);
        for (uint32_t c = 0; c < p->clusters; c++) sum[part[c]] += count[c];
        memcpy(to + x * p->parts, sum, p->parts * sizeof *sum);
    }
    p->k = p->parts;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_pack(frugal_place *p, uint8_t *parts, uint64_t n) {
    uint32_t part[FRUGAL_PLACE_MAX_PARTS] = {0};
    uint64_t size[FRUGAL_PLACE_MAX_PARTS] = {0}, cap = frugal_priv_place_cap(p, p->parts, p->counted);
    if (p->phase == FRUGAL_PRIV_PLACE_PARTS || p->streamed != p->counted || p->streamed_touches != p->touches)
        return FRUGAL_PLACE_ORDER;
    frugal_place_status status = frugal_priv_place_check_parts(p, parts, n);
    if (status != FRUGAL_PLACE_OK) return status;
    frugal_priv_place_affinities(p);
    frugal_priv_place_fill(p, part, size, cap);
    while (frugal_priv_place_exchange(p, part, size, cap)) continue;
    frugal_priv_place_group_parts(p, part, size);
    frugal_priv_place_fold(p, part);
    memcpy(p->size, size, sizeof size);
    for (uint64_t s = 0; s < n; s++) parts[s] = (uint8_t)part[parts[s]];
    p->phase = FRUGAL_PRIV_PLACE_PARTS;
    return FRUGAL_PLACE_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>after - parts that others have made, new samples, aging
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_PLACE_API frugal_place_status frugal_place_load(frugal_place *p, const frugal_place_samples *samples,
                                                       const uint8_t *parts) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS && p->counted > 0) return FRUGAL_PLACE_ORDER;
    if (status != FRUGAL_PLACE_OK) return status;
    for (uint64_t s = 0; s < samples->n; s++)
        if (parts[s] >= p->parts) return FRUGAL_PLACE_PART;
    uint64_t first = samples->offsets ? samples->offsets[0] : 0, n;
    uint64_t touches = (samples->offsets ? samples->offsets[samples->n] : samples->n * samples->width) - first;
    if (!frugal_priv_place_raise(p, samples->keys + first, samples->n ? touches : 0)) return FRUGAL_PLACE_FULL;
    p->phase = FRUGAL_PRIV_PLACE_PARTS, p->k = p->parts;
    for (uint64_t s = 0; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        frugal_priv_place_add(p, keys, n, parts[s]);
        p->touches += n, p->counted++;
    }
    return FRUGAL_PLACE_OK;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_assign(frugal_place *p, const frugal_place_samples *samples,
                                                         uint8_t *parts) {
    frugal_place_status status = frugal_place_check(p, samples, NULL);
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS) return FRUGAL_PLACE_ORDER;
    if (status != FRUGAL_PLACE_OK) return status;
    int64_t score[FRUGAL_PLACE_MAX_PARTS];
    for (uint64_t s = 0, n; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        frugal_priv_place_score(p, keys, n, score);
        frugal_priv_place_join(p, score);
        uint32_t best = frugal_priv_place_best(p, score, frugal_priv_place_cap(p, p->k, p->counted + 1));
        if (!frugal_priv_place_raise(p, keys, n)) return FRUGAL_PLACE_FULL;
        frugal_priv_place_add(p, keys, n, best);
        p->touches += n, p->counted++;
        parts[s] = (uint8_t)best;
    }
    return FRUGAL_PLACE_OK;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_age(frugal_place *p) {
    uint32_t *total = frugal_priv_place_total(p);
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS) return FRUGAL_PLACE_ORDER;
    p->touches = p->counted = 0;
    for (uint64_t x = 0; x < p->rows; x++) {
        uint32_t *count = frugal_priv_place_counts(p, x);
        total[x] = 0;
        for (uint32_t c = 0; c < p->k; c++) total[x] += count[c] /= 2;
        p->touches += total[x];
    }
    for (uint32_t c = 0; c < p->k; c++) p->counted += p->size[c] /= 2;
    return FRUGAL_PLACE_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>worth - what a copy of a row is worth to a part, and what the parts are worth
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_PLACE_API uint32_t frugal_place_home(const frugal_place *p, uint64_t row) {
    uint32_t home = 0;
    if (row >= p->rows) return FRUGAL_PLACE_NOWHERE;
    const uint32_t *count = frugal_priv_place_counts(p, row);
    for (uint32_t c = 1; c < p->k; c++)
        if (count[c] > count[home]) home = c;
    return count[home] ? home : FRUGAL_PLACE_NOWHERE;
}

FRUGAL_PLACE_API uint32_t frugal_place_touches(const frugal_place *p, uint64_t row, uint32_t part) {
    return row < p->rows && part < p->k ? frugal_priv_place_counts(p, row)[part] : 0;
}

/* 1 - exp(-x) for x >= 0. Its own, so that all machines agree: a series where x is small, then 1 - exp(-2 x) =
 * m (2 - m) for m = 1 - exp(-x), which keeps small values exact. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_rise(double x) {
    unsigned doublings = 0;
    double m = 0;
    if (!(x < 64)) return 1;
    for (; x > .25; x /= 2) doublings++;
    for (int i = 12; i > 0; i--) m = x / i * (1 - m); /* x - x x / 2 + ..., from its end */
    for (; doublings > 0; doublings--) m *= 2 - m;
    return m;
}

/* The touches of a row in a step by one part, if a device takes `batch` samples of it. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_rate(const frugal_place *p, const uint32_t *count, uint32_t part,
                                                       uint64_t batch) {
    return count[part] ? (double)count[part] * (double)batch / (double)p->size[part] : 0;
}

/* The hits of a copy of the row in a step: see THE ARGUMENT. `all` is the sum of the parts' rates. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_gain(double rate, double all) {
    double t = frugal_priv_place_rise(rate);
    return rate > 0 ? t * t * (1 - frugal_priv_place_rise(all - rate)) / frugal_priv_place_rise(all) : 0;
}

FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_value(const frugal_place *p, uint64_t row, uint32_t part,
                                                        frugal_place_rank_by by, uint64_t batch) {
    const uint32_t *count = frugal_priv_place_counts(p, row);
    double all = 0;
    if (count[part] == 0) return 0;
    if (by == FRUGAL_PLACE_BY_COUNT) return frugal_place_home(p, row) == part ? 0 : count[part];
    for (uint32_t i = 0; i < p->k; i++) all += frugal_priv_place_rate(p, count, i, batch);
    return frugal_priv_place_gain(frugal_priv_place_rate(p, count, part, batch), all);
}

/* A heap whose root is the entry of least value, of equal ones that of the highest row: sinks entry i. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_sink(uint64_t *keys, double *values, uint64_t n, uint64_t i) {
    for (uint64_t least = i, child; (child = 2 * i + 1) < n; i = least) {
        for (uint64_t end = child + 2; child < end && child < n; child++)
            if (values[child] < values[least] || (values[child] == values[least] && keys[child] > keys[least]))
                least = child;
        if (least == i) return;
        uint64_t key = keys[i];
        double value = values[i];
        keys[i] = keys[least], values[i] = values[least];
        keys[least] = key, values[least] = value;
    }
}

FRUGAL_PLACE_API uint64_t frugal_place_rank(const frugal_place *p, uint32_t part, frugal_place_rank_by by,
                                            uint64_t batch, uint64_t *keys, double *values, uint64_t n) {
    uint64_t found = 0;
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS || part >= p->parts || n == 0) return 0;
    for (uint64_t x = 0; x < p->rows; x++) {
        double value = frugal_priv_place_value(p, x, part, by, batch);
        if (!(value > 0) || (found == n && value <= values[0])) continue;
        if (found < n) {
            keys[found] = x, values[found] = value;
            if (++found == n)
                for (uint64_t i = n / 2; i > 0; i--) frugal_priv_place_sink(keys, values, n, i - 1);
        } else {
            keys[0] = x, values[0] = value;
            frugal_priv_place_sink(keys, values, n, 0);
        }
    }
    for (uint64_t i = found / 2; found < n && i > 0; i--) frugal_priv_place_sink(keys, values, found, i - 1);
    for (uint64_t last = found; last > 1;) { /* the least goes to the end */
        uint64_t key = keys[0];
        double value = values[0];
        keys[0] = keys[--last], values[0] = values[last];
        keys[last] = key, values[last] = value;
        frugal_priv_place_sink(keys, values, last, 0);
    }
    return found;
}

FRUGAL_PLACE_API frugal_place_report frugal_place_get_report(const frugal_place *p, uint64_t batch) {
    frugal_place_report r;
    memset(&r, 0, sizeof r);
    for (uint64_t x = 0; x < p->rows; x++) {
        const uint32_t *count = frugal_priv_place_counts(p, x);
        uint32_t home = frugal_place_home(p, x);
        double all = 0;
        if (home == FRUGAL_PLACE_NOWHERE) continue;
        r.rows++, r.local += count[home];
        for (uint32_t i = 0; i < p->k; i++) r.touches += count[i], all += frugal_priv_place_rate(p, count, i, batch);
        for (uint32_t i = 0; batch && i < p->k; i++) {
            double rate = frugal_priv_place_rate(p, count, i, batch);
            r.reads += frugal_priv_place_rise(rate), r.hits += frugal_priv_place_gain(rate, all);
        }
    }
    for (uint32_t i = 0; i < p->k; i++) {
        r.samples += p->size[i];
        if (p->size[i] > r.largest) r.largest = p->size[i];
    }
    if (r.touches) r.local_share = (double)r.local / (double)r.touches;
    if (r.samples) r.balance = (double)r.largest * p->k / (double)r.samples;
    return r;
}

FRUGAL_PLACE_API uint64_t frugal_place_size(const frugal_place *p, uint32_t part) {
    return part < p->k ? p->size[part] : 0;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>epoch - the order of samples in an epoch
 * --------------------------------------------------------------------------------------------------------- */

/* SplitMix64's finalizer (Steele, Lea and Flood, 2014), of two numbers. */
FRUGAL_PRIV_PLACE_STATIC uint64_t frugal_priv_place_mix(uint64_t key, uint64_t x) {
    x = (x ^ key) + 0x9e3779b97f4a7c15u * (key | 1);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A Feistel network over the next power of two, walked on until it lands below n: fewer than two rounds on average for
 * even numbers of bits, fewer than four for odd ones, of which one more is used. */
FRUGAL_PLACE_API uint64_t frugal_place_permute(uint64_t key, uint64_t n, uint64_t x) {
    unsigned bits = 1;
    if (x >= n) return 0;
    while (bits < 32 && (uint64_t)1 << 2 * bits < n) bits++;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    do {
        uint64_t low = x & mask, high = x >> bits;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = high ^ (frugal_priv_place_mix(key + round * 0x632be59bd9b4e019u, low) >> 32 & mask);
            high = low, low = next;
        }
        x = high << bits | low;
    } while (x >= n);
    return x;
}

FRUGAL_PLACE_API void frugal_place_range(uint64_t n, uint64_t steps, uint64_t step, uint64_t *from, uint64_t *end) {
    uint64_t whole = n / steps, rest = n % steps;
    *from = whole * step + rest * step / steps;
    *end = whole * (step + 1) + rest * (step + 1) / steps;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>baselines
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_PLACE_API void frugal_place_random(uint64_t seed, uint32_t n_parts, uint64_t total, uint64_t first, uint64_t n,
                                          uint8_t *parts) {
    for (uint64_t s = 0; s < n; s++) parts[s] = (uint8_t)(frugal_place_permute(seed, total, first + s) % n_parts);
}

FRUGAL_PLACE_API frugal_place_status frugal_place_bicut(uint64_t seed, uint32_t n_parts,
                                                        const frugal_place_samples *samples, uint8_t *parts) {
    uint64_t n;
    if (n_parts == 0 || n_parts > FRUGAL_PLACE_MAX_PARTS) return FRUGAL_PLACE_PART;
    for (uint64_t s = 0; samples->offsets && s < samples->n; s++)
        if (samples->offsets[s + 1] < samples->offsets[s]) return FRUGAL_PLACE_OFFSET;
    for (uint64_t s = 0; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        uint64_t count[FRUGAL_PLACE_MAX_PARTS] = {0};
        uint32_t best = n ? (uint32_t)(frugal_priv_place_mix(seed, keys[0]) % n_parts) : (uint32_t)(s % n_parts);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t part = (uint32_t)(frugal_priv_place_mix(seed, keys[i]) % n_parts);
            if (++count[part] > count[best]) best = part;
        }
        parts[s] = (uint8_t)best;
    }
    return FRUGAL_PLACE_OK;
}

FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_is_price(double x) {
    return x >= 0 && x <= 1.7976931348623157e308;
}

FRUGAL_PRIV_PLACE_STATIC frugal_place_status frugal_priv_place_check_het_gmp(const frugal_place *p,
                                                                             const frugal_place_het_gmp *g) {
    if (p->phase != FRUGAL_PRIV_PLACE_PARTS) return FRUGAL_PLACE_ORDER;
    for (uint64_t x = 0; x < p->rows; x++)
        if (g->homes[x] >= p->parts) return FRUGAL_PLACE_PART;
    if (!frugal_priv_place_is_price(g->alpha) || !frugal_priv_place_is_price(g->beta)) return FRUGAL_PLACE_WEIGHT;
    if (!frugal_priv_place_is_price(g->gamma)) return FRUGAL_PLACE_WEIGHT;
    for (uint32_t i = 0; g->weights && i < p->parts * p->parts; i++)
        if (i % (p->parts + 1) && !frugal_priv_place_is_price(g->weights[i])) return FRUGAL_PLACE_WEIGHT;
    return FRUGAL_PLACE_OK;
}

/* The cost of a touch by a sample in part i of a row in part j. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_price(const frugal_place *p, const frugal_place_het_gmp *g,
                                                        uint32_t i, uint32_t j) {
    return i == j ? 0 : g->weights ? g->weights[(size_t)i * p->parts + j] : 1;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_het_gmp_rows(frugal_place *p, frugal_place_het_gmp *g) {
    frugal_place_status status = frugal_priv_place_check_het_gmp(p, g);
    uint64_t rows_in[FRUGAL_PLACE_MAX_PARTS] = {0};
    if (status != FRUGAL_PLACE_OK) return status;
    memset(g->costs, 0, sizeof g->costs);
    for (uint64_t x = 0; x < p->rows; x++) rows_in[g->homes[x]]++;
    for (uint64_t x = 0; x < p->rows; x++) {
        const uint32_t *count = frugal_priv_place_counts(p, x);
        uint32_t own = g->homes[x], best = own;
        double cost, least = 0;
        rows_in[own]--;
        for (uint32_t n = 0, i = own; n < p->k; n++, i = (i + 1) % p->k) { /* of equal costs, its own first */
            cost = g->beta * (double)rows_in[i];
            for (uint32_t c = 0; c < p->k; c++) cost += count[c] * frugal_priv_place_price(p, g, c, i);
            if (n == 0 || cost < least) least = cost, best = i;
        }
        rows_in[best]++;
        g->homes[x] = (uint8_t)best;
        for (uint32_t c = 0; c < p->k; c++) g->costs[c] += count[c] * frugal_priv_place_price(p, g, c, best);
    }
    return FRUGAL_PLACE_OK;
}

/* What keys[n] cost in part i. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_cost(const frugal_place *p, const frugal_place_het_gmp *g,
                                                       const uint64_t *keys, uint64_t n, uint32_t i) {
    double cost = 0;
    for (uint64_t key = 0; key < n; key++) cost += frugal_priv_place_price(p, g, i, g->homes[keys[key]]);
    return cost;
}

FRUGAL_PLACE_API frugal_place_status frugal_place_het_gmp_samples(frugal_place *p, frugal_place_het_gmp *g,
                                                                  const frugal_place_samples *samples, uint8_t *parts,
                                                                  uint64_t *moved) {
    frugal_place_status status = frugal_priv_place_check_het_gmp(p, g);
    if (moved) *moved = 0;
    if (status == FRUGAL_PLACE_OK) status = frugal_place_check(p, samples, NULL);
    if (status == FRUGAL_PLACE_OK) status = frugal_priv_place_check_parts(p, parts, samples->n);
    if (status != FRUGAL_PLACE_OK) return status;
    for (uint64_t s = 0, n; s < samples->n; s++) {
        const uint64_t *keys = frugal_priv_place_keys(samples, s, &n);
        uint32_t own = parts[s], best = own;
        double old = frugal_priv_place_cost(p, g, keys, n, own), new_cost = old, least = 0;
        for (uint32_t step = 0, i = own; step < p->k; step++, i = (i + 1) % p->k) { /* of equal ones, its own first */
            double cost = i == own ? old : frugal_priv_place_cost(p, g, keys, n, i);
            double score =
                cost + g->alpha * (double)(p->size[i] - (i == own)) + g->gamma * (g->costs[i] - (i == own ? old : 0));
            if (step == 0 || score < least) least = score, best = i, new_cost = cost;
        }
        if (best == own) continue;
        if (!frugal_priv_place_remove(p, keys, n, own)) return FRUGAL_PLACE_PART;
        frugal_priv_place_add(p, keys, n, best);
        g->costs[own] -= old, g->costs[best] += new_cost;
        parts[s] = (uint8_t)best;
        if (moved) ++*moved;
    }
    return FRUGAL_PLACE_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>peers - which device keeps which row, if devices read each other's memory
 *
 * The time of a step is UGache's estimate (Song et al., SOSP '23, section 6.2). Device i reads t_ij seconds from source
 * j. Cores are dedicated to sources: the share R_ij to each peer, in proportion to its bandwidth, a few to the host;
 * all of them read its own memory when they have nothing else to do. So a step takes it the longer of
 *      the longest t_ij of a peer or the host, and the cores' time, t_ii + the sum of R_ij t_ij;
 * and devices below one root of the bus read all of their host rows through it.
 *
 * A row is kept by every device, or once in each group of k devices, or by none. The cost of a pattern is linear in the
 * row's touches; patterns with smaller groups have a smaller slope and take more room. So in an optimum the hottest
 * rows have groups of 1, the next ones larger groups, the rest the host; only the thresholds are to be found. The
 * estimate is convex in the rows of each pattern (it is the value of a linear program as a function of its right side),
 * so a golden-section search finds each threshold; for several, the searches are nested. If all devices are alike, this
 * is the optimum of UGache's program with rows divided at will. If some pairs are not connected, groups of all sizes
 * that have more readers a copy than smaller ones are tried, too, and their other devices read from the host; and
 * where there are at most 16 devices, each reads some copies of the next group, over links that would be idle else. On
 * a DGX-1 this is within 1% of the optimum (docs/papers/ugache.md).
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_place_search {
    const frugal_place_machine *machine;
    const frugal_place_level *levels;
    uint32_t n_levels, turns;
    double rows[FRUGAL_PLACE_MAX_PATTERNS]; /* that are tried */
    double best_rows[FRUGAL_PLACE_MAX_PATTERNS];
    frugal_place_plan plan;                                           /* plan.seconds: of the best so far */
    double share[FRUGAL_PLACE_MAX_DEVICES][FRUGAL_PLACE_MAX_DEVICES]; /* R_ij */
    /* By pattern: of the rows of two rounds, those that a device reads from each other, and from the host. */
    uint8_t from[FRUGAL_PLACE_MAX_PATTERNS][FRUGAL_PLACE_MAX_DEVICES][FRUGAL_PLACE_MAX_DEVICES + 1];
} frugal_priv_place_search;

FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_peer(const frugal_place_machine *m, uint32_t i, uint32_t j) {
    return m->peer[(size_t)i * m->devices + j];
}
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_cores_of_host(const frugal_place_machine *m) {
    return m->host_share == 0 ? .0625 : m->host_share;
}

FRUGAL_PRIV_PLACE_STATIC frugal_place_status frugal_priv_place_check_plan(const frugal_place_machine *m,
                                                                          const frugal_place_level *levels,
                                                                          uint32_t n) {
    uint64_t rows = 0;
    if (m->devices == 0 || m->devices > FRUGAL_PLACE_MAX_DEVICES || m->row_bytes == 0 || !m->peer || !m->host)
        return FRUGAL_PLACE_MACHINE;
    if (!(m->host_share >= 0 && m->host_share <= 1) || !frugal_priv_place_is_price(m->writes))
        return FRUGAL_PLACE_MACHINE;
    if (!m->roots != !m->root) return FRUGAL_PLACE_MACHINE;
    for (uint32_t i = 0; i < m->devices; i++) {
        for (uint32_t j = 0; j < m->devices; j++)
            if (!frugal_priv_place_is_price(frugal_priv_place_peer(m, i, j))) return FRUGAL_PLACE_MACHINE;
        if (!frugal_priv_place_is_price(m->host[i]) || m->host[i] == 0 || frugal_priv_place_peer(m, i, i) == 0)
            return FRUGAL_PLACE_MACHINE;
        if (!m->roots) continue;
        if (m->roots[i] >= m->devices || !frugal_priv_place_is_price(m->root[m->roots[i]]) || m->root[m->roots[i]] == 0)
            return FRUGAL_PLACE_MACHINE;
    }
    for (uint32_t l = 0; l < n; l++) {
        if (!frugal_priv_place_is_price(levels[l].touches)) return FRUGAL_PLACE_LEVELS;
        if (l > 0 && levels[l].touches > levels[l - 1].touches) return FRUGAL_PLACE_LEVELS;
        if (levels[l].rows >= ((uint64_t)1 << 63) - rows) return FRUGAL_PLACE_LEVELS;
        rows += levels[l].rows;
    }
    return FRUGAL_PLACE_OK;
}

/* The bandwidth of a pair: of the slower direction. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_pair(const frugal_place_machine *m, uint32_t i, uint32_t j) {
    double a = frugal_priv_place_peer(m, i, j), b = frugal_priv_place_peer(m, j, i);
    return a < b ? a : b;
}

/* The devices that read device i, and are read by it, by bits. */
FRUGAL_PRIV_PLACE_STATIC uint64_t frugal_priv_place_mates(const frugal_place_machine *m, uint32_t i) {
    uint64_t mates = 0;
    for (uint32_t j = 0; j < m->devices; j++) mates |= (uint64_t)(i != j && frugal_priv_place_pair(m, i, j) > 0) << j;
    return mates;
}

FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_ones(uint64_t bits) {
    uint32_t ones = 0;
    for (; bits; bits &= bits - 1) ones++;
    return ones;
}

/* The next device of a group that has member[n] of `size`, of those that are `left`: one with which the group can
 * become complete, if there is one, to which its slowest pair is fastest. Where there is none, the one with most
 * bandwidth to the others. *pair: its slowest. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_next(const frugal_place_machine *m, const uint8_t *member,
                                                         uint32_t n, uint32_t size, uint64_t left, double *pair) {
    uint64_t common = left;
    uint32_t best = 0;
    int best_fits = -1;
    double best_sum = 0;
    for (uint32_t i = 0; i < n; i++) common &= frugal_priv_place_mates(m, member[i]);
    for (uint32_t i = 0; i < m->devices; i++) {
        if (!(left >> i & 1)) continue;
        double slowest = 1.7976931348623157e308, sum = 0;
        for (uint32_t other = 0; other < n; other++) {
            double to = frugal_priv_place_pair(m, i, member[other]);
            sum += to;
            if (to < slowest) slowest = to;
        }
        int fits = slowest > 0 && frugal_priv_place_ones(common & frugal_priv_place_mates(m, i)) + n + 1 >= size;
        int is_better = fits != best_fits ? fits > best_fits : slowest != *pair ? slowest > *pair : sum > best_sum;
        if (best_fits < 0 || is_better) best = i, best_fits = fits, best_sum = sum, *pair = slowest;
    }
    return best;
}

/* Makes groups of a size, the first with device `first`. Returns the bandwidth of the slowest pair; 0: some cannot read
 * each other. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_group_from(const frugal_place_machine *m, uint32_t size,
                                                             uint32_t first, frugal_place_pattern *pattern) {
    uint64_t left = m->devices < 64 ? ((uint64_t)1 << m->devices) - 1 : UINT64_MAX;
    double slowest = 1.7976931348623157e308;
    pattern->size = size, pattern->rows = 0;
    for (uint32_t at = 0; at < m->devices; at++) {
        uint32_t place = at % size, next = first;
        double pair = 1.7976931348623157e308;
        if (place > 0) next = frugal_priv_place_next(m, pattern->member[0] + at - place, place, size, left, &pair);
        while (!(left >> next & 1)) next = (next + 1) % m->devices;
        if (pair < slowest) slowest = pair;
        left &= ~((uint64_t)1 << next);
        pattern->member[0][at] = (uint8_t)next;
        pattern->group[next] = (uint8_t)(at / size), pattern->place[0][next] = (uint8_t)place;
    }
    memcpy(pattern->member[1], pattern->member[0], sizeof pattern->member[0]);
    memcpy(pattern->place[1], pattern->place[0], sizeof pattern->place[0]);
    memset(pattern->across, 0, sizeof pattern->across);
    return slowest;
}

/* The groups of a size whose slowest pair is fastest, of those that begin with each of the first eight devices: each
 * takes those that it and the rest of its group read fastest. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_group(const frugal_place_machine *m, uint32_t size,
                                                        frugal_place_pattern *pattern) {
    frugal_place_pattern other;
    double slowest = frugal_priv_place_group_from(m, size, 0, pattern);
    for (uint32_t first = 1; first < m->devices && first < 8 && size > 1 && size < m->devices; first++) {
        double pair = frugal_priv_place_group_from(m, size, first, &other);
        if (pair > slowest) slowest = pair, *pattern = other;
    }
    return slowest;
}

/* From where device i reads the row at a place of a round: a device, or the host. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_from(const frugal_place_plan *plan,
                                                         const frugal_place_pattern *pattern, uint32_t i,
                                                         uint64_t round, uint64_t place) {
    uint32_t group = pattern->group[i], size = pattern->size;
    if (pattern->across[round % 2][i] >> place & 1) group = (group + 1) % (plan->devices / size);
    uint32_t from = pattern->member[round % 2][group * size + place];
    return from == i || plan->reads[i] >> from & 1 ? from : FRUGAL_PLACE_HOST;
}

/* from[devices + 1]: of the rows of two rounds, those that device i reads from each device, and from the host. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_count_from(const frugal_place_plan *plan,
                                                           const frugal_place_pattern *pattern, uint32_t i,
                                                           uint8_t *from) {
    memset(from, 0, FRUGAL_PLACE_MAX_DEVICES + 1);
    for (uint32_t slot = 0; slot < 2 * pattern->size; slot++)
        from[frugal_priv_place_from(plan, pattern, i, slot / pattern->size, slot % pattern->size)]++;
}

/* The devices that can read a copy, on average. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_readers(const frugal_place_plan *plan,
                                                          const frugal_place_pattern *pattern) {
    uint8_t from[FRUGAL_PLACE_MAX_DEVICES + 1];
    uint32_t apart = 0;
    for (uint32_t i = 0; i < plan->devices; i++) {
        frugal_priv_place_count_from(plan, pattern, i, from);
        apart += from[FRUGAL_PLACE_HOST];
    }
    return pattern->size - (double)apart / (2 * plan->devices);
}

/* Device i reads some rows from the next group, as long as its slowest source becomes faster by that. Returns what that
 * takes, in rows of two rounds over bandwidths. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_go_across(const frugal_place_machine *m,
                                                            const frugal_place_plan *plan,
                                                            frugal_place_pattern *pattern, uint32_t i) {
    uint8_t from[FRUGAL_PLACE_MAX_DEVICES + 1];
    uint32_t size = pattern->size, group = (pattern->group[i] + 1u) % (m->devices / size);
    pattern->across[0][i] = pattern->across[1][i] = 0;
    frugal_priv_place_count_from(plan, pattern, i, from);
    for (;;) {
        double slowest = 0;
        uint32_t busy = i, slot = 0, now = 0, then = 0;
        for (uint32_t j = 0; j < m->devices; j++)
            if (j != i && from[j] && from[j] / frugal_priv_place_peer(m, i, j) > slowest)
                busy = j, slowest = from[j] / frugal_priv_place_peer(m, i, j);
        for (; slot < 2 * size; slot++) {
            now = frugal_priv_place_from(plan, pattern, i, slot / size, slot % size);
            then = pattern->member[slot / size][group * size + slot % size];
            if (now == busy && now != then && plan->reads[i] >> then & 1 &&
                (from[then] + 1) / frugal_priv_place_peer(m, i, then) < slowest)
                break;
        }
        if (slot == 2 * size) return slowest;
        from[now]--, from[then]++;
        pattern->across[slot / size][i] |= (uint64_t)1 << slot % size;
    }
}

FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_all_across(const frugal_place_machine *m,
                                                             const frugal_place_plan *plan,
                                                             frugal_place_pattern *pattern) {
    double sum = 0;
    for (uint32_t i = 0; i < m->devices; i++) sum += frugal_priv_place_go_across(m, plan, pattern, i);
    return sum;
}

/* Exchanges two devices in the order of their group in odd or even rounds. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_reorder(frugal_place_pattern *pattern, uint32_t round, uint32_t at,
                                                        uint32_t other) {
    uint8_t *member = pattern->member[round], *place = pattern->place[round], device = member[at];
    member[at] = member[other], member[other] = device;
    place[member[at]] = (uint8_t)(at % pattern->size), place[member[other]] = (uint8_t)(other % pattern->size);
}

/* Where some pairs are not connected, links between groups would be idle: which devices keep copies of the same rows is
 * chosen such that others find a copy over them. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_use_links(const frugal_place_machine *m, const frugal_place_plan *plan,
                                                          frugal_place_pattern *pattern) {
    uint32_t size = pattern->size, n = m->devices;
    if (size == 1 || size == n || n > 16) return; /* larger machines would take too long */
    double least = frugal_priv_place_all_across(m, plan, pattern);
    for (int gains = 1; gains;) {
        gains = 0;
        for (uint32_t at = 0; at < 2 * n; at++)
            for (uint32_t other = at + 1; other < 2 * n && other % size > at % size; other++) {
                frugal_priv_place_reorder(pattern, at / n, at % n, other % n);
                double sum = frugal_priv_place_all_across(m, plan, pattern);
                if (sum < least * (1 - 1e-9))
                    least = sum, gains = 1;
                else
                    frugal_priv_place_reorder(pattern, at / n, at % n, other % n);
            }
    }
    frugal_priv_place_all_across(m, plan, pattern);
}

/* Groups in which some pairs are not connected are of use if no smaller ones have as many readers a copy: then more
 * devices read a row's only copy, and the others read it from the host. */
FRUGAL_PRIV_PLACE_STATIC int frugal_priv_place_reaches_more(const frugal_place_machine *m,
                                                            const frugal_place_plan *plan,
                                                            const frugal_place_pattern *pattern) {
    frugal_place_pattern smaller;
    double readers = frugal_priv_place_readers(plan, pattern);
    for (uint32_t size = pattern->size - 1; size > 0; size--) {
        if (m->devices % size) continue;
        frugal_priv_place_group(m, size, &smaller);
        if (readers <= 1.05 * frugal_priv_place_readers(plan, &smaller)) return 0;
    }
    return 1;
}

/* The patterns that may be of use, by rising size: smaller groups only if their pairs are faster. If there are more
 * than the maximum, the largest are kept. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_find_patterns(const frugal_place_machine *m, frugal_place_plan *plan) {
    frugal_place_pattern found[FRUGAL_PLACE_MAX_PATTERNS];
    double fastest = 0;
    plan->devices = m->devices, plan->n = 0;
    for (uint32_t i = 0; i < m->devices; i++)
        for (uint32_t j = 0; j < m->devices; j++)
            plan->reads[i] |= (uint64_t)(frugal_priv_place_peer(m, i, j) > 0) << j;
    for (uint32_t size = m->devices; size > 1; size--) {
        if (m->devices % size || plan->n == FRUGAL_PLACE_MAX_PATTERNS - 1) continue;
        double slowest = frugal_priv_place_group(m, size, &found[plan->n]);
        int is_of_use = slowest > 0 ? slowest > 1.05 * fastest /* measured bandwidths scatter */
                                    : frugal_priv_place_reaches_more(m, plan, &found[plan->n]);
        if (!is_of_use) continue;
        fastest = slowest;
        plan->n++;
    }
    frugal_priv_place_group(m, 1, &found[plan->n++]);
    int is_mesh = 0;
    for (uint32_t i = 0; i < m->devices; i++) is_mesh |= frugal_priv_place_ones(plan->reads[i]) < m->devices;
    for (uint32_t i = 0; i < plan->n; i++) {
        plan->patterns[i] = found[plan->n - 1 - i];
        if (is_mesh) frugal_priv_place_use_links(m, plan, &plan->patterns[i]);
    }
}

/* Cores of each device, by peer: of those that do not read from the host, in proportion to bandwidth. And from where it
 * reads the rows of each pattern. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_share_cores(frugal_priv_place_search *s) {
    const frugal_place_machine *m = s->machine;
    for (uint32_t p = 0; p < s->plan.n; p++)
        for (uint32_t i = 0; i < m->devices; i++)
            frugal_priv_place_count_from(&s->plan, &s->plan.patterns[p], i, s->from[p][i]);
    for (uint32_t i = 0; i < m->devices; i++) {
        double all = 0, left = 1 - frugal_priv_place_cores_of_host(m);
        for (uint32_t j = 0; j < m->devices; j++) all += i == j ? 0 : frugal_priv_place_peer(m, i, j);
        for (uint32_t j = 0; j < m->devices; j++)
            s->share[i][j] = i == j ? 1 : all > 0 ? left * frugal_priv_place_peer(m, i, j) / all : 0;
    }
}

/* The touches by a device of the rows of each pattern, and, last, of those of the host. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_divide(const frugal_priv_place_search *s, double *touches) {
    uint32_t pattern = 0, n = s->plan.n;
    double left = s->rows[0];
    for (uint32_t i = 0; i <= n; i++) touches[i] = 0;
    for (uint32_t l = 0; l < s->n_levels; l++) {
        double rows = (double)s->levels[l].rows;
        while (pattern < n && rows >= left) {
            touches[pattern] += left * s->levels[l].touches;
            rows -= left;
            pattern++;
            left = pattern < n ? s->rows[pattern] : 0;
        }
        touches[pattern] += rows * s->levels[l].touches;
        left -= rows;
    }
}

/* Predicts a step with touches[s->plan.n + 1], as frugal_priv_place_divide finds them. Returns its seconds; `out`, if
 * not NULL, gets all that is predicted. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_predict(const frugal_priv_place_search *s, const double *touches,
                                                          frugal_place_plan *out) {
    const frugal_place_machine *m = s->machine;
    double worst = 0, all = 0, own = 0, peers = 0, apart = 0, bytes = (double)m->row_bytes;
    for (uint32_t p = 0; p <= s->plan.n; p++) all += touches[p];
    for (uint32_t p = 0; p < s->plan.n; p++) {
        uint32_t size = s->plan.patterns[p].size;
        own += touches[p] / size, peers += touches[p] * (size - 1) / size;
    }
    double host_rows[FRUGAL_PLACE_MAX_DEVICES], root_rows[FRUGAL_PLACE_MAX_DEVICES] = {0};
    for (uint32_t i = 0; i < m->devices; i++) {
        double of_group = 0;
        for (uint32_t p = 1; p < s->plan.n; p++)
            of_group += touches[p] * s->from[p][i][FRUGAL_PLACE_HOST] / (2 * s->plan.patterns[p].size);
        apart += of_group / m->devices;
        host_rows[i] = touches[s->plan.n] + m->writes * all + of_group;
        if (m->roots) root_rows[m->roots[i]] += host_rows[i];
    }
    for (uint32_t i = 0; i < m->devices; i++) {
        double from_host = host_rows[i] * bytes / m->host[i], from_own = own * bytes / frugal_priv_place_peer(m, i, i);
        if (m->roots) {
            double together = root_rows[m->roots[i]] * bytes / m->root[m->roots[i]];
            if (together > from_host) from_host = together;
        }
        double cores = from_own + frugal_priv_place_cores_of_host(m) * from_host, slowest = 0, longest = from_host;
        for (uint32_t j = 0; j < m->devices; j++) {
            double rows = 0;
            for (uint32_t p = 1; p < s->plan.n && i != j; p++)
                if (s->from[p][i][j]) rows += touches[p] * s->from[p][i][j] / (2 * s->plan.patterns[p].size);
            if (rows == 0) continue;
            double from_peer = rows * bytes / frugal_priv_place_peer(m, i, j);
            cores += s->share[i][j] * from_peer;
            if (from_peer > slowest) slowest = from_peer;
        }
        if (slowest > longest) longest = slowest;
        if (cores > longest) longest = cores;
        if (longest < worst || (out && i > 0 && longest == worst)) continue;
        worst = longest;
        if (!out) continue;
        out->seconds = longest, out->own_seconds = from_own, out->peer_seconds = slowest, out->host_seconds = from_host;
    }
    if (out && all > 0) {
        out->own_share = own / all, out->peer_share = (peers - apart) / all;
        out->host_share = (touches[s->plan.n] + apart) / all;
    }
    return worst;
}

/* The least seconds with s->rows of the patterns before `pattern` as they are, and `room` rows of each device for the
 * rest. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_least(frugal_priv_place_search *s, uint32_t pattern, double room);

FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_try(frugal_priv_place_search *s, uint32_t pattern, double room,
                                                      double used) {
    s->rows[pattern] = used * s->plan.patterns[pattern].size;
    return frugal_priv_place_least(s, pattern + 1, room - used);
}

FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_least(frugal_priv_place_search *s, uint32_t pattern, double room) {
    const double golden = .6180339887498949;
    if (pattern + 1 == s->plan.n) { /* the largest groups take what is left */
        s->rows[pattern] = room * s->plan.patterns[pattern].size;
        double touches[FRUGAL_PLACE_MAX_PATTERNS + 1];
        frugal_priv_place_divide(s, touches);
        double seconds = frugal_priv_place_predict(s, touches, NULL);
        if (s->plan.seconds >= 0 && seconds >= s->plan.seconds) return seconds;
        s->plan.seconds = seconds;
        memcpy(s->best_rows, s->rows, sizeof s->rows);
        return seconds;
    }
    double from = 0, to = room, low = room * (1 - golden), high = room * golden;
    double first = frugal_priv_place_try(s, pattern, room, 0), last = frugal_priv_place_try(s, pattern, room, room);
    double at_low = frugal_priv_place_try(s, pattern, room, low),
           at_high = frugal_priv_place_try(s, pattern, room, high);
    for (uint32_t turn = 0; turn < s->turns; turn++) {
        if (at_low <= at_high) {
            to = high, high = low, at_high = at_low;
            low = to - golden * (to - from);
            at_low = frugal_priv_place_try(s, pattern, room, low);
        } else {
            from = low, low = high, at_low = at_high;
            high = from + golden * (to - from);
            at_high = frugal_priv_place_try(s, pattern, room, high);
        }
    }
    double least = first < last ? first : last;
    if (at_low < least) least = at_low;
    return at_high < least ? at_high : least;
}

/* Gives the patterns whole rows, `used` of each device's room, but none more than there are. Returns the seconds. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_give(frugal_priv_place_search *s, const uint64_t *used, uint64_t all,
                                                       frugal_place_plan *out) {
    double touches[FRUGAL_PLACE_MAX_PATTERNS + 1];
    for (uint32_t p = 0; p < s->plan.n; p++) {
        uint64_t size = s->plan.patterns[p].size, rows = used[p] > all / size ? all : used[p] * size;
        all -= rows;
        s->plan.patterns[p].rows = rows;
        s->rows[p] = (double)rows;
    }
    frugal_priv_place_divide(s, touches);
    return frugal_priv_place_predict(s, touches, out);
}

/* Moves some of each device's room from pattern to pattern, less and less, as long as that is faster, and not often: a
 * way of many moves leads along a slope that is nearly level. */
FRUGAL_PRIV_PLACE_STATIC double frugal_priv_place_improve(frugal_priv_place_search *s, uint64_t *used, uint64_t all) {
    double least = frugal_priv_place_give(s, used, all, NULL);
    uint32_t n = s->plan.n;
    for (uint64_t move = 64; move > 0; move /= 2) {
        for (uint32_t pair = 0, since = 0, tries = 0; since < n * n && tries < 20 * n * n;
             pair = (pair + 1) % (n * n), tries++) {
            uint32_t from = pair / n, to = pair % n;
            since++;
            if (from == to || used[from] < move) continue;
            used[from] -= move, used[to] += move;
            double seconds = frugal_priv_place_give(s, used, all, NULL);
            if (seconds < least)
                least = seconds, since = 0;
            else
                used[from] += move, used[to] -= move;
        }
    }
    return least;
}

/* Whole rows near s->best_rows. Of a row that is touched more than thousands of others, a part is another plan than all
 * or nothing of it: so each pattern is rounded down and up, and each such plan is improved. */
FRUGAL_PRIV_PLACE_STATIC void frugal_priv_place_round(frugal_priv_place_search *s, uint64_t room, uint64_t all) {
    uint64_t used[FRUGAL_PLACE_MAX_PATTERNS], best[FRUGAL_PLACE_MAX_PATTERNS] = {0};
    double least = -1;
    for (uint32_t up = 0; up < (uint32_t)1 << (s->plan.n - 1); up++) {
        uint64_t left = room;
        for (uint32_t p = s->plan.n; p-- > 1;) {
            used[p] = (uint64_t)(s->best_rows[p] / s->plan.patterns[p].size) + (up >> (p - 1) & 1);
            if (used[p] > left) used[p] = left;
            left -= used[p];
        }
        used[0] = left;
        double seconds = frugal_priv_place_improve(s, used, all);
        if (least >= 0 && seconds >= least) continue;
        least = seconds;
        memcpy(best, used, sizeof best);
    }
    frugal_priv_place_give(s, best, all, &s->plan);
}

FRUGAL_PLACE_API frugal_place_status frugal_place_make_plan(const frugal_place_machine *machine,
                                                            const frugal_place_level *levels, uint32_t n,
                                                            frugal_place_policy policy, frugal_place_plan *plan) {
    frugal_priv_place_search s;
    uint64_t all = 0, room = machine->capacity;
    frugal_place_status status = frugal_priv_place_check_plan(machine, levels, n);
    if (status != FRUGAL_PLACE_OK) return status;
    memset(&s, 0, sizeof s);
    s.machine = machine, s.levels = levels, s.n_levels = n;
    for (uint32_t l = 0; l < n; l++) all += levels[l].rows;
    if (room > all) room = all;
    s.plan.seconds = -1;
    frugal_priv_place_find_patterns(machine, &s.plan);
    if (policy != FRUGAL_PLACE_PLANNED) { /* the largest groups in which all pairs are connected */
        uint32_t p = s.plan.n - 1;
        while (p > 0 && frugal_priv_place_readers(&s.plan, &s.plan.patterns[p]) < s.plan.patterns[p].size) p--;
        s.plan.patterns[1] = s.plan.patterns[p];
        s.plan.n = p > 0 ? 2 : 1;
    }
    if (policy == FRUGAL_PLACE_REPLICATED) s.plan.n = 1;
    s.turns = s.plan.n < 2 ? 0 : s.plan.n < 4 ? 40 : s.plan.n == 4 ? 32 : 11; /* nested: 51,000 trials at most */
    frugal_priv_place_share_cores(&s);
    if (policy == FRUGAL_PLACE_PARTITIONED && s.plan.n > 1) {
        const uint64_t used[2] = {0, room};
        frugal_priv_place_give(&s, used, all, &s.plan);
    } else {
        frugal_priv_place_least(&s, 0, (double)room);
        frugal_priv_place_round(&s, room, all);
    }
    *plan = s.plan;
    return FRUGAL_PLACE_OK;
}

FRUGAL_PLACE_API double frugal_place_predict(const frugal_place_machine *machine, const frugal_place_plan *plan,
                                             const double *touches) {
    frugal_priv_place_search s;
    memset(&s, 0, sizeof s);
    s.machine = machine, s.plan = *plan;
    frugal_priv_place_share_cores(&s);
    return frugal_priv_place_predict(&s, touches, NULL);
}

/* The pattern of the row at *position, which becomes its position among the pattern's rows; plan->n: the host's. */
FRUGAL_PRIV_PLACE_STATIC uint32_t frugal_priv_place_pattern_of(const frugal_place_plan *plan, uint64_t *position) {
    uint32_t p = 0;
    while (p < plan->n && *position >= plan->patterns[p].rows) *position -= plan->patterns[p++].rows;
    return p;
}

/* Rows of the pattern that the device keeps: one of each round. */
FRUGAL_PRIV_PLACE_STATIC uint64_t frugal_priv_place_kept(const frugal_place_pattern *pattern, uint32_t device) {
    uint64_t rounds = pattern->rows / pattern->size, rest = pattern->rows % pattern->size;
    return rounds + (pattern->place[rounds % 2][device] < rest);
}

FRUGAL_PLACE_API uint32_t frugal_place_source(const frugal_place_plan *plan, uint32_t device, uint64_t position) {
    uint32_t p = frugal_priv_place_pattern_of(plan, &position);
    if (p == plan->n) return FRUGAL_PLACE_HOST;
    uint32_t size = plan->patterns[p].size;
    return frugal_priv_place_from(plan, &plan->patterns[p], device, position / size, position % size);
}

FRUGAL_PLACE_API uint64_t frugal_place_slots(const frugal_place_plan *plan, uint32_t device) {
    uint64_t slots = 0;
    for (uint32_t p = 0; p < plan->n; p++) slots += frugal_priv_place_kept(&plan->patterns[p], device);
    return slots;
}

FRUGAL_PLACE_API uint64_t frugal_place_position(const frugal_place_plan *plan, uint32_t device, uint64_t slot) {
    uint64_t before = 0;
    for (uint32_t p = 0; p < plan->n; p++) {
        const frugal_place_pattern *pattern = &plan->patterns[p];
        uint64_t kept = frugal_priv_place_kept(pattern, device);
        if (slot < kept) return before + slot * pattern->size + pattern->place[slot % 2][device];
        slot -= kept, before += pattern->rows;
    }
    return UINT64_MAX;
}

FRUGAL_PLACE_API uint64_t frugal_place_slot(const frugal_place_plan *plan, uint32_t device, uint64_t position) {
    uint32_t own = frugal_priv_place_pattern_of(plan, &position);
    uint64_t slot = 0;
    if (own == plan->n) return UINT64_MAX;
    const frugal_place_pattern *pattern = &plan->patterns[own];
    if (position % pattern->size != pattern->place[position / pattern->size % 2][device]) return UINT64_MAX;
    for (uint32_t p = 0; p < own; p++) slot += frugal_priv_place_kept(&plan->patterns[p], device);
    return slot + position / pattern->size;
}

#endif /* FRUGAL_PLACE_IMPLEMENTATION */
