/* fuzz_calls.c - a sequence of the trainer's calls, of several devices from one thread, right and wrong ones: each
 * returns what the contract says (calls.h), a call that is refused has changed nothing, and rows and state are at every
 * look the bits of the sequential reference.
 *
 * The input is text. It begins with the settings, a digit each, in the order of choose_settings; then a letter is a
 * call (see `call`) and the digits behind it are its choices. Whatever else stands there is read as some call, too. */
#include "calls.h"

/* >>choices that several calls have */

/* Mostly a device that is there. */
static uint32_t choose_device(calls *c) {
    uint32_t digit = choose(c, 16);
    return digit == 15 ? c->desc.devices + choose(c, 3) * 100 : digit % c->desc.devices;
}

static uint64_t choose_step(calls *c, uint64_t right) {
    switch (choose(c, 16)) {
    case 1:
        return right + 1;
    case 2:
        return right - 1;
    case 3:
        return c->desc.first_step;
    case 4:
        return UINT64_MAX;
    default:
        return right;
    }
}

/* The status where the device is wrong, and whether it is. */
static uint32_t device_errors(const calls *c, uint32_t device) {
    return device >= c->desc.devices || !c->attached[device] ? set_of(FRUGAL_ERR_DEVICE) : 0;
}

typedef struct some_keys { /* for the calls that want keys of one table */
    frugal_keys keys;
    const frugal_keys *given; /* or NULL */
    uint64_t array[5];
    uint32_t first; /* row of the table's key 0 */
    uint32_t errors;
} some_keys;

static void choose_keys(calls *c, some_keys *k) {
    uint32_t kind = choose(c, 16), table = choose(c, 2), n = choose(c, 5), seed = choose(c, 256);
    *k = (some_keys){.keys = {.table = table, .keys = k->array, .n = n},
                     .given = &k->keys,
                     .first = table ? (uint32_t)c->tables[0].rows : 0};
    for (uint32_t i = 0; i < n; i++) k->array[i] = test_mix2(seed, i) % c->tables[table].rows;
    if (kind == 1) k->keys.table = 2 + choose(c, 2), k->errors = set_of(FRUGAL_ERR_TABLE);
    if (kind == 2 && n) k->array[n - 1] = c->tables[table].rows, k->errors = set_of(FRUGAL_ERR_KEY);
    if (kind == 3 && n) k->keys.keys = NULL, k->errors = set_of(FRUGAL_ERR_ARGUMENT);
    if (kind == 4) k->given = NULL, k->errors = set_of(FRUGAL_ERR_ARGUMENT);
}

/* >>announce */

typedef struct some_batch {
    batch rows;
    frugal_batch batch;
    const frugal_batch *given;
    frugal_keys segments[MOST_KEYS + 1];
    uint64_t keys[MOST_KEYS + 1];
    uint32_t errors;
} some_batch;

enum { SEEDED, LISTED, EQUAL, EMPTY, BAD_KEY, TOO_MANY, BAD_TABLE, NO_KEYS, NO_BATCH, NO_SEGMENTS, READ_ONLY, KINDS };

/* Rows over both tables into runs of one table each. */
static void cut_segments(const calls *c, some_batch *b) {
    b->batch = (frugal_batch){b->segments, 0, b->rows.read_only};
    for (uint32_t i = 0; i < b->rows.n; i++) {
        uint32_t table = b->rows.rows[i] >= c->tables[0].rows;
        b->keys[i] = b->rows.rows[i] - (table ? c->tables[0].rows : 0);
        frugal_keys *last = b->batch.n_segments ? &b->segments[b->batch.n_segments - 1] : NULL;
        if (!last || last->table != table)
            b->segments[b->batch.n_segments++] = (frugal_keys){.table = table, .keys = &b->keys[i], .n = 1};
        else
            last->n++;
    }
    b->given = &b->batch;
}

