/* door.c - in the process that opened an instance: other processes join it here, and their end is noticed.
 *
 * One thread of the instance, the doorman, sleeps until a process knocks, a message comes, or a process ends. It takes
 * no part in steps.
 *
 * Contents: >>members >>doorman >>opening
 */
#include "processes.h"

#if HAS_PROCESSES

enum { MOST_MEMBERS = FRUGAL_MAX_DEVICES };

struct door {
    frugal *f;
    char name[MOST_NAME + 1];
    int listening, wake;
    pthread_t doorman;
    int started;
    pthread_mutex_t opening; /* held by the thread that opens the instance, until it is open or has failed */
    int is_opening;          /* 1: it is held */
    uint32_t n;              /* members. Only the doorman uses this and the next field */
    member *members[MOST_MEMBERS];
};

/* >>members - join, attach devices, leave, end */

static void free_member(member *m) {
    unmap_part(m->gates, gates_part().bytes);
    shutdown(m->socket, SHUT_RDWR); /* also where a child has a copy; what was sent can still be read */
    close_file(&m->socket);
    close_file(&m->watch);
    pthread_mutex_destroy(&m->sending);
    free(m);
}

/* Makes the word by which streams of the process wait for gates. Returns its file, or -1: see errno. */
static int make_gates(const frugal *f, member *m) {
    int file = make_memory_file("frugal gates");
    if (file < 0) return -1;
    unmap_part(m->gates, gates_part().bytes); /* an earlier attempt has failed after this */
    int error = set_file_size(file, page_unit());
    if (!error && !(m->gates = map_own(file, gates_part(), PROT_READ | PROT_WRITE))) error = ENOMEM;
    if (!error) error = make_resident(file, gates_part(), m->gates) ? 0 : ENOMEM;
    if (!error) frugal_store_relaxed(m->gates, f->desc.first_step); /* relaxed: the process has not joined yet */
    if (error) close(file), file = -1, errno = error;
    return file;
}

/* What a process needs to join: descriptors of the region, of the event, of its gates, and of the table's file if there
 * is one; the first two stay open. The table's file is opened anew, because a passed copy of its descriptor would keep
 * its lock after this process has ended. Returns an errno. */
static int welcome_files(const frugal *f, member *m, file_list *files) {
    *files = (file_list){.n = 3, .files = {f->shared.file, f->workers->event_file, make_gates(f, m)}};
    if (files->files[2] < 0) return files->n = 0, errno;
    if (!f->file) return 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->file->file);
    files->files[3] = open(path, O_RDWR | O_CLOEXEC);
    if (files->files[3] < 0) return errno;
    files->n = 4;
    return 0;
}

static void fail_answer(message *answer, frugal_status status) {
    answer->status = status; /* its number is set already: that of the question */
    copy_text(answer->text, sizeof answer->text, status == FRUGAL_OK ? "" : last_message);
}

static frugal_status check_welcomed(const member *m) {
    return m->welcomed ? FRUGAL_OK : frugal_fail(FRUGAL_ERR_PROCESS, "process %u has not been welcomed", m->process);
}

/* Has the process attached the device already, in the same way? Its first question may have been answered too late. */
static int has_attached(const frugal *f, const member *m, const message *asked) {
    const remote *r = asked->d < f->desc.devices ? remote_of(f, asked->d) : NULL;
    return r && r->member == m && r->flags == asked->flags &&
           frugal_load_relaxed(&f->devices[asked->d].handed) == f->desc.first_step; /* relaxed: nothing is read */
}

