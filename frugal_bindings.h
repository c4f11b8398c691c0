/* frugal_bindings.h - what a program was linked with. For bindings, which declare calls and structs again in another
 * language, and so may differ from the library. Of the lookups a binding declares frugal_lookup_into: the others are
 * inline functions in frugal.h, and not in the library.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 */
#ifndef FRUGAL_BINDINGS_H
#define FRUGAL_BINDINGS_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FRUGAL_VERSION (frugal_pq.h) of the code. If that of your declarations differs, they do not fit the code. */
FRUGAL_API int frugal_version(void);
/* Bytes of a public struct, except those for GPUs and of frugal_place.h, by its name, as "frugal_desc"; 0: no such
 * struct. Compare it with the size of your declaration, before the first call of anything else. */
FRUGAL_API size_t frugal_sizeof(const char *type);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_BINDINGS_H */