static void fill_batch(calls *c, some_batch *b, uint32_t kind, uint32_t n, uint32_t seed) {
    uint32_t rows = (uint32_t)c->ref.rows;
    memset(b, 0, sizeof *b);
    b->rows.n = kind == EMPTY ? 0 : kind == TOO_MANY ? c->desc.max_keys + 1 : n;
    b->rows.read_only = kind == READ_ONLY;
    for (uint32_t i = 0; i < b->rows.n; i++)
        b->rows.rows[i] = kind == LISTED  ? choose(c, rows)
                          : kind == EQUAL ? seed % rows
                                          : (uint32_t)(test_mix2(seed, i) % rows);
    cut_segments(c, b);
    if (kind == TOO_MANY) b->errors = set_of(FRUGAL_ERR_KEYS);
    if (kind == NO_BATCH) b->given = NULL, b->errors = set_of(FRUGAL_ERR_ARGUMENT);
    if (kind == NO_SEGMENTS) b->batch = (frugal_batch){NULL, 1, 0}, b->errors = set_of(FRUGAL_ERR_ARGUMENT);
    if (b->rows.n == 0) return;
    frugal_keys *last = &b->segments[b->batch.n_segments - 1];
    if (kind == BAD_KEY) b->keys[b->rows.n - 1] = seed % 2 ? UINT64_MAX : c->tables[last->table].rows;
    if (kind == BAD_KEY) b->errors = set_of(FRUGAL_ERR_KEY);
    if (kind == BAD_TABLE) last->table = 2, b->errors = set_of(FRUGAL_ERR_TABLE);
    if (kind == NO_KEYS) last->keys = NULL, b->errors = set_of(FRUGAL_ERR_ARGUMENT);
}

static void announce(calls *c, uint32_t device, uint64_t step, const some_batch *b, int wait) {
    uint32_t errors = b->errors | device_errors(c, device);
    if (device < c->desc.devices && step != c->announced[device]) errors |= set_of(FRUGAL_ERR_ORDER);
    begin_call(c);
    /* Everything committed can be closed by who waits; nothing else can. */
    int may = step <= c->all_committed + c->desc.lookahead;
    int now = may && step <= closed(c) + c->desc.lookahead;
    uint32_t allowed = set_of(FRUGAL_OK);
    if (!may || (!wait && !now && flushes_alone(c)))
        allowed = set_of(FRUGAL_AGAIN);
    else if (!wait && !now)
        allowed |= set_of(FRUGAL_AGAIN);
    if (errors)
        allowed = errors | (c->stopped ? set_of(FRUGAL_STOPPED) : 0);
    else
        allowed = stopped_or(c, allowed);
    if (!may) wait = 0; /* for ever, on one thread */
    frugal_status status = (wait ? frugal_announce : frugal_try_announce)(c->f, device, step, b->given);
    if (!judge(c, "announce", status, allowed)) return;
    *batch_of(c, device, step) = b->rows;
    c->announced[device]++;
}

static void call_announce(calls *c, int wait) {
    some_batch b;
    uint32_t device = choose_device(c);
    uint64_t step = choose_step(c, device < c->desc.devices ? c->announced[device] : c->all_committed);
    uint32_t digit = choose(c, 16), kind = digit < KINDS ? digit : SEEDED;
    uint32_t n = choose(c, c->desc.max_keys + 1), seed = choose(c, 256);
    fill_batch(c, &b, kind, n, seed);
    announce(c, device, step, &b, wait);
}

/* >>lookup */

static void check_rows(calls *c, const batch *b, const void *rows, frugal_type as) {
    for (uint32_t i = 0; i < b->n * c->desc.dim; i++) {
        uint32_t p = i / c->desc.dim;
        float known = reference_round((int)as, reference_row(c, b->rows[p])[i % c->desc.dim], -1);
        float found = reference_load((int)as, rows, i);
        if (memcmp(&known, &found, sizeof known))
            fail_msg("at byte %zu: the row at position %u, row %u, is not the reference's", c->at, p, b->rows[p]);
    }
}

/* The records' structure is the batch's; `rows`: and the block holds their rows. */
static void check_records(calls *c, const batch *b, const frugal_records *r, int rows) {
    assert_true(r->n == b->n && r->stride >= c->desc.dim && r->start[0] == 0 && r->start[r->n_unique] == b->n);
    for (uint32_t i = 0; i < b->n; i++) assert_true(r->rows[r->record_of[i]] == b->rows[i]);
    for (uint32_t u = 0; u < r->n_unique; u++) {
        assert_true(r->start[u] < r->start[u + 1] && (u == 0 || r->rows[u] > r->rows[u - 1]));
        for (uint32_t k = r->start[u]; k < r->start[u + 1]; k++) {
            assert_true(r->record_of[r->order[k]] == u);
            assert_true(k == r->start[u] || r->order[k] > r->order[k - 1]);
        }
        const float *found = r->block + u * r->stride;
        if (rows) assert_true(!memcmp(found, reference_row(c, r->rows[u]), c->desc.dim * sizeof(float)));
    }
}

