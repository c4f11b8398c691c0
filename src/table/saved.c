/* saved.c - reads what a save says of itself: its blocks, its head, its instances, its end. restore.c reads its rows.
 *
 * Contents: >>blocks >>heads
 */
#include "table.h"

FRUGAL_INTERNAL frugal_status fail_saved(const saved_reader *r, uint64_t at, const char *what) {
    return frugal_fail(FRUGAL_ERR_FILE, "the save cannot be used: at byte %llu %s; take another copy of it: %s",
                       (unsigned long long)at, what, r->name);
}

/* >>blocks */

FRUGAL_INTERNAL frugal_status read_saved(const saved_reader *r, void *data, size_t bytes, uint64_t at) {
    int error = read_at(r->file, data, bytes, at);
    if (error == END_OF_FILE) return fail_saved(r, r->bytes, "it ends too early");
    return error ? fail_system("read the save", error, r->name) : FRUGAL_OK;
}

/* Reads the header at r->at, where block r->number must be, and moves the walk behind that block. */
static frugal_status next_header(saved_reader *r, saved_header *h) {
    if (r->bytes - r->at < sizeof *h) return fail_saved(r, r->bytes, "it ends too early");
    frugal_status status = read_saved(r, h, sizeof *h, r->at);
    if (status != FRUGAL_OK) return status;
    if (h->magic != SAVED_BLOCK_MAGIC || h->zero != 0) return fail_saved(r, r->at, "no block begins there");
    if (h->number != r->number) return fail_saved(r, r->at, "another block is expected: one is missing or doubled");
    if (h->bytes > r->bytes - r->at - sizeof *h || saved_filled(h->bytes) > r->bytes - r->at - sizeof *h)
        return fail_saved(r, r->at, "a block is longer than the file");
    r->at += sizeof *h + saved_filled(h->bytes);
    r->number++;
    return FRUGAL_OK;
}

FRUGAL_INTERNAL int is_sum_right(saved_header h, const void *payload) {
    uint32_t wanted = h.sum;
    h.sum = 0;
    return crc32c(crc32c(0, &h, sizeof h), payload, saved_filled(h.bytes)) == wanted;
}

/* Checks a block whose content is not needed, in pieces that fit the buffer. `at`: where the block is. */
FRUGAL_INTERNAL frugal_status check_skipped(const saved_reader *r, saved_header h, uint64_t at, void *buffer,
                                            size_t most) {
    uint32_t wanted = h.sum;
    h.sum = 0;
    uint32_t sum = crc32c(0, &h, sizeof h);
    for (uint64_t done = 0, bytes = saved_filled(h.bytes); done < bytes;) {
        size_t n = (size_t)LEAST(most, bytes - done);
        if (read_saved(r, buffer, n, at + sizeof h + done) != FRUGAL_OK) return FRUGAL_ERR_FILE;
        sum = crc32c(sum, buffer, n);
        done += n;
    }
    return sum == wanted ? FRUGAL_OK : fail_saved(r, at, "a block is damaged");
}

/* Reads the header of the next block that must be known, or that has the type `also`. Other blocks that may be skipped
 * are checked and skipped. */
FRUGAL_INTERNAL frugal_status next_block_or(saved_reader *r, saved_header *h, uint32_t also) {
    unsigned char piece[4096];
    for (;;) {
        uint64_t at = r->at;
        frugal_status status = next_header(r, h);
        if (status != FRUGAL_OK) return status;
        if (h->type != SAVED_END) r->sums = crc32c(r->sums, &h->sum, sizeof h->sum);
        if (!(h->type & SAVED_SKIP) || h->type == also) return FRUGAL_OK;
        if ((status = check_skipped(r, *h, at, piece, sizeof piece)) != FRUGAL_OK) return status;
    }
}

static frugal_status next_block(saved_reader *r, saved_header *h) {
    return next_block_or(r, h, 0);
}

/* Reads the next block, which must have this type and this number of bytes. */
static frugal_status read_block(saved_reader *r, uint32_t type, void *payload, uint64_t bytes) {
    saved_header h;
    frugal_status status = next_block(r, &h);
    if (status != FRUGAL_OK) return status;
    uint64_t at = r->at - saved_filled(h.bytes) - sizeof h;
    if (h.type != type || h.bytes != bytes) return fail_saved(r, at, "a block of another kind or size is expected");
    if ((status = read_saved(r, payload, bytes, at + sizeof h)) != FRUGAL_OK) return status;
    return is_sum_right(h, payload) ? FRUGAL_OK : fail_saved(r, at, "a block is damaged");
}

/* >>heads */

