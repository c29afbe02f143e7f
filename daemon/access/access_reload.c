/* SPDX-License-Identifier: Apache-2.0 */
/* Puts another access file in force.
 *
 * Requests of all clients may wait for the lock, so its holders do little. All that takes long is
 * done without it: the file is read, its patterns are matched with all tables, and users are sorted
 * by name. With the lock a reload looks at each member once, sets the bits of one member, or merges
 * one word of bits for each user.
 *
 * The lanes' bits change first, one member after another, then the rules, in one moment. So what
 * the control thread allows by new rules, the lanes allow too. A table may get its name at any
 * time between. access_name_table() then sets its bits in the rights of each member, by the rules
 * that these follow by now, and in the fresh grants. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embtier_types.h"
#include "base/macros.h"
#include "daemon/access/access_impl.h"

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "access: out of memory");
}

static void free_parts(struct fresh *fresh)
{
    for (uint32_t u = 0; fresh->members && u < fresh->rules->user_count; u++)
        free(fresh->members[u]);
    free(fresh->members);
    free(fresh->granted);
    free(fresh->sorted);
    free(fresh->changes);
}

/* Frees one that no other thread knows. */
static void free_fresh(struct fresh *fresh)
{
    if (!fresh)
        return;
    free_parts(fresh);
    access_rules_free(fresh->rules);
    free(fresh);
}
DEFINE_CLEANUP(struct fresh, free_fresh)

/* ---- Reading ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct access_user *const *)a)->name,
                  (*(const struct access_user *const *)b)->name);
}

/* Makes a member for each user. Those of users that have one are freed with the rest. */
static enum embtier_err make_members(struct fresh *fresh, struct err_msg *msg)
{
    for (uint32_t u = 0; u < fresh->rules->user_count; u++) {
        struct access_member *const member = calloc(1, sizeof(*member));

        if (!member)
            return no_memory(msg);
        snprintf(member->name, sizeof(member->name), "%s", fresh->rules->users[u].name);
        fresh->members[u] = member;
    }
    return EMBTIER_OK;
}

/* @most_changes: all members that there may be when the rules are taken. */
static enum embtier_err make_parts(struct fresh *fresh, uint32_t most_changes, struct err_msg *msg)
{
    const uint32_t count = fresh->rules->user_count;

    fresh->members = calloc(count, sizeof(*fresh->members));
    fresh->granted = calloc(count, sizeof(*fresh->granted));
    fresh->sorted = calloc(count, sizeof(*fresh->sorted));
    fresh->changes = calloc(most_changes, sizeof(*fresh->changes));
    if (!fresh->members || !fresh->granted || !fresh->sorted || !fresh->changes)
        return no_memory(msg);
    for (uint32_t u = 0; u < count; u++)
        fresh->sorted[u] = &fresh->rules->users[u];
    qsort(fresh->sorted, count, sizeof(*fresh->sorted), compare_names);
    return make_members(fresh, msg);
}

/* The names of the tables of one word of bits. */
struct names {
    uint64_t present;
    char text[64][EMBTIER_TABLE_NAME_MAX + 1];
};

static void copy_names(struct access *access, struct fresh *fresh, uint32_t word,
                       struct names *ret_names)
{
    ret_names->present = 0;
    pthread_mutex_lock(&access->lock);
    fresh->named[word] = 0;
    for (uint32_t i = 0; i < 64; i++) {
        const char *const name = access->tables[word * 64 + i];

        if (!name)
            continue;
        snprintf(ret_names->text[i], sizeof(ret_names->text[i]), "%s", name);
        ret_names->present |= UINT64_C(1) << i;
    }
    pthread_mutex_unlock(&access->lock);
}

static uint64_t match(const struct access_user *user, const struct names *names)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 64; i++)
        if ((names->present >> i & 1) && access_user_has(user, names->text[i]))
            bits |= UINT64_C(1) << i;
    return bits;
}

/* Takes the bits that were worked out, but for tables that got their names meanwhile. */
static void merge(struct access *access, struct fresh *fresh, uint32_t word, const uint64_t *bits)
{
    pthread_mutex_lock(&access->lock);
    for (uint32_t u = 0; u < fresh->rules->user_count; u++) {
        uint64_t *const to = &fresh->granted[u][word];

        *to = (*to & fresh->named[word]) | (bits[u] & ~fresh->named[word]);
    }
    pthread_mutex_unlock(&access->lock);
}

static void grant_tables(struct access *access, struct fresh *fresh)
{
    uint64_t bits[ACCESS_USERS_MAX];
    struct names names;

    for (uint32_t word = 0; word < RIGHTS_WORDS; word++) {
        copy_names(access, fresh, word, &names);
        if (names.present == 0)
            continue;
        for (uint32_t u = 0; u < fresh->rules->user_count; u++)
            bits[u] = match(&fresh->rules->users[u], &names);
        merge(access, fresh, word, bits);
    }
}

