/* talk.c - the communication thread: the only one that calls the wire.
 *
 * The messages of a step are asked for as soon as they can be sent: keys of the next L + 2 steps; rows once their
 * number is known; records when the rows are given. So little is received into memory of the wire's own, and records
 * land in the staging block. The thread goes round: it tests the oldest request of each kind of each pair of device
 * and home, since messages of a kind come in the order of steps; raises counts for the threads that wait or serve; and
 * begins what they have made ready. When nothing has come it helps, as a thread that waits does, and then sleeps.
 *
 * Contents: >>requests >>away >>here >>meet >>leaving >>thread >>begin
 */
#include "machines.h"

#include <sched.h>

/* How long it goes round without rests, and its longest rest, in seconds. */
#ifndef TALK_RESTLESS
#define TALK_RESTLESS 20e-6
#endif
#define TALK_SHORTEST 20e-6
#define TALK_LONGEST  500e-6

/* >>requests */

enum { BUSY = 1, RECEIVES = 2, REFUSED = 4 };

/* The wire refuses: the machine cannot be reached. The request is never done, so that nothing is taken for its message.
 */
static void begin_request(machines *m, uint32_t request, frugal_wire_kind kind, const frugal_parcel *p, int receives) {
    frugal_wire *wire = &m->f->dealing->wire;
    frugal_status status = (receives ? wire->receive : wire->send)(wire->self, request, p);
    if (status != FRUGAL_OK) {
        char text[sizeof last_message];
        memcpy(text, last_message, sizeof text);
        m->busy[request] = REFUSED | RECEIVES; /* nobody waits for it to leave, either */
        lose_machine(m->f, p->peer, text);
        return;
    }
    m->busy[request] = (uint8_t)(receives ? BUSY | RECEIVES : BUSY), m->kinds[request] = (uint8_t)kind;
    if (receives) return;
    tally(&m->counts.sent[kind], 1);
    tally(&m->counts.sent_bytes[kind], p->head_bytes + p->body_bytes);
}

static void begin_send(machines *m, uint32_t request, frugal_wire_kind kind, const frugal_parcel *p) {
    begin_request(m, request, kind, p, 0);
}
static void begin_receive(machines *m, uint32_t request, frugal_wire_kind kind, const frugal_parcel *p) {
    begin_request(m, request, kind, p, 1);
}

/* Is it done, or was it never begun? */
static int is_done(machines *m, uint32_t request) {
    frugal_wire *wire = &m->f->dealing->wire;
    size_t bytes = 0;
    if (!m->busy[request]) return 1;
    if (m->busy[request] & REFUSED) return 0;
    if (!wire->done(wire->self, request, &bytes)) return 0;
    if (m->busy[request] & RECEIVES) {
        m->sizes[request] = bytes;
        tally(&m->counts.received[m->kinds[request]], 1);
        tally(&m->counts.received_bytes[m->kinds[request]], bytes);
    }
    m->busy[request] = 0;
    return 1;
}

/* Is what has come what was waited for? `body`: bytes. */
static int check_parcel(machines *m, uint32_t request, uint32_t machine, const char *what, const parcel_head *head,
                        uint64_t step, uint64_t head_bytes, uint64_t body) {
    char text[200];
    if (head->step == step && m->sizes[request] == head_bytes + body) return 1;
    snprintf(text, sizeof text, "it has sent %s of step %llu in %zu bytes; those of step %llu were wanted, %llu bytes",
             what, (unsigned long long)head->step, m->sizes[request], (unsigned long long)step,
             (unsigned long long)(head_bytes + body));
    lose_machine(m->f, machine, text);
    return 0;
}

static uint32_t tag_of(uint32_t d, uint32_t kind) {
    return d * MESSAGES + kind;
}

/* >>away - a device of another machine, which reads rows of this one */

/* Its requests, from away.request on. */
enum { AWAY_EARLY, AWAY_ROWS = AWAY_EARLY + 2, AWAY_RECORDS = AWAY_ROWS + 2, AWAY_KEYS }; /* then ring [L + 2] */

static int talk_keys(machines *m, away *a) {
    frugal *f = m->f;
    uint64_t ring = f->desc.lookahead + 2, here = frugal_load_relaxed(&a->keys_here); /* relaxed: its own */
    int any = 0;
    uint64_t announced = frugal_load_acquire(&a->announced); /* [F72] pairs with [F71] */
    while (a->keys_asked < announced + ring && frugal_load_relaxed(&a->end) == UINT64_MAX) {
        uint64_t at = a->keys_asked % ring;
        const frugal_parcel p = {a->machine,          tag_of(a->d, MESSAGE_KEYS),
                                 &a->keys_heads[at],  a->keys + at * f->desc.max_keys,
                                 sizeof(parcel_head), f->desc.max_keys * sizeof(uint64_t)};
        begin_receive(m, a->request + AWAY_KEYS + (uint32_t)at, FRUGAL_WIRE_KEYS, &p);
        a->keys_asked++;
    }
    uint32_t request = a->request + AWAY_KEYS + (uint32_t)(here % ring);
    const parcel_head *head = &a->keys_heads[here % ring];
    if (here == a->keys_asked || frugal_load_relaxed(&a->end) != UINT64_MAX || !is_done(m, request)) return any;
    int is_known = head->flags == 0 || head->flags == HEAD_READ_ONLY || (head->flags == HEAD_ENDS && head->n == 0);
    uint64_t body = is_known ? head->n * sizeof(uint64_t) : UINT64_MAX;
    if (!check_parcel(m, request, a->machine, "keys", head, here, sizeof *head, body)) return 0;
    if (head->flags & HEAD_ENDS)
        frugal_store_relaxed(&a->end, here); /* relaxed: the event tells; nothing else is read for it */
    else
        frugal_store_release(&a->keys_here, here + 1); /* [F70] pairs with [F69], as all below */
    event_notify(f->event);
    return 1;
}

