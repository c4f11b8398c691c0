/* reference_stale.h - the judge of secondaries: beside the sequential reference, what each device reads.
 *
 * Shares no code with the library. It counts, for each copy, the contributions of other devices that the copy lacks;
 * the library keeps clocks instead. The copies of a device are a reference of their own, which takes the device's
 * gradients and no others. */
#ifndef REFERENCE_STALE_H
#define REFERENCE_STALE_H

#include "reference.h"

enum { REFERENCE_STALE_DEVICES = 8 };

typedef struct reference_stale_row { /* of one device */
    int listed, fetched;
    uint32_t bound; /* UINT32_MAX: none */
    uint64_t lacks; /* contributions of other devices since it was fetched */
} reference_stale_row;

typedef struct reference_stale {
    reference *host;
    reference copies[REFERENCE_STALE_DEVICES];          /* rows that are not listed mean nothing */
    reference_stale_row *rows[REFERENCE_STALE_DEVICES]; /* rows[device][row] */
    unsigned char *touched;                             /* [rows]: a bit for each device, in one step */
    uint64_t *contributions;                            /* [rows]: in earlier steps; of listed rows or not */
    uint64_t stale_reads;                               /* unique rows read from a copy that lacked some */
} reference_stale;

/* Nothing is listed. `host` stays where it is. 0: no memory. */
static inline int reference_stale_open(reference_stale *s, reference *host) {
    memset(s, 0, sizeof *s);
    s->host = host;
    s->touched = calloc(host->rows, 1);
    s->contributions = calloc(host->rows, sizeof(uint64_t));
    int good = s->touched && s->contributions;
    for (uint32_t d = 0; d < host->devices && good; d++) {
        reference *c = &s->copies[d];
        *c = (reference){.rows = host->rows,
                         .dim = host->dim,
                         .devices = host->devices,
                         .optimizer = host->optimizer,
                         .mean = host->mean,
                         .rows_as = host->rows_as,
                         .nearest = host->nearest,
                         .seed = host->seed,
                         .n_ranges = host->n_ranges};
        memcpy(c->ranges, host->ranges, sizeof c->ranges);
        s->rows[d] = calloc(host->rows, sizeof **s->rows);
        good = s->rows[d] && reference_open(c, 0);
    }
    return good;
}

static inline void reference_stale_close(reference_stale *s) {
    for (uint32_t d = 0; s->host && d < s->host->devices; d++) reference_close(&s->copies[d]), free(s->rows[d]);
    free(s->touched), free(s->contributions);
    memset(s, 0, sizeof *s);
}

static inline void reference_stale_drop_all(reference_stale *s) {
    for (uint32_t d = 0; d < s->host->devices; d++)
        for (uint64_t row = 0; row < s->host->rows; row++) s->rows[d][row].fetched = 0;
}

/* The row is listed for the device from now on, or is not. */
static inline void reference_stale_list(reference_stale *s, uint32_t d, uint64_t row, int listed, uint32_t bound) {
    s->rows[d][row] = (reference_stale_row){.listed = listed, .bound = bound};
}

/* What the device reads at the step to come. Called once for each of its rows, before reference_stale_step. */
static inline const float *reference_stale_read(reference_stale *s, uint32_t d, uint64_t row) {
    reference_stale_row *r = &s->rows[d][row];
    reference *c = &s->copies[d];
    if (!r->listed) return s->host->weights + row * s->host->dim;
    int may = r->fetched && (r->bound == UINT32_MAX || r->lacks <= r->bound);
    s->stale_reads += (uint64_t)(may && r->lacks > 0);
    if (!may) {
        memcpy(c->weights + row * c->dim, s->host->weights + row * c->dim, 4 * (size_t)c->dim);
        memcpy(c->state + row * c->state_floats, s->host->state + row * c->state_floats, 4 * (size_t)c->state_floats);
        r->fetched = 1, r->lacks = 0;
    }
    return c->weights + row * c->dim;
}

/* The training step, on the copies and on the host's rows. contributes[devices]: the batch is not read-only. */
static inline void reference_stale_step(reference_stale *s, uint64_t step, float lr, const reference_batch *batches,
                                        const int *contributes) {
    uint32_t devices = s->host->devices;
    for (uint32_t d = 0; d < devices; d++) {
        reference_batch own[REFERENCE_STALE_DEVICES];
        for (uint32_t e = 0; e < devices; e++) own[e] = (reference_batch){0};
        own[d] = batches[d];
        s->copies[d].scale = s->host->scale;
        reference_step(&s->copies[d], step, lr, own);
        for (uint32_t i = 0; contributes[d] && i < batches[d].n; i++)
            s->touched[batches[d].rows[i]] |= (unsigned char)(1u << d);
    }
    reference_step(s->host, step, lr, batches);
    for (uint32_t d = 0; d < devices; d++)
        for (uint32_t i = 0; i < batches[d].n; i++) {
            uint32_t row = batches[d].rows[i];
            for (uint32_t e = 0; e < devices; e++) {
                if (!(s->touched[row] >> e & 1)) continue;
                s->contributions[row]++;
                for (uint32_t copy = 0; copy < devices; copy++) s->rows[copy][row].lacks += copy != e;
            }
            s->touched[row] = 0;
        }
}

#endif /* REFERENCE_STALE_H */
