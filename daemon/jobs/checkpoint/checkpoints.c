/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/checkpoints.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "config/config_memory.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/jobs/checkpoint/checkpoint_making.h"
#include "daemon/jobs/checkpoint/checkpoint_owners.h"
#include "daemon/jobs/checkpoint/checkpoint_pace.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define PUBLISH_TRIES 2
/* Between two looks of who waits for another to be made. */
#define LOOK_NS 100000000L
/* After one that failed the next is due in this part of the interval. */
#define RETRY_PART       10
#define REFUSAL_RETRY_NS (5 * NS_PER_SECOND)

/* Of checkpoints that are read, by verifying and exports, at the same time. */
#define USES_MAX 16
/* Of those that somebody has had made and is about to read. */
#define PROMISES_MAX 8
#define PROMISE_NS   (60 * NS_PER_SECOND)

struct checkpoints {
    struct checkpoints_opts opts;
    struct checkpoint_owners *owners;
    bool few_cores; /* as checkpoint_pace_init() has it */
    _Atomic bool stopping;
    struct making_counts counts;

    pthread_mutex_t lock;           /* all below */
    pthread_cond_t changed;         /* is_changing */
    bool is_changing;               /* one is being made or deleted: one at a time is */
    uint64_t updated_bytes;         /* of all tables when the newest was begun */
    struct checkpoints_stats stats; /* newest_age_ms: at … */
    uint64_t aged_ns;               /* … this time */
    uint64_t used_ids[USES_MAX];    /* are not deleted, */
    uint32_t use_count;
    uint64_t deleting_id; /* and this one is not used */
    struct promise {
        uint64_t id;
        uint64_t until_ns;
    } promises[PROMISES_MAX]; /* a ring: whoever has many made at once reads them at once */
    uint32_t next_promise;
    uint64_t tried_ns; /* when the last one ended, well or not */
    bool is_due_told;
    uint64_t told_ns; /* when */
    bool has_failed;  /* the last one: the next is due sooner */
};

static void init_changed(pthread_cond_t *changed)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

enum embtier_err checkpoints_new(const struct checkpoints_opts *opts,
                                 struct checkpoints **ret_checkpoints, struct err_msg *msg)
{
    struct checkpoints *checkpoints = NULL;
    _cleanup_(checkpoint_owners_freep) struct checkpoint_owners *owners = NULL;

    TRY(checkpoint_owners_new(opts->accounts, &owners, msg));
    checkpoints = calloc(1, sizeof(*checkpoints));
    if (!checkpoints)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    checkpoints->owners = TAKE(owners);
    checkpoints->opts = *opts;
    checkpoints->few_cores = opts->core_count < 2 * opts->lane_count + 2;
    checkpoints->tried_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_init(&checkpoints->lock, NULL);
    init_changed(&checkpoints->changed);
    *ret_checkpoints = checkpoints;
    return EMBTIER_OK;
}

void checkpoints_free(struct checkpoints *checkpoints)
{
    if (!checkpoints)
        return;
    pthread_cond_destroy(&checkpoints->changed);
    pthread_mutex_destroy(&checkpoints->lock);
    checkpoint_owners_free(checkpoints->owners);
    free(checkpoints);
}

void checkpoints_stop(struct checkpoints *checkpoints)
{
    atomic_store(&checkpoints->stopping, true);
}

/* ---- One at a time ---- */

/* Several threads make checkpoints: that of checkpoints, and those that publish tables. Whoever
 * waits looks up now and then, whether it still is to be. */
static enum embtier_err begin_change(struct checkpoints *c, const struct progress_sink *progress,
                                     struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&c->lock);
    while (c->is_changing && err == EMBTIER_OK) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
        err = atomic_load(&c->stopping)
                  ? err_set(msg, EMBTIER_SHUTDOWN, "the server is shutting down")
                  : progress_look(progress, msg);
    }
    c->is_changing |= err == EMBTIER_OK;
    pthread_mutex_unlock(&c->lock);
    return err;
}

