/* calibrated.h - costs of the host, written by build/bench_sim --calibrate --write-defaults FILE. */
#define CALIBRATED_BY           "Intel(R) Xeon(R) Processor, up to 2 threads, 2026-11-29"
#define CALIBRATED_ANNOUNCE_NS  9.97
#define CALIBRATED_WHOLE_NS     8.32
#define CALIBRATED_RECALL_NS    0.02
#define CALIBRATED_PLAN_NS      21.72
#define CALIBRATED_MARK_NS      0.53
#define CALIBRATED_CLOSE_NS     14.74
#define CALIBRATED_PASS_NS      1.92
#define CALIBRATED_FLUSH_NS     62.89
#define CALIBRATED_LOADERS_SLOW 0.00
#define CALIBRATED_HELPERS_SLOW 32.66
