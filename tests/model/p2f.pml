/* p2f.pml - the state machine of frugal_p2f.h in Promela, for exhaustive checking by spin. tests/model/run checks it.
 *
 * WHAT IS MODELLED. frugal_p2f_announce, plan, gate, commit, close (queued, and applied by the closer), take, take_row
 * and done, as the C code does them: one step of the model is one atomic operation of the code, on a row's word, on a
 * count or on a published counter, or one plain access that another thread could see. A loop around a compare-and-swap
 * is the one step at which it succeeds: what it computes depends on the word that it replaces and on locals alone. Rows
 * are planned and closed one by one; the counts in `pending` follow the words; the ids follow the counts. A claim of a
 * piece is one step. Helpers (workers and waiting threads) do whatever there is to do, in any order. Where the code
 * goes through rows or slots one after another, the model does so in any order.
 *
 * With KEEP, updates that devices keep in their copies, too: frugal_p2f_has_recall, recalls and recall_done, keep.c
 * and what a device on host cores does with its copies (cpu.c). A copy may lose its place in any lookup of its
 * device. An update of a row that the device alone touches goes to its copy, or to the host row if there is no copy;
 * the model chooses.
 *
 * Some operations are one step where no process can see the state between them, so that the searches stay small:
 *   an announcement: nobody reads the batch before it counts
 *   the last count down of a step (announced, planned, committed, closed) and the store that it leads to: no process
 *     looks at the count, and the plain fields written in between are read only by processes that have seen that store.
 *     (A recall may begin when its bit is set, which is before `planned`, and when its device has committed, which is
 *     before the count. It could as well begin after the store, because it does not touch what is read until then.)
 *   the claim of a piece to be planned, and the load of its base: pieces of a step are claimed in any order
 *   the word of a row that is planned, its entries of the plan, its bits, and its place in a list of taken rows: these
 *     are read only by processes that have seen that the step is planned
 *   writing a row, and the change of its word: until then the row is busy, and an assertion catches any process that
 *     reads it
 *   the four tests of a gate: the first three, once true, stay so; an assertion checks that `pending` stays zero
 *     afterwards
 *   updating alone rows, and the commit: what another process could do to these rows or copies before the commit, it
 *     can do after it as well, and then assertions that last until the step is closed catch it
 *   a device's recalls, from the test to the count down: the device's lock and the shut gate keep all others from these
 *     copies and rows; who reads such a row nevertheless can do so before the recall, too, and then it lacks an update
 *
 * WHAT IS LEFT OUT. Reads of closed steps: the code leaves them in a word until the row is announced again, and never
 * asks for them; here closing removes them. Memory is sequentially consistent here: weak memory is the subject of other
 * tests. Pages of the queue are multisets of ids a slot; any ids of a slot may make up a page. Helpers take from any
 * slot, not only from the most urgent: the order in which rows are flushed matters for speed alone. Drain and stop are
 * not there, except that rows are written back as frugal_drain does (TAKES_ROWS). A gate is passed when it is tested;
 * the code may also publish that it is open, for devices to see later. Cancel is one step, in configurations with
 * CANCELS alone: its contract is that nobody else is active but gates and commits of earlier steps.
 *
 * STEPS WITHOUT END. Step numbers are kept modulo CYCLE, a multiple of the length of every ring, so that the run never
 * ends and the model is finite nevertheless. So the checks hold for any number of steps, with each ring wrapping for
 * ever. It is exact because steps that are alive together lie in a window smaller than CYCLE, which is asserted. Rings
 * have the least length that the code's limits allow (S + L < SLOTS; reads: L < 16, the length of that ring).
 *
 * MERGING. The search keeps one state for all states that differ only in names: the number of a step, and which row,
 * device or helper is the first. quotient.h does this, says why it is exact, and how that is checked. It divides the
 * states by up to CYCLE * 2 rows * 2 devices * 2 helpers: 48 times if all of these are there and CYCLE is 6. It
 * requires that names have no meaning in the model: no order by number (of rows, slots, pieces), no step left in a
 * variable that is dead, and no start that differs from later states.
 *
 * DATA. Batches are chosen freely: each device reads any of the rows at each step. Instead of values there are ghosts:
 *   owed_by[r]       the devices whose gradients make up the update of row r that the host row lacks; 0: none
 *   owed_step[r]     its step
 *   stale[d, r]      the copy that device d has of row r lacks an update. Every device always has a copy of every row:
 *                    a copy that is evicted or absent could not be read stale. (With KEEP a copy that is not dirty may
 *                    be absent: then the host row is read, and checked.)
 *   reading[d]       the rows that device d may be reading now: from its gate to its commit
 *   written[r]       the devices that have written row r in place, or have kept its update, at the step that is closed
 *                    next: until then no other device may read it, and no helper may write it
 *   lacks[r]         the host row lacks updates that a device has kept
 * Dead variables are set to zero or to NONE at once, which reduces the number of states; a process that reads them
 * nevertheless is found by an assertion.
 *
 * CHECKED: the INVARIANTs below; that no state is without a successor (no process ever ends); and, with LIVE, that
 * no cycle leaves a step open for ever.
 *   (2) of the paper: at step s no row has a pending update and s in R
 *   every update is applied once, whole (the records of all devices that brought any), before its row's next read
 *   no device reads a copy that lacks an update
 *   a row that a device writes in place is read and written by no other process from its gate until the step is closed
 *   no device reads a host row that lacks an update, and nothing but the copy that has it is written to this row; if no
 *   device keeps any update, no row lacks one
 *   no record, plan, batch or list of taken rows is overwritten while it is needed
 *
 * CONFIGURATION, by -D: DEVICES, ROWS (1, 2), HELPERS, L, S, CYCLE; and 0 or 1 each:
 *   CACHES     valid bits, holders and copies are modelled
 *   SYNC       write-through                         APPLIED    closers apply; nothing is queued
 *   SKIPS      a device may bring no gradients       READ_ONLY  batches may be announced read-only
 *   PIECES     1, or ROWS: each row a piece of its own, planned and closed by any helper
 *   TAKES_ROWS helpers also take single rows whenever they are due, as frugal_read_rows does; and with KEEP there is a
 *              thread that has rows written back, as frugal_drain and frugal_read_rows do
 *   PLACE      1: all batches are in place; 2: any of them
 *   KEEP       devices may keep updates of alone rows: if PLACE is 2, each of them, or one, or none; such a device
 *              announces all its batches in place
 *   WORDLESS   DEVICES is 1, PLACE 1: rows have no words. Announcing seals a step that is planned, and says that all
 *              rows are alone and all copies current; the commit closes it; the queue stays empty. The helper is a
 *              caller that writes rows between steps, and has the copies dropped
 *   CANCELS    the helper takes steps back, whenever frugal_p2f_cancel may: HELPERS is 1
 *
 * MUTANTS, by -D of one name: the mistakes that the model must find. The run script reads this table:
 *   name, configuration, how it is found, the mistake
 *   DEADLINE_LATE         | base    | assertion | the reclaim deadline is one step late: a block is written too soon
 *   READS_IGNORED         | moves   | assertion | due computed without min R: the deadline alone
 *   LAST_READ             | ahead   | assertion | due at the last announced read, not at the next
 *   SYNC_LATE             | sync    | assertion | write-through due one step late
 *   BUSY_NOT_COUNTED      | ahead   | assertion | pending lowered at take: rows in flight are not counted (the paper)
 *   DONE_BEFORE_APPLY     | base    | assertion | pending lowered before the row is written
 *   SLOT_AT_TAKE          | moves   | deadlock  | done lowers the slot it took from, not the one found in the word
 *   COUNT_SATURATES       | moves   | deadlock  | pending stops at zero: a row done before it is counted stays counted
 *   BUSY_UNTESTED         | pages   | assertion | take does not test busy
 *   DIRTY_UNTESTED        | pages   | assertion | take does not test dirty
 *   BUSY_NOT_MOVED        | moves   | assertion | planning leaves the slot of a row that is being applied
 *   MOVED_NOT_RAISED      | moves   | deadlock  | planning moves a row and does not count it in its new slot
 *   MOVED_NOT_LOWERED     | moves   | deadlock  | planning moves a row and leaves it counted in its old slot
 *   MOVED_NOT_QUEUED      | moves   | deadlock  | planning moves a row and leaves its id in the old slot alone
 *   ID_BEFORE_WORD        | moves   | deadlock  | a closer publishes ids before their words are dirty
 *   STALE_KEPT            | live    | livelock  | take puts stale ids back
 *   RETIRES_NEXT          | moves   | deadlock  | commit empties the slot of the next step
 *   BASE_LAGS             | moves   | assertion | planning decodes slots against a base of two steps ago
 *   SLOTS_TOO_FEW         | moves   | assertion | S + L slots
 *   PLANS_TOO_FEW         | base    | assertion | S + L plans
 *   LISTS_TOO_FEW         | keeps   | assertion | L + 1 lists of taken rows
 *   BATCHES_TOO_FEW       | base    | assertion | L batches
 *   LOOKS_TOO_FAR         | base    | assertion | a step is legal L + 1 ahead
 *   PLANS_OVERLAP         | moves   | assertion | a piece is planned before the step before is
 *   FIRST_SEALS           | base    | assertion | the first announcer of a step seals it
 *   FIRST_PLANS           | pieces  | deadlock  | the planner of the first piece publishes planned
 *   PENDING_BEFORE_PLANNED | moves   | assertion | the gate tests pending before planned
 *   PENDING_BEFORE_CLOSED | base    | assertion | the gate tests pending before closed
 *   CLOSED_UNTESTED       | base    | assertion | the gate does not wait until the step before is closed
 *   HALF_COMMITTED        | rows    | assertion | a step is closed when the first device has committed: half sums
 *   CLOSED_EARLY          | moves   | assertion | closed is published before the rows are queued
 *   CLAIMED_TWICE         | pages   | assertion | a piece is claimed by a load and a store
 *   PLANNED_TWICE         | pages   | assertion | a piece of planning is claimed by a load and a store
 *   FIRST_CLOSES          | pieces  | assertion | the closer of the first piece publishes closed
 *   READ_NOT_CLEARED      | base    | assertion | a read of a closed step counts as one to come
 *   NOT_ARMED             | base    | deadlock  | closing does not set the counts of the step that gets the entry next
 *   APPLIED_LATE          | applied | assertion | the closer applies after it has published closed
 *   SKIPS_IGNORED         | skips   | assertion | devices that brought no gradients are summed all the same
 *   ANY_BRINGS            | skips   | assertion | all_bring is set when any device brought gradients
 *   HOLDER_KEPT           | base    | assertion | two devices touch a row and one of them becomes its holder
 *   HOLDER_UNSET          | base    | assertion | the first touch leaves the row to everyone
 *   VALID_AFTER           | base    | assertion | copies are valid by the holder that the step makes
 *   READER_HOLDS          | skips   | assertion | who reads a row that another device writes becomes its holder
 *   COPY_NOT_REFRESHED    | base    | assertion | lookup leaves a copy that is not valid as it is
 *   OTHERS_UNCOUNTED      | place   | assertion | a row is alone although another device has announced it
 *   READER_UNCOUNTED      | reader  | assertion | a row is alone although another device reads it
 *   PLAN_UNTESTED         | moves   | deadlock  | the gate does not wait until the step is planned
 *   SEALED_SUFFICES       | moves   | assertion | the gate waits until all have announced the step, not for its plan
 *   PLACED_DIRTY          | place   | assertion | a closer queues a row that its device has written
 *   PLACED_APPLIED        | within  | assertion | a closer applies the update of a row that its device has written
 *   STAGED_SKIPPED        | mixed   | assertion | a closer leaves out a row that one device alone announced, staged
 *   SHARED_SKIPPED        | place   | assertion | a closer leaves out a row that two devices announced in place
 *   BITS_KEPT             | place   | assertion | bits that the plan of an earlier step has set are used
 *   VALID_KEPT            | base    | assertion | valid bits that the plan of an earlier step has set are used
 *   CANCELLED_BITS        | cancels | assertion | bits that a cancelled plan has set are used
 *   RECALL_MISSING        | swaps   | assertion | planning recalls nothing
 *   HOLDER_SHARES         | swaps   | assertion | a row is not recalled if its holder has announced it, too
 *   READER_NOT_RECALLING  | visits  | assertion | a device that only reads recalls nothing
 *   FIRST_GATHERS         | swaps   | assertion | the planner of the first piece says which devices have recalls
 *   COUNTED_LATE          | keeps   | deadlock  | recalls are counted after the step is planned
 *   RECALLED_EARLY        | keeps   | assertion | a recall is done before the device has committed the step before
 *   RECALLS_UNTESTED      | swaps   | assertion | the gate does not wait for recalls
 *   RECALLS_BEFORE_PLANNED | swaps   | assertion | the gate tests recalls before planned
 *   ONE_DONE              | swaps   | assertion | the gate waits for the recalls of one device
 *   DONE_BEFORE_WRITTEN   | swaps   | assertion | recalls are counted down before the rows are written
 *   CLEAN_WRITTEN         | visits  | assertion | a recall writes clean copies back, too
 *   EVICTED_UNSAVED       | swaps   | assertion | a dirty copy loses its place and is not written back
 *   KEPT_SHARED           | keeps   | assertion | an update is kept although another device has announced the row
 *   KEEPER_STAGES         | among   | assertion | a device that keeps updates announces a batch staged
 *   HOLDER_ASKED          | reads   | assertion | whoever reads a row has it written back by its holder alone
 *   HOLDERS_FORGOTTEN     | anew    | assertion | cancel takes holders away, and does not recall all
 *   MARK_CLEARED          | anew    | assertion | planning takes the mark of cancel back, before the recall
 *   CANCELLED_RECALLS     | anew    | assertion | cancel leaves the recalls of the steps that it takes back
 *   COPY_NOT_DROPPED      | lone    | assertion | without words a caller writes a row, and its copy is not dropped
 *   STAGED_WORDLESS       | lone    | assertion | without words a device leaves the update of its rows to others
 *   CLOSED_AT_GATE        | lone    | assertion | without words a step is closed before its device has committed
 *   CANCELLED_SEALED      | lone    | assertion | cancelling without words leaves steps sealed
 */
