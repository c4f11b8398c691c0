/* test_table_file.c - the header of a mapped table (table_file.c, src/format.h): a file that is another table's,
 * damaged, truncated or no table is refused by a message that names the difference, and is not changed; one process has
 * the file; calls of the system that fail leave nothing behind.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/scratch.h"
#include "tests/unit/host/failing_files.h"

static int nameless; /* the host's name is longer than what is asked for */

static int failing_gethostname(char *name, size_t bytes) {
    if (!nameless) return gethostname(name, bytes);
    errno = ENAMETOOLONG;
    return -1;
}
#define gethostname failing_gethostname

#include "frugal_flush.c"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "tests/unit/host/refused.h"

#if defined(FRUGAL_SANITIZED)
enum { BYTES_APART = 37, RACES = 5 };
#else
enum { BYTES_APART = 1, RACES = 30 };
#endif

/* The rig's tables, in a file of the test's. */
static frugal_desc file_desc(void) {
    frugal_desc d = rig_desc();
    let_files_fail(0, 0, 0, 0);
    d.file = scratch_path("table");
    return d;
}

/* Opens, writes a row, drains and closes. */
static void make_table(const frugal_desc *d) {
    frugal *f = open_or_fail(d);
    uint64_t key = 3;
    frugal_keys keys = {.table = 1, .keys = &key, .n = 1};
    float row[64] = {5, 4, 3, 2, 1};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &keys, row, NULL));
    frugal_close(f);
}

/* The rows are zeros that have no space. */
static void make_holes(const char *name) {
    struct stat status;
    assert_int_equal(0, stat(name, &status));
    assert_true(status.st_size > 2 * TABLE_PAGE); /* header and list stay */
    assert_true(truncate(name, 2 * TABLE_PAGE) == 0 && truncate(name, status.st_size) == 0);
}

static table_header header_of(const char *name) {
    table_header header;
    size_t n;
    unsigned char *bytes = scratch_read(name, &n);
    assert_true(n > TABLE_PAGE);
    memcpy(&header, bytes, sizeof header);
    free(bytes);
    return header;
}

/* >>format */

/* What is documented lies where it is documented. */
static void test_format(void **state) {
    (void)state;
    for (int i = 0; i < 3 * FRUGAL_OPTIMIZER_KINDS; i++) {
        frugal_optimizer_kind kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        uint32_t as = (uint32_t)i / FRUGAL_OPTIMIZER_KINDS, weight_bytes = as ? 2 : 4;
        frugal_desc d = file_desc();
        d.optimizer.kind = kind, d.first_step = 40, d.rows_as = (frugal_type)as;
        frugal *f = open_or_fail(&d);
        const frugal_store *s = frugal_get_store(f);
        table_header h = header_of(d.file);
        assert_memory_equal("\x89"
                            "FRUGAL\n",
                            h.magic, 8);
        assert_true(h.version == (as ? 2 : 1) && h.rows_as == as && h.dealt == 0);
        assert_true(h.kind == 1 && h.use == TABLE_IN_USE && h.step == 40 && h.rows == 60);
        assert_true(h.dim == 5 && h.n_tables == 2 && h.optimizer == (uint32_t)kind);
        assert_true(h.state_floats == s->state_floats && h.weights_stride == s->weights_stride);
        assert_true(h.process == (uint32_t)getpid() && h.state_stride == s->state_stride && h.id != 0);
        assert_true(h.weights_at % TABLE_PAGE == 0 && (h.state_at != 0) == (s->state_floats > 0));
        assert_int_equal(0, (uintptr_t)s->weights % TABLE_PAGE);
        frugal_close(f);
        assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
        assert_int_equal(40, header_of(d.file).step);
        assert_true(header_of(d.file).id == h.id);
        size_t n;
        unsigned char *bytes = scratch_read(d.file, &n);
        assert_true(n == h.file_bytes && n % TABLE_PAGE == 0);
        saved_table list[2];
        memcpy(list, bytes + TABLE_PAGE, sizeof list);
        assert_true(list[0].rows == 40 && list[1].rows == 20 && list[1].lr_scale == 1);
        d.first_step = 0;
        f = open_or_fail(&d); /* the rows are where the header says */
        s = frugal_get_store(f);
        for (uint64_t row = 0; row < 60; row++) {
            assert_memory_equal(bytes + h.weights_at + row * h.weights_stride * weight_bytes, frugal_row_at(s, row),
                                5 * weight_bytes);
            if (h.state_at)
                assert_memory_equal(bytes + h.state_at + row * h.state_stride * 4, s->state + row * s->state_stride,
                                    h.state_floats * sizeof(float));
        }
        frugal_close(f);
        free(bytes);
        scratch_end();
    }
}

