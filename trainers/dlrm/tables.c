/* Opening tables in memory or in files. */
#include "trainers/dlrm/tables.h"
#include "trainers/common/training.h"
#include "frugal_save.h"
#include "src/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DLRM_LONGEST_PATH = 4096 };

uint32_t dlrm_most_keys(const clicks *log) {
    return clicks_has_bags(log) ? clicks_most_ids(log) : clicks_features(log);
}

int dlrm_tables_check(const dlrm_settings *settings, const clicks *log, program_error *error) {
    uint32_t most = dlrm_most_keys(log);
    uint64_t keys = (uint64_t)settings->common.batch * settings->common.devices * most;
    double rows = 0;
    for (uint32_t i = 0; i < settings->model.features; i++) rows += (double)clicks_rows(log, i);
    if (keys > FRUGAL_MAX_KEYS)
        return program_fail(error,
                            "%u devices, %u samples each and %u %s make %llu keys a step; the limit is %d; "
                            "use a smaller --batch%s",
                            settings->common.devices, settings->common.batch, most,
                            clicks_has_bags(log) ? "ids a sample" : "features", (unsigned long long)keys,
                            FRUGAL_MAX_KEYS, clicks_has_bags(log) ? ", or --most-ids" : "");
    for (uint32_t d = 0; d < settings->common.devices && clicks_has_bags(log); d++)
        if (settings->common.gpu[d])
            return program_fail(error,
                                "features with several ids a sample are pooled on host cores only, and --device gives "
                                "device %u a GPU; leave it out, or give each feature one id",
                                d);
    if (rows > FRUGAL_MAX_ROWS)
        return program_fail(error, "%u features have %.0f rows in all; the limit is %.0f; use fewer --rows",
                            settings->model.features, rows, (double)FRUGAL_MAX_ROWS);
    return 0;
}

/* The name of the file with the instance's tables, if they lie in a file. */
static int dlrm_table_file(const dlrm_settings *settings, uint32_t instance, char file[DLRM_LONGEST_PATH],
                           program_error *error) {
    int n = snprintf(file, DLRM_LONGEST_PATH, "%s%s", settings->table_file, instance ? ".linear" : "");
    if (n < DLRM_LONGEST_PATH) return 0;
    return program_fail(error, "the name of the tables' file has %d bytes; the limit is %d", n, DLRM_LONGEST_PATH - 1);
}

/* `look`: opens the existing file only to look at it: it is not restored, and refused if it is torn, so that it stays
 * as it is. */
static int dlrm_tables_open_one(const dlrm_tables *t, uint32_t instance, int look, program_error *error) {
    const dlrm_settings *settings = t->settings;
    uint32_t features = settings->model.features, restores = settings->saved && !look;
    char file[DLRM_LONGEST_PATH];
    if (settings->table_file && dlrm_table_file(settings, instance, file, error)) return -1;
    frugal_table *tables = calloc(features, sizeof *tables);
    if (!tables) return program_fail(error, "out of memory");
    float init = instance == 0 ? settings->common.init : 0; /* a linear model may begin with zeros */
    for (uint32_t i = 0; i < features; i++)
        tables[i] = (frugal_table){.rows = clicks_rows(t->log, i),
                                   .init = init > 0 ? FRUGAL_INIT_UNIFORM : FRUGAL_INIT_ZERO,
                                   .low = -init,
                                   .high = init};
    frugal_desc desc = {
        .tables = tables,
        .n_tables = features,
        .dim = instance == 0 ? settings->model.dim : 1,
        .devices = settings->common.devices,
        .max_keys = settings->common.batch * dlrm_most_keys(t->log),
        .lookahead = settings->common.lookahead,
        .shared_workers = t->workers,
        .mode = settings->common.mode,
        .alone = settings->common.alone,
        .rows_as = settings->common.rows_as,
        .rounding = settings->common.rounding,
        .name = look ? NULL : t->name[instance],
        .seed = settings->common.seed,
        .notice = training_notice,
        .saved = restores ? &settings->saved : NULL,
        .n_saved = restores,
        .saved_part = restores ? instance : 0,
        .first_step = look ? 0 : t->step,
        .optimizer = {.kind = settings->common.optimizer,
                      .weight_decay = settings->common.weight_decay,
                      .initial_accumulator = settings->common.optimizer == FRUGAL_SGD ? 0 : settings->accumulator}};
    if (settings->table_file)
        desc.file = file, desc.sparse = settings->table_file_sparse,
        desc.take_torn = settings->table_file_torn && !look;
    ranks_rows rows = {.homes = settings->placing ? settings->placing->homes.of : NULL};
    for (uint32_t i = 0; i < features; i++) rows.ids += tables[i].rows;
    if (!look && ranks_deal(&t->dealing[instance], settings->common.deal, &rows, error)) {
        free(tables);
        return -1;
    }
    desc.machines = ranks_machines(&t->dealing[instance]);
    frugal_status status = frugal_open(&desc, &t->frugal[instance]);
    free(tables);
    if (!status) return 0;
    if (!settings->table_file) return training_fail("cannot open the embedding tables", error);
    int torn = strstr(frugal_message(), "is torn") != NULL;
    if (look && torn && (settings->saved || settings->table_file_torn)) return 0;
    return training_fail(
        torn ? "cannot open --table-file (--table-file-torn takes it as it is)" : "cannot open --table-file", error);
}

