/* set_check.c - the checker of sets that programs save: FOLDER/set is one of two sets, and whole.
 *
 *     set_check OLD NEW FOLDER ACK STATUS CALL
 *
 * OLD and NEW are what unbroken runs have saved. The set in FOLDER must be one of them, file by file, according to its
 * own manifest, and all that the manifest names must be there. It must be NEW if the program was done, or reported
 * something. A program that has failed or is done leaves no temporary file that its manifest does not name. Exit status
 * 1 if any of this fails.
 */
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "set_check: %s: %s\n", what, why);
    exit(1);
}

static void read_set(manifest *m, const char *folder) {
    program_error error = {.text = ""};
    int found = manifest_read(m, folder, &error);
    if (found <= 0) die("no manifest", found ? error.text : folder);
}

static int is_same(const manifest *a, const manifest *b) {
    int same = a->n == b->n && a->step == b->step;
    for (uint32_t i = 0; i < a->n && same; i++)
        same = !strcmp(a->files[i].name, b->files[i].name) && a->files[i].bytes == b->files[i].bytes &&
               a->files[i].crc32 == b->files[i].crc32;
    return same;
}

/* Does the manifest name the temporary file? */
static int is_named(const manifest *m, const char *name) {
    int named = 0;
    for (uint32_t i = 0; i < m->n; i++) named |= m->files[i].written && !strcmp(m->files[i].written, name);
    return named;
}

static void check_temporary(const manifest *m, const char *folder) {
    DIR *open = opendir(folder);
    if (!open) die("cannot read the folder", folder);
    for (struct dirent *each; (each = readdir(open));)
        if (strstr(each->d_name, FILE_TEMPORARY) && !is_named(m, each->d_name))
            die("a temporary file is left", each->d_name);
    closedir(open);
}

int main(int n, char **arguments) {
    manifest old, new, now;
    program_error error = {.text = ""};
    char folder[MANIFEST_LONGEST_PATH];
    if (n != 7) {
        fprintf(stderr, "usage: set_check OLD NEW FOLDER ACK STATUS CALL\n");
        return 2;
    }
    const char *ack = arguments[4], *status = arguments[5], *call = arguments[6];
    snprintf(folder, sizeof folder, "%s/set", arguments[3]);
    read_set(&old, arguments[1]);
    read_set(&new, arguments[2]);
    read_set(&now, folder);
    if (manifest_check(folder, &error)) die("not whole", error.text);
    if (!is_same(&now, &old) && !is_same(&now, &new)) die("neither the old set nor the new one", folder);
    if ((*ack || !strcmp(status, "done")) && !is_same(&now, &new)) die("the set that was saved is not there", folder);
    if ((!strcmp(status, "done") || !strcmp(status, "failed")) && strcmp(call, "unlink")) check_temporary(&now, folder);
    manifest_free(&old);
    manifest_free(&new);
    manifest_free(&now);
    return 0;
}
