/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/machine/machine.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
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

#define GB 1e9

/* The sum of bytes times the number at @offset of each price. */
static double sum_prices(const struct machine *machine, size_t offset)
{
    double sum = 0;
    bool known = true;
    const struct {
        double bytes;
        const struct machine_price *price;
    } fixed[] = { { (double)machine->hbm_bytes * machine->gpu_count, &machine->hbm_price },
                  { (double)machine->ssd.drive_bytes, &machine->ssd.price } };

    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        const double each = *(const double *)((const char *)fixed[i].price + offset);

        known = known && (each >= 0 || fixed[i].bytes == 0);
        sum += fixed[i].bytes / GB * each;
    }
    for (uint32_t k = 0; k < machine->tier_count; k++) {
        const double each = *(const double *)((const char *)&machine->tiers[k].price + offset);

        known = known && each >= 0;
        sum += (double)machine->tiers[k].bytes / GB * each;
    }
    return known ? sum : MACHINE_UNKNOWN;
}

double machine_cost(const struct machine *machine)
{
    return sum_prices(machine, offsetof(struct machine_price, cost_per_gb));
}

double machine_power_w(const struct machine *machine)
{
    return sum_prices(machine, offsetof(struct machine_price, power_w_per_gb));
}
