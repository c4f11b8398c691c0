/* test_server.c - frugal_serve.h: lookups have the rows of one version, from saves and from a file; newer versions are
 * taken over while threads look up; what is shared and what is refused. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/served_world.h"

enum { READERS = 3 };

/* >>versions */

enum { BF16 = 16, FP16 = 32 }; /* added to the argument of a test, for worlds of that type */

static void set_type(void **state) {
    world_type = (frugal_type)((intptr_t)*state / BF16);
    *state = (void *)((intptr_t)*state % BF16);
}

static int typed_teardown(void **state) {
    world_type = FRUGAL_FP32;
    return saved_teardown(state);
}
#define TYPED_CASE(name, test, argument)                                                                               \
    { name, test, saved_setup, typed_teardown, (void *)(intptr_t)(argument) }

static void test_saves(void **state) {
    static const frugal_optimizer_kind kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ROWWISE_ADAGRAD};
    static const uint32_t dims[] = {5, 32, 32, WORLD_DIM};
    world w;
    set_type(state);
    open_world(&w, dims[(intptr_t)*state], kinds[(intptr_t)*state % 3]);
    for (uint32_t v = 0; v < VERSIONS; v++) { /* opened at each */
        frugal_served from = saves_of(&w, v);
        frugal_server *s = open_server(&from);
        expect_version(&w, s, v);
        assert_true(frugal_serve_rows(s, 0) == FIRST_ROWS && frugal_serve_rows(s, 1) == SECOND_ROWS);
        assert_true(frugal_serve_rows(s, 2) == 0);
        frugal_serve_close(s);
    }
    static const uint32_t orders[][6] = {
        {0, 1, 2, 3, 4, 0}, {0, 3, 3, 1, 2, 0}, {1, 2, 4, 3, 0, 2}, {4, 0, 2, 3, 1, 4}};
    for (int o = 0; o < 4; o++) { /* in all orders: forwards, several at once, the same again, and back */
        frugal_served from = saves_of(&w, orders[o][0]);
        frugal_server *s = open_server(&from);
        for (int i = 1; i < 6; i++) {
            from = saves_of(&w, orders[o][i]);
            refresh(s, &from);
            expect_version(&w, s, orders[o][i]);
        }
        frugal_serve_close(s);
    }
    close_world(&w);
}

/* Increments share the pages of the base in which no row has changed. */
static void test_sharing(void **state) {
    world w;
    frugal_serve_info first, info;
    set_type(state);
    const uint32_t bytes = world_type == FRUGAL_FP32 ? 4 : 2, rows = 4096 / (32 * bytes); /* of a weight; in a page */
    open_world(&w, 32, FRUGAL_SGD);
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    assert_int_equal(FRUGAL_OK, frugal_serve_get_info(s, &first));
    assert_true(first.own_bytes >= (uint64_t)ROWS * 32 * bytes);
    assert_true(first.own_bytes < (uint64_t)ROWS * 32 * bytes + (1 << 21)); /* at most a page more */
    uint64_t before = 0;
    for (uint32_t v = 1; v < 4; v++) {
        from = saves_of(&w, v);
        refresh(s, &from);
        assert_int_equal(FRUGAL_OK, frugal_serve_get_info(s, &info));
        assert_true(info.versions == v + 1);
#if defined(__linux__)
        uint64_t pages = 0; /* in which a row differs from the base */
        for (uint64_t page = 0; page < first.own_bytes / 4096; page++) {
            int differs = 0;
            for (uint64_t row = page * rows; row < (page + 1) * rows && row < ROWS; row++)
                differs |= !!memcmp(w.tables[v] + row * 32, w.tables[0] + row * 32, 128);
            pages += (uint64_t)differs;
        }
        assert_true(info.own_bytes >= pages * 4096 && info.own_bytes < first.own_bytes);
        assert_true(info.own_bytes >= before);
        before = info.own_bytes;
#endif
    }
    frugal_serve_close(s);
    close_world(&w);
}

