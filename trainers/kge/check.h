/* What looks wrong in a graph, counted: triples that are in two splits or twice in one, and names that only held-out
 * triples have; and columns.h's part: columns in another order than they were read in, a header in place of a triple.
 *
 * None of it stops a training, and each can make its result worthless. So it is told.
 */
#ifndef KGE_CHECK_H
#define KGE_CHECK_H

#include <stdio.h>
#include "trainers/kge/data.h"

/* What an entity is in the training triples. */
enum { KGE_IS_HEAD = 1, KGE_IS_TAIL = 2 };

typedef struct kge_findings {
    uint64_t repeated[KGE_SPLITS]; /* triples that come before in the same split; of train: by kge_check_repeated */
    uint64_t trained[KGE_SPLITS];  /* of valid and test: triples that are in train, too */
    int compared;                  /* kge_check_repeated has counted */
    uint64_t valid_in_test;
    uint64_t unseen[KGE_SPLITS]; /* of valid and test: triples with an entity or relation that no training triple has */
    uint8_t *entity, *relation;  /* of each: KGE_IS_HEAD | KGE_IS_TAIL; is a training triple's */
    /* By kge_check_columns. */
    char suspect;    /* 'h' or 't': what was read as this may be the relations; 0: no doubt */
    uint32_t values; /* of the suspect in train */
    uint32_t relations;
    int first_line; /* train begins with a line whose three names nothing else has: a header? */
} kge_findings;

/* Fills *findings, except for the columns; 0, or -1 with *error filled. Findings that failed can be freed. */
int kge_check_graph(kge_findings *findings, const kge_graph *graph, program_error *error);
/* Counts the training triples that come twice; of more than KGE_MOST_COMPARED, it counts none. */
enum { KGE_MOST_COMPARED = 1 << 26 };
int kge_check_repeated(kge_findings *findings, const kge_graph *graph, program_error *error);
void kge_findings_free(kge_findings *findings);

/* Does train have the names of this triple? */
static inline int kge_is_seen(const kge_findings *findings, kge_triple triple) {
    return findings->entity[triple.head] && findings->entity[triple.tail] && findings->relation[triple.relation];
}

/* A line to stderr for each finding. */
void kge_findings_tell(const kge_findings *findings, const kge_graph *graph);
/* Their numbers, as fields that follow others. */
void kge_findings_json(const kge_findings *findings, const kge_graph *graph, FILE *json);

const char *kge_split_name(kge_split_kind split);

#endif
