/* table.h - where the table lies, what its rows are worth, saves that are read, traces.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_TABLE_H
#define FRUGAL_TABLE_H

#include "../rows/rows.h"

#include "../counting.h"

/* deal.c */

FRUGAL_INTERNAL frugal_status open_dealing(frugal *f, const frugal_desc *desc);
FRUGAL_INTERNAL void number_rows(frugal *f);
FRUGAL_INTERNAL void close_dealing(frugal *f);
FRUGAL_INTERNAL uint64_t count_below(const uint32_t *rising, uint64_t n, uint64_t value);
FRUGAL_INTERNAL uint64_t own_ids_below(const dealing *g, uint64_t id);
FRUGAL_INTERNAL uint32_t sum_of_dealing(const frugal *f);
FRUGAL_INTERNAL uint32_t home_of_id(const dealing *g, uint64_t id);
FRUGAL_INTERNAL uint32_t dealt_number(const dealing *g, uint64_t id);
FRUGAL_INTERNAL uint64_t id_of_dealt(const dealing *g, uint32_t k, uint32_t number);
FRUGAL_INTERNAL void wake_machines(frugal *f);

/* Of keys of a table, as users number them. */
static inline uint64_t keys_of(const frugal *f, uint32_t t) {
    return f->dealing ? f->dealing->first_id[t + 1] - f->dealing->first_id[t] : f->desc.tables[t].rows;
}
static inline uint64_t first_id_of(const frugal *f, uint32_t t) {
    return f->dealing ? f->dealing->first_id[t] : f->first_row[t];
}

/* init.c */

FRUGAL_INTERNAL void init_table(const frugal *f, int new_weights, int new_state, int kept);

/* table_file.c */

struct table_file {
    file_name name;
    new_file made; /* a new one, until it has its name */
    int file;      /* descriptor with the lock; -1: none */
    int empty;     /* descriptor, locked, of the empty file whose name a new one takes; -1: none */
    int kept;      /* the file existed before */
    int torn;      /* 1: its rows are not those of the header's step: it was torn, or they are being overwritten */
    /* 1: the header on the disk says "in use". Set under the lock, when the disk has that header. Relaxed: it publishes
     * nothing else in memory. */
    FRUGAL_ATOMIC(uint32_t) marked;
    pthread_mutex_t lock; /* for marking, which several loaders may do at a time */
    table_header header;  /* as it was written or read last */
    void *map;            /* the mapping of the whole file, or NULL */
};

/* Of a file of this type. */
static inline uint32_t table_version(frugal_type rows_as) {
    return rows_as == FRUGAL_FP32 ? TABLE_OF_FLOATS : TABLE_VERSION;
}

FRUGAL_INTERNAL frugal_status fail_taken(int file, const char *how, const char *name);
FRUGAL_INTERNAL frugal_status read_header(table_file *t, uint64_t bytes, uint64_t old);
FRUGAL_INTERNAL saved_table describe_table(const frugal *f, uint32_t table);
FRUGAL_INTERNAL frugal_status open_table_file(frugal *f, const table_header *wanted, uint64_t old);
FRUGAL_INTERNAL int table_descriptor(const frugal *f);
FRUGAL_INTERNAL unsigned char *table_map(const frugal *f);
FRUGAL_INTERNAL frugal_status use_table_file(frugal *f);
FRUGAL_INTERNAL frugal_status overwrite_table_file(frugal *f);
FRUGAL_INTERNAL frugal_status publish_table_file(frugal *f);
FRUGAL_INTERNAL void drop_table_file(frugal *f);
FRUGAL_INTERNAL frugal_status close_table_file(frugal *f, uint64_t next, int drained);

/* table.c */

FRUGAL_INTERNAL uint64_t aligned_bytes(uint64_t bytes);
FRUGAL_INTERNAL uint64_t aligned_floats(uint32_t floats);
FRUGAL_INTERNAL uint64_t row_pitch(const frugal_store *s, int element_wise);
FRUGAL_INTERNAL frugal_status open_table(frugal *f);
FRUGAL_INTERNAL void fill_table(frugal *f);

/* worth.c */

/* A byte of which only the level is known. */
static inline uint8_t byte_of_level(uint32_t level) {
    return (uint8_t)(level << LEVEL_AT | STAYED);
}

FRUGAL_INTERNAL void list_counts(uint64_t *counts);
FRUGAL_INTERNAL uint32_t level_of_count(const uint64_t *counts, uint64_t count);
FRUGAL_INTERNAL frugal_status open_counts_in(frugal *f, void *(*make)(frugal *f));
FRUGAL_INTERNAL frugal_status open_counts(frugal *f);
FRUGAL_INTERNAL void close_counts(frugal *f);
FRUGAL_INTERNAL int is_counting(frugal *f);
FRUGAL_INTERNAL void age_rows(frugal *f, uint64_t step, uint64_t from, uint64_t end);
FRUGAL_INTERNAL void count_rows(frugal *f, uint32_t d, host_batch *b, uint32_t from, uint32_t end);
FRUGAL_INTERNAL void count_whole(frugal *f, uint32_t d, host_batch *b);

