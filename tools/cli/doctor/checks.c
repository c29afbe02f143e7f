/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/doctor/checks.h"

#include "tools/cli/json_values.h"

static void config_is_wrong(const struct examination *e)
{
    findings_add(e->findings,
                 (struct finding){
                     .name = "config",
                     .state = FINDING_BAD,
                     .value = e->config_path ? cli_json_text(e->config_path) : NULL,
                     .text = e->config_mistake,
                     .advice = "correct the configuration, and run this command again: "
                               "directories, tiers and limits were not compared with it",
                 });
}

void check_config(const struct examination *e)
{
    if (!e->config) {
        config_is_wrong(e);
        return;
    }
    findings_add(e->findings, (struct finding){
                                  .name = "config",
                                  .value = e->config_path ? cli_json_text(e->config_path) : NULL,
                                  .text = e->config_path ? SAY("%s: no mistakes in its text",
                                                               PATH_SHOWN(e->config_path))
                                                         : "none named: the defaults are taken",
                              });
}

const struct check checks[] = {
    { "config", check_config, "the configuration's text" },
    { "kernel", check_kernel, "version" },
    { "io_uring", check_io_uring, "whether this process gets a ring" },
    { "huge_pages", check_huge_pages,
      "transparent ones, and the pool for tiers of kind dram_huge" },
    { "memory", check_memory, "what is available; the control group's limit" },
    { "limits", check_limits,
      "descriptors against what the configuration needs, file length, locked memory" },
    { "numa", check_numa, "nodes, their processors and memory" },
    { "memory_kinds", check_memory_kinds, "nodes without processors (CXL), DAX devices, PMEM" },
    { "data.directories[N]", check_directories,
      "file system, device, scheduler, space, direct I/O" },
    { "cache.tiers[N]", check_tiers, "paths and nodes of tiers" },
    { "clock", check_clock, "whether it is synchronised; its source" },
    { NULL, NULL, NULL },
};

void checks_run(const struct examination *e)
{
    for (const struct check *check = checks; check->name; check++)
        check->run(e);
}
