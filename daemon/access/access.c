/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/access.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log/log.h"
#include "daemon/access/rights.h"

/* How many tables are looked at under the lock, at a time. */
#define TABLES_PER_HOLD 64
/* Accounts of members have numbers that no Unix user's id can have. */
#define FIRST_ACCOUNT (UINT64_C(1) << 32)

struct access_member {
    struct rights rights;
    struct access_member *next;
    const struct access_user *user; /* in the rules that are in force; NULL: none any more */
    uint64_t account;
    uint32_t sessions;
    uint64_t told_refusals; /* those of the rights that have been logged */
    char name[ACCESS_NAME_MAX + 1];
};

/* Rules that are about to be taken. */
struct fresh {
    struct access_rules *rules;
    struct access_member **members;    /* for users that have none yet, by number */
    uint64_t (*granted)[RIGHTS_WORDS]; /* the tables of each user */
};

struct access {
    const char *path; /* NULL: there are no users, and all may do all */
    pthread_mutex_t lock;
    struct access_rules *rules;
    struct access_member *members; /* one for each user of the rules, and those with sessions */
    struct fresh *fresh;           /* while a reload prepares it; else NULL */
    char **tables;                 /* their names, by index; of tables that were dropped too */
    uint64_t last_account;
    uint64_t taken;    /* files that were put in force */
    uint64_t refusals; /* without those in the members' rights */
};

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "access: out of memory");
}

/* ---- Making ---- */

enum embtier_err access_new(const char *path, struct access **ret_access, struct err_msg *msg)
{
    _cleanup_(access_freep) struct access *access = calloc(1, sizeof(*access));
    void *fresh = NULL;

    if (!access)
        return no_memory(msg);
    pthread_mutex_init(&access->lock, NULL);
    access->last_account = FIRST_ACCOUNT;
    access->path = path;
    if (path) {
        access->tables = calloc(RIGHTS_TABLES, sizeof(*access->tables));
        if (!access->tables)
            return no_memory(msg);
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
    access_rules_free(access->rules);
    pthread_mutex_destroy(&access->lock);
    free(access);
}

/* ---- Tables ---- */

static bool is_granted(const struct access_user *user, const char *table)
{
    return user && table && access_user_has(user, table);
}

/* Sets the bits of a table for the users of rules that are being prepared. */
static void grant_fresh(const struct fresh *fresh, uint32_t index, const char *table)
{
    for (uint32_t u = 0; u < fresh->rules->user_count; u++) {
        uint64_t *const word = &fresh->granted[u][index / 64];
        const uint64_t bit = UINT64_C(1) << (index % 64);

        *word = is_granted(&fresh->rules->users[u], table) ? *word | bit : *word & ~bit;
    }
}

/* A name that there is no memory for is granted to nobody. */
void access_name_table(void *context, uint16_t index, const char *name)
{
    struct access *const access = context;

    if (!access->path)
        return;
    pthread_mutex_lock(&access->lock);
    free(access->tables[index]);
    access->tables[index] = strdup(name);
    if (!access->tables[index])
        log_error("out of memory: no user is granted a table; reload the access file to try again",
                  "table=%s", name);
    for (struct access_member *m = access->members; m; m = m->next)
        rights_set(&m->rights, index, is_granted(m->user, access->tables[index]));
    if (access->fresh)
        grant_fresh(access->fresh, index, access->tables[index]);
    pthread_mutex_unlock(&access->lock);
}

/* ---- Reloads ---- */

static void free_fresh(struct fresh *fresh)
{
    if (!fresh)
        return;
    for (uint32_t u = 0; fresh->members && u < fresh->rules->user_count; u++)
        free(fresh->members[u]);
    free(fresh->members);
    free(fresh->granted);
    access_rules_free(fresh->rules);
    free(fresh);
}
DEFINE_CLEANUP(struct fresh, free_fresh)

static struct access_member *find_member(const struct access *access, const char *name)
{
    struct access_member *m = access->members;

    while (m && strcmp(m->name, name) != 0)
        m = m->next;
    return m;
}

/* Makes a member for each user. Those of users that have one are freed with the rest. */
static enum embtier_err make_members(struct fresh *fresh, struct err_msg *msg)
{
    const uint32_t count = fresh->rules->user_count;

