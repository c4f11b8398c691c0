/* processors.h - the processors that this process may use, and binding threads to them.
 *
 * Two threads that wait for each other many thousand times a second are taken by the kernel for two that need one
 * processor, since each of them sleeps most of the time.
 */
#ifndef FRUGAL_BENCH_PROCESSORS_H
#define FRUGAL_BENCH_PROCESSORS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint32_t bench_processors(void);

/* Binds the calling thread to the processor of that number, from 0 and round and round; does nothing where that is not
 * to be had. */
void bench_bind(uint32_t number);

#ifdef __cplusplus
}
#endif

#endif
