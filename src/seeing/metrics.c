/* metrics.c - what instances have counted, as OpenMetrics text, for a scraper: frugal_write_metrics.
 *
 * The text has all samples of a family together, so instances that are written by one call share its families. A family
 * is a name, its type and unit, and a function that prints the samples of one instance. Each number is read once, when
 * it is printed; numbers of different lines may be of different moments.
 *
 * Contents: >>text >>instance >>devices >>tables >>all
 */
#include "seeing.h"

#include <inttypes.h>
#include <math.h>

/* >>text */

typedef struct metrics_text { /* like snprintf: what does not fit is only counted */
    char *to;
    size_t size, used;
    const char *family; /* whose samples are printed */
    frugal *f;
    char store[512];    /* its label, escaped: store="...", or nothing */
    frugal_stats stats; /* of f */
    int exact;          /* 1: all of it fits; the interval's worst values are reset when they are printed */
} metrics_text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
metrics_print(metrics_text *out, const char *format, ...) {
    va_list arguments;
    size_t left = out->used < out->size ? out->size - out->used : 0;
    va_start(arguments, format);
    int n = vsnprintf(left ? out->to + out->used : NULL, left, format, arguments);
    va_end(arguments);
    out->used += n > 0 ? (size_t)n : 0;
}

/* Begins a sample: its name and labels, up to the blank before the value. `labels` as a="b",c="d", or empty. */
static void metrics_name(metrics_text *out, const char *suffix, const char *labels) {
    const char *comma = *out->store && *labels ? "," : "";
    int any = *out->store || *labels;
    metrics_print(out, "%s%s%s%s%s%s%s ", out->family, suffix, any ? "{" : "", out->store, comma, labels,
                  any ? "}" : "");
}
static void metrics_count(metrics_text *out, const char *suffix, const char *labels, uint64_t value) {
    metrics_name(out, suffix, labels);
    metrics_print(out, "%" PRIu64 "\n", value);
}
static void metrics_seconds(metrics_text *out, const char *suffix, const char *labels, uint64_t ns) {
    metrics_name(out, suffix, labels);
    metrics_print(out, "%" PRIu64 ".%09u\n", ns / 1000000000, (unsigned)(ns % 1000000000));
}

/* Writes the label of an instance, with the escapes of OpenMetrics. What does not fit is cut off, at the end of a whole
 * UTF-8 character. */
static void metrics_store(metrics_text *out, const char *name) {
    enum { LONGEST = 2 * 200 };
    size_t at = (size_t)snprintf(out->store, sizeof out->store, "store=\"");
    for (; *name && at < LONGEST; name++) {
        if (*name == '\n')
            out->store[at++] = '\\', out->store[at++] = 'n';
        else if (*name == '"' || *name == '\\')
            out->store[at++] = '\\', out->store[at++] = *name;
        else
            out->store[at++] = *name;
    }
    while (*name && ((unsigned char)*name & 0xc0) == 0x80 && at > 7) /* in the middle of a character */
        name--, at--;
    out->store[at++] = '"', out->store[at] = 0;
}

/* >>instance - one sample, or a few, for each instance */

