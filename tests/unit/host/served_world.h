/* served_world.h - a table that was saved at several steps, for tests of serving. Include after cmocka.h. */
#ifndef SERVED_WORLD_H
#define SERVED_WORLD_H

#include "frugal_serve.h"
#include "tests/seed.h"
#include "tests/unit/host/saved.h"

enum { FIRST_ROWS = 3000, SECOND_ROWS = 500, ROWS = FIRST_ROWS + SECOND_ROWS, VERSIONS = 5, WORLD_DIM = 80 };

static frugal_table big_tables[2] = {{.rows = FIRST_ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                                     {.rows = SECOND_ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}};

static frugal_type world_type; /* of the weights of worlds that are opened; a test sets it back */

typedef struct world {
    rig r;
    uint64_t steps[VERSIONS]; /* of the saves: a base, three increments, another base */
    float *tables[VERSIONS];  /* their weights */
    const char *names[VERSIONS];
    uint32_t dim;
} world;

static const char *const entries[VERSIONS] = {"base", "one", "two", "three", "other"};

static inline void save_version(world *w, uint32_t v) {
    rig_train(&w->r, 2 + (int)v);
    w->names[v] = strdup(saved_path(entries[v]));
    rig_save(&w->r, w->names[v], v > 0 && v < 4);
    w->steps[v] = w->r.step;
    w->tables[v] = malloc((size_t)ROWS * w->dim * sizeof(float));
    read_table(w->r.f, 0, w->tables[v], NULL);
    read_table(w->r.f, 1, w->tables[v] + (size_t)FIRST_ROWS * w->dim, NULL);
}

static inline frugal_desc world_desc(uint32_t dim, frugal_optimizer_kind kind) {
    frugal_desc desc = rig_desc();
    desc.rows_as = world_type;
    desc.tables = big_tables, desc.dim = dim, desc.increments = 1, desc.optimizer.kind = kind;
    return desc;
}

static inline void open_world(world *w, uint32_t dim, frugal_optimizer_kind kind) {
    frugal_desc desc = world_desc(dim, kind);
    memset(w, 0, sizeof *w);
    w->dim = dim;
    w->r.lr = 0.25f;
    rig_open(&w->r, &desc);
    for (uint32_t v = 0; v < VERSIONS; v++) save_version(w, v);
}

static inline void close_world(world *w) {
    for (uint32_t v = 0; v < VERSIONS; v++) free(w->tables[v]), free((char *)(uintptr_t)w->names[v]);
    rig_finish(&w->r, 1);
}

/* Where version v comes from: all saves up to it. */
static inline frugal_served saves_of(const world *w, uint32_t v) {
    return v == 4 ? (frugal_served){.saved = &w->names[4], .n_saved = 1}
                  : (frugal_served){.saved = w->names, .n_saved = v + 1};
}

static inline frugal_server *open_server(const frugal_served *from) {
    frugal_server *s;
    if (frugal_serve_open(&(frugal_serve_desc){.from = *from}, &s) != FRUGAL_OK) fail_msg("%s", frugal_message());
    return s;
}

static inline void refresh(frugal_server *s, const frugal_served *from) {
    if (frugal_serve_refresh(s, from) != FRUGAL_OK) fail_msg("%s", frugal_message());
}

static inline uint32_t version_of(const world *w, uint64_t step) {
    uint32_t v = 0;
    while (v < VERSIONS && w->steps[v] != step) v++;
    return v;
}

/* Looks up keys of both tables, at random. Returns the version that was seen, or VERSIONS if the rows are not all
 * those of one version. */
static inline uint32_t look_up_some(const world *w, frugal_server *s, test_random *r) {
    uint64_t first[40], step = 0;
    int32_t second[30];
    uint32_t n = (uint32_t)test_below(r, 41), m = (uint32_t)test_below(r, 31);
    float rows[70 * WORLD_DIM];
    for (uint32_t i = 0; i < n; i++)
        first[i] = test_below(r, test_chance(r, 50) ? 6 : FIRST_ROWS); /* hot rows change */
    for (uint32_t i = 0; i < m; i++) second[i] = (int32_t)test_below(r, test_chance(r, 50) ? 6 : SECOND_ROWS);
    const frugal_keys segments[2] = {{.table = 0, .keys = first, .n = n}, {.table = 1, .keys32 = second, .n = m}};
    if (frugal_serve_lookup(s, segments, 2, rows, &step) != FRUGAL_OK) return VERSIONS;
    uint32_t v = version_of(w, step), good = v < VERSIONS;
    for (uint32_t i = 0; good && i < n + m; i++) {
        uint64_t row = i < n ? first[i] : FIRST_ROWS + (uint64_t)second[i - n];
        good = !memcmp(rows + i * w->dim, w->tables[v] + row * w->dim, w->dim * sizeof(float));
    }
    return good ? v : VERSIONS;
}

static inline void expect_version(const world *w, frugal_server *s, uint32_t v) {
    test_random r = {.seed = v};
    frugal_serve_info info;
    for (int i = 0; i < 100; i++) assert_int_equal(look_up_some(w, s, &r), v);
    assert_int_equal(FRUGAL_OK, frugal_serve_get_info(s, &info));
    assert_true(info.rows == ROWS && info.step == w->steps[v] && info.n_tables == 2 && info.dim == w->dim);
    assert_int_equal(w->r.desc.rows_as, info.rows_as);
}

#endif /* SERVED_WORLD_H */
