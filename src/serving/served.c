/* served.c - one version of a table that is served: its rows, read from saves or mapped from a file.
 *
 * It has the settings, the layout and the weights of an instance, and nothing else: no words, no state, no threads. The
 * code that restores an instance reads the saves.
 *
 * Rows that were read from a base lie in memory of a file without a name. An increment changes few of them. So the next
 * version maps the same file privately: the system copies a page when a row in it is written, and the versions share
 * the others. What a private mapping has changed is not in the file, and the version after it begins with the file
 * again. So each version knows which of its rows differ from the file, and the next version copies these first.
 *
 * Contents: >>layout >>saves >>file
 */
#include "serving.h"

#include <sys/file.h>

/* >>layout */

/* Frees a version, or the parts of it that were made. */
FRUGAL_INTERNAL void close_served(served *v) {
    frugal *f = v->f;
    if (v->map && v->file >= 0)
        munmap(v->map, v->bytes);
    else if (v->map)
        release_memory(&(frugal_desc){0}, v->map, v->bytes);
    if (v->file >= 0) flock(v->file, LOCK_UN); /* also where a forked child has the mapping, which holds the lock */
    close_file(&v->file);
    if (f) {
        close_all_saved(f);
        frugal_free(f, f->saving.changed, changed_bytes(f));
        frugal_free(f, f->tables, f->desc.n_tables * sizeof(frugal_table));
        frugal_free(f, f->first_row, (f->desc.n_tables + 1) * sizeof(uint64_t));
        release_memory(&(frugal_desc){0}, f, sizeof *f);
    }
    *v = (served){.file = -1};
}

/* Makes the layout of the tables. The weights come later. */
static frugal_status lay_out_served(served *v, const frugal_desc *desc) {
    frugal *f = v->f = allocate_memory(&(frugal_desc){0}, sizeof *f, CACHE_LINE);
    if (!f) return fail_memory("a version", sizeof *f);
    f->desc = *desc;
    f->shared.file = -1;
    frugal_status status = open_copies(f, desc);
    if (status != FRUGAL_OK) return status;
    uint32_t bytes = frugal_type_bytes(desc->rows_as);
    f->store = (frugal_store){.rows = f->first_row[desc->n_tables],
                              .dim = desc->dim,
                              .state_floats = frugal_state_floats(desc->optimizer.kind, desc->dim),
                              .kind = desc->optimizer.kind,
                              .n_tables = desc->n_tables,
                              .first_row = f->first_row,
                              .rows_as = desc->rows_as,
                              .weights_stride = aligned_bytes((uint64_t)desc->dim * bytes) / bytes};
    return FRUGAL_OK;
}

/* The same tables, of the same type and dim? */
static int is_same_layout(const served *a, const served *b) {
    if (a->f->store.rows_as != b->f->store.rows_as || a->f->store.dim != b->f->store.dim) return 0;
    if (a->f->desc.n_tables != b->f->desc.n_tables) return 0;
    return !memcmp(a->f->first_row, b->f->first_row, (a->f->desc.n_tables + 1) * sizeof(uint64_t));
}

static frugal_status fail_other_layout(const served *now, const served *next, const char *name) {
    const frugal_store *a = &now->f->store, *b = &next->f->store;
    return frugal_fail(
        FRUGAL_ERR_FILE,
        "refresh: %u tables with %llu rows of dim %u in %s are served, and the new ones are %u with %llu rows of dim "
        "%u in %s, or other rows by table; open another server for them: %s",
        a->n_tables, (unsigned long long)a->rows, a->dim, type_word(a->rows_as), b->n_tables,
        (unsigned long long)b->rows, b->dim, type_word(b->rows_as), name);
}

/* >>saves */

