/* table_file.c - the file that a table lies in: its header (format.h), which process has it, whether its rows are of
 * one step.
 *
 * The process that has the file holds its lock. The header says "in use" before a row can change (when the first batch
 * that may bring gradients is announced, or a row is written). It says "clean" only when the rows of one step are on
 * the disk. So if a header says "in use" and no process holds the lock, the table is torn: its rows are of several
 * steps. A process that only reads may be killed. A new file has no name until open has succeeded, so every file that
 * exists is whole.
 *
 * Contents: >>header >>layout >>opening >>publishing
 */
#include "table.h"

#include <sys/file.h>

/* >>header */

/* Makes the header's page, with its checksum. */
static void make_page(table_header *header, unsigned char page[TABLE_PAGE]) {
    memset(page, 0, TABLE_PAGE);
    header->checksum = 0;
    memcpy(page, header, sizeof *header);
    header->checksum = crc32c(0, page, TABLE_PAGE);
    memcpy(page, header, sizeof *header);
}

static int has_magic(const table_header *header) {
    return !memcmp(header->magic, SAVED_MAGIC, SAVED_MAGIC_BYTES);
}

static int is_page_whole(const unsigned char page[TABLE_PAGE], const table_header *header) {
    unsigned char again[TABLE_PAGE];
    memcpy(again, page, TABLE_PAGE);
    memset(again + offsetof(table_header, checksum), 0, sizeof header->checksum);
    return crc32c(0, again, TABLE_PAGE) == header->checksum;
}

/* Writes the header to the disk. Returns an errno. */
static int write_header(table_file *t) {
    unsigned char page[TABLE_PAGE];
    make_page(&t->header, page);
    int error = write_at(t->file, page, sizeof page, 0);
    return error ? error : sync_file(t->file);
}

/* Writes this process and its machine into the header. */
static void name_user(table_header *header) {
    memset(header->host, 0, sizeof header->host);
    if (gethostname((char *)header->host, sizeof header->host - 1)) header->host[0] = '?';
    header->process = (uint32_t)getpid();
}

/* Another process has the file. The message names it if the header can be read. `how`: the beginning of the message. */
FRUGAL_INTERNAL frugal_status fail_taken(int file, const char *how, const char *name) {
    unsigned char page[TABLE_PAGE];
    table_header header = {.version = 0};
    if (!read_at(file, page, sizeof page, 0)) memcpy(&header, page, sizeof header);
    if (!has_magic(&header) || !is_page_whole(page, &header))
        return frugal_fail(FRUGAL_ERR_FILE, "%s another process; wait for it, or choose another file: %s", how, name);
    return frugal_fail(FRUGAL_ERR_FILE, "%s process %u on %.63s; wait for it, or choose another file: %s", how,
                       header.process, (const char *)header.host, name);
}

/* >>layout - does the existing file hold this table? */

/* Is it a table's file at all, of this version and undamaged? `old`: bytes of a file of version 0.1, which has no
 * header. */
FRUGAL_INTERNAL frugal_status read_header(table_file *t, uint64_t bytes, uint64_t old) {
    const char *name = t->name.path;
    unsigned char page[TABLE_PAGE] = {0};
    table_header *header = &t->header;
    int error = read_at(t->file, page, (size_t)LEAST(bytes, sizeof page), 0);
    if (error > 0) return fail_system("read the table's header", error, name);
    memcpy(header, page, sizeof *header);
    int ours = has_magic(header);
    if (ours && header->version == SAVED_BLOCK_MAGIC)
        return frugal_fail(
            FRUGAL_ERR_FILE,
            "a mapped table is wanted, and this is a save; give it as `saved`, or choose another name: %s", name);
    if (!ours && bytes == old)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the file has no header, and the size of a table of version 0.1 (%llu bytes); if it is one, "
                           "make a save of it (`frugal_file convert`) and open a new file with frugal_desc.saved: %s",
                           (unsigned long long)bytes, name);
    if (!ours || bytes < TABLE_PAGE)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the file has %llu bytes and is no table: it does not begin as one; choose another name: %s",
                           (unsigned long long)bytes, name);
    if ((header->version != TABLE_OF_FLOATS && header->version != TABLE_VERSION) || header->kind != TABLE_KIND)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's file is of version %u, kind %u; this Frugal reads versions 1 to %u, kind %u; "
                           "use the one that made it: %s",
                           header->version, header->kind, TABLE_VERSION, TABLE_KIND, name);
    if (!is_page_whole(page, header))
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the header of the table's file is damaged, its checksum wrong; restore the table from a "
                           "save into a new file: %s",
                           name);
    if (header->version != table_version((frugal_type)header->rows_as) || header->rows_as > FRUGAL_FP16)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's file is of version %u, and has weights of type %u, which no file of that "
                           "version has; use the Frugal that made it: %s",
                           header->version, header->rows_as, name);
    return FRUGAL_OK;
}

