/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/access.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/macros.h"
#include "daemon/access/access_impl.h"

/* Accounts of members have numbers that no Unix user's id can have. */
#define FIRST_ACCOUNT (UINT64_C(1) << 32)

/* ---- Making ---- */

enum embtier_err access_new(const char *path, const struct yaml_doc *config,
                            struct access **ret_access, struct err_msg *msg)
{
    _cleanup_(access_freep) struct access *access = calloc(1, sizeof(*access));
    void *fresh = NULL;

    if (!access)
        return err_set(msg, EMBTIER_NO_MEMORY, "access: out of memory");
    pthread_mutex_init(&access->lock, NULL);
    access->last_account = FIRST_ACCOUNT;
    access->path = path;
    access->config = config;
    if (path) {
        access->tables = calloc(RIGHTS_TABLES, sizeof(*access->tables));
        if (!access->tables)
            return err_set(msg, EMBTIER_NO_MEMORY, "access: out of memory");
        TRY(access_read(access, &fresh, msg));
        access_take(access, fresh);
    }
    *ret_access = TAKE(access);
    return EMBTIER_OK;
}

void access_free(struct access *access)
{
    if (!access)
        return;
    while (access->members) {
        struct access_member *const member = access->members;

        assert(member->sessions == 0);
        access->members = member->next;
        free(member);
    }
    for (uint32_t i = 0; access->tables && i < RIGHTS_TABLES; i++)
        free(access->tables[i]);
    free(access->tables);
    free(access->of_users);
    access_rules_free(access->rules);
    pthread_mutex_destroy(&access->lock);
    free(access);
}

/* ---- Tables ---- */

static bool is_granted(const struct access_user *user, const char *table)
{
    return user && table && access_user_has(user, table);
}

/* Users that are granted one table: a bit for each number of a user. */
struct granted {
    uint64_t words[ACCESS_USERS_MAX / 64];
};

/* Matches all patterns, which may take long. @table: NULL: there was no memory for the name. */
static struct granted find_granted(const struct access_rules *rules, const char *table)
{
    struct granted granted = { { 0 } };

    for (uint32_t u = 0; rules && table && u < rules->user_count; u++)
        if (access_user_has(&rules->users[u], table))
            granted.words[u / 64] |= UINT64_C(1) << (u % 64);
    return granted;
}

static bool has_number(const struct granted *granted, uint32_t number)
{
    return granted->words[number / 64] >> (number % 64) & 1;
}

static bool is_user_of(const struct access_rules *rules, const struct access_user *user)
{
    return rules && user >= rules->users && user < rules->users + rules->user_count;
}

/* The users that are granted a table that gets its name, by the rules that are in force and by
 * those that a reload is about to put in force. */
struct naming {
    struct access_rules *rules, *fresh; /* held; `fresh` may be NULL */
    struct granted by_rules, by_fresh;
};

static bool is_granted_now(const struct naming *naming, const struct access_user *user)
{
    if (is_user_of(naming->rules, user))
        return has_number(&naming->by_rules, access_user_number(naming->rules, user));
    return is_user_of(naming->fresh, user) &&
           has_number(&naming->by_fresh, access_user_number(naming->fresh, user));
}

/* Sets the bits of a table for the users of rules that are being prepared. Locked. */
static void grant_fresh(struct fresh *fresh, uint16_t index, const struct naming *naming)
{
    const uint64_t bit = UINT64_C(1) << (index % 64);

    for (uint32_t u = 0; u < fresh->rules->user_count; u++) {
        uint64_t *const word = &fresh->granted[u][index / 64];

        *word = has_number(&naming->by_fresh, u) ? *word | bit : *word & ~bit;
    }
    fresh->named[index / 64] |= bit;
}

/* Sets the table's bits, unless a reload has changed the rules meanwhile. */
static bool set_bits(struct access *access, uint16_t index, const struct naming *naming)
{
    struct access_rules *const fresh = access->fresh ? access->fresh->rules : NULL;

    if (access->rules != naming->rules || fresh != naming->fresh)
        return false;
    for (struct access_member *m = access->members; m; m = m->next)
        rights_set(&m->rights, index, is_granted_now(naming, m->in_lanes));
    if (fresh)
        grant_fresh(access->fresh, index, naming);
    return true;
}

