/* show.c - what saves and mapped tables say of themselves, also damaged ones; whether saves are whole. */
#include "file.h"

/* >>show */

static void show_table(uint32_t t, const saved_table *table, uint32_t optimizer) {
    printf("    table %u: %llu rows", t, (unsigned long long)table->rows);
    if (optimizer != FRUGAL_SGD) printf(", eps %g", (double)table->eps);
    if (optimizers[optimizer].has_betas) printf(", betas %g %g", (double)table->beta1, (double)table->beta2);
    if (table->initial_accumulator != 0) printf(", initial accumulator %g", (double)table->initial_accumulator);
    if (table->weight_decay != 0) printf(", weight decay %g", (double)table->weight_decay);
    if (table->lr_scale != 1) printf(", lr scale %g", (double)table->lr_scale);
    if (table->clip_norm != 0) printf(", gradients clipped at %g", (double)table->clip_norm);
    printf("%s\n", table->frozen ? ", frozen" : "");
}

static void show_head(const char *name, const saved_file *h, uint64_t bytes) {
    if (h->kind == SAVED_BASE)
        printf("%s: base %016llx%s", name, (unsigned long long)h->id, h->sequence ? ", merged" : "");
    else
        printf("%s: increment %llu of base %016llx, %016llx, continues %016llx", name, (unsigned long long)h->sequence,
               (unsigned long long)h->base, (unsigned long long)h->id, (unsigned long long)h->parent);
    printf(", %llu bytes\n", (unsigned long long)bytes);
}

/* What the weights of a row are. */
static const char *plural_of(uint32_t rows_as) {
    return rows_as == FRUGAL_FP32   ? "floats"
           : rows_as <= FRUGAL_FP16 ? type_word((frugal_type)rows_as)
                                    : "weights of an unknown type";
}

static void show_part(uint32_t p, uint32_t parts, const saved_part *part) {
    printf("  instance %u of %u: next step %llu, %llu rows of %u %s and %u %sof state, %s, %u device%s by %s", p, parts,
           (unsigned long long)part->step, (unsigned long long)part->rows, part->dim, plural_of(part->rows_as),
           part->state_floats, part->rows_as ? "floats " : "", optimizers[part->optimizer].name, part->devices,
           part->devices == 1 ? "" : "s", part->reduce == FRUGAL_MEAN ? "mean" : "sum");
    if (part->rows_as && part->rounding == FRUGAL_STOCHASTIC)
        printf(", rounded stochastically by seed %llu", (unsigned long long)part->seed);
    printf("%s\n", part->rows_as && part->rounding == FRUGAL_NEAREST ? ", rounded to the nearest" : "");
    for (uint32_t t = 0; t < part->n_tables; t++) show_table(t, (const saved_table *)(part + 1) + t, part->optimizer);
}

/* Of a damaged save it shows what could be read before the damage: the head and the instances, if they are whole. */
static int show_save(const char *path) {
    uint32_t parts = 1;
    for (uint32_t p = 0; p < parts; p++) {
        saved_reader r;
        saved_part *part = NULL;
        size_t bytes = 0;
        frugal_status status = open_saved(&r, path, p, &own_memory, &part, &bytes);
        int has_parts = r.first_rows.at > 0;
        if (p == 0 && r.number > 1)
            show_head(r.name, &r.head, r.bytes); /* a later block was looked for, so the head is sound */
        if (has_parts) parts = r.head.parts, show_part(p, parts, part);
        close_saved(&r);
        release_memory(&own_memory, part, bytes);
        if (status != FRUGAL_OK && (!has_parts || p + 1 == parts)) return fail_message();
    }
    return 0;
}

/* What a manifest says; of a damaged one nothing, because one checksum covers most of it. Shares are not read. */
static int show_manifest(const char *path) {
    manifest m;
    char share[LONGEST_PATH];
    frugal_status status = open_manifest(&m, path, &own_memory);
    if (status == FRUGAL_OK) show_head(path, &m.head.head, m.head.bytes);
    for (uint32_t p = 0; status == FRUGAL_OK && p < m.head.head.parts; p++) {
        printf("  dealt over %u machines, %s\n", m.head.machines, deal_word(m.parts[p]->deal));
        show_part(p, m.head.head.parts, &m.parts[p]->part);
    }
    for (uint32_t i = 0; status == FRUGAL_OK && i < m.head.machines; i++)
        if (name_share(&m, i, share) == 0)
            printf("  share of machine %u: %s, %llu bytes\n", i, share, (unsigned long long)m.shares[i].bytes);
    close_manifest(&m);
    return status == FRUGAL_OK ? 0 : fail_message();
}

