/* Two panels of bars. Colours and sizes are those of docs/plots. */
#include "tools/place/picture.h"

#include <inttypes.h>

#define PLACE_BEFORE "#777777"
#define PLACE_AFTER  "#1b6ca8"

enum { PLACE_TOP = 80, PLACE_FOOT = 320, PLACE_BAR = 46, PLACE_GROUP = 118 };

/* A panel's groups begin at `left`; values are shares of 1. */
typedef struct place_panel {
    FILE *stream;
    const char *heading;
    int left, groups;
} place_panel;

static double place_height(double share) {
    return (share < 0 ? 0 : share > 1 ? 1 : share) * (PLACE_FOOT - PLACE_TOP);
}

static void place_text(FILE *stream, double x, double y, const char *anchor, const char *text) {
    fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    for (; *text; text++) switch (*text) {
        case '<':
            fputs("&lt;", stream);
            break;
        case '&':
            fputs("&amp;", stream);
            break;
        default: /* a name may be cut within a character, or may be no UTF-8, which would be no XML */
            fputc((unsigned char)*text < ' ' || (unsigned char)*text > '~' ? '?' : *text, stream);
        }
    fputs("</text>\n", stream);
}

static void place_axis(const place_panel *panel) {
    int right = panel->left + panel->groups * PLACE_GROUP;
    char text[16];
    place_text(panel->stream, panel->left, PLACE_TOP - 28, "start", panel->heading);
    for (int tick = 0; tick <= 5; tick++) {
        double y = PLACE_FOOT - place_height(tick / 5.0);
        fprintf(panel->stream, "<path d=\"M%d,%.1f H%d\" stroke=\"%s\"/>\n", panel->left, y, right,
                tick ? "#dddddd" : "#000000");
        snprintf(text, sizeof text, "%.1f", tick / 5.0);
        place_text(panel->stream, panel->left - 6, y + 4, "end", text);
    }
}

static void place_bar(const place_panel *panel, double x, double share, const char *colour) {
    double height = place_height(share);
    char text[16];
    fprintf(panel->stream, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"/>\n", x,
            PLACE_FOOT - height, PLACE_BAR, height, colour);
    snprintf(text, sizeof text, "%.2f", share);
    place_text(panel->stream, x + PLACE_BAR / 2.0, PLACE_FOOT - height - 4, "middle", text);
}

/* A group of one or two bars with two lines below it. `before` below 0: there is none. */
static void place_group(const place_panel *panel, int group, double before, double after, const char *const name[2]) {
    double middle = panel->left + (group + .5) * PLACE_GROUP, left = middle - PLACE_BAR / 2.0;
    if (before >= 0) {
        left = middle + 1;
        place_bar(panel, middle - PLACE_BAR - 1, before, PLACE_BEFORE);
    }
    place_bar(panel, left, after, PLACE_AFTER);
    for (int i = 0; i < 2; i++) place_text(panel->stream, middle, PLACE_FOOT + 18 + 16 * i, "middle", name[i]);
}

static void place_key(const place_figures *before, const place_figures *after, FILE *stream) {
    const char *const colours[] = {PLACE_BEFORE, PLACE_AFTER};
    const place_figures *const figures[] = {before, after};
    for (int i = 0, x = 60; i < 2; i++) {
        if (!figures[i]) continue;
        fprintf(stream, "<rect x=\"%d\" y=\"372\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x, colours[i]);
        place_text(stream, x + 20, 384, "start", figures[i]->method);
        x += 120;
    }
}

void place_picture(const place_figures *before, const place_figures *after, const char *title, FILE *stream) {
    const frugal_place_report *new = &after->report, *old = before ? &before->report : new;
    double whole = old->reads > 0 ? old->reads : 1;
    char rows[32], heading[80];
    place_panel share = {stream, "share of the touches that are local", 60, 2};
    place_panel reads = {stream, heading, 380, 3};
    snprintf(rows, sizeof rows, "with %" PRIu64, after->replicas);
    snprintf(heading, sizeof heading, "rows read in a step (1: %.0f, %s parts)", whole,
             before ? before->method : "these");
    fputs("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"
          "<svg width=\"760\" height=\"400\" viewBox=\"0 0 760 400\" xmlns=\"http://www.w3.org/2000/svg\" "
          "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"760\" height=\"400\" fill=\"#ffffff\"/>\n",
          stream);
    place_text(stream, 380, 24, "middle", title);
    place_axis(&share);
    place_group(&share, 0, before ? old->local_share : -1, new->local_share,
                (const char *const[]){"without", "secondaries"});
    place_group(&share, 1, before ? before->replicated_share : -1, after->replicated_share,
                (const char *const[]){rows, "secondaries"});
    place_axis(&reads);
    place_group(&reads, 0, before ? old->reads / whole : -1, new->reads / whole,
                (const char *const[]){"without", "cache"});
    place_group(&reads, 1, before ? (old->reads - before->preloaded) / whole : -1,
                (new->reads - after->preloaded) / whole, (const char *const[]){rows, "preloaded"});
    place_group(&reads, 2, before ? (old->reads - old->hits) / whole : -1, (new->reads - new->hits) / whole,
                (const char *const[]){"every row", "kept"});
    place_key(before, after, stream);
    fputs("</svg>\n", stream);
}
