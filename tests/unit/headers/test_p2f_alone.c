/* test_p2f_alone.c - frugal_p2f.h: what planning says of each record: is its copy valid, is its row alone, from whom is
 * it taken; and what closing leaves of batches in place. Pieces of planning are smaller than a word of bits: neighbours
 * share words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>

#define FRUGAL_PRIV_PLAN_RANGE  40u
#define FRUGAL_PRIV_CLOSE_RANGE 50u
#include "tests/seed.h"
#include "tests/support.h"
#include "tests/unit/headers/p2f_by_hand.h"

enum { STAGED, IN_PLACE };
enum { EVERYONE = 254, NOBODY }; /* holders that are no device */

static void announce_as(frugal_p2f *p, uint32_t device, uint64_t step, int in_place, const uint32_t *rows, uint32_t n) {
    const frugal_p2f_batch batch = {.rows = rows, .n = n, .in_place = in_place};
    assert_int_equal(frugal_p2f_announce(p, device, step, &batch), FRUGAL_OK);
}

static int bit_of(const uint64_t *bits, uint32_t i) {
    return (int)(bits[i / 64] >> i % 64 & 1);
}

/* >>bits: against brute force */

typedef struct step {
    frugal_p2f *p;
    uint32_t devices, rows, max_rows;
    uint32_t *list;     /* list[devices][max_rows] */
    uint32_t *count;    /* count[devices] */
    uint32_t *touchers; /* touchers[rows]: devices that announce the row */
    uint32_t *only;     /* only[rows]: one of them */
    uint8_t *holder;    /* holder[rows]: before the step */
    uint8_t *next;      /* next[rows]: after it */
    uint8_t *in_place, *read_only, *brings;
    frugal_p2f_progress touched; /* alone, shared, in_place: of all steps so far */
    uint64_t taken;              /* rows, of all steps so far */
} step;

static step open_step(uint32_t devices, uint32_t rows, uint32_t max_rows) {
    step s = {.devices = devices, .rows = rows, .max_rows = max_rows};
    s.p =
        open_p2f((frugal_p2f_desc){.rows = rows, .devices = devices, .max_rows = max_rows, .lookahead = 1, .taken = 1});
    s.list = calloc((size_t)devices * max_rows, sizeof *s.list);
    s.count = calloc(devices, sizeof *s.count);
    s.touchers = calloc(rows, sizeof *s.touchers);
    s.only = calloc(rows, sizeof *s.only);
    s.holder = malloc(rows), s.next = malloc(rows);
    memset(s.next, EVERYONE, rows);
    s.in_place = calloc(devices, 1), s.read_only = calloc(devices, 1), s.brings = calloc(devices, 1);
    return s;
}

static void close_step(step *s) {
    free(s->list), free(s->count), free(s->touchers), free(s->only), free(s->holder), free(s->next);
    free(s->in_place), free(s->read_only), free(s->brings);
    free(s->p);
}

/* Announces random batches: each device keeps rows of a range with a probability of its own; in half of the steps they
 * share one. */
static void announce_step(step *s, test_random *random, uint64_t t, unsigned in_place) {
    uint8_t *writers = calloc(s->rows, 1);
    memset(s->touchers, 0, s->rows * sizeof *s->touchers);
    memcpy(s->holder, s->next, s->rows);
    uint32_t share = test_chance(random, 50) ? s->devices : 1;
    for (uint32_t d = 0; d < s->devices; d++) {
        uint32_t from = test_chance(random, 50) ? 0 : (uint32_t)test_below(random, s->rows), n = 0;
        uint32_t percent = (uint32_t)test_below(random, 101);
        uint32_t *list = s->list + (size_t)d * s->max_rows;
        s->read_only[d] = (uint8_t)test_chance(random, 20);
        for (uint32_t row = from; row < s->rows && n < s->max_rows; row++) {
            if (test_below(random, 100 * share) >= percent) continue;
            list[n++] = row;
            s->touchers[row]++;
            s->only[row] = d;
            if (!s->read_only[d]) s->next[row] = (uint8_t)(writers[row]++ ? NOBODY : d);
        }
        s->count[d] = n;
        s->in_place[d] = (uint8_t)test_chance(random, in_place);
        s->brings[d] = !s->read_only[d] && test_chance(random, 80);
        const frugal_p2f_batch batch = {.rows = list, .n = n, .read_only = s->read_only[d], .in_place = s->in_place[d]};
        assert_int_equal(frugal_p2f_announce(s->p, d, t, &batch), FRUGAL_OK);
    }
    free(writers);
}