#ifndef FRUGAL_NO_SAVES

/* saved.c */

typedef struct saved_reader { /* a save that is being read */
    int file;
    const char *name;
    char *path; /* of a share: what `name` points to, which the reader's owner frees; else NULL */
    uint64_t bytes;
    saved_file head;
    saved_file set;          /* of a share: its manifest's; else `head` */
    uint32_t homes_checksum; /* of a share: its manifest's */
    saved_part part;         /* of the wanted instance */
    uint64_t part_rows[SAVED_MOST_PARTS];
    /* A walk goes over the headers in order; several threads may read the blocks. This is where the walk is. */
    uint64_t at, number, next_row;
    uint32_t sums, at_part;
    uint32_t end_sums; /* as the end has them; checked when the walk comes there */
    int ended;
    struct {
        uint64_t at, number;
        uint32_t sums;
    } first_rows; /* where blocks of rows begin */
} saved_reader;

FRUGAL_INTERNAL frugal_status fail_saved(const saved_reader *r, uint64_t at, const char *what);
FRUGAL_INTERNAL frugal_status read_saved(const saved_reader *r, void *data, size_t bytes, uint64_t at);
FRUGAL_INTERNAL int is_sum_right(saved_header h, const void *payload);
FRUGAL_INTERNAL frugal_status check_skipped(const saved_reader *r, saved_header h, uint64_t at, void *buffer,
                                            size_t most);
FRUGAL_INTERNAL frugal_status next_block_or(saved_reader *r, saved_header *h, uint32_t also);
FRUGAL_INTERNAL int is_head_sound(const saved_file *head);
FRUGAL_INTERNAL int is_part_sound(const saved_part *part, const saved_table *tables, uint64_t bytes);
FRUGAL_INTERNAL frugal_status check_end(const saved_reader *r, const saved_end *end, uint64_t blocks, uint64_t at);
FRUGAL_INTERNAL frugal_status open_saved(saved_reader *r, const char *path, uint32_t part, const frugal_desc *memory,
                                         saved_part **tables, size_t *tables_bytes);
FRUGAL_INTERNAL void close_saved(saved_reader *r);

/* manifest.c */

enum { HOMES_PIECE = 1 << 14 }; /* bytes that are read or written at a time */

typedef struct manifest {      /* one that is read, or made */
    const frugal_desc *memory; /* whose allocator has the list */
    file_name name;
    int file; /* -1: it is not open */
    manifest_header head;
    unsigned char *list;                    /* [head.list_bytes] */
    manifest_share *shares;                 /* [head.machines], in the list */
    manifest_part *parts[SAVED_MOST_PARTS]; /* instances, in the list */
    uint64_t homes_at[SAVED_MOST_PARTS];    /* in the file, of those that are LISTED in a base */
    uint64_t homes_bytes;                   /* written so far */
} manifest;

FRUGAL_INTERNAL int name_share(const manifest *m, uint32_t machine, char path[LONGEST_PATH]);
FRUGAL_INTERNAL frugal_status begin_names(manifest *m, const char *name, uint32_t machines, uint64_t tag);
FRUGAL_INTERNAL void remove_old_shares(const manifest *m);
FRUGAL_INTERNAL void remove_shares_of(const char *path);
FRUGAL_INTERNAL int is_manifest(const char *path);
FRUGAL_INTERNAL const char *deal_word(uint32_t deal);
FRUGAL_INTERNAL frugal_status read_homes(const manifest *m, uint32_t p, uint64_t first, uint64_t n, uint8_t *homes);
FRUGAL_INTERNAL int begins_as_manifest(int file);
FRUGAL_INTERNAL frugal_status open_manifest(manifest *m, const char *path, const frugal_desc *memory);
FRUGAL_INTERNAL void close_manifest(manifest *m);
FRUGAL_INTERNAL saved_file head_of_share(saved_file head, uint32_t machine, uint32_t machines);
FRUGAL_INTERNAL frugal_status check_share(const manifest *m, uint32_t machine, const saved_reader *r);
FRUGAL_INTERNAL frugal_status lay_manifest(manifest *m, const frugal_desc *memory, const uint32_t *n_tables);
FRUGAL_INTERNAL int write_homes(manifest *m, int file, const uint8_t *homes, uint64_t n);
FRUGAL_INTERNAL int write_manifest(manifest *m, int file);

/* restore.c */

FRUGAL_INTERNAL uint32_t threads_of(const frugal *f);
FRUGAL_INTERNAL frugal_status read_weights(frugal *f, uint32_t first, int marks);
FRUGAL_INTERNAL void close_all_saved(frugal *f);
FRUGAL_INTERNAL frugal_status begin_restore(frugal *f, const frugal_desc *desc);
FRUGAL_INTERNAL frugal_status restore_table(frugal *f);