static frugal_status fail_layout(const char *what, uint64_t found, uint64_t wanted, const char *name) {
    return frugal_fail(FRUGAL_ERR_FILE,
                       "the file is another table's: its %s is %llu, and %llu is wanted; choose another file, or give "
                       "the settings that it was made with: %s",
                       what, (unsigned long long)found, (unsigned long long)wanted, name);
}

/* Is it laid out as this instance wants it? */
static frugal_status check_layout(const table_file *t, const table_header *wanted) {
#define NAME(kind, word, name, ...) name ", "
#define FIELD(field, what)                                                                                             \
    { offsetof(table_header, field), sizeof t->header.field, what }
    static const struct {
        size_t at, bytes;
        const char *what;
    } fields[] = {FIELD(rows_as, "type of weights (fp32, bf16, fp16, counted from 0)"),
                  FIELD(dim, "dim"),
                  FIELD(rows, "number of rows"),
                  FIELD(n_tables, "number of tables"),
                  FIELD(dealt, "part of rows dealt over machines (a checksum of deal, homes and machine; 0: all rows)"),
                  FIELD(optimizer, "optimizer (" FRUGAL_OPTIMIZERS(NAME) "counted from 0)"),
                  FIELD(state_floats, "state (floats of a row)"),
                  FIELD(weights_stride, "stride of weights (weights)"),
                  FIELD(state_stride, "stride of state (floats)"),
                  FIELD(weights_at, "place of the weights (bytes)"),
                  FIELD(state_at, "place of the state (bytes)"),
                  FIELD(file_bytes, "size (bytes)")};
#undef FIELD
#undef NAME
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint64_t pair[2] = {0, 0};
        memcpy(&pair[0], (const unsigned char *)&t->header + fields[i].at, fields[i].bytes);
        memcpy(&pair[1], (const unsigned char *)wanted + fields[i].at, fields[i].bytes);
        if (pair[0] != pair[1]) return fail_layout(fields[i].what, pair[0], pair[1], t->name.path);
    }
    return FRUGAL_OK;
}

/* Rows and settings of a table, as they are in files. */
FRUGAL_INTERNAL saved_table describe_table(const frugal *f, uint32_t table) {
    const frugal_optimizer *o = f->desc.tables[table].optimizer; /* resolved */
    return (saved_table){.rows = f->desc.tables[table].rows,
                         .eps = o->eps,
                         .beta1 = o->beta1,
                         .beta2 = o->beta2,
                         .weight_decay = o->weight_decay,
                         .initial_accumulator = o->initial_accumulator,
                         .lr_scale = o->lr_scale,
                         .clip_norm = o->clip_norm,
                         .frozen = (uint32_t)o->frozen};
}

/* Has the file the same tables? Their settings may differ from those that the file was made with. */
static frugal_status check_list(const frugal *f, const table_file *t, const saved_table *list) {
    const char *name = t->name.path;
    if (crc32c(0, list, f->desc.n_tables * sizeof *list) != t->header.list_checksum)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the list of tables in the table's file is damaged, its checksum wrong; restore the table "
                           "from a save into a new file: %s",
                           name);
    for (uint32_t i = 0; i < f->desc.n_tables; i++) {
        char what[64];
        snprintf(what, sizeof what, "number of rows of table %u", i);
        if (list[i].rows != f->desc.tables[i].rows)
            return fail_layout(what, list[i].rows, f->desc.tables[i].rows, name);
    }
    return FRUGAL_OK;
}

static frugal_status read_list(const frugal *f, const table_file *t, saved_table *list) {
    int error = read_at(t->file, list, f->desc.n_tables * sizeof *list, TABLE_PAGE);
    return error ? fail_system("read the list of tables", error, t->name.path) : check_list(f, t, list);
}

