/* machines.c - a table that two machines have, both in this process, so that they are killed at once: they train, save
 * every few steps, and resume from the saves that are there.
 *
 *     machines reference STEPS OUT                       a hash of all rows and their states after each step
 *     machines train STEPS EVERY FOLDER ACKS DRAW
 *     machines check STEPS REFERENCE DRAW FOLDER ACK STATUS CALL
 *
 * Each save replaces the one before: the base FOLDER/newest, or, every second time if DRAW is odd, the increment
 * FOLDER/more. How rows are dealt follows from DRAW, too, and stays as it is in a folder, because a split alone changes
 * it. `check` changes nothing: what is there is of step ACK or later, and opens; its rows are those of the REFERENCE.
 * Shares that no manifest names, and temporary files, are left only if the process was killed. Exit status 1 if a check
 * or the run failed. */
#include "frugal_save.h"
#include "tests/machines/dealt.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "src/format.h"

enum { MACHINES = 2, HERE = DEALT_DEVICES / MACHINES };

static struct {
    uint64_t steps, every, step; /* the last; of saves; the one that it begins with */
    const char *folder, *acks;
    const char *saved[2]; /* [n]: what it resumes from */
    uint32_t n;
    frugal_deal deal;
    int increments;
    wires wires;
    uint64_t hash; /* of all rows, at the end */
    pthread_barrier_t barrier;
} run;

static uint8_t homes[DEALT_MOST];
static char newest[PATH_MAX], more[PATH_MAX];

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "machines: %s: %s\n", what, why);
    exit(1);
}

#include "hashes.h"

static uint64_t hash_rows(frugal *f) {
    float values[2][DEALT_MOST * 2 * DEALT_SIZE] = {0};
    uint64_t hash = 1;
    dealt_read(f, values[0], values[1]);
    for (size_t i = 0; i < sizeof values / sizeof(uint32_t); i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)values + 4 * i, sizeof bits);
        hash = test_mix3(hash, bits, i);
    }
    return hash;
}

static void acknowledge(uint64_t step) {
    char line[32];
    int n = snprintf(line, sizeof line, "%llu\n", (unsigned long long)step);
    int fd = open(run.acks, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write(fd, line, (size_t)n) != n || close(fd)) die("cannot report to", run.acks);
}

/* Both machines; a save that fails on one fails on both. */
static frugal_status save(frugal *f, uint64_t step, uint32_t machine) {
    int increment = run.increments && step / run.every % 2 == 0;
    frugal_save_desc desc = {.path = increment ? more : newest, .increment = increment, .replace = 1};
    frugal_status status = frugal_save(&f, 1, &desc);
    if (status != FRUGAL_OK && machine == 0) fprintf(stderr, "machines: save: %s\n", frugal_message());
    pthread_barrier_wait(&run.barrier);
    if (status == FRUGAL_OK && machine == 0) acknowledge(step);
    return status;
}

static void *run_machine(void *number) {
    uint32_t me = (uint32_t)(uintptr_t)number, from = me * HERE;
    frugal_wire wire = wires_of(&run.wires, me);
    const frugal_machines machines = {
        .wire = &wire, .deal = run.deal, .homes = run.deal == FRUGAL_DEAL_LISTED ? homes : NULL};
    frugal_desc desc = dealt_desc(FRUGAL_ADAM);
    frugal *f;
    desc.machines = &machines;
    if (run.n) desc.saved = run.saved, desc.n_saved = run.n;
    if (frugal_open(&desc, &f)) die("open", frugal_message()); /* the other machine would wait for this one */
    uint64_t step = frugal_settings(f)->first_step;
    if (me == 0) run.step = step;
    for (uint32_t d = from; d < from + HERE; d++)
        if (frugal_cpu_attach(f, d, NULL)) die("attach", frugal_message());
    frugal_status status = FRUGAL_OK;
    uint64_t begins = hash_rows(f);
    if (me == 0) run.hash = begins;
    while (step < run.steps && status == FRUGAL_OK) {
        uint64_t end = run.every && step - step % run.every + run.every < run.steps
                           ? step - step % run.every + run.every
                           : run.steps;
        if (dealt_train(f, from, HERE, step, end)) die("train", frugal_message());
        step = end;
        if (run.every) status = save(f, step, me);
    }
    frugal_close(f);
    return (void *)(uintptr_t)(status != FRUGAL_OK);
}

static int run_machines(void) {
    pthread_t thread[MACHINES];
    int failed = 0;
    wires_init(&run.wires, &(wires_options){.seed = 1, .machines = MACHINES, .buffered = 50});
    pthread_barrier_init(&run.barrier, NULL, MACHINES);
    for (uintptr_t i = 0; i < MACHINES; i++)
        if (pthread_create(&thread[i], NULL, run_machine, (void *)i)) die("threads", "there are none");
    for (uint32_t i = 0; i < MACHINES; i++) {
        void *result;
        pthread_join(thread[i], &result);
        failed |= result != NULL;
    }
    wires_destroy(&run.wires);
    return failed;
}

