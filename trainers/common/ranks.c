/* Ranks that agree, and how rows are dealt over them. */
#include "trainers/common/ranks_wire.h"
#include "trainers/common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_PATIENCE = 10 }; /* seconds that one that has failed waits for the others */

static struct {
    uint32_t number, all, started; /* started: the number of ranks also while this one is alone */
    int is_open, failed;           /* failed: all know that one has, and why: */
    program_error why;
    int said; /* where a rank that is not heard can say its last word; 0: stderr */
    atomic_int signal;
} ranks = {.all = 1, .started = 1};

uint32_t ranks_number(void) {
    return ranks.number;
}

uint32_t ranks_all(void) {
    return ranks.all;
}

uint32_t ranks_devices(uint32_t devices) {
    return devices / ranks.all;
}

uint32_t ranks_first(uint32_t devices) {
    return ranks.number * ranks_devices(devices);
}

void ranks_be_alone(int alone) {
    ranks.all = alone ? 1 : ranks.started;
}

int ranks_signal(void) {
    return atomic_load(&ranks.signal);
}

int ranks_open(program_error *error) {
    int status = ranks_wire_begin(&ranks.number, &ranks.all, error);
    ranks.started = ranks.all;
    ranks.is_open = 1;
    if (ranks.all > 1) program_signals_to(&ranks.signal);
    if (ranks.number == 0) return status;
    ranks.said = fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        return program_fail(error, "cannot open /dev/null: %s", strerror(errno));
    return status;
}

void ranks_close(void) {
    if (ranks.is_open) ranks_wire_end();
    ranks.is_open = 0;
}

/* ---- Agreeing ------------------------------------------------------------------------------------------ */

typedef struct ranks_word {
    int status, signal;
    program_error error;
    unsigned char what[RANKS_SHARED];
} ranks_word;

/* Does the error only follow from that of another rank? */
static int ranks_follows(const program_error *error) {
    return strstr(error->text, "FRUGAL_ERR_LOST") || strstr(error->text, "FRUGAL_STOPPED");
}

/* The first that has failed by itself; or the first that has failed. *error says so on all. */
static int ranks_judge(const ranks_word *all, program_error *error) {
    const ranks_word *failed = NULL;
    for (uint32_t i = 0; i < ranks.all; i++)
        if (all[i].status && (!failed || (ranks_follows(&failed->error) && !ranks_follows(&all[i].error))))
            failed = &all[i];
    if (!failed) return 0;
    if (failed == all) return *error = failed->error, -1;
    program_fail(error, "machine %u: %.480s", (uint32_t)(failed - all), failed->error.text);
    error->damaged = failed->error.damaged;
    return -1;
}

/* -1: one has failed, with *error. */
static int ranks_meet(int status, void *what, size_t bytes, program_error *error) {
    if (ranks.failed) return *error = ranks.why, -1;
    ranks_word *mine = calloc(1, sizeof *mine), *all = calloc(ranks.all, sizeof *all);
    if (!mine || !all) { /* the others wait for this one, so that it must not go on */
        free(mine), free(all);
        fprintf(stderr, "out of memory\n");
        ranks_wire_abort(1);
        return -1;
    }
    mine->status = status, mine->signal = ranks_signal();
    if (status) mine->error = *error;
    if (bytes) memcpy(mine->what, what, bytes);
    if (ranks_wire_gather(mine, sizeof *mine, all, status ? RANKS_PATIENCE : INFINITY)) {
        dprintf(ranks.said ? ranks.said : 2, "machine %u: %s\n", ranks.number, error->text);
        ranks_wire_abort(1);
    }
    for (uint32_t i = 0; i < ranks.all; i++)
        if (all[i].signal) program_signalled = all[i].signal;
    if (bytes) memcpy(what, all[0].what, bytes);
    status = ranks_judge(all, error);
    free(mine);
    free(all);
    return status;
}

