/* frugal_flush.c - the host: table, staging rings, batches, flush workers, every wait, and the device on host cores.
 *
 * The one C file to compile. It makes the calls of frugal.h from the state machine of frugal_p2f.h, which decides what
 * may be read and what is written next; this file owns memory and threads. It knows a device only as a table of
 * operations (frugal_device_ops). The device on host cores, cpu.c, is compiled with it, and is a device like any other:
 * it sees what device.h declares, and nothing here calls it except through that table.
 *
 *     cc -std=c11 -O3 -ffp-contract=off -fno-math-errno -DNDEBUG -c frugal_flush.c        (link: -lpthread -lm)
 *
 * It has the implementation of frugal_pq.h and frugal_p2f.h, unless FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE is defined,
 * because another file has it. It needs POSIX threads. It uses futexes and huge pages on Linux, and works without them.
 *
 * Contents, in src/. Each part calls only parts that stand above it in this list, except through pointers: operations
 * of devices, and a few others. tests/compile/tower checks the order, and copies this list to docs/design.md:
 *   arithmetic.h    fused operations and the optimizers' formulas, for C and CUDA
 *   counting.h      the byte that stands for a row's touches, for C and CUDA
 *   device.h        what the host and a device know of each other
 *   format.h        what saves and mapped tables consist of, byte by byte
 *   shared.h        memory that several processes share: its structs
 *   host.h          the instance: its structs
 *   ground/         a room: what the host needs of a system: errors, sleeping, memory, files, sockets, threads
 *   forked.c        what a forked child must not have: the names and locks of its parent
 *   errors.c        the text of a thread's last error; refusals that several calls share
 *   event.c         sleeping until something has changed
 *   memory.c        the caller's allocator, or huge pages
 *   numa.c          on which nodes of the machine memory lies
 *   size_limit.c    files that grow, up to the limit of their size
 *   region.c        memory that several processes share, made and mapped
 *   crc32c.c        the checksum of what is written to files
 *   file.c          what a name stands for; making, writing and publishing a file; locks
 *   parallel.c      a function that several threads run at a time
 *   rows/           a room: arithmetic on rows, in the processor's instructions; threads that help; optimizer settings
 *   vectors.c       loops over the elements of a row, which become vectors
 *   types.c         rows of one type as rows of another: widened, and rounded to 16 bits
 *   optimizer.c     one optimizer step on a row: SGD, Adagrad, row-wise Adagrad, Adam
 *   sums.c          gradients of equal keys summed; bags pooled
 *   gather.c        the rows of a batch, copied by position or by record
 *   alone.c         a device's update of its batch: rows that it alone touches, in place
 *   rows.c          the six parts above, once for each instruction set; macros that make compiling shorter
 *   processors.c    which of these sets this processor has; rounding
 *   team.c          threads that help a device's loader and trainer, in pieces
 *   settings.c      optimizer settings: groups of tables, the numbers of a step
 *   self_test.c     do the row functions compute the right bits on this processor?
 *   table/          a room: where the table lies, what copies of its rows are worth, reading of saves, traces
 *   deal.c          rows dealt over machines: their homes, and their numbers here
 *   init.c          the first values of rows
 *   table_file.c    the mapped file: its header, its lock; is it clean or torn?
 *   table.c         where the table lies: memory, the caller's matrix, a mapped file
 *   worth.c         what a copy of each row is worth, counted as batches are announced
 *   saved.c         what a save says of itself
 *   manifest.c      the manifest of a save of several machines
 *   restore.c       the rows of saves are read into the table
 *   causes.c        what keeps a gate closed, in words
 *   trace.c         what threads did, and when: rings of events, and their file
 *   steps/          a room: the work of a step, from its batches to flushed rows, in pieces that any thread does
 *   batch.c         keys become unique rows, and the order in which their gradients are summed
 *   guests.c        rows of other machines that a batch reads
 *   read_ahead.c    a table in a file: pages of announced rows are asked for
 *   clocks.c        counts of contributions, which say which secondaries may be read at a step
 *   announce.c      batches that were handed in: sorted, given to the state machine, planned, by any thread
 *   finish.c        devices whose data has ended: frugal_finish
 *   apply.c         an update is taken, and applied to its row
 *   stream_gates.c  gates published for devices whose streams wait at them
 *   poll.c          devices that go on working after a call has returned; the loss of one
 *   keep.c          updates that devices keep in their caches; recalls: devices write them back
 *   waits/          a room: what a thread waits for, and does meanwhile; workers; the gate of a step
 *   notice.c        texts for frugal_desc.notice; what a wait waits for
 *   help.c          one piece of whatever is most urgent: frugal_help
 *   wait.c          a call waits for other threads: it helps, sleeps, and says what is missing
 *   workers.c       threads, and the instances that they serve
 *   gate.c          the gate of a step, and the threads that wait at it
 *   calls/          a room: a step: announce, lookup, update; stop, drain, cancel
 *   step.c          announce, lookup, update
 *   drain.c         stop, drain, cancel
 *   instance/       a room: what opening, joining and serving share; devices are attached
 *   memory_limit.c  is there as much memory as an instance asks for?
 *   instance.c      what opening, joining and serving share
 *   attach.c        a device is attached; what it asks the host for
 *   processes/      a room: other processes join an instance, and bring devices
 *   socket.c        messages between processes
 *   post.c          a device in a process that has joined: its mailbox
 *   remote.c        devices of other processes, in the one that opened: their posts are served
 *   join.c          a process joins an instance, attaches devices, leaves
 *   door.c          where other processes join an instance; their end is noticed
 *   machines/       a room: one table on several machines: what they say to each other
 *   lost.c          training ends here, because of another machine
 *   away.c          a device of another machine: its keys are announced, its rows sent, its records received
 *   meet.c          calls that all machines make together
 *   read.c          rows of any machine are read
 *   talk.c          the communication thread, which alone calls the wire
 *   opening/        a room: an instance is opened and closed
 *   open.c          an instance is opened: its settings checked, defaults, memory, threads
 *   close.c         an instance is closed
 *   access/         a room: what callers do with rows between steps: read, write, count, list, save
 *   holder.c        between steps: which cached copies are current, by the holder rule of frugal_p2f.h
 *   access.c        reading and writing rows, a view, preloading, verifying
 *   counts.c        the counts of touches: read, set and ranked by callers
 *   secondaries.c   a device's list of rows whose copies may lack updates
 *   save.c          tables are written to a file: all rows, or those that changed
 *   shares.c        frugal_save; several machines save: shares, and a manifest
 *   seeing/         a room: counters, as a struct and as text; the version
 *   stats.c         counters, in a struct
 *   metrics.c       counters as OpenMetrics text
 *   version.c       what a program was linked with
 *   left_out.c      calls of parts that are left out: refused
 *   serving/        a room: versions of a table that is only read
 *   served.c        one version of a table that is served: from saves, or from a file
 *   server.c        lookups from many threads, while newer versions are taken over
 *   devices/        a room: the device on host cores
 *   cpu.c           the device on host cores: a cache under the holder rule
 *
 * Ordered atomic operations, beside those of the headers. The last column says what may go wrong:
 *  | tag  | site                        | order   | pairs with | if it were relaxed                       |
 *  |------|-----------------------------|---------|------------|------------------------------------------|
 *  | [F1] | event: about to sleep       | acquire | [F2]       | sleeps for ever, although it was told    |
 *  | [F2] | event: told                 | release | [F1]       | as [F1]                                  |
 *  | [F3] | `stopped` found set         | acquire | [F4]       | the reason of the stop is missed         |
 *  | [F4] | `stopped` set               | release | [F3][F7]   | as [F3]                                  |
 *  | [F5] | a device's `updated` raised | release | [F6]       | it is committed with the `brings` of     |
 *  |      |                             |         |            | another step                             |
 *  | [F6] | `updated` read by a poll    | acquire | [F5]       | as [F5]                                  |
 *  | [F7] | `stopped` read by a poll    | acquire | [F4]       | what was read through a gate that a stop |
 *  |      |                             |         |            | forced open is committed                 |
 *  | [F8] | gates opened                | release | the device | it reads rows not yet written            |
 *  | [F9] | loss.device set             | release | [F10]      | its message, or lost rows, are missed    |
 *  |[F10] | loss.device read            | acquire | [F9]       | as [F9]                                  |
 *  |[F11] | `told` raised: the device   | release | [F12]      | the device's copy of a batch is missed   |
 *  |[F12] | `told` read by lookup       | acquire | [F11]      | as [F11]                                 |
 *  |[F13] | a seat opened               | release | [F14]      | a worker finds the instance half made    |
 *  |[F14] | a seat entered              | acquire | [F13]      | as [F13]                                 |
 *  |[F15] | a seat left                 | release | [F16]      | an instance is freed while it is used    |
 *  |[F16] | a seat empty?               | acquire | [F15]      | as [F15]                                 |
 *  |[F17] | a device's `done` raised    | release | [F18]      | rows are read while they are written     |
 *  |[F18] | `done` read: after a loss,  | acquire | [F17]      | as [F17]                                 |
 *  |      | or where it is posted       |         |            |                                          |
 *  |[F19] | `counting` set              | release | [F20]      | the bytes are not there yet              |
 *  |[F20] | `counting` read             | acquire | [F19]      | as [F19]                                 |
 *  |[F21] | a step's announcements      | acq_rel | itself     | contributions of another device missed,  |
 *  |      | counted down for the clocks |         |            | or added before it has read the clocks   |
 *  |[F22] | are updates kept?           | acquire | [F23]      | rows are read while they are written     |
 *  |      |                             |         |            | back                                     |
 *  |[F23] | rows are written back       | release | [F22]      | as [F22]                                 |
 *  |[F24] | a device's recalls begun,   | release | [F25]      | what was begun is not there yet; or they |
 *  |      | and done                    |         |            | are begun or counted down once more      |
 *  |[F25] | recalls begun?              | acquire | [F24]      | as [F24]                                 |
 *  |[F26] | `tracing` set               | release | [F27]      | the rings are not there yet              |
 *  |[F27] | `tracing` found set         | acquire | [F26]      | as [F26]                                 |
 *  |[F28] | a word of an event, or      | release | [F29]      | an event is read before it is written,   |
 *  |      | the number of events        |         |            | or half of it is another event           |
 *  |[F29] | these are read              | acquire | [F28]      | as [F28]                                 |
 *  |[F30] | a ring claimed for a call   | acquire | [F31]      | the number of its events is an old one   |
 *  |[F31] | a ring given back           | release | [F30]      | as [F30]                                 |
 *  |[F32] | mail: a post                | release | [F33]      | a batch or an update is taken before it  |
 *  |      |                             |         |            | is there                                 |
 *  |[F33] | a post is found             | acquire | [F32]      | as [F32]                                 |
 *  |[F34] | mail: a post was served, a  | release | [F35]      | a batch is looked up before it is there; |
 *  |      | call was answered           |         |            | a place of the inbox is taken too early  |
 *  |[F35] | that is found               | acquire | [F34]      | as [F34]                                 |
 *  |[F36] | mail: a device begins and   | both    | itself     | rows are read while they are written;    |
 *  |      | ends to write; must not     |         |            | a stream waits for a gate for ever       |
 *  |[F37] | the end of training told    | release | [F38]      | its reason is missed                     |
 *  |[F38] | the end of training found   | acquire | [F37]      | as [F37]                                 |
 *  |[F39] | is a process gone?          | acquire | [F40]      | what it did last is missed               |
 *  |[F40] | a process is gone           | release | [F39]      | as [F39]                                 |
 *  |[F41] | is a device linked to       | acquire | [F42]      | it is not there yet                      |
 *  |      | another process?            |         |            |                                          |
 *  |[F42] | it is                       | release | [F41]      | as [F41]                                 |
 *  |[F43] | may posts be served?        | acquire | [F44]      | batches are announced while others of    |
 *  |      |                             |         |            | these steps are cancelled                |
 *  |[F44] | they may again              | release | [F43]      | as [F43]                                 |
 *  |[F45] | is a device attached?       | acquire | [F46]      | how it is called is not there yet        |
 *  |[F46] | a device is attached        | release | [F45]      | as [F45]                                 |
 *  |[F47] | a lookup of a served table  | acquire | [F48]      | the version is not whole yet             |
 *  |      | begins                      |         |            |                                          |
 *  |[F48] | a version is taken over     | release | [F47]      | as [F47]                                 |
 *  |[F49] | the lookup ends             | release | [F50]      | rows are freed while they are read       |
 *  |[F50] | have all lookups ended?     | acquire | [F49]      | as [F49]                                 |
 *  |[F51] | is the phase before done?   | acquire | [F52]      | what its pieces wrote is not there yet   |
 *  |[F52] | a piece is done             | release | [F51]      | as [F51]                                 |
 *  |[F53] | may announcing begin?       | acquire | [F54]      | what a cancel has dropped is sorted      |
 *  |[F54] | a cancel, or save, has ended| release | [F53]      | as [F53]                                 |
 *  |[F55] | a thread sorts no more      | release | [F56]      | a cancel misses what it has given        |
 *  |[F56] | do all sort no more?        | acquire | [F55]      | as [F55]                                 |
 *  |[F57] | memory for sorting taken    | acquire | [F58]      | it is written while another sorts there  |
 *  |[F58] | memory for sorting free     | release | [F57]      | as [F57]                                 |
 *  |[F59] | is a batch handed in?       | acquire | [F60]      | its rows are not there yet               |
 *  |[F60] | a batch is handed in        | release | [F59]      | as [F59]                                 |
 *  |[F61] | is a batch sorted?          | acquire | [F62]      | its arrays are not there yet             |
 *  |[F62] | a batch is sorted           | release | [F61]      | as [F61]                                 |
 *  |[F63] | is there a teller?          | acquire | [F64]      | it is not there yet                      |
 *  |[F64] | the teller is there         | release | [F63]      | as [F63]                                 |
 *  |[F65] | a step is refused           | release | [F66]      | the batch with the bad key is not found  |
 *  |[F66] | is the step refused?        | acquire | [F65]      | as [F65]                                 |
 *  |[F67] | a device sorts a batch      | release | [F68]      | its operations are not there yet         |
 *  |[F68] | does the device sort?       | acquire | [F67]      | as [F67]                                 |
 *  |[F69] | has it come over the wire?  | acquire | [F70]      | its memory is read while it is received  |
 *  |[F70] | a message has come, or left | release | [F69]      | as [F69]                                 |
 *  |[F71] | something can be sent       | release | [F72]      | what is sent is not written yet          |
 *  |[F72] | can it be sent?             | acquire | [F71]      | as [F71]                                 |
 */
