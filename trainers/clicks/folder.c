/* A folder's files: their names are read, chosen, and sorted. */
#include "trainers/clicks/folder.h"
#include "trainers/clicks/npy.h"
#include "trainers/common/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int clicks_is_folder(const char *path) {
    struct stat is;
    return path && !stat(path, &is) && S_ISDIR(is.st_mode);
}

void clicks_folder_free(clicks_folder *folder) {
    for (uint32_t i = 0; i < folder->n; i++) free(folder->files[i]);
    free(folder->files);
    *folder = (clicks_folder){0};
}

static int clicks_folder_compare(const void *a, const void *b) {
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static int clicks_folder_add(clicks_folder *folder, const char *path, const char *name) {
    char *file = NULL, **files;
    if (*name == '.' || *name == '_') return 0;
    if (asprintf(&file, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name) < 0) return -1;
    if (clicks_is_folder(file) || clicks_npy_is_part(file)) {
        free(file);
        return 0;
    }
    files = realloc(folder->files, ((size_t)folder->n + 2) * sizeof *files);
    if (!files) {
        free(file);
        return -1;
    }
    folder->files = files;
    files[folder->n++] = file;
    files[folder->n] = NULL;
    return 0;
}

int clicks_folder_read(clicks_folder *folder, const char *path, program_error *error) {
    struct dirent *entry;
    int status = 0;
    *folder = (clicks_folder){0};
    DIR *stream = opendir(path);
    if (!stream)
        return program_fail(error, "cannot read the folder %.200s: %s%s", path, strerror(errno), file_remedy(errno));
    while (!status && (entry = readdir(stream))) status = clicks_folder_add(folder, path, entry->d_name);
    closedir(stream);
    if (status)
        program_fail(error, "out of memory for the names of the files in %.200s", path);
    else if (!folder->n)
        status = program_fail(error,
                              "the folder %.200s has no files of samples (those in its folders, and names that begin "
                              "with . or _, do not count); give another one",
                              path);
    if (status) {
        clicks_folder_free(folder);
        return -1;
    }
    qsort(folder->files, folder->n, sizeof *folder->files, clicks_folder_compare);
    return 0;
}
