/* manifest.c - the manifest of a save of several machines: which shares there are, and whose rows they have.
 *
 * A share is a save like any other, which saved.c reads. The manifest is read first: it names the shares, and says how
 * rows are dealt. It is written last, when all shares are on the disk, so it names none that is not there.
 *
 * Contents: >>names >>homes >>reading >>writing >>telling
 */
#include "table.h"

#include <dirent.h>

static frugal_status fail_manifest(const manifest *m, const char *what) {
    return frugal_fail(FRUGAL_ERR_FILE, "the manifest cannot be used: %s; take another copy of it: %s", what,
                       m->name.path);
}

/* >>names */

static int is_manifest_magic(const void *begins) {
    const uint32_t block = MANIFEST_MAGIC;
    return !memcmp(begins, SAVED_MAGIC, SAVED_MAGIC_BYTES) &&
           !memcmp((const char *)begins + SAVED_MAGIC_BYTES, &block, sizeof block);
}

FRUGAL_INTERNAL int begins_as_manifest(int file) {
    unsigned char begins[SAVED_MAGIC_BYTES + 4];
    return !read_at(file, begins, sizeof begins, 0) && is_manifest_magic(begins);
}

FRUGAL_INTERNAL int is_manifest(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int is = file >= 0 && begins_as_manifest(file);
    if (file >= 0) close(file);
    return is;
}

/* What a share is called in its folder. */
static void name_entry(const manifest *m, uint32_t machine, char entry[LONGEST_ENTRY + 1]) {
    snprintf(entry, LONGEST_ENTRY + 1, "%s.%u-of-%u-%016llx", (const char *)m->head.stem, machine, m->head.machines,
             (unsigned long long)m->head.tag);
}

/* The path of a share: beside the manifest. Returns an errno. */
FRUGAL_INTERNAL int name_share(const manifest *m, uint32_t machine, char path[LONGEST_PATH]) {
    char folder[LONGEST_PATH], entry[LONGEST_ENTRY + 1];
    folder_of(&m->name, folder);
    name_entry(m, machine, entry);
    return snprintf(path, LONGEST_PATH, "%s/%s", folder, entry) < LONGEST_PATH ? 0 : ENAMETOOLONG;
}

/* The names of shares beside the manifest that is called `name`, which will be written or replaced. */
FRUGAL_INTERNAL frugal_status begin_names(manifest *m, const char *name, uint32_t machines, uint64_t tag) {
    *m = (manifest){.file = -1};
    m->head.machines = machines, m->head.tag = tag;
    frugal_status status = find_file(name, &m->name);
    if (status != FRUGAL_OK) return status;
    const char *entry = strrchr(m->name.path, '/') + 1;
    if (strlen(entry) < sizeof m->head.stem) {
        memcpy(m->head.stem, entry, strlen(entry));
        return FRUGAL_OK;
    }
    return frugal_fail(FRUGAL_ERR_FILE, "the name of a save of several machines has %zu bytes, and may have %zu: %s",
                       strlen(entry), sizeof m->head.stem - 1, name);
}

/* Names of files beside a manifest; the manifest, and others that it must leave alone. */
typedef struct old_shares {
    const manifest *m;
    uint64_t kept[64]; /* [n]: tags of manifests in the folder whose shares are called alike; more: none is removed */
    uint32_t n;
} old_shares;

/* Is a file of the folder called as a share beside the manifest, or as one that is not whole yet? */
static int is_share(const manifest *m, const char *entry, uint64_t *tag) {
    char name[LONGEST_ENTRY + 1], again[LONGEST_ENTRY + 1];
    size_t stem = strlen((const char *)m->head.stem), temporary = temporary_of(entry);
    unsigned machine, machines;
    unsigned long long number;
    snprintf(name, sizeof name, "%.*s", (int)(temporary ? temporary : sizeof name - 1), entry + (temporary > 0));
    if (strncmp(name, (const char *)m->head.stem, stem) != 0) return 0;
    if (sscanf(name + stem, ".%3u-of-%3u-%16llx", &machine, &machines, &number) != 3) return 0;
    *tag = number;
    snprintf(again, sizeof again, ".%u-of-%u-%016llx", machine, machines, number);
    return !strcmp(name + stem, again); /* sscanf passes over blanks and signs */
}

