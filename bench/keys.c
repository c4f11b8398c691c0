/* Keys for benchmarks. */
#include "bench/keys.h"

#include <math.h>

__extension__ typedef unsigned __int128 wide; /* gcc and clang */

typedef struct zipf_sampler {
    double exponent;
    double whole, first; /* the hat's integral at its two ends */
    double shortcut;     /* ranks this little above the inverse are accepted without evaluating the hat */
} zipf_sampler;

/* (exp(x) - 1) / x and log(1 + x) / x, exact even if x is close to 0. */
static double expm1_over(double x) {
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}
static double log1p_over(double x) {
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

/* The hat x^-exponent, its integral (up to a constant), and the integral's inverse. */
static double hat(double x, double exponent) {
    return exp(-exponent * log(x));
}
static double integral(double x, double exponent) {
    double l = log(x);
    return expm1_over((1 - exponent) * l) * l;
}
static double inverse(double y, double exponent) {
    double t = y * (1 - exponent);
    return exp(log1p_over(t < -1 ? -1 : t) * y); /* because rounding may leave the domain */
}

static zipf_sampler make_sampler(uint64_t rows, double exponent) {
    zipf_sampler z = {.exponent = exponent};
    z.first = integral(1.5, exponent) - 1;
    z.whole = integral((double)rows + 0.5, exponent);
    z.shortcut = 2 - inverse(integral(2.5, exponent) - hat(2, exponent), exponent);
    return z;
}

static uint64_t draw_rank(const zipf_sampler *z, uint64_t rows, uint64_t *state) {
    for (;;) {
        double uniform = (double)(bench_random(state) >> 11) * 0x1p-53;
        double u = z->whole + uniform * (z->first - z->whole);
        double x = inverse(u, z->exponent);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > (double)rows ? (double)rows : k;
        if (k - x <= z->shortcut || u >= integral(k + 0.5, z->exponent) - hat(k, z->exponent)) return (uint64_t)k - 1;
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* One to one if the factor and `rows` have no common divisor. */
static uint64_t spread_factor(uint64_t rows) {
    uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    while (common_divisor(factor, rows) != 1) factor += 2;
    return factor;
}

void bench_hottest_keys(uint64_t *keys, uint64_t n, uint64_t rows) {
    uint64_t factor = spread_factor(rows);
    for (uint64_t i = 0; i < n; i++) keys[i] = (uint64_t)((wide)(i + 1) * factor % rows);
}

void bench_draw_ranks(uint64_t *ranks, uint64_t n, uint64_t rows, double zipf, uint64_t seed) {
    uint64_t state = seed;
    if (zipf <= 0) {
        for (uint64_t i = 0; i < n; i++) ranks[i] = (uint64_t)((wide)bench_random(&state) * rows >> 64);
        return;
    }
    zipf_sampler z = make_sampler(rows, zipf);
    for (uint64_t i = 0; i < n; i++) ranks[i] = draw_rank(&z, rows, &state);
}

void bench_draw_keys(uint64_t *keys, uint64_t n, uint64_t rows, double zipf, uint64_t seed) {
    uint64_t factor = spread_factor(rows);
    bench_draw_ranks(keys, n, rows, zipf, seed);
    if (zipf <= 0) return; /* all rows are equally hot */
    for (uint64_t i = 0; i < n; i++) keys[i] = (uint64_t)((wide)(keys[i] + 1) * factor % rows);
}
