/* On which machine each row lies, if the table is dealt over the memories of several machines: where the samples are
 * that touch it.
 *
 *     homes_desc desc = {.place = partition.place, .rows = rows, .batch = 256, .devices = 8, .machines = 2};
 *     homes h;
 *     homes_make(&h, &desc, &error)
 *     h.of[row]                                        its machine, its *home*
 *     homes_free(&h);
 *
 * A device reads a row at most once in a step, however many samples touch it. So a row goes to the machine whose
 * devices read it in the most steps, and not to that with the most touches. Of machines that read it nearly as often,
 * the one with the fewest rows on its link gets it: popular rows are read by all, and would else lie on the first.
 * A row that nobody touches goes where the fewest rows are. No machine has more than HOMES_MOST times the mean, because
 * machines are alike and rows fill their memory.
 *
 * The homes follow from the counts by whole numbers alone, so all machines that make them have the same.
 */
#ifndef HOMES_H
#define HOMES_H

#include "trainers/common/program.h"
#include "frugal_machines.h"
#include "frugal_place.h"

#define HOMES_MOST 1.1 /* rows of a machine, of the mean, rounded up */

typedef struct homes_desc {
    const frugal_place *place; /* packed or loaded */
    uint64_t rows;             /* of `place` */
    uint64_t batch;            /* samples of a device in a step, at least 1 */
    uint32_t devices;          /* the parts of `place` */
    uint32_t machines; /* 1 to FRUGAL_MAX_MACHINES; divides the devices, of which they have as many each, in turn */
} homes_desc;

typedef struct homes {
    uint8_t *of;                        /* of[rows] */
    uint64_t rows[FRUGAL_MAX_MACHINES]; /* by machine */
    uint64_t link
        [FRUGAL_MAX_MACHINES]; /* by machine: rows that cross its link in an epoch: it sends its own, and gets others */
} homes;

/* 0, or -1 with *error filled: no memory. */
int homes_make(homes *h, const homes_desc *desc, program_error *error);
/* The most of the machines over the mean: of their rows, or of those that cross their links. 1 if there is nothing. */
double homes_balance(const uint64_t *of_machines, uint32_t machines);
/* Zeros are accepted. */
void homes_free(homes *h);

#endif
