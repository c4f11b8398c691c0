/* Frugal on the simulated machine: discrete events around the library itself.
 *
 * Three kinds of actors have clocks: the loaders, which announce; the GPUs, which wait at the gate, read, compute,
 * write and commit; the helpers, each of which calls frugal_help when it is free, and is then busy for the time that
 * the rows of that piece take. Helpers are the flush workers and, as in the library, the GPUs' trainers: these only
 * while they wait at a gate, and only for what it waits for. The actor with the earliest clock acts next; there is one
 * thread. A call takes effect in the library at once, but its effects count from the end of its piece: a gate opens
 * when the last piece that it waited for ends.
 *
 * Announcing is done a batch at a time, by any loader, or worker that has nothing else to do, for several steps at
 * once; or (--announce loader) by the loader of its GPU alone. The library is told of a step when the clock has all
 * its batches done. If it leaves sorting to frugal_help then, that costs nothing more.
 *
 * Rows in place (SIM_INPLACE): the library's devices update rows that they alone touch, so the gate also waits for the
 * plan of its step. The kernel that writes the records writes these rows and their state instead.
 *
 * Rows kept (SIM_KEPT): such a row is updated in the GPU's cached copy if there is one, and nothing crosses the link.
 * Lookup writes it back when another row gets its place, which takes one kernel more, because all places of the batch
 * must be known first. When another GPU has announced it, a kernel writes it back as soon as its GPU has committed the
 * step before, while workers close this step; the next gate waits for both. The library counts what is written back.
 *
 * Several machines: the first is simulated, the others are like it, and steps of all keep pace. Its instance has the
 * devices of all machines, with those keys that are at home on it: what the others' devices announce comes over the
 * network, without repeated keys, and is noted by whoever is free; their rows are gathered by the CPU. A step waits for
 * the network twice: for late rows when the gate is open, and for records before all have committed. Early rows and
 * keys take what is left of the link's time; if that is too little, the next step waits for the rest. network.h counts
 * the bytes. Rows of other machines are never cached.
 *
 * One GPU in place, or that keeps updates, has no words: nothing is planned, recalled, closed or flushed, and a step is
 * closed as it is committed. Its gate is the order of its own kernels, which takes no signal. Announcing is cheaper
 * (SIM_WHOLE).
 */
#include "bench/program.h"
#include "bench/sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries of a piece of planning, about: a plan has entries / PLAN_PIECE + 1 of them (frugal_p2f.h). Entries beyond
 * that are charged to the next piece. */
enum { PLAN_PIECE = 4096 };

enum { MOST_THREADS = SIM_MAX_WORKERS + 2 * SIM_MAX_GPUS };

typedef struct clockwork {
    const sim_workload *w;
    const sim_keys *keys;
    sim_keys home;       /* of several machines: those of the first machine's rows */
    const sim_keys *own; /* what its instance is told: `home`; of one machine `keys` */
    sim_network net;
    double early_work;   /* seconds of the link for the next step's early rows, and keys */
    double link_free;    /* since when the link has done nothing else */
    double records_work; /* ... but this, for records */
    frugal *f;           /* whose gates, plans and queue the clock follows */
    int in_place;        /* rows that one GPU touches are updated by this GPU */
    int keeps;           /* ... in its cache, where they can be */
    int has_words;       /* else no step is planned, and each is closed by its commit */
    uint64_t step;       /* the step whose gate is next, or that is running */
    int under_way;       /* past its gate */
    double committed;    /* when all have committed `step`, or the previous step */
    double closed;       /* when the step before was closed */
    double closing;      /* end of the last piece of closing so far */
    uint64_t urgent;     /* rows flushed for the gate since then */
    double slots[64];    /* end of the last flush of rows due there */
    double sealed[64];   /* when all had announced the step */
    uint64_t announced;
    uint64_t legal;                    /* the first step that must not be announced yet */
    double legal_at[64];               /* since when a step may be announced */
    uint64_t untaken[SIM_MAX_DEVICES]; /* the first step of the GPU whose batch no thread has taken */
    uint32_t unannounced[64];          /* batches of a step that no thread has taken */
    double batches_done[64];           /* end of the last of those taken */
    double announcing;                 /* when all batches of step `announced` are done; INFINITY: some are not taken */
    double free_at[MOST_THREADS];      /* of workers, then of loaders, then of trainers, which wait or are idle */
    int idle[MOST_THREADS];            /* has nothing to do until it is woken */
    int announces[MOST_THREADS];       /* is, or was last, busy with a batch */
    double busy;                       /* workers, seconds of the measured steps */
    uint64_t unplanned;                /* entries of plans whose time has not been charged yet */
    uint64_t planning;                 /* the first step that is not planned */
    uint64_t unplanned_pieces[64];     /* of the plan of a step */
    double planned[64];                /* end of the last of them so far */
    frugal_stats stats;                /* after the last call */
    frugal_stats first;                /* at the gate of the first measured step */
    frugal_stats last;                 /* at the gate of the last one */
    uint64_t wire[SIM_MAX_GPUS];       /* of the records of the step under way */
    sim_kept kept;                     /* with `keeps` */
    uint64_t recalled[SIM_MAX_GPUS];   /* rows that the GPU has written back for the gate of `step` */
    uint32_t recalling;                /* recalls of the GPUs below it are done for that gate */
    sim_result r;
} clockwork;

