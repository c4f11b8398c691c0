/* frugal_cuda.h - logical devices on NVIDIA GPUs. A trainer includes it beside frugal.h and links frugal_cuda.cu.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Rows, gradients and bags lie in the GPU's memory. All work of a step is enqueued on the trainer's stream, and the
 * calls of the step do not wait for the GPU. Lookup returns once the gate has opened on the host (with gate_on_stream:
 * once all devices have announced the step and have been given the step before), and update returns at once. Two kinds
 * of lookup may wait for the GPU: the first one with bags, which allocates, and one whose batch could not be copied
 * ahead. An error that comes after a call has returned is reported by a later call. The calls of frugal.h are the same
 * as with any device. examples/quickstart.cu is the smallest trainer.
 *
 * ONE DEVICE that updates in place (the default) waits for no gate, because its stream runs steps in their order. It
 * may be given steps as far ahead as they are announced, and the steps that it was given are committed, also after
 * frugal_stop. Only frugal_get_records waits for the steps before. With a counted cache it counts touches in the GPU's
 * memory, if there is room: calls that read or write counts, and saves, then copy a byte a row from the GPU. If the GPU
 * is lost, such calls return LOST, and a save has the counts that were copied last; so has a process that has joined.
 *
 * WEIGHTS OF 16 BITS (frugal_desc.rows_as) have 16 bits everywhere: in host memory, on the link, in the cache. So half
 * the bytes cross the link for a row, and a cache of the same bytes has up to twice as many rows; optimizer state and
 * records stay floats. The arrays of lookup and update may have any type (frugal_row_array.as, frugal_gradients.as),
 * whatever the type of the rows; those of a graph are floats. Weights are moved 4 at a time if dim is a multiple of 4,
 * and rows of the table and of the arrays begin at multiples of 8 bytes (floats: 16); otherwise one by one.
 *
 * SORTING: the GPU sorts each batch, up to L steps ahead, and sends its distinct rows to the host, if the host needs
 * them. The host sorts if the GPU does not reach the memory of the batches, and in a process that has joined.
 *
 * COMPILE (CUDA Toolkit 12 or 13; compute capability 7.5 and later)
 *      nvcc -O3 -std=c++17 --fmad=false -arch=sm_75 -c frugal_cuda.cu      (or your GPU's; link: -lcudart)
 *
 * MEMORY of a device, in bytes, with K = max_keys, L = lookahead, D and F floats of weights and state rounded up to 4,
 * and W = 4 D, or with weights of 16 bits 2 D rounded up to 16:
 *      the GPU's   8 + W + 4 F per cached row; (L + 1)(16 (K + 16) + 5/8 K) for batches; 4 K + (K/16 + 3)(4 D + 4)
 *                  for sums; K (4 D + 4) if bags are looked up; K/8 if rows are updated in place; 5 (L + 1) K with a
 *                  counted cache; W + 4 F per secondary, and 4 (L + 1) K once there are any; where it
 *                  sorts, 16 1/8 K, what CUB needs (about 9 K), and 41 KiB, and with a counted cache a byte a row
 *                  of the table; 4 (L + 1) K if rows are dealt over machines by a list and rounded by random bits;
 *                  less than 1 KiB more; 72 per group
 *      the host's  (L + 1) 5/8 K and 64 KiB; 5 (L + 1) K with a counted cache; 4 (L + 1) K with secondaries;
 *                  K (W + 4 F) if the host gathers; W + 4 F if rows are updated in place; 1536 per group; 4 K once
 *                  squares are summed; 41 (L + 1) KiB where the GPU sorts; 4 (L + 1) K as above
 *      A group is a run of neighbouring tables whose optimizer settings are the same. If there is only one group, and
 *      it is not frozen, it takes nothing.
 *
 * CAPTURES: while another stream is being captured into a graph, in any mode, calls of the library do not spoil the
 * capture. But while that stream is a blocking one, CUDA allows nothing on the default stream: calls for devices whose
 * stream is the default stream then return ORDER.
 *
 * RESET: close the instance before cudaDeviceReset. If the reset comes first, later calls return CUDA or LOST and say
 * so, the host's rows stay, and frugal_close frees the host's memory. But if the program has used the GPU again since
 * then, the library cannot tell that there was a reset, and what happens is not defined.
 *
 * LOST: while steps are under way, a GPU that does nothing for 20 ms is asked to copy a word. If that takes 20 s (or
 * half of frugal_desc.stuck_seconds, if that is less, but at least .5 s), the GPU counts as lost, for example because
 * it has left its bus: calls return LOST, and frugal_close does not wait for it. Closing another instance, or a server
 * (frugal_cuda_serve.h), does not ask the GPU, and may wait, because CUDA waits for all GPUs there. With negative
 * stuck_seconds the copy may take any time.
 *
 * LEFT: CUDA may refuse to unregister host memory, for example that of a lost GPU. Then frugal_close leaves the pages
 * mapped, and does not give such blocks to frugal_desc.release, because the GPU would still reach the old pages where
 * other memory is allocated next; a notice says so. For the same reason attaching compares words of all pinned memory
 * with what the GPU reads there.
 */