static void end_change(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_changing = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* ---- Making ---- */

static enum embtier_err check_metadata(const char *metadata, struct err_msg *msg)
{
    json_error_t error;
    json_t *json;

    if (metadata[0] == '\0')
        return EMBTIER_OK;
    json = json_loads(metadata, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (!json)
        return err_set(msg, EMBTIER_INVALID, "a checkpoint's metadata is JSON: column %d: %s",
                       error.column, error.text);
    json_decref(json);
    return EMBTIER_OK;
}

static void promise(struct checkpoints *c, uint64_t id)
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

static enum embtier_err read_info(const struct checkpoints *c, uint64_t id,
                                  struct checkpoint_info *ret_info, struct err_msg *msg);
static enum embtier_err delete_one(struct checkpoints *c, uint64_t id,
                                   struct checkpoint_info *ret_info, struct err_msg *msg);

/* All but the newest @keep of the server's own (@automatic) go, or of those of @uid; and the newest
 * of all stays. */
static void delete_oldest(struct checkpoints *c, bool automatic, uid_t uid, uint32_t keep)
{
    const uint64_t newest = checkpoint_owners_newest(c->owners);
    uint64_t id = UINT64_MAX;

    while (checkpoint_owners_before(c->owners, id, automatic, uid, &id)) {
        struct err_msg msg = { { 0 } };
        struct checkpoint_info info;

        if (keep > 0)
            keep--;
        else if (id != newest && !is_promised(c, id) &&
                 delete_one(c, id, &info, &msg) != EMBTIER_OK)
            log_warn("an old checkpoint stays", "id=%" PRIu64 " why=%s", id, LOG_QUOTED(msg.text));
    }
}

/* Under the lock. From now on its age is measured, whatever becomes of the system's clock. */
static void set_newest(struct checkpoints *c, bool has_newest, uint64_t age_ms)
{
    c->stats.has_newest = has_newest;
    c->stats.newest_age_ms = age_ms;
    c->aged_ns = clock_now_ns(&clock_monotonic);
}

/* @record: the newest, or NULL. */
static void note_newest(struct checkpoints *c, const struct checkpoint_record *record)
{
    pthread_mutex_lock(&c->lock);
    set_newest(c, record != NULL,
               record ? clock_since(clock_wall_ms(), record->info.created_ms) : 0);
    pthread_mutex_unlock(&c->lock);
}

static void note_end(struct checkpoints *c, const struct checkpoint_info *info, uint64_t age_ns,
                     uint64_t updated_bytes)
{
    pthread_mutex_lock(&c->lock);
    c->stats.is_making = false;
    c->stats.failed += info == NULL;
    c->tried_ns = clock_now_ns(&clock_monotonic);
    c->is_due_told = false;
    c->has_failed = info == NULL;
    if (info) {
        c->updated_bytes = updated_bytes;
        c->stats.made++;
        set_newest(c, true, age_ns / 1000000);
        c->stats.pause_us = info->pause_us;
    }
    pthread_mutex_unlock(&c->lock);
}

static void note_begin(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    c->stats.is_making = true;
    pthread_mutex_unlock(&c->lock);
}

static uid_t owner_of(const struct checkpoint_order *order)
{
    return order->automatic && !order->promised ? geteuid() : order->uid;
}

static void note_owner(struct checkpoints *c, const struct checkpoint_info *info)
{
    struct err_msg why = { { 0 } };

    if (checkpoint_owners_add(c->owners,
                              &(struct checkpoint_owner){
                                  .id = info->id, .uid = info->uid, .automatic = info->automatic },
                              &why) != EMBTIER_OK)
        log_warn("a checkpoint is not counted until the next start, and stays",
                 "id=%" PRIu64 " why=%s", info->id, LOG_QUOTED(why.text));
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

    TRY(check_metadata(order->metadata, msg));
    if (order->automatic && order->promised) /* before one is made for nothing */
        TRY(transfer_memory_probe(c->opts.memory, order->uid,
                                  SCAN_LEAST_BYTES(store_shard_count(c->opts.store)), "an export",
                                  msg));
    if (!order->automatic && order->promised)
        TRY(checkpoint_owners_ask(c->owners, order->uid, order->keep, msg));
    memcpy(making.info.metadata, order->metadata, sizeof(making.info.metadata));
    checkpoint_pace_init(&making.pace, &clock_monotonic, c->few_cores);
    note_begin(c);
    store_use_reserve(c->opts.store);
    err = checkpoint_making_run(&making, msg);
    checkpoint_making_end(&making);
    store_end_reserve(c->opts.store);
    note_end(c, err == EMBTIER_OK ? &making.info : NULL,
             clock_since(clock_now_ns(&clock_monotonic), making.created_ns), making.updated_bytes);
    TRY(err);
    *ret_info = making.info;
    note_owner(c, ret_info);
    log_info("checkpoint made",
             "id=%" PRIu64 " by=%s uid=%" PRIu32 " bytes=%" PRIu64 " new_bytes=%" PRIu64
             " pause_us=%" PRIu64 " tries=%" PRIu64 " cut_updates=%" PRIu64 " held_rows=%" PRIu64
             " spent_ms=%" PRIu64,
             ret_info->id, order->automatic ? "server" : "user", ret_info->uid, ret_info->bytes,
             ret_info->new_bytes, ret_info->pause_us, ret_info->tries, ret_info->cut_updates,
             ret_info->held_rows, ret_info->spent_ms);
    store_refuse_replay(c->opts.store, EMBTIER_OK);
    if (order->automatic && order->promised)
        promise(c, ret_info->id);
    if (order->keep_all)
        return EMBTIER_OK;
    if (order->automatic)
        delete_oldest(c, true, 0, c->opts.keep);
    else if (order->keep > 0)
        delete_oldest(c, false, order->uid, order->keep);
    return EMBTIER_OK;
}

enum embtier_err checkpoints_make(struct checkpoints *c, const struct checkpoint_order *order,
                                  const struct progress_sink *progress,
                                  struct checkpoint_info *ret_info, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(begin_change(c, progress, msg));
    err = make_one(c, order, progress, ret_info, msg);
    end_change(c);
    return err;
}

/* Of a checkpoint that the start goes on from: the one of the result is a user's too then, and
 * stays until a user deletes it. */
static void carry_over(const struct checkpoint_info *from, struct checkpoint_order *order)
{
    order->uid = from->uid;
    order->has_step = from->has_step;
    order->step = from->step;
    memcpy(order->metadata, from->metadata, sizeof(order->metadata));
    /* Servers before this one made those of a user's step as their own. */
    order->automatic = from->automatic && !from->has_step && from->metadata[0] == '\0';
}

/* Of all that there are. Rows are served though they cannot be listed. */
static enum embtier_err find_owners(struct checkpoints *c, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    struct err_msg why = { { 0 } };
    uint32_t count = 0;

    if (checkpoint_list(store_shelf(c->opts.store), &ids, &count, &why) != EMBTIER_OK) {
        log_warn(
            "checkpoints cannot be listed: those there are count for nobody, and only root and "
            "the server's user may delete them",
            "why=%s", LOG_QUOTED(why.text));
        checkpoint_owners_miss(c->owners);
        return EMBTIER_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct checkpoint_info info;
        const enum embtier_err err = read_info(c, ids[i], &info, msg);

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

        carry_over(&recovery.checkpoint, &order);
        TRY(checkpoints_make(c, &order, NULL, &info, msg));
        return store_restore_done(c->opts.store, msg);
    }
    /* Whatever is wrong with it, a new one is the better for it. */
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
        log_error("no checkpoint could be made at the start: tables of durability replay are not "
                  "changed before there is one, which is tried again and again",
                  "err=%s why=%s", err_name(err), LOG_QUOTED(why.text));
    }
    return EMBTIER_OK;
}

void checkpoints_not_tried(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_due_told = false;
    c->tried_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_unlock(&c->lock);
}

/* Without one there are no updates, whatever the interval. */
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
    struct checkpoints_stats stats;
    uint64_t updated_bytes, wait_ns;
    bool due, late;

    if (store_replay_refusal(c->opts.store) != EMBTIER_OK)
        return refusal_due(c, now_ns);
    if (c->opts.interval_ns == 0)
        return false;
    updated_bytes = tables_totals(c->opts.tables).updated_bytes;
    pthread_mutex_lock(&c->lock);
    wait_ns = c->has_failed ? c->opts.interval_ns / RETRY_PART : c->opts.interval_ns;
    due = !c->stats.is_making && !c->is_due_told && clock_since(now_ns, c->tried_ns) >= wait_ns;
    if (due && updated_bytes == c->updated_bytes) {
        c->tried_ns = now_ns; /* nothing has changed */
        due = false;
    }
    late = c->is_due_told && !c->stats.is_making &&
           clock_since(now_ns, c->told_ns) >= c->opts.interval_ns;
    if (due || late)
        c->told_ns = now_ns;
    c->is_due_told |= due;
    pthread_mutex_unlock(&c->lock);
    if (!late)
        return due;
    checkpoints_stats(c, &stats);
    if (stats.has_newest)
        log_warn("a checkpoint is due and waits for other work on tables: a crash would go back to "
                 "the newest one",
                 "newest_seconds_ago=%" PRIu64, stats.newest_age_ms / 1000);
    else
        log_warn("a checkpoint is due and waits for other work on tables, and there is none yet",
                 "%s", "");
    return due;
}

