/* graph_saved.h - id maps as kge_save_names writes them: kge_graph_read reads back what was saved, name by name. */
#ifndef FUZZ_GRAPH_SAVED_H
#define FUZZ_GRAPH_SAVED_H

#include "trainers/kge/save.h"
#include "trainers/common/save.h"
#include "graph.h"

static void saved_write_triples(const char *file, const kge_split *split) {
    FILE *stream = fopen(fuzz_path(file), "w");
    fprintf(stream, "%" PRIu64 "\n", split->n);
    for (uint64_t i = 0; i < split->n; i++)
        fprintf(stream, "%" PRIu32 " %" PRIu32 " %" PRIu32 "\n", split->triples[i].head, split->triples[i].tail,
                split->triples[i].relation);
    fclose(stream);
}

/* With `twice`, every relation is there again, numbered on, under a name that no other has: reading checks that. */
static void saved_check_inverses(const kge_graph *graph, const kge_graph *again) {
    static const char suffix[] = " (inverse)";
    uint32_t n = graph->relations.n;
    assert_true(again->relations.n == 2 * n);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = kge_name(&graph->relations, i), *inverse = kge_name(&again->relations, n + i);
        size_t length = strlen(name);
        assert_true(!strcmp(name, kge_name(&again->relations, i)));
        assert_true(!strncmp(name, inverse, length) && inverse[length]);
        for (inverse += length; *inverse; inverse += strlen(suffix))
            assert_true(!strncmp(inverse, suffix, strlen(suffix)));
    }
}

static void saved_round_trip(const kge_graph *graph, int twice) {
    static const char *const maps[] = {"entity2id.txt", "relation2id.txt"};
    program_error error;
    kge_graph again;
    const char *folder = fuzz_folder();
    saved_write_triples("train2id.txt", &graph->split[KGE_TRAIN]);
    saved_write_triples("valid2id.txt", &graph->split[KGE_VALID]);
    saved_write_triples("test2id.txt", &graph->split[KGE_TEST]);
    save_set *set;
    if (save_begin(&set, folder, "fuzz_ids", maps, 2, &error) ||
        kge_save_names(set, maps[0], &graph->entities, 0, &error) ||
        kge_save_names(set, maps[1], &graph->relations, twice, &error) ||
        save_finish(set, &(save_origin){"none", 0}, 0, &error))
        fail_msg("not saved: %s", error.text);
    save_end(set);
    assert_int_equal(6, fuzz_count_files());
    if (kge_graph_read(&again, folder, &error)) fail_msg("saved, but cannot be read: %s", error.text);
    assert_true(again.entities.n == graph->entities.n);
    for (uint32_t i = 0; i < graph->entities.n; i++)
        assert_true(!strcmp(kge_name(&graph->entities, i), kge_name(&again.entities, i)));
    for (uint32_t i = 0; i < graph->relations.n && !twice; i++)
        assert_true(!strcmp(kge_name(&graph->relations, i), kge_name(&again.relations, i)));
    if (twice) saved_check_inverses(graph, &again);
    for (int i = 0; i < KGE_SPLITS; i++) {
        uint64_t n = graph->split[i].n;
        assert_true(again.split[i].n == n);
        if (n) assert_true(!memcmp(again.split[i].triples, graph->split[i].triples, n * sizeof(kge_triple)));
    }
    kge_graph_free(&again);
}

#endif /* FUZZ_GRAPH_SAVED_H */