static int fail_page(const char *path, const char *how) {
    fprintf(stderr, "frugal_file: the mapped table %s; restore it from a save: %s\n", how, path);
    return 1;
}

static void show_page(const char *path, const table_header *h, int in_use, uint64_t bytes) {
    printf("%s: mapped table %016llx, %llu bytes, %s process %u on %.63s\n", path, (unsigned long long)h->id,
           (unsigned long long)bytes,
           in_use                  ? "in use by"
           : h->use == TABLE_CLEAN ? "clean, last used by"
                                   : "torn (rows of several steps), last used by",
           h->process, (const char *)h->host);
    printf("  %s %llu, %u tables, %llu rows of %u %s and %u %sof state, %s\n",
           h->use == TABLE_CLEAN ? "next step" : "opened at step", (unsigned long long)h->step, h->n_tables,
           (unsigned long long)h->rows, h->dim, plural_of(h->rows_as), h->state_floats, h->rows_as ? "floats " : "",
           h->optimizer < FRUGAL_OPTIMIZER_KINDS ? optimizers[h->optimizer].name : "an unknown optimizer");
}

/* Shows the list of tables, unless it is damaged. */
static int show_list(const char *path, int file, const table_header *h) {
    saved_table tables[128];
    uint32_t sum = 0;
    for (int shown = 0; shown < 2; shown++) {
        for (uint32_t t = 0, n; t < h->n_tables; t += n) {
            n = LEAST(sizeof tables / sizeof *tables, h->n_tables - t);
            if (read_at(file, tables, n * sizeof *tables, TABLE_PAGE + t * (uint64_t)sizeof *tables))
                return fail_page(path, "is cut");
            sum = crc32c(sum, tables, n * sizeof *tables);
            for (uint32_t i = 0; shown && i < n; i++) show_table(t + i, &tables[i], h->optimizer);
        }
        if (!shown && sum != h->list_checksum)
            return fail_page(path, "is damaged: the checksum of its list of tables is wrong");
    }
    return 0;
}

/* Is the file in use by another process? Tries its lock, and releases it. */
static int is_in_use(int file) {
    int error = lock_file(file);
    if (!error) flock(file, LOCK_UN);
    return error == EWOULDBLOCK;
}

/* Shows what the header of a mapped table says; the table may be in use. `bytes`: size of the file. */
static int show_mapped(const char *path, int file, uint64_t bytes) {
    unsigned char page[TABLE_PAGE];
    table_header h;
    if (read_at(file, page, sizeof page, 0)) return fail_page(path, "is cut");
    memcpy(&h, page, sizeof h);
    if ((h.version != TABLE_OF_FLOATS && h.version != TABLE_VERSION) || h.kind != TABLE_KIND)
        return fail_page(path, "is of another version");
    show_page(path, &h, is_in_use(file), bytes);
    if (!is_page_whole(page, &h)) return fail_page(path, "is damaged: the checksum of what it says here is wrong");
    if (h.optimizer >= FRUGAL_OPTIMIZER_KINDS || h.rows_as > FRUGAL_FP16 ||
        h.version != table_version((frugal_type)h.rows_as))
        return fail_page(path, "is of another version");
    if (h.file_bytes != bytes) return fail_page(path, "has another size than its header says");
    return show_list(path, file, &h);
}

/* A save, a manifest, or a mapped table. */
static int show_file(const char *path) {
    file_name name;
    unsigned char begin[SAVED_MAGIC_BYTES + 4];
    uint32_t block;
    int file = -1;
    if (find_file(path, &name) != FRUGAL_OK) return fail_message();
    if (!name.there || open_found(&name, O_RDONLY, &file) != FRUGAL_OK || read_at(file, begin, sizeof begin, 0)) {
        if (file >= 0) close(file);
        return show_save(path); /* show_save reports what is wrong */
    }
    memcpy(&block, begin + SAVED_MAGIC_BYTES, sizeof block);
    int mapped = !memcmp(begin, SAVED_MAGIC, SAVED_MAGIC_BYTES) && block != SAVED_BLOCK_MAGIC;
    int failed = begins_as_manifest(file) ? show_manifest(path)
                 : mapped                 ? show_mapped(path, file, (uint64_t)name.status.st_size)
                                          : show_save(path);
    close(file);
    return failed;
}

/* >>check */

/* Adds the rows of the block at hand that are not finite. */
static void find_nonfinite(const save_chain *c, const chain_file *file, found_rows *found) {
    const saved_rows *rows = &file->block->rows;
    const saved_part *part = c->image.parts[rows->part];
    const unsigned char *weights = file->block->payload + saved_index_bytes(rows->form, rows->span, rows->n);
    for (uint64_t i = 0, offset = 0; i < rows->n; i++, offset++) {
        offset = offset_of(rows, file->block->payload, i, offset);
        if (!is_row_finite(weights + i * saved_weight_bytes(part), (frugal_type)part->rows_as, part->dim))
            add_found(found, rows->first + offset);
    }
}