static int is_old_share(const void *of, const char *entry) {
    const old_shares *old = of;
    uint64_t tag;
    if (!is_share(old->m, entry, &tag)) return 0;
    for (uint32_t i = 0; i < old->n && !temporary_of(entry); i++)
        if (old->kept[i] == tag) return 0;
    return 1;
}

/* Is it the manifest of shares that are called alike? -1: it cannot be read. */
static int has_shares(const manifest *m, int folder, const char *entry, uint64_t *tag) {
    manifest_header h;
    int file = openat(folder, entry, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (file < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO)) return -1;
    if (file < 0) return 0; /* not ours, not there any more, or no file */
    int error = read_at(file, &h, sizeof h, 0), is_one = !error && is_manifest_magic(&h);
    close(file);
    *tag = h.tag;
    if (error == EIO) return -1;
    return is_one && !memcmp(h.stem, m->head.stem, sizeof h.stem);
}

/* Finds the tags of all manifests in the folder that were saved by this name, and may have another one now. Returns 0
 * if there are too many, or if it is not sure that these are all. */
static int find_tags(old_shares *old, const char *folder) {
    DIR *entries = opendir(folder);
    int found = 0;
    if (!entries) return 0;
    for (struct dirent *e; found >= 0 && old->n < 64 && (errno = 0, e = readdir(entries));) {
        found = has_shares(old->m, dirfd(entries), e->d_name, &old->kept[old->n]);
        if (found > 0) old->n++;
    }
    int all = found >= 0 && old->n < 64 && errno == 0;
    closedir(entries);
    return all;
}

/* Removes the shares beside the manifest, which has its name by now, that belong to no manifest in the folder and that
 * no process writes: those of the manifest that it has replaced, and of saves that were ended. Failures are ignored. */
FRUGAL_INTERNAL void remove_old_shares(const manifest *m) {
    char folder[LONGEST_PATH];
    old_shares old = {.m = m, .kept = {m->head.tag}, .n = 1};
    folder_of(&m->name, folder);
    if (find_tags(&old, folder)) remove_left(folder, is_old_share, &old);
}

/* A save has replaced the manifest of this name. */
FRUGAL_INTERNAL void remove_shares_of(const char *path) {
    manifest m;
    if (begin_names(&m, path, 0, 0) == FRUGAL_OK) remove_old_shares(&m);
}

/* >>homes */

FRUGAL_INTERNAL const char *deal_word(uint32_t deal) {
    return deal == MANIFEST_CYCLIC ? "cyclically" : deal == MANIFEST_BLOCKS ? "in blocks" : "as homes say";
}

static uint64_t block_of(const manifest *m, uint32_t p) {
    return (m->parts[p]->part.rows + m->head.machines - 1) / m->head.machines;
}

/* The homes of the rows first .. first + n - 1 of an instance. Of one that is LISTED only from the manifest of a base,
 * which must be open. */
FRUGAL_INTERNAL frugal_status read_homes(const manifest *m, uint32_t p, uint64_t first, uint64_t n, uint8_t *homes) {
    uint64_t block = block_of(m, p);
    if (m->parts[p]->deal == MANIFEST_LISTED) {
        int error = read_at(m->file, homes, (size_t)n, m->homes_at[p] + first);
        return error > 0 ? fail_system("read the manifest", error, m->name.path)
               : error   ? fail_manifest(m, "it ends too early")
                         : FRUGAL_OK;
    }
    for (uint64_t i = 0; i < n; i++)
        homes[i] =
            (uint8_t)(m->parts[p]->deal == MANIFEST_CYCLIC ? (first + i) % m->head.machines : (first + i) / block);
    return FRUGAL_OK;
}

/* >>reading */

static int is_text(const uint8_t *text, size_t size) {
    size_t n = strnlen((const char *)text, size);
    if (n == 0 || n == size || memchr(text, '/', n)) return 0;
    while (n < size)
        if (text[n++]) return 0;
    return 1;
}