/* ---- Using ---- */

/* AGAIN: it was just deleted, or cannot be read. */
static enum embtier_err read_info(const struct checkpoints *c, uint64_t id,
                                  struct checkpoint_info *ret_info, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    struct err_msg why = { { 0 } };
    const enum embtier_err err = checkpoint_read(store_shelf(c->opts.store), id, &record, &why);

    if (err == EMBTIER_OK)
        *ret_info = record->info;
    if (err == EMBTIER_OK || err == EMBTIER_NO_MEMORY) /* one that is there must not seem gone */
        return err == EMBTIER_OK ? err : err_set(msg, err, "%s", why.text);
    if (err != EMBTIER_NOT_FOUND)
        log_warn("a checkpoint cannot be read", "id=%" PRIu64 " why=%s", id, LOG_QUOTED(why.text));
    return EMBTIER_AGAIN;
}

enum embtier_err checkpoints_list(struct checkpoints *c, uint64_t after, uint32_t most,
                                  struct checkpoint_page *ret_page, struct err_msg *msg)
{
    struct checkpoint_page page = { .infos = calloc(CHECKPOINTS_PAGE, sizeof(*page.infos)) };
    _cleanup_(freep) struct checkpoint_info *infos = page.infos;
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t all = 0, bytes = 0;

