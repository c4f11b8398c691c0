/* Passes over the training triples of a folder. */
#include "trainers/kge/source.h"

#include <stdlib.h>

/* Names of plain folders are numbered as they are met, so all splits are read, in the order of kge_graph_read. */
static int kge_source_count(kge_source *source, program_error *error) {
    kge_triple triple;
    for (int split = 0; split < KGE_SPLITS; split++) {
        int got = kge_folder_begin(&source->folder, (kge_split_kind)split, error) ? -1 : 1;
        while (got > 0 && (got = kge_folder_next(&source->folder, &triple, error)) > 0) source->triples[split]++;
        if (got < 0) return -1;
    }
    source->rows = (uint64_t)source->folder.entities.n + source->folder.relations.n;
    return source->triples[KGE_TRAIN] ? 0 : program_fail(error, "%s: no triple to train on", source->folder.path);
}

int kge_source_open(kge_source *source, const char *path, program_error *error) {
    *source = (kge_source){0};
    int status = kge_folder_open(&source->folder, path, error);
    if (!status) status = kge_source_count(source, error);
    if (!status && !(source->keys = malloc(3 * PARTITION_BLOCK * sizeof *source->keys)))
        status = program_fail(error, "out of memory for a block of triples");
    if (status) kge_source_close(source);
    return status;
}

void kge_source_close(kge_source *source) {
    kge_folder_close(&source->folder);
    free(source->keys);
    *source = (kge_source){0};
}

static int kge_source_rewind(void *of, program_error *error) {
    return kge_folder_begin(&((kge_source *)of)->folder, KGE_TRAIN, error);
}

static int kge_source_read(void *of, frugal_place_samples *block, program_error *error) {
    kge_source *source = of;
    kge_triple triple;
    uint64_t n = 0;
    for (int got = 1; n < PARTITION_BLOCK && got > 0; n += got > 0) {
        got = kge_folder_next(&source->folder, &triple, error);
        if (got < 0) return -1;
        if (got) kge_source_keys(&triple, source->folder.entities.n, source->keys + 3 * n);
    }
    if ((uint64_t)source->folder.entities.n + source->folder.relations.n != source->rows)
        return program_fail(error, "%s has names now that were not there when it was first read; leave it as it is",
                            source->folder.path);
    *block = (frugal_place_samples){.keys = source->keys, .n = n, .width = 3};
    return 0;
}

partition_source kge_source_of(kge_source *source) {
    return (partition_source){source, kge_source_rewind, kge_source_read};
}
