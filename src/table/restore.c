/* restore.c - the rows of saves are read into the table of an instance.
 *
 * Opening an instance from saves first checks the head of each: is it the next of the chain, with these tables?
 * Then rows are read in one pass, into memory that nobody has seen; the checksum of a block is checked before its rows
 * are used. If rows exist that would be overwritten, in the caller's matrix or in a file, a pass that only checks comes
 * first. So a damaged save is refused before anything has changed.
 *
 * Contents: >>rows >>opening >>shares
 */
#include "table.h"

/* >>rows */

typedef struct restore_job { /* reading the rows of one save, on several threads */
    frugal *f;
    saved_reader *r;
    uint32_t part;           /* the wanted instance */
    const saved_part *saved; /* as the save has it */
    int apply;               /* 0: rows are only checked */
    int is_served;           /* of rows weights alone are wanted, and no counts (served.c) */
    int marks;               /* ... and rows that are read are marked as changed */
    unsigned char *buffers;
    size_t buffer_bytes;  /* of one thread */
    pthread_mutex_t lock; /* of the walk, and of the fields below */
    uint32_t begun;       /* threads that have begun */
    frugal_status status;
    char message[sizeof last_message];
} restore_job;

typedef struct rows_block { /* in a thread's buffer, as it is in the file */
    saved_header header;
    saved_rows rows;
    unsigned char payload[];
} rows_block;

/* Blocks of rows must come in the order of instances and of rows; those of a base leave no gap. */
static frugal_status check_rows_order(saved_reader *r, const saved_rows *rows, uint64_t at) {
    int base = r->head.kind == SAVED_BASE;
    while (r->at_part < rows->part && r->at_part < r->head.parts) {
        if (base && r->next_row != r->part_rows[r->at_part]) return fail_saved(r, at, "rows are missing");
        r->at_part++, r->next_row = 0;
    }
    if (rows->part != r->at_part || r->at_part >= r->head.parts || rows->n == 0 || rows->span < rows->n ||
        rows->first < r->next_row || rows->first > r->part_rows[r->at_part] ||
        rows->span > r->part_rows[r->at_part] - rows->first ||
        (base && (rows->form != SAVED_ALL || rows->first != r->next_row)))
        return fail_saved(r, at, "rows are out of order, or not their instance's");
    r->next_row = rows->first + rows->span;
    return FRUGAL_OK;
}

static frugal_status walk_end(saved_reader *r, const saved_header *h, uint64_t at) {
    saved_end end;
    if (h->bytes != sizeof end) return fail_saved(r, at, "its end has another size");
    frugal_status status = read_saved(r, &end, sizeof end, at + sizeof *h);
    if (status != FRUGAL_OK) return status;
    if (!is_sum_right(*h, &end) || end.sums != r->sums) return fail_saved(r, at, "its end is damaged");
    if (r->head.kind == SAVED_BASE && (r->at_part + 1 != r->head.parts || r->next_row != r->part_rows[r->at_part]))
        return fail_saved(r, at, "rows are missing");
    r->ended = 1;
    return r->at == r->bytes ? check_end(r, &end, r->number, at)
                             : fail_saved(r, r->at, "there are bytes behind its end");
}

static frugal_status check_counts(const saved_reader *r, const rows_block *block, uint64_t at) {
    const saved_rows *rows = &block->rows;
    if (rows->part < r->head.parts && rows->form == SAVED_ALL && rows->n > 0 && rows->n == rows->span &&
        rows->n <= SAVED_MOST_COUNTS && rows->first <= r->part_rows[rows->part] &&
        rows->n <= r->part_rows[rows->part] - rows->first && block->header.bytes == sizeof *rows + rows->n)
        return FRUGAL_OK;
    return fail_saved(r, at, "there are counts of rows that it cannot have");
}

/* Reads the header of the next block of rows, or of the type `also`, and which rows it has, into the buffer; *at: where
 * the block is. Sets r->ended if there is none. */
static frugal_status walk_rows(saved_reader *r, rows_block *block, uint64_t *at, uint32_t also) {
    frugal_status status = next_block_or(r, &block->header, also);
    if (status != FRUGAL_OK) return status;
    *at = r->at - saved_filled(block->header.bytes) - sizeof block->header;
    if (block->header.type == SAVED_END) return walk_end(r, &block->header, *at);
    int counts = block->header.type == SAVED_COUNTS;
    if ((block->header.type != SAVED_ROWS && !counts) || block->header.bytes < sizeof block->rows)
        return fail_saved(r, *at, "a block of rows or the end is expected; is the save of a newer version?");
    status = read_saved(r, &block->rows, sizeof block->rows, *at + sizeof block->header);
    if (status != FRUGAL_OK) return status;
    return counts ? check_counts(r, block, *at) : check_rows_order(r, &block->rows, *at);
}

