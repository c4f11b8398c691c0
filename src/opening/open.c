/* open.c - opening an instance: checks, defaults, memory, threads. */
#include "opening.h"

#define OTHER_THREADS 256u /* threads of the caller in frugal_help, frugal_drain and similar calls at a time */

/* Can draw_normal use mean and deviation? Its draws lie within 6.67 deviations, because sqrt(-2 log 2^-32) is the
 * largest. */
static frugal_status check_normal(const frugal_table *table, uint32_t t) {
    if (table->mean == 0 && table->deviation == 0 && (table->low != 0 || table->high != 0))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: the normal initializer takes mean and deviation, and they are 0, while low and "
                           "high are %g and %g",
                           t, (double)table->low, (double)table->high);
    if (!is_finite(table->mean) || !is_finite(table->deviation) || !(table->deviation >= 0) ||
        fabs((double)table->mean) + 6.67 * (double)table->deviation > (double)FLT_MAX)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: the normal initializer needs a finite mean, a finite deviation that is not "
                           "negative, and finite numbers within 6.67 deviations of the mean; they are %g and %g",
                           t, (double)table->mean, (double)table->deviation);
    return FRUGAL_OK;
}

/* Settings of an initializer that is not chosen: the rows would silently be others than were meant. */
static frugal_status check_unused(const frugal_table *table, uint32_t t) {
    int uniform = table->low != 0 || table->high != 0, normal = table->mean != 0 || table->deviation != 0;
    if (uniform && table->init != FRUGAL_INIT_UNIFORM)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: low and high are %g and %g, and its initializer is %d, which does not use them: "
                           "set `init` to FRUGAL_INIT_UNIFORM, or leave them 0",
                           t, (double)table->low, (double)table->high, (int)table->init);
    if (normal && table->init != FRUGAL_INIT_NORMAL)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: mean and deviation are %g and %g, and its initializer is %d, which does not use "
                           "them: set `init` to FRUGAL_INIT_NORMAL, or leave them 0",
                           t, (double)table->mean, (double)table->deviation, (int)table->init);
    if (table->source && table->init != FRUGAL_INIT_COPY)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: a source is given, and its initializer is %d, which copies none: set `init` to "
                           "FRUGAL_INIT_COPY, or leave `source` NULL",
                           t, (int)table->init);
    return FRUGAL_OK;
}

/* Checks the numbers of the table's initializer. */
static frugal_status check_initializer(const frugal_table *table, uint32_t t) {
    if (table->init < FRUGAL_INIT_DEFAULT || table->init > FRUGAL_INIT_COPY ||
        (table->init == FRUGAL_INIT_COPY && !table->source))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "table %u: initializer %d is unknown, or it copies and has no source",
                           t, (int)table->init);
    if (table->init == FRUGAL_INIT_UNIFORM && (!is_finite(table->low) || !is_finite(table->high) ||
                                               table->low > table->high || !is_finite(table->high - table->low)))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "table %u: low and high of the uniform initializer must be finite, so must their "
                           "difference, and low must not be above high; they are %g and %g",
                           t, (double)table->low, (double)table->high);
    frugal_status status = table->init == FRUGAL_INIT_NORMAL ? check_normal(table, t) : FRUGAL_OK;
    return status == FRUGAL_OK ? check_unused(table, t) : status;
}

/* Fields that say nothing without another one, which is missing. */
static frugal_status check_alone(const frugal_desc *d) {
    const char *what = NULL, *lacks = NULL;
    if (d->weights_stride && !d->weights) what = "weights_stride", lacks = "weights";
    if (d->state_stride && !d->state) what = "state_stride", lacks = "state";
    if (d->take_torn && !d->file) what = "take_torn", lacks = "file";
    if (d->saved_part && d->n_saved == 0) what = "saved_part", lacks = "n_saved";
    if (d->saved_settings_may_differ && d->n_saved == 0) what = "saved_settings_may_differ", lacks = "n_saved";
    if (d->saved && d->n_saved == 0) what = "saved", lacks = "n_saved";
    if (!what) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT,
                       "`%s` is set, and `%s` is not: without it, it says nothing; set both or none", what, lacks);
}

