/* Planted click logs: the best area under the ROC curve that a model can reach on them is known.
 *
 * Sample i depends on the seed and on i alone, so any part of the log can be drawn at any time. Each id of a feature is
 * drawn from Zipf's distribution: the k-th most frequent of `rows` ids with a chance proportional to k^-zipf, exactly,
 * for any zipf >= 0 and any number of rows; which id is the k-th is scattered over the rows. Numbers are whole and not
 * negative, roughly exponential with means of 1 to 128, and missing in an eighth of all cases. The label is 1 with
 * probability 1 / (1 + exp(-logit)),
 *
 *     logit = bias + sum over features of weight(feature, id) + sum over numbers of weight(number) log(1 + number),
 *
 * where a missing number counts 0. Weights are roughly normal (the sum of eight uniform ones), and functions of the
 * seed, feature and id alone. They are scaled so that the logit has the standard deviation `spread` over the log, and
 * the bias makes a quarter of the labels 1; both from a sample of draws. With the default spread the logit's own area
 * under the ROC curve, the best that there can be, is about .80.
 *
 * With communities, each sample belongs to one of them, drawn evenly. Community c has a range of ids of its own in
 * every feature, c n to (c + 1) n - 1 for n = rows / communities rounded down. An id is drawn from this range with the
 * chance `within`, by the same skew, and from all rows otherwise. Without communities the bits are those of a generator
 * that knows none.
 *
 * A log that is like a published one has as many ids a feature as that. Its fields depend on each other by communities
 * alone: they are drawn by the skew of the ids, too, because sites and advertisers are not equally busy; and a feature
 * of fewer ids than communities has one id for each community, drawn by its skew, as a site has one category.
 */
#ifndef CLICKS_GENERATE_H
#define CLICKS_GENERATE_H

#include <stdint.h>
#include "trainers/clicks/clicks.h"

typedef struct clicks_zipf { /* over ranks 1 to n */
    double n, skew;
    double low, high; /* what is drawn from, in units of the integral of x^-skew from 1 */
    double near;      /* a rank this little above the drawn x need not be checked */
} clicks_zipf;

void clicks_zipf_open(clicks_zipf *zipf, uint64_t n, double skew);
/* From 1 to n; `stream` is a random number that is used for nothing else. */
uint64_t clicks_zipf_draw(const clicks_zipf *zipf, uint64_t stream);

typedef struct clicks_scatter { /* of a feature: rank k, from 0, is the id (factor k + shift) mod rows */
    uint64_t factor, shift;
} clicks_scatter;

typedef struct clicks_planted {
    clicks_generator size;
    clicks_zipf *zipf;       /* zipf[features]; with communities zipf[2 features], then those of a community's ids */
    clicks_zipf community;   /* of the communities, if the log is like another one */
    clicks_scatter *scatter; /* the same of both */
    double *number_weights;  /* number_weights[numbers], not scaled */
    double scale, bias;      /* of the sum of weights to the logit */
} clicks_planted;

typedef struct clicks_drawn {
    int label;
    double logit;
    int64_t *numbers; /* numbers[numbers], -1: missing */
    uint64_t *ids;    /* ids[features] */
} clicks_drawn;

/* On failure there is nothing to close. */
int clicks_planted_open(clicks_planted *planted, const clicks_generator *size, program_error *error);
void clicks_planted_close(clicks_planted *planted);
/* Sample i, into the arrays that *out points to. Any number of threads at a time. */
void clicks_planted_draw(const clicks_planted *planted, uint64_t i, clicks_drawn *out);

#endif