    if (!infos)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    if (most == 0 || most > CHECKPOINTS_PAGE)
        most = CHECKPOINTS_PAGE;
    TRY(checkpoint_list(store_shelf(c->opts.store), &ids, &all, msg));
    for (uint32_t i = 0; i < all && !page.more; i++) {
        enum embtier_err err;

        if (ids[i] <= after)
            continue;
        page.more = page.count == most || bytes + EMBTIER_METADATA_MAX > CHECKPOINTS_PAGE_BYTES;
        if (page.more)
            break;
        err = read_info(c, ids[i], &page.infos[page.count], msg);
        if (err == EMBTIER_AGAIN)
            continue;
        TRY(err);
        bytes += (uint32_t)strlen(page.infos[page.count++].metadata);
    }
    infos = NULL;
    *ret_page = page;
    return EMBTIER_OK;
}

void checkpoint_tables_clear(struct checkpoint_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++)
        free(tables->names[i]);
    free(tables->names);
    *tables = (struct checkpoint_tables){ 0 };
}

static enum embtier_err copy_names(const struct catalog *catalog, uint32_t from,
                                   struct checkpoint_tables *tables, struct err_msg *msg)
{
    uint32_t live = 0, bytes = 0;

    tables->names = calloc((size_t)catalog_count(catalog) + 1, sizeof(*tables->names));
    for (uint32_t i = 0; tables->names && i < catalog_count(catalog); i++) {
        const struct catalog_table *const table = catalog_at(catalog, i);

        if (table->state != CATALOG_LIVE || live++ < from)
            continue;
        bytes += EMBTIER_TABLE_NAME_MAX / 8 + (uint32_t)strlen(table->spec.name);
        tables->more = bytes > CHECKPOINTS_PAGE_BYTES;
        if (tables->more)
            break;
        tables->names[tables->count] = strdup(table->spec.name);
        if (!tables->names[tables->count++])
            return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    }
    return tables->names ? EMBTIER_OK
                         : err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
}