/* Sends what is ready, early rows before the others of the same step. */
static int talk_rows(machines *m, away *a) {
    frugal *f = m->f;
    const dealing *g = f->dealing;
    uint64_t bytes = frugal_row_bytes(&f->store), t = a->early_sent;
    int any = 0;
    if (g->early && t < frugal_load_acquire(&a->early_ready)) { /* [F72] pairs with [F71], as the next */
        parcel_head *head = early_head(f, a->early_heads, t);
        const frugal_parcel p = {a->machine,
                                 tag_of(a->d, MESSAGE_EARLY),
                                 head,
                                 rows_given(a, t),
                                 sizeof *head + early_words(head->n) * sizeof(uint64_t),
                                 head->early * bytes};
        if (head->n > 0) begin_send(m, a->request + AWAY_EARLY + t % 2, FRUGAL_WIRE_EARLY, &p);
        a->early_sent++, any = 1;
    }
    t = a->rows_sent;
    if (t >= frugal_load_acquire(&a->rows_ready) || (g->early && t >= a->early_sent)) return any; /* [F72] */
    parcel_head *head = &a->rows_heads[t % 2];
    const frugal_parcel records = {
        a->machine,           tag_of(a->d, MESSAGE_RECORDS), &a->records_head,
        block_at(f, a->d, t), sizeof a->records_head,        (uint64_t)head->n * f->record_stride * sizeof(float)};
    begin_receive(m, a->request + AWAY_RECORDS, FRUGAL_WIRE_RECORDS, &records);
    a->records_asked++;
    const frugal_parcel p = {a->machine,   tag_of(a->d, MESSAGE_ROWS),     head, rows_given(a, t) + head->early * bytes,
                             sizeof *head, (head->n - head->early) * bytes};
    if (head->n > 0) begin_send(m, a->request + AWAY_ROWS + t % 2, FRUGAL_WIRE_ROWS, &p);
    a->rows_sent++;
    return 1;
}

static int talk_away(machines *m, away *a) {
    frugal *f = m->f;
    int any = talk_keys(m, a) | talk_rows(m, a);
    uint64_t t = frugal_load_relaxed(&a->rows_gone); /* relaxed: its own, as the next */
    if (t < a->rows_sent && is_done(m, a->request + AWAY_EARLY + t % 2) && is_done(m, a->request + AWAY_ROWS + t % 2)) {
        frugal_store_release(&a->rows_gone, t + 1); /* nobody waits for it: this thread serves, too */
        any = 1;
    }
    t = frugal_load_relaxed(&a->records_here);
    if (t < a->records_asked && is_done(m, a->request + AWAY_RECORDS)) {
        const parcel_head *head = &a->records_head;
        uint64_t floats = head->flags & HEAD_BRINGS ? (uint64_t)a->rows_heads[t % 2].n * f->record_stride : 0;
        if (!check_parcel(m, a->request + AWAY_RECORDS, a->machine, "records", head, t, sizeof *head,
                          floats * sizeof(float)))
            return 0;
        frugal_store_release(&a->records_here, t + 1); /* [F70] pairs with [F69] */
        event_notify(f->event);
        any = 1;
    }
    return any;
}

/* >>here - a device of this machine, and the homes of its guests */

/* Requests of a visit, from visit.request on. */
enum { VISIT_EARLY, VISIT_ROWS = VISIT_EARLY + 2, VISIT_KEYS = VISIT_ROWS + 2 }; /* ring [L + 1]; records: ring [S] */

static uint32_t records_request(const frugal *f, const visit *v, uint64_t step) {
    return v->request + VISIT_KEYS + f->desc.lookahead + 1 + (uint32_t)(step % f->desc.staging);
}

/* Are the requests of the step done, of all homes? */
static int all_keys_done(machines *m, visitor *h, uint64_t step) {
    const dealing *g = m->f->dealing;
    uint32_t at = VISIT_KEYS + (uint32_t)(step % (m->f->desc.lookahead + 1));
    for (uint32_t k = 1; k < g->machines; k++) {
        if (is_done(m, h->visits[k].request + at)) continue;
        frugal_store_relaxed(&h->behind, home_at(g, k)); /* relaxed: a hint */
        return 0;
    }
    return 1;
}

