/* pages.h - whose memory a page is: of which device, or pinned memory of the host, which devices see at another
 * address. What a kernel touches is checked where it was compiled so that each access calls us (ninja/tests.ninja:
 * accesses), or is PTX. Sanitizers have the pages as they are, because they know memory by its address. */
#ifndef ON_HOST_PAGES_H
#define ON_HOST_PAGES_H

#include "world.h"

#include <sys/mman.h>

namespace cuda_runtime_on_host {

#ifdef FRUGAL_SANITIZED
constexpr bool KNOWS_PAGES = false;
#else
constexpr bool KNOWS_PAGES = true;
#endif
enum : size_t { PAGE = 4096, PAGES_OF_LEAF = 1 << 18, LEAVES = 1 << 18 }; /* of 48 bits of address */
enum : uint8_t { ANYBODYS = 0, PINNED_ON_HOST = 255 };                    /* else a device's number + 1 */

/* Relaxed, all: whoever has an address has it from the call that marked its pages. */
std::atomic<std::atomic<uint8_t> *> leaves[LEAVES];

/* The lock is held. */
void mark_pages(const void *start, size_t bytes, uint8_t whose) {
    if (!KNOWS_PAGES) return;
    size_t first = reinterpret_cast<uintptr_t>(start) / PAGE;
    for (size_t i = first; i < first + (bytes + PAGE - 1) / PAGE; i++) {
        std::atomic<std::atomic<uint8_t> *> &leaf = leaves[i / PAGES_OF_LEAF % LEAVES];
        if (!leaf.load(std::memory_order_relaxed)) leaf = new std::atomic<uint8_t>[PAGES_OF_LEAF]();
        leaf.load(std::memory_order_relaxed)[i % PAGES_OF_LEAF].store(whose, std::memory_order_relaxed);
    }
}

inline __attribute__((always_inline)) uint8_t owner_of(uintptr_t address) {
    size_t page = address / PAGE;
    const std::atomic<uint8_t> *leaf = leaves[page / PAGES_OF_LEAF % LEAVES].load(std::memory_order_relaxed);
    return leaf ? leaf[page % PAGES_OF_LEAF].load(std::memory_order_relaxed) : uint8_t(ANYBODYS);
}

thread_local const device *running_gpu; /* whose kernel the thread runs */
thread_local uint8_t own_pages;         /* its mark */

bool reaches(const device *d, int other) { /* other's memory */
    return d->number == other || world().peers == CUDA_ON_HOST_PEERS_FALSE ||
           (world().peers == CUDA_ON_HOST_PEERS_REAL && d->peers >> other & 1);
}

constexpr uintptr_t DISTANCE = uintptr_t(1) << 44; /* the same for all memory: pieces side by side stay so */

/* Memory at `start` is mapped at a second address, which is returned; NULL: it cannot be. Pages of the process alone
 * become pages of a file without a name first: *made. Nobody may write them meanwhile. */
void *map_again(void *start, size_t bytes, bool *made) {
    *made = false;
    void *at = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(start) - DISTANCE);
    void *again = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (again != at) return nullptr;
    if (mremap(start, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) return at; /* if they are shared already */
    int file = memfd_create("cudaHostRegister", MFD_CLOEXEC);
    again = MAP_FAILED;
    if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0)
        again = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    if (again == MAP_FAILED) munmap(at, bytes);
    if (file < 0) return nullptr;
    if (again != MAP_FAILED) {
        memcpy(again, start, bytes);
        *made = mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
        if (!*made) munmap(again, bytes);
    }
    close(file);
    return *made ? again : nullptr;
}

/* As they were: a child that is forked has pages of its own again. */
void make_private(void *start, size_t bytes, const void *again) {
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail(here(), "cudaHostUnregister: no memory");
    memcpy(start, again, bytes);
}

/* The file that is mapped at an address, by its number; 0: none, or not from its beginning for so many bytes. */
unsigned long file_at(uintptr_t start, size_t bytes) {
    char line[512];
    unsigned long found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long from, end, offset, inode;
        if (sscanf(line, "%lx-%lx %*s %lx %*s %lu", &from, &end, &offset, &inode) == 4 && from == start &&
            end - from == bytes && offset == 0)
            found = inode;
    }
    if (maps) fclose(maps);
    return found;
}