static frugal_status check_row_types(const frugal_desc *d) {
    if (d->rows_as > FRUGAL_FP16 || d->rounding > FRUGAL_NEAREST)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "rows_as %d, rounding %d; there are 0 (fp32), 1 (bf16), 2 (fp16), and 0 (stochastic), 1 "
                           "(nearest)",
                           (int)d->rows_as, (int)d->rounding);
    if (d->rounding != FRUGAL_STOCHASTIC && d->rows_as == FRUGAL_FP32)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "`rounding` is set, and `rows_as` is 0 (fp32): without weights of 16 bits, it says nothing; "
                           "set both or none");
    return FRUGAL_OK;
}

/* Where the table lies, if that is the caller's memory. */
static frugal_status check_matrices(const frugal_desc *d) {
    if (d->weights && d->file)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "both `weights` and `file`: the table lies in one");
    if ((uintptr_t)d->weights % frugal_type_bytes(d->rows_as) || (uintptr_t)d->state % sizeof(float))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "`weights` at %p, of %u bytes each, and `state` at %p, of 4: begin at a multiple of that",
                           d->weights, frugal_type_bytes(d->rows_as), (void *)d->state);
    if (d->state && !d->weights) return frugal_fail(FRUGAL_ERR_ARGUMENT, "`state` without `weights`");
    if (d->weights && ((d->weights_stride && d->weights_stride < d->dim) ||
                       (d->state_stride && d->state_stride < frugal_state_floats(d->optimizer.kind, d->dim))))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "weights_stride %llu or state_stride %llu is shorter than a row",
                           (unsigned long long)d->weights_stride, (unsigned long long)d->state_stride);
    return FRUGAL_OK;
}

static frugal_status check_machines(const frugal_desc *d) {
    const frugal_machines *m = d->machines;
    if (!m) return FRUGAL_OK;
    const frugal_wire *w = m->wire;
    if (!w || !w->begin || !w->send || !w->receive || !w->done || !w->lost || !w->end)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "machines: `wire` is NULL, or a function of it");
    if (w->machines < 1 || w->machines > FRUGAL_MAX_MACHINES || w->machine >= w->machines)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "machines: machine %u of %u; there may be 1 to %u, numbered from 0",
                           w->machine, w->machines, FRUGAL_MAX_MACHINES);
    if (m->deal > FRUGAL_DEAL_LISTED || (m->deal == FRUGAL_DEAL_LISTED) != (m->homes != NULL))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "machines: deal %d, and `homes` %s: there are 0 (cyclic), 1 (blocks), and 2 (listed), which "
                           "alone has `homes`",
                           (int)m->deal, m->homes ? "is given" : "is NULL");
    if (d->devices == 0 || d->devices % w->machines)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "machines: %u devices of %u machines: give the number of all devices, as many on each",
                           d->devices, w->machines);
    if (d->name) return frugal_fail(FRUGAL_ERR_ARGUMENT, "machines: other processes cannot join by a `name`");
    uint64_t floats = d->dim >= 16 ? ((uint64_t)d->dim + 15) / 16 * 16 : 16;
    uint64_t most = (uint64_t)d->max_keys * (floats * sizeof(float) + 8) + 64;
    if (w->most_bytes && most > w->most_bytes)
        return frugal_fail(FRUGAL_ERR_LIMIT,
                           "machines: messages of up to %llu bytes; this wire's have %zu at most: reduce max_keys",
                           (unsigned long long)most, w->most_bytes);
    return FRUGAL_OK;
}

