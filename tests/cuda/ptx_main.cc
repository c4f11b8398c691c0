/* ptx_main.cc - main of the test programs that run compiled kernels: test_cuda.c and test_property.c, compiled with
 * -Dmain=frugal_ptx_tests. After the cases of test_cuda it asks whether every entry has had a turn. With
 * FRUGAL_PTX_SHARE, test_property runs a share of its cases, unless FRUGAL_TEST_COUNT says how many. */
#include "ptx_on_host.h"

#include "ptx_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
int frugal_ptx_tests(int argc, char **argv);
}

#ifdef FRUGAL_SANITIZED
#define SHARE "1"
#else
#define SHARE "4"
#endif

namespace {

void test_compiled_code_has_run(void **) {
    ptx_on_host::report r = ptx_on_host::report_of(ptx_on_host::this_module());
    for (const std::string &form : r.idle_forms) print_message("# never executed: %s\n", form.c_str());
    for (const std::string &name : r.idle_entries) print_message("# never launched: %s\n", name.c_str());
    assert_true(r.launches > 0 && r.instructions > 0);
#ifndef FRUGAL_PTX_SHARE
    assert_int_equal(r.entries, r.entries_run);
#endif
}

} // namespace

int main(int argc, char **argv) {
    if (!ptx_on_host::has_module()) {
        printf("1..1\nok 1 - compiled kernels # SKIP there was no nvcc when this was built, so there is no PTX to run\n");
        return 0;
    }
#ifdef FRUGAL_PTX_SHARE
    setenv("FRUGAL_TEST_COUNT", SHARE, 0);
#endif
    int failed = frugal_ptx_tests(argc, argv);
    if (argc > 1) return failed; /* some of the cases were asked for */
    const CMUnitTest tests[] = {cmocka_unit_test(test_compiled_code_has_run)};
    return cmocka_run_group_tests_name("compiled code", tests, nullptr, nullptr) || failed;
}
