/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that one user, with however many sessions, leaves some of everything to others. A user
 * without others is hardly limited. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/memory/ticket_memory.h"

#define ONE   1000
#define TWO   1001
#define THREE 1002

static struct accounts *make(void)
{
    struct accounts *accounts = NULL;

    assert_int_equal(accounts_new(&accounts, NULL), EMBTIER_OK);
    return accounts;
}

/* Takes as much as possible, one at a time. Returns how much. */
static uint64_t take_all(struct account *account, enum account_row row)
{
    uint64_t count = 0;

    while (account_take(account, row, 1) == ACCOUNT_TAKEN)
        count++;
    return count;
}

static void test_a_user_has_one_account_as_long_as_it_is_open(void **state)
{
    struct accounts *const accounts = make();
    struct account *const first = account_open(accounts, ONE);
    struct account *const other = account_open(accounts, TWO);

    (void)state;
    assert_ptr_equal(account_open(accounts, ONE), first);
    assert_ptr_not_equal(first, other);
    accounts_limit(accounts, ACCOUNT_SCANS, 10, 5);
    assert_int_equal(account_take(first, ACCOUNT_SCANS, 2), ACCOUNT_TAKEN);
    account_close(first);
    assert_int_equal(account_has(first, ACCOUNT_SCANS), 2); /* the account is still open */
    account_give(first, ACCOUNT_SCANS, 2);
    account_close(first);
    account_close(other);
    account_close(NULL);
    assert_int_equal(accounts_used(accounts, ACCOUNT_SCANS), 0);
    accounts_free(accounts);
}

static void test_a_user_alone_has_three_quarters_and_each_next_one_finds_some(void **state)
{
    struct accounts *const accounts = make();
    struct account *const one = account_open(accounts, ONE);
    struct account *const two = account_open(accounts, TWO);
    struct account *const three = account_open(accounts, THREE);

    (void)state;
    accounts_limit(accounts, ACCOUNT_TICKET_BYTES, 1600, 0);
    assert_int_equal(take_all(one, ACCOUNT_TICKET_BYTES), 1200);
    assert_int_equal(account_ask(one, ACCOUNT_TICKET_BYTES, 1), ACCOUNT_USER_HAS);
    assert_int_equal(take_all(two, ACCOUNT_TICKET_BYTES), 300);
    assert_int_equal(take_all(three, ACCOUNT_TICKET_BYTES), 75);
    /* The first user does not get back what it returned as long as others want some. */
    account_give(one, ACCOUNT_TICKET_BYTES, 1200);
    assert_int_equal(take_all(two, ACCOUNT_TICKET_BYTES), (1600 - 75) * 3 / 4 - 300);
    assert_in_range(take_all(one, ACCOUNT_TICKET_BYTES), 280, 300);
    for (int i = 0; i < 2; i++) {
        account_give(two, ACCOUNT_TICKET_BYTES, account_has(two, ACCOUNT_TICKET_BYTES));
        take_all(one, ACCOUNT_TICKET_BYTES);
        account_give(one, ACCOUNT_TICKET_BYTES, account_has(one, ACCOUNT_TICKET_BYTES));
        take_all(two, ACCOUNT_TICKET_BYTES);
    }
    assert_true(accounts_used(accounts, ACCOUNT_TICKET_BYTES) < 1600);
    accounts_free(accounts);
}

/* Three users in turn take as much as they can from small totals. */
static void test_small_numbers_are_shared_out_too(void **state)
{
    static const uint64_t expected[][3] = {
        { 1, 0, 0 }, { 1, 1, 0 },  { 2, 1, 0 },  { 3, 1, 0 },  { 3, 1, 1 }, { 4, 1, 1 },
        { 5, 1, 1 }, { 6, 1, 1 },  { 6, 2, 1 },  { 7, 2, 1 },  { 8, 2, 1 }, { 9, 2, 1 },
        { 9, 3, 1 }, { 10, 3, 1 }, { 11, 3, 1 }, { 12, 3, 1 },
    };

    (void)state;
    for (uint64_t all = 1; all <= 1024; all = all == ARRAY_LEN(expected) ? 1024 : all + 1) {
        struct accounts *const accounts = make();
        struct account *users[3];
        uint64_t left = all;

        accounts_limit(accounts, ACCOUNT_SCANS, all, 0);
        for (uint32_t u = 0; u < 3; u++) {
            const uint64_t part = all == 1024 ? left * 3 / 4 : expected[all - 1][u];

            users[u] = account_open(accounts, ONE + u);
            assert_int_equal(account_part(users[u], ACCOUNT_SCANS), part);
            assert_int_equal(accounts_part(accounts, ONE + u, ACCOUNT_SCANS), part);
            assert_int_equal(take_all(users[u], ACCOUNT_SCANS), part);
            left -= part;
        }
        assert_true(all < 2 || account_has(users[1], ACCOUNT_SCANS) > 0);
        assert_true(all < 5 || account_has(users[2], ACCOUNT_SCANS) > 0);
        assert_int_equal(accounts_part(accounts, ONE + 3, ACCOUNT_SCANS), 0); /* has no account */
        accounts_free(accounts);
    }
}

