/* What a log is, for the sources of this folder. Others see clicks.h alone. */
#ifndef CLICKS_LOG_H
#define CLICKS_LOG_H

#include "trainers/clicks/clicks.h"
#include "trainers/clicks/generate.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/schema.h"

struct clicks {
    clicks_settings settings;
    clicks_schema schema;
    clicks_planted planted;          /* CLICKS_GENERATED */
    const char **files;              /* settings.files, copied; NULL: none */
    clicks_vocabulary *vocabularies; /* vocabularies[features]; CLICKS_VOCABULARY */
    uint32_t most_ids;               /* with bags; 0: not known yet */
    int prepared;
};

#endif
