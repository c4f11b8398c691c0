/* reference_dlrm.h - the recommendation models computed by their formulas, sample by sample, in double.
 * trainers/dlrm/model.c and the training around it must give the same values, up to rounding. Shares no code with them.
 * Tables are those of reference.h, bit for bit. */
#ifndef REFERENCE_DLRM_H
#define REFERENCE_DLRM_H

#include "tests/reference.h"

enum { REFERENCE_DLRM, REFERENCE_WIDE_DEEP, REFERENCE_DEEPFM, REFERENCE_DCN };

/* Layers by their widths, the first of them the input's: width[0 .. n]. */
typedef struct reference_mlp {
    uint32_t n, width[20];
    int last_relu;
} reference_mlp;

typedef struct reference_dlrm {
    int kind;
    uint32_t numbers, features, dim;
    reference_mlp bottom, top; /* bottom.n is 0 where there is none */
    uint32_t cross;            /* cross layers */
    uint64_t parameters;       /* their number: bottom, top, linear or cross; of a layer weight[out][in], bias[out] */
    double nearest;            /* of the last sample: the smallest |x| that went into a relu */
} reference_dlrm;

static inline int reference_has_linear(const reference_dlrm *m) {
    return m->kind == REFERENCE_WIDE_DEEP || m->kind == REFERENCE_DEEPFM;
}

/* Hidden widths, as in trainers/dlrm/model.h. Of REFERENCE_DCN, reference_cross_open follows. */
static inline void reference_dlrm_open(reference_dlrm *m, int kind, uint32_t numbers, uint32_t features, uint32_t dim,
                                       uint32_t n_bottom, const uint32_t *bottom, uint32_t n_top, const uint32_t *top) {
    int has_bottom = kind == REFERENCE_DLRM && numbers;
    uint32_t vectors = features + (uint32_t)has_bottom, pairs = vectors * (vectors - 1) / 2;
    memset(m, 0, sizeof *m);
    m->kind = kind, m->numbers = numbers, m->features = features, m->dim = dim;
    m->bottom.n = has_bottom ? n_bottom + 1 : 0, m->bottom.last_relu = 1;
    m->bottom.width[0] = numbers;
    for (uint32_t i = 0; i < n_bottom; i++) m->bottom.width[i + 1] = bottom[i];
    m->bottom.width[n_bottom + 1] = dim;
    m->top.n = n_top + 1;
    m->top.width[0] = kind == REFERENCE_DLRM ? (has_bottom ? dim : 0) + pairs : numbers + features * dim;
    for (uint32_t i = 0; i < n_top; i++) m->top.width[i + 1] = top[i];
    m->top.width[n_top + 1] = 1;
    m->parameters = reference_has_linear(m) ? numbers : 0;
    const reference_mlp *mlp[] = {&m->bottom, &m->top};
    for (int i = 0; i < 2; i++)
        for (uint32_t l = 0; l < mlp[i]->n; l++)
            m->parameters += (mlp[i]->width[l] + 1) * (uint64_t)mlp[i]->width[l + 1];
}

static inline void reference_cross_open(reference_dlrm *m, uint32_t layers) {
    m->cross = layers;
    m->parameters += (2 * (uint64_t)layers + 1) * m->top.width[0];
}

static inline uint64_t reference_mlp_parameters(const reference_mlp *mlp) {
    uint64_t n = 0;
    for (uint32_t l = 0; l < mlp->n; l++) n += (mlp->width[l] + 1) * (uint64_t)mlp->width[l + 1];
    return n;
}
static inline uint64_t reference_mlp_units(const reference_mlp *mlp) { /* of all layers, and the input */
    uint64_t n = 0;
    for (uint32_t l = 0; l <= mlp->n; l++) n += mlp->width[l];
    return n;
}

/* units: the input, then each layer's output, which are filled in. Returns the last layer's. */
static inline double *reference_mlp_forward(const reference_mlp *mlp, const double *p, double *units, double *nearest) {
    for (uint32_t l = 0; l < mlp->n; l++) {
        uint32_t in = mlp->width[l], out = mlp->width[l + 1];
        const double *bias = p + (uint64_t)in * out;
        for (uint32_t o = 0; o < out; o++) {
            double x = bias[o];
            for (uint32_t i = 0; i < in; i++) x += p[(uint64_t)o * in + i] * units[i];
            if (l + 1 < mlp->n || mlp->last_relu) {
                if (fabs(x) < *nearest) *nearest = fabs(x);
                x = x > 0 ? x : 0;
            }
            units[in + o] = x;
        }
        units += in, p = bias + out;
    }
    return units;
}

/* slopes: on entry the gradient of the last layer's output, zeros elsewhere; the others are filled in. Adds the slopes
 * of the parameters to dp. */
