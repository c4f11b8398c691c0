/* arrays.c - NumPy's files of float32, version 1.0: made of a chain of saves; a base made of such files; a base made of
 * a file that version 0.1 mapped, whose rows are an array, too. */
#include "file.h"

/* >>writing */

typedef struct array_file { /* a file that is being written, or that waits for the others */
    struct array_file *next;
    char *path; /* as it was asked for */
    file_name name;
    new_file file;
    struct stat made; /* of the file, when all of it was written */
    uint64_t at;
} array_file;

static const char array_magic[] = "\x93NUMPY";

/* Only an array, or nothing, is replaced. */
static frugal_status check_array_replaced(const file_name *name, const char *path) {
    char begins[sizeof array_magic] = {0};
    int file;
    if (!name->there) return FRUGAL_OK;
    if (!options.replace) return fail_system("write to it", EEXIST, path);
    frugal_status status = open_found(name, O_RDONLY, &file);
    if (status != FRUGAL_OK) return status;
    int error = name->status.st_size ? read_at(file, begins, sizeof begins - 1, 0) : 0;
    close(file);
    if (error > 0) return fail_system("read the file that is to be replaced", error, path);
    if (name->status.st_size == 0 || !memcmp(begins, array_magic, sizeof begins - 1)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "the file to be replaced is no .npy file; remove it, or choose another folder: %s", path);
}

static frugal_status begin_array(array_file *a, uint64_t n, uint32_t floats) {
    const char *path = a->path;
    char header[128];
    frugal_status status = find_file(path, &a->name);
    if (status == FRUGAL_OK) status = check_array_replaced(&a->name, path);
    if (status == FRUGAL_OK) status = begin_file(&a->file, &a->name);
    if (status != FRUGAL_OK) return status;
    memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
    int used =
        snprintf(header + 10, sizeof header - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %u), }",
                 (unsigned long long)n, floats);
    memset(header + 10 + used, ' ', sizeof header - 10 - (size_t)used);
    header[sizeof header - 1] = '\n';
    a->at = sizeof header;
    int error = write_at(a->file.file, header, sizeof header, 0);
    return error ? fail_write(sizeof header, error, path) : FRUGAL_OK;
}

static frugal_status append_array(array_file *a, const void *rows, uint64_t bytes) {
    int error = write_at(a->file.file, rows, (size_t)bytes, a->at);
    a->at += bytes;
    return error ? fail_write(bytes, error, a->name.path) : FRUGAL_OK;
}

/* All its rows are written: syncs them to the disk. The file is closed until all others are as far, because there may
 * be more than can be open. */
static frugal_status end_array(array_file *a) {
    int error = sync_file(a->file.file);
    if (!error && fstat(a->file.file, &a->made)) error = errno;
    close(a->file.file), close(a->file.folder);
    a->file.file = a->file.folder = -1;
    return error ? fail_system("write the file to the disk", error, a->path) : FRUGAL_OK;
}

