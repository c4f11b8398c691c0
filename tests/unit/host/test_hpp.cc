/* test_hpp.cc - frugal.hpp: what it adds to frugal.h, which is errors, lifetimes and the types of keys. That the bits
 * of a training are those of the C calls is tested with examples/quickstart.cc. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}
#include <array>
#include <cstring>
#include "frugal.hpp"
#include "src/device.h" /* frugal_convert */

using frugal_cpp::instance;
using frugal_cpp::keys;

namespace {

frugal_table table_of(uint64_t rows) {
    frugal_table table = {};
    table.rows = rows, table.init = FRUGAL_INIT_UNIFORM, table.low = -1, table.high = 1;
    return table;
}

frugal_desc desc_of(const frugal_table *table) {
    frugal_desc desc = {};
    desc.tables = table, desc.n_tables = 1, desc.dim = 4, desc.devices = 2, desc.max_keys = 8, desc.lookahead = 2;
    return desc;
}

/* The status and the message that a call throws. */
template <typename Call> void expect_thrown(frugal_status status, const char *part, Call call) {
    try {
        call();
    } catch (const frugal_cpp::error &e) {
        assert_int_equal(status, e.status());
        if (!std::strstr(e.what(), part)) fail_msg("\"%s\" does not say \"%s\"", e.what(), part);
        return;
    }
    fail_msg("nothing was thrown; expected: %s", part);
}

void test_errors(void **) {
    frugal_table table = table_of(10);
    frugal_desc desc = desc_of(&table), none = desc;
    none.dim = 0;
    expect_thrown(FRUGAL_ERR_ARGUMENT, "dim", [&] { instance f(none); });
    instance f(desc);
    f.attach_cpu(0), f.attach_cpu(1);
    expect_thrown(FRUGAL_ERR_DEVICE, "attached already", [&] { f.attach_cpu(1); });
    std::vector<int64_t> large = {3, 10};
    expect_thrown(FRUGAL_ERR_KEY, "key 10 at 1", [&] { f.announce(0, 0, {keys(0, large)}); });
    std::vector<int32_t> negative = {-4};
    expect_thrown(FRUGAL_ERR_KEY, "key -4 at 0", [&] { f.announce(0, 0, {keys(0, negative)}); });
    expect_thrown(FRUGAL_ERR_ORDER, "step 1", [&] { f.update(0, 1); });
    f.stop();
    expect_thrown(FRUGAL_STOPPED, "stopped", [&] { f.announce(0, 0, {}); });
}

/* May an array of these be given as gradients, without a type? */
template <typename Number>
constexpr auto are_gradients(int) -> decltype(frugal_cpp::gradients(static_cast<Number *>(nullptr), 0.5f), true) {
    return true;
}
template <typename Number> constexpr bool are_gradients(long) {
    return false;
}

/* Answers that are no errors: not yet, and no more. Rows and gradients with gaps, bags, keys of three types. */
void test_answers(void **) {
    frugal_table table = table_of(10);
    instance f(desc_of(&table));
    f.attach_cpu(0), f.attach_cpu(1);
    std::array<uint64_t, 2> ids = {1, 9};
    const std::vector<frugal_keys> segments = {keys(0, ids)};
    frugal_batch empty = {};
    f.announce(0, 0, segments);
    uint64_t ahead = 1;
    while (f.try_announce(0, ahead, empty)) ahead++; /* as far as it may be */
    assert_int_equal(f.settings().lookahead + 1, ahead);
    float rows[2 * 6], pooled[4];
    assert_false(f.try_lookup(0, 0, rows));
    f.finish(1);
    assert_true(f.lookup(0, 0, rows, 6));
    assert_false(f.lookup(1, 0, rows));
    uint16_t halves[2 * 4], halves_of_rows[2 * 4];
    frugal_row_array to = {};
    to.rows = halves, to.as = FRUGAL_BF16;
    assert_true(f.lookup(0, 0, to));
    for (int i = 0; i < 2; i++) frugal_convert(halves_of_rows + 4 * i, FRUGAL_BF16, rows + 6 * i, FRUGAL_FP32, 4);
    assert_memory_equal(halves, halves_of_rows, sizeof halves);
    uint32_t offsets[] = {0, 2};
    frugal_bags bags = {};
    bags.n_bags = 1, bags.offsets = offsets;
    assert_true(f.lookup(0, 0, bags, pooled));
    for (int j = 0; j < 4; j++) assert_true(pooled[j] == rows[j] + rows[6 + j]);
    float grads[8] = {1, 0, 0, 0, 2, 0, 0, 0};
    expect_thrown(FRUGAL_ERR_ARGUMENT, "3 gradients", [&] { f.update(0, 0, frugal_cpp::gradients(grads, 0.5f, 3)); });
    const uint16_t same[8] = {0x3f80, 0, 0, 0, 0x4000, 0, 0, 0}; /* in bf16 */
    static_assert(are_gradients<float>(0) && !are_gradients<uint16_t>(0) && !are_gradients<double>(0),
                  "without a type");
    f.update(0, 0, frugal_cpp::gradients(same, FRUGAL_BF16, 0.5f, 2));
    std::vector<float> now = f.read_rows(keys(0, std::vector<int32_t>{9, 1}));
    assert_true(now.size() == 8 && now[0] == rows[6] - 1.0f && now[4] == rows[0] - 0.5f && now[1] == rows[7]);
    f.drain();
    assert_int_equal(1, f.stats().steps);
    f.cancel(1);
    const float two[8] = {2, 2, 2, 2, 3, 3, 3, 3};
    f.write_rows(keys(0, std::vector<int64_t>{0, 1}), two);
    assert_true(f.read_rows(keys(0, ids))[0] == 3);
}

/* An instance closes itself once, where it has moved to; and who closes it learns what that returns. */
void test_lifetimes(void **) {
    frugal_table table = table_of(10);
    frugal_cpp::workers threads(1), others(1);
    frugal_desc desc = desc_of(&table);
    desc.shared_workers = threads.get();
    {
        instance first(desc), second(desc);
        assert_int_equal(FRUGAL_ERR_BUSY, frugal_workers_close(threads.get()));
        instance third(std::move(first));
        assert_true(first.get() == nullptr && third.settings().dim == 4);
        third = std::move(second);
        third.close();
        assert_true(third.get() == nullptr);
        third.close(); /* once more: there is nothing to close */
    }
    others = std::move(threads);
    assert_int_equal(FRUGAL_OK, frugal_workers_close(nullptr));
}

} /* namespace */

int main() {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_lifetimes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
