/* shares.c - frugal_save. Of an instance that is dealt over machines it is collective: each machine writes its share,
 * and when all are on the disk, machine 0 writes the manifest that names them.
 *
 * The machines speak: may all save, and what? Then, every second or when a share is written: are all on the disk? So
 * none waits for long, however slow another one's disk is. Last: is the manifest there? What one of them says fails the
 * call on all, with its reason. A machine that has said that its share is on the disk keeps it
 * until it knows that there is no manifest; so no manifest ever names a share that is gone. A share that is left over
 * is removed by the next save of that name.
 *
 * Contents: >>speaking >>writing >>saving
 */
#include "access.h"

typedef struct save_word { /* what a machine says */
    uint64_t id, tag;      /* drawn; those of machine 0 are taken */
    uint64_t parent, base, sequence;
    uint64_t bytes; /* of its share */
    uint32_t sums, status, parts, increment;
    uint32_t done, named; /* its share is on the disk; the manifest has its name */
    char why[300];
} save_word;

typedef struct dealt_save {
    frugal *const *instances; /* [n] */
    uint32_t n;
    const frugal_save_desc *desc;
    frugal *f; /* the first, by whose wire the machines speak */
    save_word mine, *all;
    saved_file set; /* the head that the manifest gets; those of the shares follow from it */
    save_job job;
    file_name name; /* of the share */
    pthread_mutex_t lock;
    pthread_cond_t written; /* `done` is set */
    int done;               /* the share is written, or has failed; under the lock, as the next two */
    frugal_status status;
    char why[sizeof last_message];
    manifest m;
    new_file file; /* the manifest, on machine 0 */
    int is_sure;   /* 1: it is known whether there is a manifest */
    int said;      /* 1: the others may know that the share is on the disk */
} dealt_save;

/* >>speaking */

/* Do all save the same, and continue the same? */
static frugal_status check_words(const dealt_save *s) {
    const save_word *first = &s->all[0];
    for (uint32_t i = 1; i < s->f->dealing->machines; i++) {
        const save_word *w = &s->all[i];
        if (w->parts != first->parts || w->increment != first->increment)
            return frugal_fail(
                FRUGAL_ERR_ARGUMENT,
                "save: machine %u saves %s of %u instances, and machine 0 %s of %u; save the same on all", i,
                w->increment ? "an increment" : "a base", w->parts, first->increment ? "an increment" : "a base",
                first->parts);
        if (first->increment && (w->parent != first->parent || w->sequence != first->sequence))
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: the increment continues %016llx, number %llu, on machine %u, and %016llx, number "
                               "%llu, on machine 0; save a base first",
                               (unsigned long long)w->parent, (unsigned long long)w->sequence, i,
                               (unsigned long long)first->parent, (unsigned long long)first->sequence);
    }
    return FRUGAL_OK;
}

/* Tells the others of this machine's status, and returns the first that is not OK. *is_known: 0: the others could not
 * be heard. */
static frugal_status agree(dealt_save *s, frugal_status status, int *is_known) {
    const char *text = frugal_message(), *why = strstr(text, ": ");
    s->mine.status = (uint32_t)status;
    copy_text(s->mine.why, sizeof s->mine.why, status == FRUGAL_OK ? "" : why ? why + 2 : text);
    frugal_status met = meet_all(s->f, MEET_SAVE, &s->mine, sizeof s->mine, s->all);
    *is_known = met == FRUGAL_OK;
    if (met != FRUGAL_OK) return status == FRUGAL_OK ? met : status;
    if (status != FRUGAL_OK) return frugal_fail(status, "%s", s->mine.why);
    for (uint32_t i = 0; i < s->f->dealing->machines; i++)
        if (s->all[i].status != FRUGAL_OK)
            return frugal_fail((frugal_status)s->all[i].status, "machine %u: %.*s", i, (int)sizeof s->all[i].why,
                               s->all[i].why);
    return FRUGAL_OK;
}

/* >>writing */

/* Writes this machine's share, and gives it its name. It stays open, and so locked: the next save of this name removes
 * shares that no process has. */
static frugal_status write_share(dealt_save *s) {
    const dealing *g = s->f->dealing;
    char path[LONGEST_PATH];
    int error = name_share(&s->m, g->me, path);
    if (error) return fail_system("name a share", error, s->desc->path);
    frugal_status status = find_file(path, &s->name);
    if (status == FRUGAL_OK) status = write_save(&s->job, &s->name);
    return status == FRUGAL_OK ? publish_new(&s->job.file, 0) : status;
}

