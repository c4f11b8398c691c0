/* frugal_flush.c - the host store: table, staging rings, batches, flush workers, and every wait.
 *
 * This file turns the state machine of frugal_p2f.h into the calls that a trainer makes. It owns memory and threads; it
 * decides nothing about consistency. All it knows of devices is the table of operations they attach with.
 *
 * Contents, searchable by their marks:
 *   >>errors      the text of the calling thread's last error
 *   >>event       sleeping until something has changed
 *   >>memory      huge pages, the caller's allocator, mapped files
 *   >>arithmetic  one optimizer step on one row, in three instruction sets; the self-test
 *   >>instance    structs
 *   >>table       row layout, initializers
 *   >>batch       keys -> unique rows, and the order in which their gradients are summed
 *   >>flush       taking updates and applying them; helping; workers; waiting
 *   >>open        open, close
 *   >>step        announce, lookup, update
 *   >>rows        drain, cancel, reading and writing rows, serving
 *   >>stats
 *
 * Atomics that order something, beside those of the headers:
 *  | tag  | site                        | order   | pairs with | if it were relaxed                       |
 *  |------|-----------------------------|---------|------------|------------------------------------------|
 *  | [F1] | event: about to sleep       | acquire | [F2]       | sleeps although it was told: for ever    |
 *  | [F2] | event: told                 | release | [F1]       | as [F1]                                  |
 *  | [F3] | `stopped` found set         | acquire | [F4]       | the reason of the stop is missed         |
 *  | [F4] | `stopped` set               | release | [F3][F7]   | as [F3]                                  |
 *  | [F5] | a device's `updated` raised | release | [F6]       | committed with what another step brought |
 *  | [F6] | `updated` read by who polls | acquire | [F5]       | as [F5]                                  |
 *  | [F7] | `stopped` read by who polls | acquire | [F4]       | what was read through a gate that a stop |
 *  |      |                             |         |            | forced open is committed                 |
 *  | [F8] | gates opened                | release | the device | it reads rows not yet written            |
 *  | [F9] | a device lost: said         | release | [F10]      | its message is missed                    |
 *  |[F10] | a device lost?              | acquire | [F9]       | as [F9]                                  |
 *  |[F11] | `told` raised by announce   | release | [F12]      | the device's copy of a batch is missed   |
 *  |[F12] | `told` read by lookup       | acquire | [F11]      | as [F11]                                 |
 *  |[F13] | a slot opened               | release | [F14]      | a worker finds the instance half made    |
 *  |[F14] | a slot entered              | acquire | [F13]      | as [F13]                                 |
 *  |[F15] | a slot left                 | release | [F16]      | an instance is freed while it is used    |
 *  |[F16] | a slot empty?               | acquire | [F15]      | as [F15]                                 |
 *
 * Compile with -O3 -ffp-contract=off -fno-math-errno. It carries the implementation of frugal_pq.h and frugal_p2f.h,
 * unless FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE is defined because another file does. POSIX threads; Linux for futexes and
 * huge pages, which other systems do without.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, MADV_HUGEPAGE */
#endif
#ifndef FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE
#define FRUGAL_P2F_IMPLEMENTATION
#endif
#define FRUGAL_ATOMICS
#include "frugal_p2f.h"
#include "src/device.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#if !defined(__SSE__)
#include <fenv.h>
#endif

_Static_assert(sizeof(size_t) == 8, "tables are larger than a 32-bit address space");

#define FRUGAL_PRIV_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define FRUGAL_PRIV_LINE          64u
#define FRUGAL_PRIV_PAGE          4096u
#define FRUGAL_PRIV_OTHER_THREADS 256u /* of the caller's in frugal_help, frugal_drain and the like at a time */
#define FRUGAL_PRIV_MAX_WORKERS   1024u
#define FRUGAL_PRIV_PATH          4096
#define FRUGAL_PRIV_FOREVER       1e6 /* seconds */
#define FRUGAL_PRIV_HUGE          (UINT64_C(2) << 20)
/* What is asked for ahead of its use: rows, positions, and floats of each; of a longer row only its start, because the
 * processor's own prefetcher sees that it goes on. Measured at dims 8 to 512: 12 to 20 rows do the same (at 8 floats
 * 20 are best, 8 are too few for any), 4 to 32 positions too; whole rows up to 512 floats are worth up to twice the
 * speed; of records, which lie in order, the first 64 floats do. */
#define FRUGAL_PRIV_AHEAD_APPLY  16u
#define FRUGAL_PRIV_AHEAD_SUM    16u
#define FRUGAL_PRIV_AHEAD_FLOATS 512u
#define FRUGAL_PRIV_AHEAD_START  64u
/* Seconds: for so long a device's work is looked after without rest; the longest rest then; and that of those who could
 * look after it and find that another does. */
#ifndef FRUGAL_PRIV_POLL_RESTLESS /* tests in which no time passes rest at once */
#define FRUGAL_PRIV_POLL_RESTLESS 20e-6
#endif
#define FRUGAL_PRIV_POLL_RAREST   1e-3
#define FRUGAL_PRIV_POLL_OTHERS   200e-6
#define FRUGAL_PRIV_STATE_CHUNK                                                                                        \
    512u /* floats of a row summed at a time; a multiple of the 32 lanes, and so
                                        * many that gcc leaves the loops over them loops */

/* ---------------------------------------------------------------------------------------------------------
 * >>errors
 * --------------------------------------------------------------------------------------------------------- */

static _Thread_local char frugal_priv_message[512] = "no error so far";

const char *frugal_message(void) {
    return frugal_priv_message;
}

frugal_status frugal_fail(frugal_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(frugal_priv_message, sizeof frugal_priv_message, format, arguments);
    va_end(arguments);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>event - sleeping until something has changed
 *
 * One word. Its lowest bit says that somebody sleeps or is about to; the rest counts notifications. A sleeper sets
 * the bit, looks again whether what it wants is there, and sleeps as long as the word is what it was. Both sides
 * change the word by read-modify-write, so one comes first: either the notifier sees the bit, and wakes; or the
 * sleeper's change [F1] follows the notifier's [F2], acquires all that was published before it, and looking again
 * finds it. So whoever tells must have acquired all that it tells of, what others did included ([P17] in frugal_p2f.h).
 * No fence and no sequential consistency is needed. The futex is not private: it works between processes.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_event {
    FRUGAL_ATOMIC(uint32_t) word;
    uint8_t pad[60];
} frugal_priv_event;

static uint32_t frugal_priv_event_prepare(frugal_priv_event *event) {
    return frugal_or_acquire(&event->word, 1) | 1; /* [F1] pairs with [F2] */
}

static void frugal_priv_event_sleep(frugal_priv_event *event, uint32_t seen, double seconds) {
    seconds = FRUGAL_PRIV_MIN(seconds, FRUGAL_PRIV_FOREVER); /* a time_t holds no infinity; who wakes looks again */
    struct timespec limit = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
#if defined(__linux__)
    syscall(SYS_futex, (uint32_t *)&event->word, FUTEX_WAIT, seen, &limit, NULL, 0); /* woken or not: all look again */
#else
    (void)event, (void)seen;
    if (limit.tv_sec > 0 || limit.tv_nsec > 100000) limit = (struct timespec){0, 100000};
    nanosleep(&limit, NULL);
#endif
}

static void frugal_priv_event_notify(frugal_priv_event *event) {
    uint32_t found = frugal_load_relaxed(&event->word); /* relaxed: proved by the compare-and-swap */
    while (!frugal_cas_release(&event->word, &found, (found | 1) + 1)) {
    } /* [F2] pairs with [F1]: counts, clears bit */
#if defined(__linux__)
    if (found & 1) syscall(SYS_futex, (uint32_t *)&event->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#endif
}

static double frugal_priv_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>memory
 * --------------------------------------------------------------------------------------------------------- */

/* Large blocks come from mmap, on huge pages where the system has them: a random row then costs no page walk. */
static void *frugal_priv_map(size_t bytes, size_t alignment) {
    size_t unit = alignment > FRUGAL_PRIV_HUGE ? alignment : FRUGAL_PRIV_HUGE;
    if (bytes > SIZE_MAX - 2 * unit) return NULL;
    size_t whole = (bytes + 4095) / 4096 * 4096;
    unsigned char *memory =
        mmap(NULL, whole + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = (unit - (uintptr_t)memory % unit) % unit;
    if (before) munmap(memory, before);
    munmap(memory + before + whole, unit - before);
#if defined(MADV_HUGEPAGE)
    madvise(memory + before, whole, MADV_HUGEPAGE); /* a wish: small pages are slower, not wrong */
#endif
    return memory + before;
}

/* What a device may want to pin is of whole pages, and on none with anything else. */
static size_t frugal_priv_pages_of(size_t bytes) {
    return (bytes + FRUGAL_PRIV_PAGE - 1) / FRUGAL_PRIV_PAGE * FRUGAL_PRIV_PAGE;
}

static int frugal_priv_is_mapped(size_t bytes) {
    return bytes >= FRUGAL_PRIV_HUGE / 2;
}

static void *frugal_priv_allocate(const frugal_desc *desc, size_t bytes, size_t alignment) {
    void *memory = NULL;
    if (!desc->allocate && frugal_priv_is_mapped(bytes)) return frugal_priv_map(bytes, alignment);
    if (desc->allocate)
        memory = desc->allocate(bytes, alignment, desc->user);
    else if (posix_memalign(&memory, alignment, bytes))
        memory = NULL;
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static void frugal_priv_release(const frugal_desc *desc, void *memory, size_t bytes) {
    if (!memory) return;
    if (desc->allocate) {
        if (desc->release) desc->release(memory, bytes, desc->user);
    } else if (frugal_priv_is_mapped(bytes))
        munmap(memory, (bytes + 4095) / 4096 * 4096);
    else
        free(memory);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>arithmetic
 *
 * The row functions are compiled three times, for AVX-512, AVX2 with FMA, and the baseline, where fmaf is a library
 * call: right everywhere, fast on new processors, and the same bits on all, since every operation is IEEE's.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_apply { /* one row's update */
    float *weights, *state;
    const float *const *records; /* records[n]: what the devices bring, in device order */
    uint32_t n;
    const frugal_hyper *hyper;
} frugal_priv_apply;

/* Inlined into each clone, to be compiled for its instructions; but where nothing is optimized there is one of each, so
 * that coverage counts a branch once. */
#if defined(__OPTIMIZE__)
#define FRUGAL_PRIV_ALWAYS __attribute__((always_inline)) static inline
#else
#define FRUGAL_PRIV_ALWAYS static inline
#endif

/* Before a loop over elements of a row, so that it becomes vectors and nothing else. Rows go in sixteens, an eight, a
 * four and single elements: counts that are seen to fill vectors, whatever their length. Without the pragma gcc unrolls
 * a short loop before it looks for vectors, and then finds none; clang takes four vectors at a time, and one by one the
 * elements of a row that is shorter than that. */
#if defined(__clang__)
#define FRUGAL_PRIV_VECTORS _Pragma("clang loop interleave(disable)")
#elif defined(__GNUC__)
#define FRUGAL_PRIV_VECTORS _Pragma("GCC unroll 1")
#else
#define FRUGAL_PRIV_VECTORS
#endif

/* All lines of a row, or the first ones of a long row, into the second cache: that waits in a longer queue than the first
 * one's, so that more of them are on their way. */
FRUGAL_PRIV_ALWAYS void frugal_priv_prefetch_row(const float *row, uint32_t floats, int write) {
    if (floats > FRUGAL_PRIV_AHEAD_FLOATS) floats = FRUGAL_PRIV_AHEAD_START;
    uintptr_t at = (uintptr_t)row, end = at + floats * sizeof(float);
    for (at -= at % FRUGAL_PRIV_LINE; at < end; at += FRUGAL_PRIV_LINE) {
        if (write)
            __builtin_prefetch((const void *)at, 1, 2);
        else
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* A row, its state and its first record. */
FRUGAL_PRIV_ALWAYS void frugal_priv_prefetch_apply(const frugal_store *store, const frugal_priv_apply *a) {
    frugal_priv_prefetch_row(a->weights, store->dim, 1);
    if (a->state) frugal_priv_prefetch_row(a->state, store->state_floats, 1);
    frugal_priv_prefetch_row(a->records[0], FRUGAL_PRIV_MIN(store->dim, FRUGAL_PRIV_AHEAD_START), 0);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_add_elements(float *restrict to, const float *restrict what, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t i = 0; i < n; i++) to[i] = frugal_add(to[i], what[i]);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_add_row(float *to, const float *what, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_add_elements(to, what, i);
    if (n & 8) frugal_priv_add_elements(to + i, what + i, 8), i += 8;
    if (n & 4) frugal_priv_add_elements(to + i, what + i, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_add_elements(to + i, what + i, 1);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_divide_elements(float *row, float by, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t i = 0; i < n; i++) row[i] = frugal_div(row[i], by);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_divide_row(float *row, float by, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_divide_elements(row, by, i);
    if (n & 8) frugal_priv_divide_elements(row + i, by, 8), i += 8;
    if (n & 4) frugal_priv_divide_elements(row + i, by, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_divide_elements(row + i, by, 1);
}

/* In pieces: gcc makes a string instruction of a copy whose length has a small limit, and its start costs more. */
FRUGAL_PRIV_ALWAYS void frugal_priv_copy_row(float *to, const float *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 64);
    if (n & 8) memcpy(to + i, from + i, 32), i += 8;
    if (n & 4) memcpy(to + i, from + i, 16), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) to[i] = from[i];
}

/* Elements [from, from + n) of the row's gradient: summed over devices, averaged if wished. Returns where they are. */
FRUGAL_PRIV_ALWAYS const float *frugal_priv_gradient(const frugal_store *store, const frugal_priv_apply *a,
                                                     uint32_t from, uint32_t n, float *restrict buffer) {
    if (a->n == 1 && store->reduce == FRUGAL_SUM) return a->records[0] + from;
    frugal_priv_copy_row(buffer, a->records[0] + from, n);
    FRUGAL_PRIV_VECTORS
    for (uint32_t r = 1; r < a->n; r++) frugal_priv_add_row(buffer, a->records[r] + from, n);
    if (store->reduce == FRUGAL_MEAN) frugal_priv_divide_row(buffer, (float)store->devices, n);
    return buffer;
}

/* lanes[n] += g * g. */
FRUGAL_PRIV_ALWAYS void frugal_priv_square(float *restrict lanes, const float *restrict g, const float *restrict w,
                                           float decay, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t l = 0; l < n; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

/* All 32 lanes, which stay in registers from one block to the next because this loop is unrolled after it has become
 * vectors. */
FRUGAL_PRIV_ALWAYS void frugal_priv_square_block(float *restrict lanes, const float *restrict g,
                                                 const float *restrict w, float decay) {
    for (uint32_t l = 0; l < 32; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_fold(float *restrict lanes, uint32_t half) {
    for (uint32_t l = 0; l < half; l++) lanes[l] = frugal_add(lanes[l], lanes[l + half]);
}

/* Sum of g * g over a row in 32 lanes, then a halving tree: an order that a warp can follow. */
FRUGAL_PRIV_ALWAYS float frugal_priv_squares(const frugal_store *store, const frugal_priv_apply *a, float decay) {
    float lanes[32] = {0}, buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t from = 0; from < store->dim; from += FRUGAL_PRIV_STATE_CHUNK) {
        uint32_t n = FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, store->dim - from), i = 0;
        const float *g = frugal_priv_gradient(store, a, from, n, buffer);
        const float *w = a->weights + from;
        for (; i + 32 <= n; i += 32) frugal_priv_square_block(lanes, g + i, w + i, decay);
        if (n & 16) frugal_priv_square(lanes, g + i, w + i, decay, 16), i += 16;
        if (n & 8) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 8), i += 8;
        if (n & 4) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 4), i += 4;
        FRUGAL_PRIV_VECTORS
        for (; i < n; i++) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 1);
    }
    frugal_priv_fold(lanes, 16);
    frugal_priv_fold(lanes, 8);
    frugal_priv_fold(lanes, 4);
    frugal_priv_fold(lanes, 2);
    return frugal_add(lanes[0], lanes[1]);
}

typedef struct frugal_priv_rule { /* what is the same for all elements of a row */
    frugal_optimizer_kind kind;
    float decay, factor, eps, rest1, rest2;
} frugal_priv_rule;

/* n elements of a row. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_elements(const frugal_priv_rule *o, float *restrict w, float *restrict s,
                                                   float *restrict v, const float *restrict g, uint32_t n) {
    if (o->kind == FRUGAL_ADAGRAD) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            w[i] = frugal_adagrad(w[i], &s[i], frugal_decay(g[i], w[i], o->decay), o->factor, o->eps);
    } else if (o->kind == FRUGAL_ADAM) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            w[i] = frugal_adam(w[i], &s[i], &v[i], frugal_decay(g[i], w[i], o->decay), o->factor, o->rest1, o->rest2,
                               o->eps);
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) w[i] = frugal_sgd(w[i], frugal_decay(g[i], w[i], o->decay), o->factor);
    }
}

/* Elements [from, from + n) of a row. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_chunk(const frugal_store *store, const frugal_priv_apply *a,
                                                const frugal_priv_rule *o, uint32_t from, uint32_t n) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    const float *g = frugal_priv_gradient(store, a, from, n, buffer);
    float *w = a->weights + from;
    float *s = o->kind == FRUGAL_ADAGRAD || o->kind == FRUGAL_ADAM ? a->state + from : w;
    float *v = o->kind == FRUGAL_ADAM ? s + store->dim : w;
    uint32_t i = n & ~15u;
    frugal_priv_apply_elements(o, w, s, v, g, i);
    if (n & 8) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 8), i += 8;
    if (n & 4) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 1);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_row(const frugal_store *store, const frugal_optimizer *optimizer,
                                              const frugal_priv_apply *a, frugal_optimizer_kind kind, float decay) {
    frugal_priv_rule o = {kind,
                          decay,
                          kind == FRUGAL_ADAM ? a->hyper->step_size : a->hyper->lr,
                          optimizer->eps,
                          1.0f - optimizer->beta1,
                          1.0f - optimizer->beta2};
    if (kind == FRUGAL_ROWWISE_ADAGRAD)
        o.factor =
            frugal_rowwise_adagrad(a->state, frugal_priv_squares(store, a, decay), (float)store->dim, o.factor, o.eps);
    for (uint32_t from = 0; from < store->dim; from += FRUGAL_PRIV_STATE_CHUNK)
        frugal_priv_apply_chunk(store, a, &o, from, FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, store->dim - from));
}

/* `kind` is a constant where this is inlined, and so is the decay where there is none: loops over elements ask nothing. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_each(const frugal_store *store, const frugal_optimizer *optimizer,
                                               const frugal_priv_apply *a, uint32_t n, frugal_optimizer_kind kind,
                                               float decay) {
    for (uint32_t i = 0; i < n; i++) {
        if (i + FRUGAL_PRIV_AHEAD_APPLY < n) frugal_priv_prefetch_apply(store, &a[i + FRUGAL_PRIV_AHEAD_APPLY]);
        frugal_priv_apply_row(store, optimizer, &a[i], kind, decay);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_decayed(const frugal_store *store, const frugal_optimizer *optimizer,
                                                  const frugal_priv_apply *a, uint32_t n, frugal_optimizer_kind kind) {
    float decay = optimizer->weight_decay;
    if (decay != 0.0f)
        frugal_priv_apply_each(store, optimizer, a, n, kind, decay);
    else
        frugal_priv_apply_each(store, optimizer, a, n, kind, 0.0f);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_all(const frugal_store *store, const frugal_optimizer *optimizer,
                                              const frugal_priv_apply *a, uint32_t n) {
    switch (optimizer->kind) {
    case FRUGAL_SGD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_SGD);
        break;
    case FRUGAL_ADAGRAD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ADAGRAD);
        break;
    case FRUGAL_ROWWISE_ADAGRAD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ROWWISE_ADAGRAD);
        break;
    case FRUGAL_ADAM:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ADAM);
        break;
    }
}

/* sum[width] = the rows at grads + order[k] * dim, in blocks of 32 positions; `width` at most a chunk. */
FRUGAL_PRIV_ALWAYS void frugal_priv_sum_chunk(float *restrict sum, const float *restrict grads, uint32_t dim,
                                              uint32_t width, const uint32_t *order, uint32_t n) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        frugal_priv_copy_row(to, grads + (uint64_t)order[block] * dim, width);
        for (uint32_t k = block + 1; k < FRUGAL_PRIV_MIN(block + 32, n); k++)
            frugal_priv_add_row(to, grads + (uint64_t)order[k] * dim, width);
        if (block > 0) frugal_priv_add_row(sum, buffer, width);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_row(float *sum, const float *grads, uint32_t dim, const uint32_t *order,
                                            uint32_t n) {
    if (n == 1) { /* the most of them, even where keys are skewed */
        memcpy(sum, grads + (uint64_t)order[0] * dim, dim * sizeof(float));
        return;
    }
    for (uint32_t from = 0; from < dim; from += FRUGAL_PRIV_STATE_CHUNK)
        frugal_priv_sum_chunk(sum + from, grads + from, dim, FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, dim - from),
                              order, n);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_records(const frugal_records *r, const float *grads, uint32_t dim) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t first = r->start[u], n = r->start[u + 1] - first;
        if (first + FRUGAL_PRIV_AHEAD_SUM < r->n) /* positions are as good as random */
            frugal_priv_prefetch_row(grads + (uint64_t)r->order[first + FRUGAL_PRIV_AHEAD_SUM] * dim, dim, 0);
        frugal_priv_sum_row(r->block + u * r->stride, grads, dim, r->order + first, n);
    }
}

/* What a bag's rows, or its gradient, are scaled by; a constant where it is inlined. */
typedef enum { FRUGAL_PRIV_PLAIN, FRUGAL_PRIV_WEIGHTED, FRUGAL_PRIV_MEAN } frugal_priv_scaling;

static frugal_priv_scaling frugal_priv_scaling_of(const frugal_bags *bags) {
    if (bags->pooling == FRUGAL_POOL_MEAN) return FRUGAL_PRIV_MEAN;
    return bags->weights ? FRUGAL_PRIV_WEIGHTED : FRUGAL_PRIV_PLAIN;
}

/* n elements: to = what * by, or += in one fused multiply-add. */
FRUGAL_PRIV_ALWAYS void frugal_priv_weigh_elements(float *restrict to, const float *restrict what, float by, int first,
                                                   uint32_t n) {
    if (first) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_mul(what[i], by);
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_fma(by, what[i], to[i]);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_weigh_row(float *to, const float *what, float by, int first, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_weigh_elements(to, what, by, first, i);
    if (n & 8) frugal_priv_weigh_elements(to + i, what + i, by, first, 8), i += 8;
    if (n & 4) frugal_priv_weigh_elements(to + i, what + i, by, first, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_weigh_elements(to + i, what + i, by, first, 1);
}

/* One bag: positions [from, end), from the first one on. */
FRUGAL_PRIV_ALWAYS void frugal_priv_pool_bag(float *to, const frugal_records *r, const float *weights, uint32_t dim,
                                             uint32_t from, uint32_t end, frugal_priv_scaling scaling) {
    if (from == end) memset(to, 0, dim * sizeof(float));
    for (uint32_t p = from; p < end; p++) {
        if (p + FRUGAL_PRIV_AHEAD_SUM < r->n)
            frugal_priv_prefetch_row(r->block + r->record_of[p + FRUGAL_PRIV_AHEAD_SUM] * r->stride, dim, 0);
        const float *row = r->block + r->record_of[p] * r->stride;
        if (scaling == FRUGAL_PRIV_WEIGHTED && p == from)
            frugal_priv_weigh_row(to, row, weights[p], 1, dim);
        else if (scaling == FRUGAL_PRIV_WEIGHTED)
            frugal_priv_weigh_row(to, row, weights[p], 0, dim);
        else if (p == from)
            memcpy(to, row, dim * sizeof(float));
        else
            frugal_priv_add_row(to, row, dim);
    }
    if (scaling == FRUGAL_PRIV_MEAN && end - from > 1) frugal_priv_divide_row(to, (float)(end - from), dim);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_pool_bags(const frugal_records *r, const frugal_bags *bags, uint32_t dim,
                                              float *pooled, frugal_priv_scaling scaling) {
    for (uint32_t b = 0; b < bags->n_bags; b++)
        frugal_priv_pool_bag(pooled + (uint64_t)b * dim, r, bags->weights, dim, bags->offsets[b], bags->offsets[b + 1],
                             scaling);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_pool_all(const frugal_records *r, const frugal_bags *bags, uint32_t dim,
                                             float *pooled) {
    switch (frugal_priv_scaling_of(bags)) {
    case FRUGAL_PRIV_PLAIN:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_PLAIN);
        break;
    case FRUGAL_PRIV_WEIGHTED:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_WEIGHTED);
        break;
    case FRUGAL_PRIV_MEAN:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_MEAN);
        break;
    }
}

/* n elements: to = what scaled, or += that; two roundings, as if the gradients by position had been written. */
FRUGAL_PRIV_ALWAYS void frugal_priv_scale_elements(float *restrict to, const float *restrict what, float by, int first,
                                                   frugal_priv_scaling scaling, uint32_t n) {
    if (scaling == FRUGAL_PRIV_WEIGHTED) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_mul(what[i], by) : frugal_add(to[i], frugal_mul(what[i], by));
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_div(what[i], by) : frugal_add(to[i], frugal_div(what[i], by));
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_scale_row(float *to, const float *what, float by, int first,
                                              frugal_priv_scaling scaling, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_scale_elements(to, what, by, first, scaling, i);
    if (n & 8) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 8), i += 8;
    if (n & 4) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 1);
}

/* The gradient of position p, or to += that; `width` elements of it. */
FRUGAL_PRIV_ALWAYS void frugal_priv_spread(float *to, const float *grads, const frugal_bags *bags,
                                           const uint32_t *bag_of, uint32_t dim, uint32_t width, uint32_t p, int first,
                                           frugal_priv_scaling scaling) {
    uint32_t bag = bag_of[p];
    const float *gradient = grads + (uint64_t)bag * dim;
    float by = scaling == FRUGAL_PRIV_WEIGHTED ? bags->weights[p]
               : scaling == FRUGAL_PRIV_MEAN   ? (float)(bags->offsets[bag + 1] - bags->offsets[bag])
                                               : 1.0f;
    if (scaling != FRUGAL_PRIV_PLAIN && first)
        frugal_priv_scale_row(to, gradient, by, 1, scaling, width);
    else if (scaling != FRUGAL_PRIV_PLAIN)
        frugal_priv_scale_row(to, gradient, by, 0, scaling, width);
    else if (first)
        frugal_priv_copy_row(to, gradient, width);
    else
        frugal_priv_add_row(to, gradient, width);
}

/* As frugal_priv_sum_chunk. */
FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_chunk(float *restrict sum, const float *restrict grads,
                                                   const frugal_bags *bags, const uint32_t *bag_of, uint32_t dim,
                                                   uint32_t width, const uint32_t *order, uint32_t n,
                                                   frugal_priv_scaling scaling) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        frugal_priv_spread(to, grads, bags, bag_of, dim, width, order[block], 1, scaling);
        for (uint32_t k = block + 1; k < FRUGAL_PRIV_MIN(block + 32, n); k++)
            frugal_priv_spread(to, grads, bags, bag_of, dim, width, order[k], 0, scaling);
        if (block > 0) frugal_priv_add_row(sum, buffer, width);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_each(const frugal_records *r, const frugal_bags *bags,
                                                  const uint32_t *bag_of, const float *grads, uint32_t dim,
                                                  frugal_priv_scaling scaling) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t first = r->start[u], n = r->start[u + 1] - first;
        if (first + FRUGAL_PRIV_AHEAD_SUM < r->n)
            frugal_priv_prefetch_row(grads + (uint64_t)bag_of[r->order[first + FRUGAL_PRIV_AHEAD_SUM]] * dim, dim, 0);
        for (uint32_t from = 0; from < dim; from += FRUGAL_PRIV_STATE_CHUNK)
            frugal_priv_sum_bags_chunk(r->block + u * r->stride + from, grads + from, bags, bag_of, dim,
                                       FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, dim - from), r->order + first, n,
                                       scaling);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_all(const frugal_records *r, const frugal_bags *bags,
                                                 const uint32_t *bag_of, const float *grads, uint32_t dim) {
    switch (frugal_priv_scaling_of(bags)) {
    case FRUGAL_PRIV_PLAIN:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_PLAIN);
        break;
    case FRUGAL_PRIV_WEIGHTED:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_WEIGHTED);
        break;
    case FRUGAL_PRIV_MEAN:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_MEAN);
        break;
    }
}

