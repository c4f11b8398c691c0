/* The paper's settings. If its text does not name a setting (its plots could not be read), the note says what is run.
 */
#include "bench/sim/experiments.h"

#define ALL_SYSTEMS SIM_LIST(SIM_FRUGAL, SIM_SYNC, SIM_INPLACE, SIM_KEPT, SIM_SHARDED, SIM_NOCACHE, SIM_UVM)
#define OURS        SIM_FRUGAL, SIM_INPLACE, SIM_KEPT
#define THEIRS      SIM_LIST(OURS, SIM_SYNC, SIM_SHARDED, SIM_NOCACHE)
#define OVERALL     SIM_LIST(OURS, SIM_SHARDED, SIM_NOCACHE)
#define BATCHES     SIM_LIST(128, 512, 2048)

/* Section 4.1: 8 GPUs, 8 flushing threads, a cache of 5%. */
#define SERVER .gpus = SIM_LIST(8), .workers = SIM_LIST(8)
/* Synthetic: 10 million keys, dim 32, only the embedding. */
#define SYNTHETIC SERVER, .rows = SIM_LIST(10000000)

/* TransE, dim 400: `batch` triples, scored against 200 negatives each that they share in chunks, look up 3 * batch
 * entities. Nine operations per float, forward and backward. */
#define KG(rows_, batch)   .rows = SIM_LIST(rows_), .dim = SIM_LIST(400), .keys = SIM_LIST(3 * (batch))
#define SCORES(operations) .flops = 200.0 * 400 * (operations) / 3, .dense_us = 200
#define TRANSE             SCORES(9)
#define FREEBASE           86100000
#define TENTH_OF_FREEBASE  8610000
/* DLRM, dim 32: layers of 512, 512, 256 and 1 over `features` rows and 13 numbers, six operations per weight and
 * sample; `more` layers of 512 between them. Launches of some 30 kernels. */
#define WEIGHTS(features, more) (((features)*32.0 + 13) * 512 + 512 * 512 * (1.0 + (more)) + 512 * 256 + 256)
#define DLRM(features, more)                                                                                           \
    .flops = 6 * WEIGHTS(features, more) / (features), .dense_us = 200, .dense_mbytes = WEIGHTS(features, more) * 4e-6
/* A batch of 1024: of all 8 GPUs, and of each. */
#define REC(rows_, features) .rows = SIM_LIST(rows_), .keys = SIM_LIST(128 * (features), 1024 * (features))
#define AVAZU                49000000
#define CRITEO               34000000

const char *const sim_experiment_names[SIM_EXPERIMENTS + 1] = {"1", "2", "3",  "5",  "6", "7",
                                                               "8", "9", "10", "11", NULL};

