/* SPDX-License-Identifier: Apache-2.0 */
/* Is a device above endurance.max_dwpd told, and is write-back to it held? */
#include "tests/unit/daemon/endurance/machine_fixture.h"

static void test_a_new_limit_counts_from_the_next_turn(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 50000);
    now = sample(endurance, NOW + HOUR); /* 0.6 */
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_set_max_dwpd(endurance, 0.5);
    assert_true(endurance_max_dwpd(endurance) == 0.5);
    now = sample(endurance, NOW + HOUR);
    assert_true(device(now, "nvme0n1")->is_over);
    endurance_set_max_dwpd(endurance, 0);
    now = sample(endurance, NOW + HOUR);
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_free(endurance);
}

/* The device holds 2,000,000 sectors, so that is one drive write. */
static void test_a_device_over_the_limit_is_told_after_an_hour(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 50000);
    now = sample(endurance, NOW + HOUR / 2); /* 1.2 a day, if it went on so */
    assert_false(device(now, "nvme0n1")->is_over);
    now = sample(endurance, NOW + HOUR); /* 0.6 */
    assert_true(device(now, "nvme0n1")->is_over);
    now = sample(endurance, NOW + 2 * HOUR); /* 0.3 */
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_set_max_dwpd(endurance, 0);
    put_counter("nvme0n1", 1000 + 90000000);
    now = sample(endurance, NOW + 2 * HOUR);
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_free(endurance);
}

/* A drive at its limit would be told every few minutes. */
static void test_a_device_is_over_the_limit_until_it_is_well_below(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 50000);
    now = sample(endurance, NOW + HOUR); /* 0.6 */
    assert_true(device(now, "nvme0n1")->is_over);
    now = sample(endurance, NOW + 4 * HOUR / 3); /* 0.45 */
    assert_true(device(now, "nvme0n1")->is_over);
    endurance_set_max_dwpd(endurance, 0.5); /* the same */
    now = sample(endurance, NOW + 4 * HOUR / 3);
    assert_true(device(now, "nvme0n1")->is_over);
    now = sample(endurance, NOW + 8 * HOUR / 5); /* 0.375 */
    assert_false(device(now, "nvme0n1")->is_over);
    put_counter("nvme0n1", 1000 + 64000);
    now = sample(endurance, NOW + 8 * HOUR / 5); /* 0.48 */
    assert_false(device(now, "nvme0n1")->is_over);
    endurance_free(endurance);
}

/* Operators raise the limit to end the warning and the hold. */
static void test_a_raised_limit_counts_at_once(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 1000001);
    now = sample(endurance, NOW + 24 * HOUR);
    assert_true(device(now, "nvme0n1")->is_over && device(now, "nvme0n1")->is_held);
    endurance_set_max_dwpd(endurance, 0.55); /* 0.5 are more than four fifths of it */
    now = sample(endurance, NOW + 24 * HOUR);
    assert_false(device(now, "nvme0n1")->is_over || device(now, "nvme0n1")->is_held);
    assert_int_equal(held, 0);
    endurance_free(endurance);
}

/* 0.5 drive writes a day are 1,000,000 sectors: 5,925 bytes a second. The second directory lies on
 * RAID, whose other disk has room. */
static void test_a_device_without_budget_holds_its_directories(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", "/data/b");
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 999999);
    now = sample(endurance, NOW + 10000);
    assert_false(device(now, "nvme0n1")->is_over || device(now, "nvme0n1")->is_held || held);
    put_counter("nvme0n1", 1000 + 1000001);
    put_counter("nvme2n1", 1000 + 1000001);
    now = sample(endurance, NOW + 11000);
    assert_true(device(now, "nvme0n1")->is_over && device(now, "nvme0n1")->is_held);
    assert_int_equal(held, 3);
    assert_int_equal(held_bytes, 64 * 1024); /* a second's least */
    endurance_release(endurance);            /* a stop writes all rows */
    assert_int_equal(held, 0);
    now = sample(endurance, NOW + 12000);
    assert_int_equal(held, 0);
    assert_false(device(now, "nvme0n1")->is_held);
    endurance_free(endurance);
}

