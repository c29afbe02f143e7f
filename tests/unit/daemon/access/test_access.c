/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that members have the rights of the file that is in force, also while it is reloaded and
 * tables come and go. */
#include "tests/unit/daemon/access/access_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/macros.h"
#include "daemon/access/access.h"
#include "daemon/access/rights.h"
#include "proto/control.pb-c.h"

#define A_USER(role, tables)                                                                       \
    "users:\n  - {name: a, role: " role ", tables: [" tables "], tokens: [\"" HASH_A "\"]}\n"
#define B_USER "  - {name: b, role: admin, tokens: [\"" HASH_B "\"]}\n"

static struct access *new_access(const char *text)
{
    struct access *access = NULL;
    struct err_msg msg = { { 0 } };

    access_fixture_write(&fixture, text);
    if (access_new(fixture.path, NULL, &access, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return access;
}

static struct access_member *entered(struct access *access, const char *token)
{
    const struct access_client client = { .token = token };
    struct access_member *member = NULL;
    struct access_credential credential;
    struct err_msg msg = { { 0 } };

    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_OK);
    assert_non_null(member);
    return member;
}

static enum embtier_err reload(struct access *access, const char *text)
{
    struct err_msg msg = { { 0 } };
    void *fresh = NULL;
    enum embtier_err err;

    access_fixture_write(&fixture, text);
    err = access_read(access, &fresh, &msg);
    if (err == EMBTIER_OK)
        access_take(access, fresh);
    return err;
}

static bool may(struct access_member *member, uint16_t index, enum rights_use use)
{
    return rights_allow(access_member_rights(member), index, use);
}

/* ---- Members ---- */

static void test_without_a_file_all_may_do_all(void **state)
{
    const struct access_client client = { .token = TOKEN_A };
    struct access_member *member = (struct access_member *)&client;
    struct access *access = NULL;
    struct access_credential credential;
    struct err_msg msg = { { 0 } };

    (void)state;
    access_fixture_write(&fixture, "");
    assert_int_equal(access_new(NULL, NULL, &access, &msg), EMBTIER_OK);
    access_name_table(access, 7, "t");
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_OK);
    assert_null(member);
    assert_true(may(member, 65535, RIGHTS_CHANGE));
    assert_true(access_has_whole(access, member));
    assert_int_equal(access_check(access, member,
                                  operation_of_body(EMBTIER__REQUEST__BODY_PLAN_BEGIN), NULL, NULL,
                                  &msg),
                     EMBTIER_OK);
    access_free(access);
}

static void test_root_may_all_unless_it_shows_a_token(void **state)
{
    struct access *const access = new_access(A_USER("read", "x"));
    struct access_client client = { .is_local = true, .uid = 0, .token = "" };
    struct access_member *member = NULL;
    struct access_credential credential;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_OK);
    assert_null(member);
    client.uid = geteuid();
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_OK);
    assert_null(member);
    client.token = TOKEN_A;
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_OK);
    assert_string_equal(access_member_name(member), "a");
    access_leave(access, member);
    client.token = TOKEN_B;
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_PERMISSION);
    assert_null(strstr(msg.text, "embt_"));
    client = (struct access_client){ .is_local = false, .uid = 0, .token = "" };
    assert_int_equal(access_enter(access, &client, &member, &credential, &msg), EMBTIER_PERMISSION);
    access_free(access);
}

static void test_each_user_has_an_account_of_its_own(void **state)
{
    struct access *const access = new_access(A_USER("read", "x") B_USER);
    struct access_member *const a = entered(access, TOKEN_A), *const b = entered(access, TOKEN_B),
                                *const again = entered(access, TOKEN_A);
    char name[ACCESS_NAME_MAX + 1];

    (void)state;
    assert_ptr_equal(a, again);
    assert_true(access_member_account(a) > UINT32_MAX); /* no Unix user's */
    assert_true(access_member_account(a) != access_member_account(b));
    access_account_name(access, access_member_account(b), name);
    assert_string_equal(name, "b");
    access_account_name(access, 0, name);
    assert_string_equal(name, "");
    access_leave(access, a);
    access_leave(access, again);
    access_leave(access, b);
    access_free(access);
}

/* ---- Tables ---- */

