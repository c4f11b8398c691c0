/* From the command line to the exit status. */
#include "trainers/common/stages.h"
#include "trainers/common/file.h"
#include "trainers/common/identity.h"
#include "trainers/common/manifest.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reports ------------------------------------------------------------------------------------------- */

void stages_report(void *user, const training_report *report) {
    stages *c = user;
    char text[192];
    training_report_line(report, c->parts->samples, c->settings->steps, text, sizeof text);
    pthread_mutex_lock(&c->stderr_lock);
    progress_show(&c->line, text, report->seconds, report->progress >= 1);
    pthread_mutex_unlock(&c->stderr_lock);
    training_report_json(report, c->parts->samples, c->json);
    training_json_end(c->json);
}

void stages_begin_words(stages *c) {
    pthread_mutex_lock(&c->stderr_lock);
    progress_end(&c->line);
}

void stages_end_words(stages *c) {
    pthread_mutex_unlock(&c->stderr_lock);
}

progress_setup stages_setup(const stages *c) {
    const training_settings *settings = c->settings;
    return (progress_setup){.mode = settings->mode,
                            .devices = settings->devices,
                            .workers = settings->workers,
                            .lookahead = settings->lookahead,
                            .seconds = c->parts->total(c).seconds - c->seconds_before};
}

/* ---- Several machines ---------------------------------------------------------------------------------- */

/* Rank 0 has the folders, and writes the files there, except tables: each machine writes its own rows, and rank 0 says
 * where. */
typedef struct stages_word {
    int writes, status, any, resumes; /* writes: tables, to `path` */
    uint64_t step;
    program_error error;
    char path[MANIFEST_LONGEST_PATH];
} stages_word;
_Static_assert(sizeof(stages_word) <= RANKS_SHARED, "what all ranks get");

static int stages_write_tables(void *user, const char *path, program_error *error) {
    stages *c = user;
    stages_word word = {.writes = 1};
    snprintf(word.path, sizeof word.path, "%s", path);
    if (ranks_share(0, &word, sizeof word, error)) return -1;
    return c->parts->write_tables(c, path, error);
}

/* When rank 0 has written something, or failed at it: *status and *error become what it has found. The others write
 * their rows until then. path[MANIFEST_LONGEST_PATH] becomes rank 0's. */
static int stages_end_writing(stages *c, int *status, char *path, program_error *error) {
    stages_word word = {.status = *status};
    program_error same; /* rank 0 has it, too */
    if (ranks_all() == 1) return 0;
    if (*status < 0) word.error = *error;
    snprintf(word.path, sizeof word.path, "%s", path);
    do {
        if (ranks_share(0, &word, sizeof word, error)) return -1;
        if (word.writes) (void)c->parts->write_tables(c, word.path, &same);
    } while (word.writes);
    *status = word.status;
    if (word.status) *error = word.error;
    memcpy(path, word.path, sizeof word.path);
    return 0;
}

/* Which checkpoint rank 0 has found; and the folder of the best evaluation. */
static int stages_share_found(stages *c, program_error *error) {
    checkpointing *k = &c->checkpoints;
    stages_word word = {.any = k->any, .resumes = k->resumes, .step = k->step};
    if (ranks_all() == 1 || !k->path) return 0;
    snprintf(word.path, sizeof word.path, "%s", k->found.path);
    if (ranks_share(0, &word, sizeof word, error)) return -1;
    if (!ranks_number()) return 0;
    k->any = word.any, k->resumes = word.resumes, k->step = k->found.made.step = word.step;
    memcpy(k->found.path, word.path, sizeof word.path);
    return 0;
}

static int stages_share_best(stages *c, program_error *error) {
    stages_word word = {.any = c->best.any};
    if (ranks_all() == 1) return 0;
    snprintf(word.path, sizeof word.path, "%s", c->best.folder);
    if (ranks_share(0, &word, sizeof word, error)) return -1;
    return ranks_number() && word.any ? best_follow(&c->best, word.path, error) : 0;
}

/* ---- The best evaluation ------------------------------------------------------------------------------- */

/* The files of a checkpoint that the trainer is made of; also what is kept of the best evaluation. */
#define STAGES_TABLES "tables"
#define STAGES_STATE  "state"
enum { STAGES_FILES = 2 };

