/* device.cuh - a device as the host sees it; a status for CUDA's errors. */
#ifndef FRUGAL_CUDA_DEVICE_CUH
#define FRUGAL_CUDA_DEVICE_CUH

#include "view.cuh"

#include <pthread.h>
#include <semaphore.h>

namespace frugal_cuda {

constexpr uint32_t TEST_POSITIONS = 3; /* of the self-test; their gradients lie where partial sums do */

/* Rounds floats up to a multiple of four, because kernels move four together. */
static uint32_t whole_packs(uint32_t floats) {
    return (floats + 3) / 4 * 4;
}

struct pinned_memory { /* host memory that the GPU reaches */
    frugal_memory memory;
    int pinned, ours; /* the GPU reaches it; registered by us, so we unregister it */
};

struct shared_pins {             /* what all devices of an instance share; the last one to close frees it */
    uint32_t users, gates_users; /* gates_users: devices whose streams wait for gates */
    pinned_memory table, state, gates, alone; /* gates: while there are users; alone: if rows are updated in place */
    int table_is_pinned;
    int closes;                    /* 1: a device is closed: others must not be asked any more */
    int hangs[FRUGAL_MAX_DEVICES]; /* of the first device on a GPU: gpu_context.hangs of all on that GPU */
    const char *refused;           /* as in frugal_cuda_info, as the next two */
    uint64_t refused_bytes;
    cudaError_t refused_error;
};

struct batch_ahead {  /* an announced batch in the GPU's memory: the trainer's from `device_announced` on */
    uint32_t *arrays; /* [4][pitch]: rows, start, order, record_of */
    /* Valid bits, for a counted cache the worth of rows and outdated rows, ids if they are sent, then chunks; each
     * begins at a multiple of 8 bytes. `tail` is on the GPU; `tail_sent` is in host memory, from where it is sent. */
    unsigned char *tail, *tail_sent;
    uint64_t worth_at, outdated_at, ids_at, chunks_at, tail_bytes; /* in the tail */
    cudaEvent_t copied;
    uint32_t n_chunks, n_outdated; /* n_chunks: if the host has listed them */
    int failed, whole;             /* failed: must be sent again; whole: record_of is sent, too */
    /* [max_keys] as gpu_step.secondaries: on the GPU; `secondaries_sent` in host memory. NULL before the first list. */
    uint32_t *secondaries, *secondaries_sent;
    int has_secondaries;
    int is_told; /* the host has told of valid bits, and what else it knows; else all copies are current */
    /* step + 1 whose touches are counted, and in which counts have aged, although announcing failed later; 0: none */
    uint64_t counted, aged;
    /* Of a GPU that sorts (sort.cuh); in host memory, else NULL: segments_sent[MOST_SEGMENTS + 1], what it has found,
     * and where the GPU sees that. */
    key_segment *segments_sent;
    found_batch *found, *found_seen;
};

constexpr uint32_t MOST_SEGMENTS = 1023; /* of a batch whose keys lie on the GPU, and which it sorts */

struct sort_scratch {                /* in the GPU's memory, for one batch at a time */
    uint32_t *keys, *sorted, *index; /* [max_keys] */
    uint32_t *positions;             /* [max_keys]: 0, 1, ...; constant */
    key_segment *segments;           /* [MOST_SEGMENTS + 1] */
    found_batch *found;
    void *memory;            /* CUB's; NULL: the GPU sorts nothing */
    size_t bytes;            /* of it */
    int bits;                /* of a row number */
    cudaEvent_t ready, read; /* the caller has written its keys; they were read */
};

struct gpu_watch { /* the thread of watch.cuh; relaxed, all: see there */
    pthread_t thread;
    sem_t asked;
    int runs, busy, ends; /* busy: a question is asked, and not answered */
    int answer;           /* the last one, a CUresult, of the thread or of one whose call has failed */
    cudaStream_t stream;  /* on which a word is copied, from the GPU's memory to the host's; nothing waits on it */
    uint32_t *word, *copied;
    double limit; /* seconds that the copy may take; below 0: any time */
};

enum kernel_id {
    KERNEL_LOOKUP,
    KERNEL_LOOKUP_KEPT,
    KERNEL_WRITE_BACK,
    KERNEL_SPREAD,
    KERNEL_POOL,
    KERNEL_UPDATE,
    KERNEL_UPDATE_GROUPS,
    KERNEL_UPDATE_PLACE,
    KERNEL_SQUARES,
    KERNEL_REFRESH,
    KERNELS
};

struct gpu_device : gpu_context {
    frugal *f;
    const frugal_store *store;
    uint32_t device;
    frugal_cuda_desc desc;
    cudaStream_t stream, ahead_stream; /* the caller's; ours, for copies ahead */
    /* Blocks that the GPU holds at a time, of kernels for floats and for any types, an element and four at a time. */
    uint32_t resident[KERNELS][2][2];
    gpu_view view;
    shared_pins *pins;
    int waits_for_gates; /* one of pins->gates_users */
    pinned_memory blocks, batches, guests;
    int node;                        /* of the machine, that the GPU is at; -1: not known */
    unsigned char *blocks_seen;      /* where the GPU sees the first block */
    uint32_t *batches_seen;          /* ... the announced batches; NULL: they are not pinned */
    unsigned char *guests_seen;      /* ... rows of other machines; NULL: there are none */
    const unsigned char *alone_seen; /* ... FRUGAL_MEMORY_ALONE; NULL: no row is updated in place */
    control_words *control;          /* in host memory (open_words); the view has its address on the GPU */
    pinned_memory control_memory;
    frugal_hyper *hypers_sent; /* behind `control`; the view has its address, too */
    float *test_row; /* [copy_stride], behind `control` too: stands for a host row; NULL: none is updated in place */
    /* Only if updates are kept: the stream of the kernels that write back; how many of them were enqueued, written
     * under the device's lock; memory for rows that the host asks for, and where the GPU sees it. */
    cudaStream_t back_stream;
    uint64_t cleanings, recall_ends[FRUGAL_P2F_SLOTS]; /* recall_ends[t mod 64]: `cleanings` after those of step t */
    cudaEvent_t given_event;                           /* after the update of step `given` - 1 */
    uint64_t given;
    uint32_t *asked;
    const uint32_t *asked_seen;
    float *squares,
        *squares_seen;       /* squares[max_keys], in host memory, and where the GPU sees it; NULL: not made yet */
    uint64_t gates_enqueued; /* step + 1 of the last gate that the stream was given to wait for */
    uint64_t kept_seen, dirtied_seen, cleaned_seen; /* the polling thread's: what it has counted */
    batch_ahead aheads[FRUGAL_P2F_SLOTS];           /* [L + 1], by announced step */
    sort_scratch sort;
    unsigned char *sort_memory;     /* of `sort` */
    pinned_memory sort_sent_memory; /* of all `aheads`, in host memory (open_words) */
    uint64_t *ones;                 /* bits [max_keys], all set: valid bits of a sorted batch */
    touch_counts counts;
    uint32_t *arrays_memory;
    unsigned char *tail_memory, *tail_sent_memory;
    uint64_t pitch, tail_bytes;                             /* pitch in words; of the longest tail */
    uint32_t *secondaries_memory, *secondaries_sent_memory; /* of all `aheads`; NULL: no row was ever listed */
    float *secondary_copies;                                /* [n_secondaries][copy_stride]: secondaries */
    uint32_t *secondary_rows, n_secondaries; /* secondary_rows[n_secondaries], in host memory: their rows */
    /* Gathered weights, as [max_keys][weights_stride] of the view, and, gathered_state_at bytes behind them, states, as
     * [max_keys][state_stride]; NULL: pinned. */
    unsigned char *gathered;
    uint64_t gathered_state_at;
    uint64_t bytes; /* of the GPU's memory */
    int full;       /* 1: the cache must still be emptied */
    int pools;      /* bags have been looked up: record_of is sent, too. Set by the trainer, read in device_announced */
    uint64_t max_chunks;
    uint64_t gathered_for; /* step + 1 of the last lookup enqueued: its rows are gathered, its hits are counted */
    int replaying;
    uint64_t replays; /* replays begun on the host */
    gpu_watch watch;
    /* The time, in seconds, since which `done` has not moved, or when the watch was last asked; 0: not known. Only the
     * polling thread uses this field and the next. */
    double silent_since;
    uint64_t counted;                       /* steps whose hits are counted */
    uint64_t unique_rows[FRUGAL_P2F_SLOTS]; /* of steps looked up, without those of other machines, for the misses */
};

/* The announced batch of a step. */
static batch_ahead *ahead_of(gpu_device *c, uint64_t step) {
    return &c->aheads[step % (frugal_settings(c->f)->lookahead + 1)];
}

/* Has the GPU's context ended, by cudaDeviceReset or because the process exits? Then all that CUDA has allocated or
 * made there is gone, its memory of the host too, and handles must not be given to CUDA any more. */
static int is_context_gone(CUresult result) {
    return result == (CUresult)cudaErrorContextIsDestroyed || result == (CUresult)cudaErrorDeviceUninitialized ||
           result == (CUresult)cudaErrorCudartUnloading;
}

/* Must no call be given to CUDA? */
static int is_out_of_reach(CUresult result) {
    return is_context_gone(result) || result == GPU_HANGS;
}

/* Is the stream done? The driver is asked, because the runtime would set the thread's last error to "not ready", in
 * place of the caller's. */
static CUresult query_stream(const gpu_device *c, cudaStream_t stream) {
    CUresult result = c->driver.query((CUstream)stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) /* a lost GPU stays lost: asked again */
        result = c->driver.query((CUstream)stream);
    return result;
}

/* Has work been put on a stream that nobody may wait for? Windows and WSL2 keep it back until the stream is queried. */
static void begin_work(const gpu_device *c, cudaStream_t stream) {
    c->driver.query((CUstream)stream);
}

/* What the driver says: CUDA_SUCCESS, if it knows of no error. */
static CUresult ask_driver(gpu_device *c) {
    on_gpu on(c);
    if (is_out_of_reach(on.result)) return on.result;
    CUresult result = query_stream(c, c->ahead_stream);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

/* A call has failed, so the GPU may be lost. The thread whose call it was asks, and the next poll says what the answer
 * was. */
static void note_failure(gpu_device *c) {
    if (c->ahead_stream) /* [C12] pairs with [C13] */
        __atomic_store_n(&c->watch.answer, (int)ask_driver(c), __ATOMIC_RELEASE);
}

static frugal_status fail_cuda(const gpu_device *c, cudaError_t error, const char *what) {
    if (error == (cudaError_t)GPU_HANGS)
        return frugal_fail(FRUGAL_ERR_CUDA,
                           "device %u, GPU %d hangs: it did not copy a word in %.3g s. It may have left its bus: see "
                           "the kernel's log (NVRM: Xid 79), and reset the GPU",
                           c->device, c->ordinal, c->watch.limit);
    return frugal_fail(error == cudaErrorMemoryAllocation ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_CUDA,
                       "device %u, GPU %d: %s: %s (%s)%s", c->device, c->ordinal, what, cudaGetErrorString(error),
                       cudaGetErrorName(error),
                       is_context_gone((CUresult)error) ? "; frugal_close comes before cudaDeviceReset" : "");
}

/* The status for what a CUDA call, or a launch, returned. */
static frugal_status check_cuda(gpu_device *c, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return FRUGAL_OK;
    note_failure(c);
    return fail_cuda(c, error, what);
}

/* Copies, or sets, memory of the GPU, and waits for it. The stream of copies ahead is used, because a copy without a
 * stream waits for all streams that block, and spoils the capture of one. */
static cudaError_t finish_copy(const gpu_device *c, cudaError_t error) {
    cudaError_t waited = cudaStreamSynchronize(c->ahead_stream); /* also after a failure: the caller frees memory */
    if (waited != cudaSuccess) cudaStreamSynchronize(c->ahead_stream); /* try again: it frees it in any case */
    return error == cudaSuccess ? waited : error;
}

static cudaError_t copy_to_gpu(const gpu_device *c, void *to, const void *from, size_t bytes) {
    return finish_copy(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->ahead_stream));
}

static cudaError_t copy_to_host(const gpu_device *c, void *to, const void *from, size_t bytes) {
    return finish_copy(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->ahead_stream));
}

static cudaError_t set_on_gpu(const gpu_device *c, void *to, int value, size_t bytes) {
    return finish_copy(c, cudaMemsetAsync(to, value, bytes, c->ahead_stream));
}

/* May work be put on the caller's stream, which then runs at once? Asking disturbs no capture. */
static frugal_status check_stream(gpu_device *c, const char *call) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(c->stream, &capture);
    if (error == cudaErrorStreamCaptureImplicit)
        return frugal_fail(FRUGAL_ERR_ORDER,
                           "%s: device %u has the default stream, which cannot be used while a stream that blocks is "
                           "being captured: end the capture first, or attach the device with a stream of its own",
                           call, c->device);
    if (error != cudaSuccess) return check_cuda(c, error, call);
    if (capture == cudaStreamCaptureStatusNone) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ORDER,
                       "%s: the stream of device %u is being captured, so the step would not run now: capture it by "
                       "frugal_cuda_capture_lookup and frugal_cuda_capture_update, or end the capture first",
                       call, c->device);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_DEVICE_CUH */
