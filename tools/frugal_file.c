/* frugal_file - looks at saves of frugal_save, checks them, merges a base with its increments, and makes them from and
 * into other files. `frugal_file --help` says how it is called.
 *
 * The library is compiled into this program, so that it reads and writes saves by the library's own code. What it makes
 * goes through instances in memory: there must be as much as the tables take, but with `show` and `check`.
 */
#include "../frugal_flush.c"

#include <ctype.h>

static const char usage[] =
    "usage: frugal_file COMMAND ... ; a save of several instances is read and written as a whole\n"
    "  show SAVE|TABLE...                 what saves and mapped tables are of; who uses a table, or whether it is "
    "torn\n"
    "  check SAVE...                      every byte; that several are a base and its increments, in order\n"
    "  merge OUT BASE INCREMENT...        one base, which later increments continue\n"
    "  to-npy FOLDER BASE [INCREMENT...]  weights-P-T.npy and state-P-T.npy for instance P and table T\n"
    "  from-npy OUT WEIGHTS.npy...        a base: a table a file, float32 [rows][dim]; options below\n"
    "  convert OUT TABLE                  a base of a file that version 0.1 mapped (frugal_desc.file); options below\n"
    "options\n"
    "  --optimizer sgd|adagrad|rowwise|adam   (sgd) its state is zeros, or as it is in the file\n"
    "  --step N                               (0) the next to train\n"
    "  --dim N, --rows N[,N...]               of a table's file: floats a row; rows of each table\n"
    "  --replace                              OUT may be a save that is there\n"
    "Results go to standard output, progress to standard error. Exit status: 0; 1 it failed; 2 it was called "
    "wrongly.\n";

enum { MOST_TABLES = 4096 };

static struct {
    frugal_optimizer_kind optimizer;
    uint64_t step, rows[MOST_TABLES];
    uint32_t dim, n_rows;
    int replace;
} options;

