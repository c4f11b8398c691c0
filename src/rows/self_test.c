/* self_test.c - do the row functions compute the right bits? The first frugal_open, frugal_join or frugal_serve_open of
 * a process runs this test, in some 0.6 ms.
 *
 * Flags may let a compiler reassociate sums, multiply by reciprocals, split a fused operation or flush small numbers to
 * zero; a thread may round in another mode. So the row functions, of the set that this processor uses, compute small
 * steps. These are compared with the same steps computed here: one element and one operation at a time, in the order
 * that defines the results. This file may be compiled with the same flags. That is why each operation stands alone
 * between volatile doubles: there is nothing to reassociate, to fuse or to replace. A double holds a product of floats
 * exactly. A sum, quotient or root that is rounded to double and then to float has the bits of one rounding to float,
 * because 53 bits are more than 2 * 24 + 2 (Figueroa, 1995).
 *
 * Contents: >>operations >>numbers >>optimizers >>sums >>bags >>types
 */
#include "rows.h"

/* >>operations, one at a time */

static float round_to_float(volatile double x) {
    volatile float rounded = (float)x;
    return rounded;
}

static float known_add(float a, float b) {
    volatile double x = (double)a, y = (double)b, sum = x + y;
    return round_to_float(sum);
}

static float known_mul(float a, float b) {
    volatile double x = (double)a, y = (double)b, product = x * y;
    return round_to_float(product);
}

static float known_div(float a, float b) {
    volatile double x = (double)a, y = (double)b, quotient = x / y;
    return round_to_float(quotient);
}

static float known_sqrt(float a) {
    volatile double x = (double)a, root = sqrt(x);
    return round_to_float(root);
}

/* a * b + c in one rounding. The sum of the product and c is rounded to odd: if it is not exact and its last bit is 0,
 * it moves to its neighbour on the side of the missing part. Rounding that to a float gives the bits of one rounding
 * (Boldo and Melquiond, 2008). Knuth's two-sum computes the missing part. */
static float known_fma(float a, float b, float c) {
    volatile double x = (double)a, y = (double)b, z = (double)c, product = x * y, sum = product + z;
    volatile double of_z = sum - product, of_product = sum - of_z;
    volatile double missing_z = z - of_z, missing_product = product - of_product;
    volatile double missing = missing_product + missing_z;
    double result = sum;
    uint64_t bits;
    memcpy(&bits, &result, sizeof bits);
    if (missing != 0 && bits % 2 == 0) bits += (missing > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&result, &bits, sizeof result);
    return round_to_float(result);
}

/* >>numbers to compute with */

enum { TEST_FLOATS = 100, TEST_POSITIONS = 40, TEST_RECORDS = 3, TEST_BAGS = 5, TEST_DEVICES = 3 };

static const uint32_t test_dims[] = {1, 7, 33, 41,
                                     TEST_FLOATS}; /* a single element; 4 + 3; 32 + 1; 32 + 8 + 1; 3 blocks */
enum { TEST_DIMS = sizeof test_dims / sizeof *test_dims };

/* A number for each place. Most have full mantissas, so that every sum, product and quotient is rounded. Some are hard:
 * zeros of both signs, subnormals, numbers next to a power of two. */
