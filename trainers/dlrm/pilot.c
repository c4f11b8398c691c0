/* A pilot, from an open trainer to a log loss; and which of them was best. */
#include "trainers/dlrm/pilot.h"
#include "trainers/dlrm/eval.h"
#include "trainers/common/training.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DLRM_PILOT_PART = 5 }; /* one of so many parts is held out from pilots */

/* As the training, on host cores, without what changes no bits, or, as the parts, cannot be asked of fewer samples. */
static dlrm_settings dlrm_pilot_settings(const dlrm_settings *settings, uint64_t epochs) {
    dlrm_settings pilot = *settings;
    training_set_pilot(&pilot.common);
    memset(pilot.common.gpu, 0, sizeof pilot.common.gpu);
    pilot.epochs = epochs;
    pilot.placing = NULL, pilot.secondaries = NULL, pilot.seen = NULL;
    return pilot;
}

/* Of several machines the first one evaluates, and tells the others. */
static int dlrm_pilot_tell(dlrm_trainer *trainer, double *loss, program_error *error) {
    double all[FRUGAL_MAX_MACHINES];
    if (frugal_exchange(dlrm_trainer_tables(trainer, 0), loss, sizeof *loss, all))
        return training_fail("cannot tell the other machines how good a pilot is", error);
    *loss = all[0];
    return 0;
}

/* A pilot that diverges is no failure: fewer passes may not. If none does otherwise, the training says so. */
static int dlrm_pilot_evaluate(dlrm_trainer *trainer, const dlrm_samples *held_out, uint32_t threads, double *loss,
                               program_error *error) {
    atomic_int never = 0; /* so far Ctrl-C simply ends the program */
    dlrm_metrics metrics;
    int status = dlrm_evaluate(trainer, held_out, threads, &never, &metrics, error);
    *loss = status ? INFINITY : metrics.logloss;
    return status && isfinite(dlrm_trainer_total(trainer).loss) ? -1 : 0;
}

static int dlrm_pilot_run(const dlrm_settings *settings, const dlrm_source *source, const dlrm_samples *held_out,
                          uint32_t threads, double *loss, program_error *error) {
    atomic_int never = 0;
    dlrm_trainer *trainer;
    if (dlrm_trainer_open(&trainer, settings, source, error)) return -1;
    int status = dlrm_trainer_run(trainer, UINT64_MAX, &never, error);
    if (!status) status = dlrm_pilot_evaluate(trainer, held_out, threads, loss, error);
    if (!status) status = dlrm_pilot_tell(trainer, loss, error);
    dlrm_trainer_close(trainer);
    return status;
}

int dlrm_pilots_run(dlrm_settings *settings, const dlrm_source *source, uint64_t most, uint32_t threads,
                    program_error *error) {
    uint64_t part = (source->end - source->first) / DLRM_PILOT_PART;
    dlrm_source shorter = *source;
    dlrm_samples held_out = {source->log, source->path, source->end - part, source->end};
    double best = INFINITY;
    settings->epochs = 1;
    if (!part) return 0;
    shorter.end -= part, shorter.malformed = NULL;
    for (uint64_t epochs = 1, last = 0; !last; epochs *= 2) {
        double loss = NAN;
        last = epochs >= most;
        if (last) epochs = most;
        dlrm_settings pilot = dlrm_pilot_settings(settings, epochs);
        if (dlrm_pilot_run(&pilot, &shorter, &held_out, threads, &loss, error)) return -1;
        fprintf(stderr, "%s%" PRIu64 " (%.4f)", epochs > 1 ? ", " : "pilots, passes (log loss): ", epochs, loss);
        if (loss < best) best = loss, settings->epochs = epochs;
    }
    fprintf(stderr, ", on the last %" PRIu64 " training samples: --epochs %" PRIu64 "\n", part, settings->epochs);
    return 0;
}