/* The next step is the header's: another is refused, 0 counts anew; and a file that was only read stays of its step. */
static void test_next_step(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = file_desc();
    rig_open(&r, &d);
    rig_finish(&r, 6);
    assert_int_equal(6, header_of(d.file).step);
    d = file_desc(), d.first_step = 5;
    assert_open_fails(FRUGAL_ERR_FILE, &d, "next step is 6", "first_step is 5");
    d = file_desc();
    frugal_close(open_or_fail(&d));
    assert_int_equal(6, header_of(d.file).step);
    d.first_step = 6;
    memset(&r, 0, sizeof r);
    rig_open(&r, &d);
    rig_finish(&r, 2);
    assert_int_equal(8, header_of(d.file).step);
    d = file_desc();
    memset(&r, 0, sizeof r);
    rig_open(&r, &d);
    rig_finish(&r, 3);
    assert_int_equal(3, header_of(d.file).step);
    scratch_end();
}

/* Who only reads leaves the file clean, also while it has it, and says who has it; the first change is announced on the
 * disk before it can happen, and if that fails nothing has changed. */
static void test_only_read(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    d.devices = 1;
    make_table(&d);
    frugal *f = open_or_fail(&d);
    uint64_t key = 3;
    frugal_keys keys = {.table = 1, .keys = &key, .n = 1};
    frugal_batch read_only = {&keys, 1, 1}, trains = {&keys, 1, 0};
    float row[5], written[5] = {1, 1, 1, 1, 1};
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &keys, row, NULL));
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &read_only));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, row));
    assert_true(row[0] == 5);
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, NULL));
    assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
    assert_int_equal(getpid(), (int)header_of(d.file).process);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    for (int call = CALL_WRITE; call <= CALL_SYNC; call += CALL_SYNC - CALL_WRITE) {
        let_files_fail(call, 1, EIO, 0);
        assert_fails(FRUGAL_ERR_FILE, frugal_announce(f, 0, 1, &trains), "header", d.file);
        let_files_fail(call, 1, EIO, 0);
        assert_fails(FRUGAL_ERR_FILE, frugal_write_rows(f, &keys, written, NULL), "header", d.file);
        let_files_fail(0, 0, 0, 0);
        assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
    }
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &keys, row, NULL));
    assert_true(row[0] == 5);
    assert_int_equal(FRUGAL_OK, frugal_close(f)); /* of step 1 now, with the same rows */
    assert_int_equal(1, header_of(d.file).step);
    d.first_step = 1;
    f = open_or_fail(&d);
    assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 1, &trains));
    assert_int_equal(TABLE_IN_USE, header_of(d.file).use);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &keys, written, NULL));
    assert_int_equal(TABLE_IN_USE, header_of(d.file).use);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    scratch_end();
}

/* >>what is refused */

/* Opening fails and says so; every byte of the file stays. */
static void refused(frugal_desc d, const char *text1, const char *text2) {
    size_t before_bytes, after_bytes;
    unsigned char *before = scratch_read(d.file, &before_bytes);
    assert_open_fails(FRUGAL_ERR_FILE, &d, text1, text2);
    unsigned char *after = scratch_read(d.file, &after_bytes);
    assert_true(before_bytes == after_bytes && !memcmp(before, after, after_bytes));
    free(before), free(after);
    assert_int_equal(1, scratch_count());
}

static void test_other_layouts(void **state) {
    (void)state;
    frugal_desc d = file_desc(), other = d;
    make_table(&d);
    other.dim = 6, refused(other, "its dim is 5", "and 6 is wanted"), other = d;
    other.dim = 8, refused(other, "its dim is 5", "and 8 is wanted"), other = d; /* as many bytes */
    other.n_tables = 1, refused(other, "its number of rows is 60", "and 40 is wanted"), other = d;
    frugal_table one = {.rows = 60}, three[3] = {{.rows = 20}, {.rows = 20}, {.rows = 20}};
    frugal_table swapped[2] = {{.rows = 20}, {.rows = 40}};
    other.tables = &one, other.n_tables = 1, refused(other, "its number of tables is 2", "and 1 is wanted");
    other.tables = three, other.n_tables = 3, refused(other, "its number of tables is 2", "and 3 is wanted");
    other.tables = swapped, other.n_tables = 2, refused(other, "of table 0 is 40", "and 20 is wanted"), other = d;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++)
        if (rig_optimizers[i] != d.optimizer.kind) {
            other.optimizer.kind = rig_optimizers[i];
            refused(other, "optimizer", "is 1, and ");
        }
    other = d, other.rows_as = FRUGAL_BF16;
    refused(other, "its type of weights (fp32, bf16, fp16, counted from 0) is 0, and 1 is wanted", "settings"),
        other = d;
    other.optimizer.weight_decay = 0.5f, other.seed = 99, other.devices = 1, other.workers = 1;
    frugal_close(open_or_fail(&other)); /* none of these changes where the rows lie */
    scratch_end();
    d = file_desc(), d.rows_as = FRUGAL_BF16, make_table(&d); /* and types of one size */
    other = d, other.rows_as = FRUGAL_FP16, refused(other, "type of weights", "is 1, and 2 is wanted");
    other.rows_as = FRUGAL_FP32, refused(other, "type of weights", "is 1, and 0 is wanted");
    other = d, other.rounding = FRUGAL_NEAREST, other.seed = 99;
    frugal_close(open_or_fail(&other));
    scratch_end();
}