static float probe(uint32_t array, uint32_t i) {
    static const float hard[] = {0.0f, -0.0f, 0x1p-130f, -0x1p-126f, 0x1.fffffep0f, -0x1.000002p-20f};
    uint32_t bits = (array * 0x9E3779B9u) ^ (i * 0x85EBCA6Bu);
    bits ^= bits >> 15, bits *= 0x2C1B3C6Du, bits ^= bits >> 12, bits *= 0x297A2D39u, bits ^= bits >> 15;
    if (bits % 8 == 0) return hard[bits / 8 % (sizeof hard / sizeof *hard)];
    bits = (bits & 0x807fffffu) | (123u + bits / 8 % 8) << 23; /* of size 2^-4 to 2^3 */
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void fill(float *to, uint32_t array, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = probe(array, i);
}

/* >>optimizers */

typedef struct test_step { /* the step of one row */
    frugal_store store;
    frugal_table_group group;
    frugal_hyper hyper;
    const float *records[TEST_DEVICES];
    uint32_t n;
    float scale; /* of the row's gradient, once it is known */
} test_step;

/* Summed over devices, averaged if asked for. */
static float known_reduced(const test_step *t, uint32_t i) {
    float g = t->records[0][i];
    for (uint32_t r = 1; r < t->n; r++) g = known_add(g, t->records[r][i]);
    return t->store.reduce == FRUGAL_MEAN ? known_div(g, (float)t->store.devices) : g;
}

/* The gradient as the optimizer takes it: reduced, scaled, decayed. `w` NULL: as it is reduced. */
static float known_gradient(const test_step *t, const float *w, uint32_t i) {
    float g = known_reduced(t, i), decay = t->group.optimizer.weight_decay;
    if (!w) return g;
    g = known_mul(g, t->scale);
    return decay != 0 && t->store.kind != FRUGAL_ADAMW ? known_fma(decay, w[i], g) : g;
}

/* The sum of squares: in 32 lanes, and a halving tree. */
static float known_squares(const test_step *t, const float *w) {
    float lanes[32] = {0};
    for (uint32_t i = 0; i < t->store.dim; i++) {
        float g = known_gradient(t, w, i);
        lanes[i % 32] = known_fma(g, g, lanes[i % 32]);
    }
    for (uint32_t half = 16; half > 0; half /= 2)
        for (uint32_t l = 0; l < half; l++) lanes[l] = known_add(lanes[l], lanes[l + half]);
    return lanes[0];
}

/* The scale of the row: that of the step, and less if its norm is above the limit. */
static float known_scale(const test_step *t) {
    float scale = t->hyper.scale, limit = t->group.optimizer.clip_norm;
    float norm = known_mul(known_sqrt(known_squares(t, NULL)), scale);
    float factor = known_div(limit, known_add(norm, 1e-6f));
    return limit > 0 && factor < 1 ? known_mul(scale, factor) : scale;
}

/* Row-wise Adagrad's factor. */
static float known_factor(const test_step *t, const float *w, float *s) {
    *s = known_add(*s, known_div(known_squares(t, w), (float)t->store.dim));
    return known_div(t->hyper.lr, known_add(known_sqrt(*s), t->group.optimizer.eps));
}

static void known_step(test_step *t, float *w, float *s) {
    const frugal_optimizer *o = &t->group.optimizer;
    t->scale = known_scale(t);
    float factor = frugal_is_adam(o->kind) ? t->hyper.step_size : t->hyper.lr, *v = s + t->store.dim;
    if (o->kind == FRUGAL_ROWWISE_ADAGRAD) factor = known_factor(t, w, s);
    for (uint32_t i = 0; i < t->store.dim; i++) {
        float g = known_gradient(t, w, i);
        if (o->kind == FRUGAL_ADAGRAD) {
            s[i] = known_fma(g, g, s[i]);
            g = known_div(g, known_add(known_sqrt(s[i]), o->eps));
        } else if (frugal_is_adam(o->kind)) {
            s[i] = known_fma(known_add(g, -s[i]), known_add(1, -o->beta1), s[i]);
            v[i] = known_fma(known_fma(g, g, -v[i]), known_add(1, -o->beta2), v[i]);
            g = known_div(s[i], known_add(known_sqrt(v[i]), o->eps));
        }
        if (o->kind == FRUGAL_ADAMW && o->weight_decay != 0)
            w[i] = known_fma(-known_mul(t->hyper.lr, o->weight_decay), w[i], w[i]);
        w[i] = known_fma(-factor, g, w[i]);
    }
}

/* The step of one row as apply.c does it. */
static void apply_step(const test_step *t, float *w, float *s) {
    row_update update = {w, s, t->records, t->n, 0, &t->hyper};
    apply_rows(&t->store, &t->group.optimizer, &update, 1);
}

/* The same, in place, by a device that alone brings a gradient, at one position. */
static void place_step(const test_step *t, float *w, float *s) {
    const uint32_t zero = 0, start[2] = {0, 1};
    const uint64_t alone = 1;
    frugal_store store = t->store;
    store.weights = w, store.state = store.state_floats ? s : NULL;
    const frugal_step step = {.records = {.n = 1, .n_unique = 1, .order = &zero, .start = start, .rows = &zero},
                              .hyper = &t->hyper,
                              .stride = store.dim,
                              .alone = &alone};
    frugal_update_rows(&store, &step, NULL, t->records[0], 0, 1);
}

/* Ways to test a row: plain, decayed, averaged over devices, scaled and clipped; the same in place. */
enum { TEST_PLAIN, TEST_DECAYED, TEST_AVERAGED, TEST_CLIPPED, TEST_WAYS };

static int test_row(frugal_optimizer_kind kind, uint32_t dim, int way, int in_place) {
    float w[TEST_FLOATS], s[2 * TEST_FLOATS], records[TEST_DEVICES][TEST_FLOATS];
    float known_w[TEST_FLOATS], known_s[2 * TEST_FLOATS];
    int averaged = way == TEST_AVERAGED;
    test_step t = {.store = {.dim = dim, .kind = kind, .n_groups = 1, .devices = TEST_DEVICES},
                   .hyper = {.lr = 0.1f, .step_size = 0.07f, .scale = way == TEST_CLIPPED ? 0.7f : 1.0f},
                   .n = averaged && !in_place ? TEST_DEVICES : 1};
    t.group.optimizer = (frugal_optimizer){.kind = kind, .eps = 1e-3f, .beta1 = 0.9f, .beta2 = 0.99f};
    t.group.optimizer.weight_decay = way == TEST_DECAYED ? 0.03f : 0;
    t.group.optimizer.clip_norm = way == TEST_CLIPPED ? 0.3f : 0;
    t.store.groups = &t.group, t.store.reduce = averaged ? FRUGAL_MEAN : FRUGAL_SUM;
    t.store.state_floats = frugal_state_floats(kind, dim);
    for (uint32_t r = 0; r < TEST_DEVICES; r++) fill(records[r], r, dim), t.records[r] = records[r];
    fill(w, 10, dim);
    fill(s, 11, 2 * TEST_FLOATS);
    for (uint32_t i = frugal_is_adam(kind) ? dim : 0; i < 2 * TEST_FLOATS; i++) s[i] = fabsf(s[i]); /* all have roots */
    memcpy(known_w, w, sizeof w);
    memcpy(known_s, s, sizeof s);
    known_step(&t, known_w, known_s);
    if (in_place)
        place_step(&t, w, s);
    else
        apply_step(&t, w, s);
    return !memcmp(w, known_w, dim * sizeof *w) && !memcmp(s, known_s, t.store.state_floats * sizeof *s);
}

static int test_optimizers(void) {
    int right = 1;
    for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++)
        for (uint32_t d = 0; d < TEST_DIMS - (kind != FRUGAL_ROWWISE_ADAGRAD); d++) /* the last is for its squares */
            for (int way = 0; way < 2 * TEST_WAYS; way++)
                right &= test_row((frugal_optimizer_kind)kind, test_dims[d], way % TEST_WAYS, way / TEST_WAYS);
    return right;
}

