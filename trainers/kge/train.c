/* The training loop over Frugal's logical devices. */
#include "trainers/kge/train.h"
#include "trainers/kge/kge_cuda.h"
#include "trainers/kge/sample.h"
#include "trainers/common/best.h"
#include "trainers/common/processes.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"
#include "frugal_save.h"
#ifdef TRAINING_CUDA
#include "trainers/common/training_cuda.h"
#endif

#include <stdlib.h>
#include <string.h>

#define KGE_BATCHES 16 /* a ring: one batch a step, L + 1 <= 16 of them alive */
#define KGE_RATES   4  /* learning rates of the next steps, where they follow the clock */

enum { KGE_JOIN_SECONDS = 30 }; /* far more than needed: the tables are open when another process joins */

typedef struct kge_device {
    kge_trainer *trainer;
    uint32_t number;
    kge_batch batch[KGE_BATCHES]; /* step s is at s mod 16, because its ids are needed until s is trained */
    kge_workspace work;
    kge_cuda *cuda;      /* its GPU; NULL: it computes on host cores */
    float *rows, *grads; /* in the GPU's memory if the device has one */
    uint64_t *keys;
    uint64_t announced;           /* next step to announce */
    _Atomic double loss;          /* sum over steps so far; only this device writes, here and below */
    atomic_uint_least64_t losses; /* the number of losses in the sum */
    training_end *end;            /* the trainer's, of this device */
} kge_device;

/* Of the current run. Device 0 decides for all: it sets stop_at at least two steps ahead, before its own update; no
 * device begins a step before all have updated the step before the last (kge_device_step), so all see it in time. */
typedef struct kge_run {
    uint64_t first;
    /* Of several machines: the first device of each decides, for all alike, because they tell each other what they know
     * before step `agree_at`; it is rank 0's clock that counts. `agreed`: of the last time. */
    uint64_t agree_at;
    struct kge_agreed {
        uint64_t step;
        double seconds;
    } agreed;
    atomic_uint_least64_t stop_at;
    _Atomic float rate[KGE_RATES]; /* of step s at s mod 4; decided by device 0 at s - 2 */
} kge_run;

/* What a rank tells the others: a training_word, and the losses of its devices. */
typedef struct kge_words {
    unsigned char *mine, *all; /* all[ranks][bytes] */
    size_t bytes;
    training_sums others; /* statistics of the other ranks */
} kge_words;

/* Each process has its own, and those of its devices. All processes share devices, ends and the run. */
struct kge_trainer {
    kge_settings settings;
    const kge_graph *graph;
    kge_sampler sampler;
    kge_questions questions; /* of KvsAll, which the sampler draws in place of triples */
    kge_weights weights;     /* of the sampler's triples, where questions with many answers are damped */
    processes *processes;
    frugal *frugal;
    ranks_dealing dealing;
    kge_words words;
    uint64_t table_rows[2];
    kge_device *device; /* [devices]; those of other machines have losses alone */
    training_end *end;  /* [devices] */
    kge_run *run;
    uint64_t step;  /* next to train; between runs */
    uint64_t last;  /* the last step + 1; UINT64_MAX: the clock decides */
    uint64_t saved; /* the id of the last save of the tables; the state written after it names this id */
    int done;
    training_clock clock;
    double pause_at;       /* program_now() when a run shall end; 0: never */
    training_sums earlier; /* of the runs before this process: stall, hits and misses alone */
    atomic_int *stop;
    training_reporter reporter; /* device 0's, or between runs */
};

/* ---- Opening ------------------------------------------------------------------------------------------ */

static kge_batch kge_shape(const kge_trainer *trainer) {
    const kge_settings *settings = &trainer->settings;
    kge_batch shape = {.triples = settings->common.batch,
                       .chunk = settings->chunk,
                       .negatives = settings->negatives,
                       .weighted = settings->model.damping != 0};
    if (settings->model.scoring == KGE_SAMPLED) return shape;
    shape.negatives = 0, shape.entities = trainer->graph->entities.n;
    if (settings->model.scoring == KGE_KVSALL) shape.questions = &trainer->questions;
    return shape;
}

