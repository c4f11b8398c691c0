/* save.c - the tables of one or several drained instances are written to a file: all rows, or those that have
 * changed.
 *
 * First it plans which rows each block has, and so where each block lies in the file. Then several threads pack,
 * checksum and write blocks, in any order. The file takes its name when all of it is on the disk (file.c). Only then
 * are the marks of changed rows cleared.
 *
 * Contents: >>checks >>planning >>writing >>saving
 */
#include "access.h"

struct planned_block { /* of rows */
    uint64_t at, first, span;
    uint32_t n, part, form;
};

/* >>checks */

static frugal_status check_increment(frugal *const *instances, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const saved_chain *chain = &instances[i]->saving.chain, *first = &instances[0]->saving.chain;
        if (!instances[i]->saving.changed)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: there is no increment of instance %u, which was opened without `increments` in "
                               "frugal_desc; set it, or save a base",
                               i);
        if (chain->id == 0)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: an increment continues a save, and instance %u has none: it was neither saved "
                               "nor restored, or its last base may not be on the disk; save a base first",
                               i);
        if (chain->rows_as != instances[i]->store.rows_as)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: an increment continues a save of the same type, and instance %u, whose weights "
                               "are %s, was restored from one of %s; save a base first",
                               i, type_word(instances[i]->store.rows_as), type_word(chain->rows_as));
        if (chain->id != first->id || chain->part != i || chain->parts != n)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: the %u instances of an increment must have been saved last by one call, in this "
                               "order; instance %u was %u of %u: save those, or a base",
                               n, i, chain->part, chain->parts);
    }
    return FRUGAL_OK;
}

FRUGAL_INTERNAL frugal_status check_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc) {
    if (!desc || !desc->path) return frugal_fail(FRUGAL_ERR_ARGUMENT, "save: `desc` or its `path` is NULL");
    if (!instances || n == 0 || n > SAVED_MOST_PARTS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "save: %u instances; there may be 1 to %u", n, SAVED_MOST_PARTS);
    for (uint32_t i = 0; i < n; i++) {
        frugal_status status = check_owner(instances[i], "save");
        if (status != FRUGAL_OK) return status;
        for (uint32_t k = 0; k < i; k++)
            if (instances[k] == instances[i])
                return frugal_fail(FRUGAL_ERR_ARGUMENT, "save: instances %u and %u are the same", k, i);
        if (instances[i]->desc.n_tables > SAVED_MOST_TABLES)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: instance %u has %u tables; a save may have %u per instance; open tables of the "
                               "same settings as one table",
                               i, instances[i]->desc.n_tables, SAVED_MOST_TABLES);
    }
    if (SAVED_FILE != *(const unsigned char *)&(const uint16_t){SAVED_FILE}) /* the first byte of a number */
        return frugal_fail(FRUGAL_ERR_FILE, "save: files are little-endian, and this machine is not");
    for (uint32_t i = 0; i < n; i++) {
        int complete = is_complete(instances[i]); /* first: a device that is lost keeps nothing any more */
        if (has_lost_rows(instances[i])) return fail_lost(instances[i], "save");
        if (!complete) return frugal_fail(FRUGAL_ERR_BUSY, "save: instance %u is not drained; call frugal_drain", i);
        uint32_t ahead = device_ahead(instances[i]); /* also after a loss: rows of two steps are not saved as one */
        if (ahead < instances[i]->desc.devices)
            return fail_ahead("save", ahead, frugal_p2f_all_committed(instances[i]->p2f));
    }
    return desc->increment ? check_increment(instances, n) : FRUGAL_OK;
}

/* The head of a save, or what a manifest has of it. */
static frugal_status read_head(const char *path, int is_manifest, const frugal *f, saved_file *head) {
    if (is_manifest) {
        manifest m;
        frugal_status status = open_manifest(&m, path, &f->desc);
        *head = m.head.head;
        close_manifest(&m);
        return status;
    }
    saved_reader r;
    frugal_status status = open_saved(&r, path, 0, &f->desc, NULL, NULL);
    *head = r.head;
    close_saved(&r);
    return status;
}

