/* Sets of candidates. */
#include "trainers/kge/candidates.h"
#include "frugal_place.h"

#include <stdlib.h>
#include <string.h>

/* ---- A reader of memory -------------------------------------------------------------------------------- */

static int kge_memory_read(void *of, uint32_t table, const uint32_t *ids, uint32_t n, float *rows,
                           program_error *error) {
    const kge_memory *memory = of;
    size_t dim = memory->dim;
    (void)error;
    for (uint32_t i = 0; i < n; i++) memcpy(rows + i * dim, memory->table[table] + ids[i] * dim, dim * sizeof *rows);
    return 0;
}

kge_reader kge_memory_reader(kge_memory *memory) {
    return (kge_reader){kge_memory_read, memory};
}

/* ---- Sets ---------------------------------------------------------------------------------------------- */

/* Floats of a set: 128 MiB, if all entities fit; 16 MiB, if they do not. */
#define KGE_ONE_SET   (UINT64_C(1) << 25)
#define KGE_MANY_SETS (UINT64_C(1) << 22)
enum { KGE_WIDEST = 1 << 16 };

uint32_t kge_candidates_width(uint32_t entities, uint32_t dim) {
    if (entities <= KGE_WIDEST && (uint64_t)entities * dim <= KGE_ONE_SET) return entities;
    uint64_t width = KGE_MANY_SETS / dim / KGE_CANDIDATES_STEP * KGE_CANDIDATES_STEP;
    if (width < KGE_CANDIDATES_STEP) width = KGE_CANDIDATES_STEP;
    return width > KGE_WIDEST ? KGE_WIDEST : (uint32_t)width;
}

int kge_candidates_open(kge_candidates *c, const kge_model *model, const kge_reader *reader, uint32_t width,
                        program_error *error) {
    *c = (kge_candidates){.model = model, .reader = reader, .width = width};
    c->ids = malloc(((size_t)width + 1) * sizeof *c->ids);
    c->rows = calloc((size_t)width * model->dim + 1, sizeof *c->rows);
    c->norms = calloc((size_t)width + 1, sizeof *c->norms);
    if (c->ids && c->rows && c->norms) return 0;
    return program_fail(error, "out of memory for the rows of %u candidates", width);
}

void kge_candidates_close(kge_candidates *c) {
    free(c->ids);
    free(c->rows);
    free(c->norms);
    *c = (kge_candidates){.n = 0};
}

static int kge_candidates_read(kge_candidates *c, uint32_t n, program_error *error) {
    size_t dim = c->model->dim;
    if (c->n > n) memset(c->rows + n * dim, 0, (c->n - n) * dim * sizeof *c->rows);
    c->n = n;
    if (c->reader->read(c->reader->of, 0, c->ids, n, c->rows, error)) return -1;
    kge_norms(c->model, n, c->rows, c->norms);
    return 0;
}

int kge_candidates_span(kge_candidates *c, uint32_t first, uint32_t n, program_error *error) {
    for (uint32_t i = 0; i < n; i++) c->ids[i] = first + i;
    return kge_candidates_read(c, n, error);
}

static int kge_candidates_compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int kge_candidates_draw(kge_candidates *c, uint32_t n, uint32_t entities, uint64_t key, program_error *error) {
    for (uint32_t i = 0; i < n; i++) c->ids[i] = (uint32_t)frugal_place_permute(key, entities, i);
    qsort(c->ids, n, sizeof *c->ids, kge_candidates_compare);
    return kge_candidates_read(c, n, error);
}

uint32_t kge_candidates_from(const kge_candidates *c, uint32_t id) {
    uint32_t low = 0, high = c->n;
    if (c->n && c->ids[c->n - 1] - c->ids[0] == c->n - 1) /* a span */
        return id <= c->ids[0] ? 0 : id - c->ids[0] < c->n ? id - c->ids[0] : c->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
