/* steps.h - from a batch that is handed in to rows that are flushed, in pieces that any thread does.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_STEPS_H
#define FRUGAL_STEPS_H

#include "../table/table.h"

/* batch.c */

/* Key i. One that is negative becomes larger than any number of rows. */
static inline uint64_t key_at(const frugal_keys *keys, uint32_t i) {
    return keys->keys32 ? (uint64_t)(int64_t)keys->keys32[i] : keys->keys[i];
}

/* Has `keys` one array, or none and no keys? */
static inline int has_key_array(const frugal_keys *keys) {
    return keys->keys ? !keys->keys32 : keys->keys32 || keys->n == 0;
}

FRUGAL_INTERNAL frugal_status fail_key_array(const frugal_keys *keys, const char *whose);
FRUGAL_INTERNAL frugal_status check_segment(const frugal *f, uint32_t i, const frugal_keys *keys);
FRUGAL_INTERNAL frugal_status fail_segment_key(uint32_t i, const frugal_keys *keys, uint32_t k, uint64_t rows);
FRUGAL_INTERNAL frugal_status read_piece_of_keys(const frugal *f, const frugal_batch *batch, uint32_t *out,
                                                 uint64_t from, uint64_t end);
FRUGAL_INTERNAL uint64_t count_keys(const frugal_keys *segments, uint32_t n_segments);
FRUGAL_INTERNAL frugal_status check_batch(const frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *n_out);
FRUGAL_INTERNAL frugal_status read_keys(frugal *f, uint32_t d, const frugal_batch *batch, uint32_t *rows, uint32_t n);
FRUGAL_INTERNAL const uint64_t *sort_rows(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, sort_memory *m);
FRUGAL_INTERNAL void list_batch(frugal *f, uint32_t d, host_batch *b, const uint64_t *sorted);

/* guests.c */

/* Of a device of this machine, if the table is dealt over several. */
typedef struct device_guests {
    uint64_t *ids;           /* ring [L + 1][max_keys]: of a batch's guests */
    uint32_t *first;         /* ring [L + S + 1][machines + 1]: read until its records have left */
    step_settings *settings; /* ring [S], by step: of its records; `fixed`: there are any */
    unsigned char *rows;     /* ring [2][max_keys] of rows, by step: where they arrive */
    uint32_t *summed;        /* [max_keys]: as frugal_step */
    uint32_t *at;            /* [max_keys], behind `rows`: where each guest of the step that is looked up lies there */
    uint64_t *early;         /* ring [2][machines][early_words], by step */
    /* Steps, in order: whose rows are all here; whose ids have left; whose records have left. */
    atomic_word arrived, keys_gone, records_gone;
} device_guests;

/* Words of a bit for each of n rows. */
static inline uint64_t early_words(uint64_t n) {
    return (n + 63) / 64;
}

