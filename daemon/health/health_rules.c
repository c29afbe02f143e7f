/* SPDX-License-Identifier: Apache-2.0 */
/* The table of rules. A comparison with NAN is false, so a figure that a server does not have
 * breaks no rule. */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/text/bytes.h"
#include "daemon/health/health.h"

#define SECONDS_PER_DAY  86400.0
#define SECONDS_PER_YEAR (365.25 * SECONDS_PER_DAY)
/* A younger server has written too little to tell how long its drives last. */
#define WEAR_UPTIME_S 3600
/* Intervals after which the server's own checkpoint is late. */
#define LATE_INTERVALS 3
/* A move of buckets that did nothing for so long may need help. */
#define STUCK_S 300
/* Less debt than this is worked off in seconds. */
#define DEBT_LEAST_BYTES ((double)GIB)

#define SAY(why, ...)   ((void)snprintf((why)->text, sizeof((why)->text), __VA_ARGS__))
#define BYTES_OF(value) format_bytes_rounded(&(struct bytes_text){ { 0 } }, (value))

static double figure(const struct health_figures *figures, const char *name)
{
    return figures->read(figures->context, name, "");
}

static double sum(const struct health_figures *figures, const char *name)
{
    return figures->read(figures->context, name, NULL);
}

/* ---- Writes and space ---- */

static bool writes_blocked(const struct health_figures *figures, struct health_why *why)
{
    const double err = figure(figures, "write_error");

    SAY(why, "rows in memory cannot be written: %s",
        err > 0 ? err_text((enum embtier_err)err) : "");
    return err > 0;
}

static bool disk_full(const struct health_figures *figures, struct health_why *why)
{
    const double room = figure(figures, "store_room_bytes");

    const double refusals = fmax(figure(figures, "store_space_refusals"), 0);

    if (room > 0)
        SAY(why, "updates were refused in the last minute, %.0f since the start; room for rows: %s",
            refusals, BYTES_OF(room));
    else
        SAY(why, "there is no room for rows; %.0f updates were refused since the start", refusals);
    return room <= 0 || figure(figures, "store_refusing") > 0;
}

static bool replay_refused(const struct health_figures *figures, struct health_why *why)
{
    SAY(why, "updates of replay tables wait for a first checkpoint that succeeds");
    return figure(figures, "replay_refused") > 0;
}

static bool disk_nearly_full(const struct health_figures *figures, struct health_why *why)
{
    const double room = figure(figures, "store_room_bytes");
    const double all = room + figure(figures, "store_stored_bytes");

    SAY(why, "%s are free for rows, %.1f%% of what they may take", BYTES_OF(room),
        100 * room / all);
    return room > 0 && room < all / 10;
}

static bool reserve_short(const struct health_figures *figures, struct health_why *why)
{
    const double wanted = figure(figures, "store_reserve_bytes");
    const double held = figure(figures, "store_reserve_held_bytes");

    SAY(why, "%s of the reserve's %s are in place", BYTES_OF(held), BYTES_OF(wanted));
    return held < wanted;
}

static bool write_queue_full(const struct health_figures *figures, struct health_why *why)
{
    const double used = figure(figures, "write_queue_bytes");
    const double most = figure(figures, "write_queue_capacity_bytes");

    SAY(why, "the lanes' write queues hold %s of %s", BYTES_OF(used), BYTES_OF(most));
    return most > 0 && used >= 0.9 * most;
}

static bool compaction_behind(const struct health_figures *figures, struct health_why *why)
{
    const double debt = figure(figures, "store_pending_compaction_bytes");
    const double stored = figure(figures, "store_stored_bytes");

    SAY(why, "%s wait for compaction, and %s are stored", BYTES_OF(debt), BYTES_OF(stored));
    return debt >= DEBT_LEAST_BYTES && debt > stored;
}

/* ---- Rows ---- */

