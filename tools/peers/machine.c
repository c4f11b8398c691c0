/* Machines: read from files, and those of UGache's evaluation. */
#include "tools/peers/machine.h"
#include "trainers/common/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_MOST_NUMBERS = FRUGAL_PLACE_MAX_DEVICES + 3, PEERS_LARGEST_FILE = 1 << 20 };

/* The numbers of a line, up to a comment; -1: one is not a number of 0 or more, or there are too many. */
static int peers_numbers(const char *line, size_t length, double *numbers) {
    char text[4096], *at = text, *end;
    int n = 0;
    if (length >= sizeof text) return -1;
    memcpy(text, line, length);
    text[length] = 0;
    text[strcspn(text, "#")] = 0;
    for (at += strspn(at, " \t\r,"); *at; at += strspn(at, " \t\r,"), n++) {
        double number = strtod(at, &end);
        if (end == at || n == PEERS_MOST_NUMBERS || !(number >= 0) || !isfinite(number)) return -1;
        if (*end && !strchr(" \t\r,", *end)) return -1;
        numbers[n] = number;
        at = end;
    }
    return n;
}

static void peers_set_up(peers_machine *m, uint32_t n, int has_roots) {
    m->machine = (frugal_place_machine){.devices = n, .row_bytes = 1, .peer = m->peer, .host = m->host};
    if (has_roots) m->machine.roots = m->roots, m->machine.root = m->root;
}

int peers_parse_machine(peers_machine *m, const char *name, const char *text, program_error *error) {
    static double lines[FRUGAL_PLACE_MAX_DEVICES][PEERS_MOST_NUMBERS];
    uint32_t n = 0, line = 0;
    int wide = 0;
    memset(m, 0, sizeof *m);
    snprintf(m->name, sizeof m->name, "%.60s", name);
    for (double numbers[PEERS_MOST_NUMBERS]; *text;
         text += text[strcspn(text, "\n")] ? strcspn(text, "\n") + 1 : strlen(text)) {
        int found = peers_numbers(text, strcspn(text, "\n"), numbers);
        line++;
        if (found < 0)
            return program_fail(error, "%.200s, line %u: must be GB/s, numbers of 0 or more, at most %d", name, line,
                                PEERS_MOST_NUMBERS);
        if (found == 0) continue;
        if (n == FRUGAL_PLACE_MAX_DEVICES || (n > 0 && found != wide))
            return program_fail(error,
                                "%.200s, line %u: device %u has %d numbers; must be as many as device 0, %d, and "
                                "at most %d devices",
                                name, line, n, found, wide, FRUGAL_PLACE_MAX_DEVICES);
        wide = found;
        memcpy(lines[n++], numbers, sizeof numbers);
    }
    uint32_t extra = n > 0 && (uint32_t)wide > n ? (uint32_t)wide - n : 0;
    if (extra != 1 && extra != 3)
        return program_fail(error,
                            "%.200s has %u devices with %d numbers each; must be a number for each device, one "
                            "for the host, and, if roots are shared, the root and its own",
                            name, n, wide);
    peers_set_up(m, n, extra == 3);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) m->peer[(size_t)i * n + j] = lines[i][j] * 1e9;
        m->host[i] = lines[i][n] * 1e9;
        if (m->peer[(size_t)i * n + i] == 0 || m->host[i] == 0)
            return program_fail(error,
                                "%.200s: device %u reads 0 GB/s from its own memory or from the host; must be "
                                "above 0",
                                name, i);
        if (extra == 1) continue;
        double root = lines[i][n + 1], together = lines[i][n + 2];
        if (root >= n || root != floor(root) || together == 0)
            return program_fail(error,
                                "%.200s: device %u has root %g with %g GB/s; must be a root from 0 to %u, and "
                                "above 0",
                                name, i, root, together, n - 1);
        m->roots[i] = (uint32_t)root;
        if (m->root[m->roots[i]] != 0 && m->root[m->roots[i]] != together * 1e9)
            return program_fail(error, "%.200s: device %u gives root %g %g GB/s, and another one gives it %g", name, i,
                                root, together, m->root[m->roots[i]] / 1e9);
        m->root[m->roots[i]] = together * 1e9;
    }
    return 0;
}

int peers_read_machine(peers_machine *m, const char *path, program_error *error) {
    FILE *file = fopen(path, "rbe");
    if (!file)
        return program_fail(error, "cannot read --machine %.200s: %s%s", path, strerror(errno), file_remedy(errno));
    char *text = malloc(PEERS_LARGEST_FILE + 1);
    size_t n = text ? fread(text, 1, PEERS_LARGEST_FILE + 1, file) : 0;
    int status = !text          ? program_fail(error, "out of memory for --machine")
                 : ferror(file) ? program_fail(error, "cannot read --machine %.200s: %s", path, strerror(errno))
                 : n > PEERS_LARGEST_FILE || memchr(text, 0, n)
                     ? program_fail(error, "--machine %.200s is no text of at most %d bytes", path, PEERS_LARGEST_FILE)
                     : 0;
    fclose(file);
    if (!status) {
        text[n] = 0;
        status = peers_parse_machine(m, path, text, error);
    }
    free(text);
    return status;
}

/* ---- UGache's machines --------------------------------------------------------------------------------- */

/* Section 8.1 and Figure 3: an NVLink has 25 GB/s; a V100 has 6, an A100 12 to a switch. Memory: 900 and 2039 GB/s
 * (NVIDIA's data sheets of V100 SXM2 and A100 80GB SXM). Host memory: 12 and 24 GB/s, what copies over PCIe 3.0 and 4.0
 * x16 reach. */
const char *const peers_likes[] = {"4xV100", "8xV100", "8xA100", NULL};

/* Figure 3 (b), as `nvidia-smi topo -m` shows a DGX-1: links of a GPU to the GPUs before it. */
static const char peers_mesh[8][9] = {"", "1", "12", "212", "2---", "-2--1", "--1-12", "---1212"};

static double peers_of_like(int like, uint32_t i, uint32_t j) {
    uint32_t low = i < j ? i : j, high = i < j ? j : i;
    if (i == j) return like == 2 ? 2039e9 : 900e9;
    if (like == 0) return 50e9;
    if (like == 2) return 300e9 / 7;
    return peers_mesh[high][low] == '-' ? 0 : 25e9 * (peers_mesh[high][low] - '0');
}

int peers_make_machine(peers_machine *m, const char *like, program_error *error) {
    int i = 0;
    while (peers_likes[i] && strcmp(peers_likes[i], like) != 0) i++;
    if (!peers_likes[i]) return program_fail(error, "--like %.40s: no such machine", like);
    uint32_t n = i == 0 ? 4 : 8;
    memset(m, 0, sizeof *m);
    snprintf(m->name, sizeof m->name, "%s", like);
    peers_set_up(m, n, 0);
    for (uint32_t d = 0; d < n; d++) {
        for (uint32_t j = 0; j < n; j++) m->peer[d * n + j] = peers_of_like(i, d, j);
        m->host[d] = i == 2 ? 24e9 : 12e9;
    }
    return 0;
}
