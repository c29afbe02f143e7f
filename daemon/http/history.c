/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/history.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/control/snapshot.h"
#include "daemon/http/page.h"

static const struct {
    const char *name;
    enum metric_id metric;
    const char *label_value;
} series[HISTORY_SERIES_COUNT] = {
#define SERIES(name, metric, label) { #name, METRIC_##metric, label },
    HISTORY_SERIES(SERIES)
#undef SERIES
};

void history_add(struct history *history, const struct snapshot *snapshot)
{
    struct history_point *const point = &history->points[history->next];

    *point = (struct history_point){ .uptime_ms = snapshot->uptime_ms };
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct snapshot_figure *const figure = &snapshot->figures[i];

        for (size_t s = 0; s < HISTORY_SERIES_COUNT; s++)
            if (series[s].metric == figure->id &&
                (series[s].label_value[0] == '\0' ||
                 strcmp(series[s].label_value, figure->label_value) == 0))
                point->values[s] += figure->value;
    }
    history->next = (history->next + 1) % HISTORY_POINTS;
    history->count = MIN(history->count + 1, (uint32_t)HISTORY_POINTS);
}

static const struct history_point *point_at(const struct history *history, uint32_t index)
{
    const uint32_t oldest = history->next + HISTORY_POINTS - history->count;

    return &history->points[(oldest + index) % HISTORY_POINTS];
}

void history_write(const struct history *history, uint64_t now_ms, struct page *page)
{
    page_printf(page, "{\"now_ms\":%" PRIu64 ",\"uptime_ms\":[", now_ms);
    for (uint32_t i = 0; i < history->count; i++)
        page_printf(page, "%s%" PRIu64, i > 0 ? "," : "", point_at(history, i)->uptime_ms);
    page_printf(page, "],\"series\":{");
    for (size_t s = 0; s < HISTORY_SERIES_COUNT; s++) {
        page_printf(page, "%s\"%s\":[", s > 0 ? "," : "", series[s].name);
        for (uint32_t i = 0; i < history->count; i++)
            page_printf(page, "%s%.0f", i > 0 ? "," : "", point_at(history, i)->values[s]);
        page_printf(page, "]");
    }
    page_printf(page, "}}\n");
}
