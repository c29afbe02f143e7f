/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/groups/group.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/embtier_types.h"
#include "base/spec/table_spec.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/sessions/session.h"

/* Limits: groups of one user's clients; members of all groups, broken ones included. */
#define USER_GROUPS_MAX    256
#define GROUPS_MEMBERS_MAX 16384

struct group {
    struct group *next;
    struct group **link; /* the pointer to this one: `next` before it, or list head */
    char name[EMBTIER_GROUP_NAME_MAX + 1];
    uint64_t user;
    struct account *account; /* the user's, which each member's connection has open */
    uint32_t size;
    uint32_t joined;       /* sessions that have joined, also those that have ended */
    uint32_t member_count; /* sessions not freed yet; the last one frees the group */
    uint32_t arrived;      /* parts of this round that have arrived, refused ones too */
    uint64_t since_ns;     /* when the first of these arrived */
    bool applying;
    uint32_t broken_by;          /* number of the member that broke it */
    enum embtier_err broken_why; /* why it broke */
    _Atomic uint64_t step;
    _Atomic bool broken;
    struct group_member *members[]; /* size; NULL: not joined, or freed, in a broken group */
};

struct groups {
    pthread_mutex_t lock;
    const struct clock *clock;
    uint64_t wait_ns;
    struct group *first; /* list of the groups that are not broken */
    struct accounts *accounts;
    struct group_stats stats;
    struct group_news news;
};

enum embtier_err groups_new(uint64_t wait_ns, uint64_t waiting_bytes_max, struct accounts *accounts,
                            const struct clock *clock, struct groups **ret_groups,
                            struct err_msg *msg)
{
    struct groups *const groups = calloc(1, sizeof(*groups));

    if (!groups)
        return err_set(msg, EMBTIER_NO_MEMORY, "groups: out of memory");
    pthread_mutex_init(&groups->lock, NULL);
    groups->clock = clock;
    groups->wait_ns = wait_ns;
    groups->accounts = accounts;
    accounts_limit(accounts, ACCOUNT_GROUPS, GROUPS_MEMBERS_MAX, USER_GROUPS_MAX);
    accounts_limit(accounts, ACCOUNT_GROUP_MEMBERS, GROUPS_MEMBERS_MAX, 0);
    accounts_limit(accounts, ACCOUNT_GROUP_BYTES, waiting_bytes_max, 0);
    *ret_groups = groups;
    return EMBTIER_OK;
}

void groups_free(struct groups *groups)
{
    if (!groups)
        return;
    assert(!groups->first && groups->stats.groups == 0);
    pthread_mutex_destroy(&groups->lock);
    free(groups);
}

void groups_stats(struct groups *groups, struct group_stats *ret_stats)
{
    pthread_mutex_lock(&groups->lock);
    *ret_stats = groups->stats;
    pthread_mutex_unlock(&groups->lock);
}

void groups_take_news(struct groups *groups, struct group_news *ret_news)
{
    pthread_mutex_lock(&groups->lock);
    *ret_news = groups->news;
    groups->news.count = 0;
    pthread_mutex_unlock(&groups->lock);
}

void groups_set_wait_ns(struct groups *groups, uint64_t wait_ns)
{
    pthread_mutex_lock(&groups->lock);
    groups->wait_ns = wait_ns;
    pthread_mutex_unlock(&groups->lock);
}

uint64_t groups_wait_ns(struct groups *groups)
{
    uint64_t wait_ns;

    pthread_mutex_lock(&groups->lock);
    wait_ns = groups->wait_ns;
    pthread_mutex_unlock(&groups->lock);
    return wait_ns;
}

/* ---- Rounds; all under the lock ---- */

/* Sends a push back to its home lane, with its answer. */
static void send_back(struct push *push, const struct refusal *refusal, bool is_applied,
                      uint64_t hit_rows)
{
    assert(push->stage == PUSH_ARRIVED);
    account_give(push->ticket->session->account, ACCOUNT_GROUP_BYTES, push->block_bytes);
    push->refusal = *refusal;
    push->hit_rows = hit_rows;
    push->is_applied = is_applied;
    push->message.kind = &message_step_done;
    mailbox_send(push->ticket->home, &push->message);
}

