/* Reading the files of a knowledge graph's folder, line by line. */
#include "trainers/kge/folder.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Lines of a file ---------------------------------------------------------------------------------- */

int kge_file_open(kge_folder *folder, const char *file, program_error *error) {
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder->path, file) >= sizeof path)
        return program_fail(error, "the path of folder '%.80s...' is longer than %zu bytes", folder->path, sizeof path);
    struct stat is;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe without a writer would wait */
    if (opened < 0)
        return errno == ENOENT ? 0
                               : program_fail(error, "cannot read %s: %s%s", path, strerror(errno), file_remedy(errno));
    int regular = !fstat(opened, &is) && S_ISREG(is.st_mode);
    folder->stream = regular ? fdopen(opened, "rb") : NULL;
    if (!folder->stream) {
        close(opened);
        return regular ? program_fail(error, "out of memory reading %s", path)
                       : program_fail(error, "cannot read %s: it is no regular file; write the triples to one", path);
    }
    folder->file = file;
    folder->number = folder->at = folder->count = folder->met = 0;
    folder->bytes = (uint64_t)is.st_size;
    return 1;
}

void kge_file_close(kge_folder *folder) {
    if (folder->stream) fclose(folder->stream);
    folder->stream = NULL;
}

/* Cuts the line's end off, and a byte order mark, which is no part of a name. */
static char *kge_line_text(const kge_folder *folder, size_t n) {
    char *text = folder->line;
    if (n > 0 && text[n - 1] == '\n') n--;
    if (n > 0 && text[n - 1] == '\r') n--;
    text[n] = 0;
    return folder->number == 1 && n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? text + 3 : text;
}

int kge_line(kge_folder *folder, char **line, program_error *error) {
    ssize_t n;
    errno = 0;
    while ((n = getline(&folder->line, &folder->room, folder->stream)) >= 0) {
        folder->number++, folder->at += (size_t)n;
        if (memchr(folder->line, 0, (size_t)n)) /* it would end the line early, and the rest would be dropped */
            return program_fail(error,
                                "%s/%s:%" PRIu64 ": holds a zero byte; give a plain text file, UTF-8 if not ASCII",
                                folder->path, folder->file, folder->number);
        *line = kge_line_text(folder, (size_t)n);
        if (**line) return 1;
    }
    if (feof(folder->stream)) return 0;
    return program_fail(error, "cannot read %s/%s: %s", folder->path, folder->file,
                        ferror(folder->stream) ? strerror(errno) : "out of memory");
}

int kge_line_fail(const kge_folder *folder, program_error *error, const char *what) {
    return program_fail(error, "%s/%s:%" PRIu64 ": %s", folder->path, folder->file, folder->number, what);
}

/* Reads one number below `limit` at *text, advances *text behind it and the blanks around it. */
static int kge_number(char **text, uint64_t limit, uint64_t *value) {
    char *at = *text;
    while (*at == ' ' || *at == '\t') at++;
    if (*at < '0' || *at > '9') return -1;
    uint64_t sum = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        sum = sum * 10 + (uint64_t)(*at - '0');
        if (sum >= limit) return -1;
    }
    if (*at && *at != ' ' && *at != '\t') return -1;
    while (*at == ' ' || *at == '\t') at++;
    *text = at;
    *value = sum;
    return 0;
}

/* ---- Columns --------------------------------------------------------------------------------------------- */

static const char kge_parts[] = "hrt";

/* What the folder's column holds, in a word. */
static const char *kge_column(const kge_folder *folder, int column) {
    char part = folder->is.columns[column];
    return part == 'h' ? "head" : part == 'r' ? "relation" : "tail";
}

/* ---- OpenKE's files ------------------------------------------------------------------------------------ */