/* Every block of file `i`, to its end. */
static frugal_status check_rows_of(const save_chain *c, uint32_t i, found_rows *found) {
    chain_file *file = &c->files[i];
    course course = begin_course("checking", file->r.bytes);
    uint64_t at = 0;
    frugal_status status = FRUGAL_OK;
    while (status == FRUGAL_OK && !file->r.ended) {
        status = next_rows(c, file);
        if (status == FRUGAL_OK && !file->r.ended) find_nonfinite(c, file, found);
        if (status == FRUGAL_OK) status = go_on(&course, file->r.at - at);
        at = file->r.at;
    }
    end_course(&course);
    return status;
}

static frugal_status check_save_file(save_chain *c, uint32_t i, const char *path, found_rows *found) {
    saved_reader *r = &c->files[i].r;
    frugal_status status = open_part(c, i, 0, path);
    c->image.head = r->head;
    if (status == FRUGAL_OK && i > 0) status = check_chain(&c->files[i - 1].r, r);
    for (uint32_t p = 1; status == FRUGAL_OK && p < r->head.parts; p++) status = open_part(c, i, p, path);
    if (status == FRUGAL_OK) status = check_rows_of(c, i, found);
    close_saved(r);
    release_memory(&own_memory, c->files[i].block, c->files[i].block_bytes);
    c->files[i].block = NULL;
    return status;
}

static void tell_nonfinite(const char *path, const found_rows *found) {
    if (found->n > 0)
        printf("%s: %llu rows have NaN or infinity; the first is row %llu, counted through all tables\n", path,
               (unsigned long long)found->n, (unsigned long long)found->first);
}

/* Every byte of a manifest and its shares. `before`: what it must continue, or NULL. */
static frugal_status check_manifest(manifest *m, const manifest *before, char *path) {
    static woven w;
    char share[LONGEST_PATH];
    frugal_status status = open_manifest(m, path, &own_memory);
    if (status == FRUGAL_OK && before) status = check_next_manifest(before, m);
    if (status == FRUGAL_OK && m->head.head.kind == SAVED_BASE) { /* has each share the rows of its machine? */
        memset(&w, 0, sizeof w);
        status = open_woven(&w, 1, &path);
        close_woven(&w);
    }
    for (uint32_t i = 0; status == FRUGAL_OK && i < m->head.machines; i++) {
        chain_file file = {.r = {.file = -1}};
        save_chain c = {.files = &file, .n = 1};
        found_rows found = {0};
        int error = name_share(m, i, share);
        status = error ? fail_system("name a share", error, path) : check_save_file(&c, 0, share, &found);
        if (status == FRUGAL_OK) status = check_share(m, i, &file.r);
        if (status == FRUGAL_OK) tell_nonfinite(share, &found);
        free_image(&c.image);
    }
    if (status == FRUGAL_OK) printf("%s: whole, and so are %u shares\n", path, m->head.machines);
    return status;
}

static int check_manifests(int n, char **paths) {
    manifest *files = calloc((size_t)n, sizeof *files);
    frugal_status status = files ? FRUGAL_OK : fail_memory("manifests", (size_t)n * sizeof *files);
    int opened = 0;
    for (; opened < n && status == FRUGAL_OK; opened++)
        status = check_manifest(&files[opened], opened ? &files[opened - 1] : NULL, paths[opened]);
    if (status == FRUGAL_OK && n > 1) printf("they are a base and its increments, in order\n");
    while (opened > 0) close_manifest(&files[--opened]);
    free(files);
    return status == FRUGAL_OK ? 0 : fail_message();
}

static int check_files(int n, char **paths) {
    if (is_manifest(paths[0])) return check_manifests(n, paths);
    save_chain c = {.files = calloc((size_t)n, sizeof *c.files)};
    frugal_status status = c.files ? FRUGAL_OK : fail_memory("the saves' heads", (size_t)n * sizeof *c.files);
    for (; c.n < (uint32_t)n && status == FRUGAL_OK; c.n++) {
        c.files[c.n].r.file = -1;
        found_rows found = {0};
        status = check_save_file(&c, c.n, paths[c.n], &found);
        if (status == FRUGAL_OK) printf("%s: whole\n", paths[c.n]);
        if (status == FRUGAL_OK) tell_nonfinite(paths[c.n], &found);
    }
    if (status == FRUGAL_OK && n > 1) printf("they are a base and its increments, in order\n");
    close_chain(&c);
    return status == FRUGAL_OK ? 0 : fail_message();
}
