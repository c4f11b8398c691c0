/* Reading knowledge graphs from folders, and the index of known triples. */
#include "examples/kge/data.h"
#include "examples/common/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const kge_graph_files[KGE_GRAPH_FILES] = {"train2id.txt",    "valid2id.txt", "test2id.txt", "entity2id.txt",
                                                      "relation2id.txt", "train.txt",    "valid.txt",   "test.txt"};

const char *kge_name(const kge_names *names, uint32_t id) {
    return names->text + names->offset[id];
}

int kge_names_add(kge_names *names, const char *name, size_t length, program_error *error) {
    if (names->n == UINT32_MAX - 2) return program_fail(error, "more than 2^32 - 3 names; split the graph");
    if (names->n == names->room) {
        uint32_t room = names->room ? (names->room > UINT32_MAX / 2 ? UINT32_MAX : names->room * 2) : 1024;
        uint64_t *offset = realloc(names->offset, (size_t)room * sizeof *offset);
        if (!offset) return program_fail(error, "out of memory for %" PRIu32 " names", room);
        names->offset = offset;
        names->room = room;
    }
    if (names->text_used + length + 1 > names->text_room) {
        uint64_t room = 2 * (names->text_used + length + 1) + 4096;
        char *text = realloc(names->text, room);
        if (!text) return program_fail(error, "out of memory for %" PRIu64 " bytes of names", room);
        names->text = text;
        names->text_room = room;
    }
    memcpy(names->text + names->text_used, name, length);
    names->text[names->text_used + length] = 0;
    names->offset[names->n++] = names->text_used;
    names->text_used += length + 1;
    return 0;
}

/* ---- Lines of a file ---------------------------------------------------------------------------------- */

typedef struct kge_lines {
    const char *folder, *file; /* for messages */
    char *text, *next, *end;
    uint64_t number; /* of the line read last, from 1 */
} kge_lines;

/* A zero byte would end a line early, and the rest would be dropped silently. */
static int kge_check_text(const char *path, const char *text, size_t size, program_error *error) {
    const char *zero = memchr(text, 0, size);
    if (!zero) return 0;
    uint64_t line = 1;
    for (const char *at = text; at < zero; at++) line += *at == '\n';
    return program_fail(error, "%s:%" PRIu64 ": holds a zero byte; give a plain text file, UTF-8 if not ASCII", path,
                        line);
}

/* 1: opened; 0: there is no such file; -1: error. */
static int kge_lines_open(kge_lines *lines, const char *folder, const char *file, program_error *error) {
    char path[4096];
    *lines = (kge_lines){.folder = folder, .file = file};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, file) >= sizeof path)
        return program_fail(error, "the path of folder '%.80s...' is longer than %zu bytes", folder, sizeof path);
    struct stat is;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe without a writer would wait */
    if (opened < 0) return errno == ENOENT ? 0 : program_fail(error, "cannot read %s: %s", path, strerror(errno));
    if (!fstat(opened, &is) && !S_ISREG(is.st_mode)) {
        close(opened);
        return program_fail(error, "cannot read %s: it is no regular file; write the triples to one", path);
    }
    FILE *stream = fdopen(opened, "rb");
    if (!stream) {
        close(opened);
        return program_fail(error, "out of memory reading %s", path);
    }
    size_t room = 1 << 16, used = 0;
    char *text = malloc(room + 1);
    while (text) {
        used += fread(text + used, 1, room - used, stream);
        if (used < room) break;
        char *more = realloc(text, room * 2 + 1);
        if (!more) free(text);
        text = more;
        room *= 2;
    }
    int failed = text && ferror(stream);
    int number = errno;
    fclose(stream);
    if (!text) return program_fail(error, "out of memory reading %s", path);
    if (failed) {
        free(text);
        return program_fail(error, "cannot read %s: %s", path, strerror(number));
    }
    text[used] = 0;
    if (kge_check_text(path, text, used, error)) {
        free(text);
        return -1;
    }
    size_t mark = used >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; /* byte order mark: no part of a name */
    lines->text = text;
    lines->next = text + mark;
    lines->end = text + used;
    return 1;
}

/* The next line that is not empty, without its end, or NULL. */
static char *kge_line(kge_lines *lines) {
    while (lines->next < lines->end) {
        char *line = lines->next, *stop = memchr(line, '\n', (size_t)(lines->end - line));
        if (!stop) stop = lines->end;
        lines->next = stop + 1;
        lines->number++;
        if (stop > line && stop[-1] == '\r') stop--;
        *stop = 0;
        if (stop > line) return line;
    }
    return NULL;
}

