/* The knowledge graph example: gradients against finite differences, ranking against brute force, and what
 * the reader refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainers/kge/eval.h"
#include "trainers/kge/sample.h"
#include "tests/unit/trainers/kge_batch.h"

/* ---- Gradients ----------------------------------------------------------------------------------------- */

/* Scores by the models' definitions, number by number. */
static double plain_score(const kge_model *model, const float *head, const float *relation, const float *tail) {
    uint32_t half = model->dim / 2;
    double sum = 0;
    for (uint32_t k = 0; k < model->dim; k++) {
        double difference = (double)head[k] + (double)relation[k] - (double)tail[k];
        if (model->kind == KGE_TRANSE)
            sum -= difference * difference;
        else if (model->kind == KGE_TRANSE_L1)
            sum -= fabs(difference);
        else if (model->kind == KGE_DISTMULT)
            sum += (double)head[k] * (double)relation[k] * (double)tail[k];
        else if (model->kind == KGE_SIMPLE) /* the tail's other half: k + half, k - half */
            sum += 0.5 * (double)relation[k] * (double)head[k < half ? k : k - half] *
                   (double)tail[k < half ? k + half : k];
        else if (k < half)
            sum += ((double)head[k] * (double)relation[k] - (double)head[half + k] * (double)relation[half + k]) *
                       (double)tail[k] +
                   ((double)head[k] * (double)relation[half + k] + (double)head[half + k] * (double)relation[k]) *
                       (double)tail[half + k];
    }
    return sum;
}

/* simple: <head as head, relation, tail as tail> + <tail as head, inverse, head as tail>, halved. */
static double simple_score(const kge_model *model, const float *head, const float *relation, const float *tail) {
    uint32_t half = model->dim / 2;
    double sum = 0;
    for (uint32_t k = 0; k < half; k++)
        sum += (double)head[k] * (double)relation[k] * (double)tail[half + k] +
               (double)tail[k] * (double)relation[half + k] * (double)head[half + k];
    return sum / 2;
}

/* rotate: -|head * relation - tail|, squared, each number of the relation by its phase alone. */
static double rotate_score(const kge_model *model, const float *head, const float *relation, const float *tail) {
    uint32_t half = model->dim / 2;
    double sum = 0;
    for (uint32_t k = 0; k < half; k++) {
        double phase = atan2((double)relation[half + k], (double)relation[k]);
        double real = (double)head[k] * cos(phase) - (double)head[half + k] * sin(phase) - (double)tail[k];
        double imaginary = (double)head[k] * sin(phase) + (double)head[half + k] * cos(phase) - (double)tail[half + k];
        sum -= real * real + imaginary * imaginary;
    }
    return sum;
}

static double score_of(const kge_model *model, const float *head, const float *relation, const float *tail) {
    return model->kind == KGE_SIMPLE   ? simple_score(model, head, relation, tail)
           : model->kind == KGE_ROTATE ? rotate_score(model, head, relation, tail)
                                       : plain_score(model, head, relation, tail);
}

/* An entity's score, as plain_score has it, with distances that are not squared. */
static double full_score(const kge_model *model, const float *head, const float *relation, const float *tail) {
    double score = score_of(model, head, relation, tail);
    return KGE_HAS_L2(model->kind) ? -sqrt(-score) : score;
}

/* Moves every number of every position a little both ways: the loss must follow its gradient. Compares in
 * units of the largest gradient: losses are computed in single precision. */
