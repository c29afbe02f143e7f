/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/tier_sizes.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/text/bytes.h"
#include "config/config.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "tiers/arena/arena.h"

/* Without any work of any lane for so long, the tier stays as large as it is: rows are pinned, or
 * the disk takes none, or a checkpoint takes long. */
#define PATIENCE_NS (UINT64_C(60) * 1000 * 1000 * 1000)
#define PAUSE_NS    (5L * 1000 * 1000)

/* A tier on its way to another size. */
struct resizing {
    const struct knobs_opts *opts;
    struct arena *arena;
    uint32_t tier;
    uint32_t maps;    /* slabs of them in each lane's part */
    uint64_t room;    /* slabs of addresses of each lane's part */
    uint32_t wanted;  /* slabs of each lane */
    uint32_t *there;  /* slabs of each lane that have memory */
    uint64_t *marker; /* of each lane */
    bool keeps_memory;
};

static uint32_t slabs_of(const struct knobs_opts *opts, uint32_t lane, uint32_t tier)
{
    struct lane_stats stats;

    lane_stats(opts->lanes[lane], &stats);
    return (uint32_t)(stats.cache.tiers[tier].capacity_bytes / ARENA_SLAB_BYTES);
}

static uint64_t pinned_in(const struct resizing *r)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < r->opts->lane_count; i++) {
        struct lane_stats stats;

        lane_stats(r->opts->lanes[i], &stats);
        bytes += r->tier == 0 ? stats.cache.pinned_bytes : stats.cache.tiers[r->tier].pinned_bytes;
    }
    return bytes;
}

static enum embtier_err refuse_pins(const struct resizing *r, uint64_t bytes, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_BUSY,
                   "cache.tiers[%" PRIu32 "].bytes: %s is too little now, as %" PRIu64
                   " bytes of rows are pinned%s: set more, or end the prefetches that pin them",
                   r->tier, BYTES_TEXT(bytes), pinned_in(r),
                   r->tier == 0 ? ", which may be half of the first tier" : "");
}

static enum embtier_err check(const struct resizing *r, uint64_t bytes, struct err_msg *msg)
{
    for (uint32_t i = 0; i < r->opts->lane_count; i++) {
        struct err_msg why = { { 0 } };
        const enum embtier_err err = lane_check_tier(r->opts->lanes[i], r->tier, r->wanted, &why);

        if (err == EMBTIER_BUSY)
            return refuse_pins(r, bytes, msg);
        if (err != EMBTIER_OK)
            return err_set(msg, EMBTIER_INVALID, "cache.tiers[%" PRIu32 "].bytes: %s", r->tier,
                           why.text);
    }
    return EMBTIER_OK;
}

/* Returns the first slab in the arena behind those that a lane has, if it has @slabs. */
static uint64_t end_of(const struct resizing *r, uint32_t lane, uint32_t slabs)
{
    return lane * r->room + slabs - r->maps;
}

/* ---- Growing ---- */

static enum embtier_err check_memory(const struct resizing *r, struct err_msg *msg)
{
    uint64_t slabs = 0;

    for (uint32_t i = 0; i < r->opts->lane_count; i++)
        slabs += r->wanted - MIN(r->there[i], r->wanted);
    return slabs > 0 ? arena_check_available(r->arena, slabs * ARENA_SLAB_BYTES, msg) : EMBTIER_OK;
}

/* Gives memory back that lanes do not use. */
static void give_back(struct resizing *r, uint32_t lane, uint32_t from, uint32_t end)
{
    struct err_msg why = { { 0 } };

    if (from >= end || arena_empty(r->arena, end_of(r, lane, from), end - from, &why) == EMBTIER_OK)
        return;
    if (!r->keeps_memory)
        log_warn("the system does not take the memory of a tier back before the server's end",
                 "tier=%" PRIu32 " error=%s", r->tier, LOG_QUOTED(why.text));
    r->keeps_memory = true;
}

/* All lanes get their memory before one uses it, so that a refusal changes nothing. */
static enum embtier_err grow(struct resizing *r, struct err_msg *msg)
{
    enum embtier_err err = check_memory(r, msg);
    uint32_t filled = 0;

    for (; err == EMBTIER_OK && filled < r->opts->lane_count; filled++)
        if (r->there[filled] < r->wanted)
            err = arena_fill(r->arena, end_of(r, filled, r->there[filled]),
                             r->wanted - r->there[filled], msg);
    for (uint32_t i = 0; err != EMBTIER_OK && i + 1 < filled; i++)
        give_back(r, i, r->there[i], r->wanted);
    TRY(err);
    for (uint32_t i = 0; i < r->opts->lane_count; i++)
        if (r->there[i] <= r->wanted) /* also one that was to shrink further */
            lane_resize_tier(r->opts->lanes[i], r->tier, r->wanted);
    return EMBTIER_OK;
}

/* ---- Shrinking ---- */

