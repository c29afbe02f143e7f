/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/node_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

struct parts {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t file_bytes; /* page cache */
    uint64_t slab_bytes; /* reclaimable slabs */
};

/* Pages that the kernel does not give to a process. */
struct reserve {
    uint64_t kept_pages;
    uint64_t low_pages; /* the low watermark: above it the kernel reclaims no pages */
};

static void read_parts(FILE *meminfo, struct parts *ret_parts)
{
    char line[128], name[64];
    uint64_t kib;

    while (fgets(line, sizeof(line), meminfo)) {
        if (sscanf(line, "Node %*u %63[^:]: %" SCNu64, name, &kib) != 2)
            continue;
        if (strcmp(name, "MemTotal") == 0)
            ret_parts->total_bytes = kib * KIB;
        else if (strcmp(name, "MemFree") == 0)
            ret_parts->free_bytes = kib * KIB;
        else if (strcmp(name, "Active(file)") == 0 || strcmp(name, "Inactive(file)") == 0)
            ret_parts->file_bytes += kib * KIB;
        else if (strcmp(name, "SReclaimable") == 0)
            ret_parts->slab_bytes = kib * KIB;
    }
}

/* Returns the largest number of @list, such as "(0, 3019, 24090)". */
static uint64_t largest(const char *list)
{
    uint64_t most = 0;

    while (list) {
        const uint64_t number = strtoull(list + 1, NULL, 10);

        most = MAX(most, number);
        list = strchr(list + 1, ',');
    }
    return most;
}

/* A zone's lines up to "protection" stand in this order: low, high, managed. Per-processor lines
 * follow, with a colon after "high". */
static struct reserve read_reserve(FILE *zoneinfo, unsigned node)
{
    struct reserve sum = { 0 };
    uint64_t low = 0, high = 0, managed = 0, number;
    bool is_of_node = false;
    char line[512];
    unsigned owner;

    while (fgets(line, sizeof(line), zoneinfo)) {
        if (sscanf(line, "Node %u, zone", &owner) == 1) {
            is_of_node = owner == node;
            low = high = managed = 0;
        } else if (!is_of_node) {
            continue;
        } else if (sscanf(line, " low %" SCNu64, &number) == 1) {
            low = number;
        } else if (sscanf(line, " high %" SCNu64, &number) == 1) {
            high = number;
        } else if (sscanf(line, " managed %" SCNu64, &number) == 1) {
            managed = number;
        } else if (strstr(line, "protection: (")) {
            sum.kept_pages += MIN(managed, high + largest(strchr(line, '(')));
            sum.low_pages += MIN(managed, low);
        }
    }
    return sum;
}

/* Half of the reclaimable @bytes stays, or the low watermark if that is less. */
static uint64_t taken_back(uint64_t bytes, uint64_t low_bytes)
{
    return bytes - MIN(bytes / 2, low_bytes);
}

uint64_t node_memory_available_bytes(FILE *meminfo, FILE *zoneinfo, unsigned node,
                                     uint64_t page_bytes)
{
    struct parts parts = { 0 };
    struct reserve reserve = { 0 };
    uint64_t bytes;

    if (meminfo)
        read_parts(meminfo, &parts);
    if (parts.total_bytes == 0)
        return UINT64_MAX;
    if (zoneinfo)
        reserve = read_reserve(zoneinfo, node);
    bytes = parts.free_bytes + taken_back(parts.file_bytes, reserve.low_pages * page_bytes) +
            taken_back(parts.slab_bytes, reserve.low_pages * page_bytes);
    return bytes - MIN(bytes, reserve.kept_pages * page_bytes);
}
