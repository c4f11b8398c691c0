/* Traces: read, planted, dealt to devices. */
#include "bench/place/trace.h"

#include "bench/keys.h"
#include "trainers/kge/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Room for the keys of n samples. */
static int allocate(place_trace *trace, program_error *error) {
    trace->keys = malloc((size_t)(trace->n * trace->width + 1) * sizeof *trace->keys);
    if (trace->keys) return 0;
    return program_fail(error, "no memory for %llu keys; take fewer samples",
                        (unsigned long long)(trace->n * trace->width));
}

void place_free_trace(place_trace *trace) {
    free(trace->keys);
    memset(trace, 0, sizeof *trace);
}

frugal_place_samples place_samples(const place_trace *trace, uint64_t first, uint64_t n) {
    return (frugal_place_samples){.keys = trace->keys + first * trace->width, .n = n, .width = trace->width};
}

int place_read_graph(place_trace *trace, const char *folder, program_error *error) {
    kge_graph graph;
    if (kge_graph_read(&graph, folder, error)) {
        kge_graph_free(&graph);
        return -1;
    }
    const kge_split *train = &graph.split[KGE_TRAIN];
    *trace = (place_trace){.rows = (uint64_t)graph.entities.n + graph.relations.n, .n = train->n, .width = 3};
    int status = allocate(trace, error);
    for (uint64_t s = 0; !status && s < train->n; s++) {
        const kge_triple *triple = &train->triples[s];
        const uint64_t keys[] = {triple->head, triple->tail, (uint64_t)graph.entities.n + triple->relation};
        memcpy(trace->keys + 3 * s, keys, sizeof keys);
    }
    kge_graph_free(&graph);
    return status;
}

/* The rows of all features' tables, one after the other. */
static int read_batches(place_trace *trace, clicks_reader *reader, const clicks *log, program_error *error) {
    enum { ROOM = 4096 };
    clicks_batch batch;
    uint64_t at = 0;
    if (clicks_batch_open(&batch, log, ROOM, error)) return -1;
    int status = clicks_reader_read(reader, ROOM, &batch, error);
    for (; !status && batch.n > 0 && at < trace->n; status = clicks_reader_read(reader, ROOM, &batch, error))
        for (uint32_t s = 0; s < batch.n && at < trace->n; s++, at++) {
            uint64_t first = 0;
            for (uint32_t i = 0; i < trace->width; first += clicks_rows(log, i++))
                trace->keys[at * trace->width + i] = first + batch.ids[(size_t)i * batch.room + s];
        }
    trace->n = at;
    clicks_batch_close(&batch);
    return status;
}

static int read_log(place_trace *trace, clicks *log, const char *file, program_error *error) {
    clicks_reader *reader;
    *trace = (place_trace){.width = clicks_features(log)};
    if (clicks_count(log, file, &trace->n, NULL, error) || clicks_prepare(log, file, trace->n, error)) return -1;
    for (uint32_t i = 0; i < trace->width; i++) trace->rows += clicks_rows(log, i);
    if (clicks_reader_open(&reader, log, file, 0, trace->n, error)) return -1;
    int status = allocate(trace, error);
    if (!status) status = read_batches(trace, reader, log, error);
    clicks_reader_close(reader);
    return status;
}

int place_read_log(place_trace *trace, const char *file, const char *schema, program_error *error) {
    const clicks_settings settings = {.format = CLICKS_SCHEMA, .schema = schema, .ids = CLICKS_VOCABULARY};
    clicks *log;
    if (clicks_open(&log, &settings, error)) return -1;
    int status = read_log(trace, log, file, error);
    clicks_close(log);
    if (status) place_free_trace(trace);
    return status;
}

int place_generate(place_trace *trace, const clicks_generator *generator, program_error *error) {
    clicks_settings settings = {.format = CLICKS_GENERATED, .ids = CLICKS_VOCABULARY, .generator = *generator};
    const clicks_generator_given none = {0};
    clicks *log;
    if (clicks_generator_resolve(&settings.generator, &none, error)) return -1;
    settings.generator.numbers = 0;
    if (clicks_open(&log, &settings, error)) return -1;
    int status = read_log(trace, log, NULL, error);
    clicks_close(log);
    if (status) place_free_trace(trace);
    return status;
}

