/* Questions from triples: sorted, and cut where the question changes. */
#include "trainers/kge/question.h"

#include <stdlib.h>

static int kge_is_question(const kge_triple *a, const kge_triple *b) {
    return a->head == b->head && a->relation == b->relation;
}

/* Turns triples[n], sorted and each there once, into questions, in place: there are never more questions than
 * triples. */
static void kge_questions_cut(kge_questions *questions, uint64_t n) {
    kge_triple *triples = questions->asked.triples;
    uint64_t asked = 0;
    for (uint64_t i = 0; i < n; i++) {
        kge_triple triple = triples[i];
        if (!asked || !kge_is_question(&triple, &triples[asked - 1])) {
            triples[asked] = (kge_triple){triple.head, triple.relation, (uint32_t)asked};
            questions->first[asked++] = i;
        }
        questions->answer[i] = triple.tail;
    }
    questions->first[asked] = n;
    questions->asked.n = asked;
}

int kge_questions_build(kge_questions *questions, const kge_graph *graph, program_error *error) {
    const kge_split *train = &graph->split[KGE_TRAIN];
    uint64_t n = 2 * train->n;
    *questions = (kge_questions){0};
    if (n > UINT32_MAX)
        return program_fail(error,
                            "%llu triples have too many questions; the limit is 2^32 - 1: --scoring 1vsall has none",
                            (unsigned long long)train->n);
    questions->asked.triples = malloc((n + 1) * sizeof *questions->asked.triples);
    questions->first = malloc((n + 1) * sizeof *questions->first);
    questions->answer = malloc((n + 1) * sizeof *questions->answer);
    if (!questions->asked.triples || !questions->first || !questions->answer)
        return program_fail(error, "out of memory for the questions of %llu triples", (unsigned long long)train->n);
    for (uint64_t i = 0; i < train->n; i++) {
        kge_triple triple = train->triples[i];
        questions->asked.triples[i] = triple;
        questions->asked.triples[train->n + i] =
            (kge_triple){triple.tail, triple.relation + graph->relations.n, triple.head};
    }
    kge_questions_cut(questions, kge_triples_sort(questions->asked.triples, n, KGE_TAILS));
    return 0;
}

void kge_questions_free(kge_questions *questions) {
    free(questions->asked.triples);
    free(questions->first);
    free(questions->answer);
    *questions = (kge_questions){0};
}
