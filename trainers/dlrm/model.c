/* Logits, losses and gradients of the recommendation models. See model.h for what they are. */
#include "trainers/dlrm/model.h"
#include "trainers/common/random.h"
#include "trainers/common/vector.h"
#include "trainers/dlrm/cross.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

/* A BLAS counts rows and columns in ints. */
#define DLRM_MOST_WIDTH      INT32_MAX
#define DLRM_MOST_PARAMETERS ((uint64_t)1 << 40)

const char *dlrm_model_name(dlrm_kind kind) {
    static const char *const name[DLRM_KINDS] = {"dlrm", "wide-deep", "deepfm", "dcn"};
    return name[kind];
}

int dlrm_has_linear(const dlrm_model *model) {
    return model->kind == DLRM_WIDE_DEEP || model->kind == DLRM_DEEPFM;
}

/* ---- Layout --------------------------------------------------------------------------------------------- */

static int dlrm_has_bottom(const dlrm_model *model) {
    return model->kind == DLRM_DLRM && model->numbers > 0;
}

uint32_t dlrm_vectors(const dlrm_model *model) {
    return model->features + (uint32_t)dlrm_has_bottom(model);
}

/* The shape of an MLP: `in` numbers, n hidden layers of these widths, and a layer of width `last`. */
typedef struct dlrm_plan {
    const char *name;
    uint64_t in;
    uint32_t n;
    const uint32_t *width;
    uint32_t last;
} dlrm_plan;

/* Adds the layers one after the other. */
static int dlrm_layout_mlp(const dlrm_plan *plan, dlrm_layer *layer, uint64_t *parameters, program_error *error) {
    const char *name = plan->name;
    uint64_t in = plan->in;
    uint32_t n = plan->n;
    if (n > DLRM_MOST_LAYERS)
        return program_fail(error, "the %s MLP has %u hidden layers, can have %d", name, n, DLRM_MOST_LAYERS);
    for (uint32_t i = 0; i <= n; i++) {
        uint64_t out = i < n ? plan->width[i] : plan->last;
        if (in > DLRM_MOST_WIDTH)
            return program_fail(error,
                                "the %s MLP's input has %llu numbers, can have %d: fewer features or a lower dim", name,
                                (unsigned long long)in, DLRM_MOST_WIDTH);
        if (!out || out > DLRM_MOST_WIDTH)
            return program_fail(error, "layer %u of the %s MLP is %llu wide, must be 1 to %d", i + 1, name,
                                (unsigned long long)out, DLRM_MOST_WIDTH);
        layer[i] = (dlrm_layer){(uint32_t)in, (uint32_t)out, *parameters, *parameters + in * out};
        *parameters += (in + 1) * out;
        if (*parameters > DLRM_MOST_PARAMETERS)
            return program_fail(error, "up to layer %u the %s MLP has more than 2^40 parameters: narrower layers",
                                i + 1, name);
        in = out;
    }
    return 0;
}

int dlrm_layout(const dlrm_model *model, dlrm_layers *layers, program_error *error) {
    uint64_t n = dlrm_vectors(model), in = model->numbers + (uint64_t)model->features * model->dim;
    *layers = (dlrm_layers){0};
    if (!model->features) return program_fail(error, "the model has no features, needs at least one");
    if (!model->dim) return program_fail(error, "the rows have dim 0, must have at least 1");
    if (model->kind == DLRM_DLRM) {
        in = n * (n - 1) / 2 + (dlrm_has_bottom(model) ? model->dim : 0);
        if (!in)
            return program_fail(error,
                                "dlrm has no pairs with one feature and no numbers: use wide-deep, or more features");
    }
    if (dlrm_has_bottom(model)) {
        dlrm_plan bottom = {"bottom", model->numbers, model->n_bottom, model->bottom, model->dim};
        if (dlrm_layout_mlp(&bottom, layers->bottom, &layers->parameters, error)) return -1;
        layers->n_bottom = model->n_bottom + 1;
    }
    dlrm_plan top = {"top", in, model->n_top, model->top, 1};
    if (dlrm_layout_mlp(&top, layers->top, &layers->parameters, error)) return -1;
    layers->n_top = model->n_top + 1;
    layers->linear = layers->parameters;
    if (dlrm_has_linear(model)) layers->parameters += model->numbers;
    layers->cross = layers->parameters;
    if (model->kind != DLRM_DCN) return 0;
    if (!model->n_cross || model->n_cross > DLRM_MOST_LAYERS)
        return program_fail(error, "dcn has %u cross layers, must have 1 to %d", model->n_cross, DLRM_MOST_LAYERS);
    layers->parameters += (2 * (uint64_t)model->n_cross + 1) * in;
    return 0;
}

/* ---- First values ---------------------------------------------------------------------------------------- */