enum embtier_err checkpoints_show(struct checkpoints *c, uint64_t id, uint32_t from,
                                  struct checkpoint_info *ret_info,
                                  struct checkpoint_tables *ret_tables, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    enum embtier_err err;

    *ret_tables = (struct checkpoint_tables){ 0 };
    TRY(checkpoints_begin_use(c, id, msg));
    err = checkpoint_read(store_shelf(c->opts.store), id, &record, msg);
    if (err == EMBTIER_OK)
        err = checkpoint_catalog(store_shelf(c->opts.store), record, &catalog, msg);
    checkpoints_end_use(c, id);
    TRY(err);
    TRY(copy_names(catalog, from, ret_tables, msg));
    *ret_info = record->info;
    return EMBTIER_OK;
}

struct verifying {
    const struct checkpoints *checkpoints;
    const struct progress_sink *progress;
    _Atomic bool give_up;
};

static void verified_bytes(void *context, uint64_t done, uint64_t total)
{
    struct verifying *const verifying = context;

    if (progress_tell(verifying->progress, done, total, "bytes", NULL) != EMBTIER_OK ||
        atomic_load(&verifying->checkpoints->stopping))
        atomic_store(&verifying->give_up, true);
}

struct store *checkpoints_store(const struct checkpoints *c)
{
    return c->opts.store;
}

struct transfer_memory *checkpoints_memory(const struct checkpoints *c)
{
    return c->opts.memory;
}

const _Atomic bool *checkpoints_stopping(const struct checkpoints *c)
{
    return &c->stopping;
}

enum embtier_err checkpoints_begin_use(struct checkpoints *c, uint64_t id, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&c->lock);
    if (c->deleting_id == id)
        err = err_set(msg, EMBTIER_NOT_FOUND,
                      "there is no checkpoint %" PRIu64 ": it is being deleted", id);
    else if (c->use_count == USES_MAX)
        err = err_set(msg, EMBTIER_BUSY, "%d checkpoints are being read, no more can be", USES_MAX);
    else
        c->used_ids[c->use_count++] = id;
    pthread_mutex_unlock(&c->lock);
    return err;
}

void checkpoints_end_use(struct checkpoints *c, uint64_t id)
{
    uint32_t i = 0;

    pthread_mutex_lock(&c->lock);
    while (c->used_ids[i] != id)
        i++;
    c->used_ids[i] = c->used_ids[--c->use_count];
    pthread_mutex_unlock(&c->lock);
}

enum embtier_err checkpoints_verify(struct checkpoints *c, uint64_t id,
                                    const struct progress_sink *progress,
                                    struct checkpoint_info *ret_info, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    struct verifying verifying = { .checkpoints = c, .progress = progress };
    enum embtier_err err;

    TRY(checkpoints_begin_use(c, id, msg));
    err = checkpoint_read(store_shelf(c->opts.store), id, &record, msg);
    if (err == EMBTIER_OK)
        err = checkpoint_verify(store_shelf(c->opts.store), record, verified_bytes, &verifying,
                                &verifying.give_up, msg);
    checkpoints_end_use(c, id);
    if (err == EMBTIER_SHUTDOWN)
        TRY(progress_look(progress, msg)); /* which may be why */
    TRY(err);
    *ret_info = record->info;
    return EMBTIER_OK;
}

static enum embtier_err begin_deleting(struct checkpoints *c, uint64_t id, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0, uses = 0;

    TRY(checkpoint_list(store_shelf(c->opts.store), &ids, &count, msg));
    if (count > 0 && ids[count - 1] == id)
        return err_set(msg, EMBTIER_INVALID,
                       "checkpoint %" PRIu64
                       " is the newest: a crash goes back to it; make another "
                       "one first",
                       id);
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->use_count; i++)
        uses += c->used_ids[i] == id;
    if (uses == 0)
        c->deleting_id = id;
    pthread_mutex_unlock(&c->lock);
    return uses == 0
               ? EMBTIER_OK
               : err_set(msg, EMBTIER_BUSY,
                         "checkpoint %" PRIu64 " is being read, to be verified or exported", id);
}

static void end_deleting(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
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
    end_deleting(c);
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

    TRY(begin_change(c, progress, msg));
    err = checkpoint_owners_may_delete(c->owners, id, uid, msg);
    if (err == EMBTIER_OK)
        err = delete_one(c, id, ret_info, msg);
    end_change(c);
    return err;
}