static void unlink_group(struct groups *groups, struct group *group)
{
    *group->link = group->next;
    if (group->next)
        group->next->link = group->link;
    assert(groups->stats.groups > 0);
    groups->stats.groups--;
    account_give(group->account, ACCOUNT_GROUPS, 1);
}

/* Notes a broken group for the log. It is not logged here: a lane must not wait for the reader of
 * the log, and clients must not be able to fill it. */
static void note_broken(struct groups *groups, const struct group *group)
{
    groups->stats.broken_groups++;
    groups->news.count++;
    groups->news.member = group->broken_by;
    groups->news.step = atomic_load_explicit(&group->step, memory_order_relaxed) + 1;
    groups->news.why = group->broken_why;
    memcpy(groups->news.name, group->name, sizeof(group->name));
}

/* Breaks a group. Waiting pushes are sent back with @refusal, which names the missing member. */
static void break_group(struct groups *groups, struct group *group, const struct refusal *refusal)
{
    if (atomic_load_explicit(&group->broken, memory_order_relaxed))
        return;
    group->broken_by = (uint32_t)refusal->value;
    group->broken_why = refusal->err;
    atomic_store_explicit(&group->broken, true, memory_order_release);
    unlink_group(groups, group);
    if (group->applying)
        return; /* the step is finished first */
    if (group->arrived > 0)
        note_broken(groups, group);
    for (uint32_t i = 0; i < group->size; i++)
        if (group->members[i] && group->members[i]->push)
            send_back(TAKE(group->members[i]->push), refusal, false, 0);
}

static const struct group_member *refused_member(const struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++)
        if (group->members[i]->refused > 0)
            return group->members[i];
    return NULL;
}

/* Ends a round in which all pushes have arrived and some were refused: refuses the others, too.
 * Parts that these members have sent since belong to the next round. */
static void refuse_round(struct groups *groups, struct group *group, const struct group_member *why)
{
    const struct refusal refusal = { .err = EMBTIER_GROUP_REFUSED,
                                     .segment = UINT32_MAX,
                                     .value = why->number,
                                     .limit = (uint64_t)why->last };

    groups->stats.refused_steps++;
    group->arrived = 0;
    group->since_ns = clock_now_ns(groups->clock);
    for (uint32_t i = 0; i < group->size; i++) {
        struct group_member *const member = group->members[i];

        if (member->refused > 0)
            member->refused--;
        else if (member->push)
            send_back(TAKE(member->push), &refusal, false, 0);
        group->arrived += member->refused > 0 || member->push;
    }
}

/* Counts a part of the round that has come. */
static void count_arrival(struct groups *groups, struct group *group)
{
    const struct group_member *why;

    assert(!group->applying && group->arrived < group->size);
    if (group->arrived++ == 0)
        group->since_ns = clock_now_ns(groups->clock);
    while (group->arrived == group->size) {
        why = refused_member(group);
        if (!why) {
            struct push *const leader = group->members[0]->push;

            assert(leader);
            group->applying = true;
            leader->message.kind = &message_lead;
            mailbox_send(leader->ticket->home, &leader->message);
            return;
        }
        refuse_round(groups, group, why);
    }
}

static enum embtier_err refuse_broken(const struct group *group, struct refusal *refusal)
{
    *refusal = (struct refusal){ .err = EMBTIER_GROUP_BROKEN,
                                 .segment = UINT32_MAX,
                                 .value = group->broken_by,
                                 .limit = (uint64_t)group->broken_why };
    return refusal->err;
}

/* True if a push of @bytes may wait. Each member has at most one push waiting. So a push no longer
 * than the member's share of a quarter of the user's part always finds room. Longer pushes get the
 * other three quarters. */
