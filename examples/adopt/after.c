/* after.c - word vectors, trained by several threads on one table of floats: before.c, on Frugal.
 *
 * Skip-gram with negative sampling: the vector of a word learns to tell the words near it in a text from words that are
 * drawn at random. Options: -t threads, -n pairs of words to train, -v size of the vocabulary, -s seed, -f file with a
 * text (else one is made up).
 *
 * Each thread is a device. No change is lost, and the bits are the same whatever the number of workers (-w).
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "frugal.h"

enum { DIM = 64, WINDOW = 5, NEGATIVES = 5, PAIR = 2 + NEGATIVES, BATCH = 256, MAX_THREADS = 64 };
enum { MADE_UP = 1000000, TOPICS = 50, SENTENCE = 20, HELD_OUT = 20000 };
static const float rate = 0.1f; /* at the first step; it falls to 0 */

static uint32_t threads = 2;
static uint64_t words = 20000, pairs = 2000000, seed = 1, steps;
static uint32_t *text;           /* text[length], the word at each place */
static uint64_t length, trained; /* places; those before `trained` are trained on, the others held out */
static float (*table)[DIM];      /* table[2 * words]: vectors of words, then of words as neighbours */

static void fail(const char *what, const char *name) {
    fprintf(stderr, "adopt: %s%s\n", what, name);
    exit(1);
}

static uint64_t draw(uint64_t *state) { /* 64 random bits (splitmix64) */
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}
static double uniform(uint64_t *state) { /* from 0 to below 1 */
    return (double)(draw(state) >> 11) * 0x1p-53;
}

/* >>text: a sentence has a topic, and four fifths of its words are of that topic; some words of each are frequent. */
static void make_text(void) {
    uint64_t state = seed, topic = 0;
    length = MADE_UP;
    text = malloc(length * sizeof(text[0]));
    if (!text) fail("no memory for the text", "");
    for (uint64_t i = 0; i < length; i++) {
        if (i % SENTENCE == 0) topic = draw(&state) % TOPICS;
        uint64_t of = uniform(&state) < 0.8 ? topic : draw(&state) % TOPICS;
        double u = uniform(&state);
        text[i] = (uint32_t)((uint64_t)((double)(words / TOPICS) * u * u * u) * TOPICS + of);
    }
}

/* A word's row is a hash of its letters: two words may share one, and no list of words is kept. */
static void read_text(const char *name) {
    char word[100];
    uint64_t room = 0;
    FILE *file = fopen(name, "r");
    if (!file) fail("cannot open the text ", name);
    while (fscanf(file, "%99s", word) == 1) {
        uint64_t hash = UINT64_C(0xCBF29CE484222325);
        for (char *c = word; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
        if (length == room) {
            room = room ? 2 * room : 4096;
            text = realloc(text, room * sizeof(text[0]));
            if (!text) fail("no memory for the text ", name);
        }
        text[length++] = (uint32_t)(hash % words);
    }
    if (fclose(file) || length < 1000) fail("wanted a text of 1000 words or more: ", name);
}

/* Rows of pair `k` from the `n` places at `first`: a word, a neighbour of it, and NEGATIVES words of random places. */
static void draw_pair(uint64_t k, uint64_t first, uint64_t n, uint64_t *rows) {
    uint64_t state = k ^ seed << 32, distance = draw(&state) % (2 * WINDOW) + 1;
    uint64_t neighbour = distance <= WINDOW ? k + distance : k + n - (distance - WINDOW);
    rows[0] = text[first + k % n];
    rows[1] = words + text[first + neighbour % n];
    for (int i = 2; i < PAIR; i++) rows[i] = words + text[first + draw(&state) % n];
}

/* >>model */
static float dot(const float *a, const float *b) {
    float part[8] = {0}, sum = 0;
    for (int j = 0; j < DIM; j += 8)
        for (int k = 0; k < 8; k++) part[k] += a[j + k] * b[j + k];
    for (int k = 0; k < 8; k++) sum += part[k];
    return sum;
}

static double held_out_loss(void) {
    double loss = 0;
    for (uint64_t k = 0; k < HELD_OUT; k++) {
        uint64_t rows[PAIR];
        draw_pair(k, trained, length - trained, rows);
        for (int i = 1; i < PAIR; i++) {
            double score = (double)dot(table[rows[0]], table[rows[i]]);
            loss += log1p(exp(i == 1 ? -score : score));
        }
    }
    return loss / HELD_OUT;
}

/* >>training */
static uint32_t workers, lookahead = 10; /* no workers: the threads flush while they wait */
static frugal *f;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) fail("", frugal_message());
}