/* So that nobody uses what a crash would empty, or begins again at a step that nothing tells. */
static enum embtier_err make_safe(struct checkpoints *c, const struct table_info *infos,
                                  uint32_t count, const struct checkpoint_order *how,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    _cleanup_(freep) uint32_t *ids = calloc((size_t)count + 1, sizeof(*ids));
    const struct catalog_made made = { .table_ids = ids, .count = count };
    struct checkpoint_order order = *how;
    struct checkpoint_info info;
    enum embtier_err err;
    bool is_safe = !how->has_step && how->metadata[0] == '\0';
    uint32_t tries = 0;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = infos[i].table_id;
        is_safe = is_safe && infos[i].spec.durability != EMBTIER_DURABILITY_REPLAY;
    }
    if (is_safe)
        return EMBTIER_OK;
    order.made = &made;
    /* What has been written is worth more than one search for a moment without updates. */
    do
        err = checkpoints_make(c, &order, progress, &info, msg);
    while (err == EMBTIER_BUSY && ++tries < PUBLISH_TRIES);
    return err;
}

enum embtier_err checkpoints_publish(struct checkpoints *c, struct table_info *infos,
                                     uint32_t count, const struct checkpoint_order *how,
                                     const struct progress_sink *progress, struct err_msg *msg)
{
    enum embtier_err err = make_safe(c, infos, count, how, progress, msg);

    if (err == EMBTIER_OK)
        err = tables_publish(c->opts.tables, infos, count, msg);
    if (err != EMBTIER_OK)
        tables_abandon(c->opts.tables, infos, count);
    return err;
}

enum embtier_err checkpoints_restore(struct checkpoints *c, const struct restore_order *order,
                                     const struct progress_sink *progress,
                                     struct restored_tables *ret_restored, struct err_msg *msg)
{
    enum embtier_err err;

    *ret_restored = (struct restored_tables){ 0 };
    TRY(checkpoints_begin_use(c, order->id, msg));
    err = checkpoint_restore(store_shelf(c->opts.store), c->opts.tables, c->opts.memory, order,
                             progress, ret_restored, msg);
    checkpoints_end_use(c, order->id);
    TRY(err);
    /* More tables may be wanted of it. */
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count,
                               &(struct checkpoint_order){ .automatic = true, .keep_all = true },
                               progress, msg);
}

static void log_other(const struct checkpoint_info *info)
{
    char step[24] = "none";

    if (info->has_step)
        snprintf(step, sizeof(step), "%" PRIu64, info->step);
    log_warn("tables are made as they were when this checkpoint of the other store was made, what "
             "was updated there since is not in it",
             "checkpoint=%" PRIu64 " step=%s made_seconds_ago=%" PRIu64, info->id, step,
             clock_since(clock_wall_ms(), info->created_ms) / 1000);
}

enum embtier_err checkpoints_restore_other(struct checkpoints *c,
                                           const struct other_checkpoint *other,
                                           const struct progress_sink *progress,
                                           struct restored_tables *ret_restored,
                                           struct err_msg *msg)
{
    const struct restore_order order = { .id = other->record->info.id, .keeps_owners = true };
    struct checkpoint_order how = { 0 };

    *ret_restored = (struct restored_tables){ 0 };
    log_other(&other->record->info);
    carry_over(&other->record->info, &how);
    TRY(checkpoint_restore(&other->shelf, c->opts.tables, c->opts.memory, &order, progress,
                           ret_restored, msg));
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count, &how, progress, msg);
}

void checkpoints_stats(struct checkpoints *c, struct checkpoints_stats *ret_stats)
{
    pthread_mutex_lock(&c->lock);
    *ret_stats = c->stats;
    ret_stats->longest_pause_us = c->counts.longest_pause_us;
    ret_stats->tries = c->counts.tries;
    ret_stats->cut_updates = c->counts.cut_updates;
    ret_stats->yielded_us = c->counts.yielded_us;
    if (c->stats.has_newest)
        ret_stats->newest_age_ms +=
            clock_since(clock_now_ns(&clock_monotonic), c->aged_ns) / 1000000;
    pthread_mutex_unlock(&c->lock);
}