static void test_bits_follow_names(void **state)
{
    struct access *const access = new_access(A_USER("read", "\"ads_*\"") B_USER);
    struct access_member *const a = entered(access, TOKEN_A), *const b = entered(access, TOKEN_B);

    (void)state;
    access_name_table(access, 5, "ads_1");
    access_name_table(access, 65534, "ads_2");
    access_name_table(access, 6, "users");
    assert_true(may(a, 5, RIGHTS_READ) && may(a, 65534, RIGHTS_READ));
    assert_false(may(a, 5, RIGHTS_CHANGE) || may(a, 6, RIGHTS_READ) || may(a, 4, RIGHTS_READ));
    assert_true(may(b, 5, RIGHTS_CHANGE) && may(b, 6, RIGHTS_CHANGE));
    access_name_table(access, 5, "users"); /* the first was dropped, and its place used again */
    assert_false(may(a, 5, RIGHTS_READ));
    assert_true(may(b, 5, RIGHTS_READ));
    assert_true(access_has_table(access, a, "ads_3"));
    assert_false(access_has_table(access, a, "users"));
    access_leave(access, a);
    access_leave(access, b);
    access_free(access);
}

/* ---- Reloads ---- */

static void test_a_reload_changes_members(void **state)
{
    struct access *const access = new_access(A_USER("read", "x"));
    struct access_member *const a = entered(access, TOKEN_A);
    const uint64_t account = access_member_account(a);
    struct access_stats stats;

    (void)state;
    access_name_table(access, 1, "x");
    access_name_table(access, 2, "y");
    assert_int_equal(reload(access, A_USER("train", "y") B_USER), EMBTIER_OK);
    assert_false(may(a, 1, RIGHTS_READ));
    assert_true(may(a, 2, RIGHTS_CHANGE));
    assert_int_equal(access_member_role(a), ROLE_TRAIN);
    assert_int_equal(access_member_account(a), account);
    access_leave(access, entered(access, TOKEN_B));
    access_stats(access, &stats);
    assert_int_equal(stats.users, 2);
    access_leave(access, a);
    access_free(access);
}

static void test_a_bad_file_changes_nothing(void **state)
{
    struct access *const access = new_access(A_USER("train", "x"));
    struct access_member *const a = entered(access, TOKEN_A);
    struct access_stats stats;

    (void)state;
    access_name_table(access, 1, "x");
    assert_int_equal(reload(access, A_USER("nothing", "y")), EMBTIER_CONFIG);
    assert_true(may(a, 1, RIGHTS_CHANGE));
    assert_int_equal(access_member_role(a), ROLE_TRAIN);
    access_leave(access, entered(access, TOKEN_A));
    access_name_table(access, 1, "y"); /* no rules are left half way */
    assert_false(may(a, 1, RIGHTS_READ));
    access_stats(access, &stats);
    assert_int_equal(stats.users, 1);
    access_leave(access, a);
    access_free(access);
}

/* Another part of a reload may be wrong. */
static void test_a_reload_that_is_dropped_changes_nothing(void **state)
{
    struct access *const access = new_access(A_USER("read", "x"));
    struct access_member *const a = entered(access, TOKEN_A);
    struct err_msg msg = { { 0 } };
    void *fresh = NULL;

    (void)state;
    access_name_table(access, 1, "x");
    access_fixture_write(&fixture, A_USER("admin", "y") B_USER);
    assert_int_equal(access_read(access, &fresh, &msg), EMBTIER_OK);
    access_name_table(access, 2, "y");
    assert_false(may(a, 2, RIGHTS_READ));
    access_drop(access, fresh);
    assert_true(may(a, 1, RIGHTS_READ));
    assert_int_equal(access_member_role(a), ROLE_READ);
    assert_int_equal(reload(access, A_USER("admin", "y")), EMBTIER_OK);
    assert_true(may(a, 2, RIGHTS_CHANGE));
    access_leave(access, a);
    access_free(access);
}

static void test_a_user_that_is_gone_may_nothing_and_comes_back(void **state)
{
    struct access *const access = new_access(A_USER("admin", "\"*\"") B_USER);
    struct access_member *const a = entered(access, TOKEN_A), *const b = entered(access, TOKEN_B);
    const struct operation *const status = operation_of_body(EMBTIER__REQUEST__BODY_STATUS);
    const struct access_client client = { .token = TOKEN_A };
    struct access_member *none = NULL;
    struct access_credential credential;
    struct err_msg msg = { { 0 } };

    (void)state;
    access_name_table(access, 1, "x");
    assert_int_equal(access_check(access, a, status, NULL, NULL, &msg), EMBTIER_OK);
    assert_int_equal(reload(access, "users:\n" B_USER), EMBTIER_OK);
    assert_false(may(a, 1, RIGHTS_READ) || access_has_whole(access, a));
    assert_true(may(b, 1, RIGHTS_READ));
    assert_int_equal(access_check(access, a, status, NULL, NULL, &msg), EMBTIER_PERMISSION);
    assert_non_null(strstr(msg.text, "'a' is no longer"));
    assert_int_equal(access_enter(access, &client, &none, &credential, &msg), EMBTIER_PERMISSION);
    assert_int_equal(reload(access, A_USER("read", "x") B_USER), EMBTIER_OK);
    assert_true(may(a, 1, RIGHTS_READ));
    assert_int_equal(reload(access, "users:\n" B_USER), EMBTIER_OK);
    access_leave(access, a); /* the last: the member is freed */
    assert_int_equal(reload(access, A_USER("read", "x") B_USER), EMBTIER_OK);
    access_leave(access, entered(access, TOKEN_A));
    access_leave(access, b);
    access_free(access);
}

