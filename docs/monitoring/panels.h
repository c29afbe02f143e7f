/* SPDX-License-Identifier: Apache-2.0 */
/* panels.h: the panels of the dashboard, in rows of two. */
#ifndef EMBTIER_DOCS_MONITORING_PANELS_H
#define EMBTIER_DOCS_MONITORING_PANELS_H

struct panel {
    const char *title;
    const char *unit; /* Grafana's name of it */
    const char *query;
    const char *legend;
};

#define WHERE "{instance=~\"$instance\"}"
#define RATE  WHERE "[$__rate_interval]"

static const struct panel panels[] = {
    { "Ready", "short", "embtier_ready" WHERE, "{{instance}}" },
    { "Write error", "short", "embtier_write_error" WHERE, "{{instance}}" },
    { "Rows asked for", "rowsps", "sum by (op) (rate(embtier_request_rows_total" RATE "))",
      "{{op}}" },
    { "Rows of GET by source", "rowsps",
      "sum by (source) (rate(embtier_lookup_rows_total" RATE "))", "{{source}}" },
    { "Requests", "reqps", "sum by (op, transport) (rate(embtier_request_seconds_count" RATE "))",
      "{{op}} {{transport}}" },
    { "Time of requests, 99th percentile", "s",
      "histogram_quantile(0.99, sum by (op, le) (rate(embtier_request_seconds_bucket" RATE ")))",
      "{{op}}" },
    { "Time of requests, median", "s",
      "histogram_quantile(0.5, sum by (op, le) (rate(embtier_request_seconds_bucket" RATE ")))",
      "{{op}}" },
    { "Tables of most lookups", "rowsps",
      "sum by (table) (rate(embtier_table_lookup_rows_total" RATE "))", "{{table}}" },
    { "Hit rate of the cache", "percentunit",
      "sum by (tier) (rate(embtier_cache_hit_rows_total" RATE ")) / "
      "scalar(sum(rate(embtier_cache_hit_rows_total" RATE
      ")) + sum(rate(embtier_cache_miss_rows_total" RATE ")))",
      "{{tier}}" },
    { "Bytes of tiers", "bytes", "sum by (tier) (embtier_cache_used_bytes" WHERE ")", "{{tier}}" },
    { "Bytes written to SSD", "Bps",
      "sum by (cause) (rate(embtier_store_written_bytes_total" RATE "))", "{{cause}}" },
    { "Bytes read from SSD", "Bps", "sum(rate(embtier_store_read_bytes_total" RATE "))", "read" },
    { "Room on SSD", "bytes", "embtier_store_room_bytes" WHERE, "{{instance}}" },
    { "Waiting for compaction", "bytes", "embtier_store_pending_compaction_bytes" WHERE,
      "{{instance}}" },
    { "Age of the newest checkpoint", "s", "embtier_checkpoint_newest_seconds" WHERE,
      "{{instance}}" },
    { "Write queue", "bytes", "embtier_write_queue_bytes" WHERE, "{{instance}}" },
    { "Clients", "short", "sum by (transport) (embtier_transport_sessions" WHERE ")",
      "{{transport}}" },
    { "Resident memory", "bytes", "embtier_process_resident_bytes" WHERE, "{{instance}}" },
};

#endif
