/* SPDX-License-Identifier: Apache-2.0 */
/* test_knobs_in_force.c: does a knob reach all lanes, and what does a server without a file say? */
#include "tests/unit/daemon/control/control_fixture.h"

#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "daemon/engine/ops/groups/group.h"

#define NS_PER_S UINT64_C(1000000000)

/* Knobs on the fixture's parts, with a configuration that has no file. */
struct knobbed {
    struct control_fixture c;
    struct config *config;
    struct knobs *knobs;
};

static void make(struct knobbed *k, struct store_fixture *f)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB, .core_count = 4 };
    struct err_msg msg = { { 0 } };

    control_make_parts(&k->c, f, NULL);
    must(config_load_on(NULL, &machine, budget_unbudgeted, &k->config, &msg), &msg);
    must(knobs_new(&(struct knobs_opts){ .config = k->config,
                                         .store = k->c.parts.store,
                                         .accounts = k->c.parts.accounts,
                                         .checkpoints = k->c.parts.checkpoints,
                                         .endurance = k->c.endurance,
                                         .groups = k->c.parts.groups,
                                         .lanes = k->c.parts.lanes,
                                         .lane_count = k->c.parts.lane_count },
                   &k->knobs, &msg),
         &msg);
}

static void end(struct knobbed *k)
{
    knobs_free(k->knobs);
    config_free(k->config);
    control_free_parts(&k->c);
}

static void must_set(struct knobbed *k, const char *name, const char *value, const char *wanted)
{
    const struct knob_order order = { .name = name, .value = value };
    static struct knob_change change;
    struct err_msg msg = { { 0 } };

    must(knobs_set(k->knobs, &order, &change, &msg), &msg);
    assert_true(change.applied);
    assert_string_equal(change.knob.item.value, wanted);
    assert_int_equal(change.knob.source, KNOB_SET);
}

static void test_a_time_reaches_every_lane_and_all_groups(void **state)
{
    static struct knobbed k;

    make(&k, *state);
    must_set(&k, "lanes.ticket_seconds", "7", "7");
    for (uint32_t i = 0; i < k.c.parts.lane_count; i++)
        assert_int_equal(lane_ticket_ns(k.c.parts.lanes[i]), 7 * NS_PER_S);
    must_set(&k, "lanes.group_seconds", "8", "8");
    assert_int_equal(groups_wait_ns(k.c.parts.groups), 8 * NS_PER_S);
    must_set(&k, "socket.max_arena_bytes", "1048576", "1MiB");
    assert_int_equal(knobs_limit(k.knobs, KNOB_MAX_ARENA_BYTES), MIB);
    must_set(&k, "endurance.max_dwpd", "0.25", "0.25");
    assert_true(endurance_max_dwpd(k.c.endurance) == 0.25);
    end(&k);
}

static void assert_refused(struct knobbed *k, const char *name, const char *part)
{
    const struct knob_order order = { .name = name, .value = "3", .persist = true };
    static struct knob_change change;
    struct err_msg msg = { { 0 } };

    assert_int_equal(knobs_set(k->knobs, &order, &change, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, part))
        fail_msg("%s", msg.text);
}

static void test_without_a_file_there_is_nothing_to_write_or_to_compare(void **state)
{
    static struct knobbed k;
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };

    make(&k, *state);
    assert_null(knobs_file(k.knobs));
    assert_refused(&k, "lanes.group_seconds", "the server runs without a configuration file");
    assert_refused(&k, "lanes.count", "the server runs without a configuration file");
    assert_int_equal(knobs_read_file(k.knobs, &config, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "start it with --config FILE"));
    end(&k);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_time_reaches_every_lane_and_all_groups),
        TEST(test_without_a_file_there_is_nothing_to_write_or_to_compare),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
