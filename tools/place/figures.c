/* Figures of a partition: computed, as a table, as JSON. */
#include "tools/place/figures.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The homes of several machines, and what they are worth. */
static int place_take_homes(place_figures *figures, const frugal_place *place, program_error *error) {
    homes_desc desc = {.place = place,
                       .rows = figures->rows,
                       .batch = figures->batch,
                       .devices = figures->devices,
                       .machines = figures->machines};
    if (figures->machines < 2) return 0;
    if (homes_make(&figures->homes, &desc, error)) return -1;
    return place_away_take(&figures->away, &desc, figures->homes.of, error);
}

void place_figures_free(place_figures *figures) {
    homes_free(&figures->homes);
}

int place_figures_take(place_figures *figures, const partition *p, program_error *error) {
    figures->seconds = p->seconds;
    figures->passes = p->passes;
    memcpy(figures->moved, p->moved, sizeof p->moved);
    figures->report = frugal_place_get_report(p->place, figures->batch);
    figures->preloaded = 0;
    figures->replicated_share = figures->report.local_share;
    if (place_take_homes(figures, p->place, error)) return -1;
    return place_profile_take(&figures->profile, p->place, figures->rows, figures->devices, figures->batch, error);
}

int place_figures_rank(place_figures *figures, const frugal_place *place, frugal_place_rank_by by, FILE *list,
                       program_error *error) {
    uint64_t n = figures->replicas;
    uint64_t *keys = malloc((n + 1) * sizeof *keys);
    double *values = malloc((n + 1) * sizeof *values), sum = 0;
    int status =
        keys && values ? 0 : program_fail(error, "out of memory to rank %" PRIu64 " rows; use fewer --replicas", n);
    for (uint32_t device = 0; device < figures->devices && !status; device++) {
        if (program_signalled) status = program_fail(error, "ended by %s while rows were ranked", program_signal());
        uint64_t found = frugal_place_rank(place, device, by, figures->batch, keys, values, n);
        for (uint64_t i = 0; i < found; i++) sum += values[i];
        for (uint64_t i = found; i < n; i++) keys[i] = UINT64_MAX;
        if (list) fwrite(keys, sizeof *keys, n, list);
    }
    if (by == FRUGAL_PLACE_BY_GAIN)
        figures->preloaded += sum;
    else if (figures->report.touches)
        figures->replicated_share += sum / (double)figures->report.touches;
    free(keys);
    free(values);
    return status;
}

/* ---- For people ---------------------------------------------------------------------------------------- */

/* A line of the table: the figure before, if there is one, and after. */
static void place_show(const char *what, const char *format, const place_figures *before, double old, double new) {
    printf("%-44s", what);
    if (before) printf(format, old);
    printf(format, new);
    putchar('\n');
}

/* What crosses the network, and whether machines have about as much each. */
static void place_show_machines(const place_figures *before, const place_figures *after) {
    const place_figures *b = before ? before : after;
    place_show("of these rows, on another machine, in turn", "%12.3f", before, b->away.in_turn, after->away.in_turn);
    place_show("  rows at home where homes.npy says", "%12.3f", before, b->away.placed, after->away.placed);
    place_show("  the most rows of a machine / mean", "%12.3f", before, homes_balance(b->homes.rows, b->machines),
               homes_balance(after->homes.rows, after->machines));
    place_show("  the most rows on the link of one / mean", "%12.3f", before, homes_balance(b->homes.link, b->machines),
               homes_balance(after->homes.link, after->machines));
}

