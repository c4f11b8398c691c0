/* Failures, threads, the clock, devices on host cores and rows of programs that train on Frugal. */
#include "trainers/common/training.h"
#include "trainers/common/manifest.h"
#include "trainers/common/ranks.h"
#include "frugal_save.h"
#include "frugal_seeing.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Failures ------------------------------------------------------------------------------------------ */

/* Behind the status: the name of the file comes last, and may be anything. */
static int training_is_save_damaged(const char *message) {
    static const char *const begins[] = {"the save cannot be used: ", "cannot read the save: ",
                                         "a save is wanted, and this file does not begin as one: "};
    const char *what = strstr(message, ": ");
    for (size_t i = 0; what && i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(what + 2, begins[i], strlen(begins[i]))) return 1;
    return 0;
}

int training_fail(const char *what, program_error *error) {
    program_fail(error, "%s: %s", what, frugal_message());
    error->damaged = training_is_save_damaged(frugal_message());
    return -1;
}

void training_notice(const char *text, void *user) {
    (void)user;
    if (!program_has_failed()) fprintf(stderr, "%s\n", text);
}

int training_saved_id(const char *path, uint64_t *id, program_error *error) {
    frugal_saved saved;
    if (frugal_read_saved(path, 0, &saved)) return training_fail("cannot open the embedding tables", error);
    *id = saved.id;
    return 0;
}

int training_find_tables(const char *folder, const char *name, char *path, program_error *error) {
    char other[MANIFEST_TEXT];
    frugal_saved saved;
    uint32_t machines = ranks_all();
    snprintf(other, sizeof other, "%s.for-%" PRIu32, name, machines);
    if (manifest_path(path, folder, other, error)) return -1;
    if (!access(path, F_OK)) return 0;
    if (manifest_path(path, folder, name, error)) return -1;
    if (frugal_read_saved(path, 0, &saved)) return training_fail("cannot open the embedding tables", error);
    uint32_t of = saved.machines ? saved.machines : 1;
    if (of == machines) return 0;
    char how[32] = "";
    if (machines > 1) snprintf(how, sizeof how, " --machines %" PRIu32, machines);
    return program_fail(error,
                        "%.150s is of %" PRIu32 " machine%s, and there %s %" PRIu32 "; make a copy for %s, and resume "
                        "again: cd %.150s; frugal_file %s %s %s%s",
                        path, of, of == 1 ? "" : "s", machines == 1 ? "is" : "are", machines,
                        machines == 1 ? "it" : "them", folder, machines == 1 ? "merge" : "split", other, name, how);
}

int training_check_saved(const char *path, uint64_t id, program_error *error) {
    uint64_t found = 0;
    if (training_saved_id(path, &found, error)) return -1;
    if (found == id) return 0;
    program_fail(error, "the save cannot be used: it is not the one that the state beside it was written with: %.300s",
                 path);
    error->damaged = 1;
    return -1;
}

/* The text first: another thread that gives up may read both meanwhile. */
void training_note_end(training_end *end, frugal_status status) {
    /* A device that waits for others may learn of their failure without calling Frugal. */
    if (status && !*end->error.text)
        program_fail(&end->error, "%s", status == FRUGAL_STOPPED ? frugal_strerror(status) : frugal_message());
    __atomic_store_n(&end->status, status, __ATOMIC_RELEASE); /* pairs with training_failure */
}

const training_end *training_failure(const training_end *end, uint32_t n) {
    const training_end *first = NULL;
    for (uint32_t i = 0; i < n; i++) {
        frugal_status status = __atomic_load_n(&end[i].status, __ATOMIC_ACQUIRE); /* pairs with training_note_end */
        if (status && (!first || (first->status == FRUGAL_STOPPED && status != FRUGAL_STOPPED))) first = &end[i];
    }
    return first;
}

int training_failed(const training_end *end, uint32_t n, uint32_t devices, program_error *error) {
    const training_end *failed = training_failure(end, n);
    uint32_t which = failed ? (uint32_t)(failed - end) : 0;
    if (!failed) return 0;
    if (which >= devices) return program_fail(error, "%s", failed->error.text);
    return program_fail(error, "device %u failed at training: %s", which, failed->error.text);
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

typedef struct training_thread {
    pthread_t id;
    void (*run)(void *trainer, uint32_t part);
    void *trainer;
    uint32_t part;
} training_thread;

static void *training_thread_run(void *argument) {
    const training_thread *thread = argument;
    thread->run(thread->trainer, thread->part);
    return NULL;
}

int training_run(uint32_t parts, void run(void *trainer, uint32_t part), void give_up(void *trainer), void *trainer,
                 program_error *error) {
    training_thread *threads = malloc(parts * sizeof *threads);
    if (!threads) return program_fail(error, "out of memory");
    uint32_t started = 0;
    for (; started < parts; started++) {
        threads[started] = (training_thread){.run = run, .trainer = trainer, .part = started};
        if (pthread_create(&threads[started].id, NULL, training_thread_run, &threads[started])) break;
    }
    if (started < parts) give_up(trainer);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i].id, NULL);
    free(threads);
    return started < parts ? program_fail(error, "cannot start %u threads; use fewer --devices", parts) : 0;
}