/* A table's file: mapped by several servers at a time, and by no trainer meanwhile. */
static void test_file(void **state) {
    world w;
    set_type(state);
    rig r = {.lr = 0.25f};
    frugal *f;
    frugal_serve_info info;
    char *path = strdup(saved_path("table"));
    open_world(&w, 5, FRUGAL_ADAGRAD);
    frugal_desc desc = world_desc(5, FRUGAL_ADAGRAD);
    desc.file = path, desc.saved = w.names, desc.n_saved = 3;
    rig_open(&r, &desc);
    frugal_served from = {.file = path};
    frugal_server *s = NULL, *other;
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&(frugal_serve_desc){.from = from}, &s), "in use by process", path);
    assert_null(s);
    rig_finish(&r, 0);
    s = open_server(&from), other = open_server(&from);
    expect_version(&w, s, 2);
    expect_version(&w, other, 2);
    assert_int_equal(FRUGAL_OK, frugal_serve_get_info(s, &info));
    assert_true(info.own_bytes == 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_open(&desc, &f), "is served by other processes", path);
    frugal_close(f);
    from = saves_of(&w, 3); /* from a file to saves, and back */
    refresh(s, &from);
    expect_version(&w, s, 3);
    refresh(s, &(frugal_served){.file = path});
    expect_version(&w, s, 2);
    frugal_serve_close(s);
    expect_version(&w, other, 2);
    frugal_serve_close(other);
    desc.saved = NULL, desc.n_saved = 0; /* it is a trainer's again */
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    frugal_close(f);
    free(path);
    close_world(&w);
}

/* A file that is torn, cut, or whose list of tables is damaged, is refused. */
static void test_bad_files(void **state) {
    (void)state;
    world w;
    rig r = {.lr = 0.25f};
    frugal_server *s = NULL;
    char *path = strdup(saved_path("table"));
    const frugal_serve_desc desc = {.from = {.file = path}};
    open_world(&w, 5, FRUGAL_SGD);
    frugal_desc made = world_desc(5, FRUGAL_SGD);
    made.file = path;
    pid_t child = fork();
    if (child == 0) { /* a trainer that does not close it */
        rig_open(&r, &made);
        rig_train(&r, 1);
        _exit(0);
    }
    assert_int_equal(child, waitpid(child, NULL, 0));
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "is torn", path);
    assert_int_equal(0, unlink(path));
    rig_open(&r, &made);
    rig_finish(&r, 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t bytes = lseek(file, 0, SEEK_END);
    assert_int_equal(0, ftruncate(file, bytes - 4096));
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "truncated", path);
    assert_int_equal(0, ftruncate(file, bytes));
    unsigned char one;
    assert_int_equal(1, pread(file, &one, 1, 4096)); /* the list of tables, behind the header */
    one ^= 1;
    assert_int_equal(1, pwrite(file, &one, 1, 4096));
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "list of tables", path);
    assert_null(s);
    close(file);
    free(path);
    close_world(&w);
}

/* A save of two instances of one layout: a version of one does not continue one of the other. */
static void test_parts(void **state) {
    (void)state;
    rig r[2] = {{.lr = 0.25f}, {.lr = 0.25f}};
    frugal *both[2];
    float *tables = malloc((size_t)FIRST_ROWS * 5 * sizeof *tables), row[5];
    char *path = strdup(saved_path("both"));
    for (int i = 0; i < 2; i++) {
        frugal_desc desc = world_desc(5, FRUGAL_SGD);
        desc.seed = (uint64_t)i + 7;
        rig_open(&r[i], &desc);
        rig_train(&r[i], 3);
        assert_int_equal(FRUGAL_OK, frugal_drain(both[i] = r[i].f));
    }
    assert_int_equal(FRUGAL_OK, frugal_save(both, 2, &(frugal_save_desc){.path = path}));
    const char *name = path;
    frugal_served from = {.saved = &name, .n_saved = 1};
    frugal_server *s = open_server(&from);
    for (uint32_t i = 0; i < 4; i++) {
        from.part = i % 2;
        refresh(s, &from);
        read_table(both[i % 2], 0, tables, NULL);
        for (uint64_t key = 0; key < FIRST_ROWS; key += 7) {
            const frugal_keys one = {.table = 0, .keys = &key, .n = 1};
            assert_int_equal(FRUGAL_OK, frugal_serve_lookup(s, &one, 1, row, NULL));
            assert_memory_equal(tables + key * 5, row, sizeof row);
        }
    }
    frugal_serve_close(s);
    for (int i = 0; i < 2; i++) rig_finish(&r[i], 1);
    free(tables), free(path);
}

