/* peers - plans which GPU keeps which rows, if GPUs can read each other's memory and rows are only read.
 *
 *     peers --machine links.txt --rows 1e7 --zipf 1.1 --cache .02,.08    a table of policies, and what is predicted
 *     peers --like 8xA100 --lp program.lp; glpsol --lp program.lp        the least that any plan could take
 *
 * `peers --help` says more. The planner is frugal_place.h >>peers; in tools/peers: machine (its links), levels (how
 * often rows are touched), program (UGache's linear program, for a solver).
 */
#include "trainers/common/file.h"
#include "trainers/common/options.h"
#include "tools/peers/levels.h"
#include "tools/peers/machine.h"
#include "tools/peers/program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"

static const char *machine_path, *levels_path, *lp_path;
static int like, like_given, json, help, zipf_given, rows_given;
static uint64_t rows = 10000000, dim = 128, touches = 1000000;
static double skew = .99, writes, host_share = .0625;
static options_list caches = {{.02, .05, .08, .12}, 4};

static const options_entry entries[] = {
    {"machine", OPTIONS_TEXT, &machine_path, .value = "FILE",
     .help =
         "the links: a line for each device, of GB/s at which it reads from devices 0, 1, ... and from the host, "
         "then the root of its bus and GB/s of that root, if any share one; bench_cuda --experiment links writes it"},
    {"like", OPTIONS_CHOICE, &like, .choices = peers_likes, .given = &like_given,
     .help = "a machine of UGache's evaluation, instead of --machine"},
    {"cache", OPTIONS_REALS, &caches, 0, 1, .help = "rows of a device's cache, as shares of all"},
    {"rows", OPTIONS_WHOLE64, &rows, 1, 1e12, .given = &rows_given, .help = "rows of the table"},
    {"zipf", OPTIONS_REAL, &skew, 0, 10, .given = &zipf_given, .help = "skew of the rows' touches; 0: uniform"},
    {"levels", OPTIONS_TEXT, &levels_path, .value = "FILE",
     .help = "instead of --rows and --zipf: lines with touches of a row and the number of rows that have as many"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, .help = "floats a row"},
    {"touches", OPTIONS_WHOLE64, &touches, 1, 1e12, .help = "touches of a device in a step"},
    {"writes", OPTIONS_REAL, &writes, 0, 100, .help = "rows written to the host, for each touch"},
    {"host-share", OPTIONS_REAL, &host_share, 1e-6, 1, .help = "share of a device's cores that read from the host"},
    {"lp", OPTIONS_TEXT, &lp_path, .value = "FILE",
     .help = "write UGache's linear program for the first --cache, in milliseconds: glpsol --lp FILE"},
    {"json", OPTIONS_FLAG, &json, .help = "one object a line"},
    {"help", OPTIONS_FLAG, &help, .help = "this"},
    {0},
};

static const char *const policies[] = {"planned", "replicated", "partitioned", "two-tiers"};

static options_table make_table(void) {
    options_table table = {.program = "peers",
                           .about = "usage: peers --machine FILE | --like NAME   [options]\n\n"
                                    "Plans which device keeps which rows, if devices can read each other's memory and "
                                    "rows are only read. Prints what a\nstep of the slowest device takes, and where "
                                    "rows are read, for each policy. All of it is predicted, nothing run.\n\n"};
    options_add(&table, NULL, entries);
    return table;
}

static int check_options(program_error *error) {
    if (!machine_path == !like_given)
        return program_fail(error, "%s; give --machine or --like",
                            machine_path ? "both machines are given" : "no machine is given");
    if (levels_path && (zipf_given || rows_given))
        return program_fail(error, "--levels says how often rows are touched, and so does --%s; give one of the two",
                            zipf_given ? "zipf" : "rows");
    if (file_is_same(lp_path, machine_path) || file_is_same(lp_path, levels_path))
        return program_fail(error, "--lp %.200s would overwrite a file that is read; give another file", lp_path);
    return 0;
}

