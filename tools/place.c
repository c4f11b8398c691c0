/* place - deals the samples of a graph or a click log to devices by locality, and says what that is worth.
 *
 *     place --data FB15k-237 --devices 8 --out parts           then: kge --data FB15k-237 --place parts/parts.u8
 *     place --data log.gz --devices 8 --parts metis.u8         what another program's parts are worth
 *     place --data log.gz --devices 8 --machines 2 --out parts devices 0 to 3 on one machine, 4 to 7 on the other
 *
 * `place --help` says more. Here: the command line, and the files. In tools/place: data (what is read), figures (what
 * parts are worth), away (what crosses the network), weights (costs of pairs of devices), picture. The parts are made
 * by trainers/common/partition.h, the homes of rows on several machines by trainers/common/homes.h.
 */
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "trainers/common/save.h"
#include "tools/place/data.h"
#include "tools/place/figures.h"
#include "tools/place/picture.h"
#include "tools/place/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Options ------------------------------------------------------------------------------------------- */

typedef struct place_replicas {
    uint64_t count;
    double percent; /* of the rows; below 0: count is given */
} place_replicas;

typedef struct place_options {
    clicks_options data;
    partition_desc desc;
    const char *parts, *out, *json, *weights;
    uint64_t batch;
    place_replicas replicas;
    int help, method_given, clusters_given, passes_given;
} place_options;

static place_options given;

static const char place_about[] = "usage: place --data PATH | --generate [SPEC]   [options]\n"
                                  "\n"
                                  "Deals the samples of a graph or a click log to devices, so that most touches of a "
                                  "row come from one device. Prints\n"
                                  "what that is worth, beside random parts. Rows are those of the trainer: all tables "
                                  "one after the other; of a graph\n"
                                  "entities, then relations.\n"
                                  "\n";
static const char place_notes[] =
    "\n"
    "The data is read several times and never whole in memory: a byte a sample is, and 4 bytes for each row and\n"
    "cluster, and 4 more a row. How much that is is told before it begins. Files of --out:\n"
    "  parts.u8         a byte a sample: its device, in the order of the data (numpy.fromfile(..., 'u1'))\n"
    "  homes.npy        uint16 [rows]: the device that touches the row most; 256: nobody does. With --machines uint8\n"
    "                   [rows]: the machine in whose memory the row lies best; each row has one\n"
    "  preload.npy      uint64 [devices][replicas]: rows to preload, by the hits that a copy brings; 2^64 - 1: no "
    "more\n"
    "  secondaries.npy  the same: rows whose home is elsewhere, by touches (HET-GMP's replicas)\n"
    "  report.json      the figures, as --json has them; bench_sim --plan --report takes them to say which cache, "
    "which\n"
    "                   placement, how many workers\n"
    "  place.svg: a picture of them; manifest.json: what belongs together\n"
    "The same command gives the same parts, whatever --threads. Exit status: 0 done; 1 failed or ended by Ctrl-C, and\n"
    "what is in --out is then a whole set, the old one or the new one; 2 wrong usage.\n";

static const clicks_options_words place_data_words = {
    .program = "place",
    .value = "PATH",
    .data = "a folder of triples, OpenKE's or plain, as kge reads it; or a click log, plain or gz, as dlrm reads it",
    .test =
        "of a click log, held-out samples, as dlrm has them: a share of --data, its last lines, or a file. They are "
        "not placed and do not count",
    .generates = 1};

/* "1%" or "5000". */
static int place_read_replicas(void *to, const char *name, const char *text, program_error *error) {
    place_replicas *replicas = to;
    char *end;
    double percent = strtod(text, &end);
    if (end != text && !strcmp(end, "%")) {
        if (!(percent >= 0 && percent <= 100))
            return program_fail(error, "--%s is '%.40s', must be 0%% to 100%%, or a number of rows", name, text);
        replicas->percent = percent;
        return 0;
    }
    replicas->percent = -1;
    return options_whole(name, text, 0, UINT64_C(1) << 40, &replicas->count, error);
}

