/* SPDX-License-Identifier: Apache-2.0 */
/* Makes checkpoints: for clients, at the start, and when the server's own are due. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "config/config_memory.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/jobs/checkpoint/checkpoint_owners.h"
#include "daemon/jobs/checkpoint/checkpoint_pace.h"
#include "daemon/jobs/checkpoint/checkpoints_state.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"
#include "store/store_reserved.h"

/* After a failure the next checkpoint is due after 1/RETRY_PART of the interval. */
#define RETRY_PART       10
#define REFUSAL_RETRY_NS (5 * UINT64_C(1000000000))

static enum embtier_err check_metadata(const char *metadata, struct err_msg *msg)
{
    json_error_t error;
    json_t *json;

    if (metadata[0] == '\0')
        return EMBTIER_OK;
    json = json_loads(metadata, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (!json)
        return err_set(msg, EMBTIER_INVALID, "a checkpoint's metadata must be JSON: column %d: %s",
                       error.column, error.text);
    json_decref(json);
    return EMBTIER_OK;
}

/* Locked. Measures the age by the monotonic clock from now on, so changes of the system's clock do
 * not matter. */
static void set_newest(struct checkpoints *c, const struct checkpoint_info *newest, uint64_t age_ms)
{
    c->stats.has_newest = newest != NULL;
    c->stats.newest_id = newest ? newest->id : 0;
    c->stats.newest_age_ms = age_ms;
    c->aged_ns = clock_now_ns(&clock_monotonic);
}

/* @record: the newest, or NULL. */
static void note_newest(struct checkpoints *c, const struct checkpoint_record *record)
{
    pthread_mutex_lock(&c->lock);
    set_newest(c, record ? &record->info : NULL,
               record ? clock_since(clock_wall_ms(), record->info.created_ms) : 0);
    pthread_mutex_unlock(&c->lock);
}

/* Those that pass do not put the next one that is kept off. */
static void note_end(struct checkpoints *c, const struct checkpoint_order *order,
                     const struct checkpoint_info *info, uint64_t age_ns, uint64_t updated_bytes)
{
    pthread_mutex_lock(&c->lock);
    assert(c->stats.is_making);
    c->stats.is_making = false;
    c->stats.failed += info == NULL;
    if (!order->passes) {
        c->is_due_told = false;
        c->tried_ns = clock_now_ns(&clock_monotonic);
        c->has_failed = info == NULL;
        if (info)
            c->kept_updated_bytes = updated_bytes;
    }
    c->stats.failures_in_row = info ? 0 : c->stats.failures_in_row + 1;
    if (info) {
        c->stats.made++;
        c->stats.saved_updated_bytes = updated_bytes;
        set_newest(c, info, age_ns / 1000000);
        c->stats.pause_us = info->pause_us;
    }
    pthread_mutex_unlock(&c->lock);
}

static void note_begin(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    assert(c->is_changing && !c->stats.is_making);
    c->stats.is_making = true;
    pthread_mutex_unlock(&c->lock);
}

static uid_t owner_of(const struct checkpoint_order *order)
{
    return order->automatic && !order->promised ? geteuid() : order->uid;
}

static void note_owner(struct checkpoints *c, const struct checkpoint_info *info, bool passes)
{
    struct err_msg why = { { 0 } };

    if (checkpoint_owners_add(
            c->owners,
            &(struct checkpoint_owner){
                .id = info->id, .uid = info->uid, .automatic = info->automatic, .passes = passes },
            &why) != EMBTIER_OK)
        log_warn("a checkpoint is not counted until the next start, and is not deleted before",
                 "id=%" PRIu64 " why=%s", info->id, LOG_QUOTED(why.text));
}

struct owner_text {
    char text[CHECKPOINT_USER_MAX + 16];
};

/* A user that comes over a network has no uid. */
static const char *owner_text(const struct checkpoint_info *info, struct owner_text *buffer)
{
    if (info->user[0] != '\0')
        (void)snprintf(buffer->text, sizeof(buffer->text), "user=%s", info->user);
    else
        (void)snprintf(buffer->text, sizeof(buffer->text), "uid=%" PRIu32, info->uid);
    return buffer->text;
}

static enum embtier_err make_one(struct checkpoints *c, const struct checkpoint_order *order,
                                 const struct progress_sink *progress,
                                 struct checkpoint_info *ret_info, struct err_msg *msg)
{
    struct checkpoint_making making = {
        .opts = &c->opts,
        .stopping = &c->stopping,
        .counts = &c->counts,
        .made = order->made,
        .progress = progress,
        .info = { .automatic = order->automatic,
                  .uid = (uint32_t)owner_of(order),
                  .has_step = order->has_step,
                  .step = order->step },
    };
    enum embtier_err err;

