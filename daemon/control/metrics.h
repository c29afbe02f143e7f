/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: every figure that the server shows, in one table, and its present value.
 *
 * Thread: the control thread. Collecting calls every lane once; lanes answer between two turns. */
#ifndef EMBTIER_DAEMON_CONTROL_METRICS_H
#define EMBTIER_DAEMON_CONTROL_METRICS_H

#include <stdbool.h>
#include <stdint.h>

struct server_parts;

/* METRIC(name, COUNTER or GAUGE, help, label). Counters start at 0 with the process. */
#define METRIC_TABLE(METRIC)                                                                       \
    METRIC(lanes, GAUGE, "Worker threads", "")                                                     \
    METRIC(sessions, GAUGE, "Connected clients", "")                                               \
    METRIC(session_arena_bytes, GAUGE, "Memory shared with clients", "")                           \
    METRIC(jobs, GAUGE, "Long jobs, such as checkpoints and drops; see embtier jobs", "state")     \
    METRIC(tables, GAUGE, "Tables", "")                                                            \
    METRIC(requests, COUNTER, "Requests accepted", "")                                             \
    METRIC(request_rows, COUNTER, "Rows asked for, by operation", "op")                            \
    METRIC(lookup_rows, COUNTER, "Rows of GET, by the source that served them", "source")          \
    METRIC(expired_tickets, COUNTER, "Lookups whose push did not arrive in time", "")              \
    METRIC(casting_seconds, COUNTER, "Seconds that caster threads spent sorting gradients by row", \
           "")                                                                                     \
    METRIC(groups, GAUGE, "Groups of trainers", "")                                                \
    METRIC(group_steps, COUNTER, "Steps of groups, by outcome", "outcome")                         \
    METRIC(failed_rows, COUNTER, "Rows that could not be read", "")                                \
    METRIC(abandoned_rows, COUNTER, "Rows left out because their client was gone", "")             \
    METRIC(logged_rows, COUNTER,                                                                   \
           "Changed rows of async and sync tables, which are written at once", "")                 \
    METRIC(checkpoints, COUNTER, "Checkpoints, by outcome", "outcome")                             \
    METRIC(checkpoint_newest_seconds, GAUGE,                                                       \
           "Age of the newest checkpoint; no figure if there is none", "")                         \
    METRIC(checkpoint_pause_seconds, GAUGE, "How long the newest checkpoint paused updates", "")   \
    METRIC(checkpoint_longest_pause_seconds, GAUGE,                                                \
           "Longest pause by a checkpoint since the start", "")                                    \
    METRIC(checkpoint_tries, COUNTER, "Tries to find a moment without updates", "")                \
    METRIC(checkpoint_cut_updates, COUNTER, "Updates of which a checkpoint has only a part", "")   \
    METRIC(checkpoint_yielded_seconds, COUNTER, "Time for which checkpoints yielded scarce cores", \
           "")                                                                                     \
    METRIC(checkpoint_held_rows, COUNTER, "Updates that found no room during a checkpoint", "")    \
    METRIC(transfer_bytes, GAUGE, "Memory reserved for exports, imports and restores", "")         \
    METRIC(shared_reads, COUNTER, "Lookups that joined a read already in progress", "")            \
    METRIC(reading_rows, GAUGE, "Distinct rows being read from SSD", "")                           \
    METRIC(cache_capacity_bytes, GAUGE, "Size of a tier", "tier")                                  \
    METRIC(cache_used_bytes, GAUGE, "Bytes of rows in a tier", "tier")                             \
    METRIC(cache_rows, GAUGE, "Rows in a tier", "tier")                                            \
    METRIC(cache_dirty_rows, GAUGE, "Rows in a tier that are not yet on SSD", "tier")              \
    METRIC(cache_hit_rows, COUNTER, "Rows read or written in place, by tier", "tier")              \
    METRIC(cache_promoted_rows, COUNTER, "Rows moved from a tier to the first", "tier")            \
    METRIC(cache_demoted_rows, COUNTER, "Rows moved from a tier to the next", "tier")              \
    METRIC(cache_evicted_clean_rows, COUNTER, "Rows that left the cache without a write", "tier")  \
    METRIC(cache_evicted_dirty_rows, COUNTER, "Rows that left the cache to be written", "tier")    \
    METRIC(cache_miss_rows, COUNTER, "Rows that no tier had", "")                                  \
    METRIC(array_capacity_bytes, GAUGE, "Part of a tier kept for tables in arrays", "tier")        \
    METRIC(array_free_bytes, GAUGE, "Part of this that no table has", "tier")                      \
    METRIC(array_used_bytes, GAUGE, "Bytes of rows in arrays", "")                                 \
    METRIC(array_rows, GAUGE, "Rows in arrays", "")                                                \
    METRIC(array_dirty_rows, GAUGE, "Rows in arrays that SSD does not have yet", "")               \
    METRIC(array_hit_rows, COUNTER, "Rows read or written in arrays", "")                          \
    METRIC(cache_refused_rows, COUNTER, "Rows for which no place was found", "")                   \
    METRIC(cache_index_bytes, GAUGE, "Bytes of the first tier taken by the index", "")             \
    METRIC(cache_map_bytes, GAUGE, "Bytes of the first tier that map rows of small tables", "")    \
    METRIC(cache_slab_moves, COUNTER, "Slabs moved from one row length to another", "")            \
    METRIC(cache_pinned_rows, GAUGE, "Rows that may not leave the cache", "")                      \
    METRIC(write_queue_rows, GAUGE, "Rows on their way to SSD", "")                                \
    METRIC(write_queue_bytes, GAUGE, "Bytes of rows on their way to SSD", "")                      \
    METRIC(write_queue_capacity_bytes, GAUGE, "Capacity of the write queue", "")                   \
    METRIC(write_retries, COUNTER, "Writes that the store refused for the moment", "")             \
    METRIC(write_error, GAUGE, "Number of the error that blocks writes, 0 if none", "")            \
    METRIC(rows_initialised, COUNTER, "Rows made on first touch", "")                              \
    METRIC(updated_bytes, COUNTER, "Bytes of updated rows, counted at each update", "")            \
    METRIC(store_rows_read, COUNTER, "Rows looked for on SSD", "")                                 \
    METRIC(store_rows_absent, COUNTER, "Rows looked for on SSD that were never written", "")       \
    METRIC(store_rows_written, COUNTER, "Rows handed to RocksDB", "")                              \
    METRIC(store_row_bytes_written, COUNTER,                                                       \
           "Bytes of rows handed to RocksDB, with keys and heads", "")                             \
    METRIC(store_written_bytes, COUNTER, "Bytes written to SSD, by cause", "cause")                \
    METRIC(store_read_bytes, COUNTER, "Bytes read from SSD for rows", "")                          \
    METRIC(store_stored_bytes, GAUGE, "Bytes of live files on SSD", "")                            \
    METRIC(store_reserve_bytes, GAUGE, "Space reserved for drops, checkpoints, stops and starts",  \
           "")                                                                                     \
    METRIC(store_reserve_held_bytes, GAUGE,                                                        \
           "Reserved space that is in place; less while it is used", "")                           \
    METRIC(store_room_bytes, GAUGE, "Space free for rows before updates are refused", "")          \
    METRIC(store_space_refusals, COUNTER, "Updates refused because the disk was full", "")         \
    METRIC(store_memtable_bytes, GAUGE, "RocksDB's write buffers", "")                             \
    METRIC(store_metadata_cache_bytes, GAUGE, "RocksDB's index and filter blocks in memory", "")   \
    METRIC(store_pending_compaction_bytes, GAUGE, "Bytes waiting for compaction", "")              \
    METRIC(store_compactions, COUNTER, "Compactions run", "")                                      \
    METRIC(store_compacting_shards, GAUGE, "Shards compacting now", "")                            \
    METRIC(store_compacting_shards_peak, GAUGE, "Most shards that ever compacted at once", "")     \
    METRIC(profile_running, GAUGE, "1 while a profile of the lookups is made", "")                 \
    METRIC(profile_bytes, GAUGE, "Memory of that profile", "")                                     \
    METRIC(profile_lookups, GAUGE, "Lookups since that profile began", "")                         \
    METRIC(profile_samples, GAUGE, "Samples taken for that profile", "")                           \
    METRIC(profile_lost_samples, GAUGE, "Samples for which it had no room", "")                    \
    METRIC(store_capacity_bytes, GAUGE, "Capacity of the drives, see endurance.capacity_bytes",    \
           "")                                                                                     \
    METRIC(store_rated_written_bytes, GAUGE,                                                       \
           "Bytes that the drives are rated to take in their life "                                \
           "(endurance.rated_written_bytes); 0: "                                                  \
           "not known",                                                                            \
           "")                                                                                     \
    METRIC(store_rated_years, GAUGE, "Years of that life (endurance.rated_years)", "")             \
    METRIC(store_direct_io, GAUGE, "1 if reads and writes of SSD bypass the page cache", "")       \
    METRIC(log_dropped_lines, COUNTER, "Log lines that standard error did not accept", "")         \
    METRIC(process_resident_bytes, GAUGE, "Resident memory of the daemon", "")

enum metric_id {
#define METRIC(name, kind, help, label) METRIC_##name,
    METRIC_TABLE(METRIC)
#undef METRIC
        METRIC_COUNT
};

struct metric_description {
    const char *name;
    const char *help;
    const char *label; /* "": none */
    bool counter;
};
extern const struct metric_description metric_descriptions[METRIC_COUNT];

/* Calls @sink for every value; strings are borrowed until it returns. */
void metrics_collect(const struct server_parts *parts,
                     void (*sink)(void *context, enum metric_id id, const char *label_value,
                                  double value),
                     void *context);

#endif