static int kge_frugal_open(kge_trainer *trainer, uint32_t positions, program_error *error) {
    const kge_settings *settings = &trainer->settings;
    frugal_table tables[2];
    for (int i = 0; i < 2; i++) {
        /* Of the relations of rotate, only the phase counts; the longer they are, the less a step turns them. */
        float most = i == 1 && settings->model.kind == KGE_ROTATE ? 1.0f : settings->common.init;
        tables[i] =
            (frugal_table){.rows = trainer->table_rows[i], .init = FRUGAL_INIT_UNIFORM, .low = -most, .high = most};
    }
    frugal_desc desc = {
        .tables = tables,
        .n_tables = 2,
        .dim = settings->model.dim,
        .devices = settings->common.devices,
        .max_keys = positions,
        .lookahead = settings->common.lookahead,
        .workers = settings->common.workers,
        .mode = settings->common.mode,
        .alone = settings->common.alone,
        .rows_as = settings->common.rows_as,
        .rounding = settings->common.rounding,
        .reduce = FRUGAL_MEAN,
        .name = processes_name(trainer->processes, 0),
        .file = settings->table_file,
        .saved = settings->saved ? &settings->saved : NULL,
        .n_saved = settings->saved ? 1 : 0,
        .first_step = trainer->step,
        .seed = settings->common.seed,
        .notice = training_notice,
        .optimizer = {.kind = settings->common.optimizer, .weight_decay = settings->common.weight_decay}};
    ranks_rows rows = {.ids = trainer->table_rows[0] + trainer->table_rows[1],
                       .twins = settings->model.reciprocal ? trainer->graph->relations.n : 0,
                       .homes = settings->placing ? settings->placing->homes.of : NULL};
    if (ranks_deal(&trainer->dealing, settings->common.deal, &rows, error)) return -1;
    desc.machines = ranks_machines(&trainer->dealing);
    frugal_status status = frugal_open(&desc, &trainer->frugal);
    if (!status) return 0;
    return training_fail(settings->table_file ? "cannot open --table-file" : "cannot open the embedding tables", error);
}

static uint64_t kge_cache_rows(const kge_trainer *trainer) {
    double rows = (double)(trainer->table_rows[0] + trainer->table_rows[1]) / ranks_all();
    return (uint64_t)(trainer->settings.common.cache * rows);
}

static int kge_cpu_open(kge_device *device, const kge_batch *shape, uint32_t positions, program_error *error) {
    const kge_trainer *trainer = device->trainer;
    const kge_model *model = &trainer->settings.model;
    frugal_cpu_desc desc = {.cache_rows = kge_cache_rows(trainer), .policy = trainer->settings.common.cache_policy};
    if (training_attach_cpu(trainer->frugal, device->number, &desc, error)) return -1;
    device->rows = training_floats((uint64_t)positions * model->dim);
    device->grads = training_floats((uint64_t)positions * model->dim);
    if (!device->rows || !device->grads)
        return program_fail(error, "out of memory for %u rows a step; use a smaller --batch or --negatives", positions);
    return kge_workspace_open(&device->work, model, shape, error);
}

#ifdef TRAINING_CUDA
/* The stream waits at gates in the thread's place, if there are workers to open them. */
static int kge_gpu_open(kge_device *device, const kge_batch *shape, program_error *error) {
    kge_trainer *trainer = device->trainer;
    const kge_settings *settings = &trainer->settings;
    int ordinal = settings->common.gpu[device->number] - 1;
    device->cuda = kge_cuda_new(ordinal);
    if (!device->cuda) return program_fail(error, "out of memory");
    frugal_cuda_desc desc = {.cache_rows = kge_cache_rows(trainer),
                             .policy = settings->common.cache_policy,
                             .stream = kge_cuda_stream(device->cuda),
                             .gate_on_stream = settings->common.workers > 0};
    if (training_attach_cuda(trainer->frugal, device->number, ordinal, &desc, error)) return -1;
    if (kge_cuda_open(device->cuda, &settings->model, shape, settings->common.lookahead + 1, error)) return -1;
    kge_cuda_begin(device->cuda, trainer->step);
    device->rows = kge_cuda_rows(device->cuda);
    device->grads = kge_cuda_grads(device->cuda);
    return 0;
}
#endif

/* Continues from settings.resumed. */
static int kge_resume(kge_trainer *trainer, program_error *error) {
    const kge_state *from = trainer->settings.resumed;
    const training_settings *settings = &trainer->settings.common;
    if (from->devices != settings->devices)
        return program_fail(error, "the training to go on from has %llu devices, this one %u; give the same",
                            (unsigned long long)from->devices, settings->devices);
    trainer->step = from->step;
    trainer->clock.before = from->seconds;
    trainer->earlier = (training_sums){.stall = from->stall, .hits = from->hits, .misses = from->misses};
    for (uint32_t d = 0; d < settings->devices; d++) {
        trainer->device[d].announced = from->step;
        atomic_store(&trainer->device[d].loss, from->counted[d].loss);
        atomic_store(&trainer->device[d].losses, from->counted[d].losses);
    }
    trainer->done =
        from->step >= trainer->last || (settings->seconds > 0 && trainer->clock.before >= settings->seconds);
    return 0;
}

