/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the reserve is given up only when no compaction is left that would take it. The test
 * plays the nearly full disk and the compaction. */
#include "tests/unit/store/store_fixture.h"

#include "store/database/compaction_scheduler.h"
#include "store/database/database.h"
#include "store/files/space.h"

#define POLLS_RUNNING 5
/* The store waits at most 30 s. A test that was this late shows nothing. */
#define LATE_NS (UINT64_C(25) * 1000 * 1000 * 1000)

static struct {
    bool is_watched;
    bool begins_short; /* what space_begin_use() returns, */
    bool uses;         /* and space_use() */
    uint32_t polls_running;
    bool is_paused;
    bool was_paused_in_use;
    uint32_t polls_before_use;
    uint32_t running_in_use;
} disk;

bool __real_space_begin_use(struct space *space);
bool __wrap_space_begin_use(struct space *space);
bool __real_space_use(struct space *space);
bool __wrap_space_use(struct space *space);
void __real_compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused);
void __wrap_compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused);
void __real_database_poll_debt(struct database *database, struct database_debt *ret_debt);
void __wrap_database_poll_debt(struct database *database, struct database_debt *ret_debt);

bool __wrap_space_begin_use(struct space *space)
{
    const bool is_short = __real_space_begin_use(space);

    return disk.is_watched ? disk.begins_short : is_short;
}

bool __wrap_space_use(struct space *space)
{
    const bool used = __real_space_use(space);

    if (!disk.is_watched)
        return used;
    disk.running_in_use = disk.polls_running;
    disk.was_paused_in_use = disk.is_paused;
    return disk.uses;
}

void __wrap_compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused)
{
    __real_compaction_scheduler_pause(scheduler, paused);
    disk.is_paused = paused;
}

/* The scheduler's thread polls too, and must not see the played compaction. */
static _Thread_local bool is_test;

void __wrap_database_poll_debt(struct database *database, struct database_debt *ret_debt)
{
    __real_database_poll_debt(database, ret_debt);
    if (!is_test || !disk.is_watched)
        return;
    disk.polls_before_use++;
    ret_debt->running = disk.polls_running > 0;
    disk.polls_running -= disk.polls_running > 0;
}

static void use_reserve(struct store_fixture *f, bool begins_short, bool uses)
{
    store_end_reserve(f->store); /* the start is over */
    is_test = true;
    memset(&disk, 0, sizeof(disk));
    disk.begins_short = begins_short;
    disk.uses = uses;
    disk.polls_running = POLLS_RUNNING;
    disk.is_watched = true;
    store_use_reserve(f->store);
    disk.is_watched = false;
}

static void test_compactions_end_before_the_reserve_is_given_up(void **state)
{
    struct store_fixture *const f = *state;
    uint64_t began_ns;

    fixture_open(f);
    began_ns = now_ns();
    use_reserve(f, true, true);
    assert_true(disk.was_paused_in_use);
    assert_true(disk.polls_before_use > 0);
    if (now_ns() - began_ns < LATE_NS)
        assert_int_equal(disk.running_in_use, 0);
    store_end_reserve(f->store);
    assert_false(disk.is_paused);
    fixture_close(f);
}

static void test_they_pause_where_the_disk_became_short_since_it_was_asked(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    use_reserve(f, false, true);
    assert_true(disk.is_paused);
    store_end_reserve(f->store);
    assert_false(disk.is_paused);
    fixture_close(f);
}

static void test_they_go_on_where_there_is_room(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    use_reserve(f, false, false);
    assert_false(disk.is_paused);
    assert_int_equal(disk.polls_before_use, 0);
    store_end_reserve(f->store);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_compactions_end_before_the_reserve_is_given_up),
        T(test_they_pause_where_the_disk_became_short_since_it_was_asked),
        T(test_they_go_on_where_there_is_room),
#undef T
    };

    return cmocka_run_group_tests_name("the reserve", tests, NULL, NULL);
}
