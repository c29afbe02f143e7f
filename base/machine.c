/* SPDX-License-Identifier: Apache-2.0 */
/* A container or a systemd unit with MemoryMax= has less memory than /proc/meminfo says, and the
 * kernel kills who believes the latter. So the limit of our control group, and of each above it, is
 * asked too. Nothing here fails: what cannot be read limits nothing. */
#include "base/machine.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define V1_LIMIT    "memory.limit_in_bytes"
#define V2_LIMIT    "memory.max"

/* The number in a one-line file; UINT64_MAX if there is none ("max" in a control group). */
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

/* Of the group @path of the hierarchy at @root and of each above it. In a container its path may be
 * the host's, which is not there: the root's limit is the container's then. */
static uint64_t hierarchy_limit(const char *root, const char *path, const char *name)
{
    char directory[PATH_MAX];
    uint64_t limit = UINT64_MAX;

    if (snprintf(directory, sizeof(directory), "%s%s", root, path) >= (int)sizeof(directory))
        return UINT64_MAX;
    while (strlen(directory) >= strlen(root)) {
        limit = MIN(limit, read_limit(directory, name));
        *strrchr(directory, '/') = '\0';
    }
    return limit;
}

/* Our groups are the lines "number:controllers:/path" of /proc/self/cgroup; number 0 and no
 * controllers: that of version 2. */
static uint64_t cgroup_limit(void)
{
    uint64_t limit = MIN(hierarchy_limit(CGROUP_ROOT, "", V2_LIMIT),
                         hierarchy_limit(CGROUP_ROOT "/memory", "", V1_LIMIT));
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];

    if (!file)
        return limit;
    while (fgets(line, sizeof(line), file)) {
        char *const path = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            limit = MIN(limit, hierarchy_limit(CGROUP_ROOT, path, V2_LIMIT));
        else if (path && path - line > 8 && strncmp(path - 8, ":memory:", 8) == 0)
            limit = MIN(limit, hierarchy_limit(CGROUP_ROOT "/memory", path, V1_LIMIT));
    }
    fclose(file);
    return limit;
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
    /* Fails on machines with more than 1024 processors: then all of them. */
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        core_count = CPU_COUNT(&cores);
    if (core_count < 1)
        core_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *ret_machine = (struct machine){
        .memory_bytes = MIN(memory_bytes, cgroup_limit()),
        .core_count = (uint32_t)MAX(core_count, 1),
        /* To which the server raises its limit. */
        .descriptor_limit = getrlimit(RLIMIT_NOFILE, &descriptors) == 0 ? descriptors.rlim_max : 0,
    };
}