/* Memory that is held stays as it is, and a refresh waits for it. */
typedef struct refresher {
    frugal_server *s;
    const frugal_served *from;
    atomic_int ended;
} refresher;

static void *refresh_it(void *argument) {
    refresher *me = argument;
    refresh(me->s, me->from);
    atomic_store(&me->ended, 1);
    return NULL;
}

static void expect_held(const world *w, const frugal_served_memory *m, uint32_t v) {
    const uint32_t bytes = m->rows_as == FRUGAL_FP32 ? 4 : 2;
    assert_true(m->step == w->steps[v] && m->stride >= w->dim && m->rows_as == w->r.desc.rows_as);
    void *file = mmap(NULL, m->file_bytes, PROT_READ, MAP_SHARED, m->file, 0);
    assert_true(m->file >= 0 && file != MAP_FAILED);
    const char *base = (const char *)file + m->file_at;
    for (uint64_t row = 0; row < ROWS; row++) {
        float wide[8];
        const char *held = (const char *)m->weights + row * m->stride * bytes;
        int differs = m->changed && m->changed[row / 64] >> row % 64 & 1;
        frugal_convert(wide, FRUGAL_FP32, held, m->rows_as, w->dim);
        assert_memory_equal(w->tables[v] + row * w->dim, wide, w->dim * sizeof(float));
        if (!differs) assert_memory_equal(held, base + row * m->stride * bytes, w->dim * bytes);
    }
    munmap(file, m->file_bytes);
}

static void test_held(void **state) {
    world w;
    set_type(state);
    pthread_t thread;
    frugal_served_memory first, second, third;
    open_world(&w, 5, FRUGAL_SGD);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    assert_int_equal(FRUGAL_OK, frugal_serve_hold(s, &first));
    assert_true(first.version == 1 && !first.changed);
    from = saves_of(&w, 2);
    refresher r = {.s = s, .from = &from};
    assert_int_equal(0, pthread_create(&thread, NULL, refresh_it, &r));
    do assert_int_equal(FRUGAL_OK, frugal_serve_hold(s, &second));
    while (second.version == 1 && (frugal_serve_release(s, &second), 1));
    assert_true(second.version == 2 && second.file_number == 1 && second.changed);
    expect_held(&w, &first, 1);
    expect_held(&w, &second, 2);
    assert_int_equal(0, atomic_load(&r.ended));
    frugal_serve_release(s, &first);
    pthread_join(thread, NULL);
    expect_held(&w, &second, 2);
    frugal_serve_release(s, &second);
    from = saves_of(&w, 4);
    refresh(s, &from);
    assert_int_equal(FRUGAL_OK, frugal_serve_hold(s, &third));
    assert_true(third.version == 3 && third.file_number == 3 && !third.changed);
    expect_held(&w, &third, 4);
    frugal_serve_release(s, &third);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_hold(NULL, &third), "no server", "");
    frugal_serve_close(s);
    close_world(&w);
}

/* >>threads */

typedef struct reader {
    const world *w;
    frugal_server *s;
    uint64_t seed, seen[VERSIONS + 1];
    atomic_ullong lookups;
    int *stop;
    pthread_t thread;
} reader;

static void *read_on(void *argument) {
    reader *me = argument;
    test_random r = {.seed = me->seed};
    while (!__atomic_load_n(me->stop, __ATOMIC_RELAXED)) {
        me->seen[look_up_some(me->w, me->s, &r)]++;
        atomic_fetch_add(&me->lookups, 1);
    }
    return NULL;
}

static void test_refresh_while_threads_look_up(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_refresh_while_threads_look_up", 31)};
    world w;
    reader readers[READERS];
    int stop = 0;
    open_world(&w, 5, FRUGAL_SGD);
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    for (uint64_t i = 0; i < READERS; i++) {
        readers[i] = (reader){.w = &w, .s = s, .seed = i, .stop = &stop};
        assert_int_equal(0, pthread_create(&readers[i].thread, NULL, read_on, &readers[i]));
    }
    for (int i = 0, all = 0; i < 200 / SHORTER || !all; i++) { /* and until all have looked up */
        all = 1;
        for (int t = 0; t < READERS; t++) all &= atomic_load(&readers[t].lookups) > 0;
        from = saves_of(&w, (uint32_t)test_below(&r, VERSIONS));
        refresh(s, &from);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        if (readers[i].seen[VERSIONS] > 0)
            fail_msg("%llu of %llu lookups saw rows of no version, or of two",
                     (unsigned long long)readers[i].seen[VERSIONS],
                     (unsigned long long)atomic_load(&readers[i].lookups));
    }
    frugal_serve_close(s);
    close_world(&w);
}

