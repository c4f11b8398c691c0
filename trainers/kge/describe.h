/* What the bits of a training depend on, a line each (common/identity.h), for its checkpoints. */
#ifndef KGE_DESCRIBE_H
#define KGE_DESCRIBE_H

#include <stdio.h>

#include "trainers/kge/train.h"

/* The caller checks for errors of writing. */
void kge_describe(const kge_settings *settings, const kge_saved *saved, const kge_graph *graph, FILE *lines);

#endif
