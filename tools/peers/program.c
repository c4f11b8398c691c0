/* The linear program: a, the share of a level that device i reads from device j; h, from the host; s, the share of the
 * level that j keeps; t, the time of the slowest. */
#include "tools/peers/program.h"

enum { PEERS_REACHED = 16 }; /* devices, of which all sets are tried */

typedef struct peers_program {
    FILE *file;
    const frugal_place_machine *m;
    const frugal_place_level *levels;
    uint32_t n;
} peers_program;

/* The bandwidth of device i from j; from the host if j is the number of devices. */
static double peers_bandwidth(const frugal_place_machine *m, uint32_t i, uint32_t j) {
    return j == m->devices ? m->host[i] : m->peer[(size_t)i * m->devices + j];
}

/* Milliseconds in which i reads the whole level from j. */
static double peers_ms(const peers_program *p, uint32_t level, uint32_t i, uint32_t j) {
    const frugal_place_level *l = &p->levels[level];
    return (double)l->rows * l->touches * (double)p->m->row_bytes * 1e3 / peers_bandwidth(p->m, i, j);
}

/* The milliseconds of what a device writes to the host, at a bandwidth. */
static double peers_writes_ms(const peers_program *p, double bandwidth) {
    double touches = 0;
    for (uint32_t l = 0; l < p->n; l++) touches += (double)p->levels[l].rows * p->levels[l].touches;
    return p->m->writes * touches * (double)p->m->row_bytes * 1e3 / bandwidth;
}

static void peers_write_read(const peers_program *p, double factor, uint32_t level, uint32_t i, uint32_t j) {
    if (j == p->m->devices)
        fprintf(p->file, " + %.17g h_%u_%u\n", factor, level, i);
    else
        fprintf(p->file, " + %.17g a_%u_%u_%u\n", factor, level, i, j);
}

static void peers_write_capacities(const peers_program *p) {
    for (uint32_t j = 0; j < p->m->devices; j++) {
        fprintf(p->file, " capacity_%u:\n", j);
        for (uint32_t l = 0; l < p->n; l++) fprintf(p->file, " + %.17g s_%u_%u\n", (double)p->levels[l].rows, l, j);
        fprintf(p->file, " <= %.17g\n", (double)p->m->capacity);
    }
}

/* The devices that can read one of n devices whose bits `kept` has. */
static uint32_t peers_reached(const frugal_place_machine *m, uint32_t kept) {
    uint32_t reached = 0;
    for (uint32_t i = 0; i < m->devices; i++) {
        uint32_t from = 0;
        for (uint32_t j = 0; j < m->devices; j++) from |= (kept >> j & 1) && peers_bandwidth(m, i, j) > 0;
        reached += from;
    }
    return reached;
}

/* Where some pairs are not connected, UGache's program reads shares of a level that no rows could be: each device finds
 * all of a level in fifths at its four peers and itself, although no two of these sets of devices keep the same rows. A
 * row with k copies is read by most[k] devices at most, and by the others from the host; the mean over the rows of a
 * level lies above the lower hull of these points. So that is wanted, too. */
static void peers_write_reached(const peers_program *p) {
    uint32_t n = p->m->devices, most[PEERS_REACHED + 1] = {0};
    if (n > PEERS_REACHED) return;
    for (uint32_t kept = 0; kept < (uint32_t)1 << n; kept++) {
        uint32_t copies = 0, reached = peers_reached(p->m, kept);
        for (uint32_t j = 0; j < n; j++) copies += kept >> j & 1;
        if (reached > most[copies]) most[copies] = reached;
    }
    if (most[1] == n) return; /* one copy is enough */
    for (uint32_t from = 0, to; from < n && most[from] < n; from = to) {
        to = from + 1;
        for (uint32_t k = to + 1; k <= n; k++)
            if ((most[k] - most[from]) * (to - from) >= (most[to] - most[from]) * (k - from)) to = k;
        double slope = (double)(most[to] - most[from]) / (to - from);
        for (uint32_t l = 0; l < p->n; l++) {
            for (uint32_t i = 0; i < n; i++) fprintf(p->file, " + h_%u_%u + %.17g s_%u_%u\n", l, i, slope, l, i);
            fprintf(p->file, " >= %.17g\n", n - most[from] + slope * from);
        }
    }
}

/* Every row is read from one source, and only from where it is kept. */
static void peers_write_sources(const peers_program *p, uint32_t i) {
    for (uint32_t l = 0; l < p->n; l++) {
        for (uint32_t j = 0; j < p->m->devices; j++)
            if (peers_bandwidth(p->m, i, j) > 0) fprintf(p->file, " a_%u_%u_%u - s_%u_%u <= 0\n", l, i, j, l, j);
        for (uint32_t j = 0; j <= p->m->devices; j++)
            if (peers_bandwidth(p->m, i, j) > 0) peers_write_read(p, 1, l, i, j);
        fprintf(p->file, " = 1\n");
    }
}

/* Terms of `share` times the time of the host: of device i alone, or of all that share its root. Returns the constant
 * part, of what they write. */
static double peers_write_host(const peers_program *p, uint32_t i, int by_root, double share) {
    const frugal_place_machine *m = p->m;
    double bandwidth = by_root ? m->root[m->roots[i]] : m->host[i], writes = 0;
    for (uint32_t other = 0; other < m->devices; other++) {
        if (by_root ? m->roots[other] != m->roots[i] : other != i) continue;
        writes += share * peers_writes_ms(p, bandwidth);
        for (uint32_t l = 0; l < p->n; l++)
            peers_write_read(p, share * peers_ms(p, l, other, m->devices) * m->host[other] / bandwidth, l, other,
                             m->devices);
    }
    return writes;
}

/* The time of device i: its slowest source, and its cores. */
static void peers_write_times(const peers_program *p, uint32_t i) {
    const frugal_place_machine *m = p->m;
    double links = 0, host_share = m->host_share == 0 ? .0625 : m->host_share;
    for (uint32_t j = 0; j < m->devices; j++) links += i == j ? 0 : peers_bandwidth(m, i, j);
    for (uint32_t j = 0; j < m->devices; j++) {
        if (j == i || peers_bandwidth(m, i, j) == 0) continue;
        for (uint32_t l = 0; l < p->n; l++) peers_write_read(p, peers_ms(p, l, i, j), l, i, j);
        fprintf(p->file, " - t <= 0\n");
    }
    for (int by_root = 0; by_root < (m->roots ? 2 : 1); by_root++) {
        fprintf(p->file, " - t <= %.17g\n", -peers_write_host(p, i, by_root, 1));
        for (uint32_t j = 0; j < m->devices; j++) {
            double bandwidth = peers_bandwidth(m, i, j), share = j == i ? 1 : (1 - host_share) * bandwidth / links;
            for (uint32_t l = 0; bandwidth > 0 && l < p->n; l++)
                peers_write_read(p, share * peers_ms(p, l, i, j), l, i, j);
        }
        fprintf(p->file, " - t <= %.17g\n", -peers_write_host(p, i, by_root, host_share));
    }
}

void peers_write_program(FILE *file, const frugal_place_machine *m, const frugal_place_level *levels, uint32_t n) {
    const peers_program p = {file, m, levels, n};
    fprintf(file, "Minimize\n obj: t\nSubject To\n");
    peers_write_capacities(&p);
    for (uint32_t i = 0; i < m->devices; i++) peers_write_sources(&p, i), peers_write_times(&p, i);
    peers_write_reached(&p);
    fprintf(file, "End\n");
}
