/* The wire of frugal_machines.h over sockets that Python has connected (machines.py), one to each other machine. It is
 * C, so that the communication thread never waits for Python's lock, and an instance may outlive the interpreter.
 *
 * Why not torch.distributed's isend and irecv: with gloo their is_completed() is false until wait() is called (PyTorch
 * issue 30723), a wait() that times out breaks all connections, and a receive that is given up takes the next message.
 *
 * On a socket a message is a frame, then its head and body. A goodbye is a frame alone: behind it the other machine
 * sends no more, and is not lost. Sockets are closed in frugal_sockets_close only, because Python knows their numbers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "frugal_machines.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef FRUGAL_API
#define FRUGAL_API
#endif
#ifndef MSG_NOSIGNAL /* macOS: machines.py sets SO_NOSIGPIPE */
#define MSG_NOSIGNAL 0
#endif

#define GOODBYE      UINT32_MAX
#define MOST_AT_ONCE 64 /* messages of a machine, before others have their turn */

typedef struct frame {
    uint32_t tag, unused;
    uint64_t bytes; /* of head and body */
} frame;

typedef struct request {
    frugal_parcel parcel;
    size_t bytes;   /* of the message; before it has come, what there is room for */
    uint32_t next;  /* of its list: a request, plus 1 */
    uint32_t asked; /* in this round of `wire` */
    bool is_done;
} request;

typedef struct list { /* requests, plus 1; 0: none */
    uint32_t first, last;
} list;

typedef struct held { /* a message for which no receive has begun */
    struct held *next;
    frame frame;
    char data[];
} held;

typedef struct peer {
    int fd;
    int broken;       /* errno of a send: nothing more is sent; what is unread may still say goodbye */
    bool is_gone;     /* it has said goodbye */
    bool is_over;     /* nothing can be sent or received any more */
    list sends;       /* of the first, `sent` bytes of its frame and message are sent */
    list receives;    /* that have begun, and have no message */
    size_t sent, got; /* `got`: bytes of the frame `in` and of its message */
    frame out, in;
    uint32_t into; /* the request, plus 1, whose message is coming; 0: `coming` is, if a frame is whole */
    held *coming, *held, **last_held;
} peer;

typedef struct wire {
    uint32_t machine, machines, n_requests, round;
    uint32_t lost;       /* a machine, plus 1 */
    uint32_t lost_asked; /* in this round */
    bool is_ended;
    char why[200];
    request *requests;
    struct pollfd *polled;
    peer peers[];
} wire;

static void append(wire *w, list *l, uint32_t number) {
    w->requests[number].next = 0;
    *(l->last ? &w->requests[l->last - 1].next : &l->first) = number + 1;
    l->last = number + 1;
}

/* The first request of `tag`, plus 1, which is taken out of the list; 0: none. */
static uint32_t take(wire *w, list *l, uint32_t tag) {
    for (uint32_t before = 0, at = l->first; at; before = at, at = w->requests[at - 1].next) {
        if (w->requests[at - 1].parcel.tag != tag) continue;
        *(before ? &w->requests[before - 1].next : &l->first) = w->requests[at - 1].next;
        if (l->last == at) l->last = before;
        return at;
    }
    return 0;
}

/* The end of a connection. The first one is what `lost` says, unless `format` is NULL. */
static void end_peer(wire *w, peer *p, const char *format, ...) {
    if (p->is_over) return;
    p->is_over = true;
    shutdown(p->fd, SHUT_RDWR);
    if (!format || w->lost) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->why, sizeof w->why, format, arguments);
    va_end(arguments);
    w->lost = (uint32_t)(p - w->peers) + 1;
}

static void end_by_errno(wire *w, peer *p, int error) {
    end_peer(w, p, "its connection ended: %s", strerror(error));
}