/* Are its rows those of one step, and of the right one? */
static frugal_status check_step(const frugal *f, table_file *t) {
    const table_header *header = &t->header;
    t->torn = header->use != TABLE_CLEAN;
    if (f->desc.n_saved > 0) return FRUGAL_OK; /* all its rows will be read from saves */
    if (t->torn && !f->desc.take_torn)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table is torn, its rows are of several steps: process %u on %.63s had it, opened at "
                           "step %llu, and ended, or closed it, before it was drained; restore it from a save, or take "
                           "it as it is with frugal_desc.take_torn: %s",
                           header->process, (const char *)header->host, (unsigned long long)header->step, t->name.path);
    if (!t->torn && f->desc.first_step != 0 && f->desc.first_step != header->step)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's next step is %llu, and first_step is %llu; give the same, or 0 to count steps "
                           "from 0 again: %s",
                           (unsigned long long)header->step, (unsigned long long)f->desc.first_step, t->name.path);
    return FRUGAL_OK;
}

/* Is the open file, which has `bytes` bytes, this table? Changes nothing. */
static frugal_status check_table_file(frugal *f, const table_header *wanted, uint64_t bytes, uint64_t old) {
    table_file *t = f->file;
    frugal_status status = read_header(t, bytes, old);
    if (status == FRUGAL_OK) status = check_layout(t, wanted);
    if (status != FRUGAL_OK) return status;
    if (bytes != t->header.file_bytes)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's file has %llu bytes, and its header says %llu: the file was truncated, or "
                           "bytes were added to its end; restore the table from a save into a new file: %s",
                           (unsigned long long)bytes, (unsigned long long)t->header.file_bytes, t->name.path);
    size_t list_bytes = f->desc.n_tables * sizeof(saved_table);
    saved_table *list = frugal_allocate(f, list_bytes, CACHE_LINE);
    if (!list) return fail_memory("the list of the file's tables", list_bytes);
    status = read_list(f, t, list);
    frugal_free(f, list, list_bytes);
    t->kept = 1;
    return status == FRUGAL_OK ? check_step(f, t) : status;
}

/* >>opening */

static frugal_status lock_table(int file, const char *name) {
    int error = lock_file(file);
    if (error == EWOULDBLOCK && !share_lock(file))
        return frugal_fail(
            FRUGAL_ERR_FILE,
            "the table's file is served by other processes (frugal_serve_open); wait for them, or choose "
            "another file: %s",
            name);
    if (error == EWOULDBLOCK) return fail_taken(file, "the table's file is in use by", name);
    return error ? fail_system("lock the table's file, which no other process may have", error, name) : FRUGAL_OK;
}

/* Opens and locks the file that exists; *now: its stat. */
static frugal_status take_file(table_file *t, struct stat *now) {
    const char *name = t->name.path;
    frugal_status status = open_found(&t->name, O_RDWR, &t->file);
    list_file(t->file); /* a forked child that kept it would keep the lock */
    if (status == FRUGAL_OK) status = lock_table(t->file, name);
    if (status != FRUGAL_OK) return status;
    if (!is_named(&t->name, t->file)) /* between opening and locking */
        return frugal_fail(FRUGAL_ERR_FILE, "another file was given this name meanwhile; try again: %s", name);
    return fstat(t->file, now) ? fail_system("look at the file", errno, name) : FRUGAL_OK;
}

/* Makes the file `bytes` long, if it is shorter, with space for all of it, so that a store into the mapping finds
 * space. `sparse`: without space. What is in the file stays. */
static frugal_status reserve_space(const table_file *t, uint64_t bytes, int sparse) {
    char what[64];
    int error = grow_file(t->file, bytes, sparse);
    if (!error) return FRUGAL_OK;
    if (error == EOPNOTSUPP)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the file system cannot reserve the table's space, %llu bytes; choose another one, or set "
                           "frugal_desc.sparse: %s",
                           (unsigned long long)bytes, t->name.path);
    snprintf(what, sizeof what, "reserve the table's space, %llu bytes", (unsigned long long)bytes);
    return fail_system(what, error, t->name.path);
}

/* Is the file this table, and has all of it space? The file may have been made sparse, or copied so. */
static frugal_status check_kept_file(frugal *f, const table_header *wanted, const struct stat *now, uint64_t old) {
    const table_file *t = f->file;
    frugal_status status = check_table_file(f, wanted, (uint64_t)now->st_size, old);
    if (status != FRUGAL_OK || f->desc.sparse || !has_holes(t->file, now)) return status;
    return reserve_space(t, (uint64_t)now->st_size, 0);
}

/* Reserves the new file's space, and writes its header and list to the disk, before it has rows and long before it has
 * its name. */