void training_give_up(processes *p, const training_end *end, uint32_t n, uint32_t devices) {
    const training_end *failed = training_failure(end, n);
    program_error why;
    if (!processes_is_other(p)) {
        processes_break(p);
        return;
    }
    if (!training_failed(end, n, devices, &why)) program_fail(&why, "cannot start its threads; use fewer --devices");
    processes_end(p, failed ? failed->status : FRUGAL_ERR_WORKER, &why);
}

int training_join_run(processes *p, int status, const training_end *end, uint32_t n, uint32_t devices,
                      program_error *error) {
    const training_end *failed = training_failure(end, n);
    if (!status) status = training_failed(end, n, devices, error);
    if (!status) return processes_await(p, error);
    processes_explain(p, failed ? failed->status : FRUGAL_OK, error);
    return status;
}

/* ---- The clock ----------------------------------------------------------------------------------------- */

void training_start(training_clock *clock) {
    clock->started = program_now();
}

void training_pause(training_clock *clock) {
    clock->before = training_elapsed(clock);
}

double training_elapsed(const training_clock *clock) {
    return clock->before + program_now() - clock->started;
}

double training_progress(const training_settings *settings, uint64_t step, double seconds) {
    double by_steps = settings->steps ? (double)step / (double)settings->steps : 0;
    double by_seconds = settings->seconds > 0 ? seconds / settings->seconds : 0;
    double progress = by_steps > by_seconds ? by_steps : by_seconds;
    return progress < 1 ? progress : 1;
}

void training_describe(const training_settings *settings, FILE *lines) {
    fprintf(lines, "--devices %u\n--optimizer %s\n--lr %.9g\n--lr-decay %s\n--weight-decay %.9g\n--init %.9g\n",
            settings->devices, training_optimizer_word(settings->optimizer), (double)settings->lr,
            settings->decay ? "linear" : "none", (double)settings->weight_decay, (double)settings->init);
    fprintf(lines, "--seed %" PRIu64 "\n", settings->seed);
    if (settings->rows_as != FRUGAL_FP32)
        fprintf(lines, "--rows-as %s\n--rounding %s\n", training_type_word(settings->rows_as),
                settings->rounding == FRUGAL_NEAREST ? "nearest" : "stochastic");
    if (settings->decay && settings->steps)
        fprintf(lines, "--steps %" PRIu64 " (the learning rate falls until then)\n", settings->steps);
}

/* ---- Devices and rows ---------------------------------------------------------------------------------- */

int training_attach_cpu(frugal *f, uint32_t device, const frugal_cpu_desc *desc, program_error *error) {
    return frugal_cpu_attach(f, device, desc) ? training_fail("cannot attach a device", error) : 0;
}

float *training_floats(uint64_t n) {
    return aligned_alloc(64, (n * sizeof(float) + 64) / 64 * 64);
}

uint64_t *training_table_rows(frugal *f, program_error *error) {
    const frugal_desc *desc = frugal_settings(f);
    uint32_t n = desc->n_tables, machines = ranks_all();
    uint64_t *mine = malloc(n * sizeof *mine), *all = malloc((uint64_t)n * machines * sizeof *all);
    for (uint32_t t = 0; mine && t < n; t++) mine[t] = desc->tables[t].rows;
    frugal_status status = mine && all ? frugal_exchange(f, mine, n * sizeof *mine, all) : FRUGAL_ERR_MEMORY;
    if (!status)
        for (uint32_t i = 0; i < n * machines; i++) mine[i % n] = i < n ? all[i] : mine[i % n] + all[i];
    free(all);
    if (!status) return mine;
    free(mine);
    training_fail("cannot count the rows of the tables", error);
    return NULL;
}

frugal_keys training_stretch(const uint64_t *rows, uint64_t *keys, uint64_t n) {
    uint32_t table = 0, end = 0;
    uint64_t first = 0;
    while (keys[0] - first >= rows[table]) first += rows[table++];
    for (; end < n && keys[end] - first < rows[table]; end++) keys[end] -= first;
    return (frugal_keys){.table = table, .keys = keys, .n = end};
}

int training_read_rows(frugal *f, const training_span *span, float *rows, program_error *error) {
    enum { BLOCK = 4096 };
    uint64_t keys[BLOCK], end = span->first + span->n;
    uint32_t dim = frugal_settings(f)->dim;
    for (uint64_t from = span->first; from < end; from += BLOCK) {
        uint32_t n = (uint32_t)(end - from < BLOCK ? end - from : BLOCK);
        frugal_keys block = {.table = span->table, .keys = keys, .n = n};
        for (uint32_t i = 0; i < n; i++) keys[i] = from + i;
        if (ranks_number()) block.n = 0; /* it only gives */
        if (frugal_read_rows(f, &block, block.n ? rows + (from - span->first) * dim : NULL, NULL))
            return training_fail("cannot read the embeddings", error);
    }
    return 0;
}

