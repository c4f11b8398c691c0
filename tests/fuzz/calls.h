/* calls.h - the contract of frugal.h as a small oracle: which statuses each call may return now, and what the table
 * then holds, by the sequential reference. For one thread that drives all devices.
 *
 * Where several things are wrong with a call any of their statuses will do, since the contract gives no order. Where
 * the time at which something is closed or flushed decides (AGAIN, BUSY), the oracle knows it exactly while nobody
 * flushes but this thread's waits (no workers, not deferred), and after a drain; else it allows both.
 *
 * FRUGAL_FUZZ_TRACE=1 shows every call and its status. */
#ifndef CALLS_H
#define CALLS_H

#include "frugal_seeing.h"
#include "src/device.h"
#include "fuzz.h"
#include "tests/reference.h"

enum { DEVICES = 3, MOST_KEYS = 40, MOST_DIM = 5, MOST_ROWS = 24, RING = 16 };

typedef struct batch {
    uint32_t n, rows[MOST_KEYS + 1]; /* over both tables; one more than any instance allows */
    int read_only;
} batch;

typedef struct calls {
    const uint8_t *bytes;
    size_t size, at;
    frugal *f;
    frugal_desc desc;
    frugal_table tables[2];
    test_counter counter;
    float *weights, *state; /* the caller's matrix, where there is one */
    reference ref;
    int attached[DEVICES], stopped, drained;
    uint64_t announced[DEVICES], looked_up[DEVICES], committed[DEVICES], all_committed;
    batch batches[DEVICES][RING]; /* by step mod RING */
    int fixed;                    /* the step at hand has its learning rate */
    float lr;
    int brings[DEVICES];
    float grads[DEVICES][MOST_KEYS * MOST_DIM]; /* of the step at hand */
    frugal_stats before;                        /* the call at hand */
} calls;

/* >>input - a letter is a call, the digits behind it are its choices; blanks and #-comments are for who reads it */

static int next_byte(calls *c) {
    while (c->at < c->size) {
        uint8_t byte = c->bytes[c->at++];
        if (byte == ' ' || byte == '\n') continue;
        if (byte != '#') return byte;
        while (c->at < c->size && c->bytes[c->at] != '\n') c->at++;
    }
    return -1;
}

/* From 0 to n - 1: '0' is 0. */
static uint32_t choose(calls *c, uint32_t n) {
    int byte = next_byte(c);
    return byte < 0 ? 0 : (uint8_t)(byte - '0') % n;
}

/* A small number that depends on nothing but its arguments. */
static float small_float(uint64_t seed, uint64_t i) {
    return (float)((int)(test_mix2(seed, i) % 257) - 128) / 64.0f;
}

/* >>statuses */

/* A set of statuses. */
static uint32_t set_of(frugal_status status) {
    return UINT32_C(1) << (2 - (int)status);
}

static uint32_t stopped_or(const calls *c, uint32_t otherwise) {
    return c->stopped ? set_of(FRUGAL_STOPPED) : otherwise;
}

static int flushes_alone(const calls *c) { /* nothing is closed or flushed but by this thread's waits and its help */
    return c->desc.workers == 0;
}

/* Before each call: forgets the last message, and notes what a refused call may not change. */
static void begin_call(calls *c) {
    frugal_fail(FRUGAL_OK, "%s", "");
    frugal_get_stats(c->f, &c->before);
}

/* The last message is this status's. */
static void check_message(const char *call, frugal_status status) {
    switch (status) {
#define NAMED(name, value, text)                                                                                       \
    case FRUGAL_##name:                                                                                                \
        if (strncmp(frugal_message(), "FRUGAL_" #name ": ", strlen("FRUGAL_" #name ": ")))                             \
            fail_msg("%s: status %d, and the message is '%s'", call, (int)status, frugal_message());                   \
        break;
        FRUGAL_STATUS_LIST(NAMED)
#undef NAMED
    case FRUGAL_STATUS_FORCE_INT:
    default:
        fail_msg("%s: status %d, which there is not", call, (int)status);
    }
}

/* After each call: the status is one of those that may be. 1 if it is OK. */
static int judge(const calls *c, const char *call, frugal_status status, uint32_t allowed) {
    frugal_stats now;
    if (getenv("FRUGAL_FUZZ_TRACE"))
        fprintf(stderr, "# byte %zu: %s: %d %s\n", c->at, call, (int)status,
                status == FRUGAL_OK ? "" : frugal_message());
    if (!(set_of(status) & allowed)) {
        fprintf(stderr, "at byte %zu: %s returned %d (%s), which may be:", c->at, call, (int)status, frugal_message());
        for (int s = FRUGAL_STOPPED; s >= FRUGAL_ERR_PROCESS; s--)
            if (set_of((frugal_status)s) & allowed) fprintf(stderr, " %d (%s)", s, frugal_strerror((frugal_status)s));
        fputc('\n', stderr);
        fail_msg("%s: a status that the contract does not know here", call);
    }
    if (status == FRUGAL_OK) return 1;
    if (status != FRUGAL_AGAIN) check_message(call, status);
    frugal_get_stats(c->f, &now);
    int flushes = !strcmp(call, "cancel") || !strcmp(call, "drain") || /* even so */
                  (!strcmp(call, "read_rows") && status == FRUGAL_ERR_BUSY);
    if (flushes_alone(c) && !flushes)
        if (memcmp(&now, &c->before, sizeof now)) fail_msg("%s: status %d, and something changed", call, (int)status);
    return 0;
}

/* >>state */

static uint64_t all_announced(const calls *c) { /* steps below are announced by all */
    uint64_t least = UINT64_MAX;
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->announced[d] < least) least = c->announced[d];
    return least;
}

static uint64_t furthest(const calls *c) {
    uint64_t most = 0;
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->announced[d] > most) most = c->announced[d];
    return most;
}

