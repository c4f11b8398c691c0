/* The window is a ring: sample s of the log is at s mod its length. */
#include "trainers/dlrm/deal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct dlrm_dealer {
    dlrm_deal_desc desc;
    uint64_t *next;      /* [devices]: the first sample of its part that is not taken; `samples`: all are */
    uint64_t *taken;     /* [devices * batch]: the samples of a step, device after device */
    clicks_batch window; /* room: its length */
    uint64_t read;       /* samples up to here were read into the window */
};

int dlrm_dealer_open(dlrm_dealer **out, const dlrm_deal_desc *desc, program_error *error) {
    uint64_t step = (uint64_t)desc->devices * desc->batch, window = DLRM_WINDOW * step;
    *out = NULL;
    if (window > desc->samples) window = desc->samples;
    if (window > UINT32_MAX)
        return program_fail(error,
                            "%" PRIu64 " samples a step make a window of %" PRIu64
                            "; the limit is 2^32 - 1; use a smaller --batch",
                            step, window);
    dlrm_dealer *dealer = calloc(1, sizeof *dealer);
    if (!dealer) return program_fail(error, "out of memory");
    dealer->desc = *desc;
    dealer->next = malloc(desc->devices * sizeof *dealer->next);
    dealer->taken = malloc(step * sizeof *dealer->taken);
    int status = dealer->next && dealer->taken ? clicks_batch_open(&dealer->window, desc->log, (uint32_t)window, error)
                                               : program_fail(error, "out of memory");
    if (status)
        dlrm_dealer_close(dealer);
    else {
        dlrm_dealer_begin(dealer);
        *out = dealer;
    }
    return status;
}

void dlrm_dealer_close(dlrm_dealer *dealer) {
    if (!dealer) return;
    clicks_batch_close(&dealer->window);
    free(dealer->next);
    free(dealer->taken);
    free(dealer);
}

/* ---- Who takes what ------------------------------------------------------------------------------------ */

/* The first sample of the device's part from `from` on, or the end. */
static uint64_t dlrm_find(const dlrm_dealer *dealer, uint32_t device, uint64_t from) {
    const uint8_t *parts = dealer->desc.parts, *found;
    if (from >= dealer->desc.samples) return dealer->desc.samples;
    found = memchr(parts + from, (int)device, dealer->desc.samples - from);
    return found ? (uint64_t)(found - parts) : dealer->desc.samples;
}

void dlrm_dealer_begin(dlrm_dealer *dealer) {
    for (uint32_t d = 0; d < dealer->desc.devices; d++) dealer->next[d] = dlrm_find(dealer, d, 0);
    dealer->read = 0;
}

uint64_t dlrm_dealer_from(const dlrm_dealer *dealer) {
    uint64_t from = dealer->desc.samples;
    for (uint32_t d = 0; d < dealer->desc.devices; d++)
        if (dealer->next[d] < from) from = dealer->next[d];
    return from;
}

/* The next step: returns the number of its samples, which are taken[0] to taken[n - 1]; first[devices + 1] as above. */
static uint32_t dlrm_take(dlrm_dealer *dealer, uint32_t *first) {
    const dlrm_deal_desc *desc = &dealer->desc;
    uint64_t from = dlrm_dealer_from(dealer), left = desc->samples - from;
    uint64_t end = from + (left < dealer->window.room ? left : dealer->window.room);
    uint32_t n = 0;
    for (uint32_t d = 0; d < desc->devices; d++) {
        uint64_t at = dealer->next[d];
        first[d] = n;
        for (; at < end && n - first[d] < desc->batch; at = dlrm_find(dealer, d, at + 1)) dealer->taken[n++] = at;
        dealer->next[d] = at;
    }
    return first[desc->devices] = n;
}

int dlrm_dealer_go_on(dlrm_dealer *dealer, uint64_t taken, program_error *error) {
    uint32_t *first = malloc((dealer->desc.devices + 1) * sizeof *first), n = 1;
    uint64_t all = 0;
    if (!first) return program_fail(error, "out of memory");
    dlrm_dealer_begin(dealer);
    for (; all < taken && n > 0; all += n) n = dlrm_take(dealer, first);
    free(first);
    dealer->read = dlrm_dealer_from(dealer);
    if (all == taken) return 0;
    return program_fail(error,
                        "no step ends behind %" PRIu64 " of %" PRIu64
                        " samples with these parts; resume with those that "
                        "the training began with",
                        taken, dealer->desc.samples);
}

/* ---- Their samples ------------------------------------------------------------------------------------- */

/* Reads up to sample end - 1, which is less than a window behind the first one that is still needed. */
static int dlrm_read_window(dlrm_dealer *dealer, clicks_shuffle *reader, uint64_t end, program_error *error) {
    clicks_batch *window = &dealer->window;
    uint32_t numbers = clicks_numbers(dealer->desc.log);
    while (dealer->read < end) {
        uint32_t at = (uint32_t)(dealer->read % window->room), most = window->room - at;
        clicks_batch part = {.room = window->room,
                             .labels = window->labels + at,
                             .numbers = window->numbers + (size_t)at * numbers,
                             .ids = window->ids + at,
                             .truth = window->truth + at};
        if (end - dealer->read < most) most = (uint32_t)(end - dealer->read);
        if (clicks_shuffle_read(reader, most, &part, error)) return -1;
        if (part.n == 0)
            return program_fail(error,
                                "the log ends after %" PRIu64 " samples, and had %" PRIu64
                                " when they were placed; give a file that does not change",
                                dealer->read, dealer->desc.samples);
        dealer->read += part.n;
    }
    return 0;
}

static void dlrm_copy_taken(const dlrm_dealer *dealer, clicks_batch *batch) {
    const clicks_batch *window = &dealer->window;
    uint32_t numbers = clicks_numbers(dealer->desc.log), features = clicks_features(dealer->desc.log);
    for (uint32_t i = 0; i < batch->n; i++) {
        size_t at = dealer->taken[i] % window->room;
        batch->labels[i] = window->labels[at];
        memcpy(batch->numbers + (size_t)i * numbers, window->numbers + at * numbers, numbers * sizeof(float));
    }
    for (size_t f = 0; f < features; f++)
        for (uint32_t i = 0; i < batch->n; i++)
            batch->ids[f * batch->room + i] = window->ids[f * window->room + dealer->taken[i] % window->room];
}

int dlrm_dealer_read(dlrm_dealer *dealer, clicks_shuffle *reader, clicks_batch *batch, uint32_t *first,
                     program_error *error) {
    uint64_t end = 0;
    batch->n = dlrm_take(dealer, first);
    for (uint32_t i = 0; i < batch->n; i++)
        if (dealer->taken[i] >= end) end = dealer->taken[i] + 1;
    if (dlrm_read_window(dealer, reader, end, error)) return -1;
    dlrm_copy_taken(dealer, batch);
    return 0;
}
