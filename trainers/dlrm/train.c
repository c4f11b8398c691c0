/* The training loop over Frugal's logical devices. */
#include "trainers/dlrm/train.h"
#include "trainers/clicks/bags.h"
#include "trainers/dlrm/dense.h"
#include "trainers/dlrm/dlrm_cuda.h"
#include "trainers/dlrm/tables.h"
#include "trainers/dlrm/words.h"
#include "trainers/common/best.h"
#include "trainers/common/processes.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"
#include "frugal_save.h"
#ifdef TRAINING_CUDA
#include "trainers/common/training_cuda.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step's samples. The loader fills the slot of step t when it has announced t - 1, that is when t - 2 - L is closed.
 * So with a ring of L + 2 slots all devices have finished with the slot's previous step. They see what the loader
 * wrote, because lookup acquires the announcement. */
typedef struct dlrm_slot {
    clicks_batch batch;
    uint32_t first[FRUGAL_MAX_DEVICES + 1]; /* device d has samples first[d] to first[d + 1] - 1 */
    clicks_bags *bags;                      /* bags[devices], their samples; NULL: each feature has one id */
    float rate;                             /* the share of the learning rates that the decay has left */
    int end;                                /* no step but the end: nothing follows */
} dlrm_slot;

typedef struct dlrm_device {
    dlrm_trainer *trainer;
    uint32_t number;
    dlrm_workspace *work;
    dlrm_cuda *cuda;              /* its GPU; NULL: it computes on host cores */
    float *rows[DLRM_INSTANCES];  /* [features][n][dim of the instance]; in the GPU's memory if the device has one */
    float *grads[DLRM_INSTANCES]; /* likewise */
    /* Of a device on host cores, or where other processes or machines read what comes from its GPU. */
    float *parameter_grads;
    const float *gradient; /* the step's, in host memory: parameter_grads, or what came from its GPU */
    dlrm_dense dense;
    double loss;       /* sum over the device's samples of the step */
    uint64_t trained;  /* steps of this run */
    int ended;         /* it met the last slot */
    training_end *end; /* the trainer's, of this device */
} dlrm_device;

/* Of the current run. */
typedef struct dlrm_run {
    uint64_t first;
    /* Its end. The loader lowers it before it announces the last step, so a device that has looked that step up sees
     * it; and before that step is loaded, so loaders of other processes do, too. */
    _Atomic uint64_t until;
    _Atomic uint64_t loaded; /* the slots of steps below this are filled, in all runs */
} dlrm_run;

/* Each process has its own, and those of its devices. All processes share devices, ends, slots, the dense layers and
 * the run. The first process has the loader; those of others announce what it has loaded. */
struct dlrm_trainer {
    dlrm_settings settings;
    dlrm_source source;
    dlrm_layers layers;
    processes *processes;
    frugal_workers *workers;
    frugal *frugal[DLRM_INSTANCES];
    uint32_t instances;
    int made[DLRM_INSTANCES]; /* this trainer made the tables' file */
    ranks_dealing dealing[DLRM_INSTANCES];
    dlrm_words words;
    dlrm_device *device; /* [devices]; those of other machines have a gradient and a loss alone */
    training_end *end;   /* [devices + processes]: the last ones are the loaders' */
    dlrm_slot *slot;     /* [L + 2] */
    dlrm_run *run;
    /* Of the dense layers: between two meetings each device writes its range. */
    float *parameters, *parameter_state, *parameter_sum; /* parameter_sum: the sum of the devices' gradients */
    double loss; /* sum over all samples so far; device 0's, or between runs, as the next one */
    uint64_t samples;
    uint64_t step;    /* next to train; between runs */
    uint64_t skipped; /* Frugal's number of the step is higher by this: the ends of earlier trainings */
    uint64_t saved;   /* the id of the last save */
    int done;
    training_clock clock;
    double pause_at;       /* program_now() when a run shall end; 0: never */
    training_sums earlier; /* of the runs before this process: stall, hits and misses alone */
    /* The loader's. */
    dlrm_passes *passes;
    uint64_t announced, loaded; /* next step to announce; number of samples so far */
    int stopping;               /* the loader has found that the training stops */
    _Atomic double read_seconds;
    atomic_int *stop;
    training_reporter reporter; /* device 0's, or between runs */
};

static uint32_t dlrm_dim(const dlrm_trainer *trainer, uint32_t instance) {
    return instance == 0 ? trainer->settings.model.dim : 1;
}

static dlrm_slot *dlrm_slot_of(dlrm_trainer *trainer, uint64_t step) {
    return &trainer->slot[step % (trainer->settings.common.lookahead + 2)];
}