static int kge_device_open(kge_device *device, kge_trainer *trainer, uint32_t number, uint32_t positions,
                           program_error *error) {
    kge_batch shape = kge_shape(trainer);
    device->trainer = trainer;
    device->number = number;
    device->end = &trainer->end[number];
    device->keys = malloc(positions * sizeof *device->keys);
    if (!device->keys) return program_fail(error, "out of memory for %u rows a step", positions);
    for (int i = 0; i < KGE_BATCHES; i++)
        if (kge_batch_open(&device->batch[i], &shape, error)) return -1;
#ifdef TRAINING_CUDA
    if (trainer->settings.common.gpu[number]) return kge_gpu_open(device, &shape, error);
#endif
    return kge_cpu_open(device, &shape, positions, error);
}

/* Attaches the devices of this process. */
static int kge_devices_open(kge_trainer *trainer, program_error *error) {
    kge_batch shape = kge_shape(trainer);
    uint32_t positions = kge_batch_positions(&trainer->settings.model, &shape);
    uint32_t first = processes_first(trainer->processes), end = first + processes_devices(trainer->processes);
    for (uint32_t d = first; d < end; d++)
        if (kge_device_open(&trainer->device[d], trainer, d, positions, error)) return -1;
    return 0;
}

/* What another process does when the first one begins it. */
enum { KGE_JOIN, KGE_RUN };

static int kge_run_devices(kge_trainer *trainer, program_error *error);

static int kge_work(void *argument, uint32_t what, program_error *error) {
    kge_trainer *trainer = argument;
    if (what == KGE_RUN) return kge_run_devices(trainer, error);
    if (frugal_join(processes_name(trainer->processes, 0), KGE_JOIN_SECONDS, &trainer->frugal))
        return training_fail("cannot join the embedding tables", error);
    frugal_on_notice(trainer->frugal, training_notice, NULL);
    return kge_devices_open(trainer, error);
}

static void kge_leave(void *trainer) {
    frugal_close(((kge_trainer *)trainer)->frugal);
}

/* What this rank tells the others. */
static int kge_words_open(kge_trainer *trainer, program_error *error) {
    kge_words *words = &trainer->words;
    if (ranks_all() == 1) return 0;
    words->bytes = sizeof(training_word) + processes_devices(trainer->processes) * sizeof(kge_counted);
    words->mine = calloc(1, words->bytes);
    words->all = calloc(ranks_all(), words->bytes);
    return words->mine && words->all ? 0 : program_fail(error, "out of memory");
}

static int kge_parts_open(kge_trainer *trainer, program_error *error) {
    static const processes_work work = {kge_work, kge_leave};
    const kge_settings *settings = &trainer->settings;
    const placing *placing = settings->placing;
    uint32_t devices = settings->common.devices;
    kge_batch shape = kge_shape(trainer);
    uint32_t positions = kge_batch_positions(&settings->model, &shape);
    if ((uint64_t)positions * devices > 1u << 26) /* options.c does not know the number of entities */
        return program_fail(error,
                            "a step would read %llu rows, the limit is 2^26; use fewer --devices, a smaller --batch%s",
                            (unsigned long long)positions * devices, shape.entities ? ", or --scoring sampled" : "");
    trainer->sampler = (kge_sampler){.train = &trainer->graph->split[KGE_TRAIN],
                                     .seed = settings->common.seed,
                                     .entities = trainer->graph->entities.n,
                                     .relations = trainer->graph->relations.n,
                                     .devices = devices,
                                     .batch = settings->common.batch};
    if (settings->model.scoring == KGE_KVSALL) {
        if (kge_questions_build(&trainer->questions, trainer->graph, error)) return -1;
        trainer->sampler.train = &trainer->questions.asked;
    }
    if (settings->model.damping != 0) {
        if (kge_weights_build(&trainer->weights, trainer->graph, settings->model.damping, error)) return -1;
        trainer->sampler.weights = &trainer->weights;
    }
    if (placing && placing->partition.parts && kge_sampler_deal(&trainer->sampler, placing->partition.parts, error))
        return -1;
    if (settings->resumed && kge_resume(trainer, error)) return -1;
    if (kge_words_open(trainer, error)) return -1;
    if (processes_start(trainer->processes, &work, trainer, error)) return -1;
    if (kge_frugal_open(trainer, positions, error)) return -1;
    processes_begin(trainer->processes, KGE_JOIN);
    if (kge_devices_open(trainer, error) || processes_await(trainer->processes, error)) return -1;
    if (settings->secondaries && secondaries_list(settings->secondaries, trainer->frugal, error)) return -1;
    for (uint32_t d = 0; placing && d < ranks_devices(devices); d++) /* after the lists, which empty caches */
        if (placing_preload(placing, trainer->frugal, ranks_first(devices) + d, kge_cache_rows(trainer), error))
            return -1;
    return training_trace_start(&settings->common, &trainer->frugal, 1, error);
}

