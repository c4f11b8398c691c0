/* mistakes.h - mistakes that must end the process, with a message: each is made in a process of its own, which is the
 * same program again (`--case name`). For tests of what runs kernels on the host; the file that includes it has
 * included cmocka. */
#ifndef MISTAKES_H
#define MISTAKES_H

#include "../sanitizers.h"
#include "cuda_on_host.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

extern char **environ;

namespace {

enum finder { CHECKS, ACCESSES, TSAN, ASAN, NOBODY }; /* the first two: ours; NOBODY: it is no mistake */
#if defined(UNDER_TSAN)
constexpr finder sanitizer = TSAN;
#elif defined(UNDER_ASAN)
constexpr finder sanitizer = ASAN;
#elif defined(FRUGAL_ACCESSES)
constexpr finder sanitizer = ACCESSES;
#else
constexpr finder sanitizer = CHECKS;
#endif

struct mistake {
    const char *name, *message;
    finder by;
    void (*make)();
};

/* What the process that was started for it returns. */
template <size_t N> int make_mistake(const mistake (&all)[N], const char *name) {
    for (const mistake &m : all) {
        if (strcmp(m.name, name)) continue;
        m.make();
        return cudaDeviceSynchronize();
    }
    return 2;
}

void test_a_mistake(void **state) {
    const mistake &m = *static_cast<const mistake *>(*state);
    std::string said;
    char program[] = "/proc/self/exe", option[] = "--case",
         *arguments[] = {program, option, const_cast<char *>(m.name), nullptr};
    int ends[2], status;
    pid_t child;
    posix_spawn_file_actions_t actions;
    assert_int_equal(0, pipe(ends));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    assert_int_equal(0, posix_spawn(&child, program, &actions, nullptr, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    assert_int_equal(child, waitpid(child, &status, 0));
    bool as_expected = WIFEXITED(status) && (m.by == NOBODY     ? WEXITSTATUS(status) == 0
                                             : m.by <= ACCESSES ? WEXITSTATUS(status) == 98
                                                                : WEXITSTATUS(status) != 0);
    if (!as_expected || said.find(m.message) == std::string::npos)
        fail_msg("%s: status 0x%x, wanted \"%s\", found: %s", m.name, static_cast<unsigned>(status), m.message,
                 said.c_str());
}

/* Those that can be found as the program is compiled. */
template <size_t N> void add_mistakes(std::vector<CMUnitTest> *tests, const mistake (&all)[N]) {
    for (const mistake &m : all)
        if (m.by == CHECKS || m.by == NOBODY || m.by == sanitizer)
            tests->push_back({m.name, test_a_mistake, nullptr, nullptr, const_cast<mistake *>(&m)});
}

} // namespace
#endif
