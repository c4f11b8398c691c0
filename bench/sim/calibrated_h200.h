/* calibrated_h200.h - costs of the host, as calibrated.h has them, of the code with which the steps on an H200 in
 * bench/records/cuda.json were measured; to be replaced with these (bench/cuda/run calibrate). */
#define CALIBRATED_BY           "AMD EPYC, up to 2 threads, 2026-11-29"
#define CALIBRATED_ANNOUNCE_NS  21.41
#define CALIBRATED_WHOLE_NS     10.58
#define CALIBRATED_RECALL_NS    2.03
#define CALIBRATED_PLAN_NS      5.34
#define CALIBRATED_MARK_NS      0.55
#define CALIBRATED_CLOSE_NS     14.14
#define CALIBRATED_PASS_NS      1.65
#define CALIBRATED_FLUSH_NS     86.59
#define CALIBRATED_LOADERS_SLOW 1.33
#define CALIBRATED_HELPERS_SLOW 15.28