/* Are the rows of the index within the span, rising, and as many as the block says? */
static int is_index_sound(const saved_rows *rows, const unsigned char *index) {
    uint64_t n = 0, last = 0;
    if (rows->form == SAVED_ALL) return rows->n == rows->span;
    if (rows->form == SAVED_BITS) {
        for (uint64_t i = 0; i < (rows->span + 63) / 64; i++) {
            uint64_t word;
            memcpy(&word, index + 8 * i, sizeof word);
            if (i == rows->span / 64 && word >> rows->span % 64) return 0;
            n += (uint64_t)__builtin_popcountll(word);
        }
        return n == rows->n;
    }
    for (; n < rows->n; n++) {
        uint16_t small;
        uint32_t offset;
        if (rows->form == SAVED_OFFSETS16)
            memcpy(&small, index + 2 * n, sizeof small), offset = small;
        else
            memcpy(&offset, index + 4 * n, sizeof offset);
        if (offset >= rows->span || (n > 0 && offset <= last)) return 0;
        last = offset;
    }
    return 1;
}

/* The offset of the i-th row, which is the first one from offset `from` on. */
static uint64_t offset_of(const saved_rows *rows, const unsigned char *index, uint64_t i, uint64_t from) {
    uint16_t small;
    uint32_t offset;
    switch (rows->form) {
    case SAVED_BITS:
        while (!(index[from / 8] >> from % 8 & 1)) from++;
        return from;
    case SAVED_OFFSETS16:
        memcpy(&small, index + 2 * i, sizeof small);
        return small;
    case SAVED_OFFSETS32:
        memcpy(&offset, index + 4 * i, sizeof offset);
        return offset;
    default:
        return i;
    }
}

static void apply_saved_rows(restore_job *job, const rows_block *block) {
    frugal *f = job->f;
    const saved_rows *rows = &block->rows;
    const frugal_store *s = &f->store;
    frugal_type as = (frugal_type)job->saved->rows_as;
    size_t row_bytes = (size_t)saved_weight_bytes(job->saved);
    const unsigned char *weights = block->payload + saved_index_bytes(rows->form, rows->span, rows->n);
    const unsigned char *state = weights + rows->n * row_bytes;
    int overflows = 0;
    for (uint64_t i = 0, offset = 0; i < rows->n; i++, offset++, weights += row_bytes) {
        offset = offset_of(rows, block->payload, i, offset);
        void *to = weights_of(f, rows->first + offset);
        if (as == s->rows_as)
            memcpy(to, weights, row_bytes);
        else
            frugal_convert(to, s->rows_as, weights, as, s->dim);
        if (as != s->rows_as) overflows |= !is_row_finite(to, s->rows_as, s->dim) && is_row_finite(weights, as, s->dim);
        if (job->marks) mark_changed(f, rows->first + offset);
        if (s->state_floats && !job->is_served)
            memcpy(state_of(f, rows->first + offset), state + i * s->state_floats * sizeof(float),
                   s->state_floats * sizeof(float));
    }
    if (!overflows) return;
    pthread_mutex_lock(&job->lock);
    f->saving.overflows = 1;
    pthread_mutex_unlock(&job->lock);
}

/* Reads the rest of a block of the wanted instance; its header is in the buffer. */
static frugal_status read_rows_block(restore_job *job, rows_block *block, uint64_t at) {
    const saved_rows *rows = &block->rows;
    uint64_t row_bytes = saved_row_bytes(job->saved), bytes = block->header.bytes;
    if (rows->form > SAVED_OFFSETS32 ||
        bytes != sizeof *rows + saved_index_bytes(rows->form, rows->span, rows->n) + rows->n * row_bytes ||
        sizeof block->header + saved_filled(bytes) > job->buffer_bytes)
        return fail_saved(job->r, at, "a block of rows has another size than its rows");
    frugal_status status =
        read_saved(job->r, block->payload, (size_t)(saved_filled(bytes) - sizeof *rows), at + sizeof *block);
    if (status != FRUGAL_OK) return status;
    if (!is_sum_right(block->header, (unsigned char *)block + sizeof block->header))
        return fail_saved(job->r, at, "a block is damaged");
    if (!is_index_sound(rows, block->payload)) return fail_saved(job->r, at, "a block names rows that it cannot have");
    if (job->apply) apply_saved_rows(job, block);
    return FRUGAL_OK;
}