static double seconds_of(const clockwork *c, sim_constant_id ns_each, uint64_t n) {
    return (double)n * c->w->constants[ns_each] * 1e-9;
}
static double signal_seconds(const clockwork *c) {
    return c->w->constants[SIM_SIGNAL] * 1e-6;
}

/* >>loaders */

static void wake(clockwork *c, double now, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        if (!c->idle[i]) continue;
        c->idle[i] = 0;
        c->free_at[i] = fmax(c->free_at[i], now);
    }
}
static uint32_t first_trainer(const clockwork *c) {
    return c->w->workers + c->w->gpus;
}
static void wake_helpers(clockwork *c, double now) {
    wake(c, now + signal_seconds(c), 0, c->w->workers);
    if (!c->under_way) wake(c, now + signal_seconds(c), first_trainer(c), first_trainer(c) + c->w->gpus);
}

/* All batches of the next step are done. All are announced at once, in the order of devices, because this order decides
 * which copies are current. */
static void act_announce(clockwork *c) {
    uint64_t step = c->announced, entries = 0;
    double now = c->announcing;
    for (uint32_t gpu = 0; gpu < c->own->gpus; gpu++) {
        frugal_keys segment = {
            .table = 0, .keys = sim_keys_of(c->own, step, gpu), .n = sim_count_of(c->own, step, gpu)};
        frugal_status status =
            frugal_try_announce(c->f, gpu, step, &(frugal_batch){.segments = &segment, .n_segments = 1});
        if (status == FRUGAL_AGAIN) bench_fail("step %llu is not legal, but should be", (unsigned long long)step);
        sim_check(status);
        entries += sim_unique_of(c->own, step, gpu);
    }
    if (c->has_words) {
        c->unplanned += entries;
        c->unplanned_pieces[step % 64] = entries / PLAN_PIECE + 1;
    } else
        c->planning = step + 1; /* there is nothing to plan */
    c->planned[step % 64] = 0;
    c->sealed[step % 64] = now;
    c->announced++;
    int is_done = c->announced < c->legal && c->unannounced[c->announced % 64] == 0;
    c->announcing = is_done ? fmax(now, c->batches_done[c->announced % 64]) : INFINITY;
    wake_helpers(c, now);
}

/* Steps that have become legal at `now` may be announced. */
static void allow_announce(clockwork *c, double now) {
    uint64_t legal = c->stats.steps + c->w->lookahead + 1, before = c->legal;
    for (; c->legal < legal && c->legal < c->keys->steps; c->legal++) {
        uint64_t slot = c->legal % 64;
        c->legal_at[slot] = now, c->unannounced[slot] = c->own->gpus, c->batches_done[slot] = 0;
    }
    if (c->legal == before) return;
    wake(c, now, c->w->workers, first_trainer(c));
    if (c->w->pool) wake_helpers(c, now);
}

/* The GPU whose batch the thread takes next; the number of GPUs: it may take none. */
static uint32_t next_batch(const clockwork *c, uint32_t thread) {
    uint32_t gpus = c->own->gpus, gpu = thread - c->w->workers; /* of a loader */
    if (c->w->pool) {
        gpu = 0;
        for (uint32_t i = 1; i < gpus; i++)
            if (c->untaken[i] < c->untaken[gpu]) gpu = i;
    }
    return c->untaken[gpu] < c->legal ? gpu : gpus;
}

/* Threads that announce at a time: one a GPU; or all that have nothing else to do, as far as there are batches. */
static double announcers(const clockwork *c, double now) {
    uint32_t threads = c->w->gpus;
    uint64_t batches = 0;
    if (!c->w->pool) return threads;
    for (uint32_t gpu = 0; gpu < c->own->gpus; gpu++) batches += c->legal - c->untaken[gpu];
    for (uint32_t i = 0; i < first_trainer(c); i++) {
        int is_busy = c->announces[i] && c->free_at[i] > now;
        batches += is_busy;
        if (i < c->w->workers) threads += c->idle[i] || is_busy;
    }
    return (double)(batches < threads ? batches : threads);
}

