/* frugal_serve.h - tables that are only read: lookups from any number of threads, while newer versions are taken over.
 * C11, public domain or MIT. A program that serves trained tables includes it; a trainer does not need it.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      const char *files[] = {"monday", "tuesday", "wednesday"};          a save and its increments (frugal_save.h)
 *      frugal_server *s;
 *      frugal_serve_open(&(frugal_serve_desc){.from = {.saved = files, .n_saved = 2}}, &s);
 *
 *      frugal_keys keys = {.table = 0, .keys = numbers, .n = 26 * 128};
 *      frugal_serve_lookup(s, &keys, 1, rows, NULL);                      any thread, at any time
 *
 *      frugal_serve_refresh(s, &(frugal_served){.saved = files, .n_saved = 3});   another thread, once wednesday exists
 *      frugal_serve_close(s);
 *
 * A server has no steps, gates, workers or locks, no word for each row, and no optimizer state. Lookups are given keys,
 * and do not wait for other threads.
 *
 * VERSIONS. A version is the table of one step. All rows of a lookup are of one version, and the next lookup of that
 * thread uses the same version, or one that was taken over later. frugal_serve_refresh makes a new version beside the
 * old one. When the new one is complete, lookups that begin then use it. When the last lookup of the old version has
 * returned, its memory is freed.
 *
 * TYPES. Weights of 16 bits (frugal_desc.rows_as) are served as they were saved, and take half the memory. Lookups
 * return floats: widening is exact. Bags are pooled in floats.
 *
 * MEMORY. Saves are read into memory: the weights, laid out as in a trainer's table. The saves of the first version are
 * the *first list*. A version whose list begins with the whole first list, and may have further saves, shares its
 * pages, except those with rows that the further saves have changed (Linux). It takes the memory of what has changed
 * since the first list; until the old version is freed, both exist. A version of any other list, also of a shorter one,
 * takes a whole table beside the old one, and its list is then the first list. A table in a file (frugal_desc.file) is
 * mapped, and nothing is read ahead: all processes that serve it share the system's pages, and its file is locked
 * against trainers, not against other servers.
 *
 * THREADING. Lookups and frugal_serve_get_info: any threads. frugal_serve_refresh: one thread at a time; other threads
 * go on with lookups. frugal_serve_close: no other call may be under way. A forked child may look up in the version
 * that the server had at the fork, as long as the parent keeps that version. In the child, frugal_serve_refresh returns
 * PROCESS, and frugal_serve_close does nothing.
 *
 * Limits and errors are those of frugal.h. A call that does not return FRUGAL_OK has changed nothing; frugal_message
 * says why it failed.
 */
#ifndef FRUGAL_SERVE_H
#define FRUGAL_SERVE_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frugal_server frugal_server;

typedef struct frugal_served { /* where a version comes from: saves, or a file */
    const char *const *saved;  /* saved[n_saved]: a base, then its increments in order */
    uint32_t n_saved;
    uint32_t part;    /* the instance, of a save of several; not used with `file` */
    const char *file; /* a table's file, clean (its trainer has closed it) */
} frugal_served;

typedef struct frugal_serve_desc {
    frugal_served from;
    uint32_t threads; /* that read saves, at open and refresh; 0: one for each processor; more work as 16 */
} frugal_serve_desc;

/* Opens a server with a first version. *out is NULL on failure. Errors: ARGUMENT (neither saves nor a file, or both),
 * FILE (as frugal_open; also a file that is torn or in use by a trainer), MEMORY. */
FRUGAL_API frugal_status frugal_serve_open(const frugal_serve_desc *desc, frugal_server **out);
/* Frees everything. NULL is accepted. */
FRUGAL_API void frugal_serve_close(frugal_server *server);

/* Copies the rows of segments[n_segments] as floats, one segment after the other, to rows[n][dim]. *step (may be NULL):
 * the step of the version. Errors: ARGUMENT, TABLE, KEY. */
FRUGAL_API frugal_status frugal_serve_lookup(frugal_server *server, const frugal_keys *segments, uint32_t n_segments,
                                             float *rows, uint64_t *step);
/* The same, pooled as by frugal_lookup_bags, to the same bits: pooled[n_bags][dim], bags->stride floats apart. Errors:
 * also MEMORY (more than 4,096 keys need 4 bytes each), LIMIT (2^32 keys). */
FRUGAL_API frugal_status frugal_serve_bags(frugal_server *server, const frugal_keys *segments, uint32_t n_segments,
                                           const frugal_bags *bags, float *pooled, uint64_t *step);

/* Takes over a newer version, or an older one. It must have the same layout: number of tables, their rows, dim, type.
 * Saves whose rows are in memory already are not read again. Returns when all lookups of the old version have returned.
 * The calling thread does work; give it a low priority where lookups need all processors. Errors: as frugal_serve_open;
 * FILE (another layout). */
FRUGAL_API frugal_status frugal_serve_refresh(frugal_server *server, const frugal_served *from);

typedef struct frugal_serve_info {
    uint64_t rows;      /* of all tables */
    uint64_t step;      /* of the version that lookups see now: the next step to train */
    uint64_t versions;  /* how many there have been */
    uint64_t own_bytes; /* memory that this version, when it was made, shared with no version and no other process */
    uint32_t n_tables, dim;
    frugal_type rows_as; /* what weights are stored as, in saves or the file as in memory */
} frugal_serve_info;
FRUGAL_API frugal_status frugal_serve_get_info(frugal_server *server, frugal_serve_info *out);
/* Rows of a table; 0: there is no such table. */
FRUGAL_API uint64_t frugal_serve_rows(frugal_server *server, uint32_t table);

/* The memory of the version that lookups see, to be read in place. Rows are numbered through all tables, one table
 * after the other; row r is at weights + r stride. The memory stays as it is until it is released; a refresh that takes
 * over another version meanwhile returns only then. */
typedef struct frugal_served_memory {
    const void *weights; /* of this type */
    frugal_type rows_as;
    uint64_t stride, step, version; /* stride: weights from row to row; versions are counted from 1 */
    /* The memory that versions of one base share: a file that can be mapped, and where rows begin in it. -1: there is
     * none; read all rows from `weights`. */
    int file;
    uint64_t file_at, file_bytes;
    uint64_t file_number; /* while it stays the same, the file is the same */
    /* changed[(rows + 63) / 64]: one bit a row, 1: it differs from the row in the file; NULL: none does */
    const uint64_t *changed;
    uint32_t held; /* the library's */
} frugal_served_memory;
FRUGAL_API frugal_status frugal_serve_hold(frugal_server *server, frugal_served_memory *out);
/* NULL is accepted, and does nothing. */
FRUGAL_API void frugal_serve_release(frugal_server *server, const frugal_served_memory *memory);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_SERVE_H */
