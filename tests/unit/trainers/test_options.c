/* test_options.c - the table of options: every kind is written to its place, limits, messages of refusals, the two
 * passes, lists, --help; the places of --device. (tests/fuzz/fuzz_options.c gives kge's table random arguments.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/common/settings.h"

typedef struct values {
    uint32_t whole32, keyed32;
    uint64_t whole64, keyed64;
    double real, keyed_real;
    float small, keyed_small;
    int choice, keyed_choice, flag, made, whole_given, key_given;
    options_list wholes, reals, choices;
    const char *text;
    options_texts files;
    char letters[8];
} values;

static values given;

static const char *const words[] = {"red", "green", NULL};

/* A reader of a program's own. */
static int read_letters(void *to, const char *name, const char *text, program_error *error) {
    if (strlen(text) > 7) return program_fail(error, "--%s is '%s', must be up to 7 letters", name, text);
    strcpy(to, text);
    return 0;
}

static const options_entry keys[] = {
    {"rows", OPTIONS_WHOLE32, &given.keyed32, 1, 9, .given = &given.key_given},
    {"seed", OPTIONS_WHOLE64, &given.keyed64, 0, 0x1p64},
    {"zipf", OPTIONS_REAL, &given.keyed_real, 0, 2},
    {"noise", OPTIONS_FLOAT, &given.keyed_small, -1, 1},
    {"colour", OPTIONS_CHOICE, &given.keyed_choice, .choices = words},
    {0},
};
static const options_entry entries[] = {
    {"whole32", OPTIONS_WHOLE32, &given.whole32, 2, UINT32_MAX, .given = &given.whole_given, .help = "as many"},
    {"whole64", OPTIONS_WHOLE64, &given.whole64, 0, 0x1p64},
    {"real", OPTIONS_REAL, &given.real, -0.5, 1e9, .standard = ""},
    {"small", OPTIONS_FLOAT, &given.small, 0, 1, .value = "SHARE", .help = "a share"},
    {"colour", OPTIONS_CHOICE, &given.choice, .choices = words, .first = 1, .help = "what it looks like"},
    {"text", OPTIONS_TEXT, &given.text, .help = "where it is read from"},
    {"file", OPTIONS_TEXTS, &given.files, .help = "what else"},
    {"letters", OPTIONS_READ, &given.letters, .read = read_letters, .value = "WORD", .standard = "none of them"},
    {0},
};
static const options_entry more[] = {
    {"wholes", OPTIONS_WHOLES, &given.wholes, 1, 1e6,
     .help = "so many of the words that explain this option that they do not stand on one line of the terminal"},
    {"reals", OPTIONS_REALS, &given.reals, 0, 1},
    {"paints", OPTIONS_CHOICES, &given.choices, .choices = words},
    {"make", OPTIONS_SPEC, &given.made, .keys = keys, .example = "rows=3,zipf=1", .first = 1, .help = "made up"},
    {"flag", OPTIONS_FLAG, &given.flag, .help = "this"},
    {0},
};

static options_table table_of_try(void) {
    options_table table = {.program = "try", .about = "usage: try\n"};
    options_add(&table, "colours", entries);
    options_add(&table, NULL, more);
    return table;
}

/* Reads arguments that are separated by blanks. */
static int read_line(options_pass pass, const char *line, program_error *error) {
    static char copy[1024];
    char *argv[64] = {"try"}, *rest = copy;
    int argc = 1;
    options_table table = table_of_try();
    assert_true(strlen(line) < sizeof copy);
    strcpy(copy, line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) argv[argc++] = word;
    return options_read(&table, pass, argc, argv, error);
}

static values accepted(options_pass pass, const char *line) {
    program_error error = {.text = ""};
    given = (values){.whole32 = 77, .choice = -1, .wholes = {{5}, 1}};
    if (read_line(pass, line, &error)) fail_msg("%s: %s", line, error.text);
    return given;
}

