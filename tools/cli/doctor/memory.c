/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: what is available now, limits of control groups, huge pages. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "config/config_load.h"
#include "tools/cli/doctor/checks.h"
#include "tools/cli/json_values.h"

/* ---- Huge pages ---- */

#define TRANSPARENT     "/sys/kernel/mm/transparent_hugepage/enabled"
#define POOL            "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define HUGE_PAGE_BYTES (2 * MIB)

static void check_transparent(const struct examination *e)
{
    struct host_line mode;
    bool is_off;

    if (!host_choice(e->host, &mode, TRANSPARENT)) {
        findings_add_unknown(e->findings, "huge_pages.transparent", TRANSPARENT);
        return;
    }
    is_off = strcmp(mode.text, "never") == 0;
    findings_add(
        e->findings,
        (struct finding){
            .name = "huge_pages.transparent",
            .state = is_off ? FINDING_WARN : FINDING_GOOD,
            .value = json_string(TEXT_SHOWN(mode.text)),
            .text = SAY("transparent huge pages: %s%s", TEXT_SHOWN(mode.text),
                        is_off ? "; tiers get small pages, and lookups miss the TLB" : ""),
            .advice = "echo madvise >" TRANSPARENT ", or boot with transparent_hugepage=madvise",
        });
}

static uint64_t pool_wanted_bytes(const struct config *config)
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; config && t < config->cache.tier_count; t++)
        if (config->cache.tiers[t].kind == TIER_KIND_DRAM_HUGE)
            bytes += align_up(config->cache.tiers[t].bytes, HUGE_PAGE_BYTES);
    return bytes;
}

static void pool_is_wanted(const struct examination *e, uint64_t pages, uint64_t free_pages)
{
    const uint64_t wanted = pool_wanted_bytes(e->config) / HUGE_PAGE_BYTES;
    enum finding_state state = FINDING_GOOD;

    if (wanted > pages)
        state = FINDING_BAD;
    else if (wanted > free_pages)
        state = FINDING_WARN;
    findings_add(
        e->findings,
        (struct finding){
            .name = "huge_pages.pool",
            .state = state,
            .value = json_integer((json_int_t)pages),
            .text = SAY("%" PRIu64 " huge pages of 2 MiB reserved, %" PRIu64
                        " free; tiers of kind dram_huge take %" PRIu64,
                        pages, free_pages, wanted),
            .advice =
                state == FINDING_BAD
                    ? SAY("sysctl -w vm.nr_hugepages=%" PRIu64
                          ", and the same in /etc/sysctl.d/; boot with hugepages=%" PRIu64
                          " if memory is too fragmented",
                          wanted, wanted)
                    : "nothing if an embtierd that runs has the others; else end the programs "
                      "that do (grep -l huge /proc/*/numa_maps)",
        });
}

static void pool_is_not_wanted(const struct examination *e, uint64_t pages, uint64_t free_pages)
{
    findings_add(
        e->findings,
        (struct finding){
            .name = "huge_pages.pool",
            .state = free_pages > 0 && e->config ? FINDING_NOTE : FINDING_GOOD,
            .value = json_integer((json_int_t)pages),
            .text = SAY("%" PRIu64 " huge pages of 2 MiB reserved, %" PRIu64 " free%s", pages,
                        free_pages, e->config ? "; no tier is of kind dram_huge" : ""),
            .advice = "set cache.tiers[0].kind to dram_huge, or give the memory back: "
                      "sysctl -w vm.nr_hugepages=0",
        });
}

void check_huge_pages(const struct examination *e)
{
    uint64_t pages = 0;
    uint64_t free_pages = 0;

    check_transparent(e);
    if (!host_number(e->host, &pages, POOL "nr_hugepages") ||
        !host_number(e->host, &free_pages, POOL "free_hugepages") || free_pages > pages)
        findings_add_unknown(e->findings, "huge_pages.pool", POOL "nr_hugepages");
    else if (pool_wanted_bytes(e->config) > 0)
        pool_is_wanted(e, pages, free_pages);
    else
        pool_is_not_wanted(e, pages, free_pages);
}

/* ---- Available memory ---- */

static void check_available(const struct examination *e)
{
    struct err_msg msg = { { 0 } };
    uint64_t kib;
    bool is_enough;

    if (!host_field(e->host, "MemAvailable", &kib, "/proc/meminfo") || kib > UINT64_MAX / KIB) {
        findings_add_unknown(e->findings, "memory.available", "/proc/meminfo");
        return;
    }
    is_enough = !e->config || config_check_available(e->config, &msg) == EMBTIER_OK;
    findings_add(e->findings,
                 (struct finding){
                     .name = "memory.available",
                     .state = is_enough ? FINDING_GOOD : FINDING_WARN,
                     .value = cli_json_u64(kib * KIB),
                     .text = is_enough ? SAY("%s available", BYTES_TEXT(kib * KIB)) : msg.text,
                     .advice = "nothing if an embtierd that runs has this memory; else end other "
                               "programs, or lower the key before the next start",
                 });
}

static const char *group_version(const struct host *host)
{
    if (host_exists(host, "/sys/fs/cgroup/cgroup.controllers"))
        return "version 2";
    return host_exists(host, "/sys/fs/cgroup/memory") ? "version 1" : "unknown version";
}

/* config_load() has compared the configuration with the limit. memory.available has what is left in
 * the group, as config_load() and a start compare that too. */
static void check_group(const struct examination *e)
{
    const uint64_t limit = machine_group_limit_bytes(e->host->root);
    const uint64_t room = MIN(machine_group_room_bytes(e->host->root), limit);
    uint64_t kib = 0;

    if (!host_exists(e->host, "/proc/self/cgroup")) {
        findings_add_unknown(e->findings, "memory.control_group", "/proc/self/cgroup");
        return;
    }
    /* Version 1 without a limit has a number above all memory. */
    if (limit == UINT64_MAX || (host_field(e->host, "MemTotal", &kib, "/proc/meminfo") &&
                                kib < UINT64_MAX / KIB && limit >= kib * KIB)) {
        findings_add(e->findings, (struct finding){
                                      .name = "memory.control_group",
                                      .text = SAY("control groups (%s) set no limit of memory",
                                                  group_version(e->host)),
                                  });
        return;
    }
    findings_add(
        e->findings,
        (struct finding){
            .name = "memory.control_group",
            .state = room < limit / 10 ? FINDING_WARN : FINDING_NOTE,
            .value = cli_json_u64(limit),
            .text = SAY("this process's control group (%s) may have %s, of which %s are "
                        "in use",
                        group_version(e->host), BYTES_TEXT(limit), BYTES_TEXT(limit - room)),
            .advice = "if embtierd gets this limit, too, and should have more memory: "
                      "raise it (MemoryMax= of the unit, docker run --memory)",
        });
}

void check_memory(const struct examination *e)
{
    check_available(e);
    check_group(e);
}