static inline void reference_mlp_back(const reference_mlp *mlp, const double *p, const double *units, double *slopes,
                                      double *dp) {
    uint64_t at = reference_mlp_parameters(mlp), unit = reference_mlp_units(mlp) - mlp->width[mlp->n];
    for (uint32_t l = mlp->n; l-- > 0;) {
        uint32_t in = mlp->width[l], out = mlp->width[l + 1];
        at -= (uint64_t)(in + 1) * out;
        for (uint32_t o = 0; o < out; o++) {
            int cut = (l + 1 < mlp->n || mlp->last_relu) && units[unit + o] <= 0;
            double slope = cut ? 0 : slopes[unit + o];
            for (uint32_t i = 0; i < in; i++) {
                dp[at + (uint64_t)o * in + i] += slope * units[unit - in + i];
                slopes[unit - in + i] += slope * p[at + (uint64_t)o * in + i];
            }
            dp[at + (uint64_t)in * out + o] += slope;
        }
        unit -= in;
    }
}

/* One sample: rows[features][dim], linear[features]. */
typedef struct reference_sample {
    const double *numbers, *rows, *linear;
    double label;
} reference_sample;
typedef struct reference_slopes { /* parameters are added to, the others set */
    double *parameters, *rows, *linear;
} reference_slopes;

/* The vectors that dlrm pairs: the bottom's output, if there is one, then the rows. */
static inline const double *reference_vector(const reference_dlrm *m, const double *bottom, const double *rows,
                                             uint32_t i) {
    if (!m->bottom.n) return rows + (uint64_t)i * m->dim;
    return i ? rows + (uint64_t)(i - 1) * m->dim : bottom;
}

/* The top's input, from the bottom's output. */
static inline void reference_top_input(const reference_dlrm *m, const reference_sample *s, const double *bottom,
                                       double *in) {
    if (m->kind != REFERENCE_DLRM) {
        for (uint32_t i = 0; i < m->numbers; i++) *in++ = s->numbers[i];
        for (uint32_t i = 0; i < m->features * m->dim; i++) *in++ = s->rows[i];
        return;
    }
    for (uint32_t k = 0; m->bottom.n && k < m->dim; k++) *in++ = bottom[k];
    for (uint32_t i = 0; i < m->features + (m->bottom.n > 0); i++)
        for (uint32_t j = 0; j < i; j++, in++) {
            *in = 0;
            for (uint32_t k = 0; k < m->dim; k++)
                *in += reference_vector(m, bottom, s->rows, i)[k] * reference_vector(m, bottom, s->rows, j)[k];
        }
}

/* From the slopes of the top's input computes those of the rows, and adds those of the bottom's output. */
static inline void reference_top_input_back(const reference_dlrm *m, const reference_sample *s, const double *bottom,
                                            const double *in, double *rows, double *to_bottom) {
    if (m->kind != REFERENCE_DLRM) {
        for (uint32_t i = 0; i < m->features * m->dim; i++) rows[i] = in[m->numbers + i];
        return;
    }
    for (uint32_t i = 0; i < m->features * m->dim; i++) rows[i] = 0;
    for (uint32_t k = 0; m->bottom.n && k < m->dim; k++) to_bottom[k] += *in++;
    for (uint32_t i = 0; i < m->features + (m->bottom.n > 0); i++)
        for (uint32_t j = 0; j < i; j++, in++)
            for (uint32_t k = 0; k < m->dim; k++) {
                double *to_i = (double *)reference_vector(m, to_bottom, rows, i);
                double *to_j = (double *)reference_vector(m, to_bottom, rows, j);
                to_i[k] += *in * reference_vector(m, bottom, s->rows, j)[k];
                to_j[k] += *in * reference_vector(m, bottom, s->rows, i)[k];
            }
}

/* Deep & Cross: x_{l+1} = x_0 (x_l . w_l) + b_l + x_l, and x_L . out. With `o` also the slopes times `slope`, which are
 * added. p, dp: w[L][width], b[L][width], out[width]. NaN: no memory. */