/* Each clone is the same source under another target attribute; a call picks one by the processor it runs on. */
#define FRUGAL_PRIV_CLONES(suffix, attribute)                                                                          \
    attribute static void frugal_priv_apply_rows_##suffix(                                                             \
        const frugal_store *store, const frugal_optimizer *optimizer, const frugal_priv_apply *a, uint32_t n) {        \
        frugal_priv_apply_all(store, optimizer, a, n);                                                                 \
    }                                                                                                                  \
    attribute static void frugal_priv_sum_all_##suffix(const frugal_records *r, const float *grads, uint32_t dim) {    \
        frugal_priv_sum_records(r, grads, dim);                                                                        \
    }                                                                                                                  \
    attribute static void frugal_priv_sum_##suffix(float *sum, const float *grads, uint32_t dim,                       \
                                                   const uint32_t *order, uint32_t n) {                                \
        frugal_priv_sum_row(sum, grads, dim, order, n);                                                                \
    }                                                                                                                  \
    attribute static void frugal_priv_pool_##suffix(const frugal_records *r, const frugal_bags *bags, uint32_t dim,    \
                                                    float *pooled) {                                                   \
        frugal_priv_pool_all(r, bags, dim, pooled);                                                                    \
    }                                                                                                                  \
    attribute static void frugal_priv_sum_bags_##suffix(const frugal_records *r, const frugal_bags *bags,              \
                                                        const uint32_t *bag_of, const float *grads, uint32_t dim) {    \
        frugal_priv_sum_bags_all(r, bags, bag_of, grads, dim);                                                         \
    }
FRUGAL_PRIV_CLONES(baseline, )
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__) && __GNUC__ < 14
#define FRUGAL_PRIV_AVX512 "avx2,fma" /* gcc bug 110027: its sanitizer's stack frames are not aligned for more */
#else
#define FRUGAL_PRIV_AVX512 "avx512f,avx512vl,avx512dq,avx2,fma"
#endif
FRUGAL_PRIV_CLONES(avx2, __attribute__((target("avx2,fma"))))
FRUGAL_PRIV_CLONES(avx512, __attribute__((target(FRUGAL_PRIV_AVX512))))
#define FRUGAL_PRIV_DISPATCH(name, ...)                                                                                \
    do {                                                                                                               \
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&                                 \
            __builtin_cpu_supports("avx512dq"))                                                                        \
            name##_avx512(__VA_ARGS__);                                                                                \
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))                                      \
            name##_avx2(__VA_ARGS__);                                                                                  \
        else                                                                                                           \
            name##_baseline(__VA_ARGS__);                                                                              \
    } while (0)
#else
#define FRUGAL_PRIV_DISPATCH(name, ...) name##_baseline(__VA_ARGS__)
#endif

/* Rows of one group, with its settings. */
static void frugal_priv_apply_rows(const frugal_store *store, const frugal_optimizer *optimizer,
                                   const frugal_priv_apply *rows, uint32_t n) {
    FRUGAL_PRIV_DISPATCH(frugal_priv_apply_rows, store, optimizer, rows, n);
}

void frugal_apply(const frugal_store *store, const frugal_hyper *hyper, uint32_t row, float *weights, float *state,
                  const float *gradient) {
    uint32_t group = frugal_group_of(store->groups, store->n_groups, row);
    frugal_priv_apply apply = {weights, state, &gradient, 1, &hyper[group]};
    frugal_priv_apply_rows(store, &store->groups[group].optimizer, &apply, 1);
}

void frugal_sum_gradients(const frugal_records *records, const float *grads, uint32_t dim) {
    FRUGAL_PRIV_DISPATCH(frugal_priv_sum_all, records, grads, dim);
}

void frugal_sum_positions(float *sum, const float *grads, uint32_t dim, const uint32_t *order, uint32_t n) {
    FRUGAL_PRIV_DISPATCH(frugal_priv_sum, sum, grads, dim, order, n);
}

void frugal_pool(const frugal_records *records, const frugal_bags *bags, uint32_t dim, float *pooled) {
    FRUGAL_PRIV_DISPATCH(frugal_priv_pool, records, bags, dim, pooled);
}

void frugal_sum_bags(const frugal_records *records, const frugal_bags *bags, const uint32_t *bag_of, const float *grads,
                     uint32_t dim) {
    FRUGAL_PRIV_DISPATCH(frugal_priv_sum_bags, records, bags, bag_of, grads, dim);
}

/* The caller's thread may flush small numbers to zero or round otherwise; ours and its helping must not. */
#if defined(__SSE__)
typedef unsigned int frugal_priv_fenv;
static frugal_priv_fenv frugal_priv_fenv_enter(void) {
    unsigned int saved = __builtin_ia32_stmxcsr();
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(0x1f80u);
    return saved;
}
static void frugal_priv_fenv_leave(frugal_priv_fenv saved) {
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(saved);
}
#else
typedef fenv_t frugal_priv_fenv;
static frugal_priv_fenv frugal_priv_fenv_enter(void) {
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}
static void frugal_priv_fenv_leave(frugal_priv_fenv saved) {
    fesetenv(&saved);
}
#endif

/* Known hard cases: a product that only a fused multiply-add keeps, a subnormal, the last bit of root and quotient. */
static int frugal_priv_self_test(void) {
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    enum { N = 37 };
    frugal_table_group group = {.optimizer = {.kind = FRUGAL_ADAGRAD, .eps = 0x1p-20f}};
    frugal_store store = {.dim = N, .devices = 1, .n_groups = 1, .groups = &group, .state_floats = N};
    frugal_hyper hyper = {0.1f, 0.1f};
    float w[N], s[N], g[N];
    int right = 1;
    for (int i = 0; i < N; i++) w[i] = 1.0f, s[i] = -1.0f - 0x1p-11f, g[i] = 1.0f + 0x1p-12f;
    frugal_apply(&store, &hyper, 0, w, s, g); /* s = 2^-24 if fused, or 0; w = 1 - 0.1 (1 + 2^-12) / (2^-12 + 2^-20) */
    volatile double exact = -0.1f;            /* the quotient is rounded to float, the rest is exact in double */
    volatile float quotient = (float)((1.0 + 0x1p-12) / (0x1p-12 + 0x1p-20));
    for (int i = 0; i < N; i++) right &= s[i] == 0x1p-24f && w[i] == (float)(1.0 + exact * (double)quotient);
    group.optimizer.eps = 0, hyper.lr = 1.0f;
    for (int i = 0; i < N; i++) w[i] = 0.0f, s[i] = 1.0f, g[i] = 1.0f;
    frugal_apply(&store, &hyper, 0, w, s, g); /* w = -1 / sqrt(2): the root's last bit decides the quotient's */
    for (int i = 0; i < N; i++) right &= w[i] == -(float)(1.0 / (double)0x1.6a09e6p+0f);
    group.optimizer.kind = FRUGAL_SGD, store.state_floats = 0;
    for (int i = 0; i < N; i++) w[i] = 0x1p-126f, g[i] = 0x1p-130f;
    hyper.lr = 1.0f;
    frugal_apply(&store, &hyper, 0, w, NULL, g);
    for (int i = 0; i < N; i++) right &= w[i] == 0x1p-126f - 0x1p-130f && w[i] != 0.0f && w[i] < FLT_MIN;
    frugal_priv_fenv_leave(saved);
    return right;
}

