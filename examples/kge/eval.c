/* Filtered ranking of triples, in parallel. */
#include "examples/kge/eval.h"
#include "examples/common/vector.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Scores of a block of questions against all entities are kept at once: at most this many floats a thread. */
#define KGE_EVAL_SCORES (1u << 22)
#define KGE_EVAL_BLOCK  256u

typedef struct kge_eval_job {
    const kge_evaluation *evaluation;
    const float *norms; /* of the entities */
    double *rank;       /* [2][triples]: tails, then heads */
    uint64_t triples;
    uint32_t block;
    atomic_uint_least64_t next; /* block to rank next */
    atomic_int failed;
} kge_eval_job;

static kge_triple kge_eval_triple(const kge_evaluation *evaluation, uint64_t i) {
    return evaluation->split->triples[i * evaluation->stride];
}

/* How many of score[n] are less than `own`, and how many equal; NaN is neither. */
VECTOR_CLONES
static void kge_count(uint32_t n, const float *score, float own, uint32_t *less, uint32_t *equal) {
    uint32_t below = 0, same = 0;
    for (uint32_t i = 0; i < n; i++) {
        below += score[i] < own;
        same += score[i] == own;
    }
    *less = below;
    *equal = same;
}

/* The filtered rank of one answer among score[entities]. */
static double kge_rank(const kge_evaluation *evaluation, kge_side side, kge_triple triple, const float *score) {
    uint32_t n = evaluation->graph->entities.n, less, equal;
    uint32_t target = side == KGE_TAILS ? triple.tail : triple.head;
    float own = score[target];
    kge_count(n, score, own, &less, &equal);
    double rivals = (double)n - less - equal, ties = (double)equal - (own == own);
    const kge_triple *answer;
    uint64_t known = kge_index_answers(evaluation->known, side, side == KGE_TAILS ? triple.head : triple.tail,
                                       triple.relation, &answer);
    for (uint64_t i = 0; i < known; i++) {
        uint32_t other = side == KGE_TAILS ? answer[i].tail : answer[i].head;
        if (other == target) continue;
        if (score[other] == own)
            ties--;
        else if (!(score[other] < own))
            rivals--;
    }
    if (own != own) rivals--; /* undoes counting itself, because NaN is not below itself */
    return 1.0 + rivals + ties / 2;
}

static void kge_eval_block(kge_eval_job *job, uint64_t block, float *anchor, float *relation, float *query,
                           float *score) {
    const kge_evaluation *evaluation = job->evaluation;
    const kge_model *model = evaluation->model;
    uint32_t entities = evaluation->graph->entities.n, inverse = model->reciprocal ? evaluation->graph->relations.n : 0;
    size_t bytes = model->dim * sizeof(float);
    uint64_t from = block * job->block, to = from + job->block < job->triples ? from + job->block : job->triples;
    for (int s = 0; s < 2; s++) {
        kge_side side = (kge_side)s;
        for (uint64_t i = from; i < to; i++) {
            kge_triple triple = kge_eval_triple(evaluation, i);
            uint32_t end = s ? triple.tail : triple.head, row = triple.relation + (s ? inverse : 0);
            memcpy(anchor + (i - from) * model->dim, evaluation->entities + (size_t)end * model->dim, bytes);
            memcpy(relation + (i - from) * model->dim, evaluation->relations + (size_t)row * model->dim, bytes);
        }
        kge_queries(model, side, (uint32_t)(to - from), anchor, relation, query);
        kge_rows queries = {(uint32_t)(to - from), query}, candidates = {entities, evaluation->entities};
        kge_ranking_scores(model, queries, candidates, job->norms, score);
        for (uint64_t i = from; i < to; i++)
            job->rank[2 * i + (uint64_t)s] =
                kge_rank(evaluation, side, kge_eval_triple(evaluation, i), score + (i - from) * entities);
    }
}