static void test_a_refusal_tells_the_limit_and_the_key(void **state)
{
    struct accounts *const accounts = make();
    struct account *const one = account_open(accounts, ONE);
    struct account *const two = account_open(accounts, TWO);
    struct err_msg msg = { { 0 } };

    (void)state;
    accounts_limit(accounts, ACCOUNT_ARENA_BYTES, 10 * MIB, 6 * MIB);
    assert_int_equal(account_take(one, ACCOUNT_ARENA_BYTES, 6 * MIB), ACCOUNT_TAKEN);
    assert_int_equal(account_refuse(one, ACCOUNT_ARENA_BYTES, MIB,
                                    account_take(one, ACCOUNT_ARENA_BYTES, MIB), "some.key", &msg),
                     EMBTIER_BUSY);
    assert_string_equal(
        msg.text, "shared memory: your user's clients have 6MiB, and 1MiB more would exceed the "
                  "6MiB that one user may have (some.key): end some of these clients first");
    assert_int_equal(account_refuse(two, ACCOUNT_ARENA_BYTES, 5 * MIB,
                                    account_take(two, ACCOUNT_ARENA_BYTES, 5 * MIB), "some.key",
                                    &msg),
                     EMBTIER_BUSY);
    assert_string_equal(msg.text,
                        "shared memory: all users together have 6MiB, and 5MiB more would exceed "
                        "the limit of 10MiB (some.key): try again when some is released");
    assert_int_equal(account_refuse(two, ACCOUNT_ARENA_BYTES, 11 * MIB,
                                    account_take(two, ACCOUNT_ARENA_BYTES, 11 * MIB), "some.key",
                                    &msg),
                     EMBTIER_TOO_LARGE);
    assert_int_equal(account_has(two, ACCOUNT_ARENA_BYTES), 0);
    accounts_limit(accounts, ACCOUNT_SCANS, 8, 0);
    assert_int_equal(take_all(one, ACCOUNT_SCANS), 6);
    assert_int_equal(account_refuse(one, ACCOUNT_SCANS, 1, account_take(one, ACCOUNT_SCANS, 1),
                                    "some.key", &msg),
                     EMBTIER_BUSY);
    assert_string_equal(
        msg.text,
        "exports: your user's clients have 6, and 1 more would exceed the 6 that one user may "
        "have, three quarters of what others leave (some.key): end some of these clients first");
    accounts_free(accounts);
}

/* Sessions of one user keep tickets, and then another user's session asks. */
static void test_sessions_that_keep_tickets_leave_memory_to_others(void **state)
{
    enum { TICKETS = 1000, TICKET_BYTES = 64 << 10 };
    struct accounts *const accounts = make();
    struct ticket_memory *memory;
    struct ticket_share greedy[4] = { { 0 } }, sibling = { 0 }, other = { 0 };
    void *places[ARRAY_LEN(greedy)][TICKETS] = { { NULL } };
    uint64_t quota = 1;
    void *place;

    (void)state;
    assert_int_equal(ticket_memory_new(16 * MIB, 0, accounts, &memory, NULL), EMBTIER_OK);
    for (uint32_t s = 0; s < ARRAY_LEN(greedy); s++)
        greedy[s].account = account_open(accounts, ONE);
    sibling.account = greedy[0].account;
    other.account = account_open(accounts, TWO);
    /* Alone, a session gets the largest possible ticket. */
    place = ticket_memory_take(memory, &sibling, ticket_memory_largest(memory), &quota);
    assert_non_null(place);
    assert_null(ticket_memory_take(memory, &greedy[0], 1 << 20, &quota));
    assert_int_equal(quota, 0); /* the configuration's limit */
    ticket_memory_give(memory, place);
    for (uint32_t s = 0; s < ARRAY_LEN(greedy); s++)
        for (uint32_t i = 0; i < TICKETS; i++)
            places[s][i] =
                ticket_memory_take(memory, &greedy[s], s < 3 ? TICKET_BYTES : 4096, &quota);
    assert_true(accounts_used(accounts, ACCOUNT_TICKET_BYTES) <= 12 * MIB);
    assert_true(accounts_used(accounts, ACCOUNT_TICKET_BYTES) > 10 * MIB);
    place = ticket_memory_take(memory, &sibling, 1024, &quota);
    assert_non_null(place);
    ticket_memory_give(memory, place);
    place = ticket_memory_take(memory, &other, 2 * MIB, &quota);
    assert_non_null(place);
    ticket_memory_give(memory, place);
    for (uint32_t s = 0; s < ARRAY_LEN(greedy); s++)
        for (uint32_t i = 0; i < TICKETS; i++)
            if (places[s][i])
                ticket_memory_give(memory, places[s][i]);
    assert_int_equal(accounts_used(accounts, ACCOUNT_TICKET_BYTES), 0);
    ticket_memory_free(memory);
    accounts_free(accounts);
}

