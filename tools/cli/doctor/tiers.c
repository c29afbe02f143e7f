/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers whose memory is a file, a NUMA node, or a DAX device as system memory. Those in DRAM are in
 * memory.c. */
#include <jansson.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/doctor/dax.h"
#include "tools/cli/doctor/directory.h"
#include "tools/cli/doctor/nodes.h"
#include "tools/cli/json_values.h"

/* ---- Files ---- */

/* Tiers on one file system share its space. */
static uint64_t wanted_bytes(const struct examination *e, const struct directory *directory,
                             uint32_t last)
{
    const struct tier_spec *const tiers = e->config->cache.tiers;
    uint64_t bytes = tiers[last].bytes;
    struct statx info;

    for (uint32_t t = 0; t < last; t++)
        if (tiers[t].kind == TIER_KIND_FILE && e->host->look(tiers[t].path, &info) == 0 &&
            info.stx_dev_major == directory->info.stx_dev_major &&
            info.stx_dev_minor == directory->info.stx_dev_minor)
            bytes += tiers[t].bytes;
    return bytes;
}

/* Returns the number of a data directory on the device of @directory, or the count of them. */
static uint32_t shared_data(const struct examination *e, const struct directory *directory)
{
    uint32_t i = 0;

    for (; i < e->config->data.directory_count; i++) {
        struct place place;
        struct statx info;

        if (e->host->look(e->config->data.directories[i], &info) != 0)
            continue;
        place_read(e->host, &info, &place);
        if (place_is_shared(&place, &directory->place))
            break;
    }
    return i;
}

/* Memory, or persistent memory by DAX. */
static bool is_fast(const struct place *place)
{
    const char *const name = place->mount.file_system.text;

    return place->mount.has_dax || strcmp(name, "tmpfs") == 0 || strcmp(name, "ramfs") == 0 ||
           strcmp(name, "hugetlbfs") == 0;
}

static void add_speed(const struct examination *e, const struct directory *directory)
{
    const struct place *const place = &directory->place;
    const bool is_dax = place->mount.has_dax;
    const uint32_t shared = shared_data(e, directory);
    const bool is_slow = !is_fast(place);
    const char *kind = "a file system without DAX: pages of it are read from its device";

    if (is_dax)
        kind = "DAX: persistent memory without copies";
    else if (!is_slow)
        kind = "memory";
    findings_add(e->findings,
                 (struct finding){
                     .name = SAY("%s.file_system", directory->key),
                     .state = is_slow ? FINDING_WARN : FINDING_GOOD,
                     .value = cli_json_text(place->mount.file_system.text),
                     .text = SAY("%s at %s, %s%s", TEXT_SHOWN(place->mount.file_system.text),
                                 TEXT_SHOWN(place->mount.point.text), kind,
                                 is_slow && shared < e->config->data.directory_count
                                     ? SAY("; on the device of data.directories[%u]", shared)
                                     : ""),
                     .advice = "mount persistent memory there (mkfs.ext4 /dev/pmem0; mount -o "
                               "dax=always); without such memory drop the tier: rows in a file on "
                               "an SSD are no faster than the store",
                 });
}

/* A server that runs has its files there already, so only a file system that is too small as a
 * whole is bad. */
static void add_space(const struct examination *e, const struct directory *directory,
                      uint64_t wanted)
{
    struct statvfs room;
    const bool is_small = e->host->room(directory->path, &room) == 0 &&
                          wanted > (uint64_t)room.f_blocks * room.f_frsize;

    directory_add_space(e, directory, is_small ? wanted : 0, wanted,
                        is_small ? ""
                                 : "nothing if an embtierd that runs has its tiers there; else ");
}

static void check_file(const struct examination *e, uint32_t t)
{
    const char *const key = SAY("cache.tiers[%u].path", t);
    struct directory directory;

    directory_examine(e, key, e->config->cache.tiers[t].path, false, &directory);
    if (!directory.is_usable)
        return;
    if (directory.place.has_mount)
        add_speed(e, &directory);
    else
        directory_add_file_system(e, &directory);
    add_space(e, &directory, wanted_bytes(e, &directory, t));
}

/* ---- Nodes ---- */

static void add_node(const struct examination *e, uint32_t t, const struct node *node)
{
    const struct tier_spec *const tier = &e->config->cache.tiers[t];
    const bool is_small = tier->bytes > node->bytes;
    const bool is_full = tier->bytes > node->available_bytes;
    enum finding_state state = FINDING_GOOD;

    if (is_small)
        state = FINDING_BAD;
    else if (is_full)
        state = FINDING_WARN;
    findings_add(
        e->findings,
        (struct finding){
            .name = SAY("cache.tiers[%u].numa_node", t),
            .state = state,
            .value = json_integer(tier->numa_node),
            .text = SAY("NUMA node %d has %s, %s available; the tier takes %s", tier->numa_node,
                        BYTES_TEXT(node->bytes),
                        node->available_bytes == UINT64_MAX ? "an unknown part"
                                                            : BYTES_TEXT(node->available_bytes),
                        BYTES_TEXT(tier->bytes)),
            .advice = is_small ? SAY("lower cache.tiers[%u].bytes", t)
                               : SAY("nothing if an embtierd that runs has this memory; else "
                                     "lower cache.tiers[%u].bytes, or end other programs",
                                     t),
        });
}

static void check_node(const struct examination *e, uint32_t t)
{
    const int number = e->config->cache.tiers[t].numa_node;
    const struct node *node;
    struct nodes nodes;

    nodes_read(e->host, &nodes);
    node = nodes_find(&nodes, number);
    if (node)
        add_node(e, t, node);
    else
        findings_add(e->findings,
                     (struct finding){
                         .name = SAY("cache.tiers[%u].numa_node", t),
                         .state = FINDING_BAD,
                         .value = json_integer(number),
                         .text = SAY("this machine has no NUMA node %d", number),
                         .advice = "take a node that numactl -H lists; for memory of CXL see cxl "
                                   "list and daxctl list",
                     });
    nodes_clear(&nodes);
}

/* ---- DAX devices ---- */

static void check_dax(const struct examination *e, uint32_t t)
{
    const uint64_t wanted = e->config->cache.tiers[t].bytes;
    struct dax_devices devices;
    uint64_t bytes = 0;

    dax_devices_read(e->host, &devices);
    for (size_t i = 0; i < devices.count; i++)
        bytes += devices.devices[i].is_system_memory ? devices.devices[i].bytes : 0;
    dax_devices_clear(&devices);
    findings_add(e->findings,
                 (struct finding){
                     .name = SAY("cache.tiers[%u].kind", t),
                     .state = wanted > bytes ? FINDING_BAD : FINDING_GOOD,
                     .value = cli_json_u64(bytes),
                     .text = SAY("dax_kmem: DAX devices as system memory have %s; the tier takes "
                                 "%s",
                                 BYTES_TEXT(bytes), BYTES_TEXT(wanted)),
                     .advice = SAY("daxctl reconfigure-device --mode=system-ram dax0.0, or lower "
                                   "cache.tiers[%u].bytes",
                                   t),
                 });
}

static void (*const tier_checks[TIER_KIND_COUNT])(const struct examination *e, uint32_t t) = {
    [TIER_KIND_FILE] = check_file,
    [TIER_KIND_NUMA] = check_node,
    [TIER_KIND_DAX_KMEM] = check_dax,
};

void check_tiers(const struct examination *e)
{
    for (uint32_t t = 0; e->config && t < e->config->cache.tier_count; t++)
        if (tier_checks[e->config->cache.tiers[t].kind])
            tier_checks[e->config->cache.tiers[t].kind](e, t);
}
