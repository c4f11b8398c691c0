/* One pass over the rows: gains into a histogram by size, and what an LRU cache holds and saves by its time. */
#include "tools/place/profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

const double place_caches[PLACE_CACHES] = {.003, .01, .02, .05, .1, .2, .3, .5, .7, 1};

/* Gains from 2^-48 to 1, 32 bins for each factor of 2, so a bin's gains differ by 3% at most; what is less counts as
 * nothing. Times of an LRU cache: 1/2, 1, 2, 4, ... steps. */
enum { OCTAVES = 48, PER_OCTAVE = 32, BINS = OCTAVES * PER_OCTAVE, TIMES = 40 };

typedef struct place_device {
    uint32_t count[BINS]; /* rows by gain, the largest first */
    double gain[BINS];    /* their sum */
    double reads;         /* without a cache */
    double held[TIMES];   /* rows touched in so many steps */
    double saved[TIMES];  /* reads that their copies save */
} place_device;

static void place_add_gain(place_device *d, double gain) {
    int exponent;
    double fraction = frexp(gain, &exponent);           /* .5 to 1, of gain = fraction 2^exponent */
    if (!(gain > 0) || exponent <= 1 - OCTAVES) return; /* below 2^-47 */
    int bin = -exponent * PER_OCTAVE + (int)((1 - fraction) * 2 * PER_OCTAVE);
    if (bin < 0) bin = 0; /* a gain that was rounded to more than 1 */
    d->count[bin]++, d->gain[bin] += gain;
}

/* exp(-2 x) is the square of exp(-x): each time is twice the one before. */
static void place_add_times(place_device *d, double rate, double all, double gain) {
    double untouched = exp(-rate / 2), by_all = exp(-all / 2), half = all < 64 ? exp(all / 2) : 0;
    for (int i = 0; i < TIMES; i++) {
        d->held[i] += 1 - untouched, d->saved[i] += gain * (1 - by_all * half);
        untouched *= untouched, by_all *= by_all;
    }
}

static void place_add_row(place_profile *p, place_device *devices, uint32_t n, const double *rate) {
    double all = 0, alone = 0;
    for (uint32_t i = 0; i < n; i++) all += rate[i];
    if (all <= 0) return;
    double touched = -expm1(-all);
    for (uint32_t i = 0; i < n; i++) {
        if (rate[i] <= 0) continue;
        double t = -expm1(-rate[i]), others = exp(-(all - rate[i])), gain = t * t * others / touched;
        alone += t * others;
        devices[i].reads += t;
        place_add_gain(&devices[i], gain);
        place_add_times(&devices[i], rate[i], all, gain);
    }
    p->rows += touched, p->alone += alone, p->again += touched * touched;
}

/* Reads that the `cache` rows of most gain save. */
static double place_saved_by_gain(const place_device *d, double cache) {
    double saved = 0;
    for (int bin = 0; bin < BINS && cache > 0; bin++) {
        double share = d->count[bin] <= cache ? 1 : cache / d->count[bin];
        saved += share * d->gain[bin];
        cache -= d->count[bin];
    }
    return saved;
}

/* The same of an LRU cache: between the two times that hold fewer and more rows, straight. */
static double place_saved_by_time(const place_device *d, double cache) {
    double held = 0, saved = 0;
    for (int i = 0; i < TIMES; i++) {
        if (d->held[i] >= cache && d->held[i] > held)
            return saved + (d->saved[i] - saved) * (cache - held) / (d->held[i] - held);
        held = d->held[i], saved = d->saved[i];
    }
    return saved;
}

static void place_add_device(place_profile *p, const place_device *d, uint64_t rows) {
    for (int i = 0; i < PLACE_CACHES; i++) {
        double cache = floor(place_caches[i] * (double)rows);
        p->reads_counted[i] += d->reads - place_saved_by_gain(d, cache);
        p->reads_lru[i] += d->reads - place_saved_by_time(d, cache);
    }
}

int place_profile_take(place_profile *profile, const frugal_place *place, uint64_t rows, uint32_t devices,
                       uint64_t batch, program_error *error) {
    place_device *all = calloc(devices, sizeof *all);
    double rate[FRUGAL_PLACE_MAX_PARTS], each[FRUGAL_PLACE_MAX_PARTS];
    int status = all ? 0 : program_fail(error, "out of memory for figures of %" PRIu32 " devices", devices);
    *profile = (place_profile){0};
    for (uint32_t i = 0; i < devices; i++) {
        uint64_t size = frugal_place_size(place, i);
        each[i] = size ? (double)batch / (double)size : 0;
    }
    for (uint64_t x = 0; x < rows && !status; x++) {
        for (uint32_t i = 0; i < devices; i++) rate[i] = each[i] * frugal_place_touches(place, x, i);
        place_add_row(profile, all, devices, rate);
        if (x % 65536 == 0 && program_signalled)
            status = program_fail(error, "ended by %s while caches were computed", program_signal());
    }
    for (uint32_t i = 0; i < devices && !status; i++) place_add_device(profile, &all[i], rows);
    free(all);
    return status;
}
