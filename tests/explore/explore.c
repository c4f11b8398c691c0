/* explore.c - see explore.h. One schedule at a time, on one thread of the system. */
#include "tests/explore/explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/coroutine.h"

enum {
    STACK = 1 << 17,
    LOCATIONS = 4096,        /* of the table of atomic objects; a power of two */
    MOST_LOCATIONS = 3000,   /* touched in one schedule */
    MOST_OPERATIONS = 50000, /* of one schedule: beyond, it is a livelock */
    MOST_CHOICES = 1 << 14,  /* of one schedule, where they are enumerated */
    PCT_DEPTH = 4,           /* priorities change at most this number of times, less one */
    VARIANT_SCHEDULES = 32,  /* schedules a world */
    NEVER = -1               /* as a uint32_t, later than all times */
};

/* Times are counts of operations of one thread. clock[u]: what thread u did before that time happens before. */
typedef struct times {
    uint32_t at[EXPLORE_THREADS];
} times;

typedef struct store {
    uint64_t value;
    times released; /* what happens before a thread that acquires it */
    times seen;     /* seen.at[u]: when thread u first saw it */
} store;

typedef struct location {
    uint64_t generation; /* the schedule it was last touched in */
    uint32_t offset;
    uint32_t stores;                /* in this schedule, the initial value included */
    store history[EXPLORE_HISTORY]; /* of the last ones; number i at i mod EXPLORE_HISTORY */
} location;

typedef struct shadow { /* of 4 bytes of plain memory, or of 1 */
    uint64_t generation;
    uint32_t writer, written; /* by which thread, and at which time of that thread; 0: not in this schedule */
    times read;
} shadow;

typedef struct thread {
    coroutine co;
    times now; /* what happens before now; own entry: own time */
    int finished, waiting;
    const void *asleep;    /* until a thread wakes those that sleep on this address */
    int fresh;             /* sees only the newest values until it waits again */
    int wrote;             /* its last operation was a store */
    uint64_t changes_seen; /* when its present pass of looking for something to do began */
    int64_t priority;      /* PCT: higher runs */
    explore_site last;     /* last atomic operation, for reports; a copy, as the caller's is gone when it returns */
} thread;

typedef struct choice {
    uint16_t taken, of;
} choice;

static struct {
    const explore_scenario *scenario;
    coroutine main;
    thread threads[EXPLORE_THREADS];
    int current; /* -1: not in a schedule */
    uint64_t generation, random;
    uint64_t operations, changes; /* of this schedule; changes: stores that another thread could wait for */
    explore_strategy strategy;
    uint64_t change_points[PCT_DEPTH];
    int64_t lowest;  /* priority given so far */
    uint64_t length; /* approximate number of operations of the scenario, for PCT */
    int trace, checking;
    jmp_buf check_failed;
    char failure[512];
    /* enumeration */
    choice choices[MOST_CHOICES];
    uint32_t n_choices, at_choice, preemptions_left, stale_left;
} x = {.current = -1};

static _Alignas(4096) unsigned char arena[EXPLORE_ARENA], image[EXPLORE_ARENA];
static size_t arena_used;
static _Alignas(64) unsigned char stacks[EXPLORE_THREADS][STACK];
static location locations[LOCATIONS];
static uint32_t n_locations;
static shadow words[EXPLORE_ARENA / 4], bytes[EXPLORE_ARENA];

/* >>clocks */

static inline void join(times *a, const times *b) {
    for (int i = 0; i < EXPLORE_THREADS; i++)
        if (b->at[i] > a->at[i]) a->at[i] = b->at[i];
}

/* Has a thread, at a time that happens before `now`, seen the store? */
static inline int known(const store *s, const times *now) {
    int any = 0;
    for (int i = 0; i < EXPLORE_THREADS; i++) any |= s->seen.at[i] <= now->at[i];
    return any;
}

/* >>choices */

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t draw(uint32_t n) { /* below n */
    x.random += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((mix(x.random) >> 32) * n >> 32);
}

/* The next choice of an enumeration: the same as in the schedule before, except the last one that had alternatives
 * left. */
static uint32_t enumerate(uint32_t n) {
    if (n <= 1) return 0;
    if (x.at_choice == x.n_choices) {
        if (x.n_choices == MOST_CHOICES) explore_fail("more than %d choices in a schedule", MOST_CHOICES);
        x.choices[x.n_choices++] = (choice){0, (uint16_t)n};
    }
    if (x.choices[x.at_choice].of != n) explore_fail("the scenario is not deterministic");
    return x.choices[x.at_choice++].taken;
}

