/* Caches whose eviction knows the announced steps, simulated. */
#include "bench/place/ahead.h"

#include "bench/program.h"

#include <stdlib.h>
#include <string.h>

enum { WAYS = 8 };
enum { EVERYONE = 255, NOBODY = 254 }; /* holders that are no device */
#define NO_ROW  UINT32_MAX
#define NO_STEP UINT32_MAX

const char *const place_rules[PLACE_RULES + 1] = {"worth", "protect", "admit", "current", "belady", NULL};

typedef struct place { /* of a copy */
    uint64_t stay;     /* the copy with the least is the victim */
    uint32_t row;      /* NO_ROW: free */
    uint32_t read;     /* the step in which its row was read */
    uint32_t again;    /* as place_touch.again */
} place;

typedef struct simulation {
    const place_future *future;
    place_rule rule;
    uint32_t lookahead;
    uint64_t devices, rows, sets, step;
    place *places;       /* places[devices][sets][WAYS] */
    uint32_t *announced; /* announced[devices][rows]: the last step for which a row is announced, plus 1 */
    uint64_t *window;    /* window[devices]: rows announced for this step or a later one */
    uint8_t *holders;    /* holders[rows], before this step */
} simulation;

static place *set_of(const simulation *s, uint64_t d, uint32_t row) { /* the hash of src/devices/cpu.c */
    return s->places + (d * s->sets + (((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * s->sets >> 32)) * WAYS;
}

/* A hit that is not counted is worth nothing to Belady's rule. Of hits in the same step the row's order decides. */
static uint64_t stay_of(const simulation *s, uint64_t d, uint32_t row, uint32_t again) {
    const place_run *run = &s->future->run;
    if (s->rule != PLACE_BELADY) return s->future->worth[d * s->rows + row];
    return again < run->warm_up || again >= run->warm_up + run->steps ? 0 : ~((uint64_t)again << 32 | row);
}

static int is_current(const simulation *s, uint64_t d, uint32_t row) {
    return s->holders[row] == EVERYONE || s->holders[row] == d;
}

/* Has the device announced the row for a later step, and does the rule ask? */
static int is_wanted_later(const simulation *s, uint64_t d, uint32_t row, uint32_t again) {
    if (s->rule == PLACE_WORTH || s->rule == PLACE_BELADY || s->announced[d * s->rows + row] <= s->step + 1) return 0;
    return s->rule != PLACE_CURRENT || again != PLACE_NEVER;
}

/* An outdated copy brings no hit, whatever its row. One that was read in this step is not outdated yet. */
static void drop_outdated(const simulation *s, uint64_t d, place *set) {
    for (place *p = set; p < set + WAYS; p++)
        if (p->row != NO_ROW && p->read != s->step && !is_current(s, d, p->row)) p->row = NO_ROW;
}

/* The place of the row's copy, else a free one, else that of the copy that may be evicted and should stay least; NULL
 * if none may be. */
static place *place_for(const simulation *s, uint64_t d, place *set, uint32_t row) {
    place *found = NULL;
    for (place *p = set; p < set + WAYS; p++) {
        if (p->row == row) return p;
        if (found && found->row == NO_ROW) continue;
        int is_free = p->row == NO_ROW, may_go = is_free || !is_wanted_later(s, d, p->row, p->again);
        if (may_go && (is_free || !found || p->stay < found->stay)) found = p;
    }
    return found;
}

/* Returns whether it is a hit. */
static int look_up(const simulation *s, uint64_t d, const place_touch *touch) {
    if (s->sets == 0) return 0;
    place *set = set_of(s, d, touch->row);
    drop_outdated(s, d, set);
    place *p = place_for(s, d, set, touch->row);
    if (!p) return 0;
    uint64_t stay = stay_of(s, d, touch->row, touch->again);
    int is_there = p->row == touch->row;
    int is_admitted = s->rule != PLACE_PROTECT && is_wanted_later(s, d, touch->row, touch->again);
    if (is_there || p->row == NO_ROW || stay > p->stay || is_admitted)
        *p = (place){stay, touch->row, (uint32_t)s->step, touch->again};
    if (s->rule == PLACE_BELADY && stay == 0 && p->row == touch->row) p->row = NO_ROW; /* it brings nothing */
    return is_there;
}

/* As place_preload and the library do it: a row whose set is full is not preloaded. */
static void preload(const simulation *s, uint64_t d, uint64_t cache_rows) {
    const place_partition *p = s->future->run.partition;
    for (uint64_t i = 0; i < p->n_ranked[d] && i < 4 * cache_rows; i++) {
        uint32_t row = (uint32_t)p->ranked[d * s->rows + i], again = s->future->again[d * s->rows + row];
        place *set = set_of(s, d, row), *at = set;
        while (at < set + WAYS && at->row != NO_ROW) at++;
        if (at < set + WAYS) *at = (place){stay_of(s, d, row, again), row, NO_STEP, again};
    }
}

static void announce(const simulation *s, uint64_t d, uint64_t step) {
    uint64_t list = step * s->devices + d;
    for (uint64_t i = s->future->first[list]; i < s->future->first[list + 1]; i++) {
        uint32_t *last = &s->announced[d * s->rows + s->future->touches[i].row];
        s->window[d] += *last <= s->step;
        *last = (uint32_t)step + 1;
    }
}

/* All devices look up the step, and then the next holders are known. */
static void take_step(const simulation *s, place_ahead *sum) {
    const place_touch *touches = s->future->touches;
    const uint64_t *first = s->future->first + s->step * s->devices;
    for (uint64_t d = 0; d < s->devices; d++) {
        announce(s, d, s->step + s->lookahead);
        sum->window += (double)s->window[d];
        sum->reads.rows += (double)(first[d + 1] - first[d]);
        for (uint64_t i = first[d]; i < first[d + 1]; i++) {
            sum->reads.read += !look_up(s, d, &touches[i]);
            s->window[d] -= s->announced[d * s->rows + touches[i].row] == s->step + 1;
        }
    }
    for (uint64_t d = 0; d < s->devices; d++)
        for (uint64_t i = first[d]; i < first[d + 1]; i++)
            s->holders[touches[i].row] = touches[i].alone ? (uint8_t)d : NOBODY;
}

static void open_simulation(simulation *s, uint64_t cache_rows) {
    s->places = place_allocate(s->devices * s->sets * WAYS, sizeof *s->places);
    s->announced = place_allocate(s->devices * s->rows, sizeof *s->announced);
    s->window = place_allocate(s->devices, sizeof *s->window);
    s->holders = place_allocate(s->rows, sizeof *s->holders);
    memset(s->holders, EVERYONE, (size_t)s->rows);
    for (uint64_t i = 0; i < s->devices * s->sets * WAYS; i++) s->places[i].row = NO_ROW;
    for (uint64_t d = 0; d < s->devices; d++) {
        preload(s, d, cache_rows);
        for (uint32_t step = 0; step < s->lookahead; step++) announce(s, d, step);
    }
}

place_ahead place_simulate(const place_future *f, uint64_t cache_rows, place_rule rule, uint32_t lookahead) {
    const place_run *run = &f->run;
    simulation s = {.future = f,
                    .rule = rule,
                    .lookahead = lookahead,
                    .devices = run->partition->devices,
                    .rows = run->partition->trace->rows,
                    .sets = (cache_rows + WAYS - 1) / WAYS};
    place_ahead sum = {.window = 0};
    open_simulation(&s, cache_rows);
    for (; s.step < run->warm_up + run->steps && !bench_interrupted(); s.step++) {
        if (s.step == run->warm_up) sum = (place_ahead){.window = 0};
        take_step(&s, &sum);
    }
    free(s.places), free(s.announced), free(s.window), free(s.holders);
    double steps = s.step > run->warm_up ? (double)(s.step - run->warm_up) : 1;
    return (place_ahead){.reads = {.rows = sum.reads.rows / steps, .read = sum.reads.read / steps},
                         .window = sum.window / steps / (double)s.devices};
}
