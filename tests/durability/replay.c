/* replay.c - makes the states that a folder may have after power loss from the log of faults.so (faults.h); a program
 * checks each.
 *
 *     replay list LOG                                   prints the calls
 *     replay count LOG                                  prints their number
 *     replay whole LOG BEFORE OUT                       makes the folder with all calls: as it must be now
 *     replay power [-1] [-r N] [-e N] [-s SEED] LOG BEFORE WORK CHECKER...
 *
 * BEFORE is a copy of the folder as it was when the log began. The power may go after any call. Then the folder has
 *   - what was synced: data of a file by fsync of the file, or msync of the pages; names by fsync of their folder;
 *   - any part of everything else, in any order: each write may be there, not be there, be there in some of its blocks
 *     (of 4096 bytes; of 512 if it is smaller), or as a file's size alone, with zeros. A new name may be there before
 *     the data of its file, or be missing although the data are there; a rename is there as a whole, or not.
 * If at most -e (6) calls were not synced, all subsets of them are tried. If more: none, all, each alone, all without
 * each, and -r (8) random subsets. A folder that was met before with the same reports is not checked again.
 *
 * CHECKER gets four more arguments: the folder; the last line that the program had reported as done before the power
 * went ("" if none); "power"; "-". Its exit status 0 says that nothing is lost. The last line of output has counts; the
 * exit status is 1 if a state was refused. The first three that are refused are kept in WORK. With -1 the first one
 * ends the search.
 */
#include "tests/durability/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {
#define TYPE(name, word) #word,
    LOG_TYPES
#undef TYPE
};

static int list(const char *name, int only_count) {
    history h = history_read(name, NULL);
    uint64_t count = 0;
    for (size_t i = 0; i < h.n_records; i++) {
        const log_record *r = h.records[i].record;
        if (r->number > 0) count++;
        if (only_count) continue;
        printf("%6llu %-8s", (unsigned long long)r->number, words[r->type]);
        if (r->handle) printf(" #%llu", (unsigned long long)r->handle);
        if (r->data_bytes && r->type != LOG_ACK)
            printf(" %llu at %llu", (unsigned long long)r->data_bytes, (unsigned long long)r->offset);
        if (r->length) printf(" length %llu", (unsigned long long)r->length);
        if (r->path_bytes) printf(" %s", h.records[i].path);
        if (r->second_bytes) printf(" -> %s", h.records[i].second);
        if (r->type == LOG_ACK) printf(" %.*s", (int)r->data_bytes - 1, (const char *)h.records[i].data);
        printf("%s%s%s\n", r->flags & LOG_CREATED ? " (new)" : "", r->flags & LOG_FAILED ? " FAILED" : "",
               r->flags & LOG_FAULT ? " FAULT" : "");
    }
    if (only_count) printf("%llu\n", (unsigned long long)count);
    return 0;
}

/* >>states */

static struct {
    unsigned exhaustive, random;
    int one_is_enough;
    uint64_t seed;
    const char *work;
    char **checker;
    uint64_t states, checked, refused, moments;
    uint64_t *met; /* hashes, open addressing; 0: free */
    size_t met_size;
} run = {.exhaustive = 6, .random = 8, .seed = 1};

static int met_before(uint64_t hash) {
    hash += hash == 0;
    if (run.checked * 2 >= run.met_size) {
        uint64_t *old = run.met;
        size_t n = run.met_size;
        run.met_size = n ? 2 * n : 1024;
        run.met = must(calloc(run.met_size, sizeof *run.met));
        for (size_t i = 0; i < n; i++) {
            size_t at = old[i] % run.met_size;
            while (run.met[at]) at = (at + 1) % run.met_size;
            if (old[i]) run.met[at] = old[i];
        }
        free(old);
    }
    size_t at = hash % run.met_size;
    for (; run.met[at]; at = (at + 1) % run.met_size)
        if (run.met[at] == hash) return 1;
    run.met[at] = hash;
    return 0;
}

static int ask(const char *folder, const char *ack) {
    char said[TREE_NAME];
    snprintf(said, sizeof said, "%s/said", run.work);
    const char *more[] = {folder, ack, "power", "-", NULL};
    return exit_status(run_program(run.checker, more, said, 120, NULL));
}

static void show_refused(const history *h, size_t moment, const uint8_t *chosen, const char *ack, int status) {
    static const char *const ways[] = {"not there", "there", "some blocks", "size alone"};
    char command[2 * TREE_NAME];
    printf("# refused (exit status %d): power lost after record %zu", status, moment);
    if (moment > 0) {
        const log_record *r = h->records[moment - 1].record;
        printf(" (call %llu, %s)", (unsigned long long)r->number, words[r->type]);
    }
    printf(", last report \"%s\"; not synced:\n", ack);
    for (size_t i = 0; i < h->n_ops; i++)
        if (op_is_pending(&h->ops[i], moment)) {
            const change *c = &h->ops[i];
            printf("#   call %llu, %s %s: %s\n", (unsigned long long)h->records[c->at].record->number,
                   words[h->records[c->at].record->type], c->is_name ? c->name : h->nodes[c->node].name,
                   ways[chosen[i]]);
        }
    snprintf(command, sizeof command, "sed 's/^/#   the checker: /' '%s/said'", run.work);
    fflush(stdout);
    if (system(command) != 0) printf("# (what it said is not there)\n");
}

