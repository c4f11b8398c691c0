/* Filtered ranking of triples, in parallel. */
#include "trainers/kge/eval.h"
#include "trainers/common/vector.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Scores of a chunk of questions against a set of candidates are kept at once: about this many floats a thread. */
#define KGE_EVAL_SCORES (1u << 22)
/* Queries of a group of triples are kept while all candidates pass: at most this many floats, of both sides. */
#define KGE_EVAL_QUERIES (UINT64_C(1) << 24)
enum { KGE_EVAL_CHUNK = 256, KGE_EVAL_PIECE = 1024 };

/* What is found of a question while sets of candidates pass. */
typedef struct kge_standing {
    float own;
    int64_t rivals, ties; /* better ones; others with the same score */
} kge_standing;

typedef struct kge_eval_job {
    const kge_evaluation *evaluation;
    uint32_t chunk, width; /* triples of a chunk; entities of a set */
    int one;               /* all entities are in one set, which has each answer's own score */
    uint64_t first, n;     /* the group: triples of the sample */
    kge_triple *triple;    /* [n] */
    float *query[2];       /* [n][dim], by side */
    float *answer[2];      /* the same, of the right answers; NULL: `one` */
    kge_standing *standing[2];
    float *room; /* of kge_ask */
    /* A round: chunks from `next` to `end`, each against a set of its own, or all against the first one; or `own`:
     * their own scores are computed. */
    kge_candidates *set;
    uint32_t sets;
    uint64_t begin, end;
    int own;
    atomic_uint_least64_t next;
    atomic_uint thread; /* numbers threads */
    float *memory;      /* [threads][thread_floats] */
    size_t thread_floats;
} kge_eval_job;

/* ---- Questions ----------------------------------------------------------------------------------------- */

int kge_ask(const kge_model *model, uint32_t relations, const kge_reader *reader, const kge_asking_for *asking,
            program_error *error) {
    uint32_t ids[KGE_EVAL_PIECE], n;
    int tails = asking->side == KGE_TAILS;
    uint32_t inverse = model->reciprocal && !tails ? relations : 0;
    for (uint32_t from = 0; from < asking->n; from += n) {
        n = asking->n - from < KGE_EVAL_PIECE ? asking->n - from : KGE_EVAL_PIECE;
        size_t at = (size_t)from * model->dim;
        float *anchor = asking->room, *relation = anchor + (size_t)n * model->dim;
        const kge_triple *triple = asking->triples + from;
        for (uint32_t i = 0; i < n; i++) ids[i] = tails ? triple[i].head : triple[i].tail;
        if (reader->read(reader->of, 0, ids, n, anchor, error)) return -1;
        for (uint32_t i = 0; i < n; i++) ids[i] = triple[i].relation + inverse;
        if (reader->read(reader->of, 1, ids, n, relation, error)) return -1;
        for (uint32_t i = 0; i < n; i++) ids[i] = tails ? triple[i].tail : triple[i].head;
        if (asking->answer && reader->read(reader->of, 0, ids, n, asking->answer + at, error)) return -1;
        kge_queries(model, asking->side, n, anchor, relation, asking->query + at);
    }
    return 0;
}

/* ---- Ranks --------------------------------------------------------------------------------------------- */

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

/* This candidate counts no more, if it is in the set. */
static void kge_leave_out(kge_standing *standing, const kge_candidates *set, const float *score, uint32_t id) {
    uint32_t at = kge_candidates_from(set, id);
    if (at == set->n || set->ids[at] != id) return;
    if (score[at] == standing->own)
        standing->ties--;
    else if (!(score[at] < standing->own)) /* NaN is not below itself */
        standing->rivals--;
}

