/* opening.h - an instance is opened and closed.
 *
 * Its parts give nothing to other parts but public calls. */
#ifndef FRUGAL_OPENING_H
#define FRUGAL_OPENING_H

#include "../machines/machines.h"

#endif