/* What all processes share. */
static int kge_memory_open(kge_trainer *trainer, program_error *error) {
    const training_settings *settings = &trainer->settings.common;
    if (processes_open(&trainer->processes, settings->processes, settings->devices, error)) return -1;
    trainer->device = processes_memory(trainer->processes, settings->devices * sizeof *trainer->device);
    trainer->end = processes_memory(trainer->processes, settings->devices * sizeof *trainer->end);
    trainer->run = processes_memory(trainer->processes, sizeof *trainer->run);
    return trainer->device && trainer->end && trainer->run ? 0 : program_fail(error, "out of memory");
}

int kge_trainer_open(kge_trainer **out, const kge_settings *settings, const kge_graph *graph, program_error *error) {
    kge_trainer *trainer = calloc(1, sizeof *trainer);
    *out = NULL;
    if (!trainer) return program_fail(error, "out of memory");
    trainer->settings = *settings;
    if (kge_memory_open(trainer, error)) {
        kge_trainer_close(trainer);
        return -1;
    }
    trainer->graph = graph;
    trainer->settings.model.stands_for = settings->corrected ? graph->entities.n : 0;
    trainer->table_rows[0] = graph->entities.n;
    trainer->table_rows[1] = (uint64_t)graph->relations.n * (settings->model.reciprocal ? 2 : 1);
    trainer->last = settings->common.steps ? settings->common.steps : settings->common.seconds > 0 ? UINT64_MAX : 0;
    trainer->done = !trainer->last; /* it is only read */
    int status = kge_parts_open(trainer, error);
    if (status)
        kge_trainer_close(trainer);
    else
        *out = trainer;
    if (!status) trainer->settings.resumed = NULL, trainer->settings.saved = NULL; /* the caller's */
    return status;
}

static void kge_device_close(kge_device *device) {
    for (int i = 0; i < KGE_BATCHES; i++) kge_batch_close(&device->batch[i]);
    kge_workspace_close(&device->work);
    if (!device->cuda) {
        free(device->rows);
        free(device->grads);
    }
    kge_cuda_close(device->cuda); /* after frugal_close, because Frugal used its stream, too */
    free(device->keys);
}

int kge_trainer_close_table(kge_trainer *trainer, program_error *error) {
    if (!trainer) return 0;
    processes_leave(trainer->processes);
    int status = frugal_close(trainer->frugal) ? training_fail("the tables are not saved", error) : 0;
    trainer->frugal = NULL;
    return status;
}

/* The other processes close their devices by their end. */
void kge_trainer_close(kge_trainer *trainer) {
    program_error ignored;
    if (!trainer) return;
    uint32_t devices = trainer->device ? processes_devices(trainer->processes) : 0;
    kge_trainer_close_table(trainer, &ignored);
    ranks_deal_close(&trainer->dealing);
    for (uint32_t d = 0; d < devices; d++) kge_device_close(&trainer->device[processes_first(trainer->processes) + d]);
    processes_close(trainer->processes);
    free(trainer->words.mine);
    free(trainer->words.all);
    kge_sampler_close(&trainer->sampler);
    kge_questions_free(&trainer->questions);
    kge_weights_free(&trainer->weights);
    free(trainer);
}

/* ---- Reports ------------------------------------------------------------------------------------------ */

/* The losses of all devices. Relaxed, because a report may lag some steps. Those of a GPU come later anyway, so the sum
 * says how many it has. */
static double kge_loss_sum(const kge_trainer *trainer, uint64_t *losses) {
    double sum = 0;
    *losses = 0;
    for (uint32_t d = 0; d < trainer->settings.common.devices; d++) {
        sum += atomic_load_explicit(&trainer->device[d].loss, memory_order_relaxed);
        *losses += atomic_load_explicit(&trainer->device[d].losses, memory_order_relaxed);
    }
    return sum;
}

static training_sums kge_sums(const kge_trainer *trainer, uint64_t step, double seconds) {
    training_sums sums = trainer->earlier;
    sums.step = step;
    sums.samples = kge_sampled(&trainer->sampler, step);
    sums.seconds = seconds;
    sums.loss = kge_loss_sum(trainer, &sums.losses);
    const training_sums *others = &trainer->words.others;
    sums.stall += others->stall, sums.hits += others->hits, sums.misses += others->misses;
    training_add_stats(&sums, trainer->frugal);
    return sums;
}

