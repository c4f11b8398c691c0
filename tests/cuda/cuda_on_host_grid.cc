/* cuda_on_host_grid.cc - runs the blocks and threads of a kernel as coroutines, and checks what they do
 * (cuda_on_host.h).
 *
 * ThreadSanitizer must not see this file: what it touches on behalf of CUDA threads would look like races of theirs. It
 * is compiled without, and announces by hand which thread has seen what. Containers hold types of this file only, so
 * that no function of theirs is shared with files that are compiled with it. */
#include "cuda_on_host_grid.h"

extern "C" {
#include "../coroutine.h"
}

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern "C" { /* the sanitizers' runtimes, where one is linked */
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *saved, const void **bottom, size_t *bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
__attribute__((weak)) void *__tsan_get_current_fiber(void);
__attribute__((weak)) void *__tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_switch_to_fiber(void *fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void *p);
__attribute__((weak)) void __tsan_release(void *p);
}

#define UNINSTRUMENTED __attribute__((no_sanitize_address))

namespace cuda_on_host {

__thread lane *current;
std::atomic<void (*)(const char *)> on_failure;

namespace {

enum { WARP = 32, MAX_THREADS = 1024, TSAN_FIBERS = 128, TSAN_NO_SYNC = 1 };
#ifdef FRUGAL_SANITIZED
constexpr size_t STACK = 256 << 10;
#else
constexpr size_t STACK = 64 << 10;
#endif
constexpr size_t GUARD = 4096;
enum lane_progress : uint8_t { NEW, READY, AT_BARRIER, AT_WARP, DONE };

struct executor;
struct block;

struct fiber { /* a stack, on which CUDA threads run one after another */
    coroutine co;
    char *stack;
    executor *owner;
    struct thread *running;
    void *tsan;
};

struct warp {
    uint64_t brought[2][WARP]; /* to a warp operation; the next one uses the other half */
    warp_operation operation;
    place at;         /* where the first lane waits */
    unsigned arrived; /* lanes that wait */
    unsigned done;
    unsigned turn;  /* operations passed */
    uint32_t epoch; /* __syncwarps passed */
    char order[2];  /* addresses, to ThreadSanitizer, of the order that __syncwarp makes */
};

struct thread : lane {
    block *in;
    warp *of;
    fiber *on;
    lane_progress progress;
};

struct array { /* shared memory of a site, kept for the next block that runs here */
    const void *site;
    const char *name;
    char *memory;
    size_t n, element_bytes;
};

struct block {
    thread threads[MAX_THREADS];
    warp warps[MAX_THREADS / WARP];
    unsigned size, at_barrier, done;
    place barrier_at;
    uint32_t run;   /* tells this run of a block from all others here */
    uint32_t epoch; /* barriers passed */
    char order[2];  /* as a warp's */
    bool votes[2];  /* brought to a barrier; the next one uses the other */
    array *arrays;
    size_t n_arrays, used; /* the first `used` have been declared in this run */
};

enum { MAX_ARRAYS = 256, MAX_RESIDENT = 64 };

uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Runs one kernel at a time. Kept in a list when it is idle. */
struct executor {
    executor *next;
    const kernel *k;
    schedule plan;
    uint64_t random;
    unsigned countdown; /* atomics to the next switch */
    coroutine main;
    const void *main_stack; /* NULL: no fiber has run in this grid; known to AddressSanitizer alone */
    size_t main_bytes;
    void *main_fake_stack, *main_tsan;
    void *fake_stack; /* AddressSanitizer's, of all fibers: one for each would soon be gigabytes */
    block *blocks[MAX_RESIDENT];
    bool busy[MAX_RESIDENT];
    uint32_t runs;
    thread *ready[MAX_RESIDENT * MAX_THREADS];
    unsigned n_ready;
    /* A stack: the last is warm. With ThreadSanitizer a queue, so that neighbours are not one thread to it. */
    fiber *idle[MAX_RESIDENT * MAX_THREADS];
    unsigned n_idle, idle_first, n_fibers;
    void *tsan_fibers[TSAN_FIBERS];
    unsigned *pending; /* blocks that have not begun */
    size_t n_pending;
    char begun, ended; /* addresses: the order that the beginning and the end of a kernel make */

