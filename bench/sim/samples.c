/* Reading samples, and dealing them to the simulated GPUs. */
#include "bench/sim/samples.h"

#include "bench/program.h"

static void require(int status, const program_error *error) {
    if (status) bench_fail("%s", error->text);
}

void sim_read_samples(sim_samples *s, const sim_source *source) {
    program_error error;
    if (source->planted)
        require(place_plant(&s->trace, &source->communities, &error), &error);
    else if (source->schema)
        require(place_read_log(&s->trace, source->data, source->schema, &error), &error);
    else
        require(place_read_graph(&s->trace, source->data, &error), &error);
}

static void close_deal(sim_samples *s) {
    if (!s->is_open) return;
    place_close_deal(&s->deal), place_free_partition(&s->partition);
    s->is_open = 0;
}

void sim_deal(sim_samples *s, const sim_source *source, place_method method, sim_workload *w) {
    program_error error;
    if (!s->is_open || s->method != (int)method || s->partition.devices != w->gpus || s->seed != w->seed) {
        close_deal(s);
        bench_progress("dealing samples to %u GPUs: %s", w->gpus,
                       source->parts ? source->parts : place_methods[method]);
        require(source->parts ? place_read_parts(&s->partition, &s->trace, source->parts, w->gpus, &error)
                              : place_divide(&s->partition, &s->trace, method, w->gpus, 1, &error),
                &error);
        bench_progress("%s", "");
        require(place_open_deal(&s->deal, &s->trace, s->partition.parts, w->gpus, w->seed, &error), &error);
        s->is_open = 1, s->method = (int)method, s->seed = w->seed;
    }
    w->batch = w->keys / s->trace.width ? w->keys / s->trace.width : 1;
    w->keys = w->batch * s->trace.width;
    w->rows = s->trace.rows;
    w->partition = &s->partition, w->deal = &s->deal;
    w->dealing = source->parts ? "parts" : place_methods[method];
}

void sim_free_samples(sim_samples *s) {
    close_deal(s);
    place_free_trace(&s->trace);
}
