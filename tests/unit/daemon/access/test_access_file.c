/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an access file means what it says, that each mistake in it is told with its place, and
 * that a client is the user that the file says. */
#include "tests/unit/daemon/access/access_fixture.h"

#include <grp.h>
#include <pwd.h>

#include "base/macros.h"

#define USER(name) "users:\n  - name: " name "\n"

static struct access_rules *loaded(const char *text)
{
    struct access_rules *rules = NULL;
    struct err_msg msg = { { 0 } };

    access_fixture_write(&fixture, text);
    if (access_rules_load(fixture.path, NULL, &rules, &msg) != EMBTIER_OK)
        fail_msg("%s\n%s", text, msg.text);
    return rules;
}

/* @place is what follows the file's name, up to the fault. */
static void assert_mistake(const char *text, const char *place, const char *words)
{
    struct access_rules *rules = NULL;
    struct err_msg msg = { { 0 } };
    char wanted[256];

    access_fixture_write(&fixture, text);
    assert_int_equal(access_rules_load(fixture.path, NULL, &rules, &msg), EMBTIER_CONFIG);
    assert_null(rules);
    snprintf(wanted, sizeof(wanted), "%s:%s", fixture.path, place);
    if (strncmp(msg.text, wanted, strlen(wanted)) != 0 || !strstr(msg.text, words))
        fail_msg("\n got: %s\nwant: %s … %s", msg.text, wanted, words);
}

/* ---- What the file says ---- */

static void test_all_keys_are_read(void **state)
{
    struct access_rules *const rules =
        loaded("users:\n"
               "  - name: trainer-a\n"
               "    role: train\n"
               "    tables: [\"ads_*\", users]\n"
               "    unix_users: [1001, root]\n"
               "    unix_groups: [7, root]\n"
               "    certificates: [\"CN=trainer-a\", \"DNS:t.example.org\", \"URI:spiffe://x/y\", "
               "\"EMAIL:a@b\"]\n"
               "    tokens: [\"" HASH_A "\", \"" HASH_B "\"]\n"
               "    quotas: {connections: 3, arena_bytes: 64MiB, requests_per_second: 100}\n"
               "  - {name: boss@home.example, role: admin}\n");
    const struct access_user *const user = &rules->users[0];

    (void)state;
    assert_int_equal(rules->user_count, 2);
    assert_string_equal(user->name, "trainer-a");
    assert_int_equal(user->role, ROLE_TRAIN);
    assert_false(user->has_all);
    assert_int_equal(user->pattern_count, 2);
    assert_int_equal(user->uid_count, 2);
    assert_int_equal(user->uids[0], 1001);
    assert_int_equal(user->uids[1], 0);
    assert_int_equal(user->gid_count, 2);
    assert_int_equal(user->gids[0], 7);
    assert_int_equal(user->gids[1], 0);
    assert_int_equal(user->certificate_count, 4);
    assert_int_equal(user->token_count, 2);
    assert_int_equal(user->quotas[QUOTA_connections], 3);
    assert_int_equal(user->quotas[QUOTA_arena_bytes], 64 * MIB);
    assert_int_equal(user->quotas[QUOTA_ticket_bytes], 0);
    assert_int_equal(user->quotas[QUOTA_requests_per_second], 100);
    assert_true(rules->users[1].has_all);
    access_rules_free(rules);
}

