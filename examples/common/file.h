/* Files that are made whole, or not at all: a new one is written under a temporary name beside the one that it is to
 * replace, synced, renamed, and its folder synced.
 *
 *     file_new file;
 *     file_make(&file, "out/log.tsv", &error)       .log.tsv.saving-a1b2c3, which was not there before
 *     file_stream(&file, &error)                    write to file.stream, without regard to errors ...
 *     file_close(&file, &error)                     ... for closing tells of the first; now it is on disk
 *     file_publish(&file, &error)                   it has its name
 *
 * Symbolic links are followed: what they lead to is replaced, and they stay. What is there and is no regular file (a
 * device, a pipe, a folder) is refused. After a failure, and before file_publish, the old file is as it was;
 * file_discard takes away what was written. Only a process that is killed leaves its temporary file.
 *
 * Functions return 0, or -1 with *error filled: what was wanted, what was found, what to do.
 */
#ifndef FILE_H
#define FILE_H

#include "examples/common/program.h"

/* A file that is being made. It must not move while it has a stream. */
typedef struct file_new {
    char *path, *temporary; /* NULL: nothing is there to discard */
    int descriptor;         /* of the temporary file; -1: closed */
    FILE *stream;           /* NULL: none */
    uint64_t bytes;         /* written through the stream, and their crc32 */
    uint32_t crc32;
    int failed; /* errno of the first write that failed */
} file_new;

/* Makes the temporary file, with the permissions of the one that it is to replace. On failure there is nothing to
 * discard; a file_new of zeros can be discarded, too. */
int file_make(file_new *file, const char *name, program_error *error);
int file_stream(file_new *file, program_error *error);
/* All that was written is on disk. On failure it is discarded. */
int file_close(file_new *file, program_error *error);
/* Behind file_close. file_rename leaves the folder to be synced by file_sync_folder. */
int file_publish(file_new *file, program_error *error);
int file_rename(file_new *file, program_error *error);
void file_discard(file_new *file);
/* A file of this name, published: `fill` writes it, without regard to errors. */
int file_put(const char *name, void fill(FILE *stream, const void *content), const void *content, program_error *error);

/* Makes a folder unless it is there; its name is on disk, whoever made it. */
int file_make_folder(const char *folder, program_error *error);
/* The names in `path`'s folder are on disk. */
int file_sync_folder(const char *path, program_error *error);
/* Where a file of this name would lie, links followed: *path, to be freed. Refuses what file_make refuses. */
int file_resolve(const char *name, char **path, program_error *error);
/* Would these be one file? Also where one, or both, are not there yet. NULL is no file. */
int file_is_same(const char *a, const char *b);
/* Writes all of it, whatever signals come; 0, or -1 with errno set. */
int file_write(int descriptor, const void *bytes, size_t n);

/* A temporary name beside this one, which may be a folder's: .NAME.saving-a1b2c3, to be freed. NULL: no memory. */
char *file_temporary_name(const char *path);
/* Is this entry of a folder such a name, of NAME? Users' names are none: ".NAME.saving-backup". */
int file_is_temporary(const char *entry, const char *name);
/* The end of a message about a failed write: "; make room ..."; "" where there is nothing to advise. */
const char *file_remedy(int number);
/* The temporary names of `name` end behind its own with this, and three times a small letter and a digit. */
#define FILE_TEMPORARY ".saving-"

/* One process has a folder to write into; the next one is told who. *lock is for file_unlock; -1: none. The lock is a
 * file .frugal-lock; one with another text than ours is refused, and stays. */
int file_lock(int *lock, const char *folder, const char *program, program_error *error);
/* To read: others may read, too, and nobody may write. A folder that is not there, or that this process may not write
 * to, has no lock: 0, and *lock is -1. */
int file_lock_shared(int *lock, const char *folder, const char *program, program_error *error);
void file_unlock(int lock, const char *folder);

#endif
