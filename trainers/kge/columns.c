/* Doubts about the columns of a graph's files. */
#include "trainers/kge/columns.h"
#include "trainers/kge/folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Values of the columns ------------------------------------------------------------------------------------ */

typedef enum { KGE_HEAD_PART, KGE_RELATION_PART, KGE_TAIL_PART, KGE_PARTS } kge_part;
static const char kge_letters[] = "hrt";

/* How many values of the training triples are in each part; and how many of them a list has. */
typedef struct kge_values {
    uint32_t all[KGE_PARTS], listed[KGE_PARTS];
} kge_values;

/* The list has the names of `names`; without one, nothing is listed. */
static kge_values kge_values_count(const kge_findings *findings, const kge_graph *graph, const kge_map *list,
                                   const kge_names *names) {
    kge_values v = {{0}, {0}};
    for (uint32_t r = 0; r < graph->relations.n; r++) {
        if (!findings->relation[r]) continue;
        v.all[KGE_RELATION_PART]++;
        v.listed[KGE_RELATION_PART] += list && kge_map_find(list, names, kge_name(&graph->relations, r)) != UINT32_MAX;
    }
    for (uint32_t e = 0; e < graph->entities.n; e++) {
        if (!findings->entity[e]) continue;
        int is = list && kge_map_find(list, names, kge_name(&graph->entities, e)) != UINT32_MAX;
        for (int tail = 0; tail < 2; tail++) {
            if (!(findings->entity[e] & (tail ? KGE_IS_TAIL : KGE_IS_HEAD))) continue;
            v.all[tail ? KGE_TAIL_PART : KGE_HEAD_PART]++;
            v.listed[tail ? KGE_TAIL_PART : KGE_HEAD_PART] += (uint32_t)is;
        }
    }
    return v;
}

/* ---- Files of the relations' names ------------------------------------------------------------------------------ */

/* OpenKE and others; RotatE and DGL-KE; DGL-KE; LibKGE; KG-BERT. Some have ids before the names, some behind them. */
static const char *const kge_lists[] = {"relation2id.txt",  "relations.dict",    "relations.tsv",
                                        "relation_ids.del", "relation2text.txt", "relations.txt"};

static const char *kge_ordinal(const kge_graph *graph, char part) {
    static const char *const ordinal[] = {"first", "second", "third"};
    return ordinal[strchr(graph->columns, part) - graph->columns];
}

/* The order that has the relations where this part was read. */
static const char *kge_other_order(const kge_graph *graph, char suspect) {
    for (int i = 0; i < KGE_ORDERS; i++) {
        const char *other = kge_column_orders[i];
        if (other[strchr(graph->columns, suspect) - graph->columns] == 'r' && strchr(other, 'h') < strchr(other, 't'))
            return other;
    }
    return graph->columns;
}

static const char *kge_order_words(const kge_graph *graph, char words[32]) {
    const char *word[3];
    for (int i = 0; i < 3; i++)
        word[i] = graph->columns[i] == 'h' ? "head" : graph->columns[i] == 'r' ? "relation" : "tail";
    snprintf(words, 32, "%s, %s, %s", word[0], word[1], word[2]);
    return words;
}

static int kge_is_mostly_listed(const kge_values *v, kge_part part) {
    return 2 * (uint64_t)v->listed[part] > v->all[part];
}

/* Is a larger share of this part listed than of the relations? */
static int kge_is_better_listed(const kge_values *v, kge_part part) {
    return (uint64_t)v->listed[part] * v->all[KGE_RELATION_PART] >
           (uint64_t)v->listed[KGE_RELATION_PART] * v->all[part];
}

/* 1: this list has the relations; 0: it says nothing; -1: it has another column, and *error is filled. */
static int kge_judge(const kge_values *v, const kge_graph *graph, const char *folder, const char *file,
                     program_error *error) {
    char words[32];
    int better = 0;
    for (int tail = 0; tail < 2; tail++) {
        kge_part part = tail ? KGE_TAIL_PART : KGE_HEAD_PART;
        char letter = kge_letters[part];
        if (!kge_is_mostly_listed(v, part) || !kge_is_better_listed(v, part)) continue;
        better = 1;
        if (kge_is_mostly_listed(v, KGE_RELATION_PART)) continue; /* where names are numbers, each list has many */
        return program_fail(
            error,
            "%s/%s has %" PRIu32 " of the %" PRIu32 " names in the %s column of train, and %" PRIu32 " of the %" PRIu32
            " in the %s: are the columns %s? If not, give their order, such as --columns %s; if so, give --columns %s",
            folder, file, v->listed[part], v->all[part], kge_ordinal(graph, letter), v->listed[KGE_RELATION_PART],
            v->all[KGE_RELATION_PART], kge_ordinal(graph, 'r'), kge_order_words(graph, words),
            kge_other_order(graph, letter), graph->columns);
    }
    return !better && kge_is_mostly_listed(v, KGE_RELATION_PART);
}