#ifndef FRUGAL_CUDA_H
#define FRUGAL_CUDA_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frugal_cuda_desc {
    uint64_t cache_rows;        /* 0: no cache; rounded up to whole sets of 8 */
    frugal_cache_policy policy; /* with COUNTED, host memory of 1 byte a row is allocated, once for all devices */
    /* A cudaStream_t of that GPU, the caller's; NULL: its legacy default stream, also if the trainer is compiled with
     * --default-stream per-thread, whose streams wait for it and it for them. cudaStreamPerThread is refused, because
     * several threads work for a device. The stream must exist as long as rows are looked up, updated, or, if updates
     * are kept, drained or read. With gate_on_stream each device needs one of its own, made with
     * cudaStreamNonBlocking (else ARGUMENT), because work that shares a stream with a wait, or waits for that stream,
     * cannot open the gate. */
    void *stream;
    int shrink_cache; /* halve cache_rows until the GPU's memory holds them */
    /* Lookup does not wait: the stream does. Needs a worker, or threads in frugal_help. One device that updates in
     * place does not need it. Several devices must all announce a step, and be given the one before, before any is
     * given it; lookup waits for that. Then nothing that the gate waits for needs a call of the GPU's driver, so a call
     * of any thread that waits for the whole GPU, as cudaFree does, ends when the gate opens. There is one exception:
     * with shared workers, instances of which one keeps updates (FRUGAL_ALONE_KEPT). Several machines do not have it:
     * the host waits. 2: a kernel waits, also where the driver could make the stream wait for a word (to test what
     * older drivers do). */
    int gate_on_stream;
} frugal_cuda_desc;
/* Attaches `device` on GPU `ordinal`, before any device's first announcement; one at a time. Several devices may share
 * a GPU. `desc` NULL: no cache, the default stream. Pins the table (once for all devices), which takes time; a table
 * that cannot be pinned, such as a mapped file, is gathered by the host at every lookup, and gate_on_stream is then not
 * available (ARGUMENT).
 * If the table is pinned, and frugal_desc.alone is not FRUGAL_ALONE_STAGED, the GPU updates the rows that this device
 * alone touches in place: then a GPU that is lost may leave rows of an unfinished step. With KEPT and a cache it keeps
 * such updates in the cached copies (frugal.h). Then a lookup with gate_on_stream returns only when GPUs have begun to
 * write back what is recalled for the step; so a stream is given at most one step behind a gate that is closed, and a
 * replayed step only once the step before it is done. A table that the caller has registered (cudaHostRegister) must be
 * writable. This call and all others leave the calling thread's current GPU as it was, and make no context on another
 * GPU. They do not clear an error that CUDA keeps for the thread, and do not report it as their own. CUDA keeps only
 * the last error, so if one of their own CUDA calls fails, its error replaces the one kept before. Errors: CUDA (no
 * GPU, no driver, too old a GPU), WORKER (no thread to watch the GPU), DEVICE (no such device or GPU), MEMORY (of GPU
 * or host; the message says how much), ARITHMETIC, LIMIT, ARGUMENT, ORDER (the stream is being captured, or see
 * CAPTURES). */