static int fail_usage(const char *format, const char *what) {
    fprintf(stderr, "frugal_file: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "; see frugal_file --help\n");
    return 2;
}

static int fail_message(void) {
    fprintf(stderr, "frugal_file: %s\n", frugal_message());
    return 1;
}

static int fail_text(const char *what, const char *name) {
    fprintf(stderr, "frugal_file: %s: %s\n", what, name);
    return 1;
}

static void progress(const char *what, const char *name) {
    fprintf(stderr, "frugal_file: %s %s\n", what, name);
}

static const char *const optimizers[] = {"SGD", "Adagrad", "row-wise Adagrad", "Adam"};

/* >>saves: a chain of them, open instances of it */

typedef struct chain_file { /* one of a chain, and the settings of one of its instances */
    saved_reader r;
    saved_part *part;
    size_t bytes;
} chain_file;

static const frugal_desc own_memory; /* the system's */

static frugal_status open_chain_file(chain_file *c, const char *path, uint32_t part) {
    c->part = NULL, c->bytes = 0;
    return open_saved(&c->r, path, part, &own_memory, &c->part, &c->bytes);
}
static void close_chain_file(chain_file *c) {
    close_saved(&c->r);
    release_memory(&own_memory, c->part, c->bytes);
}

static void show_table(uint32_t t, const saved_table *table, uint32_t optimizer) {
    printf("    table %u: %llu rows", t, (unsigned long long)table->rows);
    if (optimizer != FRUGAL_SGD) printf(", eps %g", (double)table->eps);
    if (optimizer == FRUGAL_ADAM) printf(", betas %g %g", (double)table->beta1, (double)table->beta2);
    if (table->initial_accumulator != 0) printf(", initial accumulator %g", (double)table->initial_accumulator);
    if (table->weight_decay != 0) printf(", weight decay %g", (double)table->weight_decay);
    if (table->lr_scale != 1) printf(", lr scale %g", (double)table->lr_scale);
    printf("%s\n", table->frozen ? ", frozen" : "");
}

static int fail_page(const char *path, const char *how) {
    fprintf(stderr, "frugal_file: the mapped table %s; restore it from a save: %s\n", how, path);
    return 1;
}

static int show_save(const char *path) {
    uint32_t parts = 1;
    for (uint32_t p = 0; p < parts; p++) {
        chain_file c;
        if (open_chain_file(&c, path, p) != FRUGAL_OK) {
            close_chain_file(&c);
            return fail_message();
        }
        const saved_file *h = &c.r.head;
        if (p == 0 && h->kind == SAVED_BASE)
            printf("%s: base %016llx%s", path, (unsigned long long)h->id, h->sequence ? ", merged" : "");
        if (p == 0 && h->kind == SAVED_INCREMENT)
            printf("%s: increment %llu of base %016llx, %016llx, continues %016llx", path,
                   (unsigned long long)h->sequence, (unsigned long long)h->base, (unsigned long long)h->id,
                   (unsigned long long)h->parent);
        if (p == 0) printf(", %llu bytes\n", (unsigned long long)c.r.bytes);
        parts = h->parts;
        printf("  instance %u of %u: next step %llu, %llu rows of %u floats and %u of state, %s, %u device%s by %s\n",
               p, parts, (unsigned long long)c.part->step, (unsigned long long)c.part->rows, c.part->dim,
               c.part->state_floats, optimizers[c.part->optimizer], c.part->devices, c.part->devices == 1 ? "" : "s",
               c.part->reduce == FRUGAL_MEAN ? "mean" : "sum");
        for (uint32_t t = 0; t < c.part->n_tables; t++)
            show_table(t, (const saved_table *)(c.part + 1) + t, c.part->optimizer);
        close_chain_file(&c);
    }
    return 0;
}

/* What the header of a mapped table says, which may be in use. `bytes`: of the file. */
static int show_mapped(const char *path, int file, uint64_t bytes) {
    unsigned char page[TABLE_PAGE];
    table_header h;
    if (read_at(file, page, sizeof page, 0)) return fail_page(path, "is cut");
    memcpy(&h, page, sizeof h);
    if (h.version != TABLE_VERSION || h.kind != TABLE_KIND) return fail_page(path, "is of another version");
    if (!is_page_whole(page, &h) || h.optimizer > FRUGAL_ADAM) return fail_page(path, "is damaged");
    if (h.file_bytes != bytes) return fail_page(path, "has another size than its header says");
    int taken = lock_file(file);
    printf("%s: mapped table %016llx, %llu bytes, %s process %u on %.63s\n", path, (unsigned long long)h.id,
           (unsigned long long)bytes,
           taken == EWOULDBLOCK   ? "in use by"
           : h.use == TABLE_CLEAN ? "clean, last used by"
                                  : "torn (rows of several steps), last used by",
           h.process, (const char *)h.host);
    printf("  %s %llu, %u tables, %llu rows of %u floats and %u of state, %s\n",
           h.use == TABLE_CLEAN ? "next step" : "opened at step", (unsigned long long)h.step, h.n_tables,
           (unsigned long long)h.rows, h.dim, h.state_floats, optimizers[h.optimizer]);
    return 0;
}

/* A save, or a mapped table. */
static int show_file(const char *path) {
    file_name name;
    unsigned char begin[SAVED_MAGIC_BYTES + 4];
    uint32_t block;
    int file = -1;
    if (find_file(path, &name) != FRUGAL_OK) return fail_message();
    if (!name.there || open_found(&name, O_RDONLY, &file) != FRUGAL_OK || read_at(file, begin, sizeof begin, 0)) {
        if (file >= 0) close(file);
        return show_save(path); /* which says what is wrong */
    }
    memcpy(&block, begin + SAVED_MAGIC_BYTES, sizeof block);
    int mapped = !memcmp(begin, SAVED_MAGIC, SAVED_MAGIC_BYTES) && block != SAVED_BLOCK_MAGIC;
    int failed = mapped ? show_mapped(path, file, (uint64_t)name.status.st_size) : show_save(path);
    close(file);
    return failed;
}

/* Every block of one instance of one save. */
static frugal_status check_part(chain_file *c, uint32_t part) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    frugal f = {.saved = &c->r};
    f.desc.n_saved = 1, f.desc.saved_part = part;
    f.desc.init_threads = processors > 0 ? (uint32_t)processors : 1;
    f.store.dim = c->part->dim, f.store.state_floats = c->part->state_floats;
    return read_chain(&f, 0);
}

