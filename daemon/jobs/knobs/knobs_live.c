/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/knobs_live.h"

#include <stdio.h>
#include <string.h>

#include "base/log/log.h"
#include "base/spec/day_hours.h"
#include "daemon/endurance/endurance.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/tier_sizes.h"
#include "store/database/compaction_scheduler.h"
#include "store/store.h"

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* ---- Limits ---- */

void knobs_live_set_limit(struct knobs_live *live, enum knob_limit limit,
                          const struct config *config)
{
    const uint64_t values[] = {
#define X(name, member) [KNOB_##name] = config->member,
        KNOB_LIMIT_TABLE(X)
#undef X
    };

    atomic_store_explicit(&live->limits[limit], values[limit], memory_order_relaxed);
}

static uint64_t limit_of(const struct knobs_live *live, enum knob_limit limit)
{
    return atomic_load_explicit(&live->limits[limit], memory_order_relaxed);
}

/* A limit that only the control thread looks at. */
#define LIMIT(word, member, limit)                                                                 \
    static enum embtier_err apply_##word(struct knobs_live *live, const struct config *next,       \
                                         struct err_msg *msg)                                      \
    {                                                                                              \
        (void)msg;                                                                                 \
        knobs_live_set_limit(live, KNOB_##limit, next);                                            \
        return EMBTIER_OK;                                                                         \
    }                                                                                              \
    static void read_##word(struct knobs_live *live, struct config *now)                           \
    {                                                                                              \
        now->member = (__typeof__(now->member))limit_of(live, KNOB_##limit);                       \
    }
LIMIT(max_arena_bytes, socket.max_arena_bytes, MAX_ARENA_BYTES)
LIMIT(transfer_idle_seconds, checkpoints.transfer_idle_seconds, TRANSFER_IDLE_SECONDS)
LIMIT(capacity_bytes, endurance.capacity_bytes, CAPACITY_BYTES)
LIMIT(rated_written_bytes, endurance.rated_written_bytes, RATED_WRITTEN_BYTES)
LIMIT(rated_years, endurance.rated_years, RATED_YEARS)

/* ---- Shares of users ---- */

/* The limits of a row of accounts, which are kept there alone. */
#define SHARES(word, row, all, user)                                                               \
    static enum embtier_err apply_##word(struct knobs_live *live, const struct config *next,       \
                                         struct err_msg *msg)                                      \
    {                                                                                              \
        (void)msg;                                                                                 \
        accounts_limit(live->opts.accounts, ACCOUNT_##row, next->all, next->user);                 \
        return EMBTIER_OK;                                                                         \
    }                                                                                              \
    static void read_##word(struct knobs_live *live, struct config *now)                           \
    {                                                                                              \
        uint64_t users;                                                                            \
                                                                                                   \
        now->all =                                                                                 \
            (__typeof__(now->all))accounts_limit_of(live->opts.accounts, ACCOUNT_##row, &users);   \
        now->user = (__typeof__(now->user))users;                                                  \
    }
SHARES(checkpoint_counts, CHECKPOINTS, checkpoints.max_checkpoints,
       checkpoints.max_user_checkpoints)
SHARES(arenas, ARENA_BYTES, socket.max_total_arena_bytes, socket.max_user_arena_bytes)
SHARES(session_counts, SESSIONS, socket.max_sessions, socket.max_user_sessions)

/* More sessions take descriptors, which the store gives up first. */
static enum embtier_err apply_sessions(struct knobs_live *live, const struct config *next,
                                       struct err_msg *msg)
{
    TRY(store_share_files(live->opts.store, next, msg));
    return apply_session_counts(live, next, msg);
}

/* ---- The log and checkpoints ---- */

static enum embtier_err apply_level(struct knobs_live *live, const struct config *next,
                                    struct err_msg *msg)
{
    (void)live;
    (void)msg;
    log_set_level(next->log.level);
    return EMBTIER_OK;
}

static void read_level(struct knobs_live *live, struct config *now)
{
    (void)live;
    now->log.level = log_level();
}

static enum embtier_err apply_interval(struct knobs_live *live, const struct config *next,
                                       struct err_msg *msg)
{
    (void)msg;
    checkpoints_set_interval_ns(live->opts.checkpoints,
                                next->checkpoints.interval_seconds * NS_PER_S);
    return EMBTIER_OK;
}

static void read_interval(struct knobs_live *live, struct config *now)
{
    now->checkpoints.interval_seconds =
        (uint32_t)(checkpoints_interval_ns(live->opts.checkpoints) / NS_PER_S);
}

static enum embtier_err apply_keep(struct knobs_live *live, const struct config *next,
                                   struct err_msg *msg)
{
    (void)msg;
    checkpoints_set_keep(live->opts.checkpoints, next->checkpoints.keep);
    return EMBTIER_OK;
}

static void read_keep(struct knobs_live *live, struct config *now)
{
    now->checkpoints.keep = checkpoints_keep(live->opts.checkpoints);
}

/* ---- Endurance ---- */

static enum embtier_err apply_max_dwpd(struct knobs_live *live, const struct config *next,
                                       struct err_msg *msg)
{
    (void)msg;
    endurance_set_max_dwpd(live->opts.endurance, next->endurance.max_dwpd);
    return EMBTIER_OK;
}

static void read_max_dwpd(struct knobs_live *live, struct config *now)
{
    now->endurance.max_dwpd = endurance_max_dwpd(live->opts.endurance);
}

/* ---- Tiers ---- */

#define TIER_BYTES(t)                                                                              \
    static enum embtier_err apply_tier##t(struct knobs_live *live, const struct config *next,      \
                                          struct err_msg *msg)                                     \
    {                                                                                              \
        live->tier_bytes[t] = next->cache.tiers[t].bytes;                                          \
        return tier_sizes_set(&live->opts, t, next->cache.tiers[t].bytes, msg);                    \
    }                                                                                              \
    static void read_tier##t(struct knobs_live *live, struct config *now)                          \
    {                                                                                              \
        if (t < now->cache.tier_count)                                                             \
            now->cache.tiers[t].bytes = tier_sizes_read(                                           \
                &live->opts, t,                                                                    \
                live->tier_bytes[t] ? live->tier_bytes[t] : now->cache.tiers[t].bytes);            \
    }
TIER_BYTES(0)
TIER_BYTES(1)
TIER_BYTES(2)
TIER_BYTES(3)
_Static_assert(TIERS_MAX == 4, "each has its functions");

/* ---- Lanes ---- */

/* More readers take descriptors, which the store gives up first. */
static enum embtier_err apply_readers(struct knobs_live *live, const struct config *next,
                                      struct err_msg *msg)
{
    TRY(store_share_files(live->opts.store, next, msg));
    for (uint32_t i = 0; i < live->opts.lane_count; i++)
        TRY(lane_set_readers(live->opts.lanes[i], next->lanes.readers_per_lane,
                             checkpoints_stopping(live->opts.checkpoints), msg));
    return EMBTIER_OK;
}

/* While they change, some lanes have more than others. */
static void read_readers(struct knobs_live *live, struct config *now)
{
    for (uint32_t i = 0; i < live->opts.lane_count; i++) {
        const uint32_t readers = lane_readers(live->opts.lanes[i]);

        if (i == 0 || readers < now->lanes.readers_per_lane)
            now->lanes.readers_per_lane = readers;
    }
}

static enum embtier_err apply_tickets(struct knobs_live *live, const struct config *next,
                                      struct err_msg *msg)
{
    (void)msg;
    for (uint32_t i = 0; i < live->opts.lane_count; i++)
        lane_set_ticket_ns(live->opts.lanes[i], next->lanes.ticket_seconds * NS_PER_S);
    return EMBTIER_OK;
}

/* Lanes that were set one after the other have the same. */
static void read_tickets(struct knobs_live *live, struct config *now)
{
    if (live->opts.lane_count > 0)
        now->lanes.ticket_seconds = (uint32_t)(lane_ticket_ns(live->opts.lanes[0]) / NS_PER_S);
}

static enum embtier_err apply_groups(struct knobs_live *live, const struct config *next,
                                     struct err_msg *msg)
{
    (void)msg;
    groups_set_wait_ns(live->opts.groups, next->lanes.group_seconds * NS_PER_S);
    return EMBTIER_OK;
}

static void read_groups(struct knobs_live *live, struct config *now)
{
    now->lanes.group_seconds = (uint32_t)(groups_wait_ns(live->opts.groups) / NS_PER_S);
}

static enum embtier_err apply_slow(struct knobs_live *live, const struct config *next,
                                   struct err_msg *msg)
{
    (void)msg;
    for (uint32_t i = 0; i < live->opts.lane_count; i++)
        lane_set_slow_request_ns(live->opts.lanes[i], next->log.slow_request_ms * NS_PER_MS);
    return EMBTIER_OK;
}

static void read_slow(struct knobs_live *live, struct config *now)
{
    if (live->opts.lane_count > 0)
        now->log.slow_request_ms =
            (uint32_t)(lane_slow_request_ns(live->opts.lanes[0]) / NS_PER_MS);
}

/* ---- RocksDB ---- */

static enum embtier_err apply_memtables(struct knobs_live *live, const struct config *next,
                                        struct err_msg *msg)
{
    return store_set_memtables(live->opts.store, next, msg);
}

static enum embtier_err apply_threads(struct knobs_live *live, const struct config *next,
                                      struct err_msg *msg)
{
    return store_set_threads(live->opts.store, next->rocksdb.background_threads, msg);
}

static enum embtier_err apply_metadata(struct knobs_live *live, const struct config *next,
                                       struct err_msg *msg)
{
    (void)msg;
    store_set_metadata_cache(live->opts.store, next->rocksdb.metadata_cache_bytes);
    return EMBTIER_OK;
}

static enum embtier_err apply_trigger(struct knobs_live *live, const struct config *next,
                                      struct err_msg *msg)
{
    return store_set_trigger_files(live->opts.store, next->rocksdb.compaction_trigger_files, msg);
}

static void read_trigger(struct knobs_live *live, struct config *now)
{
    now->rocksdb.compaction_trigger_files = store_trigger_files(live->opts.store);
}

static enum embtier_err apply_parallel(struct knobs_live *live, const struct config *next,
                                       struct err_msg *msg)
{
    (void)msg;
    store_set_compaction_parallel(live->opts.store, next->rocksdb.compaction_parallel);
    return EMBTIER_OK;
}

static enum embtier_err apply_bytes(struct knobs_live *live, const struct config *next,
                                    struct err_msg *msg)
{
    (void)msg;
    store_set_compaction_bytes(live->opts.store, next->rocksdb.compaction_bytes_per_second);
    return EMBTIER_OK;
}

static enum embtier_err apply_hours(struct knobs_live *live, const struct config *next,
                                    struct err_msg *msg)
{
    const char *const text = next->rocksdb.compaction_hours ? next->rocksdb.compaction_hours : "";
    struct day_hours hours;

    TRY(day_hours_parse(text, &hours, msg));
    compaction_scheduler_set_hours(store_compaction(live->opts.store), &hours);
    snprintf(live->hours, sizeof(live->hours), "%s", text);
    return EMBTIER_OK;
}

/* The same hours may be written in several ways: those of the file stay as they are there. */
static void read_hours(struct knobs_live *live, struct config *now)
{
    char in_force[DAY_HOURS_TEXT_BYTES], known[DAY_HOURS_TEXT_BYTES] = "?";
    struct compaction_facts facts;
    struct day_hours hours;

    compaction_scheduler_look(store_compaction(live->opts.store), &facts);
    day_hours_print(&facts.hours, in_force);
    if (day_hours_parse(live->hours, &hours, NULL) == EMBTIER_OK)
        day_hours_print(&hours, known);
    if (strcmp(in_force, known) != 0)
        snprintf(live->hours, sizeof(live->hours), "%s", in_force);
    now->rocksdb.compaction_hours = live->hours;
}

static void read_rocksdb(struct knobs_live *live, struct config *now)
{
    struct store_tuning tuning;

    store_tuning(live->opts.store, &tuning);
    now->rocksdb.memtable_bytes = tuning.memtable_bytes;
    now->rocksdb.metadata_cache_bytes = tuning.metadata_cache_bytes;
    now->rocksdb.background_threads = tuning.background_threads;
    now->rocksdb.compaction_parallel = tuning.compaction_parallel;
    now->rocksdb.compaction_bytes_per_second = tuning.compaction_bytes_per_second;
}

/* ---- The table ---- */

const struct knob_live knobs_live_table[] = {
    { "cache.tiers[0].bytes", apply_tier0, read_tier0 },
    { "cache.tiers[1].bytes", apply_tier1, read_tier1 },
    { "cache.tiers[2].bytes", apply_tier2, read_tier2 },
    { "cache.tiers[3].bytes", apply_tier3, read_tier3 },
    { "lanes.readers_per_lane", apply_readers, read_readers },
    { "lanes.ticket_seconds", apply_tickets, read_tickets },
    { "log.slow_request_ms", apply_slow, read_slow },
    { "lanes.group_seconds", apply_groups, read_groups },
    { "rocksdb.memtable_bytes", apply_memtables, read_rocksdb },
    { "rocksdb.metadata_cache_bytes", apply_metadata, read_rocksdb },
    { "rocksdb.background_threads", apply_threads, read_rocksdb },
    { "rocksdb.compaction_trigger_files", apply_trigger, read_trigger },
    { "rocksdb.compaction_parallel", apply_parallel, read_rocksdb },
    { "rocksdb.compaction_bytes_per_second", apply_bytes, read_rocksdb },
    { "rocksdb.compaction_hours", apply_hours, read_hours },
    { "checkpoints.interval_seconds", apply_interval, read_interval },
    { "checkpoints.keep", apply_keep, read_keep },
    { "checkpoints.max_checkpoints", apply_checkpoint_counts, read_checkpoint_counts },
    { "checkpoints.max_user_checkpoints", apply_checkpoint_counts, read_checkpoint_counts },
    { "checkpoints.transfer_idle_seconds", apply_transfer_idle_seconds,
      read_transfer_idle_seconds },
    { "endurance.capacity_bytes", apply_capacity_bytes, read_capacity_bytes },
    { "endurance.rated_written_bytes", apply_rated_written_bytes, read_rated_written_bytes },
    { "endurance.rated_years", apply_rated_years, read_rated_years },
    { "endurance.max_dwpd", apply_max_dwpd, read_max_dwpd },
    { "socket.max_arena_bytes", apply_max_arena_bytes, read_max_arena_bytes },
    { "socket.max_total_arena_bytes", apply_arenas, read_arenas },
    { "socket.max_user_arena_bytes", apply_arenas, read_arenas },
    { "socket.max_sessions", apply_sessions, read_session_counts },
    { "socket.max_user_sessions", apply_sessions, read_session_counts },
    { "log.level", apply_level, read_level },
};
bool knobs_live_is_long(const struct knob_live *row)
{
    return strncmp(row->name, "cache.tiers[", strlen("cache.tiers[")) == 0 ||
           strcmp(row->name, "lanes.readers_per_lane") == 0;
}

const uint32_t knobs_live_count = ARRAY_LEN(knobs_live_table);

struct config knobs_live_read(struct knobs_live *live, const struct config *start)
{
    struct config now = *start;

    for (uint32_t i = 0; i < knobs_live_count; i++)
        knobs_live_table[i].read(live, &now);
    return now;
}

static void show_computed(const struct knobs_live *live, struct config *config)
{
    struct store_computed computed;

    store_computed(live->opts.store, &computed);
    if (config->data.reserve_bytes == 0)
        config->data.reserve_bytes = computed.reserve_bytes;
    if (config->endurance.capacity_bytes == 0)
        config->endurance.capacity_bytes = computed.capacity_bytes;
}

/* One user's parts are shared out by what others have. */
static void show_parts(const struct knobs_live *live, struct config *config)
{
    const struct accounts *const accounts = live->opts.accounts;

    config->checkpoints.max_user_checkpoints =
        (uint32_t)accounts_part_alone(accounts, ACCOUNT_CHECKPOINTS);
    config->socket.max_user_sessions = (uint32_t)accounts_part_alone(accounts, ACCOUNT_SESSIONS);
    config->socket.max_user_arena_bytes = accounts_part_alone(accounts, ACCOUNT_ARENA_BYTES);
}

void knobs_live_show(const struct knobs_live *live, struct config *config)
{
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        config->cache.tiers[t].bytes = tier_sizes_in_force(&live->opts, t);
    show_computed(live, config);
    show_parts(live, config);
}

void knobs_live_match_tiers(const struct knobs_live *live, const struct config *shown,
                            struct config *other)
{
    for (uint32_t t = 0; t < MIN(shown->cache.tier_count, other->cache.tier_count); t++)
        if (tier_sizes_follow(&live->opts, &other->cache.tiers[t]) == shown->cache.tiers[t].bytes)
            other->cache.tiers[t].bytes = shown->cache.tiers[t].bytes;
}
