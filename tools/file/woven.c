/* woven.c - the rows of a base and its increments that several machines have saved, as they lie on one machine: each is
 * fetched from the share of its home. Whatever was saved, `open_saves` says where its rows come from. */
#include "file.h"

typedef struct woven {
    manifest *files;      /* [n]: a base and its increments; the homes are the base's */
    save_chain *machines; /* [machines]: the shares of each, in order */
    char **names;         /* [machines][n]: their paths */
    uint64_t *next;       /* [machines]: rows of instance `part` that were fetched from its shares */
    uint64_t *counts;     /* [machines]: of a piece */
    uint8_t *homes;       /* [most]: of a piece */
    uint32_t *order;      /* [most]: its rows, by machine */
    unsigned char *piece; /* rows of a machine: weights, then state */
    uint64_t most, piece_bytes;
    uint32_t n, opened, part, n_machines;
    save_image image;
} woven;

/* Adds to counts[machines] how many of these rows have which home. */
static frugal_status count_homes(const manifest *m, uint32_t p, uint64_t first, uint64_t n, uint64_t *counts) {
    uint8_t homes[HOMES_PIECE];
    for (uint64_t k; n > 0; first += k, n -= k) {
        k = LEAST(n, sizeof homes);
        frugal_status status = read_homes(m, p, first, k, homes);
        if (status != FRUGAL_OK) return status;
        for (uint64_t i = 0; i < k; i++) {
            if (homes[i] >= m->head.machines)
                return frugal_fail(FRUGAL_ERR_FILE, "row %llu has the home %u, and there are %u machines, from 0: %s",
                                   (unsigned long long)(first + i), homes[i], m->head.machines, m->name.path);
            counts[homes[i]]++;
        }
    }
    return FRUGAL_OK;
}

/* The increments must continue the base, and be of as many machines, with the same deal. */
static frugal_status check_next_manifest(const manifest *before, const manifest *m) {
    const saved_file *b = &before->head.head, *h = &m->head.head;
    if (h->kind == SAVED_BASE || h->base != b->base || h->parent != b->id || h->sequence != b->sequence + 1 ||
        h->parts != b->parts)
        return frugal_fail(FRUGAL_ERR_FILE,
                           "an increment of %016llx, number %llu, is wanted, and this manifest does not continue it; "
                           "name a base and its increments, in order: %s",
                           (unsigned long long)b->base, (unsigned long long)b->sequence + 1, m->name.path);
    int is_same = m->head.machines == before->head.machines && m->head.homes_checksum == before->head.homes_checksum;
    for (uint32_t p = 0; is_same && p < h->parts; p++) is_same = m->parts[p]->deal == before->parts[p]->deal;
    if (is_same) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "rows are dealt over %u machines, %s, and in the manifest before over %u, %s, or by other "
                       "homes: %s",
                       m->head.machines, deal_word(m->parts[0]->deal), before->head.machines,
                       deal_word(before->parts[0]->deal), m->name.path);
}

static frugal_status open_manifests(woven *w, int n, char **paths) {
    if (!(w->files = calloc((size_t)n, sizeof *w->files)))
        return fail_memory("manifests", (size_t)n * sizeof *w->files);
    for (; w->n < (uint32_t)n; w->n++) {
        manifest *m = &w->files[w->n];
        frugal_status status = open_manifest(m, paths[w->n], &own_memory);
        if (status == FRUGAL_OK && w->n) status = check_next_manifest(m - 1, m);
        if (status == FRUGAL_OK && w->n == 0 && m->head.head.kind != SAVED_BASE)
            status = frugal_fail(FRUGAL_ERR_FILE, "the first manifest is increment %llu; name its base before it: %s",
                                 (unsigned long long)m->head.head.sequence, m->name.path);
        if (status == FRUGAL_OK) continue;
        w->n++;
        return status;
    }
    return FRUGAL_OK;
}

/* The instances of all machines, as the last manifest has them. */
static frugal_status copy_image(woven *w) {
    const manifest *last = &w->files[w->n - 1];
    w->image.head = last->head.head;
    w->image.head.kind = SAVED_BASE, w->image.head.parent = 0;
    for (uint32_t p = 0; p < w->image.head.parts; p++) {
        size_t bytes = sizeof(saved_part) + last->parts[p]->part.n_tables * sizeof(saved_table);
        w->image.parts[p] = allocate_memory(&own_memory, bytes, CACHE_LINE);
        if (!w->image.parts[p]) return fail_memory("the settings of a save", bytes);
        w->image.part_bytes[p] = bytes;
        memcpy(w->image.parts[p], &last->parts[p]->part, bytes);
    }
    return FRUGAL_OK;
}