static void set_fresh(struct access *access, struct fresh *fresh)
{
    pthread_mutex_lock(&access->lock);
    assert(!fresh || !access->fresh);
    access->fresh = fresh;
    pthread_mutex_unlock(&access->lock);
}

/* Members are added by reloads alone, and only one runs. */
static uint32_t count_members(struct access *access)
{
    uint32_t count;

    pthread_mutex_lock(&access->lock);
    count = access->member_count;
    pthread_mutex_unlock(&access->lock);
    return count;
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
    TRY(access_rules_load(access->path, access->config, &fresh->rules, msg));
    TRY(make_parts(fresh, count_members(access) + fresh->rules->user_count, msg));
    fresh->rules->holders = 1;
    set_fresh(access, fresh);
    grant_tables(access, fresh);
    *ret_fresh = TAKE(fresh);
    return EMBTIER_OK;
}

void access_drop(void *context, void *what)
{
    struct fresh *const fresh = what;

    if (!fresh)
        return;
    set_fresh(context, NULL);
    free_parts(fresh);
    access_drop_rules(context, fresh->rules); /* a table that gets its name may hold them */
    free(fresh);
}

/* ---- Taking ---- */

static void add_change(struct fresh *fresh, struct access_member *member,
                       const struct access_user *user)
{
    member->is_held = true;
    fresh->changes[fresh->change_count++] = (struct change){ .member = member, .user = user };
}

/* Finds the user of a member by the fresh rules, or NULL. */
static const struct access_user *find_user(const struct fresh *fresh,
                                           const struct access_member *member)
{
    const struct access_user wanted = { .name = member->name };
    const struct access_user *const key = &wanted;
    const struct access_user *const *const found = bsearch(
        &key, fresh->sorted, fresh->rules->user_count, sizeof(*fresh->sorted), compare_names);

    return found ? *found : NULL;
}

/* Users whose names are new get the members that were made for them; the others keep theirs.
 * Locked.
 */
static void find_changes(struct access *access, struct fresh *fresh,
                         struct access_member **ret_unused)
{
    for (struct access_member *m = access->members; m; m = m->next) {
        const struct access_user *const user = find_user(fresh, m);

        if (user) {
            struct access_member **const made =
                &fresh->members[access_user_number(fresh->rules, user)];

            (*made)->next = *ret_unused;
            *ret_unused = *made;
            *made = m;
        }
        if (user || m->user)
            add_change(fresh, m, user);
    }
    for (uint32_t u = 0; u < fresh->rules->user_count; u++) {
        struct access_member *const member = fresh->members[u];

        if (member->is_held)
            continue;
        member->account = access->last_account++;
        member->next = access->members;
        access->members = member;
        access->member_count++;
        add_change(fresh, member, &fresh->rules->users[u]);
    }
}

/* Gives the lanes the member's new rights. Locked. */
static void change_rights(const struct fresh *fresh, const struct change *change)
{
    struct rights *const rights = &change->member->rights;
    const struct access_user *const user = change->user;

    change->member->in_lanes = user;
    if (!user) {
        rights_replace(rights, ROLE_NONE, NULL);
        return;
    }
    rights_replace(rights, user->role, fresh->granted[access_user_number(fresh->rules, user)]);
    rights_pace(rights, user->quotas[QUOTA_requests_per_second]);
    rights_limit_bytes(rights, user->quotas[QUOTA_bytes_in_flight]);
}

/* Locked. The old rules and their array of members are then @fresh's. */
static void swap_rules(struct access *access, struct fresh *fresh)
{
    struct access_rules *const old = access->rules;
    struct access_member **const old_members = access->of_users;

    assert(access->fresh == fresh);
    access->fresh = NULL;
    for (uint32_t i = 0; i < fresh->change_count; i++) {
        fresh->changes[i].member->user = fresh->changes[i].user;
        fresh->changes[i].member->is_held = false;
    }
    access->rules = fresh->rules;
    access->of_users = fresh->members;
    access->taken++;
    access_forget_members(access);
    fresh->rules = old;
    fresh->members = old_members;
}

static void free_unused(struct access_member *member)
{
    while (member) {
        struct access_member *const next = member->next;

        free(member);
        member = next;
    }
}

void access_take(void *context, void *what)
{
    struct access *const access = context;
    struct fresh *const fresh = what;
    struct access_member *unused = NULL;

    if (!fresh)
        return;
    pthread_mutex_lock(&access->lock);
    find_changes(access, fresh, &unused);
    pthread_mutex_unlock(&access->lock);
    for (uint32_t i = 0; i < fresh->change_count; i++) {
        pthread_mutex_lock(&access->lock);
        change_rights(fresh, &fresh->changes[i]);
        pthread_mutex_unlock(&access->lock);
    }
    pthread_mutex_lock(&access->lock);
    swap_rules(access, fresh);
    pthread_mutex_unlock(&access->lock);
    free_unused(unused);
    free(TAKE(fresh->members)); /* which are the access's */
    free_parts(fresh);
    access_drop_rules(access, fresh->rules);
    free(fresh);
}