/* What the header says of itself. `bytes`: of the file. */
static frugal_status check_header(const manifest *m, uint64_t bytes) {
    manifest_header h = m->head;
    if (h.version != MANIFEST_VERSION)
        return frugal_fail(FRUGAL_ERR_FILE, "the manifest has format %u, and this version of Frugal reads %u: %s",
                           h.version, MANIFEST_VERSION, m->name.path);
    h.checksum = 0;
    if (crc32c(0, &h, sizeof h) != m->head.checksum) return fail_manifest(m, "its header is damaged");
    if (h.machines == 0 || h.machines > MANIFEST_MOST_MACHINES)
        return fail_manifest(m, "the number of its machines is wrong");
    if (!is_head_sound(&h.head)) return fail_manifest(m, "kind, id, parent, base, sequence or parts are wrong");
    if (!is_text(h.stem, sizeof h.stem)) return fail_manifest(m, "the name of its shares is wrong");
    if (h.bytes != bytes) return fail_manifest(m, "it has another size than its header says");
    uint64_t most = h.machines * sizeof(manifest_share) +
                    h.head.parts * (sizeof(manifest_part) + SAVED_MOST_TABLES * sizeof(saved_table));
    if (h.list_bytes > most || h.list_bytes > bytes - sizeof h || h.list_bytes % 8)
        return fail_manifest(m, "the size of its list is wrong");
    return FRUGAL_OK;
}

static int is_manifest_part_sound(const manifest_part *part, uint64_t bytes) {
    const saved_table *tables = (const saved_table *)(part + 1);
    if (part->zero || part->deal > MANIFEST_LISTED) return 0;
    if (!is_part_sound(&part->part, tables, bytes - offsetof(manifest_part, part))) return 0;
    for (uint32_t t = 0; t < part->part.n_tables; t++)
        if (tables[t].rows == 0) return 0;
    return 1;
}

/* Finds shares and instances in the list, and where the homes are. */
static frugal_status find_parts(manifest *m) {
    uint64_t at = m->head.machines * sizeof *m->shares, homes = sizeof m->head + m->head.list_bytes;
    m->shares = (manifest_share *)(void *)m->list;
    for (uint32_t i = 0; i < m->head.machines && at <= m->head.list_bytes; i++)
        if (m->shares[i].zero || m->shares[i].bytes == 0) return fail_manifest(m, "a share's size is wrong");
    for (uint32_t p = 0; p < m->head.head.parts; p++) {
        manifest_part *part = m->parts[p] = (manifest_part *)(void *)(m->list + at);
        if (at > m->head.list_bytes || m->head.list_bytes - at < sizeof *part)
            return fail_manifest(m, "its list ends too early");
        uint64_t bytes = sizeof *part + (uint64_t)part->part.n_tables * sizeof(saved_table);
        if (bytes > m->head.list_bytes - at) return fail_manifest(m, "its list ends too early");
        if (!is_manifest_part_sound(part, bytes))
            return fail_manifest(m, "an instance's deal, settings or tables are wrong");
        m->homes_at[p] = homes, at += bytes;
        if (part->deal == MANIFEST_LISTED && m->head.head.kind == SAVED_BASE) homes += saved_filled(part->part.rows);
    }
    if (at != m->head.list_bytes || homes != m->head.bytes)
        return fail_manifest(m, "it has another size than its list");
    return FRUGAL_OK;
}

static frugal_status check_homes(const manifest *m) {
    uint8_t piece[HOMES_PIECE];
    uint64_t at = sizeof m->head + m->head.list_bytes;
    uint32_t sum = 0;
    if (at == m->head.bytes) return FRUGAL_OK;
    for (size_t n; at < m->head.bytes; at += n) {
        n = (size_t)LEAST(sizeof piece, m->head.bytes - at);
        int error = read_at(m->file, piece, n, at);
        if (error > 0) return fail_system("read the manifest", error, m->name.path);
        if (error) return fail_manifest(m, "it ends too early");
        sum = crc32c(sum, piece, n);
    }
    return sum == m->head.homes_checksum ? FRUGAL_OK : fail_manifest(m, "its homes are damaged");
}

