/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: every figure that the server shows, in one table, and its present value.
 *
 * Thread: the control thread. Collecting reads the counters of all lanes, and waits for none
 * (lane_stats()). */
#ifndef EMBTIER_DAEMON_CONTROL_METRICS_H
#define EMBTIER_DAEMON_CONTROL_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/tier_spec.h"
#include "daemon/endurance/endurance.h"

struct latencies;
struct server_parts;

/* METRIC(name, COUNTER, GAUGE or HISTOGRAM, help, label, source). Counters start at 0 with the
 * process. The source is where metrics.c reads the figure:
 *
 *   LANES(field)                 the sum over all lanes, of struct lane_stats
 *   LANES_PER(field, number)     the same, divided
 *   LANES_MOST(field)            the largest of all lanes
 *   TIERS(field)                 the sum over all lanes, for each tier of the row cache
 *   ARRAYS(field)                the sum over all lanes, of struct home_stats of arrays
 *   SPACE(field)                 for each tier, of struct array_space_stats
 *   ACCESS(field), RELOADS(field), CHECKPOINTS_PER(field, number), GROUPS(field), PROFILE(field),
 * STORE(field), STORE_PER(field, number), TOTALS(field) of the part's own struct; with a number,
 * divided
 *   LABELS                       METRIC_LABEL_TABLE has a row for each value of the label
 *   TABLES                       daemon/http/table_top.c, for some of the tables; over HTTP alone
 *   SNAPSHOT                     snapshot.c; over HTTP alone
 *   LATENCIES                    metrics_latencies(); the labels are `op` and `transport`
 *   OTHER                        code, in metrics.c or snapshot.c
 *
 * Fields are unsigned numbers or bool. */