/* The first line of an opened file. */
static int kge_read_count(kge_folder *folder, program_error *error) {
    char *line;
    int got = kge_line(folder, &line, error);
    if (got < 0) return -1;
    if (!got)
        return program_fail(error, "%s/%s is empty; its first line must be the number of entries", folder->path,
                            folder->file);
    if (kge_number(&line, UINT32_MAX - 2, &folder->count) || *line)
        return kge_line_fail(folder, error, "the first line must be the number of entries, and nothing else");
    /* Checks a count before memory is allocated for it: an entry is a line, of two bytes at least. */
    uint64_t left = folder->bytes > folder->at ? folder->bytes - folder->at : 0;
    if (folder->count > (left + 1) / 2)
        return program_fail(error,
                            "%s/%s: promises %" PRIu64 " entries in the %" PRIu64 " bytes that follow; is it cut off?",
                            folder->path, folder->file, folder->count, left);
    return 0;
}

/* 1: the next line that is promised; 0: all were there, and nothing follows; -1: error. */
static int kge_entry(kge_folder *folder, const char *entries, char **line, program_error *error) {
    int got = kge_line(folder, line, error);
    if (got < 0) return -1;
    if (!got && folder->met < folder->count)
        return program_fail(error, "%s/%s: promises %" PRIu64 " %s, holds %" PRIu64 "; is the file cut off?",
                            folder->path, folder->file, folder->count, entries, folder->met);
    if (got && folder->met == folder->count)
        return program_fail(error, "%s/%s:%" PRIu64 ": more %s than the first line promises", folder->path,
                            folder->file, folder->number, entries);
    folder->met += got > 0;
    return got;
}

static int kge_compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Refuses a name that comes twice. */
static int kge_check_names(const kge_folder *folder, const kge_names *names, program_error *error) {
    const char **sorted = malloc(((size_t)names->n + 1) * sizeof *sorted);
    if (!sorted)
        return program_fail(error, "%s/%s: out of memory for %" PRIu32 " names", folder->path, folder->file, names->n);
    for (uint32_t i = 0; i < names->n; i++) sorted[i] = kge_name(names, i);
    qsort(sorted, names->n, sizeof *sorted, kge_compare_names);
    int status = 0;
    for (uint32_t i = 1; i < names->n && !status; i++)
        if (!strcmp(sorted[i], sorted[i - 1]))
            status = program_fail(error, "%s/%s: the name '%.60s' has two ids; give each name one", folder->path,
                                  folder->file, sorted[i]);
    free(sorted);
    return status;
}

/* `name<TAB>id`: cuts the id off. */
static int kge_split_id(const kge_names *names, char *line, uint64_t count, uint64_t *id) {
    char *blank = line + strlen(line);
    while (blank > line && blank[-1] != '\t' && blank[-1] != ' ') blank--;
    char *digits = blank;
    if (blank <= line + 1 || kge_number(&digits, count, id) || *digits || names->offset[*id] != UINT64_MAX) return -1;
    blank[-1] = 0;
    return 0;
}

/* `name<TAB>id` a line, in any order; every id once. */
static int kge_read_ids(kge_folder *folder, kge_names *names, program_error *error) {
    char *line;
    int got = 1;
    if (kge_read_count(folder, error)) return -1;
    if (kge_names_reserve(names, (uint32_t)folder->count, error)) return -1;
    while ((got = kge_entry(folder, "names", &line, error)) > 0) {
        uint64_t id;
        if (kge_split_id(names, line, folder->count, &id))
            return program_fail(error, "%s/%s:%" PRIu64 ": '%.60s' is not a name and an id of its own below %" PRIu64,
                                folder->path, folder->file, folder->number, line, folder->count);
        if (kge_names_put(names, (uint32_t)id, line, strlen(line), error)) return -1;
    }
    return got < 0 ? -1 : kge_check_names(folder, names, error);
}