#ifndef DEVICES
#error "configurations are given by -D: see tests/model/run"
#endif

/* >>rings */

#ifdef SLOTS_TOO_FEW
#define SLOTS (S + L)
#else
#define SLOTS (S + L + 1) /* the code has 64, for S + L < 64 */
#endif
#define READS (L + 1) /* the code has 16, for L < 16 */
#ifdef BATCHES_TOO_FEW
#define BATCHES L
#else
#define BATCHES (L + 1)
#endif
#ifdef PLANS_TOO_FEW
#define PLANS (S + L)
#else
#define PLANS (S + L + 1)
#endif

#ifdef LISTS_TOO_FEW
#define LISTS (L + 1)
#else
#define LISTS (L + 2)
#endif

#define NEXT(step)     (((step) + 1) % CYCLE)
#define SINCE(a, b)    (((a) + CYCLE - (b)) % CYCLE) /* a - b, where a is not before b */
#define BIT(i)         (1 << (i))
#define HAS(mask, i)   (((mask) >> (i)) & 1)
#define COUNT(mask)    (((mask) & 1) + ((mask) >> 1 & 1)) /* of rows; there are two at most */
#define ALL_DEVICES    (BIT(DEVICES) - 1)
#define ALL_ROWS       (BIT(ROWS) - 1)
#define INVARIANT(x)   assert(x)
#define EVERYONE       0
#define NOBODY         1
#define DEVICE(d)      ((d) + 2)
#define ENTRY(step)    ((step) % SLOTS) /* of the counts and notes kept a step */
#define BATCH(d, step) ((d) * BATCHES + (step) % BATCHES)
#define PLAN(d, step)  ((step) % PLANS * DEVICES + (d))
#define LIST(d, step)  ((d) * LISTS + (step) % LISTS)
#define COPY(d, r)     ((d) * ROWS + (r))
#define NONE           255 /* in place of a step or of a slot that is dead */

