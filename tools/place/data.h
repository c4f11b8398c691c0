/* What build/place and build/reorder read: the options that say where samples are, as kge and dlrm have them, and the
 * samples, a block at a time. */
#ifndef PLACE_DATA_H
#define PLACE_DATA_H

#include "examples/clicks/source.h"
#include "examples/common/options.h"
#include "examples/kge/source.h"

typedef struct place_data_options {
    const char *path; /* a folder of triples, or a click log; NULL: generated */
    int generate;
    int guess; /* the log's format is that of its first line */
    clicks_settings clicks;
    double test_share;
    const char *test; /* a file, which does not matter here */
} place_data_options;

/* The options of a click log's columns, of generated logs, and of how ids become rows. */
enum { PLACE_GENERATE = 1, PLACE_IDS = 2 };

/* Adds the section `data` to the table, with the parts that are asked for, and sets dlrm's defaults (those of a log
 * that it generates, if `generate`). Values are read into a place of data.c's. */
void place_data_add(options_table *table, unsigned parts, int generate);
/* After options_read: what was read, if the options fit each other; `program` is for messages. */
int place_data_check(place_data_options *options, const char *program, program_error *error);
/* Has --generate been read? */
int place_data_generates(void);
/* Is --data a folder of triples? Also where it does not exist. */
int place_data_is_folder(const place_data_options *options);

typedef struct place_data {
    int triples;
    kge_source kge;
    clicks *log;
    clicks_source clicks;
} place_data;

/* Counts what must be known first: names of a graph, held-out samples, vocabularies; tells stderr what there is. On
 * failure there is nothing to close. It must not move before it is closed. */
int place_data_open(place_data *data, const place_data_options *options, program_error *error);
void place_data_close(place_data *data);
partition_source place_data_source(place_data *data);
uint64_t place_data_rows(const place_data *data);
/* Lines of a log that were no samples, of the pass that came last; to stderr. */
void place_data_tell_malformed(const place_data *data, const char *path);

#endif
