/* Forked processes, the memory they share, and waits that end with a process. */
#include "trainers/common/processes.h"
#include "trainers/common/ranks.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES_LEAVE UINT32_MAX /* the last work */
enum { PROCESSES_NAMES = 2 };

typedef struct processes_shared {
    _Atomic uint32_t bell[PROCESSES_BELLS]; /* how often each was rung; futexes */
    atomic_int broken;
    /* Work: the first process writes `what`, then counts. Each of the others counts itself in `done`. */
    uint32_t what;
    _Atomic uint32_t begun, done;
    /* The meeting of devices. */
    _Atomic uint32_t here, round;
    /* Why the first of the processes that failed has ended: it claims the text, writes it, and says so. */
    atomic_int claimed, said;
    program_error why;
} processes_shared;

typedef struct processes_block {
    void *memory;
    size_t bytes;
} processes_block;

struct processes {
    uint32_t n, number, devices; /* devices: of all processes */
    processes_shared *shared;
    pid_t first;
    processes_block *block; /* [blocks]: all memory that is shared */
    size_t blocks;
    char name[PROCESSES_NAMES][64];
    const processes_work *work;
    void *trainer;
    /* Of the first process alone: */
    uint32_t started;     /* others, numbered from 1 */
    pid_t *pid;           /* [n] */
    int *descriptor;      /* [n]: of the processes; closed when all have ended */
    struct pollfd *watch; /* [n]: the watcher's */
    pthread_t watcher;
    atomic_int leaving; /* ends are expected */
    atomic_int lost;    /* `loss` is filled: one ended that was not told to */
    program_error loss;
};

/* ---- Memory -------------------------------------------------------------------------------------------- */

void *processes_memory(processes *p, size_t bytes) {
    processes_block *more = realloc(p->block, (p->blocks + 1) * sizeof *more);
    void *memory = NULL;
    if (!more) return NULL;
    p->block = more;
    bytes = (bytes + 64) / 64 * 64;
    if (p->n == 1) {
        memory = aligned_alloc(64, bytes);
        if (memory) memset(memory, 0, bytes);
    } else {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) memory = NULL;
    }
    if (memory) p->block[p->blocks++] = (processes_block){memory, bytes};
    return memory;
}

static void processes_free(processes *p) {
    for (size_t i = 0; i < p->blocks; i++)
        if (p->n == 1)
            free(p->block[i].memory);
        else
            munmap(p->block[i].memory, p->block[i].bytes);
    free(p->block);
    free(p->pid);
    free(p->descriptor);
    free(p->watch);
    free(p);
}

int processes_open(processes **out, uint32_t n, uint32_t devices, program_error *error) {
    static atomic_uint opened; /* a program may open several trainers */
    processes *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return program_fail(error, "out of memory");
    *p = (processes){.n = n ? n : 1, .devices = devices, .first = getpid()};
    assert(devices % p->n == 0);
    p->shared = processes_memory(p, sizeof *p->shared);
    p->pid = calloc(p->n, sizeof *p->pid);
    p->descriptor = calloc(p->n, sizeof *p->descriptor);
    p->watch = calloc(p->n, sizeof *p->watch);
    if (!p->shared || !p->pid || !p->descriptor || !p->watch) {
        processes_free(p);
        return program_fail(error, "out of memory for %u processes", n);
    }
    unsigned which = atomic_fetch_add(&opened, 1);
    for (int i = 0; i < PROCESSES_NAMES; i++)
        snprintf(p->name[i], sizeof p->name[i], "trainer %ld.%u.%d", (long)p->first, which, i);
    *out = p;
    return 0;
}

uint32_t processes_devices(const processes *p) {
    return ranks_devices(p->devices) / p->n; /* of several machines each has one process */
}

uint32_t processes_first(const processes *p) {
    return ranks_first(p->devices) + p->number * processes_devices(p);
}

const char *processes_name(const processes *p, uint32_t which) {
    return p->n > 1 ? p->name[which] : NULL;
}

int processes_is_other(const processes *p) {
    return p->number > 0;
}

/* ---- Waiting ------------------------------------------------------------------------------------------- */

static void processes_futex(const processes *p, processes_bell bell, int operation, uint32_t value) {
    int private = p->n == 1 ? FUTEX_PRIVATE_FLAG : 0; /* which is faster */
    syscall(SYS_futex, &p->shared->bell[bell], operation | private, value, NULL, NULL, 0);
}

