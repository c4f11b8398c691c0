/* local_wire.h - a wire between machines that are threads of one process (frugal_machines.h >>wire), as fast as a copy:
 * for measuring what several machines cost beside their network. */
#ifndef LOCAL_WIRE_H
#define LOCAL_WIRE_H

#include "frugal_machines.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_MOST = 16 };

typedef enum { LOCAL_FREE, LOCAL_SENDS, LOCAL_RECEIVES, LOCAL_DONE } local_state;

typedef struct local_request {
    _Atomic(local_state) state; /* of one that is begun, under the lock of all, except that its owner sees it done */
    frugal_parcel parcel;
    uint64_t number; /* the order in which the machine has begun them */
    size_t bytes;
} local_request;

typedef struct local_machine {
    struct local_machines *all;
    local_request *requests;
    uint32_t n;
    uint64_t numbers;
} local_machine;

typedef struct local_machines {
    pthread_mutex_t lock;
    uint32_t machines;
    local_machine machine[LOCAL_MOST];
} local_machines;

static inline frugal_status local_begin(void *self, uint32_t requests) {
    local_machine *m = (local_machine *)self;
    pthread_mutex_lock(&m->all->lock);
    m->requests = (local_request *)calloc(requests, sizeof *m->requests);
    m->n = m->requests ? requests : 0;
    pthread_mutex_unlock(&m->all->lock);
    return m->requests ? FRUGAL_OK : FRUGAL_ERR_MEMORY;
}

/* Copies as much as two pieces of memory have in common, from `at` on in what is one message. */
static inline void local_copy_part(const frugal_parcel *to, const frugal_parcel *from, int body, int from_body) {
    size_t begin = body ? to->head_bytes : 0, end = begin + (body ? to->body_bytes : to->head_bytes);
    size_t from_begin = from_body ? from->head_bytes : 0;
    size_t from_end = from_begin + (from_body ? from->body_bytes : from->head_bytes);
    size_t first = begin > from_begin ? begin : from_begin, last = end < from_end ? end : from_end;
    if (first >= last) return;
    memcpy((char *)(body ? to->body : to->head) + (first - begin),
           (const char *)(from_body ? from->body : from->head) + (first - from_begin), last - first);
}

/* The oldest request of a machine that fits: of the other's messages with this tag. */
static inline local_request *local_find(local_machine *m, local_state state, uint32_t peer, uint32_t tag) {
    local_request *found = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        local_request *r = &m->requests[i];
        if (atomic_load(&r->state) != state || r->parcel.peer != peer || r->parcel.tag != tag) continue;
        if (!found || r->number < found->number) found = r;
    }
    return found;
}

static inline frugal_status local_use(void *self, uint32_t request, const frugal_parcel *p, local_state state) {
    local_machine *m = (local_machine *)self, *other = &m->all->machine[p->peer];
    uint32_t me = (uint32_t)(m - m->all->machine);
    local_request *r = &m->requests[request];
    pthread_mutex_lock(&m->all->lock);
    r->parcel = *p, r->number = m->numbers++;
    local_request *with = local_find(other, state == LOCAL_SENDS ? LOCAL_RECEIVES : LOCAL_SENDS, me, p->tag);
    if (with) {
        local_request *to = state == LOCAL_SENDS ? with : r, *from = state == LOCAL_SENDS ? r : with;
        for (int part = 0; part < 4; part++) local_copy_part(&to->parcel, &from->parcel, part / 2, part % 2);
        to->bytes = from->parcel.head_bytes + from->parcel.body_bytes;
        atomic_store(&with->state, LOCAL_DONE);
    }
    atomic_store(&r->state, with ? LOCAL_DONE : state);
    pthread_mutex_unlock(&m->all->lock);
    return FRUGAL_OK;
}
static inline frugal_status local_send(void *self, uint32_t request, const frugal_parcel *p) {
    return local_use(self, request, p, LOCAL_SENDS);
}
static inline frugal_status local_receive(void *self, uint32_t request, const frugal_parcel *p) {
    return local_use(self, request, p, LOCAL_RECEIVES);
}

static inline int local_done(void *self, uint32_t request, size_t *bytes) {
    local_request *r = &((local_machine *)self)->requests[request];
    if (atomic_load(&r->state) != LOCAL_DONE) return 0;
    *bytes = r->bytes;
    atomic_store(&r->state, LOCAL_FREE);
    return 1;
}

static inline uint32_t local_lost(void *self, char *text, size_t size) {
    (void)self, (void)text, (void)size;
    return 0;
}

static inline void local_end(void *self) {
    local_machine *m = (local_machine *)self;
    pthread_mutex_lock(&m->all->lock);
    free(m->requests);
    m->requests = NULL, m->n = 0;
    pthread_mutex_unlock(&m->all->lock);
}

static inline void local_init(local_machines *all, uint32_t machines) {
    memset(all, 0, sizeof *all);
    pthread_mutex_init(&all->lock, NULL);
    all->machines = machines;
    for (uint32_t i = 0; i < machines; i++) all->machine[i].all = all;
}
static inline frugal_wire local_wire(local_machines *all, uint32_t machine) {
    const frugal_wire wire = {.self = &all->machine[machine],
                              .machine = machine,
                              .machines = all->machines,
                              .begin = local_begin,
                              .send = local_send,
                              .receive = local_receive,
                              .done = local_done,
                              .lost = local_lost,
                              .end = local_end};
    return wire;
}

#endif /* LOCAL_WIRE_H */