uint32_t explore_choose(uint32_t n) {
    return x.strategy == EXPLORE_BOUNDED ? enumerate(n) : draw(n);
}

int explore_chance(uint32_t n) {
    return x.strategy != EXPLORE_BOUNDED && draw(n) == 0;
}

/* >>scheduling */

static int runnable(const thread *t) {
    return !t->finished && !t->asleep && !(t->waiting && t->changes_seen == x.changes);
}

/* The next thread to run, of those that can; -1: none. `yields`: the current one wants to let others run; then choice 0
 * is the one after it, so that an enumeration that chooses nothing else lets all of them run in turn. */
static int pick(int yields) {
    int able[EXPLORE_THREADS], n = 0, stay = -1, threads = x.scenario->threads;
    for (int k = 1; k <= threads; k++) {
        int i = (x.current + k) % threads;
        if (!runnable(&x.threads[i])) continue;
        if (i == x.current) stay = n;
        able[n++] = i;
    }
    if (n == 0) return -1;
    if (x.strategy == EXPLORE_PCT) {
        for (int i = 1; i < PCT_DEPTH; i++)
            if (x.operations == x.change_points[i] && stay >= 0) x.threads[x.current].priority = i;
        int best = able[0];
        for (int i = 1; i < n; i++)
            if (x.threads[able[i]].priority > x.threads[best].priority) best = able[i];
        return best;
    }
    if (x.strategy == EXPLORE_UNIFORM) return able[draw((uint32_t)n)];
    if (stay >= 0 && !yields) { /* staying is choice 0; leaving costs */
        if (x.preemptions_left == 0) return x.current;
        able[stay] = able[0], able[0] = x.current;
        uint32_t chosen = enumerate((uint32_t)n);
        if (chosen > 0) x.preemptions_left--;
        return able[chosen];
    }
    return able[enumerate((uint32_t)n)];
}

static void go_on(int next) {
    int before = x.current;
    if (next == before) return;
    x.current = next;
    coroutine_switch(&x.threads[before].co, &x.threads[next].co);
}

static void leave(void) { /* the schedule is over */
    coroutine *from = &x.threads[x.current].co;
    x.current = -1;
    coroutine_switch(from, &x.main);
    abort(); /* no thread is resumed in a schedule that is over */
}

static void count_operation(void) {
    if (++x.operations > MOST_OPERATIONS) explore_fail("no end after %d operations: a livelock", MOST_OPERATIONS);
}

void explore_point(void) {
    if (x.current < 0) return;
    count_operation();
    go_on(pick(0));
}

/* Where a thread is, in words. */
static const char *place(const thread *t, char text[128]) {
    const char *file = t->last.file ? strrchr(t->last.file, '/') : NULL;
    if (!t->last.file) return "the start";
    snprintf(text, 128, "%s at %s:%d", t->last.operation, file ? file + 1 : t->last.file, t->last.line);
    return text;
}

/* No thread can go on, and not all have ended. */
static void report_deadlock(void) {
    char text[400] = "";
    for (int i = 0; i < x.scenario->threads; i++) {
        size_t at = strlen(text);
        const thread *t = &x.threads[i];
        if (t->finished) continue;
        char where[128];
        snprintf(text + at, sizeof text - at, " thread %d %s after %s;", i, t->asleep ? "sleeps" : "waits",
                 place(t, where));
    }
    explore_fail("deadlock: all wait or sleep, and nothing changes any more;%s", text);
}

/* This thread has nothing to do for now. */
static void let_others(void) {
    int next = pick(1);
    if (next < 0) report_deadlock();
    go_on(next);
}

/* Does the thread see only the newest values? */
static int is_fresh(const thread *t) {
    return t->fresh || (x.strategy == EXPLORE_BOUNDED && x.stale_left == 0);
}

void explore_wait(void) {
    thread *t = &x.threads[x.current];
    /* Blocks the thread until something changes, if the newest values gave it nothing to do; else it may have seen old
     * values, and looks again. */
    t->waiting = t->fresh && t->changes_seen == x.changes;
    if (x.trace) fprintf(stderr, "  T%d  %s\n", x.current, t->waiting ? "waits" : "yields");
    count_operation();
    t->priority = --x.lowest;
    int fresh = x.strategy == EXPLORE_BOUNDED ? !t->fresh : (int)draw(2); /* so that no old value is seen for ever */
    let_others();
    t->waiting = 0;
    t->fresh = fresh;
    t->fresh = is_fresh(t); /* from the beginning of the pass on */
    t->changes_seen = x.changes;
}

