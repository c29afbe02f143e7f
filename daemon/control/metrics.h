/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: every figure the server shows, in one table, and their values now.
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
    METRIC(jobs, GAUGE, "What takes long, such as checkpoints and drops; see embtier jobs",        \
           "state")                                                                                \
    METRIC(tables, GAUGE, "Tables", "")                                                            \
    METRIC(requests, COUNTER, "Requests taken", "")                                                \
    METRIC(request_rows, COUNTER, "Rows asked for, by operation", "op")                            \
    METRIC(lookup_rows, COUNTER, "Rows of GET by where they were served from", "source")           \
    METRIC(expired_tickets, COUNTER, "Lookups whose push did not come in time", "")                \
    METRIC(casting_seconds, COUNTER, "Time spent sorting gradients' rows, beside the lanes", "")   \
    METRIC(groups, GAUGE, "Groups of trainers", "")                                                \
    METRIC(group_steps, COUNTER, "Steps of groups, by how they ended", "end")                      \
    METRIC(failed_rows, COUNTER, "Rows that could not be read", "")                                \
    METRIC(abandoned_rows, COUNTER, "Rows left out since their client was gone", "")               \
    METRIC(logged_rows, COUNTER, "Rows of async and sync tables changed, and so written", "")      \
    METRIC(checkpoints, COUNTER, "Checkpoints, by how they ended", "end")                          \
    METRIC(checkpoint_newest_seconds, GAUGE, "How long ago the newest was made; none: no figure",  \
           "")                                                                                     \
    METRIC(checkpoint_pause_seconds, GAUGE, "No update was begun for so long, at the newest", "")  \
    METRIC(checkpoint_longest_pause_seconds, GAUGE, "The same, at any since the start", "")        \
    METRIC(checkpoint_tries, COUNTER, "So often a moment without updates was looked for", "")      \
    METRIC(checkpoint_cut_updates, COUNTER, "Updates that a checkpoint has a part of", "")         \
    METRIC(checkpoint_yielded_seconds, COUNTER, "So long checkpoints left few cores to others",    \
           "")                                                                                     \
    METRIC(checkpoint_held_rows, COUNTER, "How often an update found no room during one", "")      \
    METRIC(transfer_bytes, GAUGE, "Memory put down for exports, imports and restores", "")         \
    METRIC(shared_reads, COUNTER, "Lookups that joined a read already under way", "")              \
    METRIC(reading_rows, GAUGE, "Distinct rows being read from SSD", "")                           \
    METRIC(cache_capacity_bytes, GAUGE, "Size of a tier", "tier")                                  \
    METRIC(cache_used_bytes, GAUGE, "Bytes of rows in a tier", "tier")                             \
    METRIC(cache_rows, GAUGE, "Rows in a tier", "tier")                                            \
    METRIC(cache_dirty_rows, GAUGE, "Rows in a tier that SSD does not have yet", "tier")           \
    METRIC(cache_hit_rows, COUNTER, "Rows read or written where they lay, by tier", "tier")        \
    METRIC(cache_promoted_rows, COUNTER, "Rows moved from a tier to the first", "tier")            \
    METRIC(cache_demoted_rows, COUNTER, "Rows moved from a tier to the next", "tier")              \
    METRIC(cache_evicted_clean_rows, COUNTER, "Rows that left the cache without a write", "tier")  \
    METRIC(cache_evicted_dirty_rows, COUNTER, "Rows that left the cache to be written", "tier")    \
    METRIC(cache_miss_rows, COUNTER, "Rows that no tier had", "")                                  \
    METRIC(cache_refused_rows, COUNTER, "Rows for which no place could be had", "")                \
    METRIC(cache_index_bytes, GAUGE, "Bytes of the first tier taken by the index", "")             \
    METRIC(cache_map_bytes, GAUGE, "Bytes of the first tier that map rows of small tables", "")    \
    METRIC(cache_slab_moves, COUNTER, "Slabs given from one row length to another", "")            \
    METRIC(cache_pinned_rows, GAUGE, "Rows that may not leave the cache", "")                      \
    METRIC(write_queue_rows, GAUGE, "Rows on their way to SSD", "")                                \
    METRIC(write_queue_bytes, GAUGE, "Bytes of them", "")                                          \
    METRIC(write_queue_capacity_bytes, GAUGE, "Room for them", "")                                 \
    METRIC(write_retries, COUNTER, "Writes the store refused for the moment", "")                  \
    METRIC(write_error, GAUGE, "Error that holds up writes, 0 if none", "")                        \
    METRIC(rows_initialised, COUNTER, "Rows made on first touch", "")                              \
    METRIC(updated_bytes, COUNTER, "Bytes of the rows that were set, each time anew", "")          \
    METRIC(store_rows_read, COUNTER, "Rows looked for on SSD", "")                                 \
    METRIC(store_rows_absent, COUNTER, "Rows looked for on SSD that were never written", "")       \
    METRIC(store_rows_written, COUNTER, "Rows handed to RocksDB", "")                              \
    METRIC(store_row_bytes_written, COUNTER, "Bytes of them, with keys and heads", "")             \
    METRIC(store_written_bytes, COUNTER, "Bytes written to SSD, by cause", "cause")                \
    METRIC(store_read_bytes, COUNTER, "Bytes read from SSD for rows", "")                          \
    METRIC(store_stored_bytes, GAUGE, "Bytes of live files on SSD", "")                            \
    METRIC(store_reserve_bytes, GAUGE, "Space kept for drops, checkpoints, stops and starts", "")  \
    METRIC(store_reserve_held_bytes, GAUGE, "Of it, what is there: less while it is used", "")     \
    METRIC(store_room_bytes, GAUGE, "Free for rows, until updates are refused", "")                \
    METRIC(store_space_refusals, COUNTER, "Updates refused since the disk was full", "")           \
    METRIC(store_memtable_bytes, GAUGE, "RocksDB's write buffers", "")                             \
    METRIC(store_metadata_cache_bytes, GAUGE, "RocksDB's index and filter blocks in memory", "")   \
    METRIC(store_pending_compaction_bytes, GAUGE, "Bytes that want compaction", "")                \
    METRIC(store_compactions, COUNTER, "Compactions run", "")                                      \
    METRIC(store_compacting_shards, GAUGE, "Shards compacting now", "")                            \
    METRIC(store_compacting_shards_peak, GAUGE, "Most shards that ever compacted at once", "")     \
    METRIC(store_capacity_bytes, GAUGE, "Of the drives, see endurance.capacity_bytes", "")         \
    METRIC(store_rated_written_bytes, GAUGE, "endurance.rated_written_bytes; 0: not known", "")    \
    METRIC(store_rated_years, GAUGE, "endurance.rated_years", "")                                  \
    METRIC(store_direct_io, GAUGE, "1 if SSD is read and written past the page cache", "")         \
    METRIC(log_dropped_lines, COUNTER, "Lines of the log that standard error did not take", "")    \
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
