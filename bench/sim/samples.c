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
    homes_free(&s->homes);
    if (!s->is_open) return;
    place_close_deal(&s->deal), place_free_partition(&s->partition);
    s->is_open = 0;
}

static int is_same_deal(const sim_samples *s, place_method method, const sim_workload *w) {
    return s->is_open && s->method == (int)method && s->partition.devices == sim_devices(w) &&
           s->machines == w->machines && s->seed == w->seed;
}

static void open_deal(sim_samples *s, const sim_source *source, place_method method, const sim_workload *w) {
    place_division division = {.method = method, .devices = sim_devices(w), .machines = w->machines};
    program_error error;
    close_deal(s);
    bench_progress("dealing samples to %u GPUs: %s", division.devices,
                   source->parts ? source->parts : place_methods[method]);
    require(source->parts ? place_read_parts(&s->partition, &s->trace, source->parts, division.devices, &error)
                          : place_divide(&s->partition, &s->trace, &division, &error),
            &error);
    bench_progress("%s", "");
    require(place_open_deal(&s->deal, &s->trace, s->partition.parts, division.devices, w->seed, &error), &error);
    s->is_open = 1, s->method = (int)method, s->machines = w->machines, s->seed = w->seed;
}

static void place_homes(sim_samples *s, sim_workload *w) {
    homes_desc desc = {.place = s->partition.place,
                       .rows = s->trace.rows,
                       .batch = w->batch,
                       .devices = sim_devices(w),
                       .machines = w->machines};
    program_error error;
    homes_free(&s->homes);
    require(homes_make(&s->homes, &desc, &error), &error);
    w->homes = s->homes.of;
}

void sim_deal(sim_samples *s, const sim_source *source, place_method method, sim_workload *w) {
    program_error error;
    if (!is_same_deal(s, method, w)) open_deal(s, source, method, w);
    w->batch = w->keys / s->trace.width ? w->keys / s->trace.width : 1;
    w->keys = w->batch * s->trace.width;
    require(place_rank(&s->partition, w->batch, &error), &error);
    w->rows = s->trace.rows;
    w->partition = &s->partition, w->deal = &s->deal;
    if (w->places_homes && w->machines > 1) place_homes(s, w);
    w->dealing = source->parts ? "parts" : place_methods[method];
}

void sim_free_samples(sim_samples *s) {
    close_deal(s);
    place_free_trace(&s->trace);
}