/* `id<TAB>name` a line, as DGL-KE has them, without a count; every id once, and none left out. */
static int kge_read_udd_ids(kge_folder *folder, kge_names *names, program_error *error) {
    uint64_t most = (folder->bytes + 1) / 3, lines = 0, id; /* a line has three bytes or more, with its end */
    char *line, *field[3], shown[61];
    int got;
    while ((got = kge_line(folder, &line, error)) > 0) {
        snprintf(shown, sizeof shown, "%s", line);
        uint32_t fields = kge_fields(line, field);
        char *digits = field[0];
        if (fields != 2 || !*field[1] || kge_number(&digits, most < UINT32_MAX - 2 ? most : UINT32_MAX - 2, &id) ||
            *digits)
            return program_fail(error,
                                "%s/%s:%" PRIu64 ": '%s' is not id<TAB>name, with an id below the number of lines",
                                folder->path, folder->file, folder->number, shown);
        if (id >= names->n && kge_names_reserve(names, (uint32_t)id + 1 - names->n, error)) return -1;
        if (names->offset[id] != UINT64_MAX)
            return program_fail(error,
                                "%s/%s:%" PRIu64 ": id %" PRIu64 " has a name already; give each name an id of its own",
                                folder->path, folder->file, folder->number, id);
        if (kge_names_put(names, (uint32_t)id, field[1], strlen(field[1]), error)) return -1;
        lines++;
    }
    if (!got && lines != names->n)
        return program_fail(error,
                            "%s/%s: %" PRIu64 " lines have ids up to %" PRIu32 "; number names from 0, without gaps",
                            folder->path, folder->file, lines, names->n - 1);
    return got < 0 ? -1 : kge_check_names(folder, names, error);
}

/* Three ids a line, in the order of the folder's columns. */
static int kge_next_ids(kge_folder *folder, kge_triple *triple, program_error *error) {
    uint32_t *const parts[] = {&triple->head, &triple->relation, &triple->tail};
    const kge_names *names[] = {&folder->entities, &folder->relations, &folder->entities};
    char *line, *at;
    int got =
        folder->is.format == KGE_UDD ? kge_line(folder, &line, error) : kge_entry(folder, "triples", &line, error);
    if (got <= 0) return got;
    at = line;
    for (int column = 0; column < 3; column++) {
        uint64_t id, part = (uint64_t)(strchr(kge_parts, folder->is.columns[column]) - kge_parts);
        if (kge_number(&at, names[part]->n, &id) || (column == 2 && *at))
            return program_fail(error,
                                "%s/%s:%" PRIu64 ": '%.60s' is not `%s %s %s` with entities below %" PRIu32
                                " and relations below %" PRIu32 ", the counts of %s and %s; is it cut off, or are the "
                                "columns in another order (--columns)?",
                                folder->path, folder->file, folder->number, line, kge_column(folder, 0),
                                kge_column(folder, 1), kge_column(folder, 2), folder->entities.n, folder->relations.n,
                                folder->is.file[KGE_ENTITY_FILE], folder->is.file[KGE_RELATION_FILE]);
        *parts[part] = (uint32_t)id;
    }
    return 1;
}

/* ---- Files of plain names ------------------------------------------------------------------------------ */

static uint64_t kge_hash(const char *name, size_t length) {
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return random_at(hash, 0);
}

/* The slot of a name, or the free one where it belongs. */
static uint64_t kge_map_slot(const kge_map *map, const kge_names *names, const char *name) {
    uint64_t at = kge_hash(name, strlen(name)) & map->mask;
    while (map->slot[at] && strcmp(kge_name(names, map->slot[at] - 1), name)) at = (at + 1) & map->mask;
    return at;
}

/* Makes a map of the names with so many slots, a power of two. */
static int kge_map_make(kge_map *map, const kge_names *names, uint64_t size, program_error *error) {
    free(map->slot);
    map->slot = calloc(size, sizeof *map->slot);
    if (!map->slot) return program_fail(error, "out of memory for the names of the graph");
    map->mask = size - 1;
    for (uint32_t id = 0; id < names->n; id++) map->slot[kge_map_slot(map, names, kge_name(names, id))] = id + 1;
    return 0;
}

int kge_map_build(kge_map *map, const kge_names *names, program_error *error) {
    uint64_t size = 4096;
    while (size / 2 <= names->n) size *= 2;
    return kge_map_make(map, names, size, error);
}

uint32_t kge_map_find(const kge_map *map, const kge_names *names, const char *name) {
    return map->slot[kge_map_slot(map, names, name)] - 1;
}

/* The id of a name, a new id if it has none yet. */
static int kge_map_id(kge_map *map, kge_names *names, const char *name, uint32_t *id, program_error *error) {
    if ((!map->slot || names->n >= map->mask / 2) &&
        kge_map_make(map, names, map->slot ? (map->mask + 1) * 2 : 4096, error))
        return -1;
    uint32_t *slot = &map->slot[kge_map_slot(map, names, name)];
    if (*slot) {
        *id = *slot - 1;
        return 0;
    }
    *id = names->n;
    *slot = *id + 1;
    return kge_names_add(names, name, strlen(name), error);
}

