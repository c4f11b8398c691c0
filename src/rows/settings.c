/* settings.c - optimizer settings: checked, resolved, gathered in groups of tables, and the numbers of a step.
 *
 * Consecutive tables with the same settings form a group. A step's numbers (learning rate, Adam's step size) are fixed
 * by the first device that updates it; every other device must bring the same learning rate.
 */
#include "rows.h"

uint32_t frugal_state_floats(frugal_optimizer_kind kind, uint32_t dim) {
    if ((uint32_t)kind >= FRUGAL_OPTIMIZER_KINDS) return 0;
    return optimizers[kind].element_floats * dim + optimizers[kind].row_floats;
}

/* Is x neither infinite nor NaN? Tests the bits, because with -ffinite-math-only compilers assume that every number is
 * finite. */
FRUGAL_INTERNAL int is_finite(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}

/* Has the row a weight that is NaN or infinite? By its bits, as is_finite. */
FRUGAL_INTERNAL int is_row_finite(const void *row, frugal_type as, uint32_t n) {
    uint32_t most = 0;
    if (as != FRUGAL_FP32) {
        const uint16_t *halves = row;
        for (uint32_t i = 0; i < n; i++) most = (halves[i] & 0x7fffu) > most ? halves[i] & 0x7fffu : most;
        return most < (as == FRUGAL_BF16 ? 0x7f80u : 0x7c00u);
    }
    const float *weights = row;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = frugal_bits_of(weights[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000u;
}

FRUGAL_INTERNAL void add_found(found_rows *found, uint64_t row) {
    if (found->n == 0 || row < found->first) found->first = row;
    found->n++;
}

/* The rows of another thread, too. */
FRUGAL_INTERNAL void add_all_found(found_rows *found, const found_rows *more) {
    if (more->n > 0 && (found->n == 0 || more->first < found->first)) found->first = more->first;
    found->n += more->n;
}

/* `whose` begins the message: "", or the name of the table that has these settings. */
static frugal_status check_setting(const char *whose, const char *name, float value, int is_beta, const char *zero) {
    if (is_finite(value) && value >= 0 && (!is_beta || value < 1)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%soptimizer: %s must be %s, and is %g; 0 means %s", whose, name,
                       is_beta ? "in [0, 1)" : "finite and not negative", (double)value, zero);
}

/* Fills in what zero stands for, as optimizer_of does. */
FRUGAL_INTERNAL void resolve_optimizer(frugal_optimizer *o) {
    if (o->eps == 0) o->eps = optimizers[o->kind].eps;
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.999f;
    if (o->lr_scale == 0) o->lr_scale = 1;
    if (o->weight_decay == 0 && o->kind == FRUGAL_ADAMW) o->weight_decay = 0.01f;
    o->frozen = o->frozen != 0;
}

/* SGD is kind 0, so it is also what a caller gets who sets other fields and forgets the kind. Returns such a field that
 * SGD does not use, or NULL. Settings that frugal_settings returned are no mistake. */
FRUGAL_INTERNAL const char *unused_setting(const frugal_optimizer *o) {
    frugal_optimizer usual = {.kind = FRUGAL_SGD};
    if (o->kind != FRUGAL_SGD) return NULL;
    resolve_optimizer(&usual);
    if (o->eps != 0 && o->eps != usual.eps) return "eps";
    if (o->beta1 != 0 && o->beta1 != usual.beta1) return "beta1";
    if (o->beta2 != 0 && o->beta2 != usual.beta2) return "beta2";
    return o->initial_accumulator != 0 ? "initial_accumulator" : NULL;
}

static frugal_status check_optimizer(const frugal_optimizer *o, const char *whose) {
    int last = FRUGAL_OPTIMIZER_KINDS - 1;
    if ((uint32_t)o->kind > (uint32_t)last)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%soptimizer %d; there are 0 (%s) to %d (%s)", whose, (int)o->kind,
                           optimizers[0].name, last, optimizers[last].name);
    frugal_status status = check_setting(whose, "eps", o->eps, 0, "the optimizer's usual one");
    if (status == FRUGAL_OK) status = check_setting(whose, "beta1", o->beta1, 1, "0.9");
    if (status == FRUGAL_OK) status = check_setting(whose, "beta2", o->beta2, 1, "0.999");
    if (status == FRUGAL_OK) status = check_setting(whose, "weight_decay", o->weight_decay, 0, "none, with AdamW 0.01");
    if (status == FRUGAL_OK)
        status = check_setting(whose, "initial_accumulator", o->initial_accumulator, 0, "that the state starts from 0");
    if (status == FRUGAL_OK) status = check_setting(whose, "lr_scale", o->lr_scale, 0, "1");
    if (status == FRUGAL_OK) status = check_setting(whose, "clip_norm", o->clip_norm, 0, "that no gradient is clipped");
    return status;
}

/* Checks the instance's settings, and those of tables that have their own. */
FRUGAL_INTERNAL frugal_status check_optimizers(const frugal_desc *d) {
    frugal_status status = check_optimizer(&d->optimizer, "");
    for (uint32_t t = 0; t < d->n_tables && status == FRUGAL_OK; t++) {
        const frugal_optimizer *own = d->tables[t].optimizer;
        char whose[32];
        if (!own) continue;
        snprintf(whose, sizeof whose, "table %u: ", t);
        status = check_optimizer(own, whose);
        if (status == FRUGAL_OK && own->kind != d->optimizer.kind)
            status = frugal_fail(FRUGAL_ERR_ARGUMENT,
                                 "table %u: optimizer %d (%s), and the instance's is %d (%s): rows of all tables have "
                                 "one layout; open another instance for this table",
                                 t, (int)own->kind, optimizers[own->kind].name, (int)d->optimizer.kind,
                                 optimizers[d->optimizer.kind].name);
    }
    return status;
}

/* A table's settings, resolved. */
FRUGAL_INTERNAL frugal_optimizer optimizer_of(const frugal *f, uint32_t table) {
    const frugal_optimizer *own = f->tables[table].optimizer;
    frugal_optimizer o = own ? *own : f->desc.optimizer;
    resolve_optimizer(&o);
    return o;
}

FRUGAL_INTERNAL int is_same_optimizer(const frugal_optimizer *a, const frugal_optimizer *b) {
    return a->eps == b->eps && a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->weight_decay == b->weight_decay &&
           a->initial_accumulator == b->initial_accumulator && a->lr_scale == b->lr_scale &&
           a->clip_norm == b->clip_norm && a->frozen == b->frozen; /* the kind always is the same */
}

FRUGAL_INTERNAL size_t group_bytes(uint32_t n) {
    size_t ring = FRUGAL_P2F_SLOTS * (sizeof(frugal_hyper) + sizeof(beta_powers));
    return n * (sizeof(frugal_table_group) + sizeof(beta_powers) + ring);
}

/* Makes a group of consecutive tables with the same settings. From here on each table points to the settings of its
 * group. */
FRUGAL_INTERNAL frugal_status open_groups(frugal *f) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        frugal_optimizer own = optimizer_of(f, t), before = optimizer_of(f, t ? t - 1 : 0);
        n += t == 0 || !is_same_optimizer(&own, &before);
    }
    f->settings.groups = frugal_allocate(f, group_bytes(n), CACHE_LINE);
    if (!f->settings.groups) return fail_memory("optimizer settings", group_bytes(n));
    f->settings.powers = f->settings.groups; /* what is aligned to 8 bytes comes first */
    f->settings.power_now = f->settings.powers + (size_t)FRUGAL_P2F_SLOTS * n;
    frugal_table_group *groups = (frugal_table_group *)(void *)(f->settings.power_now + n);
    f->settings.hypers = (frugal_hyper *)(void *)(groups + n);
    f->store.groups = groups;
    for (uint32_t t = 0; t < f->desc.n_tables; t++) {
        frugal_optimizer own = optimizer_of(f, t);
        uint32_t *made = &f->store.n_groups;
        if (*made == 0 || !is_same_optimizer(&own, &groups[*made - 1].optimizer))
            groups[(*made)++] = (frugal_table_group){f->first_row[t], own};
        f->tables[t].optimizer = &groups[*made - 1].optimizer;
    }
    return FRUGAL_OK;
}

