/* Schemas that are made from a log's first lines, as text; and logs of which none can be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/clicks/make.h"
#include "tests/unit/trainers/folder.h"

static program_error error;
static clicks_made_schema made;

static int make_folder(void **state) {
    (void)state;
    return folder_make("test_clicks_make");
}

/* A log of a first line, and 120 lines that `put` writes. */
static void put_lines(const char *first, void (*put)(FILE *file, int line)) {
    FILE *file = fopen(in_folder("log"), "w");
    assert_non_null(file);
    fputs(first, file);
    for (int i = 0; i < 120; i++) put(file, i);
    assert_int_equal(fclose(file), 0);
}

/* What is made is this text, and is read as that. */
static void expect_schema(const char *wanted) {
    clicks_schema schema, again;
    char *text = NULL;
    size_t n = 0;
    if (clicks_make_schema(&schema, in_folder("log"), &made, &error)) fail_msg("%s", error.text);
    FILE *stream = open_memstream(&text, &n);
    assert_non_null(stream);
    clicks_schema_write(&schema, stream);
    fclose(stream);
    assert_string_equal(text, wanted);
    if (clicks_schema_parse(&again, "made", text, n, &error)) fail_msg("%s", error.text);
    assert_int_equal(again.n_numbers, schema.n_numbers);
    assert_int_equal(again.n_features, schema.n_features);
    clicks_schema_free(&again);
    clicks_schema_free(&schema);
    free(text);
}

static void put_mixed(FILE *file, int i) { /* an index, a name in quotes, gaps, a constant, ids of all kinds */
    fprintf(file, "%d\t%d\t%s\t%d\t%.2f\t%d\t%x\t7\r\n", i, i % 3 == 0, i % 5 ? "blue" : "NA", i * i, i / 8.0, i % 12,
            i * 65537);
}

static void test_mixed(void **state) {
    (void)state;
    put_lines("id\tclick\tcolour\tviews\tprice\thour\tad_id\tsame\r\n", put_mixed);
    expect_schema("separator \"\t\"\nheader yes\nquotes no\nmissing \"NA\"\n"
                  "skip \"id\"\nlabel \"click\" one \"1\" zero \"0\"\nskip \"colour\"\nnumber \"views\" log\n"
                  "number \"price\" scale 7.438 4.33\nid \"hour\"\nid \"ad_id\"\nskip \"same\"\n");
    assert_int_equal(made.lines, 120);
    assert_int_equal(made.label, 1);
    assert_true(made.sure);
}

static void put_rated(FILE *file, int i) { /* a label of five values, as floats; names in another case */
    fprintf(file, "%d;%d;%d.0\n", i % 40, i * 7 % 90, i % 5 + 1);
}

static void test_rated(void **state) {
    (void)state;
    put_lines("userId;movieId;Rating\n", put_rated);
    expect_schema("separator \";\"\nheader yes\nquotes yes\nid \"userId\"\nid \"movieId\"\n"
                  "label \"Rating\" one \"4.0\" \"5.0\" zero \"1.0\" \"2.0\" \"3.0\"\n");
}

static void put_texts(FILE *file, int i) { /* no names; a label of texts, the rarer is 1 */
    fprintf(file, "%d, %s, \"a, %d\", %s\n", i % 2, i % 7 ? "x" : "y", i % 20, i % 4 ? "<=50K" : ">50K");
}

static void test_texts(void **state) {
    (void)state;
    put_lines("", put_texts);
    expect_schema("separator \",\"\nheader no\nquotes yes\nlabel \"column1\" one \"1\" zero \"0\"\nid \"column2\"\n"
                  "id \"column3\"\nid \"column4\"\n");
    assert_false(made.sure);
    put_lines("x,colour,what,income\n", put_texts);
    expect_schema("separator \",\"\nheader yes\nquotes yes\nid \"x\"\nid \"colour\"\nid \"what\"\n"
                  "label \"income\" one \">50K\" zero \"<=50K\"\n");
}