/* Only a save, a manifest or an empty file is replaced, and no save that the increment builds upon. *is_manifest is
 * set. */
FRUGAL_INTERNAL frugal_status check_replaced(const file_name *name, const frugal_save_desc *desc, const frugal *first,
                                             int *is_manifest) {
    unsigned char begins[SAVED_MAGIC_BYTES + 4] = {0};
    uint32_t block;
    saved_file head;
    int whole;
    *is_manifest = 0;
    if (!name->there) return FRUGAL_OK;
    if (!desc->replace) return fail_system("save to this file", EEXIST, desc->path);
    if (name->status.st_size == 0) return FRUGAL_OK;
    frugal_status status = read_beginning(name, desc->path, begins, sizeof begins, &whole);
    if (status != FRUGAL_OK) return status;
    memcpy(&block, begins + SAVED_MAGIC_BYTES, sizeof block);
    if (!whole || memcmp(begins, SAVED_MAGIC, SAVED_MAGIC_BYTES) != 0 ||
        (block != SAVED_BLOCK_MAGIC && block != MANIFEST_MAGIC))
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the file to be replaced is not a save; choose another name, or remove it: %s", desc->path);
    *is_manifest = block == MANIFEST_MAGIC;
    if (!desc->increment) return FRUGAL_OK;
    status = read_head(desc->path, *is_manifest, first, &head);
    if (status != FRUGAL_OK)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the increment would replace a save that cannot be read, and that it may need; choose "
                           "another name: %s",
                           desc->path);
    if (head.base != first->saving.chain.base || head.sequence > first->saving.chain.sequence) return FRUGAL_OK;
    /* It has the number of the save that this increment continues, but another id: it failed, or was given up. */
    if (head.sequence == first->saving.chain.sequence && head.id != first->saving.chain.id) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "the increment would replace number %llu of its own base, which it needs; choose another name: "
                       "%s",
                       (unsigned long long)head.sequence, desc->path);
}

/* >>planning */

/* Returns the first row to be saved from `row` on; the number of rows if there is none. */
static uint64_t next_saved_row(const frugal *f, int increment, uint64_t row) {
    if (!increment || row >= f->store.rows) return row;
    uint64_t at = row / 64, end = (f->store.rows + 63) / 64;
    /* relaxed: nobody changes rows, because the instance is drained */
    uint64_t word = frugal_load_relaxed(&f->saving.changed[at]) & UINT64_MAX << row % 64;
    while (word == 0 && ++at < end) word = frugal_load_relaxed(&f->saving.changed[at]);
    return word ? at * 64 + (uint64_t)__builtin_ctzll(word) : f->store.rows;
}

static uint64_t row_bytes_of(const frugal *f) {
    return frugal_row_bytes(&f->store) + f->store.state_floats * sizeof(float);
}

static uint64_t block_bytes_of(const frugal *f, const planned_block *b) {
    return sizeof(saved_rows) + saved_index_bytes(b->form, b->span, b->n) + b->n * row_bytes_of(f);
}

/* Plans the block that begins with the row `first`. It ends before offsets need 32 bits, because 16-bit offsets save
 * more than another header costs. */
static planned_block plan_block(const frugal *f, int increment, uint64_t first) {
    enum { WORTH_A_HEADER = 64 };
    uint64_t most = saved_most_rows(row_bytes_of(f)), last = first, n = 1;
    if (!increment) {
        n = LEAST(most, f->store.rows - first);
        return (planned_block){.first = first, .span = n, .n = (uint32_t)n, .form = SAVED_ALL};
    }
    for (; n < most; n++) {
        uint64_t row = next_saved_row(f, 1, last + 1);
        if (row >= f->store.rows || (row - first >= 65536 && last - first < 65536 && n >= WORTH_A_HEADER)) break;
        last = row;
    }
    uint64_t span = last - first + 1;
    return (planned_block){.first = first, .span = span, .n = (uint32_t)n, .form = saved_form_of(span, n)};
}

