/* Passes over a source of samples, and what each of them does with frugal_place.h. */
#include "trainers/common/partition.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"

const char *const partition_methods[] = {"two-level", "het-gmp", "bicut", "random", NULL};

typedef struct partition_work {
    const partition_desc *desc;
    const partition_source *source;
    partition *out;
    const char *path; /* a file of parts that the data must fit; NULL: none */
    int file;         /* partition_load: that file; -1: not open */
    uint64_t room;    /* ... of out->parts, which grows with what is read of the data */
    uint8_t *to;      /* to[PARTITION_BLOCK]: proposals */
    frugal_place_het_gmp het_gmp;
    uint64_t samples;      /* known after the first pass, or from the file */
    uint32_t pass, passes; /* this one, from 0; all of them */
    double started;
} partition_work;

/* ---- Descriptor and memory ----------------------------------------------------------------------------- */

static double partition_slack(const partition_desc *desc) {
    return desc->slack == 0 ? .049 : desc->slack; /* what is rounded up then stays below 1.05 of the mean */
}

static frugal_place_desc partition_place_desc(const partition_desc *desc) {
    uint32_t clusters = desc->method == PARTITION_TWO_LEVEL ? desc->clusters : desc->devices;
    return (frugal_place_desc){.rows = desc->rows,
                               .parts = desc->devices,
                               .clusters = clusters,
                               .slack = partition_slack(desc),
                               .machines = desc->machines};
}

static uint32_t partition_passes(const partition_desc *desc) {
    return desc->passes ? desc->passes : desc->method == PARTITION_HET_GMP ? 5 : 3;
}

uint64_t partition_bytes(const partition_desc *desc) {
    frugal_place_desc place = partition_place_desc(desc);
    uint64_t bytes = frugal_place_footprint(&place);
    return bytes && desc->method == PARTITION_HET_GMP ? bytes + desc->rows : bytes;
}

static int partition_check(const partition_desc *desc, program_error *error) {
    if (desc->devices < 1 || desc->devices > FRUGAL_PLACE_MAX_PARTS)
        return program_fail(error, "%" PRIu32 " devices to deal samples to; must be 1 to %d", desc->devices,
                            FRUGAL_PLACE_MAX_PARTS);
    if (desc->machines && desc->devices % desc->machines)
        return program_fail(error,
                            "%" PRIu32 " devices cannot be spread evenly over %" PRIu32
                            " machines; give a multiple of the machines",
                            desc->devices, desc->machines);
    if (desc->method == PARTITION_TWO_LEVEL && desc->clusters &&
        (desc->clusters < desc->devices || desc->clusters > FRUGAL_PLACE_MAX_PARTS))
        return program_fail(error, "%" PRIu32 " clusters for %" PRIu32 " devices; must be %" PRIu32 " to %d",
                            desc->clusters, desc->devices, desc->devices, FRUGAL_PLACE_MAX_PARTS);
    if (desc->passes > PARTITION_MOST_PASSES || desc->threads > PARTITION_MOST_THREADS)
        return program_fail(error, "%" PRIu32 " passes with %" PRIu32 " threads; at most %d and %d", desc->passes,
                            desc->threads, PARTITION_MOST_PASSES, PARTITION_MOST_THREADS);
    if (!desc->rows) return program_fail(error, "no rows to place; there must be at least 1");
    if (!(desc->slack >= 0 && desc->slack <= FRUGAL_PLACE_MAX_PARTS))
        return program_fail(error, "a slack of %g; must be 0 to %d", desc->slack, FRUGAL_PLACE_MAX_PARTS);
    if (!partition_bytes(desc))
        return program_fail(error, "%" PRIu64 " rows are too many to be counted in memory", desc->rows);
    return 0;
}

static int partition_out_of_memory(const partition_work *w, program_error *error) {
    return program_fail(error,
                        "out of memory: %" PRIu64 " bytes of counts of %" PRIu64
                        " rows, and a byte for each of %" PRIu64 " samples; use fewer rows or clusters",
                        partition_bytes(w->desc), w->desc->rows, w->samples);
}

static int partition_open(partition_work *w, program_error *error) {
    const partition_desc *desc = w->desc;
    frugal_place_desc place = partition_place_desc(desc);
    *w->out = (partition){0};
    if (partition_check(desc, error)) return -1;
    w->started = program_now();
    w->to = malloc(PARTITION_BLOCK);
    w->out->place = frugal_place_init(malloc(frugal_place_footprint(&place)), &place);
    if (w->out->place && desc->method == PARTITION_HET_GMP) w->het_gmp.homes = malloc(desc->rows);
    int whole = w->out->place && w->to && (w->het_gmp.homes || desc->method != PARTITION_HET_GMP);
    return whole ? 0 : partition_out_of_memory(w, error);
}

