/* coverage_exit.h - where coverage is counted, this is included before everything else: processes that tests fork end
 * by _exit, which does not write what was counted. */
#ifndef COVERAGE_EXIT_H
#define COVERAGE_EXIT_H

#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

void __gcov_dump(void);

__attribute__((noreturn, unused)) static void coverage_exit(int status) {
    __gcov_dump();
    _exit(status);
}

#ifdef __cplusplus
}
#endif

#define _exit coverage_exit

#endif