/* It is a manifest, where a save of one machine is wanted. */
static frugal_status fail_dealt(const saved_reader *r) {
    manifest_header h = {.machines = 0};
    frugal_status status = read_saved(r, &h, (size_t)LEAST(sizeof h, r->bytes), 0);
    if (status != FRUGAL_OK) return status;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "a save of one machine is wanted, and this is the manifest of %u machines; make one save of "
                       "their shares by `frugal_file merge`: %s",
                       h.machines, r->name);
}

static frugal_status read_magic(saved_reader *r) {
    unsigned char magic[SAVED_MAGIC_BYTES + 4];
    uint32_t block;
    if (r->bytes < sizeof magic) return fail_saved(r, r->bytes, "it ends too early");
    frugal_status status = read_saved(r, magic, sizeof magic, 0);
    if (status != FRUGAL_OK) return status;
    memcpy(&block, magic + SAVED_MAGIC_BYTES, sizeof block);
    if (memcmp(magic, SAVED_MAGIC, SAVED_MAGIC_BYTES) == 0 && block == MANIFEST_MAGIC) return fail_dealt(r);
    if (memcmp(magic, SAVED_MAGIC, SAVED_MAGIC_BYTES) != 0 || block != SAVED_BLOCK_MAGIC)
        return frugal_fail(FRUGAL_ERR_FILE, "a save is wanted, and this file does not begin as one: %s", r->name);
    r->at = SAVED_MAGIC_BYTES;
    return FRUGAL_OK;
}

FRUGAL_INTERNAL int is_head_sound(const saved_file *h) {
    int is_base = h->kind == SAVED_BASE && h->parent == 0 && (h->sequence > 0 || h->base == h->id);
    int is_increment = h->kind == SAVED_INCREMENT && h->parent != 0 && h->sequence > 0;
    return h->id != 0 && h->base != 0 && (is_base || is_increment) && h->parts > 0 && h->parts <= SAVED_MOST_PARTS;
}

static frugal_status check_head(const saved_reader *r) {
    const saved_file *h = &r->head;
    if (h->version != SAVED_VERSION && h->version != SAVED_OF_FLOATS)
        return frugal_fail(FRUGAL_ERR_FILE, "the save has format %u, and this version of Frugal reads 1 to %u: %s",
                           h->version, SAVED_VERSION, r->name);
    if (!is_head_sound(h))
        return fail_saved(r, SAVED_MAGIC_BYTES, "kind, id, parent, base, sequence or parts are wrong");
    return FRUGAL_OK;
}

/* Checked before memory is allocated for it, because a file with holes can have any length. */
static frugal_status check_part_block(const saved_reader *r, const saved_header *h, uint64_t at) {
    uint64_t head = saved_part_bytes(r->head.version);
    if (h->type != SAVED_PART || h->bytes < head + sizeof(saved_table))
        return fail_saved(r, at, "an instance is expected");
    uint64_t tables = (h->bytes - head) / sizeof(saved_table);
    if (tables <= SAVED_MOST_TABLES) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "the save cannot be used: at byte %llu an instance has %llu tables; the limit is %u; take "
                       "another copy of it: %s",
                       (unsigned long long)at, (unsigned long long)tables, SAVED_MOST_TABLES, r->name);
}

/* Do an instance and its tables agree with each other? `bytes`: of both, in memory. A table of a share may have no
 * rows. */
FRUGAL_INTERNAL int is_part_sound(const saved_part *part, const saved_table *tables, uint64_t bytes) {
    uint64_t rows = 0;
    if (part->n_tables == 0 || bytes != sizeof *part + (uint64_t)part->n_tables * sizeof *tables) return 0;
    if (part->dim == 0 || part->dim > 65536 || part->optimizer >= FRUGAL_OPTIMIZER_KINDS || part->reduce > FRUGAL_MEAN)
        return 0;
    if (part->rows_as > FRUGAL_FP16 || part->rounding > FRUGAL_NEAREST) return 0;
    int is_random = part->rows_as != FRUGAL_FP32 && part->rounding == FRUGAL_STOCHASTIC;
    if ((part->rows_as == FRUGAL_FP32 && part->rounding != 0) || (!is_random && part->seed != 0)) return 0;
    if (part->state_floats != frugal_state_floats((frugal_optimizer_kind)part->optimizer, part->dim)) return 0;
    for (uint32_t t = 0; t < part->n_tables; t++) {
        if (tables[t].rows > FRUGAL_MAX_ROWS - rows) return 0;
        rows += tables[t].rows;
    }
    return rows > 0 && rows == part->rows && part->step <= FRUGAL_MAX_FIRST_STEP;
}

