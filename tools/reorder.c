/* reorder - rewrites a graph or a click log so that its rows are numbered by frequency, the most frequent first. Rows
 * that are touched often then lie together, and a step on host cores is faster.
 *
 *     reorder --data FB15k-237 --out sorted            then: kge --data sorted
 *     reorder --data day.gz --ids hash --rows 1e6 --out sorted
 *                          then: dlrm --data sorted/log.csv --schema sorted/log.schema --ids given
 *
 * `reorder --help` says more. Here: the command line. In tools/reorder: order (the map), work, triples, clicks. It
 * reads what build/place reads (tools/place/data.h).
 */
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "tools/reorder/reorder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reorder_options {
    clicks_options data;
    const char *out;
    int help;
} reorder_options;

static reorder_options given;

static const char reorder_about[] =
    "usage: reorder --data PATH --out DIR   [options]\n"
    "\n"
    "Rewrites a graph or a click log so that rows are numbered by frequency, the most frequent first; samples stay in\n"
    "their order.\n"
    "\n";
static const char reorder_notes[] =
    "\n"
    "A folder of triples, OpenKE's or plain, becomes OpenKE's: entity2id.txt, relation2id.txt, train2id.txt and so "
    "on,\n"
    "which kge reads. entity_map.npy and relation_map.npy, uint32, have the old id of each new one; the old ids of "
    "plain\n"
    "names are those that kge gives them. Only training triples count.\n"
    "A click log of any format that dlrm reads becomes log.csv and log.schema, which dlrm reads with --ids given: ids "
    "are\n"
    "rows in order of frequency, in a table a feature; numbers are as the schema of --data passes them on. map.npy,\n"
    "uint32, has the old row in its table of each new one, the tables one after the other. A file as --test becomes\n"
    "test.csv. Held-out samples do not count. gzip the files if you like.\n"
    "Old rows of trained ones: numpy.argsort of a map, of a log's map table by table. Memory: names, or 24 bytes a "
    "row.\n"
    "What is read is not changed. Exit status: 0 done; 1 failed or ended by Ctrl-C, and what is in --out is then a "
    "whole\n"
    "set, the old one or the new one; 2 wrong usage.\n";

static const clicks_options_words reorder_data = {
    .program = "reorder",
    .value = "PATH",
    .data = "a folder of triples, OpenKE's or plain, as kge reads it; or a click log, plain or gz, as dlrm reads it",
    .test =
        "of a click log, held-out samples, as dlrm has them: a share of --data, its last lines, or a file. They do not "
        "count"};

static const options_entry reorder_entries[] = {
    {"out", OPTIONS_TEXT, &given.out, .value = "DIR",
     .help = "where to. The set that is there stays until the new one is on disk"},
    {"help", OPTIONS_FLAG, &given.help, .help = "this"},
    {0},
};

static options_table reorder_table(void) {
    options_table table = {.program = "reorder", .about = reorder_about};
    given = (reorder_options){0};
    clicks_options_begin(0);
    clicks_options_add(&table, &reorder_data);
    options_add(&table, "results", reorder_entries);
    return table;
}

static int reorder_parse(reorder_options *options, int argc, char **argv, program_error *error) {
    options_table table = reorder_table();
    if (options_read(&table, OPTIONS_ALL, argc, argv, error)) return -1;
    *options = given;
    if (given.help) return 0;
    if (!options->out) return program_fail(error, "give --out DIR, where the rewritten data goes; see reorder --help");
    return place_data_take(&options->data, &reorder_data, error);
}

/* ---- What both kinds share ----------------------------------------------------------------------------- */

/* No result may be written to a file that is read. OpenKE's files have the names of those that are written; plain ones
 * have others. */
static int reorder_check_outputs(const reorder_work *work, const char *out, program_error *error) {
    static const char *const of_graphs[] = {"train2id.txt", "valid2id.txt", "test2id.txt", "entity2id.txt",
                                            "relation2id.txt"};
    static const char *const by[] = {"test", "schema"};
    const char *const files[] = {work->options->test, work->options->clicks.schema};
    int n_of_graph = work->data.triples && work->data.kge.folder.is.format == KGE_OPENKE ? 5 : 0;
    char path[MANIFEST_LONGEST_PATH], read[MANIFEST_LONGEST_PATH];
    for (int i = 0; i < work->n_names; i++) {
        if ((size_t)snprintf(path, sizeof path, "%s/%s", out, work->names[i]) >= sizeof path)
            return program_fail(error, "--out is a path of more than %d bytes; give a shorter one",
                                MANIFEST_LONGEST_PATH);
        for (int j = 0; j < 2; j++)
            if (file_is_same(path, files[j]))
                return program_fail(error, "--out %.200s would overwrite %.200s, the file of --%s; give another folder",
                                    out, files[j], by[j]);
        if (clicks_options_holds(work->options, path))
            return program_fail(error, "--out %.200s would overwrite %.200s, a file of --data; give another folder",
                                out, clicks_options_holds(work->options, path));
        for (int j = 0; j < n_of_graph; j++)
            if ((size_t)snprintf(read, sizeof read, "%s/%s", work->options->path, of_graphs[j]) < sizeof read &&
                file_is_same(path, read))
                return program_fail(error, "--out %.200s would overwrite %.200s, a file of --data; give another folder",
                                    out, read);
    }
    return 0;
}

static int reorder_run(reorder_work *work, const reorder_options *options, program_error *error) {
    save_set *probe; /* an unwritable folder is found before the reading, which may take long */
    if (save_begin(&probe, options->out, "reorder", NULL, 0, error)) return -1;
    save_end(probe);
    if (place_data_open(&work->data, work->options, error)) return -1;
    if (work->data.triples)
        reorder_triples_names(work);
    else
        reorder_clicks_names(work);
    if (reorder_check_outputs(work, options->out, error)) return -1;
    if (save_begin(&work->set, options->out, "reorder", work->names, work->n_names, error)) return -1;
    program_catch_signals();
    work->started = program_now();
    int status = work->data.triples ? reorder_triples(work, error) : reorder_clicks(work, error);
    save_origin origin = {.model = work->data.triples ? "triples" : "clicks"};
    progress_end(&work->line);
    if (save_finish(work->set, &origin, status, error)) return -1;
    save_tell(work->set);
    return 0;
}

static int reorder_help(void) {
    program_error error;
    options_table table = reorder_table();
    options_help(&table);
    fputs(reorder_notes, stdout);
    int status = program_flush(stdout, "the help", &error);
    if (status) fprintf(stderr, "reorder: %s\n", error.text);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    reorder_options options;
    program_error error;
    program_open_streams();
    if (reorder_parse(&options, argc, argv, &error)) {
        fprintf(stderr, "reorder: %s\n", error.text);
        return 2;
    }
    if (options.help) return reorder_help();
    static reorder_work work;
    work = (reorder_work){.options = &options.data, .line = progress_begin(-1)};
    int status = reorder_run(&work, &options, &error);
    save_end(work.set);
    place_data_close(&work.data);
    if (status) fprintf(stderr, "reorder: %s\n", error.text);
    return status ? 1 : 0;
}