static bool may_wait(const struct account *account, uint64_t bytes, struct refusal *ret_refusal)
{
    const uint64_t has = account_has(account, ACCOUNT_GROUP_BYTES);
    const uint64_t part = account_part(account, ACCOUNT_GROUP_BYTES);
    const uint64_t members = account_has(account, ACCOUNT_GROUP_MEMBERS);
    const uint64_t most = bytes <= part / 4 / MAX(members, UINT64_C(1)) ? part : part / 4 * 3;

    if (account_ask(account, ACCOUNT_GROUP_BYTES, bytes) == ACCOUNT_TAKEN && has + bytes <= most)
        return true;
    *ret_refusal = (struct refusal){
        .err = EMBTIER_BUSY, .segment = UINT32_MAX, .value = has + bytes, .limit = most
    };
    return false;
}

enum embtier_err group_check(const struct session *session, const struct op_submission *submission,
                             bool is_push, struct group_member **ret_member,
                             struct refusal *refusal)
{
    struct group_member *member = NULL;
    enum embtier_err err;
    uint64_t next;

    if (submission->group == 0)
        return EMBTIER_OK;
    err = group_find(session, submission->group, &member, refusal);
    if (IS_BAD(CHECK_GROUP, err != EMBTIER_OK))
        return err;
    assert(member);
    next = group_step(member) + 1;
    *ret_member = member;
    if (IS_BAD(CHECK_GROUP_STEP, is_push ? submission->step != next : submission->step > next))
        return refuse(refusal, EMBTIER_GROUP_STEP, UINT32_MAX, submission->step, next);
    return EMBTIER_OK;
}

enum embtier_err group_arrive(struct group_member *member, struct push *push,
                              struct refusal *ret_refusal)
{
    struct groups *const groups = member->groups;
    struct group *const group = member->group;
    struct account *const account = push->ticket->session->account;
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&groups->lock);
    if (atomic_load_explicit(&group->broken, memory_order_relaxed)) {
        err = refuse_broken(group, ret_refusal);
    } else if (!may_wait(account, push->block_bytes, ret_refusal)) {
        err = EMBTIER_BUSY;
    } else {
        assert(push->stage == PUSH_ARRIVED && !member->push);
        account_add(account, ACCOUNT_GROUP_BYTES, push->block_bytes);
        member->push = push;
        if (member->refused == 0)
            count_arrival(groups, group);
    }
    pthread_mutex_unlock(&groups->lock);
    return err;
}

void group_refuse(struct group_member *member, enum embtier_err err)
{
    struct group *const group = member->group;

    pthread_mutex_lock(&member->groups->lock);
    if (!atomic_load_explicit(&group->broken, memory_order_relaxed)) {
        member->last = err;
        if (member->refused++ == 0)
            count_arrival(member->groups, group);
        if (member->refused > OP_SLOTS_MAX) /* no member is so far ahead of the others */
            break_group(member->groups, group,
                        &(struct refusal){ .err = EMBTIER_GROUP_BROKEN,
                                           .segment = UINT32_MAX,
                                           .value = member->number,
                                           .limit = (uint64_t)err });
    }
    pthread_mutex_unlock(&member->groups->lock);
}

void group_end_step(struct group_member *leader, const struct refusal *refusal, bool is_begun,
                    uint64_t hit_rows)
{
    struct groups *const groups = leader->groups;
    struct group *const group = leader->group;

    pthread_mutex_lock(&groups->lock);
    assert(group->applying && leader->push);
    if (refusal->err == EMBTIER_OK) {
        atomic_fetch_add_explicit(&group->step, 1, memory_order_release);
        groups->stats.steps++;
    } else if (!is_begun) {
        groups->stats.refused_steps++;
    }
    account_give(leader->push->ticket->session->account, ACCOUNT_GROUP_BYTES,
                 leader->push->block_bytes);
    leader->push = NULL;
    for (uint32_t i = 0; i < group->size; i++) {
        struct push *const push = TAKE(group->members[i]->push);

        if (push)
            send_back(push, refusal, is_begun, hit_rows);
    }
    group->applying = false;
    if (refusal->err != EMBTIER_OK && is_begun)
        break_group(groups, group,
                    &(struct refusal){ .err = refusal->err, .value = leader->number });
    group->arrived = 0;
    pthread_mutex_unlock(&groups->lock);
}