/* >>sums of a batch */

typedef struct test_batch { /* 40 positions of 3 rows, in 5 bags */
    uint32_t record_of[TEST_POSITIONS], order[TEST_POSITIONS], start[TEST_RECORDS + 1], bag_of[TEST_POSITIONS];
    float grads[TEST_POSITIONS * TEST_FLOATS], weights[TEST_POSITIONS], block[TEST_RECORDS * TEST_FLOATS];
    frugal_records records;
    frugal_bags bags; /* bags.offsets NULL: gradients are by position */
    uint32_t dim;
} test_batch;

/* Rows with one position, with several, and with more than a block of 32; bags that are empty, with one position, with
 * several. */
static const uint32_t test_offsets[TEST_BAGS + 1] = {0, 0, 1, 4, 39, TEST_POSITIONS};

static void open_batch(test_batch *b, uint32_t dim) {
    uint32_t n = 0;
    for (uint32_t u = 0; u < TEST_RECORDS; u++) {
        b->start[u] = n;
        for (uint32_t p = 0; p < TEST_POSITIONS; p++)
            if ((p == 5 ? 0u : p % 9 == 1 ? 1u : 2u) == u) b->record_of[p] = u, b->order[n++] = p;
    }
    b->start[TEST_RECORDS] = n;
    for (uint32_t bag = 0; bag < TEST_BAGS; bag++)
        for (uint32_t p = test_offsets[bag]; p < test_offsets[bag + 1]; p++) b->bag_of[p] = bag;
    fill(b->grads, 20, TEST_POSITIONS * dim);
    fill(b->weights, 21, TEST_POSITIONS);
    b->dim = dim;
    b->bags = (frugal_bags){.n_bags = TEST_BAGS};
    b->records = (frugal_records){b->block, dim, TEST_POSITIONS, TEST_RECORDS, b->record_of, b->order, b->start, NULL};
}

