/* init.c - the first values of rows (zeros, random numbers, or the caller's) and of their optimizer state. */
#include "table.h"

/* Philox 4x32-10 (Salmon et al., SC 2011): random numbers as a function of (seed, row, element / 4), so that the
 * table is the same whatever the number of threads that make it. */
static void philox(uint64_t seed, uint64_t row, uint32_t block, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)row, (uint32_t)(row >> 32), block, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k1,
                            (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

static float draw_uniform(uint32_t bits, const frugal_table *table) {
    return frugal_fma((float)(bits >> 8) * 0x1p-24f, table->high - table->low, table->low);
}

/* The Box-Muller transform, in double: C libraries may differ in the last bit, and that rarely changes the float. */
static float draw_normal(uint32_t bits1, uint32_t bits2, const frugal_table *table) {
    double u = ((double)bits1 + 1.0) * 0x1p-32, angle = (double)bits2 * (6.283185307179586 * 0x1p-32);
    return (float)fma((double)table->deviation, sqrt(-2.0 * log(u)) * cos(angle), (double)table->mean);
}

typedef struct first_row { /* whose values are drawn */
    const frugal *f;
    const frugal_table *table;
    uint64_t row, id, first_id; /* ids, and so values, are the same however the table is dealt over machines */
} first_row;

/* Elements [from, end) of the row's first values, as floats; `from` is a multiple of 4. */
static void draw_elements(const first_row *r, uint32_t from, uint32_t end, float *w) {
    uint32_t random[8];
    uint64_t seed = r->f->desc.seed;
    switch (r->table->init) {
    case FRUGAL_INIT_ZERO:
        memset(w, 0, (end - from) * sizeof *w);
        break;
    case FRUGAL_INIT_COPY:
        memcpy(w, r->table->source + (r->id - r->first_id) * r->f->desc.dim + from, (end - from) * sizeof *w);
        break;
    case FRUGAL_INIT_UNIFORM:
        for (uint32_t i = from; i < end; i++) {
            if (i % 4 == 0) philox(seed, r->id, i / 4, random);
            w[i - from] = draw_uniform(random[i % 4], r->table);
        }
        break;
    case FRUGAL_INIT_NORMAL:
    case FRUGAL_INIT_DEFAULT: /* never: `initializes` leaves such rows as they are */
    default:
        for (uint32_t i = from; i < end; i++) {
            if (i % 4 == 0) philox(seed, r->id, i / 4 * 2, random);
            if (i % 4 == 0) philox(seed, r->id, i / 4 * 2 + 1, random + 4);
            w[i - from] = draw_normal(random[i % 4], random[4 + i % 4], r->table);
        }
        break;
    }
}

static void init_weights(const first_row *r) {
    const frugal_store *s = &r->f->store;
    unsigned char *w = frugal_row_at(s, r->row);
    float drawn[CHUNK_FLOATS];
    if (s->rows_as == FRUGAL_FP32) draw_elements(r, 0, s->dim, (float *)(void *)w);
    for (uint32_t from = 0, n; s->rows_as != FRUGAL_FP32 && from < s->dim; from += n) {
        n = LEAST(CHUNK_FLOATS, s->dim - from);
        draw_elements(r, from, from + n, drawn);
        frugal_convert(w + from * frugal_type_bytes(s->rows_as), s->rows_as, drawn, FRUGAL_FP32, n);
    }
}

/* The first value of the state of the table's rows. */
static float first_state(const frugal_table *table) {
    const frugal_optimizer *o = table->optimizer;
    return optimizers[o->kind].has_accumulator ? o->initial_accumulator : 0.0f;
}

typedef struct init_job {
    const frugal *f;
    uint64_t from, to;  /* rows */
    int weights, state; /* what is to be initialized */
    int zero;           /* the weights are zero already */
} init_job;

static int initializes(const init_job *job, frugal_init_kind kind) {
    return job->weights && kind != FRUGAL_INIT_DEFAULT && !(job->zero && kind == FRUGAL_INIT_ZERO);
}

static void *init_rows(void *argument) {
    init_job *job = argument;
    const frugal *f = job->f;
    float_mode saved = float_mode_enter();
    uint32_t t = 0;
    for (uint64_t row = job->from; row < job->to; row++) {
        while (row >= f->first_row[t + 1]) t++;
        const frugal_table *table = &f->desc.tables[t];
        float first = first_state(table);
        if (initializes(job, table->init))
            init_weights(&(first_row){f, table, row, frugal_id_of(&f->store, (uint32_t)row), first_id_of(f, t)});
        if (job->state && first != 0.0f)
            for (uint32_t i = 0; i < f->store.state_floats; i++) state_of(f, row)[i] = first;
    }
    float_mode_leave(saved);
    return NULL;
}

/* Our own memory and a file that was made are zero, and are initialized. The caller's matrix is initialized only for
 * tables that ask for it. A file that existed keeps its weights and its state. */
FRUGAL_INTERNAL void init_table(const frugal *f, int new_weights, int new_state, int kept) {
    init_job job = {.f = f, .weights = !kept, .state = new_state, .zero = new_weights};
    int needed = 0;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        needed |= initializes(&job, f->desc.tables[t].init);
        needed |= new_state && first_state(&f->desc.tables[t]) != 0.0f;
    }
    if (!needed) return;
    uint64_t rows = f->store.rows;
    uint32_t n = LEAST(f->desc.init_threads, 64);
    pthread_t threads[64];
    int started[64] = {0};
    init_job jobs[64];
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = job;
        jobs[i].from = rows * i / n, jobs[i].to = rows * (i + 1) / n;
        started[i] = i > 0 && !pthread_create(&threads[i], NULL, init_rows, &jobs[i]);
        if (i > 0 && !started[i]) init_rows(&jobs[i]); /* no thread is available: this one does it */
    }
    init_rows(&jobs[0]);
    for (uint32_t i = 1; i < n; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}
