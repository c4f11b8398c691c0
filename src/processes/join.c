/* join.c - a process joins an instance that another one has opened, attaches devices, and leaves.
 *
 * Its `frugal` has the same settings and, mapped elsewhere, the same table, batches and staging blocks; it only reads
 * the state machine. One thread of its own, the attendant, answers calls that reach into the caches of its devices, and
 * notices when the process that opened has ended. It sleeps otherwise.
 *
 * Contents: >>attendant >>asking >>leaving >>joining
 */
#include "processes.h"

#if HAS_PROCESSES

#define BOTH (PROT_READ | PROT_WRITE) /* of what this process writes, too */

/* >>attendant */

/* Makes the device write back rows that it keeps, or all of them. A device with `poll` says only when it is polled how
 * many it keeps then. The caller holds its lock. */
static frugal_status write_back_here(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n) {
    host_device *device = &f->devices[d];
    frugal_status status = device->ops.write_back(device->state, rows, n);
    if (status != FRUGAL_OK || !device->ops.poll) return status;
    check_device_lost(f, d);
    return is_lost(f) ? fail_lost(f, "write back") : FRUGAL_OK;
}

/* Makes a device with `poll` begin to write back what is recalled, and the poster look when it has. The state machine
 * has the rows. The caller holds its lock. */
static frugal_status recall_here(frugal *f, const message *m) {
    host_device *device = &f->devices[m->d];
    /* [F33] pairs with [F32]: this process sees for itself that the step before is done, not by way of another; or all
     * of the device's steps, if its data has ended. relaxed: the process that opened was told after that was set */
    uint64_t last = LEAST(m->step, frugal_load_relaxed(&device->end));
    int done = frugal_load_acquire(&device->mail->done) >= last;
    frugal_status status = write_recalled(f, m->d, &(recall){m->step, done});
    if (status != FRUGAL_OK) return status;
    lock_polling(f);
    device->posting.recall_step = m->step;
    frugal_store_relaxed(&device->posting.recall_number, m->number); /* relaxed: under the lock */
    pthread_mutex_unlock(&f->polling.lock);
    event_notify(polling_event(f));
    return status;
}

/* Does what the process that opened has asked of a device. */
static frugal_status do_call(frugal *f, const message *m) {
    host_device *device = &f->devices[m->d];
    const uint32_t *rows = device->mail->call_rows;
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&device->keeping.lock); /* its trainer may be in lookup or update */
    switch (m->call) {
    case CALL_WRITE_BACK:
        status = m->n == CALL_ALL ? write_back_here(f, m->d, NULL, 0) : write_back_here(f, m->d, rows, m->n);
        break;
    case CALL_RECALL:
        status = recall_here(f, m);
        break;
    case CALL_PRELOAD:
        status = device->ops.preload(device->state, rows, m->n);
        break;
    case CALL_REFRESH:
        if (device->ops.refresh)
            status = device->ops.refresh(device->state, rows, m->n);
        else
            device->ops.empty(device->state);
        break;
    case CALL_VERIFY:
        if (!device->ops.verify(device->state)) status = frugal_fail(FRUGAL_ERR_COPY, "a copy differs");
        break;
    case CALL_EMPTY:
        device->ops.empty(device->state);
        break;
    case CALL_RECOUNT:
        if (device->ops.recount) status = device->ops.recount(device->state);
        break;
    case CALL_CANCELLED:
    default:
        if (!frugal_load_relaxed(&device->mail->finished)) /* relaxed, both: between steps */
            frugal_store_relaxed(&device->end, UINT64_MAX);
        if (device->ops.cancelled) device->ops.cancelled(device->state);
        break;
    }
    pthread_mutex_unlock(&device->keeping.lock);
    return status;
}