/* The number of training_ends. */
static uint32_t dlrm_ends(const dlrm_trainer *trainer) {
    uint32_t devices = trainer->settings.common.devices;
    return devices + devices / processes_devices(trainer->processes);
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

enum { DLRM_JOIN_SECONDS = 30 }; /* far more than needed: the tables are open by then */

static uint64_t dlrm_cache_rows(const dlrm_trainer *trainer) {
    double rows = 0;
    for (uint32_t i = 0; i < trainer->settings.model.features; i++) rows += (double)clicks_rows(trainer->source.log, i);
    return (uint64_t)(trainer->settings.common.cache * rows / ranks_all());
}

static int dlrm_cpu_open(dlrm_device *device, program_error *error) {
    dlrm_trainer *trainer = device->trainer;
    uint64_t positions = (uint64_t)trainer->settings.common.batch * trainer->settings.model.features;
    frugal_cpu_desc desc = {.cache_rows = dlrm_cache_rows(trainer), .policy = trainer->settings.common.cache_policy};
    for (uint32_t i = 0; i < trainer->instances; i++) {
        if (training_attach_cpu(trainer->frugal[i], device->number, &desc, error)) return -1;
        device->rows[i] = training_floats(positions * dlrm_dim(trainer, i));
        device->grads[i] = training_floats(positions * dlrm_dim(trainer, i));
        if (!device->rows[i] || !device->grads[i])
            return program_fail(error, "out of memory for %llu rows a step; use a smaller --batch",
                                (unsigned long long)positions);
    }
    return dlrm_workspace_open(&device->work, &trainer->settings.model, trainer->settings.common.batch, error);
}

#ifdef TRAINING_CUDA
/* Gates are on the host: the thread waits for the dense gradients of every step anyway. */
static int dlrm_gpu_open(dlrm_device *device, program_error *error) {
    dlrm_trainer *trainer = device->trainer;
    const dlrm_settings *settings = &trainer->settings;
    int ordinal = settings->common.gpu[device->number] - 1;
    if (!(device->cuda = dlrm_cuda_new(ordinal))) return program_fail(error, "out of memory");
    frugal_cuda_desc desc = {.cache_rows = dlrm_cache_rows(trainer),
                             .policy = settings->common.cache_policy,
                             .stream = dlrm_cuda_stream(device->cuda)};
    for (uint32_t i = 0; i < trainer->instances; i++)
        if (training_attach_cuda(trainer->frugal[i], device->number, ordinal, &desc, error)) return -1;
    if (dlrm_cuda_open(device->cuda, &settings->model, settings->common.batch, 1, error)) return -1;
    dlrm_cuda_begin(device->cuda, trainer->step);
    device->rows[0] = dlrm_cuda_rows(device->cuda), device->rows[1] = dlrm_cuda_linear(device->cuda);
    device->grads[0] = dlrm_cuda_row_gradients(device->cuda),
    device->grads[1] = dlrm_cuda_linear_gradients(device->cuda);
    return dlrm_cuda_set_parameters(device->cuda, trainer->parameters, error);
}
#endif

static int dlrm_device_open(dlrm_device *device, dlrm_trainer *trainer, uint32_t number, program_error *error) {
    device->trainer = trainer;
    device->number = number;
    device->end = &trainer->end[number];
    const dlrm_state *resumed = trainer->settings.resumed;
    device->dense = (dlrm_dense){.kind = trainer->settings.dense_optimizer,
                                 .power1 = resumed ? resumed->power1 : 1,
                                 .power2 = resumed ? resumed->power2 : 1};
#ifdef TRAINING_CUDA
    if (trainer->settings.common.gpu[number]) return dlrm_gpu_open(device, error);
#endif
    return dlrm_cpu_open(device, error);
}

/* Continues from settings.resumed. `state`: number of floats in the state of the dense layers' optimizer. */
static int dlrm_resume(dlrm_trainer *trainer, uint64_t state, program_error *error) {
    const dlrm_state *from = trainer->settings.resumed;
    if (from->parameters != trainer->layers.parameters || from->state != state)
        return program_fail(error,
                            "the training to go on from has %llu parameters in dense layers and %llu floats of their "
                            "optimizer, this model has %llu and %llu; give the options that it was begun with",
                            (unsigned long long)from->parameters, (unsigned long long)from->state,
                            (unsigned long long)trainer->layers.parameters, (unsigned long long)state);
    if (from->epoch > trainer->settings.epochs)
        return program_fail(error, "--epochs is %llu, and the training to go on from is in pass %llu; give more",
                            (unsigned long long)trainer->settings.epochs, (unsigned long long)from->epoch);
    memcpy(trainer->parameters, from->values, from->parameters * sizeof(float));
    memcpy(trainer->parameter_state, from->optimizer, from->state * sizeof(float));
    trainer->step = trainer->announced = from->step;
    trainer->skipped = from->skipped;
    trainer->samples = trainer->loaded = from->samples;
    trainer->loss = from->loss;
    trainer->clock.before = from->seconds;
    trainer->earlier = (training_sums){.stall = from->stall, .hits = from->hits, .misses = from->misses};
    atomic_store(&trainer->read_seconds, from->read_seconds);
    dlrm_position position = {from->epoch, from->pass, from->samples_a_pass, from->in_pass != 0};
    return dlrm_passes_go_on(trainer->passes, &position, error);
}

static int dlrm_passes_open_for(dlrm_trainer *trainer, program_error *error) {
    const dlrm_settings *settings = &trainer->settings;
    dlrm_passes_desc desc = {.source = &trainer->source,
                             .epochs = settings->epochs,
                             .devices = settings->common.devices,
                             .batch = settings->common.batch,
                             .shuffle = settings->shuffle,
                             .seed = settings->common.seed};
    if (settings->placing) desc.parts = settings->placing->partition.parts;
    if (settings->placing) desc.samples = settings->placing->partition.samples;
    return dlrm_passes_open(&trainer->passes, &desc, error);
}

/* Is this device of this machine, in whichever process? */
static int dlrm_is_here(const dlrm_trainer *trainer, uint32_t device) {
    uint32_t devices = trainer->settings.common.devices, first = ranks_first(devices);
    return device >= first && device - first < ranks_devices(devices);
}

static int dlrm_fail_dense(const dlrm_trainer *trainer, program_error *error) {
    return program_fail(error, "out of memory for the dense layers (%llu parameters)",
                        (unsigned long long)trainer->layers.parameters);
}

/* The dense layers as the model begins. */
static int dlrm_dense_open(dlrm_trainer *trainer, uint64_t state, program_error *error) {
    const dlrm_settings *settings = &trainer->settings;
    processes *p = trainer->processes;
    size_t bytes = trainer->layers.parameters * sizeof(float);
    trainer->parameters = processes_memory(p, bytes);
    trainer->parameter_state = processes_memory(p, state * sizeof(float));
    trainer->parameter_sum = processes_memory(p, bytes);
    if (!trainer->parameters || !trainer->parameter_state || !trainer->parameter_sum)
        return dlrm_fail_dense(trainer, error);
    if (dlrm_words_open(&trainer->words, trainer->layers.parameters, settings->common.devices, error)) return -1;
    for (uint32_t d = 0; d < settings->common.devices; d++) {
        dlrm_device *device = &trainer->device[d];
        if (ranks_all() > 1) device->parameter_grads = dlrm_words_gradient(&trainer->words, d);
        if (ranks_all() > 1 || (settings->common.gpu[d] && settings->common.processes <= 1)) continue;
        if (!(device->parameter_grads = processes_memory(p, bytes))) return dlrm_fail_dense(trainer, error);
    }
    dlrm_init(&settings->model, settings->common.seed, trainer->parameters);
    for (uint64_t i = 0; i < state && settings->dense_optimizer == FRUGAL_ADAGRAD; i++)
        trainer->parameter_state[i] = settings->accumulator;
    return 0;
}

static void *dlrm_slot_memory(void *trainer, size_t bytes) {
    return processes_memory(((dlrm_trainer *)trainer)->processes, bytes);
}

/* The ring of slots. */
static int dlrm_slots_open(dlrm_trainer *trainer, program_error *error) {
    const dlrm_settings *settings = &trainer->settings;
    const clicks *log = trainer->source.log;
    uint32_t slots = settings->common.lookahead + 2, devices = settings->common.devices;
    clicks_memory memory = {dlrm_slot_memory, trainer};
    trainer->slot = processes_memory(trainer->processes, slots * sizeof *trainer->slot);
    if (!trainer->slot) return program_fail(error, "out of memory");
    for (dlrm_slot *slot = trainer->slot; slot < trainer->slot + slots; slot++) {
        if (clicks_batch_open_in(&slot->batch, log, settings->common.batch * devices, &memory, error)) return -1;
        if (!clicks_has_bags(log)) continue;
        slot->bags = processes_memory(trainer->processes, devices * sizeof *slot->bags);
        if (!slot->bags) return program_fail(error, "out of memory");
        for (uint32_t d = 0; d < devices; d++)
            if (dlrm_is_here(trainer, d) &&
                clicks_bags_open_in(&slot->bags[d], log, settings->common.batch, &memory, error))
                return -1;
    }
    return 0;
}

/* All that processes share, as the training begins or goes on. */
static int dlrm_shared_open(dlrm_trainer *trainer, program_error *error) {
    const dlrm_settings *settings = &trainer->settings;
    uint64_t state = frugal_state_floats(settings->dense_optimizer, 1) * trainer->layers.parameters;
    if (dlrm_dense_open(trainer, state, error) || dlrm_passes_open_for(trainer, error)) return -1;
    if (settings->resumed && dlrm_resume(trainer, state, error)) return -1;
    atomic_store(&trainer->run->loaded, trainer->announced);
    return dlrm_slots_open(trainer, error);
}

/* Attaches the devices of this process. */
static int dlrm_devices_open(dlrm_trainer *trainer, program_error *error) {
    uint32_t first = processes_first(trainer->processes), end = first + processes_devices(trainer->processes);
    for (uint32_t d = first; d < end; d++)
        if (dlrm_device_open(&trainer->device[d], trainer, d, error)) return -1;
    return 0;
}

/* What another process does when the first one begins it. */
enum { DLRM_JOIN, DLRM_RUN };

static int dlrm_run_parts(dlrm_trainer *trainer, program_error *error);

static int dlrm_work(void *argument, uint32_t what, program_error *error) {
    dlrm_trainer *trainer = argument;
    if (what == DLRM_RUN) return dlrm_run_parts(trainer, error);
    for (uint32_t i = 0; i < trainer->instances; i++) {
        if (frugal_join(processes_name(trainer->processes, i), DLRM_JOIN_SECONDS, &trainer->frugal[i]))
            return training_fail("cannot join the embedding tables", error);
        frugal_on_notice(trainer->frugal[i], training_notice, NULL);
    }
    return dlrm_devices_open(trainer, error);
}

static void dlrm_leave(void *argument) {
    dlrm_trainer *trainer = argument;
    for (uint32_t i = 0; i < trainer->instances; i++) frugal_close(trainer->frugal[i]);
}

/* The tables, which other processes join; Frugal's next step is `step`. */
static int dlrm_instances_open(dlrm_trainer *trainer, uint64_t step, program_error *error) {
    uint32_t workers = trainer->settings.common.workers;
    if (workers && !trainer->workers && frugal_workers_open(workers, &trainer->workers))
        return training_fail("cannot start the workers", error);
    dlrm_tables tables = {.settings = &trainer->settings,
                          .log = trainer->source.log,
                          .workers = trainer->workers,
                          .instances = trainer->instances,
                          .step = step,
                          .frugal = trainer->frugal,
                          .made = trainer->made,
                          .dealing = trainer->dealing};
    for (uint32_t i = 0; i < DLRM_INSTANCES; i++) tables.name[i] = processes_name(trainer->processes, i);
    return dlrm_tables_open(&tables, error);
}

static int dlrm_parts_open(dlrm_trainer *trainer, program_error *error) {
    static const processes_work work = {dlrm_work, dlrm_leave};
    const dlrm_settings *settings = &trainer->settings;
    if (dlrm_tables_check(settings, trainer->source.log, error) ||
        dlrm_layout(&settings->model, &trainer->layers, error))
        return -1;
    if (dlrm_shared_open(trainer, error)) return -1;
    if (processes_start(trainer->processes, &work, trainer, error)) return -1;
    if (dlrm_instances_open(trainer, trainer->step + trainer->skipped, error)) return -1;
    processes_begin(trainer->processes, DLRM_JOIN);
    if (dlrm_devices_open(trainer, error) || processes_await(trainer->processes, error)) return -1;
    for (uint32_t i = 0; settings->secondaries && i < trainer->instances; i++)
        if (secondaries_list(settings->secondaries, trainer->frugal[i], error)) return -1;
    /* After the lists, which empty caches. */
    uint32_t here = ranks_devices(settings->common.devices), first = ranks_first(settings->common.devices);
    for (uint32_t d = first; settings->placing && d < first + here; d++)
        for (uint32_t i = 0; i < trainer->instances; i++)
            if (placing_preload(settings->placing, trainer->frugal[i], d, dlrm_cache_rows(trainer), error)) return -1;
    return training_trace_start(&settings->common, trainer->frugal, trainer->instances, error);
}

/* What there must be to close a trainer. */
static int dlrm_memory_open(dlrm_trainer *trainer, program_error *error) {
    const training_settings *settings = &trainer->settings.common;
    if (processes_open(&trainer->processes, settings->processes, settings->devices, error)) return -1;
    processes *p = trainer->processes;
    trainer->device = processes_memory(p, settings->devices * sizeof *trainer->device);
    trainer->end = processes_memory(p, dlrm_ends(trainer) * sizeof *trainer->end);
    trainer->run = processes_memory(p, sizeof *trainer->run);
    return trainer->device && trainer->end && trainer->run ? 0 : program_fail(error, "out of memory");
}

int dlrm_trainer_open(dlrm_trainer **out, const dlrm_settings *settings, const dlrm_source *source,
                      program_error *error) {
    dlrm_trainer *trainer = calloc(1, sizeof *trainer);
    *out = NULL;
    if (!trainer) return program_fail(error, "out of memory");
    trainer->settings = *settings;
    trainer->source = *source;
    trainer->instances = dlrm_has_linear(&settings->model) ? 2 : 1;
    if (dlrm_memory_open(trainer, error)) {
        dlrm_trainer_close(trainer);
        return -1;
    }
    int status = dlrm_parts_open(trainer, error);
    if (status) {
        dlrm_tables_remove(trainer->frugal, trainer->made);
        dlrm_trainer_close(trainer);
    } else
        *out = trainer;
    if (!status) trainer->settings.resumed = NULL, trainer->settings.saved = NULL; /* the caller's */
    return status;
}

int dlrm_trainer_close_tables(dlrm_trainer *trainer, program_error *error) {
    int status = 0;
    if (trainer) processes_leave(trainer->processes);
    for (uint32_t i = 0; trainer && i < DLRM_INSTANCES; i++) {
        if (frugal_close(trainer->frugal[i]) != FRUGAL_OK && !status)
            status = training_fail("the tables are not saved", error);
        trainer->frugal[i] = NULL;
    }
    return status;
}

static void dlrm_device_close(dlrm_device *device) {
    dlrm_workspace_close(device->work);
    for (uint32_t i = 0; i < DLRM_INSTANCES && !device->cuda; i++) {
        free(device->rows[i]);
        free(device->grads[i]);
    }
    dlrm_cuda_close(device->cuda); /* after frugal_close, because Frugal used its stream, too */
}

/* The other processes close their devices by their end. */
void dlrm_trainer_close(dlrm_trainer *trainer) {
    program_error error;
    if (!trainer) return;
    uint32_t devices = trainer->device ? processes_devices(trainer->processes) : 0;
    dlrm_trainer_close_tables(trainer, &error);
    frugal_workers_close(trainer->workers);
    for (uint32_t i = 0; i < DLRM_INSTANCES; i++) ranks_deal_close(&trainer->dealing[i]);
    for (uint32_t d = 0; d < devices; d++) dlrm_device_close(&trainer->device[processes_first(trainer->processes) + d]);
    dlrm_passes_close(trainer->passes);
    dlrm_words_close(&trainer->words);
    processes_close(trainer->processes);
    free(trainer);
}

/* ---- Reports ------------------------------------------------------------------------------------------ */

static double dlrm_progress(const dlrm_trainer *trainer, uint64_t step, uint64_t samples, double seconds) {
    const dlrm_settings *settings = &trainer->settings;
    const dlrm_source *source = &trainer->source;
    double all = source->end == UINT64_MAX ? 0 : (double)(source->end - source->first) * (double)settings->epochs;
    double by_samples = all > 0 ? (double)samples / all : 0;
    return fmin(1, fmax(by_samples, training_progress(&settings->common, step, seconds)));
}

static training_sums dlrm_sums(const dlrm_trainer *trainer, uint64_t step, double seconds) {
    const training_sums *others = &trainer->words.others;
    training_sums sums = {.step = step,
                          .samples = trainer->samples,
                          .losses = trainer->samples,
                          .loss = trainer->loss,
                          .seconds = seconds,
                          .stall = trainer->earlier.stall + others->stall,
                          .hits = trainer->earlier.hits + others->hits,
                          .misses = trainer->earlier.misses + others->misses};
    for (uint32_t i = 0; i < trainer->instances; i++) training_add_stats(&sums, trainer->frugal[i]);
    return sums;
}

void dlrm_trainer_report_to(dlrm_trainer *trainer, training_report_function *function, void *user,
                            double report_seconds) {
    trainer->reporter = (training_reporter){.function = function, .user = user, .seconds = report_seconds};
    trainer->reporter.reported = dlrm_sums(trainer, trainer->step, trainer->clock.before);
}

/* Device 0 before step `step`, or between runs: reports what happened since the previous report. */
static void dlrm_make_report(dlrm_trainer *trainer, uint64_t step, double seconds) {
    training_sums now = dlrm_sums(trainer, step, seconds);
    double progress = dlrm_progress(trainer, step, now.samples, seconds);
    training_tell(&trainer->reporter, &now, trainer->settings.common.devices, progress);
}

void dlrm_trainer_report(dlrm_trainer *trainer) {
    if (trainer->reporter.function && trainer->step > trainer->reporter.reported.step)
        dlrm_make_report(trainer, trainer->step, trainer->clock.before);
}

training_report dlrm_trainer_total(const dlrm_trainer *trainer) {
    training_sums now = dlrm_sums(trainer, trainer->step, trainer->clock.before);
    return training_report_between(&(training_sums){0}, &now, trainer->settings.common.devices);
}

double dlrm_trainer_read_seconds(const dlrm_trainer *trainer) {
    return atomic_load_explicit(&trainer->read_seconds, memory_order_relaxed);
}

/* ---- The loader --------------------------------------------------------------------------------------- */

/* Of this process. */
static training_end *dlrm_loader_end(const dlrm_trainer *trainer) {
    const processes *p = trainer->processes;
    uint32_t devices = trainer->settings.common.devices, first = processes_first(p) - ranks_first(devices);
    return &trainer->end[devices + first / processes_devices(p)];
}

/* Relaxed: lookup has acquired what was announced, and this with it. */
static uint64_t dlrm_until(const dlrm_trainer *trainer) {
    return atomic_load_explicit(&trainer->run->until, memory_order_relaxed);
}

/* Is the next step the last of this run? Devices may wait for it already, so it is trained. Several machines tell each
 * other in a step (dlrm_decide). */
static void dlrm_steer(dlrm_trainer *trainer) {
    const dlrm_settings *settings = &trainer->settings;
    if (ranks_all() > 1) return;
    /* Relaxed: nothing comes with it. */
    int stops = atomic_load_explicit(trainer->stop, memory_order_relaxed) ||
                (settings->common.seconds > 0 && training_elapsed(&trainer->clock) >= settings->common.seconds);
    int pauses = trainer->pause_at > 0 && program_now() >= trainer->pause_at;
    trainer->stopping |= stops;
    if (stops || pauses)
        atomic_store_explicit(&trainer->run->until, trainer->announced + 1,
                              memory_order_relaxed); /* announce releases it */
}

/* Fills the slot of the next step. */
static int dlrm_load(dlrm_trainer *trainer, dlrm_slot *slot) {
    const dlrm_settings *settings = &trainer->settings;
    double from = program_now(), share = 0;
    if (settings->common.decay) share = dlrm_progress(trainer, trainer->announced, trainer->loaded, 0);
    slot->rate = (float)(1 - share);
    dlrm_steer(trainer);
    if (dlrm_passes_read(trainer->passes, &slot->batch, slot->first, &dlrm_loader_end(trainer)->error)) return -1;
    for (uint32_t d = 0; d < settings->common.devices && slot->bags; d++)
        if (dlrm_is_here(trainer, d))
            clicks_bags_fill(&slot->bags[d], trainer->source.log, &slot->batch, slot->first[d], slot->first[d + 1]);
    if (settings->seen) dlrm_seen_mark(settings->seen, &slot->batch);
    slot->end = slot->batch.n == 0;
    trainer->loaded += slot->batch.n;
    double spent = atomic_load_explicit(&trainer->read_seconds, memory_order_relaxed) + program_now() - from;
    atomic_store_explicit(&trainer->read_seconds, spent, memory_order_relaxed); /* a statistic, written only here */
    return 0;
}

/* Of the bags of one feature, of n samples. */
static frugal_keys dlrm_bag_keys(const clicks_bags *bags, uint32_t feature, uint32_t n) {
    const uint32_t *offsets = bags->offsets + (uint64_t)feature * n;
    return (frugal_keys){.table = feature, .keys = bags->keys + offsets[0], .n = offsets[n] - offsets[0]};
}

static frugal_status dlrm_announce(dlrm_trainer *trainer, uint32_t instance, uint32_t device, frugal_keys *segments) {
    const dlrm_slot *slot = dlrm_slot_of(trainer, trainer->announced);
    const clicks_batch *batch = &slot->batch;
    uint32_t first = slot->first[device], end = slot->first[device + 1];
    uint32_t features = trainer->settings.model.features;
    for (uint32_t i = 0; i < features; i++)
        segments[i] =
            slot->bags
                ? dlrm_bag_keys(&slot->bags[device], i, end - first)
                : (frugal_keys){.table = i, .keys = batch->ids + (uint64_t)i * batch->room + first, .n = end - first};
    frugal_batch announcement = {.segments = segments, .n_segments = features};
    return frugal_announce(trainer->frugal[instance], device, trainer->announced + trainer->skipped, &announcement);
}

/* Until the loader of the first process has filled the slot of the next step; or until there is none in this run. */
static frugal_status dlrm_await_step(dlrm_trainer *trainer) {
    for (;;) {
        uint32_t heard = processes_listen(trainer->processes, PROCESSES_LOADER);
        if (atomic_load(&trainer->run->loaded) > trainer->announced || dlrm_until(trainer) <= trainer->announced)
            return FRUGAL_OK;
        if (processes_sleep(trainer->processes, PROCESSES_LOADER, heard)) return FRUGAL_STOPPED;
    }
}

/* Loads a step, unless it is another process's to load, and announces it to the devices of this process. *end: it is
 * that behind the data. It is read before the announcement, with which other processes may begin to reuse the slot. */
static frugal_status dlrm_load_step(dlrm_trainer *trainer, frugal_keys *segments, int *end) {
    dlrm_slot *slot = dlrm_slot_of(trainer, trainer->announced);
    processes *p = trainer->processes;
    uint32_t first = processes_first(p), after = first + processes_devices(p);
    frugal_status status = FRUGAL_OK;
    if (!processes_is_other(p)) {
        if (dlrm_load(trainer, slot)) return FRUGAL_ERR_FILE;
        atomic_store(&trainer->run->loaded, trainer->announced + 1);
        processes_ring(p, PROCESSES_LOADER);
    }
    *end = slot->end;
    for (uint32_t d = first; d < after; d++)
        for (uint32_t i = 0; i < trainer->instances && !status; i++) status = dlrm_announce(trainer, i, d, segments);
    if (status)
        training_fail("cannot announce a batch", &dlrm_loader_end(trainer)->error);
    else
        trainer->announced++;
    return status;
}

static void dlrm_give_up(void *argument);

static void dlrm_loader_run(dlrm_trainer *trainer) {
    frugal_keys *segments = calloc(trainer->settings.model.features + 1, sizeof *segments);
    frugal_status status = segments ? FRUGAL_OK : FRUGAL_ERR_MEMORY;
    if (status) program_fail(&dlrm_loader_end(trainer)->error, "out of memory");
    for (int end = 0; !status && !end;) {
        if (processes_is_other(trainer->processes)) status = dlrm_await_step(trainer);
        if (status || trainer->announced >= dlrm_until(trainer)) break;
        status = dlrm_load_step(trainer, segments, &end);
    }
    free(segments);
    training_note_end(dlrm_loader_end(trainer), status);
    if (status) dlrm_give_up(trainer);
}

/* ---- A device's thread -------------------------------------------------------------------------------- */

/* Called when a thread gives up, so that no other thread waits for it. */
static void dlrm_give_up(void *argument) {
    dlrm_trainer *trainer = argument;
    training_give_up(trainer->processes, trainer->end, dlrm_ends(trainer), trainer->settings.common.devices);
    for (uint32_t i = 0; i < trainer->instances; i++) frugal_stop(trainer->frugal[i]);
}

/* What the ranks have told each other at a step: does the training stop, or pause? The loader has announced L + 2 steps
 * more at most, as those of the others have, so the run ends behind these. */
static void dlrm_decide(dlrm_trainer *trainer, uint64_t step, const training_word *heard) {
    const training_settings *settings = &trainer->settings.common;
    uint64_t end = step + settings->lookahead + 3;
    if (heard->signal) atomic_store(trainer->stop, heard->signal);
    int stops = heard->signal || (settings->seconds > 0 && heard->seconds >= settings->seconds);
    trainer->stopping |= stops;
    if ((stops || heard->pauses) && end < dlrm_until(trainer)) atomic_store(&trainer->run->until, end);
}

/* The ranks tell each other what they know; `dense`: with the gradients of the dense layers. */
static frugal_status dlrm_exchange(dlrm_trainer *trainer, double seconds, int dense, training_word *heard) {
    uint32_t devices = trainer->settings.common.devices;
    double losses[FRUGAL_MAX_DEVICES];
    for (uint32_t i = 0; i < ranks_devices(devices); i++) losses[i] = trainer->device[ranks_first(devices) + i].loss;
    *heard = training_word_of(trainer->frugal, trainer->instances, seconds);
    heard->pauses = trainer->pause_at > 0 && program_now() >= trainer->pause_at;
    frugal_status status = dlrm_words_exchange(&trainer->words, trainer->frugal[0], heard, dense ? losses : NULL);
    for (uint32_t d = 0; d < devices && dense && !status; d++)
        trainer->device[d].gradient = dlrm_words_heard(&trainer->words, d, &trainer->device[d].loss);
    return status;
}

/* All gradients of the dense layers are there, also of other machines. */
static frugal_status dlrm_meet(dlrm_device *device, uint64_t step) {
    dlrm_trainer *trainer = device->trainer;
    training_word heard;
    frugal_status status = processes_meet(trainer->processes);
    if (status || ranks_all() == 1) return status;
    if (device->number == ranks_first(trainer->settings.common.devices)) {
        if ((status = dlrm_exchange(trainer, training_elapsed(&trainer->clock), 1, &heard))) return status;
        dlrm_decide(trainer, step, &heard);
    }
    return processes_meet(trainer->processes);
}

/* The dense layers' part of a step, and its loss. Each device sums one range of the gradients over all devices, in
 * their order, and updates this range; each machine has all. */
static frugal_status dlrm_update_dense(dlrm_device *device, uint64_t step, float lr, uint32_t samples) {
    dlrm_trainer *trainer = device->trainer;
    uint32_t devices = trainer->settings.common.devices, here = ranks_devices(devices);
    uint32_t place = device->number - ranks_first(devices);
    uint64_t all = trainer->layers.parameters, from = all * place / here, end = all * (place + 1) / here;
    frugal_status status = dlrm_meet(device, step);
    if (status) return status;
    const float *sum = trainer->device[0].gradient + from;
    for (uint32_t d = 1; d < devices; d++, sum = trainer->parameter_sum + from)
        dlrm_dense_add(trainer->parameter_sum + from, sum, trainer->device[d].gradient + from, end - from);
    dlrm_dense_step(&device->dense, trainer->parameters + from, trainer->parameter_state + from, all, sum, end - from,
                    lr);
    for (uint32_t d = 0; d < devices && place == 0; d++) trainer->loss += trainer->device[d].loss;
    if (place == 0) trainer->samples += samples;
    status = processes_meet(trainer->processes);
    if (!status && device->cuda && dlrm_cuda_set_parameters(device->cuda, trainer->parameters, &device->end->error))
        status = FRUGAL_ERR_CUDA;
    return status;
}

/* Bags are filled when the step is announced, so Frugal reads them then; those behind the step's samples are empty. */
static frugal_status dlrm_lookup(dlrm_device *device, uint64_t step) {
    dlrm_trainer *trainer = device->trainer;
    const dlrm_slot *slot = dlrm_slot_of(trainer, step);
    const clicks_bags *from = slot->bags ? &slot->bags[device->number] : NULL;
    frugal_bags bags = {0};
    frugal_status status = FRUGAL_OK;
    uint64_t frugal_step = step + trainer->skipped;
    if (from)
        bags = (frugal_bags){.n_bags = from->features * from->room, .offsets = from->offsets, .weights = from->weights};
    for (uint32_t i = 0; i < trainer->instances && !status; i++)
        status = from ? frugal_lookup_bags(trainer->frugal[i], device->number, frugal_step, &bags, device->rows[i])
                      : frugal_lookup(trainer->frugal[i], device->number, frugal_step, device->rows[i]);
    return status;
}

/* `lr` below 0: without gradients. */
static frugal_status dlrm_update(dlrm_device *device, uint64_t step, float lr) {
    dlrm_trainer *trainer = device->trainer;
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < trainer->instances && !status; i++) {
        frugal_gradients gradients = {.grads = device->grads[i], .lr = lr, .by_bag = trainer->slot->bags != NULL};
        status = frugal_update(trainer->frugal[i], device->number, step + trainer->skipped, lr < 0 ? NULL : &gradients);
    }
    return status;
}