static void check_gate(const step *s, uint64_t t, int planned) {
    assert_int_equal(frugal_p2f_gate(s->p, t), planned);
    assert_int_equal(frugal_p2f_awaits_plan(s->p), !planned);
}

static void check_valid(const step *s, uint64_t t, uint32_t device, uint32_t first, uint32_t n) {
    const uint64_t *valid = frugal_p2f_valid(s->p, device, t);
    for (uint32_t i = first; i < first + n; i++) {
        uint8_t holder = s->holder[s->list[(size_t)device * s->max_rows + i]];
        assert_int_equal(bit_of(valid, i), holder == EVERYONE || holder == device);
    }
}

/* The rows that devices other than their holder touch, each in the list of its holder. */
static void check_taken(step *s, uint64_t t) {
    const uint32_t *rows[254];
    uint32_t n[254], at[254] = {0};
    for (uint32_t d = 0; d < s->devices; d++) n[d] = frugal_p2f_taken(s->p, d, t, &rows[d]);
    for (uint32_t row = 0; row < s->rows; row++) {
        uint8_t holder = s->holder[row];
        if (holder == EVERYONE || holder == NOBODY || s->touchers[row] == 0) continue;
        if (s->touchers[row] == 1 && s->only[row] == holder) continue;
        assert_true(at[holder] < n[holder]);
        assert_int_equal(rows[holder][at[holder]++], row);
        s->taken++;
    }
    for (uint32_t d = 0; d < s->devices; d++) assert_int_equal(at[d], n[d]);
}

static void check_bits(step *s, uint64_t t) {
    check_taken(s, t);
    for (uint32_t d = 0; d < s->devices; d++) {
        const uint64_t *bits = frugal_p2f_alone(s->p, d, t), *valid = frugal_p2f_valid(s->p, d, t);
        check_valid(s, t, d, 0, s->count[d]);
        if (s->count[d] % 64) assert_true(valid[s->count[d] / 64] >> s->count[d] % 64 == 0); /* no others */
        assert_int_equal(bits != NULL, s->in_place[d]);
        assert_int_equal(frugal_p2f_is_in_place(s->p, d, t), s->in_place[d]);
        for (uint32_t i = 0; bits && i < s->count[d]; i++)
            assert_int_equal(bit_of(bits, i), s->touchers[s->list[(size_t)d * s->max_rows + i]] == 1);
        if (bits && s->count[d] % 64) assert_true(bits[s->count[d] / 64] >> s->count[d] % 64 == 0);
    }
}

/* Plans a piece, and looks at its records in the middle. Returns what frugal_p2f_plan does. */
static int plan_piece(const step *s, uint64_t t) {
    frugal_p2f_piece piece;
    uint32_t n = 0, first;
    if (!frugal_p2f_plan_begin(s->p, &piece)) return 0;
    assert_int_equal(piece.step, t);
    for (uint32_t d = 0; d < s->devices; d++) {
        uint32_t records = frugal_p2f_range(s->p, &piece, d, &first);
        check_valid(s, t, d, first, records);
        n += records;
    }
    assert_int_equal(piece.n, n);
    return frugal_p2f_plan_end(s->p, &piece);
}

/* Is the row left out by closers? */
static int is_written_in_place(const step *s, uint32_t row) {
    return s->touchers[row] == 1 && s->in_place[s->only[row]];
}