/* A client of each kind, and whether it is the same user still when the file says otherwise. */
static void test_a_credential_leads_to_its_user_until_a_file_says_otherwise(void **state)
{
    static const gid_t gids[] = { 100, 60 };
    static const struct {
        struct access_client client;
        const char *keys; /* of user a, in the first file */
        const char *more; /* in the second */
        bool is_kept;
    } cases[] = {
        { { .token = TOKEN_A }, "tokens: [\"" HASH_A "\"]", "tokens: [\"" HASH_A "\"]", true },
        { { .token = TOKEN_A }, "tokens: [\"" HASH_A "\"]", "tokens: [\"" HASH_B "\"]", false },
        { { .certificate_names = "CN=x\0DNS:y\0", .token = "" },
          "certificates: [\"DNS:y\"]",
          "certificates: [\"CN=z\", \"DNS:y\"]",
          true },
        { { .certificate_names = "CN=x\0DNS:y\0", .token = "" },
          "certificates: [\"DNS:y\"]",
          "certificates: [\"DNS:z\"]",
          false },
        { { .is_local = true, .uid = 9, .token = "" },
          "unix_users: [9]",
          "unix_users: [8, 9]",
          true },
        { { .is_local = true, .uid = 9, .token = "" },
          "unix_users: [9]",
          "unix_users: [8]",
          false },
        { { .is_local = true, .uid = 9, .gids = gids, .gid_count = 2, .token = "" },
          "unix_groups: [60]",
          "unix_groups: [60]",
          true },
        { { .is_local = true, .uid = 9, .gids = gids, .gid_count = 2, .token = "" },
          "unix_groups: [60]",
          "unix_groups: [61]",
          false },
    };
    static const char other[] = "users:\n  - {name: z, role: read, unix_users: [7]}\n";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct access_credential credential;
        struct access_member *member = NULL;
        struct err_msg msg = { { 0 } };
        struct access *access;
        char text[512];

        snprintf(text, sizeof(text), "users:\n  - {name: a, role: read, %s}\n", cases[i].keys);
        access = new_access(text);
        assert_int_equal(access_enter(access, &cases[i].client, &member, &credential, &msg),
                         EMBTIER_OK);
        assert_int_equal(access_check_credential(access, member, &credential, &msg), EMBTIER_OK);
        snprintf(text, sizeof(text), "%s  - {name: a, role: admin, %s}\n", other, cases[i].more);
        assert_int_equal(access_taken(access), 1);
        assert_int_equal(reload(access, text), EMBTIER_OK);
        assert_int_equal(access_taken(access), 2);
        assert_int_equal(access_check_credential(access, member, &credential, &msg),
                         cases[i].is_kept ? EMBTIER_OK : EMBTIER_PERMISSION);
        snprintf(text, sizeof(text), "users:\n  - {name: b, role: read, %s}\n", cases[i].keys);
        assert_int_equal(reload(access, text), EMBTIER_OK);
        assert_int_equal(access_check_credential(access, member, &credential, &msg),
                         EMBTIER_PERMISSION);
        assert_non_null(strstr(msg.text, "is no longer that of user 'a'"));
        access_leave(access, member);
        access_free(access);
    }
}

/* ---- Checks ---- */

static void assert_told(struct access *access, struct access_member *member,
                        Embtier__Request *request, uint32_t body, const char *words)
{
    struct err_msg msg = { { 0 } };

    request->body_case = (Embtier__Request__BodyCase)body;
    assert_int_equal(access_check(access, member, operation_of_body(body), request, NULL, &msg),
                     words ? EMBTIER_PERMISSION : EMBTIER_OK);
    if (words && !strstr(msg.text, words))
        fail_msg("\n got: %s\nwant: %s", msg.text, words);
}

