/* read_ahead.c - a table in a file: the pages of announced rows are asked for before they are needed.
 *
 * A lookup that touches a page on the disk waits for it, one page at a time. Announced rows are known up to L steps
 * earlier. So threads that help take pieces of announced batches, the earliest step first, and ask the system for the
 * pages of rows and of optimizer state: it reads them while training goes on. What is left when a batch is looked up,
 * the thread that looks up asks for. Without a file nothing of this is called.
 *
 * A batch's list of rows lies in a ring, and the loader overwrites it L + 1 steps later. A helper copies its piece of
 * the list under `lock`. The loader takes the lock, too: before it writes into a batch, to drop what is left of the
 * batch that was there, and after it, to hand the new one in. So a helper reads only lists that nobody writes, and the
 * loader waits for the copy of one piece at most, never for the system. Pages are asked for without the lock. They may
 * belong to a batch that is cancelled or closed by then: this costs a read, and changes nothing. The mapping is there,
 * because frugal_close ends the workers before it unmaps the file, and no other call may be under way then.
 *
 * Measured on Linux 6.18, a virtual disk, a call for one page: madvise 16 us if the page is on the disk, and 0.7 to 1.3
 * us if it is in memory; mincore 1.4 to 2.4 us; cachestat 0.4 to 0.5 us. So cachestat is asked before, and mincore only
 * where the system has no cachestat. Where all is in memory, looking is all that this costs; then one piece in 32 is
 * looked at.
 *
 * Contents: >>batches >>pages
 */
#include "steps.h"

#if defined(__linux__)
#include <sys/vfs.h>
#endif

enum {
    AHEAD_ROWS = 64,       /* of a piece */
    AHEAD_TRUSTED = 256,   /* pieces in a row without a page to ask for: the file is in memory, as far as is known */
    AHEAD_SAMPLED = 32,    /* then one piece in 32 is looked at */
    AHEAD_BYTES = 1 << 17, /* asked for in a call: the system may read no more at a time, and drop the rest */
    AHEAD_LOOKED = 64      /* pages that one call of mincore looks at */
};

#ifndef LOOKS_BY_CACHESTAT /* 0: by mincore, which tests can replace */
#define LOOKS_BY_CACHESTAT 1
#endif

/* Is the file system memory itself? */
static int is_memory_file(int file) {
#if defined(__linux__)
    struct statfs system;
    return !fstatfs(file, &system) && system.f_type == 0x01021994; /* tmpfs */
#else
    (void)file;
    return 0;
#endif
}

/* Before the first batch. */
FRUGAL_INTERNAL void open_read_ahead(frugal *f) {
    read_ahead *a = &f->ahead;
    if (!f->file) return;
    a->file = table_descriptor(f);
    a->page = (size_t)sysconf(_SC_PAGESIZE);
    for (uint32_t d = 0; d < f->desc.devices; d++) f->devices[d].ahead = (ahead_rows){.step = f->desc.first_step};
#if defined(MADV_WILLNEED)
    if (is_memory_file(a->file)) return;
    frugal_store_relaxed(&a->works, 1); /* relaxed: nobody else has the instance yet */
#endif
}

/* >>batches */

/* Drops the device's batches of the steps before `step`. Under the lock. */
static void drop_ahead(host_device *device, uint64_t step) {
    if (device->ahead.step < step) device->ahead.step = step, device->ahead.row = 0;
}

/* The device's batch of `step` is about to be written, where that of step - (L + 1) is. */
FRUGAL_INTERNAL void begin_ahead(frugal *f, uint32_t d, uint64_t step) {
    if (!f->file || step <= f->desc.lookahead) return;
    pthread_mutex_lock(&f->ahead.lock);
    drop_ahead(&f->devices[d], step - f->desc.lookahead);
    pthread_mutex_unlock(&f->ahead.lock);
}

