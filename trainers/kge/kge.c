/* kge: trains the knowledge graph models of the paper on Frugal, end to end.
 *
 *     kge --data fb15k-237                  read, train, rank the test triples
 *     kge --generate --devices 2            the same on a generated graph
 *     kge --load OUT --predict questions    the best answers of a saved set
 *
 * Here: options (the command line), data and generate (graphs; from folder and arrays), check (what looks wrong in a
 * graph; uses columns), place (triples to devices), sample (batches), model (scores, losses, gradients; uses query,
 * loss.h, n3), all (the same against all entities, of KvsAll's questions from question), kge_cuda (the same on a GPU,
 * where it is built with CUDA), train (the loop over Frugal), pilot (short trainings that choose the weight of N3 and
 * the damping), damping (weights of questions), state and describe (for checkpoints), eval (ranking) and predict (both
 * by candidates), save (names), load (saved sets). In trainers/common, what the programs share: stages (a program that
 * trains, from its options to its exit status), settings (options that all have), placing (--place; uses partition),
 * secondaries (uses placing), training (threads, devices), processes (--processes), ranks (several machines), report,
 * progress, save (sets of files; uses manifest, file, crc32), checkpointing (when, and what; uses checkpoint,
 * identity), best (the best evaluation), options, program, vector.h.
 */
#include "trainers/kge/columns.h"
#include "trainers/kge/describe.h"
#include "trainers/kge/eval.h"
#include "trainers/kge/pilot.h"
#include "trainers/kge/place.h"
#include "trainers/kge/predict.h"
#include "trainers/kge/save.h"
#include "trainers/common/stages.h"
#include "trainers/common/manifest.h"
#include "trainers/common/ranks.h"
#include "trainers/common/save.h"
#include "trainers/common/training.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct kge_program {
    stages stages; /* first */
    kge_options options;
    char inputs[KGE_GRAPH_FILES + KGE_LAYOUT_FILES][MANIFEST_LONGEST_PATH];
    const char *input[KGE_GRAPH_FILES + KGE_LAYOUT_FILES + 1]; /* of these, and a NULL */
    kge_graph graph;
    kge_findings findings;
    kge_wishes wishes; /* of --predict */
    kge_index known;
    placing placing;
    secondaries secondaries;
    kge_state resumed; /* the state of the checkpoint that the training resumes from, while it is opened */
    kge_trainer *trainer;
    kge_metrics metrics;
    double seen_mrr; /* of the ranked triples whose names train has; NaN: not known, or there are none */
    uint64_t seen;   /* how many these are */
    double pilot_seconds;
    int learns; /* a report had a loss below that of guessing; or it was told that none has */
} kge_program;

static kge_program *kge_of(stages *c) {
    return (kge_program *)c;
}

static training_report kge_total(const stages *c) {
    return kge_trainer_total(((const kge_program *)c)->trainer);
}

/* ---- Before the training ------------------------------------------------------------------------------- */

static int kge_parse(stages *c, int argc, char **argv, program_error *error) {
    kge_program *program = kge_of(c);
    if (kge_options_parse(&program->options, argc, argv, error)) return -1;
    c->outputs = program->options.outputs;
    c->settings = &program->options.train.common;
    c->saved = kge_saved_files, c->n_saved = KGE_SAVED_FILES;
    c->kept[0] = placing_file(c->settings->place);
    c->kept[1] = program->options.predict;
    c->kept[2] = program->options.train.table_file;
    const kge_layout *layout = &program->options.layout;
    c->files = program->input;
    for (int i = 0, n = 0; program->options.data && i < KGE_GRAPH_FILES + KGE_LAYOUT_FILES; i++) {
        char *path = program->inputs[i];
        const char *file = i < KGE_GRAPH_FILES ? kge_graph_files[i] : layout->file[i - KGE_GRAPH_FILES];
        if (file && snprintf(path, sizeof program->inputs[i], "%s/%s", program->options.data, file) <
                        (int)sizeof program->inputs[i]) /* reading refuses a path of that length */
            program->input[n++] = path;
    }
    return 0;
}

