/* workers.c - threads that flush, and the instances that they serve: one of their own, or all that share them.
 *
 * They go over the slots of the instances that they serve. A worker stays inside a slot from the first time that he
 * comes by until he finds it closed, so that a visit costs a look at a word that hardly ever changes.
 */
#include "host.h"

#define FRUGAL_PRIV_MAX_WORKERS 1024u

typedef struct frugal_priv_worker { /* one thread's; private */
    frugal_workers *workers;
    uint64_t inside; /* bit a slot */
    uint32_t turn;   /* the slot to begin with */
    double since;
} frugal_priv_worker;

_Static_assert(FRUGAL_MAX_INSTANCES <= 64, "a bit each");

/* The instance in the slot, which stays there until the next visit; NULL: none. */
static frugal *frugal_priv_visit(frugal_priv_worker *me, uint32_t i) {
    frugal_priv_slot *slot = &me->workers->slots[i];
    uint64_t bit = UINT64_C(1) << i;
    uint32_t found = frugal_load_relaxed(&slot->word); /* relaxed: entering proves it; inside it says only: leave */
    if (!(me->inside & bit)) {
        do {
            if (!(found & FRUGAL_PRIV_SLOT_OPEN)) return NULL;
        } while (!frugal_cas_acquire(&slot->word, &found, found + FRUGAL_PRIV_SLOT_WORKER)); /* [F14] with [F13] */
        me->inside |= bit;
    }
    if (found & FRUGAL_PRIV_SLOT_OPEN) return slot->f;
    me->inside &= ~bit;
    if (frugal_add_release(&slot->word, 0u - FRUGAL_PRIV_SLOT_WORKER) == FRUGAL_PRIV_SLOT_WORKER) /* [F15] with [F16] */
        frugal_priv_event_notify(&me->workers->event); /* who closed it waits for the last one */
    return NULL;
}

/* One piece of a kind, of the first instance that has any, in turn. */
static int frugal_priv_serve_kind(frugal_priv_worker *me, uint32_t n, int (*help)(frugal *f, double *since)) {
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = frugal_priv_visit(me, i);
        double before = me->since;
        if (!f || !help(f, &me->since)) continue;
        frugal_priv_tally(&f->busy_ns, (uint64_t)((me->since - before) * 1e9));
        me->turn = i + 1;
        return 1;
    }
    return 0;
}

/* The slot of the instance with rows that are due in the fewest steps. Some of them may be in other hands. */
static uint32_t frugal_priv_nearest(frugal_priv_worker *me, uint32_t n) {
    uint32_t nearest = me->turn, least = FRUGAL_P2F_SLOTS;
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = frugal_priv_visit(me, i);
        if (!f) continue;
        uint64_t closed = frugal_p2f_closed(f->p2f);
        uint32_t ahead = 0, most = FRUGAL_PRIV_MIN(least, f->desc.staging + 1);
        while (ahead < most && frugal_p2f_pending(f->p2f, closed + ahead) <= 0) ahead++;
        if (ahead < most) least = ahead, nearest = i;
    }
    return nearest;
}

/* One piece of whatever is most urgent in all instances: no gate waits behind the plans and the queue of another. */
static int frugal_priv_serve(frugal_priv_worker *me) {
    uint32_t n = frugal_load_relaxed(&me->workers->slots_used); /* relaxed: as at the field */
    if (frugal_priv_serve_kind(me, n, frugal_priv_help_gate)) return 1;
    if (frugal_priv_serve_kind(me, n, frugal_priv_help_plan)) return 1;
    if (n > 1) me->turn = frugal_priv_nearest(me, n);
    return frugal_priv_serve_kind(me, n, frugal_priv_help_queue);
}

enum { FRUGAL_PRIV_OUTSTANDING = 1, FRUGAL_PRIV_OTHERS = 2, FRUGAL_PRIV_DONE = 4 }; /* what a look has found, in bits */

/* A look at what is outstanding in the worker's instances, but for those that others look after. Bits of *mine: those
 * whose poll_lock he has by now. */
