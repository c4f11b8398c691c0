/* Weights of questions: what a batch makes of them, and those that damping gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/kge/damping.h"
#include "trainers/kge/sample.h"
#include "tests/unit/trainers/kge_batch.h"

/* Weights of 1 change no bit. With others, loss and gradients are the sum over the questions of what each has alone,
 * times its weight. */
static void check_weights(const kge_model *model, kge_batch shape) {
    enum { MOST = (4 * TRIPLES + 2 * NEGATIVES + ENTITIES) * 8 };
    float rows[MOST], grads[MOST], plain[MOST], weight[2][TRIPLES];
    double sums[MOST] = {0}, largest = 0, sum = 0;
    kge_batch batch = shape;
    kge_workspace work;
    program_error error;
    for (size_t i = 0; i < MOST; i++) rows[i] = 2 * noise(i);
    fill_batch(&batch);
    size_t n = (size_t)kge_batch_positions(model, &batch) * model->dim;
    assert_true(n <= MOST);
    assert_int_equal(kge_workspace_open(&work, model, &batch, &error), 0);
    double even = kge_gradients(model, &batch, rows, plain, &work);
    kge_batch_close(&batch);
    batch = shape, batch.weighted = 1;
    fill_batch(&batch);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < TRIPLES; i++) weight[s][i] = batch.weight[s][i], batch.weight[s][i] = 1;
    assert_true(kge_gradients(model, &batch, rows, grads, &work) == even);
    assert_memory_equal(grads, plain, n * sizeof *grads);
    for (int q = 0; q < 2 * TRIPLES; q++) {
        for (int k = 0; k < 2 * TRIPLES; k++) batch.weight[k / TRIPLES][k % TRIPLES] = k == q;
        double own = weight[q / TRIPLES][q % TRIPLES];
        sum += own * kge_gradients(model, &batch, rows, grads, &work);
        for (size_t i = 0; i < n; i++) sums[i] += own * (double)grads[i];
    }
    for (int s = 0; s < 2; s++) memcpy(batch.weight[s], weight[s], sizeof weight[s]);
    assert_true(fabs(kge_gradients(model, &batch, rows, grads, &work) - sum) < 1e-5 * fabs(sum));
    for (size_t i = 0; i < n; i++) largest = fabs(sums[i]) > largest ? fabs(sums[i]) : largest;
    for (size_t i = 0; i < n; i++) assert_true(fabs((double)grads[i] - sums[i]) < 1e-5 * largest);
    kge_workspace_close(&work);
    kge_batch_close(&batch);
}

static void test_weights(void **state) {
    (void)state;
    kge_batch sampled = {.triples = TRIPLES, .chunk = 3, .negatives = NEGATIVES};
    kge_batch all = {.triples = TRIPLES, .chunk = 3, .entities = ENTITIES};
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        kge_model model = {.kind = (kge_model_kind)kind, .dim = 8, .margin = 1, .temperature = 1, .reciprocal = 1};
        for (int loss = 0; loss < KGE_LOSSES; loss++) {
            model.loss = (kge_loss_kind)loss;
            check_weights(&model, sampled);
        }
        model.scoring = KGE_1VSALL;
        if (kind != KGE_TRANSE_L1) check_weights(&model, all); /* with softmax, the last loss */
    }
}

enum { MOST_ENTITIES = 40, BATCH = 7 };

/* The answers to a question of a triple, counted plainly: one that comes twice counts once. */
static double plain_answers(const kge_split *train, kge_triple t, int heads) {
    char is_answer[MOST_ENTITIES] = {0};
    double answers = 0;
    for (uint64_t j = 0; j < train->n; j++) {
        kge_triple u = train->triples[j];
        if (u.relation == t.relation && (heads ? u.tail == t.tail : u.head == t.head))
            is_answer[heads ? u.head : u.tail] = 1;
    }
    for (int e = 0; e < MOST_ENTITIES; e++) answers += is_answer[e];
    return answers;
}

static void make_graph(kge_graph *graph) {
    program_error error;
    kge_generator size = {.entities = MOST_ENTITIES, .relations = 3, .triples = 300};
    assert_int_equal(kge_graph_generate(graph, &size, &error), 0);
    kge_triple *triples = graph->split[KGE_TRAIN].triples;
    triples[0] = triples[1];
    assert_true(graph->split[KGE_TEST].n > 0); /* which do not count */
}

/* All are the same multiple of the answers' power, and their mean is 1. */
static void test_damping(void **state) {
    (void)state;
    program_error error;
    kge_graph graph;
    make_graph(&graph);
    const kge_split *train = &graph.split[KGE_TRAIN];
    for (float damping = -0.25f; damping < 1; damping += 0.75f) {
        kge_weights weights;
        double sum = 0, first = 0;
        assert_int_equal(kge_weights_build(&weights, &graph, damping, &error), 0);
        for (int heads = 0; heads < 2; heads++)
            for (uint64_t i = 0; i < train->n; i++) {
                double weight = (double)weights.of[heads][i];
                double even = weight * pow(plain_answers(train, train->triples[i], heads), (double)damping);
                if (!first) first = even;
                assert_true(fabs(even - first) < 1e-6);
                sum += weight;
            }
        assert_true(fabs(sum / (2 * (double)train->n) - 1) < 1e-6);
        kge_weights_free(&weights);
    }
    kge_graph_free(&graph);
}

/* The triples of a batch have the weights of their own questions, at random and by parts. */
static void test_sampled_weights(void **state) {
    int by_parts = *state != NULL;
    program_error error;
    kge_graph graph;
    kge_weights weights;
    make_graph(&graph);
    const kge_split *train = &graph.split[KGE_TRAIN];
    kge_batch batch, shape = {.triples = BATCH, .chunk = BATCH, .negatives = 1, .weighted = 1};
    kge_sampler sampler = {.train = train,
                           .seed = 7,
                           .entities = MOST_ENTITIES,
                           .relations = 3,
                           .devices = 2,
                           .batch = BATCH,
                           .weights = &weights};
    uint8_t *parts = malloc(train->n);
    for (uint64_t i = 0; i < train->n; i++) parts[i] = i % 3 == 0;
    assert_int_equal(kge_weights_build(&weights, &graph, 0.5f, &error), 0);
    if (by_parts) assert_int_equal(kge_sampler_deal(&sampler, parts, &error), 0);
    assert_int_equal(kge_batch_open(&batch, &shape, &error), 0);
    double even = (double)weights.of[0][0] * sqrt(plain_answers(train, train->triples[0], 0));
    for (uint64_t step = 0; step < 30; step++)
        for (uint32_t device = 0; device < 2; device++) {
            kge_sample(&sampler, device, step, &batch);
            for (uint32_t i = 0; i < batch.triples; i++)
                for (int heads = 0; heads < 2; heads++) {
                    kge_triple t = {batch.head[i], batch.relation[i], batch.tail[i]};
                    double expected = even / sqrt(plain_answers(train, t, heads));
                    assert_true(fabs((double)batch.weight[heads][i] - expected) < 1e-6);
                }
        }
    kge_batch_close(&batch);
    kge_sampler_close(&sampler);
    kge_weights_free(&weights);
    kge_graph_free(&graph);
    free(parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_damping),
                                       {"sampled at random", test_sampled_weights, NULL, NULL, NULL},
                                       {"sampled by parts", test_sampled_weights, NULL, NULL, (void *)(intptr_t)1}};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