static void open_frugal(void) { /* the table stays where it is, with the values that it has */
    frugal_table all = {.rows = 2 * words};
    frugal_desc desc = {.tables = &all, .n_tables = 1, .dim = DIM, .devices = threads, .max_keys = BATCH * PAIR};
    desc.lookahead = lookahead, desc.workers = workers, desc.weights = table[0];
    check(frugal_open(&desc, &f));
    for (uint32_t t = 0; t < threads; t++) check(frugal_cpu_attach(f, t, NULL));
}

static void draw_batch(uint64_t step, uint32_t thread, uint64_t keys[BATCH][PAIR]) {
    for (int p = 0; p < BATCH; p++) draw_pair((step * threads + thread) * BATCH + (uint64_t)p, 0, trained, keys[p]);
}

static void *train(void *argument) {
    static _Thread_local uint64_t keys[BATCH][PAIR];
    static _Thread_local float rows[BATCH][PAIR][DIM], grads[BATCH][PAIR][DIM];
    uint32_t thread = (uint32_t)(uintptr_t)argument;
    for (uint64_t step = 0, ahead = 0; step < steps; step++) {
        float lr = rate * (1 - (float)step / (float)steps);
        for (; ahead < steps && ahead <= step + lookahead; ahead++) {
            draw_batch(ahead, thread, keys);
            frugal_keys all = {.keys = keys[0], .n = BATCH * PAIR};
            check(frugal_announce(f, thread, ahead, &(frugal_batch){.segments = &all, .n_segments = 1}));
        }
        check(frugal_lookup(f, thread, step, rows[0][0]));
        for (int p = 0; p < BATCH; p++) {
            float *restrict word = rows[p][0], sum[DIM] = {0};
            for (int i = 1; i < PAIR; i++) {
                float *restrict other = rows[p][i];
                float error = 1 / (1 + expf(-dot(word, other))) - (float)(i == 1);
                for (int j = 0; j < DIM; j++) {
                    sum[j] += error * other[j];
                    grads[p][i][j] = error * word[j];
                }
            }
            memcpy(grads[p][0], sum, sizeof(sum));
        }
        check(frugal_update(f, thread, step, &(frugal_gradients){.grads = grads[0][0], .lr = lr}));
    }
    return NULL;
}

static void train_all(void) {
    pthread_t running[MAX_THREADS];
    for (uint32_t t = 0; t < threads; t++)
        if (pthread_create(&running[t], NULL, train, (void *)(uintptr_t)t)) fail("cannot start a thread", "");
    for (uint32_t t = 0; t < threads; t++) pthread_join(running[t], NULL);
    check(frugal_drain(f)); /* every change is in the table now */
}

/* >>program */
static uint64_t number(const char *digits, uint64_t least, uint64_t most) {
    char *end;
    unsigned long long n = strtoull(digits, &end, 10);
    if (*end || digits[0] < '0' || digits[0] > '9' || n < least || n > most) {
        fprintf(stderr, "adopt: wanted a number from %llu to %llu, found %s\n", (unsigned long long)least,
                (unsigned long long)most, digits);
        exit(2);
    }
    return n;
}

static void read_options(int argc, char **argv) {
    const char *file = NULL;
    for (int option; (option = getopt(argc, argv, "t:w:n:v:s:f:")) != -1;) {
        if (option == 't') threads = (uint32_t)number(optarg, 1, MAX_THREADS);
        if (option == 'w') workers = (uint32_t)number(optarg, 0, MAX_THREADS);
        if (option == 'n') pairs = number(optarg, 1, UINT32_MAX);
        if (option == 'v') words = number(optarg, TOPICS, INT32_MAX);
        if (option == 's') seed = number(optarg, 0, UINT32_MAX);
        if (option == 'f') file = optarg;
        if (option == '?') exit(2);
    }
    if (optind < argc) {
        fprintf(stderr, "adopt: wanted options only, found %s\n", argv[optind]);
        exit(2);
    }
    if (file)
        read_text(file);
    else
        make_text();
    trained = length / 10 * 9;
    steps = (pairs + threads * BATCH - 1) / (threads * BATCH);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    table = calloc(2 * words, sizeof(table[0]));
    if (!table) fail("no memory for the table", "");
    uint64_t state = seed;
    for (uint64_t w = 0; w < words; w++)
        for (int j = 0; j < DIM; j++) table[w][j] = (float)(uniform(&state) - 0.5) / DIM;
    open_frugal();
    double first = held_out_loss(), began = seconds();
    train_all();
    double took = seconds() - began;
    uint64_t hash = 0, done = steps * threads * BATCH;
    const uint32_t *bits = (const void *)table;
    for (uint64_t i = 0; i < 2 * words * DIM; i++) hash = (hash ^ bits[i]) * UINT64_C(0x9E3779B97F4A7C15);
    printf("%llu pairs in %.2f s, %.0f pairs/s; held-out loss %.4f -> %.4f; table %016llx\n", (unsigned long long)done,
           took, (double)done / took, first, held_out_loss(), (unsigned long long)hash);
    check(frugal_close(f));
    return 0;
}
