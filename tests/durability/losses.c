/* losses.c - a GPU is lost while a trainer trains and saves. The drained rows are those of a step that all devices have
 * finished; they can be saved, and training resumes from them. The GPUs are simulated on the host
 * (tests/cuda/cuda_on_host.h).
 *
 *     losses SEED STEPS EVERY FOLDER COUNT DRAW
 *
 * SEED, STEPS, EVERY and DRAW are as in trainee.c; one device or both must be on the GPU. The nth launch, and
 * everything after it, never happens. This is tried for each n, or for about COUNT drawn ones (0: each). Then the
 * trainer drains, and each instance must have the rows of an unbroken run after some step, which is not earlier than
 * the last one that the trainer has seen finished; a save is made, a base or an increment; a mapped table is closed,
 * and must be clean, with these rows. (All rows are staged: rows of the unfinished step may have been updated in place
 * by devices on the host, which is their default.) Training is resumed from the save in another way, on the GPU or
 * without it, and must come to the rows of the unbroken run at its end. If not, it prints the launch, and the exit
 * status is 1.
 */
#include "frugal_seeing.h"
#include "tests/cuda/cuda_on_host_hooks.h"
#include "tests/durability/saves.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STEPS = 256 };

static struct {
    uint64_t steps, every, draw;
    const char *folder;
    char table[NAME], last[NAME];               /* of the tables' files; the newest save */
    uint64_t wanted[INSTANCES][MOST_STEPS + 1]; /* hashes of an instance's rows, by step */
    uint64_t closed[INSTANCES];                 /* the step that it had when the GPU was lost */
    uint64_t saved;                             /* the step of the last save before that; 0: none */
    uint64_t trials, lost, apart;
    uint64_t launch; /* the launch that is tried; 0: none */
} run;

static void tell_launch(void) {
    if (run.launch) fprintf(stderr, "losses: at launch %llu\n", (unsigned long long)run.launch);
}

static void check_rows(const trainer *t, uint32_t i, uint64_t step, const char *when) {
    if (step > run.steps || hash_instance(t, i, 1) != run.wanted[i][step])
        die("other rows than in the unbroken run", when);
}

static void reference(void) {
    trainer t;
    set_way(0);
    must_be_ok(open_trainer(&t, &(opening){.table = NULL}), "open");
    for (uint64_t step = 0; step <= run.steps; step++) {
        if (step > 0) train_step(&t, run.steps);
        for (uint32_t i = 0; i < work.instances; i++) run.wanted[i][step] = hash_instance(&t, i, 1);
    }
    close_trainer(&t);
}

static void empty_folder(void) {
    DIR *open = opendir(run.folder);
    if (!open) die("cannot read the folder", run.folder);
    for (struct dirent *each; (each = readdir(open));) {
        char name[NAME + 300];
        snprintf(name, sizeof name, "%s/%s", run.folder, each->d_name);
        if (strcmp(each->d_name, ".") && strcmp(each->d_name, "..")) unlink(name);
    }
    closedir(open);
}

static void save(const trainer *t, const char *name, int increment) {
    snprintf(run.last, sizeof run.last, "%s", name);
    must_be_ok(frugal_save(t->f, work.instances, &(frugal_save_desc){.path = name, .increment = increment}), "save");
}

static uint64_t closed_steps(const trainer *t, uint32_t i) {
    frugal_stats stats;
    frugal_get_stats(t->f[i], &stats);
    return stats.steps;
}
/* Do all instances, after a drain, have the steps that were trained? */
static int is_at_step(const trainer *t) {
    int all = 1;
    for (uint32_t i = 0; i < work.instances; i++) all &= closed_steps(t, i) == t->step;
    return all;
}

/* Trains until the end, or until a call says that the GPU is lost. */
static frugal_status train(trainer *t) {
    frugal_status status = FRUGAL_OK;
    run.saved = 0;
    while (t->step < run.steps && status == FRUGAL_OK) {
        status = try_step(t, run.steps);
        if (status != FRUGAL_OK || t->step % run.every != 0) continue;
        char name[NAME];
        drain_trainer(t); /* the drain succeeds, but without the last step if the GPU has not finished it */
        if (!is_at_step(t)) return FRUGAL_ERR_LOST;
        save_name(name, run.folder, t->step, run.saved > 0);
        save(t, name, run.saved > 0);
        run.saved = t->step;
    }
    if (status != FRUGAL_OK && status != FRUGAL_ERR_LOST && status != FRUGAL_ERR_CUDA) must_be_ok(status, "train");
    drain_trainer(t); /* the loss may be found here, of the last step */
    return status;
}

/* Finds the step of a drained instance, and checks that its rows are of that step. Device steps before the last begun
 * step are finished, because the lookups of that step waited for them. */
