/* image.c - what a base says of itself beside its rows; writing a base of rows that come in order. */
#include "file.h"

static void free_image(save_image *image) {
    for (uint32_t p = 0; p < SAVED_MOST_PARTS; p++)
        release_memory(&own_memory, image->parts[p], image->part_bytes[p]), image->parts[p] = NULL;
}

/* A new base of one instance, by the options; rows[n] of its tables, of `dim` floats. */
static frugal_status make_image(save_image *image, const uint64_t *rows, uint32_t n, uint32_t dim) {
    frugal_optimizer o = {.kind = options.optimizer};
    size_t bytes = image->part_bytes[0] = sizeof(saved_part) + n * sizeof(saved_table);
    saved_part *part = image->parts[0] = allocate_memory(&own_memory, bytes, CACHE_LINE);
    if (!part) return fail_memory("the settings of a save", bytes);
    saved_table *tables = (saved_table *)(part + 1);
    resolve_optimizer(&o);
    *part = (saved_part){.step = options.step,
                         .dim = dim,
                         .n_tables = n,
                         .optimizer = (uint32_t)o.kind,
                         .state_floats = frugal_state_floats(o.kind, dim),
                         .devices = 1};
    for (uint32_t t = 0; t < n; t++) {
        tables[t] =
            (saved_table){.rows = rows[t], .eps = o.eps, .beta1 = o.beta1, .beta2 = o.beta2, .lr_scale = o.lr_scale};
        part->rows += rows[t];
    }
    image->head = (saved_file){.version = SAVED_OF_FLOATS, .kind = SAVED_BASE, .parts = 1};
    do {
        image->head.id = draw_number();
    } while (image->head.id == 0);
    image->head.base = image->head.id;
    int is_empty = 0;
    for (uint32_t t = 0; t < n; t++) is_empty |= rows[t] == 0;
    if (!is_empty && is_part_sound(part, tables, bytes)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "tables have 1 row or more, of 1 to 65536 floats, and %llu rows together",
                       (unsigned long long)FRUGAL_MAX_ROWS);
}

static uint64_t bytes_of_rows(const save_image *image) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < image->head.parts; p++) bytes += image->parts[p]->rows * saved_row_bytes(image->parts[p]);
    return bytes;
}

typedef struct base_file { /* a base that is being written */
    new_file file;
    unsigned char *buffer; /* of one block */
    size_t buffer_bytes;
    uint64_t at, number;
    uint32_t sums;
} base_file;

/* The buffer's block; its `bytes` are behind the place of its header. */
static frugal_status append_block(base_file *b, uint32_t type, uint64_t bytes) {
    uint32_t sum;
    size_t whole = finish_block(b->buffer, type, b->number, bytes, &sum);
    int error = write_at(b->file.file, b->buffer, whole, b->at);
    if (error) return fail_write(whole, error, b->file.name->path);
    if (type != SAVED_END) b->sums = crc32c(b->sums, &sum, sizeof sum);
    b->at += whole, b->number++;
    return FRUGAL_OK;
}

static frugal_status append_head(base_file *b, const save_image *image) {
    unsigned char *payload = b->buffer + sizeof(saved_header);
    int error = write_at(b->file.file, SAVED_MAGIC, SAVED_MAGIC_BYTES, 0);
    if (error) return fail_write(SAVED_MAGIC_BYTES, error, b->file.name->path);
    b->at = SAVED_MAGIC_BYTES;
    memcpy(payload, &image->head, sizeof image->head);
    frugal_status status = append_block(b, SAVED_FILE, sizeof image->head);
    for (uint32_t p = 0; p < image->head.parts && status == FRUGAL_OK; p++) {
        size_t bytes = (size_t)saved_part_bytes(image->head.version),
               tables = image->part_bytes[p] - sizeof(saved_part);
        memcpy(payload, image->parts[p], bytes);
        memcpy(payload + bytes, image->parts[p] + 1, tables);
        status = append_block(b, SAVED_PART, bytes + tables);
    }
    return status;
}