/* kge_judge's answer for one file. */
static int kge_ask_list(const kge_findings *findings, const kge_graph *graph, kge_folder *folder, const char *file,
                        program_error *error) {
    kge_map list = {0};
    kge_names names = {0};
    int verdict = 0;
    if (kge_folder_words(folder, file, &list, &names) && names.n) {
        kge_values v = kge_values_count(findings, graph, &list, &names);
        verdict = kge_judge(&v, graph, folder->path, file, error);
    }
    free(list.slot);
    kge_names_free(&names);
    return verdict;
}

/* ---- What graphs have in common ------------------------------------------------------------------------------- */

/* How many relations of train have the name (or, in files of ids, the number) of one of its heads, of its tails. */
static int kge_shared_names(const kge_findings *findings, const kge_graph *graph, uint32_t shared[KGE_PARTS],
                            program_error *error) {
    kge_map map = {0};
    if (graph->named && kge_map_build(&map, &graph->relations, error)) return -1;
    for (uint32_t e = 0; e < graph->entities.n; e++) {
        uint32_t r = !graph->named ? e : kge_map_find(&map, &graph->relations, kge_name(&graph->entities, e));
        if (r >= graph->relations.n || !findings->relation[r]) continue;
        shared[KGE_HEAD_PART] += (findings->entity[e] & KGE_IS_HEAD) != 0;
        shared[KGE_TAIL_PART] += (findings->entity[e] & KGE_IS_TAIL) != 0;
    }
    free(map.slot);
    return 0;
}

/* A part looks like the relations if it has fewer values, and what was read as relations shares more than twice as many
 * names with the part that is left; or, where that shares none with this part, twice as many values. Whatever their
 * number, it does if most names that were read as relations are in the part that is left, and none of its own are. */
static int kge_looks_related(const kge_graph *graph, uint32_t values, uint32_t relations, uint32_t both,
                             uint32_t rest) {
    if (graph->named && !both && 2 * (uint64_t)rest > relations) return 1;
    return values < relations && (2 * (uint64_t)both < rest || (!both && 2 * (uint64_t)values <= relations));
}

static int kge_suspect(kge_findings *findings, const kge_graph *graph, program_error *error) {
    kge_values v = kge_values_count(findings, graph, NULL, NULL);
    uint32_t shared[KGE_PARTS] = {0}, both = 0;
    findings->relations = v.all[KGE_RELATION_PART];
    if (kge_shared_names(findings, graph, shared, error)) return -1;
    for (uint32_t e = 0; e < graph->entities.n; e++) both += findings->entity[e] == (KGE_IS_HEAD | KGE_IS_TAIL);
    for (int tail = 0; tail < 2; tail++) {
        kge_part part = tail ? KGE_TAIL_PART : KGE_HEAD_PART, left = tail ? KGE_HEAD_PART : KGE_TAIL_PART;
        if (findings->suspect && v.all[part] >= findings->values) continue;
        if (kge_looks_related(graph, v.all[part], findings->relations, both, shared[left]))
            findings->suspect = kge_letters[part], findings->values = v.all[part];
    }
    return 0;
}

/* ---- Headers --------------------------------------------------------------------------------------------------- */

/* Words that stand above columns, in the order head, relation, tail. */
static const char *const kge_headers[][3] = {{"head", "relation", "tail"},
                                             {"head", "rel", "tail"},
                                             {"h", "r", "t"},
                                             {"head_id", "relation_id", "tail_id"},
                                             {"head_entity", "relation", "tail_entity"},
                                             {"subject", "predicate", "object"},
                                             {"subject", "relation", "object"},
                                             {"subj", "pred", "obj"},
                                             {"s", "p", "o"},
                                             {"source", "relation", "target"},
                                             {"source", "type", "target"},
                                             {"source", "edge", "target"},
                                             {"src", "rel", "dst"},
                                             {"from", "relation", "to"},
                                             {"from", "rel", "to"},
                                             {"entity1", "relation", "entity2"}};