/* Adds a set's candidates, with score[set->n], to the standing of a question. */
static void kge_stand(const kge_evaluation *evaluation, kge_side side, kge_triple triple, const kge_candidates *set,
                      const float *score, kge_standing *standing) {
    uint32_t less, equal, target = side == KGE_TAILS ? triple.tail : triple.head;
    const kge_triple *answer;
    if (!set->n) return;
    kge_count(set->n, score, standing->own, &less, &equal);
    standing->rivals += (int64_t)set->n - less - equal;
    standing->ties += equal;
    kge_leave_out(standing, set, score, target);
    uint64_t low = 0, known = kge_index_answers(evaluation->known, side, side == KGE_TAILS ? triple.head : triple.tail,
                                                triple.relation, &answer);
    for (uint64_t high = known; low < high;) { /* the first answer that is not below the first candidate */
        uint64_t middle = low + (high - low) / 2;
        if ((side == KGE_TAILS ? answer[middle].tail : answer[middle].head) < set->ids[0])
            low = middle + 1;
        else
            high = middle;
    }
    for (uint64_t i = low; i < known; i++) {
        uint32_t other = side == KGE_TAILS ? answer[i].tail : answer[i].head;
        if (other > set->ids[set->n - 1]) break;
        if (other != target) kge_leave_out(standing, set, score, other);
    }
}

/* The scores of right answers, by a product of the shape that all others have. */
static void kge_own_scores(const kge_eval_job *job, kge_side side, uint64_t from, uint32_t n, float *memory) {
    const kge_model *model = job->evaluation->model;
    size_t dim = model->dim, width = job->width, at = (from - job->first) * dim;
    float *score = memory, *rows = score + (size_t)job->chunk * width, *norms = rows + width * dim;
    memcpy(rows, job->answer[side] + at, n * dim * sizeof *rows);
    memset(rows + n * dim, 0, (width - n) * dim * sizeof *rows);
    kge_norms(model, job->width, rows, norms);
    kge_ranking_scores(model, (kge_rows){n, job->query[side] + at}, (kge_rows){job->width, rows}, norms, score);
    for (uint32_t i = 0; i < n; i++) job->standing[side][from - job->first + i].own = score[i * width + i];
}

static void kge_eval_chunk(const kge_eval_job *job, uint64_t number, const kge_candidates *set, float *memory) {
    const kge_evaluation *evaluation = job->evaluation;
    const kge_model *model = evaluation->model;
    uint64_t from = number * job->chunk, left = job->first + job->n - from;
    uint32_t n = left < job->chunk ? (uint32_t)left : job->chunk;
    for (int s = 0; s < 2; s++) {
        if (job->own) {
            kge_own_scores(job, (kge_side)s, from, n, memory);
            continue;
        }
        kge_rows queries = {n, job->query[s] + (from - job->first) * model->dim};
        kge_ranking_scores(model, queries, (kge_rows){job->width, set->rows}, set->norms, memory);
        for (uint32_t i = 0; i < n; i++) {
            kge_triple triple = job->triple[from - job->first + i];
            kge_standing *standing = &job->standing[s][from - job->first + i];
            const float *score = memory + (size_t)i * job->width;
            if (job->one) standing->own = score[s ? triple.head : triple.tail];
            kge_stand(evaluation, (kge_side)s, triple, set, score, standing);
        }
    }
}

/* ---- Rounds -------------------------------------------------------------------------------------------- */

static void *kge_eval_thread(void *argument) {
    kge_eval_job *job = argument;
    float *memory = job->memory + atomic_fetch_add(&job->thread, 1) * job->thread_floats;
    for (uint64_t chunk; (chunk = atomic_fetch_add(&job->next, 1)) < job->end;)
        kge_eval_chunk(job, chunk, &job->set[job->sets > 1 ? chunk - job->begin : 0], memory);
    return NULL;
}

/* Chunks `begin` to `end` - 1 on all threads, including the calling one; on fewer if not all can be started. */
static void kge_eval_round(kge_eval_job *job, uint64_t begin, uint64_t end) {
    pthread_t thread[64];
    uint32_t started = 0, threads = job->evaluation->threads;
    if (job->evaluation->gives) return;
    job->begin = begin, job->end = end;
    atomic_store(&job->next, begin), atomic_store(&job->thread, 0);
    while (started + 1 < threads && started + 1 < end - begin && started < 64 &&
           !pthread_create(&thread[started], NULL, kge_eval_thread, job))
        started++;
    kge_eval_thread(job);
    while (started) pthread_join(thread[--started], NULL);
}