/* Box and Muller. */
static double dlrm_normal(uint64_t seed, uint64_t i) {
    double radius = (double)((random_at(seed, 2 * i) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double angle = (double)(random_at(seed, 2 * i + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(radius)) * cos(2 * M_PI * angle);
}

static void dlrm_init_layers(uint32_t n, const dlrm_layer *layer, uint64_t seed, float *parameters) {
    for (; n--; layer++) {
        double weight = sqrt(2.0 / ((double)layer->in + layer->out)), bias = sqrt(1.0 / layer->out);
        for (uint64_t i = layer->weight; i < layer->bias + layer->out; i++)
            parameters[i] = (float)(dlrm_normal(seed, i) * (i < layer->bias ? weight : bias));
    }
}

void dlrm_init(const dlrm_model *model, uint64_t seed, float *parameters) {
    dlrm_layers layers;
    program_error error;
    if (dlrm_layout(model, &layers, &error)) return;
    dlrm_init_layers(layers.n_bottom, layers.bottom, seed, parameters);
    dlrm_init_layers(layers.n_top, layers.top, seed, parameters);
    for (uint64_t i = layers.linear; i < layers.parameters; i++) parameters[i] = 0.0f;
    uint64_t width = layers.top[0].in, all = layers.cross + model->n_cross * width;
    double weight = sqrt(2.0 / ((double)width + 1));
    for (uint64_t i = layers.cross; i < layers.parameters; i++)
        if (i < all || i >= all + model->n_cross * width) parameters[i] = (float)(dlrm_normal(seed, i) * weight);
}

/* ---- Sixteen samples side by side ------------------------------------------------------------------------ */

/* A dot product of two short rows would end in a sum over lanes, for every pair. So the pairs of sixteen samples are
 * multiplied at once, each sample in its lane. */
typedef struct dlrm_sixteen {
    vector_half half[2];
} dlrm_sixteen;

#ifdef __clang__
#define DLRM_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define DLRM_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vector_half_bits){__VA_ARGS__})
#endif

#define DLRM_LOW(i, step)  ((i) & (step) ? VECTOR_HALF + (i) - (step) : (i))
#define DLRM_HIGH(i, step) ((i) & (step) ? VECTOR_HALF + (i) : (i) + (step))
#define DLRM_EACH(of, step)                                                                                            \
    of(0, step), of(1, step), of(2, step), of(3, step), of(4, step), of(5, step), of(6, step), of(7, step)
/* Exchanges blocks of step x step across the diagonals of blocks twice as large, within x[8] of one half. */
#define DLRM_TURN(x, h, step)                                                                                          \
    for (int i = 0; i < VECTOR_HALF; i++)                                                                              \
        if (!(i & (step))) {                                                                                           \
            vector_half a = (x)[i].half[h], b = (x)[i + (step)].half[h];                                               \
            (x)[i].half[h] = DLRM_SHUFFLE(a, b, DLRM_EACH(DLRM_LOW, step));                                            \
            (x)[i + (step)].half[h] = DLRM_SHUFFLE(a, b, DLRM_EACH(DLRM_HIGH, step));                                  \
        }

/* Transposes x[16]: its four blocks of eight by eight, and then two of them change places. */
VECTOR_INLINE void dlrm_turn(dlrm_sixteen *x) {
    for (int rows = 0; rows < VECTOR_LANES; rows += VECTOR_HALF)
        for (int half = 0; half < 2; half++) {
            DLRM_TURN(x + rows, half, 1)
            DLRM_TURN(x + rows, half, 2)
            DLRM_TURN(x + rows, half, 4)
        }
    for (int i = 0; i < VECTOR_HALF; i++) {
        vector_half a = x[i].half[1];
        x[i].half[1] = x[i + VECTOR_HALF].half[0], x[i + VECTOR_HALF].half[0] = a;
    }
}

/* to[columns]: from[samples][stride], 0 in the lanes of missing samples. */
VECTOR_INLINE void dlrm_to_lanes(uint32_t samples, uint32_t columns, const float *from, size_t stride,
                                 dlrm_sixteen *to) {
    uint32_t k = 0;
    for (; samples == VECTOR_LANES && k + VECTOR_LANES <= columns; k += VECTOR_LANES) {
        dlrm_sixteen x[VECTOR_LANES];
        for (int i = 0; i < VECTOR_LANES; i++) memcpy(&x[i], from + (size_t)i * stride + k, sizeof *x);
        dlrm_turn(x);
        memcpy(to + k, x, sizeof x);
    }
    for (; k < columns; k++) {
        float lane[VECTOR_LANES] = {0};
        for (uint32_t i = 0; i < samples; i++) lane[i] = from[i * stride + k];
        memcpy(to + k, lane, sizeof lane);
    }
}

/* The inverse: to[samples][stride]. */
VECTOR_INLINE void dlrm_from_lanes(uint32_t samples, uint32_t columns, const dlrm_sixteen *from, float *to,
                                   size_t stride) {
    uint32_t k = 0;
    for (; samples == VECTOR_LANES && k + VECTOR_LANES <= columns; k += VECTOR_LANES) {
        dlrm_sixteen x[VECTOR_LANES];
        memcpy(x, from + k, sizeof x);
        dlrm_turn(x);
        for (int i = 0; i < VECTOR_LANES; i++) memcpy(to + (size_t)i * stride + k, &x[i], sizeof *x);
    }
    for (; k < columns; k++) {
        float lane[VECTOR_LANES];
        memcpy(lane, from + k, sizeof lane);
        for (uint32_t i = 0; i < samples; i++) to[i * stride + k] = lane[i];
    }
}

/* ---- Pairs ----------------------------------------------------------------------------------------------- */

enum { DLRM_TILE = 4, DLRM_COLUMNS = 2 }; /* DLRM_TILE x DLRM_COLUMNS sums of a half stay in registers */

/* The vectors of all samples, or their gradients: if there is a bottom MLP, the first vector lies apart. */
typedef struct dlrm_matrix {
    float *first, *rows; /* first[n][first_stride] or NULL, rows[vectors][n][dim] */
    size_t first_stride;
} dlrm_matrix;

/* Of sixteen samples. Vectors are padded to whole tiles; results of the padding are ignored. */
typedef struct dlrm_pairs {
    uint32_t vectors, padded, dim;
    dlrm_sixteen *block;  /* block[padded][16]: sixteen columns of the vectors */
    dlrm_sixteen *square; /* square[padded][padded]: by pair; forward below the diagonal only */
    dlrm_sixteen *list;   /* list[pairs]: in the order of the top's input */
} dlrm_pairs;

static float *dlrm_vector(const dlrm_pairs *p, const dlrm_matrix *m, uint32_t n, uint32_t vector, uint32_t sample,
                          size_t *stride) {
    *stride = p->dim;
    if (!m->first) return m->rows + ((size_t)vector * n + sample) * p->dim;
    if (vector) return m->rows + ((size_t)(vector - 1) * n + sample) * p->dim;
    *stride = m->first_stride;
    return m->first + sample * m->first_stride;
}

/* The number of items of `all` from `at` on, at most the number of lanes. */
VECTOR_INLINE uint32_t dlrm_lanes(uint32_t all, uint32_t at) {
    return all - at < VECTOR_LANES ? all - at : VECTOR_LANES;
}

/* block: columns from k on of the samples from `sample` on. */
VECTOR_INLINE void dlrm_load_block(const dlrm_pairs *p, const dlrm_matrix *m, uint32_t n, uint32_t sample, uint32_t k) {
    uint32_t samples = dlrm_lanes(n, sample), columns = dlrm_lanes(p->dim, k);
    for (uint32_t v = 0; v < p->vectors; v++) {
        size_t stride;
        const float *from = dlrm_vector(p, m, n, v, sample, &stride);
        dlrm_to_lanes(samples, columns, from + k, stride, p->block + (size_t)v * VECTOR_LANES);
    }
}

/* square += block block', on and below the diagonal. */
VECTOR_INLINE void dlrm_add_products(const dlrm_pairs *p, uint32_t columns) {
    for (uint32_t i = 0; i < p->padded; i += DLRM_TILE)
        for (uint32_t j = 0; j < i + DLRM_TILE; j += DLRM_COLUMNS)
            for (int h = 0; h < 2; h++) {
                const dlrm_sixteen *a = p->block + (size_t)i * VECTOR_LANES, *b = p->block + (size_t)j * VECTOR_LANES;
                dlrm_sixteen *out = p->square + (size_t)i * p->padded + j;
                vector_half sum[DLRM_TILE][DLRM_COLUMNS];
                for (int r = 0; r < DLRM_TILE; r++)
                    for (int c = 0; c < DLRM_COLUMNS; c++) sum[r][c] = out[(size_t)r * p->padded + c].half[h];
                for (uint32_t k = 0; k < columns; k++)
                    for (int r = 0; r < DLRM_TILE; r++)
                        for (int c = 0; c < DLRM_COLUMNS; c++)
                            sum[r][c] += a[r * VECTOR_LANES + k].half[h] * b[c * VECTOR_LANES + k].half[h];
                for (int r = 0; r < DLRM_TILE; r++)
                    for (int c = 0; c < DLRM_COLUMNS; c++) out[(size_t)r * p->padded + c].half[h] = sum[r][c];
            }
}

/* out[n][stride]: the pairs' products. */
VECTOR_CLONES
static void dlrm_pairs_forward(const dlrm_pairs *p, const dlrm_matrix *vectors, uint32_t n, float *out, size_t stride) {
    uint32_t pairs = p->vectors * (p->vectors - 1) / 2;
    for (uint32_t sample = 0; sample < n; sample += VECTOR_LANES) {
        uint32_t samples = dlrm_lanes(n, sample);
        memset(p->square, 0, (size_t)p->padded * p->padded * sizeof *p->square);
        for (uint32_t k = 0; k < p->dim; k += VECTOR_LANES) {
            uint32_t columns = dlrm_lanes(p->dim, k);
            dlrm_load_block(p, vectors, n, sample, k);
            dlrm_add_products(p, columns);
        }
        dlrm_sixteen *to = p->list;
        for (uint32_t i = 0; i < p->vectors; to += i++) memcpy(to, p->square + (size_t)i * p->padded, i * sizeof *to);
        dlrm_from_lanes(samples, pairs, p->list, out + sample * stride, stride);
    }
}

/* square: the pairs' gradients, symmetric, 0 on the diagonal. */
VECTOR_INLINE void dlrm_load_square(const dlrm_pairs *p) {
    const dlrm_sixteen *from = p->list;
    for (uint32_t i = 0; i < p->vectors; i++) {
        for (uint32_t j = 0; j < i; j++, from++)
            p->square[(size_t)i * p->padded + j] = p->square[(size_t)j * p->padded + i] = *from;
        p->square[(size_t)i * p->padded + i] = (dlrm_sixteen){{{0}}};
    }
}

/* out[4][16] = four rows of square times block. */
VECTOR_INLINE void dlrm_gradient_rows(const dlrm_pairs *p, uint32_t row, uint32_t columns, dlrm_sixteen *out) {
    const dlrm_sixteen *a = p->square + (size_t)row * p->padded;
    for (uint32_t k = 0; k < columns; k += DLRM_COLUMNS)
        for (int h = 0; h < 2; h++) {
            vector_half sum[DLRM_TILE][DLRM_COLUMNS] = {{{0}}};
            for (uint32_t j = 0; j < p->vectors; j++)
                for (int r = 0; r < DLRM_TILE; r++)
                    for (int c = 0; c < DLRM_COLUMNS; c++)
                        sum[r][c] += a[(size_t)r * p->padded + j].half[h] *
                                     p->block[(size_t)j * VECTOR_LANES + k + (uint32_t)c].half[h];
            for (int r = 0; r < DLRM_TILE; r++)
                for (int c = 0; c < DLRM_COLUMNS; c++) out[r * VECTOR_LANES + (int)k + c].half[h] = sum[r][c];
        }
}

/* The vectors' gradients, from those of the pairs' products: from[n][stride]. */
VECTOR_CLONES
static void dlrm_pairs_back(const dlrm_pairs *p, const dlrm_matrix *vectors, uint32_t n, const float *from,
                            size_t stride, const dlrm_matrix *gradients) {
    uint32_t pairs = p->vectors * (p->vectors - 1) / 2;
    for (uint32_t sample = 0; sample < n; sample += VECTOR_LANES) {
        uint32_t samples = dlrm_lanes(n, sample);
        dlrm_to_lanes(samples, pairs, from + sample * stride, stride, p->list);
        dlrm_load_square(p);
        for (uint32_t k = 0; k < p->dim; k += VECTOR_LANES) {
            uint32_t columns = dlrm_lanes(p->dim, k);
            dlrm_load_block(p, vectors, n, sample, k);
            for (uint32_t v = 0; v < p->vectors; v += DLRM_TILE) {
                dlrm_sixteen out[DLRM_TILE * VECTOR_LANES];
                dlrm_gradient_rows(p, v, columns, out);
                for (uint32_t r = 0; r < DLRM_TILE && v + r < p->vectors; r++) {
                    size_t to_stride;
                    float *to = dlrm_vector(p, gradients, n, v + r, sample, &to_stride);
                    dlrm_from_lanes(samples, columns, out + r * VECTOR_LANES, to + k, to_stride);
                }
            }
        }
    }
}

/* ---- Dense layers ---------------------------------------------------------------------------------------- */

/* y = y + bias, cut off below 0 where `relu`. NaN stays NaN. */
VECTOR_CLONES
static void dlrm_bias(uint32_t n, uint32_t width, const float *restrict bias, int relu, float *restrict y,
                      size_t stride) {
    for (uint32_t i = 0; i < n; i++, y += stride)
        if (relu)
            for (uint32_t j = 0; j < width; j++) {
                float x = y[j] + bias[j];
                y[j] = x < 0.0f ? 0.0f : x;
            }
        else
            for (uint32_t j = 0; j < width; j++) y[j] += bias[j];
}

/* The gradient is 0 where the relu has cut off. */
VECTOR_CLONES
static void dlrm_mask(uint32_t n, uint32_t width, const float *restrict y, size_t stride, float *restrict gradient) {
    for (uint32_t i = 0; i < n; i++, y += stride, gradient += width)
        for (uint32_t j = 0; j < width; j++) gradient[j] = y[j] <= 0.0f ? 0.0f : gradient[j];
}

VECTOR_CLONES
static void dlrm_column_sums(uint32_t n, uint32_t width, const float *restrict x, float *restrict sum) {
    for (uint32_t j = 0; j < width; j++) sum[j] = 0.0f;
    for (uint32_t i = 0; i < n; i++, x += width)
        for (uint32_t j = 0; j < width; j++) sum[j] += x[j];
}

/* A matrix with one row per sample. */
typedef struct dlrm_view {
    float *at;
    size_t stride;
} dlrm_view;

static void dlrm_layer_forward(const dlrm_layer *layer, const float *parameters, uint32_t n, dlrm_view in,
                               dlrm_view out, int relu) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, (blasint)layer->out, (blasint)layer->in, 1.0f,
                in.at, (blasint)in.stride, parameters + layer->weight, (blasint)layer->in, 0.0f, out.at,
                (blasint)out.stride);
    dlrm_bias(n, layer->out, parameters + layer->bias, relu, out.at, out.stride);
}

/* The parameters of all layers, and the place for their gradient. */
typedef struct dlrm_weights {
    const float *at;
    float *gradient;
} dlrm_weights;

/* From the gradient[n][out] of a layer's output to that of its parameters, and of its input where that is asked for. */
static void dlrm_layer_back(const dlrm_layer *layer, dlrm_weights weights, uint32_t n, dlrm_view in,
                            const float *gradient, float *in_gradient) {
    const float *parameters = weights.at;
    float *out = weights.gradient;
    blasint rows = (blasint)n, width = (blasint)layer->out, in_width = (blasint)layer->in;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, width, in_width, rows, 1.0f, gradient, width, in.at,
                (blasint)in.stride, 0.0f, out + layer->weight, in_width);
    dlrm_column_sums(n, layer->out, gradient, out + layer->bias);
    if (in_gradient)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in_width, width, 1.0f, gradient, width,
                    parameters + layer->weight, in_width, 0.0f, in_gradient, in_width);
}