/* A batch's announcing. What comes from another machine is sorted, and each row is there once. */
static double announce_seconds(const clockwork *c, uint64_t step, uint32_t device) {
    if (c->w->machines < 2) {
        double work = seconds_of(c, c->has_words ? SIM_ANNOUNCE : SIM_WHOLE, c->w->keys);
        return c->keeps && c->has_words ? work + seconds_of(c, SIM_RECALL, c->w->keys) : work;
    }
    double noting = fmax(c->w->constants[SIM_ANNOUNCE] - c->w->constants[SIM_WHOLE], 0) * 1e-9;
    if (device >= c->w->gpus) return noting * sim_unique_of(c->own, step, device);
    return seconds_of(c, SIM_WHOLE, c->w->keys) + noting * sim_count_of(c->own, step, device);
}

/* A thread that is free takes a batch, if there is one. */
static int take_batch(clockwork *c, uint32_t thread) {
    uint32_t gpu = next_batch(c, thread);
    if (gpu == c->own->gpus) return 0;
    uint64_t step = c->untaken[gpu]++, slot = step % 64;
    double begin = fmax(c->free_at[thread], c->legal_at[slot]);
    double work = announce_seconds(c, step, gpu);
    work *= sim_loaders_slow(c->w, announcers(c, begin));
    c->announces[thread] = 1;
    c->free_at[thread] = begin + work;
    c->batches_done[slot] = fmax(c->batches_done[slot], begin + work);
    if (--c->unannounced[slot] == 0 && step == c->announced) c->announcing = c->batches_done[slot];
    if (c->step >= c->w->warm_up) *(thread < c->w->workers ? &c->busy : &c->r.loader_share) += work;
    return 1;
}

/* >>helpers */

static double busy_helpers(const clockwork *c) {
    double busy = 0;
    for (uint32_t i = 0; i < first_trainer(c) + c->w->gpus; i++)
        busy += !c->idle[i] && (i < c->w->workers || i >= first_trainer(c));
    return busy;
}

/* Rows that the gate waits for can be flushed as they are queued, while closing goes on: the nth of them so far
 * along. */
static double urgent_since(clockwork *c, const frugal_stats *before) {
    uint64_t n = c->stats.flushed_by_urgency[0] - before->flushed_by_urgency[0];
    if (n == 0 || c->closing <= c->committed) return 0;
    c->urgent += n;
    double share = (double)c->urgent / ((double)c->urgent + (double)c->stats.queue_depth[0]);
    return c->committed + share * (c->closing - c->committed);
}

/* What the piece between two statistics takes: closing, flushing, or else planning. */
static double piece_seconds(clockwork *c, const frugal_stats *before, const frugal_stats *after) {
    uint64_t closed = after->closed_entries - before->closed_entries, flushed = after->flushed - before->flushed;
    uint64_t stale = after->stale_ids - before->stale_ids, planned = 0;
    if (sim_piece_of(before, after) == SIM_PLANNING) planned = c->unplanned < PLAN_PIECE ? c->unplanned : PLAN_PIECE;
    c->unplanned -= planned;
    uint64_t passed = after->in_place - before->in_place;
    double seconds = seconds_of(c, SIM_CLOSE, closed - passed + stale) + seconds_of(c, SIM_PASS, passed) +
                     seconds_of(c, SIM_PLAN, planned) + (c->in_place ? seconds_of(c, SIM_MARK, planned) : 0);
    return seconds * sim_helpers_slow(c->w, busy_helpers(c)) +
           (flushed ? sim_flush_seconds(c->w, (double)flushed, busy_helpers(c)) : 0);
}

/* A piece of planning ends at `end`. Plans are made in the order of steps. */
static void note_plan(clockwork *c, double end) {
    if (c->planning == c->announced) bench_fail("step %llu: unknown work", (unsigned long long)c->step);
    if (c->planned[c->planning % 64] < end) c->planned[c->planning % 64] = end;
    if (--c->unplanned_pieces[c->planning % 64] == 0) c->planning++;
}

/* The next GPU that is asked to write rows back for the gate of the next step; the number of GPUs: none is. */
static uint32_t next_recalled(const clockwork *c) {
    uint32_t gpu = c->recalling;
    if (!c->keeps || c->under_way || c->announced <= c->step) return c->w->gpus;
    while (gpu < c->w->gpus && c->kept.recalls[c->step * c->w->gpus + gpu] == 0) gpu++;
    return gpu;
}

/* The piece between two statistics was a recall. The library does recalls in the order of devices, after closing and
 * before planning. The GPU does the work (recall_seconds), so the worker stays free. */
