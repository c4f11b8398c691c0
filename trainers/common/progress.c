/* The line of progress, the curve of evaluations, and the table of what the flushing did. */
#include "trainers/common/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PROGRESS_FILE_SECONDS 5

progress_line progress_begin(double report_seconds) {
    return (progress_line){.terminal = isatty(STDERR_FILENO), .every = report_seconds >= 0 ? 0 : PROGRESS_FILE_SECONDS};
}

static int progress_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2 ? 80 : size.ws_col;
}

void progress_show(progress_line *line, const char *text, double seconds, int last) {
    if (!line->terminal && seconds < line->due && !last) return;
    line->due = seconds + line->every;
    int length = (int)strlen(text);
    int room = line->terminal ? progress_columns() - 1 : length; /* a line that wraps could not be rewritten */
    fprintf(stderr, "%s%.*s%s", line->terminal ? "\r" : "", length < room ? length : room, text,
            line->terminal ? "\033[K" : "\n");
    line->open = line->terminal;
    fflush(stderr);
}

void progress_end(progress_line *line) {
    if (line->open) fputc('\n', stderr);
    line->open = 0;
}

double progress_left(double seconds, double share) {
    return share > 0 ? seconds * (1 - share) / share : 0;
}

int progress_add(progress_curve *curve, uint64_t step, double seconds, double value, program_error *error) {
    progress_moment *more = realloc(curve->moments, (curve->n + 1) * sizeof *more);
    if (!more) return program_fail(error, "out of memory");
    curve->moments = more;
    curve->moments[curve->n++] = (progress_moment){step, seconds, value};
    return 0;
}

void progress_write_curve(const progress_curve *curve, FILE *stream) {
    for (size_t i = 0; i < curve->n; i++)
        fprintf(stream, "%" PRIu64 " %a %a\n", curve->moments[i].step, curve->moments[i].seconds,
                curve->moments[i].value);
}

int progress_read_curve(progress_curve *curve, FILE *stream, program_error *error) {
    uint64_t step;
    double seconds, value;
    int got;
    while ((got = fscanf(stream, "%" SCNu64 " %lf %lf", &step, &seconds, &value)) == 3)
        if (progress_add(curve, step, seconds, value, error)) return -1;
    return got == EOF ? 0 : program_fail(error, "no curve of evaluations, or a damaged one");
}

void progress_show_curve(const progress_curve *curve, const char *name, double base) {
    double top = base + 1e-9;
    int width = strlen(name) < 9 ? 9 : (int)strlen(name);
    for (size_t i = 0; i < curve->n; i++) top = fmax(top, curve->moments[i].value);
    size_t every = (curve->n + 15) / 16;
    if (curve->n) printf("\n   step   seconds  %s\n", name);
    for (size_t i = 0; i < curve->n; i++) {
        if ((curve->n - 1 - i) % every) continue;
        const progress_moment *moment = &curve->moments[i];
        char value[16] = "none";
        int length = (int)(50 * fmax(0, moment->value - base) / (top - base) + 0.5);
        if (isfinite(moment->value)) snprintf(value, sizeof value, "%.4f", moment->value);
        printf("%7" PRIu64 "  %8.2f  %*s  %.*s\n", moment->step, moment->seconds, width, value, length,
               "##################################################");
    }
}

void progress_free(progress_curve *curve) {
    free(curve->moments);
    *curve = (progress_curve){0};
}

void progress_show_flushing(const frugal_stats *stats, const progress_setup *setup) {
    double seconds = setup->seconds, flushed = stats->flushed ? (double)stats->flushed : 1;
    uint64_t rows = stats->hits + stats->misses, touched = stats->alone + stats->shared;
    printf("\nwhat the flushing did (%s, %u devices, %u workers, lookahead %u)\n",
           setup->mode == FRUGAL_P2F ? "p2f" : "sync", setup->devices, setup->workers, setup->lookahead);
    printf("  rows looked up    %" PRIu64 " in %" PRIu64 " steps; %" PRIu64 " from a device's cache (%.1f%%)\n", rows,
           stats->steps, stats->hits, rows ? 100.0 * (double)stats->hits / (double)rows : 0.0);
    printf("  gates             %" PRIu64 " of %" PRIu64
           " lookups waited; stall %.3f s of %.3f device seconds (%.1f%%)\n",
           stats->gate_waits, stats->steps * setup->devices, stats->stall_seconds, seconds * setup->devices,
           seconds > 0 ? 100 * stats->stall_seconds / (seconds * setup->devices) : 0.0);
    printf("  rows of a step    touched by one device: %.1f%%; rows updated in place by that device: %" PRIu64 "\n",
           touched ? 100.0 * (double)stats->alone / (double)touched : 0.0, stats->in_place);
    if (stats->kept)
        printf("  ... kept          %" PRIu64 " of these, in its cache; host rows written from there: %" PRIu64 "\n",
               stats->kept, stats->written_back);
    printf("  rows flushed      %" PRIu64 ", by steps left until due:", stats->flushed);
    for (int i = 0; i < 64; i++)
        if (stats->flushed_by_urgency[i] && (double)stats->flushed_by_urgency[i] >= 0.0005 * flushed)
            printf("  %d: %.1f%%", i, 100 * (double)stats->flushed_by_urgency[i] / flushed);
    if (stats->flushed_at_close) printf("  at closing: %.1f%%", 100 * (double)stats->flushed_at_close / flushed);
    printf("\n  queue             %" PRIu64 " stale ids skipped (%.2f a flushed row)\n", stats->stale_ids,
           (double)stats->stale_ids / flushed);
    printf("  staging           %u of %u blocks in use; workers busy %.3f s\n", stats->staging_in_use,
           stats->staging_depth, stats->worker_busy_seconds);
    if (stats->resident_bytes)
        printf("  huge pages        %.1f%% of %.2f GB of table, state and words\n",
               100.0 * (double)stats->huge_bytes / (double)stats->resident_bytes, (double)stats->resident_bytes * 1e-9);
    if (stats->nodes) printf("  memory nodes      %u, interleaved\n", stats->nodes);
}
