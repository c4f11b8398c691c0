/* ids.c - the example of frugal_ids.h, section 5, as a program. tests/compile/example checks that both agree.
 *
 * News articles: each has an id of 64 bits, is read much while it is new, and never again. Far more of them come than
 * there are rows.
 *
 *     build/ids        (or: cc -std=c11 -O2 -I. examples/ids.c)
 */
#include <stdio.h>
#include <stdlib.h>

#define FRUGAL_IDS_IMPLEMENTATION
#include "frugal_ids.h"

enum { STEPS = 2000, N = 256 };

static uint64_t ids[N];
static uint32_t places[N], before[N];
static frugal_ids_noted noted[N];
static uint64_t read, without;

/* Ten new articles in each step; those of the last 100 steps are read. */
static void draw_ids(uint64_t step) {
    uint64_t x = step;
    for (int i = 0; i < N; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (10 * step + (x >> 33) % 1000) * 0x9E3779B97F4A7C15u;
    }
}

static void train(void) {
    for (int i = 0; i < N; i++, read++) without += places[i] == FRUGAL_IDS_NONE;
}

int main(void) {
    frugal_ids_desc desc = {.places = 4096, .admit_after = 2, .hold = 12};
    void *memory = aligned_alloc(FRUGAL_IDS_ALIGN, frugal_ids_footprint(&desc));
    frugal_ids *m = frugal_ids_init(memory, &desc);
    frugal_ids_part part = {.ids = ids, .n = N, .places = places, .before = before, .noted = noted};
    for (uint64_t step = 0; step < STEPS; step++) {
        draw_ids(step);
        frugal_ids_begin(m, step);
        frugal_ids_find(m, &part);
        for (uint32_t piece = 0; piece < frugal_ids_pieces(m); piece++) frugal_ids_admit(m, &part, 1, piece);
        train();
    }
    frugal_ids_report report = frugal_ids_get_report(m);
    printf("%llu ids got one of %llu places, %llu of them another id's; %.1f%% of the touches had none\n",
           (unsigned long long)report.admitted, (unsigned long long)report.places, (unsigned long long)report.evicted,
           100.0 * (double)without / (double)read);
    free(memory);
    return 0;
}
