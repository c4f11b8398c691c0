/* Questions with all their answers: what KvsAll trains on (Dettmers et al. 2018).
 *
 * A question is a given end and a relation; its answers are all entities that complete it to a training triple. Heads
 * are asked for by an inverse relation, relation + relations, so all questions have one form.
 */
#ifndef KGE_QUESTION_H
#define KGE_QUESTION_H

#include "trainers/kge/data.h"

typedef struct kge_questions {
    kge_split asked;  /* by number: head is the given end, relation may be an inverse one, tail is the number again */
    uint64_t *first;  /* answers of question q: answer[first[q]] to answer[first[q + 1] - 1], rising, each once */
    uint32_t *answer; /* entities */
} kge_questions;

/* Of the training triples. 0, or -1 with *error filled; what failed can be freed. */
int kge_questions_build(kge_questions *questions, const kge_graph *graph, program_error *error);
void kge_questions_free(kge_questions *questions);

#endif