/* A refusal says whether the user's quota is the reason, or a limit that all users have. */
static void test_a_refusal_for_a_quota_is_told_from_others(void **state)
{
    struct accounts *const accounts = make();
    struct ticket_memory *memory;
    struct ticket_share share = { 0 }, sibling = { 0 }, other = { 0 };
    uint64_t quota = 1, part = 0;
    void *place;

    (void)state;
    assert_int_equal(ticket_memory_new(16 * MIB, MIB, accounts, &memory, NULL), EMBTIER_OK);
    share.account = sibling.account = account_open(accounts, ONE);
    other.account = account_open(accounts, TWO);
    account_set_quota(share.account, ACCOUNT_TICKET_BYTES, MIB);
    account_set_quota(share.account, ACCOUNT_PINNED_BYTES, 1000);
    place = ticket_memory_take(memory, &share, MIB / 2, &quota);
    assert_non_null(place);
    assert_int_equal(quota, 0);
    assert_null(ticket_memory_take(memory, &share, MIB, &quota));
    assert_int_equal(quota, MIB);
    assert_null(ticket_memory_take(memory, &sibling, MIB / 2 - 1024, &quota));
    assert_int_equal(quota, MIB); /* a session's part of what is left of the quota */
    assert_null(ticket_memory_take(memory, &share, 64 * MIB, &quota));
    assert_int_equal(quota, 0); /* more than the server has */
    assert_false(ticket_memory_pin(memory, &share, 1001, &part, &quota));
    assert_true(quota == 1000 && part == 1000);
    assert_true(ticket_memory_pin(memory, &share, 1000, &part, &quota));
    assert_int_equal(quota, 0);
    assert_false(ticket_memory_pin(memory, &other, MIB, &part, &quota));
    assert_int_equal(quota, 0);
    ticket_memory_unpin(memory, &share, 1000);
    account_set_quota(share.account, ACCOUNT_TICKET_BYTES, 15 * MIB); /* the part is less */
    assert_null(ticket_memory_take(memory, &share, 14 * MIB, &quota));
    assert_int_equal(quota, 0);
    ticket_memory_give(memory, place);
    account_close(share.account);
    account_close(other.account);
    ticket_memory_free(memory);
    accounts_free(accounts);
}

static void test_accounts_are_listed_in_pages_by_their_numbers(void **state)
{
    static const uid_t uids[] = { 7, 0, UINT32_MAX - 1, 1000, 5 };
    struct accounts *const accounts = make();
    struct account *opened[ARRAY_LEN(uids)];
    struct account_info *infos;
    uint32_t count;
    bool more;

    (void)state;
    accounts_limit(accounts, ACCOUNT_SCANS, 10, 4);
    for (uint32_t i = 0; i < ARRAY_LEN(uids); i++)
        opened[i] = account_open(accounts, uids[i]);
    assert_int_equal(account_take(opened[3], ACCOUNT_SCANS, 2), ACCOUNT_TAKEN);
    assert_int_equal(accounts_page(accounts, 0, 3, &infos, &count, &more), EMBTIER_OK);
    assert_int_equal(count, 3);
    assert_true(more);
    assert_int_equal(infos[0].user, 0);
    assert_int_equal(infos[1].user, 5);
    assert_int_equal(infos[2].user, 7);
    free(infos);
    assert_int_equal(accounts_page(accounts, 8, 3, &infos, &count, &more), EMBTIER_OK);
    assert_int_equal(count, 2);
    assert_false(more);
    assert_int_equal(infos[0].user, 1000);
    assert_int_equal(infos[0].has[ACCOUNT_SCANS], 2);
    assert_int_equal(infos[0].part[ACCOUNT_SCANS], 4);
    assert_int_equal(infos[1].user, UINT32_MAX - 1);
    free(infos);
    assert_int_equal(accounts_page(accounts, UINT64_C(1) << 32, 3, &infos, &count, &more),
                     EMBTIER_OK);
    assert_int_equal(count, 0);
    free(infos);
    account_give(opened[3], ACCOUNT_SCANS, 2);
    for (uint32_t i = 0; i < ARRAY_LEN(uids); i++)
        account_close(opened[i]);
    accounts_free(accounts);
}

