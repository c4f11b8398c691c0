/* hand_in.h - a batch that is handed in, and that no thread has sorted. Include after frugal_flush.c and rig.h. */
#ifndef FRUGAL_TESTS_HAND_IN_H
#define FRUGAL_TESTS_HAND_IN_H

/* As rig_announce, whose thread does not help. */
static inline void rig_hand_in(rig *r, uint32_t device) {
    rig_batch b = rig_batch_of(r, device, r->announced[device]);
    host_batch *to = begin_batch(r->f, device, r->announced[device]++, b.n, 0);
    for (uint32_t i = 0; i < b.n; i++)
        to->record_of[i] = (uint32_t)((i < b.split ? 0 : r->desc.tables[0].rows) + b.keys[i]);
    hand_in(r->f, device, to, BATCH_HANDED);
}

#endif
