/* The picture of build/place: bars of random parts and of the parts that were made. */
#ifndef PLACE_PICTURE_H
#define PLACE_PICTURE_H

#include <stdio.h>

#include "tools/place/figures.h"

/* SVG. `title` is plain text; `before` may be NULL. */
void place_picture(const place_figures *before, const place_figures *after, const char *title, FILE *stream);

#endif