static void note_recall(clockwork *c, const frugal_stats *before, const frugal_stats *after) {
    uint32_t gpu = next_recalled(c);
    uint64_t rows = after->written_back - before->written_back;
    if (gpu == c->w->gpus)
        bench_fail("step %llu: %llu rows of no recall", (unsigned long long)c->step, (unsigned long long)rows);
    c->recalled[gpu] = rows;
    c->recalling = gpu + 1;
}

/* Does a gate wait for anything that helpers do? */
static int gate_waits(const clockwork *c) {
    return c->stats.steps < c->step || c->stats.queue_depth[0] > 0 || (c->in_place && c->planning <= c->step);
}

static void act_helper(clockwork *c, uint32_t helper) {
    frugal_stats before = c->stats;
    double now = c->free_at[helper];
    int is_worker = helper < c->w->workers;
    if ((!is_worker && !gate_waits(c)) || !frugal_help(c->f)) {
        c->idle[helper] = !is_worker || !c->w->pool || !take_batch(c, helper);
        return;
    }
    frugal_get_stats(c->f, &c->stats);
    sim_piece piece = sim_piece_of(&before, &c->stats);
    if (piece == SIM_RECALLING) note_recall(c, &before, &c->stats);
    if (piece == SIM_RECALLING || piece == SIM_ANNOUNCING) return;
    c->announces[helper] = 0;
    double seconds = piece_seconds(c, &before, &c->stats), end = fmax(now, urgent_since(c, &before)) + seconds;
    c->free_at[helper] = end;
    if (piece == SIM_PLANNING) note_plan(c, end);
    if (is_worker && c->step >= c->w->warm_up) c->busy += seconds;
    for (uint32_t left = 0; left < 64; left++) {
        double *slot = &c->slots[(before.steps + left) % 64];
        if (c->stats.flushed_by_urgency[left] > before.flushed_by_urgency[left] && *slot < end) *slot = end;
    }
    if (c->stats.closed_entries == before.closed_entries && c->stats.steps == before.steps) return;
    if (c->closing < end) c->closing = end;
    wake_helpers(c, now); /* rows are queued as the piece goes on */
    if (c->stats.steps == before.steps) return;
    c->closed = c->closing;
    allow_announce(c, c->closed);
}

/* >>GPUs */

/* On the wire: rows that are written back, each with its state. */
static uint64_t back_wire_bytes(const clockwork *c, const sim_link *link, uint64_t rows) {
    return sim_wire_bytes(link, rows, sim_row_bytes(c->w)) + sim_wire_bytes(link, rows, sim_state_bytes(c->w));
}

/* Rows that are written back, each with its state. */
static void add_back(clockwork *c, uint64_t rows, double *sum) {
    if (c->step < c->w->warm_up) return;
    *sum += (double)rows;
    c->r.written_bytes += (double)(rows * (sim_row_bytes(c->w) + sim_state_bytes(c->w)));
}

/* The kernels that write back what is recalled for the next step, each of which first reads its list of rows: the time
 * of the slowest. */
static double recall_seconds(clockwork *c) {
    const sim_workload *w = c->w;
    const uint32_t *listed = c->kept.recalls + c->step * w->gpus;
    sim_link link = sim_link_of(w, 1);
    uint64_t lists[SIM_MAX_GPUS], back[SIM_MAX_GPUS], all_lists = 0, all_back = 0;
    double slowest = 0;
    if (sim_cached_rows(w) == 0) return 0; /* nothing is kept */
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        lists[gpu] = listed[gpu] ? sim_wire_bytes(&link, 1, listed[gpu] * sizeof(uint32_t)) : 0;
        back[gpu] = back_wire_bytes(c, &link, c->recalled[gpu]);
        all_lists += lists[gpu], all_back += back[gpu];
        add_back(c, c->recalled[gpu], &c->r.recalled);
    }
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        if (!listed[gpu]) continue;
        double seconds = sim_kernel(w, (double)c->recalled[gpu] * (double)(sim_row_bytes(w) + sim_state_bytes(w))) +
                         sim_link_seconds(&link, 0, lists[gpu], all_lists) +
                         sim_link_seconds(&link, 1, back[gpu], all_back);
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

/* When the recalled rows are written back: their GPUs begin when they have committed, and know what is recalled. */
static double recall(clockwork *c) {
    if (next_recalled(c) < c->w->gpus)
        bench_fail("the gate of step %llu is open, but GPU %u has not written its rows back",
                   (unsigned long long)c->step, next_recalled(c));
    double seconds = recall_seconds(c), end = fmax(c->committed, c->sealed[c->step % 64]) + seconds;
    if (seconds > 0 && c->step > c->w->warm_up) c->r.recall += end - c->committed;
    return end;
}