/* Options of a loop, one for each row or slot. There are two rows at most; 5 slots are enough for `ahead`. */
#if ROWS == 1
#define EACH_ROW(OPTION) OPTION(0)
#else
#define EACH_ROW(OPTION) OPTION(0) OPTION(1)
#endif
#if SLOTS == 1
#define EACH_SLOT(OPTION) OPTION(0)
#define FILLED            (by_slot[0] != 0)
#elif SLOTS == 2
#define EACH_SLOT(OPTION) OPTION(0) OPTION(1)
#define FILLED            (by_slot[0] || by_slot[1])
#elif SLOTS == 3
#define EACH_SLOT(OPTION) OPTION(0) OPTION(1) OPTION(2)
#define FILLED            (by_slot[0] || by_slot[1] || by_slot[2])
#elif SLOTS == 4
#define EACH_SLOT(OPTION) OPTION(0) OPTION(1) OPTION(2) OPTION(3)
#define FILLED            (by_slot[0] || by_slot[1] || by_slot[2] || by_slot[3])
#elif SLOTS == 5
#define EACH_SLOT(OPTION) OPTION(0) OPTION(1) OPTION(2) OPTION(3) OPTION(4)
#define FILLED            (by_slot[0] || by_slot[1] || by_slot[2] || by_slot[3] || by_slot[4])
#endif

/* >>state - named as in frugal_p2f.h */

byte reads[ROWS], holder[ROWS], slot[ROWS], update[ROWS]; /* the word of a row */
bit dirty[ROWS], busy[ROWS];

byte announced[DEVICES], sealed, planned, committed, closed, plan_claim, close_claim, plan_piece, close_piece;
short pending[SLOTS];
byte queue[SLOTS * ROWS]; /* how often an id lies in a slot */
byte announce_left[SLOTS], commit_left[SLOTS], plan_left[SLOTS], close_left[SLOTS];
byte step_in[SLOTS];              /* the step that an entry stands for */
byte all_bring[SLOTS];            /* no device committed this step without gradients */
byte brings[SLOTS];               /* the devices that brought gradients */
byte batch[DEVICES * BATCHES];    /* rows announced */
byte valid[DEVICES * BATCHES];    /* ... of which a cached copy is current */
byte only_read[DEVICES * BATCHES];
byte in_place[DEVICES * BATCHES]; /* announced in place; if PLACE is 1 all are, and nothing is kept here */
byte alone[DEVICES * BATCHES];    /* rows that no other device has announced, in batches in place, once planned */
byte plan[PLANS * DEVICES];       /* rows that are not finished, by contributor */

byte owed_by[ROWS], owed_step[ROWS], reading[DEVICES], written[ROWS]; /* the ghosts */
bit stale[DEVICES * ROWS];

#if CANCELS
byte inside; /* devices between gate and commit */
#endif

#if KEEP
#if !CACHES || !PLACE
#error "KEEP needs CACHES and PLACE"
#endif
byte own_committed[DEVICES];     /* the step that a device commits next */
byte taken[DEVICES * LISTS];     /* rows that are taken from a device; dead once they are recalled */
bit listed[LISTS];               /* a ghost: a list that may be read, until the step after its own is closed */
byte recalls[DEVICES];           /* bit ENTRY(t): the device has recalls of step t, and they are not done */
byte recall_left[SLOTS];         /* devices with recalls that are not done; dead until the step is planned */
bit recall_all[SLOTS];           /* all that devices keep is recalled, because steps were cancelled */
bit kept[DEVICES * ROWS];        /* the copy is dirty (src/devices/cpu.c): it has updates that the host row lacks */
bit lacks[ROWS];                 /* a ghost: the host row lacks updates, and they are not owed */
#if PLACE == 2
bit keeps[DEVICES]; /* does the device ever keep an update? */
#define KEEPS(d) (keeps[d])
#else
#define KEEPS(d) true
#endif
#endif

#if !KEEP
#define COMPLETE(r)   true
#define IS_KEPT(d, r) false
#define ANY_KEEPS(r)  false
#else
#define COMPLETE(r)   (!lacks[r])
#define IS_KEPT(d, r) (kept[COPY(d, r)])
#define ANY_KEEPS(r)  (kept[COPY(0, r)] || kept[COPY(DEVICES - 1, r)])
#endif

hidden byte i, j, k, who, writers, placed; /* scratch, within one step of the model */

#if PLACE == 2
#define IN_PLACE(d, s) (in_place[BATCH(d, s)])
#else
#define IN_PLACE(d, s) PLACE
#endif

/* >>announce */

/* frugal_priv_seal: what a step needs besides, then the step itself. */
inline seal(t) {
    for (i : 0 .. DEVICES - 1) {
        INVARIANT(plan[PLAN(i, t)] == 0); /* its ring entry is free: no update of it is left to apply */
    }
    step_in[ENTRY(t)] = t;
#if WORDLESS
    plan_claim = NEXT(t); /* nothing is to be claimed */
    planned = NEXT(t);
#else
    plan_left[ENTRY(t)] = PIECES;
    close_left[ENTRY(t)] = PIECES;
#endif
    sealed = NEXT(t);
    INVARIANT(SINCE(sealed, closed) <= L + 1)
}

#ifdef LOOKS_TOO_FAR
#define AHEAD (L + 1)
#else
#define AHEAD L
#endif
#define LEGAL(t) (SINCE(t, closed) != AHEAD + 1) /* t <= closed + L, in the form for t up to closed + L + 1 */

/* The batch is written, with the bits of it that planning will set; then it counts. */
inline announce(d, t) {
#if CANCELS && !defined(CANCELLED_BITS) /* else nobody has set any */
    alone[BATCH(d, t)] = 0;
    valid[BATCH(d, t)] = 0;
#endif
#if WORDLESS
    alone[BATCH(d, t)] = batch[BATCH(d, t)];
    valid[BATCH(d, t)] = batch[BATCH(d, t)];
#endif
    announce_left[ENTRY(t)] = announce_left[ENTRY(t)] - 1;
    if
#ifdef FIRST_SEALS
    :: announce_left[ENTRY(t)] == DEVICES - 1 -> seal(t)
#else
    :: announce_left[ENTRY(t)] == 0 -> seal(t)
#endif
    :: else
    fi;
    announced[d] = NEXT(t)
}

proctype loader(byte d) {
    do
    :: atomic {
            LEGAL(announced[d]) ->
            INVARIANT(batch[BATCH(d, announced[d])] == 0); /* its ring entry is free */
            if
            :: skip
            :: batch[BATCH(d, announced[d])] = 1
#if ROWS > 1
            :: batch[BATCH(d, announced[d])] = 2
            :: batch[BATCH(d, announced[d])] = 3
#endif
            fi;
#if READ_ONLY
            if
            :: skip
            :: only_read[BATCH(d, announced[d])] = 1
            fi;
#endif
#if PLACE == 2
            if
#if KEEP && !defined(KEEPER_STAGES)
            :: !keeps[d] -> skip
#else
            :: skip
#endif
            :: in_place[BATCH(d, announced[d])] = 1
            fi;
#endif
            d_step { announce(d, announced[d]); skip }
        }
    od
}

/* >>plan */

#ifdef READER_NOT_RECALLING
#define TAKERS writers
#elif defined(HOLDER_SHARES)
#define TAKERS ((who & BIT(holder[r] - DEVICE(0))) -> 0 : who)
#elif defined(RECALL_MISSING)
#define TAKERS 0
#else
#define TAKERS who
#endif

/* frugal_priv_next_holder: of devices 0, 1 and both. */
#ifdef HOLDER_KEPT
#define NEXT_HOLDER DEVICE(writers > 1)
#elif defined(HOLDER_UNSET)
#define NEXT_HOLDER (holder[r] == EVERYONE -> EVERYONE : (writers == 3 -> NOBODY : DEVICE(writers - 1)))
#elif defined(READER_HOLDS)
#define NEXT_HOLDER (writers == 3 -> NOBODY : (who == 3 -> DEVICE(2 - writers) : DEVICE(writers - 1)))
#else
#define NEXT_HOLDER (writers == 3 -> NOBODY : DEVICE(writers - 1))
#endif
#ifdef READER_UNCOUNTED
#define CONTRIBUTORS (writers | BIT(i))
#elif defined(OTHERS_UNCOUNTED)
#define CONTRIBUTORS BIT(i)
#else
#define CONTRIBUTORS who
#endif

