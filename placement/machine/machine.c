/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/machine/machine.h"

#include <math.h>
#include <string.h>

const char *machine_memory_name(const struct machine *machine, uint32_t memory)
{
    if (memory == machine_cache(machine))
        return "cache";
    if (memory < machine_first_tier(machine))
        return "hbm";
    return machine->tiers[memory - machine_first_tier(machine)].name;
}

uint32_t machine_find_memory(const struct machine *machine, const char *name)
{
    for (uint32_t i = 0; i < machine_memory_count(machine); i++)
        if (strcmp(machine_memory_name(machine, i), name) == 0)
            return i;
    return MACHINE_NO_MEMORY;
}

double machine_writes_per_day(const struct machine *machine)
{
    const struct machine_ssd *const ssd = &machine->ssd;

    return ssd->drive_writes_per_day > 0 ? ssd->drive_writes_per_day * (double)ssd->drive_bytes
                                         : INFINITY;
}