static inline double reference_cross(const reference_dlrm *m, const double *p, const reference_sample *s, double slope,
                                     double *dp, const reference_slopes *o) {
    uint32_t width = m->top.width[0], layers = m->cross;
    double *x = calloc((uint64_t)(layers + 4) * width, sizeof *x), sum = 0;
    if (!x) return NAN;
    double *last = x + (uint64_t)layers * width, *d = last + width, *d0 = d + width;
    for (uint32_t j = 0; j < width; j++) x[j] = j < m->numbers ? s->numbers[j] : s->rows[j - m->numbers];
    for (uint32_t l = 0; l < layers; l++) {
        double dot = 0, *from = x + (uint64_t)l * width;
        for (uint32_t j = 0; j < width; j++) dot += from[j] * p[l * width + j];
        for (uint32_t j = 0; j < width; j++) from[width + j] = x[j] * dot + p[(layers + l) * width + j] + from[j];
    }
    for (uint32_t j = 0; j < width; j++) sum += last[j] * p[2 * layers * width + j];
    for (uint32_t j = 0; j < width && o; j++) {
        d[j] = slope * p[2 * layers * width + j];
        dp[2 * layers * width + j] += slope * last[j];
    }
    for (uint32_t l = layers; l-- > 0 && o;) {
        double dot = 0, ddot = 0, *from = x + (uint64_t)l * width;
        for (uint32_t j = 0; j < width; j++) dot += from[j] * p[l * width + j], ddot += d[j] * x[j];
        for (uint32_t j = 0; j < width; j++) {
            dp[(layers + l) * width + j] += d[j];
            dp[l * width + j] += ddot * from[j];
            d0[j] += d[j] * dot;
            d[j] += ddot * p[l * width + j];
        }
    }
    for (uint32_t j = m->numbers; j < width && o; j++) o->rows[j - m->numbers] += d0[j] + d[j];
    free(x);
    return sum;
}

/* The sum of the linear part and the factorization machine, or that of the cross layers. With `out` also their slopes
 * times `slope`, which are added for rows and parameters and set for linear rows. */
static inline double reference_wide(const reference_dlrm *m, const double *linear, const reference_sample *s,
                                    double slope, double *to_linear, const reference_slopes *out) {
    double sum = 0;
    if (m->kind == REFERENCE_DLRM) return 0;
    if (m->kind == REFERENCE_DCN) return reference_cross(m, linear, s, slope, to_linear, out);
    for (uint32_t i = 0; i < m->numbers; i++) {
        sum += linear[i] * s->numbers[i];
        if (out) to_linear[i] += slope * s->numbers[i];
    }
    for (uint32_t f = 0; f < m->features; f++) {
        sum += s->linear[f];
        if (out) out->linear[f] = slope;
    }
    for (uint32_t f = 0; f < m->features && m->kind == REFERENCE_DEEPFM; f++)
        for (uint32_t g = 0; g < f; g++)
            for (uint32_t k = 0; k < m->dim; k++) {
                uint32_t a = f * m->dim + k, b = g * m->dim + k;
                sum += s->rows[a] * s->rows[b];
                if (out) out->rows[a] += slope * s->rows[b], out->rows[b] += slope * s->rows[a];
            }
    return sum;
}

/* The loss of a sample, its logit, and with `out` the slopes of scale * loss. -1: no memory. */
static inline double reference_dlrm_sample(reference_dlrm *m, const double *p, const reference_sample *s, double scale,
                                           double *logit, const reference_slopes *out) {
    uint64_t bottoms = reference_mlp_units(&m->bottom), tops = reference_mlp_units(&m->top);
    uint64_t top_at = reference_mlp_parameters(&m->bottom), linear_at = top_at + reference_mlp_parameters(&m->top);
    double *units = calloc(2 * (bottoms + tops), sizeof(double)), *slopes = units + bottoms + tops;
    if (!units) return -1;
    m->nearest = INFINITY;
    for (uint32_t i = 0; m->bottom.n && i < m->numbers; i++) units[i] = s->numbers[i];
    double *bottom = reference_mlp_forward(&m->bottom, p, units, &m->nearest);
    reference_top_input(m, s, bottom, units + bottoms);
    *logit = *reference_mlp_forward(&m->top, p + top_at, units + bottoms, &m->nearest) +
             reference_wide(m, p + linear_at, s, 0, NULL, NULL);
    /* -label log(q) - (1 - label) log(1 - q), q = 1 / (1 + e^-logit) */
    double loss = (*logit > 0 ? *logit : 0) - s->label * *logit + log1p(exp(-fabs(*logit)));
    if (out) {
        double slope = scale * (1 / (1 + exp(-*logit)) - s->label);
        slopes[bottoms + tops - 1] = slope;
        reference_mlp_back(&m->top, p + top_at, units + bottoms, slopes + bottoms, out->parameters + top_at);
        reference_top_input_back(m, s, bottom, slopes + bottoms, out->rows, slopes + (bottom - units));
        reference_mlp_back(&m->bottom, p, units, slopes, out->parameters);
        reference_wide(m, p + linear_at, s, slope, out->parameters + linear_at, out);
    }
    free(units);
    return loss;
}

/* >>training */

/* A model with its tables: rows[.][dim] and linear[.][1] of the same ids. The caller opens model and tables, and fills
 * in their weights and the parameters. */
