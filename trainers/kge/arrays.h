/* Triples in NumPy's arrays, as OGB has them: train_hrt.npy, whose rows are head, relation and tail; val_hrt.npy, or
 * val_hr.npy and val_t.npy (or valid_...); test_hrt.npy, or test_hr.npy and test_t.npy. Numbers have 32 or 64 bits.
 * They are the ids, and in decimal the names. */
#ifndef KGE_ARRAYS_H
#define KGE_ARRAYS_H

#include "trainers/kge/data.h"
#include "trainers/common/npy.h"

enum { KGE_ARRAY_PATH = 4096 };

typedef struct kge_arrays {
    npy_array of[2];           /* of all three parts; or of head and relation, and of the tail */
    char path[KGE_ARRAY_PATH]; /* of the first one */
    uint64_t at;               /* rows read */
    uint64_t most;             /* ids are below */
} kge_arrays;

/* As those of a folder (folder.h). */
int kge_arrays_begin(kge_arrays *arrays, const char *folder, kge_split_kind split, program_error *error);
/* Names for ids are added to those of entities, names[0], and of relations, as they are met. `columns`: what those of
 * an array of three hold. */
int kge_arrays_next(kge_arrays *arrays, const char *columns, kge_names *const names[2], kge_triple *triple,
                    program_error *error);
void kge_arrays_close(kge_arrays *arrays);

#endif