/* What there is to resume from, and of which step it is. */
static uint64_t find_saves(void) {
    frugal_saved base, next;
    run.n = 0;
    if (access(newest, F_OK)) return 0;
    if (frugal_read_saved(newest, 0, &base)) die("the newest save cannot be read", frugal_message());
    run.saved[run.n++] = newest;
    if (access(more, F_OK)) return base.step;
    if (frugal_read_saved(more, 0, &next)) die("the increment cannot be read", frugal_message());
    if (next.parent != base.id) return base.step; /* of the base before */
    run.saved[run.n++] = more;
    return next.step;
}

static int reference(uint64_t steps, const char *out) {
    frugal *f;
    frugal_desc desc = dealt_desc(FRUGAL_ADAM);
    FILE *file = fopen(out, "wb");
    if (!file || frugal_open(&desc, &f)) die("cannot write", out);
    for (uint32_t d = 0; d < DEALT_DEVICES; d++) frugal_cpu_attach(f, d, NULL);
    for (uint64_t step = 0; step <= steps; step++) {
        uint64_t hash = hash_rows(f);
        fwrite(&hash, sizeof hash, 1, file);
        if (step < steps && dealt_train(f, 0, DEALT_DEVICES, step, step + 1)) die("train", frugal_message());
    }
    frugal_close(f);
    return fclose(file) != 0;
}

/* Is it a share that a manifest in the folder names? */
static int is_named_share(const char *entry) {
    const char *const paths[] = {newest, more};
    for (int i = 0; i < 2; i++) {
        manifest_header h;
        char name[PATH_MAX];
        FILE *file = fopen(paths[i], "rb");
        size_t n = file ? fread(&h, sizeof h, 1, file) : 0;
        if (file) fclose(file);
        for (uint32_t m = 0; n && m < h.machines; m++) {
            snprintf(name, sizeof name, "%s.%u-of-%u-%016llx", (const char *)h.stem, m, h.machines,
                     (unsigned long long)h.tag);
            if (!strcmp(name, entry)) return 1;
        }
    }
    return 0;
}

static void check_left(void) {
    DIR *open = opendir(run.folder);
    if (!open) die("cannot read the folder", run.folder);
    for (struct dirent *e; (e = readdir(open));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "newest") &&
            strcmp(e->d_name, "more") && !is_named_share(e->d_name))
            die("a file is left", e->d_name);
    closedir(open);
}

static int check(const char *hashes, const char *ack, const char *status, const char *call) {
    uint64_t step = find_saves();
    /* Shares stay where it is not sure that they are old: one cannot be removed, or the folder cannot be read, or not
     * synced, so that a power loss may bring back the manifest that was replaced. The next save removes them. */
    int may_be_left = !strcmp(call, "unlink") || !strcmp(call, "read") || !strcmp(call, "sync");
    if (!strcmp(status, "done") && !strcmp(call, "open")) may_be_left = 1;
    if ((!strcmp(status, "failed") || !strcmp(status, "done")) && !may_be_left) check_left();
    if (step < strtoull(ack, NULL, 10)) die("a save that was reported is not there, of step", ack);
    run.steps = 0; /* nothing is trained */
    if (run_machines() || run.step != step) die("the newest save cannot be opened", run.folder);
    if (run.hash != wanted_hash(hashes, step)) die("other rows than in the unbroken run", "where it was resumed");
    return 0;
}

int main(int n, char **arguments) {
    const char *what = n > 2 ? arguments[1] : "", *folder = "";
    uint64_t draw = 0;
    if (n == 4 && !strcmp(what, "reference")) return reference(strtoull(arguments[2], NULL, 10), arguments[3]);
    int trains = n == 7 && !strcmp(what, "train"), checks = n == 9 && !strcmp(what, "check");
    if (trains) folder = arguments[4], draw = strtoull(arguments[6], NULL, 10);
    if (checks) folder = arguments[5], draw = strtoull(arguments[4], NULL, 10);
    if (!trains && !checks) return 2;
    run.steps = strtoull(arguments[2], NULL, 10);
    run.folder = folder, run.increments = draw % 2 == 1, run.deal = (frugal_deal)(draw / 2 % 3);
    for (int i = 0; i < DEALT_MOST; i++) homes[i] = (uint8_t)(test_mix3(1, 2, (uint64_t)i) % MACHINES);
    snprintf(newest, sizeof newest, "%s/newest", folder), snprintf(more, sizeof more, "%s/more", folder);
    if (checks) return check(arguments[3], arguments[6], arguments[7], arguments[8]);
    run.every = strtoull(arguments[3], NULL, 10), run.acks = arguments[5];
    find_saves();
    return run_machines();
}