/* The next step of the clean table in this file. 0: the file is not a clean table. */
static int dlrm_table_step(const char *file, uint64_t *step) {
    table_header header;
    FILE *stream = fopen(file, "rbe");
    int clean = stream && fread(&header, sizeof header, 1, stream) == 1 && header.use == TABLE_CLEAN &&
                !memcmp(header.magic, SAVED_MAGIC, SAVED_MAGIC_BYTES);
    if (stream) fclose(stream);
    if (clean) *step = header.step;
    return clean;
}

/* Are all parts of the save of Frugal's next step? */
static int dlrm_check_saved(const dlrm_tables *t, program_error *error) {
    uint64_t wanted = t->step;
    for (uint32_t i = 0; i < t->instances; i++) {
        frugal_saved saved;
        if (frugal_read_saved(t->settings->saved, i, &saved))
            return training_fail("cannot open the embedding tables", error);
        if (saved.step != wanted)
            return program_fail(error,
                                "the save cannot be used: part %u is of step %llu, and the state beside it of step "
                                "%llu: %.300s",
                                i, (unsigned long long)saved.step, (unsigned long long)wanted, t->settings->saved);
    }
    return 0;
}

/* Before the first file is restored or taken: can all be? If only one could, one file would be of the checkpoint, and
 * the other as it was. Two files that are used as they are must be of the same step. */
static int dlrm_tables_look(const dlrm_tables *t, program_error *error) {
    const dlrm_settings *settings = t->settings;
    char file[DLRM_LONGEST_PATH];
    uint64_t step[DLRM_INSTANCES] = {0};
    uint32_t known = 0;
    if (settings->saved && dlrm_check_saved(t, error)) return -1;
    for (uint32_t i = 0; settings->table_file && i < t->instances; i++) {
        struct stat is;
        if (dlrm_table_file(settings, i, file, error)) return -1;
        t->made[i] = stat(file, &is) != 0;
        if (t->made[i] || !is.st_size) continue; /* there is nothing to look at */
        int status = dlrm_tables_open_one(t, i, 1, error);
        frugal_close(t->frugal[i]);
        t->frugal[i] = NULL;
        if (status) return -1;
        known += (uint32_t)dlrm_table_step(file, &step[i]);
    }
    if (settings->saved || known < 2 || step[0] == step[1]) return 0;
    return program_fail(error,
                        "--table-file %.200s is of step %llu, and %.200s of step %llu: they are of two trainings; "
                        "restore them with --resume, or give another name",
                        settings->table_file, (unsigned long long)step[0], file, (unsigned long long)step[1]);
}

int dlrm_tables_open(const dlrm_tables *t, program_error *error) {
    if (dlrm_tables_look(t, error)) return -1;
    for (uint32_t i = 0; i < t->instances; i++)
        if (dlrm_tables_open_one(t, i, 0, error)) return -1;
    return 0;
}

void dlrm_tables_remove(frugal *const frugal[DLRM_INSTANCES], const int made[DLRM_INSTANCES]) {
    for (uint32_t i = 0; i < DLRM_INSTANCES; i++) {
        const frugal_desc *settings = frugal_settings(frugal[i]);
        if (settings && made[i]) unlink(settings->file);
    }
}
