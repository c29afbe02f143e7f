/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stop.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/control/control.h"
#include "daemon/control/process/notify.h"
#include "daemon/control/process/signals.h"
#include "daemon/control/process/stop_patience.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/tables/tables.h"
#include "store/store.h"

#define FLUSH_PAUSE_NS (100L * 1000 * 1000) /* after a flush that failed */

struct unwritten {
    uint64_t rows;
    uint32_t err;
};

static struct unwritten count_unwritten(const struct server_parts *parts)
{
    struct unwritten sum = { 0 };

    for (uint32_t i = 0; i < parts->lane_count; i++) {
        struct lane_stats stats;

        lane_stats(parts->lanes[i], &stats);
        for (uint32_t h = 0; h < HOME_KINDS; h++)
            sum.rows += stats.homes[h].dirty_rows;
        sum.rows += stats.write_queue.rows + stats.reading_rows;
        if (stats.write_queue.err)
            sum.err = stats.write_queue.err;
    }
    return sum;
}

#define GIVE_UP_COSTS                                                                              \
    "another signal ends the server like a crash: `replay` tables then lose the updates since "    \
    "the newest checkpoint"

static void log_progress(const struct unwritten *left, uint64_t total, uint64_t spent_ms,
                         enum stop_state state)
{
    const uint64_t done = total > left->rows ? total - left->rows : 0;
    char line[128];

    snprintf(line, sizeof(line), "writing rows back: %" PRIu64 " of %" PRIu64, done, total);
    notify_status(line);
    if (state == STOP_FAILS)
        log_warn("rows cannot be written back, and the write is retried; " GIVE_UP_COSTS,
                 "done=%" PRIu64 " left=%" PRIu64 " err=%s", done, left->rows,
                 err_name((enum embtier_err)left->err));
    else if (state == STOP_STUCK)
        log_warn("no row has been written back for a while, still waiting; " GIVE_UP_COSTS,
                 "done=%" PRIu64 " left=%" PRIu64, done, left->rows);
    else
        log_info("writing rows back", "done=%" PRIu64 " left=%" PRIu64 " left_ms=%" PRIu64, done,
                 left->rows, done > 0 ? spent_ms * left->rows / done : 0);
}

/* Takes all signals that wait. True if there was one. */
static bool take_stops(int signal_fd)
{
    bool any = false;

    while (signals_take_stop(signal_fd, SIGNAL_STOPS_ALREADY, NULL))
        any = true;
    return any;
}

/* BUSY is no failing disk: RocksDB wants to compact first. */
static bool refuses(uint32_t err)
{
    return err != EMBTIER_OK && err != EMBTIER_BUSY;
}

/* Hands every dirty row to the writers and waits for them. The error says that rows are lost. */
static enum embtier_err write_back(const struct server_parts *parts, int signal_fd,
                                   struct err_msg *msg)
{
    const uint64_t total = count_unwritten(parts).rows;
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct rows_cursor cursors[CONFIG_LANES_MAX] = { 0 };
    struct stop_patience patience;

    stop_patience_begin(&patience, total, began_ns);
    if (total > 0)
        log_info("writing rows back", "rows=%" PRIu64, total);
    for (;;) {
        bool done = true;
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        for (uint32_t i = 0; i < parts->lane_count; i++)
            done &= lane_write_back_step(parts->lanes[i], &cursors[i]);
        if (done)
            return EMBTIER_OK;
        if (take_stops(signal_fd)) {
            const struct unwritten left = count_unwritten(parts);

            if (stop_patience_ends(&patience, left.rows, refuses(left.err), now_ns))
                return err_set(msg, left.err ? (enum embtier_err)left.err : EMBTIER_IO,
                               "stopped by another signal with %" PRIu64
                               " rows not written: `replay` tables go back to the newest "
                               "checkpoint",
                               left.rows);
        }
        if (stop_patience_is_due(&patience, now_ns)) {
            const struct unwritten left = count_unwritten(parts);

            log_progress(&left, total, (now_ns - began_ns) / 1000000,
                         stop_patience_tell(&patience, left.rows, refuses(left.err), now_ns));
        }
        nanosleep(&(struct timespec){ .tv_nsec = 200000L }, NULL);
    }
}

static bool may_pass(enum embtier_err err)
{
    return err == EMBTIER_NO_SPACE || err == EMBTIER_IO || err == EMBTIER_BUSY;
}

/* Flushes the write buffers of RocksDB, which have the rows that the writers handed to it. An error
 * says that rows are lost. An error that does not pass is left to store_close(). */
static enum embtier_err flush_shard(struct store *store, uint32_t shard, int signal_fd,
                                    struct err_msg *msg)
{
    struct stop_patience patience;

    stop_patience_begin(&patience, 1, clock_now_ns(&clock_monotonic));
    for (;;) {
        struct err_msg why = { { 0 } };
        const enum embtier_err err = store_flush(store, shard, &why);
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (!may_pass(err))
            return EMBTIER_OK;
        if (take_stops(signal_fd) && stop_patience_ends(&patience, 1, refuses(err), now_ns))
            return err_set(msg, err,
                           "stopped by another signal with write buffers not flushed: `replay` "
                           "tables go back to the newest checkpoint (%s)",
                           why.text);
        if (stop_patience_is_due(&patience, now_ns)) {
            notify_status("flushing write buffers");
            if (stop_patience_tell(&patience, 1, refuses(err), now_ns) != STOP_GOES_ON)
                log_warn(
                    "write buffers cannot be flushed, and the flush is retried; " GIVE_UP_COSTS,
                    "shard=%u err=%s why=%s", shard, err_name(err), LOG_QUOTED(why.text));
        }
        nanosleep(&(struct timespec){ .tv_nsec = FLUSH_PAUSE_NS }, NULL);
    }
}

/* Flushes all shards while the scheduler still recovers from errors. Nothing does once the store is
 * being closed. */
static enum embtier_err flush_shards(struct store *store, int signal_fd, struct err_msg *msg)
{
    for (uint32_t s = 0; store && s < store_shard_count(store); s++)
        TRY(flush_shard(store, s, signal_fd, msg));
    return EMBTIER_OK;
}

enum embtier_err stop_write_back(const struct server_parts *parts, int signal_fd,
                                 struct err_msg *msg)
{
    TRY(write_back(parts, signal_fd, msg));
    TRY(flush_shards(parts->store, signal_fd, msg));
    if (parts->tables)
        tables_fold(parts->tables);
    return EMBTIER_OK;
}