static void check_gradients(const kge_model *model, uint32_t chunk) {
    kge_batch batch = {.triples = TRIPLES, .chunk = chunk, .negatives = NEGATIVES, .weighted = chunk == 4};
    kge_workspace work;
    program_error error;
    fill_batch(&batch);
    assert_int_equal(kge_workspace_open(&work, model, &batch, &error), 0);
    size_t n = (size_t)kge_batch_positions(model, &batch) * model->dim;
    float *rows = malloc(n * sizeof *rows), *grads = malloc(n * sizeof *grads), *other = malloc(n * sizeof *other);
    for (size_t i = 0; i < n; i++) rows[i] = 2 * noise(i);
    memset(grads, 0xff, n * sizeof *grads); /* not a number, wherever nothing is written */
    double here = kge_gradients(model, &batch, rows, grads, &work), worst = 0, largest = 0;
    size_t skipped = 0;
    for (size_t i = 0; i < n; i++) {
        const float step = 4e-3f, was = rows[i];
        rows[i] = was + step;
        double up = kge_gradients(model, &batch, rows, other, &work);
        rows[i] = was - step;
        double down = kge_gradients(model, &batch, rows, other, &work);
        rows[i] = was;
        double slope = (up - down) / (2 * (double)step);
        assert_false(isnan(grads[i]));
        if (model->kind == KGE_TRANSE_L1 && fabs(up + down - 2 * here) > 5e-4 * (double)step) {
            skipped++; /* |x| has a kink within the step: no slope to compare with */
            continue;
        }
        largest = fabs(slope) > largest ? fabs(slope) : largest;
        worst = fabs(slope - (double)grads[i]) > worst ? fabs(slope - (double)grads[i]) : worst;
    }
    assert_true(skipped < n / 4);
    if (!(worst < 4e-3 * largest))
        fail_msg("%s, %s, reciprocal %d: gradient off by %g, the largest is %g", kge_model_name(model->kind),
                 kge_loss_name(model->loss), model->reciprocal, worst, largest);
    free(rows);
    free(grads);
    free(other);
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

/* The sum of the cubes of a row, in double precision. */
static double plain_cubes(const kge_model *model, const float *x) {
    double cubes = 0;
    int pairs = KGE_IS_COMPLEX(model->kind);
    for (uint32_t k = 0; k < (pairs ? model->dim / 2 : model->dim); k++)
        cubes += pow(pairs ? hypot((double)x[k], (double)x[k + model->dim / 2]) : fabs((double)x[k]), 3);
    return cubes;
}

/* The same, in double precision and by the definitions: of a batch that is scored against all entities. */
static double plain_all_loss(const kge_model *model, const kge_batch *batch, const float *rows) {
    uint32_t dim = model->dim;
    int sides = batch->questions ? 1 : 2;
    const float *relations = rows + (size_t)ENTITIES * dim;
    double loss = 0, cubes = 0;
    for (uint32_t i = 0; i < batch->triples; i++)
        for (int heads = 0; heads < sides; heads++) {
            const float *given = rows + (size_t)(heads ? batch->tail[i] : batch->head[i]) * dim;
            const float *relation = relations + (size_t)i * dim;
            if (heads && model->reciprocal) relation += (size_t)batch->triples * dim;
            double sum = 0, score[ENTITIES];
            for (int e = 0; e < ENTITIES; e++) {
                const float *other = rows + (size_t)e * dim;
                score[e] = heads && !model->reciprocal ? full_score(model, other, relation, given)
                                                       : full_score(model, given, relation, other);
                sum += exp(score[e]);
            }
            if (model->scoring == KGE_1VSALL) {
                loss += (log(sum) - score[heads ? batch->head[i] : batch->tail[i]]) *
                        (batch->weighted ? (double)batch->weight[heads][i] : 1);
                continue;
            }
            const kge_questions *questions = batch->questions;
            for (int e = 0; e < ENTITIES; e++) {
                int right = 0;
                for (uint64_t a = questions->first[batch->tail[i]]; a < questions->first[batch->tail[i] + 1]; a++)
                    right |= questions->answer[a] == (uint32_t)e;
                loss += log1p(exp((right ? -1 : 1) * (score[e] + (double)model->margin)));
            }
        }
    for (uint32_t i = 0; i < batch->triples; i++)
        for (int end = 0; end < sides; end++)
            cubes += plain_cubes(model, rows + (size_t)(end ? batch->tail[i] : batch->head[i]) * dim);
    for (uint32_t i = 0; i < batch->triples * kge_batch_relations(model, batch) && model->kind != KGE_ROTATE; i++)
        cubes += plain_cubes(model, relations + (size_t)i * dim);
    return (loss / sides + (double)model->regularization * cubes) / batch->triples;
}

/* The loss is that of the definition, and follows its gradient. */
static void check_all(const kge_model *model, const kge_batch *shape) {
    kge_batch batch = *shape;
    kge_workspace work;
    program_error error;
    fill_batch(&batch);
    for (uint32_t i = 0; batch.questions && i < TRIPLES; i++) {
        const kge_triple *asked = &batch.questions->asked.triples[i * 2 % batch.questions->asked.n];
        batch.head[i] = asked->head, batch.relation[i] = asked->relation, batch.tail[i] = asked->tail;
    }
    assert_int_equal(kge_workspace_open(&work, model, &batch, &error), 0);
    size_t n = (size_t)kge_batch_positions(model, &batch) * model->dim;
    float *rows = malloc(n * sizeof *rows), *grads = malloc(n * sizeof *grads), *other = malloc(n * sizeof *other);
    for (size_t i = 0; i < n; i++) rows[i] = 2 * noise(i);
    memset(grads, 0xff, n * sizeof *grads);
    double here = kge_gradients(model, &batch, rows, grads, &work), worst = 0, largest = 0;
    double expected = plain_all_loss(model, &batch, rows);
    if (!(fabs(here - expected) < 2e-6 * expected))
        fail_msg("%s, %s: loss %.9g, must be %.9g", kge_model_name(model->kind), kge_scoring_name(model->scoring), here,
                 expected);
    for (size_t i = 0; i < n; i++) {
        const float step = 1e-3f, was = rows[i];
        rows[i] = was + step;
        double up = plain_all_loss(model, &batch, rows);
        rows[i] = was - step;
        double down = plain_all_loss(model, &batch, rows);
        rows[i] = was;
        double slope = (up - down) / (2 * (double)step), off = fabs(slope - (double)grads[i]);
        assert_false(isnan(grads[i]));
        largest = fabs(slope) > largest ? fabs(slope) : largest;
        worst = off > worst ? off : worst;
    }
    if (!(worst < 1e-3 * largest))
        fail_msg("%s, %s, reciprocal %d: gradient off by %g, the largest is %g", kge_model_name(model->kind),
                 kge_scoring_name(model->scoring), model->reciprocal, worst, largest);
    free(rows);
    free(grads);
    free(other);
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

static void test_1vsall(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (int reciprocal = 0; reciprocal < 2 && kind != KGE_TRANSE_L1; reciprocal++)
            for (uint32_t chunk = 3; chunk < 6; chunk++) {
                kge_model model = {.kind = (kge_model_kind)kind,
                                   .scoring = KGE_1VSALL,
                                   .loss = KGE_SOFTMAX,
                                   .dim = 18,
                                   .reciprocal = reciprocal,
                                   .regularization = chunk == 3 ? 0 : 0.02f};
                kge_batch shape = {.triples = TRIPLES, .chunk = chunk, .entities = ENTITIES, .weighted = chunk == 4};
                check_all(&model, &shape);
            }
}

/* Questions come once each, with all their answers, rising; those for heads by inverse relations. */
static void test_questions(void **state) {
    (void)state;
    kge_triple triples[] = {{4, 1, 2}, {0, 0, 9}, {4, 1, 0}, {4, 0, 2}, {4, 1, 2}, {3, 1, 2}};
    kge_graph graph = {.relations.n = 2, .split[KGE_TRAIN] = {triples, 6}};
    kge_questions questions;
    program_error error;
    static const struct {
        uint32_t given, relation, answers, answer[2];
    } expected[] = {{0, 0, 1, {9}}, {0, 3, 1, {4}}, {2, 2, 1, {4}},    {2, 3, 2, {3, 4}},
                    {3, 1, 1, {2}}, {4, 0, 1, {2}}, {4, 1, 2, {0, 2}}, {9, 2, 1, {0}}};
    assert_int_equal(kge_questions_build(&questions, &graph, &error), 0);
    assert_int_equal(questions.asked.n, sizeof expected / sizeof *expected);
    for (uint64_t q = 0; q < questions.asked.n; q++) {
        kge_triple asked = questions.asked.triples[q];
        assert_int_equal(asked.head, expected[q].given);
        assert_int_equal(asked.relation, expected[q].relation);
        assert_int_equal(asked.tail, q);
        assert_int_equal(questions.first[q + 1] - questions.first[q], expected[q].answers);
        for (uint32_t a = 0; a < expected[q].answers; a++)
            assert_int_equal(questions.answer[questions.first[q] + a], expected[q].answer[a]);
    }
    kge_questions_free(&questions);
}

static void test_kvsall(void **state) {
    (void)state;
    kge_triple triples[2 * TRIPLES];
    kge_graph graph = {.relations.n = RELATIONS, .split[KGE_TRAIN] = {triples, 2 * TRIPLES}};
    kge_questions questions;
    program_error error;
    for (uint32_t i = 0; i < 2 * TRIPLES; i++) /* the second half has the questions of the first */
        triples[i] = (kge_triple){i % TRIPLES, i % RELATIONS, (i * 3 + 1) % ENTITIES};
    assert_int_equal(kge_questions_build(&questions, &graph, &error), 0);
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (uint32_t chunk = 3; chunk < 6 && kind != KGE_TRANSE_L1; chunk++) {
            kge_model model = {.kind = (kge_model_kind)kind,
                               .scoring = KGE_KVSALL,
                               .loss = KGE_LOGISTIC,
                               .dim = 18,
                               .margin = 0.5f,
                               .reciprocal = 1,
                               .regularization = chunk == 3 ? 0 : 0.02f};
            kge_batch shape = {.triples = TRIPLES, .chunk = chunk, .entities = ENTITIES, .questions = &questions};
            check_all(&model, &shape);
        }
    kge_questions_free(&questions);
}

/* The self-adversarial weights are constants by definition, so the loss follows its gradient only where they
 * do not move: at temperature 0. */
static void test_gradients(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (int loss = 0; loss < KGE_LOSSES; loss++)
            for (int way = 0; way < 2; way++)
                for (int reciprocal = 0; reciprocal < 2; reciprocal++) {
                    kge_model model = {.kind = (kge_model_kind)kind,
                                       .loss = (kge_loss_kind)loss,
                                       .dim = 18,
                                       .margin = 2,
                                       .reciprocal = reciprocal,
                                       .regularization = way ? 0.03f : 0,
                                       .stands_for = way ? 0 : 100};
                    check_gradients(&model, 3);
                    check_gradients(&model, 4); /* and a chunk of two */
                }
}

/* The length of a relation of rotate changes nothing: only its phases count, and N3 leaves it alone. Relations of
 * length 0 have no phase, and finite gradients. */
static void test_rotate_phases(void **state) {
    (void)state;
    enum { DIM = 8, POSITIONS = 3 * TRIPLES + 2 * NEGATIVES };
    kge_model model = {.kind = KGE_ROTATE, .loss = KGE_SOFTMAX, .dim = DIM, .regularization = 0.2f};
    kge_batch batch = {.triples = TRIPLES, .chunk = 3, .negatives = NEGATIVES};
    kge_workspace work;
    program_error error;
    float rows[POSITIONS * DIM], grads[POSITIONS * DIM], longer[POSITIONS * DIM];
    float *relations = rows + (POSITIONS - TRIPLES) * DIM, *slopes = grads + (POSITIONS - TRIPLES) * DIM;
    fill_batch(&batch);
    for (size_t i = 0; i < POSITIONS * DIM; i++) rows[i] = noise(i);
    assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
    double loss = kge_gradients(&model, &batch, rows, grads, &work);
    for (int i = 0; i < TRIPLES; i++)
        for (int k = 0; k < DIM / 2; k++) { /* a gradient across the relation, and so without N3 */
            const float *r = relations + i * DIM + k, *g = slopes + i * DIM + k;
            assert_true(fabsf(r[0] * g[0] + r[DIM / 2] * g[DIM / 2]) < 1e-6f);
        }
    for (size_t i = 0; i < TRIPLES * DIM; i++) relations[i] *= 4;
    assert_true(fabs(kge_gradients(&model, &batch, rows, longer, &work) - loss) < 1e-6 * loss);
    for (size_t i = 0; i < POSITIONS * DIM; i++) {
        float factor = i < (POSITIONS - TRIPLES) * DIM ? 1 : 4;
        assert_true(fabsf(factor * longer[i] - grads[i]) <= 1e-5f);
    }
    memset(relations, 0, TRIPLES * DIM * sizeof *relations);
    assert_true(isfinite(kge_gradients(&model, &batch, rows, grads, &work)));
    for (size_t i = 0; i < POSITIONS * DIM; i++) assert_true(isfinite(grads[i]));
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

/* A short last chunk has negatives of its own. A divisor divides losses, gradients and N3. */
static void test_divisor(void **state) {
    (void)state;
    enum { DIM = 6 };
    kge_model model = {.kind = KGE_COMPLEX, .loss = KGE_SOFTMAX, .dim = DIM, .regularization = 0.1f};
    kge_batch batch = {.triples = TRIPLES, .chunk = 4, .negatives = NEGATIVES};
    kge_workspace work;
    program_error error;
    fill_batch(&batch);
    assert_int_equal(kge_batch_negatives(&batch), 2 * NEGATIVES);
    assert_int_equal(kge_batch_positions(&model, &batch), 3 * TRIPLES + 2 * NEGATIVES);
    enum { FLOATS = (3 * TRIPLES + 2 * NEGATIVES) * DIM };
    float rows[FLOATS], grads[FLOATS], halved[FLOATS];
    for (size_t i = 0; i < FLOATS; i++) rows[i] = noise(i);
    assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
    double loss = kge_gradients(&model, &batch, rows, grads, &work);
    batch.divisor = TRIPLES;
    assert_true(kge_gradients(&model, &batch, rows, halved, &work) == loss);
    assert_memory_equal(grads, halved, sizeof grads);
    batch.divisor = 2 * TRIPLES;
    assert_true(fabs(kge_gradients(&model, &batch, rows, halved, &work) - loss / 2) < 1e-6 * loss);
    for (size_t i = 0; i < FLOATS; i++) assert_true(fabsf(halved[i] - grads[i] / 2) <= 1e-6f * fabsf(grads[i]));
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

/* What N3 adds is 3 w |x| x of each number of entities and relations, over the number of triples. */
static void test_regularization(void **state) {
    (void)state;
    enum { DIM = 6, POSITIONS = 3 * TRIPLES + 2 * NEGATIVES, RELATIONS_AT = (POSITIONS - TRIPLES) * DIM };
    kge_model model = {.kind = KGE_DISTMULT, .loss = KGE_SOFTMAX, .dim = DIM};
    kge_batch batch = {.triples = TRIPLES, .chunk = 3, .negatives = NEGATIVES};
    kge_workspace work;
    program_error error;
    float rows[POSITIONS * DIM], plain[POSITIONS * DIM], grads[POSITIONS * DIM];
    fill_batch(&batch);
    for (size_t i = 0; i < POSITIONS * DIM; i++) rows[i] = noise(i);
    assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
    double before = kge_gradients(&model, &batch, rows, plain, &work), cubes = 0;
    model.regularization = 0.5f;
    double loss = kge_gradients(&model, &batch, rows, grads, &work);
    for (size_t i = 0; i < POSITIONS * DIM; i++) {
        int of_triples = i < (size_t)2 * TRIPLES * DIM || i >= RELATIONS_AT;
        double weight = of_triples ? 0.5 / TRIPLES : 0, size = fabs((double)rows[i]);
        if (of_triples) cubes += size * size * size;
        assert_true(fabs((double)grads[i] - (double)plain[i] - 3 * weight * size * (double)rows[i]) < 1e-6);
    }
    assert_true(fabs(loss - before - 0.5 * cubes / TRIPLES) < 1e-6);
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

/* One tail to be predicted, because the head has no weight; ids: head, tail, relation, its inverse, the negatives. */
static kge_batch one_tail(uint32_t *ids, uint32_t negatives) {
    static float one = 1, nothing = 0;
    return (kge_batch){.triples = 1,
                       .chunk = 1,
                       .negatives = negatives,
                       .divisor = 0.5f, /* of two sides */
                       .weighted = 1,
                       .weight = {&one, &nothing},
                       .head = ids,
                       .tail = ids + 1,
                       .relation = ids + 2,
                       .inverse = ids + 3,
                       .negative = ids + 4};
}

/* Two negatives that are drawn from ten entities: the sum of their exponentials counts 5 times; but one that is the
 * answer counts nothing. So the mean over all that may be drawn is the sum over the other nine. */
static void test_corrected_softmax(void **state) {
    (void)state;
    enum { DIM = 4 };
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        kge_model model = {.kind = (kge_model_kind)kind, .loss = KGE_SOFTMAX, .dim = DIM, .stands_for = 10};
        uint32_t ids[] = {0, 1, 0, 0, 2, 3};
        kge_batch batch = one_tail(ids, 2);
        kge_workspace work;
        program_error error;
        float rows[5][DIM], grads[5][DIM];
        for (int i = 0; i < 5 * DIM; i++) rows[i / DIM][i % DIM] = noise((uint64_t)i);
        assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
        for (int masked = 0; masked < 2; masked++) {
            double score[3];
            for (int j = 0; j < 3; j++) score[j] = full_score(&model, rows[0], rows[4], rows[1 + j]);
            ids[5] = masked ? 1 : 3;
            double others = 5 * (exp(score[1]) + (masked ? 0 : exp(score[2])));
            double expected = log(exp(score[0]) + others) - score[0];
            assert_true(fabs(kge_gradients(&model, &batch, rows[0], grads[0], &work) - expected) < 1e-6);
        }
        kge_workspace_close(&work);
    }
}

/* Rows of zeros give all entities the same score, 0; no negative is the answer. */
static void test_guess(void **state) {
    (void)state;
    enum { DIM = 4, GUESSES = 7, FLOATS = (3 + GUESSES) * DIM };
    uint32_t ids[4 + GUESSES] = {0, 1, 0, 0, 2, 3, 4, 5, 6, 7, 8};
    kge_batch batch = one_tail(ids, GUESSES);
    float rows[FLOATS] = {0}, grads[FLOATS];
    for (int loss = 0; loss < KGE_LOSSES; loss++) {
        kge_model model = {.kind = KGE_DISTMULT, .loss = (kge_loss_kind)loss, .dim = DIM, .temperature = 1};
        kge_workspace work;
        program_error error;
        assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
        double found = kge_gradients(&model, &batch, rows, grads, &work), told = kge_guess_loss(&model, GUESSES, 1);
        assert_true(fabs(found - told) < 1e-5);
        model.margin = 1; /* of the softmax it is no part; of the others it makes that score no longer the best one */
        found = kge_gradients(&model, &batch, rows, grads, &work);
        assert_true(kge_guess_loss(&model, GUESSES, 1) == told && found > told - 1e-5);
        kge_workspace_close(&work);
    }
    kge_model all = {.scoring = KGE_KVSALL, .loss = KGE_LOGISTIC}; /* of 2 answers among 10 entities the odds are 1:4 */
    assert_true(fabs(kge_guess_loss(&all, 9, 2) - (10 * log1p(0.25) + 2 * log(4))) < 1e-9);
    assert_true(kge_guess_loss(&all, 9, 10) == 0);
}

/* With a temperature: the gradient is that of the weighted sum, the weights held fixed. */
static void test_self_adversarial_weights(void **state) {
    (void)state;
    enum { DIM = 4 };
    kge_model model = {
        .kind = KGE_DISTMULT, .loss = KGE_SELF_ADVERSARIAL, .dim = DIM, .margin = 1, .temperature = 0.7f};
    uint32_t ids[] = {0, 1, 0, 0, 2, 3};
    kge_batch batch = one_tail(ids, 2);
    kge_workspace work;
    program_error error;
    float rows[5][DIM], grads[5][DIM];
    for (int i = 0; i < 5 * DIM; i++) rows[i / DIM][i % DIM] = noise((uint64_t)i);
    assert_int_equal(kge_workspace_open(&work, &model, &batch, &error), 0);
    double loss = kge_gradients(&model, &batch, rows[0], grads[0], &work);
    double score[3] = {0}; /* of the positive and both negatives */
    const float *answer[3] = {rows[1], rows[2], rows[3]};
    for (int j = 0; j < 3; j++)
        for (int k = 0; k < DIM; k++) score[j] += (double)rows[0][k] * (double)rows[4][k] * (double)answer[j][k];
    double a = exp(0.7 * score[1]), b = exp(0.7 * score[2]), weight[2] = {a / (a + b), b / (a + b)};
    double expected = 0.5 * log1p(exp(-(score[0] + 1)));
    for (int j = 0; j < 2; j++) {
        expected += 0.5 * weight[j] * log1p(exp(score[j + 1] + 1));
        double slope = 0.5 * weight[j] / (1 + exp(-(score[j + 1] + 1)));
        for (int k = 0; k < DIM; k++)
            assert_true(fabs((double)grads[2 + j][k] - slope * (double)rows[0][k] * (double)rows[4][k]) < 1e-6);
    }
    assert_true(fabs(loss - expected) < 1e-6);
    kge_workspace_close(&work);
}

/* ---- Ranking ------------------------------------------------------------------------------------------- */

static int is_known(const kge_graph *graph, kge_triple triple) {
    for (int s = 0; s < KGE_SPLITS; s++)
        for (uint64_t i = 0; i < graph->split[s].n; i++)
            if (!memcmp(&graph->split[s].triples[i], &triple, sizeof triple)) return 1;
    return 0;
}

/* The mean of the best and the worst rank that the ties allow. */
static double plain_rank(const kge_model *model, const kge_graph *graph, const float *entities, const float *relations,
                         kge_triple triple, kge_side side) {
    uint32_t dim = model->dim, better = 0, equal = 0;
    uint32_t inverse = model->reciprocal && side == KGE_HEADS ? graph->relations.n : 0;
    const float *relation = relations + (size_t)(triple.relation + inverse) * dim;
    double own = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t e = 0; e < graph->entities.n; e++) {
            kge_triple other = triple;
            *(side == KGE_TAILS ? &other.tail : &other.head) = e;
            int self = !memcmp(&other, &triple, sizeof triple);
            if (self != !pass || (pass && is_known(graph, other))) continue;
            const float *head = entities + (size_t)other.head * dim, *tail = entities + (size_t)other.tail * dim;
            double score = inverse ? score_of(model, tail, relation, head) : score_of(model, head, relation, tail);
            if (!pass)
                own = score;
            else if (fabs(score - own) < 1e-12)
                equal++;
            else
                better += score > own;
        }
    return 1 + better + equal / 2.0;
}

static void test_ranking(void **state) {
    (void)state;
    program_error error;
    kge_graph graph;
    kge_index known;
    kge_generator size = {.entities = 40, .relations = 3, .triples = 300};
    assert_int_equal(kge_graph_generate(&graph, &size, &error), 0);
    assert_int_equal(kge_index_build(&known, &graph, &graph.split[KGE_TRAIN], &error), 0);
    enum { DIM = 6 };
    float entities[40 * DIM], relations[6 * DIM];
    for (int i = 0; i < 40 * DIM; i++) entities[i] = noise((uint64_t)i);
    memcpy(entities + 7 * DIM, entities + 8 * DIM, DIM * sizeof(float)); /* ties */
    memcpy(entities + 9 * DIM, entities + 8 * DIM, DIM * sizeof(float));
    for (int i = 0; i < 6 * DIM; i++) relations[i] = noise(1000 + (uint64_t)i);
    const kge_split *split = &graph.split[KGE_TRAIN];
    double *ranks = malloc(2 * split->n * sizeof *ranks);
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (int reciprocal = 0; reciprocal < 2; reciprocal++) {
            kge_model model = {.kind = (kge_model_kind)kind, .dim = DIM, .reciprocal = reciprocal};
            kge_memory memory = {{entities, relations}, DIM};
            kge_evaluation evaluation = {.model = &model,
                                         .graph = &graph,
                                         .known = &known,
                                         .reader = kge_memory_reader(&memory),
                                         .split = split,
                                         .threads = 3,
                                         .stride = 1};
            kge_metrics metrics;
            double mrr = 0;
            assert_int_equal(kge_evaluate(&evaluation, &metrics, ranks, &error), 0);
            for (uint64_t i = 0; i < 2 * split->n; i++) {
                double expected = plain_rank(&model, &graph, entities, relations, split->triples[i / 2],
                                             i % 2 ? KGE_HEADS : KGE_TAILS);
                mrr += 1 / expected / (2.0 * (double)split->n);
                if (ranks[i] != expected)
                    fail_msg("%s, reciprocal %d, triple %d: rank %g, must be %g", kge_model_name(model.kind),
                             reciprocal, (int)i / 2, ranks[i], expected);
            }
            assert_true(fabs(mrr - metrics.mrr) < 1e-9);
            assert_int_equal(metrics.triples, split->n);
            assert_true(metrics.mrr_error == 0);
        }
    free(ranks);
    kge_index_free(&known);
    kge_graph_free(&graph);
}

/* The error of a sample's MRR is what the MRR of many such samples varies by. */
static void test_ranking_error(void **state) {
    (void)state;
    program_error error;
    kge_graph graph;
    kge_index known;
    kge_generator size = {.entities = 60, .relations = 3, .triples = 800};
    assert_int_equal(kge_graph_generate(&graph, &size, &error), 0);
    assert_int_equal(kge_index_build(&known, &graph, &graph.split[KGE_TRAIN], &error), 0);
    enum { DIM = 4, STRIDE = 8, TIMES = 400 };
    float entities[60 * DIM], relations[3 * DIM];
    for (int i = 0; i < 60 * DIM; i++) entities[i] = noise((uint64_t)i);
    for (int i = 0; i < 3 * DIM; i++) relations[i] = noise(1000 + (uint64_t)i);
    kge_model model = {.kind = KGE_DISTMULT, .dim = DIM};
    kge_split split = graph.split[KGE_TRAIN];
    kge_memory memory = {{entities, relations}, DIM};
    kge_evaluation evaluation = {.model = &model,
                                 .graph = &graph,
                                 .known = &known,
                                 .reader = kge_memory_reader(&memory),
                                 .split = &split,
                                 .threads = 1,
                                 .stride = 1};
    kge_metrics all, sample;
    assert_int_equal(kge_evaluate(&evaluation, &all, NULL, &error), 0);
    evaluation.stride = STRIDE;
    double squares = 0, told = 0;
    for (uint64_t k = 0; k < TIMES; k++) { /* each of another order of the triples */
        for (uint64_t i = split.n - 1; i > 0; i--) {
            uint64_t j = (uint64_t)((noise(k << 20 | i) + 1) / 2 * (float)i);
            kge_triple swapped = split.triples[i];
            split.triples[i] = split.triples[j], split.triples[j] = swapped;
        }
        assert_int_equal(kge_evaluate(&evaluation, &sample, NULL, &error), 0);
        squares += (sample.mrr - all.mrr) * (sample.mrr - all.mrr) / TIMES;
        told += sample.mrr_error / TIMES;
    }
    assert_true(told > 0.8 * sqrt(squares) && told < 1.25 * sqrt(squares));
    evaluation.stride = (uint32_t)split.n;
    assert_int_equal(kge_evaluate(&evaluation, &sample, NULL, &error), 0);
    assert_true(sample.triples == 1 && isnan(sample.mrr_error));
    kge_index_free(&known);
    kge_graph_free(&graph);
}

/* A model that knows nothing gets the rank of guessing; one that yields no numbers the worst. */
static void test_ranking_degenerate(void **state) {
    (void)state;
    program_error error;
    kge_triple train = {0, 0, 1};
    kge_graph graph = {.entities = {.n = 101}, .relations = {.n = 1}};
    graph.split[KGE_TRAIN] = (kge_split){&train, 1};
    kge_index known;
    assert_int_equal(kge_index_build(&known, &graph, &graph.split[KGE_TRAIN], &error), 0);
    static float entities[101 * 2], relations[2];
    kge_model model = {.kind = KGE_DISTMULT, .dim = 2};
    kge_memory memory = {{entities, relations}, 2};
    kge_evaluation evaluation = {.model = &model,
                                 .graph = &graph,
                                 .known = &known,
                                 .reader = kge_memory_reader(&memory),
                                 .split = &graph.split[KGE_TRAIN],
                                 .threads = 1,
                                 .stride = 1};
    kge_metrics metrics;
    assert_int_equal(kge_evaluate(&evaluation, &metrics, NULL, &error), 0);
    assert_true(metrics.mr == 51);
    relations[0] = NAN;
    assert_int_equal(kge_evaluate(&evaluation, &metrics, NULL, &error), 0);
    assert_true(metrics.mr == 101);
    kge_index_free(&known);
}

/* ---- Sampling ------------------------------------------------------------------------------------------ */

/* Every epoch deals every triple out once, over all devices. */
static void test_epochs(void **state) {
    (void)state;
    enum { N = 60, BATCH = 5, DEVICES = 3 };
    kge_triple triples[N];
    for (uint32_t i = 0; i < N; i++) triples[i] = (kge_triple){i, 0, i};
    kge_split train = {triples, N};
    kge_sampler sampler = {
        .train = &train, .seed = 7, .entities = N, .relations = 1, .devices = DEVICES, .batch = BATCH};
    kge_batch batch, shape = {.triples = BATCH, .chunk = BATCH, .negatives = 4};
    program_error error;
    assert_int_equal(kge_batch_open(&batch, &shape, &error), 0);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        int seen[N] = {0};
        for (uint64_t step = 0; step < N / BATCH / DEVICES; step++)
            for (uint32_t d = 0; d < DEVICES; d++) {
                kge_sample(&sampler, d, epoch * (N / BATCH / DEVICES) + step, &batch);
                for (int i = 0; i < BATCH; i++) seen[batch.head[i]]++;
                for (int i = 0; i < 4; i++) assert_true(batch.negative[i] < N);
            }
        for (int i = 0; i < N; i++) assert_int_equal(seen[i], 1);
    }
    assert_int_equal(kge_sampled(&sampler, N / BATCH / DEVICES), N);
    kge_batch_close(&batch);
}

/* Three parts of different sizes. */
enum { PARTED = 100, PARTS = 3 };

typedef struct parted {
    kge_triple triples[PARTED];
    uint8_t parts[PARTED];
    uint64_t size[PARTS];
    kge_split train;
    kge_sampler sampler;
} parted;

static void make_parted(parted *p, uint32_t batch) {
    memset(p, 0, sizeof *p);
    for (uint32_t i = 0; i < PARTED; i++) {
        p->triples[i] = (kge_triple){i, 0, i};
        p->parts[i] = i % 5 == 0 ? 0 : i % 5 == 2 && i % 4 ? 1 : 2;
        p->size[p->parts[i]]++;
    }
    p->train = (kge_split){p->triples, PARTED};
    p->sampler = (kge_sampler){
        .train = &p->train, .seed = 7, .entities = PARTED, .relations = 1, .devices = PARTS, .batch = batch};
}

/* Every epoch deals every triple out once, to the device of its part; parts of different sizes end together, and a
 * device's batches differ by one in size. Negatives are of all parts, and the same on all devices. */
static void test_parts(void **state) {
    (void)state;
    enum { BATCH = 7, EPOCHS = 10 };
    parted p;
    program_error error;
    kge_batch batch, shape = {.triples = BATCH, .chunk = 3, .negatives = 5};
    make_parted(&p, BATCH);
    assert_true(p.size[0] != p.size[1] && p.size[1] != p.size[2] && p.size[0] != p.size[2]);
    assert_int_equal(kge_sampler_deal(&p.sampler, p.parts, &error), 0);
    assert_int_equal(p.sampler.steps, (p.size[2] + BATCH - 1) / BATCH);
    assert_int_equal(kge_batch_open(&batch, &shape, &error), 0);
    uint32_t order[EPOCHS][PARTED];
    int negative[PARTED] = {0}, n_negative = 0;
    for (uint64_t step = 0, all = 0; step < EPOCHS * p.sampler.steps; step++) {
        static int seen[PARTED];
        uint64_t epoch = step / p.sampler.steps, before = all;
        float divisor = 0;
        uint32_t set[5] = {0};
        if (step % p.sampler.steps == 0) memset(seen, 0, sizeof seen);
        assert_int_equal(kge_sampled(&p.sampler, step), all);
        for (uint32_t d = 0; d < PARTS; d++) {
            kge_sample(&p.sampler, d, step, &batch);
            assert_in_range(batch.triples, p.size[d] / p.sampler.steps, (p.size[d] - 1) / p.sampler.steps + 1);
            assert_in_range(batch.triples, 1, BATCH);
            for (uint32_t i = 0; i < batch.triples; i++, all++) {
                assert_int_equal(p.parts[batch.head[i]], d);
                assert_int_equal(batch.tail[i], batch.head[i]);
                assert_int_equal(seen[batch.head[i]]++, 0);
                order[epoch][all % PARTED] = batch.head[i];
            }
            for (uint32_t i = 0; i < kge_batch_negatives(&batch); i++) n_negative += !negative[batch.negative[i]]++;
            if (d) assert_true(batch.divisor == divisor); /* all triples of a step weigh the same */
            divisor = batch.divisor;
            if (d == 0) memcpy(set, batch.negative, sizeof set);
            assert_memory_equal(set, batch.negative, sizeof set);
        }
        assert_true(fabsf(divisor * PARTS - (float)(all - before)) < 1e-4f);
        if ((step + 1) % p.sampler.steps == 0) assert_int_equal(all, (epoch + 1) * PARTED);
    }
    assert_int_equal(n_negative, PARTED);
    for (int a = 0; a < EPOCHS; a++)
        for (int b = 0; b < a; b++) assert_memory_not_equal(order[a], order[b], sizeof order[a]);
    kge_sample(&p.sampler, 1, 2, &batch);
    uint32_t drawn = batch.head[0], others = 0;
    for (p.sampler.seed = 8; p.sampler.seed < 28; p.sampler.seed++)
        kge_sample(&p.sampler, 1, 2, &batch), others += batch.head[0] != drawn;
    assert_true(others > 0);
    kge_batch_close(&batch);
    kge_sampler_close(&p.sampler);
}

static void expect_not_dealt(uint32_t batch, uint32_t at, uint8_t part, const char *because) {
    parted p;
    program_error error = {.text = ""};
    make_parted(&p, batch);
    if (at == PARTED)
        memset(p.parts, part, PARTED);
    else
        p.parts[at] = part;
    assert_int_equal(kge_sampler_deal(&p.sampler, p.parts, &error), -1);
    if (!strstr(error.text, because)) fail_msg("'%s' does not say '%s'", error.text, because);
    kge_sampler_close(&p.sampler);
}

static void test_parts_refused(void **state) {
    (void)state;
    expect_not_dealt(7, 11, 3, "triple 11 has part 3, and the parts of 3 devices are 0 to 2; give");
    expect_not_dealt(7, PARTED, 1, "part 0 has 0 triples, and every step needs one: the largest part has 100");
    expect_not_dealt(1, 0, 0, "use parts of more even size, fewer --devices or a larger --batch");
}

/* ---- Reading ------------------------------------------------------------------------------------------- */

static char folder[100];

static void write_file(const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/test_kge_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const names[] = {"train2id.txt",    "valid2id.txt", "test2id.txt", "entity2id.txt",
                                        "relation2id.txt", "train.txt",    "valid.txt",   "test.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void expect_refused(const char *because) {
    kge_graph graph;
    program_error error = {.text = ""};
    assert_int_equal(kge_graph_read(&graph, folder, &error), -1);
    kge_graph_free(&graph);
    if (!strstr(error.text, because)) fail_msg("'%s' does not say '%s'", error.text, because);
    assert_null(strchr(error.text, '\n'));
}

static void test_read_openke(void **state) {
    (void)state;
    kge_graph graph;
    program_error error;
    write_file("entity2id.txt", "3\nthe one\t1\nzero\t0\r\ntwo\t2\n");
    write_file("relation2id.txt", "2\nr\t0\ns\t1\n");
    write_file("train2id.txt", "2\n0 1 1\n2 0 0"); /* head tail relation; no newline at the end */
    write_file("test2id.txt", "1\n1 2 0\n");
    assert_int_equal(kge_graph_read(&graph, folder, &error), 0);
    assert_int_equal(graph.entities.n, 3);
    assert_string_equal(kge_name(&graph.entities, 1), "the one");
    assert_int_equal(graph.split[KGE_TRAIN].n, 2);
    assert_int_equal(graph.split[KGE_TRAIN].triples[0].tail, 1);
    assert_int_equal(graph.split[KGE_TRAIN].triples[0].relation, 1);
    assert_int_equal(graph.split[KGE_VALID].n, 0);
    kge_graph_free(&graph);
    write_file("train2id.txt", "2\n0 1 1\n2 0 2\n");
    expect_refused("train2id.txt:3: '2 0 2' is not");
    write_file("train2id.txt", "2\n0 1 1\n-2 0 1\n");
    expect_refused("train2id.txt:3");
    write_file("train2id.txt", "3\n0 1 1\n2 0 0\n");
    expect_refused("promises 3 triples, holds 2");
    write_file("train2id.txt", "1\n0 1 1\n2 0 0\n");
    expect_refused("more triples than");
    write_file("train2id.txt", "0 1 1\n");
    expect_refused("first line must be the number");
    write_file("train2id.txt", "0\n");
    expect_refused("no triple to train on");
    write_file("entity2id.txt", "2\na\t0\nb\t0\n");
    expect_refused("entity2id.txt:3");
    write_file("entity2id.txt", "3\na\t0\nb\t1\n");
    expect_refused("promises 3 names, holds 2");
}

static void test_read_plain(void **state) {
    (void)state;
    kge_graph graph;
    program_error error;
    expect_refused("neither train2id.txt (OpenKE) nor train.txt");
    write_file("train.txt", "a b\tlikes\tc\nc\tlikes\ta b\n");
    write_file("test.txt", "c\tknows\td\n");
    assert_int_equal(kge_graph_read(&graph, folder, &error), 0);
    assert_int_equal(graph.entities.n, 3);
    assert_int_equal(graph.relations.n, 2);
    assert_string_equal(kge_name(&graph.entities, graph.split[KGE_TRAIN].triples[1].tail), "a b");
    kge_graph_free(&graph);
    write_file("train.txt", "a\tlikes\n");
    expect_refused("train.txt:1: 'a");
    write_file("train.txt", "a\tlikes\tb\tc\n");
    expect_refused("head<TAB>relation<TAB>tail");
    strcat(folder, "-missing");
    expect_refused("No such file");
    folder[strlen(folder) - strlen("-missing")] = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_rotate_phases),
        cmocka_unit_test(test_1vsall),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_kvsall),
        cmocka_unit_test(test_divisor),
        cmocka_unit_test(test_regularization),
        cmocka_unit_test(test_corrected_softmax),
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_self_adversarial_weights),
        cmocka_unit_test(test_ranking),
        cmocka_unit_test(test_ranking_error),
        cmocka_unit_test(test_ranking_degenerate),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_refused),
        cmocka_unit_test_setup_teardown(test_read_openke, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_read_plain, make_folder, remove_folder),
    };
    openblas_set_num_threads(1); /* as kge does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
