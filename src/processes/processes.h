/* processes.h - other processes join an instance, and bring devices.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_PROCESSES_H
#define FRUGAL_PROCESSES_H

#include "../instance/instance.h"

enum { MOST_NAME = 64 }; /* bytes of an instance's name */

#if HAS_PROCESSES

/* socket.c */

enum { MOST_FILES = 4 }; /* descriptors that a message may carry */

typedef enum {
    MESSAGE_HELLO,  /* from a process that joins: its layout and version */
    MESSAGE_ATTACH, /* ... it attaches device `d` to itself; `flags` */
    MESSAGE_COUNT,  /* ... touches are to be counted */
    MESSAGE_LEAVE,  /* ... it leaves */
    MESSAGE_ANSWER, /* from the process that opened: to one of these; with descriptors to MESSAGE_HELLO */
    MESSAGE_CALL    /* from the process that opened: an operation of device `d`; answered in its mailbox */
} message_kind;

enum { ATTACH_IN_PLACE = 1, ATTACH_KEEPS = 2, ATTACH_POLLS = 4, ATTACH_WAITS = 8 }; /* flags */

typedef enum {
    CALL_WRITE_BACK,
    CALL_RECALL, /* of `step` */
    CALL_PRELOAD,
    CALL_REFRESH,
    CALL_VERIFY,
    CALL_EMPTY,
    CALL_RECOUNT,
    CALL_CANCELLED
} call_kind;

#define CALL_ALL UINT32_MAX /* n of CALL_WRITE_BACK: all rows */

typedef struct message {
    uint64_t magic;
    uint32_t layout, version;
    int32_t kind, status;
    uint32_t d, flags, call, n;
    uint64_t number, step;
    char text[256];
} message;

typedef struct file_list {
    uint32_t n;
    int files[MOST_FILES];
    int cut; /* more were sent, and this process may have no more */
} file_list;

FRUGAL_INTERNAL socklen_t name_address(const char *name, struct sockaddr_un *address);
FRUGAL_INTERNAL int peer_of(int socket, pid_t *process, uid_t *user);
FRUGAL_INTERNAL int holder_of(const char *name, pid_t *process, uid_t *user);
FRUGAL_INTERNAL void pause_after_error(void);
FRUGAL_INTERNAL int send_message(int socket, message *m, const file_list *files);
FRUGAL_INTERNAL int receive_message(int socket, message *m, file_list *files);
FRUGAL_INTERNAL int watch_process(pid_t process);
FRUGAL_INTERNAL frugal_status fail_door(const char *call, const char *what, int error, const char *name);

/* post.c */

struct controller { /* the process that opened the instance, as one that has joined sees it */
    int socket, watch;
    uint32_t process;
    pthread_t thread, poster;
    int started, posts;              /* the two threads run */
    FRUGAL_ATOMIC(uint32_t) settles; /* 1: the poster returns when all is done; relaxed: the event tells of it */
    pthread_mutex_t lock;            /* one thread asks at a time; it waits for the answer */
    pthread_mutex_t answer_lock;     /* of all below, as far as `is_over` */
    pthread_cond_t answered;
    uint64_t asked; /* number of the last question */
    message answer, over;
    int has_answer, is_over;         /* is_over: the other side has ended, and `over` is the answer to every question */
    FRUGAL_ATOMIC(uint32_t) leaving; /* relaxed: it only tells what the end of the socket means */
    void *event_memory, *gates_memory;
    int table_file;
};

/* What a call waits for in the mailbox. */
typedef struct post_wait {
    int (*ready)(const frugal *f, const struct post_wait *what);
    uint32_t d;
    uint64_t step;
    const char *call;
} post_wait;