/* An MLP as it runs: view[0] is its input, view[i + 1] what layer i puts out. */
typedef struct dlrm_mlp {
    uint32_t n;
    const dlrm_layer *layer;
    dlrm_view view[DLRM_MOST_LAYERS + 2];
} dlrm_mlp;

static void dlrm_mlp_forward(const dlrm_mlp *mlp, const float *parameters, uint32_t n, int last_relu) {
    for (uint32_t i = 0; i < mlp->n; i++)
        dlrm_layer_forward(&mlp->layer[i], parameters, n, mlp->view[i], mlp->view[i + 1], last_relu || i + 1 < mlp->n);
}

/* From the gradient of the last layer's output, before its relu if it has one, to that of the parameters, and
 * to that of the input where it is asked for. scratch[2][n][widest]; `gradient` lies elsewhere. */
static void dlrm_mlp_back(const dlrm_mlp *mlp, dlrm_weights weights, uint32_t n, const float *gradient,
                          float *const scratch[2], float *in_gradient) {
    for (uint32_t i = mlp->n; i-- > 0;) {
        float *next = i ? scratch[gradient == scratch[0]] : in_gradient;
        dlrm_layer_back(&mlp->layer[i], weights, n, mlp->view[i], gradient, next);
        if (i) dlrm_mask(n, mlp->layer[i].in, mlp->view[i].at, mlp->view[i].stride, next);
        gradient = next;
    }
}

