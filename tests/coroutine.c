/* coroutine.c - see coroutine.h. A switch pushes what a called function must preserve (but for the floating-point
 * environment, which no test changes), exchanges the stack pointers, and pops. */
#include "coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__aarch64__)

void coroutine_exchange(void **from, void *to) __asm__("frugal_test_coroutine_exchange");
void coroutine_enter(void) __asm__("frugal_test_coroutine_enter");

#ifdef __x86_64__
__asm__(".text\n"
        ".globl frugal_test_coroutine_exchange\n"
        "frugal_test_coroutine_exchange:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".globl frugal_test_coroutine_enter\n"
        "frugal_test_coroutine_enter:\n" /* r12: function, r13: argument */
        "    movq %r13, %rdi\n"
        "    callq *%r12\n"
        "    ud2\n");
enum { SAVED = 7, FUNCTION = 3, ARGUMENT = 2, RETURN = 6 }; /* words, from the stack pointer up */
#else
__asm__(".text\n"
        ".globl frugal_test_coroutine_exchange\n"
        "frugal_test_coroutine_exchange:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x2, sp\n    str x2, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".globl frugal_test_coroutine_enter\n"
        "frugal_test_coroutine_enter:\n" /* x19: function, x20: argument */
        "    mov x0, x20\n"
        "    blr x19\n"
        "    brk #0\n");
enum { SAVED = 20, FUNCTION = 0, ARGUMENT = 1, RETURN = 11 };
#endif

void coroutine_make(coroutine *co, void *stack, size_t bytes, void (*function)(void *), void *argument) {
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    uintptr_t *frame = (uintptr_t *)top - SAVED;
    memset(frame, 0, SAVED * sizeof *frame);
    frame[FUNCTION] = (uintptr_t)function;
    frame[ARGUMENT] = (uintptr_t)argument;
    frame[RETURN] = (uintptr_t)coroutine_enter;
    co->stack_pointer = frame;
}

void coroutine_switch(coroutine *from, coroutine *to) {
    coroutine_exchange(&from->stack_pointer, to->stack_pointer);
}

#else
#include <ucontext.h>

static void enter(unsigned f_low, unsigned f_high, unsigned a_low, unsigned a_high) {
    uintptr_t function = (uintptr_t)f_low | (uintptr_t)((uint64_t)f_high << 32);
    uintptr_t argument = (uintptr_t)a_low | (uintptr_t)((uint64_t)a_high << 32);
    ((void (*)(void *))function)((void *)argument);
    abort();
}

static ucontext_t *context_of(coroutine *co) {
    if (!co->context && !(co->context = calloc(1, sizeof(ucontext_t)))) abort();
    return co->context;
}

void coroutine_make(coroutine *co, void *stack, size_t bytes, void (*function)(void *), void *argument) {
    ucontext_t *context = context_of(co);
    uint64_t f = (uintptr_t)function, a = (uintptr_t)argument;
    if (getcontext(context) != 0) abort();
    context->uc_stack.ss_sp = stack, context->uc_stack.ss_size = bytes, context->uc_link = NULL;
    makecontext(context, (void (*)(void))enter, 4, (unsigned)f, (unsigned)(f >> 32), (unsigned)a, (unsigned)(a >> 32));
}

void coroutine_switch(coroutine *from, coroutine *to) {
    if (swapcontext(context_of(from), context_of(to)) != 0) abort();
}
#endif
