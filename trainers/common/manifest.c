/* Writing manifests, reading them strictly, checking sets by them. */
#include "trainers/common/manifest.h"
#include "trainers/common/file.h"
#include "trainers/common/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MANIFEST_MOST = 1 << 20 }; /* bytes */

/* How a manifest begins, and what kind of folder it describes. */
static const char *const manifest_format[] = {"{\n  \"format\": \"frugal saved set, 1\",\n",
                                              "{\n  \"format\": \"frugal checkpoint, 1\",\n"};
static const char *const manifest_of[] = {"a saved set", "a checkpoint"};

/* ---- Writing ------------------------------------------------------------------------------------------- */

static void manifest_string(FILE *out, const char *text) {
    putc('"', out);
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", *text);
        else
            fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    putc('"', out);
}

static void manifest_write(FILE *out, const manifest *m) {
    fputs(manifest_format[m->kind], out);
    fputs("  \"program\": ", out);
    manifest_string(out, m->program);
    fputs(",\n  \"version\": ", out);
    manifest_string(out, m->version);
    fputs(",\n  \"model\": ", out);
    manifest_string(out, m->model);
    fprintf(out, ",\n  \"step\": %" PRIu64 ",\n  \"date\": ", m->step);
    manifest_string(out, m->date);
    fputs(",\n  \"files\": [\n", out);
    for (uint32_t i = 0; i < m->n; i++) {
        const manifest_file *file = &m->files[i];
        fputs("    {\"name\": ", out);
        manifest_string(out, file->name);
        fprintf(out, ", \"bytes\": %" PRIu64, file->bytes);
        if (!file->self_checked) fprintf(out, ", \"crc32\": \"%08" PRIx32 "\"", file->crc32);
        if (file->written) fputs(", \"written\": ", out), manifest_string(out, file->written);
        fprintf(out, "}%s\n", i + 1 < m->n ? "," : "");
    }
    fputs("  ],\n", out);
}

char *manifest_text(manifest *m) {
    char *text = NULL;
    size_t n = 0;
    time_t now = time(NULL);
    struct tm utc;
    strftime(m->date, sizeof m->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    FILE *out = open_memstream(&text, &n);
    if (!out) return NULL;
    manifest_write(out, m);
    if (!fflush(out)) fprintf(out, "  \"crc32\": \"%08" PRIx32 "\"\n}\n", crc32_of(0, text, n));
    if (!fclose(out)) return text;
    free(text);
    return NULL;
}

/* ---- Reading: each takes its part off *at, or returns -1 ------------------------------------------------- */

static int manifest_take(const char **at, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*at, word, n)) return -1;
    *at += n;
    return 0;
}

/* Into text[size]. */
static int manifest_take_string(const char **at, char *text, size_t size) {
    size_t n = 0;
    if (manifest_take(at, "\"")) return -1;
    for (; **at && **at != '"' && n + 1 < size; (*at)++) {
        unsigned code = 0;
        if (!strncmp(*at, "\\u", 2)) {
            if (sscanf(*at + 2, "%4x", &code) != 1 || code < 1 || code >= ' ') return -1;
            *at += 5;
            text[n++] = (char)code;
        } else {
            *at += **at == '\\';
            text[n++] = **at;
        }
    }
    text[n] = 0;
    return manifest_take(at, "\"");
}

static int manifest_take_number(const char **at, uint64_t *value) {
    char *end;
    if (**at < '0' || **at > '9') return -1;
    errno = 0;
    *value = strtoull(*at, &end, 10);
    *at = end;
    return errno ? -1 : 0;
}

static int manifest_take_crc(const char **at, uint32_t *value) {
    char digits[9];
    if (manifest_take_string(at, digits, sizeof digits) || strspn(digits, "0123456789abcdef") != 8) return -1;
    *value = (uint32_t)strtoul(digits, NULL, 16);
    return 0;
}

/* No name leads out of the folder. */
static int manifest_take_name(const char **at, char *name) {
    if (manifest_take_string(at, name, MANIFEST_TEXT)) return -1;
    return !*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ? -1 : 0;
}

