/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_types.h: how far databases are behind with compaction, and why they compact or do not.
 */
#ifndef EMBTIER_STORE_DATABASE_COMPACTION_TYPES_H
#define EMBTIER_STORE_DATABASE_COMPACTION_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/day_hours.h"

/* X(NAME, word, meaning), for the wire and for people. Numbers never change. */
#define COMPACTION_STATES(X)                                                                       \
    X(IDLE, "idle", "nothing to compact")                                                          \
    X(RUNS, "runs", "it compacts, or begins to")                                                   \
    X(WAITS_TURN, "waits for its turn", "as many shards as may compact at once do")                \
    X(WAITS_LANES, "waits for lanes", "lookups wait for the drives")                               \
    X(WAITS_HOURS, "waits for its hours", "rocksdb.compaction_hours")                              \
    X(PAUSED, "paused", "by an operator")                                                          \
    X(NO_SPACE, "no space", "the disk is full")                                                    \
    X(FAILED, "failed", "background work failed; it is tried again")                               \
    X(SITS_OUT, "sits out", "RocksDB found nothing to compact; it gets another turn soon")         \
    X(RECOVERS, "recovers", "its last turn failed; it gets another turn soon")

enum compaction_state {
#define X(name, ...) COMPACTION_##name,
    COMPACTION_STATES(X)
#undef X
        COMPACTION_STATE_COUNT
};

/* X(NAME, word, meaning): why compactions may write as much as they may. Numbers never change. */
#define COMPACTION_PACE_REASONS(X)                                                                 \
    X(NONE, "none", "no limit is set")                                                             \
    X(HOLDS, "holds", "the limit holds")                                                           \
    X(BEHIND, "raised", "a shard is behind")                                                       \
    X(NEAR, "suspended", "a shard would soon take no more updates")                                \
    X(QUIET, "suspended", "clients are quiet, so shards catch up")                                 \
    X(SPACE, "suspended", "the disk is full, so compactions under way end soon")

enum compaction_pace_reason {
#define X(name, ...) COMPACTION_PACE_##name,
    COMPACTION_PACE_REASONS(X)
#undef X
        COMPACTION_PACE_COUNT
};

/* One database. */
struct compaction_view {
    enum compaction_state state;
    bool is_urgent; /* near the limit at which it takes no more writes */
    uint32_t level0_files;
    uint64_t pending_bytes; /* an estimate by RocksDB */
    uint64_t running;       /* compactions */
    /* Progress of the compactions that run: */
    uint64_t done_bytes, total_bytes; /* of their files' */
    uint64_t elapsed_ms;              /* of the oldest */
    uint64_t remaining_ms;            /* of the slowest, at its speed so far */
    bool has_remaining;
    uint64_t
        compacted_bytes; /* of files that compactions have read since the database was opened */
};

/* The whole. */
struct compaction_facts {
    uint32_t databases, parallel;
    bool is_deferred, is_busy, lacks_space;
    uint32_t minutes_to_hours; /* 0: they have begun */
    struct day_hours hours;
    uint64_t limit_bytes;     /* a second that compactions may write; 0: no limit */
    uint64_t limit_now_bytes; /* the one in force; 0: none */
    enum compaction_pace_reason pace;
};

#endif
