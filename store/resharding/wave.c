/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/wave.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "store/store_types.h"

/* Clients do not wait longer for a target that takes no rows. */
#define BUSY_PATIENCE_NS (UINT64_C(2) * 1000 * 1000 * 1000)
/* A batch of copies lets writers go first for at most so long. */
#define COPY_PATIENCE_NS (UINT64_C(20) * 1000 * 1000)
#define COPY_NAP_NS      (100L * 1000)

enum embtier_err wave_new(struct store *store, const struct bucket_map *now,
                          const struct bucket_map *after, uint32_t source, struct wave **ret_wave,
                          struct err_msg *msg)
{
    _cleanup_(wave_freep) struct wave *wave = calloc(1, sizeof(*wave));

    if (!wave)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    pthread_mutex_init(&wave->lock, NULL);
    wave->store = store;
    wave->source = source;
    wave->targets = malloc(ROW_BUCKETS * sizeof(*wave->targets));
    if (!wave->targets)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
        wave->targets[bucket] = UINT16_MAX;
        if (after->shards[bucket] == now->shards[bucket])
            continue;
        assert(now->shards[bucket] == source);
        wave->targets[bucket] = after->shards[bucket];
        wave->is_target[after->shards[bucket]] = true;
    }
    *ret_wave = TAKE(wave);
    return EMBTIER_OK;
}

void wave_free(struct wave *wave)
{
    if (!wave)
        return;
    pthread_mutex_destroy(&wave->lock);
    free(wave->targets);
    wave_missed_clear(&wave->missed);
    free(wave->dropped);
    free(wave);
}

void wave_lock_to_write(struct wave *wave)
{
    atomic_fetch_add_explicit(&wave->arrived, 1, memory_order_relaxed);
    pthread_mutex_lock(&wave->lock);
}

void wave_unlock_written(struct wave *wave)
{
    pthread_mutex_unlock(&wave->lock);
    atomic_fetch_add_explicit(&wave->served, 1, memory_order_relaxed);
}

void wave_lock_to_copy(struct wave *wave)
{
    const uint32_t first = atomic_load_explicit(&wave->arrived, memory_order_relaxed);
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + COPY_PATIENCE_NS;

    /* A nap may last far longer than it should, so naps are not counted. */
    while ((int32_t)(atomic_load_explicit(&wave->served, memory_order_relaxed) - first) < 0 &&
           clock_now_ns(&clock_monotonic) < until_ns)
        nanosleep(&(struct timespec){ .tv_nsec = COPY_NAP_NS }, NULL);
    pthread_mutex_lock(&wave->lock);
}

void wave_unlock_copied(struct wave *wave)
{
    pthread_mutex_unlock(&wave->lock);
}

bool wave_is_patient(struct wave *wave, uint32_t target, bool logged, enum embtier_err err)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    uint64_t *const since_ns = &wave->busy_since_ns[target][logged];

    if (err == EMBTIER_OK)
        *since_ns = 0;
    if (err != EMBTIER_BUSY)
        return false;
    if (*since_ns == 0)
        *since_ns = now_ns;
    return now_ns - *since_ns < BUSY_PATIENCE_NS;
}

bool wave_put_off(struct wave *wave, uint32_t target, const struct store_row *row)
{
    const struct missed_row missed = { .key = row_key_make(row->table_id, row->id),
                                       .target = (uint16_t)target,
                                       .logged = row->logged };

    if (wave->state == WAVE_SWITCHES || wave_has_dropped(wave, row->table_id))
        return false;
    if (wave->missed.count == 0)
        log_info("a shard takes no rows; those that move to it are copied later", "shard=%" PRIu32,
                 target);
    return wave_missed_add(&wave->missed, &missed);
}

enum embtier_err wave_fail(struct wave *wave, enum embtier_err err, const struct err_msg *why,
                           struct err_msg *msg)
{
    if (wave->state == WAVE_SWITCHES)
        return err_set(msg, err, "%s", why->text);
    if (wave->state != WAVE_FAILED) {
        wave->state = WAVE_FAILED;
        wave->err = err;
        wave->why = *why;
    }
    return EMBTIER_OK;
}

/* The caller holds the lock. */
static enum embtier_err check(const struct wave *wave, struct err_msg *msg)
{
    if (wave->state == WAVE_FAILED)
        return err_set(msg, wave->err, "%s", wave->why.text);
    if (wave->lacks_dropped && wave->state != WAVE_SWITCHES) /* nothing is copied then */
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return EMBTIER_OK;
}

enum embtier_err wave_check(struct wave *wave, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&wave->lock);
    err = check(wave, msg);
    pthread_mutex_unlock(&wave->lock);
    return err;
}

bool wave_end_copying(struct wave *wave)
{
    bool ended;

    pthread_mutex_lock(&wave->lock);
    if (wave->state == WAVE_COPIES || wave->state == WAVE_COPIED)
        wave->state = wave->missed.count == 0 ? WAVE_COPIED : WAVE_COPIES;
    ended = wave->state != WAVE_COPIES;
    pthread_mutex_unlock(&wave->lock);
    return ended;
}

/* The caller holds the lock. */
static enum embtier_err check_copied(struct wave *wave, struct err_msg *msg)
{
    TRY(check(wave, msg));
    if (wave->state == WAVE_COPIED && wave->missed.count > 0)
        wave->state = WAVE_COPIES;
    if (wave->state == WAVE_COPIES)
        return err_set(msg, EMBTIER_AGAIN, "rows were written that their new shard did not take");
    return EMBTIER_OK;
}

enum embtier_err wave_check_copied(struct wave *wave, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&wave->lock);
    err = check_copied(wave, msg);
    pthread_mutex_unlock(&wave->lock);
    return err;
}

enum embtier_err wave_begin_switch(struct wave *wave, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&wave->lock);
    err = check_copied(wave, msg);
    if (err == EMBTIER_OK)
        wave->state = WAVE_SWITCHES;
    pthread_mutex_unlock(&wave->lock);
    return err;
}

void wave_end_switch(struct wave *wave)
{
    pthread_mutex_lock(&wave->lock);
    assert(wave->state == WAVE_SWITCHES);
    wave->state = WAVE_COPIED;
    pthread_mutex_unlock(&wave->lock);
}

bool wave_is_switching(struct wave *wave)
{
    bool switches;

    pthread_mutex_lock(&wave->lock);
    switches = wave->state == WAVE_SWITCHES;
    pthread_mutex_unlock(&wave->lock);
    return switches;
}

void wave_note_drop(struct wave *wave, uint32_t table_id)
{
    uint32_t *more;

    pthread_mutex_lock(&wave->lock);
    more = realloc(wave->dropped, (wave->dropped_count + 1) * sizeof(*more));
    if (more) {
        wave->dropped = more;
        wave->dropped[wave->dropped_count++] = table_id;
    } else {
        wave->lacks_dropped = true;
    }
    pthread_mutex_unlock(&wave->lock);
}

/* While one could not be noted, no row may be copied: it may be that table's. */
bool wave_has_dropped(const struct wave *wave, uint32_t table_id)
{
    for (uint32_t i = 0; i < wave->dropped_count; i++)
        if (wave->dropped[i] == table_id)
            return true;
    return wave->lacks_dropped;
}