/* The device's batch of `step` is written. */
FRUGAL_INTERNAL void hand_ahead(frugal *f, uint32_t d, uint64_t step) {
    ahead_rows *rows = &f->devices[d].ahead;
    if (!f->file) return;
    pthread_mutex_lock(&f->ahead.lock);
    if (rows->end != step) drop_ahead(&f->devices[d], step); /* the first; or the device had finished */
    rows->end = step + 1;
    frugal_store_relaxed(&f->ahead.waiting, 1); /* relaxed: a hint; the event tells of it */
    pthread_mutex_unlock(&f->ahead.lock);
}

/* Steps from `step` on are cancelled. */
FRUGAL_INTERNAL void cancel_ahead(frugal *f, uint64_t step) {
    if (!f->file) return;
    pthread_mutex_lock(&f->ahead.lock);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        ahead_rows *rows = &f->devices[d].ahead;
        rows->end = LEAST(rows->end, step);
        if (rows->step > step) rows->step = step, rows->row = 0;
    }
    pthread_mutex_unlock(&f->ahead.lock);
}

typedef struct ahead_piece { /* of a batch: rows[n], rising */
    uint32_t n;
    int read_only;
    uint32_t rows[AHEAD_ROWS];
} ahead_piece;

typedef struct ahead_range { /* devices and steps whose batches a thread takes */
    uint32_t d, end;         /* from d to below `end` */
    uint64_t until;          /* before this step */
} ahead_range;

/* The device with the earliest batch in the range that is not asked for; `devices`: none. Under the lock. */
static uint32_t next_ahead(frugal *f, const ahead_range *range) {
    uint64_t closed = frugal_p2f_closed(f->p2f), earliest = range->until;
    uint32_t found = f->desc.devices;
    for (uint32_t d = range->d; d < range->end; d++) {
        ahead_rows *rows = &f->devices[d].ahead;
        drop_ahead(&f->devices[d], LEAST(closed, rows->end)); /* too late */
        if (rows->step < rows->end && rows->step < earliest) earliest = rows->step, found = d;
    }
    return found;
}

/* Copies the next piece that is to be looked at. Returns 0 if there is none. */
static int take_ahead(frugal *f, const ahead_range *range, ahead_piece *piece) {
    read_ahead *a = &f->ahead;
    uint32_t d;
    int taken = 0;
    pthread_mutex_lock(&a->lock);
    while (!taken && (d = next_ahead(f, range)) < f->desc.devices) {
        ahead_rows *rows = &f->devices[d].ahead;
        const host_batch *b = batch_at(f, d, rows->step);
        piece->n = LEAST(AHEAD_ROWS, b->n_own - rows->row);
        piece->read_only = b->read_only;
        /* relaxed: a hint */
        taken = piece->n > 0 && (frugal_load_relaxed(&a->settled) < AHEAD_TRUSTED || a->pieces % AHEAD_SAMPLED == 0);
        if (taken) memcpy(piece->rows, b->rows + rows->row, piece->n * sizeof *piece->rows);
        a->pieces++;
        rows->row += piece->n;
        if (rows->row == b->n_own) rows->step++, rows->row = 0;
    }
    if (!taken && range->until == UINT64_MAX) frugal_store_relaxed(&a->waiting, 0); /* relaxed: under the lock */
    pthread_mutex_unlock(&a->lock);
    return taken;
}

/* >>pages */

#if defined(__linux__)
typedef struct page_range { /* the kernel's, as the next */
    uint64_t at, bytes;
} page_range;
typedef struct page_counts {
    uint64_t cached, dirty, written_back, evicted, recently_evicted;
} page_counts;
enum { CACHESTAT = 451 }; /* on all systems that have it: Linux 6.5 */
#endif

/* Are all pages in memory, or on their way? With mincore those on their way are not. */
static int are_resident(frugal *f, unsigned char *from, size_t bytes) {
    size_t page = f->ahead.page;
#if defined(__linux__)
    page_range range = {(uint64_t)(from - table_map(f)), bytes};
    page_counts counts;
    if (LOOKS_BY_CACHESTAT && syscall(CACHESTAT, f->ahead.file, &range, &counts, 0) == 0)
        return counts.cached >= bytes / page;
    for (size_t at = 0; at < bytes; at += AHEAD_LOOKED * page) {
        unsigned char states[AHEAD_LOOKED];
        size_t some = LEAST(bytes - at, AHEAD_LOOKED * page);
        if (mincore(from + at, some, states)) return 0;
        for (size_t i = 0; i < some / page; i++)
            if (!(states[i] & 1)) return 0;
    }
    return 1;
#else
    (void)from, (void)bytes, (void)page;
    return 0;
#endif
}