static const options_entry place_entries[] = {
    {"devices", OPTIONS_WHOLE32, &given.desc.devices, 1, FRUGAL_PLACE_MAX_PARTS, .help = "parts"},
    {"machines", OPTIONS_WHOLE32, &given.desc.machines, 1, FRUGAL_MAX_MACHINES,
     .help = "that have the devices, as many each, and the rows: few shall cross the network"},
    {"method", OPTIONS_CHOICE, &given.desc.method, .choices = partition_methods, .given = &given.method_given,
     .help =
         "two-level: clusters in one pass, then devices; het-gmp: Algorithm 1 of HET-GMP, from random parts; bicut: "
         "rows by hash, not balanced"},
    {"clusters", OPTIONS_WHOLE32, &given.desc.clusters, 1, FRUGAL_PLACE_MAX_PARTS, .given = &given.clusters_given,
     .standard = "4 a device, 16 to 256", .help = "of two-level"},
    {"passes", OPTIONS_WHOLE32, &given.desc.passes, 1, PARTITION_MOST_PASSES, .given = &given.passes_given,
     .standard = "3; het-gmp: 5", .help = "of moves between devices"},
    {"threads", OPTIONS_WHOLE32, &given.desc.threads, 1, PARTITION_MOST_THREADS, .help = "that refine two-level parts"},
    {"weights", OPTIONS_TEXT, &given.weights, .value = "LIST|FILE", .standard = "all 1",
     .help =
         "het-gmp: devices x devices numbers, the cost of a touch by a sample of device i of a row of device j, for "
         "links of different speeds; with commas, or a file"},
    {"parts", OPTIONS_TEXT, &given.parts,
     .help = "make no parts: take those of this file, a byte a sample, as METIS or another program made them"},
    {"seed", OPTIONS_WHOLE64, &given.desc.seed, 0, 0x1p64, .standard = "1", .help = "of random parts and hashes"},
    {0},
};
static const options_entry place_results[] = {
    {"batch", OPTIONS_WHOLE64, &given.batch, 1, 1 << 30,
     .help = "samples of a device in a step, for what is predicted"},
    {"replicas", OPTIONS_READ, &given.replicas, .read = place_read_replicas, .value = "N|N%", .standard = "1%",
     .help = "rows that each device preloads, or has as secondaries: a number, or a share of all rows"},
    {"out", OPTIONS_TEXT, &given.out, .value = "DIR",
     .help = "write parts and lists there. The set that is there stays until the new one is on disk"},
    {"json", OPTIONS_TEXT, &given.json, .help = "one JSON object a line: random parts, and last the parts made"},
    {"help", OPTIONS_FLAG, &given.help, .help = "this"},
    {0},
};

static options_table place_table(int generate) {
    options_table table = {.program = "place", .about = place_about};
    given = (place_options){
        .desc = {.devices = 8, .machines = 1, .threads = 2, .seed = 1}, .batch = 256, .replicas = {.percent = 1}};
    clicks_options_begin(generate);
    clicks_options_add(&table, &place_data_words);
    options_add(&table, "parts", place_entries);
    options_add(&table, "results", place_results);
    return table;
}

/* The files of --out, and their order in the set. */
enum { PLACE_PARTS, PLACE_HOMES, PLACE_PRELOAD, PLACE_SECONDARIES, PLACE_REPORT, PLACE_PICTURE, PLACE_FILES };
static const char *const place_files[PLACE_FILES] = {"parts.u8",        "homes.npy",   "preload.npy",
                                                     "secondaries.npy", "report.json", "place.svg"};

/* No result may be written to a file that is read, nor two to one. */
static int place_check_outputs(const place_options *options, program_error *error) {
    const char *const read[] = {options->data.clicks.schema, options->parts, options->weights};
    static const char *const by[] = {"schema", "parts", "weights"};
    for (int i = 0; i < 3; i++)
        if (file_is_same(options->json, read[i]))
            return program_fail(error, "--json %.200s would overwrite the file of --%s; give another file",
                                options->json, by[i]);
    if (clicks_options_holds(&options->data, options->json))
        return program_fail(error, "--json %.200s would overwrite a file of --data; give another file", options->json);
    for (int i = 0; options->out && i <= PLACE_FILES; i++) {
        char path[MANIFEST_LONGEST_PATH];
        const char *name = i < PLACE_FILES ? place_files[i] : MANIFEST_NAME;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", options->out, name) >= sizeof path)
            return program_fail(error, "--out is a path of more than %d bytes; give a shorter one",
                                MANIFEST_LONGEST_PATH);
        for (int j = 0; j < 3; j++)
            if (file_is_same(path, read[j]))
                return program_fail(error, "--out %.200s would overwrite %.200s, the file of --%s; give another folder",
                                    options->out, read[j], by[j]);
        if (clicks_options_holds(&options->data, path))
            return program_fail(error, "--out %.200s would overwrite %.200s, a file of --data; give another folder",
                                options->out, clicks_options_holds(&options->data, path));
        if (file_is_same(path, options->json))
            return program_fail(error, "--out and --json would both write %.200s; give another file", options->json);
    }
    return 0;
}