/* The split that is to be ranked must have triples. */
static int kge_check_splits(const kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    const kge_split *split = program->graph.split;
    for (int i = KGE_VALID; i < KGE_SPLITS; i++)
        if (!split[i].n)
            fprintf(stderr, "no %s triples: rankings are not filtered by them\n", kge_split_name((kge_split_kind)i));
    int wanted[] = {options->evaluate, options->outputs.eval_every ? KGE_VALID : -1};
    for (int i = 0; i < 2; i++)
        if (wanted[i] >= 0 && !split[wanted[i]].n)
            return program_fail(error, "%s has no %s triples to rank; use --eval none%s",
                                options->data ? options->data : "the graph", kge_split_name((kge_split_kind)wanted[i]),
                                i ? " and no --eval-every" : "");
    return 0;
}

/* On the way or at the end. */
static int kge_ranks(const kge_options *options) {
    return options->evaluate >= 0 || options->outputs.eval_every;
}

/* What looks wrong in the graph, told. Where nothing is ranked, nothing counts the training triples that come twice. */
static int kge_find_faults(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    const char *folder = options->data;
    if (kge_check_graph(&program->findings, &program->graph, error)) return -1;
    if (folder &&
        kge_check_columns(&program->findings, &program->graph, folder, options->layout.columns != NULL, error))
        return -1;
    if (kge_ranks(options) && kge_check_repeated(&program->findings, &program->graph, error)) return -1;
    kge_findings_tell(&program->findings, &program->graph);
    return 0;
}

/* The triples that are ranked, of which the answers must be known: at the end, on the way, by pilots. */
static int kge_index_ranked(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    const kge_split *split = program->graph.split, *valid = &split[KGE_VALID];
    const kge_split *ranked[3];
    uint64_t stride[3], room = 0;
    int n = 0;
    if (options->evaluate >= 0) {
        ranked[n] = &split[options->evaluate];
        stride[n++] = kge_evaluation_stride(&split[options->evaluate], options->eval_triples);
    }
    if (options->outputs.eval_every)
        ranked[n] = valid, stride[n++] = kge_evaluation_stride(valid, options->eval_sample);
    if (!kge_pilots_lack(options, &program->graph))
        ranked[n] = valid, stride[n++] = kge_evaluation_stride(valid, kge_pilot_sample(options));
    for (int r = 0; r < n; r++) room += ranked[r]->n / stride[r] + 1;
    kge_split asked = {malloc((room + 1) * sizeof *asked.triples), 0};
    if (!asked.triples) return program_fail(error, "out of memory for %" PRIu64 " triples to rank", room);
    for (int r = 0; r < n; r++)
        for (uint64_t i = 0; i < ranked[r]->n; i += stride[r]) asked.triples[asked.n++] = ranked[r]->triples[i];
    int status = n ? kge_index_build(&program->known, &program->graph, &asked, error) : 0;
    free(asked.triples);
    return status;
}

/* The graph: of files, generated, or that of the set's names. */
static int kge_get_graph(kge_program *program, program_error *error) {
    kge_options *options = &program->options;
    kge_saved *saved = &options->saved;
    kge_model *model = &options->train.model;
    if (saved->folder && kge_saved_open(saved, options->reciprocal, error)) return -1;
    if (saved->folder) model->reciprocal = saved->reciprocal;
    if (model->scoring == KGE_KVSALL && !model->reciprocal)
        return program_fail(error, "--scoring kvsall asks for heads by inverse relations, and --load %.300s has none",
                            saved->folder);
    if (options->data) return kge_graph_read_as(&program->graph, options->data, &options->layout, error);
    if (options->generate) return kge_graph_generate(&program->graph, &options->generator, error);
    return kge_saved_graph(saved, &program->graph, error);
}

