/* serve.c - a trained table is served: threads look up rows, and meanwhile a newer version is taken over.
 *
 *     build/serve                                     a table that is made up, saved, trained on, and saved again
 *     build/serve --saved monday,tuesday --refresh wednesday
 *
 * Each thread draws requests of `--keys` keys of each table, and notes how long each lookup takes. Three phases follow
 * each other: before the refresh, while it is under way, and after it. A fourth one reads the same rows as a program
 * without a library would, from a mapped file by memcpy. They take turns, so that a machine that becomes slower for a
 * while does so in all of them. The last line of stdout is a JSON object with percentiles.
 */
#include "trainers/common/options.h"
#include "frugal_save.h"
#include "frugal_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_THREADS = 64, MOST_TABLES = 256, MOST_SAVES = 64, MOST_LOOKUPS = 1 << 22 };

static uint64_t rows = 1000000, dim = 32, tables = 26, keys = 128, changed = 10000;
static uint32_t threads = 1;
static double seconds = 2, skew = 3;
static const char *saved, *refreshed, *folder = "/tmp";
static int made_up; /* an option of what is made up is given */
static int json, help;

static const options_entry entries[] = {
    {"saved", OPTIONS_TEXT, &saved, .value = "FILES", .help = "serve these: a base and its increments, with commas"},
    {"refresh", OPTIONS_TEXT, &refreshed, .value = "FILES",
     .help = "what is taken over in the middle: increments that continue --saved, or a base"},
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4e9, .given = &made_up,
     .help = "rows of what is made up, in all its tables together"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, .given = &made_up, .help = "floats a row, of what is made up"},
    {"tables", OPTIONS_WHOLE64, &tables, 1, MOST_TABLES, .given = &made_up, .help = "tables of what is made up"},
    {"changed", OPTIONS_WHOLE64, &changed, 1, 1 << 24, .given = &made_up,
     .help = "rows in the increment that is made up"},
    {"folder", OPTIONS_TEXT, &folder, .value = "DIR", .standard = "/tmp",
     .help = "where files are during the run: the saves of what is made up; the whole table, for the comparison"},
    {"keys", OPTIONS_WHOLE64, &keys, 1, 1 << 20, .help = "keys of each table in a request"},
    {"skew", OPTIONS_REAL, &skew, 1, 100, .help = "of the keys: rank = rows x u ^ skew, of uniform u; 1: uniform"},
    {"threads", OPTIONS_WHOLE32, &threads, 1, MOST_THREADS, .help = "threads that look up"},
    {"seconds", OPTIONS_REAL, &seconds, .01, 3600, .help = "seconds of each phase, in 32 turns"},
    {"json", OPTIONS_FLAG, &json, .help = "the JSON object alone"},
    {"help", OPTIONS_FLAG, &help, .help = "this"},
    {0},
};

static void fail(const char *what) {
    fprintf(stderr, "serve: %s\n", what);
    exit(1);
}
/* Ctrl-C: what was made is removed at exit. */
static void stop_if_signalled(void) {
    if (!program_signalled) return;
    fprintf(stderr, "serve: ended by %s\n", program_signal());
    exit(1);
}
static void check(frugal_status status) {
    if (status != FRUGAL_OK) fail(frugal_message());
}