static uint32_t positions_of_bag(uint32_t bag) {
    return test_offsets[bag + 1] - test_offsets[bag];
}

/* Element `e` of the gradient of position p. */
static float known_part(const test_batch *b, uint32_t p, uint32_t e) {
    if (!b->bags.offsets) return b->grads[p * b->dim + e];
    float g = b->grads[b->bag_of[p] * b->dim + e];
    if (b->bags.weights) return known_mul(g, b->weights[p]);
    return b->bags.pooling == FRUGAL_POOL_MEAN ? known_div(g, (float)positions_of_bag(b->bag_of[p])) : g;
}

/* Are the records the known sums: in blocks of 32 positions, then of block sums in order? */
static int records_are_known(const test_batch *b) {
    int right = 1;
    for (uint32_t u = 0; u < TEST_RECORDS; u++)
        for (uint32_t e = 0; e < b->dim; e++) {
            float sum = 0, block = 0;
            for (uint32_t k = 0, n = b->start[u + 1] - b->start[u]; k < n; k++) {
                float x = known_part(b, b->order[b->start[u] + k], e);
                block = k % 32 == 0 ? x : known_add(block, x);
                if (k % 32 == 31 || k + 1 == n) sum = k < 32 ? block : known_add(sum, block);
            }
            right &= !memcmp(&sum, &b->block[u * b->dim + e], sizeof sum);
        }
    return right;
}

static int test_sums(test_batch *b) {
    int right = 1;
    for (uint32_t d = 0; d < TEST_DIMS; d++) {
        open_batch(b, test_dims[d]);
        frugal_sum_gradients(&b->records, b->grads, b->dim, b->dim);
        right &= records_are_known(b);
        for (uint32_t u = 0; u < TEST_RECORDS; u++) {
            float sum[TEST_FLOATS];
            frugal_sum_positions(sum, b->grads, b->dim, b->dim, b->order + b->start[u], b->start[u + 1] - b->start[u]);
            right &= !memcmp(sum, b->block + u * b->dim, b->dim * sizeof *sum);
        }
    }
    return right;
}

/* >>bags */