/* Plans the blocks of all instances. Stores them if there is memory for them, else only counts. */
static void plan_blocks(save_job *job) {
    int increment = job->head.kind == SAVED_INCREMENT;
    job->n_blocks = 0;
    for (uint32_t p = 0; p < job->head.parts; p++) {
        const frugal *f = job->instances[p];
        uint64_t row = next_saved_row(f, increment, 0);
        while (row < f->store.rows) {
            planned_block b = plan_block(f, increment, row);
            b.part = p, b.at = job->at;
            if (job->blocks) job->blocks[job->n_blocks] = b;
            job->n_blocks++;
            job->at += sizeof(saved_header) + saved_filled(block_bytes_of(f, &b));
            row = next_saved_row(f, increment, b.first + b.span);
        }
    }
}

/* The first row from `row` on with which a block of counts begins: blocks are cut at equal distances, and those without
 * any count are left out. The number of rows if there is none. */
static uint64_t next_counts(frugal *f, uint64_t row) {
    for (; is_counting(f) && row < f->store.rows; row += SAVED_MOST_COUNTS)
        for (uint64_t i = row; i < f->store.rows && i < row + SAVED_MOST_COUNTS; i++)
            if (frugal_load_relaxed(&f->touches.worth[i])) return row; /* relaxed: no other call is under way */
    return f->store.rows;
}

static uint64_t blocks_of_counts(const save_job *job) {
    uint64_t n = 0;
    for (uint32_t p = 0; p < job->head.parts; p++) {
        frugal *f = job->instances[p];
        for (uint64_t row = 0; (row = next_counts(f, row)) < f->store.rows; row += SAVED_MOST_COUNTS) n++;
    }
    return n;
}

/* The number of checksums. */
static uint64_t sums_of(const save_job *job) {
    return 1 + job->head.parts + job->n_blocks + job->n_counts;
}

static uint64_t part_bytes_of(const save_job *job, const frugal *f) {
    return saved_part_bytes(job->head.version) + f->desc.n_tables * sizeof(saved_table);
}