static bool rows_unreadable(const struct health_figures *figures, struct health_why *why)
{
    const double rows = figure(figures, "failed_rows");

    SAY(why, "%.0f row%s could not be read since the start", rows, rows == 1 ? "" : "s");
    return rows > 0;
}

static bool cache_pinned(const struct health_figures *figures, struct health_why *why)
{
    const double pinned = figure(figures, "cache_pinned_rows");
    const double rows = sum(figures, "cache_rows");
    const double used = sum(figures, "cache_used_bytes");
    const double most = sum(figures, "cache_capacity_bytes");

    SAY(why, "%.0f of %.0f cached rows may not leave, and the cache is full", pinned, rows);
    return pinned > 0 && pinned >= rows / 2 && used >= 0.9 * most;
}

/* ---- Checkpoints ---- */

static bool checkpoint_failed(const struct health_figures *figures, struct health_why *why)
{
    const double failures = figure(figures, "checkpoint_failures_in_row");

    SAY(why, "the last %.0f checkpoint%s failed", failures, failures == 1 ? "" : "s");
    return failures > 0;
}

static bool checkpoint_late(const struct health_figures *figures, struct health_why *why)
{
    const double interval = figure(figures, "checkpoint_interval_seconds");
    const double unsaved = figure(figures, "checkpoint_unsaved_bytes");
    const double newest = figure(figures, "checkpoint_newest_seconds");
    const double age = isnan(newest) ? figures->uptime_s : newest;

    SAY(why, "%s of updates are in no checkpoint; the newest was due %.0f s ago", BYTES_OF(unsaved),
        age - interval);
    return interval > 0 && unsaved > 0 && age > LATE_INTERVALS * interval;
}

/* ---- Moves of buckets ---- */

static bool reshard_failed(const struct health_figures *figures, struct health_why *why)
{
    SAY(why, "rows moved to other shards until that failed; %.0f of %.0f buckets have moved",
        figure(figures, "reshard_moved_buckets"), figure(figures, "reshard_buckets"));
    return figure(figures, "reshard_failed") > 0;
}

static bool reshard_stuck(const struct health_figures *figures, struct health_why *why)
{
    const double idle_s = figure(figures, "reshard_idle_seconds");

    SAY(why, "rows are to move to other shards, and none has for %.0f s", idle_s);
    return idle_s >= STUCK_S;
}

/* ---- Configuration, drives, log ---- */

static bool reload_failed(const struct health_figures *figures, struct health_why *why)
{
    SAY(why, "the last reload failed, so older files are in force");
    return figure(figures, "access_reload_failed") > 0;
}

static bool ssd_wears_out(const struct health_figures *figures, struct health_why *why)
{
    const double rated = figure(figures, "store_rated_written_bytes");
    const double rated_years = figure(figures, "store_rated_years");
    const double per_second = sum(figures, "store_written_bytes") / fmax(figures->uptime_s, 1);
    const double years = rated / per_second / SECONDS_PER_YEAR;

    SAY(why, "%s a day: the drives' rated writes last %.1f years, not %g",
        BYTES_OF(per_second * SECONDS_PER_DAY), years, rated_years);
    return rated > 0 && figures->uptime_s >= WEAR_UPTIME_S && years < rated_years;
}

static bool write_back_held(const struct health_figures *figures, struct health_why *why)
{
    const double devices = sum(figures, "device_write_back_held");

    SAY(why, "%.0f drive%s took a day's writes of endurance.max_dwpd, so updates may wait", devices,
        devices == 1 ? "" : "s");
    return devices > 0;
}

static bool drive_over_limit(const struct health_figures *figures, struct health_why *why)
{
    const double devices = sum(figures, "device_max_dwpd_exceeded");

    SAY(why, "%.0f drive%s more writes a day than endurance.max_dwpd", devices,
        devices == 1 ? " takes" : "s take");
    return devices > 0 && !(sum(figures, "device_write_back_held") > 0);
}