    memcpy(making.info.user, order->user, sizeof(making.info.user));
    TRY(check_metadata(order->metadata, msg));
    if (order->automatic && order->promised) /* or it might be made for nothing */
        TRY(transfer_memory_probe(c->opts.memory, order->uid,
                                  store_scan_reserved_bytes(store_shard_count(c->opts.store)),
                                  "an export", msg));
    if (!order->automatic && order->promised)
        TRY(checkpoint_owners_ask(c->owners, order->uid, order->keep, msg));
    memcpy(making.info.metadata, order->metadata, sizeof(making.info.metadata));
    checkpoint_pace_init(&making.pace, &clock_monotonic, c->few_cores);
    note_begin(c);
    store_use_reserve(c->opts.store);
    err = checkpoint_making_run(&making, msg);
    checkpoint_making_end(&making);
    store_end_reserve(c->opts.store);
    note_end(c, order, err == EMBTIER_OK ? &making.info : NULL,
             clock_since(clock_now_ns(&clock_monotonic), making.created_ns), making.updated_bytes);
    TRY(err);
    *ret_info = making.info;
    note_owner(c, ret_info, order->passes);
    log_info("checkpoint made",
             "id=%" PRIu64 " by=%s %s bytes=%" PRIu64 " new_bytes=%" PRIu64 " pause_us=%" PRIu64
             " tries=%" PRIu64 " cut_updates=%" PRIu64 " held_rows=%" PRIu64 " spent_ms=%" PRIu64,
             ret_info->id, order->automatic ? "server" : "user",
             owner_text(ret_info, &(struct owner_text){ { 0 } }), ret_info->bytes,
             ret_info->new_bytes, ret_info->pause_us, ret_info->tries, ret_info->cut_updates,
             ret_info->held_rows, ret_info->spent_ms);
    store_refuse_replay(c->opts.store, EMBTIER_OK);
    if (order->automatic && order->promised)
        checkpoints_promise(c, ret_info->id);
    if (order->keep_all)
        return EMBTIER_OK;
    if (order->passes) {
        checkpoints_delete_passed(c);
        return EMBTIER_OK;
    }
    if (order->automatic)
        checkpoints_delete_oldest(c, true, 0, checkpoints_keep(c));
    else if (order->keep > 0)
        checkpoints_delete_oldest(c, false, order->uid, order->keep);
    return EMBTIER_OK;
}

enum embtier_err checkpoints_make(struct checkpoints *c, const struct checkpoint_order *order,
                                  const struct progress_sink *progress,
                                  struct checkpoint_info *ret_info, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(checkpoints_begin_change(c, progress, msg));
    err = make_one(c, order, progress, ret_info, msg);
    checkpoints_end_change(c);
    return err;
}

enum embtier_err
checkpoints_make_and(struct checkpoints *c, const struct checkpoint_order *order,
                     const struct progress_sink *progress,
                     enum embtier_err (*before)(void *context, struct err_msg *msg),
                     enum embtier_err (*then)(void *context, uint64_t id, struct err_msg *msg),
                     void *context, struct err_msg *msg)
{
    struct checkpoint_info info = { 0 };
    enum embtier_err err;

    TRY(checkpoints_begin_change(c, progress, msg));
    err = before(context, msg);
    if (err == EMBTIER_OK)
        err = make_one(c, order, progress, &info, msg);
    if (err == EMBTIER_OK)
        err = then(context, info.id, msg);
    checkpoints_end_change(c);
    return err;
}

enum embtier_err
checkpoints_and(struct checkpoints *c, uint64_t id, const struct progress_sink *progress,
                enum embtier_err (*then)(void *context, uint64_t id, struct err_msg *msg),
                void *context, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(checkpoints_begin_change(c, progress, msg));
    err = then(context, id, msg);
    checkpoints_end_change(c);
    return err;
}

/* ---- At the start ---- */

void checkpoint_order_carry_over(const struct checkpoint_info *from, struct checkpoint_order *order)
{
    order->uid = from->uid;
    memcpy(order->user, from->user, sizeof(order->user));
    order->has_step = from->has_step;
    order->step = from->step;
    memcpy(order->metadata, from->metadata, sizeof(order->metadata));
    /* Older servers marked checkpoints with a user's step as their own. */
    order->automatic = from->automatic && !from->has_step && from->metadata[0] == '\0';
}

/* Finds the owners of all existing checkpoints. If these cannot be listed, the
 * server starts anyway. */
static enum embtier_err find_owners(struct checkpoints *c, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    struct err_msg why = { { 0 } };
    uint32_t count = 0;

    if (checkpoint_list(store_shelf(c->opts.store), &ids, &count, &why) != EMBTIER_OK) {
        log_warn("checkpoints cannot be listed: the existing ones count for no user, and only root "
                 "and the server's user may delete them",
                 "why=%s", LOG_QUOTED(why.text));
        checkpoint_owners_miss(c->owners);
        return EMBTIER_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct checkpoint_info info;
        const enum embtier_err err = checkpoints_read_info(c, ids[i], &info, msg);

        if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
            return err;
        TRY(checkpoint_owners_add(
            c->owners,
            &(struct checkpoint_owner){ .id = ids[i],
                                        .uid = err == EMBTIER_OK ? info.uid : geteuid(),
                                        .automatic = err == EMBTIER_OK && info.automatic,
                                        .is_damaged = err != EMBTIER_OK },
            msg));
    }
    return EMBTIER_OK;
}

enum embtier_err checkpoints_begin(struct checkpoints *c, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *newest = NULL;
    struct store_recovery recovery;
    struct checkpoint_info info;
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    TRY(find_owners(c, msg));
    store_recovery(c->opts.store, &recovery);
    if (recovery.happened && !recovery.after_crash) {
        struct checkpoint_order order = { .keep_all = true };

        checkpoint_order_carry_over(&recovery.checkpoint, &order);
        TRY(checkpoints_make(c, &order, NULL, &info, msg));
        return store_restore_done(c->opts.store, msg);
    }
    /* If the newest cannot be read, a new one is needed all the more. */
    if (checkpoint_read_newest(store_shelf(c->opts.store), &newest, &why) == EMBTIER_OK) {
        note_newest(c, newest);
        if (!store_has_changed_since(c->opts.store, newest))
            return EMBTIER_OK;
    } else {
        log_warn("the newest checkpoint cannot be read", "why=%s", LOG_QUOTED(why.text));
    }
    err = checkpoints_make(c, &(struct checkpoint_order){ .automatic = true }, NULL, &info, &why);
    if (err != EMBTIER_OK) {
        /* A crash would go back to before the last clean stop. */
        store_refuse_replay(c->opts.store, err);
        log_error("the first checkpoint of this start failed and is retried: tables of durability "
                  "replay cannot be changed before it is made",
                  "err=%s why=%s", err_name(err), LOG_QUOTED(why.text));
    }
    return EMBTIER_OK;
}

/* ---- By itself ---- */

void checkpoints_not_tried(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_due_told = false;
    c->tried_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_unlock(&c->lock);
}

/* Without a checkpoint there are no updates, so one is due whatever the interval. */
static bool refusal_due(struct checkpoints *c, uint64_t now_ns)
{
    bool due;

    pthread_mutex_lock(&c->lock);
    due = !c->stats.is_making && !c->is_due_told &&
          clock_since(now_ns, c->tried_ns) >= REFUSAL_RETRY_NS;
    c->is_due_told |= due;
    pthread_mutex_unlock(&c->lock);
    return due;
}

bool checkpoints_due(struct checkpoints *c, uint64_t now_ns)
{
    const uint64_t interval_ns = checkpoints_interval_ns(c);
    struct checkpoints_stats stats;
    uint64_t updated_bytes, wait_ns;
    bool due, late;

    if (store_replay_refusal(c->opts.store) != EMBTIER_OK)
        return refusal_due(c, now_ns);
    if (interval_ns == 0)
        return false;
    updated_bytes = tables_totals(c->opts.tables).updated_bytes;
    pthread_mutex_lock(&c->lock);
    wait_ns = c->has_failed ? interval_ns / RETRY_PART : interval_ns;
    due = !c->stats.is_making && !c->is_due_told && clock_since(now_ns, c->tried_ns) >= wait_ns;
    if (due && updated_bytes == c->kept_updated_bytes) {
        c->tried_ns = now_ns; /* nothing has changed */
        due = false;
    }
    late = c->is_due_told && !c->stats.is_making && clock_since(now_ns, c->told_ns) >= interval_ns;
    if (due || late)
        c->told_ns = now_ns;
    c->is_due_told |= due;
    pthread_mutex_unlock(&c->lock);
    if (!late)
        return due;
    checkpoints_stats(c, &stats);
    if (stats.has_newest)
        log_warn("a checkpoint is due and waits for other work on tables; a crash would restore "
                 "the newest one",
                 "newest_seconds_ago=%" PRIu64, stats.newest_age_ms / 1000);
    else
        log_warn("a checkpoint is due and waits for other work on tables; there is none yet", "%s",
                 "");
    return due;
}