/* Zeros, noise and other files, of the very size, or any. */
static void test_foreign(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    make_table(&d);
    size_t n;
    unsigned char *bytes = scratch_read(d.file, &n);
    memset(bytes, 0, n);
    scratch_write(d.file, bytes, n), refused(d, "is no table", "choose another name");
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)test_mix2(seed, i);
        scratch_write(d.file, bytes, n), refused(d, "is no table", "choose another name");
        size_t less = 1 + test_mix(seed) % (n - 1);
        scratch_write(d.file, bytes, less), refused(d, "bytes and is no table", d.file);
    }
    scratch_write(d.file,
                  "\x89"
                  "FRUGAL\n"
                  "FRGB",
                  12),
        refused(d, "this is a save", d.file);
    scratch_write(d.file,
                  "\x89"
                  "FRUGAL\n",
                  8),
        refused(d, "8 bytes", "no table");
    scratch_write(d.file, bytes, 60 * 16 * 4); /* what version 0.1 made: rows of 5 floats and 5 of state, padded to 8 */
    refused(d, "of version 0.1", "frugal_file convert");
    d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    scratch_write(d.file, bytes, 60 * 8 * 4 + 60 * 4), refused(d, "of version 0.1", "frugal_file convert");
    free(bytes);
    scratch_end();
}

/* Each byte of header and list changed, each length cut: refused. The rows have no checksum. */
static void test_damaged(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    make_table(&d);
    size_t n;
    unsigned char *bytes = scratch_read(d.file, &n);
    int file = open(d.file, O_RDWR);
    assert_true(file >= 0);
    for (size_t i = 0; i < TABLE_PAGE + 2 * sizeof(saved_table); i += i < 256 ? 1 : BYTES_APART) {
        unsigned char changed = (unsigned char)(bytes[i] ^ (1 + test_mix(i) % 255));
        frugal_desc copy = d;
        assert_int_equal(1, pwrite(file, &changed, 1, (off_t)i));
        assert_open_fails(FRUGAL_ERR_FILE, &copy, d.file, "table");
        assert_int_equal(1, pwrite(file, bytes + i, 1, (off_t)i));
    }
    close(file);
    scratch_write(d.file, bytes, n - 1), refused(d, "its header says", "truncated");
    for (size_t less = n - 1; less > 0; less -= LEAST(less, 97))
        scratch_write(d.file, bytes, less), refused(d, d.file, "table");
    bytes = realloc(bytes, n + 1), bytes[n] = 0;
    scratch_write(d.file, bytes, n + 1), refused(d, "its header says", "added to its end");
    scratch_write(d.file, bytes, n);
    frugal_close(open_or_fail(&d));
    free(bytes);
    scratch_end();
}

/* A header that is whole and says what this library does not know. */
static void test_other_versions(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    static const char *const texts[] = {"version 3", "kind 7",   "place of the", "version 2, and has weights of type 0",
                                        "of type 1", "of type 3"};
    for (int i = 0; i < 6; i++) {
        make_table(&d);
        size_t n;
        unsigned char *bytes = scratch_read(d.file, &n);
        table_header h;
        memcpy(&h, bytes, sizeof h);
        if (i == 0) h.version = 3;
        if (i == 1) h.kind = 7;
        if (i == 2) h.weights_at += TABLE_PAGE;
        if (i == 3) h.version = 2;
        if (i == 4) h.rows_as = 1; /* which version 1 does not have */
        if (i == 5) h.version = 2, h.rows_as = 3;
        make_page(&h, bytes);
        scratch_write(d.file, bytes, n);
        free(bytes);
        refused(d, texts[i], d.file);
        assert_int_equal(1, scratch_end());
        d.file = scratch_path("table");
    }
    scratch_end();
}

