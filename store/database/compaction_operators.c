/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_operators.c: what operators ask of the compaction scheduler, and are told. */
#include "store/database/compaction_scheduler_impl.h"

#include <assert.h>

#include "base/clock.h"
#include "base/macros.h"

void compaction_scheduler_defer(struct compaction_scheduler *scheduler, bool deferred)
{
    atomic_store(&scheduler->deferred, deferred);
}

void compaction_scheduler_set_hours(struct compaction_scheduler *scheduler,
                                    const struct day_hours *hours)
{
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->hours = *hours;
    pthread_mutex_unlock(&scheduler->mutex);
}

void compaction_scheduler_look(struct compaction_scheduler *scheduler,
                               struct compaction_facts *ret_facts)
{
    pthread_mutex_lock(&scheduler->mutex);
    *ret_facts = (struct compaction_facts){
        .databases = scheduler->count,
        .parallel = scheduler->parallel,
        .is_deferred = atomic_load(&scheduler->deferred),
        .is_busy = atomic_load_explicit(&scheduler->busy, memory_order_relaxed),
        .lacks_space = atomic_load(&scheduler->paused),
        .minutes_to_hours = compaction_minutes_to_hours(scheduler),
        .hours = scheduler->hours,
        .limit_bytes = scheduler->limit_bytes,
        .limit_now_bytes = scheduler->limit_now_bytes,
        .pace = scheduler->pace_reason,
    };
    pthread_mutex_unlock(&scheduler->mutex);
}

uint32_t compaction_scheduler_list(struct compaction_scheduler *scheduler, uint32_t first,
                                   uint32_t most, struct compaction_view *ret_views)
{
    const uint32_t count = MIN(scheduler->count - MIN(first, scheduler->count), most);

    pthread_mutex_lock(&scheduler->mutex);
    for (uint32_t i = 0; i < count; i++)
        ret_views[i] = scheduler->views[first + i];
    pthread_mutex_unlock(&scheduler->mutex);
    return count;
}

const char *compaction_scheduler_path(const struct compaction_scheduler *scheduler,
                                      uint32_t database)
{
    return database_path(scheduler->entries[database].database);
}

/* Those that RocksDB finds nothing to compact in are done too. */
static bool has_caught_up(const struct compaction_view *view)
{
    return view->state == COMPACTION_IDLE || view->state == COMPACTION_SITS_OUT;
}

/* Returns how many databases had not caught up at the last round. */
static uint32_t count_left(const struct compaction_scheduler *scheduler)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < scheduler->count; i++)
        left += !has_caught_up(&scheduler->views[i]);
    return left;
}

/* Looks at the last round. AGAIN: @ret_left databases are left. */
static enum embtier_err caught_up(const struct compaction_scheduler *scheduler, uint32_t *ret_left,
                                  struct err_msg *msg)
{
    *ret_left = count_left(scheduler);
    for (uint32_t i = 0; i < scheduler->count; i++)
        if (scheduler->views[i].state == COMPACTION_FAILED)
            return err_set(msg, EMBTIER_IO, "%s: its background work fails; the log says why",
                           compaction_scheduler_path(scheduler, i));
    if (*ret_left > 0 && atomic_load(&scheduler->paused))
        return err_set(msg, EMBTIER_NO_SPACE, "the disk has no space to compact; make space");
    return *ret_left > 0 ? EMBTIER_AGAIN : EMBTIER_OK;
}

/* Waits for the next round, or a little. Locked. */
static void await_round(struct compaction_scheduler *scheduler)
{
    const struct timespec until = compaction_period_end();

    (void)pthread_cond_timedwait(&scheduler->seen, &scheduler->mutex, &until);
}

/* Bytes of files that compactions have read. A compaction that has just ended may count twice for
 * a moment. */
static uint64_t read_bytes(const struct compaction_scheduler *scheduler)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < scheduler->count; i++)
        bytes += scheduler->views[i].compacted_bytes + scheduler->views[i].done_bytes;
    return bytes;
}

/* Bytes of files that databases still have to read, by RocksDB's estimate, which leaves out those
 * that compact now. */
static uint64_t left_bytes(const struct compaction_scheduler *scheduler)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < scheduler->count; i++) {
        const struct compaction_view *const view = &scheduler->views[i];

        if (!has_caught_up(view))
            bytes += view->pending_bytes + view->total_bytes - view->done_bytes;
    }
    return bytes;
}

/* Progress in MiB, that never goes back. While anything is left, the last MiB is not done. */
struct catching_up {
    uint64_t begin_bytes;
    uint32_t done, total;
};

static void catching_up_look(struct catching_up *progress,
                             const struct compaction_scheduler *scheduler, bool is_over)
{
    const uint64_t bytes = read_bytes(scheduler); /* one that failed may have taken its own back */
    const uint64_t done_bytes = bytes - MIN(bytes, progress->begin_bytes);
    const uint32_t done = (uint32_t)div_round_up(done_bytes, MIB);

    progress->done = MAX(progress->done, done);
    progress->total = progress->done + (uint32_t)div_round_up(left_bytes(scheduler), MIB);
    if (!is_over)
        progress->total = MAX(progress->total, progress->done + 1);
}

/* Locked, but not while @tell runs. The first round that counts has begun after the call. */
static enum embtier_err catch_up(struct compaction_scheduler *scheduler, compaction_tell_fn *tell,
                                 void *context, struct err_msg *msg)
{
    const uint64_t first = scheduler->rounds + 2;
    struct catching_up progress = { .begin_bytes = read_bytes(scheduler) };
    uint32_t left;
    enum embtier_err err = EMBTIER_AGAIN;

    while (err == EMBTIER_AGAIN) {
        enum embtier_err told;

        await_round(scheduler);
        if (scheduler->rounds >= first)
            err = caught_up(scheduler, &left, msg);
        catching_up_look(&progress, scheduler, err == EMBTIER_OK);
        pthread_mutex_unlock(&scheduler->mutex);
        told = tell(context, progress.done, progress.total, err == EMBTIER_AGAIN ? msg : NULL);
        pthread_mutex_lock(&scheduler->mutex);
        if (err == EMBTIER_AGAIN && told != EMBTIER_OK)
            err = told;
    }
    return err;
}

enum embtier_err compaction_scheduler_catch_up(struct compaction_scheduler *scheduler,
                                               compaction_tell_fn *tell, void *context,
                                               struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&scheduler->mutex);
    assert(!scheduler->catches_up);
    scheduler->catches_up = true;
    err = catch_up(scheduler, tell, context, msg);
    scheduler->catches_up = false;
    pthread_mutex_unlock(&scheduler->mutex);
    return err;
}
