/* folder.h - a folder that a test has to itself: it is made before the test, and removed with all that lies in it.
 *
 * Include it in one source of a program, behind cmocka.h. */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static char folder[64];

/* In /tmp, of this program's name. 0, or -1. */
static inline int folder_make(const char *program) {
    snprintf(folder, sizeof folder, "/tmp/%s.XXXXXX", program);
    return mkdtemp(folder) ? 0 : -1;
}

/* cmocka's teardown. */
static inline int remove_folder(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* The path of a name in it; it holds until the fourth call behind this one. */
static inline const char *in_folder(const char *name) {
    static char path[4][200];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static inline void put_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#endif /* FOLDER_H */