/* Works out the grants without the lock. A reload in between makes it begin again. */
static void grant_table(struct access *access, uint16_t index, const char *name)
{
    struct naming naming = { .rules = NULL };
    bool is_set = false;

    while (!is_set) {
        pthread_mutex_lock(&access->lock);
        naming.rules = access_hold_rules(access->rules);
        naming.fresh = access_hold_rules(access->fresh ? access->fresh->rules : NULL);
        pthread_mutex_unlock(&access->lock);
        naming.by_rules = find_granted(naming.rules, name);
        naming.by_fresh = find_granted(naming.fresh, name);
        pthread_mutex_lock(&access->lock);
        is_set = set_bits(access, index, &naming);
        pthread_mutex_unlock(&access->lock);
        access_drop_rules(access, naming.rules);
        access_drop_rules(access, naming.fresh);
    }
}

/* A name that there is no memory for is granted to nobody. */
void access_name_table(void *context, uint16_t index, const char *name)
{
    struct access *const access = context;
    char *const copy = access->path ? strdup(name) : NULL;
    char *old;

    if (!access->path)
        return;
    if (!copy)
        log_error("out of memory: no user is granted a table; reload the access file to try again",
                  "table=%s", name);
    pthread_mutex_lock(&access->lock);
    old = access->tables[index];
    access->tables[index] = copy;
    pthread_mutex_unlock(&access->lock);
    free(old);
    grant_table(access, index, copy ? name : NULL);
}

/* ---- Rules ---- */

struct access_rules *access_hold_rules(struct access_rules *rules)
{
    if (rules)
        rules->holders++;
    return rules;
}

void access_drop_rules(struct access *access, struct access_rules *rules)
{
    bool is_last = false;

    pthread_mutex_lock(&access->lock);
    if (rules) {
        assert(rules->holders > 0);
        is_last = --rules->holders == 0;
    }
    pthread_mutex_unlock(&access->lock);
    if (is_last)
        access_rules_free(rules);
}

struct access_rules *access_rules_now(struct access *access)
{
    struct access_rules *rules;

    pthread_mutex_lock(&access->lock);
    rules = access_hold_rules(access->rules);
    pthread_mutex_unlock(&access->lock);
    return rules;
}

uint64_t access_taken(struct access *access)
{
    uint64_t taken;

    pthread_mutex_lock(&access->lock);
    taken = access->taken;
    pthread_mutex_unlock(&access->lock);
    return taken;
}

/* ---- Members ---- */

void access_forget_members(struct access *access)
{
    struct access_member **at = &access->members;

    while (*at) {
        struct access_member *const member = *at;

        if (member->user || member->is_held || member->sessions > 0) {
            at = &member->next;
            continue;
        }
        *at = member->next;
        access->member_count--;
        access->refusals += atomic_load(&member->rights.refusals);
        free(member);
    }
}

/* Root and the server's user could read the file, and the data. A token says that the client wants
 * to be another user. */
static bool may_all(const struct access *access, const struct access_client *client)
{
    return !access->path || (client->is_local && client->token[0] == '\0' &&
                             (client->uid == 0 || client->uid == geteuid()));
}

static enum embtier_err refuse_client(const struct access_client *client, struct err_msg *msg)
{
    if (client->token[0] != '\0')
        return err_set(msg, EMBTIER_PERMISSION,
                       "this server does not know the token; it may have been replaced, or belong "
                       "to another server");
    if (client->certificate_names)
        return err_set(msg, EMBTIER_PERMISSION,
                       "the client's certificate is no user's in this server's access file");
    if (client->is_local)
        return err_set(msg, EMBTIER_PERMISSION,
                       "Unix user %u and its groups are no user's in this server's access file; a "
                       "token may say who you are (EMBTIER_TOKEN_FILE)",
                       (unsigned)client->uid);
    if (client->is_unasked)
        return err_set(msg, EMBTIER_PERMISSION,
                       "this server wants to know its clients, and this one has shown no token "
                       "(EMBTIER_TOKEN_FILE); the server asks for no certificates, as its "
                       "configuration has no tls.client_ca");
    return err_set(msg, EMBTIER_PERMISSION,
                   "this server wants to know its clients, and this one has shown neither a token "
                   "(EMBTIER_TOKEN_FILE) nor a certificate");
}