/* This device's computations of the step; on a GPU they are only enqueued. */
static frugal_status dlrm_compute(dlrm_device *device, uint64_t step, const dlrm_input *input, uint32_t batch) {
    const dlrm_trainer *trainer = device->trainer;
    if (device->cuda) {
        int status = dlrm_cuda_copy(device->cuda, step, input, &device->end->error) ||
                     dlrm_cuda_gradients(device->cuda, step, batch, &device->end->error);
        return status ? FRUGAL_ERR_CUDA : FRUGAL_OK;
    }
    dlrm_gradient out = {device->parameter_grads, device->grads[0], device->grads[1]};
    device->loss = dlrm_gradients(&trainer->settings.model, trainer->parameters, input, batch, &out, device->work);
    device->gradient = device->parameter_grads;
    return FRUGAL_OK;
}

/* Waits until the GPU has copied the step's dense gradients and the loss to host memory. */
static frugal_status dlrm_collect(dlrm_device *device) {
    if (!device->cuda) return FRUGAL_OK;
    if (dlrm_cuda_wait_gradients(device->cuda, &device->gradient, &device->loss, &device->end->error))
        return FRUGAL_ERR_CUDA;
    if (!device->parameter_grads) return FRUGAL_OK;
    memcpy(device->parameter_grads, device->gradient, device->trainer->layers.parameters * sizeof(float));
    device->gradient = device->parameter_grads;
    return FRUGAL_OK;
}