/* Sends each home the ids of the next batch that is sorted; or that the device's data has ended. */
static int send_keys(machines *m, visitor *h) {
    frugal *f = m->f;
    const dealing *g = f->dealing;
    uint64_t t = h->keys_sent, at = t % (f->desc.lookahead + 1);
    int ends = has_finished(f, h->d, t);
    if (ends ? h->ends : frugal_load_acquire(&f->devices[h->d].handed) <= t) return 0; /* [F59] pairs with [F60] */
    const host_batch *b = batch_at(f, h->d, t);
    if (!ends && frugal_load_acquire(&b->stage) != BATCH_SORTED) return 0; /* [F61] pairs with [F62] */
    if (!all_keys_done(m, h, t)) return 0;
    const uint32_t *first = guests_first(f, h->d, t);
    for (uint32_t k = 1; k < g->machines; k++) {
        visit *v = &h->visits[k];
        uint32_t n = ends ? 0 : first[k + 1] - first[k];
        uint64_t *ids = n ? guests_ids(f, h->d, t) + (first[k] - b->n_own) : NULL;
        v->keys_heads[at] = (parcel_head){.step = t, .n = n, .flags = ends ? HEAD_ENDS : 0};
        if (!ends && b->read_only) v->keys_heads[at].flags |= HEAD_READ_ONLY;
        const frugal_parcel p = {home_at(g, k), tag_of(h->d, MESSAGE_KEYS), &v->keys_heads[at],
                                 ids,           sizeof(parcel_head),        n * sizeof *ids};
        begin_send(m, v->request + VISIT_KEYS + (uint32_t)at, FRUGAL_WIRE_KEYS, &p);
    }
    h->ends = ends;
    if (!ends) h->keys_sent++;
    return 1;
}

static uint64_t here_of(const visit *v) {
    return frugal_load_relaxed(&v->here); /* relaxed, both: its own */
}
static void raise_here(visit *v) {
    frugal_store_relaxed(&v->here, here_of(v) + 1);
}

/* Asks for the rows of a step, of one home; the early ones first, if there can be any. */
static void ask_rows(machines *m, visitor *h, uint32_t k, int early) {
    frugal *f = m->f;
    visit *v = &h->visits[k];
    uint64_t t = early ? v->asked : v->came, bytes = frugal_row_bytes(&f->store);
    const uint32_t *first = guests_first(f, h->d, t);
    uint32_t n = first[k + 1] - first[k], came = 0;
    unsigned char *rows = guests_rows(f, h->d, t) + (first[k] - first[1]) * bytes;
    parcel_head *head = early_head(m->f, v->early_heads, t);
    if (!early && f->dealing->early) came = head->early;
    if (!early) head = &v->rows_heads[t % 2];
    uint64_t head_bytes = sizeof *head + (early ? early_words(n) * sizeof(uint64_t) : 0);
    const frugal_parcel p = {home_at(f->dealing, k),
                             tag_of(h->d, early ? MESSAGE_EARLY : MESSAGE_ROWS),
                             head,
                             rows + came * bytes,
                             head_bytes,
                             (n - came) * bytes};
    begin_receive(m, v->request + (early ? VISIT_EARLY : VISIT_ROWS) + t % 2,
                  early ? FRUGAL_WIRE_EARLY : FRUGAL_WIRE_ROWS, &p);
}

/* Early rows of the step are here: notes which they are, and asks for the others. */
static int take_early(machines *m, visitor *h, uint32_t k, uint32_t n) {
    frugal *f = m->f;
    visit *v = &h->visits[k];
    uint64_t t = v->came, words = early_words(n), set = 0;
    uint32_t request = v->request + VISIT_EARLY + t % 2;
    const parcel_head *head = early_head(m->f, v->early_heads, t);
    if (!is_done(m, request)) return 0;
    uint64_t *early = guests_early(f, h->d, t, k);
    memcpy(early, head + 1, words * sizeof *early);
    if (n % 64 && words) early[words - 1] &= (UINT64_C(1) << n % 64) - 1; /* whatever was sent */
    for (uint64_t i = 0; i < words; i++) set += (uint64_t)__builtin_popcountll(early[i]);
    uint64_t sent = set == head->early && head->n == n ? set : UINT64_MAX;
    if (!check_parcel(m, request, home_at(f->dealing, k), "early rows", head, t, sizeof *head + words * sizeof *early,
                      sent * frugal_row_bytes(&f->store)))
        return 0;
    tally(&m->counts.early, set);
    ask_rows(m, h, k, 0);
    v->came++;
    return 1;
}

static int take_rows(machines *m, visitor *h, uint32_t k, uint32_t n) {
    frugal *f = m->f;
    visit *v = &h->visits[k];
    uint64_t t = here_of(v);
    uint32_t request = v->request + VISIT_ROWS + t % 2;
    const parcel_head *head = &v->rows_heads[t % 2];
    if (!is_done(m, request)) return 0;
    const parcel_head *before = early_head(m->f, v->early_heads, t);
    uint32_t came = m->f->dealing->early ? before->early : 0;
    uint64_t rows = head->n == n && head->early == came ? n - came : UINT64_MAX;
    if (!check_parcel(m, request, home_at(f->dealing, k), "rows", head, t, sizeof *head,
                      rows * frugal_row_bytes(&f->store)))
        return 0;
    tally(&m->counts.guests, n);
    raise_here(v);
    return 1;
}

/* The rows of one home, step by step: asked for once the ids have left, and once the device has done the step before
 * the last, whose rows lie there. */
