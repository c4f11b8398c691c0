/* expect.h - checks of calls that must fail, and of their messages. Include after cmocka.h. */
#ifndef EXPECT_H
#define EXPECT_H

#include <string.h>
#include "../frugal.h"

/* The status is `wanted`, and the message has both texts in it. */
static inline void expect_failure(frugal_status wanted, frugal_status got, const char *text1, const char *text2,
                                  const char *call, int line) {
    const char *message = frugal_message();
    if (got != wanted) fail_msg("line %d: %s returned %d, not %d (%s)", line, call, (int)got, (int)wanted, message);
    if (!strstr(message, text1) || !strstr(message, text2))
        fail_msg("line %d: %s: the message lacks \"%s\" or \"%s\": %s", line, call, text1, text2, message);
}

#endif /* EXPECT_H */