static frugal_status dlrm_device_step(dlrm_device *device, uint64_t step) {
    dlrm_trainer *trainer = device->trainer;
    const dlrm_settings *settings = &trainer->settings;
    frugal_status status = dlrm_lookup(device, step); /* waits for the loader, too */
    if (status) return status;
    const dlrm_slot *slot = dlrm_slot_of(trainer, step);
    const clicks_batch *batch = &slot->batch;
    device->ended = slot->end;
    if (slot->end) return dlrm_update(device, step, -1);
    uint32_t first = slot->first[device->number];
    dlrm_input input = {.n = slot->first[device->number + 1] - first,
                        .numbers = batch->numbers + (uint64_t)first * settings->model.numbers,
                        .labels = batch->labels + first,
                        .rows = device->rows[0],
                        .linear = device->rows[1]};
    float rate = slot->rate;
    uint32_t samples = batch->n; /* the slot is the loader's again when the step is updated */
    status = dlrm_compute(device, step, &input, samples);
    if (!status)
        status = dlrm_update(device, step, settings->common.lr * rate); /* flushed while the dense layers are summed */
    if (!status) status = dlrm_collect(device);
    if (!status) status = dlrm_update_dense(device, step, settings->dense_lr * rate, samples);
    device->trained += !status;
    return status;
}

