/* split.c - deals the rows of a save over machines: writes the share of each, and a manifest. Rows are read once, in
 * order, and go to the block that the share of their home is at. */
#include "file.h"

typedef struct dealt_share { /* of a machine */
    base_file b;
    file_name name;
    save_image image;
    uint64_t filled, first; /* rows of the block at hand; the number of its first one in the share's instance */
} dealt_share;

typedef struct split {
    manifest m;
    new_file file;       /* the manifest */
    dealt_share *shares; /* [m.head.machines] */
    const row_source *from;
    course course;
    unsigned char *rows; /* a piece, as it was fetched */
    uint8_t *homes;      /* of the piece */
    uint64_t most, piece_bytes;
} split;

/* >>homes - as a .npy file has them: bytes, in one dimension */

static frugal_status read_homes_head(int file, uint64_t bytes, const char *path, uint64_t *n, uint64_t *at) {
    char text[512];
    unsigned long long length = 0;
    frugal_status status = read_array_text(file, bytes, path, text, at);
    const char *shape = strstr(text, "'shape': (");
    if (status != FRUGAL_OK) return status;
    int is_bytes = strstr(text, "'descr': '|u1'") || strstr(text, "'descr': 'u1'");
    if (!is_bytes || !shape || sscanf(shape, "'shape': (%llu,)", &length) != 1)
        return frugal_fail(FRUGAL_ERR_FILE, "homes of uint8 are wanted, in one dimension: %s", path);
    if (bytes - *at != length)
        return frugal_fail(FRUGAL_ERR_FILE, "the file has another size than its shape: %s", path);
    *n = length;
    return FRUGAL_OK;
}

/* Copies the homes of instance p to the manifest, where they are read when rows are dealt. */
static frugal_status copy_homes(split *s, uint32_t p, const char *path) {
    int file;
    uint64_t bytes = 0, n = 0, at = 0, rows = s->m.parts[p]->part.rows;
    uint8_t piece[HOMES_PIECE];
    frugal_status status = open_input(path, &file, &bytes);
    if (status == FRUGAL_OK) status = read_homes_head(file, bytes, path, &n, &at);
    if (status == FRUGAL_OK && n != rows)
        status = frugal_fail(FRUGAL_ERR_FILE, "%llu homes are wanted, one a row of all tables, and there are %llu: %s",
                             (unsigned long long)rows, (unsigned long long)n, path);
    s->m.homes_at[p] = s->m.head.bytes;
    for (uint64_t done = 0, k; done < rows && status == FRUGAL_OK; done += k) {
        k = LEAST(rows - done, sizeof piece);
        status = read_input(file, piece, k, at + done, path);
        for (uint64_t i = 0; i < k && status == FRUGAL_OK; i++)
            if (piece[i] >= s->m.head.machines)
                status = frugal_fail(FRUGAL_ERR_FILE, "row %llu has the home %u, and there are %u machines, from 0: %s",
                                     (unsigned long long)(done + i), piece[i], s->m.head.machines, path);
        int error = status == FRUGAL_OK ? write_homes(&s->m, s->file.file, piece, k) : 0;
        if (error) status = fail_write(k, error, s->m.name.path);
    }
    int error = status == FRUGAL_OK ? write_homes(&s->m, s->file.file, NULL, 0) : 0;
    if (error) status = fail_write(8, error, s->m.name.path);
    if (file >= 0) close(file);
    return status;
}

/* >>layout */

/* The manifest's list, without the shares; the homes, if they are listed. */
static frugal_status lay_split(split *s) {
    const save_image *image = s->from->image;
    uint32_t n_tables[SAVED_MOST_PARTS];
    for (uint32_t p = 0; p < image->head.parts; p++) n_tables[p] = image->parts[p]->n_tables;
    s->m.head.head = image->head;
    frugal_status status = lay_manifest(&s->m, &own_memory, n_tables);
    for (uint32_t p = 0; p < image->head.parts && status == FRUGAL_OK; p++) {
        manifest_part *part = s->m.parts[p];
        part->deal = options.n_homes ? MANIFEST_LISTED : options.blocks ? MANIFEST_BLOCKS : MANIFEST_CYCLIC;
        memcpy(&part->part, image->parts[p], image->part_bytes[p]);
    }
    for (uint32_t p = 0; p < options.n_homes && status == FRUGAL_OK; p++) status = copy_homes(s, p, options.homes[p]);
    return status;
}

/* How many rows of each table a machine has; it must have some of each instance. */
static frugal_status count_rows_of(split *s, uint32_t p) {
    const saved_table *tables = (const saved_table *)(s->m.parts[p] + 1);
    uint64_t first = 0;
    for (uint32_t t = 0; t < s->m.parts[p]->part.n_tables; first += tables[t++].rows) {
        uint64_t counts[MANIFEST_MOST_MACHINES] = {0};
        frugal_status status = count_homes(&s->m, p, first, tables[t].rows, counts);
        if (status != FRUGAL_OK) return status;
        for (uint32_t i = 0; i < s->m.head.machines; i++) {
            saved_part *part = s->shares[i].image.parts[p];
            ((saved_table *)(part + 1))[t].rows = counts[i], part->rows += counts[i];
        }
    }
    for (uint32_t i = 0; i < s->m.head.machines; i++)
        if (s->shares[i].image.parts[p]->rows == 0)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "machine %u would have none of the %llu rows of instance %u; take fewer machines, or "
                               "deal otherwise",
                               i, (unsigned long long)s->m.parts[p]->part.rows, p);
    return FRUGAL_OK;
}