/* At the begin of the call; with workers it may be more by now. */
static uint64_t closed(const calls *c) {
    return c->desc.first_step + c->before.steps;
}

static batch *batch_of(calls *c, uint32_t device, uint64_t step) {
    return &c->batches[device][step % RING];
}

/* Has a device updated rows in place in a step that others have not updated? Then nothing may read the table. */
static int is_ahead(const calls *c) {
    int ahead = 0;
    for (uint32_t d = 0; d < c->desc.devices; d++) ahead |= c->committed[d] > c->all_committed && c->brings[d];
    return ahead && c->desc.alone != FRUGAL_ALONE_STAGED;
}

/* What a call that wants a drained instance returns: OK, BUSY, or one of both. `idle`: with nothing announced, too. */
static uint32_t drained_or_busy(const calls *c, int idle) {
    if (is_ahead(c) || (idle && furthest(c) > c->all_committed)) return set_of(FRUGAL_ERR_BUSY);
    if (c->before.kept_now > 0) /* a worker may do a recall now */
        return set_of(FRUGAL_ERR_BUSY) | (flushes_alone(c) ? 0 : set_of(FRUGAL_OK));
    if (c->drained) return set_of(FRUGAL_OK);
    if (flushes_alone(c) && !c->desc.defer) return set_of(closed(c) == c->all_committed ? FRUGAL_OK : FRUGAL_ERR_BUSY);
    return set_of(FRUGAL_OK) | set_of(FRUGAL_ERR_BUSY);
}

/* The last device has committed: the reference takes the step. */
static void finish_step(calls *c) {
    reference_batch batches[DEVICES];
    for (uint32_t d = 0; d < c->desc.devices; d++) {
        if (c->committed[d] == c->all_committed) return;
        const batch *b = batch_of(c, d, c->all_committed);
        batches[d] = (reference_batch){b->rows, b->n, c->brings[d] ? c->grads[d] : NULL};
    }
    reference_step(&c->ref, c->all_committed, c->lr, batches);
    c->all_committed++;
    c->fixed = 0, c->drained = 0;
}

/* >>rows */

static const float *reference_row(const calls *c, uint64_t row) {
    return c->ref.weights + row * c->desc.dim;
}

/* Reads and compares every row, or takes them as the reference's first ones. Nothing is refused. */
static void every_row(calls *c, int compare) {
    uint64_t keys[MOST_ROWS], first = 0;
    float weights[MOST_ROWS * MOST_DIM], state[MOST_ROWS * 2 * MOST_DIM];
    for (uint32_t t = 0; t < 2; first += c->tables[t++].rows) {
        uint64_t rows = c->tables[t].rows;
        size_t w = rows * c->desc.dim * sizeof(float), s = rows * c->ref.state_floats * sizeof(float);
        for (uint64_t i = 0; i < rows; i++) keys[i] = i;
        frugal_keys k = {.table = t, .keys = keys, .n = (uint32_t)rows};
        if (frugal_read_rows(c->f, &k, weights, state) != FRUGAL_OK) fail_msg("read_rows: %s", frugal_message());
        float *rw = c->ref.weights + first * c->desc.dim, *rs = c->ref.state + first * c->ref.state_floats;
        if (compare && memcmp(rw, weights, w)) fail_msg("weights of table %u differ from the reference", t);
        if (compare && memcmp(rs, state, s)) fail_msg("state of table %u differs from the reference", t);
        memcpy(rw, weights, w), memcpy(rs, state, s);
    }
}

/* >>open, close */