/* Gives it its name. */
static frugal_status publish_array(array_file *a) {
    file_name now; /* writing takes long, so another file may have the name by now */
    char folder[LONGEST_PATH];
    frugal_status status = find_file(a->name.path, &now);
    if (status == FRUGAL_OK) status = check_array_replaced(&now, a->path);
    if (status == FRUGAL_OK) status = open_folder(&a->file, folder);
    if (status != FRUGAL_OK) return status;
    a->file.file = openat(a->file.folder, a->file.temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    status = a->file.file < 0 ? fail_system("open the new file", errno, a->path)
                              : publish_new(&a->file, options.replace && now.there);
    if (a->file.file >= 0) close(a->file.file);
    close(a->file.folder);
    a->file.file = a->file.folder = -1;
    return status;
}

/* Removes what was written; a file that it has replaced stays replaced. */
static void take_array_back(array_file *a) {
    char path[LONGEST_PATH + LONGEST_ENTRY + 2];
    struct stat named;
    int folder = (int)(strrchr(a->name.path, '/') - a->name.path);
    if (a->file.temporary[0]) {
        snprintf(path, sizeof path, "%.*s/%s", folder, a->name.path, a->file.temporary);
        unlink(path);
    } else if (a->file.named && !a->name.there && !stat(a->name.path, &named) && is_same(&named, &a->made))
        unlink(a->name.path);
}

typedef struct table_arrays { /* of all tables: each has a temporary name until all, and the saves, are whole */
    array_file *first, *last;
    unsigned char *rows; /* a piece: weights, then state, as the saves have them */
    float *wide;         /* its weights as floats, if they have 16 bits */
    uint64_t most;
    course course;
} table_arrays;

/* Begins an array of rows[n][floats] at the path, and makes it the last one. Whatever this returns, call end_arrays. */
static frugal_status add_array(table_arrays *a, const char *path, uint64_t n, uint32_t floats) {
    array_file *new = calloc(1, sizeof *new);
    char *copy = strdup(path);
    if (!new || !copy) {
        free(new), free(copy);
        return fail_memory("the names of arrays", sizeof *new + strlen(path) + 1);
    }
    new->path = copy, new->file.file = new->file.folder = -1;
    if (a->last)
        a->last->next = new;
    else
        a->first = new;
    a->last = new;
    return begin_array(new, n, floats);
}

static frugal_status publish_arrays(const table_arrays *a) {
    frugal_status status = FRUGAL_OK;
    for (array_file *i = a->first; i && status == FRUGAL_OK; i = i->next) status = publish_array(i);
    for (array_file *i = a->first; i && status == FRUGAL_OK; i = i->next) printf("%s\n", i->path);
    return status;
}

static void end_arrays(table_arrays *a, frugal_status status) {
    for (array_file *i = a->first, *next; i; i = next) {
        next = i->next;
        if (status != FRUGAL_OK) take_array_back(i);
        if (i->file.file >= 0) close(i->file.file);
        if (i->file.folder >= 0) close(i->file.folder);
        free(i->path), free(i);
    }
    a->first = a->last = NULL;
}

typedef struct table_rows { /* of instance p */
    uint32_t p;
    uint64_t first, n;
    array_file *weights, *state; /* state NULL: there is none */
} table_rows;

/* All rows of a table. */
static frugal_status write_rows_of(table_arrays *a, const row_source *from, const table_rows *t) {
    const saved_part *part = from->image->parts[t->p];
    frugal_status status = FRUGAL_OK;
    for (uint64_t k, first = t->first, end = first + t->n; first < end && status == FRUGAL_OK; first += k) {
        k = LEAST(a->most, end - first);
        unsigned char *state = a->rows + k * saved_weight_bytes(part);
        status = from->fetch(from->source, t->p, first, k, a->rows, state);
        if (status == FRUGAL_OK && a->wide)
            frugal_convert(a->wide, FRUGAL_FP32, a->rows, (frugal_type)part->rows_as, k * part->dim);
        const void *weights = a->wide ? (const void *)a->wide : a->rows;
        if (status == FRUGAL_OK) status = append_array(t->weights, weights, k * part->dim * sizeof(float));
        if (status == FRUGAL_OK && t->state)
            status = append_array(t->state, state, k * part->state_floats * sizeof(float));
        if (status == FRUGAL_OK) status = go_on(&a->course, k * saved_row_bytes(part));
    }
    return status;
}

/* A table's weights and its state. */
static frugal_status write_table(table_arrays *a, const row_source *from, table_rows rows, uint32_t t,
                                 const char *folder) {
    const saved_part *part = from->image->parts[rows.p];
    char path[LONGEST_PATH];
    snprintf(path, sizeof path, "%s/weights-%u-%u.npy", folder, rows.p, t);
    frugal_status status = add_array(a, path, rows.n, part->dim);
    rows.weights = a->last;
    if (status == FRUGAL_OK && part->state_floats) {
        snprintf(path, sizeof path, "%s/state-%u-%u.npy", folder, rows.p, t);
        status = add_array(a, path, rows.n, part->state_floats);
        rows.state = a->last;
    }
    if (status == FRUGAL_OK) status = write_rows_of(a, from, &rows);
    if (status == FRUGAL_OK) status = end_array(rows.weights);
    if (status == FRUGAL_OK && rows.state) status = end_array(rows.state);
    return status;
}

static frugal_status write_part(table_arrays *a, const row_source *from, uint32_t p, const char *folder) {
    const saved_part *part = from->image->parts[p];
    const saved_table *tables = (const saved_table *)(part + 1);
    uint64_t first = 0;
    a->most = saved_most_rows(saved_row_bytes(part));
    size_t bytes = (size_t)(a->most * saved_row_bytes(part));
    size_t wide = part->rows_as ? (size_t)(a->most * part->dim * sizeof(float)) : 0;
    a->rows = allocate_memory(&own_memory, bytes, CACHE_LINE);
    a->wide = wide ? allocate_memory(&own_memory, wide, CACHE_LINE) : NULL;
    frugal_status status = a->rows && !wide == !a->wide ? FRUGAL_OK : fail_memory("writing arrays", bytes + wide);
    for (uint32_t t = 0; t < part->n_tables && status == FRUGAL_OK; first += tables[t++].rows)
        status = write_table(a, from, (table_rows){.p = p, .first = first, .n = tables[t].rows}, t, folder);
    release_memory(&own_memory, a->rows, bytes);
    release_memory(&own_memory, a->wide, wide);
    return status;
}

static int make_arrays(const char *folder, int n, char **paths) {
    static table_arrays a;
    static saves s;
    frugal_status status = open_saves(&s, n, paths);
    const save_image *image = s.rows.image;
    if (status == FRUGAL_OK) a.course = begin_course("writing the arrays", bytes_of_rows(image));
    for (uint32_t p = 0; status == FRUGAL_OK && p < image->head.parts; p++) status = write_part(&a, &s.rows, p, folder);
    if (status == FRUGAL_OK) status = s.finish(s.rows.source);
    if (status == FRUGAL_OK) status = publish_arrays(&a);
    end_arrays(&a, status);
    end_course(&a.course);
    close_saves(&s);
    return status == FRUGAL_OK ? 0 : fail_message();
}

/* >>reading */

typedef struct array_source { /* arrays, one a table */
    char **paths;             /* [n] */
    uint64_t *rows;           /* of each */
    uint32_t *headers;        /* bytes of each before its rows */
    uint32_t n, dim, now;     /* which one is open */
    int file;                 /* -1: none */
    uint64_t first;           /* row of the one that is open */
    save_image image;
} array_source;

static frugal_status open_input(const char *path, int *file, uint64_t *bytes) {
    file_name name;
    struct stat now;
    *file = -1;
    frugal_status status = find_file(path, &name);
    if (status != FRUGAL_OK) return status;
    if (!name.there) return fail_system("open the file", ENOENT, path);
    if ((status = open_found(&name, O_RDONLY, file)) != FRUGAL_OK) return status;
    if (fstat(*file, &now)) return fail_system("look at the file", errno, path);
    *bytes = (uint64_t)now.st_size;
    return FRUGAL_OK;
}

static frugal_status read_input(int file, void *to, uint64_t bytes, uint64_t at, const char *path) {
    int error = read_at(file, to, (size_t)bytes, at);
    if (error == END_OF_FILE) return frugal_fail(FRUGAL_ERR_FILE, "the file has become shorter meanwhile: %s", path);
    return error ? fail_system("read the file", error, path) : FRUGAL_OK;
}

/* The text of an open .npy file of `bytes`, to text[512]; *header: how many bytes come before its numbers. */
static frugal_status read_array_text(int file, uint64_t bytes, const char *path, char *text, uint64_t *header) {
    unsigned char begins[10] = {0};
    memset(text, 0, 512);
    frugal_status status = read_input(file, begins, LEAST(bytes, sizeof begins), 0, path);
    *header = 10 + begins[8] + 256u * begins[9];
    if (status != FRUGAL_OK) return status;
    if (bytes < *header || memcmp(begins, "\x93NUMPY\1", 7) != 0 || *header - 10 >= 512)
        return frugal_fail(FRUGAL_ERR_FILE, "a .npy file of version 1 is wanted, and this is none: %s", path);
    return read_input(file, text, *header - 10, 10, path);
}

static frugal_status read_array_head(int file, uint64_t bytes, const char *path, array_source *a, uint32_t i) {
    char text[512];
    unsigned long long n = 0, width = 0;
    uint64_t header;
    frugal_status status = read_array_text(file, bytes, path, text, &header);
    const char *shape = strstr(text, "'shape': (");
    if (status != FRUGAL_OK) return status;
    if (!strstr(text, "'descr': '<f4'") || !strstr(text, "'fortran_order': False") || !shape ||
        sscanf(shape, "'shape': (%llu, %llu)", &n, &width) != 2 || n == 0 || width == 0 || width > 65536 ||
        n > FRUGAL_MAX_ROWS)
        return frugal_fail(FRUGAL_ERR_FILE, "rows of float32 are wanted, in two dimensions, in C's order: %s", path);
    if (bytes - header != n * width * sizeof(float))
        return frugal_fail(FRUGAL_ERR_FILE, "the file has another size than its shape: %s", path);
    if (i > 0 && width != a->dim)
        return frugal_fail(FRUGAL_ERR_FILE, "the rows are not as wide as those before, %llu floats and %u: %s", width,
                           a->dim, path);
    a->rows[i] = n, a->headers[i] = (uint32_t)header, a->dim = (uint32_t)width;
    return FRUGAL_OK;
}

static frugal_status look_at_array(array_source *a, uint32_t i) {
    int file;
    uint64_t bytes = 0;
    frugal_status status = open_input(a->paths[i], &file, &bytes);
    if (status == FRUGAL_OK) status = read_array_head(file, bytes, a->paths[i], a, i);
    if (file >= 0) close(file);
    return status;
}

static frugal_status fetch_arrays(void *source, uint32_t part, uint64_t first, uint64_t n, void *to, void *state) {
    array_source *a = source;
    float *weights = to;
    uint64_t row_bytes = a->dim * sizeof(float), file_bytes;
    memset(state, 0, n * a->image.parts[part]->state_floats * sizeof(float));
    for (uint64_t k; n > 0; first += k, n -= k, weights += k * a->dim) {
        while (first - a->first >= a->rows[a->now]) { /* its rows are used up */
            if (a->file >= 0) close(a->file);
            a->file = -1, a->first += a->rows[a->now++];
        }
        frugal_status status = a->file < 0 ? open_input(a->paths[a->now], &a->file, &file_bytes) : FRUGAL_OK;
        k = LEAST(n, a->first + a->rows[a->now] - first);
        if (status == FRUGAL_OK)
            status = read_input(a->file, weights, k * row_bytes, a->headers[a->now] + (first - a->first) * row_bytes,
                                a->paths[a->now]);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

static int from_arrays(const char *out, uint32_t n, char **paths) {
    file_name name;
    array_source a = {.paths = paths, .n = n, .file = -1};
    frugal_status status = check_out(out, &name, (int)n, paths);
    if (status != FRUGAL_OK) return fail_message();
    row_source rows = {fetch_arrays, &a, &a.image};
    a.rows = calloc(n, sizeof *a.rows), a.headers = calloc(n, sizeof *a.headers);
    if (!a.rows || !a.headers) status = fail_memory("the names of arrays", n * (sizeof *a.rows + sizeof *a.headers));
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++) status = look_at_array(&a, i);
    if (status == FRUGAL_OK) status = make_image(&a.image, a.rows, n, a.dim);
    if (status == FRUGAL_OK) status = write_base(&name, &rows, NULL);
    if (a.file >= 0) close(a.file);
    free_image(&a.image);
    free(a.rows), free(a.headers);
    return status == FRUGAL_OK ? 0 : fail_message();
}

/* >>version 0.1 - a file without a header: rows as they lie in memory, and row-wise state behind them */

typedef struct old_source {
    const char *path;
    int file;
    uint64_t stride, state_at; /* floats from row to row; bytes before row-wise state, 0: it is none */
    uint32_t behind;           /* floats of a row before element-wise state */
    float *piece;              /* some rows as they lie in the file */
    uint64_t piece_rows;
    save_image image;
} old_source;

static frugal_status fetch_old(void *source, uint32_t part, uint64_t first, uint64_t n, void *to, void *state_to) {
    old_source *o = source;
    float *weights = to, *state = state_to;
    const saved_part *p = o->image.parts[part];
    uint64_t row_bytes = o->stride * sizeof(float), state_bytes = p->state_floats * sizeof(float);
    frugal_status status = FRUGAL_OK;
    for (uint64_t done = 0, k; done < n && status == FRUGAL_OK; done += k) {
        k = LEAST(o->piece_rows, n - done);
        status = read_input(o->file, o->piece, k * row_bytes, (first + done) * row_bytes, o->path);
        for (uint64_t i = 0; i < k && status == FRUGAL_OK; i++) {
            memcpy(weights + (done + i) * p->dim, o->piece + i * o->stride, p->dim * sizeof(float));
            if (state_bytes && !o->state_at)
                memcpy(state + (done + i) * p->state_floats, o->piece + i * o->stride + o->behind, state_bytes);
        }
    }
    if (status == FRUGAL_OK && o->state_at)
        status = read_input(o->file, state, n * state_bytes, o->state_at + first * state_bytes, o->path);
    return status;
}

/* Works out from the options what lies where; checks that the file has that size. */
static frugal_status lay_old(old_source *o, uint64_t bytes) {
    const saved_part *p = o->image.parts[0];
    int row_wise = options.optimizer == FRUGAL_ROWWISE_ADAGRAD;
    o->behind = (uint32_t)aligned_floats(p->dim);
    o->stride = o->behind + (row_wise ? 0 : aligned_floats(p->state_floats));
    o->state_at = row_wise ? p->rows * o->stride * sizeof(float) : 0;
    uint64_t wanted = p->rows * (o->stride + (row_wise ? p->state_floats : 0)) * sizeof(float);
    if (bytes == wanted) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "%llu bytes are wanted, by --dim, --rows and --optimizer, and the file has %llu: %s",
                       (unsigned long long)wanted, (unsigned long long)bytes, o->path);
}

static int convert_table(const char *out, const char *path) {
    file_name name;
    uint64_t bytes = 0;
    old_source o = {.path = path, .file = -1};
    if (options.dim == 0 || options.n_rows == 0) return fail_usage("convert needs %s of the file", "--dim and --rows");
    frugal_status status = check_out(out, &name, 1, (char *[]){(char *)(uintptr_t)path});
    row_source rows = {fetch_old, &o, &o.image};
    if (status == FRUGAL_OK) status = make_image(&o.image, options.rows, options.n_rows, options.dim);
    if (status == FRUGAL_OK) status = open_input(path, &o.file, &bytes);
    if (status == FRUGAL_OK) status = lay_old(&o, bytes);
    o.piece_rows = saved_most_rows(o.stride ? o.stride * sizeof(float) : sizeof(float));
    size_t piece_bytes = (size_t)(o.piece_rows * o.stride * sizeof(float));
    if (status == FRUGAL_OK && !(o.piece = allocate_memory(&own_memory, piece_bytes, CACHE_LINE)))
        status = fail_memory("reading the table", piece_bytes);
    if (status == FRUGAL_OK) status = write_base(&name, &rows, NULL);
    release_memory(&own_memory, o.piece, piece_bytes);
    if (o.file >= 0) close(o.file);
    free_image(&o.image);
    return status == FRUGAL_OK ? 0 : fail_message();
}
