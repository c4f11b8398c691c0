/* Lines of a text file, plain or gz, or of what is read as text (filter.h, npy.h), a block at a time.
 */
#ifndef CLICKS_FILE_H
#define CLICKS_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "trainers/clicks/bytes.h"
#include "trainers/clicks/filter.h"
#include "trainers/clicks/npy.h"
#include "trainers/common/program.h"

#ifndef CLICKS_BLOCK /* tests have small ones: more lines then lie across two of them */
#define CLICKS_BLOCK        (256 << 10)
#define CLICKS_LONGEST_LINE (64 << 10)
#endif

enum {
    CLICKS_EXTRA = 4, /* a byte order mark and a CR, which are no part of a line */
    CLICKS_ROOM = CLICKS_LONGEST_LINE + CLICKS_EXTRA + CLICKS_BLOCK + 1
};

/* Can what is there be read only once? */
int clicks_file_is_pipe(const char *path);

typedef struct clicks_file {
    clicks_bytes bytes;   /* if there are no arrays */
    clicks_filter filter; /* what the bytes come from, if it is not the file */
    clicks_npy *npy;
    char *path;
    char *block;       /* block[CLICKS_ROOM] */
    size_t begin, end; /* the part of the block that is not read yet */
    int over;          /* nothing follows the block */
    uint64_t line;     /* number of the last line, from 1 */
} clicks_file;

/* On failure there is nothing to close; a file of zeros can be closed. */
int clicks_file_open(clicks_file *file, const char *path, program_error *error);
void clicks_file_close(clicks_file *file);
/* 1: a line without its end, which is LF or CRLF; the caller may write to text[0] to text[n]. Lines longer than
 * CLICKS_LONGEST_LINE are passed over: n is then CLICKS_LONGEST_LINE + 1, and the text is the line's beginning. 0: no
 * more lines. -1: error. A byte order mark at the beginning is left out. */
int clicks_file_line(clicks_file *file, char **text, size_t *n, program_error *error);

#endif