/* What each share says of itself. */
static frugal_status make_images(split *s) {
    const save_image *whole = s->from->image;
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < s->m.head.machines; i++) {
        save_image *image = &s->shares[i].image;
        image->head = head_of_share(whole->head, i, s->m.head.machines);
        for (uint32_t p = 0; p < whole->head.parts; p++) {
            size_t bytes = image->part_bytes[p] = whole->part_bytes[p];
            if (!(image->parts[p] = allocate_memory(&own_memory, bytes, CACHE_LINE)))
                return fail_memory("the settings of shares", bytes);
            memcpy(image->parts[p], whole->parts[p], bytes);
            image->parts[p]->rows = 0;
        }
    }
    for (uint32_t p = 0; p < whole->head.parts && status == FRUGAL_OK; p++) status = count_rows_of(s, p);
    return status;
}

/* >>dealing */

static frugal_status begin_share(split *s, uint32_t machine) {
    char path[LONGEST_PATH];
    dealt_share *share = &s->shares[machine];
    int error = name_share(&s->m, machine, path);
    if (error) return fail_system("name a share", error, s->m.name.path);
    frugal_status status = find_file(path, &share->name);
    if (status == FRUGAL_OK) status = allocate_buffer(&share->b, &share->image);
    if (status == FRUGAL_OK) status = begin_file(&share->b.file, &share->name);
    return status == FRUGAL_OK ? append_head(&share->b, &share->image) : status;
}

/* Writes the block at hand. It was laid out for as many rows as a block may have. */
static frugal_status end_rows(dealt_share *share, uint32_t p) {
    const saved_part *part = share->image.parts[p];
    uint64_t n = share->filled, weight_bytes = saved_weight_bytes(part);
    saved_rows rows = {.part = p, .form = SAVED_ALL, .first = share->first, .span = n, .n = n};
    unsigned char *payload = share->b.buffer + sizeof(saved_header), *weights = payload + sizeof rows;
    if (n == 0) return FRUGAL_OK;
    memcpy(payload, &rows, sizeof rows);
    memmove(weights + n * weight_bytes, weights + saved_most_rows(saved_row_bytes(part)) * weight_bytes,
            n * part->state_floats * sizeof(float));
    share->first += n, share->filled = 0;
    return append_block(&share->b, SAVED_ROWS, sizeof rows + n * saved_row_bytes(part));
}

/* Deals n rows of instance p, which were fetched, to the shares of their homes. */
static frugal_status deal_piece(split *s, uint32_t p, uint64_t n) {
    const saved_part *part = s->from->image->parts[p];
    size_t weight_bytes = (size_t)saved_weight_bytes(part), state_bytes = part->state_floats * sizeof(float);
    uint64_t most = saved_most_rows(saved_row_bytes(part));
    const unsigned char *state = s->rows + n * weight_bytes;
    for (uint64_t i = 0; i < n; i++) {
        dealt_share *share = &s->shares[s->homes[i]];
        unsigned char *weights = share->b.buffer + sizeof(saved_header) + sizeof(saved_rows);
        memcpy(weights + share->filled * weight_bytes, s->rows + i * weight_bytes, weight_bytes);
        if (state_bytes)
            memcpy(weights + most * weight_bytes + share->filled * state_bytes, state + i * state_bytes, state_bytes);
        frugal_status status = ++share->filled == most ? end_rows(share, p) : FRUGAL_OK;
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

static frugal_status deal_part(split *s, uint32_t p) {
    const saved_part *part = s->from->image->parts[p];
    frugal_status status = FRUGAL_OK;
    for (uint64_t first = 0, n; first < part->rows && status == FRUGAL_OK; first += n) {
        n = LEAST(saved_most_rows(saved_row_bytes(part)), part->rows - first);
        status = s->from->fetch(s->from->source, p, first, n, s->rows, s->rows + n * saved_weight_bytes(part));
        if (status == FRUGAL_OK) status = read_homes(&s->m, p, first, n, s->homes);
        if (status == FRUGAL_OK) status = deal_piece(s, p, n);
        if (status == FRUGAL_OK) status = go_on(&s->course, n * saved_row_bytes(part));
    }
    for (uint32_t i = 0; i < s->m.head.machines && status == FRUGAL_OK; i++) {
        status = end_rows(&s->shares[i], p);
        s->shares[i].first = 0;
    }
    return status;
}

/* >>writing */

/* All shares; each stays open, and so locked, until the manifest names it. */
static frugal_status deal_all(split *s, frugal_status (*finish)(void *source)) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < s->m.head.machines && status == FRUGAL_OK; i++) status = begin_share(s, i);
    for (uint32_t p = 0; p < s->m.head.head.parts && status == FRUGAL_OK; p++) status = deal_part(s, p);
    if (status == FRUGAL_OK) status = finish(s->from->source);
    for (uint32_t i = 0; i < s->m.head.machines && status == FRUGAL_OK; i++) {
        dealt_share *share = &s->shares[i];
        uint32_t sums = share->b.sums;
        status = append_end(&share->b);
        if (status == FRUGAL_OK) status = publish_new(&share->b.file, 0);
        s->m.shares[i] = (manifest_share){.bytes = share->b.at, .sums = sums};
    }
    return status;
}