void kge_trainer_report_to(kge_trainer *trainer, training_report_function *function, void *user,
                           double report_seconds) {
    trainer->reporter = (training_reporter){.function = function, .user = user, .seconds = report_seconds};
    trainer->reporter.reported = kge_sums(trainer, trainer->step, trainer->clock.before);
}

/* Device 0 before step `step`, or between runs: reports what happened since the previous report. */
static void kge_make_report(kge_trainer *trainer, uint64_t step, double seconds) {
    const training_settings *settings = &trainer->settings.common;
    training_sums now = kge_sums(trainer, step, seconds);
    training_tell(&trainer->reporter, &now, settings->devices, training_progress(settings, step, seconds));
}

void kge_trainer_report(kge_trainer *trainer) {
    if (trainer->reporter.function && trainer->step > trainer->reporter.reported.step)
        kge_make_report(trainer, trainer->step, trainer->clock.before);
}

training_report kge_trainer_total(const kge_trainer *trainer) {
    training_sums now = kge_sums(trainer, trainer->step, trainer->clock.before);
    return training_report_between(&(training_sums){0}, &now, trainer->settings.common.devices);
}

void kge_trainer_tell_rows(kge_trainer *trainer) {
    training_tell_rows(trainer->frugal);
}

void kge_trainer_stats(const kge_trainer *trainer, frugal_stats *stats) {
    frugal_get_stats(trainer->frugal, stats);
}

/* ---- A device's thread -------------------------------------------------------------------------------- */

static float kge_decayed(const kge_settings *settings, double progress) {
    return settings->common.decay ? (float)(settings->common.lr * (1 - progress)) : settings->common.lr;
}

/* The ranks tell each other what they know. *heard: what counts; the losses become those of all devices. */
static frugal_status kge_exchange(kge_trainer *trainer, double seconds, training_word *heard) {
    kge_words *words = &trainer->words;
    uint32_t first = processes_first(trainer->processes), n = processes_devices(trainer->processes);
    kge_counted counted;
    *heard = training_word_of(&trainer->frugal, 1, seconds);
    heard->pauses = trainer->pause_at > 0 && program_now() >= trainer->pause_at;
    memcpy(words->mine, heard, sizeof *heard);
    for (uint32_t i = 0; i < n; i++) {
        const kge_device *device = &trainer->device[first + i];
        counted = (kge_counted){atomic_load(&device->loss), atomic_load(&device->losses)};
        memcpy(words->mine + sizeof *heard + i * sizeof counted, &counted, sizeof counted);
    }
    frugal_status status = frugal_exchange(trainer->frugal, words->mine, words->bytes, words->all);
    if (status) return status;
    *heard = training_hear(words->all, words->bytes, &words->others);
    for (uint32_t d = 0; d < trainer->settings.common.devices; d++) {
        if (d / n == ranks_number()) continue;
        memcpy(&counted, words->all + d / n * words->bytes + sizeof *heard + d % n * sizeof counted, sizeof counted);
        atomic_store(&trainer->device[d].loss, counted.loss);
        atomic_store(&trainer->device[d].losses, counted.losses);
    }
    if (heard->signal) atomic_store(trainer->stop, heard->signal);
    return FRUGAL_OK;
}

/* Before a step at which all ranks agree. The next one comes so many steps later that agreeing costs next to nothing;
 * all count it by the same clock. */
static frugal_status kge_agree(kge_trainer *trainer, uint64_t step, training_word *heard) {
    kge_run *run = trainer->run;
    const double every = 0.1;
    frugal_status status = kge_exchange(trainer, training_elapsed(&trainer->clock), heard);
    if (status) return status;
    double passed = heard->seconds - run->agreed.seconds, steps = (double)(step - run->agreed.step);
    double next = passed > 0 ? steps * every / passed : 1;
    run->agreed.step = step, run->agreed.seconds = heard->seconds;
    run->agree_at = step + (next < 1 ? 1 : next > 1000 ? 1000 : (uint64_t)next);
    return FRUGAL_OK;
}

/* The first device of all, or of each machine, before each step decides: stop, or pause? and which learning rate for
 * step + 2? Where machines agree, a step that is announced is trained, so they stop behind those. */