static void print_steps(metrics_text *out) {
    metrics_count(out, "_total", "", out->stats.steps);
}
static void print_idle(metrics_text *out) {
    metrics_count(out, "_total", "", out->stats.idle_steps);
}
static void print_nonfinite(metrics_text *out) {
    metrics_count(out, "", "", out->stats.nonfinite_rows);
}
static void print_asked(metrics_text *out) {
    metrics_count(out, "_total", "", out->stats.pages_asked);
}
static void print_ended(metrics_text *out) { /* relaxed, both: one moment is as good as another */
    metrics_count(out, "", "why=\"lost\"", frugal_load_relaxed(&out->f->loss.device) != 0);
    metrics_count(out, "", "why=\"stopped\"", frugal_load_relaxed(&out->f->stopped) != 0);
}
static void print_work(metrics_text *out) { /* relaxed, all: statistics order nothing */
    frugal *f = out->f;
    metrics_seconds(out, "_total", "work=\"sort\"", frugal_load_relaxed(&f->work.sort_ns));
    metrics_seconds(out, "_total", "work=\"plan\"", frugal_load_relaxed(&f->work.plan_ns));
    metrics_seconds(out, "_total", "work=\"close\"", frugal_load_relaxed(&f->work.close_ns));
    metrics_seconds(out, "_total", "work=\"flush\"", frugal_load_relaxed(&f->work.flush_ns));
}
static void print_workers(metrics_text *out) {
    metrics_seconds(out, "_total", "", frugal_load_relaxed(&out->f->work.busy_ns)); /* relaxed: a statistic */
}
static void print_updates(metrics_text *out) {
    const frugal_stats *s = &out->stats;
    uint64_t queued = 0; /* not `flushed` minus `flushed_at_close`: one may be read later than the other */
    for (uint32_t i = 0; i < FRUGAL_P2F_SLOTS; i++) queued += s->flushed_by_urgency[i];
    metrics_count(out, "_total", "way=\"queued\"", queued);
    metrics_count(out, "_total", "way=\"closing\"", s->flushed_at_close);
    metrics_count(out, "_total", "way=\"in_place\"", s->in_place);
}
static void print_touched(metrics_text *out) {
    metrics_count(out, "_total", "by=\"one\"", out->stats.alone);
    metrics_count(out, "_total", "by=\"several\"", out->stats.shared);
}
static void print_queue(metrics_text *out) {
    char label[32];
    for (uint32_t due = 0; due <= out->f->desc.staging; due++) {
        int64_t rows = out->stats.queue_depth[due % FRUGAL_P2F_SLOTS];
        snprintf(label, sizeof label, "due=\"%" PRIu32 "\"", due);
        metrics_count(out, "", label, rows > 0 ? (uint64_t)rows : 0);
    }
}
static void print_kept(metrics_text *out) {
    metrics_count(out, "", "", out->stats.kept_now);
}
static void print_staging(metrics_text *out) {
    metrics_count(out, "", "state=\"in_use\"", out->stats.staging_in_use);
    metrics_count(out, "", "state=\"free\"",
                  out->stats.staging_depth - LEAST(out->stats.staging_depth, out->stats.staging_in_use));
}
/* Where the table is dealt over machines. */
static void print_wire(metrics_text *out, const char *direction, const uint64_t *counts) {
    static const char *const messages[FRUGAL_WIRE_KINDS] = {"keys", "early", "rows", "records", "calls"};
    char label[64];
    for (uint32_t k = 0; k < FRUGAL_WIRE_KINDS; k++) {
        snprintf(label, sizeof label, "direction=\"%s\",message=\"%s\"", direction, messages[k]);
        metrics_count(out, "_total", label, counts[k]);
    }
}
static void print_messages(metrics_text *out) {
    frugal_wire_counts counts;
    if (!out->f->dealing || frugal_get_wire_counts(out->f, &counts) != FRUGAL_OK) return;
    print_wire(out, "sent", counts.sent);
    print_wire(out, "received", counts.received);
}
static void print_message_bytes(metrics_text *out) {
    frugal_wire_counts counts;
    if (!out->f->dealing || frugal_get_wire_counts(out->f, &counts) != FRUGAL_OK) return;
    print_wire(out, "sent", counts.sent_bytes);
    print_wire(out, "received", counts.received_bytes);
}
static void print_memory(metrics_text *out) {
    metrics_count(out, "", "what=\"rows\"", out->stats.state_bytes);
    metrics_count(out, "", "what=\"other\"", out->stats.other_bytes);
}

static void print_pages(metrics_text *out) {
    uint64_t huge = out->stats.huge_bytes, all = out->stats.resident_bytes;
    metrics_count(out, "", "pages=\"huge\"", huge);
    metrics_count(out, "", "pages=\"small\"", all - LEAST(huge, all));
}

/* >>devices - a sample, or a few, for each device. Relaxed, all: statistics order nothing. */

typedef struct device_label {
    char text[64];
} device_label;

static device_label label_of(uint32_t d, const char *more, const char *value) {
    device_label label;
    int n = snprintf(label.text, sizeof label.text, "device=\"%" PRIu32 "\"", d);
    if (more) snprintf(label.text + n, sizeof label.text - (size_t)n, ",%s=\"%s\"", more, value);
    return label;
}