#define CHANGES 5000000
#define AMOUNT  100

struct changing {
    struct account *account;
    _Atomic uint32_t changes;
};

static void *change_amounts(void *context)
{
    struct changing *const changing = context;

    for (uint32_t i = 0; i < CHANGES; i++) {
        account_add(changing->account, ACCOUNT_TICKET_BYTES, AMOUNT);
        account_give(changing->account, ACCOUNT_TICKET_BYTES, AMOUNT);
        atomic_store_explicit(&changing->changes, i + 1, memory_order_relaxed);
    }
    return NULL;
}

/* Lists a user while lanes take and give back. No other user holds anything, so this one may have
 * at least three quarters of the total less the amount in transit. */
static void test_what_a_user_may_have_is_told_while_it_changes(void **state)
{
    struct accounts *const accounts = make();
    struct changing changing = { .account = account_open(accounts, ONE) };
    pthread_t thread;
    uint64_t looks = 0;

    (void)state;
    accounts_limit(accounts, ACCOUNT_TICKET_BYTES, 1600, 0);
    assert_int_equal(pthread_create(&thread, NULL, change_amounts, &changing), 0);
    while (atomic_load_explicit(&changing.changes, memory_order_relaxed) < CHANGES || looks == 0) {
        const uint64_t part = account_part(changing.account, ACCOUNT_TICKET_BYTES);

        assert_in_range(part, (1600 - AMOUNT) / 4 * 3, 1600 / 4 * 3);
        looks++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(account_part(changing.account, ACCOUNT_TICKET_BYTES), 1200);
    account_close(changing.account);
    accounts_free(accounts);
}

static void test_a_quota_limits_one_user_only(void **state)
{
    struct accounts *const accounts = make();
    struct account *const one = account_open(accounts, ONE), *const two =
                                                                 account_open(accounts, TWO);
    const char *const key = "socket.max_user_sessions";

    (void)state;
    accounts_limit(accounts, ACCOUNT_SESSIONS, 100, 10);
    account_set_quota(one, ACCOUNT_SESSIONS, 3);
    assert_int_equal(take_all(one, ACCOUNT_SESSIONS), 3);
    assert_int_equal(account_part(one, ACCOUNT_SESSIONS), 3);
    assert_int_equal(accounts_part(accounts, ONE, ACCOUNT_SESSIONS), 3);
    assert_string_equal(account_key(one, ACCOUNT_SESSIONS, key),
                        "quotas.connections of the access file");
    assert_int_equal(take_all(two, ACCOUNT_SESSIONS), 10);
    assert_string_equal(account_key(two, ACCOUNT_SESSIONS, key), key);
    account_set_quota(one, ACCOUNT_SESSIONS, 1); /* less than it has */
    assert_int_equal(account_ask(one, ACCOUNT_SESSIONS, 1), ACCOUNT_USER_HAS);
    account_give(one, ACCOUNT_SESSIONS, 1);
    assert_int_equal(account_ask(one, ACCOUNT_SESSIONS, 1), ACCOUNT_USER_HAS);
    account_set_quota(one, ACCOUNT_SESSIONS, 1000); /* the configuration's limit is less */
    assert_int_equal(account_part(one, ACCOUNT_SESSIONS), 10);
    assert_string_equal(account_key(one, ACCOUNT_SESSIONS, key), key);
    account_set_quota(one, ACCOUNT_SESSIONS, 0);
    assert_int_equal(take_all(one, ACCOUNT_SESSIONS), 8);
    account_give(one, ACCOUNT_SESSIONS, 10);
    account_give(two, ACCOUNT_SESSIONS, 10);
    account_close(one);
    account_close(two);
    accounts_free(accounts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_user_has_one_account_as_long_as_it_is_open),
        cmocka_unit_test(test_a_user_alone_has_three_quarters_and_each_next_one_finds_some),
        cmocka_unit_test(test_small_numbers_are_shared_out_too),
        cmocka_unit_test(test_a_refusal_tells_the_limit_and_the_key),
        cmocka_unit_test(test_a_quota_limits_one_user_only),
        cmocka_unit_test(test_sessions_that_keep_tickets_leave_memory_to_others),
        cmocka_unit_test(test_a_refusal_for_a_quota_is_told_from_others),
        cmocka_unit_test(test_accounts_are_listed_in_pages_by_their_numbers),
        cmocka_unit_test(test_what_a_user_may_have_is_told_while_it_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
