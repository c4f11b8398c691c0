/* ptx_on_host.h - the compiled code of frugal_cuda.cu, without a GPU: an interpreter of PTX behind FRUGAL_LAUNCH.
 *
 * cuda_on_host.h compiles our source with a compiler of the host. What nvcc makes of the same source is other code:
 * contraction, rounding, arithmetic of addresses, widths, shuffles, the order of memory operations, branches. This runs
 * it: the PTX that nvcc writes, instruction by instruction, for the same launches, on the same memory.
 *
 * HOW TO USE IT
 *   frugal_cuda.cu, compiled with '-DFRUGAL_CUDA_ON_HOST="tests/cuda/ptx_on_host.h"', launches the entry of the module
 *   that bears the kernel's name. Link what cuda_on_host.h needs, ptx_*.o, and the text (ptx_embedded.cc).
 *   FRUGAL_PTX=file runs that text instead; FRUGAL_CUDA_SEED=n, another schedule.
 *   What was run is printed at the end, to standard error; FRUGAL_PTX_UNUSED=1 adds the lines that were not.
 *
 * HOW IT RUNS. A launch goes through the stream's queue, the counters, the requested failures and the lost devices of
 * cuda_on_host.cc. A warp runs in lockstep under a mask: lanes that stand at the same instruction are a group, groups
 * merge where they meet, and the one that stands first in the text runs first (now and then another: no placement of
 * code may matter). Operations with .sync wait for the lanes of their mask. Warps of the resident blocks take turns at
 * barriers, at some atomics, when they sleep, and now and then anywhere; the random numbers are the launch's, as
 * cuda_on_host's are.
 *
 * WHAT IT CHECKS. Each ends the process with a message that names kernel, block, threads, line and instruction:
 *   - when the text is read: any instruction, modifier, special register or directive that is not implemented; .ftz,
 *     .approx, and add, sub or mul of floats without a rounding, since those do not have the bits of the host;
 *   - at a launch: number, sizes and alignments of the parameters, threads of a block against .maxntid;
 *   - when it runs: addresses that are not aligned to the whole vector, null pointers, .param outside of the
 *     parameters, registers that nobody has written, .sync and barriers that lanes do not reach, shuffles from lanes
 *     outside of the mask;
 *   - with AddressSanitizer, what the compiled code touches outside of blocks.
 *
 * WHAT IT CANNOT SHOW. Caches: .cg and .ca are the same here, a stale line of L1 never is. Weak memory: atomics and
 * fences are the host's (x86's order is strong: a release made relaxed changes nothing), a scope means nothing. Time.
 * What ptxas makes of the PTX: registers, spills, its schedule of loads, its own choice of where lanes meet again.
 * Blocks that are no whole warps, .shared and .local memory, textures: not implemented. Races of lanes within a kernel:
 * the warps of a launch are one thread of the host to ThreadSanitizer.
 *
 * WHAT IT COSTS (one core, -O3): 20 to 40 ns an instruction of a warp. */
#ifndef PTX_ON_HOST_H
#define PTX_ON_HOST_H

#include "cuda_on_host.h"

#include <string>
#include <vector>

namespace ptx {
struct module;
}

namespace ptx_on_host {

struct arguments { /* packed as C does, and CUDA */
    struct one {
        size_t bytes, alignment;
    };
    std::vector<one> each;
    std::string packed;

    template <typename T> void add(const T &value) {
        static_assert(std::is_trivially_copyable_v<T>, "a kernel's parameters are plain values");
        packed.resize((packed.size() + alignof(T) - 1) / alignof(T) * alignof(T));
        packed.append(reinterpret_cast<const char *>(&value), sizeof value);
        each.push_back({sizeof(T), alignof(T)});
    }
};

struct where {
    const char *name; /* of the kernel, as the source says it */
    cuda_on_host::place at;
    dim3 grid, block;
    cudaStream_t stream;
};

/* Launches the entry of that name. */
cudaError_t launch_entry(ptx::module &m, const where &w, arguments &&a);

/* The module that is linked (ptx_embedded.cc), or $FRUGAL_PTX; read once. */
ptx::module &this_module();
/* Whether there is one: nvcc made none where there is no nvcc. */
bool has_module();

struct report {
    uint64_t entries, entries_run, forms, forms_run, lines, lines_run, instructions, launches;
    std::vector<std::string> idle_entries, idle_forms;
};
report report_of(const ptx::module &m);
std::string summary(const ptx::module &m); /* one line */

template <typename... P, typename... A>
cudaError_t launch(const char *name, cuda_on_host::place at, void (*)(P...), dim3 grid, dim3 block, cudaStream_t stream,
                   A &&...values) {
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has");
    std::tuple<P...> converted(std::forward<A>(values)...);
    arguments packed;
    std::apply([&packed](const P &...each) { (packed.add(each), ...); }, converted);
    return launch_entry(this_module(), {name, at, grid, block, stream}, std::move(packed));
}

} // namespace ptx_on_host

#undef FRUGAL_LAUNCH
#define FRUGAL_LAUNCH(kernel, ...) ::ptx_on_host::launch(#kernel, ::cuda_on_host::here(), kernel, __VA_ARGS__)

#endif /* PTX_ON_HOST_H */
