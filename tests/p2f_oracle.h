/* p2f_oracle.h - random protocols on the state machine of frugal_p2f.h, one call at a time, against an oracle that says
 * what every call must answer: which device may announce, which gates are open, when each row is due and which device
 * holds it.
 *
 * The oracle also keeps what the machine never sees: the version of each host row and of each cached copy, so that
 * "valid" is checked against the actual data (a copy called valid has the version of the host row at the gate), and not
 * only against a second implementation of the rule.
 *
 * Batches are in place at random. Of such a batch the oracle says which rows are alone, and that its device writes them
 * between gate and commit: then their version and their host row rise at the commit, and they never are dirty. Some
 * devices keep such updates in their copies: then the version rises, and the host row does not before they write it
 * back. A lookup that finds a host row behind its version, other than by what the device itself keeps, has missed a
 * recall.
 *
 * Some worlds of one device have no words, until they are asked to. Then all rows are alone and all copies current, a
 * commit closes its step, and a caller that writes a row drops its copy.
 *
 * Include after the implementation of frugal_p2f.h and after cmocka.h or fuzz.h, whose checks it uses. */
#ifndef P2F_ORACLE_H
#define P2F_ORACLE_H

#include "support.h"

enum { MAX_DEVICES = 4, MAX_ROWS = 24, RING = 64, EVERYONE = -1, NOBODY = -2 };

typedef struct batch {
    uint32_t n, rows[MAX_ROWS];
    uint8_t valid[MAX_ROWS];
    int read_only, in_place, brings;
} batch;

typedef struct row {
    int dirty, busy;
    uint64_t due, updated; /* where dirty */
    int holder;
    int kept;                     /* the device whose copy has updates that the host row lacks; NOBODY */
    uint64_t version;             /* updates committed so far */
    uint64_t flushed;             /* updates in the host row */
    uint64_t copies[MAX_DEVICES]; /* version of the cached copy; UINT64_MAX: none */
} row;

typedef struct world {
    frugal_p2f *p;
    frugal_p2f_desc desc;
    test_random random;
    unsigned in_place;              /* percent of the batches */
    int wordless;                   /* rows have no words: all batches are in place */
    int keeps[MAX_DEVICES];         /* all its batches are in place, and it may keep the updates */
    uint64_t recalled[MAX_DEVICES]; /* steps whose recalls it has done, or has been asked for */
    int recall_all[RING];           /* by step: it was cancelled, so all that is kept is recalled */
    int from[RING][MAX_ROWS];       /* by step: the device that the row is taken from; NOBODY */
    uint64_t announced[MAX_DEVICES], committed[MAX_DEVICES];
    uint64_t sealed, planned, all_committed, closed;
    batch batches[MAX_DEVICES][RING]; /* by step mod RING */
    row rows[MAX_ROWS];
    frugal_p2f_work held[MAX_ROWS]; /* taken, not done */
    uint32_t n_held;
    uint64_t ids;                                /* in the queue, stale ones counted */
    frugal_p2f_progress touched;                 /* alone, shared, in_place */
    uint64_t kept, recalls, needless, evictions; /* updates; recalls of a device; recalled rows that it did not keep */
    uint64_t switches;                           /* to words */
    uint64_t flushes, cancels, moves, valids, agains, waits; /* waits: gates that wait for nothing but the plan */
} world;

static batch *batch_of(world *w, uint32_t device, uint64_t step) {
    return &w->batches[device][step % RING];
}

static int position(const batch *b, uint32_t row) {
    for (uint32_t i = 0; i < b->n; i++)
        if (b->rows[i] == row) return (int)i;
    return -1;
}

/* Is `row` read at `step`, as far as planners have come? */
static int is_read(world *w, uint32_t row, uint64_t step) {
    for (uint32_t d = 0; d < w->desc.devices; d++)
        if (w->planned > step && position(batch_of(w, d, step), row) >= 0) return 1;
    return 0;
}

