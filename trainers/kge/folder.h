/* The folders that kge reads, a triple at a time: OpenKE's, those of plain names, DGL-KE's with ids, and OGB's arrays
 * (data.h says what they hold).
 *
 *     kge_folder f;
 *     kge_folder_open(&f, "FB15k-237", &error)                      which kind it is; names with ids of their own
 *     for (int s = 0; s < KGE_SPLITS; s++) {
 *         kge_folder_begin(&f, s, &error)
 *         while ((got = kge_folder_next(&f, &triple, &error)) > 0) ...
 *     }
 *     kge_folder_close(&f)
 *
 * Plain names are numbered as they are met. So the splits are to be read in this order, and then the names are those of
 * a graph that is read whole. Only the names are ever whole in memory.
 */
#ifndef KGE_FOLDER_H
#define KGE_FOLDER_H

#include <stdio.h>
#include "trainers/kge/arrays.h"

/* Open addressing from names to ids; a slot holds id + 1, 0 is free. */
typedef struct kge_map {
    uint32_t *slot;
    uint64_t mask;
} kge_map;

typedef struct kge_folder {
    const char *path;
    kge_layout is; /* after opening, nothing in it is to be found out any more */
    kge_names entities, relations;
    kge_map map[2]; /* of both, where names are plain */
    kge_arrays arrays;
    /* The file that is read, if there is one. */
    const char *file;
    FILE *stream;
    char *line; /* line[room] */
    size_t room;
    uint64_t number;     /* of the line read last, from 1 */
    uint64_t bytes, at;  /* of the file; read so far */
    uint64_t count, met; /* OpenKE: entries that the file promises; entries so far */
} kge_folder;

/* All return 0, or -1 with *error filled; a folder that failed can be closed. `path` must stay. */
int kge_folder_open(kge_folder *folder, const char *path, program_error *error);
/* In another layout than its files say. */
int kge_folder_open_as(kge_folder *folder, const char *path, const kge_layout *layout, program_error *error);
/* A split without a file has no triples. */
int kge_folder_begin(kge_folder *folder, kge_split_kind split, program_error *error);
/* 1: the next triple; 0: the split is over; -1: error. */
int kge_folder_next(kge_folder *folder, kge_triple *triple, program_error *error);
void kge_folder_close(kge_folder *folder);

/* The first two fields of each line of another file of the folder, each once; without tabs, the line and what stands
 * before its last blank. 1; 0 if there is no such file, or if it cannot be read. Only folder->path is needed. */
int kge_folder_words(kge_folder *folder, const char *file, kge_map *map, kge_names *words);

/* Another file of the folder, line by line. 1: opened; 0: there is no such file; -1: error. Only folder->path is
 * needed. */
int kge_file_open(kge_folder *folder, const char *file, program_error *error);
void kge_file_close(kge_folder *folder);
/* 1: the next line that is not empty, without its end, which the caller may write to; 0: there is none; -1: error. */
int kge_line(kge_folder *folder, char **line, program_error *error);
/* -1: *error becomes what is wrong with the line that was read last, and where it is. */
int kge_line_fail(const kge_folder *folder, program_error *error, const char *what);
/* Cuts the line into fields at its tabs: how many it has, of which the first three are in field[]. */
uint32_t kge_fields(char *line, char *field[3]);
/* The names of a file: the count, then `name<TAB>id` a line; where the layout is udd, `id<TAB>name` a line. */
int kge_folder_names(kge_folder *folder, const char *file, kge_names *names, program_error *error);

/* A map of all names, to look them up: 0, or -1 with *error filled. map->slot is to be freed. */
int kge_map_build(kge_map *map, const kge_names *names, program_error *error);
/* The id of a name, or UINT32_MAX. */
uint32_t kge_map_find(const kge_map *map, const kge_names *names, const char *name);

#endif