#define PRINT_BY_DEVICE(function, print, field)                                                                        \
    static void function(metrics_text *out) {                                                                          \
        for (uint32_t d = 0; d < out->f->desc.devices; d++)                                                            \
            print(out, "_total", label_of(d, NULL, NULL).text, frugal_load_relaxed(&out->f->devices[d].field));        \
    }
PRINT_BY_DEVICE(print_keys, metrics_count, keys)
PRINT_BY_DEVICE(print_rows, metrics_count, unique_rows)
PRINT_BY_DEVICE(print_hits, metrics_count, counts->hits)
PRINT_BY_DEVICE(print_misses, metrics_count, counts->misses)
PRINT_BY_DEVICE(print_stale, metrics_count, secondary_hits)
PRINT_BY_DEVICE(print_keeping, metrics_count, keeping.kept)
PRINT_BY_DEVICE(print_written_back, metrics_count, keeping.written_back)
PRINT_BY_DEVICE(print_barrier, metrics_seconds, barrier_ns)
PRINT_BY_DEVICE(print_stall, metrics_seconds, stall_ns)
PRINT_BY_DEVICE(print_announce, metrics_seconds, announce_ns)
#undef PRINT_BY_DEVICE

/* As "1.048576": not by printf's doubles, whose point is a comma in some locales. */
static void print_millionths(char *to, size_t size, uint64_t n) {
    snprintf(to, size, "%" PRIu64 ".%06u", n / 1000000, (unsigned)(n % 1000000));
}

static void print_waits(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++) {
        gate_waits *waits = &out->f->devices[d].waits;
        uint64_t sum = 0;
        char bound[32];
        for (uint32_t i = 0; i < WAIT_BUCKETS; i++) {
            sum += frugal_load_relaxed(&waits->buckets[i]);
            if (i + 1 < WAIT_BUCKETS)
                print_millionths(bound, sizeof bound, UINT64_C(1) << 2 * i);
            else
                snprintf(bound, sizeof bound, "+Inf");
            metrics_count(out, "_bucket", label_of(d, "le", bound).text, sum);
        }
        metrics_count(out, "_count", label_of(d, NULL, NULL).text, sum);
        metrics_seconds(out, "_sum", label_of(d, NULL, NULL).text, frugal_load_relaxed(&waits->ns));
    }
}

static void print_causes(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++)
        for (uint32_t i = CAUSE_COMMIT; i <= (out->f->dealing ? CAUSE_MACHINES : CAUSE_FLUSH); i++)
            metrics_seconds(out, "_total", label_of(d, "cause", cause_names[i]).text,
                            frugal_load_relaxed(&out->f->devices[d].waits.cause_ns[i]));
}

/* The longest wait of the interval. The next family prints its step, and ends the interval. */
static void print_worst(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++) {
        gate_waits *waits = &out->f->devices[d].waits;
        pthread_mutex_lock(&waits->worst.lock);
        uint64_t ns = frugal_load_relaxed(&waits->worst.ns);
        const char *cause = cause_names[ns ? waits->worst.cause : CAUSE_NONE];
        waits->shown.step = ns ? waits->worst.step : 0, waits->shown.cause = ns ? waits->worst.cause : CAUSE_NONE;
        if (out->exact) frugal_store_relaxed(&waits->worst.ns, 0);
        pthread_mutex_unlock(&waits->worst.lock);
        metrics_seconds(out, "", label_of(d, "cause", cause).text, ns);
    }
}
static void print_worst_step(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++) {
        const gate_waits *waits = &out->f->devices[d].waits;
        metrics_count(out, "", label_of(d, "cause", cause_names[waits->shown.cause]).text, waits->shown.step);
    }
}

static const char *const crossings[3] = {"read", "written", "written_back"};

static void print_link_rows(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++)
        for (uint32_t i = 0; i < 3 && frugal_load_relaxed(&out->f->devices[d].counts->counts_link); i++)
            metrics_count(out, "_total", label_of(d, "way", crossings[i]).text,
                          frugal_load_relaxed(&out->f->devices[d].counts->link_rows[i]));
}
static void print_link_bytes(metrics_text *out) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++)
        for (uint32_t i = 0; i < 3 && frugal_load_relaxed(&out->f->devices[d].counts->counts_link); i++)
            metrics_count(out, "_total", label_of(d, "way", crossings[i]).text,
                          frugal_load_relaxed(&out->f->devices[d].counts->link_bytes[i]));
}

