/* socket.c - messages between processes: how they find each other, and how one notices that another has ended.
 *
 * The name of an instance is the name of a socket in Linux's abstract name space, with the user's number before it. It
 * is in no folder, and disappears with the process. Messages are few: one for each process and device that joins, and
 * one for each call that reaches into the cache of another process. Steps go through mailboxes (shared.h).
 *
 * A process that ends closes its sockets, and its process descriptor (pidfd) tells of it. Both are watched. Sockets are
 * listed (forked.c), because a copy in a forked child would hide the end of its parent.
 */
#include "processes.h"

#if HAS_PROCESSES

/* The address of the name, and its length. */
FRUGAL_INTERNAL socklen_t name_address(const char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "frugal.%u.%s", (unsigned)geteuid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Finds which process is on the other side, and its user. *process is 0 if the process is not visible from here. */
FRUGAL_INTERNAL int peer_of(int socket, pid_t *process, uid_t *user) {
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) return 0;
    *process = who.pid, *user = who.uid;
    return 1;
}

/* Who has the name? Connects to find out, and sends nothing. Returns 0 if it cannot be told. */
FRUGAL_INTERNAL int holder_of(const char *name, pid_t *process, uid_t *user) {
    struct sockaddr_un address;
    socklen_t bytes = name_address(name, &address);
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int found = probe >= 0 && !connect(probe, (struct sockaddr *)&address, bytes) && peer_of(probe, process, user);
    if (probe >= 0) close(probe);
    return found;
}

/* The wait of a thread was interrupted, or the system is short of memory or descriptors. The thread tries again
 * later. */
FRUGAL_INTERNAL void pause_after_error(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* After a call on a socket: is it to be made again? Memory that is short now may be there soon: so a second is waited,
 * because the other side would wait for the message much longer. */
static int is_to_be_repeated(int *attempts) {
    if (errno == EINTR) return 1;
    if ((errno != ENOMEM && errno != ENOBUFS) || ++*attempts > 100) return 0;
    pause_after_error();
    return 1;
}

/* Sends a message, and descriptors with it. Never waits for the other side. Returns an errno; EAGAIN: the other side
 * has some hundred messages that it has not read. A message is sent whole, because the socket keeps the bounds of
 * messages. */
FRUGAL_INTERNAL int send_message(int socket, message *m, const file_list *files) {
    union {
        struct cmsghdr head;
        unsigned char bytes[CMSG_SPACE(MOST_FILES * sizeof(int))];
    } control;
    m->magic = REGION_MAGIC, m->layout = REGION_LAYOUT, m->version = FRUGAL_VERSION;
    struct iovec part = {m, sizeof *m};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    if (files && files->n > 0) {
        memset(&control, 0, sizeof control);
        head.msg_control = control.bytes, head.msg_controllen = CMSG_SPACE(files->n * sizeof(int));
        control.head = (struct cmsghdr){CMSG_LEN(files->n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), files->files, files->n * sizeof(int));
    }
    ssize_t sent;
    int attempts = 0;
    do sent = sendmsg(socket, &head, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && is_to_be_repeated(&attempts));
    return sent < 0 ? errno : 0;
}

/* Receives a message. Returns 1; 0 if the other side has closed the socket; or -1 if what came is no message. `files`
 * NULL: no descriptors are expected. */
FRUGAL_INTERNAL int receive_message(int socket, message *m, file_list *files) {
    union {
        struct cmsghdr head;
        unsigned char bytes[CMSG_SPACE(MOST_FILES * sizeof(int))];
    } control;
    struct iovec part = {m, sizeof *m};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    if (files) files->n = 0, files->cut = 0, head.msg_control = control.bytes, head.msg_controllen = sizeof control;
    ssize_t got;
    int attempts = 0;
    do got = recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
    while (got < 0 && is_to_be_repeated(&attempts));
    const struct cmsghdr *c = files && got > 0 ? CMSG_FIRSTHDR(&head) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        files->n = (uint32_t)LEAST((c->cmsg_len - CMSG_LEN(0)) / sizeof(int), MOST_FILES);
        memcpy(files->files, CMSG_DATA(c), files->n * sizeof(int));
    }
    if (files && got > 0) files->cut = (head.msg_flags & MSG_CTRUNC) != 0;
    if (got <= 0) return 0;
    return got == (ssize_t)sizeof *m && m->magic == REGION_MAGIC ? 1 : -1;
}

/* A descriptor that becomes readable when the process ends; -1: the system has none, so only the socket is watched. */
FRUGAL_INTERNAL int watch_process(pid_t process) {
#if defined(SYS_pidfd_open)
    return process > 0 ? (int)syscall(SYS_pidfd_open, process, 0) : -1;
#else
    (void)process;
    return -1;
#endif
}

/* `call` cannot have or find the name, because of `error`, an errno. */
FRUGAL_INTERNAL frugal_status fail_door(const char *call, const char *what, int error, const char *name) {
    return frugal_fail(FRUGAL_ERR_PROCESS, "%s: %s for the name %s: %s", call, what, name, error_text(error));
}

#endif
