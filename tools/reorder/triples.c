/* Folders of triples: ids of entities and of relations in order of frequency, as OpenKE's files. */
#include "tools/reorder/reorder.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const reorder_splits[KGE_SPLITS] = {"train2id.txt", "valid2id.txt", "test2id.txt"};

void reorder_triples_names(reorder_work *work) {
    static const char *const names[] = {"entity2id.txt", "relation2id.txt", "entity_map.npy", "relation_map.npy"};
    work->n_names = 0;
    for (int i = 0; i < 4; i++) work->names[work->n_names++] = names[i];
    for (int i = 0; i < KGE_SPLITS; i++)
        if (work->data.kge.triples[i]) work->names[work->n_names++] = reorder_splits[i];
}

/* Touches by the training triples alone, because the others are not trained on. */
static int reorder_count_triples(reorder_work *work, uint32_t *entities, uint32_t *relations, program_error *error) {
    kge_folder *folder = &work->data.kge.folder;
    uint64_t n = 0;
    kge_triple triple;
    int got = kge_folder_begin(folder, KGE_TRAIN, error) ? -1 : 1;
    while (got > 0 && (got = kge_folder_next(folder, &triple, error)) > 0) {
        reorder_count(&entities[triple.head]);
        reorder_count(&entities[triple.tail]);
        reorder_count(&relations[triple.relation]);
        if (++n % PARTITION_BLOCK == 0 && reorder_go_on(work, "counted", n, error)) return -1;
    }
    return got;
}

static int reorder_write_split(reorder_work *work, kge_split_kind split, const reorder_order order[2],
                               program_error *error) {
    kge_folder *folder = &work->data.kge.folder;
    uint64_t n = 0;
    kge_triple triple;
    FILE *file = save_open(work->set, reorder_splits[split], error);
    if (!file) return -1;
    int got = kge_folder_begin(folder, split, error) ? -1 : 1;
    fprintf(file, "%" PRIu64 "\n", work->data.kge.triples[split]);
    while (got > 0 && (got = kge_folder_next(folder, &triple, error)) > 0) {
        fprintf(file, "%" PRIu32 " %" PRIu32 " %" PRIu32 "\n", order[0].new_row[triple.head],
                order[0].new_row[triple.tail], order[1].new_row[triple.relation]);
        if (++n % PARTITION_BLOCK == 0 && reorder_go_on(work, "written", n, error)) return -1;
    }
    if (got < 0) return -1;
    if (n != work->data.kge.triples[split])
        return program_fail(error, "%.200s/%s had %" PRIu64 " triples, and now has %" PRIu64 "; leave it as it is",
                            folder->path, folder->file, work->data.kge.triples[split], n);
    return save_close(work->set, reorder_splits[split], error);
}

static int reorder_write_names(reorder_work *work, const char *name, const kge_names *names, const reorder_order *order,
                               program_error *error) {
    FILE *file = save_open(work->set, name, error);
    if (!file) return -1;
    fprintf(file, "%" PRIu32 "\n", order->n);
    for (uint32_t i = 0; i < order->n; i++) fprintf(file, "%s\t%" PRIu32 "\n", kge_name(names, order->old_row[i]), i);
    return save_close(work->set, name, error);
}

int reorder_triples(reorder_work *work, program_error *error) {
    const kge_folder *folder = &work->data.kge.folder;
    uint32_t entities = folder->entities.n, relations = folder->relations.n;
    uint32_t *counts = calloc((size_t)entities + relations + 1, sizeof *counts);
    reorder_order order[2] = {0};
    int status = counts ? 0 : program_fail(error, "out of memory for counts of %" PRIu32 " entities", entities);
    if (!status) status = reorder_count_triples(work, counts, counts + entities, error);
    if (!status) status = reorder_order_make(&order[0], counts, entities, error);
    if (!status) status = reorder_order_make(&order[1], counts + entities, relations, error);
    free(counts);
    if (!status) status = reorder_write_names(work, work->names[0], &folder->entities, &order[0], error);
    if (!status) status = reorder_write_names(work, work->names[1], &folder->relations, &order[1], error);
    if (!status) status = reorder_write_map(work, work->names[2], order[0].old_row, entities, error);
    if (!status) status = reorder_write_map(work, work->names[3], order[1].old_row, relations, error);
    for (int i = 0; i < KGE_SPLITS && !status; i++)
        if (work->data.kge.triples[i]) status = reorder_write_split(work, (kge_split_kind)i, order, error);
    reorder_order_free(&order[0]);
    reorder_order_free(&order[1]);
    return status;
}
