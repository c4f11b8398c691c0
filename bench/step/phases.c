/* phases.c - announcing and planning by their phases. It includes the library, whose own functions it calls, in the
 * order of src/calls/step.c: announce_step, src/waits/help.c: help_sort and src/steps/announce.c: plan_piece. */
#include "frugal_flush.c"
#include "bench/measure.h"
#include "bench/step/phases.h"

static void end_phase(double *since, double *seconds) {
    double now = bench_thread_seconds();
    *seconds += now - *since, *since = now;
}

frugal_status phases_announce(frugal *f, uint32_t d, uint64_t step, const uint64_t *keys, uint32_t n,
                              double seconds[PHASES]) {
    host_device *device = &f->devices[d];
    const frugal_keys segment = {.keys = keys, .n = n};
    const frugal_batch batch = {.segments = &segment, .n_segments = 1};
    double since = bench_thread_seconds();
    frugal_status status = check_batch(f, d, &batch, &n);
    if (status == FRUGAL_OK) status = read_keys(f, d, &batch, batch_at(f, d, step)->record_of, n);
    if (status != FRUGAL_OK) return status;
    if (device->ops.announced || !frugal_p2f_legal(f->p2f, step))
        return frugal_fail(FRUGAL_ERR_ORDER, "step %llu is not to be announced here", (unsigned long long)step);
    host_batch *b = begin_batch(f, d, step, n, 0);
    end_phase(&since, &seconds[PHASE_READ]);
    const uint64_t *sorted = sort_rows(f, d, b->record_of, n, &device->sort);
    end_phase(&since, &seconds[PHASE_SORT]);
    list_batch(f, d, b, sorted);
    end_phase(&since, &seconds[PHASE_LIST]);
    hand_in(f, d, b, BATCH_SORTED);
    give_batches(f, d);
    end_phase(&since, &seconds[PHASE_GIVE]);
    return status;
}

void phases_plan(frugal *f, double seconds[PHASES]) {
    double since = bench_thread_seconds();
    for (frugal_p2f_piece piece; frugal_p2f_plan_begin(f->p2f, &piece);) {
        end_phase(&since, &seconds[PHASE_PLAN]);
        count_planned(f, &piece);
        end_phase(&since, &seconds[PHASE_WORTH]);
        frugal_p2f_plan_end(f->p2f, &piece);
        end_phase(&since, &seconds[PHASE_PLAN]);
    }
}

uint64_t phases_planned(frugal *f) {
    return frugal_p2f_planned(f->p2f);
}
