/* memory.c - memory from the caller's allocator, or from ours, with huge pages for large blocks. All memory is
 * zeroed. Blocks of whole pages are an instance's alone: a forked child does not have them. */
#include "host.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

#ifndef LEAST_PAGE /* tests whose memory is small, and their own, set it */
#define LEAST_PAGE 65536
#endif

/* What mappings are aligned to, and their lengths are multiples of. Not less than 64 KiB where pages are smaller: so
 * layouts are the same on all systems, and what only a system with large pages refuses is never asked for. */
static size_t page_unit(void) {
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > LEAST_PAGE ? (size_t)bytes : LEAST_PAGE;
}

/* Rounds up to whole pages: memory that a device may pin shares no page with anything else. */
static size_t whole_pages(size_t bytes) {
    size_t unit = page_unit();
    return (bytes + unit - 1) / unit * unit;
}

/* Leaves the pages out of processes that this one forks. Otherwise each page that a step writes would be copied while a
 * child lives, even if the child never reads it, and fork would copy all pages that a device has pinned. */
static void keep_from_children(void *memory, size_t bytes) {
#if defined(MADV_DONTFORK)
    madvise(memory, bytes, MADV_DONTFORK); /* may fail: children only cost memory then */
#else
    (void)memory, (void)bytes;
#endif
}

/* Fresh pages, `whole` bytes from a multiple of `unit` on. Returns NULL if there are none. */
static unsigned char *map_aligned(size_t whole, size_t unit, int protection) {
    unsigned char *memory = mmap(NULL, whole + unit, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = (unit - (uintptr_t)memory % unit) % unit;
    if (before) munmap(memory, before);
    munmap(memory + before + whole, unit - before);
    return memory + before;
}

static int is_large(size_t bytes) {
    return bytes >= HUGE_PAGE / 2;
}

static void ask_for_huge_pages(void *memory, size_t whole) {
#if defined(MADV_HUGEPAGE)
    madvise(memory, whole, MADV_HUGEPAGE); /* may fail: small pages are only slower */
#else
    (void)memory, (void)whole;
#endif
}

/* Large blocks come from mmap, on huge pages where the system has them: a random row then costs no page walk. */
static void *map_pages(size_t bytes, size_t alignment) {
    size_t least = is_large(bytes) ? HUGE_PAGE : page_unit(), unit = alignment > least ? alignment : least;
    if (bytes > SIZE_MAX - 2 * unit) return NULL;
    size_t whole = whole_pages(bytes);
    void *memory = map_aligned(whole, unit, PROT_READ | PROT_WRITE);
    if (memory && is_large(bytes)) ask_for_huge_pages(memory, whole);
    return memory;
}

/* Do blocks of this size come from mmap? Large ones do, and whole pages, which are then no part of a heap. */
static int is_mapped(size_t bytes) {
    return is_large(bytes) || (bytes > 0 && bytes % page_unit() == 0);
}

static void *allocate_memory(const frugal_desc *desc, size_t bytes, size_t alignment) {
    void *memory = NULL;
    if (!desc->allocate && is_mapped(bytes)) return map_pages(bytes, alignment);
    if (desc->allocate)
        memory = desc->allocate(bytes, alignment, desc->user);
    else if (posix_memalign(&memory, alignment, bytes))
        memory = NULL;
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static void release_memory(const frugal_desc *desc, void *memory, size_t bytes) {
    if (!memory) return;
    if (desc->allocate) {
        if (desc->release) desc->release(memory, bytes, desc->user);
    } else if (is_mapped(bytes))
        munmap(memory, whole_pages(bytes));
    else
        free(memory);
}

/* For devices, too. A version that is served has no process: nothing writes it, and children may read it. */
void *frugal_allocate(frugal *f, size_t bytes, size_t alignment) {
    void *memory = f ? allocate_memory(&f->desc, bytes, alignment) : NULL;
    if (memory && f->process && !f->desc.allocate && is_mapped(bytes)) keep_from_children(memory, whole_pages(bytes));
    return memory;
}

void frugal_free(frugal *f, void *memory, size_t bytes) {
    if (f) release_memory(&f->desc, memory, bytes);
}
