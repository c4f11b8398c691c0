/* meet.c - collective calls: all machines make them, in the same order.
 *
 * All are made of one: each machine gives something to each other one, and waits for what these give it. A wait that
 * lasts says who is missing.
 *
 * Contents: >>meet >>settings >>calls
 */
#include "machines.h"

/* >>meet */

FRUGAL_INTERNAL const char *call_name(uint32_t call) {
    static const char *const names[MEET_CALLS] = {"open", "drain", "read_rows", "exchange", "save"};
    return call < MEET_CALLS ? names[call] : "an unknown call";
}

FRUGAL_INTERNAL frugal_status open_meeting(frugal *f) {
    meeting *now = &f->machines->meeting;
    size_t bytes = 2 * f->dealing->machines * sizeof *now->out;
    pthread_mutex_init(&f->machines->meeting_lock, NULL);
    if (!(now->out = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("collective calls", bytes);
    now->in = now->out + f->dealing->machines;
    return FRUGAL_OK;
}

FRUGAL_INTERNAL void close_meeting(frugal *f) {
    meeting *now = &f->machines->meeting;
    pthread_mutex_destroy(&f->machines->meeting_lock);
    frugal_free(f, now->memory, now->memory_bytes);
    frugal_free(f, now->out, 2 * f->dealing->machines * sizeof *now->out);
}

static int meet_ready(frugal *f, const condition *what) {
    (void)what;
    return frugal_load_acquire(&f->machines->meeting.done) != 0; /* [F69] pairs with [F70] */
}

static void meet_explain(frugal *f, const condition *what, char *text, size_t size) {
    (void)what;
    snprintf(text, size, "machine %u has not called %s, which all machines call together",
             frugal_load_relaxed(&f->machines->meeting.missing), what->call); /* relaxed: a hint */
}

/* Takes meeting_lock. Then the caller sets the sizes. Not after a call that was given up: the communication thread may
 * still be at that one, and at its sizes. */
FRUGAL_INTERNAL frugal_status enter_meeting(frugal *f, meet_call call) {
    const char *name = call_name((uint32_t)call);
    pthread_mutex_lock(&f->machines->meeting_lock);
    if (!f->machines->meeting.broken) return FRUGAL_OK;
    pthread_mutex_unlock(&f->machines->meeting_lock);
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, name); /* [F10] pairs with [F9] */
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: an earlier call of all machines was given up; open anew", name);
}

/* Makes room for what is given and wanted. */
static frugal_status reserve_meeting(frugal *f, const char *call) {
    meeting *now = &f->machines->meeting;
    size_t most = f->dealing->wire.most_bytes, bytes = 0;
    for (uint32_t i = 0; i < f->dealing->machines; i++) {
        size_t larger = (now->out[i] > now->in[i] ? now->out[i] : now->in[i]) + sizeof(parcel_head);
        if (most && larger > most)
            return frugal_fail(FRUGAL_ERR_LIMIT, "%s: a message of %zu bytes; this wire's have %zu at most", call,
                               larger, most);
        bytes += now->out[i] + now->in[i];
    }
    if (bytes <= now->memory_bytes) return FRUGAL_OK;
    frugal_free(f, now->memory, now->memory_bytes);
    now->memory_bytes = 0;
    if (!(now->memory = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("a collective call", bytes);
    now->memory_bytes = bytes;
    return FRUGAL_OK;
}

/* Gives meeting.out[i] bytes at out[i] to machine i, and waits for its meeting.in[i] bytes, in in[i]. The caller holds
 * meeting_lock (enter_meeting), and has set the sizes. */
FRUGAL_INTERNAL frugal_status meet(frugal *f, meet_call call, const void *const *out, void *const *in) {
    const char *name = call_name((uint32_t)call);
    const condition all = {meet_ready, meet_explain, 0, frugal_p2f_closed(f->p2f), name, 1};
    meeting *now = &f->machines->meeting;
    frugal_status status = reserve_meeting(f, name);
    if (status != FRUGAL_OK) return status;
    unsigned char *at = now->memory;
    for (uint32_t i = 0; i < f->dealing->machines; at += now->out[i++])
        if (now->out[i]) memcpy(at, out[i], now->out[i]);
    now->call = call;
    frugal_store_relaxed(&now->missing, f->dealing->me ? 0 : 1); /* relaxed, both: published by `posted` */
    frugal_store_relaxed(&now->done, 0);
    frugal_store_release(&now->posted, 1); /* [F71] pairs with [F72] */
    wake_machines(f);
    if ((status = wait_until(f, &all)) != FRUGAL_OK) {
        now->broken = 1;
        return status;
    }
    if (frugal_load_relaxed(&now->done) == 2) { /* relaxed: acquired by meet_ready */
        now->broken = 1;
        return frugal_fail(now->refusal, "%s: %s", name, now->wrong);
    }
    for (uint32_t i = 0; i < f->dealing->machines; at += now->in[i++])
        if (i != f->dealing->me && now->in[i]) memcpy(in[i], at, now->in[i]);
    return FRUGAL_OK;
}

/* Gives the same to all; all[i] is of machine i. */
FRUGAL_INTERNAL frugal_status meet_all(frugal *f, meet_call call, const void *mine, size_t bytes, void *all) {
    const dealing *g = f->dealing;
    const void *out[FRUGAL_MAX_MACHINES];
    void *in[FRUGAL_MAX_MACHINES];
    machines *m = f->machines;
    frugal_status status = enter_meeting(f, call);
    if (status != FRUGAL_OK) return status;
    for (uint32_t i = 0; i < g->machines; i++) {
        m->meeting.out[i] = m->meeting.in[i] = i == g->me ? 0 : bytes;
        out[i] = mine, in[i] = (unsigned char *)all + i * bytes;
    }
    status = meet(f, call, out, in);
    pthread_mutex_unlock(&m->meeting_lock);
    if (status == FRUGAL_OK && bytes) memcpy(in[g->me], mine, bytes);
    return status;
}

/* >>settings - all that the bits depend on, or the messages, is the same on all machines */

#define MOST_SETTINGS 32
typedef struct setting {
    char name[24];
    double value;
} setting;

static uint32_t list_settings(const frugal *f, setting *list) {
    const frugal_desc *d = &f->desc;
    const setting all[] = {{"version", FRUGAL_VERSION},
                           {"machines", f->dealing->machines},
                           {"devices", d->devices},
                           {"tables", d->n_tables},
                           {"dim", d->dim},
                           {"rows_as", (double)d->rows_as},
                           {"rounding", (double)d->rounding},
                           {"max_keys", d->max_keys},
                           {"lookahead", d->lookahead},
                           {"first_step", (double)d->first_step},
                           {"seed, lower half", (double)(uint32_t)d->seed},
                           {"seed, upper half", (double)(d->seed >> 32)},
                           {"reduce", (double)d->reduce},
                           {"early rows", f->dealing->early},
                           {"deal", (double)f->dealing->deal},
                           {"file's step (-1: new)", f->file && f->file->kept ? (double)f->file->header.step : -1},
                           {"id of save, lower half", (double)(uint32_t)f->saving.chain.id},
                           {"id of save, upper half", (double)(f->saving.chain.id >> 32)},
                           {"crc32c of homes", (double)f->dealing->homes_sum}};
    memcpy(list, all, sizeof all);
    return sizeof all / sizeof *all;
}

/* What a table is, to the bits. */
static uint32_t list_table(const frugal *f, uint32_t t, setting *list) {
    const frugal_table *table = &f->tables[t];
    const frugal_optimizer *o = table->optimizer;
    const setting all[] = {{"rows", (double)keys_of(f, t)},
                           {"init", (double)table->init},
                           {"low", (double)table->low},
                           {"high", (double)table->high},
                           {"mean", (double)table->mean},
                           {"deviation", (double)table->deviation},
                           {"optimizer", (double)o->kind},
                           {"eps", (double)o->eps},
                           {"beta1", (double)o->beta1},
                           {"beta2", (double)o->beta2},
                           {"weight_decay", (double)o->weight_decay},
                           {"initial_accumulator", (double)o->initial_accumulator},
                           {"lr_scale", (double)o->lr_scale},
                           {"clip_norm", (double)o->clip_norm},
                           {"frozen", (double)o->frozen}};
    memcpy(list, all, sizeof all);
    return sizeof all / sizeof *all;
}

/* Compares mine[n] with those of all machines. `whose` begins the message. */
static frugal_status compare_list(frugal *f, const setting *mine, uint32_t n, const char *whose) {
    size_t bytes = n * sizeof *mine;
    setting *all = frugal_allocate(f, f->dealing->machines * bytes, CACHE_LINE);
    if (!all) return fail_memory("settings of all machines", f->dealing->machines * bytes);
    frugal_status status = meet_all(f, MEET_OPEN, mine, bytes, all);
    for (uint32_t i = 0; i < f->dealing->machines && status == FRUGAL_OK; i++)
        for (uint32_t k = 0; k < n && status == FRUGAL_OK; k++) {
            const setting *theirs = &all[i * n + k];
            if (!memcmp(theirs, &mine[k], sizeof *theirs)) continue;
            status = frugal_fail(
                FRUGAL_ERR_SETTINGS,
                "machines: %s%.*s is %.17g on machine %u, and %.17g on this one, %u: give all the same", whose,
                (int)sizeof mine[k].name, mine[k].name, theirs->value, i, mine[k].value, f->dealing->me);
        }
    frugal_free(f, all, f->dealing->machines * bytes);
    return status;
}

FRUGAL_INTERNAL frugal_status compare_settings(frugal *f) {
    setting list[MOST_SETTINGS];
    memset(list, 0, sizeof list);
    frugal_status status = compare_list(f, list, list_settings(f, list), "");
    for (uint32_t t = 0; t < f->desc.n_tables && status == FRUGAL_OK; t++) {
        char whose[32];
        snprintf(whose, sizeof whose, "table %u: ", t);
        status = compare_list(f, list, list_table(f, t, list), whose);
    }
    return status;
}

/* >>calls */

/* Of a device whose data has ended, added to its steps: the others may be in steps in which it has no part. */
#define HAS_ENDED (UINT64_C(1) << 63)

typedef struct away_condition { /* devices that are away have committed so many steps */
    condition what;             /* first */
    const uint64_t *updated;
} away_condition;

/* The device of another machine whose updates are not all here; `devices`: none. */
static uint32_t device_behind(frugal *f, const condition *what) {
    const uint64_t *updated = ((const away_condition *)what)->updated;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_elsewhere(f, d) && (frugal_p2f_committed(f->p2f, d) < (updated[d] & ~HAS_ENDED) ||
                                   (updated[d] & HAS_ENDED && !has_finished(f, d, updated[d] & ~HAS_ENDED))))
            return d;
    return f->desc.devices;
}

/* The steps that all have updated; a device whose data has ended has no part in more than its own. */
static uint64_t updated_by_all(const frugal *f, const uint64_t *updated) {
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t steps = updated[d] & ~HAS_ENDED;
        if (steps > most) most = steps;
        if (!(updated[d] & HAS_ENDED) && steps < least) least = steps;
    }
    return least == UINT64_MAX ? most : least;
}

/* Another thread may be in the middle of the commit that completes a step: it is committed when the step is. */
static int updates_ready(frugal *f, const condition *what) {
    uint64_t all = updated_by_all(f, ((const away_condition *)what)->updated);
    return device_behind(f, what) == f->desc.devices && frugal_p2f_all_committed(f->p2f) >= all;
}

static void updates_explain(frugal *f, const condition *what, char *text, size_t size) {
    uint32_t d = device_behind(f, what);
    if (d < f->desc.devices)
        explain_update(f, d, frugal_p2f_committed(f->p2f, d), text, size);
    else
        snprintf(text, size, "updates of other machines are being taken");
}

/* Waits until what the devices of all machines have updated is committed here. */
FRUGAL_INTERNAL frugal_status gather_updates(frugal *f, int reads) {
    const dealing *g = f->dealing;
    uint64_t mine[FRUGAL_MAX_DEVICES], all[FRUGAL_MAX_DEVICES];
    for (uint32_t i = 0; i < g->here; i++) {
        mine[i] = updated_itself(&f->devices[g->me * g->here + i]);
        if (has_finished(f, g->me * g->here + i, mine[i])) mine[i] |= HAS_ENDED;
    }
    meet_call call = reads ? MEET_READ : MEET_DRAIN;
    frugal_status status = meet_all(f, call, mine, g->here * sizeof *mine, all);
    if (status != FRUGAL_OK) return status;
    away_condition here = {{updates_ready, updates_explain, 0, frugal_p2f_closed(f->p2f), call_name(call), 1}, all};
    return wait_until(f, &here.what);
}

FRUGAL_INTERNAL frugal_status meet_drained(frugal *f) {
    return meet_all(f, MEET_DRAIN, NULL, 0, NULL);
}

frugal_status frugal_exchange(frugal *f, const void *mine, size_t bytes, void *all) {
    frugal_status status = check_owner(f, "exchange");
    if (status != FRUGAL_OK) return status;
    if (bytes && (!mine || !all)) return frugal_fail(FRUGAL_ERR_ARGUMENT, "exchange: `mine` or `all` is NULL");
    if (f->dealing) return meet_all(f, MEET_EXCHANGE, mine, bytes, all);
    if (bytes) memcpy(all, mine, bytes);
    return FRUGAL_OK;
}

frugal_status frugal_get_wire_counts(const frugal *f, frugal_wire_counts *out) {
    frugal_status status = check_open(f, "get_wire_counts");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_wire_counts: `out` is NULL");
    *out = (frugal_wire_counts){.guests = 0};
    const machines *m = f->machines;
    for (uint32_t kind = 0; m && kind < FRUGAL_WIRE_KINDS; kind++) { /* relaxed, all: statistics */
        out->sent[kind] = frugal_load_relaxed(&m->counts.sent[kind]);
        out->sent_bytes[kind] = frugal_load_relaxed(&m->counts.sent_bytes[kind]);
        out->received[kind] = frugal_load_relaxed(&m->counts.received[kind]);
        out->received_bytes[kind] = frugal_load_relaxed(&m->counts.received_bytes[kind]);
    }
    if (!m) return FRUGAL_OK;
    out->guests = frugal_load_relaxed(&m->counts.guests), out->early = frugal_load_relaxed(&m->counts.early);
    out->asleep_seconds = (double)frugal_load_relaxed(&m->counts.asleep_ns) * 1e-9;
    return FRUGAL_OK;
}
