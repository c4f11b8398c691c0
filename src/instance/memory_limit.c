/* memory_limit.c - is there as much memory as an instance asks for?
 *
 * Linux maps more memory than there is, and ends a process (SIGKILL) when its pages are touched later. So what cannot
 * fit is refused here, before anything is allocated. What bounds it: RAM and swap; and the limits of the process's
 * control group and of the groups above it (cgroup v2, v1, or both). Another system tells nothing, and nothing is
 * refused there.
 *
 * Contents: >>reading >>groups >>checking
 */
#include "instance.h"

#define UNLIMITED       UINT64_MAX
#define LEAST_CHECKED   (UINT64_C(16) << 20) /* bytes: less fits anywhere, and is not worth reading files for */
#define LARGEST_LIMIT_1 (UINT64_C(1) << 60)  /* cgroup v1 writes "no limit" as a number near 2^63 */

enum { MOST_PATH = 1024 };

typedef struct memory_room {
    uint64_t limit, available;     /* bytes: in all; now. UNLIMITED: not known */
    uint64_t swap, swap_available; /* the system's */
    char of[MOST_PATH + 16];       /* what sets the limit, in words */
} memory_room;

/* >>reading */

/* A number behind `key` in the file root/folder/name; `key` "": the first one. Returns `missing` if there is no such
 * file or key, and UNLIMITED for "max". */
static uint64_t system_number(const char *root, const char *folder, const char *name, const char *key,
                              uint64_t missing) {
    char path[2 * MOST_PATH], line[256];
    uint64_t found = missing;
    size_t length = strlen(key);
    if (snprintf(path, sizeof path, "%s%s/%s", root, folder, name) >= (int)sizeof path) return missing;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && (length == 0 || strchr(" :", line[length]))) {
            const char *at = line + length + strspn(line + length, ": ");
            found = !strncmp(at, "max", 3) ? UNLIMITED : strtoull(at, NULL, 10);
            break;
        }
    if (file) fclose(file);
    return found;
}

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static uint64_t limited_sum(uint64_t a, uint64_t b) {
    return a > UNLIMITED - b ? UNLIMITED : a + b;
}

static void read_system(const char *root, memory_room *room) {
    const char *of = "/proc";
    uint64_t total = system_number(root, of, "meminfo", "MemTotal", 0);
    uint64_t available = system_number(root, of, "meminfo", "MemAvailable", total);
    room->limit = room->available = UNLIMITED;
    room->swap = system_number(root, of, "meminfo", "SwapTotal", 0) * 1024; /* kB there */
    room->swap_available = system_number(root, of, "meminfo", "SwapFree", 0) * 1024;
    snprintf(room->of, sizeof room->of, "RAM and swap");
    if (total == 0) return;
    room->limit = total * 1024 + room->swap;
    room->available = available * 1024 + room->swap_available;
}

/* >>groups */

/* The files of a group, in both versions. */
typedef struct group_files {
    const char *limit, *used, *swap_limit, *swap_used, *inactive, *active;
    int swap_has_all; /* 1: the limit of swap, and its use, are of memory and swap together */
} group_files;

static const group_files group_1 = {.limit = "memory.limit_in_bytes",
                                    .used = "memory.usage_in_bytes",
                                    .swap_limit = "memory.memsw.limit_in_bytes",
                                    .swap_used = "memory.memsw.usage_in_bytes",
                                    .inactive = "total_inactive_file",
                                    .active = "total_active_file",
                                    .swap_has_all = 1};
static const group_files group_2 = {.limit = "memory.max",
                                    .used = "memory.current",
                                    .swap_limit = "memory.swap.max",
                                    .swap_used = "memory.swap.current",
                                    .inactive = "inactive_file",
                                    .active = "active_file"};

