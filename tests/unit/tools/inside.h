/* inside.h - frugal_file, the library with it, compiled into a test: the test's standard output is its own, so what the
 * program prints goes to `printed`. Include first, and do not link frugal_flush.o. */
#ifndef INSIDE_H
#define INSIDE_H

#include <stdarg.h>
#include <stdio.h>
static char printed[4096]; /* what the program has told */
static int tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int tell(const char *format, ...) {
    size_t used = 0;
    va_list arguments;
    while (printed[used]) used++;
    va_start(arguments, format);
    int n = vsnprintf(printed + used, sizeof printed - used, format, arguments);
    va_end(arguments);
    return n;
}
#define printf(...) tell(__VA_ARGS__)
#define main        frugal_file_main
#include "tools/frugal_file.c"
#undef main
#undef printf

int frugal_file_main(int argc, char **argv);

#endif /* INSIDE_H */