/* The other machine has ended, and reads no more: what is sent to it is done, and not missed. */
static void end_by_goodbye(wire *w, peer *p) {
    end_peer(w, p, NULL);
    p->is_gone = true;
    for (uint32_t at = p->sends.first; at; at = w->requests[at - 1].next) w->requests[at - 1].is_done = true;
    p->sends = (list){0, 0};
}

/* What is left of a frame and its parcel behind `done` bytes. Returns how many pieces that are. */
static int pieces_of(const frame *f, const frugal_parcel *parcel, size_t done, struct iovec out[3]) {
    size_t left = f->bytes, head = parcel->head_bytes < left ? parcel->head_bytes : left;
    const struct iovec all[3] = {{(void *)f, sizeof *f}, {parcel->head, head}, {parcel->body, left - head}};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        size_t skipped = done < all[i].iov_len ? done : all[i].iov_len;
        done -= skipped;
        if (skipped < all[i].iov_len)
            out[n++] = (struct iovec){(char *)all[i].iov_base + skipped, all[i].iov_len - skipped};
    }
    return n;
}

/* >>sending */

static void start_send(wire *w, peer *p) {
    const request *r = &w->requests[p->sends.first - 1];
    p->out = (frame){.tag = r->parcel.tag, .bytes = r->bytes};
    p->sent = 0;
}

static void send_some(wire *w, peer *p) {
    while (p->sends.first && !p->is_over && !p->broken) {
        request *r = &w->requests[p->sends.first - 1];
        struct iovec pieces[3];
        struct msghdr message = {.msg_iov = pieces};
        message.msg_iovlen = pieces_of(&p->out, &r->parcel, p->sent, pieces);
        ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            p->broken = errno;
            return;
        }
        p->sent += (size_t)n;
        if (p->sent < sizeof p->out + r->bytes) continue;
        r->is_done = true;
        take(w, &p->sends, r->parcel.tag); /* the first */
        if (p->sends.first) start_send(w, p);
    }
}

/* >>receiving */

static void put(request *r, const held *from) {
    size_t bytes = from->frame.bytes, head = r->parcel.head_bytes < bytes ? r->parcel.head_bytes : bytes;
    if (head) memcpy(r->parcel.head, from->data, head);
    if (bytes > head) memcpy(r->parcel.body, from->data + head, bytes - head);
    r->bytes = bytes;
    r->is_done = true;
}

static bool fits(wire *w, peer *p, const request *r, const frame *f) {
    if (f->bytes <= r->bytes) return true;
    end_peer(w, p, "a message of it, with tag %u, has %llu bytes, and there is room for %zu", (unsigned)f->tag,
             (unsigned long long)f->bytes, r->bytes);
    return false;
}

/* A frame is whole: where its message goes. */
static bool begin_message(wire *w, peer *p) {
    p->into = take(w, &p->receives, p->in.tag);
    if (p->into) return fits(w, p, &w->requests[p->into - 1], &p->in);
    p->coming = p->in.bytes < SIZE_MAX / 2 ? malloc(sizeof *p->coming + p->in.bytes) : NULL;
    if (p->coming) {
        p->coming->next = NULL;
        p->coming->frame = p->in;
        return true;
    }
    end_peer(w, p, "there is no memory for a message of it of %llu bytes", (unsigned long long)p->in.bytes);
    return false;
}

static void end_message(wire *w, peer *p) {
    held *of = p->coming;
    p->coming = NULL;
    p->got = 0;
    if (p->into) {
        w->requests[p->into - 1].bytes = p->in.bytes;
        w->requests[p->into - 1].is_done = true;
        p->into = 0;
        return;
    }
    uint32_t late = take(w, &p->receives, of->frame.tag); /* it began while the message came */
    if (!late) {
        *p->last_held = of;
        p->last_held = &of->next;
        return;
    }
    if (fits(w, p, &w->requests[late - 1], &of->frame)) put(&w->requests[late - 1], of);
    free(of);
}