/* Rows that the GPU has written back in this lookup, because others got their places. */
static uint64_t evicted(const clockwork *c, uint32_t gpu, const frugal_traffic *counted) {
    if (counted->rows[2] < c->recalled[gpu])
        bench_fail("step %llu, GPU %u: %llu rows written back, of which %llu were recalled",
                   (unsigned long long)c->step, gpu, (unsigned long long)counted->rows[2],
                   (unsigned long long)c->recalled[gpu]);
    return counted->rows[2] - c->recalled[gpu];
}

/* The kernel that marks the places of the batch's copies, before any place is given away whose row must be written back
 * first. */
static double mark_seconds(const clockwork *c) {
    int gives_away = c->keeps && sim_cached_rows(c->w) > 0 && c->w->policy != FRUGAL_CACHE_STATIC;
    return gives_away ? sim_kernel(c->w, 0) : 0;
}

/* Rows of other machines that the GPU reads in this step, from places for them in host memory. */
static uint64_t guests_of(const clockwork *c, uint32_t gpu) {
    return c->w->machines > 1 ? sim_guests_of(&c->net, c->step, gpu) : 0;
}

/* The time of the step's reads on the slowest GPU; the library really looks the rows up, so misses are real. The gate
 * is open. no_copy: rows whose state was not read, because they were not copied into the cache. */
static double look_up(clockwork *c, uint64_t no_copy[SIM_MAX_GPUS]) {
    const sim_workload *w = c->w;
    sim_link link = sim_link_of(w, 1);
    uint64_t wire[SIM_MAX_GPUS], all = 0, state = sim_state_bytes(w), back[SIM_MAX_GPUS], all_back = 0;
    double slowest = 0, apart = 0;
    for (uint32_t gpu = 1; gpu < c->own->gpus; gpu++) sim_check(frugal_lookup(c->f, gpu, c->step, NULL)); /* 0 has */
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        frugal_traffic counted = sim_count(c->f, w, gpu);
        uint64_t guests = guests_of(c, gpu);
        wire[gpu] = sim_traffic_wire_bytes(&link, &counted, 0, sim_row_bytes(w), sim_state_bytes(w)) +
                    sim_wire_bytes(&link, guests, sim_row_bytes(w));
        back[gpu] = back_wire_bytes(c, &link, evicted(c, gpu, &counted));
        all += wire[gpu], all_back += back[gpu];
        add_back(c, evicted(c, gpu, &counted), &c->r.evicted);
        no_copy[gpu] = counted.rows[0] - (state ? (counted.bytes[0] - counted.rows[0] * sim_row_bytes(w)) / state : 0);
        if (c->step < w->warm_up) continue;
        c->r.misses += (double)(counted.rows[0] + guests), c->r.unique += sim_unique_of(c->keys, c->step, gpu);
        c->r.read_bytes += (double)(counted.bytes[0] + guests * sim_row_bytes(w));
    }
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        double memory = sim_kernel(w, 2.0 * sim_unique_of(c->keys, c->step, gpu) * sim_row_bytes(w));
        double in = sim_link_seconds(&link, 0, wire[gpu], all), out = sim_link_seconds(&link, 1, back[gpu], all_back);
        slowest = fmax(slowest, fmax(memory, sim_kernel(w, 0) + fmax(in, out)));
        apart = fmax(apart, fmax(memory, sim_kernel(w, 0) + in + out));
    }
    if (c->step >= w->warm_up) c->r.apart += mark_seconds(c) + apart;
    frugal_get_stats(c->f, &c->stats); /* what is evicted is not recalled */
    return mark_seconds(c) + slowest;
}

/* Rows whose updates the GPU keeps in a step, and those that it updates in place in this one. */
static uint64_t kept(const clockwork *c, uint64_t step, uint32_t gpu) {
    return c->keeps ? sim_alone_of(c->keys, step, gpu) - c->kept.in_place[step * c->w->gpus + gpu] : 0;
}
static uint64_t placed(const clockwork *c, uint32_t gpu) {
    return c->in_place ? sim_alone_of(c->own, c->step, gpu) - kept(c, c->step, gpu) : 0;
}

/* Records, one for each unique row that is not kept, written by the kernel that sums them. Of a row in place the row
 * and its state are written instead; the state is read first if the row has no copy. Where updates are kept, no row in
 * place has one; else of rows without a copy as many as can be are in place. */
