/* Knowledge graphs for the trainer: reading, generating, and the index of known triples.
 *
 * A graph is three lists of (head, relation, tail) triples over numbered entities and relations. Four kinds of
 * folders are read: OpenKE's (train2id.txt and so on: a count, then `head tail relation` ids a line, with
 * entity2id.txt and relation2id.txt); plain ones (train.txt and so on: head<TAB>relation<TAB>tail names); DGL-KE's
 * udd, where it is asked for (train.txt: ids, with entities.dict and relations.dict: id<TAB>name a line); and OGB's
 * arrays (train_hrt.npy: ids, which are the names). Other orders of the columns are read where they are asked for. What
 * looks wrong in a graph is in check.h.
 */
#ifndef KGE_DATA_H
#define KGE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "trainers/common/program.h"
#include "trainers/common/random.h"

typedef struct kge_triple {
    uint32_t head, relation, tail;
} kge_triple;

typedef struct kge_split {
    kge_triple *triples;
    uint64_t n;
} kge_split;

/* Names by id: name i is the string at text + offset[i]. */
typedef struct kge_names {
    char *text;
    uint64_t *offset;
    uint64_t text_used, text_room;
    uint32_t n, room;
} kge_names;

typedef enum { KGE_TRAIN, KGE_VALID, KGE_TEST, KGE_SPLITS } kge_split_kind;

typedef struct kge_graph {
    kge_names entities, relations;
    kge_split split[KGE_SPLITS];
    const char *columns; /* of its files, as kge_column_orders has them; NULL: it was generated */
    int named;           /* its files have names, not ids */
} kge_graph;

/* Which end of a triple is predicted: the tail from (head, relation), or the head from (relation, tail). */
typedef enum { KGE_TAILS, KGE_HEADS } kge_side; /* also as an index: weight[2] */

/* Answers by question: all tails known for (head, relation), all heads known for (relation, tail), from all
 * splits. by[side] holds each triple that answers an asked question once; the answers of a question lie together,
 * rising. */
typedef struct kge_index {
    kge_triple *by[2];
    uint64_t n[2];
} kge_index;

/* Size of the graph that kge_graph_generate draws; 0 takes the default. */
typedef struct kge_generator {
    uint32_t entities, relations, triples;
    uint64_t seed;
} kge_generator;

typedef enum { KGE_ANY_FORMAT, KGE_OPENKE, KGE_PLAIN, KGE_UDD, KGE_ARRAYS } kge_format;

/* How a folder is read. Zeros: its files say so. */
enum { KGE_ENTITY_FILE = KGE_SPLITS, KGE_RELATION_FILE, KGE_LAYOUT_FILES };
typedef struct kge_layout {
    kge_format format;
    const char *columns;                /* one of kge_column_orders; NULL: that of the format */
    const char *file[KGE_LAYOUT_FILES]; /* triples by split, then names; NULL: none */
    int named;                          /* files are given: `file` is whole */
} kge_layout;

/* The names of all files that kge_graph_read may read, if none are given. */
enum { KGE_GRAPH_FILES = 20, KGE_PLAIN_TRAIN = 5 }; /* train.txt is the sixth */
extern const char *const kge_graph_files[KGE_GRAPH_FILES];

/* What the three columns of a file of triples hold: head, relation, tail. */
enum { KGE_ORDERS = 6 };
extern const char *const kge_column_orders[KGE_ORDERS + 1]; /* and NULL */

/* All return 0, or -1 with *error filled; a graph that failed can be freed. */
int kge_graph_read(kge_graph *graph, const char *folder, program_error *error);
int kge_graph_read_as(kge_graph *graph, const char *folder, const kge_layout *layout, program_error *error);
int kge_graph_generate(kge_graph *graph, const kge_generator *generator, program_error *error);
void kge_graph_free(kge_graph *graph);
/* A checksum of names and triples, in their order. */
uint32_t kge_graph_checksum(const kge_graph *graph);
/* Of the questions for both ends of the triples of `asked`, whether or not the graph has these; NULL: of all. */
int kge_index_build(kge_index *index, const kge_graph *graph, const kge_split *asked, program_error *error);
void kge_index_free(kge_index *index);

/* The known answers of one question: *answers points at triples whose tail (KGE_TAILS; head for KGE_HEADS) is
 * an answer; returns the number of answers. `anchor` is the given end. */
uint64_t kge_index_answers(const kge_index *index, kge_side side, uint32_t anchor, uint32_t relation,
                           const kge_triple **answers);

/* Sorts triples by question and answer, and drops those that come again: how many are left. */
uint64_t kge_triples_sort(kge_triple *triples, uint64_t n, kge_side side);

/* Appends a name; its id is the number of names before it. */
int kge_names_add(kge_names *names, const char *name, size_t length, program_error *error);
/* Appends n ids, whose names are put one by one, each once; until then the offset is UINT64_MAX. */
int kge_names_reserve(kge_names *names, uint32_t n, program_error *error);
int kge_names_put(kge_names *names, uint32_t id, const char *name, size_t length, program_error *error);
void kge_names_free(kge_names *names);
const char *kge_name(const kge_names *names, uint32_t id);

#endif
