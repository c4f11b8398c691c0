/* graph.h - a second, slow and plain reading of the folders that trainers/kge/data.h reads, to compare with.
 *
 * It says of files in memory what they hold, or which file and line is to be refused first. A line of 0: the message
 * names the file as a whole; a file of NULL: the folder. */
#ifndef FUZZ_GRAPH_H
#define FUZZ_GRAPH_H

#include "trainers/kge/data.h"
#include "fuzz.h"

enum { GRAPH_FILES = 8 };
static const char *const graph_files[GRAPH_FILES] = {"train2id.txt", "entity2id.txt", "relation2id.txt", "valid2id.txt",
                                                     "test2id.txt",  "train.txt",     "valid.txt",       "test.txt"};

typedef struct text {
    const char *bytes; /* NULL: there is no such file */
    size_t n;
} text;

typedef struct name_list {
    text *names; /* names[n] */
    uint64_t n;
} name_list;

typedef struct reading {
    int refused;
    const char *file;
    uint64_t line;
    name_list entities, relations;
    kge_split splits[KGE_SPLITS];
} reading;

/* The first refusal counts. */
static int graph_refuse(reading *r, const char *file, uint64_t line) {
    if (!r->refused) r->refused = 1, r->file = file, r->line = line;
    return 0;
}

static text graph_file(const text files[GRAPH_FILES], const char *name) {
    for (int i = 0; i < GRAPH_FILES; i++)
        if (!strcmp(graph_files[i], name)) return files[i];
    return (text){0};
}

/* >>lines and fields */

/* Cuts the next line that is not empty off *rest, without \n or \r\n; counts lines in *number. A line with a zero byte
 * is refused, and 0. */
static int graph_line(reading *r, const char *file, text *rest, text *line, uint64_t *number) {
    if (*number == 0 && rest->n >= 3 && !memcmp(rest->bytes, "\xef\xbb\xbf", 3)) /* a byte order mark */
        rest->bytes += 3, rest->n -= 3;
    while (rest->n > 0) {
        size_t n = 0;
        while (n < rest->n && rest->bytes[n] != '\n') n++;
        *line = (text){rest->bytes, n};
        rest->bytes += n, rest->n -= n;
        if (rest->n > 0) rest->bytes++, rest->n--;
        if (line->n > 0 && line->bytes[line->n - 1] == '\r') line->n--;
        ++*number;
        if (memchr(line->bytes, 0, line->n)) return graph_refuse(r, file, *number);
        if (line->n > 0) return 1;
    }
    return 0;
}

static int graph_is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* Digits that make a number below `limit`. */
static int graph_number(text field, uint64_t limit, uint64_t *value) {
    char digits[24];
    if (field.n == 0) return 0;
    for (size_t i = 0; i < field.n; i++)
        if (field.bytes[i] < '0' || field.bytes[i] > '9') return 0;
    while (field.n > 1 && *field.bytes == '0') field.bytes++, field.n--;
    if (field.n > 19) return 0;
    memcpy(digits, field.bytes, field.n);
    digits[field.n] = 0;
    *value = strtoull(digits, NULL, 10);
    return *value < limit;
}

/* The fields of a line, between blanks; how many there are, at most `most` + 1. */
static int graph_fields(text line, text *fields, int most) {
    int n = 0;
    for (size_t at = 0; at < line.n;) {
        size_t from = at;
        while (at < line.n && !graph_is_blank(line.bytes[at])) at++;
        if (at > from && n == most) return most + 1;
        if (at > from) fields[n++] = (text){line.bytes + from, at - from};
        if (at < line.n) at++;
    }
    return n;
}

static int graph_same(text a, text b) {
    return a.n == b.n && !memcmp(a.bytes, b.bytes, a.n);
}

static uint64_t graph_find(const name_list *list, text name) {
    uint64_t i = 0;
    while (i < list->n && !graph_same(list->names[i], name)) i++;
    return i;
}

/* >>files */

