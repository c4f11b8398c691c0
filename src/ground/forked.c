/* forked.c - what a forked child of this process must not have, and that it is told so.
 *
 * A child has the instance's struct, but neither its threads nor its large memory (memory.c: keep_from_children). Every
 * call is refused there, and frugal_close does nothing. A child would also hold copies of descriptors: with them the
 * name of an instance, and the lock of a table's file, would stay taken after this process has closed them or has
 * ended. So these are listed here, and a child closes them.
 */
#include "ground.h"

typedef struct own_file { /* a descriptor that no child keeps; allocated by malloc, so that a child has the list */
    int file;
    struct own_file *next;
} own_file;

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static own_file *own_files; /* a list; under own_lock */

static void before_fork(void) {
    pthread_mutex_lock(&own_lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&own_lock);
}
static void in_child(void) {
    while (own_files) {
        own_file *o = own_files;
        own_files = o->next;
        close(o->file);
        free(o);
    }
    pthread_mutex_unlock(&own_lock);
}
static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child); /* may fail: a child only holds descriptors then */
}

/* Lists a descriptor that was just opened; -1 is accepted. If memory is short, it is not: children hold it then. */
FRUGAL_INTERNAL void list_file(int file) {
    own_file *o = file >= 0 ? malloc(sizeof *o) : NULL;
    if (!o) return;
    pthread_once(&own_once, watch_forks);
    pthread_mutex_lock(&own_lock);
    *o = (own_file){file, own_files};
    own_files = o;
    pthread_mutex_unlock(&own_lock);
}

/* Closes a descriptor, which need not be listed; -1 is accepted. *file becomes -1. */
FRUGAL_INTERNAL void close_file(int *file) {
    own_file *found;
    if (*file < 0) return;
    pthread_mutex_lock(&own_lock); /* no fork comes between the two */
    own_file **at = &own_files;
    while (*at && (*at)->file != *file) at = &(*at)->next;
    if ((found = *at)) *at = found->next;
    close(*file);
    pthread_mutex_unlock(&own_lock);
    free(found);
    *file = -1;
}

/* Has this process opened or joined what names `process`, instead of having been forked with it? */
FRUGAL_INTERNAL int is_this_process(uint32_t process) {
    return process == (uint32_t)getpid();
}