static int talk_visit(machines *m, visitor *h, uint32_t k) {
    frugal *f = m->f;
    visit *v = &h->visits[k];
    uint64_t done = frugal_p2f_committed(f->p2f, h->d);
    int any = 0, early = f->dealing->early;
    const uint32_t *first;
    while (v->asked < h->keys_sent && v->asked <= done + 1) {
        first = guests_first(f, h->d, v->asked);
        if (first[k + 1] == first[k]) { /* nothing comes; but steps keep their order */
            if (here_of(v) < v->asked) break;
            v->asked++, v->came++, raise_here(v);
        } else {
            ask_rows(m, h, k, early);
            v->asked++;
            if (!early) v->came++;
        }
        any = 1;
    }
    if (early && v->came < v->asked) {
        first = guests_first(f, h->d, v->came);
        any |= take_early(m, h, k, first[k + 1] - first[k]);
    }
    if (here_of(v) < v->came) {
        first = guests_first(f, h->d, here_of(v));
        any |= take_rows(m, h, k, first[k + 1] - first[k]);
    }
    return any;
}

/* Sends each home the records of the next step that the device has committed. */
static int send_records(machines *m, visitor *h) {
    frugal *f = m->f;
    const dealing *g = f->dealing;
    uint64_t t = h->records_sent;
    if (frugal_p2f_committed(f->p2f, h->d) <= t || has_finished(f, h->d, t)) return 0;
    if (frugal_load_relaxed(&f->devices[h->d].guests->records_gone) + f->desc.staging <= t) return 0; /* its own */
    const uint32_t *first = guests_first(f, h->d, t);
    const step_settings *settings = &f->devices[h->d].guests->settings[t % f->desc.staging];
    for (uint32_t k = 1; k < g->machines; k++) {
        visit *v = &h->visits[k];
        uint32_t n = settings->fixed ? first[k + 1] - first[k] : 0;
        parcel_head *head = &v->records_heads[t % f->desc.staging];
        *head = (parcel_head){.step = t, .n = n, .lr = settings->lr, .scale = settings->scale};
        if (settings->fixed) head->flags = HEAD_BRINGS;
        const frugal_parcel p = {home_at(g, k), tag_of(h->d, MESSAGE_RECORDS),
                                 head,          block_at(f, h->d, t) + (uint64_t)first[k] * f->record_stride,
                                 sizeof *head,  (uint64_t)n * f->record_stride * sizeof(float)};
        begin_send(m, records_request(f, v, t), FRUGAL_WIRE_RECORDS, &p);
    }
    h->records_sent++;
    return 1;
}

/* Raises the counts that the device's trainer waits for. */
static int raise_counts(machines *m, visitor *h) {
    frugal *f = m->f;
    const dealing *g = f->dealing;
    device_guests *guests = f->devices[h->d].guests;
    uint64_t here = UINT64_MAX, arrived = frugal_load_relaxed(&guests->arrived); /* relaxed, all: its own */
    uint64_t keys = frugal_load_relaxed(&guests->keys_gone), records = frugal_load_relaxed(&guests->records_gone);
    /* A trainer that waits is woken. A hint: it may have done this step meanwhile, and wait for the next. */
    uint64_t step = frugal_load_relaxed(&f->devices[h->d].looked_up);
    int any = 0, gone = records < h->records_sent,
        before = guests_ready(f, h->d, step) + guests_ready(f, h->d, step + 1);
    for (uint32_t k = 1; k < g->machines; k++) {
        here = LEAST(here, here_of(&h->visits[k]));
        if (!gone || is_done(m, records_request(f, &h->visits[k], records))) continue;
        gone = 0;
        frugal_store_relaxed(&h->behind, home_at(g, k)); /* relaxed: a hint */
    }
    if (here > arrived) frugal_store_release(&guests->arrived, here), any = 1; /* [F70] pairs with [F69], all */
    if (keys < h->keys_sent && all_keys_done(m, h, keys)) frugal_store_release(&guests->keys_gone, keys + 1), any = 1;
    if (gone) frugal_store_release(&guests->records_gone, records + 1), any = 1;
    if (any && guests_ready(f, h->d, step) + guests_ready(f, h->d, step + 1) > before) event_notify(f->event);
    return any;
}

static int talk_here(machines *m, visitor *h) {
    int any = send_records(m, h) | send_keys(m, h);
    for (uint32_t k = 1; k < m->f->dealing->machines; k++) any |= talk_visit(m, h, k);
    return raise_counts(m, h) | any;
}

/* What keeps guests_ready from being true. Hints, which another thread is changing: it is only text. */
FRUGAL_INTERNAL void explain_guests(const frugal *f, uint32_t d, uint64_t step, char *text, size_t size) {
    const dealing *g = f->dealing;
    const device_guests *guests = f->devices[d].guests;
    const visitor *h = &f->machines->visitors[d - g->me * g->here];
    unsigned long long t = step;
    if (frugal_load_relaxed(&guests->keys_gone) <= step)
        snprintf(text, size, "machine %u has not taken the keys of step %llu of device %u",
                 frugal_load_relaxed(&h->behind), t, d);
    else if (frugal_load_relaxed(&guests->records_gone) + f->desc.staging <= step)
        snprintf(text, size, "machine %u has not taken the records of step %llu of device %u",
                 frugal_load_relaxed(&h->behind), (unsigned long long)frugal_load_relaxed(&guests->records_gone), d);
    else {
        uint32_t k = 1;
        while (k + 1 < g->machines && frugal_load_relaxed(&h->visits[k].here) > step) k++;
        snprintf(text, size,
                 "machine %u has not sent rows of step %llu to device %u: its gate is closed, or the "
                 "message is lost",
                 home_at(g, k), t, d);
    }
}