uint32_t frugal_state_floats(frugal_optimizer_kind kind, uint32_t dim) {
    switch (kind) {
    case FRUGAL_ADAGRAD:
        return dim;
    case FRUGAL_ROWWISE_ADAGRAD:
        return 1;
    case FRUGAL_ADAM:
        return 2 * dim;
    default:
        return 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * >>instance
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_batch { /* an announced batch: written by the loader, read by the trainer */
    uint32_t n, n_unique;
    int read_only;
    uint32_t *rows;      /* [n_unique], rising */
    uint32_t *record_of; /* [n] */
    uint32_t *order;     /* [n] */
    uint32_t *start;     /* [n_unique + 1] */
    uint64_t *valid;     /* bits [n_unique] */
} frugal_priv_batch;

typedef struct frugal_priv_dev {
    frugal_device_ops ops;
    void *state;
    int attached;
    frugal_priv_batch *batches; /* ring [L + 1], by announced step */
    void *batch_memory;
    uint64_t *sorted, *scratch;        /* the loader's: row << 32 | position */
    float *blocks;                     /* ring [S] of [max_keys][record_stride], by step */
    FRUGAL_ATOMIC(uint64_t) looked_up; /* steps looked up; the trainer's, read by cancel, which its caller orders */
    FRUGAL_ATOMIC(uint64_t) told;      /* steps that the device knows to be announced; the loader's, and cancel's */
    FRUGAL_ATOMIC(uint64_t) updated;   /* steps updated; the trainer's; committed when the device has done its work */
    uint8_t brings[FRUGAL_P2F_SLOTS];  /* gradients in the steps between committed and updated */
    frugal_bags bags;                  /* of the last lookup; bags.offsets NULL: it was by position */
    FRUGAL_ATOMIC(uint64_t) hits, misses, keys, unique_rows, gate_waits; /* written by the trainer only */
    FRUGAL_ATOMIC(uint64_t) stall_ns, barrier_ns;                        /* the trainer's */
    FRUGAL_ATOMIC(uint64_t) announce_ns;                                 /* the loader's */
    uint8_t pad[64];
} frugal_priv_dev;

typedef struct frugal_priv_settings { /* of one step, in a ring of 64; guarded by settings_lock */
    uint64_t step;
    int fixed;
    float lr; /* what all devices must bring */
} frugal_priv_settings;

typedef struct frugal_priv_powers { /* of a group's betas */
    double beta1, beta2;
} frugal_priv_powers;

/* One instance among those that some workers serve. */
typedef struct frugal_priv_slot {
    /* Open or not, and the number of workers inside; changed by read-modify-write only. Nobody enters a closed slot. A
     * worker that is inside may use the instance, and leaves when he comes by and finds the slot closed. */
    FRUGAL_ATOMIC(uint32_t) word;
    int taken; /* under the lock */
    frugal *f; /* constant from before the slot is opened until it is closed and empty */
} frugal_priv_slot;

#define FRUGAL_PRIV_SLOT_OPEN   1u
#define FRUGAL_PRIV_SLOT_WORKER 2u

struct frugal_workers { /* threads, and the instances that they serve: one of its own, or all that share them */
    frugal_priv_event event;
    uint32_t n, started;                /* threads */
    pthread_t *threads;                 /* [n] */
    FRUGAL_ATOMIC(uint32_t) closing;    /* relaxed: workers are told by the event, and joined */
    FRUGAL_ATOMIC(uint32_t) slots_used; /* slots below were taken some day; relaxed: an instance tells of its work */
    pthread_mutex_t lock;               /* of taking a slot, and giving it back */
    uint32_t instances;                 /* slots taken; under the lock */
    frugal_priv_slot slots[FRUGAL_MAX_INSTANCES];
};

struct frugal {
    int opened;           /* frugal_open succeeded: the last thing it sets; other calls than close want it */
    frugal_desc desc;     /* resolved */
    frugal_table *tables; /* copy of desc.tables, and sources dropped */
    uint64_t *first_row;  /* [n_tables + 1] */
    frugal_store store;
    frugal_p2f *p2f;
    size_t p2f_bytes;
    void *table_memory, *state_memory; /* ours, or NULL */
    size_t table_bytes, state_bytes, file_bytes;
    int file;        /* descriptor, or -1; table_memory is then its mapping */
    int file_is_new; /* and has not got its name yet */
    frugal_priv_dev *devices;
    size_t batch_bytes, block_bytes, block_stride, scratch_bytes;
    uint32_t record_stride;          /* floats */
    uint32_t sort_bits;              /* bits of a row number */
    frugal_priv_event *event;        /* anything that a waiter or a worker may wait for: the workers', or its own */
    frugal_priv_event own_event;     /* without workers */
    FRUGAL_ATOMIC(uint32_t) stopped; /* whoever finds it set has acquired what was done before stop */
    pthread_mutex_t settings_lock;
    frugal_priv_settings settings[FRUGAL_P2F_SLOTS];
    void *group_memory; /* store.groups, and the next three */
    /* Ring [64][n_groups], by step: constant once its settings are fixed, read by whoever flushes the step, ordered by
     * its commit. */
    frugal_hyper *hypers;
    frugal_priv_powers *power_now; /* [n_groups]: beta^power_step; under settings_lock, as the next two */
    frugal_priv_powers *powers;    /* ring [64][n_groups]: devices that are ahead may bring for a later step first */
    uint64_t power_step;
    /* Devices that have `poll`, and that wait for `gates` themselves. Relaxed: raised before the device's first announcement,
     * and whoever has to do something about a device has been told of that. */
    FRUGAL_ATOMIC(uint32_t) polled_devices, waiting_devices;
    pthread_mutex_t poll_lock;           /* one thread polls, and commits */
    FRUGAL_ATOMIC(uint32_t) refusals;    /* threads that want poll_lock now; relaxed: the event tells of it */
    FRUGAL_ATOMIC(uint64_t) * gates;     /* a page of its own: gates that are open, counted from step 0 */
    FRUGAL_ATOMIC(uint32_t) lost;        /* device + 1; 0: none */
    char lost_message[256];              /* constant once `lost` is set */
    frugal_workers *workers;             /* shared, or its own; NULL: none */
    uint32_t slot;                       /* which it has there */
    int entered;                         /* the slot is open */
    FRUGAL_ATOMIC(uint64_t) busy_ns, plan_ns, close_ns, flush_ns;
    FRUGAL_ATOMIC(uint64_t) closed_entries, flushed, flushed_at_close, stale, flushed_by_urgency[64];
};

static void frugal_priv_tally(FRUGAL_ATOMIC(uint64_t) * counter, uint64_t n) {
    frugal_add_relaxed(counter, n); /* relaxed: statistics order nothing */
}

const frugal_desc *frugal_settings(const frugal *f) {
    return &f->desc;
}
const frugal_store *frugal_get_store(const frugal *f) {
    return &f->store;
}
int frugal_is_current(frugal *f, uint32_t device, uint32_t row) {
    return frugal_p2f_is_current(f->p2f, device, row);
}
void *frugal_allocate(frugal *f, size_t bytes, size_t alignment) {
    return frugal_priv_allocate(&f->desc, bytes, alignment);
}
void frugal_free(frugal *f, void *memory, size_t bytes) {
    frugal_priv_release(&f->desc, memory, bytes);
}
void frugal_count_hits(frugal *f, uint32_t device, uint64_t hits, uint64_t misses) {
    frugal_priv_dev *dev = &f->devices[device];
    frugal_priv_tally(&dev->hits, hits);
    frugal_priv_tally(&dev->misses, misses);
}

static inline float *frugal_priv_weights(const frugal *f, uint64_t row) {
    return f->store.weights + row * f->store.weights_stride;
}
static inline float *frugal_priv_state(const frugal *f, uint64_t row) {
    return f->store.state ? f->store.state + row * f->store.state_stride : NULL;
}
static inline frugal_priv_batch *frugal_priv_batch_of(const frugal *f, uint32_t device, uint64_t step) {
    return &f->devices[device].batches[step % (f->desc.lookahead + 1)];
}
/* A step's numbers, by group. */
static inline frugal_hyper *frugal_priv_hyper(const frugal *f, uint64_t step) {
    return f->hypers + step % FRUGAL_P2F_SLOTS * f->store.n_groups;
}
static inline float *frugal_priv_block(const frugal *f, uint32_t device, uint64_t step) {
    return f->devices[device].blocks + step % f->desc.staging * f->block_stride;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>table - row layout and initializers
 * --------------------------------------------------------------------------------------------------------- */

/* Floats from row to row: rows start on 128 bytes where the weights fill a multiple of 128, else on 32, so that a GPU
 * reads no line that it does not need; rows under 32 bytes are packed to a power of two. */
static uint64_t frugal_priv_aligned(uint32_t floats) {
    if (floats == 0) return 0;
    if (floats < 8) {
        uint64_t power = 1;
        while (power < floats) power *= 2;
        return power;
    }
    return floats % 32 == 0 ? floats : (floats + 7) / 8 * 8;
}

/* Philox 4x32-10 (Salmon et al., SC 2011): random numbers as a function of (seed, row, element / 4), so that the
 * table is the same whatever the number of threads that make it. */
static void frugal_priv_philox(uint64_t seed, uint64_t row, uint32_t block, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)row, (uint32_t)(row >> 32), block, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k1,
                            (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

static float frugal_priv_uniform(uint32_t bits, const frugal_table *table) {
    return frugal_fma((float)(bits >> 8) * 0x1p-24f, table->high - table->low, table->low);
}

/* Box and Muller, in double, so that what a C library's last bit may differ in rarely reaches the float. */
static float frugal_priv_normal(uint32_t bits1, uint32_t bits2, const frugal_table *table) {
    double u = ((double)bits1 + 1.0) * 0x1p-32, angle = (double)bits2 * (6.283185307179586 * 0x1p-32);
    return (float)fma((double)table->deviation, sqrt(-2.0 * log(u)) * cos(angle), (double)table->mean);
}

static void frugal_priv_init_row(const frugal *f, const frugal_table *table, uint64_t row, uint64_t in_table) {
    float *w = frugal_priv_weights(f, row);
    uint32_t dim = f->desc.dim;
    uint32_t random[8];
    switch (table->init) {
    case FRUGAL_INIT_ZERO:
        memset(w, 0, dim * sizeof *w);
        break;
    case FRUGAL_INIT_COPY:
        memcpy(w, table->source + in_table * dim, dim * sizeof *w);
        break;
    case FRUGAL_INIT_UNIFORM:
        for (uint32_t i = 0; i < dim; i++) {
            if (i % 4 == 0) frugal_priv_philox(f->desc.seed, row, i / 4, random);
            w[i] = frugal_priv_uniform(random[i % 4], table);
        }
        break;
    default: /* FRUGAL_INIT_NORMAL */
        for (uint32_t i = 0; i < dim; i++) {
            if (i % 4 == 0) frugal_priv_philox(f->desc.seed, row, i / 4 * 2, random);
            if (i % 4 == 0) frugal_priv_philox(f->desc.seed, row, i / 4 * 2 + 1, random + 4);
            w[i] = frugal_priv_normal(random[i % 4], random[4 + i % 4], table);
        }
        break;
    }
}

/* What the state of the table's new rows consists of. */
static float frugal_priv_first_state(const frugal_table *table) {
    const frugal_optimizer *o = table->optimizer;
    return o->kind == FRUGAL_ADAGRAD || o->kind == FRUGAL_ROWWISE_ADAGRAD ? o->initial_accumulator : 0.0f;
}

typedef struct frugal_priv_init_job {
    const frugal *f;
    uint64_t from, to;  /* rows */
    int weights, state; /* what is to be initialized */
    int zero;           /* the weights are zero already */
} frugal_priv_init_job;

static int frugal_priv_initializes(const frugal_priv_init_job *job, frugal_init_kind kind) {
    return job->weights && kind != FRUGAL_INIT_DEFAULT && !(job->zero && kind == FRUGAL_INIT_ZERO);
}

static void *frugal_priv_init_rows(void *argument) {
    frugal_priv_init_job *job = argument;
    const frugal *f = job->f;
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    uint32_t t = 0;
    for (uint64_t row = job->from; row < job->to; row++) {
        while (row >= f->first_row[t + 1]) t++;
        const frugal_table *table = &f->desc.tables[t];
        float first = frugal_priv_first_state(table);
        if (frugal_priv_initializes(job, table->init)) frugal_priv_init_row(f, table, row, row - f->first_row[t]);
        if (job->state && first != 0.0f)
            for (uint32_t i = 0; i < f->store.state_floats; i++) frugal_priv_state(f, row)[i] = first;
    }
    frugal_priv_fenv_leave(saved);
    return NULL;
}

/* Memory of our own and a file that is made are new: zero, and to be initialized. The caller's matrix is initialized
 * where a table asks for it. A file that was there is left as it is, weights and state. */
static void frugal_priv_init_table(const frugal *f, int new_weights, int new_state, int kept) {
    frugal_priv_init_job job = {.f = f, .weights = !kept, .state = new_state, .zero = new_weights};
    int needed = 0;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        needed |= frugal_priv_initializes(&job, f->desc.tables[t].init);
        needed |= new_state && frugal_priv_first_state(&f->desc.tables[t]) != 0.0f;
    }
    if (!needed) return;
    uint64_t rows = f->store.rows;
    uint32_t n = FRUGAL_PRIV_MIN(f->desc.init_threads, 64);
    pthread_t threads[64];
    int started[64] = {0};
    frugal_priv_init_job jobs[64];
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = job;
        jobs[i].from = rows * i / n, jobs[i].to = rows * (i + 1) / n;
        started[i] = i > 0 && !pthread_create(&threads[i], NULL, frugal_priv_init_rows, &jobs[i]);
        if (i > 0 && !started[i]) frugal_priv_init_rows(&jobs[i]); /* no thread to be had: then this one */
    }
    frugal_priv_init_rows(&jobs[0]);
    for (uint32_t i = 1; i < n; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>batch - keys -> unique rows, and the order in which their gradients are summed
 * --------------------------------------------------------------------------------------------------------- */

/* Checks all keys and writes row << 32 | position into the device's scratch. */
static frugal_status frugal_priv_read_keys(frugal *f, uint32_t device, const frugal_batch *batch, uint32_t *n_out) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) n += batch->segments[i].n;
    if (n > f->desc.max_keys)
        return frugal_fail(FRUGAL_ERR_KEYS,
                           "device %u announces %llu keys; max_keys is %u: raise it or split the batch", device,
                           (unsigned long long)n, f->desc.max_keys);
    uint64_t *out = f->devices[device].sorted;
    uint64_t position = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        const frugal_keys *s = &batch->segments[i];
        if (s->table >= f->desc.n_tables)
            return frugal_fail(FRUGAL_ERR_TABLE, "segment %u names table %u; there are %u", i, s->table,
                               f->desc.n_tables);
        if (s->n > 0 && !s->keys)
            return frugal_fail(FRUGAL_ERR_ARGUMENT, "segment %u has %u keys and no array", i, s->n);
        uint64_t rows = f->desc.tables[s->table].rows, first = f->first_row[s->table];
        for (uint32_t k = 0; k < s->n; k++) {
            if (s->keys[k] >= rows)
                return frugal_fail(FRUGAL_ERR_KEY,
                                   "key %lld at %u of segment %u: table %u has %llu rows, keys start at 0",
                                   (long long)s->keys[k], k, i, s->table, (unsigned long long)rows);
            out[position] = (first + s->keys[k]) << 32 | position;
            position++;
        }
    }
    *n_out = (uint32_t)n;
    return FRUGAL_OK;
}

/* Radix sort by row, least digit first; stable, so that positions stay in order. Returns where the result is. */
static uint64_t *frugal_priv_sort(uint64_t *from, uint64_t *to, uint32_t n, uint32_t bits) {
    uint32_t count[4096];
    uint32_t widest = n < 4096 ? 8 : 12;
    uint32_t passes = (bits + widest - 1) / widest;
    uint32_t width = passes ? (bits + passes - 1) / passes : 0;
    for (uint32_t pass = 0; pass < passes; pass++) {
        uint32_t shift = 32 + pass * width, mask = (1u << width) - 1;
        memset(count, 0, sizeof(uint32_t) << width);
        for (uint32_t i = 0; i < n; i++) count[from[i] >> shift & mask]++;
        uint32_t sum = 0;
        for (uint32_t digit = 0; digit <= mask; digit++) {
            uint32_t here = count[digit];
            count[digit] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < n; i++) to[count[from[i] >> shift & mask]++] = from[i];
        uint64_t *swap = from;
        from = to, to = swap;
    }
    return from;
}

static void frugal_priv_deduplicate(frugal_priv_batch *b, const uint64_t *sorted, uint32_t n) {
    uint32_t unique = 0;
    uint32_t previous = UINT32_MAX; /* no row has this number */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)(sorted[i] >> 32), position = (uint32_t)sorted[i];
        /* Written always, kept if new: cheaper than a branch that is as good as random. */
        b->rows[unique] = row;
        b->start[unique] = i;
        unique += row != previous;
        previous = row;
        b->order[i] = position;
        b->record_of[position] = unique - 1;
    }
    b->n = n;
    b->n_unique = unique;
    b->start[unique] = n;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>flush - taking updates and applying them; helping; workers; waiting
 * --------------------------------------------------------------------------------------------------------- */

/* Rows of one group to be applied together, so that the memory of one is on its way while another is worked on. */
typedef struct frugal_priv_applies {
    uint32_t n, used;
    uint32_t group;
    uint64_t first_row, n_rows; /* the group's; none before the first row is added */
    frugal_priv_apply rows[128];
    const float *records[128 + FRUGAL_MAX_DEVICES];
} frugal_priv_applies;

static void frugal_priv_applies_begin(frugal_priv_applies *list) {
    list->n = list->used = list->group = 0;
    list->first_row = list->n_rows = 0;
}