static void dlrm_device_run(dlrm_device *device) {
    dlrm_trainer *trainer = device->trainer;
    frugal_status status = FRUGAL_OK;
    for (uint64_t step = trainer->run->first; step < dlrm_until(trainer) && !device->ended && !status; step++) {
        int reports = device->number == ranks_first(trainer->settings.common.devices);
        double now = reports ? training_elapsed(&trainer->clock) : 0;
        if (reports && training_report_is_due(&trainer->reporter, step, now)) dlrm_make_report(trainer, step, now);
        status = dlrm_device_step(device, step);
    }
    training_note_end(device->end, status);
    if (status) dlrm_give_up(trainer);
}

/* ---- Runs --------------------------------------------------------------------------------------------- */

/* Part 0 is the loader, the others are the devices. */
static void dlrm_part_run(void *argument, uint32_t part) {
    dlrm_trainer *trainer = argument;
    if (part == 0)
        dlrm_loader_run(trainer);
    else
        dlrm_device_run(&trainer->device[processes_first(trainer->processes) + part - 1]);
}

/* Of this process. */
static int dlrm_run_parts(dlrm_trainer *trainer, program_error *error) {
    return training_run(processes_devices(trainer->processes) + 1, dlrm_part_run, dlrm_give_up, trainer, error);
}