static int kge_read_graph(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    if (kge_get_graph(program, error)) return -1;
    if (options->predict && kge_wishes_read(&program->wishes, options->predict, &program->graph, error)) return -1;
    if (!options->data && !options->generate) return 0; /* there are no triples */
    if (kge_options_steps(&program->options, &program->graph, error)) return -1;
    const kge_split *split = program->graph.split;
    fprintf(stderr, "%" PRIu32 " entities, %" PRIu32 " relations, %" PRIu64 " / %" PRIu64 " / %" PRIu64 " triples\n",
            program->graph.entities.n, program->graph.relations.n, split[KGE_TRAIN].n, split[KGE_VALID].n,
            split[KGE_TEST].n);
    if (options->data && !options->layout.format && !access(program->inputs[0], F_OK) &&
        !access(program->inputs[KGE_PLAIN_TRAIN], F_OK))
        fprintf(stderr, "%s holds %s and %s; the first is read\n", options->data, kge_graph_files[0],
                kge_graph_files[KGE_PLAIN_TRAIN]);
    if (kge_check_splits(program, error)) return -1;
    if (program->options.eval_candidates >= program->graph.entities.n) program->options.eval_candidates = 0;
    if (kge_index_ranked(program, error)) return -1;
    return kge_find_faults(program, error);
}

/* A file of tables has no names, so rows of another graph would be taken for this one's. */
static int kge_check_new(const char *file, int resumes, program_error *error) {
    struct stat is;
    if (!file || resumes || stat(file, &is) || !S_ISREG(is.st_mode) || !is.st_size) return 0;
    return program_fail(error,
                        "--table-file %.300s is there, and nothing says of which graph; remove it, give another name, "
                        "or go on from a checkpoint with --resume",
                        file);
}

static int kge_prepare(stages *c, program_error *error) {
    kge_program *program = kge_of(c);
    kge_settings *train = &program->options.train;
    kge_placed placed = {&program->placing, &program->secondaries};
    train->placing = &program->placing, train->secondaries = &program->secondaries;
    if (kge_read_graph(program, error)) return -1;
    c->outputs.eval_every = program->options.outputs.eval_every;
    if (kge_check_new(train->table_file, c->checkpoints.resumes, error)) return -1;
    if (kge_place(&placed, train, &program->graph, c->outputs.threads, error)) return -1;
    c->evaluates = program->options.evaluate >= 0 || program->options.predict;
    return 0;
}

/* A training that goes on has the weights that it began with. */
static int kge_take_weights(kge_program *program, program_error *error) {
    const checkpointing *k = &program->stages.checkpoints;
    kge_options *options = &program->options;
    kge_model *model = &options->train.model;
    if (options->fits_n3 && checkpointing_setting(k, "--regularization", &model->regularization, error)) return -1;
    if (options->fits_damping && checkpointing_setting(k, "--damping", &model->damping, error)) return -1;
    if (options->fits_n3 && model->regularization > 0)
        fprintf(stderr, "--regularization %g, as in %s\n", (double)model->regularization, k->found.path);
    if (options->fits_damping && model->damping != 0)
        fprintf(stderr, "--damping %g, as in %s\n", (double)model->damping, k->found.path);
    return 0;
}

static int kge_fly_pilots(kge_program *program, program_error *error) {
    kge_options *options = &program->options;
    double from = program_now();
    ranks_be_alone(1);
    int status = kge_pilots_run(options, &program->graph, &program->known, error);
    ranks_be_alone(0);
    if (!kge_ranks(options)) kge_index_free(&program->known);
    program->pilot_seconds = program_now() - from;
    return status;
}

