/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: the memories of one machine, as a plan sees them.
 *
 * A memory that a table can have as its home has a number: the memory of the GPUs (if there are
 * any), then each tier, the fastest first, then the cache. The cache lies over all tiers, and has
 * what arrays leave of them. MTrainS (section 5) has the same memories; SSD stands for its block
 * addressable memory, with its limits of reads a second (equation 4) and of bytes written a day
 * (equation 5).
 *
 * Pure values. Thread: any. */
#ifndef EMBTIER_PLACEMENT_MACHINE_MACHINE_H
#define EMBTIER_PLACEMENT_MACHINE_MACHINE_H

#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/spec/tier_spec.h"

#define MACHINE_GPUS_MAX      64
#define MACHINE_LANES_MAX     64
#define MACHINE_BYTES_MAX     (UINT64_C(1) << 53) /* of one memory; a double holds each number */
#define MACHINE_BANDWIDTH_MAX 1000000000000000.0
#define MACHINE_NO_MEMORY     UINT32_MAX
#define MACHINE_UNKNOWN       (-1.0) /* of a price: it is not given */

/* Cost, in whatever currency, and power of a GB (10^9 bytes) of a memory. */
struct machine_price {
    double cost_per_gb;
    double power_w_per_gb;
};

struct machine_tier {
    char name[TIER_NAME_MAX + 1];
    uint64_t bytes;
    double bandwidth_bytes_per_s;
    struct machine_price price;
};

/* The drives of the store together. */
struct machine_ssd {
    uint64_t bytes; /* for the store */
    double read_bandwidth_bytes_per_s;
    double write_bandwidth_bytes_per_s; /* 0: no limit is known */
    double read_iops;                   /* of blocks; 0: no limit is known */
    uint32_t block_bytes;
    double drive_writes_per_day; /* warranted; 0: no limit is known */
    uint64_t drive_bytes;        /* of which that is a multiple */
    double write_amplification;  /* bytes that reach the drive for each byte of a row written */
    struct machine_price price;  /* of @drive_bytes */
};

/* "a.yaml:3: ssd.bytes": the key of a file that a figure comes from; "": no file has it. */
struct machine_place {
    char text[160];
};

/* For messages about figures that a plan cannot do with. */
struct machine_places {
    struct machine_place hbm_bytes;
    struct machine_place tier_bytes[TIERS_MAX];
    struct machine_place ssd_bytes, read_iops, write_bandwidth, drive_writes;
};

struct machine {
    uint32_t lanes; /* of the server, each with its own cache; 0: nothing is kept for them */
    uint32_t gpu_count;
    uint64_t hbm_bytes; /* of each GPU; 0 without GPUs, as the bandwidth */
    double hbm_bandwidth_bytes_per_s;
    struct machine_price hbm_price;
    uint32_t tier_count; /* 1 to TIERS_MAX */
    struct machine_tier tiers[TIERS_MAX];
    struct machine_ssd ssd;
    struct machine_places places;
};

static inline uint32_t machine_first_tier(const struct machine *machine)
{
    return machine->gpu_count > 0 ? 1 : 0;
}

/* The number of the cache, which is the last memory. */
static inline uint32_t machine_cache(const struct machine *machine)
{
    return machine_first_tier(machine) + machine->tier_count;
}

static inline uint32_t machine_memory_count(const struct machine *machine)
{
    return machine_cache(machine) + 1;
}

/* Returns the bytes of tier @tier that arrays must leave to the cache: the server refuses a start
 * with less. A tier that has fewer has none for arrays. */
static inline uint64_t machine_cache_least_bytes(const struct machine *machine, uint32_t tier)
{
    return MIN(tier_cache_least_bytes(tier, machine->lanes), machine->tiers[tier].bytes);
}

/* "hbm", a tier's name, or "cache". */
const char *machine_memory_name(const struct machine *machine, uint32_t memory);
/* MACHINE_NO_MEMORY: there is none of this name. */
uint32_t machine_find_memory(const struct machine *machine, const char *name);
/* Bytes that may be written to SSD in a day under the drives' warranty; INFINITY: no limit is
 * known. */
double machine_writes_per_day(const struct machine *machine);
/* Sums over all memories. MACHINE_UNKNOWN: a memory's price is not given. */
double machine_cost(const struct machine *machine);
double machine_power_w(const struct machine *machine);

#endif