/* >>meet - a collective call, which the calling thread waits for (meet.c) */

/* Requests of machine i, from meet_request + MEET_REQUESTS i on. */
enum { MEET_FIRST, MEET_SECOND, MEET_RECEIVE, MEET_REQUESTS };

static uint32_t request_of(const machines *m, uint32_t i, uint32_t which) {
    return m->meet_request + MEET_REQUESTS * i + which;
}

/* Where what is given to machine i lies, or what it gives. */
static unsigned char *meet_memory(const machines *m, uint32_t i, int receives) {
    const meeting *now = &m->meeting;
    unsigned char *at = now->memory;
    for (uint32_t k = 0; k < (receives ? m->f->dealing->machines : i); k++) at += now->out[k];
    for (uint32_t k = 0; receives && k < i; k++) at += now->in[k];
    return at;
}

static void begin_meeting(machines *m) {
    const dealing *g = m->f->dealing;
    meeting *now = &m->meeting;
    for (uint32_t k = 1; k < g->machines; k++) {
        uint32_t i = home_at(g, k);
        parcel_head *head = &m->meet_heads[2 * i];
        int is_small = now->out[i] <= MEET_SMALL;
        *head = (parcel_head){
            .step = now->number, .call = (uint32_t)now->call, .version = FRUGAL_VERSION, .bytes = now->out[i]};
        frugal_parcel p = {i, TAG_MEET, head, meet_memory(m, i, 0), sizeof *head, is_small ? now->out[i] : 0};
        begin_send(m, request_of(m, i, MEET_FIRST), FRUGAL_WIRE_CALLS, &p);
        p.head_bytes = 0, p.body_bytes = now->out[i];
        if (!is_small) begin_send(m, request_of(m, i, MEET_SECOND), FRUGAL_WIRE_CALLS, &p);
        p = (frugal_parcel){i, TAG_MEET, head + 1, m->meet_room + i * MEET_SMALL, sizeof *head, MEET_SMALL};
        begin_receive(m, request_of(m, i, MEET_RECEIVE), FRUGAL_WIRE_CALLS, &p);
        now->part[i] = 0;
    }
    now->begun = 1;
}

/* Is what the machine gives what this one wants? */
static int check_meeting(machines *m, uint32_t i) {
    meeting *now = &m->meeting;
    const parcel_head *head = &m->meet_heads[2 * i + 1];
    size_t bytes = m->sizes[request_of(m, i, MEET_RECEIVE)];
    now->refusal = FRUGAL_ERR_SETTINGS;
    if (bytes < sizeof *head || head->version != FRUGAL_VERSION) {
        snprintf(now->wrong, sizeof now->wrong,
                 "machine %u has version %u of Frugal, and this one, %u, has %u: take the same on all", i,
                 bytes < sizeof *head ? 0 : head->version, m->f->dealing->me, FRUGAL_VERSION);
        return 0;
    }
    if (head->step == now->number && head->call == (uint32_t)now->call && head->bytes == now->in[i] &&
        bytes == sizeof *head + (now->in[i] <= MEET_SMALL ? now->in[i] : 0))
        return 1;
    now->refusal = FRUGAL_ERR_ARGUMENT;
    snprintf(now->wrong, sizeof now->wrong,
             "machine %u calls %s with %llu bytes where this one calls %s and wants %zu: all machines make the same "
             "calls in the same order",
             i, call_name(head->call), (unsigned long long)head->bytes, call_name((uint32_t)now->call), now->in[i]);
    return 0;
}

/* What a machine gives has come, or its first part. 0: it is another thing. */
static int take_meeting(machines *m, uint32_t i) {
    meeting *now = &m->meeting;
    int is_small = now->in[i] <= MEET_SMALL;
    if (now->part[i] == 0 && !check_meeting(m, i)) return 0;
    now->part[i] = is_small ? 2 : now->part[i] + 1;
    if (is_small && now->in[i]) memcpy(meet_memory(m, i, 1), m->meet_room + i * MEET_SMALL, now->in[i]);
    if (now->part[i] == 2) return 1;
    const frugal_parcel p = {i, TAG_MEET, NULL, meet_memory(m, i, 1), 0, now->in[i]};
    begin_receive(m, request_of(m, i, MEET_RECEIVE), FRUGAL_WIRE_CALLS, &p);
    return 1;
}