/* The same for a block of counts. Several threads may read some of the same bytes only if the save is not ours. */
static frugal_status read_counts_block(const restore_job *job, rows_block *block, uint64_t at) {
    const saved_rows *rows = &block->rows;
    frugal_status status = read_saved(job->r, block->payload, (size_t)(saved_filled(rows->n)), at + sizeof *block);
    if (status != FRUGAL_OK) return status;
    if (!is_sum_right(block->header, (unsigned char *)block + sizeof block->header))
        return fail_saved(job->r, at, "a block is damaged");
    if (job->is_served) return FRUGAL_OK;
    if (job->r != &job->f->saving.reader[job->f->desc.n_saved - 1]) return FRUGAL_OK; /* a later one counts */
    if ((status = open_counts(job->f)) != FRUGAL_OK)
        return status; /* also if rows are only checked: memory is had then */
    if (!job->apply) return FRUGAL_OK;
    for (uint64_t i = 0; i < rows->n; i++) /* relaxed: run_parallel orders this with what follows */
        frugal_store_relaxed(&job->f->touches.worth[rows->first + i], block->payload[i]);
    return FRUGAL_OK;
}

static void end_restore(restore_job *job, frugal_status status) {
    if (job->status != FRUGAL_OK) return; /* the first error counts */
    job->status = status;
    memcpy(job->message, last_message, sizeof job->message);
}

static void *restore_blocks(void *argument) {
    restore_job *job = argument;
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&job->lock);
    rows_block *block = (rows_block *)(void *)(job->buffers + job->begun++ * job->buffer_bytes);
    while (job->status == FRUGAL_OK && !job->r->ended) {
        uint64_t at;
        status = walk_rows(job->r, block, &at, SAVED_COUNTS);
        int mine = block->rows.part == job->part, counts = block->header.type == SAVED_COUNTS;
        if (status == FRUGAL_OK && !job->r->ended && (mine || !job->apply)) {
            pthread_mutex_unlock(&job->lock);
            status = !mine    ? check_skipped(job->r, block->header, at, block, job->buffer_bytes)
                     : counts ? read_counts_block(job, block, at)
                              : read_rows_block(job, block, at);
            pthread_mutex_lock(&job->lock);
        }
        if (status != FRUGAL_OK) end_restore(job, status);
    }
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

FRUGAL_INTERNAL uint32_t threads_of(const frugal *f) {
    return LEAST(f->desc.init_threads, MOST_PARALLEL);
}

/* Reads the rows of the instance's saves, in the order of the chain, from number `first` on; `how` is what to do with
 * them. */
