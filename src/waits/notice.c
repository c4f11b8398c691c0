/* notice.c - what the caller is told by frugal_desc.notice, although no call fails: a wait that takes long, and what
 * other parts of the host say there. And what a wait for another device is waiting for, in words that name the likely
 * mistake: for notices, and for the message of FRUGAL_ERR_STUCK.
 *
 * Contents: >>notices >>waits >>rows >>explaining
 */
#include "waits.h"

/* >>notices */

FRUGAL_INTERNAL _Thread_local int is_worker; /* 1: a thread of the library, in which the caller is told nothing */

FRUGAL_INTERNAL void open_notices(frugal *f, frugal_notice call, void *user) {
    pthread_mutex_init(&f->notices.lock, NULL);
    f->notices.call = call, f->notices.user = user;
}

/* Tells the caller. No lock is held here that the calls take which a notice may make. */
static void give_text(frugal *f, const char *format, va_list arguments) {
    char text[512];
    pthread_mutex_lock(&f->notices.lock);
    frugal_notice call = f->notices.call;
    void *user = f->notices.user;
    pthread_mutex_unlock(&f->notices.lock);
    if (!call || is_worker) return;
    vsnprintf(text, sizeof text, format, arguments);
    call(text, user);
}

FRUGAL_INTERNAL void give_notice(frugal *f, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    give_text(f, format, arguments);
    va_end(arguments);
}

void frugal_tell(frugal *f, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (is_usable(f)) give_text(f, format, arguments);
    va_end(arguments);
}

frugal_status frugal_on_notice(frugal *f, frugal_notice notice, void *user) {
    frugal_status status = check_open(f, "on_notice");
    if (status != FRUGAL_OK) return status;
    pthread_mutex_lock(&f->notices.lock);
    f->notices.call = notice, f->notices.user = user;
    pthread_mutex_unlock(&f->notices.lock);
    return FRUGAL_OK;
}

/* >>waits
 *
 * A wait is told once, when it has found nothing to do for NOTICE_SECONDS. Threads that wait for the same have the same
 * text, which is told by the first of them. A cause that is told again, at another step, must have lasted twice as
 * long: so a device that is always slow is told a few times, not at every step, and a later hang is told nevertheless.
 */

#define NOTICE_SECONDS 5.0

/* How long a wait may last before it is told: less where STUCK comes soon; FOREVER where nobody is told. */
FRUGAL_INTERNAL double notice_seconds(frugal *f) {
    double stuck = f->desc.stuck_seconds;
    pthread_mutex_lock(&f->notices.lock);
    int is_told = f->notices.call && !is_worker;
    pthread_mutex_unlock(&f->notices.lock);
    if (!is_told) return FOREVER;
    return stuck < 0 ? NOTICE_SECONDS : LEAST(NOTICE_SECONDS, stuck / 2);
}

/* A number that texts of one cause share: what differs in them is the numbers. `with_numbers`: one of the whole
 * text. */
static uint64_t hash_text(const char *text, int with_numbers) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text; text++)
        if (with_numbers || *text < '0' || *text > '9') hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

/* Is this wait, of `after` seconds, to be told now? Then it is noted. Else *again says when to ask again. */
static int note_wait(frugal *f, double after, const char *text, double *again) {
    notices *n = &f->notices;
    uint64_t cause = hash_text(text, 0), whole = hash_text(text, 1);
    double least = f->desc.stuck_seconds < 0 ? FOREVER : f->desc.stuck_seconds / 2;
    uint32_t i = 0;
    *again = FOREVER;
    pthread_mutex_lock(&n->lock);
    uint32_t known = LEAST(n->n_told, MOST_TOLD);
    while (i < known && n->told[i].cause != cause) i++;
    int is_new = i == known;
    if (is_new) i = n->n_told++ % MOST_TOLD; /* the place of the cause that was told first */
    int tells = is_new || (n->told[i].text != whole && after >= n->told[i].after);
    if (tells)
        n->told[i] = (told_wait){cause, whole, LEAST(2 * after, least)};
    else if (n->told[i].text != whole)
        *again = n->told[i].after;
    pthread_mutex_unlock(&n->lock);
    return tells;
}

/* A wait has found nothing to do for `after` seconds: the caller is told, unless it knows. The format is that of the
 * message of STUCK. Returns after how many seconds this is to be called again. */
