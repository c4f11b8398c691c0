/* close.c - an instance is closed, or a process that has joined leaves it. */
#include "opening.h"

/* `status`: of what was closed before. */
static frugal_status close_table(frugal *f, frugal_status status) {
    if (!f->file) {
        free_shared(f, f->memory.table, f->memory.table_bytes);
    } else {
        int is_clean = status == FRUGAL_OK && f->opened && is_drained(f);
        frugal_status of_file = close_table_file(f, f->opened ? frugal_p2f_closed(f->p2f) : 0, is_clean);
        if (status == FRUGAL_OK) status = of_file;
    }
    free_shared(f, f->memory.state, f->memory.state_bytes);
    return status;
}

frugal_status frugal_close(frugal *f) {
    if (!f || !is_this_process(f->process)) return FRUGAL_OK; /* a forked child's copy is nobody's to close */
    frugal_status status = f->ops->leave(f);
    leave_machines(f);
    end_doorman(f);
    leave_workers(f);
    tell_undrained(f);
    tell_idle_steps(f);
    /* So that devices finish their work. Not before workers have ended, which would commit it; but before the teller
     * has, which may be in a call of the driver that waits until no stream waits for a gate. */
    force_gates(f);
    close_teller(f);
    close_workers(f);
    close_devices(f);
    close_machines(f);
    free_door(f);
    free_controller(f);
    status = close_table(f, status); /* it asks what is posted, and is drained */
    close_all_saved(f);
    close_clocks(f);
    close_trace(f);
    close_counts(f);
    close_device_list(f);
    free_shared(f, f->p2f, whole_pages(f->p2f_bytes));
    close_copies(f);
    close_dealing(f);
    close_groups(f);
    close_region(f);
    close_locks(f);
    close_jobs(f);
    frugal_desc desc = f->desc;
    release_memory(&desc, f, sizeof *f);
    return status;
}