/* ---- Linear part, factorization machine, loss ------------------------------------------------------------ */

VECTOR_CLONES
static void dlrm_add_linear(uint32_t n, uint32_t features, const float *restrict linear, float *restrict logit) {
    for (uint32_t f = 0; f < features; f++, linear += n)
        for (uint32_t i = 0; i < n; i++) logit[i] += linear[i];
}

/* The sum of s * s - q. */
VECTOR_INLINE float dlrm_square_sum(uint32_t n, const float *s, const float *q) {
    vector_half sum[2] = {{0}}, x, y;
    uint32_t k = 0;
    for (; k + VECTOR_LANES <= n; k += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, s + k + half * VECTOR_HALF, sizeof x);
            memcpy(&y, q + k + half * VECTOR_HALF, sizeof y);
            sum[half] += x * x - y;
        }
    float total = vector_lane_sum(sum);
    for (; k < n; k++) total += s[k] * s[k] - q[k];
    return total;
}

/* The rows of a batch: at[features][n][dim]. */
typedef struct dlrm_rows {
    uint32_t n, features, dim;
    const float *at;
} dlrm_rows;

/* Adds the sum over pairs of row . row, half of |sum of rows|^2 - sum of |row|^2, to the logits, and keeps the sums of
 * rows: sum[n][dim]. square[n][dim] is scratch. */