    unsigned below(unsigned n) {
        random += 0x9e3779b97f4a7c15u;
        return static_cast<unsigned>((mix(random) >> 32) * n >> 32);
    }
};

__thread place named; /* a shared element, last */

/* Not inlined: an executor may go on in another thread of the system, where these lie elsewhere. */
__attribute__((noinline)) void set_current(lane *l) {
    current = l;
}

thread *self() {
    return static_cast<thread *>(current);
}

void acquire(void *p) {
    if (__tsan_acquire) __tsan_acquire(p);
}
void release(void *p) {
    if (__tsan_release) __tsan_release(p);
}

} // namespace

/* >>failures */
void fail(place at, const char *format, ...) {
    char message[1024];
    int n = 0;
    const thread *t = self();
    if (t)
        n = snprintf(message, sizeof message,
                     "%s<<<%u, %u>>> launched at %s:%d, block %u, thread %u: ", t->on->owner->k->name, t->blocks.x,
                     t->threads.x, t->on->owner->k->at.file, t->on->owner->k->at.line, t->block_id.x, t->thread_id.x);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(message + n, sizeof message - static_cast<size_t>(n), format, arguments);
    va_end(arguments);
    if (n < static_cast<int>(sizeof message) && at.file)
        snprintf(message + n, sizeof message - static_cast<size_t>(n), " (%s:%d)", at.file, at.line);
    if (auto report = on_failure.load()) report(message);
    fflush(stdout);
    fprintf(stderr, "cuda_on_host: %s\ncuda_on_host: FRUGAL_CUDA_SEED=%llu\n", message,
            static_cast<unsigned long long>(cuda_on_host_seed()));
    syscall(SYS_exit_group, 98); /* ThreadSanitizer's _exit would wait for a second */
    abort();
}

namespace {

/* >>coroutines */
/* Not instrumented, as run_threads: where a fiber is idle, none of its frames may lie in the fake stack. */
UNINSTRUMENTED void switch_to_main(fiber *f) {
    executor *e = f->owner;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&e->fake_stack, e->main_stack, e->main_bytes);
    if (f->tsan) __tsan_switch_to_fiber(e->main_tsan, TSAN_NO_SYNC);
    coroutine_switch(&f->co, &e->main);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(e->fake_stack, &e->main_stack, &e->main_bytes);
}

void switch_to_fiber(executor *e, fiber *f) {
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&e->main_fake_stack, f->stack + GUARD, STACK - GUARD);
    if (f->tsan) __tsan_switch_to_fiber(f->tsan, TSAN_NO_SYNC);
    coroutine_switch(&e->main, &f->co);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(e->main_fake_stack, nullptr, nullptr);
}

void finish(thread *t);

UNINSTRUMENTED void run_threads(void *argument) {
    fiber *f = static_cast<fiber *>(argument);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(f->owner->fake_stack, &f->owner->main_stack, &f->owner->main_bytes);
    for (;;) {
        acquire(&f->owner->begun);
        f->owner->k->thread();
        finish(f->running);
        release(&f->owner->ended);
        switch_to_main(f);
    }
}

/* Some bytes apart, or the tops of all stacks would compete for the same lines of the caches. */
void prepare(fiber *f, unsigned number) {
    coroutine_make(&f->co, f->stack + GUARD, STACK - GUARD - (number % 32) * 192, run_threads, f);
}

fiber *new_fiber(executor *e) {
    fiber *f = static_cast<fiber *>(calloc(1, sizeof *f));
    void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!f || stack == MAP_FAILED || mprotect(stack, GUARD, PROT_NONE) != 0) fail({nullptr, 0}, "no memory for stacks");
    f->stack = static_cast<char *>(stack), f->owner = e;
    if (__tsan_create_fiber) {
        void *&tsan = e->tsan_fibers[e->n_fibers % TSAN_FIBERS];
        if (!tsan) tsan = __tsan_create_fiber(0);
        f->tsan = tsan;
    }
    prepare(f, e->n_fibers++);
    return f;
}

