/* region.c - memory that several processes share: a file without a name (memfd), in parts.
 *
 * Nothing is left behind, however the processes end, because the system frees the file with its last descriptor and its
 * last mapping. The size of /dev/shm does not limit it. Each process maps the parts that it needs, wherever it has
 * room. An instance that no process can join has no region: the same calls then give private memory.
 */
#include "ground.h"

FRUGAL_INTERNAL frugal_status fail_unsupported(const char *call) {
    return frugal_fail(FRUGAL_ERR_PROCESS,
                       "%s: several processes need Linux, and the library without FRUGAL_NO_PROCESSES; leave "
                       "frugal_desc.name NULL here",
                       call);
}

/* Makes an empty file in memory, without a name. It never gets shorter, so no process that shares it can end the others
 * by SIGBUS. -1: it cannot be made, and errno says why (ENOSYS: the system has no such files). */
FRUGAL_INTERNAL int make_memory_file(const char *name) {
#if defined(__linux__)
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0) fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL); /* may fail: it is only a guard */
    return file;
#else
    (void)name;
    errno = ENOSYS;
    return -1;
#endif
}

/* Maps a part of a file, large parts as memory.c does. A part need not begin with a page. `protection`: PROT_READ for
 * what this process only reads, so that a stray write ends it and leaves the others alone. Returns NULL if it cannot be
 * mapped. */
FRUGAL_INTERNAL void *map_part(int file, memory_part part, int protection) {
    size_t before = (size_t)(part.at % page_unit()), whole = whole_pages(before + (size_t)part.bytes);
    size_t unit = is_large((size_t)part.bytes) ? HUGE_PAGE : page_unit();
    unsigned char *room = map_aligned(whole, unit, PROT_NONE);
    if (!room) return NULL;
    void *memory = mmap(room, whole, protection, MAP_SHARED | MAP_FIXED, file, (off_t)(part.at - before));
    if (memory == MAP_FAILED) {
        munmap(room, whole);
        return NULL;
    }
    if (is_large((size_t)part.bytes)) ask_for_huge_pages(room, whole);
    return room + before;
}

FRUGAL_INTERNAL void unmap_part(void *memory, uint64_t bytes) {
    size_t before = (uintptr_t)memory % page_unit();
    if (memory) munmap((unsigned char *)memory - before, whole_pages(before + (size_t)bytes));
}

/* Maps a part of an instance, which forked children do not have. */
FRUGAL_INTERNAL void *map_own(int file, memory_part part, int protection) {
    unsigned char *memory = map_part(file, part, protection);
    size_t before = (uintptr_t)memory % page_unit();
    if (memory) keep_from_children(memory - before, whole_pages(before + (size_t)part.bytes));
    return memory;
}

/* Maps a whole file of memory for this process alone: pages that it writes become its own, the others stay the file's.
 * Returns NULL if it cannot be mapped. */
FRUGAL_INTERNAL void *map_private(int file, size_t bytes) {
    size_t whole = whole_pages(bytes);
    void *room = map_aligned(whole, is_large(bytes) ? HUGE_PAGE : page_unit(), PROT_NONE);
    if (!room) return NULL;
    void *memory = mmap(room, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0);
    if (memory != MAP_FAILED) return memory;
    munmap(room, whole);
    return NULL;
}

/* Enters pages that exist into this process's page table, so that the first read of each has no page fault. */
FRUGAL_INTERNAL void make_present(const void *memory, size_t bytes) {
#if defined(MADV_POPULATE_READ)
    if (!madvise((void *)(uintptr_t)memory, bytes, MADV_POPULATE_READ)) return;
#endif
    const volatile unsigned char *at = memory; /* an older system */
    for (size_t i = 0; i < bytes; i += (size_t)sysconf(_SC_PAGESIZE)) (void)at[i];
}

/* Makes huge pages of a fresh part of a file that is mapped at `memory`. The system gives shared memory none by
 * default, and then a random row costs a page walk, and each process a page fault for each small page that it touches.
 * So each piece of 2 MiB gets one small page, and is then collapsed into a huge one (Linux 6.1 and later), on the node
 * of that page. It is not the first of each piece, because where pages are interleaved these would all be on one node.
 * Returns the bytes that are huge. */
static size_t make_huge(int file, memory_part part, void *memory) {
    size_t at = 0, page = (size_t)sysconf(_SC_PAGESIZE);
#if defined(__linux__)
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE, which older headers lack */
    while (at + HUGE_PAGE <= part.bytes &&
           !reserve_pages(file, part.at + at + at / HUGE_PAGE % (HUGE_PAGE / page) * page, page) &&
           !madvise((unsigned char *)memory + at, HUGE_PAGE, COLLAPSE))
        at += HUGE_PAGE;
#else
    (void)file, (void)part, (void)memory, (void)page;
#endif
    return at;
}

/* Gives a fresh part all its pages. Otherwise the first write after memory has run out would end the process (SIGBUS).
 * Returns 0 if there is not enough memory. */
FRUGAL_INTERNAL int make_resident(int file, memory_part part, void *memory) {
    size_t whole = whole_pages((size_t)part.bytes),
           huge = is_large((size_t)part.bytes) ? make_huge(file, part, memory) : 0;
    for (size_t at = huge; at < whole; at += HUGE_PAGE) /* in pieces, so that signals do not hinder it for ever */
        if (reserve_pages(file, part.at + at, LEAST(HUGE_PAGE, whole - at))) return 0;
    return 1;
}

/* Of the file of the gates of a process that joins. */
FRUGAL_INTERNAL memory_part gates_part(void) {
    return (memory_part){0, page_unit()};
}

