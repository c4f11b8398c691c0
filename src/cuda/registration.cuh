/* registration.cuh - memory of the host is registered, for all GPUs, in pieces. */
#ifndef FRUGAL_CUDA_REGISTRATION_CUH
#define FRUGAL_CUDA_REGISTRATION_CUH

#include "context.cuh"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace frugal_cuda {

#ifndef FRUGAL_CUDA_PIECE /* tests have smaller ones */
#define FRUGAL_CUDA_PIECE (UINT64_C(64) << 30)
#endif

/* A piece of memory from `at` on. Drivers from 580 on refuse to register 512 GiB and more at once, so memory is
 * registered in pieces. They end at multiples of FRUGAL_CUDA_PIECE, so no page is in two. */
static frugal_memory piece_of(frugal_memory memory, size_t at) {
    uintptr_t start = (uintptr_t)memory.start + at;
    uint64_t most = FRUGAL_CUDA_PIECE - start % FRUGAL_CUDA_PIECE, rest = memory.bytes - at;
    return {(void *)start, (size_t)(rest < most ? rest : most), memory.read_only};
}

/* Memory that this process has mapped read-only is registered so, or, where the driver cannot, is made writable. */
static cudaError_t register_piece(frugal_memory memory) {
    const unsigned int flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    cudaError_t error =
        cudaHostRegister(memory.start, memory.bytes, memory.read_only ? flags | cudaHostRegisterReadOnly : flags);
    if (error == cudaSuccess || error == cudaErrorHostMemoryAlreadyRegistered || !memory.read_only) return error;
    cudaGetLastError(); /* taken back: it was only a question */
#if defined(__linux__)
    size_t before = (uintptr_t)memory.start % (size_t)sysconf(_SC_PAGESIZE);
    if (!mprotect((unsigned char *)memory.start - before, memory.bytes + before, PROT_READ | PROT_WRITE))
        error = cudaHostRegister(memory.start, memory.bytes, flags);
#endif
    return error;
}

/* Of memory whose first `bytes` are registered. Returns the first error: then GPUs may go on reaching the pages that
 * lie there now, also when other memory lies there, which must never be: the memory stays mapped. */
static cudaError_t unregister_memory(frugal_memory memory, size_t bytes) {
    cudaError_t error = cudaSuccess;
    for (size_t at = 0; at < bytes; at += piece_of(memory, at).bytes) {
        cudaError_t of_piece = cudaHostUnregister(piece_of(memory, at).start);
        if (error == cudaSuccess) error = of_piece;
    }
    return error;
}

/* All pieces, or none; *left becomes 1 if unregistering has failed. */
static cudaError_t register_memory(frugal_memory memory, int *left) {
    for (size_t at = 0; at < memory.bytes; at += piece_of(memory, at).bytes) {
        cudaError_t error = register_piece(piece_of(memory, at));
        if (error == cudaSuccess) continue;
        if (unregister_memory(memory, at) != cudaSuccess) *left = 1;
        return error;
    }
    return cudaSuccess;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_REGISTRATION_CUH */