static int kge_line_fail(const kge_lines *lines, program_error *error, const char *what) {
    return program_fail(error, "%s/%s:%" PRIu64 ": %s", lines->folder, lines->file, lines->number, what);
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

/* ---- OpenKE folders ----------------------------------------------------------------------------------- */

static int kge_read_count(kge_lines *lines, uint64_t *count, program_error *error) {
    char *line = kge_line(lines);
    if (!line)
        return program_fail(error, "%s/%s is empty; its first line must be the number of entries", lines->folder,
                            lines->file);
    if (kge_number(&line, UINT32_MAX - 2, count) || *line)
        return program_fail(error, "%s/%s:%" PRIu64 ": the first line must be the number of entries, and nothing else",
                            lines->folder, lines->file, lines->number);
    /* Checks a count before memory is allocated for it: an entry is a line, of two bytes at least. */
    uint64_t left = lines->next < lines->end ? (uint64_t)(lines->end - lines->next) : 0;
    if (*count > (left + 1) / 2)
        return program_fail(error,
                            "%s/%s: promises %" PRIu64 " entries in the %" PRIu64 " bytes that follow; is it cut off?",
                            lines->folder, lines->file, *count, left);
    return 0;
}

static int kge_compare_names(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Refuses a name that comes twice. */
static int kge_check_names(const kge_lines *lines, char *const *name, uint64_t count, program_error *error) {
    char **sorted = malloc((size_t)(count + 1) * sizeof *sorted);
    if (!sorted)
        return program_fail(error, "%s/%s: out of memory for %" PRIu64 " names", lines->folder, lines->file, count);
    memcpy(sorted, name, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, kge_compare_names);
    int status = 0;
    for (uint64_t i = 1; i < count && !status; i++)
        if (!strcmp(sorted[i], sorted[i - 1]))
            status = program_fail(error, "%s/%s: the name '%.60s' has two ids; give each name one", lines->folder,
                                  lines->file, sorted[i]);
    free(sorted);
    return status;
}

/* `name<TAB>id` a line, in any order; every id once. */
static int kge_read_ids(kge_lines *lines, kge_names *names, program_error *error) {
    uint64_t count, id;
    if (kge_read_count(lines, &count, error)) return -1;
    char **name = calloc((size_t)count + 1, sizeof *name);
    if (!name)
        return program_fail(error, "%s/%s: out of memory for %" PRIu64 " names", lines->folder, lines->file, count);
    int status = 0;
    char *line;
    for (uint64_t i = 0; i < count && !status; i++) {
        if (!(line = kge_line(lines))) {
            status = program_fail(error, "%s/%s: promises %" PRIu64 " names, holds %" PRIu64 "; is the file cut off?",
                                  lines->folder, lines->file, count, i);
            break;
        }
        char *blank = line + strlen(line);
        while (blank > line && blank[-1] != '\t' && blank[-1] != ' ') blank--;
        char *digits = blank;
        if (blank <= line + 1 || kge_number(&digits, count, &id) || *digits || name[id])
            status = program_fail(error, "%s/%s:%" PRIu64 ": '%.60s' is not a name and an id of its own below %" PRIu64,
                                  lines->folder, lines->file, lines->number, line, count);
        else {
            blank[-1] = 0;
            name[id] = line;
        }
    }
    if (!status && kge_line(lines)) status = kge_line_fail(lines, error, "more names than the first line promises");
    if (!status) status = kge_check_names(lines, name, count, error);
    for (uint64_t i = 0; i < count && !status; i++) status = kge_names_add(names, name[i], strlen(name[i]), error);
    free(name);
    return status;
}

/* `head tail relation` a line: OpenKE's order. */
static int kge_read_id_triples(kge_lines *lines, kge_graph *graph, kge_split *split, program_error *error) {
    uint64_t count, head, tail, relation;
    if (kge_read_count(lines, &count, error)) return -1;
    split->triples = malloc(((size_t)count + 1) * sizeof *split->triples);
    if (!split->triples) return program_fail(error, "out of memory for %" PRIu64 " triples", count);
    for (uint64_t i = 0; i < count; i++) {
        char *line = kge_line(lines), *at = line;
        if (!line)
            return program_fail(error, "%s/%s: promises %" PRIu64 " triples, holds %" PRIu64 "; is the file cut off?",
                                lines->folder, lines->file, count, i);
        if (kge_number(&at, graph->entities.n, &head) || kge_number(&at, graph->entities.n, &tail) ||
            kge_number(&at, graph->relations.n, &relation) || *at)
            return program_fail(error,
                                "%s/%s:%" PRIu64 ": '%.60s' is not `head tail relation` with entities below %" PRIu32
                                " and relations below %" PRIu32 ", the counts of entity2id.txt and relation2id.txt",
                                lines->folder, lines->file, lines->number, line, graph->entities.n, graph->relations.n);
        split->triples[i] = (kge_triple){(uint32_t)head, (uint32_t)relation, (uint32_t)tail};
    }
    split->n = count;
    if (kge_line(lines)) return kge_line_fail(lines, error, "more triples than the first line promises");
    return 0;
}

static int kge_read_openke(kge_graph *graph, const char *folder, program_error *error) {
    static const char *const id_files[] = {"entity2id.txt", "relation2id.txt"};
    static const char *const triple_files[] = {"train2id.txt", "valid2id.txt", "test2id.txt"};
    kge_lines lines;
    for (int i = 0; i < 2; i++) {
        int status = kge_lines_open(&lines, folder, id_files[i], error);
        if (status < 0) return -1;
        if (!status)
            return program_fail(error, "%s holds train2id.txt but no %s; an OpenKE folder needs both", folder,
                                id_files[i]);
        status = kge_read_ids(&lines, i ? &graph->relations : &graph->entities, error);
        free(lines.text);
        if (status) return -1;
    }
    for (int i = 0; i < KGE_SPLITS; i++) {
        int status = kge_lines_open(&lines, folder, triple_files[i], error);
        if (status > 0) status = kge_read_id_triples(&lines, graph, &graph->split[i], error);
        free(lines.text);
        if (status < 0) return -1;
    }
    return 0;
}

/* ---- Folders of plain names --------------------------------------------------------------------------- */

/* Open addressing from names to ids; a slot holds id + 1, 0 is free. */
typedef struct kge_map {
    uint32_t *slot;
    uint64_t mask;
} kge_map;

static uint64_t kge_hash(const char *name, size_t length) {
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return kge_random(hash, 0);
}

static int kge_map_grow(kge_map *map, const kge_names *names, program_error *error) {
    uint64_t size = map->slot ? (map->mask + 1) * 2 : 4096;
    free(map->slot);
    map->slot = calloc(size, sizeof *map->slot);
    if (!map->slot) return program_fail(error, "out of memory for the names of the graph");
    map->mask = size - 1;
    for (uint32_t id = 0; id < names->n; id++) {
        const char *name = kge_name(names, id);
        uint64_t at = kge_hash(name, strlen(name));
        while (map->slot[at & map->mask]) at++;
        map->slot[at & map->mask] = id + 1;
    }
    return 0;
}

/* The id of a name, a new id if it has none yet. */
static int kge_map_id(kge_map *map, kge_names *names, const char *name, uint32_t *id, program_error *error) {
    if ((!map->slot || names->n >= map->mask / 2) && kge_map_grow(map, names, error)) return -1;
    uint64_t at = kge_hash(name, strlen(name));
    for (uint32_t found; (found = map->slot[at & map->mask]); at++)
        if (!strcmp(kge_name(names, found - 1), name)) {
            *id = found - 1;
            return 0;
        }
    *id = names->n;
    map->slot[at & map->mask] = *id + 1;
    return kge_names_add(names, name, strlen(name), error);
}

static int kge_read_name_triples(kge_lines *lines, kge_graph *graph, kge_map *map, kge_split *split,
                                 program_error *error) {
    uint64_t room = 0;
    for (char *line; (line = kge_line(lines)); split->n++) {
        char *relation = strchr(line, '\t'), *tail = relation ? strchr(relation + 1, '\t') : NULL;
        if (!tail || strchr(tail + 1, '\t') || relation == line || tail == relation + 1 || !tail[1])
            return program_fail(error, "%s/%s:%" PRIu64 ": '%.60s' is not head<TAB>relation<TAB>tail", lines->folder,
                                lines->file, lines->number, line);
        *relation = *tail = 0;
        if (split->n == room) {
            room = room ? room * 2 : 4096;
            kge_triple *more = realloc(split->triples, room * sizeof *more);
            if (!more) return program_fail(error, "out of memory for %" PRIu64 " triples", room);
            split->triples = more;
        }
        kge_triple *triple = &split->triples[split->n];
        if (kge_map_id(&map[0], &graph->entities, line, &triple->head, error) ||
            kge_map_id(&map[1], &graph->relations, relation + 1, &triple->relation, error) ||
            kge_map_id(&map[0], &graph->entities, tail + 1, &triple->tail, error))
            return -1;
    }
    return 0;
}

static int kge_read_plain(kge_graph *graph, const char *folder, program_error *error) {
    static const char *const files[] = {"train.txt", "valid.txt", "test.txt"};
    kge_map map[2] = {{0}};
    kge_lines lines;
    int status = 0;
    for (int i = 0; i < KGE_SPLITS && status >= 0; i++) {
        status = kge_lines_open(&lines, folder, files[i], error);
        if (status > 0) status = kge_read_name_triples(&lines, graph, map, &graph->split[i], error);
        free(lines.text);
    }
    free(map[0].slot);
    free(map[1].slot);
    return status < 0 ? -1 : 0;
}

int kge_graph_read(kge_graph *graph, const char *folder, program_error *error) {
    *graph = (kge_graph){0};
    kge_lines lines;
    struct stat status;
    if (stat(folder, &status)) return program_fail(error, "cannot open folder %s: %s", folder, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return program_fail(error, "%s is not a folder", folder);
    int openke = kge_lines_open(&lines, folder, "train2id.txt", error);
    free(lines.text);
    if (openke < 0) return -1;
    int plain = openke ? 0 : kge_lines_open(&lines, folder, "train.txt", error);
    if (!openke) free(lines.text);
    if (plain < 0) return -1;
    if (!openke && !plain)
        return program_fail(error, "%s holds neither train2id.txt (OpenKE) nor train.txt (head<TAB>relation<TAB>tail)",
                            folder);
    if (openke ? kge_read_openke(graph, folder, error) : kge_read_plain(graph, folder, error)) return -1;
    if (!graph->split[KGE_TRAIN].n) return program_fail(error, "%s: no triple to train on", folder);
    return 0;
}

void kge_graph_free(kge_graph *graph) {
    for (int i = 0; i < KGE_SPLITS; i++) free(graph->split[i].triples);
    free(graph->entities.text);
    free(graph->entities.offset);
    free(graph->relations.text);
    free(graph->relations.offset);
    *graph = (kge_graph){0};
}

static uint32_t kge_names_checksum(uint32_t before, const kge_names *names) {
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = kge_name(names, i);
        before = crc32_of(before, name, strlen(name) + 1);
    }
    return before;
}

uint32_t kge_graph_checksum(const kge_graph *graph) {
    uint32_t sum = kge_names_checksum(kge_names_checksum(0, &graph->entities), &graph->relations);
    for (int i = 0; i < KGE_SPLITS; i++) {
        const kge_split *split = &graph->split[i];
        sum = crc32_of(sum, &split->n, sizeof split->n);
        if (split->n) sum = crc32_of(sum, split->triples, split->n * sizeof *split->triples);
    }
    return sum;
}

/* ---- The index of known triples ----------------------------------------------------------------------- */

static int kge_compare(uint32_t a, uint32_t b) {
    return (a > b) - (a < b);
}

static int kge_compare_by_head(const void *left, const void *right) {
    const kge_triple *a = left, *b = right;
    int order = kge_compare(a->head, b->head);
    if (!order) order = kge_compare(a->relation, b->relation);
    return order ? order : kge_compare(a->tail, b->tail);
}

static int kge_compare_by_tail(const void *left, const void *right) {
    const kge_triple *a = left, *b = right;
    int order = kge_compare(a->tail, b->tail);
    if (!order) order = kge_compare(a->relation, b->relation);
    return order ? order : kge_compare(a->head, b->head);
}

int kge_index_build(kge_index *index, const kge_graph *graph, program_error *error) {
    uint64_t n = 0, distinct = 0;
    for (int i = 0; i < KGE_SPLITS; i++) n += graph->split[i].n;
    *index =
        (kge_index){.by_head = malloc((n + 1) * sizeof(kge_triple)), .by_tail = malloc((n + 1) * sizeof(kge_triple))};
    if (!index->by_head || !index->by_tail) {
        kge_index_free(index);
        return program_fail(error, "out of memory for the index of %" PRIu64 " triples", n);
    }
    kge_triple *all = index->by_head;
    for (int i = 0; i < KGE_SPLITS; i++)
        if (graph->split[i].n) {
            memcpy(all, graph->split[i].triples, graph->split[i].n * sizeof *all);
            all += graph->split[i].n;
        }
    all = index->by_head;
    qsort(all, n, sizeof *all, kge_compare_by_head);
    for (uint64_t i = 0; i < n; i++)
        if (!i || kge_compare_by_head(&all[i], &all[distinct - 1])) all[distinct++] = all[i];
    index->n = distinct;
    memcpy(index->by_tail, all, distinct * sizeof *all);
    qsort(index->by_tail, distinct, sizeof *all, kge_compare_by_tail);
    return 0;
}

void kge_index_free(kge_index *index) {
    free(index->by_head);
    free(index->by_tail);
    *index = (kge_index){0};
}

uint64_t kge_index_answers(const kge_index *index, kge_side side, uint32_t anchor, uint32_t relation,
                           const kge_triple **answers) {
    const kge_triple *all = side == KGE_TAILS ? index->by_head : index->by_tail;
    uint64_t bound[2];
    for (uint64_t which = 0; which < 2; which++) { /* the first triple not below the question; behind it */
        uint64_t low = 0, high = index->n;
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            uint32_t end = side == KGE_TAILS ? all[middle].head : all[middle].tail;
            int order = kge_compare(end, anchor);
            if (!order) order = kge_compare(all[middle].relation, relation);
            if (order < (int)which)
                low = middle + 1;
            else
                high = middle;
        }
        bound[which] = low;
    }
    *answers = all + bound[0];
    return bound[1] - bound[0];
}
