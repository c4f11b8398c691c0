/* Decimal numbers: digits as a whole number, then the power of ten. */
#include "trainers/clicks/number.h"

#include <stdint.h>

static double clicks_power_of_ten(int n) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    return powers[n];
}

static double clicks_scaled(double x, int exponent) {
    for (; exponent > 22; exponent -= 22) x *= clicks_power_of_ten(22);
    for (; exponent < -22; exponent += 22) x /= clicks_power_of_ten(22);
    return exponent < 0 ? x / clicks_power_of_ten(-exponent) : x * clicks_power_of_ten(exponent);
}

/* Reads the digits that `at` points to; digits that no longer fit only shift. */
static const char *clicks_digits(const char *at, const char *end, uint64_t *digits, int *dropped, int *seen) {
    for (; at < end && *at >= '0' && *at <= '9'; at++, ++*seen) {
        if (*digits > (UINT64_MAX - 9) / 10)
            ++*dropped;
        else
            *digits = *digits * 10 + (uint64_t)(*at - '0');
    }
    return at;
}

/* 1, and *at is moved behind it, if there is any: e, sign, digits. 0: it has no digits. */
static int clicks_exponent(const char **at, const char *end, int *exponent) {
    uint64_t shift = 0;
    int dropped = 0, seen = 0;
    if (*at == end || (**at != 'e' && **at != 'E')) return 1;
    ++*at;
    int down = *at < end && **at == '-';
    *at += *at < end && (**at == '-' || **at == '+');
    *at = clicks_digits(*at, end, &shift, &dropped, &seen);
    if (dropped || shift > 10000) shift = 10000; /* zero or infinite, whatever the digits are */
    *exponent += down ? -(int)shift : (int)shift;
    return seen > 0;
}

int clicks_parse_number(const char *text, size_t n, double *number) {
    const char *at = text, *end = text + n;
    uint64_t digits = 0;
    int dropped = 0, seen = 0, exponent, minus = at < end && *at == '-';
    if (n > CLICKS_LONGEST_NUMBER) return 0;
    at += at < end && (*at == '-' || *at == '+');
    at = clicks_digits(at, end, &digits, &dropped, &seen);
    exponent = dropped;
    if (at < end && *at == '.') {
        int kept = seen - dropped;
        at = clicks_digits(at + 1, end, &digits, &dropped, &seen);
        exponent -= seen - dropped - kept;
    }
    if (!seen || !clicks_exponent(&at, end, &exponent) || at < end) return 0;
    double x = digits ? clicks_scaled((double)digits, exponent) : 0;
    *number = minus ? -x : x;
    return 1;
}