static double write_records(clockwork *c, const uint64_t no_copy[SIM_MAX_GPUS]) {
    const sim_workload *w = c->w;
    sim_link link = sim_link_of(w, 1);
    uint64_t *wire = c->wire, all = 0, all_read = 0, state = sim_state_bytes(w), read[SIM_MAX_GPUS];
    uint64_t guest_wire[SIM_MAX_GPUS];
    double slowest = 0;
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        uint64_t n = sim_unique_of(c->own, c->step, gpu) - kept(c, c->step, gpu), guests = guests_of(c, gpu);
        uint64_t states = state ? placed(c, gpu) : 0;
        uint64_t reads = c->keeps || states < no_copy[gpu] ? states : no_copy[gpu];
        wire[gpu] = sim_wire_bytes(&link, n, sim_row_bytes(w)) + sim_wire_bytes(&link, states, state);
        read[gpu] = sim_wire_bytes(&link, reads, state);
        guest_wire[gpu] = sim_wire_bytes(&link, guests, sim_row_bytes(w));
        all += wire[gpu] + guest_wire[gpu], all_read += read[gpu];
        if (c->step >= w->warm_up) c->r.written_bytes += (double)((n + guests) * sim_row_bytes(w) + states * state);
    }
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        double seconds = sim_kernel(w, 3.0 * sim_unique_of(c->keys, c->step, gpu) * sim_row_bytes(w)) +
                         sim_link_seconds(&link, 1, wire[gpu] + guest_wire[gpu], all) +
                         sim_link_seconds(&link, 0, read[gpu], all_read);
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

/* When the gate, which is open, was opened: when the last piece of work that it waits for had ended. */
static double opened(clockwork *c) {
    double sealed = c->sealed[c->step % 64], open = fmax(c->committed, sealed);
    if (c->in_place && c->planning <= c->step)
        bench_fail("the gate of step %llu is open, but it is not planned", (unsigned long long)c->step);
    if (c->keeps) open = fmax(open, recall(c));
    if (!c->has_words) return fmax(open, sealed + signal_seconds(c)); /* the GPU knows of its own commit */
    open = fmax(fmax(open, c->closed), c->slots[c->step % 64]);
    if (c->in_place) open = fmax(open, c->planned[c->step % 64]);
    return open + signal_seconds(c);
}

/* >>network */

static double network_seconds(const clockwork *c, uint64_t step, unsigned kinds) {
    return step < c->net.steps ? sim_network_seconds(&c->net, step, kinds, c->w->network) : 0;
}

/* The gate of the step is open: how long GPUs wait for the rows of other machines. What is early was on its way since
 * the gate before, whenever the link had nothing else to do. */
static double wait_for_rows(clockwork *c, double open) {
    const sim_workload *w = c->w;
    if (w->machines < 2) return 0;
    double early = fmax(c->early_work - fmax(open - c->link_free - c->records_work, 0), 0);
    double cores = w->workers + w->gpus, sent = (double)sim_crossing_of(&c->net, c->step, 0).late;
    double late = w->constants[SIM_NETWORK] * 1e-6 + seconds_of(c, SIM_SEND, 1) * sent / cores +
                  network_seconds(c, c->step, 1u << SIM_SENT_LATE);
    c->link_free = open + early + late;
    c->early_work = network_seconds(c, c->step + 1, 1u << SIM_SENT_EARLY) +
                    network_seconds(c, c->step + 1 + w->lookahead, 1u << SIM_SENT_KEYS);
    if (c->step >= w->warm_up) c->r.network.early_wait += early, c->r.network.rows_wait += late;
    return early + late;
}

/* How long until the records of all devices are at their homes. */
static double wait_for_records(clockwork *c) {
    if (c->w->machines < 2) return 0;
    c->records_work = network_seconds(c, c->step, 1u << SIM_SENT_RECORDS);
    double wait = c->w->constants[SIM_NETWORK] * 1e-6 + c->records_work;
    if (c->step >= c->w->warm_up) c->r.network.records_wait += wait;
    return wait;
}

/* What all machines have sent in this step. */
static void add_crossings(clockwork *c) {
    sim_network_result *r = &c->r.network;
    double machines = c->w->machines, most = 0;
    if (c->w->machines < 2 || c->step < c->w->warm_up) return;
    for (uint32_t m = 0; m < c->w->machines; m++) {
        sim_crossing crossing = sim_crossing_of(&c->net, c->step, m);
        double sent = 0, received = 0;
        for (int k = 0; k < SIM_SENT_KINDS; k++) {
            sent += (double)crossing.sent[k], received += (double)crossing.received[k];
            r->sent[k] += (double)crossing.sent[k] / machines,
                r->received[k] += (double)crossing.received[k] / machines;
        }
        most = fmax(most, fmax(sent, received));
        r->late += (double)crossing.late / (machines * c->w->gpus);
    }
    for (uint32_t d = 0; d < c->own->gpus; d++) r->guests += (double)sim_guests_of(&c->net, c->step, d) / c->own->gpus;
    r->most += most;
    r->messages += (SIM_SENT_KINDS - !c->net.early) * c->w->gpus * (machines - 1);
}