static int place_check(place_options *options, program_error *error) {
    const partition_desc *desc = &options->desc;
    if (place_data_take(&options->data, &place_data_words, error)) return -1;
    const char *of_making = given.method_given     ? "method"
                            : given.clusters_given ? "clusters"
                            : given.passes_given   ? "passes"
                            : given.weights        ? "weights"
                                                   : NULL;
    if (options->parts && of_making)
        return program_fail(error, "--%s is for making parts, and --parts has them; give one of the two", of_making);
    if (desc->devices % desc->machines)
        return program_fail(error, "--devices is %" PRIu32 ", must be a multiple of --machines, %" PRIu32,
                            desc->devices, desc->machines);
    if (given.clusters_given && desc->method != PARTITION_TWO_LEVEL)
        return program_fail(error, "--clusters is for --method two-level; %s has none",
                            partition_methods[desc->method]);
    if (given.clusters_given && desc->clusters < desc->devices)
        return program_fail(error, "--clusters is %" PRIu32 ", must be at least --devices, %" PRIu32, desc->clusters,
                            desc->devices);
    if (given.passes_given && desc->method != PARTITION_TWO_LEVEL && desc->method != PARTITION_HET_GMP)
        return program_fail(error, "--passes is for --method two-level and het-gmp; %s makes no moves",
                            partition_methods[desc->method]);
    if (given.weights && desc->method != PARTITION_HET_GMP)
        return program_fail(error, "--weights is for --method het-gmp; %s knows none", partition_methods[desc->method]);
    return place_check_outputs(options, error);
}

static int place_parse(place_options *options, int argc, char **argv, program_error *error) {
    options_table table = place_table(0);
    if (options_read(&table, OPTIONS_FIRST, argc, argv, error)) return -1;
    table = place_table(clicks_options_read().generate);
    if (options_read(&table, OPTIONS_ALL, argc, argv, error)) return -1;
    *options = given;
    return given.help ? 0 : place_check(options, error);
}

/* ---- Files --------------------------------------------------------------------------------------------- */

typedef struct place_program {
    place_options options;
    place_data data;
    double *weights;
    partition parts;
    place_figures before, after;
    int compares; /* `before` is there */
    save_set *set;
    file_new json; /* in which the figures are, unpublished; zeros: none */
    progress_line line;
} place_program;

static const place_figures *place_before(const place_program *program) {
    return program->compares ? &program->before : NULL;
}

static int place_write_parts(place_program *program, program_error *error) {
    FILE *file = save_open(program->set, place_files[PLACE_PARTS], error);
    if (!file) return -1;
    fwrite(program->parts.parts, 1, program->parts.samples, file);
    return save_close(program->set, place_files[PLACE_PARTS], error);
}

static int place_write_homes(place_program *program, program_error *error) {
    FILE *file = save_open(program->set, place_files[PLACE_HOMES], error);
    uint64_t rows = place_data_rows(&program->data);
    int machines = program->after.machines > 1;
    if (!file) return -1;
    save_begin_array(file, machines ? "u1" : "u2", rows, SAVE_VECTOR);
    if (machines) fwrite(program->after.homes.of, 1, rows, file);
    for (uint64_t x = 0; x < rows && !machines; x++) {
        uint16_t home = (uint16_t)frugal_place_home(program->parts.place, x);
        fwrite(&home, sizeof home, 1, file);
    }
    return save_close(program->set, place_files[PLACE_HOMES], error);
}

/* Ranks the rows, and writes their lists where --out asks for them. */
static int place_write_list(place_program *program, frugal_place_rank_by by, int which, program_error *error) {
    FILE *file = program->set ? save_open(program->set, place_files[which], error) : NULL;
    if (program->set && !file) return -1;
    if (file) save_begin_array(file, "u8", program->after.devices, program->after.replicas);
    if (place_figures_rank(&program->after, program->parts.place, by, file, error)) return -1;
    return file ? save_close(program->set, place_files[which], error) : 0;
}

static void place_write_json(FILE *stream, const place_program *program) {
    if (program->compares) place_figures_json(&program->before, stream);
    place_figures_json(&program->after, stream);
}

