/* frugal_cuda_serve.cu - tables that are only read, on GPUs (frugal_cuda_serve.h). It is compiled as frugal_cuda.cu is,
 * which it does not need. It has a copy of frugal_place.h's functions of its own: a program that makes plans defines
 * FRUGAL_PLACE_IMPLEMENTATION in one of its files.
 *
 * Its parts, src/cuda/, each of which calls and includes only parts above it in this list:
 *
 *   toolkit.cuh     CUDA, or its replacement on the host; how kernels are launched
 *   context.cuh     a GPU that is used: the driver's calls, its context, a thread's visit to it
 *   registration.cuh  memory of the host, registered for all GPUs, in pieces
 *   view.cuh        constants of all kernels; the rest of it is for frugal_cuda.cu
 *   rows.cuh        atomics; moving rows; groups of lanes
 *   types.cuh       moving elements of any type, and widening them; forms of kernels
 *   extract.cuh     kernels: copy rows, pool rows, each from where this GPU reads it
 *   served.cuh      a version: the pinned table, caches filled by a placement, words that say where rows are read
 *   serving.cuh     lookups, refresh, placing, opening, closing
 *
 * WHY ONE WORD A ROW. Where a row is read is decided when a version is made, for every row and GPU. So a lookup needs
 * one word and then the row: no directory that is searched, no replacement, and no exchange between GPUs. UGache keeps
 * a hash table of cached rows instead; with 4 bytes a row, and rows of 128 bytes or more, the words take about 3% of
 * the table's size, or less, and a lookup has one dependent read less.
 *
 * VERSIONS. A version never changes once lookups see it, so that each of them sees one, whole. The next is made beside
 * it, from the memory that the host's server holds for as long as that takes. It shares the pinned table, and, unless
 * rows are placed anew, the caches. Rows in which it differs from the base lie in pinned memory of its own. A lookup is
 * enqueued under a lock of its GPU, and an event follows it on its stream; the old version is freed when these events
 * have come.
 */
#ifndef FRUGAL_NO_SERVING
#undef FRUGAL_STATIC
#define FRUGAL_STATIC /* the program's own copy of the next, if there is one, stays its own */
#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"
#undef FRUGAL_STATIC
#include "src/cuda/toolkit.cuh"
#include "src/cuda/context.cuh"
#include "src/cuda/registration.cuh"
#include "src/cuda/view.cuh"
#include "src/cuda/rows.cuh"
#include "src/cuda/types.cuh"
#include "src/cuda/extract.cuh"
#include "src/cuda/served.cuh"
#include "src/cuda/serving.cuh"
#endif /* FRUGAL_NO_SERVING */