static frugal_status read_manifest_list(manifest *m) {
    m->list = allocate_memory(m->memory, (size_t)m->head.list_bytes, CACHE_LINE);
    if (!m->list) return fail_memory("a manifest", m->head.list_bytes);
    int error = read_at(m->file, m->list, (size_t)m->head.list_bytes, sizeof m->head);
    if (error)
        return error > 0 ? fail_system("read the manifest", error, m->name.path)
                         : fail_manifest(m, "it ends too early");
    if (crc32c(0, m->list, (size_t)m->head.list_bytes) != m->head.list_checksum)
        return fail_manifest(m, "its list is damaged");
    return find_parts(m);
}

/* Opens a manifest, and checks all of it. Whatever this returns, call close_manifest. `memory` must outlive it. */
FRUGAL_INTERNAL frugal_status open_manifest(manifest *m, const char *path, const frugal_desc *memory) {
    struct stat now;
    *m = (manifest){.file = -1, .memory = memory};
    frugal_status status = find_file(path, &m->name);
    if (status != FRUGAL_OK) return status;
    if (!m->name.there) return fail_system("open the save", ENOENT, path);
    if ((status = open_found(&m->name, O_RDONLY, &m->file)) != FRUGAL_OK) return status;
    if (fstat(m->file, &now)) return fail_system("look at the save", errno, path);
    int error = read_at(m->file, &m->head, sizeof m->head, 0);
    if (error > 0) return fail_system("read the manifest", error, path);
    if (error ? !begins_as_manifest(m->file) : !is_manifest_magic(&m->head))
        return frugal_fail(FRUGAL_ERR_FILE,
                           "the manifest of several machines is wanted, and this file is none; `frugal_file split` "
                           "deals a save of one machine: %s",
                           path);
    if (error) return fail_manifest(m, "it ends too early");
    status = check_header(m, (uint64_t)now.st_size);
    if (status == FRUGAL_OK) status = read_manifest_list(m);
    return status == FRUGAL_OK ? check_homes(m) : status;
}

FRUGAL_INTERNAL void close_manifest(manifest *m) {
    if (m->file >= 0) close(m->file);
    release_memory(m->memory, m->list, (size_t)m->head.list_bytes);
    m->file = -1, m->list = NULL;
}

/* The head of a machine's share of a save with this head. */
FRUGAL_INTERNAL saved_file head_of_share(saved_file head, uint32_t machine, uint32_t machines) {
    head.id = share_id(head.id, machine, machines);
    head.parent = share_id(head.parent, machine, machines);
    head.base = share_id(head.base, machine, machines);
    return head;
}

/* Is the save that was opened the machine's share? */
FRUGAL_INTERNAL frugal_status check_share(const manifest *m, uint32_t machine, const saved_reader *r) {
    saved_file head = head_of_share(m->head.head, machine, m->head.machines);
    const manifest_share *share = &m->shares[machine];
    if (!memcmp(&head, &r->head, sizeof head) && share->bytes == r->bytes && share->sums == r->end_sums)
        return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_FILE,
                       "the share of machine %u is another file than was saved: %016llx of %llu bytes is wanted, and "
                       "this is %016llx of %llu; the manifest is %s: %s",
                       machine, (unsigned long long)head.id, (unsigned long long)share->bytes,
                       (unsigned long long)r->head.id, (unsigned long long)r->bytes, (const char *)m->head.stem,
                       r->name);
}

/* >>writing */

/* Makes room for the list: instance p has n_tables[p]. The caller fills in shares, and parts with their tables. */
FRUGAL_INTERNAL frugal_status lay_manifest(manifest *m, const frugal_desc *memory, const uint32_t *n_tables) {
    uint64_t at = m->head.machines * sizeof *m->shares;
    m->memory = memory;
    m->head.list_bytes = at;
    for (uint32_t p = 0; p < m->head.head.parts; p++)
        m->head.list_bytes += sizeof(manifest_part) + n_tables[p] * sizeof(saved_table);
    m->list = allocate_memory(memory, (size_t)m->head.list_bytes, CACHE_LINE);
    if (!m->list) return fail_memory("a manifest", m->head.list_bytes);
    memset(m->list, 0, (size_t)m->head.list_bytes);
    m->shares = (manifest_share *)(void *)m->list;
    for (uint32_t p = 0; p < m->head.head.parts; p++) {
        m->parts[p] = (manifest_part *)(void *)(m->list + at);
        at += sizeof(manifest_part) + n_tables[p] * sizeof(saved_table);
    }
    m->head.bytes = sizeof m->head + m->head.list_bytes;
    return FRUGAL_OK;
}