static void *kge_eval_thread(void *argument) {
    kge_eval_job *job = argument;
    const kge_evaluation *evaluation = job->evaluation;
    size_t rows = (size_t)job->block * evaluation->model->dim;
    float *memory = malloc((3 * rows + (size_t)job->block * evaluation->graph->entities.n) * sizeof *memory);
    if (!memory) {
        atomic_store(&job->failed, 1);
        return NULL;
    }
    for (uint64_t block; (block = atomic_fetch_add(&job->next, 1)) * job->block < job->triples;)
        kge_eval_block(job, block, memory, memory + rows, memory + 2 * rows, memory + 3 * rows);
    free(memory);
    return NULL;
}

/* Ranks all blocks on `threads` threads, including the calling one; on fewer if not all can be started. */
static void kge_eval_run(kge_eval_job *job, uint32_t threads) {
    pthread_t thread[64];
    uint32_t started = 0;
    while (started + 1 < threads && started < 64 && !pthread_create(&thread[started], NULL, kge_eval_thread, job))
        started++;
    kge_eval_thread(job);
    while (started) pthread_join(thread[--started], NULL);
}

/* Every nth triple is taken for a sample at random, without replacement. What a triple adds is the mean of its two
 * sides, whose ranks are not independent. */
static double kge_eval_error(const double *rank, uint64_t triples, uint64_t all, double mrr) {
    double squares = 0, n = (double)triples;
    if (triples == all) return 0;
    if (triples == 1) return NAN;
    for (uint64_t i = 0; i < triples; i++) {
        double deviation = (1.0 / rank[2 * i] + 1.0 / rank[2 * i + 1]) / 2 - mrr;
        squares += deviation * deviation;
    }
    return sqrt(squares / (n - 1) / n * (1 - n / (double)all));
}

static void kge_eval_summary(kge_metrics *metrics, const double *rank, uint64_t triples, uint64_t all) {
    *metrics = (kge_metrics){.triples = triples};
    for (uint64_t i = 0; i < 2 * triples; i++) {
        metrics->mrr += 1.0 / rank[i];
        metrics->mr += rank[i];
        metrics->hits1 += rank[i] <= 1.0;
        metrics->hits3 += rank[i] <= 3.0;
        metrics->hits10 += rank[i] <= 10.0;
    }
    double n = 2.0 * (double)triples;
    metrics->mrr /= n;
    metrics->mr /= n;
    metrics->hits1 /= n;
    metrics->hits3 /= n;
    metrics->hits10 /= n;
    metrics->mrr_error = kge_eval_error(rank, triples, all, metrics->mrr);
}

uint32_t kge_evaluation_stride(const kge_split *split, uint64_t sample) {
    return sample && split->n > sample ? (uint32_t)(split->n / sample) : 1;
}

int kge_evaluate(const kge_evaluation *evaluation, kge_metrics *metrics, double *ranks, program_error *error) {
    uint32_t entities = evaluation->graph->entities.n, block = KGE_EVAL_SCORES / (entities ? entities : 1);
    uint64_t triples = (evaluation->split->n + evaluation->stride - 1) / evaluation->stride;
    if (!triples) return program_fail(error, "no triple to evaluate");
    block = block < 1 ? 1 : block > KGE_EVAL_BLOCK ? KGE_EVAL_BLOCK : block;
    float *norms = malloc(((size_t)entities + 1) * sizeof *norms);
    double *rank = ranks ? ranks : malloc(2 * triples * sizeof *rank);
    kge_eval_job job = {.evaluation = evaluation, .norms = norms, .rank = rank, .triples = triples, .block = block};
    int failed = !norms || !rank;
    if (!failed) {
        kge_norms(evaluation->model, entities, evaluation->entities, norms);
        kge_eval_run(&job, evaluation->threads);
        failed = atomic_load(&job.failed);
    }
    if (!failed) kge_eval_summary(metrics, rank, triples, evaluation->split->n);
    free(norms);
    if (rank != ranks) free(rank);
    return failed ? program_fail(error, "out of memory for the ranks of %llu triples", (unsigned long long)triples) : 0;
}