FRUGAL_INTERNAL const uint32_t *guests_first(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL uint64_t *guests_ids(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL unsigned char *guests_rows(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL uint64_t *guests_early(const frugal *f, uint32_t d, uint64_t step, uint32_t k);
FRUGAL_INTERNAL void list_guests(frugal *f, uint32_t d, host_batch *b);
FRUGAL_INTERNAL void place_guests(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void order_squares(const frugal *f, uint32_t d, frugal_step *view);
FRUGAL_INTERNAL void show_guests(const frugal *f, uint32_t d, frugal_step *view);
FRUGAL_INTERNAL int guests_ready(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL frugal_memory guests_memory(const frugal *f, uint32_t d);
FRUGAL_INTERNAL uint64_t guests_bytes(const frugal *f);
FRUGAL_INTERNAL frugal_status open_guests(frugal *f, uint32_t d);
FRUGAL_INTERNAL void close_guests(frugal *f, host_device *device);

/* read_ahead.c */

FRUGAL_INTERNAL void open_read_ahead(frugal *f);
FRUGAL_INTERNAL void begin_ahead(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void hand_ahead(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void cancel_ahead(frugal *f, uint64_t step);
FRUGAL_INTERNAL int ask_ahead(frugal *f);
FRUGAL_INTERNAL void ask_for_batch(frugal *f, uint32_t d, uint64_t step);

/* clocks.c */

#define NO_CLOCK UINT64_MAX /* of a copy that must be fetched */

typedef struct device_clocks {
    uint32_t n, most;          /* rows listed; of these, in a batch at most */
    uint32_t *rows;            /* rows[n], rising; the number of a row here is its copy's on the device */
    uint32_t *bounds;          /* bounds[n]; UINT32_MAX: none */
    uint32_t *indices;         /* indices[n]: of the row in clocks.of_row */
    uint64_t *of_copy;         /* of_copy[n], or NO_CLOCK. As all below: (a) in clocks.c */
    frugal_secondary *touched; /* ring [L + 1][most]: the batch's listed rows */
    uint64_t *before;          /* ring [L + 1][most]: of their copies, before the batch was announced */
    uint32_t *n_touched;       /* ring [L + 1] */
    uint32_t *n_stale;         /* ring [L + 1]: copies read that lack contributions */
    uint32_t *pending;         /* pending[n_pending]: rows to which the last announced batch contributes, by index */
    uint32_t n_pending;
    uint8_t pad[64]; /* another device's begin in another line */
} device_clocks;

struct clocks {
    size_t bytes;           /* of the whole block of memory */
    uint32_t n;             /* rows that any device lists */
    uint64_t *of_row;       /* of_row[n]: contributions in the steps that all devices have announced */
    uint64_t *slots;        /* slots[mask + 1]: row << 32 | its index, or NO_CLOCK; a row is at its hash, or behind */
    uint64_t mask;          /* a power of two, less 1; at most half of the slots are used */
    device_clocks *devices; /* devices[n] */
    atomic_count *left;     /* ring [L + 1]: devices whose batch of the step is not given (announce.c) */
};

#ifndef FRUGAL_NO_SECONDARIES
FRUGAL_INTERNAL uint64_t clock_slot(const clocks *c, uint32_t row);
FRUGAL_INTERNAL void announce_clocks(frugal *f, uint64_t step);
FRUGAL_INTERNAL const frugal_secondary *secondaries_of(const frugal *f, uint32_t d, uint64_t step, uint32_t *n);
FRUGAL_INTERNAL uint32_t count_stale(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void cancel_clocks(frugal *f, uint64_t step, uint64_t sealed);
FRUGAL_INTERNAL void drop_secondaries_of(frugal *f, uint32_t row);
FRUGAL_INTERNAL void drop_secondaries(frugal *f);
FRUGAL_INTERNAL int is_secondary(const frugal *f, uint32_t d, uint32_t row, uint64_t *lacks);
FRUGAL_INTERNAL void close_clocks(frugal *f);
#else
static inline void announce_clocks(frugal *f, uint64_t step) {}
static inline const frugal_secondary *secondaries_of(const frugal *f, uint32_t d, uint64_t step, uint32_t *n) {
    *n = 0;
    return NULL;
}
static inline uint32_t count_stale(const frugal *f, uint32_t d, uint64_t step) {
    return 0;
}
static inline void cancel_clocks(frugal *f, uint64_t step, uint64_t sealed) {}
static inline void drop_secondaries_of(frugal *f, uint32_t row) {}
static inline void drop_secondaries(frugal *f) {}
static inline int is_secondary(const frugal *f, uint32_t d, uint32_t row, uint64_t *lacks) {
    return 0;
}
static inline void close_clocks(frugal *f) {}
#endif

/* announce.c */

/* A batch that is handed in, as the thread that is to sort it finds it. */
typedef struct claimed_batch {
    uint32_t d;
    host_batch *b;
} claimed_batch;

FRUGAL_INTERNAL void end_announcing(frugal *f);
FRUGAL_INTERNAL int begin_announcing(frugal *f);
FRUGAL_INTERNAL int announcing_is_over(frugal *f);
FRUGAL_INTERNAL void wait_announcing(frugal *f);
FRUGAL_INTERNAL void end_wait_announcing(frugal *f);
FRUGAL_INTERNAL sort_memory *take_sort_memory(frugal *f);
FRUGAL_INTERNAL void give_back_sort_memory(frugal *f, sort_memory *m);
FRUGAL_INTERNAL int claim_batch(frugal *f, claimed_batch *out);
FRUGAL_INTERNAL void give_batch(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL void give_batches(frugal *f, uint32_t d);
FRUGAL_INTERNAL void end_batch(host_batch *b);
FRUGAL_INTERNAL int plan_piece(frugal *f);
FRUGAL_INTERNAL frugal_step step_view(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL uint64_t told_of(const frugal *f, uint32_t d);
FRUGAL_INTERNAL int tell_device(frugal *f, uint32_t d);
FRUGAL_INTERNAL void wake_teller(frugal *f);
FRUGAL_INTERNAL frugal_status open_teller(frugal *f);
FRUGAL_INTERNAL void close_teller(frugal *f);
FRUGAL_INTERNAL void hold_announcing(frugal *f);
FRUGAL_INTERNAL void release_announcing(frugal *f);
FRUGAL_INTERNAL int is_settled(frugal *f);
FRUGAL_INTERNAL void drop_batches(frugal *f, uint64_t step);

/* finish.c */

FRUGAL_INTERNAL int has_finished(const frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL uint64_t updated_itself(const host_device *device);
FRUGAL_INTERNAL frugal_status fail_finished(const frugal *f, const char *call, uint32_t d, uint64_t step,
                                            frugal_status status);
FRUGAL_INTERNAL void announce_finished(frugal *f);
FRUGAL_INTERNAL int commit_finished(frugal *f);
FRUGAL_INTERNAL void finish_device(frugal *f, uint32_t d);
FRUGAL_INTERNAL void cancel_finished(frugal *f, uint64_t step);

/* apply.c */

FRUGAL_INTERNAL void flush_taken(frugal *f, const frugal_p2f_work *work, uint32_t n);
FRUGAL_INTERNAL frugal_status commit_device(frugal *f, uint32_t d, uint64_t step, int brings, int *last_one);
FRUGAL_INTERNAL int close_piece(frugal *f);
FRUGAL_INTERNAL int flush_page(frugal *f, uint64_t limit, uint64_t closed);

/* stream_gates.c */

FRUGAL_INTERNAL void open_gates(frugal *f);
FRUGAL_INTERNAL void take_back_gates(atomic_word *gates, uint64_t step);
FRUGAL_INTERNAL void force_word(frugal *f, atomic_word *gates);
FRUGAL_INTERNAL void force_gates(frugal *f);

/* poll.c */

/* In seconds: how long an idle thread polls without rests; the longest rest after that; and the rest of a thread that
 * finds another one polling. */
#ifndef POLL_RESTLESS /* tests in which no time passes set it, so that the thread rests at once */
#define POLL_RESTLESS 20e-6
#endif
#define POLL_RAREST 1e-3
#define POLL_OTHERS 200e-6

FRUGAL_INTERNAL int is_posting(const frugal *f, uint32_t d);
FRUGAL_INTERNAL int has_posted_batch(const frugal *f);
FRUGAL_INTERNAL void tell_end(frugal *f, region_end end, const char *text);
FRUGAL_INTERNAL uint32_t device_writing(const frugal *f);
FRUGAL_INTERNAL int is_lost(const frugal *f);
FRUGAL_INTERNAL int is_uncommitted(const frugal *f);
FRUGAL_INTERNAL int is_outstanding(const frugal *f);
FRUGAL_INTERNAL int is_owing(const frugal *f);
FRUGAL_INTERNAL int is_flushed(frugal *f);
FRUGAL_INTERNAL uint32_t device_ahead(frugal *f);
FRUGAL_INTERNAL frugal_status check_ahead(frugal *f, const char *call);
FRUGAL_INTERNAL int is_in_order(const frugal *f, uint32_t d);
FRUGAL_INTERNAL void end_training(frugal *f, uint32_t d, const char *text);
FRUGAL_INTERNAL void lose_device(frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status fail_lost(const frugal *f, const char *call);
FRUGAL_INTERNAL host_event *polling_event(frugal *f);
FRUGAL_INTERNAL void lock_polling(frugal *f);
FRUGAL_INTERNAL void check_device_lost(frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status after_refusal(frugal *f, uint32_t d, frugal_status status, const char *call);
FRUGAL_INTERNAL int is_refused(frugal *f, uint64_t step);
FRUGAL_INTERNAL frugal_status fail_refused(frugal *f);
FRUGAL_INTERNAL int commit_polled(frugal *f);
FRUGAL_INTERNAL int poll_devices(frugal *f);
FRUGAL_INTERNAL void rest(frugal *f, uint32_t seen, double limit);

/* keep.c */

typedef struct recall { /* what a device is to write back before the gate of a step */
    uint64_t step;
    int done; /* 1: it has done the step before; 0: it was given that step, and may be at work on it (ops.recall) */
} recall;

FRUGAL_INTERNAL void hold_copies(host_device *device);
FRUGAL_INTERNAL void release_copies(host_device *device);
FRUGAL_INTERNAL int has_lost_rows(const frugal *f);
FRUGAL_INTERNAL int is_complete(frugal *f);
FRUGAL_INTERNAL int is_drained(frugal *f);
FRUGAL_INTERNAL int awaits_recall(frugal *f, uint32_t d, uint64_t step);
FRUGAL_INTERNAL frugal_status write_recalled(frugal *f, uint32_t d, const recall *r);
FRUGAL_INTERNAL int recall_piece(frugal *f);
FRUGAL_INTERNAL void hold_recalls(frugal *f, uint64_t step);
FRUGAL_INTERNAL void release_recalls(frugal *f);

#endif