/* `how` modulo 3: into an array, the block, or an array again; the type of the array is how / 3, of which 3 is none. */
static void lookup(calls *c, uint32_t device, uint64_t step, uint32_t how, int wait) {
    int in_place = how % 3 == 1;
    const frugal_type as = (frugal_type)(how / 3);
    uint32_t errors = device_errors(c, device), allowed = set_of(FRUGAL_OK);
    const batch *b = device < c->desc.devices ? batch_of(c, device, step) : NULL;
    if (b && step != c->committed[device]) errors |= set_of(FRUGAL_ERR_ORDER);
    if (as > FRUGAL_FP16 || (as != FRUGAL_FP32 && in_place)) errors |= set_of(FRUGAL_ERR_ARGUMENT);
    begin_call(c);
    int may = step <= c->all_committed && all_announced(c) > step;
    if (!may || (!wait && !c->drained && flushes_alone(c) && closed(c) < step))
        allowed = set_of(FRUGAL_AGAIN);
    else if (!wait)
        allowed |= set_of(FRUGAL_AGAIN); /* the gate waits for the plan, too; this form does not help */
    if (errors)
        allowed = errors | (c->stopped ? set_of(FRUGAL_STOPPED) : 0);
    else
        allowed = stopped_or(c, allowed);
    size_t floats = b && allowed & set_of(FRUGAL_OK) ? (size_t)b->n * c->desc.dim : 1;
    size_t bytes = floats * (as == FRUGAL_FP32 ? sizeof(float) : sizeof(uint16_t));
    void *rows = in_place ? NULL : malloc(bytes + !bytes);
    if (rows) memset(rows, 0x5a, bytes);
    const frugal_row_array to = {.rows = rows, .no_wait = !wait || !may, .as = as};
    frugal_status status = frugal_lookup_into(c->f, device, step, &to);
    if (judge(c, "lookup", status, allowed)) {
        c->looked_up[device] = step + 1;
        frugal_records r;
        if (frugal_get_records(c->f, device, step, &r) != FRUGAL_OK) fail_msg("get_records: %s", frugal_message());
        check_records(c, b, &r, in_place);
        if (rows) check_rows(c, b, rows, as);
    } else
        for (size_t i = 0; rows && i < bytes; i++) assert_true(((uint8_t *)rows)[i] == 0x5a);
    free(rows);
}

static void call_lookup(calls *c, int wait) {
    uint32_t device = choose_device(c);
    uint64_t step = choose_step(c, device < c->desc.devices ? c->committed[device] : c->all_committed);
    lookup(c, device, step, choose(c, 12), wait);
}

/* Between lookup and update of the step? */
static uint32_t looked_up_errors(const calls *c, uint32_t device, uint64_t step) {
    uint32_t errors = device_errors(c, device);
    if (device >= c->desc.devices) return errors;
    return errors | (step != c->committed[device] || c->looked_up[device] != step + 1 ? set_of(FRUGAL_ERR_ORDER) : 0);
}

static void call_get_records(calls *c) {
    frugal_records r = {.n = 77};
    uint32_t device = choose_device(c);
    uint64_t step = choose_step(c, device < c->desc.devices ? c->committed[device] : c->all_committed);
    int nowhere = choose(c, 8) == 7;
    uint32_t errors = looked_up_errors(c, device, step) | (nowhere ? set_of(FRUGAL_ERR_ARGUMENT) : 0);
    begin_call(c);
    frugal_status status = frugal_get_records(c->f, device, step, nowhere ? NULL : &r);
    if (judge(c, "get_records", status, errors ? errors : stopped_or(c, set_of(FRUGAL_OK))))
        check_records(c, batch_of(c, device, step), &r, 0);
    else
        assert_true(r.n == 77);
}

/* >>update */

enum { GRADIENTS, NOTHING, RECORDS, OTHER_LR, BOTH, EMPTY_STRUCT, IN_BF16, IN_FP16, OF_NO_TYPE, FORMS };

/* Writes the summed gradients where get_records says, if it may. */
static void write_records(calls *c, uint32_t device, uint64_t step, const float *grads) {
    frugal_records r;
    if (looked_up_errors(c, device, step) || c->stopped) return;
    if (frugal_get_records(c->f, device, step, &r) != FRUGAL_OK) fail_msg("get_records: %s", frugal_message());
    frugal_sum_gradients(&r, grads, c->desc.dim, c->desc.dim);
}