static frugal_status kge_steer(kge_trainer *trainer, uint64_t step) {
    const kge_settings *settings = &trainer->settings;
    kge_run *run = trainer->run;
    double now = training_elapsed(&trainer->clock), decided = now;
    int agrees = ranks_all() > 1, pauses = trainer->pause_at > 0 && program_now() >= trainer->pause_at;
    uint64_t end = step + 2 + (agrees ? settings->common.lookahead : 0);
    if (agrees) {
        training_word heard = {.signal = 0};
        frugal_status status = step >= run->agree_at ? kge_agree(trainer, step, &heard) : FRUGAL_OK;
        if (status) return status;
        pauses = heard.pauses, decided = run->agreed.seconds;
    }
    int stops = atomic_load_explicit(trainer->stop, memory_order_relaxed) ||
                (settings->common.seconds > 0 && decided >= settings->common.seconds);
    if (stops && end < trainer->last) trainer->last = end;
    if ((stops || pauses) && end < atomic_load_explicit(&run->stop_at, memory_order_relaxed))
        atomic_store_explicit(&run->stop_at, end, memory_order_release);
    atomic_store_explicit(&run->rate[(step + 2) % KGE_RATES],
                          kge_decayed(settings, training_progress(&settings->common, step + 2, decided)),
                          memory_order_release);
    if (training_report_is_due(&trainer->reporter, step, now)) kge_make_report(trainer, step, now);
    return FRUGAL_OK;
}

/* The step that nothing is announced from on. What is announced may be taken back, unless other machines have it. */
static uint64_t kge_announce_end(const kge_trainer *trainer) {
    if (ranks_all() > 1) return atomic_load_explicit(&trainer->run->stop_at, memory_order_acquire);
    return trainer->settings.common.steps ? trainer->settings.common.steps : UINT64_MAX;
}

static frugal_status kge_announce_until(kge_device *device, uint64_t behind) {
    kge_trainer *trainer = device->trainer;
    uint64_t last = kge_announce_end(trainer);
    while (device->announced < behind && device->announced < last) {
        uint64_t step = device->announced;
        kge_batch *batch = &device->batch[step % KGE_BATCHES];
        kge_sample(&trainer->sampler, device->number, step, batch);
        frugal_keys segment[2] = {{.table = 0, .keys = device->keys}, {.table = 1}};
        kge_batch_keys(&trainer->settings.model, batch, device->keys, &segment[0].n, &segment[1].n);
        segment[1].keys = device->keys + segment[0].n;
        frugal_batch announcement = {.segments = segment, .n_segments = 2};
        frugal_status status = frugal_announce(trainer->frugal, device->number, step, &announcement);
        if (status) return status;
        if (device->cuda && kge_cuda_copy(device->cuda, step, batch, &device->end->error)) return FRUGAL_ERR_CUDA;
        device->announced++;
    }
    return FRUGAL_OK;
}

/* Counts losses of this device, which alone changes these numbers; relaxed: for reports. */
static void kge_count_losses(kge_device *device, double loss, uint64_t losses) {
    atomic_store_explicit(&device->loss, atomic_load_explicit(&device->loss, memory_order_relaxed) + loss,
                          memory_order_relaxed);
    atomic_store_explicit(&device->losses, atomic_load_explicit(&device->losses, memory_order_relaxed) + losses,
                          memory_order_relaxed);
}

/* Counts the losses of steps that the GPU has computed; with `wait` those of all its steps. */
static frugal_status kge_gpu_losses(kge_device *device, int wait) {
    double loss = 0;
    uint64_t losses = 0;
    if (kge_cuda_losses(device->cuda, wait, &loss, &losses, &device->end->error)) return FRUGAL_ERR_CUDA;
    kge_count_losses(device, loss, losses);
    return FRUGAL_OK;
}

static frugal_status kge_compute(kge_device *device, uint64_t step) {
    const kge_batch *batch = &device->batch[step % KGE_BATCHES];
    if (!device->cuda) {
        const kge_model *model = &device->trainer->settings.model;
        kge_count_losses(device, kge_gradients(model, batch, device->rows, device->grads, &device->work), 1);
        return FRUGAL_OK;
    }
    frugal_status status = kge_gpu_losses(device, 0);
    if (!status && kge_cuda_gradients(device->cuda, step, &device->end->error)) status = FRUGAL_ERR_CUDA;
    return status;
}

/* Step + L is announced when the rows of `step` are there. By then all have updated the step before, so the
 * announcement is legal and never waits. With a GPU it comes when all of the step is enqueued. The thread is at most
 * one step ahead of its GPU, because device 0 decides only two steps ahead. */
static frugal_status kge_device_step(kge_device *device, uint64_t step) {
    kge_trainer *trainer = device->trainer;
    uint32_t lookahead = trainer->settings.common.lookahead;
    frugal_gradients gradients = {
        .grads = device->grads,
        .lr = atomic_load_explicit(&trainer->run->rate[step % KGE_RATES], memory_order_acquire)};
    frugal_status status = kge_announce_until(device, step + (lookahead ? lookahead : 1));
    if (!status) status = frugal_lookup(trainer->frugal, device->number, step, device->rows);
    if (!status && lookahead && !device->cuda) status = kge_announce_until(device, step + lookahead + 1);
    if (!status) status = kge_compute(device, step);
    if (!status) status = frugal_update(trainer->frugal, device->number, step, &gradients);
    if (status || !device->cuda) return status;
    if (kge_cuda_wait(device->cuda, &device->end->error)) return FRUGAL_ERR_CUDA;
    return kge_announce_until(device, step + lookahead + 1);
}