static int place_write_report(place_program *program, program_error *error) {
    FILE *file = save_open(program->set, place_files[PLACE_REPORT], error);
    if (!file) return -1;
    place_write_json(file, program);
    if (save_close(program->set, place_files[PLACE_REPORT], error)) return -1;
    if (!(file = save_open(program->set, place_files[PLACE_PICTURE], error))) return -1;
    const char *path = program->options.data.path, *name = path ? strrchr(path, '/') : NULL;
    char title[160];
    snprintf(title, sizeof title, "%.80s, %" PRIu32 " devices",
             !path             ? "generated log"
             : name && name[1] ? name + 1
                               : path,
             program->after.devices);
    place_picture(place_before(program), &program->after, title, file);
    return save_close(program->set, place_files[PLACE_PICTURE], error);
}

/* An existing file must begin as a report does: a file of another kind is not overwritten. 1: it is a device or a pipe,
 * which is written to and not replaced; 0: a file; -1: error. */
static int place_check_json(const char *path, program_error *error) {
    struct stat is;
    char begin[sizeof PLACE_FIGURES_BEGIN] = "";
    if (stat(path, &is)) return 0;
    if (!S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode)) return 1;
    if (is.st_size == 0) return 0;
    FILE *file = fopen(path, "rbe");
    if (file) (void)!fread(begin, 1, sizeof begin - 1, file), fclose(file);
    if (!file || !strcmp(begin, PLACE_FIGURES_BEGIN)) return 0; /* file_make says why it cannot be opened */
    return program_fail(error, "--json %.200s is there, and no file of reports; remove it, or give another file", path);
}

/* Could --json be written? */
static int place_try_json(const char *path, program_error *error) {
    file_new file;
    int kind = path ? place_check_json(path, error) : 0;
    if (!path || kind < 0) return kind;
    if (kind == 1 && access(path, W_OK))
        return program_fail(error, "cannot write --json %.200s: %s; give another file", path, strerror(errno));
    if (kind == 1) return 0;
    if (file_make(&file, path, error)) return -1;
    file_discard(&file);
    return 0;
}

/* A file gets its name later, by place_publish_json. */
static int place_put_json(place_program *program, program_error *error) {
    const char *path = program->options.json;
    int kind = path ? place_check_json(path, error) : 0;
    if (!path || kind < 0) return kind;
    if (kind == 0) {
        if (file_make(&program->json, path, error) || file_stream(&program->json, error)) return -1;
        place_write_json(program->json.stream, program);
        return file_close(&program->json, error);
    }
    FILE *file = fopen(path, "we");
    if (!file)
        return program_fail(error, "cannot write --json %.200s: %s%s", path, strerror(errno), file_remedy(errno));
    place_write_json(file, program);
    int status = program_flush(file, path, error);
    fclose(file);
    return status;
}

/* What can fail comes before the set is published, so that a failure leaves the old one. */
static int place_write(place_program *program, program_error *error) {
    int status = place_write_list(program, FRUGAL_PLACE_BY_GAIN, PLACE_PRELOAD, error);
    if (!status) status = place_write_list(program, FRUGAL_PLACE_BY_COUNT, PLACE_SECONDARIES, error);
    if (!status && program->set) status = place_write_parts(program, error);
    if (!status && program->set) status = place_write_homes(program, error);
    if (!status && program->set) status = place_write_report(program, error);
    if (!status) status = place_put_json(program, error);
    save_origin origin = {.model = program->after.method};
    if (program->set && save_finish(program->set, &origin, status, error)) status = -1;
    if (!status && program->set) save_tell(program->set);
    if (!status && program->json.path) status = file_publish(&program->json, error);
    return status;
}

/* ---- The program --------------------------------------------------------------------------------------- */

/* What parts are asked for, with all that can be known before they are made. */
static place_figures place_wanted(const place_program *program, const partition_desc *desc) {
    place_replicas replicas = program->options.replicas;
    double share = ceil(replicas.percent / 100 * (double)desc->rows);
    int clusters = desc->method == PARTITION_TWO_LEVEL && !program->options.parts;
    uint32_t most = FRUGAL_PLACE_MAX_PARTS, four = desc->devices > most / 4 ? most : 4 * desc->devices;
    return (place_figures){.method = program->options.parts ? "given" : partition_methods[desc->method],
                           .devices = desc->devices,
                           .machines = desc->machines,
                           .clusters = !clusters        ? desc->devices
                                       : desc->clusters ? desc->clusters
                                                        : four,
                           .rows = desc->rows,
                           .batch = program->options.batch,
                           .replicas = replicas.percent < 0 ? replicas.count : (uint64_t)share};
}