/* Is the memory still there that was registered? It may have been given back to the heap, where its pages stay, or to
 * the system, which may have given others there. */
bool is_still_there(uintptr_t start, const range &r) {
    if (!r.seen || !r.was_private) return false; /* nothing is to be done there */
    unsigned long file = file_at(start, r.bytes);
    return file && file == file_at(r.seen, r.bytes);
}

/* The lock is held, as of the next two. Whole pages alone: others have a part of theirs in common with something else,
 * which may be written now. Memory that is read-only stays where it is as well. */
void set_apart(uintptr_t start, range *r) {
    auto same = world().attributes.find(cudaDevAttrCanUseHostPointerForRegisteredMem);
    if (same != world().attributes.end() ? same->second : !KNOWS_PAGES) return;
    if (start % PAGE || r->bytes % PAGE || r->flags & cudaHostRegisterReadOnly) return;
    void *host = reinterpret_cast<void *>(start);
    r->seen = reinterpret_cast<uintptr_t>(map_again(host, r->bytes, &r->was_private));
    if (!r->seen) return;
    world().seen[r->seen] = {r->bytes, start};
    mark_pages(host, r->bytes, PINNED_ON_HOST);
}

/* `is_there`: as is_still_there says. If the pages of a file stayed in the heap, memory that lies there later would
 * have some of them. */
void join_again(uintptr_t start, const range &r, bool is_there) {
    if (!r.seen) return;
    void *host = reinterpret_cast<void *>(start), *again = reinterpret_cast<void *>(r.seen);
    mark_pages(host, r.bytes, ANYBODYS);
    if (is_there && r.was_private) make_private(host, r.bytes, again);
    munmap(again, r.bytes);
    world().seen.erase(r.seen);
}

} // namespace cuda_runtime_on_host

const char *cuda_on_host::refusal_of(uintptr_t address) {
    static thread_local char why[200];
    uint8_t whose = owner_of(address);
    if (!whose || !running_gpu) return nullptr;
    if (whose == PINNED_ON_HOST)
        snprintf(why, sizeof why,
                 "touches pinned memory at the host's address %p; where a GPU sees it, cudaHostGetDevicePointer says",
                 reinterpret_cast<void *>(address));
    else if (reaches(running_gpu, whose - 1))
        return nullptr;
    else
        snprintf(why, sizeof why, "on GPU %d touches memory of GPU %d at %p, and has no access to it",
                 running_gpu->number, whose - 1, reinterpret_cast<void *>(address));
    return why;
}

#ifndef FRUGAL_SANITIZED
/* What gcc calls before an access, with -fsanitize=kernel-address. */
static __attribute__((noinline)) void check_refusal(uintptr_t address) {
    const char *why = cuda_on_host::current ? cuda_on_host::refusal_of(address) : nullptr;
    if (why) fail({nullptr, 0}, "%s", why);
}
/* Most accesses are to stacks, or to memory of the GPU that runs. */
static inline __attribute__((always_inline)) void check_access(uintptr_t address) {
    uint8_t whose = owner_of(address);
    if (whose && whose != own_pages) check_refusal(address);
}
extern "C" {
#define ACCESSES(bytes)                                                                                                \
    void __asan_load##bytes##_noabort(uintptr_t address);                                                              \
    void __asan_store##bytes##_noabort(uintptr_t address);                                                             \
    void __asan_load##bytes##_noabort(uintptr_t address) {                                                             \
        check_access(address);                                                                                         \
    }                                                                                                                  \
    void __asan_store##bytes##_noabort(uintptr_t address) {                                                            \
        check_access(address);                                                                                         \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES
void __asan_loadN_noabort(uintptr_t address, size_t bytes);
void __asan_storeN_noabort(uintptr_t address, size_t bytes);
void __asan_handle_no_return(void);
void __asan_before_dynamic_init(const char *file);
void __asan_after_dynamic_init(void);
void __asan_loadN_noabort(uintptr_t address, size_t bytes) {
    check_access(address), check_access(address + bytes - 1);
}
void __asan_storeN_noabort(uintptr_t address, size_t bytes) {
    check_access(address), check_access(address + bytes - 1);
}
void __asan_handle_no_return(void) {}
void __asan_before_dynamic_init(const char *) {}
void __asan_after_dynamic_init(void) {}
}
#endif

#endif /* ON_HOST_PAGES_H */