/* Devices that have announced `row` for a step that is sealed; *device: the last of them. */
static uint32_t touchers(world *w, uint32_t row, uint64_t step, uint32_t *device) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < w->desc.devices; d++)
        if (position(batch_of(w, d, step), row) >= 0) n++, *device = d;
    return n;
}

/* Does its device alone update the row at a step that is sealed? */
static int is_written_in_place(world *w, uint32_t row, uint64_t step) {
    uint32_t device = 0;
    return touchers(w, row, step, &device) == 1 && batch_of(w, device, step)->in_place;
}

/* Does the gate of the step wait for a plan? */
static int waits_for_plan(const world *w, uint64_t step) {
    return w->sealed > step && w->planned <= step;
}

static uint64_t due_at(const world *w, uint64_t step) {
    uint64_t n = 0;
    for (uint32_t r = 0; r < w->desc.rows; r++) n += w->rows[r].dirty && w->rows[r].due == step;
    return n;
}

/* Are rows recalled from the device for a step that is planned? */
static int is_recalled(world *w, uint32_t device, uint64_t step) {
    int any = w->recall_all[step % RING];
    for (uint32_t r = 0; r < w->desc.rows; r++) any |= w->from[step % RING][r] == (int)device;
    return w->desc.recalls && any;
}

/* Is the step planned, and are recalls of the device for it not done? */
static int waits_for_recall(world *w, uint32_t device, uint64_t step) {
    return w->planned > step && w->recalled[device] <= step && is_recalled(w, device, step);
}

static uint32_t recalls_left(world *w, uint64_t step) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < w->desc.devices; d++) n += (uint32_t)waits_for_recall(w, d, step);
    return n;
}

static int gate_is_open(world *w, uint64_t step) {
    return w->closed >= step && w->planned > step && recalls_left(w, step) == 0 && due_at(w, step) == 0;
}

static uint64_t furthest(const world *w) {
    uint64_t most = 0;
    for (uint32_t d = 0; d < w->desc.devices; d++)
        if (w->announced[d] > most) most = w->announced[d];
    return most;
}

/* Ids in a slot of the queue. */
static uint64_t ids_in(const world *w, uint32_t slot) {
    const frugal_pq *q = frugal_priv_queue(w->p);
    uint64_t n = 0;
    for (uint32_t at = (uint32_t)frugal_load_relaxed(&q->slots[slot].head); at != 0;) {
        const frugal_priv_pq_page *page = frugal_priv_pq_page_at(q, at - 1);
        n += page->count;
        at = frugal_load_relaxed(&page->next);
    }
    return n;
}

/* >>plan */

static void plan_row(world *w, uint64_t step, uint32_t row_) {
    row *r = &w->rows[row_];
    uint32_t n = 0, writers = 0, others = 0, writer = 0;
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        batch *b = batch_of(w, d, step);
        int i = position(b, row_);
        if (i < 0) continue;
        b->valid[i] = w->wordless || r->holder == EVERYONE || r->holder == (int)d;
        w->valids += b->valid[i];
        n++, others += r->holder != (int)d;
        if (!b->read_only) writers++, writer = d;
    }
    if (n == 0 || w->wordless) return;
    if (r->holder >= 0 && others) w->from[step % RING][row_] = r->holder;
    if (writers > 0) r->holder = writers == 1 ? (int)writer : NOBODY;
    if (!r->dirty || r->due <= step) return;
    r->due = step;
    w->ids += !r->busy;
    w->moves++;
}

static void plan_step(world *w) {
    for (uint32_t r = 0; r < w->desc.rows; r++) {
        w->from[w->planned % RING][r] = NOBODY;
        plan_row(w, w->planned, r);
    }
    w->planned++;
}

/* What the planner of the one piece of a step finds: all records of all devices. */
static void check_planned(world *w, const frugal_p2f_piece *piece) {
    uint32_t first = 1, all = 0;
    assert_true(piece->step == w->planned && piece->first == 0 && piece->number == 0);
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        assert_int_equal(frugal_p2f_range(w->p, piece, d, &first), batch_of(w, d, piece->step)->n);
        assert_int_equal(first, 0);
        all += batch_of(w, d, piece->step)->n;
    }
    assert_int_equal(piece->n, all);
    assert_int_equal(frugal_p2f_plan(w->p), 0); /* the next step waits for this one */
}

