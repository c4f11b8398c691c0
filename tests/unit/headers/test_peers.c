/* test_peers.c - the planner of frugal_place.h (>>peers): where rows lie, against brute force; what is predicted,
 * against sums over all rows; plans, against others and against UGache's linear program, solved by GLPK; all errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"
#include "tests/scratch.h"
#include "tests/seed.h"
#include "tests/support.h"
#include "tools/peers/program.h"

enum { DEVICES = FRUGAL_PLACE_MAX_DEVICES, LEVELS = 256 };
static const frugal_place_policy policies[] = {FRUGAL_PLACE_PLANNED, FRUGAL_PLACE_REPLICATED, FRUGAL_PLACE_PARTITIONED,
                                               FRUGAL_PLACE_TWO_TIERS};

/* >>worlds */

typedef struct world {
    frugal_place_machine machine;
    double peer[DEVICES * DEVICES], host[DEVICES], root[DEVICES];
    uint32_t roots[DEVICES];
    frugal_place_level levels[LEVELS];
    uint32_t n_levels;
    uint64_t rows;
} world;

/* n devices; all pairs alike, at `peer` bytes a second. */
static void open_machine(world *w, uint32_t n, double peer) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) w->peer[i * n + j] = i == j ? 1500e9 : peer;
        w->host[i] = 24e9, w->root[i] = 24e9, w->roots[i] = i;
    }
    w->machine = (frugal_place_machine){.devices = n, .row_bytes = 512, .peer = w->peer, .host = w->host};
}

/* Touches of a Zipf distribution over `rows`, in levels that each have as many times more rows than the last. */
static void fill_levels(world *w, uint64_t rows, double skew, uint32_t n, uint64_t capacity) {
    double all = 0, x = 0;
    w->n_levels = 0, w->rows = rows;
    for (uint32_t l = 0; l < n; l++) {
        double end = l + 1 == n ? (double)rows : floor(pow((double)rows, (l + 1.0) / n)), sum = 0;
        if (end <= x) continue;
        for (double i = x; i < end; i++) sum += pow(i + 1, -skew);
        w->levels[w->n_levels++] = (frugal_place_level){.touches = sum / (end - x), .rows = (uint64_t)(end - x)};
        all += sum, x = end;
    }
    for (uint32_t l = 0; l < w->n_levels; l++) w->levels[l].touches *= 1e5 / all;
    w->machine.capacity = capacity;
}

/* Two switches, of which every other device belongs to the first, if `mixed`. */
static int on_first(uint32_t n, uint32_t i, int mixed) {
    return mixed ? i % 2 == 0 : i < n / 2;
}
static void open_switches(world *w, uint32_t n, double within, double across, int mixed) {
    open_machine(w, n, within);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            if (on_first(n, i, mixed) != on_first(n, j, mixed)) w->peer[i * n + j] = across;
}

/* Groups within groups: a pair has speeds[k] if the smallest group that has both is one of 2^(k + 1) devices. */
static void open_nested(world *w, uint32_t n, const double *speeds) {
    open_machine(w, n, 0);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            uint32_t k = 0;
            while ((i ^ j) >> (k + 1)) k++;
            if (i != j) w->peer[i * n + j] = speeds[k];
        }
}

/* Eight V100 as in UGache's Figure 3 (b): links of 25 GB/s, two of them between some pairs, none between others. */
static void open_mesh(world *w) {
    static const char links[8][9] = {"-1122---", "1-21-2--", "12-2--1-", "212----1",
                                     "2---1122", "-2--1-21", "--1-12-2", "---12122"};
    open_machine(w, 8, 0);
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < 8; j++) {
            char link = links[i > j ? i : j][i > j ? j : i]; /* both directions are alike */
            if (i != j) w->peer[i * 8 + j] = link == '-' ? 0 : 25e9 * (link - '0');
        }
}

/* Draws a skew, of `steps` from `least` on, and a capacity. (Arguments that draw would do so in an order of the
 * compiler's.) */
static void draw_levels(world *w, test_random *r, uint64_t rows, double least, uint32_t steps, uint32_t n, uint64_t low,
                        uint64_t high) {
    double skew = least + .1 * (double)test_below(r, steps);
    fill_levels(w, rows, skew, n, test_between(r, low, high));
}

