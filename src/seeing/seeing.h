/* seeing.h - counters, as a struct and as text; the version.
 *
 * Its parts give nothing to other parts but public calls. */
#ifndef FRUGAL_SRC_SEEING_H
#define FRUGAL_SRC_SEEING_H

#include "../access/access.h"

#endif