/* What all have once a step is planned: whose copies are current, and which rows are taken from whom. */
static void check_plan(world *w, uint64_t step) {
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        const batch *b = batch_of(w, d, step);
        const uint32_t *rows = NULL;
        uint64_t bits = 0;
        uint32_t at = 0, n = w->desc.taken || w->desc.recalls ? frugal_p2f_taken(w->p, d, step, &rows) : 0;
        for (uint32_t i = 0; i < b->n; i++) bits |= (uint64_t)b->valid[i] << i;
        if (b->n) assert_true(*frugal_p2f_valid(w->p, d, step) == bits);
        for (uint32_t r = 0; rows && r < w->desc.rows; r++) {
            if (w->from[step % RING][r] != (int)d) continue;
            assert_true(at < n && rows[at] == r);
            at++;
        }
        assert_int_equal(at, n);
    }
}

static void do_plan(world *w) {
    frugal_p2f_piece piece;
    int may = w->planned < w->sealed; /* batches are small: one piece a step */
    if (test_chance(&w->random, 50)) {
        assert_int_equal(frugal_p2f_plan(w->p), may ? 2 : 0);
    } else {
        assert_int_equal(frugal_p2f_plan_begin(w->p, &piece), may);
        if (may) check_planned(w, &piece);
        if (may) assert_int_equal(frugal_p2f_plan_end(w->p, &piece), 2);
    }
    if (!may) return;
    plan_step(w);
    check_plan(w, w->planned - 1);
}

/* >>announce, commit, close */

static void do_announce(world *w) {
    uint32_t device = (uint32_t)test_below(&w->random, w->desc.devices);
    uint64_t step = w->announced[device];
    if (test_chance(&w->random, 3)) { /* out of order */
        uint64_t wrong = test_chance(&w->random, 50) ? step + 1 : step - 1;
        const frugal_p2f_batch none = {.in_place = w->wordless};
        assert_int_equal(frugal_p2f_announce(w->p, device, wrong, &none), FRUGAL_ERR_ORDER);
    }
    batch b = {.read_only = test_chance(&w->random, 25),
               .in_place = w->keeps[device] || test_chance(&w->random, w->wordless ? 97 : w->in_place)};
    unsigned percent = (unsigned)test_below(&w->random, 70);
    for (uint32_t r = 0; r < w->desc.rows && b.n < w->desc.max_rows; r++)
        if (test_chance(&w->random, percent)) b.rows[b.n++] = r;
    const frugal_p2f_batch announced = {.rows = b.rows, .n = b.n, .read_only = b.read_only, .in_place = b.in_place};
    frugal_status status = frugal_p2f_announce(w->p, device, step, &announced);
    if (w->wordless && !b.in_place) {
        assert_int_equal(status, FRUGAL_ERR_ARGUMENT);
        return;
    }
    if (step > w->closed + w->desc.lookahead) {
        assert_int_equal(status, FRUGAL_AGAIN);
        w->agains++;
        return;
    }
    assert_int_equal(status, FRUGAL_OK);
    *batch_of(w, device, step) = b;
    w->announced[device]++;
    int all = 1;
    for (uint32_t d = 0; d < w->desc.devices; d++) all &= w->announced[d] > step;
    if (all) w->sealed = step + 1;
    if (w->wordless) plan_step(w); /* there is nothing to plan */
}

/* >>recalls */

static void write_back(world *w, uint32_t device, uint32_t row_) {
    row *r = &w->rows[row_];
    if (r->kept != (int)device) return;
    assert_false(r->dirty);
    r->flushed = r->version;
    r->kept = NOBODY;
}

static void write_back_all(world *w, uint32_t device) {
    for (uint32_t r = 0; r < w->desc.rows; r++) write_back(w, device, r);
}