/* Asks for whole pages, unless all of them are in memory. Returns the number that was asked for. A refusal is no error:
 * the rows are read when they are touched. If the system cannot do it for this file, it is not asked again. */
static uint64_t ask_for(frugal *f, unsigned char *from, size_t bytes) {
    /* relaxed: as below */
    if (bytes == 0 || !frugal_load_relaxed(&f->ahead.works) || are_resident(f, from, bytes)) return 0;
#if defined(MADV_WILLNEED)
    for (size_t at = 0; at < bytes; at += AHEAD_BYTES)
        if (madvise(from + at, LEAST(bytes - at, AHEAD_BYTES), MADV_WILLNEED) && errno != EAGAIN) {
            frugal_store_relaxed(&f->ahead.works, 0); /* relaxed: it publishes nothing */
            return at / f->ahead.page;
        }
#endif
    return bytes / f->ahead.page;
}

/* Asks for the pages of `bytes` bytes from each row's place on. Rows rise: the pages of neighbours are one range. */
static uint64_t ask_for_rows(frugal *f, const ahead_piece *piece, void *first, uint64_t pitch, size_t bytes) {
    unsigned char *map = table_map(f);
    size_t page = f->ahead.page, from = 0, to = 0; /* of the range, in the file */
    uint64_t asked = 0;
    for (uint32_t i = 0; i < piece->n; i++) {
        size_t at = (size_t)((unsigned char *)first + piece->rows[i] * pitch - map);
        size_t begin = at / page * page, end = (at + bytes + page - 1) / page * page;
        if (begin > to) {
            asked += ask_for(f, map + from, to - from);
            from = begin;
        }
        to = end;
    }
    return asked + ask_for(f, map + from, to - from);
}

/* Asks for the pages of a piece of a batch in the range. Returns 0 if there is none. */
static int ask_for_piece(frugal *f, const ahead_range *range) {
    read_ahead *a = &f->ahead;
    const frugal_store *s = &f->store;
    ahead_piece piece;
    /* relaxed, both: hints */
    if (!frugal_load_relaxed(&a->waiting) || !frugal_load_relaxed(&a->works) || !take_ahead(f, range, &piece)) return 0;
    size_t row = frugal_row_bytes(s), state = piece.read_only ? 0 : s->state_floats * sizeof(float);
    /* Element-wise state lies behind the weights of its row. */
    uint64_t pitch = frugal_row_pitch(s);
    uint64_t behind = state ? (uint64_t)((unsigned char *)s->state - (unsigned char *)s->weights) : 0;
    if (state && behind < pitch) row = behind + state;
    uint64_t asked = ask_for_rows(f, &piece, s->weights, pitch, row);
    if (state && behind >= pitch) asked += ask_for_rows(f, &piece, s->state, s->state_stride * sizeof(float), state);
    tally(&a->asked, asked);
    if (asked > 0)
        frugal_store_relaxed(&a->settled, 0); /* relaxed, both: a hint */
    else if (frugal_load_relaxed(&a->settled) < AHEAD_TRUSTED)
        frugal_add_relaxed(&a->settled, 1);
    return 1;
}

/* Asks for a piece of the earliest batch of any device. Returns 0 if there is none. */
FRUGAL_INTERNAL int ask_ahead(frugal *f) {
    return ask_for_piece(f, &(ahead_range){0, f->desc.devices, UINT64_MAX});
}

/* Before the device looks up the step: asks for what no other thread has come to. Asking for all pages and then
 * touching them takes a small part of the time in which they would be read one by one. */
FRUGAL_INTERNAL void ask_for_batch(frugal *f, uint32_t d, uint64_t step) {
    while (ask_for_piece(f, &(ahead_range){d, d + 1, step + 1})) {
    }
}
