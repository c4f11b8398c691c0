/* Queries from given ends and relations, and the way back of their gradients. */
#include "trainers/kge/query.h"
#include "trainers/common/vector.h"

#include <math.h>

/* A reciprocal model asks for heads as it asks for tails, with the inverse relation. */
static kge_side kge_form(const kge_model *model, kge_side side) {
    return model->reciprocal ? KGE_TAILS : side;
}

VECTOR_CLONES
static void kge_translations(uint32_t n, uint32_t dim, float sign, const float *restrict anchor,
                             const float *restrict relation, float *restrict query) {
    for (size_t i = 0; i < (size_t)n * dim; i++) query[i] = anchor[i] + sign * relation[i];
}

VECTOR_CLONES
static void kge_scalings(uint32_t n, uint32_t dim, const float *restrict anchor, const float *restrict relation,
                         float *restrict query) {
    for (size_t i = 0; i < (size_t)n * dim; i++) query[i] = anchor[i] * relation[i];
}

VECTOR_INLINE float kge_inverse_modulus(float real, float imaginary) {
    float square = real * real + imaginary * imaginary;
    return 1.0f / sqrtf(square < KGE_SMALLEST_SQUARE ? KGE_SMALLEST_SQUARE : square);
}

/* sign +1: anchor * relation; -1: anchor * conj(relation). With `turns`, relations are divided by their modulus. */
VECTOR_INLINE void kge_complex(uint32_t n, uint32_t dim, float sign, int turns, const float *restrict anchor,
                               const float *restrict relation, float *restrict query) {
    uint32_t half = dim / 2;
    for (uint32_t i = 0; i < n; i++, anchor += dim, relation += dim, query += dim)
        for (uint32_t k = 0; k < half; k++) {
            float real = relation[k], imaginary = sign * relation[half + k];
            float inverse = turns ? kge_inverse_modulus(real, imaginary) : 1.0f;
            real *= inverse, imaginary *= inverse;
            query[k] = anchor[k] * real - anchor[half + k] * imaginary;
            query[half + k] = anchor[k] * imaginary + anchor[half + k] * real;
        }
}

VECTOR_CLONES
static void kge_rotations(uint32_t n, uint32_t dim, float sign, const float *anchor, const float *relation,
                          float *query) {
    kge_complex(n, dim, sign, 0, anchor, relation, query);
}

VECTOR_CLONES
static void kge_turns(uint32_t n, uint32_t dim, float sign, const float *anchor, const float *relation, float *query) {
    kge_complex(n, dim, sign, 1, anchor, relation, query);
}

/* `forward`: where that half of the relation begins, 0 or dim / 2; the other half is the inverse relation. For heads
 * the two are swapped. */
VECTOR_CLONES
static void kge_crossings(uint32_t n, uint32_t dim, uint32_t forward, const float *restrict anchor,
                          const float *restrict relation, float *restrict query) {
    uint32_t half = dim / 2, inverse = half - forward;
    for (uint32_t i = 0; i < n; i++, anchor += dim, relation += dim, query += dim)
        for (uint32_t k = 0; k < half; k++) {
            query[k] = 0.5f * relation[inverse + k] * anchor[half + k];
            query[half + k] = 0.5f * relation[forward + k] * anchor[k];
        }
}

void kge_queries(const kge_model *model, kge_side side, uint32_t n, const float *anchor, const float *relation,
                 float *query) {
    int tails = kge_form(model, side) == KGE_TAILS;
    uint32_t dim = model->dim, half = dim / 2;
    float sign = tails ? 1.0f : -1.0f;
    switch (model->kind) {
    case KGE_DISTMULT:
        kge_scalings(n, dim, anchor, relation, query);
        break;
    case KGE_COMPLEX:
        kge_rotations(n, dim, sign, anchor, relation, query);
        break;
    case KGE_SIMPLE:
        kge_crossings(n, dim, tails ? 0 : half, anchor, relation, query);
        break;
    case KGE_ROTATE:
        kge_turns(n, dim, sign, anchor, relation, query);
        break;
    default:
        kge_translations(n, dim, sign, anchor, relation, query);
        break;
    }
}

VECTOR_CLONES
static void kge_translations_back(const kge_asked *asked, float sign, const float *restrict gradient,
                                  const kge_sink *sink) {
    float *restrict anchor = sink->anchor, *restrict relation = sink->relation;
    int add = sink->add, add_relation = sink->add_relation;
    for (size_t i = 0; i < (size_t)asked->n * asked->dim; i++) {
        KGE_PUT(anchor[i], add, gradient[i]);
        KGE_PUT(relation[i], add_relation, sign * gradient[i]);
    }
}

