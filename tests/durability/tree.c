/* tree.c - see tree.h. */
#include "tests/durability/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn void fail(const char *what) {
    fprintf(stderr, "replay: %s\n", what);
    exit(3);
}
void *must(void *memory) {
    if (!memory) fail("no memory");
    return memory;
}
uint64_t next_random(uint64_t *random) { /* splitmix64 */
    uint64_t z = *random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}
uint64_t hash_of(const void *data, size_t bytes) {
    uint64_t hash = bytes * UINT64_C(0x9E3779B97F4A7C15) + 1, word = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        word = 0;
        memcpy(&word, (const uint8_t *)data + i, bytes - i < 8 ? bytes - i : 8);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Room for one more of an array that doubles. */
#define GROW(array, n)                                                                                                 \
    (((n) & ((n)-1)) == 0 ? (array) = must(realloc((array), ((n) ? 2 * (n) : 1) * sizeof *(array))) : (array))

/* >>files */

static uint8_t *read_file(const char *name, size_t *bytes) {
    FILE *file = fopen(name, "rb");
    struct stat there;
    if (!file || fstat(fileno(file), &there)) fail(name);
    *bytes = (size_t)there.st_size;
    uint8_t *data = must(malloc(*bytes + 1));
    if (fread(data, 1, *bytes, file) != *bytes) fail(name);
    fclose(file);
    return data;
}

static int remove_one(const char *name, const struct stat *there, int type, struct FTW *place) {
    (void)there, (void)type, (void)place;
    return remove(name);
}
void remove_folder(const char *folder) {
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static long add_node(history *h, int is_folder, const char *name) {
    GROW(h->nodes, h->n_nodes);
    h->nodes[h->n_nodes] = (node){.is_folder = is_folder, .name = name};
    return (long)h->n_nodes++;
}

static void add_before(history *h, long folder, const char *path) {
    DIR *open = opendir(path);
    if (!open) fail(path);
    for (struct dirent *each; (each = readdir(open));) {
        char name[TREE_NAME + 256];
        struct stat there;
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
        snprintf(name, sizeof name, "%s/%s", path, each->d_name);
        if (stat(name, &there)) fail(name);
        char *own = must(strdup(each->d_name));
        long at = add_node(h, S_ISDIR(there.st_mode), own);
        GROW(h->before, h->n_before);
        h->before[h->n_before++] = (entry){folder, at, own};
        if (S_ISDIR(there.st_mode))
            add_before(h, at, name);
        else
            h->nodes[at].data = read_file(name, &h->nodes[at].bytes);
    }
    closedir(open);
}

/* >>names */

static size_t find(const entry *entries, size_t n, long folder, const char *name, size_t bytes) {
    for (size_t i = 0; i < n; i++)
        if (entries[i].folder == folder && strlen(entries[i].name) == bytes && !memcmp(entries[i].name, name, bytes))
            return i;
    return n;
}

/* `node` NO_NODE removes the name. */
static void set_entry(entry **entries, size_t *n, long folder, const char *name, long node) {
    size_t at = find(*entries, *n, folder, name, strlen(name));
    if (at < *n) (*entries)[at] = (*entries)[--*n];
    if (node == NO_NODE) return;
    GROW(*entries, *n);
    (*entries)[(*n)++] = (entry){folder, node, name};
}

static void apply_names(entry **entries, size_t *n, const change *c) {
    if (c->from != NO_NODE) set_entry(entries, n, c->from, c->from_name, NO_NODE);
    set_entry(entries, n, c->folder, c->name, c->node);
}

/* The folder and the last part of a path below `root`. */
static long folder_of(const history *h, const char *root, const char *path, const char **last) {
    long folder = 0;
    if (strncmp(path, root, strlen(root))) fail("a path outside of the folder");
    const char *at = path + strlen(root) + (path[strlen(root)] == '/');
    for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
        size_t i = find(h->now, h->n_now, folder, at, (size_t)(slash - at));
        if (i == h->n_now) fail("a path whose folder is not there");
        folder = h->now[i].node;
    }
    *last = at;
    return folder;
}
static long node_of(const history *h, const char *root, const char *path) {
    const char *last;
    long folder = folder_of(h, root, path, &last);
    if (!*last) return folder;
    size_t i = find(h->now, h->n_now, folder, last, strlen(last));
    return i < h->n_now ? h->now[i].node : NO_NODE;
}

/* >>the log */

static void read_records(history *h, const char *log) {
    size_t bytes, at = 0;
    uint8_t *all = h->log = read_file(log, &bytes);
    while (at + sizeof(log_record) <= bytes) {
        log_record *r = must(malloc(sizeof *r));
        memcpy(r, all + at, sizeof *r);
        if (r->magic != LOG_MAGIC || r->type >= LOG_TYPE_COUNT) fail("the log is damaged");
        const char *text = (const char *)all + at + sizeof *r;
        at += sizeof *r + r->path_bytes + r->second_bytes + r->data_bytes;
        if (at > bytes) fail("the log is cut");
        GROW(h->records, h->n_records);
        h->records[h->n_records].record = r;
        h->records[h->n_records].path = text;
        h->records[h->n_records].second = text + r->path_bytes;
        h->records[h->n_records++].data = (const uint8_t *)text + r->path_bytes + r->second_bytes;
    }
}

typedef struct reading {
    const char *root;
    long *handles; /* node of each handle of the process */
    size_t n_handles;
} reading;

static long node_of_handle(const reading *r, uint64_t handle) {
    if (handle >= r->n_handles || r->handles[handle] == NO_NODE) fail("a handle that nothing has opened");
    return r->handles[handle];
}

static change *add_change(history *h, size_t at, int is_name) {
    GROW(h->ops, h->n_ops);
    h->ops[h->n_ops] = (change){.is_name = is_name,
                                .at = (long)at,
                                .synced = NEVER,
                                .type = h->records[at].record->type,
                                .node = NO_NODE,
                                .from = NO_NODE};
    return &h->ops[h->n_ops++];
}

static void change_name(history *h, size_t at, const reading *r, const char *path, long node, const char *from) {
    change *c = add_change(h, at, 1);
    c->folder = folder_of(h, r->root, path, &c->name);
    c->node = node;
    if (from) c->from = folder_of(h, r->root, from, &c->from_name);
    apply_names(&h->now, &h->n_now, c);
}

static void change_data(history *h, size_t at, long node, uint64_t offset, uint64_t length, const uint8_t *data) {
    change *c = add_change(h, at, 0);
    c->node = node, c->offset = offset, c->length = length, c->data = data;
    if (h->records[at].record->flags & LOG_DURABLE) c->synced = (long)at;
}

static void open_node(history *h, size_t at, reading *r) {
    const log_record *record = h->records[at].record;
    const char *path = h->records[at].path, *last;
    folder_of(h, r->root, path, &last);
    if (record->flags & LOG_CREATED) change_name(h, at, r, path, add_node(h, 0, last), NULL);
    long node = node_of(h, r->root, path);
    if (node == NO_NODE) fail("a file was opened that the log has not made");
    if (record->flags & LOG_TRUNCATED) {
        change_data(h, at, node, 0, 0, NULL);
        h->ops[h->n_ops - 1].type = LOG_TRUNCATE;
    }
    while (r->n_handles <= record->handle) {
        GROW(r->handles, r->n_handles);
        r->handles[r->n_handles++] = NO_NODE;
    }
    r->handles[record->handle] = node;
}

/* fsync of a file: its data; of a folder: its names. msync: the changes that lie in the range. */
static void sync_node(history *h, size_t at, long node, uint64_t from, uint64_t to) {
    for (size_t i = 0; i < h->n_ops; i++) {
        change *c = &h->ops[i];
        int of_node = c->is_name ? c->folder == node : c->node == node;
        int whole = from == 0 && to == UINT64_MAX;
        int inside = whole || (c->data && c->offset >= from && c->offset + c->length <= to);
        if (c->synced == NEVER && of_node && inside && c->is_name == h->nodes[node].is_folder) c->synced = (long)at;
    }
}

static void read_change(history *h, size_t at, reading *r) {
    const log_record *record = h->records[at].record;
    const char *path = h->records[at].path, *second = h->records[at].second, *last;
    const uint8_t *data = h->records[at].data;
    uint64_t page = 4095;
    switch (record->type) {
    case LOG_ROOT:
        r->root = path, r->n_handles = 0;
        break;
    case LOG_OPEN:
        open_node(h, at, r);
        break;
    case LOG_WRITE:
    case LOG_MAPPED:
        change_data(h, at, node_of_handle(r, record->handle), record->offset, record->data_bytes, data);
        break;
    case LOG_TRUNCATE:
    case LOG_RESERVE:
        change_data(h, at, node_of_handle(r, record->handle), record->offset, record->length, NULL);
        break;
    case LOG_SYNC:
        sync_node(h, at, node_of_handle(r, record->handle), 0, UINT64_MAX);
        break;
    case LOG_MAP_SYNC:
        sync_node(h, at, node_of_handle(r, record->handle), record->offset & ~page,
                  (record->offset + record->length + page) & ~page);
        break;
    case LOG_RENAME:
        change_name(h, at, r, second, node_of(h, r->root, path), path);
        break;
    case LOG_LINK:
        change_name(h, at, r, second, node_of(h, r->root, path), NULL);
        break;
    case LOG_UNLINK:
        change_name(h, at, r, path, NO_NODE, NULL);
        break;
    case LOG_FOLDER:
        folder_of(h, r->root, path, &last);
        change_name(h, at, r, path, add_node(h, 1, last), NULL);
        break;
    default:
        break;
    }
}

history history_read(const char *log, const char *before) {
    history h = {0};
    reading r = {0};
    read_records(&h, log);
    if (!before) return h;
    add_node(&h, 1, "");
    add_before(&h, 0, before);
    for (size_t i = 0; i < h.n_before; i++) {
        GROW(h.now, h.n_now);
        h.now[h.n_now++] = h.before[i];
    }
    for (size_t i = 0; i < h.n_records; i++)
        if (!(h.records[i].record->flags & LOG_FAILED)) read_change(&h, i, &r);
    free(r.handles);
    return h;
}

void history_free(history *h) {
    for (size_t i = 0; i < h->n_records; i++) free((void *)(uintptr_t)h->records[i].record);
    for (size_t i = 0; i < h->n_nodes; i++) free(h->nodes[i].data);
    for (size_t i = 0; i < h->n_before; i++) free((void *)(uintptr_t)h->before[i].name);
    free(h->records), free(h->nodes), free(h->before), free(h->now), free(h->ops), free(h->log);
    *h = (history){0};
}

int op_is_pending(const change *c, size_t moment) {
    return c->at < (long)moment && (c->synced == NEVER || c->synced >= (long)moment);
}

const char *ack_at(const history *h, size_t moment) {
    static char ack[256];
    ack[0] = 0;
    for (size_t i = moment; i > 0 && !ack[0]; i--) {
        const log_record *r = h->records[i - 1].record;
        if (r->type != LOG_ACK) continue;
        snprintf(ack, sizeof ack, "%.*s", (int)r->data_bytes, (const char *)h->records[i - 1].data);
        ack[strcspn(ack, "\n")] = 0;
    }
    return ack;
}

/* >>the folder that some changes make */

static void resize(tree *t, long node, size_t bytes) {
    t->data[node] = must(realloc(t->data[node], bytes + 1));
    if (bytes > t->bytes[node]) memset(t->data[node] + t->bytes[node], 0, bytes - t->bytes[node]);
    t->bytes[node] = bytes;
}

static void apply_data(tree *t, const change *c, uint8_t way, uint64_t *random) {
    size_t end = (size_t)(c->offset + c->length);
    if (c->type == LOG_TRUNCATE) {
        resize(t, c->node, (size_t)c->length);
        return;
    }
    if (end > t->bytes[c->node]) resize(t, c->node, end);
    if (!c->data || way == SIZE_ALONE) return;
    size_t block = way == WHOLE ? (size_t)c->length : c->length > 4096 ? 4096 : 512;
    for (size_t at = 0; at < c->length; at += block) {
        size_t n = c->length - at < block ? (size_t)c->length - at : block;
        if (way == WHOLE || next_random(random) % 2) memcpy(t->data[c->node] + c->offset + at, c->data + at, n);
    }
}

tree tree_make(const history *h, size_t moment, const uint8_t *chosen, uint64_t seed) {
    tree t = {.history = h,
              .data = must(calloc(h->n_nodes, sizeof *t.data)),
              .bytes = must(calloc(h->n_nodes, sizeof *t.bytes))};
    uint64_t random = seed;
    for (size_t i = 0; i < h->n_before; i++) {
        GROW(t.entries, t.n_entries);
        t.entries[t.n_entries++] = h->before[i];
    }
    for (size_t i = 0; i < h->n_nodes; i++) {
        resize(&t, (long)i, h->nodes[i].bytes);
        if (h->nodes[i].data) memcpy(t.data[i], h->nodes[i].data, h->nodes[i].bytes);
    }
    for (size_t i = 0; i < h->n_ops && h->ops[i].at < (long)moment; i++) {
        uint8_t way = op_is_pending(&h->ops[i], moment) ? chosen[i] : WHOLE;
        if (way == NOT_THERE) continue;
        if (h->ops[i].is_name)
            apply_names(&t.entries, &t.n_entries, &h->ops[i]);
        else
            apply_data(&t, &h->ops[i], way, &random);
    }
    return t;
}

/* The order of names must not count, so their hashes are added. */
static uint64_t hash_below(const tree *t, long folder) {
    uint64_t sum = 1;
    for (size_t i = 0; i < t->n_entries; i++) {
        const entry *e = &t->entries[i];
        if (e->folder != folder) continue;
        uint64_t pair[2] = {hash_of(e->name, strlen(e->name)), t->history->nodes[e->node].is_folder
                                                                   ? hash_below(t, e->node)
                                                                   : hash_of(t->data[e->node], t->bytes[e->node])};
        sum += hash_of(pair, sizeof pair);
    }
    return sum;
}
uint64_t tree_hash(const tree *t) {
    return hash_below(t, 0);
}

static void write_below(const tree *t, long folder, const char *path) {
    if (mkdir(path, 0777)) fail(path);
    for (size_t i = 0; i < t->n_entries; i++) {
        const entry *e = &t->entries[i];
        char name[2 * TREE_NAME];
        if (e->folder != folder) continue;
        if (snprintf(name, sizeof name, "%s/%s", path, e->name) >= TREE_NAME) fail("a long name");
        if (t->history->nodes[e->node].is_folder) {
            write_below(t, e->node, name);
            continue;
        }
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(t->data[e->node], 1, t->bytes[e->node], file) != t->bytes[e->node] || fclose(file))
            fail(name);
    }
}
void tree_write(const tree *t, const char *folder) {
    write_below(t, 0, folder);
}

void tree_free(tree *t) {
    for (size_t i = 0; i < t->history->n_nodes; i++) free(t->data[i]);
    free(t->data);
    free(t->bytes);
    free(t->entries);
}

/* >>programs */

int exit_status(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void nap(double seconds) {
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&rest, NULL);
}

int run_program(char **arguments, const char *const *more, const char *said, unsigned limit, kill_time *when) {
    size_t n = 0, m = 0;
    while (arguments[n]) n++;
    while (more && more[m]) m++;
    char **all = must(calloc(n + m + 1, sizeof *all));
    for (size_t i = 0; i < n + m; i++) all[i] = i < n ? arguments[i] : (char *)(uintptr_t)more[i - n];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(said, "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(126);
        alarm(limit); /* the alarm survives exec, so a program that hangs dies of SIGALRM */
        execvp(all[0], all);
        _exit(127);
    }
    if (child < 0) fail("cannot start a program");
    if (when && !when->never) {
        nap(when->seconds);
        kill(child, SIGKILL);
    }
    int status = 0;
    if (waitpid(child, &status, 0) < 0) fail("cannot wait for a program");
    if (when) when->killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    free(all);
    return status;
}
