/* processors.h - the processors that this process may use, and binding threads to them.
 *
 * Why binding: the kernel puts two threads that wait for each other thousands of times a second on one processor,
 * because each of them sleeps most of the time.
 */
#ifndef FRUGAL_BENCH_PROCESSORS_H
#define FRUGAL_BENCH_PROCESSORS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint32_t bench_processors(void);

/* Binds the calling thread to the processor with this number, from 0, modulo their number. Does nothing if that is not
 * possible. */
void bench_bind(uint32_t number);

#ifdef __cplusplus
}
#endif

#endif