static void update(calls *c, uint32_t device, uint64_t step, uint32_t form, float lr, uint32_t seed) {
    uint32_t errors = looked_up_errors(c, device, step);
    const batch *b = batch_of(c, device % DEVICES, step);
    int brings = form != NOTHING && form != EMPTY_STRUCT;
    frugal_type as = form == IN_BF16 ? FRUGAL_BF16 : form == IN_FP16 ? FRUGAL_FP16 : FRUGAL_FP32;
    float grads[MOST_KEYS * MOST_DIM], array[MOST_KEYS * MOST_DIM];
    for (uint32_t i = 0; i < MOST_KEYS * MOST_DIM; i++) {
        grads[i] = reference_round((int)as, small_float(seed, i) / (as == FRUGAL_FP32 ? 1 : 3), -1);
        reference_store((int)as, array, i, grads[i]);
    }
    frugal_gradients g = {
        .grads = form == RECORDS || !brings ? NULL : array, .records = form == RECORDS || form == BOTH, .lr = lr};
    g.as = form == OF_NO_TYPE ? (frugal_type)5 : as;
    if (form == OF_NO_TYPE) errors |= set_of(FRUGAL_ERR_ARGUMENT);
    if (form == BOTH) errors |= set_of(FRUGAL_ERR_ARGUMENT);
    if (!errors && brings && (b->read_only || lr < 0)) errors |= set_of(FRUGAL_ERR_ARGUMENT);
    if (!errors && brings && c->fixed && c->lr != lr) errors |= set_of(FRUGAL_ERR_SETTINGS);
    if (form == RECORDS && !errors) write_records(c, device, step, grads);
    begin_call(c);
    uint32_t allowed = errors ? errors | (c->stopped ? set_of(FRUGAL_STOPPED) : 0) : stopped_or(c, set_of(FRUGAL_OK));
    frugal_status status = frugal_update(c->f, device, step, form == NOTHING ? NULL : &g);
    if (!judge(c, "update", status, allowed)) return;
    if (brings) c->fixed = 1, c->lr = lr;
    c->brings[device] = brings;
    memcpy(c->grads[device], grads, sizeof grads);
    c->committed[device]++;
    finish_step(c);
}

static void call_update(calls *c) {
    static const float rates[] = {0.125f, 0.5f, 0.0f, -0.25f};
    uint32_t device = choose_device(c);
    uint64_t step = choose_step(c, device < c->desc.devices ? c->committed[device] : c->all_committed);
    uint32_t digit = choose(c, 16), form = digit < FORMS ? digit : GRADIENTS;
    float lr = rates[choose(c, 4)];
    if (c->fixed) lr = form == OTHER_LR ? c->lr + 1 : c->lr;
    update(c, device, step, form, lr, choose(c, 256));
}

/* A whole step, as it should be; nothing is done by halves where a call may not. */
static void call_train(calls *c) {
    some_batch b;
    uint64_t step = c->all_committed;
    uint32_t seed = choose(c, 256), n = choose(c, c->desc.max_keys + 1);
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (!c->attached[d]) return;
    for (uint32_t d = 0; d < c->desc.devices; d++) {
        fill_batch(c, &b, SEEDED, n, seed + d);
        if (c->announced[d] == step) announce(c, d, step, &b, 1);
    }
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->committed[d] == step) lookup(c, d, step, 0, 1);
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->committed[d] == step)
            update(c, d, step, batch_of(c, d, step)->read_only ? NOTHING : GRADIENTS, c->fixed ? c->lr : 0.25f,
                   seed + d);
}

/* >>cancel, drain, help, stop */

static void call_cancel(calls *c) {
    uint64_t step = c->all_committed + choose(c, c->desc.lookahead + 4) - choose(c, 2);
    uint32_t errors = step > furthest(c) ? set_of(FRUGAL_ERR_ORDER) : 0;
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->looked_up[d] > step) errors |= set_of(FRUGAL_ERR_ORDER);
    begin_call(c);
    uint32_t allowed = errors ? errors : set_of(FRUGAL_OK);
    if (!judge(c, "cancel", frugal_cancel(c->f, step), allowed | (c->stopped ? set_of(FRUGAL_STOPPED) : 0))) return;
    c->drained = 1;
    for (uint32_t d = 0; d < c->desc.devices; d++)
        if (c->announced[d] > step) c->announced[d] = step;
}

