/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/wave_copy.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/database/database_moves.h"
#include "store/store_impl.h"

/* Rows that are moved while writers of the wave wait. */
#define BATCH_ROWS  DATABASE_MOVE_ROWS_MAX
#define BATCH_BYTES ((size_t)(256 * KIB))
_Static_assert(sizeof(struct stored_row_head) + STORED_ROW_BYTES_MAX <= BATCH_BYTES,
               "a batch has room for any row");
/* The same of rows that a target missed, whose values may be long. */
#define MISSED_ROWS 16
/* A walk keeps files that compactions have replaced. So a new one is begun so often. */
#define WALK_NS (UINT64_C(2) * 1000 * 1000 * 1000)

/* Rows on their way, with their values behind each other in @bytes. */
struct move_batch {
    struct stored_row rows[BATCH_ROWS];
    uint32_t targets[BATCH_ROWS];
    uint32_t count;
    size_t used_bytes;
    char *bytes;
};

/* A walk over one database that begins anew from time to time. */
struct long_walk {
    struct database *database;
    struct database_walk *walk;
    uint64_t began_ns;
};

static void long_walk_end(struct long_walk *walk)
{
    database_walk_free(walk->walk);
}

static enum embtier_err long_walk_begin(struct long_walk *walk, struct row_key from,
                                        struct err_msg *msg)
{
    database_walk_free(TAKE(walk->walk));
    walk->began_ns = clock_now_ns(&clock_monotonic);
    return database_walk_new(walk->database, from, &walk->walk, msg);
}

/* Begins anew at @row, which it is at, if it has lasted long enough. */
static enum embtier_err long_walk_renew(struct long_walk *walk, struct stored_row *row,
                                        struct err_msg *msg)
{
    if (clock_now_ns(&clock_monotonic) - walk->began_ns < WALK_NS)
        return EMBTIER_OK;
    TRY(long_walk_begin(walk, row->key, msg));
    return database_walk_row(walk->walk, row, msg);
}

static uint32_t table_of(const struct row_key *key)
{
    uint32_t table_be;

    memcpy(&table_be, key->bytes, sizeof(table_be));
    return be32toh(table_be);
}

static uint32_t bucket_of(const struct store *store, const struct row_key *key)
{
    return row_bucket(row_hash(&store->hasher, table_of(key), row_key_id(key->bytes)));
}

static enum embtier_err batch_init(struct move_batch *batch, struct err_msg *msg)
{
    batch->count = 0;
    batch->used_bytes = 0;
    batch->bytes = malloc(BATCH_BYTES);
    return batch->bytes ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static void batch_clear(struct move_batch *batch)
{
    free(batch->bytes);
}

static bool batch_has_room(const struct move_batch *batch, const struct stored_row *row)
{
    return batch->count < BATCH_ROWS && row->value_bytes <= BATCH_BYTES - batch->used_bytes;
}

static void batch_add(struct move_batch *batch, const struct stored_row *row, uint32_t target)
{
    struct stored_row *const mine = &batch->rows[batch->count];

    *mine = *row;
    mine->value = batch->bytes + batch->used_bytes;
    memcpy(batch->bytes + batch->used_bytes, row->value, row->value_bytes);
    batch->used_bytes += row->value_bytes;
    batch->targets[batch->count++] = target;
}

/* ---- Copying ---- */

/* Writes the rows of @batch that belong to @target and are not there. */
static enum embtier_err copy_to(struct wave *wave, struct move_batch *batch, uint32_t target,
                                bool logged, struct err_msg *msg)
{
    struct database *const database = store_database_of(wave->store, target, logged);
    struct stored_row some[BATCH_ROWS];
    bool found[BATCH_ROWS];
    uint32_t count = 0, kept = 0;

    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->targets[i] == target && !wave_has_dropped(wave, table_of(&batch->rows[i].key)))
            some[count++] = batch->rows[i];
    if (count == 0)
        return EMBTIER_OK;
    TRY(database_find(database, some, count, found, msg));
    for (uint32_t i = 0; i < count; i++)
        if (!found[i])
            some[kept++] = some[i];
    return database_store(database, some, kept, msg);
}