/* Reads the PART of each instance. With `tables`, those of the wanted instance are left there; the caller releases
 * them. */
static frugal_status read_parts(saved_reader *r, uint32_t wanted, const frugal_desc *memory, saved_part **tables,
                                size_t *tables_bytes) {
    for (uint32_t p = 0; p < r->head.parts; p++) {
        saved_header h;
        frugal_status status = next_block(r, &h);
        if (status != FRUGAL_OK) return status;
        uint64_t at = r->at - saved_filled(h.bytes) - sizeof h;
        if ((status = check_part_block(r, &h, at)) != FRUGAL_OK) return status;
        size_t head = (size_t)saved_part_bytes(r->head.version), less = sizeof(saved_part) - head;
        size_t bytes = less + (size_t)saved_filled(h.bytes);
        saved_part *part = allocate_memory(memory, bytes, CACHE_LINE);
        if (!part) return fail_memory("the settings of a save", bytes);
        unsigned char *payload = (unsigned char *)part + less; /* so that the tables lie behind a whole saved_part */
        status = read_saved(r, payload, bytes - less, at + sizeof h);
        if (status == FRUGAL_OK && !is_sum_right(h, payload)) status = fail_saved(r, at, "a block is damaged");
        memmove(part, payload, head);
        memset((unsigned char *)part + head, 0, less);
        if (status == FRUGAL_OK && !is_part_sound(part, (saved_table *)(part + 1), less + h.bytes))
            status = fail_saved(r, at, "an instance's settings or tables are wrong");
        if (status == FRUGAL_OK) r->part_rows[p] = part->rows;
        if (status == FRUGAL_OK && p == wanted) r->part = *part;
        if (status == FRUGAL_OK && p == wanted && tables)
            *tables = part, *tables_bytes = bytes;
        else
            release_memory(memory, part, bytes);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

FRUGAL_INTERNAL frugal_status check_end(const saved_reader *r, const saved_end *end, uint64_t blocks, uint64_t at) {
    if (end->bytes != r->bytes || (blocks && end->blocks != blocks) || end->zero != 0)
        return fail_saved(r, at, "its end belongs to another file, or bytes follow it");
    return FRUGAL_OK;
}

/* Checks that the end is there, so that a truncated file is refused at once. */
static frugal_status look_at_end(saved_reader *r) {
    struct {
        saved_header header;
        saved_end end;
    } last;
    if (r->bytes < r->at + sizeof last) return fail_saved(r, r->bytes, "it ends too early");
    uint64_t at = r->bytes - sizeof last;
    frugal_status status = read_saved(r, &last, sizeof last, at);
    if (status != FRUGAL_OK) return status;
    if (last.header.magic != SAVED_BLOCK_MAGIC || last.header.type != SAVED_END || last.header.zero != 0 ||
        last.header.bytes != sizeof last.end || !is_sum_right(last.header, &last.end))
        return fail_saved(r, r->bytes, "it is truncated, or its end is damaged");
    r->end_sums = last.end.sums;
    return check_end(r, &last.end, 0, at);
}

/* Opens a save and reads its head. Whatever this returns, close_saved must be called. For `tables` see read_parts. */
FRUGAL_INTERNAL frugal_status open_saved(saved_reader *r, const char *path, uint32_t part, const frugal_desc *memory,
                                         saved_part **tables, size_t *tables_bytes) {
    file_name name;
    struct stat now;
    *r = (saved_reader){.file = -1, .name = path};
    frugal_status status = find_file(path, &name);
    if (status != FRUGAL_OK) return status;
    if (!name.there) return fail_system("open the save", ENOENT, path);
    if ((status = open_found(&name, O_RDONLY, &r->file)) != FRUGAL_OK) return status;
    if (fstat(r->file, &now)) return fail_system("look at the save", errno, path);
    r->bytes = (uint64_t)now.st_size;
    if ((status = read_magic(r)) != FRUGAL_OK) return status;
    if ((status = read_block(r, SAVED_FILE, &r->head, sizeof r->head)) != FRUGAL_OK) return status;
    if ((status = check_head(r)) != FRUGAL_OK) return status;
    if (part >= r->head.parts)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "instance %u of a save that has %u, from 0: %s", part, r->head.parts,
                           path);
    if ((status = read_parts(r, part, memory, tables, tables_bytes)) != FRUGAL_OK) return status;
    r->first_rows.at = r->at, r->first_rows.number = r->number, r->first_rows.sums = r->sums;
    return look_at_end(r);
}

FRUGAL_INTERNAL void close_saved(saved_reader *r) {
    if (r->file >= 0) close(r->file);
    r->file = -1;
}
