/* trace.c - what threads did, and when: a ring of events for each, written as a file for ui.perfetto.dev.
 *
 * Events are recorded where the work is done: in the calls of a step (step.c), at the gate (gate.c), and in the pieces
 * of work of threads that help (help.c). A piece has the time that statistics count, so recording it does not read the
 * clock again. While nothing is recorded, such a place costs one relaxed load and a branch.
 *
 * Rings. A ring has one writer at a time: the trainer of a device, its loader, a worker, a thread that saves, or a
 * thread in another call, which claims one of a few rings for that call. A call that records sets `trace_own`, the ring
 * of its thread, and restores it when it returns. So no ring belongs to a thread that has ended, and a worker that
 * several instances share writes into the ring of the instance whose work it does. All memory is allocated by the first
 * frugal_trace_start, and stays until frugal_close, because a thread may be in the middle of an event when recording
 * ends.
 *
 * Event i lies in place i mod `events` of its ring. The writer raises `head` to i + 1 when event i is written. A reader
 * that has read event i reads `head` once more. The writer begins with event i + `events`, which takes the same place,
 * only when `head` is that number. So the event is whole if `head` is still below that number. [F28] makes this hold: a
 * reader of a word of the later event has acquired a `head` that says so. Events that fail this test are counted as
 * lost.
 *
 * Contents: >>rings >>events >>control >>writing
 */
#include "table.h"

#include <inttypes.h>

enum {
    TRACE_WORDS = 8,   /* of an event */
    TRACE_CALLERS = 8, /* threads in frugal_help, frugal_drain and similar calls that can record at a time */
    TRACE_DEFAULT = 16384,
    TRACE_LEAST = 16,
    TRACE_MOST = 1 << 24
};

struct trace_ring {
    atomic_word head; /* events written so far; changed by the writer */
    atomic_word *words;
    FRUGAL_ATOMIC(uint32_t) claimed; /* of TRACE_CALLER: a thread has it */
    uint64_t from;                   /* `head` when recording began; under tracing.lock */
    trace_role role;
    uint32_t number; /* of the device, the worker, the caller */
    uint8_t pad[24];
};

_Static_assert(sizeof(trace_ring) == CACHE_LINE, "rings, and the words behind them, fill whole lines");

struct trace {
    size_t bytes;
    uint64_t events; /* of a ring; a power of two */
    uint32_t n_rings;
    atomic_word started;    /* ns of the clock; relaxed: ordered by `tracing` */
    atomic_word homeless;   /* events of threads that have no ring */
    uint64_t homeless_from; /* `homeless` when recording began */
    trace_ring *rings;      /* [n_rings]: trainers, loaders, workers, callers, the saver */
};

/* What the piece of work that is under way has counted: its step, device and rows. Set by the code that does it. */
typedef struct trace_note {
    uint64_t step, rows;
    uint32_t d;
} trace_note;

FRUGAL_INTERNAL _Thread_local trace_ring *trace_own; /* NULL: this thread is in no call that records */
/* When this thread last turned from one cause of its wait to another: a piece of work recorded later begins no
 * earlier. */
static _Thread_local uint64_t trace_turned;
static _Thread_local trace_note trace_noted = {NO_COUNT, NO_COUNT, NO_DEVICE};

/* >>rings */

static int is_tracing(frugal *f) {
    return frugal_load_relaxed(&f->tracing.on) != 0; /* relaxed: trace_of acquires */
}

/* The trace while events are recorded, or NULL. */
static trace *trace_of(frugal *f) {
    if (!is_tracing(f)) return NULL;
    return frugal_load_acquire(&f->tracing.on) ? f->tracing.rings : NULL; /* [F27] pairs with [F26] */
}

static uint32_t trace_rings_of(const frugal *f) {
    return 2 * f->desc.devices + f->desc.workers + TRACE_CALLERS + 1;
}

/* The ring of a device's trainer or loader, of a worker, or of the saver. NULL: nothing is recorded. */
FRUGAL_INTERNAL trace_ring *trace_ring_of(frugal *f, trace_role role, uint32_t number) {
    const trace *t = trace_of(f);
    if (!t) return NULL;
    if (role == TRACE_SAVER) return &t->rings[t->n_rings - 1];
    return &t->rings[(role == TRACE_TRAINER ? 0 : (uint32_t)role * f->desc.devices) + number];
}

