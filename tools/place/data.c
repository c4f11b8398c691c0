/* Opening the data, so that the samples are those that the trainers deal. */
#include "tools/place/data.h"
#include "trainers/clicks/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int place_holds(const char *folder, const char *name) {
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && !access(path, F_OK);
}

int place_data_is_folder(const clicks_options *options) {
    if (!clicks_is_folder(options->path)) return 0;
    int triples = place_holds(options->path, "train2id.txt") || place_holds(options->path, "train.txt");
    return triples || !clicks_options_of_log();
}

int place_data_take(clicks_options *options, const clicks_options_words *words, program_error *error) {
    const char *of_log = clicks_options_of_log();
    *options = clicks_options_read();
    if (options->generate || !place_data_is_folder(options)) return clicks_options_take(options, words, error);
    if (options->clicks.files[1])
        return program_fail(error, "--data %.200s is a folder of triples, and --data %.200s is given, too; give one",
                            options->path, options->clicks.files[1]);
    if (!of_log) return 0;
    return program_fail(error, "--%s is of click logs, and --data %.200s is a folder of triples; leave it out", of_log,
                        options->path);
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

static int place_open_triples(place_data *data, const clicks_options *options, program_error *error) {
    if (kge_source_open(&data->kge, options->path, error)) return -1;
    data->triples = 1;
    fprintf(stderr,
            "%" PRIu32 " entities and %" PRIu32 " relations are %" PRIu64 " rows; %" PRIu64 " triples to train on\n",
            data->kge.folder.entities.n, data->kge.folder.relations.n, data->kge.rows, data->kge.triples[KGE_TRAIN]);
    return 0;
}

/* The samples [0, *end) are those that dlrm trains on. */
static int place_split(const place_data *data, const clicks_options *options, uint64_t *end, program_error *error) {
    uint64_t samples, held_out;
    *end = UINT64_MAX;
    if (!(options->test_share > 0)) return 0;
    if (clicks_count(data->log, NULL, &samples, NULL, error)) return -1;
    if (clicks_options_hold_out(options, samples, &held_out, error)) return -1;
    *end = samples - held_out;
    return 0;
}

static int place_open_log(place_data *data, const clicks_options *options, program_error *error) {
    clicks_settings clicks = options->clicks;
    struct stat is;
    uint64_t end;
    for (const char *const *file = clicks.files; file && *file; file++)
        if (!stat(*file, &is) && !S_ISREG(is.st_mode))
            return program_fail(error, "--data %.200s is no file that can be read several times; write it to one",
                                *file);
    if (options->guess && clicks_guess(options->path, &clicks.format, error)) return -1;
    if (clicks_open(&data->log, &clicks, error) || place_split(data, options, &end, error)) return -1;
    if (clicks.ids == CLICKS_VOCABULARY) fprintf(stderr, "making vocabularies\n");
    if (clicks_prepare(data->log, NULL, end, error)) return -1;
    if (clicks_source_open(&data->clicks, data->log, NULL, 0, end, error)) return -1;
    fprintf(stderr, "%" PRIu32 " features of %" PRIu64 " rows in all", clicks_features(data->log), data->clicks.rows);
    if (end != UINT64_MAX) fprintf(stderr, "; %" PRIu64 " samples to train on", end);
    fputc('\n', stderr);
    return 0;
}

int place_data_open(place_data *data, const clicks_options *options, program_error *error) {
    *data = (place_data){0};
    int status =
        place_data_is_folder(options) ? place_open_triples(data, options, error) : place_open_log(data, options, error);
    if (status) place_data_close(data);
    return status;
}

void place_data_close(place_data *data) {
    if (data->triples) kge_source_close(&data->kge);
    if (data->clicks.log) clicks_source_close(&data->clicks);
    clicks_close(data->log);
    *data = (place_data){0};
}

partition_source place_data_source(place_data *data) {
    return data->triples ? kge_source_of(&data->kge) : clicks_source_of(&data->clicks);
}

uint64_t place_data_rows(const place_data *data) {
    return data->triples ? data->kge.rows : data->clicks.rows;
}

void place_data_tell_malformed(const place_data *data, const char *path) {
    const clicks_malformed *malformed = &data->clicks.malformed;
    if (data->triples || !malformed->lines) return;
    fprintf(stderr, "%s: skipped %" PRIu64 " malformed line%s%s\n", path, malformed->lines,
            malformed->lines == 1 ? "" : "s", malformed->lines > CLICKS_TOLD ? ", of which the first are" : "");
    for (uint64_t i = 0; i < malformed->lines && i < CLICKS_TOLD; i++) fprintf(stderr, "  %s\n", malformed->what[i]);
}