uint32_t kge_fields(char *line, char *field[3]) {
    uint32_t n = 0;
    for (char *tab; line; line = tab, n++) {
        tab = strchr(line, '\t');
        if (tab) *tab++ = 0;
        if (n < 3) field[n] = line;
    }
    return n;
}

static int kge_are_triple(uint32_t fields, char *const field[3]) {
    return fields == 3 && *field[0] && *field[1] && *field[2];
}

/* The line that begins with `begin` is no triple: says why, and how many such lines follow. */
static int kge_no_triple(kge_folder *folder, uint32_t fields, const char *begin, program_error *error) {
    char *field[3], *line, found[32], rest[64] = "";
    program_error ignored;
    uint64_t number = folder->number, more = 0;
    snprintf(found, sizeof found, fields == 3 ? "an empty column" : "%" PRIu32 " column%s", fields,
             fields == 1 ? "" : "s");
    while (kge_line(folder, &line, &ignored) > 0) more += !kge_are_triple(kge_fields(line, field), field);
    if (more) snprintf(rest, sizeof rest, ", and %" PRIu64 " more lines are no triples", more);
    return program_fail(error,
                        "%s/%s:%" PRIu64 ": '%s' is not %s<TAB>%s<TAB>%s: it has %s%s; write three names with tabs "
                        "between them",
                        folder->path, folder->file, number, begin, kge_column(folder, 0), kge_column(folder, 1),
                        kge_column(folder, 2), found, rest);
}

/* Names are numbered in the order head, relation, tail, so that the order of columns does not matter to the bits. */
static int kge_next_names(kge_folder *folder, kge_triple *triple, program_error *error) {
    char *line, *field[3], begin[61];
    int got = kge_line(folder, &line, error);
    if (got <= 0) return got;
    snprintf(begin, sizeof begin, "%s", line);
    uint32_t fields = kge_fields(line, field);
    if (!kge_are_triple(fields, field)) return kge_no_triple(folder, fields, begin, error);
    uint32_t *const parts[] = {&triple->head, &triple->relation, &triple->tail};
    for (int part = 0; part < 3; part++) {
        int of = part == 1;
        const char *name = field[strchr(folder->is.columns, kge_parts[part]) - folder->is.columns];
        if (kge_map_id(&folder->map[of], of ? &folder->relations : &folder->entities, name, parts[part], error))
            return -1;
    }
    return 1;
}

/* ---- Folders ------------------------------------------------------------------------------------------- */

int kge_folder_names(kge_folder *folder, const char *file, kge_names *names, program_error *error) {
    int got = kge_file_open(folder, file, error);
    if (got < 0) return -1;
    if (!got)
        return program_fail(error,
                            "%s has no %s, the file of names and ids; a folder of ids needs one of entities and one "
                            "of relations",
                            folder->path, file);
    int status =
        folder->is.format == KGE_UDD ? kge_read_udd_ids(folder, names, error) : kge_read_ids(folder, names, error);
    kge_file_close(folder);
    return status;
}

/* The files of each format; arrays have names of their own. */
static const char *const kge_layout_files[][KGE_LAYOUT_FILES] = {
    [KGE_OPENKE] = {"train2id.txt", "valid2id.txt", "test2id.txt", "entity2id.txt", "relation2id.txt"},
    [KGE_PLAIN] = {"train.txt", "valid.txt", "test.txt"},
    [KGE_UDD] = {"train.txt", "valid.txt", "test.txt", "entities.dict", "relations.dict"},
    [KGE_ARRAYS] = {"train_hrt.npy"},
};

/* 1: the folder has the training triples of this format; 0: it has not; -1: error. */
static int kge_folder_has(kge_folder *folder, kge_format format, program_error *error) {
    int got = kge_file_open(folder, kge_layout_files[format][KGE_TRAIN], error);
    kge_file_close(folder);
    return got;
}