/* The device writes back what is recalled from it: check_plan has compared the list. */
static void do_recall_rows(world *w, uint32_t device, const uint32_t *rows, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        w->needless += w->rows[rows[i]].kept != (int)device;
        write_back(w, device, rows[i]);
    }
}

static void do_recall(world *w) {
    uint32_t device = (uint32_t)test_below(&w->random, w->desc.devices);
    uint64_t step = 0, next = w->committed[device];
    int expected = waits_for_recall(w, device, next);
    assert_int_equal(frugal_p2f_has_recall(w->p, device, &step), expected);
    if (!expected) return;
    assert_true(step == next);
    check_plan(w, step);
    const uint32_t *rows = NULL;
    uint32_t n = frugal_p2f_recalls(w->p, device, step, &rows);
    assert_int_equal(n == UINT32_MAX, w->recall_all[step % RING]);
    if (n == UINT32_MAX)
        write_back_all(w, device);
    else
        do_recall_rows(w, device, rows, n);
    w->recalled[device] = step + 1;
    w->recalls++;
    assert_int_equal(frugal_p2f_recall_done(w->p, device, step), recalls_left(w, step) == 0);
}

/* What a lookup does to copies, after checking what the valid bits promised. */
static void look_up(world *w, uint32_t device, uint64_t step) {
    batch *b = batch_of(w, device, step);
    for (uint32_t i = 0; i < b->n; i++) {
        row *r = &w->rows[b->rows[i]];
        assert_false(r->dirty); /* invariant (2) of the paper */
        uint64_t *copy = &r->copies[device];
        if (r->kept == (int)device)
            assert_true(b->valid[i] && *copy == r->version);
        else
            assert_true(r->kept == NOBODY && r->flushed == r->version);
        if (b->valid[i] && *copy != UINT64_MAX)
            assert_true(*copy == r->version);
        else if (test_chance(&w->random, 70) || *copy != UINT64_MAX)
            *copy = r->version;
    }
    uint32_t victim = (uint32_t)test_below(&w->random, w->desc.rows);
    if (!w->keeps[device] || test_chance(&w->random, 50)) return;
    w->evictions += w->rows[victim].kept == (int)device;
    write_back(w, device, victim);
    w->rows[victim].copies[device] = UINT64_MAX;
}

/* Between its gate and its commit, a device knows which of its records are alone. */
static void check_alone(world *w, uint32_t device, uint64_t step) {
    const batch *b = batch_of(w, device, step);
    const uint64_t *alone = frugal_p2f_alone(w->p, device, step);
    assert_int_equal(alone != NULL, b->in_place);
    uint64_t bits = 0;
    for (uint32_t i = 0, other; i < b->n; i++) bits |= (uint64_t)(touchers(w, b->rows[i], step, &other) == 1) << i;
    if (alone && b->n) assert_true(*alone == bits);
}

/* The device writes its alone rows, and updates its cached copies. */
static void update(world *w, uint32_t device, uint64_t step) {
    const batch *b = batch_of(w, device, step);
    for (uint32_t i = 0; b->brings && i < b->n; i++) {
        row *r = &w->rows[b->rows[i]];
        if (r->copies[device] != UINT64_MAX) r->copies[device]++;
        if (!is_written_in_place(w, b->rows[i], step)) continue;
        assert_false(r->dirty); /* clean from the gate of the step until the step is closed */
        r->version++;
        if (r->kept == NOBODY && w->keeps[device] && r->copies[device] != UINT64_MAX && test_chance(&w->random, 80))
            r->kept = (int)device;
        w->kept += r->kept == (int)device;
        if (r->kept == NOBODY) r->flushed = r->version;
    }
}

/* The commit of a step closes it, if rows have no words. */
static void close_whole(world *w, uint64_t step) {
    const batch *b = batch_of(w, 0, step);
    w->touched.alone += b->n;
    if (b->brings) w->touched.in_place += b->n;
    w->closed = step + 1;
}