enum embtier_err access_enter(struct access *access, const struct access_client *client,
                              struct access_member **ret_member,
                              struct access_credential *ret_credential, struct err_msg *msg)
{
    struct access_member *member = NULL;
    const struct access_user *user;

    *ret_member = NULL;
    *ret_credential = (struct access_credential){ .kind = CREDENTIAL_NONE };
    if (may_all(access, client))
        return EMBTIER_OK;
    pthread_mutex_lock(&access->lock);
    user = access_rules_find(access->rules, client, ret_credential);
    member = user ? access->of_users[access_user_number(access->rules, user)] : NULL;
    if (member)
        member->sessions++;
    pthread_mutex_unlock(&access->lock);
    if (!member)
        return refuse_client(client, msg);
    *ret_member = member;
    return EMBTIER_OK;
}

enum embtier_err access_check_credential(struct access *access, const struct access_member *member,
                                         const struct access_credential *credential,
                                         struct err_msg *msg)
{
    const struct access_user *holder;
    bool leads;

    pthread_mutex_lock(&access->lock);
    holder = access_rules_holder(access->rules, credential);
    leads = holder && holder == member->user;
    pthread_mutex_unlock(&access->lock);
    if (leads)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "the client's %s is no longer that of user '%s' in this server's access file",
                   credential_word(credential->kind), member->name);
}

void access_leave(struct access *access, struct access_member *member)
{
    if (!member)
        return;
    pthread_mutex_lock(&access->lock);
    assert(member->sessions > 0);
    member->sessions--;
    access_forget_members(access);
    pthread_mutex_unlock(&access->lock);
}

const char *access_member_name(const struct access_member *member)
{
    return member ? member->name : "";
}

uint64_t access_member_account(const struct access_member *member)
{
    return member->account;
}

struct rights *access_member_rights(struct access_member *member)
{
    return member ? &member->rights : rights_everything();
}

void access_member_quotas(struct access *access, const struct access_member *member,
                          uint64_t ret_quotas[QUOTAS])
{
    memset(ret_quotas, 0, QUOTAS * sizeof(*ret_quotas));
    if (!member)
        return;
    pthread_mutex_lock(&access->lock);
    if (member->user)
        memcpy(ret_quotas, member->user->quotas, sizeof(member->user->quotas));
    pthread_mutex_unlock(&access->lock);
}

enum role access_member_role(const struct access_member *member)
{
    return member ? rights_role(&member->rights) : ROLE_ADMIN;
}

/* Returns the member with that account, or NULL. Locked. */
static const struct access_member *member_of(const struct access *access, uint64_t account)
{
    const struct access_member *member = access->members;

    while (member && member->account != account)
        member = member->next;
    return member;
}

void access_account_name(struct access *access, uint64_t account,
                         char ret_name[ACCESS_NAME_MAX + 1])
{
    const struct access_member *member;

    ret_name[0] = '\0';
    pthread_mutex_lock(&access->lock);
    member = member_of(access, account);
    if (member)
        memcpy(ret_name, member->name, sizeof(member->name));
    pthread_mutex_unlock(&access->lock);
}

bool access_account_bytes(struct access *access, uint64_t account, uint64_t *ret_bytes,
                          uint64_t *ret_most)
{
    const struct access_member *member;

    *ret_bytes = *ret_most = 0;
    pthread_mutex_lock(&access->lock);
    member = member_of(access, account);
    if (member) {
        *ret_bytes = rights_bytes(&member->rights);
        *ret_most = rights_most_bytes(&member->rights);
    }
    pthread_mutex_unlock(&access->lock);
    return *ret_most > 0;
}

/* ---- Checks ---- */

/* The member's role by the rules, which a reload changes in one moment. Locked. */
static enum role role_of(const struct access_member *member)
{
    return member->user ? member->user->role : ROLE_NONE;
}

/* Returns why the member may not use the table, and OK if it may. Locked. */
static enum embtier_err check_table(const struct access_member *member, const char *operation,
                                    const char *table, struct err_msg *msg)
{
    if (is_granted(member->user, table))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "%s: table '%s' is not granted to user '%s' (its role is %s)", operation, table,
                   member->name, role_word(role_of(member)));
}

static enum embtier_err check_whole(const struct access_member *member, const char *operation,
                                    struct err_msg *msg)
{
    if (member->user && member->user->has_all)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "%s is about all tables, and user '%s' (role %s) is granted only some",
                   operation, member->name, role_word(role_of(member)));
}