static void check_closed(const trainer *t, uint32_t i) {
    char text[96];
    uint64_t closed = run.closed[i] = closed_steps(t, i);
    uint64_t least = t->step > 0 ? t->step - 1 : 0;
    if (least < run.saved) least = run.saved;
    if (closed < least || closed > t->step + 1) {
        snprintf(text, sizeof text, "step %llu of %llu, instance %u, saved %llu", (unsigned long long)closed,
                 (unsigned long long)t->step, i, (unsigned long long)run.saved);
        die("not the last step that all devices have finished", text);
    }
    check_rows(t, i, closed, "when the GPU was lost");
}

/* A table in a file is clean, and has the rows with which it was closed. */
static void check_files(void) {
    trainer t;
    must_be_ok(open_trainer(&t, &(opening){.table = run.table, .keep = 1}), "open the table of a lost GPU");
    for (uint32_t i = 0; i < work.instances; i++) check_rows(&t, i, run.closed[i], "in the table");
    close_trainer(&t);
}

static void resume_in_way(uint64_t draw) {
    const char *paths[SAVES];
    uint32_t at = 0, n = 0;
    trainer t;
    set_way(draw);
    find_saves(run.folder);
    while (at < n_saves && strcmp(saves[at].name, run.last) != 0) at++;
    if (at < n_saves) n = find_chain(at, paths);
    if (n == 0) die("the save of a lost GPU leads to no base", run.last);
    must_be_ok(open_trainer(&t, &(opening){.saved = paths, .n_saved = n, .table = run.table}), "resume");
    for (uint32_t i = 0; i < work.instances; i++) {
        if (t.first[i] != run.closed[i]) die("a save is of another step than the instance", run.last);
        check_rows(&t, i, run.closed[i], "where it was resumed");
    }
    while (t.step < run.steps) train_step(&t, run.steps);
    for (uint32_t i = 0; i < work.instances; i++) check_rows(&t, i, run.steps, "at the end");
    close_trainer(&t);
}

/* 0: no GPU was lost, because it has fewer launches than n. */
static int lose_at(uint64_t n) {
    trainer t;
    char name[NAME];
    empty_folder();
    set_way(run.draw);
    must_be_ok(open_trainer(&t, &(opening){.table = run.table, .staged = 1}), "open");
    cuda_on_host_lose_at_launch(0, n);
    int lost = train(&t) != FRUGAL_OK;
    for (uint32_t i = 0; i < work.instances; i++) check_closed(&t, i);
    lost |= run.closed[0] < run.steps || run.closed[work.instances - 1] < run.steps;
    if (lost) {
        snprintf(name, sizeof name, "%s/newest", run.folder);
        save(&t, name, run.saved > 0 && n % 2);
    }
    close_trainer(&t);
    cuda_on_host_reset();
    if (lost && way.in_file) check_files();
    cuda_on_host_reset();
    if (lost) resume_in_way(run.draw + n * 5);
    cuda_on_host_reset();
    run.trials++;
    run.lost += (uint64_t)lost;
    run.apart += lost && run.closed[0] != run.closed[work.instances - 1];
    return lost;
}

/* Launches of a run that is not broken. */
static uint64_t count_launches(void) {
    trainer t;
    empty_folder();
    set_way(run.draw);
    must_be_ok(open_trainer(&t, &(opening){.table = run.table}), "open");
    uint64_t before = cuda_on_host_count("cudaLaunchKernel");
    if (train(&t) != FRUGAL_OK) die("a GPU is lost, and nobody has lost it", run.folder);
    for (uint32_t i = 0; i < work.instances; i++) check_rows(&t, i, run.steps, "at the end, unbroken");
    uint64_t launches = cuda_on_host_count("cudaLaunchKernel") - before;
    close_trainer(&t);
    cuda_on_host_reset();
    return launches;
}

int main(int n, char **arguments) {
    if (n != 7) {
        fprintf(stderr, "usage: losses SEED STEPS EVERY FOLDER COUNT DRAW\n");
        return 2;
    }
    atexit(tell_launch);
    set_work(strtoull(arguments[1], NULL, 10));
    run.steps = strtoull(arguments[2], NULL, 10), run.every = strtoull(arguments[3], NULL, 10);
    run.folder = arguments[4], run.draw = strtoull(arguments[6], NULL, 10);
    uint64_t count = strtoull(arguments[5], NULL, 10);
    snprintf(run.table, sizeof run.table, "%s/table", run.folder);
    set_way(run.draw);
    if (run.steps > MOST_STEPS || run.every == 0 || way.gpus == 0) die("too many steps, or no GPU", arguments[2]);
    reference();
    uint64_t launches = count_launches();
    test_random r = {.seed = run.draw};
    for (uint64_t at = 1; at <= launches; at++) {
        if (count && test_below(&r, launches) >= count) continue;
        run.launch = at;
        lose_at(at);
    }
    run.launch = 0;
    printf("# lost GPUs: %llu launches, %llu trials: %llu lost, %llu with instances at two steps; 0 refused\n",
           (unsigned long long)launches, (unsigned long long)run.trials, (unsigned long long)run.lost,
           (unsigned long long)run.apart);
    return 0;
}
