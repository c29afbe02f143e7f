/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that each metric has its figures, once each, and that those of lanes and tiers are sums. */
#include "tests/unit/daemon/control/control_fixture.h"

#include "daemon/control/metrics.h"
#include "daemon/control/snapshot.h"

#define ROWS 64
#define DIM  4

struct seen {
    struct {
        enum metric_id id;
        char label_value[64];
        double value;
    } figures[METRICS_MOST];
    uint32_t count;
};

static void see(void *context, enum metric_id id, const char *label_value, double value)
{
    struct seen *const seen = context;

    assert_true(seen->count < METRICS_MOST);
    for (uint32_t i = 0; i < seen->count; i++)
        if (seen->figures[i].id == id && strcmp(seen->figures[i].label_value, label_value) == 0)
            fail_msg("%s{%s} comes twice", metric_descriptions[id].name, label_value);
    seen->figures[seen->count].id = id;
    snprintf(seen->figures[seen->count].label_value, sizeof(seen->figures[0].label_value), "%s",
             label_value);
    seen->figures[seen->count++].value = value;
}

static const struct seen *collect(const struct control_fixture *c)
{
    static struct seen seen;

    seen.count = 0;
    metrics_collect(&c->parts, see, &seen);
    return &seen;
}

static double value_of(const struct seen *seen, enum metric_id id, const char *label_value)
{
    for (uint32_t i = 0; i < seen->count; i++)
        if (seen->figures[i].id == id && strcmp(seen->figures[i].label_value, label_value) == 0)
            return seen->figures[i].value;
    fail_msg("%s{%s} has no figure", metric_descriptions[id].name, label_value);
    return 0;
}

static bool has_any(const struct seen *seen, enum metric_id id)
{
    for (uint32_t i = 0; i < seen->count; i++)
        if (seen->figures[i].id == id)
            return true;
    return false;
}

static bool is_sampled(uint32_t id)
{
    return id >= METRIC_server_history_seconds && id <= METRIC_device_max_dwpd_exceeded;
}

/* Figures of clients and jobs, and some others, are snapshot.c's. Those of tables are
 * daemon/http's. Those of the newest checkpoint need one, and those of devices
 * need a thread that samples. */
static bool is_elsewhere(enum metric_id id)
{
    static const enum metric_id others[] = { METRIC_sessions,
                                             METRIC_session_arena_bytes,
                                             METRIC_jobs,
                                             METRIC_checkpoint_newest_seconds,
                                             METRIC_build_info,
                                             METRIC_ready,
                                             METRIC_uptime_seconds,
                                             METRIC_checkpoint_newest_id,
                                             METRIC_transport_sessions,
                                             METRIC_request_seconds };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (others[i] == id)
            return true;
    return is_sampled(id) || strcmp(metric_descriptions[id].label, "table") == 0;
}

static void test_each_metric_has_figures(void **state)
{
    static struct control_fixture c;
    const struct seen *seen;

    control_make_parts(&c, *state, NULL);
    seen = collect(&c);
    for (uint32_t id = 0; id < METRIC_COUNT; id++) {
        if (has_any(seen, id) == is_elsewhere(id))
            fail_msg("%s has figures: %d", metric_descriptions[id].name, has_any(seen, id));
    }
    control_free_parts(&c);
}

static uint64_t requests_of(const struct latencies *latencies, enum op_number op)
{
    return latency_count(latencies->of[op][TRANSPORT_SHM].counts, LATENCY_RANGES);
}

static void test_figures_of_lanes_are_sums(void **state)
{
    static struct control_fixture c;
    const struct seen *seen;
    struct client client;
    uint64_t table;
    float value;
    double cached = 0, dirty = 0, capacity = 0;
    static struct latencies latencies;

    control_make_parts(&c, *state, NULL);
    table = fixture_table(&c.x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    client = client_attach(&c.x, KIB);
    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_set_one(&client, table, id, DIM, 2), EMBTIER_OK);
    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_get_one(&client, table, id, &value), EMBTIER_OK);
    seen = collect(&c);
    assert_true(value_of(seen, METRIC_requests, "") == 2 * ROWS);
    metrics_latencies(&c.parts, &latencies);
    assert_int_equal(requests_of(&latencies, OP_GET), ROWS);
    assert_int_equal(requests_of(&latencies, OP_SET), ROWS);
    assert_int_equal(requests_of(&latencies, OP_POOL), 0);
    assert_true(latencies.of[OP_GET][TRANSPORT_SHM].ns > 0);
    assert_true(value_of(seen, METRIC_request_rows, "set") == ROWS);
    assert_true(value_of(seen, METRIC_request_rows, "get") == ROWS);
    assert_true(value_of(seen, METRIC_request_rows, "push") == 0);
    assert_true(value_of(seen, METRIC_lookup_rows, fixture_tiers[0]) == ROWS);
    assert_true(value_of(seen, METRIC_lookup_rows, "array") == 0);
    for (uint32_t t = 0; t < FIXTURE_TIERS; t++) {
        cached += value_of(seen, METRIC_cache_rows, fixture_tiers[t]);
        dirty += value_of(seen, METRIC_cache_dirty_rows, fixture_tiers[t]);
        capacity += value_of(seen, METRIC_cache_capacity_bytes, fixture_tiers[t]);
    }
    assert_true(cached == ROWS);
    assert_true(dirty == ROWS);
    assert_true(capacity <= (double)(FIXTURE_TIERS * control_shape.slabs_per_lane *
                                     control_shape.lane_count * ARENA_SLAB_BYTES));
    assert_true(capacity > (double)((FIXTURE_TIERS * control_shape.slabs_per_lane - 1) *
                                    control_shape.lane_count * ARENA_SLAB_BYTES));
    assert_true(value_of(seen, METRIC_write_queue_capacity_bytes, "") ==
                (double)(control_shape.write_queue_bytes * control_shape.lane_count));
    assert_true(value_of(seen, METRIC_write_error, "") == 0);
    assert_true(value_of(seen, METRIC_tables, "") == 1);
    client_detach(&client);
    control_free_parts(&c);
}

static void set_figure(struct snapshot *snapshot, enum metric_id id, double value)
{
    snapshot->figures[snapshot->count++] = (struct snapshot_figure){ .id = id, .value = value };
}

/* Only rules that block updates make a server not ready. */
static void test_reasons_are_those_of_the_rules(void **state)
{
    static struct snapshot snapshot;

    (void)state;
    set_figure(&snapshot, METRIC_failed_rows, 3);
    set_figure(&snapshot, METRIC_store_room_bytes, 100);
    set_figure(&snapshot, METRIC_store_stored_bytes, 10000);
    snapshot_find_reasons(&snapshot, false);
    assert_int_equal(snapshot.reason_count, 0);
    set_figure(&snapshot, METRIC_write_error, EMBTIER_IO);
    snapshot_find_reasons(&snapshot, false);
    assert_int_equal(snapshot.reason_count, 1);
    assert_non_null(strstr(snapshot.reasons[0].text, "writes_blocked: rows in memory"));
    snapshot.figures[1].value = 0;
    set_figure(&snapshot, METRIC_replay_refused, 1);
    snapshot_find_reasons(&snapshot, true);
    assert_int_equal(snapshot.reason_count, SNAPSHOT_REASONS_MAX);
    assert_string_equal(snapshot.reasons[0].text, "the server is stopping");
    assert_non_null(strstr(snapshot.reasons[2].text, "disk_full: "));
    assert_non_null(strstr(snapshot.reasons[3].text, "replay_refused: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_metric_has_figures, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_figures_of_lanes_are_sums, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(test_reasons_are_those_of_the_rules),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
