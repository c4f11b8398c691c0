/* exchange.h - what any wire must do (frugal_machines.h >>wire): every machine sends messages of random sizes to all
 * others with several tags, begins receives before or after they are sent, and finds each message whole, in the order
 * of its tag. All is a function of the seed, which all machines have. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../frugal_machines.h"
#include "../support.h"

enum { EXCHANGE_TAGS = 3, EXCHANGE_FLIGHT = 3, EXCHANGE_LARGE = 300000 };

typedef struct exchange {
    frugal_wire wire;
    uint64_t seed;
    uint32_t messages;  /* of each sender, receiver and tag */
    test_random random; /* this machine's own */
    char said[256];     /* what is wrong */
} exchange;

typedef struct exchange_message { /* its sizes */
    size_t head, body;
    uint64_t bits;
} exchange_message;

/* Neighbouring tags, and the last one. */
static inline uint32_t exchange_tag(uint32_t i) {
    return i + 1 < EXCHANGE_TAGS ? 7 + i : FRUGAL_WIRE_TAGS - 1;
}
static inline exchange_message exchange_draw(const exchange *e, uint32_t from, uint32_t to, uint32_t tag, uint32_t n) {
    test_random r = {.seed = test_mix3(e->seed, (uint64_t)from << 32 | to, (uint64_t)tag << 32 | n)};
    exchange_message m = {test_chance(&r, 30) ? 0 : test_between(&r, 1, 64), test_between(&r, 1, 500), test_next(&r)};
    if (test_chance(&r, 30)) m.body = 0;
    if (test_chance(&r, 10)) m.body = test_between(&r, 1, EXCHANGE_LARGE);
    if (test_chance(&r, 2)) m.head = test_between(&r, 1, EXCHANGE_LARGE / 2);
    return m;
}
static inline unsigned char exchange_byte(const exchange_message *m, size_t i) {
    return (unsigned char)(m->bits >> i % 8 * 8 ^ i / 8);
}

/* A request in flight. Head and body lie in one block, beside each other or not. */
typedef struct exchange_flight {
    int busy, receives;
    uint32_t peer, tag, n;
    exchange_message message;
    unsigned char *block;
    frugal_parcel parcel;
} exchange_flight;

static inline void exchange_begin(exchange *e, exchange_flight *f, uint32_t request) {
    exchange_message *m = &f->message;
    size_t gap = test_chance(&e->random, 50) ? 0 : test_between(&e->random, 1, 100), room = 0;
    *m = f->receives ? exchange_draw(e, f->peer, e->wire.machine, f->tag, f->n)
                     : exchange_draw(e, e->wire.machine, f->peer, f->tag, f->n);
    if (f->receives && test_chance(&e->random, 50)) room = test_between(&e->random, 1, 2000);
    f->block = malloc(m->head + gap + m->body + room + 1);
    if (!f->block) abort();
    unsigned char *body = f->block + m->head + gap;
    f->parcel = (frugal_parcel){f->peer, exchange_tag(f->tag), f->block, body, m->head, m->body + room};
    if (!m->head) f->parcel.head = NULL;
    if (!f->parcel.body_bytes) f->parcel.body = NULL;
    for (size_t i = 0; !f->receives && i < m->head; i++) f->block[i] = exchange_byte(m, i);
    for (size_t i = 0; !f->receives && i < m->body; i++) body[i] = exchange_byte(m, m->head + i);
    frugal_status s = f->receives ? e->wire.receive(e->wire.self, request, &f->parcel)
                                  : e->wire.send(e->wire.self, request, &f->parcel);
    if (s != FRUGAL_OK) snprintf(e->said, sizeof e->said, "begin: %s", frugal_message());
    f->busy = 1;
}
static inline void exchange_check(exchange *e, const exchange_flight *f, size_t bytes) {
    const exchange_message *m = &f->message;
    const unsigned char *head = f->parcel.head, *body = f->parcel.body;
    int same = bytes == m->head + m->body;
    for (size_t i = 0; same && i < m->head; i++) same = head[i] == exchange_byte(m, i);
    for (size_t i = 0; same && i < m->body; i++) same = body[i] == exchange_byte(m, m->head + i);
    if (!same)
        snprintf(e->said, sizeof e->said, "machine %u: message %u of %u, tag %u, has not its %zu and %zu bytes: %zu",
                 (unsigned)e->wire.machine, (unsigned)f->n, (unsigned)f->peer, (unsigned)f->tag, m->head, m->body,
                 bytes);
}
static inline int exchange_poll(exchange *e, exchange_flight *f, uint32_t request) {
    size_t bytes = 0;
    if (!e->wire.done(e->wire.self, request, &bytes)) return 0;
    if (f->receives) exchange_check(e, f, bytes);
    free(f->block);
    f->busy = 0;
    return 1;
}

/* A stream: the messages of one tag to a peer, or from one. It has EXCHANGE_FLIGHT requests of its own. */
static inline int exchange_advance(exchange *e, exchange_flight *flights, uint32_t stream, uint32_t *begun) {
    uint32_t peer = stream / (2 * EXCHANGE_TAGS), tag = stream / 2 % EXCHANGE_TAGS, busy = 0;
    if (peer == e->wire.machine) return 0;
    for (uint32_t i = 0; i < EXCHANGE_FLIGHT; i++) {
        uint32_t request = stream * EXCHANGE_FLIGHT + i;
        exchange_flight *f = &flights[request];
        if (f->busy && test_chance(&e->random, 70)) exchange_poll(e, f, request);
        if (!f->busy && *begun < e->messages && test_chance(&e->random, 30)) {
            *f = (exchange_flight){.receives = stream % 2, .peer = peer, .tag = tag, .n = (*begun)++};
            exchange_begin(e, f, request);
        }
        busy |= (uint32_t)f->busy;
    }
    return busy || *begun < e->messages;
}
/* All messages of this machine; the first fault is in e->said. */
static inline int exchange_run(exchange *e) {
    uint32_t streams = e->wire.machines * EXCHANGE_TAGS * 2, requests = streams * EXCHANGE_FLIGHT;
    exchange_flight *flights = calloc(requests, sizeof *flights);
    uint32_t *begun = calloc(streams, sizeof *begun);
    if (!flights || !begun) abort();
    e->random = (test_random){.seed = test_mix2(e->seed, e->wire.machine)};
    if (e->wire.begin(e->wire.self, requests) != FRUGAL_OK) snprintf(e->said, sizeof e->said, "%s", frugal_message());
    for (int goes_on = 1; goes_on && !e->said[0];) {
        goes_on = 0;
        for (uint32_t i = 0; i < streams; i++) goes_on |= exchange_advance(e, flights, i, &begun[i]);
        sched_yield();
    }
    char text[8];
    if (e->wire.lost(e->wire.self, text, sizeof text)) snprintf(e->said, sizeof e->said, "a machine was lost");
    e->wire.end(e->wire.self);
    free(flights), free(begun);
    return !e->said[0];
}

#endif /* EXCHANGE_H */