static void frugal_priv_applies_run(frugal *f, frugal_priv_applies *list) {
    for (uint32_t i = 0; i < FRUGAL_PRIV_MIN(list->n, FRUGAL_PRIV_AHEAD_APPLY); i++)
        frugal_priv_prefetch_apply(&f->store, &list->rows[i]);
    if (list->n > 0) frugal_priv_apply_rows(&f->store, &f->store.groups[list->group].optimizer, list->rows, list->n);
    list->n = list->used = 0;
}

/* Runs what is in the list, which goes on with the group of `row`. Rows mostly come in rising order: this is rare. */
static void frugal_priv_applies_turn(frugal *f, frugal_priv_applies *list, uint32_t row) {
    const frugal_store *s = &f->store;
    frugal_priv_applies_run(f, list);
    list->group = frugal_group_of(s->groups, s->n_groups, row);
    list->first_row = s->groups[list->group].first_row;
    list->n_rows = (list->group + 1 < s->n_groups ? s->groups[list->group + 1].first_row : s->rows) - list->first_row;
}

/* Adds the update of one row at `step`: entries[n] of its plan. 0 if no device brings gradients for it. */
static inline int frugal_priv_applies_add(frugal *f, frugal_priv_applies *list, uint64_t step, int all_bring,
                                          const frugal_p2f_entry *entries, uint32_t n) {
    if (list->n == 128 || list->used + n > 128 + FRUGAL_MAX_DEVICES) frugal_priv_applies_run(f, list);
    /* A row below the group's first one wraps around. */
    if (entries->row - list->first_row >= list->n_rows) frugal_priv_applies_turn(f, list, entries->row);
    frugal_priv_apply *a = &list->rows[list->n];
    const float **records = list->records + list->used;
    uint32_t brought = 0;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t device, record;
        frugal_p2f_source(f->p2f, entries[c].source, &device, &record);
        if (!all_bring && !frugal_p2f_brings(f->p2f, device, step)) continue;
        records[brought++] = frugal_priv_block(f, device, step) + (uint64_t)record * f->record_stride;
    }
    if (brought == 0) return 0;
    *a = (frugal_priv_apply){frugal_priv_weights(f, entries->row), frugal_priv_state(f, entries->row), records, brought,
                             frugal_priv_hyper(f, step) + list->group};
    list->used += brought;
    list->n++;
    return 1;
}

/* Applies updates taken from the queue. */
static void frugal_priv_flush(frugal *f, const frugal_p2f_work *work, uint32_t n) {
    frugal_priv_applies list;
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    frugal_priv_applies_begin(&list);
    for (uint32_t i = 0; i < n; i++) __builtin_prefetch(work[i].entries, 0, 3);
    for (uint32_t i = 0; i < n; i++)
        frugal_priv_applies_add(f, &list, work[i].step, frugal_p2f_all_bring(f->p2f, work[i].step), work[i].entries,
                                frugal_p2f_contributors(work[i].entries));
    frugal_priv_applies_run(f, &list);
    frugal_priv_fenv_leave(saved);
}

/* Closes one piece of a step. Where nobody else flushes, its updates are applied on the spot, while the records are
 * in the cache: they are never queued, and their words change once instead of three times. */
static int frugal_priv_close(frugal *f) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_close_begin(f->p2f, &piece)) return 0;
    frugal_priv_tally(&f->closed_entries, piece.n);
    if (f->desc.workers > 0 || f->desc.defer) return frugal_p2f_close_end(f->p2f, &piece, 0);
    frugal_priv_applies list;
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    int all_bring = frugal_p2f_all_bring(f->p2f, piece.step);
    uint64_t flushed = 0;
    frugal_priv_applies_begin(&list);
    for (uint32_t at = 0, n; at < piece.n; at += n) {
        n = frugal_p2f_contributors(piece.entries + at);
        flushed += (uint64_t)frugal_priv_applies_add(f, &list, piece.step, all_bring, piece.entries + at, n);
    }
    frugal_priv_applies_run(f, &list);
    frugal_priv_fenv_leave(saved);
    frugal_priv_tally(&f->flushed, flushed);
    frugal_priv_tally(&f->flushed_at_close, flushed);
    return frugal_p2f_close_end(f->p2f, &piece, 1);
}

/* Takes one page of the queue, due at `limit` or before, and flushes it; 0 if there was none. */
static int frugal_priv_flush_page(frugal *f, uint64_t limit, uint64_t closed) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t stale = 0;
    uint32_t n = frugal_p2f_take(f->p2f, limit, work, &stale);
    if (stale) frugal_priv_tally(&f->stale, stale);
    if (n == 0) return 0;
    frugal_priv_flush(f, work, n);
    /* Before done, which releases them too: the statistics of a drained instance are exact. */
    frugal_priv_tally(&f->flushed_by_urgency[(work[0].slot - closed) % FRUGAL_P2F_SLOTS], n);
    frugal_priv_tally(&f->flushed, n);
    int emptied = frugal_p2f_done(f->p2f, work, n);
    if (emptied) frugal_priv_event_notify(f->event);
    return 1;
}

/* Adds the time since *since to a clock of the statistics, and starts anew. */
static void frugal_priv_tick(FRUGAL_ATOMIC(uint64_t) * clock, double *since) {
    double now = frugal_priv_now();
    frugal_priv_tally(clock, (uint64_t)((now - *since) * 1e9));
    *since = now;
}

/* >>devices that work on when a call has returned
 *
 * What they have done is found by polling: a look at a word that the device writes. Whoever helps looks between two pieces
 * of work; and as long as something is outstanding, one of those who have nothing to do looks after it instead of
 * sleeping. What a device is through with is committed for it. Devices that wait for gates themselves are told by a word of
 * the number of gates that are open. */

static int frugal_priv_is_outstanding(const frugal *f) {
    if (frugal_load_relaxed(&f->polled_devices) == 0 || frugal_load_relaxed(&f->lost)) return 0; /* relaxed: as at the field */
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* not attached before it has updated: [F6] pairs with [F5] */
        const frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_acquire(&dev->updated) > frugal_p2f_committed(f->p2f, d) && dev->ops.poll) return 1;
    }
    return 0;
}

/* Is a step still to be committed that all devices have updated? A device that waits for gates itself may be ahead of
 * others; what it is given beyond what they have is not awaited by who drains. Not asked of what is outstanding: nothing is,
 * while another thread is in the middle of the last commit. */
static int frugal_priv_is_owing(const frugal *f) {
    uint64_t updated = UINT64_MAX;
    if (frugal_load_relaxed(&f->polled_devices) == 0 || frugal_load_relaxed(&f->lost)) return 0; /* relaxed: as at the field */
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t own = frugal_load_relaxed(&f->devices[d].updated); /* relaxed: compared with the commit, which is acquired */
        updated = FRUGAL_PRIV_MIN(updated, own);
    }
    return frugal_p2f_all_committed(f->p2f) < updated;
}

/* Opens gates on paper whose tests hold. Whoever makes the last of a gate's tests hold tells the event of it; a worker
 * that is told comes by here, if the one who told has not. */
static void frugal_priv_open_gates(frugal *f) {
    if (frugal_load_relaxed(&f->waiting_devices) == 0) return; /* relaxed: as at the field */
    uint64_t open = frugal_load_relaxed(f->gates); /* relaxed: proved by the compare-and-swap */
    while (frugal_p2f_gate(f->p2f, open))
        if (frugal_cas_release(f->gates, &open, open + 1)) open++; /* [F8] read by the device, in its own words */
}

/* No device shall wait for ever. What it reads through a gate that is forced open is never committed. The number is far
 * ahead of any step, and not so far that who compares by distance, as a GPU's stream does, finds it behind. */
static void frugal_priv_force_gates(frugal *f) {
    if (f->gates && f->p2f) /* [F8] as above */
        frugal_store_release(f->gates, frugal_p2f_closed(f->p2f) + 2 * FRUGAL_GATES_FORCED);
}

static void frugal_priv_lose(frugal *f, uint32_t device) {
    snprintf(f->lost_message, sizeof f->lost_message, "%.250s", frugal_priv_message);
    frugal_store_release(&f->lost, device + 1); /* [F9] pairs with [F10] */
    frugal_priv_force_gates(f);
    frugal_priv_event_notify(f->event);
}

static frugal_status frugal_priv_lost(const frugal *f, const char *call) {
    char text[sizeof f->lost_message];
    memcpy(text, f->lost_message, sizeof text);
    return frugal_fail(FRUGAL_ERR_LOST, "%s: device %u was lost: %s", call, frugal_load_relaxed(&f->lost) - 1, text);
}

/* A call that a device refused: is it lost? Its trainer may not come again, and the others would wait for it. */
static frugal_status frugal_priv_refused(frugal *f, uint32_t device, frugal_status status, const char *call) {
    frugal_priv_dev *dev = &f->devices[device];
    char text[sizeof frugal_priv_message];
    uint64_t done;
    if (!dev->ops.poll || status == FRUGAL_ERR_ARGUMENT) return status;
    memcpy(text, frugal_priv_message, sizeof text);
    frugal_add_relaxed(&f->refusals, 1); /* relaxed, both: as at the field */
    frugal_priv_event_notify(f->event);  /* who polls lets go, and leaves the lock alone while it is wanted */
    pthread_mutex_lock(&f->poll_lock);
    frugal_add_relaxed(&f->refusals, (uint32_t)-1);
    if (!frugal_load_relaxed(&f->lost) && dev->ops.poll(dev->state, &done) != FRUGAL_OK) /* relaxed: under the lock */
        frugal_priv_lose(f, device);
    pthread_mutex_unlock(&f->poll_lock);
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, call); /* [F10] pairs with [F9] */
    memcpy(frugal_priv_message, text, sizeof text);
    return status;
}

/* Commits what devices are through with; 1 if there was any. The caller holds poll_lock. */
static int frugal_priv_poll_locked(frugal *f) {
    int any = 0, all = 0;
    for (uint32_t d = 0; d < f->desc.devices && !frugal_load_relaxed(&f->lost); d++) { /* relaxed: under the lock */
        frugal_priv_dev *dev = &f->devices[d];
        uint64_t committed = frugal_p2f_committed(f->p2f, d), done = 0;
        uint64_t updated = frugal_load_acquire(&dev->updated); /* [F6] pairs with [F5] */
        if (updated <= committed || !dev->ops.poll) continue;
        if (dev->ops.poll(dev->state, &done) != FRUGAL_OK) frugal_priv_lose(f, d);
        /* Looked at after the device's word: what it did beyond a gate that a stop forced open is not committed. */
        if (frugal_load_acquire(&f->stopped) || frugal_load_relaxed(&f->lost)) break; /* [F7] pairs with [F4] */
        /* It is through with one step at most: the gate of the next has waited for the commit. So its update has returned. */
        FRUGAL_ASSERT(done <= updated);
        for (; committed < done; committed++, any = 1) {
            int last_one = 0;
            frugal_status status =
                frugal_p2f_commit(f->p2f, d, committed, dev->brings[committed % FRUGAL_P2F_SLOTS], &last_one);
            /* Its gate was opened on paper by who had found it open before a cancel: the device is right about the rows, all
             * of which are flushed, and early. The commit waits. */
            if (status != FRUGAL_OK) break;
            all |= last_one;
        }
    }
    if (all) frugal_priv_event_notify(f->event); /* a step can be closed */
    return any;
}

static int frugal_priv_poll(frugal *f) {
    if (!frugal_priv_is_outstanding(f) || pthread_mutex_trylock(&f->poll_lock)) return 0;
    int any = frugal_priv_poll_locked(f);
    pthread_mutex_unlock(&f->poll_lock);
    return any;
}

/* Sleeps until told, or looks after what is outstanding: at first without rest, then the more rarely the longer it takes,
 * so that it is found late by a part of what it took. Who cannot look, since another does, sleeps not for long: the other
 * may go its way. */
static void frugal_priv_rest(frugal *f, uint32_t seen, double limit) {
    if (!frugal_priv_is_outstanding(f)) {
        frugal_priv_event_sleep(f->event, seen, limit);
        return;
    }
    if (frugal_load_relaxed(&f->refusals) || pthread_mutex_trylock(&f->poll_lock)) { /* relaxed: as at the field */
        frugal_priv_event_sleep(f->event, seen, FRUGAL_PRIV_MIN(limit, FRUGAL_PRIV_POLL_OTHERS));
        return;
    }
    double began = frugal_priv_now(), passed = 0;
    while (frugal_load_relaxed(&f->event->word) == seen && passed < limit && !frugal_priv_poll_locked(f)) {
        if (!frugal_priv_is_outstanding(f)) break; /* relaxed, above: all look again after it */
        if (passed > FRUGAL_PRIV_POLL_RESTLESS)
            frugal_priv_event_sleep(f->event, seen, FRUGAL_PRIV_MIN(passed / 4, FRUGAL_PRIV_POLL_RAREST));
        passed = frugal_priv_now() - began;
    }
    pthread_mutex_unlock(&f->poll_lock);
}

/* One piece of whatever is most urgent, in three parts, so that workers of several instances do what is urgent in all
 * of them first. Its time counts from *since: the end of the piece before, so that a piece costs one look at the clock.
 * Plans come after what a gate waits for. */
static int frugal_priv_help_plan(frugal *f, double *since) {
    int planned = frugal_p2f_plan(f->p2f);
    if (planned == 2) frugal_priv_event_notify(f->event); /* closing may have waited for the plan */
    if (planned) frugal_priv_tick(&f->plan_ns, since);
    return planned > 0;
}

/* What a gate waits for: closing the step before, which may wait for its plan; then rows. */
static int frugal_priv_help_gate(frugal *f, double *since) {
    frugal_priv_poll(f);
    frugal_priv_open_gates(f);
    if (frugal_priv_close(f)) {
        frugal_priv_tick(&f->close_ns, since);
        frugal_priv_event_notify(f->event); /* the step is closed, or at least: there are rows to flush */
        return 1;
    }
    uint64_t now = frugal_p2f_closed(f->p2f);
    /* Committed and not closed: the plan may be what is missing, and no row is urgent before the step is closed. */
    if (frugal_p2f_all_committed(f->p2f) > now && frugal_priv_help_plan(f, since)) return 1;
    if (!frugal_priv_flush_page(f, now, now)) return 0;
    frugal_priv_tick(&f->flush_ns, since);
    return 1;
}

/* Then the rest of the queue, in the order in which it is due. */
static int frugal_priv_help_queue(frugal *f, double *since) {
    if (!frugal_priv_flush_page(f, UINT64_MAX, frugal_p2f_closed(f->p2f))) return 0;
    frugal_priv_tick(&f->flush_ns, since);
    return 1;
}

static int frugal_priv_help(frugal *f, double *since) {
    return frugal_priv_help_gate(f, since) || frugal_priv_help_plan(f, since) || frugal_priv_help_queue(f, since);
}

int frugal_help(frugal *f) {
    if (!f || !f->opened || frugal_load_relaxed(&f->stopped)) return 0; /* relaxed: says nothing */
    double since = frugal_priv_now();
    return frugal_priv_help(f, &since);
}

/* >>workers
 *
 * They go over the slots of the instances that they serve. A worker stays inside a slot from the first time that he
 * comes by until he finds it closed, so that a visit costs a look at a word that hardly ever changes. */

typedef struct frugal_priv_worker { /* one thread's; private */
    frugal_workers *workers;
    uint64_t inside; /* bit a slot */
    uint32_t turn;   /* the slot to begin with */
    double since;
} frugal_priv_worker;

_Static_assert(FRUGAL_MAX_INSTANCES <= 64, "a bit each");

/* The instance in the slot, which stays there until the next visit; NULL: none. */
static frugal *frugal_priv_visit(frugal_priv_worker *me, uint32_t i) {
    frugal_priv_slot *slot = &me->workers->slots[i];
    uint64_t bit = UINT64_C(1) << i;
    uint32_t found = frugal_load_relaxed(&slot->word); /* relaxed: entering proves it; inside it says only: leave */
    if (!(me->inside & bit)) {
        do {
            if (!(found & FRUGAL_PRIV_SLOT_OPEN)) return NULL;
        } while (!frugal_cas_acquire(&slot->word, &found, found + FRUGAL_PRIV_SLOT_WORKER)); /* [F14] with [F13] */
        me->inside |= bit;
    }
    if (found & FRUGAL_PRIV_SLOT_OPEN) return slot->f;
    me->inside &= ~bit;
    if (frugal_add_release(&slot->word, 0u - FRUGAL_PRIV_SLOT_WORKER) == FRUGAL_PRIV_SLOT_WORKER) /* [F15] with [F16] */
        frugal_priv_event_notify(&me->workers->event); /* who closed it waits for the last one */
    return NULL;
}

/* One piece of a kind, of the first instance that has any, in turn. */
static int frugal_priv_serve_kind(frugal_priv_worker *me, uint32_t n, int (*help)(frugal *f, double *since)) {
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = frugal_priv_visit(me, i);
        double before = me->since;
        if (!f || !help(f, &me->since)) continue;
        frugal_priv_tally(&f->busy_ns, (uint64_t)((me->since - before) * 1e9));
        me->turn = i + 1;
        return 1;
    }
    return 0;
}

/* The slot of the instance with rows that are due in the fewest steps. Some of them may be in other hands. */
static uint32_t frugal_priv_nearest(frugal_priv_worker *me, uint32_t n) {
    uint32_t nearest = me->turn, least = FRUGAL_P2F_SLOTS;
    for (uint32_t left = n, i = me->turn; left > 0; left--, i++) {
        if (i >= n) i = 0;
        frugal *f = frugal_priv_visit(me, i);
        if (!f) continue;
        uint64_t closed = frugal_p2f_closed(f->p2f);
        uint32_t ahead = 0, most = FRUGAL_PRIV_MIN(least, f->desc.staging + 1);
        while (ahead < most && frugal_p2f_pending(f->p2f, closed + ahead) <= 0) ahead++;
        if (ahead < most) least = ahead, nearest = i;
    }
    return nearest;
}