/* >>pooling: the bits of frugal_lookup_bags */

static void test_bags(void **state) {
    test_random r = {.seed = test_seed("test_bags", 32)};
    world w;
    set_type(state);
    open_world(&w, 5, FRUGAL_SGD);
    frugal_served from = saves_of(&w, 2);
    frugal_server *s = open_server(&from);
    frugal_desc desc = world_desc(5, FRUGAL_SGD);
    frugal *f;
    desc.devices = 1, desc.saved = w.names, desc.n_saved = 3, desc.saved_settings_may_differ = 1;
    desc.max_keys = 6000;
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    for (uint32_t round = 0; round < 30; round++) {
        uint32_t n = round ? (uint32_t)test_below(&r, 200) : 6000, offsets[60] = {0}; /* more than fit on the stack */
        uint64_t *keys = malloc(8 * (n + 1)), step;
        float *weights = malloc(4 * (n + 1)), wanted[59 * 8], found[59 * 8];
        for (uint32_t i = 0; i < n; i++)
            keys[i] = test_below(&r, FIRST_ROWS), weights[i] = (float)test_below(&r, 9) - 4;
        for (uint32_t b = 1; b < 59; b++)
            offsets[b] = offsets[b - 1] + (uint32_t)test_below(&r, (n - offsets[b - 1]) / (60 - b) * 2 + 1);
        offsets[59] = n;
        for (uint32_t b = 1; b <= 59; b++) offsets[b] = offsets[b] > n ? n : offsets[b];
        const frugal_keys segment = {.table = 0, .keys = keys, .n = n};
        frugal_bags bags = {.n_bags = 59, .offsets = offsets, .stride = round % 2 ? 8 : 0};
        if (round % 3 == 0) bags.pooling = FRUGAL_POOL_MEAN;
        if (round % 3 == 1) bags.weights = weights;
        memset(wanted, 0, sizeof wanted), memset(found, 0, sizeof found);
        uint64_t now = frugal_settings(f)->first_step + round;
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, now, &(frugal_batch){&segment, 1, 1}));
        assert_int_equal(FRUGAL_OK, frugal_lookup_bags(f, 0, now, &bags, wanted));
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, now, NULL));
        assert_int_equal(FRUGAL_OK, frugal_serve_bags(s, &segment, 1, &bags, found, &step));
        assert_memory_equal(wanted, found, sizeof wanted);
        assert_true(step == w.steps[2]);
        free(keys), free(weights);
    }
    frugal_close(f);
    frugal_serve_close(s);
    close_world(&w);
}

/* >>what is refused */