/* Allocates the memory of a job: planned blocks, checksums, and a buffer for each thread. */
static frugal_status allocate_job(save_job *job) {
    const frugal_desc *memory = job->memory;
    uint64_t most = 0, most_part = 0, begin = SAVED_MAGIC_BYTES + sizeof(saved_header) + sizeof(saved_file);
    for (uint32_t p = 0; p < job->head.parts; p++) {
        uint64_t part = part_bytes_of(job, job->instances[p]), rows = saved_most_bytes(row_bytes_of(job->instances[p]));
        begin += sizeof(saved_header) + saved_filled(part);
        if (rows > most) most = rows;
        if (sizeof(saved_header) + saved_filled(part) > most_part)
            most_part = sizeof(saved_header) + saved_filled(part);
    }
    job->at = begin;
    plan_blocks(job);
    job->n_counts = blocks_of_counts(job);
    uint64_t n = job->n_blocks ? job->n_blocks : 1, sums = sums_of(job) * sizeof *job->sums;
    job->buffer_count = LEAST(threads_of(job->instances[0]), n);
    job->buffer_bytes = (size_t)((most + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    job->bytes = job->buffer_count * job->buffer_bytes;
    if (job->bytes < most_part) job->bytes = (size_t)most_part;
    job->blocks = allocate_memory(memory, (size_t)n * sizeof *job->blocks, CACHE_LINE);
    if (!job->blocks) return fail_memory("planning a save", n * sizeof *job->blocks);
    job->sums = allocate_memory(memory, (size_t)sums, CACHE_LINE);
    if (!job->sums) return fail_memory("the checksums of a save", sums);
    job->buffers = allocate_memory(memory, job->bytes, CACHE_LINE);
    if (!job->buffers) return fail_memory("writing a save", job->bytes);
    job->at = begin;
    plan_blocks(job);
    return FRUGAL_OK;
}

static void release_job(save_job *job) {
    uint64_t n = job->n_blocks ? job->n_blocks : 1;
    release_memory(job->memory, job->blocks, (size_t)n * sizeof *job->blocks);
    release_memory(job->memory, job->sums, (size_t)sums_of(job) * sizeof *job->sums);
    release_memory(job->memory, job->buffers, job->bytes);
}

/* >>writing */

/* Fills up the block in the buffer, and writes its header with the checksum. Returns the bytes of the block in the
 * file. */
static size_t finish_block(unsigned char *buffer, uint32_t type, uint64_t number, uint64_t bytes, uint32_t *sum) {
    saved_header h = {.magic = SAVED_BLOCK_MAGIC, .type = type, .number = number, .bytes = bytes};
    size_t whole = sizeof h + (size_t)saved_filled(bytes);
    memset(buffer + sizeof h + bytes, 0, whole - sizeof h - (size_t)bytes);
    memcpy(buffer, &h, sizeof h);
    *sum = h.sum = crc32c(0, buffer, whole);
    memcpy(buffer, &h, sizeof h);
    return whole;
}

/* Puts the rows of a block behind its header; returns their bytes. Those that are not finite are added to *found. */
static uint64_t pack_rows(const frugal *f, const planned_block *b, unsigned char *to, found_rows *found) {
    const frugal_store *s = &f->store;
    saved_rows rows = {.part = b->part, .form = b->form, .first = b->first, .span = b->span, .n = b->n};
    size_t weight_bytes = (size_t)frugal_row_bytes(s), state_bytes = s->state_floats * sizeof(float);
    memcpy(to, &rows, sizeof rows);
    unsigned char *index = to + sizeof rows;
    size_t index_bytes = (size_t)saved_index_bytes(b->form, b->span, b->n);
    unsigned char *weights = index + index_bytes, *state = weights + b->n * weight_bytes;
    memset(index, 0, index_bytes);
    uint64_t row = b->first;
    for (uint32_t i = 0; i < b->n; i++, row = next_saved_row(f, b->form != SAVED_ALL, row + 1)) {
        uint32_t offset = (uint32_t)(row - b->first);
        uint16_t small = (uint16_t)offset;
        if (b->form == SAVED_BITS) index[offset / 8] |= (unsigned char)(1u << offset % 8);
        if (b->form == SAVED_OFFSETS16) memcpy(index + 2 * i, &small, sizeof small);
        if (b->form == SAVED_OFFSETS32) memcpy(index + (size_t)4 * i, &offset, sizeof offset);
        memcpy(weights + i * weight_bytes, weights_of(f, row), weight_bytes);
        if (!is_row_finite(weights_of(f, row), s->rows_as, s->dim)) add_found(found, row);
        if (state_bytes) memcpy(state + i * state_bytes, state_of(f, row), state_bytes);
    }
    return block_bytes_of(f, b);
}

static void *save_blocks(void *argument) {
    save_job *job = argument;
    pthread_mutex_lock(&job->lock);
    unsigned char *buffer = job->buffers + job->begun++ * job->buffer_bytes;
    while (!job->error && job->next < job->n_blocks) {
        uint64_t i = job->next++, number = 1 + job->head.parts + i;
        pthread_mutex_unlock(&job->lock);
        const planned_block *b = &job->blocks[i];
        found_rows found = {0};
        uint64_t bytes = pack_rows(job->instances[b->part], b, buffer + sizeof(saved_header), &found);
        size_t whole = finish_block(buffer, SAVED_ROWS, number, bytes, &job->sums[number]);
        int error = write_at(job->file.file, buffer, whole, b->at);
        pthread_mutex_lock(&job->lock);
        add_all_found(&job->found[b->part], &found);
        if (error && !job->error) job->error = error, job->error_bytes = whole;
    }
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

FRUGAL_INTERNAL saved_part describe_part(const frugal *f) {
    int is_random = f->store.rows_as != FRUGAL_FP32 && f->store.rounding == FRUGAL_STOCHASTIC;
    return (saved_part){.rows = f->store.rows,
                        .step = frugal_p2f_closed(f->p2f),
                        .dim = f->store.dim,
                        .n_tables = f->desc.n_tables,
                        .optimizer = (uint32_t)f->store.kind,
                        .state_floats = f->store.state_floats,
                        .reduce = (uint32_t)f->desc.reduce,
                        .devices = f->desc.devices,
                        .rows_as = (uint32_t)f->store.rows_as,
                        .rounding = (uint32_t)f->store.rounding,
                        .seed = is_random ? f->desc.seed : 0};
}

/* Writes the instance and its tables to `to`, as a PART of src/format.h. */
static void pack_part(const save_job *job, const frugal *f, unsigned char *to) {
    size_t head = (size_t)saved_part_bytes(job->head.version);
    saved_part part = describe_part(f);
    memcpy(to, &part, head);
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        saved_table table = describe_table(f, t);
        memcpy(to + head + t * sizeof table, &table, sizeof table);
    }
}

/* Writes the next small block, which is in the first buffer. Returns an errno. */
static int write_small(save_job *job, uint32_t type, uint64_t number, uint64_t bytes, uint64_t *at) {
    uint32_t sum;
    size_t whole = finish_block(job->buffers, type, number, bytes, &sum);
    if (type != SAVED_END) job->sums[number] = sum;
    int error = write_at(job->file.file, job->buffers, whole, *at);
    *at += whole;
    job->error_bytes = whole;
    return error;
}

/* Writes the blocks of counts, numbered from `number` on. Returns an errno. */
static int write_counts(save_job *job, uint64_t number, uint64_t *at) {
    unsigned char *payload = job->buffers + sizeof(saved_header);
    for (uint32_t p = 0; p < job->head.parts; p++) {
        frugal *f = job->instances[p];
        for (uint64_t row = 0; (row = next_counts(f, row)) < f->store.rows; row += SAVED_MOST_COUNTS) {
            uint64_t n = LEAST(SAVED_MOST_COUNTS, f->store.rows - row);
            saved_rows rows = {.part = p, .form = SAVED_ALL, .first = row, .span = n, .n = n};
            memcpy(payload, &rows, sizeof rows);
            for (uint64_t i = 0; i < n; i++) /* relaxed: no other call is under way */
                payload[sizeof rows + i] = frugal_load_relaxed(&f->touches.worth[row + i]);
            int error = write_small(job, SAVED_COUNTS, number++, sizeof rows + n, at);
            if (error) return error;
        }
    }
    return 0;
}

/* Writes all blocks. Returns an errno; job->error_bytes is the size of the write that failed. */
static int write_blocks(save_job *job) {
    unsigned char *payload = job->buffers + sizeof(saved_header);
    uint64_t at = SAVED_MAGIC_BYTES, blocks = sums_of(job);
    int error = write_at(job->file.file, SAVED_MAGIC, SAVED_MAGIC_BYTES, 0);
    job->error_bytes = SAVED_MAGIC_BYTES;
    memcpy(payload, &job->head, sizeof job->head);
    if (!error) error = write_small(job, SAVED_FILE, 0, sizeof job->head, &at);
    for (uint32_t p = 0; p < job->head.parts && !error; p++) {
        pack_part(job, job->instances[p], payload);
        error = write_small(job, SAVED_PART, 1 + p, part_bytes_of(job, job->instances[p]), &at);
    }
    if (error) return error;
    run_parallel((uint32_t)job->buffer_count, save_blocks, job);
    if (job->error) return job->error;
    at = job->at;
    if ((error = write_counts(job, blocks - job->n_counts, &at))) return error;
    saved_end end = {.blocks = blocks + 1, .bytes = at + sizeof(saved_header) + sizeof end};
    end.sums = crc32c(0, job->sums, (size_t)blocks * sizeof *job->sums);
    memcpy(payload, &end, sizeof end);
    job->file_bytes = end.bytes, job->end_sums = end.sums;
    return write_small(job, SAVED_END, blocks, sizeof end, &at);
}

/* >>saving */

/* Writes all of the file, under a temporary name. Whatever this returns, call drop_new. */
FRUGAL_INTERNAL frugal_status write_save(save_job *job, const file_name *name) {
    frugal_status status = allocate_job(job);
    if (status == FRUGAL_OK) {
        status = begin_file(&job->file, name);
        int error = status == FRUGAL_OK ? write_blocks(job) : 0;
        if (error) status = fail_write(job->error_bytes, error, name->path);
    }
    release_job(job);
    return status;
}

static frugal_status publish_save(save_job *job, const file_name *name, const frugal_save_desc *desc) {
    file_name now; /* writing takes time: another file may have the name by now */
    int had_shares;
    frugal_status status = find_file(name->path, &now);
    if (status == FRUGAL_OK) status = check_replaced(&now, desc, job->instances[0], &had_shares);
    if (status == FRUGAL_OK) status = publish_new(&job->file, desc->replace && now.there);
    if (status == FRUGAL_OK && had_shares) remove_shares_of(now.path);
    return status;
}

/* Saves instances that were checked, as `head` says. */
FRUGAL_INTERNAL void begin_job(save_job *job, frugal *const *instances, const saved_file *head) {
    *job = (save_job){.instances = instances, .head = *head, .memory = &instances[0]->desc};
    job->file.file = job->file.folder = -1;
    for (uint32_t i = 0; i < head->parts; i++) keep_counts(instances[i]);
    pthread_mutex_init(&job->lock, NULL);
    job->began = clock_now();
}

/* After a save that succeeded: the next increment continues it, and no row counts as changed. */
static void continue_chain(frugal *f, const saved_file *head, uint32_t part) {
    f->saving.chain = (saved_chain){head->id, head->base, head->sequence, part, head->parts, f->store.rows_as};
    for (uint64_t i = 0; f->saving.changed && i < (f->store.rows + 63) / 64; i++)
        frugal_store_relaxed(&f->saving.changed[i], 0); /* relaxed: no other call is under way */
}

/* The job has ended with `status`; `named`: what it made may have replaced a file. `set`: the head that the next
 * increment continues. */
FRUGAL_INTERNAL void end_job(save_job *job, frugal_status status, int named, const saved_file *set) {
    uint32_t n = job->head.parts;
    drop_new(&job->file);
    pthread_mutex_destroy(&job->lock);
    for (uint32_t i = 0; i < n; i++) give_back_counts(job->instances[i], 0);
    /* A base that failed may or may not have replaced the save that an increment would continue; only another base is
     * safe. An increment replaces nothing that its instances need; the next one continues the same save. */
    for (uint32_t i = 0; status != FRUGAL_OK && named && set->kind == SAVED_BASE && i < n; i++)
        job->instances[i]->saving.chain = (saved_chain){.id = 0};
    for (uint32_t i = 0; status == FRUGAL_OK && i < n; i++) continue_chain(job->instances[i], set, i);
    for (uint32_t i = 0; status == FRUGAL_OK && i < n; i++) trace_saved(job->instances[i], job->began, job->file_bytes);
    for (uint32_t i = 0; status == FRUGAL_OK && i < n; i++) tell_found(job->instances[i], "save", &job->found[i]);
}

/* Saves to one file. */
FRUGAL_INTERNAL frugal_status save_as(frugal *const *instances, const saved_file *head, const frugal_save_desc *desc) {
    file_name name;
    save_job job;
    int had_shares;
    frugal_status status = find_file(desc->path, &name);
    if (status == FRUGAL_OK) status = check_replaced(&name, desc, instances[0], &had_shares);
    if (status != FRUGAL_OK) return status;
    begin_job(&job, instances, head);
    status = write_save(&job, &name);
    if (status == FRUGAL_OK) status = publish_save(&job, &name, desc);
    end_job(&job, status, job.file.named, head);
    return status;
}

/* What the next save of these instances is. */
FRUGAL_INTERNAL saved_file head_of_save(frugal *const *instances, uint32_t n, int increment) {
    const saved_chain *chain = &instances[0]->saving.chain;
    saved_file head = {.version = SAVED_OF_FLOATS, .kind = SAVED_BASE, .parts = n};
    for (uint32_t i = 0; i < n; i++)
        if (instances[i]->store.rows_as != FRUGAL_FP32) head.version = SAVED_VERSION;
    do {
        head.id = draw_number();
    } while (head.id == 0);
    head.base = head.id;
    if (increment)
        head.kind = SAVED_INCREMENT, head.parent = chain->id, head.base = chain->base,
        head.sequence = chain->sequence + 1;
    return head;
}
