/* errors.c - the text of the calling thread's last error, and the refusals that several calls share. */
#include "ground.h"

#include <sys/resource.h>

FRUGAL_INTERNAL _Thread_local char last_message[512] = "no error so far";

const char *frugal_message(void) {
    return last_message;
}

static const char *name_of(frugal_status status) {
    static const struct {
        frugal_status status;
        const char *name;
    } all[] = {
#define STATUS_NAME(name, value, text) {FRUGAL_##name, "FRUGAL_" #name},
        FRUGAL_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status) return all[i].name;
    return NULL;
}

/* Every message is written here, and begins with the name of its status. */
frugal_status frugal_fail(frugal_status status, const char *format, ...) {
    const char *name = name_of(status);
    char text[sizeof last_message]; /* a copy, because the arguments may point to last_message */
    int used = name ? snprintf(text, sizeof text, "%s: ", name)
                    : snprintf(text, sizeof text, "status %d: ", (int)status); /* a device's own status */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    memcpy(last_message, text, strlen(text) + 1);
    return status;
}

/* Copies a message for another thread or process; what does not fit is cut. */
FRUGAL_INTERNAL void copy_text(char *to, size_t size, const char *text) {
    size_t bytes = strlen(text);
    if (bytes > size - 1) bytes = size - 1;
    memcpy(to, text, bytes);
    to[bytes] = 0;
}

/* What the system says of an errno, with the limit and the remedy if it gives no more descriptors: of files, sockets,
 * events and shared memory. It is valid until the thread asks again. */
FRUGAL_INTERNAL const char *error_text(int error) {
    static _Thread_local char text[160];
    struct rlimit most = {0};
    const char *said = strerror(error);
    getrlimit(RLIMIT_NOFILE, &most);
    if (error == EMFILE)
        snprintf(text, sizeof text, "%s; this process may have %llu (`ulimit -n`): raise that limit", said,
                 (unsigned long long)most.rlim_cur);
    else if (error == ENFILE)
        snprintf(text, sizeof text, "%s; close other programs, or raise the limit (`sysctl fs.file-max`)", said);
    else
        snprintf(text, sizeof text, "%s", said);
    return text;
}

FRUGAL_INTERNAL frugal_status fail_memory(const char *what, uint64_t bytes) {
    return frugal_fail(FRUGAL_ERR_MEMORY, "%llu bytes for %s are not available", (unsigned long long)bytes, what);
}

FRUGAL_INTERNAL frugal_status fail_stopped(const char *call) {
    return frugal_fail(FRUGAL_STOPPED, "%s: the instance was stopped; close it", call);
}

FRUGAL_INTERNAL frugal_status fail_ahead(const char *call, uint32_t d, uint64_t step) {
    return frugal_fail(
        FRUGAL_ERR_BUSY,
        "%s: in the middle of step %llu, in which device %u has updated rows in place: update it on every "
        "device first, or open the instance with FRUGAL_ALONE_STAGED",
        call, (unsigned long long)step, d);
}

FRUGAL_INTERNAL frugal_status fail_given(const char *call, uint32_t d, uint64_t step) {
    return frugal_fail(FRUGAL_ERR_BUSY,
                       "%s: device %u was given step %llu, which waits for other devices: update the step before on "
                       "every device first",
                       call, d, (unsigned long long)step);
}

FRUGAL_INTERNAL frugal_status fail_order(const char *call, uint32_t d, uint64_t step, const char *expected,
                                         uint64_t next) {
    return frugal_fail(FRUGAL_ERR_ORDER, "%s of device %u at step %llu; the next step to %s is %llu", call, d,
                       (unsigned long long)step, expected, (unsigned long long)next);
}

FRUGAL_INTERNAL frugal_status fail_forked(uint32_t process, const char *call) {
    return frugal_fail(FRUGAL_ERR_PROCESS,
                       "%s: process %u has the instance, and this is process %u, which was forked from it and has "
                       "neither its table nor its threads; read rows before forking, or open or join an instance here",
                       call, process, (unsigned)getpid());
}

FRUGAL_INTERNAL frugal_status check_open(const frugal *f, const char *call) {
    if (!f || !f->opened) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no open instance", call);
    return is_this_process(f->process) ? FRUGAL_OK : fail_forked(f->process, call);
}

/* The same for calls that return no status. */
FRUGAL_INTERNAL int is_usable(const frugal *f) {
    return f && f->opened && is_this_process(f->process);
}

/* For calls that work on the whole instance. */
FRUGAL_INTERNAL frugal_status check_owner(const frugal *f, const char *call) {
    frugal_status status = check_open(f, call);
    if (status == FRUGAL_OK && !f->ops->owns)
        return frugal_fail(FRUGAL_ERR_PROCESS,
                           "%s: this process has joined the instance; the process that opened it has to make this call",
                           call);
    return status;
}

FRUGAL_INTERNAL frugal_status check_device(const frugal *f, uint32_t d, const char *call) {
    frugal_status status = check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (d >= f->desc.devices)
        return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u; there are %u, from 0", call, d, f->desc.devices);
    if (!is_attached(f, d))
        return frugal_fail(FRUGAL_ERR_DEVICE,
                           "%s: device %u is not attached; call frugal_cpu_attach or frugal_cuda_attach first", call,
                           d);
    return FRUGAL_OK;
}

/* Is it a device of another machine? */
FRUGAL_INTERNAL int is_elsewhere(const frugal *f, uint32_t d) {
    return f->dealing && machine_of(f, d) != f->dealing->me;
}

FRUGAL_INTERNAL frugal_status fail_elsewhere(const frugal *f, uint32_t d, const char *call) {
    const dealing *g = f->dealing;
    return frugal_fail(FRUGAL_ERR_DEVICE,
                       "%s: device %u is of machine %u, which makes its calls; this is machine %u, which has devices "
                       "%u to %u",
                       call, d, machine_of(f, d), g->me, g->me * g->here, (g->me + 1) * g->here - 1);
}

/* For calls of a device's own thread: in the process that opened, a device of another process is not called, and on a
 * machine that of no other one. */
FRUGAL_INTERNAL frugal_status check_own(frugal *f, uint32_t d, const char *call) {
    frugal_status status = check_device(f, d, call);
    if (status == FRUGAL_OK && is_elsewhere(f, d)) return fail_elsewhere(f, d, call);
    if (status != FRUGAL_OK || !f->shared.door) return status;
    if (frugal_load_relaxed(&f->devices[d].linked)) /* relaxed: it was set before `attached`, which was acquired */
        return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u is that of another process, which makes its calls", call,
                           d);
    return status;
}