int training_drain(frugal *f, uint64_t step, program_error *error) {
    frugal_stats stats;
    if (frugal_drain(f)) return training_fail("cannot flush the last updates", error);
    frugal_get_stats(f, &stats);
    uint64_t there = frugal_settings(f)->first_step + stats.steps;
    if (there >= step) return 0;
    if (frugal_verify(f)) return training_fail("the last step is not finished", error);
    return program_fail(error, "the last step is not finished: step %llu is wanted, the rows are of step %llu",
                        (unsigned long long)step, (unsigned long long)there);
}

/* Of any type of weights. */
static int is_row_finite(const void *rows, uint64_t first, const frugal_desc *desc) {
    if (desc->rows_as == FRUGAL_FP32) return training_is_finite((const float *)rows + first, desc->dim);
    const uint16_t *row = (const uint16_t *)rows + first, infinity = desc->rows_as == FRUGAL_BF16 ? 0x7f80 : 0x7c00;
    for (uint32_t i = 0; i < desc->dim; i++)
        if ((row[i] & 0x7fff) >= infinity) return 0;
    return 1;
}

/* Of this machine's rows of a table. *first: the first of them, as this machine numbers them. */
static uint64_t training_count_bad(frugal *f, uint32_t table, uint64_t *first) {
    const frugal_desc *desc = frugal_settings(f);
    uint64_t stride, n = 0;
    const void *rows;
    if (frugal_view(f, table, &rows, &stride)) return 0; /* not drained: its failure was told */
    for (uint64_t row = desc->tables[table].rows; row-- > 0;)
        if (!is_row_finite(rows, row * stride, desc)) n++, *first = row;
    return n;
}

void training_tell_rows(frugal *f) {
    uint32_t tables = frugal_settings(f)->n_tables;
    for (uint32_t t = 0; t < tables; t++) {
        uint64_t first = 0, all[FRUGAL_MAX_MACHINES], n = training_count_bad(f, t, &first), bad = 0;
        if (frugal_exchange(f, &n, sizeof n, all)) return; /* the next call says why */
        for (uint32_t i = 0; i < ranks_all(); i++) bad += all[i];
        if (bad) fprintf(stderr, "table %" PRIu32 ": %" PRIu64 " rows have NaN or infinity", t, bad);
        if (bad && ranks_all() == 1) fprintf(stderr, ", the first is row %" PRIu64, first);
        if (bad) fputc('\n', stderr);
    }
}

training_word training_word_of(frugal *const *instances, uint32_t n, double seconds) {
    training_sums sums = {.step = 0};
    for (uint32_t i = 0; i < n; i++) training_add_stats(&sums, instances[i]);
    return (training_word){
        .seconds = seconds, .stall = sums.stall, .hits = sums.hits, .misses = sums.misses, .signal = ranks_signal()};
}

training_word training_hear(const void *all, size_t stride, training_sums *others) {
    training_word heard = {.signal = 0}, one;
    *others = (training_sums){.step = 0};
    for (uint32_t i = 0; i < ranks_all(); i++) {
        memcpy(&one, (const char *)all + i * stride, sizeof one);
        if (i == 0) heard = one;
        if (one.signal) heard.signal = one.signal;
        if (i == ranks_number()) continue;
        others->stall += one.stall, others->hits += one.hits, others->misses += one.misses;
    }
    return heard;
}

int training_trace_write(const training_settings *settings, frugal *const *instances, uint32_t n,
                         program_error *error) {
    char path[4096];
    for (uint32_t i = 0; i < n && settings->trace && !ranks_number(); i++) {
        int length = i ? snprintf(path, sizeof path, "%s.%" PRIu32, settings->trace, i)
                       : snprintf(path, sizeof path, "%s", settings->trace);
        if (length >= (int)sizeof path)
            return program_fail(error, "--trace is a path of more than %zu bytes", sizeof path);
        if (frugal_trace_write(instances[i], path)) return training_fail("cannot write --trace", error);
    }
    return 0;
}

int training_trace_start(const training_settings *settings, frugal *const *instances, uint32_t n,
                         program_error *error) {
    for (uint32_t i = 0; i < n && settings->trace && !ranks_number(); i++)
        if (frugal_trace_start(instances[i], 0)) return training_fail("cannot record for --trace", error);
    return training_trace_write(settings, instances, n, error);
}

int training_is_finite(const float *values, uint64_t n) {
    int finite = 1;
    for (uint64_t i = 0; i < n; i++) finite &= isfinite(values[i]) != 0;
    return finite;
}