void explore_sleep(const void *on) {
    x.threads[x.current].asleep = on;
    if (x.trace) fprintf(stderr, "  T%d  sleeps\n", x.current);
    let_others();
}

void explore_wake(const void *on, uint32_t most) {
    for (;;) {
        int sleepers[EXPLORE_THREADS], n = 0;
        for (int i = 0; x.current >= 0 && i < x.scenario->threads; i++)
            if (x.threads[i].asleep == on) sleepers[n++] = i;
        if (n == 0 || most-- == 0) return;
        int chosen = sleepers[explore_choose((uint32_t)n)];
        x.threads[chosen].asleep = NULL;
        if (x.trace) fprintf(stderr, "  T%d  wakes T%d\n", x.current, chosen);
    }
}

static void thread_main(void *argument) {
    int number = (int)((thread *)argument - x.threads);
    x.scenario->thread(number);
    x.threads[number].finished = 1;
    x.changes++; /* others may wait for it */
    int next = pick(1);
    if (next >= 0) go_on(next);
    for (int i = 0; i < x.scenario->threads; i++)
        if (!x.threads[i].finished) report_deadlock();
    leave();
}

void explore_fail(const char *format, ...) {
    if (!x.failure[0]) {
        int at = x.current < 0 ? 0 : snprintf(x.failure, sizeof x.failure, "thread %d: ", x.current);
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(x.failure + at, sizeof x.failure - (size_t)at, format, arguments);
        va_end(arguments);
    }
    if (x.current >= 0) leave();
    if (x.checking) longjmp(x.check_failed, 1);
    fprintf(stderr, "explore: outside of a schedule: %s\n", x.failure);
    abort();
}

/* >>atomic objects */

static uint64_t read_raw(const void *p, size_t size) {
    uint64_t value = 0;
    memcpy(&value, p, size); /* little endian, as all machines that this runs on */
    return value;
}

/* The history of an object; NULL where there is nothing to explore: outside a schedule, or of the arena. */
static location *locate(const void *p, size_t size) {
    size_t offset = (size_t)((const unsigned char *)p - arena);
    if (x.current < 0 || offset >= EXPLORE_ARENA) return NULL;
    uint32_t at = (uint32_t)(mix(offset) % LOCATIONS);
    while (locations[at].generation == x.generation && locations[at].offset != offset) at = (at + 1) % LOCATIONS;
    location *l = &locations[at];
    if (l->generation == x.generation) return l;
    if (++n_locations > MOST_LOCATIONS) explore_fail("more than %d atomic objects", MOST_LOCATIONS);
    l->generation = x.generation, l->offset = (uint32_t)offset, l->stores = 1;
    l->history[0] = (store){.value = read_raw(p, size)}; /* before all threads: known to all, releases nothing */
    return l;
}

static inline store *store_at(location *l, uint32_t back) {
    return &l->history[(l->stores - 1 - back) % EXPLORE_HISTORY];
}

/* How many of the last stores the thread may see. */
static uint32_t visible(location *l, const thread *t) {
    uint32_t most = l->stores < EXPLORE_HISTORY ? l->stores : EXPLORE_HISTORY, n = 1;
    while (n < most && !known(store_at(l, n - 1), &t->now)) n++;
    return n;
}

/* Which of them it sees: 0 the newest. */
static uint32_t choose_store(location *l, const thread *t) {
    if (is_fresh(t) || l->stores == 1) return 0;
    uint32_t n = visible(l, t);
    if (n == 1) return 0;
    if (x.strategy != EXPLORE_BOUNDED) return draw(2) ? draw(n) : 0;
    uint32_t back = enumerate(n);
    if (back > 0) x.stale_left--;
    return back;
}

static uint64_t see(location *l, uint32_t back, int order, thread *t) {
    store *s = store_at(l, back);
    if (s->seen.at[x.current] > t->now.at[x.current]) s->seen.at[x.current] = t->now.at[x.current];
    if (order & EXPLORE_ACQUIRE) join(&t->now, &s->released);
    return s->value;
}

/* A new store, the newest. `continues`: it replaces the newest as a read-modify-write, and releases what that did. */
static void put(location *l, void *p, size_t size, uint64_t value, int order, int continues, thread *t) {
    times released = {{0}};
    if (continues) released = store_at(l, 0)->released;
    if (order & EXPLORE_RELEASE) join(&released, &t->now);
    if (value != store_at(l, 0)->value) x.changes++;
    l->stores++;
    store *s = store_at(l, 0);
    s->value = value, s->released = released;
    t->wrote = 1;
    memset(&s->seen, NEVER, sizeof s->seen);
    s->seen.at[x.current] = t->now.at[x.current];
    memcpy(p, &value, size);
}