FRUGAL_INTERNAL void end_joined(frugal *f, uint32_t lost, const char *text);
FRUGAL_INTERNAL void stop_joined(frugal *f);
FRUGAL_INTERNAL void learn_end(frugal *f);
FRUGAL_INTERNAL frugal_status wait_posted(frugal *f, const post_wait *what);
FRUGAL_INTERNAL uint64_t next_posted(const frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status post_batch(frugal *f, const announcement *a);
FRUGAL_INTERNAL void post_finish(frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status pass_posted_gate(frugal *f, uint32_t d, uint64_t step, int wait);
FRUGAL_INTERNAL frugal_status begin_posted_writing(frugal *f, uint32_t d, const char *call);
FRUGAL_INTERNAL void end_posted_writing(frugal *f, uint32_t d, uint64_t writers);
FRUGAL_INTERNAL void post_update(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients);
FRUGAL_INTERNAL int committed_posts(const frugal *f, const post_wait *what);
FRUGAL_INTERNAL frugal_status await_posted_block(frugal *f, uint32_t d, uint64_t step, const char *call);
FRUGAL_INTERNAL void post_kept(frugal *f, uint32_t d, uint64_t kept, uint64_t written_back, uint64_t now);
FRUGAL_INTERNAL void post_loss(frugal *f, uint32_t d, const char *text);
FRUGAL_INTERNAL int has_unposted(const frugal *f);
FRUGAL_INTERNAL int poll_posts(frugal *f);
FRUGAL_INTERNAL frugal_status open_poster(frugal *f);
FRUGAL_INTERNAL void close_poster(frugal *f);

/* remote.c */

typedef struct member { /* a process that has joined */
    int socket, watch;
    uint32_t process;
    int welcomed;
    atomic_word *gates; /* its word (stream_gates.c); NULL: it has not been welcomed */
    pthread_mutex_t sending;
    FRUGAL_ATOMIC(uint32_t) gone; /* it has left, has ended, or was dismissed; set once */
    int ended;                    /* it has ended, which its descriptor tells; the doorman's */
} member;

typedef struct remote {
    frugal *f;
    uint32_t d;
    member *member;
    mailbox *mail;
    uint32_t flags;          /* of MESSAGE_ATTACH */
    pthread_mutex_t serving; /* held by the thread that serves its posts, or cancels them */
    pthread_mutex_t calling; /* one call at a time */
    uint64_t calls;
    uint64_t kept, written_back;        /* the part of the mailbox's counts that is counted here */
    uint64_t recalls[FRUGAL_P2F_SLOTS]; /* by step mod 64: number of its last CALL_RECALL */
    uint64_t asked_early;               /* step + 1 of a recall that can only begin when the step before is done */
    int waits;                          /* a lookup waits at its gate */
    double since, met;                  /* if it waits: when that began; when all had committed, or 0 */
    gate_watch watch;                   /* of that wait */
} remote;

FRUGAL_INTERNAL remote *remote_of(const frugal *f, uint32_t d);
FRUGAL_INTERNAL void count_remote_kept(remote *r);
FRUGAL_INTERNAL void remote_close(void *device);
FRUGAL_INTERNAL frugal_device_ops remote_operations_of(uint32_t flags);
FRUGAL_INTERNAL int take_update(remote *r);
FRUGAL_INTERNAL void take_last(remote *r);
FRUGAL_INTERNAL_DATA const post_ops served_posts;

/* join.c */

FRUGAL_INTERNAL void free_controller(frugal *f);

/* door.c */

FRUGAL_INTERNAL frugal_status open_door(frugal *f);
FRUGAL_INTERNAL frugal_status open_name(frugal *f);
FRUGAL_INTERNAL void open_to_others(frugal *f);
FRUGAL_INTERNAL frugal_status close_door(frugal *f);
FRUGAL_INTERNAL void end_doorman(frugal *f);
FRUGAL_INTERNAL void free_door(frugal *f);

#else /* frugal_desc.name was refused by open_region */

static inline frugal_status open_door(frugal *f) {
    return (void)f, FRUGAL_OK;
}
static inline frugal_status open_name(frugal *f) {
    return (void)f, FRUGAL_OK;
}
static inline frugal_status close_door(frugal *f) {
    return (void)f, FRUGAL_OK;
}
static inline void open_to_others(frugal *f) {
    (void)f;
}
static inline void end_doorman(frugal *f) {
    (void)f;
}
static inline void free_door(frugal *f) {
    (void)f;
}
static inline void free_controller(frugal *f) {
    (void)f;
}

#endif

#endif
