/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_facts.h: how far a job that moves buckets is (reshard.h). */
#ifndef EMBTIER_STORE_RESHARDING_RESHARD_FACTS_H
#define EMBTIER_STORE_RESHARDING_RESHARD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, text): how far a job is. Each is reported when it is reached. */
#define RESHARD_STEPS(X)                                                                           \
    X(PLANNED, "the job is written down")                                                          \
    X(PREPARED, "the new directory has its files")                                                 \
    X(JOINED, "the new directory belongs to the store")                                            \
    X(SHARD_MADE, "a new shard has its databases")                                                 \
    X(SHARD_ADDED, "the map has the new shard")                                                    \
    X(SWEPT, "old strays are swept away")                                                          \
    X(MARKED, "the targets are marked")                                                            \
    X(BEGUN, "writes go to both shards")                                                           \
    X(COPIED, "all rows are in both shards")                                                       \
    X(CHECKPOINTED, "there is a checkpoint of both")                                               \
    X(WRITTEN, "the new map is on disk")                                                           \
    X(SWITCHED, "the new map is in force")                                                         \
    X(EMPTIED, "the map has no shard in the directory that is removed")                            \
    X(FREED, "no checkpoint needs that directory")                                                 \
    X(LEFT, "that directory is no part of the store")                                              \
    X(DONE, "all buckets have moved")

enum reshard_step {
#define X(name, ...) RESHARD_##name,
    RESHARD_STEPS(X)
#undef X
        RESHARD_STEP_COUNT
};

struct reshard_facts {
    uint32_t shards;        /* that have buckets */
    uint32_t open;          /* with those that the next start removes */
    bool runs;              /* if not, the members that follow are of the last one */
    bool has_failed;        /* neither stopped nor cancelled */
    bool moves_directory;   /* it adds or removes a data directory */
    uint32_t wanted;        /* shards that shall have buckets; 0: not known yet */
    enum reshard_step step; /* the last one reached */
    uint32_t moved, total;  /* buckets */
    uint64_t idle_s;        /* since it last did anything; 0 if it does not run */
};

#endif