/* frugal_priv_note_bits, and the entries of the row. */
inline note(r, t) {
    for (i : 0 .. DEVICES - 1) {
        if
        :: HAS(who, i) ->
            INVARIANT(!HAS(plan[PLAN(i, t)], r));
            plan[PLAN(i, t)] = plan[PLAN(i, t)] | BIT(r);
            if
            :: CACHES && (holder[r] == EVERYONE || holder[r] == DEVICE(i)) ->
                valid[BATCH(i, t)] = valid[BATCH(i, t)] | BIT(r)
            :: else
            fi;
            if
            :: IN_PLACE(i, t) && CONTRIBUTORS == BIT(i) -> alone[BATCH(i, t)] = alone[BATCH(i, t)] | BIT(r)
            :: else
            fi
        :: else
        fi
    }
}

/* Those that have announced the row at t, and those of them that may bring gradients. */
inline find_readers(r, t) {
    who = 0;
    writers = 0;
    for (i : 0 .. DEVICES - 1) {
        if
        :: HAS(batch[BATCH(i, t)], r) ->
            who = who | BIT(i);
            if
            :: !only_read[BATCH(i, t)] -> writers = writers | BIT(i)
            :: else
            fi
        :: else
        fi
    }
}

/* frugal_priv_plan_row. The word takes the read at t, and its next holder. If another device has announced the row than
 * its holder, it is taken from that one. */
inline plan_row(r, t) {
    rows = rows & ~BIT(r);
    find_readers(r, t);
    INVARIANT(!HAS(reads[r], t % READS));
#if L > 0
    for (i : 1 .. L) { /* of those to come: reads are added in the order of steps */
        INVARIANT(SINCE(t, closed) + i > L || !HAS(reads[r], (t + i) % READS));
    }
#endif
#ifdef VALID_AFTER
    holder[r] = (CACHES && writers -> NEXT_HOLDER : holder[r]);
#endif
    note(r, t);
#if KEEP
    if
    :: holder[r] >= DEVICE(0) && (TAKERS & ~BIT(holder[r] - DEVICE(0))) ->
        taken[LIST(holder[r] - DEVICE(0), t)] = taken[LIST(holder[r] - DEVICE(0), t)] | BIT(r)
    :: else
    fi;
#endif
    holder[r] = (CACHES && writers -> NEXT_HOLDER : holder[r]);
    reads[r] = reads[r] | BIT(t % READS);
    if
#ifdef BUSY_NOT_MOVED
    :: dirty[r] && !busy[r] && (slot[r] + SLOTS - base % SLOTS) % SLOTS > SINCE(t, base) ->
#else
    :: dirty[r] && (slot[r] + SLOTS - base % SLOTS) % SLOTS > SINCE(t, base) ->
#endif
        by_slot[slot[r]] = by_slot[slot[r]] | BIT(r);
        moved = moved | BIT(r);
        slot[r] = t % SLOTS;
        if
        :: !busy[r] -> put = put | BIT(r)
        :: else
        fi
    :: else
    fi;
    writers = 0
}

inline publish(s, mask) { /* frugal_pq_commit of one page */
    for (i : 0 .. ROWS - 1) {
        if
        :: HAS(mask, i) -> queue[(s) * ROWS + i] = queue[(s) * ROWS + i] + 1
        :: else
        fi
    }
}

#if KEEP
/* frugal_priv_gather_taken */
inline gather_taken(t) {
    recall_left[ENTRY(t)] = 0;
    for (i : 0 .. DEVICES - 1) {
        INVARIANT(!HAS(recalls[i], ENTRY(t))); /* the bit is added */
        if
        :: recall_all[ENTRY(t)] || taken[LIST(i, t)] ->
            recalls[i] = recalls[i] | BIT(ENTRY(t));
            recall_left[ENTRY(t)] = recall_left[ENTRY(t)] + 1
        :: else
        fi
    }
#ifdef MARK_CLEARED
    recall_all[ENTRY(t)] = 0
#endif
}
#endif

/* frugal_p2f_plan_begin: a claim, and the base, which nobody can tell from one that is loaded later. */
inline plan_begin(piece) {
    s = plan_claim;
#ifdef BASE_LAGS
    base = (closed + CYCLE - 2) % CYCLE;
#else
    base = closed;
    INVARIANT(SINCE(s, base) <= L);
#endif
    for (i : 0 .. DEVICES - 1) {
        rows = rows | batch[BATCH(i, s)];
    }
#if KEEP
    INVARIANT(!listed[s % LISTS]);
#endif
#if PIECES > 1
    rows = rows & BIT(piece);
    plan_piece = plan_piece | BIT(piece);
    if
    :: plan_piece == ALL_ROWS -> plan_piece = 0; plan_claim = NEXT(plan_claim)
    :: else
    fi
#else
    plan_claim = NEXT(plan_claim)
#endif
}

/* frugal_p2f_plan_end */
inline plan_end() {
    plan_left[ENTRY(s)] = plan_left[ENTRY(s)] - 1;
    if
#ifdef FIRST_PLANS
    :: plan_left[ENTRY(s)] == PIECES - 1 ->
#else
    :: plan_left[ENTRY(s)] == 0 ->
#endif
#if KEEP
#if !defined(COUNTED_LATE) && !defined(FIRST_GATHERS)
        gather_taken(s);
#endif
        listed[s % LISTS] = 1;
#endif
        INVARIANT(planned == s);
        planned = NEXT(s)
    :: else
    fi;
#ifdef FIRST_GATHERS
    if
    :: plan_left[ENTRY(s)] == PIECES - 1 -> gather_taken(s)
    :: else
    fi;
#endif
#ifndef COUNTED_LATE
    s = NONE;
#endif
    base = NONE
}

/* May the next piece be planned? */
#ifdef PLANS_OVERLAP
#define PLANNABLE (plan_claim != sealed)
#else
#define PLANNABLE (plan_claim != sealed && plan_claim == planned)
#endif
#if PIECES == 1
#define BEGIN_PLAN(piece)                                                                                              \
    :: d_step { IDLE && PLANNABLE -> plan_begin(piece) }
#else /* a row each, in any order */
#define BEGIN_PLAN(piece)                                                                                              \
    :: d_step { IDLE && PLANNABLE && !HAS(plan_piece, piece) -> plan_begin(piece) }
#endif
#define PLAN_ROW(r)                                                                                                    \
    :: d_step { HAS(rows, r) -> plan_row(r, s) }
#ifdef MOVED_NOT_LOWERED
#define LOWER_MOVED(x)                                                                                                 \
    :: d_step { !rows && !moved && by_slot[x] -> by_slot[x] = 0 }
#else
#define LOWER_MOVED(x)                                                                                                 \
    :: d_step { !rows && !moved && by_slot[x] -> pending[x] = pending[x] - COUNT(by_slot[x]); by_slot[x] = 0 }
#endif

/* frugal_priv_plan_rows: the words, then the counts, then the ids. */
inline plan_rows() {
    do
    EACH_ROW(PLAN_ROW)
    :: d_step {
            !rows && moved ->
#ifndef MOVED_NOT_RAISED
            pending[s % SLOTS] = pending[s % SLOTS] + COUNT(moved);
#endif
            moved = 0
        }
    EACH_SLOT(LOWER_MOVED)
    :: d_step {
            !rows && !moved && !FILLED && put ->
#ifndef MOVED_NOT_QUEUED
            publish(s % SLOTS, put);
#endif
            put = 0
        }
    :: d_step { !rows && !moved && !FILLED && !put -> plan_end() }
        break
    od
}

/* >>place */

#ifdef STAGED_WORDLESS
#define WRITES(d, s) false
#else
#define WRITES(d, s) IN_PLACE(d, s)
#endif

#ifdef KEPT_SHARED
#define OWN_ROWS(d, s, keep) ((alone[BATCH(d, s)] | keep) & batch[BATCH(d, s)])
#else
#define OWN_ROWS(d, s, keep) (alone[BATCH(d, s)] & batch[BATCH(d, s)])
#endif

/* Device d updates its alone rows: in place, or in its copy if that is already dirty or the row is one of `keep`
 * (update_kept of src/devices/cpu.c). */
