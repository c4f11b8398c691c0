/* wires.h - machines of one process, and the wires between them (frugal_machines.h >>wire), for tests.
 *
 * By a seed, messages are delayed, for a number of the receiver's calls of `done`, and so overtake each other, except
 * those of one sender to one receiver with one tag. Some are buffered when they are sent, as small ones of MPI are; the
 * others' memory is read when they are due. What is received is written when it is due, or only in the call of `done`
 * that says so. Until then its memory is all ones (numbers that are none, keys that do not exist), and may not be
 * touched under AddressSanitizer. A message may be lost for ever, with all behind it; a machine, too.
 *
 * What breaks the contract ends the program, and says so: a message longer than its room; memory that was changed while
 * it was sent; a request used twice; calls by two threads. */
#ifndef WIRES_H
#define WIRES_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../frugal_machines.h"
#include "../sanitizers.h"
#include "../support.h"

#ifdef UNDER_ASAN
#include <sanitizer/asan_interface.h>
#define WIRES_SHUT(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define WIRES_OPEN(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define WIRES_SHUT(at, bytes) ((void)(at), (void)(bytes))
#define WIRES_OPEN(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { WIRES_MOST = 16, WIRES_ANY = 1 << 30 };

typedef struct wires_options {
    uint64_t seed;
    uint32_t machines;
    uint32_t delay;    /* at most so many calls of `done` */
    unsigned buffered; /* percent of the messages: the sender's request is done before there is a receiver */
    unsigned late;     /* percent: written only when `done` says so */
    size_t most_bytes;
    /* The `drop_at`th message (from 1; 0: none) that machine `drop_from` sends with this tag, or with WIRES_ANY. */
    uint32_t drop_from, drop_tag;
    uint64_t drop_at;
    uint32_t lose; /* a machine that is lost when it sends its `lose_at`th message (0: never) */
    uint64_t lose_at;
} wires_options;

typedef struct wires_message {
    struct wires_message *next; /* of one sender, in order */
    uint32_t to, tag;
    size_t bytes;
    unsigned char *buffer;           /* buffer[bytes], or NULL: they are still where the sender has them */
    struct wires_request *from, *at; /* until the request is done; NULL: it was, or is not there yet */
    int blocked;                     /* it never arrives */
} wires_message;

enum { WIRES_FREE, WIRES_SENDS, WIRES_RECEIVES, WIRES_READY };
typedef struct wires_request {
    int state;
    frugal_parcel parcel;
    uint64_t number, due; /* the order of receives; the machine's calls of `done` until it may be done */
    uint64_t hash;        /* of what is sent */
    size_t bytes;
    int late;
    wires_message *message;
} wires_request;

typedef struct wires_machine {
    struct wires *all;
    uint32_t number, n; /* n requests; 0: not begun */
    pthread_t thread;
    wires_request *requests;
    wires_message *first, **last;                        /* that it has sent, and that have not been received */
    uint64_t calls, numbers, sent, sent_bytes, with_tag; /* with_tag: with drop_tag */
    int ended;
} wires_machine;

typedef struct wires {
    wires_options options;
    pthread_mutex_t lock;
    test_random random;
    int lost;
    uint64_t dropped;
    wires_machine machines[WIRES_MOST];
} wires;

static inline void wires_wrong(const wires_machine *m, const char *what, const frugal_parcel *p) {
    fprintf(stderr, "wires: machine %u: %s (peer %u, tag %u, %zu and %zu bytes)\n", (unsigned)m->number, what,
            p ? (unsigned)p->peer : 0, p ? (unsigned)p->tag : 0, p ? p->head_bytes : 0, p ? p->body_bytes : 0);
    abort();
}

/* >>memory */