VECTOR_CLONES
static void kge_scalings_back(const kge_asked *asked, const float *restrict gradient, const kge_sink *sink) {
    const float *restrict anchor = asked->anchor, *restrict relation = asked->relation;
    float *restrict to_anchor = sink->anchor, *restrict to_relation = sink->relation;
    int add = sink->add, add_relation = sink->add_relation;
    for (size_t i = 0; i < (size_t)asked->n * asked->dim; i++) {
        KGE_PUT(to_anchor[i], add, gradient[i] * relation[i]);
        KGE_PUT(to_relation[i], add_relation, gradient[i] * anchor[i]);
    }
}

/* With `turns`, only the part of a relation's gradient across it counts: along it, nothing changes. */
VECTOR_INLINE void kge_complex_back(const kge_asked *asked, float sign, int turns, const float *restrict gradient,
                                    const kge_sink *sink) {
    const float *restrict anchor = asked->anchor, *restrict relation = asked->relation;
    uint32_t n = asked->n, dim = asked->dim, half = dim / 2;
    int add = sink->add, add_relation = sink->add_relation;
    float *restrict to_anchor = sink->anchor, *restrict to_relation = sink->relation;
    for (uint32_t i = 0; i < n; i++) {
        size_t row = (size_t)i * dim;
        for (uint32_t k = 0; k < half; k++) {
            size_t re = row + k, im = row + half + k;
            float real = relation[re], imaginary = sign * relation[im];
            float inverse = turns ? kge_inverse_modulus(real, imaginary) : 1.0f;
            real *= inverse, imaginary *= inverse;
            KGE_PUT(to_anchor[re], add, gradient[re] * real + gradient[im] * imaginary);
            KGE_PUT(to_anchor[im], add, gradient[im] * real - gradient[re] * imaginary);
            float to_real = gradient[re] * anchor[re] + gradient[im] * anchor[im];
            float to_imaginary = gradient[im] * anchor[re] - gradient[re] * anchor[im];
            float along = to_real * real + to_imaginary * imaginary;
            if (turns) to_real = (to_real - along * real) * inverse;
            if (turns) to_imaginary = (to_imaginary - along * imaginary) * inverse;
            KGE_PUT(to_relation[re], add_relation, to_real);
            KGE_PUT(to_relation[im], add_relation, sign * to_imaginary);
        }
    }
}

VECTOR_CLONES
static void kge_rotations_back(const kge_asked *asked, float sign, const float *gradient, const kge_sink *sink) {
    kge_complex_back(asked, sign, 0, gradient, sink);
}

VECTOR_CLONES
static void kge_turns_back(const kge_asked *asked, float sign, const float *gradient, const kge_sink *sink) {
    kge_complex_back(asked, sign, 1, gradient, sink);
}

VECTOR_CLONES
static void kge_crossings_back(const kge_asked *asked, uint32_t forward, const float *restrict gradient,
                               const kge_sink *sink) {
    const float *restrict anchor = asked->anchor, *restrict relation = asked->relation;
    uint32_t n = asked->n, dim = asked->dim, half = dim / 2, inverse = half - forward;
    int add = sink->add, add_relation = sink->add_relation;
    float *restrict to_anchor = sink->anchor, *restrict to_relation = sink->relation;
    for (uint32_t i = 0; i < n; i++) {
        size_t row = (size_t)i * dim;
        for (uint32_t k = 0; k < half; k++) {
            size_t first = row + k, second = row + half + k;
            KGE_PUT(to_anchor[second], add, 0.5f * gradient[first] * relation[row + inverse + k]);
            KGE_PUT(to_anchor[first], add, 0.5f * gradient[second] * relation[row + forward + k]);
            KGE_PUT(to_relation[row + inverse + k], add_relation, 0.5f * gradient[first] * anchor[second]);
            KGE_PUT(to_relation[row + forward + k], add_relation, 0.5f * gradient[second] * anchor[first]);
        }
    }
}

void kge_queries_back(const kge_model *model, kge_side side, const kge_asked *asked, const float *gradient,
                      const kge_sink *sink) {
    int tails = kge_form(model, side) == KGE_TAILS;
    float sign = tails ? 1.0f : -1.0f;
    switch (model->kind) {
    case KGE_DISTMULT:
        kge_scalings_back(asked, gradient, sink);
        break;
    case KGE_COMPLEX:
        kge_rotations_back(asked, sign, gradient, sink);
        break;
    case KGE_SIMPLE:
        kge_crossings_back(asked, tails ? 0 : model->dim / 2, gradient, sink);
        break;
    case KGE_ROTATE:
        kge_turns_back(asked, sign, gradient, sink);
        break;
    default:
        kge_translations_back(asked, sign, gradient, sink);
        break;
    }
}