    fresh->members = calloc(count, sizeof(struct access_member *));
    fresh->granted = calloc(count, sizeof(*fresh->granted));
    if (!fresh->members || !fresh->granted)
        return no_memory(msg);
    for (uint32_t u = 0; u < count; u++) {
        struct access_member *const member = calloc(1, sizeof(*member));

        if (!member)
            return no_memory(msg);
        snprintf(member->name, sizeof(member->name), "%s", fresh->rules->users[u].name);
        fresh->members[u] = member;
    }
    return EMBTIER_OK;
}

/* Looks at all tables, some at a time, so that no thread waits long for the lock. A table that is
 * made meanwhile is looked at when it gets its name. */
static void grant_tables(struct access *access, const struct fresh *fresh)
{
    for (uint32_t from = 0; from < RIGHTS_TABLES; from += TABLES_PER_HOLD) {
        pthread_mutex_lock(&access->lock);
        for (uint32_t i = from; i < from + TABLES_PER_HOLD; i++)
            if (access->tables[i])
                grant_fresh(fresh, i, access->tables[i]);
        pthread_mutex_unlock(&access->lock);
    }
}

static void set_fresh(struct access *access, struct fresh *fresh)
{
    pthread_mutex_lock(&access->lock);
    assert(!fresh || !access->fresh);
    access->fresh = fresh;
    pthread_mutex_unlock(&access->lock);
}

enum embtier_err access_read(void *context, void **ret_fresh, struct err_msg *msg)
{
    struct access *const access = context;
    _cleanup_(free_freshp) struct fresh *fresh = NULL;

    *ret_fresh = NULL;
    if (!access->path)
        return EMBTIER_OK;
    fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return no_memory(msg);
    TRY(access_rules_load(access->path, &fresh->rules, msg));
    TRY(make_members(fresh, msg));
    set_fresh(access, fresh);
    grant_tables(access, fresh);
    *ret_fresh = TAKE(fresh);
    return EMBTIER_OK;
}

void access_drop(void *context, void *fresh)
{
    if (!fresh)
        return;
    set_fresh(context, NULL);
    free_fresh(fresh);
}

/* Frees members that neither rules nor sessions need. Locked. */
static void forget_members(struct access *access)
{
    struct access_member **at = &access->members;

    while (*at) {
        struct access_member *const member = *at;

        if (member->user || member->sessions > 0) {
            at = &member->next;
            continue;
        }
        *at = member->next;
        access->refusals += atomic_load(&member->rights.refusals);
        free(member);
    }
}

/* Gives user number @u its member, and the member its rights. Locked. */
static void take_user(struct access *access, struct fresh *fresh, uint32_t u)
{
    const struct access_user *const user = &fresh->rules->users[u];
    struct access_member *member = find_member(access, user->name);

    if (!member) {
        member = TAKE(fresh->members[u]);
        member->account = access->last_account++;
        member->next = access->members;
        access->members = member;
    }
    member->user = user;
    rights_replace(&member->rights, user->role, fresh->granted[u]);
    rights_pace(&member->rights, user->quotas[QUOTA_requests_per_second]);
    rights_limit_bytes(&member->rights, user->quotas[QUOTA_bytes_in_flight]);
}

void access_take(void *context, void *what)
{
    struct access *const access = context;
    struct fresh *const fresh = what;
    struct access_rules *old;

    if (!fresh)
        return;
    pthread_mutex_lock(&access->lock);
    assert(access->fresh == fresh);
    access->fresh = NULL;
    for (struct access_member *m = access->members; m; m = m->next)
        m->user = NULL;
    for (uint32_t u = 0; u < fresh->rules->user_count; u++)
        take_user(access, fresh, u);
    for (struct access_member *m = access->members; m; m = m->next)
        if (!m->user)
            rights_replace(&m->rights, ROLE_NONE, NULL);
    forget_members(access);
    old = access->rules; /* its users' members have others by now */
    access->rules = fresh->rules;
    access->taken++;
    pthread_mutex_unlock(&access->lock);
    fresh->rules = old; /* freed with the members that were not needed */
    for (uint32_t u = 0; u < access->rules->user_count; u++)
        free(fresh->members[u]);
    free(TAKE(fresh->members));
    free_fresh(fresh);
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
    member = user ? find_member(access, user->name) : NULL;
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
    forget_members(access);
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

void access_account_name(struct access *access, uint64_t account,
                         char ret_name[ACCESS_NAME_MAX + 1])
{
    ret_name[0] = '\0';
    pthread_mutex_lock(&access->lock);
    for (const struct access_member *m = access->members; m; m = m->next)
        if (m->account == account)
            memcpy(ret_name, m->name, sizeof(m->name));
    pthread_mutex_unlock(&access->lock);
}

/* ---- Checks ---- */

/* Returns why the member may not use the table, and OK if it may. Locked. */
static enum embtier_err check_table(const struct access_member *member, const char *operation,
                                    const char *table, struct err_msg *msg)
{
    if (is_granted(member->user, table))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "%s: table '%s' is not granted to user '%s' (its role is %s)", operation, table,
                   member->name, role_word(access_member_role(member)));
}

static enum embtier_err check_whole(const struct access_member *member, const char *operation,
                                    struct err_msg *msg)
{
    if (member->user && member->user->has_all)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "%s is about all tables, and user '%s' (role %s) is granted only some",
                   operation, member->name, role_word(access_member_role(member)));
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
    const enum role role = access_member_role(member);

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