inline update_alone(d, s, keep) {
    for (j : 0 .. ROWS - 1) {
        if
        :: HAS(OWN_ROWS(d, s, keep), j) ->
            INVARIANT(!dirty[j] && !owed_by[j] && !written[j]);
            for (i : 0 .. DEVICES - 1) {
                INVARIANT(i == d || !HAS(reading[i], j));
            }
#if KEEP
            if
            :: HAS(keep, j) || kept[COPY(d, j)] ->
                kept[COPY(d, j)] = 1;
                lacks[j] = 1
            :: else -> INVARIANT(!lacks[j])
            fi;
#endif
            written[j] = BIT(d)
        :: else
        fi
    }
}

/* Does a closer of step s leave row r out? `who` becomes 1 or 0. The plan says which devices have announced it. */
inline find_placed(r, s) {
    who = 0;
    for (i : 0 .. DEVICES - 1) {
        if
        :: HAS(plan[PLAN(i, s)], r) -> who = who + (IN_PLACE(i, s) -> 1 : 4)
        :: else
        fi
    }
#ifdef STAGED_SKIPPED
    who = (who == 1 || who == 4)
#elif defined(SHARED_SKIPPED)
    who = (who == 1 || who == 2)
#elif defined(PLACED_DIRTY) || defined(PLACED_APPLIED)
    who = 0
#else
    who = (who == 1)
#endif
}

/* >>keep */

#if KEEP
/* clean_copy of cpu.c: the host row becomes what device d has in its copy. If the copy is stale, the row then lacks
 * what the copy lacks. */
inline write_back(d, r) {
    INVARIANT(!dirty[r] && !owed_by[r] && !(written[r] & ~BIT(d)));
    for (i : 0 .. DEVICES - 1) {
        INVARIANT(i == d || !HAS(reading[i], r));
    }
    kept[COPY(d, r)] = 0;
    lacks[r] = stale[COPY(d, r)]
}

/* insert_copy of src/devices/cpu.c: within a lookup, any copy may have to give its place away. */
inline evict(d, r) {
#ifdef EVICTED_UNSAVED
    kept[COPY(d, r)] = 0
#else
    write_back(d, r)
#endif
}

#ifdef CLEAN_WRITTEN
#define IS_WRITTEN(d, r) true
#else
#define IS_WRITTEN(d, r) (kept[COPY(d, r)])
#endif

/* write_recalled of src/steps/keep.c: what frugal_p2f_recalls lists, as far as it is dirty. */
inline write_recalled(d, t) {
    for (j : 0 .. ROWS - 1) {
        if
        :: (recall_all[ENTRY(t)] || HAS(taken[LIST(d, t)], j)) && IS_WRITTEN(d, j) -> write_back(d, j)
        :: else
        fi
    }
}

/* frugal_p2f_recall_done. Nobody here reads the list again. */
inline recall_done(d, t) {
#ifndef DONE_BEFORE_WRITTEN
    taken[LIST(d, t)] = 0;
#endif
    recalls[d] = recalls[d] & ~BIT(ENTRY(t));
#ifdef ONE_DONE
    recall_left[ENTRY(t)] = 0
#else
    INVARIANT(recall_left[ENTRY(t)] > 0);
    recall_left[ENTRY(t)] = recall_left[ENTRY(t)] - 1
#endif
}

/* recall_from of src/steps/keep.c. The device is between its commit of the step before and the gate of step t. */
#ifdef DONE_BEFORE_WRITTEN
#define RECALL_FOR(d, t)                                                                                               \
    :: d_step { IDLE && HAS(recalls[d], ENTRY(t)) -> s = t; recall_done(d, t) }                                        \
        d_step { write_recalled(d, s); s = NONE }
#else
#define RECALL_FOR(d, t)                                                                                               \
    :: d_step { IDLE && HAS(recalls[d], ENTRY(t)) -> write_recalled(d, t); recall_done(d, t) }
#endif
#ifdef RECALLED_EARLY
#define RECALL(d) RECALL_FOR(d, own_committed[d]) RECALL_FOR(d, NEXT(own_committed[d]))
#else
#define RECALL(d) RECALL_FOR(d, own_committed[d]) /* frugal_p2f_has_recall */
#endif
#if DEVICES == 1
#define RECALL_ANY RECALL(0)
#else
#define RECALL_ANY RECALL(0) RECALL(1)
#endif

#define EVICT(r)                                                                                                       \
    :: d_step { kept[COPY(d, r)] -> evict(d, r) }
#endif

/* >>gate, commit */

/* The devices that bring gradients for row r at step s, as the plan and the commits say. */
inline find_contributors(r, s) {
    who = 0;
    for (i : 0 .. DEVICES - 1) {
        if
        :: HAS(plan[PLAN(i, s)], r) -> who = who | BIT(i)
        :: else
        fi
    }
#if SKIPS || READ_ONLY
#ifndef SKIPS_IGNORED
    if
    :: !all_bring[ENTRY(s)] -> who = who & brings[ENTRY(s)]
    :: else
    fi
#endif
#endif
}

/* Reads the batch of device d at step s. Now, and again when it commits: in between only an update could change it,
 * and apply() knows which devices are reading. */
inline check_reads(d, s) {
    INVARIANT(pending[s % SLOTS] == 0); /* once zero at its gate, it stays so */
    for (i : 0 .. ROWS - 1) {
        INVARIANT(!dirty[i] || !HAS(reads[i], s % READS)); /* (2) of the paper */
        if
        :: HAS(batch[BATCH(d, s)], i) ->
            INVARIANT(!owed_by[i] && !(written[i] & ~BIT(d)));
            if
            :: HAS(valid[BATCH(d, s)], i) ->
                INVARIANT(!stale[COPY(d, i)]);
                INVARIANT(COMPLETE(i) || IS_KEPT(d, i)) /* if the copy is not there, the host row is read */
            :: else ->
                INVARIANT(COMPLETE(i));
#ifndef COPY_NOT_REFRESHED
                stale[COPY(d, i)] = 0
#else
                skip
#endif
            fi
        :: else
        fi;
        INVARIANT(!HAS(owed_by[i], d) || owed_step[i] % S != s % S) /* the block of step s is free */
    }
}

/* Forgets what no process will ask again of step s, which reduces the number of states. */
inline forget(s) {
    who = (closed == s);
    for (i : 0 .. DEVICES - 1) {
        who = who | (plan[PLAN(i, s)] != 0);
    }
    if
    :: !who -> brings[ENTRY(s)] = 0; all_bring[ENTRY(s)] = 0
    :: else
    fi
}

/* The last closer of a step: the entry's counts for the step that comes to it next, then `closed`. */
inline close_step(s) {
#ifndef NOT_ARMED
    announce_left[ENTRY(s)] = DEVICES;
    commit_left[ENTRY(s)] = DEVICES;
#endif
    for (i : 0 .. DEVICES - 1) { /* a process that still reads these finds nothing */
        batch[BATCH(i, s)] = 0;
#ifndef VALID_KEPT
        valid[BATCH(i, s)] = 0;
#endif
        only_read[BATCH(i, s)] = 0;
        in_place[BATCH(i, s)] = 0;
#ifndef BITS_KEPT
        alone[BATCH(i, s)] = 0;
#endif
#if KEEP
        taken[LIST(i, s)] = 0
#endif
    }
    for (i : 0 .. ROWS - 1) {
        written[i] = 0;
        INVARIANT(COMPLETE(i) || ANY_KEEPS(i)) /* is_complete of src/steps/keep.c relies on this */
    }
#if KEEP
    recall_all[ENTRY(s)] = 0;
    listed[(s + CYCLE - 1) % LISTS] = 0;
#endif
#ifndef CLOSED_AT_GATE
    INVARIANT(closed == s);
    closed = NEXT(s);
#endif
    forget(s)
}

/* All devices have committed step s: what it changes is owed, unless the device that changes it has written it. */
inline owe(s) {
    for (j : 0 .. ROWS - 1) {
        who = 0;
        for (i : 0 .. DEVICES - 1) {
            if
            :: HAS(batch[BATCH(i, s)], j) && HAS(brings[ENTRY(s)], i) -> who = who | BIT(i)
            :: else
            fi
        }
        INVARIANT(!written[j] || written[j] == who); /* a sum is written whole, or not at all */
        if
        :: who ->
            INVARIANT(!owed_by[j]);
            if
            :: !written[j] ->
                owed_by[j] = who;
                owed_step[j] = s
            :: else
            fi;
            for (i : 0 .. DEVICES - 1) {
                if
                :: CACHES && who != BIT(i) -> stale[COPY(i, j)] = 1 /* who alone brought any has updated its own copy */
                :: else
                fi
            }
        :: else
        fi
    }
}