/* Random parts, for comparison, unless they are what is asked for. */
static int place_compare(place_program *program, const partition_source *source, program_error *error) {
    partition_desc desc = program->options.desc;
    partition p;
    if (desc.method == PARTITION_RANDOM && !program->options.parts) return 0;
    desc.method = PARTITION_RANDOM, desc.fits = program->options.parts;
    if (partition_make(&p, &desc, source, error)) return -1;
    program->compares = 1;
    program->before = program->after;
    program->before.method = partition_methods[PARTITION_RANDOM];
    program->before.clusters = desc.devices;
    int status = place_figures_take(&program->before, &p, error);
    if (!status) status = place_figures_rank(&program->before, p.place, FRUGAL_PLACE_BY_GAIN, NULL, error);
    if (!status) status = place_figures_rank(&program->before, p.place, FRUGAL_PLACE_BY_COUNT, NULL, error);
    partition_free(&p);
    return status;
}

static int place_prepare(place_program *program, program_error *error) {
    place_options *options = &program->options;
    partition_desc *desc = &options->desc;
    save_set *probe = NULL;
    /* An unwritable folder is found before hours of reading. The set is not kept open, because Ctrl-C during the
     * reading would leave its lock. Outputs are checked again, because now the folder is there. */
    if (options->out && save_begin(&probe, options->out, "place", place_files, PLACE_FILES, error)) return -1;
    int status = place_check_outputs(options, error);
    save_end(probe);
    if (status || place_try_json(options->json, error)) return -1;
    if (options->parts && partition_look(options->parts, desc->devices, error)) return -1;
    if (options->weights && place_weights_read(&program->weights, options->weights, desc->devices, error)) return -1;
    if (place_data_open(&program->data, &options->data, error)) return -1;
    desc->rows = place_data_rows(&program->data);
    desc->weights = program->weights;
    desc->stop = &program_signalled, desc->progress = &program->line;
    program->after = place_wanted(program, desc);
    if (program->after.replicas > desc->rows)
        return program_fail(error, "--replicas is %" PRIu64 ", and there are %" PRIu64 " rows; give fewer",
                            program->after.replicas, desc->rows);
    fprintf(stderr, "%" PRIu32 " devices: %.1f MB for counts of rows, and a byte a sample\n", desc->devices,
            (double)partition_bytes(desc) / 1e6);
    return 0;
}

static int place_run(place_program *program, program_error *error) {
    place_options *options = &program->options;
    if (place_prepare(program, error)) return -1;
    partition_source source = place_data_source(&program->data);
    if (options->out && save_begin(&program->set, options->out, "place", place_files, PLACE_FILES, error)) return -1;
    program_catch_signals();
    if (place_compare(program, &source, error)) return -1;
    int status = options->parts ? partition_load(&program->parts, &options->desc, &source, options->parts, error)
                                : partition_make(&program->parts, &options->desc, &source, error);
    if (status) return -1;
    place_data_tell_malformed(&program->data, options->data.name);
    if (place_figures_take(&program->after, &program->parts, error)) return -1;
    if (place_write(program, error)) return -1;
    place_figures_show(place_before(program), &program->after);
    return program_flush(stdout, "the result", error);
}

static void place_close(place_program *program) {
    save_end(program->set);
    file_discard(&program->json);
    partition_free(&program->parts);
    place_figures_free(&program->before), place_figures_free(&program->after);
    place_data_close(&program->data);
    free(program->weights);
}

static int place_help(void) {
    program_error error;
    options_table table = place_table(0);
    options_help(&table);
    fputs(place_notes, stdout);
    int status = program_flush(stdout, "the help", &error);
    if (status) fprintf(stderr, "place: %s\n", error.text);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    static place_program program;
    program_error error;
    program_open_streams();
    if (place_parse(&program.options, argc, argv, &error)) {
        fprintf(stderr, "place: %s\n", error.text);
        return 2;
    }
    if (program.options.help) return place_help();
    program.line = progress_begin(-1);
    int status = place_run(&program, &error);
    place_close(&program);
    if (status) fprintf(stderr, "place: %s\n", error.text);
    return status ? 1 : 0;
}
