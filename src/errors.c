/* errors.c - the text of the calling thread's last error, and the refusals that several calls share. */
#include "host.h"

static _Thread_local char frugal_priv_message[512] = "no error so far";

const char *frugal_message(void) {
    return frugal_priv_message;
}

frugal_status frugal_fail(frugal_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(frugal_priv_message, sizeof frugal_priv_message, format, arguments);
    va_end(arguments);
    return status;
}

static frugal_status frugal_priv_no_memory(const char *what, uint64_t bytes) {
    return frugal_fail(FRUGAL_ERR_MEMORY, "%llu bytes for %s are not to be had", (unsigned long long)bytes, what);
}

static frugal_status frugal_priv_stopped(const char *call) {
    return frugal_fail(FRUGAL_STOPPED, "%s: the instance was stopped; close it", call);
}

static frugal_status frugal_priv_busy(const char *call) {
    return frugal_fail(FRUGAL_ERR_BUSY,
                       "%s: needs a drained instance with nothing announced; call frugal_drain, frugal_cancel", call);
}

static frugal_status frugal_priv_order(const char *call, uint32_t device, uint64_t step, const char *expected,
                                       uint64_t next) {
    return frugal_fail(FRUGAL_ERR_ORDER, "%s of device %u at step %llu; the next step to %s is %llu", call, device,
                       (unsigned long long)step, expected, (unsigned long long)next);
}

static frugal_status frugal_priv_check_open(const frugal *f, const char *call) {
    if (!f || !f->opened) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no open instance", call);
    return FRUGAL_OK;
}

static frugal_status frugal_priv_check_device(const frugal *f, uint32_t device, const char *call) {
    frugal_status status = frugal_priv_check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (device >= f->desc.devices)
        return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u; there are %u, from 0", call, device, f->desc.devices);
    if (!f->devices[device].attached)
        return frugal_fail(FRUGAL_ERR_DEVICE,
                           "%s: device %u is not attached; call frugal_cpu_attach or frugal_cuda_attach first", call,
                           device);
    return FRUGAL_OK;
}