FRUGAL_API frugal_status frugal_cuda_attach(frugal *f, uint32_t device, int ordinal, const frugal_cuda_desc *desc);

typedef enum {
    FRUGAL_CUDA_GATE_HOST,   /* lookup waits for the gate */
    FRUGAL_CUDA_GATE_ORDER,  /* nobody waits: ONE DEVICE, above */
    FRUGAL_CUDA_GATE_STREAM, /* gate_on_stream: the stream waits */
    FRUGAL_CUDA_GATE_KERNEL  /* gate_on_stream, and the driver has no such wait: a kernel waits */
} frugal_cuda_gate;
typedef struct frugal_cuda_info {
    int ordinal;
    uint64_t cache_rows; /* after rounding and shrinking */
    int table_is_pinned; /* 0: the host gathers, and no row is updated in place */
    uint64_t bytes;      /* of the GPU's memory */
    frugal_cuda_gate gate;
    int node; /* of the machine, that the GPU is at (sysfs); what only this GPU uses lies there; -1: not known */
    /* Why the table is not pinned: what was refused, NULL if it is pinned, or is in a file on a disk, which is not
     * tried; its bytes; and CUDA's error, a cudaError_t. A notice has said so, too. */
    const char *refused;
    uint64_t refused_bytes;
    int refused_error;
} frugal_cuda_info;
/* Of an attached device. Any thread. Errors: DEVICE (not attached by frugal_cuda_attach), ARGUMENT. */
FRUGAL_API frugal_status frugal_cuda_get_info(const frugal *f, uint32_t device, frugal_cuda_info *out);

/* As frugal_announce, of keys in the GPU's memory, written by what `stream` was given (NULL: the legacy default
 * stream). They may be overwritten by what it is given next. Where the GPU sorts, the call does not wait for the
 * stream: if a key is too large, lookup and frugal_cuda_replay of the step return KEY, of all devices, and have
 * changed nothing, until frugal_cancel takes the step back. So do announcements that would have to wait for the step.
 * Elsewhere, with other processes, and if there are more than 1023 segments, the keys are copied to the host, and the
 * call waits for the stream. Errors: as frugal_announce; ARGUMENT (keys in other memory, or not aligned), ORDER (the
 * stream is being captured, or see CAPTURES), CUDA, DEVICE (not attached by frugal_cuda_attach). */
FRUGAL_API frugal_status frugal_cuda_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch,
                                              void *stream);

/* A step in a CUDA graph. While the device's stream is being captured, these two put into the graph what frugal_lookup
 * and frugal_update enqueue, for whatever step it will be: gather its batch into rows[max_keys][dim]; sum
 * grads[max_keys][dim] by its unique rows, and commit. Both arrays are floats. The wait for the gate is not in the
 * graph. The caller's work between the two finds the number of positions at *n, in the GPU's memory (n may be NULL).
 * Errors: DEVICE, ORDER (the stream is not being captured), ARGUMENT, CUDA. */
FRUGAL_API frugal_status frugal_cuda_capture_lookup(frugal *f, uint32_t device, float *rows, const uint32_t **n);
FRUGAL_API frugal_status frugal_cuda_capture_update(frugal *f, uint32_t device, const float *grads);
/* Call it once before each launch of the graph on the device's stream, in place of lookup and update of `step`.
 * Waits until the step's batch is announced. Then waits for the gate; with gate_on_stream, until a lookup would return,
 * and has the stream wait for the gate. With WSL2, query the stream when you have launched the graph, because launches
 * are held back there until somebody does. `gradients`: the learning rate, and in `records` whether there are any
 * gradients. The graph has its own arrays, so `grads` is NULL. Errors: as frugal_lookup and frugal_update; DEVICE (not
 * attached by frugal_cuda_attach). */
FRUGAL_API frugal_status frugal_cuda_replay(frugal *f, uint32_t device, uint64_t step,
                                            const frugal_gradients *gradients);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_CUDA_H */