static void call_drain(calls *c) {
    begin_call(c);
    uint32_t allowed = set_of(is_ahead(c) ? FRUGAL_ERR_BUSY : FRUGAL_OK) | (c->stopped ? set_of(FRUGAL_STOPPED) : 0);
    frugal_status status = frugal_drain(c->f);
    if (judge(c, "drain", status, allowed) || status == FRUGAL_ERR_BUSY) c->drained = 1; /* BUSY, too, has flushed */
}

static void call_help(calls *c, int to_the_end) {
    int helped;
    do {
        helped = frugal_help(c->f);
        assert_true(helped == 0 || helped == 1);
        if (c->stopped) assert_int_equal(0, helped);
    } while (helped && to_the_end);
    if (!helped && flushes_alone(c) && !c->stopped) c->drained = 1; /* nobody else has any of it in hands */
}

static void call_stats(calls *c) {
    begin_call(c);
    const frugal_stats *s = &c->before;
    int64_t queued = 0;
    for (int i = 0; i < 64; i++) queued += s->queue_depth[i];
    assert_true(closed(c) <= c->all_committed && s->hits + s->misses == s->unique_rows && s->unique_rows <= s->keys);
    assert_true(s->staging_depth >= 1 && s->staging_in_use <= s->staging_depth);
    if (flushes_alone(c)) assert_true(queued >= 0 && queued <= (int64_t)c->ref.rows);
    if (c->drained) assert_true(queued == 0 && closed(c) == c->all_committed);
    if (c->drained && c->desc.devices == 1) assert_true(s->shared == 0 && s->in_place <= s->alone);
    if (c->drained && c->desc.devices == 1 && c->desc.alone != FRUGAL_ALONE_STAGED) assert_true(s->flushed == 0);
}

/* >>rows */

static void call_read(calls *c) {
    some_keys k;
    float weights[5 * MOST_DIM], state[5 * 2 * MOST_DIM];
    choose_keys(c, &k);
    uint32_t without = choose(c, 4), floats = c->desc.dim, state_floats = c->ref.state_floats;
    memset(weights, 0x5a, sizeof weights), memset(state, 0x5a, sizeof state);
    begin_call(c);
    uint32_t allowed = k.errors ? k.errors : set_of(is_ahead(c) ? FRUGAL_ERR_BUSY : FRUGAL_OK);
    if (c->stopped) allowed |= set_of(FRUGAL_STOPPED);
    frugal_status status = frugal_read_rows(c->f, k.given, without == 1 ? NULL : weights, without == 2 ? NULL : state);
    int read = judge(c, "read_rows", status, allowed);
    for (uint32_t i = 0; i < k.keys.n && read; i++) {
        uint64_t row = k.first + k.array[i];
        if (without != 1) assert_true(!memcmp(weights + i * floats, reference_row(c, row), floats * sizeof(float)));
        if (without != 2)
            assert_true(
                !memcmp(state + i * state_floats, c->ref.state + row * state_floats, state_floats * sizeof(float)));
    }
    for (size_t i = 0; i < sizeof weights && !read && !c->stopped; i++) assert_true(((uint8_t *)weights)[i] == 0x5a);
}

static void call_write(calls *c) {
    some_keys k;
    float weights[5 * MOST_DIM], state[5 * 2 * MOST_DIM];
    choose_keys(c, &k);
    uint32_t without = choose(c, 4), seed = choose(c, 256), dim = c->desc.dim, state_floats = c->ref.state_floats;
    for (uint32_t i = 0; i < 5 * MOST_DIM; i++) weights[i] = small_float(seed, i) / (seed % 2 ? 1 : 3);
    for (uint32_t i = 0; i < 5 * 2 * MOST_DIM; i++) state[i] = fabsf(small_float(seed, 100 + i));
    begin_call(c);
    uint32_t allowed = drained_or_busy(c, 1);
    if (k.errors) allowed = k.errors | (allowed & set_of(FRUGAL_ERR_BUSY));
    frugal_status status = frugal_write_rows(c->f, k.given, without == 1 ? NULL : weights, without == 2 ? NULL : state);
    if (!judge(c, "write_rows", status, allowed)) return;
    for (uint32_t i = 0; i < k.keys.n; i++) {
        uint64_t row = k.first + k.array[i];
        for (uint32_t j = 0; j < dim && without != 1; j++)
            c->ref.weights[row * dim + j] = reference_round(c->ref.rows_as, weights[i * dim + j], -1);
        if (without != 2)
            memcpy(c->ref.state + row * state_floats, state + i * state_floats, state_floats * sizeof(float));
    }
}

