/* What both rewritings do on the way: progress, and the maps that they leave. */
#include "tools/reorder/work.h"

#include <inttypes.h>
#include <stdio.h>

int reorder_go_on(reorder_work *work, const char *what, uint64_t samples, program_error *error) {
    double seconds = program_now() - work->started;
    char text[80];
    if (program_signalled) return program_fail(error, "ended by %s; nothing is written", program_signal());
    if (seconds < 1) return 0;
    snprintf(text, sizeof text, "%s %" PRIu64 " samples", what, samples);
    progress_show(&work->line, text, seconds, 0);
    return 0;
}

int reorder_write_map(reorder_work *work, const char *name, const uint32_t *numbers, uint64_t n, program_error *error) {
    FILE *file = save_open(work->set, name, error);
    if (!file) return -1;
    save_begin_array(file, "u4", n, SAVE_VECTOR);
    fwrite(numbers, sizeof *numbers, n, file);
    return save_close(work->set, name, error);
}
