/* stats.c - what an instance has counted. */
#include "seeing.h"

/* After so many times as many steps: memory is touched, and gets its pages, as training goes. */
enum { LOOKS_AGAIN = 8 };

/* On which pages what is read at random lies. To look takes time, so one call does it, and others of that moment find
 * what it found before. Relaxed, all: statistics order nothing. */
static void find_page_sizes(frugal *f, uint64_t steps) {
    uint64_t due = frugal_load_relaxed(&f->pages.due);
    while (steps >= due)
        if (frugal_cas_relaxed(&f->pages.due, &due, steps * LOOKS_AGAIN + 1)) {
            const frugal_memory parts[] = {frugal_get_memory(f, 0, FRUGAL_MEMORY_TABLE),
                                           frugal_get_memory(f, 0, FRUGAL_MEMORY_STATE),
                                           {f->p2f, f->p2f_bytes, 0},
                                           {f->touches.worth, is_counting(f) ? f->store.rows : 0, 0}};
            page_sizes found = read_page_sizes(parts, sizeof parts / sizeof *parts);
            frugal_store_relaxed(&f->pages.resident_bytes, found.resident);
            frugal_store_relaxed(&f->pages.huge_bytes, found.huge);
            return;
        }
}

void frugal_get_stats(frugal *f, frugal_stats *out) {
    if (!out) return;
    memset(out, 0, sizeof *out);
    if (!is_usable(f)) return;
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    out->steps = now.closed - f->desc.first_step;
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* relaxed, all of them: statistics order nothing */
        host_device *device = &f->devices[d];
        out->keys += frugal_load_relaxed(&device->keys);
        out->unique_rows += frugal_load_relaxed(&device->unique_rows);
        out->hits += frugal_load_relaxed(&device->counts->hits);
        out->misses += frugal_load_relaxed(&device->counts->misses);
        out->kept += frugal_load_relaxed(&device->keeping.kept);
        out->written_back += frugal_load_relaxed(&device->keeping.written_back);
        out->kept_now += frugal_load_relaxed(&device->keeping.now);
        out->secondary_hits += frugal_load_relaxed(&device->secondary_hits);
        out->gate_waits += frugal_load_relaxed(&device->gate_waits);
        out->barrier_seconds += (double)frugal_load_relaxed(&device->barrier_ns) * 1e-9;
        out->stall_seconds += (double)frugal_load_relaxed(&device->stall_ns) * 1e-9;
        out->announce_wait_seconds += (double)frugal_load_relaxed(&device->announce_ns) * 1e-9;
    }
    out->worker_busy_seconds = (double)frugal_load_relaxed(&f->work.busy_ns) * 1e-9;
    out->sort_seconds = (double)frugal_load_relaxed(&f->work.sort_ns) * 1e-9;
    out->plan_seconds = (double)frugal_load_relaxed(&f->work.plan_ns) * 1e-9;
    out->close_seconds = (double)frugal_load_relaxed(&f->work.close_ns) * 1e-9;
    out->flush_seconds = (double)frugal_load_relaxed(&f->work.flush_ns) * 1e-9;
    out->closed_entries = frugal_load_relaxed(&f->work.closed_entries);
    out->flushed = frugal_load_relaxed(&f->work.flushed);
    out->flushed_at_close = frugal_load_relaxed(&f->work.flushed_at_close);
    out->alone = now.alone, out->shared = now.shared, out->in_place = now.in_place;
    out->stale_ids = frugal_load_relaxed(&f->work.stale_ids);
    out->staging_depth = f->desc.staging;
    for (uint32_t s = 0; s < FRUGAL_P2F_SLOTS; s++) {
        out->flushed_by_urgency[s] = frugal_load_relaxed(&f->work.flushed_by_urgency[s]);
        out->queue_depth[s] = frugal_p2f_pending(f->p2f, now.closed + s);
    }
    for (uint64_t back = 1; back <= f->desc.staging && back <= out->steps; back++)
        out->staging_in_use += frugal_p2f_unflushed(f->p2f, now.closed - back) > 0;
    out->idle_steps = frugal_load_relaxed(&f->work.idle_steps);
    out->nonfinite_rows = frugal_load_relaxed(&f->found.nonfinite);
    out->first_nonfinite = frugal_load_relaxed(&f->found.first);
    out->pages_asked = frugal_load_relaxed(&f->ahead.asked);
    out->state_bytes = frugal_p2f_has_words(f->p2f) ? word_bytes(f) : 0;
    out->other_bytes = f->p2f_bytes - word_bytes(f) +
                       f->desc.devices * (f->batch_bytes + f->sorting.bytes + f->block_bytes) +
                       group_bytes(f->store.n_groups) + f->desc.devices * (uint64_t)count_bytes(f);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_attached(f, d) && f->devices[d].team) out->other_bytes += sizeof(struct team);
    if (f->clocks) out->other_bytes += f->clocks->bytes;
    if (f->saving.changed) out->state_bytes += changed_bytes(f);
    if (is_counting(f)) out->state_bytes += f->store.rows;
    out->nodes = f->memory.nodes.n > 1 && !f->memory.nodes.error ? f->memory.nodes.n : 0;
    find_page_sizes(f, out->steps);
    out->resident_bytes = frugal_load_relaxed(&f->pages.resident_bytes);
    out->huge_bytes = frugal_load_relaxed(&f->pages.huge_bytes);
}
