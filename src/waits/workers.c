/* workers.c - threads that flush, and the instances that they serve: the one that owns them, or all that share them.
 *
 * Workers visit the seats of the instances that they serve. A worker stays inside a seat from its first visit until it
 * finds the seat closed. So a visit costs one read of a word that hardly ever changes.
 */
#include "waits.h"

#ifndef EVENT_SHARES /* 0: the event of shared workers is private, for tests whose memory is their own */
#define EVENT_SHARES 1
#endif

FRUGAL_INTERNAL const memory_part event_part = {0, sizeof(host_event)}; /* of the file of a workers' event */

typedef struct worker { /* one thread's; private */
    frugal_workers *workers;
    uint64_t inside; /* a bit per seat */
    uint32_t turn;   /* the seat to begin with */
    uint32_t number; /* of the workers */
    double since;
} worker;

_Static_assert(FRUGAL_MAX_INSTANCES <= 64, "a bit per seat");

/* Returns the instance in the seat, which stays there until the next visit; NULL: none. */
static frugal *visit_seat(worker *me, uint32_t i) {
    worker_seat *seat = &me->workers->seats[i];
    uint64_t bit = UINT64_C(1) << i;
    uint32_t found = frugal_load_relaxed(&seat->word); /* relaxed: entering proves it; leaving needs no proof */
    if (!(me->inside & bit)) {
        do {
            if (!(found & SEAT_OPEN)) return NULL;
        } while (!frugal_cas_acquire(&seat->word, &found, found + SEAT_WORKER)); /* [F14] with [F13] */
        me->inside |= bit;
    }
    if (found & SEAT_OPEN) return seat->f;
    me->inside &= ~bit;
    if (frugal_add_release(&seat->word, 0u - SEAT_WORKER) == SEAT_WORKER) /* [F15] with [F16] */
        event_notify(me->workers->event); /* the thread that closed it waits for the last worker */
    return NULL;
}

/* Does one piece of work of a kind, of the first instance that has any; instances take turns. */
static int serve_kind(worker *me, uint32_t n, int (*help)(frugal *f, double *since)) {
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = visit_seat(me, i);
        double before = me->since;
        if (f) trace_own = trace_ring_of(f, TRACE_WORKER, me->number);
        if (!f || !help(f, &me->since)) continue;
        tally(&f->work.busy_ns, (uint64_t)((me->since - before) * 1e9));
        me->turn = i + 1;
        return 1;
    }
    return 0;
}

/* The seat of the instance whose rows are due in the fewest steps. Other threads may have taken some of these rows. */
static uint32_t nearest_due(worker *me, uint32_t n) {
    uint32_t nearest = me->turn, least = FRUGAL_P2F_SLOTS;
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = visit_seat(me, i);
        if (!f) continue;
        uint64_t closed = frugal_p2f_closed(f->p2f);
        uint32_t ahead = 0, most = LEAST(least, f->desc.staging + 1);
        while (ahead < most && frugal_p2f_pending(f->p2f, closed + ahead) <= 0) ahead++;
        if (ahead < most) least = ahead, nearest = i;
    }
    return nearest;
}

/* Does one piece of the work that is most urgent in all instances, so that no gate waits behind the plans and the queue
 * of another instance. */
static int serve_once(worker *me) {
    uint32_t n = frugal_load_relaxed(&me->workers->seats_used); /* relaxed: the event tells of work */
    if (serve_kind(me, n, help_gate)) return 1;
    if (serve_kind(me, n, help_ahead)) return 1;
    if (n > 1) me->turn = nearest_due(me, n);
    return serve_kind(me, n, help_queue);
}

enum { FOUND_OUTSTANDING = 1, FOUND_OTHERS = 2, FOUND_DONE = 4 }; /* what look_after has found, in bits */

/* Polls those of the worker's instances that have work outstanding, except instances that other threads poll. The bits
 * of *mine are the instances whose polling.lock this worker holds. */
static int look_after(const worker *me, uint64_t *mine) {
    int found = 0;
    for (uint64_t inside = me->inside; inside; inside &= inside - 1) {
        frugal *f = me->workers->seats[frugal_priv_lowest(inside)].f;
        uint64_t bit = inside & (0 - inside);
        if (!is_outstanding(f)) continue;
        if (!(*mine & bit)) {
            if (frugal_load_relaxed(&f->polling.wanted) ||
                pthread_mutex_trylock(&f->polling.lock)) { /* relaxed: a hint */
                found |= FOUND_OTHERS;
                continue;
            }
            *mine |= bit;
        }
        if (f->ops->poll(f)) return FOUND_DONE;
        found |= FOUND_OUTSTANDING;
    }
    return found;
}

