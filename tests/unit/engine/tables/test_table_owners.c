/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a user leaves table numbers to others, also after a restart, and with earlier tables
 * of any owner or none. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "store/catalog.h"

#define MOST 8 /* tables of all users together */
#define ONE  (FIXTURE_UID + 1)
#define TWO  (FIXTURE_UID + 2)

static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 3, .readers = 2, .write_queue_bytes = MIB
};

static void start(struct lanes_fixture *x, struct store_fixture *f)
{
    lanes_start(x, f, &one_lane);
    accounts_limit(x->accounts, ACCOUNT_TABLES, MOST, 0);
}

static enum embtier_err make(struct lanes_fixture *x, uid_t owner, const char *name)
{
    struct table_spec spec = { .dim = 2, .dtype = EMBTIER_DTYPE_F32, .rows = 10 };
    struct table_info info;
    struct err_msg msg = { { 0 } };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    return tables_create(x->tables, &spec, owner, false, NULL, &info, &msg);
}

static enum embtier_err make_number(struct lanes_fixture *x, uid_t owner, uint32_t number)
{
    char name[32];

    snprintf(name, sizeof(name), "of-%u-%u", (unsigned)owner, number);
    return make(x, owner, name);
}

static void drop(struct lanes_fixture *x, const char *name)
{
    struct table_info info;
    struct err_msg msg = { { 0 } };

    must(tables_drop(x->tables, name, NULL, &info, &msg), &msg);
}

static uint64_t count_of(struct lanes_fixture *x, uid_t uid)
{
    struct account *const account = account_open(x->accounts, uid);
    const uint64_t count = account_has(account, ACCOUNT_TABLES);

    account_close(account);
    return count;
}

/* Makes as many tables as the user may have of those left. */
static uint32_t make_all(struct lanes_fixture *x, uid_t owner)
{
    uint32_t count = 0;
    enum embtier_err err;

    while ((err = make_number(x, owner, count)) == EMBTIER_OK)
        count++;
    assert_int_equal(err, EMBTIER_BUSY);
    return count;
}

static void test_a_user_leaves_tables_to_others(void **state)
{
    struct lanes_fixture x;

    start(&x, *state);
    assert_int_equal(make_all(&x, ONE), MOST * 3 / 4);
    assert_int_equal(make_all(&x, TWO), 1);
    assert_int_equal(make(&x, FIXTURE_UID, "t"), EMBTIER_OK);
    drop(&x, "of-8-0");
    drop(&x, "of-8-1");
    assert_int_equal(make_number(&x, TWO, 1), EMBTIER_OK);
    assert_int_equal(count_of(&x, ONE), MOST * 3 / 4 - 2);
    assert_int_equal(count_of(&x, TWO), 2);
    lanes_stop(&x);
}

static void test_tables_are_their_makers_after_a_start(void **state)
{
    struct lanes_fixture x;

    start(&x, *state);
    assert_int_equal(make_all(&x, ONE), MOST * 3 / 4);
    assert_int_equal(make_number(&x, TWO, 0), EMBTIER_OK);
    lanes_write_back(&x);
    lanes_stop(&x);

    start(&x, *state);
    assert_int_equal(count_of(&x, ONE), MOST * 3 / 4);
    assert_int_equal(count_of(&x, TWO), 1);
    assert_int_equal(make_number(&x, ONE, MOST), EMBTIER_BUSY);
    drop(&x, "of-8-5");
    assert_int_equal(count_of(&x, ONE), MOST * 3 / 4 - 1);
    lanes_stop(&x);
}

/* Such tables count as the server's own. */
static void test_tables_of_a_catalog_without_owners_are_served(void **state)
{
    struct store_fixture *const f = *state;
    struct table_spec spec = { .name = "old", .dim = 2, .rows = 10, .init_version = 1 };
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };
    struct lanes_fixture x;
    uint32_t table_id;

    start(&x, f);
    lanes_stop(&x);
    spec.dtype = EMBTIER_DTYPE_F32;
    must(catalog_open(f->made[0], &catalog, &msg), &msg);
    must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &table_id, &msg), &msg);
    catalog_free(catalog);

    start(&x, f);
    assert_int_equal(count_of(&x, geteuid()), 1);
    drop(&x, "old");
    assert_int_equal(count_of(&x, geteuid()), 0);
    lanes_stop(&x);
}

static void test_a_refused_table_counts_for_no_user(void **state)
{
    struct lanes_fixture x;

    start(&x, *state);
    assert_int_equal(make(&x, ONE, "t"), EMBTIER_OK);
    assert_int_equal(make(&x, TWO, "t"), EMBTIER_EXISTS);
    assert_int_equal(count_of(&x, ONE), 1);
    assert_int_equal(count_of(&x, TWO), 0);
    lanes_stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_a_user_leaves_tables_to_others),
        T(test_tables_are_their_makers_after_a_start),
        T(test_tables_of_a_catalog_without_owners_are_served),
        T(test_a_refused_table_counts_for_no_user),
#undef T
    };

    return cmocka_run_group_tests_name("owners of tables", tests, NULL, NULL);
}
