/* Triples, a block at a time, as keys of rows. */
#include "trainers/kge/place.h"
#include "trainers/common/ranks.h"
#include "trainers/kge/source.h"

#include <stdlib.h>

/* As kge/source.h has them, which reads a folder, so that build/place finds the same parts. */
enum { KGE_WIDTH = 3 };

typedef struct kge_places {
    const kge_graph *graph;
    uint64_t at;    /* the next triple */
    uint64_t *keys; /* [PARTITION_BLOCK][KGE_WIDTH] */
} kge_places;

static int kge_rewind_places(void *of, program_error *error) {
    (void)error;
    ((kge_places *)of)->at = 0;
    return 0;
}

static int kge_read_places(void *of, frugal_place_samples *block, program_error *error) {
    kge_places *places = of;
    const kge_split *train = &places->graph->split[KGE_TRAIN];
    uint64_t n = train->n - places->at;
    (void)error;
    if (n > PARTITION_BLOCK) n = PARTITION_BLOCK;
    for (uint64_t i = 0; i < n; i++) {
        const kge_triple *triple = &train->triples[places->at + i];
        kge_source_keys(triple, places->graph->entities.n, places->keys + i * KGE_WIDTH);
    }
    places->at += n;
    *block = (frugal_place_samples){.keys = places->keys, .n = n, .width = KGE_WIDTH};
    return 0;
}

int kge_place(const kge_placed *placed, const kge_settings *settings, const kge_graph *graph, uint32_t threads,
              program_error *error) {
    kge_places places = {.graph = graph};
    partition_source source = {.of = &places, .rewind = kge_rewind_places, .read = kge_read_places};
    placing_desc desc = {.settings = &settings->common,
                         .threads = threads,
                         .machines = ranks_all(),
                         .rows = (uint64_t)graph->entities.n + graph->relations.n,
                         .twins_from = graph->entities.n,
                         .twins = settings->model.reciprocal ? graph->relations.n : 0};
    secondaries_desc listed = {.settings = &settings->common,
                               .placing = placed->placing,
                               .rows = desc.rows,
                               .twins_from = desc.twins_from,
                               .twins = desc.twins};
    places.keys = malloc((size_t)PARTITION_BLOCK * KGE_WIDTH * sizeof *places.keys);
    if (!places.keys) return program_fail(error, "out of memory for a block of triples");
    int status = placing_make(placed->placing, &desc, &source, error);
    if (!status) status = secondaries_choose(placed->secondaries, &listed, &source, error);
    free(places.keys);
    return status;
}