static frugal_status check_desc(const frugal_desc *d) {
    if (d->n_tables == 0 || !d->tables) return frugal_fail(FRUGAL_ERR_ARGUMENT, "no tables; give at least one");
    if (d->dim == 0 || d->dim > 65536)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "dim is %u; it must be 1 to 65536 weights", d->dim);
    if (d->max_keys == 0) return frugal_fail(FRUGAL_ERR_ARGUMENT, "max_keys is 0; give the largest batch of a device");
    uint64_t rows = 0;
    for (uint32_t t = 0; t < d->n_tables; t++) {
        const frugal_table *table = &d->tables[t];
        if (table->rows == 0) return frugal_fail(FRUGAL_ERR_ARGUMENT, "table %u has no rows", t);
        if (table->rows > FRUGAL_MAX_ROWS || (rows += table->rows) > FRUGAL_MAX_ROWS)
            return frugal_fail(FRUGAL_ERR_LIMIT, "rows of tables 0 to %u exceed 2^32 - 2 = 4294967294", t);
        frugal_status status = check_initializer(table, t);
        if (status != FRUGAL_OK) return status;
    }
    if (d->n_saved > 0 && !d->saved)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "n_saved is %u and `saved` is NULL", d->n_saved);
    for (uint32_t i = 0; i < d->n_saved; i++)
        if (!d->saved[i]) return frugal_fail(FRUGAL_ERR_ARGUMENT, "saved[%u] of %u is NULL", i, d->n_saved);
    if (d->first_step > FRUGAL_MAX_FIRST_STEP)
        return frugal_fail(FRUGAL_ERR_LIMIT, "first_step is %llu; the limit is 2^62 - 1",
                           (unsigned long long)d->first_step);
    if (d->alone < FRUGAL_ALONE_DEFAULT || d->alone > FRUGAL_ALONE_KEPT)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "alone is %d; there are 0 (default), 1 (staged), 2 (in place), 3 (kept)", (int)d->alone);
    if (isnan(d->stuck_seconds)) return frugal_fail(FRUGAL_ERR_ARGUMENT, "stuck_seconds is not a number");
    if (d->lookahead > 15)
        return frugal_fail(FRUGAL_ERR_LOOKAHEAD, "lookahead is %u; the limit is 15 steps", d->lookahead);
    if ((uint64_t)d->staging + d->lookahead > 63)
        return frugal_fail(FRUGAL_ERR_LOOKAHEAD, "lookahead %u + staging %u exceed 63: reduce one", d->lookahead,
                           d->staging);
    if (d->devices > FRUGAL_MAX_DEVICES)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%u devices; the limit is 254", d->devices);
    if ((uint64_t)d->max_keys * (d->devices ? d->devices : 1) > FRUGAL_MAX_KEYS)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%u devices x %u keys exceed 2^26 keys a step: reduce max_keys",
                           d->devices, d->max_keys);
    if (d->mode > FRUGAL_SYNC || d->reduce > FRUGAL_MEAN || d->workers > MAX_WORKERS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "mode %d, reduce %d or workers %u is out of range (0-1, 0-1, 0-%u)",
                           (int)d->mode, (int)d->reduce, d->workers, MAX_WORKERS);
    if (d->shared_workers && d->workers != 0 && d->workers != d->shared_workers->n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "workers is %u, and shared_workers are %u threads; leave it 0",
                           d->workers, d->shared_workers->n);
    if (d->name && (d->name[0] == 0 || strlen(d->name) > MOST_NAME))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "the instance's name has %zu bytes; it must have 1 to %u",
                           strlen(d->name), MOST_NAME);
    if (d->name && (d->weights || (d->workers == 0 && !d->shared_workers)))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "an instance that others can join by name needs %s",
                           d->weights ? "a table in memory of its own or in a file: leave `weights` NULL"
                                      : "threads that serve them: set `workers` to 1 at least");
    frugal_status status = check_machines(d);
    if (status == FRUGAL_OK) status = check_row_types(d);
    if (status == FRUGAL_OK) status = check_matrices(d);
    if (status == FRUGAL_OK) status = check_alone(d);
    return status == FRUGAL_OK ? check_optimizers(d) : status;
}

static void resolve_desc(frugal_desc *d, uint32_t record_stride) {
    resolve_optimizer(&d->optimizer);
    if (d->alone == FRUGAL_ALONE_DEFAULT) d->alone = d->file ? FRUGAL_ALONE_STAGED : FRUGAL_ALONE_PLACE;
    if (d->devices == 0) d->devices = 1;
    if (d->shared_workers) d->workers = d->shared_workers->n;
    int queues = (d->workers > 0 || d->defer) && (d->devices > 1 || d->alone == FRUGAL_ALONE_STAGED);
    /* If updates are applied at closing, or there are none, one block is enough. Workers that keep up need a few blocks
     * more, and a ring that stays in the cache costs less than one that streams through memory. */
    if (d->staging == 0) d->staging = queues ? LEAST(d->lookahead + 2, 4) : 1;
    uint64_t block = (uint64_t)d->devices * d->max_keys * record_stride * sizeof(float);
    if (d->staging_bytes && d->staging * block > d->staging_bytes)
        d->staging = d->staging_bytes / block > 0 ? (uint32_t)(d->staging_bytes / block) : 1;
    if (d->stuck_seconds == 0) d->stuck_seconds = 300;
    if (d->init_threads == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        d->init_threads = processors > 0 ? (uint32_t)processors : 1;
    }
    if (d->weights && d->weights_stride == 0) d->weights_stride = d->dim;
    if (d->state && d->state_stride == 0) d->state_stride = frugal_state_floats(d->optimizer.kind, d->dim);
}