static int manifest_take_file(const char **at, manifest *m) {
    char written[MANIFEST_LONGEST_PATH];
    if (m->n == MANIFEST_FILES) return -1;
    manifest_file *file = &m->files[m->n++];
    *file = (manifest_file){.written = NULL};
    if (manifest_take(at, "    {\"name\": ") || manifest_take_name(at, file->name) ||
        manifest_take(at, ", \"bytes\": ") || manifest_take_number(at, &file->bytes))
        return -1;
    file->self_checked = manifest_take(at, ", \"crc32\": ");
    if (!file->self_checked && manifest_take_crc(at, &file->crc32)) return -1;
    if (!manifest_take(at, ", \"written\": ")) {
        if (manifest_take_string(at, written, sizeof written)) return -1;
        if (*written != '/' && strchr(written, '/')) return -1;
        file->written = strdup(written);
        if (!file->written) return -1;
    }
    return manifest_take(at, "}");
}

static int manifest_take_all(const char *text, manifest *m) {
    const char *at = text;
    uint32_t crc;
    if (manifest_take(&at, manifest_format[m->kind]) || manifest_take(&at, "  \"program\": ") ||
        manifest_take_string(&at, m->program, sizeof m->program) || manifest_take(&at, ",\n  \"version\": ") ||
        manifest_take_string(&at, m->version, sizeof m->version) || manifest_take(&at, ",\n  \"model\": ") ||
        manifest_take_string(&at, m->model, sizeof m->model) || manifest_take(&at, ",\n  \"step\": ") ||
        manifest_take_number(&at, &m->step) || manifest_take(&at, ",\n  \"date\": ") ||
        manifest_take_string(&at, m->date, sizeof m->date) || manifest_take(&at, ",\n  \"files\": [\n"))
        return -1;
    do
        if (manifest_take_file(&at, m)) return -1;
    while (!manifest_take(&at, ",\n"));
    if (manifest_take(&at, "\n  ],\n")) return -1;
    size_t n = (size_t)(at - text);
    if (manifest_take(&at, "  \"crc32\": ") || manifest_take_crc(&at, &crc) || manifest_take(&at, "\n}\n")) return -1;
    return *at || crc != crc32_of(0, text, n) ? -1 : 0;
}

static int manifest_is_none(const char *path, manifest_kind kind, program_error *error) {
    return program_fail(error, "%.300s is no manifest of %s; move it away, or give another folder", path,
                        manifest_of[kind]);
}

/* 1: *text, to be freed; 0: no such file; -1: error. */
static int manifest_load(const char *path, manifest_kind kind, char **text, program_error *error) {
    struct stat is;
    *text = NULL;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT) return 0;
    if (opened < 0) return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = 1;
    size_t n = 0;
    if (fstat(opened, &is) || !S_ISREG(is.st_mode) || is.st_size > MANIFEST_MOST)
        status = manifest_is_none(path, kind, error);
    else if (!(*text = calloc(1, (size_t)is.st_size + 1)))
        status = program_fail(error, "out of memory for %.300s", path);
    for (ssize_t got = 1; status == 1 && got && n<(size_t)is.st_size; n += got> 0 ? (size_t)got : 0) {
        got = read(opened, *text + n, (size_t)is.st_size - n);
        if (got < 0 && errno != EINTR) status = program_fail(error, "cannot read %.300s: %s", path, strerror(errno));
    }
    close(opened);
    return status;
}

int manifest_path(char *path, const char *folder, const char *name, program_error *error) {
    if ((size_t)snprintf(path, MANIFEST_LONGEST_PATH, "%s/%s", folder, name) < MANIFEST_LONGEST_PATH) return 0;
    return program_fail(error, "the path of folder '%.80s...' is longer than %d bytes", folder, MANIFEST_LONGEST_PATH);
}

