/* Levels of a distribution, or of a file. */
#include "tools/peers/levels.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_SUMMED = 1000 }; /* ranks that are summed up one by one; beyond, the integral is accurate enough */

/* The sum of r ^ -skew over the ranks r from `from` + 1 to `to`. */
static double peers_mass(double from, double to, double skew) {
    double sum = 0;
    for (; from < to && from < PEERS_SUMMED; from++) sum += pow(from + 1, -skew);
    if (from >= to) return sum;
    double low = from + .5, high = to + .5; /* each rank r from r - 1/2 to r + 1/2 */
    return sum + (fabs(skew - 1) < 1e-9 ? log(high / low) : (pow(high, 1 - skew) - pow(low, 1 - skew)) / (1 - skew));
}

uint32_t peers_zipf(frugal_place_level *levels, uint32_t n, uint64_t rows, double skew, double touches) {
    double from = 0, all = peers_mass(0, (double)rows, skew);
    uint32_t found = 0;
    for (uint32_t l = 0; l < n; l++) {
        double to = l + 1 == n ? (double)rows : floor(pow((double)rows, (l + 1.) / n));
        if (to <= from) continue;
        levels[found++] = (frugal_place_level){.touches = peers_mass(from, to, skew) / (to - from) * touches / all,
                                               .rows = (uint64_t)(to - from)};
        from = to;
    }
    return found;
}

static int peers_by_touches(const void *a, const void *b) {
    double x = ((const frugal_place_level *)a)->touches, y = ((const frugal_place_level *)b)->touches;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int peers_read_line(frugal_place_level *level, const char *line) {
    char *end;
    const char *at;
    level->touches = strtod(line, &end);
    if (end == line || !(level->touches >= 0) || !isfinite(level->touches)) return -1;
    at = end + strspn(end, " \t,");
    if (at == end || *at < '0' || *at > '9') return -1;
    errno = 0;
    level->rows = strtoull(at, &end, 10);
    return errno || end[strspn(end, " \t\r\n")] || level->rows > UINT64_C(1) << 50 ? -1 : 0;
}

int peers_read_levels(frugal_place_level *levels, uint32_t *n, const char *path, double touches, program_error *error) {
    FILE *file = fopen(path, "rbe");
    char line[256];
    double all = 0;
    int status = 0;
    if (!file)
        return program_fail(error, "cannot read --levels %.200s: %s%s", path, strerror(errno), file_remedy(errno));
    *n = 0;
    for (uint32_t at = 1; !status && fgets(line, sizeof line, file); at++) {
        line[strcspn(line, "#")] = 0;
        if (!line[strspn(line, " \t\r\n")]) continue;
        if (*n == PEERS_MOST_LEVELS)
            status = program_fail(error, "--levels %.200s has more than %d levels; merge rows of similar touches", path,
                                  PEERS_MOST_LEVELS);
        else if (peers_read_line(&levels[*n], line))
            status = program_fail(error, "--levels %.200s, line %" PRIu32 ": '%.*s' must be touches and rows", path, at,
                                  (int)strcspn(line, "\r\n"), line);
        else
            all += levels[*n].touches * (double)levels[*n].rows, ++*n;
    }
    if (!status && ferror(file)) status = program_fail(error, "cannot read --levels %.200s: %s", path, strerror(errno));
    fclose(file);
    if (!status && all == 0) status = program_fail(error, "--levels %.200s has no touches; must have some", path);
    if (status) return -1;
    qsort(levels, *n, sizeof *levels, peers_by_touches);
    for (uint32_t l = 0; l < *n; l++) levels[l].touches *= touches / all;
    return 0;
}