static void stages_files(stages *c, checkpoint_part files[STAGES_FILES]) {
    files[0] = (checkpoint_part){.name = STAGES_TABLES, .self_checked = 1, .write = stages_write_tables, .user = c};
    files[1] = (checkpoint_part){.name = STAGES_STATE, .write = c->parts->write_state, .user = c};
}

/* Have so many evaluations in a row found nothing better? The curve says so, which a checkpoint holds, so a run that
 * resumes ends at the same step. */
static int stages_is_out_of_patience(const stages *c) {
    uint64_t since;
    (void)best_of(&c->curve, &since);
    return c->outputs.patience && since >= c->outputs.patience;
}

/* After an evaluation. */
static int stages_note_best(stages *c, program_error *error) {
    checkpoint_part files[STAGES_FILES];
    uint64_t since;
    const progress_moment *best = c->outputs.patience ? best_of(&c->curve, &since) : NULL;
    if (!best || since) return 0;
    stages_files(c, files);
    char folder[MANIFEST_LONGEST_PATH] = "";
    int status = ranks_number() ? 0 : best_keep(&c->best, files, error);
    if (stages_end_writing(c, &status, folder, error) || status) return -1;
    return stages_share_best(c, error);
}

static int stages_is_done(const stages *c) {
    return c->parts->is_done(c) || stages_is_out_of_patience(c);
}

/* After the last checkpoint, from which the training would go on behind its last step. */
static int stages_go_back(stages *c, program_error *error) {
    uint64_t since, saved;
    const progress_moment *best = c->best.any ? best_of(&c->curve, &since) : NULL;
    if (!best) return 0;
    if (best->step != c->parts->total(c).step &&
        (c->parts->read_state(c, c->best.state, &saved, error) || training_check_saved(c->best.tables, saved, error) ||
         c->parts->go_back(c, c->best.tables, error)))
        return -1;
    if (ranks_agree(0, error)) return -1; /* all have read it */
    c->back = best->step;
    best_close(&c->best); /* now, because Ctrl-C in the evaluation at the end simply ends the program */
    fprintf(stderr, "back to step %" PRIu64 ", whose %s of %.4f is the best of %zu\n", best->step, c->parts->value,
            best->value, c->curve.n);
    return 0;
}

uint64_t stages_step(const stages *c) {
    return c->back ? c->back : c->parts->total(c).step;
}

void stages_show_best(const stages *c) {
    if (c->back) printf("; back to step %" PRIu64, c->back);
}

void stages_json_best(const stages *c) {
    uint64_t since;
    if (!c->back) return;
    fprintf(c->json, ", \"best_step\": %" PRIu64 ", \"best_value\": %.6f", c->back, best_of(&c->curve, &since)->value);
}

/* ---- Before the training ------------------------------------------------------------------------------- */

/* No result may be written to a file that is read or that holds a table. */
static int stages_check_kept(const stages *c, const char *option, const char *path, program_error *error) {
    const char *taken = NULL;
    for (int i = 0; i < STAGES_KEPT; i++)
        if (file_is_same(path, c->kept[i])) taken = c->kept[i];
    for (const char *const *file = c->files; file && *file; file++)
        if (file_is_same(path, *file)) taken = *file;
    if (!taken) return 0;
    return program_fail(error, "--%s would overwrite %.200s, which is in use; give another %s", option, taken,
                        strcmp(option, "json") ? "folder" : "file");
}

static int stages_check_outputs(const stages *c, program_error *error) {
    const char *json = c->outputs.json, *save = c->outputs.save;
    if (json && stages_check_kept(c, "json", json, error)) return -1;
    if (c->settings->trace && json && file_is_same(c->settings->trace, json))
        return program_fail(error, "--trace and --json would both write %.200s; give another file", json);
    for (int i = 0; save && i <= c->n_saved; i++) {
        const char *name = i < c->n_saved ? c->saved[i] : MANIFEST_NAME;
        char path[MANIFEST_LONGEST_PATH];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", save, name) >= sizeof path)
            return program_fail(error, "--save is a path of more than %d bytes", MANIFEST_LONGEST_PATH);
        if (stages_check_kept(c, "save", path, error)) return -1;
        if (file_is_same(path, json))
            return program_fail(error, "--save and --json would both write %.200s; give another file", json);
    }
    return 0;
}

/* An existing file must hold reports: a file of another kind is not overwritten. This is asked again once the
 * training's files exist, because a link may lead to where one of them will be. */