/* One piece of whatever is most urgent in all instances: no gate waits behind the plans and the queue of another. */
static int frugal_priv_serve(frugal_priv_worker *me) {
    uint32_t n = frugal_load_relaxed(&me->workers->slots_used); /* relaxed: as at the field */
    if (frugal_priv_serve_kind(me, n, frugal_priv_help_gate)) return 1;
    if (frugal_priv_serve_kind(me, n, frugal_priv_help_plan)) return 1;
    if (n > 1) me->turn = frugal_priv_nearest(me, n);
    return frugal_priv_serve_kind(me, n, frugal_priv_help_queue);
}

enum { FRUGAL_PRIV_OUTSTANDING = 1, FRUGAL_PRIV_OTHERS = 2, FRUGAL_PRIV_DONE = 4 }; /* what a look has found, in bits */

/* A look at what is outstanding in the worker's instances, but for those that others look after. Bits of *mine: those
 * whose poll_lock he has by now. */
static int frugal_priv_look(const frugal_priv_worker *me, uint64_t *mine) {
    int found = 0;
    for (uint64_t inside = me->inside; inside; inside &= inside - 1) {
        frugal *f = me->workers->slots[frugal_priv_lowest(inside)].f;
        uint64_t bit = inside & (0 - inside);
        if (!frugal_priv_is_outstanding(f)) continue;
        if (!(*mine & bit)) {
            if (frugal_load_relaxed(&f->refusals) ||
                pthread_mutex_trylock(&f->poll_lock)) { /* relaxed: as at the field */
                found |= FRUGAL_PRIV_OTHERS;
                continue;
            }
            *mine |= bit;
        }
        if (frugal_priv_poll_locked(f)) return FRUGAL_PRIV_DONE;
        found |= FRUGAL_PRIV_OUTSTANDING;
    }
    return found;
}

/* As frugal_priv_rest, for a worker, who looks after all of his instances. While he keeps the locks of several, the
 * work of none is found later than if it were alone: whoever gives one of them more tells the event, and he begins
 * anew. */
static void frugal_priv_rest_working(const frugal_priv_worker *me, uint32_t seen) {
    frugal_priv_event *event = &me->workers->event;
    uint64_t mine = 0;
    double began = frugal_priv_now(), passed = 0;
    int found;
    do {
        found = frugal_priv_look(me, &mine);
        if (found & FRUGAL_PRIV_OUTSTANDING && passed > FRUGAL_PRIV_POLL_RESTLESS) {
            double rarest = found & FRUGAL_PRIV_OTHERS ? FRUGAL_PRIV_POLL_OTHERS : FRUGAL_PRIV_POLL_RAREST;
            frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_MIN(passed / 4, rarest));
        }
        passed = frugal_priv_now() - began;
    } while (found & FRUGAL_PRIV_OUTSTANDING &&
             frugal_load_relaxed(&event->word) == seen); /* relaxed: all look again */
    for (; mine; mine &= mine - 1) pthread_mutex_unlock(&me->workers->slots[frugal_priv_lowest(mine)].f->poll_lock);
    if (found == 0)
        frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_FOREVER);
    else if (found == FRUGAL_PRIV_OTHERS)
        frugal_priv_event_sleep(event, seen, FRUGAL_PRIV_POLL_OTHERS);
}

static void *frugal_priv_work(void *argument) {
    frugal_priv_worker me = {.workers = argument, .since = frugal_priv_now()};
    frugal_workers *w = me.workers;
    while (!frugal_load_relaxed(&w->closing)) {
        if (frugal_priv_serve(&me)) continue;
        uint32_t seen = frugal_priv_event_prepare(&w->event);
        if (frugal_load_relaxed(&w->closing) || frugal_priv_serve(&me)) continue;
        frugal_priv_rest_working(&me, seen);
        me.since = frugal_priv_now();
    }
    return NULL;
}

/* Takes a slot for the instance, which is not served before frugal_priv_enter. */
static frugal_status frugal_priv_join(frugal *f, frugal_workers *w) {
    uint32_t i = 0, most = f->desc.shared_workers ? FRUGAL_MAX_INSTANCES : 1;
    pthread_mutex_lock(&w->lock);
    while (i < most && w->slots[i].taken) i++;
    if (i < most) {
        w->slots[i].taken = 1;
        w->slots[i].f = f;
        w->instances++;
        /* relaxed: as at the field */
        if (frugal_load_relaxed(&w->slots_used) == i) frugal_store_relaxed(&w->slots_used, i + 1);
    }
    pthread_mutex_unlock(&w->lock);
    if (i == most)
        return frugal_fail(FRUGAL_ERR_LIMIT, "shared_workers serve %u instances, the limit; open others for this one",
                           most);
    f->workers = w, f->slot = i, f->event = &w->event;
    return FRUGAL_OK;
}

static void frugal_priv_enter(frugal *f) {
    frugal_add_release(&f->workers->slots[f->slot].word, FRUGAL_PRIV_SLOT_OPEN); /* [F13] pairs with [F14] */
    f->entered = 1;
}

/* Gives the slot back, when no worker is inside. */
static void frugal_priv_leave(frugal *f) {
    frugal_workers *w = f->workers;
    frugal_priv_slot *slot = &w->slots[f->slot];
    if (f->entered) {
        frugal_add_relaxed(&slot->word, 0u - FRUGAL_PRIV_SLOT_OPEN); /* relaxed: the event tells of it */
        frugal_priv_event_notify(&w->event);                         /* who is inside and sleeps */
    }
    for (;;) {
        uint32_t seen = frugal_priv_event_prepare(&w->event);
        if (frugal_load_acquire(&slot->word) == 0) break; /* [F16] pairs with [F15] */
        frugal_priv_event_sleep(&w->event, seen, FRUGAL_PRIV_FOREVER);
    }
    pthread_mutex_lock(&w->lock);
    slot->taken = 0;
    w->instances--;
    pthread_mutex_unlock(&w->lock);
}

typedef struct frugal_priv_wait {
    int (*ready)(frugal *f, const struct frugal_priv_wait *wait);
    void (*explain)(frugal *f, const struct frugal_priv_wait *wait, char *text, size_t size);
    uint32_t device; /* where the call has one */
    uint64_t step;
    const char *call; /* what waits */
    int devices;      /* for devices to go on with their steps: the loss of one ends it */
} frugal_priv_wait;

static frugal_status frugal_priv_stopped(const char *call) {
    return frugal_fail(FRUGAL_STOPPED, "%s: the instance was stopped; close it", call);
}

/* Waits until `ready`, helping. Every wait of the library is this one. */
static frugal_status frugal_priv_wait_for(frugal *f, const frugal_priv_wait *wait) {
    double start = 0, since = 0;
    for (;;) {
        if (wait->ready(f, wait)) return FRUGAL_OK;
        if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped(wait->call); /* [F3] pairs with [F4] */
        if (wait->devices && frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, wait->call); /* [F10] pairs with [F9] */
        if (since == 0) since = frugal_priv_now();
        if (frugal_priv_help(f, &since)) {
            start = 0; /* something moves */
            continue;
        }
        double now = frugal_priv_now();
        if (start == 0) start = now;
        double left = f->desc.stuck_seconds - (now - start);
        if (f->desc.stuck_seconds >= 0 && left <= 0) {
            char text[384] = "";
            wait->explain(f, wait, text, sizeof text);
            return frugal_fail(FRUGAL_ERR_STUCK, "%s, step %llu: nothing for %.3g s: %s", wait->call,
                               (unsigned long long)wait->step, f->desc.stuck_seconds, text);
        }
        uint32_t seen = frugal_priv_event_prepare(f->event);
        /* Relaxed: only whether to look again. */
        if (wait->ready(f, wait) || frugal_load_relaxed(&f->stopped) || (wait->devices && frugal_load_relaxed(&f->lost)))
            continue;
        if (frugal_priv_help(f, &since)) continue;
        frugal_priv_rest(f, seen, f->desc.stuck_seconds >= 0 ? left : FRUGAL_PRIV_FOREVER);
        since = 0;
    }
}

static int frugal_priv_is_drained(frugal *f) {
    if (frugal_priv_is_owing(f)) return 0; /* before the progress, which then holds its commit */
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    return now.closed == now.committed && now.pending == 0;
}

static int frugal_priv_is_idle(frugal *f) { /* drained, and nothing announced */
    return frugal_priv_is_drained(f) && frugal_p2f_get_progress(f->p2f).announced <= frugal_p2f_closed(f->p2f);
}

void frugal_stop(frugal *f) {
    if (!f) return;
    frugal_add_release(&f->stopped, 1); /* [F4] pairs with [F3]: why it was stopped; with [F7]: before gates are forced */
    frugal_priv_force_gates(f);
    frugal_priv_event_notify(f->event);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>open
 * --------------------------------------------------------------------------------------------------------- */

/* `whose`: "" or which table's, for messages. */
static frugal_status frugal_priv_check_optimizer(const frugal_optimizer *o, const char *whose) {
    if (o->kind < FRUGAL_SGD || o->kind > FRUGAL_ADAM)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%soptimizer %d; there are 0 (SGD) to 3 (Adam)", whose, (int)o->kind);
    if (!(o->eps >= 0) || !(o->weight_decay >= 0) || !(o->initial_accumulator >= 0) ||
        !(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "%soptimizer: eps %g, weight_decay %g, initial_accumulator %g must not be "
                           "negative, beta1 %g and beta2 %g must lie in [0, 1)",
                           whose, (double)o->eps, (double)o->weight_decay, (double)o->initial_accumulator,
                           (double)o->beta1, (double)o->beta2);
    if (!(o->lr_scale >= 0 && o->lr_scale <= FLT_MAX))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "%soptimizer: lr_scale %g must be finite and not be negative; 0 means 1", whose,
                           (double)o->lr_scale);
    return FRUGAL_OK;
}

/* The instance's settings, and those that tables have of their own. */
static frugal_status frugal_priv_check_optimizers(const frugal_desc *d) {
    static const char *const names[] = {"SGD", "Adagrad", "row-wise Adagrad", "Adam"};
    frugal_status status = frugal_priv_check_optimizer(&d->optimizer, "");
    for (uint32_t t = 0; t < d->n_tables && status == FRUGAL_OK; t++) {
        const frugal_optimizer *own = d->tables[t].optimizer;
        char whose[32];
        if (!own) continue;
        snprintf(whose, sizeof whose, "table %u: ", t);
        status = frugal_priv_check_optimizer(own, whose);
        if (status == FRUGAL_OK && own->kind != d->optimizer.kind)
            status = frugal_fail(FRUGAL_ERR_ARGUMENT,
                                 "table %u: optimizer %d (%s), and the instance's is %d (%s): rows of all tables have "
                                 "one layout; open an instance of its own for it",
                                 t, (int)own->kind, names[own->kind], (int)d->optimizer.kind, names[d->optimizer.kind]);
    }
    return status;
}

static frugal_status frugal_priv_check_desc(const frugal_desc *d) {
    if (d->n_tables == 0 || !d->tables) return frugal_fail(FRUGAL_ERR_ARGUMENT, "no tables; give at least one");
    if (d->dim == 0 || d->dim > 65536)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "dim is %u; it must be 1 to 65536 floats", d->dim);
    if (d->max_keys == 0) return frugal_fail(FRUGAL_ERR_ARGUMENT, "max_keys is 0; give the largest batch of a device");
    uint64_t rows = 0;
    for (uint32_t t = 0; t < d->n_tables; t++) {
        const frugal_table *table = &d->tables[t];
        if (table->rows == 0) return frugal_fail(FRUGAL_ERR_ARGUMENT, "table %u has no rows", t);
        if (table->rows > FRUGAL_MAX_ROWS || (rows += table->rows) > FRUGAL_MAX_ROWS)
            return frugal_fail(FRUGAL_ERR_LIMIT, "rows of tables 0 to %u exceed 2^32 - 2 = 4294967294", t);
        if (table->init < FRUGAL_INIT_DEFAULT || table->init > FRUGAL_INIT_COPY ||
            (table->init == FRUGAL_INIT_COPY && !table->source))
            return frugal_fail(FRUGAL_ERR_ARGUMENT, "table %u: initializer %d unknown, or to copy and no source", t,
                               (int)table->init);
    }
    if (d->first_step > FRUGAL_MAX_FIRST_STEP)
        return frugal_fail(FRUGAL_ERR_LIMIT, "first_step is %llu; the limit is 2^64 - 2^42 - 1",
                           (unsigned long long)d->first_step);
    if (isnan(d->stuck_seconds)) return frugal_fail(FRUGAL_ERR_ARGUMENT, "stuck_seconds is not a number");
    if (d->lookahead > 15)
        return frugal_fail(FRUGAL_ERR_LOOKAHEAD, "lookahead is %u; the limit is 15 steps", d->lookahead);
    if ((uint64_t)d->staging + d->lookahead > 63)
        return frugal_fail(FRUGAL_ERR_LOOKAHEAD, "lookahead %u + staging %u exceed 63: reduce one", d->lookahead,
                           d->staging);
    if (d->devices > FRUGAL_MAX_DEVICES)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%u devices; the limit is 254", d->devices);
    if ((uint64_t)d->max_keys * (d->devices ? d->devices : 1) > FRUGAL_MAX_KEYS)
        return frugal_fail(FRUGAL_ERR_LIMIT, "%u devices x %u keys exceed 2^26 keys a step: reduce max_keys",
                           d->devices, d->max_keys);
    if (d->mode > FRUGAL_SYNC || d->reduce > FRUGAL_MEAN || d->workers > FRUGAL_PRIV_MAX_WORKERS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "mode %d, reduce %d or workers %u is out of range (0-1, 0-1, 0-%u)",
                           (int)d->mode, (int)d->reduce, d->workers, FRUGAL_PRIV_MAX_WORKERS);
    if (d->shared_workers && d->workers != 0 && d->workers != d->shared_workers->n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "workers is %u beside shared_workers, which are %u; leave it 0",
                           d->workers, d->shared_workers->n);
    if (d->weights && d->file)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "both `weights` and `file`: the table lies in one");
    if (d->state && !d->weights) return frugal_fail(FRUGAL_ERR_ARGUMENT, "`state` without `weights`");
    if (d->weights && ((d->weights_stride && d->weights_stride < d->dim) ||
                       (d->state_stride && d->state_stride < frugal_state_floats(d->optimizer.kind, d->dim))))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "weights_stride %llu or state_stride %llu is shorter than a row",
                           (unsigned long long)d->weights_stride, (unsigned long long)d->state_stride);
    return frugal_priv_check_optimizers(d);
}

/* Fills in what zero stands for; so does the next one. */
static void frugal_priv_resolve_optimizer(frugal_optimizer *o) {
    if (o->eps == 0) o->eps = o->kind == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f;
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.999f;
    if (o->lr_scale == 0) o->lr_scale = 1;
}

static void frugal_priv_resolve(frugal_desc *d, uint32_t record_stride) {
    frugal_priv_resolve_optimizer(&d->optimizer);
    if (d->devices == 0) d->devices = 1;
    if (d->shared_workers) d->workers = d->shared_workers->n;
    /* Updates that are applied at closing need one block. Workers that keep up need little more, and a ring that stays in
     * the cache costs less than one that streams through memory. */
    if (d->staging == 0) d->staging = d->workers == 0 && !d->defer ? 1 : FRUGAL_PRIV_MIN(d->lookahead + 2, 4);
    uint64_t block = (uint64_t)d->devices * d->max_keys * record_stride * sizeof(float);
    if (d->staging_bytes && d->staging * block > d->staging_bytes)
        d->staging = d->staging_bytes / block > 0 ? (uint32_t)(d->staging_bytes / block) : 1;
    if (d->stuck_seconds == 0) d->stuck_seconds = 300;
    if (d->init_threads == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        d->init_threads = processors > 0 ? (uint32_t)processors : 1;
    }
    if (d->weights && d->weights_stride == 0) d->weights_stride = d->dim;
    if (d->state && d->state_stride == 0) d->state_stride = frugal_state_floats(d->optimizer.kind, d->dim);
}

static frugal_status frugal_priv_no_memory(const char *what, uint64_t bytes) {
    return frugal_fail(FRUGAL_ERR_MEMORY, "%llu bytes for %s are not to be had", (unsigned long long)bytes, what);
}

static frugal_status frugal_priv_file_error(const char *file, const char *what) {
    return frugal_fail(FRUGAL_ERR_FILE, "cannot %s: %s: %s", what, strerror(errno), file); /* a long name comes last */
}

/* A file is made under another name, and takes its own when open has succeeded: so a file that is there is whole. */
static void frugal_priv_new_name(const frugal *f, char name[FRUGAL_PRIV_PATH]) {
    snprintf(name, FRUGAL_PRIV_PATH, "%s.new", f->desc.file);
}

static frugal_status frugal_priv_make_file(frugal *f, uint64_t bytes) {
    char name[FRUGAL_PRIV_PATH];
    frugal_priv_new_name(f, name);
    if (f->file >= 0) close(f->file);
    f->file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->file < 0) return frugal_priv_file_error(name, "make the table's file");
    f->file_is_new = 1;
    return ftruncate(f->file, (off_t)bytes) ? frugal_priv_file_error(name, "grow it") : FRUGAL_OK;
}

static frugal_status frugal_priv_publish_file(frugal *f) {
    char name[FRUGAL_PRIV_PATH];
    if (!f->file_is_new) return FRUGAL_OK;
    frugal_priv_new_name(f, name);
    if (rename(name, f->desc.file)) return frugal_priv_file_error(name, "give it its name");
    f->file_is_new = 0;
    return FRUGAL_OK;
}

/* Closes the file; one that open has not finished goes. */
static void frugal_priv_drop_file(frugal *f) {
    char name[FRUGAL_PRIV_PATH];
    if (f->file >= 0) close(f->file);
    if (!f->file_is_new) return;
    frugal_priv_new_name(f, name);
    unlink(name);
}

