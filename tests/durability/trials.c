/* trials.c - breaks a program at each of its calls, or at any moment, and checks what is left.
 *
 *     trials [-1cr] [-k KIND,...] [-n MOST] [-q NAME] [-s SEED] [-t KILLS] BEFORE WORK PROGRAM ARG... -- CHECKER ARG...
 *
 * BEFORE is copied to WORK/folder before each trial. In PROGRAM's arguments @ stands for that folder (@/NAME: once, a
 * file in it), @@ for the file in which the program reports what is done (faults.h), @N for a number that differs from
 * trial to trial. CHECKER's arguments may have them, too. A first run is not broken: it counts the calls. Then each
 * kind of fault (-k, those of faults.h; "enospc+" is a disk that stays full) happens at each call; if there are more
 * than -n such trials, -n of them are drawn. With -r reading calls are broken, too. With -t the program is killed after
 * random times instead, until there were KILLS kills; with -c each run continues in the folder that the previous kill
 * has left, until the program reaches its end.
 *
 * A broken program may be killed, exit with 0, or exit with 1 and a message; anything else is refused. A program that
 * exits with 0 although a sync has failed is refused, too, unless the file's name begins with -q. CHECKER gets four
 * more arguments: the folder, the last report ("" if none), "killed" (now, or before with -c), "failed" or "done", and
 * the call that was broken ("-": none). Its exit status 0 says that nothing is lost. The last line of output has
 * counts; the exit status is 1 if a trial was refused. The first three that are refused are kept in WORK. With -1 the
 * first one ends the trials.
 */
#include "tests/durability/tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef FAULTS_LIBRARY
#define FAULTS_LIBRARY "build/durability/faults.so"
#endif

enum { KINDS = 16, LIMIT_SECONDS = 120 };

static struct {
    const char *kinds[KINDS];
    size_t n_kinds;
    uint64_t most, seed, calls, kills; /* kills 0: at calls */
    int reads, one_is_enough, goes_on, interrupted;
    const char *quiet; /* names of files whose syncs may fail without a message; NULL: none */
    const char *before, *work;
    char folder[TREE_NAME], acks[TREE_NAME], log[TREE_NAME], said[TREE_NAME];
    char **program, **checker;
    uint64_t trials, killed, failed, done, refused;
} run = {.kinds = {"kill", "torn", "short", "eio", "enospc", "enospc+", "eintr"}, .n_kinds = 7, .seed = 1};

