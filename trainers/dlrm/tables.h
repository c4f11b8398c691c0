/* The tables of a training: an instance of Frugal with the features' rows, and one with those of the linear part. They
 * lie in memory or in files, and begin anew, or as a save has them. */
#ifndef DLRM_TABLES_H
#define DLRM_TABLES_H

#include "trainers/common/ranks.h"
#include "trainers/dlrm/train.h"

enum { DLRM_INSTANCES = 2 };

typedef struct dlrm_tables {
    const dlrm_settings *settings;
    const clicks *log;
    frugal_workers *workers; /* NULL: none */
    uint32_t instances;
    uint64_t step;                    /* Frugal's next */
    ranks_dealing *dealing;           /* dealing[DLRM_INSTANCES]; closed by the caller when the instances are */
    const char *name[DLRM_INSTANCES]; /* by which other processes join; NULL: none does */
    /* What is opened: */
    frugal **frugal; /* frugal[DLRM_INSTANCES]; closed by the caller, also after a failure */
    int *made;       /* made[DLRM_INSTANCES]: the file was not there */
} dlrm_tables;

/* Keys of a sample, at most. */
uint32_t dlrm_most_keys(const clicks *log);
/* Are keys and rows within the limits? Frugal refuses them, too, but does not know what they come from. 0, or -1 with
 * *error filled, here and below. */
int dlrm_tables_check(const dlrm_settings *settings, const clicks *log, program_error *error);
int dlrm_tables_open(const dlrm_tables *t, program_error *error);
/* After a failure: removes the files that were made, while this process still holds them. */
void dlrm_tables_remove(frugal *const frugal[DLRM_INSTANCES], const int made[DLRM_INSTANCES]);

#endif