static void random_world(world *w, test_random *r) {
    uint32_t n = (uint32_t)test_between(r, 1, 12);
    open_machine(w, n, 40e9);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            w->peer[i * n + j] = w->peer[j * n + i] = test_chance(r, 20) ? 0 : 1e9 * (double)test_between(r, 5, 50);
    if (test_chance(r, 30)) {
        for (uint32_t i = 0; i < n; i++) w->roots[i] = i / 2;
        w->machine.roots = w->roots, w->machine.root = w->root;
    }
    uint64_t rows = test_between(r, 1, 3000);
    uint32_t levels = (uint32_t)test_between(r, 1, 40);
    draw_levels(w, r, rows, .3, 12, levels, 0, 799);
    w->machine.writes = test_chance(r, 20) ? .5 : 0;
}

/* Levels of so many rows that a group's devices have equal shares of each, nearly. */
static void fill_blocks(world *w, test_random *r) {
    double touches = 20;
    w->n_levels = (uint32_t)test_between(r, 3, 10), w->rows = 0;
    for (uint32_t l = 0; l < w->n_levels; l++) {
        w->levels[l] = (frugal_place_level){.touches = touches, .rows = test_between(r, 5000, 9000)};
        w->rows += w->levels[l].rows;
        touches *= .01 * (double)test_between(r, 20, 100);
    }
    w->machine.capacity = test_below(r, w->rows / 2);
}

static frugal_place_plan make_plan(const world *w, frugal_place_policy policy) {
    frugal_place_plan plan;
    assert_int_equal(frugal_place_make_plan(&w->machine, w->levels, w->n_levels, policy, &plan), FRUGAL_PLACE_OK);
    assert_int_equal(plan.devices, w->machine.devices);
    return plan;
}

/* >>where rows lie */

static void test_places(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_places", 22)};
    static world w;
    static uint8_t keeps[DEVICES][3000];
    for (int round = 0; round < (int)test_rounds(400); round++) {
        random_world(&w, &r);
        frugal_place_plan plan = make_plan(&w, policies[round % 4]);
        for (uint32_t d = 0; d < plan.devices; d++) {
            uint64_t slots = frugal_place_slots(&plan, d);
            assert_true(slots <= w.machine.capacity);
            memset(keeps[d], 0, sizeof keeps[d]);
            for (uint64_t slot = 0; slot < slots; slot++) {
                uint64_t at = frugal_place_position(&plan, d, slot);
                assert_true(at < w.rows && !keeps[d][at]);
                keeps[d][at] = 1;
                assert_int_equal(frugal_place_slot(&plan, d, at), slot);
                assert_int_equal(frugal_place_source(&plan, d, at), d); /* its own copy is nearest */
            }
            assert_true(frugal_place_position(&plan, d, slots) == UINT64_MAX);
        }
        for (uint32_t d = 0; d < plan.devices; d++)
            for (uint64_t x = 0; x < w.rows; x++) {
                uint32_t source = frugal_place_source(&plan, d, x);
                if (!keeps[d][x]) assert_true(frugal_place_slot(&plan, d, x) == UINT64_MAX);
                if (source == FRUGAL_PLACE_HOST) {
                    assert_false(keeps[d][x]);
                    continue;
                }
                assert_true(keeps[source][x]);
                assert_true(w.peer[d * plan.devices + source] > 0);
            }
    }
}

/* >>what is predicted */

/* The seconds of the slowest device, of the rows' sources one by one. *most: by how much a prediction may differ, which
 * divides the touches of each level and pattern evenly among the devices of a group: a row of each, more or less. */