/* As rest, for a worker, which polls all of its instances. It may hold the locks of several; still, no work is found
 * later than if there were only one instance, because a thread that gives an instance more work notifies the event, and
 * the worker begins anew. */
static void rest_worker(const worker *me, uint32_t seen) {
    host_event *event = me->workers->event;
    uint64_t mine = 0;
    double began = clock_now(), passed = 0;
    int found;
    do {
        found = look_after(me, &mine);
        if (found & FOUND_OUTSTANDING && passed > POLL_RESTLESS) {
            double rarest = found & FOUND_OTHERS ? POLL_OTHERS : POLL_RAREST;
            event_sleep(event, seen, LEAST(passed / 4, rarest));
        }
        passed = clock_now() - began;
    } while (found & FOUND_OUTSTANDING && frugal_load_relaxed(&event->word) == seen); /* relaxed: all look again */
    for (; mine; mine &= mine - 1) pthread_mutex_unlock(&me->workers->seats[frugal_priv_lowest(mine)].f->polling.lock);
    if (found == 0)
        event_sleep(event, seen, FOREVER);
    else if (found == FOUND_OTHERS)
        event_sleep(event, seen, POLL_OTHERS);
}

static void *worker_main(void *argument) {
    worker me = {.workers = argument, .since = clock_now()};
    frugal_workers *w = me.workers;
    is_worker = 1;
    me.number = frugal_add_relaxed(&w->numbered, 1); /* relaxed: only a number */
    while (!frugal_load_relaxed(&w->closing)) {
        if (serve_once(&me)) continue;
        uint32_t seen = event_prepare(w->event);
        if (frugal_load_relaxed(&w->closing) || serve_once(&me)) continue;
        rest_worker(&me, seen);
        me.since = clock_now();
    }
    return NULL;
}

/* Takes a seat for the instance, which is not served before open_seat. */
FRUGAL_INTERNAL frugal_status take_seat(frugal *f, frugal_workers *w) {
    uint32_t i = 0, most = f->desc.shared_workers ? FRUGAL_MAX_INSTANCES : 1;
    if (!is_this_process(w->process)) return fail_forked(w->process, "open with shared_workers");
    pthread_mutex_lock(&w->lock);
    while (i < most && w->seats[i].taken) i++;
    if (i < most) {
        w->seats[i].taken = 1;
        w->seats[i].f = f;
        w->instances++;
        /* relaxed: under the lock; workers are told of work by the event */
        if (frugal_load_relaxed(&w->seats_used) == i) frugal_store_relaxed(&w->seats_used, i + 1);
    }
    pthread_mutex_unlock(&w->lock);
    if (i == most)
        return frugal_fail(FRUGAL_ERR_LIMIT, "shared_workers serve %u instances, the limit; open more workers for it",
                           most);
    f->workers = w, f->seat = i, f->event = w->event;
    return FRUGAL_OK;
}

static void open_seat(frugal *f) {
    frugal_add_release(&f->workers->seats[f->seat].word, SEAT_OPEN); /* [F13] pairs with [F14] */
    f->entered = 1;
}

/* Closes the seat, and gives it back when no worker is inside. */
static void give_back_seat(frugal *f) {
    frugal_workers *w = f->workers;
    worker_seat *seat = &w->seats[f->seat];
    if (f->entered) {
        frugal_add_relaxed(&seat->word, 0u - SEAT_OPEN); /* relaxed: the event tells of it */
        event_notify(w->event);                          /* wakes workers that are inside */
    }
    for (;;) {
        uint32_t seen = event_prepare(w->event);
        if (frugal_load_acquire(&seat->word) == 0) break; /* [F16] pairs with [F15] */
        event_sleep(w->event, seen, FOREVER);
    }
    pthread_mutex_lock(&w->lock);
    seat->taken = 0;
    w->instances--;
    pthread_mutex_unlock(&w->lock);
}

/* The event that the workers wait for lies in memory that other processes can map, if it `shares` and if there is such
 * memory: a device of another process notifies it. */