/* A torn table that is taken as it is counts as changed: closed, it is clean. */
static void test_taken_torn(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    make_table(&d);
    size_t n;
    unsigned char *bytes = scratch_read(d.file, &n);
    table_header h;
    memcpy(&h, bytes, sizeof h);
    h.use = TABLE_IN_USE;
    make_page(&h, bytes);
    scratch_write(d.file, bytes, n);
    free(bytes);
    refused(d, "torn", "take_torn");
    d.take_torn = 1;
    assert_int_equal(FRUGAL_OK, frugal_close(open_or_fail(&d)));
    assert_int_equal(TABLE_CLEAN, header_of(d.file).use);
    scratch_end();
}

/* >>who has it */

static void test_twice_in_a_process(void **state) {
    (void)state;
    char who[64];
    frugal_desc d = file_desc(), second = d;
    frugal *f = open_or_fail(&d);
    snprintf(who, sizeof who, "process %d on", (int)getpid());
    assert_open_fails(FRUGAL_ERR_FILE, &second, "in use by", who);
    frugal_close(f);
    frugal_close(open_or_fail(&d));
    scratch_end();
}

/* A child that opens the file, says by a byte how it went, and has it until told to end. */
typedef struct holder {
    pid_t pid;
    int said, tell;
} holder;

static holder start_holder(const frugal_desc *d, int start) {
    holder h;
    int said[2], tell[2];
    assert_true(pipe(said) == 0 && pipe(tell) == 0);
    h.pid = fork();
    assert_true(h.pid >= 0);
    if (h.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever ends the test ends its children */
        frugal *f;
        char byte = 0;
        if (start >= 0 && read(start, &byte, 1) < 0) _exit(1); /* the end of the pipe: all start together */
        frugal_status status = frugal_open(d, &f);
        byte = status == FRUGAL_OK ? 'h'
               : status == FRUGAL_ERR_FILE && strstr(frugal_message(), "process") && strstr(frugal_message(), d->file)
                   ? 'r'
                   : 'w';
        if (byte == 'w') fprintf(stderr, "# %s\n", frugal_message());
        if (write(said[1], &byte, 1) != 1 || read(tell[0], &byte, 1) != 1) _exit(1);
        frugal_close(f);
        _exit(0);
    }
    close(said[1]), close(tell[0]);
    h.said = said[0], h.tell = tell[1];
    return h;
}

static char asked(const holder *h) {
    char byte = 0;
    assert_int_equal(1, read(h->said, &byte, 1));
    return byte;
}

