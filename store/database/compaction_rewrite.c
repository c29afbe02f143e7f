/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_rewrite.c: rewrites all files of all databases, for operators.
 *
 * RocksDB's call to do so blocks, and takes as long as the database is large. So it is called for
 * pieces of the keys, on a thread of its own, while the caller looks every tenth of a second
 * whether to go on. An urgent database must not wait for a piece, as it would take no more updates.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text/bytes.h"
#include "store/database/compaction_scheduler_impl.h"

#define PIECE_BYTES (512 * MIB)

struct rewrite {
    struct compaction_scheduler *scheduler;
    uint32_t count; /* databases that are measured; others may be added meanwhile */
    compaction_tell_fn *tell;
    void *context;
    struct rocksdb_ext_stop *stop;
    struct database_ranges *ranges; /* of each database */
    uint64_t done_bytes, total_bytes;
    /* The piece in work; written by the caller before the thread begins, and by the thread up to
     * @is_over. */
    uint32_t database, range;
    bool runs; /* the caller's */
    _Atomic bool is_over;
    enum embtier_err err;
    struct err_msg msg;
};

/* Returns the bytes that the piece in work has read, at most its share. */
static uint64_t piece_bytes(const struct rewrite *rewrite)
{
    struct compaction_scheduler *const scheduler = rewrite->scheduler;
    const struct database_ranges *const ranges = &rewrite->ranges[rewrite->database];
    uint64_t bytes;

    if (!rewrite->runs)
        return 0;
    pthread_mutex_lock(&scheduler->mutex);
    bytes = scheduler->views[rewrite->database].done_bytes;
    pthread_mutex_unlock(&scheduler->mutex);
    return MIN(bytes, ranges->bytes / (ranges->cut_count + 1));
}

/* A piece that is begun anew goes back. */
static enum embtier_err tell(const struct rewrite *rewrite, struct err_msg *msg)
{
    const uint64_t done_bytes = rewrite->done_bytes + piece_bytes(rewrite);

    return rewrite->tell(rewrite->context, (uint32_t)div_round_up(done_bytes, MIB),
                         (uint32_t)div_round_up(rewrite->total_bytes, MIB), msg);
}

/* Waits for the next round, or a little. */
static void await(struct compaction_scheduler *scheduler)
{
    const struct timespec until = compaction_period_end();

    pthread_mutex_lock(&scheduler->mutex);
    (void)pthread_cond_timedwait(&scheduler->seen, &scheduler->mutex, &until);
    pthread_mutex_unlock(&scheduler->mutex);
}

static bool try_slot(struct compaction_scheduler *scheduler, uint32_t device)
{
    struct slots *const slots = &scheduler->slots[device];
    bool taken;

    pthread_mutex_lock(&scheduler->mutex);
    /* Holders go first, as a drop must not wait for all pieces. */
    taken = slots->waiting == 0 && slots->used < scheduler->parallel && !slots->urgent_waits;
    slots->used += taken;
    pthread_mutex_unlock(&scheduler->mutex);
    return taken;
}

static bool urgent_waits(struct compaction_scheduler *scheduler, uint32_t device)
{
    bool waits;

    pthread_mutex_lock(&scheduler->mutex);
    waits = scheduler->slots[device].urgent_waits;
    pthread_mutex_unlock(&scheduler->mutex);
    return waits;
}

static enum embtier_err check_space(const struct compaction_scheduler *scheduler,
                                    struct err_msg *msg)
{
    if (atomic_load(&scheduler->paused))
        return err_set(msg, EMBTIER_NO_SPACE, "the disk has no space to compact; make space");
    return EMBTIER_OK;
}

static enum embtier_err take_slot(const struct rewrite *rewrite, uint32_t device,
                                  struct err_msg *msg)
{
    while (!try_slot(rewrite->scheduler, device)) {
        TRY(tell(rewrite, msg));
        TRY(check_space(rewrite->scheduler, msg));
        await(rewrite->scheduler);
    }
    return EMBTIER_OK;
}

static void *piece_main(void *argument)
{
    struct rewrite *const rewrite = argument;

    rewrite->err = database_rewrite(rewrite->scheduler->entries[rewrite->database].database,
                                    &rewrite->ranges[rewrite->database], rewrite->range,
                                    rewrite->stop, &rewrite->msg);
    atomic_store(&rewrite->is_over, true);
    return NULL;
}