/* The last one to commit. `committed` is stored last: it lets closers begin. */
inline commit_step(s) {
    owe(s);
#ifdef ANY_BRINGS
    all_bring[ENTRY(s)] = (brings[ENTRY(s)] != 0);
#else
    all_bring[ENTRY(s)] = (brings[ENTRY(s)] == ALL_DEVICES);
#endif
    for (i : 0 .. ROWS - 1) { /* frugal_pq_retire */
#ifdef RETIRES_NEXT
        queue[NEXT(s) % SLOTS * ROWS + i] = 0;
#else
        queue[s % SLOTS * ROWS + i] = 0;
#endif
    }
#if WORDLESS
    close_claim = NEXT(s);
    committed = NEXT(s);
    close_step(s) /* frugal_priv_commit_whole: nobody looks at `committed` before `closed` is stored */
#else
    committed = NEXT(s)
#endif
}

/* frugal_p2f_gate tests in this order. */
#ifdef CLOSED_UNTESTED
#define GATE_CLOSED(s) true
#else
#define GATE_CLOSED(s) (s != NEXT(closed)) /* closed >= s */
#endif
#ifdef PLAN_UNTESTED
#define GATE_PLANNED(s) true
#elif defined(SEALED_SUFFICES)
#define GATE_PLANNED(s) (SINCE(sealed, s) > 0)
#else
#define GATE_PLANNED(s) (SINCE(planned, s) > 0)
#endif
#if !KEEP || defined(RECALLS_UNTESTED)
#define GATE_RECALLED(s) true
#else
#define GATE_RECALLED(s) (recall_left[ENTRY(s)] == 0)
#endif
#define GATE_PENDING(s) (pending[s % SLOTS] == 0)

/* frugal_p2f_commit of device d. Its records are written; its alone rows are written now. */
inline commit(d, s) {
#if SKIPS || READ_ONLY
    if
    :: bring = 0
    :: !only_read[BATCH(d, s)] -> bring = 1
    fi;
#else
    bring = 1;
#endif
#if KEEP /* the rows of which it has a copy, and keeps the update */
    if
    :: keep = 0
    :: KEEPS(d) -> keep = 1
#if ROWS > 1
    :: KEEPS(d) -> keep = 2
    :: KEEPS(d) -> keep = 3
#endif
    fi;
#endif
    d_step {
        check_reads(d, s);
        reading[d] = 0;
#if CANCELS
        inside--;
#endif
#if PLACE
        if
        :: bring && WRITES(d, s) -> update_alone(d, s, keep)
        :: else
        fi;
        keep = 0;
#ifndef BITS_KEPT
        alone[BATCH(d, s)] = 0;
#endif
#endif
        brings[ENTRY(s)] = (brings[ENTRY(s)] & ~BIT(d)) | bring << d;
        bring = 0;
        commit_left[ENTRY(s)] = commit_left[ENTRY(s)] - 1;
        if
        :: commit_left[ENTRY(s)] == 0 -> commit_step(s)
        :: else
        fi;
        s = NEXT(s);
#if KEEP
        own_committed[d] = s
#endif
    }
}

proctype trainer(byte d) {
    byte s;
    byte keep;
    bit bring;
    do
    ::
#if defined(PENDING_BEFORE_CLOSED)
        GATE_PLANNED(s) && GATE_PENDING(s);
#elif defined(PENDING_BEFORE_PLANNED)
        GATE_CLOSED(s) && GATE_PENDING(s);
#elif defined(RECALLS_BEFORE_PLANNED)
        GATE_CLOSED(s) && GATE_RECALLED(s);
#endif
        d_step {
#if defined(PENDING_BEFORE_CLOSED)
            GATE_CLOSED(s) ->
#elif defined(PENDING_BEFORE_PLANNED)
            GATE_PLANNED(s) ->
#elif defined(RECALLS_BEFORE_PLANNED)
            GATE_PLANNED(s) && GATE_PENDING(s) ->
#else
            GATE_CLOSED(s) && GATE_PLANNED(s) && GATE_RECALLED(s) && GATE_PENDING(s) ->
#endif
            reading[d] = batch[BATCH(d, s)];
#ifdef CLOSED_AT_GATE
            closed = NEXT(s);
#endif
#if CANCELS
            inside++;
#endif
            check_reads(d, s);
            skip
        }
#if KEEP
        do
        EACH_ROW(EVICT)
        :: atomic { commit(d, s); break }
        od
#else
        atomic { commit(d, s) }
#endif
    od
}

/* >>flush */

inline unplan(r, s) {
    for (i : 0 .. DEVICES - 1) {
        plan[PLAN(i, s)] = plan[PLAN(i, s)] & ~BIT(r);
    }
}

/* Row r is written: the update of step s, from the records that its plan names. */
inline apply(r, s) {
    find_contributors(r, s);
    INVARIANT(who != 0 && who == owed_by[r] && s == owed_step[r] && COMPLETE(r));
    owed_by[r] = 0;
    owed_step[r] = NONE;
    for (i : 0 .. DEVICES - 1) {
        INVARIANT(!HAS(reading[i], r));
    }
    INVARIANT(!written[r]);
    unplan(r, s);
    forget(s)
}

#ifdef BUSY_UNTESTED
#define FREE(r) true
#else
#define FREE(r) (!busy[r])
#endif
#ifdef DIRTY_UNTESTED
#define DIRTY(r) true
#else
#define DIRTY(r) (dirty[r])
#endif

/* frugal_p2f_take of an id of a page; `page` holds those that are left, `work` those that were taken. */
inline take(r) {
    page = page & ~BIT(r);
    if
    :: DIRTY(r) && FREE(r) && slot[r] == p ->
        busy[r] = 1;
#ifdef BUSY_NOT_COUNTED
        pending[p] = pending[p] - 1;
#endif
        work = work | BIT(r)
    :: else ->
#ifdef STALE_KEPT
        queue[p * ROWS + r] = queue[p * ROWS + r] + 1
#else
        skip
#endif
    fi;
    finish()
}

/* Writes a row of `work` and takes its word back: frugal_p2f_done. The row is busy until its word says otherwise, so no
 * process can tell whether it was written just before or long ago. */
inline write_row(r) {
    work = work & ~BIT(r);
#ifdef SLOT_AT_TAKE
    by_slot[p] = by_slot[p] | BIT(r);
#else
    by_slot[slot[r]] = by_slot[slot[r]] | BIT(r);
#endif
#ifdef DONE_BEFORE_APPLY
    late = late | BIT(r);
    step = step_in[update[r]];
#else
    apply(r, step_in[update[r]]);
#endif
    dirty[r] = 0;
    busy[r] = 0;
#ifndef DIRTY_UNTESTED
    slot[r] = NONE;
    update[r] = NONE
#endif
}

/* ... then the counts. */
inline done_count(x) {
#ifdef COUNT_SATURATES
    pending[x] = (pending[x] > COUNT(by_slot[x]) -> pending[x] - COUNT(by_slot[x]) : 0);
#elif !defined(BUSY_NOT_COUNTED)
    pending[x] = pending[x] - COUNT(by_slot[x]);
#endif
    by_slot[x] = 0;
    finish()
}

/* Nothing left to do of a page? */
inline finish() {
    if
    :: !page && !work && !FILLED -> p = NONE
    :: else
    fi
}

/* >>close */

/* frugal_priv_dirty: the due step, less s */
inline find_due(r, s) {
#if SYNC
#ifdef SYNC_LATE
    k = 2;
#else
    k = 1;
#endif
#else
#ifdef DEADLINE_LATE
    k = S + 1;
#else
    k = S;
#endif
#ifndef READS_IGNORED
#ifdef LAST_READ
    i = READS;
    do
    :: i > 1 && !HAS(reads[r], (s + i) % READS) -> i--
    :: else -> break
    od;
#else
    i = 1;
    do
    :: i < k && !HAS(reads[r], (s + i) % READS) -> i++
    :: else -> break
    od;
#endif
    if
    :: HAS(reads[r], (s + i) % READS) && i < k -> k = i
    :: else
    fi
#endif
#endif
}