static int kge_choose_weights(stages *c, program_error *error) {
    kge_program *program = kge_of(c);
    kge_options *options = &program->options;
    if (c->checkpoints.resumes) return kge_take_weights(program, error);
    double triples = kge_options_fit(options, &program->graph, 1);
    const char *lack = kge_pilots_lack(options, &program->graph);
    if (!lack) return kge_fly_pilots(program, error);
    if ((options->asks_pilots || options->train.common.processes > 1) && options->pilots)
        fprintf(stderr, "no pilots, because %s\n", lack);
    if (options->fits_n3 && options->train.model.regularization > 0)
        fprintf(stderr, "--regularization %g, the default for %.1f training triples an entity\n",
                (double)options->train.model.regularization, triples);
    return 0;
}

/* The weight of N3, where it is not given, and then the damping: rank 0 chooses. */
static int kge_choose(stages *c, program_error *error) {
    kge_model *model = &kge_of(c)->options.train.model;
    int status = ranks_number() ? 0 : kge_choose_weights(c, error);
    float weights[2] = {model->regularization, model->damping};
    status = ranks_share(status, weights, sizeof weights, error);
    model->regularization = weights[0], model->damping = weights[1];
    return status;
}

/* With more --patience, a training may go on that ended for want of it: the evaluations count, not the number. */
static int kge_describe_lines(stages *c, FILE *lines, program_error *error) {
    const kge_options *options = &kge_of(c)->options;
    (void)error;
    kge_describe(&options->train, &options->saved, &kge_of(c)->graph, lines);
    if (c->outputs.patience)
        fprintf(lines, "--eval-every %" PRIu64 " (the best is kept)\n--eval-sample %" PRIu32 "\n",
                c->outputs.eval_every, options->eval_sample);
    return 0;
}

static int kge_read_state(stages *c, const char *path, uint64_t *saved, program_error *error) {
    kge_state *state = &kge_of(c)->resumed;
    kge_state_free(state);
    int status = kge_state_read(state, path, error);
    *saved = state->saved;
    return status;
}

static int kge_open_trainer(kge_program *program, const char *tables, program_error *error) {
    kge_settings *train = &program->options.train;
    train->resumed = tables ? &program->resumed : NULL, train->saved = tables;
    int status = kge_trainer_open(&program->trainer, train, &program->graph, error);
    train->resumed = NULL, train->saved = NULL;
    kge_state_free(&program->resumed);
    return status;
}

enum { KGE_ENOUGH_STEPS = 1000 }; /* to see whether anything is learned: models begin slowly */

/* Tells once, at a quarter of the training or at its end, if no report had a loss below that of guessing. With weights
 * of questions, whose mean over few steps is not 1, it is the loss since the beginning. */
static void kge_watch(kge_program *program, const training_report *report, int ends) {
    if (program->learns || report->step < KGE_ENOUGH_STEPS) return;
    const kge_settings *train = &program->options.train;
    double guess = kge_trainer_guess_loss(program->trainer);
    double loss = train->model.damping != 0 ? kge_trainer_total(program->trainer).loss : report->loss;
    if (loss < KGE_LEARNED * guess) program->learns = 1;
    if (program->learns || !isfinite(loss) || (!ends && report->progress < 0.25)) return;
    program->learns = 1;
    stages_begin_words(&program->stages);
    fprintf(stderr,
            "step %" PRIu64
            "  nothing is learned yet: the loss is %.4f, and guessing has %.4f; try another --lr (it is "
            "%g)%s, or --seed\n",
            report->step, loss, guess, (double)train->common.lr,
            train->model.regularization > 0 ? ", a smaller --regularization" : "");
    stages_end_words(&program->stages);
}

static void kge_report(void *user, const training_report *report) {
    stages_report(user, report);
    kge_watch(user, report, 0);
}

static int kge_open(stages *c, const char *tables, program_error *error) {
    kge_program *program = kge_of(c);
    if (kge_open_trainer(program, tables, error)) return -1;
    const kge_saved *saved = &program->options.saved;
    kge_writer writer = kge_trainer_writer(program->trainer);
    if (saved->folder && !tables && kge_saved_read(saved, &program->graph, &writer, error)) return -1;
    placing_forget(&program->placing);
    kge_trainer_report_to(program->trainer, kge_report, c, c->outputs.report_seconds);
    return 0;
}