/* Passes the gate if it is open. */
static void pass_gate(clockwork *c) {
    uint64_t no_copy[SIM_MAX_GPUS];
    frugal_status status = frugal_try_lookup(c->f, 0, c->step, NULL);
    if (status == FRUGAL_AGAIN) return;
    sim_check(status);
    double open = opened(c), seen = c->has_words ? signal_seconds(c) : 0; /* the commit is seen by others */
    if (c->step == c->w->warm_up) c->first = c->stats;
    c->last = c->stats;
    if (c->step > c->w->warm_up) {
        c->r.gate += open - c->committed;
        c->r.closing += fmax(c->closed - c->committed, 0);
    }
    double rows_wait = wait_for_rows(c, open), records_wait = wait_for_records(c);
    add_crossings(c);
    double lookup = look_up(c, no_copy), dense = sim_dense(c->w), update = write_records(c, no_copy);
    if (c->step >= c->w->warm_up) c->r.lookup += lookup, c->r.dense += dense, c->r.update += update;
    for (uint32_t i = first_trainer(c); i < first_trainer(c) + c->w->gpus; i++) c->idle[i] = 1;
    c->committed = open + rows_wait + lookup + dense + update + records_wait + seen;
    if (c->step >= c->w->warm_up) c->r.update += seen;
    c->under_way = 1;
}

/* What the library has counted is what the clock was told before. */
static void check_records(const clockwork *c, uint32_t gpu) {
    const sim_workload *w = c->w;
    sim_link link = sim_link_of(w, 1);
    frugal_traffic counted = sim_count(c->f, w, gpu);
    uint64_t wire = sim_traffic_wire_bytes(&link, &counted, 1, sim_row_bytes(w), sim_state_bytes(w));
    if (wire != c->wire[gpu])
        bench_fail("step %llu, GPU %u: %llu bytes of records and rows in place, not %llu", (unsigned long long)c->step,
                   gpu, (unsigned long long)wire, (unsigned long long)c->wire[gpu]);
}

/* Without words the commit has closed the step. */
static void check_closed(const clockwork *c) {
    if (!c->has_words && c->stats.steps != c->step + 1)
        bench_fail("step %llu is committed, but %llu are closed", (unsigned long long)c->step,
                   (unsigned long long)c->stats.steps);
}

static void act_commit(clockwork *c) {
    const frugal_gradients records = {.records = 1, .lr = 0.01f};
    for (uint32_t d = 0; d < c->own->gpus; d++) sim_check(frugal_update(c->f, d, c->step, &records));
    for (uint32_t d = 0; d < c->w->gpus; d++) check_records(c, d);
    frugal_get_stats(c->f, &c->stats);
    check_closed(c);
    c->r.staging_used = fmax(c->r.staging_used, c->stats.staging_in_use);
    c->closed = c->closing = 0;
    c->urgent = 0;
    c->under_way = 0;
    memset(c->recalled, 0, sizeof c->recalled);
    c->recalling = 0;
    c->step++;
    wake_helpers(c, c->committed);
    if (!c->has_words) allow_announce(c, c->committed + signal_seconds(c));
}

/* >>the clock */

/* The earliest actor acts; 0 when there is none. */
static int act(clockwork *c) {
    uint32_t first = 0, awake = 0;
    for (uint32_t i = 0; i < first_trainer(c) + c->w->gpus; i++) {
        if (c->idle[i]) continue;
        if (!awake++ || c->free_at[i] < c->free_at[first]) first = i;
    }
    double works = awake ? c->free_at[first] : INFINITY;
    if (c->under_way && c->committed <= works && c->committed <= c->announcing) {
        act_commit(c);
    } else if (c->announcing <= works && isfinite(c->announcing)) {
        act_announce(c);
    } else if (awake && first >= c->w->workers && first < first_trainer(c)) {
        c->idle[first] = !take_batch(c, first);
    } else if (awake) {
        act_helper(c, first);
    } else
        return 0;
    return 1;
}

static void run_clock(clockwork *c) {
    for (int i = 0; i < 64; i++) c->sealed[i] = 0;
    for (uint32_t i = 0; i < MOST_THREADS; i++) c->idle[i] = 1;
    c->announcing = INFINITY;
    frugal_get_stats(c->f, &c->stats);
    allow_announce(c, 0);
    uint64_t end = (uint64_t)c->w->warm_up + c->w->steps;
    while (c->step < end && !bench_interrupted()) {
        if (!act(c)) bench_fail("step %llu: nobody has anything to do", (unsigned long long)c->step);
        if (!c->under_way && c->step < end && c->announced > c->step) pass_gate(c);
    }
}

