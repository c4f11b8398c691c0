/* replay.c - runs a fuzz target over inputs without a fuzzer: every compiler and sanitizer then sees what it found.
 *
 *      build/tests/fuzz_NAME [FILE]...
 *
 * Without files: each file of tests/fuzz/corpus/NAME is one case; the last case is inputs made at random, of bytes
 * and of pieces of the corpus (FRUGAL_SEED, FRUGAL_FUZZ_INPUTS). The input at hand lies in the program's name with
 * ".input" behind it, and stays there if it ends the program. */
#include <fcntl.h>
#include "../seed.h"
#include "fuzz.h"

enum { MOST_FILES = 512, LONGEST = 4096 };

typedef struct input {
    char *name;
    uint8_t *bytes;
    size_t size;
} input;

static input inputs[MOST_FILES];
static int n_inputs;

static input read_input(const char *path) {
    input in = {strdup(path), NULL, 0};
    FILE *stream = fopen(path, "rb");
    if (!stream) fail_msg("%s: %s", path, strerror(errno));
    fseek(stream, 0, SEEK_END);
    in.size = (size_t)ftell(stream);
    rewind(stream);
    in.bytes = malloc(in.size ? in.size : 1); /* not a byte more, so that reading past the end is seen */
    if (fread(in.bytes, 1, in.size, stream) != in.size) fail_msg("%s: %s", path, strerror(errno));
    fclose(stream);
    return in;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

static void read_corpus(const char *folder) {
    char path[1024];
    DIR *list = opendir(folder);
    if (!list) fail_msg("%s: %s; run me in the root of the repository", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.') continue;
        if (n_inputs == MOST_FILES) fail_msg("%s has more than %d files", folder, MOST_FILES);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        inputs[n_inputs++] = read_input(path);
    }
    closedir(list);
    qsort(inputs, (size_t)n_inputs, sizeof *inputs, by_name);
}

/* A file of the corpus with its end cut off, bytes changed, or another one's end in place of its own; or bytes. */
static size_t make_input(test_random *r, uint8_t bytes[LONGEST]) {
    size_t size = 0;
    const input *first = n_inputs ? &inputs[test_below(r, (uint64_t)n_inputs)] : NULL;
    if (!first || test_chance(r, 20)) {
        size = test_below(r, LONGEST >> test_below(r, 8));
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)test_next(r);
        return size;
    }
    size = first->size < LONGEST ? first->size : LONGEST;
    memcpy(bytes, first->bytes, size);
    if (test_chance(r, 50)) {
        const input *other = &inputs[test_below(r, (uint64_t)n_inputs)];
        size_t cut = test_below(r, size + 1), from = test_below(r, other->size + 1), rest = other->size - from;
        if (rest > LONGEST - cut) rest = LONGEST - cut;
        memcpy(bytes + cut, other->bytes + from, rest);
        size = cut + rest;
    }
    for (uint64_t changes = test_below(r, 5); size && changes > 0; changes--)
        bytes[test_below(r, size)] = (uint8_t)test_next(r);
    return size;
}

static void run_random(const char *program, uint64_t seed, uint64_t count) {
    char name[512];
    static uint8_t bytes[LONGEST];
    snprintf(name, sizeof name, "%s.input", program);
    int kept =
        open(name, O_RDWR | O_CREAT, 0666); /* left open: a file system may make each closing wait for the disk */
    for (uint64_t i = 0; i < count; i++) {
        test_random r = {.seed = test_mix2(seed, i)};
        input in = {.size = make_input(&r, bytes)};
        in.bytes = malloc(in.size ? in.size : 1);
        memcpy(in.bytes, bytes, in.size);
        if (ftruncate(kept, 0) || pwrite(kept, in.bytes, in.size, 0) != (ssize_t)in.size)
            fail_msg("%s: %s", name, strerror(errno));
        LLVMFuzzerTestOneInput(in.bytes, in.size);
        free(in.bytes);
    }
    close(kept);
    unlink(name);
}

static void run_files(void) {
    for (int i = 0; i < n_inputs; i++) {
        fprintf(stderr, "# %s\n", inputs[i].name);
        LLVMFuzzerTestOneInput(inputs[i].bytes, inputs[i].size);
        printf("ok %d - %s\n", i + 1, inputs[i].name);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    char corpus[512];
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    const char *given = getenv("FRUGAL_FUZZ_INPUTS");
    uint64_t count = given && *given ? strtoull(given, NULL, 0) : test_rounds(fuzz_inputs);
    for (int i = 1; i < argc && n_inputs < MOST_FILES; i++) inputs[n_inputs++] = read_input(argv[i]);
    snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", !strncmp(name, "fuzz_", 5) ? name + 5 : name);
    if (argc == 1) read_corpus(corpus);
    if (n_inputs == 0) fail_msg("%s is empty", corpus);
    printf("1..%d\n", n_inputs + (argc == 1));
    run_files();
    if (argc == 1) {
        uint64_t seed = test_seed(name, 20240701);
        fprintf(stderr, "# if it ends here: %s %s.input\n", argv[0], argv[0]);
        run_random(argv[0], seed, count);
        printf("ok %d - %s: %" PRIu64 " inputs made at random\n", n_inputs + 1, name, count);
    }
    for (int i = 0; i < n_inputs; i++) free(inputs[i].name), free(inputs[i].bytes);
    return 0;
}