/* ---- The training -------------------------------------------------------------------------------------- */

static int kge_train(stages *c, uint64_t until, double pause, program_error *error) {
    kge_trainer_pause_at(kge_of(c)->trainer, pause);
    return kge_trainer_run(kge_of(c)->trainer, until, &program_signalled, error);
}

static int kge_is_done(const stages *c) {
    return kge_trainer_done(((const kge_program *)c)->trainer);
}

static void kge_report_rest(stages *c) {
    training_report total = kge_total(c);
    kge_trainer_report(kge_of(c)->trainer);
    kge_watch(kge_of(c), &total, 1);
}

static int kge_fail_diverged(const stages *c, const char *what, program_error *error) {
    return program_fail(
        error, "the training diverged: %s is no finite number, nothing is saved; use a smaller --lr (it is %g)", what,
        (double)c->settings->lr);
}

static int kge_check(stages *c, program_error *error) {
    kge_trainer_tell_rows(kge_of(c)->trainer);
    return isfinite(kge_total(c).loss) ? 0 : kge_fail_diverged(c, "its loss", error);
}

/* ---- Saving -------------------------------------------------------------------------------------------- */

enum { KGE_SAVED_AT_ONCE = 4096 };

/* Writes a table to `stream`, in pieces; without one, only reads it, as the rank that has one does. */
static int kge_write_rows(kge_program *program, uint32_t table, FILE *stream, program_error *error) {
    uint32_t dim = program->options.train.model.dim;
    training_span span = {.table = table};
    uint64_t rows = kge_trainer_rows(program->trainer, table);
    float *piece = malloc((size_t)KGE_SAVED_AT_ONCE * dim * sizeof *piece);
    int status = piece ? 0 : program_fail(error, "out of memory to read %d rows", KGE_SAVED_AT_ONCE);
    if (stream) save_begin_rows(stream, rows, dim);
    for (; span.first < rows && !status; span.first += span.n) {
        span.n = rows - span.first < KGE_SAVED_AT_ONCE ? rows - span.first : KGE_SAVED_AT_ONCE;
        status = kge_trainer_read(program->trainer, &span, piece, error);
        if (!stream || status) continue;
        if (!training_is_finite(piece, span.n * dim)) status = kge_fail_diverged(&program->stages, "a row", error);
        fwrite(piece, sizeof *piece, span.n * dim, stream);
    }
    free(piece);
    return status;
}

static int kge_save_files(kge_program *program, program_error *error) {
    save_set *set = program->stages.set;
    const kge_model *model = &program->options.train.model;
    for (uint32_t i = 0; i < 2; i++) {
        FILE *stream = save_open(set, kge_saved_files[i], error);
        if (!stream || kge_write_rows(program, i, stream, error) || save_close(set, kge_saved_files[i], error))
            return -1;
    }
    if (kge_save_names(set, kge_saved_files[2], &program->graph.entities, 0, error)) return -1;
    return kge_save_names(set, kge_saved_files[3], &program->graph.relations, model->reciprocal, error);
}

static const char *kge_model_of(const stages *c) {
    return kge_model_name(((const kge_program *)c)->options.train.model.kind);
}

static int kge_write_state(void *user, const char *path, program_error *error) {
    return kge_trainer_write_state(((const kge_program *)user)->trainer, path, error);
}

static int kge_write_tables(void *user, const char *path, program_error *error) {
    return kge_trainer_save(((kge_program *)user)->trainer, path, error);
}

static int kge_go_back(stages *c, const char *tables, program_error *error) {
    return kge_trainer_go_back(kge_of(c)->trainer, tables, error);
}