static frugal_status read_saves(frugal *f, uint32_t first, restore_job how) {
    restore_job job = how;
    job.f = f, job.part = f->desc.saved_part, job.status = FRUGAL_OK;
    job.saved = &f->saving.reader[0].part; /* of all files of a chain the same, except its settings */
    job.buffer_bytes = (saved_most_bytes(saved_row_bytes(job.saved)) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    job.buffers = frugal_allocate(f, threads_of(f) * job.buffer_bytes, CACHE_LINE);
    if (!job.buffers) return fail_memory("reading saves", threads_of(f) * job.buffer_bytes);
    if (job.apply && !job.is_served) job.status = overwrite_table_file(f); /* after all else that may fail */
    pthread_mutex_init(&job.lock, NULL);
    for (uint32_t i = first; i < f->desc.n_saved && job.status == FRUGAL_OK; i++) {
        saved_reader *r = job.r = &f->saving.reader[i];
        r->at = r->first_rows.at, r->number = r->first_rows.number, r->sums = r->first_rows.sums;
        r->at_part = 0, r->next_row = 0, r->ended = 0;
        job.begun = 0;
        run_parallel(threads_of(f), restore_blocks, &job);
    }
    pthread_mutex_destroy(&job.lock);
    frugal_free(f, job.buffers, threads_of(f) * job.buffer_bytes);
    if (job.message[0]) memcpy(last_message, job.message, sizeof job.message);
    return job.status;
}

/* Reads all rows; if not `apply`, only checks them. */
static frugal_status read_chain(frugal *f, int apply) {
    return read_saves(f, 0, (restore_job){.apply = apply});
}

/* Reads the weights of the saves from number `first` on, for a version that is served. */
FRUGAL_INTERNAL frugal_status read_weights(frugal *f, uint32_t first, int marks) {
    return read_saves(f, first, (restore_job){.apply = 1, .is_served = 1, .marks = marks});
}

/* >>opening */

static frugal_status check_saved_layout(const frugal *f, const saved_reader *r, const saved_table *tables) {
    const saved_part *p = &r->part;
    if (p->dim != f->desc.dim || p->n_tables != f->desc.n_tables || p->optimizer != (uint32_t)f->desc.optimizer.kind)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "%u tables of dim %u and optimizer %u are wanted; the save has %u of dim %u and optimizer "
                           "%u: %s",
                           f->desc.n_tables, f->desc.dim, (unsigned)f->desc.optimizer.kind, p->n_tables, p->dim,
                           p->optimizer, r->name);
    for (uint32_t t = 0; t < p->n_tables; t++)
        if (tables[t].rows != f->desc.tables[t].rows)
            return frugal_fail(FRUGAL_ERR_FILE, "table %u has %llu rows, and %llu in the save: %s", t,
                               (unsigned long long)f->desc.tables[t].rows, (unsigned long long)tables[t].rows, r->name);
    return FRUGAL_OK;
}

static const char *say_rounding(char text[64], frugal_rounding rounding, uint64_t seed) {
    if (rounding == FRUGAL_NEAREST) return "to the nearest";
    snprintf(text, 64, "stochastically, by seed %llu", (unsigned long long)seed);
    return text;
}

/* Does training go on by the same random bits? A save of another type says nothing of that. */
static frugal_status check_saved_rounding(const frugal *f, const saved_reader *r) {
    const saved_part *p = &r->part;
    const frugal_desc *d = &f->desc;
    char now[64], then[64];
    if (d->rows_as == FRUGAL_FP32 || p->rows_as != (uint32_t)d->rows_as) return FRUGAL_OK;
    if (p->rounding == (uint32_t)d->rounding && (d->rounding == FRUGAL_NEAREST || p->seed == d->seed)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_SETTINGS,
                       "weights of %s are rounded %s; in the save %s; give the same, or set saved_settings_may_differ: "
                       "%s",
                       type_word(d->rows_as), say_rounding(now, d->rounding, d->seed),
                       say_rounding(then, (frugal_rounding)p->rounding, p->seed), r->name);
}

/* Checks the settings that the bits of the result depend on. */
static frugal_status check_saved_settings(const frugal *f, const saved_reader *r, const saved_table *tables) {
    const char *remedy = "give the same, or set saved_settings_may_differ";
    if (f->desc.saved_settings_may_differ) return FRUGAL_OK;
    if (r->part.reduce != (uint32_t)f->desc.reduce ||
        (f->desc.reduce == FRUGAL_MEAN && r->part.devices != f->desc.devices))
        return frugal_fail(FRUGAL_ERR_SETTINGS, "%u devices, reduced by %s; the save has %u, reduced by %s; %s: %s",
                           f->desc.devices, f->desc.reduce == FRUGAL_MEAN ? "mean" : "sum", r->part.devices,
                           r->part.reduce == FRUGAL_MEAN ? "mean" : "sum", remedy, r->name);
    frugal_status status = check_saved_rounding(f, r);
    if (status != FRUGAL_OK) return status;
    for (uint32_t t = 0; t < r->part.n_tables; t++) {
        frugal_optimizer now = optimizer_of(f, t);
        frugal_optimizer then = {.kind = now.kind,
                                 .eps = tables[t].eps,
                                 .beta1 = tables[t].beta1,
                                 .beta2 = tables[t].beta2,
                                 .weight_decay = tables[t].weight_decay,
                                 .initial_accumulator = tables[t].initial_accumulator,
                                 .lr_scale = tables[t].lr_scale,
                                 .clip_norm = tables[t].clip_norm,
                                 .frozen = (int)tables[t].frozen};
        if (!is_same_optimizer(&now, &then))
            return frugal_fail(FRUGAL_ERR_SETTINGS, "table %u has other optimizer settings than in the save; %s: %s", t,
                               remedy, r->name);
    }
    return FRUGAL_OK;
}

