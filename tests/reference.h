/* reference.h - the judge: sequential training, one row and one float after the other.
 *
 * Shares no code with the library and includes none of it: scalar C, fmaf, sqrtf and division, dense arrays, no
 * caches, no threads, no queue. Frugal must compute exactly these bits, whatever its settings. Compile with
 * -ffp-contract=off. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REFERENCE_SGD, REFERENCE_ADAGRAD, REFERENCE_ROWWISE_ADAGRAD, REFERENCE_ADAM, REFERENCE_ADAMW };

/* What weights are stored as, as frugal_type has it. They are floats here, of values that the type has. */
enum { REFERENCE_FP32, REFERENCE_BF16, REFERENCE_FP16 };

enum { REFERENCE_RANGES = 8 };

typedef struct reference_range {                     /* rows that have settings of their own */
    uint64_t end;                                    /* first row after them */
    float eps, beta1, beta2, weight_decay, lr_scale; /* defaults resolved by the caller, here as below */
    float accumulator;                               /* first value of the state */
    float lr, step_size;                             /* of the step at hand; Adam's with both corrections */
    int frozen;                                      /* rows stay as they are */
    float clip_norm;                                 /* limit of a row's gradient; 0: none */
} reference_range;

typedef struct reference {
    uint64_t rows;
    uint32_t dim, devices, state_floats;
    int optimizer, mean;
    int rows_as, nearest;                  /* nearest: weights of 16 bits are rounded so, and not stochastically */
    uint64_t seed, step;                   /* of the random bits; the step at hand */
    float scale;                           /* of all gradients of the step at hand; 0: 1 */
    float eps, beta1, beta2, weight_decay; /* of all rows, where there are no ranges */
    uint32_t n_ranges;
    reference_range ranges[REFERENCE_RANGES]; /* ranges[n_ranges], one after the other: of row 0 to the last */
    float *weights, *state;                   /* [rows][dim], [rows][state_floats] */
    float *block, *sum, *total;               /* [rows][dim] each: the running block, a device's sum, all devices' */
    uint32_t *count;                          /* [rows] number of positions of the current device */
    unsigned char *touched;                   /* [rows] by a device that brought gradients, in this step */
} reference;

typedef struct reference_batch { /* what one device brings to a step */
    const uint32_t *rows;        /* rows[n], over all tables, by position */
    uint32_t n;
    const float *grads; /* grads[n][dim]; NULL: brings none */
} reference_batch;

static inline reference_range *reference_range_of(reference *r, uint64_t row) {
    reference_range *range = r->ranges;
    while (row >= range->end) range++;
    return range;
}

/* First value of the state is `accumulator`, or what the row's range says. The caller fills in the weights. 0: no
 * memory. */
static inline int reference_open(reference *r, float accumulator) {
    static const uint32_t per_element[] = {0, 1, 0, 2, 2};
    r->state_floats = r->optimizer == REFERENCE_ROWWISE_ADAGRAD ? 1 : per_element[r->optimizer] * r->dim;
    float **arrays[] = {&r->weights, &r->block, &r->sum, &r->total};
    for (int i = 0; i < 4; i++) *arrays[i] = calloc(r->rows * r->dim, sizeof(float));
    r->state = calloc(r->rows * r->state_floats + 1, sizeof(float));
    r->count = calloc(r->rows, sizeof(uint32_t));
    r->touched = calloc(r->rows, 1);
    if (!r->weights || !r->block || !r->sum || !r->total || !r->state || !r->count || !r->touched) return 0;
    if (r->n_ranges == 0) {
        r->n_ranges = 1;
        r->ranges[0] = (reference_range){
            r->rows, r->eps, r->beta1, r->beta2, r->weight_decay, .lr_scale = 1, .accumulator = accumulator};
    }
    for (uint64_t i = 0; i < r->rows * r->state_floats && r->optimizer < REFERENCE_ADAM; i++)
        r->state[i] = reference_range_of(r, i / r->state_floats)->accumulator;
    return 1;
}

static inline void reference_close(reference *r) {
    free(r->weights), free(r->state), free(r->block), free(r->sum), free(r->total), free(r->count), free(r->touched);
    memset(r, 0, sizeof(*r));
}

static inline void reference_add(float *sum, const float *x, uint32_t dim, int first) {
    for (uint32_t j = 0; j < dim; j++) sum[j] = first ? x[j] : sum[j] + x[j];
}

