/* coroutine.h - stacks that are switched by hand, in some ten instructions: tests that simulate threads switch a
 * hundred million times. x86-64 and AArch64 in assembly, ucontext elsewhere (some twenty times slower, because each
 * switch is a system call). */
#ifndef COROUTINE_H
#define COROUTINE_H

#include <stddef.h>

typedef struct coroutine {
    void *stack_pointer; /* its stack pointer while another coroutine runs */
    void *context;       /* the fallback's */
} coroutine;

/* Prepares `co` to run function(argument) on stack[bytes]. The function must not return: at its end it switches to
 * another coroutine. */
void coroutine_make(coroutine *co, void *stack, size_t bytes, void (*function)(void *), void *argument);
/* Suspends `from` and resumes `to`. The very first `from` stands for the caller's own stack, and is zeroed. */
void coroutine_switch(coroutine *from, coroutine *to);

#endif /* COROUTINE_H */