/* One step of each lane. Returns true when no slab leaves any more. */
static bool shrink_some(struct resizing *r, bool *ret_worked)
{
    bool done = true;

    *ret_worked = false;
    for (uint32_t i = 0; i < r->opts->lane_count; i++) {
        const struct row_cache_leaving left = lane_shrink_tier(r->opts->lanes[i], r->tier);

        give_back(r, i, left.slabs, r->there[i]);
        r->there[i] = left.slabs;
        *ret_worked |= left.marker != r->marker[i];
        r->marker[i] = left.marker;
        done &= left.done;
    }
    return done;
}

static enum embtier_err shrink(struct resizing *r, uint64_t bytes, struct err_msg *msg)
{
    const struct timespec pause = { .tv_nsec = PAUSE_NS };
    uint64_t worked_ns = clock_now_ns(&clock_monotonic);
    bool worked;

    for (uint32_t i = 0; i < r->opts->lane_count; i++)
        if (r->there[i] > r->wanted)
            lane_resize_tier(r->opts->lanes[i], r->tier, r->wanted);
    while (!shrink_some(r, &worked)) {
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (atomic_load(checkpoints_stopping(r->opts->checkpoints)))
            return err_shutdown(msg);
        if (worked)
            worked_ns = now_ns;
        else if (now_ns - worked_ns > PATIENCE_NS)
            return pinned_in(r) > 0
                       ? refuse_pins(r, bytes, msg)
                       : err_set(msg, EMBTIER_BUSY,
                                 "cache.tiers[%" PRIu32
                                 "].bytes: changed rows could not be written for a minute: try "
                                 "again when the disk or a checkpoint is done",
                                 r->tier);
        if (!worked)
            (void)nanosleep(&pause, NULL);
    }
    return EMBTIER_OK;
}

/* ---- Both ---- */

/* Prefetches may pin a part of the first tier on all lanes together. */
static void limit_pins(const struct resizing *r)
{
    if (r->tier == 0)
        accounts_limit(r->opts->accounts, ACCOUNT_PINNED_BYTES,
                       (uint64_t)r->wanted * ARENA_SLAB_BYTES / ROW_CACHE_PINNED_PART *
                           r->opts->lane_count,
                       0);
}

static enum embtier_err resize(struct resizing *r, uint64_t bytes, struct err_msg *msg)
{
    for (uint32_t i = 0; i < r->opts->lane_count; i++)
        r->there[i] = slabs_of(r->opts, i, r->tier);
    TRY(check(r, bytes, msg));
    TRY(grow(r, msg));
    limit_pins(r);
    return shrink(r, bytes, msg);
}

enum embtier_err tier_sizes_set(const struct knobs_opts *opts, uint32_t tier, uint64_t bytes,
                                struct err_msg *msg)
{
    const struct tier_spec *const spec = &opts->config->cache.tiers[tier];
    struct resizing r = { .opts = opts, .tier = tier, .maps = tier == 0 ? opts->map_slabs : 0 };
    enum embtier_err err;

    if (!opts->arenas)
        return err_set(msg, EMBTIER_INVALID,
                       "cache.tiers[%" PRIu32 "].bytes: the tiers keep their sizes", tier);
    r.arena = opts->arenas[tier];
    r.room = tier_lane_slabs(spec, arena_bytes(r.arena), opts->lane_count);
    r.wanted = tier_lane_slabs(spec, bytes, opts->lane_count);
    r.there = calloc(opts->lane_count, sizeof(*r.there));
    r.marker = calloc(opts->lane_count, sizeof(*r.marker));
    err = r.there && r.marker ? resize(&r, bytes, msg)
                              : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    free(r.there);
    free(r.marker);
    return err;
}

static uint64_t bytes_of(const struct tier_spec *spec, uint64_t slabs)
{
    return (slabs + spec->array_bytes / ARENA_SLAB_BYTES) * ARENA_SLAB_BYTES;
}

uint64_t tier_sizes_in_force(const struct knobs_opts *opts, uint32_t tier)
{
    const struct tier_spec *const spec = &opts->config->cache.tiers[tier];
    uint64_t slabs = 0;

    if (!opts->arenas)
        return spec->bytes;
    for (uint32_t i = 0; i < opts->lane_count; i++)
        slabs += slabs_of(opts, i, tier);
    return bytes_of(spec, slabs);
}

uint64_t tier_sizes_follow(const struct knobs_opts *opts, const struct tier_spec *spec)
{
    const uint32_t slabs = tier_lane_slabs(spec, spec->bytes, opts->lane_count);

    return opts->arenas ? bytes_of(spec, (uint64_t)slabs * opts->lane_count) : spec->bytes;
}

uint64_t tier_sizes_read(const struct knobs_opts *opts, uint32_t tier, uint64_t set_bytes)
{
    const struct tier_spec *const spec = &opts->config->cache.tiers[tier];
    const uint32_t wanted = tier_lane_slabs(spec, set_bytes, opts->lane_count);
    bool is_set = true;

    if (!opts->arenas)
        return set_bytes;
    for (uint32_t i = 0; i < opts->lane_count; i++)
        is_set &= slabs_of(opts, i, tier) == wanted;
    return is_set ? set_bytes : tier_sizes_in_force(opts, tier);
}
