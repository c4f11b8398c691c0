/* Planted click logs. Every random number is a hash of its purpose, the seed, the sample, the feature and the try. */
#include "trainers/clicks/generate.h"
#include "trainers/common/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What random numbers are for. */
enum { CLICKS_SAMPLES, CLICKS_ID_WEIGHTS, CLICKS_NUMBER_WEIGHTS, CLICKS_SCATTERS, CLICKS_LABELS, CLICKS_COMMUNITIES };

/* Different ids of each feature in the whole log. Criteo: the sizes of tables that DLRM (facebookresearch/dlrm) makes
 * of the Display Advertising Challenge's 45,840,617 samples; Avazu: NUM_EMBEDDINGS_PER_FEATURE of CachedEmbedding
 * (hpcaitech/CachedEmbedding), of 40,428,967 samples, without the hour. The skews are those with which 90% of all
 * touches are of 0.14% (Criteo) and 0.012% (Avazu) of the rows, as the frequency-aware cache has it in its Figure 2. */
static const uint32_t clicks_criteo_rows[] = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                              93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                              2173,  4,    7046547,  18,      15,  286181, 105,     142572};
static const uint32_t clicks_avazu_rows[] = {7, 7, 4737, 7745, 26, 8552, 559, 36, 2686408, 6729486, 8251,
                                             5, 4, 2626, 8,    9,  435,  4,   68, 172,     60};
static const struct {
    const uint32_t *rows;
    uint32_t numbers, features;
    double zipf;
} clicks_published[] = {{NULL, 0, 0, 0}, {clicks_criteo_rows, 13, 26, 1.08}, {clicks_avazu_rows, 0, 21, 1.2}};
const char *const clicks_likes[] = {"none", "criteo", "avazu", NULL};

uint64_t clicks_generator_rows(const clicks_generator *generator, uint32_t feature) {
    return generator->like ? clicks_published[generator->like].rows[feature] : generator->rows;
}

int clicks_generator_resolve(clicks_generator *generator, const clicks_generator_given *given, program_error *error) {
    clicks_like like = generator->like;
    if (!like) return 0;
    if (given->features || given->rows)
        return program_fail(error, "a log like %s has its own %" PRIu32 " features and their rows; leave out %s",
                            clicks_likes[like], clicks_published[like].features, given->rows ? "rows" : "features");
    generator->features = clicks_published[like].features;
    if (!given->numbers) generator->numbers = clicks_published[like].numbers;
    if (!given->zipf) generator->zipf = clicks_published[like].zipf;
    generator->rows = 0;
    for (uint32_t k = 0; k < generator->features; k++)
        if (clicks_published[like].rows[k] > generator->rows) generator->rows = clicks_published[like].rows[k];
    return 0;
}

/* In [0, 1). */
static double clicks_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

/* Roughly normal, of mean 0 and variance 1: eight uniform numbers of 16 bits. */
static double clicks_bell(uint64_t stream) {
    uint64_t a = random_at(stream, 0), b = random_at(stream, 1);
    int64_t sum = 0;
    for (int shift = 0; shift < 64; shift += 16) sum += (int64_t)(a >> shift & 0xffff) + (int64_t)(b >> shift & 0xffff);
    return ((double)sum - 8 * 32767.5) / (65536 * 0.81649658092772603);
}

/* ---- Zipf's distribution -------------------------------------------------------------------------------- */

/* By rejection from its own integral (Hoermann and Derflinger 1996): x is drawn with density proportional to x^-skew,
 * from a little before 1 to n + 1/2. The part of the integral from k - 1/2 to k + 1/2 belongs to the whole number k.
 * The k nearest to x is taken if x lies within the last k^-skew of that part. This is most of the part, which is at
 * least as large because the function is convex. */

