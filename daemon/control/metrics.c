/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/metrics.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log/log.h"
#include "daemon/control/control.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/tables/table_arrays.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/profile/profiles.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "store/store.h"
#include "tiers/array/array_space.h"

#define COUNTER true
#define GAUGE   false
const struct metric_description metric_descriptions[METRIC_COUNT] = {
#define METRIC(name, kind, help, label) { #name, help, label, kind },
    METRIC_TABLE(METRIC)
#undef METRIC
};
#undef COUNTER
#undef GAUGE

typedef void (*metric_sink)(void *context, enum metric_id id, const char *label_value,
                            double value);

static void add_tier(struct row_cache_tier_stats *sum, const struct row_cache_tier_stats *tier)
{
    sum->capacity_bytes += tier->capacity_bytes;
    sum->used_bytes += tier->used_bytes;
    sum->rows += tier->rows;
    sum->dirty_rows += tier->dirty_rows;
    sum->hits += tier->hits;
    sum->get_hits += tier->get_hits;
    sum->demotions += tier->demotions;
    sum->promotions += tier->promotions;
    sum->evicted_clean += tier->evicted_clean;
    sum->evicted_dirty += tier->evicted_dirty;
}

static void add_home(struct home_stats *sum, const struct home_stats *home)
{
    sum->rows += home->rows;
    sum->bytes += home->bytes;
    sum->dirty_rows += home->dirty_rows;
    sum->hits += home->hits;
    sum->get_hits += home->get_hits;
}

static void add_lane(struct lane_stats *sum, const struct lane_stats *lane)
{
    sum->requests += lane->requests;
    sum->get_rows += lane->get_rows;
    sum->set_rows += lane->set_rows;
    sum->pushed_rows += lane->pushed_rows;
    sum->prefetched_rows += lane->prefetched_rows;
    sum->expired_tickets += lane->expired_tickets;
    sum->casting_ns += lane->casting_ns;
    sum->queued_get_rows += lane->queued_get_rows;
    sum->stored_get_rows += lane->stored_get_rows;
    sum->initial_get_rows += lane->initial_get_rows;
    sum->failed_rows += lane->failed_rows;
    sum->abandoned_rows += lane->abandoned_rows;
    sum->logged_rows += lane->logged_rows;
    sum->held_rows += lane->held_rows;
    sum->shared_reads += lane->shared_reads;
    sum->reading_rows += lane->reading_rows;
    for (uint32_t t = 0; t < TIERS_MAX; t++)
        add_tier(&sum->cache.tiers[t], &lane->cache.tiers[t]);
    for (uint32_t h = 0; h < HOME_KINDS; h++)
        add_home(&sum->homes[h], &lane->homes[h]);
    sum->missed_rows += lane->missed_rows;
    sum->cache.not_cached += lane->cache.not_cached;
    sum->cache.index_bytes += lane->cache.index_bytes;
    sum->cache.map_bytes += lane->cache.map_bytes;
    sum->cache.slab_moves += lane->cache.slab_moves;
    sum->cache.pinned_rows += lane->cache.pinned_rows;
    sum->write_queue.rows += lane->write_queue.rows;
    sum->write_queue.bytes += lane->write_queue.bytes;
    sum->write_queue.capacity_bytes += lane->write_queue.capacity_bytes;
    sum->write_queue.retries += lane->write_queue.retries;
    if (lane->write_queue.err)
        sum->write_queue.err = lane->write_queue.err;
}

static void sink_tiers(const struct server_parts *parts, const struct lane_stats *sum,
                       metric_sink sink, void *context)
{
    for (uint32_t t = 0; t < parts->config->cache.tier_count; t++) {
        const struct row_cache_tier_stats *const tier = &sum->cache.tiers[t];
        const char *const name = parts->config->cache.tiers[t].name;

        sink(context, METRIC_lookup_rows, name, (double)tier->get_hits);
        sink(context, METRIC_cache_capacity_bytes, name, (double)tier->capacity_bytes);
        sink(context, METRIC_cache_used_bytes, name, (double)tier->used_bytes);
        sink(context, METRIC_cache_rows, name, (double)tier->rows);
        sink(context, METRIC_cache_dirty_rows, name, (double)tier->dirty_rows);
        sink(context, METRIC_cache_hit_rows, name, (double)tier->hits);
        sink(context, METRIC_cache_promoted_rows, name, (double)tier->promotions);
        sink(context, METRIC_cache_demoted_rows, name, (double)tier->demotions);
        sink(context, METRIC_cache_evicted_clean_rows, name, (double)tier->evicted_clean);
        sink(context, METRIC_cache_evicted_dirty_rows, name, (double)tier->evicted_dirty);
    }
}