static double sum_up(const world *w, const frugal_place_plan *plan, double *most) {
    const frugal_place_machine *m = &w->machine;
    uint32_t n = plan->devices;
    double slowest = 0, touched[DEVICES + 1], root_rows[DEVICES] = {0}, host_rows[DEVICES], all = 0, odd = 0;
    static double rows[DEVICES][DEVICES + 1];
    memset(rows, 0, sizeof rows);
    for (uint32_t l = 0; l < w->n_levels; l++) odd += w->levels[l].touches;
    odd += w->levels[0].touches * plan->n;
    for (uint32_t d = 0; d < n; d++) {
        uint64_t x = 0;
        memset(touched, 0, sizeof touched);
        all = 0;
        for (uint32_t l = 0; l < w->n_levels; l++)
            for (uint64_t end = x + w->levels[l].rows; x < end; x++) {
                rows[d][frugal_place_source(plan, d, x)] += w->levels[l].touches;
                all += w->levels[l].touches;
            }
    }
    for (uint32_t d = 0; d < n; d++) {
        host_rows[d] = rows[d][FRUGAL_PLACE_HOST] + m->writes * all;
        if (m->roots) root_rows[m->roots[d]] += host_rows[d];
    }
    *most = 0;
    for (uint32_t d = 0; d < n; d++) {
        double links = 0, host_share = m->host_share > 0 ? m->host_share : .0625, worst, least = 1e300;
        double host = host_rows[d] * (double)m->row_bytes / w->host[d];
        if (m->roots) host = fmax(host, root_rows[m->roots[d]] * (double)m->row_bytes / w->root[m->roots[d]]);
        double cores = host_share * host + rows[d][d] * (double)m->row_bytes / w->peer[d * n + d];
        worst = host;
        for (uint32_t j = 0; j < n; j++) links += j == d ? 0 : w->peer[d * n + j];
        for (uint32_t j = 0; j < n; j++) {
            if (j == d || rows[d][j] == 0) continue;
            double seconds = rows[d][j] * (double)m->row_bytes / w->peer[d * n + j];
            cores += (1 - host_share) * w->peer[d * n + j] / links * seconds;
            worst = fmax(worst, seconds);
            least = fmin(least, w->peer[d * n + j]);
        }
        slowest = fmax(slowest, fmax(worst, cores));
        *most = fmax(*most, 2 * odd * (double)m->row_bytes / fmin(least, w->host[d]));
    }
    return slowest;
}

/* The touches of the rows of each pattern, and, last, of the host's. */
static void divide(const world *w, const frugal_place_plan *plan, double touches[FRUGAL_PLACE_MAX_PATTERNS + 1]) {
    uint64_t left = plan->patterns[0].rows, p = 0;
    memset(touches, 0, (FRUGAL_PLACE_MAX_PATTERNS + 1) * sizeof *touches);
    for (uint32_t l = 0; l < w->n_levels; l++)
        for (uint64_t rows = w->levels[l].rows, n; rows > 0; rows -= n, left -= n) {
            for (; left == 0; p++) left = p + 1 < plan->n ? plan->patterns[p + 1].rows : UINT64_MAX;
            n = rows < left ? rows : left;
            touches[p] += (double)n * w->levels[l].touches;
        }
}

static void test_prediction(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_prediction", 23)};
    static world w;
    int sharp = 0; /* rounds in which little may differ */
    for (int round = 0; round < (int)test_rounds(200); round++) {
        random_world(&w, &r);
        fill_blocks(&w, &r);
        frugal_place_plan plan = make_plan(&w, policies[round % 4]);
        double most, seconds = sum_up(&w, &plan, &most);
        sharp += most < .02 * seconds;
        if (fabs(seconds - plan.seconds) > most + 1e-9 * seconds)
            fail_msg("round %d: %.9g s predicted, %.9g s summed up, %.3g allowed", round, plan.seconds, seconds, most);
        assert_true(fabs(plan.own_share + plan.peer_share + plan.host_share - 1) < 1e-9);
        assert_true(plan.host_seconds <= plan.seconds && plan.peer_seconds <= plan.seconds);
        assert_true(plan.own_seconds <= plan.seconds);
        double touches[FRUGAL_PLACE_MAX_PATTERNS + 1];
        divide(&w, &plan, touches);
        assert_true(fabs(frugal_place_predict(&w.machine, &plan, touches) - plan.seconds) <= 1e-9 * plan.seconds);
    }
    assert_true(sharp > (int)test_rounds(150));
}

/* A plan is not slower than any other policy's, nor than thresholds drawn at random. */
static void test_planned_is_fastest(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_planned_is_fastest", 24)};
    static world w;
    for (int round = 0; round < (int)test_rounds(60); round++) {
        if (round % 3 == 0)
            open_switches(&w, 8, 40e9, 4e9 * (double)test_between(&r, 1, 9), round % 2);
        else if (round % 3 == 1) {
            uint32_t n = (uint32_t)test_between(&r, 2, 8);
            open_machine(&w, n, 1e9 * (double)test_between(&r, 10, 200));
        } else
            open_mesh(&w);
        uint64_t rows = test_between(&r, 2000, 100000);
        draw_levels(&w, &r, rows, .2, 14, 64, rows / 100, rows / 2);
        frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED), drawn = plan;
        double most, unused, seconds = sum_up(&w, &plan, &most);
        for (int i = 1; i < 4; i++)
            assert_true(plan.seconds <= make_plan(&w, policies[i]).seconds * (1 + 1e-3)); /* whole rows */
        for (int i = 0; i < 50 / SHORTER; i++) {
            uint64_t left = w.machine.capacity, all = rows;
            for (uint32_t p = 0; p < drawn.n; p++) {
                uint64_t used = p + 1 == drawn.n ? left : test_below(&r, left + 1), size = drawn.patterns[p].size;
                drawn.patterns[p].rows = used * size < all ? used * size : all;
                all -= drawn.patterns[p].rows, left -= used;
            }
            double other = sum_up(&w, &drawn, &unused);
            if (seconds > other * (1 + 1e-3) + most) fail_msg("%.6g s, but %.6g s by chance", seconds, other);
        }
    }
}

