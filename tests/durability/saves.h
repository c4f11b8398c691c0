/* saves.h - the saves of a folder, as trainee.c names them: found, put into chains, resumed from. */
#ifndef SAVES_H
#define SAVES_H

#include "tests/durability/work.h"

enum { SAVES = 64 };

typedef struct save_there {
    char name[NAME];
    frugal_saved saved;
} save_there;
extern save_there saves[SAVES]; /* set by find_saves, the newest first */
extern uint32_t n_saves;

void save_name(char name[NAME], const char *folder, uint64_t step, int increment);
/* Finds all files with the name of a save. A file that is not whole ends the process. */
void find_saves(const char *folder);
/* The names of the chain that ends with saves[at], its base first; 0: one is missing. */
uint32_t find_chain(uint32_t at, const char *paths[SAVES]);
/* Resumes from the newest save that can be opened, or from the beginning. `table`: as in `opening`. */
void resume(trainer *t, const char *folder, const char *table);

#endif /* SAVES_H */