#ifdef __cplusplus
#error "frugal_flush.c is C11: compile it by a C compiler (cc -std=c11), not as C++ or CUDA; frugal.h is for both"
#else
#ifndef FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE
#define FRUGAL_P2F_IMPLEMENTATION
#endif
#undef FRUGAL_STATIC   /* other files call this code, frugal_strerror for one, if they have none of their own */
#define FRUGAL_FLUSH_C /* what crosses parts is static */
#include "src/host.h"

#include "src/ground/forked.c"
#include "src/ground/errors.c"
#include "src/ground/event.c"
#include "src/ground/memory.c"
#include "src/ground/numa.c"
#include "src/ground/size_limit.c"
#include "src/ground/region.c"
#include "src/ground/crc32c.c"
#include "src/ground/file.c"
#include "src/ground/parallel.c"

#include "src/rows/vectors.c"
#include "src/rows/types.c"
#include "src/rows/optimizer.c"
#include "src/rows/sums.c"
#include "src/rows/gather.c"
#include "src/rows/alone.c"
#include "src/rows/rows.c"
#include "src/rows/processors.c"
#include "src/rows/team.c"
#include "src/rows/settings.c"
#include "src/rows/self_test.c"

#include "src/table/deal.c"
#include "src/table/init.c"
#include "src/table/table_file.c"
#include "src/table/table.c"
#include "src/table/worth.c"
#ifndef FRUGAL_NO_SAVES
#include "src/table/saved.c"
#include "src/table/manifest.c"
#include "src/table/restore.c"
#endif
#include "src/table/causes.c"
#ifndef FRUGAL_NO_SEEING
#include "src/table/trace.c"
#endif