/* Attaches the device for the other process. */
static frugal_status attach_remote(struct door *door, member *m, const message *asked) {
    frugal *f = door->f;
    uint32_t d = asked->d;
    frugal_status status = check_welcomed(m);
    if (status == FRUGAL_OK && has_attached(f, m, asked)) return FRUGAL_OK;
    if (status == FRUGAL_OK) status = frugal_may_attach(f, d);
    if (status != FRUGAL_OK) return status;
    remote *r = calloc(1, sizeof *r);
    if (!r) return fail_memory("a device of another process", sizeof *r);
    host_device *device = &f->devices[d];
    /* mapped already: an earlier attempt has failed after this */
    if (!device->inbox) device->inbox = map_own(f->shared.file, f->shared.parts[d].inbox, PROT_READ | PROT_WRITE);
    if (!device->inbox) {
        free(r);
        return fail_memory("batches on their way", f->shared.parts[d].inbox.bytes);
    }
    r->f = f, r->d = d, r->member = m, r->mail = device->box;
    r->flags = asked->flags;
    pthread_mutex_init(&r->serving, NULL);
    pthread_mutex_init(&r->calling, NULL);
    const frugal_device_ops ops = remote_operations_of(r->flags);
    status = attach_device(f, d, &ops, r, &(remote_process){m->process, m->gates});
    if (status != FRUGAL_OK) remote_close(r);
    return status;
}

/* Counts what the device has reported last. The caller holds `serving`. */
static void count_last(frugal *f, remote *r) {
    hold_copies(&f->devices[r->d]);
    lock_polling(f); /* where a device with `poll` is counted */
    count_remote_kept(r);
    pthread_mutex_unlock(&f->polling.lock);
    release_copies(&f->devices[r->d]);
}

/* Takes the device's last post first, because the device has done that step. */
static void lose_remote(frugal *f, remote *r, const char *how) {
    pthread_mutex_lock(&r->serving);
    take_last(r);
    count_last(f, r);
    lock_polling(f);
    frugal_fail(FRUGAL_ERR_LOST, "process %u, which had the device, %s", r->member->process, how);
    lose_device(f, r->d);
    pthread_mutex_unlock(&f->polling.lock);
    pthread_mutex_unlock(&r->serving);
}

/* Can the others do without a device whose process is gone? Yes if it keeps nothing, and one of two things holds: its
 * process has left after a stop; or it has updated all that it announced, and its data has ended or its process has
 * left. */
static int may_spare(frugal *f, const remote *r, int left) {
    mailbox *mail = r->mail; /* relaxed, all: the process is gone */
    if (frugal_load_relaxed(&mail->kept_now) > 0) return 0;
    if (left && frugal_load_relaxed(&f->stopped)) return 1;
    if (r->flags & ATTACH_POLLS && frugal_load_relaxed(&mail->done) != frugal_load_relaxed(&mail->updated)) return 0;
    return frugal_load_relaxed(&mail->updated) == frugal_load_relaxed(&mail->announced) &&
           (left || frugal_load_relaxed(&mail->finished));
}

/* Takes the device's last post, and ends its data. */
static void spare(frugal *f, remote *r) {
    if (is_lost(f) || frugal_load_relaxed(&f->stopped)) return; /* relaxed: take_update asks again */
    pthread_mutex_lock(&r->serving);
    take_update(r);
    count_last(f, r);
    pthread_mutex_unlock(&r->serving);
    finish_device(f, r->d);
}

/* A process has ended: it writes nothing any more. */
static void end_member(struct door *door, member *m) {
    m->ended = 1;
    for (uint32_t d = 0; d < door->f->desc.devices; d++) {
        remote *r = remote_of(door->f, d);
        if (!r || r->member != m) continue;
        uint32_t state = frugal_load_relaxed(&r->mail->state);                     /* relaxed: the process has ended */
        frugal_add_release(&r->mail->state, 0u - (state & ~(uint32_t)MAIL_ENDED)); /* [F36] */
    }
    event_rouse(door->f->event);
}

/* Has the process ended? Without a descriptor that tells, the end of its socket says so. */
static int has_ended(const member *m) {
    struct pollfd watched = {m->watch, POLLIN, 0};
    return m->watch < 0 || poll(&watched, 1, 0) > 0;
}

typedef enum { MEMBER_LEFT, MEMBER_ENDED, MEMBER_DEAF, MEMBER_UNCLEAR } member_end;