int manifest_read_kind(manifest *m, const char *folder, manifest_kind kind, program_error *error) {
    char path[MANIFEST_LONGEST_PATH], *text;
    *m = (manifest){.kind = kind};
    if (manifest_path(path, folder, MANIFEST_NAME, error)) return -1;
    int status = manifest_load(path, kind, &text, error);
    if (status == 1 && strncmp(text, manifest_format[kind], strlen(manifest_format[kind])))
        status = manifest_is_none(path, kind, error);
    else if (status == 1 && manifest_take_all(text, m))
        status = program_fail(error, "%.300s is damaged: the set must be saved again; remove it to do so", path);
    free(text);
    return status;
}

int manifest_read(manifest *m, const char *folder, program_error *error) {
    return manifest_read_kind(m, folder, MANIFEST_SET, error);
}

void manifest_free(manifest *m) {
    for (uint32_t i = 0; i < m->n; i++) free(m->files[i].written);
    m->n = 0;
}

/* ---- Checking ------------------------------------------------------------------------------------------ */

/* The size, and the checksum if it is wanted; *descriptor stays open on success. */
static int manifest_look(const char *path, int checked, manifest_file *found, int *descriptor, program_error *error) {
    char block[1 << 16];
    struct stat is;
    ssize_t got = 0;
    *descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*descriptor < 0)
        return program_fail(error, "cannot read %.300s: %s%s", path, strerror(errno), file_remedy(errno));
    int status = 0;
    if (fstat(*descriptor, &is) || !S_ISREG(is.st_mode))
        status = program_fail(error, "%.300s is no regular file", path);
    found->bytes = status ? 0 : (uint64_t)is.st_size;
    found->crc32 = 0;
    while (!status && checked && ((got = read(*descriptor, block, sizeof block)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) found->crc32 = crc32_of(found->crc32, block, (size_t)got);
    if (!status && got < 0) status = program_fail(error, "cannot read %.300s: %s", path, strerror(errno));
    if (status) close(*descriptor);
    return status;
}

int manifest_measure(manifest_file *file, const char *path, program_error *error) {
    int opened, status = manifest_look(path, !file->self_checked, file, &opened, error);
    if (status) return -1;
    if (fsync(opened)) status = program_fail(error, "cannot sync %.300s: %s", path, strerror(errno));
    close(opened);
    return status;
}

/* 0, or -1 with why this file is not as it should be. */
static int manifest_check_file(const manifest_file *file, const char *path, program_error *error) {
    manifest_file found;
    int opened;
    if (manifest_look(path, !file->self_checked, &found, &opened, error)) return -1;
    close(opened);
    if (found.bytes != file->bytes)
        return program_fail(error, "%.300s has %" PRIu64 " bytes, %" PRIu64 " belong to the set", path, found.bytes,
                            file->bytes);
    if (!file->self_checked && found.crc32 != file->crc32)
        return program_fail(error, "%.300s has checksum %08" PRIx32 ", %08" PRIx32 " belongs to the set", path,
                            found.crc32, file->crc32);
    return 0;
}

int manifest_find(const manifest *m, const char *folder, uint32_t i, char *path, program_error *error) {
    const manifest_file *file = &m->files[i];
    program_error other;
    snprintf(path, MANIFEST_LONGEST_PATH, "%s/%s", folder, file->name);
    if (!manifest_check_file(file, path, error)) return 0;
    if (!file->written) return -1;
    if (*file->written == '/')
        snprintf(path, MANIFEST_LONGEST_PATH, "%s", file->written);
    else
        snprintf(path, MANIFEST_LONGEST_PATH, "%s/%s", folder, file->written);
    return manifest_check_file(file, path, &other);
}

int manifest_check(const char *folder, program_error *error) {
    manifest m;
    char path[MANIFEST_LONGEST_PATH];
    int status = manifest_read(&m, folder, error);
    if (!status) status = program_fail(error, "%.300s has no " MANIFEST_NAME ": nothing was saved there", folder);
    for (uint32_t i = 0; i < m.n && status >= 0; i++) status = manifest_find(&m, folder, i, path, error);
    manifest_free(&m);
    return status < 0 ? -1 : 0;
}
