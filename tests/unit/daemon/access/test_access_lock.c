/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how much is done under the access's lock, and that a reload may be interrupted wherever it
 * lets go of that: by a table that gets its name, and by clients that come and go. */
#include "tests/unit/daemon/access/access_fixture.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/macros.h"
#include "daemon/access/access.h"
#include "daemon/access/rights.h"

/* ---- What is done under the lock ---- */

static struct {
    bool is_locked;
    uint64_t matches, locked_matches; /* of users with tables */
    uint64_t replaces, most_replaces; /* of a member's rights, in one hold of the lock */
    uint64_t holds;
} seen;

/* Called when the lock has been given back for the @at-th time. */
static struct {
    uint64_t at;
    void (*act)(void *context);
    void *context;
    bool has_acted;
} interruption;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
bool __real_access_user_has(const struct access_user *user, const char *table);
bool __wrap_access_user_has(const struct access_user *user, const char *table);
void __real_rights_replace(struct rights *rights, enum role role, const uint64_t *granted);
void __wrap_rights_replace(struct rights *rights, enum role role, const uint64_t *granted);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    const int rc = __real_pthread_mutex_lock(mutex);

    assert_false(seen.is_locked);
    seen.is_locked = true;
    seen.replaces = 0;
    return rc;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    const int rc = __real_pthread_mutex_unlock(mutex);

    seen.is_locked = false;
    seen.holds++;
    if (interruption.act && !interruption.has_acted && seen.holds == interruption.at) {
        interruption.has_acted = true;
        interruption.act(interruption.context);
    }
    return rc;
}

bool __wrap_access_user_has(const struct access_user *user, const char *table)
{
    seen.matches++;
    seen.locked_matches += seen.is_locked;
    return __real_access_user_has(user, table);
}

void __wrap_rights_replace(struct rights *rights, enum role role, const uint64_t *granted)
{
    seen.most_replaces = MAX(seen.most_replaces, ++seen.replaces);
    __real_rights_replace(rights, role, granted);
}

/* ---- Access files ---- */

static struct access *new_access(const char *text)
{
    struct access *access = NULL;
    struct err_msg msg = { { 0 } };

