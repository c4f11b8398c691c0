/* attach.c - a device is attached; it asks for settings, the table, memory to pin and gates, and reports its hits.
 *
 * This file knows no kind of device. Each kind has an attach call of its own, which makes the device and calls
 * frugal_attach at its end: frugal_cpu_attach (cpu.c) on host cores, frugal_cuda_attach (cuda/attach.cuh) on GPUs.
 */
#include "instance.h"

static frugal_status fail_attached(uint32_t d) {
    return frugal_fail(FRUGAL_ERR_DEVICE, "device %u is attached already", d);
}

frugal_status frugal_is_usable(const frugal *f, const char *call) {
    return check_open(f, call);
}

frugal_status frugal_may_attach(const frugal *f, uint32_t d) {
    frugal_status status = check_open(f, "attach");
    if (status != FRUGAL_OK) return status;
    if (d >= f->desc.devices)
        return frugal_fail(FRUGAL_ERR_DEVICE, "device %u cannot be attached: there are %u, from 0", d, f->desc.devices);
    if (is_attached(f, d)) return is_elsewhere(f, d) ? fail_elsewhere(f, d, "attach") : fail_attached(d);
    return f->ops->may_attach ? f->ops->may_attach((frugal *)(uintptr_t)f, d) : FRUGAL_OK;
}

/* The one device of an instance without words does not update in place, for example because its table cannot be pinned.
 * Then rows have words from here on. */
static frugal_status use_words(frugal *f) {
    if (!f->ops->owns || frugal_p2f_has_words(f->p2f)) return FRUGAL_OK;
    frugal_status status = FRUGAL_OK;
    if (!f->desc.sparse && !(f->desc.allocate && !f->desc.name))
        status =
            check_memory(f, "attach: ", word_bytes(f), "a device that does not update in place", "take fewer rows");
    if (status == FRUGAL_OK) status = frugal_p2f_use_words(f->p2f);
    FRUGAL_ASSERT(status != FRUGAL_ERR_ORDER && "a device attaches before it announces");
    return status;
}

/* Makes the device known, if no other thread has done so for it. A device of another process is known as such before it
 * is attached, so that no call here takes it for its own. */
static frugal_status set_device(frugal *f, uint32_t d, const frugal_device_ops *ops, void *state,
                                const remote_process *other) {
    host_device *device = &f->devices[d];
    int in_place = ops->updates_in_place && ops->updates_in_place(state);
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&f->settings.lock);
    int attached = is_attached(f, d);
    if (!attached && !in_place) status = use_words(f);
    if (!attached && status == FRUGAL_OK) {
        device->ops = *ops;
        device->state = state;
        device->in_place = in_place;
        device->keeps = device->in_place && ops->write_back && f->desc.alone == FRUGAL_ALONE_KEPT;
        if (other) {
            device->mail = device->box, device->remote = state;
            device->process = other->process, device->gates = other->gates;
            frugal_store_release(&device->linked, 1); /* [F42] pairs with [F41] */
        }
        frugal_store_release(&device->attached, 1); /* [F46] pairs with [F45] */
    }
    pthread_mutex_unlock(&f->settings.lock);
    return attached ? fail_attached(d) : status;
}

/* The device counts touches from here on. It does not know of any yet. */
static frugal_status hand_counts(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    int counted = is_counting(f);
    frugal_status status = frugal_begin_counting(f);
    if (status == FRUGAL_OK && counted)
        status = device->ops.move_counts(device->state, (uint8_t *)(uintptr_t)f->touches.worth, 1);
    if (status != FRUGAL_OK) return status;
    pthread_mutex_lock(&f->touches.lock); /* any thread may be reading counts */
    f->touches.counter = d + 1;
    pthread_mutex_unlock(&f->touches.lock);
    return status;
}

/* `other`: the process that makes the device's calls; NULL: this one. */
FRUGAL_INTERNAL frugal_status attach_device(frugal *f, uint32_t d, const frugal_device_ops *ops, void *state,
                                            const remote_process *other) {
    if (!ops) return frugal_fail(FRUGAL_ERR_ARGUMENT, "attach: device %u has no operations; `ops` is NULL", d);
    frugal_status status = frugal_may_attach(f, d);
    if (status == FRUGAL_OK && ops->announced && f->ops->owns) status = open_teller(f);
    if (status == FRUGAL_OK) status = set_device(f, d, ops, state, other);
    if (status != FRUGAL_OK) return status;
    FRUGAL_ASSERT(!f->devices[d].keeps || !ops->poll || (ops->recall && ops->recalled));
    if (f->ops->attached && (status = f->ops->attached(f, d)) != FRUGAL_OK) {
        frugal_store_relaxed(&f->devices[d].attached, 0); /* relaxed: no other thread knows that it was */
        return status;
    }
    int sorts = ops->sorts ? ops->sorts(state) : 0;
    f->devices[d].sorts = sorts > 0;
    if (sorts == 2 && (status = hand_counts(f, d)) != FRUGAL_OK) {
        frugal_store_relaxed(&f->devices[d].attached, 0); /* relaxed: as above */
        return status;
    }
    if (ops->poll) frugal_add_relaxed(&f->polling.devices, 1); /* relaxed, both: the device has no step yet */
    if (ops->waits_for_gate && ops->waits_for_gate(state)) frugal_add_relaxed(&f->polling.waiting, 1);
    return FRUGAL_OK;
}

frugal_status frugal_attach(frugal *f, uint32_t d, const frugal_device_ops *ops, void *state) {
    return attach_device(f, d, ops, state, NULL);
}

frugal_status frugal_begin_counting(frugal *f) {
    frugal_status status = check_open(f, "begin_counting");
    if (status != FRUGAL_OK) return status;
    return f->ops->begin_counting(f);
}