/* A process has left, or has ended, or is dismissed. Called once for each, because its socket is not watched any more.
 * One that still lives may be writing rows; who reads them waits until it has written, or has ended. */
static void dismiss(struct door *door, member *m, member_end how) {
    static const char *const texts[] = {[MEMBER_LEFT] = "has left before the end of its data",
                                        [MEMBER_ENDED] = "has ended",
                                        [MEMBER_DEAF] = "was dismissed, because it has not read hundreds of messages",
                                        [MEMBER_UNCLEAR] =
                                            "was dismissed, because it has sent what is no message of this version"};
    frugal *f = door->f;
    int left = how == MEMBER_LEFT;
    if (how == MEMBER_ENDED && has_ended(m)) end_member(door, m);
    frugal_store_release(&m->gone, 1);                      /* [F40] pairs with [F39] */
    if (how != MEMBER_LEFT) shutdown(m->socket, SHUT_RDWR); /* if it is still there, it learns of this */
    event_rouse(f->event);                                  /* a thread may wait for an answer from it */
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        remote *r = remote_of(f, d);
        if (!r || r->member != m) continue;
        if (may_spare(f, r, left))
            spare(f, r);
        else
            lose_remote(f, r, texts[how]);
    }
    event_rouse(f->event);
}

/* Has the process a device? */
static int has_device(const struct door *door, const member *m) {
    for (uint32_t d = 0; d < door->f->desc.devices; d++) {
        const remote *r = remote_of(door->f, d);
        if (r && r->member == m) return 1;
    }
    return 0;
}

/* Frees the places of processes that are gone and have had no device. */
static void forget_members(struct door *door) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < door->n; i++) {
        member *m = door->members[i];
        if (!frugal_load_relaxed(&m->gone) || has_device(door, m)) /* relaxed: only this thread sets it */
            door->members[kept++] = m;
        else
            free_member(m);
    }
    door->n = kept;
}

/* Sends an answer. A process that reads none is dismissed, so that it keeps nobody waiting; one that has ended is
 * noticed. */
static void answer_with(struct door *door, member *m, message *answer, const file_list *files) {
    pthread_mutex_lock(&m->sending);
    int error = send_message(m->socket, answer, files);
    if (error && error != EAGAIN && files) { /* descriptors cannot be sent: too many are on their way */
        answer->status = FRUGAL_ERR_PROCESS;
        snprintf(answer->text, sizeof answer->text, "the descriptors that joining needs cannot be sent: %s",
                 error_text(error));
        error = send_message(m->socket, answer, NULL);
    }
    pthread_mutex_unlock(&m->sending);
    if (error == EAGAIN && !frugal_load_relaxed(&m->gone)) dismiss(door, m, MEMBER_DEAF); /* relaxed: set here alone */
}

static void say_hello(struct door *door, member *m, const message *hello) {
    message answer = {.kind = MESSAGE_ANSWER, .number = hello->number};
    file_list files = {0};
    frugal_status status = FRUGAL_OK;
    int error = 0;
    if (hello->layout != REGION_LAYOUT || hello->version != FRUGAL_VERSION)
        status = frugal_fail(
            FRUGAL_ERR_PROCESS,
            "this process has Frugal %u, layout %u, and the one that opened the instance %u, %u: use one version",
            hello->version, hello->layout, (unsigned)FRUGAL_VERSION, REGION_LAYOUT);
    else if (m->welcomed)
        status = frugal_fail(FRUGAL_ERR_PROCESS, "process %u has been welcomed already", m->process);
    else if ((error = welcome_files(door->f, m, &files)) != 0)
        status =
            frugal_fail(error == ENOMEM || error == ENOSPC ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_FILE,
                        "the process that opened the instance cannot make what joining needs: %s", error_text(error));
    fail_answer(&answer, status);
    m->welcomed |= status == FRUGAL_OK;
    answer_with(door, m, &answer, &files);
    for (uint32_t i = 2; i < files.n; i++) close(files.files[i]);
}