static void do_commit(world *w) {
    uint32_t device = (uint32_t)test_below(&w->random, w->desc.devices);
    uint64_t step = w->committed[device];
    assert_int_equal(frugal_p2f_gate(w->p, step), gate_is_open(w, step));
    if (!gate_is_open(w, step)) {
        w->waits += w->closed >= step && waits_for_plan(w, step) && due_at(w, step) == 0;
        assert_int_equal(frugal_p2f_commit(w->p, device, step, 1, NULL), FRUGAL_ERR_ORDER);
        return;
    }
    look_up(w, device, step);
    check_alone(w, device, step);
    batch *b = batch_of(w, device, step);
    b->brings = !b->read_only && test_chance(&w->random, 85);
    update(w, device, step);
    int last = 0, all = 1;
    uint64_t stale = ids_in(w, (uint32_t)(step % FRUGAL_P2F_SLOTS));
    assert_int_equal(frugal_p2f_commit(w->p, device, step, b->brings, &last), FRUGAL_OK);
    w->committed[device]++;
    for (uint32_t d = 0; d < w->desc.devices; d++) all &= w->committed[d] > step;
    if (all) w->ids -= stale; /* the slot is retired */
    assert_int_equal(last, all ? 2 : 0);
    if (all) w->all_committed = step + 1;
    if (w->wordless) close_whole(w, step);
}

/* How many devices bring a gradient for `row` at `step`. */
static uint32_t bringers(world *w, uint32_t r, uint64_t step) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < w->desc.devices; d++)
        n += batch_of(w, d, step)->brings && position(batch_of(w, d, step), r) >= 0;
    return n;
}

/* Checks what a piece shows its closer: every entry of the step, by row, then by device. */
static void check_piece(world *w, const frugal_p2f_piece *piece) {
    uint32_t at = 0;
    assert_true(piece->step == w->closed && piece->first == 0);
    for (uint32_t r = 0; r < w->desc.rows; r++)
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            uint32_t device, record;
            int found = position(batch_of(w, d, piece->step), r);
            if (found < 0) continue;
            assert_true(at < piece->n && piece->entries[at].row == r);
            frugal_p2f_source(w->p, piece->entries[at].source, &device, &record);
            assert_true(device == d && record == (uint32_t)found);
            at++;
        }
    assert_int_equal(at, piece->n);
    uint32_t next = frugal_p2f_next_closed(w->p, piece, 0); /* what an applying closer visits: rows not in place */
    for (uint32_t i = 0, n; i < piece->n; i += n) {
        n = frugal_p2f_contributors(piece->entries + i);
        if (is_written_in_place(w, piece->entries[i].row, piece->step)) continue;
        assert_int_equal(next, i);
        next = frugal_p2f_next_closed(w->p, piece, i + n);
    }
    assert_int_equal(next, piece->n);
}

/* Closes a step: its updates queued, or applied by the closer. */
static void do_close(world *w) {
    int may = w->closed < w->all_committed, applied = test_chance(&w->random, 30);
    frugal_p2f_piece piece;
    if (!applied && test_chance(&w->random, 50)) {
        assert_int_equal(frugal_p2f_close(w->p), may ? 2 : 0);
    } else {
        assert_int_equal(frugal_p2f_close_begin(w->p, &piece), may);
        if (may) check_piece(w, &piece);
        if (may) assert_int_equal(frugal_p2f_close_end(w->p, &piece, applied), 2);
    }
    if (!may) return;
    uint64_t step = w->closed++;
    w->recall_all[step % RING] = 0;
    for (uint32_t i = 0; i < w->desc.rows; i++) {
        row *r = &w->rows[i];
        uint32_t n = bringers(w, i, step), device, announcers = touchers(w, i, step, &device);
        w->touched.alone += announcers == 1;
        w->touched.shared += announcers > 1;
        if (n == 0) continue;
        assert_false(r->dirty);
        if (is_written_in_place(w, i, step)) {
            w->touched.in_place++;
            continue;
        }
        assert_int_equal(r->kept, NOBODY);
        /* A copy has the version that the host row will have only if its device alone brought gradients. */
        r->version += n == 1 ? 1 : 1000;
        if (applied) {
            r->flushed = r->version;
            continue;
        }
        r->dirty = 1, r->updated = step;
        w->ids++;
        r->due = step + (w->desc.mode == FRUGAL_SYNC ? 1 : w->desc.staging);
        for (uint64_t t = step + 1; t < r->due; t++)
            if (is_read(w, i, t)) r->due = t;
    }
}

