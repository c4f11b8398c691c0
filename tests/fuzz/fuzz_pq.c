/* fuzz_pq.c - a sequence of calls of the validated queue, of three batches, chosen by the input; every answer, to the
 * id, is what the oracle of the unit tests says. The first bytes are the sizes. */
#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"
#include "tests/fuzz/fuzz.h"
#include "tests/pq_oracle.h"

const unsigned fuzz_inputs = 5000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint64_t bases[] = {0, 1, 63, UINT64_C(1) << 32, UINT64_MAX - 200, UINT64_MAX - 64};
    test_random r = fuzz_bytes(data, size);
    uint64_t ids = test_between(&r, 1, MODEL_IDS);
    uint64_t pages = test_chance(&r, 80) ? test_between(&r, 1, 40) : MODEL_PAGES;
    uint64_t base = bases[test_below(&r, 6)];
    model *m = model_open(r, ids, pages, base);
    for (int i = 0; i < 3000 && !fuzz_is_over(&m->random); i++) model_act(m);
    model_finish(m);
    model_close(m);
    return 0;
}
