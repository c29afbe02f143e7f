/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the machine's resources. A container or a systemd unit with MemoryMax= has less memory than
 * /proc/meminfo says, and the kernel kills a process that takes more. So the limit of our control
 * group, and of each group above it, counts too. Nothing here fails: a file that cannot be read
 * sets no limit. */
#include "config/machine.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/system/node_memory.h"
#include "base/text/text_after.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Returns the number in a one-line file; UINT64_MAX if there is none ("max" in a control group). */
static uint64_t read_limit(const char *directory, const char *name)
{
    char path[PATH_MAX];
    char line[64];
    uint64_t limit = UINT64_MAX;
    FILE *file;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
        return UINT64_MAX;
    file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    if (fgets(line, sizeof(line), file) && line[0] >= '0' && line[0] <= '9')
        limit = strtoull(line, NULL, 10);
    fclose(file);
    return limit;
}

/* Sums up the lines "name number" of a file whose name is in @names, which ends with NULL. */
static uint64_t read_sum(const char *path, const char *const *names, uint64_t factor)
{
    FILE *const file = fopen(path, "re");
    uint64_t sum = 0;
    char line[128];

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        for (const char *const *name = names; *name; name++) {
            const char *const rest = text_after(line, *name);

            if (rest && *rest && strchr(" :", *rest))
                sum += strtoull(rest + 1, NULL, 10) * factor;
        }
    fclose(file);
    return sum;
}

/* The names of a control group's files, which depend on its version. */
struct group_names {
    const char *limit;
    const char *usage;
    const char *given_back[4]; /* in memory.stat: memory in use that the kernel can reclaim */
};
static const struct group_names v1_names = { "memory.limit_in_bytes",
                                             "memory.usage_in_bytes",
                                             { "total_inactive_file", "total_active_file" } };
static const struct group_names v2_names = {
    "memory.max", "memory.current", { "inactive_file", "active_file", "slab_reclaimable" }
};

static uint64_t limit_of(const char *directory, const struct group_names *names)
{
    return read_limit(directory, names->limit);
}

static uint64_t room_of(const char *directory, const struct group_names *names)
{
    const uint64_t limit = read_limit(directory, names->limit);
    uint64_t used;
    uint64_t given_back;
    char path[PATH_MAX];

    if (limit == UINT64_MAX ||
        snprintf(path, sizeof(path), "%s/memory.stat", directory) >= (int)sizeof(path))
        return limit;
    used = read_limit(directory, names->usage);
    if (used == UINT64_MAX)
        return limit;
    given_back = read_sum(path, names->given_back, 1);
    used -= MIN(used, given_back);
    return limit - MIN(limit, used);
}

typedef uint64_t (*group_figure)(const char *directory, const struct group_names *names);

/* Returns the minimum over the group @path of the hierarchy at @root and each group above it. In a
 * container @path may be the host's, which does not exist there; then the root has the container's
 * limit. */
static uint64_t hierarchy_least(const char *root, const char *path, group_figure figure,
                                const struct group_names *names)
{
    char directory[PATH_MAX];
    uint64_t least = UINT64_MAX;

    if (snprintf(directory, sizeof(directory), "%s%s", root, path) >= (int)sizeof(directory))
        return UINT64_MAX;
    while (strlen(directory) >= strlen(root)) {
        least = MIN(least, figure(directory, names));
        *strrchr(directory, '/') = '\0';
    }
    return least;
}

/* Our groups are the lines "number:controllers:/path" of /proc/self/cgroup. Number 0 without
 * controllers is the version 2 group. */
static uint64_t groups_least(const char *root, group_figure figure)
{
    char v1[PATH_MAX];
    char v2[PATH_MAX];
    char path[PATH_MAX];
    char line[PATH_MAX];
    uint64_t least;
    FILE *file;

    if (snprintf(v2, sizeof(v2), "%s" CGROUP_ROOT, root) >= (int)sizeof(v2) ||
        snprintf(v1, sizeof(v1), "%s" CGROUP_ROOT "/memory", root) >= (int)sizeof(v1) ||
        snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= (int)sizeof(path))
        return UINT64_MAX;
    least =
        MIN(hierarchy_least(v2, "", figure, &v2_names), hierarchy_least(v1, "", figure, &v1_names));
    file = fopen(path, "re");
    if (!file)
        return least;
    while (fgets(line, sizeof(line), file)) {
        char *const group = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            least = MIN(least, hierarchy_least(v2, group, figure, &v2_names));
        else if (group && group - line > 8 && strncmp(group - 8, ":memory:", 8) == 0)
            least = MIN(least, hierarchy_least(v1, group, figure, &v1_names));
    }
    fclose(file);
    return least;
}

uint64_t machine_group_limit_bytes(const char *root)
{
    return groups_least(root, limit_of);
}

uint64_t machine_group_room_bytes(const char *root)
{
    return groups_least(root, room_of);
}

uint64_t machine_available_bytes(void)
{
    static const char *const names[] = { "MemAvailable", NULL };
    const uint64_t bytes = read_sum("/proc/meminfo", names, KIB);

    return MIN(bytes > 0 ? bytes : UINT64_MAX, groups_least("", room_of));
}

uint64_t machine_node_available_bytes(unsigned node)
{
    const long page_bytes = sysconf(_SC_PAGESIZE);
    FILE *const zoneinfo = fopen("/proc/zoneinfo", "re");
    FILE *meminfo;
    uint64_t bytes;
    char path[64];

    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
    meminfo = fopen(path, "re");
    bytes = node_memory_available_bytes(meminfo, zoneinfo, node, (uint64_t)MAX(page_bytes, 0));
    if (meminfo)
        fclose(meminfo);
    if (zoneinfo)
        fclose(zoneinfo);
    return bytes;
}

void machine_read(struct machine *ret_machine)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t memory_bytes = UINT64_MAX;
    struct rlimit descriptors;
    cpu_set_t cores;
    int core_count = 0;

    if (pages > 0 && page_bytes > 0)
        memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    /* Fails on machines with more than 1024 processors: then take all of them. */
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        core_count = CPU_COUNT(&cores);
    if (core_count < 1)
        core_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *ret_machine = (struct machine){
        .memory_bytes = MIN(memory_bytes, groups_least("", limit_of)),
        .available_bytes = machine_available_bytes(),
        .core_count = (uint32_t)MAX(core_count, 1),
        /* The server raises its limit to this. */
        .descriptor_limit = getrlimit(RLIMIT_NOFILE, &descriptors) == 0 ? descriptors.rlim_max : 0,
    };
}
