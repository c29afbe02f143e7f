/* SPDX-License-Identifier: Apache-2.0 */
/* store_space.c: room on disk for rows that will be written, and the reserve, which is left for
 * work that frees space. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "store/store_impl.h"

/* Bytes of a stored row in addition to its own: key, head, and its part of filters and indexes. */
#define STORED_ROW_MORE_BYTES 48
/* Bytes outside cache and queues that may change before the free space is read again. */
#define CHANGE_BYTES (256 * MIB)

enum embtier_err store_open_space(struct store *store, const struct config *config,
                                  struct err_msg *msg)
{
    const char *directories[CONFIG_DIRECTORIES_MAX];
    struct space_opts opts = {
        .directories = directories,
        .database_count = bucket_map_present(store->map) * STORE_DATABASES_PER_SHARD,
        .reserve_bytes = config->data.reserve_bytes,
        .memtable_bytes = config->rocksdb.memtable_bytes,
        .plenty_bytes = CHANGE_BYTES + config->lanes.write_queue_bytes,
    };

    for (uint32_t d = 0; d < store_identity_directory_count(store->identity); d++) {
        if (!store_identity_has(store->identity, d))
            continue;
        directories[opts.directory_count++] = store_identity_directory(store->identity, d);
        store->is_watched[d] = true;
    }
    for (uint32_t i = 0; i < config->cache.tier_count; i++)
        opts.plenty_bytes += config->cache.tiers[i].bytes;
    return space_new(&opts, &store->space, msg);
}

/* Returns bytes on disk; UINT64_MAX: overflow. A logged row is in the log and in the write
 * buffer. */
static uint64_t stored_bytes_of(uint64_t row_count, uint64_t row_bytes, bool logged)
{
    const uint64_t each = (row_bytes + STORED_ROW_MORE_BYTES) * (logged ? 2 : 1);
    uint64_t bytes;

    return __builtin_mul_overflow(row_count, each, &bytes) ? UINT64_MAX : bytes;
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void store_demand_add(struct store_demand *demand, uint64_t row_count, uint64_t row_bytes,
                      bool logged)
{
    const uint64_t bytes = stored_bytes_of(row_count, row_bytes, false);

    demand->row_count = sum_of(demand->row_count, row_count);
    demand->bytes = sum_of(demand->bytes, bytes);
    if (logged)
        demand->log_bytes = sum_of(demand->log_bytes, bytes);
}

enum embtier_err store_check_demand(const struct store *store, const struct store_demand *demand,
                                    const char *what, struct err_msg *msg)
{
    /* Logs never hold more than the write buffers. */
    const uint64_t log_bytes = MIN(demand->log_bytes, atomic_load(&store->memtable_bytes));

    return space_check(store->space, sum_of(demand->bytes, log_bytes), what, msg);
}

enum embtier_err store_check_room(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                                  bool logged, struct err_msg *msg)
{
    struct store_demand demand = { 0 };
    char what[64];

    store_demand_add(&demand, row_count, row_bytes, logged);
    snprintf(what, sizeof(what), "no space for %" PRIu64 " row%s", row_count, PLURAL(row_count));
    return store_check_demand(store, &demand, what, msg);
}

enum embtier_err store_admit_copies(const struct store *store, uint64_t row_count,
                                    uint64_t row_bytes, bool logged,
                                    struct store_refusal *ret_refusal)
{
    ret_refusal->needed_bytes = stored_bytes_of(row_count, row_bytes, logged);
    return space_admit(store->space, ret_refusal->needed_bytes, &ret_refusal->room_bytes);
}

enum embtier_err store_admit(const struct store *store, uint64_t row_count, uint64_t row_bytes,
                             bool logged, struct store_refusal *ret_refusal)
{
    const enum embtier_err err =
        store_admit_copies(store, row_count, row_bytes, logged, ret_refusal);

    if (err != EMBTIER_OK)
        space_note_refusal(store->space, ret_refusal->needed_bytes);
    return err;
}

void store_report_unwritten(struct store *store, uint64_t row_count, uint64_t row_bytes)
{
    space_report(store->space, row_bytes + row_count * STORED_ROW_MORE_BYTES);
}

static bool has_failed_database(const struct store *store)
{
    for (uint32_t i = 0; i < store_database_count(store); i++)
        if (store_database_at(store, i) && database_is_failed(store_database_at(store, i)))
            return true;
    return false;
}

static bool compacts(const struct store *store)
{
    struct database_debt debt;

    for (uint32_t i = 0; i < store_database_count(store); i++) {
        if (!store_database_at(store, i))
            continue;
        database_poll_debt(store_database_at(store, i), &debt);
        if (debt.running > 0)
            return true;
    }
    return false;
}

static void wait_while(const struct store *store, bool (*does)(const struct store *store))
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    while (does(store) && clock_now_ns(&clock_monotonic) - began_ns < RESUME_PATIENCE_NS)
        nanosleep(&(struct timespec){ .tv_nsec = RESUME_PAUSE_NS }, NULL);
}

/* Databases take rows while compaction is paused, as rows in memory have to go somewhere. */
static void pause_compaction(struct store *store, bool is_paused)
{
    compaction_scheduler_pause(store->scheduler, is_paused);
    for (uint32_t i = 0; i < store_database_count(store); i++)
        if (store_database_at(store, i))
            database_set_paused(store_database_at(store, i), is_paused);
}

void store_pause_new(struct store *store, struct database *database)
{
    pthread_mutex_lock(&store->reserve_lock);
    database_set_paused(database, compaction_scheduler_is_paused(store->scheduler));
    pthread_mutex_unlock(&store->reserve_lock);
}

void store_use_reserve(struct store *store)
{
    bool is_short;

    pthread_mutex_lock(&store->reserve_lock);
    is_short = space_begin_use(store->space);
    if (is_short)
        pause_compaction(store, true);
    pthread_mutex_unlock(&store->reserve_lock);
    /* Compactions, also running ones, would take the whole reserve, and then fail. */
    if (is_short)
        wait_while(store, compacts);
    if (space_use(store->space)) {
        pthread_mutex_lock(&store->reserve_lock);
        pause_compaction(store, true); /* it may have become short since */
        pthread_mutex_unlock(&store->reserve_lock);
        wait_while(store, has_failed_database);
    }
}

void store_end_reserve(struct store *store)
{
    pthread_mutex_lock(&store->reserve_lock);
    if (space_end_use(store->space))
        pause_compaction(store, false);
    pthread_mutex_unlock(&store->reserve_lock);
}
