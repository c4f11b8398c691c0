/* One rank of the tests of frugal_mpi.c, which tests/machines/test_mpi runs by mpirun:
 *
 *     mpi_ranks SEED CASE...
 *
 * Several cases: MPI is the caller's. Exit status: 0 if what the cases check holds; else 1, and it says what does
 * not. */
#include <pthread.h>
#include "../../frugal_mpi.h"
#include "exchange.h"

static int failures;
static int rank = -1;
#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "rank %d: line %d: not so: %s; frugal_message: %s\n", rank, __LINE__, #holds,              \
                    frugal_message());                                                                                 \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static int refused(frugal_status got, frugal_status wanted, const char *a, const char *b) {
    return got == wanted && strstr(frugal_message(), a) && strstr(frugal_message(), b);
}
static int is_zeros(const frugal_wire *wire) {
    return !wire->self && !wire->machines && !wire->begin;
}

/* >>cases */

static void *exchange_main(void *of) { /* by a thread of its own, as an instance has one */
    exchange *e = of;
    if (!exchange_run(e)) fprintf(stderr, "%s\n", e->said);
    return NULL;
}
static void exchange_over(const frugal_wire *wire, uint64_t seed, pthread_t *thread, exchange *e) {
    *e = (exchange){.wire = *wire, .seed = seed, .messages = 15};
    if (pthread_create(thread, NULL, exchange_main, e)) abort();
}
static void exchanges(uint64_t seed) { /* MPI is the wire's */
    frugal_wire wire;
    pthread_t thread;
    exchange e;
    int is_initialized = 0, is_finalized = 0;
    CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &wire) == FRUGAL_OK);
    CHECK(wire.machines >= 2 && wire.machine < wire.machines && wire.most_bytes == INT32_MAX);
    MPI_Initialized(&is_initialized);
    CHECK(is_initialized);
    rank = (int)wire.machine;
    exchange_over(&wire, seed, &thread, &e);
    pthread_join(thread, NULL);
    CHECK(!e.said[0]);
    CHECK(frugal_mpi_free(&wire) == FRUGAL_OK && is_zeros(&wire));
    CHECK(frugal_mpi_free(&wire) == FRUGAL_OK); /* of zeros */
    MPI_Finalized(&is_finalized);
    CHECK(is_finalized);
    CHECK(refused(frugal_mpi_wire(MPI_COMM_WORLD, &wire), FRUGAL_ERR_ORDER, "MPI_Finalize", "before it"));
}

static void callers(uint64_t seed) { /* MPI is the caller's, who uses it meanwhile; and there are two wires */
    frugal_wire wires[2];
    pthread_t threads[2];
    exchange e[2];
    int is_finalized = 1, ranks, sum = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 2; i++) {
        CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &wires[i]) == FRUGAL_OK);
        CHECK((int)wires[i].machine == rank && (int)wires[i].machines == ranks);
        exchange_over(&wires[i], seed + (uint64_t)i, &threads[i], &e[i]);
    }
    for (int i = 0; i < 100; i++) MPI_Allreduce(&(int){rank}, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * (ranks - 1) / 2);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!e[i].said[0]);
        CHECK(frugal_mpi_free(&wires[i]) == FRUGAL_OK);
    }
    MPI_Finalized(&is_finalized);
    CHECK(!is_finalized); /* it is the caller's to finalize */
}

static void levels(int wanted, const char *name) {
    frugal_wire wire;
    int level;
    MPI_Init_thread(NULL, NULL, wanted, &level);
    CHECK(level == wanted);
    CHECK(refused(frugal_mpi_wire(MPI_COMM_WORLD, &wire), FRUGAL_ERR_ORDER, name,
                  "call MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)"));
    CHECK(is_zeros(&wire));
    MPI_Finalize();
}
static void single(uint64_t seed) {
    (void)seed;
    levels(MPI_THREAD_SINGLE, "found MPI_THREAD_SINGLE;");
}
static void funneled(uint64_t seed) {
    (void)seed;
    levels(MPI_THREAD_FUNNELED, "found MPI_THREAD_FUNNELED;");
}
static void serialized(uint64_t seed) {
    (void)seed;
    levels(MPI_THREAD_SERIALIZED, "found MPI_THREAD_SERIALIZED;");
}

