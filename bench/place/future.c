/* What devices touch in the steps to come. */
#include "bench/place/future.h"

#include "bench/program.h"

#include <stdlib.h>
#include <string.h>

void *place_allocate(uint64_t n, size_t size) {
    void *memory = calloc((size_t)n + 1, size);
    if (!memory) bench_fail("no memory for %llu x %zu bytes; take fewer steps", (unsigned long long)n, size);
    return memory;
}

static int by_key(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void list_touches(place_future *f) {
    uint32_t devices = f->run.partition->devices;
    uint64_t n = (uint64_t)f->run.batch * f->run.partition->trace->width, at = 0, list = 0;
    uint64_t *keys = place_allocate(n, sizeof *keys);
    for (; list < f->end * devices; list++) {
        f->first[list] = at;
        if (bench_interrupted()) continue; /* no more touches */
        place_batch(f->run.deal, (uint32_t)(list % devices), list / devices, f->run.batch, keys);
        qsort(keys, (size_t)n, sizeof *keys, by_key);
        for (uint64_t i = 0; i < n; i++)
            if (i == 0 || keys[i] != keys[i - 1]) f->touches[at++].row = (uint32_t)keys[i];
    }
    f->first[list] = at;
    free(keys);
}

typedef struct nearest { /* the two nearest steps that touch a row, and a bit for each device that does */
    uint64_t devices[2];
    uint32_t step[2];
} nearest;

static void note(nearest *n, uint64_t step, uint64_t bit) {
    if (n->step[0] != step || n->devices[0] == 0) *n = (nearest){{0, n->devices[0]}, {(uint32_t)step, n->step[0]}};
    n->devices[0] |= bit;
}

/* A copy is current at the device's next touch if the device is alone now, and no other touches the row in a step
 * before that. */
static void tell(place_touch *touch, const nearest *n, uint64_t bit) {
    touch->alone = n->devices[0] == bit;
    touch->again = touch->alone && n->devices[1] & bit ? n->step[1] : PLACE_NEVER;
}

/* From the last step to the first. */
static void look_back(place_future *f) {
    uint64_t rows = f->run.partition->trace->rows, devices = f->run.partition->devices;
    nearest *near = place_allocate(rows, sizeof *near);
    for (uint64_t step = f->end; step-- > 0;) {
        const uint64_t *first = f->first + step * devices;
        for (uint64_t d = 0; d < devices; d++)
            for (uint64_t i = first[d]; i < first[d + 1]; i++) note(&near[f->touches[i].row], step, UINT64_C(1) << d);
        for (uint64_t d = 0; d < devices; d++)
            for (uint64_t i = first[d]; i < first[d + 1]; i++)
                tell(&f->touches[i], &near[f->touches[i].row], UINT64_C(1) << d);
    }
    for (uint64_t i = 0; i < devices * rows; i++) {
        const nearest *n = &near[i % rows];
        f->again[i] = n->devices[0] >> i / rows & 1 ? n->step[0] : PLACE_NEVER;
    }
    free(near);
}

void place_open_future(place_future *f, const place_run *run, uint32_t lookahead) {
    const place_partition *p = run->partition;
    uint64_t rows = p->trace->rows, end = run->warm_up + run->steps + lookahead;
    double touches = (double)end * p->devices * run->batch * p->trace->width;
    if (touches > 0x1p40) bench_fail("%g touches in %llu steps; take fewer", touches, (unsigned long long)end);
    *f = (place_future){.run = *run, .end = end};
    f->first = place_allocate(end * p->devices, sizeof *f->first);
    f->touches = place_allocate(end * p->devices * run->batch * p->trace->width, sizeof *f->touches);
    f->again = place_allocate(rows * p->devices, sizeof *f->again);
    f->worth = place_allocate(rows * p->devices, sizeof *f->worth);
    list_touches(f);
    look_back(f);
    for (uint64_t d = 0; d < p->devices; d++)
        for (uint64_t i = 0; i < p->n_ranked[d]; i++) f->worth[d * rows + p->ranked[d * rows + i]] = rows - i;
}

void place_close_future(place_future *f) {
    free(f->first), free(f->touches), free(f->again), free(f->worth);
    memset(f, 0, sizeof *f);
}
