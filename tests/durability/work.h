/* work.h - what trainee.c and damage.c train: small tables, whose rows after each step are a function of a seed. */
#ifndef WORK_H
#define WORK_H

#include "frugal_save.h"
#include "tests/support.h"

#include <stdio.h>

enum { INSTANCES = 2, TABLES = 3, DEVICES = 2, KEYS = 40, MOST_DIM = 24, NAME = 4096 };

typedef struct frugal_work { /* what is trained */
    uint64_t seed;
    uint32_t instances;
    frugal_table tables[INSTANCES][TABLES];
    uint32_t n_tables[INSTANCES], dim[INSTANCES];
    frugal_optimizer optimizer[INSTANCES];
    frugal_type rows_as[INSTANCES];
    frugal_reduce reduce;
} frugal_work;

typedef struct frugal_way { /* how: nothing of it may change a bit */
    uint32_t workers, lookahead, staging, init_threads;
    uint64_t cache[DEVICES];
    frugal_cache_policy policy;
    frugal_mode mode;
    int in_file;
    unsigned gpus; /* a bit per device: it is on a GPU, if there are GPUs (TEST_CUDA) */
} frugal_way;

extern frugal_work work; /* of set_work */
extern frugal_way way;   /* set by set_way; {0} before */

typedef struct trainer {
    frugal_workers *workers;
    frugal *f[INSTANCES];
    struct gpu *gpu[INSTANCES][DEVICES]; /* NULL: on the host */
    uint64_t announced, step;            /* of the instance that is further behind */
    uint64_t first[INSTANCES];           /* steps that an instance already had when it was opened */
} trainer;

typedef struct opening {      /* from where */
    const char *const *saved; /* saves; NULL: none */
    uint32_t n_saved;
    const char *table; /* files NAME-0, NAME-1, where the way is `in_file`; NULL: memory */
    int keep;          /* an existing file is opened; else it is removed, unless there are saves */
    int staged;        /* workers update all rows, also those that a host device alone touches */
    uint64_t first_step;
    float *weights, *state; /* the caller's, of instance 0; NULL: no */
} opening;

/* Ends the process with 1 and a line. */
_Noreturn void die(const char *what, const char *why);
void must_be_ok(frugal_status status, const char *what);

void set_work(uint64_t seed);
void set_way(uint64_t draw);
void show_work(void);
/* A status: frugal_message says why it is not FRUGAL_OK, and nothing is open then. */
frugal_status open_trainer(trainer *t, const opening *o);
void close_trainer(trainer *t);
void drain_trainer(trainer *t);
/* One step, of `steps` in all; announces the steps within the lookahead. The second function returns the status of the
 * first call that failed; then the step is not complete, because a device was lost. */
void train_step(trainer *t, uint64_t steps);
frugal_status try_step(trainer *t, uint64_t steps);
/* A hash of all rows and their states, of one instance or of all in turn; drains. */
uint64_t hash_instance(const trainer *t, uint32_t i, uint64_t hash);
uint64_t hash_trainer(const trainer *t);
/* All rows and their states. */
void write_trainer(const trainer *t, FILE *out);

#endif /* WORK_H */