/* (exp(x) - 1) / x and log(1 + x) / x, which are 1 at 0. */
static double clicks_exp_part(double x) {
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}
static double clicks_log_part(double x) {
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

static double clicks_power(const clicks_zipf *zipf, double x) {
    return exp(-zipf->skew * log(x));
}

/* The integral of t^-skew from 1 to x, and its inverse. */
static double clicks_integral(const clicks_zipf *zipf, double x) {
    double logarithm = log(x);
    return logarithm * clicks_exp_part((1 - zipf->skew) * logarithm);
}
static double clicks_inverse(const clicks_zipf *zipf, double y) {
    double x = (1 - zipf->skew) * y;
    if (x <= -1) x = -1 + 0x1p-53; /* rounding, for skews above 1 */
    return exp(y * clicks_log_part(x));
}

void clicks_zipf_open(clicks_zipf *zipf, uint64_t n, double skew) {
    *zipf = (clicks_zipf){.n = (double)n, .skew = skew};
    zipf->low = clicks_integral(zipf, 1.5) - 1; /* the whole part of 1 is taken */
    zipf->high = clicks_integral(zipf, zipf->n + 0.5);
    zipf->near = 2 - clicks_inverse(zipf, clicks_integral(zipf, 2.5) - clicks_power(zipf, 2));
}

uint64_t clicks_zipf_draw(const clicks_zipf *zipf, uint64_t stream) {
    for (uint64_t try = 0;; try++) {
        double y = zipf->high + clicks_unit(random_at(stream, try)) * (zipf->low - zipf->high);
        double x = clicks_inverse(zipf, y), k = floor(x + 0.5);
        if (k < 1) k = 1;
        if (k > zipf->n) k = zipf->n;
        if (k - x <= zipf->near || y >= clicks_integral(zipf, k + 0.5) - clicks_power(zipf, k)) return (uint64_t)k;
    }
}

/* ---- Features and weights ------------------------------------------------------------------------------- */

static uint64_t clicks_common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* a b mod n, for numbers below 2^32. */
static uint64_t clicks_scattered(const clicks_scatter *scatter, uint64_t rank, uint64_t rows) {
    return (scatter->factor * rank + scatter->shift) % rows;
}

static clicks_scatter clicks_scatter_make(uint64_t seed, uint32_t feature, uint64_t rows) {
    uint64_t stream = random_at(random_at(seed, CLICKS_SCATTERS), feature);
    clicks_scatter scatter = {random_at(stream, 0) % rows, random_at(stream, 1) % rows};
    while (clicks_common_divisor(rows, scatter.factor) != 1) scatter.factor = (scatter.factor + 1) % rows;
    return scatter;
}

/* The logit before it is scaled. */
static double clicks_weigh(const clicks_planted *planted, const clicks_drawn *drawn) {
    uint64_t stream = random_at(planted->size.seed, CLICKS_ID_WEIGHTS);
    double sum = 0;
    for (uint32_t k = 0; k < planted->size.features; k++)
        sum += clicks_bell(random_at(random_at(stream, k), drawn->ids[k]));
    for (uint32_t k = 0; k < planted->size.numbers; k++)
        if (drawn->numbers[k] > 0) sum += planted->number_weights[k] * log1p((double)drawn->numbers[k]);
    return sum;
}

/* An id of the feature, by its skew. */
static uint64_t clicks_draw_any(const clicks_planted *planted, uint32_t k, uint64_t stream) {
    uint64_t rank = clicks_zipf_draw(&planted->zipf[k], stream) - 1;
    return clicks_scattered(&planted->scatter[k], rank, clicks_generator_rows(&planted->size, k));
}

/* Of what a feature of few ids has for each community. */
static uint64_t clicks_of_communities(const clicks_planted *planted, uint32_t k) {
    return random_at(random_at(planted->size.seed, CLICKS_COMMUNITIES), k);
}

/* Ids of a sample's community, in the place of some of those that were drawn from all. */
static void clicks_draw_own(const clicks_planted *planted, uint64_t sample, clicks_drawn *out) {
    const clicks_generator *size = &planted->size;
    uint64_t stream = random_at(sample, CLICKS_COMMUNITIES + UINT64_C(0x100000000)); /* beyond the columns */
    uint64_t features = size->features, drawn = random_at(stream, 2 * features);
    uint64_t community = size->like ? clicks_zipf_draw(&planted->community, drawn) - 1 : drawn % size->communities;
    for (uint32_t k = 0; k < features; k++) {
        if (clicks_unit(random_at(stream, k)) >= size->within) continue;
        uint64_t own = clicks_generator_rows(size, k) / size->communities, of = random_at(stream, features + k);
        if (own) {
            uint64_t rank = clicks_zipf_draw(&planted->zipf[features + k], of) - 1;
            out->ids[k] = own * community + clicks_scattered(&planted->scatter[features + k], rank, own);
        } else
            out->ids[k] = clicks_draw_any(planted, k, random_at(clicks_of_communities(planted, k), community));
    }
}

/* Everything except the label. */
static void clicks_draw_values(const clicks_planted *planted, uint64_t stream, clicks_drawn *out) {
    uint32_t features = planted->size.features;
    for (uint32_t k = 0; k < features; k++) out->ids[k] = clicks_draw_any(planted, k, random_at(stream, k));
    if (planted->size.communities > 1) clicks_draw_own(planted, stream, out);
    for (uint32_t k = 0; k < planted->size.numbers; k++) {
        uint64_t bits = random_at(stream, (uint64_t)features + k);
        double mean = (double)(1 << k % 8);
        out->numbers[k] = bits % 8 ? (int64_t)(-mean * log(1 - clicks_unit(bits))) : -1;
    }
}

void clicks_planted_draw(const clicks_planted *planted, uint64_t i, clicks_drawn *out) {
    uint64_t stream = random_at(random_at(planted->size.seed, CLICKS_SAMPLES), i);
    clicks_draw_values(planted, stream, out);
    out->logit = planted->bias + planted->scale * clicks_weigh(planted, out);
    double chance = 1 / (1 + exp(-out->logit));
    out->label = clicks_unit(random_at(random_at(planted->size.seed, CLICKS_LABELS), i)) < chance;
}

/* ---- Scale and bias ------------------------------------------------------------------------------------- */

/* The bias with which a quarter of the sums, scaled, are expected to be ones. */
static double clicks_find_bias(const double *sums, uint32_t n, double scale) {
    double low = -1e3, high = 1e3;
    for (uint32_t i = 0; i < n; i++) {
        low = fmin(low, -scale * sums[i] - 50);
        high = fmax(high, -scale * sums[i] + 50);
    }
    for (int halving = 0; halving < 64; halving++) {
        double bias = (low + high) / 2, ones = 0;
        for (uint32_t i = 0; i < n; i++) ones += 1 / (1 + exp(-(bias + scale * sums[i])));
        *(ones < 0.25 * n ? &low : &high) = bias;
    }
    return (low + high) / 2;
}

static int clicks_calibrate(clicks_planted *planted, program_error *error) {
    const clicks_generator *size = &planted->size;
    uint32_t columns = size->features + size->numbers, n = (1 << 19) / columns;
    n = n > 8192 ? 8192 : n < 512 ? 512 : n;
    double *sums = malloc(n * sizeof *sums), mean = 0, variance = 0;
    int64_t *numbers = malloc((size->numbers + 1) * sizeof *numbers);
    uint64_t *ids = malloc(size->features * sizeof *ids);
    int status =
        sums && numbers && ids ? 0 : program_fail(error, "out of memory to plant %" PRIu32 " columns", columns);
    clicks_drawn drawn = {.numbers = numbers, .ids = ids};
    for (uint32_t i = 0; i < n && !status; i++) { /* samples that are in no log */
        clicks_draw_values(planted, random_at(random_at(size->seed, CLICKS_SAMPLES), UINT64_MAX / 2 + i), &drawn);
        sums[i] = clicks_weigh(planted, &drawn);
        mean += sums[i] / n;
    }
    for (uint32_t i = 0; i < n && !status; i++) variance += (sums[i] - mean) * (sums[i] - mean) / n;
    planted->scale = variance > 1e-12 ? size->spread / sqrt(variance) : 0; /* all samples alike: nothing to plant */
    if (!status) planted->bias = clicks_find_bias(sums, n, planted->scale);
    free(sums);
    free(numbers);
    free(ids);
    return status;
}

static int clicks_check_size(const clicks_generator *size, program_error *error) {
    const uint64_t most_samples = UINT64_C(1) << 48, most_rows = UINT64_C(1) << 32;
    if (!size->samples || size->samples > most_samples)
        return program_fail(error, "%" PRIu64 " samples to generate; must be 1 to 2^48", size->samples);
    if (!size->rows || size->rows > most_rows)
        return program_fail(error, "%" PRIu64 " ids a generated feature; must be 1 to 2^32", size->rows);
    if (!size->features) return program_fail(error, "no features to generate; there must be at least 1");
    if (!(size->zipf >= 0 && size->zipf <= 10))
        return program_fail(error, "a skew of %g for the ids; must be 0 (uniform) to 10", size->zipf);
    if (!(size->spread >= 0 && size->spread <= 100))
        return program_fail(error, "a standard deviation of %g for the logit; must be 0 to 100", size->spread);
    if (size->like && size->features != clicks_published[size->like].features)
        return program_fail(error, "%" PRIu32 " features of a log like %s; must be %" PRIu32, size->features,
                            clicks_likes[size->like], clicks_published[size->like].features);
    if (size->communities > size->rows)
        return program_fail(error, "%" PRIu64 " communities of %" PRIu64 " ids a feature; must be at most one an id",
                            size->communities, size->rows);
    if (!(size->within >= 0 && size->within <= 1))
        return program_fail(error, "%g of the ids within communities; must be 0 to 1", size->within);
    return 0;
}

clicks_generator clicks_generator_default(void) {
    return (clicks_generator){.samples = 1000000,
                              .numbers = 13,
                              .features = 26,
                              .rows = 100000,
                              .zipf = 1.05,
                              .spread = 1.35,
                              .seed = 1,
                              .within = .8};
}

int clicks_planted_open(clicks_planted *planted, const clicks_generator *size, program_error *error) {
    *planted = (clicks_planted){.size = *size};
    if (clicks_check_size(size, error)) return -1;
    uint32_t features = size->features, all = size->communities > 1 ? 2 * features : features;
    planted->zipf = calloc(all, sizeof *planted->zipf);
    planted->scatter = calloc(all, sizeof *planted->scatter);
    planted->number_weights = malloc(((size_t)size->numbers + 1) * sizeof *planted->number_weights);
    int status = planted->zipf && planted->scatter && planted->number_weights
                     ? 0
                     : program_fail(error, "out of memory for %" PRIu32 " features", features);
    if (size->communities > 1) clicks_zipf_open(&planted->community, size->communities, size->zipf);
    for (uint32_t k = 0; k < all && !status; k++) {
        uint64_t rows = clicks_generator_rows(size, k % features);
        if (k >= features) rows /= size->communities;
        if (!rows) continue; /* one for each community */
        clicks_zipf_open(&planted->zipf[k], rows, size->zipf);
        planted->scatter[k] = clicks_scatter_make(size->seed, k, rows);
    }
    uint64_t stream = random_at(size->seed, CLICKS_NUMBER_WEIGHTS);
    for (uint32_t k = 0; k < size->numbers && !status; k++)
        planted->number_weights[k] = clicks_bell(random_at(stream, k));
    if (!status) status = clicks_calibrate(planted, error);
    if (status) clicks_planted_close(planted);
    return status;
}

void clicks_planted_close(clicks_planted *planted) {
    free(planted->zipf);
    free(planted->scatter);
    free(planted->number_weights);
    *planted = (clicks_planted){0};
}