/* Claims a ring of callers that no other thread has; NULL: none is free. */
static trace_ring *claim_ring(const frugal *f) {
    for (uint32_t i = 0; i < TRACE_CALLERS; i++) {
        trace_ring *ring = &f->tracing.rings->rings[2 * f->desc.devices + f->desc.workers + i];
        uint32_t free = 0;
        if (frugal_cas_acquire(&ring->claimed, &free, 1)) return ring; /* [F30] pairs with [F31] */
    }
    return NULL;
}
static void give_back_ring(trace_ring *claimed) {
    frugal_store_release(&claimed->claimed, 0); /* [F31] pairs with [F30]: its events */
}

/* Claims a ring for a thread in some other call; NULL if the thread has one already, or none is free. */
FRUGAL_INTERNAL trace_ring *trace_claim(frugal *f) {
    return trace_own || !trace_of(f) ? NULL : (trace_own = claim_ring(f));
}
FRUGAL_INTERNAL void trace_release(trace_ring *claimed) {
    if (!claimed) return;
    trace_own = NULL;
    give_back_ring(claimed);
}

/* >>events */

static uint64_t ns_of(double seconds) {
    return (uint64_t)(seconds * 1e9);
}

static void write_event(const trace *t, trace_ring *ring, const trace_event *e) {
    uint64_t i = frugal_load_relaxed(&ring->head); /* relaxed: only this thread changes it */
    atomic_word *words = ring->words + (i & (t->events - 1)) * TRACE_WORDS;
    const uint64_t all[TRACE_WORDS] = {
        e->begin, e->end, e->step, (uint64_t)e->other << 32 | (uint64_t)e->d << 16 | (uint64_t)e->cause << 8 | e->kind,
        e->a,     e->b,   e->c};
    for (uint32_t k = 0; k + 1 < TRACE_WORDS; k++)
        frugal_store_release(&words[k], all[k]); /* [F28] pairs with [F29]: with `head`, as it is now */
    frugal_store_release(&ring->head, i + 1);    /* [F28] pairs with [F29]: the event is written */
}

/* Records an event of this thread. */
static void trace_add(frugal *f, const trace_event *e) {
    trace *t = trace_of(f);
    if (!t || e->begin < frugal_load_relaxed(&t->started)) return; /* relaxed: [F27] has acquired it */
    if (trace_own)
        write_event(t, trace_own, e);
    else
        frugal_add_relaxed(&t->homeless, 1); /* relaxed: a statistic */
}

/* Records a piece of work of a thread that helps, from `begin` to `end` in seconds. */
FRUGAL_INTERNAL void trace_piece(frugal *f, trace_kind kind, double begin, double end) {
    if (!is_tracing(f)) return;
    if (kind == TRACE_PLAN) trace_noted = (trace_note){NO_COUNT, NO_COUNT, NO_DEVICE};
    uint64_t from = ns_of(begin) > trace_turned ? ns_of(begin) : trace_turned;
    trace_add(f, &(trace_event){.kind = kind,
                                .d = trace_noted.d,
                                .other = NO_DEVICE,
                                .begin = from,
                                .end = ns_of(end),
                                .step = trace_noted.step,
                                .a = trace_noted.rows,
                                .b = NO_COUNT,
                                .c = NO_COUNT});
}

/* Notes what the piece under way is about. */
FRUGAL_INTERNAL void trace_count(frugal *f, uint32_t d, uint64_t step, uint64_t rows) {
    if (is_tracing(f)) trace_noted = (trace_note){step, rows, d};
}

/* Notes the keys and unique rows of the batch, which must be there and stay. */
static void trace_batch(frugal *f, trace_event *e) {
    const host_batch *b = batch_at(f, e->d, e->step);
    e->a = b->n, e->b = b->n_unique;
}

/* A call of a device begins, by its trainer or loader. `f`, `d` and `step` are the caller's, and may be wrong. */
FRUGAL_INTERNAL trace_span trace_enter(frugal *f, trace_kind kind, uint32_t d, uint64_t step) {
    trace_span span = {.ring = NULL};
    if (!f || !f->opened || !is_tracing(f) || !is_this_process(f->process) || d >= f->desc.devices) return span;
    span.ring = trace_ring_of(f, kind == TRACE_ANNOUNCE ? TRACE_LOADER : TRACE_TRAINER, d);
    if (!span.ring) return span;
    span.outer = trace_own;
    span.event = (trace_event){.kind = kind, .d = d, .other = NO_DEVICE, .begin = ns_of(clock_now()), .step = step};
    span.event.a = span.event.b = span.event.c = NO_COUNT;
    trace_own = span.ring;
    host_device *device = &f->devices[d]; /* relaxed, all: this thread counts */
    span.counted = frugal_load_relaxed(kind == TRACE_ANNOUNCE ? &device->announce_ns : &device->counts->hits);
    span.missed = frugal_load_relaxed(&device->counts->misses);
    /* After an update commits, the batch's place may be used again, so the batch is read before. */
    if (kind == TRACE_UPDATE && frugal_load_relaxed(&device->updated) == step &&
        frugal_load_relaxed(&device->looked_up) == step + 1)
        trace_batch(f, &span.event);
    return span;
}

