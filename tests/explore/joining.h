/* joining.h - device 1 as if it were in another process: with a handle of the instance of its own, and a mailbox
 * between. Memory that processes would map is at one address here, and a call that would go through a socket is made by
 * the thread that sends it. */
#ifndef JOINING_H
#define JOINING_H

enum { JOINED = 1 }; /* the device */

static ssize_t send_within(int socket, const struct msghdr *head, int flags) {
    (void)socket, (void)flags;
    answer_call(w.joined, head->msg_iov->iov_base);
    return (ssize_t)head->msg_iov->iov_len;
}

/* What the device's process would have of its own. */
static frugal *make_handle(frugal *f, const frugal_cpu_desc *cache) {
    frugal *j = w.joined = explore_alloc(sizeof *j, 64);
    memcpy(j, f, sizeof *j);
    j->shared.door = NULL, j->shared.posts = NULL, j->workers = NULL;
    j->desc.workers = 0;
    j->gates = explore_alloc(64, 64);
    j->tables = explore_alloc(f->desc.n_tables * sizeof *j->tables, 64);
    memcpy(j->tables, f->tables, f->desc.n_tables * sizeof *j->tables);
    j->store.n_groups = 0;
    if (open_groups(j) != FRUGAL_OK) explore_fail("groups");
    open_powers(j);
    j->devices = explore_alloc(DEVICES * sizeof *j->devices, 64);
    memcpy(j->devices, f->devices, DEVICES * sizeof *j->devices);
    if (open_own(j, &j->devices[JOINED]) != FRUGAL_OK) explore_fail("batches");
    frugal_status status = w.kinds[JOINED] == HOST ? frugal_cpu_attach(j, JOINED, cache) : attach_stream(JOINED);
    if (status != FRUGAL_OK) explore_fail("attach: %s", frugal_message());
    return j;
}

static void join_within(const frugal_cpu_desc *cache) {
    frugal *f = w.f;
    host_device *device = &f->devices[JOINED];
    f->shared.region = explore_alloc(sizeof *f->shared.region, 64);
    f->shared.fixed = explore_alloc(sizeof *f->shared.fixed, 64);
    for (uint32_t d = 0; d < DEVICES; d++) f->devices[d].box = explore_alloc(sizeof(mailbox), 64);
    f->shared.door = explore_alloc(sizeof *f->shared.door, 64);
    f->shared.door->f = f, f->shared.door->listening = f->shared.door->wake = -1;
    f->shared.posts = &served_posts;
    reset_mail(device->box, f->desc.first_step);
    device->inbox = explore_alloc(inbox_bytes(f), 64);
    host_device *own = &make_handle(f, cache)->devices[JOINED];
    remote *r = explore_alloc(sizeof *r, 64);
    r->f = f, r->d = JOINED, r->mail = own->mail = own->box;
    r->member = explore_alloc(sizeof *r->member, 64);
    r->flags = attach_flags(own);
    w.joined->shared.joined = explore_alloc(sizeof *w.joined->shared.joined, 64);
    w.joined->ops = &joined_operations;
    const frugal_device_ops ops = remote_operations_of(r->flags);
    if (attach_device(f, JOINED, &ops, r, &(remote_process){1, w.joined->gates}) != FRUGAL_OK)
        explore_fail("attach: %s", frugal_message());
    frugal_store_release(&own->linked, 1);
    if (own->ops.poll && open_poster(w.joined) != FRUGAL_OK) explore_fail("poster: %s", frugal_message());
}

/* As frugal_close there; the process that opened learns of it at once. */
static void leave_within(void) {
    frugal *j = w.joined;
    settle_device(j, JOINED);
    end_joined(j, 0, "");
    empty_device(j, JOINED);
    close_poster(j);
    dismiss(w.f->shared.door, remote_of(w.f, JOINED)->member, MEMBER_LEFT);
}

#endif /* JOINING_H */