static void answer_call(frugal *f, const message *m) {
    if (m->d >= f->desc.devices || !frugal_load_acquire(&f->devices[m->d].linked)) return; /* [F41] pairs with [F42] */
    mailbox *mail = f->devices[m->d].mail;
    frugal_status status = do_call(f, m);
    mail->reply = status;
    copy_text(mail->reply_text, sizeof mail->reply_text, status == FRUGAL_OK ? "" : last_message);
    frugal_store_release(&mail->replies, m->number); /* [F34] pairs with [F35] */
    event_notify(f->event);
}

/* An answer to a question that was given up is dropped. Number 0 says that the other side has ended. An answer that
 * came before the end counts, even if the thread that asked has not seen it yet. */
static void take_answer(controller *c, const message *m) {
    pthread_mutex_lock(&c->answer_lock);
    if (m->number == 0 && !c->is_over) c->over = *m, c->is_over = 1; /* of several, the first says why */
    if (!c->has_answer && (m->number == 0 || m->number == c->asked)) c->answer = *m, c->has_answer = 1;
    pthread_cond_signal(&c->answered);
    pthread_mutex_unlock(&c->answer_lock);
}

/* The socket has ended: so has the other side, unless this process is leaving. */
static void lose_controller(frugal *f) {
    controller *c = f->shared.joined;
    message none = {.status = FRUGAL_ERR_LOST};
    char text[sizeof none.text];
    snprintf(text, sizeof text, "process %u, which opened the instance, has ended", c->process);
    pthread_mutex_lock(&c->answer_lock);
    if (c->is_over) copy_text(text, sizeof text, c->over.text); /* it has said why */
    pthread_mutex_unlock(&c->answer_lock);
    learn_end(f); /* it may have said why before */
    if (!frugal_load_relaxed(&c->leaving)) end_joined(f, NOT_A_DEVICE, text);
    copy_text(none.text, sizeof none.text, text);
    take_answer(c, &none);
}

static void *attendant_main(void *argument) {
    frugal *f = argument;
    controller *c = f->shared.joined;
    struct pollfd watched[2] = {{c->socket, POLLIN, 0}, {c->watch, POLLIN, 0}};
    for (;;) {
        message m;
        if (poll(watched, 2, -1) < 0) {
            pause_after_error();
            continue;
        }
        if (watched[0].revents) {
            if (receive_message(c->socket, &m, NULL) <= 0) break;
            if (m.kind == MESSAGE_CALL)
                answer_call(f, &m);
            else
                take_answer(c, &m);
        } else {
            break; /* the process has ended */
        }
    }
    lose_controller(f);
    return NULL;
}

/* >>asking */

#define UNANSWERED_FORMAT "process %u, which opened the instance, has not answered for %.3g s; is it stopped?"

/* Waits for an answer, at most for so many seconds. The caller holds answer_lock. */
static void await_answered(controller *c, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* the clock of `answered` */
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&c->answered, &c->answer_lock, &until);
}

/* Sends a message to the process that opened, and waits for its answer: at most a second longer than stuck_seconds. */
static frugal_status ask_controller(frugal *f, message *m) {
    controller *c = f->shared.joined;
    double limit = f->desc.stuck_seconds < 0 ? FOREVER : LEAST(f->desc.stuck_seconds, FOREVER);
    double start = clock_now(), tells = notice_seconds(f);
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&c->lock);
    pthread_mutex_lock(&c->answer_lock);
    m->number = ++c->asked;
    c->has_answer = c->is_over, c->answer = c->over;
    if (!c->is_over) send_message(c->socket, m, NULL); /* if it fails, the end of the process is noticed */
    while (!c->has_answer && status == FRUGAL_OK) {
        double waited = clock_now() - start, left = limit + 1 - waited;
        if (left <= 0)
            status = frugal_fail(FRUGAL_ERR_STUCK, UNANSWERED_FORMAT, c->process, limit);
        else if (waited < tells)
            await_answered(c, LEAST(left, tells - waited));
        else {
            pthread_mutex_unlock(&c->answer_lock); /* the attendant takes it */
            tells = tell_wait(f, tells, UNANSWERED_FORMAT, c->process, tells);
            pthread_mutex_lock(&c->answer_lock);
        }
    }
    if (status == FRUGAL_OK && c->answer.status != FRUGAL_OK)
        status = frugal_fail((frugal_status)c->answer.status, "%s", c->answer.text);
    pthread_mutex_unlock(&c->answer_lock);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Maps the counts of a device of this process again, so that they can be written. Returns NULL if they cannot. */