static void *write_in_thread(void *argument) {
    dealt_save *s = argument;
    frugal_status status = write_share(s);
    pthread_mutex_lock(&s->lock);
    s->done = 1, s->status = status;
    memcpy(s->why, last_message, sizeof s->why);
    pthread_cond_signal(&s->written);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Waits for the share, a second at most. */
static int is_written(dealt_save *s, frugal_status *status) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&s->lock);
    while (!s->done && !pthread_cond_timedwait(&s->written, &s->lock, &until)) {
    }
    int done = s->done;
    *status = done ? s->status : FRUGAL_OK;
    if (done) memcpy(last_message, s->why, sizeof s->why);
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* Writes the share, and speaks meanwhile, until all are written or one has failed. */
static frugal_status write_shares(dealt_save *s) {
    pthread_t writer;
    frugal_status status;
    int all = 0, is_known = 1;
    saved_file head = head_of_share(s->set, s->f->dealing->me, s->f->dealing->machines);
    begin_job(&s->job, s->instances, &head); /* here: it takes locks that end_job, in this thread, gives back */
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->written, NULL);
    int error = start_quiet_thread(&writer, write_in_thread, s);
    if (error) write_in_thread(s);
    do {
        if ((s->mine.done = (uint32_t)is_written(s, &status)))
            s->mine.bytes = s->job.file_bytes, s->mine.sums = s->job.end_sums;
        s->said = s->mine.done && status == FRUGAL_OK; /* whether or not they can be heard */
        status = agree(s, status, &is_known);
        all = 1;
        for (uint32_t i = 0; is_known && i < s->f->dealing->machines; i++) all &= (int)s->all[i].done;
    } while (status == FRUGAL_OK && !all);
    if (!error) pthread_join(writer, NULL);
    pthread_cond_destroy(&s->written);
    pthread_mutex_destroy(&s->lock);
    s->is_sure = is_known; /* that there is no manifest, if one of them has failed */
    return status;
}

/* Are the shares of the other machines in this folder, too, and as they were written? */
static frugal_status look_for_shares(const dealt_save *s) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t i = 0; i < s->f->dealing->machines && status == FRUGAL_OK; i++) {
        char path[LONGEST_PATH];
        saved_reader r;
        int error = name_share(&s->m, i, path);
        if (error) return fail_system("name a share", error, s->desc->path);
        if (access(path, F_OK))
            return frugal_fail(FRUGAL_ERR_FILE,
                               "machine %u has written its share, and it is not seen here: give a folder that all "
                               "machines share: %s",
                               i, path);
        status = open_saved(&r, path, 0, &s->f->desc, NULL, NULL);
        if (status == FRUGAL_OK) status = check_share(&s->m, i, &r);
        close_saved(&r);
    }
    return status;
}

static frugal_status lay_dealt(dealt_save *s) {
    uint32_t n_tables[SAVED_MOST_PARTS];
    for (uint32_t p = 0; p < s->n; p++) n_tables[p] = s->instances[p]->desc.n_tables;
    s->m.head.head = s->set;
    frugal_status status = lay_manifest(&s->m, &s->f->desc, n_tables);
    for (uint32_t p = 0; p < s->n && status == FRUGAL_OK; p++) {
        const frugal *f = s->instances[p];
        saved_table *tables = (saved_table *)(s->m.parts[p] + 1);
        s->m.parts[p]->deal = (uint32_t)f->dealing->deal, s->m.parts[p]->part = describe_part(f);
        s->m.parts[p]->part.rows = f->dealing->ids;
        for (uint32_t t = 0; t < n_tables[p]; t++) tables[t] = describe_table(f, t), tables[t].rows = keys_of(f, t);
    }
    for (uint32_t i = 0; i < s->f->dealing->machines && status == FRUGAL_OK; i++)
        s->m.shares[i] = (manifest_share){.bytes = s->all[i].bytes, .sums = s->all[i].sums};
    return status;
}

/* Of all instances that have them. Returns an errno. */
static int write_all_homes(dealt_save *s) {
    uint8_t homes[HOMES_PIECE];
    int error = 0;
    for (uint32_t p = 0; p < s->n; p++) {
        const dealing *g = s->instances[p]->dealing;
        if (g->deal != FRUGAL_DEAL_LISTED) continue;
        for (uint64_t id = 0, n; id < g->ids && !error; id += n) {
            n = LEAST(g->ids - id, sizeof homes);
            for (uint64_t i = 0; i < n; i++) homes[i] = (uint8_t)home_of_id(g, id + i);
            error = write_homes(&s->m, s->file.file, homes, n);
        }
        if (!error) error = write_homes(&s->m, s->file.file, NULL, 0);
    }
    return error;
}