/* Makes the lists of the region: where the memory of each device is, and the mailboxes. */
static frugal_status open_mail(frugal *f) {
    if (!f->shared.region) return FRUGAL_OK;
    size_t bytes = f->desc.devices * sizeof *f->shared.parts;
    f->shared.parts = allocate_shared(f, bytes, page_unit(), &f->shared.region->devices);
    f->shared.fixed = allocate_shared(f, sizeof *f->shared.fixed, CACHE_LINE, &f->shared.region->fixed);
    if (!f->shared.parts || !f->shared.fixed)
        return fail_memory("what processes share", bytes + sizeof *f->shared.fixed);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t inbox = inbox_bytes(f);
        mailbox *box = allocate_shared(f, sizeof *box, CACHE_LINE, &f->shared.parts[d].mail);
        if (!(f->devices[d].box = box)) return fail_memory("a device's mailbox", sizeof *box);
        reset_mail(box, f->desc.first_step);
        if (!reserve_part(f, inbox, &f->shared.parts[d].inbox)) return fail_memory("batches on their way", inbox);
    }
    return FRUGAL_OK;
}

static frugal_status open_devices(frugal *f) {
    frugal_status status = open_device_list(f);
    if (status == FRUGAL_OK) status = open_mail(f);
    if (status != FRUGAL_OK) return status;
    f->batch_bytes = whole_pages(lay_batches(f, NULL));
    f->block_stride = ((size_t)f->desc.max_keys * f->record_stride + 15) / 16 * 16;
    f->block_bytes = whole_pages(f->block_stride * f->desc.staging * sizeof(float));
    f->sorting.bytes = sort_bytes_of(f);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        device_parts unused, *part = f->shared.parts ? &f->shared.parts[d] : &unused;
        if (!(device->batch_memory = allocate_shared(f, f->batch_bytes, page_unit(), &part->batches)))
            return fail_memory("announced batches", f->batch_bytes);
        if ((status = open_own(f, device)) != FRUGAL_OK) return status;
        if (!(device->blocks = allocate_shared(f, f->block_bytes, page_unit(), &part->blocks)))
            return fail_memory("staging", f->block_bytes);
        if (!(device->counts = allocate_shared(f, count_bytes(f), CACHE_LINE, &part->counts)))
            return fail_memory("hits by table", count_bytes(f));
        device->by_table = (table_hits *)(void *)(device->counts + 1);
    }
    return FRUGAL_OK;
}

static frugal_status open_changed(frugal *f) {
    if (!f->desc.increments) return FRUGAL_OK;
    f->saving.changed = frugal_allocate(f, changed_bytes(f), CACHE_LINE);
    return f->saving.changed ? FRUGAL_OK : fail_memory("the marks of changed rows", changed_bytes(f));
}

static frugal_p2f_desc p2f_desc_of(const frugal *f) {
    return (frugal_p2f_desc){.rows = f->store.rows,
                             .devices = f->desc.devices,
                             .max_rows = f->desc.max_keys,
                             .lookahead = f->desc.lookahead,
                             .staging = f->desc.staging,
                             .mode = f->desc.mode,
                             .first_step = f->desc.first_step,
                             .threads = f->desc.workers + 2 * f->desc.devices + OTHER_THREADS,
                             .zeroed = 1,
                             .taken = f->desc.devices > 1,
                             .recalls = f->desc.alone == FRUGAL_ALONE_KEPT,
                             .without_words = f->desc.devices == 1 && f->desc.alone != FRUGAL_ALONE_STAGED};
}

