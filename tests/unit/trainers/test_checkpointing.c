/* test_checkpointing.c - --checkpoint and --resume, as a program asks for them: which folders are taken and refused,
 * from which checkpoint a run goes on, when the next one is due, whose training it is, and the curve of evaluations.
 * (How checkpoints are written: test_checkpoint.c. Whole programs: test_resume.) */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/common/checkpointing.h"
#include "trainers/common/identity.h"
#include "folder.h"

static char a[80], b[80];
static program_error error;
static training_outputs outputs;

/* In the place of the C library's: a name that begins so stays. */
static const char *stays;
int rename(const char *from, const char *to) {
    if (!stays || strncmp(from, stays, strlen(stays)))
        return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EBUSY;
    return -1;
}

static int make_folder(void **state) {
    (void)state;
    if (folder_make("test_checkpointing")) return -1;
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    outputs = (training_outputs){TRAINING_OUTPUTS};
    return 0;
}

/* ---- Identity ------------------------------------------------------------------------------------------- */

static void differ(const char *made, const char *now, const char *message) {
    assert_int_equal(identity_check("ck", made, now, &error), -1);
    assert_non_null(strstr(error.text, message));
}

static void test_identity(void **state) {
    (void)state;
    char line[400];
    assert_int_equal(identity_check("ck", "", "", &error), 0);
    assert_int_equal(identity_check("ck", "--dim 8\ndata a b, c\n", "--dim 8\ndata a b, c\n", &error), 0);
    assert_int_equal(identity_check("ck", "--b 2\n--a 1\n", "--a 1\n--b 2\n", &error), 0);
    differ("--dim 8\n--lr 1\n", "--dim 16\n--lr 1\n", "ck is of a training with --dim 8, and this one has --dim 16");
    differ("--lr 1\n--lr-decay no\n", "--lr 1\n--lr-decay yes\n", "--lr-decay no, and this one has --lr-decay yes");
    differ("--dim 8\n", "--dim 80\n", "with --dim 8, and this one has --dim 80");
    differ("--dim 80\n", "--dim 8\n", "with --dim 80, and this one has --dim 8");
    differ("--dim 8\n--more x\n", "--dim 8\n", "with --more x, and this one has --more none");
    differ("--dim 8\n", "--dim 8\n--more x", "with --more none, and this one has --more x");
    differ("rubbish", "--dim 8\n", "is of a training with rubbish none");
    differ("data 30 entities, 20 relations, 1500 triples to train on, checksum 7bb1f09a\n",
           "data 30 entities, 20 relations, 1500 triples to train on, checksum 7b956b97\n",
           "on, checksum 7bb1f09a, and this one has data ...rain on, checksum 7b956b97, which");
    memset(line, 'x', sizeof line);
    memcpy(line, "--top ", 6);
    line[sizeof line - 1] = 0;
    differ(line, "--top 1\n", "resume with the same settings and data, or begin another training without --resume");
}

/* ---- The curve ------------------------------------------------------------------------------------------ */

static int is_same(double x, double y) {
    return isnan(x) ? isnan(y) : !memcmp(&x, &y, sizeof x);
}

static void test_curve(void **state) {
    (void)state;
    static const double values[] = {0.1, -0.0, 1e-310, 1e300, NAN, INFINITY, 1.0 / 3};
    enum { N = sizeof values / sizeof *values };
    progress_curve curve = {0}, read = {0};
    char *text = NULL;
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        assert_int_equal(progress_add(&curve, (uint64_t)1 << 9 * i, values[(i + 1) % 4], values[i], &error), 0);
    FILE *file = open_memstream(&text, &n);
    progress_write_curve(&curve, file);
    fclose(file);
    file = fmemopen(text, n, "r");
    assert_int_equal(progress_read_curve(&read, file, &error), 0);
    fclose(file);
    assert_true(read.n == N);
    for (size_t i = 0; i < N; i++) {
        const progress_moment *was = &curve.moments[i], *is = &read.moments[i];
        assert_true(was->step == is->step && is_same(was->seconds, is->seconds) && is_same(was->value, is->value));
    }
    static char wrong[] = "7 0x1p+0 0x1p+0\n8 x 1\n";
    file = fmemopen(wrong, strlen(wrong), "r");
    assert_int_equal(progress_read_curve(&read, file, &error), -1);
    fclose(file);
    free(text);
    progress_free(&curve);
    progress_free(&read);
}