static int frugal_priv_look(const frugal_priv_worker *me, uint64_t *mine) {
    int found = 0;
    for (uint64_t inside = me->inside; inside; inside &= inside - 1) {
        frugal *f = me->workers->slots[frugal_priv_lowest(inside)].f;
        uint64_t bit = inside & (0 - inside);
        if (!frugal_priv_is_outstanding(f)) continue;
        if (!(*mine & bit)) {
            if (frugal_load_relaxed(&f->refusals) ||
                pthread_mutex_trylock(&f->poll_lock)) { /* relaxed: as at the field */
                found |= FRUGAL_PRIV_OTHERS;
                continue;
            }
            *mine |= bit;
        }
        if (frugal_priv_poll_locked(f)) return FRUGAL_PRIV_DONE;
        found |= FRUGAL_PRIV_OUTSTANDING;
    }
    return found;
}

/* As frugal_priv_rest, for a worker, who looks after all of his instances. While he keeps the locks of several, the
 * work of none is found later than if it were alone: whoever gives one of them more tells the event, and he begins
 * anew. */
static void frugal_priv_rest_working(const frugal_priv_worker *me, uint32_t seen) {
    frugal_priv_event *event = &me->workers->event;
    uint64_t mine = 0;
    double began = frugal_priv_now(), passed = 0;
    int found;
    do {
        found = frugal_priv_look(me, &mine);
        if (found & FRUGAL_PRIV_OUTSTANDING && passed > FRUGAL_PRIV_POLL_RESTLESS) {
            double rarest = found & FRUGAL_PRIV_OTHERS ? FRUGAL_PRIV_POLL_OTHERS : FRUGAL_PRIV_POLL_RAREST;
            frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_MIN(passed / 4, rarest));
        }
        passed = frugal_priv_now() - began;
    } while (found & FRUGAL_PRIV_OUTSTANDING &&
             frugal_load_relaxed(&event->word) == seen); /* relaxed: all look again */
    for (; mine; mine &= mine - 1) pthread_mutex_unlock(&me->workers->slots[frugal_priv_lowest(mine)].f->poll_lock);
    if (found == 0)
        frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_FOREVER);
    else if (found == FRUGAL_PRIV_OTHERS)
        frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_POLL_OTHERS);
}

static void *frugal_priv_work(void *argument) {
    frugal_priv_worker me = {.workers = argument, .since = frugal_priv_now()};
    frugal_workers *w = me.workers;
    while (!frugal_load_relaxed(&w->closing)) {
        if (frugal_priv_serve(&me)) continue;
        uint32_t seen = frugal_priv_event_prepare(&w->event);
        if (frugal_load_relaxed(&w->closing) || frugal_priv_serve(&me)) continue;
        frugal_priv_rest_working(&me, seen);
        me.since = frugal_priv_now();
    }
    return NULL;
}

/* Takes a slot for the instance, which is not served before frugal_priv_enter. */
static frugal_status frugal_priv_join(frugal *f, frugal_workers *w) {
    uint32_t i = 0, most = f->desc.shared_workers ? FRUGAL_MAX_INSTANCES : 1;
    pthread_mutex_lock(&w->lock);
    while (i < most && w->slots[i].taken) i++;
    if (i < most) {
        w->slots[i].taken = 1;
        w->slots[i].f = f;
        w->instances++;
        /* relaxed: as at the field */
        if (frugal_load_relaxed(&w->slots_used) == i) frugal_store_relaxed(&w->slots_used, i + 1);
    }
    pthread_mutex_unlock(&w->lock);
    if (i == most)
        return frugal_fail(FRUGAL_ERR_LIMIT, "shared_workers serve %u instances, the limit; open others for this one",
                           most);
    f->workers = w, f->slot = i, f->event = &w->event;
    return FRUGAL_OK;
}

static void frugal_priv_enter(frugal *f) {
    frugal_add_release(&f->workers->slots[f->slot].word, FRUGAL_PRIV_SLOT_OPEN); /* [F13] pairs with [F14] */
    f->entered = 1;
}

