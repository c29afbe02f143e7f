/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/rates.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "tools/cli/status/figures.h"

double rate(double before, double now, double seconds)
{
    return seconds > 0 && now >= before ? (now - before) / seconds : (double)NAN;
}

struct rates rates_between(const struct sample *before, const struct sample *now)
{
    struct rates rates = { now, before, (double)NAN, (double)NAN };
    uint64_t uptime_ms, uptime_ms_before;

    if (!before)
        return rates;
    uptime_ms = embtier_status_uptime_ms(now->reading.status);
    uptime_ms_before = embtier_status_uptime_ms(before->reading.status);
    if (uptime_ms < uptime_ms_before) {
        rates.before = NULL;
        return rates;
    }
    rates.metric_seconds = (double)(uptime_ms - uptime_ms_before) / 1e3;
    rates.table_seconds = (double)clock_since(now->tables_ns, before->tables_ns) / 1e9;
    return rates;
}

double rates_metric(const struct rates *rates, const char *name, const char *label_value)
{
    return rates->before ? rate(figures_value(rates->before->reading.status, name, label_value),
                                figures_value(rates->now->reading.status, name, label_value),
                                rates->metric_seconds)
                         : (double)NAN;
}

/* Lists come in the same order each time, so with few changes the search ends near @index. */
const struct embtier_table_info *
rates_table_before(const struct rates *rates, const struct embtier_table_info *table, size_t index)
{
    const struct embtier_table_list *const list =
        rates->before ? rates->before->reading.tables : NULL;
    const size_t count = list ? embtier_table_list_count(list) : 0;

    for (size_t i = 0; i < count; i++) {
        const struct embtier_table_info *const other =
            embtier_table_list_at(list, (index + i) % count);

        if (other->table_id == table->table_id)
            return other;
    }
    return NULL;
}

const struct embtier_session *rates_session_before(const struct rates *rates,
                                                   const struct embtier_session *session)
{
    const struct embtier_session_list *const list = rates->before ? rates->before->sessions : NULL;
    const size_t count = list ? embtier_session_list_count(list) : 0;

    for (size_t i = 0; i < count; i++) {
        const struct embtier_session *const other = embtier_session_list_at(list, i);

        if (other->number == session->number)
            return other;
    }
    return NULL;
}