static void close_all_as(const step *s, int applied) {
    frugal_p2f_piece piece;
    while (frugal_p2f_close_begin(s->p, &piece)) {
        uint32_t next = frugal_p2f_next_closed(s->p, &piece, 0);
        for (uint32_t i = 0, n; i < piece.n; i += n) {
            n = frugal_p2f_contributors(piece.entries + i);
            if (is_written_in_place(s, piece.entries[i].row)) continue;
            assert_int_equal(next, i);
            next = frugal_p2f_next_closed(s->p, &piece, i + n);
        }
        assert_int_equal(next, piece.n);
        frugal_p2f_close_end(s->p, &piece, applied);
    }
}

/* Commits and closes; then just the rows are dirty that their devices have not written, and taking finds them. */
static void finish(step *s, uint64_t t, int applied) {
    for (uint32_t d = 0; d < s->devices; d++)
        assert_int_equal(frugal_p2f_commit(s->p, d, t, s->brings[d], NULL), FRUGAL_OK);
    close_all_as(s, applied);
    uint8_t *wanted = calloc(s->rows, 1);
    uint64_t left = 0;
    for (uint32_t d = 0; d < s->devices; d++)
        for (uint32_t i = 0; s->brings[d] && i < s->count[d]; i++) wanted[s->list[(size_t)d * s->max_rows + i]] = 1;
    for (uint32_t row = 0; row < s->rows; row++) {
        s->touched.alone += s->touchers[row] == 1;
        s->touched.shared += s->touchers[row] > 1;
        s->touched.in_place += wanted[row] && is_written_in_place(s, row);
        wanted[row] = wanted[row] && !applied && !is_written_in_place(s, row);
        left += wanted[row];
        assert_int_equal(frugal_p2f_is_dirty(s->p, row), wanted[row]);
    }
    frugal_p2f_progress now = frugal_p2f_get_progress(s->p);
    assert_true(now.closed == t + 1 && now.pending == (int64_t)left);
    assert_true(now.alone == s->touched.alone && now.shared == s->touched.shared);
    assert_true(now.in_place == s->touched.in_place);
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t stale = 0;
    for (uint32_t n; (n = frugal_p2f_take(s->p, UINT64_MAX, work, &stale)) > 0; left -= n) {
        for (uint32_t i = 0; i < n; i++) assert_int_equal(wanted[work[i].row]--, 1);
        frugal_p2f_done(s->p, work, n);
    }
    assert_true(left == 0 && stale == 0); /* no row is in the queue that is not dirty */
    free(wanted);
}

static void bits_equal_brute_force(uint32_t devices, uint32_t rows, uint32_t max_rows, uint64_t steps) {
    uint64_t seed = test_seed("test_p2f_alone bits", 18);
    test_random random = {.seed = test_mix2(seed, devices)};
    step s = open_step(devices, rows, max_rows);
    uint64_t most = 0;
    for (uint64_t t = 0; t < steps; t++) {
        announce_step(&s, &random, t, (unsigned)test_below(&random, 4) * 34);
        uint64_t pieces = 0;
        for (int more = 1; more != 2;) {
            check_gate(&s, t, 0);
            more = test_chance(&random, 50) ? plan_piece(&s, t) : frugal_p2f_plan(s.p);
            assert_true(more > 0);
            pieces++;
        }
        if (pieces > most) most = pieces;
        check_gate(&s, t, 1);
        check_bits(&s, t);
        finish(&s, t, test_chance(&random, 30));
    }
    assert_true(most > 3 && (s.taken || devices == 1));
    assert_true(s.touched.alone > s.touched.in_place && s.touched.in_place && (s.touched.shared || devices == 1));
    close_step(&s);
}

static void bits_of_1_device_equal_brute_force(void **state) {
    (void)state;
    bits_equal_brute_force(1, 700, 700, 60);
    bits_equal_brute_force(1, 333, 129, 60);
}
static void bits_of_2_devices_equal_brute_force(void **state) {
    (void)state;
    bits_equal_brute_force(2, 700, 700, 60);
    bits_equal_brute_force(2, 200, 127, 60);
}
static void bits_of_3_devices_equal_brute_force(void **state) {
    (void)state;
    bits_equal_brute_force(3, 500, 400, 60);
    bits_equal_brute_force(3, 200, 65, 60);
}
static void bits_of_254_devices_equal_brute_force(void **state) {
    (void)state;
    bits_equal_brute_force(254, 3000, 200, test_is_short() ? 20 : 60);
    bits_equal_brute_force(254, 70, 70, test_is_short() ? 20 : 60);
}

