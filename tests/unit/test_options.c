/* test_options.c - the table of options: every kind into its place, its limits, what is said of what is refused, the two
 * passes. (How the table of kge reads anything at all: tests/fuzz/fuzz_options.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "examples/common/options.h"

typedef struct values {
    uint32_t whole32, keyed32;
    uint64_t whole64, keyed64;
    double real, keyed_real;
    float small, keyed_small;
    int choice, keyed_choice, flag, made, whole_given, key_given;
    const char *text;
    char letters[8];
} values;

#define AT(field) offsetof(values, field)

static const char *const words[] = {"red", "green", NULL};

/* A reader of a program's own. */
static int read_letters(void *place, const char *name, const char *text, program_error *error) {
    if (strlen(text) > 7) return program_fail(error, "--%s is '%s', must be up to 7 letters", name, text);
    strcpy(place, text);
    return 0;
}

static const options_entry keys[] = {
    {"rows", OPTIONS_WHOLE32, .at = AT(keyed32), .whole = {1, 9}, .given = AT(key_given)},
    {"seed", OPTIONS_WHOLE64, .at = AT(keyed64), .whole = {0, UINT64_MAX}},
    {"zipf", OPTIONS_REAL, .at = AT(keyed_real), .real = {0, 2}},
    {"noise", OPTIONS_FLOAT, .at = AT(keyed_small), .real = {-1, 1}},
    {"colour", OPTIONS_CHOICE, .at = AT(keyed_choice), .choices = words},
};
static const options_entry entries[] = {
    {"whole32", OPTIONS_WHOLE32, .at = AT(whole32), .whole = {2, UINT32_MAX}, .given = AT(whole_given)},
    {"whole64", OPTIONS_WHOLE64, .at = AT(whole64), .whole = {0, UINT64_MAX}},
    {"real", OPTIONS_REAL, .at = AT(real), .real = {-0.5, 1e9}},
    {"small", OPTIONS_FLOAT, .at = AT(small), .real = {0, 1}},
    {"colour", OPTIONS_CHOICE, .at = AT(choice), .choices = words, .first = 1},
    {"text", OPTIONS_TEXT, .at = AT(text)},
    {"letters", OPTIONS_READ, .at = AT(letters), .read = read_letters},
    {"make", OPTIONS_SPEC, .at = AT(made), .keys = keys, .n_keys = 5, .example = "rows=3,zipf=1", .first = 1},
    {"flag", OPTIONS_FLAG, .at = AT(flag)},
};
static const options_table table = {"try", entries, sizeof entries / sizeof *entries};

/* Reads arguments that are separated by blanks. */
static int read_line(options_pass pass, const char *line, values *v, program_error *error) {
    static char copy[1024];
    char *argv[64] = {"try"}, *rest = copy;
    int argc = 1;
    assert_true(strlen(line) < sizeof copy);
    strcpy(copy, line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) argv[argc++] = word;
    return options_read(&table, pass, argc, argv, v, error);
}

static values accepted(options_pass pass, const char *line) {
    values v = {.whole32 = 77, .choice = -1};
    program_error error = {""};
    if (read_line(pass, line, &v, &error)) fail_msg("%s: %s", line, error.text);
    return v;
}

static void refused(const char *line, const char *message) {
    values v = {0};
    program_error error = {""};
    if (!read_line(OPTIONS_ALL, line, &v, &error)) fail_msg("%s: accepted", line);
    assert_string_equal(error.text, message);
}

static void test_every_kind(void **state) {
    (void)state;
    values v = accepted(OPTIONS_ALL, "--whole32 4294967295 --whole64=18446744073709551615 --real -0.5 --small .25 "
                                     "--colour green --text=--flag --letters abc --flag");
    assert_true(v.whole32 == UINT32_MAX && v.whole_given && v.whole64 == UINT64_MAX);
    assert_true(v.real == -0.5 && v.small == 0.25f && v.choice == 1 && v.flag == 1 && !v.made);
    assert_string_equal(v.text, "--flag");
    assert_string_equal(v.letters, "abc");
    v = accepted(OPTIONS_ALL, "--colour red --colour green --co red --fl"); /* cut short; the last counts */
    assert_true(v.choice == 0 && v.flag == 1);
    v = accepted(OPTIONS_ALL, "");
    assert_true(v.whole32 == 77 && !v.whole_given && v.choice == -1 && !v.flag && !v.text); /* as it was */
}

static void test_specs(void **state) {
    (void)state;
    values v = accepted(OPTIONS_ALL, "--make rows=9,seed=18446744073709551615,zipf=1.5,noise=-.5,colour=green --flag");
    assert_true(v.made && v.keyed32 == 9 && v.key_given && v.keyed64 == UINT64_MAX && v.keyed_real == 1.5);
    assert_true(v.keyed_small == -0.5f && v.keyed_choice == 1 && v.flag && v.choice == -1);
    v = accepted(OPTIONS_ALL, "--make --flag"); /* what begins with a dash is no spec */
    assert_true(v.made && v.flag && !v.key_given);
    v = accepted(OPTIONS_ALL, "--make=rows=1 --make seed=2,seed=3 --make");
    assert_true(v.made && v.keyed32 == 1 && v.keyed64 == 3);
    refused("--make rows", "--make has 'rows', must be like rows=3,zipf=1");
    refused("--make rows=1,", "--make has '', must be like rows=3,zipf=1");
    refused("--make columns=1", "--make knows rows, seed, zipf, noise and colour, not 'columns'");
    refused("--make row=1", "--make knows rows, seed, zipf, noise and colour, not 'row'");
    refused("--make rows=10", "--make rows is '10', must be a whole number from 1 to 9");
    refused("--make zipf=2.5", "--make zipf is '2.5', must be a number from 0 to 2");
    refused("--make colour=blue", "--make colour is 'blue', must be one of: red, green");
    char line[300] = "--make ";
    memset(line + 7, 'a', 256);
    refused(line, "--make takes at most 255 characters");
}