/* Checks that each file continues the one before, and that the first is a base. */
static frugal_status check_chain(const saved_reader *before, const saved_reader *r) {
    if (!before && r->head.kind == SAVED_BASE) return FRUGAL_OK;
    if (!before)
        return frugal_fail(FRUGAL_ERR_FILE, "the first of `saved` is increment %llu; name its base before it: %s",
                           (unsigned long long)r->head.sequence, r->name);
    if (r->head.kind == SAVED_BASE)
        return frugal_fail(FRUGAL_ERR_FILE, "a base comes after the first of `saved`; only increments may: %s",
                           r->name);
    if (r->head.base != before->head.base)
        return frugal_fail(FRUGAL_ERR_FILE, "the increment belongs to another base, which is to be given before it: %s",
                           r->name);
    if (r->head.parent != before->head.id || r->head.sequence != before->head.sequence + 1 ||
        r->head.parts != before->head.parts)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the increment is number %llu of its base and does not continue the one before, which is "
                           "number %llu; name all of them, in order: %s",
                           (unsigned long long)r->head.sequence, (unsigned long long)before->head.sequence, r->name);
    if (r->part.rows_as != before->part.rows_as)
        return frugal_fail(FRUGAL_ERR_FILE, "weights are %s in the increment, and %s in the save that it continues: %s",
                           type_word((frugal_type)r->part.rows_as), type_word((frugal_type)before->part.rows_as),
                           r->name);
    return FRUGAL_OK;
}

/* >>shares - one of several machines reads its share of each save */

/* Is each row's home what it is here? The list is the base's. */
static frugal_status check_homes_here(const frugal *f, const manifest *m) {
    uint8_t homes[HOMES_PIECE];
    for (uint64_t first = 0, n; first < f->dealing->ids; first += n) {
        n = LEAST(f->dealing->ids - first, sizeof homes);
        frugal_status status = read_homes(m, f->desc.saved_part, first, n, homes);
        for (uint64_t i = 0; i < n && status == FRUGAL_OK; i++)
            if (homes[i] != home_of_id(f->dealing, first + i))
                status = frugal_fail(FRUGAL_ERR_FILE,
                                     "the home of row %llu, counted through all tables, is machine %u, and in the save "
                                     "%u; give the same homes, or deal the save anew by `frugal_file split`: %s",
                                     (unsigned long long)(first + i), home_of_id(f->dealing, first + i), homes[i],
                                     m->name.path);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

/* Are rows dealt as they are here? `before`: the save that this one continues; NULL: it is the first. */
static frugal_status check_dealing(const frugal *f, const manifest *m, const saved_reader *before) {
    const dealing *g = f->dealing;
    uint32_t p = f->desc.saved_part;
    if (p >= m->head.head.parts)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "instance %u of a save that has %u, from 0: %s", p, m->head.head.parts,
                           m->name.path);
    const manifest_part *part = m->parts[p];
    if (m->head.machines != g->machines || part->deal != (uint32_t)g->deal)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "rows are dealt over %u machines, %s, and in the save over %u, %s; deal it anew by "
                           "`frugal_file split`: %s",
                           g->machines, deal_word((uint32_t)g->deal), m->head.machines, deal_word(part->deal),
                           m->name.path);
    const saved_table *tables = (const saved_table *)(part + 1);
    for (uint32_t t = 0; t < part->part.n_tables && t < f->desc.n_tables; t++)
        if (tables[t].rows != keys_of(f, t))
            return frugal_fail(FRUGAL_ERR_FILE, "table %u has %llu rows, and %llu in the save: %s", t,
                               (unsigned long long)keys_of(f, t), (unsigned long long)tables[t].rows, m->name.path);
    if (part->part.n_tables != f->desc.n_tables || g->deal != FRUGAL_DEAL_LISTED) return FRUGAL_OK;
    if (m->head.head.kind == SAVED_BASE) return check_homes_here(f, m);
    if (!before || m->head.homes_checksum == before->homes_checksum) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE, "the increment has other homes than its base: %s", m->name.path);
}