static double backlog(const frugal_stats *s) {
    int64_t rows = 0;
    for (int i = 0; i < 64; i++) rows += s->queue_depth[i];
    return (double)rows;
}

/* Of the steps that were closed while the clock measured: means per step. */
static void settle_closed(clockwork *c) {
    uint64_t since = c->first.steps, until = c->stats.steps, steps = until > since ? until - since : 1;
    sim_result *r = &c->r;
    r->alone = (double)(c->stats.alone - c->first.alone) / (double)steps;
    r->shared = (double)(c->stats.shared - c->first.shared) / (double)steps;
    r->in_place = (double)(c->stats.in_place - c->first.in_place) / (double)steps;
    for (uint64_t s = since; s < until; s++)
        for (uint32_t gpu = 0; gpu < c->w->gpus; gpu++) r->kept += (double)kept(c, s, gpu) / (double)steps;
}

static void settle_network(sim_network_result *r, double steps) {
    double *sums[] = {&r->most, &r->guests, &r->late, &r->rows_wait, &r->records_wait, &r->early_wait, &r->messages};
    for (uint32_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] /= steps;
    for (int k = 0; k < SIM_SENT_KINDS; k++) r->sent[k] /= steps, r->received[k] /= steps;
    r->waits = r->rows_wait + r->records_wait + r->early_wait;
}

/* Sums become means; the gate before the first measured step and the one after the last are not counted. */
static void settle(clockwork *c) {
    const sim_workload *w = c->w;
    sim_result *r = &c->r;
    uint64_t steps = c->step > w->warm_up ? c->step - w->warm_up : 1, gates = steps > 1 ? steps - 1 : 1;
    double *means[] = {&r->lookup, &r->apart, &r->dense, &r->update, &r->recalled, &r->evicted};
    for (uint32_t i = 0; i < sizeof means / sizeof *means; i++) *means[i] /= (double)steps;
    r->gate /= (double)gates, r->closing /= (double)gates, r->recall /= (double)gates;
    settle_network(&r->network, (double)steps);
    r->step = r->gate + r->lookup + r->dense + r->update + r->network.waits;
    double span = r->step * (double)steps;
    r->misses /= r->unique > 0 ? r->unique : 1;
    r->unique /= (double)steps * w->gpus;
    r->read_bytes /= (double)steps * w->gpus, r->written_bytes /= (double)steps * w->gpus;
    r->flushed = (double)(c->stats.flushed - c->first.flushed) / (double)steps;
    settle_closed(c);
    r->urgent = (double)(c->stats.flushed_by_urgency[0] - c->first.flushed_by_urgency[0]) / (double)steps;
    r->worker_share = span > 0 ? c->busy / w->workers / span : 0;
    r->loader_share = span > 0 ? r->loader_share / w->gpus / span : 0;
    r->workers = w->workers;
    r->behind = backlog(&c->last) - backlog(&c->first) > 0.02 * (double)(c->last.flushed - c->first.flushed);
    const frugal_desc *d = frugal_settings(c->f);
    r->staging_depth = d->staging;
    r->staging_bytes = (double)c->own->gpus * d->staging * d->max_keys * ((w->dim + 15) / 16 * 16) * sizeof(float);
}

sim_result sim_run_frugal(sim_system system, const sim_workload *w, const sim_keys *keys) {
    clockwork *c = calloc(1, sizeof *c);
    if (!c) bench_fail("no memory");
    frugal_alone alone = sim_alone(system);
    *c = (clockwork){
        .w = w, .keys = keys, .in_place = alone != FRUGAL_ALONE_STAGED, .keeps = alone == FRUGAL_ALONE_KEPT};
    c->has_words = !c->in_place || w->gpus > 1;
    c->own = keys;
    if (w->machines > 1) {
        sim_keys_at_home(&c->home, keys, w, 0);
        sim_network_count(&c->net, keys, w);
        c->own = &c->home;
    }
    if (c->keeps) sim_count_kept(&c->kept, w, keys);
    c->f = sim_open(w, system == SIM_SYNC ? FRUGAL_SYNC : FRUGAL_P2F, alone, w->keys, 1);
    sim_attach(c->f, w, sim_cached_rows(w), 1);
    run_clock(c);
    settle(c);
    sim_result r = c->r;
    frugal_close(c->f);
    sim_free_kept(&c->kept);
    sim_keys_free(&c->home);
    sim_network_free(&c->net);
    free(c);
    return r;
}