static void try_state(const history *h, size_t moment, const uint8_t *chosen, uint64_t seed) {
    char folder[TREE_NAME];
    if (run.one_is_enough && run.refused > 0) return;
    const char *ack = ack_at(h, moment);
    run.states++;
    tree t = tree_make(h, moment, chosen, seed);
    if (!met_before(tree_hash(&t) ^ hash_of(ack, strlen(ack)))) {
        run.checked++;
        snprintf(folder, sizeof folder, "%s/state", run.work);
        remove_folder(folder);
        tree_write(&t, folder);
        int status = ask(folder, ack);
        if (status != 0 && run.refused++ < 3) {
            char kept[TREE_NAME + 32];
            show_refused(h, moment, chosen, ack, status);
            snprintf(kept, sizeof kept, "%s/refused-%llu", run.work, (unsigned long long)run.refused);
            remove_folder(kept);
            tree_write(&t, kept); /* written anew, because the checker may have changed it */
        }
    }
    tree_free(&t);
}

/* How a write is found: mostly whole. */
static uint8_t random_way(uint64_t *random) {
    uint64_t way = next_random(random) % 10;
    return way < 6 ? WHOLE : way < 9 ? SOME_BLOCKS : SIZE_ALONE;
}

static void try_moment(const history *h, size_t moment) {
    size_t *pending = must(malloc((h->n_ops + 1) * sizeof *pending)), n = 0;
    uint8_t *chosen = must(calloc(h->n_ops + 1, 1));
    for (size_t i = 0; i < h->n_ops; i++)
        if (op_is_pending(&h->ops[i], moment)) pending[n++] = i;
    uint64_t random = run.seed * UINT64_C(0x9E3779B97F4A7C15) + moment;
    run.moments++;
    if (n <= run.exhaustive) {
        for (uint64_t mask = 0; mask < UINT64_C(1) << n; mask++) {
            for (size_t i = 0; i < n; i++) chosen[pending[i]] = (uint8_t)(mask >> i & 1);
            try_state(h, moment, chosen, 0);
        }
    } else {
        for (int all = 0; all < 2; all++)
            for (size_t other = 0; other <= n; other++) { /* one differs from all others; n: none does */
                for (size_t i = 0; i < n; i++) chosen[pending[i]] = (uint8_t)((i == other) != all);
                try_state(h, moment, chosen, 0);
            }
    }
    for (unsigned k = 0; k < run.random && n > 0; k++) {
        uint64_t percent = (uint64_t[]){15, 50, 85}[next_random(&random) % 3];
        for (size_t i = 0; i < n; i++) {
            int there = next_random(&random) % 100 < percent;
            uint8_t way = random_way(&random);
            chosen[pending[i]] = !there ? 0 : h->ops[pending[i]].is_name ? WHOLE : way;
        }
        try_state(h, moment, chosen, next_random(&random));
    }
    free(pending);
    free(chosen);
}

static int power(int n, char **arguments) {
    int option;
    optind = 1;
    while ((option = getopt(n, arguments, "+1r:e:s:")) != -1) {
        unsigned long long number = optarg ? strtoull(optarg, NULL, 10) : 0;
        if (option == '1') run.one_is_enough = 1;
        if (option == 'r') run.random = (unsigned)number;
        if (option == 'e') run.exhaustive = (unsigned)number;
        if (option == 's') run.seed = number;
        if (option == '?') return 2;
    }
    if (n - optind < 4) return 2;
    run.work = arguments[optind + 2];
    run.checker = arguments + optind + 3;
    history h = history_read(arguments[optind], arguments[optind + 1]);
    for (size_t moment = 0; moment <= h.n_records; moment++)
        if (moment == 0 || h.records[moment - 1].record->type != LOG_READ) try_moment(&h, moment);
    printf(
        "# power loss: %zu calls, %llu moments, %llu states, %llu different ones checked, %llu refused (seed %llu)\n",
        h.n_records, (unsigned long long)run.moments, (unsigned long long)run.states, (unsigned long long)run.checked,
        (unsigned long long)run.refused, (unsigned long long)run.seed);
    return run.refused > 0;
}

static int whole(const char *log, const char *before, const char *out) {
    history h = history_read(log, before);
    uint8_t *chosen = must(malloc(h.n_ops + 1));
    memset(chosen, WHOLE, h.n_ops + 1);
    tree t = tree_make(&h, h.n_records, chosen, 0);
    remove_folder(out);
    tree_write(&t, out);
    tree_free(&t);
    free(chosen);
    return 0;
}

int main(int n, char **arguments) {
    int result = 2;
    if (n == 3 && !strcmp(arguments[1], "list")) result = list(arguments[2], 0);
    if (n == 3 && !strcmp(arguments[1], "count")) result = list(arguments[2], 1);
    if (n == 5 && !strcmp(arguments[1], "whole")) result = whole(arguments[2], arguments[3], arguments[4]);
    if (n > 4 && !strcmp(arguments[1], "power")) result = power(n - 1, arguments + 1);
    if (result == 2) fprintf(stderr, "usage: replay list|count|whole|power ...: see the opening of replay.c\n");
    return result;
}
