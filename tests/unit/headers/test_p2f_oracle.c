/* test_p2f_oracle.c - random protocols on the state machine of frugal_p2f.h agree with the oracle of p2f_oracle.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"
#include "tests/p2f_oracle.h"
#include "tests/seed.h"

static void random_protocols_agree_with_the_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_p2f_oracle", 1);
    uint64_t flushes = 0, cancels = 0, moves = 0, valids = 0, agains = 0, steps = 0;
    uint64_t kept = 0, recalls = 0, needless = 0, evictions = 0;
    uint64_t wordless = 0, switches = 0;
    uint64_t waits = 0, alone = 0, shared = 0, in_place = 0;
    for (uint64_t round = 0; round < 400 / SHORTER; round++) {
        world *w = open_world((test_random){.seed = seed + round});
        for (int i = 0; i < 3000; i++) {
            act(w);
            if (i % 7 == 0) check_state(w);
        }
        flushes += w->flushes, cancels += w->cancels, moves += w->moves, valids += w->valids, agains += w->agains;
        steps += w->closed - w->desc.first_step;
        waits += w->waits, alone += w->touched.alone, shared += w->touched.shared, in_place += w->touched.in_place;
        kept += w->kept, recalls += w->recalls, needless += w->needless, evictions += w->evictions;
        wordless += (uint64_t)w->wordless, switches += w->switches;
        close_world(w);
    }
    /* every kind of thing has happened */
    assert_true(flushes && cancels && moves && valids && agains && waits && alone > in_place && shared && in_place);
    assert_true(kept && recalls && needless && evictions && wordless && switches);
    fprintf(stderr, "# %llu updates kept, %llu recalls, %llu kept rows evicted\n", (unsigned long long)kept,
            (unsigned long long)recalls, (unsigned long long)evictions);
    fprintf(stderr, "# %llu steps, %llu flushes, %llu moves, %llu cancels, %llu of %llu rows written in place\n",
            (unsigned long long)steps, (unsigned long long)flushes, (unsigned long long)moves,
            (unsigned long long)cancels, (unsigned long long)in_place, (unsigned long long)(alone + shared));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_protocols_agree_with_the_oracle)};
    return cmocka_run_group_tests_name("test_p2f_oracle", tests, NULL, NULL);
}