typedef struct reference_training {
    reference_dlrm model;
    reference rows, linear; /* linear: not opened for dlrm */
    int adagrad;            /* of the parameters: else SGD */
    double eps;
    double *parameters, *state, *gradient; /* [parameters]; state is what Adagrad summed */
} reference_training;

typedef struct reference_samples { /* what one device brings to a step */
    uint32_t n;
    const float *numbers, *labels; /* numbers[n][numbers], labels[n] */
    const uint32_t *ids;           /* ids[features][n]: rows over all tables */
} reference_samples;

/* Allocates what the caller does not open; 0: no memory. */
static inline int reference_training_open(reference_training *t, double accumulator) {
    double **arrays[] = {&t->parameters, &t->state, &t->gradient};
    for (int i = 0; i < 3; i++)
        if (!(*arrays[i] = calloc(t->model.parameters + 1, sizeof(double)))) return 0;
    for (uint64_t i = 0; i < t->model.parameters; i++) t->state[i] = accumulator;
    return 1;
}

static inline void reference_training_close(reference_training *t) {
    free(t->parameters), free(t->state), free(t->gradient);
    reference_close(&t->rows), reference_close(&t->linear);
}

/* Adds a device's gradients of the parameters, writes those of its rows; returns the sum of its losses. */
static inline double reference_training_device(reference_training *t, const reference_samples *b, uint32_t batch,
                                               float *row_grads, float *linear_grads) {
    reference_dlrm *m = &t->model;
    uint32_t width = m->features * m->dim;
    double *memory = calloc(m->numbers + 2 * (width + m->features) + 1, sizeof(double)), *numbers = memory, loss = 0;
    double *rows = numbers + m->numbers, *linear = rows + width;
    reference_slopes slopes = {t->gradient, linear + m->features, linear + m->features + width};
    for (uint32_t i = 0; memory && i < b->n; i++) {
        for (uint32_t k = 0; k < m->numbers; k++) numbers[k] = (double)b->numbers[(uint64_t)i * m->numbers + k];
        for (uint32_t f = 0; f < m->features; f++) {
            uint64_t id = b->ids[(uint64_t)f * b->n + i];
            for (uint32_t k = 0; k < m->dim; k++) rows[f * m->dim + k] = (double)t->rows.weights[id * m->dim + k];
            if (reference_has_linear(m)) linear[f] = (double)t->linear.weights[id];
        }
        double logit;
        reference_sample sample = {numbers, rows, linear, (double)b->labels[i]};
        loss += reference_dlrm_sample(m, t->parameters, &sample, 1.0 / batch, &logit, &slopes);
        for (uint32_t f = 0; f < m->features; f++) {
            uint64_t at = (uint64_t)f * b->n + i;
            for (uint32_t k = 0; k < m->dim; k++) row_grads[at * m->dim + k] = (float)slopes.rows[f * m->dim + k];
            linear_grads[at] = (float)slopes.linear[f];
        }
    }
    free(memory);
    return loss;
}

/* One step of all devices, as many as the tables have. Tables step by lr, parameters by dense_lr. Returns the mean
 * loss, 0 for no samples. */
static inline double reference_training_step(reference_training *t, uint64_t step, float lr, double dense_lr,
                                             const reference_samples *samples) {
    reference_dlrm *m = &t->model;
    uint32_t devices = t->rows.devices, batch = 0;
    reference_batch rows[16], linear[16];
    float *grads[16];
    double loss = 0;
    for (uint32_t d = 0; d < devices; d++) batch += samples[d].n;
    memset(t->gradient, 0, m->parameters * sizeof(double));
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t n = samples[d].n * m->features;
        grads[d] = calloc((uint64_t)n * (m->dim + 1) + 1, sizeof(float));
        rows[d] = (reference_batch){samples[d].ids, n, grads[d]};
        linear[d] = (reference_batch){samples[d].ids, n, grads[d] + (uint64_t)n * m->dim};
        loss += reference_training_device(t, &samples[d], batch, grads[d], grads[d] + (uint64_t)n * m->dim);
    }
    reference_step(&t->rows, step, lr, rows);
    if (reference_has_linear(m)) reference_step(&t->linear, step, lr, linear);
    for (uint64_t i = 0; i < m->parameters; i++) {
        double g = t->gradient[i];
        t->state[i] += g * g;
        t->parameters[i] -= dense_lr * (t->adagrad ? g / (sqrt(t->state[i]) + t->eps) : g);
    }
    for (uint32_t d = 0; d < devices; d++) free(grads[d]);
    return batch ? loss / batch : 0;
}

#endif /* REFERENCE_DLRM_H */
