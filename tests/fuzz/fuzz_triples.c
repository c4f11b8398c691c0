/* fuzz_triples.c - a folder with a knowledge graph: kge_graph_read refuses it, naming file and line, where a plain
 * second reading would, and else holds what that reading says. Then the index of known triples is compared with a
 * look at every triple, and what was read is saved and read again.
 *
 * The input is text: a line "@entity2id.txt" (or another of the names) begins that file. */
#include "graph_saved.h"

static const char *begins_file(const uint8_t *line, size_t n) {
    for (int i = 0; i < GRAPH_FILES; i++)
        if (n == strlen(graph_files[i]) + 1 && line[0] == '@' && !memcmp(line + 1, graph_files[i], n - 1))
            return graph_files[i];
    return NULL;
}

/* Cuts the input into files; the last of a name counts. What stands before the first name is dropped. */
static void cut(const uint8_t *data, size_t size, text files[GRAPH_FILES]) {
    text *file = NULL;
    for (size_t at = 0; at < size;) {
        size_t n = 0;
        while (at + n < size && data[at + n] != '\n') n++;
        const char *name = begins_file(data + at, n);
        size_t whole = n + (at + n < size);
        for (int i = 0; name && i < GRAPH_FILES; i++)
            if (graph_files[i] == name) file = &files[i];
        if (name)
            *file = (text){(const char *)data + at + whole, 0};
        else if (file)
            file->n += whole;
        at += whole;
    }
}

static void check_answers(const kge_graph *graph, const kge_index *index, kge_side side, const kge_triple *asked) {
    uint32_t anchor = side == KGE_TAILS ? asked->head : asked->tail, relation = asked->relation;
    const kge_triple *answers = NULL;
    uint64_t n = kge_index_answers(index, side, anchor, relation, &answers);
    for (uint64_t i = 0; i < n; i++) { /* the question's own, each once, rising */
        uint32_t answer = side == KGE_TAILS ? answers[i].tail : answers[i].head;
        assert_true((side == KGE_TAILS ? answers[i].head : answers[i].tail) == anchor);
        assert_true(answers[i].relation == relation);
        if (i > 0) assert_true((side == KGE_TAILS ? answers[i - 1].tail : answers[i - 1].head) < answer);
    }
    for (int s = 0; s < KGE_SPLITS; s++)
        for (uint64_t i = 0; i < graph->split[s].n; i++) {
            const kge_triple *t = &graph->split[s].triples[i];
            if ((side == KGE_TAILS ? t->head : t->tail) != anchor || t->relation != relation) continue;
            uint64_t found = 0;
            while (found < n && memcmp(t, &answers[found], sizeof *t)) found++;
            assert_true(found < n);
        }
}

static void check_index(const kge_graph *graph) {
    program_error error;
    kge_index index;
    if (kge_index_build(&index, graph, NULL, &error)) fail_msg("no index: %s", error.text);
    for (int s = 0; s < KGE_SPLITS; s++)
        for (uint64_t i = 0; i < graph->split[s].n && i < 16; i++) {
            check_answers(graph, &index, KGE_TAILS, &graph->split[s].triples[i]);
            check_answers(graph, &index, KGE_HEADS, &graph->split[s].triples[i]);
        }
    kge_triple nowhere = {graph->entities.n, graph->relations.n, graph->entities.n};
    check_answers(graph, &index, KGE_TAILS, &nowhere);
    kge_index_free(&index);
}

const unsigned fuzz_inputs = 3000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    text files[GRAPH_FILES] = {{0}};
    kge_graph graph;
    reading r;
    const char *folder = fuzz_folder();
    cut(data, size, files);
    for (int i = 0; i < GRAPH_FILES; i++)
        if (files[i].bytes) fuzz_write(graph_files[i], files[i].bytes, files[i].n);
    if (!graph_agree(folder, files, &graph, &r)) return 0;
    check_index(&graph);
    saved_round_trip(&graph, 0);
    kge_graph_free(&graph);
    graph_free(&r);
    return 0;
}