#else
static inline frugal_status begin_restore(frugal *f, const frugal_desc *desc) {
    if (desc->n_saved == 0 && !desc->increments) return FRUGAL_OK;
    return FAIL_LEFT_OUT("open", "`saved` or `increments` is set, and saves are", "FRUGAL_NO_SAVES");
}
static inline frugal_status restore_table(frugal *f) {
    return FRUGAL_OK;
}
static inline void close_all_saved(frugal *f) {}
#endif

/* causes.c */

#define NO_DEVICE UINT32_C(0xffff)
#define NO_COUNT  UINT64_MAX

/* What keeps a gate closed, as found at some moment. */
typedef struct gate_cause {
    cause_kind kind;
    uint32_t d;     /* the device that is waited for; NO_DEVICE: none */
    uint64_t step;  /* of the gate */
    uint64_t count; /* steps that the device has announced; rows that are not flushed */
} gate_cause;

FRUGAL_INTERNAL void explain_cause(const gate_cause *cause, char *text, size_t size);

/* trace.c */

typedef enum { TRACE_TRAINER, TRACE_LOADER, TRACE_WORKER, TRACE_CALLER, TRACE_SAVER } trace_role;

typedef enum {
    TRACE_ANNOUNCE,
    TRACE_PLAN,
    TRACE_GATE,
    TRACE_LOOKUP,
    TRACE_UPDATE,
    TRACE_CLOSE,
    TRACE_FLUSH,
    TRACE_RECALL,
    TRACE_SAVE,
    TRACE_DRAIN,
    TRACE_WAIT, /* of an announcement */
    TRACE_KINDS
} trace_kind;

typedef struct trace_ring trace_ring;

typedef struct trace_event {
    trace_kind kind;
    cause_kind cause;
    uint32_t d, other;   /* the device; the one that it waits for. NO_DEVICE: none */
    uint64_t begin, end; /* ns */
    uint64_t step;       /* NO_COUNT: none */
    uint64_t a, b, c;    /* counts, by kind: the table `kinds` names them; NO_COUNT: not known */
} trace_event;

typedef struct trace_span {   /* a call of a device's trainer or loader, of drain, or of save */
    trace_ring *ring, *outer; /* the call's; the thread's before it. ring NULL: the call is not recorded */
    trace_event event;
    uint64_t counted, missed; /* counters before the call */
} trace_span;

#ifndef FRUGAL_NO_SEEING
FRUGAL_INTERNAL_DATA _Thread_local trace_ring *trace_own;
FRUGAL_INTERNAL_DATA const char *const cause_names[CAUSES];
FRUGAL_INTERNAL trace_ring *trace_ring_of(frugal *f, trace_role role, uint32_t number);
FRUGAL_INTERNAL trace_ring *trace_claim(frugal *f);
FRUGAL_INTERNAL void trace_release(trace_ring *claimed);
FRUGAL_INTERNAL void trace_piece(frugal *f, trace_kind kind, double begin, double end);
FRUGAL_INTERNAL void trace_count(frugal *f, uint32_t d, uint64_t step, uint64_t rows);
FRUGAL_INTERNAL trace_span trace_enter(frugal *f, trace_kind kind, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void trace_leave(frugal *f, trace_span *span, frugal_status status);
FRUGAL_INTERNAL void trace_call(frugal *f, trace_kind kind, double begin, uint64_t bytes);
FRUGAL_INTERNAL void trace_saved(frugal *f, double begin, uint64_t bytes);
FRUGAL_INTERNAL void trace_wait(frugal *f, trace_kind kind, uint32_t d, const gate_cause *cause, double begin,
                                double end);
FRUGAL_INTERNAL void close_trace(frugal *f);
#else
static _Thread_local trace_ring *trace_own;
static inline trace_ring *trace_ring_of(frugal *f, trace_role role, uint32_t number) {
    return NULL;
}
static inline trace_ring *trace_claim(frugal *f) {
    return NULL;
}
static inline void trace_release(trace_ring *claimed) {}
static inline void trace_piece(frugal *f, trace_kind kind, double begin, double end) {}
static inline void trace_count(frugal *f, uint32_t d, uint64_t step, uint64_t rows) {}
static inline trace_span trace_enter(frugal *f, trace_kind kind, uint32_t d, uint64_t step) {
    return (trace_span){.ring = NULL};
}
static inline void trace_leave(frugal *f, trace_span *span, frugal_status status) {}
static inline void trace_call(frugal *f, trace_kind kind, double begin, uint64_t bytes) {}
static inline void trace_saved(frugal *f, double begin, uint64_t bytes) {}
static inline void trace_wait(frugal *f, trace_kind kind, uint32_t d, const gate_cause *cause, double begin,
                              double end) {}
static inline void close_trace(frugal *f) {}
#endif

#endif
