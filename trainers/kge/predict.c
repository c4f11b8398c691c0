/* Questions from a file, and their best answers. */
#include "trainers/kge/predict.h"
#include "trainers/kge/eval.h"
#include "trainers/kge/folder.h"
#include "trainers/common/vector.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading questions --------------------------------------------------------------------------------- */

typedef struct kge_wish_reader {
    const kge_graph *graph;
    kge_map entities, relations;
    kge_folder folder;
} kge_wish_reader;

static int kge_wish_id(kge_wish_reader *reader, const char *name, int relation, uint32_t *id, program_error *error) {
    const kge_names *names = relation ? &reader->graph->relations : &reader->graph->entities;
    char what[160];
    *id = kge_map_find(relation ? &reader->relations : &reader->entities, names, name);
    if (*id != UINT32_MAX) return 0;
    snprintf(what, sizeof what, "'%.60s' is no %s of the %" PRIu32 " that have rows; names are compared byte by byte",
             name, relation ? "relation" : "entity", names->n);
    return kge_line_fail(&reader->folder, error, what);
}

static int kge_wish_line(kge_wish_reader *reader, char *line, kge_wish *wish, program_error *error) {
    char *field[3];
    uint32_t n = kge_fields(line, field);
    int asks_head = n == 3 && !strcmp(field[0], "?"), asks_tail = n == 3 && !strcmp(field[2], "?");
    *wish = (kge_wish){.wanted = asks_head ? KGE_ASK_HEADS : asks_tail ? KGE_ASK_TAILS : KGE_ASK_NEAREST};
    if (n == 1) return kge_wish_id(reader, field[0], 0, &wish->triple.head, error);
    if (asks_head == asks_tail)
        return kge_line_fail(&reader->folder, error,
                             "no question: write head<TAB>relation<TAB>?, ?<TAB>relation<TAB>tail, or an entity alone");
    if (kge_wish_id(reader, field[1], 1, &wish->triple.relation, error)) return -1;
    return asks_head ? kge_wish_id(reader, field[2], 0, &wish->triple.tail, error)
                     : kge_wish_id(reader, field[0], 0, &wish->triple.head, error);
}

static int kge_wishes_fill(kge_wishes *wishes, kge_wish_reader *reader, program_error *error) {
    uint64_t room = 0;
    char *line;
    int got;
    while ((got = kge_line(&reader->folder, &line, error)) > 0) {
        if (wishes->n == room) {
            kge_wish *more = realloc(wishes->of, (room = 2 * room + 64) * sizeof *more);
            if (!more) return program_fail(error, "out of memory for %" PRIu64 " questions", room);
            wishes->of = more;
        }
        if (kge_wish_line(reader, line, &wishes->of[wishes->n], error)) return -1;
        wishes->n++;
    }
    return got;
}

int kge_wishes_read(kge_wishes *wishes, const char *path, const kge_graph *graph, program_error *error) {
    const char *cut = strrchr(path, '/');
    char *folder = cut ? strndup(path, (size_t)(cut - path)) : strdup(".");
    kge_wish_reader reader = {.graph = graph, .folder = {.path = folder}};
    *wishes = (kge_wishes){.of = NULL};
    int status = folder ? 0 : program_fail(error, "out of memory");
    if (!status) status = kge_map_build(&reader.entities, &graph->entities, error);
    if (!status) status = kge_map_build(&reader.relations, &graph->relations, error);
    int got = status ? 0 : kge_file_open(&reader.folder, cut ? cut + 1 : path, error);
    if (!status && !got) status = program_fail(error, "--predict: there is no file %.300s", path);
    if (!status) status = got < 0 ? -1 : kge_wishes_fill(wishes, &reader, error);
    if (!status && !wishes->n) status = program_fail(error, "--predict %.300s has no question", path);
    kge_folder_close(&reader.folder);
    free(reader.entities.slot);
    free(reader.relations.slot);
    free(folder);
    return status;
}

void kge_wishes_free(kge_wishes *wishes) {
    free(wishes->of);
    *wishes = (kge_wishes){.of = NULL};
}

/* ---- The best answers ---------------------------------------------------------------------------------- */

typedef struct kge_answer {
    float score;
    uint32_t entity;
} kge_answer;

/* The best so far, and some that may be; `least`: what is no better is none. */
typedef struct kge_best {
    kge_answer *of; /* [2 * top] */
    uint32_t n;
    float least;
} kge_best;