static int partition_close(partition_work *w, int status) {
    w->out->seconds = program_now() - w->started;
    w->out->samples = w->samples;
    if (w->desc->progress) progress_end(w->desc->progress);
    if (w->file >= 0) close(w->file);
    free(w->to);
    free(w->het_gmp.homes);
    if (status) partition_free(w->out);
    return status;
}

void partition_free(partition *p) {
    free(p->parts);
    free(p->place);
    *p = (partition){0};
}

/* ---- A pass -------------------------------------------------------------------------------------------- */

/* Does its work with samples `first` to first + block->n - 1. */
typedef int partition_step(partition_work *w, const frugal_place_samples *block, uint64_t first, program_error *error);

/* A status of frugal_place.h in words: where in the block it comes from. */
static int partition_fail(const partition_work *w, frugal_place_status status, const frugal_place_samples *block,
                          uint64_t first, program_error *error) {
    uint64_t at = 0, sample = 0;
    if (status != FRUGAL_PLACE_KEY || frugal_place_check(w->out->place, block, &at) != FRUGAL_PLACE_KEY)
        return program_fail(error, "samples %" PRIu64 " to %" PRIu64 " cannot be placed: %s", first,
                            first + block->n - 1, frugal_place_strerror(status));
    while (block->offsets ? block->offsets[sample + 1] <= at : (sample + 1) * block->width <= at) sample++;
    return program_fail(error, "sample %" PRIu64 " has row %" PRIu64 "; there are %" PRIu64 " rows", first + sample,
                        block->keys[at], w->desc->rows);
}

static void partition_tell(const partition_work *w, const char *what, uint64_t done) {
    double seconds = program_now() - w->started;
    double share = w->samples ? (w->pass + (double)done / (double)w->samples) / w->passes : 0;
    char text[160];
    if (!w->desc->progress || seconds < 1) return; /* a short run needs no line */
    int n = snprintf(text, sizeof text, "placing: pass %" PRIu32 " of %" PRIu32 ", %s, %" PRIu64 " samples",
                     w->pass + 1, w->passes, what, done);
    if (share > 0) /* the first pass finds out how many there are */
        snprintf(text + n, sizeof text - (size_t)n, "  %.0f s left", progress_left(seconds, share));
    progress_show(w->desc->progress, text, seconds, 0);
}

static int partition_is_stopped(const partition_work *w, program_error *error) {
    if (!w->desc->stop || !*w->desc->stop) return 0;
    return program_fail(error, "ended by %s while samples were placed", program_signal());
}

/* What a file seems to be, whose bytes are no parts. */
static const char *partition_guess(const uint8_t *bytes, uint64_t n) {
    uint64_t digits = 0;
    if (n >= 6 && !memcmp(bytes, "\x93NUMPY", 6)) return "; it is a .npy file: write array.astype('uint8').tofile(...)";
    while (digits < n && digits < 64 && ((bytes[digits] >= '0' && bytes[digits] <= '9') || bytes[digits] == '\n'))
        digits++;
    return n && digits == (n < 64 ? n : 64) ? "; it is text: write each number as one byte" : "";
}

/* The source has more samples than there should be, or fewer: counts them all, so that the message can say so. */
static int partition_fail_samples(const partition_work *w, uint64_t met, program_error *error) {
    frugal_place_samples block = {0};
    do {
        if (partition_is_stopped(w, error) || w->source->read(w->source->of, &block, error)) return -1;
    } while (met += block.n, block.n);
    if (!w->path)
        return program_fail(error,
                            "the data had %" PRIu64 " samples when it was first read, and now has %" PRIu64
                            "; leave it as it is until the parts are made",
                            w->samples, met);
    uint8_t begin[64];
    ssize_t n = pread(w->file, begin, sizeof begin, 0);
    return program_fail(error,
                        "%.300s has %" PRIu64 " bytes, and the data %" PRIu64
                        " samples; must be a byte a sample: give the parts of this data, in its order%s",
                        w->path, w->samples, met, partition_guess(begin, n > 0 ? (uint64_t)n : 0));
}

