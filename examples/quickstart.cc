/* quickstart.cc - quickstart.c with frugal.hpp: the same training, and the same bits, in C++17.
 *
 *     build/quickstart_cpp        (or: cc -O3 -DNDEBUG -ffp-contract=off -c frugal_flush.c
 *                                      c++ -std=c++17 -O3 -I. examples/quickstart.cc frugal_flush.o -lpthread -lm)
 */
#include <cstdio>
#include <vector>
#include "frugal.hpp"

constexpr uint64_t USERS = 2000, ITEMS = 1000, DIM = 16, DEVICES = 2, BATCH = 512, STEPS = 600, LOOKAHEAD = 10;

struct rating { /* a hidden taste of eight kinds of users for eight kinds of items */
    int32_t user, item;
    float value;
    explicit rating(uint64_t k) {
        uint64_t hash = k * UINT64_C(0x9E3779B97F4A7C15);
        user = static_cast<int32_t>((hash >> 33) % (USERS / DEVICES) * DEVICES + k / BATCH % DEVICES);
        item = static_cast<int32_t>((hash >> 13) % ITEMS);
        value = user % 8 == item % 8 ? 1.0f : -0.2f;
    }
};

static rating rating_of(uint32_t device, uint64_t step, uint64_t i) {
    return rating((step * DEVICES + device) * BATCH + i);
}

static void announce(frugal_cpp::instance &f, uint32_t device, uint64_t step) {
    std::vector<int32_t> users, items;
    for (uint64_t i = 0; i < BATCH; i++) {
        rating r = rating_of(device, step, i);
        users.push_back(r.user), items.push_back(r.item);
    }
    f.announce(device, step, {frugal_cpp::keys(0, users), frugal_cpp::keys(1, items)});
}

/* Forward and backward of one device at one step; returns the sum of squared errors. */
static double train(frugal_cpp::instance &f, uint32_t device, uint64_t step) {
    static float rows[2 * BATCH][DIM], grads[2 * BATCH][DIM];
    double loss = 0;
    f.lookup(device, step, &rows[0][0]); /* waits at the gate until these rows are fresh */
    for (uint64_t i = 0; i < BATCH; i++) {
        float error = -rating_of(device, step, i).value;
        for (uint64_t j = 0; j < DIM; j++) error += rows[i][j] * rows[BATCH + i][j];
        for (uint64_t j = 0; j < DIM; j++) {
            grads[i][j] = error * rows[BATCH + i][j];
            grads[BATCH + i][j] = error * rows[i][j];
        }
        loss += static_cast<double>(error) * static_cast<double>(error);
    }
    f.update(device, step, frugal_cpp::gradients(&grads[0][0], 0.2f, 2 * BATCH));
    return loss;
}

static void print_notice(const char *text, void *) { /* such as: why a call waits for so long */
    std::fprintf(stderr, "quickstart: %s\n", text);
}

static int run() {
    frugal_table tables[2] = {};
    tables[0].rows = USERS, tables[1].rows = ITEMS;
    for (frugal_table &t : tables) t.init = FRUGAL_INIT_UNIFORM, t.low = -0.3f, t.high = 0.3f;
    frugal_desc desc = {};
    desc.tables = tables, desc.n_tables = 2, desc.dim = DIM, desc.devices = DEVICES, desc.max_keys = 2 * BATCH;
    desc.lookahead = LOOKAHEAD, desc.workers = 1, desc.optimizer.kind = FRUGAL_ADAGRAD;
    desc.notice = print_notice;
    frugal_cpp::instance f(desc);
    frugal_cpu_desc cache = {};
    cache.cache_rows = 1500;
    for (uint32_t d = 0; d < DEVICES; d++) f.attach_cpu(d, cache);

    uint64_t announced = 0;
    double first = 0, last = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        for (; announced < STEPS && announced <= step + LOOKAHEAD; announced++) /* run ahead of training */
            for (uint32_t d = 0; d < DEVICES; d++) announce(f, d, announced);
        double loss = 0;
        for (uint32_t d = 0; d < DEVICES; d++) loss += train(f, d, step);
        last = loss / (DEVICES * BATCH);
        if (step == 0) first = last;
        if (step % 100 == 0)
            std::fprintf(stderr, "step %4llu  mean squared error %.4f\n", static_cast<unsigned long long>(step), last);
    }
    f.drain(); /* every update is in the host table now */

    frugal_stats stats = f.stats();
    std::printf("%d steps: error %.4f -> %.4f; %llu rows looked up, %.0f%% from cache, %llu row updates flushed\n",
                static_cast<int>(STEPS), first, last, static_cast<unsigned long long>(stats.unique_rows),
                100.0 * static_cast<double>(stats.hits) / static_cast<double>(stats.unique_rows),
                static_cast<unsigned long long>(stats.flushed));
    f.close();
    return last < first / 4 ? 0 : 1;
}

int main() {
    try {
        return run();
    } catch (const frugal_cpp::error &e) {
        std::fprintf(stderr, "quickstart: %s\n", e.what());
        return 1;
    }
}
