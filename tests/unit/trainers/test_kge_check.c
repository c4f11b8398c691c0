/* test_kge_check.c - what kge counts in a graph, against loops over all pairs of triples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "trainers/kge/check.h"

enum { MOST = 40, TRIALS = 300 };

static program_error error;

/* Few names, so that triples come again. The names of a graph are not looked at here. */
static void draw_graph(kge_graph *graph, kge_triple triples[KGE_SPLITS][MOST], uint64_t seed) {
    memset(graph, 0, sizeof *graph);
    graph->entities.n = 2 + random_below(random_at(seed, 0), 12);
    graph->relations.n = 1 + random_below(random_at(seed, 1), 4);
    for (uint64_t s = 0; s < KGE_SPLITS; s++) {
        uint32_t n = random_below(random_at(seed, 2 + s), MOST + 1);
        graph->split[s] = (kge_split){triples[s], n ? n : s == KGE_TRAIN};
        for (uint64_t i = 0; i < graph->split[s].n; i++) {
            uint64_t bits = random_at(seed, 100 + s * MOST + i);
            triples[s][i] = (kge_triple){random_below(random_at(bits, 0), graph->entities.n),
                                         random_below(random_at(bits, 1), graph->relations.n),
                                         random_below(random_at(bits, 2), graph->entities.n)};
        }
    }
}

/* Is this triple among the first n of a split? */
static int has(const kge_split *split, uint64_t n, kge_triple t) {
    for (uint64_t i = 0; i < n; i++)
        if (!memcmp(&split->triples[i], &t, sizeof t)) return 1;
    return 0;
}

static int train_has_names(const kge_split *train, kge_triple t) {
    int head = 0, tail = 0, relation = 0;
    for (uint64_t i = 0; i < train->n; i++) {
        kge_triple other = train->triples[i];
        head |= other.head == t.head || other.tail == t.head;
        tail |= other.head == t.tail || other.tail == t.tail;
        relation |= other.relation == t.relation;
    }
    return head && tail && relation;
}

static void counts_are_those_of_plain_loops(void **state) {
    (void)state;
    static kge_triple triples[KGE_SPLITS][MOST];
    uint64_t found = 0;
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        kge_graph graph;
        kge_findings f;
        draw_graph(&graph, triples, seed);
        assert_int_equal(kge_check_graph(&f, &graph, &error), 0);
        assert_int_equal(kge_check_repeated(&f, &graph, &error), 0);
        uint64_t in_test = 0;
        for (int s = KGE_TRAIN; s < KGE_SPLITS; s++) {
            const kge_split *split = &graph.split[s];
            uint64_t repeated = 0, trained = 0, unseen = 0;
            for (uint64_t i = 0; i < split->n; i++) {
                kge_triple t = split->triples[i];
                repeated += (uint64_t)has(split, i, t);
                trained += (uint64_t)(s != KGE_TRAIN && has(graph.split, graph.split->n, t));
                unseen += (uint64_t)!train_has_names(graph.split, t);
                in_test += (uint64_t)(s == KGE_VALID && has(&graph.split[KGE_TEST], graph.split[KGE_TEST].n, t));
                assert_int_equal(kge_is_seen(&f, t), train_has_names(graph.split, t));
            }
            if (f.repeated[s] != repeated || f.trained[s] != trained || f.unseen[s] != unseen)
                fail_msg("seed %d, split %d: %d, %d, %d", (int)seed, s, (int)repeated, (int)trained, (int)unseen);
            found += (repeated > 0) + (trained > 0) + (unseen > 0);
        }
        assert_int_equal(f.valid_in_test, in_test);
        kge_findings_free(&f);
    }
    assert_true(found > TRIALS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_those_of_plain_loops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