/* The count of the first line; every entry to come takes a line, of two bytes at least. */
static int graph_count(reading *r, const char *file, text *rest, uint64_t *number, uint64_t *count) {
    text line, field;
    if (!graph_line(r, file, rest, &line, number)) return graph_refuse(r, file, 0);
    if (graph_fields(line, &field, 1) != 1 || !graph_number(field, UINT32_MAX - 2, count))
        return graph_refuse(r, file, *number);
    return *count > (rest->n + 1) / 2 ? graph_refuse(r, file, 0) : 1;
}

static int graph_ids(reading *r, const char *file, text rest, name_list *list) {
    uint64_t count, id, number = 0;
    text line;
    if (!graph_count(r, file, &rest, &number, &count)) return 0;
    list->names = calloc(count + 1, sizeof *list->names);
    list->n = count;
    for (uint64_t i = 0; i < count; i++) {
        if (!graph_line(r, file, &rest, &line, &number)) return graph_refuse(r, file, 0);
        size_t cut = line.n;
        while (cut > 0 && !graph_is_blank(line.bytes[cut - 1])) cut--;
        text name = {line.bytes, cut ? cut - 1 : 0}, digits = {line.bytes + cut, line.n - cut};
        if (name.n == 0 || !graph_number(digits, count, &id) || list->names[id].bytes)
            return graph_refuse(r, file, number);
        list->names[id] = name;
    }
    if (graph_line(r, file, &rest, &line, &number)) return graph_refuse(r, file, number);
    for (uint64_t i = 0; i < count && !r->refused; i++)
        if (graph_find(list, list->names[i]) != i) return graph_refuse(r, file, 0);
    return !r->refused;
}

static int graph_triples(reading *r, const char *file, text rest, kge_split *split) {
    uint64_t count, number = 0, head, tail, relation;
    text line, fields[3];
    if (!graph_count(r, file, &rest, &number, &count)) return 0;
    split->triples = calloc(count + 1, sizeof *split->triples);
    for (; split->n < count; split->n++) {
        if (!graph_line(r, file, &rest, &line, &number)) return graph_refuse(r, file, 0);
        if (graph_fields(line, fields, 3) != 3 || !graph_number(fields[0], r->entities.n, &head) ||
            !graph_number(fields[1], r->entities.n, &tail) || !graph_number(fields[2], r->relations.n, &relation))
            return graph_refuse(r, file, number);
        split->triples[split->n] = (kge_triple){(uint32_t)head, (uint32_t)relation, (uint32_t)tail};
    }
    if (graph_line(r, file, &rest, &line, &number)) return graph_refuse(r, file, number);
    return !r->refused;
}

/* The number of a name, in the order in which they come. */
static uint32_t graph_intern(name_list *list, text name) {
    uint64_t id = graph_find(list, name);
    if (id == list->n) {
        list->names = realloc(list->names, (id + 1) * sizeof *list->names);
        list->names[list->n++] = name;
    }
    return (uint32_t)id;
}

static int graph_named_triples(reading *r, const char *file, text rest, kge_split *split) {
    uint64_t number = 0;
    for (text line; graph_line(r, file, &rest, &line, &number); split->n++) {
        text parts[3] = {{line.bytes, 0}};
        int n = 0;
        for (size_t i = 0; i < line.n && n < 3; i++) {
            if (line.bytes[i] != '\t')
                parts[n].n++;
            else if (++n < 3)
                parts[n] = (text){line.bytes + i + 1, 0};
        }
        if (n != 2 || !parts[0].n || !parts[1].n || !parts[2].n) return graph_refuse(r, file, number);
        split->triples = realloc(split->triples, (split->n + 1) * sizeof *split->triples);
        kge_triple *t = &split->triples[split->n];
        t->head = graph_intern(&r->entities, parts[0]);
        t->relation = graph_intern(&r->relations, parts[1]);
        t->tail = graph_intern(&r->entities, parts[2]);
    }
    return !r->refused;
}

/* >>folders */