uint32_t processes_listen(processes *p, processes_bell bell) {
    return atomic_load(&p->shared->bell[bell]);
}

/* The system compares the word with `heard` before it puts the thread to sleep, so no ring is missed. A break rings all
 * bells, after `broken` was set. */
frugal_status processes_sleep(processes *p, processes_bell bell, uint32_t heard) {
    if (!atomic_load(&p->shared->broken)) processes_futex(p, bell, FUTEX_WAIT, heard);
    return atomic_load(&p->shared->broken) ? FRUGAL_STOPPED : FRUGAL_OK;
}

void processes_ring(processes *p, processes_bell bell) {
    atomic_fetch_add(&p->shared->bell[bell], 1);
    processes_futex(p, bell, FUTEX_WAKE, INT_MAX);
}

void processes_break(processes *p) {
    atomic_store(&p->shared->broken, 1);
    for (int i = 0; i < PROCESSES_BELLS; i++) processes_ring(p, (processes_bell)i);
}

frugal_status processes_meet(processes *p) {
    processes_shared *shared = p->shared;
    uint32_t devices = p->n * processes_devices(p); /* of this machine */
    if (devices == 1) return FRUGAL_OK;
    uint32_t round = atomic_load(&shared->round);
    if (atomic_fetch_add(&shared->here, 1) + 1 == devices) {
        atomic_store(&shared->here, 0); /* before the round, because the others come again after it */
        atomic_store(&shared->round, round + 1);
        processes_ring(p, PROCESSES_MEETING);
        return FRUGAL_OK;
    }
    for (;;) {
        uint32_t heard = processes_listen(p, PROCESSES_MEETING);
        if (atomic_load(&shared->round) != round) return FRUGAL_OK;
        if (processes_sleep(p, PROCESSES_MEETING, heard))
            return atomic_load(&shared->round) != round ? FRUGAL_OK : FRUGAL_STOPPED;
    }
}

/* ---- The others ---------------------------------------------------------------------------------------- */

/* Of the end of another process? */
static int processes_is_consequence(frugal_status status) {
    return status == FRUGAL_ERR_LOST || status == FRUGAL_STOPPED;
}

static void processes_pause(double seconds) {
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

/* A process that fails because another one has ended is killed soon. If it ended now, it might be reported as the one
 * that failed; so it waits for longer than processes_explain. */
void processes_end(processes *p, frugal_status status, const program_error *why) {
    if (processes_is_consequence(status)) processes_pause(5);
    if (!atomic_exchange(&p->shared->claimed, 1)) {
        p->shared->why = *why;
        atomic_store(&p->shared->said, 1);
    }
    _exit(1);
}

/* The life of a process that was forked. It ends by _exit, because buffers of streams and functions to call at exit are
 * the first one's. */
static void processes_live(processes *p) {
    processes_shared *shared = p->shared;
    program_error error;
    for (uint32_t next = 1;; next++) {
        for (;;) {
            uint32_t heard = processes_listen(p, PROCESSES_WORK);
            if (atomic_load(&shared->begun) == next) break;
            if (processes_sleep(p, PROCESSES_WORK, heard)) processes_pause(1); /* it is killed meanwhile */
        }
        if (shared->what == PROCESSES_LEAVE) break;
        if (p->work->run(p->trainer, shared->what, &error)) processes_end(p, FRUGAL_OK, &error);
        atomic_fetch_add(&shared->done, 1);
        processes_ring(p, PROCESSES_DONE);
    }
    p->work->leave(p->trainer);
    _exit(0);
}

static void processes_be(processes *p, uint32_t number) {
    p->number = number;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != p->first) _exit(1); /* it ended before that */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    processes_live(p);
}

/* ---- The first one watches them ------------------------------------------------------------------------ */

static void processes_describe(processes *p, uint32_t number, const siginfo_t *info) {
    program_error *loss = &p->loss;
    long pid = (long)p->pid[number];
    if (info->si_code != CLD_EXITED)
        program_fail(loss, "process %u (pid %ld) was ended by signal %d (%s)", number, pid, info->si_status,
                     strsignal(info->si_status));
    else if (atomic_load(&p->shared->said))
        program_fail(loss, "process %u (pid %ld) has ended: %.400s", number, pid, p->shared->why.text);
    else
        program_fail(loss, "process %u (pid %ld) has ended with exit status %d", number, pid, info->si_status);
}

