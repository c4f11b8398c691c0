/* Ranks the rows of a table by training triples that have them, and lists the first ones for every device. */
#include "examples/kge/secondaries.h"

#include <stdlib.h>

typedef struct kge_ranked {
    uint64_t row, triples;
} kge_ranked;

static int kge_compare_ranked(const void *a, const void *b) {
    const kge_ranked *left = a, *right = b;
    if (left->triples != right->triples) return left->triples < right->triples ? 1 : -1;
    return left->row < right->row ? -1 : left->row > right->row;
}

static void kge_rank_rows(const kge_graph *graph, uint32_t table, uint64_t rows, kge_ranked *ranked) {
    const kge_split *train = &graph->split[KGE_TRAIN];
    for (uint64_t row = 0; row < rows; row++) ranked[row].row = row;
    for (uint64_t i = 0; i < train->n; i++) {
        const kge_triple *t = &train->triples[i];
        if (table == 0)
            ranked[t->head].triples++, ranked[t->tail].triples++;
        else
            for (uint64_t row = t->relation; row < rows; row += graph->relations.n) ranked[row].triples++;
    }
    qsort(ranked, rows, sizeof *ranked, kge_compare_ranked);
}

int kge_list_secondaries(frugal *f, const kge_graph *graph, const uint64_t table_rows[2], double percent,
                         uint32_t bound, program_error *error) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t table = 0; table < 2 && percent > 0; table++) {
        uint64_t rows = table_rows[table], n = (uint64_t)(percent / 100 * (double)rows);
        kge_ranked *ranked = calloc(rows, sizeof *ranked);
        uint64_t *keys = calloc(n + 1, sizeof *keys);
        if (ranked && keys) kge_rank_rows(graph, table, rows, ranked);
        for (uint64_t i = 0; ranked && keys && i < n; i++) keys[i] = ranked[i].row;
        frugal_keys listed = {.table = table, .keys = keys, .n = (uint32_t)n};
        for (uint32_t d = 0; ranked && keys && !status && d < frugal_settings(f)->devices; d++)
            status = frugal_secondaries(f, d, &listed, bound);
        int missing = !ranked || !keys;
        free(ranked), free(keys);
        if (missing) return program_fail(error, "out of memory for a ranking of %llu rows", (unsigned long long)rows);
        if (status) return program_fail(error, "cannot list stale copies: %s", frugal_message());
    }
    return 0;
}