static void *own_counts(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    return mprotect(device->counts, whole_pages(f->shared.parts[d].counts.bytes), BOTH) ? NULL : device->counts;
}

/* Maps what a device needs, before it is attached. */
static frugal_status map_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    const device_parts *parts = &f->shared.parts[d];
    if (device->mail) return FRUGAL_OK; /* an earlier attempt has failed after this */
    if (!device->batch_memory) device->batch_memory = map_own(f->shared.file, parts->batches, PROT_READ);
    if (!device->blocks) device->blocks = map_own(f->shared.file, parts->blocks, BOTH);
    if (!device->inbox) device->inbox = map_own(f->shared.file, parts->inbox, BOTH);
    if (!device->box) device->box = map_own(f->shared.file, parts->mail, BOTH);
    void *counts = own_counts(f, d);
    if (!device->batch_memory || !device->blocks || !device->inbox || !device->box || !counts)
        return fail_memory("mapping what a device shares", f->batch_bytes + f->block_bytes + parts->inbox.bytes);
    frugal_status status = open_own(f, device);
    if (status == FRUGAL_OK) device->mail = device->box;
    return status;
}

static uint32_t attach_flags(const host_device *device) {
    const frugal_device_ops *ops = &device->ops;
    int waits = ops->waits_for_gate && ops->waits_for_gate(device->state);
    return (device->in_place ? ATTACH_IN_PLACE : 0u) | (device->keeps ? ATTACH_KEEPS : 0u) |
           (ops->poll ? ATTACH_POLLS : 0u) | (waits ? ATTACH_WAITS : 0u);
}

/* Attaches the device in the process that opened the instance. Here all of it is ready. */
static frugal_status claim_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    message m = {.kind = MESSAGE_ATTACH, .d = d, .flags = attach_flags(device)};
    frugal_status status = device->ops.poll ? open_poster(f) : FRUGAL_OK;
    if (status != FRUGAL_OK) return status;
    frugal_store_release(&device->linked, 1); /* [F42] pairs with [F41]: a call may come before the answer is read */
    status = ask_controller(f, &m);
    if (status != FRUGAL_OK) frugal_store_relaxed(&device->linked, 0); /* relaxed: no thread calls the device */
    return status;
}

/* Maps the counts of the devices of all processes, for statistics. */
static frugal_status map_all_counts(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (!(device->counts = map_own(f->shared.file, f->shared.parts[d].counts, PROT_READ)))
            return fail_memory("mapping what devices count", count_bytes(f));
        device->by_table = (table_hits *)(void *)(device->counts + 1);
    }
    return FRUGAL_OK;
}

static void *map_counts(frugal *f) {
    return map_own(f->shared.file, f->shared.region->worth, PROT_READ);
}
/* Makes the process that opened the instance count touches, too. */
static frugal_status join_counting(frugal *f) {
    message m = {.kind = MESSAGE_COUNT};
    frugal_status status = ask_controller(f, &m);
    return status == FRUGAL_OK ? open_counts_in(f, map_counts) : status;
}

/* >>leaving */

/* Waits until the device's posts are taken, and done. If this fails, training has ended. */
static void settle_device(frugal *f, uint32_t d) {
    const post_wait all = {committed_posts, d, frugal_load_relaxed(&f->devices[d].updated), "close"}; /* its own */
    if (is_attached(f, d) && !committed_posts(f, &all)) wait_posted(f, &all);
}

/* Writes back what the device keeps, unless training has ended: then it writes only when it is asked, because the
 * instance may be closed. */
