/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/moved_rows.h"

#include <stdlib.h>
#include <string.h>

#include "store/resharding/view.h"
#include "store/resharding/wave.h"
#include "store/store_impl.h"

#define CHUNK_ROWS 128

static uint32_t bucket_of(const struct store *store, const struct store_row *row)
{
    return row_bucket(row_hash(&store->hasher, row->table_id, row->id));
}

/* Puts the numbers of the rows of @shard into @ret_which, in their order, and marks them as done.
 */
static uint32_t gather(const uint32_t *shards, bool *done, uint32_t first, uint32_t count,
                       uint32_t *ret_which)
{
    uint32_t some = 0;

    for (uint32_t i = first; i < count; i++) {
        if (done[i] || shards[i] != shards[first])
            continue;
        done[i] = true;
        ret_which[some++] = i;
    }
    return some;
}

/* ---- Reads ---- */

static enum embtier_err read_some(struct store *store, uint32_t shard, struct store_row *rows,
                                  const uint32_t *which, uint32_t count, struct err_msg *msg)
{
    struct store_row some[CHUNK_ROWS];
    enum embtier_err err;

    for (uint32_t i = 0; i < count; i++)
        some[i] = rows[which[i]];
    err = database_read(store_database_of(store, shard, rows[which[0]].logged), some, count, msg);
    for (uint32_t i = 0; i < count; i++)
        rows[which[i]] = some[i];
    return err;
}

