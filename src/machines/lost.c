/* lost.c - training ends here, because of another machine. */
#include "machines.h"

FRUGAL_INTERNAL void lose_machine(frugal *f, uint32_t machine, const char *text) {
    char whole[sizeof f->loss.message];
    snprintf(whole, sizeof whole, "machine %u, at step %llu: %s", machine,
             (unsigned long long)frugal_p2f_closed(f->p2f), text);
    lock_polling(f);
    end_training(f, machine * f->dealing->here, whole);
    pthread_mutex_unlock(&f->polling.lock);
    event_notify(f->event);
}
