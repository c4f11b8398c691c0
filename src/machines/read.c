/* read.c - rows of any machine are read, between steps, by all machines together: each asks every other one for the
 * rows that it wants of it. In rounds, so that memory does not grow with what is asked for.
 */
#include "machines.h"

enum { ROUND_KEYS = 16384 };

typedef struct read_round { /* of all machines, what one asks of the others */
    uint64_t n[FRUGAL_MAX_MACHINES];
} read_round;

typedef struct reading {
    frugal *f;
    const row_reader *reader;
    size_t row;                           /* bytes of what is read of a row */
    uint64_t *ids, *asked;                /* [ROUND_KEYS]: by home; of the others, by machine */
    uint32_t *places;                     /* [ROUND_KEYS]: of ids, which key */
    uint64_t n[FRUGAL_MAX_MACHINES + 1];  /* where the ids of each machine begin */
    uint64_t of[FRUGAL_MAX_MACHINES + 1]; /* where those that each machine asks for begin */
    float *out, *in;                      /* rows that are given, and that come */
} reading;

static uint64_t id_at(const frugal *f, const frugal_keys *keys, uint32_t i) {
    return f->dealing->first_id[keys->table] + key_at(keys, i);
}

/* Sorts the ids of keys[from] to keys[end - 1] by home. */
static void sort_homes(reading *r, uint32_t from, uint32_t end) {
    const dealing *g = r->f->dealing;
    uint64_t next[FRUGAL_MAX_MACHINES];
    memset(r->n, 0, sizeof r->n);
    for (uint32_t i = from; i < end; i++) r->n[home_of_id(g, id_at(r->f, r->reader->keys, i)) + 1]++;
    for (uint32_t m = 0; m < g->machines; m++) next[m] = r->n[m], r->n[m + 1] += r->n[m];
    for (uint32_t i = from; i < end; i++) {
        uint64_t id = id_at(r->f, r->reader->keys, i), at = next[home_of_id(g, id)]++;
        r->ids[at] = id, r->places[at] = i;
    }
}

/* One exchange: out[i] bytes from `out` on, machine by machine, and as many for `in`. */
static frugal_status pass(reading *r, const uint64_t *out_at, const void *out, const uint64_t *in_at, void *in,
                          size_t bytes) {
    const dealing *g = r->f->dealing;
    meeting *now = &r->f->machines->meeting;
    const void *from[FRUGAL_MAX_MACHINES];
    void *to[FRUGAL_MAX_MACHINES];
    frugal_status status = enter_meeting(r->f, MEET_READ);
    if (status != FRUGAL_OK) return status;
    for (uint32_t i = 0; i < g->machines; i++) {
        now->out[i] = i == g->me ? 0 : (out_at[i + 1] - out_at[i]) * bytes;
        now->in[i] = i == g->me ? 0 : (in_at[i + 1] - in_at[i]) * bytes;
        from[i] = (const unsigned char *)out + out_at[i] * bytes, to[i] = (unsigned char *)in + in_at[i] * bytes;
    }
    status = meet(r->f, MEET_READ, from, to);
    pthread_mutex_unlock(&r->f->machines->meeting_lock);
    return status;
}

/* Reads n ids of this machine into `out`. */
static frugal_status read_ids(reading *r, const uint64_t *ids, uint64_t n, float *out) {
    uint32_t rows[1024];
    frugal_status status = FRUGAL_OK;
    for (uint64_t at = 0, k; at < n && status == FRUGAL_OK; at += k, out += k * r->row / sizeof *out) {
        k = LEAST(n - at, 1024);
        for (uint64_t i = 0; i < k; i++) {
            uint64_t number = ids[at + i] < r->f->dealing->ids ? dealt_number(r->f->dealing, ids[at + i]) : UINT64_MAX;
            if (number >= r->f->dealing->start[1])
                return frugal_fail(FRUGAL_ERR_PROCESS,
                                   "read_rows: another machine asks for row %llu, which is not here",
                                   (unsigned long long)ids[at + i]);
            rows[i] = (uint32_t)number;
        }
        status = r->reader->read(r->f, rows, (uint32_t)k, out);
    }
    return status;
}

