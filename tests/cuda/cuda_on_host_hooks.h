/* cuda_on_host_hooks.h - what tests can ask of the devices of tests/cuda/cuda_on_host.h: how many there are, which call
 * fails, when a device is lost, what was called. For C and C++; every function may be called from any host thread. */
#ifndef CUDA_ON_HOST_HOOKS_H
#define CUDA_ON_HOST_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Everything as it was when the program began: queued work is dropped, streams, events, graphs and memory are freed,
 * the hooks are taken back, counts are zero. No other thread may be within a call, and no handle is good any longer. */
void cuda_on_host_reset(void);

/* >>devices: two, or FRUGAL_CUDA_DEVICES; 0 to 16, before any is used (or after a reset) */
void cuda_on_host_set_devices(int n);
void cuda_on_host_set_memory(size_t bytes);   /* of each device: cudaMalloc fails above it; 4 GiB */
void cuda_on_host_set_multiprocessors(int n); /* of each device: 2 n blocks are resident at a time; 2 */
/* What cudaDeviceGetAttribute says of every device; FRUGAL_CUDA_ATTRIBUTES=attribute=value,... for programs. */
void cuda_on_host_set_attribute(int attribute, int value);

/* How devices read each other's memory; FRUGAL_CUDA_PEERS, or NONE.
 * NONE: they cannot. REAL: all can, once cudaDeviceEnablePeerAccess was called; until then their kernels read zeros
 * there. FALSE: the driver says that they can, and they read zeros. As long as there are zeros to read, one kernel may
 * run at a time. Where accesses are checked (on_host/pages.h), a kernel that touches what it cannot read ends the
 * process, except that FALSE looks like access. */
enum { CUDA_ON_HOST_PEERS_NONE, CUDA_ON_HOST_PEERS_REAL, CUDA_ON_HOST_PEERS_FALSE };
void cuda_on_host_set_peers(int how);

/* >>schedules: FRUGAL_CUDA_SEED, or 1; `every`: a thread lets another run at one of so many atomics (16; 0: never) */
void cuda_on_host_set_seed(uint64_t seed);
uint64_t cuda_on_host_seed(void);
void cuda_on_host_set_switches(unsigned every);
/* Sleeps before each operation of a stream (a cudaStream_t; NULL: of every stream). */
void cuda_on_host_delay(void *stream, unsigned microseconds);

/* >>failures. The nth call from now (1: the next one) returns `error` and does nothing; n = 0 takes it back. Named:
 * only calls of that function count. A launch is a call of "cudaLaunchKernel". cuda_on_host_has_failed: it has come to
 * that. */
void cuda_on_host_fail_call(uint64_t n, int error);
void cuda_on_host_fail_named(const char *name, uint64_t n, int error);
int cuda_on_host_has_failed(void);
/* From now on, or as the nth kernel of the device would begin, work of the device is dropped, and its calls return
 * cudaErrorLaunchFailure. Kernels that run are abandoned where threads switch. Device 0's nth for programs without a
 * call of this: FRUGAL_CUDA_LOSE_AT_LAUNCH=n. */
void cuda_on_host_lose_device(int device);
void cuda_on_host_lose_at_launch(int device, uint64_t n);
/* What devices have done by now comes before what the caller does next, although it waits for none: it frees memory
 * that a device which hangs has written. */
void cuda_on_host_see_done(void);
/* From now on the device does nothing, and its calls do not say so, as of one that has left its bus: work stays queued,
 * and who waits for it waits, until the device is lost or everything is reset. */
void cuda_on_host_silence_device(int device);
/* 1: work of a stream does not begin before somebody queries the stream or waits for it, as with WSL2 and Windows. */
void cuda_on_host_hold_launches(int holds);
/* cudaHostRegister returns `error` (0: takes it back), for every address or only for those that map a file. */
void cuda_on_host_refuse_register(int error, int only_files);
/* Devices reach other pages at these addresses of the host, as where memory that lay there before is still registered.
 * 0 bytes: takes it back. */
void cuda_on_host_leave_stale(void *memory, size_t bytes);

/* >>what was called, since the last reset: calls of a function, or of all (NULL); and calls that wait for a device */
uint64_t cuda_on_host_count(const char *name);
uint64_t cuda_on_host_synchronizations(void);
/* Calls that were given NULL for a stream, or none: which stream that is depends on how the caller was compiled. */
uint64_t cuda_on_host_default_streams(void);
/* What exists now: blocks of memory of devices and of hosts, registrations, reserved addresses and memory for them,
 * streams, events, graphs. */
uint64_t cuda_on_host_alive(void);
/* Is there a context on the device? Calls of the runtime that work on a thread's device make one, cudaSetDevice too,
 * and who retains it. */
int cuda_on_host_has_context(int device);

/* Called with the message of a check that failed, before the process ends with status 98. */
void cuda_on_host_on_failure(void (*report)(const char *message));

#ifdef __cplusplus
}
#endif
#endif /* CUDA_ON_HOST_HOOKS_H */
