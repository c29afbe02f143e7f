/* SPDX-License-Identifier: Apache-2.0 */
/* Memory beside DRAM: NUMA nodes without processors (CXL, persistent memory as system memory), DAX
 * devices, namespaces of persistent memory, and mounts with DAX. One that no tier uses is a note:
 * it may belong to another program. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "base/host/place.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/doctor/checks.h"
#include "tools/cli/doctor/dax.h"
#include "tools/cli/doctor/nodes.h"
#include "tools/cli/json_values.h"

#define NAMESPACES "/sys/bus/nd/devices"

struct kinds {
    const struct examination *e;
    struct nodes nodes;
    struct dax_devices devices;
    size_t found; /* kinds beside DRAM */
};

static bool has_tier(const struct config *config, enum tier_kind kind, int node)
{
    for (uint32_t t = 0; config && t < config->cache.tier_count; t++)
        if (config->cache.tiers[t].kind == kind &&
            (kind != TIER_KIND_NUMA || config->cache.tiers[t].numa_node == node))
            return true;
    return false;
}

/* A finding about memory that a tier could use. Without a configuration it is not known. */
static void add(struct kinds *kinds, const char *name, bool is_used, uint64_t bytes,
                const char *text, const char *advice)
{
    const bool is_note = kinds->e->config && !is_used;

    kinds->found++;
    findings_add(kinds->e->findings,
                 (struct finding){
                     .name = SAY("memory_kinds.%s", name),
                     .state = is_note ? FINDING_NOTE : FINDING_GOOD,
                     .value = bytes ? cli_json_u64(bytes) : NULL,
                     .text = SAY("%s%s", text, is_note ? "; no tier uses it" : ""),
                     .advice = advice,
                 });
}

/* ---- Nodes and devices ---- */

static bool is_dax_node(const struct dax_devices *devices, uint32_t node)
{
    for (size_t i = 0; i < devices->count; i++)
        if (devices->devices[i].is_system_memory && devices->devices[i].node == node)
            return true;
    return false;
}

static void add_node(struct kinds *kinds, const struct node *node)
{
    const struct config *const config = kinds->e->config;
    const bool is_dax = is_dax_node(&kinds->devices, node->number);

    add(kinds, SAY("node%u", node->number),
        has_tier(config, TIER_KIND_NUMA, (int)node->number) ||
            (is_dax && has_tier(config, TIER_KIND_DAX_KMEM, 0)),
        node->bytes,
        SAY("NUMA node %u has %s and no processors: %s", node->number, BYTES_TEXT(node->bytes),
            is_dax ? "a DAX device as system memory" : "CXL, or memory of another kind"),
        is_dax ? "add {name: pmem, kind: dax_kmem, bytes: SIZE} to cache.tiers"
               : SAY("add {name: cxl, kind: numa, numa_node: %u, bytes: SIZE} to cache.tiers",
                     node->number));
}

/* One as system memory is its node's finding. */
static void add_device(struct kinds *kinds, const struct dax_device *device)
{
    if (device->is_system_memory)
        return;
    add(kinds, device->name.text, false, device->bytes,
        SAY("DAX device %s has %s, and is not system memory", TEXT_SHOWN(device->name.text),
            BYTES_TEXT(device->bytes)),
        SAY("daxctl reconfigure-device --mode=system-ram %s, then add {name: pmem, kind: dax_kmem, "
            "bytes: SIZE} to cache.tiers",
            TEXT_SHOWN(device->name.text)));
}

/* ---- Namespaces and mounts ---- */

struct dax_mounts {
    struct kinds *kinds;
    size_t count;
};

static bool has_tier_at(const struct examination *e, uint64_t mount_id)
{
    struct statx info;

    for (uint32_t t = 0; e->config && t < e->config->cache.tier_count; t++)
        if (e->config->cache.tiers[t].kind == TIER_KIND_FILE &&
            e->host->look(e->config->cache.tiers[t].path, &info) == 0 &&
            (info.stx_mask & STATX_MNT_ID) && info.stx_mnt_id == mount_id)
            return true;
    return false;
}

static bool take_mount(const struct mount *mount, void *context)
{
    struct dax_mounts *const mounts = context;

    if (!mount->has_dax)
        return true;
    mounts->count++;
    add(mounts->kinds, SAY("mount%" PRIu64, mount->id), has_tier_at(mounts->kinds->e, mount->id), 0,
        SAY("%s is mounted with DAX at %s", TEXT_SHOWN(mount->source.text),
            TEXT_SHOWN(mount->point.text)),
        SAY("add {name: pmem, kind: file, path: %s, bytes: SIZE} to cache.tiers",
            PATH_SHOWN(mount->point.text)));
    return true;
}

/* Returns what to do with a namespace that nothing else here shows in use. NULL: nothing. */
static const char *namespace_advice(const char *mode, size_t mounts)
{
    if (strcmp(mode, "fsdax") == 0 || strcmp(mode, "memory") == 0)
        return mounts > 0 ? NULL
                          : "mkfs.ext4 /dev/pmem0; mount -o dax=always /dev/pmem0 /mnt/pmem; then "
                            "add {name: pmem, kind: file, path: /mnt/pmem, bytes: SIZE} to "
                            "cache.tiers";
    if (strcmp(mode, "devdax") == 0 || strcmp(mode, "dax") == 0)
        return NULL; /* its DAX device has a finding */
    return "ndctl create-namespace --force --reconfig=NAMESPACE --mode=fsdax, which loses what is "
           "in it";
}

static void add_namespace(struct kinds *kinds, const char *name, size_t mounts)
{
    const struct host *const host = kinds->e->host;
    struct host_line mode;
    const char *advice;
    uint64_t bytes;

    if (!host_number(host, &bytes, NAMESPACES "/%s/size", name) || bytes == 0 ||
        !host_line(host, &mode, NAMESPACES "/%s/mode", name))
        return; /* a seed: a namespace that is not made yet */
    advice = namespace_advice(mode.text, mounts);
    add(kinds, name, !advice, bytes,
        SAY("persistent memory %s has %s in mode %s", TEXT_SHOWN(name), BYTES_TEXT(bytes),
            TEXT_SHOWN(mode.text)),
        advice);
}

static void add_mounts_and_namespaces(struct kinds *kinds)
{
    struct dax_mounts mounts = { .kinds = kinds };
    struct host_names names;

    mounts_each(kinds->e->host, take_mount, &mounts);
    host_names_read(kinds->e->host, "namespace", &names, NAMESPACES);
    for (size_t i = 0; i < names.count; i++)
        add_namespace(kinds, names.names[i], mounts.count);
    host_names_clear(&names);
}

void check_memory_kinds(const struct examination *e)
{
    struct kinds kinds = { .e = e };

    nodes_read(e->host, &kinds.nodes);
    dax_devices_read(e->host, &kinds.devices);
    for (size_t i = 0; i < kinds.nodes.count; i++)
        if (node_is_far(&kinds.nodes.nodes[i]))
            add_node(&kinds, &kinds.nodes.nodes[i]);
    for (size_t i = 0; i < kinds.devices.count; i++)
        add_device(&kinds, &kinds.devices.devices[i]);
    add_mounts_and_namespaces(&kinds);
    if (kinds.found == 0)
        findings_add(e->findings,
                     (struct finding){ .name = "memory_kinds",
                                       .text = "DRAM only: no CXL node, DAX device or persistent "
                                               "memory was found" });
    nodes_clear(&kinds.nodes);
    dax_devices_clear(&kinds.devices);
}