fiber *take_fiber(executor *e, unsigned wanted) {
    if (!__tsan_create_fiber) return e->n_idle ? e->idle[--e->n_idle] : new_fiber(e);
    if (e->n_idle < wanted && e->n_fibers < TSAN_FIBERS) return new_fiber(e);
    if (e->n_idle == 0) return new_fiber(e);
    fiber *f = e->idle[e->idle_first++ % (MAX_RESIDENT * MAX_THREADS)];
    e->n_idle--;
    return f;
}

void give_fiber(executor *e, fiber *f) {
    f->running = nullptr;
    if (!__tsan_create_fiber)
        e->idle[e->n_idle++] = f;
    else
        e->idle[(e->idle_first + e->n_idle++) % (MAX_RESIDENT * MAX_THREADS)] = f;
}

/* >>threads and warps */
void make_ready(thread *t) {
    executor *e = t->on->owner;
    t->progress = READY;
    e->ready[e->n_ready++] = t;
}

void wait(thread *t, lane_progress why) {
    t->progress = why;
    switch_to_main(t->on);
}

void refuse_finished(thread *t, place at, const char *what) {
    if (t->of->done)
        fail(at, "%s, which %u of the warp's threads have not reached: they have finished", what, t->of->done);
}

/* To the block that uses it next. */
void show_shared_memory(const block *b) {
    for (size_t i = 0; i < b->used; i++) release(b->arrays[i].memory);
}

void finish(thread *t) {
    block *b = t->in;
    if (b->at_barrier) fail(b->barrier_at, "finished, while %u threads of the block wait at a barrier", b->at_barrier);
    if (t->of->arrived)
        fail(t->of->at, "finished, while %u lanes of its warp wait at a warp operation", t->of->arrived);
    show_shared_memory(b);
    t->progress = DONE;
    t->of->done++, b->done++;
}

/* >>blocks */
void begin_block(executor *e, unsigned slot, unsigned number) {
    if (!e->blocks[slot]) {
        if (!(e->blocks[slot] = static_cast<block *>(calloc(1, sizeof(block))))) abort();
        release(&e->begun);
    }
    block *b = e->blocks[slot];
    e->busy[slot] = true;
    b->size = e->k->block.x;
    b->at_barrier = b->done = 0;
    b->votes[0] = b->votes[1] = false;
    b->run = ++e->runs;
    b->epoch = 0;
    b->used = 0;
    for (unsigned w = 0; w < b->size / WARP; w++) {
        warp *of = &b->warps[w];
        of->arrived = of->done = of->turn = 0;
        of->epoch = 0;
    }
    for (unsigned i = 0; i < b->size; i++) {
        thread *t = &b->threads[i];
        t->thread_id = {i, 0, 0}, t->block_id = {number, 0, 0};
        t->threads = e->k->block, t->blocks = e->k->grid;
        t->in = b, t->of = &b->warps[i / WARP], t->on = nullptr, t->progress = NEW;
        e->ready[e->n_ready++] = t;
    }
}

void admit(executor *e) {
    for (unsigned slot = 0; slot < e->plan.resident && e->n_pending; slot++) {
        if (e->busy[slot]) continue;
        size_t i = e->below(static_cast<unsigned>(e->n_pending));
        unsigned number = e->pending[i];
        e->pending[i] = e->pending[--e->n_pending];
        begin_block(e, slot, number);
    }
}

bool resume(executor *e, thread *t) { /* true: its block has ended */
    if (!t->on) {
        t->on = take_fiber(e, TSAN_FIBERS / 2);
        t->on->running = t;
    }
    fiber *f = t->on;
    set_current(t);
    switch_to_fiber(e, f);
    set_current(nullptr);
    if (t->progress != DONE) return false;
    give_fiber(e, f);
    if (t->in->done < t->in->size) return false;
    for (unsigned slot = 0; slot < e->plan.resident; slot++)
        if (e->blocks[slot] == t->in) e->busy[slot] = false;
    return true;
}

