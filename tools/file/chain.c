/* chain.c - the rows of a base and its increments, in order: each row as the last save that contains it has it. */
#include "file.h"

typedef struct chain_file { /* one save, and how far its rows have been read */
    saved_reader r;
    rows_block *block; /* the one at hand; NULL: the file is not read yet */
    size_t block_bytes;
    uint64_t used, offset; /* used: rows of the block that are passed; offset: where the next one is, or after it */
    int at_hand;           /* the block has rows that are not passed */
} chain_file;

typedef struct save_chain {
    chain_file *files; /* [n] */
    uint32_t n;
    save_image image; /* of the last file */
} save_chain;

/* Instance `p` of file `i`; its settings replace those of the previous file, and its tables must be the same. */
static frugal_status open_part(save_chain *c, uint32_t i, uint32_t p, const char *path) {
    saved_part *part = NULL, *before = c->image.parts[p];
    saved_reader again, *r = p ? &again : &c->files[i].r;
    size_t bytes = 0;
    frugal_status status = open_saved(r, path, p, &own_memory, &part, &bytes);
    if (p) close_saved(&again);
    if (status == FRUGAL_OK && r->head.id != c->files[i].r.head.id)
        status = frugal_fail(FRUGAL_ERR_FILE, "another file was given this name meanwhile; try again: %s", path);
    int is_same = status != FRUGAL_OK || !before || /* `part` is NULL where the file could not be read so far */
                  (before->dim == part->dim && before->n_tables == part->n_tables && before->rows_as == part->rows_as &&
                   before->optimizer == part->optimizer && bytes == c->image.part_bytes[p]);
    for (uint32_t t = 0; status == FRUGAL_OK && before && is_same && t < part->n_tables; t++)
        is_same = ((saved_table *)(before + 1))[t].rows == ((saved_table *)(part + 1))[t].rows;
    if (!is_same)
        status = frugal_fail(FRUGAL_ERR_FILE,
                             "instance %u has other tables, or weights of another type, than in the previous file: %s",
                             p, path);
    release_memory(&own_memory, before, c->image.part_bytes[p]);
    c->image.parts[p] = part, c->image.part_bytes[p] = bytes;
    return status;
}

static frugal_status open_chain_file(save_chain *c, uint32_t i, const char *path) {
    saved_reader *r = &c->files[i].r;
    frugal_status status = open_part(c, i, 0, path);
    if (status == FRUGAL_OK) status = check_chain(i ? &c->files[i - 1].r : NULL, r);
    for (uint32_t p = 1; status == FRUGAL_OK && p < r->head.parts; p++) status = open_part(c, i, p, path);
    return status;
}

/* The base paths[0] and its increments. Whatever this returns, call close_chain. */
static frugal_status open_chain(save_chain *c, int n, char **paths) {
    frugal_status status = FRUGAL_OK;
    *c = (save_chain){.files = calloc((size_t)n, sizeof *c->files)};
    if (!c->files) return fail_memory("the saves' heads", (size_t)n * sizeof *c->files);
    for (; c->n < (uint32_t)n && status == FRUGAL_OK; c->n++) {
        c->files[c->n].r.file = -1;
        status = open_chain_file(c, c->n, paths[c->n]);
    }
    if (status == FRUGAL_OK) {
        c->image.head = c->files[n - 1].r.head;
        c->image.head.kind = SAVED_BASE, c->image.head.parent = 0;
    }
    return status;
}

static void close_chain(save_chain *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        close_saved(&c->files[i].r);
        release_memory(&own_memory, c->files[i].block, c->files[i].block_bytes);
    }
    free_image(&c->image);
    free(c->files);
}

static frugal_status allocate_block(const save_chain *c, chain_file *file) {
    for (uint32_t p = 0; p < c->image.head.parts; p++) {
        uint64_t bytes = saved_most_bytes(saved_row_bytes(c->image.parts[p]));
        if (bytes > file->block_bytes) file->block_bytes = (size_t)bytes;
    }
    file->block = allocate_memory(&own_memory, file->block_bytes, CACHE_LINE);
    return file->block ? FRUGAL_OK : fail_memory("reading saves", file->block_bytes);
}

/* Reads and checks the next block of rows; r.ended if there is none. */
static frugal_status next_rows(const save_chain *c, chain_file *file) {
    uint64_t at;
    frugal_status status = file->block ? FRUGAL_OK : allocate_block(c, file);
    if (status == FRUGAL_OK) status = walk_rows(&file->r, file->block, &at, 0);
    if (status != FRUGAL_OK || file->r.ended) return status;
    const saved_part *part = c->image.parts[file->block->rows.part];
    restore_job job = {.r = &file->r, .saved = part, .buffer_bytes = file->block_bytes};
    file->used = file->offset = 0;
    file->at_hand = 1;
    return read_rows_block(&job, file->block, at);
}

/* Copies the wanted rows of the current block, and passes those before them. Are more rows wanted, from the next block?
 */
static int copy_wanted(chain_file *file, const saved_rows *wanted, const saved_part *part, unsigned char *weights,
                       unsigned char *state) {
    const saved_rows *rows = &file->block->rows;
    const unsigned char *index = file->block->payload;
    const unsigned char *from = index + saved_index_bytes(rows->form, rows->span, rows->n);
    size_t weight_bytes = (size_t)saved_weight_bytes(part), state_bytes = part->state_floats * sizeof(float);
    if (rows->part != wanted->part) return 0;
    for (; file->used < rows->n; file->used++, file->offset++) {
        file->offset = offset_of(rows, index, file->used, file->offset);
        uint64_t row = rows->first + file->offset;
        if (row >= wanted->first + wanted->n) return 0;
        uint64_t to = row - wanted->first;
        memcpy(weights + to * weight_bytes, from + file->used * weight_bytes, weight_bytes);
        if (state_bytes)
            memcpy(state + to * state_bytes, from + rows->n * weight_bytes + file->used * state_bytes, state_bytes);
    }
    file->at_hand = 0;
    return 1;
}

static frugal_status fetch_chain(void *source, uint32_t part, uint64_t first, uint64_t n, void *weights, void *state) {
    save_chain *c = source;
    const saved_rows wanted = {.part = part, .first = first, .n = n};
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < c->n; i++) {
        chain_file *file = &c->files[i];
        for (int more = 1; more && !file->r.ended && status == FRUGAL_OK;) {
            if (!file->at_hand) status = next_rows(c, file);
            more = status == FRUGAL_OK && file->at_hand &&
                   copy_wanted(file, &wanted, c->image.parts[part], weights, state);
        }
    }
    return status;
}

/* All rows have been fetched: each file must be at its end now. */
static frugal_status finish_chain(void *source) {
    save_chain *c = source;
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < c->n && status == FRUGAL_OK; i++)
        if (!c->files[i].r.ended) status = next_rows(c, &c->files[i]);
    return status;
}