/* The order of columns that a line has as a header, or NULL. names[3] are in the order of `columns`. */
static const char *kge_header_order(const char *const names[3]) {
    for (size_t h = 0; h < sizeof kge_headers / sizeof *kge_headers; h++)
        for (int i = 0; i < KGE_ORDERS; i++) {
            int alike = 0;
            for (int c = 0; c < 3; c++)
                alike +=
                    !strcasecmp(names[c], kge_headers[h][strchr(kge_letters, kge_column_orders[i][c]) - kge_letters]);
            if (alike == 3) return kge_column_orders[i];
        }
    return NULL;
}

/* Marks the names that stand in other lines than the first one of each split. */
static void kge_mark_used(const kge_graph *graph, uint8_t *entity, uint8_t *relation) {
    for (int s = KGE_TRAIN; s < KGE_SPLITS; s++)
        for (uint64_t i = 1; i < graph->split[s].n; i++) {
            kge_triple t = graph->split[s].triples[i];
            entity[t.head] = entity[t.tail] = relation[t.relation] = 1;
        }
}

static int kge_check_first(kge_findings *findings, const kge_graph *graph, const char *folder, kge_split_kind split,
                           program_error *error) {
    kge_triple t = graph->split[split].triples[0];
    const char *names[3];
    for (int c = 0; c < 3; c++)
        names[c] = graph->columns[c] == 'r' ? kge_name(&graph->relations, t.relation)
                                            : kge_name(&graph->entities, graph->columns[c] == 'h' ? t.head : t.tail);
    const char *order = kge_header_order(names);
    if (order)
        return program_fail(
            error, "%s/%s.txt begins with '%s %s %s', which is a header, and no triple; take this line out%s%s", folder,
            kge_split_name(split), names[0], names[1], names[2],
            strcmp(order, graph->columns) ? ", and give --columns " : "", strcmp(order, graph->columns) ? order : "");
    findings->first_line |= split == KGE_TRAIN && graph->split[KGE_TRAIN].n > 1;
    return 0;
}

static int kge_check_headers(kge_findings *findings, const kge_graph *graph, const char *folder, program_error *error) {
    uint8_t *entity = calloc((size_t)graph->entities.n + 1, 1), *relation = calloc((size_t)graph->relations.n + 1, 1);
    int status = entity && relation ? 0 : program_fail(error, "out of memory to look for headers in %s", folder);
    if (!status) kge_mark_used(graph, entity, relation);
    for (int s = KGE_TRAIN; s < KGE_SPLITS && !status; s++) {
        if (!graph->split[s].n) continue;
        kge_triple t = graph->split[s].triples[0];
        if (!entity[t.head] && !entity[t.tail] && !relation[t.relation])
            status = kge_check_first(findings, graph, folder, (kge_split_kind)s, error);
    }
    free(entity);
    free(relation);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

int kge_check_columns(kge_findings *findings, const kge_graph *graph, const char *path, int given,
                      program_error *error) {
    if (graph->named && kge_check_headers(findings, graph, path, error)) return -1;
    if (given) return 0;
    kge_folder folder = {.path = path};
    int verdict = 0;
    for (size_t i = 0; i < sizeof kge_lists / sizeof *kge_lists && graph->named && !verdict; i++)
        verdict = kge_ask_list(findings, graph, &folder, kge_lists[i], error);
    kge_folder_close(&folder);
    return verdict < 0 ? -1 : verdict ? 0 : kge_suspect(findings, graph, error);
}

void kge_columns_tell(const kge_findings *findings, const kge_graph *graph) {
    char words[32];
    uint64_t n = graph->split[KGE_TRAIN].n;
    if (findings->first_line)
        fprintf(stderr,
                "the three names in the first line of train are in no other line: is it a header? Take it out\n");
    if (!findings->suspect) return;
    fprintf(stderr,
            "%" PRIu32 " relations for %" PRIu64 " triples; the %s column has %" PRIu32
            " values: are the columns %s? If not, give their order, such as --columns %s; if so, give --columns %s\n",
            findings->relations, n, kge_ordinal(graph, findings->suspect), findings->values,
            kge_order_words(graph, words), kge_other_order(graph, findings->suspect), graph->columns);
}