/* Where machines make different calls, it does not wait for what is still to leave or to come. */
static int talk_meeting(machines *m) {
    const dealing *g = m->f->dealing;
    meeting *now = &m->meeting;
    uint32_t missing = g->machines, wrong = 0;
    if (!frugal_load_acquire(&now->posted)) return 0; /* [F72] pairs with [F71] */
    if (!now->begun) begin_meeting(m);
    for (uint32_t i = g->machines; i-- > 0;) {
        if (i == g->me) continue;
        if (now->part[i] < 2 && is_done(m, request_of(m, i, MEET_RECEIVE))) wrong |= !take_meeting(m, i);
        if (now->part[i] < 2 || !is_done(m, request_of(m, i, MEET_FIRST)) || !is_done(m, request_of(m, i, MEET_SECOND)))
            missing = i;
    }
    frugal_store_relaxed(&now->missing, missing); /* relaxed: a hint */
    if (missing < g->machines && !wrong) return 0;
    now->begun = 0, now->number++;
    frugal_store_relaxed(&now->posted, 0);           /* relaxed: published by `done` */
    frugal_store_release(&now->done, wrong ? 2 : 1); /* [F70] pairs with [F69] */
    event_notify(m->f->event);
    return 1;
}

/* >>leaving - a machine that closes its instance says so */

static void begin_leaving(machines *m) {
    const dealing *g = m->f->dealing;
    for (uint32_t k = 1; k < g->machines; k++) {
        uint32_t i = home_at(g, k);
        const frugal_parcel in = {i, TAG_LEAVE, &m->leave_heads[2 * i + 1], NULL, sizeof(parcel_head), 0};
        begin_receive(m, m->leave_request + 2 * i + 1, FRUGAL_WIRE_CALLS, &in);
    }
}

/* Steps that all devices of this machine have updated: what the others may still be receiving. */
static uint64_t steps_updated(const frugal *f) {
    const dealing *g = f->dealing;
    uint64_t least = UINT64_MAX;
    for (uint32_t d = g->me * g->here; d < (g->me + 1) * g->here; d++) {
        uint64_t updated = frugal_load_relaxed(&f->devices[d].updated); /* relaxed, both: no call is under way */
        if (!has_finished(f, d, updated)) least = LEAST(least, updated);
    }
    return least;
}

static void send_leaving(machines *m) {
    const dealing *g = m->f->dealing;
    for (uint32_t k = 1; k < g->machines; k++) {
        uint32_t i = home_at(g, k);
        m->leave_heads[2 * i] = (parcel_head){.step = steps_updated(m->f), .n = (uint32_t)m->meeting.number};
        const frugal_parcel out = {i, TAG_LEAVE, &m->leave_heads[2 * i], NULL, sizeof(parcel_head), 0};
        begin_send(m, m->leave_request + 2 * i, FRUGAL_WIRE_CALLS, &out);
    }
}

/* Is something wanted of a machine that has closed its instance, other than what may be on its way: a call that it has
 * not made, or a step in which it has no more part? Relaxed, all: what is not seen now is in the next round. */
static int wants(machines *m, const parcel_head *left) {
    frugal *f = m->f;
    uint64_t closed = frugal_p2f_closed(f->p2f);
    /* Its last call is under way here, because it had to wait for this machine; batches may be announced beyond it. */
    if ((uint32_t)m->meeting.number < left->n) return 0;
    if (frugal_load_relaxed(&m->meeting.posted)) return 1;
    for (uint32_t d = f->dealing->me * f->dealing->here; d < (f->dealing->me + 1) * f->dealing->here; d++) {
        uint64_t handed = frugal_load_relaxed(&f->devices[d].handed);
        if (handed <= closed || has_finished(f, d, closed)) continue;
        if (left->step < handed || frugal_load_relaxed(&f->devices[d].updated) < handed) return 1;
    }
    return 0;
}

/* Notices machines that are lost, and those that have closed their instance while they are wanted. */
static void look_for_losses(machines *m) {
    frugal *f = m->f;
    const dealing *g = f->dealing;
    char text[200] = "it is lost";
    if (frugal_load_relaxed(&f->loss.device)) return; /* relaxed: only asked for once more */
    uint32_t lost = g->wire.lost(g->wire.self, text, sizeof text);
    if (lost) lose_machine(f, lost - 1, text);
    for (uint32_t i = 0; i < g->machines && !lost; i++) {
        const parcel_head *left = &m->leave_heads[2 * i + 1];
        if (i == g->me || !is_done(m, m->leave_request + 2 * i + 1) || !wants(m, left)) continue;
        lose_machine(f, i, "it has closed its instance");
        return;
    }
}

/* >>thread */

static int talk_round(machines *m) {
    frugal *f = m->f;
    int any = talk_meeting(m);
    if (frugal_load_relaxed(&f->loss.device)) return any; /* relaxed: nothing more is begun, sooner or later */
    for (uint32_t i = 0; i < f->dealing->here; i++) any |= talk_here(m, &m->visitors[i]);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (m->aways[d].f) any |= talk_away(m, &m->aways[d]);
    look_for_losses(m);
    return any;
}

/* Nothing has come since `idle`. Without rest it goes round only while a trainer here waits: what other machines wait
 * for begins with a call here, which wakes it. Other processes may need this processor, also while it does not yet
 * sleep. */
static void talk_rest(machines *m, uint32_t seen, double idle) {
    double now = clock_now(), waited = now - idle;
    if (waited < TALK_RESTLESS && frugal_load_relaxed(&m->f->dealing->waiting)) { /* relaxed: a hint */
        sched_yield();
        return;
    }
    event_sleep(&m->f->dealing->event, seen, LEAST(waited < TALK_SHORTEST ? TALK_SHORTEST : waited, TALK_LONGEST));
    tally(&m->counts.asleep_ns, (uint64_t)((clock_now() - now) * 1e9));
}

