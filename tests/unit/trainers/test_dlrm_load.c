/* A model that was saved and loaded scores samples with the bits of the training that saved it: logs of every form, ids
 * of every kind, with labels and without; and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainers/dlrm/eval.h"
#include "trainers/dlrm/load.h"
#include "trainers/dlrm/save.h"
#include "tests/support.h"
#include "tests/unit/trainers/folder.h"

enum { SAMPLES = 1500 }; /* two blocks */

static program_error error;
static atomic_int never = 0;

#define assert_works(call) check_works(call, #call, __LINE__)
static void check_works(int status, const char *call, int line) {
    if (status) fail_msg("line %d: %s: %s", line, call, error.text);
}

static int make_folder(void **state) {
    (void)state;
    return folder_make("test_dlrm_load");
}

/* ---- Logs --------------------------------------------------------------------------------------------------- */

typedef struct form { /* how samples are written, and read */
    const char *schema;
    const char *option, *value; /* one more; NULL: none */
} form;
static const form forms[] = {
    {"header yes\nnumber x scale 2.7 .3 bucket 2\nid a last 2\nid b bag bar mean\nlabel l one 1 zero 0\nid c with b\n",
     "--ids", "vocabulary"},
    {"missing -1 x\nlabel \"my label\" one 1 zero 0\nnumber x log logbucket .7\nid a\nid b bag bar\nid c weighted\n",
     "--ids", "hash"},
    {"separator tab\nid a hex rows 40\nlabel l one 1 zero 0\nid b\n", "--ids", "given"},
    {NULL, "--format", "libsvm"},
    {NULL, "--ids", "vocabulary"}, /* libffm, guessed */
};
enum { FORMS = sizeof forms / sizeof *forms };

static uint32_t drawn(uint64_t s, uint64_t k, uint32_t below) {
    return (uint32_t)(test_mix(s * 97 + k) % below);
}

static void put_sample(FILE *file, int which, uint64_t s, int labelled) {
    uint32_t a = drawn(s, 0, 40), b = drawn(s, 1, 30), c = drawn(s, 2, 9), label = drawn(s, 3, 3) == 0;
    char text[8] = "";
    if (labelled) snprintf(text, sizeof text, "%u", label);
    switch (which) {
    case 0:
        fprintf(file, "%u,x%02u,%u|%u%s%s,%u\n", c, a, b, a, labelled ? "," : "", text, c);
        break;
    case 1:
        fprintf(file, "%s%s%u,%u,%u|%u,%u:%u\n", text, labelled ? "," : "", c, a, b, a, c, b);
        break;
    case 2:
        fprintf(file, "%x%s%s\t%u\n", a % 40, labelled ? "\t" : "", text, b);
        break;
    case 3:
        fprintf(file, "%s %u:1 %u:%u.5\n", text, a, b + 40, c);
        break;
    default:
        fprintf(file, "%s 0:%u:1 2:%u:1 2:%u:-.5\n", text, a, b, c);
    }
}

/* Returns the path. */
static const char *put_log(const char *name, int which, int labelled) {
    const char *path = in_folder(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (which == 0) fputs(labelled ? "x,a,b,l,c\n" : "x,a,b,c\n", file);
    for (uint64_t s = 0; s < SAMPLES; s++) put_sample(file, which, s, labelled);
    fclose(file);
    return path;
}

/* ---- Training and scores ------------------------------------------------------------------------------------ */

typedef struct scores {
    float logits[SAMPLES + 1];
    uint32_t n;
} scores;

static int take(void *taker, const clicks_batch *batch, const float *logits, program_error *unused) {
    scores *to = taker;
    (void)unused;
    assert_true(to->n + batch->n <= SAMPLES);
    memcpy(to->logits + to->n, logits, batch->n * sizeof *logits);
    to->n += batch->n;
    return 0;
}

static scores score(dlrm_score_desc desc, uint32_t threads) {
    scores to = {.n = 0};
    clicks_malformed malformed;
    desc.threads = threads, desc.stop = &never, desc.take = take, desc.taker = &to;
    assert_works(dlrm_score(&desc, &malformed, &error));
    assert_int_equal(malformed.lines, 0);
    return to;
}

/* Trains on the log, saves to `folder`, and returns the scores of the trainer. */
static scores train(int which, const char *model, const char *folder, const char *path) {
    char *argv[20] = {"dlrm",
                      "--data",
                      (char *)(uintptr_t)path,
                      "--model",
                      (char *)(uintptr_t)model,
                      "--dim",
                      "6",
                      "--top",
                      "8,4",
                      "--bottom",
                      "5",
                      "--rows",
                      "100"};
    int argc = 13, n;
    dlrm_options options;
    clicks *log;
    dlrm_trainer *trainer;
    save_set *set;
    if (forms[which].schema) {
        put_text(in_folder("schema"), forms[which].schema);
        argv[argc++] = "--schema", argv[argc++] = (char *)(uintptr_t)in_folder("schema");
    }
    argv[argc++] = (char *)(uintptr_t)forms[which].option, argv[argc++] = (char *)(uintptr_t)forms[which].value;
    assert_works(dlrm_options_parse(&options, argc, argv, &error));
    if (options.data.guess) assert_works(clicks_guess(path, &options.data.clicks.format, &error));
    assert_works(clicks_open(&log, &options.data.clicks, &error));
    assert_works(clicks_measure(log, path, &error));
    assert_works(clicks_prepare(log, path, SAMPLES, &error));
    options.train.model.numbers = clicks_numbers(log), options.train.model.features = clicks_features(log);
    dlrm_source source = {.log = log, .path = path, .end = SAMPLES};
    assert_works(dlrm_trainer_open(&trainer, &options.train, &source, &error));
    assert_works(dlrm_trainer_run(trainer, UINT64_MAX, &never, &error));
    const char *const *names = dlrm_save_names(&options, &n);
    assert_works(save_begin(&set, folder, "dlrm", names, n, &error));
    assert_works(dlrm_save(set, trainer, log, &options, dlrm_trainer_total(trainer).step, &error));
    save_end(set);
    dlrm_score_desc desc = dlrm_trainer_scores(trainer);
    desc.samples = (dlrm_samples){log, path, 0, UINT64_MAX};
    scores trained = score(desc, 2);
    assert_int_equal(trained.n, SAMPLES);
    dlrm_trainer_close(trainer);
    clicks_close(log);
    return trained;
}

static void assert_same_scores(const scores *trained, const char *folder, const char *path) {
    dlrm_loaded *loaded;
    assert_works(dlrm_load(&loaded, folder, path, &error));
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        scores again = score(dlrm_loaded_scores(loaded), threads);
        assert_int_equal(again.n, SAMPLES);
        assert_memory_equal(again.logits, trained->logits, SAMPLES * sizeof(float));
    }
    dlrm_loaded_close(loaded);
}

