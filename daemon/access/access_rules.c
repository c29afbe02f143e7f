/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/access_rules.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml/yaml_doc.h"

void access_rules_free(struct access_rules *rules)
{
    if (!rules)
        return;
    for (uint32_t i = 0; i < rules->user_count; i++) {
        free(rules->users[i].uids);
        free(rules->users[i].gids);
    }
    free(rules->users);
    yaml_doc_free(rules->doc);
    free(rules);
}

/* ---- Patterns ---- */

/* Goes back to the last star only, so the time is at most the product of both lengths. */
bool access_pattern_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = name;

    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool access_user_has(const struct access_user *user, const char *table)
{
    bool has = user->has_all;

    for (uint32_t i = 0; i < user->pattern_count && !has; i++)
        has = access_pattern_matches(user->patterns[i], table);
    return has;
}

/* ---- Clients ---- */

/* Compares with each hash, so the time tells nothing about them. */
static const struct access_user *find_token(const struct access_rules *rules,
                                            const struct token_hash *hash)
{
    const struct access_user *found = NULL;

    for (uint32_t i = 0; i < rules->user_count; i++)
        for (uint32_t t = 0; t < rules->users[i].token_count; t++)
            found = token_hash_equal(hash, &rules->users[i].tokens[t]) ? &rules->users[i] : found;
    return found;
}

static bool has_certificate(const struct access_user *user, const char *name)
{
    for (uint32_t i = 0; i < user->certificate_count; i++)
        if (strcmp(user->certificates[i], name) == 0)
            return true;
    return false;
}

static bool has_id(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static bool is_holder(const struct access_user *user, const struct access_credential *credential)
{
    switch (credential->kind) {
    case CREDENTIAL_CERTIFICATE:
        return has_certificate(user, credential->certificate);
    case CREDENTIAL_UNIX_USER:
        return has_id(user->uids, user->uid_count, credential->id);
    case CREDENTIAL_UNIX_GROUP:
        return has_id(user->gids, user->gid_count, credential->id);
    case CREDENTIAL_TOKEN:
    case CREDENTIAL_NONE:
        break;
    }
    return false;
}

const struct access_user *access_rules_holder(const struct access_rules *rules,
                                              const struct access_credential *credential)
{
    assert(rules->users); /* there is one at least */
    if (credential->kind == CREDENTIAL_TOKEN)
        return find_token(rules, &credential->token);
    for (uint32_t i = 0; i < rules->user_count; i++)
        if (is_holder(&rules->users[i], credential))
            return &rules->users[i];
    return NULL;
}

const char *credential_word(enum credential_kind kind)
{
    static const char *const words[] = {
        [CREDENTIAL_NONE] = "credential",         [CREDENTIAL_TOKEN] = "token",
        [CREDENTIAL_CERTIFICATE] = "certificate", [CREDENTIAL_UNIX_USER] = "Unix user",
        [CREDENTIAL_UNIX_GROUP] = "Unix group",
    };

    return words[kind];
}

/* Returns the first user in the file that has one of the certificate's names. */
static const struct access_user *find_certificate(const struct access_rules *rules,
                                                  const char *names,
                                                  struct access_credential *ret_credential)
{
    ret_credential->kind = CREDENTIAL_CERTIFICATE;
    for (uint32_t i = 0; i < rules->user_count; i++)
        for (const char *name = names; *name != '\0'; name += strlen(name) + 1) {
            ret_credential->certificate = name;
            if (is_holder(&rules->users[i], ret_credential))
                return &rules->users[i];
        }
    return NULL;
}

static const struct access_user *find_unix(const struct access_rules *rules,
                                           const struct access_client *client,
                                           struct access_credential *ret_credential)
{
    const struct access_user *user;

    *ret_credential = (struct access_credential){ .kind = CREDENTIAL_UNIX_USER, .id = client->uid };
    user = access_rules_holder(rules, ret_credential);
    if (user)
        return user;
    ret_credential->kind = CREDENTIAL_UNIX_GROUP;
    for (uint32_t i = 0; i < rules->user_count; i++)
        for (uint32_t g = 0; g < client->gid_count; g++) {
            ret_credential->id = client->gids[g];
            if (is_holder(&rules->users[i], ret_credential))
                return &rules->users[i];
        }
    return NULL;
}

const struct access_user *access_rules_find(const struct access_rules *rules,
                                            const struct access_client *client,
                                            struct access_credential *ret_credential)
{
    const struct access_user *user = NULL;

    assert(rules->users);
    *ret_credential = (struct access_credential){ .kind = CREDENTIAL_TOKEN };
    if (client->token[0] != '\0')
        return token_hash_of(client->token, &ret_credential->token)
                   ? find_token(rules, &ret_credential->token)
                   : NULL;
    if (client->certificate_names)
        user = find_certificate(rules, client->certificate_names, ret_credential);
    if (!user && client->is_local)
        user = find_unix(rules, client, ret_credential);
    return user;
}

const struct access_user *access_rules_named(const struct access_rules *rules, const char *name)
{
    for (uint32_t i = 0; i < rules->user_count; i++)
        if (strcmp(rules->users[i].name, name) == 0)
            return &rules->users[i];
    return NULL;
}