/* >>machines */

static void test_groups(void **state) {
    (void)state;
    static world w;
    frugal_place_plan plan;
    for (int mixed = 0; mixed < 2; mixed++) {
        open_switches(&w, 8, 40e9, 10e9, mixed);
        fill_levels(&w, 10000, .9, 64, 500);
        plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
        assert_int_equal(plan.n, 3);
        assert_int_equal(plan.patterns[0].size, 1);
        assert_int_equal(plan.patterns[1].size, 4);
        assert_int_equal(plan.patterns[2].size, 8);
        for (uint32_t i = 0; i < 8; i++)
            for (uint32_t j = 0; j < 8; j++)
                assert_int_equal(plan.patterns[1].group[i] == plan.patterns[1].group[j],
                                 on_first(8, i, mixed) == on_first(8, j, mixed));
    }
    open_switches(&w, 6, 40e9, 10e9, 0); /* three on each */
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_int_equal(plan.n, 3);
    assert_int_equal(plan.patterns[1].size, 3);
    open_machine(&w, 4, 40e9); /* 0 reads 1, but not the other way round: no group has both */
    w.peer[1 * 4 + 0] = 0;
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_true(plan.n == 3 && plan.patterns[1].size == 2 && plan.patterns[2].size == 4);
    assert_true(plan.patterns[1].group[0] != plan.patterns[1].group[1]);
    assert_int_equal(make_plan(&w, FRUGAL_PLACE_PARTITIONED).patterns[1].size,
                     2); /* all of whose pairs are connected */
    open_mesh(&w); /* not all pairs are connected: two groups of four, as Quiver divides it, or pairs with two links; or
                      one copy, which five read */
    w.machine.capacity = 500;
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_int_equal(plan.n, 4);
    assert_int_equal(plan.patterns[3].size, 8);
    assert_int_equal(plan.patterns[1].size, 2);
    assert_int_equal(plan.patterns[2].size, 4);
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < i; j++) {
            if (plan.patterns[1].group[i] == plan.patterns[1].group[j]) assert_true(w.peer[i * 8 + j] == 50e9);
            if (plan.patterns[2].group[i] == plan.patterns[2].group[j]) assert_true(w.peer[i * 8 + j] > 0);
        }
}

/* Of more sizes than there may be, the largest are tried, and the single devices. */
static void test_many_sizes(void **state) {
    (void)state;
    static const double speeds[] = {200e9, 100e9, 50e9, 25e9, 12e9};
    static const uint32_t sizes[] = {1, 4, 8, 16, 32};
    static world w;
    open_nested(&w, 32, speeds);
    fill_levels(&w, 1000, .9, 8, 50);
    frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_int_equal(plan.n, FRUGAL_PLACE_MAX_PATTERNS);
    for (uint32_t i = 0; i < plan.n; i++) assert_int_equal(plan.patterns[i].size, sizes[i]);
    for (uint32_t d = 0; d < 32; d++) assert_true(frugal_place_slots(&plan, d) <= 50);
    for (int i = 1; i < 4; i++) assert_true(plan.seconds <= make_plan(&w, policies[i]).seconds * (1 + 1e-3));
}

/* Most rows are in one level, and from where the search for shares ends it is a way of millions of rows along a slope
 * that is nearly level: it is not gone to its end. */