static const struct {
    const char *text, *place, *words;
} mistakes[] = {
    { "", "1: users", "names no users" },
    { "users:\n", "1: users", "" },
    { "users: []\n", "1: users", "" },
    { "users: {}\n", "1: users", "" },
    { "user:\n  - {name: a, role: read}\n", "1: user", "" },
    { "users:\n  - {role: read}\n", "2: users[0].name", "is missing" },
    { "users:\n  - {name: a}\n", "2: users[0].role", "is missing" },
    { "users:\n  - {name: , role: read}\n", "2: users[0].name", "" },
    { USER("1a") "    role: read\n", "2: users[0].name", "a letter first" },
    { USER("-a") "    role: read\n", "2: users[0].name", "a letter first" },
    { USER("\"a b\"") "    role: read\n", "2: users[0].name", "`a b`" },
    { USER("a123456789b123456789c123456789d123456789e123456789f123456789g1234") "    role: "
                                                                                "read\n",
      "2: users[0].name", "1 to 64" },
    { USER("a") "    role: Admin\n", "3: users[0].role", "`Admin`; allowed: read, train, admin" },
    { USER("a") "    role: none\n", "3: users[0].role", "read, train, admin" },
    { USER("a") "    role: read\n    role: admin\n", "4: users[0].role", "" },
    { USER("a") "    role: read\n    rights: all\n", "4: users[0].rights", "" },
    { USER("a") "    role: read\n  - {name: a, role: read}\n", "4: users[1].name",
      "an earlier user" },
    /* An empty list could mean all tables or none. */
    { USER("a") "    role: read\n    tables: []\n", "4: users[0].tables", "" },
    { USER("a") "    role: read\n    tables:\n", "4: users[0].tables", "" },
    { USER("a") "    role: read\n    tables: null\n", "4: users[0].tables", "" },
    { USER("a") "    role: read\n    tables: ads\n", "4: users[0].tables", "" },
    { USER("a") "    role: read\n    tables: [\"a[bc]\"]\n", "4: users[0].tables[0]",
      "matches no table" },
    { USER("a") "    role: read\n    tables: [ok, \"\"]\n", "4: users[0].tables[1]", "is empty" },
    { USER("a") "    role: read\n    unix_users: [-1]\n", "4: users[0].unix_users[0]",
      "no user of this machine" },
    { USER("a") "    role: read\n    unix_users: [4294967295]\n", "4: users[0].unix_users[0]",
      "`4294967295`" },
    { USER("a") "    role: read\n    unix_users: [18446744073709551617]\n",
      "4: users[0].unix_users[0]", "no user" },
    { USER("a") "    role: read\n    unix_users: [nobody-has-this-name]\n",
      "4: users[0].unix_users[0]", "`nobody-has-this-name` is no user of this machine" },
    { USER("a") "    role: read\n    unix_groups: [no-such-group]\n", "4: users[0].unix_groups[0]",
      "is no group of this machine" },
    { USER("a") "    role: read\n    unix_users: [7]\n"
                "  - {name: b, role: read, unix_users: [8, 7]}\n",
      "5: users[1].unix_users[1]", "the user 7 is a's already" },
    { USER("a") "    role: read\n    certificates: [trainer]\n", "4: users[0].certificates[0]",
      "allowed: CN=NAME" },
    { USER("a") "    role: read\n    certificates: [\"CN=\"]\n", "4: users[0].certificates[0]",
      "allowed: CN=NAME" },
    { USER("a") "    role: read\n    certificates: [\"CN=x\"]\n"
                "  - {name: b, role: read, certificates: [\"CN=x\"]}\n",
      "5: users[1].certificates[0]", "is a's already" },
    { USER("a") "    role: read\n    tokens: [\"" HASH_A "\"]\n"
                "  - {name: b, role: read, tokens: [\"" HASH_A "\"]}\n",
      "5: users[1].tokens[0]", "is a's already" },
    { USER("a") "    role: read\n    tokens: [\"" HASH_A "\", \"" HASH_B "\", \"" HASH_A "\"]\n",
      "4: users[0].tokens", "" },
    { USER("a") "    role: read\n    tokens: [\"" HEX_A "\"]\n", "4: users[0].tokens[0]",
      "no hash of a token" },
    { USER("a") "    role: read\n    tokens: [\"" HASH_A "0\"]\n", "4: users[0].tokens[0]",
      "no hash of a token" },
    { USER("a") "    role: read\n    tokens: [\"sha256:0\"]\n", "4: users[0].tokens[0]",
      "no hash of a token" },
    { USER("a") "    role: read\n    quotas: {connections: 0}\n", "4: users[0].quotas.connections",
      "`0`; allowed: a number, at least 1" },
    { USER("a") "    role: read\n    quotas: {connections: 1.5}\n",
      "4: users[0].quotas.connections", "at least 1" },
    { USER("a") "    role: read\n    quotas: {arena_bytes: many}\n",
      "4: users[0].quotas.arena_bytes", "a number of bytes" },
    { USER("a") "    role: read\n    quotas: {ticket_bytes: 0}\n",
      "4: users[0].quotas.ticket_bytes", "a number of bytes" },
    { USER("a") "    role: read\n    quotas: {requests_per_second: 4294967296}\n",
      "4: users[0].quotas.requests_per_second", "at least 1" },
    { USER("a") "    role: read\n    quotas: {sessions: 1}\n", "4: users[0].quotas.sessions", "" },
    { USER("a") "    role: read\n    quotas:\n", "4: users[0].quotas", "" },
    { "users: [\n", "2", "" },
};

