/* instance.h - what opening, joining and serving make alike; devices are attached.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_INSTANCE_H
#define FRUGAL_INSTANCE_H

#include "../calls/calls.h"

/* memory_limit.c */

FRUGAL_INTERNAL frugal_status check_memory(frugal *f, const char *root, uint64_t bytes, const char *what,
                                           const char *remedy);

/* instance.c */

FRUGAL_INTERNAL void open_locks(frugal *f);
FRUGAL_INTERNAL uint32_t bits_of_rows(uint64_t rows);
FRUGAL_INTERNAL uint32_t record_stride_of(uint32_t dim);
FRUGAL_INTERNAL frugal_status open_copies(frugal *f, const frugal_desc *desc);
FRUGAL_INTERNAL uint64_t take_bytes(uint64_t *at, uint64_t bytes);
FRUGAL_INTERNAL size_t lay_batches(const frugal *f, host_device *device);
FRUGAL_INTERNAL frugal_status open_device_list(frugal *f);
FRUGAL_INTERNAL size_t sort_bytes_of(const frugal *f);
FRUGAL_INTERNAL frugal_status open_own(frugal *f, host_device *device);
FRUGAL_INTERNAL void close_devices(frugal *f);
FRUGAL_INTERNAL void close_device_list(frugal *f);
FRUGAL_INTERNAL void close_copies(frugal *f);
FRUGAL_INTERNAL void close_locks(frugal *f);

/* attach.c */

typedef struct remote_process { /* for which a device is attached */
    uint32_t process;
    atomic_word *gates; /* its word */
} remote_process;

FRUGAL_INTERNAL frugal_status attach_device(frugal *f, uint32_t d, const frugal_device_ops *ops, void *state,
                                            const remote_process *other);

#endif