/* Each bit, of batches of all lengths about those of words and pieces: its row alone is shared, or it alone is not. */
static void each_bit_is_set_or_not_by_itself(void **state) {
    (void)state;
    enum { MOST = 200 };
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 2 * MOST, .devices = 2, .max_rows = MOST});
    const uint32_t lengths[] = {1, 39, 40, 41, 63, 64, 65, 80, 81, 127, 128, 129, MOST};
    uint64_t t = 0;
    for (uint32_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (uint32_t one = 0; one < lengths[k]; one++)
            for (int shared = 0; shared < 2; shared++, t++) {
                uint32_t n = lengths[k], mine[MOST], others[MOST], n_others = 0;
                for (uint32_t i = 0; i < n; i++) {
                    mine[i] = 2 * i + 1;
                    if (shared ? i == one : i != one) others[n_others++] = 2 * i + 1;
                }
                announce_as(p, 0, t, IN_PLACE, mine, n);
                announce_as(p, 1, t, (int)(t % 2), others, n_others);
                plan_all(p);
                const uint64_t *bits = frugal_p2f_alone(p, 0, t), *none = frugal_p2f_alone(p, 1, t);
                for (uint32_t i = 0; i < n; i++) assert_int_equal(bit_of(bits, i), shared ? i != one : i == one);
                for (uint32_t i = 0; none && i < n_others; i++) assert_int_equal(bit_of(none, i), 0);
                flush_until(p, t);
                finish_step(p, 2, t);
            }
    free(p);
}

static void *plan_thread(void *p) {
    while (frugal_p2f_plan(p)) {
    }
    return NULL;
}

/* Threads that plan neighbouring pieces set bits of the same words. */
static void bits_survive_threads_that_share_words(void **state) {
    (void)state;
    enum { THREADS = 3 };
    uint64_t seed = test_seed("test_p2f_alone threads", 19);
    test_random random = {.seed = seed};
    step s = open_step(2, 6000, 5000);
    for (uint64_t t = 0; t < 40 / SHORTER; t++) {
        announce_step(&s, &random, t, 100);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, plan_thread, s.p), 0);
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        check_gate(&s, t, 1);
        check_bits(&s, t);
        finish(&s, t, 0);
    }
    close_step(&s);
}

/* >>closing */

/* Of a step: rows alone in place, alone staged, alone without gradients, alone of a reader, and shared. */
static void closing_leaves_out_rows_written_in_place(int applied) {
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 4, .max_rows = 4, .lookahead = 1});
    announce_as(p, 0, 0, IN_PLACE, ROWS(0, 4, 5, 6));
    announce_as(p, 1, 0, STAGED, ROWS(1, 4));
    announce_as(p, 2, 0, IN_PLACE, ROWS(2, 5));
    const frugal_p2f_batch reader = {ROWS(3, 6), .read_only = 1, .in_place = 1};
    assert_int_equal(frugal_p2f_announce(p, 3, 0, &reader), FRUGAL_OK);
    plan_all(p);
    assert_int_equal(*frugal_p2f_alone(p, 0, 0), 1); /* row 6 is shared with a reader */
    assert_null(frugal_p2f_alone(p, 1, 0));
    assert_int_equal(*frugal_p2f_alone(p, 2, 0), 1);
    assert_int_equal(*frugal_p2f_alone(p, 3, 0), 1);
    const int brings[] = {1, 1, 0, 0};
    for (uint32_t d = 0; d < 4; d++) assert_int_equal(frugal_p2f_commit(p, d, 0, brings[d], NULL), FRUGAL_OK);
    for (uint32_t d = 0; d < 4; d++) announce_as(p, d, 1, IN_PLACE, ROWS(7)); /* a step announced ahead */
    frugal_p2f_piece piece;
    assert_int_equal(frugal_p2f_close_begin(p, &piece), 1);
    assert_int_equal(piece.n, 10);
    for (uint32_t d = 0; d < 4; d++) assert_int_equal(frugal_p2f_is_in_place(p, d, 0), d != 1);
    assert_int_equal(frugal_p2f_close_end(p, &piece, applied), 2);
    const uint32_t dirty[] = {0, 1, 0, 0, 1, 1, 1, 0};
    for (uint32_t row = 0; row < 8; row++) assert_int_equal(frugal_p2f_is_dirty(p, row), !applied && dirty[row]);
    assert_true(frugal_p2f_is_current(p, 0, 0)); /* no read is left in the word */
    assert_false(frugal_p2f_is_current(p, 1, 0));
    frugal_p2f_progress now = frugal_p2f_get_progress(p);
    assert_int_equal(now.alone, 4);
    assert_int_equal(now.shared, 3);
    assert_int_equal(now.in_place, 1);
    assert_int_equal(now.pending, applied ? 0 : 4);
    assert_int_equal(frugal_p2f_unflushed(p, 0), applied ? 0 : 4);
    assert_int_equal(flush_until(p, UINT64_MAX), applied ? 0 : 4);
    plan_all(p);
    assert_true(frugal_p2f_gate(p, 1));
    for (uint32_t d = 0; d < 4; d++) assert_int_equal(*frugal_p2f_alone(p, d, 1), 0);
    free(p);
}

