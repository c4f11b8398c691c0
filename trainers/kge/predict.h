/* Predictions: the entities that answer a question best, and the nearest ones of an entity.
 *
 * The questions are in a file, one a line:
 *
 *     head<TAB>relation<TAB>?            the tails that score best
 *     ?<TAB>relation<TAB>tail            the heads
 *     entity                             the entities whose rows point most in the same direction (cosine)
 *
 * Each answer is a line of stdout, the best first: the triple, its score as model.h has it, and where the graph has
 * triples, `known` if one of its splits has this one, else `new`; or the two entities and their cosine.
 */
#ifndef KGE_PREDICT_H
#define KGE_PREDICT_H

#include "trainers/kge/candidates.h"

typedef struct kge_prediction {
    const kge_model *model;
    const kge_graph *graph;
    kge_reader reader;
    uint32_t top; /* answers of each question */
} kge_prediction;

typedef enum { KGE_ASK_TAILS = KGE_TAILS, KGE_ASK_HEADS = KGE_HEADS, KGE_ASK_NEAREST } kge_wanted;

typedef struct kge_wish {
    kge_wanted wanted;
    kge_triple triple; /* its given parts; KGE_ASK_NEAREST: head */
} kge_wish;

typedef struct kge_wishes {
    kge_wish *of;
    uint64_t n;
} kge_wishes;

/* Reads the file; its names are the graph's. 0, or -1 with *error filled: what is wrong with which line. To be freed in
 * any case. */
int kge_wishes_read(kge_wishes *wishes, const char *path, const kge_graph *graph, program_error *error);
void kge_wishes_free(kge_wishes *wishes);

/* Prints the answers to all of them, in their order. */
int kge_predict(const kge_prediction *prediction, const kge_wishes *wishes, program_error *error);

#endif