/* Gives the slot back, when no worker is inside. */
static void frugal_priv_leave(frugal *f) {
    frugal_workers *w = f->workers;
    frugal_priv_slot *slot = &w->slots[f->slot];
    if (f->entered) {
        frugal_add_relaxed(&slot->word, 0u - FRUGAL_PRIV_SLOT_OPEN); /* relaxed: the event tells of it */
        frugal_priv_event_notify(&w->event);                         /* who is inside and sleeps */
    }
    for (;;) {
        uint32_t seen = frugal_priv_event_prepare(&w->event);
        if (frugal_load_acquire(&slot->word) == 0) break; /* [F16] pairs with [F15] */
        frugal_priv_event_sleep(&w->event, seen, FRUGAL_PRIV_FOREVER);
    }
    pthread_mutex_lock(&w->lock);
    slot->taken = 0;
    w->instances--;
    pthread_mutex_unlock(&w->lock);
}

/* Ends the threads and frees all, by the settings that it was opened with. */
static void frugal_priv_end_workers(const frugal_desc *memory, frugal_workers *w) {
    frugal_add_relaxed(&w->closing, 1);
    frugal_priv_event_notify(&w->event);
    for (uint32_t i = 0; i < w->started; i++) pthread_join(w->threads[i], NULL);
    pthread_mutex_destroy(&w->lock);
    frugal_priv_release(memory, w->threads, w->n * sizeof *w->threads);
    frugal_priv_release(memory, w, sizeof *w);
}

/* `n` threads that have nobody to serve yet; all of them, or none. */
static frugal_status frugal_priv_start_workers(const frugal_desc *memory, uint32_t n, frugal_workers **out) {
    size_t bytes = n * sizeof(pthread_t);
    pthread_t *threads = frugal_priv_allocate(memory, bytes, FRUGAL_PRIV_LINE);
    frugal_workers *w = threads ? frugal_priv_allocate(memory, sizeof *w, FRUGAL_PRIV_LINE) : NULL;
    if (!w) {
        frugal_priv_release(memory, threads, bytes);
        return frugal_priv_no_memory("worker threads", bytes + sizeof *w);
    }
    w->n = n, w->threads = threads;
    pthread_mutex_init(&w->lock, NULL);
    sigset_t all, saved; /* signals are the application's: its handlers do not run on our threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int error = 0;
    while (!error && w->started < n) {
        error = pthread_create(&w->threads[w->started], NULL, frugal_priv_work, w);
        w->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    *out = w;
    if (!error) return FRUGAL_OK;
    *out = NULL;
    frugal_fail(FRUGAL_ERR_WORKER, "worker %u of %u cannot be started: %s; ask for fewer workers", w->started, n,
                strerror(error));
    frugal_priv_end_workers(memory, w);
    return FRUGAL_ERR_WORKER;
}

frugal_status frugal_workers_open(uint32_t n, frugal_workers **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: `out` is NULL");
    *out = NULL;
    if (n == 0 || n > FRUGAL_PRIV_MAX_WORKERS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: %u workers; there may be 1 to %u", n,
                           FRUGAL_PRIV_MAX_WORKERS);
    return frugal_priv_start_workers(&(frugal_desc){0}, n, out);
}

frugal_status frugal_workers_close(frugal_workers *w) {
    if (!w) return FRUGAL_OK;
    pthread_mutex_lock(&w->lock);
    uint32_t instances = w->instances;
    pthread_mutex_unlock(&w->lock);
    if (instances > 0)
        return frugal_fail(FRUGAL_ERR_BUSY, "frugal_workers_close: %u instance%s still open; frugal_close %s first",
                           instances, instances > 1 ? "s are" : " is", instances > 1 ? "them" : "it");
    frugal_priv_end_workers(&(frugal_desc){0}, w);
    return FRUGAL_OK;
}

/* From here on workers serve the instance. */
static frugal_status frugal_priv_open_workers(frugal *f) {
    frugal_status status = FRUGAL_OK;
    if (f->desc.workers == 0) return FRUGAL_OK;
    if (!f->desc.shared_workers) {
        frugal_workers *own;
        status = frugal_priv_start_workers(&f->desc, f->desc.workers, &own);
        if (status == FRUGAL_OK) status = frugal_priv_join(f, own);
    }
    if (status == FRUGAL_OK) frugal_priv_enter(f);
    return status;
}