/* Machine 0 writes the manifest. */
static frugal_status write_dealt(dealt_save *s) {
    file_name now; /* writing takes time: another file may have the name by now */
    int is_manifest;
    frugal_status status = lay_dealt(s);
    if (status == FRUGAL_OK) status = look_for_shares(s);
    if (status == FRUGAL_OK) status = begin_file(&s->file, &s->m.name);
    if (status != FRUGAL_OK) return status;
    int error = write_all_homes(s);
    if (!error) error = write_manifest(&s->m, s->file.file);
    if (error) return fail_write(s->m.head.bytes, error, s->desc->path);
    status = find_file(s->desc->path, &now);
    if (status == FRUGAL_OK) status = check_replaced(&now, s->desc, s->f, &is_manifest);
    if (status == FRUGAL_OK) status = publish_new(&s->file, s->desc->replace && now.there);
    s->mine.named = (uint32_t)s->file.named;
    if (status == FRUGAL_OK) remove_old_shares(&s->m);
    return status;
}

/* >>saving */

static frugal_status check_machines_of(const dealt_save *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->instances[i]->dealing || s->instances[i]->dealing->machines != s->f->dealing->machines ||
            s->instances[i]->dealing->me != s->f->dealing->me)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "save: instance 0 is dealt over %u machines, and instance %u is not, or otherwise "
                               "numbered: save them apart",
                               s->f->dealing->machines, i);
    return FRUGAL_OK;
}

/* May this machine save, and what? */
static frugal_status prepare(dealt_save *s) {
    frugal_status status = check_save(s->instances, s->n, s->desc);
    if (status == FRUGAL_OK) status = check_machines_of(s);
    if (status != FRUGAL_OK) return status;
    s->set = head_of_save(s->instances, s->n, s->desc->increment);
    s->mine.id = s->set.id, s->mine.tag = draw_number();
    s->mine.parent = s->set.parent, s->mine.sequence = s->set.sequence;
    s->mine.parts = s->n, s->mine.increment = s->desc->increment != 0;
    int is_manifest;
    status = begin_names(&s->m, s->desc->path, s->f->dealing->machines, 0);
    if (status != FRUGAL_OK || s->f->dealing->me != 0) return status;
    return check_replaced(&s->m.name, s->desc, s->f, &is_manifest);
}

/* All machines may save, and have said what. */
static frugal_status save_share(dealt_save *s) {
    int is_known;
    s->set.id = s->all[0].id, s->m.head.tag = s->all[0].tag;
    if (s->set.kind == SAVED_BASE) s->set.base = s->set.id;
    frugal_status status = write_shares(s);
    if (status != FRUGAL_OK) return status;
    s->is_sure = s->f->dealing->me == 0;
    if (s->f->dealing->me == 0) status = write_dealt(s);
    status = agree(s, status, &is_known);
    s->is_sure |= is_known;
    if (is_known) s->mine.named = s->all[0].named;
    return status;
}

static frugal_status save_dealt(frugal *const *instances, uint32_t n, const frugal_save_desc *desc) {
    dealt_save s = {.instances = instances, .n = n, .desc = desc, .f = instances[0], .m = {.file = -1}};
    size_t bytes = s.f->dealing->machines * sizeof *s.all;
    int is_known;
    s.file.file = s.file.folder = -1;
    if (!(s.all = frugal_allocate(s.f, bytes, CACHE_LINE))) return fail_memory("what machines say of a save", bytes);
    frugal_status status = agree(&s, prepare(&s), &is_known);
    if (status == FRUGAL_OK) status = check_words(&s);
    if (status == FRUGAL_OK) {
        status = save_share(&s);
        int named = s.mine.named || !s.is_sure; /* perhaps there is a manifest */
        if (status != FRUGAL_OK && s.job.file.named && (!s.said || !named)) unlink(s.name.path);
        end_job(&s.job, status, named, &s.set);
    }
    drop_new(&s.file);
    close_manifest(&s.m);
    frugal_free(s.f, s.all, bytes);
    return status;
}

frugal_status frugal_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc) {
    if (instances && n > 0 && instances[0] && is_usable(instances[0]) && instances[0]->dealing)
        return save_dealt(instances, n, desc);
    frugal_status status = check_save(instances, n, desc);
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++)
        if (instances[i]->dealing)
            status = frugal_fail(FRUGAL_ERR_ARGUMENT,
                                 "save: instance %u is dealt over %u machines, and instance 0 is not: save them apart",
                                 i, instances[i]->dealing->machines);
    if (status != FRUGAL_OK) return status;
    saved_file head = head_of_save(instances, n, desc->increment);
    return save_as(instances, &head, desc);
}