/* The call ends. It is recorded if it succeeded. */
FRUGAL_INTERNAL void trace_leave(frugal *f, trace_span *span, frugal_status status) {
    if (!span->ring) return;
    if (status == FRUGAL_OK) {
        trace_event *e = &span->event;
        host_device *device = &f->devices[e->d];
        /* relaxed, all: this thread counts. For a device with `poll` another one counts, later. */
        uint64_t hits = frugal_load_relaxed(&device->counts->hits) - span->counted;
        uint64_t misses = frugal_load_relaxed(&device->counts->misses) - span->missed;
        e->end = ns_of(clock_now());
        if (e->kind == TRACE_LOOKUP) trace_batch(f, e);
        if (e->kind == TRACE_ANNOUNCE) e->b = frugal_load_relaxed(&device->announce_ns) - span->counted;
        if (e->kind == TRACE_LOOKUP && !device->ops.poll && hits + misses == e->b) e->c = hits;
        trace_add(f, e);
    }
    trace_own = span->outer;
}

/* Records a whole call of another kind, which began at `begin` in seconds. */
FRUGAL_INTERNAL void trace_call(frugal *f, trace_kind kind, double begin, uint64_t bytes) {
    if (is_tracing(f))
        trace_add(f, &(trace_event){.kind = kind,
                                    .d = NO_DEVICE,
                                    .other = NO_DEVICE,
                                    .begin = ns_of(begin),
                                    .end = ns_of(clock_now()),
                                    .step = frugal_p2f_closed(f->p2f),
                                    .a = bytes,
                                    .b = NO_COUNT,
                                    .c = NO_COUNT});
}

/* The instance was saved. */
FRUGAL_INTERNAL void trace_saved(frugal *f, double begin, uint64_t bytes) {
    trace_ring *ring = trace_ring_of(f, TRACE_SAVER, 0), *outer = trace_own;
    if (!ring) return;
    trace_own = ring;
    trace_call(f, TRACE_SAVE, begin, bytes);
    trace_own = outer;
}

/* A thread of device `d` waited for a cause, at a gate or to announce, from `begin` to `end` in seconds. */
FRUGAL_INTERNAL void trace_wait(frugal *f, trace_kind kind, uint32_t d, const gate_cause *cause, double begin,
                                double end) {
    if (!is_tracing(f)) return;
    trace_add(f, &(trace_event){.kind = kind,
                                .cause = cause->kind,
                                .d = d,
                                .other = cause->d,
                                .begin = ns_of(begin),
                                .end = ns_of(end),
                                .step = cause->step,
                                .a = cause->count,
                                .b = NO_COUNT,
                                .c = NO_COUNT});
    trace_turned = ns_of(end);
}

/* >>control */