static int kge_compare_answers(const void *a, const void *b) {
    const kge_answer *x = a, *y = b;
    int order = (x->score < y->score) - (x->score > y->score);
    return order ? order : (x->entity > y->entity) - (x->entity < y->entity);
}

static void kge_best_cut(kge_best *best, uint32_t top) {
    qsort(best->of, best->n, sizeof *best->of, kge_compare_answers);
    if (best->n < top) return;
    best->n = top;
    best->least = best->of[top - 1].score;
}

static void kge_best_add(kge_best *best, uint32_t top, uint32_t entity, float score) {
    if (isnan(score)) score = -INFINITY;
    if (best->n >= top && !(score > best->least)) return; /* entities come rising, so the first of a tie stays */
    best->of[best->n++] = (kge_answer){score, entity};
    if (best->n == 2 * top) kge_best_cut(best, top);
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

enum { KGE_ASKED_AT_ONCE = 256 };

typedef struct kge_predictor {
    const kge_prediction *p;
    uint32_t top;
    kge_candidates set;
    kge_triple *triple;   /* [KGE_ASKED_AT_ONCE], as of all below */
    float *query, *score; /* [][dim], [][width] */
    float *room;          /* of kge_ask */
    kge_best *best;
    kge_answer *answers;
    kge_index known;
} kge_predictor;

static void kge_predictor_close(kge_predictor *r) {
    kge_candidates_close(&r->set);
    kge_index_free(&r->known);
    free(r->triple);
    free(r->query);
    free(r->score);
    free(r->room);
    free(r->best);
    free(r->answers);
}

static int kge_predictor_open(kge_predictor *r, const kge_prediction *p, program_error *error) {
    size_t dim = p->model->dim;
    uint32_t width = kge_candidates_width(p->graph->entities.n, p->model->dim);
    const size_t chunk = KGE_ASKED_AT_ONCE;
    *r = (kge_predictor){.p = p};
    r->top = p->top < p->graph->entities.n ? p->top : p->graph->entities.n;
    r->triple = calloc(chunk, sizeof *r->triple);
    r->query = malloc(chunk * dim * sizeof *r->query);
    r->score = malloc(chunk * width * sizeof *r->score);
    r->room = malloc(2 * chunk * dim * sizeof *r->room);
    r->best = calloc(chunk, sizeof *r->best);
    r->answers = malloc(2 * chunk * r->top * sizeof *r->answers);
    if (!r->triple || !r->query || !r->score || !r->room || !r->best || !r->answers)
        return program_fail(error, "out of memory for the best %" PRIu32 " answers; use a smaller --top", r->top);
    return kge_candidates_open(&r->set, p->model, &p->reader, width, error);
}

/* The queries of wishes[n], all of one kind. */
static int kge_predictor_ask(kge_predictor *r, const kge_wish *wish, uint32_t n, program_error *error) {
    const kge_prediction *p = r->p;
    uint32_t ids[KGE_ASKED_AT_ONCE];
    for (uint32_t i = 0; i < n; i++) r->triple[i] = wish[i].triple, ids[i] = wish[i].triple.head;
    if (wish->wanted == KGE_ASK_NEAREST) return p->reader.read(p->reader.of, 0, ids, n, r->query, error);
    kge_asking_for asking = {
        .side = (kge_side)wish->wanted, .n = n, .triples = r->triple, .room = r->room, .query = r->query};
    return kge_ask(p->model, p->graph->relations.n, &p->reader, &asking, error);
}

/* score[queries][rows]: products by both lengths. The few queries stay near while the rows pass once. */
VECTOR_CLONES
static void kge_cosines(uint32_t dim, kge_rows queries, kge_rows rows, float *score) {
    float length[KGE_ASKED_AT_ONCE];
    for (size_t i = 0; i < queries.n; i++)
        length[i] = sqrtf(vector_dot(dim, queries.at + i * dim, queries.at + i * dim));
    for (size_t j = 0; j < rows.n; j++) {
        const float *row = rows.at + j * dim;
        float own = sqrtf(vector_dot(dim, row, row));
        for (size_t i = 0; i < queries.n; i++) {
            float both = length[i] * own, product = vector_dot(dim, queries.at + i * dim, row);
            score[i * rows.n + j] = both <= 0 ? 0.0f : product / both; /* NaN stays NaN */
        }
    }
}

/* All entities, a set after the other. */
static int kge_predictor_score(kge_predictor *r, const kge_wish *wish, uint32_t n, program_error *error) {
    const kge_model *model = r->p->model;
    uint32_t entities = r->p->graph->entities.n, width = r->set.width;
    int nearest = wish->wanted == KGE_ASK_NEAREST;
    for (uint32_t i = 0; i < n; i++)
        r->best[i] = (kge_best){.of = r->answers + (size_t)2 * i * r->top, .least = -INFINITY};
    for (uint64_t first = 0; first < entities; first += width) {
        uint32_t here = entities - first < width ? (uint32_t)(entities - first) : width;
        kge_rows queries = {n, r->query}, rows = {width, r->set.rows};
        if (kge_candidates_span(&r->set, (uint32_t)first, here, error)) return -1;
        if (nearest)
            kge_cosines(model->dim, queries, rows, r->score);
        else
            kge_ranking_scores(model, queries, rows, r->set.norms, r->score);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < here; j++)
                if (!nearest || wish[i].triple.head != first + j)
                    kge_best_add(&r->best[i], r->top, (uint32_t)first + j, r->score[(size_t)i * width + j]);
    }
    for (uint32_t i = 0; i < n; i++) kge_best_cut(&r->best[i], r->top);
    return 0;
}