/* As if it had ended, where it stands. */
void abandon(executor *e, thread *t) {
    fiber *f = t->on;
    if (f->tsan) {
        __tsan_switch_to_fiber(f->tsan, TSAN_NO_SYNC);
        show_shared_memory(t->in);
        release(&e->ended);
        __tsan_switch_to_fiber(e->main_tsan, TSAN_NO_SYNC);
    }
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(f->stack + GUARD, STACK - GUARD);
    prepare(f, 0);
    give_fiber(e, f);
}

/* Frames of abandoned threads would fill it. */
void forget_fake_stack(executor *e) {
    if (!e->fake_stack || !e->main_stack) return;
    __sanitizer_start_switch_fiber(&e->main_fake_stack, e->main_stack, e->main_bytes);
    __sanitizer_finish_switch_fiber(e->fake_stack, nullptr, nullptr);
    __sanitizer_start_switch_fiber(nullptr, e->main_stack, e->main_bytes); /* NULL: it is destroyed */
    __sanitizer_finish_switch_fiber(e->main_fake_stack, nullptr, nullptr);
    e->fake_stack = nullptr;
}

/* The device is lost. */
void abandon(executor *e) {
    for (unsigned slot = 0; slot < e->plan.resident; slot++) {
        for (unsigned i = 0; e->busy[slot] && i < e->blocks[slot]->size; i++) {
            thread *t = &e->blocks[slot]->threads[i];
            if (t->progress != DONE && t->on) abandon(e, t);
        }
        e->busy[slot] = false;
    }
    e->n_ready = 0;
    forget_fake_stack(e);
}

void begin_grid(executor *e, const kernel &k, const schedule &s) {
    e->k = &k, e->plan = s, e->main_stack = nullptr;
    if (e->plan.resident > MAX_RESIDENT) e->plan.resident = MAX_RESIDENT;
    if (e->plan.resident > k.grid.x) e->plan.resident = k.grid.x;
    e->random = mix(s.seed);
    e->countdown = s.every ? 1 + e->below(2 * s.every) : 0;
    e->main_tsan = __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr;
    if (!(e->pending = static_cast<unsigned *>(malloc(k.grid.x * sizeof *e->pending)))) abort();
    for (unsigned i = 0; i < k.grid.x; i++) e->pending[i] = i;
    e->n_pending = k.grid.x;
    release(&e->begun);
}

/* No mutex: ThreadSanitizer would take it for an order of kernels of different streams. */
int idle_lock;
executor *idle_executors;