static frugal_status open_p2f(frugal *f) {
    frugal_p2f_desc desc = p2f_desc_of(f);
    f->p2f_bytes = frugal_p2f_footprint(&desc);
    size_t whole = whole_pages(f->p2f_bytes);
    void *memory = whole ? allocate_shared(f, whole, FRUGAL_P2F_ALIGN, REGION_PART(f, p2f)) : NULL;
    if (!memory) return fail_memory("the rows' words, plans and queue", f->p2f_bytes);
    frugal_status status = frugal_p2f_init(memory, &desc, &f->p2f);
    if (status != FRUGAL_OK) free_shared(f, memory, whole);
    return status == FRUGAL_OK ? status : frugal_fail(status, "%s", frugal_strerror(status));
}

/* Bytes of the system's memory that the instance takes: not those of the caller's matrices or allocator, and not a
 * file's, whose pages the system can write back. As open_table, open_p2f, open_changed and open_devices allocate it.
 * Words that rows do not have are not counted, because nobody touches their memory. */
static uint64_t memory_of(const frugal *f) {
    const frugal_desc *d = &f->desc;
    uint64_t rows = f->store.rows, state = f->store.state_floats, block = d->max_keys * (uint64_t)f->record_stride;
    frugal_p2f_desc p2f = p2f_desc_of(f);
    int element_wise = optimizers[d->optimizer.kind].element_floats > 0, ours = !d->weights && !d->file;
    uint64_t row = ours ? row_pitch(&f->store, element_wise) : 0, device = lay_batches(f, NULL);
    if (d->weights) state = aligned_floats((uint32_t)state);
    if (!d->state && !d->file && !(ours && element_wise)) row += state * sizeof(float);
    if (d->allocate && !d->name) return 0; /* others' memory is the region's */
    device += block * d->staging * sizeof(float) + sort_bytes_of(f);
    if (d->name) device += inbox_bytes(f);
    uint64_t machine = frugal_p2f_footprint(&p2f) - (p2f.without_words ? word_bytes(f) : 0);
    if (f->dealing) machine += f->dealing->here * guests_bytes(f) + away_bytes(f);
    return rows * row + machine + (d->increments ? changed_bytes(f) : 0) + rows +
           d->devices * device; /* `rows` alone: a byte each, if touches are counted */
}

static frugal_status check_room(frugal *f) {
    if (f->desc.sparse) return FRUGAL_OK;
    return check_memory(f, "", memory_of(f), "the instance",
                        "take fewer rows or a smaller dim, or a table in a file (frugal_desc.file); or set "
                        "frugal_desc.sparse, if most rows are never touched");
}

/* Legal, because callers may set them for any kind; but the kind may have been forgotten. */
static void tell_unused(frugal *f, const frugal_desc *desc) {
    const char *what = unused_setting(&desc->optimizer);
    for (uint32_t t = 0; t < desc->n_tables && !what; t++)
        if (desc->tables[t].optimizer) what = unused_setting(desc->tables[t].optimizer);
    if (what)
        give_notice(f,
                    "open: optimizer: %s is set, and the kind is 0 (SGD), which does not use it; was `kind` forgotten?",
                    what);
}

/* Where the system does not let tables be interleaved, they lie where they are first touched. */
static void tell_nodes(frugal *f) {
    if (f->memory.nodes.error)
        give_notice(f,
                    "open: the machine has %u nodes with memory, and the system refuses to interleave the table over "
                    "them: mbind: %s. So it lies where it is first touched: start with numactl --interleave=all, or "
                    "allow mbind (in Docker: --cap-add SYS_NICE)",
                    f->memory.nodes.n, error_text(f->memory.nodes.error));
}

/* Legal, but the rows are not those of the save, or what is trained from them is not what it would be with its type. */
static void tell_types(frugal *f) {
    const instance_saving *s = &f->saving;
    frugal_type now = f->store.rows_as;
    if (s->chain.id == 0 || s->chain.rows_as == now) return;
    give_notice(f, "open: weights are %s in the save and %s in this instance: %s", type_word(s->chain.rows_as),
                type_word(now),
                now == FRUGAL_FP32 ? "they were widened, which is exact" : "each was rounded to the nearest");
    found_rows found = {0}; /* asked of the table, because an increment may have other weights than its base */
    for (uint64_t row = 0; s->overflows && row < f->store.rows; row++)
        if (!is_row_finite(weights_of(f, row), now, f->store.dim)) add_found(&found, row);
    if (found.n > 0)
        give_notice(f,
                    "open: weights of the save beyond the largest %s have become infinite: %llu rows are not finite, "
                    "with those that were not before; the first is row %llu, counted through all tables",
                    type_word(now), (unsigned long long)found.n, (unsigned long long)found.first);
}