/* Has a machine's share the rows whose home it is? counts[machines]: of table t of instance p. */
static frugal_status check_dealt(const woven *w, uint32_t p, uint32_t t) {
    for (uint32_t i = 0; i < w->n_machines; i++) {
        const saved_part *part = w->machines[i].image.parts[p];
        const saved_table *table = (const saved_table *)(part + 1) + t;
        if (part->n_tables == w->image.parts[p]->n_tables && part->dim == w->image.parts[p]->dim &&
            part->rows_as == w->image.parts[p]->rows_as && part->optimizer == w->image.parts[p]->optimizer &&
            part->step == w->image.parts[p]->step && table->rows == w->counts[i])
            continue;
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the home of %llu rows of table %u of instance %u is machine %u, and its share has %llu, "
                           "or other settings: %s",
                           (unsigned long long)w->counts[i], t, p, i,
                           (unsigned long long)(t < part->n_tables ? table->rows : 0), w->names[i * w->n]);
    }
    return FRUGAL_OK;
}

static frugal_status check_all_dealt(const woven *w) {
    for (uint32_t p = 0; p < w->image.head.parts; p++) {
        const saved_table *tables = (const saved_table *)(w->image.parts[p] + 1);
        uint64_t first = 0;
        for (uint32_t t = 0; t < w->image.parts[p]->n_tables; first += tables[t++].rows) {
            memset(w->counts, 0, w->n_machines * sizeof *w->counts);
            frugal_status status = count_homes(&w->files[0], p, first, tables[t].rows, w->counts);
            if (status == FRUGAL_OK) status = check_dealt(w, p, t);
            if (status != FRUGAL_OK) return status;
        }
    }
    return FRUGAL_OK;
}

/* The shares of one machine. */
static frugal_status open_shares(woven *w, uint32_t machine) {
    char path[LONGEST_PATH], **names = w->names + machine * w->n;
    save_chain *c = &w->machines[machine];
    for (uint32_t i = 0; i < w->n; i++) {
        int error = name_share(&w->files[i], machine, path);
        if (error) return fail_system("name a share", error, w->files[i].name.path);
        if (!(names[i] = strdup(path))) return fail_memory("the names of shares", strlen(path) + 1);
    }
    frugal_status status = open_chain(c, (int)w->n, names);
    w->opened++;
    for (uint32_t i = 0; i < w->n && status == FRUGAL_OK; i++)
        status = check_share(&w->files[i], machine, &c->files[i].r);
    return status;
}

static frugal_status allocate_woven(woven *w) {
    size_t n = w->n_machines = w->files[0].head.machines;
    for (uint32_t p = 0; p < w->image.head.parts; p++) {
        uint64_t row = saved_row_bytes(w->image.parts[p]), most = saved_most_rows(row);
        if (most > w->most) w->most = most;
        if (most * row > w->piece_bytes) w->piece_bytes = most * row;
    }
    w->machines = calloc(n, sizeof *w->machines), w->names = calloc(n * w->n, sizeof *w->names);
    w->next = calloc(n, sizeof *w->next), w->counts = calloc(n, sizeof *w->counts);
    w->homes = malloc(w->most), w->order = malloc(w->most * sizeof *w->order), w->piece = malloc(w->piece_bytes);
    if (w->machines && w->names && w->next && w->counts && w->homes && w->order && w->piece) return FRUGAL_OK;
    return fail_memory("weaving shares", w->piece_bytes + w->most * (1 + sizeof *w->order));
}

/* Whatever this returns, call close_woven. */
static frugal_status open_woven(woven *w, int n, char **paths) {
    frugal_status status = open_manifests(w, n, paths);
    if (status == FRUGAL_OK) status = copy_image(w);
    if (status == FRUGAL_OK) status = allocate_woven(w);
    for (uint32_t i = 0; i < w->n_machines && status == FRUGAL_OK; i++) status = open_shares(w, i);
    return status == FRUGAL_OK ? check_all_dealt(w) : status;
}