uint32_t group_size(const struct group_member *member)
{
    return member->group->size;
}

struct push *group_push(const struct group_member *member, uint32_t number)
{
    return member->group->members[number]->push;
}

uint64_t group_step(const struct group_member *member)
{
    return atomic_load_explicit(&member->group->step, memory_order_acquire);
}

/* ---- Time ---- */

static uint32_t missing_member(const struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++)
        if (!group->members[i] || (group->members[i]->refused == 0 && !group->members[i]->push))
            return i;
    return 0;
}

void groups_expire(struct groups *groups)
{
    struct group *next;
    uint64_t now_ns;

    pthread_mutex_lock(&groups->lock);
    now_ns = clock_now_ns(groups->clock); /* read under the lock, so no group's since_ns is later */
    for (struct group *group = groups->first; group; group = next) {
        next = group->next;
        if (group->arrived > 0 && !group->applying && now_ns - group->since_ns > groups->wait_ns)
            break_group(groups, group,
                        &(struct refusal){ .err = EMBTIER_TIMEOUT,
                                           .segment = UINT32_MAX,
                                           .value = missing_member(group),
                                           .limit = groups->wait_ns / 1000000 });
    }
    pthread_mutex_unlock(&groups->lock);
}

void groups_stop(struct groups *groups)
{
    pthread_mutex_lock(&groups->lock);
    while (groups->first)
        break_group(groups, groups->first,
                    &(struct refusal){ .err = EMBTIER_SHUTDOWN, .segment = UINT32_MAX });
    groups->news.count = 0;
    pthread_mutex_unlock(&groups->lock);
}

/* ---- Members ---- */

static enum embtier_err check_join(const struct group_join *join, struct err_msg *msg)
{
    if (!table_name_is_valid(join->name))
        return err_set(msg, EMBTIER_INVALID,
                       "group name '%s': allowed are letters, digits, '_', '.' and '-', the last "
                       "two not as the first character, and at most %d characters",
                       join->name, EMBTIER_GROUP_NAME_MAX);
    if (join->size == 0 || join->size > EMBTIER_GROUP_MEMBERS_MAX)
        return err_set(msg, EMBTIER_INVALID, "a group of %u members, allowed: 1 to %d", join->size,
                       EMBTIER_GROUP_MEMBERS_MAX);
    if (join->step >= OPTIMIZER_STEP_MAX)
        return err_set(msg, EMBTIER_INVALID, "step is %" PRIu64 ", allowed: 0 to %" PRIu64,
                       join->step, OPTIMIZER_STEP_MAX - 1);
    return EMBTIER_OK;
}

static struct group *find_group(const struct groups *groups, const struct group_join *join)
{
    struct group *group = groups->first;

    while (group && (group->user != join->user || strcmp(group->name, join->name) != 0))
        group = group->next;
    return group;
}

static enum embtier_err new_group(struct groups *groups, struct account *account,
                                  const struct group_join *join, struct group **ret_group,
                                  struct err_msg *msg)
{
    struct group *const group =
        calloc(1, sizeof(*group) + join->size * sizeof(struct group_member *));

    if (!group)
        return err_set(msg, EMBTIER_NO_MEMORY, "group: out of memory");
    memcpy(group->name, join->name, strlen(join->name) + 1);
    group->user = join->user;
    group->account = account;
    account_add(account, ACCOUNT_GROUPS, 1);
    group->size = join->size;
    atomic_store_explicit(&group->step, join->step, memory_order_relaxed);
    group->next = groups->first;
    if (group->next)
        group->next->link = &group->next;
    group->link = &groups->first;
    groups->first = group;
    groups->stats.groups++;
    *ret_group = group;
    return EMBTIER_OK;
}

