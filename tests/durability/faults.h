/* faults.h - what the parts of faults.so share, and the log that it writes for replay.c.
 *
 * faults.so is loaded in front of the C library (LD_PRELOAD). It sees each call of a program that changes a chosen
 * folder, counts it, logs it with its data, and at the nth call causes a fault. Environment:
 *
 *     FAULTS_FOLDER=DIR   what lies in it or below is watched
 *     FAULTS_LOG=FILE     the log, appended to; none: nothing is logged
 *     FAULTS_ACKS=FILE    in this file (outside of DIR) the program reports what is done
 *     FAULTS_READS=1      reading calls are counted, too, and may fail
 *     FAULT=KIND:N[+]     at the Nth call; with +, at each from there on. KIND is
 *         kill            the process is killed before the call, as by kill -9
 *         torn            it is killed after the call; in the middle of it if it writes or reads
 *         short           the call writes or reads half
 *         eio enospc eintr  the call fails with this error; enospc: only calls that may need space
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <stddef.h>
#include <stdint.h>

/* >>log: records, one a call, in the order in which the calls took effect */

#define LOG_MAGIC 0x544c4146u /* "FALT" */
#define LOG_TYPES                                                                                                      \
    TYPE(OPEN, open)         /* path; handle; flags */                                                                 \
    TYPE(WRITE, write)       /* handle, offset, data */                                                                \
    TYPE(TRUNCATE, truncate) /* handle, length */                                                                      \
    TYPE(RESERVE, reserve)   /* handle, offset, length: the file has at least this size */                             \
    TYPE(SYNC, sync)         /* handle, of a file or a folder */                                                       \
    TYPE(MAPPED, mapped)     /* handle, offset, data: pages changed through a mapping since the record before */       \
    TYPE(MAP_SYNC, msync)    /* handle, offset, length */                                                              \
    TYPE(RENAME, rename)     /* path, second */                                                                        \
    TYPE(LINK, link)         /* path, second: the new name */                                                          \
    TYPE(UNLINK, unlink)     /* path, of a file or a folder */                                                         \
    TYPE(FOLDER, mkdir)      /* path */                                                                                \
    TYPE(CLOSE, close)       /* handle */                                                                              \
    TYPE(READ, read)         /* nothing changes; also when a mapping is made */                                        \
    TYPE(ROOT, root)         /* path: the folder; a process begins, and handles begin anew; not counted */             \
    TYPE(ACK, ack)           /* data: what the program said; not counted */

#define TYPE(name, word) LOG_##name,
enum { LOG_TYPES LOG_TYPE_COUNT };
#undef TYPE

enum { /* flags */
       LOG_CREATED = 1,
       LOG_TRUNCATED = 2,
       LOG_DURABLE = 4, /* opened with O_SYNC or O_DSYNC */
       LOG_FAILED = 8,  /* nothing happened */
       LOG_FAULT = 16   /* it failed because of FAULT, or did less than the caller wanted */
};

typedef struct log_record { /* then path, second (both with their zero), data */
    uint32_t magic, type, flags;
    uint32_t path_bytes, second_bytes;
    uint32_t zero;
    uint64_t number; /* of the call, from 1; 0: not counted */
    uint64_t handle; /* of this opening of a file */
    uint64_t offset, length, data_bytes;
} log_record;

/* >>private: of the shared library's parts */

enum { FAULTS_NAME = 4096, FAULTS_FILES = 4096 };
typedef enum { FAULT_NONE, FAULT_KILL, FAULT_TORN, FAULT_SHORT, FAULT_ERROR } fault_kind;

typedef struct watched_file { /* an open descriptor of the folder */
    int used, is_folder, durable, appends, changed, acks;
    uint64_t handle;
    char path[FAULTS_NAME];
} watched_file;

typedef struct watched_call {
    const char *path, *second;
    const void *data;
    size_t data_bytes;
    uint64_t handle, offset, length;
    uint32_t type, flags;
    int needs_space, uncounted;
    fault_kind fault; /* out: what the call has to do */
    uint64_t number;  /* out */
} watched_call;

/* Is the name below the folder? `path` is made absolute and free of links. `at` is the folder of relative names. */
int faults_watches(int at, const char *name, char path[FAULTS_NAME]);
int faults_reads(void);                             /* are reading calls counted? */
watched_file *faults_file(int fd);                  /* NULL: not watched */
watched_file *faults_add(int fd, const char *path); /* under the lock; NULL: too many */
int faults_is_acks(const char *name);               /* the file of what the program reports? */
void faults_enter(watched_call *call);              /* takes the lock, counts; a kill happens here */
int faults_refused(const watched_call *call);       /* the call is to fail: errno is set */
void faults_leave(watched_call *call, int success); /* logs, dies if torn, gives the lock back; keeps errno */
void faults_map(void *memory, size_t bytes, const watched_file *file, uint64_t offset); /* under the lock */
void faults_unmap(void *memory);
/* Where memory of a watched mapping lies in its file: `path`, `handle`, `offset` of the call. 0: it is not watched. */
int faults_mapped(const void *memory, watched_call *call);

#endif /* FAULTS_H */
