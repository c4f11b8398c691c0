/* fuzz_places.c - steps of ids chosen by the input, through frugal_ids.h: their places are those of the oracle, and
 * steps that are taken back leave every byte of the map as it was. The first bytes are the settings. */
#define FRUGAL_IDS_IMPLEMENTATION
#include "frugal_ids.h"
#include "tests/fuzz/fuzz.h"
#include "tests/ids_rig.h"

const unsigned fuzz_inputs = 20000;

/* A step, and perhaps one more, which are taken back. */
static void undo_some(test_random *r, const drawing *d, frugal_ids *m, uint64_t last, void *copy, size_t bytes) {
    static step_ids kept[2];
    uint64_t n = test_between(r, 1, 2);
    memcpy(copy, m, bytes);
    for (uint64_t t = 0; t < n; t++) {
        draw_step(r, d, last + 1 + t, &kept[t]), cut_step(r, d, &kept[t]);
        take_step(m, last + 1 + t, &kept[t]);
    }
    for (uint64_t t = n; t-- > 0;) undo_step(m, last + t, &kept[t]);
    assert_true(!memcmp(m, copy, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static step_ids s;
    uint32_t wanted[MOST];
    test_random r = fuzz_bytes(data, size);
    frugal_ids_desc desc = draw_desc(&r);
    drawing d = {test_between(&r, 1, 1000), test_below(&r, 9), (uint32_t)test_between(&r, 1, 100), test_chance(&r, 50)};
    frugal_ids *m = open_map(&desc);
    size_t bytes = frugal_ids_footprint(&desc);
    void *copy = malloc(bytes);
    ids_oracle o;
    ids_oracle_open(&o, &desc, buckets_of(&desc));
    uint64_t step = desc.first_step;
    for (int t = 0; t < 200 && !fuzz_is_over(&r); t++) {
        if (t > 0) step += test_between(&r, 1, 3);
        draw_step(&r, &d, step, &s), cut_step(&r, &d, &s);
        take_step(m, step, &s);
        ids_oracle_step(&o, step, s.ids, d.counts ? s.touches : NULL, s.n, wanted);
        assert_true(!memcmp(s.places, wanted, s.n * sizeof *wanted));
        assert_same_report(m, &o);
        if (test_chance(&r, 10)) undo_some(&r, &d, m, step, copy, bytes);
        if (test_chance(&r, 3) && frugal_ids_grow(m) == FRUGAL_IDS_OK) ids_oracle_grow(&o);
    }
    assert_same_map(m, &o, step);
    ids_oracle_close(&o);
    free(copy), free(m);
    return 0;
}