/* All samples go through `step`; in the first pass (`counts`) their number becomes known, if no file tells it. */
static int partition_walk(partition_work *w, const char *what, int counts, partition_step *step, program_error *error) {
    uint64_t first = 0;
    if (w->path) counts = 0;
    if (w->source->rewind(w->source->of, error)) return -1;
    for (frugal_place_samples block = {0};; first += block.n) {
        if (partition_is_stopped(w, error) || w->source->read(w->source->of, &block, error)) return -1;
        if (block.n == 0) break;
        if (block.n > PARTITION_BLOCK)
            return program_fail(error, "a block of %" PRIu64 " samples; at most %d", block.n, PARTITION_BLOCK);
        if (!counts && block.n > w->samples - first) return partition_fail_samples(w, first + block.n, error);
        if (step && step(w, &block, first, error)) return -1;
        partition_tell(w, what, first + block.n);
    }
    if (!counts && first < w->samples) return partition_fail_samples(w, first, error);
    w->samples = first, w->pass++;
    return 0;
}

/* The number of samples is known: memory for their parts. */
static int partition_open_parts(partition_work *w, program_error *error) {
    if (w->samples == 0) return program_fail(error, "the data has no samples to deal; give other data");
    if (w->samples < w->desc->devices)
        return program_fail(error, "%" PRIu64 " samples for %" PRIu32 " devices; give fewer devices", w->samples,
                            w->desc->devices);
    w->out->parts = malloc(w->samples);
    return w->out->parts ? 0 : partition_out_of_memory(w, error);
}

/* ---- Two levels ---------------------------------------------------------------------------------------- */

static int partition_count(partition_work *w, const frugal_place_samples *block, uint64_t first, program_error *error) {
    frugal_place_status status = frugal_place_count(w->out->place, block);
    return status ? partition_fail(w, status, block, first, error) : 0;
}

static int partition_stream(partition_work *w, const frugal_place_samples *block, uint64_t first,
                            program_error *error) {
    frugal_place_status status = frugal_place_stream(w->out->place, block, w->out->parts + first);
    return status ? partition_fail(w, status, block, first, error) : 0;
}

/* A piece of a block, for which one thread makes proposals. */
typedef struct partition_piece {
    const frugal_place *place;
    frugal_place_samples samples;
    const uint8_t *parts;
    uint8_t *to;
    frugal_place_status status;
    double seconds; /* processor time */
} partition_piece;