/* Reads the settings of the instance in a save, and the list of its tables; the caller releases *tables. */
static frugal_status look_at_saved(const frugal_served *from, frugal_desc *desc, frugal_table **tables) {
    saved_reader r;
    saved_part *part = NULL;
    size_t bytes = 0;
    frugal_status status = open_saved(&r, from->saved[0], from->part, &(frugal_desc){0}, &part, &bytes);
    close_saved(&r);
    if (status == FRUGAL_OK) {
        const saved_table *list = (const saved_table *)(part + 1);
        size_t list_bytes = part->n_tables * sizeof **tables;
        *desc = (frugal_desc){.n_tables = part->n_tables,
                              .dim = part->dim,
                              .rows_as = (frugal_type)part->rows_as,
                              .devices = 1,
                              .optimizer = {.kind = (frugal_optimizer_kind)part->optimizer},
                              .saved = from->saved,
                              .n_saved = from->n_saved,
                              .saved_part = from->part,
                              .saved_settings_may_differ = 1};
        desc->tables = *tables = allocate_memory(&(frugal_desc){0}, list_bytes, CACHE_LINE);
        if (!*tables) status = fail_memory("table settings", list_bytes);
        for (uint32_t t = 0; *tables && t < part->n_tables; t++) (*tables)[t] = (frugal_table){.rows = list[t].rows};
        for (uint32_t t = 0; status == FRUGAL_OK && t < part->n_tables; t++)
            if (list[t].rows == 0)
                status = frugal_fail(FRUGAL_ERR_FILE,
                                     "a whole save is wanted, and this is a machine's share, which has no row of table "
                                     "%u; make one save of all shares by `frugal_file merge`: %s",
                                     t, from->saved[0]);
    }
    release_memory(&(frugal_desc){0}, part, bytes);
    return status;
}

/* The index of the first save that is to be read; 0: all are. *continues: 1: it continues the rows of `before`; 0:
 * those of the file of `before`. */
static uint32_t first_new(const served *before, const frugal *f, int *continues) {
    uint32_t next = 0;
    *continues = 0;
    if (!before || before->file < 0 || before->chain.id == 0 || before->chain.part != f->desc.saved_part) return 0;
    for (uint32_t i = 0; i < f->desc.n_saved; i++) {
        if (f->saving.reader[i].head.id == before->in_file) next = i + 1;
        if (f->saving.reader[i].head.id == before->chain.id) next = i + 1, *continues = 1;
    }
    return next;
}

/* Memory for the weights: of a new file, or a private view of the file of `before`. */
static frugal_status map_served(served *v, const served *before) {
    frugal_store *s = &v->f->store;
    v->bytes = whole_pages((size_t)(s->rows * frugal_row_pitch(s)));
    v->is_private = before != NULL;
    memory_part whole = {0, v->bytes};
    int error;
    frugal_status status = before ? FRUGAL_OK /* pages that do not change are shared */
                                  : check_memory(v->f, "", v->bytes, "the served version",
                                                 "serve it on a machine with more memory, or serve a table's file");
    if (status != FRUGAL_OK) return status;
    if (before)
        v->file = fcntl(before->file, F_DUPFD_CLOEXEC, 0);
    else
        v->file = make_memory_file("frugal served");
    if (v->file < 0 && (before || errno != ENOSYS))
        return fail_system("make the memory that versions share", errno, v->f->desc.saved[0]);
    if (v->file < 0)
        v->map = allocate_memory(&(frugal_desc){0}, v->bytes, CACHE_LINE); /* a system without such files */
    else if (before)
        v->map = map_private(v->file, v->bytes);
    else if ((error = set_file_size(v->file, v->bytes)))
        return fail_system("make the memory that versions share", error, v->f->desc.saved[0]);
    else
        v->map = map_part(v->file, whole, PROT_READ | PROT_WRITE);
    int has_memory = v->map && (v->file < 0 || before || make_resident(v->file, whole, v->map));
    if (!has_memory) return fail_memory("the table", v->bytes);
    s->weights = v->map;
    return FRUGAL_OK;
}

/* Copies the rows in which `before` differs from the file. */
static frugal_status copy_changed(served *v, const served *before) {
    frugal *f = v->f;
    if (v->file < 0) return FRUGAL_OK; /* nothing will be shared */
    if (!(f->saving.changed = frugal_allocate(f, changed_bytes(f), CACHE_LINE)))
        return fail_memory("the marks of changed rows", changed_bytes(f));
    for (uint64_t word = 0; before && word < (f->store.rows + 63) / 64; word++) {
        uint64_t bits =
            frugal_load_relaxed(&before->f->saving.changed[word]); /* relaxed, both: the older one does not change */
        frugal_store_relaxed(&f->saving.changed[word], bits);
        for (; bits; bits &= bits - 1) {
            uint64_t row = word * 64 + frugal_priv_lowest(bits);
            memcpy(weights_of(f, row), weights_of(before->f, row), frugal_row_bytes(&f->store));
        }
    }
    return FRUGAL_OK;
}

