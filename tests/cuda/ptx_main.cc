/* ptx_main.cc - main of the test programs that run compiled kernels: test_cuda.c and test_property.c, compiled with
 * -Dmain=frugal_ptx_tests. After the cases of test_cuda it asks whether every entry has had a turn. With
 * FRUGAL_PTX_SHARE, test_property runs a share of its cases, unless FRUGAL_TEST_COUNT says how many. */
#include "ptx_on_host.h"

#include "../sanitizers.h"
#include "ptx_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
int frugal_ptx_tests(int argc, char **argv);
}

namespace {

#ifdef FRUGAL_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
bool all = true; /* every entry has to run */

void test_compiled_code_has_run(void **) {
    ptx_on_host::report r = ptx_on_host::report_of(ptx_on_host::this_module());
    for (const std::string &form : r.idle_forms) print_message("# never executed: %s\n", form.c_str());
    for (const std::string &name : r.idle_entries) print_message("# never launched: %s\n", name.c_str());
    assert_true(r.launches > 0 && r.instructions > 0);
    if (all) assert_int_equal(r.entries, r.entries_run);
}

/* A share of the cases where all would take too long. */
int run_cases(int argc, char **argv) {
#ifdef FRUGAL_PTX_SHARE
    all = false;
    setenv("FRUGAL_TEST_COUNT", sanitized ? "1" : "8", 0);
#endif
#ifdef UNDER_TSAN
    char share[] = "test_g*", *arguments[] = {argv[0], share, nullptr}; /* gates, groups and graphs */
    if (all && argc == 1) {
        all = false;
        return frugal_ptx_tests(2, arguments);
    }
#endif
    return frugal_ptx_tests(argc, argv);
}

int leave(const char *why) {
    printf("1..1\nok 1 - compiled kernels # SKIP %s\n", why);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (!ptx_on_host::has_module()) return leave("there was no nvcc when this was built, so there is no PTX to run");
    std::string target = ptx_on_host::this_module().target;
    if (sanitized && target != "sm_90") return leave("sanitizers have run the code for sm_90");
    std::string seed = target.substr(target.find('_') + 1); /* each target has schedules and cases of its own */
    setenv("FRUGAL_CUDA_SEED", seed.c_str(), 0), setenv("FRUGAL_SEED", seed.c_str(), 0);
    int failed = run_cases(argc, argv);
    if (argc > 1) return failed; /* some of the cases were asked for */
    cmocka_set_test_filter(nullptr);
    const CMUnitTest tests[] = {cmocka_unit_test(test_compiled_code_has_run)};
    return cmocka_run_group_tests_name("compiled code", tests, nullptr, nullptr) || failed;
}