VECTOR_CLONES
static void dlrm_machine(const dlrm_rows *rows, float *sum, float *square, float *logit) {
    enum { BLOCK = 16 }; /* samples: their sums stay in the first-level cache */
    uint32_t n = rows->n, features = rows->features, dim = rows->dim;
    for (uint32_t from = 0; from < n; from += BLOCK) {
        uint32_t samples = n - from < BLOCK ? n - from : BLOCK;
        size_t floats = (size_t)samples * dim, at = (size_t)from * dim;
        float *restrict s = sum + at, *restrict q = square + at;
        for (size_t k = 0; k < floats; k++) s[k] = q[k] = 0.0f;
        for (uint32_t f = 0; f < features; f++) {
            const float *restrict row = rows->at + (size_t)f * n * dim + at;
            for (size_t k = 0; k < floats; k++) {
                s[k] += row[k];
                q[k] += row[k] * row[k];
            }
        }
        for (uint32_t i = 0; i < samples; i++)
            logit[from + i] += 0.5f * dlrm_square_sum(dim, s + (size_t)i * dim, q + (size_t)i * dim);
    }
}

/* The rows' gradients: each its share of the top's input (`in`, behind the numbers), and slope * (sum - row)
 * where a factorization machine has left the sums. */
VECTOR_CLONES
static void dlrm_rows_back(const dlrm_rows *rows, dlrm_view in, const float *sum, const float *slope, float *gradient) {
    uint32_t n = rows->n, features = rows->features, dim = rows->dim;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t f = 0; f < features; f++) {
            size_t at = ((size_t)f * n + i) * dim;
            const float *restrict from = in.at + i * in.stride + (size_t)f * dim;
            float *restrict to = gradient + at;
            if (!sum) {
                memcpy(to, from, dim * sizeof *to);
                continue;
            }
            const float *restrict row = rows->at + at, *restrict s = sum + (size_t)i * dim;
            float weight = slope[i];
            for (uint32_t k = 0; k < dim; k++) to[k] = from[k] + weight * (s[k] - row[k]);
        }
}