int frugal_may_sort(const frugal *f) {
    if (!is_usable(f) || !f->ops->owns || f->dealing) return 0; /* the host sorts by home (guests.c) */
    return frugal_p2f_has_words(f->p2f) ? 1 : 2;
}

const uint64_t *frugal_gates(const frugal *f) {
    if (!is_usable(f)) return NULL;
    return (const uint64_t *)(uintptr_t)f->gates;
}

/* The memory of a matrix of the caller, from its first element, of so many bytes, to its last. */
static frugal_memory matrix_memory(void *start, uint64_t rows, uint64_t stride, uint64_t n, uint64_t bytes) {
    return (frugal_memory){start, (size_t)(((rows - 1) * stride + n) * bytes), 0};
}

frugal_memory frugal_get_memory(const frugal *f, uint32_t d, frugal_memory_kind kind) {
    const frugal_memory none = {NULL, 0, 0};
    int of_device = kind == FRUGAL_MEMORY_BLOCKS || kind == FRUGAL_MEMORY_BATCHES || kind == FRUGAL_MEMORY_GUESTS;
    if (!is_usable(f) || (of_device && d >= f->desc.devices)) return none;
    const frugal_store *s = &f->store;
    int joined = !f->ops->owns, staged = joined && f->desc.alone == FRUGAL_ALONE_STAGED;
    switch (kind) {
    case FRUGAL_MEMORY_TABLE:
        if (f->memory.table) return (frugal_memory){f->memory.table, f->memory.table_bytes, staged};
        return matrix_memory(s->weights, s->rows, s->weights_stride, s->dim, frugal_type_bytes(s->rows_as));
    case FRUGAL_MEMORY_STATE:
        if (f->memory.state) return (frugal_memory){f->memory.state, f->memory.state_bytes, staged};
        return f->desc.state ? matrix_memory(s->state, s->rows, s->state_stride, s->state_floats, 4) : none;
    case FRUGAL_MEMORY_BLOCKS:
        return (frugal_memory){f->devices[d].blocks, f->block_bytes, 0};
    case FRUGAL_MEMORY_BATCHES:
        return (frugal_memory){f->devices[d].batch_memory, f->batch_bytes, joined};
    case FRUGAL_MEMORY_ALONE: {
        size_t bytes;
        void *start = frugal_p2f_alone_memory(f->p2f, &bytes);
        return (frugal_memory){start, bytes, joined};
    }
    case FRUGAL_MEMORY_GUESTS:
        return f->devices[d].guests ? guests_memory(f, d) : none;
    case FRUGAL_MEMORY_GATES:
    default:
        return (frugal_memory){f->gates, page_unit(), 0};
    }
}

int frugal_move_memory(frugal *f, frugal_memory memory, int node) {
    int is_callers = f->desc.allocate && f->shared.file < 0; /* its allocator decides */
    if (node < 0 || node >= MOST_NODES || is_callers || find_nodes().n < 2) return 0;
    int error = move_to_node(memory.start, memory.bytes, (uint32_t)node);
    if (error)
        give_notice(f, "attach: the system refuses to move %zu bytes to node %d of the machine: mbind: %s",
                    memory.bytes, node, error_text(error));
    return !error;
}

void frugal_leave_pages(frugal *f) {
    if (frugal_load_relaxed(&f->pages.stay)) return;
    frugal_store_relaxed(&f->pages.stay, 1);
    give_notice(
        f, "CUDA did not let go of memory that it had pinned, so a GPU may still reach it: its pages stay until the "
           "process ends. Do not give back a matrix of your own, and train on GPUs in a new process");
}

void *frugal_get_device(const frugal *f, uint32_t d, const frugal_device_ops *ops) {
    if (!is_usable(f) || !ops || d >= f->desc.devices || !is_attached(f, d)) return NULL;
    return memcmp(&f->devices[d].ops, ops, sizeof *ops) == 0 ? f->devices[d].state : NULL;
}

const frugal_desc *frugal_settings(const frugal *f) {
    return f && f->opened ? &f->desc : NULL;
}
const frugal_store *frugal_get_store(const frugal *f) {
    return f && f->opened ? &f->store : NULL;
}

void frugal_count_hits(frugal *f, uint32_t d, uint64_t hits, uint64_t misses) {
    if (!f || !f->opened || d >= f->desc.devices) return;
    host_device *device = &f->devices[d];
    tally(&device->counts->hits, hits);
    tally(&device->counts->misses, misses);
}

void frugal_count_table_hits(frugal *f, uint32_t d, uint32_t table, uint64_t hits, uint64_t misses) {
    if (!f || !f->opened || d >= f->desc.devices || table >= f->desc.n_tables || hits + misses == 0) return;
    table_hits *at = &f->devices[d].by_table[table];
    uint64_t rows = hits + misses, worst = frugal_load_relaxed(&at->worst); /* relaxed, both: a reset may be lost */
    tally(&at->hits, hits);
    tally(&at->misses, misses);
    if (worst == 0 || hits * (worst & UINT32_MAX) < (worst >> 32) * rows)
        frugal_store_relaxed(&at->worst, hits << 32 | rows);
}

void frugal_count_link(frugal *f, uint32_t d, uint32_t way, uint64_t rows, uint64_t bytes) {
    if (!f || !f->opened || d >= f->desc.devices || way > 2) return;
    device_counts *counts = f->devices[d].counts;
    if (!frugal_load_relaxed(&counts->counts_link)) frugal_store_relaxed(&counts->counts_link, 1); /* relaxed, both */
    tally(&counts->link_rows[way], rows);
    tally(&counts->link_bytes[way], bytes);
}
