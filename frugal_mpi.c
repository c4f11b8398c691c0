/* frugal_mpi.c - a wire of MPI's point-to-point calls: Isend, Irecv, Test.
 *
 *   >>messages  begun, and done
 *   >>wire      its six functions
 *   >>open      of a communicator; and freed
 *
 *     mpicc -std=c11 -O3 -c frugal_mpi.c
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#endif
#include "frugal_mpi.h"
#include "src/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { END_TRIES = 1000, TEXT = 256 };

typedef struct message { /* begun, and not yet done */
    MPI_Request request; /* MPI_REQUEST_NULL: none */
    MPI_Datatype type;   /* with which it was begun; of two blocks if `owns` */
    uint32_t peer;
    int owns, receives;
} message;

typedef struct mpi {
    MPI_Comm comm;   /* a duplicate: all its tags are ours */
    int initialized; /* by us, so it is ours to finalize */
    /* the communication thread's alone */
    message *messages; /* messages[n] */
    uint32_t n;
    uint32_t lost; /* a machine, plus 1 */
    char text[TEXT];
} mpi;

/* >>messages */

static void say(int error, char *text, size_t size) { /* what MPI calls the error */
    char known[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (MPI_Error_string(error, known, &length) != MPI_SUCCESS) known[0] = 0;
    snprintf(text, size, "MPI error %d, %s", error, known);
}

static void lose(mpi *m, uint32_t peer, int error) { /* the first loss is the cause of later ones */
    if (m->lost) return;
    say(error, m->text, sizeof m->text);
    m->lost = peer + 1;
}

static void release(message *x) { /* it is done, or given up */
    if (x->owns) MPI_Type_free(&x->type);
    *x = (message){.request = MPI_REQUEST_NULL, .type = MPI_BYTE};
}

/* One buffer, or a type of two blocks at absolute addresses. */
typedef struct span {
    void *at;
    int count;
    MPI_Datatype type;
} span;
static int span_of(const frugal_parcel *p, span *to) {
    unsigned char *head = p->head, *body = p->body;
    size_t bytes = p->head_bytes + p->body_bytes;
    *to = (span){p->head_bytes ? head : body, (int)bytes, MPI_BYTE};
    if (!p->head_bytes || !p->body_bytes || head + p->head_bytes == body) return MPI_SUCCESS;
    int lengths[2] = {(int)p->head_bytes, (int)p->body_bytes}, error;
    MPI_Aint at[2];
    if ((error = MPI_Get_address(head, &at[0])) || (error = MPI_Get_address(body, &at[1])) ||
        (error = MPI_Type_create_hindexed(2, lengths, at, MPI_BYTE, &to->type)))
        return error;
    to->at = MPI_BOTTOM, to->count = 1;
    if ((error = MPI_Type_commit(&to->type))) MPI_Type_free(&to->type);
    return error;
}

static frugal_status begin_message(mpi *m, uint32_t request, const frugal_parcel *p, int receives) {
    message *x = &m->messages[request];
    span s;
    if (p->head_bytes > INT_MAX || p->body_bytes > INT_MAX - p->head_bytes)
        return frugal_fail(FRUGAL_ERR_LIMIT, "frugal_mpi: a message of %zu bytes; MPI's have at most %d",
                           p->head_bytes + p->body_bytes, INT_MAX);
    int error = span_of(p, &s), peer = (int)p->peer, tag = (int)p->tag;
    if (!error) {
        *x = (message){MPI_REQUEST_NULL, s.type, p->peer, s.type != MPI_BYTE, receives};
        error = receives ? MPI_Irecv(s.at, s.count, s.type, peer, tag, m->comm, &x->request)
                         : MPI_Isend(s.at, s.count, s.type, peer, tag, m->comm, &x->request);
        if (error) release(x);
    }
    if (error) lose(m, p->peer, error);
    return error ? frugal_fail(FRUGAL_ERR_LOST, "frugal_mpi: machine %u: %s", p->peer, m->text) : FRUGAL_OK;
}

/* >>wire */

static frugal_status wire_begin(void *self, uint32_t requests) {
    mpi *m = self;
    if (m->messages)
        return frugal_fail(FRUGAL_ERR_ORDER, "frugal_mpi: wanted a wire that no instance has used, because messages of "
                                             "another one may still come; make one with frugal_mpi_wire");
    m->messages = calloc((size_t)requests + 1, sizeof *m->messages);
    if (!m->messages)
        return frugal_fail(FRUGAL_ERR_MEMORY, "frugal_mpi: no memory for %u requests", (unsigned)requests);
    m->n = requests;
    for (uint32_t i = 0; i < requests; i++) m->messages[i].request = MPI_REQUEST_NULL;
    return FRUGAL_OK;
}
static frugal_status wire_send(void *self, uint32_t request, const frugal_parcel *parcel) {
    return begin_message(self, request, parcel, 0);
}
static frugal_status wire_receive(void *self, uint32_t request, const frugal_parcel *parcel) {
    return begin_message(self, request, parcel, 1);
}
static int wire_done(void *self, uint32_t request, size_t *bytes) {
    mpi *m = self;
    message *x = &m->messages[request];
    MPI_Status status;
    int done = 0, count = 0, error;
    if (x->request == MPI_REQUEST_NULL) return 0; /* it has failed */
    error = MPI_Test(&x->request, &done, &status);
    if (!error && !done) return 0;
    if (!error && x->receives) error = MPI_Get_elements(&status, x->type, &count);
    if (error) lose(m, x->peer, error);
    release(x);
    *bytes = (size_t)count;
    return !error;
}
static uint32_t wire_lost(void *self, char *text, size_t size) {
    mpi *m = self;
    if (m->lost) snprintf(text, size, "%s", m->text);
    return m->lost;
}
/* Waits for a second at most. A receive that has begun to arrive is not cancelled, but comes. */
static void wire_end(void *self) {
    mpi *m = self;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->messages[i].request != MPI_REQUEST_NULL && m->messages[i].receives) MPI_Cancel(&m->messages[i].request);
    for (int tries = 0, left = 1; left; tries++) {
        left = 0;
        for (uint32_t i = 0; i < m->n; i++) {
            message *x = &m->messages[i];
            int done;
            if (x->request == MPI_REQUEST_NULL) continue;
            if (MPI_Test(&x->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) x->request = MPI_REQUEST_NULL;
            if (tries == END_TRIES && x->request != MPI_REQUEST_NULL) MPI_Request_free(&x->request);
            if (x->request == MPI_REQUEST_NULL) release(x);
            left |= x->request != MPI_REQUEST_NULL;
        }
        if (left) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    m->n = 0;
}

/* >>open */

static frugal_status failed(const char *call, int error) {
    char text[TEXT];
    say(error, text, sizeof text);
    return frugal_fail(FRUGAL_ERR_LOST, "%s: %s", call, text);
}

/* MPI is there, for any thread. */
static frugal_status ready(int *initialized) {
    int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
    static const char *const names[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_finalized)
        return frugal_fail(FRUGAL_ERR_ORDER, "frugal_mpi_wire: MPI_Finalize was called, after which there is no MPI; "
                                             "make all wires before it");
    if (is_initialized) {
        MPI_Query_thread(&level);
    } else {
        int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        if (error) return failed("frugal_mpi_wire: MPI_Init_thread", error);
        *initialized = 1;
    }
    if (level == MPI_THREAD_MULTIPLE) return FRUGAL_OK;
    int i = level == MPI_THREAD_SINGLE ? 0 : level == MPI_THREAD_FUNNELED ? 1 : 2;
    return frugal_fail(
        FRUGAL_ERR_ORDER,
        "frugal_mpi_wire: wanted MPI with MPI_THREAD_MULTIPLE, because a thread of the instance calls it "
        "beside yours; found MPI_THREAD_%s; %s",
        names[i],
        *initialized ? "this MPI was built without threads: take another build"
                     : "call MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) in place of "
                       "MPI_Init, or leave that to frugal_mpi_wire");
}

static frugal_status duplicate(mpi *m, MPI_Comm comm) {
    int is_inter = 0, error = MPI_Comm_test_inter(comm, &is_inter);
    if (!error && is_inter)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_mpi_wire: wanted an intracommunicator, found one between two "
                                                "groups; MPI_Intercomm_merge makes one of it");
    if (!error) error = MPI_Comm_dup(comm, &m->comm);
    if (error) return failed("frugal_mpi_wire: MPI_Comm_dup", error);
    error = MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return error ? failed("frugal_mpi_wire: MPI_Comm_set_errhandler", error) : FRUGAL_OK;
}

static frugal_status fill(mpi *m, frugal_wire *wire) {
    int rank, ranks, error;
    if ((error = MPI_Comm_rank(m->comm, &rank)) || (error = MPI_Comm_size(m->comm, &ranks)))
        return failed("frugal_mpi_wire: MPI_Comm_size", error);
    if (ranks > FRUGAL_MAX_MACHINES)
        return frugal_fail(FRUGAL_ERR_LIMIT, "frugal_mpi_wire: wanted at most %d machines, found %d ranks",
                           FRUGAL_MAX_MACHINES, ranks);
    *wire = (frugal_wire){.self = m,
                          .machine = (uint32_t)rank,
                          .machines = (uint32_t)ranks,
                          .most_bytes = INT_MAX,
                          .begin = wire_begin,
                          .send = wire_send,
                          .receive = wire_receive,
                          .done = wire_done,
                          .lost = wire_lost,
                          .end = wire_end};
    return FRUGAL_OK;
}

/* The communicator is not freed: messages that nobody has received may still come, and the next communicator could have
 * its number, and so receive them. MPI_Finalize frees it. */
static int free_mpi(mpi *m) {
    int error = m->initialized ? MPI_Finalize() : MPI_SUCCESS;
    free(m->messages);
    free(m);
    return error;
}

frugal_status frugal_mpi_wire(MPI_Comm comm, frugal_wire *wire) {
    if (!wire) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_mpi_wire: wanted a frugal_wire to fill in, found NULL");
    memset(wire, 0, sizeof *wire);
    if (comm == MPI_COMM_NULL)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_mpi_wire: wanted a communicator, such as MPI_COMM_WORLD, found "
                                                "MPI_COMM_NULL");
    mpi *m = calloc(1, sizeof *m);
    if (!m) return frugal_fail(FRUGAL_ERR_MEMORY, "frugal_mpi_wire: no memory");
    m->comm = MPI_COMM_NULL;
    frugal_status s = ready(&m->initialized);
    if (s == FRUGAL_OK) s = duplicate(m, comm);
    if (s == FRUGAL_OK) s = fill(m, wire);
    if (s != FRUGAL_OK) free_mpi(m);
    return s;
}

frugal_status frugal_mpi_free(frugal_wire *wire) {
    if (!wire) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_mpi_free: wanted a frugal_wire, found NULL");
    mpi *m = wire->self;
    memset(wire, 0, sizeof *wire);
    int error = m ? free_mpi(m) : MPI_SUCCESS;
    return error ? failed("frugal_mpi_free", error) : FRUGAL_OK;
}