/* ---- Folders -------------------------------------------------------------------------------------------- */

static int write_step(void *user, const char *path, program_error *why) {
    FILE *file = fopen(path, "w");
    if (!file) return program_fail(why, "cannot write");
    fprintf(file, "%llu\n", *(const unsigned long long *)user);
    return fclose(file) ? program_fail(why, "cannot write") : 0;
}

static int try_write(checkpointing *k, unsigned long long step) {
    const checkpoint_part parts[] = {{.name = "step", .self_checked = 1, .write = write_step, .user = &step}};
    progress_curve curve = {0};
    checkpointing_content content = {.identity = "--dim 8\n", .curve = &curve, .parts = parts, .n = 1};
    assert_int_equal(progress_add(&curve, step, 1, .5, &error), 0);
    int status = checkpointing_write(k, &(save_origin){"model", step}, &content, &error);
    progress_free(&curve);
    return status;
}

static void write_at(checkpointing *k, unsigned long long step) {
    if (try_write(k, step)) fail_msg("%s", error.text);
    assert_true(k->any && k->step == step && !checkpointing_is_due(k, step));
}

static void open_both(checkpointing *k, const char *checkpoint, const char *resume) {
    outputs.checkpoint = checkpoint, outputs.resume = resume;
    if (checkpointing_open(k, "try", &outputs, &error)) fail_msg("%s", error.text);
}

static void refuse_both(const char *checkpoint, const char *resume, const char *message) {
    checkpointing k;
    outputs.checkpoint = checkpoint, outputs.resume = resume;
    assert_int_equal(checkpointing_open(&k, "try", &outputs, &error), -1);
    if (!strstr(error.text, message)) fail_msg("%s", error.text);
    checkpointing_close(&k);
}

static void test_none(void **state) {
    (void)state;
    checkpointing k;
    open_both(&k, NULL, NULL);
    checkpointing_start(&k);
    assert_true(!k.path && !k.resumes && k.due <= 0);
    assert_true(!checkpointing_is_due(&k, 600) && checkpointing_until(&k, 0) == UINT64_MAX);
    checkpointing_close(&k);
}

static void test_folders(void **state) {
    (void)state;
    checkpointing k;
    refuse_both(NULL, a, "/a: No such file");
    assert_int_not_equal(access(a, F_OK), 0);
    refuse_both(b, a, "there is no checkpoint; to begin there, give --checkpoint");
    open_both(&k, a, a);
    assert_true(!k.resumes && !k.any);
    refuse_both(a, a, "is in use by try, process");
    write_at(&k, 5);
    write_at(&k, 12);
    checkpointing_close(&k);
    refuse_both(a, NULL, "holds 2 checkpoints, up to step 12");
    refuse_both(a, b, "there is no checkpoint");
    outputs.save = a;
    refuse_both(NULL, a, "would both lie in");
    outputs.save = NULL;
    open_both(&k, NULL, a); /* goes on in it */
    assert_true(k.resumes && k.any && k.step == 12 && !strcmp(k.path, a));
    write_at(&k, 13);
    checkpointing_close(&k);
    open_both(&k, b, a); /* and in another */
    assert_true(k.resumes && k.step == 13 && !strcmp(k.path, b));
    write_at(&k, 14);
    checkpointing_close(&k);
    refuse_both(b, a, "holds 1 checkpoints, up to step 14");
}

/* Who goes on in another folder keeps others from making checkpoints where it reads, and from removing them. */
static void test_reading(void **state) {
    (void)state;
    checkpointing k, another, writer;
    char c[80], lock[100];
    snprintf(c, sizeof c, "%s/c", folder);
    snprintf(lock, sizeof lock, "%s/.frugal-lock", a);
    open_both(&k, a, NULL);
    write_at(&k, 5);
    refuse_both(b, a, "is in use by try, process");
    assert_int_not_equal(access(b, F_OK), 0);
    checkpointing_close(&k);
    open_both(&k, b, a);
    open_both(&another, c, a); /* both read */
    refuse_both(NULL, a, "is in use by try, process");
    checkpointing_end_reading(&k);
    assert_int_equal(access(lock, F_OK), 0);
    refuse_both(NULL, a, "is in use by try, process");
    checkpointing_end_reading(&another);
    assert_int_not_equal(access(lock, F_OK), 0);
    open_both(&writer, NULL, a);
    checkpointing_close(&writer);
    write_at(&k, 6); /* its own stays locked */
    refuse_both(NULL, b, "is in use by try, process");
    checkpointing_close(&k);
    checkpointing_close(&another);
    assert_int_equal(access(a, F_OK), 0);
    assert_int_equal(access(b, F_OK), 0);
    assert_int_not_equal(access(c, F_OK), 0); /* nothing was made there */
}

