/* server.c - lookups in a version of a table, while newer versions are taken over (frugal_serve.h).
 *
 * One word says which version lookups see, and how many have begun with it: each begins by adding one. So one operation
 * tells it the version and counts it, and no lookup waits for another. It ends by adding one to the count of lookups
 * that have left that version. A refresh exchanges the word for that of the newer version, with a count of zero. From
 * then on no lookup can begin with the old version, and when as many have left it as had begun, no lookup reads it any
 * more.
 */
#include "serving.h"

#define SERVED_AT    63 /* bits of the word below the version's place: lookups that have begun */
#define SERVED_BEGUN ((UINT64_C(1) << SERVED_AT) - 1)

struct frugal_server {
    FRUGAL_ATOMIC(uint64_t) word;
    uint8_t pad1[56];
    FRUGAL_ATOMIC(uint64_t) left[2]; /* by version: lookups that have returned */
    uint8_t pad2[48];
    served versions[2]; /* the other one is empty, unless a refresh makes or frees it */
    uint32_t threads;
    uint32_t process;    /* it has opened the server; no other may refresh or close it */
    uint64_t n_versions; /* under the lock */
    pthread_mutex_t refreshing;
};

/* A later lookup's addition continues the release sequence that a refresh has begun, so it too acquires the version. */
static served *begin_serving(frugal_server *s) {
    return &s->versions[frugal_add_acquire(&s->word, 1) >> SERVED_AT]; /* [F47] pairs with [F48] */
}

static void end_serving(frugal_server *s, const served *v) {
    frugal_add_release(&s->left[v - s->versions], 1); /* [F49] pairs with [F50] */
}

static uint32_t serving_threads(uint32_t wanted) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = wanted ? wanted : processors > 0 ? (uint32_t)processors : 1;
    return LEAST(n, MOST_PARALLEL);
}

/* A version that maps its file privately has the file of the version before. */
static void number_version(frugal_server *s, served *v, const served *before) {
    v->number = ++s->n_versions;
    v->file_number = v->is_private ? before->file_number : v->number;
    v->own_bytes = own_bytes(v);
}

frugal_status frugal_serve_open(const frugal_serve_desc *desc, frugal_server **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_open: `out` is NULL");
    *out = NULL;
    if (!desc) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_open: `desc` is NULL");
    if (check_arithmetic() != FRUGAL_OK) return FRUGAL_ERR_ARITHMETIC;
    frugal_server *s = allocate_memory(&(frugal_desc){0}, sizeof *s, CACHE_LINE);
    if (!s) return fail_memory("the server", sizeof *s);
    s->threads = serving_threads(desc->threads), s->process = (uint32_t)getpid();
    s->versions[1].file = -1;
    frugal_status status = open_served(&desc->from, s->threads, NULL, &s->versions[0], "frugal_serve_open");
    if (status != FRUGAL_OK) {
        close_served(&s->versions[0]);
        release_memory(&(frugal_desc){0}, s, sizeof *s);
        return status;
    }
    number_version(s, &s->versions[0], NULL);
    pthread_mutex_init(&s->refreshing, NULL);
    *out = s;
    return FRUGAL_OK;
}

void frugal_serve_close(frugal_server *s) {
    if (!s || !is_this_process(s->process)) return;
    for (int i = 0; i < 2; i++) close_served(&s->versions[i]);
    pthread_mutex_destroy(&s->refreshing);
    release_memory(&(frugal_desc){0}, s, sizeof *s);
}

/* From now on lookups see the version in `place`; the one before is freed when the last lookup has left it. */
static void take_over(frugal_server *s, uint32_t place) {
    uint64_t found = frugal_load_relaxed(&s->word); /* relaxed: the exchange proves it */
    uint32_t before = (uint32_t)(found >> SERVED_AT);
    while (!frugal_cas_release(&s->word, &found, (uint64_t)place << SERVED_AT)) {
    }                                                                       /* [F48] pairs with [F47] */
    while (frugal_load_acquire(&s->left[before]) != (found & SERVED_BEGUN)) /* [F50] pairs with [F49] */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    frugal_store_relaxed(&s->left[before], 0); /* relaxed: no lookup begins there before [F48] */
    close_served(&s->versions[before]);
}