static void test_same_scores(void **state) {
    (void)state;
    for (int which = 0; which < FORMS; which++)
        for (int m = which == 3; m < 2; m++) { /* libsvm's logs have no pairs for dlrm */
            char folder[64], labelled[64], unlabelled[64];
            snprintf(folder, sizeof folder, "%s", in_folder(m ? "deepfm" : "dlrm"));
            snprintf(labelled, sizeof labelled, "%s", put_log("labelled", which, 1));
            snprintf(unlabelled, sizeof unlabelled, "%s", put_log("unlabelled", which, 0));
            scores trained = train(which, m ? "deepfm" : "dlrm", folder, labelled);
            assert_true(memcmp(&trained.logits[0], &trained.logits[1], sizeof(float)));
            assert_same_scores(&trained, folder, labelled);
            assert_same_scores(&trained, folder, unlabelled);
        }
}

/* ---- What is refused ---------------------------------------------------------------------------------------- */

static void refuse(const char *folder, const char *path, const char *what) {
    dlrm_loaded *loaded;
    assert_int_equal(dlrm_load(&loaded, folder, path, &error), -1);
    assert_null(loaded);
    if (!strstr(error.text, what)) fail_msg("'%s' is not in: %s", what, error.text);
}

static void test_refused(void **state) {
    (void)state;
    char folder[64], log[64], other[64];
    snprintf(folder, sizeof folder, "%s", in_folder("saved"));
    snprintf(log, sizeof log, "%s", put_log("log", 2, 1));
    snprintf(other, sizeof other, "%s", in_folder("other"));
    train(2, "dlrm", folder, log);
    refuse("/nowhere", log, "has no manifest.json: no model is saved there");
    refuse(folder, "/nowhere", "No such file");
    refuse(folder, "/dev/null", "is no file, which is read twice");
    put_text(other, "1\t1\t1\t1\n");
    refuse(folder, other, "read with a label: ");
    refuse(folder, other, "4 columns, must be 2");
    put_text(other, "28\t1\t1\n"); /* a row that is not there */
    refuse(folder, other, "must be a hexadecimal row below 40");
    FILE *file = fopen(in_folder("saved/rows.npy"), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 200, SEEK_SET), 0);
    fputc(0x5a, file), fputc(0x5a, file);
    fclose(file);
    refuse(folder, log, "rows.npy has checksum");
    assert_int_equal(unlink(in_folder("saved/rows.npy")), 0);
    refuse(folder, log, "rows.npy");
}

/* In the middle of a log a line that is no sample ends the scores, because all behind it would be shifted. */
static void test_malformed_line(void **state) {
    (void)state;
    char folder[64], log[64], text[] = "3\t1\n5\t2\n5\t1\t2\t2\n3\t3\n";
    dlrm_loaded *loaded;
    clicks_malformed malformed;
    scores to = {.n = 0};
    snprintf(folder, sizeof folder, "%s", in_folder("saved"));
    snprintf(log, sizeof log, "%s", put_log("log", 2, 1));
    train(2, "dlrm", folder, log);
    put_text(log, text);
    assert_works(dlrm_load(&loaded, folder, log, &error));
    dlrm_score_desc desc = dlrm_loaded_scores(loaded);
    desc.threads = 2, desc.stop = &never, desc.take = take, desc.taker = &to;
    assert_int_equal(dlrm_score(&desc, &malformed, &error), -1);
    assert_non_null(strstr(error.text, "line 3: 4 columns, must be 2"));
    dlrm_loaded_close(loaded);
}

int main(void) {
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_scores), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_malformed_line)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
