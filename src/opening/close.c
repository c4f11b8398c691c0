/* close.c - an instance is closed, or a process that has joined leaves it. */
#include "opening.h"

static void close_own(frugal *f, host_device *device) {
    frugal_free(f, device->batches, (f->desc.lookahead + 1) * sizeof(host_batch));
    frugal_free(f, device->sort.pairs, f->sort_bytes);
    free_team(f, device->team);
    pthread_mutex_destroy(&device->keep_lock);
    pthread_mutex_destroy(&device->giving);
    pthread_mutex_destroy(&device->telling);
    pthread_mutex_destroy(&device->waits.lock);
}

static void close_locks(frugal *f) {
    pthread_mutex_destroy(&f->settings_lock);
    pthread_mutex_destroy(&f->end_lock);
    pthread_mutex_destroy(&f->poll_lock);
    pthread_mutex_destroy(&f->gates_lock);
    pthread_mutex_destroy(&f->trace_lock);
    pthread_mutex_destroy(&f->ahead.lock);
    pthread_mutex_destroy(&f->counts_lock);
    pthread_mutex_destroy(&f->notices.lock);
}

frugal_status frugal_close(frugal *f) {
    frugal_status status = FRUGAL_OK;
    if (!f || !is_this_process(f->process)) return status; /* a forked child's copy is nobody's to close */
    status = f->ops->leave(f);
    end_doorman(f);
    frugal_workers *own = f->desc.shared_workers ? NULL : f->workers;
    if (own)
        join_workers(own);
    else if (f->workers)
        give_back_seat(f);
    tell_undrained(f);
    tell_idle_steps(f);
    /* So that devices finish their work. Not before workers have ended, which would commit it; but before the teller
     * has, which may be in a call of the driver that waits until no stream waits for a gate. */
    force_gates(f);
    close_teller(f);
    if (own) free_workers(&f->desc, own); /* its event is the instance's */
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (is_attached(f, d)) device->ops.close(device->state);
        close_own(f, device);
        free_shared(f, device->batch_memory, f->batch_bytes);
        free_shared(f, device->blocks, f->block_bytes);
        unmap_part(device->inbox, inbox_bytes(f));
        free_shared(f, device->counts, count_bytes(f));
    }
    free_door(f);
    free_controller(f);
    if (f->file) {
        int is_clean = status == FRUGAL_OK && f->opened && is_drained(f);
        frugal_status of_file = close_table_file(f, f->opened ? frugal_p2f_closed(f->p2f) : 0, is_clean);
        if (status == FRUGAL_OK) status = of_file;
    } else
        free_shared(f, f->table_memory, f->table_bytes);
    close_all_saved(f);
    close_clocks(f);
    close_trace(f);
    frugal_free(f, f->changed, changed_bytes(f));
    free_shared(f, f->worth, f->store.rows);
    free_shared(f, f->parts, f->desc.devices * sizeof *f->parts);
    if (f->fixed) unmap_part(f->fixed, sizeof *f->fixed);
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++) /* the table's end has asked what is posted */
        unmap_part(f->devices[d].box, sizeof(mailbox));
    frugal_free(f, f->devices, f->desc.devices * sizeof(host_device));
    free_shared(f, f->p2f, whole_pages(f->p2f_bytes));
    free_shared(f, f->state_memory, f->state_bytes);
    frugal_free(f, f->tables, f->desc.n_tables * sizeof(frugal_table));
    frugal_free(f, f->first_row, (f->desc.n_tables + 1) * sizeof(uint64_t));
    frugal_free(f, f->group_memory, group_bytes(f->store.n_groups));
    if (f->ops->owns) frugal_free(f, f->gates, page_unit());
    close_region(f);
    close_locks(f);
    close_jobs(f);
    frugal_desc desc = f->desc;
    release_memory(&desc, f, sizeof *f);
    return status;
}