/* The device that knows how far this machine is. */
static const dlrm_device *dlrm_first(const dlrm_trainer *trainer) {
    return &trainer->device[ranks_first(trainer->settings.common.devices)];
}

/* Frugal's next step. */
static uint64_t dlrm_next(const dlrm_trainer *trainer) {
    return trainer->step + trainer->skipped + (uint64_t)dlrm_first(trainer)->ended;
}

static void dlrm_end(dlrm_trainer *trainer) {
    trainer->done = 1;
    dlrm_passes_end(trainer->passes);
}

void dlrm_trainer_pause_at(dlrm_trainer *trainer, double seconds) {
    trainer->pause_at = seconds;
}

/* All ranks have trained the same steps: then they have the same seconds. */
static int dlrm_end_run(dlrm_trainer *trainer, program_error *error) {
    training_word heard;
    if (ranks_all() == 1) return 0;
    if (dlrm_exchange(trainer, trainer->clock.before, 0, &heard))
        return training_fail("cannot tell the other machines that the run has ended", error);
    trainer->clock.before = heard.seconds;
    return 0;
}

int dlrm_trainer_run(dlrm_trainer *trainer, uint64_t until, atomic_int *stop, program_error *error) {
    const dlrm_settings *settings = &trainer->settings;
    uint64_t last = settings->common.steps ? settings->common.steps : UINT64_MAX;
    uint32_t devices = settings->common.devices;
    atomic_store(&trainer->run->until, until < last ? until : last);
    trainer->stop = stop;
    trainer->stopping = 0;
    double seconds = settings->common.seconds;
    if (atomic_load(stop) || (seconds > 0 && trainer->clock.before >= seconds)) {
        dlrm_end(trainer);
        return 0;
    }
    for (uint32_t d = 0; d < devices; d++) trainer->device[d].trained = 0;
    trainer->run->first = trainer->step;
    training_start(&trainer->clock);
    processes_begin(trainer->processes, DLRM_RUN);
    int status = dlrm_run_parts(trainer, error);
    status = training_join_run(trainer->processes, status, trainer->end, dlrm_ends(trainer), devices, error);
    training_pause(&trainer->clock);
    program_error tracing; /* a trace of what failed is written, too */
    int traced =
        training_trace_write(&settings->common, trainer->frugal, trainer->instances, status ? &tracing : error);
    if (status || traced || dlrm_end_run(trainer, error)) return -1;
    trainer->step += dlrm_first(trainer)->trained;
    if (dlrm_first(trainer)->ended || trainer->step >= last || trainer->stopping || atomic_load(stop))
        dlrm_end(trainer);
    for (uint32_t i = 0; i < trainer->instances; i++)
        if (training_drain(trainer->frugal[i], dlrm_next(trainer), error)) {
            processes_explain(trainer->processes, FRUGAL_ERR_LOST, error);
            return -1;
        }
    return 0;
}