static void end_holder(holder *h, int kill_it) {
    int status = -1;
    if (kill_it)
        assert_int_equal(0, kill(h->pid, SIGKILL));
    else
        assert_int_equal(1, write(h->tell, "e", 1));
    assert_int_equal(h->pid, waitpid(h->pid, &status, 0));
    assert_true(kill_it ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(h->said), close(h->tell);
}

static void test_two_processes(void **state) {
    (void)state;
    char who[64];
    for (int there = 0; there < 2; there++) { /* a new file; one that was there */
        frugal_desc d = file_desc();
        holder h = start_holder(&d, -1);
        assert_int_equal('h', asked(&h));
        snprintf(who, sizeof who, "process %d on ", (int)h.pid);
        refused(d, "in use by", who);
        end_holder(&h, 0);
        frugal_close(open_or_fail(&d));
    }
    scratch_end();
}

/* Many at once on one new file, on an empty one, on one that is there: one has it, and the others say so. */
static void test_many_processes(void **state) {
    enum { N = 4 };
    int kind = (int)(intptr_t)*state;
    for (int race = 0; race < RACES; race++) {
        frugal_desc d = file_desc();
        holder all[N];
        int start[2], has = 0, refusals = 0;
        if (kind == 1) scratch_write(d.file, "", 0);
        if (kind == 2) make_table(&d);
        assert_int_equal(0, pipe(start));
        fcntl(start[1], F_SETFD, FD_CLOEXEC);
        for (int i = 0; i < N; i++) all[i] = start_holder(&d, start[0]);
        for (int i = 0; i < N; i++) assert_int_equal(1, write(start[1], "s", 1));
        for (int i = 0; i < N; i++) {
            char said = asked(&all[i]);
            has += said == 'h', refusals += said == 'r';
        }
        assert_int_equal(1, has);
        assert_int_equal(N - 1, refusals);
        for (int i = 0; i < N; i++) end_holder(&all[i], 0);
        close(start[0]), close(start[1]);
        assert_int_equal(1, scratch_count());
        frugal_close(open_or_fail(&d));
        scratch_end();
    }
}

/* Another file takes the name while open waits for memory: it is not overwritten. */
typedef struct intruder {
    const char *name;
    const char *bytes; /* NULL: a link to nothing */
    uint64_t at, calls;
} intruder;

static void *allocate_late(size_t bytes, size_t alignment, void *user) {
    intruder *i = user;
    void *memory = NULL;
    if (i->calls++ == i->at && i->bytes) scratch_write(i->name, i->bytes, strlen(i->bytes));
    if (i->calls == i->at + 1 && !i->bytes && symlink("nowhere", i->name)) abort();
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}
static void release_late(void *memory, size_t bytes, void *user) {
    (void)bytes, (void)user;
    free(memory);
}

static void test_name_taken_meanwhile(void **state) {
    int empty = (int)(intptr_t)*state;
    frugal_desc d = file_desc();
    d.workers = 1, d.allocate = allocate_late, d.release = release_late;
    int refusals = 0;
    for (uint64_t at = 0;; at++) {
        intruder i = {.name = d.file, .bytes = "mine", .at = at};
        d.user = &i;
        if (empty) scratch_write(d.file, "", 0);
        frugal *f;
        frugal_status status = frugal_open(&d, &f);
        int entries = scratch_count(); /* without frugal_close, too */
        frugal_close(f);
        if (i.calls <= at) {
            assert_int_equal(FRUGAL_OK, status);
            break;
        }
        if (status != FRUGAL_OK) assert_int_equal(FRUGAL_ERR_FILE, status), refusals++;
        size_t n;
        unsigned char *bytes = scratch_read(d.file, &n);
        assert_true(n == 4 && !memcmp(bytes, "mine", 4));
        free(bytes);
        assert_int_equal(1, entries);
        assert_int_equal(0, unlink(d.file));
    }
    assert_true(refusals > 3);
    scratch_end();
}

static void exchange_table(void) {
    assert_int_equal(0, rename(scratch_path("table"), scratch_path("moved")));
    scratch_write(scratch_path("table"), "mine", 4);
}

/* Between opening and locking the table another file is given its name: neither is taken. */
static void test_exchanged_before_the_lock(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    make_table(&d);
    failing_files.before_lock = exchange_table;
    assert_open_fails(FRUGAL_ERR_FILE, &d, "another file was given this name meanwhile", d.file);
    size_t n;
    unsigned char *bytes = scratch_read(d.file, &n);
    assert_true(n == 4 && !memcmp(bytes, "mine", 4));
    free(bytes);
    assert_int_equal(2, scratch_end());
}

/* Another has the file whose header cannot be read, because it is damaged: there is no process to be named. */
static void test_held_and_damaged(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    make_table(&d);
    int file = open(d.file, O_RDWR);
    assert_true(file >= 0 && lock_file(file) == 0);
    refused(d, "in use by process", "on ");
    table_header header = header_of(d.file);
    header.id = ~header.id;
    assert_int_equal(sizeof header.id, pwrite(file, &header.id, sizeof header.id, offsetof(table_header, id)));
    refused(d, "in use by another process", d.file);
    close(file);
    scratch_end();
}

static void test_host_without_a_name(void **state) {
    (void)state;
    frugal_desc d = file_desc(), second = d;
    nameless = 1;
    frugal *f = open_or_fail(&d);
    assert_open_fails(FRUGAL_ERR_FILE, &second, "in use by process", " on ?; ");
    frugal_close(f);
    nameless = 0;
    scratch_end();
}

/* What has taken the name meanwhile cannot be opened, a link to nothing: that is refused, too, and the link stays. */
static void test_name_taken_by_a_link(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    d.allocate = allocate_late, d.release = release_late;
    int refusals = 0;
    for (uint64_t at = 0;; at++) {
        intruder i = {.name = d.file, .at = at};
        struct stat link;
        frugal *f;
        d.user = &i;
        frugal_status status = frugal_open(&d, &f);
        frugal_close(f);
        if (i.calls <= at) break;
        if (status != FRUGAL_OK) { /* else the link was there first, and is followed */
            assert_int_equal(FRUGAL_ERR_FILE, status);
            assert_non_null(strstr(frugal_message(), "made meanwhile by another process"));
            refusals++;
        }
        assert_true(lstat(d.file, &link) == 0 && S_ISLNK(link.st_mode));
        assert_int_equal(status == FRUGAL_OK ? 2 : 1, scratch_end());
        d.file = scratch_path("table");
    }
    assert_true(refusals > 0);
    scratch_end();
}

/* >>space */

static void test_sparse(void **state) {
    (void)state;
    frugal_table table = {.rows = 1 << 18};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 32, .max_keys = 4};
    struct stat status;
    for (d.sparse = 0; d.sparse < 2; d.sparse++) {
        d.file = scratch_path("table");
        frugal_close(open_or_fail(&d));
        assert_int_equal(0, stat(d.file, &status));
        assert_true(status.st_size > 1 << 25);
        if (d.sparse)
            assert_true(status.st_blocks < 1 << 12);
        else
            assert_true((uint64_t)status.st_blocks * 512 >= (uint64_t)status.st_size);
        frugal_close(open_or_fail(&d));
        assert_int_equal(0, unlink(d.file));
    }
    scratch_end();
}