/* `number` has ended, or is ending. */
static void processes_reap(processes *p, uint32_t number) {
    siginfo_t info = {.si_code = 0};
    while (waitid(P_PID, (id_t)p->pid[number], &info, WEXITED) && errno == EINTR) continue;
    if (atomic_load(&p->leaving) || atomic_load(&p->lost)) return;
    processes_describe(p, number, &info);
    atomic_store(&p->lost, 1);
    processes_break(p);
}

/* Until all have ended. */
static void *processes_watch(void *argument) {
    processes *p = argument;
    for (uint32_t left = p->started; left;) {
        if (poll(p->watch, p->n, -1) < 0) continue; /* a signal came */
        for (uint32_t i = 1; i <= p->started; i++) {
            if (p->watch[i].fd < 0 || !p->watch[i].revents) continue;
            processes_reap(p, i);
            p->watch[i].fd = -1; /* poll passes it over */
            left--;
        }
    }
    return NULL;
}

/* By their descriptors, because the number of one that has been reaped may be another process's. */
static void processes_kill(processes *p) {
    for (uint32_t i = 1; i <= p->started; i++) syscall(SYS_pidfd_send_signal, p->descriptor[i], SIGKILL, NULL, 0);
}

static void processes_forget(processes *p) {
    for (uint32_t i = 1; i <= p->started; i++) close(p->descriptor[i]);
    p->started = 0;
}

/* No watcher has been started. */
static int processes_fail_start(processes *p, const char *what, program_error *error) {
    program_fail(error, "cannot start %s: %s; use fewer --processes", what, strerror(errno));
    atomic_store(&p->leaving, 1);
    processes_kill(p);
    processes_watch(p);
    processes_forget(p);
    return -1;
}

static int processes_fork(processes *p, uint32_t number, program_error *error) {
    pid_t pid = fork();
    if (pid == 0) processes_be(p, number);
    if (pid < 0) return processes_fail_start(p, "a process", error);
    int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    if (descriptor < 0) {
        int why = errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        errno = why;
        return processes_fail_start(p, "to watch a process", error);
    }
    p->pid[number] = pid, p->descriptor[number] = descriptor;
    p->watch[number] = (struct pollfd){.fd = descriptor, .events = POLLIN};
    p->started = number;
    return 0;
}

int processes_start(processes *p, const processes_work *work, void *trainer, program_error *error) {
    p->work = work, p->trainer = trainer;
    for (uint32_t i = 0; i < p->n; i++) p->watch[i].fd = -1;
    if (p->n == 1) return 0;
    for (uint32_t i = 1; i < p->n; i++)
        if (processes_fork(p, i, error)) return -1;
    errno = pthread_create(&p->watcher, NULL, processes_watch, p);
    return errno ? processes_fail_start(p, "a thread", error) : 0;
}

void processes_begin(processes *p, uint32_t what) {
    p->shared->what = what;
    atomic_store(&p->shared->done, 0);
    atomic_fetch_add(&p->shared->begun, 1);
    processes_ring(p, PROCESSES_WORK);
}

int processes_await(processes *p, program_error *error) {
    frugal_status status = FRUGAL_OK;
    while (!status) {
        uint32_t heard = processes_listen(p, PROCESSES_DONE);
        if (atomic_load(&p->shared->done) == p->started) return 0;
        status = processes_sleep(p, PROCESSES_DONE, heard);
    }
    program_fail(error, "%s", frugal_strerror(status));
    processes_explain(p, status, error);
    return -1;
}

/* A process that ends closes its sockets, by which Frugal notices, some time before its descriptor reports it. */
void processes_explain(processes *p, frugal_status status, program_error *error) {
    int may_come = p->started && processes_is_consequence(status);
    for (int i = 0; i < 1000 && may_come && !atomic_load(&p->lost); i++) processes_pause(0.001);
    if (atomic_load(&p->lost)) *error = p->loss;
}

void processes_leave(processes *p) {
    if (!p || !p->started) return;
    atomic_store(&p->leaving, 1);
    if (atomic_load(&p->shared->broken))
        processes_kill(p);
    else
        processes_begin(p, PROCESSES_LEAVE);
    pthread_join(p->watcher, NULL);
    processes_forget(p);
}

void processes_close(processes *p) {
    if (!p) return;
    processes_leave(p);
    processes_free(p);
}
