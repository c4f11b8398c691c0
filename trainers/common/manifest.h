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
 * from that moment on the new set counts; then the files get their names. So a set is whole at whatever moment the
 * process is killed: if the last move is missing, the file under the name has a wrong checksum, and the right file is
 * found under `written`. A reader that ignores `written` sees by the checksum that the file is not of this set.
 * `written` is left out if it equals the name, "crc32" if a file has checksums of its own.
 *
 * The format of a checkpoint (checkpoint.h) is "frugal checkpoint, 1". Its manifest is read only as that of a
 * checkpoint, and the manifest of a set only as that of a set. So neither is mistaken for the other, replaced or
 * removed in its place.
 *
 * Checksums are CRC-32, zlib.crc32 in Python. The last one covers all bytes of the manifest above its own line.
 */
#ifndef MANIFEST_H
#define MANIFEST_H

#include "trainers/common/program.h"

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

/* path[MANIFEST_LONGEST_PATH] becomes that of `name` in the folder. 0, or -1 with *error filled: it is too long. */
int manifest_path(char *path, const char *folder, const char *name, program_error *error);
/* Sets the date to now. Returns the bytes, to be freed; NULL: no memory. */
char *manifest_text(manifest *m);
/* Reads the manifest of a set. 1: read; 0: there is none; -1: error: it is not ours, or damaged. To be freed in any
 * case. */
int manifest_read(manifest *m, const char *folder, program_error *error);
/* Reads a manifest of this kind. */
int manifest_read_kind(manifest *m, const char *folder, manifest_kind kind, program_error *error);
void manifest_free(manifest *m);
/* Is the set in the folder whole? Reads all of it. -1: *error names the first file that is wrong, and why. */
int manifest_check(const char *folder, program_error *error);
/* The path at which the i-th file of a set that was read has its right bytes: path[MANIFEST_LONGEST_PATH]. */
int manifest_find(const manifest *m, const char *folder, uint32_t i, char *path, program_error *error);
/* Fills file->bytes, and file->crc32 unless it is self_checked, from the file, which is synced. */
int manifest_measure(manifest_file *file, const char *path, program_error *error);

#endif