/* A table with holes, copied sparsely or made with `sparse`: opened without it, its space is reserved, too. If it
 * cannot be, open says so, and the file is as it was. */
static void test_holes(void **state) {
    (void)state;
    frugal_table table = {.rows = 1 << 18};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 32, .max_keys = 4, .sparse = 1};
    struct stat status;
    d.file = scratch_path("table");
    let_files_fail(0, 0, 0, 0);
    frugal_close(open_or_fail(&d));
    let_files_fail(CALL_GROW, 1, ENOSPC, 1);
    frugal_close(open_or_fail(&d)); /* it may have holes */
    d.sparse = 0;
    refused(d, "reserve the table's space, ", "free space");
    let_files_fail(CALL_GROW, 1, EOPNOTSUPP, 1);
    refused(d, "cannot reserve the table's space", "frugal_desc.sparse");
    assert_int_equal(0, stat(d.file, &status));
    assert_true(status.st_blocks < 1 << 12);
    let_files_fail(0, 0, 0, 0);
    frugal_close(open_or_fail(&d));
    assert_int_equal(0, stat(d.file, &status));
    assert_true((uint64_t)status.st_blocks * 512 >= (uint64_t)status.st_size);
    scratch_end();
}

/* Space that cannot be reserved: an error of open, and nothing is left. `kind`: the file system cannot reserve any; a
 * limit of the file's size; a file system that is smaller than the table. */
static void test_no_space(void **state) {
    int kind = (int)(intptr_t)*state;
    frugal_desc d = file_desc();
    frugal_table large = {.rows = UINT64_C(1) << 31};
    struct rlimit limit, small;
    struct statvfs system;
    char name[64];
    if (kind == 2) {
        d.tables = &large, d.n_tables = 1, d.dim = 4096, d.optimizer.kind = FRUGAL_SGD; /* 32 TiB */
        snprintf(name, sizeof name, "/dev/shm/frugal_no_space_%d", (int)getpid());
        d.file = name;
        if (statvfs("/dev/shm", &system) || (uint64_t)system.f_blocks * system.f_frsize > UINT64_C(1) << 44) {
            print_message("# SKIPPED a file system that is too small: /dev/shm is none\n");
            skip();
        }
    }
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &limit));
    small = limit, small.rlim_cur = 4096;
    if (kind == 0) let_files_fail(CALL_GROW, 1, EOPNOTSUPP, 0);
    if (kind == 1) assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &small));
    frugal *f;
    frugal_status status = frugal_open(&d, &f);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &limit));
    frugal_close(f);
    if (status == FRUGAL_ERR_MEMORY) { /* 8 bytes a row come first */
        print_message("# SKIPPED a file system that is too small: memory is, too\n");
        skip();
    }
    assert_fails(FRUGAL_ERR_FILE, status, "reserve the table's space",
                 kind == 0   ? "frugal_desc.sparse"
                 : kind == 1 ? "ulimit -f"
                             : "free space");
    assert_int_equal(-1, unlink(d.file)); /* nor is it left behind if it was there */
    let_files_fail(0, 0, 0, 0);
    scratch_path(""), scratch_end();
}

/* >>calls of the system that fail */

static const char *const calls[] = {"",     "open", "fstat",  "read", "write", "grow",
                                    "sync", "link", "rename", "map",  "lock"};

/* The nth of each call of open fails: open says so and leaves what was there, or has not come to that call. What is
 * there afterwards opens. `kind`: no file, an empty one, a table, one with holes. */
