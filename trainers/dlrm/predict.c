/* The command line, and probabilities, a line each. */
#include "trainers/dlrm/predict.h"
#include "trainers/dlrm/load.h"
#include "trainers/common/checkpointing.h"
#include "trainers/common/file.h"
#include "trainers/common/options.h"
#include "trainers/common/program.h"
#include "trainers/common/ranks.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static struct {
    const char *log, *folder, *out;
    uint32_t threads;
    int help;
} given;
static const options_entry dlrm_predict_entries[] = {
    {"predict", OPTIONS_TEXT, &given.log,
     .help = "a log as that of the training, plain or gz; it need not have labels"},
    {"load", OPTIONS_TEXT, &given.folder, .value = "DIR", .help = "what --save has made"},
    {"out", OPTIONS_TEXT, &given.out, .help = "where the probabilities go, one a line; without it to stdout"},
    {"threads", OPTIONS_WHOLE32, &given.threads, 1, 64, .help = "that compute"},
    {"help", OPTIONS_FLAG, &given.help, .help = "this"},
    {0},
};

static int dlrm_read_line(int argc, char **argv, options_table *table, program_error *error) {
    *table = (options_table){.program = "dlrm", .about = "usage: dlrm --predict LOG --load DIR   [options]\n\n"};
    given.threads = 2;
    options_add(table, "options", dlrm_predict_entries);
    if (options_read(table, OPTIONS_ALL, argc, argv, error)) return -1;
    if (given.help || given.folder) return 0;
    return program_fail(error, "--predict needs --load DIR, the model that was saved; see dlrm --help");
}

typedef struct dlrm_predicted {
    FILE *stream;
    uint64_t n;
} dlrm_predicted;

static int dlrm_put(void *taker, const clicks_batch *batch, const float *logits, program_error *error) {
    dlrm_predicted *to = taker;
    (void)error; /* of the stream, which is closed or flushed in the end */
    for (uint32_t i = 0; i < batch->n; i++) fprintf(to->stream, "%.9g\n", 1 / (1 + exp(-(double)logits[i])));
    to->n += batch->n;
    return 0;
}

static int dlrm_predict_to(FILE *stream, program_error *error) {
    dlrm_loaded *loaded;
    clicks_malformed malformed;
    dlrm_predicted to = {.stream = stream};
    double from = program_now();
    if (program_reserve_products(given.threads, "use fewer --threads", error)) return -1;
    if (dlrm_load(&loaded, given.folder, given.log, error)) return -1;
    dlrm_score_desc desc = dlrm_loaded_scores(loaded);
    desc.threads = given.threads, desc.stop = &program_signalled, desc.take = dlrm_put, desc.taker = &to;
    int status = dlrm_score(&desc, &malformed, error);
    dlrm_loaded_close(loaded);
    if (!status && !to.n) status = program_fail(error, "--predict %.200s has no samples; give another file", given.log);
    if (!status) fprintf(stderr, "predicted %" PRIu64 " samples in %.1f s\n", to.n, program_now() - from);
    return status;
}

/* A file is there as a whole, or is as it was. */
static int dlrm_predict_all(program_error *error) {
    file_new file = {.descriptor = -1};
    if (!given.out) {
        int status = dlrm_predict_to(stdout, error);
        return status ? status : program_flush(stdout, "the probabilities", error);
    }
    if (file_is_same(given.out, given.log))
        return program_fail(error, "--out would overwrite %.200s, which is predicted; give another file", given.out);
    if (checkpointing_lies_in(given.out, given.folder))
        return program_fail(
            error, "--out %.200s lies in the folder of --load, whose files it could replace; give another place",
            given.out);
    if (file_make(&file, given.out, error)) return -1;
    int status = file_stream(&file, error) || dlrm_predict_to(file.stream, error) || file_close(&file, error) ||
                 file_publish(&file, error);
    if (status) file_discard(&file);
    return status ? -1 : 0;
}

int dlrm_predict_run(int argc, char **argv) {
    options_table table;
    program_error error;
    program_open_streams();
    int status = ranks_open(&error);
    if (!status && ranks_all() > 1)
        status = program_fail(&error, "--predict needs one process; start it without mpirun");
    if (status || dlrm_read_line(argc, argv, &table, &error)) {
        fprintf(stderr, "dlrm: %s\n", error.text);
        ranks_close();
        return 2;
    }
    ranks_close();
    if (given.help) {
        options_help(&table);
        return program_flush(stdout, "the help", &error) ? 1 : 0;
    }
    openblas_set_num_threads(1); /* as in the training */
    status = dlrm_predict_all(&error);
    if (status) fprintf(stderr, "dlrm: %s\n", error.text);
    return program_end(status ? 1 : 0, (size_t)openblas_get_num_procs());
}