static void test_long_way(void **state) {
    (void)state;
    static const double speeds[] = {156.329e9, 50.5241e9, 16.3289e9};
    static const double own[] = {202.846, 181.849, 104.72, 448.245, 269.344, 142.409, 158.99, 316.626};
    static const double host[] = {27.3736, 15.5338, 4.45192, 23.9054, 90.9648, 1.52606, 22.701, 1.31291};
    static const double root[] = {6.00752, 8.18746, 5.03937, 4.16749};
    static const frugal_place_level levels[] = {
        {6.38471, 2},       {0.18021, 2},         {0.0811369, 70},         {0.0405873, 9},
        {0.00365841, 548},  {0.000768039, 11836}, {0.000173854, 870817},   {3.44483e-05, 1085},
        {2.17089e-05, 276}, {1.20415e-05, 2382},  {6.30701e-07, 371610057}};
    static world w;
    open_nested(&w, 8, speeds);
    for (uint32_t i = 0; i < 8; i++) {
        w.peer[i * 8 + i] = 1e9 * own[i], w.host[i] = 1e9 * host[i];
        w.roots[i] = i / 2, w.root[i] = 1e9 * root[i % 4];
    }
    w.machine.roots = w.roots, w.machine.root = w.root;
    w.machine.capacity = 563262363, w.machine.host_share = .888895;
    w.n_levels = sizeof levels / sizeof *levels;
    memcpy(w.levels, levels, sizeof levels);
    frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_int_equal(plan.n, 4);
    for (int i = 1; i < 4; i++) assert_true(plan.seconds <= make_plan(&w, policies[i]).seconds * (1 + 1e-3));
}

/* The best shares of three sizes are no whole rows, and all of them are rounded up: no device gets more rows than it
 * can keep. */
static void test_rounded_up(void **state) {
    (void)state;
    const double speeds[] = {28e9 * 1.39 * 2.85, 28e9 * 1.39, 28e9};
    static world w;
    open_nested(&w, 8, speeds);
    for (uint64_t capacity = 38; capacity < 41; capacity++) {
        fill_levels(&w, 276, .3, 4, capacity);
        frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
        assert_int_equal(plan.n, 4);
        for (uint32_t d = 0; d < 8; d++) assert_true(frugal_place_slots(&plan, d) <= capacity);
    }
}

/* Few rows, the first of which are touched more than many others together: no division by whole rows is faster. */
static void test_whole_rows(void **state) {
    (void)state;
    test_random r = {.seed = test_seed("test_whole_rows", 26)};
    static world w;
    for (int round = 0; round < (int)test_rounds(100); round++) {
        open_switches(&w, 4, 40e9, 1e9 * (double)test_between(&r, 5, 38), 0);
        draw_levels(&w, &r, 250, .5, 16, 250, 3, 70);
        frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED), tried = plan;
        assert_int_equal(plan.n, 3);
        double least = plan.seconds;
        for (uint64_t alone = 0; alone <= w.machine.capacity; alone++)
            for (uint64_t twos = 0; alone + twos <= w.machine.capacity; twos++) {
                uint64_t left = 250 - alone, fours = 4 * (w.machine.capacity - alone - twos);
                tried.patterns[0].rows = alone;
                tried.patterns[1].rows = 2 * twos < left ? 2 * twos : left;
                left -= tried.patterns[1].rows;
                tried.patterns[2].rows = fours < left ? fours : left;
                double touches[FRUGAL_PLACE_MAX_PATTERNS + 1];
                divide(&w, &tried, touches);
                double seconds = frugal_place_predict(&w.machine, &tried, touches);
                if (seconds < least) least = seconds;
            }
        if (plan.seconds > least * (1 + 1e-3)) fail_msg("round %d: %.9g s, but %.9g s", round, plan.seconds, least);
    }
}

static void test_ends(void **state) {
    (void)state;
    static world w;
    open_machine(&w, 4, 0); /* nobody can read a peer: all keep the hottest rows */
    fill_levels(&w, 10000, .9, 64, 500);
    frugal_place_plan plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_int_equal(plan.n, 1);
    assert_true(plan.patterns[0].rows == 500 && plan.peer_share == 0);
    assert_int_equal(make_plan(&w, FRUGAL_PLACE_PARTITIONED).patterns[0].rows, 500);
    open_machine(&w, 4, 40e9);
    w.machine.capacity = 0;
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_true(plan.host_share == 1 && frugal_place_source(&plan, 3, 0) == FRUGAL_PLACE_HOST);
    w.machine.capacity = UINT64_MAX; /* room for all rows */
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_true(plan.own_share == 1 && plan.patterns[0].rows == 10000);
    w.machine.capacity = 2500; /* room for all rows, once */
    plan = make_plan(&w, FRUGAL_PLACE_PARTITIONED);
    assert_true(plan.host_share == 0 && plan.patterns[1].rows == 10000);
    w.n_levels = 0; /* no rows */
    plan = make_plan(&w, FRUGAL_PLACE_PLANNED);
    assert_true(plan.seconds == 0 && frugal_place_slots(&plan, 0) == 0);
    open_machine(&w, 1, 0);
    fill_levels(&w, 10000, .9, 64, 500);
    assert_int_equal(make_plan(&w, FRUGAL_PLACE_TWO_TIERS).patterns[0].rows, 500);
}

