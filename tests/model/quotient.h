/* quotient.h - states that differ in names alone are one: part of p2f.pml, in C, compiled into spin's pan.c.
 *
 * The behaviour of the model does not depend on which number a step has, which row is row 0, which device is device 0,
 * which helper is the first. If they are renamed in a state and in all that follow it, the result is the same run with
 * other names. So the search keeps one state of each such class. To look up whether it has been in a state, it renames
 * the state: step `closed` becomes step 0, helpers are put in order, and of all choices of the first row and the first
 * device it takes the one whose bytes in memory are least. Then it restores the state. Every run that the search
 * follows, and every error that it shows, is thus one of the model as it is written.
 *
 * WHY IT IS EXACT. Let g be a renaming. If a state t follows s then g(t) follows g(s); g(start) is the start itself, or
 * a state that could have been the start; each assertion holds in s exactly if it holds in g(s), and s is without a
 * successor, or in progress, exactly if g(s) is. Then from any state of a class the same classes are reached, by runs
 * of the same length, with the same errors; a search that goes on from one state of each class misses no error. This
 * needs three things:
 *   the lengths of all rings divide CYCLE, so that renaming steps by one moves each ring on by one
 *   rows, devices and helpers run the same code; the model goes through rows, slots and pieces in any order
 *   what is dead is 0 as a mask or count, and NONE as a step or slot, whatever the names
 * Partial order reduction is off (-DNOREDUCE): it leaves out states for another reason, and the two must not be
 * combined.
 *
 * HOW THAT IS CHECKED. Built with -DCLASSES, states are not merged: all are searched, and the classes that they are in
 * are counted; tests/model/run compares. If a step of the model depended on names, or a variable were forgotten here,
 * states that behave differently would be merged, and classes that only one of them leads to would be missed. The
 * numbers are exactly the same.
 */
extern short *proc_offset; /* pan's own: where the processes lie in `now`, and how much of it is in use */
extern ulong vsize;

#define FIELD(locals, i) ((locals *)pptr(i))

enum { LOADER, TRAINER, HELPER }; /* in the order of p2f.pml, as pan numbers them; their locals are P0, P1, P2 */

static int q_is(int i, int proctype) {
    return FIELD(P0, i)->_t == proctype;
}

static void q_swap(void *a, void *b, size_t size) {
    unsigned char keep[256];
    memcpy(keep, a, size);
    memcpy(a, b, size);
    memcpy(b, keep, size);
}

/* The first `by` of `length` items go to the end. */
static void q_rotate(void *ring, int length, int by, size_t size) {
    unsigned char keep[256], *items = ring;
    by %= length;
    memcpy(keep, ring, length * size);
    memmove(items, items + by * size, (length - by) * size);
    memcpy(items + (length - by) * size, keep, by * size);
}

static int q_less(int number, int by, int length) {
    return number == NONE ? NONE : (number + length - by % length) % length;
}

static int q_rotate_bits(int mask, int by, int length) {
    by %= length;
    return (mask >> by | mask << (length - by)) & ((1 << length) - 1);
}