int place_plant(place_trace *trace, const place_planted *planted, program_error *error) {
    *trace = (place_trace){.rows = planted->rows, .n = planted->samples, .width = planted->width};
    if (planted->communities > planted->rows)
        return program_fail(error,
                            "%llu communities, but %llu rows; a community needs a row at least: take fewer communities",
                            (unsigned long long)planted->communities, (unsigned long long)planted->rows);
    if (allocate(trace, error)) return -1;
    uint64_t of_each = planted->rows / planted->communities, n = trace->n * trace->width, state = planted->seed;
    uint64_t *any = malloc((size_t)n * sizeof *any);
    if (!any) {
        place_free_trace(trace);
        return program_fail(error, "no memory for %llu keys; take fewer samples", (unsigned long long)n);
    }
    bench_draw_ranks(any, n, planted->rows, planted->zipf, bench_random(&state));
    bench_draw_ranks(trace->keys, n, of_each, planted->zipf, bench_random(&state));
    uint64_t permutation = bench_random(&state), own = (uint64_t)(planted->own * 0x1p32);
    for (uint64_t s = 0, i = 0; s < trace->n; s++) {
        uint64_t community = (bench_random(&state) >> 32) * planted->communities >> 32;
        for (uint32_t k = 0; k < trace->width; k++, i++) {
            int is_own = bench_random(&state) >> 32 < own;
            uint64_t row = is_own ? trace->keys[i] * planted->communities + community : any[i];
            trace->keys[i] = frugal_place_permute(permutation, planted->rows, row);
        }
    }
    free(any);
    return 0;
}

static int falling(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

int place_rows_of_share(const place_trace *trace, double share, uint64_t *rows, program_error *error) {
    uint64_t touches = trace->n * trace->width, sum = 0;
    uint64_t *count = calloc((size_t)trace->rows, sizeof *count);
    if (!count)
        return program_fail(error, "no memory for the counts of %llu rows; take fewer rows",
                            (unsigned long long)trace->rows);
    for (uint64_t i = 0; i < touches; i++) count[trace->keys[i]]++;
    qsort(count, (size_t)trace->rows, sizeof *count, falling);
    for (*rows = 0; *rows < trace->rows && (double)sum < share * (double)touches; ++*rows) sum += count[*rows];
    free(count);
    return 0;
}

int place_open_deal(place_deal *deal, const place_trace *trace, const uint8_t *parts, uint32_t devices, uint64_t seed,
                    program_error *error) {
    uint64_t at[FRUGAL_PLACE_MAX_PARTS];
    *deal = (place_deal){.trace = trace, .devices = devices, .seed = seed};
    for (uint64_t s = 0; s < trace->n; s++) deal->size[parts[s]]++;
    for (uint32_t d = 0; d < devices; d++) {
        if (deal->size[d] == 0)
            return program_fail(error, "device %u of %u gets no sample; give fewer devices or more samples", d,
                                devices);
        at[d] = deal->first[d] = d ? deal->first[d - 1] + deal->size[d - 1] : 0;
    }
    deal->samples = malloc((size_t)trace->n * sizeof *deal->samples);
    if (!deal->samples)
        return program_fail(error, "no memory for the order of %llu samples; take fewer samples",
                            (unsigned long long)trace->n);
    for (uint64_t s = 0; s < trace->n; s++) deal->samples[at[parts[s]]++] = (uint32_t)s;
    return 0;
}

void place_close_deal(place_deal *deal) {
    free(deal->samples);
    memset(deal, 0, sizeof *deal);
}

void place_batch(const place_deal *deal, uint32_t device, uint64_t step, uint32_t batch, uint64_t *keys) {
    uint64_t width = deal->trace->width, size = deal->size[device];
    for (uint64_t i = 0, at = step * batch; i < batch; i++, at++) {
        uint64_t state = deal->seed ^ (at / size * FRUGAL_PLACE_MAX_PARTS + device); /* of this epoch and device */
        uint64_t x = frugal_place_permute(bench_random(&state), size, at % size);
        uint64_t sample = deal->samples[deal->first[device] + x];
        memcpy(keys + i * width, deal->trace->keys + sample * width, width * sizeof *keys);
    }
}