/* Maps the table's file, which is made where there is none, or an empty one. */
static frugal_status frugal_priv_open_file(frugal *f, uint64_t bytes) {
    const char *name = f->desc.file;
    struct stat there = {0};
    frugal_status status = FRUGAL_OK;
    if (strlen(name) + sizeof ".new" > FRUGAL_PRIV_PATH)
        return frugal_fail(FRUGAL_ERR_FILE, "the file's name has %zu bytes; the limit is %d", strlen(name),
                           FRUGAL_PRIV_PATH - (int)sizeof ".new");
    f->file = open(name, O_RDWR | O_CLOEXEC);
    if (f->file < 0 && errno != ENOENT) return frugal_priv_file_error(name, "open the table's file");
    if (f->file >= 0 && fstat(f->file, &there)) return frugal_priv_file_error(name, "read the size");
    if (there.st_size == 0) status = frugal_priv_make_file(f, bytes);
    if (status != FRUGAL_OK) return status;
    if (there.st_size != 0 && (uint64_t)there.st_size != bytes)
        return frugal_fail(FRUGAL_ERR_FILE, "the file has %lld bytes, these tables need %llu: another table's file? %s",
                           (long long)there.st_size, (unsigned long long)bytes, name);
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->file, 0);
    if (memory == MAP_FAILED) return frugal_priv_file_error(name, "map it");
#if defined(MADV_RANDOM)
    madvise(memory, (size_t)bytes, MADV_RANDOM); /* a wish: rows are no reason to read or make what lies around them */
#endif
    f->table_memory = memory;
    f->file_bytes = (size_t)bytes;
    return FRUGAL_OK;
}

/* Element-wise state lies behind the weights, equally aligned; row-wise state is an array of its own, which a file
 * carries at its end. */
static frugal_status frugal_priv_place_table(frugal *f, int element_wise) {
    frugal_store *s = &f->store;
    uint64_t behind = frugal_priv_aligned(f->desc.dim);
    s->weights_stride = behind + (element_wise ? frugal_priv_aligned(s->state_floats) : 0);
    s->state_stride = element_wise ? s->weights_stride : s->state_floats;
    uint64_t bytes = s->rows * s->weights_stride * sizeof(float);
    uint64_t tail = element_wise ? 0 : s->rows * s->state_floats * sizeof(float);
    f->table_bytes = (size_t)(bytes + (f->desc.file ? tail : 0));
    if (f->desc.file) {
        frugal_status status = frugal_priv_open_file(f, f->table_bytes);
        if (status != FRUGAL_OK) return status;
    } else if (!(f->table_memory = frugal_allocate(f, f->table_bytes = frugal_priv_pages_of(f->table_bytes), FRUGAL_PRIV_PAGE)))
        return frugal_priv_no_memory("the table", f->table_bytes);
    s->weights = f->table_memory;
    if (element_wise)
        s->state = s->weights + behind;
    else if (f->desc.file && tail)
        s->state = s->weights + s->rows * s->weights_stride;
    return FRUGAL_OK;
}

static frugal_status frugal_priv_open_table(frugal *f) {
    frugal_store *s = &f->store;
    int element_wise = s->state_floats > 0 && f->desc.optimizer.kind != FRUGAL_ROWWISE_ADAGRAD;
    if (f->desc.weights) {
        s->weights = f->desc.weights, s->weights_stride = f->desc.weights_stride;
        s->state = f->desc.state;
        s->state_stride = s->state ? f->desc.state_stride : frugal_priv_aligned(s->state_floats);
    } else {
        frugal_status status = frugal_priv_place_table(f, element_wise);
        if (status != FRUGAL_OK) return status;
    }
    if (s->state_floats > 0 && !s->state) { /* the caller's matrix without one; row-wise state in memory */
        f->state_bytes = frugal_priv_pages_of((size_t)(s->rows * s->state_stride * sizeof(float)));
        f->state_memory = frugal_allocate(f, f->state_bytes, FRUGAL_PRIV_PAGE);
        if (!f->state_memory) return frugal_priv_no_memory("the optimizer's state", f->state_bytes);
        s->state = f->state_memory;
    }
    int kept = f->file_bytes > 0 && !f->file_is_new;
    frugal_priv_init_table(f, !f->desc.weights && !kept, !f->desc.state && !kept, kept);
    return FRUGAL_OK;
}

static uint64_t frugal_priv_take_bytes(uint64_t *at, uint64_t bytes) {
    uint64_t here = *at;
    *at = (here + bytes + FRUGAL_PRIV_LINE - 1) / FRUGAL_PRIV_LINE * FRUGAL_PRIV_LINE;
    return here;
}

/* A device's batches, cut from one block; with `device` NULL only its size is computed. */
static size_t frugal_priv_lay_batches(const frugal *f, frugal_priv_dev *device) {
    uint64_t n = f->desc.max_keys, at = 0;
    unsigned char *memory = device ? device->batch_memory : NULL;
    uint64_t batches = frugal_priv_take_bytes(&at, (f->desc.lookahead + 1) * sizeof(frugal_priv_batch));
    if (device) device->batches = (frugal_priv_batch *)(void *)(memory + batches);
    for (uint32_t i = 0; i <= f->desc.lookahead; i++) { /* four arrays one like the other: a device may copy all at once */
        uint64_t rows = frugal_priv_take_bytes(&at, (n + 1) * 4), start = frugal_priv_take_bytes(&at, (n + 1) * 4);
        uint64_t order = frugal_priv_take_bytes(&at, (n + 1) * 4), record_of = frugal_priv_take_bytes(&at, (n + 1) * 4);
        uint64_t valid = frugal_priv_take_bytes(&at, (n + 63) / 64 * 8);
        if (!device) continue;
        device->batches[i].rows = (uint32_t *)(void *)(memory + rows);
        device->batches[i].record_of = (uint32_t *)(void *)(memory + record_of);
        device->batches[i].order = (uint32_t *)(void *)(memory + order);
        device->batches[i].start = (uint32_t *)(void *)(memory + start);
        device->batches[i].valid = (uint64_t *)(void *)(memory + valid);
    }
    return (size_t)at;
}

static frugal_status frugal_priv_open_devices(frugal *f) {
    size_t bytes = f->desc.devices * sizeof(frugal_priv_dev);
    if (!(f->gates = frugal_allocate(f, FRUGAL_PRIV_PAGE, FRUGAL_PRIV_PAGE)))
        return frugal_priv_no_memory("the gates' word", FRUGAL_PRIV_PAGE);
    frugal_store_relaxed(f->gates, f->desc.first_step); /* relaxed: no other thread yet */
    if (!(f->devices = frugal_allocate(f, bytes, FRUGAL_PRIV_LINE))) return frugal_priv_no_memory("the devices", bytes);
    f->batch_bytes = frugal_priv_pages_of(frugal_priv_lay_batches(f, NULL));
    f->block_stride = ((size_t)f->desc.max_keys * f->record_stride + 15) / 16 * 16;
    f->block_bytes = frugal_priv_pages_of(f->block_stride * f->desc.staging * sizeof(float));
    f->scratch_bytes = (size_t)f->desc.max_keys * 2 * sizeof(uint64_t);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        frugal_priv_dev *device = &f->devices[d];
        frugal_store_relaxed(&device->looked_up, f->desc.first_step); /* relaxed, all: no other thread yet */
        frugal_store_relaxed(&device->updated, f->desc.first_step);
        frugal_store_relaxed(&device->told, f->desc.first_step);
        if (!(device->batch_memory = frugal_allocate(f, f->batch_bytes, FRUGAL_PRIV_PAGE)))
            return frugal_priv_no_memory("announced batches", f->batch_bytes);
        frugal_priv_lay_batches(f, device);
        if (!(device->sorted = frugal_allocate(f, f->scratch_bytes, FRUGAL_PRIV_LINE)))
            return frugal_priv_no_memory("sorting", f->scratch_bytes);
        device->scratch = device->sorted + f->desc.max_keys;
        if (!(device->blocks = frugal_allocate(f, f->block_bytes, FRUGAL_PRIV_PAGE)))
            return frugal_priv_no_memory("staging", f->block_bytes);
    }
    return FRUGAL_OK;
}

static frugal_status frugal_priv_open_p2f(frugal *f) {
    frugal_p2f_desc desc = {.rows = f->store.rows,
                            .devices = f->desc.devices,
                            .max_rows = f->desc.max_keys,
                            .lookahead = f->desc.lookahead,
                            .staging = f->desc.staging,
                            .mode = f->desc.mode,
                            .first_step = f->desc.first_step,
                            .threads = f->desc.workers + 2 * f->desc.devices + FRUGAL_PRIV_OTHER_THREADS,
                            .zeroed = 1};
    f->p2f_bytes = frugal_p2f_footprint(&desc);
    void *memory = f->p2f_bytes ? frugal_allocate(f, f->p2f_bytes, FRUGAL_P2F_ALIGN) : NULL;
    if (!memory) return frugal_priv_no_memory("the rows' words, plans and queue", f->p2f_bytes);
    frugal_status status = frugal_p2f_init(memory, &desc, &f->p2f);
    if (status != FRUGAL_OK) frugal_free(f, memory, f->p2f_bytes);
    return status == FRUGAL_OK ? status : frugal_fail(status, "%s", frugal_strerror(status));
}

/* The running products beta^t up to the first step. Once a power no longer shows beside 1 it may as well be zero. */
static void frugal_priv_open_powers(frugal *f) {
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    for (uint32_t g = 0; g < f->store.n_groups; g++) {
        const frugal_optimizer *o = &f->store.groups[g].optimizer;
        double beta1 = 1.0, beta2 = 1.0;
        for (uint64_t t = 0; t < f->desc.first_step && (beta1 > 0x1p-60 || beta2 > 0x1p-60); t++)
            beta1 *= (double)o->beta1, beta2 *= (double)o->beta2;
        f->power_now[g] = (frugal_priv_powers){beta1, beta2};
    }
    f->power_step = f->desc.first_step;
    frugal_priv_fenv_leave(saved);
}

/* Ends the threads and frees all, by the settings that it was opened with. */
static void frugal_priv_end_workers(const frugal_desc *memory, frugal_workers *w) {
    frugal_add_relaxed(&w->closing, 1);
    frugal_priv_event_notify(&w->event);
    for (uint32_t i = 0; i < w->started; i++) pthread_join(w->threads[i], NULL);
    pthread_mutex_destroy(&w->lock);
    frugal_priv_release(memory, w->threads, w->n * sizeof *w->threads);
    frugal_priv_release(memory, w, sizeof *w);
}

/* `n` threads that have nobody to serve yet; all of them, or none. */
static frugal_status frugal_priv_start_workers(const frugal_desc *memory, uint32_t n, frugal_workers **out) {
    size_t bytes = n * sizeof(pthread_t);
    pthread_t *threads = frugal_priv_allocate(memory, bytes, FRUGAL_PRIV_LINE);
    frugal_workers *w = threads ? frugal_priv_allocate(memory, sizeof *w, FRUGAL_PRIV_LINE) : NULL;
    if (!w) {
        frugal_priv_release(memory, threads, bytes);
        return frugal_priv_no_memory("worker threads", bytes + sizeof *w);
    }
    w->n = n, w->threads = threads;
    pthread_mutex_init(&w->lock, NULL);
    sigset_t all, saved; /* signals are the application's: its handlers do not run on our threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int error = 0;
    while (!error && w->started < n) {
        error = pthread_create(&w->threads[w->started], NULL, frugal_priv_work, w);
        w->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    *out = w;
    if (!error) return FRUGAL_OK;
    *out = NULL;
    frugal_fail(FRUGAL_ERR_WORKER, "worker %u of %u cannot be started: %s; ask for fewer workers", w->started, n,
                strerror(error));
    frugal_priv_end_workers(memory, w);
    return FRUGAL_ERR_WORKER;
}

frugal_status frugal_workers_open(uint32_t n, frugal_workers **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: `out` is NULL");
    *out = NULL;
    if (n == 0 || n > FRUGAL_PRIV_MAX_WORKERS)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_workers_open: %u workers; there may be 1 to %u", n,
                           FRUGAL_PRIV_MAX_WORKERS);
    return frugal_priv_start_workers(&(frugal_desc){0}, n, out);
}

frugal_status frugal_workers_close(frugal_workers *w) {
    if (!w) return FRUGAL_OK;
    pthread_mutex_lock(&w->lock);
    uint32_t instances = w->instances;
    pthread_mutex_unlock(&w->lock);
    if (instances > 0)
        return frugal_fail(FRUGAL_ERR_BUSY, "frugal_workers_close: %u instance%s still open; frugal_close %s first",
                           instances, instances > 1 ? "s are" : " is", instances > 1 ? "them" : "it");
    frugal_priv_end_workers(&(frugal_desc){0}, w);
    return FRUGAL_OK;
}

/* From here on workers serve the instance. */
static frugal_status frugal_priv_open_workers(frugal *f) {
    frugal_status status = FRUGAL_OK;
    if (f->desc.workers == 0) return FRUGAL_OK;
    if (!f->desc.shared_workers) {
        frugal_workers *own;
        status = frugal_priv_start_workers(&f->desc, f->desc.workers, &own);
        if (status == FRUGAL_OK) status = frugal_priv_join(f, own);
    }
    if (status == FRUGAL_OK) frugal_priv_enter(f);
    return status;
}

static frugal_status frugal_priv_open_copies(frugal *f, const frugal_desc *desc) {
    size_t bytes = desc->n_tables * sizeof(frugal_table);
    if (!(f->tables = frugal_allocate(f, bytes, FRUGAL_PRIV_LINE)))
        return frugal_priv_no_memory("table settings", bytes);
    memcpy(f->tables, desc->tables, bytes);
    f->desc.tables = f->tables;
    bytes = (desc->n_tables + 1) * sizeof(uint64_t);
    if (!(f->first_row = frugal_allocate(f, bytes, FRUGAL_PRIV_LINE)))
        return frugal_priv_no_memory("table settings", bytes);
    for (uint32_t t = 0; t < desc->n_tables; t++) f->first_row[t + 1] = f->first_row[t] + desc->tables[t].rows;
    return FRUGAL_OK;
}

/* A table's settings, resolved. */
static frugal_optimizer frugal_priv_optimizer_of(const frugal *f, uint32_t table) {
    const frugal_optimizer *own = f->tables[table].optimizer;
    frugal_optimizer o = own ? *own : f->desc.optimizer;
    frugal_priv_resolve_optimizer(&o);
    return o;
}

static int frugal_priv_is_same_optimizer(const frugal_optimizer *a, const frugal_optimizer *b) {
    return a->eps == b->eps && a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->weight_decay == b->weight_decay &&
           a->initial_accumulator == b->initial_accumulator && a->lr_scale == b->lr_scale; /* the kind is */
}

static size_t frugal_priv_group_bytes(uint32_t n) {
    size_t ring = FRUGAL_P2F_SLOTS * (sizeof(frugal_hyper) + sizeof(frugal_priv_powers));
    return n * (sizeof(frugal_table_group) + sizeof(frugal_priv_powers) + ring);
}

/* Tables side by side with the same settings make a group; from here on each table names its group's. */
static frugal_status frugal_priv_open_groups(frugal *f) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        frugal_optimizer own = frugal_priv_optimizer_of(f, t), before = frugal_priv_optimizer_of(f, t ? t - 1 : 0);
        n += t == 0 || !frugal_priv_is_same_optimizer(&own, &before);
    }
    f->group_memory = frugal_allocate(f, frugal_priv_group_bytes(n), FRUGAL_PRIV_LINE);
    if (!f->group_memory) return frugal_priv_no_memory("optimizer settings", frugal_priv_group_bytes(n));
    f->powers = f->group_memory; /* what is aligned to 8 bytes comes first */
    f->power_now = f->powers + (size_t)FRUGAL_P2F_SLOTS * n;
    frugal_table_group *groups = (frugal_table_group *)(void *)(f->power_now + n);
    f->hypers = (frugal_hyper *)(void *)(groups + n);
    f->store.groups = groups;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        frugal_optimizer own = frugal_priv_optimizer_of(f, t);
        uint32_t *made = &f->store.n_groups;
        if (*made == 0 || !frugal_priv_is_same_optimizer(&own, &groups[*made - 1].optimizer))
            groups[(*made)++] = (frugal_table_group){f->first_row[t], own};
        f->tables[t].optimizer = &groups[*made - 1].optimizer;
    }
    return FRUGAL_OK;
}

frugal_status frugal_open(const frugal_desc *desc, frugal **out) {
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_open: `out` is NULL");
    *out = NULL;
    if (!desc) return frugal_fail(FRUGAL_ERR_ARGUMENT, "frugal_open: `desc` is NULL");
    frugal_status status = frugal_priv_check_desc(desc);
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_self_test())
        return frugal_fail(FRUGAL_ERR_ARITHMETIC, "%s", frugal_strerror(FRUGAL_ERR_ARITHMETIC));
    frugal *f = frugal_priv_allocate(desc, sizeof *f, FRUGAL_PRIV_LINE);
    if (!f) return frugal_priv_no_memory("the instance", sizeof *f);
    *out = f;
    f->desc = *desc;
    f->file = -1;
    f->event = &f->own_event;
    pthread_mutex_init(&f->settings_lock, NULL);
    pthread_mutex_init(&f->poll_lock, NULL);
    f->record_stride = desc->dim >= 16 ? (desc->dim + 15) / 16 * 16 : (uint32_t)frugal_priv_aligned(desc->dim);
    frugal_priv_resolve(&f->desc, f->record_stride);
    if (desc->shared_workers && (status = frugal_priv_join(f, desc->shared_workers)) != FRUGAL_OK) return status;
    status = frugal_priv_open_copies(f, desc);
    if (status != FRUGAL_OK) return status;
    f->store = (frugal_store){.rows = f->first_row[desc->n_tables],
                              .dim = desc->dim,
                              .state_floats = frugal_state_floats(desc->optimizer.kind, desc->dim),
                              .devices = f->desc.devices,
                              .reduce = desc->reduce,
                              .kind = desc->optimizer.kind};
    if ((status = frugal_priv_open_groups(f)) != FRUGAL_OK) return status;
    while (f->sort_bits < 32 && f->store.rows - 1 >= UINT64_C(1) << f->sort_bits) f->sort_bits++;
    frugal_priv_open_powers(f);
    if ((status = frugal_priv_open_p2f(f)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_open_devices(f)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_open_table(f)) != FRUGAL_OK) return status;
    for (uint32_t t = 0; t < desc->n_tables; t++) f->tables[t].source = NULL; /* the caller's, not kept */
    if ((status = frugal_priv_open_workers(f)) != FRUGAL_OK) return status;
    status = frugal_priv_publish_file(f);
    f->opened = status == FRUGAL_OK;
    return status;
}