static void closing_queues_only_what_no_device_has_written(void **state) {
    (void)state;
    closing_leaves_out_rows_written_in_place(0);
}
static void closing_as_applied_leaves_the_same_words(void **state) {
    (void)state;
    closing_leaves_out_rows_written_in_place(1);
}

/* >>cancel */

static void bits_of_a_cancelled_step_are_cleared(void **state) {
    (void)state;
    enum { N = 130 };
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 3 * N, .devices = 2, .max_rows = N, .lookahead = 1});
    uint32_t mine[N], others[N];
    for (uint32_t i = 0; i < N; i++) mine[i] = 3 * i, others[i] = 3 * i + 1;
    for (uint64_t t = 0; t < 20; t++) {
        announce_as(p, 0, t, IN_PLACE, mine, N);
        announce_as(p, 1, t, IN_PLACE, others, N);
        plan_all(p);
        for (uint32_t i = 0; i < N; i++) assert_int_equal(bit_of(frugal_p2f_alone(p, 0, t), i), 1);
        flush_until(p, UINT64_MAX);
        assert_int_equal(frugal_p2f_cancel(p, t), FRUGAL_OK);
        assert_false(frugal_p2f_gate(p, t));
        assert_false(frugal_p2f_awaits_plan(p));
        announce_as(p, 0, t, IN_PLACE, mine, N); /* announced anew, by another device too */
        announce_as(p, 1, t, t % 2 ? IN_PLACE : STAGED, mine, N);
        assert_false(frugal_p2f_gate(p, t)); /* the plan is that of the step announced anew */
        assert_true(frugal_p2f_awaits_plan(p));
        plan_all(p);
        for (uint32_t i = 0; i < N; i++) assert_int_equal(bit_of(frugal_p2f_alone(p, 0, t), i), 0);
        assert_int_equal(frugal_p2f_alone(p, 1, t) != NULL, t % 2);
        for (uint32_t i = 0; t % 2 && i < N; i++) assert_int_equal(bit_of(frugal_p2f_alone(p, 1, t), i), 0);
        flush_until(p, UINT64_MAX);
        assert_int_equal(frugal_p2f_cancel(p, t), FRUGAL_OK);
        announce_as(p, 0, t, STAGED, mine, N); /* and once more, staged */
        announce_as(p, 1, t, STAGED, others, N);
        assert_false(frugal_p2f_gate(p, t));
        plan_all(p);
        assert_true(frugal_p2f_gate(p, t));
        assert_null(frugal_p2f_alone(p, 0, t));
        finish_step(p, 2, t);
        assert_int_equal(flush_until(p, UINT64_MAX), 2 * N); /* staged: all rows have records */
    }
    free(p);
}

/* >>memory */

