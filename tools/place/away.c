/* One pass over the rows. */
#include "tools/place/away.h"

#include <math.h>

int place_away_take(place_away *away, const homes_desc *desc, const uint8_t *homes, program_error *error) {
    uint32_t each = desc->devices / desc->machines;
    double read = 0, in_turn = 0, placed = 0, batch[FRUGAL_PLACE_MAX_PARTS];
    *away = (place_away){0};
    for (uint32_t d = 0; d < desc->devices; d++) {
        uint64_t size = frugal_place_size(desc->place, d);
        batch[d] = size ? (double)desc->batch / (double)size : 0;
    }
    for (uint64_t x = 0; x < desc->rows; x++) {
        for (uint32_t d = 0; d < desc->devices; d++) {
            double t = -expm1(-batch[d] * frugal_place_touches(desc->place, x, d));
            read += t;
            if (d / each != x % desc->machines) in_turn += t;
            if (d / each != homes[x]) placed += t;
        }
        if (x % 65536 == 0 && program_signalled)
            return program_fail(error, "ended by %s while rows of other machines were counted", program_signal());
    }
    if (read > 0) away->in_turn = in_turn / read, away->placed = placed / read;
    return 0;
}