static void answer_member(struct door *door, member *m) {
    message asked, answer = {.kind = MESSAGE_ANSWER};
    frugal_status status;
    int got = receive_message(m->socket, &asked, NULL);
    if (got <= 0) {
        dismiss(door, m, got == 0 ? MEMBER_ENDED : MEMBER_UNCLEAR);
        return;
    }
    answer.number = asked.number;
    switch (asked.kind) {
    case MESSAGE_HELLO:
        say_hello(door, m, &asked);
        return;
    case MESSAGE_ATTACH:
        fail_answer(&answer, attach_remote(door, m, &asked));
        break;
    case MESSAGE_COUNT:
        status = check_welcomed(m);
        fail_answer(&answer, status == FRUGAL_OK ? frugal_begin_counting(door->f) : status);
        break;
    case MESSAGE_LEAVE:
        dismiss(door, m, MEMBER_LEFT);
        break;
    default:
        dismiss(door, m, MEMBER_UNCLEAR);
        return;
    }
    answer_with(door, m, &answer, NULL);
}

/* Members without a device of the process. */
static uint32_t idle_members_of(const struct door *door, uint32_t process) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < door->n; i++)
        n += door->members[i]->process == process && !has_device(door, door->members[i]);
    return n;
}

/* Places or descriptors are short: dismisses a member that has no device, the oldest one of the process that has most
 * of them. So one process that connects without end takes only its own places. */
static void make_room(struct door *door) {
    message farewell = {.kind = MESSAGE_ANSWER, .status = FRUGAL_ERR_PROCESS}; /* number 0: the last one */
    member *idlest = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < door->n; i++) {
        member *m = door->members[i];
        uint32_t n = has_device(door, m) ? 0 : idle_members_of(door, m->process);
        if (n > most) most = n, idlest = m;
    }
    if (!idlest) return;
    snprintf(farewell.text, sizeof farewell.text,
             "dismissed, because others wanted to join, and this process had %u connections without a device; join "
             "again, and attach a device",
             most);
    send_message(idlest->socket, &farewell, NULL); /* may fail: it reads nothing */
    dismiss(door, idlest, MEMBER_LEFT);
    forget_members(door);
}

/* A process knocks. It is admitted if its user is this one, or root. */
static void admit(struct door *door) {
    pid_t process = 0;
    uid_t user = 0;
    int socket = accept4(door->listening, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) {
        if (errno == EMFILE || errno == ENFILE) make_room(door);
        pause_after_error(); /* the process goes on knocking */
        return;
    }
    int is_ours = peer_of(socket, &process, &user) && (user == geteuid() || user == 0);
    if (is_ours && door->n == MOST_MEMBERS) make_room(door);
    member *m = is_ours && door->n < MOST_MEMBERS ? calloc(1, sizeof *m) : NULL;
    if (!m) {
        close(socket);
        return;
    }
    m->socket = socket, m->process = (uint32_t)process, m->watch = watch_process(process);
    list_file(socket);
    pthread_mutex_init(&m->sending, NULL);
    door->members[door->n++] = m;
}

/* >>doorman */

static void *doorman_main(void *argument) {
    struct door *door = argument;
    pthread_mutex_lock(&door->opening);
    pthread_mutex_unlock(&door->opening);
    for (;;) {
        struct pollfd watched[2 + 2 * MOST_MEMBERS] = {{door->listening, POLLIN, 0}, {door->wake, POLLIN, 0}};
        uint32_t members = door->n;
        for (uint32_t i = 0; i < members; i++) {
            const member *m = door->members[i];
            int gone = frugal_load_relaxed(&m->gone) != 0; /* relaxed: only this thread sets it */
            watched[2 + 2 * i] = (struct pollfd){gone ? -1 : m->socket, POLLIN, 0};
            watched[3 + 2 * i] = (struct pollfd){m->ended ? -1 : m->watch, POLLIN, 0};
        }
        if (poll(watched, 2 + 2 * members, -1) < 0) {
            pause_after_error();
            continue;
        }
        if (watched[1].revents) return NULL;
        for (uint32_t i = 0; i < members; i++) { /* a member's last messages come before its end */
            if (watched[2 + 2 * i].revents)
                answer_member(door, door->members[i]);
            else if (watched[3 + 2 * i].revents && frugal_load_relaxed(&door->members[i]->gone)) /* relaxed, as above */
                end_member(door, door->members[i]);
            else if (watched[3 + 2 * i].revents)
                dismiss(door, door->members[i], MEMBER_ENDED);
        }
        forget_members(door);
        if (watched[0].revents) admit(door);
    }
}