static inline uint64_t wires_hash(const frugal_parcel *p) {
    uint64_t hash = 1;
    for (size_t i = 0; i < p->head_bytes; i++) hash = hash * 31 + ((unsigned char *)p->head)[i];
    for (size_t i = 0; i < p->body_bytes; i++) hash = hash * 31 + ((unsigned char *)p->body)[i];
    return hash;
}
static inline void wires_shut(const frugal_parcel *p) {
    if (p->head_bytes) memset(p->head, 0xff, p->head_bytes), WIRES_SHUT(p->head, p->head_bytes);
    if (p->body_bytes) memset(p->body, 0xff, p->body_bytes), WIRES_SHUT(p->body, p->body_bytes);
}
static inline void wires_open_memory(const frugal_parcel *p) {
    if (p->head_bytes) WIRES_OPEN(p->head, p->head_bytes);
    if (p->body_bytes) WIRES_OPEN(p->body, p->body_bytes);
}
static inline void wires_take(wires_message *x) { /* what is sent, from the sender's memory */
    const frugal_parcel *p = &x->from->parcel;
    x->buffer = malloc(x->bytes + 1);
    if (!x->buffer) abort();
    if (p->head_bytes) memcpy(x->buffer, p->head, p->head_bytes);
    if (p->body_bytes) memcpy(x->buffer + p->head_bytes, p->body, p->body_bytes);
}
static inline void wires_write(const frugal_parcel *p, const unsigned char *from, size_t bytes) {
    size_t head = bytes < p->head_bytes ? bytes : p->head_bytes;
    wires_open_memory(p);
    if (head) memcpy(p->head, from, head);
    if (bytes > head) memcpy(p->body, from + head, bytes - head);
}

/* >>matching: under the lock */

static inline void wires_match(wires *w, wires_message *x, wires_request *r, wires_machine *receiver) {
    if (x->bytes > r->parcel.head_bytes + r->parcel.body_bytes)
        wires_wrong(receiver, "a message is longer than its room", &r->parcel);
    x->at = r, r->message = x;
    r->due = receiver->calls + test_below(&w->random, (uint64_t)w->options.delay + 1);
    r->late = test_chance(&w->random, w->options.late);
}
static inline wires_message *wires_find_message(wires_machine *sender, uint32_t to, uint32_t tag) {
    for (wires_message *x = sender->first; x; x = x->next)
        if (!x->at && x->to == to && x->tag == tag) return x->blocked ? NULL : x;
    return NULL;
}
static inline wires_request *wires_find_receive(wires_machine *m, uint32_t from, uint32_t tag) {
    wires_request *found = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        wires_request *r = &m->requests[i];
        if (r->state != WIRES_RECEIVES || r->message || r->parcel.peer != from || r->parcel.tag != tag) continue;
        if (!found || r->number < found->number) found = r;
    }
    return found;
}
static inline void wires_remove(wires_machine *sender, wires_message *x) {
    wires_message **at = &sender->first;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    if (sender->last == &x->next) sender->last = at;
    free(x->buffer);
    free(x);
}
/* What is due arrives, whatever request `done` was asked for. */
static inline void wires_deliver(wires *w, wires_machine *m) {
    for (uint32_t i = 0; i < m->n; i++) {
        wires_request *r = &m->requests[i];
        wires_message *x = r->message;
        if (r->state != WIRES_RECEIVES || !x || x->blocked || r->due > m->calls) continue;
        if (!x->buffer) wires_take(x);
        if (x->from) x->from->message = NULL; /* the sender's memory is not read any more */
        x->from = NULL;
        if (!r->late) wires_write(&r->parcel, x->buffer, x->bytes);
        r->state = WIRES_READY;
    }
    (void)w;
}
static inline void wires_block(wires *w, uint32_t lost) { /* nothing from this machine, and to it, arrives any more */
    w->lost = 1;
    for (uint32_t i = 0; i < w->options.machines; i++)
        for (wires_message *x = w->machines[i].first; x; x = x->next)
            if ((i == lost || x->to == lost) && !(x->at && x->at->state == WIRES_READY)) x->blocked = 1;
}