/* Finds out which format the folder has. */
static int kge_folder_format(kge_folder *folder, program_error *error) {
    static const kge_format formats[] = {KGE_OPENKE, KGE_PLAIN, KGE_ARRAYS};
    for (int i = 0; i < 3 && folder->is.format == KGE_ANY_FORMAT; i++) {
        int got = kge_folder_has(folder, formats[i], error);
        if (got < 0) return -1;
        if (got) folder->is.format = formats[i];
    }
    if (folder->is.format != KGE_ANY_FORMAT) return 0;
    return program_fail(error,
                        "%s holds neither train2id.txt (OpenKE) nor train.txt (head<TAB>relation<TAB>tail) nor "
                        "train_hrt.npy (OGB)",
                        folder->path);
}

int kge_folder_open_as(kge_folder *folder, const char *path, const kge_layout *layout, program_error *error) {
    struct stat status;
    *folder = (kge_folder){.path = path, .is = *layout};
    if (stat(path, &status)) return program_fail(error, "cannot open folder %s: %s", path, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return program_fail(error, "%s is not a folder", path);
    if (kge_folder_format(folder, error)) return -1;
    if (!folder->is.columns) folder->is.columns = folder->is.format == KGE_OPENKE ? "htr" : "hrt";
    if (!layout->named) memcpy(folder->is.file, kge_layout_files[folder->is.format], sizeof folder->is.file);
    if (folder->is.format != KGE_OPENKE && folder->is.format != KGE_UDD) return 0;
    if (kge_folder_names(folder, folder->is.file[KGE_ENTITY_FILE], &folder->entities, error)) return -1;
    return kge_folder_names(folder, folder->is.file[KGE_RELATION_FILE], &folder->relations, error);
}

int kge_folder_open(kge_folder *folder, const char *path, program_error *error) {
    return kge_folder_open_as(folder, path, &(kge_layout){.named = 0}, error);
}

int kge_folder_begin(kge_folder *folder, kge_split_kind split, program_error *error) {
    kge_file_close(folder);
    if (folder->is.format == KGE_ARRAYS) return kge_arrays_begin(&folder->arrays, folder->path, split, error);
    if (!folder->is.file[split]) return 0;
    int got = kge_file_open(folder, folder->is.file[split], error);
    if (!got && folder->is.named)
        return program_fail(error, "there is no file %s/%s, which --data-files names", folder->path,
                            folder->is.file[split]);
    if (got <= 0) return got;
    return folder->is.format == KGE_OPENKE ? kge_read_count(folder, error) : 0;
}

int kge_folder_next(kge_folder *folder, kge_triple *triple, program_error *error) {
    kge_names *const names[2] = {&folder->entities, &folder->relations};
    if (folder->is.format == KGE_ARRAYS)
        return kge_arrays_next(&folder->arrays, folder->is.columns, names, triple, error);
    if (!folder->stream) return 0;
    return folder->is.format == KGE_PLAIN ? kge_next_names(folder, triple, error) : kge_next_ids(folder, triple, error);
}

int kge_folder_words(kge_folder *folder, const char *file, kge_map *map, kge_names *words) {
    program_error ignored;
    char *line, *field[3];
    int got = kge_file_open(folder, file, &ignored);
    if (got <= 0) return 0;
    while ((got = kge_line(folder, &line, &ignored)) > 0) {
        uint32_t id, n = kge_fields(line, field);
        if (kge_map_id(map, words, field[0], &id, &ignored)) break;
        if (n > 1 && kge_map_id(map, words, field[1], &id, &ignored)) break;
        char *blank = n == 1 ? strrchr(line, ' ') : NULL;
        if (!blank) continue;
        *blank = 0;
        if (kge_map_id(map, words, line, &id, &ignored)) break;
    }
    kge_file_close(folder);
    return got == 0;
}

void kge_folder_close(kge_folder *folder) {
    kge_file_close(folder);
    kge_arrays_close(&folder->arrays);
    free(folder->line);
    kge_names_free(&folder->entities);
    kge_names_free(&folder->relations);
    free(folder->map[0].slot);
    free(folder->map[1].slot);
    *folder = (kge_folder){0};
}