int dlrm_trainer_done(const dlrm_trainer *trainer) {
    return trainer->done;
}

frugal *dlrm_trainer_tables(dlrm_trainer *trainer, uint32_t instance) {
    return trainer->frugal[instance];
}

const float *dlrm_trainer_parameters(const dlrm_trainer *trainer) {
    return trainer->parameters;
}

const dlrm_model *dlrm_trainer_model(const dlrm_trainer *trainer) {
    return &trainer->settings.model;
}

int dlrm_trainer_save(dlrm_trainer *trainer, const char *path, program_error *error) {
    frugal_status status = frugal_save(trainer->frugal, trainer->instances, &(frugal_save_desc){.path = path});
    if (status) return training_fail("cannot save the embedding tables", error);
    return ranks_number() ? 0 : training_saved_id(path, &trainer->saved, error);
}

/* Each machine reads its own rows, when it opens. */
static int dlrm_reopen(dlrm_trainer *trainer, const char *tables, program_error *error) {
    training_sums sums = dlrm_sums(trainer, trainer->step, trainer->clock.before);
    frugal_saved saved;
    if (frugal_read_saved(tables, 0, &saved)) return training_fail("cannot read the best evaluation's tables", error);
    for (uint32_t i = 0; i < trainer->instances; i++) {
        frugal_close(trainer->frugal[i]);
        trainer->frugal[i] = NULL;
        ranks_deal_close(&trainer->dealing[i]);
    }
    trainer->earlier = (training_sums){.stall = sums.stall, .hits = sums.hits, .misses = sums.misses};
    trainer->words.others = (training_sums){.step = 0};
    trainer->settings.saved = tables;
    int status = dlrm_instances_open(trainer, saved.step, error);
    trainer->settings.saved = NULL;
    return status;
}

