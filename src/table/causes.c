/* causes.c - what keeps a gate closed, in words: for messages, and for traces. */
#include "table.h"

/* Says the cause in a sentence. */
FRUGAL_INTERNAL void explain_cause(const gate_cause *cause, char *text, size_t size) {
    unsigned long long step = cause->step, before = cause->step - 1, count = cause->count;
    switch (cause->kind) {
    case CAUSE_COMMIT:
    case CAUSE_WORK:
        snprintf(text, size, "step %llu is not closed: device %u has not %s it", before, cause->d,
                 cause->kind == CAUSE_WORK ? "finished" : "updated");
        return;
    case CAUSE_ANNOUNCE:
        snprintf(text, size, "step %llu is not sealed: device %u has announced %llu steps", step, cause->d, count);
        return;
    case CAUSE_CLOSE:
        snprintf(text, size, "step %llu is being closed", before);
        return;
    case CAUSE_RECALL:
        snprintf(text, size, "device %u keeps rows that are recalled for step %llu, and has not written them back",
                 cause->d, step);
        return;
    case CAUSE_PLAN:
        snprintf(text, size, "step %llu is being planned", step);
        return;
    case CAUSE_FLUSH:
        snprintf(text, size, "%llu rows that are due at step %llu are not flushed", count, step);
        return;
    case CAUSE_MACHINES:
        snprintf(text, size, "step %llu: rows of other machines have not arrived at device %u", step, cause->d);
        return;
    case CAUSE_AHEAD:
        snprintf(text, size, "step %llu is as far ahead as it may be: step %llu is not closed", step, count);
        return;
    case CAUSE_NONE:
    case CAUSES:
    default:
        snprintf(text, size, "nothing");
    }
}
