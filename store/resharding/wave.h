/* SPDX-License-Identifier: Apache-2.0 */
/* wave.h: buckets that leave one shard, the source, for other shards, the targets, while clients
 * read and write.
 *
 * From the beginning of a wave to its end, rows of these buckets are written to the source and then
 * to their target. Reads go to the source. Rows that were there before are copied (wave_copy.h): a
 * row is copied if its target does not have it. One that the target has was written since, and is
 * newer. So a target must begin without rows of these buckets, and rows of one wave are written and
 * copied under one lock.
 *
 * An error of a target fails the wave, and no write of a client: the source has the row. If a
 * target takes no rows for long, they are noted, and are copied when it takes rows (wave_missed.h).
 * That changes when the wave switches. The new map is then on its way to disk, and a crash may find
 * it there or not. From then on a row must be in both shards.
 *
 *   COPIES --> COPIED --> SWITCHES --> (the new map is in force, the wave is gone)
 *    | '<--------+ (a target has missed rows)
 *    '-----------+--> FAILED
 *
 * Thread: any, but one begins and ends it. */
#ifndef EMBTIER_STORE_RESHARDING_WAVE_H
#define EMBTIER_STORE_RESHARDING_WAVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/buckets/bucket_map.h"
#include "store/resharding/wave_missed.h"

#define WAVE_NO_TARGET UINT32_MAX

struct store;
struct store_row;

enum wave_state { WAVE_COPIES, WAVE_COPIED, WAVE_SWITCHES, WAVE_FAILED };

struct wave {
    struct store *store;
    uint32_t source;
    uint16_t *targets; /* of each bucket; UINT16_MAX: it stays */
    bool is_target[BUCKET_MAP_SHARDS_MAX];
    bool is_walked;     /* the targets have all rows of before; thread: the one that moves them */
    uint64_t fits_from; /* COPIED: checkpoints from this id on have all rows of the targets */

    _Atomic uint32_t arrived, served; /* writers that asked for the lock, and that are done */
    pthread_mutex_t lock;             /* of writes of its rows, and of all members that follow */
    enum wave_state state;
    enum embtier_err err; /* the reason, if FAILED */
    struct err_msg why;
    /* A database of a target takes no rows; 0: it does. */
    uint64_t busy_since_ns[BUCKET_MAP_SHARDS_MAX][2]; /* of replay rows, of logged ones */
    struct wave_missed missed;
    /* Tables whose rows are being dropped, or were since the wave began. Rows of them that are
     * written later go to both shards by themselves, or fail the wave: none is copied. */
    uint32_t *dropped;
    uint32_t dropped_count;
    bool lacks_dropped; /* one could not be noted: no memory */
};

/* Makes a wave of the buckets that @after has elsewhere than @now, all of them in @source now. */
MUST_CHECK enum embtier_err wave_new(struct store *store, const struct bucket_map *now,
                                     const struct bucket_map *after, uint32_t source,
                                     struct wave **ret_wave, struct err_msg *msg);
void wave_free(struct wave *wave);
DEFINE_CLEANUP(struct wave, wave_free)

static inline uint32_t wave_target(const struct wave *wave, uint32_t bucket)
{
    return wave->targets[bucket] == UINT16_MAX ? WAVE_NO_TARGET : wave->targets[bucket];
}

/* Take and release the lock. A mutex is not fair: a thread that copies batch after batch would keep
 * writers from it. So as many go first as wait when it comes, and those that come later do not. */
void wave_lock_to_write(struct wave *wave);
void wave_unlock_written(struct wave *wave);
void wave_lock_to_copy(struct wave *wave);
void wave_unlock_copied(struct wave *wave);

/* True if @err of a database of @target (OK: it takes rows) passes by itself: it takes none now,
 * and has not for long. The caller holds the lock. */
bool wave_is_patient(struct wave *wave, uint32_t target, bool logged, enum embtier_err err);
/* Notes a row that @target does not take, to be copied later. False: the wave switches, its table
 * was dropped (ids of hot rows are stored anew), or too many rows wait. The caller holds the lock.
 */
MUST_CHECK bool wave_put_off(struct wave *wave, uint32_t target, const struct store_row *row);
/* Fails the wave for an error of a target, and returns OK; returns the error if the wave switches.
 * The caller holds the lock. */
enum embtier_err wave_fail(struct wave *wave, enum embtier_err err, const struct err_msg *why,
                           struct err_msg *msg);
/* Returns OK, or why the wave has failed. Takes the lock. */
MUST_CHECK enum embtier_err wave_check(struct wave *wave, struct err_msg *msg);
/* Ends copying. False: a target has missed rows meanwhile, so that copying goes on. Takes the lock.
 */
MUST_CHECK bool wave_end_copying(struct wave *wave);
/* Returns OK if both shards have all rows; AGAIN: a target has missed some since the copying ended,
 * so that it goes on; or why the wave has failed. Takes the lock. */
MUST_CHECK enum embtier_err wave_check_copied(struct wave *wave, struct err_msg *msg);
/* Does the same, then begins to switch. */
MUST_CHECK enum embtier_err wave_begin_switch(struct wave *wave, struct err_msg *msg);
/* Ends that: the old map stays in force. Takes the lock. */
void wave_end_switch(struct wave *wave);
/* Takes the lock. */
bool wave_is_switching(struct wave *wave);
/* Notes that rows of a table are about to be dropped. Takes the lock. */
void wave_note_drop(struct wave *wave, uint32_t table_id);
/* The caller holds the lock. */
bool wave_has_dropped(const struct wave *wave, uint32_t table_id);

#endif
