/* scan.h - what it costs frugal_pq.h to look for the lowest occupied slot.
 *
 * The paper keeps the range of occupied priorities, so that nobody scans all of its max_step + 2 slots (scan
 * compression). frugal_pq.h has 64 slots and begins at the window's first; what a range would save it is what passing
 * empty slots costs. */
#ifndef FRUGAL_BENCH_QUEUES_SCAN_H
#define FRUGAL_BENCH_QUEUES_SCAN_H

void bench_scan(int json); /* prints a table, or one object a line */

#endif