/* Reads a version from saves. If they continue `before`, only the new ones are read. */
static frugal_status read_served(const frugal_served *from, uint32_t threads, const served *before, served *v) {
    frugal_desc desc;
    frugal_table *tables = NULL;
    frugal_status status = look_at_saved(from, &desc, &tables);
    if (status == FRUGAL_OK) {
        desc.init_threads = threads;
        status = lay_out_served(v, &desc);
        release_memory(&(frugal_desc){0}, tables, desc.n_tables * sizeof *tables);
    }
    if (status == FRUGAL_OK) status = begin_restore(v->f, &desc);
    if (status == FRUGAL_OK && before && !is_same_layout(before, v))
        return fail_other_layout(before, v, from->saved[0]);
    int continues = 0;
    uint32_t next = status == FRUGAL_OK ? first_new(before, v->f, &continues) : 0;
    if (status == FRUGAL_OK) status = map_served(v, next > 0 ? before : NULL);
    if (status == FRUGAL_OK) status = copy_changed(v, continues ? before : NULL);
    if (status == FRUGAL_OK) status = read_weights(v->f, next, next > 0);
    if (status != FRUGAL_OK) return status;
    const saved_reader *last = &v->f->saving.reader[from->n_saved - 1];
    v->step = last->part.step;
    v->chain = (saved_chain){last->head.id, last->head.base,  last->head.sequence,
                             from->part,    last->head.parts, v->f->store.rows_as};
    v->in_file = next > 0 ? before->in_file : v->chain.id;
    close_all_saved(v->f);
    if (v->file >= 0) mprotect(v->map, v->bytes, PROT_READ); /* may fail: no code writes there anyway */
    if (v->is_private) make_present(v->map, v->bytes);
    return FRUGAL_OK;
}

/* >>file */

/* Reads the list of tables that the header describes, and checks that both fit the file. The caller releases *list. */
static frugal_status read_served_list(const table_file *t, uint64_t bytes, saved_table **list) {
    const table_header *h = &t->header;
    const char *name = t->name.path;
    uint64_t rows = 0, list_bytes = (uint64_t)h->n_tables * sizeof **list;
    if (h->use != TABLE_CLEAN)
        return frugal_fail(
            FRUGAL_ERR_FILE,
            "the table is torn, its rows are of several steps: process %u on %.63s had it, and ended, or "
            "closed it, before it was drained; serve a save, or restore it from one: %s",
            h->process, (const char *)h->host, name);
    if (h->dealt)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's file has the rows of one of several machines alone; save on all, make one save "
                           "of that by `frugal_file merge`, and serve it: %s",
                           name);
    if (bytes != h->file_bytes || h->n_tables == 0 || h->n_tables > SAVED_MOST_TABLES || h->dim == 0 ||
        h->weights_stride < h->dim || h->rows == 0 || h->rows > FRUGAL_MAX_ROWS || h->weights_at % TABLE_PAGE ||
        h->weights_at < TABLE_PAGE + list_bytes || h->weights_at > bytes ||
        h->weights_stride > (bytes - h->weights_at) / frugal_type_bytes((frugal_type)h->rows_as) / h->rows)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the table's file has %llu bytes, and its header says %llu for %llu rows: the file was "
                           "truncated, or bytes were added to its end; restore the table from a save: %s",
                           (unsigned long long)bytes, (unsigned long long)h->file_bytes, (unsigned long long)h->rows,
                           name);
    if (!(*list = allocate_memory(&(frugal_desc){0}, list_bytes, CACHE_LINE)))
        return fail_memory("the list of the file's tables", list_bytes);
    int error = read_at(t->file, *list, list_bytes, TABLE_PAGE);
    if (error) return fail_system("read the list of tables", error, name);
    for (uint32_t i = 0; i < h->n_tables; i++)
        rows = (*list)[i].rows > h->rows - rows ? h->rows + 1 : rows + (*list)[i].rows;
    if (crc32c(0, *list, list_bytes) != h->list_checksum || rows != h->rows)
        return frugal_fail(
            FRUGAL_ERR_FILE,
            "the list of tables in the table's file is damaged, because its checksum is wrong; restore the table "
            "from a save: %s",
            name);
    return FRUGAL_OK;
}