#define METRIC_TABLE(METRIC)                                                                       \
    METRIC(build_info, GAUGE, "1; the label is the server's version", "version", SNAPSHOT)         \
    METRIC(ready, GAUGE, "1 if the server serves and can write rows, as /readyz tells", "",        \
           SNAPSHOT)                                                                               \
    METRIC(uptime_seconds, GAUGE, "Time since the start", "", SNAPSHOT)                            \
    METRIC(lanes, GAUGE, "Worker threads", "", OTHER)                                              \
    METRIC(sessions, GAUGE, "Connected clients", "", OTHER)                                        \
    METRIC(transport_sessions, GAUGE, "Connected clients, by transport; see embtier clients",      \
           "transport", OTHER)                                                                     \
    METRIC(strangers, GAUGE,                                                                       \
           "Connections over a network that are no session: without a hello, or on their way out", \
           "", OTHER)                                                                              \
    METRIC(ended_strangers, COUNTER, "Strangers that were ended to make place for others", "",     \
           OTHER)                                                                                  \
    METRIC(session_arena_bytes, GAUGE, "Memory shared with clients", "", OTHER)                    \
    METRIC(access_users, GAUGE, "Users of the access file; 0: every client may do all", "",        \
           ACCESS(users))                                                                          \
    METRIC(access_refusals, COUNTER,                                                               \
           "Hellos, control messages and requests of clients that may not do that", "",            \
           ACCESS(refusals))                                                                       \
    METRIC(access_reloads, COUNTER, "Reloads of the access file", "", RELOADS(reloads))            \
    METRIC(access_reload_failures, COUNTER,                                                        \
           "Reloads that failed, so the old file stayed in force", "", RELOADS(failures))          \
    METRIC(access_reload_failed, GAUGE,                                                            \
           "1 if the last reload failed, so older files are in force", "", RELOADS(last_failed))   \
    METRIC(jobs, GAUGE, "Long jobs, such as checkpoints and drops; see embtier jobs", "state",     \
           OTHER)                                                                                  \
    METRIC(tables, GAUGE, "Tables", "", OTHER)                                                     \
    METRIC(table_lookup_rows, COUNTER, "Rows looked up, by table", "table", TABLES)                \
    METRIC(table_missed_rows, COUNTER, "Lookups of rows that no memory had, by table", "table",    \
           TABLES)                                                                                 \
    METRIC(table_read_rows, COUNTER, "Rows read from SSD for lookups, by table", "table", TABLES)  \
    METRIC(table_lookup_seconds, COUNTER,                                                          \
           "Estimate of the time of lanes spent on lookups, by table", "table", TABLES)            \
    METRIC(table_updated_rows, COUNTER, "Updates of rows, by table", "table", TABLES)              \
    METRIC(table_written_bytes, COUNTER, "Bytes written to SSD, by table", "table", TABLES)        \
    METRIC(requests, COUNTER, "Requests accepted", "", LANES(requests))                            \
    METRIC(request_seconds, HISTOGRAM,                                                             \
           "Time from a lane's first look at a request to its answer, by operation and transport", \
           "op", LATENCIES)                                                                        \
    METRIC(request_rows, COUNTER, "Rows asked for, by operation", "op", LABELS)                    \
    METRIC(lookup_rows, COUNTER, "Rows of GET, by the source that served them", "source", LABELS)  \
    METRIC(expired_tickets, COUNTER, "Lookups whose push did not arrive in time", "",              \
           LANES(expired_tickets))                                                                 \
    METRIC(casting_seconds, COUNTER, "Seconds that caster threads spent sorting gradients by row", \
           "", LANES_PER(casting_ns, 1e9))                                                         \
    METRIC(groups, GAUGE, "Groups of trainers", "", GROUPS(groups))                                \
    METRIC(group_steps, COUNTER, "Steps of groups, by outcome", "outcome", LABELS)                 \
    METRIC(failed_rows, COUNTER, "Rows that could not be read", "", LANES(failed_rows))            \
    METRIC(abandoned_rows, COUNTER, "Rows left out because their client was gone", "",             \
           LANES(abandoned_rows))                                                                  \
    METRIC(logged_rows, COUNTER,                                                                   \
           "Changed rows of async and sync tables, which are written at once", "",                 \
           LANES(logged_rows))                                                                     \
    METRIC(checkpoints, COUNTER, "Checkpoints, by outcome", "outcome", LABELS)                     \
    METRIC(replay_refused, GAUGE,                                                                  \
           "1 while updates of replay tables are refused, until a first checkpoint succeeds", "",  \
           OTHER)                                                                                  \
    METRIC(checkpoint_newest_seconds, GAUGE,                                                       \
           "Age of the newest checkpoint; no figure if there is none", "", OTHER)                  \
    METRIC(checkpoint_newest_id, GAUGE,                                                            \
           "Number of the newest checkpoint; no figure if there is none", "", OTHER)               \
    METRIC(checkpoint_interval_seconds, GAUGE,                                                     \
           "Time between the server's own checkpoints; 0: it makes none", "", OTHER)               \
    METRIC(checkpoint_failures_in_row, GAUGE, "Checkpoints that failed since one was made", "",    \
           CHECKPOINTS_PER(failures_in_row, 1))                                                    \
    METRIC(checkpoint_unsaved_bytes, GAUGE,                                                        \
           "Bytes of updates since the start that no checkpoint may have yet", "", OTHER)          \
    METRIC(checkpoint_pause_seconds, GAUGE, "How long the newest checkpoint paused updates", "",   \
           CHECKPOINTS_PER(pause_us, 1e6))                                                         \
    METRIC(checkpoint_longest_pause_seconds, GAUGE,                                                \
           "Longest pause by a checkpoint since the start", "",                                    \
           CHECKPOINTS_PER(longest_pause_us, 1e6))                                                 \
    METRIC(checkpoint_tries, COUNTER, "Tries to find a moment without updates", "",                \
           CHECKPOINTS_PER(tries, 1))                                                              \
    METRIC(checkpoint_cut_updates, COUNTER, "Updates of which a checkpoint has only a part", "",   \
           CHECKPOINTS_PER(cut_updates, 1))                                                        \
    METRIC(checkpoint_yielded_seconds, COUNTER, "Time for which checkpoints yielded scarce cores", \
           "", CHECKPOINTS_PER(yielded_us, 1e6))                                                   \
    METRIC(checkpoint_held_rows, COUNTER, "Updates that found no room during a checkpoint", "",    \
           LANES(held_rows))                                                                       \
    METRIC(transfer_bytes, GAUGE, "Memory reserved for exports, imports and restores", "", OTHER)  \
    METRIC(shared_reads, COUNTER, "Lookups that joined a read already in progress", "",            \
           LANES(shared_reads))                                                                    \
    METRIC(reading_rows, GAUGE, "Distinct rows being read from SSD", "", LANES(reading_rows))      \
    METRIC(cache_capacity_bytes, GAUGE, "Size of a tier", "tier", TIERS(capacity_bytes))           \
    METRIC(cache_used_bytes, GAUGE, "Bytes of rows in a tier", "tier", TIERS(used_bytes))          \
    METRIC(cache_rows, GAUGE, "Rows in a tier", "tier", TIERS(rows))                               \
    METRIC(cache_dirty_rows, GAUGE, "Rows in a tier that are not yet on SSD", "tier",              \
           TIERS(dirty_rows))                                                                      \
    METRIC(cache_hit_rows, COUNTER, "Rows read or written in place, by tier", "tier", TIERS(hits)) \
    METRIC(cache_promoted_rows, COUNTER, "Rows moved from a tier to the first", "tier",            \
           TIERS(promotions))                                                                      \
    METRIC(cache_demoted_rows, COUNTER, "Rows moved from a tier to the next", "tier",              \
           TIERS(demotions))                                                                       \
    METRIC(cache_evicted_clean_rows, COUNTER, "Rows that left the cache without a write", "tier",  \
           TIERS(evicted_clean))                                                                   \
    METRIC(cache_evicted_dirty_rows, COUNTER, "Rows that left the cache to be written", "tier",    \
           TIERS(evicted_dirty))                                                                   \
    METRIC(cache_miss_rows, COUNTER, "Rows that no tier had", "", LANES(missed_rows))              \
    METRIC(array_capacity_bytes, GAUGE, "Part of a tier kept for tables in arrays", "tier",        \
           SPACE(bytes))                                                                           \
    METRIC(array_free_bytes, GAUGE, "Part of this that no table has", "tier", SPACE(free_bytes))   \
    METRIC(array_used_bytes, GAUGE, "Bytes of rows in arrays", "", ARRAYS(bytes))                  \
    METRIC(array_rows, GAUGE, "Rows in arrays", "", ARRAYS(rows))                                  \
    METRIC(array_dirty_rows, GAUGE, "Rows in arrays that SSD does not have yet", "",               \
           ARRAYS(dirty_rows))                                                                     \
    METRIC(array_hit_rows, COUNTER, "Rows read or written in arrays", "", ARRAYS(hits))            \
    METRIC(cache_refused_rows, COUNTER, "Rows for which no place was found", "",                   \
           LANES(cache.not_cached))                                                                \
    METRIC(cache_index_bytes, GAUGE, "Bytes of the first tier taken by the index", "",             \
           LANES(cache.index_bytes))                                                               \
    METRIC(cache_map_bytes, GAUGE, "Bytes of the first tier that map rows of small tables", "",    \
           LANES(cache.map_bytes))                                                                 \
    METRIC(cache_slab_moves, COUNTER, "Slabs moved from one row length to another", "",            \
           LANES(cache.slab_moves))                                                                \
    METRIC(cache_pinned_rows, GAUGE, "Rows that may not leave the cache", "",                      \
           LANES(cache.pinned_rows))                                                               \
    METRIC(write_queue_rows, GAUGE, "Rows on their way to SSD", "", LANES(write_queue.rows))       \
    METRIC(write_queue_bytes, GAUGE, "Bytes of rows on their way to SSD", "",                      \
           LANES(write_queue.bytes))                                                               \
    METRIC(write_queue_capacity_bytes, GAUGE, "Capacity of the write queue", "",                   \
           LANES(write_queue.capacity_bytes))                                                      \
    METRIC(write_retries, COUNTER, "Writes that the store refused for the moment", "",             \
           LANES(write_queue.retries))                                                             \
    METRIC(write_error, GAUGE, "Number of the error that blocks writes, 0 if none", "",            \
           LANES_MOST(write_queue.err))                                                            \
    METRIC(rows_initialised, COUNTER, "Rows made on first touch", "", TOTALS(rows_initialised))    \
    METRIC(updated_bytes, COUNTER, "Bytes of updated rows, counted at each update", "",            \
           TOTALS(updated_bytes))                                                                  \
    METRIC(store_rows_read, COUNTER, "Rows looked for on SSD", "", STORE(rows_read))               \
    METRIC(store_rows_absent, COUNTER, "Rows looked for on SSD that were never written", "",       \
           STORE(rows_absent))                                                                     \
    METRIC(store_rows_written, COUNTER, "Rows handed to RocksDB", "", STORE(rows_written))         \
    METRIC(store_row_bytes_written, COUNTER,                                                       \
           "Bytes of rows handed to RocksDB, with keys and heads", "", STORE(row_bytes_written))   \
    METRIC(store_written_bytes, COUNTER, "Bytes written to SSD, by cause", "cause", LABELS)        \
    METRIC(store_read_bytes, COUNTER, "Bytes read from SSD for rows", "", STORE(read_bytes))       \
    METRIC(store_reading_seconds, COUNTER, "Time for which at least one read of rows ran", "",     \
           STORE_PER(reading_ns, 1e9))                                                             \
    METRIC(store_blob_bytes, GAUGE, "Bytes on disk of files of rows apart from their keys", "",    \
           STORE(blob_bytes))                                                                      \
    METRIC(store_stored_bytes, GAUGE, "Bytes of live files on SSD", "", STORE(stored_bytes))       \
    METRIC(store_reserve_bytes, GAUGE, "Space reserved for drops, checkpoints, stops and starts",  \
           "", STORE(reserve_bytes))                                                               \
    METRIC(store_reserve_held_bytes, GAUGE,                                                        \
           "Reserved space that is in place; less while it is used", "",                           \
           STORE(reserve_held_bytes))                                                              \
    METRIC(store_room_bytes, GAUGE, "Space free for rows before updates are refused", "",          \
           STORE(room_bytes))                                                                      \
    METRIC(store_space_refusals, COUNTER, "Updates refused because the disk was full", "",         \
           STORE(space_refusals))                                                                  \
    METRIC(store_refusing, GAUGE,                                                                  \
           "1 if an update was refused in the last minute because the disk was full", "",          \
           STORE(is_refusing))                                                                     \
    METRIC(store_memtable_bytes, GAUGE, "RocksDB's write buffers", "", STORE(memtable_bytes))      \
    METRIC(store_metadata_cache_bytes, GAUGE, "RocksDB's index and filter blocks in memory", "",   \
           STORE(metadata_cache_bytes))                                                            \
    METRIC(store_pending_compaction_bytes, GAUGE, "Bytes waiting for compaction", "",              \
           STORE(pending_compaction_bytes))                                                        \
    METRIC(store_compactions, COUNTER, "Compactions run", "", STORE(compactions_run))              \
    METRIC(store_compacting_shards, GAUGE, "Shards compacting now", "", STORE(shards_compacting))  \
    METRIC(store_compacting_shards_peak, GAUGE, "Most shards that ever compacted at once", "",     \
           STORE(shards_compacting_peak))                                                          \
    METRIC(store_shards, GAUGE, "Shards that have rows", "", STORE(moves.shards))                  \
    METRIC(reshard_running, GAUGE,                                                                 \
           "1 while buckets of rows move to other shards; see embtier reshard", "",                \
           STORE(moves.runs))                                                                      \
    METRIC(reshard_failed, GAUGE, "1 if the last move of buckets ended with an error", "",         \
           STORE(moves.has_failed))                                                                \
    METRIC(reshard_moved_buckets, GAUGE, "Buckets that the present or last move has moved", "",    \
           STORE(moves.moved))                                                                     \
    METRIC(reshard_buckets, GAUGE, "Buckets that it moves in all", "", STORE(moves.total))         \
    METRIC(reshard_idle_seconds, GAUGE,                                                            \
           "Time since the present move last read a row or made a step", "", STORE(moves.idle_s))  \
    METRIC(profile_running, GAUGE, "1 while a profile of the lookups is made", "", PROFILE(runs))  \
    METRIC(profile_bytes, GAUGE, "Memory of that profile", "", PROFILE(memory_bytes))              \
    METRIC(profile_lookups, GAUGE, "Lookups since that profile began", "", PROFILE(lookups))       \
    METRIC(profile_samples, GAUGE, "Samples taken for that profile", "", PROFILE(samples))         \
    METRIC(profile_lost_samples, GAUGE, "Samples for which it had no room", "",                    \
           PROFILE(lost_samples))                                                                  \
    METRIC(store_capacity_bytes, GAUGE, "Capacity of the drives, see endurance.capacity_bytes",    \
           "", OTHER)                                                                              \
    METRIC(store_rated_written_bytes, GAUGE,                                                       \
           "Bytes that the drives may take in their rated life, as configured; 0: not known", "",  \
           OTHER)                                                                                  \
    METRIC(store_rated_years, GAUGE, "Years of that life, as configured", "", OTHER)               \
    METRIC(server_history_seconds, GAUGE, "Age of the history of the server's writes", "", OTHER)  \
    METRIC(server_history_bytes, COUNTER, "Bytes that the server wrote in that time", "", OTHER)   \
    METRIC(server_daily_bytes, GAUGE,                                                              \
           "Bytes a day that the server writes, at the rate of the last hour, day or week; from "  \
           "a history of an hour on",                                                              \
           "window", OTHER)                                                                        \
    METRIC(shared_history_bytes, COUNTER,                                                          \
           "Bytes that the server wrote in the time of its tables' histories, for none of them",   \
           "", OTHER)                                                                              \
    METRIC(shared_daily_bytes, GAUGE,                                                              \
           "Those a day, at the rate of the last ten minutes, hour, day or week", "window", OTHER) \
    METRIC(device_capacity_bytes, GAUGE, "Capacity of a device beneath the server's files",        \
           "device", OTHER)                                                                        \
    METRIC(device_counted, GAUGE,                                                                  \
           "1 if the kernel counts what is written to the device; 0: queue/iostats is off, and "   \
           "figures of its writes are left out",                                                   \
           "device", OTHER)                                                                        \
    METRIC(device_written_bytes, COUNTER,                                                          \
           "Bytes that all programs wrote to the device since the server's start", "device",       \
           OTHER)                                                                                  \
    METRIC(device_server_bytes, COUNTER, "Those that the server wrote, where they are known",      \
           "device", OTHER)                                                                        \
    METRIC(device_history_seconds, GAUGE, "Age of the history of the device's writes", "device",   \
           OTHER)                                                                                  \
    METRIC(device_history_bytes, COUNTER, "Bytes written to the device in that time", "device",    \
           OTHER)                                                                                  \
    METRIC(device_daily_bytes_hour, GAUGE, "Bytes a day, at the rate of the last hour", "device",  \
           OTHER)                                                                                  \
    METRIC(device_daily_bytes_day, GAUGE, "Bytes a day, at the rate of the last day", "device",    \
           OTHER)                                                                                  \
    METRIC(device_daily_bytes_week, GAUGE, "Bytes a day, at the rate of the last week", "device",  \
           OTHER)                                                                                  \
    METRIC(device_daily_bytes_now, GAUGE, "Bytes a day, at the rate of the last ten minutes",      \
           "device", OTHER)                                                                        \
    METRIC(device_write_back_held, GAUGE,                                                          \
           "1 while rows are written back at the rate of endurance.max_dwpd, as the last day's "   \
           "bytes are above it",                                                                   \
           "device", OTHER)                                                                        \
    METRIC(device_max_dwpd_exceeded, GAUGE,                                                        \
           "1 while the device takes more writes a day than endurance.max_dwpd", "device", OTHER)  \
    METRIC(store_direct_io, GAUGE, "1 if reads and writes of SSD bypass the page cache", "",       \
           STORE(direct_io))                                                                       \
    METRIC(log_dropped_lines, COUNTER, "Log lines that standard error did not accept", "", OTHER)  \
    METRIC(process_resident_bytes, GAUGE, "Resident memory of the daemon", "", OTHER)              \
    METRIC(process_cpu_seconds, COUNTER, "Time that the daemon's threads ran on processors", "",   \
           OTHER)