static int stages_check_json(const stages *c, program_error *error) {
    const char *path = c->outputs.json;
    struct stat is;
    if (stages_check_kept(c, "json", path, error)) return -1;
    if (checkpointing_lies_in(path, c->outputs.checkpoint) || checkpointing_lies_in(path, c->outputs.resume))
        return program_fail(error, "--json %.200s would lie among checkpoints; give another file", path);
    if (fstat(fileno(c->json), &is) || !S_ISREG(is.st_mode) || !is.st_size) return 0;
    rewind(c->json);
    return getc(c->json) == '{' ? 0
                                : program_fail(error,
                                               "--json %.200s is there, and no file of reports; remove it, or "
                                               "give another file",
                                               path);
}

/* Opens the file as it is: its contents stay until stages_start_json, when nothing can be refused any more. */
static int stages_open_json(stages *c, program_error *error) {
    const char *path = c->outputs.json;
    struct stat is;
    if (!path) return 0;
    int there = !stat(path, &is);
    c->json = fopen(path, there && !S_ISREG(is.st_mode) ? "we" : "a+e");
    if (!c->json) return program_fail(error, "cannot write '%.200s': %s%s", path, strerror(errno), file_remedy(errno));
    c->json_made = there ? NULL : realpath(path, NULL);
    return stages_check_json(c, error);
}

/* A run that resumes appends its reports, starting on a new line, because the process may have been killed in the
 * middle of one. Any other run begins the file anew. */
static int stages_start_json(stages *c, program_error *error) {
    struct stat is;
    free(c->json_made);
    c->json_made = NULL;
    if (!c->json) return 0;
    int regular = !fstat(fileno(c->json), &is) && S_ISREG(is.st_mode);
    if (!c->checkpoints.resumes && regular && ftruncate(fileno(c->json), 0))
        return program_fail(error, "cannot write '%.200s': %s", c->outputs.json, strerror(errno));
    if (!c->checkpoints.resumes) return 0;
    int torn = regular && !fseek(c->json, -1, SEEK_END) && getc(c->json) != '\n';
    fseek(c->json, 0, SEEK_END);
    fprintf(c->json, "%s{\"resumed_from\": %" PRIu64, torn ? "\n" : "", c->checkpoints.step);
    training_json_end(c->json);
    return 0;
}

/* ---- From a checkpoint, or from the beginning ---------------------------------------------------------- */

static int stages_describe(stages *c, program_error *error) {
    size_t n = 0;
    int wanted = c->checkpoints.path || ranks_all() > 1;
    FILE *lines = wanted ? open_memstream(&c->identity, &n) : NULL;
    if (!wanted) return 0;
    if (!lines) return program_fail(error, "out of memory");
    const char *version = FRUGAL_VERSION_STRING; /* a change of the last part changes no bits */
    fprintf(lines, "version %.*s\nblas %s\n", (int)(strrchr(version, '.') - version), version, openblas_get_corename());
    int status = c->parts->describe(c, lines, error);
    if (fclose(lines) && !status) status = program_fail(error, "out of memory");
    return status;
}

/* Do all machines train the same? Their BLAS libraries may differ. */
static int stages_compare_machines(stages *c, program_error *error) {
    char first[RANKS_SHARED] = "", mine[RANKS_SHARED] = "";
    if (ranks_all() == 1) return 0;
    const char *lines = strchr(strchr(c->identity, '\n') + 1, '\n') + 1;
    snprintf(mine, sizeof mine, "%s", lines);
    memcpy(first, mine, sizeof first);
    if (ranks_share(0, first, sizeof first, error)) return -1;
    return ranks_agree(identity_check_machine(first, mine, error), error);
}

static int stages_check_steps(const stages *c, program_error *error) {
    uint64_t steps = c->settings->steps, step = c->checkpoints.found.made.step;
    if (!steps || steps >= step) return 0;
    return program_fail(error, "--steps is %" PRIu64 ", and %.300s is further; give more --steps, or none", steps,
                        c->checkpoints.found.path);
}

/* The checkpoint that was found: is it this training's? Its curve, its state, and the tables of the save that the state
 * names. */
