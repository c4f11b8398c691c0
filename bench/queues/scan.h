/* scan.h - the cost of finding the lowest occupied slot in frugal_pq.h.
 *
 * The paper keeps the range of occupied priorities, so that a scan does not pass all of its max_step + 2 slots (scan
 * compression). frugal_pq.h has 64 slots and begins at the window's first; a range would save it the cost of passing
 * empty slots. */
#ifndef FRUGAL_BENCH_QUEUES_SCAN_H
#define FRUGAL_BENCH_QUEUES_SCAN_H

void bench_scan(int json); /* prints a table, or one object a line */

#endif