void place_figures_show(const place_figures *before, const place_figures *after) {
    const frugal_place_report *new = &after->report, *old = before ? &before->report : new;
    const place_figures *b = before ? before : after;
    char what[80];
    printf("%" PRIu64 " samples with %" PRIu64 " touches of %" PRIu64 " of %" PRIu64 " rows, %" PRIu32 " devices",
           new->samples, new->touches, new->rows, after->rows, after->devices);
    if (after->machines > 1) printf(" on %" PRIu32 " machines", after->machines);
    fputs("\n\n", stdout);
    printf("%-44s", "");
    if (before) printf("%12s", before->method);
    printf("%12s\n", after->method);
    place_show("local share of the touches", "%12.3f", before, old->local_share, new->local_share);
    snprintf(what, sizeof what, "  with %" PRIu64 " secondaries a device", after->replicas);
    place_show(what, "%12.3f", before, b->replicated_share, after->replicated_share);
    place_show("largest part / mean", "%12.3f", before, old->balance, new->balance);
    snprintf(what, sizeof what, "rows read in a step of %" PRIu64 " samples a device", after->batch);
    place_show(what, "%12.0f", before, old->reads, new->reads);
    snprintf(what, sizeof what, "  with %" PRIu64 " rows preloaded a device", after->replicas);
    place_show(what, "%12.0f", before, old->reads - b->preloaded, new->reads - after->preloaded);
    place_show("  if each device keeps all rows", "%12.0f", before, old->reads - old->hits, new->reads - new->hits);
    if (after->machines > 1) place_show_machines(before, after);
    place_show("seconds to place", "%12.1f", before, b->seconds, after->seconds);
    printf("Rows read are predicted by the closed form of frugal_place.h.\n");
}

/* ---- For machines -------------------------------------------------------------------------------------- */

static void place_json_list(const char *name, const double *values, const char *format, FILE *stream) {
    fprintf(stream, ", \"%s\": [", name);
    for (int i = 0; i < PLACE_CACHES; i++) {
        if (i) fputs(", ", stream);
        fprintf(stream, format, values[i]);
    }
    fputc(']', stream);
}

static void place_json_profile(const place_profile *profile, FILE *stream) {
    fprintf(stream, "\"rows_in_step\": %.3f, \"rows_alone\": %.3f, \"rows_again\": %.3f", profile->rows, profile->alone,
            profile->again);
    place_json_list("caches", place_caches, "%g", stream);
    place_json_list("reads_counted", profile->reads_counted, "%.3f", stream);
    place_json_list("reads_lru", profile->reads_lru, "%.3f", stream);
}

void place_figures_json(const place_figures *figures, FILE *stream) {
    const frugal_place_report *report = &figures->report;
    fprintf(stream,
            PLACE_FIGURES_BEGIN "%s\", \"devices\": %" PRIu32 ", \"clusters\": %" PRIu32 ", \"rows\": %" PRIu64
                                ", \"rows_touched\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"touches\": %" PRIu64 ", ",
            figures->method, figures->devices, figures->clusters, figures->rows, report->rows, report->samples,
            report->touches);
    fprintf(stream,
            "\"batch\": %" PRIu64 ", \"replicas\": %" PRIu64 ", \"local_share\": %.6f, \"local_share_replicas\": %.6f, "
            "\"balance\": %.6f, \"reads\": %.3f, \"reads_preloaded\": %.3f, \"reads_all_kept\": %.3f, ",
            figures->batch, figures->replicas, report->local_share, figures->replicated_share, report->balance,
            report->reads, report->reads - figures->preloaded, report->reads - report->hits);
    if (figures->machines > 1)
        fprintf(stream,
                "\"machines\": %" PRIu32 ", \"away_in_turn\": %.6f, \"away_placed\": %.6f, \"homes_balance\": %.6f, "
                "\"link_balance\": %.6f, ",
                figures->machines, figures->away.in_turn, figures->away.placed,
                homes_balance(figures->homes.rows, figures->machines),
                homes_balance(figures->homes.link, figures->machines));
    place_json_profile(&figures->profile, stream);
    fputs(", \"moved\": [", stream);
    for (uint32_t i = 0; i < figures->passes; i++) fprintf(stream, "%s%" PRIu64, i ? ", " : "", figures->moved[i]);
    fprintf(stream, "], \"seconds\": %.3f}\n", figures->seconds);
}
