/* test_kge_ranks.c - ranks among so many entities that they pass in several sets, and among random ones, against plain
 * loops; and what such a ranking's error is. Rows are of small whole numbers, so all scores are exact, and many tie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/kge/eval.h"
#include "frugal_place.h"

enum { DIM = 4, RELATIONS = 2, TRIPLES = 150, MANY = 70000, FEW = 500 };

static program_error error;
static float entities[MANY * DIM], relations[RELATIONS * DIM];

static void fill(int most) {
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        entities[i] = (float)random_below(random_at(1, i), (uint32_t)most) - (float)(most / 2);
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
        relations[i] = (float)random_below(random_at(2, i), 5) - 2;
}

/* Few heads and tails, so that questions have several answers. */
static void draw_graph(kge_graph *graph, kge_triple triples[TRIPLES], uint32_t n_entities) {
    *graph = (kge_graph){.entities = {.n = n_entities}, .relations = {.n = RELATIONS}};
    for (uint64_t i = 0; i < TRIPLES; i++)
        triples[i] = (kge_triple){random_below(random_at(3, i), 9) * (n_entities / 9), random_below(random_at(4, i), 2),
                                  random_below(random_at(5, i), n_entities)};
    for (uint64_t i = 0; i < TRIPLES; i += 3) triples[i].tail = n_entities - 1 - random_below(random_at(6, i), 9);
    graph->split[KGE_TEST] = (kge_split){triples, TRIPLES};
}

static int has(const kge_split *split, kge_triple t) {
    for (uint64_t i = 0; i < split->n; i++)
        if (!memcmp(&split->triples[i], &t, sizeof t)) return 1;
    return 0;
}

/* More is better. */
static double plain_score(const kge_model *model, kge_triple t) {
    double sum = 0;
    for (size_t k = 0; k < DIM; k++) {
        double head = (double)entities[t.head * DIM + k], tail = (double)entities[t.tail * DIM + k];
        double relation = (double)relations[t.relation * DIM + k], apart = head + relation - tail;
        sum += model->kind == KGE_TRANSE ? -apart * apart : head * relation * tail;
    }
    return sum;
}

/* Among candidate[n], or all n entities if there are none. */
static double plain_rank(const kge_evaluation *e, kge_triple triple, int heads, const uint32_t *candidate, uint32_t n) {
    double own = plain_score(e->model, triple), rank = 1;
    for (uint32_t i = 0; i < n; i++) {
        kge_triple other = triple;
        *(heads ? &other.head : &other.tail) = candidate ? candidate[i] : i;
        if (has(&e->graph->split[KGE_TEST], other)) continue; /* itself, too */
        double score = plain_score(e->model, other);
        rank += score > own ? 1 : score < own ? 0 : 0.5;
    }
    return rank;
}

static void check(const kge_evaluation *e, uint32_t each) {
    double ranks[2 * TRIPLES];
    uint32_t candidate[MANY], n = e->candidates ? e->candidates : e->graph->entities.n;
    kge_metrics metrics;
    assert_int_equal(kge_evaluate(e, &metrics, ranks, &error), 0);
    assert_int_equal(metrics.triples, TRIPLES);
    assert_int_equal(metrics.candidates, e->candidates);
    for (uint64_t i = 0; i < TRIPLES; i += each) {
        for (uint32_t j = 0; j < n && e->candidates; j++)
            candidate[j] = (uint32_t)frugal_place_permute(random_at(random_at(e->seed, 7), i / KGE_EVAL_BATCH),
                                                          e->graph->entities.n, j);
        for (int heads = 0; heads < 2; heads++) {
            double expected = plain_rank(e, e->split->triples[i], heads, e->candidates ? candidate : NULL, n);
            double found = ranks[2 * i + (uint64_t)heads];
            if (found < expected || found > expected)
                fail_msg("%s, triple %d, side %d: rank %g, must be %g", kge_model_name(e->model->kind), (int)i, heads,
                         found, expected);
        }
    }
}

