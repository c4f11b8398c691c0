/* reference_of.h - the sequential reference of an open instance, with the settings that are in force for each table. */
#ifndef REFERENCE_OF_H
#define REFERENCE_OF_H

#include "../frugal.h"
#include "../src/device.h"
#include "reference.h"

/* Weights are zero and the state has its first values: the caller reads the instance's rows. 0: out of memory. */
static inline int reference_of(reference *ref, const frugal *f) {
    const frugal_store *store = frugal_get_store(f);
    const frugal_desc *desc = frugal_settings(f);
    uint64_t end = 0;
    *ref = (reference){.rows = store->rows,
                       .dim = store->dim,
                       .devices = store->devices,
                       .optimizer = (int)store->kind,
                       .mean = store->reduce == FRUGAL_MEAN,
                       .rows_as = (int)store->rows_as,
                       .nearest = store->rounding == FRUGAL_NEAREST,
                       .seed = desc->seed,
                       .n_ranges = desc->n_tables};
    for (uint32_t t = 0; t < desc->n_tables; t++) {
        const frugal_optimizer *o = desc->tables[t].optimizer; /* defaults resolved: checked in test_settings.c */
        end += desc->tables[t].rows;
        ref->ranges[t] = (reference_range){end,
                                           o->eps,
                                           o->beta1,
                                           o->beta2,
                                           o->weight_decay,
                                           o->lr_scale,
                                           .accumulator = o->initial_accumulator,
                                           .frozen = o->frozen,
                                           .clip_norm = o->clip_norm};
    }
    return reference_open(ref, 0);
}

#endif /* REFERENCE_OF_H */