/* >>take, done */

static void check_work(world *w, const frugal_p2f_work *work) {
    row *r = &w->rows[work->row];
    assert_true(r->dirty && !r->busy && !is_written_in_place(w, work->row, r->updated));
    assert_int_equal(work->slot, r->due % FRUGAL_P2F_SLOTS);
    assert_true(work->step == r->updated);
    uint32_t at = 0, n = frugal_p2f_contributors(work->entries), device, record;
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        const batch *b = batch_of(w, d, work->step);
        assert_int_equal(frugal_p2f_brings(w->p, d, work->step), b->brings);
        if (position(b, work->row) < 0) continue;
        assert_true(at < n);
        frugal_p2f_source(w->p, work->entries[at].source, &device, &record);
        assert_int_equal(device, d);
        assert_int_equal(record, position(b, work->row));
        at++;
    }
    assert_int_equal(at, n);
    r->busy = 1;
    w->held[w->n_held++] = *work;
}

static void do_take(world *w, uint64_t limit) {
    uint64_t least = UINT64_MAX, stale = 0;
    for (uint32_t i = 0; i < w->desc.rows; i++) {
        const row *r = &w->rows[i];
        if (r->dirty && !r->busy && r->due <= limit && r->due < least) least = r->due;
    }
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint32_t n = frugal_p2f_take(w->p, limit, work, &stale);
    w->ids -= n + stale;
    assert_int_equal(n == 0, least == UINT64_MAX);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(w->rows[work[i].row].due == least);
        check_work(w, &work[i]);
    }
}

static void do_take_row(world *w) {
    uint32_t row_ = (uint32_t)test_below(&w->random, w->desc.rows);
    const row *r = &w->rows[row_];
    frugal_p2f_work work;
    int expected = !r->dirty ? 0 : r->busy ? -1 : 1;
    assert_int_equal(frugal_p2f_is_dirty(w->p, row_), r->dirty + r->busy);
    assert_int_equal(frugal_p2f_take_row(w->p, row_, &work), expected);
    if (expected == 1) check_work(w, &work);
}

static void do_done(world *w, uint32_t n) {
    int emptied = 0;
    for (uint32_t i = 0; i < n; i++) {
        row *r = &w->rows[w->held[i].row];
        r->dirty = r->busy = 0;
        r->flushed = r->version;
        if (due_at(w, r->due) == 0) emptied = 1;
    }
    assert_int_equal(frugal_p2f_done(w->p, w->held, n), emptied);
    memmove(w->held, w->held + n, (w->n_held - n) * sizeof w->held[0]);
    w->n_held -= n;
    w->flushes += n;
}

/* >>cancel, holders */

static void drain(world *w) {
    for (uint32_t before = MAX_ROWS + 1; w->n_held != before;) {
        before = w->n_held;
        do_take(w, UINT64_MAX);
    }
    if (test_chance(&w->random, 70)) do_done(w, w->n_held);
}

static void do_cancel(world *w) {
    uint64_t step = w->closed + test_below(&w->random, furthest(w) - w->closed + 3);
    int refused = step > furthest(w) || step < w->closed;
    for (uint32_t d = 0; d < w->desc.devices; d++) refused |= w->committed[d] > step;
    drain(w);
    assert_int_equal(frugal_p2f_cancel(w->p, step), refused ? FRUGAL_ERR_ORDER : FRUGAL_OK);
    if (refused) return;
    w->cancels++;
    while (w->planned < w->sealed) plan_step(w); /* cancel plans what is sealed */
    for (uint64_t t = step; t < furthest(w) && step < w->sealed && !w->wordless; t++)
        w->recall_all[t % RING] = t == step;
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        for (uint64_t t = step; t < w->sealed && !w->wordless; t++)
            for (uint32_t i = 0; i < batch_of(w, d, t)->n; i++) w->rows[batch_of(w, d, t)->rows[i]].holder = NOBODY;
        if (w->announced[d] > step) w->announced[d] = step;
        if (w->recalled[d] > step) w->recalled[d] = step;
    }
    if (w->sealed > step) w->sealed = step;
    if (w->planned > step) w->planned = step;
}