/* Opens all parts of an instance whose memory exists. If this fails, frugal_close frees what was made. */
static frugal_status open_parts(frugal *f, const frugal_desc *desc) {
    f->desc = *desc;
    f->event = &f->own_event;
    f->shared.file = -1;
    open_locks(f);
    open_notices(f, desc->notice, desc->user);
    tell_unused(f, desc);
    f->memory.nodes = find_nodes();
    f->record_stride = record_stride_of(desc->dim);
    resolve_desc(&f->desc, f->record_stride);
    frugal_status status = FRUGAL_OK;
    if (desc->shared_workers && (status = take_seat(f, desc->shared_workers)) != FRUGAL_OK) return status;
    if ((status = open_region(f)) != FRUGAL_OK) return status;
    if ((status = open_dealing(f, desc)) != FRUGAL_OK) return status;
    status = open_copies(f, desc);
    if (status != FRUGAL_OK) return status;
    f->store = (frugal_store){.rows = f->first_row[desc->n_tables],
                              .dim = desc->dim,
                              .state_floats = frugal_state_floats(desc->optimizer.kind, desc->dim),
                              .devices = f->desc.devices,
                              .reduce = desc->reduce,
                              .kind = desc->optimizer.kind,
                              .rows_as = desc->rows_as,
                              .rounding = desc->rounding,
                              .n_tables = desc->n_tables,
                              .first_row = f->first_row};
    number_rows(f);
    if ((status = check_room(f)) != FRUGAL_OK) return status;
    if ((status = begin_restore(f, desc)) != FRUGAL_OK) return status;
    if ((status = open_groups(f)) != FRUGAL_OK) return status;
    f->sorting.bits = bits_of_rows(f->dealing ? f->dealing->ids : f->store.rows);
    open_powers(f);
    if ((status = open_p2f(f)) != FRUGAL_OK) return status;
    if ((status = open_changed(f)) != FRUGAL_OK) return status;
    if ((status = open_devices(f)) != FRUGAL_OK) return status;
    if ((status = open_table(f)) != FRUGAL_OK) return status;
    tell_nodes(f);
    open_read_ahead(f);
    if ((status = open_door(f)) != FRUGAL_OK) return status;
    if ((status = open_machines(f)) != FRUGAL_OK) return status;
    if ((status = open_workers(f)) != FRUGAL_OK) return status;
    if ((status = open_name(f)) != FRUGAL_OK) return status;
    /* All else is there. Only now rows may change that existed before: those of a file, and those of the caller. */
    fill_table(f);
    if ((status = restore_table(f)) != FRUGAL_OK) return status;
    if ((status = publish_table_file(f)) != FRUGAL_OK) return status;
    f->opened = 1;
    if ((status = meet_machines(f)) != FRUGAL_OK) {
        leave_machines(f); /* its thread reads `opened` */
        f->opened = 0;
        return status;
    }
    tell_types(f);
    open_to_others(f);
    return FRUGAL_OK;
}

static const instance_ops opener_operations = {.owns = 1,
                                               .next = next_handed,
                                               .announce = announce_here,
                                               .finish = finish_device,
                                               .pass_gate = pass_gate,
                                               .await_block = await_block,
                                               .commit = commit_here,
                                               .is_outstanding = is_uncommitted,
                                               .poll = commit_polled,
                                               .stop = stop_here,
                                               .begin_counting = open_counts,
                                               .leave = close_door};

frugal_status frugal_open(const frugal_desc *desc, frugal **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_open: `out` is NULL");
    *out = NULL;
    if (!desc) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_open: `desc` is NULL");
    frugal_status status = check_desc(desc);
    if (status != FRUGAL_OK) return status;
    if (check_arithmetic() != FRUGAL_OK) return FRUGAL_ERR_ARITHMETIC;
    frugal *f = allocate_memory(desc, sizeof *f, CACHE_LINE);
    if (!f) return fail_memory("the instance", sizeof *f);
    *out = f;
    f->process = (uint32_t)getpid(), f->ops = &opener_operations;
    status = open_parts(f, desc);
    if (!f->opened) {
        end_doorman(f); /* the name is free again */
        drop_table_file(f);
    }
    return status;
}