static const char *const words[] = {
#define TYPE(name, word) #word,
    LOG_TYPES
#undef TYPE
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void copy_folder(void) {
    remove_folder(run.folder);
    unlink(run.acks);
    unlink(run.log);
    FILE *none = fopen(run.log, "wb"); /* an empty log: it gives the folder as it was before */
    if (!none || fclose(none)) fail(run.log);
    history h = history_read(run.log, run.before);
    tree t = tree_make(&h, 0, NULL, 0);
    tree_write(&t, run.folder);
    tree_free(&t);
    history_free(&h);
    unlink(run.log);
}

/* What @, @/NAME, @@ and @N stand for, in the arguments of the program or of the checker. */
static char **filled_in(char **words, uint64_t number) {
    static char text[32], below[TREE_NAME + 256], *out[64];
    size_t n = 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    for (; words[n] && n < 63; n++) {
        int is_below = !strncmp(words[n], "@/", 2);
        if (is_below) snprintf(below, sizeof below, "%s%s", run.folder, words[n] + 1);
        out[n] = is_below                  ? below
                 : !strcmp(words[n], "@")  ? run.folder
                 : !strcmp(words[n], "@@") ? run.acks
                 : !strcmp(words[n], "@N") ? text
                                           : words[n];
    }
    out[n] = NULL;
    return out;
}

/* Runs the program; `fault` is the variable FAULT. */
static int run_trial(const char *fault, uint64_t number, kill_time *when) {
    setenv("FAULT", fault, 1);
    if (!when) setenv("LD_PRELOAD", FAULTS_LIBRARY, 1); /* otherwise the program runs without faults.so */
    int status = run_program(filled_in(run.program, number), NULL, run.said, LIMIT_SECONDS, when);
    unsetenv("LD_PRELOAD");
    return status;
}

static int something_said(void) {
    struct stat there;
    return stat(run.said, &there) == 0 && there.st_size > 0;
}

/* The last line of the file of reports: a killed program may have left half a line after it. */
static void last_report(char ack[256]) {
    FILE *file = fopen(run.acks, "r");
    char line[256];
    ack[0] = 0;
    while (file && fgets(line, sizeof line, file))
        if (strchr(line, '\n')) snprintf(ack, 256, "%.*s", (int)strcspn(line, "\n"), line);
    if (file) fclose(file);
}

/* The last call that was broken. `unheard`: it was a sync whose failure must be reported. */
static const char *broken_call(int *unheard) {
    const char *call = "-";
    *unheard = 0;
    if (run.kills) return call;
    history h = history_read(run.log, NULL);
    for (size_t i = 0; i < h.n_records; i++) {
        const log_record *r = h.records[i].record;
        if (!(r->flags & LOG_FAULT)) continue;
        const char *slash = r->path_bytes ? strrchr(h.records[i].path, '/') : NULL;
        int quiet = run.quiet && slash && !strncmp(slash + 1 + (slash[1] == '.'), run.quiet, strlen(run.quiet));
        call = words[r->type];
        *unheard = (r->type == LOG_SYNC || r->type == LOG_MAP_SYNC) && !quiet;
    }
    history_free(&h);
    return call;
}

/* How the program ended, and the checker's verdict; NULL: nothing is lost. */
static const char *judge(int status, const char *fault, uint64_t number, const char **outcome) {
    static char reason[128];
    int unheard;
    const char *call = broken_call(&unheard);
    char ack[256];
    last_report(ack);
    int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    *outcome = killed ? "killed" : exit_status(status) == 0 ? "done" : "failed";
    if (!killed && exit_status(status) > 1) {
        snprintf(reason, sizeof reason, "exit status %d", exit_status(status));
        return reason;
    }
    if (!killed && exit_status(status) == 1 && !something_said()) return "it failed without a word";
    if (killed && !run.kills && strncmp(fault, "kill", 4) && strncmp(fault, "torn", 4)) return "killed by whom?";
    if (unheard && !strcmp(*outcome, "done") && !strncmp(fault, "eio", 3)) return "it went on after a sync had failed";
    const char *more[] = {run.folder, ack, run.interrupted ? "killed" : *outcome, call, NULL};
    char said[TREE_NAME + 16];
    snprintf(said, sizeof said, "%s.checker", run.said);
    int answer = exit_status(run_program(filled_in(run.checker, number >> 1), more, said, LIMIT_SECONDS, NULL));
    snprintf(reason, sizeof reason, "the checker: exit status %d", answer);
    return answer == 0 ? NULL : reason;
}

static void show_refused(const char *fault, uint64_t number, const char *outcome, const char *reason) {
    char command[4 * TREE_NAME];
    printf("# refused: FAULT=%s, trial %llu of seed %llu, %s: %s\n", fault, (unsigned long long)number,
           (unsigned long long)run.seed, outcome, reason);
    fflush(stdout);
    snprintf(command, sizeof command,
             "head -n 5 '%s' '%s.checker' 2>&1 | sed 's/^/#   /'; rm -rf '%s/refused-%llu'; "
             "cp -r '%s' '%s/refused-%llu'",
             run.said, run.said, run.work, (unsigned long long)run.refused, run.folder, run.work,
             (unsigned long long)run.refused);
    if (system(command)) printf("# (it could not be kept)\n");
}

static void try(const char *fault, uint64_t number, kill_time *when) {
    const char *outcome;
    if (run.one_is_enough && run.refused > 0) return;
    if (!run.goes_on || !run.interrupted) copy_folder();
    int status = run_trial(fault, number, when);
    const char *reason = judge(status, fault, number, &outcome);
    run.interrupted = run.goes_on && *outcome == 'k';
    run.trials++;
    run.killed += *outcome == 'k';
    run.failed += *outcome == 'f';
    run.done += *outcome == 'd';
    if (reason && run.refused++ < 3) show_refused(fault, number, outcome, reason);
}

static void first_run(void) {
    const char *outcome;
    copy_folder();
    int status = run_trial("", 0, NULL);
    const char *reason = judge(status, "", 0, &outcome);
    if (status != 0 || reason) {
        show_refused("none", 0, outcome, reason ? reason : "it failed");
        exit(1);
    }
    history h = history_read(run.log, NULL);
    for (size_t i = 0; i < h.n_records; i++)
        if (h.records[i].record->number > run.calls) run.calls = h.records[i].record->number;
    history_free(&h);
    if (run.calls == 0) fail("the program made no call in the folder: is it seen?");
}

static void at_every_call(void) {
    uint64_t all = run.n_kinds * run.calls, random = run.seed;
    for (uint64_t i = 0; i < all; i++) {
        char fault[64];
        const char *kind = run.kinds[i % run.n_kinds];
        /* a fair draw of `most` out of all, in order */
        if (run.most && next_random(&random) % (all - i) >= run.most - (run.trials < run.most ? run.trials : run.most))
            continue;
        size_t letters = strcspn(kind, "+");
        snprintf(fault, sizeof fault, "%.*s:%llu%s", (int)letters, kind, (unsigned long long)(i / run.n_kinds + 1),
                 kind + letters);
        try(fault, next_random(&random) >> 16, NULL);
    }
}

static void at_any_moment(void) {
    uint64_t random = run.seed;
    copy_folder();
    double began = now();
    kill_time never = {.seconds = LIMIT_SECONDS, .never = 1};
    run_trial("", 0, &never);
    double seconds = now() - began;
    while (run.killed < run.kills && run.trials < 20 * run.kills) {
        kill_time when = {.seconds = 1.2 * seconds * (double)(next_random(&random) % 1000) / 1000};
        try("", next_random(&random) >> 16, &when);
    }
}

static size_t split_kinds(char *text) {
    size_t n = 0;
    for (char *kind = strtok(text, ","); kind && n < KINDS; kind = strtok(NULL, ",")) run.kinds[n++] = kind;
    return n;
}

static int read_arguments(int n, char **arguments) {
    int option;
    while ((option = getopt(n, arguments, "+1ck:n:q:s:t:r")) != -1) {
        if (option == '1') run.one_is_enough = 1;
        if (option == 'k') run.n_kinds = split_kinds(optarg);
        if (option == 'n') run.most = strtoull(optarg, NULL, 10);
        if (option == 's') run.seed = strtoull(optarg, NULL, 10);
        if (option == 't') run.kills = strtoull(optarg, NULL, 10);
        if (option == 'c') run.goes_on = 1;
        if (option == 'q') run.quiet = optarg;
        if (option == 'r') run.reads = 1;
        if (option == '?') return 0;
    }
    if (n - optind < 5) return 0;
    run.before = arguments[optind];
    run.work = arguments[optind + 1];
    run.program = arguments + optind + 2;
    for (char **each = run.program; *each && !run.checker; each++)
        if (!strcmp(*each, "--")) {
            *each = NULL;
            run.checker = each + 1;
        }
    return run.checker && run.checker[0] && run.program[0];
}

int main(int n, char **arguments) {
    if (!read_arguments(n, arguments)) {
        fprintf(stderr, "usage: trials [-1cr] [-k KINDS] [-n MOST] [-q NAME] [-s SEED] [-t KILLS] BEFORE WORK "
                        "PROGRAM... -- CHECKER...\n");
        return 2;
    }
    snprintf(run.folder, sizeof run.folder, "%s/folder", run.work);
    snprintf(run.acks, sizeof run.acks, "%s/acks", run.work);
    snprintf(run.log, sizeof run.log, "%s/log", run.work);
    snprintf(run.said, sizeof run.said, "%s/said", run.work);
    setenv("FAULTS_FOLDER", run.folder, 1);
    setenv("FAULTS_ACKS", run.acks, 1);
    setenv("FAULTS_LOG", run.log, 1);
    setenv("FAULTS_READS", run.reads ? "1" : "0", 1);
    first_run();
    if (run.kills)
        at_any_moment();
    else
        at_every_call();
    printf("# %s: %llu calls, %llu trials: %llu killed, %llu failed, %llu went on; %llu refused (seed %llu)\n",
           run.kills ? "killed at any moment" : "faults at calls", (unsigned long long)run.calls,
           (unsigned long long)run.trials, (unsigned long long)run.killed, (unsigned long long)run.failed,
           (unsigned long long)run.done, (unsigned long long)run.refused, (unsigned long long)run.seed);
    return run.refused > 0;
}