static void test_refusals(void **state) {
    (void)state;
    world w, other;
    frugal_server *s = NULL;
    frugal_serve_desc desc = {.threads = 1};
    float rows[64];
    uint64_t key = 0, step = 77;
    int32_t small = -1;
    open_world(&w, 5, FRUGAL_SGD);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(NULL, &s), "`desc` is NULL", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(&desc, NULL), "`out` is NULL", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(&desc, &s), "nothing to serve is given", "give saves");
    desc.from = saves_of(&w, 1), desc.from.file = "x";
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(&desc, &s), "both saves and a file", "");
    desc.from = (frugal_served){.file = saved_path("nothing")};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "No such file", "nothing");
    desc.from = (frugal_served){.file = saved_path("no/table")};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "No such file", "no/table");
    desc.from = (frugal_served){.saved = w.names};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(&desc, &s), "nothing to serve is given", "");
    const char *empty = saved_path("empty");
    fclose(fopen(empty, "w"));
    desc.from = (frugal_served){.file = empty};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "is empty", empty);
    desc.from = (frugal_served){.file = w.names[0]};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "this is a save", w.names[0]);
    desc.from = (frugal_served){.saved = &w.names[1], .n_saved = 1};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "name its base before it", w.names[1]);
    desc.from = saves_of(&w, 0), desc.from.part = 1;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_open(&desc, &s), "instance 1 of a save that has 1", "");
    assert_null(s);
    desc.from = saves_of(&w, 1);
    s = open_server(&desc.from);
    const char *gap[] = {w.names[0], w.names[2]};
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &(frugal_served){.saved = gap, .n_saved = 2}),
                 "does not continue", w.names[2]);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_refresh(s, NULL), "nothing to serve", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_refresh(NULL, &desc.from), "no server", "");
    expect_version(&w, s, 1); /* as it was */
    const frugal_keys bad[] = {{.table = 2, .keys = &key, .n = 1},
                               {.table = 0, .keys32 = &small, .n = 1},
                               {.table = 0, .n = 1},
                               {.table = 1, .keys = (uint64_t[]){SECOND_ROWS}, .n = 1}};
    memset(rows, 0x55, sizeof rows);
    assert_fails(FRUGAL_ERR_TABLE, frugal_serve_lookup(s, &bad[0], 1, rows, &step), "table 2; there are 2", "");
    assert_fails(FRUGAL_ERR_KEY, frugal_serve_lookup(s, &bad[1], 1, rows, &step), "key -1 at 0 of segment 0", "3000");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_lookup(s, &bad[2], 1, rows, &step), "no keys are given", "");
    assert_fails(FRUGAL_ERR_KEY, frugal_serve_lookup(s, &bad[3], 1, rows, &step), "key 500 at 0", "500 rows");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_lookup(s, NULL, 1, rows, &step), "no segments", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_lookup(NULL, bad, 1, rows, &step), "no server", "");
    const frugal_keys good = {.table = 0, .keys = &key, .n = 1};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_lookup(s, &good, 1, NULL, &step), "`rows` is NULL", "");
    const uint32_t falls[] = {0, 1, 0}, misses[] = {0, 2}, offsets[] = {0, 1}, behind[] = {1, 1};
    frugal_serve_info info;
    frugal_bags bags = {.n_bags = 2, .offsets = falls};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "offset 2 is 0",
                 "one before");
    bags = (frugal_bags){.n_bags = 1, .offsets = misses};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "from 0 to 2", "1 keys");
    bags.stride = 4;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "stride of 4", "rows have 5");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, NULL, rows, &step), "no bags", "");
    bags = (frugal_bags){.n_bags = 1, .offsets = offsets, .pooling = (frugal_pooling)2};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "pooling 2", "1 (mean");
    bags.pooling = FRUGAL_POOL_MEAN, bags.weights = rows;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "with weights", "");
    bags = (frugal_bags){.n_bags = 1, .offsets = offsets};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, NULL, &step), "no array", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(NULL, &good, 1, &bags, rows, &step), "no server", "");
    assert_fails(FRUGAL_ERR_KEY, frugal_serve_bags(s, &bad[1], 1, &bags, rows, &step), "key -1", "");
    bags.offsets = behind;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "from 1 to 1", "1 keys");
    const frugal_keys many[] = {{.table = 0, .keys = &key, .n = UINT32_MAX}, good}; /* they are counted first */
    assert_fails(FRUGAL_ERR_LIMIT, frugal_serve_bags(s, many, 2, &bags, rows, &step), "4294967296 keys", "4294967295");
    bags.offsets = NULL;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_bags(s, &good, 1, &bags, rows, &step), "no offsets", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_get_info(NULL, &info), "no server", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_get_info(s, NULL), "`out` is NULL", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_serve_hold(s, NULL), "`out` is NULL", "");
    frugal_serve_release(s, NULL);
    assert_true(frugal_serve_rows(NULL, 0) == 0 && frugal_serve_rows(s, 2) == 0);
    assert_true(step == 77);
    for (int i = 0; i < 64; i++) assert_memory_equal(&rows[i], "\x55\x55\x55\x55", 4);
    assert_int_equal(FRUGAL_OK, frugal_serve_lookup(s, NULL, 0, NULL, NULL)); /* nothing */
    close_world(&w);
    saved_teardown(NULL), saved_setup(NULL);
    open_world(&other, 6, FRUGAL_SGD); /* another dim */
    desc.from = saves_of(&other, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &desc.from), "dim 5 in fp32 are served", "of dim 6 in fp32");
    world_type = FRUGAL_BF16; /* another type */
    saved_teardown(NULL), saved_setup(NULL);
    world typed;
    open_world(&typed, 5, FRUGAL_SGD);
    desc.from = saves_of(&typed, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &desc.from), "dim 5 in fp32 are served", "of dim 5 in bf16");
    close_world(&typed);
    world_type = FRUGAL_FP32;
    rig r = {.lr = 0.25f}; /* and in a table's file */
    char *path = strdup(saved_path("table"));
    frugal_desc table = world_desc(6, FRUGAL_SGD);
    table.file = path;
    rig_open(&r, &table);
    rig_finish(&r, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &(frugal_served){.file = path}), "dim 5 in fp32 are served",
                 path);
    assert_int_equal(0, unlink(path));
    table.n_tables = 1, table.dim = 5;
    rig_open(&r, &table);
    rig_finish(&r, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &(frugal_served){.file = path}), "2 tables", path);
    assert_int_equal(0, unlink(path));
    frugal_table turned[2] = {big_tables[1], big_tables[0]}; /* as many rows, in other tables */
    table.tables = turned, table.n_tables = 2;
    rig_open(&r, &table);
    rig_finish(&r, 0);
    assert_fails(FRUGAL_ERR_FILE, frugal_serve_refresh(s, &(frugal_served){.file = path}), "other rows by table", path);
    free(path);
    frugal_serve_close(s);
    frugal_serve_close(NULL);
    frugal_serve_release(NULL, NULL);
    close_world(&other);
}