/* Opens the file, and shares its lock with other servers. */
static frugal_status take_served_file(const char *path, table_file *t, uint64_t *bytes) {
    struct stat now;
    frugal_status status = find_file(path, &t->name);
    if (status != FRUGAL_OK) return status;
    if (!t->name.there) return fail_system("open the table's file", ENOENT, path);
    if ((status = open_found(&t->name, O_RDONLY, &t->file)) != FRUGAL_OK) return status;
    int error = share_lock(t->file);
    if (error == EWOULDBLOCK) return fail_taken(t->file, "the table's file is in use by", t->name.path);
    if (error) return fail_system("lock the table's file, which no trainer may have", error, t->name.path);
    if (fstat(t->file, &now)) return fail_system("look at the file", errno, t->name.path);
    *bytes = (uint64_t)now.st_size;
    if (*bytes == 0)
        return frugal_fail(FRUGAL_ERR_FILE, "the table's file is empty; open it with a trainer first: %s", path);
    return read_header(t, *bytes, 0);
}

static frugal_status map_served_file(const char *path, served *v) {
    static const frugal_desc memory; /* without an allocator: the system's */
    uint64_t bytes = 0;
    saved_table *list = NULL;
    table_file *t = allocate_memory(&memory, sizeof *t, CACHE_LINE);
    if (!t) return fail_memory("the table's file", sizeof *t);
    t->file = -1;
    frugal_status status = take_served_file(path, t, &bytes);
    if (status == FRUGAL_OK) status = read_served_list(t, bytes, &list);
    const table_header *h = &t->header;
    frugal_table *tables = NULL;
    if (status == FRUGAL_OK && !(tables = allocate_memory(&memory, h->n_tables * sizeof *tables, CACHE_LINE)))
        status = fail_memory("table settings", h->n_tables * sizeof *tables);
    for (uint32_t i = 0; status == FRUGAL_OK && i < h->n_tables; i++) tables[i] = (frugal_table){.rows = list[i].rows};
    if (status == FRUGAL_OK)
        status = lay_out_served(
            v, &(frugal_desc){
                   .tables = tables, .n_tables = h->n_tables, .dim = h->dim, .rows_as = (frugal_type)h->rows_as});
    v->file = t->file; /* closed with the version, also if this fails */
    if (status == FRUGAL_OK) {
        v->f->store.weights_stride = h->weights_stride;
        v->step = h->step, v->bytes = (size_t)bytes;
        void *map = mmap(NULL, v->bytes, PROT_READ, MAP_SHARED, v->file, 0);
        if (map == MAP_FAILED)
            status = fail_system("map the table's file", errno, t->name.path);
        else
            v->map = map, v->f->store.weights = (unsigned char *)map + h->weights_at;
    }
#if defined(MADV_RANDOM)
    if (v->map) madvise(v->map, v->bytes, MADV_RANDOM); /* asks for no read-ahead around a row; may fail */
#endif
    release_memory(&memory, tables, h->n_tables * sizeof *tables);
    release_memory(&memory, list, h->n_tables * sizeof *list);
    release_memory(&memory, t, sizeof *t);
    return status;
}

/* Opens a version. If this fails, close_served frees what was made. `before`: what it may continue, or NULL. */
FRUGAL_INTERNAL frugal_status open_served(const frugal_served *from, uint32_t threads, const served *before, served *v,
                                          const char *call) {
    *v = (served){.file = -1};
    if (!from || !from->file == !(from->saved && from->n_saved > 0))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: %s; give saves, or a table's file", call,
                           from && from->file ? "both saves and a file are given" : "nothing to serve is given");
    if (!from->file) return read_served(from, threads, before, v);
    frugal_status status = map_served_file(from->file, v);
    if (status == FRUGAL_OK && before && !is_same_layout(before, v)) return fail_other_layout(before, v, from->file);
    return status;
}

/* Bytes of memory that this version, when it was made, shared with no other one, and with no other process. */
FRUGAL_INTERNAL uint64_t own_bytes(const served *v) {
    uint64_t bytes = 0, page_end = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    const frugal *f = v->f;
    if (!f->saving.changed) return v->chain.id ? v->bytes : 0;
    if (!v->is_private) return v->bytes;
    for (uint64_t row = 0; row < f->store.rows; row++) {
        if (row % 64 == 0 &&
            frugal_load_relaxed(&f->saving.changed[row / 64]) == 0) { /* relaxed: the version is complete */
            row += 63;
            continue;
        }
        if (!(frugal_load_relaxed(&f->saving.changed[row / 64]) >> row % 64 & 1)) continue;
        uint64_t at = row * frugal_row_pitch(&f->store), from = at / page;
        uint64_t end = (at + frugal_row_bytes(&f->store) - 1) / page + 1;
        if (from < page_end) from = page_end;
        if (end > from) bytes += (end - from) * page, page_end = end;
    }
    return bytes;
}