static frugal_status fill_file(frugal *f, const table_header *wanted) {
    table_file *t = f->file;
    size_t list_bytes = f->desc.n_tables * sizeof(saved_table);
    int error = write_at(t->file, SAVED_MAGIC, SAVED_MAGIC_BYTES, 0); /* marks it as ours if we are killed */
    if (error) return fail_system("write to the new file", error, t->name.path);
    frugal_status status = reserve_space(t, wanted->file_bytes, f->desc.sparse);
    if (status != FRUGAL_OK) return status;
    saved_table *list = frugal_allocate(f, list_bytes, CACHE_LINE);
    if (!list) return fail_memory("the list of the file's tables", list_bytes);
    for (uint32_t i = 0; i < f->desc.n_tables; i++) list[i] = describe_table(f, i);
    t->header = *wanted;
    t->header.id = draw_number();
    t->header.step = f->desc.first_step;
    t->header.list_checksum = crc32c(0, list, list_bytes);
    t->header.use = TABLE_IN_USE; /* its rows are not there yet */
    name_user(&t->header);
    error = write_at(t->file, list, list_bytes, TABLE_PAGE);
    frugal_free(f, list, list_bytes);
    if (!error) error = write_header(t);
    if (!error) frugal_store_relaxed(&t->marked, 1); /* relaxed: nobody else has it yet */
    return error ? fail_system("write the table's header to the disk", error, t->name.path) : FRUGAL_OK;
}

/* Makes the file, which has a temporary name until it is published. */
static frugal_status make_file(frugal *f, const table_header *wanted) {
    table_file *t = f->file;
    frugal_status status = begin_file(&t->made, &t->name);
    t->file = t->made.file, t->made.file = -1;
    list_file(t->file);
    if (status == FRUGAL_OK) status = lock_table(t->file, t->name.path);
    return status == FRUGAL_OK ? fill_file(f, wanted) : status;
}

/* Maps the table's file. Makes it if there is none, or an empty one. `wanted`: the layout that its header must have;
 * `old`: bytes of a file of version 0.1. */
FRUGAL_INTERNAL frugal_status open_table_file(frugal *f, const table_header *wanted, uint64_t old) {
    struct stat now = {.st_size = 0};
    table_file *t = f->file = frugal_allocate(f, sizeof *t, CACHE_LINE);
    if (!t) return fail_memory("the table's file", sizeof *t);
    t->made.folder = t->made.file = t->file = t->empty = -1;
    pthread_mutex_init(&t->lock, NULL);
    frugal_status status = find_file(f->desc.file, &t->name);
    if (status == FRUGAL_OK && t->name.there) status = take_file(t, &now);
    if (status != FRUGAL_OK) return status;
    f->desc.file = t->name.path; /* the caller's string need not outlive this call */
    if (now.st_size == 0) {
        t->empty = t->file; /* its lock is kept */
        status = make_file(f, wanted);
    } else
        status = check_kept_file(f, wanted, &now, old);
    if (status != FRUGAL_OK) return status;
    t->map = mmap(NULL, (size_t)wanted->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->file, 0);
    if (t->map == MAP_FAILED) {
        t->map = NULL;
        return fail_system("map the table's file", errno, t->name.path);
    }
    keep_from_children(t->map, (size_t)wanted->file_bytes);
#if defined(MADV_RANDOM)
    madvise(t->map, (size_t)wanted->file_bytes, MADV_RANDOM); /* may fail: no reading ahead around a row */
#endif
    return FRUGAL_OK;
}

/* For read_ahead.c: the open file, and where it is mapped. */
FRUGAL_INTERNAL int table_descriptor(const frugal *f) {
    return f->file->file;
}
FRUGAL_INTERNAL unsigned char *table_map(const frugal *f) {
    return f->file->map;
}

/* >>publishing - and closing */

/* Writes "in use" to the header on the disk. On failure the header is as it was. */
static frugal_status mark_table(table_file *t) {
    table_header before = t->header;
    t->header.use = TABLE_IN_USE;
    name_user(&t->header);
    int error = write_header(t);
    if (!error) {
        frugal_store_relaxed(&t->marked, 1); /* relaxed: the disk has it */
        return FRUGAL_OK;
    }
    t->header = before;
    write_header(t);
    return fail_system("write the table's header to the disk", error, t->name.path);
}

