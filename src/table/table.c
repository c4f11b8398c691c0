/* table.c - where the table lies: in memory, in the caller's matrix, or in a mapped file (table_file.c); and how rows
 * lie in it. */
#include "table.h"

/* Bytes from row to row. Rows start at multiples of 128 bytes if their size is such a multiple, else at multiples of
 * 32 bytes, so that a GPU reads no cache line that it does not need. A row of less than 32 bytes takes a power of
 * two. */
FRUGAL_INTERNAL uint64_t aligned_bytes(uint64_t bytes) {
    if (bytes == 0) return 0;
    if (bytes < 32) {
        uint64_t power = 1;
        while (power < bytes) power *= 2;
        return power;
    }
    return bytes % 128 == 0 ? bytes : (bytes + 31) / 32 * 32;
}

FRUGAL_INTERNAL uint64_t aligned_floats(uint32_t floats) {
    return aligned_bytes(floats * sizeof(float)) / sizeof(float);
}

/* Bytes of the weights of a row that lies in memory of ours. Behind weights of 16 bits the state must be aligned, too:
 * to 16 bytes, if it is as long, because GPUs move four floats together. (Floats lie as in files of before.) */
static uint64_t weights_bytes(const frugal_store *s, int element_wise) {
    uint64_t bytes = aligned_bytes(frugal_row_bytes(s)), least = element_wise ? aligned_floats(s->state_floats) * 4 : 0;
    if (s->rows_as == FRUGAL_FP32) return bytes;
    return bytes < LEAST(least, 16) ? LEAST(least, 16) : bytes;
}

/* Bytes from row to row in memory of ours: element-wise state lies behind the weights. */
FRUGAL_INTERNAL uint64_t row_pitch(const frugal_store *s, int element_wise) {
    return weights_bytes(s, element_wise) + (element_wise ? aligned_floats(s->state_floats) * sizeof(float) : 0);
}

/* Rounds up to pages of a table's file, which do not depend on the system. */
static uint64_t table_pages(uint64_t bytes) {
    return (bytes + TABLE_PAGE - 1) / TABLE_PAGE * TABLE_PAGE;
}

/* Maps the table from a file, where it lies behind header and list as it would lie in memory. */
static frugal_status map_table(frugal *f, uint64_t bytes, uint64_t state_at) {
    const frugal_store *s = &f->store;
    uint64_t behind_list = TABLE_PAGE + table_pages(f->desc.n_tables * sizeof(saved_table));
    table_header wanted = {.version = table_version(s->rows_as),
                           .kind = TABLE_KIND,
                           .rows = s->rows,
                           .dim = s->dim,
                           .optimizer = (uint32_t)s->kind,
                           .n_tables = f->desc.n_tables,
                           .state_floats = s->state_floats,
                           .weights_stride = s->weights_stride,
                           .state_stride = s->state_stride,
                           .weights_at = behind_list,
                           .state_at = s->state_floats ? behind_list + state_at : 0,
                           .file_bytes = behind_list + table_pages(bytes),
                           .rows_as = (uint32_t)s->rows_as,
                           .dealt = sum_of_dealing(f)};
    memcpy(wanted.magic, SAVED_MAGIC, SAVED_MAGIC_BYTES);
    frugal_status status = open_table_file(f, &wanted, s->rows_as == FRUGAL_FP32 ? bytes : 0); /* 0.1 had floats */
    if (status == FRUGAL_OK) f->memory.table = (unsigned char *)f->file->map + behind_list;
    return status;
}

/* Element-wise state lies behind the weights of its row. Row-wise state is an array of its own; in a file it lies at
 * the end. */
static frugal_status place_table(frugal *f, int element_wise) {
    frugal_store *s = &f->store;
    uint64_t behind = weights_bytes(s, element_wise), pitch = row_pitch(s, element_wise);
    uint64_t bytes = (s->rows * pitch + sizeof(float) - 1) / sizeof(float) * sizeof(float); /* state may lie there */
    s->weights_stride = pitch / frugal_type_bytes(s->rows_as);
    s->state_stride = element_wise ? pitch / sizeof(float) : s->state_floats;
    uint64_t tail = element_wise || !f->desc.file ? 0 : s->rows * s->state_floats * sizeof(float);
    f->memory.table_bytes = f->desc.file ? table_pages(bytes + tail) : whole_pages((size_t)(bytes + tail));
    if (f->desc.file) {
        frugal_status status = map_table(f, bytes + tail, element_wise ? behind : bytes);
        if (status != FRUGAL_OK) return status;
    } else if (!(f->memory.table = allocate_shared(f, f->memory.table_bytes, page_unit(), REGION_PART(f, table))))
        return fail_memory("the table", f->memory.table_bytes);
    s->weights = f->memory.table;
    if (element_wise || tail)
        s->state = (float *)(void *)((unsigned char *)s->weights + (element_wise ? behind : bytes));
    return FRUGAL_OK;
}

/* Makes or maps the memory of the table. No row is changed. */
FRUGAL_INTERNAL frugal_status open_table(frugal *f) {
    frugal_store *s = &f->store;
    int element_wise = optimizers[f->desc.optimizer.kind].element_floats > 0;
    if (f->desc.weights) {
        s->weights = f->desc.weights, s->weights_stride = f->desc.weights_stride;
        s->state = f->desc.state;
        s->state_stride = s->state ? f->desc.state_stride : aligned_floats(s->state_floats);
    } else {
        frugal_status status = place_table(f, element_wise);
        if (status != FRUGAL_OK) return status;
    }
    if (s->state_floats > 0 && !s->state) { /* the caller gave weights alone, or the state is row-wise, in memory */
        f->memory.state_bytes = whole_pages((size_t)(s->rows * s->state_stride * sizeof(float)));
        f->memory.state = allocate_shared(f, f->memory.state_bytes, page_unit(), REGION_PART(f, state));
        if (!f->memory.state) return fail_memory("the optimizer's state", f->memory.state_bytes);
        s->state = f->memory.state;
    }
    return FRUGAL_OK;
}

/* Writes the first values of rows that no save and no file has. */
FRUGAL_INTERNAL void fill_table(frugal *f) {
    int kept = f->file && f->file->kept;
    if (f->desc.n_saved == 0) init_table(f, !f->desc.weights && !kept, !f->desc.state && !kept, kept);
    for (uint32_t t = 0; t < f->desc.n_tables; t++) f->tables[t].source = NULL; /* the caller's, not kept */
}
