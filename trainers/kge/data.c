/* Knowledge graphs in memory, and the index of known triples. */
#include "trainers/kge/folder.h"
#include "trainers/common/crc32.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const kge_graph_files[KGE_GRAPH_FILES] = {
    "train2id.txt", "valid2id.txt",  "test2id.txt",   "entity2id.txt", "relation2id.txt", "train.txt",     "valid.txt",
    "test.txt",     "train_hrt.npy", "valid_hrt.npy", "valid_hr.npy",  "valid_t.npy",     "val_hrt.npy",   "val_hr.npy",
    "val_t.npy",    "test_hrt.npy",  "test_hr.npy",   "test_t.npy",    "entities.dict",   "relations.dict"};

const char *const kge_column_orders[KGE_ORDERS + 1] = {"hrt", "htr", "rht", "rth", "thr", "trh", NULL};

const char *kge_name(const kge_names *names, uint32_t id) {
    return names->text + names->offset[id];
}

/* Room for so many more names, or bytes of names. */
static int kge_names_grow(kge_names *names, uint64_t more, uint64_t bytes, program_error *error) {
    uint64_t wanted = names->n + more;
    if (wanted > names->room) {
        uint64_t room = wanted < 512 ? 1024 : wanted > UINT32_MAX / 2 ? UINT32_MAX : 2 * wanted;
        uint64_t *offset = realloc(names->offset, (size_t)room * sizeof *offset);
        if (!offset) return program_fail(error, "out of memory for %" PRIu64 " names", room);
        names->offset = offset;
        names->room = (uint32_t)room;
    }
    if (names->text_used + bytes > names->text_room) {
        uint64_t room = 2 * (names->text_used + bytes) + 4096;
        char *text = realloc(names->text, room);
        if (!text) return program_fail(error, "out of memory for %" PRIu64 " bytes of names", room);
        names->text = text;
        names->text_room = room;
    }
    return 0;
}

int kge_names_reserve(kge_names *names, uint32_t n, program_error *error) {
    if (kge_names_grow(names, n, 0, error)) return -1;
    for (uint32_t i = 0; i < n; i++) names->offset[names->n++] = UINT64_MAX;
    return 0;
}

int kge_names_put(kge_names *names, uint32_t id, const char *name, size_t length, program_error *error) {
    if (kge_names_grow(names, 0, length + 1, error)) return -1;
    memcpy(names->text + names->text_used, name, length);
    names->text[names->text_used + length] = 0;
    names->offset[id] = names->text_used;
    names->text_used += length + 1;
    return 0;
}

int kge_names_add(kge_names *names, const char *name, size_t length, program_error *error) {
    if (names->n == UINT32_MAX - 2) return program_fail(error, "more than 2^32 - 3 names; split the graph");
    if (kge_names_reserve(names, 1, error)) return -1;
    return kge_names_put(names, names->n - 1, name, length, error);
}

void kge_names_free(kge_names *names) {
    free(names->text);
    free(names->offset);
    *names = (kge_names){0};
}

static int kge_split_read(kge_split *split, kge_folder *folder, program_error *error) {
    uint64_t room = 0;
    for (int got = 1; got > 0; split->n += got > 0) {
        if (split->n == room) {
            room = room ? room * 2 : 4096;
            kge_triple *more = realloc(split->triples, room * sizeof *more);
            if (!more) return program_fail(error, "out of memory for %" PRIu64 " triples", room);
            split->triples = more;
        }
        got = kge_folder_next(folder, &split->triples[split->n], error);
        if (got < 0) return -1;
    }
    return 0;
}

int kge_graph_read_as(kge_graph *graph, const char *path, const kge_layout *layout, program_error *error) {
    kge_folder folder;
    *graph = (kge_graph){0};
    int status = kge_folder_open_as(&folder, path, layout, error);
    for (int i = 0; i < KGE_SPLITS && !status; i++) {
        status = kge_folder_begin(&folder, (kge_split_kind)i, error);
        if (!status) status = kge_split_read(&graph->split[i], &folder, error);
    }
    graph->entities = folder.entities, graph->relations = folder.relations;
    graph->columns = folder.is.columns, graph->named = folder.is.format == KGE_PLAIN;
    folder.entities = folder.relations = (kge_names){0}; /* the graph's now */
    kge_folder_close(&folder);
    if (status) return -1;
    return graph->split[KGE_TRAIN].n ? 0 : program_fail(error, "%s: no triple to train on", path);
}

int kge_graph_read(kge_graph *graph, const char *path, program_error *error) {
    return kge_graph_read_as(graph, path, &(kge_layout){.named = 0}, error);
}

void kge_graph_free(kge_graph *graph) {
    for (int i = 0; i < KGE_SPLITS; i++) free(graph->split[i].triples);
    kge_names_free(&graph->entities);
    kge_names_free(&graph->relations);
    *graph = (kge_graph){0};
}

static uint32_t kge_names_checksum(uint32_t before, const kge_names *names) {
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = kge_name(names, i);
        before = crc32_of(before, name, strlen(name) + 1);
    }
    return before;
}

