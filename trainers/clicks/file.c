/* Lines of files. The block is filled after the part that is not read yet; a line is cut out of the block
 * in place. */
#include "trainers/clicks/file.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int clicks_file_is_pipe(const char *path) {
    struct stat is;
    return !stat(path, &is) && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode);
}

static int clicks_file_open_bytes(clicks_file *file, const char *path, program_error *error) {
    struct stat is;
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return program_fail(error, "cannot read %.200s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = 0;
    if (!fstat(opened, &is) && S_ISDIR(is.st_mode))
        status = program_fail(error, "%.200s is a folder; give one of its files", path);
    if (!status) status = clicks_filter_open(&file->filter, &opened, path, error);
    if (!status && clicks_bytes_open(&file->bytes, opened))
        status = program_fail(error, "out of memory to read %.200s", path);
    if (status) close(opened);
    return status;
}

int clicks_file_open(clicks_file *file, const char *path, program_error *error) {
    *file = (clicks_file){0};
    int status =
        clicks_npy_is_log(path) ? clicks_npy_open(&file->npy, path, error) : clicks_file_open_bytes(file, path, error);
    file->path = strdup(path);
    file->block = malloc(CLICKS_ROOM);
    if (!status && (!file->path || !file->block)) status = program_fail(error, "out of memory to read %.200s", path);
    if (status) clicks_file_close(file);
    return status;
}

void clicks_file_close(clicks_file *file) {
    clicks_bytes_close(&file->bytes);
    clicks_filter_close(&file->filter);
    clicks_npy_close(file->npy);
    free(file->path);
    free(file->block);
    *file = (clicks_file){0};
}

/* Moves what is left to the beginning and reads a block after it. */
static int clicks_file_fill(clicks_file *file, program_error *error) {
    const char *why = "";
    int cut = 0;
    size_t left = file->end - file->begin;
    memmove(file->block, file->block + file->begin, left);
    long got = file->npy ? clicks_npy_read(file->npy, file->block + left, CLICKS_BLOCK, &why)
                         : clicks_bytes_read(&file->bytes, file->block + left, CLICKS_BLOCK, &why, &cut);
    file->begin = 0;
    file->end = left + (got > 0 ? (size_t)got : 0);
    if (cut)
        return program_fail(error, "%.200s ends in the middle of its gz data, behind line %" PRIu64 "; is it cut off?",
                            file->path, file->line);
    if (got < 0)
        return program_fail(error, "cannot read %.200s behind line %" PRIu64 ": %s", file->path, file->line, why);
    file->over = got < CLICKS_BLOCK;
    return file->over ? clicks_filter_end(&file->filter, file->path, error) : 0;
}

/* A line of `n` bytes and its end, if it has one. */
static int clicks_file_cut(clicks_file *file, size_t n, char **text, size_t *length) {
    static const char mark[] = "\xef\xbb\xbf";
    *text = file->block + file->begin;
    file->begin += n + (file->begin + n < file->end);
    file->line++;
    if (n && (*text)[n - 1] == '\r') n--;
    if (file->line == 1 && n >= 3 && !memcmp(*text, mark, 3)) *text += 3, n -= 3;
    *length = n < CLICKS_LONGEST_LINE + 1 ? n : CLICKS_LONGEST_LINE + 1;
    return 1;
}

int clicks_file_line(clicks_file *file, char **text, size_t *n, program_error *error) {
    size_t looked = 0; /* of the line, without finding its end */
    int too_long = 0;
    for (;;) {
        char *begin = file->block + file->begin;
        size_t left = file->end - file->begin;
        char *newline = memchr(begin + looked, '\n', left - looked);
        if (newline || (file->over && left)) {
            size_t length = newline ? (size_t)(newline - begin) : left;
            clicks_file_cut(file, length, text, n);
            if (too_long) *n = CLICKS_LONGEST_LINE + 1;
            return 1;
        }
        if (file->over) return 0;
        if (left > CLICKS_LONGEST_LINE + CLICKS_EXTRA) { /* its beginning is enough */
            too_long = 1;
            file->end = file->begin + CLICKS_LONGEST_LINE;
            left = CLICKS_LONGEST_LINE;
        }
        looked = left;
        if (clicks_file_fill(file, error)) return -1;
    }
}