/* Of all instances; *before: the file before, and then this one. */
static int check_save_file(const char *path, chain_file *before, int is_first) {
    uint32_t parts = 1;
    for (uint32_t p = 0; p < parts; p++) {
        chain_file c;
        frugal_status status = open_chain_file(&c, path, p);
        if (status == FRUGAL_OK) status = check_part(&c, p);
        if (status == FRUGAL_OK && p == 0 && !is_first) status = check_chain(&before->r, &c.r);
        close_chain_file(&c);
        if (status != FRUGAL_OK) return fail_message();
        parts = c.r.head.parts;
        if (p + 1 == parts) *before = c;
    }
    printf("%s: whole\n", path);
    return 0;
}

static int check_files(int n, char **paths) {
    chain_file before = {.part = NULL};
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) failed = check_save_file(paths[i], &before, i == 0);
    if (!failed && n > 1) printf("they are a base and its increments, in order\n");
    return failed;
}

/* The settings of one instance of a save, for opening it. tables and optimizers have n_tables. */
static frugal_desc desc_of(const saved_part *part, frugal_table *tables, frugal_optimizer *own) {
    const saved_table *t = (const saved_table *)(part + 1);
    for (uint32_t i = 0; i < part->n_tables; i++) {
        own[i] = (frugal_optimizer){.kind = (frugal_optimizer_kind)part->optimizer,
                                    .eps = t[i].eps,
                                    .beta1 = t[i].beta1,
                                    .beta2 = t[i].beta2,
                                    .weight_decay = t[i].weight_decay,
                                    .initial_accumulator = t[i].initial_accumulator,
                                    .lr_scale = t[i].lr_scale,
                                    .frozen = (int)t[i].frozen};
        tables[i] = (frugal_table){.rows = t[i].rows, .optimizer = &own[i]};
    }
    return (frugal_desc){.tables = tables,
                         .n_tables = part->n_tables,
                         .dim = part->dim,
                         .devices = part->devices,
                         .max_keys = 1,
                         .reduce = (frugal_reduce)part->reduce,
                         .optimizer = {.kind = (frugal_optimizer_kind)part->optimizer},
                         .saved_settings_may_differ = 1};
}

/* Opens instance `part` of the chain; *head is that of the last file. */
static frugal_status open_instance(int n, char **paths, uint32_t part, saved_file *head, frugal **f) {
    chain_file last;
    *f = NULL;
    frugal_status status = open_chain_file(&last, paths[n - 1], part);
    if (status == FRUGAL_OK) {
        *head = last.r.head;
        frugal_table *tables = calloc(last.part->n_tables, sizeof *tables);
        frugal_optimizer *own = calloc(last.part->n_tables, sizeof *own);
        if (tables && own) {
            frugal_desc desc = desc_of(last.part, tables, own);
            desc.saved = (const char *const *)paths, desc.n_saved = (uint32_t)n, desc.saved_part = part;
            status = frugal_open(&desc, f);
        } else
            status = fail_memory("the settings of a save", last.bytes);
        free(tables), free(own);
    }
    close_chain_file(&last);
    return status;
}

static void close_instances(frugal **f, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) frugal_close(f[i]);
}

/* >>merge */

static int merge_files(const char *out, int n, char **paths) {
    frugal *f[SAVED_MOST_PARTS] = {NULL};
    saved_file head = {.parts = 1};
    frugal_status status = FRUGAL_OK;
    for (uint32_t p = 0; p < head.parts && status == FRUGAL_OK; p++) {
        progress("reads up to", paths[n - 1]);
        status = open_instance(n, paths, p, &head, &f[p]);
    }
    if (status == FRUGAL_OK) {
        frugal_save_desc desc = {.path = out, .replace = options.replace};
        progress("writes", out);
        head.kind = SAVED_BASE, head.parent = 0;
        status = save_as(f, &head, &desc);
    }
    close_instances(f, SAVED_MOST_PARTS);
    return status == FRUGAL_OK ? 0 : fail_message();
}