/* Called when a device gives up, so that no other waits for it. */
static void kge_give_up(void *argument) {
    kge_trainer *trainer = argument;
    uint32_t devices = trainer->settings.common.devices;
    training_give_up(trainer->processes, trainer->end, devices, devices);
    frugal_stop(trainer->frugal);
}

static void kge_device_run(void *argument, uint32_t part) {
    kge_trainer *trainer = argument;
    uint32_t number = processes_first(trainer->processes) + part;
    int steers = number == ranks_first(trainer->settings.common.devices);
    kge_device *device = &trainer->device[number];
    frugal_status status = FRUGAL_OK;
    for (uint64_t step = trainer->run->first;
         !status && step < atomic_load_explicit(&trainer->run->stop_at, memory_order_acquire); step++) {
        if (steers) status = kge_steer(trainer, step);
        if (!status) status = kge_device_step(device, step);
    }
    if (!status && device->cuda) status = kge_gpu_losses(device, 1);
    training_note_end(device->end, status);
    if (status) kge_give_up(trainer);
}

/* ---- Runs --------------------------------------------------------------------------------------------- */

/* Of this process. */
static int kge_run_devices(kge_trainer *trainer, program_error *error) {
    return training_run(processes_devices(trainer->processes), kge_device_run, kge_give_up, trainer, error);
}

/* Takes back what was announced beyond the last step. */
static frugal_status kge_take_back(kge_trainer *trainer) {
    trainer->done = 1;
    if (trainer->device[0].announced <= trainer->step) return FRUGAL_OK;
    for (uint32_t d = 0; d < trainer->settings.common.devices; d++) trainer->device[d].announced = trainer->step;
    return frugal_cancel(trainer->frugal, trainer->step);
}

/* Flushes everything. */
static int kge_settle(kge_trainer *trainer, program_error *error) {
    frugal_status status = trainer->step >= trainer->last ? kge_take_back(trainer) : FRUGAL_OK;
    int failed = status ? training_fail("cannot flush the last updates", error)
                        : training_drain(trainer->frugal, trainer->step, error);
    if (failed) processes_explain(trainer->processes, FRUGAL_ERR_LOST, error);
    return failed;
}

/* All ranks have trained the same steps: then they have the same losses and seconds. */
static int kge_end_run(kge_trainer *trainer, program_error *error) {
    training_word heard;
    if (ranks_all() == 1) return 0;
    if (kge_exchange(trainer, trainer->clock.before, &heard))
        return training_fail("cannot tell the other machines the losses", error);
    trainer->clock.before = heard.seconds;
    return 0;
}

void kge_trainer_pause_at(kge_trainer *trainer, double seconds) {
    trainer->pause_at = seconds;
}

int kge_trainer_run(kge_trainer *trainer, uint64_t until, atomic_int *stop, program_error *error) {
    atomic_store(&trainer->run->stop_at, until < trainer->last ? until : trainer->last);
    trainer->stop = stop;
    for (uint64_t step = trainer->step; step < trainer->step + 2; step++) /* device 0 decides from + 2 on */
        atomic_store(
            &trainer->run->rate[step % KGE_RATES],
            kge_decayed(&trainer->settings, training_progress(&trainer->settings.common, step, trainer->clock.before)));
    trainer->run->first = trainer->run->agree_at = trainer->run->agreed.step = trainer->step;
    trainer->run->agreed.seconds = trainer->clock.before;
    training_start(&trainer->clock);
    uint32_t devices = trainer->settings.common.devices;
    processes_begin(trainer->processes, KGE_RUN);
    int status = kge_run_devices(trainer, error);
    status = training_join_run(trainer->processes, status, trainer->end, devices, devices, error);
    training_pause(&trainer->clock);
    program_error tracing; /* a trace of what failed is written, too */
    int traced = training_trace_write(&trainer->settings.common, &trainer->frugal, 1, status ? &tracing : error);
    if (status || traced) return -1;
    trainer->step = atomic_load(&trainer->run->stop_at);
    return kge_end_run(trainer, error) || kge_settle(trainer, error) ? -1 : 0;
}

int kge_trainer_done(const kge_trainer *trainer) {
    return trainer->done;
}

int kge_trainer_save(kge_trainer *trainer, const char *path, program_error *error) {
    frugal_status status = frugal_save(&trainer->frugal, 1, &(frugal_save_desc){.path = path});
    if (status) return training_fail("cannot save the embedding tables", error);
    return ranks_number() ? 0 : training_saved_id(path, &trainer->saved, error);
}

