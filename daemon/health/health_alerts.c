/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health/health_alerts.h"

#include "base/macros.h"

const struct health_alert health_alerts[] = {
    { "writes_blocked", "embtier_write_error != 0", "1m", NULL, NULL, NULL },
    { "disk_full",
      "embtier_store_room_bytes <= 0 or increase(embtier_store_space_refusals_total[5m]) > 0", "1m",
      NULL, NULL, NULL },
    { "replay_refused", "embtier_replay_refused > 0", "1m", NULL, NULL, NULL },
    { "rows_unreadable", "increase(embtier_failed_rows_total[15m]) > 0", "0m", NULL, NULL, NULL },
    { "disk_nearly_full",
      "embtier_store_room_bytes > 0 and embtier_store_room_bytes < "
      "0.1 * (embtier_store_room_bytes + embtier_store_stored_bytes)",
      "5m", NULL, NULL, NULL },
    { "reserve_short", "embtier_store_reserve_held_bytes < embtier_store_reserve_bytes", "15m",
      NULL, NULL, NULL },
    { "write_queue_full",
      "embtier_write_queue_capacity_bytes > 0 and "
      "embtier_write_queue_bytes >= 0.9 * embtier_write_queue_capacity_bytes",
      "5m", NULL, NULL, NULL },
    { "compaction_behind",
      "embtier_store_pending_compaction_bytes >= 1073741824 and "
      "embtier_store_pending_compaction_bytes > embtier_store_stored_bytes",
      "15m", NULL, NULL, NULL },
    { "cache_pinned",
      "embtier_cache_pinned_rows > 0 and "
      "embtier_cache_pinned_rows >= 0.5 * sum without (tier) (embtier_cache_rows) and "
      "sum without (tier) (embtier_cache_used_bytes) >= "
      "0.9 * sum without (tier) (embtier_cache_capacity_bytes)",
      "5m", NULL, NULL, NULL },
    { "checkpoint_failed", "embtier_checkpoint_failures_in_row > 0", "1m", NULL, NULL, NULL },
    { "checkpoint_late",
      "embtier_checkpoint_interval_seconds > 0 and embtier_checkpoint_unsaved_bytes > 0 and "
      "(embtier_checkpoint_newest_seconds or embtier_uptime_seconds) > "
      "3 * embtier_checkpoint_interval_seconds",
      "5m", NULL, NULL, NULL },
    { "reshard_failed", "embtier_reshard_failed > 0", "1m", NULL, NULL, NULL },
    { "reshard_stuck", "embtier_reshard_idle_seconds >= 300", "1m", NULL, NULL, NULL },
    { "reload_failed", "embtier_access_reload_failed > 0", "1m", NULL, NULL, NULL },
    { "ssd_wears_out",
      "embtier_store_rated_written_bytes > 0 and embtier_uptime_seconds >= 3600 and "
      "embtier_store_rated_written_bytes / (sum without (cause) "
      "(rate(embtier_store_written_bytes_total[1d])) * 31557600) < embtier_store_rated_years",
      "1h", NULL, NULL, NULL },
    { "write_back_held", "embtier_device_write_back_held > 0", "1m", NULL, NULL, NULL },
    { "drive_over_limit",
      "embtier_device_max_dwpd_exceeded > 0 and embtier_device_write_back_held == 0", "15m", NULL,
      NULL, NULL },
    { "log_lost", "increase(embtier_log_dropped_lines_total[15m]) > 0", "0m", NULL, NULL, NULL },
    { NULL, "embtier_ready == 0", "5m", "not_ready", "ready is 0", "/readyz has the reasons" },
};
const size_t health_alert_count = ARRAY_LEN(health_alerts);