static void refusals(uint64_t seed) {
    (void)seed;
    frugal_wire first, wire;
    MPI_Comm parts, between;
    CHECK(refused(frugal_mpi_wire(MPI_COMM_WORLD, NULL), FRUGAL_ERR_ARGUMENT, "frugal_wire", "NULL"));
    CHECK(refused(frugal_mpi_free(NULL), FRUGAL_ERR_ARGUMENT, "frugal_wire", "NULL"));
    CHECK(refused(frugal_mpi_wire(MPI_COMM_NULL, &wire), FRUGAL_ERR_ARGUMENT, "MPI_COMM_WORLD", "MPI_COMM_NULL"));
    CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &first) == FRUGAL_OK);
    rank = (int)first.machine;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &parts);
    MPI_Intercomm_create(parts, 0, MPI_COMM_WORLD, !(rank % 2), 1, &between);
    CHECK(refused(frugal_mpi_wire(between, &wire), FRUGAL_ERR_ARGUMENT, "between two groups", "MPI_Intercomm_merge"));
    MPI_Comm_free(&between);
    MPI_Comm_free(&parts);
    CHECK(first.begin(first.self, 1) == FRUGAL_OK);
    CHECK(refused(first.begin(first.self, 1), FRUGAL_ERR_ORDER, "no instance has used", "frugal_mpi_wire"));
    frugal_parcel parcel = {(uint32_t)!rank, 0, &parcel, &parcel, (size_t)INT32_MAX, 1};
    CHECK(refused(first.send(first.self, 0, &parcel), FRUGAL_ERR_LIMIT, "2147483648", "2147483647"));
    parcel = (frugal_parcel){first.machines, 0, &parcel, NULL, 1, 0}; /* no such rank */
    CHECK(refused(first.send(first.self, 0, &parcel), FRUGAL_ERR_LOST, "MPI_ERR_RANK", "machine"));
    first.end(first.self);
    CHECK(refused(first.begin(first.self, 1), FRUGAL_ERR_ORDER, "no instance has used", "frugal_mpi_wire"));
    CHECK(frugal_mpi_free(&first) == FRUGAL_OK);
}

/* An error of MPI in a message is the loss of its machine; here it is longer than its room. */
static void loss(uint64_t seed) {
    (void)seed;
    frugal_wire wire;
    char text[200] = "";
    size_t bytes = 0;
    unsigned char memory[100] = {0};
    CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &wire) == FRUGAL_OK);
    rank = (int)wire.machine;
    CHECK(wire.begin(wire.self, 3) == FRUGAL_OK);
    CHECK(wire.lost(wire.self, text, sizeof text) == 0 && !text[0]);
    frugal_parcel parcel = {1, 3, memory, memory + 50, 10, 10};
    if (rank == 0) {
        CHECK(wire.send(wire.self, 0, &parcel) == FRUGAL_OK);
        while (!wire.done(wire.self, 0, &bytes)) sched_yield();
    } else if (rank == 1) {
        parcel = (frugal_parcel){0, 3, memory, memory + 50, 10, 9};
        CHECK(wire.receive(wire.self, 2, &parcel) == FRUGAL_OK);
        while (!wire.lost(wire.self, text, sizeof text)) CHECK(!wire.done(wire.self, 2, &bytes));
        CHECK(wire.lost(wire.self, text, sizeof text) == 1 && strstr(text, "MPI_ERR_TRUNCATE"));
        CHECK(!wire.done(wire.self, 2, &bytes)); /* and so it stays */
    }
    wire.end(wire.self);
    CHECK(frugal_mpi_free(&wire) == FRUGAL_OK);
}