static void close_woven(woven *w) {
    for (uint32_t i = 0; i < w->opened; i++) close_chain(&w->machines[i]);
    for (uint32_t i = 0; w->names && i < w->n_machines * w->n; i++) free(w->names[i]);
    for (uint32_t i = 0; i < w->n; i++) close_manifest(&w->files[i]);
    free_image(&w->image);
    free(w->files), free(w->machines), free(w->names), free(w->next);
    free(w->counts), free(w->homes), free(w->order), free(w->piece);
}

/* The rows that order[n] names are fetched from a machine, and put where they belong. */
static frugal_status fetch_from(woven *w, uint32_t machine, const uint32_t *order, uint64_t n, unsigned char *weights,
                                unsigned char *state) {
    const saved_part *part = w->image.parts[w->part];
    size_t weight_bytes = (size_t)saved_weight_bytes(part), state_bytes = part->state_floats * sizeof(float);
    unsigned char *state_piece = w->piece + n * weight_bytes;
    frugal_status status = fetch_chain(&w->machines[machine], w->part, w->next[machine], n, w->piece, state_piece);
    if (status != FRUGAL_OK) return status;
    w->next[machine] += n;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(weights + order[i] * weight_bytes, w->piece + i * weight_bytes, weight_bytes);
        if (state_bytes) memcpy(state + order[i] * state_bytes, state_piece + i * state_bytes, state_bytes);
    }
    return FRUGAL_OK;
}

static frugal_status fetch_woven(void *source, uint32_t part, uint64_t first, uint64_t n, void *weights, void *state) {
    woven *w = source;
    uint32_t used = 0;
    if (part != w->part) memset(w->next, 0, w->n_machines * sizeof *w->next), w->part = part;
    frugal_status status = read_homes(&w->files[0], part, first, n, w->homes);
    if (status != FRUGAL_OK) return status;
    memset(w->counts, 0, w->n_machines * sizeof *w->counts);
    for (uint64_t i = 0; i < n; i++) w->counts[w->homes[i]]++; /* below machines: check_all_dealt has read them */
    uint32_t at[MANIFEST_MOST_MACHINES];
    for (uint32_t m = 0; m < w->n_machines; used += (uint32_t)w->counts[m++]) at[m] = used;
    for (uint64_t i = 0; i < n; i++) w->order[at[w->homes[i]]++] = (uint32_t)i;
    for (uint32_t m = 0; m < w->n_machines && status == FRUGAL_OK; m++)
        if (w->counts[m]) status = fetch_from(w, m, w->order + at[m] - w->counts[m], w->counts[m], weights, state);
    return status;
}

static frugal_status finish_woven(void *source) {
    woven *w = source;
    frugal_status status = FRUGAL_OK;
    for (uint32_t m = 0; m < w->n_machines && status == FRUGAL_OK; m++) status = finish_chain(&w->machines[m]);
    return status;
}

/* >>saves */

typedef struct saves { /* a base and its increments, of one machine or of several */
    save_chain chain;
    woven woven;
    int is_woven;
    row_source rows;
    frugal_status (*finish)(void *source); /* all rows have been fetched: are the files at their ends, and whole? */
} saves;

/* Whatever this returns, call close_saves. */
static frugal_status open_saves(saves *s, int n, char **paths) {
    memset(s, 0, sizeof *s);
    s->is_woven = is_manifest(paths[0]);
    if (s->is_woven) {
        s->rows = (row_source){fetch_woven, &s->woven, &s->woven.image}, s->finish = finish_woven;
        return open_woven(&s->woven, n, paths);
    }
    s->rows = (row_source){fetch_chain, &s->chain, &s->chain.image}, s->finish = finish_chain;
    return open_chain(&s->chain, n, paths);
}

static void close_saves(saves *s) {
    if (s->is_woven)
        close_woven(&s->woven);
    else
        close_chain(&s->chain);
}

/* >>merge */

static int merge_files(const char *out, int n, char **paths) {
    static saves s;
    file_name name;
    frugal_status status = check_out(out, &name, n, paths);
    if (status != FRUGAL_OK) return fail_message();
    status = open_saves(&s, n, paths);
    if (status == FRUGAL_OK) status = write_base(&name, &s.rows, s.finish);
    close_saves(&s);
    return status == FRUGAL_OK ? 0 : fail_message();
}