/* State between phases: drained, and no step announced that is not closed. */
static void do_holders(world *w) {
    if (furthest(w) != w->closed) return;
    while (w->n_held) do_done(w, w->n_held);
    for (;;) {
        do_take(w, UINT64_MAX);
        if (w->n_held == 0) break;
        do_done(w, w->n_held);
    }
    for (uint32_t d = 0; d < w->desc.devices; d++) write_back_all(w, d);
    uint32_t r = (uint32_t)test_below(&w->random, w->desc.rows);
    frugal_p2f_disown(w->p, r);
    w->rows[r].version += 1000, w->rows[r].flushed = w->rows[r].version; /* a caller writes the row */
    if (w->wordless)
        w->rows[r].copies[0] = UINT64_MAX; /* and drops the copy */
    else
        w->rows[r].holder = NOBODY;
    if (test_chance(&w->random, 70)) return;
    frugal_p2f_release_holders(w->p);
    for (uint32_t i = 0; i < w->desc.rows; i++) {
        w->rows[i].holder = EVERYONE;
        for (uint32_t d = 0; d < w->desc.devices; d++) w->rows[i].copies[d] = UINT64_MAX; /* caches are emptied */
    }
}

static void do_use_words(world *w) {
    int may = !w->wordless || furthest(w) == w->closed;
    assert_int_equal(frugal_p2f_use_words(w->p), may ? FRUGAL_OK : FRUGAL_ERR_ORDER);
    if (!may) return;
    w->switches += (uint64_t)w->wordless;
    w->wordless = 0;
}

/* >>the whole */

static void check_state(world *w) {
    frugal_p2f_progress now = frugal_p2f_get_progress(w->p);
    uint64_t dirty = 0;
    for (uint32_t i = 0; i < w->desc.rows; i++) {
        const row *r = &w->rows[i];
        dirty += (uint64_t)r->dirty;
        assert_int_equal(frugal_p2f_is_dirty(w->p, i), r->dirty + r->busy);
        int planned = 0; /* then the holder is that of the next step */
        for (uint64_t s = w->closed; s < w->planned; s++) planned |= is_read(w, i, s);
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            int current = frugal_p2f_is_current(w->p, d, i);
            if (w->wordless)
                assert_int_equal(current, 1);
            else
                assert_int_equal(current, !planned && (r->holder == EVERYONE || r->holder == (int)d));
            /* The rule against the truth: such a copy has all updates, or would have none if the row is not touched. */
            if (current && r->copies[d] != UINT64_MAX) assert_true(r->copies[d] == r->version);
        }
    }
    assert_true(now.sealed == w->sealed && now.committed == w->all_committed && now.closed == w->closed);
    assert_true(frugal_p2f_planned(w->p) == w->planned);
    assert_true(now.announced == furthest(w));
    assert_int_equal(now.pending, dirty);
    assert_true(now.alone == w->touched.alone && now.shared == w->touched.shared);
    assert_true(now.in_place == w->touched.in_place);
    uint64_t ids = 0;
    for (uint32_t slot = 0; slot < FRUGAL_P2F_SLOTS; slot++) ids += ids_in(w, slot);
    assert_true(ids == w->ids); /* so rows written in place have none */
    for (uint64_t s = w->closed; s < w->closed + FRUGAL_P2F_SLOTS; s++) {
        assert_int_equal(frugal_p2f_pending(w->p, s), due_at(w, s));
        assert_int_equal(frugal_p2f_gate(w->p, s), gate_is_open(w, s));
    }
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        assert_true(frugal_p2f_announced(w->p, d) == w->announced[d]);
        assert_true(frugal_p2f_committed(w->p, d) == w->committed[d]);
        for (uint64_t s = w->closed; s < w->announced[d]; s++)
            assert_int_equal(frugal_p2f_is_in_place(w->p, d, s), batch_of(w, d, s)->in_place);
        if (gate_is_open(w, w->committed[d])) check_alone(w, d, w->committed[d]);
    }
    assert_int_equal(frugal_p2f_awaits_plan(w->p), waits_for_plan(w, w->closed));
    for (uint32_t d = 0; d < w->desc.devices; d++)
        assert_int_equal(frugal_p2f_is_recalled(w->p, d, w->committed[d]), waits_for_recall(w, d, w->committed[d]));
    assert_true(frugal_p2f_closed(w->p) == w->closed);
    assert_int_equal(frugal_p2f_has_words(w->p), !w->wordless);
    for (uint64_t s = w->closed; s < w->closed + 20; s++) {
        assert_int_equal(frugal_p2f_legal(w->p, s), s <= w->closed + w->desc.lookahead);
    }
}