int dlrm_trainer_go_back(dlrm_trainer *trainer, const char *tables, const dlrm_state *state, program_error *error) {
    if (state->parameters != trainer->layers.parameters)
        return program_fail(error, "the best evaluation has %llu parameters in dense layers, and this model %llu",
                            (unsigned long long)state->parameters, (unsigned long long)trainer->layers.parameters);
    if (!trainer->done) dlrm_end(trainer);
    memcpy(trainer->parameters, state->values, state->parameters * sizeof(float));
    if (ranks_all() > 1) return dlrm_reopen(trainer, tables, error);
    return best_read(trainer->frugal, trainer->instances, tables, error);
}

dlrm_state dlrm_trainer_state(const dlrm_trainer *trainer) {
    const dlrm_settings *settings = &trainer->settings;
    const dlrm_device *device = dlrm_first(trainer);
    uint64_t state = frugal_state_floats(settings->dense_optimizer, 1) * trainer->layers.parameters;
    training_sums sums = dlrm_sums(trainer, trainer->step, trainer->clock.before);
    dlrm_position position = dlrm_passes_position(trainer->passes);
    return (dlrm_state){.step = trainer->step,
                        .samples = trainer->samples,
                        .skipped = trainer->skipped + (uint64_t)device->ended,
                        .epoch = position.epoch,
                        .pass = position.pass,
                        .in_pass = (uint64_t)position.in_pass,
                        .samples_a_pass = position.samples_a_pass,
                        .loss = trainer->loss,
                        .seconds = trainer->clock.before,
                        .hits = sums.hits,
                        .misses = sums.misses,
                        .stall = sums.stall,
                        .read_seconds = dlrm_trainer_read_seconds(trainer),
                        .power1 = device->dense.power1,
                        .power2 = device->dense.power2,
                        .saved = trainer->saved,
                        .parameters = trainer->layers.parameters,
                        .state = state,
                        .values = trainer->parameters,
                        .optimizer = trainer->parameter_state};
}

const dlrm_settings *dlrm_trainer_settings(const dlrm_trainer *trainer) {
    return &trainer->settings;
}