int kge_trainer_write_state(const kge_trainer *trainer, const char *path, program_error *error) {
    training_sums sums = kge_sums(trainer, trainer->step, trainer->clock.before);
    uint32_t devices = trainer->settings.common.devices;
    kge_counted *counted = calloc(devices, sizeof *counted);
    if (!counted) return program_fail(error, "out of memory");
    for (uint32_t d = 0; d < devices; d++)
        counted[d] = (kge_counted){atomic_load(&trainer->device[d].loss), atomic_load(&trainer->device[d].losses)};
    kge_state state = {.step = trainer->step,
                       .hits = sums.hits,
                       .misses = sums.misses,
                       .seconds = sums.seconds,
                       .stall = sums.stall,
                       .saved = trainer->saved,
                       .devices = devices,
                       .counted = counted};
    int status = kge_state_write(&state, path, error);
    free(counted);
    return status;
}

/* Each machine reads its own rows, when it opens. */
static int kge_reopen(kge_trainer *trainer, const char *tables, program_error *error) {
    kge_batch shape = kge_shape(trainer);
    training_sums sums = kge_sums(trainer, trainer->step, trainer->clock.before);
    frugal_saved saved;
    uint64_t step = trainer->step;
    if (frugal_read_saved(tables, 0, &saved)) return training_fail("cannot read the best evaluation's tables", error);
    frugal_close(trainer->frugal);
    trainer->frugal = NULL;
    ranks_deal_close(&trainer->dealing);
    trainer->earlier = (training_sums){.stall = sums.stall, .hits = sums.hits, .misses = sums.misses};
    trainer->words.others = (training_sums){.step = 0};
    trainer->step = saved.step, trainer->settings.saved = tables;
    int status = kge_frugal_open(trainer, kge_batch_positions(&trainer->settings.model, &shape), error);
    trainer->step = step, trainer->settings.saved = NULL;
    trainer->done = 1;
    return status;
}

int kge_trainer_go_back(kge_trainer *trainer, const char *tables, program_error *error) {
    if (ranks_all() > 1) return kge_reopen(trainer, tables, error);
    if (kge_take_back(trainer)) return training_fail("cannot take back what is announced", error);
    if (training_drain(trainer->frugal, trainer->step, error)) return -1;
    return best_read(&trainer->frugal, 1, tables, error);
}

double kge_trainer_guess_loss(const kge_trainer *trainer) {
    const kge_model *model = &trainer->settings.model;
    int all = model->scoring != KGE_SAMPLED || model->stands_for;
    uint32_t others = all ? trainer->graph->entities.n - 1 : trainer->settings.negatives;
    const kge_questions *questions = &trainer->questions; /* of KvsAll; otherwise there are none */
    uint64_t asked = questions->asked.n;
    return kge_guess_loss(model, others, asked ? (double)questions->first[asked] / (double)asked : 1);
}

uint64_t kge_trainer_rows(const kge_trainer *trainer, uint32_t table) {
    return trainer->table_rows[table];
}

static int kge_trainer_read_ids(void *of, uint32_t table, const uint32_t *ids, uint32_t n, float *rows,
                                program_error *error) {
    enum { BLOCK = 4096 };
    const kge_trainer *trainer = of;
    uint64_t keys[BLOCK];
    for (uint32_t from = 0; from < n; from += BLOCK) {
        uint32_t part = n - from < BLOCK ? n - from : BLOCK;
        frugal_keys block = {.table = table, .keys = keys, .n = ranks_number() ? 0 : part}; /* others only give */
        for (uint32_t i = 0; i < part; i++) keys[i] = ids[from + i];
        if (frugal_read_rows(trainer->frugal, &block, rows + (size_t)from * trainer->settings.model.dim, NULL))
            return training_fail("cannot read the embeddings", error);
    }
    return 0;
}

kge_reader kge_trainer_reader(kge_trainer *trainer) {
    return (kge_reader){kge_trainer_read_ids, trainer};
}

int kge_trainer_read(kge_trainer *trainer, const training_span *span, float *rows, program_error *error) {
    return training_read_rows(trainer->frugal, span, rows, error);
}

static int kge_trainer_write_rows(void *of, const kge_written *written, program_error *error) {
    frugal_keys keys = {.table = written->table, .keys = written->keys, .n = written->n};
    if (!frugal_write_rows(((kge_trainer *)of)->frugal, &keys, written->rows, NULL)) return 0;
    return training_fail("cannot write the embeddings", error);
}

kge_writer kge_trainer_writer(kge_trainer *trainer) {
    return (kge_writer){kge_trainer_write_rows, trainer};
}