executor *exchange_idle(executor *given) { /* NULL: takes one */
    while (__atomic_exchange_n(&idle_lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
    executor *e = given ? given : idle_executors;
    if (given)
        given->next = idle_executors, idle_executors = given;
    else if (e)
        idle_executors = e->next;
    __atomic_store_n(&idle_lock, 0, __ATOMIC_RELEASE);
    return e;
}

} // namespace

void run_grid(const kernel &k, const schedule &s) {
    executor *e = exchange_idle(nullptr);
    if (!e && !(e = static_cast<executor *>(calloc(1, sizeof *e)))) abort();
    begin_grid(e, k, s);
    admit(e);
    while (e->n_ready) {
        if (s.lost->load(std::memory_order_relaxed)) {
            abandon(e);
            break;
        }
        unsigned i = e->below(e->n_ready);
        thread *t = e->ready[i];
        e->ready[i] = e->ready[--e->n_ready];
        if (resume(e, t)) admit(e);
    }
    acquire(&e->ended);
    free(e->pending);
    exchange_idle(e);
}

/* >>waiting. A divergence is found by whoever comes second, so that somebody can always run: no thread waits for one
 * that will not come. */
void barrier(place at) {
    thread *t = self();
    if (!t) fail(at, "__syncthreads on the host");
    block *b = t->in;
    if (b->done) fail(at, "__syncthreads, which %u threads of the block have not reached: they have finished", b->done);
    if (t->of->arrived)
        fail(at, "__syncthreads, while lanes of the warp wait at a warp operation of %s:%d", t->of->at.file,
             t->of->at.line);
    if (b->at_barrier && (b->barrier_at.line != at.line || b->barrier_at.file != at.file))
        fail(at, "__syncthreads, while %u threads of the block wait at that of %s:%d", b->at_barrier,
             b->barrier_at.file, b->barrier_at.line);
    b->barrier_at = at;
    char *order = &b->order[b->epoch % 2];
    release(order);
    if (++b->at_barrier < b->size) {
        wait(t, AT_BARRIER);
    } else {
        b->at_barrier = 0;
        b->epoch++;
        b->votes[b->epoch % 2] = false; /* all have read it: they are here */
        for (unsigned i = 0; i < b->size; i++)
            if (i != t->thread_id.x) make_ready(&b->threads[i]);
    }
    acquire(order);
}

bool barrier_or(place at, bool predicate) {
    thread *t = self();
    if (!t) fail(at, "__syncthreads_or on the host");
    bool *vote = &t->in->votes[t->in->epoch % 2];
    *vote |= predicate;
    barrier(at);
    return *vote;
}

static void refuse_divergent(thread *t, warp_operation operation, unsigned mask, place at) {
    static const char *const names[] = {"__syncwarp", "a vote", "a shuffle", "a match"};
    warp *w = t->of;
    if (mask != 0xffffffffu) fail(at, "%s with mask 0x%x: only 0xffffffff is emulated", names[operation], mask);
    refuse_finished(t, at, names[operation]);
    if (w->arrived && (w->operation != operation || w->at.line != at.line || w->at.file != at.file))
        fail(at, "%s, while %u lanes of the warp wait at %s of %s:%d", names[operation], w->arrived,
             names[w->operation], w->at.file, w->at.line);
    const thread *first = &t->in->threads[t->thread_id.x / WARP * WARP];
    for (unsigned i = 0; t->in->at_barrier && i < WARP; i++)
        if (first[i].progress == AT_BARRIER)
            fail(at, "%s, while lane %u of the warp waits at the __syncthreads of %s:%d", names[operation], i,
                 t->in->barrier_at.file, t->in->barrier_at.line);
}

const uint64_t *warp_exchange(warp_operation operation, unsigned mask, uint64_t value, place at) {
    thread *t = self();
    if (!t) fail(at, "a warp operation on the host");
    refuse_divergent(t, operation, mask, at);
    warp *w = t->of;
    uint64_t *brought = w->brought[w->turn % 2];
    char *order = operation == WARP_SYNC ? &w->order[w->epoch % 2] : nullptr;
    w->operation = operation, w->at = at;
    brought[t->thread_id.x % WARP] = value;
    if (order) release(order);
    if (++w->arrived < WARP) {
        wait(t, AT_WARP);
    } else {
        w->arrived = 0;
        w->turn++;
        if (order) w->epoch++;
        thread *first = &t->in->threads[t->thread_id.x / WARP * WARP];
        for (unsigned i = 0; i < WARP; i++)
            if (i != t->thread_id.x % WARP) make_ready(&first[i]);
    }
    if (order) acquire(order);
    return brought;
}

void switch_now() {
    thread *t = self();
    if (!t) fail({nullptr, 0}, "__nanosleep on the host");
    if (t->on->owner->n_ready == 0) sched_yield(); /* what it waits for is not of this kernel */
    make_ready(t);
    switch_to_main(t->on);
}

void switch_at_atomic() {
    thread *t = self();
    if (!t) return;
    executor *e = t->on->owner;
    if (!e->plan.every || --e->countdown) return;
    e->countdown = 1 + e->below(2 * e->plan.every);
    switch_now();
}

bool fails_weakly() {
    thread *t = self();
    return t && t->on->owner->below(8) == 0;
}

void fence() {
#if defined(__x86_64__)
    __asm__ volatile("mfence" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/* >>shared memory */
void *shared_memory(const void *site, const char *name, size_t n, size_t element_bytes) {
    thread *t = self();
    if (!t) fail({nullptr, 0}, "shared %s on the host", name);
    block *b = t->in;
    size_t i = 0;
    while (i < b->n_arrays && b->arrays[i].site != site) i++;
    if (i == b->n_arrays) {
        if (!b->arrays) b->arrays = static_cast<array *>(calloc(MAX_ARRAYS, sizeof(array)));
        if (i == MAX_ARRAYS) fail({nullptr, 0}, "shared %s is the array number %zu: raise MAX_ARRAYS", name, i + 1);
        b->arrays[i] = {site, name, static_cast<char *>(calloc(n, element_bytes)), n, element_bytes};
        b->n_arrays++;
        release(b->arrays[i].memory);
    }
    if (i >= b->used) { /* to the front, where those of this kernel are found fast */
        array found = b->arrays[i];
        b->arrays[i] = b->arrays[b->used];
        b->arrays[i = b->used++] = found;
    }
    acquire(b->arrays[i].memory);
    return b->arrays[i].memory;
}

namespace {

enum { NOBODY, ONE, WARP_MATES, MANY };

/* Whether the accesses told by who, of the threads `how`, need no more order before that of `t`. */
bool ordered(const thread *t, uint8_t how, uint16_t who, uint32_t warp_epoch) {
    if (how == NOBODY) return true;
    if (how == ONE && who == t->thread_id.x) return true;
    return how != MANY && who / WARP == t->thread_id.x / WARP && warp_epoch < t->of->epoch;
}

/* One more thread has touched it in this stretch. */
void count(const thread *t, uint8_t &how, uint16_t &who, uint32_t &warp_epoch) {
    if (how == NOBODY || ordered(t, how, who, warp_epoch))
        how = ONE;
    else if (how == MANY || who / WARP != t->thread_id.x / WARP)
        how = MANY;
    else
        how = WARP_MATES;
    who = static_cast<uint16_t>(t->thread_id.x), warp_epoch = t->of->epoch;
}

[[noreturn]] void refuse(const thread *t, const shared_state *s, const char *did, const char *before, uint16_t who) {
    const char *p = reinterpret_cast<const char *>(s);
    for (size_t i = 0; i < t->in->used; i++) {
        const array *a = &t->in->arrays[i];
        if (p < a->memory || p >= a->memory + a->n * a->element_bytes) continue;
        size_t index = static_cast<size_t>(p - a->memory) / a->element_bytes;
        if (!before) fail(named, "%s shared %s[%zu], which nobody has written", did, a->name, index);
        fail(named, "%s shared %s[%zu], which thread %u has %s, and no barrier between", did, a->name, index, who,
             before);
    }
    fail(named, "%s shared memory of another kernel or block", did);
}

} // namespace

void subscripted(place at) {
    named = at;
}

void touch(shared_state *s, shared_access access) {
    const thread *t = self();
    if (!t) fail(named, "shared memory on the host");
    bool fresh = s->block != t->in->run;
    if (fresh || s->epoch != t->in->epoch) {
        s->written = s->read = NOBODY;
        s->atomic = false;
        s->epoch = t->in->epoch;
    }
    bool atomic = access >= SHARED_ATOMIC_READ, reads = access != SHARED_WRITE && access != SHARED_ATOMIC_WRITE;
    if (fresh && reads) refuse(t, s, "reads", nullptr, 0);
    const char *did = atomic ? "accesses by an atomic" : reads ? "reads" : "writes";
    if (!(atomic && s->atomic) && !ordered(t, s->written, s->writer, s->write_warp_epoch))
        refuse(t, s, did, "written", s->writer);
    if (access == SHARED_READ) {
        count(t, s->read, s->reader, s->read_warp_epoch);
        return;
    }
    if (!ordered(t, s->read, s->reader, s->read_warp_epoch)) refuse(t, s, did, "read", s->reader);
    s->read = NOBODY;
    if (!atomic) s->written = NOBODY;
    count(t, s->written, s->writer, s->write_warp_epoch);
    s->atomic = atomic;
    s->block = t->in->run;
}

} // namespace cuda_on_host