static int kge_save(stages *c, program_error *error) {
    save_origin origin = {kge_model_of(c), stages_step(c)};
    for (uint32_t i = 0; i < 2 && !c->set; i++)
        if (kge_write_rows(kge_of(c), i, NULL, error)) return -1;
    if (!c->set) return 0;
    return save_finish(c->set, &origin, kge_save_files(kge_of(c), error), error);
}

/* ---- Ranking ------------------------------------------------------------------------------------------- */

/* ranks: NULL, or room for two numbers of each triple. */
static int kge_rank_split(kge_program *program, int which, uint64_t sample, kge_metrics *metrics, double *ranks,
                          program_error *error) {
    const kge_split *split = &program->graph.split[which];
    kge_evaluation evaluation = {.model = &program->options.train.model,
                                 .graph = &program->graph,
                                 .known = &program->known,
                                 .reader = kge_trainer_reader(program->trainer),
                                 .split = split,
                                 .threads = program->stages.outputs.threads,
                                 .candidates = program->options.eval_candidates,
                                 .seed = program->options.train.common.seed,
                                 .gives = ranks_number() > 0,
                                 .stride = kge_evaluation_stride(split, sample)};
    double from = program_now();
    *metrics = (kge_metrics){.mrr = 0};
    int status = kge_evaluate(&evaluation, metrics, ranks, error);
    program->stages.eval_seconds = program_now() - from;
    return status;
}

/* What was ranked, against what, and how long it took. */
static void kge_show_ranked(const kge_program *program, int which, const kge_metrics *metrics, FILE *to) {
    fprintf(to, "  (%" PRIu64 " of %" PRIu64 " triples, ", metrics->triples, program->graph.split[which].n);
    if (metrics->candidates) fprintf(to, "each among %" PRIu32 " random entities, ", metrics->candidates);
    fprintf(to, "%.1f s)", program->stages.eval_seconds);
}

static int kge_evaluate_on_the_way(stages *c, double *value, int *interrupted, program_error *error) {
    kge_program *program = kge_of(c);
    kge_metrics metrics;
    *interrupted = 0;
    if (kge_rank_split(program, KGE_VALID, program->options.eval_sample, &metrics, NULL, error)) return -1;
    training_report total = kge_total(c);
    stages_begin_words(c);
    fprintf(stderr, "step %" PRIu64 "  valid MRR %.4f", total.step, metrics.mrr);
    if (metrics.mrr_error > 0) fprintf(stderr, " +- %.4f", metrics.mrr_error);
    fprintf(stderr, "  hits@10 %.4f", metrics.hits10);
    kge_show_ranked(program, KGE_VALID, &metrics, stderr);
    fputc('\n', stderr);
    stages_end_words(c);
    training_report_json(&total, c->parts->samples, c->json);
    if (c->json) fprintf(c->json, ", \"valid_mrr\": %.6f, \"valid_hits10\": %.6f", metrics.mrr, metrics.hits10);
    if (c->json && isfinite(metrics.mrr_error)) fprintf(c->json, ", \"valid_mrr_error\": %.6f", metrics.mrr_error);
    training_json_end(c->json);
    *value = metrics.mrr;
    return 0;
}

/* The MRR of the ranked triples whose names train has; NaN if there are none. */
static void kge_note_seen(kge_program *program, const kge_split *split, uint64_t stride, const double *ranks) {
    double sum = 0;
    uint64_t n = 0, i = 0;
    for (uint64_t at = 0; at < split->n; at += stride, i++)
        if (kge_is_seen(&program->findings, split->triples[at])) sum += 1 / ranks[2 * i] + 1 / ranks[2 * i + 1], n++;
    program->seen = n, program->seen_mrr = n ? sum / (2 * (double)n) : NAN;
}

