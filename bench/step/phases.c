/* phases.c - announcing by its phases. It includes the library, whose own functions it calls, in the order of
 * src/step.c: announce_step and announce_sorted. */
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
    host_batch *b = batch_at(f, d, step);
    const frugal_keys segment = {.keys = keys, .n = n};
    double since = bench_thread_seconds();
    frugal_status status = read_keys(f, d, &(frugal_batch){.segments = &segment, .n_segments = 1}, &n);
    if (status != FRUGAL_OK) return status;
    if (device->ops.announced || !frugal_p2f_legal(f->p2f, step))
        return frugal_fail(FRUGAL_ERR_ORDER, "step %llu is not to be announced here", (unsigned long long)step);
    end_phase(&since, &seconds[PHASE_READ]);
    const uint64_t *sorted = sort_by_row(f, d, n);
    end_phase(&since, &seconds[PHASE_SORT]);
    deduplicate(b, sorted, n);
    b->read_only = 0, b->step = step;
    end_phase(&since, &seconds[PHASE_DEDUP]);
    begin_count(f, d, b);
    announce_clocks(f, d, step, b);
    end_phase(&since, &seconds[PHASE_LOST]);
    const frugal_p2f_batch rows = {
        .rows = b->rows, .n = b->n_unique, .in_place = device->in_place, .lost = b->counted ? b->lost_by : NULL};
    status = frugal_p2f_announce(f->p2f, d, step, &rows, b->valid);
    end_phase(&since, &seconds[PHASE_WORDS]);
    if (b->counted) count_batch(f, b);
    end_phase(&since, &seconds[PHASE_WORTH]);
    frugal_store_release(&device->told, step + 1); /* [F11] pairs with [F12] */
    return status;
}
