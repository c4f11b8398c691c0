/* memory.c - memory from the caller's allocator, or ours: huge pages for large blocks. All of it is zeroed. */
#include "host.h"

#define FRUGAL_PRIV_HUGE (UINT64_C(2) << 20)

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

void *frugal_allocate(frugal *f, size_t bytes, size_t alignment) {
    return frugal_priv_allocate(&f->desc, bytes, alignment);
}

void frugal_free(frugal *f, void *memory, size_t bytes) {
    frugal_priv_release(&f->desc, memory, bytes);
}
