/* Settings and data in words, written like the options. */
#include "trainers/dlrm/describe.h"
#include "trainers/common/file.h"
#include "trainers/common/crc32.h"
#include "trainers/common/training.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { DLRM_LOOK = 64 << 10 }; /* bytes at either end of a log */

static void dlrm_describe_widths(const char *name, const uint32_t *width, uint32_t n, FILE *lines) {
    fprintf(lines, "--%s ", name);
    for (uint32_t i = 0; i < n; i++) fprintf(lines, "%s%u", i ? "," : "", width[i]);
    fputs(n ? "\n" : "none\n", lines);
}

void dlrm_describe_model(const dlrm_model *model, FILE *lines) {
    fprintf(lines, "--model %s\n--dim %u\n", dlrm_model_name(model->kind), model->dim);
    dlrm_describe_widths("bottom", model->bottom, model->n_bottom, lines);
    dlrm_describe_widths("top", model->top, model->n_top, lines);
    if (model->kind == DLRM_DCN) fprintf(lines, "--cross-layers %u\n", model->n_cross);
}

static void dlrm_describe_generator(const clicks_generator *made, FILE *lines) {
    fprintf(lines,
            "--generate samples=%" PRIu64 ",numbers=%u,features=%u,rows=%" PRIu64 ",zipf=%.15g,spread=%.15g,"
            "seed=%" PRIu64,
            made->samples, made->numbers, made->features, made->rows, made->zipf, made->spread, made->seed);
    if (made->communities > 1) fprintf(lines, ",communities=%" PRIu64 ",within=%.15g", made->communities, made->within);
    if (made->like) fprintf(lines, ",like=%s", clicks_likes[made->like]);
    fputc('\n', lines);
}

/* Continues the checksum over the DLRM_LOOK bytes from `at` on, or those up to the file's end. */
static uint32_t dlrm_look(FILE *file, uint64_t at, uint32_t sum) {
    static char bytes[DLRM_LOOK];
    if (fseeko(file, (off_t)at, SEEK_SET)) return sum;
    return crc32_of(sum, bytes, fread(bytes, 1, sizeof bytes, file));
}

static int dlrm_describe_file(const char *name, const char *path, FILE *lines, program_error *error) {
    struct stat is;
    if (stat(path, &is)) return program_fail(error, "cannot read %.300s: %s", path, strerror(errno));
    if (!S_ISREG(is.st_mode)) return 0;
    FILE *file = fopen(path, "rbe");
    if (!file) return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    uint64_t bytes = (uint64_t)is.st_size;
    uint32_t sum = dlrm_look(file, bytes > DLRM_LOOK ? bytes - DLRM_LOOK : 0, dlrm_look(file, 0, 0));
    fclose(file);
    fprintf(lines, "%s %" PRIu64 " bytes, checksum of begin and end %08" PRIx32 "\n", name, bytes, sum);
    return 0;
}

int dlrm_describe(const dlrm_options *options, const clicks *log, uint64_t samples, FILE *lines, program_error *error) {
    const dlrm_settings *train = &options->train;
    const training_settings *common = &train->common;
    double rows = 0;
    dlrm_describe_model(&train->model, lines);
    fprintf(lines, "--batch %u\n--shuffle %" PRIu32 "\n", common->batch, train->shuffle);
    training_describe(common, lines);
    if (train->placing) placing_describe(train->placing, lines);
    if (common->decay) fprintf(lines, "--epochs %" PRIu64 " (the learning rate falls until then)\n", train->epochs);
    /* A training ends with a step without samples, which counts in the powers of the betas. */
    if (!common->decay && common->optimizer >= FRUGAL_ADAM) fprintf(lines, "--epochs %" PRIu64 "\n", train->epochs);
    fprintf(lines, "--dense-optimizer %s\n--dense-lr %.9g\n--accumulator %.9g\n",
            training_optimizer_word(train->dense_optimizer), (double)train->dense_lr, (double)train->accumulator);
    for (uint32_t i = 0; i < clicks_features(log); i++) rows += (double)clicks_rows(log, i);
    if (samples != UINT64_MAX) fprintf(lines, "samples %" PRIu64 " to train on\n", samples);
    fprintf(lines, "columns %u numbers, %u features of %.0f rows, checksum %08" PRIx32 "\n", clicks_numbers(log),
            clicks_features(log), rows, clicks_checksum(log));
    if (!options->data.path) dlrm_describe_generator(&options->data.clicks.generator, lines);
    if (options->outputs.patience && options->data.test &&
        dlrm_describe_file("--test", options->data.test, lines, error))
        return -1;
    for (uint32_t i = 0; options->data.path && options->data.clicks.files[i]; i++) {
        char name[20];
        snprintf(name, sizeof name, i ? "log.%u" : "log", i + 1); /* one file's is as it always was */
        if (dlrm_describe_file(name, options->data.clicks.files[i], lines, error)) return -1;
    }
    return 0;
}

int dlrm_fail_diverged(const dlrm_settings *settings, const char *what, program_error *error) {
    program_fail(error,
                 "the training diverged: %s no finite number; use a smaller --lr (it is %g) or --dense-lr (%g); "
                 "nothing is saved",
                 what, (double)settings->common.lr, (double)settings->dense_lr);
    size_t n = strlen(error->text);
    if (settings->table_file)
        snprintf(error->text + n, sizeof error->text - n,
                 ", and the tables in %.200s have been trained on: they are ruined, delete them", settings->table_file);
    return -1;
}
