/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_opts.h: the parts of the server in which knobs work, and the limits among them. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_OPTS_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_OPTS_H

#include <stdint.h>

struct accounts;
struct arena;
struct checkpoints;
struct config;
struct endurance;
struct groups;
struct lane;
struct store;

/* Borrowed. */
struct knobs_opts {
    const struct config *config;
    struct store *store;
    struct accounts *accounts;
    struct checkpoints *checkpoints;
    struct endurance *endurance;
    struct groups *groups;
    struct lane *const *lanes;
    uint32_t lane_count;
    struct arena *const *arenas; /* of the tiers; NULL: these keep their sizes */
    uint32_t map_slabs;          /* of each lane's part of the first tier */
    const char *checker;         /* of changed files (knob_file.h) */
    uint64_t check_ms;           /* that it may take */
};

/* Limits that the control thread applies itself and that no account has (accounts.h). X(name,
 * member of struct config) */
#define KNOB_LIMIT_TABLE(X)                                                                        \
    X(MAX_ARENA_BYTES, socket.max_arena_bytes)                                                     \
    X(TRANSFER_IDLE_SECONDS, checkpoints.transfer_idle_seconds)                                    \
    X(CAPACITY_BYTES, endurance.capacity_bytes)                                                    \
    X(RATED_WRITTEN_BYTES, endurance.rated_written_bytes)                                          \
    X(RATED_YEARS, endurance.rated_years)
enum knob_limit {
#define X(name, member) KNOB_##name,
    KNOB_LIMIT_TABLE(X)
#undef X
        KNOB_LIMIT_COUNT
};

#endif