FRUGAL_INTERNAL double tell_wait(frugal *f, double after, const char *format, ...) {
    char text[448];
    double again;
    va_list arguments;
    if (is_worker) return FOREVER;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (note_wait(f, after, text, &again)) give_notice(f, "%s", text);
    return again;
}

/* >>rows - that are not finite */

/* `call` has read rows, and found these. Relaxed, all: statistics order nothing. */
FRUGAL_INTERNAL void tell_found(frugal *f, const char *call, const found_rows *found) {
    uint32_t t = 0;
    frugal_store_relaxed(&f->found.nonfinite, found->n);
    frugal_store_relaxed(&f->found.first, found->n ? found->first : 0);
    if (found->n == 0) return;
    while (found->first >= f->first_row[t + 1]) t++;
    give_notice(f,
                "%s: %llu rows have NaN or infinity; the first is row %llu of table %u. Training has diverged: go back "
                "to an earlier save, and lower the learning rate or clip gradients",
                call, (unsigned long long)found->n, (unsigned long long)(found->first - f->first_row[t]), t);
}

/* >>explaining */

/* Is it sure that no thread here can announce for the device, because it is not attached? In a process that has joined,
 * other processes' devices are not known. */
static int is_missing(const frugal *f, uint32_t d) {
    return f->ops->owns && !is_attached(f, d);
}

/* A call of device `d` waits until device `late` has announced the step. */
FRUGAL_INTERNAL void explain_announce(const frugal *f, uint32_t d, uint32_t late, uint64_t step, char *text,
                                      size_t size) {
    unsigned long long s = step;
    if (is_elsewhere(f, late))
        snprintf(text, size, "machine %u has not announced step %llu of device %u; or the message is lost",
                 machine_of(f, late), s, late);
    else if (is_missing(f, late))
        snprintf(text, size,
                 "device %u has not announced step %llu, because it is not attached: attach it%s, or open the instance "
                 "with fewer devices than %u",
                 late, s, f->shared.door ? ", here or in a process that joins" : "", f->desc.devices);
    else if (late == d)
        snprintf(text, size,
                 "device %u has not announced step %llu: call frugal_announce with the keys of the step first, in this "
                 "thread or in one that loads",
                 late, s);
    else
        snprintf(text, size,
                 "device %u has not announced step %llu: all devices announce each step. If one thread drives "
                 "several, loop over steps, and within a step over devices. A device without keys announces none; "
                 "one whose data has ended calls frugal_finish",
                 late, s);
}

/* A call waits until device `late` has updated the step. */
FRUGAL_INTERNAL void explain_update(const frugal *f, uint32_t late, uint64_t step, char *text, size_t size) {
    unsigned long long s = step;
    if (is_elsewhere(f, late)) {
        snprintf(text, size, "machine %u has not sent records of step %llu of device %u; or the message is lost",
                 machine_of(f, late), s, late);
        return;
    }
    snprintf(text, size,
             "device %u has not updated step %llu; update it on every device first%s. If one thread drives several, "
             "loop over steps, and within a step over devices. A device updates every step that it has announced; "
             "behind the last one it calls frugal_finish",
             late, s, is_missing(f, late) ? " (this one is not attached)" : "");
}

/* An announcement of `step` is further ahead than the lookahead allows: step `closed` is not closed. `late`: a device
 * that has not updated that step; NO_DEVICE: all have. */
FRUGAL_INTERNAL void explain_ahead(const frugal *f, uint32_t late, uint64_t closed, char *text, size_t size) {
    unsigned long long s = closed, last = closed + f->desc.lookahead;
    if (late != NO_DEVICE && is_elsewhere(f, late))
        snprintf(text, size,
                 "lookahead is %u and step %llu is not closed: machine %u has not sent records of it of device %u; or "
                 "the message is lost",
                 f->desc.lookahead, s, machine_of(f, late), late);
    else if (late == NO_DEVICE)
        snprintf(text, size, "lookahead is %u and step %llu is not closed, by a thread that has not finished",
                 f->desc.lookahead, s);
    else
        snprintf(text, size,
                 "lookahead is %u and step %llu is not closed: device %u has not updated it. A thread that also trains "
                 "announces up to step %llu now; then it looks up and updates step %llu on every device, and announces "
                 "the next",
                 f->desc.lookahead, s, late, last, s);
}
