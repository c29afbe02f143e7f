/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/checkpoints_state.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/checkpoint/checkpoint_owners.h"

/* Interval at which a thread that waits for another change checks whether to give up. */
#define LOOK_NS 100000000L

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
    checkpoints->interval_ns = opts->interval_ns;
    checkpoints->keep = opts->keep;
    checkpoints->few_cores = opts->core_count < 2 * opts->lane_count + 2;
    checkpoints->tried_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_init(&checkpoints->lock, NULL);
    clock_init_cond(&checkpoints->changed);
    *ret_checkpoints = checkpoints;
    return EMBTIER_OK;
}

void checkpoints_free(struct checkpoints *checkpoints)
{
    if (!checkpoints)
        return;
    assert(!checkpoints->is_changing && checkpoints->use_count == 0);
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

enum embtier_err checkpoints_begin_change(struct checkpoints *c,
                                          const struct progress_sink *progress, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&c->lock);
    while (c->is_changing && err == EMBTIER_OK) {
        const struct timespec until = clock_until(LOOK_NS);

        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
        err = atomic_load(&c->stopping) ? err_shutdown(msg) : progress_look(progress, msg);
    }
    c->is_changing |= err == EMBTIER_OK;
    pthread_mutex_unlock(&c->lock);
    return err;
}

void checkpoints_end_change(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    assert(c->is_changing);
    c->is_changing = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* ---- Using ---- */

struct store *checkpoints_store(const struct checkpoints *c)
{
    return c->opts.store;
}

uint64_t checkpoints_interval_ns(const struct checkpoints *c)
{
    return atomic_load(&c->interval_ns);
}

void checkpoints_set_interval_ns(struct checkpoints *c, uint64_t interval_ns)
{
    atomic_store(&c->interval_ns, interval_ns);
}

uint32_t checkpoints_keep(const struct checkpoints *c)
{
    return atomic_load(&c->keep);
}

void checkpoints_set_keep(struct checkpoints *c, uint32_t keep)
{
    atomic_store(&c->keep, keep);
}

struct tables *checkpoints_tables(const struct checkpoints *c)
{
    return c->opts.tables;
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
                      "there is no checkpoint %" PRIu64 " any more: it is being deleted", id);
    else if (c->use_count == USES_MAX)
        err = err_set(msg, EMBTIER_BUSY,
                      "%d checkpoints are being read, the limit: try again later", USES_MAX);
    else
        c->used_ids[c->use_count++] = id;
    pthread_mutex_unlock(&c->lock);
    return err;
}

void checkpoints_end_use(struct checkpoints *c, uint64_t id)
{
    uint32_t i = 0;

    pthread_mutex_lock(&c->lock);
    while (i < c->use_count && c->used_ids[i] != id)
        i++;
    assert(i < c->use_count);
    c->used_ids[i] = c->used_ids[--c->use_count];
    pthread_mutex_unlock(&c->lock);
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