/* The files in the order in which they are opened. Kinds: 0 ids of entities, 1 of relations, 2 ids, 3 names. */
static int graph_read_files(reading *r, const text files[GRAPH_FILES], const char *const *names, int n, int with_ids) {
    for (int i = 0; i < n; i++) {
        text whole = graph_file(files, names[i]);
        int split = with_ids ? i - 2 : i, ok = 1;
        if (!whole.bytes && split < 0) return graph_refuse(r, names[i], 0);
        if (!whole.bytes) continue;
        if (split < 0)
            ok = graph_ids(r, names[i], whole, i == 0 ? &r->entities : &r->relations);
        else if (with_ids)
            ok = graph_triples(r, names[i], whole, &r->splits[split]);
        else
            ok = graph_named_triples(r, names[i], whole, &r->splits[split]);
        if (!ok) return 0;
    }
    return 1;
}

static reading graph_read(const text files[GRAPH_FILES]) {
    static const char *const ids[] = {"entity2id.txt", "relation2id.txt", "train2id.txt", "valid2id.txt",
                                      "test2id.txt"};
    static const char *const plain[] = {"train.txt", "valid.txt", "test.txt"};
    reading r = {0};
    int with_ids = graph_file(files, "train2id.txt").bytes != NULL;
    const char *first = with_ids ? "train2id.txt" : "train.txt"; /* looked for before the others are read */
    if (!graph_file(files, first).bytes) graph_refuse(&r, NULL, 0);
    if (r.refused) return r;
    if (!graph_read_files(&r, files, with_ids ? ids : plain, with_ids ? 5 : 3, with_ids)) return r;
    if (r.splits[KGE_TRAIN].n == 0) graph_refuse(&r, NULL, 0);
    return r;
}

static void graph_free(reading *r) {
    free(r->entities.names), free(r->relations.names);
    for (int i = 0; i < KGE_SPLITS; i++) free(r->splits[i].triples);
}

/* >>comparing */

/* One line that names the folder, and the file and line where the reading knows them. */
static void graph_check_message(const reading *r, const char *folder, const program_error *error) {
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s", folder);
    if (r->file) snprintf(wanted, sizeof wanted, "%s%s%s", folder, r->line ? "/" : "", r->line ? r->file : "");
    if (r->line) snprintf(wanted + strlen(wanted), 32, ":%" PRIu64 ": ", r->line);
    if (!memchr(error->text, 0, sizeof error->text) || strchr(error->text, '\n') || !strstr(error->text, wanted) ||
        (r->file && !strstr(error->text, r->file)))
        fail_msg("refused, and says '%.500s', without '%s' and '%s'", error->text, wanted, r->file ? r->file : "");
}

static void graph_check_names(const kge_names *names, const name_list *wanted) {
    assert_true(names->n == wanted->n);
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = kge_name(names, i);
        assert_true(graph_same((text){name, strlen(name)}, wanted->names[i]));
    }
}

static void graph_check(const kge_graph *graph, const reading *r) {
    graph_check_names(&graph->entities, &r->entities);
    graph_check_names(&graph->relations, &r->relations);
    for (int i = 0; i < KGE_SPLITS; i++) {
        assert_true(graph->split[i].n == r->splits[i].n);
        if (r->splits[i].n)
            assert_true(!memcmp(graph->split[i].triples, r->splits[i].triples, r->splits[i].n * sizeof(kge_triple)));
    }
}

/* Reads the folder, which holds `files`, both ways. 0: it was refused; else *graph is the caller's. */
static int graph_agree(const char *folder, const text files[GRAPH_FILES], kge_graph *graph, reading *r) {
    program_error error = {.text = ""};
    int status = kge_graph_read(graph, folder, &error);
    *r = graph_read(files);
    if (r->refused != (status != 0))
        fail_msg("%s: %s; line %" PRIu64 " of %s %s", status ? "refused" : "accepted", error.text, r->line,
                 r->file ? r->file : "the folder", r->refused ? "is to be refused" : "");
    if (!status) graph_check(graph, r);
    if (!status) return 1;
    graph_check_message(r, folder, &error);
    kge_graph_free(graph);
    graph_free(r);
    return 0;
}

#endif /* FUZZ_GRAPH_H */