#include "src/steps/batch.c"
#include "src/steps/guests.c"
#include "src/steps/read_ahead.c"
#ifndef FRUGAL_NO_SECONDARIES
#include "src/steps/clocks.c"
#endif
#include "src/steps/announce.c"
#include "src/steps/finish.c"
#include "src/steps/apply.c"
#include "src/steps/stream_gates.c"
#include "src/steps/poll.c"
#include "src/steps/keep.c"

#include "src/waits/notice.c"
#include "src/waits/help.c"
#include "src/waits/wait.c"
#include "src/waits/workers.c"
#include "src/waits/gate.c"

#include "src/calls/step.c"
#include "src/calls/drain.c"

#include "src/instance/memory_limit.c"
#include "src/instance/instance.c"
#include "src/instance/attach.c"

#include "src/processes/socket.c"
#include "src/processes/post.c"
#include "src/processes/remote.c"
#include "src/processes/join.c"
#include "src/processes/door.c"

#include "src/machines/lost.c"
#include "src/machines/away.c"
#include "src/machines/meet.c"
#include "src/machines/read.c"
#include "src/machines/talk.c"

#include "src/opening/open.c"
#include "src/opening/close.c"

#include "src/access/holder.c"
#include "src/access/access.c"
#include "src/access/counts.c"
#ifndef FRUGAL_NO_SECONDARIES
#include "src/access/secondaries.c"
#endif
#ifndef FRUGAL_NO_SAVES
#include "src/access/save.c"
#include "src/access/shares.c"
#endif

#include "src/seeing/stats.c"
#ifndef FRUGAL_NO_SEEING
#include "src/seeing/metrics.c"
#endif
#include "src/seeing/version.c"
#include "src/seeing/left_out.c"

#ifndef FRUGAL_NO_SERVING
#include "src/serving/served.c"
#include "src/serving/server.c"
#endif

#include "src/devices/cpu.c"
#endif /* C */
