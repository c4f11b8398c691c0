/* ground.h - what the host needs of a system: errors, sleeping, memory, files, sockets, threads.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_GROUND_H
#define FRUGAL_GROUND_H

#include "../host.h"

#include <limits.h>
#if defined(__linux__)
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#endif

/* forked.c */

FRUGAL_INTERNAL void list_file(int file);
FRUGAL_INTERNAL void close_file(int *file);
FRUGAL_INTERNAL int is_this_process(uint32_t process);

/* errors.c */

FRUGAL_INTERNAL_DATA _Thread_local char last_message[512];
FRUGAL_INTERNAL void copy_text(char *to, size_t size, const char *text);
FRUGAL_INTERNAL const char *error_text(int error);
FRUGAL_INTERNAL frugal_status fail_memory(const char *what, uint64_t bytes);
FRUGAL_INTERNAL frugal_status fail_stopped(const char *call);
FRUGAL_INTERNAL frugal_status fail_ahead(const char *call, uint32_t d, uint64_t step);
FRUGAL_INTERNAL frugal_status fail_given(const char *call, uint32_t d, uint64_t step);
FRUGAL_INTERNAL frugal_status fail_order(const char *call, uint32_t d, uint64_t step, const char *expected,
                                         uint64_t next);
FRUGAL_INTERNAL frugal_status fail_forked(uint32_t process, const char *call);
FRUGAL_INTERNAL frugal_status check_open(const frugal *f, const char *call);
FRUGAL_INTERNAL int is_usable(const frugal *f);
FRUGAL_INTERNAL frugal_status check_owner(const frugal *f, const char *call);
FRUGAL_INTERNAL frugal_status check_device(const frugal *f, uint32_t d, const char *call);
FRUGAL_INTERNAL int is_elsewhere(const frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status fail_elsewhere(const frugal *f, uint32_t d, const char *call);
FRUGAL_INTERNAL frugal_status check_own(frugal *f, uint32_t d, const char *call);

/* event.c */

#define FOREVER 1e6 /* seconds */

FRUGAL_INTERNAL uint32_t event_prepare(host_event *event);
FRUGAL_INTERNAL void event_sleep(host_event *event, uint32_t seen, double seconds);
FRUGAL_INTERNAL void event_notify(host_event *event);
FRUGAL_INTERNAL void event_rouse(host_event *event);
FRUGAL_INTERNAL double clock_now(void);

/* memory.c */

#define HUGE_PAGE (UINT64_C(2) << 20)

typedef struct page_sizes { /* of memory that is there; both 0: the system does not say */
    uint64_t resident, huge;
} page_sizes;

FRUGAL_INTERNAL size_t page_unit(void);
FRUGAL_INTERNAL size_t whole_pages(size_t bytes);
FRUGAL_INTERNAL void keep_from_children(void *memory, size_t bytes);
FRUGAL_INTERNAL unsigned char *map_aligned(size_t whole, size_t unit, int protection);
FRUGAL_INTERNAL int is_large(size_t bytes);
FRUGAL_INTERNAL void ask_for_huge_pages(void *memory, size_t whole);
FRUGAL_INTERNAL page_sizes read_page_sizes(const frugal_memory *parts, uint32_t n);
FRUGAL_INTERNAL void *allocate_memory(const frugal_desc *desc, size_t bytes, size_t alignment);
FRUGAL_INTERNAL void release_memory(const frugal_desc *desc, void *memory, size_t bytes);

/* numa.c */

FRUGAL_INTERNAL memory_nodes find_nodes(void);
FRUGAL_INTERNAL void interleave(frugal *f, void *memory, size_t bytes);
FRUGAL_INTERNAL int move_to_node(void *memory, size_t bytes, uint32_t node);

/* size_limit.c */

typedef struct size_signal { /* the state of SIGXFSZ before */
    sigset_t mask;
    int pending;
} size_signal;

FRUGAL_INTERNAL size_signal hold_size_signal(void);
FRUGAL_INTERNAL void release_size_signal(const size_signal *saved);
FRUGAL_INTERNAL int set_file_size(int file, uint64_t bytes);
FRUGAL_INTERNAL int reserve_pages(int file, uint64_t at, size_t bytes);

/* region.c */

/* A part of the header, or NULL without a region. */
#define REGION_PART(f, part) ((f)->shared.region ? &(f)->shared.region->part : NULL)

FRUGAL_INTERNAL frugal_status fail_unsupported(const char *call);
FRUGAL_INTERNAL int make_memory_file(const char *name);
FRUGAL_INTERNAL void *map_part(int file, memory_part part, int protection);
FRUGAL_INTERNAL void unmap_part(void *memory, uint64_t bytes);
FRUGAL_INTERNAL void *map_own(int file, memory_part part, int protection);
FRUGAL_INTERNAL void *map_private(int file, size_t bytes);
FRUGAL_INTERNAL void make_present(const void *memory, size_t bytes);
FRUGAL_INTERNAL int make_resident(int file, memory_part part, void *memory);
FRUGAL_INTERNAL memory_part gates_part(void);
FRUGAL_INTERNAL int reserve_part(frugal *f, uint64_t bytes, memory_part *part);
FRUGAL_INTERNAL void *allocate_shared(frugal *f, size_t bytes, size_t alignment, memory_part *part);
FRUGAL_INTERNAL void free_shared(frugal *f, void *memory, size_t bytes);
FRUGAL_INTERNAL frugal_status open_region(frugal *f);
FRUGAL_INTERNAL void close_region(frugal *f);
FRUGAL_INTERNAL int fix_shared(frugal *f, uint64_t step, float lr, float scale, step_settings *fixed);
FRUGAL_INTERNAL size_t count_bytes(const frugal *f);
FRUGAL_INTERNAL uint64_t inbox_bytes(const frugal *f);
FRUGAL_INTERNAL posted_batch *posted_at(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void reset_mail(mailbox *mail, uint64_t step);

/* crc32c.c */

FRUGAL_INTERNAL uint32_t crc32c(uint32_t before, const void *data, size_t bytes);

/* file.c */

#ifdef PATH_MAX
#define LONGEST_PATH PATH_MAX /* as realpath wants */
#else
#define LONGEST_PATH 4096
#endif
#define LONGEST_ENTRY 255 /* bytes of a name in a folder */

#define TRACE_BEGIN "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["
#define END_OF_FILE -1 /* besides the values of errno: the file ends too early */

typedef struct file_name {   /* what a name stands for */
    char path[LONGEST_PATH]; /* absolute and without links; its folder exists, the file need not */
    int there;               /* 1: a regular file exists */
    struct stat status;      /* of that file */
} file_name;

typedef struct new_file { /* a file with a temporary name until it is published; made by begin_file */
    int file, folder;     /* descriptors; -1: none */
    const file_name *name;
    char temporary[LONGEST_ENTRY + 1]; /* name in the folder; empty: none any more */
    int named;                         /* it has the wanted name */
} new_file;

FRUGAL_INTERNAL frugal_status fail_system(const char *what, int error, const char *name);
FRUGAL_INTERNAL frugal_status fail_write(uint64_t bytes, int error, const char *name);
FRUGAL_INTERNAL frugal_status find_file(const char *name, file_name *out);
FRUGAL_INTERNAL frugal_status open_found(const file_name *name, int flags, int *file);
FRUGAL_INTERNAL int is_named(const file_name *name, int file);
FRUGAL_INTERNAL int lock_file(int file);
FRUGAL_INTERNAL int share_lock(int file);
FRUGAL_INTERNAL int write_at(int file, const void *data, size_t bytes, uint64_t at);
FRUGAL_INTERNAL int read_at(int file, void *data, size_t bytes, uint64_t at);
FRUGAL_INTERNAL frugal_status read_beginning(const file_name *name, const char *path, void *begins, size_t bytes,
                                             int *whole);
FRUGAL_INTERNAL int grow_file(int file, uint64_t bytes, int sparse);
FRUGAL_INTERNAL int has_holes(int file, const struct stat *now);
FRUGAL_INTERNAL int sync_file(int file);
FRUGAL_INTERNAL uint64_t draw_number(void);
FRUGAL_INTERNAL size_t temporary_of(const char *entry);
FRUGAL_INTERNAL void remove_left(const char *folder, int (*wanted)(const void *of, const char *entry), const void *of);
FRUGAL_INTERNAL void folder_of(const file_name *name, char folder[LONGEST_PATH]);
FRUGAL_INTERNAL frugal_status begin_file(new_file *n, const file_name *name);
FRUGAL_INTERNAL void drop_new(new_file *n);
FRUGAL_INTERNAL int take_name(new_file *n, int replace);
FRUGAL_INTERNAL frugal_status publish_new(new_file *n, int replace);

/* parallel.c */

#define MOST_PARALLEL 16u /* threads that read or write a file: more do not make a disk faster */

FRUGAL_INTERNAL int start_quiet_thread(pthread_t *thread, void *(*function)(void *argument), void *argument);
FRUGAL_INTERNAL void run_parallel(uint32_t n, void *(*function)(void *argument), void *argument);

#endif