/* >>opening */

/* Writes what other processes need to know. Pointers of this process are left out. */
static frugal_status describe_region(frugal *f) {
    region_header *r = f->shared.region;
    size_t bytes = f->desc.n_tables * sizeof(shared_table);
    shared_table *tables = allocate_shared(f, bytes, CACHE_LINE, &r->tables);
    if (!tables) return fail_memory("table settings", bytes);
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        tables[t] = (shared_table){f->tables[t], *f->tables[t].optimizer};
        tables[t].table.source = NULL, tables[t].table.optimizer = NULL;
    }
    unmap_part(tables, bytes);
    r->desc = f->desc, r->store = f->store;
    r->desc.tables = NULL, r->desc.shared_workers = NULL, r->desc.weights = r->desc.state = NULL;
    r->desc.file = r->desc.name = NULL, r->desc.saved = NULL, r->desc.n_saved = 0;
    r->desc.allocate = NULL, r->desc.release = NULL, r->desc.notice = NULL, r->desc.user = NULL;
    r->store.weights = r->store.state = NULL, r->store.groups = NULL, r->store.first_row = NULL;
    r->store.n_groups = 0;
    if (f->store.state && !f->memory.state)
        r->state_behind = (uint64_t)((unsigned char *)f->store.state - (unsigned char *)f->store.weights);
    r->p2f_bytes = f->p2f_bytes;
    r->batch_bytes = f->batch_bytes, r->block_bytes = f->block_bytes, r->block_stride = f->block_stride;
    r->table_is_file = f->file != NULL;
    if (f->file)
        r->table = (memory_part){(uint64_t)((unsigned char *)f->memory.table - (unsigned char *)f->file->map),
                                 f->memory.table_bytes};
    return FRUGAL_OK;
}

/* The name is taken: by whom? */
static frugal_status fail_name_taken(const char *name) {
    pid_t process = 0;
    uid_t user = 0;
    if (!holder_of(name, &process, &user))
        return frugal_fail(FRUGAL_ERR_PROCESS, "open: another process has the name %s: choose another name", name);
    if (user != geteuid())
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "open: process %u of another user, %u, has the name %s: choose another name, or have that "
                           "process ended",
                           (unsigned)process, (unsigned)user, name);
    return frugal_fail(FRUGAL_ERR_PROCESS,
                       "open: another instance has the name %s, in process %u: join it, close it, or choose another "
                       "name",
                       name, (unsigned)process);
}

/* Makes the socket that has the name. */
static frugal_status open_socket(struct door *door) {
    struct sockaddr_un address;
    socklen_t bytes = name_address(door->name, &address);
    door->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    door->wake = eventfd(0, EFD_CLOEXEC);
    if (door->listening < 0 || door->wake < 0) return fail_door("open", "no socket", errno, door->name);
    list_file(door->listening); /* a forked child that kept it would keep the name */
    if (bind(door->listening, (struct sockaddr *)&address, bytes)) {
        if (errno != EADDRINUSE) return fail_door("open", "the socket cannot get its address", errno, door->name);
        return fail_name_taken(door->name);
    }
    if (listen(door->listening, 64)) return fail_door("open", "the socket cannot listen", errno, door->name);
    return FRUGAL_OK;
}