/* >>npy: NumPy's files of float32, version 1.0 */

/* Rows from row to row as far apart as `stride`; a file that is there stays. */
static frugal_status write_npy(const char *path, const float *rows, uint64_t n, uint32_t floats, uint64_t stride) {
    static float piece[1 << 18];
    file_name name;
    new_file file;
    char header[128];
    frugal_status status = find_file(path, &name);
    if (status != FRUGAL_OK) return status;
    if (name.there && !options.replace) return fail_system("write to it", EEXIST, path);
    memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
    int used =
        snprintf(header + 10, sizeof header - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %u), }",
                 (unsigned long long)n, floats);
    memset(header + 10 + used, ' ', sizeof header - 10 - (size_t)used);
    header[sizeof header - 1] = '\n';
    status = begin_file(&file, &name);
    int error = status == FRUGAL_OK ? write_at(file.file, header, sizeof header, 0) : 0;
    uint64_t at = sizeof header, most = sizeof piece / sizeof *piece / floats;
    for (uint64_t row = 0; row < n && status == FRUGAL_OK && !error;) {
        uint64_t k = LEAST(most, n - row);
        for (uint64_t i = 0; i < k; i++, row++) memcpy(piece + i * floats, rows + row * stride, floats * sizeof *rows);
        error = write_at(file.file, piece, k * floats * sizeof *rows, at);
        at += k * floats * sizeof *rows;
    }
    if (error) status = fail_write(sizeof piece, error, path);
    if (status == FRUGAL_OK) status = publish_new(&file, options.replace);
    drop_new(&file);
    return status;
}

static frugal_status write_arrays(const frugal *f, const char *folder, uint32_t part) {
    const frugal_store *s = &f->store;
    frugal_status status = FRUGAL_OK;
    for (uint32_t t = 0; t < f->desc.n_tables && status == FRUGAL_OK; t++) {
        char path[LONGEST_PATH];
        uint64_t rows = f->desc.tables[t].rows, first = f->first_row[t];
        snprintf(path, sizeof path, "%s/weights-%u-%u.npy", folder, part, t);
        status = write_npy(path, weights_of(f, first), rows, s->dim, s->weights_stride);
        if (status == FRUGAL_OK) printf("%s\n", path);
        if (status != FRUGAL_OK || s->state_floats == 0) continue;
        snprintf(path, sizeof path, "%s/state-%u-%u.npy", folder, part, t);
        status = write_npy(path, state_of(f, first), rows, s->state_floats, s->state_stride);
        if (status == FRUGAL_OK) printf("%s\n", path);
    }
    return status;
}

static int make_arrays(const char *folder, int n, char **paths) {
    saved_file head = {.parts = 1};
    for (uint32_t p = 0; p < head.parts; p++) {
        frugal *f;
        progress("reads up to", paths[n - 1]);
        frugal_status status = open_instance(n, paths, p, &head, &f);
        if (status == FRUGAL_OK) status = write_arrays(f, folder, p);
        frugal_close(f);
        if (status != FRUGAL_OK) return fail_message();
    }
    return 0;
}

typedef struct mapped_file { /* private: what is written there stays in memory */
    unsigned char *bytes;
    size_t n;
} mapped_file;