/* The sum of the losses log(1 + e^x) - label x, and slope[n], their derivatives by the logits x, times `scale`. */
VECTOR_CLONES
static double dlrm_loss(uint32_t n, float scale, const float *restrict logit, const float *restrict label,
                        float *restrict slope) {
    enum { BLOCK = 256 };
    float loss[BLOCK];
    double total = 0;
    for (uint32_t from = 0; from < n; from += BLOCK) {
        uint32_t count = n - from < BLOCK ? n - from : BLOCK;
        for (uint32_t i = 0; i < count; i++) {
            float x = logit[from + i], y = label[from + i];
            float small = vector_exp(x < 0.0f ? x : -x), inverse = 1.0f / (1.0f + small);
            loss[i] = ((x < 0.0f ? 0.0f : x) - y * x) + vector_log1p(small);
            slope[from + i] = vector_normal(scale * ((x < 0.0f ? small * inverse : inverse) - y));
        }
        for (uint32_t i = 0; i < count; i++) total += (double)loss[i];
    }
    return total;
}

/* ---- A batch --------------------------------------------------------------------------------------------- */

struct dlrm_workspace {
    dlrm_layers layers;
    uint32_t samples;
    dlrm_mlp bottom, top;       /* the bottom's last output lies in the top's input */
    float *in_gradient;         /* [samples][width of the top's input] */
    float *gradient[2], *slope; /* [samples][widest layer]; [samples] */
    float *bottom_gradient;     /* [samples][dim], where there is a bottom MLP */
    float *sum, *square;        /* [samples][dim], deepfm */
    dlrm_pairs pairs;
    dlrm_cross cross; /* dcn */
    void *memory;
};

/* Hands out parts of one block of memory, each on a cache line; without a block it only counts. */
typedef struct dlrm_arena {
    char *memory;
    uint64_t used;
} dlrm_arena;

static void *dlrm_part(dlrm_arena *arena, uint64_t floats) {
    const uint64_t most = (uint64_t)1 << 50; /* more than there is; so the sum does not wrap around */
    void *part = arena->memory ? arena->memory + arena->used : NULL;
    arena->used += ((floats < most ? floats : most) * sizeof(float) + 63) / 64 * 64;
    return part;
}

static void dlrm_place_mlp(dlrm_mlp *mlp, dlrm_arena *arena, uint64_t samples, uint32_t n, const dlrm_layer *layer) {
    mlp->n = n;
    mlp->layer = layer;
    for (uint32_t i = 0; i < n; i++)
        mlp->view[i + 1] = (dlrm_view){dlrm_part(arena, samples * layer[i].out), layer[i].out};
}

uint32_t dlrm_widest(const dlrm_layers *layers) {
    uint32_t widest = 1;
    for (uint32_t i = 0; i < layers->n_top; i++) widest = layers->top[i].out > widest ? layers->top[i].out : widest;
    for (uint32_t i = 0; i < layers->n_bottom; i++)
        widest = layers->bottom[i].out > widest ? layers->bottom[i].out : widest;
    return widest;
}