static float known_pooled(const test_batch *b, uint32_t bag, uint32_t e) {
    float sum = 0;
    uint32_t first = test_offsets[bag], n = positions_of_bag(bag);
    for (uint32_t p = first; p < first + n; p++) {
        float x = b->block[b->record_of[p] * b->dim + e];
        if (b->bags.weights)
            sum = p == first ? known_mul(x, b->weights[p]) : known_fma(b->weights[p], x, sum);
        else
            sum = p == first ? x : known_add(sum, x);
    }
    return b->bags.pooling == FRUGAL_POOL_MEAN && n > 0 ? known_div(sum, (float)n) : sum;
}

/* Tests pooled rows and spread gradients: plain, weighted, averaged. */
static int test_bags(test_batch *b) {
    float pooled[TEST_BAGS * TEST_FLOATS];
    int right = 1;
    for (uint32_t way = 0; way < 6; way++) {
        open_batch(b, test_dims[way < 3 ? 1 : 3]); /* a dim of few vectors, and one of more */
        b->bags.offsets = test_offsets;
        b->bags.weights = way % 3 == 1 ? b->weights : NULL;
        b->bags.pooling = way % 3 == 2 ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM;
        fill(b->block, 22, TEST_RECORDS * b->dim);
        frugal_pool(&b->records, &b->bags, b->dim, pooled, b->dim, FRUGAL_FP32);
        for (uint32_t i = 0; i < TEST_BAGS * b->dim; i++) {
            float known = known_pooled(b, i / b->dim, i % b->dim);
            right &= !memcmp(&known, &pooled[i], sizeof known);
        }
        frugal_sum_bags(&b->records, &b->bags, b->bag_of, b->grads, b->dim, b->dim);
        right &= records_are_known(b);
    }
    return right;
}

/* >>types of 16 bits: a weight is a whole number of distances between weights, where it lies */

static uint32_t places_of(frugal_type as) {
    return as == FRUGAL_BF16 ? 7 : 10;
}

/* The exponent of the subnormal weights, and of the least ones that are not. */
static int least_exponent(frugal_type as) {
    return as == FRUGAL_BF16 ? -126 : -14;
}

static int is_infinite(frugal_type as, uint16_t weight) {
    return (weight & 0x7fffu) >= (as == FRUGAL_BF16 ? 0x7f80u : 0x7c00u);
}

static float known_wide(frugal_type as, uint16_t weight) {
    uint32_t places = places_of(as), exponent = (weight & 0x7fffu) >> places;
    uint32_t whole = (weight & ((1u << places) - 1)) + (exponent ? 1u << places : 0);
    volatile double magnitude = ldexp(whole, (int)(exponent ? exponent - 1 : 0) + least_exponent(as) - (int)places);
    return round_to_float(weight & 0x8000u ? -magnitude : magnitude);
}

/* `noise` below 0: to the nearest. */
static uint16_t known_weight(frugal_type as, float x, int32_t noise) {
    uint32_t sign = frugal_bits_of(x) >> 16 & 0x8000u, most = as == FRUGAL_BF16 ? 0x7f80u : 0x7c00u, bits;
    int places = (int)places_of(as), least = least_exponent(as), exponent;
    volatile double magnitude = fabs((double)x);
    (void)frexp(magnitude, &exponent); /* it lies from 2^(exponent - 1) on; 0 nowhere */
    exponent = magnitude == 0 || exponent - 1 < least ? least : exponent - 1;
    volatile double units = ldexp(magnitude, places - exponent), below = floor(units), part = units - below;
    int up = noise >= 0 ? floor(part * 65536) + noise >= 65536 : part > 0.5 || (part == 0.5 && (uint32_t)below % 2);
    bits = ((uint32_t)(exponent - least) << places) + (uint32_t)below + (uint32_t)up;
    return (uint16_t)(sign | LEAST(bits, most));
}

