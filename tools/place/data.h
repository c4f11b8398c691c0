/* What build/place and build/reorder read: triples, as kge has them, or a click log, as dlrm has it; a block of
 * samples at a time. */
#ifndef PLACE_DATA_H
#define PLACE_DATA_H

#include "trainers/clicks/options.h"
#include "trainers/clicks/source.h"
#include "trainers/kge/source.h"

/* After options_read: what was read, if it is a folder of triples and no option is of logs, or if the options of a log
 * fit each other. */
int place_data_take(clicks_options *options, const clicks_options_words *words, program_error *error);
/* Is --data a folder of triples? One without train2id.txt or train.txt has the files of a log, if an option is given
 * that is of logs alone. */
int place_data_is_folder(const clicks_options *options);

typedef struct place_data {
    int triples;
    kge_source kge;
    clicks *log;
    clicks_source clicks;
} place_data;

/* Counts what must be known first: names of a graph, held-out samples, vocabularies; tells stderr what there is. On
 * failure there is nothing to close. It must not move before it is closed. */
int place_data_open(place_data *data, const clicks_options *options, program_error *error);
void place_data_close(place_data *data);
partition_source place_data_source(place_data *data);
uint64_t place_data_rows(const place_data *data);
/* Lines of a log that were no samples, of the pass that came last; to stderr. */
void place_data_tell_malformed(const place_data *data, const char *path);

#endif
