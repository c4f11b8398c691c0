/* tell.c - failures, and how far a command has come. */
#include "file.h"

static int fail_usage(const char *format, const char *what) {
    fprintf(stderr, "frugal_file: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "; see frugal_file --help\n");
    return 2;
}

static int fail_message(void) {
    fprintf(stderr, "frugal_file: %s\n", frugal_message());
    return 1;
}

typedef struct course { /* progress of a command that takes long */
    progress_line line;
    const char *what;
    uint64_t done, all; /* bytes */
    double begun;
} course;

static course begin_course(const char *what, uint64_t bytes) {
    course c = {.line = progress_begin(-1), .what = what, .all = bytes, .begun = program_now()};
    c.line.due = c.line.every; /* if stderr is a file: commands of a few seconds print no progress */
    return c;
}

/* Adds `bytes` to what is done. A signal ends the command here, unfinished. */
static frugal_status go_on(course *c, uint64_t bytes) {
    char text[128];
    double seconds = program_now() - c->begun;
    c->done += bytes;
    double share = c->all ? (double)c->done / (double)c->all : 1;
    snprintf(text, sizeof text, "frugal_file: %s: %.2f of %.2f GB, %.0f s left", c->what, (double)c->done * 1e-9,
             (double)c->all * 1e-9, progress_left(seconds, share));
    progress_show(&c->line, text, seconds, c->done == c->all && seconds > c->line.every);
    if (!program_signalled) return FRUGAL_OK;
    return frugal_fail(FRUGAL_STOPPED, "%s ended it; what was begun is removed", program_signal());
}

static void end_course(course *c) {
    progress_end(&c->line);
}
