/* libfuzzer.c - linked into a target in place of replay.c where libFuzzer, which has a main of its own, calls it: the
 * options of the address sanitizer, so that an input replayed by hand fails as it did under tests/fuzz/run. */

const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "detect_stack_use_after_return=1";
}
