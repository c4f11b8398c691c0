/* Processes that train together: the first one, which the user has started, and others, which it forks. They run the
 * same code on devices of their own, and share memory in which all pointers are valid in each of them, because it is
 * mapped before they are forked.
 *
 *     processes_open(&p, n, devices, &error)              n = 1: no other process, and memory is ordinary memory
 *     shared = processes_memory(p, sizeof *shared)        before the start
 *     processes_start(p, &work, trainer, &error)          only the first process returns
 *     frugal_open(...)                                    with the name processes_name(p, 0)
 *     processes_begin(p, WORK_JOIN)                       the others call work.run(trainer, WORK_JOIN, &error),
 *     ... attach its own devices                          where they join by that name and attach theirs
 *     processes_await(p, &error)                          until they have returned
 *     processes_leave(p)                                  the others call work.leave(trainer), and end
 *     frugal_close(f), processes_close(p)
 *
 * No wait of these functions outlasts a process. A thread of the first one is told by the operating system when another
 * ends, and breaks all waits. If the first one ends, however it does, the system kills the others. Signals of the
 * terminal are for the first one; the others ignore them, so that they train until it stops.
 *
 * Functions that can fail return 0, or -1 with *error filled. Linux only.
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdatomic.h>

#include "frugal.h"
#include "trainers/common/program.h"

typedef struct processes processes;

/* What the others do. */
typedef struct processes_work {
    /* What the first process has begun. If it fails, the process ends, and the first one reports the error. */
    int (*run)(void *trainer, uint32_t what, program_error *error);
    void (*leave)(void *trainer);
} processes_work;

/* n: a divisor of `devices`; 0 counts as 1. No other thread may have been started. On failure *out is NULL. */
int processes_open(processes **out, uint32_t n, uint32_t devices, program_error *error);
/* So many bytes of zeros, aligned to a cache line, that all processes share; before the start. NULL: there are none.
 * processes_close frees them. */
void *processes_memory(processes *p, size_t bytes);
/* Forks the others. */
int processes_start(processes *p, const processes_work *work, void *trainer, program_error *error);
/* Ends them: they leave, or are killed if a wait was broken. Waits until they have ended. In the first process. NULL is
 * accepted, here and below. */
void processes_leave(processes *p);
/* Does that, and frees the memory. */
void processes_close(processes *p);

/* The devices of this process: the first of them, and their number. */
uint32_t processes_first(const processes *p);
uint32_t processes_devices(const processes *p);
/* The name of the trainer's instance `which`, 0 or 1; NULL: no process joins. */
const char *processes_name(const processes *p, uint32_t which);
/* Is this one that was forked? */
int processes_is_other(const processes *p);

/* In the first process: has the others do work.run(trainer, what). */
void processes_begin(processes *p, uint32_t what);
/* Until they have. Fails if one has ended. */
int processes_await(processes *p, program_error *error);
/* After a failure, which may be the consequence of the end of another process: if so, *error becomes that. With
 * `status` LOST or STOPPED it waits until the system has reported that end, a second at most. */
void processes_explain(processes *p, frugal_status status, program_error *error);

/* Where the training waits. Each place has a bell; who changes what others wait for there rings it. */
typedef enum { PROCESSES_WORK, PROCESSES_DONE, PROCESSES_MEETING, PROCESSES_LOADER, PROCESSES_BELLS } processes_bell;
/*     for (;;) {
 *         uint32_t heard = processes_listen(p, bell);
 *         if (what is waited for) ...
 *         if (processes_sleep(p, bell, heard)) return FRUGAL_STOPPED;
 *     }
 */
uint32_t processes_listen(processes *p, processes_bell bell);
/* Until the bell has been rung since processes_listen returned `heard`. FRUGAL_STOPPED: waits are broken. */
frugal_status processes_sleep(processes *p, processes_bell bell, uint32_t heard);
void processes_ring(processes *p, processes_bell bell);

/* Until all devices are here. STOPPED: one will not come. */
frugal_status processes_meet(processes *p);

/* A device or another thread gives up: from here on waits return STOPPED. */
void processes_break(processes *p);
/* The same in a process that was forked: it ends. `why` is for the first one to report; if `status` is a consequence of
 * another process's end (LOST, STOPPED), that comes first. */
void processes_end(processes *p, frugal_status status, const program_error *why);

#endif
