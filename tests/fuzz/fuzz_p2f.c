/* fuzz_p2f.c - a sequence of frugal_p2f_* calls chosen by the input, every answer checked by the oracle of the unit
 * tests. The first bytes are the settings, then each call takes as many as it has choices. */
#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"
#include "tests/fuzz/fuzz.h"
#include "tests/p2f_oracle.h"

const unsigned fuzz_inputs = 5000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    world *w = open_world(fuzz_bytes(data, size));
    for (int i = 0; i < 2000 && !fuzz_is_over(&w->random); i++) {
        act(w);
        if (i % 8 == 0) check_state(w);
    }
    check_state(w);
    close_world(w);
    return 0;
}