static void checks(uint32_t n_entities, uint32_t candidates, uint32_t each) {
    kge_triple triples[TRIPLES];
    kge_graph graph;
    kge_index known;
    kge_memory memory = {{entities, relations}, DIM};
    draw_graph(&graph, triples, n_entities);
    assert_int_equal(kge_index_build(&known, &graph, &graph.split[KGE_TEST], &error), 0);
    for (int kind = 0; kind < 2; kind++) {
        kge_model model = {.kind = kind ? KGE_DISTMULT : KGE_TRANSE, .dim = DIM};
        kge_evaluation e = {.model = &model,
                            .graph = &graph,
                            .known = &known,
                            .reader = kge_memory_reader(&memory),
                            .split = &graph.split[KGE_TEST],
                            .threads = 3,
                            .stride = 1,
                            .candidates = candidates,
                            .seed = 11};
        check(&e, each);
    }
    kge_index_free(&known);
}

static void in_several_sets(void **state) {
    (void)state;
    fill(9);
    assert_true(kge_candidates_width(MANY, DIM) < MANY);
    checks(MANY, 0, 10);
}

static void among_random_entities(void **state) {
    (void)state;
    fill(9);
    checks(FEW, 100, 1);
    checks(MANY, 1000, 1);
    checks(FEW, FEW - 1, 1);
}

/* The index of some questions has all their answers. */
static void index_of_what_is_asked(void **state) {
    (void)state;
    kge_triple triples[TRIPLES];
    kge_graph graph;
    kge_index all, some;
    draw_graph(&graph, triples, 40);
    kge_split asked = {triples, 20};
    assert_int_equal(kge_index_build(&all, &graph, NULL, &error), 0);
    assert_int_equal(kge_index_build(&some, &graph, &asked, &error), 0);
    for (uint64_t i = 0; i < 2 * asked.n; i++) {
        const kge_triple *t = &triples[i / 2], *a, *b;
        kge_side side = (kge_side)(i % 2);
        uint32_t anchor = side == KGE_TAILS ? t->head : t->tail;
        uint64_t n = kge_index_answers(&all, side, anchor, t->relation, &a);
        assert_int_equal(n, kge_index_answers(&some, side, anchor, t->relation, &b));
        assert_memory_equal(a, b, n * sizeof *a);
    }
    assert_true(some.n[KGE_HEADS] < all.n[KGE_HEADS]);
    kge_index_free(&all);
    kge_index_free(&some);
}

/* The error is what the MRR varies by over draws of candidates and of triples. */
static void error_among_random_entities(void **state) {
    (void)state;
    enum { TIMES = 300, DRAWN = 512 };
    static kge_triple triples[DRAWN];
    kge_graph graph = {.entities = {.n = FEW}, .relations = {.n = RELATIONS}};
    kge_memory memory = {{entities, relations}, DIM};
    kge_model model = {.kind = KGE_DISTMULT, .dim = DIM};
    double sum = 0, squares = 0, told = 0;
    fill(101);
    for (uint64_t k = 0; k < TIMES; k++) {
        kge_index known;
        kge_metrics metrics;
        for (uint64_t i = 0; i < DRAWN; i++)
            triples[i] = (kge_triple){random_below(random_at(k, 3 * i), FEW), random_below(random_at(k, 3 * i + 1), 2),
                                      random_below(random_at(k, 3 * i + 2), FEW)};
        graph.split[KGE_TEST] = (kge_split){triples, DRAWN};
        assert_int_equal(kge_index_build(&known, &graph, &graph.split[KGE_TEST], &error), 0);
        kge_evaluation e = {.model = &model,
                            .graph = &graph,
                            .known = &known,
                            .reader = kge_memory_reader(&memory),
                            .split = &graph.split[KGE_TEST],
                            .threads = 1,
                            .stride = 1,
                            .candidates = 20,
                            .seed = k};
        assert_int_equal(kge_evaluate(&e, &metrics, NULL, &error), 0);
        sum += metrics.mrr / TIMES, squares += metrics.mrr * metrics.mrr / TIMES, told += metrics.mrr_error / TIMES;
        kge_index_free(&known);
    }
    double varies = sqrt(squares - sum * sum);
    if (told < 0.8 * varies || told > 1.25 * varies) fail_msg("told %g, and it varies by %g", told, varies);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_several_sets), cmocka_unit_test(among_random_entities),
                                       cmocka_unit_test(index_of_what_is_asked),
                                       cmocka_unit_test(error_among_random_entities)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