frugal_status frugal_serve_refresh(frugal_server *s, const frugal_served *from) {
    if (!s) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_refresh: no server");
    if (!is_this_process(s->process)) return fail_forked(s->process, "frugal_serve_refresh");
    pthread_mutex_lock(&s->refreshing);
    uint32_t now = (uint32_t)(frugal_load_relaxed(&s->word) >> SERVED_AT); /* relaxed: changed under the lock only */
    served *next = &s->versions[1 - now];
    frugal_status status = open_served(from, s->threads, &s->versions[now], next, "frugal_serve_refresh");
    if (status == FRUGAL_OK) {
        number_version(s, next, &s->versions[now]);
        take_over(s, 1 - now);
    } else {
        close_served(next);
    }
    pthread_mutex_unlock(&s->refreshing);
    return status;
}

/* Counts the keys, and checks all of them. */
static frugal_status check_served_keys(const frugal *f, const char *call, const frugal_keys *segments,
                                       uint32_t n_segments, uint64_t most, uint64_t *n) {
    *n = 0;
    if (n_segments > 0 && !segments) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no segments", call);
    *n = count_keys(segments, n_segments);
    if (*n > most)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%s: %llu keys; the limit is %llu", call, (unsigned long long)*n,
                           (unsigned long long)most);
    for (uint32_t i = 0; i < n_segments; i++) {
        const frugal_keys *keys = &segments[i];
        frugal_status status = check_segment(f, i, keys);
        if (status != FRUGAL_OK) return status;
        uint64_t rows = f->desc.tables[keys->table].rows;
        for (uint32_t k = 0; k < keys->n; k++)
            if (key_at(keys, k) >= rows) return fail_segment_key(i, keys, k, rows);
    }
    return FRUGAL_OK;
}

/* Copies the rows of a segment as floats. Rows are prefetched, so that many that are not in a processor's cache are
 * waited for at a time. */
static float *copy_served(const frugal *f, const frugal_keys *keys, float *to) {
    uint64_t first = f->first_row[keys->table], bytes = frugal_row_bytes(&f->store);
    uint32_t dim = f->store.dim;
    frugal_type as = f->store.rows_as;
    for (uint32_t k = 0; k < LEAST(keys->n, AHEAD_GATHER); k++)
        prefetch_bytes(weights_of(f, first + key_at(keys, k)), bytes, 0);
    for (uint32_t k = 0; k < keys->n; k++, to += dim) {
        if (k + AHEAD_GATHER < keys->n) prefetch_bytes(weights_of(f, first + key_at(keys, k + AHEAD_GATHER)), bytes, 0);
        if (as == FRUGAL_FP32)
            copy_row(to, weights_of(f, first + key_at(keys, k)), dim);
        else
            frugal_convert(to, FRUGAL_FP32, weights_of(f, first + key_at(keys, k)), as, dim);
    }
    return to;
}

frugal_status frugal_serve_lookup(frugal_server *s, const frugal_keys *segments, uint32_t n_segments, float *rows,
                                  uint64_t *step) {
    uint64_t n;
    if (!s) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_lookup: no server");
    served *v = begin_serving(s);
    frugal_status status = check_served_keys(v->f, "frugal_serve_lookup", segments, n_segments, UINT64_MAX, &n);
    if (status == FRUGAL_OK && n > 0 && !rows)
        status = frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_lookup: `rows` is NULL");
    for (uint32_t i = 0; status == FRUGAL_OK && i < n_segments; i++) rows = copy_served(v->f, &segments[i], rows);
    if (status == FRUGAL_OK && step) *step = v->step;
    end_serving(s, v);
    return status;
}

static frugal_status check_served_bags(const frugal *f, const frugal_bags *bags, uint64_t n, const float *pooled) {
    frugal_status status = check_pooling("frugal_serve_bags", bags, pooled);
    if (status != FRUGAL_OK) return status;
    if (bags->stride && bags->stride < f->store.dim)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_bags: a stride of %llu floats; rows have %u",
                           (unsigned long long)bags->stride, f->store.dim);
    for (uint32_t b = 0; b < bags->n_bags; b++)
        if (bags->offsets[b + 1] < bags->offsets[b])
            return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_bags: offset %u is %u, below the one before, %u",
                               b + 1, bags->offsets[b + 1], bags->offsets[b]);
    if (bags->offsets[0] != 0 || bags->offsets[bags->n_bags] != n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_bags: offsets go from %u to %u, and there are %llu keys",
                           bags->offsets[0], bags->offsets[bags->n_bags], (unsigned long long)n);
    return FRUGAL_OK;
}

