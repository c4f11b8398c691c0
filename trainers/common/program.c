/* Errors, streams, signals, memory for matrix products. */
#include "trainers/common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic(int) has_failed;

int program_has_failed(void) {
    return has_failed;
}

int program_fail(program_error *error, const char *format, ...) {
    va_list list;
    has_failed = 1;
    va_start(list, format);
    vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
    error->damaged = 0;
    return -1;
}

/* text[from] to text[length], cut to what fits. */
static void program_show(const char *text, size_t length, size_t from, char shown[PROGRAM_SHOWN]) {
    size_t room = PROGRAM_SHOWN - 1 - 6, left = length - from;
    int cut = left > room;
    snprintf(shown, PROGRAM_SHOWN, "%s%.*s%s", from ? "..." : "", (int)(cut ? room : left), text + from,
             cut ? "..." : "");
}

void program_show_both(const char *a, size_t length_a, const char *b, size_t length_b, char shown[2][PROGRAM_SHOWN]) {
    enum { WHOLE = PROGRAM_SHOWN - 7, BEFORE = 20 };
    size_t same = 0, from;
    while (same < length_a && same < length_b && a[same] == b[same]) same++;
    from = same > BEFORE && (length_a > WHOLE || length_b > WHOLE) ? same - BEFORE : 0;
    program_show(a, length_a, from, shown[0]);
    program_show(b, length_b, from, shown[1]);
}

void program_open_streams(void) {
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
    signal(SIGXFSZ, SIG_IGN);
}

int program_flush(FILE *stream, const char *name, program_error *error) {
    if (!stream || (!fflush(stream) && !ferror(stream))) return 0;
    return program_fail(error, "cannot write %s: %s", name, strerror(errno));
}

/* ---- Signals ------------------------------------------------------------------------------------------- */

atomic_int program_signalled; /* lock-free: fit for a signal handler */

static atomic_int *_Atomic program_signal_goes_to = &program_signalled;

void program_signals_to(atomic_int *to) {
    program_signal_goes_to = to;
}

static void program_on_signal(int number) {
    *program_signal_goes_to = number; /* the handler is gone after the first: a second Ctrl-C ends at once */
}

static void program_handle_signals(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        int stays = numbers[i] == SIGHUP && !sigaction(SIGHUP, NULL, &before) && before.sa_handler == SIG_IGN;
        if (!stays) sigaction(numbers[i], &action, NULL);
    }
}

void program_catch_signals(void) {
    program_handle_signals(program_on_signal);
}

void program_release_signals(void) {
    program_handle_signals(SIG_DFL);
}

const char *program_signal(void) {
    return program_signalled == SIGINT ? "Ctrl-C" : "a signal";
}

/* ---- Memory and time ----------------------------------------------------------------------------------- */

#define PROGRAM_PRODUCT_BYTES ((size_t)128 << 20) /* a thread's buffer is never larger */

/* Can this many bytes be allocated now? */
static int program_has_memory(size_t bytes) {
    void *volatile probe =
        malloc(bytes); /* volatile: clang would remove an allocation that is only freed, and assume success */
    int has = probe != NULL;
    free(probe);
    return has;
}

int program_reserve_products(size_t threads, const char *remedy, program_error *error) {
    size_t bytes = (threads + 1) * PROGRAM_PRODUCT_BYTES;
    if (program_has_memory(bytes)) return 0;
    return program_fail(error, "%zu bytes for matrix products are not available; %s", bytes, remedy);
}

int program_end(int status, size_t threads) {
    if (program_has_memory((threads + 1) * PROGRAM_PRODUCT_BYTES)) return status;
    fflush(NULL);
    _exit(status);
}

double program_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
