/* saves.c - see saves.h. */
#include "tests/durability/saves.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

save_there saves[SAVES];
uint32_t n_saves;

void save_name(char name[NAME], const char *folder, uint64_t step, int increment) {
    snprintf(name, NAME, "%s/%s-%08llu", folder, increment ? "increment" : "base", (unsigned long long)step);
}

/* The newest first. */
static int by_step(const void *a, const void *b) {
    const frugal_saved *x = &((const save_there *)a)->saved, *y = &((const save_there *)b)->saved;
    return x->step < y->step ? 1 : x->step > y->step ? -1 : 0;
}

void find_saves(const char *folder) {
    DIR *open = opendir(folder);
    if (!open) die("cannot read the folder", folder);
    n_saves = 0;
    for (struct dirent *each; (each = readdir(open));) {
        unsigned long long step = 0;
        int named = sscanf(each->d_name, "base-%llu", &step) == 1 || sscanf(each->d_name, "increment-%llu", &step) == 1;
        if (!named && strcmp(each->d_name, "newest")) continue;
        if (n_saves == SAVES) die("too many saves", folder);
        save_there *there = &saves[n_saves++];
        snprintf(there->name, NAME, "%s/%s", folder, each->d_name);
        must_be_ok(frugal_read_saved(there->name, 0, &there->saved), "a save is damaged");
        if (named && there->saved.step != step) die("a save is of another step than its name", there->name);
    }
    closedir(open);
    qsort(saves, n_saves, sizeof *saves, by_step);
}

uint32_t find_chain(uint32_t at, const char *paths[SAVES]) {
    uint32_t n = 0;
    for (;;) {
        memmove(paths + 1, paths, n++ * sizeof *paths);
        paths[0] = saves[at].name;
        if (!saves[at].saved.increment) return n;
        uint32_t parent = 0;
        while (parent < n_saves && saves[parent].saved.id != saves[at].saved.parent) parent++;
        if (parent == n_saves || n == SAVES - 1) return 0;
        at = parent;
    }
}

void resume(trainer *t, const char *folder, const char *table) {
    const char *paths[SAVES];
    find_saves(folder);
    for (uint32_t i = 0; i < n_saves; i++) {
        uint32_t n = find_chain(i, paths);
        if (n && open_trainer(t, &(opening){.saved = paths, .n_saved = n, .table = table}) == FRUGAL_OK) return;
        fprintf(stderr, "trainee: cannot resume from %s: %s\n", saves[i].name, n ? frugal_message() : "no parent");
    }
    must_be_ok(open_trainer(t, &(opening){.table = table}), "open");
}
