/* The manifest of a set of files that belong together, manifest.json: names, sizes and checksums, and what made them.
 *
 *     {
 *       "format": "frugal saved set, 1",
 *       "program": "kge",
 *       "version": "0.2.0",
 *       "model": "transe",
 *       "step": 600,
 *       "date": "2026-11-22T17:00:00Z",
 *       "files": [
 *         {"name": "entities.npy", "bytes": 19328, "crc32": "0a1b2c3d", "written": ".entities.npy.saving-f3x0k7"},
 *         ...
 *       ],
 *       "crc32": "89abcdef"
 *     }
 *
 * A set is published in two moves. Its files lie on disk under the names `written`; then the manifest is renamed, and
 * from that moment on the new set is the set; then the files get their names. So a set is whole whenever a process is
 * killed: a file whose checksum is wrong, because the next move did not come, lies under `written`. Who does not look
 * at `written` sees by the checksum that the file is none of this set. `written` is left out where it is the name,
 * "crc32" where a file has checksums of its own.
 *
 * The format of a checkpoint (checkpoint.h) is "frugal checkpoint, 1". Its manifest is read as a checkpoint's alone,
 * and that of a set as a set's: so neither is taken for the other, nor replaced or removed in its place.
 *
 * Checksums are CRC-32, zlib.crc32 in Python. The last one is that of all bytes of the manifest above its line.
 */
#ifndef MANIFEST_H
#define MANIFEST_H

#include "examples/common/program.h"

#define MANIFEST_NAME "manifest.json"
enum { MANIFEST_FILES = 16, MANIFEST_TEXT = 64, MANIFEST_LONGEST_PATH = 4096 };

typedef struct manifest_file {
    char name[MANIFEST_TEXT];
    char *written; /* relative to the folder, or from the root on; NULL: its name */
    uint64_t bytes;
    uint32_t crc32;
    int self_checked; /* its reader verifies checksums of its own: the manifest has none, and checks the size alone */
} manifest_file;

typedef enum manifest_kind { MANIFEST_SET, MANIFEST_CHECKPOINT } manifest_kind;

typedef struct manifest {
    manifest_kind kind;
    char program[MANIFEST_TEXT], version[MANIFEST_TEXT], model[MANIFEST_TEXT], date[MANIFEST_TEXT];
    uint64_t step;
    uint32_t n;
    manifest_file files[MANIFEST_FILES];
} manifest;

/* The date is set: it is now. Returns the bytes, to be freed; NULL: no memory. */
char *manifest_text(manifest *m);
/* A set's. 1: read; 0: there is none; -1: error: none of ours, or damaged. To be freed in any case. */
int manifest_read(manifest *m, const char *folder, program_error *error);
/* One of this kind. */
int manifest_read_kind(manifest *m, const char *folder, manifest_kind kind, program_error *error);
void manifest_free(manifest *m);
/* Is the set in the folder whole? Reads all of it; -1 with the first file that is not, and why. */
int manifest_check(const char *folder, program_error *error);
/* Where the i-th file of a set that was read lies, its bytes being as they should: path[MANIFEST_LONGEST_PATH]. */
int manifest_find(const manifest *m, const char *folder, uint32_t i, char *path, program_error *error);
/* Fills file->bytes, and file->crc32 unless it is self_checked, from the file, which is synced. */
int manifest_measure(manifest_file *file, const char *path, program_error *error);

#endif