static void test_mistakes_are_told_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++)
        assert_mistake(mistakes[i].text, mistakes[i].place, mistakes[i].words);
}

/* A token that was put in place of its hash is a secret. */
static void test_a_token_in_the_file_is_refused_and_not_shown(void **state)
{
    struct access_rules *rules = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    access_fixture_write(&fixture, USER("a") "    role: read\n    tokens: [" TOKEN_A "]\n");
    assert_int_equal(access_rules_load(fixture.path, NULL, &rules, &msg), EMBTIER_CONFIG);
    assert_null(strstr(msg.text, "embt_"));
    assert_non_null(strstr(msg.text, "sha256:"));
}

static enum embtier_err load(struct err_msg *msg)
{
    struct access_rules *rules = NULL;
    const enum embtier_err err = access_rules_load(fixture.path, NULL, &rules, msg);

    access_rules_free(rules);
    return err;
}

static void test_a_file_that_others_may_write_is_refused(void **state)
{
    static const struct {
        mode_t mode;
        gid_t gid;
        enum embtier_err err;
    } cases[] = {
        { 0600, 0, EMBTIER_OK },
        { 0644, 0, EMBTIER_OK },
        { 0660, 0, EMBTIER_OK }, /* root's group */
        { 0646, 0, EMBTIER_PERMISSION },
        { 0602, 0, EMBTIER_PERMISSION },
        { 0660, 1234, EMBTIER_PERMISSION },
        { 0640, 1234, EMBTIER_OK },
    };
    struct err_msg msg = { { 0 } };

    (void)state;
    access_fixture_write(&fixture, USER("a") "    role: read\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].gid != 0 && chown(fixture.path, (uid_t)-1, cases[i].gid) != 0)
            continue; /* only root can */
        assert_int_equal(chmod(fixture.path, cases[i].mode), 0);
        assert_int_equal(load(&msg), cases[i].err);
        if (cases[i].err != EMBTIER_OK)
            assert_non_null(strstr(msg.text, "chmod it to 0640"));
    }
    if (geteuid() == 0) {
        assert_int_equal(chown(fixture.path, 1234, 0), 0);
        assert_int_equal(chmod(fixture.path, 0600), 0);
        assert_int_equal(load(&msg), EMBTIER_PERMISSION);
        assert_non_null(strstr(msg.text, "belongs to a user"));
    }
    assert_int_equal(unlink(fixture.path), 0);
    assert_int_equal(load(&msg), EMBTIER_CONFIG);
    assert_int_equal(mkfifo(fixture.path, 0600), 0);
    assert_int_equal(load(&msg), EMBTIER_CONFIG); /* and does not wait */
}

/* ---- Patterns and clients ---- */

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        { "users", "users", true },
        { "users", "users2", false },
        { "users", "user", false },
        { "*", "anything", true },
        { "ads_*", "ads_", true },
        { "ads_*", "ads_x", true },
        { "ads_*", "ad_x", false },
        { "*_ads", "x_ads", true },
        { "*_ads", "x_ads_", false },
        { "a?c", "abc", true },
        { "a?c", "ac", false },
        { "a*b*c", "a_b_b_c", true },
        { "a*b*c", "a_c_b", false },
        { "**", "x", true },
        { "?*", "x", true },
        { "??*", "x", false },
        { "a.b", "axb", false },
        { "*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (access_pattern_matches(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("%s %s", cases[i].pattern, cases[i].name);
}

static const char *found(const struct access_rules *rules, const struct access_client *client)
{
    struct access_credential credential;
    const struct access_user *const user = access_rules_find(rules, client, &credential);

    return user ? user->name : "none";
}