static int stages_read_found(stages *c, char tables[MANIFEST_LONGEST_PATH], program_error *error) {
    uint64_t since, saved;
    char state[MANIFEST_LONGEST_PATH + 16];
    const checkpointing *k = &c->checkpoints;
    const char *from = k->found.path;
    snprintf(state, sizeof state, "%s/" STAGES_STATE, from);
    if (checkpointing_read(k, ranks_number() ? NULL : c->identity, &c->curve, error)) return -1;
    if (stages_check_steps(c, error)) return -1;
    if (c->parts->read_state(c, state, &saved, error)) return -1;
    if (training_find_tables(from, STAGES_TABLES, tables, error) || training_check_saved(tables, saved, error))
        return -1;
    if (ranks_number() || !c->outputs.patience || !best_of(&c->curve, &since)) return 0;
    return best_take(&c->best, from, error);
}

/* The trainer, from there. */
static int stages_open_found(stages *c, program_error *error) {
    char tables[MANIFEST_LONGEST_PATH];
    if (ranks_try(stages_read_found(c, tables, error), error)) return -1;
    return ranks_try(c->parts->open(c, tables, error), error);
}

/* The checkpoint before, after one that is damaged. */
static int stages_take_older(stages *c, const program_error *why, program_error *error) {
    int got = ranks_number() ? 0 : checkpointing_older(&c->checkpoints, why);
    if (ranks_share(0, &got, sizeof got, error)) return -1;
    return got && !stages_share_found(c, error) ? 0 : -1;
}

/* The manifest has no checksums of files that check themselves, so a damaged table is found only when it is read. */
static int stages_begin(stages *c, program_error *error) {
    checkpointing *k = &c->checkpoints;
    if (!k->resumes) return c->parts->open(c, NULL, error);
    for (;;) {
        program_error why;
        progress_free(&c->curve);
        int status = stages_open_found(c, &why);
        if (!status) {
            c->seconds_before = c->parts->total(c).seconds;
            fprintf(stderr, "resumed from %s\n", k->found.path);
            return stages_share_best(c, error);
        }
        *error = why;
        if (!why.damaged || stages_take_older(c, &why, error)) return -1;
    }
}

static int stages_open_checkpoints(stages *c, program_error *error) {
    checkpointing *k = &c->checkpoints;
    if (ranks_number()) return checkpointing_follow(k, c->parts->name, &c->outputs), 0;
    return checkpointing_open(k, c->parts->name, &c->outputs, error) || best_open(&c->best, k->path, error) ? -1 : 0;
}

/* What can be refused is refused here, before stages_begin, which writes to a table's file. Of several machines, rank 0
 * has the files. */
static int stages_prepare_files(stages *c, program_error *error) {
    const char *save = c->outputs.save;
    uint32_t devices = ranks_devices(c->settings->devices), threads = c->outputs.threads;
    if (stages_check_outputs(c, error) || stages_open_checkpoints(c, error) || c->parts->prepare(c, error) ||
        program_reserve_products(devices > threads ? devices : threads, "use fewer --devices or --threads", error))
        return -1;
    if (save && !ranks_number() && save_begin(&c->set, save, c->parts->name, c->saved, c->n_saved, error)) return -1;
    return ranks_number() ? 0 : stages_open_json(c, error);
}

static int stages_prepare(stages *c, program_error *error) {
    if (ranks_agree(stages_prepare_files(c, error), error) || stages_share_found(c, error)) return -1;
    if (c->parts->choose && c->parts->choose(c, error)) return -1;
    if (ranks_agree(stages_describe(c, error), error) || stages_compare_machines(c, error)) return -1;
    if (stages_begin(c, error)) return -1;
    checkpointing_end_reading(&c->checkpoints);
    return stages_start_json(c, error);
}

/* ---- The training -------------------------------------------------------------------------------------- */

static int stages_evaluate_on_the_way(stages *c, program_error *error) {
    double value = 0;
    int interrupted = 0;
    if (c->parts->check(c, error)) return -1;
    int status = c->parts->evaluate_on_the_way(c, &value, &interrupted, error);
    if (!interrupted) status = ranks_share(status, &value, sizeof value, error);
    if (status || interrupted) return status;
    training_report total = c->parts->total(c);
    if (progress_add(&c->curve, total.step, total.seconds, value, error)) return -1;
    return stages_note_best(c, error);
}

/* Evaluates at multiples of --eval-every and at the end; once per step, even if a run was interrupted there. */
static int stages_evaluation_is_due(const stages *c, uint64_t step) {
    uint64_t every = c->outputs.eval_every;
    int moved = !c->curve.n || step > c->curve.moments[c->curve.n - 1].step;
    if (!every || !moved || program_signalled) return 0;
    return c->parts->is_done(c) || (step > 0 && step % every == 0);
}

