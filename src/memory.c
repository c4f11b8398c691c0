/* memory.c - memory from the caller's allocator, or from ours, with huge pages for large blocks. All memory is
 * zeroed. */
#include "host.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

/* Rounds up to whole pages: memory that a device may pin shares no page with anything else. */
static size_t whole_pages(size_t bytes) {
    return (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
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

static void ask_for_huge_pages(void *memory, size_t whole) {
#if defined(MADV_HUGEPAGE)
    madvise(memory, whole, MADV_HUGEPAGE); /* may fail: small pages are only slower */
#else
    (void)memory, (void)whole;
#endif
}

/* Large blocks come from mmap, on huge pages where the system has them: a random row then costs no page walk. */
static void *map_pages(size_t bytes, size_t alignment) {
    size_t unit = alignment > HUGE_PAGE ? alignment : HUGE_PAGE;
    if (bytes > SIZE_MAX - 2 * unit) return NULL;
    size_t whole = whole_pages(bytes);
    void *memory = map_aligned(whole, unit, PROT_READ | PROT_WRITE);
    if (memory) ask_for_huge_pages(memory, whole);
    return memory;
}

static int is_mapped(size_t bytes) {
    return bytes >= HUGE_PAGE / 2;
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

void *frugal_allocate(frugal *f, size_t bytes, size_t alignment) {
    return f ? allocate_memory(&f->desc, bytes, alignment) : NULL;
}

void frugal_free(frugal *f, void *memory, size_t bytes) {
    if (f) release_memory(&f->desc, memory, bytes);
}
