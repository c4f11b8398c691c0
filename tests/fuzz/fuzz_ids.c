/* fuzz_ids.c - an id map: the input is entity2id.txt, or relation2id.txt where its first byte is '@' (and dropped).
 * kge_graph_read refuses it where a plain second reading would, and what it accepts comes back from kge_save_names,
 * with the inverse relations' names, too. */
#include "graph_saved.h"

static text files[GRAPH_FILES];

static void give(const char *name, const char *bytes, size_t n) {
    for (int i = 0; i < GRAPH_FILES; i++)
        if (!strcmp(graph_files[i], name)) files[i] = (text){bytes, n};
    fuzz_write(name, bytes, n);
}

const unsigned fuzz_inputs = 3000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char one[] = "1\nthe only one\t0\n", triple[] = "1\n0 0 0\n";
    const char *folder = fuzz_folder();
    int relations = size > 0 && data[0] == '@';
    kge_graph graph;
    reading r;
    memset(files, 0, sizeof files);
    give(relations ? "relation2id.txt" : "entity2id.txt", (const char *)data + relations, size - (size_t)relations);
    give(relations ? "entity2id.txt" : "relation2id.txt", one, strlen(one));
    give("train2id.txt", triple, strlen(triple));
    if (!graph_agree(folder, files, &graph, &r)) return 0;
    saved_round_trip(&graph, 0);
    saved_round_trip(&graph, 1);
    kge_graph_free(&graph);
    graph_free(&r);
    return 0;
}