/* Of a machine that has closed its instance it is not waited for that it hears of the same here. */
static int is_sent(machines *m) {
    for (uint32_t i = 0; i < m->requests; i++)
        if (!(m->busy[i] & RECEIVES) && !is_done(m, i) && (i < m->leave_request || !is_done(m, i + 1))) return 0;
    return 1;
}

/* What was sent must leave before the wire ends. After a loss, or if the table is not drained, some may never. The
 * others are told then, too: they may know of no loss, as when one has refused what another has sent. */
static void talk_last(machines *m) {
    double until = clock_now() + 1;
    send_leaving(m);
    while (!is_sent(m) && clock_now() < until) {
        uint32_t seen = event_prepare(&m->f->dealing->event);
        event_sleep(&m->f->dealing->event, seen, TALK_SHORTEST);
    }
}

static void *talk_main(void *argument) {
    machines *m = argument;
    frugal *f = m->f;
    frugal_wire *wire = &f->dealing->wire;
    double idle = 0;
    m->status = wire->begin(wire->self, m->requests);
    copy_text(m->failed, sizeof m->failed, m->status == FRUGAL_OK ? "" : last_message);
    frugal_store_release(&m->ready, m->status == FRUGAL_OK ? 1 : 2); /* [F70] pairs with [F69] */
    event_notify(f->event);
    if (m->status != FRUGAL_OK) return NULL;
    begin_leaving(m);
    while (!frugal_load_relaxed(&m->ends)) {
        uint32_t seen = event_prepare(&f->dealing->event);
        int any = talk_round(m);
        if (!any && frugal_load_relaxed(&f->loss.device) == 0) any = frugal_help(f); /* relaxed: a hint */
        if (any) {
            idle = 0;
            continue;
        }
        if (idle == 0) idle = clock_now();
        if (!frugal_load_relaxed(&m->ends)) talk_rest(m, seen, idle);
    }
    talk_last(m);
    wire->end(wire->self);
    return NULL;
}

/* >>begin */

/* Lays the rings of a device that is away out, from *at on; with `memory` NULL it only adds their bytes. */
static void lay_away(const frugal *f, away *a, unsigned char *memory, uint64_t *at) {
    uint64_t ring = f->desc.lookahead + 2, keys = f->desc.max_keys;
    uint64_t ids = take_bytes(at, ring * keys * sizeof(uint64_t)), heads = take_bytes(at, ring * sizeof(parcel_head));
    uint64_t rows = take_bytes(at, 2 * keys * frugal_row_bytes(&f->store)),
             bits = take_bytes(at, 2 * early_head_bytes(f));
    if (!memory) return;
    a->keys = (uint64_t *)(void *)(memory + ids), a->keys_heads = (parcel_head *)(void *)(memory + heads);
    a->rows = memory + rows, a->early_heads = memory + bits;
}

/* Of all of them; other memory of several machines is small, or a device's own (guests_bytes). */
FRUGAL_INTERNAL uint64_t away_bytes(const frugal *f) {
    uint64_t one = 0;
    if (!f->dealing) return 0;
    lay_away(f, NULL, NULL, &one);
    return (f->desc.devices - f->dealing->here) * one;
}

/* Lays the rings out in one block of memory; with m->memory NULL it only computes the size. */
static size_t lay_rings(frugal *f, machines *m) {
    const dealing *g = f->dealing;
    uint64_t at = 0, ring = f->desc.lookahead + 2, early = 2 * early_head_bytes(f);
    unsigned char *memory = m->memory;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_elsewhere(f, d)) lay_away(f, &m->aways[d], memory, &at);
    for (uint32_t i = 0; i < g->here; i++)
        for (uint32_t k = 1; k < g->machines; k++) {
            uint64_t heads = take_bytes(&at, ring * sizeof(parcel_head));
            uint64_t records = take_bytes(&at, f->desc.staging * sizeof(parcel_head)), bits = take_bytes(&at, early);
            if (!memory) continue;
            visit *v = &m->visits[i * g->machines + k];
            v->keys_heads = (parcel_head *)(void *)(memory + heads);
            v->records_heads = (parcel_head *)(void *)(memory + records);
            v->early_heads = memory + bits;
        }
    uint64_t meets = take_bytes(&at, 2 * g->machines * sizeof(parcel_head));
    uint64_t leaves = take_bytes(&at, 2 * g->machines * sizeof(parcel_head));
    uint64_t room = take_bytes(&at, g->machines * MEET_SMALL);
    uint64_t sizes = take_bytes(&at, m->requests * sizeof *m->sizes), busy = take_bytes(&at, m->requests);
    uint64_t kinds_at = take_bytes(&at, m->requests);
    if (!memory) return (size_t)at;
    m->meet_heads = (parcel_head *)(void *)(memory + meets), m->leave_heads = (parcel_head *)(void *)(memory + leaves);
    m->meet_room = memory + room;
    m->sizes = (size_t *)(void *)(memory + sizes), m->busy = memory + busy, m->kinds = memory + kinds_at;
    return (size_t)at;
}