/* LABEL(name, value, source): the figures of a metric whose source is LABELS. One from TIERS or
 * SPACE is a figure for each tier, which is the value. */
#define METRIC_LABEL_TABLE(LABEL)                                                                  \
    LABEL(request_rows, "get", LANES(get_rows))                                                    \
    LABEL(request_rows, "set", LANES(set_rows))                                                    \
    LABEL(request_rows, "push", LANES(pushed_rows))                                                \
    LABEL(request_rows, "prefetch", LANES(prefetched_rows))                                        \
    LABEL(lookup_rows, "", TIERS(get_hits))                                                        \
    LABEL(lookup_rows, "array", ARRAYS(get_hits))                                                  \
    LABEL(lookup_rows, "write_queue", LANES(queued_get_rows))                                      \
    LABEL(lookup_rows, "ssd", LANES(stored_get_rows))                                              \
    LABEL(lookup_rows, "initial", LANES(initial_get_rows))                                         \
    LABEL(group_steps, "applied", GROUPS(steps))                                                   \
    LABEL(group_steps, "refused", GROUPS(refused_steps))                                           \
    LABEL(group_steps, "broken", GROUPS(broken_groups))                                            \
    LABEL(checkpoints, "made", CHECKPOINTS_PER(made, 1))                                           \
    LABEL(checkpoints, "failed", CHECKPOINTS_PER(failed, 1))                                       \
    LABEL(store_written_bytes, "flush", STORE(written.flush_bytes))                                \
    LABEL(store_written_bytes, "compaction", STORE(written.compaction_bytes))                      \
    LABEL(store_written_bytes, "log", STORE(written.log_bytes))                                    \
    LABEL(store_written_bytes, "blob", STORE(written.blob_bytes))                                  \
    LABEL(store_written_bytes, "checkpoint", STORE(written.checkpoint_bytes))                      \
    LABEL(store_written_bytes, "import", STORE(written.import_bytes))                              \
    LABEL(store_written_bytes, "other", STORE(written.other_bytes))