/* The link to the host: shared by devices, and by what is written. */
static void test_host(void **state) {
    (void)state;
    static world w;
    open_machine(&w, 4, 0);
    fill_levels(&w, 10000, .9, 64, 0);
    double alone = make_plan(&w, FRUGAL_PLACE_PLANNED).seconds;
    assert_true(fabs(alone - 1e5 * 512 / 24e9) < 1e-9 * alone);
    for (uint32_t i = 0; i < 4; i++) w.roots[i] = i / 2;
    w.machine.roots = w.roots, w.machine.root = w.root;
    assert_true(fabs(make_plan(&w, FRUGAL_PLACE_PLANNED).seconds - 2 * alone) < 1e-9 * alone);
    w.machine.writes = .25;
    assert_true(fabs(make_plan(&w, FRUGAL_PLACE_PLANNED).seconds - 2.5 * alone) < 1e-9 * alone);
    w.machine.capacity = 10000; /* what is written still is */
    assert_true(fabs(make_plan(&w, FRUGAL_PLACE_PLANNED).host_seconds - .5 * alone) < 1e-9 * alone);
}

/* >>UGache's linear program */

/* The least milliseconds by GLPK. */
static double solve(const world *w) {
    const char *program = scratch_path("program"), *solution = scratch_path("solution");
    char command[1024], line[256];
    double least = -1;
    FILE *f = fopen(program, "w");
    assert_non_null(f);
    peers_write_program(f, &w->machine, w->levels, w->n_levels);
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof command, "glpsol --interior --lp %s -o %s >%s", program, solution, scratch_path("log"));
    assert_int_equal(system(command), 0);
    f = fopen(solution, "r");
    assert_non_null(f);
    while (least < 0 && fgets(line, sizeof line, f)) sscanf(line, "Objective: obj = %lf (MINimum)", &least);
    fclose(f);
    assert_true(least >= 0);
    return least;
}

static void need_solver(void) {
    if (!system("glpsol --version >/dev/null 2>&1")) return;
    print_message("no glpsol: apt install glpk-utils\n");
    skip();
}

/* Where some pairs are not connected: its optimum is that of whole rows. */
static void test_linear_program_of_a_mesh(void **state) {
    (void)state;
    static world w;
    need_solver();
    test_random r = {.seed = test_seed("test_linear_program_of_a_mesh", 27)};
    for (int round = 0; round < (test_is_short() ? 2 : 12); round++) {
        open_mesh(&w);
        if (round % 2) /* bandwidths as measured: they scatter */
            for (uint32_t i = 0; i < 64; i++) w.peer[i] *= 1 - .0001 * (double)test_below(&r, 100);
        draw_levels(&w, &r, 1000000, .3, 11, 48, 5000, 300000);
        double planned = make_plan(&w, FRUGAL_PLACE_PLANNED).seconds * 1e3, least = solve(&w);
        if (planned > (round % 2 ? 1.02 : 1.01) * least || planned < least * (1 - 1e-4))
            fail_msg("round %d: planned %.9g ms, %.9g ms", round, planned, least);
    }
    scratch_look(1);
}