static void show(const peers_machine *m, double cache, frugal_place_policy policy, const frugal_place_plan *plan,
                 double seconds) {
    if (json) {
        printf("{\"tool\": \"peers\", \"machine\": \"%s\", \"devices\": %u, \"cache\": %g, \"policy\": \"%s\", "
               "\"ms\": %.6g, \"own_ms\": %.6g, \"peer_ms\": %.6g, \"host_ms\": %.6g, \"own\": %.6f, "
               "\"peer\": %.6f, \"host\": %.6f, \"planning_ms\": %.4f, \"groups\": [",
               m->name, plan->devices, cache, policies[policy], plan->seconds * 1e3, plan->own_seconds * 1e3,
               plan->peer_seconds * 1e3, plan->host_seconds * 1e3, plan->own_share, plan->peer_share, plan->host_share,
               seconds * 1e3);
        for (uint32_t p = 0; p < plan->n; p++)
            printf("%s{\"size\": %u, \"rows\": %" PRIu64 "}", p > 0 ? ", " : "", plan->patterns[p].size,
                   plan->patterns[p].rows);
        puts("]}");
        return;
    }
    printf("%5.3g%%  %-11s %10.4f %7.1f %6.1f %6.1f   ", cache * 100, policies[policy], plan->seconds * 1e3,
           plan->own_share * 100, plan->peer_share * 100, plan->host_share * 100);
    for (uint32_t p = 0; p < plan->n; p++)
        printf("%s%" PRIu64 " x 1/%u", p > 0 ? ", " : "", plan->patterns[p].rows, plan->patterns[p].size);
    putchar('\n');
}

static int write_lp(const frugal_place_machine *m, const frugal_place_level *levels, uint32_t n, program_error *error) {
    file_new file;
    if (file_make(&file, lp_path, error)) return -1;
    if (file_stream(&file, error)) return file_discard(&file), -1;
    peers_write_program(file.stream, m, levels, n);
    int status = file_close(&file, error);
    if (!status) status = file_publish(&file, error);
    if (status) file_discard(&file);
    return status;
}

static int run(program_error *error) {
    static peers_machine m;
    static frugal_place_level levels[PEERS_MOST_LEVELS];
    uint32_t n = 0;
    if (machine_path ? peers_read_machine(&m, machine_path, error) : peers_make_machine(&m, peers_likes[like], error))
        return -1;
    if (levels_path) {
        if (peers_read_levels(levels, &n, levels_path, (double)touches, error)) return -1;
        rows = 0;
        for (uint32_t l = 0; l < n; l++) rows += levels[l].rows;
    } else {
        n = peers_zipf(levels, 256, rows, skew, (double)touches); /* as many as a byte has */
    }
    m.machine.row_bytes = dim * sizeof(float), m.machine.writes = writes, m.machine.host_share = host_share;
    m.machine.capacity = (uint64_t)(caches.values[0] * (double)rows);
    if (lp_path && write_lp(&m.machine, levels, n, error)) return -1;
    if (!json)
        puts("cache   policy              ms    own %  peers   host   rows, and the share of devices that keep each");
    for (uint32_t c = 0; c < caches.n; c++) {
        m.machine.capacity = (uint64_t)(caches.values[c] * (double)rows);
        for (int policy = 0; policy < 4; policy++) {
            frugal_place_plan plan;
            double since = program_now();
            frugal_place_status status =
                frugal_place_make_plan(&m.machine, levels, n, (frugal_place_policy)policy, &plan);
            if (status != FRUGAL_PLACE_OK) return program_fail(error, "no plan: %s", frugal_place_strerror(status));
            show(&m, caches.values[c], (frugal_place_policy)policy, &plan, program_now() - since);
        }
    }
    return program_flush(stdout, "the result", error);
}

int main(int argc, char **argv) {
    program_error error;
    options_table table = make_table();
    program_open_streams();
    if (options_read(&table, OPTIONS_ALL, argc, argv, &error) || (!help && check_options(&error))) {
        fprintf(stderr, "peers: %s\n", error.text);
        return 2;
    }
    if (help) options_help(&table);
    int status = help ? program_flush(stdout, "the help", &error) : run(&error);
    if (status) fprintf(stderr, "peers: %s\n", error.text);
    return status ? 1 : 0;
}