/* Called before workers serve the instance. */
FRUGAL_INTERNAL frugal_status open_door(frugal *f) {
    if (!f->desc.name) return FRUGAL_OK;
    struct door *door = calloc(1, sizeof *door);
    if (!door) return fail_memory("the door", sizeof *door);
    door->f = f, door->listening = door->wake = -1;
    pthread_mutex_init(&door->opening, NULL);
    snprintf(door->name, sizeof door->name, "%s", f->desc.name);
    f->desc.name = door->name; /* the caller's may be freed */
    f->shared.door = door, f->shared.posts = &served_posts;
    return FRUGAL_OK;
}

/* Takes the name, and starts the doorman, which lets nobody in yet: a process that joins waits. */
FRUGAL_INTERNAL frugal_status open_name(frugal *f) {
    struct door *door = f->shared.door;
    if (!door) return FRUGAL_OK;
    if (f->workers->event_file < 0)
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "open: no memory that processes can share for the event of the workers of %s: %s",
                           door->name, error_text(f->workers->event_error));
    frugal_status status = describe_region(f);
    if (status == FRUGAL_OK) status = open_socket(door);
    if (status != FRUGAL_OK) return status;
    pthread_mutex_lock(&door->opening);
    door->is_opening = 1;
    int error = start_quiet_thread(&door->doorman, doorman_main, door);
    if (error)
        return frugal_fail(FRUGAL_ERR_WORKER, "the thread that lets other processes join cannot be started: %s",
                           strerror(error));
    door->started = 1;
    return FRUGAL_OK;
}

/* Called when all else is open, by the thread that has called open_name: other processes may join from now on. */
FRUGAL_INTERNAL void open_to_others(frugal *f) {
    struct door *door = f->shared.door;
    if (!door || !door->is_opening) return;
    door->is_opening = 0;
    pthread_mutex_unlock(&door->opening);
}

/* Tells processes that have joined that this one closes the instance; they have stopped writing when this returns OK.
 * The doorman still notices processes that end instead. A process that goes on writing for stuck_seconds, because it is
 * stopped or hangs, is given up: STUCK names it. It can only write to memory that it has mapped itself. */
FRUGAL_INTERNAL frugal_status close_door(frugal *f) {
    double began = clock_now(), limit = f->desc.stuck_seconds < 0 ? FOREVER : f->desc.stuck_seconds;
    frugal_status status = FRUGAL_OK;
    if (!f->shared.door) return FRUGAL_OK; /* opened after mail and devices */
    tell_end(f, END_STOPPED, "");
    for (uint32_t d = 0; d < f->desc.devices; d++)
        while (is_posting(f, d)) {
            uint32_t seen = event_prepare(f->event);
            if (!is_posting(f, d)) continue;
            if (clock_now() - began >= limit) {
                const remote *r = remote_of(f, d);
                status = frugal_fail(FRUGAL_ERR_STUCK,
                                     "close: process %u, which has device %u, has been writing rows for %.3g s, so it "
                                     "is stopped or hangs; the instance was closed without it%s; end that process",
                                     r ? r->member->process : 0, d, limit,
                                     f->file ? ", and the table in the file is torn" : "");
                break;
            }
            event_sleep(f->event, seen, LEAST(limit, 1));
        }
    return status;
}

/* No process joins any more. A worker that waits for a process gives up, because training has ended. */
FRUGAL_INTERNAL void end_doorman(frugal *f) {
    struct door *door = f->shared.door;
    uint64_t one = 1;
    if (!door) return;
    open_to_others(f); /* if opening has failed */
    if (door->started) {
        door->started = 0;
        if (write(door->wake, &one, sizeof one) != (ssize_t)sizeof one) FRUGAL_ASSERT(0 && "an eventfd takes 1");
        pthread_join(door->doorman, NULL);
    }
    close_file(&door->listening);
    close_file(&door->wake);
}

/* Called when no device calls its process any more. */
FRUGAL_INTERNAL void free_door(frugal *f) {
    struct door *door = f->shared.door;
    if (!door) return;
    for (uint32_t i = 0; i < door->n; i++) free_member(door->members[i]);
    pthread_mutex_destroy(&door->opening);
    free(door);
    f->shared.door = NULL;
}

#endif
