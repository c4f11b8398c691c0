/* event.c - sleeping until something has changed.
 *
 * An event is one word. Its lowest bit says that a thread sleeps or is about to; the other bits count notifications. A
 * sleeper sets the bit, checks its condition once more, and sleeps as long as the word is unchanged. Both sides change
 * the word by read-modify-write, so one change comes first. Either the sleeper's is first: then the notifier sees the
 * bit, and wakes it. Or the sleeper's change [F1] follows the notifier's [F2]: then it acquires all that was published
 * before [F2], and the check finds it. Therefore a notifier must have acquired all that it notifies of, including what
 * other threads did ([P17] in frugal_p2f.h). No fence and no sequential consistency is needed.
 *
 * An event may lie in memory that processes share. A process that is killed in the middle of event_notify may have
 * cleared the bit without waking a thread. The thread that notices its end calls event_rouse, which does not rely on
 * the bit.
 */
#include "ground.h"

#if defined(__linux__) /* the kernel's numbers; <linux/futex.h>, which has them, is not in musl's path */
enum { FUTEX_WAIT_WORD = 0, FUTEX_WAKE_WORD = 1 };
#endif

FRUGAL_INTERNAL uint32_t event_prepare(host_event *event) {
    return frugal_or_acquire(&event->word, 1) | 1; /* [F1] pairs with [F2] */
}

FRUGAL_INTERNAL void event_sleep(host_event *event, uint32_t seen, double seconds) {
    seconds = LEAST(seconds, FOREVER); /* a time_t holds no infinity; a thread that wakes checks again */
    struct timespec limit = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
#if defined(__linux__)
    syscall(SYS_futex, &event->word, FUTEX_WAIT_WORD, seen, &limit, NULL, 0); /* callers check again, however it ends */
#else
    (void)event, (void)seen;
    if (limit.tv_sec > 0 || limit.tv_nsec > 100000) limit = (struct timespec){0, 100000};
    nanosleep(&limit, NULL);
#endif
}

FRUGAL_INTERNAL void event_notify(host_event *event) {
    uint32_t found = frugal_load_relaxed(&event->word); /* relaxed: proved by the compare-and-swap */
    while (!frugal_cas_release(&event->word, &found, (found | 1) + 1)) {
    } /* [F2] pairs with [F1]: counts, clears bit */
#if defined(__linux__)
    if (found & 1) syscall(SYS_futex, &event->word, FUTEX_WAKE_WORD, INT32_MAX, NULL, NULL, 0);
#endif
}

/* Notifies, and wakes all that sleep, whatever the bit says. */
FRUGAL_INTERNAL void event_rouse(host_event *event) {
    event_notify(event);
#if defined(__linux__)
    syscall(SYS_futex, &event->word, FUTEX_WAKE_WORD, INT32_MAX, NULL, NULL, 0);
#endif
}

FRUGAL_INTERNAL double clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