/* AGAIN: an urgent database came between. */
static enum embtier_err run_piece(struct rewrite *rewrite, uint32_t device, struct err_msg *msg)
{
    enum embtier_err ended = EMBTIER_OK;
    pthread_t thread;
    int errnum;

    rocksdb_ext_stop_set(rewrite->stop, false);
    atomic_store(&rewrite->is_over, false);
    errnum = pthread_create(&thread, NULL, piece_main, rewrite);
    if (errnum != 0)
        return err_set_errno(msg, errnum, "starting a compaction");
    rewrite->runs = true;
    while (!atomic_load(&rewrite->is_over)) {
        if (ended == EMBTIER_OK)
            ended = tell(rewrite, msg);
        if (ended == EMBTIER_OK && urgent_waits(rewrite->scheduler, device))
            ended = EMBTIER_AGAIN;
        if (ended != EMBTIER_OK)
            rocksdb_ext_stop_set(rewrite->stop, true);
        await(rewrite->scheduler);
    }
    pthread_join(thread, NULL);
    rewrite->runs = false;
    if (ended != EMBTIER_OK && ended != EMBTIER_AGAIN)
        return ended;
    if (rewrite->err == EMBTIER_CANCELLED && ended == EMBTIER_AGAIN)
        return EMBTIER_AGAIN;
    if (rewrite->err != EMBTIER_OK)
        return err_set(msg, rewrite->err, "%s", rewrite->msg.text);
    return EMBTIER_OK;
}

static enum embtier_err rewrite_piece(struct rewrite *rewrite, uint32_t database, uint32_t range,
                                      struct err_msg *msg)
{
    const uint32_t device = rewrite->scheduler->entries[database].device;
    enum embtier_err err;

    rewrite->database = database;
    rewrite->range = range;
    do {
        TRY(take_slot(rewrite, device, msg));
        err = check_space(rewrite->scheduler, msg);
        if (err == EMBTIER_OK)
            err = run_piece(rewrite, device, msg);
        compaction_scheduler_release(rewrite->scheduler, device);
    } while (err == EMBTIER_AGAIN);
    return err;
}

static enum embtier_err rewrite_database(struct rewrite *rewrite, uint32_t database,
                                         struct err_msg *msg)
{
    const struct database_ranges *const ranges = &rewrite->ranges[database];
    const uint64_t before = rewrite->done_bytes;

    for (uint32_t i = 0; i <= ranges->cut_count; i++) {
        TRY(rewrite_piece(rewrite, database, i, msg));
        rewrite->done_bytes = before + ranges->bytes / (ranges->cut_count + 1) * (i + 1);
    }
    rewrite->done_bytes = before + ranges->bytes;
    return EMBTIER_OK;
}

/* Measures the databases that were added since the last call. */
static enum embtier_err measure(struct rewrite *rewrite, struct err_msg *msg)
{
    const struct compaction_scheduler *const scheduler = rewrite->scheduler;

    while (rewrite->count < scheduler->count) {
        struct database_ranges *const ranges = &rewrite->ranges[rewrite->count];

        TRY(tell(rewrite, msg));
        TRY(database_ranges(scheduler->entries[rewrite->count].database, PIECE_BYTES, ranges, msg));
        rewrite->total_bytes += ranges->bytes;
        rewrite->count++;
    }
    return EMBTIER_OK;
}

static enum embtier_err rewrite_all(struct rewrite *rewrite, struct err_msg *msg)
{
    TRY(measure(rewrite, msg));
    for (uint32_t i = 0; i < rewrite->count; i++) {
        if (rewrite->ranges[i].bytes > 0)
            TRY(rewrite_database(rewrite, i, msg));
        TRY(measure(rewrite, msg));
    }
    return tell(rewrite, msg);
}

enum embtier_err compaction_scheduler_rewrite(struct compaction_scheduler *scheduler,
                                              compaction_tell_fn *tell_fn, void *context,
                                              struct err_msg *msg)
{
    struct rewrite rewrite = { .scheduler = scheduler, .tell = tell_fn, .context = context };
    enum embtier_err err;

    rewrite.ranges = calloc(MAX(scheduler->room, 1u), sizeof(*rewrite.ranges));
    if (!rewrite.ranges)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    rewrite.stop = rocksdb_ext_stop_new();
    err = rewrite_all(&rewrite, msg);
    for (uint32_t i = 0; i < rewrite.count; i++)
        database_ranges_clear(&rewrite.ranges[i]);
    rocksdb_ext_stop_free(rewrite.stop);
    free(rewrite.ranges);
    return err;
}