/* The rest of the space may be promised to rows that clients have changed. */
static enum embtier_err admit(const struct store *store, uint32_t count, uint64_t bytes,
                              bool logged, struct err_msg *msg)
{
    struct store_refusal refusal;

    if (store_admit_copies(store, count, bytes, logged, &refusal) == EMBTIER_OK)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NO_SPACE,
                   "no space to move rows: %" PRIu64 " bytes are needed, and there is room for "
                   "%" PRIu64,
                   refusal.needed_bytes, refusal.room_bytes);
}

/* A batch that is copied a second time finds its rows. */
static enum embtier_err copy_locked(struct wave *wave, struct move_batch *batch, bool logged,
                                    struct err_msg *msg)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        uint32_t before = 0;

        while (batch->targets[before] != batch->targets[i])
            before++;
        if (before == i)
            TRY(copy_to(wave, batch, batch->targets[i], logged, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err copy_batch(struct wave *wave, struct move_batch *batch, bool logged,
                                   struct move_pace *pace, struct err_msg *msg)
{
    enum embtier_err err;

    for (uint32_t i = 0; i < batch->count; i++)
        if (i == 0 || batch->targets[i] != batch->targets[i - 1])
            TRY(move_pace_give_way(pace, store_database_of(wave->store, batch->targets[i], logged),
                                   msg));
    TRY(admit(wave->store, batch->count, batch->used_bytes, logged, msg));
    for (;;) {
        TRY(wave_check(wave, msg));
        wave_lock_to_copy(wave);
        err = copy_locked(wave, batch, logged, msg);
        wave_unlock_copied(wave);
        if (err != EMBTIER_BUSY)
            break;
        TRY(move_pace_rest(pace, msg));
    }
    TRY(err);
    atomic_fetch_add(&pace->moved_rows, batch->count);
    atomic_fetch_add(&pace->moved_bytes, batch->used_bytes);
    batch->count = 0;
    batch->used_bytes = 0;
    return EMBTIER_OK;
}

static enum embtier_err copy_database(struct wave *wave, bool logged, struct move_pace *pace,
                                      struct err_msg *msg)
{
    _cleanup_(long_walk_end) struct long_walk walk = { .database = store_database_of(
                                                           wave->store, wave->source, logged) };
    _cleanup_(batch_clear) struct move_batch batch = { .count = 0 };
    struct stored_row row;

    TRY(batch_init(&batch, msg));
    TRY(long_walk_begin(&walk, STORED_ROWS_FIRST, msg));
    for (;; database_walk_next(walk.walk)) {
        uint32_t target;

        TRY(database_walk_row(walk.walk, &row, msg));
        if (row.value)
            TRY(long_walk_renew(&walk, &row, msg));
        if (!row.value)
            break;
        TRY(move_pace_take(pace, sizeof(row.key) + row.value_bytes, msg));
        target = wave_target(wave, bucket_of(wave->store, &row.key));
        if (target == WAVE_NO_TARGET)
            continue;
        if (!batch_has_room(&batch, &row))
            TRY(copy_batch(wave, &batch, logged, pace, msg));
        batch_add(&batch, &row, target);
    }
    return copy_batch(wave, &batch, logged, pace, msg);
}

/* Rows that a target missed, a few at a time. */
struct missed_batch {
    uint32_t count;      /* 0: it has missed none */
    uint32_t kept_count; /* without those of tables that are dropped */
    uint64_t kept_bytes; /* of values */
    uint64_t due_bytes;  /* for the pace */
};

/* Makes rows of the target the same as those of the source. */
static enum embtier_err copy_kept(const struct wave *wave, const struct missed_row *like,
                                  struct stored_row *rows, struct missed_batch *batch,
                                  struct err_msg *msg)
{
    struct database *const source = store_database_of(wave->store, wave->source, like->logged);
    struct database *const target = store_database_of(wave->store, like->target, like->logged);
    _cleanup_(stored_values_clear) struct stored_values values = { .count = 0 };

    TRY(database_may_write(target, msg)); /* room is taken once */
    TRY(database_fetch(source, rows, batch->kept_count, &values, msg));
    for (uint32_t i = 0; i < batch->kept_count; i++) {
        const uint64_t bytes = rows[i].value ? rows[i].value_bytes : 0;

        batch->kept_bytes += bytes;
        batch->due_bytes += move_pace_due(sizeof(rows[i].key) + bytes);
    }
    TRY(admit(wave->store, batch->kept_count, batch->kept_bytes, like->logged, msg));
    return database_store(target, rows, batch->kept_count, msg);
}

static enum embtier_err copy_missed_locked(struct wave *wave, struct missed_batch *batch,
                                           struct err_msg *msg)
{
    const struct missed_row *rows;
    struct stored_row some[MISSED_ROWS];

    if (wave->missed.count == 0)
        return EMBTIER_OK;
    batch->count = wave_missed_alike(&wave->missed, MISSED_ROWS);
    rows = wave->missed.rows + wave->missed.count - batch->count;
    for (uint32_t i = 0; i < batch->count; i++)
        if (!wave_has_dropped(wave, table_of(&rows[i].key)))
            some[batch->kept_count++] = (struct stored_row){ .key = rows[i].key };
    if (batch->kept_count > 0)
        TRY(copy_kept(wave, rows, some, batch, msg));
    wave->missed.count -= batch->count;
    return EMBTIER_OK;
}

static enum embtier_err copy_missed(struct wave *wave, struct move_pace *pace, struct err_msg *msg)
{
    for (;;) {
        struct missed_batch batch = { .count = 0 };
        enum embtier_err err;

        TRY(wave_check(wave, msg));
        wave_lock_to_copy(wave);
        err = copy_missed_locked(wave, &batch, msg);
        wave_unlock_copied(wave);
        if (err == EMBTIER_BUSY) {
            TRY(move_pace_rest(pace, msg));
            continue;
        }
        TRY(err);
        if (batch.count == 0)
            return EMBTIER_OK;
        atomic_fetch_add(&pace->moved_rows, batch.kept_count);
        atomic_fetch_add(&pace->moved_bytes, batch.kept_bytes);
        TRY(move_pace_take(pace, batch.due_bytes, msg));
    }
}

/* ---- Steps of tables ---- */

struct steps {
    struct step {
        uint32_t table_id;
        uint64_t step;
    } * list;
    uint32_t count;
    bool lacks_memory;
};

static void steps_clear(struct steps *steps)
{
    free(steps->list);
}

static void note_step(void *context, uint32_t table_id, uint64_t step)
{
    struct steps *const steps = context;
    struct step *const more = realloc(steps->list, (steps->count + 1) * sizeof(*more));

    if (!more) {
        steps->lacks_memory = true;
        return;
    }
    steps->list = more;
    steps->list[steps->count++] = (struct step){ table_id, step };
}

static uint64_t step_of(const struct steps *steps, uint32_t table_id)
{
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->list[i].table_id == table_id)
            return steps->list[i].step;
    return 0;
}

/* The greatest step of all shards counts, so one target is enough. Steps only grow, and whoever
 * writes to a target holds the lock. */
static enum embtier_err copy_steps_locked(struct wave *wave, struct database *target,
                                          struct err_msg *msg)
{
    _cleanup_(steps_clear) struct steps from = { 0 }, to = { 0 };

    TRY(database_table_steps(store_database_of(wave->store, wave->source, true), note_step, &from,
                             msg));
    TRY(database_table_steps(target, note_step, &to, msg));
    if (from.lacks_memory || to.lacks_memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < from.count; i++) {
        const struct step *const step = &from.list[i];

        if (!wave_has_dropped(wave, step->table_id) && step->step > step_of(&to, step->table_id))
            TRY(database_store_step(target, step->table_id, step->step, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err copy_steps(struct wave *wave, struct move_pace *pace, struct err_msg *msg)
{
    uint32_t target = 0;
    enum embtier_err err;

    while (!wave->is_target[target])
        target++;
    for (;;) {
        TRY(wave_check(wave, msg));
        wave_lock_to_copy(wave);
        err = copy_steps_locked(wave, store_database_of(wave->store, target, true), msg);
        wave_unlock_copied(wave);
        if (err != EMBTIER_BUSY)
            return err;
        TRY(move_pace_rest(pace, msg));
    }
}

enum embtier_err wave_copy(struct wave *wave, struct move_pace *pace, struct err_msg *msg)
{
    if (!wave->is_walked) {
        TRY(copy_database(wave, false, pace, msg));
        TRY(copy_database(wave, true, pace, msg));
        wave->is_walked = true;
    }
    TRY(copy_missed(wave, pace, msg));
    TRY(copy_steps(wave, pace, msg));
    for (uint32_t s = 0; s < BUCKET_MAP_SHARDS_MAX; s++) {
        if (!wave->is_target[s])
            continue;
        TRY(database_flush(store_database_of(wave->store, s, false), msg));
        TRY(database_flush(store_database_of(wave->store, s, true), msg));
    }
    return wave_check(wave, msg);
}

/* ---- Strays ---- */

static enum embtier_err delete_batch(struct database *database, struct move_batch *batch,
                                     struct move_pace *pace, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(move_pace_give_way(pace, database, msg));
    while ((err = database_store(database, batch->rows, batch->count, msg)) == EMBTIER_BUSY)
        TRY(move_pace_rest(pace, msg));
    TRY(err);
    batch->count = 0;
    return EMBTIER_OK;
}

static enum embtier_err sweep_database(struct store *store, const struct bucket_map *map,
                                       uint32_t shard, bool logged, struct move_pace *pace,
                                       struct err_msg *msg)
{
    struct database *const database = store_database_of(store, shard, logged);
    _cleanup_(long_walk_end) struct long_walk walk = { .database = database };
    struct move_batch batch = { .count = 0 };
    struct stored_row row;

    TRY(long_walk_begin(&walk, STORED_ROWS_FIRST, msg));
    for (;;) {
        TRY(database_walk_row(walk.walk, &row, msg));
        if (row.value)
            TRY(long_walk_renew(&walk, &row, msg));
        if (!row.value)
            break;
        TRY(move_pace_take(pace, sizeof(row.key) + row.value_bytes, msg));
        if (map->shards[bucket_of(store, &row.key)] != shard)
            batch.rows[batch.count++] = (struct stored_row){ .key = row.key };
        database_walk_next(walk.walk);
        if (batch.count == BATCH_ROWS)
            TRY(delete_batch(database, &batch, pace, msg));
    }
    TRY(delete_batch(database, &batch, pace, msg));
    return database_flush(database, msg);
}

/* Nearly nothing is left to write, so this takes no slot of the compaction scheduler. */
static enum embtier_err empty_database(struct database *database, struct err_msg *msg)
{
    TRY(database_delete_table(database, DATABASE_ALL_TABLES, msg));
    return database_compact_table(database, DATABASE_ALL_TABLES, msg);
}

enum embtier_err strays_drop(struct store *store, uint32_t shard, struct err_msg *msg)
{
    TRY(empty_database(store_database_of(store, shard, false), msg));
    return empty_database(store_database_of(store, shard, true), msg);
}

enum embtier_err strays_sweep(struct store *store, const struct bucket_map *map, uint32_t shard,
                              struct move_pace *pace, struct err_msg *msg)
{
    if (map->bucket_counts[shard] == 0)
        return strays_drop(store, shard, msg);
    TRY(sweep_database(store, map, shard, false, pace, msg));
    return sweep_database(store, map, shard, true, pace, msg);
}