static void refused(const char *line, const char *message) {
    program_error error = {.text = ""};
    given = (values){0};
    if (!read_line(OPTIONS_ALL, line, &error)) fail_msg("%s: accepted", line);
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
    v = accepted(OPTIONS_ALL, "--real -0 --small -0");
    assert_true(v.real == 0 && !signbit(v.real) && v.small == 0 && !signbit(v.small));
    v = accepted(OPTIONS_ALL, "--co red --fl --flag"); /* cut short; a flag has no value that could be lost */
    assert_true(v.choice == 0 && v.flag == 1);
    v = accepted(OPTIONS_ALL, "");
    assert_true(v.whole32 == 77 && !v.whole_given && v.choice == -1 && !v.flag && !v.text); /* as it was */
}

static void test_whole_numbers(void **state) {
    (void)state;
    assert_true(accepted(OPTIONS_ALL, "--whole64 1e6").whole64 == 1000000);
    assert_true(accepted(OPTIONS_ALL, "--whole64 2.5e3").whole64 == 2500);
    assert_true(accepted(OPTIONS_ALL, "--whole64 9007199254740991.0").whole64 == (UINT64_C(1) << 53) - 1);
    assert_true(accepted(OPTIONS_ALL, "--whole64 0007").whole64 == 7);
    static const char *const wrong[] = {"1.5", "1e", "1e-1", ".5e1", "0x10", "1e400", "1e17", "9007199254740992.0",
                                        " 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *argv[] = {"try", "--whole64", (char *)wrong[i], NULL};
        options_table table = table_of_try();
        program_error error;
        assert_int_equal(options_read(&table, OPTIONS_ALL, 3, argv, &error), -1);
    }
}

static void test_lists(void **state) {
    (void)state;
    values v = accepted(OPTIONS_ALL, "--wholes 1,1e6,30 --reals=0.5 --paints green,red,green");
    assert_true(v.wholes.n == 3 && v.wholes.values[0] == 1 && v.wholes.values[1] == 1e6 && v.wholes.values[2] == 30);
    assert_true(v.reals.n == 1 && v.reals.values[0] == 0.5);
    assert_true(v.choices.n == 3 && v.choices.values[0] == 1 && v.choices.values[1] == 0 && v.choices.values[2] == 1);
    v = accepted(OPTIONS_ALL, "");
    assert_true(v.wholes.n == 1 && v.wholes.values[0] == 5 && v.reals.n == 0);
    refused("--wholes 1,0", "--wholes is '0', must be a whole number from 1 to 1000000, or a list of up to 32 with "
                            "commas");
    refused("--wholes 1,,2", "--wholes is '', must be a whole number from 1 to 1000000, or a list of up to 32 with "
                             "commas");
    refused("--reals 2", "--reals is '2', must be a number from 0 to 1, or a list of up to 32 with commas");
    refused("--paints blue", "--paints is 'blue', must be one of: red, green, or a list of up to 32 with commas");
    refused("--whole32 1,2", "--whole32 is '1,2', must be a whole number from 2 to 4294967295");
    char line[100] = "--wholes 1";
    for (int i = 0; i < 32; i++) {
        assert_int_equal(accepted(OPTIONS_ALL, line).wholes.n, i + 1);
        strcat(line, ",1");
    }
    refused(line, "--wholes lists too many values; the limit is 32");
}