/* Step `closed` becomes step 0. */
static void q_rename_steps(void) {
    int by = now.closed;
    if (by == 0) return;
    now.sealed = q_less(now.sealed, by, CYCLE);
    now.committed = q_less(now.committed, by, CYCLE);
    now.closed = 0;
    now.planned = q_less(now.planned, by, CYCLE);
    now.plan_claim = q_less(now.plan_claim, by, CYCLE);
    now.close_claim = q_less(now.close_claim, by, CYCLE);
    q_rotate(now.pending, SLOTS, by, sizeof now.pending[0]);
    q_rotate(now.queue, SLOTS, by, ROWS);
    q_rotate(now.announce_left, SLOTS, by, 1);
    q_rotate(now.commit_left, SLOTS, by, 1);
    q_rotate(now.plan_left, SLOTS, by, 1);
    q_rotate(now.close_left, SLOTS, by, 1);
    q_rotate(now.step_in, SLOTS, by, 1);
    q_rotate(now.all_bring, SLOTS, by, 1);
    q_rotate(now.brings, SLOTS, by, 1);
    q_rotate(now.plan, PLANS, by, DEVICES);
    for (int e = 0; e < SLOTS; e++) now.step_in[e] = q_less(now.step_in[e], by, CYCLE);
    for (int d = 0; d < DEVICES; d++) {
        now.announced[d] = q_less(now.announced[d], by, CYCLE);
        q_rotate(now.batch + d * BATCHES, BATCHES, by, 1);
        q_rotate(now.valid + d * BATCHES, BATCHES, by, 1);
        q_rotate(now.only_read + d * BATCHES, BATCHES, by, 1);
        q_rotate(now.in_place + d * BATCHES, BATCHES, by, 1);
        q_rotate(now.alone + d * BATCHES, BATCHES, by, 1);
    }
#if KEEP
    q_rotate(now.recall_left, SLOTS, by, 1);
    q_rotate(now.recall_all, SLOTS, by, 1);
    q_rotate(now.listed, LISTS, by, 1);
    for (int d = 0; d < DEVICES; d++) {
        now.own_committed[d] = q_less(now.own_committed[d], by, CYCLE);
        now.recalls[d] = q_rotate_bits(now.recalls[d], by, SLOTS);
        q_rotate(now.taken + d * LISTS, LISTS, by, 1);
    }
#endif
    for (int r = 0; r < ROWS; r++) {
        now.reads[r] = q_rotate_bits(now.reads[r], by, READS);
        now.slot[r] = q_less(now.slot[r], by, SLOTS);
        now.update[r] = q_less(now.update[r], by, SLOTS);
        now.owed_step[r] = q_less(now.owed_step[r], by, CYCLE);
    }
    for (int n = 0; n < now._nr_pr; n++) {
        if (q_is(n, TRAINER)) {
            FIELD(P1, n)->s = q_less(FIELD(P1, n)->s, by, CYCLE);
        } else if (q_is(n, HELPER)) {
            FIELD(P2, n)->s = q_less(FIELD(P2, n)->s, by, CYCLE);
            FIELD(P2, n)->base = q_less(FIELD(P2, n)->base, by, CYCLE);
            FIELD(P2, n)->p = q_less(FIELD(P2, n)->p, by, SLOTS);
            FIELD(P2, n)->uncounted = q_rotate_bits(FIELD(P2, n)->uncounted, by, SLOTS);
            q_rotate(FIELD(P2, n)->by_slot, SLOTS, by, 1);
        }
    }
}

/* Two processes change places; each place keeps its number, and its device. */
static void q_swap_processes(int a, int b, size_t size) {
    int pid = FIELD(P0, a)->_pid;
    q_swap(pptr(a), pptr(b), size);
    FIELD(P0, b)->_pid = FIELD(P0, a)->_pid;
    FIELD(P0, a)->_pid = pid;
}

static void q_flip(unsigned char *masks, int n) { /* exchanges bits 0 and 1 */
    for (int m = 0; m < n; m++) masks[m] = (masks[m] & ~3) | (masks[m] & 1) << 1 | (masks[m] >> 1 & 1);
}

#if DEVICES == 2
static void q_swap_devices(void) {
    int first_loader = -1, first_trainer = -1;
    for (int n = 0; n < now._nr_pr; n++) {
        if (q_is(n, LOADER) && first_loader < 0) {
            first_loader = n;
        } else if (q_is(n, LOADER)) {
            q_swap_processes(first_loader, n, sizeof(P0) - Air0);
            FIELD(P0, first_loader)->d = 0;
            FIELD(P0, n)->d = 1;
        } else if (q_is(n, TRAINER) && first_trainer < 0) {
            first_trainer = n;
        } else if (q_is(n, TRAINER)) {
            q_swap_processes(first_trainer, n, sizeof(P1) - Air1);
            FIELD(P1, first_trainer)->d = 0;
            FIELD(P1, n)->d = 1;
        }
    }
    q_swap(now.announced, now.announced + 1, 1);
    q_swap(now.batch, now.batch + BATCHES, BATCHES);
    q_swap(now.valid, now.valid + BATCHES, BATCHES);
    q_swap(now.only_read, now.only_read + BATCHES, BATCHES);
    q_swap(now.in_place, now.in_place + BATCHES, BATCHES);
    q_swap(now.alone, now.alone + BATCHES, BATCHES);
    q_swap(now.stale, now.stale + ROWS, ROWS);
    q_swap(now.reading, now.reading + 1, 1);
#if KEEP
    q_swap(now.own_committed, now.own_committed + 1, 1);
    q_swap(now.recalls, now.recalls + 1, 1);
    q_swap(now.taken, now.taken + LISTS, LISTS);
    q_swap(now.kept, now.kept + ROWS, ROWS);
#if PLACE == 2
    q_swap(now.keeps, now.keeps + 1, 1);
#endif
#endif
    for (int e = 0; e < PLANS; e++) q_swap(now.plan + e * 2, now.plan + e * 2 + 1, 1);
    q_flip(now.brings, SLOTS);
    q_flip(now.owed_by, ROWS);
    q_flip(now.written, ROWS);
    for (int r = 0; r < ROWS; r++) now.holder[r] ^= now.holder[r] >= DEVICE(0); /* 2 and 3 */
}
#endif

#if ROWS == 2