/* >>wire: its six functions */

static inline frugal_status wires_begin(void *self, uint32_t requests) {
    wires_machine *m = self;
    pthread_mutex_lock(&m->all->lock);
    if (m->requests || m->ended) wires_wrong(m, "begun twice", NULL);
    m->thread = pthread_self();
    m->n = requests;
    m->requests = calloc((size_t)requests + 1, sizeof *m->requests);
    if (!m->requests) abort();
    pthread_mutex_unlock(&m->all->lock);
    return FRUGAL_OK;
}
static inline wires_request *wires_use(wires_machine *m, uint32_t request, const frugal_parcel *p, int state) {
    size_t most = m->all->options.most_bytes;
    if (!m->requests || m->ended || !pthread_equal(m->thread, pthread_self()))
        wires_wrong(m, "called before begin, after end, or by another thread", p);
    if (request >= m->n || m->requests[request].state != WIRES_FREE) wires_wrong(m, "a request in use, or none", p);
    if (p->peer >= m->all->options.machines || p->peer == m->number || p->tag >= FRUGAL_WIRE_TAGS)
        wires_wrong(m, "no such peer or tag", p);
    if (most && p->head_bytes + p->body_bytes > most) wires_wrong(m, "more than most_bytes", p);
    wires_request *r = &m->requests[request];
    *r = (wires_request){.state = state, .parcel = *p, .number = m->numbers++};
    return r;
}
static inline void wires_count(wires *w, wires_machine *m, wires_message *x) { /* is it the one to drop, or the last? */
    const wires_options *o = &w->options;
    m->sent++, m->sent_bytes += x->bytes;
    if (m->number == o->drop_from && (x->tag == o->drop_tag || o->drop_tag == WIRES_ANY) && ++m->with_tag == o->drop_at)
        x->blocked = 1, w->dropped++;
    if (m->number == o->lose && m->sent == o->lose_at) wires_block(w, m->number);
    if (w->lost && (m->number == o->lose || x->to == o->lose)) x->blocked = 1;
}
static inline frugal_status wires_send(void *self, uint32_t request, const frugal_parcel *p) {
    wires_machine *m = self;
    wires *w = m->all;
    pthread_mutex_lock(&w->lock);
    wires_request *r = wires_use(m, request, p, WIRES_SENDS), *at;
    wires_message *x = calloc(1, sizeof *x), *before = NULL;
    if (!x) abort();
    for (wires_message *y = m->first; y; y = y->next) /* is the stream stuck? */
        if (y->blocked && y->to == p->peer && y->tag == p->tag) before = y;
    *x = (wires_message){.to = p->peer, .tag = p->tag, .bytes = p->head_bytes + p->body_bytes, .from = r};
    x->blocked = before != NULL;
    *m->last = x, m->last = &x->next;
    r->hash = wires_hash(p), r->message = x, r->due = m->calls + test_below(&w->random, (uint64_t)w->options.delay + 1);
    wires_count(w, m, x);
    if (test_chance(&w->random, w->options.buffered)) wires_take(x), x->from = NULL, r->message = NULL;
    at = x->blocked ? NULL : wires_find_receive(&w->machines[p->peer], m->number, p->tag);
    if (at) wires_match(w, x, at, &w->machines[p->peer]);
    pthread_mutex_unlock(&w->lock);
    return FRUGAL_OK;
}
static inline frugal_status wires_receive(void *self, uint32_t request, const frugal_parcel *p) {
    wires_machine *m = self;
    wires *w = m->all;
    pthread_mutex_lock(&w->lock);
    wires_request *r = wires_use(m, request, p, WIRES_RECEIVES);
    wires_shut(p);
    wires_message *x = wires_find_message(&w->machines[p->peer], m->number, p->tag);
    if (x) wires_match(w, x, r, m);
    pthread_mutex_unlock(&w->lock);
    return FRUGAL_OK;
}
static inline int wires_done(void *self, uint32_t request, size_t *bytes) {
    wires_machine *m = self;
    wires *w = m->all;
    int done = 0;
    pthread_mutex_lock(&w->lock);
    if (m->ended || !pthread_equal(m->thread, pthread_self()))
        wires_wrong(m, "called after end, or by another thread", NULL);
    wires_request *r = request < m->n ? &m->requests[request] : NULL;
    if (!r || r->state == WIRES_FREE) wires_wrong(m, "done: a request that is none", NULL);
    m->calls++;
    wires_deliver(w, m);
    if (r->state == WIRES_SENDS && !r->message && r->due <= m->calls) {
        if (wires_hash(&r->parcel) != r->hash) wires_wrong(m, "memory has changed while it was sent", &r->parcel);
        done = 1;
    }
    if (r->state == WIRES_READY) {
        if (r->late) wires_write(&r->parcel, r->message->buffer, r->message->bytes);
        *bytes = r->message->bytes;
        wires_remove(&w->machines[r->parcel.peer], r->message);
        done = 1;
    }
    if (done) r->state = WIRES_FREE, r->message = NULL;
    pthread_mutex_unlock(&w->lock);
    return done;
}
static inline uint32_t wires_lost(void *self, char *text, size_t size) {
    wires_machine *m = self;
    wires *w = m->all;
    pthread_mutex_lock(&w->lock);
    uint32_t lost = w->options.lose;
    if (lost == m->number) lost = !lost; /* of the one that is cut off, all others are gone */
    if (w->lost) snprintf(text, size, "the test has cut its wires");
    int is_lost = w->lost;
    pthread_mutex_unlock(&w->lock);
    return is_lost ? lost + 1 : 0;
}
static inline void wires_end(void *self) {
    wires_machine *m = self;
    wires *w = m->all;
    pthread_mutex_lock(&w->lock);
    if (!m->requests || m->ended || !pthread_equal(m->thread, pthread_self()))
        wires_wrong(m, "ended twice, or by another thread", NULL);
    for (uint32_t i = 0; i < m->n; i++) {
        wires_request *r = &m->requests[i];
        wires_message *x = r->message;
        if (r->state == WIRES_RECEIVES || r->state == WIRES_READY) wires_open_memory(&r->parcel);
        if (r->state == WIRES_SENDS && x) { /* its memory is not the wire's any more: it never arrives */
            if (x->at) x->at->message = NULL;
            wires_remove(m, x);
        } else if (x && r->state != WIRES_FREE) {
            x->at = NULL, x->blocked = 1;
        }
    }
    free(m->requests);
    m->requests = NULL, m->n = 0, m->ended = 1;
    pthread_mutex_unlock(&w->lock);
}

/* >>open */

static inline void wires_init(wires *w, const wires_options *options) {
    memset(w, 0, sizeof *w);
    w->options = *options;
    w->random.seed = options->seed;
    pthread_mutex_init(&w->lock, NULL);
    for (uint32_t i = 0; i < options->machines; i++) {
        w->machines[i].all = w, w->machines[i].number = i;
        w->machines[i].last = &w->machines[i].first;
    }
}
static inline frugal_wire wires_of(wires *w, uint32_t machine) {
    return (frugal_wire){&w->machines[machine],
                         machine,
                         w->options.machines,
                         w->options.most_bytes,
                         wires_begin,
                         wires_send,
                         wires_receive,
                         wires_done,
                         wires_lost,
                         wires_end};
}
/* After the ends of all machines. Returns how many messages nobody has received. */
static inline uint64_t wires_destroy(wires *w) {
    uint64_t left = 0;
    for (uint32_t i = 0; i < w->options.machines; i++)
        for (wires_machine *m = &w->machines[i]; m->first; left++) wires_remove(m, m->first);
    pthread_mutex_destroy(&w->lock);
    return left;
}

#endif /* WIRES_H */