/* The sum of squares of a row's n numbers: number j in lane j mod 32, and a halving tree over the lanes. */
static inline float reference_squares(const float *g, uint32_t n) {
    float lanes[32] = {0};
    for (uint32_t j = 0; j < n; j++) lanes[j % 32] = fmaf(g[j], g[j], lanes[j % 32]);
    for (int half = 16; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

/* What a row's gradient is multiplied by. */
static inline float reference_scale(const reference *r, const reference_range *o, const float *g) {
    float scale = r->scale != 0 ? r->scale : 1;
    if (o->clip_norm == 0) return scale;
    float norm = sqrtf(reference_squares(g, r->dim)) * scale;
    float factor = o->clip_norm / (norm + 1e-6f);
    return factor < 1 ? scale * factor : scale;
}

static inline uint64_t reference_mix(uint64_t x) {
    x = x + 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The 16 random bits of an element's update: a mix of seed and step, one of that and the row, of which the upper half
 * counts, and a hash of 32 bits for each pair of elements. */
static inline uint32_t reference_noise(const reference *r, uint64_t row, uint32_t j) {
    uint64_t of_step = reference_mix(r->seed ^ reference_mix(r->step)), of_row = reference_mix(of_step ^ row);
    uint32_t x = (uint32_t)(of_row >> 32) + j / 2 * 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x21f0aaadu;
    x ^= x >> 15;
    x *= 0x735a2d97u;
    x ^= x >> 15;
    return j % 2 ? x >> 16 : x & 0xffff;
}

/* A float as a weight of r->rows_as: a multiple of the distance of weights where it lies, in doubles, which are exact.
 * `noise` below 0: to the nearest. */
static inline float reference_round(int rows_as, float x, int64_t noise) {
    int bits = rows_as == REFERENCE_BF16 ? 7 : 10, least = rows_as == REFERENCE_BF16 ? -126 : -14;
    double limit = rows_as == REFERENCE_BF16 ? 0x1p128 : 0x1p16, magnitude = fabs((double)x);
    if (rows_as == REFERENCE_FP32 || x == 0 || isinf(x)) return x;
    if (isnan(x)) return NAN;
    int exponent = ilogb(magnitude);
    double distance = ldexp(1, (exponent < least ? least : exponent) - bits), below = floor(magnitude / distance);
    double part = magnitude / distance - below;
    int up =
        noise < 0 ? part > 0.5 || (part == 0.5 && fmod(below, 2) == 1) : floor(part * 65536) + (double)noise >= 65536;
    double rounded = (below + up) * distance;
    return copysignf(rounded >= limit ? INFINITY : (float)rounded, x);
}

/* Number `i` of an array of a type; there and back, a float that the type has. */
static inline float reference_load(int as, const void *array, uint64_t i) {
    const unsigned char *at = (const unsigned char *)array + (as == REFERENCE_FP32 ? 4 : 2) * i;
    uint16_t half = 0;
    float x;
    if (as == REFERENCE_FP32) return memcpy(&x, at, 4), x;
    memcpy(&half, at, 2);
    uint32_t word = (uint32_t)half << 16;
    if (as == REFERENCE_BF16) return memcpy(&x, &word, 4), x;
    int exponent = half >> 10 & 31, fraction = half & 1023;
    x = ldexpf((float)(exponent ? 1024 + fraction : fraction), (exponent ? exponent : 1) - 25);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return half >> 15 ? -x : x;
}
static inline void reference_store(int as, void *array, uint64_t i, float x) {
    unsigned char *at = (unsigned char *)array + (as == REFERENCE_FP32 ? 4 : 2) * i;
    uint32_t word;
    memcpy(&word, &x, 4);
    uint16_t half = (uint16_t)(isnan(x) ? 0x7fc0 : word >> 16), sign = (uint16_t)(word >> 16 & 0x8000);
    if (as == REFERENCE_FP32) {
        memcpy(at, &x, 4);
        return;
    }
    if (as == REFERENCE_FP16) {
        float magnitude = fabsf(x);
        int exponent = magnitude < 0x1p-14f || isnan(x) || isinf(x) ? -15 : ilogbf(magnitude);
        half = exponent < -14 ? (uint16_t)(isnan(x) || isinf(x) ? 0x7c00 : ldexpf(magnitude, 24))
                              : (uint16_t)((exponent + 14) * 1024 + (int)ldexpf(magnitude, 10 - exponent));
        half = isnan(x) ? 0x7e00 : (uint16_t)(half | sign);
    }
    memcpy(at, &half, 2);
}

/* The weight after an update. */
static inline float reference_stored(const reference *r, uint64_t row, uint32_t j, float x) {
    return reference_round(r->rows_as, x, r->nearest ? -1 : (int64_t)reference_noise(r, row, j));
}

/* One optimizer step on one row, whose gradient is in r->total. */
static inline void reference_apply(reference *r, uint64_t row) {
    float *w = r->weights + row * r->dim, *s = r->state + row * r->state_floats, *g = r->total + row * r->dim;
    const reference_range *o = reference_range_of(r, row);
    if (o->frozen) return;
    float factor = 0;
    for (uint32_t j = 0; r->mean && j < r->dim; j++) g[j] = g[j] / (float)r->devices;
    float scale = reference_scale(r, o, g);
    for (uint32_t j = 0; j < r->dim; j++) {
        g[j] = g[j] * scale;
        if (o->weight_decay != 0 && r->optimizer != REFERENCE_ADAMW) g[j] = fmaf(o->weight_decay, w[j], g[j]);
    }
    if (r->optimizer == REFERENCE_ROWWISE_ADAGRAD) {
        s[0] = s[0] + reference_squares(g, r->dim) / (float)r->dim;
        factor = o->lr / (sqrtf(s[0]) + o->eps);
    }
    for (uint32_t j = 0; j < r->dim; j++) switch (r->optimizer) {
        case REFERENCE_SGD:
            w[j] = fmaf(-o->lr, g[j], w[j]);
            break;
        case REFERENCE_ADAGRAD:
            s[j] = fmaf(g[j], g[j], s[j]);
            w[j] = fmaf(-o->lr, g[j] / (sqrtf(s[j]) + o->eps), w[j]);
            break;
        case REFERENCE_ROWWISE_ADAGRAD:
            w[j] = fmaf(-factor, g[j], w[j]);
            break;
        case REFERENCE_ADAMW:
            if (o->weight_decay != 0) w[j] = fmaf(-(o->lr * o->weight_decay), w[j], w[j]); /* fall through */
        case REFERENCE_ADAM: {
            float *m = &s[j], *v = &s[r->dim + j];
            *m = fmaf(g[j] - *m, 1.0f - o->beta1, *m);
            *v = fmaf(fmaf(g[j], g[j], -*v), 1.0f - o->beta2, *v);
            w[j] = fmaf(-o->step_size, *m / (sqrtf(*v) + o->eps), w[j]);
        }
        }
    for (uint32_t j = 0; j < r->dim; j++) w[j] = reference_stored(r, row, j, w[j]);
}

/* A training step: equal keys of a device in blocks of 32 positions, devices in order, one update a row. */
static inline void reference_step(reference *r, uint64_t step, float lr, const reference_batch *batches) {
    r->step = step;
    for (uint32_t d = 0; d < r->devices; d++) {
        const reference_batch *b = &batches[d];
        for (uint32_t i = 0; b->grads && i < b->n; i++) {
            uint64_t row = b->rows[i], at = row * r->dim;
            uint32_t n = r->count[row]++;
            if (n > 0 && n % 32 == 0) reference_add(r->sum + at, r->block + at, r->dim, n == 32);
            reference_add(r->block + at, b->grads + (uint64_t)i * r->dim, r->dim, n % 32 == 0);
        }
        for (uint32_t i = 0; b->grads && i < b->n; i++) {
            uint64_t row = b->rows[i], at = row * r->dim;
            if (r->count[row] == 0) continue; /* added at an earlier position */
            reference_add(r->sum + at, r->block + at, r->dim, r->count[row] <= 32);
            reference_add(r->total + at, r->sum + at, r->dim, !r->touched[row]);
            r->count[row] = 0, r->touched[row] = 1;
        }
    }
    for (uint32_t i = 0; i < r->n_ranges; i++) {
        reference_range *o = &r->ranges[i];
        double power1 = 1, power2 = 1; /* below 2^-60 they no longer show beside 1 */
        for (uint64_t t = 0; t <= step && r->optimizer >= REFERENCE_ADAM && (power1 > 0x1p-60 || power2 > 0x1p-60); t++)
            power1 *= (double)o->beta1, power2 *= (double)o->beta2;
        o->lr = lr * o->lr_scale;
        o->step_size = (float)((double)o->lr * sqrt(1 - power2) / (1 - power1));
    }
    for (uint32_t d = 0; d < r->devices; d++)
        for (uint32_t i = 0; i < batches[d].n; i++) {
            uint64_t row = batches[d].rows[i];
            if (r->touched[row]) reference_apply(r, row);
            r->touched[row] = 0;
        }
}

/* >>bags: bag b has positions offsets[b] .. offsets[b + 1] - 1 */

typedef struct reference_bags {
    uint32_t n_bags;
    const uint32_t *offsets;
    const float *weights; /* by position; NULL: none */
    int mean;
} reference_bags;

/* pooled[n_bags][dim] of rows[n][dim], by position. */
static inline void reference_pool(const reference_bags *b, const float *rows, uint32_t dim, float *pooled) {
    for (uint32_t bag = 0; bag < b->n_bags; bag++)
        for (uint32_t j = 0; j < dim; j++) {
            uint32_t n = b->offsets[bag + 1] - b->offsets[bag];
            float sum = 0;
            for (uint32_t k = 0; k < n; k++) {
                uint32_t p = b->offsets[bag] + k;
                float x = rows[(uint64_t)p * dim + j];
                if (b->weights)
                    sum = k == 0 ? b->weights[p] * x : fmaf(b->weights[p], x, sum);
                else
                    sum = k == 0 ? x : sum + x;
            }
            pooled[(uint64_t)bag * dim + j] = b->mean && n > 0 ? sum / (float)n : sum;
        }
}

/* grads[n][dim], by position, of bag_grads[n_bags][dim]. */
static inline void reference_spread(const reference_bags *b, const float *bag_grads, uint32_t dim, float *grads) {
    for (uint32_t bag = 0; bag < b->n_bags; bag++)
        for (uint32_t p = b->offsets[bag]; p < b->offsets[bag + 1]; p++)
            for (uint32_t j = 0; j < dim; j++) {
                float g = bag_grads[(uint64_t)bag * dim + j];
                if (b->weights) g = g * b->weights[p];
                if (b->mean) g = g / (float)(b->offsets[bag + 1] - b->offsets[bag]);
                grads[(uint64_t)p * dim + j] = g;
            }
}

#endif /* REFERENCE_H */