static bool log_lost(const struct health_figures *figures, struct health_why *why)
{
    const double lines = figure(figures, "log_dropped_lines");

    SAY(why, "standard error did not accept %.0f line%s of the log", lines, lines == 1 ? "" : "s");
    return lines > 0;
}

/* X(name, health, condition, advice): the worst first. docs/operations.md has the same rows. */
#define RULES(X, BLOCKS)                                                                           \
    BLOCKS(writes_blocked, BAD, "write_error is not 0",                                            \
           "the log names the file: free space there, or replace the drive")                       \
    BLOCKS(disk_full, BAD, "store_room_bytes is 0, or store_refusing is 1",                        \
           "free space in the data directories, or drop tables or checkpoints")                    \
    BLOCKS(replay_refused, BAD, "replay_refused is 1",                                             \
           "the log says why the checkpoint failed; it is tried again")                            \
    X(rows_unreadable, BAD, "failed_rows is above 0",                                              \
      "the log names the file: check the drive, and restore a checkpoint")                         \
    X(disk_nearly_full, WARNING,                                                                   \
      "store_room_bytes is below a tenth of itself and store_stored_bytes",                        \
      "add a drive, or drop tables or checkpoints")                                                \
    X(reserve_short, WARNING, "store_reserve_held_bytes is below store_reserve_bytes",             \
      "free space, unless a drop, checkpoint or stop uses the reserve now")                        \
    X(write_queue_full, WARNING,                                                                   \
      "write_queue_bytes is at least 0.9 of write_queue_capacity_bytes",                           \
      "SSD is too slow for the updates: raise the tiers' bytes, add a drive")                      \
    X(compaction_behind, WARNING,                                                                  \
      "store_pending_compaction_bytes is at least 1 GiB, and above store_stored_bytes",            \
      "raise rocksdb.compaction_parallel, or update less")                                         \
    X(cache_pinned, WARNING,                                                                       \
      "cache_pinned_rows is at least half of cache_rows, and the tiers are 0.9 full",              \
      "raise the first tier's bytes, or prefetch fewer batches ahead")                             \
    X(checkpoint_failed, WARNING, "checkpoint_failures_in_row is above 0",                         \
      "the log has the reason; a crash goes back to the newest checkpoint")                        \
    X(checkpoint_late, WARNING,                                                                    \
      "checkpoint_unsaved_bytes is above 0, and the newest is older than three intervals",         \
      "see `embtier jobs`, and try `embtier checkpoint create`")                                   \
    X(reshard_failed, WARNING, "reshard_failed is 1",                                              \
      "the log says why; the next start tries again, or `embtier reshard`")                        \
    X(reshard_stuck, WARNING, "reshard_idle_seconds is at least 300",                              \
      "see `embtier compaction status`; `embtier jobs cancel` ends the move")                      \
    X(reload_failed, WARNING, "access_reload_failed is 1",                                         \
      "mend the file that the log names, then `embtier keys reload`")                              \
    X(ssd_wears_out, WARNING,                                                                      \
      "store_written_bytes, since an hour or more, exceed the rating (endurance.*)",               \
      "see `embtier endurance`; a larger cache writes less")                                       \
    X(write_back_held, WARNING, "device_write_back_held is 1",                                     \
      "see `embtier endurance`; update less, or raise endurance.max_dwpd")                         \
    X(drive_over_limit, WARNING, "device_max_dwpd_exceeded is 1, and device_write_back_held is 0", \
      "see `embtier endurance`; soon write-back is held, so update less")                          \
    X(log_lost, WARNING, "log_dropped_lines is above 0",                                           \
      "have something read embtierd's standard error")

const struct health_rule health_rules[] = {
#define X(name, health, condition, advice)                                                         \
    { #name, HEALTH_##health, condition, advice, false, name },
#define BLOCKS(name, health, condition, advice)                                                    \
    { #name, HEALTH_##health, condition, advice, true, name },
    RULES(X, BLOCKS)
#undef BLOCKS
#undef X
};
const size_t health_rule_count = ARRAY_LEN(health_rules);
