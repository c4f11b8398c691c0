/* unsynced.c - functions that replace fsync and msync in a library that the tests must catch: nothing is synced. */
#include <stddef.h>

int unsynced_fsync(int fd);
int unsynced_msync(void *memory, size_t bytes, int flags);

int unsynced_fsync(int fd) {
    return (void)fd, 0;
}
int unsynced_msync(void *memory, size_t bytes, int flags) {
    return (void)memory, (void)bytes, (void)flags, 0;
}