static frugal_status publish_split(split *s) {
    file_name now; /* writing takes long, so another file may have the name by now */
    frugal_save_desc desc = {.path = s->m.name.path, .replace = options.replace};
    int error = write_manifest(&s->m, s->file.file);
    if (error) return fail_write(s->m.head.bytes, error, s->m.name.path);
    frugal_status status = find_file(s->m.name.path, &now);
    int is_manifest;
    if (status == FRUGAL_OK) status = check_replaced(&now, &desc, NULL, &is_manifest);
    if (status == FRUGAL_OK) status = publish_new(&s->file, options.replace && now.there);
    if (status == FRUGAL_OK) remove_old_shares(&s->m);
    return status;
}

/* Shares that no manifest names are removed. */
static void end_split(split *s, frugal_status status) {
    for (uint32_t i = 0; s->shares && i < s->m.head.machines; i++) {
        dealt_share *share = &s->shares[i];
        if (status != FRUGAL_OK && !s->file.named && share->b.file.named) unlink(share->name.path);
        if (share->b.buffer) drop_new(&share->b.file);
        release_memory(&own_memory, share->b.buffer, share->b.buffer_bytes);
        free_image(&share->image);
    }
    drop_new(&s->file);
    end_course(&s->course);
    free(s->shares), free(s->rows), free(s->homes);
    close_manifest(&s->m);
}

static frugal_status allocate_split(split *s) {
    const save_image *image = s->from->image;
    for (uint32_t p = 0; p < image->head.parts; p++) {
        uint64_t row = saved_row_bytes(image->parts[p]), most = saved_most_rows(row);
        if (most > s->most) s->most = most;
        if (most * row > s->piece_bytes) s->piece_bytes = most * row;
    }
    s->shares = calloc(s->m.head.machines, sizeof *s->shares);
    s->rows = malloc(s->piece_bytes), s->homes = malloc(s->most);
    for (uint32_t i = 0; s->shares && i < s->m.head.machines; i++)
        s->shares[i].b.file.file = s->shares[i].b.file.folder = -1;
    return s->shares && s->rows && s->homes ? FRUGAL_OK : fail_memory("dealing rows", s->piece_bytes + s->most);
}

static frugal_status write_split(split *s, const saves *from) {
    s->from = &from->rows;
    s->course = begin_course("dealing the rows", bytes_of_rows(from->rows.image));
    frugal_status status = allocate_split(s);
    if (status == FRUGAL_OK) status = begin_file(&s->file, &s->m.name);
    s->m.file = s->file.file;
    if (status == FRUGAL_OK) status = lay_split(s);
    if (status == FRUGAL_OK) status = make_images(s);
    if (status == FRUGAL_OK) status = deal_all(s, from->finish);
    return status == FRUGAL_OK ? publish_split(s) : status;
}

static int split_files(const char *out, int n, char **paths) {
    static saves from;
    static split s;
    if (options.machines == 0) return fail_usage("split needs %s", "--machines");
    if (options.blocks && options.n_homes) return fail_usage("%s are two ways to deal rows", "--blocks and --homes");
    frugal_status status = check_out(out, &s.m.name, n, paths);
    if (status != FRUGAL_OK) return fail_message();
    memset(&s, 0, sizeof s);
    s.file.file = s.file.folder = s.m.file = -1;
    status = open_saves(&from, n, paths);
    if (status == FRUGAL_OK) status = begin_names(&s.m, out, options.machines, draw_number());
    if (status == FRUGAL_OK && options.n_homes && options.n_homes != from.rows.image->head.parts)
        status = frugal_fail(FRUGAL_ERR_ARGUMENT, "--homes is given %u times, and the save has %u instances: once each",
                             options.n_homes, from.rows.image->head.parts);
    if (status == FRUGAL_OK) status = write_split(&s, &from);
    if (status == FRUGAL_OK)
        printf("%s: base %016llx, of %u machines, next step %llu\n", s.m.name.path,
               (unsigned long long)s.m.head.head.id, s.m.head.machines, (unsigned long long)s.m.parts[0]->part.step);
    s.m.file = -1; /* it is that of the new file */
    end_split(&s, status);
    close_saves(&from);
    return status == FRUGAL_OK ? 0 : fail_message();
}