/* Of this step. */
static int stages_write_checkpoint(stages *c, program_error *error) {
    const stages_parts *parts = c->parts;
    training_report total = parts->total(c);
    checkpoint_part files[STAGES_FILES + BEST_FILES];
    stages_files(c, files);
    checkpointing_content content = {.identity = c->identity,
                                     .curve = &c->curve,
                                     .parts = files,
                                     .n = STAGES_FILES + best_parts(&c->best, files + STAGES_FILES)};
    save_origin origin = {parts->model(c), total.step};
    char none[MANIFEST_LONGEST_PATH] = "";
    int status = ranks_number() ? 0 : checkpointing_write(&c->checkpoints, &origin, &content, error);
    if (stages_end_writing(c, &status, none, error)) return -1;
    if (status >= 0) c->checkpoints.any = 1, c->checkpoints.step = total.step;
    stages_begin_words(c);
    if (status < 0)
        fprintf(stderr, "step %" PRIu64 "  no checkpoint: %s\n", total.step, error->text);
    else
        fprintf(stderr, "step %" PRIu64 "  checkpoint in %s (%.1f s)\n", total.step, c->checkpoints.path,
                c->checkpoints.spent);
    if (status > 0) fprintf(stderr, "%s\n", error->text);
    stages_end_words(c);
    if (status < 0) return -1;
    training_report_json(&total, parts->samples, c->json);
    if (c->json) fprintf(c->json, ", \"checkpoint_seconds\": %.3f", c->checkpoints.spent);
    training_json_end(c->json);
    return 0;
}

/* A checkpoint that fails is reported, and the training goes on, because the next one may succeed. */
static int stages_checkpoint_on_the_way(stages *c, uint64_t step, program_error *error) {
    program_error failed;
    int first = c->begins && step == 0 && c->checkpoints.path && !c->checkpoints.any;
    int due = checkpointing_is_due(&c->checkpoints, step); /* rank 0's clock counts */
    if (ranks_share(0, &due, sizeof due, error)) return -1;
    if (!first && !due) return 0;
    if (!first && c->parts->check(c, error)) return -1;
    (void)stages_write_checkpoint(c, &failed);
    return 0;
}

/* An evaluation at the end, which a longer training would not have, is no part of the last checkpoint: patience would
 * count it when a run goes on from there. */
static int stages_ends_early_for(const stages *c, uint64_t step) {
    return c->outputs.patience && c->checkpoints.path && step % c->outputs.eval_every != 0;
}

/* If it fails, it is tried again at the end. */
static int stages_checkpoint_before_end(stages *c, program_error *error) {
    program_error failed;
    if (c->checkpoints.any && c->checkpoints.step == c->parts->total(c).step) return 0;
    if (c->parts->check(c, error)) return -1;
    (void)stages_write_checkpoint(c, &failed);
    return 0;
}

static int stages_train(stages *c, program_error *error) {
    uint64_t every = c->outputs.eval_every;
    for (;;) {
        if (ranks_agree(0, error)) return -1; /* on signals, too */
        uint64_t step = c->parts->total(c).step, evaluation = every ? (step / every + 1) * every : UINT64_MAX;
        int due = stages_evaluation_is_due(c, step);
        if (due && stages_ends_early_for(c, step) && stages_checkpoint_before_end(c, error)) return -1;
        if (due && stages_evaluate_on_the_way(c, error)) return -1;
        if (stages_is_done(c) || program_signalled) break;
        if (stages_checkpoint_on_the_way(c, step, error)) return -1;
        uint64_t checkpoint = checkpointing_until(&c->checkpoints, step);
        uint64_t until = checkpoint < evaluation ? checkpoint : evaluation;
        if (c->parts->train(c, until, c->checkpoints.due, error)) return -1;
    }
    c->parts->report_rest(c);
    progress_end(&c->line);
    if (stages_is_out_of_patience(c))
        fprintf(stderr,
                "%" PRIu32 " evaluations in a row found no better %s: the training ends after step %" PRIu64 "\n",
                c->outputs.patience, c->parts->value, c->parts->total(c).step);
    return 0;
}

/* Trains until the end or a signal. A failure goes to *failed, for the exit status, because results come first. */
static void stages_finish_checkpoints(stages *c, int *failed) {
    checkpointing *k = &c->checkpoints;
    program_error error;
    *failed = 0;
    if (!k->path) return;
    if (!k->any || k->step != c->parts->total(c).step) *failed = stages_write_checkpoint(c, &error);
    if (program_signalled && k->any) fprintf(stderr, "go on with --resume %s\n", k->path);
}