static int map_file(const char *path, mapped_file *out) {
    file_name name;
    int file;
    struct stat s;
    out->bytes = NULL;
    if (find_file(path, &name) != FRUGAL_OK) return fail_message();
    if (open_found(&name, O_RDONLY, &file) != FRUGAL_OK) return fail_message();
    int unknown = fstat(file, &s);
    out->n = (size_t)s.st_size;
    if (!unknown && out->n > 0) {
        void *memory = mmap(NULL, out->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
        if (memory != MAP_FAILED) out->bytes = memory;
    }
    close(file);
    return out->bytes ? 0 : fail_text("cannot be mapped, or is empty", path);
}

/* Of a .npy file: its rows of `dim` floats. */
static int read_npy(const mapped_file *map, const char *path, uint64_t *rows, uint32_t *dim, const float **floats) {
    unsigned long long n = 0, width = 0;
    char text[512] = {0};
    const char *shape;
    size_t header = map->n > 10 ? 10 + map->bytes[8] + 256u * map->bytes[9] : 0;
    if (header == 0 || memcmp(map->bytes, "\x93NUMPY\1", 7) != 0 || header > map->n || header - 10 >= sizeof text)
        return fail_text("wanted is a .npy file of version 1, and this is none", path);
    memcpy(text, map->bytes + 10, header - 10);
    shape = strstr(text, "'shape': (");
    if (!strstr(text, "'descr': '<f4'") || !strstr(text, "'fortran_order': False") || !shape ||
        sscanf(shape, "'shape': (%llu, %llu)", &n, &width) != 2 || n == 0 || width == 0 || width > 65536 ||
        n > FRUGAL_MAX_ROWS || header % sizeof(float) != 0)
        return fail_text("wanted are rows of float32, in two dimensions, in C's order", path);
    if (map->n - header != n * width * sizeof(float))
        return fail_text("the file has another size than its shape", path);
    *rows = n, *dim = (uint32_t)width;
    *floats = (const float *)(const void *)(map->bytes + header);
    return 0;
}

/* >>making a base */

static int save_base(const frugal_desc *desc, const char *out) {
    frugal *f;
    frugal_save_desc save = {.path = out, .replace = options.replace};
    frugal_status status = frugal_open(desc, &f);
    if (status == FRUGAL_OK) {
        progress("writes", out);
        status = frugal_save(&f, 1, &save);
    }
    frugal_close(f);
    return status == FRUGAL_OK ? 0 : fail_message();
}

static int from_arrays(const char *out, uint32_t n, char **paths) {
    frugal_table *tables = calloc(n, sizeof *tables);
    mapped_file *maps = calloc(n, sizeof *maps);
    frugal_desc desc = {.tables = tables, .n_tables = n, .max_keys = 1, .optimizer = {.kind = options.optimizer}};
    int failed = tables && maps ? 0 : fail_text("no memory for the settings of", out);
    desc.first_step = options.step;
    for (uint32_t i = 0; i < n && !failed; i++) {
        uint32_t dim = 0;
        tables[i].init = FRUGAL_INIT_COPY;
        failed = map_file(paths[i], &maps[i]) || read_npy(&maps[i], paths[i], &tables[i].rows, &dim, &tables[i].source);
        if (!failed && i > 0 && dim != desc.dim)
            failed = fail_text("the rows are not as wide as those before", paths[i]);
        if (!failed) desc.dim = dim;
    }
    if (!failed) failed = save_base(&desc, out);
    for (uint32_t i = 0; maps && i < n; i++)
        if (maps[i].bytes) munmap(maps[i].bytes, maps[i].n);
    free(tables), free(maps);
    return failed;
}

/* A file of version 0.1 has no header: rows as they lie in memory, and row-wise state behind them. */
static int convert_table(const char *out, const char *path) {
    static frugal_table tables[MOST_TABLES];
    mapped_file map;
    uint64_t rows = 0;
    if (options.dim == 0 || options.n_rows == 0) return fail_usage("convert needs %s of the file", "--dim and --rows");
    for (uint32_t t = 0; t < options.n_rows; t++) tables[t].rows = options.rows[t], rows += options.rows[t];
    uint32_t state = frugal_state_floats(options.optimizer, options.dim);
    int row_wise = options.optimizer == FRUGAL_ROWWISE_ADAGRAD;
    uint64_t behind = aligned_floats(options.dim), stride = behind + (row_wise ? 0 : aligned_floats(state));
    uint64_t bytes = rows * (stride + (row_wise ? state : 0)) * sizeof(float);
    if (map_file(path, &map)) return 1;
    frugal_desc desc = {.tables = tables,
                        .n_tables = options.n_rows,
                        .dim = options.dim,
                        .max_keys = 1,
                        .optimizer = {.kind = options.optimizer},
                        .first_step = options.step,
                        .weights = (float *)(void *)map.bytes,
                        .weights_stride = stride};
    if (state)
        desc.state = desc.weights + (row_wise ? rows * stride : behind), desc.state_stride = row_wise ? 1 : stride;
    int failed;
    if (map.n == bytes)
        failed = save_base(&desc, out);
    else {
        fprintf(stderr,
                "frugal_file: wanted are %llu bytes, by --dim, --rows and --optimizer, and the file has %zu: %s\n",
                (unsigned long long)bytes, map.n, path);
        failed = 1;
    }
    munmap(map.bytes, map.n);
    return failed;
}

/* >>the command line */

static int read_number(const char *text, uint64_t most, uint64_t *out, const char **end) {
    char *stopped;
    if (!isdigit((unsigned char)*text)) return -1;
    errno = 0;
    unsigned long long value = strtoull(text, &stopped, 10);
    *out = value, *end = stopped;
    return errno || value > most ? -1 : 0;
}

static int read_row_list(const char *text) {
    const char *end;
    for (;; text = end + 1) {
        if (options.n_rows == MOST_TABLES || read_number(text, FRUGAL_MAX_ROWS, &options.rows[options.n_rows], &end))
            return -1;
        options.n_rows++;
        if (*end != ',') return *end ? -1 : 0;
    }
}

static int read_option(const char *name, const char *value) {
    static const char *const words[] = {"sgd", "adagrad", "rowwise", "adam"};
    const char *end = "";
    uint64_t number;
    if (!strcmp(name, "--rows")) return read_row_list(value);
    if (!strcmp(name, "--step")) return read_number(value, FRUGAL_MAX_FIRST_STEP, &options.step, &end) || *end ? -1 : 0;
    if (!strcmp(name, "--dim")) {
        if (read_number(value, 65536, &number, &end) || *end || number == 0) return -1;
        options.dim = (uint32_t)number;
        return 0;
    }
    for (int i = 0; i < 4; i++)
        if (!strcmp(value, words[i])) {
            options.optimizer = (frugal_optimizer_kind)i;
            return 0;
        }
    return -1;
}

static int is_option(const char *text) {
    return !strcmp(text, "--rows") || !strcmp(text, "--step") || !strcmp(text, "--dim") || !strcmp(text, "--optimizer");
}

/* Options go; what is left are argv[1] to argv[return - 1]; below 0: refused. */
static int read_options(int argc, char **argv) {
    int n = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--replace"))
            options.replace = 1;
        else if (is_option(argv[i])) {
            if (i + 1 == argc) return -fail_usage("%s needs a value", argv[i]);
            if (read_option(argv[i], argv[i + 1])) return -fail_usage("%s has another value than it may", argv[i]);
            i++;
        } else if (argv[i][0] == '-' && argv[i][1] == '-')
            return -fail_usage("there is no option %s", argv[i]);
        else
            argv[n++] = argv[i];
    }
    return n;
}

static int run_command(int n, char **argv) {
    const char *command = n > 1 ? argv[1] : "";
    int failed = 0;
    if (!strcmp(command, "show") && n > 2) {
        for (int i = 2; i < n && !failed; i++) failed = show_file(argv[i]);
        return failed;
    }
    if (!strcmp(command, "check") && n > 2) return check_files(n - 2, argv + 2);
    if (!strcmp(command, "merge") && n > 3) return merge_files(argv[2], n - 3, argv + 3);
    if (!strcmp(command, "to-npy") && n > 3) return make_arrays(argv[2], n - 3, argv + 3);
    if (!strcmp(command, "from-npy") && n > 3) return from_arrays(argv[2], (uint32_t)n - 3, argv + 3);
    if (!strcmp(command, "convert") && n == 4) return convert_table(argv[2], argv[3]);
    return fail_usage("%s has no such command, or it needs other names", n > 1 ? argv[1] : "the command line");
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return fflush(stdout) ? fail_text("cannot write the help", strerror(errno)) : 0;
    }
    int n = read_options(argc, argv);
    if (n < 0) return -n;
    int failed = run_command(n, argv);
    if (fflush(stdout) || ferror(stdout)) return fail_text("cannot write the results", strerror(errno));
    return failed;
}
