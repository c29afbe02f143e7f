/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h: all figures of the server, collected by the control thread for another thread.
 *
 * The other thread owns the snapshot, sends it, and leaves it alone until it comes back. The
 * control thread fills it between two rounds of its loop, which takes well under a millisecond. So
 * a snapshot that comes back also shows that the control thread serves. */
#ifndef EMBTIER_DAEMON_CONTROL_SNAPSHOT_H
#define EMBTIER_DAEMON_CONTROL_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/work_progress.h"
#include "daemon/control/metrics.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/sessions/latencies.h"
#include "daemon/health/health.h"
#include "daemon/jobs/plan/plan_record.h"
#include "store/database/compaction_types.h"

#define SNAPSHOT_LABEL_BYTES 64
#define SNAPSHOT_REASONS_MAX 4
/* A snapshot has some, if there are more. */
#define SNAPSHOT_DATABASES_MAX 64
#define SNAPSHOT_SESSIONS_MAX  32

struct control;

struct snapshot_figure {
    enum metric_id id;
    char label_value[SNAPSHOT_LABEL_BYTES];
    double value;
};

struct snapshot_reason {
    char text[256];
};

/* A database of a shard: "shard-0003/replay". */
struct snapshot_database {
    char name[64];
    struct compaction_view view;
};

/* A client. Names of clients and users, and addresses, are left out: readers may be anybody. */
struct snapshot_session {
    uint64_t number, age_ms, arena_bytes, requests, rows;
    uint32_t connections, in_flight, tickets;
    const char *transport; /* static */
};

struct snapshot {
    struct message message;
    /* Gives it back. Called by the control thread, or when that has ended; then it is not filled.
     */
    void (*done)(struct snapshot *snapshot, bool is_filled);
    /* Why the server is not ready: it stops, or breaks rules that block updates (health.h). */
    struct snapshot_reason reasons[SNAPSHOT_REASONS_MAX];
    uint32_t reason_count;
    uint64_t uptime_ms;
    struct plan_state plan;
    struct latencies latencies;
    uint32_t database_count; /* that are listed */
    uint32_t session_count;
    struct work_progress compaction; /* of all databases, also those that are not listed */
    struct snapshot_database databases[SNAPSHOT_DATABASES_MAX];
    struct snapshot_session sessions[SNAPSHOT_SESSIONS_MAX]; /* those of most rows */
    size_t count;
    struct snapshot_figure figures[METRICS_MOST];
};

/* Tells how far its compactions are. */
struct work_progress snapshot_database_progress(const struct compaction_view *view);

/* Any thread, as control_send(). */
void snapshot_send(struct control *control, struct snapshot *snapshot);

/* Finds the reasons in the snapshot's figures. */
void snapshot_find_reasons(struct snapshot *snapshot, bool stops);

/* Checks the rules against the snapshot's figures; as health_check(). */
enum health snapshot_check_health(const struct snapshot *snapshot, health_found_fn *found,
                                  void *context);

/* Control thread. Calls @sink for every figure of the server that is not of one table. */
void snapshot_collect(const struct control *control, metric_sink *sink, void *context);

#endif
