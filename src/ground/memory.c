/* memory.c - memory from the caller's allocator, or from ours, with huge pages for large blocks; on which pages memory
 * lies. All memory is zeroed. Blocks of whole pages are an instance's alone: a forked child does not have them. */
#include "ground.h"

#ifndef LEAST_PAGE /* tests whose memory is small, and their own, set it */
#define LEAST_PAGE 65536
#endif

/* What mappings are aligned to, and their lengths are multiples of. Not less than 64 KiB where pages are smaller: so
 * layouts are the same on all systems, and what only a system with large pages refuses is never asked for. */
FRUGAL_INTERNAL size_t page_unit(void) {
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > LEAST_PAGE ? (size_t)bytes : LEAST_PAGE;
}

/* Rounds up to whole pages: memory that a device may pin shares no page with anything else. */
FRUGAL_INTERNAL size_t whole_pages(size_t bytes) {
    size_t unit = page_unit();
    return (bytes + unit - 1) / unit * unit;
}

/* Leaves the pages out of processes that this one forks. Otherwise each page that a step writes would be copied while a
 * child lives, even if the child never reads it, and fork would copy all pages that a device has pinned. */
FRUGAL_INTERNAL void keep_from_children(void *memory, size_t bytes) {
#if defined(MADV_DONTFORK)
    madvise(memory, bytes, MADV_DONTFORK); /* may fail: children only cost memory then */
#else
    (void)memory, (void)bytes;
#endif
}

/* Fresh pages, `whole` bytes from a multiple of `unit` on. Returns NULL if there are none. */
FRUGAL_INTERNAL unsigned char *map_aligned(size_t whole, size_t unit, int protection) {
    unsigned char *memory = mmap(NULL, whole + unit, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = (unit - (uintptr_t)memory % unit) % unit;
    if (before) munmap(memory, before);
    munmap(memory + before + whole, unit - before);
    return memory + before;
}

FRUGAL_INTERNAL int is_large(size_t bytes) {
    return bytes >= HUGE_PAGE / 2;
}

FRUGAL_INTERNAL void ask_for_huge_pages(void *memory, size_t whole) {
#if defined(MADV_HUGEPAGE)
    madvise(memory, whole, MADV_HUGEPAGE); /* may fail: read_page_sizes finds out */
#else
    (void)memory, (void)whole;
#endif
}

/* The bytes of [from, end) that lie in the parts, as a share of it: the system may join mappings that touch. */
static double share_of_parts(const frugal_memory *parts, uint32_t n, uint64_t from, uint64_t end) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = (uintptr_t)parts[i].start, low = start > from ? start : from;
        uint64_t high = LEAST(start + parts[i].bytes, end);
        if (high > low) bytes += high - low;
    }
    return end > from ? (double)bytes / (double)(end - from) : 0;
}

/* What the large ones among the parts got of what was asked for. The system counts all pages of this process, so it
 * takes time. */
FRUGAL_INTERNAL page_sizes read_page_sizes(const frugal_memory *parts, uint32_t n) {
    static const struct {
        const char *name;
        int is_resident, is_huge;
    } fields[] = {{"Rss:", 1, 0},           {"AnonHugePages:", 0, 1},   {"ShmemPmdMapped:", 0, 1},
                  {"FilePmdMapped:", 0, 1}, {"Private_Hugetlb:", 1, 1}, {"Shared_Hugetlb:", 1, 1}};
    page_sizes sizes = {0, 0};
    frugal_memory large[4];
    uint32_t n_large = 0;
    for (uint32_t i = 0; i < n && n_large < 4; i++)
        if (is_large(parts[i].bytes)) large[n_large++] = parts[i];
    FILE *in = n_large ? fopen("/proc/self/smaps", "re") : NULL;
    char line[8192], name[32];
    double share = 0; /* of the mapping whose lines are read */
    while (in && fgets(line, sizeof line, in)) {
        unsigned long long from, end, kib;
        if (sscanf(line, "%llx-%llx ", &from, &end) == 2)
            share = share_of_parts(large, n_large, from, end);
        else if (share > 0 && sscanf(line, "%31s %llu kB", name, &kib) == 2)
            for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
                uint64_t bytes = strcmp(name, fields[i].name) ? 0 : (uint64_t)(share * 1024 * (double)kib);
                sizes.resident += fields[i].is_resident ? bytes : 0, sizes.huge += fields[i].is_huge ? bytes : 0;
            }
    }
    if (in) fclose(in);
    return sizes;
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

FRUGAL_INTERNAL void *allocate_memory(const frugal_desc *desc, size_t bytes, size_t alignment) {
    void *memory = NULL;
    if (!desc->allocate && is_mapped(bytes)) return map_pages(bytes, alignment);
    if (desc->allocate)
        memory = desc->allocate(bytes, alignment, desc->user);
    else if (posix_memalign(&memory, alignment, bytes))
        memory = NULL;
    if (memory) memset(memory, 0, bytes);
    return memory;
}

FRUGAL_INTERNAL void release_memory(const frugal_desc *desc, void *memory, size_t bytes) {
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
    if (!f || (frugal_load_relaxed(&f->pages.stay) && is_mapped(bytes))) return; /* the pages stay */
    release_memory(&f->desc, memory, bytes);
}
