/* SPDX-License-Identifier: Apache-2.0 */
/* Access files (daemon/access/access_rules.h): a file that is taken has users, each of whose
 * credentials leads to it, and is granted the tables that its patterns match. Patterns are matched
 * here in another way. A file that is taken may be put in force, and again. */
#include "tests/fuzz/lib/fuzz.h"

#include <sys/mman.h>

#include "base/embtier_types.h"
#include "base/text/text_escape.h"
#include "daemon/access/access.h"
#include "daemon/access/access_rules.h"
#include "daemon/access/rights.h"

static const char *const tables[] = { "a", "ads", "ads_1", "users.v2-x", "0_-.", "aab" };

/* ---- Patterns ---- */

/* True if the pattern matches: row by row, what each of its beginnings matches of the name. */
static bool matches(const char *pattern, const char *name)
{
    const size_t length = strlen(name);
    bool ends[EMBTIER_TABLE_NAME_MAX + 1] = { true };

    for (const char *p = pattern; *p != '\0'; p++) {
        bool before = ends[0];

        ends[0] = before && *p == '*';
        for (size_t i = 1; i <= length; i++) {
            const bool here = ends[i];

            ends[i] = *p == '*' ? here || ends[i - 1] : before && (*p == '?' || *p == name[i - 1]);
            before = here;
        }
    }
    return ends[length];
}

static bool is_granted(const struct access_user *user, const char *table)
{
    for (uint32_t i = 0; i < user->pattern_count; i++)
        if (matches(user->patterns[i], table))
            return true;
    return user->pattern_count == 0;
}

static void check_patterns(const struct access_user *user)
{
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        FUZZ_CHECK(access_user_has(user, tables[t]) == is_granted(user, tables[t]));
    for (uint32_t i = 0; i < user->pattern_count; i++)
        FUZZ_CHECK(access_pattern_matches(user->patterns[i], user->patterns[i]));
}

/* ---- Credentials ---- */

static const struct access_user *holder(const struct access_rules *rules,
                                        struct access_credential credential)
{
    return access_rules_holder(rules, &credential);
}

static void check_credentials(const struct access_rules *rules, const struct access_user *user)
{
    for (uint32_t i = 0; i < user->token_count; i++)
        FUZZ_CHECK(holder(rules, (struct access_credential){ .kind = CREDENTIAL_TOKEN,
                                                             .token = user->tokens[i] }) == user);
    for (uint32_t i = 0; i < user->certificate_count; i++)
        FUZZ_CHECK(holder(rules, (struct access_credential){ .kind = CREDENTIAL_CERTIFICATE,
                                                             .certificate =
                                                                 user->certificates[i] }) == user);
    for (uint32_t i = 0; i < user->uid_count; i++)
        FUZZ_CHECK(holder(rules, (struct access_credential){ .kind = CREDENTIAL_UNIX_USER,
                                                             .id = user->uids[i] }) == user);
    for (uint32_t i = 0; i < user->gid_count; i++) { /* the first in the file counts */
        const struct access_user *const first =
            holder(rules, (struct access_credential){ .kind = CREDENTIAL_UNIX_GROUP,
                                                      .id = user->gids[i] });

        FUZZ_CHECK(first && first <= user);
    }
}

static void check_rules(const struct access_rules *rules)
{
    FUZZ_CHECK(rules->user_count >= 1 && rules->user_count <= ACCESS_USERS_MAX);
    for (uint32_t u = 0; u < rules->user_count; u++) {
        const struct access_user *const user = &rules->users[u];

        FUZZ_CHECK(user->role > ROLE_NONE && user->role < ROLE_COUNT);
        FUZZ_CHECK(access_rules_named(rules, user->name) == user);
        FUZZ_CHECK(strlen(user->name) <= ACCESS_NAME_MAX &&
                   text_is_plain(user->name, strlen(user->name)));
        check_patterns(user);
        check_credentials(rules, user);
    }
}

/* ---- In force ---- */

/* Returns the path of the file, in memory, that has this text. */
static const char *put_text(const char *text, size_t bytes)
{
    static char path[64];
    static int file = -1;

    if (file < 0) {
        file = memfd_create("access.yaml", MFD_CLOEXEC);
        FUZZ_CHECK(file >= 0 && fchmod(file, 0600) == 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    }
    FUZZ_CHECK(ftruncate(file, 0) == 0);
    FUZZ_CHECK(pwrite(file, text, bytes, 0) == (ssize_t)bytes);
    return path;
}

static void check_member(struct access *access, const struct access_user *user, const char *name)
{
    char names[2100] = { 0 };
    const struct access_client client = { .certificate_names = names, .token = "" };
    struct access_credential credential;
    struct access_member *member = NULL;
    struct err_msg msg = { { 0 } };

    snprintf(names, sizeof(names) - 1, "%s", name);
    if (strcmp(names, name) != 0)
        return; /* longer than certificates have */
    FUZZ_CHECK(access_enter(access, &client, &member, &credential, &msg) == EMBTIER_OK);
    FUZZ_CHECK(strcmp(access_member_name(member), user->name) == 0);
    FUZZ_CHECK(access_check_credential(access, member, &credential, &msg) == EMBTIER_OK);
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        FUZZ_CHECK(rights_allow(access_member_rights(member), (uint16_t)t, RIGHTS_CHANGE) ==
                   (user->role >= ROLE_TRAIN && is_granted(user, tables[t])));
    access_leave(access, member);
}

static void check_members(struct access *access, const struct access_rules *rules)
{
    for (uint32_t u = 0; u < rules->user_count; u++)
        for (uint32_t i = 0; i < rules->users[u].certificate_count; i++)
            check_member(access, &rules->users[u], rules->users[u].certificates[i]);
}

static void check_in_force(const char *path, const struct access_rules *rules)
{
    struct access *access = NULL;
    struct err_msg msg = { { 0 } };
    void *fresh = NULL;

    FUZZ_CHECK(access_new(path, NULL, &access, &msg) == EMBTIER_OK);
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        access_name_table(access, (uint16_t)t, tables[t]);
    check_members(access, rules);
    FUZZ_CHECK(access_read(access, &fresh, &msg) == EMBTIER_OK);
    access_take(access, fresh);
    check_members(access, rules);
    access_free(access);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(access_rules_freep) struct access_rules *rules = NULL;
    _cleanup_(freep) char *text = (char *)fuzz_copy(data, bytes);
    struct err_msg msg = { { 0 } };

    if (access_rules_parse("access.yaml", text, bytes, &rules, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
        return 0;
    }
    check_rules(rules);
    check_in_force(put_text(text, bytes), rules);
    return 0;
}
