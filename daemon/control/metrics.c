/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/metrics.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/control/control.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/sessions/latencies.h"
#include "daemon/engine/tables/table_arrays.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/knobs.h"
#include "daemon/jobs/profile/profiles.h"
#include "daemon/jobs/reload/reload.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "store/store.h"
#include "tiers/array/array_space.h"

#define COUNTER   METRIC_KIND_COUNTER
#define GAUGE     METRIC_KIND_GAUGE
#define HISTOGRAM METRIC_KIND_HISTOGRAM
const struct metric_description metric_descriptions[METRIC_COUNT] = {
#define METRIC(name, kind, help, label, source) { #name, help, label, kind },
    METRIC_TABLE(METRIC)
#undef METRIC
};
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM

/* ---- Sources ---- */

enum from {
    FROM_LANES,
    FROM_TIERS,
    FROM_ARRAYS,
    FROM_SPACE,
    FROM_CHECKPOINTS,
    FROM_GROUPS,
    FROM_PROFILE,
    FROM_STORE,
    FROM_TOTALS,
    FROM_ACCESS,
    FROM_RELOADS,
    FROM_CODE, /* this table has no figure of the metric */
};

struct source {
    enum from from;
    bool is_most;    /* of all lanes the largest, else the sum */
    uint32_t offset; /* of the field, in its struct */
    uint32_t bytes;
    double per; /* the figure is divided by this */
};

#define FIELD(which, type, field, number)                                                          \
    {                                                                                              \
        .from = which, .offset = offsetof(type, field), .bytes = sizeof(((type *)NULL)->field),    \
        .per = number                                                                              \
    }
#define LANES(field)             FIELD(FROM_LANES, struct lane_stats, field, 1)
#define LANES_PER(field, number) FIELD(FROM_LANES, struct lane_stats, field, number)
#define LANES_MOST(field)                                                                          \
    {                                                                                              \
        .from = FROM_LANES, .is_most = true, .offset = offsetof(struct lane_stats, field),         \
        .bytes = sizeof(((struct lane_stats *)NULL)->field), .per = 1                              \
    }
#define TIERS(field)  FIELD(FROM_TIERS, struct row_cache_tier_stats, field, 1)
#define ARRAYS(field) FIELD(FROM_ARRAYS, struct home_stats, field, 1)
#define SPACE(field)  FIELD(FROM_SPACE, struct array_space_stats, field, 1)
#define CHECKPOINTS_PER(field, number)                                                             \
    FIELD(FROM_CHECKPOINTS, struct checkpoints_stats, field, number)
#define GROUPS(field)            FIELD(FROM_GROUPS, struct group_stats, field, 1)
#define PROFILE(field)           FIELD(FROM_PROFILE, struct profile_state, field, 1)
#define STORE(field)             FIELD(FROM_STORE, struct store_stats, field, 1)
#define STORE_PER(field, number) FIELD(FROM_STORE, struct store_stats, field, number)
#define TOTALS(field)            FIELD(FROM_TOTALS, struct tables_totals, field, 1)
#define ACCESS(field)            FIELD(FROM_ACCESS, struct access_stats, field, 1)
#define RELOADS(field)           FIELD(FROM_RELOADS, struct reload_stats, field, 1)
#define LABELS                                                                                     \
    {                                                                                              \
        .from = FROM_CODE                                                                          \
    }
#define OTHER                                                                                      \
    {                                                                                              \
        .from = FROM_CODE                                                                          \
    }
#define TABLES    OTHER
#define SNAPSHOT  OTHER
#define LATENCIES OTHER

static const struct figure {
    enum metric_id id;
    const char *label_value; /* ignored if there is one figure for each tier */
    struct source source;
} figures[] = {
#define METRIC(name, kind, help, label, source) { METRIC_##name, "", source },
#define LABEL(name, value, source)              { METRIC_##name, value, source },
    METRIC_TABLE(METRIC) METRIC_LABEL_TABLE(LABEL)
#undef LABEL
#undef METRIC
};

static uint64_t read_field(const void *from, const struct source *source)
{
    const uint8_t *const place = (const uint8_t *)from + source->offset;
    uint64_t long_value = 0;
    uint32_t value = 0;

    if (source->bytes == sizeof(long_value)) {
        memcpy(&long_value, place, sizeof(long_value));
        return long_value;
    }
    if (source->bytes == sizeof(value)) {
        memcpy(&value, place, sizeof(value));
        return value;
    }
    assert(source->bytes == sizeof(bool));
    return *place;
}

/* ---- Lanes ---- */

/* The figures of all lanes together; those that come for each tier have several. */
struct lane_sums {
    uint64_t figures[ARRAY_LEN(figures)][TIERS_MAX];
};

static void add(uint64_t *sum, const void *from, const struct source *source)
{
    const uint64_t value = read_field(from, source);

    *sum = source->is_most ? MAX(*sum, value) : *sum + value;
}