enum metric_id {
#define METRIC(name, kind, help, label, source) METRIC_##name,
    METRIC_TABLE(METRIC)
#undef METRIC
        METRIC_COUNT
};

/* The most figures that there can be, with the two of `jobs`: each row may have one for each
 * tier, and there may be one for each device in METRICS_OF_DEVICES rows. */
#define METRICS_OF_DEVICES 12
enum {
#define LABEL(name, value, source) +1
    METRICS_MOST = (METRIC_COUNT METRIC_LABEL_TABLE(LABEL)) * TIERS_MAX +
                   METRICS_OF_DEVICES * ENDURANCE_DEVICES_MAX
#undef LABEL
};

enum metric_kind {
    METRIC_KIND_GAUGE,
    METRIC_KIND_COUNTER,
    METRIC_KIND_HISTOGRAM,
};

struct metric_description {
    const char *name;
    const char *help;
    const char *label; /* "": none */
    enum metric_kind kind;
};
extern const struct metric_description metric_descriptions[METRIC_COUNT];

/* Takes one value; strings are borrowed until it returns. */
typedef void metric_sink(void *context, enum metric_id id, const char *label_value, double value);

/* Calls @sink for every value. */
void metrics_collect(const struct server_parts *parts, metric_sink *sink, void *context);
/* The times of requests, of all lanes. */
void metrics_latencies(const struct server_parts *parts, struct latencies *ret_latencies);

#endif