static void save_and_free(struct endurance *endurance)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(endurance_save(endurance, &msg), EMBTIER_OK);
    endurance_free(endurance);
    held = 0;
}

/* An hour later the day has 90 % of the limit's bytes, which begins no hold but goes on with one.
 */
static void test_a_hold_goes_on_after_a_restart(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 150000);
    (void)sample(endurance, NOW + HOUR);
    put_counter("nvme0n1", 1000 + 1050000);
    now = sample(endurance, NOW + 2 * HOUR);
    assert_true(device(now, "nvme0n1")->is_held);
    now = sample(endurance, NOW + 25 * HOUR); /* the first 150000 are older than a day */
    assert_true(device(now, "nvme0n1")->is_held);
    endurance_release(endurance); /* a stop */
    save_and_free(endurance);
    endurance = begin(NOW + 25 * HOUR);
    now = sample(endurance, NOW + 25 * HOUR + 1000);
    assert_int_equal(device(now, "nvme0n1")->history.rates[WRITE_DAY].bytes, 900000 * SECTOR);
    assert_true(device(now, "nvme0n1")->is_held && device(now, "nvme0n1")->is_over);
    assert_int_equal(held, 1);
    now = sample(endurance, NOW + 26 * HOUR); /* the others, too */
    assert_false(device(now, "nvme0n1")->is_held || held);
    save_and_free(endurance);
    endurance = begin(NOW + 26 * HOUR);
    assert_false(device(sample(endurance, NOW + 26 * HOUR), "nvme0n1")->is_held);
    endurance_free(endurance);
}

/* The day has 90 % of the old limit's bytes: more than four fifths of the second limit's, and more
 * than all of the third's. */
static void test_a_restart_with_another_limit_judges_a_device_anew(void **state)
{
    struct endurance *endurance;
    const struct endurance_state *now;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 150000);
    (void)sample(endurance, NOW + HOUR);
    put_counter("nvme0n1", 1000 + 1050000);
    (void)sample(endurance, NOW + 2 * HOUR);
    now = sample(endurance, NOW + 25 * HOUR);
    assert_true(device(now, "nvme0n1")->is_held);
    save_and_free(endurance);
    config.endurance.max_dwpd = 0.55;
    endurance = begin(NOW + 25 * HOUR);
    now = sample(endurance, NOW + 25 * HOUR);
    assert_false(device(now, "nvme0n1")->is_held || device(now, "nvme0n1")->is_over || held);
    save_and_free(endurance);
    config.endurance.max_dwpd = 0.4;
    endurance = begin(NOW + 25 * HOUR);
    now = sample(endurance, NOW + 25 * HOUR);
    assert_true(device(now, "nvme0n1")->is_held && device(now, "nvme0n1")->is_over && held == 1);
    endurance_free(endurance);
}

static void test_a_device_over_the_limit_stays_so_after_a_restart(void **state)
{
    struct endurance *endurance;

    (void)state;
    use_directories("/data/a", NULL);
    config.endurance.max_dwpd = 0.5;
    endurance = begin(NOW);
    put_counter("nvme0n1", 1000 + 50000);
    assert_true(device(sample(endurance, NOW + HOUR), "nvme0n1")->is_over); /* 0.6 */
    save_and_free(endurance);
    endurance = begin(NOW + 4 * HOUR / 3); /* 0.45 */
    assert_true(device(sample(endurance, NOW + 4 * HOUR / 3), "nvme0n1")->is_over);
    endurance_free(endurance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_a_new_limit_counts_from_the_next_turn),
        TEST(test_a_device_over_the_limit_is_told_after_an_hour),
        TEST(test_a_device_is_over_the_limit_until_it_is_well_below),
        TEST(test_a_raised_limit_counts_at_once),
        TEST(test_a_device_without_budget_holds_its_directories),
        TEST(test_a_hold_goes_on_after_a_restart),
        TEST(test_a_restart_with_another_limit_judges_a_device_anew),
        TEST(test_a_device_over_the_limit_stays_so_after_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
