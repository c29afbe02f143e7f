/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/access_rules.h"

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
static const struct access_user *find_token(const struct access_rules *rules, const char *token)
{
    const struct access_user *found = NULL;
    struct token_hash hash;

    if (!token_hash_of(token, &hash))
        return NULL;
    for (uint32_t i = 0; i < rules->user_count; i++)
        for (uint32_t t = 0; t < rules->users[i].token_count; t++)
            found = token_hash_equal(&hash, &rules->users[i].tokens[t]) ? &rules->users[i] : found;
    return found;
}

static bool has_certificate(const struct access_user *user, const char *names)
{
    for (const char *name = names; *name != '\0'; name += strlen(name) + 1)
        for (uint32_t i = 0; i < user->certificate_count; i++)
            if (strcmp(user->certificates[i], name) == 0)
                return true;
    return false;
}

static bool has_uid(const struct access_user *user, uid_t uid)
{
    for (uint32_t i = 0; i < user->uid_count; i++)
        if (user->uids[i] == uid)
            return true;
    return false;
}

static bool has_gid(const struct access_user *user, const gid_t *gids, uint32_t count)
{
    for (uint32_t i = 0; i < user->gid_count; i++)
        for (uint32_t g = 0; g < count; g++)
            if (user->gids[i] == gids[g])
                return true;
    return false;
}

const struct access_user *access_rules_find(const struct access_rules *rules,
                                            const struct access_client *client)
{
    if (client->token[0] != '\0')
        return find_token(rules, client->token);
    for (uint32_t i = 0; i < rules->user_count && client->certificate_names; i++)
        if (has_certificate(&rules->users[i], client->certificate_names))
            return &rules->users[i];
    for (uint32_t i = 0; i < rules->user_count && client->is_local; i++)
        if (has_uid(&rules->users[i], client->uid))
            return &rules->users[i];
    for (uint32_t i = 0; i < rules->user_count && client->is_local; i++)
        if (has_gid(&rules->users[i], client->gids, client->gid_count))
            return &rules->users[i];
    return NULL;
}

const struct access_user *access_rules_named(const struct access_rules *rules, const char *name)
{
    for (uint32_t i = 0; i < rules->user_count; i++)
        if (strcmp(rules->users[i].name, name) == 0)
            return &rules->users[i];
    return NULL;
}