/* Checks that @group, which exists, is the one to join. */
static enum embtier_err check_fits(const struct group *group, const struct session *session,
                                   const struct group_join *join, struct err_msg *msg)
{
    const uint64_t step = atomic_load_explicit(&group->step, memory_order_relaxed);

    for (const struct group_member *m = session->groups; m; m = m->next)
        if (m->group == group)
            return err_set(msg, EMBTIER_EXISTS, "this client is already member %u of group '%s'",
                           m->number, group->name);
    if (group->joined == group->size)
        return err_set(msg, EMBTIER_GROUP_FULL, "group '%s' already has all of its %u members",
                       group->name, group->size);
    if (join->size != group->size)
        return err_set(msg, EMBTIER_MISMATCH, "group '%s' has %u members, not %u", group->name,
                       group->size, join->size);
    if (join->step != step)
        return err_set(msg, EMBTIER_MISMATCH,
                       "group '%s' is at step %" PRIu64 ", and member %u joins at step %" PRIu64,
                       group->name, step, join->member, join->step);
    return EMBTIER_OK;
}

/* Checks that there is room for one more member, and for @groups more groups. */
static enum embtier_err check_room(const struct account *account, uint32_t groups,
                                   struct err_msg *msg)
{
    const enum account_answer members = account_ask(account, ACCOUNT_GROUP_MEMBERS, 1);

    if (groups > 0 && account_ask(account, ACCOUNT_GROUPS, groups) != ACCOUNT_TAKEN)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "your user's clients have %" PRIu64 " groups, allowed: %d",
                       account_has(account, ACCOUNT_GROUPS), USER_GROUPS_MAX);
    if (members == ACCOUNT_USER_HAS)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "groups of your user's clients have %" PRIu64 " members, allowed: %" PRIu64
                       " while others have theirs",
                       account_has(account, ACCOUNT_GROUP_MEMBERS),
                       account_part(account, ACCOUNT_GROUP_MEMBERS));
    if (members != ACCOUNT_TAKEN)
        return err_set(msg, EMBTIER_TOO_LARGE, "all groups together have %d members, allowed: %d",
                       GROUPS_MEMBERS_MAX, GROUPS_MEMBERS_MAX);
    return EMBTIER_OK;
}

static enum embtier_err check_member(const struct group *group, const struct group_join *join,
                                     struct err_msg *msg)
{
    if (join->member >= join->size)
        return err_set(msg, EMBTIER_INVALID, "member %u of a group of %u, allowed: 0 to %u",
                       join->member, join->size, join->size - 1);
    if (group && group->members[join->member])
        return err_set(msg, EMBTIER_EXISTS, "group '%s' already has a member %u", group->name,
                       join->member);
    return EMBTIER_OK;
}

static uint32_t count_memberships(const struct session *session)
{
    uint32_t count = 0;

    for (const struct group_member *m = session->groups; m; m = m->next)
        count++;
    return count;
}

static void add_member(struct session *session, struct group *group, struct group_member *member)
{
    struct group_member *before = session->groups;

    assert(!group->members[member->number] && group->joined < group->size);
    group->members[member->number] = member;
    group->joined++;
    group->member_count++;
    account_add(session->account, ACCOUNT_GROUP_MEMBERS, 1);
    /* Publishes the member. The home lane finds it from the moment the client knows the handle, not
     * before. */
    member->next = before;
    atomic_store_explicit(&session->groups, member, memory_order_release);
}

enum embtier_err groups_join(struct groups *groups, struct session *session,
                             const struct group_join *join, struct group_joined *ret_joined,
                             struct err_msg *msg)
{
    const uint32_t number = count_memberships(session) + 1;
    struct group_member *member;
    struct group *group;
    enum embtier_err err;