static void q_swap_rows(void) {
    q_swap(now.reads, now.reads + 1, 1);
    q_swap(now.holder, now.holder + 1, 1);
    q_swap(now.slot, now.slot + 1, 1);
    q_swap(now.update, now.update + 1, 1);
    q_swap(now.dirty, now.dirty + 1, 1);
    q_swap(now.busy, now.busy + 1, 1);
    q_swap(now.owed_by, now.owed_by + 1, 1);
    q_swap(now.owed_step, now.owed_step + 1, 1);
    q_swap(now.written, now.written + 1, 1);
#if KEEP
    q_swap(now.lacks, now.lacks + 1, 1);
    for (int d = 0; d < DEVICES; d++) q_swap(now.kept + d * 2, now.kept + d * 2 + 1, 1);
    q_flip(now.taken, DEVICES * LISTS);
#endif
    for (int x = 0; x < SLOTS; x++) q_swap(now.queue + x * 2, now.queue + x * 2 + 1, 1);
    for (int d = 0; d < DEVICES; d++) q_swap(now.stale + d * 2, now.stale + d * 2 + 1, 1);
    q_flip(now.batch, DEVICES * BATCHES);
    q_flip(now.valid, DEVICES * BATCHES);
    q_flip(now.alone, DEVICES * BATCHES);
    q_flip(now.plan, PLANS * DEVICES);
    q_flip(now.reading, DEVICES);
    q_flip(&now.plan_piece, 1);
    q_flip(&now.close_piece, 1);
    for (int n = 0; n < now._nr_pr; n++) {
        if (q_is(n, HELPER)) {
            q_flip(&FIELD(P2, n)->rows, 1);
            q_flip(&FIELD(P2, n)->moved, 1);
            q_flip(&FIELD(P2, n)->put, 1);
            q_flip(&FIELD(P2, n)->page, 1);
            q_flip(&FIELD(P2, n)->work, 1);
            q_flip(FIELD(P2, n)->by_slot, SLOTS);
        }
    }
}
#endif

static void q_sort_helpers(void) {
    int first = -1;
    for (int n = 0; n < now._nr_pr; n++) {
        if (!q_is(n, HELPER)) continue;
        if (first >= 0) {
            size_t size = sizeof(P2) - Air2;
            int pid = FIELD(P2, n)->_pid;
            FIELD(P2, n)->_pid = FIELD(P2, first)->_pid; /* equal for the comparison */
            int order = memcmp(pptr(first), pptr(n), size);
            FIELD(P2, n)->_pid = pid;
            if (order > 0) q_swap_processes(first, n, size);
        }
        first = n; /* there are two at most */
    }
}

static State q_least;

static void q_compare(void) {
    q_sort_helpers();
    if (memcmp(&now, &q_least, vsize) < 0) memcpy(&q_least, &now, vsize);
}

/* Replaces the present state by the one that stands for all states that differ from it only in names. */
static void q_represent(void) {
    q_rename_steps();
    q_sort_helpers();
    memcpy(&q_least, &now, vsize);
#if DEVICES == 2
    q_swap_devices();
    q_compare();
#endif
#if ROWS == 2
    q_swap_rows();
    q_compare();
#if DEVICES == 2
    q_swap_devices();
    q_compare();
#endif
#endif
    memcpy(&now, &q_least, vsize);
}

#ifdef CLASSES
static struct q_class {
    struct q_class *next;
    unsigned char state[];
} * q_classes[1 << 20];

static unsigned long q_class_count;

static void q_print_classes(void) {
    printf("%8lu classes\n", q_class_count);
}

static void q_count_class(void) {
    if (!q_class_count) atexit(q_print_classes);
    unsigned long hash = 0;
    for (unsigned long n = 0; n < vsize; n++) hash = (hash ^ ((unsigned char *)&now)[n]) * 0x100000001b3;
    struct q_class **bucket = &q_classes[hash >> 44];
    for (struct q_class *c = *bucket; c; c = c->next)
        if (!memcmp(c->state, &now, vsize)) return;
    struct q_class *added = malloc(sizeof *added + vsize);
    if (!added) abort();
    memcpy(added->state, &now, vsize);
    added->next = *bucket;
    *bucket = added;
    q_class_count++;
}
#endif

/* The search calls this instead of h_store: it looks up, and keeps, the state that stands for the present one. */
static int store_class(void) {
    static State present;
    int found;
    memcpy(&present, &now, vsize);
#ifdef CLASSES
    if ((found = h_store((char *)&now, vsize)) != 0) return found;
    now._a_t = 0; /* which of the two searches it is, if cycles are searched for */
    q_represent();
    q_count_class();
#else
    q_represent();
    found = h_store((char *)&now, vsize);
#endif
    memcpy(&now, &present, vsize);
    return found;
}
