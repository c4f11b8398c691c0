/* Rows to machines, in one pass over those that are touched and one over the others. */
#include "trainers/common/homes.h"

#include <inttypes.h>
#include <stdlib.h>

/* Machines that read a row in at least this share of the most steps read it nearly as often. */
enum { NEARLY = 31, OF = 32 };

typedef struct homes_work {
    const homes_desc *desc;
    homes *out;
    uint64_t most;                       /* rows of a machine */
    uint64_t steps;                      /* of an epoch, in which all parts end together */
    uint64_t reads[FRUGAL_MAX_MACHINES]; /* of the row at hand, by machine */
} homes_work;

/* Fills reads[machines] and returns their sum: a device reads a row as often as its samples touch it, but at most once
 * a step. */
static uint64_t homes_count_reads(homes_work *w, uint64_t row) {
    const homes_desc *desc = w->desc;
    uint32_t each = desc->devices / desc->machines;
    uint64_t all = 0;
    for (uint32_t m = 0; m < desc->machines; m++) {
        w->reads[m] = 0;
        for (uint32_t d = m * each; d < (m + 1) * each; d++) {
            uint64_t touches = frugal_place_touches(desc->place, row, d);
            w->reads[m] += touches < w->steps ? touches : w->steps;
        }
        all += w->reads[m];
    }
    return all;
}

/* Of the machines that have room, that of the most reads; of those with nearly as many the one whose link has least,
 * then the one that has fewest rows, then the first. */
static uint32_t homes_choose(const homes_work *w) {
    const homes *h = w->out;
    uint32_t machines = w->desc->machines, best = machines;
    uint64_t most = 0;
    for (uint32_t m = 0; m < machines; m++)
        if (h->rows[m] < w->most && w->reads[m] > most) most = w->reads[m];
    for (uint32_t m = 0; m < machines; m++) {
        if (h->rows[m] >= w->most || w->reads[m] * OF < most * NEARLY) continue;
        int is_better = best == machines || h->link[m] < h->link[best] ||
                        (h->link[m] == h->link[best] && h->rows[m] < h->rows[best]);
        if (is_better) best = m;
    }
    return best;
}

static void homes_put(homes_work *w, uint64_t row, uint32_t machine, uint64_t all) {
    w->out->of[row] = (uint8_t)machine;
    w->out->rows[machine]++;
    for (uint32_t m = 0; m < w->desc->machines; m++) w->out->link[m] += m == machine ? all - w->reads[m] : w->reads[m];
}

static uint32_t homes_emptiest(const homes_work *w) {
    uint32_t best = 0;
    for (uint32_t m = 1; m < w->desc->machines; m++)
        if (w->out->rows[m] < w->out->rows[best]) best = m;
    return best;
}

int homes_make(homes *h, const homes_desc *desc, program_error *error) {
    homes_work w = {.desc = desc, .out = h};
    double most = HOMES_MOST * (double)desc->rows / desc->machines;
    *h = (homes){.of = malloc(desc->rows)};
    if (!h->of)
        return program_fail(error, "out of memory: a byte for each of %" PRIu64 " rows, its machine", desc->rows);
    w.most = (uint64_t)most + ((double)(uint64_t)most < most);
    for (uint32_t d = 0; d < desc->devices; d++) {
        uint64_t steps = (frugal_place_size(desc->place, d) + desc->batch - 1) / desc->batch;
        if (steps > w.steps) w.steps = steps;
    }
    for (uint64_t x = 0; x < desc->rows; x++) {
        uint64_t all = homes_count_reads(&w, x);
        if (all) homes_put(&w, x, homes_choose(&w), all);
    }
    for (uint64_t x = 0; x < desc->rows; x++)
        if (!homes_count_reads(&w, x)) homes_put(&w, x, homes_emptiest(&w), 0);
    return 0;
}

double homes_balance(const uint64_t *of_machines, uint32_t machines) {
    uint64_t most = 0, all = 0;
    for (uint32_t m = 0; m < machines; m++) {
        all += of_machines[m];
        if (of_machines[m] > most) most = of_machines[m];
    }
    return all ? (double)most * machines / (double)all : 1;
}

void homes_free(homes *h) {
    free(h->of);
    *h = (homes){0};
}
