/* SPDX-License-Identifier: Apache-2.0 */
/* Deletes checkpoints: one that a client names, or the oldest ones after a new one is made. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/jobs/checkpoint/checkpoint_owners.h"
#include "daemon/jobs/checkpoint/checkpoints_state.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

#define PROMISE_NS (60 * UINT64_C(1000000000))

static enum embtier_err begin_deleting(struct checkpoints *c, uint64_t id, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0, uses = 0;

    TRY(checkpoint_list(store_shelf(c->opts.store), &ids, &count, msg));
    if (count > 0 && ids[count - 1] == id)
        return err_set(msg, EMBTIER_INVALID,
                       "checkpoint %" PRIu64
                       " is the newest, which a crash restores: make another one first",
                       id);
    pthread_mutex_lock(&c->lock);
    assert(c->is_changing && c->deleting_id == 0);
    for (uint32_t i = 0; i < c->use_count; i++)
        uses += c->used_ids[i] == id;
    if (uses == 0)
        c->deleting_id = id;
    pthread_mutex_unlock(&c->lock);
    return uses == 0
               ? EMBTIER_OK
               : err_set(msg, EMBTIER_BUSY,
                         "checkpoint %" PRIu64 " is being verified or exported: try again later",
                         id);
}

static void end_deleting(struct checkpoints *c, uint64_t id)
{
    pthread_mutex_lock(&c->lock);
    assert(c->deleting_id == id);
    c->deleting_id = 0;
    pthread_mutex_unlock(&c->lock);
}

static bool is_there(const struct checkpoints *c, uint64_t id)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

    return checkpoint_read(store_shelf(c->opts.store), id, &record, NULL) != EMBTIER_NOT_FOUND;
}

static enum embtier_err delete_one(struct checkpoints *c, uint64_t id,
                                   struct checkpoint_info *ret_info, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    const enum embtier_err read = checkpoint_read(store_shelf(c->opts.store), id, &record, msg);
    enum embtier_err err;

    if (read == EMBTIER_NOT_FOUND)
        return read;
    TRY(begin_deleting(c, id, msg));
    *ret_info = record ? record->info : (struct checkpoint_info){ .id = id }; /* it is damaged */
    store_use_reserve(c->opts.store);
    err = checkpoint_delete(store_shelf(c->opts.store), id, msg);
    store_end_reserve(c->opts.store);
    end_deleting(c, id);
    if (err == EMBTIER_OK || !is_there(c, id))
        checkpoint_owners_remove(c->owners, id);
    TRY(err);
    log_info("checkpoint deleted", "id=%" PRIu64, id);
    return EMBTIER_OK;
}

enum embtier_err checkpoints_delete(struct checkpoints *c, uint64_t id, uid_t uid,
                                    const struct progress_sink *progress,
                                    struct checkpoint_info *ret_info, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(checkpoints_begin_change(c, progress, msg));
    err = checkpoint_owners_may_delete(c->owners, id, uid, msg);
    if (err == EMBTIER_OK)
        err = delete_one(c, id, ret_info, msg);
    checkpoints_end_change(c);
    return err;
}

/* ---- The oldest ---- */

void checkpoints_promise(struct checkpoints *c, uint64_t id)
{
    pthread_mutex_lock(&c->lock);
    c->promises[c->next_promise++ % PROMISES_MAX] =
        (struct promise){ id, clock_now_ns(&clock_monotonic) + PROMISE_NS };
    pthread_mutex_unlock(&c->lock);
}

static bool is_promised(struct checkpoints *c, uint64_t id)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    bool found = false;

    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < PROMISES_MAX; i++)
        found |= c->promises[i].id == id && now_ns < c->promises[i].until_ns;
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void delete_old(struct checkpoints *c, uint64_t id)
{
    struct err_msg msg = { { 0 } };
    struct checkpoint_info info;

    if (delete_one(c, id, &info, &msg) != EMBTIER_OK)
        log_warn("an old checkpoint cannot be deleted and stays", "id=%" PRIu64 " why=%s", id,
                 LOG_QUOTED(msg.text));
}

void checkpoints_delete_oldest(struct checkpoints *c, bool automatic, uid_t uid, uint32_t keep)
{
    const uint64_t newest = checkpoint_owners_newest(c->owners);
    uint64_t id = UINT64_MAX;

    while (checkpoint_owners_before(c->owners, id, automatic, uid, &id)) {
        if (keep > 0)
            keep -= !checkpoint_owners_passes(c->owners, id);
        else if (id != newest && !is_promised(c, id))
            delete_old(c, id);
    }
}

void checkpoints_delete_passed(struct checkpoints *c)
{
    const uint64_t newest = checkpoint_owners_newest(c->owners);
    uint64_t id = UINT64_MAX;

    while (checkpoint_owners_before(c->owners, id, true, 0, &id))
        if (id != newest && checkpoint_owners_passes(c->owners, id))
            delete_old(c, id);
}