static frugal_status open_share(frugal *f, const frugal_desc *desc, uint32_t i, saved_part **tables, size_t *bytes) {
    saved_reader *r = &f->saving.reader[i];
    manifest m;
    char name[LONGEST_PATH], *path = NULL;
    frugal_status status = open_manifest(&m, desc->saved[i], desc);
    if (status == FRUGAL_OK) status = check_dealing(f, &m, i ? r - 1 : NULL);
    int error = status == FRUGAL_OK ? name_share(&m, f->dealing->me, name) : 0;
    if (error) status = fail_system("name a share", error, desc->saved[i]);
    if (status == FRUGAL_OK && !(path = frugal_allocate(f, strlen(name) + 1, CACHE_LINE)))
        status = fail_memory("the name of a share", strlen(name) + 1);
    if (status == FRUGAL_OK) {
        memcpy(path, name, strlen(name) + 1);
        status = open_saved(r, path, desc->saved_part, desc, tables, bytes);
        r->path = path, r->set = m.head.head, r->homes_checksum = m.head.homes_checksum;
    }
    if (status == FRUGAL_OK) status = check_share(&m, f->dealing->me, r);
    close_manifest(&m);
    return status;
}

static frugal_status open_one_saved(frugal *f, const frugal_desc *desc, uint32_t i) {
    saved_reader *r = &f->saving.reader[i];
    saved_part *tables = NULL;
    size_t bytes = 0;
    frugal_status status = f->dealing ? open_share(f, desc, i, &tables, &bytes)
                                      : open_saved(r, desc->saved[i], desc->saved_part, desc, &tables, &bytes);
    const saved_table *table = (const saved_table *)(tables ? tables + 1 : NULL);
    if (!f->dealing) r->set = r->head;
    if (status == FRUGAL_OK) status = check_chain(i ? r - 1 : NULL, r);
    if (status == FRUGAL_OK) status = check_saved_layout(f, r, table);
    if (status == FRUGAL_OK && i + 1 == desc->n_saved) status = check_saved_settings(f, r, table);
    release_memory(desc, tables, bytes);
    return status;
}

FRUGAL_INTERNAL void close_all_saved(frugal *f) {
    for (uint32_t i = 0; f->saving.reader && i < f->desc.n_saved; i++) {
        saved_reader *r = &f->saving.reader[i];
        close_saved(r);
        if (r->path) frugal_free(f, r->path, strlen(r->path) + 1);
    }
    frugal_free(f, f->saving.reader, f->desc.n_saved * sizeof *f->saving.reader);
    f->saving.reader = NULL, f->desc.saved = NULL, f->desc.n_saved = 0;
}

/* Do rows exist, in the caller's matrix or in a file, that must not change if the saves cannot be used? */
static int has_rows_before(const frugal_desc *desc) {
    struct stat there;
    return desc->weights || (desc->file && !stat(desc->file, &there) && there.st_size > 0);
}

/* Opens the saves and checks their heads. The first step becomes that of the last save. Called before there is a
 * table. */
FRUGAL_INTERNAL frugal_status begin_restore(frugal *f, const frugal_desc *desc) {
    if (desc->n_saved == 0) return FRUGAL_OK;
    size_t bytes = desc->n_saved * sizeof *f->saving.reader;
    if (!(f->saving.reader = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("reading saves", bytes);
    for (uint32_t i = 0; i < desc->n_saved; i++) f->saving.reader[i].file = -1;
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < desc->n_saved && status == FRUGAL_OK; i++) status = open_one_saved(f, desc, i);
    if (status != FRUGAL_OK) return status;
    const saved_reader *last = &f->saving.reader[desc->n_saved - 1];
    if (desc->first_step != 0 && desc->first_step != last->part.step)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "first_step is %llu, and the save's is %llu; leave it 0: %s",
                           (unsigned long long)desc->first_step, (unsigned long long)last->part.step, last->name);
    f->desc.first_step = last->part.step;
    return has_rows_before(desc) ? read_chain(f, 0) : FRUGAL_OK;
}

/* Reads the rows into the table, which is open by now. */
FRUGAL_INTERNAL frugal_status restore_table(frugal *f) {
    if (f->desc.n_saved == 0) return FRUGAL_OK;
    frugal_status status = read_chain(f, 1);
    const saved_reader *last = &f->saving.reader[f->desc.n_saved - 1];
    if (status == FRUGAL_OK)
        f->saving.chain = (saved_chain){last->set.id,       last->set.base,  last->set.sequence,
                                        f->desc.saved_part, last->set.parts, (frugal_type)last->part.rows_as};
    close_all_saved(f);
    return status;
}