    access_fixture_write(&fixture, text);
    if (access_new(fixture.path, NULL, &access, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return access;
}

static void reload(struct access *access, const char *text)
{
    struct err_msg msg = { { 0 } };
    void *fresh = NULL;

    access_fixture_write(&fixture, text);
    if (access_read(access, &fresh, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    access_take(access, fresh);
}

static struct access_member *entered(struct access *access, const char *token)
{
    const struct access_client client = { .token = token };
    struct access_credential credential;
    struct access_member *member = NULL;
    struct err_msg msg = { { 0 } };

    if (access_enter(access, &client, &member, &credential, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return member;
}

static bool may_read(struct access_member *member, uint16_t index)
{
    return rights_allow(access_member_rights(member), index, RIGHTS_READ);
}

#define A_USER(tables) "  - {name: a, role: read, tables: [" tables "], tokens: [\"" HASH_A "\"]}\n"
#define B_USER(tables) "  - {name: b, role: read, tables: [" tables "], tokens: [\"" HASH_B "\"]}\n"

/* ---- Tests ---- */

enum { USERS = 200, PATTERNS = 20, TABLES = 1000 };

static void write_many(char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "users:\n");

    for (uint32_t u = 0; u < USERS; u++) {
        at += (size_t)snprintf(text + at, bytes - at, "  - {name: u%u, role: read, tables: [", u);
        for (uint32_t p = 0; p < PATTERNS; p++)
            at += (size_t)snprintf(text + at, bytes - at, "\"t*_%u\", ", p);
        at += (size_t)snprintf(text + at, bytes - at, "x]}\n");
        assert_true(at < bytes);
    }
}

static void test_no_pattern_is_matched_under_the_lock(void **state)
{
    const size_t bytes = USERS * (PATTERNS + 4) * 16;
    char *const text = malloc(bytes);
    struct access *access;

    (void)state;
    assert_non_null(text);
    write_many(text, bytes);
    access = new_access(text);
    for (uint32_t i = 0; i < TABLES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%" PRIu32 "_%" PRIu32, i, i);
        access_name_table(access, (uint16_t)i, name);
    }
    assert_true(seen.matches >= (uint64_t)USERS * TABLES);
    seen.matches = 0;
    reload(access, text);
    assert_true(seen.matches >= (uint64_t)USERS * TABLES);
    assert_int_equal(seen.locked_matches, 0);
    assert_int_equal(seen.most_replaces, 1);
    access_free(access);
    free(text);
}

static void name_other(void *context)
{
    access_name_table(context, 1, "other");
    access_name_table(context, 70, "other");
}

/* Names change while two users change their grants, one user goes, and one comes. */
static bool name_during_reload(uint64_t at)
{
    struct access *const access =
        new_access("users:\n" A_USER("mine") B_USER("\"*\"") "  - {name: z, role: read}\n");
    struct access_member *const a = entered(access, TOKEN_A), *const b = entered(access, TOKEN_B);

    access_name_table(access, 1, "mine");
    access_name_table(access, 2, "other");
    access_name_table(access, 70, "mine");
    memset(&seen, 0, sizeof(seen));
    interruption.at = at;
    interruption.act = name_other;
    interruption.context = access;
    interruption.has_acted = false;
    reload(access,
           "users:\n  - {name: c, role: read, tables: [other]}\n" B_USER("mine") A_USER("other"));
    interruption.act = NULL;
    if (interruption.has_acted) {
        assert_true(may_read(a, 1) && may_read(a, 2) && may_read(a, 70));
        assert_false(may_read(b, 1) || may_read(b, 2) || may_read(b, 70));
    } else {
        assert_true(!may_read(a, 1) && may_read(a, 2) && !may_read(a, 70));
        assert_true(may_read(b, 1) && !may_read(b, 2) && may_read(b, 70));
    }
    access_leave(access, a);
    access_leave(access, b);
    access_free(access);
    return interruption.has_acted;
}

static void test_a_table_may_get_its_name_at_any_moment_of_a_reload(void **state)
{
    uint64_t at = 1;

    (void)state;
    while (name_during_reload(at))
        at++;
    assert_true(at > RIGHTS_WORDS);
}

static struct {
    struct access *access;
    struct access_member *member;
} visit;

static void leave(void *context)
{
    (void)context;
    access_leave(visit.access, visit.member);
}

static void enter(void *context)
{
    (void)context;
    visit.member = entered(visit.access, TOKEN_A);
}

/* The last session of a user that is gone ends while the user comes back. */
static bool leave_during_reload(uint64_t at)
{
    struct access *const access = new_access("users:\n" A_USER("mine") B_USER("mine"));
    struct access_member *again;

    access_name_table(access, 1, "mine");
    visit.access = access;
    visit.member = entered(access, TOKEN_A);
    reload(access, "users:\n" B_USER("mine"));
    assert_false(may_read(visit.member, 1));
    memset(&seen, 0, sizeof(seen));
    interruption.at = at;
    interruption.act = leave;
    interruption.has_acted = false;
    reload(access, "users:\n" A_USER("mine"));
    interruption.act = NULL;
    again = entered(access, TOKEN_A);
    assert_true(may_read(again, 1));
    access_leave(access, again);
    if (!interruption.has_acted)
        access_leave(access, visit.member);
    reload(access, "users:\n" B_USER("mine"));
    access_free(access);
    return interruption.has_acted;
}

/* A client comes while its user's grants change. */
static bool enter_during_reload(uint64_t at)
{
    struct access *const access = new_access("users:\n" A_USER("mine"));

    access_name_table(access, 1, "mine");
    access_name_table(access, 2, "other");
    visit.access = access;
    memset(&seen, 0, sizeof(seen));
    interruption.at = at;
    interruption.act = enter;
    interruption.has_acted = false;
    reload(access, "users:\n" B_USER("mine") A_USER("other"));
    interruption.act = NULL;
    if (interruption.has_acted) {
        assert_true(!may_read(visit.member, 1) && may_read(visit.member, 2));
        access_leave(access, visit.member);
    }
    access_free(access);
    return interruption.has_acted;
}

static void test_clients_may_come_and_go_at_any_moment_of_a_reload(void **state)
{
    uint64_t at;

    (void)state;
    for (at = 1; leave_during_reload(at); at++)
        continue;
    assert_true(at > RIGHTS_WORDS);
    for (at = 1; enter_during_reload(at); at++)
        continue;
    assert_true(at > RIGHTS_WORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
        T(test_no_pattern_is_matched_under_the_lock),
        T(test_a_table_may_get_its_name_at_any_moment_of_a_reload),
        T(test_clients_may_come_and_go_at_any_moment_of_a_reload),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
