/* Kinds of files by their first bytes, and the programs that read them. */
#include "trainers/clicks/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Ints are written without a point and floats with as many digits as they need, so nothing is lost. */
static const char clicks_parquet[] =
    "import os, signal, sys\n"
    "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
    "try:\n"
    "    import pyarrow as pa, pyarrow.compute as pc, pyarrow.csv as csv, pyarrow.parquet as pq\n"
    "except ImportError as missing:\n"
    "    sys.exit(f'Parquet is read by pyarrow ({missing}): pip install pyarrow, and name its python3 by '\n"
    "             'FRUGAL_PYTHON; or write text: pandas.read_parquet(LOG).to_csv(\"LOG.csv\", index=False)')\n"
    "def text(column):\n"
    "    kind = column.type\n"
    "    if pa.types.is_dictionary(kind):\n"
    "        return text(column.cast(kind.value_type))\n"
    "    if pa.types.is_list(kind) or pa.types.is_large_list(kind):\n"
    "        return pc.binary_join(column.cast(pa.list_(pa.string())), '|')\n"
    "    return column.cast(pa.int8()) if pa.types.is_boolean(kind) else column\n"
    "file = pq.ParquetFile(open(0, 'rb', closefd=False))\n"
    "names = file.schema_arrow.names\n"
    "out, first = os.fdopen(1, 'wb', closefd=False), True\n"
    "for batch in file.iter_batches(1 << 16):\n"
    "    rows = pa.RecordBatch.from_arrays([text(column) for column in batch.columns], names)\n"
    "    csv.write_csv(rows, pa.PythonFile(out, 'w'), csv.WriteOptions(include_header=first))\n"
    "    first = False\n"
    "out.flush()\n";

typedef struct clicks_kind_of_file {
    const char *begin, *what;
    const char *argv[5]; /* what makes text of it; NULL: nothing here */
    const char *instead; /* what to do, then */
} clicks_kind_of_file;

static const clicks_kind_of_file clicks_kinds[] = {
    {"\x28\xb5\x2f\xfd", "zstd", {"zstd", "-dcq"}, NULL},
    {"BZh", "bzip2", {"bzip2", "-dc"}, NULL},
    {"\xfd"
     "7zXZ",
     "xz",
     {"xz", "-dc"},
     NULL},
    {"\x04\x22\x4d\x18", "lz4", {"lz4", "-dcq"}, NULL},
    {"PAR1", "Parquet", {"python3", "-c", clicks_parquet}, NULL},
    {"PK\x03\x04", "zip", {0}, "unpack it (unzip), and make text of what is no text"},
    {"\x93NUMPY", "NumPy", {0}, "give x_dense.npy, with x_sparse.npy and x_labels.npy beside it, or make text of it"},
    {"\xff\xfe", "text of UTF-16", {0}, "make UTF-8 of it, by iconv -f UTF-16 -t UTF-8"},
    {"\x80\x04", "pickled objects of Python", {0}, "make text or Parquet of it"},
    {"\x80\x05", "pickled objects of Python", {0}, "make text or Parquet of it"},
    {"Obj\x01", "Avro", {0}, "make text or Parquet of it"},
    {"ORC", "ORC", {0}, "make text or Parquet of it"},
    {"ARROW1", "Arrow", {0}, "make text or Parquet of it"},
    {"\x89HDF", "HDF5", {0}, "make text or Parquet of it"},
    {"SQLite format 3", "SQLite", {0}, "make text of it"},
};

/* NULL: it is text, or gz, as far as can be seen. Text may begin with the same letters, but has no odd bytes. */
static const clicks_kind_of_file *clicks_kind_of(const unsigned char *bytes, size_t n) {
    size_t odd = 0;
    for (size_t i = 0; i < n; i++) odd += bytes[i] < 9 || (bytes[i] > 13 && bytes[i] < 32) || bytes[i] > 126;
    for (size_t i = 0; odd && i < sizeof clicks_kinds / sizeof *clicks_kinds; i++) {
        size_t length = strlen(clicks_kinds[i].begin);
        if (n >= length && !memcmp(bytes, clicks_kinds[i].begin, length)) return &clicks_kinds[i];
    }
    return NULL;
}

/* In a group of its own, so that Ctrl-C leaves it to end the training in order. */
static int clicks_filter_spawn(clicks_filter *filter, char *const *argv, int from, int to) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, standard;
    sigemptyset(&none);
    sigemptyset(&standard);
    sigaddset(&standard, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int status = posix_spawn_file_actions_adddup2(&actions, from, 0);
    if (!status) status = posix_spawn_file_actions_adddup2(&actions, to, 1);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    if (!status) status = posix_spawnp(&filter->child, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (status) filter->child = 0;
    return status;
}

static int clicks_filter_start(clicks_filter *filter, const clicks_kind_of_file *kind, int *descriptor,
                               const char *path, program_error *error) {
    char *argv[5];
    int ends[2];
    for (int i = 0; i < 5; i++) argv[i] = (char *)(uintptr_t)kind->argv[i];
    if (!strcmp(argv[0], "python3") && getenv("FRUGAL_PYTHON")) argv[0] = getenv("FRUGAL_PYTHON");
    filter->program = argv[0];
    if (pipe2(ends, O_CLOEXEC)) return program_fail(error, "cannot read %.200s: %s", path, strerror(errno));
    int status = clicks_filter_spawn(filter, argv, *descriptor, ends[1]);
    close(ends[1]);
    if (status) {
        close(ends[0]);
        return program_fail(error,
                            "%.200s is a file of %s, which %.80s reads, and that cannot be started: %s; install "
                            "it, or make text or gz of the file",
                            path, kind->what, argv[0], strerror(status));
    }
    close(*descriptor);
    *descriptor = ends[0];
    return 0;
}

int clicks_filter_open(clicks_filter *filter, int *descriptor, const char *path, program_error *error) {
    unsigned char bytes[256];
    *filter = (clicks_filter){0};
    ssize_t n = pread(*descriptor, bytes, sizeof bytes, 0);
    const clicks_kind_of_file *kind = n > 0 ? clicks_kind_of(bytes, (size_t)n) : NULL;
    if (!kind) return 0;
    if (kind->argv[0]) return clicks_filter_start(filter, kind, descriptor, path, error);
    return program_fail(error, "%.200s is a file of %s; %s", path, kind->what, kind->instead);
}

static int clicks_filter_wait(clicks_filter *filter) {
    int status = 0;
    while (filter->child && waitpid(filter->child, &status, 0) < 0 && errno == EINTR) continue;
    filter->child = 0;
    return status;
}

int clicks_filter_end(clicks_filter *filter, const char *path, program_error *error) {
    int status = clicks_filter_wait(filter);
    if (!status) return 0;
    return program_fail(error, "%.80s has ended with %s %d and not read all of %.200s; what it said stands above",
                        filter->program, WIFSIGNALED(status) ? "signal" : "exit status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), path);
}

void clicks_filter_close(clicks_filter *filter) {
    if (filter->child) kill(filter->child, SIGTERM);
    clicks_filter_wait(filter);
}