static void add_lane(struct lane_sums *sums, const struct lane_stats *lane)
{
    for (size_t f = 0; f < ARRAY_LEN(figures); f++) {
        const struct source *const source = &figures[f].source;

        if (source->from == FROM_LANES)
            add(&sums->figures[f][0], lane, source);
        for (uint32_t t = 0; source->from == FROM_TIERS && t < TIERS_MAX; t++)
            add(&sums->figures[f][t], &lane->cache.tiers[t], source);
        for (uint32_t h = 0; source->from == FROM_ARRAYS && h < HOME_KINDS; h++)
            if (h != HOME_CACHE) /* whose tiers have figures of their own */
                add(&sums->figures[f][0], &lane->homes[h], source);
    }
}

static void add_lanes(const struct server_parts *parts, struct lane_sums *sums)
{
    for (uint32_t i = 0; i < parts->lane_count; i++) {
        struct lane_stats lane;

        lane_stats(parts->lanes[i], &lane);
        add_lane(sums, &lane);
    }
}

/* ---- All parts ---- */

/* The figures of all parts, read once. */
struct readings {
    struct lane_sums lanes;
    struct array_space_stats space[TIERS_MAX];
    struct checkpoints_stats checkpoints;
    struct group_stats groups;
    struct profile_state profile;
    struct store_stats store;
    struct tables_totals totals;
    struct access_stats access;
    struct reload_stats reloads;
};

static void read_all(const struct server_parts *parts, struct readings *ret_readings)
{
    *ret_readings = (struct readings){ .totals = tables_totals(parts->tables) };
    add_lanes(parts, &ret_readings->lanes);
    for (uint32_t t = 0; t < parts->config->cache.tier_count; t++)
        table_arrays_stats(parts->arrays, t, &ret_readings->space[t]);
    checkpoints_stats(parts->checkpoints, &ret_readings->checkpoints);
    groups_stats(parts->groups, &ret_readings->groups);
    profiles_state(parts->profiles, &ret_readings->profile);
    store_stats(parts->store, &ret_readings->store);
    access_stats(parts->access, &ret_readings->access);
    reloads_stats(parts->reloads, &ret_readings->reloads);
}

/* Returns the figure numbered @f; @t is the tier, if there is one for each. */
static double figure_of(const struct readings *readings, size_t f, uint32_t t)
{
    const struct source *const source = &figures[f].source;
    const void *const structs[] = {
        [FROM_SPACE] = &readings->space[t], [FROM_CHECKPOINTS] = &readings->checkpoints,
        [FROM_GROUPS] = &readings->groups,  [FROM_PROFILE] = &readings->profile,
        [FROM_STORE] = &readings->store,    [FROM_TOTALS] = &readings->totals,
        [FROM_ACCESS] = &readings->access,  [FROM_RELOADS] = &readings->reloads,
    };
    const bool of_lanes =
        source->from == FROM_LANES || source->from == FROM_TIERS || source->from == FROM_ARRAYS;

    return (double)(of_lanes ? readings->lanes.figures[f][t]
                             : read_field(structs[source->from], source)) /
           source->per;
}

static void sink_figures(const struct server_parts *parts, const struct readings *readings,
                         metric_sink *sink, void *context)
{
    const struct config *const config = parts->config;

    for (size_t f = 0; f < ARRAY_LEN(figures); f++) {
        const enum from from = figures[f].source.from;
        const bool is_tiered = from == FROM_TIERS || from == FROM_SPACE;

        if (from == FROM_CODE)
            continue;
        for (uint32_t t = 0; t < (is_tiered ? config->cache.tier_count : 1); t++)
            sink(context, figures[f].id,
                 is_tiered ? config->cache.tiers[t].name : figures[f].label_value,
                 figure_of(readings, f, t));
    }
}

static void sink_checkpoints(const struct server_parts *parts, const struct readings *readings,
                             metric_sink sink, void *context)
{
    const struct checkpoints_stats *const stats = &readings->checkpoints;
    const uint64_t updated_bytes = readings->totals.updated_bytes;

    if (stats->has_newest) {
        sink(context, METRIC_checkpoint_newest_seconds, "", (double)stats->newest_age_ms / 1e3);
        sink(context, METRIC_checkpoint_newest_id, "", (double)stats->newest_id);
    }
    sink(context, METRIC_checkpoint_interval_seconds, "",
         (double)checkpoints_interval_ns(parts->checkpoints) / 1e9);
    /* The totals were read first, so a checkpoint made since may have more. */
    sink(context, METRIC_checkpoint_unsaved_bytes, "",
         (double)(updated_bytes - MIN(updated_bytes, stats->saved_updated_bytes)));
}

void metrics_latencies(const struct server_parts *parts, struct latencies *ret_latencies)
{
    *ret_latencies = (struct latencies){ 0 };
    for (uint32_t i = 0; i < parts->lane_count; i++)
        lane_latencies(parts->lanes[i], ret_latencies);
}