/* >>tables - for each device and table that it has looked up and counted. Relaxed, all: statistics order nothing. */

typedef enum { TABLE_HITS, TABLE_MISSES, TABLE_WORST } table_field;

static void print_tables(metrics_text *out, table_field field) {
    for (uint32_t d = 0; d < out->f->desc.devices; d++)
        for (uint32_t t = 0; t < out->f->desc.n_tables; t++) {
            table_hits *at = &out->f->devices[d].by_table[t];
            uint64_t hits = frugal_load_relaxed(&at->hits), misses = frugal_load_relaxed(&at->misses);
            char number[16];
            snprintf(number, sizeof number, "%" PRIu32, t);
            device_label label = label_of(d, "table", number);
            if (hits + misses == 0 && out->exact) continue; /* else measured: some may come */
            if (field == TABLE_HITS) metrics_count(out, "_total", label.text, hits);
            if (field == TABLE_MISSES) metrics_count(out, "_total", label.text, misses);
            uint64_t worst = field == TABLE_WORST ? frugal_load_relaxed(&at->worst) : 0;
            if (field != TABLE_WORST || (worst == 0 && out->exact)) continue; /* 0: no lookup since the last time */
            uint64_t rows = worst & UINT32_MAX ? worst & UINT32_MAX : 1;
            char share[32];
            print_millionths(share, sizeof share, ((worst >> 32) * 1000000 + rows / 2) / rows);
            metrics_name(out, "", label.text);
            metrics_print(out, "%s\n", share);
            int is_other =
                !out->f->ops->owns && !out->f->devices[d].mail; /* another process's, which is only read here */
            if (out->exact && !is_other) frugal_store_relaxed(&at->worst, 0);
        }
}
static void print_table_hits(metrics_text *out) {
    print_tables(out, TABLE_HITS);
}
static void print_table_misses(metrics_text *out) {
    print_tables(out, TABLE_MISSES);
}
static void print_table_worst(metrics_text *out) {
    print_tables(out, TABLE_WORST);
}

/* >>all */