/* Called before rows can change, by any thread. */
FRUGAL_INTERNAL frugal_status use_table_file(frugal *f) {
    table_file *t = f->file;
    if (!t || frugal_load_relaxed(&t->marked)) return FRUGAL_OK; /* relaxed: the disk has the header */
    pthread_mutex_lock(&t->lock);
    frugal_status status = frugal_load_relaxed(&t->marked) ? FRUGAL_OK : mark_table(t); /* relaxed: under the lock */
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* Writes to the header which process has the file, for other processes that want the file. This need not get to the
 * disk, because the lock ends with the process. */
static frugal_status name_holder(table_file *t) {
    unsigned char page[TABLE_PAGE];
    table_header before = t->header;
    name_user(&t->header);
    make_page(&t->header, page);
    int error = write_at(t->file, page, sizeof page, 0);
    if (!error) return FRUGAL_OK;
    t->header = before;
    make_page(&t->header, page);
    write_at(t->file, page, sizeof page, 0);
    return fail_system("write the table's header", error, t->name.path);
}

/* Called before open itself changes rows that may exist: if open does not finish, they are torn. */
FRUGAL_INTERNAL frugal_status overwrite_table_file(frugal *f) {
    if (!f->file) return FRUGAL_OK;
    f->file->torn = 1;
    return f->file->kept ? use_table_file(f) : FRUGAL_OK;
}

/* Another process has made a file of this name since this one was begun. */
static frugal_status fail_made(table_file *t) {
    int other = open(t->name.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    frugal_status status = fail_taken(other, "a file of this name was made meanwhile by", t->name.path);
    if (other >= 0) close(other);
    return status;
}

/* Gives the new file its name. */
static frugal_status name_table(table_file *t) {
    struct stat empty;
    if (t->empty >= 0 && (!is_named(&t->name, t->empty) || fstat(t->empty, &empty) || empty.st_size != 0))
        return fail_made(t);
    int error = take_name(&t->made, t->empty >= 0);
    if (error == EEXIST) return fail_made(t);
    if (error) return fail_system("give the new file its name", error, t->name.path);
    t->made.temporary[0] = 0;
    error = sync_file(t->made.folder);
    if (!error || error == EINVAL) return FRUGAL_OK; /* EINVAL: this file system's folders cannot be synced */
    /* Restores what was: no file, or an empty one. */
    if (t->empty >= 0 ? ftruncate(t->file, 0) : !is_named(&t->name, t->file) || unlink(t->name.path))
        return fail_system("write the folder to the disk, and remove the new file again", error, t->name.path);
    return fail_system("write the folder to the disk", error, t->name.path);
}

/* The last step of open: a new file takes its name; the header of one that existed says which process has it. */
FRUGAL_INTERNAL frugal_status publish_table_file(frugal *f) {
    if (!f->file) return FRUGAL_OK;
    if (!f->file->kept) return name_table(f->file);
    return f->file->torn ? use_table_file(f) : name_holder(f->file); /* torn rows count as changed */
}

/* Marks the file as clean. Its rows are those of the step before `next`, and stay so. First they are written to the
 * disk, then the header. If either fails, the file stays in use, that is torn, and the caller is told. */
static frugal_status clean_table(table_file *t, uint64_t next, int has_trained) {
    table_header before = t->header;
    int is_changed = frugal_load_relaxed(&t->marked) != 0; /* relaxed: no other call is under way */
    if (!is_changed && !has_trained) return FRUGAL_OK;     /* only read: the header stays as it is */
    if (is_changed && msync(t->map, (size_t)t->header.file_bytes, MS_SYNC))
        return fail_system("close the table as clean, because its rows did not get to the disk", errno, t->name.path);
    if (has_trained || t->torn) t->header.step = next; /* else its step stays */
    t->header.use = TABLE_CLEAN;
    int error = write_header(t);
    if (!error) return FRUGAL_OK;
    t->header = before; /* the new header may be on the disk, but the caller is told that the file is not clean */
    write_header(t);
    return fail_system("close the table as clean, because its header did not get to the disk", error, t->name.path);
}

/* Removes a new file that has no name yet, so that a process that ends without frugal_close leaves nothing. */
FRUGAL_INTERNAL void drop_table_file(frugal *f) {
    if (f->file) drop_new(&f->file->made);
}

/* Closes the file; a new one that open has not finished is removed. `next`: the next step to train; `drained`: the rows
 * have all updates of the steps before `next`, and no others. Whatever this returns, everything is released. */
FRUGAL_INTERNAL frugal_status close_table_file(frugal *f, uint64_t next, int drained) {
    table_file *t = f->file;
    frugal_status status = drained ? clean_table(t, next, next != f->desc.first_step) : FRUGAL_OK;
    if (t->map && !frugal_load_relaxed(&f->pages.stay)) munmap(t->map, (size_t)t->header.file_bytes);
    drop_new(&t->made);
    if (t->file >= 0) flock(t->file, LOCK_UN); /* also where pages stay mapped, which hold the lock */
    close_file(&t->file);
    close_file(&t->empty);
    pthread_mutex_destroy(&t->lock);
    frugal_free(f, t, sizeof *t);
    return status;
}
