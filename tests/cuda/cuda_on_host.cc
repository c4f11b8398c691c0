/* cuda_on_host.cc - the runtime of cuda_on_host.h: devices, memory, streams, events, graphs, and failures on request.
 *
 * Its parts are in on_host/; a part includes only parts above it in the list below. One lock guards `world`
 * (on_host/world.h). A stream's thread never takes it while it works, and takes what is queued by release and
 * acquire of the entry alone: ThreadSanitizer then sees no more order between a host and a stream than CUDA gives. */
#include "on_host/world.h"
#include "on_host/pages.h"
#include "on_host/calls.h"
#include "on_host/streams.h"
#include "on_host/devices.h"
#include "on_host/memory.h"
#include "on_host/events.h"
#include "on_host/graphs.h"
#include "on_host/virtual.h"
#include "on_host/driver.h"
#include "on_host/hooks.h"