static void call_view(calls *c) {
    const void *weights = NULL;
    uint64_t stride = 0;
    uint32_t table = choose(c, 3), nowhere = choose(c, 8);
    uint32_t errors = (table == 2 ? set_of(FRUGAL_ERR_TABLE) : 0) | (nowhere >= 6 ? set_of(FRUGAL_ERR_ARGUMENT) : 0);
    begin_call(c);
    uint32_t allowed = drained_or_busy(c, 0);
    if (errors) allowed = errors | (allowed & set_of(FRUGAL_ERR_BUSY));
    frugal_status status = frugal_view(c->f, table, nowhere == 6 ? NULL : &weights, nowhere == 7 ? NULL : &stride);
    if (!judge(c, "view", status, allowed)) {
        assert_true(!weights && !stride);
        return;
    }
    assert_true(stride >= c->desc.dim);
    for (uint64_t i = 0; i < c->tables[table].rows * c->desc.dim; i++) {
        uint64_t row = i / c->desc.dim, column = i % c->desc.dim;
        float found = reference_load(c->ref.rows_as, weights, row * stride + column);
        assert_true(!memcmp(&found, reference_row(c, (table ? c->tables[0].rows : 0) + row) + column, sizeof found));
    }
}

static void call_verify(calls *c) {
    begin_call(c);
    judge(c, "verify", frugal_verify(c->f), drained_or_busy(c, 0));
}

static void call_release(calls *c) {
    begin_call(c);
    judge(c, "release_holders", frugal_release_holders(c->f), drained_or_busy(c, 1));
}

static void call_preload(calls *c) {
    some_keys k;
    uint32_t device = choose_device(c);
    choose_keys(c, &k);
    uint32_t errors = k.errors | device_errors(c, device);
    begin_call(c);
    uint32_t allowed = drained_or_busy(c, 1);
    if (errors) allowed = errors | (allowed & set_of(FRUGAL_ERR_BUSY));
    judge(c, "preload", frugal_preload(c->f, device, k.given), allowed);
}

/* >>attach, open */

static void attach(calls *c, uint32_t device, uint32_t digit) {
    frugal_cpu_desc cache = {
        .cache_rows = digit % 4 * 8, .policy = (frugal_cache_policy)(digit / 4 % 3), .threads = digit % 3};
    uint32_t errors = device >= c->desc.devices || c->attached[device] ? set_of(FRUGAL_ERR_DEVICE) : 0;
    if (digit == 13) cache.policy = (frugal_cache_policy)3, errors |= set_of(FRUGAL_ERR_ARGUMENT);
    if (digit == 14) cache.cache_rows = UINT64_C(1) << 32, errors |= set_of(FRUGAL_ERR_LIMIT);
    if (digit == 15) cache.threads = 65, errors |= set_of(FRUGAL_ERR_LIMIT);
    begin_call(c);
    frugal_status status = frugal_cpu_attach(c->f, device, digit == 12 ? NULL : &cache);
    if (judge(c, "cpu_attach", status, errors ? errors : set_of(FRUGAL_OK))) c->attached[device] = 1;
}

/* Settings spoilt in one place: refused with that place's status, and what is left can be closed. */
static void call_open_badly(calls *c) {
    frugal_desc d = c->desc;
    frugal_table tables[2] = {c->tables[0], c->tables[1]};
    frugal *f = NULL;
    frugal_status wanted = FRUGAL_ERR_ARGUMENT;
    float one = 0;
    d.tables = tables, d.weights = d.state = NULL, d.workers = 0;
    switch (choose(c, 20)) {
        /* clang-format off */
    case 0: d.n_tables = 0; break;
    case 1: d.dim = 65537; break;
    case 2: d.max_keys = 0; break;
    case 3: tables[1].rows = 0; break;
    case 4: tables[1].rows = FRUGAL_MAX_ROWS, wanted = FRUGAL_ERR_LIMIT; break;
    case 5: tables[0].init = FRUGAL_INIT_COPY; break;
    case 6: d.first_step = FRUGAL_MAX_FIRST_STEP + 1, wanted = FRUGAL_ERR_LIMIT; break;
    case 7: d.lookahead = 16, wanted = FRUGAL_ERR_LOOKAHEAD; break;
    case 8: d.staging = 64 - d.lookahead, wanted = FRUGAL_ERR_LOOKAHEAD; break;
    case 9: d.devices = 255, wanted = FRUGAL_ERR_LIMIT; break;
    case 10: d.max_keys = FRUGAL_MAX_KEYS + 1, wanted = FRUGAL_ERR_LIMIT; break;
    case 11: d.mode = (frugal_mode)2; break;
    case 12: d.weights = &one, d.file = "nowhere"; break;
    case 13: d.optimizer.beta1 = 1; break;
    case 14: d.optimizer.eps = NAN; break;
    case 15: d.rows_as = (frugal_type)3; break;
    case 16: d.rounding = (frugal_rounding)2; break;
    case 17: d.rows_as = FRUGAL_FP32, d.rounding = FRUGAL_NEAREST; break;
    default: d.stuck_seconds = NAN; break;
        /* clang-format on */
    }
    begin_call(c);
    judge(c, "open", frugal_open(&d, &f), set_of(wanted));
    frugal_close(f);
}

