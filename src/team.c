/* team.c - threads that help a device with what the calling thread does, in pieces: sorting keys, and on host cores
 * lookup and update.
 *
 * A team sleeps until it is given a job. The calling thread takes part, so a job ends even if no other thread comes.
 * Loader and trainer may give jobs at the same time. Threads start with the first job, so a device whose batches are
 * small has none.
 */
#include "host.h"

#if defined(__linux__)
#include <sched.h>
#endif

#define MOST_TEAM 64u

#ifndef PIECE_BYTES /* some 10 us of work. Tests cut smaller batches, too */
#define PIECE_BYTES 65536u
#endif

enum { SORT_PIECES = 16, SORT_DIGITS = 4096 };

typedef struct team_job { /* on the stack of the thread that gives it, which waits until no other is inside */
    struct team_job *next;
    void (*work)(void *argument, uint32_t phase, uint32_t piece);
    void *argument;
    uint32_t pieces, tickets;      /* of a phase; of all phases */
    FRUGAL_ATOMIC(uint32_t) taken; /* tickets, phase by phase; relaxed: `done` orders the phases */
    FRUGAL_ATOMIC(uint32_t) done;  /* tickets */
    uint32_t inside;               /* threads of the team; under the lock */
} team_job;

struct team {
    uint32_t n, started; /* threads, the calling one not counted; `started` under the lock, as the next three */
    int begun, ends;
    team_job *jobs;
    pthread_mutex_t lock;
    pthread_cond_t given, left; /* a job is there; no thread is inside a job any longer */
#if defined(__linux__)
    cpu_set_t processors; /* of the attaching thread: a trainer may be bound to one */
#endif
    pthread_t threads[MOST_TEAM];
    uint32_t digits[][SORT_DIGITS]; /* of a sort in pieces, one a thread, which is the loader's (batch.c) */
};

/* Does pieces of a job until all are taken. A piece of a phase begins when the phase before is done: whoever took its
 * pieces is at work on them. */
static void team_work(team_job *job) {
    for (;;) {
        uint32_t ticket = frugal_add_relaxed(&job->taken, 1);
        if (ticket >= job->tickets) return;
        uint32_t phase = ticket / job->pieces, before = phase * job->pieces;
        for (uint32_t turn = 0; frugal_load_acquire(&job->done) < before; turn++) /* [F51] pairs with [F52] */
            if (turn >= 2000)
                nanosleep(&(struct timespec){0, 50000}, NULL); /* it may have a lower priority */
            else if (turn >= 200)
                sched_yield();
        job->work(job->argument, phase, ticket % job->pieces);
        frugal_add_release(&job->done, 1); /* [F52] pairs with [F51] */
    }
}

static team_job *team_open_job(struct team *c) { /* the lock is held */
    team_job *job = c->jobs;
    while (job && frugal_load_relaxed(&job->taken) >= job->tickets) job = job->next; /* relaxed: a hint */
    return job;
}

static void *team_main(void *argument) {
    struct team *c = argument;
    (void)float_mode_enter(); /* for the whole life of the thread */
    pthread_mutex_lock(&c->lock);
    while (!c->ends) {
        team_job *job = team_open_job(c);
        if (!job) {
            pthread_cond_wait(&c->given, &c->lock);
            continue;
        }
        job->inside++;
        pthread_mutex_unlock(&c->lock);
        team_work(job);
        pthread_mutex_lock(&c->lock);
        if (--job->inside == 0) pthread_cond_broadcast(&c->left);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Starts the threads, or as many as the system has. The lock is held. */
static void team_start(struct team *c) {
    int error = c->begun;
    c->begun = 1;
    while (c->started < c->n && !error) {
        error = start_quiet_thread(&c->threads[c->started], team_main, c);
#if defined(__linux__)
        if (!error) pthread_setaffinity_np(c->threads[c->started], sizeof c->processors, &c->processors);
#endif
        c->started += !error;
    }
}

static size_t team_bytes(uint32_t threads) {
    struct team *c;
    return sizeof *c + LEAST(threads, SORT_PIECES) * sizeof *c->digits;
}

/* Ends the threads. No job is under way. */
static void free_team(frugal *f, struct team *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->ends = 1;
    pthread_cond_broadcast(&c->given);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->started; i++) pthread_join(c->threads[i], NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->given);
    pthread_cond_destroy(&c->left);
    frugal_free(f, c, team_bytes(c->n + 1));
}

/* In place of what an attach call has left that failed. A device that another thread has attached meanwhile keeps its
 * own, which may be at work. */
static frugal_status set_team(frugal *f, uint32_t d, struct team *c) {
    pthread_mutex_lock(&f->settings_lock);
    int attached = is_attached(f, d);
    struct team *unused = attached ? c : f->devices[d].team;
    if (!attached) f->devices[d].team = c;
    pthread_mutex_unlock(&f->settings_lock);
    free_team(f, unused);
    return attached ? frugal_fail(FRUGAL_ERR_DEVICE, "device %u is attached already", d) : FRUGAL_OK;
}

frugal_status frugal_use_threads(frugal *f, uint32_t d, uint32_t threads) {
    uint32_t processors = 1;
    if (threads > MOST_TEAM)
        return frugal_fail(FRUGAL_ERR_LIMIT, "device %u: %u threads; the limit is %u", d, threads, MOST_TEAM);
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) processors = (uint32_t)CPU_COUNT(&allowed);
#endif
    if (threads == 0) threads = LEAST(processors / f->desc.devices, MOST_TEAM);
    if (threads <= 1) return set_team(f, d, NULL);
    struct team *c = frugal_allocate(f, team_bytes(threads), CACHE_LINE);
    if (!c) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not available", d, team_bytes(threads));
    c->n = threads - 1;
#if defined(__linux__)
    c->processors = allowed;
#endif
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->given, NULL);
    pthread_cond_init(&c->left, NULL);
    return set_team(f, d, c);
}

uint32_t frugal_pieces(const frugal *f, uint32_t d, uint64_t bytes) {
    enum { TURNS = 4 }; /* so that who comes late finds some left */
    const struct team *c = f->devices[d].team;
    if (!c || bytes < TURNS * PIECE_BYTES) return 1;
    return (uint32_t)LEAST(bytes / PIECE_BYTES, (c->n + 1) * TURNS);
}

void frugal_run_pieces(frugal *f, uint32_t d, uint32_t phases, uint32_t pieces,
                       void (*work)(void *argument, uint32_t phase, uint32_t piece), void *argument) {
    struct team *c = f->devices[d].team;
    team_job job = {.work = work, .argument = argument, .pieces = pieces, .tickets = phases * pieces};
    if (!c || pieces <= 1) {
        team_work(&job);
        return;
    }
    pthread_mutex_lock(&c->lock);
    team_start(c);
    job.next = c->jobs;
    c->jobs = &job;
    for (uint32_t i = 0; i < LEAST(c->started, pieces - 1); i++) pthread_cond_signal(&c->given);
    pthread_mutex_unlock(&c->lock);
    team_work(&job);
    pthread_mutex_lock(&c->lock);
    team_job **at = &c->jobs;
    while (*at != &job) at = &(*at)->next;
    *at = job.next;
    while (job.inside > 0) pthread_cond_wait(&c->left, &c->lock);
    pthread_mutex_unlock(&c->lock);
}