static void sink_arrays(const struct server_parts *parts, const struct home_stats *sum,
                        metric_sink sink, void *context)
{
    for (uint32_t t = 0; t < parts->config->cache.tier_count; t++) {
        const char *const name = parts->config->cache.tiers[t].name;
        struct array_space_stats stats;

        table_arrays_stats(parts->arrays, t, &stats);
        sink(context, METRIC_array_capacity_bytes, name, (double)stats.bytes);
        sink(context, METRIC_array_free_bytes, name, (double)stats.free_bytes);
    }
    sink(context, METRIC_lookup_rows, "array", (double)sum->get_hits);
    sink(context, METRIC_array_used_bytes, "", (double)sum->bytes);
    sink(context, METRIC_array_rows, "", (double)sum->rows);
    sink(context, METRIC_array_dirty_rows, "", (double)sum->dirty_rows);
    sink(context, METRIC_array_hit_rows, "", (double)sum->hits);
}

static void sink_lanes(const struct server_parts *parts, metric_sink sink, void *context)
{
    struct lane_stats sum = { 0 };

    for (uint32_t i = 0; i < parts->lane_count; i++) {
        struct lane_stats lane;

        lane_stats(parts->lanes[i], &lane);
        add_lane(&sum, &lane);
    }
    sink(context, METRIC_requests, "", (double)sum.requests);
    sink(context, METRIC_request_rows, "get", (double)sum.get_rows);
    sink(context, METRIC_request_rows, "set", (double)sum.set_rows);
    sink(context, METRIC_request_rows, "push", (double)sum.pushed_rows);
    sink(context, METRIC_request_rows, "prefetch", (double)sum.prefetched_rows);
    sink_tiers(parts, &sum, sink, context);
    add_home(&sum.homes[HOME_ARRAY], &sum.homes[HOME_OTHER_ARRAY]);
    sink_arrays(parts, &sum.homes[HOME_ARRAY], sink, context);
    sink(context, METRIC_lookup_rows, "write_queue", (double)sum.queued_get_rows);
    sink(context, METRIC_lookup_rows, "ssd", (double)sum.stored_get_rows);
    sink(context, METRIC_lookup_rows, "initial", (double)sum.initial_get_rows);
    sink(context, METRIC_expired_tickets, "", (double)sum.expired_tickets);
    sink(context, METRIC_casting_seconds, "", (double)sum.casting_ns / 1e9);
    sink(context, METRIC_failed_rows, "", (double)sum.failed_rows);
    sink(context, METRIC_abandoned_rows, "", (double)sum.abandoned_rows);
    sink(context, METRIC_checkpoint_held_rows, "", (double)sum.held_rows);
    sink(context, METRIC_logged_rows, "", (double)sum.logged_rows);
    sink(context, METRIC_shared_reads, "", (double)sum.shared_reads);
    sink(context, METRIC_reading_rows, "", (double)sum.reading_rows);
    sink(context, METRIC_cache_miss_rows, "", (double)sum.missed_rows);
    sink(context, METRIC_cache_refused_rows, "", (double)sum.cache.not_cached);
    sink(context, METRIC_cache_index_bytes, "", (double)sum.cache.index_bytes);
    sink(context, METRIC_cache_map_bytes, "", (double)sum.cache.map_bytes);
    sink(context, METRIC_cache_slab_moves, "", (double)sum.cache.slab_moves);
    sink(context, METRIC_cache_pinned_rows, "", (double)sum.cache.pinned_rows);
    sink(context, METRIC_write_queue_rows, "", (double)sum.write_queue.rows);
    sink(context, METRIC_write_queue_bytes, "", (double)sum.write_queue.bytes);
    sink(context, METRIC_write_queue_capacity_bytes, "", (double)sum.write_queue.capacity_bytes);
    sink(context, METRIC_write_retries, "", (double)sum.write_queue.retries);
    sink(context, METRIC_write_error, "", (double)sum.write_queue.err);
}

static void sink_checkpoints(const struct server_parts *parts, metric_sink sink, void *context)
{
    struct checkpoints_stats stats;

    checkpoints_stats(parts->checkpoints, &stats);
    sink(context, METRIC_checkpoints, "made", (double)stats.made);
    sink(context, METRIC_checkpoints, "failed", (double)stats.failed);
    if (stats.has_newest)
        sink(context, METRIC_checkpoint_newest_seconds, "", (double)stats.newest_age_ms / 1e3);
    sink(context, METRIC_checkpoint_pause_seconds, "", (double)stats.pause_us / 1e6);
    sink(context, METRIC_checkpoint_longest_pause_seconds, "",
         (double)stats.longest_pause_us / 1e6);
    sink(context, METRIC_checkpoint_tries, "", (double)stats.tries);
    sink(context, METRIC_checkpoint_cut_updates, "", (double)stats.cut_updates);
    sink(context, METRIC_checkpoint_yielded_seconds, "", (double)stats.yielded_us / 1e6);
    sink(context, METRIC_transfer_bytes, "", (double)transfer_memory_used(parts->transfer_memory));
}