static double partition_processor_seconds(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *partition_propose_piece(void *of) {
    partition_piece *piece = of;
    double since = partition_processor_seconds();
    piece->status = frugal_place_propose(piece->place, &piece->samples, piece->parts, piece->to);
    piece->seconds = partition_processor_seconds() - since;
    return NULL;
}

/* The counts stand still meanwhile, so it does not matter which thread takes which piece. A thread that cannot be
 * started leaves its piece to this one. */
static frugal_place_status partition_propose(partition_work *w, const frugal_place_samples *block, uint64_t first) {
    partition_piece piece[PARTITION_MOST_THREADS];
    pthread_t id[PARTITION_MOST_THREADS];
    int started[PARTITION_MOST_THREADS];
    uint32_t threads = w->desc->threads ? w->desc->threads : 1;
    frugal_place_status status = FRUGAL_PLACE_OK;
    double longest = 0;
    for (uint32_t i = 0; i < threads; i++) {
        uint64_t from = block->n * i / threads, end = block->n * (i + 1) / threads;
        frugal_place_samples samples = *block;
        samples.n = end - from;
        if (samples.offsets)
            samples.offsets += from;
        else
            samples.keys += from * samples.width;
        piece[i] = (partition_piece){w->out->place, samples, w->out->parts + first + from, w->to + from, status, 0};
        started[i] = i + 1 < threads && !pthread_create(&id[i], NULL, partition_propose_piece, &piece[i]);
        if (!started[i]) partition_propose_piece(&piece[i]);
    }
    for (uint32_t i = 0; i < threads; i++) {
        if (started[i]) pthread_join(id[i], NULL);
        if (!status) status = piece[i].status;
        if (piece[i].seconds > longest) longest = piece[i].seconds;
    }
    w->out->path_seconds += longest;
    return status;
}

static int partition_refine(partition_work *w, const frugal_place_samples *block, uint64_t first,
                            program_error *error) {
    uint64_t moved = 0;
    double since = program_now();
    frugal_place_status status = partition_propose(w, block, first);
    double moving = partition_processor_seconds();
    if (!status) status = frugal_place_move(w->out->place, block, w->to, w->out->parts + first, &moved);
    w->out->path_seconds += partition_processor_seconds() - moving;
    w->out->refining_seconds += program_now() - since;
    w->out->moved[w->out->passes] += moved;
    return status ? partition_fail(w, status, block, first, error) : 0;
}

static int partition_refine_pass(partition_work *w, const char *what, program_error *error) {
    if (partition_walk(w, what, 0, partition_refine, error)) return -1;
    w->out->passes++;
    return 0;
}

static int partition_two_level(partition_work *w, program_error *error) {
    uint32_t passes = partition_passes(w->desc);
    w->passes = 3 + passes;
    if (partition_walk(w, "counting", 1, partition_count, error) || partition_open_parts(w, error)) return -1;
    if (partition_walk(w, "into clusters", 0, partition_stream, error)) return -1;
    if (partition_refine_pass(w, "between clusters", error)) return -1;
    frugal_place_status status = frugal_place_pack(w->out->place, w->out->parts, w->samples);
    if (status)
        return program_fail(error, "the data changed while it was read; leave it as it is until the parts are made");
    for (uint32_t i = 0; i < passes; i++)
        if (partition_refine_pass(w, "between devices", error)) return -1;
    return 0;
}

/* ---- Parts that are given, and the baselines ------------------------------------------------------------- */

/* Takes the parts of a block as they are. */
static int partition_take(partition_work *w, const frugal_place_samples *block, uint64_t first, program_error *error) {
    frugal_place_status status = frugal_place_load(w->out->place, block, w->out->parts + first);
    return status ? partition_fail(w, status, block, first, error) : 0;
}

static int partition_random(partition_work *w, const frugal_place_samples *block, uint64_t first,
                            program_error *error) {
    frugal_place_random(w->desc->seed, w->desc->devices, w->samples, first, block->n, w->out->parts + first);
    return partition_take(w, block, first, error);
}

static int partition_bicut(partition_work *w, const frugal_place_samples *block, uint64_t first, program_error *error) {
    frugal_place_status status = frugal_place_check(w->out->place, block, NULL);
    if (!status) status = frugal_place_bicut(w->desc->seed, w->desc->devices, block, w->out->parts + first);
    return status ? partition_fail(w, status, block, first, error) : partition_take(w, block, first, error);
}

static int partition_het_gmp_samples(partition_work *w, const frugal_place_samples *block, uint64_t first,
                                     program_error *error) {
    uint64_t moved = 0;
    frugal_place_status status =
        frugal_place_het_gmp_samples(w->out->place, &w->het_gmp, block, w->out->parts + first, &moved);
    w->out->moved[w->out->passes] += moved;
    return status ? partition_fail(w, status, block, first, error) : 0;
}

/* What a touch of a row elsewhere costs on average. */
static double partition_mean_weight(const partition_desc *desc) {
    uint32_t n = desc->devices;
    double sum = 0;
    if (!desc->weights || n < 2) return 1;
    for (uint32_t i = 0; i < n * n; i++) sum += i % (n + 1) ? desc->weights[i] : 0;
    return sum / ((double)n * (n - 1));
}

/* Rounds from random parts and homes. A part that is above the mean by the slack costs as much as all touches of a
 * sample elsewhere; a device with twice the mean of rows, as those of a mean row. So all terms are of one size,
 * whatever the data. */
static int partition_het_gmp(partition_work *w, program_error *error) {
    const partition_desc *desc = w->desc;
    frugal_place_report report = frugal_place_get_report(w->out->place, 0);
    double touches = (double)report.touches * desc->devices * partition_mean_weight(desc);
    double rows = report.rows ? (double)report.rows : 1;
    w->het_gmp.weights = desc->weights;
    w->het_gmp.alpha = touches / ((double)w->samples * (double)w->samples * partition_slack(desc));
    w->het_gmp.beta = touches / (rows * (double)desc->rows);
    frugal_place_random(desc->seed + 1, desc->devices, desc->rows, 0, desc->rows, w->het_gmp.homes);
    for (uint32_t i = 0; i < partition_passes(desc); i++) {
        frugal_place_status status = frugal_place_het_gmp_rows(w->out->place, &w->het_gmp);
        if (status) return program_fail(error, "cannot move rows: %s", frugal_place_strerror(status));
        if (partition_walk(w, "HET-GMP", 0, partition_het_gmp_samples, error)) return -1;
        w->out->passes++;
    }
    return 0;
}

static int partition_baseline(partition_work *w, program_error *error) {
    int rounds = w->desc->method == PARTITION_HET_GMP;
    w->passes = 2 + (rounds ? partition_passes(w->desc) : 0);
    if (partition_walk(w, "counting", 1, NULL, error) || partition_open_parts(w, error)) return -1;
    partition_step *step = w->desc->method == PARTITION_BICUT ? partition_bicut : partition_random;
    if (partition_walk(w, partition_methods[w->desc->method], 0, step, error)) return -1;
    return rounds ? partition_het_gmp(w, error) : 0;
}

/* ---- A file of parts ------------------------------------------------------------------------------------ */

/* Opens it, and says how many parts it has. */
static int partition_open_file(const char *path, int *file, uint64_t *samples, program_error *error) {
    struct stat is;
    *samples = 0;
    *file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe without a writer would wait */
    if (*file < 0 || fstat(*file, &is))
        return program_fail(error, "cannot read %.300s: %s; give a file of parts, a byte a sample", path,
                            strerror(errno));
    *samples = (uint64_t)is.st_size;
    if (S_ISREG(is.st_mode)) return 0;
    return program_fail(error, "cannot read %.300s: it is no regular file; parts are a file, a byte a sample", path);
}

/* parts[n] are those of samples `first` to first + n - 1. */
static int partition_read_file(int file, const char *path, uint64_t first, uint64_t n, uint8_t *parts,
                               program_error *error) {
    for (uint64_t at = 0; at < n;) {
        ssize_t got = pread(file, parts + at, n - at, (off_t)(first + at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return program_fail(error, "cannot read %.300s: %s", path, strerror(errno));
        if (got == 0)
            return program_fail(error, "%.300s became shorter while it was read; leave it as it is until it is read",
                                path);
        at += (uint64_t)got;
    }
    return 0;
}

static int partition_check_file(const char *path, uint32_t devices, uint64_t first, uint64_t n, const uint8_t *parts,
                                program_error *error) {
    for (uint64_t i = 0; i < n; i++)
        if (parts[i] >= devices)
            return program_fail(error,
                                "%.300s: sample %" PRIu64 " is in part %d; must be below %" PRIu32 ", the devices%s",
                                path, first + i, parts[i], devices, first ? "" : partition_guess(parts, n));
    return 0;
}

int partition_look(const char *path, uint32_t devices, program_error *error) {
    uint8_t parts[4096];
    uint64_t samples;
    int file, status = partition_open_file(path, &file, &samples, error);
    uint64_t n = samples < sizeof parts ? samples : sizeof parts;
    if (!status) status = partition_read_file(file, path, 0, n, parts, error);
    if (!status) status = partition_check_file(path, devices, 0, n, parts, error);
    if (file >= 0) close(file);
    return status;
}

/* The parts of a block as the file has them. */
static int partition_take_file(partition_work *w, const frugal_place_samples *block, uint64_t first,
                               program_error *error) {
    uint64_t end = first + block->n;
    if (end > w->room) {
        uint64_t twice = 2 * w->room, room = end > twice ? end : twice;
        uint8_t *parts = realloc(w->out->parts, room);
        if (!parts) return partition_out_of_memory(w, error);
        w->out->parts = parts, w->room = room;
    }
    uint8_t *parts = w->out->parts + first;
    if (partition_read_file(w->file, w->path, first, block->n, parts, error)) return -1;
    if (partition_check_file(w->path, w->desc->devices, first, block->n, parts, error)) return -1;
    return partition_take(w, block, first, error);
}

int partition_load(partition *out, const partition_desc *desc, const partition_source *source, const char *path,
                   program_error *error) {
    partition_desc given = *desc;
    given.method = PARTITION_RANDOM, given.clusters = given.passes = given.threads = 0; /* they do not matter */
    partition_work w = {.desc = &given, .source = source, .out = out, .path = path, .file = -1, .passes = 1};
    int status = partition_open(&w, error);
    if (!status) status = partition_open_file(path, &w.file, &w.samples, error);
    if (!status) {
        out->parts = malloc(w.room = PARTITION_BLOCK);
        if (!out->parts) status = partition_out_of_memory(&w, error);
    }
    if (!status) status = partition_walk(&w, "loading", 0, partition_take_file, error);
    return partition_close(&w, status);
}

/* ---- Making one ----------------------------------------------------------------------------------------- */

int partition_make(partition *out, const partition_desc *desc, const partition_source *source, program_error *error) {
    partition_work w = {.desc = desc, .source = source, .out = out, .path = desc->fits, .file = -1};
    int status = partition_open(&w, error);
    if (!status && w.path) status = partition_open_file(w.path, &w.file, &w.samples, error);
    if (!status)
        status = desc->method == PARTITION_TWO_LEVEL ? partition_two_level(&w, error) : partition_baseline(&w, error);
    return partition_close(&w, status);
}