/* Puts rows of machine i to where the caller wants them. */
static void put_rows(const reading *r, uint32_t i, const float *rows) {
    const frugal_store *s = &r->f->store;
    for (uint64_t at = r->n[i]; at < r->n[i + 1]; at++, rows += r->row / sizeof *rows) {
        uint64_t place = r->places[at];
        if (r->reader->weights) memcpy(r->reader->weights + place * s->dim, rows, s->dim * sizeof *rows);
        if (r->reader->state && s->state_floats)
            memcpy(r->reader->state + place * s->state_floats, rows + s->dim, s->state_floats * sizeof *rows);
    }
}

/* Gives the others what they ask for, and puts what comes. */
static frugal_status read_round_of(reading *r, const read_round *rounds) {
    const dealing *g = r->f->dealing;
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < g->machines; i++) {
        uint64_t n = i == g->me ? 0 : rounds[i].n[g->me];
        if (n > ROUND_KEYS)
            return frugal_fail(FRUGAL_ERR_PROCESS, "read_rows: machine %u asks for %llu rows at a time, of %d at most",
                               i, (unsigned long long)n, ROUND_KEYS);
        r->of[i + 1] = r->of[i] + n;
    }
    uint64_t mine = r->n[g->machines], bytes = (mine + r->of[g->machines]) * r->row;
    size_t asked = (r->of[g->machines] + 1) * sizeof *r->asked;
    r->asked = frugal_allocate(r->f, asked, CACHE_LINE);
    r->in = frugal_allocate(r->f, bytes + CACHE_LINE, CACHE_LINE);
    if (!r->asked || !r->in) status = fail_memory("rows that are read", bytes + asked);
    /* A machine that has no memory leaves the others waiting: they are told by its next call. */
    if (status == FRUGAL_OK) status = pass(r, r->n, r->ids, r->of, r->asked, sizeof *r->ids);
    if (status == FRUGAL_OK) {
        r->out = r->in + mine * r->row / sizeof *r->in;
        status = read_ids(r, r->asked, r->of[g->machines], r->out);
    }
    if (status == FRUGAL_OK)
        status = read_ids(r, r->ids + r->n[g->me], r->n[g->me + 1] - r->n[g->me],
                          r->in + r->n[g->me] * r->row / sizeof *r->in);
    if (status == FRUGAL_OK) status = pass(r, r->of, r->out, r->n, r->in, r->row);
    for (uint32_t i = 0; i < g->machines && status == FRUGAL_OK; i++)
        put_rows(r, i, r->in + r->n[i] * r->row / sizeof *r->in);
    frugal_free(r->f, r->asked, asked);
    frugal_free(r->f, r->in, bytes + CACHE_LINE);
    return status;
}

/* The keys are checked. */
FRUGAL_INTERNAL frugal_status read_dealt(frugal *f, const row_reader *reader) {
    const dealing *g = f->dealing;
    reading r = {.f = f, .reader = reader, .row = (f->store.dim + f->store.state_floats) * sizeof(float)};
    size_t bytes = ROUND_KEYS * (sizeof *r.ids + sizeof *r.places), round = g->machines * sizeof(read_round);
    frugal_status status = FRUGAL_OK;
    read_round mine, *all = frugal_allocate(f, round, CACHE_LINE);
    if (!(r.ids = frugal_allocate(f, bytes, CACHE_LINE)) || !all) status = fail_memory("rows that are read", bytes);
    if (r.ids) r.places = (uint32_t *)(void *)(r.ids + ROUND_KEYS);
    for (uint32_t from = 0, end, more = 1; more && status == FRUGAL_OK; from = end) {
        end = reader->keys->n - from > ROUND_KEYS ? from + ROUND_KEYS : reader->keys->n;
        sort_homes(&r, from, end);
        memset(&mine, 0, sizeof mine);
        for (uint32_t i = 0; i < g->machines; i++) mine.n[i] = r.n[i + 1] - r.n[i];
        status = meet_all(f, MEET_READ, &mine, sizeof mine, all);
        more = 0;
        for (uint32_t i = 0; i < g->machines && status == FRUGAL_OK; i++)
            for (uint32_t k = 0; k < g->machines; k++) more |= all[i].n[k] > 0;
        if (more && status == FRUGAL_OK) status = read_round_of(&r, all);
    }
    frugal_free(f, r.ids, bytes);
    frugal_free(f, all, round);
    return status;
}