/* Against all entities, a set after the other. */
static int kge_eval_all(kge_eval_job *job, uint64_t begin, uint64_t end, program_error *error) {
    uint32_t entities = job->evaluation->graph->entities.n;
    for (uint64_t first = 0; first < entities; first += job->width) {
        uint32_t n = entities - first < job->width ? (uint32_t)(entities - first) : job->width;
        if (kge_candidates_span(job->set, (uint32_t)first, n, error)) return -1;
        kge_eval_round(job, begin, end);
    }
    return 0;
}

/* Each chunk against candidates of its own. */
static int kge_eval_some(kge_eval_job *job, uint64_t begin, uint64_t end, program_error *error) {
    const kge_evaluation *evaluation = job->evaluation;
    uint64_t key = random_at(evaluation->seed, 7);
    for (uint64_t from = begin; from < end; from += job->sets) {
        uint64_t to = end - from < job->sets ? end : from + job->sets;
        for (uint64_t chunk = from; chunk < to; chunk++)
            if (kge_candidates_draw(&job->set[chunk - from], evaluation->candidates, evaluation->graph->entities.n,
                                    random_at(key, chunk), error))
                return -1;
        kge_eval_round(job, from, to);
    }
    return 0;
}

/* Ranks the triples of a group: rank[2 * n]. */
static int kge_eval_group(kge_eval_job *job, double *rank, program_error *error) {
    const kge_evaluation *evaluation = job->evaluation;
    uint64_t begin = job->first / job->chunk, end = (job->first + job->n + job->chunk - 1) / job->chunk;
    for (uint64_t i = 0; i < job->n; i++)
        job->triple[i] = evaluation->split->triples[(job->first + i) * evaluation->stride];
    for (int s = 0; s < 2; s++) {
        kge_asking_for asking = {(kge_side)s, (uint32_t)job->n, job->triple, job->room, job->query[s], job->answer[s]};
        if (kge_ask(evaluation->model, evaluation->graph->relations.n, &evaluation->reader, &asking, error)) return -1;
        memset(job->standing[s], 0, job->n * sizeof *job->standing[s]);
    }
    job->own = 1;
    if (!job->one) kge_eval_round(job, begin, end);
    job->own = 0;
    if (evaluation->candidates ? kge_eval_some(job, begin, end, error) : kge_eval_all(job, begin, end, error))
        return -1;
    for (uint64_t i = 0; i < 2 * job->n; i++) {
        const kge_standing *standing = &job->standing[i % 2][i / 2];
        rank[i] = 1.0 + (double)standing->rivals + (double)standing->ties / 2;
    }
    return 0;
}

/* ---- Metrics ------------------------------------------------------------------------------------------- */

static double kge_reciprocal(const double *rank, uint64_t i) {
    return (1.0 / rank[2 * i] + 1.0 / rank[2 * i + 1]) / 2;
}

/* Every nth triple is taken for a sample at random, without replacement. What a triple adds is the mean of its two
 * sides, whose ranks are not independent; nor are those of a batch that shares candidates, so then it is the mean of
 * the batch. */
static double kge_eval_error(const kge_evaluation *evaluation, const double *rank, uint64_t triples, double mrr) {
    uint64_t all = evaluation->split->n, batch = evaluation->candidates ? KGE_EVAL_BATCH : 1;
    double squares = 0, n = (double)triples, parts = (double)((triples + batch - 1) / batch);
    if (batch == 1 && triples == all) return 0;
    if (parts <= 1) return NAN;
    for (uint64_t from = 0; from < triples; from += batch) {
        double sum = 0;
        for (uint64_t i = from; i < triples && i < from + batch; i++) sum += kge_reciprocal(rank, i) - mrr;
        squares += sum * sum;
    }
    return sqrt(squares * parts / (parts - 1) / n / n * (batch > 1 ? 1 : 1 - n / (double)all));
}

static void kge_eval_summary(const kge_evaluation *evaluation, kge_metrics *metrics, const double *rank,
                             uint64_t triples) {
    *metrics = (kge_metrics){.triples = triples, .candidates = evaluation->candidates};
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
    metrics->mrr_error = kge_eval_error(evaluation, rank, triples, metrics->mrr);
}

uint32_t kge_evaluation_stride(const kge_split *split, uint64_t sample) {
    return sample && split->n > sample ? (uint32_t)(split->n / sample) : 1;
}