/* An optimizer's step of a row whose weights are `row`. */
static int test_rounding(frugal_type as, frugal_rounding rounding, const uint16_t *row) {
    const float lr = 0.1f;
    uint16_t weights[TEST_FLOATS];
    float grads[TEST_FLOATS];
    int right = 1;
    test_step t = {.store = {.dim = TEST_FLOATS, .rows_as = as, .rounding = rounding, .n_groups = 1, .devices = 1},
                   .hyper = {.lr = lr, .scale = 1, .noise = frugal_step_noise(7, 3)}};
    t.group.optimizer = (frugal_optimizer){.kind = FRUGAL_SGD};
    t.store.groups = &t.group, t.records[0] = grads, t.n = 1;
    memcpy(weights, row, sizeof weights);
    for (uint32_t i = 0; i < TEST_FLOATS; i++) grads[i] = known_mul(known_wide(as, row[i]), probe(31, i));
    row_update update = {weights, NULL, t.records, 1, 5, &t.hyper};
    apply_rows(&t.store, &t.group.optimizer, &update, 1);
    for (uint32_t i = 0; i < TEST_FLOATS; i++) {
        uint32_t pair = frugal_pair_noise(frugal_row_noise(t.hyper.noise, 5), i / 2);
        int32_t noise = rounding == FRUGAL_NEAREST ? -1 : (int32_t)(i % 2 ? pair >> 16 : pair & 0xffffu);
        right &= weights[i] == known_weight(as, known_fma(-lr, grads[i], known_wide(as, row[i])), noise);
    }
    return right;
}

static int test_types(void) {
    static const float scales[] = {1, 0x1p-14f, 0x1p-22f, 0x1p13f, 0x1p-125f}; /* subnormal and infinite weights, too */
    int right = 1;
    for (int i = FRUGAL_BF16; i <= FRUGAL_FP16; i++) {
        frugal_type as = (frugal_type)i;
        float x[TEST_FLOATS], wide[TEST_FLOATS];
        uint16_t weights[TEST_FLOATS];
        uint32_t middle = 1u << (22 - places_of(as)); /* between two weights that are not subnormal */
        for (uint32_t k = 0; k < TEST_FLOATS; k++) {
            x[k] = known_mul(probe(30, k), scales[k % 5]);
            if (k % 3 == 0) x[k] = frugal_float_of((frugal_bits_of(x[k]) & ~(2 * middle - 1)) | middle);
        }
        frugal_convert(weights, as, x, FRUGAL_FP32, TEST_FLOATS);
        for (uint32_t k = 0; k < TEST_FLOATS; k++) {
            right &= weights[k] == known_weight(as, x[k], -1);
            if (is_infinite(as, weights[k])) weights[k] = 0;
        }
        frugal_convert(wide, FRUGAL_FP32, weights, as, TEST_FLOATS);
        for (uint32_t k = 0; k < TEST_FLOATS; k++)
            right &= frugal_bits_of(wide[k]) == frugal_bits_of(known_wide(as, weights[k]));
        right &= test_rounding(as, FRUGAL_STOCHASTIC, weights) && test_rounding(as, FRUGAL_NEAREST, weights);
    }
    return right;
}

/* Of the program and the processor, whatever the calling thread's mode is. */
static int self_test(void) {
    float_mode saved = float_mode_enter();
    test_batch batch;
    int right = test_optimizers() && test_sums(&batch) && test_bags(&batch) && test_types();
    float_mode_leave(saved);
    return right;
}

/* A result that is right holds for the process. relaxed: a thread that misses it runs the test, too. */
static FRUGAL_ATOMIC(uint32_t) arithmetic_is_right;

FRUGAL_INTERNAL frugal_status check_arithmetic(void) {
    if (frugal_load_relaxed(&arithmetic_is_right)) return FRUGAL_OK;
    if (self_test()) {
        frugal_store_relaxed(&arithmetic_is_right, 1);
        return FRUGAL_OK;
    }
    return frugal_fail(FRUGAL_ERR_ARITHMETIC,
                       "the arithmetic must be IEEE's, operation by operation, and the self-test found another result; "
                       "compile frugal_flush.c with -ffp-contract=off, and without -ffast-math and its parts");
}