/* Without an instance every call says so. */
static void call_nothing(calls *c) {
    frugal_batch empty = {0};
    frugal_keys none = {0};
    begin_call(c);
    uint32_t wanted = set_of(FRUGAL_ERR_ARGUMENT);
    judge(c, "announce", frugal_announce(NULL, 0, 0, &empty), wanted);
    judge(c, "lookup", frugal_lookup(NULL, 0, 0, NULL), wanted);
    judge(c, "update", frugal_update(NULL, 0, 0, NULL), wanted);
    judge(c, "drain", frugal_drain(NULL), wanted);
    judge(c, "read_rows", frugal_read_rows(NULL, &none, NULL, NULL), wanted);
    judge(c, "cpu_attach", frugal_cpu_attach(NULL, 0, NULL), wanted);
    judge(c, "open", frugal_open(NULL, NULL), wanted);
    frugal_stop(NULL);
    assert_int_equal(0, frugal_help(NULL));
}

/* The devices with caches as chosen; '<' leaves the device for a later attach. */
static void begin(calls *c) {
    open_instance(c);
    for (uint32_t d = 0; d < c->desc.devices; d++) {
        uint32_t digit = choose(c, 16);
        if (digit != 12) attach(c, d, digit % 12);
    }
}

static void call(calls *c, char letter) {
    switch (letter) {
        /* clang-format off */
    case 'a': call_announce(c, 0); break;
    case 'A': call_announce(c, 1); break;
    case 'l': call_lookup(c, 0); break;
    case 'L': call_lookup(c, 1); break;
    case 'g': call_get_records(c); break;
    case 'u': call_update(c); break;
    case 'T': call_train(c); break;
    case 'c': call_cancel(c); break;
    case 'd': call_drain(c); break;
    case 'h': call_help(c, 0); break;
    case 'H': call_help(c, 1); break;
    case 's': call_stats(c); break;
    case 'r': call_read(c); break;
    case 'w': call_write(c); break;
    case 'v': call_view(c); break;
    case 'V': call_verify(c); break;
    case 'R': call_release(c); break;
    case 'p': call_preload(c); break;
    case 'k': attach(c, choose_device(c), choose(c, 16)); break;
    case 'S': frugal_stop(c->f), c->stopped = 1; break;
    case 'o': close_instance(c), begin(c); break;
    case 'O': call_open_badly(c); break;
    default: call_nothing(c); break;
        /* clang-format on */
    }
}

const unsigned fuzz_inputs = 3000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* Other bytes are some letter, too: those that lead somewhere more often than those that end it. */
    static const char letters[] = "aaaaaAAAAAllllLLLLuuuuuuuuuTTTTTgghhhHddccrrwwvvVVRppksSoOn";
    calls *c = calloc(1, sizeof *c);
    c->bytes = data, c->size = size;
    c->weights = malloc(sizeof(float) * MOST_ROWS * (MOST_DIM + 1));
    c->state = malloc(sizeof(float) * MOST_ROWS * 2 * MOST_DIM);
    begin(c);
    for (int byte, n = 0; n < 1000 && (byte = next_byte(c)) >= 0; n++)
        call(c, byte && strchr(letters, byte) ? (char)byte : letters[(unsigned)byte % (sizeof letters - 1)]);
    close_instance(c);
    free(c->weights), free(c->state), free(c);
    return 0;
}