/* Marks n bytes from `at` as used by step t; in the first steps by nobody else. */
static void mark(unsigned char *used, const unsigned char *memory, size_t bytes, const void *at, size_t n, int anew) {
    size_t from = (size_t)((const unsigned char *)at - memory);
    assert_true(from <= bytes && n <= bytes - from);
    for (size_t i = from; i < from + n; i++) assert_true(used[i] == 0 || anew);
    memset(used + from, 1, n);
}

/* The bits and lists lie in whole pages of their own, a batch's bits apart from all others'. */
static void bits_lie_in_pages_of_their_own(uint32_t devices, uint32_t max_rows, uint32_t lookahead, int lists) {
    frugal_p2f_desc desc = {
        .rows = 2 * max_rows, .devices = devices, .max_rows = max_rows, .lookahead = lookahead, .taken = lists};
    frugal_p2f *p = open_p2f(desc);
    size_t bytes, words = (max_rows + 63) / 64;
    unsigned char *memory = frugal_p2f_alone_memory(p, &bytes);
    uint32_t *rows = malloc(max_rows * sizeof *rows);
    assert_true((uintptr_t)memory % FRUGAL_P2F_ALIGN == 0 && bytes % FRUGAL_P2F_ALIGN == 0);
    assert_true(memory > (unsigned char *)p && memory + bytes <= (unsigned char *)p + frugal_p2f_footprint(&desc));
    unsigned char *used = calloc(bytes, 1);
    for (uint64_t t = 0; t < 3 * (lookahead + 2); t++) {
        for (uint32_t i = 0; i < max_rows; i++) rows[i] = 2 * i + (uint32_t)(t % 2);
        for (uint32_t d = 0; d < devices; d++)
            announce_as(p, d, t, IN_PLACE, rows, t % devices == d ? max_rows : 0); /* all rows alone */
        plan_all(p);
        for (uint32_t d = 0; d < devices; d++) {
            mark(used, memory, bytes, frugal_p2f_alone(p, d, t), 8 * words, t > lookahead);
            mark(used, memory, bytes, frugal_p2f_valid(p, d, t), 8 * words, t > lookahead);
        }
        const uint32_t *list = NULL;
        if (lists) frugal_p2f_taken(p, 0, t, &list);
        if (lists) mark(used, memory, bytes, list, (size_t)devices * max_rows * sizeof *list, t > lookahead + 1);
        const uint64_t *bits = frugal_p2f_alone(p, (uint32_t)(t % devices), t);
        for (uint32_t i = 0; i < max_rows; i++) assert_int_equal(bit_of(bits, i), 1);
        finish_step(p, devices, t);
    }
    for (size_t i = 0; i < bytes; i++) assert_true(used[i] || memory[i] == 0); /* nothing else lies there */
    free(used), free(rows), free(p);
}

static void the_bits_memory_is_whole_pages_and_holds_nothing_else(void **state) {
    (void)state;
    const uint32_t devices[] = {1, 2, 3, 254}, max_rows[] = {1, 63, 64, 65, 200}, lookaheads[] = {0, 1, 4};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 5; j++)
            for (size_t k = 0; k < 6; k++)
                bits_lie_in_pages_of_their_own(devices[i], max_rows[j], lookaheads[k / 2], (int)(k % 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_1_device_equal_brute_force),
        cmocka_unit_test(bits_of_2_devices_equal_brute_force),
        cmocka_unit_test(bits_of_3_devices_equal_brute_force),
        cmocka_unit_test(bits_of_254_devices_equal_brute_force),
        cmocka_unit_test(each_bit_is_set_or_not_by_itself),
        cmocka_unit_test(bits_survive_threads_that_share_words),
        cmocka_unit_test(closing_queues_only_what_no_device_has_written),
        cmocka_unit_test(closing_as_applied_leaves_the_same_words),
        cmocka_unit_test(bits_of_a_cancelled_step_are_cleared),
        cmocka_unit_test(the_bits_memory_is_whole_pages_and_holds_nothing_else),
    };
    return cmocka_run_group_tests_name("test_p2f_alone", tests, NULL, NULL);
}