static const struct {
    const char *name, *type, *unit, *help;
    void (*print)(metrics_text *out);
} families[] = {
    {"frugal_steps", "counter", "", "Steps that are closed.", print_steps},
    {"frugal_idle_steps", "counter", "", "Steps with gradients and a learning rate of 0.", print_idle},
    {"frugal_nonfinite_rows", "gauge", "", "Rows with NaN or infinity, of those that the last save or verify has read.",
     print_nonfinite},
    {"frugal_ended", "gauge", "", "1: training has ended, because a device was lost, or frugal_stop was called.",
     print_ended},
    {"frugal_pages_asked", "counter", "", "Pages of a table in a file that were asked for ahead of lookups.",
     print_asked},
    {"frugal_keys", "counter", "", "Keys looked up.", print_keys},
    {"frugal_unique_rows", "counter", "", "Distinct rows of the batches looked up.", print_rows},
    {"frugal_hits", "counter", "", "Distinct rows read from a device's own copy.", print_hits},
    {"frugal_misses", "counter", "", "Distinct rows read from host memory.", print_misses},
    {"frugal_secondary_hits", "counter", "", "Hits of secondaries that lacked contributions.", print_stale},
    {"frugal_table_hits", "counter", "", "Hits by table; only of devices that count by table.", print_table_hits},
    {"frugal_table_misses", "counter", "", "Misses by table; only of devices that count by table.", print_table_misses},
    {"frugal_table_worst_hits_ratio", "gauge", "ratio",
     "The least share of hits of a step since the last time this was written.", print_table_worst},
    {"frugal_gate_wait_seconds", "histogram", "seconds", "Waits of lookups that found the gate closed.", print_waits},
    {"frugal_gate_cause_seconds", "counter", "seconds", "Waits of lookups at the gate, by what kept it closed.",
     print_causes},
    {"frugal_gate_worst_seconds", "gauge", "seconds",
     "The longest wait at the gate since the last time this was written.", print_worst},
    {"frugal_gate_worst_step", "gauge", "", "The step of the longest wait.", print_worst_step},
    {"frugal_barrier_seconds", "counter", "seconds", "Lookups waiting for other devices' updates.", print_barrier},
    {"frugal_stall_seconds", "counter", "seconds", "Lookups waiting, after all updates, for the gate.", print_stall},
    {"frugal_announce_wait_seconds", "counter", "seconds", "Announcements waiting until their step was legal.",
     print_announce},
    {"frugal_worker_busy_seconds", "counter", "seconds", "Worker threads at work for this instance.", print_workers},
    {"frugal_work_seconds", "counter", "seconds", "Work behind the steps, by any thread.", print_work},
    {"frugal_updated_rows", "counter", "", "Row updates, by the way that they took.", print_updates},
    {"frugal_touched_rows", "counter", "", "Rows of closed steps, by the number of devices that touched them.",
     print_touched},
    {"frugal_queued_rows", "gauge", "", "Rows not flushed yet, by steps until they are due.", print_queue},
    {"frugal_kept_updates", "counter", "", "Row updates in place that went to a cached copy alone.", print_keeping},
    {"frugal_kept_rows", "gauge", "", "Rows of which devices keep updates.", print_kept},
    {"frugal_written_back_rows", "counter", "", "Rows that were written back from cached copies.", print_written_back},
    {"frugal_link_rows", "counter", "", "Rows that crossed between device and host memory; where devices count them.",
     print_link_rows},
    {"frugal_link_bytes", "counter", "bytes", "Bytes of the rows that crossed between them.", print_link_bytes},
    {"frugal_messages", "counter", "", "Messages between machines.", print_messages},
    {"frugal_message_bytes", "counter", "bytes", "Their bytes.", print_message_bytes},
    {"frugal_staging_blocks", "gauge", "", "Blocks of the staging ring.", print_staging},
    {"frugal_memory_bytes", "gauge", "bytes", "Memory beside tables and optimizer states.", print_memory},
    {"frugal_page_bytes", "gauge", "bytes", "Memory of tables, states, words and counts, by the pages that it is on.",
     print_pages},
};

/* Writes the text of all instances. Returns its length. */
static size_t print_metrics(metrics_text *out, frugal *const *instances, const char *const *names, uint32_t n) {
    out->used = 0;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        out->family = families[k].name;
        metrics_print(out, "# TYPE %s %s\n", families[k].name, families[k].type);
        if (*families[k].unit) metrics_print(out, "# UNIT %s %s\n", families[k].name, families[k].unit);
        metrics_print(out, "# HELP %s %s\n", families[k].name, families[k].help);
        for (uint32_t i = 0; i < n; i++) {
            char number[16];
            snprintf(number, sizeof number, "%" PRIu32, i);
            out->store[0] = 0;
            if (names || n > 1) metrics_store(out, names ? names[i] : number);
            out->f = instances[i];
            frugal_get_stats(out->f, &out->stats);
            families[k].print(out);
        }
    }
    metrics_print(out, "# EOF\n");
    return out->used;
}

size_t frugal_write_metrics(frugal *const *instances, const char *const *names, uint32_t n, char *text, size_t size) {
    if (!instances || n == 0 || (size && !text)) {
        frugal_fail(FRUGAL_ERR_ARGUMENT, "write_metrics: no instances, or a size but no text");
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (check_open(instances[i], "write_metrics") != FRUGAL_OK) return 0;
        if (!names || names[i]) continue;
        frugal_fail(FRUGAL_ERR_ARGUMENT, "write_metrics: name %u of %u is NULL; name all instances, or none", i, n);
        return 0;
    }
    metrics_text out = {.to = NULL};
    size_t length = print_metrics(&out, instances, names, n);
    size_t needed = length + length / 8 + 256; /* until it is written, numbers and samples may grow */
    if (needed > size) return needed;
    out.to = text, out.size = size, out.exact = 1;
    length = print_metrics(&out, instances, names, n);
    return length < size ? length : length + length / 8 + 256;
}