/* The word of a row of `rows`, in frugal_priv_close_queued. */
inline close_row(r, s) {
    rows = rows & ~BIT(r);
    INVARIANT(!dirty[r] && !busy[r] && HAS(reads[r], s % READS));
#ifndef READ_NOT_CLEARED
    reads[r] = reads[r] & ~BIT(s % READS);
#endif
#if PLACE
    find_placed(r, s);
    if
    :: who -> placed = 1
    :: else
    fi;
#endif
    find_contributors(r, s);
    if
    :: who && !placed ->
        find_due(r, s);
        dirty[r] = 1;
        update[r] = ENTRY(s);
        slot[r] = (s + k) % SLOTS;
        by_slot[slot[r]] = by_slot[slot[r]] | BIT(r);
        uncounted = uncounted | BIT(slot[r])
    :: else -> unplan(r, s)
    fi;
    placed = 0
}

#define CLOSE_ROW(r)                                                                                                   \
    :: d_step { HAS(rows, r) -> close_row(r, s) }
#define COUNT_CLOSED(x)                                                                                                \
    :: d_step {                                                                                                        \
        !rows && HAS(uncounted, x) ->                                                                                  \
        pending[x] = pending[x] + COUNT(by_slot[x]);                                                                   \
        uncounted = uncounted & ~BIT(x)                                                                                \
    }
#ifdef ID_BEFORE_WORD
#define PUBLISH_CLOSED(x)                                                                                              \
    :: d_step { !rows && !uncounted && by_slot[x] -> by_slot[x] = 0 }
#else
#define PUBLISH_CLOSED(x)                                                                                              \
    :: d_step { !rows && !uncounted && by_slot[x] -> publish(x, by_slot[x]); by_slot[x] = 0 }
#endif

inline close_queued(s) {
#ifdef ID_BEFORE_WORD
    d_step {
        for (j : 0 .. ROWS - 1) {
            if
            :: HAS(rows, j) ->
                reads[j] = reads[j] & ~BIT(s % READS);
                find_due(j, s);
                reads[j] = reads[j] | BIT(s % READS);
                queue[(s + k) % SLOTS * ROWS + j] = queue[(s + k) % SLOTS * ROWS + j] + 1
            :: else
            fi
        };
        skip
    }
#endif
    do
    EACH_ROW(CLOSE_ROW)
    EACH_SLOT(COUNT_CLOSED)
    EACH_SLOT(PUBLISH_CLOSED)
    :: atomic { !rows && !FILLED -> break }
    od
}

/* The updates first, then the words (frugal_priv_close_applied). */
inline close_update(r, s) {
    rows = rows & ~BIT(r);
    work = work | BIT(r);
#if PLACE
    find_placed(r, s);
    if
    :: who -> placed = 1
    :: else
    fi;
#endif
    find_contributors(r, s);
    if
    :: who && !placed -> apply(r, s)
    :: else -> unplan(r, s)
    fi;
    placed = 0
}

inline close_word(r, s) {
    work = work & ~BIT(r);
    INVARIANT(HAS(reads[r], s % READS) && !dirty[r]);
    reads[r] = reads[r] & ~BIT(s % READS)
}

#define CLOSE_UPDATE(r)                                                                                                \
    :: d_step { HAS(rows, r) -> close_update(r, s) }
#define CLOSE_WORD(r)                                                                                                  \
    :: d_step { !rows && HAS(work, r) -> close_word(r, s) }

inline close_applied(s) {
    do
    EACH_ROW(CLOSE_UPDATE)
    EACH_ROW(CLOSE_WORD)
    :: atomic { !rows && !work -> break }
    od
}

/* >>cancel */

#if CANCELS
#if HELPERS != 1 || L > 1
#error "CANCELS: one helper, so that no other is active, and L up to 1"
#endif
#define AT_LEAST(i, x) (SINCE(announced[i], closed) > (x)) /* device i has announced step closed + x */
#define IS_SEALED(x)   (SINCE(sealed, closed) > (x))       /* all have */
#define MAY_CANCEL(x)                                                                                                  \
    (IDLE && (x > 0 || (!inside && commit_left[ENTRY(closed)] == DEVICES)) && !dirty[0] && !dirty[ROWS - 1] &&         \
     planned == sealed && (AT_LEAST(0, x) || AT_LEAST(DEVICES - 1, x)))
#define CANCEL(x)                                                                                                      \
    :: d_step { MAY_CANCEL(x) -> cancel((closed + x) % CYCLE) }
#if L == 0
#define CANCEL_ANY CANCEL(0)
#else
#define CANCEL_ANY CANCEL(0) CANCEL(1)
#endif

/* frugal_priv_cancel_rows, and the batch and its plan are dead. The bits of a batch stay as they are. */
inline cancel_batch(d, t, is_planned) {
    for (j : 0 .. ROWS - 1) {
        if
        :: is_planned && HAS(batch[BATCH(d, t)], j) && !WORDLESS ->
            reads[j] = reads[j] & ~BIT(t % READS);
            holder[j] = (CACHES -> NOBODY : EVERYONE)
        :: else
        fi
    }
    batch[BATCH(d, t)] = 0;
    only_read[BATCH(d, t)] = 0;
    in_place[BATCH(d, t)] = 0;
    plan[PLAN(d, t)] = 0;
    announce_left[ENTRY(t)] = DEVICES
}

#if KEEP
/* Step t, which was sealed, is taken back. All that devices keep is recalled for the first such step, because the rows
 * have lost their holders. */
inline cancel_recalls(t, first) {
    for (j : 0 .. DEVICES - 1) {
        taken[LIST(j, t)] = 0; /* dead */
#ifndef CANCELLED_RECALLS
        recalls[j] = recalls[j] & ~BIT(ENTRY(t))
#endif
    }
    listed[t % LISTS] = 0;
#ifndef CANCELLED_RECALLS
    recall_left[ENTRY(t)] = 0; /* dead */
#endif
#ifndef HOLDERS_FORGOTTEN
    recall_all[ENTRY(t)] = first
#endif
}
#endif

/* frugal_p2f_cancel */
inline cancel(c) {
    for (k : 0 .. L) {
        for (i : 0 .. DEVICES - 1) {
            if
            :: AT_LEAST(i, SINCE(c, closed) + k) -> cancel_batch(i, (c + k) % CYCLE, IS_SEALED(SINCE(c, closed) + k))
            :: else
            fi
        }
#if KEEP
        if
        :: IS_SEALED(SINCE(c, closed) + k) -> cancel_recalls((c + k) % CYCLE, k == 0)
        :: else
        fi
#endif
    }
    for (i : 0 .. DEVICES - 1) {
        if
        :: AT_LEAST(i, SINCE(c, closed)) -> announced[i] = c
        :: else
        fi
    }
    if
    :: IS_SEALED(SINCE(c, closed)) ->
#ifndef CANCELLED_SEALED
        sealed = c;
        planned = c;
#endif
        plan_claim = c
    :: else
    fi
}
#endif

#if WORDLESS
#if DEVICES != 1 || PLACE != 1 || !CACHES
#error "WORDLESS: one device, whose batches are all in place"
#endif
/* frugal_write_rows: of a row that nothing is announced for, and of which no update is kept. */
inline write_by_caller(r) {
    INVARIANT(!dirty[r] && !owed_by[r] && !reading[0]);
#ifdef COPY_NOT_DROPPED
    stale[COPY(0, r)] = 1
#else
    stale[COPY(0, r)] = 0 /* it is not there: the row will be read */
#endif
}
#define CALLER_WRITES(r)                                                                                               \
    :: d_step { announced[0] == closed && !ANY_KEEPS(r) -> write_by_caller(r) }
#endif

/* >>helpers */

/* May the next piece be closed? */
#ifdef HALF_COMMITTED
#define CLOSABLE(s) (sealed != s && commit_left[ENTRY(s)] < DEVICES)
#else
#define CLOSABLE(s) (committed != s)
#endif