static void dlrm_place(dlrm_workspace *work, const dlrm_model *model, uint64_t samples, dlrm_arena *arena) {
    const dlrm_layers *layers = &work->layers;
    uint64_t widest = dlrm_widest(layers), in = layers->top[0].in, dim = model->dim, vectors = dlrm_vectors(model);
    dlrm_place_mlp(&work->top, arena, samples, layers->n_top, layers->top);
    work->top.view[0] = (dlrm_view){dlrm_part(arena, samples * in), in};
    if (layers->n_bottom) {
        dlrm_place_mlp(&work->bottom, arena, samples, layers->n_bottom - 1, layers->bottom);
        work->bottom.n = layers->n_bottom;
        work->bottom.view[layers->n_bottom] = work->top.view[0];
        work->bottom_gradient = dlrm_part(arena, samples * dim);
    }
    work->in_gradient = dlrm_part(arena, samples * in);
    for (int i = 0; i < 2; i++) work->gradient[i] = dlrm_part(arena, samples * widest);
    work->slope = dlrm_part(arena, samples);
    if (model->kind == DLRM_DEEPFM) {
        work->sum = dlrm_part(arena, samples * dim);
        work->square = dlrm_part(arena, samples * dim);
    }
    if (model->kind == DLRM_DCN) {
        work->cross = (dlrm_cross){.layers = model->n_cross, .width = (uint32_t)in};
        work->cross.x = dlrm_part(arena, model->n_cross * samples * in);
        work->cross.products = dlrm_part(arena, model->n_cross * samples);
        work->cross.gradient = dlrm_part(arena, samples * in);
        work->cross.slopes = dlrm_part(arena, samples);
    }
    if (model->kind == DLRM_DLRM) {
        uint64_t padded = (vectors + DLRM_TILE - 1) / DLRM_TILE * DLRM_TILE;
        work->pairs = (dlrm_pairs){.vectors = (uint32_t)vectors, .padded = (uint32_t)padded, .dim = model->dim};
        work->pairs.block = dlrm_part(arena, padded * VECTOR_LANES * VECTOR_LANES);
        work->pairs.square = dlrm_part(arena, padded * padded * VECTOR_LANES);
        work->pairs.list = dlrm_part(arena, vectors * (vectors - 1) / 2 * VECTOR_LANES);
    }
}

int dlrm_workspace_open(dlrm_workspace **out, const dlrm_model *model, uint32_t samples, program_error *error) {
    dlrm_workspace *work = calloc(1, sizeof *work);
    dlrm_arena arena = {0};
    *out = NULL;
    if (!work) return program_fail(error, "out of memory");
    if (dlrm_layout(model, &work->layers, error)) return free(work), -1;
    if (samples > INT32_MAX) {
        free(work);
        return program_fail(error, "a batch of %u samples, can have %d: use a smaller batch", samples, INT32_MAX);
    }
    work->samples = samples;
    dlrm_place(work, model, samples, &arena);
    uint64_t bytes = arena.used;
    if (bytes <= SIZE_MAX / 2) work->memory = arena.memory = aligned_alloc(64, bytes);
    if (!work->memory) {
        free(work);
        return program_fail(error, "out of memory: %llu bytes for %u samples; use a smaller batch or narrower layers",
                            (unsigned long long)bytes, samples);
    }
    memset(work->memory, 0, bytes); /* because padding is read, too */
    arena.used = 0;
    dlrm_place(work, model, samples, &arena);
    *out = work;
    return 0;
}

void dlrm_workspace_close(dlrm_workspace *work) {
    if (!work) return;
    free(work->memory);
    free(work);
}

/* The part of the top's input that is not pairs: numbers and rows. Forward and backward go sample by sample, because a
 * sample's line of this matrix is long; the rows of each feature are a stream of their own. */
static void dlrm_gather(const dlrm_model *model, const dlrm_input *input, dlrm_view out) {
    size_t numbers = model->numbers, dim = model->dim, n = input->n;
    for (size_t i = 0; numbers && i < n; i++)
        memcpy(out.at + i * out.stride, input->numbers + i * numbers, numbers * sizeof(float));
    for (size_t i = 0; i < n; i++)
        for (size_t f = 0; f < model->features; f++)
            memcpy(out.at + i * out.stride + numbers + f * dim, input->rows + (f * n + i) * dim, dim * sizeof(float));
}

static dlrm_matrix dlrm_vectors_of(const dlrm_input *input, const dlrm_workspace *work) {
    dlrm_view in = work->top.view[0];
    return (dlrm_matrix){work->layers.n_bottom ? in.at : NULL, (float *)input->rows, in.stride};
}

/* Adds numbers . linear of every sample to the logits, or makes the gradient of these weights from the slopes. */
static void dlrm_linear_numbers(const dlrm_model *model, const float *weights, const dlrm_input *input, float *logit) {
    if (!model->numbers) return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)input->n, 1, (blasint)model->numbers, 1.0f,
                input->numbers, (blasint)model->numbers, weights, 1, 1.0f, logit, 1);
}
static void dlrm_linear_numbers_back(const dlrm_model *model, const dlrm_input *input, const float *slope, float *out) {
    if (!model->numbers) return;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)model->numbers, 1, (blasint)input->n, 1.0f,
                input->numbers, (blasint)model->numbers, slope, 1, 0.0f, out, 1);
}

