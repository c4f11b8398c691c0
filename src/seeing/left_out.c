/* left_out.c - what a program calls of parts that were left out: each call is refused, and says by which macro. So
 * programs link, and bindings find every call. */
#include "seeing.h"

#ifdef FRUGAL_NO_SAVES
frugal_status frugal_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc) {
    return FAIL_LEFT_OUT("save", "saves are", "FRUGAL_NO_SAVES");
}
frugal_status frugal_read_saved(const char *path, uint32_t part, frugal_saved *out) {
    return FAIL_LEFT_OUT("read_saved", "saves are", "FRUGAL_NO_SAVES");
}
#endif

#ifdef FRUGAL_NO_SECONDARIES
frugal_status frugal_secondaries(frugal *f, uint32_t device, const frugal_keys *keys, uint32_t bound) {
    return FAIL_LEFT_OUT("secondaries", "secondaries are", "FRUGAL_NO_SECONDARIES");
}
#endif

#ifdef FRUGAL_NO_SEEING
static frugal_status fail_seeing(void) {
    return FAIL_LEFT_OUT("trace, write_metrics", "traces and metrics are", "FRUGAL_NO_SEEING");
}
frugal_status frugal_trace_start(frugal *f, uint32_t events) {
    return fail_seeing();
}
frugal_status frugal_trace_stop(frugal *f) {
    return fail_seeing();
}
frugal_status frugal_trace_write(frugal *f, const char *path) {
    return fail_seeing();
}
size_t frugal_write_metrics(frugal *const *instances, const char *const *names, uint32_t n, char *text, size_t size) {
    fail_seeing();
    return 0;
}
#endif

#ifdef FRUGAL_NO_SERVING /* nobody has a server */
static frugal_status fail_serving(void) {
    return FAIL_LEFT_OUT("serve", "serving is", "FRUGAL_NO_SERVING, and without FRUGAL_NO_SAVES");
}
frugal_status frugal_serve_open(const frugal_serve_desc *desc, frugal_server **out) {
    if (out) *out = NULL;
    return fail_serving();
}
void frugal_serve_close(frugal_server *server) {}
frugal_status frugal_serve_lookup(frugal_server *server, const frugal_keys *segments, uint32_t n_segments, float *rows,
                                  uint64_t *step) {
    return fail_serving();
}
frugal_status frugal_serve_bags(frugal_server *server, const frugal_keys *segments, uint32_t n_segments,
                                const frugal_bags *bags, float *pooled, uint64_t *step) {
    return fail_serving();
}
frugal_status frugal_serve_refresh(frugal_server *server, const frugal_served *from) {
    return fail_serving();
}
frugal_status frugal_serve_get_info(frugal_server *server, frugal_serve_info *out) {
    return fail_serving();
}
uint64_t frugal_serve_rows(frugal_server *server, uint32_t table) {
    fail_serving();
    return 0;
}
frugal_status frugal_serve_hold(frugal_server *server, frugal_served_memory *out) {
    return fail_serving();
}
void frugal_serve_release(frugal_server *server, const frugal_served_memory *memory) {}
#endif

#if !HAS_PROCESSES
frugal_status frugal_join(const char *name, double seconds, frugal **out) {
    (void)name, (void)seconds;
    if (out) *out = NULL;
    return fail_unsupported("join");
}
#endif