/* Pools, as lookups of a trainer do: row numbers stand for record numbers. */
static frugal_status pool_served(const frugal *f, const frugal_keys *segments, uint32_t n_segments, uint64_t n,
                                 const frugal_bags *bags, float *pooled) {
    uint32_t few[4096], *rows = few, at = 0;
    if (n > sizeof few / sizeof *few && !(rows = malloc(n * sizeof *rows)))
        return fail_memory("the rows of a lookup", n * sizeof *rows);
    for (uint32_t i = 0; i < n_segments; i++)
        for (uint32_t k = 0; k < segments[i].n; k++)
            rows[at++] = (uint32_t)(f->first_row[segments[i].table] + key_at(&segments[i], k));
    const pooled_from from = {{.at = f->store.weights, .stride = f->store.weights_stride, .as = f->store.rows_as},
                              .row_of = rows,
                              .n = (uint32_t)n};
    const pooled_rows to = {pooled, bags->stride ? bags->stride : f->store.dim, FRUGAL_FP32, f->store.dim};
    float_mode saved = float_mode_enter(); /* pooling is arithmetic */
    pool_rows(&to, &from, bags);
    float_mode_leave(saved);
    if (rows != few) free(rows);
    return FRUGAL_OK;
}

frugal_status frugal_serve_bags(frugal_server *s, const frugal_keys *segments, uint32_t n_segments,
                                const frugal_bags *bags, float *pooled, uint64_t *step) {
    uint64_t n;
    if (!s) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_bags: no server");
    served *v = begin_serving(s);
    frugal_status status = check_served_keys(v->f, "frugal_serve_bags", segments, n_segments, UINT32_MAX, &n);
    if (status == FRUGAL_OK) status = check_served_bags(v->f, bags, n, pooled);
    if (status == FRUGAL_OK) status = pool_served(v->f, segments, n_segments, n, bags, pooled);
    if (status == FRUGAL_OK && step) *step = v->step;
    end_serving(s, v);
    return status;
}

frugal_status frugal_serve_get_info(frugal_server *s, frugal_serve_info *out) {
    if (!s || !out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_get_info: no server, or `out` is NULL");
    const served *v = begin_serving(s);
    *out = (frugal_serve_info){.rows = v->f->store.rows,
                               .step = v->step,
                               .versions = v->number,
                               .own_bytes = v->own_bytes,
                               .n_tables = v->f->desc.n_tables,
                               .dim = v->f->store.dim,
                               .rows_as = v->f->store.rows_as};
    end_serving(s, v);
    return FRUGAL_OK;
}

frugal_status frugal_serve_hold(frugal_server *s, frugal_served_memory *out) {
    if (!s || !out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_serve_hold: no server, or `out` is NULL");
    const served *v = begin_serving(s);
    const frugal_store *store = &v->f->store;
    *out = (frugal_served_memory){.weights = store->weights,
                                  .rows_as = store->rows_as,
                                  .stride = store->weights_stride,
                                  .step = v->step,
                                  .version = v->number,
                                  .file = v->file,
                                  .file_at = (uint64_t)((const char *)store->weights - (const char *)v->map),
                                  .file_bytes = v->bytes,
                                  .file_number = v->file_number,
                                  .changed = v->is_private ? (const uint64_t *)(uintptr_t)v->f->saving.changed : NULL,
                                  .held = (uint32_t)(v - s->versions)};
    return FRUGAL_OK;
}

void frugal_serve_release(frugal_server *s, const frugal_served_memory *memory) {
    if (!s || !memory) return;
    end_serving(s, &s->versions[memory->held]);
}

uint64_t frugal_serve_rows(frugal_server *s, uint32_t table) {
    uint64_t rows = 0;
    if (!s) return 0;
    served *v = begin_serving(s);
    if (table < v->f->desc.n_tables) rows = v->f->desc.tables[table].rows;
    end_serving(s, v);
    return rows;
}
