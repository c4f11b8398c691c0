/* pinning.cuh - host memory that the GPU reaches in place.
 *
 * The table is pinned where it lies, so that the GPU reads rows in place, and writes those that it updates in place. If
 * memory cannot be pinned, for example a mapped file whose pages the kernel wants to move, the host gathers rows, and
 * the device updates none in place. */
#ifndef FRUGAL_CUDA_PINNING_CUH
#define FRUGAL_CUDA_PINNING_CUH

#include "device.cuh"
#include "registration.cuh"

#if defined(__linux__)
#include <sys/vfs.h>
#endif
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

namespace frugal_cuda {

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
/* Pinning touches pages one by one in one thread, so all processors populate them before. Errors are left for pinning
 * to find. */
struct page_range {
    unsigned char *start;
    size_t bytes;
};

static void *populate_part(void *argument) {
    page_range *part = (page_range *)argument;
    madvise(part->start, part->bytes, MADV_POPULATE_WRITE);
    return NULL;
}

static void populate_pages(const frugal *f, const frugal_memory *memory) {
    constexpr uint32_t MOST = 64;
    constexpr size_t HUGE_PAGE = 2 << 20;
    uint32_t n = frugal_settings(f)->init_threads < MOST ? frugal_settings(f)->init_threads : MOST;
    uintptr_t start = (uintptr_t)memory->start / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    uintptr_t end = ((uintptr_t)memory->start + memory->bytes) / HUGE_PAGE * HUGE_PAGE;
    if (end <= start || end - start < HUGE_PAGE * n) return; /* small: not worth threads */
    pthread_t threads[MOST];
    page_range parts[MOST];
    int started[MOST];
    uint64_t units = (end - start) / HUGE_PAGE;
    for (uint32_t i = 0; i < n; i++) {
        parts[i].start = (unsigned char *)(start + units * i / n * HUGE_PAGE);
        parts[i].bytes = (size_t)((units * (i + 1) / n - units * i / n) * HUGE_PAGE);
        started[i] = !pthread_create(&threads[i], NULL, populate_part, &parts[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}
#else
static void populate_pages(const frugal *f, const frugal_memory *memory) {
    (void)f, (void)memory;
}
#endif

/* 1: the table is a mapped file of a file system on disk. Pinning it is not tried, because some kernels read the whole
 * file before they refuse. */
static int is_on_disk(const frugal *f) {
    const char *file = frugal_settings(f)->file;
    if (!file) return 0;
#if defined(__linux__)
    struct statfs system;
    if (statfs(file, &system) == 0) {
        unsigned long type = (unsigned long)system.f_type;
        return type != 0x01021994UL && type != 0x958458f6UL; /* tmpfs, hugetlbfs: these are memory */
    }
#endif
    return 1;
}

/* Does the GPU see the memory as one piece? Not if the caller has registered a part of it, or has left gaps. */
static cudaError_t check_whole(frugal_memory memory) {
    void *first = NULL, *seen = NULL;
    unsigned char *start = (unsigned char *)memory.start;
    cudaError_t error = cudaHostGetDevicePointer(&first, start, 0);
    for (size_t at = 0; at < memory.bytes && error == cudaSuccess; at += piece_of(memory, at).bytes) {
        size_t last = at + piece_of(memory, at).bytes - 1;
        error = cudaHostGetDevicePointer(&seen, start + last, 0);
        if (error == cudaSuccess && (unsigned char *)seen - (unsigned char *)first != (ptrdiff_t)last)
            error = cudaErrorHostMemoryAlreadyRegistered;
    }
    return error;
}

/* Unregisters what we have registered. If CUDA does not, the pages stay (frugal_leave_pages). */
static void unpin_memory(gpu_device *c, pinned_memory *pinned) {
    if (pinned->ours && unregister_memory(pinned->memory, pinned->memory.bytes) != cudaSuccess)
        frugal_leave_pages(c->f);
    pinned->ours = pinned->pinned = 0;
}

/* Registers memory for all GPUs. Memory that the caller has registered is taken as it is. Memory that is not shared is
 * not registered read-only, even if the GPU does not write the table. If it were, the driver would ask the kernel for
 * pages to read, would get the one page of zeros for pages that were never written, and would go on reading zeros when
 * workers have written them. */
static cudaError_t pin_memory(gpu_device *c, pinned_memory *pinned, frugal_memory memory) {
    cudaPointerAttributes known;
    pinned->memory = memory;
    pinned->ours = pinned->pinned = 0;
    if (memory.bytes == 0) return cudaSuccess;
    cudaError_t error =
        cudaPointerGetAttributes(&known, memory.start); /* asked first, because a failed attempt would leave an error */
    if (error != cudaSuccess || known.type != cudaMemoryTypeHost) {
        int left = 0;
        error = register_memory(memory, &left);
        if (left) frugal_leave_pages(c->f);
        if (error != cudaSuccess) return error;
        pinned->ours = 1;
    }
    if ((error = check_whole(memory)) != cudaSuccess) unpin_memory(c, pinned);
    pinned->pinned = error == cudaSuccess;
    return error;
}

#ifndef FRUGAL_PCI_DEVICES /* a test has its own */
#define FRUGAL_PCI_DEVICES "/sys/bus/pci/devices"
#endif

/* The node of the machine that the GPU is at; -1: not known. */
static int node_of_gpu(const gpu_device *c) {
    char id[32] = "", path[256];
    int node = -1;
    if (cudaDeviceGetPCIBusId(id, sizeof id, c->ordinal) != cudaSuccess) return -1;
    for (char *at = id; *at; at++) *at = (char)tolower((unsigned char)*at);
    const char *folder = FRUGAL_PCI_DEVICES;
    snprintf(path, sizeof path, "%s/%s/numa_node", folder ? folder : "", id);
    FILE *in = fopen(path, "re");
    if (in && fscanf(in, "%d", &node) != 1) node = -1;
    if (in) fclose(in);
    return node;
}

/* Pins memory that this GPU alone uses, near it. */
static cudaError_t pin_ring(gpu_device *c, pinned_memory *pinned, frugal_memory_kind kind) {
    frugal_memory memory = frugal_get_memory(c->f, c->device, kind);
    if (!memory.read_only) frugal_move_memory(c->f, memory, c->node);
    return pin_memory(c, pinned, memory);
}

/* Where the GPU sees an address of pinned memory. */
static cudaError_t seen_by_gpu(const pinned_memory *pinned, const void *host, void **seen) {
    *seen = NULL;
    cudaError_t error = cudaHostGetDevicePointer(seen, pinned->memory.start, 0);
    if (error == cudaSuccess)
        *seen = (unsigned char *)*seen + ((const unsigned char *)host - (const unsigned char *)pinned->memory.start);
    return error;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_PINNING_CUH */
