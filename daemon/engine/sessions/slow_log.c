/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/slow_log.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/engine/sessions/session.h"

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS 1e6

/* True if this second has a line left. */
static bool has_line(struct slow_log *log, uint64_t now_ns)
{
    const uint64_t second = now_ns / NS_PER_S;

    if (second != log->second) {
        log->second = second;
        log->lines = 0;
    }
    if (log->lines == SLOW_LINES)
        return false;
    log->lines++;
    return true;
}

bool slow_log_add(struct slow_log *log, const struct session *session,
                  const struct request_time *time, const struct slow_request *request)
{
    const uint64_t ns = clock_since(request->now_ns, time->taken_ns);
    const uint64_t before_ns =
        time->started_ns ? clock_since(time->started_ns, time->taken_ns) : ns;
    const uint64_t ssd_ns = atomic_load_explicit(&time->ssd_ns, memory_order_relaxed);

    if (!has_line(log, request->now_ns)) {
        log->left_out++;
        return false;
    }
    log_warn("slow request",
             "op=%s transport=%s session=%" PRIu64 " pid=%d rows=%" PRIu32 " memory_rows=%" PRIu64
             " ms=%.3f before_rows_ms=%.3f rows_ms=%.3f ssd_ms=%.3f error=%s left_out=%" PRIu64,
             latency_op_word(time->op), transport_word(session->transport), session->id,
             (int)session->pid, time->rows, request->hit_rows, (double)ns / NS_PER_MS,
             (double)before_ns / NS_PER_MS, (double)(ns - before_ns) / NS_PER_MS,
             (double)ssd_ns / NS_PER_MS, err_name(request->err), log->left_out);
    log->left_out = 0;
    return true;
}
