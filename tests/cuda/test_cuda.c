/* test_cuda.c - devices on GPUs: every option, every order of calls and every failure that can be provoked.
 *
 * A small trainer on one thread beside the sequential reference (tests/reference.h): whatever a case does in between,
 * the rows that were looked up and the drained table must be the reference's, bit for bit. Forward and backward are a
 * kernel (gpu_train), so that steps can be enqueued without a wait; what it was given is kept, and judged later.
 * The trainer is cases/world.h; each other part of cases/ has the cases of one subject.
 * On a GPU (ninja cuda-test) or on the host (cuda_on_host.h); cases that provoke failures need the latter. */
#include "cases/world.h"
#include "cases/attach.h"
#include "cases/arithmetic.h"
#include "cases/caches.h"
#include "cases/gates.h"
#include "cases/groups.h"
#include "cases/clip.h"
#include "cases/graphs.h"
#include "cases/bags.h"
#include "cases/place.h"
#include "cases/kept.h"
#include "cases/captures.h"
#include "cases/sort.h"
#ifdef TEST_CUDA_ON_HOST
#include "cases/failures.h"
#include "cases/losses.h"
static int set_up_failing(void **state) {
    set_up(state);
    keys_there = 0;
    return 0;
}
#define ON_HOST(test) cmocka_unit_test_setup_teardown(test, set_up_failing, tear_down)
#else
static void skipped(void **state) {
    (void)state;
    skip();
}
#define ON_HOST(test)                                                                                                  \
    { #test " (needs CUDA on the host)", skipped, set_up, tear_down, NULL }
#endif

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    setenv("TEST_CUDA_PIECE", "1", 1); /* memory is registered in small pieces (ninja/tests.ninja) */
    const struct CMUnitTest tests[] = {
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        CASE(test_attach_errors),
        CASE(test_tables),
        CASE(test_file),
#define DIMS(kind, ...) CASE(test_dims_##kind),
        FRUGAL_OPTIMIZERS(DIMS) CASE(test_duplicates),
        CASE(test_not_numbers),
        CASE(test_rounding),
        CASE(test_edges_in_arrays),
        CASE(test_sizes),
        CASE(test_cached_bytes),
        CASE(test_lru),
        CASE(test_counted),
        CASE(test_fresh_copies),
        CASE(test_lost),
        CASE(test_static),
        CASE(test_caches),
        CASE(test_read_only),
        ON_HOST(test_who_sorts),
        ON_HOST(test_batches_out_of_reach),
        ON_HOST(test_explains_sorting),
        ON_HOST(test_records_behind_keys),
        ON_HOST(test_close_while_told),
        ON_HOST(test_close_at_a_gate),
        ON_HOST(test_reset_while_sorting),
        CASE(test_bad_keys),
        CASE(test_announce_there),
        CASE(test_unreadable_keys),
        CASE(test_sorts_with_an_error),
        CASE(test_sorts_beside_captures),
        CASE(test_many_segments),
        CASE(test_counts_there),
        CASE(test_stop_in_order),
        CASE(test_repeated),
        CASE(test_gates),
        CASE(test_gates_mixed),
        CASE(test_in_step),
        CASE(test_stop_at_a_gate),
        CASE(test_freed_at_a_gate),
        CASE(test_groups),
        CASE(test_clip),
        CASE(test_groups_gated),
        CASE(test_frozen),
        CASE(test_graphs),
        CASE(test_graphs_of_groups),
        CASE(test_graphs_of_frozen_rows),
        CASE(test_graphs_gated),
        CASE(test_graph_errors),
        CASE(test_capture_of_nothing),
        CASE(test_callers_error),
        CASE(test_blocking_streams),
        CASE(test_bags),
        CASE(test_bags_of_one_device),
        CASE(test_bad_bags),
#define PLACE(kind, ...) CASE(test_place_##kind),
        FRUGAL_OPTIMIZERS(PLACE) CASE(test_place_frozen),
        CASE(test_place_gates),
        CASE(test_place_graphs),
        CASE(test_place_records),
        CASE(test_place_bags),
        CASE(test_place_in_a_step),
        CASE(test_place_gathered),
        CASE(test_place_forced),
#define KEPT(test)            {#test " (kept)", test, set_up_kept, tear_down_kept, NULL}
#define PLACE_KEPT(kind, ...) KEPT(test_place_##kind),
        FRUGAL_OPTIMIZERS(PLACE_KEPT) KEPT(test_place_frozen),
        KEPT(test_place_gates),
        KEPT(test_place_graphs),
        KEPT(test_place_records),
        KEPT(test_place_bags),
        KEPT(test_place_in_a_step),
        KEPT(test_place_gathered),
        CASE(test_kept_until_drained),
        CASE(test_kept_evicted),
        CASE(test_kept_recalled),
        CASE(test_kept_recounted),
        CASE(test_kept_forced),
        CASE(test_captures_of_others),
        CASE(test_default_stream),
        ON_HOST(test_no_gpu),
        ON_HOST(test_old_gpu),
        ON_HOST(test_small_memory),
        ON_HOST(test_attach_failures),
        ON_HOST(test_first_attach_failures),
        ON_HOST(test_attach_allocations),
        ON_HOST(test_refused_registration),
        ON_HOST(test_refusal_is_told),
        ON_HOST(test_pieces),
        ON_HOST(test_node),
        ON_HOST(test_stale_pages),
        ON_HOST(test_failed_unregister),
        ON_HOST(test_unused_gates),
        ON_HOST(test_contexts),
        ON_HOST(test_gate_kernel),
        ON_HOST(test_watchdog),
        ON_HOST(test_held_launches),
        ON_HOST(test_no_synchronization),
        ON_HOST(test_failures_in_training),
        ON_HOST(test_failures_in_sorting),
        ON_HOST(test_failures_between_steps),
        ON_HOST(test_loss),
        ON_HOST(test_silent),
        ON_HOST(test_silent_beside_attach),
        ON_HOST(test_loss_of_counts),
        ON_HOST(test_loss_at_gates),
        ON_HOST(test_reset),
    };
    return cmocka_run_group_tests_name("test_cuda", tests, NULL, NULL);
}