uint32_t kge_graph_checksum(const kge_graph *graph) {
    uint32_t sum = kge_names_checksum(kge_names_checksum(0, &graph->entities), &graph->relations);
    for (int i = 0; i < KGE_SPLITS; i++) {
        const kge_split *split = &graph->split[i];
        sum = crc32_of(sum, &split->n, sizeof split->n);
        if (split->n) sum = crc32_of(sum, split->triples, split->n * sizeof *split->triples);
    }
    return sum;
}

/* ---- The index of known triples ----------------------------------------------------------------------- */

static int kge_compare(uint32_t a, uint32_t b) {
    return (a > b) - (a < b);
}

static int kge_compare_by_head(const void *left, const void *right) {
    const kge_triple *a = left, *b = right;
    int order = kge_compare(a->head, b->head);
    if (!order) order = kge_compare(a->relation, b->relation);
    return order ? order : kge_compare(a->tail, b->tail);
}

static int kge_compare_by_tail(const void *left, const void *right) {
    const kge_triple *a = left, *b = right;
    int order = kge_compare(a->tail, b->tail);
    if (!order) order = kge_compare(a->relation, b->relation);
    return order ? order : kge_compare(a->head, b->head);
}

/* Which questions are asked: a bit for the hash of each. One that is not asked may share a bit: then its answers are
 * kept, too, and do no harm. */
typedef struct kge_filter {
    uint64_t *bits, mask;
} kge_filter;

static uint64_t kge_filter_bit(const kge_filter *filter, kge_triple t, kge_side side) {
    return random_at(random_at((uint64_t)side, t.relation), side == KGE_TAILS ? t.head : t.tail) & filter->mask;
}

static int kge_is_asked(const kge_filter *filter, kge_triple t, kge_side side) {
    uint64_t bit = filter->bits ? kge_filter_bit(filter, t, side) : 0;
    return !filter->bits || filter->bits[bit / 64] >> bit % 64 & 1;
}

static int kge_filter_build(kge_filter *filter, const kge_split *asked, program_error *error) {
    uint64_t bits = 64;
    *filter = (kge_filter){0};
    if (!asked) return 0;
    while (bits < 32 * asked->n) bits *= 2;
    *filter = (kge_filter){calloc(bits / 64, 8), bits - 1};
    if (!filter->bits) return program_fail(error, "out of memory for %" PRIu64 " questions", asked->n);
    for (uint64_t i = 0; i < 2 * asked->n; i++) {
        uint64_t bit = kge_filter_bit(filter, asked->triples[i / 2], (kge_side)(i % 2));
        filter->bits[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    return 0;
}

uint64_t kge_triples_sort(kge_triple *triples, uint64_t n, kge_side side) {
    int (*compare)(const void *, const void *) = side == KGE_TAILS ? kge_compare_by_head : kge_compare_by_tail;
    uint64_t distinct = 0;
    qsort(triples, n, sizeof *triples, compare);
    for (uint64_t i = 0; i < n; i++)
        if (!i || compare(&triples[i], &triples[distinct - 1])) triples[distinct++] = triples[i];
    return distinct;
}

/* The triples that answer a question of one side: counted, then written, in order, each once. */
static int kge_index_side(kge_index *index, const kge_graph *graph, const kge_filter *filter, kge_side side,
                          program_error *error) {
    kge_triple *kept = NULL;
    uint64_t n = 0;
    for (int writes = 0; writes < 2; writes++) {
        if (writes && !(kept = malloc((n + 1) * sizeof *kept)))
            return program_fail(error, "out of memory for the index of %" PRIu64 " triples", n);
        n = 0;
        for (int s = 0; s < KGE_SPLITS; s++)
            for (uint64_t i = 0; i < graph->split[s].n; i++) {
                if (!kge_is_asked(filter, graph->split[s].triples[i], side)) continue;
                if (writes) kept[n] = graph->split[s].triples[i];
                n++;
            }
    }
    index->by[side] = kept, index->n[side] = kge_triples_sort(kept, n, side);
    return 0;
}

int kge_index_build(kge_index *index, const kge_graph *graph, const kge_split *asked, program_error *error) {
    kge_filter filter;
    *index = (kge_index){.n = {0}};
    int status = kge_filter_build(&filter, asked, error);
    for (int side = 0; side < 2 && !status; side++)
        status = kge_index_side(index, graph, &filter, (kge_side)side, error);
    free(filter.bits);
    if (status) kge_index_free(index);
    return status;
}

void kge_index_free(kge_index *index) {
    free(index->by[KGE_TAILS]);
    free(index->by[KGE_HEADS]);
    *index = (kge_index){0};
}

uint64_t kge_index_answers(const kge_index *index, kge_side side, uint32_t anchor, uint32_t relation,
                           const kge_triple **answers) {
    const kge_triple *all = index->by[side];
    uint64_t bound[2];
    for (uint64_t which = 0; which < 2; which++) { /* the first triple not below the question; behind it */
        uint64_t low = 0, high = index->n[side];
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            uint32_t end = side == KGE_TAILS ? all[middle].head : all[middle].tail;
            int order = kge_compare(end, anchor);
            if (!order) order = kge_compare(all[middle].relation, relation);
            if (order < (int)which)
                low = middle + 1;
            else
                high = middle;
        }
        bound[which] = low;
    }
    *answers = all + bound[0];
    return bound[1] - bound[0];
}