/* Writes homes[n], the next ones of an instance that is LISTED, or all that are left if n is 0: zeros that fill up its
 * last 8 bytes. Those of an increment are only summed. Returns an errno. */
FRUGAL_INTERNAL int write_homes(manifest *m, int file, const uint8_t *homes, uint64_t n) {
    static const uint8_t zeros[8];
    if (n == 0) homes = zeros, n = saved_filled(m->homes_bytes) - m->homes_bytes;
    int error = m->head.head.kind == SAVED_BASE ? write_at(file, homes, (size_t)n, m->head.bytes) : 0;
    m->head.homes_checksum = crc32c(m->head.homes_checksum, homes, (size_t)n);
    m->homes_bytes += n;
    if (m->head.head.kind == SAVED_BASE) m->head.bytes += n;
    return error;
}

/* Writes the list and the header, when all homes are written. Returns an errno. */
FRUGAL_INTERNAL int write_manifest(manifest *m, int file) {
    manifest_header *h = &m->head;
    memcpy(h->magic, SAVED_MAGIC, SAVED_MAGIC_BYTES);
    h->block = MANIFEST_MAGIC, h->version = MANIFEST_VERSION;
    h->list_checksum = crc32c(0, m->list, (size_t)h->list_bytes);
    h->checksum = 0;
    h->checksum = crc32c(0, h, sizeof *h);
    int error = write_at(file, m->list, (size_t)h->list_bytes, sizeof *h);
    return error ? error : write_at(file, h, sizeof *h, 0);
}

/* >>telling */

/* What a head and an instance say. `bytes`: of the file, and of the shares. */
static void fill_saved(frugal_saved *out, const saved_file *head, const saved_part *part, uint64_t bytes) {
    *out = (frugal_saved){.increment = head->kind == SAVED_INCREMENT,
                          .id = head->id,
                          .parent = head->parent,
                          .base = head->base,
                          .sequence = head->sequence,
                          .bytes = bytes,
                          .parts = head->parts,
                          .n_tables = part->n_tables,
                          .rows = part->rows,
                          .step = part->step,
                          .dim = part->dim,
                          .devices = part->devices,
                          .optimizer = (frugal_optimizer_kind)part->optimizer,
                          .reduce = (frugal_reduce)part->reduce,
                          .rows_as = (frugal_type)part->rows_as,
                          .rounding = (frugal_rounding)part->rounding,
                          .seed = part->seed};
}

static frugal_status tell_manifest(const char *path, uint32_t part, frugal_saved *out) {
    manifest m;
    frugal_status status = open_manifest(&m, path, &(frugal_desc){0});
    if (status == FRUGAL_OK && part >= m.head.head.parts)
        status = frugal_fail(FRUGAL_ERR_ARGUMENT, "instance %u of a save that has %u, from 0: %s", part,
                             m.head.head.parts, path);
    if (status == FRUGAL_OK) {
        uint64_t bytes = m.head.bytes;
        for (uint32_t i = 0; i < m.head.machines; i++) bytes += m.shares[i].bytes;
        fill_saved(out, &m.head.head, &m.parts[part]->part, bytes);
        out->machines = m.head.machines;
    }
    close_manifest(&m);
    return status;
}

frugal_status frugal_read_saved(const char *path, uint32_t part, frugal_saved *out) {
    saved_reader r;
    if (!path || !out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "read_saved: `path` or `out` is NULL");
    if (is_manifest(path)) return tell_manifest(path, part, out);
    frugal_status status = open_saved(&r, path, part, &(frugal_desc){0}, NULL, NULL);
    close_saved(&r);
    if (status == FRUGAL_OK) fill_saved(out, &r.head, &r.part, r.bytes);
    return status;
}