/* ---- Printing ------------------------------------------------------------------------------------------ */

/* Distances are ranked by 2 q.e - |e|^2, which lacks |q|^2. */
static float kge_shown_score(const kge_model *model, const float *query, float score) {
    if (!KGE_HAS_L2(model->kind)) return score;
    float square = vector_dot(model->dim, query, query) - score;
    return -sqrtf(square < 0 ? 0 : square); /* NaN stays NaN */
}

static int kge_is_known(const kge_index *known, const kge_wish *wish, uint32_t entity) {
    kge_side side = (kge_side)wish->wanted;
    const kge_triple *answer;
    uint64_t n = kge_index_answers(known, side, side == KGE_TAILS ? wish->triple.head : wish->triple.tail,
                                   wish->triple.relation, &answer);
    for (uint64_t i = 0; i < n; i++)
        if ((side == KGE_TAILS ? answer[i].tail : answer[i].head) == entity) return 1;
    return 0;
}

static void kge_print_answer(const kge_predictor *r, const kge_wish *wish, const float *query, kge_answer answer) {
    const kge_graph *graph = r->p->graph;
    const char *name = kge_name(&graph->entities, answer.entity);
    if (wish->wanted == KGE_ASK_NEAREST) {
        printf("%s\t%s\t%.6g\n", kge_name(&graph->entities, wish->triple.head), name, (double)answer.score);
        return;
    }
    int heads = wish->wanted == KGE_ASK_HEADS;
    printf("%s\t%s\t%s\t%.6g", heads ? name : kge_name(&graph->entities, wish->triple.head),
           kge_name(&graph->relations, wish->triple.relation),
           heads ? kge_name(&graph->entities, wish->triple.tail) : name,
           (double)kge_shown_score(r->p->model, query, answer.score));
    if (graph->split[KGE_TRAIN].n) printf("\t%s", kge_is_known(&r->known, wish, answer.entity) ? "known" : "new");
    putchar('\n');
}

static int kge_predictor_index(kge_predictor *r, const kge_wishes *wishes, program_error *error) {
    kge_split asked = {malloc((wishes->n + 1) * sizeof *asked.triples), wishes->n};
    if (!asked.triples) return program_fail(error, "out of memory for %" PRIu64 " questions", wishes->n);
    for (uint64_t i = 0; i < wishes->n; i++) asked.triples[i] = wishes->of[i].triple;
    int status = kge_index_build(&r->known, r->p->graph, &asked, error);
    free(asked.triples);
    return status;
}

int kge_predict(const kge_prediction *prediction, const kge_wishes *wishes, program_error *error) {
    kge_predictor r;
    int status = kge_predictor_open(&r, prediction, error);
    if (!status) status = kge_predictor_index(&r, wishes, error);
    for (uint64_t from = 0, n = 0; from < wishes->n && !status; from += n) {
        const kge_wish *wish = wishes->of + from;
        for (n = 0; n < KGE_ASKED_AT_ONCE && from + n < wishes->n && wish[n].wanted == wish->wanted;) n++;
        status = kge_predictor_ask(&r, wish, (uint32_t)n, error);
        if (!status) status = kge_predictor_score(&r, wish, (uint32_t)n, error);
        for (uint64_t i = 0; i < n && !status; i++)
            for (uint32_t k = 0; k < r.best[i].n; k++)
                kge_print_answer(&r, &wish[i], r.query + i * prediction->model->dim, r.best[i].of[k]);
    }
    kge_predictor_close(&r);
    return status;
}