static int kge_rank_last(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    const kge_split *split = &program->graph.split[options->evaluate];
    uint64_t stride = kge_evaluation_stride(split, options->eval_triples), n = (split->n + stride - 1) / stride;
    double *ranks = malloc(2 * n * sizeof *ranks);
    if (!ranks) return program_fail(error, "out of memory for the ranks of %" PRIu64 " triples", n);
    int status = kge_rank_split(program, options->evaluate, options->eval_triples, &program->metrics, ranks, error);
    if (!status && !ranks_number()) kge_note_seen(program, split, stride, ranks);
    free(ranks);
    return status;
}

/* Predictions are all that stdout gets: what is printed behind them goes to stderr. */
static int kge_print_predictions(kge_program *program, program_error *error) {
    kge_prediction prediction = {.model = &program->options.train.model,
                                 .graph = &program->graph,
                                 .reader = kge_trainer_reader(program->trainer),
                                 .top = program->options.top};
    if (kge_predict(&prediction, &program->wishes, error) || program_flush(stdout, "the predictions", error)) return -1;
    return dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ? program_fail(error, "cannot write to stderr") : 0;
}

static int kge_evaluate_last(stages *c, int *interrupted, program_error *error) {
    kge_program *program = kge_of(c);
    *interrupted = 0;
    if (program->options.evaluate >= 0 && kge_rank_last(program, error)) return -1;
    return program->options.predict ? kge_print_predictions(program, error) : 0;
}

/* ---- The result ---------------------------------------------------------------------------------------- */

static void kge_json_result(stages *c, const training_report *total, int ranked) {
    const kge_program *program = kge_of(c);
    const kge_metrics *metrics = &program->metrics;
    frugal_stats stats;
    training_report_json(total, c->parts->samples, c->json);
    if (!c->json) return;
    kge_trainer_stats(program->trainer, &stats);
    secondaries_json(c->settings, &stats, 1, c->json);
    if (ranked)
        fprintf(c->json,
                ", \"split\": \"%s\", \"mrr\": %.*f, \"mr\": %.3f, \"hits1\": %.6f, \"hits3\": %.6f, \"hits10\": %.6f, "
                "\"eval_seconds\": %.3f, \"ranked\": %" PRIu64 ", \"candidates\": %" PRIu32,
                kge_split_name((kge_split_kind)program->options.evaluate), metrics->mrr < 0.001 ? 10 : 6, metrics->mrr,
                metrics->mr, metrics->hits1, metrics->hits3, metrics->hits10, c->eval_seconds, metrics->triples,
                metrics->candidates);
    if (ranked && metrics->mrr_error > 0) fprintf(c->json, ", \"mrr_error\": %.6f", metrics->mrr_error);
    if (ranked && isfinite(program->seen_mrr)) fprintf(c->json, ", \"mrr_of_seen\": %.6f", program->seen_mrr);
    kge_findings_json(&program->findings, &program->graph, c->json);
    if (program->options.train.model.regularization > 0)
        fprintf(c->json, ", \"regularization\": %g, \"pilot_seconds\": %.3f",
                (double)program->options.train.model.regularization, program->pilot_seconds);
    if (program->options.train.model.damping != 0)
        fprintf(c->json, ", \"damping\": %g", (double)program->options.train.model.damping);
    placing_json(&program->placing, c->json);
    stages_json_best(c);
    fprintf(c->json, ", \"alone\": \"%s\", \"rows_as\": \"%s\", \"interrupted\": %s, \"total_seconds\": %.3f",
            training_alone_word(c->settings->alone), training_type_word(c->settings->rows_as),
            program_signalled ? "true" : "false", program_now() - c->started);
    training_json_end(c->json);
}

/* Rows that were never trained rank as guessing does, so the MRR of the others is told, too. */
static void kge_show_seen(const kge_program *program) {
    uint64_t ranked = program->metrics.triples;
    if (program->seen < ranked && isfinite(program->seen_mrr))
        fprintf(stderr,
                "%s MRR %.4f of the triples whose entities and relation train has (%" PRIu64 " of %" PRIu64 ")\n",
                kge_split_name((kge_split_kind)program->options.evaluate), program->seen_mrr, program->seen, ranked);
}