/* The system gives no descriptor, or no room: an error says which, and what was served is served on. */
static void test_limits(void **state) {
    (void)state;
    world w;
    frugal_server *s = NULL;
    struct rlimit files, sizes, few, small;
    open_world(&w, 5, FRUGAL_SGD);
    frugal_serve_desc desc = {.from = saves_of(&w, 0)};
    assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &files));
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &sizes));
    few = files, small = sizes, small.rlim_cur = 4096;
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &small)); /* no signal ends the test */
    frugal_status status = frugal_serve_open(&desc, &s);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &sizes));
    assert_fails(FRUGAL_ERR_FILE, status, "memory that versions share", "ulimit -f");
    assert_null(s);
    for (int refreshes = 0; refreshes < 2; refreshes++) {
        const frugal_served next = saves_of(&w, 2);
        int told = 0;
        few.rlim_cur = 3;
        do { /* more and more descriptors, until there are enough */
            few.rlim_cur++;
            assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &few));
            status = refreshes ? frugal_serve_refresh(s, &next) : frugal_serve_open(&desc, &s);
            assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &files));
            if (status != FRUGAL_OK) assert_fails(FRUGAL_ERR_FILE, status, "ulimit -n", "frugal_saved_");
            if (status != FRUGAL_OK) told += strstr(frugal_message(), "memory that versions share") != NULL;
            if (refreshes && status != FRUGAL_OK) expect_version(&w, s, 0);
        } while (status != FRUGAL_OK && few.rlim_cur < 100);
        assert_true(status == FRUGAL_OK && told);
        expect_version(&w, s, refreshes ? 2 : 0);
    }
    frugal_serve_close(s);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("test_saves, dim 5", test_saves, 0),
        SAVED_CASE("test_saves, dim 32", test_saves, 1),
        SAVED_CASE("test_saves, dim 32, row-wise state", test_saves, 2),
        SAVED_CASE("test_saves, dim 80: large enough for huge pages", test_saves, 3),
        TYPED_CASE("test_saves, dim 5, bf16", test_saves, BF16 + 0),
        TYPED_CASE("test_saves, dim 80, fp16", test_saves, FP16 + 3),
        SAVED_TEST(test_sharing),
        TYPED_CASE("test_sharing, fp16", test_sharing, FP16),
        SAVED_TEST(test_file),
        TYPED_CASE("test_file, bf16", test_file, BF16),
        SAVED_TEST(test_bad_files),
        SAVED_TEST(test_parts),
        SAVED_TEST(test_held),
        TYPED_CASE("test_held, bf16", test_held, BF16),
        SAVED_TEST(test_refresh_while_threads_look_up),
        SAVED_TEST(test_bags),
        TYPED_CASE("test_bags, bf16", test_bags, BF16),
        TYPED_CASE("test_bags, fp16", test_bags, FP16),
        TYPED_CASE("test_refusals", test_refusals, 0),
        SAVED_TEST(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