static void open_worker_event(frugal_workers *w, int shares) {
    w->event = &w->own_event;
    w->event_file = shares ? make_memory_file("frugal event") : -1;
    w->event_error = errno;
    if (w->event_file < 0) return;
    void *memory = NULL;
    if ((w->event_error = set_file_size(w->event_file, page_unit())) == 0)
        memory = map_own(w->event_file, event_part, PROT_READ | PROT_WRITE);
    if (memory) {
        w->event = memory;
    } else {
        if (w->event_error == 0) w->event_error = ENOMEM;
        close(w->event_file);
        w->event_file = -1;
    }
}

static void close_worker_event(frugal_workers *w) {
    if (w->event_file < 0) return;
    unmap_part(w->event, event_part.bytes);
    close(w->event_file);
}

static void join_workers(frugal_workers *w) {
    frugal_add_relaxed(&w->closing, 1);
    event_notify(w->event);
    for (uint32_t i = 0; i < w->started; i++) pthread_join(w->threads[i], NULL);
}
/* After that. `memory`: the settings, whose allocator is used. */
static void free_workers(const frugal_desc *memory, frugal_workers *w) {
    pthread_mutex_destroy(&w->lock);
    close_worker_event(w);
    release_memory(memory, w->threads, w->n * sizeof *w->threads);
    release_memory(memory, w, sizeof *w);
}

/* Starts `n` threads, which serve no instance yet: all of them, or none. `memory`: as above. */
static frugal_status start_workers(const frugal_desc *memory, uint32_t n, int shares, frugal_workers **out) {
    size_t bytes = n * sizeof(pthread_t);
    pthread_t *threads = allocate_memory(memory, bytes, CACHE_LINE);
    frugal_workers *w = threads ? allocate_memory(memory, sizeof *w, CACHE_LINE) : NULL;
    if (!w) {
        release_memory(memory, threads, bytes);
        return fail_memory("worker threads", bytes + sizeof *w);
    }
    w->n = n, w->threads = threads, w->process = (uint32_t)getpid();
    open_worker_event(w, shares);
    pthread_mutex_init(&w->lock, NULL);
    int error = 0;
    while (!error && w->started < n) {
        error = start_quiet_thread(&w->threads[w->started], worker_main, w);
        w->started += !error;
    }
    *out = w;
    if (!error) return FRUGAL_OK;
    *out = NULL;
    frugal_fail(FRUGAL_ERR_WORKER, "worker %u of %u cannot be started: %s; ask for fewer workers", w->started, n,
                strerror(error));
    join_workers(w);
    free_workers(memory, w);
    return FRUGAL_ERR_WORKER;
}

frugal_status frugal_workers_open(uint32_t n, frugal_workers **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: `out` is NULL");
    *out = NULL;
    if (n == 0 || n > MAX_WORKERS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: %u workers; there may be 1 to %u", n,
                           MAX_WORKERS);
    return start_workers(&(frugal_desc){0}, n, EVENT_SHARES, out);
}

frugal_status frugal_workers_close(frugal_workers *w) {
    if (!w || !is_this_process(w->process)) return FRUGAL_OK; /* as frugal_close */
    pthread_mutex_lock(&w->lock);
    uint32_t instances = w->instances;
    pthread_mutex_unlock(&w->lock);
    if (instances > 0)
        return frugal_fail(FRUGAL_ERR_BUSY, "frugal_workers_close: %u instance%s still open; frugal_close %s first",
                           instances, instances > 1 ? "s are" : " is", instances > 1 ? "them" : "it");
    join_workers(w);
    free_workers(&(frugal_desc){0}, w);
    return FRUGAL_OK;
}

/* From here on workers serve the instance. */
FRUGAL_INTERNAL frugal_status open_workers(frugal *f) {
    frugal_status status = FRUGAL_OK;
    if (f->desc.workers == 0) return FRUGAL_OK;
    if (!f->desc.shared_workers) {
        frugal_workers *own;
        status = start_workers(&f->desc, f->desc.workers, f->desc.name != NULL, &own);
        if (status == FRUGAL_OK) status = take_seat(f, own);
    }
    if (status == FRUGAL_OK) open_seat(f);
    return status;
}

/* From here on no worker is inside the instance. */
FRUGAL_INTERNAL void leave_workers(frugal *f) {
    if (!f->workers) return;
    if (f->desc.shared_workers)
        give_back_seat(f);
    else
        join_workers(f->workers);
}

/* When its event, which is the instance's, is used no more. */
FRUGAL_INTERNAL void close_workers(frugal *f) {
    if (f->workers && !f->desc.shared_workers) free_workers(&f->desc, f->workers);
}