static thread *begin(const explore_site *site) {
    thread *t = &x.threads[x.current];
    t->last = *site;
    return t;
}

/* After a store of its own a thread may be preempted before it loads, because in between others may see the store and
 * change what is loaded. */
static int may_interrupt_load(int order) {
    return x.current >= 0 && (order != EXPLORE_RELAXED || x.threads[x.current].wrote);
}

static void end(thread *t, const explore_site *site, const void *p, uint64_t found, const char *what, uint64_t value) {
    t->now.at[x.current]++; /* what follows is not covered by earlier releases */
    if (!x.trace) return;
    char where[128];
    fprintf(stderr, "  T%d  %-40s %-40.40s +%-6zu %16llx", x.current, place(t, where), site->object,
            (size_t)((const unsigned char *)p - arena), (unsigned long long)found);
    if (what) fprintf(stderr, " %s %llx", what, (unsigned long long)value);
    fputc('\n', stderr);
}

static uint64_t cut(uint64_t value, size_t size) {
    return size == 8 ? value : value & ((UINT64_C(1) << 8 * size) - 1);
}

uint64_t explore_load(const void *p, size_t size, int order, const explore_site *site) {
    if (may_interrupt_load(order)) explore_point();
    location *l = locate(p, size);
    if (!l) return read_raw(p, size);
    thread *t = begin(site);
    uint32_t back = choose_store(l, t);
    uint64_t value = see(l, back, order, t);
    t->wrote = 0;
    end(t, site, p, value, back ? "an old value, now" : NULL, store_at(l, 0)->value);
    return value;
}

void explore_store(void *p, size_t size, uint64_t value, int order, const explore_site *site) {
    explore_point();
    location *l = locate(p, size);
    value = cut(value, size);
    if (!l) {
        memcpy(p, &value, size);
        return;
    }
    thread *t = begin(site);
    uint64_t found = store_at(l, 0)->value;
    put(l, p, size, value, order, 0, t);
    end(t, site, p, found, "->", value);
}

/* All read-modify-writes that cannot fail: new = (found + plus) | with. */
static uint64_t modify(void *p, size_t size, uint64_t plus, uint64_t with, int order, const explore_site *site) {
    explore_point();
    location *l = locate(p, size);
    uint64_t found = l ? store_at(l, 0)->value : read_raw(p, size);
    uint64_t value = cut((found + plus) | with, size);
    if (!l) {
        memcpy(p, &value, size);
        return found;
    }
    thread *t = begin(site);
    see(l, 0, order, t);
    put(l, p, size, value, order, 1, t);
    end(t, site, p, found, "->", value);
    return found;
}

uint64_t explore_add(void *p, size_t size, uint64_t value, int order, const explore_site *site) {
    return modify(p, size, value, 0, order, site);
}

uint64_t explore_or(void *p, size_t size, uint64_t value, int order, const explore_site *site) {
    return modify(p, size, 0, value, order, site);
}

int explore_cas(void *p, size_t size, void *expected, uint64_t value, int order, int failure,
                const explore_site *site) {
    explore_point();
    location *l = locate(p, size);
    uint64_t wanted = read_raw(expected, size), found = l ? store_at(l, 0)->value : read_raw(p, size);
    value = cut(value, size);
    if (!l) {
        memcpy(found == wanted ? p : expected, found == wanted ? &value : &found, size);
        return found == wanted;
    }
    thread *t = begin(site);
    int spurious = !is_fresh(t) && explore_chance(16);
    if (found == wanted && !spurious) {
        see(l, 0, order, t);
        put(l, p, size, value, order, 1, t);
        end(t, site, p, found, "->", value);
        return 1;
    }
    found = see(l, choose_store(l, t), failure, t); /* it was a load */
    t->wrote = 0;
    memcpy(expected, &found, size);
    end(t, site, p, found, "failed: it is not", wanted);
    return 0;
}

/* >>plain memory: the callbacks of the compiler's instrumentation */

static void report_race(const char *what, const void *p, uint32_t other, const void *pc) {
    char here[128], there[128];
    explore_fail("data race: %s, of +%zu at pc %p, after %s; thread %u, which is after %s, is not ordered with it",
                 what, (size_t)((const unsigned char *)p - arena), pc, place(&x.threads[x.current], here), other,
                 place(&x.threads[other], there));
}