static uint64_t mix(uint64_t *state) { /* SplitMix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A key of a table: hot ranks are spread over it. */
static uint64_t draw_key(uint64_t *state, uint64_t n) {
    double u = (double)(mix(state) >> 11) * 0x1p-53;
    uint64_t rank = (uint64_t)((double)n * pow(u, skew));
    return (rank < n ? rank : n - 1) * UINT64_C(2654435761) % n;
}

/* ---- A table that is made up --------------------------------------------------------------------------- */

static char made[2][4096]; /* a base, and an increment */

static void remove_made(void) {
    for (int i = 0; i < 2; i++)
        if (made[i][0]) unlink(made[i]);
}

/* A name is noted when the file is this program's. */
static void save_made(frugal *f, int i) {
    char path[sizeof *made];
    if (snprintf(path, sizeof path, "%s/frugal_serve.%ld.%d", folder, (long)getpid(), i) >= (int)sizeof path)
        fail("the path of --folder is too long");
    check(frugal_save(&f, 1, &(frugal_save_desc){.path = path, .increment = i}));
    memcpy(made[i], path, sizeof path);
    stop_if_signalled();
}

/* One step on `changed` rows lies between the base and the increment. */
static void make_saves(void) {
    static frugal_table list[MOST_TABLES];
    frugal *f;
    for (uint64_t t = 0; t < tables; t++)
        list[t] = (frugal_table){
            .rows = rows / tables + (t < rows % tables), .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    frugal_desc desc = {.tables = list,
                        .n_tables = (uint32_t)tables,
                        .dim = (uint32_t)dim,
                        .max_keys = (uint32_t)changed,
                        .increments = 1,
                        .optimizer = {.kind = FRUGAL_SGD}};
    uint64_t *some = malloc(changed * sizeof *some), state = 1;
    float *grads = calloc(changed, dim * sizeof *grads);
    if (!some || !grads) fail("out of memory for --changed rows");
    atexit(remove_made);
    fprintf(stderr, "making a table of %" PRIu64 " rows, and saving it\n", rows);
    check(frugal_open(&desc, &f));
    check(frugal_cpu_attach(f, 0, NULL));
    check(frugal_drain(f));
    save_made(f, 0);
    for (uint64_t i = 0; i < changed; i++) some[i] = draw_key(&state, list[0].rows);
    for (uint64_t i = 0; i < changed * dim; i++) grads[i] = 0.5f;
    frugal_keys batch = {.table = 0, .keys = some, .n = (uint32_t)changed};
    check(frugal_announce(f, 0, 0, &(frugal_batch){.segments = &batch, .n_segments = 1}));
    check(frugal_lookup(f, 0, 0, NULL));
    check(frugal_update(f, 0, 0, &(frugal_gradients){.grads = grads, .lr = 0.1f}));
    check(frugal_drain(f));
    save_made(f, 1);
    check(frugal_close(f));
    free(some), free(grads);
}

/* ---- Lookups ------------------------------------------------------------------------------------------- */

/* Behind the phases: SETTLING, in which nothing is noted, and ENDED. */
typedef enum { BEFORE, DURING, AFTER, PLAIN, PHASES, SETTLING = PHASES, ENDED } phase;
enum { TURNS = 32 }; /* of each phase */
static const char *const phases[PHASES] = {"before the refresh", "during the refresh", "after it", "mapped, by memcpy"};

typedef struct reader {
    pthread_t thread;
    uint64_t state, *numbers;
    float *found;
    float *us[PHASES]; /* [MOST_LOOKUPS]: of each lookup */
    uint32_t n[PHASES];
    double sum; /* of what was read, so that the compiler keeps the reads */
} reader;

static frugal_server *server;
static uint64_t table_rows[MOST_TABLES], first_row[MOST_TABLES];
static const float *plain; /* the whole table in a mapped file */
static double plain_sum;
static _Atomic(int) now; /* the phase */

static double clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void look_up(reader *r, phase p) {
    frugal_keys segments[MOST_TABLES];
    for (uint64_t t = 0; t < tables; t++) {
        for (uint64_t k = 0; k < keys; k++) r->numbers[t * keys + k] = draw_key(&r->state, table_rows[t]);
        segments[t] = (frugal_keys){.table = (uint32_t)t, .keys = r->numbers + t * keys, .n = (uint32_t)keys};
    }
    double since = clock_us();
    if (p == PLAIN)
        for (uint64_t i = 0; i < tables * keys; i++)
            memcpy(r->found + i * dim, plain + (first_row[i / keys] + r->numbers[i]) * dim, dim * sizeof(float));
    else
        check(frugal_serve_lookup(server, segments, (uint32_t)tables, r->found, NULL));
    double us = clock_us() - since;
    r->sum += (double)r->found[(tables * keys - 1) * dim];
    if (p < PHASES && r->n[p] < MOST_LOOKUPS) r->us[p][r->n[p]++] = (float)us;
}

static void *read_on(void *argument) {
    reader *r = argument;
    for (int p; (p = atomic_load(&now)) < ENDED;) look_up(r, (phase)p);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct percentiles {
    double p50, p99, per_s;
    uint64_t n;
} percentiles;

/* Requests a second: of all threads, not counting the time in which they draw keys. */
static percentiles percentiles_of(const reader *readers, phase p) {
    uint64_t n = 0;
    double us = 0;
    for (uint32_t i = 0; i < threads; i++) n += readers[i].n[p];
    float *all = malloc((n + 1) * sizeof *all);
    if (!all) fail("out of memory for percentiles");
    for (uint64_t i = 0, at = 0; i < threads; at += readers[i++].n[p])
        memcpy(all + at, readers[i].us[p], readers[i].n[p] * sizeof *all);
    for (uint64_t i = 0; i < n; i++) us += (double)all[i];
    qsort(all, n, sizeof *all, by_value);
    percentiles found = {.n = n};
    if (n) found = (percentiles){(double)all[n / 2], (double)all[n - 1 - n / 100], (double)(n * threads) / us * 1e6, n};
    free(all);
    return found;
}

static void open_readers(reader *readers) {
    for (uint32_t i = 0; i < threads; i++) {
        reader *r = &readers[i];
        r->state = i, r->numbers = malloc(tables * keys * sizeof *r->numbers);
        r->found = malloc(tables * keys * dim * sizeof *r->found);
        for (int p = 0; p < PHASES; p++)
            if (!(r->us[p] = malloc(MOST_LOOKUPS * sizeof **r->us))) fail("out of memory for times");
        if (!r->numbers || !r->found) fail("out of memory for requests");
    }
}

static void fail_plain(const char *name) {
    fprintf(stderr, "serve: no file for the comparison: %s: %s; give another --folder\n", name, strerror(errno));
    exit(1);
}

/* Writes the table, as it is served, to a file that has no name, and maps it. */
static void map_plain(void) {
    char name[4096];
    uint64_t all = 0, some[4096];
    if (snprintf(name, sizeof name, "%s/frugal_serve.%ld.plain", folder, (long)getpid()) >= (int)sizeof name)
        fail("the path of --folder is too long");
    int file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 || unlink(name)) fail_plain(name);
    float *part = malloc(4096 * dim * sizeof *part);
    if (!part) fail("out of memory for the comparison");
    for (uint64_t t = 0; t < tables; t++)
        for (uint64_t at = 0, n; at < table_rows[t]; at += n, all += n) {
            n = table_rows[t] - at < 4096 ? table_rows[t] - at : 4096;
            for (uint64_t k = 0; k < n; k++) some[k] = at + k;
            frugal_keys segment = {.table = (uint32_t)t, .keys = some, .n = (uint32_t)n};
            check(frugal_serve_lookup(server, &segment, 1, part, NULL));
            size_t bytes = n * dim * sizeof *part;
            errno = ENOSPC; /* if a part is written */
            if (write(file, part, bytes) != (ssize_t)bytes) fail_plain(name);
            stop_if_signalled();
        }
    void *map = mmap(NULL, all * dim * sizeof *part, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail(strerror(errno));
    close(file), free(part);
    plain = map;
    for (uint64_t i = 0; i < all * dim; i += 1024) plain_sum += (double)plain[i]; /* every page is there */
}

/* ---- The run ------------------------------------------------------------------------------------------- */

/* Splits a list with commas into files; `text` is changed. */
static uint32_t split(char *text, const char **files, uint32_t n) {
    for (char *at = strtok(text, ","); at; at = strtok(NULL, ",")) {
        if (n == MOST_SAVES) fail("more than 64 saves are named; merge increments with frugal_file");
        files[n++] = at;
    }
    return n;
}

static void rest(double s) {
    struct timespec left = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR && !program_signalled) continue;
}

typedef struct results {
    percentiles of[PHASES];
    uint32_t refreshes;
    double first_s; /* of the first refresh */
} results;

/* Takes over the newer version and the older one, one after the other, for the length of a turn. The newer one is
 * served in the end. */
static void refresh_on(const frugal_served *older, const frugal_served *newer, results *r) {
    double since = clock_us();
    do {
        check(frugal_serve_refresh(server, r->refreshes % 2 ? older : newer));
        if (r->refreshes++ == 0) r->first_s = (clock_us() - since) * 1e-6;
    } while (r->refreshes % 2 == 0 || (clock_us() - since < seconds / TURNS * 1e6 && !program_signalled));
}

/* One turn of each phase, with the older version served at first. */
static void take_turns(const frugal_served *older, const frugal_served *newer, results *r) {
    if (r->refreshes) {
        atomic_store(&now, SETTLING);
        check(frugal_serve_refresh(server, older));
        r->refreshes++;
        rest(seconds / TURNS / 8);
    }
    for (int p = BEFORE; p < PHASES && !program_signalled; p++) {
        atomic_store(&now, p);
        if (p == DURING)
            refresh_on(older, newer, r);
        else
            rest(seconds / TURNS);
    }
}

static void run_phases(const frugal_served *older, const frugal_served *newer, results *r) {
    static reader readers[MOST_THREADS];
    open_readers(readers);
    for (uint32_t i = 0; i < threads; i++)
        if (pthread_create(&readers[i].thread, NULL, read_on, &readers[i])) fail("a thread cannot be started");
    for (int turn = 0; turn < TURNS && !program_signalled; turn++) {
        fprintf(stderr, "turn %d of %d: before the refresh, during it, after it, mapped ...\n", turn + 1, TURNS);
        take_turns(older, newer, r);
    }
    atomic_store(&now, ENDED);
    for (uint32_t i = 0; i < threads; i++) pthread_join(readers[i].thread, NULL), plain_sum += readers[i].sum;
    stop_if_signalled();
    for (int p = BEFORE; p < PHASES; p++) r->of[p] = percentiles_of(readers, (phase)p);
}

static void print_results(const results *r, const frugal_serve_info *info) {
    const percentiles *of = r->of;
    if (!json) {
        printf("%" PRIu64 " rows of %" PRIu64 " floats in %" PRIu64 " tables; requests of %" PRIu64
               " keys of each; %u threads\n%-20s %12s %10s %10s\n",
               rows, dim, tables, keys, threads, "", "requests/s", "p50, us", "p99, us");
        for (int p = BEFORE; p < PHASES; p++)
            printf("%-20s %12.0f %10.1f %10.1f\n", phases[p], of[p].per_s, of[p].p50, of[p].p99);
        printf("%u versions were taken over, the first in %.3f s; the last has %.1f MB of its own\n", r->refreshes,
               r->first_s, (double)info->own_bytes * 1e-6);
    }
    printf("{\"program\": \"serve\", \"rows\": %" PRIu64 ", \"dim\": %" PRIu64 ", \"tables\": %" PRIu64
           ", \"keys\": %" PRIu64 ", \"threads\": %u, ",
           rows, dim, tables, keys, threads);
    printf("\"lookups_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, ", of[BEFORE].per_s, of[BEFORE].p50,
           of[BEFORE].p99);
    printf("\"refreshes\": %u, \"refresh_s\": %.4f, \"refresh_p50_us\": %.2f, \"refresh_p99_us\": %.2f, "
           "\"after_p99_us\": %.2f, ",
           r->refreshes, r->first_s, of[DURING].p50, of[DURING].p99, of[AFTER].p99);
    printf("\"plain_per_s\": %.1f, \"plain_p50_us\": %.2f, \"plain_p99_us\": %.2f, \"own_bytes\": %" PRIu64 "}\n",
           of[PLAIN].per_s, of[PLAIN].p50, of[PLAIN].p99, info->own_bytes);
}

/* Takes the layout of what is served, in place of the options. */
static void learn_layout(void) {
    frugal_serve_info info;
    check(frugal_serve_get_info(server, &info));
    if (info.n_tables > MOST_TABLES) fail("there are more than 256 tables");
    tables = info.n_tables, dim = info.dim, rows = info.rows;
    for (uint64_t t = 0, all = 0; t < tables; all += table_rows[t++])
        table_rows[t] = frugal_serve_rows(server, (uint32_t)t), first_row[t] = all;
}

static void run(void) {
    static const char *files[MOST_SAVES];
    frugal_serve_info info;
    frugal_saved head;
    results r = {.refreshes = 0};
    uint32_t n = 1, n_newer = 2;
    if (saved) {
        n = split(strdup(saved), files, 0), n_newer = split(strdup(refreshed), files, n);
    } else {
        make_saves();
        files[0] = made[0], files[1] = made[1];
    }
    frugal_served older = {.saved = files, .n_saved = n}, newer = {.saved = files, .n_saved = n_newer};
    check(frugal_read_saved(files[n], 0, &head));
    if (!head.increment) newer = (frugal_served){.saved = files + n, .n_saved = n_newer - n};
    check(frugal_serve_open(&(frugal_serve_desc){.from = older, .threads = 1}, &server));
    learn_layout();
    map_plain();
    run_phases(&older, &newer, &r);
    check(frugal_serve_get_info(server, &info));
    print_results(&r, &info);
    frugal_serve_close(server);
}

/* Is a file's name missing in the list? */
static int has_gap(const char *list) {
    size_t n = strlen(list);
    return n == 0 || list[0] == ',' || list[n - 1] == ',' || strstr(list, ",,");
}

/* What can be seen only from several options together. */
static int check_options(program_error *error) {
    if (!saved != !refreshed)
        return program_fail(error, "--%s is given alone; give --saved and --refresh, or neither",
                            saved ? "saved" : "refresh");
    if (saved && made_up)
        return program_fail(error, "--rows, --dim, --tables and --changed are for a table that is made up, and --saved "
                                   "has one; leave them out");
    if (saved && (has_gap(saved) || has_gap(refreshed)))
        return program_fail(error, "--%s '%s' lacks a file's name", has_gap(saved) ? "saved" : "refresh",
                            has_gap(saved) ? saved : refreshed);
    if (rows < tables)
        return program_fail(error, "--rows %" PRIu64 " is less than --tables %" PRIu64 "; each table needs a row", rows,
                            tables);
    return 0;
}

int main(int argc, char **argv) {
    program_error error;
    options_table table = {.program = "serve",
                           .about =
                               "usage: serve [options]\n\nServes a saved table to threads that look up rows, and takes "
                               "over a newer version meanwhile.\n\n"};
    options_add(&table, NULL, entries);
    program_open_streams();
    if (options_read(&table, OPTIONS_ALL, argc, argv, &error)) {
        fprintf(stderr, "serve: %s\n", error.text);
        return 2;
    }
    if (!help && check_options(&error)) {
        fprintf(stderr, "serve: %s\n", error.text);
        return 2;
    }
    if (help) {
        options_help(&table);
    } else {
        program_catch_signals();
        run();
    }
    if (program_flush(stdout, "the result", &error)) fail(error.text);
    return 0;
}
