/* table.c - where the table lies: in memory, in the caller's matrix, or in a mapped file; and how rows lie in it.
 *
 * A file has its name only when open has succeeded: a file that is there is whole.
 */
#include "host.h"

#define LONGEST_NAME 4096

/* Floats from row to row: rows start on 128 bytes where the weights fill a multiple of 128, else on 32, so that a GPU
 * reads no line that it does not need; rows under 32 bytes are packed to a power of two. */
static uint64_t aligned_floats(uint32_t floats) {
    if (floats == 0) return 0;
    if (floats < 8) {
        uint64_t power = 1;
        while (power < floats) power *= 2;
        return power;
    }
    return floats % 32 == 0 ? floats : (floats + 7) / 8 * 8;
}

static frugal_status fail_file(const char *file, const char *what) {
    return frugal_fail(FRUGAL_ERR_FILE, "cannot %s: %s: %s", what, strerror(errno), file); /* a long name comes last */
}

/* A file is made under another name, and takes its own when open has succeeded: so a file that is there is whole. */
static void new_name(const frugal *f, char name[LONGEST_NAME]) {
    snprintf(name, LONGEST_NAME, "%s.new", f->desc.file);
}

static frugal_status make_file(frugal *f, uint64_t bytes) {
    char name[LONGEST_NAME];
    new_name(f, name);
    if (f->file >= 0) close(f->file);
    f->file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->file < 0) return fail_file(name, "make the table's file");
    f->file_is_new = 1;
    return ftruncate(f->file, (off_t)bytes) ? fail_file(name, "grow it") : FRUGAL_OK;
}

static frugal_status publish_file(frugal *f) {
    char name[LONGEST_NAME];
    if (!f->file_is_new) return FRUGAL_OK;
    new_name(f, name);
    if (rename(name, f->desc.file)) return fail_file(name, "give it its name");
    f->file_is_new = 0;
    return FRUGAL_OK;
}

/* Closes the file; one that open has not finished goes. */
static void drop_file(frugal *f) {
    char name[LONGEST_NAME];
    if (f->file >= 0) close(f->file);
    if (!f->file_is_new) return;
    new_name(f, name);
    unlink(name);
}

/* Maps the table's file, which is made where there is none, or an empty one. */
static frugal_status open_file(frugal *f, uint64_t bytes) {
    const char *name = f->desc.file;
    struct stat there = {0};
    frugal_status status = FRUGAL_OK;
    if (strlen(name) + sizeof ".new" > LONGEST_NAME)
        return frugal_fail(FRUGAL_ERR_FILE, "the file's name has %zu bytes; the limit is %d", strlen(name),
                           LONGEST_NAME - (int)sizeof ".new");
    f->file = open(name, O_RDWR | O_CLOEXEC);
    if (f->file < 0 && errno != ENOENT) return fail_file(name, "open the table's file");
    if (f->file >= 0 && fstat(f->file, &there)) return fail_file(name, "read the size");
    if (there.st_size == 0) status = make_file(f, bytes);
    if (status != FRUGAL_OK) return status;
    if (there.st_size != 0 && (uint64_t)there.st_size != bytes)
        return frugal_fail(FRUGAL_ERR_FILE, "the file has %lld bytes, these tables need %llu: another table's file? %s",
                           (long long)there.st_size, (unsigned long long)bytes, name);
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->file, 0);
    if (memory == MAP_FAILED) return fail_file(name, "map it");
#if defined(MADV_RANDOM)
    madvise(memory, (size_t)bytes, MADV_RANDOM); /* a wish: rows are no reason to read or make what lies around them */
#endif
    f->table_memory = memory;
    f->file_bytes = (size_t)bytes;
    return FRUGAL_OK;
}

/* Element-wise state lies behind the weights, equally aligned; row-wise state is an array of its own, which a file
 * carries at its end. */
static frugal_status place_table(frugal *f, int element_wise) {
    frugal_store *s = &f->store;
    uint64_t behind = aligned_floats(f->desc.dim);
    s->weights_stride = behind + (element_wise ? aligned_floats(s->state_floats) : 0);
    s->state_stride = element_wise ? s->weights_stride : s->state_floats;
    uint64_t bytes = s->rows * s->weights_stride * sizeof(float);
    uint64_t tail = element_wise ? 0 : s->rows * s->state_floats * sizeof(float);
    f->table_bytes = (size_t)(bytes + (f->desc.file ? tail : 0));
    if (f->desc.file) {
        frugal_status status = open_file(f, f->table_bytes);
        if (status != FRUGAL_OK) return status;
    } else if (!(f->table_memory = frugal_allocate(f, f->table_bytes = whole_pages(f->table_bytes), SMALL_PAGE)))
        return fail_memory("the table", f->table_bytes);
    s->weights = f->table_memory;
    if (element_wise)
        s->state = s->weights + behind;
    else if (f->desc.file && tail)
        s->state = s->weights + s->rows * s->weights_stride;
    return FRUGAL_OK;
}

static frugal_status open_table(frugal *f) {
    frugal_store *s = &f->store;
    int element_wise = s->state_floats > 0 && f->desc.optimizer.kind != FRUGAL_ROWWISE_ADAGRAD;
    if (f->desc.weights) {
        s->weights = f->desc.weights, s->weights_stride = f->desc.weights_stride;
        s->state = f->desc.state;
        s->state_stride = s->state ? f->desc.state_stride : aligned_floats(s->state_floats);
    } else {
        frugal_status status = place_table(f, element_wise);
        if (status != FRUGAL_OK) return status;
    }
    if (s->state_floats > 0 && !s->state) { /* the caller's matrix without one; row-wise state in memory */
        f->state_bytes = whole_pages((size_t)(s->rows * s->state_stride * sizeof(float)));
        f->state_memory = frugal_allocate(f, f->state_bytes, SMALL_PAGE);
        if (!f->state_memory) return fail_memory("the optimizer's state", f->state_bytes);
        s->state = f->state_memory;
    }
    int kept = f->file_bytes > 0 && !f->file_is_new;
    if (f->desc.n_saved > 0) return FRUGAL_OK; /* the rows are read from saves */
    init_table(f, !f->desc.weights && !kept, !f->desc.state && !kept, kept);
    return FRUGAL_OK;
}
