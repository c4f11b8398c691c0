/* tracing.h - threads that record events in rings, and one that reads them. Rings are as small as they can be, so that
 * events are overwritten while they are read. Part of explore_runtime.c. */
#ifndef TRACING_H
#define TRACING_H

enum { TRACE_PLACES = 4, TRACE_WRITERS = 2, TRACE_WRITTEN = 3 }; /* by each writer */

static void set_up_traces(uint64_t variant) {
    set_up_two(variant);
    if (make_trace(w.f, TRACE_PLACES) != FRUGAL_OK) explore_fail("no trace");
}

/* Event i of a ring tells its number in all fields. */
static void write_numbered(trace_ring *ring) {
    uint64_t n = frugal_load_relaxed(&ring->head) + 1;
    const trace_event e = {.begin = n,
                           .end = n,
                           .step = n,
                           .d = (uint32_t)n,
                           .other = (uint32_t)n,
                           .kind = (trace_kind)n,
                           .cause = (cause_kind)n,
                           .a = n,
                           .b = n,
                           .c = n};
    write_event(w.f->tracing.rings, ring, &e);
}

static void read_numbered(trace_ring *ring) {
    uint64_t i, end = find_events(w.f->tracing.rings, ring, &i);
    for (; i < end; i++) {
        trace_event e;
        if (!read_event(w.f->tracing.rings, ring, i, &e)) continue;
        uint64_t n = i + 1;
        EXPLORE_EXPECT(e.begin == n && e.end == n && e.step == n && e.a == n && e.b == n && e.c == n);
        EXPLORE_EXPECT(e.d == n && e.other == n && (uint64_t)e.kind == n && (uint64_t)e.cause == n);
    }
}

static void write_or_read_traces(int number) {
    trace_ring *callers = &w.f->tracing.rings->rings[2 * w.f->desc.devices + w.f->desc.workers];
    if (number == TRACE_WRITERS) {
        for (int i = 0; i < 2; i++) read_numbered(&callers[0]);
        return;
    }
    for (int i = 0; i < TRACE_WRITTEN; i++) {
        trace_ring *ring = claim_ring(w.f);
        EXPLORE_EXPECT(ring);
        write_numbered(ring);
        give_back_ring(ring);
    }
}

/* No event was written over another one by a writer that did not know of it. */
static void count_traces(void) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < w.f->tracing.rings->n_rings; i++)
        n += frugal_load_relaxed(&w.f->tracing.rings->rings[i].head);
    EXPLORE_EXPECT(n == (uint64_t)TRACE_WRITERS * TRACE_WRITTEN);
}

#endif /* TRACING_H */
