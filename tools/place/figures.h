/* What a partition is worth: shares, balance, and what the closed form of frugal_place.h predicts for a step. */
#ifndef PLACE_FIGURES_H
#define PLACE_FIGURES_H

#include "tools/place/away.h"
#include "tools/place/profile.h"

typedef struct place_figures {
    const char *method;
    uint32_t devices, clusters;
    uint32_t machines; /* 1: nothing is away, and there are no homes */
    uint64_t rows;
    uint64_t batch;    /* samples of a device in a step */
    uint64_t replicas; /* rows that each device preloads, or has as secondaries */
    double seconds;    /* that the parts took */
    uint32_t passes;
    uint64_t moved[PARTITION_MOST_PASSES + 1];
    frugal_place_report report; /* of this batch */
    place_profile profile;
    place_away away;
    homes homes;             /* of[rows]; zeros: one machine */
    double preloaded;        /* of report.reads, those that the preloaded rows save in a step */
    double replicated_share; /* local share, if each device has its secondaries, too */
} place_figures;

/* Fills what follows from the partition: all fields from `seconds` on, but not the last two. Fails when a signal has
 * come, or without memory. */
int place_figures_take(place_figures *figures, const partition *p, program_error *error);
/* Frees the homes. */
void place_figures_free(place_figures *figures);
/* Ranks the rows of each device by gain or by count. The lists go to `list` (NULL: nowhere): uint64
 * [devices][replicas], best first; where a list is shorter, UINT64_MAX follows. Adds to figures->preloaded or
 * ->replicated_share. Memory: 16 bytes for each of the replicas. Fails when a signal has come. */
int place_figures_rank(place_figures *figures, const frugal_place *place, frugal_place_rank_by by, FILE *list,
                       program_error *error);

/* A table for people: random parts (`before`; NULL: none) beside these. */
void place_figures_show(const place_figures *before, const place_figures *after);
/* One object, one line; it begins with these characters. bench/sim/profile.c reads it. */
#define PLACE_FIGURES_BEGIN "{\"method\": \""
void place_figures_json(const place_figures *figures, FILE *stream);

#endif