#ifdef DONE_BEFORE_APPLY
#define IDLE (s == NONE && p == NONE && !late)
#define APPLY_LATE(r)                                                                                                  \
    :: d_step { p == NONE && HAS(late, r) -> late = late & ~BIT(r); apply(r, step) }
#else
#define IDLE (s == NONE && p == NONE)
#endif

#if ROWS == 1
#define POP(x)                                                                                                         \
    :: d_step { IDLE && queue[x] -> queue[x] = queue[x] - 1; p = x; page = 1 }
#else
#define POP(x)                                                                                                         \
    :: d_step { IDLE && queue[(x) * 2] -> queue[(x) * 2] = queue[(x) * 2] - 1; p = x; page = 1 }                       \
    :: d_step { IDLE && queue[(x) * 2 + 1] -> queue[(x) * 2 + 1] = queue[(x) * 2 + 1] - 1; p = x; page = 2 }           \
    :: d_step {                                                                                                        \
        IDLE && queue[(x) * 2] && queue[(x) * 2 + 1] ->                                                                \
        queue[(x) * 2] = queue[(x) * 2] - 1;                                                                           \
        queue[(x) * 2 + 1] = queue[(x) * 2 + 1] - 1;                                                                   \
        p = x;                                                                                                         \
        page = 3                                                                                                       \
    }
#endif
#define TAKE_ROW(r)                                                                                                    \
    :: d_step { IDLE && dirty[r] && FREE(r) -> busy[r] = 1; p = slot[r]; work = BIT(r) }
#define TAKE(r)                                                                                                        \
    :: d_step { HAS(page, r) -> take(r) }
#define WRITE_ROW(r)                                                                                                   \
    :: d_step { !page && HAS(work, r) -> write_row(r) }
#define DONE_COUNT(x)                                                                                                  \
    :: d_step { !page && !work && by_slot[x] -> done_count(x) }
#if PIECES == 1
#define BEGIN_CLOSE(piece)                                                                                             \
    :: d_step { IDLE && CLOSABLE(close_claim) -> close_begin(piece) }
#else /* a row each, in any order */
#define BEGIN_CLOSE(piece)                                                                                             \
    :: d_step { IDLE && CLOSABLE(close_claim) && !HAS(close_piece, piece) -> close_begin(piece) }
#endif

/* frugal_p2f_close_begin. What a helper does with a page and with a piece are options of its one loop, so that there
 * is no state between the end of one and the choice of the next. */
inline close_begin(piece) {
    s = close_claim;
    for (i : 0 .. DEVICES - 1) {
        rows = rows | plan[PLAN(i, s)];
    }
#if PIECES > 1
    rows = rows & BIT(piece);
    close_piece = close_piece | BIT(piece);
    if
    :: close_piece == ALL_ROWS -> close_piece = 0; close_claim = NEXT(close_claim)
    :: else
    fi
#else
    close_claim = NEXT(close_claim)
#endif
}

/* frugal_p2f_close_end */
inline close_end() {
    close_left[ENTRY(s)] = close_left[ENTRY(s)] - 1;
    if
#ifdef FIRST_CLOSES
    :: close_left[ENTRY(s)] == PIECES - 1 -> close_step(s)
#else
    :: close_left[ENTRY(s)] == 0 -> close_step(s)
#endif
    :: else
    fi
}

proctype helper() {
    byte rows, moved, put, page, work, uncounted; /* masks: of rows; the last one of slots */
    byte s = NONE;    /* the step that it plans or closes */
    byte base = NONE; /* closed steps, when it began to plan */
    byte p = NONE; /* the slot of its page */
#ifdef DONE_BEFORE_APPLY
    byte late, step;
#endif
    byte by_slot[SLOTS];
    do
    :: atomic {
            if
#ifdef PLANNED_TWICE
            :: IDLE && PLANNABLE
#elif PIECES == 1
            BEGIN_PLAN(0)
#else
            EACH_ROW(BEGIN_PLAN)
#endif
            fi
        }
#ifdef PLANNED_TWICE
        s = plan_claim;
        d_step { plan_begin(0) }
#endif
        plan_rows()
#ifdef COUNTED_LATE
        skip;
        d_step { gather_taken(s); s = NONE }
#endif
    :: atomic {
            if
#ifdef CLAIMED_TWICE
            :: IDLE && CLOSABLE(close_claim)
#elif PIECES == 1
            BEGIN_CLOSE(0)
#else
            EACH_ROW(BEGIN_CLOSE)
#endif
            fi
        }
#ifdef CLAIMED_TWICE
        s = close_claim;
        d_step { close_begin(0) }
#endif
#if APPLIED && !defined(APPLIED_LATE)
        close_applied(s);
#elif !APPLIED && !defined(CLOSED_EARLY)
        close_queued(s);
#endif
        atomic { d_step { close_end() } }
#ifdef LIVE
progress:
        skip;
#endif
#ifdef APPLIED_LATE
        close_applied(s);
#elif defined(CLOSED_EARLY)
        close_queued(s);
#endif
        s = NONE
#if WORDLESS
    EACH_ROW(CALLER_WRITES)
#endif
#if CANCELS
    CANCEL_ANY
#endif
#if KEEP
    RECALL_ANY
#endif
#if !APPLIED /* the top page of some slot, or one row wherever it is */
    EACH_SLOT(POP)
#if TAKES_ROWS
    EACH_ROW(TAKE_ROW)
#endif
    EACH_ROW(TAKE)
    EACH_ROW(WRITE_ROW)
    EACH_SLOT(DONE_COUNT)
#ifdef DONE_BEFORE_APPLY
    EACH_ROW(APPLY_LATE)
#endif
#endif
    od
}

#if KEEP && TAKES_ROWS
/* frugal_drain has all that is kept written back, at any time (write_back_all of src/steps/keep.c). */
#define DRAIN(d, r)                                                                                                    \
    :: d_step { kept[COPY(d, r)] -> write_back(d, r) }
#if DEVICES == 1
#define DRAIN_ANY(r) DRAIN(0, r)
#else
#define DRAIN_ANY(r) DRAIN(0, r) DRAIN(1, r)
#endif
#define AT_ONE_STEP (closed == committed && own_committed[0] == closed && own_committed[DEVICES - 1] == closed)

/* frugal_read_rows of a row that some device keeps. All devices are asked for it (write_back_keys of access.c). */
inline read(r) {
    for (j : 0 .. DEVICES - 1) {
        if
#ifdef HOLDER_ASKED
        :: kept[COPY(j, r)] && holder[r] == DEVICE(j) -> write_back(j, r)
#else
        :: kept[COPY(j, r)] -> write_back(j, r)
#endif
        :: else
        fi
    }
    INVARIANT(COMPLETE(r) && !owed_by[r])
}
#define READ(r)                                                                                                        \
    :: d_step { AT_ONE_STEP && ANY_KEEPS(r) -> read(r) }

/* A thread that drains or reads. */
proctype reader() {
    do
    EACH_ROW(DRAIN_ANY)
    EACH_ROW(READ)
    od
}
#endif

/* The states that are merged, in C: it is given this model's variables and macros. */
c_code {
#include "quotient.h"
}

init {
    atomic {
        assert(CYCLE % SLOTS == 0 && CYCLE % READS == 0 && CYCLE % BATCHES == 0 && CYCLE % PLANS == 0);
        assert(CYCLE % S == 0 && CYCLE >= L + 3 && CYCLE >= S + 2 && (!KEEP || CYCLE % LISTS == 0));
#if KEEP && PLACE == 2
        if
        :: skip
        :: keeps[0] = 1
        fi;
        if
        :: skip
        :: keeps[DEVICES - 1] = 1
        fi;
#endif
        for (i : 0 .. SLOTS - 1) {
            announce_left[i] = DEVICES;
            commit_left[i] = DEVICES;
            step_in[i] = (i + CYCLE - SLOTS) % CYCLE /* as if it had run for ever */
        }
        for (i : 0 .. ROWS - 1) {
            slot[i] = NONE;
            update[i] = NONE;
            owed_step[i] = NONE
        }
        for (i : 0 .. DEVICES - 1) {
            run loader(i);
            run trainer(i)
        }
        for (i : 0 .. HELPERS - 1) {
            run helper()
        }
#if KEEP && TAKES_ROWS
        run reader();
#endif
        i = 0
    }
}