static void test_a_client_is_the_user_that_the_file_says(void **state)
{
    static const gid_t gids[] = { 100, 50, 60 };
    struct access_rules *const rules =
        loaded("users:\n"
               "  - {name: by_group, role: read, unix_groups: [60, 61]}\n"
               "  - {name: by_other_group, role: read, unix_groups: [50]}\n"
               "  - {name: by_uid, role: read, unix_users: [1000]}\n"
               "  - {name: by_certificate, role: read, certificates: [\"DNS:b\", \"CN=c\"]}\n"
               "  - {name: by_token, role: read, tokens: [\"" HASH_A "\", \"" HASH_B "\"]}\n");
    const struct {
        struct access_client client;
        const char *name;
    } cases[] = {
        { { .is_local = true, .uid = 1000, .token = "" }, "by_uid" },
        { { .is_local = true, .uid = 1000, .gids = gids, .gid_count = 3, .token = "" }, "by_uid" },
        { { .is_local = true, .uid = 1, .gids = gids, .gid_count = 3, .token = "" }, "by_group" },
        { { .is_local = true, .uid = 1, .gids = gids, .gid_count = 2, .token = "" },
          "by_other_group" },
        { { .is_local = true, .uid = 1, .gids = gids, .gid_count = 1, .token = "" }, "none" },
        { { .uid = 1000, .gids = gids, .gid_count = 3, .token = "" }, "none" }, /* over TCP */
        { { .is_local = true, .uid = 1000, .token = TOKEN_A }, "by_token" },
        { { .token = TOKEN_B }, "by_token" },
        { { .is_local = true, .uid = 1000, .token = TOKEN_C }, "none" },
        { { .is_local = true, .uid = 1000, .token = "embt_" }, "none" },
        { { .token = TOKEN_A "A" }, "none" },
        { { .certificate_names = "CN=a\0DNS:b\0", .token = "" }, "by_certificate" },
        { { .certificate_names = "CN=c\0", .token = "" }, "by_certificate" },
        { { .certificate_names = "CN=b\0DNS:c\0CN=cc\0", .token = "" }, "none" },
        { { .certificate_names = "CN=c\0", .token = TOKEN_A }, "by_token" },
        { { .certificate_names = "CN=c\0", .token = TOKEN_C }, "none" },
        { { .certificate_names = "", .token = "" }, "none" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(found(rules, &cases[i].client), cases[i].name);
    access_rules_free(rules);
}

/* ---- Time ---- */

static unsigned compared;

int __real_CRYPTO_memcmp(const void *a, const void *b, size_t bytes);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t bytes);

int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t bytes)
{
    assert_int_equal(bytes, sizeof(struct token_hash));
    compared++;
    return __real_CRYPTO_memcmp(a, b, bytes);
}

/* Any other comparison, or an end at the first match, would tell by its time which hash is near. */
static void test_a_token_is_compared_with_the_whole_of_each_hash(void **state)
{
    struct access_rules *const rules =
        loaded("users:\n"
               "  - {name: first, role: read, tokens: [\"" HASH_A "\"]}\n"
               "  - {name: other, role: read, unix_users: [1000]}\n"
               "  - {name: last, role: read, tokens: [\"" HASH_B "\", \"" HASH_C "\"]}\n");
    static const struct {
        const char *token, *name;
    } cases[] = {
        { TOKEN_A, "first" },
        { TOKEN_B, "last" },
        { TOKEN_C, "last" },
        { "embt_DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD", "none" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct access_client client = { .token = cases[i].token };

        compared = 0;
        assert_string_equal(found(rules, &client), cases[i].name);
        assert_int_equal(compared, 3);
    }
    access_rules_free(rules);
}

static void test_a_token_has_one_form(void **state)
{
    static const char *const wrong[] = { "",
                                         "embt_",
                                         "embt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                         TOKEN_A "A",
                                         TOKEN_A "\n",
                                         "embt-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                         "embt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" };
    struct token_hash a, b, read;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(token_hash_of(wrong[i], &a));
    assert_true(token_hash_of(TOKEN_A, &a));
    assert_true(token_hash_of(TOKEN_B, &b));
    assert_true(token_hash_of(TOKEN_C, &read));
    assert_true(token_hash_parse(HASH_A, &read));
    assert_true(token_hash_equal(&a, &read));
    assert_false(token_hash_equal(&a, &b));
    b = a;
    b.text[TOKEN_HASH_BYTES - 1] ^= 1; /* all bytes count */
    assert_false(token_hash_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
        T(test_all_keys_are_read),
        T(test_mistakes_are_told_with_their_place),
        T(test_a_token_in_the_file_is_refused_and_not_shown),
        T(test_a_file_that_others_may_write_is_refused),
        T(test_patterns),
        T(test_a_client_is_the_user_that_the_file_says),
        T(test_a_token_is_compared_with_the_whole_of_each_hash),
        T(test_a_token_has_one_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
