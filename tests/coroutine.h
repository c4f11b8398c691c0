/* coroutine.h - stacks that are switched by hand, in some ten instructions: tests that play threads switch a hundred
 * million times. x86-64 and AArch64 in assembly, ucontext elsewhere (some twenty times slower: a system call each). */
#ifndef COROUTINE_H
#define COROUTINE_H

#include <stddef.h>

typedef struct coroutine {
    void *stack_pointer; /* where it stands while another runs */
    void *context;       /* the fallback's */
} coroutine;

/* Prepares `co` to run function(argument) on stack[bytes]. The function must not return: it switches away for good. */
void coroutine_make(coroutine *co, void *stack, size_t bytes, void (*function)(void *), void *argument);
/* Leaves `from` where it stands, and goes on with `to`. The first `from` of all is the caller's own stack: zeroed. */
void coroutine_switch(coroutine *from, coroutine *to);

#endif /* COROUTINE_H */
