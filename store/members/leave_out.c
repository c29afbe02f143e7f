/* SPDX-License-Identifier: Apache-2.0 */
/* leave_out.c: a start without a data directory whose drive is dead. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log/log.h"
#include "store/checkpoint/checkpoint_advice.h"
#include "store/members/identity_impl.h"
#include "store/members/join_leave.h"
#include "store/resharding/reshard_record.h"
#include "store/store_impl.h"

/* A crash goes back to the newest checkpoint, also a later one. */
static enum embtier_err check_checkpoint(const struct checkpoint_shelf *shelf, uint64_t restore_id,
                                         struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

    if (restore_id != 0)
        return checkpoint_read_named(shelf, restore_id, &record, msg);
    return checkpoint_read_newest(shelf, &record, msg);
}

/* Those stay: a directory that comes back has their files, but is the store's no more. */
static enum embtier_err tell_lost(const struct checkpoint_shelf *shelf, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    TRY(checkpoint_list(shelf, &ids, &count, msg));
    for (uint32_t i = 0; i < count; i++) {
        _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

        if (checkpoint_read(shelf, ids[i], &record, NULL) == EMBTIER_MISMATCH)
            log_warn("a checkpoint has rows in the data directory that is left out, and cannot be "
                     "restored: delete it",
                     "id=%" PRIu64, ids[i]);
    }
    return EMBTIER_OK;
}

/* Else the start would go on with it, and make the directory again, on another disk maybe. */
static enum embtier_err end_order(const struct store *store, uint32_t number, struct err_msg *msg)
{
    const char *const first = store_first_directory(store);
    struct reshard_record record = { 0 };
    const enum embtier_err err = reshard_record_read(first, &record, msg);

    if (err == EMBTIER_CORRUPT) { /* as a start does: it can be given again */
        log_warn("a damaged order to move rows is removed", "why=%s", LOG_QUOTED(msg->text));
        return reshard_record_remove(first, msg);
    }
    TRY(err);
    if (record.order == RESHARD_TO_SHARDS ||
        !members_are_at(&store->identity->members, number, record.directory))
        return EMBTIER_OK;
    return reshard_record_remove(first, msg);
}

static enum embtier_err take_out_shards(struct store *store, uint32_t number, struct err_msg *msg)
{
    _cleanup_(bucket_map_freep) struct bucket_map *map = bucket_map_copy(store->map);
    uint64_t generation = store->map->generation;
    bool is_unknown, is_new = false;

    if (!map)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < map->shard_count; s++) {
        if (!bucket_map_has(map, s) || map->places[s] != number)
            continue;
        map->places[s] = BUCKET_MAP_GONE;
        map->strays[s] = false;
        is_new = true;
    }
    if (!is_new)
        return EMBTIER_OK;
    TRY(bucket_map_change(store->identity, store->map, map, &generation, &is_unknown, msg));
    bucket_map_free(store->map);
    store->map = TAKE(map);
    return EMBTIER_OK;
}

enum embtier_err store_leave_out(struct store *store, uint64_t restore_id, struct err_msg *msg)
{
    const uint32_t number = store_identity_left_out(store->identity);
    uint64_t needed_id = restore_id;
    const struct checkpoint_shelf shelf = { .identity = store->identity,
                                            .shards_per_directory = store->shards_per_directory };

    if (number == MEMBERS_NONE)
        return EMBTIER_OK;
    if (needed_id == 0) /* also of a restore that was cut short */
        TRY(store_wanted_checkpoint(store, &needed_id, msg));
    TRY(check_checkpoint(&shelf, needed_id, msg));
    TRY(tell_lost(&shelf, msg));
    TRY(end_order(store, number, msg));
    TRY(take_out_shards(store, number, msg));
    TRY(store_identity_leave(store->identity, number, msg));
    log_warn("a data directory that is missing has been removed from the store, as "
             "--without-directory says; it had no rows. Take it out of data.directories, and start "
             "without the option from now on",
             "directory=%s number=%" PRIu32, LOG_QUOTED(store->identity->members.paths[number]),
             number);
    return EMBTIER_OK;
}
