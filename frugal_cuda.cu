/* frugal_cuda.cu - a logical device on an NVIDIA GPU: the contract of src/device.h, and the bits of src/devices/cpu.c.
 *
 * The GPU caches hot rows in its memory, and reads the others in place in host memory (unified virtual addressing:
 * kernels read them without a copy before). It sums gradients by unique row, and writes the sums to the staging block
 * in host memory. With FRUGAL_ALONE_PLACE or KEPT it updates the rows that it alone touches in a step itself, in host
 * memory or in its cache. The GPU waits for the host only at a gate, and the host waits for the GPU only at the next
 * gate. Paper: sections 3.1 and 3.2.
 *
 * This is the one file to compile. It includes its parts, src/cuda/. A part calls and includes only parts above it in
 * this list:
 *
 *   toolkit.cuh     CUDA, or its replacement on the host; launches, calls of the driver
 *   context.cuh     a GPU that is used: the driver's calls, its context, a thread's visit to it
 *   registration.cuh  memory of the host, registered for all GPUs, in pieces
 *   view.cuh        what kernels are given: the device, a step, the words that GPU and host tell each other
 *   rows.cuh        atomics; moving rows; groups of lanes
 *   types.cuh       moving, widening and rounding elements of any type; forms of kernels
 *   directory.cuh   the cache's directory, in which groups of lanes claim ways
 *   gate.cuh        kernels: waiting for a gate, a step's numbers, the beginning of a replayed step
 *   lookup.cuh      kernels: gather, spread, pool
 *   update.cuh      kernels: sum, record, cached copy, host row in place, completion
 *   write_back.cuh  kernel: what the cache keeps, written to host rows
 *   device.cuh      the device as the host sees it; CUDA's errors as our statuses
 *   watch.cuh       a thread that asks whether the GPU lives
 *   cub.cuh         CUB, or what stands for it
 *   sort.cuh        kernels and operations: a batch that the GPU sorts itself, and counts of touches
 *   pinning.cuh     host memory that the GPU reaches in place
 *   readback.cuh    kernel: does the GPU see what the host has written there?
 *   batches.cuh     announced batches, sent to the GPU ahead
 *   enqueue.cuh     a step's kernels, put on the caller's stream
 *   keeping.cuh     operations of a device that keeps updates: recalls, and all that is kept written back
 *   cache.cuh       operations: the cache emptied, preloaded, verified
 *   secondaries.cuh  operation: room for secondaries
 *   squares.cuh     kernel, and operation: the sum of squares of a step's gradients
 *   operations.cuh  the other operations, and the table of all of them, which the runtime calls
 *   announce.cuh    keys that lie in the GPU's memory
 *   graphs.cuh      a step in a CUDA graph
 *   open.cuh        memory: of the GPU, mapped, shared by the devices of an instance
 *   self_test.cuh   a step that must have the bits of the host
 *   attach.cuh      what the GPU must be able to do, attaching
 *
 * THE STEP. The GPU sorts the batch and finds its unique rows, up to L steps ahead, on a stream of our own (sort.cuh),
 * and sends the rows to the host if the host has to plan the step. Where the GPU does not sort, the host sorts, and
 * copies the result to the GPU on that stream. The caller's stream then has
 *
 *     lookup   wait for the copy (and for the gate, if the stream does), gather, spread; or gather, pool
 *     ...      forward and backward: the caller's
 *     update   sum, record, cached copies, host rows in place; the last block raises `done` in host memory
 *
 * Other kernels, and copies, are there only in these cases:
 * - Tables have settings of their own: before an update a small kernel fetches the numbers of the step.
 * - The stream waits for the gate, and every block of a lookup must know whether the gate was forced open, because
 *   updates are kept, or rows go to the staging block: one thread finds out before.
 * - Updates are kept: the ways of the batch's own rows are touched before the lookup, so that none is evicted.
 * - A replayed graph begins with a kernel that finds out which step it is.
 * - The stream cannot wait for a word in memory: a kernel does.
 * - A batch could not be copied ahead: it is copied on this stream.
 * `done` is a word that the GPU writes and threads of the host poll. The thread that finds it raised commits the step.
 * One launch, the last one of an update, applies the update and raises `done`. So an update whose launch was refused
 * has changed nothing, and can be repeated.
 *
 * IN PLACE. Which rows the device alone touches is known when the gate is open, after the batch was copied: the lookup
 * fetches these bits from host memory. No other thread or device reads or writes such a row until the step is closed
 * (frugal_p2f.h, section 5 (f)), so plain loads and stores are enough. They are released with `done`, as records are.
 * After a gate that was forced open, neither rows nor records are written. If the GPU does not reach the table, so that
 * the host gathers its rows, all updates are staged.
 *
 * GROUPS. A group of lanes of a warp works on a row: 8 lanes with 16 bytes each (V = 4) where rows, copies, records and
 * the caller's arrays are aligned to 16 bytes, else 32 lanes with 4 bytes (V = 1). Either way a pass is 32 floats: one
 * request of 128 bytes, the largest that crosses PCI Express. Elements are dealt to lanes in the order in which
 * row-wise sums are added. Warp operations need full warps, so all lanes make the same number of passes, and groups
 * without work pass idly.
 *
 * HOW THE CACHE STAYS EXACT although all rows of a batch are looked up at once. A set has 8 ways, and each way has one
 * 64-bit word: which row's copy it holds, and its last use. A group that finds its row stamps the word with this step.
 * A group that does not find its row may take a way over, by the same compare-and-swap, if the way's stamp is of
 * another step. So within a step a way belongs to at most one row, the group that has claimed it may read or write the
 * copy, and no lock is held. Which rows get a way depends on the policy and on timing; the values of their copies do
 * not. If updates are kept, the group that takes a way over also takes the bit that says that the copy is dirty, and
 * writes the copy to its host row before it overwrites the copy. No other group reads or writes that host row
 * meanwhile: ways of the batch's rows are not taken over, because all are stamped before (frugal_touch_kernel); and if
 * another device touches the row in this step, the row was recalled before.
 *
 *  | tag  | site                            | scope, order    | pairs with     | if it were relaxed                 |
 *  |------|---------------------------------|-----------------|----------------|------------------------------------|
 *  | [C1] | `done` raised by the last block | system, release | [C2]           | committed before its records and   |
 *  |      |                                 |                 |                | its rows in place are written      |
 *  | [C2] | `done` read by a polling thread | acquire         | [C1]           | as [C1]                            |
 *  | [C3] | gates read by a waiting kernel  | system, acquire | [F8] of        | rows read before they are written, |
 *  |      |                                 |                 | frugal_flush.c | alone bits before they are set     |
 *  | [C4] | blocks counted                  | device, acq_rel | itself         | `done` before others' records and  |
 *  |      |                                 |                 |                | rows in place                      |
 *  | [C5] | chunks counted                  | device, acq_rel | itself         | sums of chunks not yet written     |
 *  | [C6] | `cleanings` raised              | system, release | [C8]           | a gate opens before the rows that  |
 *  |      |                                 |                 |                | are recalled for it are written    |
 *  | [C7] | blocks that write back counted  | device, acq_rel | itself         | as [C6], of other blocks           |
 *  | [C8] | `cleanings` read                | acquire         | [C6]           | as [C6]                            |
 *  | [C9] | a batch is sorted               | system, release | [C10]          | rows that are not there yet        |
 *  | [C10]| is it sorted?                   | acquire         | [C9]           | as [C9]                            |
 *  | [C11]| blocks of that kernel counted   | device, acq_rel | itself         | as [C9], of other blocks           |
 *  | [C12]| the driver says: it is lost     | release         | [C13]          | after the loss, rows are read while|
 *  |      |                                 |                 |                | it was still writing them          |
 *  | [C13]| has it said so?                 | acquire         | [C12]          | as [C12]                           |
 *
 * Words of the directory are claimed relaxed, because other groups use a way at the earliest after the end of a kernel.
 *
 * Compile: nvcc -O3 -std=c++17 --fmad=false -arch=sm_75 -c frugal_cuda.cu, CUDA Toolkit 12 or 13, compute capability
 * 7.5 and later (without -arch, Toolkit 12 compiles for 5.2, which has no such atomics). With FRUGAL_CUDA_ON_HOST
 * naming a header that stands for CUDA, a C++ compiler compiles it for the host (tests/cuda).
 */
#include "src/cuda/toolkit.cuh"
#include "src/cuda/context.cuh"
#include "src/cuda/registration.cuh"
#include "src/cuda/view.cuh"
#include "src/cuda/rows.cuh"
#include "src/cuda/types.cuh"
#include "src/cuda/directory.cuh"
#include "src/cuda/gate.cuh"
#include "src/cuda/lookup.cuh"
#include "src/cuda/update.cuh"
#include "src/cuda/write_back.cuh"
#include "src/cuda/device.cuh"
#include "src/cuda/watch.cuh"
#include "src/cuda/cub.cuh"
#include "src/cuda/sort.cuh"
#include "src/cuda/pinning.cuh"
#include "src/cuda/readback.cuh"
#include "src/cuda/batches.cuh"
#include "src/cuda/enqueue.cuh"
#include "src/cuda/keeping.cuh"
#include "src/cuda/cache.cuh"
#include "src/cuda/secondaries.cuh"
#include "src/cuda/squares.cuh"
#include "src/cuda/operations.cuh"
#include "src/cuda/announce.cuh"
#include "src/cuda/graphs.cuh"
#include "src/cuda/open.cuh"
#include "src/cuda/self_test.cuh"
#include "src/cuda/attach.cuh"