static void test_a_refusal_names_operation_roles_and_table(void **state)
{
    struct access *const access =
        new_access("users:\n"
                   "  - {name: reader, role: read, tables: [x], tokens: [\"" HASH_A "\"]}\n"
                   "  - {name: half, role: admin, tables: [x, z], tokens: [\"" HASH_B "\"]}\n");
    struct access_member *const reader = entered(access, TOKEN_A), *const half =
                                                                       entered(access, TOKEN_B);
    char x[] = "x", y[] = "y", empty[] = "";
    char *tables[] = { x };
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;
    Embtier__CheckpointRestore restore = EMBTIER__CHECKPOINT_RESTORE__INIT;
    Embtier__TableDrop drop = EMBTIER__TABLE_DROP__INIT;
    struct err_msg msg = { { 0 } };

    (void)state;
    request.table_open = &open;
    open.name = x;
    assert_told(access, reader, &request, EMBTIER__REQUEST__BODY_TABLE_OPEN, NULL);
    open.name = y;
    assert_told(access, reader, &request, EMBTIER__REQUEST__BODY_TABLE_OPEN,
                "table open: table 'y' is not granted to user 'reader' (its role is read)");
    request.table_drop = &drop;
    drop.name = x;
    assert_told(access, reader, &request, EMBTIER__REQUEST__BODY_TABLE_DROP,
                "table drop needs role admin, and user 'reader' has role read");
    assert_told(access, half, &request, EMBTIER__REQUEST__BODY_TABLE_DROP, NULL);
    assert_told(
        access, half, &request, EMBTIER__REQUEST__BODY_PLAN_BEGIN,
        "plan begin is about all tables, and user 'half' (role admin) is granted only some");
    request.checkpoint_restore = &restore;
    restore.name = empty;
    assert_told(access, half, &request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE,
                "is about all tables");
    restore.tables = tables;
    restore.n_tables = 1;
    assert_told(access, half, &request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, NULL);
    restore.name = y;
    assert_told(access, half, &request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, "table 'y'");
    assert_int_equal(access_check(access, half, operation_of_body(EMBTIER__REQUEST__BODY_LOAD_ROWS),
                                  NULL, "y", &msg),
                     EMBTIER_PERMISSION);
    assert_int_equal(access_check(access, half, operation_of_body(EMBTIER__REQUEST__BODY_LOAD_ROWS),
                                  NULL, "x", &msg),
                     EMBTIER_OK);
    /* Nobody may do what has no rule. */
    assert_int_equal(access_check(access, NULL, NULL, NULL, NULL, &msg), EMBTIER_PERMISSION);
    assert_int_equal(access_check(access, half, NULL, NULL, NULL, &msg), EMBTIER_PERMISSION);
    access_leave(access, reader);
    access_leave(access, half);
    access_free(access);
}

/* ---- Threads ---- */

/* A table is either granted for reading alone or not at all, in all files. While files are
 * reloaded, and the table's place is used by another, no thread sees more. */
static _Atomic bool is_over;

static void *look(void *context)
{
    struct access_member *const member = context;
    bool more = false;

    while (!atomic_load(&is_over))
        more |= may(member, 1, RIGHTS_CHANGE) || may(member, 2, RIGHTS_READ) ||
                may(member, 3, RIGHTS_READ);
    return more ? context : NULL;
}

static void *name_tables(void *context)
{
    while (!atomic_load(&is_over)) {
        access_name_table(context, 3, "other");
        access_name_table(context, 4, "mine");
        access_name_table(context, 4, "other");
    }
    return NULL;
}

static void test_no_thread_sees_more_than_one_of_the_files_grants(void **state)
{
    static const char *const files[] = { A_USER("read", "mine"), A_USER("train", "theirs"),
                                         "users:\n" B_USER, A_USER("read", "mine, theirs") };
    struct access *const access = new_access(files[0]);
    struct access_member *const a = entered(access, TOKEN_A);
    pthread_t looker, namer;
    void *more = NULL;

    (void)state;
    atomic_store(&is_over, false);
    access_name_table(access, 1, "mine");
    access_name_table(access, 2, "other");
    assert_int_equal(pthread_create(&looker, NULL, look, a), 0);
    assert_int_equal(pthread_create(&namer, NULL, name_tables, access), 0);
    for (uint32_t round = 0; round < 200; round++)
        assert_int_equal(reload(access, files[round % ARRAY_LEN(files)]), EMBTIER_OK);
    atomic_store(&is_over, true);
    pthread_join(looker, &more);
    pthread_join(namer, NULL);
    assert_null(more);
    access_leave(access, a);
    access_free(access);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
        T(test_without_a_file_all_may_do_all),
        T(test_root_may_all_unless_it_shows_a_token),
        T(test_each_user_has_an_account_of_its_own),
        T(test_bits_follow_names),
        T(test_a_reload_changes_members),
        T(test_a_bad_file_changes_nothing),
        T(test_a_reload_that_is_dropped_changes_nothing),
        T(test_a_user_that_is_gone_may_nothing_and_comes_back),
        T(test_a_credential_leads_to_its_user_until_a_file_says_otherwise),
        T(test_a_refusal_names_operation_roles_and_table),
        T(test_no_thread_sees_more_than_one_of_the_files_grants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