static void test_failing_opens(void **state) {
    int kind = (int)(intptr_t)*state;
    int failures = 0;
    for (int call = 1; call < FILE_CALLS; call++)
        for (int at = 1; at < 100; at++) {
            frugal_desc d = file_desc();
            frugal *f;
            size_t before_bytes = 0, after_bytes = 0;
            unsigned char *before = NULL;
            if (kind == 1) scratch_write(d.file, "", 0);
            if (kind >= 2) make_table(&d);
            if (kind == 3) make_holes(d.file);
            if (kind) before = scratch_read(d.file, &before_bytes);
            let_files_fail(call, at, call == CALL_GROW ? ENOSPC : EIO, 0);
            frugal_status status = frugal_open(&d, &f);
            int failed = atomic_load(&failing_files.failures);
            if (status == FRUGAL_OK && failed) fail_msg("%s %d failed, and open did not say so", calls[call], at);
            if (status != FRUGAL_OK && !failed) fail_msg("open: %s", frugal_message());
            let_files_fail(0, 0, 0, 0);
            if (failed) {
                assert_int_equal(FRUGAL_ERR_FILE, status);
                if (call != CALL_OPEN && call != CALL_STAT) /* whether another has made the file meanwhile */
                    assert_non_null(strstr(frugal_message(), strerror(call == CALL_GROW ? ENOSPC : EIO)));
                failures++;
            }
            if (scratch_count() != (kind || !failed)) fail_msg("%s %d: what is left is wrong", calls[call], at);
            frugal_close(f);
            if (failed && kind) {
                unsigned char *after = scratch_read(d.file, &after_bytes);
                assert_true(before_bytes == after_bytes && !memcmp(before, after, after_bytes));
                free(after);
            }
            frugal_close(open_or_fail(&d));
            free(before);
            scratch_end();
            if (!failed) break;
        }
    assert_true(failures >= 8);
}

/* The same for the memory of an open that makes the file: nothing of it is there afterwards. */
static void test_failing_allocations(void **state) {
    (void)state;
    for (uint64_t at = 1;; at++) {
        frugal_desc d = file_desc();
        test_counter counter = {.fail_at = at};
        frugal *f;
        d.allocate = test_allocate, d.release = test_release, d.user = &counter;
        frugal_status status = frugal_open(&d, &f);
        if (counter.failures) assert_fails(FRUGAL_ERR_MEMORY, status, "bytes", "available");
        assert_int_equal(counter.failures ? 0 : 1, scratch_count());
        frugal_close(f);
        assert_int_equal(0, (int)counter.bytes_out);
        scratch_end();
        if (counter.failures) continue;
        assert_int_equal(FRUGAL_OK, status);
        assert_in_range(at, 8, 40);
        break;
    }
}

/* While it is closed the disk fails: closing says so, all memory is given back, and the file stays in use: it is torn
 * for whoever opens it. */
static void test_failing_closes(void **state) {
    int for_ever = (int)(intptr_t)*state, torn = 0;
    for (int call = CALL_WRITE; call <= CALL_SYNC; call++)
        for (int at = 1; at < 10; at++) {
            rig r = {0};
            frugal_desc d = file_desc();
            rig_open(&r, &d);
            rig_train(&r, 3);
            assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
            let_files_fail(call, at, EIO, for_ever);
            frugal_status status = frugal_close(r.f);
            int failed = atomic_load(&failing_files.failures);
            r.f = NULL;
            assert_int_equal(0, (int)r.counter.blocks_out);
            d = file_desc();
            uint32_t use = header_of(d.file).use;
            if (failed) {
                assert_fails(FRUGAL_ERR_FILE, status, "close", d.file);
                assert_non_null(strstr(frugal_message(), strerror(EIO)));
                assert_int_equal(TABLE_IN_USE, use);
                let_files_fail(0, 0, 0, 0);
                refused(d, "torn", "take_torn"), torn++;
            } else {
                assert_int_equal(FRUGAL_OK, status);
                assert_int_equal(FRUGAL_OK, frugal_close(open_or_fail(&d)));
            }
            rig_free(&r);
            scratch_end();
            if (!failed) break;
        }
    assert_int_equal(3, torn); /* the rows' sync, the header's write, its sync */
}

/* What has nothing to write has no failure to report: memory, an instance that was not opened, not drained, or is
 * none. */
static void test_closes_without_a_write(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = file_desc();
    rig_open(&r, &d);
    rig_train(&r, 3); /* without workers the last step is not closed: not drained */
    let_files_fail(0, 1, EIO, 1);
    assert_int_equal(FRUGAL_OK, frugal_close(r.f));
    r.f = NULL;
    rig_free(&r);
    d = file_desc();
    refused(d, "torn", "take_torn");
    frugal *f;
    assert_int_equal(FRUGAL_ERR_FILE, frugal_open(&d, &f));
    let_files_fail(0, 1, EIO, 1);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    assert_int_equal(FRUGAL_OK, frugal_close(NULL));
    d = rig_desc();
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    let_files_fail(0, 0, 0, 0);
    scratch_end();
}

