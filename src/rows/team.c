/* team.c - work that is large enough to be done in pieces by several threads: copying and sorting keys, and on host
 * cores lookup and update.
 *
 * The thread that has such work gives a *job*, and takes part in it, so a job ends even if no other thread comes. Those
 * that come are threads that help anyway, because they wait or are workers (help.c), and the device's own *team*, if it
 * has one: threads that sleep until there is a job. A team starts with the first job, so a device whose batches are
 * small has no such threads. Several jobs may be given at the same time.
 */
#include "rows.h"

#if defined(__linux__)
#include <sched.h>
#endif

#ifndef PIECE_BYTES /* some 10 us of work. Tests cut smaller batches, too */
#define PIECE_BYTES 65536u
#endif

typedef struct team_job { /* on the stack of the thread that gives it, which waits until no other is inside */
    struct team_job *next;
    void (*work)(void *argument, uint32_t phase, uint32_t piece);
    void *argument;
    uint32_t pieces, tickets;      /* of a phase; of all phases */
    FRUGAL_ATOMIC(uint32_t) taken; /* tickets, phase by phase; relaxed: `done` orders the phases */
    FRUGAL_ATOMIC(uint32_t) done;  /* tickets */
    uint32_t inside;               /* threads but the one that gave it; under the lock */
} team_job;

/* Where piece `piece` of n things begins, if there are so many pieces. */
FRUGAL_INTERNAL uint32_t piece_begin(uint32_t n, uint32_t piece, uint32_t pieces) {
    return (uint32_t)((uint64_t)n * piece / pieces);
}

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

static team_job *open_job(const frugal *f) { /* the lock is held */
    team_job *job = f->jobs.first;
    while (job && frugal_load_relaxed(&job->taken) >= job->tickets) job = job->next; /* relaxed: a hint */
    return job;
}

/* Does pieces of the first job that has any left; NULL: there is none. The lock is held, before and after. */
static team_job *join_job(frugal *f) {
    team_job *job = open_job(f);
    if (!job) return NULL;
    job->inside++;
    pthread_mutex_unlock(&f->jobs.lock);
    float_mode saved = float_mode_enter();
    team_work(job);
    float_mode_leave(saved);
    pthread_mutex_lock(&f->jobs.lock);
    if (--job->inside == 0) pthread_cond_broadcast(&f->jobs.left);
    return job;
}

/* For a thread that helps. Returns 0 if there is no job. */
FRUGAL_INTERNAL int help_job(frugal *f) {
    if (!frugal_load_relaxed(&f->jobs.open)) return 0; /* relaxed: a hint; the event tells of jobs */
    pthread_mutex_lock(&f->jobs.lock);
    int any = join_job(f) != NULL;
    pthread_mutex_unlock(&f->jobs.lock);
    return any;
}

static void *team_main(void *argument) {
    struct team *c = argument;
    frugal_jobs *jobs = &c->f->jobs;
    pthread_mutex_lock(&jobs->lock);
    while (!c->ends)
        if (!join_job(c->f)) pthread_cond_wait(&jobs->given, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
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

/* Ends the threads, when they have done their pieces. */
FRUGAL_INTERNAL void free_team(frugal *f, struct team *c) {
    if (!c) return;
    pthread_mutex_lock(&f->jobs.lock);
    c->ends = 1;
    pthread_cond_broadcast(&f->jobs.given);
    pthread_mutex_unlock(&f->jobs.lock);
    for (uint32_t i = 0; i < c->started; i++) pthread_join(c->threads[i], NULL);
    frugal_free(f, c, sizeof *c);
}

FRUGAL_INTERNAL void open_jobs(frugal *f) {
    pthread_mutex_init(&f->jobs.lock, NULL);
    pthread_cond_init(&f->jobs.given, NULL);
    pthread_cond_init(&f->jobs.left, NULL);
}
FRUGAL_INTERNAL void close_jobs(frugal *f) {
    pthread_mutex_destroy(&f->jobs.lock);
    pthread_cond_destroy(&f->jobs.given);
    pthread_cond_destroy(&f->jobs.left);
}

/* In place of what an attach call has left that failed. A device that another thread has attached meanwhile keeps its
 * own, which may be at work. */
static frugal_status set_team(frugal *f, uint32_t d, struct team *c) {
    pthread_mutex_lock(&f->settings.lock);
    int attached = is_attached(f, d);
    struct team *unused = attached ? c : f->devices[d].team;
    if (!attached) f->devices[d].team = c;
    pthread_mutex_unlock(&f->settings.lock);
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
    uint32_t here = f->dealing ? f->dealing->here : f->desc.devices;
    if (threads == 0) threads = LEAST(processors / here, MOST_TEAM);
    if (threads <= 1) return set_team(f, d, NULL);
    struct team *c = frugal_allocate(f, sizeof *c, CACHE_LINE);
    if (!c) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not available", d, sizeof *c);
    c->f = f, c->n = threads - 1;
#if defined(__linux__)
    c->processors = allowed;
#endif
    return set_team(f, d, c);
}

/* The threads that may come to a job of the device, the calling one among them: its team, workers, and those of other
 * devices, which may be waiting. In a process that has joined only the team comes. */
static uint32_t job_threads(const frugal *f, uint32_t d) {
    const struct team *c = f->devices[d].team;
    return (c ? c->n : 0) + (f->ops->owns ? f->desc.workers + f->desc.devices : 1);
}

uint32_t frugal_pieces(const frugal *f, uint32_t d, uint64_t bytes) {
    enum { TURNS = 4 }; /* so that who comes late finds some left */
    uint32_t threads = job_threads(f, d);
    if (threads == 1 || bytes < TURNS * PIECE_BYTES) return 1;
    return (uint32_t)LEAST(bytes / PIECE_BYTES, (uint64_t)threads * TURNS);
}

void frugal_run_pieces(frugal *f, uint32_t d, uint32_t phases, uint32_t pieces,
                       void (*work)(void *argument, uint32_t phase, uint32_t piece), void *argument) {
    struct team *c = f->devices[d].team;
    frugal_jobs *jobs = &f->jobs;
    team_job job = {.work = work, .argument = argument, .pieces = pieces, .tickets = phases * pieces};
    if (pieces <= 1) {
        team_work(&job);
        return;
    }
    pthread_mutex_lock(&jobs->lock);
    if (c) team_start(c);
    job.next = jobs->first;
    jobs->first = &job;
    frugal_add_relaxed(&jobs->open, 1); /* relaxed, both: a hint */
    if (c) pthread_cond_broadcast(&jobs->given);
    pthread_mutex_unlock(&jobs->lock);
    if (f->ops->owns) event_notify(f->event);
    team_work(&job);
    pthread_mutex_lock(&jobs->lock);
    team_job **at = &jobs->first;
    while (*at != &job) at = &(*at)->next;
    *at = job.next;
    frugal_add_relaxed(&jobs->open, (uint32_t)-1);
    while (job.inside > 0) pthread_cond_wait(&jobs->left, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
}