static void test_refused(void **state) {
    (void)state;
    refused("--whole32 1", "--whole32 is '1', must be a whole number from 2 to 4294967295");
    refused("--whole32 4294967296", "--whole32 is '4294967296', must be a whole number from 2 to 4294967295");
    refused("--whole64 18446744073709551616",
            "--whole64 is '18446744073709551616', must be a whole number from 0 to 18446744073709551615");
    refused("--whole64 -1", "--whole64 is '-1', must be a whole number from 0 to 18446744073709551615");
    refused("--whole64 +1", "--whole64 is '+1', must be a whole number from 0 to 18446744073709551615");
    refused("--whole32=", "--whole32 is '', must be a whole number from 2 to 4294967295");
    refused("--real nan", "--real is 'nan', must be a number from -0.5 to 1e+09");
    refused("--real 1x", "--real is '1x', must be a number from -0.5 to 1e+09");
    refused("--small -1", "--small is '-1', must be a number from 0 to 1");
    refused("--colour blue", "--colour is 'blue', must be one of: red, green");
    refused("--letters abcdefgh", "--letters is 'abcdefgh', must be up to 7 letters");
    refused("--text", "option --text needs a value; see try --help");
    refused("--flag=1", "unknown or ambiguous option --flag=1; see try --help");
    refused("--whole 3", "unknown or ambiguous option --whole; see try --help");
    refused("-x", "unknown or ambiguous option -x; see try --help");
    refused("--flag word --whole32 1", "'word' is no option; see try --help");
}

static void test_first_pass(void **state) {
    (void)state;
    values v =
        accepted(OPTIONS_FIRST, "--flag --whole32 wrong --colour green --letters abcdefgh --make rows=2 --text x");
    assert_true(v.choice == 1 && v.made && v.keyed32 == 2);
    assert_true(!v.flag && v.whole32 == 77 && !v.whole_given && !v.text && !*v.letters); /* passed over */
    v = accepted(OPTIONS_FIRST, "--text --colour --colour red");                         /* a value is no option */
    assert_true(v.choice == 0);
}

static void expect_places(const char *text, const char *cuda_program, uint32_t n, int first, int last) {
    uint8_t gpu[OPTIONS_MOST_PLACES];
    uint32_t listed = 0;
    program_error error;
    memset(gpu, 99, sizeof gpu);
    if (options_places("device", text, cuda_program, gpu, &listed, &error)) fail_msg("%s: %s", text, error.text);
    assert_int_equal(listed, n);
    assert_true(gpu[0] == first && gpu[n - 1] == last);
    for (uint32_t i = n; i < OPTIONS_MOST_PLACES; i++) assert_int_equal(gpu[i], 0);
}

static void refuse_places(const char *text, const char *cuda_program, const char *message) {
    uint8_t gpu[OPTIONS_MOST_PLACES];
    uint32_t listed = 5;
    program_error error;
    assert_int_equal(options_places("device", text, cuda_program, gpu, &listed, &error), -1);
    assert_string_equal(error.text, message);
    assert_int_equal(listed, 5);
}

static void test_places(void **state) {
    (void)state;
    static const char form[] = "must be a list of cpu and cuda:N (N: a GPU, 0 to 253)";
    char many[4 * 255 + 1], message[200];
    expect_places("cpu", "build/cuda/try", 1, 0, 0);
    expect_places("cpu,cuda:0,cuda:253", NULL, 3, 0, 254);
    expect_places("cuda:07,cuda:7,cpu,cuda:1", NULL, 4, 8, 2);
    for (int i = 0; i < 255; i++) memcpy(many + 4 * i, "cpu,", 4);
    many[4 * 254 - 1] = 0;
    expect_places(many, NULL, 254, 0, 0);
    many[4 * 254 - 1] = ',', many[4 * 255 - 1] = 0;
    refuse_places(many, NULL, "--device lists too many devices, must be from 1 to 254");
    refuse_places("cuda:1", "build/cuda/try",
                  "--device has 'cuda:1', but this build has no CUDA; use build/cuda/try (`ninja cuda`)");
    static const char *const wrong[] = {"", "gpu", "CPU", "cuda", "cuda:", "cuda:x", "cuda:254", "cuda:-1", "cpu "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(message, sizeof message, "--device has '%s', %s", wrong[i], form);
        refuse_places(wrong[i], NULL, message);
    }
    snprintf(message, sizeof message, "--device has '', %s", form);
    refuse_places("cpu,", NULL, message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind), cmocka_unit_test(test_specs),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_first_pass), cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests_name("test_options", tests, NULL, NULL);
}
