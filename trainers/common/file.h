/* Files that are made whole, or not at all: a new one is written under a temporary name beside the one that it is to
 * replace, synced, renamed, and its folder synced.
 *
 *     file_new file;
 *     file_make(&file, "out/log.tsv", &error)       .log.tsv.saving-a1b2c3, which was not there before
 *     file_stream(&file, &error)                    write to file.stream without checking for errors ...
 *     file_close(&file, &error)                     ... because closing reports the first; now it is on disk
 *     file_publish(&file, &error)                   it has its name
 *
 * Symbolic links are followed: what they lead to is replaced, and they stay. An existing path that is not a regular
 * file (a device, a pipe, a folder) is refused. After a failure, and before file_publish, the old file is as it was;
 * file_discard takes away what was written. A temporary file is left only if the process is killed.
 *
 * Functions return 0, or -1 with *error filled: what was wanted, what was found, what to do.
 */
#ifndef FILE_H
#define FILE_H

#include <dirent.h>

#include "trainers/common/program.h"

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
/* After file_close. file_rename does not sync the folder: file_sync_folder does. */
int file_publish(file_new *file, program_error *error);
int file_rename(file_new *file, program_error *error);
void file_discard(file_new *file);
/* Makes and publishes a file of this name. `fill` writes it, and need not check for errors. */
int file_put(const char *name, void fill(FILE *stream, const void *content), const void *content, program_error *error);

/* The folder itself, not what a link leads to. To be closed; NULL: there is none. */
DIR *file_open_folder(const char *path);
/* Makes a folder unless it is there. In both cases its name is on disk then. */
int file_make_folder(const char *folder, program_error *error);
/* Syncs the names in the folder of `path` to disk. */
int file_sync_folder(const char *path, program_error *error);
/* *path becomes the place of a file of this name, links followed; to be freed. Refuses what file_make refuses. */
int file_resolve(const char *name, char **path, program_error *error);
int file_ends_with(const char *path, const char *end);
/* Would these two paths be one file? Either may not exist yet. NULL is no file. */
int file_is_same(const char *a, const char *b);
/* Writes all of it, whatever signals come; 0, or -1 with errno set. */
int file_write(int descriptor, const void *bytes, size_t n);

/* A temporary name beside this one, which may be a folder's: .NAME.saving-a1b2c3, to be freed. NULL: no memory. */
char *file_temporary_name(const char *path);
/* Is this entry of a folder a temporary name of NAME? A user's name like ".NAME.saving-backup" is not. */
int file_is_temporary(const char *entry, const char *name);
/* Is this entry of a folder the share of a machine of what frugal_save has written: NAME.0-of-2-0123456789abcdef? */
int file_is_share(const char *entry);
/* The end of a message about a call that failed: "; make room ..."; "" where there is nothing to advise. */
const char *file_remedy(int number);
/* A temporary name of `name` is that name, this text, and three times a small letter and a digit. */
#define FILE_TEMPORARY ".saving-"

/* Locks a folder for writing by this process alone; another process is told which one holds it. *lock is for
 * file_unlock; -1: none. The lock is a file .frugal-lock; a file of that name with other text than ours is refused, and
 * stays. */
int file_lock(int *lock, const char *folder, const char *program, program_error *error);
/* Locks for reading: other processes may read too, and none may write. A folder that is not there, or that this process
 * may not write to, is not locked: 0, and *lock is -1. */
int file_lock_shared(int *lock, const char *folder, const char *program, program_error *error);
void file_unlock(int lock, const char *folder);

#endif