static void choose_settings(calls *c) {
    static const uint64_t firsts[] = {0, 0, 5, 62, UINT64_C(1) << 40, FRUGAL_MAX_FIRST_STEP};
    static const uint32_t lookaheads[] = {0, 1, 2, 3, 15};
    frugal_desc d = {.tables = c->tables, .n_tables = 2, .seed = 7, .stuck_seconds = 60, .init_threads = 1};
    d.devices = 1 + choose(c, DEVICES);
    d.lookahead = lookaheads[choose(c, 5)];
    uint32_t staging = choose(c, 6);
    d.staging = staging == 5 ? 63 - d.lookahead : staging;
    d.workers = choose(c, 16) == 1; /* a thread costs more than all the calls */
    d.defer = choose(c, 3) == 1;
    d.mode = choose(c, 3) == 1 ? FRUGAL_SYNC : FRUGAL_P2F;
    static const frugal_alone ways[] = {FRUGAL_ALONE_PLACE, FRUGAL_ALONE_STAGED, FRUGAL_ALONE_KEPT};
    uint32_t reduce = choose(c, 6);
    d.reduce = reduce % 2 ? FRUGAL_MEAN : FRUGAL_SUM;
    d.alone = ways[reduce / 2];
    d.optimizer.kind = (frugal_optimizer_kind)choose(c, 4);
    uint32_t rule = choose(c, 4);
    d.optimizer.weight_decay = rule % 2 ? 0.0625f : 0.0f;
    d.dim = 1 + choose(c, MOST_DIM);
    d.max_keys = 1 + choose(c, MOST_KEYS);
    d.first_step = firsts[choose(c, 6)];
    for (int t = 0; t < 2; t++)
        c->tables[t] =
            (frugal_table){.rows = 1 + choose(c, MOST_ROWS / 2), .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    uint32_t memory = choose(c, 12), own = memory % 4; /* 2: the caller's matrix, 3: and state */
    d.rows_as = (frugal_type)(memory / 4);
    if (d.rows_as != FRUGAL_FP32 && rule / 2) d.rounding = FRUGAL_NEAREST;
    if (own >= 2) d.weights = c->weights, d.weights_stride = MOST_DIM + 1;
    if (own == 3) d.state = c->state, d.state_stride = 2 * MOST_DIM;
    d.allocate = test_allocate, d.release = test_release, d.user = &c->counter;
    c->desc = d;
}

static void open_reference(calls *c) {
    const frugal_store *store = frugal_get_store(c->f);
    c->ref = (reference){.rows = c->tables[0].rows + c->tables[1].rows,
                         .dim = c->desc.dim,
                         .devices = c->desc.devices,
                         .optimizer = (int)c->desc.optimizer.kind,
                         .mean = c->desc.reduce == FRUGAL_MEAN,
                         .rows_as = (int)c->desc.rows_as,
                         .nearest = c->desc.rounding == FRUGAL_NEAREST,
                         .seed = c->desc.seed,
                         .eps = store->groups[0].optimizer.eps, /* defaults resolved: checked in test_settings.c */
                         .beta1 = store->groups[0].optimizer.beta1,
                         .beta2 = store->groups[0].optimizer.beta2,
                         .weight_decay = c->desc.optimizer.weight_decay};
    assert_true(reference_open(&c->ref, 0));
    every_row(c, 0);
}

static void open_instance(calls *c) {
    choose_settings(c);
    memset(c->weights, 0, sizeof(float) * MOST_ROWS * (MOST_DIM + 1));
    memset(c->state, 0, sizeof(float) * MOST_ROWS * 2 * MOST_DIM);
    if (frugal_open(&c->desc, &c->f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    c->stopped = c->fixed = 0, c->drained = 1, c->lr = 0;
    memset(c->attached, 0, sizeof c->attached);
    c->all_committed = c->desc.first_step;
    for (uint32_t d = 0; d < DEVICES; d++) c->announced[d] = c->looked_up[d] = c->committed[d] = c->all_committed;
    open_reference(c);
}

/* What was trained is the reference's, and all memory comes back. */
static void close_instance(calls *c) {
    if (!c->stopped && is_ahead(c)) {
        assert_int_equal(FRUGAL_ERR_BUSY, frugal_drain(c->f));
        assert_int_equal(FRUGAL_ERR_BUSY, frugal_verify(c->f));
    } else if (!c->stopped) {
        if (frugal_drain(c->f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        if (frugal_verify(c->f) != FRUGAL_OK) fail_msg("verify: %s", frugal_message());
        every_row(c, 1);
    }
    frugal_close(c->f);
    reference_close(&c->ref);
    assert_int_equal(0, c->counter.bytes_out);
    assert_int_equal(0, c->counter.blocks_out);
}

#endif /* CALLS_H */