int ranks_share(int status, void *what, size_t bytes, program_error *error) {
    if (ranks.all == 1) return status;
    status = ranks_meet(status, what, bytes, error);
    if (status) ranks.failed = 1, ranks.why = *error;
    return status;
}

int ranks_try(int status, program_error *error) {
    return ranks.all == 1 ? status : ranks_meet(status, NULL, 0, error);
}

int ranks_agree(int status, program_error *error) {
    return ranks_share(status, NULL, 0, error);
}

int ranks_end(int status, program_error *error) {
    return ranks.failed ? status : ranks_agree(status, error);
}

/* ---- Dealing ------------------------------------------------------------------------------------------- */

/* The numbers of a .npy file of bytes, one dimension, as build/place and NumPy write it; *n of them. To be freed; NULL
 * with *error filled. */
static uint8_t *ranks_read_bytes(const char *path, uint64_t *n, program_error *error) {
    npy_array array;
    program_error why;
    uint8_t *bytes = NULL;
    int status = npy_open(&array, path, &why);
    if (status)
        program_fail(error, "--deal: %.480s", why.text);
    else if (array.dimensions != 1 || strcmp(array.type + 1, "u1") || array.n > FRUGAL_MAX_ROWS)
        program_fail(error, "--deal %.300s has no uint8, one number a row; build/place --machines writes such a file",
                     path);
    else if (!(bytes = malloc(array.n + 1)) || fread(bytes, 1, array.n, array.stream) != array.n) {
        program_fail(error, "--deal %.300s: out of memory, or it cannot be read", path);
        free(bytes);
        bytes = NULL;
    }
    *n = array.n;
    if (array.stream) fclose(array.stream);
    return bytes;
}

static int ranks_read_homes(ranks_dealing *d, const char *path, const ranks_rows *rows, program_error *error) {
    uint64_t n, most = 0, ids = rows->ids, twins = rows->twins;
    uint8_t *homes = ranks_read_bytes(path, &n, error);
    if (!homes) return -1;
    for (uint64_t i = 0; i < n; i++)
        if (homes[i] > most) most = homes[i];
    if (n == ids - twins && twins) {
        uint8_t *larger = realloc(homes, ids);
        if (!larger) return free(homes), program_fail(error, "--deal %.300s: out of memory", path);
        homes = larger, n = ids;
        memcpy(homes + ids - twins, homes + ids - 2 * twins, twins);
    }
    d->homes = homes;
    if (most >= ranks.all)
        return program_fail(error, "--deal %.300s deals rows to machine %llu, and there are %u, from 0", path,
                            (unsigned long long)most, ranks.all);
    if (n == ids) return 0;
    return program_fail(error, "--deal %.300s has %llu rows, and the tables have %llu; make it of this data", path,
                        (unsigned long long)n, (unsigned long long)ids);
}

int ranks_deal(ranks_dealing *d, const char *deal, const ranks_rows *rows, program_error *error) {
    if (ranks.all == 1) return 0;
    const char *word = deal ? deal : rows->homes ? "" : "cyclic";
    d->machines = (frugal_machines){.wire = &d->wire, .deal = FRUGAL_DEAL_LISTED};
    if (!strcmp(word, "cyclic"))
        d->machines.deal = FRUGAL_DEAL_CYCLIC;
    else if (!strcmp(word, "blocks"))
        d->machines.deal = FRUGAL_DEAL_BLOCKS;
    else if (deal && ranks_read_homes(d, deal, rows, error))
        return -1;
    else
        d->machines.homes = deal ? d->homes : rows->homes;
    if (ranks_wire_open(&d->wire, error)) return -1;
    d->opened = 1;
    return 0;
}

const frugal_machines *ranks_machines(const ranks_dealing *d) {
    return d->opened ? &d->machines : NULL;
}

void ranks_deal_close(ranks_dealing *d) {
    if (d->opened && !program_has_failed()) ranks_wire_close(&d->wire); /* else the others may not come */
    free(d->homes);
    *d = (ranks_dealing){.opened = 0};
}
