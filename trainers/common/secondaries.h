/* What both trainers do with --secondaries PERCENT --stale S: which rows are listed as secondaries
 * (frugal_secondaries), and on which device.
 *
 *     secondaries_desc desc = {.settings = &settings, .placing = &placing, .rows = rows};
 *     secondaries_choose(&secondaries, &desc, &source, &error)      does nothing without --secondaries
 *     secondaries_list(&secondaries, frugal, &error)        all devices are attached, nothing is announced or preloaded
 *     secondaries_json(&settings, stats, n, json)
 *     secondaries_close(&secondaries)
 *
 * PERCENT of the rows of all tables, taken together, are listed on each device. Without parts they are those that most
 * training samples have, the same on every device. With --place they are those of most touches by the device's own
 * samples, among rows whose home is another device, and fewer where there are not so many: HET-GMP's replicas,
 * equation (6). Its own rows a device reads exactly. Of rows of equal rank the first come first.
 */
#ifndef SECONDARIES_H
#define SECONDARIES_H

#include "trainers/common/placing.h"

typedef struct secondaries_desc {
    const training_settings *settings; /* secondaries, stale, devices, batch; they must stay */
    const placing *placing;            /* must stay, and have its counts until the rows are listed. No parts: none */
    uint64_t rows;                     /* that samples have, numbered as in placing.h */
    /* Row r from `twins_from` on has a twin, row r + `twins`, which samples do not name, and which is touched whenever
     * r is; 0: none. */
    uint64_t twins_from, twins;
} secondaries_desc;

typedef struct secondaries {
    secondaries_desc desc;
    uint64_t n;     /* rows of a device, at most */
    uint64_t *keys; /* keys[n], without parts: the rows, by rank */
} secondaries;

/* Without parts, reads the source once. 0, or -1 with *error filled; it can be closed in both cases. */
int secondaries_choose(secondaries *s, const secondaries_desc *desc, const partition_source *source,
                       program_error *error);
/* Lists them on every device. An instance's tables are those that the rows are numbered by. It empties caches. */
int secondaries_list(const secondaries *s, frugal *f, program_error *error);
void secondaries_close(secondaries *s);

/* Fields of a JSON object that is not closed: the options, and what stats[n] have counted together. NULL is no file. */
void secondaries_json(const training_settings *settings, const frugal_stats *stats, uint32_t n, FILE *json);

#endif