static enum embtier_err check_named(const struct access_member *member,
                                    const struct operation *operation,
                                    const struct Embtier__Request *request, struct err_msg *msg)
{
    const char *table = operation->table(request, 0);

    if (!table)
        return check_whole(member, operation->name, msg);
    for (uint32_t i = 0; table; table = operation->table(request, ++i))
        TRY(check_table(member, operation->name, table, msg));
    return EMBTIER_OK;
}

static enum embtier_err check_tables(const struct access_member *member,
                                     const struct operation *operation,
                                     const struct Embtier__Request *request, const char *opened,
                                     struct err_msg *msg)
{
    switch (operation->relation) {
    case RELATION_NAMED:
        return check_named(member, operation, request, msg);
    case RELATION_OPENED:
        return opened ? check_table(member, operation->name, opened, msg) : EMBTIER_OK;
    case RELATION_WHOLE:
        return check_whole(member, operation->name, msg);
    case RELATION_SEGMENTS: /* the lane's */
    case RELATION_LISTED:   /* the list's */
    case RELATION_NONE:
        break;
    }
    return EMBTIER_OK;
}

static enum embtier_err check_member(const struct access_member *member,
                                     const struct operation *operation,
                                     const struct Embtier__Request *request, const char *opened,
                                     struct err_msg *msg)
{
    const enum role role = role_of(member);

    if (operation->role > ROLE_NONE && !member->user)
        return err_set(msg, EMBTIER_PERMISSION,
                       "%s: user '%s' is no longer in this server's access file", operation->name,
                       member->name);
    if (role < operation->role)
        return err_set(msg, EMBTIER_PERMISSION, "%s needs role %s, and user '%s' has role %s",
                       operation->name, role_word(operation->role), member->name, role_word(role));
    return check_tables(member, operation, request, opened, msg);
}

enum embtier_err access_check(struct access *access, const struct access_member *member,
                              const struct operation *operation,
                              const struct Embtier__Request *request, const char *opened,
                              struct err_msg *msg)
{
    enum embtier_err err;

    if (!operation)
        return err_set(msg, EMBTIER_PERMISSION,
                       "this server has no rule for the operation, so it refuses it");
    if (!member)
        return EMBTIER_OK;
    pthread_mutex_lock(&access->lock);
    err = check_member(member, operation, request, opened, msg);
    pthread_mutex_unlock(&access->lock);
    return err;
}

bool access_has_table(struct access *access, const struct access_member *member, const char *name)
{
    bool has;

    if (!member)
        return true;
    pthread_mutex_lock(&access->lock);
    has = is_granted(member->user, name);
    pthread_mutex_unlock(&access->lock);
    return has;
}

bool access_has_whole(struct access *access, const struct access_member *member)
{
    bool has;

    if (!member)
        return true;
    pthread_mutex_lock(&access->lock);
    has = member->user && member->user->has_all && member->user->role == ROLE_ADMIN;
    pthread_mutex_unlock(&access->lock);
    return has;
}

/* ---- Counts ---- */

void access_note_refusal(struct access *access)
{
    pthread_mutex_lock(&access->lock);
    access->refusals++;
    pthread_mutex_unlock(&access->lock);
}

void access_take_news(struct access *access, struct access_news *ret_news)
{
    struct access_news news = { 0 };

    pthread_mutex_lock(&access->lock);
    for (struct access_member *m = access->members; m; m = m->next) {
        const uint64_t refusals = atomic_load(&m->rights.refusals);

        if (refusals == m->told_refusals)
            continue;
        news.refusals += refusals - m->told_refusals;
        m->told_refusals = refusals;
        snprintf(news.name, sizeof(news.name), "%s", m->name);
    }
    pthread_mutex_unlock(&access->lock);
    *ret_news = news;
}

void access_stats(struct access *access, struct access_stats *ret_stats)
{
    struct access_stats stats = { 0 };

    pthread_mutex_lock(&access->lock);
    stats.users = access->rules ? access->rules->user_count : 0;
    stats.refusals = access->refusals;
    for (const struct access_member *m = access->members; m; m = m->next)
        stats.refusals += atomic_load(&m->rights.refusals);
    pthread_mutex_unlock(&access->lock);
    *ret_stats = stats;
}