static void test_linear_program(void **state) {
    (void)state;
    static world w;
    need_solver();
    test_random r = {.seed = test_seed("test_linear_program", 25)};
    for (int round = 0; round < (test_is_short() ? 4 : 24); round++) {
        uint32_t levels = round < 4 && !test_is_short() ? LEVELS : 48; /* as many as a byte has, and fewer */
        if (round % 4 == 0)
            open_machine(&w, 4, 1e9 * (double)test_between(&r, 10, 100));
        else if (round % 4 == 1)
            open_machine(&w, 8, 1e9 * (double)test_between(&r, 10, 100));
        else if (round % 4 == 2)
            open_switches(&w, 8, 40e9, 1e9 * (double)test_between(&r, 5, 30), round % 8 == 2);
        else
            open_switches(&w, 4, 40e9, 1e9 * (double)test_between(&r, 5, 30), 0);
        draw_levels(&w, &r, 1000000, .3, 11, levels, 5000, 300000);
        if (test_chance(&r, 30)) { /* pairs below a root, which is no faster than one of them */
            for (uint32_t i = 0; i < w.machine.devices; i++) w.roots[i] = i / 2;
            w.machine.roots = w.roots, w.machine.root = w.root;
        }
        if (test_chance(&r, 30)) w.machine.writes = .1, w.machine.host_share = .2;
        double planned = make_plan(&w, FRUGAL_PLACE_PLANNED).seconds * 1e3, least = solve(&w);
        if (fabs(planned - least) > 1e-4 * least) fail_msg("round %d: planned %.9g ms, %.9g ms", round, planned, least);
    }
    scratch_look(1);
}

/* >>errors */

/* The plan is refused, and nothing is written. */
static void refuse(const world *w, frugal_place_status expected) {
    frugal_place_plan plan, before;
    memset(&plan, 0xa5, sizeof plan);
    memcpy(&before, &plan, sizeof plan);
    assert_int_equal(frugal_place_make_plan(&w->machine, w->levels, w->n_levels, FRUGAL_PLACE_PLANNED, &plan),
                     expected);
    assert_memory_equal(&plan, &before, sizeof plan);
    assert_true(strlen(frugal_place_strerror(expected)) > 20);
}

static void refuse_number(world *w, double *at, double number, frugal_place_status expected) {
    double before = *at;
    *at = number;
    refuse(w, expected);
    *at = before;
}

static void test_errors(void **state) {
    (void)state;
    static world w;
    open_machine(&w, 4, 40e9);
    fill_levels(&w, 1000, .9, 16, 50);
    w.machine.roots = w.roots, w.machine.root = w.root;
    frugal_place_machine right = w.machine;
    make_plan(&w, FRUGAL_PLACE_PLANNED);
    const double bad[] = {-1, (double)NAN, (double)INFINITY};
    for (int i = 0; i < 3; i++) {
        refuse_number(&w, &w.peer[1], bad[i], FRUGAL_PLACE_MACHINE);
        refuse_number(&w, &w.host[3], bad[i], FRUGAL_PLACE_MACHINE);
        refuse_number(&w, &w.root[3], bad[i], FRUGAL_PLACE_MACHINE);
        refuse_number(&w, &w.machine.writes, bad[i], FRUGAL_PLACE_MACHINE);
        refuse_number(&w, &w.machine.host_share, bad[i], FRUGAL_PLACE_MACHINE);
        refuse_number(&w, &w.levels[2].touches, bad[i], FRUGAL_PLACE_LEVELS);
    }
    refuse_number(&w, &w.peer[5], 0, FRUGAL_PLACE_MACHINE); /* its own memory */
    refuse_number(&w, &w.host[0], 0, FRUGAL_PLACE_MACHINE);
    refuse_number(&w, &w.root[0], 0, FRUGAL_PLACE_MACHINE);
    refuse_number(&w, &w.machine.host_share, 1.5, FRUGAL_PLACE_MACHINE);
    refuse_number(&w, &w.levels[2].touches, w.levels[1].touches * 2, FRUGAL_PLACE_LEVELS); /* rising */
    w.roots[2] = 4;
    refuse(&w, FRUGAL_PLACE_MACHINE);
    w.roots[2] = 2;
    for (int i = 0; i < 7; i++) {
        w.machine = right;
        if (i < 2) w.machine.devices = i * (FRUGAL_PLACE_MAX_DEVICES + 1);
        if (i == 2) w.machine.peer = NULL;
        if (i == 3) w.machine.host = NULL;
        if (i == 4) w.machine.row_bytes = 0;
        if (i == 5) w.machine.roots = NULL;
        if (i == 6) w.machine.root = NULL;
        refuse(&w, FRUGAL_PLACE_MACHINE);
    }
    w.machine = right;
    w.levels[3].rows = UINT64_C(1) << 63;
    refuse(&w, FRUGAL_PLACE_LEVELS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_planned_is_fastest),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_many_sizes),
        cmocka_unit_test(test_long_way),
        cmocka_unit_test(test_rounded_up),
        cmocka_unit_test(test_whole_rows),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_linear_program),
        cmocka_unit_test(test_linear_program_of_a_mesh),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