const sim_experiment sim_experiments[SIM_EXPERIMENTS] = {
    {.number = 1,
     .title = "microbenchmark: systems by batch and skew (Figure 8)",
     .claim =
         "Frugal's throughput is 1.5 to 10.2 times PyTorch's (no cache), 4.3 to 11.3 times HugeCTR's (sharded), 3.3 "
         "to 5.1 times Frugal-Sync's (write-through); at a batch of 128 systems with a cache are slower than PyTorch; "
         "PyTorch-UVM is two orders of magnitude slower than the others",
     .note =
         "The text names the batch size 128; 512 and 2048 are from the authors' scripts. In PyTorch-UVM (uvm) a "
         "batch of 256 faults costs as much as one, which is the least that it can cost, and the first move of each "
         "page, from the host, counts, too. At a batch of 128 sharded is slower than no cache, as in the paper, but "
         "Frugal is faster, because it has no exchange. The ratios are smaller than the paper's, because no system "
         "pays for a framework, and because closing and flushing cost what this library's code does. Kept is no system "
         "of the paper. It is shown at its best: the caches begin with rows that have no update, so in so few steps "
         "hardly any row is written back for its place. With small batches it is slower than in place all the same, "
         "because of one kernel more in lookup and one for recalls",
     .panels =
         {{"synthetic", {.system = ALL_SYSTEMS, SYNTHETIC, .keys = BATCHES, .zipf = SIM_LIST(0, 0.9, 0.99)}, 0, 0, 0}}},
    {.number = 2,
     .title = "P2F against write-through, Zipf 0.9, a cache of 1% (Figure 9)",
     .claim = "the stall is 34 to 101 times shorter than write-through's; throughput is 3.5 to 5.3 times as high",
     .note = "The batch sizes are those of Exp #1, because the text names none. The ratios are smaller than the "
             "paper's: in the model both systems wait for the closing of the step before, which the order of flushing "
             "does not change (the last ratio leaves it out), and flushing costs what this library's code does",
     .panels = {{"synthetic",
                 {.system = SIM_LIST(OURS, SIM_SYNC),
                  SYNTHETIC,
                  .keys = BATCHES,
                  .zipf = SIM_LIST(0.9),
                  .cache = SIM_LIST(0.01)},
                 0,
                 0,
                 0}}},
    {.number = 3,
     .title = "host memory read by a kernel (UVA) against a gather by the CPU, no cache (Figure 10)",
     .claim = "reading by UVA takes 3.1 to 3.4 times less time than reading through the CPU",
     .note = "This is no test of the claim, because the rates of both ways are constants from the authors' own "
             "micro-benchmark. It shows that the model returns them. As in that benchmark, there is one GPU, and one "
             "core gathers",
     .panels = {{"synthetic",
                 {.system = SIM_LIST(OURS, SIM_NOCACHE),
                  .gpus = SIM_LIST(1),
                  .workers = SIM_LIST(8),
                  .gather_cores = SIM_LIST(1),
                  .rows = SIM_LIST(10000000),
                  .keys = BATCHES,
                  .zipf = SIM_LIST(0),
                  .cache = SIM_LIST(0)},
                 0,
                 0,
                 0}}},
    {.number = 5,
     .title = "components of a step by system, Zipf 0.9 (Figure 12)",
     .claim = "HugeCTR spends 22 to 55% less time on host memory than PyTorch; Frugal-Sync's throughput is 1.2 to 2.8 "
              "times HugeCTR's, and Frugal's 3.5 to 5.1 times Frugal-Sync's",
     .note = "The batch sizes are those of Exp #1, because the text names none. lookup is the reading of rows, from "
             "caches and from host memory; gate is the wait for closing and flushing",
     .panels = {{"synthetic", {.system = THEIRS, SYNTHETIC, .keys = BATCHES, .zipf = SIM_LIST(0.9)}, 0, 0, 0}}},
    {.number = 6,
     .title = "knowledge graphs: TransE, dim 400, caches of 5 and 10% (Figure 13)",
     .claim =
         "Frugal's throughput is 1.2 to 1.5 times DGL-KE's (no cache), 4.1 to 7.1 times DGL-KE-cached's (sharded), "
         "which is up to 15.2% below DGL-KE's",
     .note =
         "WikiKG is left out, because its 87M rows are to the model what Freebase's 86.1M are. On Freebase sharded is "
         "faster than Frugal, unlike in the paper. Frugal's 8 flushing threads, at 10 GB/s each, and the trainers that "
         "wait cannot write rows of 1600 bytes as fast as 8 GPUs change them. In place and kept need no such writing, "
         "and are faster. Sharded flushes nothing in the model, its exchange runs at the links' full rate, and its "
         "caches together hold different rows, so that fewer reads miss",
     .panels = {{"FB15k, batch 1200",
                 {.system = THEIRS, SERVER, KG(15000, 1200), .cache = SIM_LIST(0.05, 0.1)},
                 TRANSE},
                {"Freebase / 10, batch 2000",
                 {.system = OVERALL, SERVER, KG(TENTH_OF_FREEBASE, 2000), .cache = SIM_LIST(0.05, 0.1)},
                 TRANSE}}},
    {.number = 7,
     .title = "recommendation: DLRM, dim 32, layers 512-512-256-1 (Figure 14)",
     .claim = "Frugal's throughput is 4.9 to 7.4 times PyTorch's (no cache), 6.1 to 8.7 times HugeCTR's (sharded)",
     .note =
         "The text does not say whether the batch of 1024 is of one GPU or of all, so both are run. CriteoTB is "
         "left out, because its 882M rows do not fit. The dense part, equal for all systems, is a large share of a "
         "step here, so the ratios are small. With 1024 per GPU sharded is faster than Frugal, unlike in the paper: "
         "its exchange runs at the links' full rate, its caches together hold different rows, so that fewer reads "
         "miss, and Frugal waits for closing and flushing",
     .panels = {{"Avazu", {.system = OVERALL, SERVER, REC(AVAZU, 22)}, DLRM(22, 0)},
                {"Criteo", {.system = OVERALL, SERVER, REC(CRITEO, 26)}, DLRM(26, 0)}}},
    {.number = 8,
     .scaling = 1,
     .title = "numbers of GPUs (Figure 15)",
     .claim =
         "Frugal's throughput is 1.2 to 4.9 times the others'; straightforward caching is comparable to no cache or "
         "worse; without a cache the CPU's root complex ends the growth (recommendation: at 4 GPUs)",
     .note =
         "The text does not say which numbers of GPUs the figure has, nor how GPUs share the root complex. So Avazu "
         "is run with a link per GPU, and with one x16 link for all. With 8 GPUs on Freebase, Frugal waits for its "
         "8 flushing threads, as in Exp #6",
     .panels = {{"Freebase, batch 2000",
                 {.system = OVERALL, .gpus = SIM_LIST(2, 4, 8), .workers = SIM_LIST(8), KG(FREEBASE, 2000)},
                 TRANSE},
                {"Avazu, batch 1024 per GPU",
                 {.system = OVERALL,
                  .gpus = SIM_LIST(2, 4, 8),
                  .workers = SIM_LIST(8),
                  .rows = SIM_LIST(AVAZU),
                  .keys = SIM_LIST(22528)},
                 DLRM(22, 0)},
                {"Avazu, batch 1024 per GPU, one root",
                 {.system = OVERALL,
                  .gpus = SIM_LIST(2, 4, 8),
                  .workers = SIM_LIST(8),
                  .behind_switch = SIM_LIST(8),
                  .rows = SIM_LIST(AVAZU),
                  .keys = SIM_LIST(22528)},
                 DLRM(22, 0)}}},
    {.number = 9,
     .prices = 1,
     .title = "cost: throughput per dollar of GPUs, 4 GPUs (Figure 16)",
     .claim = "Frugal on RTX 3090 reaches 89 to 97% of the best existing system's throughput on A30, 4.0 to 4.3 times "
              "as much per dollar",
     .note = "The A30 is not simulated, because the rates of its peer access are not known here. The prices are those "
             "that the paper (March 2025) names without a date; --gpu-price and --datacenter-price change them",
     .panels = {{"Freebase / 10, batch 2000",
                 {.system = OVERALL, .gpus = SIM_LIST(4), .workers = SIM_LIST(8), KG(TENTH_OF_FREEBASE, 2000)},
                 TRANSE},
                {"Avazu",
                 {.system = OVERALL,
                  .gpus = SIM_LIST(4),
                  .workers = SIM_LIST(8),
                  .rows = SIM_LIST(AVAZU),
                  .keys = SIM_LIST(22528)},
                 DLRM(22, 0)}}},
    {.number = 10,
     .title = "flushing threads, Avazu (Figure 17)",
     .claim = "throughput grows with the threads from 2 to 12, and declines from 14 on",
     .note = "No decline can show here, because in the model a thread has a core of its own and takes nothing from "
             "others. Each GPU has a batch of 1024. The paper's system is the staged one; where rows that one GPU "
             "alone touches are updated in place or kept, fewer threads are enough. Kept is shown at its best, as in "
             "Exp #1",
     .panels = {{"Avazu",
                 {.system = SIM_LIST(OURS),
                  .gpus = SIM_LIST(8),
                  .workers = SIM_LIST(2, 4, 6, 8, 10, 12, 14),
                  .rows = SIM_LIST(AVAZU),
                  .keys = SIM_LIST(22528)},
                 DLRM(22, 0)}}},
    {.number = 11,
     .title = "other graph models, and deeper networks (Figure 18)",
     .claim = "Frugal is faster than the other systems with every model",
     .note =
         "A model is its number of operations per float: nine for TransE, and six for DistMult, ComplEx and SimplE, "
         "which is assumed. The text does not say how many layers the paper adds; here there are four of 512. "
         "Frugal is not faster with every model here, for the reasons given at Exp #6 and #7",
     .panels = {{"DistMult, ComplEx, SimplE; Freebase / 10",
                 {.system = OVERALL, SERVER, KG(TENTH_OF_FREEBASE, 2000)},
                 SCORES(6)},
                {"TransE; Freebase / 10", {.system = OVERALL, SERVER, KG(TENTH_OF_FREEBASE, 2000)}, TRANSE},
                {"DLRM, four more layers; Avazu", {.system = OVERALL, SERVER, REC(AVAZU, 22)}, DLRM(22, 4)}}},
};
