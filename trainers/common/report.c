/* The numbers of reports, and their words. */
#include "trainers/common/report.h"
#include "trainers/common/progress.h"

#include <inttypes.h>
#include <math.h>

void training_add_stats(training_sums *sums, frugal *f) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    sums->stall += stats.stall_seconds;
    sums->hits += stats.hits;
    sums->misses += stats.misses;
}

static double training_share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

training_report training_report_between(const training_sums *from, const training_sums *to, uint32_t devices) {
    double seconds = to->seconds - from->seconds;
    double hits = (double)(to->hits - from->hits), misses = (double)(to->misses - from->misses);
    return (training_report){.step = to->step,
                             .samples = to->samples,
                             .seconds = to->seconds,
                             .samples_per_s = training_share((double)(to->samples - from->samples), seconds),
                             .loss = training_share(to->loss - from->loss, (double)(to->losses - from->losses)),
                             .stall = training_share(to->stall - from->stall, seconds * devices),
                             .hit_rate = training_share(hits, hits + misses)};
}

int training_report_is_due(const training_reporter *reporter, uint64_t step, double seconds) {
    return reporter->function && seconds - reporter->reported.seconds >= reporter->seconds &&
           step > reporter->reported.step;
}

void training_tell(training_reporter *reporter, const training_sums *now, uint32_t devices, double progress) {
    training_report report = training_report_between(&reporter->reported, now, devices);
    report.progress = progress;
    reporter->reported = *now;
    reporter->function(reporter->user, &report);
}

void training_report_line(const training_report *report, const char *samples, uint64_t steps, char *text, size_t size) {
    char of[32] = "", left[32] = "";
    if (steps) snprintf(of, sizeof of, "/%" PRIu64, steps);
    if (report->progress > 0)
        snprintf(left, sizeof left, "  %.0f s left", progress_left(report->seconds, report->progress));
    snprintf(text, size, "step %" PRIu64 "%s%s  %.0f %s/s  loss %.4f  stall %.1f%%  hits %.1f%%", report->step, of,
             left, report->samples_per_s, samples, report->loss, 100 * report->stall, 100 * report->hit_rate);
}

void training_report_json(const training_report *report, const char *samples, FILE *json) {
    char loss[40] = "null"; /* JSON has no word for what is not a number */
    if (!json) return;
    if (isfinite(report->loss)) snprintf(loss, sizeof loss, "%.9g", report->loss);
    fprintf(json,
            "{\"step\": %" PRIu64 ", \"%s\": %" PRIu64 ", \"seconds\": %.3f, \"%s_per_s\": %.0f, \"loss\": %s, "
            "\"stall\": %.4f, \"hit_rate\": %.4f",
            report->step, samples, report->samples, report->seconds, samples, report->samples_per_s, loss,
            report->stall, report->hit_rate);
}

void training_json_end(FILE *json) {
    if (!json) return;
    fputs("}\n", json);
    fflush(json);
}
