/* Area under the ROC curve and log loss. The scores of the positives and of the negatives lie in two arrays, as whole
 * numbers in the same order as the scores. After both are sorted, one walk through them counts the pairs. */
#include "trainers/clicks/auc.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AUC_DIGIT_BITS = 11, AUC_DIGITS = 3, AUC_VALUES = 1 << AUC_DIGIT_BITS };
static const uint64_t auc_most_samples = UINT64_C(1) << 32; /* twice the number of pairs then fits in 64 bits */

typedef struct auc_scores {
    uint32_t *at;
    uint64_t n, room;
} auc_scores;

struct auc {
    auc_scores side[2]; /* by label */
    double loss;
};

int auc_open(auc **out, program_error *error) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : program_fail(error, "out of memory for scores");
}

void auc_close(auc *a) {
    if (!a) return;
    free(a->side[0].at);
    free(a->side[1].at);
    free(a);
}

uint64_t auc_positives(const auc *a) {
    return a->side[1].n;
}

uint64_t auc_samples(const auc *a) {
    return a->side[0].n + a->side[1].n;
}

static int auc_make_room(auc_scores *scores, uint64_t more, program_error *error) {
    uint64_t room = scores->room ? scores->room : 4096;
    if (scores->n + more <= scores->room) return 0;
    while (room < scores->n + more) room *= 2;
    uint32_t *at = realloc(scores->at, room * sizeof *at);
    if (!at) return program_fail(error, "out of memory for %" PRIu64 " scores", room);
    scores->at = at;
    scores->room = room;
    return 0;
}

/* Floats as whole numbers of the same order; -0 is 0. */
static uint32_t auc_key(float score) {
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits ^ (bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31);
}

int auc_add(auc *a, const float *logits, const float *labels, uint64_t n, program_error *error) {
    uint64_t ones = 0;
    if (n > auc_most_samples - auc_samples(a))
        return program_fail(error, "%" PRIu64 " scores and %" PRIu64 " more are more than 2^32; evaluate on fewer",
                            auc_samples(a), n);
    for (uint64_t i = 0; i < n; i++) {
        ones += labels[i] != 0;
        if (isnan(logits[i]))
            return program_fail(error, "score %" PRIu64 " is not a number: did training diverge?", auc_samples(a) + i);
    }
    if (auc_make_room(&a->side[1], ones, error) || auc_make_room(&a->side[0], n - ones, error)) return -1;
    for (uint64_t i = 0; i < n; i++) {
        int label = labels[i] != 0;
        double logit = logits[i];
        a->side[label].at[a->side[label].n++] = auc_key(logits[i]);
        a->loss += fmax(label ? -logit : logit, 0) + log1p(exp(-fabs(logit)));
    }
    return 0;
}

int auc_log_loss(const auc *a, double *loss, program_error *error) {
    if (!auc_samples(a)) return program_fail(error, "no samples, so no log loss");
    *loss = a->loss / (double)auc_samples(a);
    return 0;
}

/* By digits, the lowest first. The numbers end in `other`, or where they are. */
static void auc_sort(auc_scores *scores, uint32_t *other) {
    static const uint32_t mask = AUC_VALUES - 1;
    uint32_t *from = scores->at, *to = other;
    for (int digit = 0; digit < AUC_DIGITS; digit++) {
        uint64_t begin[AUC_VALUES] = {0}, sum = 0;
        int shift = digit * AUC_DIGIT_BITS;
        for (uint64_t i = 0; i < scores->n; i++) begin[from[i] >> shift & mask]++;
        for (uint32_t value = 0; value < AUC_VALUES; value++) {
            uint64_t count = begin[value];
            begin[value] = sum;
            sum += count;
        }
        for (uint64_t i = 0; i < scores->n; i++) to[begin[from[i] >> shift & mask]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != scores->at) memcpy(scores->at, from, scores->n * sizeof *from);
}

int auc_area(auc *a, double *area, program_error *error) {
    const auc_scores *ones = &a->side[1], *zeros = &a->side[0];
    if (!ones->n || !zeros->n)
        return program_fail(error, "%" PRIu64 " samples, and no label is %d: no area under the curve", auc_samples(a),
                            ones->n ? 0 : 1);
    uint64_t most = ones->n > zeros->n ? ones->n : zeros->n, below = 0, upto = 0, twice = 0;
    uint32_t *other = malloc(most * sizeof *other);
    if (!other) return program_fail(error, "out of memory to sort %" PRIu64 " scores", most);
    auc_sort(&a->side[0], other);
    auc_sort(&a->side[1], other);
    free(other);
    for (uint64_t i = 0; i < ones->n; i++) {
        while (below < zeros->n && zeros->at[below] < ones->at[i]) below++;
        while (upto < zeros->n && zeros->at[upto] <= ones->at[i]) upto++;
        twice += below + upto;
    }
    *area = (double)twice / 2 / ((double)ones->n * (double)zeros->n);
    return 0;
}