static frugal_status append_rows(base_file *b, const row_source *from, uint32_t p, course *c) {
    const saved_part *part = from->image->parts[p];
    frugal_status status = FRUGAL_OK;
    for (uint64_t first = 0, n; first < part->rows && status == FRUGAL_OK; first += n) {
        n = LEAST(saved_most_rows(saved_row_bytes(part)), part->rows - first);
        saved_rows rows = {.part = p, .form = SAVED_ALL, .first = first, .span = n, .n = n};
        unsigned char *payload = b->buffer + sizeof(saved_header);
        unsigned char *weights = payload + sizeof rows;
        memcpy(payload, &rows, sizeof rows);
        status = from->fetch(from->source, p, first, n, weights, weights + n * saved_weight_bytes(part));
        if (status == FRUGAL_OK) status = append_block(b, SAVED_ROWS, sizeof rows + n * saved_row_bytes(part));
        if (status == FRUGAL_OK) status = go_on(c, n * saved_row_bytes(part));
    }
    return status;
}

static frugal_status append_end(base_file *b) {
    saved_end end = {.blocks = b->number + 1, .sums = b->sums};
    end.bytes = b->at + sizeof(saved_header) + sizeof end;
    memcpy(b->buffer + sizeof(saved_header), &end, sizeof end);
    return append_block(b, SAVED_END, sizeof end);
}

static frugal_status allocate_buffer(base_file *b, const save_image *image) {
    for (uint32_t p = 0; p < image->head.parts; p++) {
        uint64_t rows = saved_most_bytes(saved_row_bytes(image->parts[p]));
        uint64_t part = sizeof(saved_header) + image->part_bytes[p];
        if (rows > b->buffer_bytes) b->buffer_bytes = (size_t)rows;
        if (part > b->buffer_bytes) b->buffer_bytes = (size_t)part;
    }
    b->buffer = allocate_memory(&own_memory, b->buffer_bytes, CACHE_LINE);
    return b->buffer ? FRUGAL_OK : fail_memory("writing a save", b->buffer_bytes);
}

/* May `out` be written, and is it none of the files that are read? */
static frugal_status check_out(const char *out, file_name *name, int n, char **inputs) {
    frugal_status status = find_file(out, name);
    for (int i = 0; i < n && status == FRUGAL_OK && name->there; i++) {
        struct stat input;
        if (!stat(inputs[i], &input) && input.st_dev == name->status.st_dev && input.st_ino == name->status.st_ino)
            status = frugal_fail(FRUGAL_ERR_FILE,
                                 "the file to be written is one of those that are read; choose another name: %s", out);
    }
    frugal_save_desc desc = {.path = out, .replace = options.replace};
    int is_manifest;
    return status == FRUGAL_OK ? check_replaced(name, &desc, NULL, &is_manifest) : status;
}

/* Writes a base to the file that check_out accepted, under a temporary name until all of it is on the disk. Prints what
 * was written. `finish` checks that the source has no more rows, and is whole; NULL: nothing to check. */
static frugal_status write_base(const file_name *name, const row_source *from, frugal_status (*finish)(void *source)) {
    base_file b = {.file = {.file = -1, .folder = -1}};
    const saved_file *head = &from->image->head;
    course c = begin_course("writing the rows", bytes_of_rows(from->image));
    frugal_status status = allocate_buffer(&b, from->image);
    if (status == FRUGAL_OK) status = begin_file(&b.file, name);
    if (status == FRUGAL_OK) status = append_head(&b, from->image);
    for (uint32_t p = 0; p < head->parts && status == FRUGAL_OK; p++) status = append_rows(&b, from, p, &c);
    if (status == FRUGAL_OK && finish) status = finish(from->source);
    if (status == FRUGAL_OK) status = append_end(&b);
    file_name now; /* writing takes long, so another file may have the name by now */
    frugal_save_desc desc = {.path = name->path, .replace = options.replace};
    if (status == FRUGAL_OK) status = find_file(name->path, &now);
    int had_shares = 0;
    if (status == FRUGAL_OK) status = check_replaced(&now, &desc, NULL, &had_shares);
    if (status == FRUGAL_OK) status = publish_new(&b.file, options.replace && now.there);
    if (status == FRUGAL_OK && had_shares) remove_shares_of(now.path);
    drop_new(&b.file);
    end_course(&c);
    release_memory(&own_memory, b.buffer, b.buffer_bytes);
    if (status == FRUGAL_OK)
        printf("%s: base %016llx, %llu bytes, next step %llu\n", name->path, (unsigned long long)head->id,
               (unsigned long long)b.at, (unsigned long long)from->image->parts[0]->step);
    return status;
}