static double resident_bytes(void)
{
    FILE *const file = fopen("/proc/self/statm", "re");
    unsigned long long total = 0;
    unsigned long long resident = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void)
{
    struct timespec spent;

    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent) == 0
               ? (double)spent.tv_sec + (double)spent.tv_nsec / 1e9
               : 0;
}

/* ---- Devices ---- */

static const char *const window_words[] = {
    [WRITE_HOUR] = "hour", [WRITE_DAY] = "day", [WRITE_WEEK] = "week", [WRITE_NOW] = "now"
};

static void sink_device(const struct endurance_device *device, metric_sink *sink, void *context)
{
    static const enum metric_id daily[] = { [WRITE_HOUR] = METRIC_device_daily_bytes_hour,
                                            [WRITE_DAY] = METRIC_device_daily_bytes_day,
                                            [WRITE_WEEK] = METRIC_device_daily_bytes_week,
                                            [WRITE_NOW] = METRIC_device_daily_bytes_now };
    const char *const name = device->name.text;

    sink(context, METRIC_device_capacity_bytes, name, (double)device->capacity_bytes);
    sink(context, METRIC_device_counted, name, device->is_counted);
    if (!device->is_counted)
        return;
    sink(context, METRIC_device_written_bytes, name, (double)device->written_bytes);
    if (device->has_server_bytes)
        sink(context, METRIC_device_server_bytes, name, (double)device->server_bytes);
    sink(context, METRIC_device_history_seconds, name, (double)device->history.age_ms / 1e3);
    sink(context, METRIC_device_history_bytes, name, (double)device->history.total_bytes);
    for (uint32_t w = 0; device->history.has_rates && w < WRITE_WINDOWS; w++)
        sink(context, daily[w], name, write_rate_daily(&device->history.rates[w]));
    sink(context, METRIC_device_write_back_held, name, device->is_held);
    sink(context, METRIC_device_max_dwpd_exceeded, name, device->is_over);
}

static void sink_endurance(struct endurance *endurance, metric_sink *sink, void *context)
{
    const uint64_t now_ms = clock_wall_ms();
    struct endurance_state state;

    if (!endurance)
        return;
    endurance_get(endurance, now_ms, &state);
    if (state.has_tier_files)
        sink(context, METRIC_store_written_bytes, "tier_file", (double)state.tier_file_bytes);
    sink(context, METRIC_server_history_seconds, "", (double)state.server.age_ms / 1e3);
    sink(context, METRIC_server_history_bytes, "", (double)state.server.total_bytes);
    for (uint32_t w = 0; state.server.has_rates && w < WRITE_WINDOWS; w++)
        sink(context, METRIC_server_daily_bytes, window_words[w],
             write_rate_daily(&state.server.rates[w]));
    sink(context, METRIC_shared_history_bytes, "", (double)state.shared.total_bytes);
    for (uint32_t w = 0; state.shared.has_rates && w < WRITE_WINDOWS; w++)
        sink(context, METRIC_shared_daily_bytes, window_words[w],
             write_rate_daily(&state.shared.rates[w]));
    for (uint32_t i = 0; i < state.device_count; i++)
        sink_device(&state.devices[i], sink, context);
}

void metrics_collect(const struct server_parts *parts, metric_sink *sink, void *context)
{
    const uint64_t capacity_bytes = knobs_limit(parts->knobs, KNOB_CAPACITY_BYTES);
    struct readings readings;

    read_all(parts, &readings);
    sink_figures(parts, &readings, sink, context);
    sink(context, METRIC_lanes, "", parts->lane_count);
    sink(context, METRIC_strangers, "", atomic_load(&parts->strangers.now));
    sink(context, METRIC_ended_strangers, "", (double)atomic_load(&parts->strangers.ended));
    sink(context, METRIC_tables, "", tables_count(parts->tables));
    sink_checkpoints(parts, &readings, sink, context);
    sink(context, METRIC_replay_refused, "", store_replay_refusal(parts->store) != EMBTIER_OK);
    sink(context, METRIC_transfer_bytes, "", (double)transfer_memory_used(parts->transfer_memory));
    sink(context, METRIC_store_capacity_bytes, "",
         (double)(capacity_bytes ? capacity_bytes : readings.store.capacity_bytes));
    sink(context, METRIC_store_rated_written_bytes, "",
         (double)knobs_limit(parts->knobs, KNOB_RATED_WRITTEN_BYTES));
    sink(context, METRIC_store_rated_years, "",
         (double)knobs_limit(parts->knobs, KNOB_RATED_YEARS));
    sink_endurance(parts->endurance, sink, context);
    sink(context, METRIC_log_dropped_lines, "", (double)log_dropped_lines());
    sink(context, METRIC_process_resident_bytes, "", resident_bytes());
    sink(context, METRIC_process_cpu_seconds, "", cpu_seconds());
}