static enum embtier_err read_chunk(struct store *store, const struct store_view *view,
                                   struct store_row *rows, uint32_t count, struct err_msg *msg)
{
    uint32_t shards[CHUNK_ROWS], which[CHUNK_ROWS];
    bool done[CHUNK_ROWS] = { false };
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t i = 0; i < count; i++)
        shards[i] = view->map->shards[bucket_of(store, &rows[i])];
    for (uint32_t i = 0; i < count; i++) {
        enum embtier_err err;

        if (done[i])
            continue;
        err = read_some(store, shards[i], rows, which, gather(shards, done, i, count, which),
                        first == EMBTIER_OK ? msg : NULL);
        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

enum embtier_err moved_rows_read(struct store *store, const struct store_view *view,
                                 struct store_row *rows, uint32_t count, struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t done = 0; done < count;) {
        const uint32_t some = MIN(count - done, (uint32_t)CHUNK_ROWS);
        const enum embtier_err err =
            read_chunk(store, view, rows + done, some, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
        done += some;
    }
    return first;
}

/* ---- Writes ---- */

/* Where rows of one call go. */
struct dealt {
    const struct store_row *rows;
    uint32_t count;
    uint32_t *shards;
    uint32_t *targets; /* or WAVE_NO_TARGET */
    uint32_t *which;   /* for gather() */
    bool *done;
    struct store_row *some; /* those of one shard */
};

static void dealt_clear(struct dealt *dealt)
{
    free(dealt->shards);
    free(dealt->targets);
    free(dealt->which);
    free(dealt->done);
    free(dealt->some);
}

static enum embtier_err dealt_init(struct dealt *dealt, struct err_msg *msg)
{
    dealt->shards = calloc(dealt->count, sizeof(*dealt->shards));
    dealt->targets = calloc(dealt->count, sizeof(*dealt->targets));
    dealt->which = calloc(dealt->count, sizeof(*dealt->which));
    dealt->done = calloc(dealt->count, sizeof(*dealt->done));
    dealt->some = calloc(dealt->count, sizeof(*dealt->some));
    return dealt->shards && dealt->targets && dealt->which && dealt->done && dealt->some
               ? EMBTIER_OK
               : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* Asks all shards before any gets a row. Rows of one call may fill the write buffers of a shard, so
 * that it takes no more. If the next shard refused its rows then, the call would be made again, and
 * might never come to its end. @ret_shard: the one that refuses. */
static enum embtier_err ask(struct store *store, const struct dealt *dealt, const uint32_t *shards,
                            uint32_t *ret_shard, struct err_msg *msg)
{
    bool asked[BUCKET_MAP_SHARDS_MAX] = { false };

    for (uint32_t i = 0; i < dealt->count; i++) {
        if (shards[i] == WAVE_NO_TARGET || asked[shards[i]])
            continue;
        asked[shards[i]] = true;
        *ret_shard = shards[i];
        TRY(database_may_write(store_database_of(store, shards[i], dealt->rows[i].logged), msg));
    }
    return EMBTIER_OK;
}

/* Writes each row to its shard of @shards, or not at all if that is WAVE_NO_TARGET. @ret_shard: the
 * one that refuses. */
static enum embtier_err write_to(struct store *store, struct dealt *dealt, const uint32_t *shards,
                                 uint32_t *ret_shard, struct err_msg *msg)
{
    const struct store_row *const rows = dealt->rows;

    memset(dealt->done, 0, dealt->count * sizeof(*dealt->done));
    for (uint32_t i = 0; i < dealt->count; i++) {
        uint32_t found;

        if (dealt->done[i] || shards[i] == WAVE_NO_TARGET)
            continue;
        found = gather(shards, dealt->done, i, dealt->count, dealt->which);
        for (uint32_t j = 0; j < found; j++)
            dealt->some[j] = rows[dealt->which[j]];
        *ret_shard = shards[i];
        TRY(database_write_now(store_database_of(store, shards[i], rows[i].logged), dealt->some,
                               found, msg));
    }
    return EMBTIER_OK;
}

/* Clients were promised room for one copy of each row. While the wave switches, the other one is
 * needed whatever there is. */
static bool has_room(const struct wave *wave, const struct dealt *dealt)
{
    const struct store_row *const rows = dealt->rows;
    struct store_refusal refusal;
    uint64_t row_count = 0, bytes = 0;

    for (uint32_t i = 0; i < dealt->count; i++) {
        if (dealt->targets[i] == WAVE_NO_TARGET)
            continue;
        row_count++;
        bytes += (uint64_t)rows[i].weight_bytes + rows[i].state_bytes;
    }
    return wave->state == WAVE_SWITCHES ||
           store_admit_copies(wave->store, row_count, bytes, rows[0].logged, &refusal) ==
               EMBTIER_OK;
}

/* Leaves the rows of @target for later. False: the writer or the wave has to fail. */
static bool put_off(struct wave *wave, struct dealt *dealt, uint32_t target)
{
    for (uint32_t i = 0; i < dealt->count; i++) {
        if (dealt->targets[i] != target)
            continue;
        if (!wave_put_off(wave, target, &dealt->rows[i]))
            return false;
        dealt->targets[i] = WAVE_NO_TARGET;
    }
    return true;
}

/* Returns BUSY if a target takes no rows for now. All are asked, so that the patience with each
 * begins at once, and no row is put off before it is over for all: the call will be made again. */
static enum embtier_err look_at_targets(struct wave *wave, const struct dealt *dealt,
                                        struct err_msg *msg)
{
    bool asked[BUCKET_MAP_SHARDS_MAX] = { false };
    enum embtier_err busy = EMBTIER_OK;

    for (uint32_t i = 0; i < dealt->count; i++) {
        const uint32_t target = dealt->targets[i];
        const bool logged = dealt->rows[i].logged;
        struct err_msg why = { { 0 } };
        enum embtier_err err;

        if (target == WAVE_NO_TARGET || asked[target])
            continue;
        asked[target] = true;
        err = database_may_write(store_database_of(wave->store, target, logged), &why);
        if (wave_is_patient(wave, target, logged, err))
            busy = err_set(msg, err, "%s", why.text);
    }
    return busy;
}

/* Asks the targets. BUSY: later. OK also if the wave fails, which has no targets any more. */
static enum embtier_err ask_targets(struct wave *wave, struct dealt *dealt, struct err_msg *msg)
{
    static const struct err_msg no_room = { "no space for rows that change while they move" };
    struct err_msg why = { { 0 } };
    uint32_t refuser = 0;
    enum embtier_err err;

    if (wave->state == WAVE_FAILED)
        return EMBTIER_OK;
    TRY(look_at_targets(wave, dealt, msg));
    do
        err = ask(wave->store, dealt, dealt->targets, &refuser, &why);
    while (err == EMBTIER_BUSY && put_off(wave, dealt, refuser));
    if (err != EMBTIER_OK)
        return wave_fail(wave, err, &why, msg);
    return has_room(wave, dealt) ? EMBTIER_OK : wave_fail(wave, EMBTIER_NO_SPACE, &no_room, msg);
}

/* Writes rows that the source has taken to their targets. OK also if the wave has failed. */
static enum embtier_err write_targets(struct wave *wave, struct dealt *dealt, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    uint32_t refuser = 0;
    enum embtier_err err;

    if (wave->state == WAVE_FAILED)
        return EMBTIER_OK;
    do {
        err = write_to(wave->store, dealt, dealt->targets, &refuser, &why);
        if (err != EMBTIER_OK && wave_is_patient(wave, refuser, dealt->rows[0].logged, err))
            return err_set(msg, err, "%s", why.text);
    } while (err == EMBTIER_BUSY && put_off(wave, dealt, refuser));
    return err == EMBTIER_OK ? EMBTIER_OK : wave_fail(wave, err, &why, msg);
}

static enum embtier_err write_all(struct store *store, struct wave *wave, struct dealt *dealt,
                                  bool has_targets, struct err_msg *msg)
{
    uint32_t refuser;

    TRY(ask(store, dealt, dealt->shards, &refuser, msg));
    if (has_targets)
        TRY(ask_targets(wave, dealt, msg));
    TRY(write_to(store, dealt, dealt->shards, &refuser, msg));
    return has_targets ? write_targets(wave, dealt, msg) : EMBTIER_OK;
}

/* A wave's rows, and all others of its targets, whose steps of tables the wave compares
 * (wave_copy.c), are written under its lock. */
enum embtier_err moved_rows_write(struct store *store, const struct store_view *view,
                                  const struct store_row *rows, uint32_t count, struct err_msg *msg)
{
    _cleanup_(dealt_clear) struct dealt dealt = { .rows = rows, .count = count };
    struct wave *const wave = view->wave;
    bool in_wave = false, has_targets = false;
    enum embtier_err err;

    TRY(dealt_init(&dealt, msg));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bucket = bucket_of(store, &rows[i]);

        dealt.shards[i] = view->map->shards[bucket];
        dealt.targets[i] = wave ? wave_target(wave, bucket) : WAVE_NO_TARGET;
        has_targets |= dealt.targets[i] != WAVE_NO_TARGET;
        in_wave |= dealt.targets[i] != WAVE_NO_TARGET || (wave && wave->is_target[dealt.shards[i]]);
    }
    if (in_wave)
        wave_lock_to_write(wave);
    err = write_all(store, wave, &dealt, has_targets, msg);
    if (in_wave)
        wave_unlock_written(wave);
    return err;
}