void frugal_close(frugal *f) {
    if (!f) return;
    if (f->workers && f->desc.shared_workers)
        frugal_priv_leave(f);
    else if (f->workers)
        frugal_priv_end_workers(&f->desc, f->workers);
    frugal_priv_force_gates(f); /* so that devices end what they have */
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++) {
        frugal_priv_dev *device = &f->devices[d];
        if (device->attached) device->ops.close(device->state);
        frugal_free(f, device->batch_memory, f->batch_bytes);
        frugal_free(f, device->sorted, f->scratch_bytes);
        frugal_free(f, device->blocks, f->block_bytes);
    }
    frugal_free(f, f->devices, f->desc.devices * sizeof(frugal_priv_dev));
    frugal_free(f, f->p2f, f->p2f_bytes);
    if (f->file_bytes)
        munmap(f->table_memory, f->file_bytes);
    else
        frugal_free(f, f->table_memory, f->table_bytes);
    frugal_priv_drop_file(f);
    frugal_free(f, f->state_memory, f->state_bytes);
    frugal_free(f, f->tables, f->desc.n_tables * sizeof(frugal_table));
    frugal_free(f, f->first_row, (f->desc.n_tables + 1) * sizeof(uint64_t));
    frugal_free(f, f->group_memory, frugal_priv_group_bytes(f->store.n_groups));
    frugal_free(f, f->gates, FRUGAL_PRIV_PAGE);
    pthread_mutex_destroy(&f->settings_lock);
    pthread_mutex_destroy(&f->poll_lock);
    frugal_desc desc = f->desc;
    frugal_priv_release(&desc, f, sizeof *f);
}

frugal_status frugal_may_attach(const frugal *f, uint32_t device) {
    if (!f || !f->opened) return frugal_fail(FRUGAL_ERR_ARGUMENT, "attach: no open instance, or no operations");
    if (device >= f->desc.devices)
        return frugal_fail(FRUGAL_ERR_DEVICE, "device %u cannot be attached: there are %u, from 0", device,
                           f->desc.devices);
    if (f->devices[device].attached) return frugal_fail(FRUGAL_ERR_DEVICE, "device %u is attached already", device);
    return FRUGAL_OK;
}

frugal_status frugal_attach(frugal *f, uint32_t device, const frugal_device_ops *ops, void *state) {
    frugal_status status = frugal_may_attach(ops ? f : NULL, device);
    if (status != FRUGAL_OK) return status;
    f->devices[device].ops = *ops;
    f->devices[device].state = state;
    f->devices[device].attached = 1;
    if (ops->poll) frugal_add_relaxed(&f->polled_devices, 1); /* relaxed, both: as at the fields */
    if (ops->waits_for_gate && ops->waits_for_gate(state)) frugal_add_relaxed(&f->waiting_devices, 1);
    return FRUGAL_OK;
}

const uint64_t *frugal_gates(const frugal *f) {
    if (!f || !f->opened) return NULL;
    return (const uint64_t *)(const void *)f->gates;
}

/* Of a matrix of the caller's: from its first float to its last. */
static frugal_memory frugal_priv_matrix(float *start, uint64_t rows, uint64_t stride, uint64_t floats) {
    return (frugal_memory){start, (size_t)(((rows - 1) * stride + floats) * sizeof(float))};
}

frugal_memory frugal_get_memory(const frugal *f, uint32_t device, frugal_memory_kind kind) {
    const frugal_memory none = {NULL, 0};
    int of_device = kind == FRUGAL_MEMORY_BLOCKS || kind == FRUGAL_MEMORY_BATCHES;
    if (!f || !f->opened || (of_device && device >= f->desc.devices)) return none;
    const frugal_store *s = &f->store;
    switch (kind) {
    case FRUGAL_MEMORY_TABLE:
        if (f->table_memory) return (frugal_memory){f->table_memory, f->table_bytes};
        return frugal_priv_matrix(s->weights, s->rows, s->weights_stride, s->dim);
    case FRUGAL_MEMORY_STATE:
        if (f->state_memory) return (frugal_memory){f->state_memory, f->state_bytes};
        return f->desc.state && s->state ? frugal_priv_matrix(s->state, s->rows, s->state_stride, s->state_floats) : none;
    case FRUGAL_MEMORY_BLOCKS:
        return (frugal_memory){f->devices[device].blocks, f->block_bytes};
    case FRUGAL_MEMORY_BATCHES:
        return (frugal_memory){f->devices[device].batch_memory, f->batch_bytes};
    default:
        return (frugal_memory){f->gates, FRUGAL_PRIV_PAGE};
    }
}

void *frugal_get_device(const frugal *f, uint32_t device, const frugal_device_ops *ops) {
    if (!f || !f->opened || !ops || device >= f->desc.devices || !f->devices[device].attached) return NULL;
    return memcmp(&f->devices[device].ops, ops, sizeof *ops) == 0 ? f->devices[device].state : NULL;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>step - announce, lookup, update
 * --------------------------------------------------------------------------------------------------------- */

static frugal_status frugal_priv_check_open(const frugal *f, const char *call) {
    if (!f || !f->opened) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no open instance", call);
    return FRUGAL_OK;
}

static frugal_status frugal_priv_check_device(const frugal *f, uint32_t device, const char *call) {
    frugal_status status = frugal_priv_check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (device >= f->desc.devices)
        return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u; there are %u, from 0", call, device, f->desc.devices);
    if (!f->devices[device].attached)
        return frugal_fail(FRUGAL_ERR_DEVICE,
                           "%s: device %u is not attached; call frugal_cpu_attach or frugal_cuda_attach first", call,
                           device);
    return FRUGAL_OK;
}

static frugal_status frugal_priv_order(const char *call, uint32_t device, uint64_t step, const char *expected,
                                       uint64_t next) {
    return frugal_fail(FRUGAL_ERR_ORDER, "%s of device %u at step %llu; the next step to %s is %llu", call, device,
                       (unsigned long long)step, expected, (unsigned long long)next);
}

static int frugal_priv_announce_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_legal(f->p2f, wait->step);
}

static void frugal_priv_announce_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) < wait->step) {
            snprintf(text, size, "device %u has announced %llu steps, all must announce the step before", d,
                     (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    snprintf(text, size, "lookahead is %u and step %llu is not closed: update it on every device first",
             f->desc.lookahead, (unsigned long long)now.closed);
}

/* What a device sees of its batch. */
static frugal_step frugal_priv_step_view(frugal *f, uint32_t device, uint64_t step) {
    const frugal_priv_batch *b = frugal_priv_batch_of(f, device, step);
    frugal_records records = {frugal_priv_block(f, device, step),
                              f->record_stride,
                              b->n,
                              b->n_unique,
                              b->record_of,
                              b->order,
                              b->start,
                              b->rows};
    return (frugal_step){.step = step, .records = records, .valid = b->valid};
}

static frugal_status frugal_priv_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch,
                                          int wait) {
    frugal_status status = frugal_priv_check_device(f, device, "announce");
    if (status != FRUGAL_OK) return status;
    if (!batch || (batch->n_segments && !batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "announce: the batch is NULL");
    frugal_priv_dev *dev = &f->devices[device];
    uint64_t next = frugal_p2f_announced(f->p2f, device);
    if (step != next) return frugal_priv_order("announce", device, step, "announce", next);
    uint32_t n = 0;
    if ((status = frugal_priv_read_keys(f, device, batch, &n)) != FRUGAL_OK) return status;
    frugal_priv_wait legal = {frugal_priv_announce_ready, frugal_priv_announce_explain, device, step, "announce", 1};
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("announce"); /* [F3] pairs with [F4] */
    if (!wait && !frugal_priv_announce_ready(f, &legal)) {
        if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "announce"); /* [F10] pairs with [F9] */
        return FRUGAL_AGAIN;
    }
    uint64_t *sorted = frugal_priv_sort(dev->sorted, dev->scratch, n, f->sort_bits);
    if (!frugal_priv_announce_ready(f, &legal)) {
        double since = frugal_priv_now();
        status = frugal_priv_wait_for(f, &legal);
        frugal_priv_tally(&dev->announce_ns, (uint64_t)((frugal_priv_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    frugal_priv_batch *b = frugal_priv_batch_of(f, device, step); /* free: step - (L + 1) is closed */
    frugal_priv_deduplicate(b, sorted, n);
    b->read_only = batch->read_only;
    const frugal_p2f_batch rows = {.rows = b->rows, .n = b->n_unique, .read_only = b->read_only};
    status = frugal_p2f_announce(f->p2f, device, step, &rows, b->valid);
    FRUGAL_ASSERT(status == FRUGAL_OK);
    if (dev->ops.announced) {
        frugal_step view = frugal_priv_step_view(f, device, step);
        dev->ops.announced(dev->state, &view);
    }
    frugal_store_release(&dev->told, step + 1); /* [F11] pairs with [F12] */
    frugal_priv_event_notify(f->event);         /* it may have sealed the step, and made rows urgent */
    return status;
}

frugal_status frugal_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch) {
    return frugal_priv_announce(f, device, step, batch, 1);
}
frugal_status frugal_try_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch) {
    return frugal_priv_announce(f, device, step, batch, 0);
}

static int frugal_priv_committed_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_all_committed(f->p2f) >= wait->step;
}

static int frugal_priv_gate_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_gate(f->p2f, wait->step);
}

/* Names the rows that the gate waits for, found in the plans that may hold them. */
static void frugal_priv_explain_rows(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    int used = snprintf(text, size,
                        "slot %llu: %lld rows are not flushed:", (unsigned long long)(wait->step % FRUGAL_P2F_SLOTS),
                        (long long)frugal_p2f_pending(f->p2f, wait->step));
    const frugal_priv_batch *b = frugal_priv_batch_of(f, wait->device, wait->step);
    int shown = 0;
    for (uint32_t i = 0; i < b->n_unique && shown < 5 && used > 0 && (size_t)used < size; i++) {
        int dirty = frugal_p2f_is_dirty(f->p2f, b->rows[i]);
        if (!dirty) continue;
        used += snprintf(text + used, size - (size_t)used, " %u (%s)", b->rows[i],
                         dirty == 2 ? "a thread is applying it" : "queued");
        shown++;
    }
    if (shown == 0 && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, " none of this batch: they hold staging blocks to be reused");
}

static void frugal_priv_gate_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    for (uint32_t d = 0; now.committed < wait->step && d < f->desc.devices; d++)
        if (frugal_p2f_committed(f->p2f, d) <= now.committed) {
            snprintf(text, size, "step %llu is not closed: device %u has not %s it", (unsigned long long)now.committed, d,
                     frugal_load_relaxed(&f->devices[d].updated) > now.committed ? "finished" : "updated");
            return;
        }
    for (uint32_t d = 0; now.sealed <= wait->step && d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) <= wait->step) {
            snprintf(text, size, "step %llu is not sealed: device %u has announced %llu steps",
                     (unsigned long long)wait->step, d, (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    if (now.closed < wait->step)
        snprintf(text, size, "step %llu is being closed by a thread that does not return",
                 (unsigned long long)now.closed);
    else
        frugal_priv_explain_rows(f, wait, text, size);
}

/* First for the other devices, then for what the flushing leaves to wait for: two clocks, for who looks at them. */
static frugal_status frugal_priv_wait_at_gate(frugal *f, uint32_t device, uint64_t step) {
    frugal_priv_dev *dev = &f->devices[device];
    frugal_priv_wait committed = {frugal_priv_committed_ready, frugal_priv_gate_explain, device, step, "lookup", 1};
    frugal_priv_wait gate = {frugal_priv_gate_ready, frugal_priv_gate_explain, device, step, "lookup", 1};
    frugal_priv_tally(&dev->gate_waits, 1);
    double since = frugal_priv_now();
    frugal_status status = frugal_priv_wait_for(f, &committed);
    double met = frugal_priv_now();
    frugal_priv_tally(&dev->barrier_ns, (uint64_t)((met - since) * 1e9));
    if (status != FRUGAL_OK) return status;
    status = frugal_priv_wait_for(f, &gate);
    frugal_priv_tally(&dev->stall_ns, (uint64_t)((frugal_priv_now() - met) * 1e9));
    return status;
}

/* Are the keys known, and the device told? */
static int frugal_priv_batch_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_load_acquire(&f->devices[wait->device].told) > wait->step; /* [F12] pairs with [F11] */
}

/* And have all devices that work on been given the step before? Only then may one of them be made to wait for what the others
 * do in that step: they may share a queue of a GPU, in which nothing overtakes the one that waits. */
static int frugal_priv_given_ready(frugal *f, const frugal_priv_wait *wait) {
    for (uint32_t d = 0; d < f->desc.devices && wait->step > f->desc.first_step; d++) {
        const frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_acquire(&dev->told) < wait->step) return 0; /* attached by now; [F12] pairs with [F11] */
        if (dev->ops.poll && frugal_load_relaxed(&dev->updated) < wait->step) return 0; /* relaxed: it has been enqueued */
    }
    return frugal_priv_batch_ready(f, wait);
}

static void frugal_priv_given_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (f->devices[d].ops.poll && frugal_load_relaxed(&f->devices[d].updated) < wait->step) { /* relaxed: words */
            snprintf(text, size, "device %u has not updated step %llu: go step by step, and device by device", d,
                     (unsigned long long)(wait->step - 1));
            return;
        }
    frugal_priv_gate_explain(f, wait, text, size);
}

/* Until the device may be given the lookup of `step`. */
static frugal_status frugal_priv_pass(frugal *f, uint32_t device, uint64_t step, int wait) {
    const frugal_priv_dev *dev = &f->devices[device];
    frugal_status status = FRUGAL_OK;
    int waits_itself = dev->ops.waits_for_gate && dev->ops.waits_for_gate(dev->state);
    frugal_priv_wait batch = {waits_itself ? frugal_priv_given_ready : frugal_priv_batch_ready,
                              waits_itself ? frugal_priv_given_explain : frugal_priv_gate_explain, device, step, "lookup", 1};
    if ((waits_itself || dev->ops.announced) && !batch.ready(f, &batch)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = frugal_priv_wait_for(f, &batch)) != FRUGAL_OK) return status;
    }
    if (waits_itself) return FRUGAL_OK;
    if (!frugal_p2f_gate(f->p2f, step)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = frugal_priv_wait_at_gate(f, device, step)) != FRUGAL_OK) return status;
    }
#ifndef NDEBUG
    const frugal_priv_batch *b = frugal_priv_batch_of(f, device, step);
    for (uint32_t i = 0; i < b->n_unique; i++) /* invariant (2) of the paper */
        FRUGAL_ASSERT(!frugal_p2f_is_dirty(f->p2f, b->rows[i]) && "a row read at s has no pending update");
#endif
    return status;
}

static frugal_status frugal_priv_lookup(frugal *f, uint32_t device, uint64_t step, const frugal_bags *bags, float *rows,
                                        int wait) {
    frugal_status status = frugal_priv_check_device(f, device, "lookup");
    if (status != FRUGAL_OK) return status;
    frugal_priv_dev *dev = &f->devices[device];
    uint64_t next = frugal_load_relaxed(&dev->updated); /* relaxed, as below: this thread's own */
    if (step != next) return frugal_priv_order("lookup", device, step, "look up", next);
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("lookup"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "lookup");    /* [F10] pairs with [F9] */
    if ((status = frugal_priv_pass(f, device, step, wait)) != FRUGAL_OK) return status;
    frugal_step view = frugal_priv_step_view(f, device, step);
    view.repeated = frugal_load_relaxed(&dev->looked_up) > step;
    view.bags = bags;
    frugal_priv_fenv saved = frugal_priv_fenv_enter(); /* pooling is arithmetic */
    status = dev->ops.lookup(dev->state, &view, rows);
    frugal_priv_fenv_leave(saved);
    if (status != FRUGAL_OK) return frugal_priv_refused(f, device, status, "lookup");
    dev->bags = bags ? *bags : (frugal_bags){0};
    if (!view.repeated) {
        frugal_priv_tally(&dev->keys, view.records.n);
        frugal_priv_tally(&dev->unique_rows, view.records.n_unique);
        frugal_store_relaxed(&dev->looked_up, step + 1);
    }
    return FRUGAL_OK;
}