FRUGAL_INTERNAL void close_groups(frugal *f) {
    frugal_free(f, f->settings.groups, group_bytes(f->store.n_groups));
}

/* Computes the powers beta^t up to the first step, as running products. It stops when 1 - beta^t is 1 in a double for
 * both. */
FRUGAL_INTERNAL void open_powers(frugal *f) {
    float_mode saved = float_mode_enter();
    for (uint32_t g = 0; g < f->store.n_groups; g++) {
        const frugal_optimizer *o = &f->store.groups[g].optimizer;
        double beta1 = 1.0, beta2 = 1.0;
        for (uint64_t t = 0; t < f->desc.first_step && (beta1 > 0x1p-60 || beta2 > 0x1p-60); t++)
            beta1 *= (double)o->beta1, beta2 *= (double)o->beta2;
        f->settings.power_now[g] = (beta_powers){beta1, beta2};
    }
    f->settings.power_step = f->desc.first_step;
    float_mode_leave(saved);
}

/* Computes the powers of the groups' betas up to `step`. */
static void raise_powers(frugal *f, uint64_t step) {
    uint32_t n = f->store.n_groups;
    for (; f->settings.power_step <= step; f->settings.power_step++)
        for (uint32_t g = 0; g < n; g++) {
            const frugal_optimizer *o = &f->store.groups[g].optimizer;
            f->settings.power_now[g].beta1 *= (double)o->beta1;
            f->settings.power_now[g].beta2 *= (double)o->beta2;
            f->settings.powers[f->settings.power_step % FRUGAL_P2F_SLOTS * n + g] = f->settings.power_now[g];
        }
}