static void put_truths(FILE *file, int i) { /* as pandas writes them; the rarer is 0 */
    fprintf(file, "%s,%d,%d\n", i % 4 ? "True" : "False", i % 3, i % 5);
}

static void test_truths(void **state) {
    (void)state;
    put_lines("clicked,a,b\n", put_truths);
    expect_schema("separator \",\"\nheader yes\nquotes yes\nlabel \"clicked\" one \"True\" zero \"False\"\n"
                  "id \"a\"\nid \"b\"\n");
}

static void put_whole(FILE *file, int i) {
    fprintf(file, "%d|%d|%.1f\n", -(i % 2) - 1, i / 2 + 1000, i * .5 - 20);
}

static void put_reals(FILE *file, int i) {
    fprintf(file, "%d|%.3f|%.1f\n", i % 2, i * i * .001, i * .5 - 20);
}

/* A model needs ids. */
static void test_no_ids(void **state) {
    (void)state;
    put_lines("y|n|x\n", put_whole);
    expect_schema("separator \"|\"\nheader yes\nquotes yes\nlabel \"y\" one \"-1\" zero \"-2\"\nid \"n\"\n"
                  "number \"x\" scale 9.75 17.32\n");
    put_lines("y|n|x\n", put_reals);
    expect_schema("separator \"|\"\nheader yes\nquotes yes\nlabel \"y\" one \"1\" zero \"0\"\n"
                  "number \"n\" scale 4.74 4.26 bucket 2.13\nnumber \"x\" scale 9.75 17.32 bucket 8.66\n");
}

static void put_ones(FILE *file, int i) {
    fprintf(file, "1,%d,%d\n", i % 3, i % 5);
}

/* The other label is the one that is likely. */
static void test_one_label(void **state) {
    (void)state;
    put_lines("label,a,b\n", put_ones);
    expect_schema(
        "separator \",\"\nheader yes\nquotes yes\nlabel \"label\" one \"1\" zero \"0\"\nid \"a\"\nid \"b\"\n");
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", "has no line of text; wanted: a line that names the columns, and samples"},
        {"\n\n", "has no line of text"},
        {"a,b,label\n1,2\n", "has no line of as many columns as its first one"},
        {"1::2::5::978300760\n", "has :: between its columns, and one character separates them: write tabs"},
        {"a b c\n", "has 1 column with commas, tabs, semicolons or bars, must have 3 to 4096"},
        {",label,a\n0,1,2\n", "column 1 has no name (an index that pandas writes? index=False)"},
        {"label,a,a\n0,1,2\n", "columns 2 and 3 are both 'a'"},
        {"label,\"a\"\"b\",c\n0,1,2\n", "the name of column 2 has a quote"},
        {"label,a123456789012345678901234567890123456789012345678901234567890123,c\n0,1,2\n",
         "the name of column 2, 'a1234567890123456789...', has more than 63 bytes"},
        {"label,b,c\n\"x \"\"y\"\"\",1,2\n0,2,3\n", "the label 'x \"y\"' has a quote in it"},
        {"label,\"a,c\n0,1,2\n", "a quote of the first line does not end its field"},
        {"a,b,c\n1,2,3\n4,5,6\n7,8,9\n", "which is the label? A training needs one"},
        {"label,b,c\n1,2,3\n0,2,3\n", "has no column beside the label that says anything"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks_schema schema;
        put_text(in_folder("log"), cases[i].text);
        assert_int_equal(clicks_make_schema(&schema, in_folder("log"), &made, &error), -1);
        if (!strstr(error.text, cases[i].wanted)) fail_msg("the message lacks '%s': %s", cases[i].wanted, error.text);
    }
    clicks_schema schema;
    assert_int_equal(clicks_make_schema(&schema, in_folder("none"), &made, &error), -1);
    assert_non_null(strstr(error.text, "No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),   cmocka_unit_test(test_rated),  cmocka_unit_test(test_texts),
        cmocka_unit_test(test_truths),  cmocka_unit_test(test_no_ids), cmocka_unit_test(test_one_label),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