/* The logits of n > 0 samples, at most as many as the workspace is for. They are the top's output. */
static float *dlrm_forward(const dlrm_model *model, const float *parameters, const dlrm_input *input,
                           dlrm_workspace *work) {
    const dlrm_layers *layers = &work->layers;
    dlrm_view in = work->top.view[0];
    float *logit = work->top.view[layers->n_top].at;
    if (layers->n_bottom) {
        work->bottom.view[0] = (dlrm_view){(float *)input->numbers, model->numbers};
        dlrm_mlp_forward(&work->bottom, parameters, input->n, 1);
    }
    if (model->kind == DLRM_DLRM) {
        dlrm_matrix vectors = dlrm_vectors_of(input, work);
        dlrm_pairs_forward(&work->pairs, &vectors, input->n, in.at + (layers->n_bottom ? model->dim : 0), in.stride);
    } else
        dlrm_gather(model, input, in);
    dlrm_mlp_forward(&work->top, parameters, input->n, 0);
    if (dlrm_has_linear(model)) {
        dlrm_linear_numbers(model, parameters + layers->linear, input, logit);
        dlrm_add_linear(input->n, model->features, input->linear, logit);
    }
    if (model->kind == DLRM_DEEPFM) {
        dlrm_rows rows = {input->n, model->features, model->dim, input->rows};
        dlrm_machine(&rows, work->sum, work->square, logit);
    }
    if (model->kind == DLRM_DCN) {
        work->cross.n = input->n, work->cross.x0 = in.at, work->cross.stride = in.stride;
        dlrm_cross_forward(&work->cross, parameters + layers->cross, logit);
    }
    return logit;
}

VECTOR_CLONES
static void dlrm_add_columns(uint32_t n, uint32_t width, const float *restrict x, size_t stride, float *restrict sum) {
    for (uint32_t i = 0; i < n; i++, x += stride, sum += width)
        for (uint32_t j = 0; j < width; j++) sum[j] += x[j];
}

/* From the gradient of dlrm's top input to those of rows and bottom. */
static void dlrm_pairs_and_bottom_back(const dlrm_model *model, const float *parameters, const dlrm_input *input,
                                       const dlrm_gradient *out, dlrm_workspace *work) {
    int bottom = work->layers.n_bottom > 0;
    dlrm_view in = work->top.view[0];
    dlrm_matrix vectors = dlrm_vectors_of(input, work);
    dlrm_matrix gradients = {bottom ? work->bottom_gradient : NULL, out->rows, model->dim};
    dlrm_pairs_back(&work->pairs, &vectors, input->n, work->in_gradient + (bottom ? model->dim : 0), in.stride,
                    &gradients);
    if (!bottom) return;
    dlrm_add_columns(input->n, model->dim, work->in_gradient, in.stride, work->bottom_gradient);
    dlrm_mask(input->n, model->dim, in.at, in.stride, work->bottom_gradient);
    dlrm_weights weights = {parameters, out->parameters};
    dlrm_mlp_back(&work->bottom, weights, input->n, work->bottom_gradient, work->gradient, NULL);
}

double dlrm_gradients(const dlrm_model *model, const float *parameters, const dlrm_input *input, uint32_t batch,
                      const dlrm_gradient *out, dlrm_workspace *work) {
    if (!input->n) {
        memset(out->parameters, 0, work->layers.parameters * sizeof(float));
        return 0;
    }
    size_t n = input->n;
    const float *logit = dlrm_forward(model, parameters, input, work), *slope = work->slope;
    double loss = dlrm_loss(input->n, 1.0f / (float)batch, logit, input->labels, work->slope);
    dlrm_mlp_back(&work->top, (dlrm_weights){parameters, out->parameters}, input->n, slope, work->gradient,
                  work->in_gradient);
    if (model->kind == DLRM_DCN)
        dlrm_cross_back(&work->cross, parameters + work->layers.cross, slope, out->parameters + work->layers.cross,
                        work->in_gradient);
    if (model->kind == DLRM_DLRM)
        dlrm_pairs_and_bottom_back(model, parameters, input, out, work);
    else {
        dlrm_rows rows = {input->n, model->features, model->dim, input->rows};
        dlrm_view in = {work->in_gradient + model->numbers, work->top.view[0].stride};
        dlrm_rows_back(&rows, in, work->sum, slope, out->rows);
    }
    if (dlrm_has_linear(model)) {
        dlrm_linear_numbers_back(model, input, slope, out->parameters + work->layers.linear);
        for (size_t f = 0; f < model->features; f++) memcpy(out->linear + f * n, slope, n * sizeof *slope);
    }
    return loss;
}

void dlrm_logits(const dlrm_model *model, const float *parameters, const dlrm_input *input, float *logits,
                 dlrm_workspace *work) {
    if (input->n) memcpy(logits, dlrm_forward(model, parameters, input, work), input->n * sizeof *logits);
}