static void empty_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    if (!is_attached(f, d) || !device->keeps || begin_posted_writing(f, d, "close") != FRUGAL_OK) return;
    pthread_mutex_lock(&device->keeping.lock);
    write_back_here(f, d, NULL, 0); /* if it fails, what it keeps is lost, and reported as a loss */
    pthread_mutex_unlock(&device->keeping.lock);
    end_posted_writing(f, d, 1);
}

/* The devices of this process take no part any more. Their memory is freed by the caller. A stream that waits for a
 * gate would keep a device from writing back, so from here on gates are forced open, and nothing more is posted. */
static frugal_status leave_instance(frugal *f) {
    controller *c = f->shared.joined;
    for (uint32_t d = 0; f->opened && d < f->desc.devices; d++) settle_device(f, d);
    if (c->posts) end_joined(f, 0, "");
    for (uint32_t d = 0; f->opened && d < f->desc.devices; d++) empty_device(f, d);
    close_poster(f);
    if (c->started) {
        message m = {.kind = MESSAGE_LEAVE};
        frugal_store_relaxed(&c->leaving, 1);
        ask_controller(f, &m); /* if it fails, no process is there to be told */
        shutdown(c->socket, SHUT_RDWR);
        pthread_join(c->thread, NULL);
    }
    close_file(&c->socket);
    close_file(&c->watch);
    return FRUGAL_OK;
}

/* Called when the devices are closed. */
FRUGAL_INTERNAL void free_controller(frugal *f) {
    controller *c = f->shared.joined;
    if (!c) return;
    unmap_part(c->event_memory, event_part.bytes);
    unmap_part(c->gates_memory, gates_part().bytes);
    close_file(&c->table_file);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->answer_lock);
    pthread_cond_destroy(&c->answered);
    free(c);
    f->shared.joined = NULL;
}

/* >>joining */

/* Connects to the process that has the name, and tries again for `seconds`. The name may be there before the instance
 * is open. */
