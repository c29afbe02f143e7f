/* SPDX-License-Identifier: Apache-2.0 */
/* test_knobs_in_force.c: does a knob reach all lanes, and what does a server without a file say? */
#include "tests/unit/daemon/control/control_fixture.h"

#include <limits.h>
#include <sys/stat.h>

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

/* @file: of the configuration; NULL: it has none. */
static void make_on(struct knobbed *k, struct store_fixture *f, const char *file,
                    const char *checker)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB, .core_count = 4 };
    struct err_msg msg = { { 0 } };

    control_make_parts(&k->c, f, NULL);
    must(config_load_on(file, &machine, budget_unbudgeted, &k->config, &msg), &msg);
    must(knobs_new(&(struct knobs_opts){ .config = k->config,
                                         .store = k->c.parts.store,
                                         .accounts = k->c.parts.accounts,
                                         .checkpoints = k->c.parts.checkpoints,
                                         .endurance = k->c.endurance,
                                         .groups = k->c.parts.groups,
                                         .lanes = k->c.parts.lanes,
                                         .lane_count = k->c.parts.lane_count,
                                         .checker = checker },
                   &k->knobs, &msg),
         &msg);
}

static void make(struct knobbed *k, struct store_fixture *f)
{
    make_on(k, f, NULL, NULL);
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
    static const char *const readers[] = { "5", "64", "1" };
    static struct knobbed k;

    make(&k, *state);
    must_set(&k, "lanes.ticket_seconds", "7", "7");
    for (uint32_t i = 0; i < k.c.parts.lane_count; i++)
        assert_int_equal(lane_ticket_ns(k.c.parts.lanes[i]), 7 * NS_PER_S);
    must_set(&k, "lanes.group_seconds", "8", "8");
    for (size_t r = 0; r < ARRAY_LEN(readers); r++) {
        must_set(&k, "lanes.readers_per_lane", readers[r], readers[r]);
        for (uint32_t i = 0; i < k.c.parts.lane_count; i++)
            assert_int_equal(lane_readers(k.c.parts.lanes[i]), strtoul(readers[r], NULL, 10));
    }
    must_set(&k, "rocksdb.compaction_trigger_files", "7", "7");
    assert_int_equal(store_trigger_files(k.c.parts.store), 7);
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

/* How often all databases were tuned. */
static uint32_t tuned;

enum embtier_err __real_store_set_threads(struct store *store, uint32_t threads,
                                          struct err_msg *msg);
enum embtier_err __wrap_store_set_threads(struct store *store, uint32_t threads,
                                          struct err_msg *msg);
enum embtier_err __wrap_store_set_threads(struct store *store, uint32_t threads,
                                          struct err_msg *msg)
{
    tuned++;
    return tuned == 1 ? err_set(msg, EMBTIER_BUSY, "one database refuses")
                      : __real_store_set_threads(store, threads, msg);
}

static void test_a_change_that_fails_is_taken_back_and_can_be_made_again(void **state)
{
    const struct knob_order order = { .name = "rocksdb.background_threads", .value = "3" };
    static struct knob_change change;
    static struct knobbed k;
    struct err_msg msg = { { 0 } };

    make(&k, *state);
    tuned = 0;
    assert_int_equal(knobs_set(k.knobs, &order, &change, &msg), EMBTIER_BUSY);
    assert_int_equal(tuned, 2); /* the second time with the value from before */
    assert_non_null(strstr(msg.text, "one database refuses"));
    assert_non_null(strstr(msg.text, "rocksdb.background_threads is in force as before"));
    must_set(&k, "rocksdb.background_threads", "3", "3");
    must_set(&k, "rocksdb.background_threads", "3", "3"); /* again, all the way down */
    assert_int_equal(tuned, 4);
    end(&k);
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    FILE *const file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* The check comes before the change, so another program may write the file meanwhile. */
static void test_a_value_that_the_file_does_not_take_is_not_in_force(void **state)
{
    static const char *const orders[][2] = { { "lanes.group_seconds", "8" },
                                             { "rocksdb.compaction_hours", "01:00-02:00" } };
    struct store_fixture *const f = *state;
    char path[PATH_MAX], checker[PATH_MAX], script[2 * PATH_MAX];
    const struct knob_order hours = { .name = "rocksdb.compaction_hours", .value = "07:00-08:00" };
    static struct knob_change change;
    static struct knobbed k;
    struct err_msg msg = { { 0 } };
    uint64_t wait_ns;

    snprintf(path, sizeof(path), "%s/e.yaml", f->root);
    snprintf(checker, sizeof(checker), "%s/check", f->root);
    snprintf(script, sizeof(script), "#!/bin/sh\necho '# theirs' >> '%s'\n", path);
    write_text(path, "log: {level: info}\n", 0644);
    write_text(checker, script, 0755);
    make_on(&k, f, path, checker);
    wait_ns = groups_wait_ns(k.c.parts.groups);
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        const struct knob_order order = { orders[i][0], orders[i][1], .persist = true };

        assert_int_equal(knobs_set(k.knobs, &order, &change, &msg), EMBTIER_BUSY);
        assert_non_null(strstr(msg.text, "was changed by another program meanwhile"));
        assert_non_null(strstr(msg.text, "is in force as before"));
    }
    assert_int_equal(groups_wait_ns(k.c.parts.groups), wait_ns);
    must(knobs_set(k.knobs, &hours, &change, &msg), &msg);
    assert_string_equal(change.old_value, ""); /* the store's */
    end(&k);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_time_reaches_every_lane_and_all_groups),
        TEST(test_a_change_that_fails_is_taken_back_and_can_be_made_again),
        TEST(test_a_value_that_the_file_does_not_take_is_not_in_force),
        TEST(test_without_a_file_there_is_nothing_to_write_or_to_compare),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