/* The calls of an open that succeeds; `call` 0: all. The last one is the sync of the folder. */
static int calls_of_open(int call, int kind) {
    frugal_desc d = file_desc();
    if (kind == 1) scratch_write(d.file, "", 0);
    let_files_fail(call, 0, 0, 0);
    frugal *f = open_or_fail(&d);
    int n = atomic_load(&failing_files.calls);
    frugal_close(f);
    scratch_end();
    return n;
}

/* A folder that cannot be synced at all is no failure; one whose sync fails is, and what was there is there again. If
 * the disk is gone by then, the new file stays, in use: torn. */
static void test_folder_is_not_synced(void **state) {
    int kind = (int)(intptr_t)*state; /* as below: no file, an empty one */
    int syncs = calls_of_open(CALL_SYNC, kind), all = calls_of_open(0, kind);
    frugal_desc d = file_desc();
    frugal *f;
    if (kind == 1) scratch_write(d.file, "", 0);
    let_files_fail(CALL_SYNC, syncs, EINVAL, 0);
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    assert_int_equal(1, atomic_load(&failing_files.failures));
    frugal_close(f);
    scratch_end();
    for (int gone = 0; gone < 2; gone++) {
        d = file_desc();
        if (kind == 1) scratch_write(d.file, "", 0);
        let_files_fail(gone ? 0 : CALL_SYNC, gone ? all : syncs, EIO, gone);
        assert_fails(FRUGAL_ERR_FILE, frugal_open(&d, &f), "write the folder to the disk",
                     gone ? "remove the new file again" : d.file);
        let_files_fail(0, 0, 0, 0);
        frugal_close(f);
        assert_int_equal(kind || gone, scratch_count());
        if (gone) refused(d, "torn", "take_torn");
        scratch_end();
    }
}

/* Saves are to be read into a table that cannot be marked as in use: no row of it is changed. */
static void test_restored_table_is_not_marked(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    const char *const save = scratch_path("save");
    make_table(&d);
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = save}));
    uint64_t key = 4;
    float row[5] = {9, 9, 9, 9, 9};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &(frugal_keys){.table = 1, .keys = &key, .n = 1}, row,
                                                  NULL)); /* not in the save */
    frugal_close(f);
    d.saved = &save, d.n_saved = 1;
    size_t before_bytes, after_bytes;
    unsigned char *before = scratch_read(d.file, &before_bytes);
    let_files_fail(CALL_WRITE, 1, EIO, 0);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "write the table's header to the disk", strerror(EIO));
    let_files_fail(0, 0, 0, 0);
    unsigned char *after = scratch_read(d.file, &after_bytes);
    assert_true(before_bytes == after_bytes && !memcmp(before, after, after_bytes));
    free(before), free(after);
    frugal_close(open_or_fail(&d));
    scratch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_next_step),
        cmocka_unit_test(test_only_read),
        cmocka_unit_test(test_other_layouts),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_taken_torn),
        cmocka_unit_test(test_twice_in_a_process),
        cmocka_unit_test(test_two_processes),
        CASE("test_many_processes, a new file", test_many_processes, 0),
        CASE("test_many_processes, an empty file", test_many_processes, 1),
        CASE("test_many_processes, a table", test_many_processes, 2),
        CASE("test_name_taken_meanwhile, no file", test_name_taken_meanwhile, 0),
        CASE("test_name_taken_meanwhile, an empty file", test_name_taken_meanwhile, 1),
        cmocka_unit_test(test_exchanged_before_the_lock),
        cmocka_unit_test(test_held_and_damaged),
        cmocka_unit_test(test_host_without_a_name),
        cmocka_unit_test(test_name_taken_by_a_link),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_holes),
        CASE("test_no_space, none is reserved", test_no_space, 0),
        CASE("test_no_space, a limit", test_no_space, 1),
        CASE("test_no_space, a small file system", test_no_space, 2),
        CASE("test_failing_opens, no file", test_failing_opens, 0),
        CASE("test_failing_opens, an empty file", test_failing_opens, 1),
        CASE("test_failing_opens, a table", test_failing_opens, 2),
        CASE("test_failing_opens, a table with holes", test_failing_opens, 3),
        cmocka_unit_test(test_failing_allocations),
        CASE("test_failing_closes, one call", test_failing_closes, 0),
        CASE("test_failing_closes, all calls from one on", test_failing_closes, 1),
        cmocka_unit_test(test_closes_without_a_write),
        CASE("test_folder_is_not_synced, no file", test_folder_is_not_synced, 0),
        CASE("test_folder_is_not_synced, an empty file", test_folder_is_not_synced, 1),
        cmocka_unit_test(test_restored_table_is_not_marked),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
