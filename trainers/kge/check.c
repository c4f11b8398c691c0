/* Counting what looks wrong in a graph. The training triples are read once, and looked up among the held-out ones, of
 * which there are few. */
#include "trainers/kge/check.h"
#include "trainers/kge/columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *kge_split_name(kge_split_kind split) {
    static const char *const name[KGE_SPLITS] = {"train", "valid", "test"};
    return name[split];
}

/* ---- Held-out triples ------------------------------------------------------------------------------------- */

/* Open addressing. A slot's `in` has a bit for each split that has the triple; 0: it is free. */
typedef struct kge_held {
    kge_triple *triple;
    uint8_t *in;
    uint64_t mask;
} kge_held;

static uint8_t *kge_held_slot(kge_held *held, kge_triple triple) {
    uint64_t at = random_at(random_at(triple.relation, triple.head), triple.tail);
    for (;; at++) {
        const kge_triple *there = &held->triple[at & held->mask];
        uint8_t *in = &held->in[at & held->mask];
        if (!*in) held->triple[at & held->mask] = triple;
        if (!*in || (there->head == triple.head && there->relation == triple.relation && there->tail == triple.tail))
            return in;
    }
}

/* How many triples of a split are in another one, too. */
static uint64_t kge_held_also(kge_held *held, const kge_split *split, kge_split_kind other) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < split->n; i++) n += *kge_held_slot(held, split->triples[i]) >> other & 1;
    return n;
}

static int kge_check_held(kge_findings *findings, const kge_split *split, program_error *error) {
    uint64_t n = split[KGE_VALID].n + split[KGE_TEST].n, size = 4;
    while (size < 2 * n) size *= 2;
    kge_held held = {malloc(size * sizeof *held.triple), calloc(size, 1), size - 1};
    int status = held.triple && held.in
                     ? 0
                     : program_fail(error, "out of memory to look for %" PRIu64 " held-out triples in train", n);
    for (int s = KGE_VALID; s < KGE_SPLITS && !status; s++)
        for (uint64_t i = 0; i < split[s].n; i++) {
            uint8_t *in = kge_held_slot(&held, split[s].triples[i]);
            findings->repeated[s] += *in >> s & 1;
            *in |= (uint8_t)(1 << s);
        }
    for (uint64_t i = 0; i < split[KGE_TRAIN].n && !status; i++) {
        uint8_t *in = kge_held_slot(&held, split[KGE_TRAIN].triples[i]); /* a free slot stays free */
        if (*in) *in |= 1 << KGE_TRAIN;
    }
    for (int s = KGE_VALID; s < KGE_SPLITS && !status; s++)
        findings->trained[s] = kge_held_also(&held, &split[s], KGE_TRAIN);
    if (!status) findings->valid_in_test = kge_held_also(&held, &split[KGE_VALID], KGE_TEST);
    free(held.triple);
    free(held.in);
    return status;
}

/* ---- All of it ---------------------------------------------------------------------------------------------- */

int kge_check_graph(kge_findings *findings, const kge_graph *graph, program_error *error) {
    const kge_split *train = &graph->split[KGE_TRAIN];
    *findings = (kge_findings){.entity = calloc((size_t)graph->entities.n + 1, 1),
                               .relation = calloc((size_t)graph->relations.n + 1, 1)};
    if (!findings->entity || !findings->relation)
        return program_fail(error, "out of memory for marks of %" PRIu32 " entities", graph->entities.n);
    for (uint64_t i = 0; i < train->n; i++) {
        kge_triple t = train->triples[i];
        findings->entity[t.head] |= KGE_IS_HEAD, findings->entity[t.tail] |= KGE_IS_TAIL;
        findings->relation[t.relation] = 1;
    }
    for (int s = KGE_VALID; s < KGE_SPLITS; s++)
        for (uint64_t i = 0; i < graph->split[s].n; i++)
            findings->unseen[s] += !kge_is_seen(findings, graph->split[s].triples[i]);
    return kge_check_held(findings, graph->split, error);
}

int kge_check_repeated(kge_findings *findings, const kge_graph *graph, program_error *error) {
    const kge_split *train = &graph->split[KGE_TRAIN];
    if (train->n > KGE_MOST_COMPARED) return 0;
    kge_triple *sorted = malloc((train->n + 1) * sizeof *sorted);
    if (!sorted) return program_fail(error, "out of memory to compare %" PRIu64 " triples", train->n);
    if (train->n) memcpy(sorted, train->triples, train->n * sizeof *sorted);
    findings->repeated[KGE_TRAIN] = train->n - kge_triples_sort(sorted, train->n, KGE_TAILS);
    free(sorted);
    findings->compared = 1;
    return 0;
}

void kge_findings_free(kge_findings *findings) {
    free(findings->entity);
    free(findings->relation);
    *findings = (kge_findings){0};
}

/* ---- Telling ------------------------------------------------------------------------------------------------ */

/* `n` of the triples of a split, if there are any. */
static void kge_tell_some(uint64_t n, const kge_graph *graph, kge_split_kind split, const char *what) {
    if (n)
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " %s triples %s\n", n, graph->split[split].n, kge_split_name(split),
                what);
}

void kge_findings_tell(const kge_findings *findings, const kge_graph *graph) {
    for (int s = KGE_VALID; s < KGE_SPLITS; s++) {
        kge_split_kind split = (kge_split_kind)s;
        kge_tell_some(
            findings->unseen[s], graph, split,
            "have an entity or relation that no training triple has; their rows are as initialized, except for "
            "what they got as negatives");
        kge_tell_some(findings->trained[s], graph, split,
                      "are in train, too, so their ranks tell how much was learned by heart");
    }
    kge_tell_some(findings->valid_in_test, graph, KGE_VALID, "are in test, too");
    for (int s = KGE_TRAIN; s < KGE_SPLITS; s++)
        kge_tell_some(findings->repeated[s], graph, (kge_split_kind)s, "repeat an earlier one");
    kge_columns_tell(findings, graph);
}

void kge_findings_json(const kge_findings *findings, const kge_graph *graph, FILE *json) {
    for (int s = findings->compared ? KGE_TRAIN : KGE_VALID; s < KGE_SPLITS; s++)
        fprintf(json, ", \"%s_repeated\": %" PRIu64, kge_split_name((kge_split_kind)s), findings->repeated[s]);
    for (int s = KGE_VALID; s < KGE_SPLITS; s++) {
        const char *name = kge_split_name((kge_split_kind)s);
        fprintf(json, ", \"%s_unseen\": %" PRIu64 ", \"%s_in_train\": %" PRIu64, name, findings->unseen[s], name,
                findings->trained[s]);
    }
    fprintf(json, ", \"valid_in_test\": %" PRIu64, findings->valid_in_test);
    if (graph->columns)
        fprintf(json, ", \"columns\": \"%s\", \"columns_doubted\": %s, \"header_doubted\": %s", graph->columns,
                findings->suspect ? "true" : "false", findings->first_line ? "true" : "false");
}
