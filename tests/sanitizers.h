/* sanitizers.h - which sanitizers a test is compiled with, by gcc or by clang: UNDER_ASAN, UNDER_TSAN. */
#ifndef SANITIZERS_H
#define SANITIZERS_H

#ifdef __has_feature /* clang's */
#if __has_feature(address_sanitizer)
#define UNDER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(UNDER_ASAN)
#define UNDER_ASAN
#endif
#if defined(__SANITIZE_THREAD__) && !defined(UNDER_TSAN)
#define UNDER_TSAN
#endif

#endif