static int stages_go(stages *c, program_error *error) {
    int interrupted = 0, failed;
    if (stages_prepare(c, error)) return -1;
    program_catch_signals(); /* not earlier, because until here there is nothing to save */
    checkpointing_start(&c->checkpoints);
    if (stages_train(c, error)) return -1;
    if (program_signalled)
        fprintf(stderr, "stopped by %s after step %" PRIu64 "; %s\n", program_signal(), c->parts->total(c).step,
                c->evaluates ? "the evaluation is left out" : "nothing else is left out");
    if (c->parts->check(c, error)) return -1;
    stages_finish_checkpoints(c, &failed);
    if (stages_go_back(c, error)) return -1;
    if (c->outputs.save && c->parts->save(c, error)) return -1;
    if (c->set) save_tell(c->set);
    int evaluates = c->evaluates && !program_signalled;
    program_release_signals(); /* all is saved: from here on Ctrl-C simply ends */
    if (evaluates && c->parts->evaluate(c, &interrupted, error)) return -1;
    c->parts->show_result(c, evaluates && !interrupted);
    if (program_flush(c->json, c->outputs.json, error) || program_flush(stdout, "the result", error)) return -1;
    return failed ? program_fail(error, "the last checkpoint, in %.300s, was not made; see above", c->checkpoints.path)
                  : 0;
}

/* ---- The program --------------------------------------------------------------------------------------- */

static int stages_close(stages *c, program_error *error) {
    int status = c->parts->close(c, error);
    save_end(c->set);
    best_close(&c->best);
    checkpointing_close(&c->checkpoints);
    free(c->identity);
    progress_free(&c->curve);
    if (c->json_made) unlink(c->json_made); /* this run was refused: it leaves nothing */
    free(c->json_made);
    if (c->json && fclose(c->json) && !status)
        status = program_fail(error, "cannot write %s: %s", c->outputs.json, strerror(errno));
    return status;
}

static int stages_exit(const stages *c, const program_error *error, int status) {
    fprintf(stderr, "%s: %s\n", c->parts->name, error->text);
    return status;
}

/* Several machines: all is closed before the ranks tell each other of a failure, so that none waits for this one. */
static int stages_end(stages *c, int status, program_error *error) {
    program_error closing;
    if (stages_close(c, &closing) && !status) status = -1, *error = closing;
    return ranks_end(status, error) ? stages_exit(c, error, 1) : 0;
}

static int stages_parse(stages *c, int argc, char **argv, program_error *error) {
    const training_outputs *outputs = &c->outputs;
    int status = ranks_open(error);
    if (!status) status = c->parts->parse(c, argc, argv, error);
    if (!status && ranks_all() > 1 && outputs->patience && !outputs->checkpoint && !outputs->resume)
        status =
            program_fail(error, "--patience keeps the best tables in a file of all machines: give --checkpoint DIR, a "
                                "folder that they share, too");
    return ranks_agree(status, error);
}

static int stages_run_all(stages *c, int argc, char **argv) {
    const stages_parts *parts = c->parts;
    program_error error, closing;
    if (stages_parse(c, argc, argv, &error)) return stages_exit(c, &error, 2);
    if (c->outputs.help) {
        parts->help();
        return program_flush(stdout, "the help", &error) ? stages_exit(c, &error, 1) : 0;
    }
    c->line = progress_begin(c->outputs.report_seconds);
    if (c->outputs.report_seconds < 0) c->outputs.report_seconds = 1; /* the line shows fewer of them in files */
    int status = stages_go(c, &error);
    progress_end(&c->line);
    if (ranks_all() > 1) return stages_end(c, status, &error);
    if (status) status = stages_exit(c, &error, 1);
    if (stages_close(c, &closing) && !status) status = stages_exit(c, &closing, 1);
    return status;
}

int stages_run(stages *c, const stages_parts *parts, int argc, char **argv) {
    program_open_streams();
    c->parts = parts;
    c->started = program_now();
    pthread_mutex_init(&c->stderr_lock, NULL);
    openblas_set_num_threads(1); /* one thread per product: results do not depend on the number of threads */
    int status = stages_run_all(c, argc, argv);
    ranks_close();
    return program_end(status, (size_t)openblas_get_num_procs());
}