static void sink_groups(const struct server_parts *parts, metric_sink sink, void *context)
{
    struct group_stats stats;

    groups_stats(parts->groups, &stats);
    sink(context, METRIC_groups, "", (double)stats.groups);
    sink(context, METRIC_group_steps, "applied", (double)stats.steps);
    sink(context, METRIC_group_steps, "refused", (double)stats.refused_steps);
    sink(context, METRIC_group_steps, "broken", (double)stats.broken_groups);
}

static void sink_store(const struct server_parts *parts, metric_sink sink, void *context)
{
    const struct config *const config = parts->config;
    struct store_stats stats;

    store_stats(parts->store, &stats);
    sink(context, METRIC_store_rows_read, "", (double)stats.rows_read);
    sink(context, METRIC_store_rows_absent, "", (double)stats.rows_absent);
    sink(context, METRIC_store_rows_written, "", (double)stats.rows_written);
    sink(context, METRIC_store_row_bytes_written, "", (double)stats.row_bytes_written);
    sink(context, METRIC_store_written_bytes, "flush", (double)stats.written.flush_bytes);
    sink(context, METRIC_store_written_bytes, "compaction", (double)stats.written.compaction_bytes);
    sink(context, METRIC_store_written_bytes, "log", (double)stats.written.log_bytes);
    sink(context, METRIC_store_written_bytes, "import", (double)stats.written.import_bytes);
    sink(context, METRIC_store_written_bytes, "other", (double)stats.written.other_bytes);
    sink(context, METRIC_store_read_bytes, "", (double)stats.read_bytes);
    sink(context, METRIC_store_stored_bytes, "", (double)stats.stored_bytes);
    sink(context, METRIC_store_reserve_bytes, "", (double)stats.reserve_bytes);
    sink(context, METRIC_store_reserve_held_bytes, "", (double)stats.reserve_held_bytes);
    sink(context, METRIC_store_room_bytes, "", (double)stats.room_bytes);
    sink(context, METRIC_store_space_refusals, "", (double)stats.space_refusals);
    sink(context, METRIC_store_memtable_bytes, "", (double)stats.memtable_bytes);
    sink(context, METRIC_store_metadata_cache_bytes, "", (double)stats.metadata_cache_bytes);
    sink(context, METRIC_store_pending_compaction_bytes, "",
         (double)stats.pending_compaction_bytes);
    sink(context, METRIC_store_compactions, "", (double)stats.compactions_run);
    sink(context, METRIC_store_compacting_shards, "", (double)stats.shards_compacting);
    sink(context, METRIC_store_compacting_shards_peak, "", (double)stats.shards_compacting_peak);
    sink(context, METRIC_store_capacity_bytes, "",
         (double)(config->endurance.capacity_bytes ? config->endurance.capacity_bytes
                                                   : stats.capacity_bytes));
    sink(context, METRIC_store_rated_written_bytes, "",
         (double)config->endurance.rated_written_bytes);
    sink(context, METRIC_store_rated_years, "", config->endurance.rated_years);
    sink(context, METRIC_store_direct_io, "", stats.direct_io ? 1 : 0);
}

static void sink_profile(const struct server_parts *parts, metric_sink sink, void *context)
{
    struct profile_state state;

    profiles_state(parts->profiles, &state);
    sink(context, METRIC_profile_running, "", state.runs ? 1 : 0);
    sink(context, METRIC_profile_bytes, "", (double)state.memory_bytes);
    sink(context, METRIC_profile_lookups, "", (double)state.lookups);
    sink(context, METRIC_profile_samples, "", (double)state.samples);
    sink(context, METRIC_profile_lost_samples, "", (double)state.lost_samples);
}

static double resident_bytes(void)
{
    FILE *const file = fopen("/proc/self/statm", "re");
    unsigned long long total = 0;
    unsigned long long resident = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

void metrics_collect(const struct server_parts *parts,
                     void (*sink)(void *context, enum metric_id id, const char *label_value,
                                  double value),
                     void *context)
{
    const struct tables_totals totals = tables_totals(parts->tables);

    sink(context, METRIC_lanes, "", parts->lane_count);
    sink(context, METRIC_tables, "", tables_count(parts->tables));
    sink(context, METRIC_rows_initialised, "", (double)totals.rows_initialised);
    sink(context, METRIC_updated_bytes, "", (double)totals.updated_bytes);
    sink_lanes(parts, sink, context);
    sink_groups(parts, sink, context);
    sink_checkpoints(parts, sink, context);
    sink_store(parts, sink, context);
    sink_profile(parts, sink, context);
    sink(context, METRIC_log_dropped_lines, "", (double)log_dropped_lines());
    sink(context, METRIC_process_resident_bytes, "", resident_bytes());
}
