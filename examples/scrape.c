/* scrape.c - a trainer that answers a scraper, as Prometheus: its metrics by HTTP, while it trains.
 *
 *     build/scrape [PORT [SCRAPES]]       port 9464 if none is given, 0: any; ends after so many answers, 0: never
 *
 * One thread trains: two devices, rows of three tables, gradients made of the rows. The other one accepts a connection,
 * reads the request, and answers with the metrics. It grows its buffer until they fit. It is on the loopback address
 * only, and knows one page: a program that has an HTTP server needs metrics_of alone.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "frugal_seeing.h"

enum { DEVICES = 2, TABLES = 3, DIM = 16, BATCH = 256, LOOKAHEAD = 4 };
static frugal *f;
static atomic_int ends;

static void check(frugal_status status) {
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "scrape: %s\n", frugal_message());
    exit(1);
}

static void announce(uint32_t device, uint64_t step) {
    uint64_t keys[TABLES][BATCH];
    frugal_keys segments[TABLES];
    for (uint32_t t = 0; t < TABLES; t++) {
        for (uint64_t i = 0; i < BATCH; i++) {
            uint64_t bits = ((step * DEVICES + device) * BATCH + i) * UINT64_C(0x9E3779B97F4A7C15) >> 20;
            keys[t][i] = bits % (bits & 1 << 30 ? 40 : 1000 * (t + 1)); /* half of them from a hot set */
        }
        segments[t] = (frugal_keys){.table = t, .keys = keys[t], .n = BATCH};
    }
    check(frugal_announce(f, device, step, &(frugal_batch){.segments = segments, .n_segments = TABLES}));
}

static void *train(void *unused) {
    static float rows[TABLES * BATCH * DIM];
    for (uint64_t s = 0, ahead = 0; !atomic_load(&ends); s++) {
        for (; ahead <= s + LOOKAHEAD; ahead++)
            for (uint32_t d = 0; d < DEVICES; d++) announce(d, ahead);
        for (uint32_t d = 0; d < DEVICES; d++) {
            check(frugal_lookup(f, d, s, rows));
            check(frugal_update(f, d, s, &(frugal_gradients){.grads = rows, .lr = 0.01f}));
        }
    }
    return unused;
}

/* The metrics, to be freed; *length bytes. */
static char *metrics_of(frugal *instance, size_t *length) {
    char *text = NULL;
    for (size_t size = 0; (*length = frugal_write_metrics(&instance, NULL, 1, text, size)) >= size;) {
        size = *length + 1;
        free(text);
        if (!(text = malloc(size))) return NULL;
    }
    return text;
}

static void send_all(int connection, const char *text, size_t n) {
    for (ssize_t sent; n > 0 && (sent = send(connection, text, n, MSG_NOSIGNAL)) > 0;) text += sent, n -= (size_t)sent;
}

static void answer(int connection) {
    char request[2048], head[160];
    size_t length = 0;
    if (recv(connection, request, sizeof request, 0) <= 0) return;
    char *text = metrics_of(f, &length);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     text ? "200 OK" : "503 Service Unavailable", text ? length : 0);
    send_all(connection, head, (size_t)n);
    if (text) send_all(connection, text, length);
    free(text);
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8) ||
        getsockname(listener, (struct sockaddr *)&address, &size)) {
        perror("scrape: cannot listen");
        exit(1);
    }
    printf("http://127.0.0.1:%d/metrics\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    long port = argc > 1 ? atol(argv[1]) : 9464, scrapes = argc > 2 ? atol(argv[2]) : 0;
    pthread_t trainer;
    if (argc > 3 || port < 0 || port > 65535 || scrapes < 0) {
        fputs("usage: scrape [PORT [SCRAPES]]\n", stderr);
        return 2;
    }
    frugal_table tables[TABLES];
    for (uint32_t t = 0; t < TABLES; t++)
        tables[t] = (frugal_table){.rows = 1000 * (t + 1), .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    frugal_desc desc = {.tables = tables, .n_tables = TABLES, .dim = DIM, .devices = DEVICES, .workers = 1};
    desc.max_keys = TABLES * BATCH, desc.lookahead = LOOKAHEAD;
    check(frugal_open(&desc, &f));
    for (uint32_t d = 0; d < DEVICES; d++) check(frugal_cpu_attach(f, d, &(frugal_cpu_desc){.cache_rows = 2000}));
    int listener = listen_on((int)port);
    if (pthread_create(&trainer, NULL, train, NULL)) return 1;
    for (long i = 0; scrapes == 0 || i < scrapes; i++) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        answer(connection);
        close(connection);
    }
    atomic_store(&ends, 1);
    pthread_join(trainer, NULL);
    return frugal_close(f) == FRUGAL_OK ? 0 : 1;
}