static frugal_status connect_to(controller *c, const char *name, double seconds) {
    struct sockaddr_un address;
    socklen_t bytes = name_address(name, &address);
    double start = clock_now();
    for (;;) {
        c->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (c->socket < 0) return fail_door("join", "no socket", errno, name);
        /* connect waits while too many others wait to be let in; 0 would be for ever */
        struct timeval limit = {.tv_sec = (time_t)LEAST(seconds, FOREVER), .tv_usec = 100000};
        setsockopt(c->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        list_file(c->socket);
        if (!connect(c->socket, (struct sockaddr *)&address, bytes)) return FRUGAL_OK;
        int error = errno;
        close_file(&c->socket);
        if (error != ECONNREFUSED && error != EAGAIN && error != EINTR)
            return fail_door("join", "cannot connect", error, name);
        if (clock_now() - start >= seconds)
            return frugal_fail(FRUGAL_ERR_PROCESS,
                               "join: no process of this user has an open instance of the name %s; waited %.3g s", name,
                               seconds);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* Says hello, and receives the descriptors. Waits at most a second longer than `seconds`. AGAIN: no answer came. */
static frugal_status greet(controller *c, double seconds, file_list *files) {
    message m = {.kind = MESSAGE_HELLO};
    struct timeval limit = {.tv_sec = (time_t)LEAST(seconds, FOREVER) + 1}, none = {.tv_sec = 0};
    pid_t process = 0;
    uid_t user = 0;
    if (!peer_of(c->socket, &process, &user))
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "join: the process that has the name, perhaps of another user, cannot be "
                           "told; choose another name");
    if (user != geteuid() && user != 0)
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "join: process %u of another user, %u, has the name; have it ended, or choose another name",
                           (unsigned)process, (unsigned)user);
    c->process = (uint32_t)process, c->watch = watch_process(process);
    files->n = 0;
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (send_message(c->socket, &m, NULL) || receive_message(c->socket, &m, files) <= 0) {
        while (files->n > 0) close(files->files[--files->n]);
        return FRUGAL_AGAIN;
    }
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    if (m.status != FRUGAL_OK) return frugal_fail((frugal_status)m.status, "join: %s", m.text);
    if (files->cut)
        return frugal_fail(FRUGAL_ERR_PROCESS, "join: what process %u shares needs more descriptors: %s", c->process,
                           error_text(EMFILE));
    if (files->n < 3) return frugal_fail(FRUGAL_ERR_PROCESS, "join: process %u has sent no memory", c->process);
    return FRUGAL_OK;
}

/* Finds the process that opened, and receives the descriptors. A process that has ended before it answers, for example
 * because it could not open the instance, is forgotten: another one may have the name later. */
static frugal_status reach(controller *c, const char *name, double seconds, file_list *files) {
    double start = clock_now(), left = seconds;
    for (;;) {
        frugal_status status = connect_to(c, name, left);
        if (status == FRUGAL_OK) status = greet(c, left, files);
        if (status != FRUGAL_AGAIN) return status;
        left = seconds - (clock_now() - start);
        if (left <= 0)
            return frugal_fail(FRUGAL_ERR_PROCESS,
                               "join: process %u has not answered for %.3g s: it is still opening the instance, or is "
                               "ending, has another version of Frugal, or has no more descriptors (its `ulimit -n`)",
                               c->process, seconds);
        close_file(&c->socket);
        close_file(&c->watch);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* Reads the settings of tables and optimizers from the region. */
static frugal_status read_tables(frugal *f) {
    const region_header *r = f->shared.region;
    uint32_t n = r->desc.n_tables;
    shared_table *tables = map_own(f->shared.file, r->tables, PROT_READ);
    if (!tables) return fail_memory("table settings", r->tables.bytes);
    frugal_table *list = calloc(n, sizeof *list);
    for (uint32_t t = 0; list && t < n; t++) list[t] = tables[t].table, list[t].optimizer = &tables[t].optimizer;
    frugal_desc desc = f->desc;
    desc.tables = list;
    frugal_status status = list ? open_copies(f, &desc) : fail_memory("table settings", n * sizeof *list);
    if (status == FRUGAL_OK) {
        f->store = r->store;
        f->store.first_row = f->first_row;
        status = open_groups(f); /* copies the optimizers' settings */
    }
    free(list);
    unmap_part(tables, r->tables.bytes);
    return status;
}

/* Maps what all devices share. */
static frugal_status map_instance(frugal *f, const file_list *files) {
    const region_header *r = f->shared.region;
    f->p2f_bytes = r->p2f_bytes, f->memory.table_bytes = r->table.bytes, f->memory.state_bytes = r->state.bytes;
    f->batch_bytes = r->batch_bytes, f->block_bytes = r->block_bytes, f->block_stride = r->block_stride;
    f->sorting.bytes = sort_bytes_of(f);
    f->p2f = map_own(f->shared.file, r->p2f, PROT_READ);
    f->shared.parts = map_own(f->shared.file, r->devices, PROT_READ);
    f->shared.fixed = map_own(f->shared.file, r->fixed, BOTH);
    int rows =
        f->desc.alone == FRUGAL_ALONE_STAGED ? PROT_READ : BOTH; /* staged rows are written by the opener alone */
    f->memory.table = map_own(r->table_is_file ? files->files[3] : f->shared.file, r->table, rows);
    if (r->state.bytes) f->memory.state = map_own(f->shared.file, r->state, rows);
    if (!f->p2f || !f->shared.parts || !f->shared.fixed || !f->memory.table || (r->state.bytes && !f->memory.state))
        return fail_memory("mapping the instance", f->p2f_bytes + f->memory.table_bytes + f->memory.state_bytes);
    f->store.weights = f->memory.table;
    if (f->store.state_floats)
        f->store.state =
            f->memory.state ? f->memory.state : (void *)((unsigned char *)f->memory.table + r->state_behind);
    return FRUGAL_OK;
}

static frugal_status join_parts(frugal *f, const char *name, double seconds) {
    controller *c = f->shared.joined;
    file_list files = {0};
    frugal_status status = reach(c, name, seconds, &files);
    if (files.n > 0) f->shared.file = files.files[0];
    if (files.n > 3) c->table_file = files.files[3];
    if (status == FRUGAL_OK) c->event_memory = map_own(files.files[1], event_part, BOTH);
    if (status == FRUGAL_OK) c->gates_memory = map_own(files.files[2], gates_part(), BOTH);
    for (uint32_t i = 1; i < LEAST(files.n, 3); i++) close(files.files[i]); /* also where others were cut */
    if (status != FRUGAL_OK) return status;
    f->shared.region = map_own(f->shared.file, (memory_part){0, sizeof *f->shared.region}, PROT_READ);
    if (!f->shared.region || !c->event_memory || !c->gates_memory)
        return fail_memory("mapping what processes share", sizeof *f->shared.region);
    f->event = c->event_memory;
    f->desc = f->shared.region->desc;
    f->desc.workers = 0;
    f->record_stride = record_stride_of(f->desc.dim);
    if ((status = read_tables(f)) != FRUGAL_OK) return status;
    f->sorting.bits = bits_of_rows(f->store.rows);
    open_powers(f);
    if ((status = map_instance(f, &files)) != FRUGAL_OK) return status; /* before gates: force_gates uses p2f */
    f->gates = c->gates_memory;
    if ((status = open_device_list(f)) != FRUGAL_OK) return status;
    if ((status = map_all_counts(f)) != FRUGAL_OK) return status;
    int error = start_quiet_thread(&c->thread, attendant_main, f);
    if (error) return frugal_fail(FRUGAL_ERR_WORKER, "join: no thread can be started: %s", strerror(error));
    c->started = 1;
    return FRUGAL_OK;
}

static const instance_ops joined_operations = {.next = next_posted,
                                               .announce = post_batch,
                                               .finish = post_finish,
                                               .pass_gate = pass_posted_gate,
                                               .begin_writing = begin_posted_writing,
                                               .end_writing = end_posted_writing,
                                               .await_block = await_posted_block,
                                               .commit = post_update,
                                               .note_kept = post_kept,
                                               .is_outstanding = has_unposted,
                                               .poll = poll_posts,
                                               .note_loss = post_loss,
                                               .stop = stop_joined,
                                               .begin_counting = join_counting,
                                               .may_attach = map_device,
                                               .attached = claim_device,
                                               .leave = leave_instance};

frugal_status frugal_join(const char *name, double seconds, frugal **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_join: `out` is NULL");
    *out = NULL;
    if (!name || name[0] == 0 || strlen(name) > MOST_NAME)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_join: a name of 1 to %u bytes is wanted", MOST_NAME);
    if (!(seconds >= 0))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_join: `seconds` must be 0 or more; it is %g", seconds);
    if (check_arithmetic() != FRUGAL_OK) return FRUGAL_ERR_ARITHMETIC;
    frugal *f = allocate_memory(&(frugal_desc){0}, sizeof *f, CACHE_LINE);
    controller *c = f ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        release_memory(&(frugal_desc){0}, f, sizeof *f);
        return fail_memory("the instance", sizeof *f);
    }
    *out = f;
    f->process = (uint32_t)getpid();
    f->ops = &joined_operations, f->shared.joined = c, f->shared.file = c->socket = c->watch = c->table_file = -1;
    f->event = &f->own_event;
    open_locks(f);
    open_notices(f, NULL, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->answer_lock, NULL);
    pthread_condattr_t steady; /* a wall clock may be set while a thread waits */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&c->answered, &steady);
    pthread_condattr_destroy(&steady);
    frugal_status status = join_parts(f, name, seconds);
    f->opened = status == FRUGAL_OK;
    return status;
}

#endif
