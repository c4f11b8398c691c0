/* One pass after the other. */
#include "trainers/dlrm/pass.h"
#include "trainers/clicks/shuffle.h"
#include "trainers/dlrm/deal.h"

#include <stdlib.h>
#include <string.h>

struct dlrm_passes {
    dlrm_passes_desc desc;
    dlrm_position at;
    clicks_shuffle *shuffle;
    dlrm_dealer *dealer; /* NULL: samples have no parts */
    uint8_t *parts;      /* the dealer's, in the order of the pass */
};

static int dlrm_passes_open_dealer(dlrm_passes *passes, program_error *error) {
    const dlrm_passes_desc *desc = &passes->desc;
    if (!desc->parts) return 0;
    if (!(passes->parts = malloc(desc->samples + 1))) return program_fail(error, "out of memory");
    memcpy(passes->parts, desc->parts, desc->samples);
    dlrm_deal_desc deal = {.log = desc->source->log,
                           .parts = passes->parts,
                           .samples = desc->samples,
                           .devices = desc->devices,
                           .batch = desc->batch};
    return dlrm_dealer_open(&passes->dealer, &deal, error);
}

int dlrm_passes_open(dlrm_passes **out, const dlrm_passes_desc *desc, program_error *error) {
    const dlrm_source *source = desc->source;
    *out = NULL;
    dlrm_passes *passes = calloc(1, sizeof *passes);
    if (!passes) return program_fail(error, "out of memory");
    passes->desc = *desc;
    clicks_shuffle_desc shuffle = {.log = source->log,
                                   .path = source->path,
                                   .first = source->first,
                                   .end = source->end,
                                   .block = desc->shuffle,
                                   .seed = desc->seed};
    int status = clicks_shuffle_open(&passes->shuffle, &shuffle, error);
    if (!status) status = dlrm_passes_open_dealer(passes, error);
    if (status)
        dlrm_passes_close(passes);
    else
        *out = passes;
    return status;
}

void dlrm_passes_close(dlrm_passes *passes) {
    if (!passes) return;
    clicks_shuffle_close(passes->shuffle);
    dlrm_dealer_close(passes->dealer);
    free(passes->parts);
    free(passes);
}

/* Pass `at.epoch`, behind its first `at.pass` samples. The dealer sees the samples as they are shuffled. */
static int dlrm_passes_begin(dlrm_passes *passes, program_error *error) {
    uint64_t behind = passes->at.pass, pass = passes->at.epoch;
    passes->at.in_pass = 1;
    if (passes->dealer) {
        clicks_shuffle_bytes(passes->shuffle, pass, passes->desc.samples, passes->desc.parts, passes->parts);
        if (dlrm_dealer_go_on(passes->dealer, behind, error)) return -1;
        behind = dlrm_dealer_from(passes->dealer);
    }
    return clicks_shuffle_begin(passes->shuffle, pass, behind, error);
}

int dlrm_passes_go_on(dlrm_passes *passes, const dlrm_position *position, program_error *error) {
    passes->at = *position;
    return position->in_pass ? dlrm_passes_begin(passes, error) : 0;
}

dlrm_position dlrm_passes_position(const dlrm_passes *passes) {
    return passes->at;
}

void dlrm_passes_end(dlrm_passes *passes) {
    const dlrm_source *source = passes->desc.source;
    if (!clicks_shuffle_reads(passes->shuffle)) return;
    const clicks_malformed *malformed = clicks_shuffle_malformed(passes->shuffle);
    if (malformed->lines && passes->at.epoch == 1 && source->malformed) source->malformed(source->user, malformed);
    clicks_shuffle_end(passes->shuffle);
}

/* All samples of a pass are read: are they as many as were counted, or as in the previous pass? */
static int dlrm_passes_check(dlrm_passes *passes, program_error *error) {
    const dlrm_source *source = passes->desc.source;
    dlrm_position *at = &passes->at;
    uint64_t before = source->end != UINT64_MAX ? source->end - source->first : at->samples_a_pass;
    if (source->end == UINT64_MAX && at->epoch == 1) before = at->pass;
    if (at->pass != before)
        return program_fail(error,
                            "%.200s has %llu samples in pass %llu, and had %llu before; "
                            "give a file that does not change",
                            source->name   ? source->name
                            : source->path ? source->path
                                           : "the log",
                            (unsigned long long)at->pass, (unsigned long long)at->epoch, (unsigned long long)before);
    *at = (dlrm_position){.epoch = at->epoch, .samples_a_pass = before};
    return 0;
}

/* The next samples of this pass; n = 0: it is over. */
static int dlrm_passes_step(dlrm_passes *passes, clicks_batch *batch, uint32_t *first, program_error *error) {
    uint32_t devices = passes->desc.devices;
    if (passes->dealer) return dlrm_dealer_read(passes->dealer, passes->shuffle, batch, first, error);
    if (clicks_shuffle_read(passes->shuffle, batch->room, batch, error)) return -1;
    for (uint32_t d = 0; d <= devices; d++) first[d] = (uint32_t)((uint64_t)batch->n * d / devices);
    return 0;
}

int dlrm_passes_read(dlrm_passes *passes, clicks_batch *batch, uint32_t *first, program_error *error) {
    memset(first, 0, (passes->desc.devices + 1) * sizeof *first);
    for (batch->n = 0;;) {
        int begins = !clicks_shuffle_reads(passes->shuffle);
        if (begins && passes->at.epoch == passes->desc.epochs) return 0;
        passes->at.epoch += (uint64_t)begins;
        if (begins && dlrm_passes_begin(passes, error)) return -1;
        if (dlrm_passes_step(passes, batch, first, error)) return -1;
        passes->at.pass += batch->n;
        if (batch->n > 0) return 0;
        if (dlrm_passes_check(passes, error)) return -1;
        dlrm_passes_end(passes);
        if (begins) return 0;
    }
}