FRUGAL_INTERNAL frugal_status check_scale(float scale) {
    if (is_finite(scale) && scale >= 0) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT,
                       "update: scale must be finite and not negative, and is %g; 0 means 1; to train nothing, update "
                       "without gradients",
                       (double)scale);
}

FRUGAL_INTERNAL frugal_status check_lr(const frugal *f, float lr) {
    if (!is_finite(lr) || !(lr >= 0))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "update: lr must be finite and not negative, and is %g; 0 leaves the weights as they are",
                           (double)lr);
    for (uint32_t g = 0; g < f->store.n_groups; g++) {
        const frugal_optimizer *o = &f->store.groups[g].optimizer;
        if (!o->frozen && !is_finite(frugal_mul(lr, o->lr_scale)))
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "update: lr times lr_scale must be finite, and is %g times %g; reduce one", (double)lr,
                               (double)o->lr_scale);
    }
    return FRUGAL_OK;
}

/* Are they those that another device has fixed for the step? */
static frugal_status check_fixed(const step_settings *fixed, float lr, float scale) {
    int is_lr = memcmp(&fixed->lr, &lr, sizeof lr) == 0;
    if (is_lr && fixed->scale == scale) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_SETTINGS, "%s %.9g at step %llu; another device fixed %.9g for it",
                       is_lr ? "scale" : "learning rate", (double)(is_lr ? scale : lr), (unsigned long long)fixed->step,
                       (double)(is_lr ? fixed->scale : fixed->lr));
}

/* Do the step's gradients change no weight, because all step sizes are 0? Without a table that is not frozen: no. */
static int is_idle_step(const frugal *f, const frugal_hyper *hyper) {
    int trains = 0;
    for (uint32_t g = 0; g < f->store.n_groups; g++) {
        if (f->store.groups[g].optimizer.frozen) continue;
        if (hyper[g].step_size != 0) return 0;
        trains = 1;
    }
    return trains;
}

/* Fixes the step's settings, or checks that they are what another device fixed. */
FRUGAL_INTERNAL frugal_status fix_settings(frugal *f, uint64_t step, const frugal_gradients *given,
                                           const frugal_hyper **out) {
    frugal_status status = FRUGAL_OK;
    float lr = given->lr, scale = given->scale == 0 ? 1.0f : given->scale;
    step_settings *settings = &f->settings.steps[step % FRUGAL_P2F_SLOTS];
    frugal_hyper *hyper = hyper_at(f, step);
    pthread_mutex_lock(&f->settings.lock);
    if (!settings->fixed || settings->step != step) {
        uint64_t noise = f->store.rows_as == FRUGAL_FP32 ? 0 : frugal_step_noise(f->desc.seed, step);
        raise_powers(f, step);
        for (uint32_t g = 0; g < f->store.n_groups; g++) {
            const beta_powers *power = &f->settings.powers[step % FRUGAL_P2F_SLOTS * f->store.n_groups + g];
            float own = frugal_mul(lr, f->store.groups[g].optimizer.lr_scale);
            float size = (float)((double)own * sqrt(1.0 - power->beta2) / (1.0 - power->beta1));
            hyper[g] = (frugal_hyper){own, optimizers[f->store.kind].has_betas ? size : own, scale, noise};
            if (!is_finite(hyper[g].step_size) && !f->store.groups[g].optimizer.frozen)
                status = frugal_fail(FRUGAL_ERR_ARGUMENT,
                                     "update: lr %g makes Adam's step size at step %llu infinite; reduce it",
                                     (double)lr, (unsigned long long)step);
        }
        step_settings shared;
        if (status == FRUGAL_OK && f->shared.region && !fix_shared(f, step, lr, scale, &shared))
            status = check_fixed(&shared, lr, scale);
        if (status == FRUGAL_OK) *settings = (step_settings){step, 1, lr, scale};
        if (status == FRUGAL_OK && is_idle_step(f, hyper)) tally(&f->work.idle_steps, 1);
    } else {
        status = check_fixed(settings, lr, scale);
    }
    *out = hyper;
    pthread_mutex_unlock(&f->settings.lock);
    return status;
}
