/* tree.h - a log read as the changes that it makes to a folder, and the folder that some of them make. For replay.c. */
#ifndef TREE_H
#define TREE_H

#include "tests/durability/faults.h"

enum { TREE_NAME = 4096, NO_NODE = -1, NEVER = -1 };
enum { NOT_THERE, WHOLE, SOME_BLOCKS, SIZE_ALONE }; /* what is left of a change that was not synced */

typedef struct node { /* a file or a folder, whatever its names; node 0 is the folder itself */
    int is_folder;
    uint8_t *data; /* at the beginning */
    size_t bytes;
    const char *name; /* a name that it had */
} node;

typedef struct change {
    int is_name; /* the change is of a name; else of a file's data */
    long at;     /* the record that made it */
    long synced; /* the record that made it durable; or NEVER */
    /* data: type of the record; truncation has no data */
    uint32_t type;
    long node; /* the node whose data change; or what `name` in `folder` becomes; NO_NODE: removed */
    uint64_t offset, length;
    const uint8_t *data;
    long folder;
    const char *name;
    long from; /* a renamed node's folder before, and its name there; NO_NODE: not renamed */
    const char *from_name;
} change;

typedef struct entry {
    long folder, node;
    const char *name;
} entry;

typedef struct history {
    struct {
        const log_record *record;
        const char *path, *second;
        const uint8_t *data;
    } * records;
    size_t n_records;
    uint8_t *log;
    node *nodes;
    size_t n_nodes;
    change *ops;
    size_t n_ops;
    entry *before, *now; /* names before the first record, and while the log is read */
    size_t n_before, n_now;
} history;

typedef struct tree {
    const history *history;
    entry *entries;
    size_t n_entries;
    uint8_t **data; /* of each node */
    size_t *bytes;
} tree;

_Noreturn void fail(const char *what);
void *must(void *memory); /* ends the process if it is NULL */
uint64_t next_random(uint64_t *random);
uint64_t hash_of(const void *data, size_t bytes);

/* Reads a log, and the folder as it was before (NULL: records alone). */
history history_read(const char *log, const char *before);
void history_free(history *h);
/* Was the change made before `moment`, a number of records, and not synced then? */
int op_is_pending(const change *c, size_t moment);
/* The last report before `moment`, without its end of line; "" if there is none. */
const char *ack_at(const history *h, size_t moment);
/* The folder at `moment`: all that was synced, and of the other changes those that `chosen` says, by op. */
tree tree_make(const history *h, size_t moment, const uint8_t *chosen, uint64_t seed);
uint64_t tree_hash(const tree *t);
void tree_write(const tree *t, const char *folder);
void tree_free(tree *t);
void remove_folder(const char *folder);

typedef struct kill_time { /* after this time a program is killed */
    double seconds;
    int never;  /* it is not */
    int killed; /* out */
} kill_time;
/* Runs a program with further arguments (`more`, ended by NULL); its output goes to the file `said`. It is killed after
 * `limit` seconds. Returns its status from waitpid. */
int run_program(char **arguments, const char *const *more, const char *said, unsigned limit, kill_time *when);
/* The exit status that a shell would give for a status of waitpid. */
int exit_status(int status);

#endif /* TREE_H */