    TRY(check_join(join, msg));
    if (number > SESSION_GROUPS_MAX)
        return err_set(
            msg, EMBTIER_TOO_LARGE,
            "a connection may join at most %d groups, broken ones included: connect again",
            SESSION_GROUPS_MAX);
    member = calloc(1, sizeof(*member));
    if (!member)
        return err_set(msg, EMBTIER_NO_MEMORY, "group: out of memory");
    member->groups = groups;
    member->number = join->member;
    member->handle = session->id << 32 | number;
    pthread_mutex_lock(&groups->lock);
    group = find_group(groups, join);
    err = group ? check_fits(group, session, join, msg) : EMBTIER_OK;
    if (err == EMBTIER_OK)
        err = check_room(session->account, group ? 0 : 1, msg);
    if (err == EMBTIER_OK)
        err = check_member(group, join, msg);
    if (err == EMBTIER_OK && !group)
        err = new_group(groups, session->account, join, &group, msg);
    if (err == EMBTIER_OK) {
        member->group = group;
        add_member(session, group, member);
        *ret_joined = (struct group_joined){ .handle = member->handle,
                                             .step = join->step,
                                             .members = group->joined };
    }
    pthread_mutex_unlock(&groups->lock);
    if (err != EMBTIER_OK)
        free(member);
    return err;
}

/* The caller holds the lock. */
static void leave(struct groups *groups, const struct group_member *member)
{
    break_group(groups, member->group,
                &(struct refusal){ .err = EMBTIER_GROUP_BROKEN,
                                   .segment = UINT32_MAX,
                                   .value = member->number,
                                   .limit = EMBTIER_GROUP_BROKEN });
}

enum embtier_err groups_leave(struct groups *groups, const struct session *session, uint64_t handle,
                              struct group_joined *ret_left, struct err_msg *msg)
{
    const struct group_member *member = session->groups;

    while (member && member->handle != handle)
        member = member->next;
    if (!member)
        return err_set(msg, EMBTIER_NO_GROUP, "this session is not a member of that group");
    pthread_mutex_lock(&groups->lock);
    leave(groups, member);
    *ret_left = (struct group_joined){ .handle = handle,
                                       .step = group_step(member),
                                       .members = member->group->joined };
    pthread_mutex_unlock(&groups->lock);
    return EMBTIER_OK;
}

void groups_forget(struct session *session)
{
    struct group_member *next;

    for (struct group_member *member = session->groups; member; member = next) {
        struct groups *const groups = member->groups;
        struct group *const group = member->group;
        bool is_last;

        next = member->next;
        pthread_mutex_lock(&groups->lock);
        account_give(session->account, ACCOUNT_GROUP_MEMBERS, 1);
        assert(atomic_load_explicit(&group->broken, memory_order_relaxed) && !member->push);
        assert(group->member_count > 0);
        is_last = --group->member_count == 0;
        group->members[member->number] = NULL;
        pthread_mutex_unlock(&groups->lock);
        if (is_last)
            free(group); /* the group is broken, since this member left */
        free(member);
    }
    session->groups = NULL;
}

void group_leave_all(struct session *session)
{
    for (struct group_member *member = atomic_load(&session->groups); member;
         member = member->next) {
        pthread_mutex_lock(&member->groups->lock);
        leave(member->groups, member);
        pthread_mutex_unlock(&member->groups->lock);
    }
}

enum embtier_err group_find(const struct session *session, uint64_t handle,
                            struct group_member **ret_member, struct refusal *ret_refusal)
{
    struct group_member *member = atomic_load_explicit(&session->groups, memory_order_acquire);

    while (member && member->handle != handle)
        member = member->next;
    if (!member) {
        *ret_refusal =
            (struct refusal){ .err = EMBTIER_NO_GROUP, .segment = UINT32_MAX, .value = handle };
        return ret_refusal->err;
    }
    if (atomic_load_explicit(&member->group->broken, memory_order_acquire))
        return refuse_broken(member->group, ret_refusal);
    *ret_member = member;
    return EMBTIER_OK;
}
