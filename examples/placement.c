/* placement.c - the example of frugal_place.h, section 5, as a program. tests/compile/example checks that both agree.
 *
 * Each sample has three rows: two of its community, and one that is any row. There are two communities, and samples of
 * both come in turn, as in a log of two cities.
 *
 *     build/placement        (or: cc -std=c11 -O2 -I. examples/placement.c)
 */
#include <stdio.h>
#include <stdlib.h>

#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"

enum { ROWS = 1000, SAMPLES = 4000 };

static uint64_t keys[SAMPLES * 3];

static void fill_keys(void) {
    for (uint64_t s = 0; s < SAMPLES; s++)
        for (uint64_t i = 0; i < 3; i++) {
            uint64_t any = frugal_place_permute(i, SAMPLES, s) % ROWS;
            keys[3 * s + i] = i < 2 ? any / 2 * 2 + s % 2 : any; /* even rows are those of one city */
        }
}

int main(void) {
    fill_keys();
    frugal_place_desc desc = {.rows = ROWS, .parts = 2};
    void *memory = malloc(frugal_place_footprint(&desc));
    frugal_place *p = frugal_place_init(memory, &desc);
    frugal_place_samples samples = {.keys = keys, .n = SAMPLES, .width = 3};
    uint8_t parts[SAMPLES], to[SAMPLES];
    frugal_place_count(p, &samples);
    frugal_place_stream(p, &samples, parts);
    for (int pass = 0; pass < 4; pass++) {
        frugal_place_propose(p, &samples, parts, to);
        frugal_place_move(p, &samples, to, parts, NULL);
        if (pass == 0) frugal_place_pack(p, parts, SAMPLES);
    }
    frugal_place_report report = frugal_place_get_report(p, 0);
    printf("%.0f%% of the touches are local\n", 100 * report.local_share);
    free(memory);
    return 0;
}