/* Lowers the room to what the group of this folder has. Pages of files that it has read count as available. */
static void lower_to_group(const char *root, const char *folder, const group_files *files, memory_room *room) {
    uint64_t limit = system_number(root, folder, files->limit, "", UNLIMITED);
    uint64_t swap_limit = system_number(root, folder, files->swap_limit, "", UNLIMITED);
    uint64_t files_read = limited_sum(system_number(root, folder, "memory.stat", files->inactive, 0),
                                      system_number(root, folder, "memory.stat", files->active, 0));
    uint64_t used = minus(system_number(root, folder, files->used, "", 0), files_read);
    uint64_t swap_used = system_number(root, folder, files->swap_used, "", 0);
    uint64_t all = UNLIMITED, available = UNLIMITED;
    if (limit >= LARGEST_LIMIT_1) limit = UNLIMITED;
    if (swap_limit >= LARGEST_LIMIT_1) swap_limit = UNLIMITED;
    if (limit != UNLIMITED) {
        uint64_t swap = files->swap_has_all ? room->swap : LEAST(swap_limit, room->swap);
        uint64_t swap_left = files->swap_has_all ? UNLIMITED : minus(swap_limit, swap_used);
        all = limited_sum(limit, swap);
        available = limited_sum(minus(limit, used), LEAST(swap_left, room->swap_available));
    }
    if (files->swap_has_all && swap_limit != UNLIMITED) {
        all = LEAST(all, swap_limit);
        available = LEAST(available, minus(swap_limit, minus(swap_used, files_read)));
    }
    if (available < room->available) room->available = available;
    if (all >= room->limit) return;
    room->limit = all;
    snprintf(room->of, sizeof room->of, "of the group %.*s", (int)sizeof room->of - 16, folder);
}

/* Is the word one of a list that commas separate? */
static int is_listed(const char *word, const char *list) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return 1;
    return 0;
}

/* Finds where groups of this kind are mounted, and which group is the root there. Returns 0 if they are not. */
static int find_mount(const char *root, const group_files *files, char mount[MOST_PATH], char top[MOST_PATH]) {
    char path[2 * MOST_PATH], line[4 * MOST_PATH];
    int found = 0;
    if (snprintf(path, sizeof path, "%s/proc/self/mountinfo", root) >= (int)sizeof path) return 0;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char kind[32] = "", options[MOST_PATH] = "";
        const char *behind = strstr(line, " - ");
        if (!behind || sscanf(line, "%*s %*s %*s %1023s %1023s", top, mount) != 2) continue;
        if (sscanf(behind, " - %31s %*s %1023s", kind, options) != 2) continue;
        found = files == &group_2 ? !strcmp(kind, "cgroup2") : !strcmp(kind, "cgroup") && is_listed("memory", options);
    }
    if (file) fclose(file);
    return found;
}

/* Lowers the room to that of the group and of all above it. In a container the group's name may be one outside. */
static void lower_to_groups(const char *root, const char *group, const group_files *files, memory_room *room) {
    char mount[MOST_PATH], top[MOST_PATH], folder[2 * MOST_PATH];
    if (!find_mount(root, files, mount, top)) return;
    size_t length = strcmp(top, "/") ? strlen(top) : 0, base = strlen(mount);
    int is_below = !strncmp(group, top, length) && (group[length] == 0 || group[length] == '/');
    if (snprintf(folder, sizeof folder, "%s%s", mount, is_below && !strstr(group, "/..") ? group + length : "") >=
        (int)sizeof folder)
        return;
    for (;;) {
        size_t end = strlen(folder);
        while (end > base && folder[end - 1] == '/') end--;
        folder[end] = 0;
        lower_to_group(root, folder, files, room);
        if (end <= base) return;
        while (end > base && folder[end - 1] != '/') end--;
        folder[end] = 0;
    }
}

/* What memory there is for this process. `root`: "", or a folder with files of /proc and /sys, for tests. */
static void find_room(const char *root, memory_room *room) {
    char path[2 * MOST_PATH], line[2 * MOST_PATH];
    read_system(root, room);
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) { /* number:controllers:group */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = 0, *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (*controllers == 0)
            lower_to_groups(root, group, &group_2, room);
        else if (is_listed("memory", controllers))
            lower_to_groups(root, group, &group_1, room);
    }
    if (file) fclose(file);
}

/* >>checking */

/* May `bytes` be allocated? What never fits is refused; what does not fit now is told. `what` begins the message, and
 * `remedy` ends it. */
FRUGAL_INTERNAL frugal_status check_memory(frugal *f, const char *root, uint64_t bytes, const char *what,
                                           const char *remedy) {
    memory_room room;
    if (bytes < LEAST_CHECKED) return FRUGAL_OK;
    find_room(root, &room);
    if (bytes > room.limit)
        return frugal_fail(FRUGAL_ERR_MEMORY, "%s takes %llu bytes of memory, and the limit is %llu bytes (%s): %s",
                           what, (unsigned long long)bytes, (unsigned long long)room.limit, room.of, remedy);
    if (bytes > room.available)
        give_notice(f,
                    "%s takes %llu bytes of memory, and %llu bytes are available now, of %llu (%s): unless others give "
                    "memory back, the system will swap, or end this process",
                    what, (unsigned long long)bytes, (unsigned long long)room.available, (unsigned long long)room.limit,
                    room.of);
    return FRUGAL_OK;
}