/* Reads once: of a frame, or of a message. Returns whether there may be more. */
static bool receive_once(wire *w, peer *p) {
    struct iovec pieces[3] = {{(char *)&p->in + p->got, sizeof p->in - p->got}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 1};
    if (p->got >= sizeof p->in) {
        frugal_parcel parcel = {.body = p->coming ? p->coming->data : NULL};
        message.msg_iovlen = pieces_of(&p->in, p->into ? &w->requests[p->into - 1].parcel : &parcel, p->got, pieces);
    }
    ssize_t n = recvmsg(p->fd, &message, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n < 0 || (n == 0 && p->broken)) return end_by_errno(w, p, n < 0 ? errno : p->broken), false;
    if (n == 0) return end_peer(w, p, "its process has ended, or closed the connection"), false;
    size_t before = p->got;
    p->got += (size_t)n;
    if (p->got < sizeof p->in) return true;
    if (before < sizeof p->in) {
        if (p->in.tag == GOODBYE) return end_by_goodbye(w, p), false;
        if (!begin_message(w, p)) return false;
    }
    if (p->got == sizeof p->in + p->in.bytes) end_message(w, p);
    return true;
}

static void move(wire *w) {
    for (uint32_t m = 0; m < w->machines; m++) {
        const peer *p = &w->peers[m];
        w->polled[m] = (struct pollfd){.fd = p->is_over ? -1 : p->fd, .events = POLLIN};
        if (p->sends.first && !p->broken) w->polled[m].events |= POLLOUT;
    }
    if (poll(w->polled, w->machines, 0) <= 0) return;
    for (uint32_t m = 0; m < w->machines; m++) {
        peer *p = &w->peers[m];
        if (w->polled[m].revents & POLLOUT) send_some(w, p);
        if (!(w->polled[m].revents & ~POLLOUT)) continue;
        for (int i = 0; i < 2 * MOST_AT_ONCE && !p->is_over && receive_once(w, p); i++) continue;
    }
}

/* >>calls of frugal_wire */

static frugal_status wire_begin(void *self, uint32_t requests) {
    wire *w = self;
    free(w->requests);
    w->requests = calloc(requests ? requests : 1, sizeof *w->requests);
    w->n_requests = requests;
    return w->requests ? FRUGAL_OK : FRUGAL_ERR_MEMORY;
}

static request *begin_request(wire *w, uint32_t number, const frugal_parcel *parcel) {
    request *r = &w->requests[number];
    *r = (request){.parcel = *parcel, .bytes = parcel->head_bytes + parcel->body_bytes, .asked = w->round - 1};
    return r;
}

static frugal_status wire_send(void *self, uint32_t number, const frugal_parcel *parcel) {
    wire *w = self;
    peer *p = &w->peers[parcel->peer];
    request *r = begin_request(w, number, parcel);
    r->is_done = p->is_gone;
    if (p->is_over) return FRUGAL_OK;
    append(w, &p->sends, number);
    if (p->sends.first != number + 1) return FRUGAL_OK;
    start_send(w, p);
    send_some(w, p);
    return FRUGAL_OK;
}

static frugal_status wire_receive(void *self, uint32_t number, const frugal_parcel *parcel) {
    wire *w = self;
    peer *p = &w->peers[parcel->peer];
    request *r = begin_request(w, number, parcel);
    held **at = &p->held;
    while (*at && (*at)->frame.tag != parcel->tag) at = &(*at)->next;
    held *found = *at;
    if (!found) {
        append(w, &p->receives, number);
        return FRUGAL_OK;
    }
    *at = found->next;
    if (!*at) p->last_held = at;
    if (fits(w, p, r, &found->frame)) put(r, found);
    free(found);
    return FRUGAL_OK;
}