/* Gives each pair its requests. */
static void number_requests(frugal *f, machines *m) {
    const dealing *g = f->dealing;
    uint64_t first = f->desc.first_step;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        away *a = &m->aways[d];
        if (!is_elsewhere(f, d)) continue;
        a->f = f, a->d = d, a->machine = machine_of(f, d), a->request = m->requests;
        m->requests += AWAY_KEYS + f->desc.lookahead + 2;
        pthread_mutex_init(&a->serving, NULL);
        a->keys_asked = a->early_sent = a->rows_sent = a->records_asked = first;
        frugal_store_relaxed(&a->keys_here, first); /* relaxed, all: no other thread yet */
        frugal_store_relaxed(&a->records_here, first), frugal_store_relaxed(&a->rows_gone, first);
        frugal_store_relaxed(&a->announced, first), frugal_store_relaxed(&a->early_ready, first);
        frugal_store_relaxed(&a->rows_ready, first), frugal_store_relaxed(&a->committed, first);
        frugal_store_relaxed(&a->end, UINT64_MAX);
    }
    for (uint32_t i = 0; i < g->here; i++) {
        visitor *h = &m->visitors[i];
        h->d = g->me * g->here + i, h->visits = &m->visits[i * g->machines];
        h->keys_sent = h->records_sent = first;
        for (uint32_t k = 1; k < g->machines; k++) {
            visit *v = &h->visits[k];
            v->request = m->requests, v->asked = v->came = first;
            frugal_store_relaxed(&v->here, first);
            m->requests += VISIT_KEYS + f->desc.lookahead + 1 + f->desc.staging;
        }
    }
    m->meet_request = m->requests, m->leave_request = m->requests + MEET_REQUESTS * g->machines;
    m->requests += (MEET_REQUESTS + 2) * g->machines;
}

static frugal_status allocate_machines(frugal *f) {
    const dealing *g = f->dealing;
    machines *m = f->machines = frugal_allocate(f, sizeof *m, CACHE_LINE);
    if (!m) return fail_memory("what machines say to each other", sizeof *m);
    m->f = f;
    m->aways = frugal_allocate(f, f->desc.devices * sizeof *m->aways, CACHE_LINE);
    m->visitors = frugal_allocate(f, g->here * sizeof *m->visitors, CACHE_LINE);
    m->visits = frugal_allocate(f, (size_t)g->here * g->machines * sizeof *m->visits, CACHE_LINE);
    if (!m->aways || !m->visitors || !m->visits)
        return fail_memory("what machines say to each other", f->desc.devices * sizeof *m->aways);
    number_requests(f, m);
    m->memory_bytes = lay_rings(f, m);
    if (!(m->memory = frugal_allocate(f, m->memory_bytes, CACHE_LINE)))
        return fail_memory("what machines say to each other", m->memory_bytes);
    lay_rings(f, m);
    return open_meeting(f);
}

static const machine_ops talking = {
    .serve = serve_away, .explain = explain_guests, .gather = gather_updates, .drained = meet_drained};

/* Before workers may serve. */
FRUGAL_INTERNAL frugal_status open_machines(frugal *f) {
    frugal_status status = FRUGAL_OK;
    if (!f->dealing) return FRUGAL_OK;
    for (uint32_t i = 0; i < f->dealing->here && status == FRUGAL_OK; i++)
        status = open_guests(f, f->dealing->me * f->dealing->here + i);
    if (status == FRUGAL_OK) status = allocate_machines(f);
    if (status == FRUGAL_OK) f->talks = &talking;
    return status;
}

/* The last part of frugal_open: the instance can be called, by this thread. */
FRUGAL_INTERNAL frugal_status meet_machines(frugal *f) {
    machines *m = f->machines;
    frugal_status status = m ? attach_away(f) : FRUGAL_OK;
    if (status != FRUGAL_OK || !m) return status;
    int error = start_quiet_thread(&m->thread, talk_main, m);
    if (error) return frugal_fail(FRUGAL_ERR_WORKER, "machines: a thread cannot be started: %s", strerror(error));
    m->begun = 1;
    for (;;) {
        uint32_t seen = event_prepare(f->event);
        if (frugal_load_acquire(&m->ready)) break; /* [F69] pairs with [F70] */
        event_sleep(f->event, seen, FOREVER);
    }
    if (m->status != FRUGAL_OK) return frugal_fail(m->status, "machines: the wire does not begin: %s", m->failed);
    return compare_settings(f);
}

/* The thread ends. Devices that are away are closed with the others. */
FRUGAL_INTERNAL void leave_machines(frugal *f) {
    machines *m = f->machines;
    if (!m || !m->begun) return;
    frugal_store_relaxed(&m->ends, 1); /* relaxed: the event tells */
    event_notify(&f->dealing->event);
    pthread_join(m->thread, NULL);
    m->begun = 0;
}

FRUGAL_INTERNAL void close_machines(frugal *f) {
    machines *m = f->machines;
    if (!m) return;
    frugal_free(f, m->memory, m->memory_bytes);
    frugal_free(f, m->aways, f->desc.devices * sizeof *m->aways);
    frugal_free(f, m->visitors, f->dealing->here * sizeof *m->visitors);
    frugal_free(f, m->visits, (size_t)f->dealing->here * f->dealing->machines * sizeof *m->visits);
    close_meeting(f);
    frugal_free(f, m, sizeof *m);
}