/* Reserves room in the region, which no process has mapped yet. Returns 0 if there is none. */
FRUGAL_INTERNAL int reserve_part(frugal *f, uint64_t bytes, memory_part *part) {
    uint64_t unit = is_large((size_t)bytes) ? HUGE_PAGE : page_unit();
    memory_part made = {(f->shared.used + unit - 1) / unit * unit, bytes};
    if (bytes > SIZE_MAX / 4 || set_file_size(f->shared.file, made.at + whole_pages((size_t)bytes))) return 0;
    f->shared.used = made.at + whole_pages((size_t)bytes), *part = made;
    return 1;
}

/* Allocates zeroed memory in the region, or, without a region, the instance's own. *part says where it is, for
 * processes that join; it is not used without a region. */
FRUGAL_INTERNAL void *allocate_shared(frugal *f, size_t bytes, size_t alignment, memory_part *part) {
    int placed = is_large(bytes) && (f->shared.file >= 0 || !f->desc.allocate); /* large: begins with a page */
    void *memory = NULL;
    if (f->shared.file < 0)
        memory = frugal_allocate(f, bytes, alignment);
    else if (reserve_part(f, bytes, part))
        memory = map_own(f->shared.file, *part, PROT_READ | PROT_WRITE);
    if (memory && placed) interleave(f, memory, whole_pages(bytes));
    if (f->shared.file < 0) return memory;
    if (!memory || make_resident(f->shared.file, *part, memory)) return memory;
    unmap_part(memory, bytes);
    return NULL;
}

FRUGAL_INTERNAL void free_shared(frugal *f, void *memory, size_t bytes) {
    if (f->shared.file < 0)
        frugal_free(f, memory, bytes);
    else if (!frugal_load_relaxed(&f->pages.stay)) /* else the pages stay */
        unmap_part(memory, bytes);
}

/* Makes the region and its header, if the instance has a name by which others may join. */
FRUGAL_INTERNAL frugal_status open_region(frugal *f) {
    memory_part part = {0, 0};
    if (!f->desc.name) return FRUGAL_OK;
    if (!HAS_PROCESSES) return fail_unsupported("open");
    f->shared.file = make_memory_file("frugal");
    if (f->shared.file < 0 && errno == ENOSYS) return fail_unsupported("open");
    if (f->shared.file < 0)
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "open: no file for the memory that processes share under the name %s: %s", f->desc.name,
                           error_text(errno));
    f->shared.region = allocate_shared(f, sizeof *f->shared.region, CACHE_LINE, &part);
    return f->shared.region ? FRUGAL_OK : fail_memory("what processes share", sizeof *f->shared.region);
}

FRUGAL_INTERNAL void close_region(frugal *f) {
    free_shared(f, f->shared.parts, f->desc.devices * sizeof *f->shared.parts);
    if (f->shared.fixed) unmap_part(f->shared.fixed, sizeof *f->shared.fixed);
    if (f->shared.file < 0) return;
    if (f->shared.region) unmap_part(f->shared.region, sizeof *f->shared.region);
    close(f->shared.file);
    f->shared.region = NULL, f->shared.file = -1;
}

/* Fixes the settings of a step for all processes. Returns 0 if another process has fixed other settings, which *fixed
 * receives. The scale is never 0, so that no settings are 0. */
FRUGAL_INTERNAL int fix_shared(frugal *f, uint64_t step, float lr, float scale, step_settings *fixed) {
    uint32_t bits[2];
    memcpy(&bits[0], &lr, sizeof lr);
    memcpy(&bits[1], &scale, sizeof scale);
    uint64_t wanted = (uint64_t)bits[0] << 32 | bits[1], found = 0;
    /* relaxed: only the word itself is communicated; a spurious failure leaves 0 */
    while (!frugal_cas_relaxed(&(*f->shared.fixed)[step % FRUGAL_P2F_SLOTS], &found, wanted))
        if (found != 0) break;
    if (found == 0 || found == wanted) return 1;
    bits[0] = (uint32_t)(found >> 32), bits[1] = (uint32_t)found;
    *fixed = (step_settings){.step = step, .fixed = 1};
    memcpy(&fixed->lr, &bits[0], sizeof lr);
    memcpy(&fixed->scale, &bits[1], sizeof scale);
    return 0;
}

/* Bytes of what a device counts, with its hits by table. */
FRUGAL_INTERNAL size_t count_bytes(const frugal *f) {
    return sizeof(device_counts) + f->desc.n_tables * sizeof(table_hits);
}

/* Bytes from one entry of an inbox to the next. */
static uint64_t inbox_stride(const frugal *f) {
    return (sizeof(posted_batch) + f->desc.max_keys * sizeof(uint64_t) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

FRUGAL_INTERNAL uint64_t inbox_bytes(const frugal *f) {
    return (f->desc.lookahead + 1) * inbox_stride(f);
}

FRUGAL_INTERNAL posted_batch *posted_at(const frugal *f, uint32_t d, uint64_t step) {
    return (posted_batch *)(void *)(f->devices[d].inbox + step % (f->desc.lookahead + 1) * inbox_stride(f));
}

/* Relaxed, all: no process has joined yet. */
FRUGAL_INTERNAL void reset_mail(mailbox *mail, uint64_t step) {
    frugal_store_relaxed(&mail->announced, step);
    frugal_store_relaxed(&mail->taken, step);
    frugal_store_relaxed(&mail->wanted, step);
    frugal_store_relaxed(&mail->opened, step);
    frugal_store_relaxed(&mail->updated, step);
    frugal_store_relaxed(&mail->committed, step);
    frugal_store_relaxed(&mail->done, step);
}