static void touch(shadow *s, const void *p, int writes, const void *pc) {
    thread *t = &x.threads[x.current];
    uint32_t me = (uint32_t)x.current;
    if (s->generation != x.generation) *s = (shadow){.generation = x.generation};
    if (s->written > t->now.at[s->writer])
        report_race(writes ? "a write after a write" : "a read after a write", p, s->writer, pc);
    if (!writes) {
        s->read.at[me] = t->now.at[me];
        return;
    }
    for (uint32_t u = 0; u < EXPLORE_THREADS; u++)
        if (s->read.at[u] > t->now.at[u]) report_race("a write after a read", p, u, pc);
    s->writer = me, s->written = t->now.at[me];
    s->read = (times){{0}};
}

static void access_memory(const void *p, size_t size, int writes, const void *pc) {
    size_t offset = (size_t)((const unsigned char *)p - arena);
    if (x.current < 0 || offset >= EXPLORE_ARENA) return; /* stacks and the heap are private */
    if (x.trace)
        fprintf(stderr, "  T%d    %s of %zu at +%zu, pc %p\n", x.current, writes ? "write" : "read", size, offset, pc);
    if (size < 4)
        for (size_t i = 0; i < size; i++) touch(&bytes[offset + i], p, writes, pc);
    else /* no object here is used both as a word and as bytes */
        for (size_t i = offset / 4; i <= (offset + size - 1) / 4; i++) touch(&words[i], p, writes, pc);
}

void *explore_copy(void *to, const void *from, size_t size) {
    if (size == 0) return to;
    access_memory(from, size, 0, __builtin_return_address(0));
    access_memory(to, size, 1, __builtin_return_address(0));
    return memcpy(to, from, size);
}

int explore_compare(const void *a, const void *b, size_t size) {
    if (size == 0) return 0;
    access_memory(a, size, 0, __builtin_return_address(0));
    access_memory(b, size, 0, __builtin_return_address(0));
    return memcmp(a, b, size);
}

#define CALLBACKS(size)                                                                                                \
    void __tsan_read##size(void *p);                                                                                   \
    void __tsan_write##size(void *p);                                                                                  \
    void __tsan_unaligned_read##size(void *p);                                                                         \
    void __tsan_unaligned_write##size(void *p);                                                                        \
    void __tsan_read##size(void *p) {                                                                                  \
        access_memory(p, size, 0, __builtin_return_address(0));                                                        \
    }                                                                                                                  \
    void __tsan_write##size(void *p) {                                                                                 \
        access_memory(p, size, 1, __builtin_return_address(0));                                                        \
    }                                                                                                                  \
    void __tsan_unaligned_read##size(void *p) {                                                                        \
        access_memory(p, size, 0, __builtin_return_address(0));                                                        \
    }                                                                                                                  \
    void __tsan_unaligned_write##size(void *p) {                                                                       \
        access_memory(p, size, 1, __builtin_return_address(0));                                                        \
    }
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)
void __tsan_read_range(void *p, size_t size);
void __tsan_read_range(void *p, size_t size) {
    if (size) access_memory(p, size, 0, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t size);
void __tsan_write_range(void *p, size_t size) {
    if (size) access_memory(p, size, 1, __builtin_return_address(0));
}
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc) {
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* >>running */

void *explore_alloc(size_t size, size_t alignment) {
    arena_used = (arena_used + alignment - 1) / alignment * alignment + size;
    if (arena_used > EXPLORE_ARENA || alignment > 4096) {
        fprintf(stderr, "explore: the scenario needs more than the %d bytes of the arena\n", EXPLORE_ARENA);
        abort();
    }
    return arena + arena_used - size;
}

/* Runs one schedule; 1 if it failed. */
static int run(void) {
    const explore_scenario *s = x.scenario;
    memcpy(arena, image, arena_used);
    x.generation++, n_locations = 0;
    x.operations = 0, x.changes = 1, x.failure[0] = 0, x.lowest = 0;
    for (int i = 0; i < s->threads; i++) {
        thread *t = &x.threads[i];
        coroutine co = t->co;
        *t = (thread){.co = co, .priority = t->priority};
        t->now.at[i] = 1;
        coroutine_make(&t->co, stacks[i], STACK, thread_main, t);
    }
    x.current = pick(1);
    coroutine_switch(&x.main, &x.threads[x.current].co);
    if (!x.failure[0] && s->check) {
        x.checking = 1;
        if (!setjmp(x.check_failed)) s->check();
        x.checking = 0;
    }
    return x.failure[0] != 0;
}

static void set_up(const explore_scenario *scenario, uint64_t variant) {
    x.scenario = scenario;
    memset(arena, 0, sizeof arena);
    arena_used = 0;
    scenario->setup(variant);
    memcpy(image, arena, arena_used);
}

static void begin_enumeration(uint32_t preemptions, uint32_t stale) {
    x.strategy = EXPLORE_BOUNDED;
    x.at_choice = 0, x.preemptions_left = preemptions, x.stale_left = stale;
}

/* Makes the world of a seed, and finds the approximate length of its schedules. */
static int prepare(const explore_scenario *scenario, uint64_t seed) {
    set_up(scenario, seed / VARIANT_SCHEDULES);
    begin_enumeration(0, 0);
    x.n_choices = 0;
    int failed = run();
    x.length = x.operations;
    return failed;
}

static int run_seed(uint64_t seed) {
    x.random = mix(seed * UINT64_C(0x9e3779b97f4a7c15) + 1);
    x.strategy = seed % 2 ? EXPLORE_PCT : EXPLORE_UNIFORM;
    uint32_t depth = 1 + draw(PCT_DEPTH);
    for (int i = 0; i < x.scenario->threads; i++) x.threads[i].priority = PCT_DEPTH + (int64_t)draw(UINT32_C(1) << 30);
    for (uint32_t i = 0; i < PCT_DEPTH; i++) x.change_points[i] = i < depth ? 1 + draw((uint32_t)x.length) : UINT64_MAX;
    return run();
}

static double seconds_since(const struct timespec *began) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)(now.tv_sec - began->tv_sec) + 1e-9 * (double)(now.tv_nsec - began->tv_nsec);
}