/* An old one that cannot be removed: the caller is told, who knows whether a line of progress is open. */
static void test_warning(void **state) {
    (void)state;
    checkpointing k;
    char old[100];
    snprintf(old, sizeof old, "%s/step-00000001", a);
    outputs.keep = 1;
    open_both(&k, a, NULL);
    write_at(&k, 1);
    stays = old;
    assert_int_equal(try_write(&k, 2), 1);
    stays = NULL;
    assert_non_null(strstr(error.text, "the checkpoint is written, but"));
    assert_true(k.any && k.step == 2 && !checkpointing_is_due(&k, 2));
    write_at(&k, 3);
    assert_int_not_equal(access(old, F_OK), 0);
    checkpointing_close(&k);
}

static void test_older(void **state) {
    (void)state;
    checkpointing k;
    progress_curve curve = {0};
    program_error why = {.text = "its tables are damaged"};
    open_both(&k, a, NULL);
    for (unsigned long long step = 1; step <= 3; step++) write_at(&k, step);
    checkpointing_close(&k);
    open_both(&k, NULL, a);
    assert_int_equal(checkpointing_read(&k, "--dim 9\n", &curve, &error), -1);
    assert_non_null(strstr(error.text, "step-00000003 is of a training with --dim 8"));
    assert_true(checkpointing_read(&k, "--dim 8\n", &curve, &error) == 0 && curve.n == 1 && curve.moments[0].step == 3);
    progress_free(&curve);
    assert_int_equal(checkpointing_older(&k, &why), 1);
    assert_true(k.step == 2 && strstr(k.found.path, "/step-00000002"));
    char aside[120];
    snprintf(aside, sizeof aside, "%s/step-00000003.damaged-1/curve", a);
    assert_int_equal(access(aside, F_OK), 0);
    assert_true(checkpointing_read(&k, "--dim 8\n", &curve, &error) == 0 && curve.moments[0].step == 2);
    progress_free(&curve);
    assert_int_equal(checkpointing_older(&k, &why), 1);
    assert_int_equal(checkpointing_older(&k, &why), 0);
    assert_true(k.step == 1);
    checkpointing_close(&k);
}

/* ---- When ----------------------------------------------------------------------------------------------- */

static void test_steps(void **state) {
    (void)state;
    checkpointing k;
    outputs.checkpoint_every = (training_interval){.steps = 10};
    open_both(&k, a, NULL);
    checkpointing_start(&k);
    assert_true(k.due <= 0);
    assert_true(checkpointing_until(&k, 0) == 10 && checkpointing_until(&k, 9) == 10);
    assert_true(checkpointing_until(&k, 10) == 20 && checkpointing_until(&k, UINT64_MAX - 3) == UINT64_MAX);
    assert_false(checkpointing_is_due(&k, 0) || checkpointing_is_due(&k, 9));
    assert_true(checkpointing_is_due(&k, 10));
    write_at(&k, 10);
    assert_true(checkpointing_is_due(&k, 20) && !checkpointing_is_due(&k, 21));
    checkpointing_close(&k);
}

static void test_seconds(void **state) {
    (void)state;
    checkpointing k;
    outputs.checkpoint_every = (training_interval){.seconds = 1e6};
    open_both(&k, a, NULL);
    double before = program_now();
    checkpointing_start(&k);
    assert_true(k.due >= before + 1e6 && k.due <= program_now() + 1e6);
    assert_false(checkpointing_is_due(&k, 1));
    assert_true(checkpointing_until(&k, 1) == UINT64_MAX);
    k.due = before;
    assert_true(checkpointing_is_due(&k, 1) && !checkpointing_is_due(&k, 0));
    write_at(&k, 1);
    assert_true(k.due >= before + 1e6 && !checkpointing_is_due(&k, 2));
    checkpointing_close(&k);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_curve),
        TEST(test_none),
        TEST(test_folders),
        TEST(test_reading),
        TEST(test_warning),
        TEST(test_older),
        TEST(test_steps),
        TEST(test_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