/* ---- A ranking ----------------------------------------------------------------------------------------- */

static void kge_eval_close(kge_eval_job *job) {
    for (int s = 0; s < 2; s++) {
        free(job->query[s]);
        free(job->answer[s]);
        free(job->standing[s]);
    }
    for (uint32_t i = 0; job->set && i < job->sets; i++) kge_candidates_close(&job->set[i]);
    free(job->set);
    free(job->triple);
    free(job->room);
    free(job->memory);
}

/* For groups of at most n triples. */
static int kge_eval_open(kge_eval_job *job, uint64_t n, program_error *error) {
    const kge_evaluation *evaluation = job->evaluation;
    size_t dim = evaluation->model->dim, piece = n < KGE_EVAL_PIECE ? n : KGE_EVAL_PIECE;
    uint32_t threads = evaluation->threads ? evaluation->threads : 1;
    int there = 1;
    job->sets = evaluation->candidates ? threads : 1;
    job->thread_floats = (size_t)job->chunk * job->width + (job->one ? 0 : (dim + 1) * job->width);
    job->memory = malloc((threads * job->thread_floats + 1) * sizeof *job->memory);
    job->room = malloc(2 * piece * dim * sizeof *job->room);
    job->triple = malloc(n * sizeof *job->triple);
    job->set = calloc(job->sets, sizeof *job->set);
    for (int s = 0; s < 2; s++) {
        job->query[s] = malloc(n * dim * sizeof *job->query[s]);
        job->answer[s] = job->one ? NULL : malloc(n * dim * sizeof *job->answer[s]);
        job->standing[s] = malloc(n * sizeof *job->standing[s]);
        there = there && job->query[s] && (job->one || job->answer[s]) && job->standing[s];
    }
    if (!there || !job->memory || !job->room || !job->triple || !job->set)
        return program_fail(error, "out of memory to rank %llu triples at a time", (unsigned long long)n);
    for (uint32_t i = 0; i < job->sets; i++)
        if (kge_candidates_open(&job->set[i], evaluation->model, &evaluation->reader, job->width, error)) return -1;
    return 0;
}

/* How many triples make a chunk, a product. */
static uint32_t kge_eval_chunk_size(const kge_eval_job *job) {
    uint32_t chunk = KGE_EVAL_SCORES / job->width;
    if (job->evaluation->candidates) return KGE_EVAL_BATCH;
    if (!job->one && chunk > job->width) chunk = job->width; /* their answers are one set */
    return chunk < 1 ? 1 : chunk > KGE_EVAL_CHUNK ? KGE_EVAL_CHUNK : chunk;
}

int kge_evaluate(const kge_evaluation *evaluation, kge_metrics *metrics, double *ranks, program_error *error) {
    uint32_t entities = evaluation->graph->entities.n, some = evaluation->candidates;
    uint64_t triples = (evaluation->split->n + evaluation->stride - 1) / evaluation->stride;
    if (!triples) return program_fail(error, "no triple to evaluate");
    kge_eval_job job = {.evaluation = evaluation};
    job.width = some ? (some + KGE_CANDIDATES_STEP - 1) / KGE_CANDIDATES_STEP * KGE_CANDIDATES_STEP
                     : kge_candidates_width(entities, evaluation->model->dim);
    job.one = !some && job.width == entities;
    job.chunk = kge_eval_chunk_size(&job);
    uint64_t group = KGE_EVAL_QUERIES / 2 / evaluation->model->dim / job.chunk * job.chunk;
    if (group < job.chunk) group = job.chunk;
    if (group > triples) group = triples;
    double *rank = ranks ? ranks : malloc(2 * triples * sizeof *rank);
    int status = rank ? kge_eval_open(&job, group, error) : program_fail(error, "out of memory for ranks");
    for (uint64_t first = 0; first < triples && !status; first += group) {
        job.first = first, job.n = triples - first < group ? triples - first : group;
        status = kge_eval_group(&job, rank + 2 * first, error);
    }
    if (!status && !evaluation->gives) kge_eval_summary(evaluation, metrics, rank, triples);
    kge_eval_close(&job);
    if (rank != ranks) free(rank);
    return status;
}