static void count(explore_totals *totals, int failed, uint64_t seed) {
    totals->schedules++;
    totals->operations += x.operations;
    if (!failed) return;
    totals->failed_seed = seed;
    memcpy(totals->failure, x.failure, sizeof totals->failure);
}

void explore_random(const explore_scenario *scenario, uint64_t seed, uint64_t n, explore_totals *totals) {
    struct timespec began;
    timespec_get(&began, TIME_UTC);
    *totals = (explore_totals){0};
    for (uint64_t i = seed; i < seed + n && !totals->failure[0]; i++) {
        if (i == seed || i % VARIANT_SCHEDULES == 0)
            if (prepare(scenario, i)) {
                count(totals, 1, i);
                break;
            }
        count(totals, run_seed(i), i);
    }
    totals->seconds = seconds_since(&began);
}

/* Runs the next schedule of an enumeration; 0 if there is none after it. */
static int run_next(uint32_t preemptions, uint32_t stale, explore_totals *totals) {
    begin_enumeration(preemptions, stale);
    count(totals, run(), totals->schedules);
    x.n_choices = x.at_choice;
    while (x.n_choices > 0 && x.choices[x.n_choices - 1].taken + 1 == x.choices[x.n_choices - 1].of) x.n_choices--;
    if (x.n_choices > 0) x.choices[x.n_choices - 1].taken++;
    return x.n_choices > 0;
}

void explore_bounded(const explore_scenario *scenario, uint64_t variant, uint32_t preemptions, uint32_t stale,
                     uint64_t most, explore_totals *totals) {
    struct timespec began;
    timespec_get(&began, TIME_UTC);
    *totals = (explore_totals){0};
    set_up(scenario, variant);
    x.n_choices = 0;
    while (totals->schedules < most && !totals->failure[0] && !totals->exhausted)
        totals->exhausted = !run_next(preemptions, stale, totals);
    totals->seconds = seconds_since(&began);
}

void explore_replay_bounded(const explore_scenario *scenario, uint64_t variant, uint32_t preemptions, uint32_t stale,
                            uint64_t number, explore_totals *totals) {
    explore_bounded(scenario, variant, preemptions, stale, number, totals);
    if (totals->failure[0] || totals->exhausted) return;
    x.trace = 1;
    run_next(preemptions, stale, totals);
    x.trace = 0;
}

void explore_replay(const explore_scenario *scenario, uint64_t seed, explore_totals *totals) {
    *totals = (explore_totals){0};
    int failed = prepare(scenario, seed);
    x.trace = 1; /* if already the first schedule of the world fails, runs that one again */
    count(totals, failed ? prepare(scenario, seed) : run_seed(seed), seed);
    x.trace = 0;
}