/* What options_help prints to stdout. */
static const char *help_of(const options_table *table) {
    static char said[2000];
    FILE *file = tmpfile();
    int out = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_true(file && out >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    options_help(table);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    return said;
}

/* Each option with its value, its words, its help and what its place holds. */
static void test_help(void **state) {
    (void)state;
    options_table table = table_of_try();
    accepted(OPTIONS_ALL, "--small 0.02 --colour green --wholes 1,1000000 --reals 0.25");
    assert_string_equal(help_of(&table),
                        "usage: try\n"
                        "colours\n"
                        "  --whole32 N         as many [77]\n"
                        "  --whole64 N         [0]\n"
                        "  --real X\n"
                        "  --small SHARE       a share [0.02]\n"
                        "  --colour NAME       red, green: what it looks like [green]\n"
                        "  --text FILE         where it is read from\n"
                        "  --file FILE         what else\n"
                        "  --letters WORD      [none of them]\n"
                        "  --wholes N,...      so many of the words that explain this option that they do not stand "
                        "on one line of the\n"
                        "                      terminal [1,1000000]\n"
                        "  --reals X,...       [0.25]\n"
                        "  --paints NAME,...   red, green\n"
                        "  --make [SPEC]       made up\n"
                        "  --flag              this\n");
}

/* What matters comes first, in its own order, and not again; a heading with nothing below it is left out. */
static void test_help_first(void **state) {
    (void)state;
    static const char *const matters[] = {"flag", "b", "a", NULL};
    static const options_entry first[] = {{"a", OPTIONS_FLAG}, {"b", OPTIONS_FLAG}, {0}};
    static const options_entry second[] = {{"c", OPTIONS_FLAG}, {"flag", OPTIONS_FLAG, .help = "this"}, {0}};
    static const options_entry third[] = {{"d", OPTIONS_FLAG}, {0}};
    options_table table = {.program = "try", .about = "usage: try\n", .matters = matters};
    options_add(&table, "colours", first);
    options_add(&table, "sizes", second);
    options_add(&table, NULL, third);
    assert_string_equal(help_of(&table), "usage: try\nwhat matters first\n  --flag              this\n  --b\n  --a\n"
                                         "\nsizes\n  --c\n  --d\n");
}

static void test_specs(void **state) {
    (void)state;
    values v = accepted(OPTIONS_ALL, "--make rows=9,seed=18446744073709551615,zipf=1.5,noise=-.5,colour=green --flag");
    assert_true(v.made && v.keyed32 == 9 && v.key_given && v.keyed64 == UINT64_MAX && v.keyed_real == 1.5);
    assert_true(v.keyed_small == -0.5f && v.keyed_choice == 1 && v.flag && v.choice == -1);
    v = accepted(OPTIONS_ALL, "--make --flag"); /* what begins with a dash is no spec */
    assert_true(v.made && v.flag && !v.key_given);
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

/* What takes one value is given once, whatever its kind and however it is written; also in the pass before. */
static void test_given_twice(void **state) {
    (void)state;
    refused("--whole32 2 --real 1 --whole3=3", "--whole32 is given twice, as '2' and as '3'; give it once");
    refused("--whole64 2 --whole64 2", "--whole64 is given twice, as '2' and as '2'; give it once");
    refused("--colour red --colour green", "--colour is given twice, as 'red' and as 'green'; give it once");
    refused("--text a --text=b", "--text is given twice, as 'a' and as 'b'; give it once");
    refused("--letters a --letters b", "--letters is given twice, as 'a' and as 'b'; give it once");
    refused("--wholes 1 --wholes 2,3", "--wholes is given twice, as '1' and as '2,3'; give it once");
    refused("--make rows=1 --make", "--make is given twice, as 'rows=1' and as ''; give it once");
    refused("--make seed=2,rows=1,seed=3", "--make seed is given twice, as '2' and as '3'; give it once");
    program_error error;
    assert_int_equal(read_line(OPTIONS_FIRST, "--colour red --colour green", &error), -1);
    char line[400] = "--text ", wanted[200];
    memset(line + 7, 'x', 100);
    strcat(line, "1 --text ");
    memset(line + strlen(line), 'x', 100);
    strcat(line, "2");
    snprintf(wanted, sizeof wanted, "--text is given twice, as '...%.20s1' and as '...%.20s2'; give it once", line + 7,
             line + 7);
    refused(line, wanted); /* what is shown differs */
}

static void test_several_texts(void **state) {
    (void)state;
    values v = accepted(OPTIONS_ALL, "--file a --flag --file=b --fil a");
    assert_int_equal(v.files.n, 3);
    assert_string_equal(v.files.at[0], "a");
    assert_string_equal(v.files.at[1], "b");
    assert_string_equal(v.files.at[2], "a");
    assert_null(v.files.at[3]);
    assert_null(accepted(OPTIONS_ALL, "").files.at[0]);
    given = (values){.files = {.n = OPTIONS_MOST_TEXTS}};
    program_error error;
    assert_int_equal(read_line(OPTIONS_ALL, "--file a", &error), -1);
    assert_string_equal(error.text, "--file is given more than 1024 times; give it less often");
}

/* Two texts are never shown alike, wherever they differ. */
static void test_shown_apart(void **state) {
    (void)state;
    char a[300], b[300], shown[2][PROGRAM_SHOWN];
    for (size_t at = 0; at < 299; at++) {
        memset(a, 'x', sizeof a);
        memset(b, 'x', sizeof b);
        b[at] = 'y';
        program_show_both(a, 299, b, 299, shown);
        assert_string_not_equal(shown[0], shown[1]);
        program_show_both(a, 299, a, at, shown); /* one ends before */
        assert_string_not_equal(shown[0], shown[1]);
    }
    program_show_both("12", 2, "13", 2, shown);
    assert_string_equal(shown[0], "12");
    assert_string_equal(shown[1], "13");
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

/* --device of a program that trains, with its --devices. */
static int read_places(const char *text, const char *devices, training_settings *settings, program_error *error) {
    training_options options;
    training_outputs outputs = {0};
    options_table table = {.program = "try", .about = ""};
    char *argv[] = {"try", "--device", (char *)text, "--devices", (char *)devices, NULL};
    training_options_of(&options, settings, &outputs, "build/cuda/try");
    options_add(&table, NULL, options.frugal);
    if (options_read(&table, OPTIONS_ALL, devices ? 5 : 3, argv, error)) return -1;
    return training_options_check(&options, error);
}

static void refuse_places(const char *text, const char *devices, const char *message) {
    training_settings settings = {.devices = 5};
    program_error error;
    assert_int_equal(read_places(text, devices, &settings, &error), -1);
    assert_string_equal(error.text, message);
}

static const char form[] = "must be a list of cpu and cuda:N (N: a GPU, 0 to 253)";

static void test_places(void **state) {
    (void)state;
    training_settings settings = {.devices = 5};
    program_error error;
    char many[4 * 255 + 1], message[200];
    for (int i = 0; i < 255; i++) memcpy(many + 4 * i, "cpu,", 4);
    many[4 * 254 - 1] = 0;
    assert_int_equal(read_places(many, NULL, &settings, &error), 0);
    assert_int_equal(settings.devices, 254);
    many[4 * 254 - 1] = ',', many[4 * 255 - 1] = 0;
    refuse_places(many, NULL, "--device lists too many devices, must be from 1 to 254");
    refuse_places("cpu,cpu", "3", "--devices is 3, but --device lists 2; give one of them");
    assert_int_equal(read_places("cpu,cpu", "2", &settings, &error), 0);
    static const char *const wrong[] = {"", "gpu", "CPU", "cuda", "cuda:", "cuda:x", "cuda:254", "cuda:-1", "cpu "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(message, sizeof message, "--device has '%s', %s", wrong[i], form);
        refuse_places(wrong[i], NULL, message);
    }
    snprintf(message, sizeof message, "--device has '', %s", form);
    refuse_places("cpu,", NULL, message);
}

/* --place auto:N is of machines that have as many of the devices each. */
static void test_dealt_for(void **state) {
    (void)state;
    static const struct {
        const char *place, *message;
        uint32_t machines;
    } given[] = {{NULL, NULL, 0},
                 {"parts.u8", NULL, 0},
                 {"automatic", NULL, 0},
                 {"./auto:2", NULL, 0},
                 {"auto", NULL, 1},
                 {"auto:1", NULL, 1},
                 {"auto:3", NULL, 3},
                 {"auto:4", "--place auto:4 deals for machines with as many devices each, and there are 6", 0},
                 {"auto:", "--place auto:N is ''", 0},
                 {"auto:0", "--place auto:N is '0'", 0},
                 {"auto:2x", "--place auto:N is '2x'", 0},
                 {"auto:255", "--place auto:N is '255'", 0}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        training_options options;
        training_settings settings = {.devices = 6, .place = given[i].place};
        training_outputs outputs = {TRAINING_OUTPUTS};
        program_error error = {.text = ""};
        training_options_of(&options, &settings, &outputs, "build/cuda/try");
        assert_int_equal(training_options_check(&options, &error), given[i].message ? -1 : 0);
        if (given[i].message)
            assert_int_equal(strncmp(error.text, given[i].message, strlen(given[i].message)), 0);
        else
            assert_int_equal(training_dealt_for(given[i].place), given[i].machines);
    }
}

/* --checkpoint-every of a program that trains; `folder` is --checkpoint's, or NULL. */
static int read_interval(const char *text, const char *folder, training_interval *every, program_error *error) {
    training_options options;
    training_settings settings = {.devices = 1};
    training_outputs outputs = {TRAINING_OUTPUTS};
    options_table table = {.program = "try", .about = ""};
    char *argv[] = {"try", "--checkpoint-every", (char *)text, "--checkpoint", (char *)folder, NULL};
    training_options_of(&options, &settings, &outputs, "build/cuda/try");
    options_add(&table, NULL, options.checkpoints);
    if (options_read(&table, OPTIONS_ALL, folder ? 5 : 3, argv, error)) return -1;
    *every = outputs.checkpoint_every;
    return training_options_check(&options, error);
}

static void test_intervals(void **state) {
    (void)state;
    static const char *const wrong[] = {"", "s", "0", "0s", "-1s", "1e10s", "5x", "1ss", "s1", "1 s", "nans", "1.5"};
    training_interval every;
    program_error error;
    assert_int_equal(read_interval("1e3", "a", &every, &error), 0);
    assert_true(every.steps == 1000 && every.seconds <= 0);
    assert_int_equal(read_interval("1.5s", "a", &every, &error), 0);
    assert_true(every.steps == 0 && every.seconds > 1.4 && every.seconds < 1.6);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (!read_interval(wrong[i], "a", &every, &error)) fail_msg("'%s' is taken", wrong[i]);
        if (!strstr(error.text, "--checkpoint-every is")) fail_msg("%s: %s", wrong[i], error.text);
    }
    assert_int_equal(read_interval("5", NULL, &every, &error), -1);
    assert_string_equal(error.text, "--checkpoint-every is of checkpoints, and none are made; give --checkpoint DIR");
}

static void expect_gpus(const char *text, uint32_t n, int first, int last) {
    training_settings settings = {.devices = 5};
    program_error error;
    memset(settings.gpu, 99, sizeof settings.gpu);
    if (read_places(text, NULL, &settings, &error)) fail_msg("%s: %s", text, error.text);
    assert_int_equal(settings.devices, n);
    assert_true(settings.gpu[0] == first && settings.gpu[n - 1] == last);
    for (uint32_t i = n; i < FRUGAL_MAX_DEVICES; i++) assert_int_equal(settings.gpu[i], 0);
}

/* Compiled with settings.c for CUDA, and without. */
static void test_gpus(void **state) {
    (void)state;
    expect_gpus("cpu", 1, 0, 0);
#ifdef TRAINING_CUDA
    expect_gpus("cpu,cuda:0,cuda:253", 3, 0, 254);
    expect_gpus("cuda:07,cuda:7,cpu,cuda:1", 4, 8, 2);
#else
    refuse_places("cuda:1", NULL,
                  "--device has 'cuda:1', but this build has no CUDA; use build/cuda/try (`ninja cuda`)");
#endif
}

/* In full alone, because there are several tables. */
static void test_has(void **state) {
    (void)state;
    char *argv[] = {"try", "--predict=log", "--make-schemas", "--mak", "predicts", NULL};
    assert_true(options_has(5, argv, "predict"));
    assert_false(options_has(5, argv, "make-schema") || options_has(5, argv, "predicts"));
    argv[3] = "--make-schema";
    assert_true(options_has(5, argv, "make-schema"));
    assert_false(options_has(3, argv, "make-schema"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),  cmocka_unit_test(test_specs),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_given_twice), cmocka_unit_test(test_several_texts), cmocka_unit_test(test_shown_apart),
        cmocka_unit_test(test_first_pass),  cmocka_unit_test(test_places),        cmocka_unit_test(test_dealt_for),
        cmocka_unit_test(test_gpus),        cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_lists),
        cmocka_unit_test(test_help),        cmocka_unit_test(test_intervals),     cmocka_unit_test(test_has),
        cmocka_unit_test(test_help_first),
    };
    return cmocka_run_group_tests_name("test_options", tests, NULL, NULL);
}
