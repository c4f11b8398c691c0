/* access.h - what callers do with rows between steps: read, write, count, list, save.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_ACCESS_H
#define FRUGAL_ACCESS_H

#include "../opening/opening.h"

/* access.c */

FRUGAL_INTERNAL uint64_t row_of(const frugal *f, const frugal_keys *keys, uint32_t i);
FRUGAL_INTERNAL frugal_status check_keys(const frugal *f, const frugal_keys *keys, const char *call);

/* counts.c */

FRUGAL_INTERNAL void keep_counts(frugal *f);
FRUGAL_INTERNAL frugal_status give_back_counts(frugal *f, int changed);

#ifndef FRUGAL_NO_SAVES

/* save.c */

typedef struct planned_block planned_block; /* defined in save.c */

typedef struct save_job {
    frugal *const *instances;
    saved_file head;
    const frugal_desc *memory; /* whose allocator is used */
    new_file file;
    planned_block *blocks;  /* [n_blocks] */
    uint64_t n_blocks, at;  /* while it is planned: blocks so far, and where the next one lies */
    uint64_t n_counts;      /* blocks of counts */
    uint32_t *sums;         /* [1 + parts + n_blocks + n_counts]: of all blocks before the end */
    unsigned char *buffers; /* [bytes]: one per thread, for rows; the first one also for small blocks */
    size_t buffer_bytes, buffer_count, bytes;
    pthread_mutex_t lock;               /* of the fields below */
    uint64_t next;                      /* the first block that no thread has taken */
    uint32_t begun;                     /* threads that have begun */
    int error;                          /* of the first write that failed */
    found_rows found[SAVED_MOST_PARTS]; /* rows that are not finite, by instance */
    uint64_t file_bytes;                /* of the whole file, once all is written */
    uint32_t end_sums;                  /* saved_end.sums of it */
    uint64_t error_bytes;
    double began;
} save_job;

FRUGAL_INTERNAL frugal_status check_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc);
FRUGAL_INTERNAL frugal_status check_replaced(const file_name *name, const frugal_save_desc *desc, const frugal *first,
                                             int *is_manifest);
FRUGAL_INTERNAL saved_part describe_part(const frugal *f);
FRUGAL_INTERNAL frugal_status write_save(save_job *job, const file_name *name);
FRUGAL_INTERNAL void begin_job(save_job *job, frugal *const *instances, const saved_file *head);
FRUGAL_INTERNAL void end_job(save_job *job, frugal_status status, int named, const saved_file *set);
FRUGAL_INTERNAL frugal_status save_as(frugal *const *instances, const saved_file *head, const frugal_save_desc *desc);
FRUGAL_INTERNAL saved_file head_of_save(frugal *const *instances, uint32_t n, int increment);

#endif

#endif