frugal_status frugal_lookup(frugal *f, uint32_t device, uint64_t step, float *rows) {
    return frugal_priv_lookup(f, device, step, NULL, rows, 1);
}
frugal_status frugal_try_lookup(frugal *f, uint32_t device, uint64_t step, float *rows) {
    return frugal_priv_lookup(f, device, step, NULL, rows, 0);
}
frugal_status frugal_lookup_bags(frugal *f, uint32_t device, uint64_t step, const frugal_bags *bags, float *pooled) {
    if (!bags || !bags->offsets || (bags->n_bags && !pooled))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_bags: no bags, no offsets, or nowhere to put them");
    if (bags->pooling > FRUGAL_POOL_MEAN || (bags->pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_bags: pooling %d%s; there are 0 (sum) and 1 (mean, without weights)",
                           (int)bags->pooling, bags->weights ? " with weights" : "");
    return frugal_priv_lookup(f, device, step, bags, pooled, 1);
}

/* Between lookup and update of `step`? */
static frugal_status frugal_priv_check_looked_up(frugal *f, uint32_t device, uint64_t step, const char *call) {
    frugal_status status = frugal_priv_check_device(f, device, call);
    if (status != FRUGAL_OK) return status;
    uint64_t updated = frugal_load_relaxed(&f->devices[device].updated); /* relaxed, both: this thread's own */
    if (step != updated) return frugal_priv_order(call, device, step, "update", updated);
    uint64_t looked_up = frugal_load_relaxed(&f->devices[device].looked_up);
    if (looked_up != step + 1) return frugal_priv_order(call, device, step, "look up", looked_up);
    return FRUGAL_OK;
}

frugal_status frugal_get_records(frugal *f, uint32_t device, uint64_t step, frugal_records *out) {
    frugal_status status = frugal_priv_check_looked_up(f, device, step, "get_records");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_records: `out` is NULL");
    /* Behind a gate that was forced open the block may hold records that are still to be flushed. */
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("get_records"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "get_records");    /* [F10] pairs with [F9] */
    *out = frugal_priv_step_view(f, device, step).records;
    return FRUGAL_OK;
}

/* The powers of the groups' betas, up to `step`. */
static void frugal_priv_raise_powers(frugal *f, uint64_t step) {
    uint32_t n = f->store.n_groups;
    for (; f->power_step <= step; f->power_step++)
        for (uint32_t g = 0; g < n; g++) {
            const frugal_optimizer *o = &f->store.groups[g].optimizer;
            f->power_now[g].beta1 *= (double)o->beta1;
            f->power_now[g].beta2 *= (double)o->beta2;
            f->powers[f->power_step % FRUGAL_P2F_SLOTS * n + g] = f->power_now[g];
        }
}

/* Fixes the step's settings, or checks that they are what another device fixed. */
static frugal_status frugal_priv_fix_settings(frugal *f, uint64_t step, float lr, const frugal_hyper **out) {
    frugal_status status = FRUGAL_OK;
    frugal_priv_settings *settings = &f->settings[step % FRUGAL_P2F_SLOTS];
    frugal_hyper *hyper = frugal_priv_hyper(f, step);
    pthread_mutex_lock(&f->settings_lock);
    if (!settings->fixed || settings->step != step) {
        frugal_priv_raise_powers(f, step);
        for (uint32_t g = 0; g < f->store.n_groups; g++) {
            const frugal_priv_powers *power = &f->powers[step % FRUGAL_P2F_SLOTS * f->store.n_groups + g];
            float own = frugal_mul(lr, f->store.groups[g].optimizer.lr_scale);
            float size = (float)((double)own * sqrt(1.0 - power->beta2) / (1.0 - power->beta1));
            hyper[g] = (frugal_hyper){own, f->store.kind == FRUGAL_ADAM ? size : own};
        }
        *settings = (frugal_priv_settings){step, 1, lr};
    } else if (memcmp(&settings->lr, &lr, sizeof lr) != 0)
        status = frugal_fail(FRUGAL_ERR_SETTINGS, "learning rate %.9g at step %llu; another device fixed %.9g for it",
                             (double)lr, (unsigned long long)step, (double)settings->lr);
    *out = hyper;
    pthread_mutex_unlock(&f->settings_lock);
    return status;
}

/* What an update brings must fit its batch and its lookup. */
static frugal_status frugal_priv_check_gradients(const frugal *f, uint32_t device, uint64_t step,
                                                 const frugal_gradients *gradients) {
    if (gradients->grads && gradients->records)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: both `grads` and `records`; give one");
    if (frugal_priv_batch_of(f, device, step)->read_only)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "update: step %llu of device %u was announced read-only and has gradients",
                           (unsigned long long)step, device);
    if (gradients->by_bag && (!gradients->grads || !f->devices[device].bags.offsets))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: gradients by bag, and %s of step %llu",
                           gradients->grads ? "no frugal_lookup_bags" : "no `grads`", (unsigned long long)step);
    return FRUGAL_OK;
}

/* Commits at once, or leaves it to who polls the device. */
static void frugal_priv_commit(frugal *f, uint32_t device, uint64_t step, int brings) {
    frugal_priv_dev *dev = &f->devices[device];
    int last_one = 0;
    dev->brings[step % FRUGAL_P2F_SLOTS] = (uint8_t)brings;
    frugal_store_release(&dev->updated, step + 1); /* [F5] pairs with [F6] */
    if (dev->ops.poll) {
        frugal_priv_event_notify(f->event); /* there is something to look after */
        return;
    }
    frugal_status status = frugal_p2f_commit(f->p2f, device, step, brings, &last_one);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
    if (last_one) frugal_priv_event_notify(f->event); /* the step can be closed */
}

frugal_status frugal_update(frugal *f, uint32_t device, uint64_t step, const frugal_gradients *gradients) {
    frugal_status status = frugal_priv_check_looked_up(f, device, step, "update");
    if (status != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("update"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "update");    /* [F10] pairs with [F9] */
    frugal_priv_dev *dev = &f->devices[device];
    int brings = gradients && (gradients->grads || gradients->records);
    if (brings) status = frugal_priv_check_gradients(f, device, step, gradients);
    if (status != FRUGAL_OK) return status;
    if (brings || dev->ops.poll) {
        frugal_step view = frugal_priv_step_view(f, device, step);
        view.brings = brings;
        if (brings && gradients->by_bag) view.bags = &dev->bags;
        frugal_priv_fenv saved = frugal_priv_fenv_enter();
        if (brings) status = frugal_priv_fix_settings(f, step, gradients->lr, &view.hyper);
        if (status == FRUGAL_OK) status = dev->ops.update(dev->state, &view, brings ? gradients->grads : NULL);
        frugal_priv_fenv_leave(saved);
        if (status == FRUGAL_ERR_SETTINGS) return status;
        if (status != FRUGAL_OK) return frugal_priv_refused(f, device, status, "update");
    }
    frugal_priv_commit(f, device, step, brings);
    return FRUGAL_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>rows - drain, cancel, reading and writing rows, serving
 * --------------------------------------------------------------------------------------------------------- */

static int frugal_priv_drain_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    return frugal_priv_is_drained(f);
}

static void frugal_priv_drain_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    (void)wait;
    for (uint32_t d = 0; frugal_priv_is_owing(f) && d < f->desc.devices; d++)
        if (frugal_p2f_committed(f->p2f, d) <= now.committed &&
            frugal_load_relaxed(&f->devices[d].updated) > now.committed) { /* relaxed: a message */
            snprintf(text, size, "step %llu is not committed: device %u has not finished it",
                     (unsigned long long)now.committed, d);
            return;
        }
    snprintf(text, size, "%llu of %llu committed steps are closed, %lld rows are not flushed",
             (unsigned long long)now.closed, (unsigned long long)now.committed, (long long)now.pending);
}

frugal_status frugal_drain(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "drain");
    if (status != FRUGAL_OK) return status;
    frugal_priv_wait drained = {frugal_priv_drain_ready, frugal_priv_drain_explain, 0, frugal_p2f_all_committed(f->p2f),
                                "drain", 0};
    return frugal_priv_wait_for(f, &drained);
}

/* No piece of a plan is in other hands: with no announcement under way it stays so. */
static int frugal_priv_cancel_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    return frugal_p2f_is_planned(f->p2f);
}

static void frugal_priv_cancel_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    (void)f, (void)wait;
    snprintf(text, size, "a thread that is planning does not return");
}

frugal_status frugal_cancel(frugal *f, uint64_t step) {
    frugal_status status = frugal_priv_check_open(f, "cancel");
    if (status != FRUGAL_OK) return status;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up); /* relaxed: no lookup is under way */
        if (looked_up > step) return frugal_priv_order("cancel", d, step, "be looked up", looked_up);
    }
    /* Emptying the queue first keeps its number of pages within bounds however often steps are taken back. */
    if ((status = frugal_drain(f)) != FRUGAL_OK) return status;
    while (frugal_priv_flush_page(f, UINT64_MAX, 0)) {
    }
    frugal_priv_wait cancelled = {frugal_priv_cancel_ready, frugal_priv_cancel_explain, 0, step, "cancel", 0};
    if ((status = frugal_priv_wait_for(f, &cancelled)) != FRUGAL_OK) return status;
    status = frugal_p2f_cancel(f->p2f, step);
    if (status != FRUGAL_OK)
        return frugal_fail(status, "cancel from step %llu: steps %llu to %llu are announced", (unsigned long long)step,
                           (unsigned long long)frugal_p2f_get_progress(f->p2f).closed,
                           (unsigned long long)frugal_p2f_get_progress(f->p2f).announced);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_relaxed(&dev->told) > step) frugal_store_relaxed(&dev->told, step); /* relaxed, both: likewise */
        if (dev->attached && dev->ops.cancelled) dev->ops.cancelled(dev->state);
    }
    if (!frugal_load_relaxed(&f->stopped) && !frugal_load_relaxed(&f->lost) && frugal_load_relaxed(f->gates) > step)
        frugal_store_relaxed(f->gates, step); /* relaxed, all: between steps, nobody waits for a gate */
    return FRUGAL_OK;
}

/* The row number of keys->keys[i]; checked by frugal_priv_check_keys. */
static uint64_t frugal_priv_row(const frugal *f, const frugal_keys *keys, uint32_t i) {
    return f->first_row[keys->table] + keys->keys[i];
}

static frugal_status frugal_priv_check_keys(const frugal *f, const frugal_keys *keys, const char *call) {
    frugal_status status = frugal_priv_check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (!keys || (keys->n && !keys->keys)) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no keys", call);
    if (keys->table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "%s: table %u; there are %u", call, keys->table, f->desc.n_tables);
    for (uint32_t i = 0; i < keys->n; i++)
        if (keys->keys[i] >= f->desc.tables[keys->table].rows)
            return frugal_fail(FRUGAL_ERR_KEY, "%s: key %lld at %u: table %u has %llu rows", call,
                               (long long)keys->keys[i], i, keys->table,
                               (unsigned long long)f->desc.tables[keys->table].rows);
    return FRUGAL_OK;
}

static frugal_status frugal_priv_busy(const char *call) {
    return frugal_fail(FRUGAL_ERR_BUSY,
                       "%s: needs a drained instance with nothing announced; call frugal_drain, frugal_cancel", call);
}

typedef struct frugal_priv_row_wait { /* a row that another thread is applying */
    frugal_priv_wait wait;
    uint32_t row;
} frugal_priv_row_wait;

static int frugal_priv_row_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_is_dirty(f->p2f, ((const frugal_priv_row_wait *)wait)->row) != 2;
}

static void frugal_priv_row_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    (void)f;
    snprintf(text, size, "row %u is being applied by a thread that does not return",
             ((const frugal_priv_row_wait *)wait)->row);
}

/* Makes the host row current, whenever its update is due. */
static frugal_status frugal_priv_flush_row(frugal *f, uint32_t row) {
    frugal_p2f_work work;
    for (;;) {
        int taken = frugal_p2f_take_row(f->p2f, row, &work);
        if (taken == 0) return FRUGAL_OK;
        if (taken > 0) {
            frugal_priv_flush(f, &work, 1);
            frugal_priv_tally(&f->flushed, 1);
            frugal_priv_tally(&f->flushed_by_urgency[0], 1);
            if (frugal_p2f_done(f->p2f, &work, 1)) frugal_priv_event_notify(f->event);
            return FRUGAL_OK;
        }
        frugal_priv_row_wait busy = {
            {frugal_priv_row_ready, frugal_priv_row_explain, 0, frugal_p2f_closed(f->p2f), "read_rows", 0}, row};
        frugal_status status = frugal_priv_wait_for(f, &busy.wait);
        if (status != FRUGAL_OK) return status;
    }
}

static int frugal_priv_closed_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    if (frugal_priv_is_owing(f)) return 0;
    uint64_t closed = frugal_p2f_closed(f->p2f); /* before what is committed, which may grow by a step that is closed then */
    return closed >= frugal_p2f_all_committed(f->p2f);
}

frugal_status frugal_read_rows(frugal *f, const frugal_keys *keys, float *weights, float *state) {
    frugal_status status = frugal_priv_check_keys(f, keys, "read_rows");
    if (status != FRUGAL_OK) return status;
    frugal_priv_wait closed = {frugal_priv_closed_ready, frugal_priv_drain_explain, 0, frugal_p2f_all_committed(f->p2f),
                               "read_rows", 0};
    if ((status = frugal_priv_wait_for(f, &closed)) != FRUGAL_OK) return status;
    for (uint32_t i = 0; i < keys->n; i++) {
        uint64_t row = frugal_priv_row(f, keys, i);
        if ((status = frugal_priv_flush_row(f, (uint32_t)row)) != FRUGAL_OK) return status;
        if (weights)
            memcpy(weights + (uint64_t)i * f->store.dim, frugal_priv_weights(f, row), f->store.dim * sizeof(float));
        if (state && f->store.state)
            memcpy(state + (uint64_t)i * f->store.state_floats, frugal_priv_state(f, row),
                   f->store.state_floats * sizeof(float));
    }
    return FRUGAL_OK;
}

frugal_status frugal_write_rows(frugal *f, const frugal_keys *keys, const float *weights, const float *state) {
    frugal_status status = frugal_priv_check_keys(f, keys, "write_rows");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("write_rows");
    for (uint32_t i = 0; i < keys->n; i++) {
        uint64_t row = frugal_priv_row(f, keys, i);
        frugal_p2f_disown(f->p2f, (uint32_t)row);
        if (weights)
            memcpy(frugal_priv_weights(f, row), weights + (uint64_t)i * f->store.dim, f->store.dim * sizeof(float));
        if (state && f->store.state)
            memcpy(frugal_priv_state(f, row), state + (uint64_t)i * f->store.state_floats,
                   f->store.state_floats * sizeof(float));
    }
    return FRUGAL_OK;
}

frugal_status frugal_view(frugal *f, uint32_t table, const float **weights, uint64_t *stride) {
    frugal_status status = frugal_priv_check_open(f, "view");
    if (status != FRUGAL_OK) return status;
    if (!weights || !stride) return frugal_fail(FRUGAL_ERR_ARGUMENT, "view: `weights` or `stride` is NULL");
    if (table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "view: table %u; there are %u", table, f->desc.n_tables);
    if (!frugal_priv_is_drained(f)) return frugal_priv_busy("view");
    *weights = frugal_priv_weights(f, f->first_row[table]);
    *stride = f->store.weights_stride;
    return FRUGAL_OK;
}

frugal_status frugal_release_holders(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "release_holders");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("release_holders");
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (f->devices[d].attached) f->devices[d].ops.empty(f->devices[d].state);
    frugal_p2f_release_holders(f->p2f);
    return FRUGAL_OK;
}

frugal_status frugal_preload(frugal *f, uint32_t device, const frugal_keys *keys) {
    frugal_status status = frugal_priv_check_device(f, device, "preload");
    if (status == FRUGAL_OK) status = frugal_priv_check_keys(f, keys, "preload");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("preload");
    uint32_t rows[1024];
    for (uint32_t at = 0, n; at < keys->n; at += n) {
        n = FRUGAL_PRIV_MIN(keys->n - at, 1024);
        for (uint32_t i = 0; i < n; i++) rows[i] = (uint32_t)frugal_priv_row(f, keys, at + i);
        status = f->devices[device].ops.preload(f->devices[device].state, rows, n);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

frugal_status frugal_verify(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "verify");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_drained(f)) return frugal_priv_busy("verify");
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (!f->devices[d].attached || f->devices[d].ops.verify(f->devices[d].state)) continue;
        status = frugal_priv_refused(f, d, FRUGAL_ERR_CUDA, "verify"); /* is it lost, and so could not be asked? */
        if (status == FRUGAL_ERR_LOST) return status;
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "verify: a copy that device %u may read differs from its host row, or could not be read", d);
    }
    return FRUGAL_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>stats
 * --------------------------------------------------------------------------------------------------------- */

void frugal_get_stats(frugal *f, frugal_stats *out) {
    if (!out) return;
    memset(out, 0, sizeof *out);
    if (!f || !f->opened) return;
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    out->steps = now.closed - f->desc.first_step;
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* relaxed, all of them: statistics order nothing */
        frugal_priv_dev *device = &f->devices[d];
        out->keys += frugal_load_relaxed(&device->keys);
        out->unique_rows += frugal_load_relaxed(&device->unique_rows);
        out->hits += frugal_load_relaxed(&device->hits);
        out->misses += frugal_load_relaxed(&device->misses);
        out->gate_waits += frugal_load_relaxed(&device->gate_waits);
        out->barrier_seconds += (double)frugal_load_relaxed(&device->barrier_ns) * 1e-9;
        out->stall_seconds += (double)frugal_load_relaxed(&device->stall_ns) * 1e-9;
        out->announce_wait_seconds += (double)frugal_load_relaxed(&device->announce_ns) * 1e-9;
    }
    out->worker_busy_seconds = (double)frugal_load_relaxed(&f->busy_ns) * 1e-9;
    out->plan_seconds = (double)frugal_load_relaxed(&f->plan_ns) * 1e-9;
    out->close_seconds = (double)frugal_load_relaxed(&f->close_ns) * 1e-9;
    out->flush_seconds = (double)frugal_load_relaxed(&f->flush_ns) * 1e-9;
    out->closed_entries = frugal_load_relaxed(&f->closed_entries);
    out->flushed = frugal_load_relaxed(&f->flushed);
    out->flushed_at_close = frugal_load_relaxed(&f->flushed_at_close);
    out->stale_ids = frugal_load_relaxed(&f->stale);
    out->staging_depth = f->desc.staging;
    for (uint32_t s = 0; s < FRUGAL_P2F_SLOTS; s++) {
        out->flushed_by_urgency[s] = frugal_load_relaxed(&f->flushed_by_urgency[s]);
        out->queue_depth[s] = frugal_p2f_pending(f->p2f, now.closed + s);
    }
    for (uint64_t back = 1; back <= f->desc.staging && back <= out->steps; back++)
        out->staging_in_use += frugal_p2f_unflushed(f->p2f, now.closed - back) > 0;
    out->state_bytes = f->store.rows * sizeof(uint64_t);
    out->other_bytes = f->p2f_bytes - out->state_bytes +
                       f->desc.devices * (f->batch_bytes + f->scratch_bytes + f->block_bytes) +
                       frugal_priv_group_bytes(f->store.n_groups);
}