/* Asks the system once for many calls: when a request is asked for again. */
static int wire_done(void *self, uint32_t number, size_t *bytes) {
    wire *w = self;
    request *r = &w->requests[number];
    if (!r->is_done && r->asked == w->round) {
        w->round++;
        move(w);
    }
    r->asked = w->round;
    if (r->is_done && bytes) *bytes = r->bytes;
    return r->is_done;
}

static uint32_t wire_lost(void *self, char *text, size_t size) {
    wire *w = self;
    if (!w->lost && w->lost_asked == w->round) move(w); /* where no request is asked for */
    w->lost_asked = w->round;
    if (w->lost && size) snprintf(text, size, "%s", w->why);
    return w->lost;
}

static void wire_end(void *self) {
    wire *w = self;
    w->is_ended = true;
    for (uint32_t m = 0; m < w->machines; m++) {
        peer *p = &w->peers[m];
        if (p->is_over) continue;
        frame goodbye = {.tag = GOODBYE};
        bool is_whole = !p->sends.first || !p->sent; /* else the other machine has half of a message, and is told */
        p->sends = p->receives = (list){0, 0};
        if (is_whole) (void)!send(p->fd, &goodbye, sizeof goodbye, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(p->fd, SHUT_WR);
    }
}

/* >>what Python calls */

/* A wire over sockets[machines], of which that of `machine` itself is -1; they are the wire's until it is closed. */
FRUGAL_API frugal_status frugal_sockets_open(const int *sockets, uint32_t machine, uint32_t machines,
                                             frugal_wire *out) {
    wire *w = calloc(1, sizeof *w + machines * sizeof *w->peers);
    if (w) w->polled = calloc(machines, sizeof *w->polled);
    if (!w || !w->polled) {
        free(w);
        return FRUGAL_ERR_MEMORY;
    }
    w->machine = machine;
    w->machines = machines;
    for (uint32_t m = 0; m < machines; m++) {
        peer *p = &w->peers[m];
        p->fd = sockets[m];
        p->is_over = m == machine;
        p->last_held = &p->held;
    }
    *out = (frugal_wire){.self = w,
                         .machine = machine,
                         .machines = machines,
                         .begin = wire_begin,
                         .send = wire_send,
                         .receive = wire_receive,
                         .done = wire_done,
                         .lost = wire_lost,
                         .end = wire_end};
    return FRUGAL_OK;
}

/* Has the other machine's system all that was sent to it? */
static bool is_there(const peer *p) {
#ifdef __linux__
    int unsent = 0;
    return ioctl(p->fd, TIOCOUTQ, &unsent) == 0 && unsent == 0;
#else
    return p->fd < 0;
#endif
}

/* Waits until the other machines have what was sent, or end, too: closing a socket earlier may take it back. */
static void linger(wire *w, double seconds) {
    struct timespec pause = {.tv_nsec = 1000000};
    for (double waited = 0; waited < seconds; waited += 1e-3) {
        bool is_over = true;
        for (uint32_t m = 0; m < w->machines; m++) {
            char unread[4096];
            peer *p = &w->peers[m];
            ssize_t n = 1;
            while (!p->is_over && (n = recv(p->fd, unread, sizeof unread, MSG_DONTWAIT)) > 0) continue;
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) p->is_over = true;
            if (!p->is_over && is_there(p)) p->is_over = true;
            is_over = is_over && p->is_over;
        }
        if (is_over) return;
        nanosleep(&pause, NULL);
    }
}

/* Behind the end of the instance: waits at most `seconds` for the other machines, closes the sockets, and frees all. */
FRUGAL_API void frugal_sockets_close(void *self, double seconds) {
    wire *w = self;
    if (w->is_ended) linger(w, seconds);
    for (uint32_t m = 0; m < w->machines; m++) {
        peer *p = &w->peers[m];
        if (m != w->machine) close(p->fd);
        free(p->coming);
        for (held *next, *at = p->held; at; at = next) {
            next = at->next;
            free(at);
        }
    }
    free(w->requests);
    free(w->polled);
    free(w);
}