static void kge_show_metrics(const kge_program *program) {
    const kge_metrics *metrics = &program->metrics;
    int which = program->options.evaluate;
    int small = metrics->mrr < 0.001; /* among many millions */
    printf(small ? "; %s MRR %.2e" : "; %s MRR %.4f", kge_split_name((kge_split_kind)which), metrics->mrr);
    if (metrics->mrr_error > 0) printf(small ? " +- %.1e" : " +- %.4f", metrics->mrr_error);
    printf("  MR %.1f  hits@1 %.4f  hits@3 %.4f  hits@10 %.4f", metrics->mr, metrics->hits1, metrics->hits3,
           metrics->hits10);
    if (metrics->candidates || metrics->triples < program->graph.split[which].n)
        kge_show_ranked(program, which, metrics, stdout);
    else
        printf(" (%.1f s)", program->stages.eval_seconds);
}

static void kge_show_result(stages *c, int evaluated) {
    const kge_program *program = kge_of(c);
    const kge_options *options = &program->options;
    int ranked = evaluated && options->evaluate >= 0;
    training_report total = kge_total(c);
    if (total.step && (c->curve.n || options->generate)) {
        frugal_stats stats;
        progress_setup setup = stages_setup(c);
        kge_trainer_stats(program->trainer, &stats);
        progress_show_curve(&c->curve, c->parts->value, 0);
        progress_show_flushing(&stats, &setup);
        putchar('\n');
    }
    if (total.step || !options->saved.folder)
        printf("%s: %" PRIu64 " steps in %.1f s, %.0f triples/s, loss %.4f, stall %.1f%%, hits %.1f%%",
               kge_model_name(options->train.model.kind), total.step, total.seconds, total.samples_per_s, total.loss,
               100 * total.stall, 100 * total.hit_rate);
    else
        printf("%s of %s, step %" PRIu64, kge_model_name(options->train.model.kind), options->saved.folder,
               options->saved.step);
    placing_show(&program->placing);
    stages_show_best(c);
    if (ranked) kge_show_metrics(program);
    printf("; %.1f s in all\n", program_now() - c->started);
    if (ranked) kge_show_seen(program);
    kge_json_result(c, &total, ranked);
}

/* ---- The program --------------------------------------------------------------------------------------- */

static int kge_close(stages *c, program_error *error) {
    kge_program *program = kge_of(c);
    int status = kge_trainer_close_table(program->trainer, error);
    kge_trainer_close(program->trainer);
    placing_close(&program->placing);
    secondaries_close(&program->secondaries);
    kge_state_free(&program->resumed);
    kge_index_free(&program->known);
    kge_findings_free(&program->findings);
    kge_saved_close(&program->options.saved);
    kge_wishes_free(&program->wishes);
    kge_graph_free(&program->graph);
    return status;
}

static const stages_parts kge_parts = {.name = "kge",
                                       .samples = "triples",
                                       .value = "valid MRR",
                                       .parse = kge_parse,
                                       .help = kge_options_help,
                                       .prepare = kge_prepare,
                                       .choose = kge_choose,
                                       .describe = kge_describe_lines,
                                       .read_state = kge_read_state,
                                       .open = kge_open,
                                       .model = kge_model_of,
                                       .write_tables = kge_write_tables,
                                       .write_state = kge_write_state,
                                       .train = kge_train,
                                       .is_done = kge_is_done,
                                       .report_rest = kge_report_rest,
                                       .total = kge_total,
                                       .check = kge_check,
                                       .evaluate_on_the_way = kge_evaluate_on_the_way,
                                       .go_back = kge_go_back,
                                       .save = kge_save,
                                       .evaluate = kge_evaluate_last,
                                       .show_result = kge_show_result,
                                       .close = kge_close};

int main(int argc, char **argv) {
    kge_program program = {.trainer = NULL};
    return stages_run(&program.stages, &kge_parts, argc, argv);
}
