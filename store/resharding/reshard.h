/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.h: moves buckets to another number of shards while the store is in use, to a directory
 * that is added, or away from one that is removed (members/reshard_directory.h).
 *
 * A job makes the shards that are missing, and plans where each bucket shall lie. Then it goes from
 * shard to shard that has buckets to give, one wave (wave.h) each:
 *
 *   1. The targets are marked as having strays, after older strays in them are swept away.
 *   2. The wave begins: writes go to both shards.
 *   3. Rows that were there before are copied.
 *   4. A checkpoint is made, so that a crash has one to go back to that fits the new map.
 *   5. The switch: the new map is written to all data directories, then put in force.
 *   6. The source's strays are swept away.
 *
 * A crash before the new map is on disk leaves strays in the targets, one after that strays in the
 * source. The marks are in the map. So the next job begins with what is left to do, whatever the
 * one before was doing. Buckets that have moved stay where they are.
 *
 * Thread: one at a time, which may wait for SSD. */
#ifndef EMBTIER_STORE_RESHARDING_RESHARD_H
#define EMBTIER_STORE_RESHARDING_RESHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/resharding/move_pace.h"
#include "store/resharding/reshard_facts.h"
#include "store/resharding/reshard_record.h"

struct store;

struct reshard_opts {
    uint32_t shards; /* as many shall have buckets, if no directory is added or removed */
    struct move_pace *pace;
    /* Asks reshard_check_copied(), makes a checkpoint, then calls reshard_switch() with its id, or
     * with 0 if the store has none and needs none. No other checkpoint is being made from the call
     * to its return. */
    enum embtier_err (*commit)(void *context, struct err_msg *msg);
    /* Tells each step, with the numbers of buckets that have moved and that shall move. */
    void (*report)(void *context, enum reshard_step step, uint32_t moved, uint32_t total);
    void *context;

    /* A directory is added or removed: absolute. Its own copy of an order on disk goes on. */
    enum reshard_order order;
    const char *directory;
    bool deletes_checkpoints; /* see reshard_record.h */
    /* For a directory that is removed. Makes a checkpoint; deletes one. */
    enum embtier_err (*checkpoint)(void *context, struct err_msg *msg);
    enum embtier_err (*drop)(void *context, uint64_t id, struct err_msg *msg);
};

/* Runs a job. Buckets that have moved before an error stay where they are. BUSY: another one runs.
 * The pace may end it with an error of its own. A job that ends well is no longer written down. */
MUST_CHECK enum embtier_err reshard_run(struct store *store, const struct reshard_opts *opts,
                                        struct err_msg *msg);
/* Returns OK if a checkpoint that is begun now has all rows of the present wave, if there is one.
 * AGAIN: a target has missed rows since they were copied, so the job copies those, and then commits
 * again. Or why the wave has failed. */
MUST_CHECK enum embtier_err reshard_check_copied(struct store *store, struct err_msg *msg);
/* Puts the new map of the present wave in force. @checkpoint_id: made since all rows were copied;
 * MISMATCH if it was not. The errors of reshard_check_copied() come before that. After another
 * error, the job tries again. */
MUST_CHECK enum embtier_err reshard_switch(struct store *store, uint64_t checkpoint_id,
                                           struct err_msg *msg);

/* Tells how buckets lie, and how far a job is. Any thread, does not wait. */
void reshard_look(struct store *store, struct reshard_facts *ret_facts);

#endif