static void act(world *w) {
    uint64_t dice = test_below(&w->random, w->desc.recalls ? 1150 : 1001);
    if (dice >= 998 && dice <= 1000)
        do_use_words(w);
    else if (dice > 1000)
        do_recall(w);
    else if (dice < 300)
        do_announce(w);
    else if (dice < 450)
        do_plan(w);
    else if (dice < 700)
        do_commit(w);
    else if (dice < 800)
        do_close(w);
    else if (dice < 870)
        do_take(w, w->closed + test_below(&w->random, 70));
    else if (dice < 900)
        do_take_row(w);
    else if (dice < 990)
        do_done(w, (uint32_t)test_below(&w->random, w->n_held + 1));
    else if (dice < 995)
        do_cancel(w);
    else
        do_holders(w);
}

static world *open_world(test_random random) {
    world *w = calloc(1, sizeof *w);
    w->random = random;
    test_random *r = &w->random;
    frugal_p2f_desc *d = &w->desc;
    d->devices = (uint32_t)test_between(r, 1, MAX_DEVICES);
    d->rows = test_between(r, 1, MAX_ROWS);
    d->max_rows = (uint32_t)test_between(r, 1, d->rows);
    d->lookahead = (uint32_t)test_between(r, 0, test_chance(r, 50) ? 3 : 15);
    d->staging = (uint32_t)test_between(r, 1, test_chance(r, 50) ? d->lookahead + 3 : 63 - d->lookahead);
    d->mode = test_chance(r, 20) ? FRUGAL_SYNC : FRUGAL_P2F;
    d->first_step = test_chance(r, 50) ? 1 + test_below(r, 100) : test_next(r) >> 24;
    w->in_place = (unsigned)test_below(r, 4) * 34; /* none, some, most, all */
    d->threads = 1;
    d->recalls = test_chance(r, 60);
    d->taken = test_chance(r, 50);
    d->without_words = w->wordless = d->devices == 1 && test_chance(r, 70);
    for (uint32_t i = 0; i < d->devices; i++) w->keeps[i] = d->recalls && test_chance(r, 75);
    size_t bytes = frugal_p2f_footprint(d);
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, (bytes / FRUGAL_P2F_ALIGN + 1) * FRUGAL_P2F_ALIGN);
    memset(memory, 0xa5, bytes);
    assert_int_equal(frugal_p2f_init(memory, d, &w->p), FRUGAL_OK);
    w->sealed = w->planned = w->all_committed = w->closed = d->first_step;
    for (uint32_t i = 0; i < MAX_DEVICES; i++) w->announced[i] = w->committed[i] = w->recalled[i] = d->first_step;
    for (uint32_t i = 0; i < MAX_ROWS; i++) {
        w->rows[i].holder = EVERYONE;
        w->rows[i].kept = NOBODY;
        memset(w->rows[i].copies, 0xff, sizeof w->rows[i].copies);
    }
    return w;
}

static void close_world(world *w) {
    free(w->p);
    free(w);
}

#endif /* P2F_ORACLE_H */