static size_t trace_bytes(const frugal *f, uint64_t events) {
    uint64_t rings = trace_rings_of(f);
    return (size_t)((sizeof(trace) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE +
                    rings * (sizeof(trace_ring) + events * TRACE_WORDS * sizeof(uint64_t)));
}

/* Makes the rings, once. The caller holds tracing.lock. */
static frugal_status make_trace(frugal *f, uint64_t events) {
    size_t bytes = trace_bytes(f, events);
    unsigned char *memory = frugal_allocate(f, bytes, CACHE_LINE);
    if (!memory) return fail_memory("the events of a trace; record fewer for each thread", bytes);
    trace *t = (trace *)(void *)memory;
    uint32_t devices = f->desc.devices, workers = f->desc.workers;
    t->bytes = bytes, t->events = events, t->n_rings = trace_rings_of(f);
    t->rings = (trace_ring *)(void *)(memory + (sizeof *t + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    atomic_word *words = (atomic_word *)(void *)(t->rings + t->n_rings);
    for (uint32_t i = 0; i < t->n_rings; i++, words += events * TRACE_WORDS) {
        trace_ring *ring = &t->rings[i];
        uint32_t first = 0, next = devices;
        ring->words = words, ring->role = TRACE_TRAINER;
        if (i >= next) ring->role = TRACE_LOADER, first = next, next += devices;
        if (i >= next) ring->role = TRACE_WORKER, first = next, next += workers;
        if (i >= next) ring->role = TRACE_CALLER, first = next, next += TRACE_CALLERS;
        if (i >= next) ring->role = TRACE_SAVER, first = next;
        ring->number = i - first;
    }
    f->tracing.rings = t;
    return FRUGAL_OK;
}

static frugal_status check_events(const frugal *f, uint32_t events) {
    if (events != 0 && (events < TRACE_LEAST || events > TRACE_MOST))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "trace_start: %u events of each thread; there may be %d to %d, or 0",
                           events, TRACE_LEAST, TRACE_MOST);
    if (f->tracing.rings && events != 0 &&
        (events > f->tracing.rings->events || events <= f->tracing.rings->events / 2))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "trace_start: %u events of each thread, and this instance has room for %llu since its first "
                           "trace; ask for this number, or for 0",
                           events, (unsigned long long)f->tracing.rings->events);
    return FRUGAL_OK;
}

frugal_status frugal_trace_start(frugal *f, uint32_t events) {
    frugal_status status = check_open(f, "trace_start");
    if (status != FRUGAL_OK) return status;
    uint64_t rounded = TRACE_LEAST, wanted = events ? events : TRACE_DEFAULT;
    while (rounded < wanted) rounded *= 2;
    pthread_mutex_lock(&f->tracing.lock);
    status = check_events(f, events);
    if (status == FRUGAL_OK && !f->tracing.rings) status = make_trace(f, rounded);
    if (status == FRUGAL_OK) {
        trace *t = f->tracing.rings;
        for (uint32_t i = 0; i < t->n_rings; i++)
            t->rings[i].from = frugal_load_relaxed(&t->rings[i].head); /* relaxed: an older value adds only an event
                                                                         that was begun before this start */
        t->homeless_from = frugal_load_relaxed(&t->homeless);          /* relaxed: a statistic */
        frugal_store_relaxed(&t->started, ns_of(clock_now()));         /* relaxed: published below */
        frugal_store_release(&f->tracing.on, 1);                       /* [F26] pairs with [F27]: the trace */
    }
    pthread_mutex_unlock(&f->tracing.lock);
    return status;
}

frugal_status frugal_trace_stop(frugal *f) {
    frugal_status status = check_open(f, "trace_stop");
    if (status != FRUGAL_OK) return status;
    pthread_mutex_lock(&f->tracing.lock);
    frugal_store_relaxed(&f->tracing.on, 0); /* relaxed: a thread may record an event a moment later */
    pthread_mutex_unlock(&f->tracing.lock);
    return FRUGAL_OK;
}

FRUGAL_INTERNAL void close_trace(frugal *f) {
    if (f->tracing.rings) frugal_free(f, f->tracing.rings, f->tracing.rings->bytes);
    f->tracing.rings = NULL;
}

/* >>writing */

typedef struct trace_text { /* of the file */
    int file, error;
    uint64_t at, lost;
    size_t used;
    char text[4096];
} trace_text;

static void trace_spill(trace_text *out) {
    if (!out->error) out->error = write_at(out->file, out->text, out->used, out->at);
    out->at += out->used, out->used = 0;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
trace_print(trace_text *out, const char *format, ...) {
    enum { LONGEST = 512 };
    va_list arguments;
    if (out->used + LONGEST > sizeof out->text) trace_spill(out);
    va_start(arguments, format);
    int n = vsnprintf(out->text + out->used, LONGEST, format, arguments);
    va_end(arguments);
    FRUGAL_ASSERT(n >= 0 && n < LONGEST);
    out->used += (size_t)n;
}

FRUGAL_INTERNAL const char *const cause_names[CAUSES] = {"none",   "commit", "work",  "announce", "close",
                                                         "recall", "plan",   "flush", "machines", "ahead"};

/* By kind: its name, and the names of the counts a, b, c. */
static const struct {
    const char *name, *counts[3];
} kinds[TRACE_KINDS] = {
    [TRACE_ANNOUNCE] = {"announce", {"keys", "waited_ns", NULL}},
    [TRACE_PLAN] = {"plan", {"rows", NULL, NULL}},
    [TRACE_GATE] = {"gate", {NULL, NULL, NULL}},
    [TRACE_LOOKUP] = {"lookup", {"keys", "rows", "hits"}},
    [TRACE_UPDATE] = {"update", {"keys", "rows", NULL}},
    [TRACE_CLOSE] = {"close", {"rows", NULL, NULL}},
    [TRACE_FLUSH] = {"flush", {"rows", NULL, NULL}},
    [TRACE_RECALL] = {"recall", {"rows", NULL, NULL}},
    [TRACE_SAVE] = {"save", {"bytes", NULL, NULL}},
    [TRACE_DRAIN] = {"drain", {NULL, NULL, NULL}},
    [TRACE_WAIT] = {"wait", {NULL, NULL, NULL}},
};

static void print_cause(trace_text *out, const trace_event *e) {
    char reason[160];
    explain_cause(&(gate_cause){e->cause, e->other, e->step, e->a}, reason, sizeof reason);
    trace_print(out, ",\"cause\":\"%s\",\"reason\":\"%s\"", cause_names[e->cause], reason);
    if (e->other != NO_DEVICE) trace_print(out, ",\"waits_for_device\":%" PRIu32, e->other);
}

static void print_event(trace_text *out, uint32_t thread, uint64_t started, const trace_event *e) {
    const uint64_t counts[3] = {e->a, e->b, e->c};
    uint64_t at = e->begin - started, ns = e->end - e->begin;
    int waits = e->kind == TRACE_GATE || e->kind == TRACE_WAIT;
    trace_print(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u",
                thread, at / 1000, (unsigned)(at % 1000), ns / 1000, (unsigned)(ns % 1000));
    trace_print(out, ",\"cat\":\"frugal\",\"name\":\"%s%s%s\"%s,\"args\":{", kinds[e->kind].name, waits ? ": " : "",
                waits ? cause_names[e->cause] : "", waits ? ",\"cname\":\"terrible\"" : "");
    const char *comma = "";
    if (e->step != NO_COUNT) trace_print(out, "\"step\":%" PRIu64, e->step), comma = ",";
    if (e->d != NO_DEVICE) trace_print(out, "%s\"device\":%" PRIu32, comma, e->d), comma = ",";
    for (int i = 0; i < 3 && !waits; i++)
        if (kinds[e->kind].counts[i] && counts[i] != NO_COUNT)
            trace_print(out, "%s\"%s\":%" PRIu64, comma, kinds[e->kind].counts[i], counts[i]), comma = ",";
    if (waits) print_cause(out, e);
    trace_print(out, "}}");
}

/* The events that a ring has, from *first on. Returns the end. */
static uint64_t find_events(const trace *t, trace_ring *ring, uint64_t *first) {
    uint64_t end = frugal_load_acquire(&ring->head); /* [F29] pairs with [F28]: the events before it */
    *first = ring->from;
    if (end - *first >= t->events) *first = end - t->events + 1; /* the place of the oldest may be in use already */
    return end;
}

/* Reads event `i` of a ring; 0 if it has been overwritten. */
static int read_event(const trace *t, trace_ring *ring, uint64_t i, trace_event *e) {
    atomic_word *words = ring->words + (i & (t->events - 1)) * TRACE_WORDS;
    uint64_t all[TRACE_WORDS] = {0};
    for (uint32_t k = 0; k + 1 < TRACE_WORDS; k++)
        all[k] = frugal_load_acquire(&words[k]); /* [F29] pairs with [F28]: `head` as of its writing */
    *e = (trace_event){.kind = (trace_kind)(all[3] & 0xff),
                       .cause = (cause_kind)(all[3] >> 8 & 0xff),
                       .d = (uint32_t)(all[3] >> 16 & 0xffff),
                       .other = (uint32_t)(all[3] >> 32),
                       .begin = all[0],
                       .end = all[1],
                       .step = all[2],
                       .a = all[4],
                       .b = all[5],
                       .c = all[6]};
    return frugal_load_relaxed(&ring->head) - i < t->events; /* relaxed: the words above have acquired it */
}

/* The number of a ring's thread in the file. Viewers sort by it: a device's loader stands below its trainer. It is not
 * 1, which would be the main thread of process 1. */
static uint32_t thread_number(const frugal *f, uint32_t ring) {
    uint32_t role = f->tracing.rings->rings[ring].role, number = f->tracing.rings->rings[ring].number;
    return 2 + (role <= TRACE_LOADER ? 2 * number + role : ring);
}

static void print_name(trace_text *out, uint32_t thread, const trace_ring *ring) {
    static const char *const names[] = {"trainer of device", "loader of device", "worker", "caller", "save"};
    char name[64];
    int n = snprintf(name, sizeof name, "%s", names[ring->role]);
    if (ring->role != TRACE_SAVER) snprintf(name + n, sizeof name - (size_t)n, " %" PRIu32, ring->number);
    trace_print(out,
                ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                thread, name);
    trace_print(out,
                ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32 ",\"name\":\"thread_sort_index\",\"args\":{"
                "\"sort_index\":%" PRIu32 "}}",
                thread, thread);
}

static void print_ring(trace_text *out, const frugal *f, uint32_t number) {
    const trace *t = f->tracing.rings;
    trace_ring *ring = &t->rings[number];
    uint32_t thread = thread_number(f, number);
    trace_event e;
    uint64_t started = frugal_load_relaxed(&t->started); /* relaxed: written under the lock */
    uint64_t i, end = find_events(t, ring, &i);
    if (end == ring->from) return;
    out->lost += i - ring->from;
    print_name(out, thread, ring);
    for (; i < end; i++) {
        int whole = read_event(t, ring, i, &e);
        out->lost += (uint64_t)!whole;
        if (whole && e.begin >= started) print_event(out, thread, started, &e);
    }
}

/* Writes the file's text. Returns an errno. */
static int print_trace(frugal *f, int file) {
    trace_text out = {.file = file};
    const trace *t = f->tracing.rings;
    trace_print(&out,
                TRACE_BEGIN "\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
                            "\"args\":{\"name\":\"frugal: %" PRIu32 " devices, %" PRIu32 " workers, lookahead %" PRIu32
                            "\"}}",
                f->desc.devices, f->desc.workers, f->desc.lookahead);
    for (uint32_t i = 0; i < t->n_rings; i++) print_ring(&out, f, i);
    out.lost += frugal_load_relaxed(&t->homeless) - t->homeless_from; /* relaxed, both: a statistic; under the lock */
    uint64_t started = frugal_load_relaxed(&t->started);
    trace_print(&out,
                "\n],\"otherData\":{\"version\":\"%s\",\"lost_events\":%" PRIu64 ",\"events_per_thread\":%" PRIu64
                ",\"started_ns\":%" PRIu64 "}}\n",
                FRUGAL_VERSION_STRING, out.lost, t->events, started);
    trace_spill(&out);
    return out.error;
}

/* Only a trace or an empty file is replaced. */
static frugal_status check_trace_replaced(const file_name *name, const char *path) {
    char begins[sizeof TRACE_BEGIN - 1];
    int whole;
    if (!name->there || name->status.st_size == 0) return FRUGAL_OK;
    frugal_status status = read_beginning(name, path, begins, sizeof begins, &whole);
    if (status != FRUGAL_OK) return status;
    if (whole && memcmp(begins, TRACE_BEGIN, sizeof begins) == 0) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE, "the file to be replaced is not a trace; choose another name, or remove it: %s",
                       path);
}

frugal_status frugal_trace_write(frugal *f, const char *path) {
    file_name name;
    new_file file;
    frugal_status status = check_open(f, "trace_write");
    if (status != FRUGAL_OK) return status;
    if (!path) return frugal_fail(FRUGAL_ERR_ARGUMENT, "trace_write: `path` is NULL");
    if ((status = find_file(path, &name)) != FRUGAL_OK) return status;
    if ((status = check_trace_replaced(&name, path)) != FRUGAL_OK) return status;
    pthread_mutex_lock(&f->tracing.lock);
    if (!f->tracing.rings) {
        status = frugal_fail(FRUGAL_ERR_ARGUMENT, "trace_write: nothing was recorded; call frugal_trace_start first");
    } else {
        file_name now; /* writing takes time: another file may have the name by now */
        status = begin_file(&file, &name);
        int error = status == FRUGAL_OK ? print_trace(f, file.file) : 0;
        if (error) status = fail_system("write a trace", error, path);
        if (status == FRUGAL_OK) status = find_file(name.path, &now);
        if (status == FRUGAL_OK) status = check_trace_replaced(&now, path);
        if (status == FRUGAL_OK) status = publish_new(&file, now.there);
        drop_new(&file);
    }
    pthread_mutex_unlock(&f->tracing.lock);
    return status;
}