/* `end` gives up what is not done: receives that nobody sends, a large message that nobody receives. */
static void unfinished(uint64_t seed) {
    (void)seed;
    frugal_wire wire;
    size_t bytes = 0;
    unsigned char *memory = calloc(2, EXCHANGE_LARGE), word = 5;
    if (!memory) abort();
    CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &wire) == FRUGAL_OK);
    rank = (int)wire.machine;
    CHECK(wire.begin(wire.self, 4) == FRUGAL_OK);
    frugal_parcel parcel = {1, 0, &word, NULL, 1, 0};
    if (rank == 0) {
        CHECK(wire.send(wire.self, 1, &parcel) == FRUGAL_OK); /* sent, and done: it arrives */
        while (!wire.done(wire.self, 1, &bytes)) sched_yield();
        parcel = (frugal_parcel){1, 2, memory, NULL, EXCHANGE_LARGE, 0};
        CHECK(wire.send(wire.self, 0, &parcel) == FRUGAL_OK);
    }
    parcel = (frugal_parcel){(uint32_t)!rank, 1, memory + EXCHANGE_LARGE, NULL, 64, 0};
    CHECK(wire.receive(wire.self, 2, &parcel) == FRUGAL_OK);
    CHECK(!wire.done(wire.self, 2, &bytes));
    if (rank == 0) wire.end(wire.self);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        parcel = (frugal_parcel){0, 0, memory, NULL, 1, 0};
        CHECK(wire.receive(wire.self, 3, &parcel) == FRUGAL_OK);
        while (!wire.done(wire.self, 3, &bytes)) sched_yield();
        CHECK(bytes == 1 && memory[0] == 5);
    }
    if (rank) wire.end(wire.self);
    CHECK(frugal_mpi_free(&wire) == FRUGAL_OK);
    free(memory);
}

/* What nobody has received of one wire does not reach the next. */
static void leftovers(uint64_t seed) {
    (void)seed;
    for (unsigned char round = 5; round < 8; round++) {
        frugal_wire wire;
        size_t bytes = 0;
        unsigned char word = round;
        CHECK(frugal_mpi_wire(MPI_COMM_WORLD, &wire) == FRUGAL_OK);
        CHECK(wire.begin(wire.self, 1) == FRUGAL_OK);
        frugal_parcel parcel = {wire.machine ? 0 : 1, 0, &word, NULL, 1, 0};
        for (int i = 0; i < 2 && wire.machine == 0; i++) { /* one more than is received */
            CHECK(wire.send(wire.self, 0, &parcel) == FRUGAL_OK);
            while (!wire.done(wire.self, 0, &bytes)) sched_yield();
        }
        if (wire.machine == 1) {
            word = 0;
            CHECK(wire.receive(wire.self, 0, &parcel) == FRUGAL_OK);
            while (!wire.done(wire.self, 0, &bytes)) sched_yield();
            CHECK(word == round);
        }
        wire.end(wire.self);
        CHECK(frugal_mpi_free(&wire) == FRUGAL_OK);
    }
}

static const struct {
    const char *name;
    void (*run)(uint64_t seed);
} known[] = {{"exchanges", exchanges}, {"single", single},     {"funneled", funneled}, {"serialized", serialized},
             {"callers", callers},     {"refusals", refusals}, {"loss", loss},         {"unfinished", unfinished},
             {"leftovers", leftovers}};
static int run(const char *name, uint64_t seed) {
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && strcmp(name, known[i].name) != 0) i++;
    if (i < n) known[i].run(seed);
    return i < n;
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 2 ? strtoull(argv[1], NULL, 0) : 0;
    int is_known = argc > 2, level;
    if (argc > 3) {
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    for (int i = 2; i < argc; i++) is_known = is_known && run(argv[i], seed);
    if (argc > 3) MPI_Finalize();
    if (!is_known) fprintf(stderr, "usage: mpi_ranks SEED CASE...\n");
    return is_known ? failures > 0 : 2;
}
